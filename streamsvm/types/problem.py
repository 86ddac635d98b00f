"""Problems: the objective that is minimized and the rows it is minimized on; losses, kernels, regularizers and kinds of
problem.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

from streamsvm.class_tags import saved_as
from streamsvm.rows import Float32, Float64, Int32, Int64, Labeled, Reach, Targets
from streamsvm.type_aliases import Array, JsonObject, RowRecord

BINARY = 2
"""The number of classes that one decision function separates."""


class Loss(Protocol):
    """A convex loss l(m) >= 0, and its conjugate, from which the dual problem is formed.

    In classification, y = +1 or -1, m = y f(x) is the margin, and l is nonincreasing. In regression (``numeric``), with
    target t, m = f(x) - t is the residual, and l(0) = 0 is the minimum.

    Implementations are ``NamedTuple`` records of floats (``losses``); their functions of numbers are also compiled into
    passes (``compute.numba_bridge``). Here C stands for the factor of one row, C s_i > 0. A solver states which losses
    it can minimize by the properties ``smooth``, ``quadratic`` and ``has_box`` (``LossRequirement``), never by name.
    """

    def value(self, m: float) -> float:
        """Return l(m)."""
        ...

    def slope(self, m: float) -> float:
        """Return the derivative l'(m), at most 0 if m is a margin; at a kink, any subgradient."""
        ...

    def second_derivative(self, m: float) -> float:
        """Return the generalized second derivative l''(m) >= 0."""
        ...

    def numeric(self) -> bool:
        """Whether the target is a number, so that m is a residual; else the target is one of two classes."""
        ...

    def upper(self, C: float) -> float:
        """Return the largest feasible dual variable a; inf if there is no upper bound."""
        ...

    def conjugate(self, a: float, C: float) -> float:
        """Return c(a) = a + max_m [-a m - C l(m)]: a row adds a - c(a) to the dual objective D.

        The argument a must lie between ``compute.targets.lower`` and ``upper``.
        """
        ...

    def conjugate_slope(self, a: float, C: float) -> float:
        """Return the derivative of the conjugate with respect to a. In regression it has a kink at a = 0; there, the
        right derivative.
        """
        ...

    def curvature(self, C: float) -> float:
        """Return the second derivative of the conjugate; if it depends on a, its minimum."""
        ...

    def smooth(self) -> bool:
        """Whether l has no kink, which is equivalent to ``curvature`` > 0."""
        ...

    def quadratic(self) -> bool:
        """Whether the conjugate is quadratic or linear in a on each side of 0, so that a coordinate's optimum has a
        closed form.
        """
        ...

    def round_corners(self, mu: float) -> Loss:
        """Return a smooth loss that differs from this one only within ``mu`` > 0 of its kink; a smooth loss returns
        itself.

        The slopes of the result are convex combinations of slopes of this loss, so that dual points formed from them
        are feasible for this loss.
        """
        ...


def has_box(loss: Loss) -> bool:
    """Whether l' is bounded, so that the dual variables are bounded."""
    return isfinite(loss.upper(1.0))


class Bounds(NamedTuple):
    """The terms of P and D at a point, without the sum of losses."""

    value: float
    """R(w)."""
    scale: float
    """The factor t for which the dual point t a, with a formed from the slopes, has the largest D."""
    dual: float
    """D(t a)."""
    largest_bias: float = 0.0
    """A bound of the free bias of an optimum, from which D was computed; 0 if the bias is regularized."""


def best_scale(loss: Loss, linear: float, quadratic: float, square: float) -> float:
    """Return the feasible t that maximizes D(t a) = t linear - t^2 (quadratic + square / 2), where square = ||v||^2.

    If the dual variables have an upper bound, t is at most 1; otherwise it may exceed 1. It is 0 if no t > 0 improves
    on 0. D is linear in t if v = 0 and the loss is piecewise linear, as at the optimum w = 0; then t = 1 is best.
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
    """A Mercer kernel k(x, z), or a similarity function that is used like one.

    Implementations are ``NamedTuple`` records of floats (``kernels.py``); ``similarity`` is also compiled into passes.
    """

    @property
    def gamma(self) -> float | None:
        """The kernel's parameter gamma; None for a kernel without one."""
        ...

    def with_gamma(self, gamma: float) -> Kernel:
        """Return the kernel with this gamma; a kernel without gamma returns itself."""
        ...

    def similarity(self, dot: float, sqx: float, sqz: float) -> float:
        """Return k(x, z) from x.z, ||x||^2 and ||z||^2. If ``city_block()``, ``dot`` is |x - z|_1 instead."""
        ...

    def city_block(self) -> bool:
        """Whether the kernel is a function of the city-block distance, and does not use the norms."""
        ...

    def translation_invariant(self) -> bool:
        """Whether k(x, z) depends only on x - z. The columns are then centered (``features.scaling``)."""
        ...

    def positive_semidefinite(self) -> bool:
        """Whether every Gram matrix is positive semidefinite with these parameters. Otherwise a dual value is not a
        lower bound.
        """
        ...

    def largest(self, reach: Reach) -> float:
        """Return an upper bound of |k(x, z)| for rows whose norms are within ``reach``."""
        ...

    def value_error(self, reach: Reach, unit: float) -> float:
        """Return a bound of the rounding error of a value computed from norms and products; ``unit`` is the unit
        roundoff.

        Derived in ``compute/kernel_values/arithmetic.py``.
        """
        ...

    def difference_error(self, reach: Reach, unit: float) -> float:
        """Return a bound of the rounding error of a value computed from differences x_j - z_j.

        For a kernel that is always computed from products, return ``value_error``.
        """
        ...


def class_factors(codes: Array, weights: tuple[float, ...]) -> Float32 | Float64:
    """Return the weight (n,) of each row's class; 1 for all rows if ``weights`` is empty.

    The result is float32 if that represents all weights exactly, else float64, so that P uses exactly the weights asked
    for.
    """
    if not weights:
        return np.ones(len(codes), np.float32)
    exact = np.asarray(weights, np.float64)
    with np.errstate(over="ignore"):
        short = exact.astype(np.float32)
    return short[codes] if np.array_equal(short, exact) else exact[codes]


class Kind(ABC):
    """The kind of a problem (one-vs-rest, one-vs-one, multinomial, regression, one-class ...): how codes become targets
    and margins.

    The code of a row, as stored, is its class (n,) int32, or in regression the number to be predicted (n,) float64.
    Implementations are frozen dataclasses with tags (``solvers.problem_kinds``); the defaults here suit most of them.
    """

    __slots__ = ()

    entries: ClassVar[float] = 1.0
    """sum_k |a_ik| / a_i: how often a row with dual variable a_i enters the weights."""
    selects_rows: ClassVar[bool] = False
    """Whether only the rows of some classes belong to the problem (``select``)."""
    votes: ClassVar[bool] = False
    """Whether each problem votes for one of two classes, and the class with the most votes is predicted."""
    one_class: ClassVar[bool] = False
    """Whether the problem describes where the rows lie, and ignores their classes."""
    refusal: ClassVar[str] = ""
    """What a solver that does not support this kind cannot do, as the end of a sentence that begins with the solver's
    name."""

    @property
    def classes(self) -> int:
        """The number of classes that one problem separates with weights for each class; 0: it has a single decision
        function.
        """
        return 0

    @property
    def center(self) -> float:
        """The number that is subtracted from every target before the fit and added to the intercept after it."""
        return 0.0

    @property
    @abstractmethod
    def positives(self) -> tuple[int, ...]:
        """The code of the positive class of each decision value of the model."""

    @abstractmethod
    def targets(self, codes: Array) -> Targets:
        """Return the targets y (n,), from which margins are computed: +1 or -1 (float32), the number, or the code
        itself.
        """

    def select(self, codes: Array) -> Array | None:
        """Return which rows belong to the problem, as booleans (n,); None: all rows."""
        return None

    def signs(self, y: Targets) -> Float64:
        """Return the signs (n,) with which rows with targets y (n,) enter w."""
        return y.astype(np.float64)

    def margins(self, f: Float64, y: Targets) -> Float64:
        """Return the margins m_i (n,) of rows with decision values f, (n,) or (n, classes), and targets y (n,)."""
        return y * f

    def shape(self, w: Float64) -> Float64:
        """Return the weights w (components,) in the shape of a solution: (columns + 1,), or (classes, columns + 1)."""
        return w

    def decision_weights(self, w: Float64) -> Float64:
        """Return the weights of the model's decision functions, (decision values, columns + 1), for the weights of a
        solution.
        """
        return w[None, :]

    def decision_margin(self, loss: Loss) -> float:
        """Return the number that the model subtracts from f."""
        return 0.0

    def outcomes(self, codes: Array, positives: list[int], factors: Float32 | Float64) -> Array:
        """Return the predictions (n,) of a model that is always right, in the codes of ``model.predict_codes``.

        ``positives``: the positive code of each decision value of the model. ``factors``: the weights of the rows (n,).
        """
        right = np.array([codes == code for code in positives])
        if len(right) == 1:
            return right[0].astype(np.int32)
        return np.where(right.any(axis=0), right.argmax(axis=0), -1).astype(np.int32)

    def facts(self) -> JsonObject:
        """Return the facts by which a certificate identifies its problem, as plain JSON."""
        return {"positive": self.positives[0]}

    def adapt(self, solver: Any) -> Any:
        """Return a solver (``types.Solver``) for problems of this kind with the settings of ``solver``; None: there is
        none.
        """
        return solver

    @abstractmethod
    def start_evaluation(self, problem: Problem, w: Float64, unit: float) -> Any:
        """Return empty sums for the evaluation of P, and of bounds of the optimum, at w (``solvers.evaluation``).

        w has the shape of a solution. ``unit``: the unit of the margins.
        """

    def add_block(self, sums: Any, problem: Problem, block: Block, w: Float64) -> None:
        """Add a block, evaluated at w (components,), to sums (``PointSums``) from which P, and D at the slopes, are
        computed.
        """
        sums.add(problem, problem.loss, block, w)


@saved_as("regularizer.squared_norm")
@dataclass(frozen=True, slots=True)
class Regularizer:
    """The regularizer R(w) = 1/2 ||w||^2: the term of P beside the sum of losses, and its counterpart in D.

    Other regularizers are subclasses, in ``solvers`` with their mathematics. v = sum_i a_i z_i x_i, where z_i is the
    sign of row i.
    """

    is_squared_norm: ClassVar[bool] = True
    """Whether R is exactly 1/2 ||w||^2, which has the same curvature in all directions."""
    has_scale: ClassVar[bool] = True
    """Whether margins have the unit of the loss; else (w, offset) may be multiplied by any factor, and P can be 0 or
    less."""
    refusal: ClassVar[str] = ""
    """What a solver that does not support it cannot do, as the end of a sentence that begins with the solver's name."""
    instead: ClassVar[str] = ""
    """What the user can do instead of choosing another solver, as the beginning of a hint."""

    @property
    def least(self) -> float:
        """D at a = 0, a dual point that is feasible for all rows: a lower bound of the optimum."""
        return 0.0

    def value(self, w: Float64) -> float:
        """Return R(w)."""
        return 0.5 * float(w @ w)

    def gradient(self, w: Float64) -> Float64:
        """Return the gradient of R at w."""
        return w

    def dual(self, gain: float, v: Float64) -> float:
        """Return D at a dual point with sum_i (a_i - conjugate(a_i)) = ``gain`` and v (p,), after it was made
        feasible.
        """
        return gain - 0.5 * float(v @ v)

    def bounds(self, loss: Loss, sums: tuple[float, float, float], w: Float64, v: Float64, rows: Any = None) -> Bounds:
        """Return R(w), and the largest D over the multiples t a of the dual point a formed from the slopes at w.

        ``sums``: sum C_i l(m_i), linear and quadratic, where sum_i (t a_i - conjugate(t a_i)) = t linear - t^2
        quadratic. ``rows``: the ``row_sums`` over all rows.
        """
        _, linear, quadratic = sums
        square = float(v @ v)
        scale = best_scale(loss, linear, quadratic, square)
        return Bounds(self.value(w), scale, dual_at(scale, linear, quadratic, square))

    def is_degenerate(self, dual: float) -> bool:
        """Return whether the optimum, of which ``dual`` is a lower bound, is 0 up to rounding."""
        return False

    def row_sums(self, components: int) -> Any:
        """Return empty sums over all rows that do not depend on the weights (``solvers.one_class.RowSums``); None: none
        are needed.
        """
        return None

    def sum_of_dual(self, total: float) -> float | None:
        """Return sum a_i if the constraints fix it for rows with sum s_i = ``total``; else None."""
        return None

    def slope_of_dual(self, length: float, facts: JsonObject) -> float:
        """Return a bound of the change of D per unit length of a change of v; ``length`` is ||v||, ``facts`` are those of
        the certificate.
        """
        return length

    def cancellation(self, w: Float64, total: float, unit: float) -> float:
        """Return a bound of the amount by which the sum of the absolute values of P's terms exceeds |P|.

        ``total``: sum s_i. ``unit``: the unit of the margins.
        """
        return 0.0

    def margin_unit(self, facts: JsonObject) -> float:
        """Return the value of a margin of 1 in the units of P; ``facts`` are those of the certificate."""
        return 1.0

    def automatic_solver(self, exact_kernel: bool) -> tuple[str, str] | None:
        """Return the name of the solver that ``--solver auto`` chooses, and why; None: it depends on the data."""
        return None

    def with_nu(self, nu: float) -> Regularizer:
        """Return the regularizer with another nu; one without nu returns itself."""
        return self

    def adapt(self, solver: Any) -> Any:
        """Return a solver (``types.Solver``) for this regularizer with the settings of ``solver``; None: there is
        none.
        """
        return solver


SQUARED_NORM = Regularizer()


@saved_as("problem")
@dataclass(frozen=True, slots=True)
class Problem:
    """Minimize P(w) = R(w) + C sum_i s_i l(m_i) over w, for one value of C.

    R is 1/2 ||w||^2 or another regularizer. m_i = y_i w.x_i in classification, m_i = w.x_i - t_i in regression
    (``Loss.numeric``); other kinds define margins of their own (``Kind.margins``). Several problems
    (classes, values of C) can be solved in the same passes over the data.
    """

    loss: Loss
    """The loss; ``Solver.losses`` states which losses a solver supports."""
    C: float
    """The weight of the sum of losses, above 0."""
    rows: int
    """The number n of training rows, those of held-out chunks excluded."""
    columns: int
    """The number of features without the constant one: a decision function has ``columns + 1`` weights."""
    kind: Kind
    """The kind of problem; a regression kind if and only if the loss is numeric."""
    bias: float = 1.0
    """The value of the constant feature, whose weight is regularized like any other; 0: there is no constant
    feature."""
    weights: tuple[float, ...] = ()
    """The factor of s_i for the rows of each class; empty: 1 for all."""
    tolerance: float = 1e-3
    """The relative duality gap at which the problem counts as solved."""
    kernel: Kernel | None = None
    """The kernel, for solvers that evaluate it themselves; None: the problem is linear in the rows that the solver
    sees."""
    held_out: tuple[int, ...] = ()
    """Chunks that the problem does not use."""
    warm: Float64 | None = field(default=None, compare=False, repr=False)
    """Weights (components,) for a warm start, in terms of the features that the solver sees; None: start from zero."""
    reach: Reach | None = field(default=None, compare=False)
    """Typical sizes of rows, for solvers that evaluate a kernel; None: not known."""
    nonzeros: int | None = None
    """Number of stored entries of all rows; None: rows are dense."""
    regularizer: Regularizer = SQUARED_NORM
    """R, and its counterpart in D."""

    @property
    def components(self) -> int:
        """The number of weights: ``columns + 1``, times the number of classes if one problem separates several."""
        return (self.kind.classes or 1) * (self.columns + 1)

    def first_weights(self) -> Float64:
        """Return the weights (components,) to start from: a copy of ``warm``, or zeros."""
        return np.zeros(self.components) if self.warm is None else self.warm.ravel().copy()


@dataclass(slots=True)
class Block:
    """Rows of a chunk in memory, with the targets and weights of one problem and the order in which to visit them."""

    X: RowRecord
    """The features: dense, CSR, or what a feature map made of them."""
    y: Targets
    """Targets (n,): +1 or -1, the numbers to be predicted, or the class codes if one problem separates several
    classes."""
    s: Float32 | Float64
    """(n,) row weight times class weight, 0 or more; multiplies C."""
    chunk: int
    """The number of the chunk to which the rows belong."""
    start: int
    """The global number of the first row of the chunk's part from which the block is made."""
    order: Int32
    """The order in which to visit the rows, a permutation. A solver may rearrange it."""
    seed: int
    """Seed for further random numbers in this visit; it depends only on the plan."""
    cached: bool = False
    """Whether all blocks stay in memory, so that visiting one again needs no reading."""
    rows: dict[str, Array] = field(default_factory=dict)
    """Per-row state of the solver, by name (``Solver.row_state``); changed in place."""
    copies: dict[bytes, RowRecord] | None = None
    """Copies that problems have made of some rows of this block, by the booleans (n,) that selected them, for other
    problems to share; None: no other problem uses the block."""
    places: Int64 | None = None
    """(n,) ascending: row i has the global number ``start`` + places[i]. None: the rows are contiguous, as in all but
    one-vs-one problems."""

    @property
    def labeled(self) -> Labeled:
        """The rows, targets and weights as a record for compiled passes."""
        return Labeled(self.X, self.y, self.s)

    @property
    def numbers(self) -> Int64:
        """The global numbers of the rows (n,)."""
        return self.start + (np.arange(len(self.y)) if self.places is None else self.places)

    @property
    def span(self) -> int:
        """The number of global row numbers from ``start`` to that of the last row."""
        return len(self.y) if self.places is None else int(self.places[-1]) + 1

    def spread(self, values: Float64) -> Float64:
        """Scatter values of the rows (n,) into an array (span,) indexed by global number minus ``start``; 0
        elsewhere.
        """
        if self.places is None:
            return values
        by_number = np.zeros(self.span)
        by_number[self.places] = values
        return by_number

    def gather(self, values: Float64) -> Float64:
        """Gather values of the rows (n,) from an array (span,) indexed by global number minus ``start``."""
        return values if self.places is None else values[self.places]

    def members(self, index: Int64) -> tuple[slice, Int64]:
        """Return the slice of ``index`` that lies in this block, and the positions of those rows in the block.

        ``index``: ascending global numbers of some rows of the problem.
        """
        first, last = np.searchsorted(index, (self.start, self.start + self.span))
        offsets = index[first:last] - self.start
        return slice(int(first), int(last)), offsets if self.places is None else np.searchsorted(self.places, offsets)
