"""auto leaves coordinate descent where it stalls, for second order, and says so.

A solver stalls where the least gap of its last PASSES passes is not a tenth below the least one before them. Second order begins
anew, with as many rows as the memory has room for: weights of a descent that stalled, on raw columns mostly, are farther from
the optimum than those of a small sample. What descent held is given back before, so that the plan of second order need only
fit the limit by itself. Kernel features, --dual, --validation and clusters stay with what they began with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from streamsvm.aliases import JsonObject
from streamsvm.config.units import percent
from streamsvm.engine.training import Training
from streamsvm.jobs.fit.job import FitJob
from streamsvm.jobs.fit.plan import ROOM, Plan, plan_with, start_where_ended, with_map
from streamsvm.solvers.interior_point_multinomial import WORK, step_work
from streamsvm.types import Certificate, Status, Store

STALLED, PASSES = 0.9, 20
"""A gap that is no less than this share of what it was so many passes ago. On texts descent halves it in five."""
LEFT, NEXT, OF_ALL_CLASSES = "dcd", "newton", "interior_point"
"""The solver that is left, and those it is left for: of most problems, and of all classes in one."""
MOST_WORK = 50.0 * WORK
"""Multiplications of a step of the latter, beyond which descent is not left for it."""


def plan_fallback(job: FitJob, store: Store, plan: Plan) -> Plan | None:
    """The plan a fit goes on with where its solver stalls; None where it is to stay, or nothing else fits the memory."""
    other = job.dual or job.validation is not None or job.cluster is not None or plan.request is not None
    if job.solver != "auto" or plan.solver_name != LEFT or other or job.kernel != "linear":
        return None
    first = plan.problems[0]
    if first.classes and step_work(first.rows, first.columns, first.classes) > MOST_WORK:
        return None
    found = plan_with(replace(job, solver=OF_ALL_CLASSES if first.classes else NEXT), store)
    why = f"{LEFT} had stalled: second order"
    return replace(found, why=why) if found.memory.total <= found.memory.limit else None


def has_stalled(training: Training) -> bool:
    """Whether the solver gets nowhere, by the gaps after all its passes."""
    gaps = training.gaps
    return len(gaps) > PASSES and min(gaps[-PASSES:]) > STALLED * min(gaps[:-PASSES])


def fallback_event(training: Training, following: Plan) -> JsonObject:
    """What the record and the terminal are told: which solver was left, after how many passes, why, and for which."""
    gap, before = min(training.gaps), min(training.gaps[:-PASSES])
    why = f"its gap is {percent(gap)} after {training.passes} passes, {percent(before)} {PASSES} passes before"
    return {"event": "left", "solver": LEFT, "pass": training.passes, "next": following.solver_name, "why": why}


FLOAT64 = "float64"
"""What events, and the identity of a run, call it."""
TWICE = 2


def plan_in_float64(job: FitJob, store: Store, plan: Plan) -> Plan:
    """Return the plan of a fit with its kernel features in float64, by the same solver; the map is not made yet."""
    found = plan_with(replace(job, solver=plan.solver_name), store, exact=True)
    return replace(found, why=f"{plan.why}; features in float64")


def plan_finer_features(job: FitJob, store: Store, plan: Plan) -> Plan | None:
    """Return the plan to go on with where features in float32 are too coarse; None where the fit is to stay with what it has."""
    request = plan.request
    if request is None or request.exact or job.validation is not None:
        return None
    if not plan.sees_features_of_map:
        return None  # what few bits have left of the features is what was asked for
    found = plan_in_float64(job, store, plan)
    return found if found.memory.total <= found.memory.limit else None


def may_stall_on_features(plan: Plan) -> bool:
    """Whether a solver may stall on features in float32: where it is shown pairs, the rows it forms are not quite those it is shown."""
    return plan.request is not None and plan.request.factored


def is_too_coarse(plan: Plan, training: Training, closed: Sequence[Certificate | None]) -> bool:
    """Whether features in float32 are why a training is not certified; ``closed``: what the solver had proved of them."""
    if training.status != Status.STALLED:
        return False
    pairs = [(run.certificate, before) for run, before in zip(training.runs, closed, strict=True)]
    known = [(found.gap, max(before.gap, 0.0)) for found, before in pairs if found is not None and before is not None]
    return any(after > plan.tolerance and after - before > ROOM * plan.tolerance for after, before in known)


def has_enough_left(job: FitJob, training: Training, spent: float) -> bool:
    """Whether there is as much left of passes and of time as was spent, ``spent`` seconds: as much may be needed again."""
    return TWICE * spent <= job.time_limit and TWICE * training.passes <= job.max_passes


def continue_with(found: Plan, plan: Plan, training: Training) -> Plan:
    """Return the plan ``found`` with the map there is, from the weights a training by ``plan`` has come to."""
    from streamsvm.features.nystrom import Embedded, Nystrom
    from streamsvm.jobs.embed.kernel_map import map_of

    features = plan.features
    assert isinstance(features, Nystrom | Embedded)  # ``plan_finer_features`` has seen to it
    assert found.request is not None
    return start_where_ended(with_map(found, map_of(found.request, features.projection)), plan, training)


def float64_event(plan: Plan, training: Training, closed: Sequence[Certificate | None]) -> JsonObject:
    """What the record and the terminal are told: that features are made in float64 from here on, and why."""
    found = max(run.certificate.gap for run in training.runs if run.certificate is not None)
    proved = max((certificate.gap for certificate in closed if certificate is not None), default=found)
    why = f"the gap is {percent(proved)} of features in float32, {percent(found)} of the model"
    if not closed:
        why = f"{plan.solver_name} stalls at a gap of {percent(found)} on those in float32"
    return {"event": "features", "pass": training.passes, "arithmetic": FLOAT64, "why": why}
