"""The L2-SVM on the simplex: what one pass does, whatever method works in memory between passes.

    min_a  f(a) = 1/2 a'Ka   subject to  sum a = 1,  a >= 0,      K_ij = y_i y_j (k_ij + bias^2) + [i = j] / (2 C s_i)

and how it relates to P(w) = 1/2 ||w||^2 + C sum_i s_i max(0, k - m_i)^2, k the margin of the loss (1 unless another is
asked for), the bias a regularized constant feature. The dual of P at t a, sum a = 1, is D = k t - t^2 f(a); the best t is
k / (2 f), so that D = k^2 / (4 f): minimizing f maximizes D, whatever k. With w = t sum_i a_i y_i phi_i the margins are
m_i = t (g_i - a_i / (2 C s_i)), g = Ka, hence m_i + t a_i / (2 C s_i) >= t min g = k - t gap, where gap = 2 f - min g is
the Frank-Wolfe gap. Scaled by k / (k - t gap) this point is feasible for P:

    D <= P* <= D / (1 - gap / (2 f))^2,     so that the relative gap is at most about gap / f.

Two gaps are therefore at hand after every pass: the simplex gap, which bounds f - f* (``epsilon``, the Frank-Wolfe
papers' criterion; f is of the order 1 / n, so 1e-4 is a loose one), and (P - D) / P with P summed over all rows.
The papers' K has [i = j] / C in it, which is P with C / 2: loss 1/2 xi^2. Their C is twice ours.

Every pass computes g of every row anew from the support, so that what is certified owes nothing to recursions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np

from streamsvm.compute.blocks.selection import bytes_per_row
from streamsvm.compute.kernel_values.expansion import scratch_bytes
from streamsvm.errors import DataError, UsageError
from streamsvm.rows import Rows
from streamsvm.solvers.kernel.cache import evaluate_shared, is_sharing_worthwhile
from streamsvm.solvers.kernel.pool import ROW_BYTES
from streamsvm.solvers.kernel.reduced_set import MaxSupport, fit_reduced_set, reduced_set_bytes
from streamsvm.solvers.kernel.rounding import certified_form, choose_form, needs_certified_form, select_same_form
from streamsvm.solvers.kernel.simplex.block_update import measure, rows_of
from streamsvm.solvers.kernel.simplex.certificate import certificate_of, reached
from streamsvm.solvers.kernel.simplex.pool_method import PoolMethod
from streamsvm.solvers.kernel.simplex.state import Candidates, SimplexState
from streamsvm.types import Block, Certificate, Cost, Layout, LossRequirement, Problem, RowState, SupportSolution


@dataclass(frozen=True)
class OnSimplex(PoolMethod):
    """The passes of every method on the simplex."""

    max_support: MaxSupport = 0
    free_bias: ClassVar[bool] = False
    """False: the bias is a constant feature, regularized like any other, and its square is part of K."""
    row_state: ClassVar[tuple[RowState, ...]] = ()
    """Empty: g is computed anew in every pass, and a_i is 0 for rows outside the support."""
    losses: ClassVar[LossRequirement] = LossRequirement(smooth=True, box=False, quadratic=True, numeric=False)
    """The squared hinge, with any margin: its conjugate is the ridge on the diagonal of K, and a has no upper bound."""

    @property
    def shuffled(self) -> bool:
        """False: a pass only evaluates, in whatever order."""
        return False

    def cost(self, problem: Problem, layout: Layout) -> Cost:
        """Bytes of the pool and the support while they are joined, of the method's scratch and of a reduced set."""
        row = bytes_per_row(layout.columns, layout.rows, layout.nonzeros) + ROW_BYTES
        rows = min(problem.rows, layout.rows)  # a pair of classes has rows of its own
        held = min(self.pool + (self.keep or rows), rows)
        reduced = reduced_set_bytes(min(self.max_support, rows))
        return Cost(
            fixed=3 * held * row + self.scratch(held) + scratch_bytes(layout.columns) + reduced,
            per_block_row=ROW_BYTES + 8,
        )

    def start(self, problem: Problem) -> SimplexState:
        """Begin with an empty support: the first pass finds the rows of the first pool."""
        return SimplexState(problem, choose_form(problem, problem.bias**2), Candidates(int(min(self.pool, self.first))))

    def prepare_shared(self, states: list[SimplexState], X: Rows) -> None:
        """Evaluate the kernel once for all problems that are about to visit the same rows."""
        known = [(state, state.support) for state in select_same_form(states) if state.support is not None]
        supports = [support for _, support in known]
        if len(known) > 1 and is_sharing_worthwhile(supports, X):
            values = evaluate_shared(supports, states[0].form, X)
            for (state, _), own in zip(known, values, strict=True):
                state.shared_values = own

    def visit(self, state: SimplexState, block: Block) -> None:
        """Compute g of the block's rows from the support, add up both bounds, and put rows of small g forward."""
        rows, f = rows_of(state, block)
        measure(state, block, rows, f)
        if not state.certifying and state.reduced is None:
            fresh = np.flatnonzero((rows.x == 0.0) & (rows.high > 0.0))
            state.candidates.add(rows, fresh, partial(self.choose, state))

    def finish(self, state: SimplexState) -> Certificate:
        """Close the pass: both gaps are exact for the present weights; the next pool is made, to be worked on in steps."""
        state.passes += 1
        certificate = certificate_of(state, self.epsilon)
        if state.support is None and certificate.primal == 0.0:
            raise DataError("every row has weight 0", hint="give some rows a weight, or leave the weights out")
        last = certificate.final or reached(certificate, state.problem) or state.certifying
        full = certified_form(state.form, state.reach)
        if not last:
            self.begin_work(state)
        elif full != state.form and needs_certified_form(state.problem, certificate.primal, certificate.rounding):
            state.form, state.trajectory = full, certificate.facts["trajectory"]
            certificate = replace(certificate, exact=False, final=False)
        elif certificate.gap > state.problem.tolerance and not (certificate.final or state.certifying):
            self.begin_work(state)
        elif state.reduced is None and self._reduce(state):
            certificate = replace(certificate, exact=False)
        state.close()
        return certificate

    def _reduce(self, state: SimplexState) -> bool:
        """Make the reduced model, if one is asked for and not all of the support is allowed in it."""
        support = state.support
        if support is None or not 0 < self.max_support < support.size:
            return False
        values = -state.dual_scale() * support.sign * (support.v + support.ridge * support.x)
        state.reduced = fit_reduced_set(support, values, state.form, self.max_support, state.problem.C)
        return True

    def certify(self, state: SimplexState) -> None:
        """Let the next pass evaluate only, the reduced set where one is asked for."""
        state.certifying, state.form = True, certified_form(state.form, state.reach)
        self._reduce(state)

    def part(self, state: SimplexState) -> SimplexState:
        """The weights, which visits only read, with sums of nothing and no g of any row yet."""
        support = None if state.support is None else replace(state.support, v=np.full(state.support.size, -np.inf))
        candidates = Candidates(state.candidates.capacity)
        part = replace(state, support=support, candidates=candidates, losses=np.zeros(1), upper_losses=np.zeros(1))
        part.clear_sums()
        return part

    def merge(self, states: list[SimplexState]) -> SimplexState:
        """Add up what each worker found; their rows are disjoint and their a is the same."""
        first, *others = states
        for other in others:
            first.join(other)
            first.candidates.shorten(partial(self.choose, first))
        return first

    def solution(self, state: SimplexState) -> SupportSolution:
        """The support rows with the weights best scaled, or the reduced set. Raises UsageError where there are none."""
        support = state.reduced or state.support
        if support is None:
            raise UsageError("no pass was left to find support rows in", hint="allow at least two: --max-passes 2")
        scale = state.dual_scale() if state.scale is None else state.scale
        weights = support.x if support is state.reduced else scale * support.sign * support.x
        return SupportSolution(support.X, support.index, weights, state.form.constant * float(weights.sum()))
