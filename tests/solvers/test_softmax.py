"""Softmax regression: certificates hold of an optimum that was found in another way, whatever the classes, weights, C and scales."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

import streamsvm as sv
from streamsvm.jobs.fit.driver import fit, fit_in_memory
from streamsvm.jobs.fit.options import FitJob
from streamsvm.rows import Dense
from streamsvm.sklearn import StreamSVC
from streamsvm.solvers import lbfgs
from streamsvm.store import create
from streamsvm.store.views import MemoryStore
from tools.fuzz.optima_peers import softmax_bounds, softmax_objective

NAMES = "abcdefgh"


def store_at(path: Path, X: Any, codes: Any, weight: Any, classes: int) -> str:
    writer = create(path, sparse=False, chunk_bytes=4 * 23 * X.shape[1])
    writer.append(Dense(X), codes.astype(np.int32), weight)
    writer.commit(tuple(NAMES[:classes]), X.shape[1], {"names": None})
    return str(path)


def fitted(store: str, model: Path, **more: Any) -> Any:
    settings: dict[str, Any] = {"loss": "logistic", "multi_class": "softmax", "tolerance": 1e-3} | more
    return fit(FitJob(store, str(model), overwrite=True, **settings))


def drawn(seed: int) -> tuple[Any, Any, Any, float, int]:
    """Rows, codes, weights, C and the number of classes; some classes are empty, some rows separable."""
    rng = np.random.default_rng(seed)
    classes, d, n = int(rng.integers(3, 6)), int(rng.integers(2, 6)), int(rng.integers(30, 160))
    M = rng.normal(size=(classes, d)) * rng.choice([0.3, 1.0, 6.0])
    codes = rng.integers(0, classes - int(rng.random() < 0.3), n)
    X = (M[codes] + rng.normal(size=(n, d))) * 10.0 ** rng.uniform(-1.0, 1.0, d) + rng.choice([0.0, 3.0])
    weight = rng.choice([0.0, 0.5, 1.0, 3.0], n).astype(np.float32) if rng.random() < 0.4 else None
    return X.astype(np.float32), codes, weight, float(10.0 ** rng.uniform(-6, 6)), classes


def check_drawn(seed: int, scratch: Path) -> None:
    """Fit a drawn problem and compare its certificate with the optimum."""
    X, codes, weight, C, classes = drawn(seed)
    found = fitted(store_at(scratch / f"{seed}", X, codes, weight, classes), scratch / "m", C=C, max_passes=120)
    certificate = found.training.runs[0].certificate
    rows = np.column_stack([X.astype(np.float64), np.ones(len(X))])
    s = np.ones(len(X)) if weight is None else weight.astype(np.float64)
    low, best = softmax_bounds(rows, codes, s, C, classes)
    assert certificate.exact, seed
    assert certificate.dual - certificate.rounding <= best * (1 + 1e-11), seed
    assert low * (1 - 1e-11) <= certificate.primal + certificate.rounding, seed
    assert certificate.rounding <= 1e-6 * certificate.primal, seed
    assert certificate.primal == pytest.approx(
        softmax_objective(found.model.weights, rows, codes, s, C)[0], rel=1e-9
    ), seed


@pytest.mark.parametrize("work", [0, lbfgs.FLOAT32_WORK])
def test_softmax_certificate_encloses_the_optimum_of_drawn_problems(
    work: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With passes in float32 too, which work of 0 asks for."""
    monkeypatch.setattr(lbfgs, "FLOAT32_WORK", work)
    for seed in range(5):
        check_drawn(seed + (0 if work else 100), tmp_path)


def test_softmax_model_has_the_probabilities_and_the_dual_variables_of_its_optimum(tmp_path: Path) -> None:
    X, codes, _, _, classes = drawn(3)
    store, C = store_at(tmp_path / "s", X, codes, None, classes), 0.05
    result = fitted(store, tmp_path / "m", C=C, tolerance=1e-9, dual=str(tmp_path / "d.npy"))
    rows, certificate = np.column_stack([X.astype(np.float64), np.ones(len(X))]), result.training.runs[0].certificate
    wanted = softmax(rows @ result.model.weights.T, axis=1)
    np.testing.assert_allclose(result.model.probabilities(result.model.decision(Dense(X))), wanted, atol=1e-12)
    a = np.load(tmp_path / "d.npy") / C
    p = np.eye(classes)[codes] - a
    assert p.min() > -1e-12
    np.testing.assert_allclose(p.sum(axis=1), 1.0, atol=1e-12)
    entropy = -float(np.sum(np.where(p > 0, p * np.log(np.maximum(p, 1e-300)), 0.0)))
    assert C * entropy - 0.5 * float(np.sum((C * a.T @ rows) ** 2)) == pytest.approx(certificate.dual, rel=1e-9)


def test_softmax_of_two_classes_is_the_logistic_loss_to_the_bit(tmp_path: Path) -> None:
    X, codes, _, _, _ = drawn(8)
    store = store_at(tmp_path / "s", X, np.minimum(codes, 1), None, 2)
    one, other = (fitted(store, tmp_path / "m", multi_class=kind, C=0.3) for kind in ("softmax", None))
    assert one.training.runs[0].certificate == other.training.runs[0].certificate
    assert np.array_equal(one.model.weights, other.model.weights)


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"loss": "hinge"}, "has the logistic loss, and the loss is 'hinge'"),
        ({"nu": 0.3, "loss": "hinge"}, "--nu cannot be combined with --multi-class softmax"),
        ({"l1": 1.0}, "--l1 cannot be combined with --multi-class softmax"),
        ({"solver": "newton"}, "solver 'newton' does not solve for softmax"),
        ({"kernel": "rbf"}, "not for exact kernels"),
        ({"positive": "a"}, "--positive cannot be combined with --multi-class"),
    ],
)
def test_softmax_refuses_what_it_is_not_for(tmp_path: Path, more: dict[str, Any], text: str) -> None:
    X, codes, _, _, classes = drawn(3)
    with pytest.raises(sv.UsageError, match=text):
        fitted(store_at(tmp_path / "s", X, codes, None, classes), tmp_path / "m", **more)


def test_softmax_values_of_C_share_passes_and_are_what_each_is_alone(tmp_path: Path) -> None:
    X, codes, _, _, classes = drawn(3)
    store, held_out = (
        store_at(tmp_path / "s", X, codes, None, classes),
        store_at(tmp_path / "v", X[::3], codes[::3], None, classes),
    )
    grid = (0.001, 0.1, 10.0)
    found = fitted(store, tmp_path / "m", C=grid)
    alone = {C: fitted(store, tmp_path / "n", C=C) for C in grid}
    assert found.passes == max(one.passes for one in alone.values())
    for C in grid:
        assert np.array_equal(found.models[C].weights, alone[C].model.weights)
    scored = fitted(store, tmp_path / "m", C=grid, validation=held_out, score="log_loss")
    scores = {
        C: fitted(store, tmp_path / "n", C=C, validation=held_out, score="log_loss").model.provenance for C in grid
    }
    best = min(grid, key=lambda C: scores[C]["validation"]["score"])
    assert scored.model.provenance["validation"]["C"] == best


@pytest.mark.parametrize("bias", [{}, {"free_bias": True}, {"bias": 0.0}])
def test_softmax_of_unit_rows_takes_few_passes_whatever_its_bias(bias: dict[str, Any]) -> None:
    """The curvature along a bias is that of all rows, and depends on the other weights of its class: 50 passes without their center."""
    rng = np.random.default_rng(3)
    codes = np.arange(1500, dtype=np.int32) % 12
    X = 0.8 * rng.normal(size=(12, 24))[codes] + rng.normal(size=(1500, 24))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    store = MemoryStore(chunk_bytes=1 << 20)
    store.append(Dense(X.astype(np.float32)), codes, None)
    store = store.commit(tuple("abcdefghijkl"), 24)
    job = FitJob("m", "m", solver="lbfgs", loss="logistic", multi_class="softmax", C=10.0, tolerance=1e-6, **bias)
    training = fit_in_memory(job, store).training
    assert training.status == "converged"
    assert training.passes <= 36


def test_softmax_takes_class_weights_scaling_a_path_of_C_and_a_start(tmp_path: Path) -> None:
    """Class weights are taken back in probabilities, all C are fitted in the same passes, and a start saves passes."""
    X, codes, weight, _, classes = drawn(11)
    store = store_at(tmp_path / "s", X, codes, weight, classes)
    weights = {name: 1.0 + k for k, name in enumerate(NAMES[:classes])}
    result = fitted(store, tmp_path / "m", class_weight=weights, standardize=True, C=(0.01, 0.3))
    assert result.status == "converged"
    assert [run.certificate.gap <= 1e-3 for run in result.training.runs] == [True, True]
    f = result.model.decision(Dense(X))
    wanted = softmax(f - np.log(1.0 + np.arange(classes)), axis=1)
    np.testing.assert_allclose(result.model.probabilities(f), wanted, atol=1e-12)
    start = {"class_weight": weights, "standardize": True, "C": 0.3, "warm_start": str(tmp_path / "m.C=0.3")}
    assert fitted(store, tmp_path / "n", **start).passes < result.passes


def test_softmax_estimator_is_multinomial_logistic_regression_and_can_be_calibrated() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 6)).astype(np.float32)
    y = (X @ rng.normal(size=(6, 4)) + rng.normal(size=(400, 4))).argmax(axis=1)
    rows = np.column_stack([X, np.ones(len(X))])
    wanted = LogisticRegression(C=0.5, tol=1e-10, max_iter=10_000, fit_intercept=False).fit(rows, y)
    found = StreamSVC(loss="logistic", multi_class="softmax", tolerance=1e-9, C=0.5).fit(X, y)
    np.testing.assert_allclose(found.predict_proba(X), wanted.predict_proba(rows), atol=1e-4)
    np.testing.assert_allclose(np.column_stack([found.coef_, found.intercept_]), wanted.coef_, atol=1e-3)
    for name in ("sigmoid", "isotonic", "temperature"):
        machine = StreamSVC(loss="logistic", multi_class="softmax", C=0.5, calibrate=name).fit(X, y)
        p = machine.predict_proba(X)
        np.testing.assert_allclose(p.sum(axis=1), 1.0)
        assert log_loss(y, p) < 1.25 * log_loss(y, wanted.predict_proba(rows))
