"""The active set method as a solver of linear problems: for rows that fit the memory, and to the last digits of float64.

The first pass gathers the rows and evaluates the weights there are at first; the problem is solved when it ends
(``linear_problem``). The second pass writes the dual variables to their rows and sums what both bounds are made of: the
certificate is that of a reading, like any other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from streamsvm.compute.blocks import operators
from streamsvm.compute.blocks.selection import bytes_per_row
from streamsvm.compute.blocks.sums import dual_sum
from streamsvm.rows import Float64, Int64
from streamsvm.solvers.active_set.gathered import ARRAYS, JOINING, Gatherer
from streamsvm.solvers.active_set.linear_problem import exact
from streamsvm.solvers.newton.explicit import matrix_bytes
from streamsvm.solvers.newton.in_memory.linear_systems.preconditioner import block_bytes, block_size
from streamsvm.solvers.point_evaluation import PointSums
from streamsvm.tags import saved_as
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

FACTOR_BYTES = 40
"""Of an entry of the free block: its factor has room for up to four times as many, and is copied when it grows."""
VECTORS = 40
"""Of length p: what starts, steps and sums hold."""


@saved_as("active_set.state")
@dataclass(slots=True)
class ActiveSetState:
    """``point`` (columns + 1,) is what the pass under way evaluates."""

    problem: Problem
    """What is solved."""
    point: Float64
    """The weights, the first ones until the problem is solved."""
    evaluation: PointSums
    """The sums of the pass at ``point``."""
    v: Float64
    """(columns + 1,) sum a_i y_i x_i of the dual variables, over the rows met in this pass."""
    best: Float64
    """(columns + 1,) the point of least exact P so far, which is the solution."""
    primal: float = np.inf
    """P of ``best``; inf before the first pass."""
    dual: float = -np.inf
    """The largest D of variables that rows were told; -inf before the first pass."""
    gatherer: Gatherer = field(default_factory=Gatherer)
    """The rows, until the problem is solved."""
    row: Int64 = field(default_factory=lambda: np.empty(0, np.int64))
    """(n,) the global numbers of the rows that have dual variables, rising."""
    a: Float64 = field(default_factory=lambda: np.empty(0))
    """(n,) those variables."""
    gain: float = 0.0
    """sum a_i - conjugate(a_i) over the rows met in this pass."""
    solved: bool = False
    """Whether ``point`` is the optimum, to rounding."""
    exchanges: int = 0
    """Rows that became free on the way."""
    deadline: float = np.inf
    """When work in memory is to end, on the clock of ``time.perf_counter``."""


@dataclass(frozen=True, slots=True)
class ActiveSet(Solver[ActiveSetState]):
    """The method. It has no settings."""

    row_state: ClassVar[tuple[RowState, ...]] = (RowState(DUAL, "float64"),)
    """The dual variable of every row, once they are known."""
    shuffled: ClassVar[bool] = False
    """False: no step is taken while rows are read, so that their order does not matter."""
    losses: ClassVar[LossRequirement] = LossRequirement(quadratic=True)
    """The conjugate must be a parabola or a line: with the set of free rows given, the optimum is that of a linear system."""
    stops_early: ClassVar[bool] = True
    warm_start: ClassVar[bool] = True

    def cost(self, problem: Problem, layout: Layout) -> Cost:
        """Bytes of all rows, twice while they are joined, of the free block or a matrix of all columns, and of vectors."""
        p, rows = problem.columns + 1, problem.rows
        sides = 2 if problem.loss.numeric() else 1
        row = bytes_per_row(layout.columns, layout.rows, layout.nonzeros, layout.entry_bytes) + sides * ARRAYS
        nonzeros = problem.nonzeros or rows * p
        start = block_bytes(block_size(problem.columns, nonzeros, dense=layout.dense), layout.entry_bytes)
        free, matrix = FACTOR_BYTES * min(p, rows) ** 2, matrix_bytes(min(p, rows), layout.entry_bytes)
        held = JOINING * rows * row + max(start, free, matrix)
        return Cost(fixed=held + VECTORS * 8 * p, per_row=8, per_block_row=24)

    def start(self, problem: Problem) -> ActiveSetState:
        """Begin at w = 0, or at the warm weights."""
        p, point = problem.columns + 1, problem.first_weights()
        return ActiveSetState(problem, point, PointSums(p), np.zeros(p), point)

    def visit(self, state: ActiveSetState, block: Block) -> None:
        """Add the block to both bounds; gather its rows, or tell them their dual variables."""
        state.evaluation.add(state.problem, state.problem.loss, block, state.point)
        if not state.solved:
            state.gatherer.add(block)
        part, places = block.members(state.row)
        alpha = np.zeros(len(block.y))
        alpha[places] = state.a[part]
        entries = alpha * state.problem.task.signs(block.y)
        state.v += operators.adjoint(block.X, entries, state.problem.columns)
        state.gain += dual_sum(alpha, block.y, block.s, state.problem.C, state.problem.loss)
        if DUAL in block.rows:
            block.rows[DUAL][:] = alpha

    def set_deadline(self, state: ActiveSetState, moment: float) -> None:
        """Rows are exchanged until that moment, and what is feasible then is certified."""
        state.deadline = moment

    def finish(self, state: ActiveSetState) -> Certificate:
        """Close the pass: both bounds are exact for the point it began with; then the problem is solved, once.

        The slopes of the loss may prove more than the variables that rows have been told. They end no run: whoever is given
        the variables is to find the bound by them.
        """
        found = state.evaluation.close(state.problem, state.point)
        if found.primal < state.primal:
            state.primal, state.best = found.primal, state.point
        state.dual = max(state.dual, state.gain - 0.5 * float(state.v @ state.v))
        wanted = state.problem.tolerance * abs(state.primal)
        dual = max(state.dual, found.dual) if state.primal - found.dual > wanted else state.dual
        certificate = Certificate(state.primal, dual, final=state.solved, facts={"exchanges": state.exchanges})
        if not state.solved and state.primal - state.dual > wanted:
            self._solve(state)
        state.evaluation.clear()
        state.v[:], state.gain = 0.0, 0.0
        return certificate

    def _solve(self, state: ActiveSetState) -> None:
        rows = state.gatherer.joined()
        known = state.a if np.array_equal(rows.row, state.row) else None
        found = exact(state.problem, rows, state.deadline, known)
        state.point, state.a, state.row = found.w, found.a, rows.row
        state.solved, state.exchanges = found.finished, state.exchanges + found.exchanges

    def certify(self, state: ActiveSetState) -> None:
        """Every pass is an exact evaluation."""

    def merge(self, states: list[ActiveSetState]) -> ActiveSetState:
        """Add up what each worker summed, and put together what they gathered."""
        first, *others = states
        for other in others:
            first.evaluation.merge(other.evaluation)
            first.gatherer.merge(other.gatherer)
            first.v = first.v + other.v
            first.gain += other.gain
        return first

    def solution(self, state: ActiveSetState) -> LinearSolution:
        """The weights of the least P that a pass has evaluated."""
        return LinearSolution(state.best.copy(), state.problem.bias)
