"""One class with a free offset: a hyperplane that holds most rows away from the origin (Scholkopf et al., Neural
Computation 13, 2001).

    P(w, rho) = 1/2 ||w||^2 - nu S rho + sum_i s_i max(0, rho - w.x_i),       S = sum_i s_i,    0 < nu <= 1
    D(a)      = -1/2 ||sum_i a_i x_i||^2,       sum_i a_i = nu S,       0 <= a_i <= s_i

in the units of LIBSVM; w is nu S times that of the paper, P its square times as large. At the optimum rows with w.x_i <
rho weigh at most nu S, those with w.x_i <= rho at least as much. Both values are 0 or less, and 0 where the origin is a
mean of rows with such a_i.

In the words of the passes rho is the weight of a constant feature of value -1 (``Problem.bias``), which is not
regularized, and a row has the hinge with its corner at 0 of m_i = w.x_i - rho. Any (w, rho) bounds the optimum from
above. Slopes a_i at it bound it from below once their sum T is nu S: with T above it they are scaled by nu S / T;
below, they go so far towards their bounds s_i,

    a_i + t (s_i - a_i),      t = (nu S - T) / (S - T),

which takes V = sum s_i x_i beside v = sum a_i x_i. Both are feasible, for nu <= 1.

**Columns stored less an offset.** Neither value is the same for rows x and for rows x - o: a hyperplane is to be far
from 0. Rows are read as x_i - o and are x_i all the same: with rho' = rho - o.w a row's term is that of w.(x_i - o) and
rho', and

    P(w, rho') = 1/2 ||w||^2 - nu S (rho' + o.w) + sum_i s_i max(0, rho' - w.(x_i - o)),
    D(a)       = -1/2 ||sum_i a_i (x_i - o) + nu S o||^2,

as sum_i a_i = nu S: what differs is a term that is linear in w. ``FreeOffset.origin`` is o.

**Rows far from 0.** With m the mean row and d the root mean square of x_i - m both values are -1/2 ||nu S m||^2 and
something of the order of (nu S)^2 ||m|| d, which is all that tells one row from another. A gap relative to P says
nothing of it where d is small beside ||m||: there the relative gap that is asked for is to be that much less
(``relative_spread``).

The form without nu, 1/2 ||w||^2 + C sum s_i l(w.x_i), is a problem like any other whose rows are all +1: with u = w /
rho it is this one for nu = sum a_i / (C S), and of the squared hinge, on the simplex, the minimum enclosing ball
(Tsang, Kwok and Cheung, JMLR 6, 2005).

Support vector data description, the smallest ball that holds most rows (SVDD; Tax and Duin, Machine Learning 54, 2004),
has the dual sum a_i k_ii - sum a_i a_j k_ij, sum_i a_i = 1, 0 <= a_i <= C: where k(x, x) is the same for all x, as of
rbf and laplacian kernels, it is this problem with nu = 1 / (C n), and its scores are those of this one up to a shift
and a factor. Of other kernels it is another.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from streamsvm.class_tags import saved_as
from streamsvm.compute.blocks import operators
from streamsvm.losses import Hinge
from streamsvm.rows import Float64
from streamsvm.types import AnySolver, Block, Loss, Problem, Regularizer
from streamsvm.types.problem import Bounds
from streamsvm.types.state import Largest, Total

OFFSET = -1.0
"""The value of the constant feature whose weight is rho."""
CORNER = Hinge(margin=0.0)
"""The loss of a row."""
DEGENERATE = 1e-10
"""An optimum below this share of that of rows of the usual length that point one way is 0 but for rounding."""


FAR, LEAST_SPREAD = 10.0, 1e-4
"""A mean of more than so many deviations from 0 is far; the least share of the gap that is asked for instead."""


def relative_spread(mean: Float64, variance: Float64) -> float:
    """Return by which factor the relative gap has to be less for rows of such columns, (columns,), to be told from one
    another; at most 1.
    """
    far, deviation = float(np.linalg.norm(mean)), math.sqrt(float(variance.sum()))
    return 1.0 if far <= FAR * deviation else max(FAR * deviation / far, LEAST_SPREAD)


@saved_as("one_class.row_sums")
@dataclass(slots=True)
class RowSums:
    """Sums over all rows, whatever the weights: float64, p = columns + 1."""

    components: int
    """p."""
    total: Total[float] = 0.0
    """S = sum s_i."""
    squares: Total[float] = 0.0
    """sum s_i^2."""
    largest: Largest[float] = 0.0
    """max s_i."""
    v: Total[Float64] = field(init=False)
    """V (p,) = sum s_i x_i, the offset's feature last; of two classes (``solvers.nu``) each row with its sign."""
    energy: Total[float] = 0.0
    """sum s_i ||x_i||^2, the offset's feature left out."""

    def __post_init__(self) -> None:
        self.v = np.zeros(self.components)

    def add(self, problem: Problem, block: Block, squares: Float64 | None = None) -> None:
        """Count a block, with sum s_i x_ij^2 (p,) where it is known."""
        s = block.s.astype(np.float64)
        self.total += float(s.sum())
        self.squares += float(s @ s)
        self.largest = max(self.largest, float(s.max(initial=0.0)))
        self.v = self.v + operators.adjoint(block.X, s * problem.kind.signs(block.y), problem.columns)
        if squares is not None:
            self.energy += float(squares[:-1].sum())

    @property
    def usual(self) -> float:
        """The mean of ||x||^2; a tiny number where all rows are 0."""
        return max(self.energy / self.total if self.total else 0.0, float(np.finfo(np.float32).tiny))

    def facts(self) -> dict[str, float]:
        """What the bounds on rounding need to know of weights."""
        return {"weight": self.total, "squared_weights": self.squares, "largest_weight": self.largest}


@dataclass(frozen=True, slots=True)
class NuRegularizer(Regularizer):
    """Regularizers that have - nu S rho in the place of a margin, so that sum a_i is nu S."""

    nu: float
    """The share of sum s_i that a sums up to."""
    is_squared_norm: ClassVar[bool] = False
    has_scale: ClassVar[bool] = False

    def row_sums(self, components: int) -> RowSums:
        return RowSums(components)

    def sum_of_dual(self, total: float) -> float:
        return self.nu * total

    def with_nu(self, nu: float) -> Regularizer:
        return replace(self, nu=nu)


@saved_as("regularizer.free_offset")
@dataclass(frozen=True, slots=True)
class FreeOffset(NuRegularizer):
    """1/2 ||w||^2 - nu S rho, of one class."""

    origin: Float64 | None = field(default=None, compare=False, repr=False)
    """(columns,) o, the rows of the problem less the rows that are read; None: they are the same."""
    refusal: ClassVar[str] = "has no free offset, required by one-class with nu"
    instead: ClassVar[str] = "--C in place of --nu, which every solver takes, or "

    def bounds(
        self, loss: Loss, sums: tuple[float, float, float], w: Float64, v: Float64, rows: RowSums | None = None
    ) -> Bounds:
        plain = Regularizer.bounds(self, loss, sums, w, v)
        if rows is None:
            return plain
        objective = OffsetObjective(self.nu, rows, self.origin)
        return Bounds(objective.value(w), plain.scale, objective.dual(0.0, v))

    def cancellation(self, w: Float64, total: float, unit: float) -> float:
        """Return twice nu S rho, which P has with a minus."""
        rho = abs(float(w[-1]))
        if self.origin is not None:
            rho += float(np.abs(self.origin) @ np.abs(w[:-1]))
        return 2.0 * self.nu * total * rho

    def automatic_solver(self, exact_kernel: bool) -> tuple[str, str]:
        what = "one class with a free offset"
        return ("decomposition", f"exact kernel, {what}") if exact_kernel else ("interior_point", what)

    def adapt(self, solver: AnySolver) -> AnySolver | None:
        from streamsvm.solvers.interior_point_out_of_core import InteriorPoint
        from streamsvm.solvers.kernel.decomposition import Decomposition

        return solver if isinstance(solver, InteriorPoint | Decomposition) else None


@dataclass(frozen=True, slots=True)
class OffsetObjective(Regularizer):
    """The same once the sums over all rows are known."""

    nu: float
    """The share of the weight that a sums up to."""
    rows: RowSums
    """The sums over all rows."""
    origin: Float64 | None = None
    """(p - 1,) o, what is taken from every row that is read; None: nothing is."""

    @property
    def mass(self) -> float:
        """What a_i sum up to, nu S."""
        return self.nu * self.rows.total

    @property
    def usual(self) -> float:
        """The mean of ||x||^2 of the rows as they are, not as they are read."""
        if self.origin is None:
            return self.rows.usual
        mean = self.rows.v[:-1] / self.rows.total if self.rows.total else np.zeros(len(self.origin))
        return max(self.rows.usual + float(self.origin @ (2.0 * mean + self.origin)), float(np.finfo(np.float32).tiny))

    @property
    def least(self) -> float:
        """D at a_i = nu s_i."""
        if self.origin is None:
            inner = self.rows.v[:-1]
            return -0.5 * self.nu * self.nu * float(inner @ inner)
        inner = self._with_origin(self.nu * self.rows.v[:-1])
        return -0.5 * float(inner @ inner)

    def value(self, w: Float64) -> float:
        """1/2 ||w||^2 - nu S (rho' + o.w), w (p,) with rho' last."""
        held = float(w[-1]) if self.origin is None else float(w[-1]) + float(self.origin @ w[:-1])
        return 0.5 * float(w[:-1] @ w[:-1]) - self.mass * held

    def _with_origin(self, inner: Float64) -> Float64:
        """Return sum a_i x_i of the rows as they are, for a_i that sum up to nu S; ``inner`` is that of the rows as
        they are read.
        """
        return inner if self.origin is None else inner + self.mass * self.origin

    def dual(self, gain: float, v: Float64) -> float:
        """D of slopes with v = sum a_i x_i (p,), made feasible; ``gain`` is 0 for this loss."""
        del gain
        return self.dual_of(OFFSET * float(v[-1]), v[:-1], self.rows.v[:-1])

    def dual_of(self, found: float, v: Float64, whole: Float64) -> float:
        """D of slopes that sum up to ``found``, v = sum a_i x_i, made feasible; ``whole`` is sum s_i x_i."""
        if found >= self.mass:
            inner = v * (self.mass / found) if found > 0.0 else v
        else:
            t = (self.mass - found) / (self.rows.total - found)
            inner = v + t * (whole - v)
        inner = self._with_origin(inner)
        return -0.5 * float(inner @ inner)

    def is_degenerate(self, dual: float) -> bool:
        """Whether the optimum, which is ``dual`` at least, is 0 but for rounding: no hyperplane holds rows off the
        origin.
        """
        return dual >= -0.5 * DEGENERATE * self.mass * self.mass * self.usual
