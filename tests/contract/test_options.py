"""Every option of a fit changes something that can be seen, is refused by name, or is said to be without effect.

The table must have every option that is declared: one that is added later is under this contract before it lands.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamsvm.config.options import options_of
from streamsvm.errors import InterruptedRun, StreamSVMError
from streamsvm.jobs.apply.decision_values import compute_decision_values
from streamsvm.jobs.fit.driver import fit
from streamsvm.jobs.fit.options import FitJob
from streamsvm.rows import Dense
from streamsvm.store import create

NEW = np.random.default_rng(4).normal(size=(5, 3)).astype(np.float32)
LINEAR: dict[str, Any] = {"solver": "dcd", "tolerance": 1e-9, "max_passes": 2, "threads": 1, "memory": 1 << 30}
EXACT: dict[str, Any] = {
    "kernel": "rbf",
    "gamma": 0.5,
    "tolerance": 1e-9,
    "max_passes": 3,
    "threads": 1,
    "memory": 1 << 30,
}
LANDMARKS = EXACT | {"landmarks": 9, "solver": "newton", "embedding": "fly"}
CASES = {
    "linear": LINEAR,
    "exact kernel": EXACT,
    "landmarks": LANDMARKS,
    "calibrated": LINEAR | {"calibrate": "sigmoid"},
    "curves": LINEAR | {"curves": True, "solver": "newton", "pairs": "column 0*column 2"},
}

OTHER: dict[str, Any] = {
    "C": 0.3,
    "lambda_": 0.3,
    "loss": "huber",
    "loss_options": {"margin": 0.7},
    "bias": 0.2,
    "positive": "a",
    "multi_class": "crammer_singer",
    "l1_ball": 2.0,
    "l1": 2.0,
    "free_bias": True,
    "one_class": True,
    "nu": 0.3,
    "class_weight": {"a": 2.0},
    "standardize": True,
    "standardize_all": True,
    "solver": "pegasos",
    "options": {"sweeps": 3},
    "kernel": "laplacian",
    "kernel_options": {"degree": 3},
    "gamma": 2.0,
    "curves": True,
    "knots": 16,
    "smooth": "d1",
    "jumps": "column 0=1",
    "pairs": "column 0*column 1",
    "pair_scale": 0.5,
    "landmarks": 7,
    "landmark_file": "landmarks.npy",
    "sampling": "kmeans++",
    "cutoff": 0.99,
    "embedding": "disk",
    "embedding_dtype": "int8",
    "max_support": 5,
    "warm_start": "warm.ssvm",
    "validation": 0.3,
    "patience": 1,
    "score": "auc",
    "tolerance": 0.97,
    "max_passes": 1,
    "time_limit": 0.0,
    "at_limit": "stop",
    "calibrate": "isotonic",
    "threshold": "cost:fp=1,fn=9",
    "certify": "labels",
    "calibration_folds": 3,
    "strict": True,
    "groups": 2,
    "memory": 700 << 20,
    "prefetch": 0,
    "disk_cache": 1 << 20,
    "report": "page.html",
    "dual": "dual.npy",
    "insecure_network": True,
    "features_key": "Y",
    "labels_key": "target",
}
"""Of each option another value than it has in ``CASES``."""
ELSEWHERE = {
    "exact kernel": (
        "bias",
        "kernel",
        "gamma",
        "sampling",
        "embedding",
        "max_support",
        "warm_start",
        "dual",
        "standardize",
        "calibrate",
        "certify",
    ),
    "landmarks": (
        "bias",
        "kernel",
        "gamma",
        "landmarks",
        "landmark_file",
        "sampling",
        "cutoff",
        "embedding",
        "max_support",
        "dual",
        "calibrate",
        "certify",
    ),
    "calibrated": ("calibrate", "calibration_folds", "standardize"),
    "curves": (
        "knots",
        "smooth",
        "pairs",
        "pair_scale",
        "bias",
        "standardize",
        "landmarks",
        "kernel",
        "certify",
        "calibrate",
        "dual",
    ),
}
"""What else is tried of the cases of kernels and of calibration; all others were, and are what they are in the linear case."""
HOW = {
    "seed": "of what is drawn; a method that draws nothing has the same result (tests/engine, tests/fault/test_determinism.py)",
    "threads": "the result does not depend on it (tests/contract/test_threads.py)",
    "cluster": "where the same is done (tests/cluster)",
    "scratch": "where workers keep what a pass leaves (tests/cluster/test_no_shared_disk.py)",
    "overwrite": "a permission, of an output that is there (tests/test_outputs.py)",
    "resume": "a permission, where a run was stopped (tests/fault/test_kill.py)",
    "checkpoint_every": "when, not what (tests/fault)",
    "store": "what is asked for",
    "model": "what is asked for",
}
"""Options that say who, where and when, with the reason."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of rows with a column that is larger than the others, landmarks, and a model to start from."""
    root = tmp_path_factory.mktemp("options")
    X = np.random.default_rng(3).normal(size=(160, 3)).astype(np.float32) * np.array([1, 2, 5], np.float32)
    writer = create(root / "s", sparse=False, chunk_bytes=1 << 9)
    writer.append(Dense(X), (X[:, 0] + 0.2 * X[:, 1] > 0).astype(np.int32), None)
    writer.commit(("a", "b"), 3, {})
    np.save(root / "landmarks.npy", X[:5])
    fit(FitJob(str(root / "s"), str(root / "warm.ssvm"), C=0.01, **LINEAR))
    return root


def seen(place: Path, folder: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """What can be seen of a fit: the model's numbers, what is said, the plan, the names of files; how it was refused.

    Numbers to six digits: what an exact kernel is solved in follows from the memory that is left.
    """
    folder.mkdir()
    settings = {name: _located(name, value, place, folder) for name, value in settings.items()}
    try:
        result = fit(FitJob(str(place / "s"), str(folder / "m"), **settings))
    except (StreamSVMError, InterruptedRun) as error:
        return {"refused": str(error).replace(str(folder), "")}
    model, plan = result.model, json.loads((folder / "m.run" / "plan.json").read_text())
    failed = None if result.failure is None else type(result.failure).__name__
    values = compute_decision_values(model, NEW)
    certificates = [run.certificate for run in result.training.runs]
    return {
        "numbers": [np.round(values, 6).tolist(), round(model.threshold, 6)],
        "probabilities": None if model.calibration is None else np.round(model.probabilities(values), 6).tolist(),
        "proves answers": model.enclosures is not None,
        "ended": (str(result.training.status), failed),
        "said": [line for line in result.notices if line.startswith("without effect")],
        "bounds": [(round(c.primal, 6), round(c.dual, 6)) for c in certificates if c is not None],
        "plan": [plan["limit"], [term["bytes"] for term in plan["memory"] if term["term"] == "blocks in flight"]],
        "features": (plan["embedding"] or {}).get("where"),
        "files": sorted(path.name for path in folder.iterdir()),
    }


def _located(name: str, value: Any, place: Path, folder: Path) -> Any:
    """Files to be read are in the place, those to be written in the folder."""
    if name in ("landmark_file", "warm_start"):
        return str(place / value)
    return str(folder / value) if name in ("report", "dual") else value


def test_option_table_is_complete() -> None:
    assert set(OTHER) | set(HOW) == {option.name for option in options_of(FitJob)}
    assert not set(OTHER) & set(HOW)


@pytest.fixture(scope="module")
def plain(place: Path) -> dict[str, dict[str, Any]]:
    """Each case as it is; made twice, so that what differs by itself is no effect."""
    found = {}
    for name, settings in CASES.items():
        found[name], again = (seen(place, place / f"{name} {k}", settings) for k in range(2))
        assert found[name] == again
        assert "refused" not in found[name], found[name]
    return found


@pytest.mark.parametrize(
    ("name", "case"),
    [*((name, "linear") for name in OTHER), *((name, case) for case, names in ELSEWHERE.items() for name in names)],
)
def test_an_option_is_used_or_refused_or_told(
    place: Path, plain: dict[str, dict[str, Any]], tmp_path: Path, name: str, case: str
) -> None:
    if CASES[case].get(name) == OTHER[name]:
        pytest.skip("as it is")
    assert seen(place, tmp_path / "f", CASES[case] | {name: OTHER[name]}) != plain[case]
