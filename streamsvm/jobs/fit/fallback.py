"""What a fit goes on with where its solver, or its features, are not good enough: another solver, or features in
float64.

**Another solver.** ``auto`` falls back from dual coordinate descent to second order when descent stalls: when the
least gap so far has stalled over STALL_PASSES passes (``solvers.stalling``). Second order begins from
scratch, with as many rows as the memory has room for: weights of a descent that stalled, on raw columns mostly, are
farther from the optimum than those of a small sample. The memory of descent is freed before, so that the plan of
second order need only fit the limit by itself. Kernel features, --dual, --validation and clusters stay with the solver
they began with.

**Features in float64.** The map of kernel features is made in float32, whose rounding a small eigenvalue of the
landmarks' matrix makes large. Kernel values in float32 are off by some e = 1e-7, and with f(x) = b.k(x), b = W w,
decision values by dm, about e ||b||, which grows with C. So do the losses at the weights a solver ends with, by sum_i
a_i dm, and its dual variables, slopes over a corner of half width mu, move by C dm / 2 mu: what it has proved of its
features is not true of the model, which is evaluated in float64. No bound that is known before the training says by how
much without being hundreds of times too careful, as ||b|| depends on the labels. The last evaluation says it: where the
gap of the model is wider than the one the solver has closed by more than was left for rounding (``plan.ROOM`` of the
tolerance), and for that reason not the one asked for, the fit goes on from its weights with features in float64, in a
plan that counts 8 bytes an entry. So it does where a solver stalls that is shown factored pairs: a row it forms in
float32 is then not the row it is shown, by as much as dm.

The fit ends with what it has where float64 does not fit the memory, where less time, or fewer passes, are left than
were spent, as as many may be needed again, and with --validation, which chooses weights by other things than
certificates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

from streamsvm.aliases import JsonObject
from streamsvm.config.units import percent
from streamsvm.engine.fit_state import Training
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.plan import ROOM, Plan, plan_with, start_where_ended, with_map
from streamsvm.solvers.interior_point_multinomial import WORK, step_work
from streamsvm.solvers.stalling import has_stalled
from streamsvm.types import Certificate, Status, Store

STALL_PASSES = 20
"""Passes over which a stall is judged. On texts descent halves its gap in five."""
STALLING, SECOND_ORDER, SECOND_ORDER_OF_ALL_CLASSES = "dcd", "newton", "interior_point"
"""The solver that may stall, and those that replace it: for most problems, and for all classes in one problem."""
MAX_STEP_WORK = 50.0 * WORK
"""Multiplications of a step for all classes in one problem, beyond which descent is kept."""
FLOAT64 = "float64"
"""The name of features in float64 in events and in the identity of a run."""
RESERVE = 2
"""Features in float64 are made where this many times what was spent is within the limits: as much may be needed again."""


def plan_fallback(job: FitJob, store: Store, plan: Plan) -> Plan | None:
    """Return the plan to go on with where the solver stalls; None where there is none, or none that fits the memory."""
    other = job.dual or job.validation is not None or job.cluster is not None or plan.request is not None
    if job.solver != "auto" or plan.solver_name != STALLING or other or job.kernel != "linear":
        return None
    first = plan.problems[0]
    classes = first.kind.classes
    if classes and step_work(first.rows, first.columns, classes) > MAX_STEP_WORK:
        return None
    found = plan_with(replace(job, solver=SECOND_ORDER_OF_ALL_CLASSES if classes else SECOND_ORDER), store)
    why = f"{STALLING} had stalled: second order"
    return replace(found, why=why) if found.memory.total <= found.memory.limit else None


def has_solver_stalled(training: Training) -> bool:
    """Return whether the solver makes no progress, by the least gap so far after each of its passes."""
    return has_stalled(list(accumulate(training.gaps, min)), STALL_PASSES)


def fallback_event(training: Training, following: Plan) -> JsonObject:
    """Return the event that says which solver stalled, after how many passes, why, and which one follows."""
    gap, before = min(training.gaps), min(training.gaps[:-STALL_PASSES])
    why = f"its gap is {percent(gap)} after {training.passes} passes, {percent(before)} {STALL_PASSES} passes before"
    return {"event": "left", "solver": STALLING, "pass": training.passes, "next": following.solver_name, "why": why}


def plan_in_float64(job: FitJob, store: Store, plan: Plan) -> Plan:
    """Return the plan of a fit with its kernel features in float64, by the same solver; the map is not made yet."""
    found = plan_with(replace(job, solver=plan.solver_name), store, exact=True)
    return replace(found, why=f"{plan.why}; features in float64")


def plan_finer_features(job: FitJob, store: Store, plan: Plan) -> Plan | None:
    """Return the plan to go on with where features in float32 are too coarse; None where the fit keeps them."""
    request = plan.request
    if request is None or request.exact or job.validation is not None:
        return None
    if not plan.sees_features_of_map:
        return None  # features of few bits on disk were asked for
    found = plan_in_float64(job, store, plan)
    return found if found.memory.total <= found.memory.limit else None


def may_stall_on_features(plan: Plan) -> bool:
    """Return whether a solver may stall on features in float32: the rows it forms of factored pairs differ from those
    it is shown.
    """
    return plan.request is not None and plan.request.factored


def is_too_coarse(plan: Plan, training: Training, closed: Sequence[Certificate | None]) -> bool:
    """Return whether features in float32 are why a training is not certified; ``closed``: certificates of the last
    pass.
    """
    if training.status != Status.STALLED:
        return False
    pairs = [(run.certificate, before) for run, before in zip(training.runs, closed, strict=True)]
    known = [(found.gap, max(before.gap, 0.0)) for found, before in pairs if found is not None and before is not None]
    return any(after > plan.tolerance and after - before > ROOM * plan.tolerance for after, before in known)


def has_enough_left(job: FitJob, training: Training, spent: float) -> bool:
    """Return whether as many passes and as much time, ``spent`` seconds, are left as were spent."""
    return RESERVE * spent <= job.time_limit and RESERVE * training.passes <= job.max_passes


def continue_with(found: Plan, plan: Plan, training: Training) -> Plan:
    """Return the plan ``found`` with the map that is made already, from the weights where a training by ``plan``
    ended.
    """
    from streamsvm.features.nystrom import Embedded, Nystrom
    from streamsvm.jobs.embed.landmarks import map_of

    features = plan.features
    assert isinstance(features, Nystrom | Embedded)  # ``plan_finer_features`` checks it
    assert found.request is not None
    return start_where_ended(with_map(found, map_of(found.request, features.projection)), plan, training)


def float64_event(plan: Plan, training: Training, closed: Sequence[Certificate | None]) -> JsonObject:
    """Return the event that says that features are made in float64 from here on, and why."""
    found = max(run.certificate.gap for run in training.runs if run.certificate is not None)
    proved = max((certificate.gap for certificate in closed if certificate is not None), default=found)
    why = f"the gap is {percent(proved)} of features in float32, {percent(found)} of the model"
    if not closed:
        why = f"{plan.solver_name} stalls at a gap of {percent(found)} on those in float32"
    return {"event": "features", "pass": training.passes, "arithmetic": FLOAT64, "why": why}
