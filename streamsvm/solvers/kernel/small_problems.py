"""Small kernel problems whose rows are in memory: each is solved and certified by itself, without passes.

A pass visits blocks, joins the states of groups and forms working sets: a millisecond or more per problem, while a
problem of a few hundred rows takes a tenth of that (``compute.passes.kernel_problem``). All pairs of classes, all
classes against the rest and all C are solved one after the other. Problems of the same rows share the rows of K.

The certificate is that of ``rounding.py``: K is float32 while x is found, and f is computed anew in float64 at the rows
that can matter to P or D. If float32 is too coarse for a problem, or its tolerance is too small, K is float64.

A problem that needs very many steps is better solved by ``decomposition.py``, which minimizes over all free coordinates
at once; its fit begins anew there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from streamsvm.compute.blocks.selection import take_rows
from streamsvm.compute.kernel_values.arithmetic import DIFFERENCES, SINGLE, dtype_of, reach_of
from streamsvm.compute.kernel_values.kernel_matrix import diagonal, single
from streamsvm.compute.passes.certificate import RowLoss
from streamsvm.compute.passes.kernel_problem import (
    CITY_BLOCK,
    FIRST_VIOLATION,
    PRODUCTS,
    SQUARES,
    Matrix,
    conclude,
    optimize,
)
from streamsvm.compute.passes.kernel_rows import coordinates
from streamsvm.rows import Dense, Float32, Int64, Rows, to_matrix
from streamsvm.solvers.kernel.decomposition import DecompositionState
from streamsvm.solvers.kernel.pool import Form, Pool
from streamsvm.solvers.kernel.rounding import (
    bound_rounding,
    choose_form,
    error_of_values,
    form_for_certificates,
)
from streamsvm.solvers.small_problems import SmallProblem, Solved
from streamsvm.type_aliases import Array
from streamsvm.types import Certificate, Problem

MAX_ROWS = 5000
"""Maximum number of rows of a problem. K, of which rows are computed as they are needed, has at most 100 MB."""
MAX_COLUMNS = 256
"""Maximum number of columns: for wider rows products of matrices are faster than products of a row with all others."""
MAX_STEPS, MAX_STEPS_PER_ROW = 20_000, 100
"""A problem is given up after the first number of steps, and the second for each row: about two seconds."""
FLAT = {"f": 1e-6, "d": 1e-12}
"""Minimum curvature along a pair by the type of K, relative to the largest kernel value."""
MIN_FLOAT32_TOLERANCE = 1e-6
"""For smaller tolerances K is float64: the steps of a float32 gradient no longer reach them."""
SHARE = 0.9
"""Fraction of the tolerance at which rounds end, so that rounding has room in the certificate."""
ATTEMPTS = 3
"""Maximum number of evaluations in float64."""
FALL = 0.2
"""The next attempt aims at this fraction of the gap and of the violation."""


def is_small(problem: Problem) -> bool:
    """Return whether a problem is solved by ``solve_small_problems``: a classification with few rows and columns."""
    kind, kernel = problem.kind, problem.kernel
    return (
        problem.rows <= MAX_ROWS
        and problem.columns <= MAX_COLUMNS
        and not (kind.one_class or kind.classes or problem.loss.numeric())
        and problem.regularizer.is_squared_norm
        and kernel is not None
        and kernel.positive_semidefinite()
    )


def small_problem_bytes(problems: Sequence[Problem]) -> int:
    """Return the bytes of the matrix and the rows of the largest problem."""
    return max(8 * problem.rows * (problem.rows + 4 * problem.columns) for problem in problems)


def solve_small_problems(problems: Iterable[SmallProblem], X: Rows, accepted: float) -> Iterator[Solved | None]:
    """Yield each problem solved, or None if it is given up: its gap would be above ``accepted``, or it has rows of one
    class only.

    X (n): the rows of all problems, as the kernel sees them.
    """
    arithmetics: dict[tuple[float, float, float], _Values] = {}
    memory, dense = _Memory(), None
    matrix: _Matrix | None = None
    for small in problems:
        problem, numbers = small.problem, small.numbers
        dense = to_matrix(X, problem.columns) if dense is None else dense
        key = (problem.C, max(problem.weights, default=1.0), problem.tolerance)
        if key not in arithmetics:
            form = choose_form(problem)
            if problem.tolerance < MIN_FLOAT32_TOLERANCE:
                form = form_for_certificates(form, problem.reach)
            known = next((values for values in arithmetics.values() if values.form == form), None)
            arithmetics[key] = _Values(dense, form) if known is None else known
        values = arithmetics[key]
        if matrix is None or matrix.numbers is not numbers or matrix.values is not values:
            matrix = _Matrix(values, numbers, memory.lend(len(numbers), values.columns.dtype))
        yield _solve(small, matrix, X, accepted)


class _Values:
    """All rows in the arithmetic of a form, and the errors of its kernel values."""

    def __init__(self, X: Float32, form: Form) -> None:
        self.form, dtype, rows = form, dtype_of(form.arithmetic), Dense(X, 0.0)
        squares = np.einsum("ij,ij->i", X, X, dtype=np.float64)
        reach = reach_of(rows, squares)
        self.rows, self.columns, self.source = X, np.ascontiguousarray(X.T, dtype), _source_of(form)
        self.squares = squares.astype(dtype) if self.source == PRODUCTS else np.zeros(len(X), dtype)
        self.diagonal = diagonal(rows, form.kernel, dtype)
        self.kernel = single(form.kernel) if form.arithmetic == SINGLE else form.kernel
        self.flat = FLAT[self.columns.dtype.char] * float(self.diagonal.max(initial=0.0))
        self.certified_form = form_for_certificates(form, reach)
        is_coarse = self.certified_form != form
        self.slack = error_of_values(form, reach, len(X), 1.0) if is_coarse else 0.0
        first = error_of_values(self.certified_form, reach, 0, 1.0)
        self.errors = np.array([first, error_of_values(self.certified_form, reach, 1, 1.0) - first])
        self.errors[1] *= 1.001  # the difference was rounded


class _Memory:
    """Memory for K of one problem after the other: new pages would take a third of the time of a small problem."""

    def __init__(self) -> None:
        self._bytes = np.empty(0, np.uint8)

    def lend(self, q: int, dtype: np.dtype[Any]) -> Array:
        """Return a matrix (q, q) with any content. It is valid until the next call."""
        size = q * q * dtype.itemsize
        if size > len(self._bytes):
            self._bytes = np.empty(size, np.uint8)
        return self._bytes[:size].view(dtype).reshape(q, q)


class _Matrix:
    """The rows of a problem, and of their matrix K, which problems of the same rows share."""

    def __init__(self, values: _Values, numbers: Int64, K: Array) -> None:
        self.values, self.numbers, q = values, numbers, len(numbers)
        is_whole = q == len(values.rows)
        self.rows = values.rows if is_whole else values.rows[numbers]
        self.K = Matrix(
            self.rows,
            values.columns if is_whole else np.ascontiguousarray(values.columns[:, numbers]),
            values.squares[numbers],
            values.source,
            K,
            np.full(q, -1),
            values.diagonal[numbers],
            np.zeros(1, np.int64),
        )


def _source_of(form: Form) -> int:
    """Return from what the kernel values of a form are computed."""
    if form.kernel.city_block():
        return CITY_BLOCK
    return SQUARES if form.arithmetic == DIFFERENCES else PRODUCTS


def _solve(small: SmallProblem, matrix: _Matrix, X: Rows, accepted: float) -> Solved | None:
    """Return the solved problem; None if there are rows of one class only, or if it is given up."""
    problem, _, y, s = small
    signs = y[s > 0.0]
    if not len(signs) or signs.min() == signs.max():
        return None
    q, values, cost, f = len(y), matrix.values, RowLoss(problem.C, problem.loss, problem.loss), np.zeros(len(y))
    at = coordinates(y, s, np.zeros(q), f, cost, 0.0)
    left, violation, target = MAX_STEPS + MAX_STEPS_PER_ROW * q, FIRST_VIOLATION, SHARE * problem.tolerance
    for _ in range(ATTEMPTS):
        outcome = optimize(matrix.K, values.kernel, y, s, cost, at, f, values.flat, violation, target, left)
        form, left = values.certified_form, left - outcome.steps
        sums = conclude(
            matrix.rows,
            form.kernel,
            _source_of(form),
            y,
            s,
            cost,
            at,
            f,
            outcome.intercept,
            values.slack,
            values.errors,
        )
        losses = sums.losses, sums.upper
        rounding = bound_rounding(problem, sums.error, sums.weight, sums.absolute, losses)
        certificate = Certificate(0.5 * sums.square + sums.losses, sums.gain - 0.5 * sums.square, rounding=rounding)
        if certificate.gap <= problem.tolerance or left <= 0 or rounding > problem.tolerance * certificate.primal:
            break
        violation, target = FALL * violation, FALL * target
    if not certificate.gap <= accepted:
        return None
    support = np.flatnonzero(at.x)
    state = DecompositionState(problem, values.form, q)
    terms = (column[support] for column in (at.ridge, at.low, at.high, at.p, at.x, at.v))
    numbers = matrix.numbers[support]
    state.support = Pool(take_rows(X, numbers), numbers, np.ones(len(support)), *terms)
    state.support_size, state.intercept = len(support), sums.intercept
    facts = {"violation": None, "support": len(support), "points": None}
    return Solved(state, replace(certificate, facts=facts))
