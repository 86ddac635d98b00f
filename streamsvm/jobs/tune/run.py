"""tune: cross-validate a grid of landmarks, gamma and C (or nu): tables, a heat map, and the page of the search.

A cell of the grid is one map or one exact kernel; all values of C (or nu) and all folds are problems that share its
passes. Each pass computes the features once for all of them, and after the last pass one more reading counts the errors
on the folds (``jobs.folds``). Landmarks chosen by labels (greedy) differ from fold to fold, because only the training
rows may choose them; then each fold has readings of its own, shared by all values of C. Where memory does not hold the
states of all problems, they are solved in several groups.

The scores of finished cells are kept in a journal: a search that was stopped continues with the next cell. On a
cluster a cell is a task.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec
import numpy as np
from threadpoolctl import threadpool_limits

from streamsvm import __version__, durable
from streamsvm.aliases import JsonObject
from streamsvm.compute import threading
from streamsvm.compute.blocks import operators
from streamsvm.compute.blocks.selection import bytes_per_row
from streamsvm.config.job_file import format_command
from streamsvm.config.options import field_values
from streamsvm.config.units import seconds_text
from streamsvm.engine import signals
from streamsvm.engine.executor import Executor, Task, executor_for, local_executor, task_limit
from streamsvm.engine.groups import local_trainer
from streamsvm.engine.loop import RunSettings
from streamsvm.engine.training import Run
from streamsvm.errors import BudgetError, DataError, ExistsError, UsageError
from streamsvm.features.expansion import Expansion, expansion_bytes
from streamsvm.features.scaling import Raw, Standardized
from streamsvm.jobs import JobResult, format_value
from streamsvm.jobs import folds as folding
from streamsvm.jobs.apply.metrics import BalancedCounts, ErrorCounts
from streamsvm.jobs.embed.plan import AUTO_SAMPLING, FLY, GREEDY, UNIFORM, check_labels_unseen
from streamsvm.jobs.fit.certify import check_finite
from streamsvm.jobs.fit.job import FitJob
from streamsvm.jobs.fit.memory import plan_memory
from streamsvm.jobs.fit.outputs import build_expansion
from streamsvm.jobs.fit.plan import (
    EVENLY_DRAWN,
    Plan,
    limit_notice,
    make_plan,
    state_choices,
    with_features,
    with_limit_taken,
)
from streamsvm.jobs.fit.problems import check_cost
from streamsvm.jobs.folds import Trial
from streamsvm.jobs.report import write_page
from streamsvm.jobs.tune.job import TuneJob
from streamsvm.jobs.tune.results import BALANCED, RMSE, WRONG, Measure, Score, best_of, write_results
from streamsvm.locks import hold_lock, scratch_beside, sweep_beside
from streamsvm.outputs import PAGE, SEARCH, Output, claim, output_path, refuse_foreign
from streamsvm.regular import read_whole
from streamsvm.rows import Float64, Int32, Rows, row_count
from streamsvm.schedule import budget
from streamsvm.schedule.budget import MemoryPlan
from streamsvm.schedule.stream import Stream, epoch_visits
from streamsvm.store import open_store
from streamsvm.store.write.writer import LARGEST_JOURNAL
from streamsvm.types import (
    FeatureMap,
    Kernel,
    Layout,
    LinearSolution,
    Problem,
    Report,
    Stop,
    Store,
    SupportSolution,
    Term,
    silent,
)

SEARCH_FIELDS = {"out", "C", "nu", "gamma", "landmarks", "folds", "cluster", "insecure_network"}
"""The settings only a search has."""
FIT_FIELDS = tuple(f.name for f in fields(TuneJob) if f.name not in SEARCH_FIELDS)
"""The settings that a fit has too."""
ATTEMPTS = 10
"""Most memory limits that are tried: each is what the plan made for the one before needs, until a plan fits."""
JOURNAL = "journal.json"
MAY_DIFFER_ON_RESUME = (
    "store",
    "out",
    "memory",
    "time_limit",
    "threads",
    "prefetch",
    "overwrite",
    "cluster",
    "insecure_network",
    "report",
)
"""The settings that do not change the results. Of the store, the digest is compared."""
NEWER = ("standardize_all", "multi_class", "l1_ball", "l1", "one_class", "nu")
"""Settings that are part of the key only where they are given."""


@dataclass(frozen=True, slots=True, repr=False)
class TuneResult(JobResult):
    """The table, its best row, and where it lies."""

    out: Path
    """The directory of the table."""
    scores: tuple[Score, ...]
    """The rows of the table."""
    best: Score
    """The row with the smallest error."""
    seconds: float
    """How long it took."""
    measure: Measure = WRONG
    """What the error is."""

    def summary(self) -> dict[str, str]:
        """Return the best settings with their error, and where the table is."""
        settings = {
            name: value for name, value in self.best.facts().items() if name in ("landmarks", "gamma", "C", "nu")
        }
        error = f"{self.measure.text(self.best.error)} ± {self.measure.text(self.best.spread)}"
        return {
            **{f"best {name}": format_value(value) for name, value in settings.items() if value is not None},
            self.measure.heading: error,
            "settings tried": str(len(self.scores)),
            "table": str(self.out),
            "time": seconds_text(self.seconds),
        }

    def facts(self) -> JsonObject:
        """Return the rows of the table and the best of them."""
        scores = [score.facts() for score in self.scores]
        return {
            "out": str(self.out),
            "measure": self.measure.name,
            "best": self.best.facts(),
            "scores": scores,
            "seconds": self.seconds,
        }


def tune(job: TuneJob, report: Report = silent, executor: Executor | None = None) -> TuneResult:
    """Cross-validate the grid, cell by cell, or on a cluster cells side by side.

    Raises BudgetError before the first read when a cell does not fit; UsageError, DataError, StorageError, ExistsError,
    ClusterError; InterruptedRun when stopped, which leaves the cells that are done for the next run.
    """
    again = signals.set_resume_command(format_command("tune", job))
    with again, signals.limit_time(job.time_limit), executor_for(job, executor) as found:
        mine = job if found is None else replace(job, memory=task_limit(found, job.memory), threads=1)
        return _run_tune(mine, report, found)


class Functions(Protocol):
    """The functions that several trials have learned."""

    def values(self, X: Rows, trials: Sequence[int]) -> Float64:
        """Return the decision values of stored rows, (n, those of these trials side by side)."""
        ...


@dataclass(frozen=True, slots=True)
class FeatureFunctions:
    """Functions that are linear in the features of a map."""

    features: FeatureMap
    """The map."""
    weights: tuple[Float64, ...]
    """(columns + 1, decision values) of each trial."""

    def values(self, X: Rows, trials: Sequence[int]) -> Float64:
        W = np.concatenate([self.weights[k] for k in trials], axis=1)
        return np.concatenate([operators.margins(part.X, W) for part in self.features.parts(X)])


@dataclass(slots=True)
class KernelFunctions:
    """Kernel machines. Those that are evaluated together share their points, and stay in memory until others are."""

    kernel: Kernel
    """The kernel."""
    columns: int
    """Columns of a stored row."""
    inner: Raw | Standardized
    """From stored rows to what the kernel sees."""
    solutions: tuple[tuple[SupportSolution, ...], ...]
    """Those of each trial."""
    _trials: tuple[int, ...] = ()
    _machine: tuple[Float64, Expansion] | None = field(default=None, repr=False)

    def values(self, X: Rows, trials: Sequence[int]) -> Float64:
        if self._machine is None or self._trials != tuple(trials):
            self._machine = None  # there is memory for one machine, not for two
            chosen = [solution for k in trials for solution in self.solutions[k]]
            self._machine, self._trials = build_expansion(self.kernel, self.columns, self.inner, chosen), tuple(trials)
        weights, expansion = self._machine
        out = np.empty((row_count(X), len(weights)))
        expansion.decision(X, weights, out)
        return out


def collect_functions(plan: Plan, trials: Sequence[Sequence[Run]]) -> Functions:
    """Return the functions that trials have learned; each trial is given by the runs of its problems."""
    kernel, inner = plan.problems[0].kernel, plan.features
    if kernel is None:
        return FeatureFunctions(
            inner, tuple(np.concatenate([_weights(plan, run) for run in runs]).T for runs in trials)
        )
    found = [tuple(plan.solver.solution(run.state) for run in runs) for runs in trials]
    supports = tuple(tuple(one for one in mine if isinstance(one, SupportSolution)) for mine in found)
    assert isinstance(inner, Raw | Standardized)  # nothing else goes with an exact kernel
    return KernelFunctions(kernel, plan.layout.columns, inner, supports)


def _weights(plan: Plan, run: Run) -> Float64:
    """Return the weights of a solved problem, (decision values, columns + 1)."""
    solution = plan.solver.solution(run.state)
    assert isinstance(solution, LinearSolution)  # solvers without a kernel have no other
    return run.problem.kind.decision_weights(solution.w)


def function_bytes(problems: Sequence[Problem], layout: Layout) -> int:
    """Return what the functions of these problems hold beside the solvers' states, and their values on a chunk."""
    values = 8 * sum(len(one.kind.positives) for one in problems) * layout.largest_chunk
    if problems[0].kernel is None:
        return values + 8 * sum(one.components for one in problems)
    points = layout.rows * (2 * bytes_per_row(layout.columns, layout.rows, layout.nonzeros) + 8 * len(problems))
    return values + points + expansion_bytes(layout.columns)


def count_fold_errors(store: Store, found: Functions, trials: Sequence[Trial], **reading: Any) -> list[float]:
    """Return the error (``choose_measure``) of each trial on the fold it did not see, in one reading of the store.

    ``found``: the functions of the trials, in their order. ``reading``: options of the ``Stream``.
    """
    first = trials[0].problems[0]
    counts = BalancedCounts(len(trials)) if first.kind.one_class else ErrorCounts(len(trials))
    with Stream(store, epoch_visits(store.layout, 0, 0, shuffled=False), **reading) as stream:
        for loaded in stream:
            mine = [k for k, trial in enumerate(trials) if loaded.visit.chunk in trial.chunks]
            if not mine:
                continue
            ends = np.cumsum([trials[k].values for k in mine])[:-1]
            values = found.values(loaded.chunk.X, mine)
            for k, f in zip(mine, np.split(values, ends, axis=1), strict=True):
                counts.add(k, f - first.kind.decision_margin(first.loss), trials[k].outcomes(loaded.chunk.codes))
    return counts.shares


class Cell(NamedTuple):
    """A point of the grid without C or nu, and the plan of its trials."""

    job: FitJob
    """The fit of the point, with the C or nu that takes the most memory."""
    plan: Plan
    """The plan of that fit."""
    together: int
    """Trials (pairs of C or nu and fold) that share a reading, as memory allows."""
    memory: MemoryPlan
    """The memory of training so many trials at once."""
    point: tuple[int | None, float | str]
    """Landmarks and gamma."""


def _fit_at(job: TuneJob, landmarks: int | None, gamma: float | str) -> FitJob:
    """Return the fit of a point, with the C or nu that takes the most memory."""
    shared = field_values(job, FIT_FIELDS)
    widest = max(job.loss_weights, key=lambda weight: weight.nu or 0.0)
    at_point = {**widest._asdict(), "landmarks": landmarks, "gamma": gamma}
    return FitJob(**shared, **at_point, model=job.out, embedding=FLY)


def _find_sufficient_limit(job: TuneJob, store: Store, point: tuple[int | None, float | str]) -> int:
    """Return a memory limit in whole MiB that is enough for a point. It takes trials, because with more memory another
    solver or more threads may be planned.
    """
    limit = budget.MIB
    for _ in range(ATTEMPTS):
        fit_job = _fit_at(replace(job, memory=limit), *point)
        total = _memory(job, store, fit_job, make_plan(fit_job, store), 1).total
        if total <= limit:
            break
        limit = -(-total // budget.MIB) * budget.MIB
    return limit


def plan_cell(job: TuneJob, store: Store, landmarks: int | None, gamma: float | str) -> Cell:
    """Return the plan of a cell. Raises UsageError, DataError; BudgetError when not even one problem fits."""
    fit_job = _fit_at(job, landmarks, gamma)
    plan = make_plan(fit_job, store)
    fit_job = state_choices(fit_job, plan)
    check_both_kinds(job, store.layout)
    if plan.request is None:  # landmarks that are drawn here are drawn for each fold
        check_labels_unseen(store, None, "A search")
    memory = _memory(job, store, fit_job, plan, 1)
    if job.memory is None and plan.taken is None and memory.total > memory.limit:  # a search holds more than a fit
        plan = with_limit_taken(fit_job, store, memory.limit)
        fit_job = state_choices(fit_job, plan)
        memory = _memory(job, store, fit_job, plan, 1)
    memory.check(plan.remedy, lambda: max(_find_sufficient_limit(job, store, point) for point in build_grid(job)))
    folds = 1 if plan.request is not None and plan.request.sampling == GREEDY else job.folds
    low, high = 1, folds * len(job.loss_weights)
    while low < high:
        middle = (low + high + 1) // 2
        more = _memory(job, store, fit_job, plan, middle)
        low, high, memory = (middle, high, more) if more.total <= more.limit else (low, middle - 1, memory)
    return Cell(fit_job, plan, low, memory, (landmarks, gamma))


def choose_search_sampling(job: TuneJob, store: Store) -> TuneJob:
    """Return the search with one way of sampling in place of ``auto``, so that the errors of all points can be compared.

    It is greedy, by labels; but uniform where one class is learned, or where greedy selection does not fit the memory
    at some point. Raises what ``plan_cell`` raises.
    """
    if job.sampling != AUTO_SAMPLING or not job.landmarks:
        return job
    by_labels, evenly = replace(job, sampling=GREEDY), replace(job, sampling=UNIFORM)
    if job.one_class:
        return evenly
    try:
        for point in build_grid(job):
            plan_cell(by_labels, store, *point)
    except BudgetError:
        return evenly
    return by_labels


def _memory(job: TuneJob, store: Store, fit_job: FitJob, plan: Plan, together: int) -> MemoryPlan:
    """Return the memory plan of training ``together`` trials at once and of counting their errors."""
    layout = store.layout
    problems = [replace(one, held_out=(fold,)) for fold in _folds_of(job, together) for one in plan.problems]
    with threading.use_threads(plan.memory.threads):
        memory = plan_memory(fit_job, store, plan.solver, problems, plan.request)
    # blocks are not kept in memory, because whole chunks are held out
    terms = [*(term for term in memory.terms if term.name != "all rows"), *folding.cut_terms(layout, job.folds)]
    terms.append(
        Term("functions found", function_bytes(problems, layout), f"of {len(problems)} problems, and their values")
    )
    return replace(memory, terms=tuple(terms))


def _folds_of(job: TuneJob, together: int) -> list[int]:
    """Return the folds of ``together`` neighboring trials in the worst case: they begin with the last C (or nu) of a
    fold, and so reach into the most folds.
    """
    each = len(job.loss_weights)
    return [min((number + each - 1) // each, job.folds - 1) for number in range(together)]


def score_folds(
    job: TuneJob, stores: tuple[Store, Store], cell: Cell, report: Report, fold: Int32 | None = None
) -> list[Score]:
    """Train a cell and return its errors for every C or nu. Raises what training raises.

    ``fold``: the fold of each chunk of the second store; None: they are dealt at random.
    """
    store, seen = stores
    plan = replace(cell.plan, memory=cell.memory)
    if fold is None:
        fold = folding.deal_chunks(seen.layout, job.folds, job.seed)
    request = plan.request
    ends: list[_TrialResult] = []
    if request is not None and request.sampling == GREEDY:
        for k in range(job.folds):
            apart = replace(request, held_out=tuple(np.flatnonzero(fold == k).tolist()))
            _, of_fold = with_features(cell.job, seen, replace(plan, request=apart), Path(job.out), report)
            ends += _solve_folds(job, seen, of_fold, cell.together, fold, [k], report)
    else:
        _, plan = with_features(cell.job, store, plan, Path(job.out), report)
        ends += _solve_folds(job, seen, plan, cell.together, fold, range(job.folds), report)
    kernel = plan.problems[0].kernel if request is None else request.record
    width, weights = None if kernel is None else kernel.gamma, job.loss_weights
    scores = []
    for k, weight in enumerate(weights):
        mine = ends[k :: len(weights)]
        passes, gap = max(end.passes for end in mine), max(end.gap for end in mine)
        errors, columns = tuple(end.error for end in mine), max(end.columns for end in mine)
        scores.append(Score(cell.job.landmarks, width, weight.C, errors, columns, passes, gap, weight.nu))
    return scores


def _solve_folds(  # noqa: PLR0917  what ``score_folds`` has at hand
    job: TuneJob, seen: Store, plan: Plan, together: int, fold: Int32, numbers: Iterable[int], report: Report
) -> list[_TrialResult]:
    """Return the results of every C or nu on some folds, fold by fold."""
    trials = [
        folding.build_trial(plan.problems, one, seen.layout, fold, k) for k in numbers for one in job.loss_weights
    ]
    groups = range(0, len(trials), together)
    return [end for start in groups for end in _solve_trials(job, seen, plan, trials[start : start + together], report)]


class _TrialResult(NamedTuple):
    error: float
    passes: int
    gap: float
    columns: int


def _solve_trials(job: TuneJob, store: Store, plan: Plan, trials: list[Trial], report: Report) -> list[_TrialResult]:
    """Train several trials at once, each on all folds but its own, and count the errors on that."""
    memory, problems = plan.memory, [problem for trial in trials for problem in trial.problems]
    settings = RunSettings(job.seed, job.prefetch, memory.retain, directory=Path(job.out), resident=memory.resident)
    executor = local_executor(memory.threads)
    with (
        threading.use_threads(memory.threads),
        closing(local_trainer(store, plan.solver, problems, plan.features, settings, report, executor)) as trainer,
    ):
        training = trainer.train(Stop(job.max_passes))
    for run in training.runs:
        check_finite(run, plan)
    each = len(plan.problems)
    runs = [training.runs[k : k + each] for k in range(0, len(problems), each)]
    found = collect_functions(plan, runs)
    wrong = count_fold_errors(store, found, trials, depth=job.prefetch, retain=memory.retain)
    gaps = [max(run.certificate.gap for run in mine if run.certificate) for mine in runs]
    columns = plan.problems[0].columns
    return [_TrialResult(share, training.passes, gap, columns) for share, gap in zip(wrong, gaps, strict=True)]


def build_grid(job: TuneJob) -> list[tuple[int | None, float | str]]:
    """Return landmarks (None for the exact kernel) and gamma of each map to try. Raises UsageError for values that are
    given twice or missing.
    """
    for name, values in field_values(job, ("C", "nu", "gamma", "landmarks")).items():
        if values is not None and (len(set(values)) < len(values) or (not values and name != "landmarks")):
            raise UsageError(f"{name} must be different values to try, not {values}", hint="give each value once")
    for C in job.C or ():
        check_cost(C)
    if job.kernel == "linear" and not job.landmarks:
        return [(None, "scale")]
    return [(m, gamma) for m in job.landmarks or (None,) for gamma in job.gamma]


def check_both_kinds(job: TuneJob, layout: Layout) -> None:
    """Raise DataError for a one-class search on a store that lacks rows of the class, or rows of others."""
    if not job.one_class:
        return
    mine = sum(count for name, count in zip(layout.classes, layout.counts, strict=True) if name == job.positive)
    if not 0 < mine < layout.rows:
        found = f"a one-class search needs rows of '{job.positive}' and rows of other labels; {mine} of {layout.rows} rows are of '{job.positive}'"
        raise DataError(
            found,
            code="E-LABEL",
            hint="ingest both: only the class is learned, but errors are counted on held-out rows of both",
        )


def _run_tune(job: TuneJob, report: Report, executor: Executor | None) -> TuneResult:
    began, out = time.perf_counter(), output_path(job.out)
    store = open_store(job.store, memory_limit=budget.memory_limit(job.memory))
    asked, job = job, choose_search_sampling(job, store)
    evenly_drawn = asked.sampling != job.sampling == UNIFORM and not job.one_class
    key = digest_search(job, store)
    with ExitStack() as stack:
        stack.enter_context(signals.set_resume_command(format_command("tune", job)))
        stack.enter_context(hold_lock(out))
        stack.enter_context(threadpool_limits(1))
        page = [Output(output_path(job.report), PAGE, continues=True)] if job.report is not None else []
        claim([Output(out, SEARCH, continues=True), *page], [job.store], overwrite=job.overwrite)
        done = read_search_journal(out, key, overwrite=job.overwrite)
        sweep_beside(out)
        cells = [plan_cell(job, store, *point) for point in build_grid(job)]
        taken = [cell.plan for cell in cells if cell.plan.taken is not None][:1]
        if taken:
            job = replace(job, memory=taken[0].taken)
            stack.enter_context(signals.set_resume_command(format_command("tune", job)))
        durable.make_directory(out)
        _write_journal(out, key, done)  # before any file of a cell: a search killed in its first cell is recognized
        if executor is None:
            seen = folding.cut_finer(store, job.folds, job.prefetch)
            found = _score_one_by_one(job, (store, seen), cells, len(done), report)
        else:
            found = _score_on_cluster(job, cells[len(done) :], executor)
        for scores in found:
            for score in scores:
                report({"event": "tuned", **score.facts()})
            done.append(scores)
            _write_journal(out, key, done)
        table = tuple(score for cell in done for score in cell)
        facts = {"settings": msgspec.to_builtins(job), "store": store.digest}
        with scratch_beside(out) as scratch:  # the results of an earlier search stay until all of these are there
            fresh = scratch / out.name
            durable.make_directory(fresh)
            notices = write_results(fresh, table, facts, choose_measure(job, store))
            notices += tuple(line for plan in taken for line in limit_notice(plan))
            notices += (EVENLY_DRAWN,) if evenly_drawn else ()
            refuse_foreign(out, SEARCH)
            durable.exchange(fresh, out)
        if job.report is not None:
            write_page([out], output_path(job.report))
    return TuneResult(
        out, table, best_of(table), time.perf_counter() - began, notices=notices, measure=choose_measure(job, store)
    )


def _write_journal(out: Path, key: str, done: list[list[Score]]) -> None:
    """Save the scores of the cells that are done."""
    durable.write_file(out / JOURNAL, json.dumps({"key": key, "cells": done}).encode())


def _score_one_by_one(
    job: TuneJob, stores: tuple[Store, Store], cells: list[Cell], done: int, report: Report
) -> Iterator[list[Score]]:
    """Yield the scores of the cells that are not done, in order."""
    for number, cell in enumerate(cells[done:], done + 1):
        report({"event": "cell", "number": number, "of": len(cells)})
        yield score_folds(job, stores, cell, report)


def _score_on_cluster(job: TuneJob, cells: list[Cell], executor: Executor) -> Iterator[list[Score]]:
    """Yield the scores of cells in order, a task each."""
    there = replace(job, store=str(Path(job.store).resolve()), out=str(Path(job.out).resolve()))
    task = Task("tune", score_cell, max((cell.memory.total for cell in cells), default=0))
    shared = (executor.share(there), executor.share(time.time() + job.time_limit))
    yield from executor.map(task, [cell.point for cell in cells], shared)


def score_cell(point: tuple[int | None, float | str], job: TuneJob, moment: float) -> list[Score]:
    """Return the scores of a cell; this is the task of a worker, with files of its own. Raises what ``tune`` raises.

    It ends at ``moment`` (as of ``time.time``), when the time of the search is over.
    """
    store, limit = open_store(job.store), signals.limit_time(moment - time.time())
    with limit, tempfile.TemporaryDirectory(dir=job.out, prefix=".cell-") as scratch, threadpool_limits(1):
        mine = replace(job, out=scratch)
        seen = folding.cut_finer(store, job.folds, job.prefetch)
        return score_folds(mine, (store, seen), plan_cell(mine, store, *point), silent)


def choose_measure(job: TuneJob, store: Store) -> Measure:
    """Return what the error of a search is."""
    if job.one_class:
        return BALANCED
    return RMSE if store.layout.numeric else WRONG


def digest_search(job: TuneJob, store: Any) -> str:
    """Return the sha256 of all that decides the table."""
    settings = {name: value for name, value in msgspec.to_builtins(job).items() if name not in MAY_DIFFER_ON_RESUME}
    settings = {name: value for name, value in settings.items() if name not in NEWER or value is not None}
    if job.C is None and job.nu is None and not job.one_class:
        settings["C"] = [1.0]  # as it was written when it was the default
    return hashlib.sha256(json.dumps([__version__, store.digest, settings], sort_keys=True).encode()).hexdigest()


def read_search_journal(out: Path, key: str, *, overwrite: bool) -> list[list[Score]]:
    """Return the scores of the cells that an interrupted run with the same settings has finished.

    Raises ExistsError for the output of another run.
    """
    try:
        saved = json.loads(read_whole(out / JOURNAL, LARGEST_JOURNAL))
        if saved["key"] == key:
            return msgspec.convert(saved["cells"], list[list[Score]])
    except (OSError, ValueError, KeyError, TypeError, DataError, msgspec.ValidationError):
        saved = None
    begun = out.exists() and any(
        not path.name.startswith(".") for path in out.iterdir()
    )  # the names of files that were being written begin with a dot
    if begun and not overwrite:
        hint = "run the original command again to continue it, pass --overwrite, or choose another name"
        raise ExistsError(f"{out} exists already", hint=hint)
    return []


def tune_in_memory(job: TuneJob, store: Store, report: Report = silent, fold: Int32 | None = None) -> tuple[Score, ...]:
    """Cross-validate a grid on ``store``; options of files have no effect. Raises BudgetError, UsageError, DataError.

    ``fold`` (chunks,): the fold of each chunk; None: chunks are dealt at random, those of small stores cut down to
    single rows.
    """
    with tempfile.TemporaryDirectory(prefix="streamsvm-") as directory, threadpool_limits(1):
        job = choose_search_sampling(replace(job, out=directory), store)
        cells = [plan_cell(job, store, *point) for point in build_grid(job)]
        seen = folding.cut_finer(store, job.folds, job.prefetch, least=1) if fold is None else store
        return tuple(score for cell in cells for score in score_folds(job, (store, seen), cell, report, fold))
