"""Planes below the loss sum, and the minimum of the model they make.

With a_i = -C_i l'(m_i) at any point, g = sum_i (a_i - conjugate(a_i)) and v = sum_i a_i y_i x_i,

    C sum_i s_i l(y_i w.x_i) >= g - v.w     for all w, with equality at that point,

by Fenchel and Young. The model min_w 1/2 ||w||^2 + max_k (g_k - v_k.w) has the dual

    max_theta  theta.g - 1/2 ||sum_k theta_k v_k||^2,     theta >= 0, sum theta = 1,      w = sum_k theta_k v_k

(Joachims, KDD 2006; Teo et al., JMLR 11, 2010, (8); there the planes are divided by C and the simplex is multiplied by it). The
value at every such theta is below the optimum of P: sum_k theta_k a_k is a feasible dual point, whose own value is no smaller.
l >= 0 is a plane, too: g = 0, v = 0. Where there are too many planes those of the least theta are left out, and their mean with
all others, weighted by theta, stays (Kiwiel's aggregation): the bound does not fall.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from streamsvm.rows import Float64
from streamsvm.solvers.cutting_plane.simplex_program import minimize
from streamsvm.tags import saved_as

STEEPEST = 1e50
"""The largest slope ||v|| of a plane: where a steeper one would lead squares of what is found there overflow."""


@saved_as("cutting_plane.bundle")
@dataclass(slots=True)
class Bundle:
    """K planes, all arrays float64; p = columns + 1."""

    components: int
    """p."""
    limit: int
    """Planes at most."""
    g: Float64 = field(default_factory=lambda: np.zeros(1))
    """(K,) the constants."""
    V: Float64 = field(init=False)
    """(K, p) the negative slopes."""
    gram: Float64 = field(default_factory=lambda: np.zeros((1, 1)))
    """(K, K) V V'."""
    theta: Float64 = field(default_factory=lambda: np.ones(1))
    """(K,) where the model was last solved."""

    def __post_init__(self) -> None:
        self.V = np.zeros((1, self.components))

    def add(self, g: Float64, V: Float64) -> int:
        """Take in planes, (J,) and (J, p); ``limit`` is above J + 1. Returns how many: those that are too steep are left out."""
        steepness = np.square(V / STEEPEST).sum(axis=1)
        usable = np.isfinite(g) & (steepness <= 1.0)
        g, V = g[usable], V[usable]
        if not len(g):
            return 0
        if len(self.g) + len(g) > self.limit:
            self._throw_out(self.limit - len(g) - 1)
        self._append(g, V)
        return len(g)

    def solve(self, wanted: float) -> tuple[Float64, float]:
        """Return the minimum (p,) of the model, and a bound that is at most ``wanted`` below its value."""
        self.theta = minimize(self.gram, self.g, wanted)
        w = self.theta @ self.V
        return w, float(self.theta @ self.g) - 0.5 * float(w @ w)

    def _append(self, g: Float64, V: Float64) -> None:
        self.V = np.concatenate([self.V, V])
        across = self.V @ V.T
        self.gram = np.block([[self.gram, across[: -len(g)]], [across.T]])
        self.g = np.concatenate([self.g, g])
        self.theta = np.concatenate([self.theta, np.zeros(len(g))])

    def _throw_out(self, number: int) -> None:
        """Keep so many planes, and the mean of all."""
        mean = float(self.theta @ self.g), self.theta @ self.V
        kept = np.sort(np.argsort(-self.theta, kind="stable")[:number])
        self.g, self.V, self.theta = self.g[kept], self.V[kept], self.theta[kept]
        self.gram = self.gram[np.ix_(kept, kept)]
        self._append(np.array([mean[0]]), mean[1][None])
