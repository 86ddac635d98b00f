"""Plan the fallback of a fit: another solver if the first one stalls, or float64 features if float32 is too inaccurate.

**Another solver.** ``auto`` falls back from dual coordinate descent to second order when descent stalls, that is, when
the smallest gap so far has stalled over STALL_PASSES passes (``solvers.stalling``). Second order starts from zero, with
as many rows as fit the memory: the weights of a stalled descent, usually on unscaled columns, are farther from the
optimum than those of a small sample. The memory of descent is freed first, so that second order alone must fit the
limit. Fits with kernel features, --dual, --validation or a cluster keep their first solver.

**Features in float64.** The map to kernel features is computed in float32, and a small eigenvalue of the landmarks'
kernel matrix makes its rounding error large. Kernel values in float32 have errors of some e = 1e-7. With f(x) = b.k(x)
and b = W w, decision values then have errors dm of about e ||b||, which grow with C. At the solver's final weights the
sum of losses changes by sum_i a_i dm, and the dual variables, which are loss derivatives over a kink of half-width mu,
change by C dm / 2 mu. A certificate for the solver's features therefore need not hold for the model, which is evaluated
in float64. No bound known before the training predicts these errors without being hundreds of times too large, because
||b|| depends on the labels. They are known after the final evaluation. If the gap of the model is above the tolerance,
and exceeds the gap of the solver's last pass by more than was reserved for rounding error (``plan.ROUNDING_RESERVE``
times the tolerance), the fit continues from its weights with float64 features, in a plan with 8 bytes per entry. It
does so, too, if a solver that gets blocks as low-rank factors stalls: its decision value of a row that it forms in
float32 differs by up to dm from that of the row in the block.

The fit keeps its result if float64 features do not fit the memory; if less time, or fewer passes, are left than were
used, as the second training may need as many; and with --validation, where held-out rows choose the weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

from streamsvm.config.units import percent
from streamsvm.engine.fit_state import Training
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.plan import ROUNDING_RESERVE, Plan, plan_with, warm_start_from_training, with_map
from streamsvm.solvers.interior_point_multinomial import WORK, step_work
from streamsvm.solvers.stalling import has_stalled
from streamsvm.type_aliases import JsonObject
from streamsvm.types import Certificate, Status, Store

STALL_PASSES = 20
"""The number of passes over which progress is measured. On text data descent halves its gap in five passes."""
STALLING_SOLVER, FALLBACK, FALLBACK_CRAMMER_SINGER = "dcd", "newton", "interior_point"
"""The solver that may stall, its replacement, and its replacement for Crammer-Singer problems."""
MAX_STEP_WORK = 50.0 * WORK
"""Multiplications per step of the Crammer-Singer fallback above which descent is kept."""
FLOAT64 = "float64"
"""The name of float64 features in events and in the identity of a run."""
LIMIT_FACTOR = 2
"""A second training, on float64 features, begins only if this multiple of the time and passes used so far is within the
limits."""


def plan_fallback(job: FitJob, store: Store, plan: Plan) -> Plan | None:
    """Return the plan with the solver to use if the first one stalls; None if there is none, or if it does not fit the
    memory.
    """
    keeps_solver = job.dual or job.validation is not None or job.cluster is not None or plan.request is not None
    if job.solver != "auto" or plan.solver_name != STALLING_SOLVER or keeps_solver or job.kernel != "linear":
        return None
    first = plan.problems[0]
    classes = first.kind.classes
    if classes and step_work(first.rows, first.columns, classes) > MAX_STEP_WORK:
        return None
    fallback = plan_with(replace(job, solver=FALLBACK_CRAMMER_SINGER if classes else FALLBACK), store)
    why = f"{STALLING_SOLVER} had stalled: second order"
    return replace(fallback, why=why) if fallback.memory.total <= fallback.memory.limit else None


def has_solver_stalled(training: Training) -> bool:
    """Return whether the smallest gap so far has stalled over the last passes."""
    return has_stalled(list(accumulate(training.gaps, min)), STALL_PASSES)


def fallback_event(training: Training, fallback_plan: Plan) -> JsonObject:
    """Return the event of a fallback: the solver that stalled, after how many passes, why, and the next solver."""
    gap, before = min(training.gaps), min(training.gaps[:-STALL_PASSES])
    why = f"its gap is {percent(gap)} after {training.passes} passes, {percent(before)} {STALL_PASSES} passes before"
    return {
        "event": "left",
        "solver": STALLING_SOLVER,
        "pass": training.passes,
        "next": fallback_plan.solver_name,
        "why": why,
    }


def plan_in_float64(job: FitJob, store: Store, plan: Plan) -> Plan:
    """Return the plan with the same solver on float64 kernel features; the map is not built yet."""
    float64_plan = plan_with(replace(job, solver=plan.solver_name), store, exact=True)
    return replace(float64_plan, why=f"{plan.why}; features in float64")


def plan_float64_fallback(job: FitJob, store: Store, plan: Plan) -> Plan | None:
    """Return the plan to use if float32 features are too inaccurate; None if there is none, or if it does not fit the
    memory.
    """
    request = plan.request
    if request is None or request.exact or job.validation is not None:
        return None
    if not plan.sees_features_of_map:
        return None  # the user chose quantized features on disk
    fallback = plan_in_float64(job, store, plan)
    return fallback if fallback.memory.total <= fallback.memory.limit else None


def may_stall_on_features(plan: Plan) -> bool:
    """Return whether float32 features may make the solver stall: rows that it forms from low-rank factors differ from
    those in the blocks.
    """
    return plan.request is not None and plan.request.factored


def is_too_coarse(plan: Plan, training: Training, pass_certificates: Sequence[Certificate | None]) -> bool:
    """Return whether float32 features are the reason why a training is not certified.

    ``pass_certificates``: the certificates of the solver's last pass, before the final evaluation.
    """
    if training.status != Status.STALLED:
        return False
    pairs = [(run.certificate, before) for run, before in zip(training.runs, pass_certificates, strict=True)]
    gaps = [(final.gap, max(before.gap, 0.0)) for final, before in pairs if final is not None and before is not None]
    return any(final > plan.tolerance and final - before > ROUNDING_RESERVE * plan.tolerance for final, before in gaps)


def has_enough_left(job: FitJob, training: Training, seconds_spent: float) -> bool:
    """Return whether at least as much time and as many passes are left as were used."""
    return LIMIT_FACTOR * seconds_spent <= job.time_limit and LIMIT_FACTOR * training.passes <= job.max_passes


def continue_in_float64(float64_plan: Plan, plan: Plan, training: Training) -> Plan:
    """Return ``float64_plan`` with the map of ``plan``, warm-started from the result of a training by ``plan``."""
    from streamsvm.features.nystrom import Embedded, Nystrom
    from streamsvm.jobs.embed.landmarks import map_from_projection

    features = plan.features
    assert isinstance(features, Nystrom | Embedded)  # ``plan_float64_fallback`` checks it
    request = float64_plan.request
    assert request is not None
    return warm_start_from_training(
        with_map(float64_plan, map_from_projection(request, features.projection)), plan, training
    )


def float64_event(plan: Plan, training: Training, pass_certificates: Sequence[Certificate | None]) -> JsonObject:
    """Return the event of the change to float64 features, with its reason."""
    gap = max(run.certificate.gap for run in training.runs if run.certificate is not None)
    pass_gap = max((certificate.gap for certificate in pass_certificates if certificate is not None), default=gap)
    why = f"the gap is {percent(pass_gap)} with features in float32, {percent(gap)} for the model"
    if not pass_certificates:
        why = f"{plan.solver_name} stalls at a gap of {percent(gap)} with features in float32"
    return {"event": "features", "pass": training.passes, "arithmetic": FLOAT64, "why": why}
