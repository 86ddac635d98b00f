"""What a pass has proven: f(a) and the simplex gap over all rows, and the primal and dual values of the model t a."""

from __future__ import annotations

from streamsvm.aliases import JsonObject
from streamsvm.losses import threshold
from streamsvm.solvers.kernel.rounding import SHARE, bound_rounding, certified_form
from streamsvm.solvers.kernel.simplex.state import SimplexState
from streamsvm.types import Certificate, Problem


def certificate_of(state: SimplexState, epsilon: float) -> Certificate:
    """Return what the sums of a pass prove of the model, and note in the state what they say of a; before ``close``.

    ``epsilon``: the simplex gap that ends the run by itself.
    """
    f, reduced = 0.5 * (state.square + state.ridge), state.reduced
    if state.support is None:
        return Certificate(float(state.losses[0]), 0.0)
    t, gap = state.dual_scale(), 2.0 * f - state.lowest
    blurred = abs(f - state.f) > SHARE * state.problem.tolerance * f
    if blurred and state.passes > 1:  # the method has seen another f of the same a
        state.form = certified_form(state.form, state.reach)
    state.gap, state.f, state.scale = gap, f, t
    facts: JsonObject = {
        "simplex_gap": gap,
        "seen_gap": state.seen,
        "f": f,
        "support": state.support.size,
        "iterations": state.iterations,
    }
    facts |= {"points": None if reduced is None else reduced.size, "trajectory": state.trajectory}
    state.trajectory = []
    half = 0.5 * (t * t * state.square if reduced is None else state.reduced_square)
    met = bool(gap <= epsilon or state.stopped or reduced is not None)
    dual = threshold(state.problem.loss) * t - t * t * f
    rounding = bound_rounding(
        state.problem,
        state.error,
        t,
        t * t * state.absolute,
        (float(state.losses[0]), float(state.upper_losses[0])),
    )
    return Certificate(half + float(state.losses[0]), dual, final=met, facts=facts, rounding=rounding)


def reached(certificate: Certificate, problem: Problem) -> bool:
    """Whether primal and dual, rounding apart, are as close as was asked."""
    return certificate.primal - certificate.dual <= problem.tolerance * abs(certificate.primal)
