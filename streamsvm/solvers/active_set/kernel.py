"""The active set method for the kernel machine with a free bias, SVM-QP: few rows, their Gram matrix in memory, exact.

The first pass gathers the rows. When it ends, pairs of rows are optimized to about the optimum (``compute.passes.smo``), and rows
are exchanged from there on (``exchange``). P and D are those of the rows gathered, in the arithmetic of certificates
(``solvers.kernel.rounding``); the second pass writes the dual variables to their rows.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

import numpy as np

from streamsvm.aliases import Array
from streamsvm.compute.blocks.selection import bytes_per_row, take_rows
from streamsvm.compute.kernel_values.expansion import gram, scratch_bytes
from streamsvm.errors import DataError, UsageError
from streamsvm.rows import Float64, Reach
from streamsvm.solvers.active_set.exchange import ActiveSetMethod, DualTerms
from streamsvm.solvers.active_set.gathered import ARRAYS, JOINING, GatheredRows, Gatherer
from streamsvm.solvers.active_set.sides import apart, sided, sided_terms, together
from streamsvm.solvers.active_set.spaces import GramSpace
from streamsvm.solvers.kernel.pool import Form
from streamsvm.solvers.kernel.rounding import (
    bound_rounding,
    certified_form,
    choose_form,
    error_of_values,
    extend_reach,
    join_reaches,
)
from streamsvm.solvers.kernel.working_set import Interval, solve_box, system_bytes
from streamsvm.tags import saved_as
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

START_VIOLATION = 1e-3
"""In margins: pairs are optimized to this ..."""
PAIRS = 10_000_000
"""... or until so many were moved."""
MATRIX_BYTES = 24
"""Of an entry of the Gram matrix: itself, a copy while it is made symmetric or has a ridge, the factor's entry where all rows are free."""


@saved_as("active_set.kernel_state")
@dataclass(slots=True)
class KernelActiveSetState:
    """``rows`` and ``a`` are what is known once the first pass has been closed."""

    problem: Problem
    """What is solved, with its kernel."""
    gatherer: Gatherer = field(default_factory=Gatherer)
    """The rows of the first pass."""
    rows: GatheredRows | None = None
    """All rows that count; None before they are known."""
    reach: Reach | None = None
    """How large rows are."""
    a: Float64 = field(default_factory=lambda: np.empty(0))
    """(n,) the dual variables of ``rows``, with y'a = 0."""
    intercept: float = 0.0
    """The free intercept that goes with them."""
    solved: bool = False
    """Whether that is the optimum, to rounding."""
    certificate: Certificate | None = None
    """Of ``a`` and ``intercept``; None before they are known."""
    deadline: float = np.inf
    """When work in memory is to end, on the clock of ``time.perf_counter``."""
    ending: bool = False
    """Whether the pass is the last one: rows stay as its certificate says."""


@dataclass(frozen=True, slots=True)
class KernelActiveSet(Solver[KernelActiveSetState]):
    """The method. It has no settings."""

    row_state: ClassVar[tuple[RowState, ...]] = (RowState(DUAL, "float64"),)
    """The dual variable of every row, once they are known."""
    shuffled: ClassVar[bool] = False
    """False: no step is taken while rows are read, so that their order does not matter."""
    losses: ClassVar[LossRequirement] = LossRequirement(quadratic=True)
    """The conjugate must be a parabola or a line: with the set of free rows given, the optimum is that of a linear system."""
    free_bias: ClassVar[bool] = True
    """True: the intercept is no constant feature and costs nothing, hence y'a = 0."""
    max_support: ClassVar[int] = 0
    """0: the model has whatever rows the optimum has."""
    exact_kernel: ClassVar[bool] = True
    stops_early: ClassVar[bool] = True

    def cost(self, problem: Problem, layout: Layout) -> Cost:
        """Bytes of all rows, twice while they are joined, and of matrices of all rows."""
        rows = problem.rows
        held = JOINING * rows * (bytes_per_row(layout.columns, layout.rows, layout.nonzeros) + ARRAYS)
        return Cost(
            fixed=held + MATRIX_BYTES * rows * rows + system_bytes(rows) + scratch_bytes(layout.columns),
            per_row=8,
            per_block_row=16,
        )

    def sized(self, rows: int, asked: Collection[str]) -> Self:
        """The same: it holds all rows or none."""
        return self

    def start(self, problem: Problem) -> KernelActiveSetState:
        """Begin with nothing in memory."""
        return KernelActiveSetState(problem)

    def visit(self, state: KernelActiveSetState, block: Block) -> None:
        """Gather the rows of the block, or tell them their dual variables."""
        if state.rows is None:
            state.gatherer.add(block)
            state.reach = extend_reach(state.reach, block.X)
            return
        part, places = block.members(state.rows.row)
        if DUAL in block.rows:
            block.rows[DUAL][:] = 0.0
            block.rows[DUAL][places] = state.a[part]

    def set_deadline(self, state: KernelActiveSetState, moment: float) -> None:
        """Rows are exchanged until that moment; what is feasible then is what comes of it."""
        state.deadline = moment

    def finish(self, state: KernelActiveSetState) -> Certificate:
        """Close the pass: the first one by solving the problem, the second one with the certificate of its solution.

        Where another pass follows, rows are exchanged from there on, as far as time allows: the certificate is of before.
        """
        if state.rows is None:
            rows = state.gatherer.joined()
            state.rows, state.a = rows, np.zeros(len(rows.y))
            self._solve(state, rows)
            assert state.certificate is not None  # it is known as soon as the rows are
            return replace(state.certificate, exact=False)  # rows are yet to be told their dual variables
        assert state.certificate is not None
        found = state.certificate
        if not (state.solved or state.ending) and found.gap > state.problem.tolerance:
            self._solve(state, state.rows)
        return found

    def _solve(self, state: KernelActiveSetState, rows: GatheredRows) -> None:
        """Exchange rows from ``a`` on; at first, from where pairs of rows lead."""
        problem = state.problem
        form = certified_form(choose_form(problem), state.reach)
        K = gram(rows.X, form.kernel, form.columns, form.arithmetic).astype(np.float64, copy=False)
        K += K.T  # tiles are products, and two entries that are the same may differ in their last bits
        K *= 0.5
        C = problem.C * rows.s.astype(np.float64)
        terms, loss = sided_terms(problem.loss, rows.y, C), problem.loss
        if not state.a.any() and not loss.numeric():  # of numbers a pair would be of four sides
            state.a = _paired(K, terms, state.deadline)
        sides = apart(loss, state.a)
        method = ActiveSetMethod(terms, sided(loss, GramSpace(K)), sides, free_bias=True)
        state.solved = method.run(state.deadline)
        method.recompute()
        state.a = together(loss, sides)
        state.intercept = method.intercept()
        state.certificate = _certificate(state, method, form, C)

    def certify(self, state: KernelActiveSetState) -> None:
        """Every pass but the first ends with an exact certificate; the last one leaves the rows that it is of."""
        state.ending = True

    def merge(self, states: list[KernelActiveSetState]) -> KernelActiveSetState:
        """Put together what workers gathered."""
        first, *others = states
        for other in others:
            first.gatherer.merge(other.gatherer)
            first.reach = join_reaches(first.reach, other.reach)
        return first

    def solution(self, state: KernelActiveSetState) -> SupportSolution:
        """The support rows and the intercept. Raises UsageError where no pass, or no time, was left to find them in."""
        rows = state.rows
        if rows is None:
            raise UsageError("no pass was left to find support rows in", hint="allow at least two: --max-passes 2")
        support = np.flatnonzero(state.a)
        if not (len(support) or state.solved):
            raise UsageError("time was over before any row had a coefficient", hint="allow more: --time-limit")
        if not len(support):
            raise DataError(
                "every row has the same decision value: all dual variables are 0",
                hint="check labels and weights: a class may have none; numbers may all be within epsilon of one",
            )
        coefficients = (state.problem.task.signs(rows.y) * state.a)[support]
        return SupportSolution(
            take_rows(rows.X, support), rows.row[support], coefficients, state.intercept + state.problem.center
        )


def _paired(K: Float64, terms: DualTerms, deadline: float) -> Float64:
    """Feasible dual variables (n,) near the optimum: x = y a, pair by pair, from 0."""
    y, z, curvature, upper = terms
    x, low, high = np.zeros(len(y)), np.where(y > 0.0, 0.0, -upper), np.where(y > 0.0, upper, 0.0)
    v = y * z
    M: Array = K
    if curvature.any():
        M = K.copy()
        M[np.diag_indices_from(M)] += curvature
    solve_box(M, x, v, Interval(low, high), START_VIOLATION * float(z.max()), most=PAIRS, deadline=deadline)
    return y * x


def _certificate(state: KernelActiveSetState, method: ActiveSetMethod, form: Form, C: Float64) -> Certificate:
    """P and D of the present a and intercept, and what rounding can have done to them."""
    problem, rows, loss = state.problem, state.rows, state.problem.loss
    assert rows is not None  # they were gathered for the method
    signs, f = problem.task.signs(rows.y), method.at.f[: len(rows.y)]
    x, residual = signs * state.a, f + state.intercept - (rows.y if loss.numeric() else 0.0)
    margins, weight = signs * residual, float(np.abs(x).sum())
    error = error_of_values(form, state.reach, int(np.count_nonzero(x)), weight)
    losses, risen = (
        float(sum(c * max(loss.value(m - off), loss.value(m + off)) for c, m in zip(C, margins, strict=True)))
        for off in (0.0, error)
    )
    primal, dual = 0.5 * float(x @ f) + losses, method.dual()
    rounding = bound_rounding(problem, error, weight, float(np.abs(x * f).sum()), (losses, risen))
    facts = {"exchanges": method.exchanges, "free": method.free_rows, "support": int(np.count_nonzero(x))}
    return Certificate(primal, dual, final=state.solved, facts=facts, rounding=rounding)
