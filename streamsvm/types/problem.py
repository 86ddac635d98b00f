"""What is being solved, the rows a solver sees of it, and how far from solved it is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from streamsvm.rows import Float32, Float64, Int32, Labelled
from streamsvm.tags import saved_as


class Loss(Protocol):
    """A margin loss l(m), m = y f(x), with the dual coordinate problem it gives rise to (``losses.py``)."""

    def value(self, m: float) -> float: ...
    def slope(self, m: float) -> float: ...
    def second_derivative(self, m: float) -> float:
        """The generalised second derivative l''(m)."""
        ...

    def upper(self, C: float) -> float: ...
    def conjugate(self, a: float, C: float) -> float: ...
    def conjugate_slope(self, a: float, C: float) -> float: ...
    def curvature(self, C: float) -> float: ...


@saved_as("problem")
@dataclass(frozen=True, slots=True)
class Problem:
    """P(w) = 1/2 ||w||^2 + C sum_i s_i l(y_i w.x_i): one class against the rest, one C.

    Several problems (classes, values of C) can be solved on one reading of the data.
    """

    loss: Any
    """A ``Loss`` record; the solvers that need more of it (a margin) say so in ``losses``."""
    C: float
    rows: int
    columns: int
    """Features, without the constant one: ``w`` has ``columns + 1`` components."""
    positive: int
    """The class code that is +1."""
    bias: float = 1.0
    weights: tuple[float, ...] = ()
    """Factor of s_i for the rows of each class; empty: 1 for all."""
    tolerance: float = 1e-3
    """The relative gap at which the run may end."""
    kernel: Any = None
    """For solvers that evaluate it themselves; None where the rows a solver sees are all there is."""
    held_out: tuple[int, ...] = ()
    """Chunks that are not shown to it; ``rows`` are those of the others."""
    warm: Float64 | None = field(default=None, compare=False, repr=False)
    """Weights (columns + 1,) to start from, as the solver sees them; None: from nothing."""

    def first_weights(self) -> Float64:
        """A copy of ``warm``, or zeros."""
        return np.zeros(self.columns + 1) if self.warm is None else self.warm.copy()


@dataclass(slots=True)
class Block:
    """A chunk in memory as one problem sees it, with the order its rows are to be visited in."""

    X: Any
    """Dense, CSR, or what a feature map made of them."""
    y: Float32
    """+1 or -1."""
    s: Float32
    """Row weight times class weight; multiplies C."""
    chunk: int
    start: int
    """Global index of the first row."""
    order: Int32
    """A permutation of the rows. A solver may rearrange it."""
    seed: int
    """For further draws within this visit; a function of the plan alone."""
    cached: bool = False
    """Whether all blocks stay in memory, so that coming back costs no reading."""
    rows: dict[str, NDArray[Any]] = field(default_factory=dict)
    """Per-row state of the solver, by the names it declared; changed in place."""

    @property
    def labelled(self) -> Labelled:
        """What compiled passes are given of it."""
        return Labelled(self.X, self.y, self.s)


@saved_as("certificate")
@dataclass(frozen=True, slots=True)
class Certificate:
    """How far a solution can be from the optimum: dual <= optimum <= primal."""

    primal: float
    dual: float
    exact: bool = True
    """False: the primal was summed while w was moving, an estimate that must not end a run."""
    final: bool = False
    """The solver has met a criterion of its own: the run ends, whatever the gap."""
    facts: dict[str, Any] = field(default_factory=dict)
    """What else there is to say of the pass, as plain JSON; it goes into the events of the run."""

    @property
    def gap(self) -> float:
        """(P - D) / |P|, the relative gap; 0 when both are 0."""
        return (self.primal - self.dual) / abs(self.primal) if self.primal else abs(self.dual)
