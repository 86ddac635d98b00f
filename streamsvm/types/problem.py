"""What is being solved, the rows a solver sees of it, and how far from solved it is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from streamsvm.aliases import Array, JsonObject, RowRecord
from streamsvm.errors import DefectError, UsageError
from streamsvm.rows import Float32, Float64, Int32, Labeled, Reach, Targets
from streamsvm.tags import saved_as


class Loss(Protocol):
    """A loss l(m) >= 0, convex, with the dual coordinate problem it gives rise to.

    Of one of two classes, y = +1 or -1, m = y f(x) is the margin, and l does not rise. Of a number t, m = f(x) - t is the residual,
    and l(0) = 0 is the least; then ``numeric`` says so.

    Implementations are ``NamedTuple`` records of floats (``losses.py``), whose functions of numbers are also compiled into
    passes (``compute.numba_bridge``); C is that of the row, C s_i > 0. What a solver needs of a loss it asks for by the
    properties ``smooth``, ``box`` and ``quadratic`` (``LossRequirement``), never by its name.
    """

    def value(self, m: float) -> float:
        """Return l(m)."""
        ...

    def slope(self, m: float) -> float:
        """Return l'(m), of a margin 0 or less; at a corner the slope of one of its sides, or one in between."""
        ...

    def second_derivative(self, m: float) -> float:
        """Return the generalized second derivative l''(m) >= 0."""
        ...

    def numeric(self) -> bool:
        """Whether the target is a number, so that m is a residual; else it is one of two classes."""
        ...

    def lower(self, C: float) -> float:
        """Return the least feasible dual variable a: 0 of a margin, below 0 of a residual; -inf where there is none."""
        ...

    def upper(self, C: float) -> float:
        """Return the largest feasible dual variable a; inf where there is none."""
        ...

    def conjugate(self, a: float, C: float) -> float:
        """Return c, where a row adds a - c to the dual: c = a + max_m [-a m - C l(m)], for lower(C) <= a <= upper(C)."""
        ...

    def conjugate_slope(self, a: float, C: float) -> float:
        """Return the derivative of the conjugate with respect to a; of a residual at a = 0, where it has a corner, that of a > 0."""
        ...

    def curvature(self, C: float) -> float:
        """Return the second derivative of the conjugate; the least of all a where it is not constant."""
        ...

    def smooth(self) -> bool:
        """Whether l has no corner; then, and only then, ``curvature`` is above 0."""
        ...

    def box(self) -> bool:
        """Whether l' is bounded; then, and only then, ``upper`` is finite."""
        ...

    def quadratic(self) -> bool:
        """Whether the conjugate is a parabola or a line in a, on each side of 0, so that a coordinate's optimum has a closed form."""
        ...

    def rounded(self, mu: float) -> Loss:
        """Return a smooth loss that differs from this one within ``mu`` > 0 of its corner; itself where there is none.

        Its slopes are convex combinations of slopes of this one: dual points read off it are feasible for this one.
        """
        ...


@dataclass(frozen=True, slots=True)
class LossRequirement:
    """What a solver needs a loss to be, by property; None: it does not matter."""

    smooth: bool | None = None
    """Whether l has no corner."""
    box: bool | None = None
    """Whether the dual variables have a finite upper bound."""
    quadratic: bool | None = None
    """Whether the conjugate is a parabola or a line."""
    numeric: bool | None = None
    """Whether the target is a number."""

    def refusal(self, loss: Loss) -> str | None:
        """Return why the loss will not do, as the end of a sentence that begins with the solver; None where it will."""
        asked = (
            (self.smooth, loss.smooth(), "without corners", "with a corner"),
            (self.box, loss.box(), "whose slope is bounded", "whose slope is not bounded"),
            (self.quadratic, loss.quadratic(), "whose conjugate is a parabola", "whose conjugate is no parabola"),
            (self.numeric, loss.numeric(), "of a number", "of classes"),
        )
        for wanted, found, yes, no in asked:
            if wanted is not None and wanted != found:
                return f"needs a loss {yes if wanted else no}"
        return None


class Kernel(Protocol):
    """A Mercer kernel k(x, z), or a similarity that is taken for one.

    Implementations are ``NamedTuple`` records of floats (``kernels.py``); ``similarity`` is also compiled into passes.
    """

    @property
    def gamma(self) -> float | None:
        """The width, as the kernel has it; None for a kernel without one."""
        ...

    def with_gamma(self, gamma: float) -> Kernel:
        """Return the same kernel of this width; itself where it has none."""
        ...

    def similarity(self, dot: float, sqx: float, sqz: float) -> float:
        """Return k(x, z) from x.z, ||x||^2 and ||z||^2; ``dot`` is |x - z|_1 where ``city_block`` says so."""
        ...

    def city_block(self) -> bool:
        """Whether the kernel is one of the city-block distance, and ignores norms."""
        ...

    def translation_invariant(self) -> bool:
        """Whether k(x, z) depends on x - z alone: then the columns may be centered, and are (``features.scaling``)."""
        ...

    def positive_semidefinite(self) -> bool:
        """Whether every Gram matrix is positive semidefinite with these parameters: only then is a dual value a bound."""
        ...

    def largest(self, reach: Reach) -> float:
        """Return a bound of |k(x, z)| for rows within ``reach``."""
        ...

    def value_error(self, reach: Reach, unit: float) -> float:
        """Return how far rounding can move a value made of norms and products, ``unit`` being the unit roundoff.

        Derived in ``compute/kernel_values/rounding.py``.
        """
        ...

    def difference_error(self, reach: Reach, unit: float) -> float:
        """Return the same of a value made of differences x_j - z_j; where products are all there is, of these."""
        ...


EVERY_ROW = -1
"""As ``Problem.positive``: the problem is of one class, and takes all rows for it."""
TWO = 2
"""Classes of which one decision value says all."""


@saved_as("problem")
@dataclass(frozen=True, slots=True)
class Problem:
    """P(w) = 1/2 ||w||^2 + C sum_i s_i l(m_i): one class against the rest, or numbers, and one C.

    m_i = y_i w.x_i of classes; of numbers w.x_i - t_i, as ``Loss.numeric`` says.

    Several problems (classes, values of C) can be solved on one reading of the data.
    """

    loss: Loss
    """A record; which ones a solver takes it says in ``losses``."""
    C: float
    """The weight of the loss sum, above 0."""
    rows: int
    """Of the data it is solved on: n."""
    columns: int
    """Features, without the constant one: ``w`` has ``columns + 1`` components."""
    positive: int
    """The class code that is +1; ``EVERY_ROW``: all rows are, whatever their codes; of numbers 0."""
    bias: float = 1.0
    """The value of the constant feature, whose weight is regularized like any other; 0: there is none."""
    weights: tuple[float, ...] = ()
    """Factor of s_i for the rows of each class; empty: 1 for all."""
    tolerance: float = 1e-3
    """The relative gap at which the run may end."""
    kernel: Kernel | None = None
    """For solvers that evaluate it themselves; None where the rows a solver sees are all there is."""
    held_out: tuple[int, ...] = ()
    """Chunks that are not shown to it; ``rows`` are those of the others."""
    warm: Float64 | None = field(default=None, compare=False, repr=False)
    """Weights (columns + 1,) to start from, as the solver sees them; None: from nothing."""
    reach: Reach | None = field(default=None, compare=False)
    """How large rows are as a rule, for solvers that evaluate a kernel; None: not known."""
    nonzeros: int | None = None
    """Stored entries of all rows; None where rows are dense."""
    nu: float | None = None
    """Of one class, in the form with a free offset (``solvers.one_class``): sum a_i is this share of sum s_i; None: no such form."""
    classes: int = 0
    """Classes that are told apart by one problem, each by weights of its own (``solvers.dcd.multinomial``): m_i is how far the decision
    value of a row's class is above all others. 0: ``positive`` against the rest."""

    @property
    def components(self) -> int:
        """How many weights there are: ``columns + 1``, of each class where classes are told apart together."""
        return (self.classes or 1) * (self.columns + 1)

    @property
    def positives(self) -> tuple[int, ...]:
        """The class code that each decision value of the model speaks for: one of two classes, else one a class."""
        return tuple(range(self.classes)) if self.classes > TWO else (self.positive,)

    def shaped(self, w: Float64) -> Float64:
        """Return the weights w (components,) as a solution has them: (classes, columns + 1) where classes are told apart together."""
        return w.reshape(self.classes, -1) if self.classes else w

    def decision_weights(self, w: Float64) -> Float64:
        """Return the weights of the model's decision values (decision values, columns + 1) for those of the problem, w (components,).

        Of two classes that are told apart together it is the difference of both.
        """
        rows = w.reshape(-1, self.columns + 1)
        return rows[[self.positive]] - rows[[1 - self.positive]] if self.classes == TWO else rows

    def signs(self, y: Targets) -> Float64:
        """With what sign rows with targets y (n,) enter w: y of classes, 1 of numbers."""
        return np.ones(len(y)) if self.loss.numeric() else y.astype(np.float64)

    def first_weights(self) -> Float64:
        """A copy of ``warm``, or zeros."""
        return np.zeros(self.components) if self.warm is None else self.warm.ravel().copy()


@dataclass(slots=True)
class Block:
    """A chunk in memory as one problem sees it, with the order its rows are to be visited in."""

    X: RowRecord
    """Dense, CSR, or what a feature map made of them."""
    y: Targets
    """(n,) +1 or -1, or the numbers to be predicted; the class codes where classes are told apart together."""
    s: Float32
    """(n,) row weight times class weight, 0 or more; multiplies C."""
    chunk: int
    """The number of the chunk the rows are of."""
    start: int
    """The global number of the first row."""
    order: Int32
    """A permutation of the rows. A solver may rearrange it."""
    seed: int
    """For further draws within this visit; a function of the plan alone."""
    cached: bool = False
    """Whether all blocks stay in memory, so that coming back costs no reading."""
    rows: dict[str, Array] = field(default_factory=dict)
    """Per-row state of the solver, by the names it declared; changed in place."""
    copies: dict[bytes, RowRecord] | None = None
    """Rows of this block that problems took copies of, by the bools (n,) that chose them; None: no other problem sees the block."""

    @property
    def labeled(self) -> Labeled:
        """What compiled passes are given of it."""
        return Labeled(self.X, self.y, self.s)


CONTRADICTION = 1e-6
"""How far below 0 a relative gap can be beyond the rounding a certificate knows of: further down it is an error."""


@saved_as("certificate")
@dataclass(frozen=True, slots=True)
class Certificate:
    """How far a solution can be from the optimum: dual <= optimum <= primal."""

    primal: float
    """P of the solution, an upper bound of the optimum."""
    dual: float
    """D of a feasible dual point, a lower bound of the optimum."""
    exact: bool = True
    """False: the primal was summed while w was moving, an estimate that must not end a run."""
    final: bool = False
    """The solver has met a criterion of its own: the run ends, whatever the gap."""
    facts: JsonObject = field(default_factory=dict)
    """What else there is to say of the pass, as plain JSON; it goes into the events of the run."""
    rounding: float = 0.0
    """How far rounding can have moved primal and dual: dual - rounding <= optimum <= primal + rounding."""

    @property
    def gap(self) -> float:
        """The relative gap of what is certain, (P - D) / |P| with rounding counted against both; 0 when all are 0."""
        primal, dual = self.primal + self.rounding, self.dual - self.rounding
        return (primal - dual) / abs(primal) if primal else abs(dual)

    def ends(self, problem: Problem) -> bool:
        """Whether it is the last one of its problem: exact, and small enough or final."""
        return self.exact and (self.gap <= problem.tolerance or self.final)

    def verify(self, problem: Problem) -> None:
        """Refuse an exact certificate that contradicts itself: a lower bound above the upper one by more than rounding.

        Raises UsageError where the kernel is to blame, which is no Mercer kernel, else DefectError.
        """
        if not self.exact or not self.gap < -CONTRADICTION:
            return
        found = f"the certificate contradicts itself: primal {self.primal:.9g}, dual {self.dual:.9g}"
        if problem.kernel is not None and not problem.kernel.positive_semidefinite():
            raise UsageError(
                f"{found}, because the kernel {problem.kernel} is not positive semidefinite on these rows",
                hint="choose another kernel (rbf, laplacian), or a coef0 of 0 or more for the polynomial one",
            )
        raise DefectError(
            f"{found}, for {problem.loss} with C = {problem.C:g}; no result was written",
            hint="this is a defect of streamsvm: please report it with this line",
        )
