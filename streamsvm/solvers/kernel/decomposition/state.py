"""What decomposition carries from pass to pass, and the sums of the pass under way."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from streamsvm.compute.kernel_values.rounding import ENOUGH
from streamsvm.rows import Float64, Reach
from streamsvm.solvers.kernel.decomposition.multilevel import Level
from streamsvm.solvers.kernel.pool import Form, Pool
from streamsvm.solvers.kernel.rounding import error_of_values, in_full, joined, rounding_of
from streamsvm.tags import saved_as
from streamsvm.types import Problem

FLOAT64_COST = 4.0
"""Of a kernel value, in units of what steps take for theirs."""
INTERCEPTS = 64
"""Intercepts tried on either side of the last estimate."""


@saved_as("decomposition.work")
@dataclass(slots=True)
class LevelWork:
    """A pool that is being solved."""

    levels: list[Level]
    """The pool, and below it the subset that is being solved, and so on."""
    before: Float64
    """x of the pool when it was made, (pool,)."""

    @property
    def pool(self) -> Pool:
        """The pool itself."""
        return self.levels[0].pool


@saved_as("decomposition.state")
@dataclass(slots=True)
class DecompositionState:
    """``pool`` is what is in memory; ``moved`` what f of the other rows does not have yet, x by how much it moved."""

    problem: Problem
    """What is solved: loss, C, kernel, the number of rows and columns."""
    form: Form
    """The matrix of the problem and the arithmetic of kernel values, which a later pass may make float64."""
    capacity: int
    """Rows the next pool may have."""
    pool: Pool | None = None
    """The rows in memory with x and v as they were left when last solved; None: none yet, or none any more."""
    moved: Pool | None = None
    """Those of the pool whose x changed, x being the change and sign 1; None where ``pool`` is."""
    shared_values: Float64 | None = None
    """What ``moved`` is worth at the rows that are visited next, if it is known already."""
    support: Pool | None = None
    """The rows with a_i not 0, as of the last pass that kept them; where fewer are allowed, a draw of those."""
    collected_parts: list[Pool] = field(default_factory=list)
    """The same of the pass under way."""
    support_met: int = 0
    """Rows with a_i not 0 that were met in the pass under way."""
    support_size: int = 0
    """Rows with a_i not 0 of all the data, as of the last pass, whether they were kept or not."""
    candidates: list[Pool] = field(default_factory=list)
    """Rows offered to the next pool in the pass under way; a part for each block until there are too many."""
    rate: float = 1.0
    """The share of violators that is offered."""
    violators: int = 0
    """Violators met in this pass."""
    intercept: float = 0.0
    """b: where the primal was least in the last pass, or the threshold of the pool solved since."""
    reach: float = 1.0
    """How far from ``intercept`` the best one is looked for."""
    collecting: bool = False
    """Whether the pass is for the model: its rows are kept, none are offered."""
    deadline: float = math.inf
    """When the work in memory is to end."""
    reduced: Pool | None = None
    """The reduced model, while its primal is summed and after."""
    reduced_square: float = 0.0
    """The squared norm of the reduced model, as far as the pass has summed it."""
    dual: float = 0.0
    """sum a_i - conjugate(a_i) over the rows met in the pass; D is this less 1/2 x'Kx."""
    square: float = 0.0
    """x'Kx."""
    losses: Float64 = field(default_factory=lambda: np.zeros(2 * INTERCEPTS + 1))
    """(129,) sum C s_i l(y_i (f_i + b)) over the rows met, for each intercept b of ``shifts``."""
    top: float = -np.inf
    """The largest v of a row met whose x may grow."""
    bottom: float = np.inf
    """The smallest v of a row met whose x may shrink; x is optimal once ``top`` is not larger."""
    largest: Reach | None = None
    """The reach of the rows met so far."""
    drift: float = 0.0
    """By how much f can be off at any row, from the moves made so far."""
    weight: float = 0.0
    """sum |x_i|."""
    absolute: float = 0.0
    """sum |x_i f_i|, of numbers sum |x_i t_i| more."""
    upper_losses: Float64 = field(default_factory=lambda: np.zeros(2 * INTERCEPTS + 1))
    """The losses at margins that are less by what they can be off."""
    enough: float = ENOUGH
    """The error of a kernel value that the certificate of this x does not feel, as of the last pass."""
    anew: Pool | None = None
    """The support, when f is computed anew from it in the next pass, in the arithmetic of certificates."""
    everywhere: bool = False
    """Whether that is done for all rows, and not only for those that have a say in P and D."""
    ending: bool = False
    """Whether the pass is the last of the run, whatever it shows."""
    pace: float = 0.0
    """Seconds that a kernel value and what is done with it take, as steps were timed; looked at where there is a deadline."""
    gaps: list[float] = field(default_factory=list)
    """The gap after each pass, with D not below 0."""
    stalled: bool = False
    """Whether it was seen that they do not fall: the next certificate that is exact is the last."""
    work: LevelWork | None = None
    """What is done in memory before the next pass; None: nothing, or nothing any more."""
    total: float = 0.0
    """sum s_i over the rows met in the pass."""

    @property
    def beginning(self) -> bool:
        """Whether no row of one class with a free offset has a say yet, so that no row violates anything: any will do."""
        return self.problem.nu is not None and self.pool is None and not self.gaps

    @property
    def mass(self) -> float:
        """What x sums up to once all rows are met: nu sum s_i of one class with a free offset, 0 otherwise."""
        return 0.0 if self.problem.nu is None else self.problem.nu * self.total

    @property
    def violation(self) -> float:
        """By how much rows met in the pass violate the optimality conditions."""
        return max(self.top - self.bottom, 0.0)

    def owed(self) -> float:
        """Seconds it takes to leave all levels of the pool, and to bring the rows outside it up to date, at the pace of steps."""
        if self.work is None or math.isinf(self.deadline):
            return 0.0
        levels, rows = self.work.levels, self.problem.rows
        pairs = sum(level.pool.size * len(level.known.recent) for level in levels[:-1])
        if self.work.pool.size < rows:
            pairs += rows * len(levels[0].known.recent)
        return self.pace * pairs

    def seconds_anew(self, support: Pool) -> float:
        """Seconds it takes at most to compute f anew from a support, in float64."""
        return FLOAT64_COST * self.pace * self.problem.rows * support.size

    def shifts(self) -> Float64:
        """The intercepts that are tried."""
        return self.intercept + np.linspace(-self.reach, self.reach, 2 * INTERCEPTS + 1)

    def clear_sums(self) -> None:
        """Begin to sum up, and to collect rows."""
        self.candidates, self.collected_parts, self.support_met = [], [], 0
        self.dual = self.square = self.reduced_square = 0.0
        self.losses[:], self.top, self.bottom, self.violators = 0.0, -np.inf, np.inf, 0
        self.upper_losses[:], self.weight, self.absolute, self.total = 0.0, 0.0, 0.0, 0.0

    def join(self, other: DecompositionState) -> None:
        """Add what another worker found on other rows, at the same x."""
        self.candidates += other.candidates
        self.collected_parts += other.collected_parts
        self.support_met += other.support_met
        self.dual += other.dual
        self.square += other.square
        self.reduced_square += other.reduced_square
        self.losses = self.losses + other.losses
        self.violators += other.violators
        self.weight += other.weight
        self.absolute += other.absolute
        self.total += other.total
        self.upper_losses = self.upper_losses + other.upper_losses
        self.top, self.bottom = max(self.top, other.top), min(self.bottom, other.bottom)
        self.largest = joined(self.largest, other.largest)

    def exact_form(self) -> Form:
        """The form in the arithmetic of certificates."""
        return in_full(self.form, self.largest, self.enough)

    def value_error(self) -> float:
        """By how much the decision values that are measured can be off."""
        points = self.reduced or self.anew
        if points is None:
            return self.drift
        form = self.exact_form() if self.reduced is None else self.form
        return error_of_values(form, self.largest, points.size, float(np.abs(points.x).sum()))

    def rounding(self, best: int) -> float:
        """What the sums of the pass can be off by."""
        losses = float(self.losses[best]), float(self.upper_losses[best])
        error = max(self.value_error(), self.drift if self.reduced is not None else 0.0)
        return rounding_of(self.problem, error, self.weight, self.absolute, losses)
