"""The active set method for the kernel machine with a free bias, SVM-QP: few rows, their Gram matrix in memory, exact.

The first pass gathers the rows. When it ends, pairs of rows are optimized to about the optimum
(``compute.passes.smo``), and rows are exchanged from there on (``active_set_qp``). P and D are those of the rows
gathered, in the arithmetic of certificates (``kernel/rounding.py``); the second pass writes the dual variables to their
rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from streamsvm.aliases import Array
from streamsvm.class_tags import saved_as
from streamsvm.compute.blocks.selection import bytes_per_row, take_rows
from streamsvm.compute.kernel_values.expansion import gram, scratch_bytes
from streamsvm.errors import DataError, UsageError
from streamsvm.rows import Float64, Reach
from streamsvm.solvers.active_set_qp import (
    ActiveSetMethod,
    DualTerms,
    GramSpace,
    dual_terms_of_sides,
    join_sides,
    space_of_sides,
    split_sides,
)
from streamsvm.solvers.gathered_rows import ARRAY_BYTES, COPIES_WHILE_JOINED, GatheredRows, Gatherer
from streamsvm.solvers.kernel.pool import Form, no_support_error
from streamsvm.solvers.kernel.rounding import bound_rounding, certified_form, choose_form, error_of_values, extend_reach
from streamsvm.solvers.kernel.smo import Interval, solve_box, system_bytes
from streamsvm.types import (
    DUAL,
    Block,
    Certificate,
    Cost,
    Layout,
    LossRequirement,
    Problem,
    RowState,
    Solver,
    SupportSolution,
)
from streamsvm.types.state import Seen, Total

START_VIOLATION = 1e-3
"""Pairs are optimized to this violation, in margins."""
MAX_PAIRS = 10_000_000
"""Pairs that are moved at most."""
MATRIX_BYTES = 24
"""Bytes per entry of the Gram matrix: itself, a copy while it is made symmetric or has a ridge, the factor's where all
rows are free."""


@saved_as("active_set.kernel_state")
@dataclass(slots=True)
class KernelActiveSetState:
    """The rows until the first pass is closed; then the rows, their dual variables and the certificate of these."""

    problem: Problem
    gatherer: Total[Gatherer] = field(default_factory=Gatherer)
    """The rows of the first pass."""
    rows: GatheredRows | None = None
    """All rows that count; None before they are known."""
    reach: Seen[Reach | None] = None
    """The reach of the rows."""
    a: Float64 = field(default_factory=lambda: np.empty(0))
    """(n,) the dual variables of ``rows``, with y'a = 0."""
    intercept: float = 0.0
    """The free intercept that goes with ``a``."""
    solved: bool = False
    """Whether ``a`` is the optimum, to rounding."""
    certificate: Certificate | None = None
    """That of ``a`` and ``intercept``; None before they are known."""
    deadline: float = np.inf
    """The moment of ``time.perf_counter`` at which work in memory ends."""
    ending: bool = False
    """Whether the pass is the last one: rows stay as its certificate says."""


@dataclass(frozen=True, slots=True)
class KernelActiveSet(Solver[KernelActiveSetState]):
    """The method, which has no settings."""

    row_state: ClassVar[tuple[RowState, ...]] = (RowState(DUAL, "float64"),)
    """The dual variable of every row, once they are known."""
    shuffled: ClassVar[bool] = False
    """False: no step is taken while rows are read, so that their order does not matter."""
    losses: ClassVar[LossRequirement] = LossRequirement(quadratic=True)
    """The conjugate must be a parabola or a line: with the set of free rows given, the optimum is that of a linear
    system."""
    free_bias: ClassVar[bool] = True
    """True: the intercept is no constant feature and costs nothing, hence y'a = 0."""
    max_support: ClassVar[int] = 0
    """0: the model has whatever rows the optimum has."""
    exact_kernel: ClassVar[bool] = True
    stops_early: ClassVar[bool] = True

    def cost(self, problem: Problem, layout: Layout) -> Cost:
        """Return the bytes of all rows, twice while they are joined, and of matrices of all rows."""
        rows = problem.rows
        held = COPIES_WHILE_JOINED * rows * (bytes_per_row(layout.columns, layout.rows, layout.nonzeros) + ARRAY_BYTES)
        return Cost(
            fixed=held + MATRIX_BYTES * rows * rows + system_bytes(rows) + scratch_bytes(layout.columns),
            per_row=8,
            per_block_row=16,
        )

    def start(self, problem: Problem) -> KernelActiveSetState:
        """Begin with nothing in memory."""
        return KernelActiveSetState(problem)

    def visit(self, state: KernelActiveSetState, block: Block) -> None:
        """Gather the rows of the block, or write their dual variables."""
        if state.rows is None:
            state.gatherer.add(block)
            state.reach = extend_reach(state.reach, block.X)
            return
        part, places = block.members(state.rows.row)
        if DUAL in block.rows:
            block.rows[DUAL][:] = 0.0
            block.rows[DUAL][places] = state.a[part]

    def set_deadline(self, state: KernelActiveSetState, moment: float) -> None:
        """Exchange rows until that moment; the solution is what is feasible then."""
        state.deadline = moment

    def finish(self, state: KernelActiveSetState) -> Certificate:
        """Close the pass: the first one by solving the problem, the second one with the certificate of its solution.

        Where another pass follows, exchange more rows, as far as time allows; the certificate returned is that of
        before.
        """
        if state.rows is None:
            rows = state.gatherer.join()
            state.rows, state.a = rows, np.zeros(len(rows.y))
            self._solve(state, rows)
            assert state.certificate is not None  # it is known as soon as the rows are
            return replace(state.certificate, exact=False)  # the dual variables are yet to be written to the rows
        assert state.certificate is not None
        found = state.certificate
        if not (state.solved or state.ending) and found.gap > state.problem.tolerance:
            self._solve(state, state.rows)
        return found

    def _solve(self, state: KernelActiveSetState, rows: GatheredRows) -> None:
        """Exchange rows from ``a`` on; the first time, from where pairs of rows lead."""
        problem = state.problem
        form = certified_form(choose_form(problem), state.reach)
        K = gram(rows.X, form.kernel, form.columns, form.arithmetic).astype(np.float64, copy=False)
        K += K.T  # tiles are products, and two entries that are the same may differ in their last bits
        K *= 0.5
        C = problem.C * rows.s.astype(np.float64)
        terms, loss = dual_terms_of_sides(problem.loss, rows.y, C), problem.loss
        if not state.a.any() and not loss.numeric():  # for regression a pair would have four sides
            state.a = _optimize_pairs(K, terms, state.deadline)
        sides = split_sides(loss, state.a)
        method = ActiveSetMethod(terms, space_of_sides(loss, GramSpace(K)), sides, free_bias=True)
        state.solved = method.run(state.deadline)
        method.recompute()
        state.a = join_sides(loss, sides)
        state.intercept = method.intercept()
        state.certificate = _certificate(state, method, form, C)

    def certify(self, state: KernelActiveSetState) -> None:
        """Make the pass the last one: it leaves the dual variables as its certificate says."""
        state.ending = True

    def solution(self, state: KernelActiveSetState) -> SupportSolution:
        """Return the support rows and the intercept. Raises UsageError where no pass, or no time, was left to find them
        in.
        """
        rows = state.rows
        if rows is None:
            raise no_support_error()
        support = np.flatnonzero(state.a)
        if not (len(support) or state.solved):
            raise UsageError(
                "the time limit was reached before any row had a coefficient", hint="allow more: --time-limit"
            )
        if not len(support):
            raise DataError(
                "every row has the same decision value: all dual variables are 0",
                hint="check labels and weights: a class may have none; numbers may all be within epsilon of one",
            )
        coefficients = (state.problem.kind.signs(rows.y) * state.a)[support]
        return SupportSolution(
            take_rows(rows.X, support), rows.row[support], coefficients, state.intercept + state.problem.kind.center
        )


def _optimize_pairs(K: Float64, terms: DualTerms, deadline: float) -> Float64:
    """Return feasible dual variables (n,) near the optimum: x = y a, pair by pair, from 0."""
    y, z, curvature, upper = terms
    x, low, high = np.zeros(len(y)), np.where(y > 0.0, 0.0, -upper), np.where(y > 0.0, upper, 0.0)
    v = y * z
    M: Array = K
    if curvature.any():
        M = K.copy()
        M[np.diag_indices_from(M)] += curvature
    solve_box(M, x, v, Interval(low, high), START_VIOLATION * float(z.max()), most=MAX_PAIRS, deadline=deadline)
    return y * x


def _certificate(state: KernelActiveSetState, method: ActiveSetMethod, form: Form, C: Float64) -> Certificate:
    """Return P and D of the present a and intercept, and a bound of their rounding."""
    problem, rows, loss = state.problem, state.rows, state.problem.loss
    assert rows is not None  # they were gathered for the method
    signs, f = problem.kind.signs(rows.y), method.at.f[: len(rows.y)]
    x, residual = signs * state.a, f + state.intercept - (rows.y if loss.numeric() else 0.0)
    margins, weight = signs * residual, float(np.abs(x).sum())
    error = error_of_values(form, state.reach, int(np.count_nonzero(x)), weight)
    losses, upper_losses = (
        float(sum(c * max(loss.value(m - off), loss.value(m + off)) for c, m in zip(C, margins, strict=True)))
        for off in (0.0, error)
    )
    primal, dual = 0.5 * float(x @ f) + losses, method.dual()
    rounding = bound_rounding(problem, error, weight, float(np.abs(x * f).sum()), (losses, upper_losses))
    facts = {"exchanges": method.exchanges, "free": method.free_rows, "support": int(np.count_nonzero(x))}
    return Certificate(primal, dual, final=state.solved, facts=facts, rounding=rounding)
