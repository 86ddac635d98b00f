"""The rows the model is made of: the support as a pass finds it, or where fewer rows are allowed a draw and a fit to it.

``most`` is the setting ``max_support``: rows the model may have, 0 for all of the support.
"""

from __future__ import annotations

import numpy as np

from streamsvm.solvers.kernel.decomposition.state import DecompositionState
from streamsvm.solvers.kernel.pool import Pool, in_order, select, unite
from streamsvm.solvers.kernel.reduced_set import SAMPLE_PER_POINT, drawn, reduced_to


def collect(state: DecompositionState, rows: Pool, most: int) -> None:
    """Keep the support rows of a block, copied."""
    state.collected_parts.append(select(rows, np.flatnonzero(rows.x)))
    shorten_collected(state, most)


def shorten_collected(state: DecompositionState, most: int) -> None:
    """Leave of the support rows that were collected as many as a model of ``most`` is fitted to; 0: all."""
    if most and sum(part.size for part in state.collected_parts) > 2 * SAMPLE_PER_POINT * most:
        state.collected_parts = [_sampled(unite(state.collected_parts), most)]


def collected(state: DecompositionState, most: int) -> Pool:
    """Return what the pass has collected, by row number: the support, or the draw of it that the model is fitted to."""
    return in_order(_sampled(unite(state.collected_parts), most))


def _sampled(rows: Pool, most: int) -> Pool:
    return select(rows, drawn(rows.index, rows.x, SAMPLE_PER_POINT * most)) if most else rows


def reduce_support(state: DecompositionState, most: int) -> bool:
    """Make the reduced model, if one is asked for and not all of the support is allowed in it; whether it was made."""
    support = state.support
    if support is None or not 0 < most < state.support_size:
        return False
    values = support.p - support.v - support.ridge * support.x
    importance = state.problem.C * state.support_size / support.size
    state.reduced = reduced_to(support, values, state.form, most, importance)
    state.reach = 1.0
    return True
