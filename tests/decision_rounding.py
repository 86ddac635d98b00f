"""How far apart decision values of the same rows may be where one door evaluates in float32 and another in float64.

Rows in memory are evaluated in float64, so that a row's value does not depend on the rows beside it; rows of stores and files in float32
where that is enough. With e_u the bound on a kernel value of ``compute.kernel_values.rounding`` for the unit roundoff u, each value is off
by at most e_u sum_j |w_j|, and both come from the same float32 rows: they differ by at most (e_single + e_double) sum_j |w_j|.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from streamsvm.compute.kernel_values.arithmetic import DOUBLE, SINGLE, error_of
from streamsvm.kernels import KERNELS
from streamsvm.model import Model
from streamsvm.rows import Dense, Reach


def decision_rounding(model: Model, stored: Any) -> float:
    """The bound for rows (n, d) as a store has them, of a model whose points are dense; 0 of a linear one, which has one arithmetic."""
    if model.expansion is None:
        return 0.0
    expansion, seen = model.expansion, np.asarray(stored, np.float64)
    if expansion.shift is not None and expansion.scale is not None:
        seen = (seen - expansion.shift) * expansion.scale
    assert isinstance(expansion.points, Dense)
    both = np.concatenate([seen, expansion.points.values])
    reach = Reach(expansion.columns, float((both**2).sum(axis=1).max()))
    kernel = KERNELS[expansion.kernel](**expansion.parameters)
    weight = float(np.abs(model.weights[:, :-1]).sum(axis=1).max())
    return weight * (error_of(kernel, reach, SINGLE) + error_of(kernel, reach, DOUBLE))
