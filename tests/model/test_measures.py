"""Measures are those of scikit-learn to the last digits, however rows are cut into chunks and in whatever order these come."""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics as reference

from streamsvm.calibration.reliability import read_as_log_odds
from streamsvm.calibration.scores import count_scores
from streamsvm.errors import DataError, UsageError
from streamsvm.jobs.common_options import SCORES, THRESHOLDS
from streamsvm.model.measures import (
    LABELS,
    MEASURES,
    MeasureCounts,
    PredictionTask,
    average_precision,
    best_threshold,
    choose_measure,
    parse_measure,
    roc_auc,
)

COST = "cost:fp=2,fn=7"
TWO, SEVERAL = PredictionTask(2, probabilities=True), PredictionTask(3, probabilities=True)


def counted(name: str, task: PredictionTask, f: Any, truth: Any, *, parts: int = 4, order: int = 0) -> float:
    """The measure of rows that are counted in parts, which are added up in another order."""
    rng = np.random.default_rng(order)
    empty = MeasureCounts(choose_measure(name, task), task, 1, (read_as_log_odds,))
    found = []
    for rows in np.array_split(np.arange(len(truth)), parts):
        counts = empty.empty()
        counts.add(0, f[rows], truth[rows])
        found.append(counts)
    return reduce(add, [found[k] for k in rng.permutation(parts)]).values()[0]


def expected_of_two(name: str, f: Any, truth: Any, positive: int) -> float:
    side, said, p = (truth == positive), (f > 0).astype(int), read_as_log_odds(f[:, None])
    shown = f if positive == 1 else -f
    missed, false = np.sum(side & (said != positive)), np.sum(~side & (said == positive))
    return {
        "error": lambda: 1 - reference.accuracy_score(truth, said),
        "balanced_error": lambda: 1 - reference.balanced_accuracy_score(truth, said),
        "f1": lambda: reference.f1_score(truth, said, pos_label=positive),
        "auc": lambda: reference.roc_auc_score(truth, f),
        "average_precision": lambda: reference.average_precision_score(side, shown),
        "log_loss": lambda: reference.log_loss(truth, p),
        "brier": lambda: reference.brier_score_loss(truth, p[:, 1]),
        COST: lambda: (2 * false + 7 * missed) / len(truth),
    }[name]()


@given(st.integers(0, 10_000), st.sampled_from([0, 1]), st.integers(2, 60))
def test_measures_of_two_classes_are_those_of_scikit_learn(seed: int, positive: int, rows: int) -> None:
    rng = np.random.default_rng(seed)
    f = np.round(rng.normal(size=rows), seed % 3)  # with ties
    truth = np.append([0, 1], rng.integers(0, 2, rows - 2)).astype(np.int32)
    for name in (*list(MEASURES)[:7], COST):
        found = counted(name, TWO._replace(positive=positive), f[:, None], truth)
        assert found == pytest.approx(expected_of_two(name, f, truth, positive), abs=1e-12)
        assert counted(name, TWO._replace(positive=positive), f[:, None], truth, parts=7, order=1) == found or (
            name in {"log_loss", "brier"}  # other parts are other sums; the same parts in another order are not
        )
        assert counted(name, TWO._replace(positive=positive), f[:, None], truth, order=2) == found


def test_measures_of_several_classes_are_means_over_classes() -> None:
    rng = np.random.default_rng(3)
    f, truth = np.round(rng.normal(size=(90, 3)), 1), np.repeat(np.arange(3), 30).astype(np.int32)
    said, p, ones = f.argmax(axis=1), read_as_log_odds(f), np.eye(3)[truth]
    expected = {
        "error": 1 - reference.accuracy_score(truth, said),
        "balanced_error": 1 - reference.balanced_accuracy_score(truth, said),
        "f1": reference.f1_score(truth, said, average="macro"),
        "auc": reference.roc_auc_score(ones, f, average="macro"),
        "average_precision": reference.average_precision_score(ones, f, average="macro"),
        "log_loss": reference.log_loss(truth, p),
        "brier": np.square(p - ones).sum(axis=1).mean(),
    }
    for name, value in expected.items():
        assert counted(name, SEVERAL, f, truth) == pytest.approx(value, abs=1e-12), name


def test_measures_of_the_five_largest_values_are_those_of_scikit_learn() -> None:
    rng = np.random.default_rng(6)
    f, truth = rng.normal(size=(200, 8)), rng.integers(0, 8, 200).astype(np.int32)
    found = counted("top_5_error", PredictionTask(8), f, truth)
    assert found == pytest.approx(1 - reference.top_k_accuracy_score(truth, f, k=5), abs=1e-12)
    with pytest.raises(UsageError, match="more than 5 classes"):
        choose_measure("top_5_error", PredictionTask(5))


def test_measures_of_numbers_are_those_of_scikit_learn() -> None:
    rng = np.random.default_rng(4)
    t = rng.normal(size=70) + 1e6
    f = t + rng.normal(size=70)
    numbers = PredictionTask(0)
    assert counted("rmse", numbers, f[:, None], t) == pytest.approx(reference.root_mean_squared_error(t, f), rel=1e-12)
    assert counted("mae", numbers, f[:, None], t) == pytest.approx(reference.mean_absolute_error(t, f), rel=1e-12)
    assert counted("r2", numbers, f[:, None], t) == pytest.approx(reference.r2_score(t, f), abs=1e-9)


@given(st.integers(0, 10_000))
def test_measures_weights_and_ties_of_ranks_are_those_of_scikit_learn(seed: int) -> None:
    rng = np.random.default_rng(seed)
    f, y = np.round(rng.normal(size=50), 1), rng.random(50) < 0.3
    s = rng.integers(0, 4, 50).astype(np.float64) * 1.5
    y[:2] = [True, False]
    s[:2] = 1.0
    assert roc_auc(y, f, s) == pytest.approx(reference.roc_auc_score(y, f, sample_weight=s), abs=1e-12)
    assert average_precision(y, f, s) == pytest.approx(
        reference.average_precision_score(y, f, sample_weight=s), abs=1e-12
    )


@given(st.integers(0, 10_000), st.sampled_from([0, 1]), st.sampled_from(["f1", "balanced_error", "error", COST]))
def test_measures_best_threshold_is_that_of_all_that_can_be_tried(seed: int, positive: int, name: str) -> None:
    rng = np.random.default_rng(seed)
    f = np.round(rng.normal(size=25) + rng.normal(), 1)
    truth = np.append([0, 1], rng.integers(0, 2, 23)).astype(np.int32)
    measure = parse_measure(name)
    second = (truth == 1).astype(np.float64)
    found = best_threshold(measure, count_scores(f, second, 1.0 - second), positive)
    task = TWO._replace(positive=positive)

    def at(threshold: float) -> float:
        return counted(name, task, (f > threshold)[:, None] - 0.5, truth)

    tried = [at(threshold) for threshold in [-99.0, *(np.unique(f) + 0.05), *(np.unique(f) - 0.05)]]
    assert found.score == pytest.approx(max(tried) if measure.higher_is_better else min(tried), abs=1e-12)
    assert at(found.value) == pytest.approx(found.score, abs=1e-12)
    if at(0.0) == pytest.approx(found.score, abs=1e-12):
        assert found.value == 0.0


def test_measures_have_one_list_of_names() -> None:
    assert tuple(MEASURES) == SCORES
    assert set(THRESHOLDS) == {name for name, one in MEASURES.items() if one.needs == LABELS}
    assert parse_measure(COST).costs == (2.0, 7.0)


@pytest.mark.parametrize("text", ["cost", "cost:", "cost:fp=1", "cost:fp=1,fn=x", "cost:fp=-1,fn=2", "cost:fp=0,fn=0"])
def test_measures_costs_that_say_too_little_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="two kinds of error cost") as caught:
        parse_measure(text)
    assert "cost:fp=1,fn=50" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("name", "task", "why"),
    [
        ("r2", TWO, "numbers"),
        ("auc", PredictionTask(0), "classes"),
        ("log_loss", PredictionTask(2), "--loss logistic"),
        (COST, SEVERAL, "there are 3"),
        ("auc", PredictionTask(3, pairs=True), "vote"),
    ],
)
def test_measures_that_do_not_fit_are_refused_with_those_that_do(name: str, task: PredictionTask, why: str) -> None:
    with pytest.raises(UsageError, match=why) as caught:
        choose_measure(name, task)
    assert caught.value.hint.startswith("choose from ")


def test_measures_undefined_ones_say_what_is_missing() -> None:
    with pytest.raises(DataError, match="no rows of both classes"):
        counted("auc", TWO, np.zeros((4, 1)), np.ones(4, np.int32))
