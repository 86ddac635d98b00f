"""Thresholds of the decision value against counting at every value, and against scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest

from streamsvm.errors import UsageError
from streamsvm.jobs.apply.job import EvaluateJob
from streamsvm.jobs.apply.metrics import (
    MetricAccumulator,
    Ranking,
    average_precision,
    best_threshold,
    sort_keys,
)


def ranked(rows: int = 4000, seed: int = 0) -> tuple[Ranking, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    positive = rng.random(rows) < 0.15
    f = rng.normal(0, 1, rows) + 1.2 * positive - 0.8
    ranking = Ranking()
    ranking.add(f, positive)
    return ranking, f, positive


@pytest.mark.parametrize("measure", ["F1", "balanced_accuracy", "accuracy", "cost"])
def test_the_best_threshold_against_counting_at_every_value(measure: str) -> None:
    ranking, f, positive = ranked()
    costs = (1.0, 6.0)
    found = best_threshold(ranking.counts, measure, costs)

    def measured(threshold: float) -> dict[str, float]:
        taken = f.astype(np.float32) >= threshold
        true, false = np.sum(taken & positive), np.sum(taken & ~positive)
        missed, kept = np.sum(~taken & positive), np.sum(~taken & ~positive)
        return {
            "F1": 2 * true / (2 * true + false + missed),
            "balanced_accuracy": (true / positive.sum() + kept / (~positive).sum()) / 2,
            "accuracy": (true + kept) / len(f),
            "cost": (costs[0] * false + costs[1] * missed) / len(f),
        }

    at = measured(found.threshold)
    for name, value in at.items():
        assert getattr(found, name) == pytest.approx(value)
    sign = -1 if measure == "cost" else 1
    best = max(sign * measured(float(value))[measure] for value in f.astype(np.float32))
    assert sign * at[measure] >= best - 0.002  # of all thresholds those at the edges of bins are tried


def test_thresholds_average_precision_is_that_of_scikit_learn() -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    ranking, f, positive = ranked()
    expected = metrics.average_precision_score(positive, sort_keys(f))
    assert average_precision(ranking.counts) == pytest.approx(expected, rel=1e-12)
    assert average_precision(ranking.counts) == pytest.approx(metrics.average_precision_score(positive, f), abs=2e-3)


def test_a_stated_threshold_is_exact_and_adds_up() -> None:
    _, f, positive = ranked()
    parts = []
    for half in (slice(0, 1500), slice(1500, None)):
        part = MetricAccumulator(("no", "yes"), threshold=0.2503)
        part.add(positive[half].astype(np.int32), (f[half] > 0).astype(np.int32), f[half, None])
        parts.append(part)
    stated, best = parts[0].merge(parts[1]).at_thresholds(None, (1.0, 1.0))
    assert best is None
    assert stated is not None
    taken = f > 0.2503
    assert stated.precision == np.mean(positive[taken])
    assert stated.recall == np.mean(taken[positive])
    assert stated.cost == pytest.approx(np.mean(taken != positive))


def test_thresholds_what_is_asked_for_is_checked() -> None:
    with pytest.raises(UsageError, match="--cost"):
        EvaluateJob("m", ("s",), cost=(1.0,))
    with pytest.raises(UsageError, match="best-threshold"):
        EvaluateJob("m", ("s",), best_threshold="color")
