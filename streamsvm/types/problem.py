"""Problems and their certificates: what a loss and a kernel are, how targets are read, what is minimized on which rows, and how far from the optimum a point is."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isfinite
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np

from streamsvm.aliases import Array, JsonObject, RowRecord
from streamsvm.errors import DefectError, UsageError
from streamsvm.rows import Float32, Float64, Int32, Int64, Labeled, Reach, Targets
from streamsvm.tags import saved_as

EVERY_ROW = -1
"""``Problem.positive`` of a one-class problem: all rows are of the class."""
TWO = 2
"""The number of classes that one decision value tells apart."""


class Loss(Protocol):
    """A loss l(m) >= 0, convex, with the dual coordinate problem it gives rise to.

    In classification, y = +1 or -1, m = y f(x) is the margin, and l does not rise. In regression (``numeric``), with target t,
    m = f(x) - t is the residual, and l(0) = 0 is the least.

    Implementations are ``NamedTuple`` records of floats (``losses``), whose functions of numbers are also compiled into
    passes (``compute.numba_bridge``); C is that of the row, C s_i > 0. What a solver needs of a loss it asks for by the
    properties ``smooth`` and ``quadratic`` and ``has_box`` (``LossRequirement``), never by its name.
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

    def upper(self, C: float) -> float:
        """Return the largest feasible dual variable a; inf where there is none."""
        ...

    def conjugate(self, a: float, C: float) -> float:
        """Return c, where a row adds a - c to the dual: c = a + max_m [-a m - C l(m)], for a between ``compute.targets.lower`` and ``upper``."""
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

    def quadratic(self) -> bool:
        """Whether the conjugate is a parabola or a line in a, on each side of 0, so that a coordinate's optimum has a closed form."""
        ...

    def round_corners(self, mu: float) -> Loss:
        """Return a smooth loss that differs from this one within ``mu`` > 0 of its corner; itself where there is none.

        Its slopes are convex combinations of slopes of this one: dual points read off it are feasible for this one.
        """
        ...


def has_box(loss: Loss) -> bool:
    """Whether l' is bounded, so that dual variables are."""
    return isfinite(loss.upper(1.0))


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


def class_factors(codes: Array, weights: tuple[float, ...]) -> Float32 | Float64:
    """Return the weight (n,) of each row's class; 1 for all where ``weights`` is empty.

    They are float32 where that holds all of them exactly, else float64: P is that of the weights that were asked for.
    """
    if not weights:
        return np.ones(len(codes), np.float32)
    exact = np.asarray(weights, np.float64)
    with np.errstate(over="ignore"):
        short = exact.astype(np.float32)
    return short[codes] if np.array_equal(short, exact) else exact[codes]


class OneAgainstRest(NamedTuple):
    """The task of a class (+1) against all others (-1)."""

    positive: int
    """The code of the class that is +1."""
    weights: tuple[float, ...]
    """The factor of s_i for the rows of each class; empty: 1 for all."""

    def targets(self, codes: Array) -> Targets:
        """Return y (n,) float32, +1 and -1."""
        y = (codes == self.positive).astype(np.float32)
        y *= 2  # a quarter of the time of np.where
        y -= 1
        return y

    def factors(self, codes: Array) -> Float32 | Float64:
        """Return the factor (n,) of each row's weight that its code decides."""
        return class_factors(codes, self.weights)

    def signs(self, y: Targets) -> Float64:
        """Return with what sign (n,) rows of targets y (n,) enter w: that of the class."""
        return y.astype(np.float64)


class OneClass(NamedTuple):
    """The task of one-class problems: all rows are +1, whatever their codes."""

    weights: tuple[float, ...]
    """The factor of s_i for the rows of each class; empty: 1 for all."""

    def targets(self, codes: Array) -> Targets:
        """Return y (n,) float32, all 1."""
        return np.ones(len(codes), np.float32)

    def factors(self, codes: Array) -> Float32 | Float64:
        """Return the factor (n,) of each row's weight that its code decides."""
        return class_factors(codes, self.weights)

    def signs(self, y: Targets) -> Float64:
        """Return with what sign (n,) rows of targets y (n,) enter w: that of the class."""
        return y.astype(np.float64)


class AllClasses(NamedTuple):
    """The task of telling all classes apart in one problem; codes stand for themselves."""

    weights: tuple[float, ...]
    """The factor of s_i for the rows of each class; empty: 1 for all."""

    def targets(self, codes: Array) -> Targets:
        """Return the codes (n,) as float32."""
        return codes.astype(np.float32)

    def factors(self, codes: Array) -> Float32 | Float64:
        """Return the factor (n,) of each row's weight that its code decides."""
        return class_factors(codes, self.weights)

    def signs(self, y: Targets) -> Float64:
        """Return with what sign (n,) rows of targets y (n,) enter w: +1 in the weights of the row's own class."""
        return np.ones(len(y))


class Regression(NamedTuple):
    """The task of predicting numbers."""

    center: float = 0.0
    """Subtracted from all of them."""

    def targets(self, codes: Array) -> Targets:
        """Return the numbers (n,) float64, less the center; not copied where that is 0."""
        return codes - self.center if self.center else codes

    def factors(self, codes: Array) -> Float32 | Float64:
        """Return the factor (n,) of each row's weight that its code decides: 1, as there are no classes."""
        return np.ones(len(codes), np.float32)

    def signs(self, y: Targets) -> Float64:
        """Return with what sign (n,) rows of targets y (n,) enter w: as they are."""
        return np.ones(len(y))


LearningTask: TypeAlias = OneAgainstRest | OneClass | AllClasses | Regression
"""How a problem reads the class codes (n,) int32, or the numbers (n,) float64, that a store holds of its rows."""


@saved_as("problem")
@dataclass(frozen=True, slots=True)
class Problem:
    """P(w) = 1/2 ||w||^2 + C sum_i s_i l(m_i): one class against the rest, or regression, with one C.

    m_i = y_i w.x_i in classification, w.x_i - t_i in regression (``Loss.numeric``).

    Several problems (classes, values of C) can be solved on one reading of the data.
    """

    loss: Loss
    """A record; ``Solver.losses`` says which ones a solver takes."""
    C: float
    """The weight of the loss sum, above 0."""
    rows: int
    """The number of rows it is solved on: n."""
    columns: int
    """Features, without the constant one: ``w`` has ``columns + 1`` components."""
    positive: int
    """The class code that is +1; ``EVERY_ROW``: all rows are, whatever their codes; 0 in regression."""
    bias: float = 1.0
    """The value of the constant feature, whose weight is regularized like any other; 0: there is none."""
    weights: tuple[float, ...] = ()
    """The factor of s_i for the rows of each class; empty: 1 for all."""
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
    """In one-class problems with a free offset (``solvers.one_class``), sum a_i is this share of sum s_i; with two classes it is the nu of
    nu-SVM (``solvers.nu``). None: neither form."""
    classes: int = 0
    """The number of classes told apart by one problem, each by weights of its own (``solvers.dcd``): m_i is how far the
    decision value of a row's class is above all others. 0: ``positive`` against the rest."""
    negative: int | None = None
    """In one-vs-one problems, the class code that is -1; rows of other classes do not belong to the problem. None: all others are -1."""
    l1_ball: float | None = None
    """The t of least squares subject to ||w||_1 <= t, which takes the place of 1/2 ||w||^2; None: no such bound."""
    l1: float | None = None
    """The weight of ||w||_1 beside 1/2 ||w||^2 (elastic net, ``solvers.elastic_net``); None: no such term."""
    center: float = 0.0
    """In regression with a free intercept, subtracted from every target, and added to the intercept in the end. As sum a_i = 0 neither P
    nor D changes; without it both are differences of large numbers where targets are far from 0."""
    origin: Float64 | None = field(default=None, compare=False, repr=False)
    """In one-class problems with a free offset, (columns,): the rows of the problem less the rows that are read; None: they are the same."""

    @property
    def task(self) -> LearningTask:
        """How the codes of rows are read."""
        if self.loss.numeric():
            return Regression(self.center)
        if self.classes:
            return AllClasses(self.weights)
        return OneClass(self.weights) if self.positive == EVERY_ROW else OneAgainstRest(self.positive, self.weights)

    @property
    def two_classes_by_nu(self) -> bool:
        """Whether it is the nu-SVM of two classes."""
        return self.nu is not None and self.positive != EVERY_ROW

    @property
    def components(self) -> int:
        """The number of weights: ``columns + 1``, of each class where classes are told apart together."""
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

    def first_weights(self) -> Float64:
        """Return a copy of ``warm``, or zeros."""
        return np.zeros(self.components) if self.warm is None else self.warm.ravel().copy()


@dataclass(slots=True)
class Block:
    """A chunk in memory as one problem sees it, with the order its rows are to be visited in."""

    X: RowRecord
    """Dense, CSR, or what a feature map made of them."""
    y: Targets
    """(n,) +1 or -1, or the numbers to be predicted; the class codes where classes are told apart together."""
    s: Float32 | Float64
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
    places: Int64 | None = None
    """(n,) rising: row i has the global number ``start`` + places[i]; None: they lie one after the other, as all but those of pairs do."""

    @property
    def labeled(self) -> Labeled:
        """The rows, targets and weights, as compiled passes take them."""
        return Labeled(self.X, self.y, self.s)

    @property
    def numbers(self) -> Int64:
        """The global numbers of the rows (n,)."""
        return self.start + (np.arange(len(self.y)) if self.places is None else self.places)

    @property
    def span(self) -> int:
        """How many global numbers there are from the first row's to the last one's."""
        return len(self.y) if self.places is None else int(self.places[-1]) + 1

    def spread(self, values: Float64) -> Float64:
        """Scatter values of the rows (n,) by global number from ``start`` on (span,); 0 between them."""
        if self.places is None:
            return values
        by_number = np.zeros(self.span)
        by_number[self.places] = values
        return by_number

    def gathered(self, values: Float64) -> Float64:
        """Gather values of the rows (n,) from values by global number from ``start`` on (span,)."""
        return values if self.places is None else values[self.places]

    def members(self, index: Int64) -> tuple[slice, Int64]:
        """Return where in rising global numbers ``index`` of the problem's rows this block is, and the places of those rows in it."""
        first, last = np.searchsorted(index, (self.start, self.start + self.span))
        mine = index[first:last] - self.start
        return slice(int(first), int(last)), mine if self.places is None else np.searchsorted(self.places, mine)


CONTRADICTION = 1e-6
"""A relative gap below minus this, with rounding counted, is an error."""


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
    """Further facts of the pass, as plain JSON, for the events of the run."""
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
        message = f"the certificate contradicts itself: primal {self.primal:.9g}, dual {self.dual:.9g}"
        if problem.kernel is not None and not problem.kernel.positive_semidefinite():
            raise UsageError(
                f"{message}, because the kernel {problem.kernel} is not positive semidefinite on these rows",
                hint="choose another kernel (rbf, laplacian), or a coef0 of 0 or more for the polynomial one",
            )
        raise DefectError(
            f"{message}, for {problem.loss} with C = {problem.C:g}; no result was written",
            hint="this is a defect of streamsvm: please report it with this line",
        )
