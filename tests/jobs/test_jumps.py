"""Jumps of curves: values that a test finds, given ones, and what is made of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.linalg

import streamsvm as sv
from streamsvm.compute.blocks.frequent_values import TABLE, candidates_of, find_frequent
from streamsvm.errors import DataError
from streamsvm.features.jumps import find_jumps
from streamsvm.model import load
from streamsvm.rows import Dense
from tests.arrays import csr_of
from tests.jobs.test_curves import ROWS, fitted, least, store_at, values
from tools.fuzz.optima_peers import hats_of, penalty_of


def loans(seed: int, rows: int, strength: float) -> tuple[Any, Any]:
    """Amounts of which many are round, and terms of which many are whole years; classes that depend on single ones of both, and on a wave."""
    rng = np.random.default_rng(seed)
    amount, term = rng.lognormal(9, 1, rows), rng.integers(1, 400, rows).astype(float)
    amount = np.where(rng.random(rows) < 0.4, rng.choice([5e3, 1e4, 2.5e4, 0.0], rows), amount)
    term = np.where(rng.random(rows) < 0.3, rng.choice([60, 84, 120], rows), term)
    X = np.column_stack([amount, term, rng.normal(size=rows)]).astype(np.float32)
    jump = 1.0 * (X[:, 0] == 2.5e4) + (X[:, 0] == 0) - (X[:, 1] == 84)
    score = np.sin(X[:, 2]) + strength * jump
    return X, (score + rng.logistic(size=rows) > 0).astype(np.int32)


PLANTED = {(0, 25000.0), (0, 0.0), (1, 84.0)}


def jumps_of(model: Any) -> set[tuple[int, float]]:
    jumps = model.expansion.jumps
    if jumps is None:
        return set()
    parts = zip(jumps.columns, jumps.starts, jumps.starts[1:], strict=False)
    return {(int(column), float(value)) for column, a, b in parts for value in jumps.values[a:b]}


def test_planted_jumps_are_found_and_no_others(tmp_path: Path) -> None:
    X, codes = loans(0, 8000, 2.0)
    store = store_at(tmp_path / "a.zarr", X, codes, chunk_bytes=1 << 14)
    model = fitted(store, jumps="auto", tolerance=1e-3, threads=1).model
    assert jumps_of(model) == PLANTED
    assert fitted(store, jumps="auto", tolerance=1e-3, threads=2).model == model
    loaded = load(tmp_path / "a.d2.ssvm")
    np.testing.assert_array_equal(loaded.decision_function(X), model.decision_function(X))
    sparse = store_at(tmp_path / "b.zarr", X, codes, sparse=True, chunk_bytes=1 << 14)
    assert jumps_of(fitted(sparse, jumps="auto", tolerance=1e-3).model) == PLANTED
    nothing = store_at(tmp_path / "c.zarr", X, np.random.default_rng(1).permutation(codes))
    assert jumps_of(fitted(nothing, jumps="auto", tolerance=1e-2).model) == set()
    facts = sv.plan(store, curves=True, jumps="auto").facts()
    assert facts["curves"]["jumps"] == "by a test"


def test_rows_of_weight_0_count_for_neither_knots_nor_jumps(tmp_path: Path) -> None:
    X, codes = loans(2, 2000, 1.5)
    strange = np.full((500, 3), 84.0, np.float32)
    both, labels = np.vstack([X, strange]), np.concatenate([codes, np.arange(500) % 2])
    weight = np.concatenate([np.ones(2000), np.zeros(500)])
    asked: Any = {"curves": True, "jumps": "auto", "tolerance": 1e-3, "knots": 16}
    with_all = sv.fit(both, str(tmp_path / "a.ssvm"), y=labels, weight=weight, **asked).model
    without = sv.fit(X, str(tmp_path / "b.ssvm"), y=codes, **asked).model
    np.testing.assert_array_equal(with_all.expansion.knots, without.expansion.knots)
    assert jumps_of(with_all) == jumps_of(without)


def test_bounds_enclose_the_optimum_with_jumps(tmp_path: Path) -> None:
    X, codes = values(1)
    store = store_at(tmp_path / "a.zarr", X, codes)
    asked: Any = {"loss": "logistic", "knots": 8, "tolerance": 1e-8, "jumps": "column 2=1,column 3=0,column 2=-2"}
    found = fitted(store, pairs="column 0*column 1", **asked)
    assert jumps_of(found.model) == {(2, 1.0), (2, -2.0), (3, 0.0)}
    found = fitted(store, **asked)
    hats, certificate = found.model.expansion, found.model.certificate
    additive = replace(hats, jumps=None)
    indicators = np.column_stack([X[:, 2] == -2, X[:, 2] == 1, X[:, 3] == 0]).astype(float)
    H, S = np.hstack([hats_of(additive, X), indicators]), scipy.linalg.block_diag(penalty_of(additive, "d2"), np.eye(3))
    best, theta = least(H, 2.0 * codes - 1.0, S, np.full(ROWS, 0.5), "logistic")
    assert certificate.dual <= best * (1 + 1e-10)
    assert best <= certificate.primal * (1 + 1e-10)
    np.testing.assert_allclose(found.model.decision_function(X), H @ theta, atol=1e-3)


def test_frequent_values_are_candidates_in_any_order() -> None:
    rng = np.random.default_rng(3)
    x = np.concatenate([rng.normal(size=30_000), np.repeat([7.5, -3.25, 0.0, -0.0], 60)]).astype(np.float32)
    columns = np.array([1])
    for rows in (x, rng.permutation(x)):
        X = np.column_stack([np.zeros(len(rows), np.float32), rows])
        for stored in (Dense(X), csr_of(X)):
            keys, counts, used = np.zeros((1, TABLE), np.uint32), np.zeros((1, TABLE), np.int64), np.zeros(1, np.int64)
            find_frequent(stored, columns, keys, counts, used)
            assert {7.5, -3.25} <= set(candidates_of(keys[0], counts[0]).tolist())
            assert used[0] == np.count_nonzero(counts) <= 2048


@pytest.mark.parametrize("target", ["rare class", "numbers with heavy tails"])
def test_false_jumps_are_fewer_than_one_in_a_thousand(target: str) -> None:
    """Frequent values in between many others, and targets that depend on nothing."""
    rng = np.random.default_rng(4)
    tested = found = 0
    for _ in range(40):
        rows, is_candidate = rng.integers(5, 30, 1000), np.zeros(1000, np.bool_)
        is_candidate[rng.choice(1000, 100, replace=False)] = True
        rows[is_candidate] = rng.integers(40, 400, 100)
        if target == "rare class":
            sums = np.column_stack([rows, rng.binomial(rows, 0.03)])
        else:
            y = rng.standard_t(2.5, rows.sum())
            ends = np.concatenate([[0], np.cumsum(rows)[:-1]])
            sums = np.column_stack([rows, np.add.reduceat(y, ends), np.add.reduceat(y * y, ends)])
        found += len(find_jumps(is_candidate, sums.astype(float), int(rows.sum()), numeric=target != "rare class"))
        tested += 100
    assert tested == 4000
    assert found <= 4


def test_jumps_are_shown_and_add_up(tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    X, codes = loans(5, 1500, 1.0)
    frame = pd.DataFrame(X, columns=["amount", "term", "z"])
    frame["term"] += 1e6  # far from 0: an offset is subtracted on the way
    report = tmp_path / "m.html"
    asked: Any = {"curves": True, "jumps": "amount=25000,term=1000084", "knots": 12, "report": report}
    model = sv.fit(frame, str(tmp_path / "m.ssvm"), y=codes, **asked).model
    decision, shapes, parts = model.decision_function(frame), model.shapes(), model.explain(frame)
    contributions: Any = parts.contributions
    np.testing.assert_allclose(contributions[:, 0].sum(axis=1) + parts.intercept[0], decision, atol=1e-5)
    jumps = shapes[shapes["value"] != ""]
    assert jumps["column"].tolist() == ["amount", "term"]
    assert jumps["x"].tolist() == [25000.0, 1000084.0]
    total = np.full(len(X), sum(shapes.attrs["intercept"].values()))
    for name, one in shapes.groupby("column"):
        curve, own = one[one["value"] == ""], one[one["value"] != ""]
        x = frame[name].to_numpy(float)
        total += np.interp(x, curve["x"], curve["effect"])
        for value, effect in zip(own["x"], own["effect"], strict=True):
            total += effect * (x == value)
    np.testing.assert_allclose(total, decision, atol=1e-5)
    sv.export(model, tmp_path / "t.csv", format="rating-table")
    table = pd.read_csv(tmp_path / "t.csv", keep_default_na=False)
    lines = table[(table["from"] == table["to"]) & (table["value"] != "")]
    np.testing.assert_allclose(lines["effect_to"].astype(float), jumps["effect"])
    assert "values with an effect of their own" in report.read_text()


@pytest.mark.parametrize("damage", ["order", "column", "type"])
def test_damaged_jumps_are_refused(tmp_path: Path, damage: str) -> None:
    X, codes = loans(6, 300, 1.0)
    asked: Any = {"curves": True, "knots": 8, "jumps": "column 0=5000,column 0=10000"}
    model = sv.fit(X, str(tmp_path / "m.ssvm"), y=codes, **asked).model
    hats: Any = model.expansion
    changed: Any = {
        "order": {"values": hats.jumps.values[::-1].copy()},
        "column": {"columns": np.array([7], np.int32)},
        "type": {"values": hats.jumps.values.astype(np.float64)},
    }[damage]
    damaged = replace(hats.jumps)
    for name, value in changed.items():
        object.__setattr__(damaged, name, value)
    replace(model, expansion=replace(hats, jumps=damaged)).save(tmp_path / "bad.ssvm")
    with pytest.raises(DataError, match="usable model"):
        load(tmp_path / "bad.ssvm")
