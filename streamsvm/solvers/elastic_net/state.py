"""What a proximal Newton's method carries from pass to pass."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from streamsvm.aliases import Array
from streamsvm.rows import Float64, Int64
from streamsvm.solvers.point_evaluation import PointSums
from streamsvm.tags import saved_as
from streamsvm.types import Problem


@saved_as("elastic_net.state")
@dataclass(slots=True)
class ElasticNetState:
    """Arrays are float64; p = columns + 1, m columns of the pool, the constant feature the last of them."""

    problem: Problem
    """What is solved."""
    point: Float64
    """(p,) the weights that the pass evaluates."""
    mu: float
    """Half the width of the rounded corner, in margins; 0: the loss has none."""
    evaluation: PointSums
    """The sums of the pass there."""
    squares: Float64
    """(p,) sum_i s_i x_ij^2, of the first pass."""
    possible: Array
    """(p,) bools: columns of which no gap has proved that they are 0."""
    pool: Int64
    """(m - 1,) columns whose second derivatives the pass sums up, rising; empty: none were chosen yet."""
    gathering: bool = False
    """Whether there is a pool."""
    gram: Float64 | None = None
    """(m, m) X'DX of the pool over the blocks met so far; None: nothing yet."""
    center: Float64 = field(default_factory=lambda: np.empty(0))
    """(p,) the point that steps begin at: the last one that was taken."""
    direction: Float64 = field(default_factory=lambda: np.empty(0))
    """(p,) from there to the minimum of the model."""
    step: float = 1.0
    """Which share of it the pass looks at."""
    on_the_way: Float64 | None = None
    """The sums of losses, rounded, at shares of the way from ``center`` to ``point``; None: nothing yet."""
    slope: float = 0.0
    """The slope of the objective along the direction at ``center``, at most."""
    narrowed: bool = False
    """Whether ``mu`` is another one than at ``center``."""
    best: Float64 = field(default_factory=lambda: np.empty(0))
    """(p,) the evaluated weights with the least P, which are the solution."""
    primal: float = np.inf
    """P of ``best``."""
    dual: float = 0.0
    """The largest D so far; at first that of a = 0."""
    stuck: bool = False
    """Whether no step leads on: rounding is all that is left."""
    passes: int = 0
    """Passes that were closed."""
    deadline: float = np.inf
    """When work in memory is to end, on the clock of ``time.perf_counter``."""
    facts: dict[str, float] = field(default_factory=dict)
    """What there is to say of the last pass."""
