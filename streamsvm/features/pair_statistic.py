"""A test for pairs of columns: whether what an additive fit leaves over depends on two columns together.

**Problem.** Given a fit without pairs, and for every pair of variables the cells in which the rows lie, find the pairs whose
tables would lower the loss, without a fit for each.

**Given** for each row its slope g_i = s_i l'(f_i), with weight s_i and the derivative of the loss in f, and an estimate v_i
of the mean square of g_i which does not depend on its label: s_i^2 l''(f_i) for the logistic loss, the conditional variance of
the slope, and s_i^2 for other losses. Weights are in units of their mean. For each cell (i, j) of a pair

    G_ij = sum g,    Q_ij = sum g^2,    V_ij = sum v.

**Main effects.** What a row of the table has in common in all its cells is not about the pair: it is what the fit has
left over of one column alone, where it is not at its optimum, or because its curves are smooth. With weights V, the additive part
alpha_i + beta_j of G / V is subtracted,

    R_ij = G_ij - V_ij (alpha_i + beta_j),    all sums of rows and columns of R are 0.

**Statistic.** With r = sum Q / sum V over all rows, and N cells with rows in A rows and B columns of the table,

    T = sum_ij R_ij^2 / (r (V_ij + 1)),    E = k sum Q_ij / (r (V_ij + 1)),    W = 2 k sum (Q_ij / (r (V_ij + 1)))^2,
    k = 1 - (A + B - 1) / N.

If slopes are independent with mean 0 given the cells, the mean of G_ij^2 is that of Q_ij, whatever their distribution: heavy
tails and unequal variances cancel in T - E. W is the variance of T for sums that are nearly normal, and k the share that the main effects
leave. The 1 keeps cells with hardly any information from adding noise. T is about twice the decrease of the loss by the table, so
that pairs are ranked by the gain T - E. For several problems (classes), T, E and W are summed.

T is a sum of squares, whose distribution is skewed if there are few cells. It is compared with a chi-squared variable with the same mean and
variance, nu = 2 E^2 / W degrees of freedom, whose cube root is nearly normal (Wilson and Hilferty 1931):

    z = ((T / E)^(1/3) - 1 + 2 / (9 nu)) / sqrt(2 / (9 nu)).

A pair passes with z > MIN_Z: by chance in one of three million. The fit has used up a part of the noise, which only lowers T.

**Changed against** FAST (Lou et al. 2013), which compares the best of four quadrants of the residuals and has no test: all
cells are used, the scale is that of the loss, and main effects are removed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from streamsvm.rows import Float64

MIN_Z = 5.0
"""The z above which a pair passes the test."""
RIDGE = 1e-9
"""Added to the scaled diagonal of the singular system for main effects."""


class PairSums(NamedTuple):
    """The sums of a table, (A, B) each."""

    slopes: Float64
    """G"""
    squares: Float64
    """Q"""
    information: Float64
    """V"""


class Moments(NamedTuple):
    """The statistic of a table, its mean and its variance without an effect of the pair."""

    statistic: float
    mean: float
    variance: float

    def add(self, other: Moments) -> Moments:
        """Return the moments of the sum of two statistics."""
        return Moments(*(a + b for a, b in zip(self, other, strict=True)))

    @property
    def gain(self) -> float:
        """T - E, about twice the decrease of the loss by the table."""
        return self.statistic - self.mean

    @property
    def z(self) -> float:
        """The statistic as a normal variable; 0 if the table has no degree of freedom."""
        if self.variance <= 0.0 or self.mean <= 0.0:
            return 0.0
        spread = self.variance / (9.0 * self.mean * self.mean)  # 2 / (9 nu)
        return float((np.cbrt(self.statistic / self.mean) - 1.0 + spread) / np.sqrt(spread))


def measure_pair(sums: PairSums, ratio: float) -> Moments:
    """Return T, E and W of a table. ``ratio``: r."""
    used = sums.information > 0.0
    sums = PairSums(*(np.where(used, array, 0.0) for array in sums))
    rest = remove_main_effects(sums.slopes, sums.information)
    scale = ratio * (sums.information + 1.0)
    cells, lines = int(used.sum()), int(used.any(axis=0).sum()) + int(used.any(axis=1).sum())
    share = max(0.0, 1.0 - (lines - 1) / max(1, cells))
    expected = sums.squares / scale
    return Moments(
        float((np.square(rest) / scale).sum()), share * float(expected.sum()), 2.0 * share * float((expected**2).sum())
    )


def remove_main_effects(G: Float64, V: Float64) -> Float64:
    """Return G - V (alpha_i + beta_j), whose rows and columns sum up to 0. G, V (A, B), V >= 0 and G = 0 where V = 0.

    beta solves (diag(V' 1) - V' diag(V 1)^-1 V) beta = G' 1 - V' diag(V 1)^-1 G 1.
    """
    if G.shape[1] > G.shape[0]:  # the system of the shorter side
        return remove_main_effects(G.T, V.T).T
    by_row, by_column = V.sum(axis=1), V.sum(axis=0)
    inverse = np.divide(1.0, by_row, out=np.zeros_like(by_row), where=by_row > 0.0)
    weighted = V * inverse[:, None]
    matrix = np.diag(by_column) - V.T @ weighted
    matrix[np.diag_indices_from(matrix)] += RIDGE * by_column + (by_column == 0.0)
    beta = np.linalg.solve(matrix, G.sum(axis=0) - weighted.T @ G.sum(axis=1))
    alpha = inverse * (G.sum(axis=1) - V @ beta)
    out: Float64 = G - V * (alpha[:, None] + beta)
    return out
