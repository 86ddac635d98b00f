"""The bundle's dual: a quadratic program on the simplex, with as many variables as there are planes, in float64.

    min_theta 1/2 theta' G theta - g' theta,     theta >= 0, sum theta = 1

A primal-dual interior point from a feasible start (Mehrotra's predictor and corrector, SIAM J. Optimization 1992): with the slopes
z = G theta - g - lambda > 0, theta' z is what is missing to the minimum. One step length for both keeps the equations.
"""

from __future__ import annotations

import numpy as np

from streamsvm.rows import Float64
from streamsvm.solvers.triangular import solve_factorized

ITERATIONS = 80
"""At most; some 20 are usual."""
SHORT_OF_BOUND = 0.995
"""The share of the way to the nearest bound that is gone."""
ROUNDING = 1e-17
"""What is missing, relative to the largest entry, where float64 can tell no more."""


def minimize(G: Float64, g: Float64, wanted: float) -> Float64:
    """Return theta (K,) of a value at most ``wanted`` above the minimum, or as near as rounding lets it come.

    It is feasible in any case. ``G`` (K, K) is positive semidefinite, ``g`` (K,).
    """
    scale = max(float(np.abs(G).max()), float(np.abs(g).max())) or 1.0
    G, g, wanted = G / scale, g / scale, max(wanted / scale, ROUNDING)
    theta = np.full(len(g), 1.0 / len(g))
    slopes = G @ theta - g
    z = slopes - slopes.min() + max(float(np.ptp(slopes)), 1e-3)
    for _ in range(ITERATIONS):
        if float(theta @ z) <= wanted:
            break
        step = _step(G, theta, z)
        if step is None:
            break
        theta, z = theta + step[0], z + step[1]
    return theta / theta.sum()


def _step(G: Float64, theta: Float64, z: Float64) -> tuple[Float64, Float64] | None:
    """The changes of theta and z; None where rounding leaves no positive definite matrix."""
    try:
        factor = np.linalg.cholesky(G + np.diag(z / theta))
    except np.linalg.LinAlgError:
        return None
    ones = solve_factorized(factor, np.ones(len(z)))

    def directions(product: Float64) -> tuple[Float64, Float64]:
        """Towards theta z = ``product``, to first order."""
        along = solve_factorized(factor, product / theta - z)
        multiplier = -along.sum() / ones.sum()
        change = along + multiplier * ones
        return change, G @ change - multiplier

    dtheta, dz = directions(np.zeros_like(z))
    mean, length = float(theta @ z) / len(z), _length(theta, z, dtheta, dz)
    predicted = float((theta + length * dtheta) @ (z + length * dz)) / len(z)
    dtheta, dz = directions((max(predicted, 0.0) / mean) ** 3 * mean - dtheta * dz)
    length = min(1.0, SHORT_OF_BOUND * _length(theta, z, dtheta, dz))
    return (length * dtheta, length * dz) if np.isfinite(length) and length > 0.0 else None


def _length(theta: Float64, z: Float64, dtheta: Float64, dz: Float64) -> float:
    """How far both can go and stay positive, 1 at most before it is shortened."""
    now, change = np.concatenate([theta, z]), np.concatenate([dtheta, dz])
    falling = change < 0.0
    return min(1.0 / SHORT_OF_BOUND, float((now[falling] / -change[falling]).min())) if falling.any() else 1.0
