"""What Newton's method holds in memory: rows, of which problems that take all of them share one copy, vectors, a matrix."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple

import numpy as np

from streamsvm.compute.blocks import operators
from streamsvm.compute.blocks.operators import UnformedRows
from streamsvm.compute.passes.newton import leverages, scores_pass, squares
from streamsvm.config.options import Bounds, Option
from streamsvm.losses import round_corners
from streamsvm.rows import Float64
from streamsvm.solvers.evaluation import DualPoint, PointEvaluation, PointSums, add_sums, block_hessian, slopes_at
from streamsvm.solvers.newton.all_rows import AllRows
from streamsvm.solvers.newton.descent import most_full
from streamsvm.solvers.newton.linear_algebra import block_bytes, block_size, matrix_bytes, most_explicit
from streamsvm.solvers.newton.model import Surrogate, TrustRegion, first_damping, first_mu, model_at, polished_dual
from streamsvm.solvers.newton.out_of_core import (
    ExactSteps,
    Reading,
    SampledSteps,
    exact_sample_rows,
    start_exact_steps,
    start_sampled_steps,
    worth_exact_steps,
)
from streamsvm.solvers.newton.sample import (
    LARGEST_SHARE,
    SPARE,
    SPARE_WIDE,
    STORED_ARRAYS,
    PrioritySampler,
    Sample,
    is_wide,
    join_alike,
    least_rows,
    row_bytes,
    sample_rows,
    sampled_bytes,
    usual_rows,
)
from streamsvm.tags import saved_as
from streamsvm.types import Block, Certificate, Cost, Layout, LinearSolution, LossRequirement, Problem, RowState, Solver
from streamsvm.types.problem import has_box

if TYPE_CHECKING:
    from streamsvm.solvers.elastic_net import ElasticNet


PART_VECTORS = 3
"""Of length p that a part of a pass has: v, what rounding took from it, in the first pass the squares."""
MATRICES = 8
"""Of p by p numbers, where second derivatives of all rows are summed up."""
VECTORS = 32
"""Of length p: states, directions, residuals and what the products make."""
SINGLE_BYTES = 4
"""Of an entry in float32."""
SAMPLE_ARRAYS = 48
"""Bytes a row of a sample: sign, weight, key, score, margin and number, rounded up."""
ROW_ARRAYS = 188
"""Bytes a row: sign, weight, number, margins, and the float64 arrays of an interior point ..."""
DESCENT_ARRAYS, FULL_BYTES = 140, 4
"""... or those of proximal descent, which holds so many bytes for each full column beside them."""


def cost_of(problem: Problem, layout: Layout, sample: int | None) -> Cost:
    """Return what a problem asks for, of which the rows a model is made of are as many as ``sample`` says, or are usual."""
    p, rows, entry = problem.columns + 1, sample_rows(sample, problem), layout.entry_bytes
    entries = p if layout.dense else 2 * sum(layout.nonzeros or ()) // max(1, layout.rows) + 4
    most = most_explicit(dense=layout.dense)
    # of kernel features there can be fewer than columns are announced, and then few enough for a matrix
    q = min(p, most) if layout.dense or p <= most else 0
    # the sample a model is made of, while the next pass gathers up to twice as many rows and throws some out; where
    # features are formed when the pass is over, the next one's beside it
    held = layout.kept_bytes
    sampled = rows * (2 * (entry * entries + SAMPLE_ARRAYS) if held else 4 * (entry * entries + SAMPLE_ARRAYS))
    if is_wide(problem):  # it is needed between two passes only
        sampled = rows * sampled_bytes(problem)
    sampled = sampled if rows < problem.rows else 0
    # sparse rows are given up while they are joined; of dense ones two copies were seen
    copies = 1 if problem.nonzeros else 2
    # never all rows, as otherwise in the end; nor where those in memory are not those that are visited (``NewtonState.factored``)
    fewer = (bool(sample) or (held > 0 and entry == SINGLE_BYTES)) and rows < problem.rows
    row = held + entry * entries if held else copies * entry * row_bytes(problem) // 4
    whole = problem.rows * row
    once = rows == problem.rows  # who takes all rows from the first pass on has them with all others that do
    own = sampled if fewer else max(sampled, (0 if once else whole) + problem.rows * _arrays(problem))
    # rows of a part that may yet be in the sample
    gathered = int(SPARE * rows) * (held + STORED_ARRAYS) if held and rows < problem.rows else 0
    summed = 8 * p * p if worth_exact_steps(problem) else 0
    block = block_size(problem.columns, problem.nonzeros or problem.rows * p, dense=layout.dense)
    return Cost(
        fixed=VECTORS * 8 * p + MATRICES * summed + own,
        per_block_row=48,
        per_part=PART_VECTORS * 8 * p + summed + gathered,
        shared=max(matrix_bytes(q, entry), block_bytes(block, entry)) + (whole if once else 0),
    )


def _arrays(problem: Problem) -> int:
    """Bytes of the arrays that go with a row."""
    if not problem.nonzeros or not has_box(problem.loss):
        return ROW_ARRAYS
    return max(ROW_ARRAYS, DESCENT_ARRAYS + FULL_BYTES * most_full(problem.nonzeros, problem.rows))


@saved_as("newton.state")
@dataclass(slots=True)
class NewtonState:
    """``point`` is what the pass under way evaluates, with corners of half width ``mu`` (0: the loss is smooth)."""

    problem: Problem
    """What is solved: loss, C, the number of rows and columns, the weights to start from."""
    point: Float64
    """(columns + 1,) the weights the pass under way evaluates."""
    mu: float
    """Half the width, in margins, over which the loss's corner is rounded in this pass."""
    evaluation: PointSums
    """The sums of the pass at ``point``: losses, dual terms, gradient."""
    sampler: PrioritySampler
    """The rows of the pass that the next model will be made of."""
    squares: Float64
    """sum_i s_i x_ij^2 (columns + 1,)."""
    best: Float64
    """(columns + 1,) the point of least exact P so far, which is the solution."""
    trust_region: TrustRegion | None = None
    """What led to ``point``."""
    whole: bool = False
    """Whether its model is made of all rows; they are not gathered again, but their margins are."""
    margins: list[tuple[int, Float64]] = field(default_factory=list)
    """Of every block, with the number of its first row."""
    primal: float = np.inf
    """P of ``best``; inf before the first pass."""
    dual: float = -np.inf
    """The largest D proven, polished or not; -inf before the first pass."""
    passes: int = 0
    """Passes that were closed."""
    dual_point: DualPoint | None = None
    """Of ``dual``, as long as that was not polished."""
    all_rows: AllRows | None = None
    """The problem itself, once all rows are in memory."""
    gathered: bool = False
    """Whether it is there: visits then evaluate the point and keep nothing."""
    factored: bool = False
    """Whether blocks are factored pairs: then a row in memory is not the row that is visited, to the last bit."""
    gaps: list[float] = field(default_factory=list)
    """After every pass with a sample."""
    deadline: float = np.inf
    """When work in memory is to end, on the clock of ``time.perf_counter``; inf: never."""
    steps: SampledSteps | None = None
    """What led to ``point`` where rows do not fit the memory and columns are many."""
    pending: int = 0
    """How often the problem in memory is gone on with before the next reading."""
    exact_steps: ExactSteps | None = None
    """What led to ``point`` where second derivatives of all rows are summed up."""
    summing: bool = False
    """Whether they are in this pass."""
    looking: bool = False
    """Whether the pass evaluates its point and keeps no rows."""
    hessian: Float64 | None = None
    """X' diag(second_derivatives) X (columns + 1, columns + 1) over the blocks met so far; None: nothing yet."""

    def proves(self, dual: float) -> None:
        """Take a value of D that was found in memory, if it is larger; its dual variables are not known of every row."""
        if dual > self.dual:
            self.dual, self.dual_point = dual, None

    @property
    def done(self) -> bool:
        """Whether the gap is the one asked for."""
        return self.primal - self.dual <= self.problem.tolerance * abs(self.primal)

    @property
    def proven_in_memory(self) -> AllRows | None:
        """The rows in memory, where the largest D is that of dual variables that were found there, and are known."""
        rows = self.all_rows
        return rows if rows is not None and rows.slopes is not None and rows.dual >= self.dual else None

    @property
    def smooth(self) -> Any:
        """The loss as the pass under way has it, its corner rounded over ``mu``."""
        return round_corners(self.problem.loss, self.mu)


STALLED, STALLED_PASSES = 0.9, 3
"""A sample leads nowhere where the gap is still this share of what it was so many passes ago."""
NOTHING = 0.99
"""What a step in memory leaves of the gap, where it brings nothing."""
STUCK_PASSES = 15
"""... and where all rows do not fit, nothing else does: the run ends after so many."""


class NextPoint(NamedTuple):
    """The settings it depends on; they are those of ``Newton``."""

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
        elif not sample.complete and not state.factored and worth_exact_steps(state.problem):
            state.exact_steps = start_exact_steps(_model_at(state, found, sample), found)
            state.summing, state.point = True, state.exact_steps.point
            state.sampler.limit = exact_sample_rows(state.problem)
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
        steps = state.steps or start_sampled_steps(state.problem, found, sample, state.point, state.mu)
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


CORNER_REACH = 0.1
"""Rows within so much of the corner, at least, are sampled as if in it."""
SMOOTH_REACH = 0.5
"""The same where the loss is smooth by itself."""
SMALLER = 0.8
"""Where the sample is to fill the memory, the next smaller one has so much of its rows."""


@dataclass(frozen=True, slots=True)
class Newton(Solver[NewtonState]):
    """Settings of Newton's method in passes."""

    sample: Annotated[
        int | None,
        Option(
            "Rows the quadratic model is made of.",
            bounds=Bounds(least=1),
            default="by the number of columns and of rows whose loss bends",
        ),
    ] = None
    narrowing: Annotated[
        float,
        Option(
            "Losses with a corner: the half width mu of the rounded corner falls to this share of itself in a pass, at most.",
            bounds=Bounds(above=0, below=1),
        ),
    ] = 0.24
    polish: Annotated[
        bool,
        Option(
            "Improve the dual point by a sample. Without, the dual variables of every row are known, as --dual needs it."
        ),
    ] = True
    driver_fields: ClassVar[tuple[str, ...]] = ("trust_region", "dual_point", "all_rows", "steps", "exact_steps")
    """Of the state, what visits do not look at: it is not sent to workers."""
    row_state: ClassVar[tuple[RowState, ...]] = ()
    """Empty: what passes on is a few vectors of weights and a sample, and no number per row of the data."""
    shuffled: ClassVar[bool] = False
    """False: no step is taken while rows are read, so that their order does not matter."""
    losses: ClassVar[LossRequirement] = LossRequirement()
    """Any: a dual value follows from two sums over the rows."""
    has_candidates: ClassVar[bool] = True
    has_dual_witness: ClassVar[bool] = True
    stops_early: ClassVar[bool] = True
    warm_start: ClassVar[bool] = True

    def idle(self, problem: Problem) -> dict[str, tuple[str, ...]]:
        return {
            "the elastic net is solved on all rows": ("sample", "polish") if problem.l1 is not None else (),
            "the loss has no corner": ("narrowing",) if problem.loss.smooth() else (),
        }

    def cost(self, problem: Problem, layout: Layout) -> Cost:
        """Bytes of the Hessian where it is explicit, of twenty vectors, and of rows while they are gathered."""
        return cost_of(problem, layout, self.sample)

    def smaller(self, problem: Problem, asked: Collection[str]) -> Newton | None:
        """The same with a sample, or a smaller one; None where it would be too small to be of use, or was ``asked`` for."""
        if "sample" in asked:
            return None
        if is_wide(problem):
            less = int(LARGEST_SHARE * problem.rows if self.sample is None else SMALLER * self.sample)
            return replace(self, sample=less) if less >= least_rows(problem) else None
        if self.sample is None:
            return replace(self, sample=min(problem.rows, usual_rows(problem)))
        return replace(self, sample=self.sample // 2) if self.sample // 2 >= least_rows(problem) else None

    def memory_settings(self) -> dict[str, int | None]:
        """How many rows the model is made of; None: all, or as many as are usual."""
        return {"sample": self.sample}

    def with_l1(self) -> ElasticNet:
        """On all rows, in readings."""
        from streamsvm.solvers.elastic_net import ElasticNet

        return ElasticNet(narrowing=self.narrowing)

    def expected(self, problem: Problem) -> tuple[int, int]:
        """Passes, and rows whose features they ask for in all where they are shown factored pairs."""
        rows = sample_rows(self.sample, problem)
        return (3, rows) if rows == problem.rows else (5, 5 * rows)

    def start(self, problem: Problem) -> NewtonState:
        """Begin at w = 0, or at the warm weights, with a corner as wide as either asks for."""
        p, point = problem.columns + 1, problem.first_weights()
        spare = SPARE_WIDE if self.sample and is_wide(problem) else SPARE
        sampler = PrioritySampler(sample_rows(self.sample, problem), spare=spare)
        return NewtonState(problem, point, first_mu(problem), PointSums(p), sampler, np.zeros(p), point.copy())

    def needs_features(self, state: NewtonState) -> bool:
        """Not at w = 0, where the first model has no gradient to agree with,."""
        return state.passes > 0 or state.problem.warm is not None

    def visit(self, state: NewtonState, block: Block) -> None:
        """Add the block to value, gradient and dual sums at the point, and offer its rows to the sample."""
        f = state.evaluation.add(state.problem, state.smooth, block, state.point)
        if state.summing:
            state.hessian = add_sums(state.hessian, block_hessian(state.problem, block, f))
        if state.gathered or state.looking:
            return
        state.factored = state.factored or operators.is_rounded_when_formed(block.X)
        if state.whole:
            state.margins.append((block.start, block.spread(f)))
        else:
            state.sampler.add(block, f, self._scores(state, block, f))

    def join_gathered(self, states: list[NewtonState]) -> None:
        """Problems that gather all rows have one copy of them."""
        join_alike([state.sampler for state in states if not (state.gathered or state.whole)])

    def sample_bound(self, state: NewtonState) -> float:
        """Of the sample's keys."""
        return state.sampler.bound()

    def set_bound(self, state: NewtonState, bound: float) -> None:
        """Rows of keys beyond the bound are not even taken up."""
        state.sampler.threshold = min(state.sampler.threshold, bound)

    def _scores(self, state: NewtonState, block: Block, f: Float64) -> Float64:
        problem, factored = state.problem, isinstance(block.X, operators.Factored | UnformedRows)
        if state.passes == 0:
            if not factored:
                state.squares += squares(block.X, block.s.astype(np.float64), problem.columns)
            if problem.warm is None:
                return block.s.astype(np.float64)
        share = len(state.point) / problem.rows
        if factored or state.passes == 0:
            scores = np.full(len(f), share)
        else:
            scores = leverages(block.X, 1.0 / (state.squares + 1.0 / problem.C), share)
        width = max(state.mu, CORNER_REACH) if state.mu else SMOOTH_REACH
        scores_pass(block.y, block.s, f, state.smooth, width, scores)
        return scores

    def finish(self, state: NewtonState) -> Certificate:
        """Close the pass: both bounds at the point are exact; then the model is improved and minimized in memory."""
        found = state.evaluation.close(state.problem, state.point)
        state.passes += 1
        if found.primal < state.primal:
            state.primal, state.best = found.primal, state.point
        if found.dual > state.dual:
            state.dual, state.dual_point = found.dual, DualPoint(state.point, state.mu, found.scale)
        led = state.steps or state.trust_region
        facts = {"mu": state.mu, "damping": led.damping if led else 0.0}
        if not state.done:
            NextPoint(self.sample, self.narrowing, self.polish).advance(state, found)
        if state.all_rows is not None:
            facts = state.all_rows.facts()
        state.evaluation.clear()
        state.sampler.clear()
        state.margins, state.hessian = [], None
        return Certificate(state.primal, state.dual, final=stuck(state), facts=facts)

    def pending(self, state: NewtonState) -> bool:
        """Whether the problem in memory is gone on with before the next reading."""
        return more_in_memory(state)

    def proceed(self, state: NewtonState) -> None:
        """Some seconds of work in memory; where they bring nothing a reading comes next."""
        proceed_in_memory(state)

    def set_deadline(self, state: NewtonState, moment: float) -> None:
        """Steps in memory end at ``moment``."""
        state.deadline = moment

    def certify(self, state: NewtonState) -> None:
        """Every pass is an exact evaluation."""

    def part(self, state: NewtonState) -> NewtonState:
        """The point, without the sums and the rows of other parts, and without what led to the point."""
        return replace(
            state,
            evaluation=PointSums(len(state.point)),
            sampler=replace(state.sampler, parts=[], held=0),
            squares=state.squares if state.passes else np.zeros_like(state.squares),
            margins=[],
            trust_region=None,
            dual_point=None,
            all_rows=None,
            steps=None,
            exact_steps=None,
            hessian=None,
        )

    def merge(self, states: list[NewtonState]) -> NewtonState:
        """Add up the sums, join the samples; the points are the same."""
        first = states[0]
        for other in states[1:]:
            first.evaluation.merge(other.evaluation)
            first.sampler.merge(other.sampler)
            first.margins = first.margins + other.margins
            first.factored = first.factored or other.factored
            first.hessian = add_sums(first.hessian, other.hessian)
            if first.passes == 0:
                first.squares = first.squares + other.squares
        return first

    def candidate(self, state: NewtonState) -> Float64:
        """Where the model led; not evaluated yet."""
        return state.point.copy()

    def keeping_dual_point(self) -> Newton:
        """Without polish: the dual point of the certificate stays one whose variables are known of every row."""
        return replace(self, polish=False)

    def witness(self, state: NewtonState) -> NewtonState:
        """The slopes of the rows in memory where theirs is the largest D, and the weights whose slopes are used elsewhere."""
        rows = state.proven_in_memory
        return replace(self.part(state), dual_point=state.dual_point, all_rows=rows and rows.slopes_alone())

    def dual_values(self, state: NewtonState, block: Block) -> Float64 | None:
        """The dual variables (n,) of the largest D: those found in memory, or the slopes at some weights, scaled."""
        if state.proven_in_memory is not None:
            found = state.proven_in_memory.dual_values(block.start, block.span)
            return None if found is None else block.gathered(found)
        if state.dual_point is None:
            return None
        return slopes_at(state.problem, state.dual_point, block)

    def solution(self, state: NewtonState) -> LinearSolution:
        """The point of least primal that was evaluated."""
        return LinearSolution(state.best.copy(), state.problem.bias)
