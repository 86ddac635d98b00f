"""tune: a store and a grid in, cross-validated errors for every point of it out, as a table and as a heat map.

A cell of the grid is a map: landmarks and width of the kernel. All values of C and all folds of a cell are problems on
the same features, so that each pass reads the store and makes the features once for all of them, and after the last
pass one reading more counts the errors on the folds (``jobs.folds``). When the memory does not hold the states of all
problems, they are solved in as many groups as it takes. Cells that are done are kept in a journal: the same command
goes on there after a stop.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from threadpoolctl import threadpool_limits

from streamsvm import __version__, durable
from streamsvm.errors import ExistsError, UsageError
from streamsvm.jobs import folds as folding
from streamsvm.jobs.embedding import FLY
from streamsvm.jobs.features import with_features
from streamsvm.jobs.folds import Trial
from streamsvm.jobs.planning import FitJob, Plan, make_plan, plan_memory
from streamsvm.jobs.problems import checked_cost
from streamsvm.jobs.scores import TABLE, Score, best_of, write_results
from streamsvm.jobs.spread.executor import Executor, Task, executor_for, task_limit
from streamsvm.jobs.training import Course, Trainer
from streamsvm.locks import locked
from streamsvm.schedule.budget import MemoryPlan
from streamsvm.store import open_store
from streamsvm.types import Report, Stop, Store, Term, silent

JOURNAL = "journal.json"
FREE = ("store", "out", "memory", "prefetch", "overwrite", "cluster", "insecure_network")
"""Settings that do not change the results; of the store its digest is looked at."""


@dataclass(frozen=True, slots=True)
class TuneJob:
    """What ``streamsvm tune`` is asked for; the keys of a job file are these fields."""

    store: str
    out: str
    """A directory for the table and the heat map."""
    C: tuple[float, ...] = (1.0,)
    """Weights of the loss sum to try."""
    gamma: tuple[float | str, ...] = ("scale",)
    """Widths of the kernel to try: numbers, 'scale' or 'mean-distance'."""
    landmarks: tuple[int, ...] = ()
    """Numbers of landmarks to try; none for the linear kernel and for stores that are embeddings."""
    folds: int = 5
    solver: str = "auto"
    options: dict[str, Any] = field(default_factory=dict)
    loss: str = "squared_hinge"
    loss_options: dict[str, float] = field(default_factory=dict)
    bias: float = 1.0
    standardize: bool = False
    kernel: str = "linear"
    kernel_options: dict[str, float] = field(default_factory=dict)
    sampling: str = "uniform"
    positive: str | None = None
    class_weight: str | dict[str, float] | None = None
    tolerance: float = 1e-2
    max_passes: int = 100
    memory: int | None = None
    seed: int = 0
    prefetch: int = 2
    overwrite: bool = False
    cluster: str | None = None
    """Dask workers to do it on: tcp://127.0.0.1:8786, tls://HOST:8786, local:N (started here), scheduler-file:PATH."""
    insecure_network: bool = False
    """Allow a cluster that is neither encrypted nor on this machine."""


OWN = {"out", "C", "gamma", "landmarks", "folds", "cluster", "insecure_network"}
SHARED = tuple(f.name for f in fields(TuneJob) if f.name not in OWN)
"""Settings a fit has too."""


@dataclass(frozen=True, slots=True)
class TuneResult:
    """The table, its best row, and where it lies."""

    out: Path
    scores: tuple[Score, ...]
    best: Score
    seconds: float
    notices: tuple[str, ...] = ()


def tune(job: TuneJob, report: Report = silent, executor: Executor | None = None) -> TuneResult:
    """Cross-validate the grid, cell by cell, or on a cluster cells side by side.

    BudgetError before the first read when a cell does not fit. Raises UsageError, DataError, StorageError, ExistsError,
    ClusterError; InterruptedRun when stopped: the cells done are kept.
    """
    with executor_for(job, executor) as found:
        return _tuned(job if found is None else replace(job, memory=task_limit(found, job.memory)), report, found)


def _tuned(job: TuneJob, report: Report, executor: Executor | None) -> TuneResult:
    began, out = time.perf_counter(), Path(job.out)
    store = open_store(job.store)
    key = key_of(job, store)
    with locked(out), threadpool_limits(1):
        done = journal_of(out, key, overwrite=job.overwrite)
        cells = [planned(job, store, *point) for point in grid_of(job)]
        durable.make_directory(out)
        left = cells[len(done) :]
        if executor is None:
            seen = folding.cut_finer(store, job.folds, job.prefetch)
            found: Iterator[list[Score]] = (_scored(job, (store, seen), cell, report) for cell in left)
        else:
            found = _spread(job, left, executor)
        for scores in found:
            for score in scores:
                report({"event": "tuned", **score.facts()})
            done.append(scores)
            durable.write_file(out / JOURNAL, json.dumps({"key": key, "cells": done}).encode())
        table = tuple(score for cell in done for score in cell)
        notices = write_results(out, table, {"settings": msgspec.to_builtins(job), "store": store.digest})
        (out / JOURNAL).unlink()
    return TuneResult(out, table, best_of(table), time.perf_counter() - began, notices)


def _spread(job: TuneJob, cells: list[Cell], executor: Executor) -> Iterator[list[Score]]:
    """The scores of cells in order, a task each."""
    there = replace(job, store=str(Path(job.store).resolve()), out=str(Path(job.out).resolve()))
    task = Task("tune", score_cell, max((cell.memory.total for cell in cells), default=0))
    yield from executor.map(task, [cell.point for cell in cells], (executor.share(there),))


def score_cell(point: tuple[int | None, float | str], job: TuneJob) -> list[Score]:
    """The task: the scores of a cell, with files of its own. Raises what ``tune`` raises."""
    store = open_store(job.store)
    with tempfile.TemporaryDirectory(dir=job.out, prefix=".cell-") as scratch, threadpool_limits(1):
        mine = replace(job, out=scratch)
        seen = folding.cut_finer(store, job.folds, job.prefetch)
        return _scored(mine, (store, seen), planned(mine, store, *point), silent)


def grid_of(job: TuneJob) -> list[tuple[int | None, float | str]]:
    """Landmarks and gamma of each map to try. Raises UsageError for a grid that means nothing."""
    for name in ("C", "gamma", "landmarks"):
        values = getattr(job, name)
        if len(set(values)) < len(values) or (not values and name != "landmarks"):
            raise UsageError(f"{name} must be different values to try, not {values}")
    for C in job.C:
        checked_cost(C)
    if job.kernel != "linear" and not job.landmarks:
        raise UsageError("how many landmarks?", hint="--landmarks 300,1000; exact kernel machines are not tuned")
    return [(m, gamma) for m in job.landmarks for gamma in job.gamma] or [(None, "scale")]


class Cell(NamedTuple):
    """A point of the grid but for C, and how it is worked on."""

    job: FitJob
    plan: Plan
    together: int
    """Pairs of C and fold that one reading serves, as the memory allows."""
    memory: MemoryPlan
    point: tuple[int | None, float | str]
    """Landmarks and gamma."""


def planned(job: TuneJob, store: Any, landmarks: int | None, gamma: float | str) -> Cell:
    """The plan of a cell. Raises UsageError, DataError; BudgetError when not even one problem fits."""
    shared = {name: getattr(job, name) for name in SHARED}
    fit_job = FitJob(**shared, C=job.C[0], model=job.out, landmarks=landmarks, embedding=FLY, gamma=gamma)
    plan = make_plan(fit_job, store)
    if plan.problems[0].kernel is not None:
        raise UsageError(f"solver '{plan.solver_name}' solves the kernel exactly", hint="tune takes --landmarks")
    memory = _memory(job, store, fit_job, plan, 1)
    memory.check(plan.remedy)
    low, high = 1, job.folds * len(job.C)
    while low < high:
        middle = (low + high + 1) // 2
        more = _memory(job, store, fit_job, plan, middle)
        low, high, memory = (middle, high, more) if more.total <= more.limit else (low, middle - 1, memory)
    return Cell(fit_job, plan, low, memory, (landmarks, gamma))


def _memory(job: TuneJob, store: Any, fit_job: FitJob, plan: Plan, together: int) -> MemoryPlan:
    """What training so many pairs of C and fold at once holds, and counting their errors."""
    layout, problems = store.layout, plan.problems * together
    memory = plan_memory(fit_job, store, plan.solver, problems, plan.request)
    # blocks are not kept: what is held out are chunks
    terms = [*(term for term in memory.terms if term.name != "all rows"), *folding.cut_terms(layout, job.folds)]
    counted = 8 * len(problems) * (problems[0].columns + 1 + layout.largest_chunk)
    terms.append(Term("candidates", counted, f"weights and decision values of {len(problems)}"))
    return replace(memory, terms=tuple(terms))


def _scored(job: TuneJob, stores: tuple[Any, Store], cell: Cell, report: Report) -> list[Score]:
    """The errors of a cell for every C."""
    store, seen = stores
    _, plan = with_features(cell.job, store, replace(cell.plan, memory=cell.memory), Path(job.out), report)
    fold = folding.dealt(seen.layout, job.folds, job.seed)
    trials = [folding.trial(plan.problems, C, seen.layout, fold, k) for C in job.C for k in range(job.folds)]
    ends: list[_Ended] = []
    for start in range(0, len(trials), cell.together):
        ends += _solved(job, seen, plan, trials[start : start + cell.together], report)
    width = None if plan.request is None else getattr(plan.request.record, "gamma", None)
    scores = []
    for k, C in enumerate(job.C):
        mine = ends[k * job.folds : (k + 1) * job.folds]
        passes, gap = max(end.passes for end in mine), max(end.gap for end in mine)
        errors = tuple(end.error for end in mine)
        scores.append(Score(cell.job.landmarks, width, C, errors, plan.problems[0].columns, passes, gap))
    return scores


class _Ended(NamedTuple):
    """What came of a trial."""

    error: float
    passes: int
    gap: float


def _solved(job: TuneJob, store: Store, plan: Plan, trials: list[Trial], report: Report) -> list[_Ended]:
    """Train on all but a fold and count errors on it, for several trials at once."""
    memory, problems = plan.memory, [problem for trial in trials for problem in trial.problems]
    course = Course(job.seed, job.prefetch, memory.retain, directory=Path(job.out), resident=memory.resident)
    with closing(Trainer(store, plan.solver, problems, plan.features, course, report)) as trainer:
        training = trainer.train(Stop(job.max_passes))
    each = len(plan.problems)
    runs = [training.runs[k : k + each] for k in range(0, len(problems), each)]
    weights = [np.column_stack([plan.solver.solution(run.state).w for run in mine]) for mine in runs]  # type: ignore[union-attr]
    wrong = folding.errors(store, plan.features, trials, weights, depth=job.prefetch, retain=memory.retain)
    gaps = [max(run.certificate.gap for run in mine if run.certificate) for mine in runs]
    return [_Ended(share, training.passes, gap) for share, gap in zip(wrong, gaps, strict=True)]


def key_of(job: TuneJob, store: Any) -> str:
    """sha256 of all that decides the table."""
    settings = {name: value for name, value in msgspec.to_builtins(job).items() if name not in FREE}
    return hashlib.sha256(json.dumps([__version__, store.digest, settings], sort_keys=True).encode()).hexdigest()


def journal_of(out: Path, key: str, *, overwrite: bool) -> list[list[Score]]:
    """The cells an interrupted run of the same settings has done. Raises ExistsError for what is another's."""
    try:
        saved = json.loads((out / JOURNAL).read_text(encoding="utf-8"))
        if saved["key"] == key:
            return msgspec.convert(saved["cells"], list[list[Score]])
    except (OSError, ValueError, KeyError, TypeError, msgspec.ValidationError):
        saved = None
    ours = saved is not None or (out / TABLE).exists()
    if out.exists() and any(out.iterdir()) and not (ours and overwrite):
        raise ExistsError(
            f"{out} exists already", hint="choose another name" + (", or pass --overwrite" if ours else "")
        )
    return []
