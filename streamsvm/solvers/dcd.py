"""Dual coordinate descent over streamed rows: DCD, the margin perceptron MPU, and multinomial DCD for all classes at
once.

The solvers of this module raise D one dual variable, or one row, at a time, by the steps of ``compute.passes.dcd``.
Dual variables are stored with their rows (Hsieh et al., ICML 2008). A visit to a block makes a few sweeps over its
rows, with shrinking, while the block is in memory (Yu et al., KDD 2010). The dual value is exact after every pass,
because the terms of a block only change when the block is visited.

**Primal value.** P(w) converges later than D. w is biased towards the rows visited last: until alpha has converged,
P(w) may be several 1e-3 above the optimum when D is within 1e-4 of it. The mean of w over a pass is less biased
(Shalev-Shwartz and Zhang, JMLR 2013, theorem 2). A mean over many passes with larger weights for late passes is biased
still less (Shamir and Zhang, ICML 2013, section 4, with eta = 3). Once alpha has converged, w itself is best. All three
are candidates, and the best one is the solution. A training pass only estimates P, from the loss of each row at its
visit. When the estimated gap is within the tolerance, the next pass evaluates the candidates exactly.

**Warm start** from weights w_0. The first pass evaluates w_0 and sets each a_i to the negative slope of the loss at
w_0, with the kink of the loss slightly smoothed. Descent starts from t a, with the t that maximizes D, and
w = t sum a_i y_i x_i. This is never worse than a = 0, and the better the closer w_0 is to the optimum.

**Shrinking from pass to pass** (``DCD.shrinking``). With G_i the gradient of -D along a_i, and M, m the largest and the
least projected gradient of a pass, row i is removed from the following passes if

    a_i = 0 and G_i > M-bar,    or    a_i = upper and G_i < m-bar,

where M-bar and m-bar are M and m of the previous pass (inf and -inf if M <= 0, m >= 0). Once M - m is below the
tolerance, all rows are visited again (Hsieh et al., algorithm 3, and LIBLINEAR). A removed row keeps its dual variable
and, in the estimate of P, its loss at the last visit. Since that loss becomes outdated, all rows are also visited at
growing intervals, and after an evaluation whose gap was too large. The paper does neither.

**Parallel workers**, each with its own rows and its own copy of w: CoCoA+ (Ma et al., ICML 2015). The rows are divided
into K groups, whose copies of w change at the same time, by dw_k each. As ||sum_k dw_k||^2 <= K sum_k ||dw_k||^2, D
rises by at least the sum of the rises of K separate problems in which sigma ||dw_k||^2, sigma = K, replaces ||dw_k||^2.
Coordinate descent solves such a problem on u = w + sigma dw_k: the gradient of a_i is y_i u.x_i - 1 + conjugate'(a_i),
its curvature sigma ||x_i||^2 + conjugate'', and u moves by sigma delta y_i x_i.

That bound is too pessimistic if rows of different groups have few columns in common. Here sigma may be smaller than K,
because the step of each group is computed instead of bounded. Each group k proposes two directions, its move and the
shift

    d_i = y_i min(distance of a_i, before and after the move, from the ends of its box; SHIFT_SHARE C_i).

The shift corrects features that all groups share, above all the constant feature: if sum a_i y_i is too large in one
group and too small in another, the errors cancel in w, and no group corrects its own error.
With v_r = sum_i (direction r)_i y_i x_i for each of the 2 K directions, and linear and quadratic terms of the
conjugates,

    D(a + sum_r t_r direction_r) = D(a) + linear.t + t' quadratic t - w.sum_r t_r v_r - 1/2 ||sum_r t_r v_r||^2

is computed exactly from 2 K vectors, and maximized over 0 <= t <= 1 for moves and -1 <= t <= 1 for shifts. All these
points are in the box. If a move crosses a kink of the conjugate, or the conjugate is not quadratic, the formula is a
lower bound that is exact at t = 0 and 1, because the conjugate is convex. Shifts cross no kink. D never falls, whatever
sigma is. sigma is increased, up to K, if steps are short, and decreased if they are long.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Self

import numpy as np

from streamsvm.class_tags import saved_as
from streamsvm.compute.blocks import operators
from streamsvm.compute.blocks.sums import dual_sum, loss_sum
from streamsvm.compute.passes.certificate import RowLoss
from streamsvm.compute.passes.dcd import (
    Box,
    MPUSteps,
    ShrinkingThresholds,
    SweepResult,
    dcd_sweep,
    mpu_pass,
    multinomial_dual_sum,
    multinomial_loss_sum,
    multinomial_sweep,
    proposals_pass,
    row_costs,
)
from streamsvm.compute.passes.newton import slopes_pass
from streamsvm.compute.passes.stochastic import gradient_moments
from streamsvm.compute.random import shuffle
from streamsvm.compute.targets import lower
from streamsvm.config.options import Bounds, Option
from streamsvm.rows import Float64, Int32
from streamsvm.solvers.evaluation import PointSums, margins_to_next, slopes_of
from streamsvm.types import (
    DUAL,
    Block,
    Certificate,
    Cost,
    Layout,
    LinearSolution,
    LossRequirement,
    Problem,
    RowState,
    Solver,
)
from streamsvm.types.problem import best_scale, has_box
from streamsvm.types.state import Largest, Own, Smallest, Total, clear_totals, merge_states

ROWS_PER_SAMPLE = 2048
"""Number of rows between two samples of w for the mean over a pass."""
AVERAGING_POWER = 3
"""eta of the mean over passes: pass t has a weight of about t^eta."""
EVALUATION_SPACING = 1.25
"""After an evaluation whose gap was too large, the number of passes must grow by this factor before the next
evaluation."""
FULL_PASS_SPACING = 1.5
"""With shrinking, all rows are visited again when the number of passes has grown by this factor."""
RESTING = "resting"
"""The per-row state of shrinking: 0 for active rows, 1 + the loss at the last visit for removed rows."""
SHIFT_SHARE = 0.05
"""The shift moves a dual variable by at most this fraction of C_i."""
AS_PROPOSED = (1.0, 0.0)
"""The step lengths of a group, along its move and its shift, for which its rows already have the right dual
variables."""
LONG_STEPS, SHORT_STEPS = 0.9, 0.5
"""Mean step lengths above and below which sigma changes."""
SIGMA_DECREASE, SIGMA_INCREASE = 0.8, 1.25
"""The factors by which sigma changes."""
MAX_SWEEPS, STEP_TOLERANCE = 1000, 1e-12
"""Maximum number of sweeps over the 2 K step lengths, and the largest change of a step length at which they stop."""
HIDDEN_SHARE = 0.25
"""MPU: the fraction of the gap that may be due to the spacing of the grid of dual variables."""
MAX_REFINEMENT = 8.0
"""MPU: the spacing of the grid is divided by at most this factor after a pass."""


# -- state


@saved_as("dcd.shrinking")
@dataclass(slots=True)
class Shrinking:
    """The shrinking bounds of the current pass, and the extreme projected gradients, which bound the next pass."""

    upper_threshold: float = np.inf
    """M-bar."""
    lower_threshold: float = -np.inf
    """m-bar."""
    highest: Largest[float] = -np.inf
    """M of the rows visited so far in this pass."""
    lowest: Smallest[float] = np.inf
    """m of the rows visited so far in this pass."""
    visits_all: bool = True
    """Whether this pass visits all rows."""
    passes: int = 0
    """Number of completed training passes."""
    next_full_pass: float = 2.0
    """The pass at which all rows are visited at the latest."""

    @property
    def bounds(self) -> ShrinkingThresholds:
        """The bounds beyond which the first sweep of a visit removes rows."""
        return ShrinkingThresholds(self.upper_threshold, self.lower_threshold)

    def active_rows(self, block: Block) -> Int32:
        """Return the active rows of the block, in the order of ``block.order``. If the pass visits all rows, make all
        rows active first.
        """
        if self.visits_all:
            block.rows[RESTING][:] = 0.0
        return block.order[block.rows[RESTING][block.order] == 0.0]

    def extend(self, highest: float, lowest: float) -> None:
        """Include the largest and the least projected gradient of some rows."""
        self.highest, self.lowest = max(self.highest, highest), min(self.lowest, lowest)

    def finish(self, tolerance: float) -> None:
        """End a training pass. Its M and m become the bounds of the next pass."""
        self.passes += 1
        has_converged = self.highest - self.lowest < tolerance
        self.upper_threshold = self.highest if self.highest > 0.0 else np.inf
        self.lower_threshold = self.lowest if self.lowest < 0.0 else -np.inf
        self.highest, self.lowest, self.visits_all = -np.inf, np.inf, False
        if has_converged or self.passes >= self.next_full_pass:
            self.next_full_pass = FULL_PASS_SPACING * self.passes
            self.visit_all_next()

    def visit_all_next(self) -> None:
        """Make the next pass visit all rows."""
        self.upper_threshold, self.lower_threshold, self.visits_all = np.inf, -np.inf, True


@saved_as("cocoa.joint")
@dataclass(slots=True)
class Joint:
    """CoCoA+: what all copies of a state share at the start of a pass, and the two directions that one copy
    proposes.
    """

    sigma: float
    """The factor in [1, K] of the curvature in a group's coordinate steps, which accounts for the steps of other
    groups."""
    origin: Float64
    """(p,) w at the start of the pass."""
    steps: Float64
    """(K, 2) the step lengths of each group along its move and its shift of the last pass. Rows are moved at their next
    visit."""
    vectors: Own[Float64]
    """(2, p) v of the move and the shift of this copy."""
    dual: Own[float] = 0.0
    """sum a_i - conjugate(a_i) at the start of the pass."""
    linear: Own[Float64] = field(default_factory=lambda: np.zeros(2))
    """(2,) the slope of sum a_i - conjugate(a_i) along the move and the shift of this copy; summed by
    ``add_proposals``."""
    quadratic: Own[Float64] = field(default_factory=lambda: np.zeros((2, 2)))
    """(2, 2) its second-order term, -1/2 sum_i conjugate''_i d_i d_i', d_i (2,) being the components of row i in both
    directions."""


@saved_as("dcd.state")
@dataclass(slots=True)
class DCDState:
    """The state of dual ascent. ``w`` (columns + 1,) float64 always equals sum a_i y_i x_i."""

    problem: Problem
    w: Own[Float64]
    mean: Own[Float64]
    """The mean of w over the last training pass; during a training pass, the sum of ``samples`` values of w."""
    tail: Float64
    """The mean of w over all passes, with larger weights for late passes."""
    best: Float64
    """The candidate with the least exact P so far. It is the solution."""
    samples: Total[int] = 0
    """The number of values of w that ``mean`` sums during a training pass."""
    dual: float = 0.0
    """D after the last training pass, exact."""
    certifying: bool = False
    """Whether the pass evaluates the three candidates and does not train."""
    passes: int = 0
    """Number of completed training passes."""
    next_evaluation: float = 0.0
    """The number of training passes before which the candidates are not evaluated again."""
    duals: Total[float] = 0.0
    """sum a_i - conjugate(a_i) over the rows visited in this pass."""
    losses: Total[float] = 0.0
    """An estimate of sum C s_i l(m_i), with the loss of each row at its first visit in this pass."""
    candidate_losses: Total[Float64] = field(default_factory=lambda: np.zeros(3))
    """The losses of w, mean and tail in an evaluation pass."""
    primal: float = np.inf
    """P of ``best``."""
    warm_sums: Total[PointSums | None] = None
    """The sums of the first pass of a warm start; None in all other passes."""
    scale: float = 1.0
    """The factor by which the dual variables of each row are multiplied at its visit in this pass."""
    joint: Own[Joint | None] = None
    """The shared start and the proposals of parallel copies of the state; None: there is only one copy."""
    shrinking: Total[Shrinking | None] = None
    """The bounds of shrinking; None: every pass visits all rows."""

    @property
    def candidates(self) -> tuple[Float64, Float64, Float64]:
        """The three weights that an evaluation pass evaluates: w, its mean over the last pass, its mean over all
        passes.
        """
        return self.w, self.mean, self.tail


@saved_as("mpu.state")
@dataclass(slots=True)
class MPUState(DCDState):
    """The state of ``MPU``: that of dual ascent, and the grid of dual variables."""

    spacing: Own[float] = 0.0
    """eta, the spacing of the grid; 0 before the first row is visited."""
    hidden: Total[float] = 0.0
    """The part of P - D due to rows that did not move in this pass because of the spacing of the grid."""


# -- the solvers


@dataclass(frozen=True, slots=True)
class DualAscent(Solver[DCDState]):
    """The base class of solvers that raise D row by row: passes, candidates, warm starts and parallel workers.

    A subclass implements ``_visit_rows``, the steps of the method.
    """

    sweeps: Annotated[
        int,
        Option(
            "Sweeps over the rows of a block in one visit. 0: one sweep if blocks stay in memory, because more visits "
            "are then better than longer ones; three otherwise.",
            bounds=Bounds(least=0),
        ),
    ] = 0
    parts: Annotated[
        int,
        Option(
            "Groups of rows that are trained in parallel, each with a copy of the state; see --groups.",
            bounds=Bounds(least=1),
        ),
    ] = 1
    shuffled: ClassVar[bool] = True
    losses: ClassVar[LossRequirement] = LossRequirement()
    """Any loss: the optimum of one dual variable has a closed form, or is the root of a function of one variable."""
    state_type: ClassVar[type[DCDState]] = DCDState
    has_current_weights: ClassVar[bool] = True
    warm_start: ClassVar[bool] = True

    @property
    def row_state(self) -> tuple[RowState, ...]:
        """The dual variables; with several parts also those at the start of the pass."""
        return tuple(RowState(name, "float64") for name in self.row_names())

    def row_names(self) -> tuple[str, ...]:
        """Return the names of the per-row states."""
        return (DUAL,) if self.parts == 1 else (DUAL, "before")

    def in_parts(self, parts: int) -> Self:
        return replace(self, parts=parts)

    def cost(self, problem: Problem, layout: Layout) -> Cost:
        """Estimate the memory: four vectors of weights, eight with several parts, and the per-row states."""
        fixed = (4 if self.parts == 1 else 8) * 8 * problem.components
        return Cost(fixed=fixed, per_row=sum(state.nbytes for state in self.row_state))

    def start(self, problem: Problem) -> DCDState:
        """Return the state at a = 0, or the state before a first pass that computes dual variables from the warm-start
        weights.
        """
        w = problem.first_weights()
        warm_sums = None if problem.warm is None else PointSums(len(w))
        joint = None if self.parts == 1 else start_joint(self.parts, w, self.parts / 2)
        return self.state_type(problem, w, w.copy(), w.copy(), w.copy(), warm_sums=warm_sums, joint=joint)

    def visit(self, state: DCDState, block: Block) -> None:
        """Train on the rows of the block, changing ``alpha`` and w. In an evaluation pass, add the losses of the
        candidates instead.
        """
        if state.warm_sums is not None:
            self.warm_start_rows(state, state.warm_sums, block)
            return
        if state.joint is not None:
            self.apply_steps(state.joint, state.problem, block)
        if state.certifying:
            self._evaluate(state, block)
            return
        block.rows[DUAL][:] *= state.scale
        if state.joint is not None:
            block.rows["before"][:] = block.rows[DUAL]
        self._train(state, block)
        if state.joint is not None:
            self.add_proposals(state.joint, state.problem, block)

    def apply_steps(self, joint: Joint, problem: Problem, block: Block) -> None:
        """Set the dual variables of a block by the step lengths that were chosen at the end of the last pass. Group k
        has the chunks k, k + K, ...
        """
        move, shift = joint.steps[block.chunk % len(joint.steps)].tolist()
        if (move, shift) != AS_PROPOSED:
            alpha, before = block.rows[DUAL], block.rows["before"]
            bottom, top = boxes_of_rows(problem, block)
            target = before + move * (alpha - before) + shift * shift_direction(problem, block)
            np.clip(target, bottom, top, out=alpha)  # the point is in the box, so this only clips rounding errors

    def add_proposals(self, joint: Joint, problem: Problem, block: Block) -> None:
        """Add the move and the shift of the rows of a block to the sums of the two directions."""
        alpha, before = block.rows[DUAL], block.rows["before"]
        directions = np.column_stack([alpha - before, shift_direction(problem, block)])
        joint.dual += dual_sum(before, block.y, block.s, problem.C, problem.loss)
        cost = RowLoss(problem.C, problem.loss, problem.loss)
        proposals_pass(block.y, block.s, cost, before, directions, joint.linear, joint.quadratic)
        joint.vectors += operators.adjoint(
            block.X, directions * problem.kind.signs(block.y)[:, None], problem.columns
        ).T

    def losses_at(self, problem: Problem, block: Block, w: Float64) -> float:
        """Return sum C_i l(m_i) of a block at w (components,)."""
        return loss_sum(block.X, block.y, block.s, w, problem.C, problem.loss)

    def dual_gain(self, problem: Problem, block: Block) -> float:
        """Return sum a_i - conjugate(a_i) of a block."""
        return dual_sum(block.rows[DUAL], block.y, block.s, problem.C, problem.loss)

    def warm_start_rows(self, state: DCDState, warm_sums: PointSums, block: Block) -> None:
        """Set the dual variables of a block from the slopes of the loss at the warm-start weights, and add the block to
        the sums for P and D.
        """
        p, slopes, second_derivatives = state.problem, np.empty(len(block.y)), np.empty(len(block.y))
        smooth = slopes_of(p.loss)
        f = warm_sums.add(p, smooth, block, state.w)
        slopes_pass(block.y, block.s, f, RowLoss(p.C, p.loss, smooth), slopes, second_derivatives)
        block.rows[DUAL][:] = slopes * p.kind.signs(block.y)

    def _evaluate(self, state: DCDState, block: Block) -> None:
        for k, w in enumerate(state.candidates):
            state.candidate_losses[k] += self.losses_at(state.problem, block, w)

    def _train(self, state: DCDState, block: Block) -> None:
        if state.samples == 0:
            state.mean[:] = 0.0
        active = block.order
        for sweep in range(self.sweeps or (1 if block.cached else 3)):
            active = self.rows_of_sweep(block, active, sweep)
            if sweep == 0 and state.shrinking is not None:
                active = self.sweep_and_shrink(state, state.shrinking, block)
            else:
                swept = self.sweep(state, block, active, ShrinkingThresholds())
                active = active[: swept.remaining]
                if sweep == 0:
                    state.losses += swept.losses
            if len(active) == 0:
                break
        state.duals += self.dual_gain(state.problem, block)

    def rows_of_sweep(self, block: Block, active: Int32, sweep: int) -> Int32:
        """Return the rows of a sweep in the order of their visits: the active rows, shuffled from the second sweep
        on.
        """
        if sweep:
            shuffle(active, len(active), block.seed + sweep)
        return active

    def sweep_and_shrink(self, state: DCDState, shrinking: Shrinking, block: Block) -> Int32:
        """Make the first sweep of a visit with shrinking: visit the active rows and remove some of them. Rows removed
        before contribute their last loss. Return the rows for further sweeps.
        """
        active = shrinking.active_rows(block)
        if len(active) == 0:  # without active rows w stays the same, and is its own mean
            state.mean += state.w
            state.samples += 1
        resting = block.rows[RESTING]
        state.losses += float((resting - 1.0)[resting > 0.0].sum())
        is_removed = np.zeros(len(block.y), np.bool_)
        is_removed[active] = True
        swept = self.sweep(state, block, active, shrinking.bounds)
        is_removed[active[: swept.remaining]] = False
        state.losses += swept.losses
        shrinking.extend(swept.highest, swept.lowest)
        cost = RowLoss(state.problem.C, state.problem.loss, state.problem.loss)
        row_costs(block.labeled, np.flatnonzero(is_removed).astype(np.int32), state.w, cost, resting)
        return active[: swept.remaining]

    def sweep(self, state: DCDState, block: Block, active: Int32, bounds: ShrinkingThresholds) -> SweepResult:
        """Visit the rows ``active`` in slices of ROWS_PER_SAMPLE, and add w to the mean after each. Rows that stay
        active are moved to the front of ``active``.
        """
        p, still_active, losses, highest, lowest = state.problem, 0, 0.0, -np.inf, np.inf
        box = Box(p.C, p.loss, 1.0 if state.joint is None else state.joint.sigma)
        for start in range(0, len(active), ROWS_PER_SAMPLE):
            part = active[start : start + ROWS_PER_SAMPLE]
            swept = self._visit_rows(state, block, part, box, bounds)
            active[still_active : still_active + swept.remaining] = part[: swept.remaining]
            still_active, losses = still_active + swept.remaining, losses + swept.losses
            highest, lowest = max(highest, swept.highest), min(lowest, swept.lowest)
            state.mean += state.w
            state.samples += 1
        return SweepResult(still_active, losses, highest, lowest)

    def _visit_rows(
        self, state: DCDState, block: Block, rows: Int32, box: Box, bounds: ShrinkingThresholds
    ) -> SweepResult:
        """Visit rows one by one, changing ``alpha`` and w. Rows that stay active are moved to the front of ``rows``."""
        raise NotImplementedError

    def finish(self, state: DCDState) -> Certificate:
        """End the pass and return D, which is exact, and P, which is an estimate unless this was an evaluation pass."""
        if state.warm_sums is not None:
            return self._finish_warm_start(state, state.warm_sums)
        if state.certifying:
            return self._finish_evaluation(state)
        state.scale = 1.0
        half = 0.5 * float(state.w @ state.w)
        if state.shrinking is not None:
            state.shrinking.finish(state.problem.tolerance)
        state.passes += 1
        state.dual = state.duals - half
        state.mean /= max(state.samples, 1)
        weight = (AVERAGING_POWER + 1) / (state.passes + AVERAGING_POWER)
        state.tail += weight * (state.mean - state.tail)
        certificate = Certificate(half + state.losses, state.dual, exact=False)
        state.certifying = certificate.gap <= state.problem.tolerance and state.passes >= state.next_evaluation
        clear_totals(state)
        return certificate

    def _finish_warm_start(self, state: DCDState, warm_sums: PointSums) -> Certificate:
        evaluation = warm_sums.close(state.problem, state.w)
        state.best[:], state.primal, state.dual = state.w, evaluation.primal, evaluation.dual
        sums, v = evaluation.sums, evaluation.v
        state.scale = best_scale(state.problem.loss, sums.linear, sums.quadratic, float(v @ v))
        for w in state.candidates:
            w[:] = state.scale * v
        state.warm_sums = None
        if state.joint is not None:
            state.joint = start_joint(self.parts, state.w, state.joint.sigma)
        return Certificate(evaluation.primal, evaluation.dual)

    def _finish_evaluation(self, state: DCDState) -> Certificate:
        primals = [
            0.5 * float(w @ w) + losses for w, losses in zip(state.candidates, state.candidate_losses, strict=True)
        ]
        best = int(np.argmin(primals))
        if primals[best] < state.primal:
            state.best[:], state.primal = state.candidates[best], primals[best]
        if state.shrinking is not None:  # the estimate of P may have been too low because of removed rows
            state.shrinking.visit_all_next()
        state.next_evaluation = EVALUATION_SPACING * state.passes
        state.certifying = False
        clear_totals(state)
        return Certificate(state.primal, state.dual)

    def certify(self, state: DCDState) -> None:
        """Make the next pass an evaluation pass."""
        state.certifying = state.warm_sums is None  # the first pass of a warm start is an evaluation anyway

    def merge(self, states: list[DCDState]) -> DCDState:
        """Merge the copies of one state, one for each of the ``parts``, at the end of a pass.

        In the first pass of a warm start, and in an evaluation pass, the sums are added up. After a training pass the
        step lengths of the groups are chosen such that D is largest, and the mean of w is the mean of their means.
        """
        if len(states) == 1:
            return states[0]
        assert len(states) == self.parts, f"{len(states)} copies of a state that was made for {self.parts}"
        joints = [state.joint for state in states if state.joint is not None]
        mean = np.asarray(sum(state.mean / max(state.samples, 1) for state in states) / len(states))
        merged = merge_states(states)
        if merged.warm_sums is not None:
            return merged
        if merged.certifying:  # w has not changed, and the rows have their right dual variables now
            merged.joint = start_joint(len(states), merged.w, joints[0].sigma)
        else:
            merged.w, merged.duals, merged.joint = join_proposals(joints)
            merged.mean, merged.samples = mean, 1
        return merged

    def current_weights(self, state: DCDState) -> Float64:
        """Return the mean of w over all passes."""
        return state.problem.kind.shape(state.tail).copy()

    def solution(self, state: DCDState) -> LinearSolution:
        """Return the evaluated weights with the least P so far."""
        return LinearSolution(state.problem.kind.shape(state.best).copy(), state.problem.bias)


@dataclass(frozen=True, slots=True)
class DCD(DualAscent):
    """Dual coordinate descent."""

    shrinking: Annotated[
        bool,
        Option(
            "Skip rows whose dual variable is at a bound in later passes too, as LIBLINEAR does. Visits get shorter, "
            "and the number of passes stays about the same. Needs another number for each row."
        ),
    ] = False
    online: Annotated[
        bool,
        Option(
            "Draw rows with replacement from each block, as many as it has, instead of visiting each row once: the "
            "online setting of the paper."
        ),
    ] = False

    def row_names(self) -> tuple[str, ...]:
        return (*DualAscent.row_names(self), *((RESTING,) if self.shrinking else ()))

    def start(self, problem: Problem) -> DCDState:
        state = DualAscent.start(self, problem)
        state.shrinking = Shrinking() if self.shrinking else None
        return state

    def rows_of_sweep(self, block: Block, active: Int32, sweep: int) -> Int32:
        """Return the active rows, shuffled; with ``online``, as many rows as the block has, drawn with replacement."""
        if not self.online:
            return DualAscent.rows_of_sweep(self, block, active, sweep)
        rows = len(block.order)
        block.order[:] = np.random.default_rng((block.seed, sweep)).integers(rows, size=rows)
        return block.order

    def _visit_rows(
        self, state: DCDState, block: Block, rows: Int32, box: Box, bounds: ShrinkingThresholds
    ) -> SweepResult:
        return dcd_sweep(block.labeled, rows, len(rows), box, bounds, block.rows[DUAL], state.w)


@dataclass(frozen=True, slots=True)
class MPU(DualAscent):
    """The margin perceptron with unlearning: the dual variables are on a grid whose spacing shrinks with the gap.

    Panagiotakopoulos and Tsampouka, ICML 2010, as derived in ``compute.passes.dcd.mpu_pass``; the SGD paper
    (arXiv:1304.6383) compares with it. The dual variable of a row is the number of its updates times eta. The paper
    chooses the margin b = 1 / eta before the run, from the accuracy to prove. Here eta starts at ``accuracy`` / mean
    ||x_i||^2, so that a step changes the margin of a row by about ``accuracy``. eta is divided by up to
    ``MAX_REFINEMENT`` after passes in which rows that did not move account for more than ``HIDDEN_SHARE`` of the gap.
    With weights, the box of a row is [0, upper(C s_i)].
    """

    multiplicity: Annotated[
        int, Option("Maximum number of updates of a row that are combined into one.", bounds=Bounds(least=1))
    ] = 5
    accuracy: Annotated[
        float,
        Option(
            "The first updates change the margin of a row by about this much (the paper fixes it before the run). "
            "Updates become smaller as the gap closes.",
            bounds=Bounds(above=0),
        ),
    ] = 1.0
    losses: ClassVar[LossRequirement] = LossRequirement(quadratic=True, numeric=False)
    """The losses for which a step on the grid is proven to raise D."""
    state_type: ClassVar[type[DCDState]] = MPUState

    def _visit_rows(
        self, state: DCDState, block: Block, rows: Int32, box: Box, bounds: ShrinkingThresholds
    ) -> SweepResult:
        assert isinstance(state, MPUState)
        if state.spacing == 0.0:
            state.spacing = self.accuracy * step_for_unit_margin(state, block, rows)
        steps = MPUSteps(state.spacing or 1.0, self.multiplicity)
        learned = mpu_pass(block.labeled, rows, box, steps, block.rows[DUAL], state.w)
        state.hidden += learned.hidden
        return SweepResult(learned.moved, learned.losses, 0.0, 0.0)

    def finish(self, state: DCDState) -> Certificate:
        """End the pass. After a training pass, refine the grid if it accounts for too much of the gap."""
        assert isinstance(state, MPUState)
        trains = state.warm_sums is None and not state.certifying
        hidden, certificate = state.hidden, DualAscent.finish(self, state)
        allowed = HIDDEN_SHARE * (certificate.primal - certificate.dual)
        if trains and hidden > allowed:
            state.spacing /= min(MAX_REFINEMENT, hidden / allowed) if allowed > 0.0 else MAX_REFINEMENT
        return certificate


@dataclass(frozen=True, slots=True)
class MultinomialDCD(DualAscent):
    """Dual coordinate descent for a multinomial problem: one problem for all classes.

    ``compute.passes.dcd.multinomial_sweep`` defines the problem and the step. Averaging, evaluation and merging treat
    W (K, p) as one long vector w. The K dual variables a_ik of a row are stored with the row. The gap is the sum over
    rows of the gaps of their simplices,

        P(W) - D(a) = sum_i [C_i l(m_i) + conjugate(b_i) - b_i + sum_k a_ik w_k.x_i],     W = sum_i a_i x_i',

    each of which is 0 or more. Lacoste-Julien et al., ICML 2013, have this gap for each block; here it is computed from
    sums over all rows. In a warm start b_i of a row is the negative slope of the loss at its margin, and the class with
    the next largest decision value gets -b_i. With several parts, a group proposes a move, but no shift.
    """

    classes: int = 2
    losses: ClassVar[LossRequirement] = LossRequirement(quadratic=True, numeric=False)
    """Losses with a quadratic conjugate: the dual variables of a row are then the root of a piecewise linear
    function."""

    @property
    def row_state(self) -> tuple[RowState, ...]:
        """The dual variables a_ik of each row and class; with several parts also those at the start of the pass."""
        return tuple(RowState(name, "float64", self.classes) for name in self.row_names())

    def cost(self, problem: Problem, layout: Layout) -> Cost:
        """Estimate the memory: weights of all classes, dual variables for each row and class, and the decision values
        of a block.
        """
        return replace(DualAscent.cost(self, problem, layout), per_block_row=3 * 8 * self.classes)

    def losses_at(self, problem: Problem, block: Block, w: Float64) -> float:
        """Return sum C_i l(m_i) of a block at w (components,)."""
        values = decision_values(block, w, self.classes)
        return multinomial_loss_sum(values, block.y, block.s, problem.C, problem.loss)

    def dual_gain(self, problem: Problem, block: Block) -> float:
        """Return sum b_i - conjugate(b_i) of a block."""
        return multinomial_dual_sum(block.rows[DUAL], block.y, block.s, problem.C, problem.loss)

    def _visit_rows(
        self, state: DCDState, block: Block, rows: Int32, box: Box, bounds: ShrinkingThresholds
    ) -> SweepResult:
        W = state.w.reshape(self.classes, -1)
        return multinomial_sweep(block.labeled, rows, len(rows), box, block.rows[DUAL], W)

    def warm_start_rows(self, state: DCDState, warm_sums: PointSums, block: Block) -> None:
        """Set the dual variables of a block from the slopes of the loss at the warm-start weights, and add the block to
        the sums for P and D.
        """
        p, own = state.problem, block.y.astype(np.int32)
        m, following = margins_to_next(decision_values(block, state.w, self.classes), own)
        slopes, second_derivatives = np.empty(len(m)), np.empty(len(m))
        ones = np.ones_like(block.y)
        sums = slopes_pass(ones, block.s, m, RowLoss(p.C, p.loss, slopes_of(p.loss)), slopes, second_derivatives)
        alpha, rows = block.rows[DUAL], np.arange(len(m))
        alpha[:] = 0.0
        alpha[rows, following], alpha[rows, own] = -slopes, slopes
        warm_sums.v += operators.adjoint(block.X, alpha, p.columns).T.ravel()
        warm_sums.sums = warm_sums.sums.plus(sums)

    def apply_steps(self, joint: Joint, problem: Problem, block: Block) -> None:
        """Set the dual variables of a block by the step length that was chosen at the end of the last pass."""
        move = float(joint.steps[block.chunk % len(joint.steps)][0])
        if move != AS_PROPOSED[0]:
            alpha, before = block.rows[DUAL], block.rows["before"]
            alpha[:] = before + move * (alpha - before)

    def add_proposals(self, joint: Joint, problem: Problem, block: Block) -> None:
        """Add the move of the rows of a block to the sums of the direction."""
        alpha, before = block.rows[DUAL], block.rows["before"]
        rows, own = np.arange(len(block.y)), block.y.astype(int)
        C = np.where(block.s > 0.0, problem.C * block.s.astype(np.float64), 1.0)  # rows of weight 0 stay at 0
        b, move = before[rows, own], alpha[rows, own] - before[rows, own]
        loss: Any = problem.loss  # its functions take arrays as well as numbers
        joint.dual += float(np.sum(b - loss.conjugate(b, C)))
        joint.linear[0] += move @ (1.0 - loss.conjugate_slope(b, C) * np.ones(len(C)))
        joint.quadratic[0, 0] -= 0.5 * (move * loss.curvature(C)) @ move
        joint.vectors[0] += operators.adjoint(block.X, alpha - before, problem.columns).T.ravel()


# -- joining the proposals of parallel workers


def start_joint(parts: int, w: Float64, sigma: float) -> Joint:
    """Return the shared start of copies that all begin at w, with rows whose dual variables need no change."""
    return Joint(sigma, w.copy(), np.tile(AS_PROPOSED, (parts, 1)), np.zeros((2, len(w))))


def join_proposals(copies: list[Joint]) -> tuple[Float64, float, Joint]:
    """Maximize D over the step lengths of the groups.

    Return w and sum a_i - conjugate(a_i) at the maximum, and the shared start of the next pass.
    """
    parts, first = len(copies), copies[0]
    vectors = np.concatenate([copy.vectors for copy in copies])
    linear = np.concatenate([copy.linear for copy in copies])
    quadratic = np.zeros((2 * parts, 2 * parts))
    for k, copy in enumerate(copies):
        quadratic[2 * k : 2 * k + 2, 2 * k : 2 * k + 2] = copy.quadratic
    lowest = np.tile([0.0, -1.0], parts)
    t = maximize_steps(linear - vectors @ first.origin, vectors @ vectors.T - 2.0 * quadratic, lowest)
    dual = sum(copy.dual for copy in copies) + float(linear @ t + t @ quadratic @ t)
    w, steps = first.origin + t @ vectors, t.reshape(parts, 2)
    sigma, mean = first.sigma, float(steps[:, 0].mean())
    if mean > LONG_STEPS:
        sigma = max(1.0, SIGMA_DECREASE * sigma)
    elif mean < SHORT_STEPS:
        sigma = min(float(parts), SIGMA_INCREASE * sigma)
    return w, dual, Joint(sigma, w.copy(), steps, np.zeros_like(first.vectors))


def maximize_steps(gradient: Float64, matrix: Float64, lowest: Float64) -> Float64:
    """Return the t in [lowest, 1] that maximizes gradient.t - 1/2 t' matrix t, by coordinate ascent from 0."""
    t = np.zeros(len(gradient))
    for _ in range(MAX_SWEEPS):
        moved = 0.0
        for r in np.flatnonzero(np.diag(matrix) > 0.0).tolist():
            target = t[r] + (gradient[r] - matrix[r] @ t) / matrix[r, r]
            target = min(1.0, max(lowest[r], target))
            moved, t[r] = max(moved, abs(target - t[r])), target
        if moved <= STEP_TOLERANCE:
            break
    return t


def boxes_of_rows(problem: Problem, block: Block) -> tuple[Float64 | float, Float64 | float]:
    """Return the lower and upper ends of the boxes of a block's dual variables: (n,), or a number if infinite or 0."""
    if not has_box(problem.loss):
        return (-np.inf if problem.loss.numeric() else 0.0), np.inf
    C = problem.C * block.s.astype(np.float64)
    return lower(problem.loss, 1.0) * C, problem.loss.upper(1.0) * C


def shift_direction(problem: Problem, block: Block) -> Float64:
    """Return the shift (n,); 0 if the conjugate is not quadratic, since D could then fall along it."""
    alpha, before, (bottom, top) = block.rows[DUAL], block.rows["before"], boxes_of_rows(problem, block)
    if not problem.loss.quadratic():
        return np.zeros(len(alpha))
    below, above = np.minimum(alpha, before), np.maximum(alpha, before)
    room = np.minimum(np.minimum(below - bottom, top - above), SHIFT_SHARE * problem.C * block.s.astype(np.float64))
    if problem.loss.numeric():  # the conjugate has a kink at 0, which the shift must not cross
        room = np.minimum(room, np.maximum(below, -above))
    direction: Float64 = np.maximum(room, 0.0) * problem.kind.signs(block.y)
    return direction


# -- helpers of MPU and multinomial DCD


def step_for_unit_margin(state: MPUState, block: Block, rows: Int32) -> float:
    """Return the step that changes the margin of a row by 1, from the mean of ||x_i||^2 weighted by s_i^2; 0 if no row
    has a positive weight.
    """
    loss, s = state.problem.loss, block.s[rows].astype(np.float64)
    squares, _ = gradient_moments(block.labeled, rows, loss, np.zeros_like(state.w))
    return loss.slope(0.0) ** 2 * float(s @ s) / squares if squares > 0.0 else 0.0


def decision_values(block: Block, w: Float64, classes: int) -> Float64:
    """Return the decision values w_k.x_i (n, classes) for w (classes * (columns + 1),)."""
    return operators.margins(block.X, w.reshape(classes, -1).T)
