"""Elementary functions for compiled passes, written so that the compiler turns their loops into vectors.

The library's exp is a scalar call, 3 - 7 ns per value; this one uses only arithmetic and takes about 0.7 ns. It uses
Cody and Waite's reduction: x = k ln 2 + r with |r| <= (ln 2)/2, where k ln 2 is subtracted in two parts of which the
first is exact; then exp(x) = 2^k (1 + r + r^2 q(r)). The polynomial q of degree 4 minimizes the largest relative error
on that interval (Lawson's iteration on 4001 Chebyshev nodes): 3e-9, well below the rounding of float32. The total error
is below 1e-7.

The float64 version uses Taylor's polynomial of degree 13, whose remainder is 4e-18; the total error is below 4e-16. k
is taken from the bits of x / ln 2 + 1.5 2^52, which is one vector instruction on every processor, unlike a conversion
to int64.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

from streamsvm import kernels
from streamsvm.compute.compiled import NOT_FROM_C, compiled

LOG2_E = np.float32(1.4426950408889634)
LN2_HIGH = np.float32(0.693359375)
"""ln 2 to nine bits; its product with any k that occurs is exact in float32."""
LN2_LOW = np.float32(-2.1219444005471e-4)
Q0, Q1, Q2, Q3, Q4 = (
    np.float32(c) for c in (4.9999993452e-01, 1.6666520689e-01, 4.1668387374e-02, 8.3687099613e-03, 1.3814613094e-03)
)
HALF, ONE, TWO = np.float32(0.5), np.float32(1), np.float32(2)
LOWEST, HIGHEST = np.float32(-87.33), np.float32(88.37)
"""For arguments between them 2^k is a normal float32; for others exp returns its values at these ends, 1.2e-38 and
2.4e38."""
BIAS, MANTISSA_BITS = np.int32(127), np.int32(23)
FUSED = {"contract"}
"""Sums must not be reordered: the two-part subtraction depends on its order."""
EXACT_ORDER: Any = {"fastmath": FUSED, **NOT_FROM_C}


@compiled(fastmath=FUSED)
def exp32(x):
    """Return e^x of a float32; NaN stays NaN."""
    x = LOWEST if x < LOWEST else x  # noqa: FURB136  max would turn NaN into a number
    x = HIGHEST if x > HIGHEST else x  # noqa: FURB136
    k = np.floor(x * LOG2_E + HALF)
    r = (x - k * LN2_HIGH) - k * LN2_LOW
    q = (((Q4 * r + Q3) * r + Q2) * r + Q1) * r + Q0
    return ((q * r) * r + r + ONE) * np.int32((np.int32(k) + BIAS) << MANTISSA_BITS).view(np.float32)


LN2_HIGH_64, LN2_LOW_64 = 6.93147180369123816490e-01, 1.90821492927058770002e-10
"""ln 2 to 33 bits, and the rest."""
LOG2_E_64, ROUND, LOWEST_64, HIGHEST_64 = 1.4426950408889634, 6755399441055744.0, -708.0, 709.0
BIAS_64, MANTISSA_BITS_64 = np.int64(1023), np.int64(52)
T = tuple(1.0 / math.factorial(n) for n in range(14))


@compiled(fastmath=FUSED)
def exp64(x):
    """Return e^x of a float64 between -708 and 709; outside, the value at the nearer end. NaN stays NaN."""
    x = LOWEST_64 if x < LOWEST_64 else x  # noqa: FURB136  max would turn NaN into a number
    x = HIGHEST_64 if x > HIGHEST_64 else x  # noqa: FURB136
    shifted = x * LOG2_E_64 + ROUND
    k = shifted - ROUND
    r = (x - k * LN2_HIGH_64) - k * LN2_LOW_64
    q = ((((T[13] * r + T[12]) * r + T[11]) * r + T[10]) * r + T[9]) * r + T[8]
    q = (((((q * r + T[7]) * r + T[6]) * r + T[5]) * r + T[4]) * r + T[3]) * r + T[2]
    bits = np.float64(shifted).view(np.int64)
    power = np.int64((bits + BIAS_64) << MANTISSA_BITS_64).view(np.float64)
    return ((q * r) * r + r + 1.0) * power


@overload(kernels.exp, jit_options=EXACT_ORDER)
def _exp(x):
    def double(x):
        return exp64(x)

    def single(x):
        return exp32(x)

    return single if x == types.float32 else double


@overload(kernels.positive, jit_options=NOT_FROM_C)
def _positive(x):
    zero = np.float32(0) if x == types.float32 else 0.0

    def positive(x):
        return zero if x < zero else x  # noqa: FURB136  max would turn NaN into 0

    return positive


@overload(kernels.tanh, jit_options=EXACT_ORDER | {"error_model": "numpy"})
def _tanh(x):
    """Compute 1 - 2 / (1 + exp(2 x)) in float32, with an absolute error of 2e-7; in float64, call numpy's tanh."""

    def double(x):
        return np.tanh(x)

    def single(x):
        return ONE - TWO / (ONE + exp32(x + x))

    return single if x == types.float32 else double


@overload(kernels.power, jit_options=NOT_FROM_C)
def _power(x, degree):
    """Compute powers of small degree by products; the general power is a scalar call."""

    def power(x, degree):
        if degree == 2:
            return x * x
        if degree == 3:
            return x * x * x
        if degree == 4:
            return (x * x) * (x * x)
        return x**degree

    return power
