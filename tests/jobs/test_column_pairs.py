"""Fits of curves with pairs of columns: the optimum of the penalized problem, pairs that a test chooses, and what is made of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.linalg

import streamsvm as sv
from streamsvm.errors import DataError, UsageError
from streamsvm.features.column_pairs import choose_edges
from streamsvm.features.pair_statistic import PairSums, measure_pair, remove_main_effects
from streamsvm.model import load
from tests.jobs.test_curves import ROWS, fitted, least, store_at, values
from tools.fuzz.optima_peers import hats_of, penalty_of


def cells_of(pairs: Any, X: Any) -> Any:
    """The cell of each row in each variable, by the definition."""
    codes = np.zeros((len(X), len(pairs.counts)), int)
    for v in range(len(pairs.counts)):
        for column, level in pairs.columns_of(v):
            if level < 0:
                codes[:, v] = (X[:, [column]] >= pairs.edges_of(v)).sum(axis=1)
            else:
                codes[:, v] = np.maximum(codes[:, v], np.where(X[:, column] != 0, level, 0))
    return codes


def centered(codes: Any, count: int, *, ordered: bool) -> tuple[Any, Any]:
    """A basis of the values of cells with mean 0 over the rows, and the penalty of their differences."""
    shares = np.bincount(codes, minlength=count) / len(codes)
    Z, D = scipy.linalg.null_space(shares[None]), np.diff(np.eye(count), axis=0)
    return Z, Z.T @ ((count - 1) / 12 * D.T @ D if ordered else np.eye(count)) @ Z


@pytest.mark.parametrize("smooth", ["d2", "none"])
def test_bounds_enclose_the_optimum_with_pairs(tmp_path: Path, smooth: str) -> None:
    X, codes = values(1)
    store = store_at(tmp_path / "a.zarr", X, codes)
    scale: Any = {"pair_scale": 0.7} if smooth == "d2" else {}
    asked = "column 0*column 1,column 2*column 4"
    found = fitted(store, smooth=smooth, loss="logistic", knots=8, tolerance=1e-8, pairs=asked, **scale)
    hats, certificate = found.model.expansion, found.model.certificate
    additive = replace(hats, pairs=None)
    H, S = hats_of(additive, X), penalty_of(additive, smooth)
    cells = cells_of(hats.pairs, X)
    for a, b in hats.pairs.pairs:
        shape = hats.pairs.counts[[a, b]]
        of_cells = np.eye(shape.prod())[cells[:, a] * shape[1] + cells[:, b]]
        penalty = np.eye(shape.prod())
        if smooth != "none":
            (Z, of_rows), (N, of_columns) = (
                centered(cells[:, v], hats.pairs.counts[v], ordered=hats.pairs.columns_of(v)[0][1] < 0) for v in (a, b)
            )
            of_cells, penalty = of_cells @ np.kron(Z, N), np.kron(of_rows, of_columns) / 0.7**2
        H, S = np.hstack([H, of_cells]), scipy.linalg.block_diag(S, penalty)
    best, theta = least(H, 2.0 * codes - 1.0, S, np.full(ROWS, 0.5), "logistic")
    assert certificate.dual <= best * (1 + 1e-10)
    assert best <= certificate.primal * (1 + 1e-10)
    assert certificate.primal - certificate.dual <= 1e-8 * certificate.primal
    np.testing.assert_allclose(found.model.decision_function(X), H @ theta, atol=2e-3)


def joint(seed: int, rows: int, strength: float) -> tuple[Any, Any]:
    """Rows with columns of 0 and 1, one-hot columns and numbers; classes that depend on a wave of one and of two columns."""
    rng = np.random.default_rng(seed)
    value = rng.integers(0, 4, rows)
    numbers = [rng.normal(size=rows), rng.exponential(size=rows), np.round(3 * rng.normal(size=rows))]
    X = np.column_stack([*numbers, *(value == k for k in range(4)), rng.random(rows) < 0.4]).astype(np.float32)
    score = np.sin(X[:, 0]) + strength * np.sign(X[:, 0]) * np.sign(X[:, 2] - 0.5) + strength * (X[:, 1] - 1) * X[:, 5]
    return X, (score + rng.logistic(size=rows) > 0).astype(np.int32)


def test_pairs_are_chosen_by_what_depends_on_both_columns(tmp_path: Path) -> None:
    events: list[Any] = []
    X, codes = joint(3, 4000, 1.0)
    store = store_at(tmp_path / "a.zarr", X, codes, chunk_bytes=1 << 15)
    found = fitted(store, pairs="auto", C=1.0, tolerance=1e-3, threads=1, on_pass=events.append)
    pairs = found.model.expansion.pairs
    named = {tuple(sorted(pairs.columns_of(v)[0][0] for v in pair)) for pair in pairs.pairs}
    assert named == {(0, 2), (1, 3)}  # the four one-hot columns are one category, the first of which is column 3
    assert [len(pairs.columns_of(v)) for v in range(len(pairs.counts))] == [1, 1, 1, 4]
    assert found.passes > events[-1]["pass"] - 1
    without = fitted(store, C=1.0, tolerance=1e-3, smooth="d1")
    new, answers = joint(4, 4000, 1.0)
    gain = [np.mean(np.sign(one.model.decision_function(new)) == 2 * answers - 1) for one in (without, found)]
    assert gain[1] > gain[0] + 0.05
    again = fitted(store, pairs="auto", C=1.0, tolerance=1e-3, threads=2, overwrite=True).model
    assert again == found.model
    loaded = load(tmp_path / "a.d2.ssvm")
    np.testing.assert_array_equal(loaded.decision_function(X), found.model.decision_function(X))
    sparse = store_at(tmp_path / "c.zarr", X, codes, sparse=True, chunk_bytes=1 << 15)
    other = fitted(sparse, pairs="auto", C=1.0, tolerance=1e-3).model
    np.testing.assert_array_equal(other.expansion.pairs.pairs, pairs.pairs)
    np.testing.assert_allclose(other.decision_function(X), found.model.decision_function(X), atol=0.05)


@pytest.mark.parametrize("task", ["classes", "numbers"])
def test_no_pair_passes_where_no_two_columns_act_together(tmp_path: Path, task: Any) -> None:
    X, codes = joint(5, 800, 0.0)
    y = (
        codes
        if task == "classes"
        else np.sin(X[:, 0]) + np.random.default_rng(0).standard_t(2.5, len(X)) * (1 + X[:, 5])
    )
    kind: Any = {} if task == "classes" else {"task": "regression", "loss": "squared"}
    model = sv.fit(X, str(tmp_path / "m.ssvm"), y=y, curves=True, pairs="auto", knots=16, **kind).model
    assert model.expansion.pairs is None
    assert model.tables().empty


def test_statistic_is_that_of_slopes_without_main_effects() -> None:
    """Against weighted least squares, and against slopes that depend on nothing, or on each column alone."""
    rng = np.random.default_rng(1)
    rows, (A, B) = 3000, (7, 5)
    first, second = rng.integers(0, A, rows), rng.integers(0, B, rows)
    second[first == 2] = 1  # cells without rows

    def sums(g: Any) -> PairSums:
        tables = np.zeros((3, A, B))
        for table, value in zip(tables, (g, g * g, np.ones(rows)), strict=True):
            np.add.at(table, (first, second), value)
        return PairSums(*tables)

    of_noise = sums(rng.normal(size=rows))
    G, V = of_noise.slopes, of_noise.information
    design = np.hstack([np.kron(np.eye(A), np.ones((B, 1))), np.kron(np.ones((A, 1)), np.eye(B))])
    root = np.sqrt(V.ravel())
    values = np.divide(G.ravel(), V.ravel(), out=np.zeros(A * B), where=V.ravel() > 0)
    fit = design @ np.linalg.lstsq(root[:, None] * design, root * values, rcond=None)[0]
    np.testing.assert_allclose(remove_main_effects(G, V), G - V * fit.reshape(A, B), atol=1e-5)
    z = np.array([measure_pair(sums(rng.standard_t(3, rows)), 3.0).z for _ in range(300)])
    assert abs(z.mean()) < 0.3
    assert z.std() < 1.4
    assert z.max() < 5.0
    of_one = rng.normal(size=rows) + 3.0 * first - 2.0 * second
    assert measure_pair(sums(of_one), 1.0).z < 4.0
    assert measure_pair(sums(rng.normal(size=rows) + 0.5 * np.sign((first - 3) * (second - 2))), 1.0).z > 8.0


def test_heavy_values_have_cells_of_their_own() -> None:
    rng = np.random.default_rng(2)
    for _ in range(50):
        counts = np.maximum(1, (rng.pareto(0.7, int(rng.integers(2, 400))) * 10)).astype(np.int64)
        bounds = np.sort(rng.normal(size=len(counts))).astype(np.float32)
        edges, rows = choose_edges(bounds, counts, 24)
        assert len(edges) + 1 == len(rows) <= 24
        assert len(rows) >= 2
        assert rows.sum() == counts.sum()
        cells = np.searchsorted(edges, bounds, side="right")
        np.testing.assert_array_equal(np.bincount(cells, counts, len(rows)), rows)
        for k in np.flatnonzero(counts * 2 > counts.sum()).tolist():
            assert rows[cells[k]] == counts[k]


def test_tables_average_to_0_and_add_up(tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    X, codes = joint(6, 600, 1.0)
    X = pd.DataFrame(X, columns=["a", "b", "c", "w0", "w1", "w2", "w3", "m"])
    X["a"] += 1e6  # far from 0: an offset is subtracted on the way
    asked = "a*c,b*w0,c*m"
    model = sv.fit(X, str(tmp_path / "m.ssvm"), y=codes, curves=True, knots=12, pairs=asked).model
    tables, decision = model.tables(), model.decision_function(X)
    assert list(tables.groupby(["column", "other_column"]).groups) == [("a", "c"), ("b", "w0 .. w3"), ("c", "m")]
    np.testing.assert_allclose(tables.groupby("column")["rows"].sum(), 1.0)
    hats: Any = model.expansion
    pairs = hats.pairs
    for (a, b), table in zip(pairs.pairs, pairs.tables(model.weights[0, hats.additive_features : -1]), strict=True):
        shares = table.rows.sum(axis=1), table.rows.sum(axis=0)
        np.testing.assert_allclose(shares[0] @ table.values, 0.0, atol=1e-9)
        np.testing.assert_allclose(table.values @ shares[1], 0.0, atol=1e-9)
        assert table.values.shape == (pairs.counts[a], pairs.counts[b])
    parts: Any = model.explain(X)
    assert parts.names[-3:] == ("a*c", "b*w0 .. w3", "c*m")
    np.testing.assert_allclose(parts.contributions[:, 0].sum(axis=1) + parts.intercept[0], decision, atol=1e-5)
    importance = tables.groupby("column")["importance"].first().to_numpy()
    np.testing.assert_allclose(parts.contributions[:, 0, -3:].std(axis=0), importance, rtol=1e-6)
    sv.export(model, tmp_path / "t.csv", format="rating-table")
    table = pd.read_csv(tmp_path / "t.csv", keep_default_na=False)
    of_pairs, total = table[table["other_column"] != ""], float(table["effect_from"][0])
    by_table = np.full(len(X), total) + parts.contributions[:, 0, :-3].sum(axis=1)
    for i, row in enumerate(X.astype(np.float64).to_dict("records")):
        for one in of_pairs.to_dict("records"):
            if all(_lies_in(row, one[c], one[v], one[f], one[t]) for c, v, f, t in SIDES):
                by_table[i] += float(one["effect_from"])
        if i == 20:
            break
    np.testing.assert_allclose(by_table[:20], decision[:20], atol=1e-5)


SIDES = (("column", "value", "from", "to"), ("other_column", "other_value", "other_from", "other_to"))


def _lies_in(row: Any, column: str, value: str, low: str, high: str) -> bool:
    """Whether a row of the table lies in a cell of the rating table."""
    if value:
        names = ["w0", "w1", "w2", "w3"] if " .. " in column else [column]
        return not any(row[name] for name in names) if value == "none of them" else bool(row[value])
    x = np.float32(row[column] - (1e6 if column == "a" else 0.0)) + (1e6 if column == "a" else 0.0)
    return bool((low == "" or x >= float(low)) and (high == "" or x < float(high)))


def test_page_has_a_map_of_each_pair(tmp_path: Path) -> None:
    X, codes = joint(7, 300, 1.0)
    sv.fit(
        X,
        str(tmp_path / "m.ssvm"),
        y=codes,
        curves=True,
        knots=8,
        pairs="column 0*column 2",
        report=tmp_path / "m.html",
    )
    page = (tmp_path / "m.html").read_text()
    assert "Pairs of columns" in page
    assert "joint effect of column 0 and column 2 on the decision value" in page


def test_number_with_two_values_has_two_cells(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    X, codes = joint(10, 300, 1.0)
    X[:, 1] = 1 + X[:, 7]
    asked: Any = {"curves": True, "knots": 8, "pairs": "column 0*column 1", "report": tmp_path / "m.html"}
    model = sv.fit(X, str(tmp_path / "m.ssvm"), y=codes, **asked).model
    tables = model.tables()
    assert list(tables["other_value"].unique()) == ["below 2", "from 2"]
    shares = tables.groupby("other_value")["rows"].sum()
    assert shares["from 2"] == pytest.approx(X[:, 7].mean())
    assert "joint effect of column 0 and column 1" in (tmp_path / "m.html").read_text()


@pytest.mark.parametrize("damage", ["levels", "edges", "pairs", "rows"])
def test_damaged_pairs_are_refused(tmp_path: Path, damage: str) -> None:
    X, codes = joint(8, 200, 1.0)
    asked: Any = {"curves": True, "knots": 8, "pairs": "column 0*column 7"}
    model = sv.fit(X, str(tmp_path / "m.ssvm"), y=codes, **asked).model
    hats: Any = model.expansion
    pairs = hats.pairs
    changed = {
        "levels": {"cells": pairs.cells._replace(levels=pairs.cells.levels + np.int32(9))},
        "edges": {"cells": pairs.cells._replace(edges=pairs.cells.edges[::-1].copy())},
        "pairs": {"pairs": pairs.pairs + np.int32(1)},
        "rows": {"rows": pairs.rows[1:]},
    }[damage]
    damaged = replace(pairs)
    for name, value in changed.items():
        object.__setattr__(damaged, name, value)
    replace(model, expansion=replace(hats, pairs=damaged)).save(tmp_path / "bad.ssvm")
    with pytest.raises(DataError, match="usable model"):
        load(tmp_path / "bad.ssvm")


def test_plan_counts_pairs(tmp_path: Path) -> None:
    X, codes = joint(9, 20_000, 1.0)
    store = store_at(tmp_path / "a.zarr", X, codes, chunk_bytes=1 << 18)
    facts = sv.plan(store, curves=True, pairs=5, memory="1GiB").facts()
    assert {"choice of pairs", "pairs"} <= {term["term"] for term in facts["memory"]}
    assert facts["curves"]["pairs"] == {"most": 5, "chosen": "by a test", "scale": 1.0}
    with pytest.raises(UsageError, match="both are columns of 0 and 1"):
        fitted(store, pairs="column 3*column 4")
