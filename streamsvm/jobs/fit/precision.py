"""Kernel features in float64, for a fit whose certificate those in float32 are too coarse for: when, and with which plan.

Kernel values in float32 are off by some e = 1e-7, and with f(x) = b.k(x), b = W w, decision values by dm, about e ||b||, which
grows with C. So do the losses at the weights a solver ends with, by sum_i a_i dm, and its dual variables, slopes over a corner
of half width mu, move by C dm / 2 mu: what it has proved of its features is not true of the model, which is evaluated in
float64. No bound that is known before the training says by how much without being hundreds of times too careful, as ||b||
depends on the labels. The last evaluation says it: where the gap of the model is wider than the one the solver
has closed by more than what was left for rounding (``plan.ROOM`` of the tolerance), and for that reason not the one asked for, the
fit goes on from its weights with features in float64, in a plan that counts 8 bytes an entry. So it does where a solver stalls that
is shown factored pairs: a row it forms in float32 is then not the row it is shown, by as much as dm.

It stays with what it has where that does not fit the memory, where less time, or fewer passes, are left than were spent, as
as many may be needed again, and with --validation, which chooses weights by other things than certificates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from streamsvm.aliases import JsonObject
from streamsvm.config.units import percent
from streamsvm.engine.training import Training
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.planning.kernel_features import with_map
from streamsvm.jobs.fit.planning.plan import ROOM, Plan, plan_with, starting_there
from streamsvm.types import Certificate, Status, Store

FLOAT64 = "float64"
"""What events, and the identity of a run, call it."""
TWICE = 2


def in_float64(job: FitJob, store: Store, plan: Plan) -> Plan:
    """Return the plan of a fit with its kernel features in float64, by the same solver; the map is not made yet."""
    found = plan_with(replace(job, solver=plan.solver_name), store, exact=True)
    return replace(found, why=f"{plan.why}; features in float64")


def finer_plan(job: FitJob, store: Store, plan: Plan) -> Plan | None:
    """Return the plan to go on with where features in float32 are too coarse; None where the fit is to stay with what it has."""
    request = plan.request
    if request is None or request.exact or job.validation is not None:
        return None
    if not plan.sees_features_of_map:
        return None  # what few bits have left of the features is what was asked for
    found = in_float64(job, store, plan)
    return found if found.memory.total <= found.memory.limit else None


def stalls_on(plan: Plan) -> bool:
    """Whether a solver may stall on features in float32: where it is shown pairs, the rows it forms are not quite those it is shown."""
    return plan.request is not None and plan.request.factored


def too_coarse(plan: Plan, training: Training, closed: Sequence[Certificate | None]) -> bool:
    """Whether features in float32 are why a training is not certified; ``closed``: what the solver had proved of them."""
    if training.status != Status.STALLED:
        return False
    pairs = [(run.certificate, before) for run, before in zip(training.runs, closed, strict=True)]
    known = [(found.gap, max(before.gap, 0.0)) for found, before in pairs if found is not None and before is not None]
    return any(after > plan.tolerance and after - before > ROOM * plan.tolerance for after, before in known)


def enough_left(job: FitJob, training: Training, spent: float) -> bool:
    """Whether there is as much left of passes and of time as was spent, ``spent`` seconds: as much may be needed again."""
    return TWICE * spent <= job.time_limit and TWICE * training.passes <= job.max_passes


def going_on(found: Plan, plan: Plan, training: Training) -> Plan:
    """Return the plan ``found`` with the map there is, from the weights a training by ``plan`` has come to."""
    from streamsvm.features.nystrom import Embedded, Nystrom
    from streamsvm.jobs.embed.kernel_map import map_of

    features = plan.features
    assert isinstance(features, Nystrom | Embedded)  # ``finer_plan`` has seen to it
    assert found.request is not None
    return starting_there(with_map(found, map_of(found.request, features.projection)), plan, training)


def finer_event(plan: Plan, training: Training, closed: Sequence[Certificate | None]) -> JsonObject:
    """What the record and the terminal are told: that features are made in float64 from here on, and why."""
    found = max(run.certificate.gap for run in training.runs if run.certificate is not None)
    proved = max((certificate.gap for certificate in closed if certificate is not None), default=found)
    why = f"the gap is {percent(proved)} of features in float32, {percent(found)} of the model"
    if not closed:
        why = f"{plan.solver_name} stalls at a gap of {percent(found)} on those in float32"
    return {"event": "features", "pass": training.passes, "arithmetic": FLOAT64, "why": why}
