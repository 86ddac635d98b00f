"""What a visit computes of a block: g of its rows from the support, anew in every pass, and what they add to both bounds."""

from __future__ import annotations

import time

import numpy as np

from streamsvm.compute.kernel_values.expansion import expand
from streamsvm.compute.passes.certificate import RowLoss
from streamsvm.compute.passes.coordinates import ridges, shifted_losses
from streamsvm.rows import Float64
from streamsvm.solvers.kernel.pool import Pool
from streamsvm.solvers.kernel.reduced_set import evaluate_reduced_set
from streamsvm.solvers.kernel.rounding import extend_reach
from streamsvm.solvers.kernel.simplex.state import SimplexState
from streamsvm.types import Block


def rows_of(state: SimplexState, block: Block) -> tuple[Pool, Float64]:
    """Return the block's rows with a and g, and their decision values at a."""
    n, p, support = len(block.y), state.problem, state.support
    f, a = np.zeros(n), np.zeros(n)
    if support is not None:
        weights = support.sign * support.x
        f += state.form.constant * weights.sum()
        if state.shared_values is None:
            form, began = state.form, time.perf_counter()
            expand(block.X, support.X, weights, form.kernel, form.columns, f, form.arithmetic)
            state.pace = (time.perf_counter() - began) / max(n * support.size, 1)
        else:
            f += state.shared_values
            state.shared_values = None
        mine, places = block.members(support.index)
        a[places] = support.x[mine]
    ridge, sign = ridges(block.s, p.C, p.loss), block.y.astype(np.float64)
    v = -(sign * f + ridge * a)
    if support is not None:
        support.v[mine] = v[places]
    usable = (block.s > 0).astype(np.float64)
    return Pool(block.X, block.numbers, sign, ridge, np.zeros(n), usable, np.zeros(n), a, v), f


def measure(state: SimplexState, block: Block, rows: Pool, f: Float64) -> None:
    """Add to the sums of the pass what the block's rows are worth: f(a), the smallest g, the losses of the model."""
    p = state.problem
    state.reach = extend_reach(state.reach, block.X)
    state.square += float((rows.sign * rows.x) @ f)
    state.absolute += float(rows.x @ np.abs(f))
    state.ridge += float(rows.ridge @ np.square(rows.x))
    state.lowest = min(state.lowest, float(np.min(-rows.v, where=rows.high > 0, initial=np.inf)))
    values = f * state.dual_scale()
    if state.reduced is not None:
        values, part = evaluate_reduced_set(state.reduced, state.form, block)
        state.reduced_square += part
    cost = RowLoss(p.C, p.loss, p.loss)
    shifted_losses(values, block.y, block.s, cost, 0.0, np.zeros(1), state.losses)
    state.error = max(state.error, state.value_error())
    shifted_losses(values, block.y, block.s, cost, state.error, np.zeros(1), state.upper_losses)
