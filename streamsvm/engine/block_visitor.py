"""Cut loaded chunks into blocks, add the targets and weights of each problem, and pass the blocks to the solver's
``visit``.

Solvers receive rows only from here while they train, whether the chunk was read by this process or by a worker. A
one-vs-one problem gets a copy of the rows of its two classes, block by block, so that its cost grows with the number of
its own rows. The rows keep their global numbers (``Block.places``), by which solvers identify them in the next pass,
and models identify them across pairs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from streamsvm.compute.blocks import operators
from streamsvm.rows import Float32, Float64, Int32, Int64, Rows, Targets
from streamsvm.schedule.stream import LoadedChunk
from streamsvm.type_aliases import Array, RowRecord
from streamsvm.types import AnySolver, Block, Certificate, FeatureMap, FeaturePart, Problem, State
from streamsvm.types.problem import class_factors


def block_of(
    problem: Problem, loaded: LoadedChunk, part: FeaturePart, start: int, *, reused: bool = False
) -> Block | None:
    """Return the block of a problem for one part of a chunk; None if a one-vs-one problem has no row in it.

    ``start``: the global number of the chunk's first row. ``reused``: other problems use the part too; its order is
    then copied.
    """
    span, weight = slice(part.start, part.stop), loaded.chunk.weight
    codes, weight = loaded.chunk.codes[span], None if weight is None else weight[span]
    order, X, places = order_within(loaded.order, part, reused=reused), part.X, None
    chosen = problem.kind.select(codes)
    if chosen is not None:
        if not chosen.any():
            return None
        places, X, codes = np.flatnonzero(chosen), operators.where(X, chosen), codes[chosen]
        weight = None if weight is None else weight[chosen]
        order = (np.cumsum(chosen, dtype=np.int32) - 1)[order[chosen[order]]].astype(np.int32)
    y, s = targets_and_weights(problem, codes, weight)
    chunk, seed = loaded.visit.chunk, loaded.visit.seed + part.start
    return Block(X, y, s, chunk, start + part.start, order, seed, places=places)


def own_rows(values: Array, places: Int64 | None) -> Array:
    """Return the entries of ``values`` (rows of the part, ...) that belong to a block's rows: a view; a copy for
    one-vs-one.
    """
    return values if places is None else values[places]


def targets_and_weights(problem: Problem, codes: Array, weight: Float32 | None) -> tuple[Targets, Float32 | Float64]:
    """Return a problem's targets (n,) and weights (n,) for rows with these codes (n,) and row weights (n,).

    The weights are float32, unless they are class weights that float32 cannot represent exactly, or products of class
    and row weights: then they are float64.
    """
    y, s = problem.kind.targets(codes), class_factors(codes, problem.weights)
    if weight is None:
        return y, s
    has_class_weights = s.dtype != np.float32 or bool((s != 1.0).any())
    return y, (s.astype(np.float64) if has_class_weights else s) * weight


def order_within(order: Int32, part: FeaturePart, *, reused: bool) -> Int32:
    """Return the visiting order of a chunk restricted to one part; a copy if other problems use the same order."""
    if part.stop - part.start == len(order):
        return order.copy() if reused else order
    return order[(order >= part.start) & (order < part.stop)] - np.int32(part.start)


class ActiveProblem(NamedTuple):
    """A problem that is not solved yet."""

    number: int
    """Index of the problem among those of the fit, and in the per-row state."""
    problem: Problem
    state: State
    """The state of its solver, changed in place by every visit."""


@dataclass(frozen=True, slots=True)
class BlockVisitor:
    """Passes the blocks of loaded chunks to one solver, through one feature map."""

    solver: AnySolver
    features: FeatureMap
    """The map from stored rows to the features that the solver sees."""
    cached: bool = False
    """Whether all blocks stay in memory, so that solvers may use a block again without reading."""

    def visit(
        self,
        loaded: LoadedChunk,
        chunk: int,
        start: int,
        active: Sequence[ActiveProblem],
        row_values: Mapping[str, Array],
    ) -> None:
        """Visit chunk number ``chunk`` for every active problem that does not hold it out. Changes the states and
        ``row_values``.

        ``start`` is the number of the chunk's first row in the store. ``row_values`` holds the per-row state of the
        chunk, (problems, rows), by name.
        """
        visiting = [problem for problem in active if chunk not in problem.problem.held_out]
        for part in self._parts(loaded.chunk.X, visiting):
            using_all_rows = [problem.state for problem in visiting if not problem.problem.kind.selects_rows]
            shared = self.solver.prepare_shared(using_all_rows, part.X) if using_all_rows else None
            copies: dict[bytes, RowRecord] | None = {} if len(visiting) > 1 else None
            for problem in visiting:
                block = block_of(problem.problem, loaded, part, start, reused=len(visiting) > 1)
                if block is None:
                    continue
                block.chunk, block.cached = chunk, self.cached
                block.copies = copies if block.places is None else None  # each pair of classes has other rows
                part_values = {name: v[problem.number][part.start : part.stop] for name, v in row_values.items()}
                block.rows = {name: own_rows(values, block.places) for name, values in part_values.items()}
                self.solver.visit(problem.state, block)
                if block.places is not None:
                    for name, values in part_values.items():
                        values[block.places] = block.rows[name]
            if using_all_rows:
                self.solver.finish_shared(using_all_rows, part.X, shared)

    def _parts(self, X: Rows, visiting: Sequence[ActiveProblem]) -> Iterator[FeaturePart]:
        """Return the features of rows in parts; if no problem needs features in this pass, rows without features."""
        needed = any(self.solver.needs_features(problem.state) for problem in visiting)
        return self.features.parts(X) if needed else self.features.lazy_parts(X)

    def share_between_problems(self, states: list[State]) -> None:
        """Call the solver's ``share_between_problems`` at the end of a pass, before ``finish`` is called for each state."""
        self.solver.share_between_problems(states)

    def finish(self, state: State, deadline: float = float("inf")) -> Certificate:
        """Close a pass of one problem. A solver with ``stops_early`` stops at ``deadline``, a moment of
        ``time.perf_counter``.
        """
        self.solver.set_deadline(state, deadline)
        return self.solver.finish(state)
