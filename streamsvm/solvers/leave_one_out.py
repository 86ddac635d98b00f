"""Approximate leave-one-out scores: the decision value of each row without that row in training, by one Newton step.

Given the solution w of  P(w) = 1/2 ||w||^2 + sum_i C_i l(m_i),  margins m_i = y_i f_i, f_i = w.x_i, and

    a_i = -C_i l'(m_i),    b_i = C_i l''(m_i),    H = I + sum_j b_j x_j x_j',    h_i = x_i' H^-1 x_i,

the problem without row i has at w the gradient a_i y_i x_i and the Hessian H - b_i x_i x_i'. Its Newton step changes
the decision value at x_i to

    f_i - y_i a_i g_i,    g_i = x_i' (H - b_i x_i x_i')^-1 x_i = h_i / (1 - b_i h_i)      (Sherman and Morrison).

Rows with a_i = 0 do not contribute to w: their f_i stays the same, and h_i is not needed. For the squared hinge the
step is exact unless another row reaches or leaves the margin. For smooth losses its error is of the order of the square
of the step (Rad and Maleki, JRSS B 82, 2020). A loss with a kink is smoothed over ``WIDTH`` first (Wang et al., ICML
2018): the rows in the kink determine w, and the rows near the kink are used in their place. That requires many rows for
each component (``applies``).

**Weights are copies.** Of a row with the weight r, u = min(1, r) copies are left out. With a_i and b_i those of one
copy, g_i is computed without all r copies, which are in H, and r - u copies are then added back: a_i g_i becomes
u a_i / (1 / g_i + (r - u) b_i).

**A sample for H.** With many more rows than components, H is the sum over rows drawn with probability q, divided by q.
A row that was not drawn is not in H, so that its h_i already equals g_i. **Random directions.** h_i = ||R x_i||^2,
R'R = H^-1, is of the order of p / n for n rows with curvature, and so is the correction, relative to the distance of a
row to the margin. In q random directions, ||S R x_i||^2 has the mean h_i and a relative standard error of sqrt(2 / q).
q is chosen such that the error of the correction is ``NOISE`` in these units (Achlioptas, J. Computer and System
Sciences 66, 2003).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from streamsvm.compute.blocks import operators
from streamsvm.compute.blocks.operators import Factored, square_projections
from streamsvm.compute.passes.certificate import RowLoss
from streamsvm.compute.passes.newton import slopes_pass
from streamsvm.losses import round_corners
from streamsvm.rows import CSR, Dense, Float32, Float64, Int64, Rows, Targets
from streamsvm.solvers.cholesky import solve_lower, solve_lower_transposed
from streamsvm.type_aliases import Array
from streamsvm.types import Problem
from streamsvm.types.problem import has_box

WIDTH = 0.3
"""Half-width, in units of the margin, over which a kink is smoothed."""
ENOUGH = 20
"""Least number of rows per component for piecewise linear losses."""
NOISE = 0.01
"""The standard error that random directions may add to a score, relative to the distance of a row to the margin."""
MIN_DIRECTIONS = 16
"""Minimum number of random directions. If more than half as many as components are needed, none are used."""
TILE = 1024
"""Number of rows whose h is computed at a time, by a matrix product."""
LEAST = 1e-6
"""The least value of 1 - b h, which may become 0 by rounding if a row is alone in a direction."""
LEAST_RANDOM = 0.5
"""The least value of 1 - b h with random directions, whose error may make it 0 for rows that H contains many times."""


class SeenRows(NamedTuple):
    """Rows of a block with their targets and weights in one problem."""

    X: Rows | Factored
    """The features."""
    y: Targets
    """(n,) float32, +1 or -1."""
    factors: Float32
    """(n,) the factor of C of each row's class."""
    weights: Float64
    """(n,) the weight of each row."""
    drawn: Float64
    """(n,) 1 / the probability by which a row was drawn for H; 0 for rows that were not drawn."""


def applies(problem: Problem) -> bool:
    """Return whether these scores are accurate: always for losses with curvature, else if there are many rows.

    They are not available for multinomial problems, nor for regularizers other than 1/2 ||w||^2.
    """
    if problem.kind.classes or not problem.regularizer.is_squared_norm:
        return False
    is_piecewise_linear = has_box(problem.loss) and problem.loss.quadratic()
    return not is_piecewise_linear or problem.rows >= ENOUGH * (problem.columns + 1)


def leave_one_out_bytes(problems: list[Problem], threads: int, entry: int = 4) -> int:
    """Return the bytes of all matrices, and of the scratch arrays of each thread. ``entry``: bytes of an entry of a
    row.
    """
    p = problems[0].columns + 1
    return 8 * p * p * (len(problems) + 3) + threads * (operators.gram_bytes(p, entry=entry) + 16 * TILE * p)


def slopes_and_curvatures(problem: Problem, y: Targets, s: Float32, f: Float64) -> tuple[Float64, Float64]:
    """Return a and b, (n,) each, of rows with decision values f, for the smoothed loss."""
    cost = RowLoss(problem.C, problem.loss, round_corners(problem.loss, WIDTH))
    slopes, curvatures = np.empty(len(f)), np.empty(len(f))
    slopes_pass(y, s, f, cost, slopes, curvatures)
    return np.abs(slopes), curvatures


class HessianSum:
    """The sum of b_j x_j x_j' of one problem, and the number of rows with b_j > 0."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.matrix = np.zeros((problem.columns + 1, problem.columns + 1))
        self.rows = 0.0

    def add(self, rows: SeenRows, f: Float64) -> None:
        """Add the drawn rows of a block with the decision values f (n,)."""
        _, curvatures = slopes_and_curvatures(self.problem, rows.y, rows.factors, f)
        counts = rows.weights * rows.drawn
        self.matrix += operators.gram(rows.X, curvatures * counts, self.problem.columns)
        self.rows += float(counts[curvatures > 0.0].sum())


def choose_directions(components: int, rows: float) -> int | None:
    """Return the number of random directions; None if the exact directions are to be used, as many as components."""
    count = max(MIN_DIRECTIONS, np.ceil(2.0 * (components / max(rows, 1.0) / NOISE) ** 2))
    return None if 2 * count >= components else int(count)


@dataclass(slots=True)
class LeaveOneOut:
    """The leave-one-out scores of one problem."""

    problem: Problem
    root: Array
    """(q, p) R, or q random combinations of its rows."""
    least: float
    """The lower limit of 1 - b h."""

    @classmethod
    def of(cls, total: HessianSum, seed: int) -> LeaveOneOut:
        """Return the scores' data for a sum over all rows. Overwrites the matrix of ``total``.

        Columns are divided by the roots of the diagonal before the factorization, so that their units do not matter.
        """
        problem, hessian = total.problem, total.matrix
        p = len(hessian)
        hessian[np.diag_indices(p)] += 1.0
        scale = 1.0 / np.sqrt(np.diag(hessian))
        hessian *= scale[:, None]
        hessian *= scale
        hessian[...] = np.linalg.cholesky(hessian)
        q = choose_directions(p, total.rows)
        if q is None:
            root = solve_lower(hessian, np.eye(p))
        else:
            signs = np.random.default_rng((seed, problem.kind.positives[0])).choice([-1.0, 1.0], (p, q)) / np.sqrt(q)
            root = solve_lower_transposed(hessian, signs).T
        root *= scale
        in_float64, least = (
            q is None and p <= operators.MAX_COMPONENTS_FOR_FLOAT64,
            LEAST if q is None else LEAST_RANDOM,
        )
        return cls(problem, root if in_float64 else root.astype(np.float32), least)

    def scores(self, rows: SeenRows, f: Float64) -> Float64:
        """Return the decision value (n,) of each row without that row in training, given the decision values f (n,)."""
        units = np.minimum(rows.weights, 1.0)
        a, curvatures = slopes_and_curvatures(self.problem, rows.y, rows.factors, f)
        active = np.flatnonzero((a > 0.0) & (units > 0.0))
        h, r, u, b = self._leverages(rows.X, active), rows.weights[active], units[active], curvatures[active]
        g = h / np.maximum(1.0 - b * r * rows.drawn[active] * h, self.least)
        scores = f.copy()
        scores[active] -= rows.y[active] * u * a[active] * g / (1.0 + (r - u) * b * g)
        return scores

    def _leverages(self, X: Rows | Factored, chosen: Int64) -> Float64:
        """Return the h_i of the chosen rows."""
        h = np.empty(len(chosen))
        if isinstance(X, CSR):
            square_projections(X, chosen, np.ascontiguousarray(self.root.T, np.float64), h)
            return h
        for start in range(0, len(chosen), TILE):
            h[start : start + TILE] = self._leverages_of_tile(X, chosen[start : start + TILE])
        return h

    def _leverages_of_tile(self, X: Dense | Factored, chosen: Int64) -> Float64:
        """Return the h_i of a few rows by matrix products."""
        rows = X.kernel_values[chosen] @ X.projection if isinstance(X, Factored) else X.values[chosen]
        values = rows @ self.root[:, :-1].T
        values += X.bias * self.root[:, -1]
        return np.einsum("ik,ik->i", values, values, dtype=np.float64)
