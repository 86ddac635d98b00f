"""Newton's method in passes: value, gradient and Gauss-Newton matrix of one point a pass, a step at its end.

    min_w  P(w) = 1/2 ||w||^2 + sum_i C_i l(m_i),   grad = w - X' slopes,   Hessian = I + X' diag(bends) X

The first pass looks at w = 0 and puts a sample of rows aside; the sample's problem is solved to its optimum in memory,
and from there a few passes suffice. A hinge is rounded over a width 2 mu (``losses.Huber``), and mu falls from pass to
pass along the path of optima: at every point the slopes of the rounded loss are a feasible dual point, so that

    P - D = smoothing + 1/2 ||grad||^2,    smoothing = sum_i C_i (l(m_i) - b_i (1 - m_i)),   b_i = a_i / C_i

says what to do next: while the gradient is the larger part mu stays, else it falls. Every pass is a certificate.
References: Keerthi and DeCoste, JMLR 2005 (squared hinge); Chapelle, Neural Computation 2007 (rounding).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from streamsvm.compute import operators
from streamsvm.losses import Hinge, Huber
from streamsvm.rows import Float64
from streamsvm.solvers.evaluation import Evaluation, Found, Sample, minimise, newton_step
from streamsvm.types import Block, Certificate, Cost, Layout, LinearSolution, Problem, RowState

WIDTHS = (1.5, 0.5)
"""mu of the in-memory problems, one after the other."""
STEPS = np.array([0.01, 0.03, 0.1, 0.3, 0.6, 1.0])
"""Lengths tried in one pass where a full step may not pay."""
RETREAT = 0.3
SHORT = 0.1
FALL = 0.2
"""mu falls to this share of itself in one pass at the most."""
CAREFUL = 4
"""Up to this pass lengths are always tried."""


@dataclass(slots=True)
class NewtonState:
    """``point`` = base + length * step is what the pass under way evaluates; all float64 (columns + 1,)."""

    problem: Problem
    base: Float64
    step: Float64
    evaluation: Evaluation
    sample: Sample | None
    best: Float64
    mu: float = 0.0
    """Half the rounded width; 0 where the loss is smooth by itself."""
    length: float = 1.0
    value: float = np.inf
    """The rounded objective at the base."""
    trials: Float64 | None = None
    """Rounded objectives at STEPS, where lengths are being tried."""
    primal: float = np.inf
    dual: float = -np.inf
    careful: bool = True
    passes: int = 0

    @property
    def point(self) -> Float64:
        return self.base + self.length * self.step

    @property
    def smooth(self) -> Any:
        return Huber(self.mu) if self.mu else self.problem.loss


@dataclass(frozen=True, slots=True)
class Newton:
    """Settings. ``sample`` rows are solved in memory first; ``share`` of the violators make the Hessian."""

    sample: int = 20_000
    share: float = 1.0
    row_state: ClassVar[tuple[RowState, ...]] = ()
    shuffled: ClassVar[bool] = False
    losses: ClassVar[tuple[str, ...]] = ("hinge", "squared_hinge", "huber")

    def cost(self, problem: Problem, layout: Layout) -> Cost:
        p = problem.columns + 1
        row = 4 * p if layout.dense else 8 * (sum(layout.nonzeros or ()) // max(1, layout.rows)) + 16
        matrices = 3 * 8 * p * p + operators.gram_bytes(p)
        return Cost(fixed=matrices + 8 * 8 * p + self._rows(problem) * row * 2, per_block_row=48)

    def _rows(self, problem: Problem) -> int:
        return min(problem.rows, max(self.sample, 20 * (problem.columns + 1)))

    def start(self, problem: Problem) -> NewtonState:
        zero = np.zeros(problem.columns + 1)
        mu = WIDTHS[0] if isinstance(problem.loss, Hinge) else 0.0
        sample = Sample(self._rows(problem) / problem.rows)
        return NewtonState(problem, zero, zero.copy(), Evaluation(zero.size), sample, zero.copy(), mu)

    def visit(self, state: NewtonState, block: Block) -> None:
        share = self.share if state.sample is None else min(self.share, 0.1)
        state.evaluation.add(state.problem, state.smooth, block, state.point, share)
        if state.sample is not None:
            state.sample.add(block)
        if state.trials is not None:
            state.evaluation.try_steps(state.problem, state.smooth, block, state.base, state.step, STEPS, state.trials)

    def finish(self, state: NewtonState) -> Certificate:
        found, point = state.evaluation.close(state.problem, state.smooth, state.point), state.point
        state.passes += 1
        if found.primal < state.primal:
            state.primal, state.best = found.primal, point
        state.dual = max(state.dual, found.dual)
        if state.sample is not None:
            self._solve_sample(state, state.sample)
        else:
            self._advance(state, found, point)
        state.evaluation.clear()
        return Certificate(state.primal, state.dual)

    def _solve_sample(self, state: NewtonState, sample: Sample) -> None:
        """Start from the sample's optimum; the next pass evaluates it."""
        problem = state.problem
        block = sample.block()
        C = problem.C * sample.total / float(block.s.sum(dtype=np.float64))
        widths = [mu for mu in WIDTHS if state.mu] or [0.0]
        w = np.zeros_like(state.base)
        for mu in widths:
            smooth = Huber(mu) if mu else problem.loss
            w = minimise(problem, C, smooth, block, w)
            state.mu = mu
        state.base, state.step, state.length = w, np.zeros_like(w), 0.0
        state.sample = None
        state.value = np.inf

    def _advance(self, state: NewtonState, found: Found, point: Float64) -> None:
        """Take a step from the point, or go back along the step that led to it."""
        worse = found.value > state.value + 1e-9 * abs(state.value)
        if state.trials is None:
            length = RETREAT if worse else state.length
        else:
            length = self._best_length(state, found)
        state.careful = length != 1.0 or state.passes < CAREFUL
        if length == state.length:
            self._step_from(state, found, point)
        elif state.mu and length <= SHORT:  # the corner is too narrow for this distance: widen it and look again
            state.mu, state.length, state.value = min(3.0 * state.mu, WIDTHS[0]), 0.0, np.inf
        else:
            state.length = length
        state.trials = np.zeros(len(STEPS)) if state.careful and np.isfinite(state.value) else None

    def _best_length(self, state: NewtonState, found: Found) -> float:
        assert state.trials is not None
        values = state.trials + [0.5 * float(w @ w) for w in (state.base + t * state.step for t in STEPS)]
        best = int(np.argmin(values))
        return float(STEPS[best]) if values[best] < found.value - 0.1 * (state.value - found.value) else state.length

    def _step_from(self, state: NewtonState, found: Found, point: Float64) -> None:
        state.base, state.value, state.length = point, found.value, 1.0
        state.step = newton_step(found.gradient, state.evaluation.hessian)
        if not state.mu:
            return
        gradient = 0.5 * float(found.gradient @ found.gradient)
        smoothing = found.primal - found.raw_dual - gradient
        if smoothing > gradient:
            wanted = 0.25 * state.problem.tolerance * abs(found.primal)
            state.mu *= float(np.clip(np.sqrt(wanted / smoothing), FALL, 1.0))
            state.value = np.inf

    def certify(self, state: NewtonState) -> None:
        """Every pass is an exact evaluation."""

    def merge(self, states: list[NewtonState]) -> NewtonState:
        """Add up the sums; the points are the same."""
        first = states[0]
        for other in states[1:]:
            first.evaluation.merge(other.evaluation)
            if first.sample is not None and other.sample is not None:
                first.sample.merge(other.sample)
            if first.trials is not None and other.trials is not None:
                first.trials += other.trials
        return first

    def solution(self, state: NewtonState) -> LinearSolution:
        return LinearSolution(state.best.copy(), state.problem.bias)
