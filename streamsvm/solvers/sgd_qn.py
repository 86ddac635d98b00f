"""SGD-QN: stochastic sub-gradient descent with a diagonal matrix that estimates the curvature of the objective.

Bordes, Bottou and Gallinari, JMLR 10, 2009, and their erratum, JMLR 11, 2010: ``compute.passes.sgd_qn``.

**Start.** t_0 determines the length of the first steps. As in the paper, powers of ten from ``skip`` on are tried on
the first rows of the first block, with one pass over these rows each, and the t_0 with the least objective is used. A
warm start counts as at least one pass.

**Skip.** A step of all columns is made only once in many rows, so that its cost for each of these rows is at most that
of 16 columns, for dense and for sparse rows.

**Weights.** As in ``solvers.stochastic``: the loss of row i has the weight s_i, and a row is one time step.

**Certificate.** The slopes at the visits of a pass are a dual point (``solvers.stochastic``). The candidate is the mean
of w over passes with larger weights for late passes; the authors use the last w.

**Merge.** H w and H are merged like a and lambda t in ``solvers.stochastic``: the copies' contributions to H and to H w
are added.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from streamsvm.class_tags import saved_as
from streamsvm.compute.blocks.sums import loss_sum
from streamsvm.compute.passes.sgd_qn import Counters, StepArrays, sgd_qn_pass
from streamsvm.compute.passes.stochastic import Objective
from streamsvm.config.options import Bounds, Option
from streamsvm.rows import Float64, Int32, Labeled
from streamsvm.solvers.stochastic import (
    AveragedCertificate,
    AveragedSolver,
    AveragedState,
    bound_by_pass,
    close_certificate,
    evaluate_candidate,
    start_certificate,
    weight_of_last_pass,
)
from streamsvm.types import Block, Certificate, Cost, Layout, LossRequirement, Problem
from streamsvm.types.state import Own, Total, clear_totals, merge_states

LEAST_SKIP = 16
"""Least number of rows between two steps of all columns: the number of the authors for dense rows."""
COLUMNS_PER_ROW = 16
"""The number of rows between two steps of all columns is at least the number of columns divided by this."""
TRIALS = 10
"""Number of values of t_0 that are tried, each ten times the previous one."""


@saved_as("sgd_qn.state")
@dataclass(slots=True)
class SGDQNState(AveragedState):
    """The state of ``SGDQN``. Arrays are (columns + 1,) float64."""

    problem: Problem
    w: Own[Float64]
    """The weights."""
    H: Own[Float64]
    """The diagonal of the matrix; 0 before the first row."""
    w_before: Float64
    """w at the start of the pass."""
    H_before: Float64
    """H at the start of the pass."""
    past: Own[Float64]
    """The weights before the last step of all columns, which shrinks them."""
    total: Total[Float64]
    """The sum of ``samples`` values of w in this pass."""
    v: Total[Float64]
    """sum b_i y_i x_i over the rows of the pass. The C b_i are its dual variables."""
    averaged: Total[AveragedCertificate]
    rows: Own[int] = 0
    """Number of rows since the last step of all columns."""
    due: Own[bool] = False
    """Whether the curvature is measured at the next row."""
    samples: Total[int] = 0
    """Number of values of w in ``total``."""
    linear: Total[float] = 0.0
    """sum b_i (1 - conjugate'(0)) over the rows of the pass."""
    quadratic: Total[float] = 0.0
    """sum s_i conjugate(b_i / s_i, 1) without its linear part, over the rows of the pass."""
    losses: Total[float] = 0.0
    """sum s_i l(m_i), with the w at the visit of each row in this pass. C times it estimates the loss sum of P."""


@dataclass(frozen=True, slots=True)
class SGDQN(AveragedSolver):
    """Stochastic gradient descent with a diagonal matrix (SGD-QN)."""

    skip: Annotated[
        int, Option("Rows between two steps of all columns. 0: by the number of columns.", bounds=Bounds(least=0))
    ] = 0
    t0: Annotated[
        float,
        Option(
            "First value of the step counter; larger values mean shorter first steps. 0: by trials on a sample.",
            bounds=Bounds(least=0),
        ),
    ] = 0.0
    sample: Annotated[int, Option("Rows of the sample on which values of t0 are tried.", bounds=Bounds(least=1))] = 1000
    losses: ClassVar[LossRequirement] = LossRequirement(box=True)
    """Losses with bounded slopes. With unbounded slopes the first steps would have to be very short, and the matrix,
    which only grows, would make later steps too short."""

    def settings_without_effect(self, problem: Problem) -> dict[str, tuple[str, ...]]:
        return {"t0 is given": ("sample",) if self.t0 else ()}

    def cost(self, problem: Problem, layout: Layout) -> Cost:
        """Return the bytes of sixteen vectors of weights, six of them scratch."""
        return Cost(fixed=16 * 8 * (problem.columns + 1))

    def start(self, problem: Problem) -> SGDQNState:
        """Return the state at w = 0 or at the warm-start weights. The first block sets H."""
        w, zero = problem.first_weights(), np.zeros(problem.columns + 1)
        arrays = (w, zero, w.copy(), zero.copy(), zero.copy(), zero.copy(), zero.copy())
        return SGDQNState(problem, *arrays, start_certificate(problem))

    def visit(self, state: SGDQNState, block: Block) -> None:
        """Make steps for the rows of the block in their order, and evaluate the candidate if it is due."""
        evaluate_candidate(state.averaged, block)
        if state.averaged.evaluates_only:
            return
        if state.H[0] == 0.0:
            state.H[:] = state.lam * (self.t0 or self._best_t0(state, block))
        arrays = StepArrays(state.w, state.H, state.past, state.total, state.v, np.empty_like(state.w))
        counters, objective = Counters(state.rows, state.due), Objective(state.lam, state.problem.loss)
        sums, counters = sgd_qn_pass(block.labeled, block.order, objective, self._skip(state), counters, arrays)
        state.rows, state.due = counters
        state.linear += sums.linear
        state.quadratic += sums.quadratic
        state.losses += sums.losses
        state.samples += sums.samples

    def _skip(self, state: SGDQNState) -> int:
        return self.skip or max(LEAST_SKIP, len(state.w) // COLUMNS_PER_ROW)

    def _best_t0(self, state: SGDQNState, block: Block) -> float:
        """Return the t_0 with the least objective on a sample of the first block."""
        p, order = state.problem, block.order[: self.sample]
        least = float(self._skip(state) if p.warm is None else max(self._skip(state), p.rows))
        tried = [least * 10.0**k for k in range(TRIALS)]
        return min(tried, key=lambda t: self._objective_after(state, block.labeled, order, t))

    def _objective_after(self, state: SGDQNState, rows: Labeled, order: Int32, t: float) -> float:
        """Return lambda/2 ||w||^2 plus the mean loss of the sample, after a pass over it that starts with t_0 = t."""
        p, w, scratch = state.problem, state.w.copy(), np.zeros((4, len(state.w)))
        arrays = StepArrays(w, np.full_like(w, state.lam * t), *scratch)
        sgd_qn_pass(rows, order, Objective(state.lam, p.loss), self._skip(state), Counters(0, False), arrays)
        y, s = np.zeros_like(rows.y), np.zeros_like(rows.s)
        y[order], s[order] = rows.y[order], rows.s[order]
        losses = loss_sum(rows.X, y, s, w, 1.0 / len(order), p.loss)
        return losses + 0.5 * state.lam * float(w @ w)

    def finish(self, state: SGDQNState) -> Certificate:
        """End the pass: update the dual bound by its slopes, and the candidate. Return the certificate with an estimate
        of P.
        """
        averaged, C, w = state.averaged, state.problem.C, state.w
        if averaged.evaluates_only:
            return close_certificate(averaged, averaged.primal)
        averaged.passes += 1
        bound_by_pass(averaged, C * state.v, C * state.linear, C * state.quadratic)
        certificate = close_certificate(averaged, 0.5 * float(w @ w) + C * state.losses)
        mean = state.total / state.samples if state.samples else w
        averaged.candidate += weight_of_last_pass(averaged.passes) * (mean - averaged.candidate)
        state.w_before[:], state.H_before[:] = w, state.H
        clear_totals(state)
        return certificate

    def merge(self, states: list[SGDQNState]) -> SGDQNState:
        """Add up the parts' contributions to H and H w, and their sums."""
        if len(states) == 1:
            return states[0]
        first = states[0]
        H = first.H_before + sum((s.H - s.H_before for s in states), np.zeros_like(first.H))
        H_times_w = first.H_before * first.w_before
        H_times_w = H_times_w + sum((s.H * s.w - H_times_w for s in states), np.zeros_like(first.w))
        merged = merge_states(states)
        merged.w, merged.H = np.divide(H_times_w, H, out=first.w_before.copy(), where=H > 0.0), H
        merged.past, merged.due = merged.w.copy(), False
        return merged
