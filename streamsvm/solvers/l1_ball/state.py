"""What a run over the l1 ball carries from pass to pass."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from streamsvm.rows import Float64, Int64
from streamsvm.solvers.l1_ball.work import BallWork
from streamsvm.solvers.point_evaluation import PointSums
from streamsvm.tags import saved_as
from streamsvm.types import Problem


@saved_as("l1_ball.state")
@dataclass(slots=True)
class BallState:
    """Arrays are float64; p = columns + 1, m columns of the pool, the constant feature the last of them."""

    problem: Problem
    """What is solved."""
    point: Float64
    """(p,) the weights that the pass evaluates, in the ball."""
    evaluation: PointSums
    """The sums of the pass there."""
    pool: Int64
    """(m - 1,) columns whose vertices the method works on, rising; empty: not chosen yet."""
    gathering: bool = False
    """Whether the pass sums up X'SX of the pool."""
    gathered: Float64 | None = None
    """(m, m) that sum over the blocks met so far; None: nothing yet."""
    gram: Float64 | None = None
    """(m, m) X'SX of the pool and the constant feature; None before it is known, and where blocks are visited."""
    best: Float64 | None = None
    """(p,) the evaluated weights with the least P, which are the solution; None before the first pass is closed."""
    primal: float = np.inf
    """P of ``best``."""
    dual: float = 0.0
    """The largest D so far; at first that of a = 0."""
    work: BallWork | None = None
    """What is done in memory before the next pass; None: nothing."""
    iterations: int = 0
    """Iterations made."""
    seen: float = np.inf
    """The gap at which the method stopped, as it saw it itself; inf before it has."""
    begun: int = 0
    """How often a method began to work between two passes."""
    certifying: bool = False
    """Whether the pass is the last one and only evaluates."""
    deadline: float = np.inf
    """When work in memory is to end, on the clock of ``time.perf_counter``."""
    passes: int = 0
    """Passes that were closed."""
    facts: dict[str, float] = field(default_factory=dict)
    """What there is to say of the last pass."""
