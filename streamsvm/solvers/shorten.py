"""A kernel machine with fewer points: its projection on the span of some of its support rows.

Given f = sum_i w_i k(., x_i) over the support, the best approximation within span {k(., x_j): j kept} in the norm of the
kernel's space has the coefficients K_kept^-1 K_kept,support w (Schoelkopf et al. 1999, reduced sets, with the points
fixed). Dropping small coefficients instead leaves a machine made of outliers. Kept rows are drawn with the probability
|w_i|, in float64, a small ridge keeping the matrix regular.
"""

from __future__ import annotations

import numpy as np

from streamsvm.compute.expansion import expand, gram
from streamsvm.compute.subset import members
from streamsvm.rows import Float64
from streamsvm.solvers.pool import Form, Pool, select
from streamsvm.types import Block

RIDGE = 1e-6
"""Of the largest diagonal entry: float32 kernel values are no better than that."""


def shortened(support: Pool, weights: Float64, form: Form, count: int) -> Pool:
    """``count`` rows of the support, x the coefficients of the shorter machine (signs included)."""
    draw = np.random.default_rng(count)
    keys = np.log(draw.random(support.size)) / np.maximum(np.abs(weights), 1e-300)
    kept = select(support, np.sort(np.argpartition(keys, -count)[-count:]))
    K = gram(kept.X, form.kernel, form.columns).astype(np.float64) + form.constant
    K[np.diag_indices_from(K)] += RIDGE * float(K.diagonal().max())
    values = np.full(count, form.constant * float(weights.sum()))
    expand(kept.X, support.X, weights, form.kernel, form.columns, values)
    kept.x = np.linalg.solve(K, values)
    kept.sign[:] = 1.0
    return kept


def short_values(short: Pool, form: Form, block: Block) -> tuple[Float64, float]:
    """Decision values of the shorter machine on a block, and the block's part of its squared norm."""
    f = np.full(len(block.y), form.constant * float(short.x.sum()))
    expand(block.X, short.X, short.x, form.kernel, form.columns, f)
    mine = members(short.index, block.start, len(f))
    return f, float(short.x[mine] @ f[short.index[mine] - block.start])
