"""What the page of a run draws, against what anyone would write down: counts, shares, margins and means of sampled rows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from streamsvm.jobs import run_record as evaluation
from streamsvm.jobs import run_record as record
from streamsvm.jobs.apply.metrics import Ranking, lower_edges, sort_keys
from streamsvm.losses import Hinge
from streamsvm.model import Model
from streamsvm.rows import Dense
from streamsvm.store.views.memory import MemoryStore
from tests.arrays import csr_of

RNG = np.random.default_rng(4)
PLAN: Any = SimpleNamespace(problems=[SimpleNamespace(loss=Hinge())])


def stored(rows: int = 90, chunk_rows: int = 30, *, classes: tuple[str, ...] = ("a", "b"), sparse: bool = False) -> Any:
    """Rows of three columns, the second of which drifts and the third of which is always 0."""
    values = RNG.standard_normal((rows, 3)).astype(np.float32)
    values[:, 1] += np.arange(rows) / 20
    values[:, 2] = 0.0
    codes = RNG.integers(0, max(len(classes), 2), rows).astype(np.int32)
    store = MemoryStore(chunk_bytes=1 << 20 if sparse else chunk_rows * 12)
    for start in range(0, rows, chunk_rows):
        part = values[start : start + chunk_rows]
        store.append(csr_of(part) if sparse else Dense(part), codes[start : start + chunk_rows])
    return store.commit(classes, 3), values.astype(np.float64), codes


def counted(margins: Any, low: float, high: float) -> list[int]:
    """A histogram as one counts by hand; what lies beyond is in the outer bins."""
    found = [0] * record.BINS
    for margin in margins:
        found[min(max(int((margin - low) / (high - low) * record.BINS), 0), record.BINS - 1)] += 1
    return found


@pytest.mark.parametrize("sparse", [False, True])
def test_margins_of_two_classes_are_counted_by_class(sparse: bool) -> None:
    store, X, codes = stored(sparse=sparse)
    model = Model(np.array([[1.0, -0.5, 2.0, 0.25]]), ("a", "b"))
    found = record._of_sample(store, PLAN, model, 1)
    f = X @ model.weights[0, :-1] + model.weights[0, -1]
    m = np.where(codes == 1, f, -f)
    low, high = found["margins"]["range"]
    assert found["margins"]["rows"] == 90
    for code, name in enumerate("ab"):
        assert found["margins"]["counts"][name] == counted(m[codes == code], low, high)
    edges = [low + (high - low) * k / record.BINS for k in range(record.BINS + 1)]
    assert found["margins"]["loss"] == pytest.approx([max(0.0, 1.0 - edge) for edge in edges], abs=1e-12)


def test_a_margin_of_several_classes_is_what_the_true_one_is_ahead() -> None:
    decision, truth = RNG.standard_normal((40, 4)), RNG.integers(0, 4, 40).astype(np.int32)
    expected = [d[t] - max(v for k, v in enumerate(d) if k != t) for d, t in zip(decision.tolist(), truth, strict=True)]
    assert record._margins(decision, truth).tolist() == expected


def test_rows_of_a_class_the_model_does_not_know_are_left_out() -> None:
    store, _, codes = stored(classes=("a", "new", "b"))
    found = record._of_sample(store, PLAN, Model(np.array([[1.0, 0.0, 0.0, 0.0]]), ("a", "b")), 1)
    assert {name: sum(counts) for name, counts in found["margins"]["counts"].items()} == {
        "a": int((codes == 0).sum()),
        "b": int((codes == 2).sum()),
    }


def test_columns_that_drift_are_told_in_standard_deviations() -> None:
    store, X, _ = stored()
    found = record._of_sample(store, PLAN, Model(np.zeros((1, 4)), ("a", "b")), 1)["feature_drift"]
    assert [one["column"] for one in found] == ["column 1", "column 0", "column 2"]
    for column, one in zip((1, 0), found[:2], strict=True):
        moved = [(X[at : at + 30, column].mean() - X[:, column].mean()) / X[:, column].std() for at in (0, 30, 60)]
        assert one["means"] == pytest.approx(moved, rel=1e-5, abs=1e-7)
        assert one["errors"] == pytest.approx(max(map(abs, moved)) * 30**0.5, rel=1e-5)
    assert found[2]["means"] == [0.0, 0.0, 0.0]


def test_one_chunk_does_not_drift_and_neither_do_columns_of_wide_stores(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Model(np.zeros((1, 4)), ("a", "b"))
    assert record._of_sample(stored(30)[0], PLAN, model, 1)["feature_drift"] == []
    for widest, columns in [(3, 3), (2, 0)]:
        monkeypatch.setattr(record, "WIDEST", widest)
        assert len(record._of_sample(stored()[0], PLAN, model, 1)["feature_drift"]) == columns


@pytest.mark.parametrize(
    ("passes", "most", "least", "chunks", "rows"),
    [
        (1, 20_000, 4_000, [0, 13, 26, 39], 120),  # four chunks whole, as fewer than 4,000 rows
        (20, 20_000, 4_000, [0, 6, 11, 17, 22, 28, 33, 39], 240),
        (100, 20_000, 4_000, [round(k * 39 / 15) for k in range(16)], 480),
        (1, 20_000, 40, [0, 13, 26, 39], 40),  # of each every third row
        (10, 20_000, 40, [0, 13, 26, 39], 120),  # a tenth of all rows seen: no fewer than there are
        (100, 100, 40, [round(k * 39 / 15) for k in range(16)], 96),  # every fifth row of 30
    ],
)
def test_the_sample_lies_evenly(
    passes: int, most: int, least: int, chunks: list[int], rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record, "SAMPLE", most)
    monkeypatch.setattr(record, "LEAST", least)
    store, X, codes = stored(1200)
    found = [(part.chunk, part.X, part.codes) for part in record._sampled(store, passes)]
    assert [chunk for chunk, *_ in found] == chunks
    assert sum(len(labels) for *_, labels in found) == rows
    step = 30 * len(chunks) // rows
    for chunk, part, labels in found:
        taken = slice(30 * chunk, 30 * chunk + 30, step)
        assert isinstance(part, Dense)
        np.testing.assert_array_equal(part.values, X[taken])
        np.testing.assert_array_equal(labels, codes[taken])


def test_shares_of_classes_are_those_of_stretches_of_the_store() -> None:
    """Of chunks that know fewer classes than came later, of one without rows, and of more chunks than are drawn."""
    census = [[3], [0, 0], [1, 1, 2], [0, 4]]
    store: Any = SimpleNamespace(census=census, layout=SimpleNamespace(numeric=False, classes="abc", counts=(4, 5, 2)))
    assert record._label_drift(store) == {
        "rows": [3.0, 3.0, 7.0, 11.0],
        "shares": {"b": [0.0, 0.0, 0.25, 1.0], "a": [1.0, 0.0, 0.25, 0.0], "c": [0.0, 0.0, 0.5, 0.0]},
    }
    store.census = [[1, 1]] * (2 * record.BINS)
    found = record._label_drift(store)
    assert found is not None
    assert found["rows"] == [4.0 * (k + 1) for k in range(record.BINS)]
    assert found["shares"]["a"] == [0.5] * record.BINS
    store.census = [[1, 1]]
    assert record._label_drift(store) is None
    store.census, store.layout.numeric = [[2], [2]], True
    assert record._label_drift(store) is None


def test_coefficients_are_ordered_by_what_a_standard_deviation_of_the_column_moves() -> None:
    store, X, _ = stored()
    found = record._coefficients(Model(np.array([[-0.5, 2.0, 9.0, 0.25]]), ("a", "b")), store)
    expected = [("column 1", 2.0, X[:, 1].std()), ("column 0", -0.5, X[:, 0].std())]  # of the third there is no effect
    assert [(name, weight) for name, weight, _ in found[0]["rows"]] == [one[:2] for one in expected]
    assert [one[2] for one in found[0]["rows"]] == pytest.approx([one[2] for one in expected], rel=1e-6)
    assert {key: found[0][key] for key in ("positive", "intercept", "of")} == {
        "positive": "b",
        "intercept": 0.25,
        "of": 3,
    }


def test_a_histogram_spans_what_99_in_100_rows_lie_within_and_0_and_1_in_any_case() -> None:
    """``rows``: as if each entry were there so many times. Classes come by their rows, the largest first."""
    margins = np.arange(-500.0, 500.0)
    RNG.shuffle(margins)
    truth = (margins > -100.0).astype(np.int32)
    found = record.histogram(margins, truth, ("a", "b"))
    assert found["range"] == [-496.0, 494.0]
    assert list(found["counts"]) == ["b", "a"]
    for name, mine in [("a", truth == 0), ("b", truth == 1)]:
        assert found["counts"][name] == counted(margins[mine], -496.0, 494.0)
    times = RNG.integers(0, 4, len(margins))
    again = record.histogram(margins, truth, ("a", "b"), times)
    assert again == record.histogram(np.repeat(margins, times), np.repeat(truth, times), ("a", "b"))
    assert again["rows"] == times.sum()
    narrow = record.histogram(np.array([0.25, 0.5]), np.array([0, 1], np.int32), ("a", "b"))
    assert narrow["range"] == [-0.5, 1.5]
    assert record.histogram(np.zeros(0), np.zeros(0, np.int32), ("a",))["range"] == [-0.5, 1.5]


def test_the_classes_with_most_rows_are_named() -> None:
    layout = SimpleNamespace(numeric=False, classes=tuple(map(str, range(70))), counts=tuple(range(70)))
    store: Any = SimpleNamespace(layout=layout)
    assert record._classes(store) == [(str(count), count) for count in range(69, 9, -1)]
    layout.numeric = True
    assert record._classes(store) == []


def test_curves_go_through_every_threshold_there_is() -> None:
    """Of nine values; a threshold without a positive of its own is no point of precision over recall."""
    values, truth = np.round(RNG.standard_normal(300) * 2).clip(-4.0, 4.0), RNG.integers(0, 2, 300)
    truth[values == 2.0] = 0
    ranking = Ranking()
    ranking.add(values, truth == 1)
    found = evaluation.curves(ranking.counts, ("a", "b"))
    thresholds = sorted(set(values.tolist()), reverse=True)
    above = [(values >= t, t) for t in thresholds]
    roc = [
        ((said & (truth == 0)).sum() / (truth == 0).sum(), (said & (truth == 1)).sum() / truth.sum())
        for said, _ in above
    ]
    assert found["roc"] == [(0.0, 0.0), *(pytest.approx(point) for point in roc)]
    recall = [
        ((said & (truth == 1)).sum() / truth.sum(), truth[said].mean()) for said, t in above if truth[values == t].any()
    ]
    assert found["precision_recall"] == [pytest.approx(point) for point in recall]
    edges = lower_edges(sort_keys(values), len(ranking.counts[0]))
    margins = np.where(truth == 1, edges, -edges)
    assert found["margins"] == record.histogram(margins, truth.astype(np.int32), ("a", "b"))
    one_kind = ranking.counts.copy()
    one_kind[0] = 0
    assert evaluation.curves(one_kind, ("a", "b")) == {}


def test_a_curve_has_no_more_points_than_are_drawn() -> None:
    rising = np.arange(1, 10_001) / 10_000.0
    found = evaluation._evenly(rising)
    assert len(found) == evaluation.POINTS
    assert found[0] == 0
    assert found[-1] == 9_999
    assert set(np.diff(rising[found]).round(3)) == {0.005}
