"""Dual coordinate descent by many workers at once, each on its rows and a copy of w; how their moves are joined.

CoCoA+ (Ma et al., ICML 2015). The rows are in K groups. A copy must allow for the K - 1 others moving at the same time, w by
dw_k each. As ||sum_k dw_k||^2 <= K sum_k ||dw_k||^2, the dual rises by at least what the K problems with sigma
||dw_k||^2, sigma = K, in place of ||dw_k||^2 rise by. Coordinate descent solves such a problem on u = w + sigma dw_k: the
gradient of a_i is y_i u.x_i - 1 + conjugate'(a_i), its curvature sigma ||x_i||^2 + conjugate'', and u moves by
sigma delta y_i x_i.

That bound is far too careful where rows of different groups have little in common. So sigma may be smaller here, for how
far the groups go is not taken from the bound but computed. Each group k proposes two directions: its move, and

    d_i = y_i min(distance of a_i, before and after the move, from its box; SHIFT_SHARE C_i).

The second is for what all groups share, the constant feature above all: where one group's sum a_i y_i is too large and
another's too small, w does not show it and each group by itself hardly moves it, but all rows have margins that are off.
With v_r = sum_i (direction r)_i y_i x_i over all 2 K directions, and linear and quadratic terms of the conjugates,

    D(a + sum_r t_r direction_r) = D(a) + linear.t + t' quadratic t - w.sum_r t_r v_r - 1/2 ||sum_r t_r v_r||^2

is known exactly from 2 K vectors, and is maximized over 0 <= t <= 1 for moves, -1 <= t <= 1 for the others: every such
point is in the box. Where a move crosses a corner of the conjugate, or that is no parabola, it is a bound from below, exact at t = 0
and 1: the conjugate is convex. A row is not shifted across a corner. The dual never falls, whatever sigma; where the groups are not let go as far as they propose it
is raised, up to K, and where they are it is lowered.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from streamsvm.compute.blocks import operators
from streamsvm.compute.blocks.sums import dual_sum
from streamsvm.compute.passes.certificate import RowLoss
from streamsvm.compute.passes.proposals import proposals_pass
from streamsvm.compute.targets import lower
from streamsvm.rows import Float64
from streamsvm.tags import saved_as
from streamsvm.types import Block, Problem
from streamsvm.types.problem import has_box

SHIFT_SHARE = 0.05
AS_PROPOSED = (1.0, 0.0)
"""The steps of a group that has gone where it proposed to."""
LONG_STEPS, SHORT_STEPS = 0.9, 0.5
"""Mean steps above and below which sigma changes ..."""
SIGMA_DECREASE, SIGMA_INCREASE = 0.8, 1.25
"""... by so much."""
MAX_SWEEPS, STEP_TOLERANCE = 1000, 1e-12


@saved_as("cocoa.joint")
@dataclass(slots=True)
class Joint:
    """What the copies of a state begin a pass with, and what one of them has found in it."""

    sigma: float
    """By how much a group must allow for the others, from 1 to K; the curvature of its coordinates is times this."""
    origin: Float64
    """(p,) w at the beginning."""
    steps: Float64
    """(K, 2): how far each group goes along what it has proposed; its rows do not know yet."""
    vectors: Float64
    """(2, p): v of the copy's own directions."""
    dual: float = 0.0
    """sum a_i - conjugate(a_i) at the beginning."""
    linear: Float64 = field(default_factory=lambda: np.zeros(2))
    """(2,): the slope of sum a_i - conjugate(a_i) along each of the copy's directions; summed by ``count``."""
    quadratic: Float64 = field(default_factory=lambda: np.zeros((2, 2)))
    """(2, 2): its second order, -1/2 sum_i conjugate''_i d_i d_i', d_i (2,) the part of row i in both directions."""


@saved_as("cocoa.joined")
class Joined(NamedTuple):
    """Where all groups together have gone: w, sum a_i - conjugate(a_i) there, and what the next pass begins with."""

    w: Float64
    """(p,) sum a_i y_i x_i at the point gone to."""
    dual: float
    """sum a_i - conjugate(a_i) there; D is this less 1/2 ||w||^2."""
    joint: Joint
    """What every copy begins the next pass with: how far its rows are still to go, and the new sigma."""


def begun(parts: int, w: Float64, sigma: float) -> Joint:
    """Of copies that all begin at w, with rows that know where they are."""
    return Joint(sigma, w.copy(), np.tile(AS_PROPOSED, (parts, 1)), np.zeros((2, len(w))))


def settle(joint: Joint, problem: Problem, block: Block) -> None:
    """Take the rows of a block to where the last pass has decided. A group has the chunks k, k + K, k + 2 K, ..."""
    move, shift = joint.steps[block.chunk % len(joint.steps)].tolist()
    if (move, shift) != AS_PROPOSED:
        alpha, before = block.rows["alpha"], block.rows["before"]
        bottom, top = _box(problem, block)
        there = before + move * (alpha - before) + shift * _shared(problem, block)
        np.clip(there, bottom, top, out=alpha)  # of rounding: the point is in the box


def count(joint: Joint, problem: Problem, block: Block) -> None:
    """Add what the rows of a block propose."""
    alpha, before = block.rows["alpha"], block.rows["before"]
    ways = np.column_stack([alpha - before, _shared(problem, block)])
    joint.dual += dual_sum(before, block.y, block.s, problem.C, problem.loss)
    cost = RowLoss(problem.C, problem.loss, problem.loss)
    proposals_pass(block.y, block.s, cost, before, ways, joint.linear, joint.quadratic)
    joint.vectors += operators.adjoint(block.X, ways * problem.task.signs(block.y)[:, None], problem.columns).T


def joined(copies: list[Joint]) -> Joined:
    """Maximize the dual over how far each group goes."""
    parts, first = len(copies), copies[0]
    vectors = np.concatenate([copy.vectors for copy in copies])
    linear = np.concatenate([copy.linear for copy in copies])
    quadratic = np.zeros((2 * parts, 2 * parts))
    for k, copy in enumerate(copies):
        quadratic[2 * k : 2 * k + 2, 2 * k : 2 * k + 2] = copy.quadratic
    lowest = np.tile([0.0, -1.0], parts)
    t = _highest(linear - vectors @ first.origin, vectors @ vectors.T - 2.0 * quadratic, lowest)
    dual = sum(copy.dual for copy in copies) + float(linear @ t + t @ quadratic @ t)
    w, steps = first.origin + t @ vectors, t.reshape(parts, 2)
    sigma, mean = first.sigma, float(steps[:, 0].mean())
    sigma = (
        max(1.0, SIGMA_DECREASE * sigma)
        if mean > LONG_STEPS
        else min(float(parts), SIGMA_INCREASE * sigma)
        if mean < SHORT_STEPS
        else sigma
    )
    return Joined(w, dual, Joint(sigma, w.copy(), steps, np.zeros_like(first.vectors)))


def _highest(gradient: Float64, matrix: Float64, lowest: Float64) -> Float64:
    """The t in [lowest, 1] that maximizes gradient.t - 1/2 t' matrix t, coordinate by coordinate from 0."""
    t = np.zeros(len(gradient))
    for _ in range(MAX_SWEEPS):
        moved = 0.0
        for r in np.flatnonzero(np.diag(matrix) > 0.0).tolist():
            there = t[r] + (gradient[r] - matrix[r] @ t) / matrix[r, r]
            there = min(1.0, max(lowest[r], there))
            moved, t[r] = max(moved, abs(there - t[r])), there
        if moved <= STEP_TOLERANCE:
            break
    return t


def _box(problem: Problem, block: Block) -> tuple[Float64 | float, Float64 | float]:
    """The lower and upper ends of the boxes of the rows of a block, (n,) where there are any."""
    if not has_box(problem.loss):
        return (-np.inf if problem.loss.numeric() else 0.0), np.inf
    C = problem.C * block.s.astype(np.float64)
    return lower(problem.loss, 1.0) * C, problem.loss.upper(1.0) * C


def _shared(problem: Problem, block: Block) -> Float64:
    """The second direction, (n,): nothing where the conjugate is no parabola, of which no step is known that does not fall."""
    alpha, before, (bottom, top) = block.rows["alpha"], block.rows["before"], _box(problem, block)
    if not problem.loss.quadratic():
        return np.zeros(len(alpha))
    below, above = np.minimum(alpha, before), np.maximum(alpha, before)
    room = np.minimum(np.minimum(below - bottom, top - above), SHIFT_SHARE * problem.C * block.s.astype(np.float64))
    if problem.loss.numeric():  # both sides of the corner at 0 are no one parabola
        room = np.minimum(room, np.maximum(below, -above))
    found: Float64 = np.maximum(room, 0.0) * problem.task.signs(block.y)
    return found
