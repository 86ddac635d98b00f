"""Calibrators against scikit-learn's, against slow obvious versions, and on scores that are hard on them."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.optimize
import scipy.special
from hypothesis import given
from hypothesis import strategies as st
from sklearn.calibration import _SigmoidCalibration
from sklearn.isotonic import IsotonicRegression

from streamsvm.calibration import scores
from streamsvm.calibration.calibrators import (
    CALIBRATIONS,
    PREFIX,
    Calibration,
    Isotonic,
    PlattSigmoid,
    Temperature,
    calibrate_by_loss,
    fit_inverse,
    fit_isotonic,
    fit_sigmoid,
    pool_violators,
    read_calibration,
)
from streamsvm.calibration.scores import ScoreCounts, ScoreTable, build_score_table, count_scores, find_bins
from streamsvm.errors import DataError, UsageError
from streamsvm.model import Model, load


def drawn(rows: int = 4000, classes: int = 2, seed: int = 0) -> tuple[Any, Any, Any]:
    """Scores (n, k), classes (n,) and whole weights (n,) of rows whose scores say something, but not the odds."""
    rng = np.random.default_rng(seed)
    truth = rng.choice(classes, rows, p=np.arange(1, classes + 1) / np.arange(1, classes + 1).sum()).astype(np.int32)
    f = 0.4 * rng.standard_normal((rows, 1 if classes == 2 else classes))
    if classes == 2:
        f[:, 0] += 0.5 * truth - 0.1
    else:
        f[np.arange(rows), truth] += 0.6
    return f, truth, rng.integers(1, 5, rows).astype(float)


STEPS = (np.array([-1.0, 0.0, 0.5]), np.array([0.0, 0.2, 1.0]))
"""The breakpoints and values of an isotonic function."""


def table(f: Any, truth: Any, weights: Any = None, seed: int = 0) -> ScoreTable:
    weights = np.ones(len(f)) if weights is None else weights
    return build_score_table(f, truth, weights, np.random.default_rng(seed).random(len(f)))


def exact(f: Any, truth: Any, weights: Any = None) -> ScoreCounts:
    weights = np.ones(len(f)) if weights is None else weights
    return count_scores(f[:, 0], weights * truth, weights * (1 - truth))


@pytest.mark.parametrize("weighted", [False, True])
def test_calibration_sigmoid_is_that_of_scikit_learn(weighted: bool) -> None:
    f, truth, weights = drawn()
    weights = weights if weighted else np.ones(len(f))
    theirs = _SigmoidCalibration().fit(f[:, 0], truth, weights).predict(f[:, 0])
    A, B = fit_sigmoid(exact(f, truth, weights))
    assert np.allclose(scipy.special.expit(A * f[:, 0] + B), theirs, atol=1e-5)  # theirs ends at a gradient of 1e-6


@given(st.integers(0, 1000), st.floats(1e-3, 1e3), st.sampled_from(["mixed", "apart", "equal", "one of a class"]))
def test_calibration_sigmoid_has_the_least_loss(seed: int, scale: float, kind: str) -> None:
    f, truth, _ = drawn(60, seed=seed)
    if kind == "apart":
        truth = (f[:, 0] > 0).astype(np.int32)
    elif kind == "one of a class":
        truth = (np.arange(60) == 7).astype(np.int32)
    f = np.ones_like(f) if kind == "equal" else f * scale
    if not 0 < truth.sum() < len(truth):
        return
    A, B = fit_sigmoid(exact(f, truth))
    targets = np.where(truth == 1, (truth.sum() + 1) / (truth.sum() + 2), 1 / (len(truth) - truth.sum() + 2))

    def loss(v: Any) -> float:
        z = v[0] / scale * f[:, 0] + v[1]
        return float((np.logaddexp(0, z) - targets * z).sum())

    least = scipy.optimize.minimize(loss, [A * scale, B], method="BFGS").fun
    assert loss([A * scale, B]) <= least + 1e-7 * len(f)
    assert loss([A * scale, B]) <= loss([0.0, 0.0])


@pytest.mark.parametrize("weighted", [False, True])
def test_isotonic_calibration_is_that_of_scikit_learn(weighted: bool) -> None:
    f, truth, weights = drawn(2000)
    f = np.round(f, 2)  # many scores are equal
    weights = weights if weighted else np.ones(len(f))
    theirs = IsotonicRegression(out_of_bounds="clip", y_min=0, y_max=1).fit(f[:, 0], truth, weights)
    ours = Isotonic((fit_isotonic(exact(f, truth, weights)),))
    at = np.linspace(-3, 3, 1001)
    assert np.allclose(ours.probabilities(at[:, None])[:, 1], theirs.predict(at), atol=1e-12)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=12))
def test_calibration_pooling_finds_the_nearest_rising_values(pairs: list[tuple[int, int]]) -> None:
    """Slowly: g_j = max over i <= j of min over k >= j of the mean of i..k (Barlow et al., 1972)."""
    kept = [pair for pair in pairs if sum(pair)]
    if not kept:
        return
    hits, total = np.array([a for a, _ in kept], float), np.array([a + b for a, b in kept], float)
    mean = lambda i, k: hits[i : k + 1].sum() / total[i : k + 1].sum()  # noqa: E731
    n = len(kept)
    slow = [max(min(mean(i, k) for k in range(j, n)) for i in range(j + 1)) for j in range(n)]
    firsts, values = pool_violators(hits, total)
    assert np.allclose(np.repeat(values, np.diff(np.append(firsts, n))), slow)
    assert (np.diff(values) > 0).all()


def smoothed_loss(b: float, f: Any, truth: Any, weights: Any) -> float:
    """The log loss of a temperature, with the targets of the prior, written down."""
    classes = f.shape[1]
    weight = np.bincount(truth, weights, classes)
    right = (weight[truth] + 1) / (weight[truth] + 2)
    targets = np.repeat(((1 - right) / (classes - 1))[:, None], classes, axis=1)
    targets[np.arange(len(f)), truth] = right
    return float(weights @ -(targets * scipy.special.log_softmax(b * f, axis=1)).sum(axis=1))


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("kind", ["mixed", "apart", "contrary"])
def test_calibration_temperature_has_the_least_loss(kind: str, scale: float) -> None:
    f, truth, weights = drawn(500, classes=4)
    if kind == "apart":
        truth = f.argmax(axis=1).astype(np.int32)
    f = -f if kind == "contrary" else f
    found = fit_inverse(scores.Vectors(scale * f, truth, weights)) * scale
    slow = scipy.optimize.minimize_scalar(
        smoothed_loss, bounds=(1e-9, 200), args=(f, truth, weights), method="bounded", options={"xatol": 1e-9}
    )
    assert smoothed_loss(found, f, truth, weights) <= slow.fun * (1 + 1e-9)
    assert found > 0


def test_calibration_two_classes_have_the_temperature_of_two_scores() -> None:
    f, truth, weights = drawn(800)
    found = Temperature.fit(table(f, truth, weights))
    both = np.concatenate([np.zeros_like(f), f], axis=1)
    assert found.inverse == pytest.approx(fit_inverse(scores.Vectors(both, truth, weights)), rel=1e-4)


@pytest.mark.parametrize("method", list(CALIBRATIONS))
@pytest.mark.parametrize("classes", [2, 4])
def test_calibration_gives_probabilities(method: str, classes: int) -> None:
    f, truth, weights = drawn(3000, classes)
    found = CALIBRATIONS[method].fit(table(f, truth, weights))
    p = found.probabilities(np.concatenate([f, 1e6 * f[:5], 0 * f[:2]]))
    assert p.shape == (3007, classes)
    assert (p >= 0).all()
    assert np.allclose(p.sum(axis=1), 1)
    shares = [weights[truth == k].sum() / weights.sum() for k in range(classes)]
    if method != "temperature":  # of which nothing of the kind is known
        assert np.allclose(np.average(p[:3000], axis=0, weights=weights), shares, atol=0.03)


@pytest.mark.parametrize("method", list(CALIBRATIONS))
@pytest.mark.parametrize("classes", [2, 3])
def test_calibration_weight_counts_as_copies(method: str, classes: int) -> None:
    f, truth, weights = drawn(600, classes)
    copies = np.repeat(np.arange(600), weights.astype(int))
    one = CALIBRATIONS[method].fit(table(f, truth, weights)).probabilities(f)
    assert np.allclose(one, CALIBRATIONS[method].fit(table(f[copies], truth[copies])).probabilities(f), atol=1e-9)


@pytest.mark.parametrize("method", list(CALIBRATIONS))
def test_calibration_class_without_rows_is_named(method: str) -> None:
    with pytest.raises(DataError, match="a class has no rows"):
        CALIBRATIONS[method].fit(table(np.ones((5, 1)), np.ones(5, np.int32)))


@given(st.lists(st.floats(-1e300, 1e300), min_size=2, max_size=50))
def test_calibration_bins_are_in_the_order_of_scores(values: list[float]) -> None:
    found = find_bins(np.sort(np.array(values)))
    assert (np.diff(found) >= 0).all()
    assert found[0] >= 0
    assert found[-1] < scores.BINS


def test_calibration_score_is_near_the_mean_of_its_bin() -> None:
    f, truth, weights = drawn(20000)
    counts = table(f, truth, weights).counts(0)
    means = counts.scores[np.searchsorted(np.unique(find_bins(f[:, 0])), find_bins(f[:, 0]))]
    assert (np.abs(means - f[:, 0]) <= np.abs(f[:, 0]) / 256 + 2.0**-20).all()
    assert np.allclose(fit_sigmoid(counts), fit_sigmoid(exact(f, truth, weights)), rtol=1e-4)


def test_calibration_tables_are_joined_in_any_parts() -> None:
    f, truth, weights = drawn(999, 3)
    draws = np.random.default_rng(1).random(999)
    whole = build_score_table(f, truth, weights, draws)
    cut = [
        build_score_table(f[a:b], truth[a:b], weights[a:b], draws[a:b]) for a, b in ((0, 100), (100, 700), (700, 999))
    ]
    joined = cut[0].merge(cut[1]).merge(cut[2])
    assert np.allclose(joined.sums, whole.sums)
    assert np.array_equal(joined.vectors.scores, whole.vectors.scores)


def test_calibration_sample_is_the_rows_of_the_lowest_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scores, "MOST_ROWS", 100)
    f, truth, weights = drawn(999, 3)
    draws = np.random.default_rng(1).random(999)
    halves = [
        build_score_table(f[part], truth[part], weights[part], draws[part]) for part in (slice(500), slice(500, 999))
    ]
    kept = halves[0].merge(halves[1])
    assert np.array_equal(np.sort(kept.draws), np.sort(draws)[:100])
    assert np.array_equal(kept.vectors.scores, f[np.isin(draws, kept.draws)])


def test_calibration_log_odds_come_back_where_classes_are_weighted() -> None:
    """A fit with class weights of a loss whose least value is at known f: 2 points, each of both classes."""
    true, ratio, sharpness = np.array([0.2, 0.7]), 5.0, 3.0
    f = (np.log(true / (1 - true)) + np.log(ratio)) / sharpness
    found = calibrate_by_loss(sharpness, np.array([ratio]), 10).calibrator.probabilities(f[:, None])
    assert np.allclose(found[:, 1], true)
    slope = ratio * true * -scipy.special.expit(-sharpness * f) + (1 - true) * scipy.special.expit(sharpness * f)
    assert np.allclose(slope, 0)  # f is where the weighted loss of each point is least


@pytest.mark.parametrize("method", list(CALIBRATIONS))
@pytest.mark.parametrize("classes", [2, 3])
def test_calibration_model_keeps_its_calibration(tmp_path: Path, method: str, classes: int) -> None:
    f, truth, weights = drawn(500, classes)
    plain = Model(np.ones((f.shape[1], 3)), tuple("abc"[:classes]))
    calibrator = CALIBRATIONS[method].fit(table(f, truth, weights))
    model = Model(plain.weights, plain.classes, calibration=Calibration(calibrator, "5 folds", 500))
    model.save(tmp_path / "m")
    plain.save(tmp_path / "plain")
    again = load(tmp_path / "m")
    assert again == model
    assert again != plain
    assert np.array_equal(again.probabilities(f), model.probabilities(f))
    assert again.calibration is not None
    assert again.calibration.header() == model.calibration.header()
    assert load(tmp_path / "plain").calibration is None
    with pytest.raises(UsageError, match="no probabilities"):
        load(tmp_path / "plain").predict_proba(np.ones((1, 2)))


@pytest.mark.parametrize(
    ("header", "arrays"),
    [
        ({"method": "magic"}, {}),
        ({"method": "sigmoid", "parameters": {"slopes": [1.0], "offsets": [float("nan")]}}, {}),
        ({"method": "sigmoid", "parameters": {"slopes": [1.0, 2.0], "offsets": [0.0, 0.0]}}, {}),
        ({"method": "sigmoid", "parameters": "x"}, {}),
        ({"method": "temperature", "parameters": {"inverse": -1.0}}, {}),
        ({"method": "isotonic", "parameters": {"bends": [2]}}, {"scores": [1.0, 0.0], "values": [0.0, 1.0]}),
        ({"method": "isotonic", "parameters": {"bends": [2]}}, {"scores": [0.0, 1.0], "values": [0.0, 1.5]}),
        ({"method": "isotonic", "parameters": {"bends": [-1, 3]}}, {"scores": [0.0, 1.0], "values": [0.0, 1.0]}),
        ({"method": "isotonic", "parameters": {"bends": [2]}}, {}),
    ],
)
def test_what_is_no_calibration_is_refused(header: Any, arrays: Any) -> None:
    known = {"scores": "leave-one-out", "rows": 3, **json.loads(json.dumps(header))}
    with pytest.raises(DataError):
        read_calibration(known, {PREFIX + name: np.array(values) for name, values in arrays.items()}, 1)


def test_calibration_sigmoid_of_other_sizes_is_refused() -> None:
    found = Calibration(PlattSigmoid(np.ones(2), np.zeros(2)), "5 folds", 9)
    with pytest.raises(DataError, match="2 decision values"):
        read_calibration(found.header(), found.tensors(), 3)


@pytest.mark.parametrize(
    "calibrator",
    [
        PlattSigmoid(np.array([1.3]), np.array([-0.4])),
        PlattSigmoid(np.array([2.0, -0.5, 40.0]), np.array([0.1, 0.0, -3.0])),
        Isotonic((STEPS,)),
        Isotonic((STEPS, (np.array([0.0]), np.array([0.0])), (np.array([-1.0, 1.0]), np.array([0.0, 0.7])))),
        Temperature(0.7),
        Temperature(0.7, (0.5, -0.5, 0.0)),
    ],
    ids=repr,
)
def test_probability_intervals_contain_every_probability_and_are_attained(calibrator: Any) -> None:
    r = np.random.default_rng(0)
    problems = calibrator.problems or 1
    low = r.normal(0, 3, (60, problems))
    high = low + r.choice([0.0, 0.1, 5.0, 900.0], (60, 1)) * r.random((60, problems))
    least, largest = calibrator.probability_interval(low, high)
    corners = [
        calibrator.probabilities(np.where(np.array(chosen, bool), high, low))
        for chosen in product((0, 1), repeat=problems)
    ]
    inside = [calibrator.probabilities(low + r.random(low.shape) * (high - low)) for _ in range(20)]
    assert all(np.all((least <= found) & (found <= largest)) for found in corners + inside)
    if not isinstance(calibrator, Isotonic):  # where all values can be 0, all classes can get equal probabilities
        assert np.abs(np.min(corners, axis=0) - least).max() < 1e-9
        assert np.abs(np.max(corners, axis=0) - largest).max() < 1e-9
