"""A primal-dual interior point of a linear problem whose rows are in memory (equations: ``compute.passes.all_rows``).

Newton's method on the objective alone flips rows in and out of the corner of the loss; where columns are rare and large,
every flip moves a weight by itself, and steps stay short. Inside the bounds all rows bend a little, steps are long, and
10 to 25 of them, whatever the scales, bring the sum of the complementarity products to a thousandth of the objective. The
dual variables are feasible throughout: every iteration bounds the optimum.

    P(w) - D(a) <= sum_i (lower_i a_i + upper_i (U_i - a_i)) + 1/2 ||v - w||^2,      v = sum_i a_i y_i x_i

where the first equation of the module named above holds. Columns of large scale make the last term large long before
it matters to the margins: the exact solution for the dense columns closes each step (``ArrowPreconditioner.block_step``).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from streamsvm.compute.passes import all_rows as passes
from streamsvm.compute.passes.all_rows import Interior
from streamsvm.rows import Float64
from streamsvm.solvers.newton.in_memory.conjugate_gradients import solve
from streamsvm.solvers.newton.in_memory.memory_rows import MemoryRows
from streamsvm.solvers.newton.in_memory.preconditioner import ArrowPreconditioner

SHIFT = 0.5
"""Multipliers of a first point: margins are of order 1."""
ENERGY = 1e-2
"""Conjugate gradients end at this share of the first energy ..."""
RESIDUAL = 0.1
"""... and when half the squared residual of the rare columns is this share of what the products are to sum up to."""
CENTERING = 1e-4
"""The target is the cube of the share that an affine step would leave of the products (Mehrotra), but at least this."""
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


def first_interior(rows: MemoryRows, f: Float64) -> Interior:
    """Dual variables inside their bounds, and multipliers that fit the margins f."""
    at = Interior(np.empty(rows.count), np.empty(rows.count), np.empty(rows.count))
    passes.start_pass(rows.terms, f, SHIFT, at)
    return at


class InteriorStep:
    """One iteration, predictor and corrector; changes ``at``."""

    def __init__(self, rows: MemoryRows, preconditioner: ArrowPreconditioner, at: Interior, here: Iterate) -> None:
        self._rows, self._preconditioner, self._at, self._here = rows, preconditioner, at, here
        self._theta, self._right = np.empty(rows.count), np.empty(rows.count)

    def take(self, wanted: float) -> tuple[Float64, Float64]:
        """The next w and X w; ``wanted`` is the gap that would do."""
        at, here, terms = self._at, self._here, self._rows.terms
        affine, bounds = np.zeros(self._rows.count), int(np.count_nonzero(at.above) + np.count_nonzero(at.below))
        step, df = self._direction(0.0, affine, RESIDUAL * here.products, None)
        length = passes.step_pass(terms, at, 0.0, affine, self._theta, self._right, df, affine)
        left = max(passes.affine_products(terms, at, affine, length) / here.products, 0.0)
        aim = max(max(left**3, CENTERING) * here.products, FLOOR * wanted)
        target, da = aim / max(1, bounds), np.empty(self._rows.count)
        step, df = self._direction(target, affine, RESIDUAL * max(aim, 4.0 * FLOOR * wanted), step)
        longest = passes.step_pass(terms, at, target, affine, self._theta, self._right, df, da)
        length = 1.0 if longest >= 1.0 else max(BOUNDARY, 1.0 - 0.1 * (1.0 - longest)) * longest
        passes.move_pass(terms, at, target, affine, da, length)
        return here.w + length * step, here.f + length * df

    def _direction(
        self, target: float, affine: Float64, residual: float, start: Float64 | None
    ) -> tuple[Float64, Float64]:
        """Step dw and X dw for a target; theta and right are filled in, and with the first of two targets the preconditioner."""
        rows, here = self._rows, self._here
        passes.system_pass(rows.terms, here.f, self._at, target, affine, self._theta, self._right)
        if start is None:
            self._preconditioner.update(self._theta)
        pull = rows.weighted_sum(rows.terms.y * self._theta * self._right) + here.v - rows.outer.gradient(here.w)
        energy = ENERGY * float(pull @ self._preconditioner(pull))

        def enough(found: float, left: Float64) -> bool:
            return rows.exhausted or (found <= energy and self._preconditioner.outside(left) <= residual)

        solved = solve(lambda d: rows.hessian_product(self._theta, d), self._preconditioner, pull, enough, start)
        step = solved.x + self._preconditioner.block_step(solved.residual)
        return step, rows.margins(step)
