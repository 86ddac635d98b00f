"""Shrinking from pass to pass: rows that are held at a bound by more than any row was in the pass before stay out of passes.

With G_i the gradient of -D along a_i, and M, m the largest and least projected gradient of a pass,

    a_i = 0 and G_i > M-bar,    or    a_i = upper and G_i < m-bar,

take row i out, M-bar and m-bar being M and m of the pass before (inf and -inf where M <= 0, m >= 0). Once M - m is less than the
tolerance all rows come back: Hsieh et al., ICML 2008, algorithm 3, and LIBLINEAR. A row that is out keeps its dual variable, and
its loss as it was then, which the estimate of the primal counts. That grows old: unlike in the paper all rows are also met, in growing
distances, to see whether it is time to evaluate, and after an evaluation that found the gap wanting.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streamsvm.compute.passes.certificate import RowLoss
from streamsvm.compute.passes.dcd import Held, row_costs
from streamsvm.rows import Float64, Int32
from streamsvm.tags import saved_as
from streamsvm.types import Block, Problem

WAKING_SPACING = 1.5
"""All rows are met when there are so many times as many passes as when they last were."""
RESTING = "resting"
"""The per-row state: 0 for a row that is met, else 1 + the loss it had when it was left out."""


@saved_as("dcd.shrinking")
@dataclass(slots=True)
class Shrinking:
    """The bounds of this pass, and what it has found for the next."""

    above: float = np.inf
    """M-bar."""
    below: float = -np.inf
    """m-bar."""
    highest: float = -np.inf
    """M of the rows met so far."""
    lowest: float = np.inf
    """m of the rows met so far."""
    waking: bool = True
    """Whether this pass meets all rows."""
    passes: int = 0
    """Passes that were closed."""
    next_waking: float = 2.0
    """After so many all rows are met at the latest."""

    @property
    def held(self) -> Held:
        """What the first sweep of a visit leaves out."""
        return Held(self.above, self.below)

    def met(self, block: Block) -> Int32:
        """Return the rows of the block that are not out, in their order."""
        if self.waking:
            block.rows[RESTING][:] = 0.0
        return block.order[block.rows[RESTING][block.order] == 0.0]

    def seen(self, highest: float, lowest: float) -> None:
        """Take in the projected gradients of some rows."""
        self.highest, self.lowest = max(self.highest, highest), min(self.lowest, lowest)

    def finish(self, tolerance: float) -> None:
        """Close a pass that trained: its M and m are the bounds of the next."""
        self.passes += 1
        agreed = self.highest - self.lowest < tolerance
        self.above = self.highest if self.highest > 0.0 else np.inf
        self.below = self.lowest if self.lowest < 0.0 else -np.inf
        self.highest, self.lowest, self.waking = -np.inf, np.inf, False
        if agreed or self.passes >= self.next_waking:
            self.next_waking = WAKING_SPACING * self.passes
            self.wake()

    def wake(self) -> None:
        """Let the next pass meet all rows."""
        self.above, self.below, self.waking = np.inf, -np.inf, True


def leave_out(problem: Problem, block: Block, rows: Int32, w: Float64) -> None:
    """Note that these rows of the block stay out, and what each of them costs at w."""
    row_costs(block.labeled, rows, w, RowLoss(problem.C, problem.loss, problem.loss), block.rows[RESTING])


def resting_losses(block: Block) -> float:
    """Return what the rows that are out cost when they were left out."""
    resting = block.rows[RESTING]
    return float((resting - 1.0)[resting > 0.0].sum())


def merged(parts: list[Shrinking]) -> Shrinking:
    """Join what several workers found on rows of their own in one pass."""
    first, *others = parts
    for other in others:
        first.seen(other.highest, other.lowest)
    return first
