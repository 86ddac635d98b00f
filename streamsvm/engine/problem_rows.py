"""The rows of a part of a chunk as one problem sees them: its targets and weights, and of a pair of classes its rows alone.

Rows of a pair are copied, block by block, so that what a problem costs grows with its own rows; they keep their global numbers
(``Block.places``), by which solvers know them again in the next pass and models know them alike in all pairs.
"""

from __future__ import annotations

import numpy as np

from streamsvm.aliases import Array
from streamsvm.compute.blocks import operators
from streamsvm.rows import Float32, Float64, Int32, Int64, Targets
from streamsvm.schedule.stream import Loaded
from streamsvm.types import Block, FeaturePart, Problem


def block_of(problem: Problem, loaded: Loaded, part: FeaturePart, start: int, *, reused: bool = False) -> Block | None:
    """Return a part of a chunk as a problem sees it; None where a pair of classes has no row in it.

    ``start``: the global number of the chunk's first row. ``reused``: other problems see the part too, so that its order is copied.
    """
    span, weight = slice(part.start, part.stop), loaded.chunk.weight
    codes, weight = loaded.chunk.codes[span], None if weight is None else weight[span]
    order, X, places = order_within(loaded.order, part, reused=reused), part.X, None
    if problem.negative is not None:
        chosen = (codes == problem.positive) | (codes == problem.negative)
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
    task = problem.task
    s = task.factors(codes)
    if weight is None:
        return task.targets(codes), s
    plain = s.dtype == np.float32 and bool((s == 1.0).all())
    return task.targets(codes), (s if plain else s.astype(np.float64)) * weight


def order_within(order: Int32, part: FeaturePart, *, reused: bool) -> Int32:
    """The visiting order of a chunk restricted to a part of it; a copy if other problems are to use the same order."""
    if part.stop - part.start == len(order):
        return order.copy() if reused else order
    return order[(order >= part.start) & (order < part.stop)] - np.int32(part.start)
