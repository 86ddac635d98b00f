"""The end of a fit: what rounding adds to certificates, and the status that follows from them, by numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from streamsvm.engine import final_evaluation
from streamsvm.engine.final_evaluation import Evaluation, MarginChange, margins_apart
from streamsvm.engine.training import Run, Training
from streamsvm.errors import DataError, DefectError, UsageError
from streamsvm.features.nystrom import Nystrom
from streamsvm.features.scaling import Raw, Standardized, column_sizes
from streamsvm.jobs.embed.placement import DISK, FLY
from streamsvm.jobs.fit.planning.plan import Plan
from streamsvm.jobs.fit.results import certified, dual_file, reevaluation
from streamsvm.jobs.fit.results.certified import certify, final_passes, status_of
from streamsvm.jobs.fit.results.dual_file import save_dual
from streamsvm.jobs.fit.results.evaluations import Inexact, sum_of_terms, take_evaluation
from streamsvm.jobs.fit.results.row_weights import row_weights
from streamsvm.kernels import RBF, Polynomial, Sigmoid
from streamsvm.losses import EpsilonInsensitive, Hinge, SquaredHinge
from streamsvm.rows import Dense
from streamsvm.solvers.dcd.solver import DCD
from streamsvm.solvers.kernel.simplex.blended import Blended
from streamsvm.solvers.linear_rounding import (
    COARSE,
    UNIT,
    RowWeights,
    VectorSum,
    pull_at_optimum,
    root_pull_at_optimum,
    rounding_of_dual,
    rounding_of_few,
    rounding_of_primal,
    steepness,
    two_sum_terms,
)
from streamsvm.solvers.newton.solver import Newton
from streamsvm.store.views.memory import MemoryStore
from streamsvm.types import DUAL, EVERY_ROW, Block, Certificate, FeaturePart, Layout, LinearSolution, Problem, Status

X = np.array([[3.0, 0.0], [3.0, 4.0], [-3.0, 0.0], [3.0, 4.0]], np.float32)
"""Root mean squares 3 and sqrt(8), largest 3 and 4."""
SIZES = np.array([3.0, np.sqrt(8.0), 2.0])
W = np.array([1.0, -2.0, 0.5])


def stored(weight: Any = None) -> MemoryStore:
    store = MemoryStore()
    store.append(Dense(X), np.array([0, 1, 1, 1], np.int32), weight)
    return store.commit(("a", "b"), 2)


class Given:
    """A solver whose weights are ``W``."""

    row_state = ()

    def solution(self, state: Any) -> LinearSolution:
        return LinearSolution(W, 2.0)


class Sweeping(DCD):
    """One that sweeps rows, with the same weights."""

    def solution(self, state: Any) -> LinearSolution:
        return LinearSolution(W, 2.0)


def problem(loss: Any = None, **changed: Any) -> Problem:
    return Problem(loss or SquaredHinge(), 0.5, 4, 2, 1, bias=2.0, **changed)


def plan_of(solver: Any = None, store: Any = None, **changed: Any) -> Any:
    given: dict[str, Any] = {
        "solver": solver or Given(),
        "features": Raw(2.0),
        "problems": [problem()],
        "request": None,
    }
    given |= {"embedding": None, "tolerance": 0.1, "layout": (store or stored()).layout}
    made: Any = SimpleNamespace(**(given | changed))
    made.sees_features_of_map = Plan.sees_features_of_map.fget(made)  # type: ignore[attr-defined]
    return made


def training_of(*found: Certificate, status: Status = Status.CONVERGED, one: Problem | None = None) -> Training:
    return Training([Run(one or problem(), None, certificate) for certificate in found], status, passes=5)


KNOWN = RowWeights(4.0, 4.0, 1.0)


@pytest.mark.parametrize("running", [False, True])
def test_what_rounding_can_have_done_is_added_to_a_linear_certificate(running: bool) -> None:
    """The larger of what P and what D are off by; variables that were stepped have as many updates as there were steps."""
    store, found = stored(), Certificate(3.0, 2.9, rounding=0.25)
    training = training_of(found)
    training.row_states = {DUAL: SimpleNamespace()} if running else {}
    certify(plan_of(store=store), training, store, store)
    v = VectorSum(3 * 5 * 4, running, float(np.linalg.norm(SIZES)))
    off = (3 + 2) * UNIT * float(SIZES @ np.abs(W))
    value, dual = rounding_of_primal(problem(), 3.0, off, KNOWN), rounding_of_dual(problem(), found, v, KNOWN)
    certificate = training.runs[0].certificate
    assert certificate is not None
    assert abs(certificate.rounding - 0.25 - max(value, dual)) <= 2**-54
    assert max(value, dual) > 2**-50
    assert (certificate.primal, certificate.dual) == (3.0, 2.9)


def test_columns_that_were_scaled_are_off_by_two_roundings_of_float32() -> None:
    store, found = stored(), Certificate(3.0, 2.5)
    map_ = Standardized(np.array([1.0, 0.0], np.float32), np.array([0.5, 1.0], np.float32), 2.0)
    training = training_of(found)
    certify(plan_of(store=store, features=map_, tolerance=0.5), training, store, store)
    size = np.sqrt(np.square(0.5 * (X[:, 0] - 1.0)).mean())
    apart = COARSE * size * 2.0 * np.sqrt(3.0 - 2.5)
    change = steepness(problem(), 3.0, KNOWN) * (COARSE * size * 1.0 + apart)
    value = rounding_of_primal(problem(), 3.0, COARSE * size * 1.0, KNOWN)
    certificate = training.runs[0].certificate
    assert certificate is not None
    assert certificate.rounding == pytest.approx(max(value, change), rel=1e-6)


class Large(Given):
    """One whose weights are thousands, of two classes where they are told apart together."""

    def __init__(self, classes: int) -> None:
        self.w = 1e3 * (np.stack([W, 0.5 * W]) if classes else W)

    def solution(self, state: Any) -> LinearSolution:
        return LinearSolution(self.w, 2.0)


SCALED = Standardized(np.array([1.0, 0.0], np.float32), np.array([0.5, 1.0], np.float32), 2.0)


@pytest.mark.parametrize("classes", [0, 2])
@pytest.mark.parametrize(("features", "gap"), [(Raw(2.0), 0.0), (SCALED, 0.0), (SCALED, 0.5)])
def test_what_margins_are_off_by_is_made_of_own_sums_of_scaling_and_of_the_gap(
    features: Any, gap: float, classes: int
) -> None:
    """Without a pass P is what is felt most, and where there is a gap the change of D: of two classes v - w has twice the length."""
    store, one, found = stored(), problem(classes=classes), Certificate(3.0, 3.0 - gap)
    training = training_of(found, one=one)
    training.passes = 0
    certify(plan_of(Large(classes), store, features=features, problems=[one], tolerance=1e9), training, store, store)
    sizes, scaled = column_sizes(features, store, 2.0)
    reach = 1e3 * (2.0 if classes else 1.0) * np.abs(W)
    off, scaling = 5 * UNIT * float(sizes @ reach), COARSE * float(scaled @ reach)
    value = rounding_of_primal(one, 3.0, off + scaling, KNOWN)
    far = scaling + COARSE * float(np.linalg.norm(scaled)) * (4.0 if classes else 2.0) * np.sqrt(gap)
    v = VectorSum(0, running=False, spread=float(np.linalg.norm(sizes)))
    dual = rounding_of_dual(one, found, v, KNOWN) + steepness(one, 3.0, KNOWN) * far
    assert (value > dual) == (gap == 0.0)
    certificate = training.runs[0].certificate
    assert certificate is not None
    assert certificate.rounding == pytest.approx(max(value, dual), rel=1e-12, abs=0.0)


@pytest.mark.parametrize(("times", "anew"), [(1.0, False), (0.25, True)])
def test_certificates_are_computed_anew_where_scaling_is_a_tenth_of_what_is_allowed(
    times: float, anew: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of P = 3: so much more, or less, than the change of P that scaling can have made."""
    asked: list[Any] = []
    monkeypatch.setattr(reevaluation, "evaluate_scaled", lambda *given: asked.append(given))
    store, one = stored(), problem()
    _, scaled = column_sizes(SCALED, store, 2.0)
    change = steepness(one, 3.0, KNOWN) * COARSE * float(scaled @ np.abs(W))
    plan = plan_of(store=store, features=SCALED, tolerance=times * change / 0.1)
    certify(plan, training_of(Certificate(3.0, 3.0)), store, store)
    assert bool(asked) == anew
    certify(plan, training_of(Certificate(3.0, 3.0), Certificate(3e3, 3e3)), store, store)  # of one of both
    assert len(asked) == 2 * anew


@pytest.mark.parametrize("solver", [Given(), Newton()])
def test_dual_variables_are_asked_of_rows_as_the_solver_has_seen_them(
    solver: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a solver that has none to say nothing is asked."""
    taken: list[Any] = []

    def evaluated(*given: Any) -> list[Any]:
        assert given[1] == Raw(1.0)  # the constant of folded weights is theirs
        taken.append(given[-1])
        return []

    monkeypatch.setattr(reevaluation, "evaluated", evaluated)
    monkeypatch.setattr(reevaluation, "_dual_values", lambda plan, training, k, block: block.X.values)
    monkeypatch.setattr(reevaluation, "weights_of", lambda *_: W)
    store = stored()
    reevaluation.evaluate_scaled(plan_of(solver, store), Training([]), store, SCALED, None)
    found = taken[0](
        0, Block(Dense(X.copy()), np.ones(4, np.float32), np.ones(4, np.float32), 0, 0, np.arange(4, dtype=np.int32), 0)
    )
    if isinstance(solver, Given):
        assert found is None
    else:
        np.testing.assert_allclose(found, (X - [1.0, 0.0]) * [0.5, 1.0])


def test_updates_are_counted_by_sweeps_or_by_sums() -> None:
    training = training_of(Certificate(3.0, 2.9))
    for solver, updates in (
        (Given(), 3 * 5 * 4),
        (Sweeping(sweeps=2), 3 * 5 * 4),
        (Sweeping(sweeps=7), 7 * 5 * 4),
        (Newton(), 3 * two_sum_terms(4)),
    ):
        assert certified._updates(plan_of(solver), training) == updates


def test_of_several_problems_the_heaviest_rows_are_taken() -> None:
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


@pytest.mark.parametrize(("tolerance", "counted"), [(1e-14, True), (1e-12, False), (0.1, False)])
def test_rows_are_counted_only_where_that_can_matter(
    tolerance: float, counted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a box: of rows that weigh 1e-9 nearly nothing is left of what rounding does to P."""
    monkeypatch.setattr(final_evaluation, "weight_that_costs", lambda *given: [1e-9] * len(given[2]))
    store, one = stored(), problem(Hinge())
    plan = plan_of(store=store, problems=[one], tolerance=tolerance)
    values = certified._of_few_rows(plan, training_of(Certificate(3.0, 2.9), one=one), store, [1e-13])
    largest = np.array([3.0, 4.0, 2.0])
    few = rounding_of_few(one, 3.0, (3 + 2) * UNIT * float(largest @ np.abs(W)), 1e-9)
    assert values == ([few] if counted else [1e-13])
    assert few < 1e-13
    assert certified._of_few_rows(plan, training_of(Certificate(3.0, 2.9), one=one), store, [few / 2]) == [few / 2]
    both = training_of(Certificate(3.0, 2.9), Certificate(3e9, 2.9), one=one)  # of one of both it can matter
    assert (certified._of_few_rows(plan, both, store, [1e-13, 1e-13])[0] == few) == counted
    for loss in (SquaredHinge(), EpsilonInsensitive()):  # of no box, or of numbers: each row can cost something
        other = training_of(Certificate(3.0, 2.9), one=problem(loss))
        assert certified._of_few_rows(plan_of(store=store, tolerance=1e-14), other, store, [1e-3]) == [1e-3]


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
def test_a_status_says_no_more_than_the_certificates(found: Certificate, before: Status, after: Status) -> None:
    plan = plan_of(tolerance=0.1 + 1e-12)
    assert status_of(training_of(found, status=before), plan) == after
    worst = training_of(Certificate(1.0, 1.0), found, status=before)
    assert status_of(worst, plan) == after
    assert status_of(training_of(Certificate(2.0, 1.0)), plan_of(tolerance=0.5)) == Status.CONVERGED  # it is reached


def test_a_gap_on_the_simplex_is_a_criterion_of_those_solvers_alone() -> None:
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
def test_what_is_no_number_is_no_certificate(found: Any) -> None:
    kinds = ((None, DefectError), (RBF(1.0), DefectError), (Sigmoid(1.0), UsageError), (Polynomial(1.0), DataError))
    for kernel, error in kinds:
        training = training_of(found, one=problem(kernel=kernel))
        with pytest.raises(error, match="no model was written"):
            certify(plan_of(Blended()), training, stored(), stored())


def test_the_end_takes_readings_by_what_is_read() -> None:
    map_ = Standardized(np.zeros(2, np.float32), np.ones(2, np.float32), 2.0)
    assert final_passes(plan_of()) == 0.0
    assert final_passes(plan_of(features=map_)) == 1.0


@pytest.mark.parametrize(
    ("where", "dtype", "passes"),
    [(None, "", 3.0), (FLY, "int8", 3.0), (DISK, "float32", 3.0), (DISK, "int8", 0.0)],
)
def test_features_that_few_bits_are_left_of_are_not_those_of_the_map(where: Any, dtype: str, passes: float) -> None:
    embedding = None if where is None else SimpleNamespace(where=where, dtype=dtype)
    plan = plan_of(features=Nystrom.__new__(Nystrom), request=SimpleNamespace(), embedding=embedding)
    assert final_passes(plan) == passes


class Found:
    """Sums that come to a given P and D."""

    def __init__(self, primal: float, dual: float) -> None:
        self.primal, self.dual = primal, dual

    def close(self, one: Problem, weights: Any) -> Any:
        return self

    def value(self) -> float:
        return self.dual


def replaced(
    slopes: Any,
    own: Any = None,
    before: Any = None,
    row_state: Any = (),
    off: float = 1e-6,
    moved: Callable[[], MarginChange] = MarginChange,
) -> Certificate:
    run = Run(problem(), None, before or Certificate(3.0, 2.95, final=True, facts={"kept": 1}))
    solver = SimpleNamespace(row_state=row_state)
    evaluation: Any = Evaluation(problem(), W)
    evaluation.slopes, evaluation.own = [Found(3.0, dual) for dual in slopes], own
    v = VectorSum(4, running=False, spread=4.0)
    take_evaluation(plan_of(solver), run, evaluation, Inexact(off, v, KNOWN, 0.0, moved))
    assert run.certificate is not None
    return run.certificate


def expected_rounding(dual: float, off: float) -> float:
    value = rounding_of_primal(problem(), 3.0, off, KNOWN)
    change = steepness(problem(), 3.0, KNOWN) * off
    v = VectorSum(4, running=False, spread=4.0)
    return max(value, rounding_of_dual(problem(), Certificate(3.0, dual), v, KNOWN) + change)


@pytest.mark.parametrize("off", [0.0, 1e-6])
def test_the_best_dual_value_that_was_computed_anew_is_taken(off: float) -> None:
    found = replaced([2.8, 2.9, 1.0], off=off)
    assert (found.primal, found.dual, found.final, found.facts) == (3.0, 2.9, True, {"kept": 1})
    assert found.rounding == pytest.approx(expected_rounding(2.9, off), rel=1e-12, abs=0.0)
    assert replaced([2.8], Found(0.0, 2.94), off=off).dual == 2.94
    assert replaced([2.85], Found(0.0, 2.0), off=off).dual == 2.85


def test_where_that_is_not_enough_the_one_the_solver_found_counts_with_what_it_can_be_off() -> None:
    """P has changed by 1e-4; ||v - w|| is at most 2 sqrt(P - D), beside sqrt(2 P), and so the change of D at most so much more."""
    before = Certificate(3.0 + 1e-4, 2.95)
    found = replaced([1.0], before=before)
    likely = 10.0 * (1.0 + 2.0 * np.sqrt((3.0 - 2.95) / 3.0) * np.sqrt(3))
    assert found.dual == pytest.approx(2.95 - likely * 1e-4, rel=1e-9)
    assert found.rounding == pytest.approx(expected_rounding(1.0, 1e-6), rel=1e-9)
    assert replaced([1.0], before=before, row_state=DCD().row_state).dual == 1.0
    assert replaced([1.0], before=before, row_state=(SimpleNamespace(name="other"),)).dual == found.dual
    assert replaced([1.0], before=Certificate(3.9, 2.95)).dual == 1.0  # it has changed by more than it is better
    above = replaced([1.0], before=Certificate(3.0, 3.5))  # by rounding, of which nothing else is known
    assert above.rounding == pytest.approx(expected_rounding(1.0, 1e-6), rel=1e-9)


def test_a_plane_beyond_all_corners_says_nothing_of_what_the_optimum_has_changed_by() -> None:
    """P has not changed; sum a*_i is at most 2 P, and margins have changed by 1e-3."""
    before = Certificate(3.0, 2.95)
    found = replaced([1.0], before=before, moved=lambda: MarginChange(1e-3, 1.0))
    grown = 1.0 + 2.0 * np.sqrt((3.0 - 2.95) / 3.0) * np.sqrt(3)
    assert pull_at_optimum(problem(), 3.0, KNOWN) == min(6.0, steepness(problem(), 3.0, KNOWN))
    assert found.dual == pytest.approx(2.95 - grown * pull_at_optimum(problem(), 3.0, KNOWN) * 1e-3, rel=1e-12)
    assert found.rounding == pytest.approx(expected_rounding(1.0, 1e-6), rel=1e-9)
    usual = replaced([1.0], before=before, moved=lambda: MarginChange(1e-3, 1e-6))  # of signs of their own
    expected = 2.95 - grown * 4.0 * root_pull_at_optimum(problem(), 3.0, KNOWN) * 1e-6
    assert usual.dual == pytest.approx(expected, rel=1e-12)


def test_the_squares_of_an_optimum_are_bounded_too() -> None:
    """Of the hinge sum a_i^2 <= C max s sum a_i, of its square a_i = 2 C xi_i and sum a_i^2 = 4 C L; sum a_i <= 2 P both times."""
    weights = RowWeights(400.0, 900.0, 3.0)
    hinge, square = (Problem(loss(), 0.5, 100, 2, 1) for loss in (Hinge, SquaredHinge))
    assert pull_at_optimum(hinge, 7.0, weights) == 14.0
    assert root_pull_at_optimum(hinge, 7.0, weights) == pytest.approx(min(14.0, np.sqrt(14.0 * 0.5 * 3.0)))
    assert root_pull_at_optimum(square, 7.0, weights) == pytest.approx(min(14.0, np.sqrt(4 * 0.5 * 3.0 * 7.0)))
    assert root_pull_at_optimum(hinge, 7.0, None) == pull_at_optimum(hinge, 7.0, None)
    outliers = Problem(Hinge(), 1.0, 100, 2, 0, nu=0.01)
    assert pull_at_optimum(outliers, 7.0, weights) == pytest.approx(4.0)


@pytest.mark.parametrize(("shape", "values"), [((3,), 1), ((4, 3), 2)])
def test_margins_of_two_maps_are_compared(shape: tuple[int, ...], values: int) -> None:
    """That of a row with classes is the difference of two decision values."""
    w = np.random.default_rng(0).normal(size=shape)
    shift, scale = np.array([1.0, 0.0], np.float32), np.array([0.5, 1.0], np.float32)
    change = (X - (X - shift) * scale) @ w.T[:2]
    (found,) = margins_apart(stored(), Raw(2.0), Standardized(shift, scale, 2.0), [w])
    usual = values * np.sqrt(np.mean(np.square(change)))
    assert found == pytest.approx((values * np.abs(change).max(), usual), rel=1e-12)


def test_margins_of_two_maps_are_compared_once_and_where_a_certificate_is_not_enough(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of three problems the first is proved anew; the others ask."""
    calls: list[int] = []

    def compared(*_: Any) -> list[MarginChange]:
        calls.append(1)
        return [MarginChange(float(k), float(-k)) for k in (0, 1, 2, 0, 0, 3)]

    monkeypatch.setattr(reevaluation, "margins_apart", compared)
    map_: Any = SimpleNamespace(in_single=lambda: None, in_full=lambda: None)
    moved = reevaluation._margin_changes(stored(), map_, [W] * 3, [W] * 3)
    replaced([2.9], moved=moved[0])
    assert not calls
    assert [moved[k]() for k in (1, 2)] == [MarginChange(1.0, 0.0), MarginChange(3.0, -2.0)]
    replaced([1.0], moved=moved[1])
    assert calls == [1]


def given_back(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, int, float, float, float]]:
    """Where an evaluation takes the place of a certificate: what margins are said to be off by, terms of sums, spread, size, and change."""
    said: list[tuple[float, int, float, float, float]] = []

    def replace(_plan: Any, _run: Any, _evaluation: Any, inexact: Inexact) -> None:
        assert not inexact.v.running
        said.append((inexact.off, inexact.v.updates, inexact.v.spread, inexact.size, inexact.moved().largest))

    evaluation = Evaluation(problem(), W)
    evaluation.slopes = []
    monkeypatch.setattr(reevaluation, "evaluated", lambda *_: [evaluation])
    monkeypatch.setattr(reevaluation, "margins_apart", lambda *_: [MarginChange(0.25)] * 2)
    monkeypatch.setattr(reevaluation, "take_evaluation", replace)
    return said


def test_folded_weights_are_evaluated_on_rows_as_they_are_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    said, store = given_back(monkeypatch), stored()
    map_ = Standardized(np.array([1.0, 0.0], np.float32), np.array([0.5, 1.0], np.float32), 2.0)
    plan = plan_of(store=store, features=map_, tolerance=1e-9)
    certify(plan, training_of(Certificate(3.0, 2.75)), store, store)
    sizes = np.array([1.5, np.sqrt(8.0), 2.0])
    off = 2 * (3 + 2) * UNIT * float(sizes @ np.abs(W))
    terms = two_sum_terms(4) + 8
    known = (off, terms, float(np.linalg.norm(sizes)), float(sizes @ np.abs(W)), 0.0)
    assert said[0] == pytest.approx(known, rel=1e-9, abs=0.0)


@pytest.mark.parametrize("value", [0.0, 1e-3])
def test_features_are_off_by_kernel_values_and_by_sums_over_the_map(
    value: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    said, store = given_back(monkeypatch), stored()
    monkeypatch.setattr(reevaluation, "farthest_reach", lambda inner, raw: None)
    map_: Any = Nystrom.__new__(Nystrom)
    matrix = np.array([[1.0, 0.0], [-2.0, 3.0]])
    projection = SimpleNamespace(W=matrix, inner=None, rounding=lambda reach: (value, 5.0), full_bytes=0)
    monkeypatch.setattr(Nystrom, "in_full", lambda self: None)
    for name, part in (("projection", projection), ("bias", 3.0)):
        object.__setattr__(map_, name, part)
    certify(
        plan_of(store=store, features=map_, request=SimpleNamespace()), training_of(Certificate(3.0, 2.9)), store, store
    )
    coefficients = 1.0 + abs(-2.0 * 1.0 + 3.0 * -2.0)
    sums = 1.0 * (1.0 + 2.0) + 2.0 * 3.0
    off = value * (coefficients + sums) + 2 * UNIT * 3.0 * 0.5
    assert said[0] == pytest.approx((off, 4, np.sqrt(14.0), 5.0 + 3.0 * 0.5, 0.25), rel=1e-12, abs=0.0)


@pytest.mark.parametrize(("problems", "shape"), [(1, (4,)), (2, (2, 4))])
def test_dual_variables_of_one_problem_are_one_row(
    problems: int, shape: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dual_file, "_parts", lambda store, plan, training, k: iter([np.full(3, k), np.full(1, k)]))
    training = training_of(*[Certificate(3.0, 2.9)] * problems)
    save_dual(tmp_path / "a.npy", stored(), plan_of(), training)
    np.testing.assert_array_equal(np.load(tmp_path / "a.npy"), np.repeat(np.arange(problems), 4).reshape(shape))


def test_layouts_count_classes() -> None:
    assert stored().layout == Layout(2, (4,), None, ("a", "b"), (1, 3))


@pytest.mark.parametrize("positive", [EVERY_ROW, 1])
def test_with_nu_P_is_a_sum_of_which_one_term_is_negative(positive: int) -> None:
    """P = |w|^2 / 2 + losses - nu W rho; rho is the offset of one class, and a fact of two."""
    square, losses, taken = 5.0, 2.0, 0.125 * 16.0 * 2.0
    weights, w = RowWeights(16.0, 20.0, 2.0), np.array([1.0, -3.0, -2.0 if positive == EVERY_ROW else 0.25])
    one = replace(problem(Hinge(), nu=0.125), positive=positive)
    run = Run(one, None, Certificate(square + losses - taken, 0.0, facts={"rho": 2.0}))
    assert sum_of_terms(run, w, weights) == square + losses + taken
    assert sum_of_terms(run, w, None) == square + losses - taken
    below = Run(one, None, Certificate(-1.0, -2.0, facts={"rho": -2.0}))
    assert sum_of_terms(below, w, weights) == (1.0 + 2.0 * taken if positive == EVERY_ROW else 1.0)
    assert sum_of_terms(Run(problem(), None, Certificate(-3.0, -4.0)), w, weights) == 3.0


def test_dual_variables_of_rows_that_are_seen_in_parts_are_one_a_row() -> None:
    class InParts:
        def parts(self, X: Any) -> Iterator[FeaturePart]:
            for start, stop in ((0, 1), (1, 4)):
                yield FeaturePart(start, stop, Dense(X.values[start:stop], 1.0))

    class Numbering:
        def dual_values(self, _witness: Any, block: Block) -> Any:
            return 10.0 + block.start + np.arange(len(block.y))

    run: Any = SimpleNamespace(problem=problem(Hinge()), witnessed=lambda: None)
    features, solver = cast(Any, InParts()), cast(Any, Numbering())
    found = [part.tolist() for part in dual_file._of_witness(stored(), features, run, solver)]
    assert found == [[10.0], [11.0, 12.0, 13.0]]
