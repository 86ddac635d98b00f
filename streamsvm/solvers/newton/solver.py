"""Newton's method in passes: a pass evaluates a point and samples its rows, the next point is found in memory.

    min_w  P(w) = 1/2 ||w||^2 + sum_i C_i l(m_i),   grad = w - sum_i a_i y_i x_i,   a_i = -C_i l'(m_i)

A pass gives P, the gradient and a sample of rows (``solvers.newton.priority_sampling``) in which every row whose loss may have a
second derivative nearby, and every row that is much of its columns, has a large share. A model made of the sample and
the exact gradient (``solvers.newton.trust_region``) is minimized in memory; where it ends the next pass looks. How far it is
trusted, and how the corner of a hinge, rounded over a width 2 mu (``losses.Huber``), narrows on the way, is
``TrustRegion``. The a_i of the rounded loss are a feasible dual point, and

    P - D = smoothing + 1/2 ||grad||^2,    smoothing = sum_i C_i (l(m_i) - b_i (1 - m_i)),   b_i = a_i / C_i.

The first part falls with mu. The second need not be waited for: with the a_i of all other rows fixed, those of the
sample are solved for in memory, which makes the gradient vanish, so that a pass proves nearly what smoothing allows.

One of four ways leads from a point that was evaluated to the next one.

- All rows of the pass are in memory: they are the problem itself, which is solved there (``AllRows``); a pass then
  confirms.
- Some of them are, and columns are few enough for a matrix, or blocks are factored: a model that is trusted near the
  point (``TrustRegion``), its dual point improved by the sample.
- Some of them are, and columns are many: a damped model of the same sample (``SampledSteps``).
- Some of them are, columns are few, and all rows have a second derivative: readings sum up the matrix (``FullHessianSteps``).

A sample that leads nowhere is given up for all rows where they fit; where they do not, and nothing else helps, the run
is stuck.

References: Keerthi and DeCoste, JMLR 2005; Chapelle, Neural Computation 2007; Shamir, Srebro and Zhang, ICML 2014.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar

import numpy as np

from streamsvm.class_tags import saved_as
from streamsvm.compute.blocks import operators
from streamsvm.compute.blocks.operators import UnformedRows
from streamsvm.compute.passes.newton import squares
from streamsvm.compute.passes.priority_sampling import leverages, scores_pass
from streamsvm.config.options import Bounds, Option
from streamsvm.losses import round_corners
from streamsvm.rows import Float64
from streamsvm.solvers.evaluation import DualPoint, PointEvaluation, PointSums, add_to_sum, block_hessian, slopes_at
from streamsvm.solvers.newton.dual_and_proximal_descent import most_full
from streamsvm.solvers.newton.full_hessian import (
    FullHessianSteps,
    exact_sample_rows,
    is_full_hessian_cheap,
    start_full_hessian,
)
from streamsvm.solvers.newton.in_memory import AllRows
from streamsvm.solvers.newton.preconditioner import block_bytes, block_size, matrix_bytes, most_explicit
from streamsvm.solvers.newton.priority_sampling import (
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
    sample_bytes,
    sample_rows,
    usual_rows,
)
from streamsvm.solvers.newton.sampled_steps import Reading, SampledSteps, start_sampled_steps
from streamsvm.solvers.newton.trust_region import (
    Surrogate,
    TrustRegion,
    first_damping,
    first_mu,
    model_at,
    polish_dual,
)
from streamsvm.solvers.stalling import has_stalled
from streamsvm.types import Block, Certificate, Cost, Layout, LinearSolution, LossRequirement, Problem, Solver
from streamsvm.types.problem import has_box
from streamsvm.types.state import DriverOnly, FirstPassTotal, Seen, Total, begin_part, clear_totals, find_driver_fields

CORNER_REACH = 0.1
"""Rows within this distance of the corner, or within mu, are sampled as if in it; in margins."""
SMOOTH_REACH = 0.5
"""The same where the loss is smooth by itself."""
SAMPLE_STALL_PASSES = 3
"""All rows are gathered where a sample has stalled over this many passes."""
STALL_PASSES = 15
"""Where all rows do not fit in memory, the run ends when it has stalled over this many passes."""
MIN_PROGRESS = 0.99
"""A step in memory must bring the progress measure below this share of what it was; else a reading comes next."""
SMALLER = 0.8
"""Where the sample is to fill the memory, the next smaller one has this share of its rows."""

PART_VECTORS = 3
"""Vectors of length p of a part of a pass: v, what rounding took from it, in the first pass the squares."""
MATRICES = 8
"""Matrices (p, p), where second derivatives of all rows are summed up."""
VECTORS = 32
"""Vectors of length p: states, directions, residuals and what the products make."""
SINGLE_BYTES = 4
"""Bytes of a float32."""
SAMPLE_ARRAYS = 48
"""Bytes a row of a sample: sign, weight, key, score, margin and number, rounded up."""
ROW_ARRAYS = 188
"""Bytes a row in memory, beside its entries: sign, weight, number, margins, and the float64 arrays of an interior
point."""
DESCENT_ARRAYS, FULL_BYTES = 140, 4
"""Bytes a row with the arrays of proximal descent instead, and bytes it holds for each full column of a row."""


@saved_as("newton.state")
@dataclass(slots=True)
class NewtonState:
    """``point`` is what the pass under way evaluates, with corners of half width ``mu`` (0: the loss is smooth)."""

    problem: Problem
    point: Float64
    """(columns + 1,)."""
    mu: float
    """Half the width, in margins, over which the loss's corner is rounded in this pass."""
    evaluation: Total[PointSums]
    """The sums of the pass at ``point``: losses, dual terms, gradient."""
    sampler: Total[PrioritySampler]
    """The rows of the pass that the next model will be made of."""
    squares: FirstPassTotal[Float64]
    """sum_i s_i x_ij^2 (columns + 1,)."""
    best: Float64
    """(columns + 1,) the point of least exact P so far, which is the solution."""
    trust_region: DriverOnly[TrustRegion | None] = None
    """The model that led to ``point``."""
    whole: bool = False
    """Whether the model is made of all rows; they are not gathered again, but their margins are."""
    margins: Total[list[tuple[int, Float64]]] = field(default_factory=list)
    """Margins of every block, with the number of its first row."""
    primal: float = np.inf
    """P of ``best``; inf before the first pass."""
    dual: float = -np.inf
    """The largest D proven, polished or not; -inf before the first pass."""
    passes: int = 0
    """Passes that were closed."""
    dual_point: DriverOnly[DualPoint | None] = None
    """The weights and scale behind ``dual``; None once that was polished."""
    all_rows: DriverOnly[AllRows | None] = None
    """The problem itself, once all rows are in memory."""
    gathered: bool = False
    """Whether all rows are in memory: visits then evaluate the point and keep nothing."""
    factored: Seen[bool] = False
    """Whether blocks are factored pairs: then a row in memory is not the row that is visited, to the last bit."""
    gaps: list[float] = field(default_factory=list)
    """The relative gap after every pass with a sample, by which stalling is judged."""
    deadline: float = np.inf
    """When work in memory is to end, on the clock of ``time.perf_counter``; inf: never."""
    steps: DriverOnly[SampledSteps | None] = None
    """The steps that led to ``point`` where rows do not fit the memory and columns are many."""
    pending: int = 0
    """The number of further steps in memory before the next reading."""
    exact_steps: DriverOnly[FullHessianSteps | None] = None
    """The steps that led to ``point`` where second derivatives of all rows are summed up."""
    summing: bool = False
    """Whether second derivatives are summed up in this pass."""
    looking: bool = False
    """Whether the pass evaluates its point and keeps no rows."""
    hessian: Total[Float64 | None] = None
    """X' diag(second_derivatives) X (columns + 1, columns + 1) over the blocks met so far; None: nothing yet."""

    def raise_dual(self, dual: float) -> None:
        """Keep a value of D found in memory, if it is the largest; its dual variables are not known of every row."""
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


@dataclass(frozen=True, slots=True)
class Newton(Solver[NewtonState]):
    """Newton's method in passes."""

    sample: Annotated[
        int | None,
        Option(
            "Rows the quadratic model is made of.",
            bounds=Bounds(least=1),
            default="by the number of columns and of rows with curvature",
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
    driver_fields: ClassVar[tuple[str, ...]] = find_driver_fields(NewtonState)
    losses: ClassVar[LossRequirement] = LossRequirement()
    """Any: a dual value follows from sums over the rows."""
    has_candidates: ClassVar[bool] = True
    has_dual_witness: ClassVar[bool] = True
    stops_early: ClassVar[bool] = True
    warm_start: ClassVar[bool] = True

    def ignored_settings(self, problem: Problem) -> dict[str, tuple[str, ...]]:
        return {
            "the elastic net is solved on all rows": ("sample", "polish")
            if not problem.regularizer.is_squared_norm
            else (),
            "the loss has no corner": ("narrowing",) if problem.loss.smooth() else (),
        }

    def cost(self, problem: Problem, layout: Layout) -> Cost:
        """Count the rows, of which problems that take all of them share one copy; vectors; a matrix where it is
        explicit.
        """
        p, rows, entry = problem.columns + 1, sample_rows(self.sample, problem), layout.entry_bytes
        entries = p if layout.dense else 2 * sum(layout.nonzeros or ()) // max(1, layout.rows) + 4
        most = most_explicit(dense=layout.dense)
        # of kernel features there can be fewer than columns are announced, and then few enough for a matrix
        q = min(p, most) if layout.dense or p <= most else 0
        # the sample a model is made of, while the next pass gathers up to twice as many rows and throws some out; where
        # features are formed when the pass is over, the next one's beside it
        held = layout.kept_bytes
        sampled = rows * (2 * (entry * entries + SAMPLE_ARRAYS) if held else 4 * (entry * entries + SAMPLE_ARRAYS))
        if is_wide(problem):  # it is needed between two passes only
            sampled = rows * sample_bytes(problem)
        sampled = sampled if rows < problem.rows else 0
        # sparse rows are given up while they are joined; of dense ones two copies were seen
        copies = 1 if problem.nonzeros else 2
        # never all rows, as otherwise in the end; nor where those in memory are not those that are visited (``NewtonState.factored``)
        fewer = (bool(self.sample) or (held > 0 and entry == SINGLE_BYTES)) and rows < problem.rows
        row = held + entry * entries if held else copies * entry * row_bytes(problem) // 4
        whole = problem.rows * row
        once = rows == problem.rows  # who takes all rows from the first pass on has them with all others that do
        own = sampled if fewer else max(sampled, (0 if once else whole) + problem.rows * array_bytes(problem))
        # rows of a part that may yet be in the sample
        gathered = int(SPARE * rows) * (held + STORED_ARRAYS) if held and rows < problem.rows else 0
        summed = 8 * p * p if is_full_hessian_cheap(problem) else 0
        block = block_size(problem.columns, problem.nonzeros or problem.rows * p, dense=layout.dense)
        return Cost(
            fixed=VECTORS * 8 * p + MATRICES * summed + own,
            per_block_row=48,
            per_part=PART_VECTORS * 8 * p + summed + gathered,
            shared=max(matrix_bytes(q, entry), block_bytes(block, entry)) + (whole if once else 0),
        )

    def shrink_memory(self, problem: Problem, asked: Collection[str]) -> Newton | None:
        """Return the same with a sample, or a smaller one; None where that would be of no use, or a number was
        ``asked`` for.
        """
        if "sample" in asked:
            return None
        if is_wide(problem):
            less = int(LARGEST_SHARE * problem.rows if self.sample is None else SMALLER * self.sample)
            return replace(self, sample=less) if less >= least_rows(problem) else None
        if self.sample is None:
            return replace(self, sample=min(problem.rows, usual_rows(problem)))
        return replace(self, sample=self.sample // 2) if self.sample // 2 >= least_rows(problem) else None

    def memory_settings(self) -> dict[str, int | None]:
        return {"sample": self.sample}

    def estimate_work(self, problem: Problem) -> tuple[int, int]:
        rows = sample_rows(self.sample, problem)
        return (3, rows) if rows == problem.rows else (5, 5 * rows)

    # -- a pass

    def start(self, problem: Problem) -> NewtonState:
        """Begin at w = 0, or at the warm weights, with a corner as wide as either asks for."""
        p, point = problem.columns + 1, problem.first_weights()
        spare = SPARE_WIDE if self.sample and is_wide(problem) else SPARE
        sampler = PrioritySampler(sample_rows(self.sample, problem), spare=spare)
        return NewtonState(problem, point, first_mu(problem), PointSums(p), sampler, np.zeros(p), point.copy())

    def needs_features(self, state: NewtonState) -> bool:
        """Return whether the pass is not at w = 0, where the first model has no gradient to agree with."""
        return state.passes > 0 or state.problem.warm is not None

    def visit(self, state: NewtonState, block: Block) -> None:
        """Add the block to value, gradient and dual sums at the point, and offer its rows to the sample."""
        f = state.evaluation.add(state.problem, state.smooth, block, state.point)
        if state.summing:
            state.hessian = add_to_sum(state.hessian, block_hessian(state.problem, block, f))
        if state.gathered or state.looking:
            return
        state.factored = state.factored or operators.is_rounded_when_formed(block.X)
        if state.whole:
            state.margins.append((block.start, block.spread(f)))
        else:
            state.sampler.add(block, f, self._scores(state, block, f))

    def _scores(self, state: NewtonState, block: Block, f: Float64) -> Float64:
        """Return the scores (n,) by which rows are sampled: their second derivatives, and how much of a column they
        are.
        """
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

    def join_gathered(self, states: list[NewtonState]) -> None:
        """Let problems that gather the same rows have one copy of them."""
        join_alike([state.sampler for state in states if not (state.gathered or state.whole)])

    def sampling_threshold(self, state: NewtonState) -> float:
        return state.sampler.bound()

    def set_sampling_threshold(self, state: NewtonState, bound: float) -> None:
        """Skip rows whose keys are beyond the bound."""
        state.sampler.threshold = min(state.sampler.threshold, bound)

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
            self._advance(state, found)
        if state.all_rows is not None:
            facts = state.all_rows.facts()
        clear_totals(state)
        state.sampler.salt += 1
        return Certificate(state.primal, state.dual, final=is_stuck(state), facts=facts)

    # -- from one point to the next

    def _advance(self, state: NewtonState, found: PointEvaluation) -> None:
        """Judge the model that led to the point, make a better one, and go to its minimum; or solve the problem
        itself.
        """
        if state.all_rows is not None:
            state.all_rows.confirm(found.primal)
            before = state.all_rows.advances
            solve_in_memory(state, state.all_rows)
            state.pending = before  # as many steps before the next reading as before this one
        elif state.exact_steps is not None:
            self._exact_step(state, state.exact_steps, found)
        elif self._has_sample_stalled(state):
            state.sampler.limit, state.trust_region, state.point = state.problem.rows, None, state.best
            state.gaps = []
        elif state.trust_region is not None and not state.trust_region.accept(found):
            self._minimize_model(state, state.trust_region)
        else:
            sample = take_sample(state)
            if sample is not None:
                self._use_sample(state, found, sample)

    def _has_sample_stalled(self, state: NewtonState) -> bool:
        """Return whether the gap is not a tenth smaller than some passes ago; all rows are gathered then."""
        if state.whole or state.factored or self.sample is not None or not self.polish:
            return False
        state.gaps.append((state.primal - state.dual) / abs(state.primal))
        return has_stalled(state.gaps, SAMPLE_STALL_PASSES)

    def _use_sample(self, state: NewtonState, found: PointEvaluation, sample: Sample) -> None:
        """Choose the way to the next point by the rows of the pass that are in memory."""
        if sample.complete and not state.factored:
            state.all_rows = AllRows(state.problem, sample, state.point.copy(), state.point.copy(), mu=state.mu)
            state.gathered, state.trust_region = True, None
            solve_in_memory(state, state.all_rows)
        elif is_wide(state.problem) and not sample.complete and not state.factored:
            self._step_by_sample(state, found, sample)
        elif not sample.complete and not state.factored and is_full_hessian_cheap(state.problem):
            state.exact_steps = start_full_hessian(build_model(state, found, sample), found)
            state.summing, state.point = True, state.exact_steps.point
            state.sampler.limit = exact_sample_rows(state.problem)
        else:
            self._trust_region_step(state, found, sample)

    def _trust_region_step(self, state: NewtonState, found: PointEvaluation, sample: Sample) -> None:
        """Improve the dual bound by the sample, and go to the minimum of a model whose Hessian is a matrix."""
        model = build_model(state, found, sample)
        damping = state.trust_region.damping if state.trust_region else first_damping(sample, len(state.point))
        state.trust_region = TrustRegion(model, state.mu, found.value, damping)
        near = found.smoothing <= 2.0 * state.problem.tolerance * abs(found.primal)
        if self.polish and near and not (sample.complete or state.evaluation.unformed):
            polished = polish_dual(state.problem, sample, state.smooth, found, state.point, state.deadline)
            state.raise_dual(polished)
            if state.done:
                return
        self._minimize_model(state, state.trust_region)

    def _minimize_model(self, state: NewtonState, trust_region: TrustRegion) -> None:
        """Go to the minimum of the model, as far as it is trusted."""
        trust_region.model.deadline = state.deadline
        if state.passes == 1 and state.problem.warm is None:
            state.point, state.mu = trust_region.begin(state.primal)
        else:
            state.point, state.mu = trust_region.next_point(state.primal, self.narrowing, state.squares)

    def _step_by_sample(self, state: NewtonState, found: PointEvaluation, sample: Sample) -> None:
        """Improve the dual bound and step by a sample, from this point if it is no worse than the last one, else from
        that.
        """
        steps = state.steps or start_sampled_steps(state.problem, found, sample, state.point, state.mu)
        first, state.steps = state.steps is None, steps
        known = (state.squares, state.primal, state.dual, state.deadline)
        reading = Reading(found, sample, state.point, state.mu, *known)
        if (first or steps.accept(found, state.point, state.mu)) and self.polish:
            state.raise_dual(steps.dual(reading))
        if self.sample is not None:
            state.gaps.append((state.primal - max(state.dual, 0.0)) / abs(state.primal))
        if not state.done:
            state.point, state.mu = steps.next_point(reading._replace(dual=state.dual), self.narrowing)

    def _exact_step(self, state: NewtonState, steps: FullHessianSteps, found: PointEvaluation) -> None:
        """Step to the minimum of a model of all rows, or look nearer to where the last step began.

        Every other reading sums second derivatives up as long as steps are taken whole. After one that had to be cut
        every reading does: they have changed on the way, and the old ones lead to the next step that has to be cut.
        """
        state.gaps.append((state.primal - state.dual) / abs(state.primal))
        sample = None if state.looking else state.sampler.sample()
        if sample is not None and state.hessian is not None:
            steps.renew(state.problem, sample, state.hessian, state.point)
        elif state.looking and self.polish:
            state.raise_dual(steps.polish_dual(state.problem, found, state.deadline))
            if state.done:
                return
        whole, accepted = steps.length == 1.0, steps.accept(found)
        if accepted and steps.model is not None:
            steps.start_step(state.problem, found, steps.model)
        state.looking = accepted and whole and not state.looking
        state.summing = not state.looking
        state.point = steps.point

    # -- steps in memory between two passes

    def set_deadline(self, state: NewtonState, moment: float) -> None:
        state.deadline = moment

    def has_pending_steps(self, state: NewtonState) -> bool:
        """Return whether the problem in memory is to be worked on before the next reading.

        As often as before the last one: what is solved soon is confirmed soon, and readings grow with the logarithm of
        the work.
        """
        rows = state.all_rows
        return rows is not None and state.pending > 0 and not rows.solved and time.perf_counter() < state.deadline

    def make_step(self, state: NewtonState) -> None:
        """Work in memory for some seconds; where they bring no progress a reading comes next."""
        rows = state.all_rows
        assert rows is not None  # ``has_pending_steps`` says so
        before = rows.progress_measure
        solve_in_memory(state, rows)
        state.pending = state.pending - 1 if rows.progress_measure < MIN_PROGRESS * before else 0

    # -- answers

    def candidate(self, state: NewtonState) -> Float64:
        """Return the minimum of the last model, which is not evaluated yet."""
        return state.point.copy()

    def solution(self, state: NewtonState) -> LinearSolution:
        """Return the point of least primal that was evaluated."""
        return LinearSolution(state.best.copy(), state.problem.bias)

    def keep_dual_point(self) -> Newton:
        """Return the same without polish: the dual variables behind the bound are then known of every row."""
        return replace(self, polish=False)

    def witness(self, state: NewtonState) -> NewtonState:
        """Keep the slopes of the rows in memory where theirs is the largest D, and the weights whose slopes are used
        elsewhere.
        """
        rows = state.proven_in_memory
        return replace(begin_part(state), dual_point=state.dual_point, all_rows=rows and rows.without_rows())

    def dual_values(self, state: NewtonState, block: Block) -> Float64 | None:
        """Return the dual variables (n,) of the largest D: those found in memory, or the slopes at some weights,
        scaled.
        """
        if state.proven_in_memory is not None:
            found = state.proven_in_memory.dual_values(block.start, block.span)
            return None if found is None else block.gather(found)
        if state.dual_point is None:
            return None
        return slopes_at(state.problem, state.dual_point, block)


def is_stuck(state: NewtonState) -> bool:
    """Return whether samples lead nowhere and all rows do not fit, or steps with all rows in memory make no
    progress.
    """
    if state.steps is None and state.all_rows is None and state.exact_steps is None:
        return False
    return has_stalled(state.gaps, STALL_PASSES)


def solve_in_memory(state: NewtonState, rows: AllRows) -> None:
    """Work on the problem with all its rows in memory, and go to the best point there."""
    before = rows.work
    rows.advance(state.deadline)
    state.dual = max(state.dual, rows.dual)
    if rows.work == before:
        state.gaps.append((rows.primal - max(rows.dual, 0.0)) / abs(rows.primal))
    state.point, state.mu = rows.best, 0.0


def take_sample(state: NewtonState) -> Sample | None:
    """Return the sample of this pass, or that of all rows there was before; None: no row counts."""
    if state.whole and state.trust_region is not None:
        return state.trust_region.model.sample.with_margins(state.margins)
    sample = state.sampler.sample()
    state.whole = sample is not None and sample.complete
    return sample


def build_model(state: NewtonState, found: PointEvaluation, sample: Sample) -> Surrogate:
    """Return the model of a sample around the point that was just evaluated."""
    problem, w, factor = state.problem, state.point, sample.s / sample.probability
    model = model_at(problem, sample, factor, w)
    if not state.squares.any():  # the blocks are factored
        state.squares = squares(sample.X, factor, problem.columns)
    if state.passes > 1 or problem.warm is not None:
        model.shift = model.weighted_sum(model.values_at(state.smooth, w)) - found.v
    return model


def array_bytes(problem: Problem) -> int:
    """Return the bytes of the arrays that go with a row in memory."""
    if not problem.nonzeros or not has_box(problem.loss):
        return ROW_ARRAYS
    return max(ROW_ARRAYS, DESCENT_ARRAYS + FULL_BYTES * most_full(problem.nonzeros, problem.rows))
