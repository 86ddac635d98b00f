"""A primal-dual interior point of a linear problem whose rows are in memory (equations:
``compute.passes.interior_point``).

Newton's method on the objective alone flips rows in and out of the corner of the loss; where columns are rare and
large, every flip moves a weight by itself, and steps stay short. Inside the bounds all rows are curved a little, steps
are longer, and 15 to 40 of them, whatever the scales, bring the sum of the complementarity products to a thousandth of
the objective. The dual variables are feasible throughout: every iteration bounds the optimum.

    P(w) - D(a) <= sum_i (lower_i a_i + upper_i (U_i - a_i)) + 1/2 ||v - w||^2,      v = sum_i a_i y_i x_i

where the first equation of the module named above holds. Columns of large scale make the last term large long before it
matters to the margins: the iteration begins where it is about 0 (``Centering``), and the exact solution for the dense
columns closes each step (``ArrowPreconditioner.block_step``).
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
"""The first complementarity products, in units of C: where all rows are far from the corner the path is easy to
find."""
CENTERED, CENTERING_STEPS = 1.0, 30
"""A point is on the path where the energy of the gradient is this many times the target; Newton steps to it at most."""
ENERGY = 1e-2
"""Conjugate gradients end at this share of the first energy."""
RESIDUAL = 0.1
"""Half the squared residual of the rare columns must then also be below this share of the sum the products are to
have."""
CENTERING = 1e-4
"""The target is the cube of the share that an affine step would leave of the products (Mehrotra), but at least this."""
LEAST_CORRECTION = 0.5
"""Weight of the second-order correction: the length an affine step can have, or this."""
FLOOR = 0.05
"""The target need not fall below this share of the gap that is asked for."""
BOUNDARY = 0.9
"""At least this share of the way to the boundary is gone."""


class Iterate(NamedTuple):
    """Where an iteration begins: weights, X w, v = sum a_i y_i x_i, and the sum of all complementarity products."""

    w: Float64
    """(p,) the weights."""
    f: Float64
    """(n,) the decision values X w."""
    v: Float64
    """(p,) sum a_i y_i x_i, which is w at the optimum."""
    products: float
    """The sum of lower_i a_i and upper_i (U_i - a_i) over all rows, 0 at the optimum."""


class Centering:
    """Newton's method on what the central path at one target minimizes (``compute.passes.interior_point``).

    What the dual variables lack of w = sum a_i y_i x_i shrinks by one minus the length of a step. On columns of scale
    10^6 that takes forever; where nothing is lacking at first, nothing will be.
    """

    def __init__(self, rows: MemoryRows, preconditioner: ArrowPreconditioner) -> None:
        self._rows, self._preconditioner = rows, preconditioner
        self._target = FIRST_TARGET * rows.terms.C
        self._theta, self._right = np.empty(rows.count), np.empty(rows.count)

    def run(self, w: Float64) -> tuple[Float64, Interior, bool]:
        """Return the next w (p,), dual variables that go with its margins, and whether that is about a point on the
        path.

        It is not where the time for a reading came before.
        """
        rows, none = self._rows, np.zeros(self._rows.count)
        at, f = Interior(none.copy(), none.copy(), none.copy()), rows.values(w)
        for _ in range(CENTERING_STEPS):
            passes.center_pass(rows.terms, f, self._target, at)
            gradient = rows.outer.gradient(w) - rows.weighted_sum(at.a * rows.terms.y)
            passes.system_pass(rows.terms, f, at, Aim(self._target, 0.0), none, self._theta, self._right)
            self._preconditioner.update(self._theta)
            energy = float(gradient @ self._preconditioner(gradient))
            if energy <= CENTERED * self._target or rows.is_exhausted:
                return w, at, energy <= CENTERED * self._target
            step = self._step(gradient, energy)
            df = rows.margins(step)
            length = self._length(w, step, f, df)
            w, f = w + length * step, f + length * df
        return w, at, True

    def _step(self, gradient: Float64, energy: float) -> Float64:
        rows, preconditioner = self._rows, self._preconditioner

        def enough(found: float, _: Float64) -> bool:
            return rows.is_late or found <= ENERGY * energy

        solved = conjugate_gradients(lambda d: rows.hessian_product(self._theta, d), preconditioner, -gradient, enough)
        return solved.x + preconditioner.block_step(solved.residual)

    def _length(self, w: Float64, step: Float64, f: Float64, df: Float64) -> float:
        row_slopes = partial(passes.center_line_pass, self._rows.terms, f, df, self._target)
        return find_step_length(row_slopes, self._rows.outer.along(w, step))


class InteriorStep:
    """One iteration, predictor and corrector. Changes ``at``."""

    def __init__(self, rows: MemoryRows, preconditioner: ArrowPreconditioner, at: Interior, here: Iterate) -> None:
        self._rows, self._preconditioner, self._at, self._here = rows, preconditioner, at, here
        self._theta, self._right = np.empty(rows.count), np.empty(rows.count)

    def take(self, wanted: float) -> tuple[Float64, Float64]:
        """Return the next w and X w; ``wanted`` is the gap that would do."""
        at, here, terms = self._at, self._here, self._rows.terms
        affine, bounds = np.zeros(self._rows.count), int(np.count_nonzero(at.above) + np.count_nonzero(at.below))
        affinely = Aim(0.0, 0.0)
        step, df = self._direction(affinely, affine, RESIDUAL * here.products, None)
        length = passes.step_pass(terms, at, affinely, affine, self._theta, self._right, df, affine)
        left = max(passes.affine_products(terms, at, affine, length) / here.products, 0.0)
        least = max(max(left**3, CENTERING) * here.products, FLOOR * wanted)
        aim, da = Aim(least / max(1, bounds), max(length, LEAST_CORRECTION)), np.empty(self._rows.count)
        step, df = self._direction(aim, affine, RESIDUAL * max(least, 4.0 * FLOOR * wanted), step)
        longest = passes.step_pass(terms, at, aim, affine, self._theta, self._right, df, da)
        length = 1.0 if longest >= 1.0 else max(BOUNDARY, 1.0 - 0.1 * (1.0 - longest)) * longest
        passes.move_pass(terms, at, aim, affine, da, length)
        w = here.w + length * step
        return w, self._rows.move_margins(here.f, length * df, w, wanted)

    def _direction(self, aim: Aim, affine: Float64, residual: float, start: Float64 | None) -> tuple[Float64, Float64]:
        """Return the step dw and X dw for an aim; fill in theta and right, and with the first of two aims the
        preconditioner.
        """
        rows, here = self._rows, self._here
        passes.system_pass(rows.terms, here.f, self._at, aim, affine, self._theta, self._right)
        if start is None:
            self._preconditioner.update(self._theta)
        pull = rows.weighted_sum(rows.terms.y * self._theta * self._right) + here.v - rows.outer.gradient(here.w)
        energy = ENERGY * float(pull @ self._preconditioner(pull))

        def enough(found: float, left: Float64) -> bool:
            return rows.is_late or (found <= energy and self._preconditioner.outside(left) <= residual)

        solved = conjugate_gradients(
            lambda d: rows.hessian_product(self._theta, d), self._preconditioner, pull, enough, start
        )
        step = solved.x + self._preconditioner.block_step(solved.residual)
        return step, rows.margins(step)
