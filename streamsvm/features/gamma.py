"""The width of a kernel by rule, from the column statistics of the store: no pass over the data, no sampling.

For rows x, x' drawn at random and independently, E ||x - x'||^2 = 2 sum_j var_j exactly, so that the mean squared
distance of random pairs, which Frandi et al. estimate from a sample, is known without one.
"""

from __future__ import annotations

import numpy as np

from streamsvm.aliases import Array
from streamsvm.errors import UsageError
from streamsvm.rows import Float64
from streamsvm.types import Statistics


def gamma_of(rule: str | float, mean: Float64, variance: Float64, *, city_block: bool = False) -> float:
    """The gamma of a number or a rule, for columns of such mean and variance as the kernel sees them.

    ``scale``: 1 / (d v), v the variance of all entries together, as in LIBSVM and scikit-learn; but for columns far from 0,
    whose offset a kernel of x - z does not feel: they are centered before. ``mean-distance``:
    1 / (mean squared distance of random pairs). A kernel of the city-block distance takes 1 / d and
    1 / sum_j sqrt(2 var_j), an upper bound of the mean distance. Raises UsageError.
    """
    if not isinstance(rule, str):
        return _positive(float(rule))
    if rule == "scale":
        return 1.0 / len(mean) if city_block else _inverse(len(mean) * (variance.mean() + mean.var()))
    if rule == "mean-distance":
        return _inverse(np.sqrt(2.0 * variance).sum() if city_block else 2.0 * variance.sum())
    try:
        return _positive(float(rule))
    except ValueError as error:
        raise UsageError(f"gamma '{rule}' is not known", hint="scale, mean-distance or a positive number") from error


def moments_seen(
    statistics: Statistics, rows: int, shift: Array | None, scale: Array | None
) -> tuple[Float64, Float64]:
    """Mean and variance of the columns after (x - shift) scale; None for none."""
    mean, variance = statistics.mean, statistics.M2 / rows
    if shift is not None:
        mean = mean - shift
    if scale is not None:
        mean, variance = mean * scale, variance * np.square(scale, dtype=np.float64)
    return mean, variance


def _positive(gamma: float) -> float:
    if not 0.0 < gamma < float("inf"):
        raise UsageError(f"gamma must be a positive number, not {gamma}", hint="or 'scale', or 'mean-distance'")
    return gamma


def _inverse(width: float) -> float:
    """1 / width; 1 where every row is the same."""
    return 1.0 / float(width) if width > 0.0 else 1.0
