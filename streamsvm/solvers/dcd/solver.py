"""Dual coordinate descent, streamed: Hsieh et al., ICML 2008. A move takes one dual variable to its optimum (``compute.passes.dcd``).

What of a pass does not depend on the move is in ``solvers.dcd.dual_ascent``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from streamsvm.compute.passes.dcd import Box, Held, Swept, dcd_sweep
from streamsvm.config.fields import Option
from streamsvm.errors import UsageError
from streamsvm.registry import load
from streamsvm.rows import Int32
from streamsvm.solvers.dcd.dual_ascent import DualAscent
from streamsvm.solvers.dcd.shrinking import RESTING, Shrinking, leave_out, resting_losses
from streamsvm.solvers.dcd.state import DCDState
from streamsvm.types import AnySolver, Block, Problem

MULTINOMIAL = "streamsvm.solvers.dcd.multinomial:MultinomialDCD"
"""The same descent for all classes in one problem, by name."""


@dataclass(frozen=True, slots=True)
class DCD(DualAscent):
    """Settings of dual coordinate descent."""

    shrinking: Annotated[
        bool,
        Option(
            "Let rows that are held at a bound stay out of further passes too, as LIBLINEAR does: visits get shorter, readings "
            "are about as many. A number more per row."
        ),
    ] = False
    online: Annotated[
        bool,
        Option(
            "Draw rows one by one with replacement out of each block, as many as it has, instead of visiting each once: the "
            "paper's online setting."
        ),
    ] = False

    def of_classes(self, classes: int) -> AnySolver:
        """Raises UsageError: all classes together have neither of its own settings."""
        if self.shrinking or self.online:
            what = "shrinking" if self.shrinking else "online"
            raise UsageError(f"all classes in one problem are not solved with {what}", hint=f"leave out {what}")
        solver: AnySolver = load(MULTINOMIAL)(self.sweeps, self.parts, classes=classes)
        return solver

    def row_names(self) -> tuple[str, ...]:
        """Also which rows stay out of passes."""
        return (*DualAscent.row_names(self), *((RESTING,) if self.shrinking else ()))

    def start(self, problem: Problem) -> DCDState:
        """See ``DualAscent.start``."""
        state = DualAscent.start(self, problem)
        state.shrinking = Shrinking() if self.shrinking else None
        return state

    def to_visit(self, block: Block, active: Int32, sweep: int) -> Int32:
        """See ``DualAscent.to_visit``; or as many rows as there are, drawn."""
        if not self.online:
            return DualAscent.to_visit(self, block, active, sweep)
        rows = len(block.order)
        block.order[:] = np.random.default_rng((block.seed, sweep)).integers(rows, size=rows)
        return block.order

    def first_sweep(self, state: DCDState, block: Block) -> Int32:
        """See ``DualAscent.first_sweep``; of rows that are out only the loss is counted that they had."""
        shrinking = state.shrinking
        if shrinking is None:
            return DualAscent.first_sweep(self, state, block)
        active = shrinking.met(block)
        if len(active) == 0:  # of a pass without a row the mean of w is w
            state.mean += state.w
            state.samples += 1
        state.losses += resting_losses(block)
        held = np.zeros(len(block.y), np.bool_)
        held[active] = True
        swept = self.sweep(state, block, active, shrinking.held)
        held[active[: swept.left]] = False
        state.losses += swept.losses
        shrinking.seen(swept.highest, swept.lowest)
        leave_out(state.problem, block, np.flatnonzero(held).astype(np.int32), state.w)
        return active[: swept.left]

    def _pass(self, state: DCDState, block: Block, rows: Int32, box: Box, held: Held) -> Swept:
        """See ``DualAscent``."""
        return dcd_sweep(block.labeled, rows, len(rows), box, held, block.rows["alpha"], state.w)
