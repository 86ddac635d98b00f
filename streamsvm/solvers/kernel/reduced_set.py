"""The reduced set: a kernel machine with fewer points that approximates the one found.

Let f be the function on the support or on a sample S of it, and M the rows of S that are kept. The coefficients c of
g = sum_j c_j k(., x_j) minimize the increase of the objective for a loss with curvature 1 on the support,

    1/2 ||f - g||^2 + C/2 sum_i (f_i - g_i)^2,     so that     (K_MM + C share K_SM'K_SM) c = f_M + C share K_SM'f_S

with share = support rows / rows of S. The first term alone would give the projection on the span (Schoelkopf et al.
1999, reduced sets, with the points fixed), which interpolates f at the points and is far from f between them. Dropping
small coefficients would leave a machine made of outliers. Rows are drawn with probabilities proportional to |w_i|. The
system is solved in float64 with a small ridge.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np

from streamsvm.compute.kernel_values.kernel_products import expand, gram, tiles
from streamsvm.config.options import Bounds, Option
from streamsvm.rows import Float64, Int64, row_slice
from streamsvm.solvers.kernel.pool import Form, Pool, select_rows
from streamsvm.types import Block

RELATIVE_RIDGE = 1e-6
"""Added to the diagonal, relative to its largest entry, since float32 kernel values are not more accurate."""
GOLDEN_RATIO = 0.6180339887498949
"""A number whose multiples modulo 1 fill the unit interval evenly."""
SAMPLE_PER_POINT = 4
"""Number of rows of S for each kept row."""
TILE_ROWS = 512
MaxSupport = Annotated[
    int,
    Option(
        "Maximum number of support rows of the model. A smaller model is fitted to the full one, and a last pass "
        "computes its gap. 0: no limit. See --max-support.",
        bounds=Bounds(least=0),
    ),
]


def reduced_set_bytes(count: int) -> int:
    """Return the bytes that ``fit_reduced_set`` needs for ``count`` points, besides the rows."""
    return 24 * count**2 + 8 * TILE_ROWS * count


def draw_by_weight(index: Int64, weights: Float64, count: int) -> Int64:
    """Return at most ``count`` positions, in order, drawn with probabilities proportional to |w_i| (Efraimidis,
    Spirakis 2006).

    The random number of a row is a function of its global number alone, so that drawing from draws is the same as
    drawing from all rows.
    """
    if len(index) <= count:
        return np.arange(len(index))
    keys = np.log(np.modf((index + 0.5) * GOLDEN_RATIO)[0]) / np.maximum(np.abs(weights), 1e-300)
    return np.sort(np.argpartition(keys, -count)[-count:])


def fit_reduced_set(support: Pool, values: Float64, form: Form, count: int, importance: float) -> Pool:
    """Return ``count`` rows of the support, whose x are the coefficients of the reduced machine, signs included.

    ``values``: f without the intercept at the rows of ``support``. ``importance``: C times the number of support rows
    that each of these rows stands for.
    """
    chosen = draw_by_weight(support.index, support.x, count)
    kept = select_rows(support, chosen)
    K = gram(kept.X, form.kernel, form.columns).astype(np.float64) + form.constant
    K[np.diag_indices_from(K)] += RELATIVE_RIDGE * float(K.diagonal().max())
    right = values[chosen].copy()
    for start in range(0, support.size, TILE_ROWS):
        rows = slice(start, min(start + TILE_ROWS, support.size))
        near = np.empty((rows.stop - rows.start, count), np.float32)
        for _, points, tile in tiles(row_slice(support.X, rows.start, rows.stop), kept.X, form.kernel, form.columns):
            near[:, points] = tile
        near += np.float32(form.constant)
        K += importance * (near.T @ near)
        right += importance * (values[rows] @ near)
    kept.x = np.linalg.solve(K, right).astype(np.float64, copy=False)
    kept.sign[:] = 1.0
    return kept


def evaluate_reduced_set(reduced: Pool, form: Form, block: Block) -> tuple[Float64, float]:
    """Return the decision values (n,) of the reduced machine on a block, and the block's term of its squared norm."""
    f = np.full(len(block.y), form.constant * float(reduced.x.sum()))
    expand(block.X, reduced.X, reduced.x, form.kernel, form.columns, f, form.arithmetic)
    set_places, places = block.members(reduced.index)
    return f, float(reduced.x[set_places] @ f[places])
