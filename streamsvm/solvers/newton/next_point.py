"""What Newton's method does between two passes: which of three ways leads from a point that was evaluated to the next one.

- All rows of the pass are in memory: they are the problem itself, which is solved there (``in_memory``); a pass then confirms.
- Some of them are, and columns are few enough for a matrix, or blocks are factored: a model that is trusted near the point
  (``trust_region``), its dual point improved by the sample.
- Some of them are, and columns are many: a damped model of the same sample (``out_of_core``).

A sample that leads nowhere is given up for all rows where they fit; where they do not, and nothing else helps, the run is stuck.
"""

from __future__ import annotations

import time
from typing import NamedTuple

from streamsvm.compute.passes.newton import squares
from streamsvm.solvers.newton import exact_steps
from streamsvm.solvers.newton.exact_steps import ExactSteps
from streamsvm.solvers.newton.in_memory.all_rows import AllRows
from streamsvm.solvers.newton.inner_solver import polished_dual
from streamsvm.solvers.newton.out_of_core import Reading, first_steps
from streamsvm.solvers.newton.row_sample import Sample, is_wide
from streamsvm.solvers.newton.state import NewtonState
from streamsvm.solvers.newton.surrogate import Surrogate, model_at
from streamsvm.solvers.newton.trust_region import TrustRegion, first_damping
from streamsvm.solvers.point_evaluation import PointEvaluation

STALLED, STALLED_PASSES = 0.9, 3
"""A sample leads nowhere where the gap is still this share of what it was so many passes ago."""
NOTHING = 0.99
"""What a step in memory leaves of the gap, where it brings nothing."""
STUCK_PASSES = 15
"""... and where all rows do not fit, nothing else does: the run ends after so many."""


class NextPoint(NamedTuple):
    """The settings it depends on; they are those of ``solvers.newton.solver.Newton``."""

    sample: int | None
    """How many rows a sample has, where that was said."""
    narrowing: float
    """The least share of itself that the half width of corners falls to from one point to the next."""
    polish: bool
    """Whether the dual point may be improved by a sample."""

    def advance(self, state: NewtonState, found: PointEvaluation) -> None:
        """Judge the model that led here, make a better one, and go where it says; or solve the problem itself."""
        if state.all_rows is not None:
            _confirmed(state, state.all_rows, found)
        elif state.exact_steps is not None:
            _step_exactly(state, state.exact_steps, found, polish=self.polish)
        elif self._stalled(state):
            state.sampler.limit, state.trust_region, state.point = state.problem.rows, None, state.best
            state.gaps = []
        elif state.trust_region is not None and not state.trust_region.accept(found):
            self._go(state, state.trust_region)
        else:
            self._by_rows(state, found, _sample_of(state))

    def _by_rows(self, state: NewtonState, found: PointEvaluation, sample: Sample | None) -> None:
        """Go where the rows of the pass say; None: there are none that count."""
        if sample is None:
            return
        if sample.complete and not state.factored:
            state.all_rows = AllRows(state.problem, sample, state.point.copy(), state.point.copy(), mu=state.mu)
            state.gathered, state.trust_region = True, None
            _solve_in_memory(state, state.all_rows)
        elif is_wide(state.problem) and not sample.complete and not state.factored:
            self._step_by_sample(state, found, sample)
        elif not sample.complete and not state.factored and exact_steps.are_worth_it(state.problem):
            state.exact_steps = exact_steps.first_steps(_model_at(state, found, sample), found)
            state.summing, state.point = True, state.exact_steps.point
            state.sampler.limit = exact_steps.rows_of_a_sample(state.problem)
        else:
            self._step_by_matrix(state, found, sample)

    def _step_by_matrix(self, state: NewtonState, found: PointEvaluation, sample: Sample) -> None:
        """Improve the dual bound by the sample, and go where a model says whose Hessian is a matrix."""
        state.trust_region = _trust_region_at(state, found, sample)
        near = found.smoothing <= 2.0 * state.problem.tolerance * abs(found.primal)
        if self.polish and near and not (sample.complete or state.evaluation.unformed):
            polished = polished_dual(state.problem, sample, state.smooth, found, state.point, state.deadline)
            state.proves(polished)
            if state.done:
                return
        self._go(state, state.trust_region)

    def _step_by_sample(self, state: NewtonState, found: PointEvaluation, sample: Sample) -> None:
        """Improve the dual bound and go where a sample says, if this point is no worse than the last one; else try again there."""
        steps = state.steps or first_steps(state.problem, found, sample, state.point, state.mu)
        first, state.steps = state.steps is None, steps
        known = (state.squares, state.primal, state.dual, state.deadline)
        reading = Reading(found, sample, state.point, state.mu, *known)
        if (first or steps.accept(found, state.point, state.mu)) and self.polish:
            state.proves(steps.dual(reading))
        if self.sample is not None:
            state.gaps.append((state.primal - max(state.dual, 0.0)) / abs(state.primal))
        if not state.done:
            state.point, state.mu = steps.next_point(reading._replace(dual=state.dual), self.narrowing)

    def _stalled(self, state: NewtonState) -> bool:
        """Whether a sample leads nowhere: the gap is not a tenth smaller than some passes ago. All rows are gathered then."""
        if state.whole or state.factored or self.sample is not None or not self.polish:
            return False
        state.gaps.append((state.primal - state.dual) / abs(state.primal))
        if len(state.gaps) <= STALLED_PASSES:
            return False
        return state.gaps[-1] > STALLED * state.gaps[-1 - STALLED_PASSES]

    def _go(self, state: NewtonState, trust_region: TrustRegion) -> None:
        trust_region.model.deadline = state.deadline
        if state.passes == 1 and state.problem.warm is None:
            state.point, state.mu = trust_region.begin(state.primal)
        else:
            state.point, state.mu = trust_region.next_point(state.primal, self.narrowing, state.squares)


def more_in_memory(state: NewtonState) -> bool:
    """Return whether the problem in memory is gone on with before the next reading.

    As often as it was gone on with before: what is solved soon is confirmed soon, and readings grow with the logarithm of the work.
    """
    rows = state.all_rows
    return rows is not None and state.pending > 0 and not rows.solved and time.perf_counter() < state.deadline


def proceed_in_memory(state: NewtonState) -> None:
    """Go on with it for some seconds; where they bring nothing a reading comes next."""
    rows = state.all_rows
    assert rows is not None  # ``pending`` says so
    before = rows.lacks
    _solve_in_memory(state, rows)
    state.pending = state.pending - 1 if rows.lacks < NOTHING * before else 0


def stuck(state: NewtonState) -> bool:
    """Return whether samples lead nowhere and all rows do not fit, or no step is made any more with all rows in memory."""
    alone = state.steps is None and state.all_rows is None and state.exact_steps is None
    gaps = [] if alone else state.gaps
    return len(gaps) > STUCK_PASSES and gaps[-1] > STALLED * gaps[-1 - STUCK_PASSES]


def _confirmed(state: NewtonState, rows: AllRows, found: PointEvaluation) -> None:
    """Go on in memory after a reading there, and before the next one as often as before this one."""
    rows.confirmed(found.primal)
    before = rows.advances
    _solve_in_memory(state, rows)
    state.pending = before


def _solve_in_memory(state: NewtonState, rows: AllRows) -> None:
    """Go where the problem with all its rows in memory is solved, or is nearer to it."""
    before = rows.work
    rows.advance(state.deadline)
    state.dual = max(state.dual, rows.dual)
    if rows.work == before:
        state.gaps.append((rows.primal - max(rows.dual, 0.0)) / abs(rows.primal))
    state.point, state.mu = rows.best, 0.0


def _step_exactly(state: NewtonState, steps: ExactSteps, found: PointEvaluation, *, polish: bool) -> None:
    """Step to the minimum of a model of all rows, or look nearer to where the last step began.

    Readings sum second derivatives up by turns as long as steps are taken whole. After one that had to be cut every reading does: they have
    changed on the way, and the old ones lead to the next step that has to be cut.
    """
    state.gaps.append((state.primal - state.dual) / abs(state.primal))
    sample = None if state.looking else state.sampler.sample()
    if sample is not None and state.hessian is not None:
        steps.renew(state.problem, sample, state.hessian, state.point)
    elif state.looking and polish:
        state.proves(steps.polished(state.problem, found, state.deadline))
        if state.done:
            return
    whole, taken = steps.length == 1.0, steps.taken(found)
    if taken and steps.model is not None:
        steps.go_on(state.problem, found, steps.model)
    state.looking = taken and whole and not state.looking
    state.summing = not state.looking
    state.point = steps.point


def _sample_of(state: NewtonState) -> Sample | None:
    """Of the rows of this pass, or the one of all rows there was before."""
    if state.whole and state.trust_region is not None:
        return state.trust_region.model.sample.seen_again(state.margins)
    sample = state.sampler.sample()
    state.whole = sample is not None and sample.complete
    return sample


def _model_at(state: NewtonState, found: PointEvaluation, sample: Sample) -> Surrogate:
    """A model around the point that was just looked at."""
    problem, w, factor = state.problem, state.point, sample.s / sample.probability
    model = model_at(problem, sample, factor, w)
    if not state.squares.any():  # the blocks are factored
        state.squares = squares(sample.X, factor, problem.columns)
    if state.passes > 1 or problem.warm is not None:
        model.shift = model.weighted_sum(model.values_at(state.smooth, w)) - found.v
    return model


def _trust_region_at(state: NewtonState, found: PointEvaluation, sample: Sample) -> TrustRegion:
    """A model around the point that was just looked at, and how far it is trusted."""
    model = _model_at(state, found, sample)
    damping = state.trust_region.damping if state.trust_region else first_damping(sample, len(state.point))
    return TrustRegion(model, state.mu, found.value, damping)
