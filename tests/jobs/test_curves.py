"""Fits of curves: the optimum of the penalized problem, the same bits everywhere, and models that do what the fit did."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import streamsvm as sv
from streamsvm.errors import DataError, UsageError
from streamsvm.model import load
from streamsvm.rows import Dense
from streamsvm.store import create
from tests.arrays import csr_of
from tests.tables import NAMES, passengers, write_csv
from tools.fuzz.optima_peers import hats_of, penalty_of

ROWS = 400
SMOOTH = ("none", "d1", "d2")


def values(seed: int, rows: int = ROWS) -> tuple[Any, Any]:
    """Rows with a wave, heavy tails, few values, many zeros, marks and a constant; classes that depend on them."""
    rng = np.random.default_rng(seed)
    marks, zeros = rng.random(rows) < 0.3, rng.random(rows) < 0.7
    X = np.column_stack(
        [
            rng.normal(size=rows),
            rng.standard_cauchy(size=rows),
            rng.integers(-2, 3, rows),
            np.where(zeros, 0.0, rng.normal(size=rows)),
            marks,
            np.full(rows, 3.0),
        ]
    ).astype(np.float32)
    score = np.sin(3 * X[:, 0]) + (np.abs(X[:, 1]) > 1) - 0.5 + 0.5 * (X[:, 2] == 1) + X[:, 4] - 0.5
    return X, (score + rng.logistic(size=rows) * 0.5 > 0).astype(np.int32)


def store_at(path: Path, X: Any, codes: Any, *, sparse: bool = False, chunk_bytes: int = 4096, **facts: Any) -> str:
    writer = create(path, sparse=sparse, chunk_bytes=chunk_bytes)
    writer.append(csr_of(X) if sparse else Dense(X), codes, None)
    writer.commit(("a", "b"), X.shape[1], {"names": None} | facts)
    return str(path)


def fitted(store: str, **more: Any) -> Any:
    settings: dict[str, Any] = {"curves": True, "tolerance": 1e-6, "C": 0.5, "overwrite": True} | more
    model = Path(store).with_suffix(f".{more.get('smooth', 'd2')}.ssvm")
    return sv.fit(store, str(model), **settings)


# -- the problem, written out


def least(H: Any, y: Any, S: Any, C: Any, loss: str) -> tuple[float, Any]:
    """The least 1/2 theta' S theta + sum C_i l(y_i h_i.theta), by Newton's method on theta itself."""
    theta = np.zeros(len(S))

    def at(theta: Any) -> tuple[float, Any, Any]:
        m = y * (H @ theta)
        if loss == "logistic":
            p = 1 / (1 + np.exp(np.clip(m, -700, 700)))
            return 0.5 * theta @ S @ theta + C @ np.logaddexp(0, -m), -C * y * p, C * p * (1 - p)
        z = np.maximum(0, 1 - m)
        return 0.5 * theta @ S @ theta + C @ z**2, -2 * C * z * y, 2 * C * (z > 0)

    for _ in range(100):
        value, slope, curvature = at(theta)
        gradient = S @ theta + H.T @ slope
        step = np.linalg.solve(S + H.T @ (curvature[:, None] * H), -gradient)
        length = 1.0
        while at(theta + length * step)[0] > value + 1e-4 * length * (gradient @ step) and length > 1e-9:
            length /= 2
        theta = theta + length * step
        if -(gradient @ step) < 1e-15 * abs(value):
            break
    return float(at(theta)[0]), theta


@pytest.mark.parametrize("smooth", SMOOTH)
@pytest.mark.parametrize("loss", ["logistic", "squared_hinge"])
def test_bounds_enclose_the_optimum_of_the_penalized_problem(tmp_path: Path, smooth: str, loss: str) -> None:
    X, codes = values(1)
    store = store_at(tmp_path / "a.zarr", X, codes)
    found = fitted(store, smooth=smooth, loss=loss, knots=16, tolerance=1e-8)
    hats, certificate = found.model.expansion, found.model.certificate
    assert list(hats.curved) == [0, 1, 2, 3]
    assert list(hats.linear) == [4]
    H = hats_of(hats, X)
    best, theta = least(H, 2.0 * codes - 1.0, penalty_of(hats, smooth), np.full(ROWS, 0.5), loss)
    assert certificate.dual <= best * (1 + 1e-10)
    assert best <= certificate.primal * (1 + 1e-10)
    assert certificate.primal - certificate.dual <= 1e-8 * certificate.primal
    np.testing.assert_allclose(found.model.decision_function(X), H @ theta, atol=1e-3)
    np.testing.assert_allclose(H @ found.model.weights[0], found.model.decision_function(X), atol=1e-9)


@pytest.mark.parametrize("seed", range(20))
def test_no_dual_value_exceeds_the_optimum_of_odd_tables(tmp_path: Path, seed: int) -> None:
    """Two rows, one column, constants, huge and tiny numbers, weights of classes."""
    rng = np.random.default_rng(seed)
    rows, columns = int(rng.choice([2, 3, 10, 60])), int(rng.integers(1, 5))
    kinds = [
        rng.normal(size=rows),
        rng.integers(0, 3, rows),
        1e30 * rng.normal(size=rows),
        1e-30 * rng.normal(size=rows),
        np.full(rows, -7.0),
    ]
    X = np.column_stack([np.arange(rows) - 1.0, *(kinds[k] for k in rng.integers(0, len(kinds), columns))])
    X = X.astype(np.float32)
    codes = rng.permutation(np.arange(rows) % 2).astype(np.int32)
    smooth, loss, C = SMOOTH[seed % 3], ("logistic", "squared_hinge")[seed % 2], 10.0 ** rng.integers(-2, 2)
    store = store_at(tmp_path / "a.zarr", X, codes)
    factors = {"a": 1.0, "b": float(rng.choice([1.0, 3.5]))}
    model = fitted(store, smooth=smooth, loss=loss, knots=8, C=C, class_weight=factors, tolerance=1e-7).model
    hats, certificate = model.expansion, model.certificate
    weights = C * np.where(codes == 1, factors["b"], 1.0)
    best, _ = least(hats_of(hats, X), 2.0 * codes - 1.0, penalty_of(hats, smooth), weights, loss)
    assert certificate.dual - certificate.rounding <= best * (1 + 1e-9)
    assert best <= (certificate.primal + certificate.rounding) * (1 + 1e-9)
    assert certificate.gap <= 1e-7


def test_hats_on_the_fly_are_the_hats_stored(tmp_path: Path) -> None:
    X, codes = values(2)
    store = store_at(tmp_path / "a.zarr", X, codes)
    curves = fitted(store, smooth="none", knots=12, tolerance=1e-12).model
    H = hats_of(curves.expansion, X)[:, :-1].astype(np.float32)
    stored = store_at(tmp_path / "h.zarr", H, codes)
    linear = sv.fit(stored, str(tmp_path / "h.ssvm"), loss="logistic", C=0.5, tolerance=1e-12).model
    np.testing.assert_allclose(curves.certificate.primal, linear.certificate.primal, rtol=1e-9)
    np.testing.assert_allclose(curves.certificate.dual, linear.certificate.dual, rtol=1e-9)
    np.testing.assert_allclose(curves.decision_function(X), linear.decision_function(H), atol=1e-5)


def test_d1_is_the_ridge_of_a_thermometer(tmp_path: Path) -> None:
    """With u = (mean of theta, sqrt((K - 1) / 12) times its increments) the penalty is ||u||^2."""
    X, codes = values(3)
    store = store_at(tmp_path / "a.zarr", X[:, :1], codes)
    curves = fitted(store, smooth="d1", knots=10, tolerance=1e-10).model
    H, K = hats_of(curves.expansion, X[:, :1])[:, :-1], curves.expansion.features
    M = np.vstack([np.full(K, 1 / K), np.sqrt((K - 1) / 12) * np.diff(np.eye(K), axis=0)])
    cumulative = np.linalg.solve(M.T, H.T).T.astype(np.float32)
    stored = store_at(tmp_path / "h.zarr", cumulative, codes)
    linear = sv.fit(stored, str(tmp_path / "h.ssvm"), loss="logistic", C=0.5, tolerance=1e-10).model
    np.testing.assert_allclose(curves.certificate.primal, linear.certificate.primal, rtol=1e-6)


@pytest.mark.parametrize("loss", ["squared", "squared_epsilon_insensitive", "epsilon_insensitive"])
def test_numbers_are_predicted(tmp_path: Path, loss: Any) -> None:
    X, _ = values(4)
    y = np.sin(3 * X[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=ROWS)
    found = sv.fit(X, str(tmp_path / "m.ssvm"), y=y, task="regression", curves=True, loss=loss, C=3.0)
    assert found.certified
    assert np.mean((found.model.predict(X) - y) ** 2) < 0.05


@pytest.mark.parametrize("way", ["ovr", "ovo"])
def test_several_classes(tmp_path: Path, way: Any) -> None:
    X, _ = values(5)
    y = np.digitize(np.sin(2 * X[:, 0]), [-0.5, 0.5])
    found = sv.fit(X, str(tmp_path / "m.ssvm"), y=y, curves=True, multi_class=way, C=100.0)
    assert found.certified
    assert np.mean(found.model.predict(X) == y) > 0.95


# -- the same everywhere


def test_bits_depend_on_the_rows_alone(tmp_path: Path) -> None:
    """Not on threads, chunks of the counting, or on whether zeros are stored."""
    X, codes = values(6, 3000)
    store = store_at(tmp_path / "a.zarr", X, codes, chunk_bytes=1 << 14)
    first = fitted(store, knots=20, threads=1).model
    assert fitted(store, knots=20, threads=2).model == first
    other = fitted(store_at(tmp_path / "b.zarr", X[::-1].copy(), codes[::-1].copy()), knots=20).model
    np.testing.assert_array_equal(other.expansion.knots, first.expansion.knots)
    sparse = fitted(store_at(tmp_path / "c.zarr", X, codes, sparse=True, chunk_bytes=1 << 14), knots=20).model
    np.testing.assert_array_equal(sparse.expansion.knots, first.expansion.knots)
    np.testing.assert_allclose(sparse.weights, first.weights, atol=1e-6)
    loaded = load(tmp_path / "a.d2.ssvm")
    assert loaded == first
    np.testing.assert_array_equal(loaded.decision_function(X), first.decision_function(X))


# -- tables, models and what they are asked for


def test_a_table_in_one_command(tmp_path: Path) -> None:
    table = write_csv(tmp_path / "t.csv", passengers(300, 1), (*NAMES, "left"))
    found = sv.fit(str(table), str(tmp_path / "m.ssvm"), curves=True, label="left", missing="mean")
    assert found.certified
    page = Path(tmp_path / "m.html").read_text()
    assert page.count("training rows</li>") >= 2
    assert "effect of age on the decision value" in page
    assert found.model.kind == "curves"
    assert found.model.provenance["settings"]["loss"] == "logistic"
    assert found.model.calibration is not None
    assert not found.model.provenance["settings"]["standardize"]


def test_shapes_and_the_rating_table_add_up_to_decision_values(tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    X, codes = values(11)
    X[:, 0] += 1e6  # far from 0: an offset is subtracted on the way
    model = sv.fit(X, str(tmp_path / "m.ssvm"), y=codes, curves=True, knots=12).model
    shapes = model.shapes()
    sv.export(str(tmp_path / "m.ssvm"), str(tmp_path / "t.csv"), format="rating-table")
    table = pd.read_csv(tmp_path / "t.csv", keep_default_na=False)
    (intercept,) = shapes.attrs["intercept"].values()
    by_shapes = np.full(ROWS, intercept)
    by_table = np.full(ROWS, float(table["effect_from"][0]))
    for j, name in enumerate(shapes["column"].unique()):
        one, pieces = shapes[shapes["column"] == name], table[table["column"] == name]
        x = X[:, j].astype(float)
        ends = pieces[["from", "to", "effect_from", "effect_to"]].astype(float).to_numpy()
        by_table += np.interp(x, [*ends[:, 0], ends[-1, 1]], [*ends[:, 2], ends[-1, 3]])
        effect = np.interp(x, one["x"], one["effect"]) if len(one) > 1 else one["effect"].iloc[0] * x
        by_shapes += effect
        assert np.std(effect) == pytest.approx(one["importance"].iloc[0], rel=0.1)
        if len(one) > 1:
            assert one["rows"].sum() == pytest.approx(1.0)
            assert abs(np.mean(effect)) < 0.1 * np.std(effect) + 1e-3
    np.testing.assert_allclose(by_shapes, model.decision_function(X), atol=1e-5)
    np.testing.assert_allclose(by_table, by_shapes, atol=1e-9)
    parts = model.explain(X)
    assert parts.contributions is not None
    np.testing.assert_allclose(parts.contributions[:, 0].sum(axis=1) + parts.intercept[0], by_shapes, atol=1e-5)
    assert np.isnan(parts.weights[0, :4]).all()
    assert len(parts.of_row(0)) == 6
    with pytest.raises(UsageError, match="no curves"):
        sv.fit(X, str(tmp_path / "l.ssvm"), y=codes).model.shapes()


def test_what_cannot_hold_curves_refuses_them(tmp_path: Path) -> None:
    X, codes = values(8)
    found = sv.fit(X, str(tmp_path / "m.ssvm"), y=codes, curves=True, knots=8)
    for form in ("liblinear", "libsvm", "sklearn"):
        with pytest.raises(UsageError, match="curves cannot be exported"):
            sv.export(str(tmp_path / "m.ssvm"), str(tmp_path / f"m.{form}"), format=form)
    with pytest.raises(UsageError, match="curves has no weights of columns"):
        found.model.explain()
    with pytest.raises(DataError, match="4 columns, the model 6"):
        found.model.decision_function(X[:, :4])
    with pytest.raises(UsageError, match="numbers other than 0 and 1"):
        sv.fit(X[:, 4:], str(tmp_path / "n.ssvm"), y=codes, curves=True)


@pytest.mark.parametrize("damage", ["order", "type", "column", "count"])
def test_a_damaged_model_is_refused(tmp_path: Path, damage: str) -> None:
    X, codes = values(9)
    model = sv.fit(X, str(tmp_path / "m.ssvm"), y=codes, curves=True, knots=8).model
    hats: Any = model.expansion
    changed: Any = {
        "order": {"knots": hats.knots[::-1].copy()},
        "type": {"knots": hats.knots.astype(np.float64)},
        "column": {"curved": np.array([0, 1, 2, 2], np.int32)},
        "count": {"linear": np.empty(0, np.int32)},
    }[damage]
    bad = replace(model, expansion=replace(hats, **changed))
    bad.save(tmp_path / "bad.ssvm")
    with pytest.raises(DataError, match="usable model"):
        load(tmp_path / "bad.ssvm")


def test_the_plan_counts_curves_and_shrinks_the_sample_first(tmp_path: Path) -> None:
    X, codes = values(10, 60_000)
    store = store_at(tmp_path / "a.zarr", X, codes, chunk_bytes=1 << 18)
    facts = sv.plan(store, curves=True, memory="1GiB").facts()
    terms = {term["term"]: term["bytes"] for term in facts["memory"]}
    assert terms["curves"] >= 8 * 4 * 64 * 64
    assert facts["curves"] == {"columns": 4, "knots": 64, "smooth": "d2"}
    small = sv.plan(store, curves=True, memory=facts["total"] - (10 << 20))
    assert small.solver_name == "newton"
    assert small.memory.total <= small.memory.limit
    assert (small.solver.memory_settings()["sample"] or 60_000) < 60_000


def test_a_model_with_many_category_values_is_applied_in_little_memory(tmp_path: Path) -> None:
    rng = np.random.default_rng(12)
    X = np.zeros((ROWS, 16_001), np.float32)
    X[:, 0], X[np.arange(ROWS), rng.integers(1, X.shape[1], ROWS)] = rng.normal(size=ROWS), 1.0
    codes = (np.abs(X[:, 0]) > 0.7).astype(np.int32)
    store = store_at(tmp_path / "a.zarr", X, codes, sparse=True, indicators=[[1, X.shape[1]]])
    model = fitted(store, tolerance=1e-3).model
    assert list(model.expansion.curved) == [0]
    assert sv.evaluate(model, store, memory="256MiB").measures["accuracy"] > 0.9
