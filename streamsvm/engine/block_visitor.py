"""A loaded chunk as the problems of a fit see it: cut into parts, labeled for each problem, shown to its solver.

The one place where a solver meets rows while it trains, whether the chunk was read by this process or by a worker.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from streamsvm.aliases import Array, RowRecord
from streamsvm.rows import Float32, Int32, Targets
from streamsvm.schedule.stream import Loaded
from streamsvm.types import (
    AnySolver,
    Block,
    Certificate,
    Deadline,
    FeatureMap,
    FeaturePart,
    Problem,
    SharedGathering,
    SharedRows,
    State,
)


class ActiveProblem(NamedTuple):
    """A problem that is still being solved."""

    number: int
    """Its place among the problems of the fit, which is its place in per-row state as well."""
    problem: Problem
    """What is being solved."""
    state: State
    """The state of its solver, changed in place by every visit."""


@dataclass(frozen=True, slots=True)
class BlockVisitor:
    """Shows chunks to one solver through one feature map."""

    solver: AnySolver
    """What visits blocks and closes passes."""
    features: FeatureMap
    """From stored rows to what the solver sees."""
    cached: bool = False
    """Whether all blocks stay in memory, so that solvers may come back to one at no cost."""

    def visit(
        self,
        loaded: Loaded,
        chunk: int,
        start: int,
        active: Sequence[ActiveProblem],
        rows: Mapping[str, Array],
    ) -> None:
        """Let every problem that may see chunk number ``chunk`` visit it. Changes the states and ``rows``.

        ``start`` is the number of the chunk's first row in the store. ``rows`` holds the per-row state of the chunk,
        (problems, rows), by name.
        """
        shown = [problem for problem in active if chunk not in problem.problem.held_out]
        for part in self.features.parts(loaded.chunk.X):
            if isinstance(self.solver, SharedRows):
                self.solver.prepare_shared([one.state for one in shown], part.X)
            copies: dict[bytes, RowRecord] | None = {} if len(shown) > 1 else None
            for one in shown:
                order = order_within(loaded.order, part, reused=len(shown) > 1)
                y, s = labeled_part(one.problem, loaded, part)
                mine = {name: values[one.number][part.start : part.stop] for name, values in rows.items()}
                seed = loaded.visit.seed + part.start
                block = Block(part.X, y, s, chunk, start + part.start, order, seed, self.cached, mine, copies)
                self.solver.visit(one.state, block)

    def gathered(self, states: list[State]) -> None:
        """Say that a pass is over, before its problems are finished one after the other. Changes the states."""
        if isinstance(self.solver, SharedGathering):
            self.solver.join_gathered(states)

    def finish(self, state: State, deadline: float = float("inf")) -> Certificate:
        """Close a pass. A solver that can stop early does so after ``deadline``, a moment of ``time.perf_counter``."""
        if isinstance(self.solver, Deadline):
            self.solver.set_deadline(state, deadline)
        return self.solver.finish(state)


def labeled_part(problem: Problem, loaded: Loaded, part: FeaturePart) -> tuple[Targets, Float32]:
    """The targets and weights (n,) float32 a problem gives to the rows of a part of a chunk."""
    span, weight = slice(part.start, part.stop), loaded.chunk.weight
    return targets_and_weights(problem, loaded.chunk.codes[span], None if weight is None else weight[span])


def targets_and_weights(problem: Problem, codes: Array, weight: Float32 | None) -> tuple[Targets, Float32]:
    """The targets (n,) and weights (n,) float32 a problem gives to rows of these codes (n,) and row weights (n,)."""
    task = problem.task
    s = task.factors(codes)
    return task.targets(codes), s if weight is None else s * weight


def order_within(order: Int32, part: FeaturePart, *, reused: bool) -> Int32:
    """The visiting order of a chunk restricted to a part of it; a copy if other problems are to use the same order."""
    if part.stop - part.start == len(order):
        return order.copy() if reused else order
    return order[(order >= part.start) & (order < part.stop)] - np.int32(part.start)
