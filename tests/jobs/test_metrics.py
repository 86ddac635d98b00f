"""The streaming figures against scikit-learn's, on rows that arrive in pieces."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics as reference

from streamsvm.jobs.apply.metrics import MetricAccumulator, ModelEvaluation, Ranking, sort_keys


def accumulate(truth: np.ndarray, decision: np.ndarray, classes: tuple[str, ...], pieces: int) -> ModelEvaluation:
    accumulator = MetricAccumulator(classes)
    binary = decision.shape[1] == 1
    predicted = (decision[:, 0] > 0).astype(np.int32) if binary else np.argmax(decision, axis=1).astype(np.int32)
    parts = (np.array_split(a, pieces) for a in (truth.astype(np.int32), predicted, decision))
    for part in zip(*parts, strict=True):
        accumulator.add(*part)
    return accumulator.result()


@pytest.mark.parametrize("pieces", [1, 7])
@pytest.mark.parametrize("seed", range(3))
def test_metrics_of_two_classes_are_those_of_scikit_learn(pieces: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    truth = (rng.random(5000) < 0.2).astype(int)
    f = rng.standard_normal((5000, 1)) + truth[:, None] - 0.4
    found, said, signs = accumulate(truth, f, ("a", "b"), pieces), (f[:, 0] > 0).astype(int), 2 * truth - 1
    assert found.accuracy == pytest.approx(reference.accuracy_score(truth, said))
    assert found.balanced_accuracy == pytest.approx(reference.balanced_accuracy_score(truth, said))
    assert found.F1 == pytest.approx(reference.f1_score(truth, said))
    assert found.F1_macro == pytest.approx(reference.f1_score(truth, said, average="macro"))
    assert np.array_equal(found.confusion, reference.confusion_matrix(truth, said))
    slack = np.maximum(0, 1 - signs * f[:, 0])
    assert found.hinge == pytest.approx(slack.mean())
    assert found.squared_hinge == pytest.approx((slack**2).mean())
    assert found.AUC is not None
    assert found.AUC_error is not None
    assert abs(found.AUC - reference.roc_auc_score(truth, f[:, 0])) <= found.AUC_error < 2e-3


def test_metrics_of_many_classes_are_those_of_scikit_learn() -> None:
    rng = np.random.default_rng(3)
    truth, f = rng.integers(0, 4, 3000), rng.standard_normal((3000, 4))
    f[np.arange(3000), truth] += 1
    found, said = accumulate(truth, f, tuple("abcd"), 5), np.argmax(f, axis=1)
    assert found.F1_macro == pytest.approx(reference.f1_score(truth, said, average="macro"))
    assert found.balanced_accuracy == pytest.approx(reference.balanced_accuracy_score(truth, said))
    assert (found.F1, found.AUC, found.hinge) == (None, None, None)


def test_metrics_class_that_was_said_once_of_no_row_of_its_own_counts() -> None:
    truth, said = np.array([0, 0, 1, 1]), np.array([0, 2, 1, 1])
    found = accumulate(truth, np.eye(4)[said], tuple("abcd"), 1)
    assert found.F1_macro == pytest.approx(reference.f1_score(truth, said, average="macro"))
    assert found.F1_macro == pytest.approx((2 / 3 + 1.0 + 0.0) / 3)


def test_metrics_labels_the_model_does_not_know_are_errors() -> None:
    accumulator = MetricAccumulator(("a", "b"))
    accumulator.truths.append("c")
    accumulator.add(np.array([0, 1, 2], np.int32), np.array([0, 1, 1], np.int32), np.array([[-1.0], [1.0], [1.0]]))
    found = accumulator.result()
    assert found.accuracy == pytest.approx(2 / 3)
    assert found.confusion == ((1, 0), (0, 1), (0, 1))
    assert found.truths == ("a", "b", "c")
    # its recall is 0 and counts: (1 + 1 + 0) / 3
    assert found.balanced_accuracy == pytest.approx(2 / 3)
    truth, said = [0, 1, 2], [0, 1, 1]
    assert found.F1_macro == pytest.approx(reference.f1_score(truth, said, average="macro"))


def test_metrics_one_class_has_no_ranking() -> None:
    found = accumulate(np.ones(5), np.ones((5, 1)), ("a", "b"), 1)
    assert found.AUC is None
    assert found.accuracy == found.balanced_accuracy == 1.0


def test_metrics_ties_count_half() -> None:
    ranking = Ranking()
    ranking.add(np.zeros(10), np.arange(10) < 4)
    auc = ranking.auc()
    assert auc is not None
    assert auc.value == 0.5
    assert auc.error == 0.5


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False, width=32), min_size=2, max_size=50))
def test_metrics_keys_rise_with_the_values(values: list[float]) -> None:
    ordered = np.sort(np.array(values))
    assert (np.diff(sort_keys(ordered)) >= 0).all()
    assert sort_keys(np.array([-0.0]))[0] == sort_keys(np.array([0.0]))[0]
