"""SIGKILL at every durable step: never a store that is not one, and the next run ends as if nothing had happened."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streamsvm.errors import DataError, MissingError
from streamsvm.jobs.common_options import SynthJob
from streamsvm.jobs.inspect import verify
from streamsvm.jobs.synth import synth
from streamsvm.store import open_store
from streamsvm.store.format.manifest import JOURNAL_FILE
from tests.fault.golden import digest_of, ingested, leftovers, write_table
from tests.fault.killing import Server

KILLED = -9
STRIDE = 29
"""Of the steps, every so many; the soak takes all. A prime: what is done to a chunk in fewer steps is met at each of them."""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_table(tmp_path_factory.mktemp("source"), rows=500, columns=4)


@pytest.fixture(scope="module")
def server(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """With everything imported and compiled that the jobs will need."""
    directory = tmp_path_factory.mktemp("warm")
    store = str(directory / "s.zarr")
    with Server() as started:
        for layout, name in (("dense", "s.h5"), ("csr", "c.h5"), ("csr", "c.zarr"), ("dense", "s.zarr")):
            settings = ingest_settings(source, directory / name, layout=layout)
            assert started.run("ingest", warm=True, **settings).status == 0
        fit: dict[str, Any] = {
            "store": store,
            "model": str(directory / "m"),
            "loss": "hinge",
            "max_passes": 2,
            "in_file": True,
        }
        assert started.run("fit", warm=True, **fit).status == 0
        predict: dict[str, Any] = {"model": str(directory / "m"), "data": [store], "out": str(directory / "p.csv")}
        assert started.run("predict", warm=True, **predict).status == 0
        yield started


def ingest_settings(source: Path, store: Path, **more: Any) -> dict[str, Any]:
    return {"sources": [str(source)], "store": str(store), "label": "y", "chunk_bytes": 4096, **more}


def steps_of(server: Server, name: str, **settings: Any) -> int:
    outcome = server.run(name, **settings)
    assert outcome.status == 0, outcome.said
    return outcome.steps


def nothing_or_everything(path: Path) -> bool:
    """Whether the store is there; then all of it must be."""
    try:
        open_store(path)
    except (DataError, MissingError) as error:
        assert error.code in ("E-INCOMPLETE", "E-MISSING-INPUT")
        return False
    assert verify(path)["bad"] == []
    return True


@pytest.mark.parametrize(("name", "layout"), [("s.zarr", "dense"), ("s.h5", "csr")])
def test_kill_ingest_killed_at_any_step_goes_on_to_the_same_bytes(
    server: Server, source: Path, tmp_path: Path, name: str, layout: str
) -> None:
    reference = tmp_path / f"reference{Path(name).suffix}"
    steps = steps_of(server, "ingest", **ingest_settings(source, reference, layout=layout))
    expected = digest_of(reference)
    for at in range(1, steps + 1, STRIDE):
        store = tmp_path / str(at) / name
        settings = ingest_settings(source, store, layout=layout)
        assert server.run("ingest", kill=at, **settings).status == KILLED
        committed = nothing_or_everything(store)
        outcome = server.run("ingest", **settings)
        assert outcome.status == (73 if committed else 0), outcome.said
        assert digest_of(store) == expected, f"killed at step {at}"
        assert not leftovers(store.parent)
        shutil.rmtree(store.parent)


def test_kill_ingest_does_not_write_complete_parts_again(server: Server, source: Path, tmp_path: Path) -> None:
    reference, store = tmp_path / "reference.h5", tmp_path / "s.h5"
    steps = steps_of(server, "ingest", **ingest_settings(source, reference))
    settings = ingest_settings(source, store)
    server.run("ingest", kill=steps - 8, **settings)
    noted = [line["parts"] for line in map(json.loads, (store / JOURNAL_FILE).read_text().splitlines()[1:])]
    parts = {
        store / part["file"]["name"]: (store / part["file"]["name"]).stat().st_mtime_ns for p in noted for part in p
    }
    assert parts
    assert server.run("ingest", **settings).status == 0
    assert digest_of(store) == digest_of(reference)
    assert {path: path.stat().st_mtime_ns for path in parts} == parts


@pytest.mark.parametrize("damage", ["part", "journal"])
def test_kill_ingest_rewrites_parts_that_differ_from_the_journal(
    server: Server, source: Path, tmp_path: Path, damage: str
) -> None:
    """A file that was changed is written again; rows that come out otherwise end the run."""
    reference, store = tmp_path / "reference.h5", tmp_path / "s.h5"
    steps = steps_of(server, "ingest", **ingest_settings(source, reference))
    settings = ingest_settings(source, store)
    server.run("ingest", kill=steps - 8, **settings)
    if damage == "part":
        (store / "part-00000.h5").write_bytes((store / "part-00000.h5").read_bytes()[:-1])
        assert server.run("ingest", **settings).status == 0
        assert digest_of(store) == digest_of(reference)
    else:
        first, *notes = map(json.loads, (store / JOURNAL_FILE).read_text().splitlines())
        next(note for note in notes if note["parts"])["parts"][0]["crcs"]["X"][0] ^= 1
        (store / JOURNAL_FILE).write_text("".join(json.dumps(line) + "\n" for line in [first, *notes]))
        outcome = server.run("ingest", **settings)
        assert (outcome.status, "E-SOURCE" in outcome.said) == (65, True)


def test_kill_ingest_killed_while_it_replaces_a_store_leaves_the_old_or_the_new_one(
    server: Server, source: Path, tmp_path: Path
) -> None:
    """At every moment there is a whole store: the old one or the new one."""
    old, reference = tmp_path / "old.zarr", tmp_path / "reference.zarr"
    steps_of(server, "ingest", **ingest_settings(source, old, drop=["x1"]))
    shutil.copytree(old, tmp_path / "counted.zarr")
    steps = steps_of(server, "ingest", **ingest_settings(source, tmp_path / "counted.zarr", overwrite=True))
    steps_of(server, "ingest", **ingest_settings(source, reference))
    before, after = digest_of(old), digest_of(reference)
    for at in range(1, steps + 1, STRIDE):
        store = tmp_path / str(at) / "s.zarr"
        shutil.copytree(old, store)
        settings = ingest_settings(source, store, overwrite=True)
        assert server.run("ingest", kill=at, **settings).status == KILLED
        assert digest_of(store) in (before, after)
        assert server.run("ingest", **settings).status == 0
        assert digest_of(store) == after, f"killed at step {at}"
        shutil.rmtree(store.parent)


@pytest.mark.parametrize("in_file", [False, True], ids=["in-memory", "in-file"])
def test_kill_fit_killed_at_any_step_goes_on_to_the_same_weights(server: Server, tmp_path: Path, in_file: bool) -> None:
    store = ingested(tmp_path)
    settings: dict[str, Any] = {
        "store": str(store),
        "solver": "dcd",
        "loss": "hinge",
        "tolerance": 1e-12,
        "max_passes": 3,
        "checkpoint_every": 1e-9,
        "in_file": in_file,
        "resume": True,
    }
    reference = tmp_path / "reference"
    steps = steps_of(server, "fit", model=str(reference), **settings)
    for at in range(1, steps + 1, STRIDE * (2 if in_file else 1)):
        model = tmp_path / f"m{at}"
        assert server.run("fit", kill=at, model=str(model), **settings).status == KILLED
        outcome = server.run("fit", model=str(model), **settings)  # where the model is already, this finds the run over
        assert outcome.status == 0, f"killed at step {at}: {outcome.said}"
        assert weights_of(model) == weights_of(reference), f"killed at step {at}"
        assert not leftovers(tmp_path)


@pytest.mark.parametrize(("folds", "place"), [(None, "tables_of_group"), (3, "FoldDecision")])
def test_kill_fit_killed_in_its_calibration_ends_with_the_same_bytes(
    server: Server, tmp_path: Path, folds: int | None, place: str
) -> None:
    """Killed in the reading of the scores, and when the first fold is fitted: the same bytes, with and without a checkpoint."""
    settings: dict[str, Any] = {
        "store": str(ingested(tmp_path)),
        "loss": "squared_hinge",
        "max_passes": 3,
        "tolerance": 1e-12,
        "calibrate": "sigmoid",
        "calibration_folds": folds,
        "resume": True,
    }
    assert server.run("fit", model=str(tmp_path / "reference"), **settings).status == 0
    for every in (1e-9, 0.0):
        model, given = tmp_path / f"m{every}", settings | {"checkpoint_every": every}
        killed = server.run("fit", model=str(model), killed_in=f"streamsvm.jobs.calibration_scores.{place}", **given)
        assert (killed.status, model.exists()) == (KILLED, False)
        assert (tmp_path / f"{model.name}.run" / "checkpoint" / "ckpt-A").exists() == (every > 0)
        assert server.run("fit", model=str(model), **given).status == 0
        assert model.read_bytes() == (tmp_path / "reference").read_bytes()


def test_kill_fit_out_of_core_killed_goes_on_to_the_same_weights(server: Server, tmp_path: Path) -> None:
    """Second order on a sample: what passes on from reading to reading is a center, a damping, a corner and bounds."""
    store = str(tmp_path / "wide")
    synth(SynthJob("table", store, rows=4000, columns=2000, chunk_bytes=1 << 14))
    settings: dict[str, Any] = {
        "store": store,
        "solver": "newton",
        "loss": "hinge",
        "options": {"sample": 600},
        "tolerance": 1e-3,
        "max_passes": 6,
        "checkpoint_every": 1e-9,
        "resume": True,
    }
    reference = tmp_path / "reference"
    steps = steps_of(server, "fit", model=str(reference), **settings)
    told = [json.loads(line) for line in (tmp_path / "reference.run" / "events.jsonl").read_text().splitlines()]
    passes = [event for event in told if event["event"] == "pass"]
    assert len(passes) >= 3
    assert not any("all in memory" in str(event) for event in passes), passes[-1]
    for at in (steps // 3, 2 * steps // 3):
        model = tmp_path / f"m{at}"
        assert server.run("fit", kill=at, model=str(model), **settings).status == KILLED
        outcome = server.run("fit", model=str(model), **settings)
        assert outcome.status == 0, f"killed at step {at}: {outcome.said}"
        assert weights_of(model) == weights_of(reference), f"killed at step {at}"


@pytest.mark.parametrize("checkpoints", [True, False], ids=["checkpoints", "none"])
def test_kill_fit_of_several_C_killed_accepts_its_own_models(server: Server, tmp_path: Path, checkpoints: bool) -> None:
    """Killed while the models are written, the last steps of a run: resumed, it is the run that was not killed.

    Every seventh step, and with checkpoints the one after: a model takes another number of them.
    """
    store = ingested(tmp_path)
    settings: dict[str, Any] = {
        "store": str(store),
        "loss": "hinge",
        "C": [0.1, 1.0, 10.0],
        "max_passes": 3,
        "checkpoint_every": 1e-9 if checkpoints else 0.0,
        "resume": True,
    }
    reference = tmp_path / "reference.ssvm"
    steps = steps_of(server, "fit", model=str(reference), **settings)
    names = [f".C={C}" for C in ("0.1", "1", "10")]
    some = 0
    for at in range(max(1, steps - 40 + checkpoints), steps + 1, 7):
        model = tmp_path / f"m{at}.ssvm"
        assert server.run("fit", kill=at, model=str(model), **settings).status == KILLED
        written = [model.with_name(f"m{at}{name}.ssvm") for name in names]
        some += 0 < sum(path.exists() for path in written) < 3
        outcome = server.run("fit", model=str(model), **settings)
        assert outcome.status == 0, f"killed at step {at}: {outcome.said}"
        for path, name in zip(written, names, strict=True):
            assert weights_of(path) == weights_of(tmp_path / f"reference{name}.ssvm"), f"killed at step {at}"
        assert not (tmp_path / f"m{at}.ssvm.run" / "checkpoint").exists()
        assert not leftovers(tmp_path)
    assert some, "no run was killed between two models"


def weights_of(model: Path) -> bytes:
    from safetensors.numpy import load

    return load(model.read_bytes())["weights"].tobytes()


@pytest.mark.parametrize("out", ["p.csv", "p.npy"])
def test_kill_predictions_killed_at_any_step_are_whole_or_absent(server: Server, tmp_path: Path, out: str) -> None:
    store = ingested(tmp_path)
    model = tmp_path / "m"
    assert server.run("fit", store=str(store), model=str(model), loss="hinge", max_passes=2).status == 0
    settings: dict[str, Any] = {"model": str(model), "data": [str(store)], "output": "decision"}
    reference = tmp_path / f"reference{Path(out).suffix}"
    steps = steps_of(server, "predict", out=str(reference), **settings)
    for at in range(1, steps + 1, 5):
        written = tmp_path / f"{at}-{out}"
        assert server.run("predict", kill=at, out=str(written), **settings).status == KILLED
        assert not written.exists() or written.read_bytes() == reference.read_bytes()
        assert server.run("predict", out=str(written), overwrite=True, **settings).status == 0
        assert written.read_bytes() == reference.read_bytes()
        assert not leftovers(tmp_path)


def test_kill_search_killed_at_any_step_goes_on_to_the_same_table(server: Server, source: Path, tmp_path: Path) -> None:
    """Killed within its first cell, it has files of rows and no table yet: the same command goes on.

    Few steps are tried: what a search is made of, a fit, is killed at all of its own above.
    """
    store = str(tmp_path / "s.zarr")
    assert server.run("ingest", **ingest_settings(source, Path(store))).status == 0
    settings: dict[str, Any] = {"store": store, "solver": "dcd", "loss": "hinge", "C": [0.1, 1.0], "folds": 2}
    settings |= {"max_passes": 2, "in_file": True}
    steps = steps_of(server, "tune", out=str(tmp_path / "straight"), **settings)
    expected = (tmp_path / "straight" / "table.csv").read_bytes()
    for at in range(1, steps + 1, 13):
        out = tmp_path / str(at)
        assert server.run("tune", kill=at, out=str(out), **settings).status == KILLED
        complete = (out / "table.json").exists()
        outcome = server.run("tune", out=str(out), **settings)
        assert outcome.status == (73 if complete else 0), outcome.said
        assert (out / "table.csv").read_bytes() == expected, f"killed at step {at}"
