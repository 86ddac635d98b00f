"""What rounding can do to a kernel value, and in which arithmetic it is evaluated.

Let u be the unit roundoff (2^-24 or 2^-53), e the entries a row has at most, R^2 = max ||x||^2 over the rows. To first
order in u, whatever the order of the sums (Higham, *Accuracy and Stability of Numerical Algorithms*, section 3.1):

    a product           |fl(x.z) - x.z| <= e u |x|.|z| <= e u R^2
    a squared norm      summed in float64, then rounded: u R^2
    d^2 of these        (||x||^2 - x.z) + (||z||^2 - x.z), three more roundings of at most 4 R^2:
                        |fl(d^2) - d^2| <= (2 e + 14) u R^2
    d^2 by differences  a sum of e positive terms: relatively (e + 3) u
    |x - z|_1           the same, relatively (e + 2) u; of sparse rows |z|_1 + sum (|x_k - z_k| - |z_k|), absolutely
                        4 (e + 2) u max |x|_1, and max |x|_1 <= sqrt(e) R

and k is a smooth function of that number (``value_error`` of each kernel in ``kernels.py``), computed with an error of
at most VALUE u. t e^-t <= 1/e makes of a *relative* error of an exponent an absolute one of k that depends on neither
the width nor how far the rows are from 0: evaluated by differences in float64, a kernel of x - z is right to about
(e + 12) 1.1e-16 whatever is asked of it.

A product that underflows is off by half the least number there is, TINY, instead: TINY / R^2 is added to u. And where
float32 does not hold the parameters of a kernel, or 4 R^2, nothing is known of its values.

Float32 is the arithmetic of the work; what is certified is evaluated once more in float64, by products if they are
good to ENOUGH, or to what is known to be enough for a certificate, else by differences, which take three times as long.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from streamsvm.compute.blocks.selection import row_squares
from streamsvm.rows import Dense, Reach, Rows, row_count

SINGLE, DOUBLE, DIFFERENCES = 0, 1, 2
"""Arithmetics: products in float32, products in float64, sums of differences in float64."""
UNITS = (2.0**-24, 2.0**-53, 2.0**-53)
TINY = (2.0**-149, 2.0**-1074, 2.0**-1074)
"""The least number above 0 of each."""
COARSE = 1e-3
"""Kernel values with such an error in float32 are no use even while a solver works."""
ENOUGH = 1e-12
"""An error of a kernel value that no certificate feels."""
SHOWN = 1e-3
"""How far a decision value that is shown may be off."""
WIDEST = 8192
"""Columns up to which sparse rows are made dense for the sake of differences."""


def dtype_of(arithmetic: int) -> Any:
    """The type of the values of an arithmetic."""
    return np.float32 if arithmetic == SINGLE else np.float64


def error_of(kernel: Any, reach: Reach, arithmetic: int) -> float:
    """How far a computed value can be from k(x, z), for rows within ``reach``."""
    unit = UNITS[arithmetic] + (TINY[arithmetic] / reach.square if reach.square else 0.0)
    if arithmetic == SINGLE and not _holds_in_float32(kernel, reach):
        return math.inf
    if arithmetic == DIFFERENCES:
        return float(kernel.difference_error(reach, unit))
    return float(kernel.value_error(reach, unit))


def _holds_in_float32(kernel: Any, reach: Reach) -> bool:
    """Whether float32 holds the parameters of a kernel to its precision, and the squares it works with."""
    least, most = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)
    return 4.0 * reach.square <= most and all(value == 0.0 or least <= abs(value) <= most for value in kernel)


def working_arithmetic(kernel: Any, reach: Reach, columns: int) -> int:
    """What a solver works in: float32 unless that is no use."""
    return SINGLE if error_of(kernel, reach, SINGLE) <= COARSE else exact_arithmetic(kernel, reach, columns)


def exact_arithmetic(kernel: Any, reach: Reach, columns: int, enough: float = ENOUGH) -> int:
    """What certificates are evaluated in that do not feel an error of ``enough`` in a kernel value."""
    wide = columns > WIDEST and not reach.dense
    if error_of(kernel, reach, DOUBLE) <= enough or wide or not kernel.translation_invariant():
        return DOUBLE
    return DIFFERENCES


def arithmetic_for(kernel: Any, points: Rows, weight: float, columns: int, *, dense: bool) -> int:
    """The arithmetic of a function with coefficients of this sum of absolute values: float32 if that gives its values.

    ``dense``: whether the rows it is evaluated at are.
    """
    squares = np.empty(row_count(points), np.float64)
    row_squares(points._replace(bias=0.0), squares)
    reach = reach_of(points, squares)
    reach = reach._replace(dense=reach.dense and dense)
    error = error_of(kernel, reach, SINGLE)
    return SINGLE if error <= COARSE and weight * error <= SHOWN else exact_arithmetic(kernel, reach, columns)


def reach_of(X: Rows, squares: Any) -> Reach:
    """The reach of some rows, whose squared norms (n,) are known."""
    if isinstance(X, Dense):
        return Reach(X.values.shape[1], float(squares.max(initial=0.0)), dense=True)
    return Reach(int(np.diff(X.indptr).max(initial=0)), float(squares.max(initial=0.0)), dense=False)
