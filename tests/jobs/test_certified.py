"""The end of a fit: what rounding adds to certificates, and the status that follows from them, by numbers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from streamsvm.engine.evaluation import measure_margin_changes
from streamsvm.engine.fit_state import ProblemRun, Training
from streamsvm.errors import DataError, DefectError, UsageError
from streamsvm.features.scaling import Raw, Standardized
from streamsvm.jobs.fit.certify import certify, row_weights, status_of, sum_of_terms
from streamsvm.jobs.fit.plan import Plan
from streamsvm.kernels import RBF, Polynomial, Sigmoid
from streamsvm.losses import Hinge, SquaredHinge
from streamsvm.rows import Dense
from streamsvm.solvers.kernel.blended import Blended
from streamsvm.solvers.linear_rounding import (
    RowWeights,
    max_dual_norm,
    max_dual_sum,
)
from streamsvm.solvers.nu import NuMargin
from streamsvm.solvers.one_class import FreeOffset
from streamsvm.solvers.problem_kinds import OneAgainstRest
from streamsvm.store.views import MemoryStore
from streamsvm.types import Certificate, LinearSolution, Problem, Regularizer, Status
from tests.solvers.problems import kind_of

X = np.array([[3.0, 0.0], [3.0, 4.0], [-3.0, 0.0], [3.0, 4.0]], np.float32)
"""Root mean squares 3 and sqrt(8), largest 3 and 4."""
W = np.array([1.0, -2.0, 0.5])


def stored(weight: Any = None) -> MemoryStore:
    store = MemoryStore()
    store.append(Dense(X), np.array([0, 1, 1, 1], np.int32), weight)
    return store.commit(("a", "b"), 2)


class Given:
    """A solver whose weights are ``W``."""

    row_state = ()
    exact_kernel = has_dual_witness = False
    epsilon = 0.0

    def solution(self, state: Any) -> LinearSolution:
        return LinearSolution(W, 2.0)


def problem(loss: Any = None, **changed: Any) -> Problem:
    return Problem(loss or SquaredHinge(), 0.5, 4, 2, kind_of(loss or SquaredHinge()), bias=2.0, **changed)


def plan_of(solver: Any = None, store: Any = None, **changed: Any) -> Any:
    given: dict[str, Any] = {
        "solver": solver or Given(),
        "features": Raw(2.0),
        "problems": [problem()],
        "request": None,
    }
    given |= {
        "writes_dual": False,
        "enclosure": None,
        "embedding": None,
        "tolerance": 0.1,
        "layout": (store or stored()).layout,
    }
    made: Any = SimpleNamespace(**(given | changed))
    made.sees_features_of_map = Plan.sees_features_of_map.fget(made)  # type: ignore[attr-defined]
    return made


def training_of(*found: Certificate, status: Status = Status.CONVERGED, one: Problem | None = None) -> Training:
    return Training([ProblemRun(one or problem(), None, certificate) for certificate in found], status, passes=5)


SCALED = Standardized(np.array([1.0, 0.0], np.float32), np.array([0.5, 1.0], np.float32), 2.0)


def test_certificate_rounding_uses_the_heaviest_rows_of_all_problems() -> None:
    problems = [problem(weights=(2.0, 1.0)), problem(weights=(0.5, 3.0)), problem()]
    store = stored()
    assert row_weights(plan_of(problems=problems), store) == RowWeights(9.5, 27.25, 3.0)
    weighted = stored(np.ones(4, np.float32))
    assert row_weights(plan_of(store=weighted), weighted) is None
    weighted = stored(np.array([1.0, 2.0, 0.0, 4.0], np.float32))
    scaled = plan_of(store=weighted, features=SCALED, problems=problems)  # what scaling does goes with the largest
    assert row_weights(scaled, weighted) == RowWeights(21.0, 189.0, 12.0)
    light = stored(np.array([0.25, 0.0, 0.5, 0.25], np.float32))
    assert row_weights(scaled, light) == RowWeights(3.0, 3.375, 1.5)


@pytest.mark.parametrize(
    ("found", "before", "after"),
    [
        (Certificate(1.0, 0.9), Status.PASSES, Status.CONVERGED),
        (Certificate(1.0, 0.89), Status.PASSES, Status.PASSES),
        (Certificate(1.0, 0.89), Status.CONVERGED, Status.STALLED),
        (Certificate(1.0, 0.89, facts={"points": 3}), Status.CONVERGED, Status.SUPPORT),
        (Certificate(1.0, 0.89, facts={"points": 3}), Status.PASSES, Status.PASSES),
        (Certificate(1.0, 1.0), Status.PATIENCE, Status.PATIENCE),
    ],
)
def test_status_is_converged_only_where_certificates_are(found: Certificate, before: Status, after: Status) -> None:
    plan = plan_of(tolerance=0.1 + 1e-12)
    assert status_of(training_of(found, status=before), plan) == after
    worst = training_of(Certificate(1.0, 1.0), found, status=before)
    assert status_of(worst, plan) == after
    assert status_of(training_of(Certificate(2.0, 1.0)), plan_of(tolerance=0.5)) == Status.CONVERGED  # it is reached


def test_status_knows_the_simplex_gap_of_simplex_solvers_only() -> None:
    found = Certificate(1.0, 0.5, facts={"simplex_gap": 0.25})
    for solver, status in (
        (Blended(epsilon=0.25), Status.CONVERGED),
        (Blended(epsilon=0.24), Status.STALLED),
        (Given(), Status.STALLED),
    ):
        assert status_of(training_of(found), plan_of(solver)) == status
    training = training_of(found)
    training.runs[0].certificate = None
    assert status_of(training, plan_of(Blended(epsilon=9.0))) == Status.STALLED


@pytest.mark.parametrize(
    "found", [Certificate(np.inf, 0.0), Certificate(1.0, np.nan), Certificate(1.0, 1.0, rounding=np.inf), None]
)
def test_certificate_that_is_not_finite_is_an_error(found: Any) -> None:
    kinds = ((None, DefectError), (RBF(1.0), DefectError), (Sigmoid(1.0), UsageError), (Polynomial(1.0), DataError))
    for kernel, error in kinds:
        training = training_of(found, one=problem(kernel=kernel))
        with pytest.raises(error, match="no model was written"):
            certify(plan_of(Blended()), training, stored(), stored())


def test_certificate_bounds_the_squares_of_optimal_dual_variables() -> None:
    """Of the hinge sum a_i^2 <= C max s sum a_i, of its square a_i = 2 C xi_i and sum a_i^2 = 4 C L; sum a_i <= 2 P both times."""
    weights = RowWeights(400.0, 900.0, 3.0)
    hinge, square = (Problem(loss(), 0.5, 100, 2, kind_of(loss())) for loss in (Hinge, SquaredHinge))
    assert max_dual_sum(hinge, 7.0, weights) == 14.0
    assert max_dual_norm(hinge, 7.0, weights) == pytest.approx(min(14.0, np.sqrt(14.0 * 0.5 * 3.0)))
    assert max_dual_norm(square, 7.0, weights) == pytest.approx(min(14.0, np.sqrt(4 * 0.5 * 3.0 * 7.0)))
    assert max_dual_norm(hinge, 7.0, None) == max_dual_sum(hinge, 7.0, None)
    outliers = Problem(Hinge(), 1.0, 100, 2, OneAgainstRest(0), regularizer=FreeOffset(0.01))
    assert max_dual_sum(outliers, 7.0, weights) == pytest.approx(4.0)


@pytest.mark.parametrize(("shape", "values"), [((3,), 1), ((4, 3), 2)])
def test_certificate_compares_margins_of_two_feature_maps(shape: tuple[int, ...], values: int) -> None:
    """That of a row with classes is the difference of two decision values."""
    w = np.random.default_rng(0).normal(size=shape)
    shift, scale = np.array([1.0, 0.0], np.float32), np.array([0.5, 1.0], np.float32)
    change = (X - (X - shift) * scale) @ w.T[:2]
    (found,) = measure_margin_changes(stored(), Raw(2.0), Standardized(shift, scale, 2.0), [w])
    usual = values * np.sqrt(np.mean(np.square(change)))
    assert found == pytest.approx((values * np.abs(change).max(), usual), rel=1e-12)


@pytest.mark.parametrize("regularizer", [FreeOffset(0.125), NuMargin(0.125)])
def test_certificate_of_nu_counts_its_negative_term_by_size(regularizer: Regularizer) -> None:
    """P = |w|^2 / 2 + losses - nu W rho; rho is the offset of one class, and a fact of two."""
    square, losses, taken = 5.0, 2.0, 0.125 * 16.0 * 2.0
    one_class = isinstance(regularizer, FreeOffset)
    weights, w = RowWeights(16.0, 20.0, 2.0), np.array([1.0, -3.0, -2.0 if one_class else 0.25])
    one, primal = problem(Hinge(), regularizer=regularizer), square + losses - taken
    run = ProblemRun(one, None, Certificate(primal, 0.0, facts={"rho": 2.0}))
    assert sum_of_terms(run, primal, w, weights) == square + losses + taken
    assert sum_of_terms(run, primal, w, None) == primal
    below = ProblemRun(one, None, Certificate(-1.0, -2.0, facts={"rho": -2.0}))
    assert sum_of_terms(below, 1.0, w, weights) == (1.0 + 2.0 * taken if one_class else 1.0)
    assert sum_of_terms(ProblemRun(problem(), None, Certificate(-3.0, -4.0)), 3.0, w, weights) == 3.0
