"""Iterations of the Frank-Wolfe family with g of every row in step. The formulas are in ``compute/passes/simplex.py``."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from streamsvm.compute.passes.simplex import (
    Tangent,
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
from streamsvm.solvers.kernel.kernel_cache import KernelCache
from streamsvm.tags import saved_as

RESUM_EVERY = 256
"""Iterations after which f = 1/2 a'g, and with PARTAN f(b) and b'Ka, are summed anew."""


@saved_as("simplex.iterations")
@dataclass(slots=True)
class Iterations:
    """a, g = Ka, f. ``before`` and ``g_before`` are PARTAN's: the iterate before a and its gradient."""

    a: Float64
    g: Float64
    columns: KernelCache
    variant: str
    open_step: bool = False
    count: int = 0
    f: float = 0.0
    i: int = 0
    before: Float64 = field(default_factory=lambda: np.empty(0))
    g_before: Float64 = field(default_factory=lambda: np.empty(0))
    tangent: Tangent | None = None

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
        dropped = step.length * (1.0 - self.a[v]) >= self.a[v]
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
        self.a[v] = 0.0 if swap.length >= self.a[v] else self.a[v] - swap.length
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
