"""A block brought to the present x, and what its rows add to both bounds: what a visit does before it offers rows.

Where f is computed anew, in the arithmetic of certificates, that is for the rows which have a coefficient or may cost
something; all others have no say in P and D (``solvers.kernel.rounding``).
"""

from __future__ import annotations

import numpy as np

from streamsvm.compute.blocks.loss_sums import dual_sum
from streamsvm.compute.blocks.row_selection import take
from streamsvm.compute.kernel_values.expansion import expand
from streamsvm.compute.passes.certificate import RowLoss
from streamsvm.compute.passes.coordinates import beyond_corner, coordinates, in_reach_of_loss, shifted_losses
from streamsvm.rows import Float64, Int64
from streamsvm.solvers.kernel.decomposition.state import DecompositionState
from streamsvm.solvers.kernel.pool import Form, Pool, extremes
from streamsvm.solvers.kernel.reduced_set import reduced_values
from streamsvm.types import Block

COPIED_ROWS = 8192
"""Rows of a block that are copied at a time."""


def catch_up(state: DecompositionState, block: Block) -> None:
    """Bring a and f of the block, its per-row state, to the present x: own rows of the pool, then what moved elsewhere."""
    if state.pool is None or state.moved is None:
        return
    pool, f, n = state.pool, block.rows["f"], len(block.y)
    mine, own = block.members(pool.index)
    block.rows["alpha"][own] = pool.x[mine] if state.problem.loss.numeric() else np.abs(pool.x[mine])
    f[own] = (pool.p - pool.v - pool.ridge * pool.x)[mine]
    others = np.ones(n, bool)
    others[own] = False
    if state.shared_values is not None:
        f[others] += state.shared_values[others]
        state.shared_values = None
    elif others.any():
        places = np.flatnonzero(others)
        f[places] += expansion_at(block, places, state.moved, state.form)


def evaluate_anew(state: DecompositionState, support: Pool, block: Block) -> None:
    """Compute f anew from the support at the rows that have a coefficient or may cost something, or at all rows."""
    f, form = block.rows["f"], state.exact_form()
    slack = state.drift + state.reach
    near = block.rows["alpha"] != 0.0
    near |= in_reach_of_loss(f + state.intercept, block.y, state.problem.loss, slack) & (block.s > 0.0)
    chosen = np.arange(len(f)) if state.everywhere else np.flatnonzero(near)
    f[chosen] = expansion_at(block, chosen, support, form)


def expansion_at(block: Block, places: Int64, rows: Pool, form: Form) -> Float64:
    """Return sum_j x_j k(., z_j) over rows of a pool at some rows of a block (k,), which are copied a few at a time."""
    values = np.zeros(len(places))
    if len(places) == len(block.y):
        expand(block.X, rows.X, rows.x, form.kernel, form.columns, values, form.arithmetic)
        return values
    for start in range(0, len(places), COPIED_ROWS):
        some = take(block.X, places[start : start + COPIED_ROWS])
        part = values[start : start + COPIED_ROWS]
        expand(some, rows.X, rows.x, form.kernel, form.columns, part, form.arithmetic)
    return values


def rows_of(state: DecompositionState, block: Block) -> Pool:
    """Return the block's rows with all the pool wants to know of them; the features are not copied."""
    n, p = len(block.y), state.problem
    cost = RowLoss(p.C, p.loss, p.loss)
    found = coordinates(block.y, block.s, block.rows["alpha"], block.rows["f"], cost, state.intercept)
    state.top, state.bottom = _widened((state.top, state.bottom), beyond_corner(found, p.loss))
    return Pool(block.X, block.numbers, np.ones(n), found.ridge, found.low, found.high, found.p, found.x, found.v)


def measure(state: DecompositionState, block: Block, rows: Pool) -> None:
    """Add to the sums of the pass what the block's rows are worth: both bounds, the violation, the size of the support."""
    p, f = state.problem, block.rows["f"]
    state.top, state.bottom = _widened((state.top, state.bottom), extremes(rows))
    state.support_met += int(np.count_nonzero(rows.x))
    state.square += float(rows.x @ f)
    state.weight += float(np.abs(rows.x).sum())
    state.absolute += float(np.abs(rows.x) @ np.abs(f))
    if p.loss.numeric():
        state.absolute += float(np.abs(rows.x) @ np.abs(block.y))
    state.total += float(block.s.sum(dtype=np.float64))
    state.dual += dual_sum(block.rows["alpha"], block.y, block.s, p.C, p.loss)
    if state.reduced is not None:
        f, part = reduced_values(state.reduced, state.form, block)
        state.reduced_square += part
    cost = RowLoss(p.C, p.loss, p.loss)
    shifted_losses(f, block.y, block.s, cost, 0.0, state.shifts(), state.losses)
    shifted_losses(f, block.y, block.s, cost, state.value_error(), state.shifts(), state.upper_losses)


def _widened(one: tuple[float, float], other: tuple[float, float]) -> tuple[float, float]:
    """The largest v that may grow and the least that may shrink, of both."""
    return max(one[0], other[0]), min(one[1], other[1])
