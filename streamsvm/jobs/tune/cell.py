"""A cell of a grid: one map or one exact kernel, and all values of C, or of nu, and all folds as problems on the stream of its features.

Each pass makes the features once for all of them, and after the last pass one reading more counts the errors on the
folds (``jobs.tune.folds``). Landmarks that labels choose (greedy) are others for each fold, chosen by the rows it is trained on alone;
then each fold has readings of its own, which serve all values of C. When the memory does not hold the states of all problems, they are solved in as many groups as
it takes.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from dataclasses import fields, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from streamsvm.compute import threading
from streamsvm.config.fields import field_values
from streamsvm.engine.executors.thread_executor import local_executor
from streamsvm.engine.local import local_trainer
from streamsvm.engine.trainer import RunSettings
from streamsvm.errors import DataError, UsageError
from streamsvm.jobs.embed.kernel_request import GREEDY, check_labels_unseen
from streamsvm.jobs.embed.placement import FLY
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.planning.kernel_features import with_features
from streamsvm.jobs.fit.planning.memory_plan import plan_memory
from streamsvm.jobs.fit.planning.plan import Plan, make_plan, stating_limit, with_limit_taken
from streamsvm.jobs.fit.planning.problems import checked_cost
from streamsvm.jobs.tune import folds as folding
from streamsvm.jobs.tune.folds import Trial
from streamsvm.jobs.tune.functions import errors, function_bytes, functions_of
from streamsvm.jobs.tune.options import TuneJob
from streamsvm.jobs.tune.results import Score
from streamsvm.rows import Int32
from streamsvm.schedule import budget
from streamsvm.schedule.budget import MemoryPlan
from streamsvm.types import Layout, Report, Stop, Store, Term

SEARCH_FIELDS = {"out", "C", "nu", "gamma", "landmarks", "folds", "cluster", "insecure_network"}
"""The settings only a search has."""
FIT_FIELDS = tuple(f.name for f in fields(TuneJob) if f.name not in SEARCH_FIELDS)
"""The settings that a fit has too."""

ATTEMPTS = 10
"""Limits that are tried, each what the plan of the one before takes, until one does."""


class Cell(NamedTuple):
    """A point of the grid but for C, and how it is worked on."""

    job: FitJob
    """The fit of the point, with the C or nu that takes the most memory."""
    plan: Plan
    """The plan of that fit."""
    together: int
    """Pairs of C, or nu, and fold that one reading serves, as the memory allows."""
    memory: MemoryPlan
    """The memory of training so many pairs at once."""
    point: tuple[int | None, float | str]
    """Landmarks and gamma."""


def _fit_at(job: TuneJob, landmarks: int | None, gamma: float | str) -> FitJob:
    """The fit of a point, with the C or nu that takes the most memory."""
    shared = field_values(job, FIT_FIELDS)
    widest = max(job.loss_weights, key=lambda weight: weight.nu or 0.0)
    at_point = {**widest._asdict(), "landmarks": landmarks, "gamma": gamma}
    return FitJob(**shared, **at_point, model=job.out, embedding=FLY)


def _enough(job: TuneJob, store: Store, point: tuple[int | None, float | str]) -> int:
    """Return a memory limit, in whole MiB, that does for a point: with more memory another solver or more threads can be planned."""
    limit = budget.MIB
    for _ in range(ATTEMPTS):
        fit_job = _fit_at(replace(job, memory=limit), *point)
        total = _memory(job, store, fit_job, make_plan(fit_job, store), 1).total
        if total <= limit:
            break
        limit = -(-total // budget.MIB) * budget.MIB
    return limit


def planned(job: TuneJob, store: Store, landmarks: int | None, gamma: float | str) -> Cell:
    """Return the plan of a cell. Raises UsageError, DataError; BudgetError when not even one problem fits."""
    fit_job = _fit_at(job, landmarks, gamma)
    plan = make_plan(fit_job, store)
    fit_job = stating_limit(fit_job, plan)
    check_both_kinds(job, store.layout)
    if plan.request is None:  # of landmarks that are drawn here each fold has its own
        check_labels_unseen(store, None, "A search")
    memory = _memory(job, store, fit_job, plan, 1)
    if job.memory is None and plan.taken is None and memory.total > memory.limit:  # a search holds more than a fit
        plan = with_limit_taken(fit_job, store, memory.limit)
        fit_job = stating_limit(fit_job, plan)
        memory = _memory(job, store, fit_job, plan, 1)
    memory.check(plan.remedy, lambda: max(_enough(job, store, point) for point in grid_of(job)))
    folds = 1 if plan.request is not None and plan.request.sampling == GREEDY else job.folds
    low, high = 1, folds * len(job.loss_weights)
    while low < high:
        middle = (low + high + 1) // 2
        more = _memory(job, store, fit_job, plan, middle)
        low, high, memory = (middle, high, more) if more.total <= more.limit else (low, middle - 1, memory)
    return Cell(fit_job, plan, low, memory, (landmarks, gamma))


def _memory(job: TuneJob, store: Store, fit_job: FitJob, plan: Plan, together: int) -> MemoryPlan:
    """What training so many pairs of C and fold at once holds, and counting their errors."""
    layout = store.layout
    problems = [replace(one, held_out=(fold,)) for fold in _folds_of(job, together) for one in plan.problems]
    with threading.using(plan.memory.threads):
        memory = plan_memory(fit_job, store, plan.solver, problems, plan.request)
    # blocks are not kept: what is held out are chunks
    terms = [*(term for term in memory.terms if term.name != "all rows"), *folding.cut_terms(layout, job.folds)]
    terms.append(
        Term("functions found", function_bytes(problems, layout), f"of {len(problems)} problems, and their values")
    )
    return replace(memory, terms=tuple(terms))


def _folds_of(job: TuneJob, together: int) -> list[int]:
    """The folds of so many neighboring pairs of C, or nu, and fold, where they begin with the last C of one: those of most folds."""
    each = len(job.loss_weights)
    return [min((number + each - 1) // each, job.folds - 1) for number in range(together)]


def scored(
    job: TuneJob, stores: tuple[Store, Store], cell: Cell, report: Report, fold: Int32 | None = None
) -> list[Score]:
    """Train a cell and return its errors for every C or nu. Raises what training raises.

    ``fold``: the fold of each chunk of the second store; None: they are dealt at random.
    """
    store, seen = stores
    plan = replace(cell.plan, memory=cell.memory)
    if fold is None:
        fold = folding.round_robin(seen.layout, job.folds, job.seed)
    request = plan.request
    ends: list[_Ended] = []
    if request is not None and request.sampling == GREEDY:
        for k in range(job.folds):
            apart = replace(request, held_out=tuple(np.flatnonzero(fold == k).tolist()))
            _, of_fold = with_features(cell.job, seen, replace(plan, request=apart), Path(job.out), report)
            ends += _ends_of_folds(job, seen, of_fold, cell.together, fold, [k], report)
    else:
        _, plan = with_features(cell.job, store, plan, Path(job.out), report)
        ends += _ends_of_folds(job, seen, plan, cell.together, fold, range(job.folds), report)
    kernel = plan.problems[0].kernel if request is None else request.record
    width, weights = None if kernel is None else kernel.gamma, job.loss_weights
    scores = []
    for k, weight in enumerate(weights):
        mine = ends[k :: len(weights)]
        passes, gap = max(end.passes for end in mine), max(end.gap for end in mine)
        errors, columns = tuple(end.error for end in mine), max(end.columns for end in mine)
        scores.append(Score(cell.job.landmarks, width, weight.C, errors, columns, passes, gap, weight.nu))
    return scores


def _ends_of_folds(  # noqa: PLR0917  what ``scored`` has at hand
    job: TuneJob, seen: Store, plan: Plan, together: int, fold: Int32, numbers: Iterable[int], report: Report
) -> list[_Ended]:
    """What comes of every C or nu of some folds, fold by fold."""
    trials = [folding.trial(plan.problems, one, seen.layout, fold, k) for k in numbers for one in job.loss_weights]
    groups = range(0, len(trials), together)
    return [end for start in groups for end in _solved(job, seen, plan, trials[start : start + together], report)]


class _Ended(NamedTuple):
    """What came of a trial."""

    error: float
    passes: int
    gap: float
    columns: int


def _solved(job: TuneJob, store: Store, plan: Plan, trials: list[Trial], report: Report) -> list[_Ended]:
    """Train on all but a fold and count errors on it, for several trials at once."""
    memory, problems = plan.memory, [problem for trial in trials for problem in trial.problems]
    settings = RunSettings(job.seed, job.prefetch, memory.retain, directory=Path(job.out), resident=memory.resident)
    executor = local_executor(memory.threads)
    with (
        threading.using(memory.threads),
        closing(local_trainer(store, plan.solver, problems, plan.features, settings, report, executor)) as trainer,
    ):
        training = trainer.train(Stop(job.max_passes))
    each = len(plan.problems)
    runs = [training.runs[k : k + each] for k in range(0, len(problems), each)]
    found = functions_of(plan, runs)
    wrong = errors(store, found, trials, depth=job.prefetch, retain=memory.retain)
    gaps = [max(run.certificate.gap for run in mine if run.certificate) for mine in runs]
    columns = plan.problems[0].columns
    return [_Ended(share, training.passes, gap, columns) for share, gap in zip(wrong, gaps, strict=True)]


def grid_of(job: TuneJob) -> list[tuple[int | None, float | str]]:
    """Return landmarks, None for the exact kernel, and gamma of each map to try. Raises UsageError for a grid that means nothing."""
    for name, values in field_values(job, ("C", "nu", "gamma", "landmarks")).items():
        if values is not None and (len(set(values)) < len(values) or (not values and name != "landmarks")):
            raise UsageError(f"{name} must be different values to try, not {values}")
    for C in job.C or ():
        checked_cost(C)
    if job.kernel == "linear" and not job.landmarks:
        return [(None, "scale")]
    return [(m, gamma) for m in job.landmarks or (None,) for gamma in job.gamma]


def check_both_kinds(job: TuneJob, layout: Layout) -> None:
    """Raise DataError where one class is learned and no row could show whether it is told from others."""
    if not job.one_class:
        return
    mine = sum(count for name, count in zip(layout.classes, layout.counts, strict=True) if name == job.positive)
    if not 0 < mine < layout.rows:
        found = f"a search of one class wants rows of '{job.positive}' and rows of other labels, and there are {mine} of {layout.rows}"
        raise DataError(
            found,
            code="E-LABEL",
            hint="ingest both: the class alone is learned, and both are judged on the rows held out",
        )
