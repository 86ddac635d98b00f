"""What a stochastic solver can prove in O(d) memory: a candidate for the primal, an average of points for the dual.

**Dual.** Let every row be met once in a pass, with a margin m_i, and b_i = -s_i l'(m_i). Then a_i = C b_i is feasible,
so is any convex combination of the points of several passes, and the value of one follows from three sums over the
pass: v = sum a_i y_i x_i, linear and quadratic (``compute.passes.certificate``), the conjugate being convex. The mean kept here
gives pass t a weight of about t^5: what the first, poor passes said is soon forgotten. (The plain mean is what
Panagiotakopoulos and Tsampouka, arXiv:1304.6383, certify with. After 40 passes its gap is four times as wide.)

**Primal.** While w moves P(w) can only be estimated, from the losses met on the way. The mean of w over the passes,
weighted alike, is the candidate; it is evaluated exactly while the next pass trains, so that no reading is spent on it:
when the estimate is good enough, and, because the mean is often far better than the w it is made of, at passes 1, 2, 3
... in growing distances besides.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf

import numpy as np

from streamsvm.compute.blocks.sums import loss_sum
from streamsvm.compute.passes.certificate import RowLoss, certify_pass, scaled_dual
from streamsvm.losses import round_corners, threshold
from streamsvm.rows import Float64
from streamsvm.tags import saved_as
from streamsvm.types import Block, Certificate, Loss, Problem

AVERAGING_POWER = 5
"""eta of the means over passes (Shamir and Zhang, ICML 2013, section 4): pass t weighs about t^eta."""
EVALUATION_MARGIN = 1.2
"""An exact evaluation is due when the estimated gap is at most this many tolerances (the value of 1304.6383)."""
EVALUATION_SPACING = 1.25
"""It is due at the latest when there are this many times as many passes as at the last one; sooner when the gap found
there, falling as one over the passes, is to be small enough sooner."""
CORNER_WIDTH = 0.1
"""Half the width of the rounded corner whose slopes give a dual point of the hinge, in margins."""


@saved_as("averaged.certificate")
@dataclass(slots=True)
class AveragedCertificate:
    """Arrays (columns + 1,) float64; sums are those of the pass under way."""

    problem: Problem
    """What is solved: loss, C, the number of rows and columns, the weights to start from."""
    candidate: Float64
    """The weights that are evaluated next; the solver moves them when it closes a pass, after ``certificate_of``."""
    best: Float64
    """The candidate of least exact primal, which is ``primal``."""
    v: Float64
    """Mean over passes of sum a_i y_i x_i, whose dual value the next two complete; of slopes the pass's own sum."""
    linear: float = 0.0
    """The part of sum t a_i - conjugate(t a_i) that grows as t; averaged or summed like ``v``."""
    quadratic: float = 0.0
    """The part that falls as t^2; averaged or summed like ``v``."""
    dual: float = 0.0
    """The largest proven value; 0 is that of a = 0."""
    primal: float = inf
    """The least exact P of a candidate, that of ``best``; inf until one was evaluated."""
    losses: float = 0.0
    """sum C s_i l(m_i) of the candidate over the rows met in the pass, if it evaluates; else 0."""
    passes: int = 0
    """Passes that trained; one that only evaluates is not counted."""
    next_trial: float = 2.0
    """The number of passes at which the candidate is evaluated at the latest, whatever the estimate."""
    certifying: bool = False
    """Whether this pass evaluates the candidate."""
    ending: bool = False
    """Whether this pass does nothing else."""


def averaged_certificate_for(problem: Problem) -> AveragedCertificate:
    """Nothing but w = 0 and a = 0; of a warm start the first pass evaluates the weights."""
    zero = np.zeros(problem.columns + 1)
    return AveragedCertificate(problem, problem.first_weights(), zero, zero.copy(), certifying=problem.warm is not None)


def share_of(passes: int) -> float:
    """The weight of the last of so many passes in the means."""
    return (AVERAGING_POWER + 1) / (passes + AVERAGING_POWER)


def evaluate(averaged: AveragedCertificate, block: Block) -> None:
    """Add a block's exact losses of the candidate, if that is what the pass is for."""
    if averaged.certifying:
        p = averaged.problem
        averaged.losses += loss_sum(block.X, block.y, block.s, averaged.candidate, p.C, p.loss)


def slopes_of(loss: Loss) -> Loss:
    """The loss whose slopes give dual points of ``loss``: itself, or where it has a corner a rounded one."""
    return round_corners(loss, CORNER_WIDTH * threshold(loss))


def evaluate_slopes(averaged: AveragedCertificate, block: Block) -> None:
    """The same, and a dual point from the slopes at the candidate: for passes that do not meet every row once."""
    if not averaged.certifying:
        return
    p = averaged.problem
    cost = RowLoss(p.C, p.loss, slopes_of(p.loss))
    losses, linear, quadratic = certify_pass(block.labeled, averaged.candidate, cost, averaged.v)
    averaged.losses += losses
    averaged.linear += linear
    averaged.quadratic += quadratic


def take_slopes(averaged: AveragedCertificate) -> None:
    """Bound the optimum by what ``evaluate_slopes`` summed, and forget the sums."""
    raise_dual(averaged, averaged.v, averaged.linear, averaged.quadratic)
    averaged.v[:] = 0.0
    averaged.linear = averaged.quadratic = 0.0


def take_pass(averaged: AveragedCertificate, v: Float64, linear: float, quadratic: float) -> None:
    """Bound the optimum by the mean over passes, this one's sums included."""
    share = share_of(averaged.passes)
    averaged.v += share * (v - averaged.v)
    averaged.linear += share * (linear - averaged.linear)
    averaged.quadratic += share * (quadratic - averaged.quadratic)
    raise_dual(averaged, averaged.v, averaged.linear, averaged.quadratic)


def raise_dual(averaged: AveragedCertificate, v: Float64, linear: float, quadratic: float) -> None:
    """Keep the value of a dual point, best scaled, if it is the largest so far."""
    value = scaled_dual(averaged.problem.loss, linear, quadratic, float(v @ v))
    averaged.dual = max(averaged.dual, value)


def certificate_of(averaged: AveragedCertificate, estimate: float) -> Certificate:
    """Close the pass: the exact certificate if there is one, and whether the next pass is to give one.

    ``estimate`` is the primal as estimated in this pass. To be called before the candidate is moved.
    """
    certificate = Certificate(estimate, averaged.dual, exact=False)
    due = certificate.gap <= EVALUATION_MARGIN * averaged.problem.tolerance
    if averaged.certifying:
        primal = 0.5 * float(averaged.candidate @ averaged.candidate) + averaged.losses
        if primal < averaged.primal:
            averaged.primal = primal
            averaged.best[:] = averaged.candidate
        certificate = Certificate(averaged.primal, averaged.dual)
        wanted = averaged.problem.tolerance
        spacing = min(EVALUATION_SPACING, certificate.gap / wanted) if wanted else EVALUATION_SPACING
        averaged.next_trial = averaged.passes * spacing
    averaged.losses = 0.0
    averaged.certifying = due or averaged.passes + 1 >= averaged.next_trial
    return certificate


def merged(parts: list[AveragedCertificate], *, slopes: bool = False) -> AveragedCertificate:
    """One of several copies that each saw some of the rows of a pass: the sums added up, ``slopes``' too if asked."""
    whole = replace(parts[0], losses=sum(part.losses for part in parts))
    if slopes:
        whole.v = sum((part.v for part in parts[1:]), parts[0].v)
        whole.linear = sum(part.linear for part in parts)
        whole.quadratic = sum(part.quadratic for part in parts)
    return whole
