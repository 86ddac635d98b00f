"""Searches over nu: of one class, judged by labels of rows held out, and of two; the error is that of fits without the fold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamsvm.errors import DataError, UsageError
from streamsvm.jobs import folds as folding
from streamsvm.jobs.fit.driver import fit
from streamsvm.jobs.fit.job import FitJob
from streamsvm.jobs.tune.job import TuneJob
from streamsvm.jobs.tune.run import tune
from streamsvm.rows import Dense
from streamsvm.store import create, open_store

ROWS, FOLDS = 400, 3


def values() -> tuple[Any, Any]:
    """Rows away from the origin, and one in five between them and it; 1 for those."""
    rng = np.random.default_rng(5)
    codes = (rng.random(ROWS) < 0.2).astype(np.int32)
    X = rng.normal(size=(ROWS, 3)) + np.where(codes[:, None] == 1, 1.5, 4.0)
    return X.astype(np.float32), codes


def write(path: Path, X: Any, codes: Any) -> str:
    writer = create(path, sparse=False, chunk_bytes=1 << 20)
    writer.append(Dense(X), codes, None)
    writer.commit(("good", "bad"), X.shape[1], {"names": None})
    return str(path)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write(tmp_path_factory.mktemp("nu") / "s.zarr", *values())


RBF: dict[str, Any] = {"kernel": "rbf", "tolerance": 1e-5}
FORMS: dict[str, dict[str, Any]] = {
    "linear": {"tolerance": 1e-5},
    "exact kernel": RBF,
    "landmarks, all rows": RBF | {"landmarks": ROWS},
    "linear, with C": {"loss": "hinge", "tolerance": 1e-5},
}
"""How one class is learned."""


def weights_of(form: str) -> tuple[str, tuple[float, ...]]:
    return ("C", (0.003, 0.03)) if "C" in form else ("nu", (0.02, 0.2))


@pytest.mark.parametrize("form", FORMS)
def test_tune_nu_of_one_class_both_kinds_of_rows_held_out_count_the_same(store: str, form: str, tmp_path: Path) -> None:
    X, codes = values()
    shared, (axis, weights) = FORMS[form] | {"one_class": True, "positive": "good"}, weights_of(form)
    grid: dict[str, Any] = {axis: weights}
    if "landmarks" in shared:
        grid["landmarks"] = (shared["landmarks"],)
    if "kernel" in shared:
        grid["gamma"] = (0.1,)
    found = tune(TuneJob(store, str(tmp_path / "t"), folds=FOLDS, **shared | grid))
    seen = folding.cut_finer(open_store(store), FOLDS, 1)
    fold = np.repeat(folding.deal_chunks(seen.layout, FOLDS, 0), seen.layout.chunks)
    rest, there = write(tmp_path / "rest.zarr", X[fold != 0], codes[fold != 0]), fold == 0
    for score, weight in zip(found.scores, weights, strict=True):
        exact = {name: value for name, value in shared.items() if name != "landmarks"}  # of all rows, what it comes to
        at = {axis: weight} | ({"gamma": 0.1} if "kernel" in exact else {})
        model = fit(FitJob(rest, str(tmp_path / "m"), overwrite=True, **exact | at)).model
        inside = model.decision_function(X[there]) > 0.0
        good = codes[there] == 0
        balanced = 0.5 * (np.mean(~inside[good]) + np.mean(inside[~good]))
        assert score.errors[0] == pytest.approx(balanced, abs=1.1 / np.count_nonzero(~good))
        assert score.errors[0] < 0.4
        assert (score.nu, score.C) == ((None, weight) if axis == "C" else (weight, None))
    assert found.measure.name == "balanced error"


def test_tune_nu_of_two_classes_the_error_is_the_share_of_wrong_answers(store: str, tmp_path: Path) -> None:
    found = tune(TuneJob(store, str(tmp_path / "t"), nu=(0.01, 0.2), folds=FOLDS))
    X, codes = values()
    models = [fit(FitJob(store, str(tmp_path / f"{nu}"), nu=nu)).model for nu in (0.01, 0.2)]
    wrong = [
        float(np.mean((model.decision_function(X) > 0) != (model.classes[1] == "good") ^ (codes == 1)))
        for model in models
    ]
    assert [score.error for score in found.scores] == pytest.approx(wrong, abs=0.03)
    assert found.measure.name == "error"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"one_class": True}, "judged by labels"),
        ({"one_class": True, "positive": "good", "nu": (0.1,), "C": (1.0,)}, "both nu and C"),
        ({"one_class": True, "positive": "better"}, "no class 'better'"),
        ({"one_class": True, "positive": "good", "class_weight": "balanced"}, "--one-class"),
        ({"one_class": True, "positive": "good", "nu": (0.1, 0.1)}, "different values"),
        ({"one_class": True, "positive": "good", "solver": "newton"}, "no free offset"),
    ],
    ids=str,
)
def test_tune_nu_refuses_impossible_grids(store: str, settings: Any, said: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=said):
        tune(TuneJob(store, str(tmp_path / "t"), **settings))


def test_tune_nu_fold_of_one_kind_of_rows_has_no_error(tmp_path: Path) -> None:
    X, _ = values()
    store = write(tmp_path / "s.zarr", X, (np.arange(ROWS) == 7).astype(np.int32))
    with pytest.raises(DataError, match="no error to take"):
        tune(TuneJob(store, str(tmp_path / "t"), one_class=True, positive="good", nu=(0.1,), folds=2))
