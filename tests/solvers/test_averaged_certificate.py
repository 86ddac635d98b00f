"""What stochastic solvers prove: means over passes, when a candidate is evaluated, and what copies come to together."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from streamsvm.losses import Hinge, Huber, SquaredHinge
from streamsvm.solvers.stochastic.averaged_certificate import (
    AveragedCertificate,
    averaged_certificate_for,
    certificate_of,
    evaluate,
    evaluate_slopes,
    merged,
    raise_dual,
    share_of,
    slopes_of,
    take_pass,
    take_slopes,
)
from streamsvm.types import Problem
from tests.solvers.problems import epoch_blocks, problem_of, rows_of, signed_rows


def begun(loss: Any = None, **changed: Any) -> AveragedCertificate:
    return replace(averaged_certificate_for(Problem(loss or Hinge(), 1.0, 3, 1, 1, tolerance=0.1)), **changed)


def test_passes_weigh_as_a_power_of_their_number_says() -> None:
    """share_of is the running form of the weights (t + 4)! / (t - 1)!: of 1, 6, 21 for three passes."""
    assert [share_of(passes) for passes in (1, 2, 7)] == [1.0, pytest.approx(6 / 7), 0.5]
    means = begun()
    points = [(np.array([1.0, 2.0]), 30.0, 2.0), (np.array([3.0, -1.0]), 10.0, 0.0), (np.array([0.0, 1.0]), 20.0, 7.0)]
    for passes, (v, linear, quadratic) in enumerate(points, 1):
        means.passes = passes
        take_pass(means, v, linear, quadratic)
    weights = np.array([1.0, 6.0, 21.0]) / 28.0
    np.testing.assert_allclose(means.v, weights @ [point[0] for point in points], rtol=1e-12)
    assert means.linear == pytest.approx(weights @ [30.0, 10.0, 20.0])
    assert means.quadratic == pytest.approx(weights @ [2.0, 0.0, 7.0])


def test_the_dual_is_the_largest_met() -> None:
    found = begun()
    for linear, dual in ((2.0, 1.0), (4.0, 3.0), (1.0, 3.0), (-5.0, 3.0)):  # v.v = 2: D(1) = linear - 1, D(1/2) = 1/4
        raise_dual(found, np.array([1.0, 1.0]), linear, 0.0)
        assert found.dual == pytest.approx(dual)


def test_losses_are_summed_only_while_the_candidate_is_evaluated() -> None:
    problem, (_, _, s) = problem_of(SquaredHinge()), rows_of()
    w = np.linspace(-1.0, 1.0, problem.columns + 1)
    margins = signed_rows() @ w
    losses = problem.C * float(s @ np.maximum(0.0, 1.0 - margins) ** 2)
    a = 2.0 * problem.C * s * np.maximum(0.0, 1.0 - margins)
    for certifying, share in ((False, 0.0), (True, 1.0)):
        plain, slopes = (replace(averaged_certificate_for(problem), candidate=w, certifying=certifying) for _ in "ab")
        for block in epoch_blocks(0):
            evaluate(plain, block)
            evaluate_slopes(slopes, block)
        assert plain.losses == pytest.approx(share * losses, rel=1e-5)
        assert slopes.losses == pytest.approx(share * losses, rel=1e-5)
        np.testing.assert_allclose(slopes.v, share * (a @ signed_rows()), rtol=1e-4, atol=1e-6)
        expected = slopes.linear, slopes.quadratic
        take_slopes(slopes)
        assert (slopes.linear, slopes.quadratic, np.abs(slopes.v).max()) == (0.0, 0.0, 0.0)
        assert expected[0] == pytest.approx(share * a.sum(), rel=1e-5)
        weighed = s > 0.0
        curved = float((0.25 * a[weighed] ** 2 / (problem.C * s[weighed])).sum())
        assert expected[1] == pytest.approx(share * curved, rel=1e-5)
        assert (slopes.dual > 0.0) == certifying


def test_corners_are_rounded_in_units_of_the_margin() -> None:
    assert slopes_of(Hinge(2.0)) == Huber(0.2, 2.0)
    assert slopes_of(SquaredHinge()) == SquaredHinge()


def test_an_estimate_is_no_certificate_and_says_when_one_is_due() -> None:
    for estimate, due in ((10.0 / (1.0 - 0.119), True), (10.0 / (1.0 - 0.121), False)):  # 1.2 tolerances are .12
        found = begun(dual=10.0, passes=5, next_trial=10.0, losses=7.0)
        certificate = certificate_of(found, estimate)
        assert (certificate.primal, certificate.dual, certificate.exact) == (estimate, 10.0, False)
        assert (found.certifying, found.losses, found.primal) == (due, 0.0, np.inf)
    for passes, due in ((8, False), (9, True)):  # the next pass is the tenth
        found = begun(dual=1.0, passes=passes, next_trial=10.0)
        certificate_of(found, 10.0)
        assert found.certifying == due


def test_the_best_candidate_is_kept_and_the_next_trial_set() -> None:
    found = begun(dual=4.0, passes=8, certifying=True, losses=3.0, candidate=np.array([2.0, 0.0]))
    certificate = certificate_of(found, 100.0)  # P = 2 + 3
    assert (certificate.primal, certificate.dual, certificate.exact) == (5.0, 4.0, True)
    np.testing.assert_array_equal(found.best, [2.0, 0.0])
    assert (found.primal, found.next_trial, found.certifying) == (5.0, 10.0, False)  # 1.25 times as many passes
    found = replace(found, candidate=np.array([0.0, 1.0]), certifying=True, losses=4.5, dual=4.45)
    assert certificate_of(found, 100.0).primal == 5.0  # P = 1/2 + 4.5 is no less
    np.testing.assert_array_equal(found.best, [2.0, 0.0])
    assert found.next_trial == pytest.approx(8.0 * 1.1)  # a gap of 1.1 tolerances is to fall as one over the passes
    assert found.certifying == (found.passes + 1 >= found.next_trial)
    never = replace(found, problem=replace(found.problem, tolerance=0.0), certifying=True)
    certificate_of(never, 100.0)
    assert never.next_trial == 10.0


def test_a_warm_start_is_evaluated_first() -> None:
    warm = averaged_certificate_for(Problem(Hinge(), 1.0, 3, 1, 1, warm=np.array([1.0, 2.0])))
    assert warm.certifying
    np.testing.assert_array_equal(warm.candidate, [1.0, 2.0])
    cold = averaged_certificate_for(Problem(Hinge(), 1.0, 3, 1, 1))
    assert not cold.certifying
    assert cold.best is not cold.v


def test_copies_add_up_what_they_summed() -> None:
    parts = [begun(losses=k, linear=10.0 * k, quadratic=20.0 * k, v=np.full(2, k), dual=9.0) for k in (1.0, 2.0, 4.0)]
    whole, alike = merged(parts, slopes=True), merged(parts)
    assert (whole.losses, whole.linear, whole.quadratic, whole.v.tolist()) == (7.0, 70.0, 140.0, [7.0, 7.0])
    assert (alike.losses, alike.linear, alike.quadratic, alike.v.tolist()) == (7.0, 10.0, 20.0, [1.0, 1.0])
    assert whole.dual == alike.dual == 9.0
