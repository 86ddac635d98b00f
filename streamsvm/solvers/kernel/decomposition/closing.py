"""The end of a pass: both bounds, and what is to be done next.

Either the pool is optimized further, or the support is collected, or f is computed anew in float64, or the support is
reduced to fewer points: whatever the certificate that was asked for still wants.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from streamsvm.errors import UsageError
from streamsvm.solvers.kernel.decomposition.model_rows import collected, reduce_support
from streamsvm.solvers.kernel.decomposition.pool_work import begin_work, working_coordinates
from streamsvm.solvers.kernel.decomposition.state import INTERCEPTS, DecompositionState
from streamsvm.solvers.kernel.pool import select
from streamsvm.solvers.kernel.rounding import enough_for, error_of_values, needed
from streamsvm.types import Certificate
from streamsvm.types.problem import has_box

if TYPE_CHECKING:
    from streamsvm.solvers.kernel.decomposition.solver import Decomposition

STALLED = 0.9
STALLED_SETS, STALLED_LEVELS, STALLED_POOLS = 5, 12, 40
"""It leads nowhere where the gap is still this share of what it was so many passes ago: with all rows in one working set, on
the levels of a pool, or with some of them in a pool."""
TINY = float(np.finfo(np.float64).tiny)


def close_pass(settings: Decomposition, state: DecompositionState) -> Certificate:
    """Close the pass: both bounds are exact for the present x; the next pool is made, to be solved in steps."""
    if state.reduced is None:
        state.support_size = state.support_met
        if state.collecting or settings.max_support:
            state.support = collected(state, settings.max_support)
    one_set = state.problem.rows <= working_coordinates(settings, state)
    violation, found = state.violation, _bounds(state)
    stalled = _stalled(state, found.primal, found.dual, one_set=one_set)
    found = replace(found, final=state.reduced is not None or stalled)
    if state.anew is not None:
        more = _after_anew(settings, state, found, violation)
    else:
        more, found = _after_pass(settings, state, found, violation)
    state.enough = enough_for(state.problem, found.primal, state.weight)
    state.clear_sums()
    state.collecting = more and state.reduced is None and state.anew is None
    return replace(found, exact=False) if more else found


def _bounds(state: DecompositionState) -> Certificate:
    """P with the best intercept that was tried, D, and what rounding may make of them; the next grid is set about that intercept."""
    values = state.losses + state.mass * state.shifts()
    best, violation, reduced = int(np.argmin(values)), state.violation, state.reduced
    square = state.square if reduced is None else state.reduced_square
    primal, dual = 0.5 * square + float(values[best]), state.dual - 0.5 * state.square
    if state.problem.nu is not None and state.weight == 0.0:
        # nothing is summed up yet: ||sum a_i phi_i|| <= nu S max ||phi||
        dual = -0.5 * state.mass**2 * _largest(state)
    rounding = state.rounding(best)
    if reduced is None:
        _check_bounded(state, dual, rounding)
    at_the_edge = best in {0, 2 * INTERCEPTS}  # it lies further out
    wide = 4.0 * state.reach if at_the_edge else 0.0
    state.intercept, state.reach = float(state.shifts()[best]), max(violation, wide, 1e-6)
    facts = {"violation": violation, "support": state.support_size, "points": reduced.size if reduced else None}
    return Certificate(primal, dual, facts=facts, rounding=rounding)


def _largest(state: DecompositionState) -> float:
    """An upper bound of k(x, x) over all rows."""
    assert state.problem.kernel is not None  # a kernel solver is given problems of one
    return 0.0 if state.largest is None else state.problem.kernel.largest(state.largest)


def _after_pass(
    settings: Decomposition, state: DecompositionState, found: Certificate, violation: float
) -> tuple[bool, Certificate]:
    """The pass was one over the f that moves have added up: whether another one is to look again, and what this one has shown."""
    tolerance, reduced = state.problem.tolerance, state.reduced
    doubtful = needed(state.problem, found.primal, found.rounding)
    close = found.primal - found.dual <= tolerance * abs(found.primal) if doubtful else found.gap <= tolerance
    last = state.collecting or state.stalled or close
    complete = bool(state.collecting or settings.max_support)
    more = _next(settings, state, violation, collected=complete, last=last)
    if last and not more and reduced is None and not state.ending:
        more = _doubted(settings, state) if doubtful else reduce_support(state, settings.max_support)
    if doubtful and not last and reduced is None:
        found = replace(found, exact=False, rounding=0.0)
    return more, found


def _doubted(settings: Decomposition, state: DecompositionState) -> bool:
    """Have f computed anew, if the whole support is known; whether it will be."""
    if state.support is None or state.support.size < state.support_size:
        return reduce_support(state, settings.max_support)
    state.anew = state.support
    return True


def _after_anew(settings: Decomposition, state: DecompositionState, found: Certificate, violation: float) -> bool:
    """The pass was one in which f was computed anew; whether another one is to look again."""
    everywhere, state.everywhere = state.everywhere, False
    support, state.anew = state.anew, None
    state.form = state.exact_form()
    error = error_of_values(state.form, state.largest, state.support_size, state.weight)
    if found.gap <= state.problem.tolerance or found.final:
        state.drift = error  # where x is not 0, which is all that still counts
        return reduce_support(state, settings.max_support)
    if everywhere:
        state.drift = error
        begin_work(settings, state, violation)
    else:
        state.anew, state.everywhere = support, True
    return False


def _next(settings: Decomposition, state: DecompositionState, violation: float, *, collected: bool, last: bool) -> bool:
    """Improve x, or see to the model; whether the certificate of this pass is not yet that of the model."""
    if state.reduced is not None:
        return False
    if not last:
        begin_work(settings, state, violation)
        return False
    pool, state.pool, state.moved = state.pool, None, None
    if pool is not None and pool.size == state.problem.rows:
        state.support = select(pool, np.flatnonzero(pool.x))
        return False
    return not collected


def _check_bounded(state: DecompositionState, dual: float, rounding: float) -> None:
    """Raise UsageError where D grows for ever along the ray t x, t > 0, because of a kernel that is not positive semidefinite.

    Without bounds above, the ray keeps to all constraints, and D(t x) = t sum a_i (1 - conjugate'(0)) - t^2 Q. Q, which ridges
    make larger, is above 0 unless D is beyond its first term.
    """
    p = state.problem
    assert p.kernel is not None  # a kernel solver is given problems of one
    if p.kernel.positive_semidefinite() or has_box(p.loss) or p.loss.numeric():
        return
    if not dual > state.weight * (1.0 - p.loss.conjugate_slope(0.0, p.C)) + rounding:
        return
    raise UsageError(
        f"the fit with C = {p.C:g} has no optimum: the kernel {p.kernel} is not positive semidefinite on these rows, and "
        f"nothing bounds the coefficients of {p.loss}, which grow for ever",
        hint="choose another kernel (rbf, laplacian), the hinge, whose coefficients are bounded, or a smaller C",
    )


def _stalled(state: DecompositionState, primal: float, dual: float, *, one_set: bool) -> bool:
    """Whether pools lead nowhere, a pass of these bounds included; once that is so it stays so."""
    whole = state.pool is not None and state.pool.size == state.problem.rows
    passes = (STALLED_SETS if one_set else STALLED_LEVELS) if whole else STALLED_POOLS
    least = 0.0 if state.problem.nu is None else dual
    gap = (primal - max(dual, least)) / max(abs(primal), TINY)
    state.gaps.append(gap)
    state.stalled = state.stalled or (len(state.gaps) > passes and gap > STALLED * state.gaps[-1 - passes])
    return state.stalled
