"""What may be written: outputs of ours are replaced when that is asked for, and nothing else ever is."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import streamsvm as sv
from streamsvm import durable
from streamsvm.errors import ExistsError, StorageError, StreamSVMError, UsageError
from streamsvm.jobs.apply.options import PredictJob
from streamsvm.jobs.apply.predict import predict
from streamsvm.jobs.common_options import EmbedJob, SynthJob
from streamsvm.jobs.embed.build import embed
from streamsvm.jobs.fit.driver import fit
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.ingest.describe import describe
from streamsvm.jobs.ingest.options import IngestJob
from streamsvm.jobs.ingest.run import ingest
from streamsvm.jobs.synth import synth
from streamsvm.jobs.tune.options import TuneJob
from streamsvm.jobs.tune.run import tune
from streamsvm.outputs import (
    ARRAY,
    EMBEDDING,
    MODEL,
    PREDICTIONS,
    REJECTS,
    RUN,
    SCHEMA,
    SEARCH,
    STORE,
    Kind,
    Output,
    check_writable,
)
from streamsvm.rows import Dense
from streamsvm.store import create
from tests.axes import each_value

ROWS = [(k % 2, k, k * k % 7) for k in range(40)]
CSV = "y,a,b\n" + "".join(f"{y},{a},{b}\n" for y, a, b in ROWS)


def made(root: Path) -> Path:
    """One of each output, and of each thing that is none."""
    (root / "in.csv").write_text(CSV)
    for name, form in (("store.zarr", None), ("store.h5", None), ("store.test.zarr", None)):
        ingest(IngestJob(sources=(root / "in.csv",), store=root / name, label="y", store_format=form))
    store = str(root / "store.zarr")
    embed(EmbedJob(store, str(root / "embedding.zarr"), landmarks=5))
    fit(FitJob(store, str(root / "model.ssvm"), dual=str(root / "dual.npy"), solver="dcd"))
    tune(TuneJob(store, str(root / "search"), folds=2))
    for name, output in (("p.csv", "label"), ("d.csv", "decision"), ("p.txt", "label"), ("p.npy", "label")):
        predict(PredictJob(str(root / "model.ssvm"), (store,), str(root / name), output=output))
    bad = CSV.replace("1,3,2\n", "1,3\n")
    (root / "bad.csv").write_text(bad)
    job = IngestJob(sources=(root / "bad.csv",), store=root / "bad.zarr", label="y", on_bad_line="skip", max_bad="10%")
    ingest(job)
    describe(IngestJob(sources=(root / "in.csv",), store=root / "-", label="y"), root / "columns.toml")
    foreign(root)
    return root


def foreign(root: Path) -> None:
    """What no job of ours has written."""
    (root / "notes.txt").write_text("do not forget the milk\n")
    (root / "people.txt").write_text("\n".join(f"name{k}" for k in range(200)))
    (root / "rows.svm").write_text("1 1:0.5 3:2\n-1 2:1\n")
    (root / "app.json").write_text('{"name": "a web application"}')
    (root / "thesis").mkdir()
    (root / "thesis" / "thesis.tex").write_text("years of work")
    np.save(root / "array.npy", np.arange(12.0))
    (root / "mixed.zarr").mkdir()
    shutil.copytree(root / "store.zarr", root / "mixed.zarr", dirs_exist_ok=True)
    (root / "mixed.zarr" / "X" / "notes.txt").write_text("which columns are which")
    shutil.copytree(root / "model.ssvm.run", root / "mixed.run")
    (root / "mixed.run" / "plan.json").write_text("a plan of mine")
    shutil.copytree(root / "search", root / "mixed.search")
    (root / "mixed.search" / "conclusions.md").write_text("C = 1")
    (root / "inner").mkdir()
    shutil.copytree(root / "store.zarr", root / "inner" / "store.zarr")
    (root / "app").mkdir()
    (root / "app" / "manifest.json").write_text('{"name": "a web application"}')


@pytest.fixture(scope="module")
def gallery(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("gallery"))


OURS: dict[str, tuple[Kind, tuple[str, ...]]] = {
    "store": (STORE, ("store.zarr", "store.h5", "store.test.zarr", "bad.zarr")),
    "embedding": (EMBEDDING, ("embedding.zarr",)),
    "model": (MODEL, ("model.ssvm",)),
    "run": (RUN, ("model.ssvm.run",)),
    "search": (SEARCH, ("search",)),
    "predictions": (PREDICTIONS, ("p.csv", "d.csv", "p.txt", "p.npy", "dual.npy")),
    "dual": (ARRAY, ("dual.npy", "p.npy")),
    "rejects": (REJECTS, ("bad.zarr.rejects",)),
    "schema": (SCHEMA, ("columns.toml",)),
}


def names(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir())


@pytest.mark.parametrize("kind", OURS)
def test_outputs_each_kind_knows_its_own_and_nothing_else(kind: str, gallery: Path) -> None:
    found = {name for name in names(gallery) if not OURS[kind][0].fault(gallery / name)}
    assert found == set(OURS[kind][1])


@pytest.mark.parametrize("kind", OURS)
def test_outputs_what_is_there_is_replaced_only_when_asked_and_ours(kind: str, gallery: Path) -> None:
    mine, ours = OURS[kind]
    for name in names(gallery):
        output = [Output(gallery / name, mine)]
        with pytest.raises(ExistsError) as refused:
            check_writable(output, overwrite=False)
        assert refused.value.exit_code == 73
        assert ("--overwrite" in refused.value.hint) == (name in ours)  # the hint is for what it helps
        if name in ours:
            check_writable(output, overwrite=True)
        else:
            with pytest.raises(ExistsError):
                check_writable(output, overwrite=True)


# -- nothing that is read is written -------------------------------------------------------------------------------------

Disguise = Callable[[Path, Path], Path]
DISGUISES: dict[str, Disguise] = {
    "itself": lambda path, _: path,
    "relative": lambda path, _: Path(os.path.relpath(path)),
    "detour": lambda path, _: path.parent / "thesis" / ".." / path.name,
    "link": lambda path, place: _linked(path, place / "link"),
    "through a linked folder": lambda path, place: _linked(path.parent, place / "folder") / path.name,
    "hard link": lambda path, place: _hard_linked(path, place / f"hard{path.suffix}"),
    "folder around it": lambda path, _: path.parent,
}


def _linked(path: Path, link: Path) -> Path:
    link.symlink_to(path)
    return link


def _hard_linked(path: Path, link: Path) -> Path:
    if path.is_dir():
        return path
    os.link(path, link)
    return link


@each_value(("disguise", DISGUISES), ("kind", OURS))
def test_outputs_input_under_any_name_is_no_output(kind: str, disguise: str, gallery: Path, tmp_path: Path) -> None:
    """Although it is of the kind that may be replaced."""
    mine, ours = OURS[kind]
    for number, name in enumerate(ours):
        place = tmp_path / str(number)
        place.mkdir()
        path = DISGUISES[disguise](gallery / name, place)
        with pytest.raises(ExistsError) as refused:
            check_writable([Output(path, mine)], [gallery / "rows.svm", gallery / name], overwrite=True)
        assert refused.value.exit_code == 73
        assert "--overwrite" not in refused.value.hint


def test_outputs_patterns_and_folders_stand_for_their_files(gallery: Path) -> None:
    for inputs in ([gallery / "*.csv"], [gallery], [str(gallery / "**" / "*.csv")]):
        with pytest.raises(ExistsError, match="is read by this job"):
            check_writable([Output(gallery / "p.csv", PREDICTIONS)], inputs, overwrite=True)
    check_writable([Output(gallery / "new.csv", PREDICTIONS)], [gallery], overwrite=True)


def test_outputs_nothing_is_written_into_any_store(gallery: Path) -> None:
    for name in ("store.zarr/model.ssvm", "store.zarr/X/p.csv", "inner/store.zarr/p.csv", "store.h5/p.csv"):
        with pytest.raises(ExistsError, match="lies inside the store"):
            check_writable([Output(gallery / name, MODEL)], overwrite=True)


@each_value(
    ("name", [".", "..", "/", "thesis/.."]), ("what", ["synth", "ingest", "test store", "embed", "model", "tune"])
)
def test_outputs_directory_that_has_no_name_of_its_own_is_no_output(
    what: str, name: str, gallery: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(gallery, tmp_path / "gallery")
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    before = digests(tmp_path)
    with pytest.raises(UsageError, match="is not a name for an output"):
        JOBS[what](tmp_path / "gallery", Path(name))
    assert digests(tmp_path) == before


def test_outputs_two_need_two_places(gallery: Path) -> None:
    for other in ("model.ssvm", "thesis/../model.ssvm", "model.ssvm/dual.npy"):
        with pytest.raises(UsageError, match="same place"):
            check_writable([Output(gallery / "model.ssvm", MODEL), Output(gallery / other, ARRAY)], overwrite=True)


def test_outputs_link_is_no_output_even_where_it_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / "link.csv").symlink_to(tmp_path / "nothing")
    with pytest.raises(ExistsError, match="is a symbolic link"):
        check_writable([Output(tmp_path / "link.csv", PREDICTIONS)], overwrite=True)


def test_outputs_claiming_says_before_the_work_what_would_fail_after_it(tmp_path: Path) -> None:
    check_writable([Output(tmp_path / "new", MODEL)], overwrite=False)
    with pytest.raises(StorageError, match="no such directory"):
        check_writable([Output(tmp_path / "none" / "new", MODEL)], overwrite=False)
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(os.getuid() == 0, reason="root may write anywhere")
def test_outputs_directory_that_may_not_be_written_to_is_said_before_the_work(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(StorageError, match="Permission denied"):
        check_writable([Output(tmp_path / "new", MODEL)], overwrite=False)


# -- every job asks --------------------------------------------------------------------------------------------------------

Job = Callable[[Path, Path], Any]
"""Writes to the second path, reading from the gallery that is the first."""


def _ingest(root: Path, out: Path, **more: Any) -> Any:
    return ingest(IngestJob(sources=(root / "in.csv",), store=out, label="y", overwrite=True, **more))


def _fit(root: Path, model: Path, **more: Any) -> Any:
    return fit(FitJob(str(root / "store.zarr"), str(model), overwrite=True, max_passes=2, solver="dcd", **more))


def _rejecting(root: Path, out: Path) -> Any:
    """A job whose list of rejected lines goes to ``out``: its name follows from that of the store."""
    if out.name.endswith(".rejects"):
        return _rejecting_to(root, out)
    moved = root / "fresh.zarr.rejects"
    shutil.copytree(out, moved, symlinks=True) if out.is_dir() else shutil.copy(out, moved)
    before = digests(moved.parent)
    try:
        return _rejecting_to(root, moved)
    finally:
        assert digests(moved.parent) == before
        shutil.rmtree(moved) if moved.is_dir() else moved.unlink()


def _rejecting_to(root: Path, out: Path) -> Any:
    store = root / out.name.removesuffix(".rejects")
    more: dict[str, Any] = {"on_bad_line": "skip", "max_bad": "10%", "overwrite": True}
    return ingest(IngestJob(sources=(root / "bad.csv",), store=store, label="y", **more))


JOBS: dict[str, Job] = {
    "synth": lambda root, out: synth(SynthJob("susy", str(out), rows=100, overwrite=True)),
    "ingest": _ingest,
    "test store": lambda root, out: _ingest(root, root / "fresh.zarr", test_fraction=0.5, test_store=out),
    "rejects": _rejecting,
    "embed": lambda root, out: embed(EmbedJob(str(root / "store.zarr"), str(out), landmarks=3, overwrite=True)),
    "model": _fit,
    "dual": lambda root, out: _fit(root, root / "fresh.ssvm", dual=str(out)),
    "tune": lambda root, out: tune(TuneJob(str(root / "store.zarr"), str(out), folds=2, overwrite=True)),
    "predict": lambda root, out: predict(
        PredictJob(str(root / "model.ssvm"), (str(root / "in.csv"),), str(out), overwrite=True)
    ),
}
MAY_REPLACE = {
    "synth": "store", "ingest": "store", "test store": "store", "rejects": "rejects", "embed": "embedding",
    "model": "model", "dual": "dual", "tune": "search", "predict": "predictions",
}  # fmt: skip


def digests(root: Path) -> dict[str, str]:
    """What every file holds, and every link and directory."""
    return dict(_digests(root))


def _digests(root: Path) -> Iterator[tuple[str, str]]:
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if path.is_symlink():
            yield name, os.readlink(path)
        else:
            yield name, "directory" if path.is_dir() else hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("what", JOBS)
def test_outputs_no_job_replaces_what_is_not_its_own(what: str, gallery: Path, tmp_path: Path) -> None:
    """Every job against every path of the gallery: with --overwrite, its own kind is replaced and all else stays."""
    root = tmp_path / "gallery"
    shutil.copytree(gallery, root)
    before, ours = digests(root), OURS[MAY_REPLACE[what]][1]
    for name in names(gallery):
        if name in ours:
            continue
        with pytest.raises(StreamSVMError) as refused:
            JOBS[what](root, root / name)
        assert refused.value.exit_code in ((2, 73) if what in ("predict", "synth") else (73,)), name
        assert digests(root) == before, name


@pytest.mark.parametrize("what", JOBS)
def test_outputs_every_job_replaces_its_own(what: str, gallery: Path, tmp_path: Path) -> None:
    root = tmp_path / "gallery"
    for name in OURS[MAY_REPLACE[what]][1]:
        if (what, name) in {("dual", "p.npy"), ("ingest", "bad.zarr")}:
            continue
        shutil.copytree(gallery, root)
        if name == "store.zarr" and what in ("synth", "ingest", "test store"):
            os.remove(root / name / "zarr.json")  # damaged, and still a store
        JOBS[what](root, root / name)
        assert not OURS[MAY_REPLACE[what]][0].fault(root / name)
        shutil.rmtree(root)


def test_outputs_lock_or_a_folder_of_another_program_is_left_alone(gallery: Path, tmp_path: Path) -> None:
    shutil.copy(gallery / "in.csv", tmp_path)
    for name in (".s.zarr.lock", ".s.zarr.building", ".s.zarr.parts"):
        path = tmp_path / name
        path.write_text("mine") if name.endswith("lock") else path.mkdir()
        if path.is_dir():
            (path / "mine").write_text("mine")
        before = digests(tmp_path)
        with pytest.raises(ExistsError):
            _ingest(tmp_path, tmp_path / "s.zarr")
        assert digests(tmp_path) == before
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def test_outputs_what_comes_into_a_store_while_it_is_replaced_stays(gallery: Path, tmp_path: Path) -> None:
    shutil.copytree(gallery / "store.zarr", tmp_path / "s.zarr")
    writer = create(tmp_path / "s.zarr", sparse=False, overwrite=True)
    writer.append(Dense(np.ones((3, 2), np.float32)), np.array([0, 1, 0], np.int32), None)
    (tmp_path / "s.zarr" / "notes.txt").write_text("mine")
    with pytest.raises(ExistsError, match=r"notes\.txt"):
        writer.commit(("a", "b"), 2, {})
    assert (tmp_path / "s.zarr" / "notes.txt").read_text() == "mine"


def test_outputs_replaced_search_is_old_or_new_at_every_step(gallery: Path, tmp_path: Path, monkeypatch: Any) -> None:
    """Whatever step the job dies at, the table that is there is one of the two."""

    class Died(BaseException):
        pass

    out = tmp_path / "search"
    job = TuneJob(str(gallery / "store.zarr"), str(out), folds=2, C=(1.0, 2.0), overwrite=True)
    steps = iter(range(10**6))
    monkeypatch.setattr(durable, "observe", lambda *_: next(steps))
    shutil.copytree(gallery / "search", out)
    tune(job)
    total, new = next(steps), (out / "table.json").read_text()
    old = (gallery / "search" / "table.json").read_text()
    for at in range(0, total, 7):
        shutil.rmtree(out)
        shutil.copytree(gallery / "search", out)
        countdown = iter(range(at, -1, -1))

        def dying(*_: Any, countdown: Iterator[int] = countdown) -> None:
            if next(countdown, 1) == 0:
                raise Died

        monkeypatch.setattr(durable, "observe", dying)
        with suppress(Died):
            tune(job)
        found = (out / "table.json").read_text()
        assert json.loads(found)["best"] in (json.loads(old)["best"], json.loads(new)["best"])
        assert {path.suffix for path in out.iterdir()} >= {".json", ".csv", ".txt"}


def test_outputs_arrays_of_ours_are_read_by_numpy_and_told_from_its_own(tmp_path: Path) -> None:
    for shape in ((3,), (2, 3), (0,), (10**6,)):
        durable.write_npy(tmp_path / "a.npy", shape, iter([np.arange(float(np.prod(shape)))]))
        assert np.load(tmp_path / "a.npy").shape == shape
        assert durable.is_npy_of_ours((tmp_path / "a.npy").read_bytes()[:4096])
        np.save(tmp_path / "b.npy", np.zeros(shape))
        assert not durable.is_npy_of_ours((tmp_path / "b.npy").read_bytes()[:4096])


@pytest.mark.parametrize("name", ["a\0b", "\ud800", "a" * 5000, "a" * 5000 + "/b"])
def test_outputs_what_no_file_can_be_called_is_refused_by_name(name: str, tmp_path: Path) -> None:
    for outputs in ([tmp_path / name], [tmp_path / "m", tmp_path / name]):
        with pytest.raises(UsageError, match="cannot be the name of a file"):
            check_writable([Output(path, MODEL) for path in outputs], overwrite=True)


# -- predictions of every kind of model ----------------------------------------------------------------------------------

OUTPUTS = ("label", "decision", "probability", "label,probability", "decision,label")


@each_value(("suffix", [".csv", ".txt", ".npy", ".parquet"]), ("target", ["two", "words", "numbers", "one"]))
def test_outputs_predictions_are_known_as_ours_whatever_is_predicted(target: str, suffix: str, tmp_path: Path) -> None:
    """A second run with --overwrite replaces what the first one wrote."""
    X = np.random.default_rng(0).normal(5.0 if target == "one" else 0.0, size=(40, 2)).astype(np.float32)
    y: Any = (
        np.sign(X[:, 0] - X[:, 0].mean())
        if target != "words"
        else np.array(["a", "b-c", "d"], dtype=object)[np.arange(40) % 3]
    )
    special: dict[str, dict[str, Any]] = {"numbers": {"loss": "squared"}, "one": {"one_class": True}}
    options = special.get(target, {"loss": "logistic"})
    store = tmp_path / "s.zarr"
    sv.ingest(
        X,
        str(store),
        y=X[:, 0] if target == "numbers" else y,
        task="regression" if target == "numbers" else "classification",
    )
    sv.fit(str(store), str(tmp_path / "m"), **options)
    out = str(tmp_path / f"p{suffix}")
    for output in OUTPUTS:
        several = "," in output
        if (several and suffix == ".npy") or ("probability" in output and target not in ("two", "words")):
            continue
        for _ in range(2):
            sv.predict(
                str(tmp_path / "m"), str(store), out, output=output.split(",") if several else output, overwrite=True
            )
