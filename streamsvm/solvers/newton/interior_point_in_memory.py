"""A primal-dual interior-point method for a linear problem whose rows are in memory.

The equations are in ``compute.passes.interior_point``.

Newton's method on the objective alone moves rows in and out of the kink of the loss. If columns are rare and large,
each such move changes a weight of its own, and steps stay short. In the interior of the bounds every row has some
curvature, and steps are longer. For columns of any scale 15 to 40 steps reduce the sum of the complementarity products
to a thousandth of the objective. The dual variables are always feasible, so that every iteration gives a lower bound:

    P(w) - D(a) <= sum_i (lower_i a_i + upper_i (U_i - a_i)) + 1/2 ||v - w||^2,      v = sum_i a_i y_i x_i

if the first equation of ``compute.passes.interior_point`` holds. With columns of large scale the last term is large
even if margins are accurate. Therefore the iteration begins at a point at which it is about 0 (``Centering``), and each
step ends with the exact solution in the dense columns (``ArrowPreconditioner.block_step``).
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np

from streamsvm.compute.passes import interior_point as passes
from streamsvm.compute.passes.interior_point import Aim, Interior
from streamsvm.rows import Float64
from streamsvm.solvers.line_search import find_step_length
from streamsvm.solvers.newton.conjugate_gradients import conjugate_gradients
from streamsvm.solvers.newton.preconditioner import ArrowPreconditioner
from streamsvm.solvers.newton.row_products import MemoryRows

FIRST_TARGET = 10.0
"""The first complementarity products, in units of C. They are large, because the central path is easy to reach where
all rows are far from the kink."""
CENTERED_ENERGY, MAX_CENTERING_STEPS = 1.0, 30
"""A point counts as being on the central path if the energy of the gradient is at most this many times the target; and
the maximum number of Newton steps to it."""
CG_ENERGY_RATIO = 1e-2
"""Conjugate gradients stop when the energy falls to this fraction of the first one."""
RESIDUAL_SHARE = 0.1
"""Half the squared residual of the rare columns must then also be below this fraction of the intended sum of the
complementarity products."""
MIN_TARGET_RATIO = 1e-4
"""The target is the cube of the fraction of the products that an affine step would leave (Mehrotra), but at least
this."""
MIN_CORRECTION = 0.5
"""The weight of the second-order correction is the length of the affine step, but at least this."""
MIN_TARGET_SHARE = 0.05
"""The target is not reduced below this fraction of the allowed gap."""
MIN_BOUNDARY_SHARE = 0.9
"""A step covers at least this fraction of the distance to the boundary."""


class Iterate(NamedTuple):
    """The start of an iteration: weights, X w, v = sum a_i y_i x_i, and the sum of all complementarity products."""

    w: Float64
    """(p,) the weights."""
    f: Float64
    """(n,) the decision values X w."""
    v: Float64
    """(p,) sum a_i y_i x_i, which is w at the optimum."""
    products: float
    """The sum of lower_i a_i and upper_i (U_i - a_i) over all rows, 0 at the optimum."""


class Centering:
    """Newton's method on the function that the central path minimizes at a fixed target
    (``compute.passes.interior_point``).

    A step of the length t multiplies the residual w - sum a_i y_i x_i by 1 - t. With columns of scale 10^6 it would
    take very long to vanish. If it is 0 at the start of the iteration, it stays 0.
    """

    def __init__(self, rows: MemoryRows, preconditioner: ArrowPreconditioner) -> None:
        self._rows, self._preconditioner = rows, preconditioner
        self._target = FIRST_TARGET * rows.terms.C
        self._theta, self._right = np.empty(rows.count), np.empty(rows.count)

    def run(self, w: Float64) -> tuple[Float64, Interior, bool]:
        """Return the next w (p,), the dual variables for its margins, and whether the point is close to the central
        path.

        It is not if the next pass was due before.
        """
        rows, none = self._rows, np.zeros(self._rows.count)
        point, f = Interior(none.copy(), none.copy(), none.copy()), rows.values(w)
        for _ in range(MAX_CENTERING_STEPS):
            passes.center_pass(rows.terms, f, self._target, point)
            gradient = rows.outer.gradient(w) - rows.weighted_sum(point.a * rows.terms.y)
            passes.system_pass(rows.terms, f, point, Aim(self._target, 0.0), none, self._theta, self._right)
            self._preconditioner.update(self._theta)
            energy = float(gradient @ self._preconditioner(gradient))
            if energy <= CENTERED_ENERGY * self._target or rows.is_exhausted:
                return w, point, energy <= CENTERED_ENERGY * self._target
            step = self._step(gradient, energy)
            df = rows.margins(step)
            length = self._length(w, step, f, df)
            w, f = w + length * step, f + length * df
        return w, point, True

    def _step(self, gradient: Float64, energy: float) -> Float64:
        rows, preconditioner = self._rows, self._preconditioner

        def enough(residual_energy: float, _: Float64) -> bool:
            return rows.is_late or residual_energy <= CG_ENERGY_RATIO * energy

        solved = conjugate_gradients(lambda d: rows.hessian_product(self._theta, d), preconditioner, -gradient, enough)
        return solved.x + preconditioner.block_step(solved.residual)

    def _length(self, w: Float64, step: Float64, f: Float64, df: Float64) -> float:
        row_slopes = partial(passes.center_line_pass, self._rows.terms, f, df, self._target)
        return find_step_length(row_slopes, self._rows.outer.line_derivatives(w, step))


class InteriorStep:
    """One predictor-corrector iteration. Changes ``point``."""

    def __init__(
        self, rows: MemoryRows, preconditioner: ArrowPreconditioner, point: Interior, current: Iterate
    ) -> None:
        self._rows, self._preconditioner, self._point, self._current = rows, preconditioner, point, current
        self._theta, self._right = np.empty(rows.count), np.empty(rows.count)

    def take(self, allowed_gap: float) -> tuple[Float64, Float64]:
        """Return the next w and X w; ``allowed_gap`` is the allowed gap."""
        point, current, terms = self._point, self._current, self._rows.terms
        affine, bounds = np.zeros(self._rows.count), int(np.count_nonzero(point.above) + np.count_nonzero(point.below))
        affine_aim = Aim(0.0, 0.0)
        step, df = self._direction(affine_aim, affine, RESIDUAL_SHARE * current.products, None)
        length = passes.step_pass(terms, point, affine_aim, affine, self._theta, self._right, df, affine)
        ratio = max(passes.affine_products(terms, point, affine, length) / current.products, 0.0)
        target = max(max(ratio**3, MIN_TARGET_RATIO) * current.products, MIN_TARGET_SHARE * allowed_gap)
        aim, da = Aim(target / max(1, bounds), max(length, MIN_CORRECTION)), np.empty(self._rows.count)
        step, df = self._direction(
            aim, affine, RESIDUAL_SHARE * max(target, 4.0 * MIN_TARGET_SHARE * allowed_gap), step
        )
        longest = passes.step_pass(terms, point, aim, affine, self._theta, self._right, df, da)
        length = 1.0 if longest >= 1.0 else max(MIN_BOUNDARY_SHARE, 1.0 - 0.1 * (1.0 - longest)) * longest
        passes.move_pass(terms, point, aim, affine, da, length)
        w = current.w + length * step
        return w, self._rows.move_margins(current.f, length * df, w, allowed_gap)

    def _direction(self, aim: Aim, affine: Float64, residual: float, start: Float64 | None) -> tuple[Float64, Float64]:
        """Return the step dw and X dw for an aim. Sets theta and the right-hand sides, and for the first of the two
        aims the preconditioner.
        """
        rows, current = self._rows, self._current
        passes.system_pass(rows.terms, current.f, self._point, aim, affine, self._theta, self._right)
        if start is None:
            self._preconditioner.update(self._theta)
        right_side = (
            rows.weighted_sum(rows.terms.y * self._theta * self._right) + current.v - rows.outer.gradient(current.w)
        )
        least = CG_ENERGY_RATIO * float(right_side @ self._preconditioner(right_side))

        def enough(energy: float, remainder: Float64) -> bool:
            return rows.is_late or (
                energy <= least and self._preconditioner.energy_outside_block(remainder) <= residual
            )

        solved = conjugate_gradients(
            lambda d: rows.hessian_product(self._theta, d), self._preconditioner, right_side, enough, start
        )
        step = solved.x + self._preconditioner.block_step(solved.residual)
        return step, rows.margins(step)
