"""Dual coordinate descent, streamed: DCD, the margin perceptron MPU, and DCD for all classes in one problem.

The solvers of this module raise D one dual variable, or one row, at a time, by the steps of ``compute.passes.dcd`` and
``compute.passes.margin_perceptron``. Dual variables are stored with their rows. Hsieh et al., ICML 2008; by blocks as in
Yu et al., KDD 2010: a visit sweeps a block a few times, shrinking, while it is in memory. The dual value is exact after
every pass, because a block's part of it changes only when the block is visited.

**The primal** converges later. w is biased towards the rows visited last: until alpha has converged P(w) may be several
1e-3 above the optimum when the dual is within 1e-4 of it. The mean of w over a pass is less biased (Shalev-Shwartz and
Zhang, JMLR 2013, theorem 2), a mean over many passes that favors the late ones still less (Shamir and Zhang, ICML 2013,
section 4, with eta = 3); once alpha has converged w itself is best. All three are candidates, and the best is the
solution. A training pass only estimates the primal, from the losses at each row's visit; when the estimated gap is within
the tolerance, a pass evaluates the candidates.

**Warm start** from weights w_0. The first pass evaluates them and sets each a_i to the slope of the loss at w_0, of a
loss with a slightly rounded corner where there is one. Descent starts from t a, with the t that makes the dual largest,
and w = t sum a_i y_i x_i: never worse than a = 0, and the better the closer w_0 is to the optimum.

**Shrinking from pass to pass** (``DCD.shrinking``). With G_i the gradient of -D along a_i, and M, m the largest and
least projected gradient of a pass,

    a_i = 0 and G_i > M-bar,    or    a_i = upper and G_i < m-bar,

removes row i from the passes, M-bar and m-bar being M and m of the pass before (inf and -inf where M <= 0, m >= 0). Once
M - m is less than the tolerance all rows come back: Hsieh et al., algorithm 3, and LIBLINEAR. A removed row keeps its
dual variable and, in the estimate of the primal, its loss at the last visit. That estimate becomes outdated: unlike in
the paper, all rows are also visited at growing intervals, and after an evaluation whose gap was too large.

**Many workers at once**, each on its rows and a copy of w: CoCoA+ (Ma et al., ICML 2015). The rows are in K groups,
whose copies change at the same time, by dw_k each. As ||sum_k dw_k||^2 <= K sum_k ||dw_k||^2, the dual rises by at least
the sum of the rises of K separate problems in which sigma ||dw_k||^2, sigma = K, replaces ||dw_k||^2.
Coordinate descent solves such a problem on u = w + sigma dw_k: the gradient of a_i is y_i u.x_i - 1 + conjugate'(a_i),
its curvature sigma ||x_i||^2 + conjugate'', and u moves by sigma delta y_i x_i.

That bound is too pessimistic where rows of different groups have little in common. Here sigma may be smaller, because
the step of each group is computed instead of bounded. Each group k proposes two directions: its move, and

    d_i = y_i min(distance of a_i, before and after the move, from its box; SHIFT_SHARE C_i).

The second direction corrects features that all groups share, the constant feature above all: where sum a_i y_i is too
large in one group and too small in another, the errors cancel in w, and no group corrects its own.
With v_r = sum_i (direction r)_i y_i x_i over all 2 K directions, and linear and quadratic terms of the conjugates,

    D(a + sum_r t_r direction_r) = D(a) + linear.t + t' quadratic t - w.sum_r t_r v_r - 1/2 ||sum_r t_r v_r||^2

is known exactly from 2 K vectors, and is maximized over 0 <= t <= 1 for moves, -1 <= t <= 1 for second directions: all
these points are in the box. Where a move crosses a corner of the conjugate, or the conjugate is no parabola, the formula
is a lower bound, exact at t = 0 and 1, because the conjugate is convex. The second direction crosses no corner. The dual
never falls, whatever sigma; sigma is raised, up to K, where steps are short, and lowered where they are long.
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
    Held,
    Swept,
    dcd_sweep,
    multinomial_dual_sum,
    multinomial_loss_sum,
    multinomial_sweep,
    proposals_pass,
    row_costs,
)
from streamsvm.compute.passes.margin_perceptron import Steps, mpu_pass
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
"""Rows between two samples of w for the mean, and between two looks at the clock."""
AVERAGING_POWER = 3
"""eta of the mean over passes: pass t has a weight of about t^eta."""
EVALUATION_SPACING = 1.25
"""After a failed evaluation the next one waits until there are this many times as many passes."""
WAKING_SPACING = 1.5
"""Shrinking: all rows are visited when there are this many times as many passes as when they last were."""
RESTING = "resting"
"""The per-row state of shrinking: 0 for a row that is visited, else 1 + the loss it had when it was taken out."""
SHIFT_SHARE = 0.05
"""The second direction of a group moves a dual variable by at most this share of C_i."""
AS_PROPOSED = (1.0, 0.0)
"""The steps of a group that has gone exactly where it proposed to."""
LONG_STEPS, SHORT_STEPS = 0.9, 0.5
"""Mean steps above and below which sigma changes."""
SIGMA_DECREASE, SIGMA_INCREASE = 0.8, 1.25
"""The factors by which it changes."""
MAX_SWEEPS, STEP_TOLERANCE = 1000, 1e-12
"""Sweeps over the 2 K steps at most, and the largest change of a step at which they end."""
HIDDEN_SHARE = 0.25
"""MPU: the share of the gap that the grid of dual variables may hide."""
FINER = 8.0
"""MPU: the grid is made finer by at most this factor after a pass."""


# -- state


@saved_as("dcd.shrinking")
@dataclass(slots=True)
class Shrinking:
    """The bounds of this pass, and the projected gradients of which the next pass has its bounds."""

    above: float = np.inf
    """M-bar."""
    below: float = -np.inf
    """m-bar."""
    highest: Largest[float] = -np.inf
    """M of the rows visited so far."""
    lowest: Smallest[float] = np.inf
    """m of the rows visited so far."""
    waking: bool = True
    """Whether this pass visits all rows."""
    passes: int = 0
    """Passes that were closed."""
    next_waking: float = 2.0
    """All rows are visited at this pass at the latest."""

    @property
    def held(self) -> Held:
        """The bounds beyond which the first sweep of a visit takes rows out."""
        return Held(self.above, self.below)

    def active_rows(self, block: Block) -> Int32:
        """Return the rows of the block to visit, in their order: those not removed, or all where the pass visits all."""
        if self.waking:
            block.rows[RESTING][:] = 0.0
        return block.order[block.rows[RESTING][block.order] == 0.0]

    def extend(self, highest: float, lowest: float) -> None:
        """Include the projected gradients of some rows."""
        self.highest, self.lowest = max(self.highest, highest), min(self.lowest, lowest)

    def finish(self, tolerance: float) -> None:
        """Close a pass that trained: its M and m are the bounds of the next."""
        self.passes += 1
        agreed = self.highest - self.lowest < tolerance
        self.above = self.highest if self.highest > 0.0 else np.inf
        self.below = self.lowest if self.lowest < 0.0 else -np.inf
        self.highest, self.lowest, self.waking = -np.inf, np.inf, False
        if agreed or self.passes >= self.next_waking:
            self.next_waking = WAKING_SPACING * self.passes
            self.wake()

    def wake(self) -> None:
        """Let the next pass visit all rows."""
        self.above, self.below, self.waking = np.inf, -np.inf, True


@saved_as("cocoa.joint")
@dataclass(slots=True)
class Joint:
    """CoCoA+: what the copies of a state share at the start of a pass, and the two directions a copy proposes."""

    sigma: float
    """How much a group must allow for the others, from 1 to K: the factor of the curvature of its coordinates."""
    origin: Float64
    """(p,) w at the beginning."""
    steps: Float64
    """(K, 2) the steps of each group along its two proposals of the last pass; rows move when they are next visited."""
    vectors: Own[Float64]
    """(2, p) v of the copy's own directions."""
    dual: Own[float] = 0.0
    """sum a_i - conjugate(a_i) at the beginning."""
    linear: Own[Float64] = field(default_factory=lambda: np.zeros(2))
    """(2,): the slope of sum a_i - conjugate(a_i) along each of the copy's directions; summed by ``add_proposals``."""
    quadratic: Own[Float64] = field(default_factory=lambda: np.zeros((2, 2)))
    """(2, 2) its second order, -1/2 sum_i conjugate''_i d_i d_i', d_i (2,) the part of row i in both directions."""


@saved_as("dcd.state")
@dataclass(slots=True)
class DCDState:
    """``w`` (columns + 1,) float64 is always sum a_i y_i x_i; the sums are those of the pass under way."""

    problem: Problem
    w: Own[Float64]
    mean: Own[Float64]
    """Mean of w over the last training pass; during one, the sum of ``samples`` values of w."""
    tail: Float64
    """Mean over all passes, the late ones weighing more."""
    best: Float64
    """The candidate of least exact primal so far, which is the solution."""
    samples: Total[int] = 0
    """How many values of w are in ``mean`` while a pass is under way; 0: none yet."""
    dual: float = 0.0
    """D after the last training pass, exact."""
    certifying: bool = False
    """Whether the pass evaluates the three candidates and trains nothing."""
    passes: int = 0
    """Training passes that were closed."""
    next_check: float = 0.0
    """No evaluation before this number of training passes, after one that failed."""
    duals: Total[float] = 0.0
    """sum a_i - conjugate(a_i) over the rows visited in the pass."""
    losses: Total[float] = 0.0
    """sum C s_i l(m_i), each row with the w at its first visit in the pass: an estimate."""
    evaluated: Total[Float64] = field(default_factory=lambda: np.zeros(3))
    """Losses of w, mean and tail in a pass that evaluates."""
    primal: float = np.inf
    """P of ``best``."""
    warm_sums: Total[PointSums | None] = None
    """Sums over the first pass of a warm start."""
    scale: float = 1.0
    """The factor by which alpha is still to be multiplied, row by row."""
    joint: Own[Joint | None] = None
    """The common start and the proposals of several copies of the state; None: there is one."""
    shrinking: Total[Shrinking | None] = None
    """The bounds of shrinking; None: all rows are visited in all passes."""

    @property
    def candidates(self) -> tuple[Float64, Float64, Float64]:
        """The three weights that a pass evaluates: w, its mean over the last pass, its mean over all."""
        return self.w, self.mean, self.tail


@saved_as("mpu.state")
@dataclass(slots=True)
class MPUState(DCDState):
    """The state of ``DCD``, and the grid of dual variables."""

    length: Own[float] = 0.0
    """eta, the distance of two points of the grid; 0: no row has been visited."""
    hidden: Total[float] = 0.0
    """What the rows that did not move in this pass hide of P - D."""


# -- the solvers


@dataclass(frozen=True, slots=True)
class DualAscent(Solver[DCDState]):
    """Passes, candidates, warm starts and many workers of all solvers that raise D row by row;
    ``_pass`` is the step.
    """

    sweeps: Annotated[
        int,
        Option(
            "Sweeps over the rows of a block in one visit. 0: once where blocks stay in memory, because then "
            "more visits are better than longer ones; else three times.",
            bounds=Bounds(least=0),
        ),
    ] = 0
    parts: Annotated[
        int,
        Option(
            "Groups of rows worked on side by side, each on a copy of the state; see --groups.", bounds=Bounds(least=1)
        ),
    ] = 1
    shuffled: ClassVar[bool] = True
    losses: ClassVar[LossRequirement] = LossRequirement()
    """Any: the optimum of one dual variable has a closed form, or is the root of a function of one number."""
    state_type: ClassVar[type[DCDState]] = DCDState
    has_candidates: ClassVar[bool] = True
    warm_start: ClassVar[bool] = True

    @property
    def row_state(self) -> tuple[RowState, ...]:
        """The dual variables; with parts also those at the start of the pass."""
        return tuple(RowState(name, "float64") for name in self.row_names())

    def row_names(self) -> tuple[str, ...]:
        """Return the names of the per-row states, all float64."""
        return (DUAL,) if self.parts == 1 else (DUAL, "before")

    def in_parts(self, parts: int) -> Self:
        return replace(self, parts=parts)

    def cost(self, problem: Problem, layout: Layout) -> Cost:
        """Count four vectors of weights, eight with parts, and the per-row states."""
        fixed = (4 if self.parts == 1 else 8) * 8 * problem.components
        return Cost(fixed=fixed, per_row=sum(state.nbytes for state in self.row_state))

    def start(self, problem: Problem) -> DCDState:
        """Begin at a = 0, or with a first pass that turns the warm weights into dual variables."""
        w = problem.first_weights()
        warm_sums = None if problem.warm is None else PointSums(len(w))
        joint = None if self.parts == 1 else start_joint(self.parts, w, self.parts / 2)
        return self.state_type(problem, w, w.copy(), w.copy(), w.copy(), warm_sums=warm_sums, joint=joint)

    def visit(self, state: DCDState, block: Block) -> None:
        """Sweep the rows of the block, changing ``alpha`` and w; or evaluate the candidates, where the pass is for
        that.
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
        """Move the rows of a block as far as was decided at the end of the last pass. Group k has the chunks k, k + K,
        ...
        """
        move, shift = joint.steps[block.chunk % len(joint.steps)].tolist()
        if (move, shift) != AS_PROPOSED:
            alpha, before = block.rows[DUAL], block.rows["before"]
            bottom, top = box_of_rows(problem, block)
            target = before + move * (alpha - before) + shift * common_direction(problem, block)
            np.clip(target, bottom, top, out=alpha)  # only rounding is clipped: the point is in the box

    def add_proposals(self, joint: Joint, problem: Problem, block: Block) -> None:
        """Add the two proposals of the rows of a block."""
        alpha, before = block.rows[DUAL], block.rows["before"]
        ways = np.column_stack([alpha - before, common_direction(problem, block)])
        joint.dual += dual_sum(before, block.y, block.s, problem.C, problem.loss)
        cost = RowLoss(problem.C, problem.loss, problem.loss)
        proposals_pass(block.y, block.s, cost, before, ways, joint.linear, joint.quadratic)
        joint.vectors += operators.adjoint(block.X, ways * problem.kind.signs(block.y)[:, None], problem.columns).T

    def losses_at(self, problem: Problem, block: Block, w: Float64) -> float:
        """Return sum C_i l(m_i) of a block at w (components,)."""
        return loss_sum(block.X, block.y, block.s, w, problem.C, problem.loss)

    def gain(self, problem: Problem, block: Block) -> float:
        """Return sum a_i - conjugate(a_i) of a block."""
        return dual_sum(block.rows[DUAL], block.y, block.s, problem.C, problem.loss)

    def warm_start_rows(self, state: DCDState, warm_sums: PointSums, block: Block) -> None:
        """Give the rows of a block the dual variables that slopes at the warm weights are, and evaluate both."""
        p, slopes, second_derivatives = state.problem, np.empty(len(block.y)), np.empty(len(block.y))
        smooth = slopes_of(p.loss)
        f = warm_sums.add(p, smooth, block, state.w)
        slopes_pass(block.y, block.s, f, RowLoss(p.C, p.loss, smooth), slopes, second_derivatives)
        block.rows[DUAL][:] = slopes * p.kind.signs(block.y)

    def _evaluate(self, state: DCDState, block: Block) -> None:
        for k, w in enumerate(state.candidates):
            state.evaluated[k] += self.losses_at(state.problem, block, w)

    def _train(self, state: DCDState, block: Block) -> None:
        if state.samples == 0:
            state.mean[:] = 0.0
        active = block.order
        for sweep in range(self.sweeps or (1 if block.cached else 3)):
            active = self.to_visit(block, active, sweep)
            if sweep == 0 and state.shrinking is not None:
                active = self.sweep_shrunk(state, state.shrinking, block)
            else:
                swept = self.sweep(state, block, active, Held())
                active = active[: swept.left]
                if sweep == 0:
                    state.losses += swept.losses
            if len(active) == 0:
                break
        state.duals += self.gain(state.problem, block)

    def to_visit(self, block: Block, active: Int32, sweep: int) -> Int32:
        """Return the rows of a sweep in the order of their visits: those still active, shuffled."""
        if sweep:
            shuffle(active, len(active), block.seed + sweep)
        return active

    def sweep_shrunk(self, state: DCDState, shrinking: Shrinking, block: Block) -> Int32:
        """Visit the rows that shrinking has not removed, and remove some; of those removed before, count the loss they
        had then. Return the rows for further sweeps.
        """
        active = shrinking.active_rows(block)
        if len(active) == 0:  # in a pass without a row the mean of w is w
            state.mean += state.w
            state.samples += 1
        resting = block.rows[RESTING]
        state.losses += float((resting - 1.0)[resting > 0.0].sum())
        held = np.zeros(len(block.y), np.bool_)
        held[active] = True
        swept = self.sweep(state, block, active, shrinking.held)
        held[active[: swept.left]] = False
        state.losses += swept.losses
        shrinking.extend(swept.highest, swept.lowest)
        cost = RowLoss(state.problem.C, state.problem.loss, state.problem.loss)
        row_costs(block.labeled, np.flatnonzero(held).astype(np.int32), state.w, cost, resting)
        return active[: swept.left]

    def sweep(self, state: DCDState, block: Block, active: Int32, held: Held) -> Swept:
        """Sweep the rows slice by slice; those still active come to the front of ``active``."""
        p, left, losses, highest, lowest = state.problem, 0, 0.0, -np.inf, np.inf
        box = Box(p.C, p.loss, 1.0 if state.joint is None else state.joint.sigma)
        for start in range(0, len(active), ROWS_PER_SAMPLE):
            part = active[start : start + ROWS_PER_SAMPLE]
            swept = self._pass(state, block, part, box, held)
            active[left : left + swept.left] = part[: swept.left]
            left, losses = left + swept.left, losses + swept.losses
            highest, lowest = max(highest, swept.highest), min(lowest, swept.lowest)
            state.mean += state.w
            state.samples += 1
        return Swept(left, losses, highest, lowest)

    def _pass(self, state: DCDState, block: Block, rows: Int32, box: Box, held: Held) -> Swept:
        """Visit rows one by one, moving ``alpha`` and w; the rows still active come to the front of ``rows``."""
        raise NotImplementedError

    def finish(self, state: DCDState) -> Certificate:
        """Close the pass: the dual is exact, the primal an estimate unless the pass evaluated."""
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
        share = (AVERAGING_POWER + 1) / (state.passes + AVERAGING_POWER)
        state.tail += share * (state.mean - state.tail)
        certificate = Certificate(half + state.losses, state.dual, exact=False)
        state.certifying = certificate.gap <= state.problem.tolerance and state.passes >= state.next_check
        clear_totals(state)
        return certificate

    def _finish_warm_start(self, state: DCDState, warm_sums: PointSums) -> Certificate:
        found = warm_sums.close(state.problem, state.w)
        state.best[:], state.primal, state.dual = state.w, found.primal, found.dual
        state.scale = best_scale(state.problem.loss, found.sums.linear, found.sums.quadratic, float(found.v @ found.v))
        for w in state.candidates:
            w[:] = state.scale * found.v
        state.warm_sums = None
        if state.joint is not None:
            state.joint = start_joint(self.parts, state.w, state.joint.sigma)
        return Certificate(found.primal, found.dual)

    def _finish_evaluation(self, state: DCDState) -> Certificate:
        primals = [0.5 * float(w @ w) + losses for w, losses in zip(state.candidates, state.evaluated, strict=True)]
        best = int(np.argmin(primals))
        if primals[best] < state.primal:
            state.best[:], state.primal = state.candidates[best], primals[best]
        if state.shrinking is not None:  # the gap may not be as small as it seemed
            state.shrinking.wake()
        state.next_check = EVALUATION_SPACING * state.passes
        state.certifying = False
        clear_totals(state)
        return Certificate(state.primal, state.dual)

    def certify(self, state: DCDState) -> None:
        """Let the next pass evaluate the three candidates and train nothing."""
        state.certifying = state.warm_sums is None  # which is an evaluation anyway

    def merge(self, states: list[DCDState]) -> DCDState:
        """Merge the copies of one state, one for each of the ``parts``, at the end of a pass.

        A pass either turns warm weights into dual variables, or evaluates candidates, or moves. The first two only sum
        up. After the third the groups go as far as is best for the dual, and the mean of w is that of their means.
        """
        if len(states) == 1:
            return states[0]
        assert len(states) == self.parts, f"{len(states)} copies of a state made for {self.parts}"
        joints = [state.joint for state in states if state.joint is not None]
        mean = np.asarray(sum(state.mean / max(state.samples, 1) for state in states) / len(states))
        merged = merge_states(states)
        if merged.warm_sums is not None:
            return merged
        if merged.certifying:  # the next pass begins where this one did
            merged.joint = start_joint(len(states), merged.w, joints[0].sigma)
        else:
            merged.w, merged.duals, merged.joint = join_proposals(joints)
            merged.mean, merged.samples = mean, 1
        return merged

    def candidate(self, state: DCDState) -> Float64:
        """Return the mean over passes."""
        return state.problem.kind.shape(state.tail).copy()

    def solution(self, state: DCDState) -> LinearSolution:
        """Return the best of the weights that were evaluated so far."""
        return LinearSolution(state.problem.kind.shape(state.best).copy(), state.problem.bias)


@dataclass(frozen=True, slots=True)
class DCD(DualAscent):
    """Settings of dual coordinate descent."""

    shrinking: Annotated[
        bool,
        Option(
            "Let rows that are held at a bound stay out of further passes too, as LIBLINEAR does: visits get shorter, readings "
            "are about as many. A number more per row."
        ),
    ] = False
    online: Annotated[
        bool,
        Option(
            "Draw rows one by one with replacement out of each block, as many as it has, instead of visiting each once: the "
            "paper's online setting."
        ),
    ] = False

    def row_names(self) -> tuple[str, ...]:
        return (*DualAscent.row_names(self), *((RESTING,) if self.shrinking else ()))

    def start(self, problem: Problem) -> DCDState:
        state = DualAscent.start(self, problem)
        state.shrinking = Shrinking() if self.shrinking else None
        return state

    def to_visit(self, block: Block, active: Int32, sweep: int) -> Int32:
        """Return the rows still active, shuffled; or, online, as many rows as there are, drawn with replacement."""
        if not self.online:
            return DualAscent.to_visit(self, block, active, sweep)
        rows = len(block.order)
        block.order[:] = np.random.default_rng((block.seed, sweep)).integers(rows, size=rows)
        return block.order

    def _pass(self, state: DCDState, block: Block, rows: Int32, box: Box, held: Held) -> Swept:
        return dcd_sweep(block.labeled, rows, len(rows), box, held, block.rows[DUAL], state.w)


@dataclass(frozen=True, slots=True)
class MPU(DualAscent):
    """The margin perceptron with unlearning: dual variables in steps of one length, on a grid made finer as the gap
    closes.

    Panagiotakopoulos and Tsampouka, ICML 2010, as ``compute.passes.margin_perceptron`` derives it; the SGD paper
    (arXiv:1304.6383) compares with it. The counts of updates are dual variables. The paper chooses the margin b = 1 /
    eta before the run, for an accuracy it proves. Here eta begins at 1 / mean ||x_i||^2, a step that moves a row's
    margin by about 1 (``accuracy`` times as fine where that is asked for), and is divided by up to ``FINER`` after
    passes in which rows that did not move hide more than ``HIDDEN_SHARE`` of the gap. With weights a row's box is [0,
    upper(C s_i)].
    """

    multiplicity: Annotated[
        int, Option("How many updates of the same row at most are made in one.", bounds=Bounds(least=1))
    ] = 5
    accuracy: Annotated[
        float,
        Option(
            "The paper's choice before the run: a first update moves the margin of a row by about this much. Updates become finer "
            "as the gap closes.",
            bounds=Bounds(above=0),
        ),
    ] = 1.0
    losses: ClassVar[LossRequirement] = LossRequirement(quadratic=True, numeric=False)
    """The losses for which a step on the grid is known to raise D."""
    state_type: ClassVar[type[DCDState]] = MPUState

    def _pass(self, state: DCDState, block: Block, rows: Int32, box: Box, held: Held) -> Swept:
        assert isinstance(state, MPUState)
        if state.length == 0.0:
            state.length = self.accuracy * step_for_unit_margin(state, block, rows)
        steps = Steps(state.length or 1.0, self.multiplicity)
        learned = mpu_pass(block.labeled, rows, box, steps, block.rows[DUAL], state.w)
        state.hidden += learned.hidden
        return Swept(learned.moved, learned.losses, 0.0, 0.0)

    def finish(self, state: DCDState) -> Certificate:
        """Close the pass; where it trained, and the grid hides too much, make the grid finer."""
        assert isinstance(state, MPUState)
        trains = state.warm_sums is None and not state.certifying
        hidden, certificate = state.hidden, DualAscent.finish(self, state)
        allowed = HIDDEN_SHARE * (certificate.primal - certificate.dual)
        if trains and hidden > allowed:
            state.length /= min(FINER, hidden / allowed) if allowed > 0.0 else FINER
        return certificate


@dataclass(frozen=True, slots=True)
class MultinomialDCD(DualAscent):
    """Dual coordinate descent for all classes in one problem.

    Problem and step: ``compute.passes.dcd.multinomial_sweep``. W (K, p) is one long vector w to what averages,
    certifies and joins; the numbers a_ik (K of each row) travel with their rows. The gap is the sum over rows of the
    gaps of their simplices,

        P(W) - D(a) = sum_i [C_i l(m_i) + conjugate(b_i) - b_i + sum_k a_ik w_k.x_i],     W = sum_i a_i x_i',

    each of them 0 or more: what Lacoste-Julien et al., ICML 2013, have block by block is here read off sums. In a warm
    start a row has the b_i that the slope at its margin is, all of it from the class that comes next. With parts, a
    group proposes its move alone: along it the dual is known from one vector.
    """

    classes: int = 2
    losses: ClassVar[LossRequirement] = LossRequirement(quadratic=True, numeric=False)
    """The losses whose conjugate is a parabola: the numbers of a row are then the root of a broken line."""

    @property
    def row_state(self) -> tuple[RowState, ...]:
        """A number a_ik of each row for each class; with parts also those at the start of the pass."""
        return tuple(RowState(name, "float64", self.classes) for name in self.row_names())

    def cost(self, problem: Problem, layout: Layout) -> Cost:
        """Count the weights of all classes, a number a row and class, and decision values while a block
        is evaluated.
        """
        return replace(DualAscent.cost(self, problem, layout), per_block_row=3 * 8 * self.classes)

    def losses_at(self, problem: Problem, block: Block, w: Float64) -> float:
        """Return sum C_i l(m_i) of a block at w (components,)."""
        values = decision_values(block, w, self.classes)
        return multinomial_loss_sum(values, block.y, block.s, problem.C, problem.loss)

    def gain(self, problem: Problem, block: Block) -> float:
        """Return sum b_i - conjugate(b_i) of a block."""
        return multinomial_dual_sum(block.rows[DUAL], block.y, block.s, problem.C, problem.loss)

    def _pass(self, state: DCDState, block: Block, rows: Int32, box: Box, held: Held) -> Swept:
        W = state.w.reshape(self.classes, -1)
        return multinomial_sweep(block.labeled, rows, len(rows), box, block.rows[DUAL], W)

    def warm_start_rows(self, state: DCDState, warm_sums: PointSums, block: Block) -> None:
        """Give the rows of a block the dual variables that slopes at the warm weights are, and evaluate both."""
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
        """Move the rows of a block as far as was decided at the end of the last pass."""
        move = float(joint.steps[block.chunk % len(joint.steps)][0])
        if move != AS_PROPOSED[0]:
            alpha, before = block.rows[DUAL], block.rows["before"]
            alpha[:] = before + move * (alpha - before)

    def add_proposals(self, joint: Joint, problem: Problem, block: Block) -> None:
        """Add the move that the rows of a block propose."""
        alpha, before = block.rows[DUAL], block.rows["before"]
        rows, own = np.arange(len(block.y)), block.y.astype(int)
        C = np.where(block.s > 0.0, problem.C * block.s.astype(np.float64), 1.0)  # rows of weight 0 stay at 0
        b, way = before[rows, own], alpha[rows, own] - before[rows, own]
        loss: Any = problem.loss  # its functions of numbers are ones of arrays too
        joint.dual += float(np.sum(b - loss.conjugate(b, C)))
        joint.linear[0] += way @ (1.0 - loss.conjugate_slope(b, C) * np.ones(len(C)))
        joint.quadratic[0, 0] -= 0.5 * (way * loss.curvature(C)) @ way
        joint.vectors[0] += operators.adjoint(block.X, alpha - before, problem.columns).T.ravel()


# -- joining the proposals of several workers


def start_joint(parts: int, w: Float64, sigma: float) -> Joint:
    """Return the start of copies that all begin at w, with rows that need not be moved."""
    return Joint(sigma, w.copy(), np.tile(AS_PROPOSED, (parts, 1)), np.zeros((2, len(w))))


def join_proposals(copies: list[Joint]) -> tuple[Float64, float, Joint]:
    """Maximize the dual over how far each group goes.

    Return w and sum a_i - conjugate(a_i) there, and what every copy begins the next pass with.
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
    """Return the t in [lowest, 1] that maximizes gradient.t - 1/2 t' matrix t, coordinate by coordinate from 0."""
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


def box_of_rows(problem: Problem, block: Block) -> tuple[Float64 | float, Float64 | float]:
    """Return the lower and upper ends of the boxes of the rows of a block, (n,) where they are finite."""
    if not has_box(problem.loss):
        return (-np.inf if problem.loss.numeric() else 0.0), np.inf
    C = problem.C * block.s.astype(np.float64)
    return lower(problem.loss, 1.0) * C, problem.loss.upper(1.0) * C


def common_direction(problem: Problem, block: Block) -> Float64:
    """Return the second direction (n,); 0 where the conjugate is no parabola, as no step is known then by which D
    cannot fall.
    """
    alpha, before, (bottom, top) = block.rows[DUAL], block.rows["before"], box_of_rows(problem, block)
    if not problem.loss.quadratic():
        return np.zeros(len(alpha))
    below, above = np.minimum(alpha, before), np.maximum(alpha, before)
    room = np.minimum(np.minimum(below - bottom, top - above), SHIFT_SHARE * problem.C * block.s.astype(np.float64))
    if problem.loss.numeric():  # both sides of the corner at 0 are no one parabola
        room = np.minimum(room, np.maximum(below, -above))
    direction: Float64 = np.maximum(room, 0.0) * problem.kind.signs(block.y)
    return direction


# -- helpers of MPU and of all classes in one problem


def step_for_unit_margin(state: MPUState, block: Block, rows: Int32) -> float:
    """Return the step that moves the margin of a row by 1, from the mean of ||x_i||^2 weighted by s_i^2; 0: no row
    counts.
    """
    loss, s = state.problem.loss, block.s[rows].astype(np.float64)
    squares, _ = gradient_moments(block.labeled, rows, loss, np.zeros_like(state.w))
    return loss.slope(0.0) ** 2 * float(s @ s) / squares if squares > 0.0 else 0.0


def decision_values(block: Block, w: Float64, classes: int) -> Float64:
    """Return w_k.x_i, (n, classes), for w (classes * (columns + 1),)."""
    return operators.margins(block.X, w.reshape(classes, -1).T)
