"""Scores and keys of priority sampling: the importance of a row for the next quadratic model, and the random key by
which it is drawn.

The passes of ``solvers.newton.priority_sampling``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from streamsvm.compute.blocks.curves import Curved
from streamsvm.compute.compiled import compiled
from streamsvm.compute.numba_bridge import FAST
from streamsvm.compute.random import MIX1, STEP, mix
from streamsvm.compute.targets import argument
from streamsvm.rows import Dense, Float32, Float64, Int32, Int64, Rows, Targets, row_count

FAR_SHARE = 0.01
"""The factor of the score of a row if the loss is linear over all widths that are examined. It is not 0, because the
row may have curvature later."""


@compiled(fastmath=FAST)
def scores_pass(y: Targets, s: Float32, f: Float64, smooth: Any, width: float, scores: Float64) -> None:
    """Multiply scores_i by s_i and by a factor for the curvature of h near m_i.

    The factor is 1 if the slope of h changes within ``width`` of m_i, 1/5 and 1/25 if it changes within 2 and 4 times
    ``width``, and else FAR_SHARE. If the conjugate is not quadratic, h has curvature everywhere; the factor is then its
    mean curvature within ``width``, relative to the largest curvature of h, but at least FAR_SHARE.

    Given: y, s, f, h = smooth, width. Changed: scores (n,); a row with weight 0 gets the score 0.
    """
    for i in range(y.size):
        if s[i] <= 0.0:
            scores[i] = 0.0
            continue
        m, near, reach = argument(smooth, y[i], f[i]), 1.0, width
        if not smooth.quadratic():
            near = (smooth.slope(m + width) - smooth.slope(m - width)) / (2.0 * width) * smooth.curvature(1.0)
        while smooth.quadratic() and near > FAR_SHARE and smooth.slope(m - reach) == smooth.slope(m + reach):
            reach *= 2.0
            near *= 0.2
        scores[i] *= s[i] * max(near, FAR_SHARE)


@compiled()
def keys_pass(scores: Float64, start: int, salt: int, keys: Float64) -> None:
    """Set keys_i = u_i / scores_i, where u_i in (0, 1] is a hash of ``salt`` and the global row number start + i
    (splitmix64).

    The rows with the k smallest keys are a sample that contains a row of score c with probability min(1, c t), where t
    is the next key: priority sampling (Duffield, Lund, Thorup, J. ACM 2007). The sample does not depend on how rows are
    divided into blocks or among workers.
    """
    seed = np.uint64(salt) * MIX1
    for i in range(scores.size):
        z = seed + np.uint64(start + i + 1) * STEP
        z = mix(z)
        u = (np.float64(z >> np.uint64(11)) + 1.0) / 9007199254740992.0
        keys[i] = u / scores[i] if scores[i] > 0.0 else np.inf


def leverages(X: Rows | Curved, scale: Float64, floor: float) -> Float64:
    """Return min(1, sum_j x_ij^2 scale_j) + floor (n,), an estimate of the leverage of each row; ``scale`` (p,) is 1 /
    sum_i x_ij^2.

    Curves and pairs of columns are left out: their penalty ties the values at rare knots and cells to those beside them.
    """
    if isinstance(X, Curved):
        scale = scale.copy()
        scale[: X.basis.starts[-1]] = 0.0
        if X.basis.pairs is not None:
            scale[X.basis.pairs.first : -1] = 0.0
        X = X.rows
    out = np.full(row_count(X), floor)
    if isinstance(X, Dense):
        _dense_leverages(X.values, X.bias, scale, out)
    else:
        _sparse_leverages(X.data, X.indices, X.indptr, X.bias, scale, out)
    return out


@compiled(fastmath=FAST)
def _dense_leverages(values: Float32, bias: float, scale: Float64, out: Float64) -> None:
    for i in range(out.size):
        row = values[i]
        total = bias * bias * scale[row.size]
        for j in range(row.size):
            total += np.float64(row[j]) * row[j] * scale[j]
        out[i] += min(total, 1.0)


@compiled(fastmath=FAST)
def _sparse_leverages(data: Float32, indices: Int32, indptr: Int64, bias: float, scale: Float64, out: Float64) -> None:
    for i in range(out.size):
        total = bias * bias * scale[scale.size - 1]
        for p in range(indptr[i], indptr[i + 1]):
            total += np.float64(data[p]) * data[p] * scale[np.uint32(indices[p])]
        out[i] += min(total, 1.0)
