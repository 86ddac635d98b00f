"""Least squares over the l1 ball as a problem on the simplex: its vertices, the matrix K, and steps from samples of them.

    min 1/2 sum_i S_i (w.x_i - y_i)^2     subject to  ||w||_1 <= t                 (PARTAN paper, section 2.3)

w = t sum_j (a_j+ - a_j-) e_j with sum a = 1, a >= 0 is the whole ball, its corners the vertices +-t e_j. Since sum a = 1 the residuals
are sum_k a_k (A_k - y), A_k = +-t X_j, so that the problem is the one of ``compute/passes/simplex.py``,

    f(a) = 1/2 a'Ka,    K_kl = (A_k - y)'S (A_l - y) = t^2 z_k z_l Q_kl - t z_k c_k - t z_l c_l + y'Sy,     z = +1 or -1,

with Q = X'SX and c = X'Sy: all that the steps in memory ask for, whatever the number of rows. g = Ka is +-t X'Sr - y'Sr, r the
residuals, and 2 f - min g is the Frank-Wolfe gap max_u (w - u)'grad f.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from streamsvm.aliases import Array
from streamsvm.compute.passes.simplex import Tangent
from streamsvm.rows import Float64, Int64
from streamsvm.solvers.kernel.frank_wolfe_steps import StepsFromSamples
from streamsvm.tags import saved_as

ROOM = 128
"""Places for more vertices than have weight."""


@saved_as("l1_ball.vertices")
@dataclass(slots=True)
class Vertices:
    """The 2 m vertices of m columns: first all +t e_j, then all -t e_j."""

    gram: Float64
    """(m, m) Q."""
    moments: Float64
    """(m,) c."""
    square: float
    """y'Sy."""
    radius: float
    """t."""
    diagonal: Float64 = field(init=False)
    """(2 m,) K_kk."""

    def __post_init__(self) -> None:
        own, moments = self.radius**2 * np.diagonal(self.gram), 2.0 * self.radius * self.moments
        self.diagonal = np.concatenate([own - moments, own + moments]) + self.square

    def column(self, k: int, g: Float64) -> Float64:
        """K_k (2 m,); ``g`` is not asked."""
        m, t = len(self.moments), self.radius
        sign = 1.0 if k < m else -1.0
        own = (t * t * sign) * self.gram[k % m] - t * self.moments
        offset = self.square - t * sign * float(self.moments[k % m])
        result: Float64 = np.concatenate([own, -own])
        result += offset
        return result

    def between(self, some: Int64, others: Int64) -> Float64:
        """K between vertices (k,) and others (l,): (k, l)."""
        m, t = len(self.moments), self.radius
        z, u = np.where(some < m, t, -t), np.where(others < m, t, -t)
        Q = self.gram[np.ix_(some % m, others % m)]
        found: Float64 = z[:, None] * Q * u
        found += self.square - (z * self.moments[some % m])[:, None] - u * self.moments[others % m]
        return found


@saved_as("l1_ball.sampled_iterations")
@dataclass
class SampledVertices(StepsFromSamples):
    """Iterations that look at a sample of the vertices: their g from those with weight alone."""

    vertices: Vertices
    """All of them, and K."""
    variant: str
    """See ``StepsFromSamples``, as of all that follow."""
    open_step: bool = False
    """Whether steps have the length 2 / (k + 2)."""
    count: int = 0
    """Iterations made since the run began."""
    members: list[int] = field(default_factory=list)
    """Vertices that have or had weight."""
    size: int = 0
    """How many there are."""
    a: Float64 = field(default_factory=lambda: np.empty(0))
    """Their weights; with more than ``size`` places."""
    f: float = 0.0
    """1/2 a'Ka."""
    tangent: Tangent | None = None
    """What PARTAN's second search needs."""
    before: Float64 = field(default_factory=lambda: np.empty(0))
    """Their weights in the iterate before, for PARTAN."""
    _diagonal: Float64 = field(default_factory=lambda: np.empty(0))
    _place: Int64 = field(default_factory=lambda: np.empty(0, np.int64))
    _i: int = 0
    _v: int = 0
    _g: tuple[float, float, float] = (0.0, 0.0, 0.0)
    _across: float = 0.0
    away: str = "drawn"
    """See ``StepsFromSamples``."""
    _gradients: Float64 = field(default_factory=lambda: np.empty(0))
    _columns: tuple[Float64, ...] = ()

    def begin(self, weights: Float64, f: float) -> None:
        """Begin at the weights (2 m,) of all vertices, where f is what it is."""
        self.members = np.flatnonzero(weights).tolist()
        self.size, self.f, self._diagonal = len(self.members), f, self.vertices.diagonal
        self._place = np.full(len(weights), -1, np.int64)
        self._place[self.members] = np.arange(self.size)
        self.a = np.concatenate([weights[self.members], np.zeros(self.size + ROOM)])
        self.before = self.a.copy()
        if self.away == "exact":
            places = np.array(self.members, np.int64)
            self._gradients = self.a[: self.size] @ self.vertices.between(places, places)

    def weights(self) -> Float64:
        """Return the weights of all vertices (2 m,), which sum to 1."""
        found = np.zeros(len(self._place))
        found[self.members] = self.a[: self.size]
        result: Float64 = found / found.sum()
        return result

    def _kernel(self, asked: Int64) -> Array:
        return self.vertices.between(np.array(self.members, np.int64), asked)

    def _gradient(self, K: Array, asked: Int64, a: Float64) -> Float64:
        found: Float64 = a[: self.size] @ K
        return found

    def _entry(self, K: Array, k: int) -> float:
        return float(K[self._place[self._v], k])

    def _column(self, K: Array, k: int, vertex: int) -> Float64:
        return np.array(K[:, k])

    def _append(self, vertex: int) -> None:
        """Nothing: K is at hand."""
