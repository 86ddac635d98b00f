"""Newton's method for data that need not fit in memory: one point is evaluated in each pass over the data.

    min_w  P(w) = 1/2 ||w||^2 + sum_i C_i l(m_i),   grad = w - sum_i a_i y_i x_i,   a_i = -C_i l'(m_i)

Each pass computes P and its gradient at a point exactly, and draws a sample of rows
(``solvers.newton.priority_sampling``). Rows with nonzero curvature near the current margin, and rows of high leverage,
are drawn with high probability. A model built from the sample and the exact gradient (``solvers.newton.trust_region``)
is minimized in memory, and the next pass evaluates its minimizer. The hinge has a kink, which is smoothed over a width
2 mu (``losses.Huber``). ``TrustRegion`` sets the damping of the model and the schedule by which mu shrinks. The a_i of
the smoothed loss are a feasible dual point, and

    P - D = smoothing + 1/2 ||grad||^2,    smoothing = sum_i C_i (l(m_i) - b_i (1 - m_i)),   b_i = a_i / C_i.

The smoothing term shrinks with mu. The gradient term is removed in memory: with the a_i of all other rows fixed, the
a_i of the sample are re-optimized until the gradient vanishes. The duality gap is then close to the smoothing term.

The next point is computed in one of four ways:

- All rows are in memory: the full problem is solved there (``AllRows``), and the next pass confirms the solution.
- A sample is in memory, and either the Hessian is small enough to be formed explicitly or the blocks are low-rank
  factors: a trust-region model of the sample is minimized (``TrustRegion``), and the sample improves the dual point.
- A sample is in memory, and there are too many columns for an explicit Hessian: a damped model of the sample is
  minimized (``SampledSteps``).
- A sample is in memory, there are few columns, and every row has curvature: passes accumulate the Hessian of all rows
  (``FullHessianSteps``).

If progress with a sample stalls, all rows are gathered if memory allows; otherwise the solver reports that it is stuck.

References: Keerthi and DeCoste, JMLR 2005; Chapelle, Neural Computation 2007; Shamir, Srebro and Zhang, ICML 2014.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar

import numpy as np

from streamsvm.class_tags import saved_as
from streamsvm.compute.blocks import operators
from streamsvm.compute.blocks.operators import LazyRows
from streamsvm.compute.passes.newton import squares
from streamsvm.compute.passes.priority_sampling import leverages, scores_pass
from streamsvm.config.options import Bounds, Option
from streamsvm.losses import round_corners
from streamsvm.rows import Float64
from streamsvm.solvers.evaluation import DualPoint, PointEvaluation, PointSums, add_to_sum, block_hessian, slopes_at
from streamsvm.solvers.newton.dual_and_proximal_descent import max_common_columns
from streamsvm.solvers.newton.full_hessian import (
    FullHessianSteps,
    full_hessian_sample_rows,
    is_full_hessian_cheap,
    start_full_hessian_steps,
)
from streamsvm.solvers.newton.in_memory import AllRows
from streamsvm.solvers.newton.preconditioner import block_bytes, block_size, matrix_bytes, max_explicit_components
from streamsvm.solvers.newton.priority_sampling import (
    CANDIDATE_FACTOR,
    CANDIDATE_FACTOR_WIDE,
    MAX_SHARE,
    STORED_BYTES_PER_ROW,
    PrioritySampler,
    Sample,
    default_rows,
    is_cheaper_than_samples,
    is_wide,
    min_useful_rows,
    row_bytes,
    sample_bytes,
    sample_rows,
    share_equal_rows,
)
from streamsvm.solvers.newton.sampled_steps import PassResult, SampledSteps, start_sampled_steps
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

KINK_REACH = 0.1
"""Half-width, in units of the margin, of the band around the kink whose rows are sampled as if they had curvature. The
half-width is at least mu."""
SMOOTH_REACH = 0.5
"""For a loss without a kink: half-width, in units of the margin, of the band around a row's margin over which the
sampling score averages the curvature of the loss."""
SAMPLE_STALL_PASSES = 3
"""Number of passes without progress after which all rows are gathered instead of a sample."""
STALL_PASSES = 15
"""Number of passes without progress after which the solver reports that it is stuck, if not all rows fit in memory."""
MAX_PROGRESS_RATIO = 0.99
"""An in-memory step must reduce the progress measure below this multiple of its former value; otherwise a pass
follows."""
SHRINK_FACTOR = 0.8
"""Factor by which the sample size is reduced if a sample meant to fill the memory does not fit."""

PART_VECTORS = 3
"""p-vectors held by each part of a pass: the sum v, its compensation term, and in the first pass the column sums of
squares."""
KEPT_HESSIANS = 2
"""Number of (p, p) arrays that each problem keeps when passes accumulate the Hessian of all rows: the sum, and what
remains of the last sum (``FullHessianModel.rest``)."""
TEMPORARY_HESSIANS = 6
"""Number of further (p, p) arrays while a step of one problem is computed."""
P_SIZED_ARRAYS = 32
"""Number of (p,) arrays alive at once: states, directions, residuals and results of matrix-vector products."""
FLOAT32_BYTES = 4
"""Bytes of a float32."""
SAMPLE_BYTES_PER_ROW = 48
"""Bytes per sampled row besides its entries: sign, weight, key, score, margin and row number, rounded up."""
SOLVE_BYTES_PER_ROW = 188
"""Bytes per row in memory besides its entries: sign, weight, row number, margins, and the float64 arrays of the
interior-point method."""
DESCENT_BYTES_PER_ROW = 140
"""Bytes per row in memory besides its entries, with the arrays of proximal descent."""
BYTES_PER_COMMON_COLUMN = 4
"""Bytes per row and common column. Proximal descent keeps a dense copy of the common columns."""


@saved_as("newton.state")
@dataclass(slots=True)
class NewtonState:
    """The state of Newton's method. The current pass evaluates ``point`` for the loss smoothed by ``mu``."""

    problem: Problem
    point: Float64
    """(columns + 1,)."""
    mu: float
    """Half-width, in units of the margin, over which the kink of the loss is smoothed in this pass; 0: no kink."""
    point_sums: Total[PointSums]
    """The sums of the pass at ``point``: losses, dual terms, gradient."""
    sampler: Total[PrioritySampler]
    """Draws the rows for the next model."""
    squares: FirstPassTotal[Float64]
    """sum_i s_i x_ij^2 (columns + 1,), s_i being the weight of row i."""
    best: Float64
    """(columns + 1,) the evaluated point with the least P so far. It is the solution."""
    trust_region: DriverOnly[TrustRegion | None] = None
    """The model whose minimizer is ``point``."""
    model_uses_all_rows: bool = False
    """Whether the model is built from all rows. Passes then collect margins of these rows, but not the rows again."""
    margins: Total[list[tuple[int, Float64]]] = field(default_factory=list)
    """Margins of every block, with the number of its first row."""
    primal: float = np.inf
    """P of ``best``; inf before the first pass."""
    dual: float = -np.inf
    """The largest D proven, by a pass or in memory; -inf before the first pass."""
    passes: int = 0
    """Number of completed passes."""
    dual_point: DriverOnly[DualPoint | None] = None
    """The weights and scale that define the dual variables of ``dual``. None once ``dual`` was improved in memory,
    because no such weights exist then."""
    all_rows: DriverOnly[AllRows | None] = None
    """The full problem, once all rows are in memory."""
    has_all_rows_in_memory: bool = False
    """Whether all rows are in memory. ``visit`` then evaluates the point and keeps no rows."""
    factored: Seen[bool] = False
    """Whether blocks are stored as low-rank factors. A row that is computed from the factors and kept in memory may
    differ by rounding from the same row in a pass."""
    gaps: list[float] = field(default_factory=list)
    """The relative duality gap after every pass with a sample, for the detection of stalling."""
    deadline: float = np.inf
    """The time of ``time.perf_counter`` at which work in memory must stop; inf: none."""
    sampled_steps: DriverOnly[SampledSteps | None] = None
    """The steps that led to ``point`` if not all rows fit in memory and there are many columns."""
    steps_before_pass: int = 0
    """The number of in-memory steps that remain before the next pass."""
    hessian_steps: DriverOnly[FullHessianSteps | None] = None
    """The steps that led to ``point`` if passes accumulate the Hessian of all rows."""
    sums_hessian: bool = False
    """Whether this pass accumulates the Hessian."""
    evaluates_only: bool = False
    """Whether this pass evaluates its point and keeps no rows."""
    hessian: Total[Float64 | None] = None
    """X' diag(second_derivatives) X (columns + 1, columns + 1) of the blocks visited so far; None before the first
    block."""
    best_gradient: Float64 | None = None
    """(columns + 1,) the gradient of P at ``best``, for a loss without kinks; None: the gradient is not known."""

    def record_dual(self, dual: float) -> None:
        """Record a dual value found in memory, if it is the largest so far. For rows outside memory, the dual variables
        that attain this value are not available.
        """
        if dual > self.dual:
            self.dual, self.dual_point = dual, None

    @property
    def done(self) -> bool:
        """Whether the duality gap is within the tolerance."""
        return self.primal - self.dual <= self.problem.tolerance * abs(self.primal)

    @property
    def rows_with_best_dual(self) -> AllRows | None:
        """The rows in memory, if their dual variables attain the largest D."""
        rows = self.all_rows
        return rows if rows is not None and rows.slopes is not None and rows.dual >= self.dual else None

    @property
    def smoothed_loss(self) -> Any:
        """The loss of the current pass: its kink is smoothed over ``mu``."""
        return round_corners(self.problem.loss, self.mu)


@dataclass(frozen=True, slots=True)
class Newton(Solver[NewtonState]):
    """Newton's method; each pass over the data evaluates one point."""

    sample: Annotated[
        int | None,
        Option(
            "Number of rows from which the quadratic model is built.",
            bounds=Bounds(least=1),
            default="by the number of columns and of rows with curvature",
        ),
    ] = None
    narrowing: Annotated[
        float,
        Option(
            "Least factor by which a pass multiplies mu, the half-width of the smoothed kink (for losses with a kink).",
            bounds=Bounds(above=0, below=1),
        ),
    ] = 0.24
    polish: Annotated[
        bool,
        Option(
            "Improve the dual bound with the sampled rows. Disable it to keep the dual variables of all rows "
            "available, as --dual requires."
        ),
    ] = True
    driver_fields: ClassVar[tuple[str, ...]] = find_driver_fields(NewtonState)
    losses: ClassVar[LossRequirement] = LossRequirement()
    """Any loss: a dual value is computed from sums over the rows."""
    has_current_weights: ClassVar[bool] = True
    has_dual_witness: ClassVar[bool] = True
    """The dual witness is the part of the state from which ``dual_values`` computes the dual variables."""
    stops_early: ClassVar[bool] = True
    warm_start: ClassVar[bool] = True

    def settings_without_effect(self, problem: Problem) -> dict[str, tuple[str, ...]]:
        return {
            "the elastic net is solved on all rows": ("sample", "polish")
            if not problem.regularizer.is_squared_norm
            else (),
            "the loss has no kink": ("narrowing",) if problem.loss.smooth() else (),
        }

    def cost(self, problem: Problem, layout: Layout) -> Cost:
        """Estimate the memory: rows (one shared copy for all problems that use every row), vectors, and the Hessian if
        it is explicit.
        """
        p, rows, entry = problem.columns + 1, sample_rows(self.sample, problem), layout.entry_bytes
        entries = p if layout.dense else 2 * sum(layout.nonzeros or ()) // max(1, layout.rows) + 4
        max_explicit = max_explicit_components(dense=layout.dense)
        # a kernel map may yield fewer features than declared, and then few enough for an explicit Hessian
        explicit = min(p, max_explicit) if layout.dense or p <= max_explicit else 0
        # 4 copies: the current sample, up to twice as many candidates that the next pass collects, and the sample drawn
        # from them. 2 copies if the candidates are kept as stored rows, whose features are formed after the pass: the
        # current sample and the next one.
        kept_bytes = layout.kept_bytes
        copies = 2 if kept_bytes else 4
        all_sample_bytes = rows * (copies * (entry * entries + SAMPLE_BYTES_PER_ROW))
        if is_wide(problem):  # wide problems need the sample only between two passes
            all_sample_bytes = rows * sample_bytes(problem)
        all_sample_bytes = all_sample_bytes if rows < problem.rows else 0
        # sparse parts are freed while they are concatenated; dense parts peak at two copies (measured)
        copies = 1 if problem.nonzeros else 2
        # all rows are never gathered if a sample size was given, or if rows in memory differ from the rows visited
        # (``NewtonState.factored``)
        only_sample = (bool(self.sample) or (kept_bytes > 0 and entry == FLOAT32_BYTES)) and rows < problem.rows
        bytes_per_row = (
            kept_bytes + entry * entries if kept_bytes else copies * entry * row_bytes(problem) // FLOAT32_BYTES
        )
        all_row_bytes = problem.rows * bytes_per_row
        is_shared = rows == problem.rows  # problems that use all rows from the first pass on share one copy of them
        solve_bytes = (0 if is_shared else all_row_bytes) + problem.rows * solve_bytes_per_row(problem)
        unshared_bytes = all_sample_bytes if only_sample else max(all_sample_bytes, solve_bytes)
        # rows that one part of a pass collects as candidates for the sample
        candidate_bytes = (
            int(CANDIDATE_FACTOR * rows) * (kept_bytes + STORED_BYTES_PER_ROW)
            if kept_bytes and rows < problem.rows
            else 0
        )
        hessian_bytes = 8 * p * p if is_full_hessian_cheap(problem) else 0
        block_columns = block_size(problem.columns, problem.nonzeros or problem.rows * p, dense=layout.dense)
        return Cost(
            fixed=P_SIZED_ARRAYS * 8 * p + KEPT_HESSIANS * hessian_bytes + unshared_bytes,
            per_block_row=48,
            per_part=PART_VECTORS * 8 * p + hessian_bytes + candidate_bytes,
            shared=max(matrix_bytes(explicit, entry), block_bytes(block_columns, entry))
            + TEMPORARY_HESSIANS * hessian_bytes
            + (all_row_bytes if is_shared else 0),
        )

    def adapt_to_data(self, rows: int, problems: Sequence[Problem], user_set: Collection[str]) -> Newton:
        """Return a solver that keeps all rows in memory if one copy of them takes less memory than the samples of all
        problems; else this solver.

        Problems with the same rows share one copy of all rows, but each has a sample of its own.
        """
        problems_per_copy = min(Counter(problem.held_out for problem in problems).values())
        is_cheaper = all(is_cheaper_than_samples(problem, problems_per_copy) for problem in problems)
        return replace(self, sample=rows) if "sample" not in user_set and is_cheaper else self

    def shrink_memory(self, problem: Problem, user_set: Collection[str]) -> Newton | None:
        """Return the solver with a sample, or with a smaller one; None if the sample would become too small to be
        useful, or if the user set its size (``user_set``).
        """
        if "sample" in user_set:
            return None
        if is_wide(problem):
            fewer = int(MAX_SHARE * problem.rows if self.sample is None else SHRINK_FACTOR * self.sample)
            return replace(self, sample=fewer) if fewer >= min_useful_rows(problem) else None
        default = min(problem.rows, default_rows(problem))
        if self.sample is None or self.sample > default:
            return replace(self, sample=default)
        return replace(self, sample=self.sample // 2) if self.sample // 2 >= min_useful_rows(problem) else None

    def memory_settings(self) -> dict[str, int | None]:
        return {"sample": self.sample}

    def estimate_work(self, problem: Problem) -> tuple[int, int]:
        rows = sample_rows(self.sample, problem)
        return (3, rows) if rows == problem.rows else (5, 5 * rows)

    # -- a pass

    def start(self, problem: Problem) -> NewtonState:
        """Return the state at w = 0, or at the warm-start weights, with the initial mu for that point."""
        p, point = problem.columns + 1, problem.first_weights()
        candidate_factor = CANDIDATE_FACTOR_WIDE if self.sample and is_wide(problem) else CANDIDATE_FACTOR
        sampler = PrioritySampler(sample_rows(self.sample, problem), candidate_factor=candidate_factor)
        return NewtonState(problem, point, first_mu(problem), PointSums(p), sampler, np.zeros(p), point.copy())

    def needs_features(self, state: NewtonState) -> bool:
        """Return whether the pass needs the features of rows. At w = 0 all decision values are 0, and the first model
        uses the sample's gradient instead of the exact one.
        """
        return state.passes > 0 or state.problem.warm is not None

    def visit(self, state: NewtonState, block: Block) -> None:
        """Add the block to the value, gradient and dual sums at the point, and offer its rows to the sampler."""
        f = state.point_sums.add(state.problem, state.smoothed_loss, block, state.point)
        if state.sums_hessian:
            state.hessian = add_to_sum(state.hessian, block_hessian(state.problem, block, f))
        if state.has_all_rows_in_memory or state.evaluates_only:
            return
        state.factored = state.factored or operators.is_rounded_when_formed(block.X)
        if state.model_uses_all_rows:
            state.margins.append((block.start, block.spread(f)))
        else:
            state.sampler.add(block, f, self._scores(state, block, f))

    def _scores(self, state: NewtonState, block: Block, f: Float64) -> Float64:
        """Return the sampling scores (n,) of the rows, made of their second derivatives and leverages."""
        problem, factored = state.problem, isinstance(block.X, operators.Factored | LazyRows)
        if state.passes == 0:
            if not factored:
                state.squares += squares(block.X, block.s.astype(np.float64), problem.columns)
            if problem.warm is None:
                return block.s.astype(np.float64)
        mean_leverage = len(state.point) / problem.rows
        if factored or state.passes == 0:
            scores = np.full(len(f), mean_leverage)
        else:
            scores = leverages(block.X, 1.0 / (state.squares + 1.0 / problem.C), mean_leverage)
        width = max(state.mu, KINK_REACH) if state.mu else SMOOTH_REACH
        scores_pass(block.y, block.s, f, state.smoothed_loss, width, scores)
        return scores

    def share_between_problems(self, states: list[NewtonState]) -> None:
        """Make problems that sampled the same rows share one copy of them."""
        share_equal_rows(
            [state.sampler for state in states if not (state.has_all_rows_in_memory or state.model_uses_all_rows)]
        )

    def sampling_threshold(self, state: NewtonState) -> float:
        return state.sampler.bound()

    def set_sampling_threshold(self, state: NewtonState, bound: float) -> None:
        """Skip rows whose sampling keys are at or above the bound."""
        state.sampler.threshold = min(state.sampler.threshold, bound)

    def finish(self, state: NewtonState) -> Certificate:
        """Compute P and D at the point exactly; then build the next model and choose the next point in memory."""
        evaluation = state.point_sums.close(state.problem, state.point)
        state.passes += 1
        if evaluation.primal < state.primal:
            state.primal, state.best = evaluation.primal, state.point
            is_known = state.problem.loss.smooth() and not state.point_sums.has_unformed_rows
            state.best_gradient = evaluation.gradient if is_known else None
        if evaluation.dual > state.dual:
            state.dual, state.dual_point = evaluation.dual, DualPoint(state.point, state.mu, evaluation.scale)
        method = state.sampled_steps or state.trust_region
        facts = {"mu": state.mu, "damping": method.damping if method else 0.0}
        if not state.done:
            self._advance(state, evaluation)
        if state.all_rows is not None:
            facts = state.all_rows.facts()
        clear_totals(state)
        state.sampler.salt += 1
        return Certificate(state.primal, state.dual, final=is_stuck(state), facts=facts)

    # -- from one point to the next

    def _advance(self, state: NewtonState, evaluation: PointEvaluation) -> None:
        """Set the next point. With all rows in memory, solve the problem there; otherwise compare the last model with
        the evaluation, and minimize it again or build and minimize a new one.
        """
        if state.all_rows is not None:
            state.all_rows.confirm(evaluation.primal)
            steps_so_far = state.all_rows.advances
            solve_in_memory(state, state.all_rows)
            state.steps_before_pass = steps_so_far  # the number of steps doubles from pass to pass
        elif state.hessian_steps is not None:
            self._full_hessian_step(state, state.hessian_steps, evaluation)
        elif self._has_sample_stalled(state):
            state.sampler.limit, state.trust_region, state.point = state.problem.rows, None, state.best
            state.gaps = []
        elif state.trust_region is not None and not state.trust_region.accept(evaluation):
            self._minimize_model(state, state.trust_region)
        else:
            sample = take_sample(state)
            if sample is not None:
                self._use_sample(state, evaluation, sample)

    def _has_sample_stalled(self, state: NewtonState) -> bool:
        """Record the gap, and return whether it shrank by less than 10 % over the last SAMPLE_STALL_PASSES passes. All
        rows are gathered then.
        """
        if state.model_uses_all_rows or state.factored or self.sample is not None or not self.polish:
            return False
        state.gaps.append((state.primal - state.dual) / abs(state.primal))
        return has_stalled(state.gaps, SAMPLE_STALL_PASSES)

    def _use_sample(self, state: NewtonState, evaluation: PointEvaluation, sample: Sample) -> None:
        """Choose among the four ways to the next point (see the top of the module), and set the point."""
        if sample.complete and not state.factored:
            state.all_rows = AllRows(state.problem, sample, state.point.copy(), state.point.copy(), mu=state.mu)
            state.has_all_rows_in_memory, state.trust_region = True, None
            solve_in_memory(state, state.all_rows)
        elif is_wide(state.problem) and not sample.complete and not state.factored:
            self._take_sampled_step(state, evaluation, sample)
        elif not sample.complete and not state.factored and is_full_hessian_cheap(state.problem):
            state.hessian_steps = start_full_hessian_steps(build_model(state, evaluation, sample), evaluation)
            state.sums_hessian, state.point = True, state.hessian_steps.point
            state.sampler.limit = full_hessian_sample_rows(state.problem)
        else:
            self._trust_region_step(state, evaluation, sample)

    def _trust_region_step(self, state: NewtonState, evaluation: PointEvaluation, sample: Sample) -> None:
        """Improve the dual bound with the sample, and step to the minimizer of a model whose Hessian is formed
        explicitly.
        """
        model = build_model(state, evaluation, sample)
        damping = state.trust_region.damping if state.trust_region else first_damping(sample, len(state.point))
        state.trust_region = TrustRegion(model, state.mu, evaluation.value, damping)
        smoothing_is_small = evaluation.smoothing <= 2.0 * state.problem.tolerance * abs(evaluation.primal)
        if self.polish and smoothing_is_small and not (sample.complete or state.point_sums.has_unformed_rows):
            state.record_dual(
                polish_dual(state.problem, sample, state.smoothed_loss, evaluation, state.point, state.deadline)
            )
            if state.done:
                return
        self._minimize_model(state, state.trust_region)

    def _minimize_model(self, state: NewtonState, trust_region: TrustRegion) -> None:
        """Step to the minimizer of the model, with the damping of the trust region."""
        trust_region.model.deadline = state.deadline
        if state.passes == 1 and state.problem.warm is None:
            state.point, state.mu = trust_region.begin(state.primal)
        else:
            state.point, state.mu = trust_region.next_point(state.primal, self.narrowing, state.squares)

    def _take_sampled_step(self, state: NewtonState, evaluation: PointEvaluation, sample: Sample) -> None:
        """Improve the dual bound and take a sampled step from the better of the current and the previous point."""
        is_first = state.sampled_steps is None
        steps = state.sampled_steps or start_sampled_steps(state.problem, evaluation, sample, state.point, state.mu)
        state.sampled_steps = steps
        status = (state.squares, state.primal, state.dual, state.deadline)
        result = PassResult(evaluation, sample, state.point, state.mu, *status)
        if (is_first or steps.accept(evaluation, state.point, state.mu)) and self.polish:
            state.record_dual(steps.improve_dual(result))
        if self.sample is not None:
            state.gaps.append((state.primal - max(state.dual, 0.0)) / abs(state.primal))
        if not state.done:
            state.point, state.mu = steps.next_point(result._replace(dual=state.dual), self.narrowing)

    def _full_hessian_step(self, state: NewtonState, steps: FullHessianSteps, evaluation: PointEvaluation) -> None:
        """Step to the minimizer of the full-Hessian model, or backtrack along the last step.

        While full steps succeed, every second pass accumulates the Hessian. After a backtracked step every pass
        accumulates it, because the Hessian changed along the step, and the old Hessian would cause backtracking again.
        """
        state.gaps.append((state.primal - state.dual) / abs(state.primal))
        sample = None if state.evaluates_only else state.sampler.sample()
        if sample is not None and state.hessian is not None:
            steps.renew(state.problem, sample, state.hessian, state.point)
        elif state.evaluates_only and self.polish:
            state.record_dual(steps.polish_dual(state.problem, evaluation, state.deadline))
            if state.done:
                return
        is_full_step, accepted = steps.length == 1.0, steps.accept(evaluation)
        if accepted and steps.model is not None:
            steps.start_step(state.problem, evaluation, steps.model)
        state.evaluates_only = accepted and is_full_step and not state.evaluates_only
        state.sums_hessian = not state.evaluates_only
        state.point = steps.point

    # -- steps in memory between two passes

    def set_deadline(self, state: NewtonState, moment: float) -> None:
        state.deadline = moment

    def has_pending_steps(self, state: NewtonState) -> bool:
        """Return whether another in-memory step comes before the next pass.

        The number of in-memory steps doubles from pass to pass: a problem that is solved soon is confirmed soon, and
        the number of passes grows with the logarithm of the number of steps.
        """
        rows = state.all_rows
        return (
            rows is not None
            and state.steps_before_pass > 0
            and not rows.solved
            and time.perf_counter() < state.deadline
        )

    def make_step(self, state: NewtonState) -> None:
        """Minimize the full problem in memory for some seconds. If that makes no progress, the next pass follows at
        once.
        """
        rows = state.all_rows
        assert rows is not None  # ``has_pending_steps`` has checked it
        before = rows.progress_measure
        solve_in_memory(state, rows)
        has_progressed = rows.progress_measure < MAX_PROGRESS_RATIO * before
        state.steps_before_pass = state.steps_before_pass - 1 if has_progressed else 0

    # -- answers

    def current_weights(self, state: NewtonState) -> Float64:
        """Return a copy of the minimizer of the last model, which no pass has evaluated yet."""
        return state.point.copy()

    def solution(self, state: NewtonState) -> LinearSolution:
        """Return the evaluated point with the least P."""
        return LinearSolution(state.best.copy(), state.problem.bias)

    def gradient(self, state: NewtonState) -> Float64 | None:
        return None if state.best_gradient is None else state.best_gradient.copy()

    def keep_dual_point(self) -> Newton:
        """Return the solver without ``polish``, so that the dual variables that attain the bound exist for every
        row.
        """
        return replace(self, polish=False)

    def witness(self, state: NewtonState) -> NewtonState:
        """Return the part of the state that ``dual_values`` needs: the in-memory dual variables if they attain the
        largest D, else the weights that define the dual variables.
        """
        solved = state.rows_with_best_dual
        dual_variables = None if solved is None else solved.dual_variables_only()
        return replace(begin_part(state), dual_point=state.dual_point, all_rows=dual_variables)

    def dual_values(self, state: NewtonState, block: Block) -> Float64 | None:
        """Return the dual variables (n,) that attain the largest D: those found in memory, or the scaled loss
        derivatives at ``state.dual_point``.
        """
        if state.rows_with_best_dual is not None:
            alpha = state.rows_with_best_dual.dual_values(block.start, block.span)
            return None if alpha is None else block.gather(alpha)
        if state.dual_point is None:
            return None
        return slopes_at(state.problem, state.dual_point, block)


def is_stuck(state: NewtonState) -> bool:
    """Return whether the gap has stalled and no other method is left: not all rows fit in memory, or the steps with all
    rows in memory make no progress.
    """
    if state.sampled_steps is None and state.all_rows is None and state.hessian_steps is None:
        return False
    return has_stalled(state.gaps, STALL_PASSES)


def solve_in_memory(state: NewtonState, rows: AllRows) -> None:
    """Minimize the full problem in memory until the deadline, and make the best point found the next point to
    evaluate.
    """
    work_before = rows.work
    rows.advance(state.deadline)
    state.dual = max(state.dual, rows.dual)
    if rows.work == work_before:
        state.gaps.append((rows.primal - max(rows.dual, 0.0)) / abs(rows.primal))
    state.point, state.mu = rows.best, 0.0


def take_sample(state: NewtonState) -> Sample | None:
    """Return the sample of this pass, or the existing sample of all rows with its new margins; None if no row has a
    positive weight.
    """
    if state.model_uses_all_rows and state.trust_region is not None:
        return state.trust_region.model.sample.with_margins(state.margins)
    sample = state.sampler.sample()
    state.model_uses_all_rows = sample is not None and sample.complete
    return sample


def build_model(state: NewtonState, evaluation: PointEvaluation, sample: Sample) -> Surrogate:
    """Return the model of the sample around the point evaluated by this pass."""
    problem, w, factor = state.problem, state.point, sample.s / sample.probability
    model = model_at(problem, sample, factor, w)
    if not state.squares.any():  # the blocks are factored
        state.squares = squares(sample.X, factor, problem.columns)
    if state.passes > 1 or problem.warm is not None:
        model.shift = model.weighted_sum(model.values_at(state.smoothed_loss, w)) - evaluation.v
    return model


def solve_bytes_per_row(problem: Problem) -> int:
    """Return the bytes per row, besides its entries, of the arrays that in-memory methods need."""
    if not problem.nonzeros or not has_box(problem.loss):
        return SOLVE_BYTES_PER_ROW
    common_columns = max_common_columns(problem.nonzeros, problem.rows)
    return max(SOLVE_BYTES_PER_ROW, DESCENT_BYTES_PER_ROW + BYTES_PER_COMMON_COLUMN * common_columns)
