"""auto leaves coordinate descent where it stalls, for second order, and says so.

A solver stalls where the least gap of its last PASSES passes is not a tenth below the least one before them. Second order begins
anew, with as many rows as the memory has room for: weights of a descent that stalled, on raw columns mostly, are farther from
the optimum than those of a small sample. What descent held is given back before, so that the plan of second order need only
fit the limit by itself. Kernel features, --dual, --validation and clusters stay with what they began with.
"""

from __future__ import annotations

from dataclasses import replace

from streamsvm.aliases import JsonObject
from streamsvm.config.units import percent
from streamsvm.engine.training import Training
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.planning.plan import Plan, plan_with
from streamsvm.solvers.interior_point_multinomial import WORK, step_work
from streamsvm.types import Store

STALLED, PASSES = 0.9, 20
"""A gap that is no less than this share of what it was so many passes ago. On texts descent halves it in five."""
LEFT, NEXT, OF_ALL_CLASSES = "dcd", "newton", "interior_point"
"""The solver that is left, and those it is left for: of most problems, and of all classes in one."""
MOST_WORK = 50.0 * WORK
"""Multiplications of a step of the latter, beyond which descent is not left for it."""


def successor(job: FitJob, store: Store, plan: Plan) -> Plan | None:
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


def stalled(training: Training) -> bool:
    """Whether the solver gets nowhere, by the gaps after all its passes."""
    gaps = training.gaps
    return len(gaps) > PASSES and min(gaps[-PASSES:]) > STALLED * min(gaps[:-PASSES])


def left_event(training: Training, following: Plan) -> JsonObject:
    """What the record and the terminal are told: which solver was left, after how many passes, why, and for which."""
    gap, before = min(training.gaps), min(training.gaps[:-PASSES])
    why = f"its gap is {percent(gap)} after {training.passes} passes, {percent(before)} {PASSES} passes before"
    return {"event": "left", "solver": LEFT, "pass": training.passes, "next": following.solver_name, "why": why}
