"""A fit of rows that a program has in memory: the same plan, passes and certificate, and nothing on disk.

There is no run to go on with and no record of it, so that a fit of a hundred rows takes milliseconds. Where the memory
limit has no room for per-row state it lies in a file for as long as the fit takes.

**Exact finish.** A gap of 1e-3 leaves ||w - w*|| <= sqrt(2 gap): two fits of what is the same problem, a row of weight k
and k copies of it, then agree in three digits. Where a Newton step costs next to nothing the steps go on until rounding
ends them, as far as that goes: of a piecewise quadratic P they end in the piece of the optimum, where the step is exact (Mangasarian, "A finite Newton
method for classification", 2002), and both agree to 1e-11. So do working sets of exact kernels, and one class, which go on for some passes more.
The tolerance asked for stays the one that is judged.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from threadpoolctl import threadpool_limits

from streamsvm.aliases import JsonObject
from streamsvm.compute import threading
from streamsvm.engine.loop import end_fit
from streamsvm.engine.training import Training
from streamsvm.jobs import JobResult
from streamsvm.jobs.calibrate import (
    Calibrated,
    CalibrationTimeout,
    TimeLeft,
    by_the_loss,
    calibrated,
    calibration_passes,
    time_left,
    with_calibration,
)
from streamsvm.jobs.embed.placement import FLY
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.planning.kernel_features import with_features
from streamsvm.jobs.fit.planning.plan import Plan, limit_notice, make_plan, started, starting_there, state_choices
from streamsvm.jobs.fit.results.certified import final_passes
from streamsvm.jobs.fit.results.models import models_of
from streamsvm.jobs.fit.results.remarks import not_calibrated, uncertified
from streamsvm.jobs.fit.trained import Beginning, brought_to_end, local_loop
from streamsvm.jobs.leaving import stalled
from streamsvm.model import Model
from streamsvm.solvers.kernel.decomposition import Decomposition
from streamsvm.solvers.newton.solver import Newton
from streamsvm.types import Report, Stop, Store, silent

EXACT = 1e-14
"""The relative gap that Newton's method is asked for where it goes on until rounding ends it ..."""
EXACT_WORK = 1e8
"""... which is where a step takes fewer multiplications than this: rows x weights x the smaller of both."""
NEARLY_EXACT = 1e-12
"""What exact kernels, and one class with a free offset, are asked for ..."""
NEARLY_EXACT_WORK = 1e7
"""... where all kernel values take fewer multiplications than this: rows x rows x columns."""
FAR_FROM = 0.01
"""Problems that are asked for less than this share of the tolerance have rows so far from 0 that there is nothing more to be had."""
EXACT_FROM = 0.5
"""Problems that are asked for less than this share of the tolerance are to end exactly; for rounding they have some less anyway."""
PASSES_MORE = 20
"""After the gap that was asked for a fit goes on for so many passes at most."""
NOWHERE = ""
"""What stands for the places of a store and of a model that are not on disk."""


@dataclass(frozen=True, slots=True)
class MemoryFitResult(JobResult):
    """A model and how it was come by."""

    model: Model
    """The one of the last C."""
    models: dict[float, Model]
    """All models, by C."""
    training: Training
    """How the fit ended."""
    plan: Plan
    """What was decided before the first pass."""


def fit_in_memory(job: FitJob, store: Store, report: Report = silent, start: Model | None = None) -> MemoryFitResult:
    """Train on the rows of ``store``; kernel features are made in every pass. Options of files have no effect.

    ``start``: a linear model of the same columns and classes to start from. Raises BudgetError, UsageError, DataError,
    DefectError.
    """
    began = time.monotonic()
    job = replace(job, embedding=FLY)
    plan = make_plan(job, store)
    job = state_choices(job, plan)
    if start is not None:
        plan = started(plan, store, start)
    plan.memory.check(plan.remedy)
    plan = _exact(plan)
    report = _until_rounding_ends(plan, report)
    with ExitStack() as stack:
        directory = Path(NOWHERE)
        if not plan.memory.resident:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="streamsvm-")))
        stack.enter_context(threadpool_limits(1))
        stack.enter_context(threading.use_threads(plan.memory.threads))
        seen, plan = with_features(job, store, plan, directory, report)
        train, beginning = partial(_trained_by, job, directory, report), Beginning(job, store, seen, plan, began)
        seen, plan, training, _ = stack.enter_context(brought_to_end(beginning, train, report))
        found = _calibrated(job, seen, plan, training, time_left(job, began))
        models = with_calibration(models_of(job, store, plan, training), found)
    warnings = (*uncertified(job, store, plan, training), *not_calibrated(job, models))
    return MemoryFitResult(
        models[plan.costs[-1]], models, training, plan, warnings=warnings, notices=limit_notice(plan)
    )


@contextmanager
def _trained_by(
    job: FitJob, directory: Path, report: Report, seen: Store, plan: Plan, *, leaves: bool, before: Training | None
) -> Iterator[tuple[Plan, Training]]:
    """The end of what one solver comes to on one kind of features; see ``jobs.fit.trained.Train``."""
    with closing(local_loop(job, seen, plan, None if plan.memory.resident else directory, report)) as loop:
        loop.final_passes = final_passes(plan) + calibration_passes(job, plan.solver, plan.problems)
        loop.leaves = stalled if leaves else None
        if before is not None:
            loop.result.count_on(before)
        yield plan, loop.train(Stop(job.max_passes, max(0.0, job.time_limit - loop.result.seconds)))


def _calibrated(job: FitJob, seen: Store, plan: Plan, training: Training, left: TimeLeft) -> dict[float, Calibrated]:
    """The calibrations of a fit; empty where its time was over before they were made."""
    if job.calibrate is None:
        return by_the_loss(plan)
    from streamsvm.jobs.calibration_scores import FoldFits

    fits = FoldFits(
        starting_there(plan, plan, training),
        lambda rows, again: local_loop(job, rows, again, None, silent),
        job.seed,
        job.prefetch,
        job.max_passes,
        left,
    )
    try:
        return calibrated(job, plan, training, seen, fits)
    except CalibrationTimeout:
        return {}


def _exact(plan: Plan) -> Plan:
    """The plan with the exact finish, where that costs next to nothing; a loss with a corner has no last step of Newton's method."""
    layout, first = plan.layout, plan.problems[0]
    rows, weights = layout.rows, layout.columns + 1
    if plan.request is not None:
        return plan
    wanted = plan.tolerance
    if isinstance(plan.solver, Newton) and first.loss.smooth():
        small = len(plan.problems) * rows * weights * min(rows, weights) <= EXACT_WORK
        wanted = EXACT if small else wanted
    elif first.nu is not None or isinstance(plan.solver, Decomposition):
        small = len(plan.problems) * rows * rows * weights <= NEARLY_EXACT_WORK
        far = first.tolerance < FAR_FROM * plan.tolerance
        wanted = first.tolerance if far else (NEARLY_EXACT if small else wanted)
    if wanted >= plan.tolerance:
        return plan
    return replace(plan, problems=[replace(problem, tolerance=wanted) for problem in plan.problems])


def _until_rounding_ends(plan: Plan, report: Report) -> Report:
    """A report that ends a fit which is asked for more than its tolerance some passes after it has reached that."""
    gaps: dict[int, float] = {}

    def both(event: JsonObject) -> None:
        report(event)
        if event["event"] == "pass":
            gaps[event["pass"]] = max(gaps.get(event["pass"], 0.0), event["gap"])
            reached = [number for number, gap in gaps.items() if gap <= plan.tolerance and number < event["pass"]]
            if reached and event["pass"] >= reached[0] + PASSES_MORE:
                end_fit()

    return both if any(problem.tolerance < EXACT_FROM * plan.tolerance for problem in plan.problems) else report
