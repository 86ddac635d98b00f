"""A loaded chunk as the problems of a fit see it: cut into parts, with targets and weights for each problem, shown to its solver.

This is the only place where a solver meets rows while it trains, whether the chunk was read by this process or by a worker.
A one-vs-one problem gets a copy of the rows of its two classes, block by block, so that its cost grows with its own rows; the rows keep
their global numbers (``Block.places``), by which solvers recognize them in the next pass and models in all pairs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from streamsvm.aliases import Array, RowRecord
from streamsvm.compute.blocks import operators
from streamsvm.rows import Float32, Float64, Int32, Int64, Rows, Targets
from streamsvm.schedule.stream import Loaded
from streamsvm.types import AnySolver, Block, Certificate, FeatureMap, FeaturePart, Problem, State
from streamsvm.types.problem import class_factors


def block_of(problem: Problem, loaded: Loaded, part: FeaturePart, start: int, *, reused: bool = False) -> Block | None:
    """Return a part of a chunk as a problem sees it; None where a pair of classes has no row in it.

    ``start``: the global number of the chunk's first row. ``reused``: other problems see the part too, so that its order is copied.
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
    """Return what the rows of a block have of ``values`` (rows of the part, ...): a view, of a pair of classes a copy."""
    return values if places is None else values[places]


def targets_and_weights(problem: Problem, codes: Array, weight: Float32 | None) -> tuple[Targets, Float32 | Float64]:
    """The targets (n,) and weights (n,) a problem gives to rows of these codes (n,) and row weights (n,).

    Weights are float32 but for those of classes that float32 does not hold, and products of both kinds: float64.
    """
    y, s = problem.kind.targets(codes), class_factors(codes, problem.weights)
    if weight is None:
        return y, s
    plain = s.dtype == np.float32 and bool((s == 1.0).all())
    return y, (s if plain else s.astype(np.float64)) * weight


def order_within(order: Int32, part: FeaturePart, *, reused: bool) -> Int32:
    """The visiting order of a chunk restricted to a part of it; a copy if other problems are to use the same order."""
    if part.stop - part.start == len(order):
        return order.copy() if reused else order
    return order[(order >= part.start) & (order < part.stop)] - np.int32(part.start)


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
            whole = [one.state for one in shown if not one.problem.kind.selects_rows]
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

    def join_gathered(self, states: list[State]) -> None:
        """Say that a pass is over, before its problems are finished one after the other. Changes the states."""
        self.solver.join_gathered(states)

    def finish(self, state: State, deadline: float = float("inf")) -> Certificate:
        """Close a pass. A solver that can stop early does so after ``deadline``, a moment of ``time.perf_counter``."""
        self.solver.set_deadline(state, deadline)
        return self.solver.finish(state)
