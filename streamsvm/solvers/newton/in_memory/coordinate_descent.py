"""Dual coordinate descent over rows in memory: where it is fast nothing is faster, and a few rounds tell whether it is.

    max_a  sum_i (a_i - conjugate(a_i)) - 1/2 ||w||^2,     w = sum_i a_i y_i x_i,     0 <= a_i <= U_i

A round is a sweep over all rows, then sweeps over those that it found worth a visit (``compute.passes.dcd``: shrinking), then both
bounds, on all rows. On rows of about one length, such as texts, a hundred sweeps do, where the second derivatives of an
interior point range over 10^6 and its conjugate gradients take hundreds of products a step. On raw tables, whose largest
columns tie all rows together, it does not move: it is left when at the pace of the last rounds it would take too many more.

References: Hsieh et al., ICML 2008; Yu et al., KDD 2010 (sweeps over a part of the rows before all are looked at again).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import log
from typing import TYPE_CHECKING

import numpy as np

from streamsvm.compute.passes.in_memory.all_rows import Interior, value_pass
from streamsvm.compute.random import permutation, shuffle
from streamsvm.rows import Float64
from streamsvm.solvers.newton.in_memory.memory_rows import MemoryRows
from streamsvm.tags import saved_as

if TYPE_CHECKING:
    from streamsvm.solvers.newton.in_memory.all_rows import AllRows

SWEEPS = 10
"""Of a round, the one over all rows included."""
WINDOW = 3
"""Rounds the pace is taken of."""
PATIENCE = 40
"""It is left where it would take more rounds than this: about the work of an interior point."""


@saved_as("newton.coordinate_descent")
@dataclass(slots=True)
class DescentState:
    """Where coordinate descent is."""

    a: Float64
    """(n,) the dual variables."""
    w: Float64
    """(p,) sum a_i y_i x_i."""
    gaps: list[float] = field(default_factory=list)
    """Relative gap of the best points met, before the first round and after each."""
    left: bool = False
    """Whether it was too slow, and is not gone on with."""


class CoordinateDescent:
    """Rounds from a = 0 on, until the problem of ``known`` is solved, it is time for a reading, or they get nowhere."""

    def __init__(self, known: AllRows, rows: MemoryRows) -> None:
        self._known, self._rows = known, rows
        self._order, self._slopes = np.empty(rows.count, np.int32), np.empty(rows.count)

    def run(self) -> None:
        """Changes ``known``."""
        known, rows = self._known, self._rows
        at = known.descent
        if at is None:
            at = known.descent = DescentState(np.zeros(rows.count), np.zeros(rows.problem.columns + 1))
            self._evaluate(at)
        while not (at.left or known.solved or rows.exhausted):
            self._round(at)
            self._evaluate(at)
            at.left = _too_slow(at.gaps, known.problem.tolerance)

    def _round(self, at: DescentState) -> None:
        """Sweeps in a random order that rows and rounds alone decide."""
        rows, number = self._rows, SWEEPS * len(at.gaps)
        permutation(self._order, number)
        left = rows.count
        for sweep in range(SWEEPS):
            if sweep:
                shuffle(self._order, left, number + sweep)
            left = rows.sweep(self._order, left, at.a, at.w)
            if rows.late or not left:
                return

    def _evaluate(self, at: DescentState) -> None:
        """Both bounds, and the w that goes with a: sums that many sweeps have changed carry their rounding."""
        known, rows, none = self._known, self._rows, np.zeros(self._rows.count)
        f = rows.margins(at.w)
        losses, linear, quadratic, _ = value_pass(rows.terms, f, Interior(at.a, none, none), self._slopes)
        before, at.w = at.w, rows.weighted_sum(self._slopes)
        dual = rows.outer.dual(rows.problem.loss, linear, quadratic, at.w)
        known.seen(rows, before, losses, dual, self._slopes)
        at.gaps.append((known.primal - known.dual) / known.size)


def _too_slow(gaps: list[float], tolerance: float) -> bool:
    """Whether at the pace of the last WINDOW rounds more than PATIENCE others are ahead."""
    if len(gaps) <= WINDOW or gaps[-1] <= tolerance:
        return False
    pace = log(gaps[-1 - WINDOW] / gaps[-1]) / WINDOW
    return log(gaps[-1] / tolerance) > PATIENCE * pace
