"""One-class problems with a free offset: a hyperplane that separates most rows from the origin (Scholkopf et al.,
Neural Computation 13, 2001).

    P(w, rho) = 1/2 ||w||^2 - nu S rho + sum_i s_i max(0, rho - w.x_i),       S = sum_i s_i,    0 < nu <= 1
    D(a)      = -1/2 ||sum_i a_i x_i||^2,       sum_i a_i = nu S,       0 <= a_i <= s_i

in the units of LIBSVM; w is nu S times that of the paper, and P is (nu S)^2 times that of the paper. At the optimum the
rows with w.x_i < rho have a weight of at most nu S, and those with w.x_i <= rho of at least nu S. P and D are 0 or
less, and 0 if the origin is a weighted mean of the rows with such a_i.

In the passes rho is the weight of a constant feature of value -1 (``Problem.bias``), which is not regularized. The loss
of a row is the hinge with its kink at 0, at m_i = w.x_i - rho. Any (w, rho) gives an upper bound of the optimum. The
slopes a_i at (w, rho) give a lower bound if their sum T is nu S. If T is larger, they are scaled by nu S / T. If T is
smaller, they are moved towards their bounds s_i,

    a_i + t (s_i - a_i),      t = (nu S - T) / (S - T),

for which V = sum s_i x_i is needed besides v = sum a_i x_i. Both are feasible for nu <= 1.

**Columns stored with an offset subtracted.** P and D differ between rows x and rows x - o, since the hyperplane is to
be far from 0. If rows are stored as x_i - o, the problem is still that of x_i: with rho' = rho - o.w the term of a row
is that of w.(x_i - o) and rho', and

    P(w, rho') = 1/2 ||w||^2 - nu S (rho' + o.w) + sum_i s_i max(0, rho' - w.(x_i - o)),
    D(a)       = -1/2 ||sum_i a_i (x_i - o) + nu S o||^2,

as sum_i a_i = nu S. The difference is a term that is linear in w. ``FreeOffset.origin`` is o.

**Rows far from 0.** Let m be the mean row and d the root mean square of ||x_i - m||. P and D are then -1/2 ||nu S m||^2
plus a term of the order of (nu S)^2 ||m|| d, and only this term distinguishes rows. If d is small relative to ||m||, a
small gap relative to P does not mean that this term is accurate. The relative tolerance is therefore reduced
(``relative_spread``).

The form without nu, 1/2 ||w||^2 + C sum_i s_i l(w.x_i), is an ordinary problem whose rows all have the sign +1. With
u = w / rho it is this problem for nu = sum a_i / (C S). With the squared hinge, on the simplex, it is the minimum
enclosing ball (Tsang, Kwok and Cheung, JMLR 6, 2005).

Support vector data description, the smallest ball that contains most rows (SVDD; Tax and Duin, Machine Learning 54,
2004), has the dual sum a_i k_ii - sum a_i a_j k_ij, sum_i a_i = 1, 0 <= a_i <= C. If k(x, x) is the same for all x, as
for rbf and laplacian kernels, it is this problem with nu = 1 / (C n), and its scores are those of this problem up to a
shift and a factor. For other kernels it is a different problem.
"""

from __future__ import annotations

import math
from collections.abc import Callable
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
HINGE_AT_ZERO = Hinge(margin=0.0)
"""The loss of a row."""
DEGENERATE_SHARE = 1e-10
"""An optimum below this fraction of that of rows of typical length with the same direction is 0 up to rounding."""


FAR, LEAST_SPREAD = 10.0, 1e-4
"""The number of deviations from 0 beyond which a mean counts as far, and the least factor of the tolerance."""


def relative_spread(mean: Float64, variance: Float64) -> float:
    """Return the factor <= 1 by which the relative tolerance has to be reduced, such that rows with these means and
    variances of columns, (columns,), can be distinguished.
    """
    distance, deviation = float(np.linalg.norm(mean)), math.sqrt(float(variance.sum()))
    return 1.0 if distance <= FAR * deviation else max(FAR * deviation / distance, LEAST_SPREAD)


@saved_as("one_class.row_sums")
@dataclass(slots=True)
class RowSums:
    """Sums over all rows that do not depend on w. Arrays are float64; p = columns + 1."""

    components: int
    """p."""
    total: Total[float] = 0.0
    """S = sum s_i."""
    squares: Total[float] = 0.0
    """sum s_i^2."""
    largest: Largest[float] = 0.0
    """max s_i."""
    v: Total[Float64] = field(init=False)
    """V (p,) = sum s_i x_i, with the feature of the offset last; for two classes (``solvers.nu``) each row with its
    sign."""
    energy: Total[float] = 0.0
    """sum s_i ||x_i||^2, without the feature of the offset."""

    def __post_init__(self) -> None:
        self.v = np.zeros(self.components)

    def add(self, problem: Problem, block: Block, squares: Float64 | None = None) -> None:
        """Add a block. ``squares``: its sum s_i x_ij^2 (p,), if ``energy`` is to be summed."""
        s = block.s.astype(np.float64)
        self.total += float(s.sum())
        self.squares += float(s @ s)
        self.largest = max(self.largest, float(s.max(initial=0.0)))
        self.v = self.v + operators.adjoint(block.X, s * problem.kind.signs(block.y), problem.columns)
        if squares is not None:
            self.energy += float(squares[:-1].sum())

    @property
    def mean_square(self) -> float:
        """The mean of ||x||^2; a tiny positive number if all rows are 0."""
        return max(self.energy / self.total if self.total else 0.0, float(np.finfo(np.float32).tiny))

    def transform(self, change: Callable[[Float64], Float64]) -> None:
        """Change to other features, for which ``change`` transforms V."""
        self.v = change(self.v)

    def facts(self) -> dict[str, float]:
        """Return the sums over row weights that the bounds of rounding errors need."""
        return {"weight": self.total, "squared_weights": self.squares, "largest_weight": self.largest}


@dataclass(frozen=True, slots=True)
class NuRegularizer(Regularizer):
    """Regularizers with the term - nu S rho instead of a margin of 1, so that sum a_i is nu S."""

    nu: float
    """sum a_i as a fraction of sum s_i."""
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
    """1/2 ||w||^2 - nu S rho, for one-class problems."""

    origin: Float64 | None = field(default=None, compare=False, repr=False)
    """(columns,) the offset o that was subtracted from the stored rows; None: 0."""
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
        """Return 2 nu S rho, the size of the cancellation in P because of the term - nu S rho."""
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
    """The objective of ``FreeOffset``, given the sums over all rows."""

    nu: float
    """sum a_i as a fraction of sum s_i."""
    rows: RowSums
    """The sums over all rows."""
    origin: Float64 | None = None
    """(p - 1,) the offset o that was subtracted from the stored rows; None: 0."""

    @property
    def mass(self) -> float:
        """The sum of the a_i, nu S."""
        return self.nu * self.rows.total

    @property
    def mean_square(self) -> float:
        """The mean of ||x||^2 of the original rows, with o added to the stored ones."""
        if self.origin is None:
            return self.rows.mean_square
        mean = self.rows.v[:-1] / self.rows.total if self.rows.total else np.zeros(len(self.origin))
        return max(
            self.rows.mean_square + float(self.origin @ (2.0 * mean + self.origin)), float(np.finfo(np.float32).tiny)
        )

    @property
    def least(self) -> float:
        """D at a_i = nu s_i."""
        if self.origin is None:
            inner = self.rows.v[:-1]
            return -0.5 * self.nu * self.nu * float(inner @ inner)
        inner = self._add_origin(self.nu * self.rows.v[:-1])
        return -0.5 * float(inner @ inner)

    def value(self, w: Float64) -> float:
        """Return 1/2 ||w||^2 - nu S (rho' + o.w), w (p,) with rho' last."""
        rho = float(w[-1]) if self.origin is None else float(w[-1]) + float(self.origin @ w[:-1])
        return 0.5 * float(w[:-1] @ w[:-1]) - self.mass * rho

    def _add_origin(self, v: Float64) -> Float64:
        """Return sum a_i x_i of the original rows, given ``v``, the same sum of the stored rows, for sum a_i = nu S."""
        return v if self.origin is None else v + self.mass * self.origin

    def dual(self, gain: float, v: Float64) -> float:
        """Return D of the slopes with v = sum a_i x_i (p,), made feasible; ``gain`` is 0 for this loss."""
        del gain
        return self.dual_of(OFFSET * float(v[-1]), v[:-1], self.rows.v[:-1])

    def dual_of(self, total: float, v: Float64, V: Float64) -> float:
        """Return D of slopes a_i with the sum ``total``, made feasible; v = sum a_i x_i, V = sum s_i x_i."""
        if total >= self.mass:
            feasible_v = v * (self.mass / total) if total > 0.0 else v
        else:
            t = (self.mass - total) / (self.rows.total - total)
            feasible_v = v + t * (V - v)
        feasible_v = self._add_origin(feasible_v)
        return -0.5 * float(feasible_v @ feasible_v)

    def is_degenerate(self, dual: float) -> bool:
        """Return whether the optimum, of which ``dual`` is a lower bound, is 0 up to rounding: no hyperplane separates
        rows from the origin.
        """
        return dual >= -0.5 * DEGENERATE_SHARE * self.mass * self.mass * self.mean_square
