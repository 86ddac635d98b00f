"""Bounds of the rounding error of a kernel value, and the choice of the arithmetic in which kernel values are computed.

Let u be the unit roundoff (2^-24 or 2^-53), e the largest number of entries of a row, and R^2 = max ||x||^2 over the
rows. To first order in u, for any order of the sums (Higham, *Accuracy and Stability of Numerical Algorithms*, section
3.1):

    a product               |fl(x.z) - x.z| <= e u |x|.|z| <= e u R^2
    a squared norm          summed in float64, then rounded: u R^2
    d^2 from these          (||x||^2 - x.z) + (||z||^2 - x.z), with three more roundings of at most 4 R^2:
                            |fl(d^2) - d^2| <= (2 e + 14) u R^2
    d^2 from differences    a sum of e positive terms: relative error (e + 3) u
    |x - z|_1               likewise, relative error (e + 2) u; for sparse rows |z|_1 + sum (|x_k - z_k| - |z_k|), absolute error
                            4 (e + 2) u max |x|_1, where max |x|_1 <= sqrt(e) R

The kernel value k is a smooth function of one of these numbers (``value_error`` of each kernel in ``kernels.py``),
computed with an error of at most VALUE u. Because t e^-t <= 1/e, a *relative* error of an exponent gives an absolute
error of k that depends neither on the width of the kernel nor on the distance of the rows from 0: computed from
differences in float64, a kernel of x - z has an error of about (e + 12) 1.1e-16 in all cases. Between rows of whole
numbers from 0 to 255, d^2 is computed in integers, without an error (``whole_numbers``).

A product that underflows has an error of half the smallest positive number TINY instead; to cover this, TINY / R^2 is
added to u. If float32 cannot represent the parameters of a kernel, or 4 R^2, the error of its float32 values has no
bound.

Solvers work in float32. Certificates are evaluated in float64: from products if their error is at most ENOUGH, or at
most a larger error that is known to suffice for the certificate; else from differences, which take three times as long.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from streamsvm.compute.blocks.selection import row_squares
from streamsvm.rows import Dense, Reach, Rows, row_count

SINGLE, DOUBLE, DIFFERENCES, WHOLE_SINGLE, WHOLE_DOUBLE = 0, 1, 2, 3, 4
"""The arithmetics: products in float32, products in float64, sums of differences in float64; squared distances of rows of
small whole numbers in integers, with kernel values in float32 or float64."""
WHOLE_NUMBERS = (WHOLE_SINGLE, WHOLE_DOUBLE)
"""The arithmetics whose squared distances are exact."""
UNITS = (2.0**-24, 2.0**-53, 2.0**-53, 2.0**-24, 2.0**-53)
"""The unit roundoff of each arithmetic."""
TINY = (2.0**-149, 2.0**-1074, 2.0**-1074, 2.0**-149, 2.0**-1074)
"""The smallest positive number of each arithmetic."""
COARSE = 1e-3
"""If the error of float32 kernel values exceeds this, they are of no use even while a solver works."""
ENOUGH = 1e-12
"""An error of a kernel value that is negligible in every certificate."""
SHOWN = 1e-3
"""Largest error of a decision value that is shown to the user."""
WIDEST = 8192
"""Largest number of columns for which sparse rows are converted to dense ones in order to compute differences."""


def dtype_of(arithmetic: int) -> Any:
    """Return the dtype of the values of an arithmetic."""
    return np.float32 if arithmetic in {SINGLE, WHOLE_SINGLE} else np.float64


def error_of(kernel: Any, reach: Reach, arithmetic: int) -> float:
    """Return a bound of the error of a computed k(x, z), for rows within ``reach``."""
    unit = UNITS[arithmetic] + (TINY[arithmetic] / reach.square if reach.square else 0.0)
    if arithmetic in {SINGLE, WHOLE_SINGLE} and not _holds_in_float32(kernel, reach):
        return math.inf
    if arithmetic in WHOLE_NUMBERS:  # the only rounding of a squared distance is that to float32
        return float(kernel.difference_error(reach._replace(entries=0), unit))
    if arithmetic == DIFFERENCES:
        return float(kernel.difference_error(reach, unit))
    return float(kernel.value_error(reach, unit))


def _holds_in_float32(kernel: Any, reach: Reach) -> bool:
    """Return whether float32 can represent the parameters of a kernel, and the largest squared distance."""
    least, most = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)
    return 4.0 * reach.square <= most and all(value == 0.0 or least <= abs(value) <= most for value in kernel)


def working_arithmetic(kernel: Any, reach: Reach, columns: int) -> int:
    """Return the arithmetic in which a solver works: float32, unless its error exceeds COARSE."""
    return SINGLE if error_of(kernel, reach, SINGLE) <= COARSE else exact_arithmetic(kernel, reach, columns)


def exact_arithmetic(kernel: Any, reach: Reach, columns: int, enough: float = ENOUGH) -> int:
    """Return the arithmetic of a certificate for which an error of ``enough`` in a kernel value is negligible."""
    wide = columns > WIDEST and not reach.dense
    if error_of(kernel, reach, DOUBLE) <= enough or wide or not kernel.translation_invariant():
        return DOUBLE
    return DIFFERENCES


def arithmetic_for(kernel: Any, points: Rows, weight: float, columns: int, *, dense: bool) -> int:
    """Return the arithmetic for the decision values of a kernel expansion: float32 if its error is at most SHOWN.

    ``weight``: the sum of the absolute values of the coefficients. ``dense``: whether the rows at which it is evaluated
    are dense.
    """
    squares = np.empty(row_count(points), np.float64)
    row_squares(points._replace(bias=0.0), squares)
    reach = reach_of(points, squares)
    reach = reach._replace(dense=reach.dense and dense)
    error = error_of(kernel, reach, SINGLE)
    return SINGLE if error <= COARSE and weight * error <= SHOWN else exact_arithmetic(kernel, reach, columns)


def reach_of(X: Rows, squares: Any) -> Reach:
    """Return the reach of some rows with the squared norms ``squares`` (n,)."""
    if isinstance(X, Dense):
        return Reach(X.values.shape[1], float(squares.max(initial=0.0)), dense=True)
    return Reach(int(np.diff(X.indptr).max(initial=0)), float(squares.max(initial=0.0)), dense=False)
