"""Small linear problems with a smooth loss, whose rows are in memory: Newton's method with the whole Hessian, without
passes (``compute.passes.newton_problem``).

A step is -H^-1 grad, times the length of an exact line search (``solvers.line_search``). As the loss is smooth,
P - D = 1/2 ||grad||^2 for the dual variables given by the slopes of the loss. If the loss is piecewise quadratic, the
step within the piece of the optimum is exact, so that a few steps reach a gap that is rounding error.

The certificate is that of a pass which visits all rows at the best iterate (``solvers.evaluation``). Reference: Keerthi
and DeCoste, JMLR 2005.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from streamsvm.compute.blocks.selection import take_rows
from streamsvm.compute.passes.newton_problem import newton_step
from streamsvm.compute.passes.rows_in_memory import line_pass
from streamsvm.rows import Float32, Float64, Rows, row_count, to_matrix
from streamsvm.solvers.evaluation import DualPoint
from streamsvm.solvers.line_search import find_step_length
from streamsvm.solvers.newton.solver import Newton
from streamsvm.solvers.small_problems import SmallProblem, Solved
from streamsvm.types import Block, Certificate, Problem

MAX_ROWS, MAX_COLUMNS = 5000, 256
"""Maximum numbers of rows and columns of a problem."""
MAX_STEPS = 100
"""Maximum number of steps, after which a problem is given up unless its gap is small enough."""
SOLVED_SHARE = 0.9
"""Steps end at this fraction of the tolerance, so that rounding has room in the certificate."""
NEAR_ENERGY = 1e-8
"""An iterate is near the optimum if grad' H^-1 grad is at most this fraction of P. Steps end there once the gap no longer
falls."""
MIN_FALL, MAX_IDLE_STEPS = 0.25, 2
"""Near the optimum, one of so many steps must reduce the gap to this fraction of the least one so far."""


def is_small(problem: Problem) -> bool:
    """Return whether a problem is solved by ``solve_small_problems``: linear, with a smooth loss, few rows and columns."""
    kind = problem.kind
    return (
        problem.rows <= MAX_ROWS
        and problem.columns <= MAX_COLUMNS
        and problem.kernel is None
        and problem.loss.smooth()
        and not (kind.one_class or kind.classes)
        and problem.regularizer.is_squared_norm
        and problem.regularizer.has_scale
        and problem.warm is None
        and not problem.held_out
    )


def small_problem_bytes(problems: Sequence[Problem]) -> int:
    """Return the bytes of the copied rows and of the Hessian of the largest problem."""
    return max(problem.components * (8 * problem.rows + 8 * problem.components) for problem in problems)


def solve_small_problems(problems: Iterable[SmallProblem], X: Rows, accepted: float) -> Iterator[Solved | None]:
    """Yield each problem solved, or None if it is given up because its gap would be above ``accepted``.

    X (n): the rows of all problems, as the solver sees them.
    """
    rows, values, numbers = X, np.empty((0, 0), np.float32), None
    for small in problems:
        if small.numbers is not numbers:
            numbers = small.numbers
            rows = X if len(numbers) == row_count(X) else take_rows(X, numbers)
            values = to_matrix(rows, small.problem.columns)
        w, steps = _minimize(small, values, rows.bias)
        yield _certify(small, rows, w, steps, accepted)


class _Minimum(NamedTuple):
    """The iterate with the least gap."""

    w: Float64
    steps: int
    """Number of steps that were made."""


def _minimize(small: SmallProblem, values: Float32, bias: float) -> _Minimum:
    """Make Newton steps until the gap is below the tolerance, or until rounding error keeps it from falling."""
    problem, y, s = small.problem, small.y, small.s.astype(np.float64)
    C, loss, p, n = problem.C, problem.loss, problem.components, len(y)
    w, step, f, df = np.zeros(p), np.empty(p), np.empty(n), np.empty(n)
    best, least, idle, steps = w, np.inf, 0, 0
    while steps <= MAX_STEPS:
        primal, square, energy = newton_step(values, bias, y, s, C, loss, w, f, step, df)
        gap = 0.5 * square
        idle = 0 if gap <= MIN_FALL * least else idle + 1
        if gap < least:
            best, least = w, gap
        if gap <= SOLVED_SHARE * problem.tolerance * primal or not np.isfinite(energy):
            break
        if idle >= MAX_IDLE_STEPS and energy <= NEAR_ENERGY * primal:
            break
        length = find_step_length(partial(line_pass, y, s, f, df, C, loss), (float(w @ step), float(step @ step)))
        if length == 0.0:
            break
        w, steps = w + length * step, steps + 1
    return _Minimum(best, steps)


def _certify(small: SmallProblem, X: Rows, w: Float64, steps: int, accepted: float) -> Solved | None:
    """Return the state and the certificate of a pass at w; None if the gap is above ``accepted``."""
    problem, order = small.problem, np.arange(len(small.y), dtype=np.int32)
    state = Newton().start(problem)
    state.point_sums.add(problem, problem.loss, Block(X, small.y, small.s, 0, 0, order, 0), w)
    evaluation = state.point_sums.close(problem, w)
    state.point = state.best = w
    state.primal, state.dual, state.passes = evaluation.primal, evaluation.dual, 1
    state.dual_point = DualPoint(w, 0.0, evaluation.scale)
    state.best_gradient = evaluation.gradient
    facts = {"rows": "all in memory", "method": "newton", "steps": steps, "products": 0}
    certificate = Certificate(state.primal, state.dual, facts=facts)
    return Solved(state, certificate) if certificate.gap <= accepted else None
