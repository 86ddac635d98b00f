"""A loaded chunk as the problems of a fit see it: cut into parts, labeled for each problem, shown to its solver.

The one place where a solver meets rows while it trains, whether the chunk was read by this process or by a worker.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from streamsvm.aliases import Array, RowRecord
from streamsvm.engine.problem_rows import block_of, own_rows
from streamsvm.rows import Rows
from streamsvm.schedule.stream import Loaded
from streamsvm.types import (
    AnySolver,
    Certificate,
    FeatureMap,
    FeaturePart,
    Problem,
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
        for part in self._parts(loaded.chunk.X, shown):
            whole = [one.state for one in shown if one.problem.negative is None]
            if whole:
                self.solver.prepare_shared(whole, part.X)
            copies: dict[bytes, RowRecord] | None = {} if len(shown) > 1 else None
            for one in shown:
                block = block_of(one.problem, loaded, part, start, reused=len(shown) > 1)
                if block is None:
                    continue
                block.chunk, block.cached = chunk, self.cached
                block.copies = copies if block.places is None else None  # other pairs have other rows
                mine = {name: values[one.number][part.start : part.stop] for name, values in rows.items()}
                block.rows = {name: own_rows(values, block.places) for name, values in mine.items()}
                self.solver.visit(one.state, block)
                if block.places is not None:
                    for name, values in mine.items():
                        values[block.places] = block.rows[name]

    def _parts(self, X: Rows, shown: Sequence[ActiveProblem]) -> Iterator[FeaturePart]:
        """The features of rows, or rows without, where none of these problems needs any in this pass."""
        needed = any(self.solver.needs_features(one.state) for one in shown)
        return self.features.parts(X) if needed else self.features.unformed_parts(X)

    def gathered(self, states: list[State]) -> None:
        """Say that a pass is over, before its problems are finished one after the other. Changes the states."""
        self.solver.join_gathered(states)

    def finish(self, state: State, deadline: float = float("inf")) -> Certificate:
        """Close a pass. A solver that can stop early does so after ``deadline``, a moment of ``time.perf_counter``."""
        self.solver.set_deadline(state, deadline)
        return self.solver.finish(state)
