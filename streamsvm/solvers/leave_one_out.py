"""What the solution would say of each row had it not seen that row: one Newton step away, for all rows at once.

Given the solution w of  P(w) = 1/2 ||w||^2 + sum_i C_i l(m_i),  margins m_i = y_i f_i, f_i = w.x_i, and

    a_i = -C_i l'(m_i),    b_i = C_i l''(m_i),    H = I + sum_j b_j x_j x_j',    h_i = x_i' H^-1 x_i,

the problem without row i has at w the gradient a_i y_i x_i and the Hessian H - b_i x_i x_i'. Its Newton step takes the
value at x_i to

    f_i - y_i a_i g_i,    g_i = x_i' (H - b_i x_i x_i')^-1 x_i = h_i / (1 - b_i h_i)      (Sherman and Morrison).

Rows with a_i = 0 have no part in w: f_i is what it is, and h_i is not asked for. For the squared hinge the step is
exact unless another row comes to, or leaves, the margin; for smooth losses its error falls as the square of the step
(Rad and Maleki, JRSS B 82, 2020). A loss with a corner is rounded over ``WIDTH`` first (Wang et al., ICML 2018): rows
on the margin hold it in place, and those that might stand there stand for them; that wants many rows for each component
(``applies``).

**Weights are copies.** Of a row of weight r > 1 one copy is left out, of a fraction all: with u = min(1, r) and H
holding r copies, g_i becomes 1 / (1 / g_i + (r - u) b_i), where a_i and b_i are those of weight 1 and u.

**A sample for H.** With many more rows than components H is made of rows drawn with probability q and divided by it; a
row that was not drawn is not in it, so that h_i is g_i already. **Directions.** h_i = ||R x_i||^2, R'R = H^-1, is of
the order of p / n for n rows that count, and so is the correction, in units of what a row lacks to the margin. Taken in
q random directions, ||S R x_i||^2 has mean h_i and a relative standard error of sqrt(2 / q): as many are taken as make
the error of the correction ``NOISE`` in these units (Achlioptas, J. Computer and System Sciences 66, 2003).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from streamsvm.aliases import Array
from streamsvm.compute.blocks import operators
from streamsvm.compute.blocks.operators import Factored, Operand, square_projections
from streamsvm.compute.passes.certificate import RowLoss
from streamsvm.compute.passes.newton import slopes_pass
from streamsvm.losses import round_corners
from streamsvm.rows import CSR, Dense, Float32, Float64, Int64, Targets
from streamsvm.solvers.cholesky import solve_lower, solve_lower_transposed
from streamsvm.types import Problem
from streamsvm.types.problem import has_box

WIDTH = 0.3
"""Half the width a corner is rounded over, in margins."""
ENOUGH = 20
"""Rows for each component that a loss of two straight lines asks for."""
NOISE = 0.01
"""The standard error that random directions may add to a score, as a share of what a row lacks to the margin."""
LEAST_DIRECTIONS = 16
"""Random directions are no fewer, and where half as many as components would be needed there are none."""
TILE = 1024
"""Rows whose h is computed at a time, by a product of matrices."""
LEAST = 1e-6
"""The least 1 - b h: rounding may have left nothing of it where a row is alone in a direction."""
LEAST_RANDOM = 0.5
"""The least 1 - b h with random directions: by their error alone it may come to nothing for rows that H has many times
over."""


class SeenRows(NamedTuple):
    """Rows of a block as one problem sees them."""

    X: Operand
    """The features."""
    y: Targets
    """(n,) float32, +1 or -1."""
    factors: Float32
    """(n,) the factor of C of each row's class."""
    weights: Float64
    """(n,) how often each row counts."""
    drawn: Float64
    """(n,) one over the probability by which a row was drawn for H; 0 for those that were not."""


def applies(problem: Problem) -> bool:
    """Whether these scores are good ones: always where the loss is curved, else where rows are many.

    Never where R is not 1/2 ||w||^2 alone, and of all classes together.
    """
    if problem.kind.classes or not problem.regularizer.is_squared_norm:
        return False
    straight = has_box(problem.loss) and problem.loss.quadratic()
    return not straight or problem.rows >= ENOUGH * (problem.columns + 1)


def leave_one_out_bytes(problems: list[Problem], threads: int, entry: int = 4) -> int:
    """Return the bytes that all matrices take, and the work on one of them by each thread, of rows with so many bytes
    an ``entry``.
    """
    p = problems[0].columns + 1
    return 8 * p * p * (len(problems) + 3) + threads * (operators.gram_bytes(p, entry=entry) + 16 * TILE * p)


def terms(problem: Problem, y: Targets, s: Float32, f: Float64) -> tuple[Float64, Float64]:
    """Return a and b (n,) each of rows with decision values f, by the loss with its corner rounded."""
    cost = RowLoss(problem.C, problem.loss, round_corners(problem.loss, WIDTH))
    slopes, bends = np.empty(len(f)), np.empty(len(f))
    slopes_pass(y, s, f, cost, slopes, bends)
    return np.abs(slopes), bends


class HessianSum:
    """sum_j b_j x_j x_j' of one problem, and how many rows there are a term of."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.matrix = np.zeros((problem.columns + 1, problem.columns + 1))
        self.rows = 0.0

    def add(self, rows: SeenRows, f: Float64) -> None:
        """Count the rows of a block that were drawn; f (n,) is what the solution says of them."""
        _, bends = terms(self.problem, rows.y, rows.factors, f)
        counted = rows.weights * rows.drawn
        self.matrix += operators.gram(rows.X, bends * counted, self.problem.columns)
        self.rows += float(counted[bends > 0.0].sum())


def directions(components: int, rows: float) -> int | None:
    """Return how many random directions do; None: as many as there are components, and none of them random."""
    wanted = max(LEAST_DIRECTIONS, np.ceil(2.0 * (components / max(rows, 1.0) / NOISE) ** 2))
    return None if 2 * wanted >= components else int(wanted)


@dataclass(slots=True)
class LeaveOneOut:
    """The scores of one problem."""

    problem: Problem
    """What was solved."""
    root: Array
    """R, or as many random combinations of its rows, (q, p)."""
    least: float
    """What 1 - b h is no less than."""

    @classmethod
    def of(cls, total: HessianSum, seed: int) -> LeaveOneOut:
        """Return what gives scores; the matrix of ``total`` is used up.

        Columns are divided by the roots of the diagonal before anything is factorized: their units do not matter.
        """
        problem, hessian = total.problem, total.matrix
        p = len(hessian)
        hessian[np.diag_indices(p)] += 1.0
        scale = 1.0 / np.sqrt(np.diag(hessian))
        hessian *= scale[:, None]
        hessian *= scale
        hessian[...] = np.linalg.cholesky(hessian)
        q = directions(p, total.rows)
        if q is None:
            root = solve_lower(hessian, np.eye(p))
        else:
            signs = np.random.default_rng((seed, problem.kind.positives[0])).choice([-1.0, 1.0], (p, q)) / np.sqrt(q)
            root = solve_lower_transposed(hessian, signs).T
        root *= scale
        precise, least = q is None and p <= operators.MOST_FLOAT64_COMPONENTS, LEAST if q is None else LEAST_RANDOM
        return cls(problem, root if precise else root.astype(np.float32), least)

    def scores(self, rows: SeenRows, f: Float64) -> Float64:
        """Return what the solution without each row says of it, (n,), from what the solution says, f (n,)."""
        units = np.minimum(rows.weights, 1.0)
        pulls, bends = terms(self.problem, rows.y, rows.factors, f)
        active = np.flatnonzero((pulls > 0.0) & (units > 0.0))
        h, r, u, b = self._leverages(rows.X, active), rows.weights[active], units[active], bends[active]
        g = h / np.maximum(1.0 - b * r * rows.drawn[active] * h, self.least)
        found = f.copy()
        found[active] -= rows.y[active] * u * pulls[active] * g / (1.0 + (r - u) * b * g)
        return found

    def _leverages(self, X: Operand, chosen: Int64) -> Float64:
        """The h_i of chosen rows."""
        found = np.empty(len(chosen))
        if isinstance(X, CSR):
            square_projections(X, chosen, np.ascontiguousarray(self.root.T, np.float64), found)
            return found
        for start in range(0, len(chosen), TILE):
            found[start : start + TILE] = self._products(X, chosen[start : start + TILE])
        return found

    def _products(self, X: Dense | Factored, chosen: Int64) -> Float64:
        """The same of a few rows by products of matrices."""
        rows = X.kernel_values[chosen] @ X.projection if isinstance(X, Factored) else X.values[chosen]
        values = rows @ self.root[:, :-1].T
        values += X.bias * self.root[:, -1]
        return np.einsum("ik,ik->i", values, values, dtype=np.float64)
