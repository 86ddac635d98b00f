"""The active-set method for kernel machines with a free bias (SVM-QP): an exact solver for few rows, with their Gram
matrix in memory.

The first pass gathers the rows. After it, pairs of rows are optimized to approximately the optimum
(``compute.passes.smo``), and then rows are exchanged (``active_set_qp``). P and D are computed on the gathered rows, in
the arithmetic of certificates (``kernel/rounding.py``). The second pass writes the dual variables to their rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from streamsvm.class_tags import saved_as
from streamsvm.compute.blocks.selection import bytes_per_row, take_rows
from streamsvm.compute.kernel_values.kernel_products import gram, scratch_bytes
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
from streamsvm.solvers.kernel.rounding import (
    bound_rounding,
    choose_form,
    error_of_values,
    extend_reach,
    form_for_certificates,
)
from streamsvm.solvers.kernel.smo import Interval, solve_box, system_bytes
from streamsvm.type_aliases import Array
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
"""The violation to which pairs are optimized, in units of the margin."""
MAX_PAIRS = 10_000_000
"""Maximum number of pair steps."""
MATRIX_BYTES = 24
"""Bytes per entry of the Gram matrix: the matrix, a copy while it is made symmetric or has a ridge, and the factor if
all rows are free."""


@saved_as("active_set.kernel_state")
@dataclass(slots=True)
class KernelActiveSetState:
    """The state of ``KernelActiveSet``: the rows, and after the first pass their dual variables and the certificate."""

    problem: Problem
    gatherer: Total[Gatherer] = field(default_factory=Gatherer)
    """Gathers the rows in the first pass."""
    rows: GatheredRows | None = None
    """All rows with a positive weight; None before the end of the first pass."""
    reach: Seen[Reach | None] = None
    """The reach of the rows."""
    a: Float64 = field(default_factory=lambda: np.empty(0))
    """(n,) the dual variables of ``rows``, with y'a = 0."""
    intercept: float = 0.0
    """The free intercept for ``a``."""
    solved: bool = False
    """Whether ``a`` is the optimum up to rounding."""
    certificate: Certificate | None = None
    """The certificate of ``a`` and ``intercept``; None before the end of the first pass."""
    deadline: float = np.inf
    """The time of ``time.perf_counter`` at which work in memory must stop."""
    ending: bool = False
    """Whether this is the last pass, after which ``a`` must not change any more."""


@dataclass(frozen=True, slots=True)
class KernelActiveSet(Solver[KernelActiveSetState]):
    """The active-set method for kernel machines with a free bias."""

    row_state: ClassVar[tuple[RowState, ...]] = (RowState(DUAL, "float64"),)
    """The dual variable of every row, after the problem is solved."""
    shuffled: ClassVar[bool] = False
    """False: no step is made while rows are read, so their order does not matter."""
    losses: ClassVar[LossRequirement] = LossRequirement(quadratic=True)
    """The conjugate must be quadratic or linear: given the set of free rows, the optimum solves a linear system."""
    free_bias: ClassVar[bool] = True
    """True: the intercept is not regularized, hence y'a = 0."""
    max_support: ClassVar[int] = 0
    """0: the model has all support rows of the optimum."""
    exact_kernel: ClassVar[bool] = True
    stops_early: ClassVar[bool] = True

    def cost(self, problem: Problem, layout: Layout) -> Cost:
        """Return the bytes of all rows, twice while they are concatenated, and of the matrices of all rows."""
        rows = problem.rows
        row = bytes_per_row(layout.columns, layout.rows, layout.nonzeros) + ARRAY_BYTES
        matrices = MATRIX_BYTES * rows * rows + system_bytes(rows)
        return Cost(
            fixed=COPIES_WHILE_JOINED * rows * row + matrices + scratch_bytes(layout.columns),
            per_row=8,
            per_block_row=16,
        )

    def start(self, problem: Problem) -> KernelActiveSetState:
        """Return the state without rows."""
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
        """Stop exchanging rows at ``moment``. The dual variables are feasible at any time."""
        state.deadline = moment

    def finish(self, state: KernelActiveSetState) -> Certificate:
        """Solve the problem after the first pass; return the certificate of its solution after later passes.

        If the gap is still too large and another pass follows, exchange more rows as far as time allows. The returned
        certificate is that before these exchanges.
        """
        if state.rows is None:
            rows = state.gatherer.join()
            state.rows, state.a = rows, np.zeros(len(rows.y))
            self._solve(state, rows)
            assert state.certificate is not None  # ``_solve`` has set it
            return replace(state.certificate, exact=False)  # the dual variables are not yet written to the rows
        assert state.certificate is not None
        certificate = state.certificate
        if not (state.solved or state.ending) and certificate.gap > state.problem.tolerance:
            self._solve(state, state.rows)
        return certificate

    def _solve(self, state: KernelActiveSetState, rows: GatheredRows) -> None:
        """Exchange rows, starting from ``a``; the first time, starting from the result of pair steps."""
        problem = state.problem
        form = form_for_certificates(choose_form(problem), state.reach)
        K = gram(rows.X, form.kernel, form.columns, form.arithmetic).astype(np.float64, copy=False)
        K += K.T  # make K symmetric: entries are computed in tiles, and K_ij and K_ji may differ in their last bits
        K *= 0.5
        C = problem.C * rows.s.astype(np.float64)
        terms, loss = dual_terms_of_sides(problem.loss, rows.y, C), problem.loss
        if not state.a.any() and not loss.numeric():  # pair steps do not support the two sides of regression
            state.a = _optimize_pairs(K, terms, state.deadline)
        sides = split_sides(loss, state.a)
        method = ActiveSetMethod(terms, space_of_sides(loss, GramSpace(K)), sides, free_bias=True)
        state.solved = method.run(state.deadline)
        method.recompute()
        state.a = join_sides(loss, sides)
        state.intercept = method.intercept()
        state.certificate = _certificate(state, method, form, C)

    def certify(self, state: KernelActiveSetState) -> None:
        """Make the next pass the last one, after which the dual variables do not change."""
        state.ending = True

    def solution(self, state: KernelActiveSetState) -> SupportSolution:
        """Return the support rows and the intercept. Raises UsageError if there were too few passes or too little time
        to find support rows, and DataError if all dual variables of the optimum are 0.
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
    """Return feasible dual variables (n,) near the optimum, by pair steps in x = y a from 0."""
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
    """Return P and D of the current a and intercept, and a bound of their rounding errors."""
    problem, rows, loss = state.problem, state.rows, state.problem.loss
    assert rows is not None  # they were gathered for the method
    signs, f = problem.kind.signs(rows.y), method.point.f[: len(rows.y)]
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
