"""Where each solver is after each pass: P and D as they were recorded, with every loss, kind of rows and term beside the norm.

Certificates hold wherever a solver goes, and so do not notice one that goes somewhere else: a step that is too short, rows that
are drawn with other chances, a working set of other rows. Here its way is looked at. Whoever changes it on purpose has it
recorded again, python -m tests.golden.test_trajectories, and looks at what has changed in trajectories.json.
"""

from __future__ import annotations

import json
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import streamsvm as sv
from streamsvm.losses import LOSSES
from streamsvm.solvers import SOLVERS, losses_of

RECORDED = Path(__file__).with_suffix(".json").with_name("trajectories.json")
SAME, ROUGHLY = 1e-4, 0.3
"""Relative to P: other processors sum in another order, which makes 1e-13 after a pass, and in inner iterations up to 2e-5; the same without any compiled pass."""
OF_KERNELS = ("decomposition", "kernel_active_set", "blended", "fw", "mfw", "swap", "partan")
LINEAR = {"tolerance": 1e-9, "max_passes": 5}
"""On the way: few problems are solved to that in so many passes."""
COARSE: dict[str, Any] = {"kernel": "rbf", "gamma": 0.3, "tolerance": 3e-2, "max_passes": 4}
"""Solvers that work in memory end near the tolerance: a coarse one shows which way they came."""
DISK = {"embedding": "disk"}
"""Where features are is otherwise decided by what is measured, and shows in the way."""
Settings = dict[str, Any]


def _cases() -> dict[str, Settings]:
    """The settings of each case by its name, with the table it is of as ``of``."""
    found: dict[str, Settings] = {}
    for solver in SOLVERS:
        plain = {"solver": solver} | (COARSE if solver in OF_KERNELS else LINEAR)
        losses = losses_of(solver)
        for loss in losses:
            table = "numbers" if LOSSES[loss]().numeric() else "two"
            found[f"{solver}, {loss}"] = {"of": table, "loss": loss} | plain
        first = next(loss for loss in losses if not LOSSES[loss]().numeric())
        found[f"{solver}, sparse"] = {"of": "sparse", "loss": first} | plain
        found[f"{solver}, weighted"] = {"of": "weighted", "loss": first, "C": 0.05} | plain
        if solver not in OF_KERNELS:
            found[f"{solver}, no bias"] = {"of": "two", "loss": first, "bias": 0.0} | plain
    return found | _others() | _other_settings()


def _others() -> dict[str, Settings]:
    """Problems of other kinds."""
    hinge, newton = {"loss": "hinge"}, {"solver": "newton"} | LINEAR
    return {
        "all classes, hinge": {"of": "several", "multi_class": "crammer_singer", "solver": "dcd", "loss": "hinge"}
        | LINEAR,
        "all classes, squared": {"of": "several", "multi_class": "crammer_singer", "solver": "dcd"} | LINEAR,
        "pairs": {"of": "several", "multi_class": "ovo"} | newton,
        "classes apart": {"of": "several", "class_weight": "balanced"} | newton,
        "greedy landmarks": {"of": "two", "kernel": "laplacian", "landmarks": 15, "sampling": "greedy"} | newton | DISK,
        "polynomial": {"of": "two", **COARSE, "kernel": "polynomial"} | hinge,
        "short": {"of": "two", **COARSE, "max_support": 25} | hinge,
        "nu": {"of": "two", "nu": 0.4} | hinge | LINEAR,
        "nu, landmarks": {"of": "two", "nu": 0.4, "kernel": "rbf", "landmarks": 20} | hinge | LINEAR | DISK,
        "one class": {"of": "far", "one_class": True, "nu": 0.3} | LINEAR,
        "one class, rbf": {"of": "two", "one_class": True, "nu": 0.3} | COARSE,
        "one class, C": {"of": "far", "one_class": True, "C": 0.1} | hinge | LINEAR,
        "l1": {"of": "two", "l1": 3.0} | LINEAR,
        "l1, hinge": {"of": "two", "l1": 3.0} | hinge | LINEAR,
        "l1, numbers": {"of": "numbers", "l1": 3.0, "loss": "squared"} | LINEAR,
        "l1 ball": {"of": "numbers", "l1_ball": 0.5, "loss": "squared"} | LINEAR,
        "standardized": {"of": "far", "standardize": True} | newton,
    }


def _other_settings() -> dict[str, Settings]:
    """Solvers with settings that are not the usual ones: those that have too little memory for these tables among them."""
    hinge, squared, pinball = ({"loss": loss} for loss in ("hinge", "squared_hinge", "pinball"))
    logistic, landmarks = {"loss": "logistic"}, {"kernel": "rbf", "gamma": 0.3, "landmarks": 20}
    ways: list[tuple[str, str, Settings, Settings]] = [
        ("newton", "two", {"sample": 40}, hinge),
        ("newton", "two", {"sample": 40, "narrowing": 0.5}, squared),
        ("newton", "two", {"sample": 40, "polish": False}, logistic | landmarks | DISK),
        ("newton", "numbers", {"sample": 40}, pinball),
        ("newton", "weighted", {"sample": 60}, hinge | {"l1": 1.0}),
        ("newton", "sparse", {"sample": 40}, hinge | {"class_weight": "balanced"}),
        ("newton", "far", {"sample": 40}, hinge | {"one_class": True, "C": 0.1}),
        ("dcd", "two", {"shrinking": True}, hinge | {"max_passes": 25}),
        ("dcd", "sparse", {"parts": 3}, squared),
        ("dcd", "two", {"parts": 2}, logistic),
        ("dcd", "two", {"online": True}, hinge),
        ("dcd", "numbers", {"sweeps": 3}, pinball),
        ("mpu", "two", {"parts": 2, "multiplicity": 3}, hinge),
        ("mpu", "two", {"accuracy": 0.2}, squared),
        ("assg", "two", {"batch": 8, "stages": 3, "omega": 1.5}, hinge),
        ("assg", "sparse", {"rows_per_stage": 100, "radius": 2.0, "step": 0.01}, squared),
        ("assg", "weighted", {"sample": 50}, logistic),
        ("pegasos", "two", {"batch": 8, "projection": False}, hinge),
        ("pegasos", "two", {"averaging": "all"}, squared),
        ("sgd", "two", {"variant": "r"}, hinge),
        ("sgd", "two", {"variant": "r", "draws": "all"}, logistic),
        ("sgd_qn", "two", {"skip": 4, "t0": 100.0, "sample": 50}, hinge),
        ("interior_point", "two", {"kept": 40}, hinge),
        ("interior_point", "numbers", {"kept": 40}, pinball),
        ("interior_point", "far", {"kept": 40}, {"one_class": True, "nu": 0.3}),
        ("cutting_plane", "two", {"planes": 8}, hinge),
        ("decomposition", "two", {"working": 16, "pool": 60}, hinge),
        ("decomposition", "two", {"working": 16, "pool": 60, "max_support": 20}, hinge),
        ("decomposition", "numbers", {"working": 16}, pinball),
        ("decomposition", "far", {"working": 20}, {"one_class": True, "nu": 0.3}),
        ("blended", "two", {"working": 16, "pool": 60, "keep": 40}, squared),
        ("fw", "two", {"sample": 20}, squared),
        ("mfw", "two", {"sample": 20, "pool": 60}, squared),
        ("swap", "two", {"sample": 20, "epsilon": 1e-3}, squared),
        ("partan", "two", {"sample": 20, "iterations": 300}, squared),
        ("fw", "two", {"step": "open"}, squared),
        ("mfw", "two", {"cache": 20_000}, squared),
    ]
    found = {}
    for solver, table, options, more in ways:
        plain = COARSE if solver in OF_KERNELS else LINEAR
        said = " ".join(f"{name}={value}" for name, value in options.items())
        found[f"{solver}, {table}, {more.get('loss', 'nu')}, {said}"] = (
            {"of": table, "solver": solver} | plain | {"options": options} | more
        )
    return found


CASES = _cases()
FRAGILE = {
    "fw, two, squared_hinge, sample=20",
    "polynomial",
    "decomposition, two, hinge, working=16 pool=60",
    "decomposition, two, hinge, working=16 pool=60 max_support=20",
    "decomposition, numbers, pinball, working=16",
    "blended, two, squared_hinge, working=16 pool=60 keep=40",
}
"""Which rows are worked on next is decided by rounding there."""


def _stores(place: Path) -> dict[str, str]:
    """Small tables of several chunks."""
    numbers = np.random.default_rng(5)
    X = numbers.normal(size=(240, 5)).astype(np.float32)
    plain = X @ np.array([1.0, -0.7, 0.3, 0.0, 0.2]) + 0.8 * numbers.normal(size=240)
    sparse: Any = sp.csr_array(np.where(np.abs(X) > 0.8, X, 0.0).astype(np.float32))
    two = (plain > 0.1).astype(np.int32)
    weights = numbers.integers(1, 4, 240).astype(float)
    made: dict[str, tuple[Any, Any, Settings]] = {
        "two": (X, two, {}),
        "sparse": (sparse, two, {}),
        "weighted": (X, two, {"weight": weights}),
        "several": (X, np.digitize(plain, [-1.0, 0.2, 1.0]), {}),
        "numbers": (X, plain, {"task": "regression"}),
        "far": (X + np.float32(4.0), two, {}),
    }
    for name, (rows, y, options) in made.items():
        sv.ingest(rows, str(place / name), y=y, chunk=4096, **options)
    return {name: str(place / name) for name in made}


def _trajectory(store: str, settings: Settings, model: Path) -> list[list[float]]:
    """P and D of every problem after every pass, and those of the model."""
    seen: list[list[float]] = []

    def note(event: dict[str, Any]) -> None:
        if event["event"] == "pass":
            seen.append([float(event["primal"]), float(event["dual"])])

    asked = {name: value for name, value in settings.items() if name != "of"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = sv.fit(store, str(model), seed=3, threads=1, overwrite=True, on_event=note, **asked)
    for run in found.training.runs:
        assert run.certificate is not None
        seen.append([float(run.certificate.primal), float(run.certificate.dual)])
    return seen


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return _stores(tmp_path_factory.mktemp("stores"))


@pytest.fixture(scope="module")
def recorded() -> dict[str, list[list[float]]]:
    return dict(json.loads(RECORDED.read_text(encoding="utf-8")))


def test_every_case_is_recorded(recorded: dict[str, list[list[float]]]) -> None:
    assert set(recorded) == set(CASES)


@pytest.mark.parametrize("case", CASES)
def test_a_solver_goes_the_way_it_went(
    case: str, stores: dict[str, str], recorded: dict[str, list[list[float]]], tmp_path: Path
) -> None:
    found = np.array(_trajectory(stores[CASES[case]["of"]], CASES[case], tmp_path / "m"))
    wanted = np.array(recorded[case])
    assert found.shape == wanted.shape, "another number of passes"
    finite = np.isfinite(wanted)
    assert (np.isfinite(found) == finite).all()
    scale = np.abs(wanted).max(axis=1, keepdims=True) + np.zeros_like(wanted)
    near = ROUGHLY if case in FRAGILE else SAME
    assert (np.abs(found - wanted)[finite] <= near * scale[finite]).all(), np.stack([found, wanted], axis=2)


def record(say: Callable[[str], object] = print) -> None:
    """Write the file anew."""
    with tempfile.TemporaryDirectory() as scratch:
        places = _stores(Path(scratch))
        found = {}
        for case, settings in CASES.items():
            found[case] = _trajectory(places[settings["of"]], settings, Path(scratch) / "m")
            say(f"{case}: {len(found[case])}")
    lines = (f"{json.dumps(case)}: {json.dumps(way)}" for case, way in found.items())
    RECORDED.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(record())
