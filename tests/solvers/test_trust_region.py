"""How far a model of a sample is trusted: its damping, what it promised, and how wide a corner is on the way."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from streamsvm.losses import Hinge, Huber, SquaredHinge, rounded
from streamsvm.rows import Dense
from streamsvm.solvers.newton.inner_solver import Descent
from streamsvm.solvers.newton.row_sample import Sample
from streamsvm.solvers.newton.surrogate import model_at
from streamsvm.solvers.newton.trust_region import (
    NARROWEST,
    NEGLIGIBLE_SHARE,
    TrustRegion,
    first_damping,
    first_mu,
    next_damping,
)
from streamsvm.types import Problem
from tests.solvers.test_inner_solver import COLUMNS, ROWS, C, rows


def sample_of(*, complete: bool = False) -> Sample:
    """All rows, of which those with an even number were certain to be there."""
    X, y, s = rows()
    probability = np.where(np.arange(ROWS) % 2 == 0, 1.0, 0.5)
    return Sample(Dense(X, 1.0), y, s, probability, np.zeros(ROWS), np.arange(ROWS), complete=complete)


def region_of(loss: Any, mu: float, *, damping: float = 0.5, complete: bool = False) -> TrustRegion:
    """A region around w = 0, where the objective is 40."""
    sample = sample_of(complete=complete)
    problem = Problem(loss, C, ROWS, COLUMNS, 1, tolerance=1e-3)
    return TrustRegion(model_at(problem, sample, sample.s / sample.probability, np.zeros(4)), mu, 40.0, damping)


def found_at(value: float) -> Any:
    """What a pass says of a point, as far as it is asked."""
    return SimpleNamespace(value=value)


@pytest.mark.parametrize(
    ("ratio", "factor"), [(-1e-9, 16.0), (0.0, 4.0), (0.39, 4.0), (0.4, 1.0), (0.9, 1.0), (0.91, 0.3), (2.0, 0.3)]
)
def test_a_model_is_damped_by_what_it_kept_of_its_promise(ratio: float, factor: float) -> None:
    """Sixteen times as much where things became worse, four times where it kept less than .4, less where it kept more than .9."""
    assert next_damping(3.0, ratio) == pytest.approx(3.0 * factor, rel=1e-12)
    region = region_of(SquaredHinge(), 0.0, damping=3.0)
    region.reference, region.promised = 50.0, 10.0
    assert region.accept(found_at(50.0 - 10.0 * ratio)) == (ratio >= 0.0)
    assert region.damping == pytest.approx(3.0 * factor, rel=1e-12)


@pytest.mark.parametrize(
    ("promised", "complete", "judged"),
    [(NEGLIGIBLE_SHARE * 100.0, False, False), (1.01e-3, False, True), (10.0, True, False)],
)
def test_what_promises_nothing_and_what_is_of_all_rows_is_not_judged(
    promised: float, complete: bool, judged: bool
) -> None:
    """Nothing is less than 1e-5 of the objective. A step that is not judged is taken though it made things worse."""
    region = region_of(SquaredHinge(), 0.0, complete=complete)
    region.reference, region.promised = 50.0, promised
    assert region.accept(found_at(100.0)) == (not judged)
    assert region.damping == (8.0 if judged else 0.5)


def test_the_first_damping_is_four_components_a_row_and_none_of_all_rows() -> None:
    assert first_damping(sample_of(), 4) == 4.0 * 4 / ROWS
    assert first_damping(sample_of(complete=True), 4) == 0.0


@pytest.mark.parametrize(
    ("loss", "cold", "warm"),
    [
        (SquaredHinge(), 0.0, 0.0),
        (Hinge(), 1.5, np.sqrt(0.3e-3)),
        (Hinge(2.0), 3.0, 2.0 * np.sqrt(0.3e-3)),
        (Huber(0.1), 0.0, 0.0),
    ],
)
def test_the_first_corner_is_wide_unless_weights_are_known(loss: Any, cold: float, warm: float) -> None:
    """In margins at which a row costs nothing: one and a half, or the root of a third of the tolerance."""
    problem = Problem(loss, C, ROWS, COLUMNS, 1, tolerance=1e-3)
    assert first_mu(problem) == pytest.approx(cold, rel=1e-12)
    assert first_mu(replace(problem, warm=np.zeros(4))) == pytest.approx(warm, rel=1e-12)


@pytest.mark.parametrize("complete", [False, True])
def test_the_next_point_is_the_minimum_of_the_damped_model_with_what_it_promises(complete: bool) -> None:
    """Damped by a multiple of C sum s x^2 over the rows that are not certain; nothing is, of rows that are nowhere sampled."""
    region, (X, _, s) = region_of(Hinge(), 0.8, complete=complete), rows()
    squares = np.column_stack([X.astype(float), np.ones(ROWS)]) ** 2 * s[:, None].astype(float)
    total = squares.sum(0)
    total[2] = 0.0  # less than the certain rows have: rounding
    w, mu = region.next_point(30.0, 0.25, total)
    unsure = np.array([squares[1::2, j].sum() for j in range(4)])
    unsure[2] = 0.0
    np.testing.assert_allclose(region.model.damping, 0.5 * C * unsure, rtol=1e-6, atol=1e-12)
    assert (0.99 * 0.2 <= mu < 0.4) == (not complete)  # a quarter of what it was, unless nothing is estimated
    smooth, model = rounded(Hinge(), mu), region.model
    before, start, end = (
        model.value(loss, at)
        for loss, at in ((rounded(Hinge(), 0.8), model.center), (smooth, model.center), (smooth, w))
    )
    assert region.reference == pytest.approx(40.0 + start - before, rel=1e-12)
    assert region.promised == pytest.approx(start - end, rel=1e-9)
    assert region.promised > 0.0
    again, arrived = Descent(model).minimize(smooth, w)
    assert arrived
    np.testing.assert_array_equal(again, w)


@pytest.mark.parametrize(("primal", "share"), [(30.0, 1.0), (3e4, 1e3)])
def test_smoothing_may_cost_three_tenths_of_the_tolerance(primal: float, share: float) -> None:
    region = region_of(Hinge(), 0.8, complete=True)
    w, mu = region.next_point(primal, 0.25, np.zeros(4))
    X, y, _ = rows()
    m = y * (X.astype(float) @ w[:-1] + w[-1])
    b = np.clip((1.0 + mu - m) / (2.0 * mu), 0.0, 1.0)
    cost = C * region.model.factor @ (np.maximum(0.0, 1.0 - m) - b * (1.0 - m))
    assert mu > NARROWEST
    assert 0.2 * share * 9e-3 < cost <= share * 9e-3


def test_the_first_model_is_not_damped_and_ends_at_half_a_margin_at_most() -> None:
    region = region_of(Hinge(2.0), 3.0)
    _, mu = region.begin(1e-9)
    assert not region.model.damping.any()
    assert 0.99 < mu < 2.0
    narrow = region_of(Hinge(2.0), 3.0, complete=True)
    assert narrow.begin(1e-9)[1] < 1e-4
