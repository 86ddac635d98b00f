"""Steps of the Frank-Wolfe family from samples: g is computed for the vertices drawn, from those with weight alone.

f and, for PARTAN, W follow their recursions; nothing is kept for vertices without weight. Where weight is also taken from a vertex,
that is by default the one of largest g among all with weight: their g is kept up with every step, by the two columns of K that
the step is made of, so that one vertex is asked for in the place of a second sample. The formulas are in ``compute/passes/simplex.py``. What the matrix K is made of is the business of who has these steps: rows and a kernel
(``sampled_iterations``), or columns of a least-squares problem (``solvers.l1_ball``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from streamsvm.aliases import Array
from streamsvm.compute.passes.simplex import (
    Tangent,
    away_room,
    away_step,
    highest,
    swap_step,
    tangent_room,
    tangent_step,
    tangent_value,
    toward_step,
    toward_value,
)
from streamsvm.rows import Float64, Int64

TAKE_WEIGHT = frozenset({"mfw", "swap"})
"""The variants that also take weight from a vertex."""


class StepsFromSamples(ABC):
    """``members``: the vertices that have or had weight, with a and PARTAN's iterate before it, in the same order.

    The fields are those of the dataclass that inherits the steps, in an order that files know.
    """

    variant: str
    """Which steps are taken: ``fw`` toward a vertex, ``mfw`` also away from one, ``swap`` between two, ``partan`` along
    a tangent too."""
    open_step: bool
    """Whether a step toward a vertex has the length 2 / (k + 2) of the k-th iteration, instead of the exact one."""
    count: int
    """Iterations made since the run began."""
    f: float
    """1/2 a'Ka, by recursion."""
    members: list[int]
    """Vertices that have or had weight, in the order they came in."""
    a: Float64
    """The weights of the members, and zeros after them: room for more."""
    before: Float64
    """The weights in the iterate before, for PARTAN, laid out like ``a``."""
    tangent: Tangent | None
    """What PARTAN's second search needs of the iterate before; None before there is one, and for other variants."""
    size: int
    """How many members there are: so much of ``a`` and ``before`` counts."""
    away: str
    """Where the vertex that weight is taken from is looked for: ``exact`` among all with weight, ``drawn`` among a sample of them."""
    _diagonal: Float64
    _place: Int64
    """Where a vertex stands among the members; -1: nowhere."""
    _i: int
    _v: int
    _g: tuple[float, float, float]
    """g_i, g_v, and the gradient at ``before`` of i."""
    _across: float
    """K_iv."""
    _gradients: Float64
    """(members,) g, kept up where ``away`` is exact and the variant takes weight from a vertex."""
    _columns: tuple[Float64, ...]
    """(members,) K_i and K_v of the next step, where ``_gradients`` are kept up; else empty."""

    @abstractmethod
    def _kernel(self, asked: Int64) -> Array:
        """What ``_gradient`` and ``_value`` are made from, for the vertices asked for (members, asked)."""

    @abstractmethod
    def _gradient(self, K: Array, asked: Int64, a: Float64) -> Float64:
        """Ka at the vertices asked for."""

    @abstractmethod
    def _value(self, K: Array, k: int) -> float:
        """K_iv of the vertices of the next step, i the k-th of those asked for."""

    @abstractmethod
    def _column(self, K: Array, k: int, vertex: int) -> Float64:
        """K of the members and ``vertex``, the k-th of those asked for."""

    @abstractmethod
    def _bring(self, vertex: int) -> None:
        """Take in what is known of a new member."""

    @property
    def support(self) -> int:
        """Rows with weight."""
        return int(np.count_nonzero(self.a))

    def find_vertices(self, drawn: Int64, draw: np.random.Generator) -> float:
        """The gap over the rows drawn; finds the vertices of the next step."""
        away = self.variant in TAKE_WEIGHT
        exact, self._columns = away and self.away == "exact", ()
        if exact:
            chosen = np.array([self.members[highest(self._gradients, self.a[: self.size])]], np.int64)
        elif away:
            chosen = np.array(self.members, np.int64)[draw.integers(0, self.size, len(drawn))]
        else:
            chosen = drawn[:0]
        asked = np.concatenate([drawn, chosen])
        K = self._kernel(asked)
        g = self._gradient(K, asked, self.a)
        k = int(np.argmin(g[: len(drawn)]))
        self._i = int(asked[k])
        h = self._gradient(K[:, k : k + 1], asked[k : k + 1], self.before)[0] if self.variant == "partan" else 0.0
        weighty = self.a[self._place[chosen]] > 0.0
        top = len(drawn) + int(np.argmax(np.where(weighty, g[len(drawn) :], -np.inf))) if away else k
        self._v = int(asked[top])
        if away:
            self._across = self._diagonal[self._i] if self._i == self._v else self._value(K, k)
        if exact:
            self._columns = self._column(K, k, self._i), self._column(K, top, self._v)
        self._g = (float(g[k]), float(g[top]), float(h))
        return 2.0 * self.f - self._g[0]

    def advance(self) -> None:
        """One iteration from the vertices that ``find_vertices`` has found."""
        g_i, g_v, _ = self._g
        f, K_ii, K_vv = self.f, self._diagonal[self._i], self._diagonal[self._v]
        a_v = float(self.a[self._place[self._v]]) if self._place[self._v] >= 0 else 0.0
        self.count += 1
        if self.variant == "mfw" and a_v > 0.0 and g_v - 2.0 * f > 2.0 * f - g_i:
            self._away(a_v, g_v, K_vv)
        elif self.variant == "swap" and a_v > 0.0 and self._i != self._v:
            step = swap_step(g_i, g_v, K_ii + K_vv - 2.0 * self._across, a_v)
            if step.fall > toward_step(f, g_i, K_ii).fall:
                self._exchange(step.length)
                self.f -= step.fall
            else:
                self._toward()
        elif self.variant == "partan":
            self._partan()
        else:
            self._toward()

    def _toward(self) -> float:
        g_i, K_ii = self._g[0], self._diagonal[self._i]
        length = 2.0 / (self.count + 1.0) if self.open_step else toward_step(self.f, g_i, K_ii).length
        self.f = toward_value(self.f, g_i, K_ii, length)
        place = self._admit(self._i)
        self._follow(1.0 - length, length, 0.0)
        self.a[: self.size] *= 1.0 - length
        self.a[place] += length
        return length

    def _away(self, a_v: float, g_v: float, K_vv: float) -> None:
        step = away_step(self.f, g_v, K_vv, a_v)
        dropped = 0.0 < away_room(a_v) <= step.length
        self._follow(1.0 + step.length, 0.0, -step.length)
        self.a[: self.size] *= 1.0 + step.length
        place = self._place[self._v]
        self.a[place] = 0.0 if dropped else self.a[place] - step.length
        self.f -= step.fall

    def _exchange(self, length: float) -> None:
        place = self._admit(self._i)  # before self.a is looked up: it may grow
        self._follow(1.0, length, -length)
        self.a[place] += length
        self.a[self._place[self._v]] -= length

    def _follow(self, keep: float, gained: float, lost: float) -> None:
        """Keep g up with the step from a to keep a + gained e_i + lost e_v."""
        if self._columns:
            K_i, K_v = self._columns
            self._gradients = keep * self._gradients + gained * K_i + lost * K_v

    def _partan(self) -> None:
        g_i, _, h_i = self._g
        old_f, old = self.f, self.a.copy()
        length = self._toward()
        old.resize(len(self.a))
        along = (1.0 - length) * 2.0 * old_f + length * g_i
        W = along
        if self.tangent is not None:
            A = (1.0 - length) * self.tangent.W + length * h_i
            m = tangent_step(self.tangent, self.f, A, tangent_room(self.a, self.before))
            self.f = tangent_value(self.tangent, self.f, A, m)
            self.a = np.maximum((1.0 + m) * self.a - m * self.before, 0.0)
            W = (1.0 + m) * along - m * self.tangent.W
        self.before = old
        self.tangent = Tangent(old_f, W)

    def _admit(self, row: int) -> int:
        """The place of a row among the members, a new one if need be."""
        if self._place[row] >= 0:
            return int(self._place[row])
        if self.size == len(self.a):
            self.a, self.before = (np.concatenate([b, np.zeros(len(b))]) for b in (self.a, self.before))
        if self._columns:
            K_i, K_v = self._columns
            self._gradients = np.append(self._gradients, self.a[: self.size] @ K_i)
            self._columns = np.append(K_i, self._diagonal[row]), np.append(K_v, self._across)
        self._place[row] = self.size
        self.members.append(row)
        self.size += 1
        self._bring(row)
        return self.size - 1
