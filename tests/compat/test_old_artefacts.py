"""What an earlier commit wrote is opened, verified, predicts the same, and is gone on with to the same last bit.

The artefacts are those of ``make_artefacts``. Only the command line is used: modules and classes may have moved since.
Bits are compared on a processor and with packages like those that made them, elsewhere numbers up to rounding.
"""

from __future__ import annotations

import csv
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from click.testing import CliRunner, Result

from streamsvm.cli import cli
from tests.compat.artefacts import EXPECTED, HERE, SOURCE_TIME, STORES, arrays_of, machine, unpack

COMMITS = sorted(path.parent for path in HERE.glob(f"*/{EXPECTED}"))
KNOWN = {commit: json.loads((commit / EXPECTED).read_text()) for commit in COMMITS}


class Old(NamedTuple):
    """A commit's folder and an entry of it."""

    folder: Path
    name: str

    def known(self, kind: str) -> Any:
        return KNOWN[self.folder][kind][self.name]

    @property
    def same_machine(self) -> bool:
        """Whether packages and processor have the same names; a virtual one may be another all the same, which last bits show."""
        return bool(KNOWN[self.folder]["machine"] == machine())


OTHER_ARITHMETIC = {
    # kernel values of centered columns, certificates in float64
    "exact", "exact-classes", "decomposition", "decomposition-csr", "blended", "fw", "mfw-polynomial",
    "swap-sampled-linear", "partan-sampled-sigmoid", "nystrom", "nystrom-newton-first-pass",
    # newton with all rows in memory solves for them as they are stored
    "linear", "weighted", "hdf5", "embedded", "newton-in-memory",
    # the classes of a model are in sorted order
    "classes", "dcd-classes", "svmlight",
}  # fmt: skip
"""Fits whose arithmetic has changed for the better since: they go on and come to the same optimum, by other bits."""

CLOSE = 1e-9
"""Of the largest number of an array: matrix products of processors differ by 1e-16, and a few steps make that no more than this."""


def every(kind: str, wanted: Callable[[Any], bool] = bool) -> Any:
    """Parametrised by all entries of a kind, of all commits; those ``wanted``, given what is known of them."""
    entries = [Old(folder, name) for folder in COMMITS for name, known in KNOWN[folder][kind].items() if wanted(known)]
    return pytest.mark.parametrize("old", entries, ids=[f"{old.folder.name}-{old.name}" for old in entries])


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], Path]:
    """What a commit has finished, unpacked once; not to be changed."""
    made: dict[Path, Path] = {}

    def find(folder: Path) -> Path:
        if folder not in made:
            made[folder] = tmp_path_factory.mktemp(folder.name)
            unpack(folder / f"{STORES}.tar.xz", made[folder])
        return made[folder]

    return find


@pytest.fixture
def place(shared: Callable[[Path], Path], old: Old, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory: a copy of what the commit has finished."""
    shutil.copytree(shared(old.folder), tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def call(*arguments: object) -> Result:
    return CliRunner().invoke(cli, [str(a) for a in arguments])


def ok(*arguments: object) -> Result:
    result = call(*arguments)
    assert result.exit_code == 0, result.output
    return result


def holds(now: Any, then: Any) -> None:
    """All that was said then is said now; there may be more."""
    if isinstance(then, dict):
        assert then.keys() <= now.keys()
        for key in then:
            holds(now[key], then[key])
    else:
        assert now == then


def same_arrays(old: Old, now: Path, then: Path) -> None:
    """Two models have the same tensors, up to what a few last bits become, or where arithmetic is another, certificates that agree.

    Both intervals [dual, primal] hold the optimum of the same problem, so that they overlap.
    """
    one, other = arrays_of(now), arrays_of(then)
    if old.same_machine and old.name not in OTHER_ARITHMETIC:
        assert one.keys() == other.keys()
        for name, array in other.items():
            assert (one[name].dtype, one[name].shape) == (array.dtype, array.shape)
            np.testing.assert_allclose(
                one[name], array, rtol=0, atol=CLOSE * np.abs(array).max(initial=0.0), err_msg=name
            )
    else:
        ours, theirs = (json.loads(ok("info", path, "--json").stdout)["certificates"] for path in (now, then))
        assert len(ours) == len(theirs)
        for found, expected in zip(sorted(ours, key=primal), sorted(theirs, key=primal), strict=True):
            slack = 1e-6 * abs(expected["primal"])
            assert found["dual"] <= expected["primal"] + slack
            assert expected["dual"] <= found["primal"] + slack


def primal(certificate: dict[str, Any]) -> float:
    """The primal value of a certificate."""
    return float(certificate["primal"])


def same_rows(old: Old, now: Path, then: Path) -> None:
    """Two files of predictions are the same up to rounding, which is more where arithmetic is another."""
    close = CLOSE if old.same_machine and old.name not in OTHER_ARITHMETIC else 1e-4
    (head, *rows), (before, *expected) = (list(csv.reader(p.read_text().splitlines())) for p in (now, then))
    assert head == before
    np.testing.assert_allclose(np.array(rows, float), np.array(expected, float), rtol=close, atol=0.1 * close)


# -- what was finished -------------------------------------------------------------------------------------------------


@every("stores")
def test_stores_are_opened(old: Old, place: Path) -> None:
    holds(json.loads(ok("info", f"{old.name}.store", "--json", "--columns").stdout), old.known("stores"))
    assert json.loads(ok("verify", f"{old.name}.store", "--json").stdout)["bad"] == []


def unnumbered(predictions: Path) -> list[str]:
    """Lines as they were before rows were numbered, but that the labels' column is called ``predicted_label`` now."""
    numbers, lines = zip(*(line.split(",", 1) for line in predictions.read_text().splitlines()), strict=True)
    assert numbers == ("row", *map(str, range(len(lines) - 1)))
    return list(lines)


@every("models")
def test_models_predict_the_same(old: Old, place: Path) -> None:
    known = old.known("models")
    holds(json.loads(ok("info", known["file"], "--json").stdout), known["info"])
    ok("verify", known["file"])
    ok("predict", known["file"], known["rows"], "label.csv")
    labels = unnumbered(Path("label.csv"))
    assert ["label", *labels[1:]] == Path(f"{old.name}.label.csv").read_text().splitlines()
    ok("predict", known["file"], known["rows"], "decision.csv", "--output", "decision")
    Path("decision.csv").write_text("\n".join(unnumbered(Path("decision.csv"))) + "\n")
    same_rows(old, Path("decision.csv"), Path(f"{old.name}.decision.csv"))
    if Path(f"{old.name}.decision.npy").exists():
        ok("predict", known["file"], known["rows"], "decision.npy", "--output", "decision")
        now, then = np.load("decision.npy"), np.load(f"{old.name}.decision.npy")
        np.testing.assert_allclose(now, then, rtol=CLOSE if old.same_machine else 1e-4)


@every("models")
def test_old_stores_are_trained_on(old: Old, place: Path) -> None:
    """To the same model, with a run folder in which there is all that was in the old one."""
    known = old.known("models")
    ok("fit", f"{known['store']}.store", "now.ssvm", *known["arguments"].split())
    ran, before = Path("now.ssvm.run"), Path(f"{old.name}.ssvm.run")
    assert {p.name for p in ran.iterdir()} >= {p.name for p in before.iterdir()}
    same_arrays(old, max(Path().glob("now.*ssvm")), Path(known["file"]))
    for name in ("plan.json", "certificate.json"):
        now, then = (json.loads((run / name).read_text()) for run in (ran, before))
        assert now.keys() >= then.keys()
    now, then = (kinds_of(run / "events.jsonl") for run in (ran, before))
    assert now.keys() >= then.keys()
    assert all(now[kind] >= then[kind] for kind in then)


def kinds_of(log: Path) -> dict[str, set[str]]:
    """What events of each kind tell."""
    found: dict[str, set[str]] = {}
    for event in map(json.loads, log.read_text().splitlines()):
        found.setdefault(event["event"], set()).update(event)
    return found


def linear(known: dict[str, Any]) -> bool:
    """Whether a model is one of columns, for one C: what a fit can start from."""
    return known["info"]["expansion"] is None and "--C" not in known["arguments"]


@every("models", linear)
def test_old_models_are_started_from(old: Old, place: Path) -> None:
    known = old.known("models")
    settings = [*known["arguments"].split(), "--max-passes", "2"]
    ok("fit", f"{known['store']}.store", "now.ssvm", *settings, "--warm-start", known["file"])
    ok("verify", "now.ssvm")


@every("embeddings")
def test_embeddings_are_used_again(old: Old, place: Path) -> None:
    said = ok("embed", "dense.store", f"{old.name}.store", *old.known("embeddings").split())
    if old.same_machine:
        assert "there already" in said.output


# -- what was interrupted ----------------------------------------------------------------------------------------------


@every("interrupted")
def test_fits_are_resumed(old: Old, place: Path) -> None:
    """The events tell that a checkpoint was taken up, and the model is the one the commit ended with."""
    if "landmarks" in " ".join(old.known("interrupted")["arguments"]) and not old.same_machine:
        pytest.skip("kernel features are made anew, and a checkpoint belongs to the bits of its own")
    unpack(old.folder / "interrupted" / f"{old.name}.tar.xz", place / old.name)
    known = old.known("interrupted")
    said = [json.loads(line) for line in ok(*known["arguments"], "--json").stdout.splitlines()]
    resumed = [event for event in said if event["event"] == "resumed"]
    epoch, chunk = map(int, re.findall(r"epoch (\d+), chunk (\d+)", known["said"])[0])
    assert [(event["passes"] + 1, event["visits"]) for event in resumed] == [(epoch, chunk)]
    for model in known["models"]:
        same_arrays(old, place / old.name / model, place / old.name / "expected" / model)
    assert not (place / old.name / "m.ssvm.run" / "checkpoint").exists()


@every("journalled")
def test_commands_go_on_where_they_were_killed(old: Old, place: Path) -> None:
    known = old.known("journalled")
    unpack(old.folder / "journalled" / f"{old.name}.tar.xz", place)
    made = place / known["made"]
    done = ok(*known["command"].split(), "--json")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    if made.is_dir() and (made / "manifest.json").exists():  # which says more than it did: its bytes are others
        assert json.loads(ok("verify", made, "--json").stdout)["bad"] == []
    if known["command"].startswith("tune"):
        cells = {(event["landmarks"], event["gamma"]) for event in events if event["event"] == "tuned"}
        assert 0 < len(cells) < known["cells"]
    elif "--cluster" not in known["command"]:  # where parts were put together before
        assert any(p.stat().st_mtime == SOURCE_TIME for p in made.rglob("*") if p.is_file()), "all was written again"
