"""All classes in one problem: its optimum is LIBLINEAR's, its bounds hold, and every command and way of running takes it."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.svm import LinearSVC

import streamsvm as sv
from streamsvm.jobs.fit.driver import FitResult, fit
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.plan import make_plan
from streamsvm.model import load
from streamsvm.rows import Dense
from streamsvm.sklearn import StreamSVC
from streamsvm.solvers.dcd import DualAscent
from streamsvm.solvers.interior_point_multinomial import MultinomialInteriorPoint
from streamsvm.store import create, open_store
from streamsvm.types import Certificate
from tests.arrays import csr_of
from tests.axes import each_value
from tests.stopping import goes_on_to_the_same_bytes

ROWS, COLUMNS = 240, 5
NAMES = ("c", "a", "d", "b")


def drawn(seed: int, classes: int = 4, rows: int = ROWS) -> tuple[Any, Any, Any]:
    """Rows, class codes and weights; not every set has all of its classes."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, COLUMNS)).astype(np.float32)
    codes = (X @ rng.normal(size=(COLUMNS, classes)) + 0.7 * rng.normal(size=(rows, classes))).argmax(axis=1)
    return X, codes.astype(np.int32), rng.choice([0.0, 0.5, 1.0, 2.0], rows).astype(np.float32)


def objective(W: Any, C: float, X: Any, codes: Any, weight: Any) -> float:
    """P of weights (classes, columns + 1), term by term."""
    F = np.hstack([X.astype(np.float64), np.ones((len(X), 1))]) @ W.T
    own, rows = F[np.arange(len(X)), codes], np.arange(len(X))
    F[rows, codes] = -np.inf
    return float(0.5 * np.sum(W**2) + C * (weight * np.maximum(0.0, 1.0 - own + F.max(axis=1))).sum())


def store_at(path: Path, *, sparse: bool = False, classes: int = 4) -> Path:
    X, codes, weight = drawn(1, classes)
    writer = create(path, sparse=sparse, chunk_bytes=1 << 10)
    writer.append(csr_of(X) if sparse else Dense(X), codes, weight)
    writer.commit(NAMES[:classes], COLUMNS, {})
    return path


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return store_at(tmp_path_factory.mktemp("multi") / "s")


def fitted(store: Path, model: Path, **more: Any) -> FitResult:
    settings: dict[str, Any] = {"C": 0.05, "tolerance": 1e-4, "loss": "hinge", "multi_class": "crammer_singer"} | more
    return fit(FitJob(str(store), str(model), **settings))


def certificate(result: FitResult) -> Certificate:
    found = result.training.runs[0].certificate
    assert found is not None
    return found


@pytest.mark.parametrize("seed", range(5))
def test_crammer_singer_optimum_is_that_of_liblinear(seed: int) -> None:
    classes, C = 2 + seed % 5, float(10.0 ** np.random.default_rng(seed).uniform(-3, -0.5))
    X, codes, weight = drawn(seed, classes, 80)
    seen = weight > 0  # LIBLINEAR takes no row without a weight
    reference = LinearSVC(multi_class="crammer_singer", C=C, tol=1e-9, max_iter=20_000, intercept_scaling=1.0)
    reference.fit(X[seen], codes[seen], weight[seen])
    ours = StreamSVC(multi_class="crammer_singer", loss="hinge", C=C, tolerance=1e-3).fit(X, codes, weight)
    W = np.column_stack([reference.coef_, reference.intercept_])
    W = np.vstack([-W, W]) / 2 if len(W) == 1 else W
    known = np.searchsorted(reference.classes_, codes)
    best = objective(W, C, X[seen], known[seen], weight[seen])
    assert ours.gap_ <= 1e-3
    assert ours.dual_ <= best * (1 + 1e-9)
    assert best <= ours.primal_ * (1 + 1e-6)
    assert ours.primal_ <= best * (1 + 1e-3)
    if len(W) > 2:
        mine = np.column_stack([ours.coef_, ours.intercept_])
        assert objective(mine, C, X[seen], known[seen], weight[seen]) == pytest.approx(ours.primal_, rel=1e-9)


@each_value(
    ("loss", ["squared_hinge", "huber"]), ("more", [{}, {"standardize": True}, {"kernel": "rbf", "landmarks": 30}])
)
def test_crammer_singer_other_losses_and_features_are_certified(
    store: Path, tmp_path: Path, loss: str, more: dict[str, Any]
) -> None:
    result = fitted(store, tmp_path / "m", loss=loss, tolerance=1e-3, **more)
    assert -1e-6 < certificate(result).gap <= 1e-3
    assert load(tmp_path / "m").classes == ("a", "b", "c", "d")


def test_crammer_singer_sparse_rows_and_rows_in_parts_make_the_same_optimum(store: Path, tmp_path: Path) -> None:
    dense = certificate(fitted(store, tmp_path / "d"))
    sparse = certificate(fitted(store_at(tmp_path / "s", sparse=True), tmp_path / "m"))
    assert max(dense.dual, sparse.dual) <= min(dense.primal, sparse.primal)
    parts = certificate(fitted(store, tmp_path / "p", groups=3))
    assert parts.gap <= 1e-4
    assert max(dense.dual, parts.dual) <= min(dense.primal, parts.primal)
    # 26 classes of 10^5 rows take more than a row's number: the plan has it, in a file where memory is short
    assert (
        make_plan(FitJob(str(store), "", multi_class="crammer_singer"), open_store(store)).solver.row_state[0].width
        == 4
    )


def test_crammer_singer_dual_variables_prove_the_bound(store: Path, tmp_path: Path) -> None:
    result = fitted(store, tmp_path / "m", dual=str(tmp_path / "dual.npy"))
    X, codes, weight = drawn(1)
    a, rows = np.load(tmp_path / "dual.npy"), np.arange(ROWS)
    assert a.shape == (ROWS, 4)
    np.testing.assert_allclose(a.sum(axis=1), 0.0, atol=1e-15)
    b = a[rows, codes]
    assert (a[np.arange(4)[None, :] != codes[:, None]] <= 0.0).all()
    assert (b <= 0.05 * weight * (1 + 1e-12)).all()
    V = a.T @ np.hstack([X.astype(np.float64), np.ones((ROWS, 1))])
    assert b.sum() - 0.5 * np.sum(V**2) == pytest.approx(certificate(result).dual, rel=1e-12)


@pytest.mark.parametrize("groups", [None, 2])
def test_crammer_singer_stopped_run_goes_on_to_the_same_bytes(store: Path, tmp_path: Path, groups: int | None) -> None:
    goes_on_to_the_same_bytes(partial(fitted, store, solver="dcd", groups=groups), tmp_path, DualAscent, "finish", 4)


@pytest.mark.parametrize("groups", [None, 2])
def test_crammer_singer_run_that_was_solved_in_memory_goes_on_to_the_same_bytes(
    store: Path, tmp_path: Path, groups: int | None
) -> None:
    fit_again = partial(fitted, store, solver="interior_point", groups=groups)
    goes_on_to_the_same_bytes(fit_again, tmp_path, MultinomialInteriorPoint, "finish", 1)


UNSCALED = {"iris": load_iris, "wine": load_wine, "breast cancer": load_breast_cancer, "digits": load_digits}


@each_value(("loss", ["hinge", "squared_hinge"]), ("name", UNSCALED))
def test_crammer_singer_columns_that_are_not_scaled_are_certified(tmp_path: Path, name: str, loss: str) -> None:
    """In two readings and whatever C; P is that of the model, and the dual variables are feasible and give D."""
    X, y = UNSCALED[name](return_X_y=True)
    X, y = X[:600].astype(np.float32), y[:600]
    sv.ingest(X, tmp_path / "s.zarr", y=y)
    rows, classes = np.arange(len(y)), y.max() + 1
    Z = np.hstack([X.astype(np.float64), np.ones((len(X), 1))])
    for C in (1.0, 100.0):
        options: dict[str, Any] = {"multi_class": "crammer_singer", "loss": loss, "C": C, "dual": tmp_path / "d.npy"}
        found = sv.fit(tmp_path / "s.zarr", tmp_path / "m.ssvm", overwrite=True, strict=True, **options)
        (certificate,), a = found.model.certificates, np.load(tmp_path / "d.npy")
        assert certificate.gap <= 1e-4
        b = a[rows, y]
        assert (a[np.arange(classes)[None, :] != y[:, None]] <= 0.0).all()
        np.testing.assert_allclose(a.sum(axis=1), 0.0, atol=1e-12 * C)
        assert loss != "hinge" or (b <= C).all()
        cost = 0.0 if loss == "hinge" else (b * b).sum() / (4.0 * C)
        value = b.sum() - cost - 0.5 * np.sum((a.T @ Z) ** 2)
        assert value == pytest.approx(certificate.dual, rel=1e-6)
        assert value <= certificate.primal
        if classes > 2:
            W = np.column_stack([found.model.coef, found.model.intercept])
            F = Z @ W.T
            own = F[rows, y]
            F[rows, y] = -np.inf
            lack = np.maximum(0.0, 1.0 - own + F.max(axis=1)) ** (1 if loss == "hinge" else 2)
            assert certificate.primal == pytest.approx(0.5 * np.sum(W**2) + C * lack.sum(), rel=1e-9)


def test_crammer_singer_takes_warm_starts_and_validation(store: Path, tmp_path: Path) -> None:
    first = fitted(store, tmp_path / "m", solver="dcd")
    again = fitted(store, tmp_path / "n", solver="dcd", warm_start=str(tmp_path / "m"), max_passes=1)
    np.testing.assert_allclose(again.model.weights, first.model.weights, rtol=1e-12)
    assert certificate(again).primal == pytest.approx(certificate(first).primal, rel=1e-9)
    assert 0.0 < certificate(again).dual <= certificate(first).primal
    chosen = fitted(store, tmp_path / "v", validation=0.2, C=(0.001, 0.1), max_passes=20)
    assert set(chosen.models) == {0.001, 0.1}
    assert chosen.model.weights.shape == (4, COLUMNS + 1)
    calibrated = fitted(store, tmp_path / "c", calibrate="temperature", max_passes=20)
    X, codes, _ = drawn(1)
    assert calibrated.model.probabilities(calibrated.model.decision(Dense(X))).sum() == pytest.approx(ROWS)
    right = np.array(calibrated.model.classes)[calibrated.model.codes(calibrated.model.decision(Dense(X)))]
    assert (right == np.array(NAMES)[codes]).mean() > 0.6


def test_multi_class_advice_of_a_fit_that_stalls_names_a_solver_that_takes_the_problem(tmp_path: Path) -> None:
    """Coordinate descent hardly moves where columns are not scaled."""
    X, y = load_wine(return_X_y=True)
    sv.ingest(X, tmp_path / "s.zarr", y=y)
    options: dict[str, Any] = {"multi_class": "crammer_singer", "loss": "hinge", "max_passes": 30}
    with pytest.warns(sv.StreamSVMWarning, match="solver='interior_point'"):
        sv.fit(tmp_path / "s.zarr", tmp_path / "m.ssvm", solver="dcd", **options)
