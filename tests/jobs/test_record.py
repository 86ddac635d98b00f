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
from streamsvm.store.views import MemoryStore
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


def test_run_record_columns_that_drift_are_told_in_standard_deviations() -> None:
    store, X, _ = stored()
    found = record._of_sample(store, PLAN, Model(np.zeros((1, 4)), ("a", "b")), 1)["feature_drift"]
    assert [one["column"] for one in found] == ["column 1", "column 0", "column 2"]
    for column, one in zip((1, 0), found[:2], strict=True):
        moved = [(X[at : at + 30, column].mean() - X[:, column].mean()) / X[:, column].std() for at in (0, 30, 60)]
        assert one["means"] == pytest.approx(moved, rel=1e-5, abs=1e-7)
        assert one["errors"] == pytest.approx(max(map(abs, moved)) * 30**0.5, rel=1e-5)
    assert found[2]["means"] == [0.0, 0.0, 0.0]


def test_run_record_curves_go_through_every_threshold_there_is() -> None:
    """Of nine values; a threshold without a positive of its own is no point of precision over recall."""
    values, truth = np.round(RNG.standard_normal(300) * 2).clip(-4.0, 4.0), RNG.integers(0, 2, 300)
    truth[values == 2.0] = 0
    ranking = Ranking()
    ranking.add(values, truth == 1)
    found = evaluation.build_curves(ranking.counts, ("a", "b"))
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
    assert found["margins"] == record.build_histogram(margins, truth.astype(np.int32), ("a", "b"))
    one_kind = ranking.counts.copy()
    one_kind[0] = 0
    assert evaluation.build_curves(one_kind, ("a", "b")) == {}
