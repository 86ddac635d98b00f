"""Iterations of the Frank-Wolfe family with g of every row in step. The formulas are in ``compute/passes/simplex.py``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from streamsvm.aliases import Array
from streamsvm.compute.passes.simplex import (
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
from streamsvm.rows import Float64
from streamsvm.tags import saved_as

RESUM_EVERY = 256
"""Iterations after which f = 1/2 a'g, and with PARTAN f(b) and b'Ka, are summed anew."""


class MatrixColumns(Protocol):
    """The columns of K, computed or kept by whoever knows what K is made of."""

    diagonal: Float64
    """(m,) K_ii."""

    def column(self, i: int, g: Float64) -> Array:
        """Return K_i (m,); ``g`` (m,) says which others are likely to be asked for next: those where it is smallest."""
        ...


@saved_as("simplex.iterations")
@dataclass(slots=True)
class Iterations:
    """a, g = Ka, f. ``before`` and ``g_before`` are PARTAN's: the iterate before a and its gradient."""

    a: Float64
    """(m,) the weights of the pool's rows, at least 0, which sum to 1."""
    g: Float64
    """(m,) Ka, the gradient of f at a, kept up with every step."""
    columns: MatrixColumns
    """The columns of K that steps ask for."""
    variant: str
    """Which steps are taken: ``fw`` toward a vertex, ``mfw`` also away from one, ``swap`` between two, ``partan`` along
    a tangent too."""
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
        """2 f - min g; finds the vertex to step toward."""
        self.i = lowest(self.g)
        return 2.0 * self.f - float(self.g[self.i])

    def advance(self) -> None:
        """One iteration from the vertex that ``gap`` has found."""
        if self.variant == "partan":
            self._partan()
        elif self.variant == "mfw":
            self._modified()
        elif self.variant == "swap":
            self._swap()
        else:
            self._toward()
        self.count += 1
        if self.count % RESUM_EVERY == 0:
            self._resum()

    def _resum(self) -> None:
        """All that recursions carry at once: f alone would not fit the tangent, whose differences are small."""
        self.f = 0.5 * float(self.a @ self.g)
        if self.tangent is not None:
            self.tangent = Tangent(0.5 * float(self.before @ self.g_before), float(self.before @ self.g))

    def _toward(self) -> float:
        i, K_ii = self.i, self.columns.diagonal[self.i]
        length = 2.0 / (self.count + 2.0) if self.open_step else toward_step(self.f, self.g[i], K_ii).length
        self.f = toward_value(self.f, self.g[i], K_ii, length)
        blend(self.a, self.g, 1.0 - length, self.columns.column(i, self.g), length)
        self.a[i] += length
        return length

    def _modified(self) -> None:
        v = highest(self.g, self.a)
        if self.g[v] - 2.0 * self.f <= 2.0 * self.f - self.g[self.i]:
            self._toward()
            return
        step = away_step(self.f, self.g[v], self.columns.diagonal[v], self.a[v])
        dropped = 0.0 < away_room(self.a[v]) <= step.length
        blend(self.a, self.g, 1.0 + step.length, self.columns.column(v, self.g), -step.length)
        self.a[v] = 0.0 if dropped else self.a[v] - step.length
        self.f -= step.fall

    def _swap(self) -> None:
        i, v, diagonal = self.i, highest(self.g, self.a), self.columns.diagonal
        gains = self.columns.column(i, self.g)
        toward = toward_step(self.f, self.g[i], diagonal[i])
        swap = swap_step(self.g[i], self.g[v], diagonal[i] + diagonal[v] - 2.0 * gains[v], self.a[v])
        if toward.fall >= swap.fall:
            self._toward()
            return
        exchange(self.g, gains, self.columns.column(v, self.g), swap.length)
        self.a[i] += swap.length
        self.a[v] -= swap.length
        self.f -= swap.fall

    def _partan(self) -> None:
        i, old_f, old_a, old_g = self.i, self.f, self.a.copy(), self.g.copy()
        g_i, h_i = float(self.g[i]), float(self.g_before[i])
        length = self._toward()
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
