"""Problems: what a loss, a kernel and a kind of problem are, how targets are read, and what is minimized on which rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

from streamsvm.aliases import Array, JsonObject, RowRecord
from streamsvm.class_tags import saved_as
from streamsvm.rows import Float32, Float64, Int32, Int64, Labeled, Reach, Targets

BINARY = 2
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


class Bounds(NamedTuple):
    """What a pass says of a point, but for the sum of losses."""

    value: float
    """R(w)."""
    scale: float
    """The t of the best multiple t a of the slopes."""
    dual: float
    """D there."""


def best_scale(loss: Loss, linear: float, quadratic: float, square: float) -> float:
    """Return the feasible t at which D(t a) = t linear - t^2 (quadratic + square / 2) is largest; square = ||v||^2.

    A box holds it at 1 or below; without one, it may exceed 1. 0 where nothing is better. D is linear in t where v = 0 and the
    loss has corners alone, as at the optimum w = 0: then a itself is best.
    """
    curvature = 2.0 * quadratic + square
    if linear <= 0.0:
        return 0.0
    if curvature <= 0.0:
        return 1.0 if has_box(loss) else 0.0
    t = linear / curvature
    return min(t, 1.0) if has_box(loss) else t


def scale_dual(loss: Loss, linear: float, quadratic: float, square: float) -> float:
    """Return D at ``best_scale``."""
    return dual_at(best_scale(loss, linear, quadratic, square), linear, quadratic, square)


def dual_at(t: float, linear: float, quadratic: float, square: float) -> float:
    """Return D(t a)."""
    return t * linear - t * t * (quadratic + 0.5 * square)


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


class Kind(ABC):
    """What a problem tells apart: how it reads the codes of rows, and what the weights that come of it mean.

    A code is a class (n,) int32, or a number to be predicted (n,) float64, as a store holds it of a row. Implementations are
    frozen dataclasses with tags (``solvers.problem_kinds``); what has a default here is so for most of them.
    """

    __slots__ = ()

    entries: ClassVar[float] = 1.0
    """sum_k |a_ik| / a_i: how often a row of dual variable a_i enters the weights."""
    selects_rows: ClassVar[bool] = False
    """Whether rows of some classes alone belong to it (``select``)."""
    votes: ClassVar[bool] = False
    """Whether each of its problems has a vote for one of two classes, and the class with most votes is predicted."""
    one_class: ClassVar[bool] = False
    """Whether it asks where rows are, whatever their classes."""
    refusal: ClassVar[str] = ""
    """What a solver without a form for it does not do, as the end of a sentence that begins with the solver."""

    @property
    def classes(self) -> int:
        """The number of classes told apart by one problem, each by weights of its own; 0: one decision function does."""
        return 0

    @property
    def center(self) -> float:
        """What is subtracted from every target, and added to the intercept in the end."""
        return 0.0

    @property
    @abstractmethod
    def positives(self) -> tuple[int, ...]:
        """The code that each decision value of the model speaks for."""

    @abstractmethod
    def targets(self, codes: Array) -> Targets:
        """Return what m_i is made of (n,), float32 for classes: +1 or -1, the number, or the code itself."""

    def select(self, codes: Array) -> Array | None:
        """Return which rows belong to the problem, bools (n,); None: all."""
        return None

    def signs(self, y: Targets) -> Float64:
        """Return with what sign (n,) rows of targets y (n,) enter w: that of the class."""
        return y.astype(np.float64)

    def margins(self, f: Float64, y: Targets) -> Float64:
        """Return m_i (n,) of rows with decision values f, (n,) or (n, classes)."""
        return y * f

    def shape(self, w: Float64) -> Float64:
        """Return the weights w (components,) as a solution has them: (columns + 1,), or (classes, columns + 1)."""
        return w

    def decision_weights(self, w: Float64) -> Float64:
        """Return the weights of the model's decision values (decision values, columns + 1) for those of a solution."""
        return w[None, :]

    def decision_margin(self, loss: Loss) -> float:
        """Return what the model subtracts from f."""
        return 0.0

    def outcomes(self, codes: Array, positives: list[int], factors: Float32 | Float64) -> Array:
        """Return what a model that is always right predicts (n,), as ``model.predict_codes`` has it.

        ``positives``: the codes of all decision values of the model; ``factors`` (n,): of the rows' weights.
        """
        right = np.array([codes == code for code in positives])
        if len(right) == 1:
            return right[0].astype(np.int32)
        return np.where(right.any(axis=0), right.argmax(axis=0), -1).astype(np.int32)

    def facts(self) -> JsonObject:
        """Return what a certificate says of the problem it is of, as plain JSON."""
        return {"positive": self.positives[0]}

    def adapt(self, solver: Any) -> Any:
        """Return the solver (``types.Solver``) that solves such problems with the settings of this one; None: it cannot."""
        return solver

    @abstractmethod
    def start_evaluation(self, problem: Problem, w: Float64, unit: float) -> Any:
        """Return empty sums, to be taken at w, by which the optimum is bounded (``solvers.evaluation``); w is shaped as in a solution.

        ``unit``: what margins are measured in.
        """

    def add_block(self, sums: Any, problem: Problem, block: Block, w: Float64) -> None:
        """Count a block at w (components,) in sums that know P, and D where slopes at w make a good dual point (``PointSums``)."""
        sums.add(problem, problem.loss, block, w)


@saved_as("regularizer.squared_norm")
@dataclass(frozen=True, slots=True)
class Regularizer:
    """R(w) = 1/2 ||w||^2, what P has beside the sum of losses, and what D has beside sum_i (a_i - conjugate(a_i)).

    A subclass is another one, and lives with its mathematics in ``solvers``. v = sum_i a_i z_i x_i, z the signs of the rows.
    """

    is_squared_norm: ClassVar[bool] = True
    """Whether R is 1/2 ||w||^2 alone: curved alike in all directions."""
    has_scale: ClassVar[bool] = True
    """Whether margins have the unit of the loss; else any multiple of (w, offset) is as good, and P can be 0 or less."""
    refusal: ClassVar[str] = ""
    """What a solver without a form for it does not do, as the end of a sentence that begins with the solver."""
    instead: ClassVar[str] = ""
    """What the user may do in place of choosing another solver, as the beginning of a hint."""

    @property
    def least(self) -> float:
        """D at the dual point that is feasible whatever the rows: a = 0."""
        return 0.0

    def value(self, w: Float64) -> float:
        """Return R(w)."""
        return 0.5 * float(w @ w)

    def dual(self, gain: float, v: Float64) -> float:
        """Return D of slopes whose sum a_i - conjugate(a_i) is ``gain``, made feasible where they are not; v (p,)."""
        return gain - 0.5 * float(v @ v)

    def bounds(self, loss: Loss, sums: tuple[float, float, float], w: Float64, v: Float64, rows: Any = None) -> Bounds:
        """Return R(w), and the best dual point among the multiples t a of the slopes at w.

        ``sums``: sum C_i l(m_i); linear and quadratic, where sum_i (t a_i - conjugate(t a_i)) is t linear - t^2 quadratic.
        ``rows``: the ``row_sums`` of all rows.
        """
        _, linear, quadratic = sums
        square = float(v @ v)
        scale = best_scale(loss, linear, quadratic, square)
        return Bounds(self.value(w), scale, dual_at(scale, linear, quadratic, square))

    def is_degenerate(self, dual: float) -> bool:
        """Return whether the optimum, which is ``dual`` at least, is 0 but for rounding."""
        return False

    def row_sums(self, components: int) -> Any:
        """Return empty sums over all rows, whatever the weights, that it needs to know; None: none (``solvers.one_class.RowSums``)."""
        return None

    def sum_of_dual(self, total: float) -> float | None:
        """Return what sum a_i is at every feasible point, of rows with sum s_i = ``total``; None: no constraint says."""
        return None

    def slope_of_dual(self, length: float) -> float:
        """Return by how much D changes for a change of v of length 1, at most; ``length`` is that of v."""
        return length

    def cancellation(self, w: Float64, total: float, unit: float) -> float:
        """Return by how much the sum of the absolute values of what P is made of exceeds |P|, at most.

        ``total``: sum s_i; ``unit``: that of margins.
        """
        return 0.0

    def margin_unit(self, facts: JsonObject) -> float:
        """Return what a margin of the weights is in the units of P; ``facts`` are those of the certificate."""
        return 1.0

    def automatic_solver(self, exact_kernel: bool) -> tuple[str, str] | None:
        """Return the name of the solver that ``--solver auto`` takes, and why; None: the data decide."""
        return None

    def with_nu(self, nu: float) -> Regularizer:
        """Return the same for another nu, where it has one."""
        return self

    def adapt(self, solver: Any) -> Any:
        """Return the solver (``types.Solver``) that minimizes with it, with the settings of this one; None: it cannot."""
        return solver


SQUARED_NORM = Regularizer()


@saved_as("problem")
@dataclass(frozen=True, slots=True)
class Problem:
    """P(w) = R(w) + C sum_i s_i l(m_i), with one C.

    R is 1/2 ||w||^2 unless a regularizer says otherwise. m_i = y_i w.x_i in classification, w.x_i - t_i in regression
    (``Loss.numeric``); other kinds have margins of their own (``Kind.margins``).

    Several problems (classes, values of C) can be solved on one reading of the data.
    """

    loss: Loss
    """A record; ``Solver.losses`` says which ones a solver takes."""
    C: float
    """The weight of the loss sum, above 0."""
    rows: int
    """The number of rows it is solved on: n."""
    columns: int
    """Features, without the constant one: a decision function has ``columns + 1`` weights."""
    kind: Kind
    """What is told apart; one of regression where, and only where, the loss is numeric."""
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
    """Weights (components,) to start from, as the solver sees them; None: from nothing."""
    reach: Reach | None = field(default=None, compare=False)
    """How large rows are as a rule, for solvers that evaluate a kernel; None: not known."""
    nonzeros: int | None = None
    """Stored entries of all rows; None where rows are dense."""
    regularizer: Regularizer = SQUARED_NORM
    """R, and what D has in its place."""

    @property
    def components(self) -> int:
        """The number of weights: ``columns + 1``, of each class where classes are told apart together."""
        return (self.kind.classes or 1) * (self.columns + 1)

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

    def gather(self, values: Float64) -> Float64:
        """Gather values of the rows (n,) from values by global number from ``start`` on (span,)."""
        return values if self.places is None else values[self.places]

    def members(self, index: Int64) -> tuple[slice, Int64]:
        """Return where in rising global numbers ``index`` of the problem's rows this block is, and the places of those rows in it."""
        first, last = np.searchsorted(index, (self.start, self.start + self.span))
        mine = index[first:last] - self.start
        return slice(int(first), int(last)), mine if self.places is None else np.searchsorted(self.places, mine)
