"""Log loss, Brier score and calibration error against scikit-learn's and written-down ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn import metrics as reference

from streamsvm.calibration.reliability import BINS, ProbabilityCounts, read_as_log_odds


def drawn(classes: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(classes)
    p = rng.dirichlet(np.ones(classes), 2000)
    truth = np.array([rng.choice(classes, p=row) for row in p], np.int32)
    return p**0.7 / (p**0.7).sum(axis=1, keepdims=True), truth


@pytest.mark.parametrize("classes", [2, 5])
def test_reliability_figures_are_those_of_sklearn(classes: int) -> None:
    p, truth = drawn(classes)
    counts, more = ProbabilityCounts(), ProbabilityCounts()
    counts.add(p[:700], truth[:700])
    more.add(p[700:], truth[700:])
    counts.merge(more)
    found = counts.figures()
    assert found is not None
    assert found.log_loss == pytest.approx(reference.log_loss(truth, p, labels=range(classes)))
    if classes == 2:
        assert found.Brier == pytest.approx(reference.brier_score_loss(truth, p[:, 1]))
    else:
        assert found.Brier == pytest.approx(((p - np.eye(classes)[truth]) ** 2).sum(axis=1).mean())
    said = p[:, 1] if classes == 2 else p.max(axis=1)
    right = (truth == 1) if classes == 2 else (p.argmax(axis=1) == truth)
    bins = [np.flatnonzero((said >= k / BINS) & (said < (k + 1) / BINS)) for k in range(BINS)]
    error = sum(len(rows) / len(p) * abs(said[rows].mean() - right[rows].mean()) for rows in bins if len(rows))
    assert found.ECE == pytest.approx(error)
    diagram = counts.diagram()
    assert sum(diagram.weight) == len(p)
    assert np.average(diagram.came_true, weights=diagram.weight) == pytest.approx(right.mean())


def test_reliability_rows_of_other_classes_are_left_out_and_none_are_no_figures() -> None:
    counts = ProbabilityCounts()
    counts.add(np.array([[0.5, 0.5]]), np.array([2], np.int32))
    assert counts.figures() is None
    counts.add(np.array([[1.0, 0.0]]), np.array([1], np.int32))
    assert counts.figures()[0] == pytest.approx(-np.log(np.finfo(float).eps))  # type: ignore[index]


def test_reliability_weight_counts_as_copies() -> None:
    p, truth = drawn(3)
    one, many = ProbabilityCounts(), ProbabilityCounts()
    one.add(p, truth, np.full(len(p), 3.0))
    for _ in range(3):
        many.add(p, truth)
    assert one.figures() == pytest.approx(many.figures())


def test_reliability_reads_scores_as_log_odds() -> None:
    assert np.allclose(read_as_log_odds(np.array([[0.0], [1e4]])), [[0.5, 0.5], [0.0, 1.0]])
    assert np.allclose(read_as_log_odds(np.array([[1.0, 1.0, 1.0]])), 1 / 3)
