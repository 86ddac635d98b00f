"""Iterations of the Frank-Wolfe family, whatever the matrix K is: with all gradients kept up, or from samples of the
vertices.

The formulas are in ``compute/passes/frank_wolfe.py``. What K is made of is the business of those who have these steps:
rows and a kernel (``frank_wolfe.py``), or the columns of a least-squares problem (``solvers/l1_ball.py``).

``Iterations`` has g of every vertex. ``StepsFromSamples`` computes g of the vertices drawn, from those with weight
alone: f and, for PARTAN, W follow their recursions, and nothing is kept for vertices without weight. Where weight is
also taken from a vertex, that is by default the one of largest g among all with weight: their g is kept up with every
step, by the two columns of K that the step is made of, so that one vertex is evaluated instead of a second sample.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from streamsvm.aliases import Array
from streamsvm.compute.passes.frank_wolfe import (
    Tangent,
    away_room,
    away_step,
    blend,
    exchange,
    extrapolate,
    highest,
    lowest,
    swap_step,
    tangent_room,
    tangent_step,
    tangent_value,
    toward_step,
    toward_value,
)
from streamsvm.rows import Float64, Int64
from streamsvm.tags import saved_as

RESUM_EVERY = 256
"""Iterations after which f = 1/2 a'g, and with PARTAN f(b) and b'Ka, are summed anew."""
TAKE_WEIGHT = frozenset({"mfw", "swap"})
"""The variants that also take weight from a vertex."""


class MatrixColumns(Protocol):
    """The columns of K: of a kernel (``cache.KernelCache``), or of the vertices of the l1 ball."""

    diagonal: Float64
    """(m,) K_ii."""

    def column(self, i: int, g: Float64) -> Array:
        """Return K_i (m,); ``g`` (m,) says which others are likely to be asked for next: those where it is smallest."""
        ...


@saved_as("simplex.iterations")
@dataclass(slots=True)
class Iterations:
    """Iterations with g = Ka of every vertex kept up."""

    a: Float64
    """(m,) the weights of the pool's rows, at least 0, which sum to 1."""
    g: Float64
    """(m,) Ka, the gradient of f at a, kept up with every step."""
    columns: MatrixColumns
    variant: str
    """``fw``: steps toward a vertex; ``mfw``: also away from one; ``swap``: also between two; ``partan``: also along a
    tangent."""
    open_step: bool = False
    """Whether a step toward a vertex has the length 2 / (k + 2) of the k-th iteration, instead of the exact one."""
    count: int = 0
    """Iterations made since the run began, those in earlier pools included."""
    f: float = 0.0
    """1/2 a'Ka, by recursion and every so often as a sum."""
    i: int = 0
    """The vertex to step toward: the row of smallest g, as ``gap`` found it."""
    before: Float64 = field(default_factory=lambda: np.empty(0))
    """(m,) the iterate before a, for PARTAN; (0,) for other variants."""
    g_before: Float64 = field(default_factory=lambda: np.empty(0))
    """(m,) its gradient; (0,) for other variants."""
    tangent: Tangent | None = None
    """What PARTAN's second search needs of the iterate before; None before there is one, and for other variants."""

    def __post_init__(self) -> None:
        self.f = 0.5 * float(self.a @ self.g)
        if self.variant == "partan":
            self.before, self.g_before = self.a.copy(), self.g.copy()

    @property
    def support(self) -> int:
        """Rows with weight."""
        return int(np.count_nonzero(self.a))

    def gap(self) -> float:
        """Return 2 f - min g; find the vertex to step toward."""
        self.i = lowest(self.g)
        return 2.0 * self.f - float(self.g[self.i])

    def advance(self) -> None:
        """Make one iteration from the vertex that ``gap`` has found."""
        if self.variant == "partan":
            self._step_partan()
        elif self.variant == "mfw":
            self._step_toward_or_away()
        elif self.variant == "swap":
            self._step_swap()
        else:
            self._step_toward()
        self.count += 1
        if self.count % RESUM_EVERY == 0:
            self._resum()

    def _resum(self) -> None:
        """Sum up all that recursions carry at once: f alone would not fit the tangent, whose differences are small."""
        self.f = 0.5 * float(self.a @ self.g)
        if self.tangent is not None:
            self.tangent = Tangent(0.5 * float(self.before @ self.g_before), float(self.before @ self.g))

    def _step_toward(self) -> float:
        i, K_ii = self.i, self.columns.diagonal[self.i]
        length = 2.0 / (self.count + 2.0) if self.open_step else toward_step(self.f, self.g[i], K_ii).length
        self.f = toward_value(self.f, self.g[i], K_ii, length)
        blend(self.a, self.g, 1.0 - length, self.columns.column(i, self.g), length)
        self.a[i] += length
        return length

    def _step_toward_or_away(self) -> None:
        v = highest(self.g, self.a)
        if self.g[v] - 2.0 * self.f <= 2.0 * self.f - self.g[self.i]:
            self._step_toward()
            return
        step = away_step(self.f, self.g[v], self.columns.diagonal[v], self.a[v])
        dropped = 0.0 < away_room(self.a[v]) <= step.length
        blend(self.a, self.g, 1.0 + step.length, self.columns.column(v, self.g), -step.length)
        self.a[v] = 0.0 if dropped else self.a[v] - step.length
        self.f -= step.fall

    def _step_swap(self) -> None:
        i, v, diagonal = self.i, highest(self.g, self.a), self.columns.diagonal
        gains = self.columns.column(i, self.g)
        toward = toward_step(self.f, self.g[i], diagonal[i])
        swap = swap_step(self.g[i], self.g[v], diagonal[i] + diagonal[v] - 2.0 * gains[v], self.a[v])
        if toward.fall >= swap.fall:
            self._step_toward()
            return
        exchange(self.g, gains, self.columns.column(v, self.g), swap.length)
        self.a[i] += swap.length
        self.a[v] -= swap.length
        self.f -= swap.fall

    def _step_partan(self) -> None:
        i, old_f, old_a, old_g = self.i, self.f, self.a.copy(), self.g.copy()
        g_i, h_i = float(self.g[i]), float(self.g_before[i])
        length = self._step_toward()
        along = (1.0 - length) * 2.0 * old_f + length * g_i
        if self.tangent is None:  # the first step has no iterate before it
            self.before[:], self.g_before[:] = old_a, old_g
            self.tangent = Tangent(old_f, along)
            return
        A = (1.0 - length) * self.tangent.W + length * h_i
        m = tangent_step(self.tangent, self.f, A, tangent_room(self.a, self.before))
        self.f = tangent_value(self.tangent, self.f, A, m)
        W = (1.0 + m) * along - m * self.tangent.W
        extrapolate(self.a, self.g, self.before, self.g_before, old_a, old_g, m)
        self.tangent = Tangent(old_f, W)


class StepsFromSamples(ABC):
    """Iterations from samples. The dataclasses that inherit them declare these fields, in an order that checkpoints
    know.
    """

    variant: str
    open_step: bool
    count: int
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
    """Where the vertex that weight is taken from is looked for: ``exact`` among all with weight, ``drawn`` among a
    sample of them."""
    _diagonal: Float64
    _place: Int64
    """(vertices,) the place of each among the members; -1: it is none."""
    _i: int
    """The vertex to step toward."""
    vertex: int
    """The vertex to take weight from."""
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
        """Return the columns (members, asked) from which ``_gradient``, ``_entry`` and ``_column`` are made."""

    @abstractmethod
    def _gradient(self, K: Array, asked: Int64, a: Float64) -> Float64:
        """Return Ka at the vertices asked for."""

    @abstractmethod
    def _entry(self, K: Array, k: int) -> float:
        """Return K_iv of the vertices of the next step, i the k-th of those asked for."""

    @abstractmethod
    def _column(self, K: Array, k: int, vertex: int) -> Float64:
        """Return K of the members and ``vertex``, the k-th of those asked for."""

    @abstractmethod
    def _append(self, vertex: int) -> None:
        """Store what ``_kernel`` needs of a new member."""

    @property
    def support(self) -> int:
        """Rows with weight."""
        return int(np.count_nonzero(self.a))

    def find_vertices(self, drawn: Int64, draw: np.random.Generator) -> float:
        """Return the gap over the vertices drawn; find the vertices of the next step."""
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
        self.vertex = int(asked[top])
        if away:
            self._across = self._diagonal[self._i] if self._i == self.vertex else self._entry(K, k)
        if exact:
            self._columns = self._column(K, k, self._i), self._column(K, top, self.vertex)
        self._g = (float(g[k]), float(g[top]), float(h))
        return 2.0 * self.f - self._g[0]

    def advance(self) -> None:
        """Make one iteration from the vertices that ``find_vertices`` has found."""
        g_i, g_v, _ = self._g
        f, K_ii, K_vv = self.f, self._diagonal[self._i], self._diagonal[self.vertex]
        a_v = float(self.a[self._place[self.vertex]]) if self._place[self.vertex] >= 0 else 0.0
        self.count += 1
        if self.variant == "mfw" and a_v > 0.0 and g_v - 2.0 * f > 2.0 * f - g_i:
            self.step_away(a_v, g_v, K_vv)
        elif self.variant == "swap" and a_v > 0.0 and self._i != self.vertex:
            step = swap_step(g_i, g_v, K_ii + K_vv - 2.0 * self._across, a_v)
            if step.fall > toward_step(f, g_i, K_ii).fall:
                self._step_swap(step.length)
                self.f -= step.fall
            else:
                self._step_toward()
        elif self.variant == "partan":
            self._step_partan()
        else:
            self._step_toward()

    def _step_toward(self) -> float:
        g_i, K_ii = self._g[0], self._diagonal[self._i]
        length = 2.0 / (self.count + 1.0) if self.open_step else toward_step(self.f, g_i, K_ii).length
        self.f = toward_value(self.f, g_i, K_ii, length)
        place = self._admit(self._i)
        self._update_gradients(1.0 - length, length, 0.0)
        self.a[: self.size] *= 1.0 - length
        self.a[place] += length
        return length

    def step_away(self, a_v: float, g_v: float, K_vv: float) -> None:
        step = away_step(self.f, g_v, K_vv, a_v)
        dropped = 0.0 < away_room(a_v) <= step.length
        self._update_gradients(1.0 + step.length, 0.0, -step.length)
        self.a[: self.size] *= 1.0 + step.length
        place = self._place[self.vertex]
        self.a[place] = 0.0 if dropped else self.a[place] - step.length
        self.f -= step.fall

    def _step_swap(self, length: float) -> None:
        place = self._admit(self._i)  # before self.a is looked up: it may grow
        self._update_gradients(1.0, length, -length)
        self.a[place] += length
        self.a[self._place[self.vertex]] -= length

    def _update_gradients(self, keep: float, gained: float, lost: float) -> None:
        """Update g of the members for the step from a to keep a + gained e_i + lost e_v."""
        if self._columns:
            K_i, K_v = self._columns
            self._gradients = keep * self._gradients + gained * K_i + lost * K_v

    def _step_partan(self) -> None:
        g_i, _, h_i = self._g
        old_f, old = self.f, self.a.copy()
        length = self._step_toward()
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
        """Return the place of a vertex among the members, to which it is added if need be."""
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
        self._append(row)
        return self.size - 1
