"""What is being solved, the rows a solver sees of it, and how far from solved it is."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from streamsvm.aliases import Array, JsonObject, RowRecord
from streamsvm.errors import DefectError, UsageError
from streamsvm.rows import Float32, Float64, Int32, Int64, Labeled, Reach, Targets
from streamsvm.tags import saved_as
from streamsvm.types.kernel import Kernel
from streamsvm.types.loss import Loss
from streamsvm.types.task import AllClasses, LearningTask, OneAgainstRest, OneClass, Regression

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
    """Of one class, in the form with a free offset (``solvers.one_class``): sum a_i is this share of sum s_i; of two classes that of
    nu-SVM (``solvers.interior_point.nu_classes``); None: no such form."""
    classes: int = 0
    """Classes that are told apart by one problem, each by weights of its own (``solvers.dcd.multinomial``): m_i is how far the decision
    value of a row's class is above all others. 0: ``positive`` against the rest."""
    negative: int | None = None
    """Of a pair of classes, the class code that is -1: rows of other classes are none of the problem's. None: all others are -1."""
    l1_ball: float | None = None
    """Of least squares: the t of ||w||_1 <= t, which takes the place of 1/2 ||w||^2; None: there is no such bound."""
    l1: float | None = None
    """Of the elastic net (``solvers.elastic_net``): the weight of ||w||_1 beside 1/2 ||w||^2; None: there is no such term."""

    center: float = 0.0
    """Of numbers with a free intercept: what is taken from every target, and added to the intercept in the end. As sum a_i = 0 neither P nor D
    changes; without it both are differences of large numbers where targets are far from 0."""

    origin: Float64 | None = field(default=None, compare=False, repr=False)
    """Of one class in the form with a free offset, (columns,): what rows that are read are less than the rows that the problem is of; None: nothing."""

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
        """What compiled passes are given of it."""
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
        """Return what rows have (n,) by global number from ``start`` on (span,); 0 between them."""
        if self.places is None:
            return values
        found = np.zeros(self.span)
        found[self.places] = values
        return found

    def gathered(self, values: Float64) -> Float64:
        """Return what the rows have (n,) of values by global number from ``start`` on (span,)."""
        return values if self.places is None else values[self.places]

    def members(self, index: Int64) -> tuple[slice, Int64]:
        """Return where in rising global numbers ``index`` of the problem's rows this block is, and the places of those rows in it."""
        first, last = np.searchsorted(index, (self.start, self.start + self.span))
        mine = index[first:last] - self.start
        return slice(int(first), int(last)), mine if self.places is None else np.searchsorted(self.places, mine)


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
