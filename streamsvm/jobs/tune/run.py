"""tune: cross-validate points of landmarks, gamma and C (or nu): tables, a heat map, and the page of the search.

A cell of the grid is one map or one exact kernel; all values of C (or nu) and all folds are problems that share its
passes. Each pass computes the features once for all of them, and after the last pass one more reading counts the scores
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
from collections.abc import Callable, Iterable, Iterator, Sequence
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
from streamsvm.config.command_table import format_command
from streamsvm.config.options import field_values
from streamsvm.config.units import seconds_text
from streamsvm.durable import scratch_beside, sweep_beside
from streamsvm.engine import signals, time_limit
from streamsvm.engine.cluster_schemes import executor_for
from streamsvm.engine.executor import Executor, Task, local_executor
from streamsvm.engine.fit_state import ProblemRun
from streamsvm.engine.local_loop import local_trainer
from streamsvm.engine.loop import RunSettings
from streamsvm.errors import BudgetError, DataError, ExistsError, UsageError
from streamsvm.features.expansion import Expansion, expansion_bytes
from streamsvm.features.scaling import Raw, Standardized
from streamsvm.input_files import read_whole
from streamsvm.jobs import JobResult, format_value
from streamsvm.jobs import folds as folding
from streamsvm.jobs.calibrate import loss_probabilities
from streamsvm.jobs.embed.plan import AUTO_SAMPLING, FLY, GREEDY, UNIFORM, check_no_label_leakage
from streamsvm.jobs.fit.certify import check_finite
from streamsvm.jobs.fit.memory import plan_memory
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.outputs import build_expansion
from streamsvm.jobs.fit.plan import (
    UNIFORM_SAMPLING_NOTICE,
    Plan,
    make_features,
    make_plan,
    memory_notices,
    pin_automatic_choices,
    with_derived_limit,
)
from streamsvm.jobs.fit.problems import check_cost, describe_task
from streamsvm.jobs.folds import Trial
from streamsvm.jobs.report import write_page
from streamsvm.jobs.run_record import frequent_classes, machine
from streamsvm.jobs.tune.options import TuneFilesJob, TuneJob
from streamsvm.jobs.tune.results import SEARCH_FIELDS, Score, best_of, command_of_best, write_results
from streamsvm.jobs.tune.search import Cell, Rounds, edge_notices, search_rounds
from streamsvm.locks import hold_lock
from streamsvm.model.measures import (
    ERROR,
    PROBABILITIES,
    Measure,
    MeasureCounts,
    PredictionTask,
    choose_measure,
    uninformative_error_notice,
)
from streamsvm.outputs import PAGE, SEARCH, Output, claim, output_path, refuse_foreign
from streamsvm.rows import Float64, Int32, Rows, row_count
from streamsvm.schedule import budget
from streamsvm.schedule.budget import MemoryPlan
from streamsvm.schedule.stream import Stream, epoch_visits
from streamsvm.store import open_store
from streamsvm.store.views import Section
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
NEWER = ("standardize_all", "multi_class", "l1_ball", "l1", "one_class", "nu", "score", "search", "points", "refine")
"""Settings that are part of the key only where they are given."""


@dataclass(frozen=True, slots=True, repr=False)
class TuneResult(JobResult):
    """The table, its best row, and where it lies."""

    out: Path
    """The directory of the table."""
    scores: tuple[Score, ...]
    """The rows of the table."""
    best: Score
    """The row with the best score."""
    seconds: float
    """How long it took."""
    measure: Measure = ERROR
    """By what points are judged."""

    def summary(self) -> dict[str, str]:
        """Return the best settings with their error, and where the table is."""
        settings = {
            name: value for name, value in self.best.facts().items() if name in ("landmarks", "gamma", "C", "nu")
        }
        score = f"{self.measure.text(self.best.score)} ± {self.measure.text(self.best.spread)}"
        return {
            **{f"best {name}": format_value(value) for name, value in settings.items() if value is not None},
            self.measure.heading: score,
            "settings tried": str(len(self.scores)),
            "table": str(self.out),
            "time": seconds_text(self.seconds),
        }

    def facts(self) -> JsonObject:
        """Return the rows of the table and the best of them."""
        scores = [score.facts(self.measure) for score in self.scores]
        return {
            "out": str(self.out),
            "measure": self.measure.title,
            "best": self.best.facts(self.measure),
            "scores": scores,
            "seconds": self.seconds,
        }


def tune(
    job: TuneJob, report: Report = silent, executor: Executor | None = None, asked: TuneFilesJob | None = None
) -> TuneResult:
    """Cross-validate the grid, cell by cell, or on a cluster cells side by side.

    ``asked``: the job as it was given, which the commands to repeat it are made of; None: ``job``. Raises BudgetError before the first read when a cell does not fit; UsageError, DataError, StorageError, ExistsError,
    ClusterError; InterruptedRun when stopped, which leaves the cells that are done for the next run.
    """
    again = signals.set_resume_command(format_command("tune", asked or job))
    with again, time_limit.limit_time(job.time_limit), executor_for(job, executor) as found:
        mine = job if found is None else replace(job, memory=budget.memory_limit(found.limit(job.memory)), threads=1)
        return _run_tune(mine, report, found, asked)


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


def collect_functions(plan: Plan, trials: Sequence[Sequence[ProblemRun]]) -> Functions:
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


def _weights(plan: Plan, run: ProblemRun) -> Float64:
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


def count_fold_scores(
    store: Store, found: Functions, trials: Sequence[Trial], counts: MeasureCounts, **reading: Any
) -> list[float]:
    """Return the measure of each trial on the fold it did not see, in one reading of the store.

    ``found``: the functions of the trials, in their order. ``counts``: of as many models, empty. ``reading``: options of
    the ``Stream``.
    """
    first = trials[0].problems[0]
    with Stream(store, epoch_visits(store.layout, 0, 0, shuffled=False), **reading) as stream:
        for loaded in stream:
            mine = [k for k, trial in enumerate(trials) if loaded.visit.chunk in trial.chunks]
            if not mine:
                continue
            ends = np.cumsum([trials[k].values for k in mine])[:-1]
            values = found.values(loaded.chunk.X, mine)
            for k, f in zip(mine, np.split(values, ends, axis=1), strict=True):
                counts.add(k, f - first.kind.decision_margin(first.loss), trials[k].outcomes(loaded.chunk.codes))
    return counts.values()


class PlannedCell(NamedTuple):
    """A cell of the search, and the plan of its trials."""

    job: FitJob
    """The fit of the point, with the C or nu that takes the most memory."""
    plan: Plan
    """The plan of that fit."""
    together: int
    """Trials (pairs of C or nu and fold) that share a reading, as memory allows."""
    memory: MemoryPlan
    """The memory of training so many trials at once."""
    task: PredictionTask
    measure: Measure
    """By what its points are judged."""


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
        plan = make_plan(fit_job, store)
        total = _memory(job, store, fit_job, plan, 1, _choose_measure(job, plan)[1]).total
        if total <= limit:
            break
        limit = -(-total // budget.MIB) * budget.MIB
    return limit


def plan_cell(job: TuneJob, store: Store, landmarks: int | None, gamma: float | str) -> PlannedCell:
    """Return the plan of a cell. Raises UsageError, DataError; BudgetError when not even one problem fits."""
    fit_job = _fit_at(job, landmarks, gamma)
    plan = make_plan(fit_job, store)
    fit_job, (task, measure) = pin_automatic_choices(fit_job, plan), _choose_measure(job, plan)
    check_both_kinds(job, store.layout)
    if plan.request is None:  # landmarks that are drawn here are drawn for each fold
        check_no_label_leakage(store, None, "A search")
    memory = _memory(job, store, fit_job, plan, 1, measure)
    if (
        job.memory is None and plan.derived_limit is None and memory.total > memory.limit
    ):  # a search holds more than a fit
        plan = with_derived_limit(fit_job, store, memory.limit)
        fit_job = pin_automatic_choices(fit_job, plan)
        memory = _memory(job, store, fit_job, plan, 1, measure)
    memory.check(plan.remedy, lambda: max(_find_sufficient_limit(job, store, point) for point in build_grid(job)))
    folds = 1 if plan.request is not None and plan.request.sampling == GREEDY else job.folds
    low, high = 1, folds * len(job.loss_weights)
    while low < high:
        middle = (low + high + 1) // 2
        more = _memory(job, store, fit_job, plan, middle, measure)
        low, high, memory = (middle, high, more) if more.total <= more.limit else (low, middle - 1, memory)
    return PlannedCell(fit_job, plan, low, memory, task, measure)


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


def _memory(  # noqa: PLR0917  what a cell is, and how much of it
    job: TuneJob, store: Store, fit_job: FitJob, plan: Plan, together: int, measure: Measure
) -> MemoryPlan:
    """Return the memory plan of training ``together`` trials at once and of counting their scores."""
    layout = store.layout
    problems = [replace(one, held_out=(fold,)) for fold in _folds_of(job, together) for one in plan.problems]
    with threading.use_threads(plan.memory.threads):
        memory = plan_memory(fit_job, store, plan.solver, problems, plan.request)
    # blocks are not kept in memory, because whole chunks are held out
    terms = [*(term for term in memory.terms if term.name != "all rows"), *folding.cut_terms(layout, job.folds)]
    terms.append(
        Term("functions found", function_bytes(problems, layout), f"of {len(problems)} problems, and their values")
    )
    values = sum(len(one.kind.positives) for one in plan.problems)
    if each := measure.bytes_per_row(values):
        rows = together * (layout.rows // job.folds + layout.largest_chunk)
        terms.append(Term("decision values", each * rows, f"{measure.title} sorts them: {each} bytes a held-out row"))
    return replace(memory, terms=tuple(terms))


def _folds_of(job: TuneJob, together: int) -> list[int]:
    """Return the folds of ``together`` neighboring trials in the worst case: they begin with the last C (or nu) of a
    fold, and so reach into the most folds.
    """
    each = len(job.loss_weights)
    return [min((number + each - 1) // each, job.folds - 1) for number in range(together)]


def score_folds(
    job: TuneJob, stores: tuple[Store, Store], cell: PlannedCell, report: Report, fold: Int32 | None = None
) -> list[Score]:
    """Train a cell and return its scores for every C or nu. Raises what training raises.

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
            _, of_fold = make_features(cell.job, seen, replace(plan, request=apart), Path(job.out), report)
            ends += _solve_folds(job, seen, cell, of_fold, fold, [k], report)
    else:
        _, plan = make_features(cell.job, store, plan, Path(job.out), report)
        ends += _solve_folds(job, seen, cell, plan, fold, range(job.folds), report)
    kernel = plan.problems[0].kernel if request is None else request.record
    width, weights = None if kernel is None else kernel.gamma, job.loss_weights
    scores = []
    for k, weight in enumerate(weights):
        mine = ends[k :: len(weights)]
        passes, gap = max(end.passes for end in mine), max(end.gap for end in mine)
        values, columns = tuple(end.score for end in mine), max(end.columns for end in mine)
        scores.append(Score(cell.job.landmarks, width, weight.C, values, columns, passes, gap, weight.nu))
    return scores


def _solve_folds(  # noqa: PLR0917  what ``score_folds`` has at hand
    job: TuneJob, seen: Store, cell: PlannedCell, plan: Plan, fold: Int32, numbers: Iterable[int], report: Report
) -> list[_TrialResult]:
    """Return the results of every C or nu on some folds, fold by fold."""
    trials = [
        folding.build_trial(plan.problems, one, seen.layout, fold, k) for k in numbers for one in job.loss_weights
    ]
    found = []
    for start in range(0, len(trials), cell.together):
        found += _solve_trials(job, seen, cell, plan, trials[start : start + cell.together], report)
    return found


class _TrialResult(NamedTuple):
    score: float
    passes: int
    gap: float
    columns: int


def _solve_trials(  # noqa: PLR0917  what ``score_folds`` has at hand
    job: TuneJob, store: Store, cell: PlannedCell, plan: Plan, trials: list[Trial], report: Report
) -> list[_TrialResult]:
    """Train several trials at once, each on all folds but its own, and count the scores on that."""
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
    known = tuple(loss_probabilities(plan).values()) if cell.measure.needs == PROBABILITIES else ()
    counts = MeasureCounts(cell.measure, cell.task, len(trials), known * len(trials))
    scores = count_fold_scores(store, found, trials, counts, depth=job.prefetch, retain=memory.retain)
    gaps = [max(run.certificate.gap for run in mine if run.certificate) for mine in runs]
    columns = plan.problems[0].columns
    return [_TrialResult(score, training.passes, gap, columns) for score, gap in zip(scores, gaps, strict=True)]


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


def _run_tune(job: TuneJob, report: Report, executor: Executor | None, given: TuneFilesJob | None) -> TuneResult:
    began, out = time.perf_counter(), output_path(job.out)
    store = open_store(job.store, memory_limit=budget.memory_limit(job.memory))
    asked, job = job, choose_search_sampling(job, store)
    evenly_drawn = asked.sampling != job.sampling == UNIFORM and not job.one_class
    key = digest_search(job, store)
    with ExitStack() as stack:
        stack.enter_context(signals.set_resume_command(format_command("tune", given or job)))
        stack.enter_context(hold_lock(out))
        stack.enter_context(threadpool_limits(1))
        page = [Output(output_path(job.report), PAGE, continues=True)] if job.report is not None else []
        claim([Output(out, SEARCH, continues=True), *page], [job.store], overwrite=job.overwrite)
        done = read_search_journal(out, key, overwrite=job.overwrite)
        sweep_beside(out)
        grid = build_grid(job)
        planned = [plan_cell(job, store, *point) for point in grid]
        taken = [cell.plan for cell in planned if cell.plan.derived_limit is not None][:1]
        if taken:
            job = replace(job, memory=taken[0].derived_limit)
            given = None if given is None else replace(given, memory=job.memory)
            stack.enter_context(signals.set_resume_command(format_command("tune", given or job)))
        durable.make_directory(out)
        _write_journal(out, key, done)  # before any file of a cell: a search killed in its first cell is recognized
        seen = None if executor is not None else folding.cut_finer(store, job.folds, job.prefetch)
        measure = planned[0].measure

        def score_cells(cells: list[Cell], before: int) -> Iterator[list[Score]]:
            """Yield the scores of cells, of which so many others were done before."""
            if seen is None:
                assert executor is not None
                yield from _score_on_cluster(job, cells, max(one.memory.total for one in planned), executor)
                return
            for number, cell in enumerate(cells, before + 1):
                report({"event": "cell", "number": number, "of": before + len(cells)})
                yield score_cell(cell, job, (store, seen), report)

        table = []
        for scores, fresh in _run_rounds(search_rounds(job, grid, store.layout.rows, measure), list(done), score_cells):
            table += scores
            if fresh:
                for score in scores:
                    report({"event": "tuned", **score.facts(measure)})
                done.append(scores)
                _write_journal(out, key, done)
        facts = {
            "settings": msgspec.to_builtins(job),
            "store": store.digest,
            "rows": store.layout.rows,
            "classes": frequent_classes(store),
            "command": format_command("tune", given or job),
            "best_command": command_of_best(given or job, best_of(table, measure)),
            "machine": machine(),
            "seconds": time.perf_counter() - began,
        }
        notices = _notices(job, store, table, measure)
        facts["notices"] = list(notices)
        with scratch_beside(out) as scratch:  # the results of an earlier search stay until all of these are there
            results = scratch / out.name
            durable.make_directory(results)
            notices += write_results(results, table, facts, measure)
            notices += tuple(line for plan in taken for line in memory_notices(plan))
            notices += (UNIFORM_SAMPLING_NOTICE,) if evenly_drawn else ()
            refuse_foreign(out, SEARCH)
            durable.exchange(results, out)
        if job.report is not None:
            write_page([out], output_path(job.report))
    seconds = time.perf_counter() - began
    drawn = None if job.report is None else output_path(job.report)
    return TuneResult(out, tuple(table), best_of(table, measure), seconds, notices=notices, measure=measure, page=drawn)


def _write_journal(out: Path, key: str, done: list[list[Score]]) -> None:
    """Save the scores of the cells that are done."""
    durable.write_file(out / JOURNAL, json.dumps({"key": key, "cells": done}).encode())


def _run_rounds(
    rounds: Rounds, done: list[list[Score]], score_cells: Callable[[list[Cell], int], Iterator[list[Score]]]
) -> Iterator[tuple[list[Score], bool]]:
    """Yield the scores of cell after cell of all rounds, and whether they are new: first come those that are done."""
    cells, before = next(rounds), 0
    while True:
        found = done[before : before + len(cells)]
        yield from ((scores, False) for scores in found)
        rest = cells[len(found) :]
        for scores in score_cells(rest, before + len(found)) if rest else ():
            found.append(scores)
            yield scores, True
        before += len(cells)
        try:
            cells = rounds.send([score for scores in found for score in scores])
        except StopIteration:
            return


def score_cell(
    cell: Cell, job: TuneJob, stores: tuple[Store, Store], report: Report, fold: Int32 | None = None
) -> list[Score]:
    """Return the scores of a cell of a search. Raises what planning and training raise.

    ``stores``: the store, and the same cut into folds; ``fold`` as for ``score_folds``.
    """
    store, seen = stores
    rows = store.layout.rows
    if cell.share < 1.0:
        store = seen = _take_share(seen, cell.share, job)
    scale = rows / store.layout.rows
    C = tuple(weight.C * scale for weight in cell.weights if weight.C is not None)
    nu = tuple(weight.nu for weight in cell.weights if weight.nu is not None)
    mine = replace(job, C=C or None, nu=nu or None)
    scores = score_folds(mine, (store, seen), plan_cell(mine, store, cell.landmarks, cell.gamma), report, fold)
    return [
        score._replace(C=weight.C, nu=weight.nu, share=cell.share)
        for score, weight in zip(scores, cell.weights, strict=True)
    ]


def _take_share(store: Store, share: float, job: TuneJob) -> Store:
    """Return a share of the chunks, drawn by seed, enough for all folds; of a larger share they are a part."""
    layout = store.layout
    order = np.random.default_rng((job.seed, len(layout.chunks))).permutation(len(layout.chunks)).tolist()
    chunks = sorted(order[: max(2 * job.folds, round(share * len(layout.chunks)))])
    rows = sum(layout.chunks[chunk] for chunk in chunks)
    return Section(store, chunks, tuple(max(1, round(count * rows / layout.rows)) for count in layout.counts))


def _score_on_cluster(job: TuneJob, cells: list[Cell], needs: int, executor: Executor) -> Iterator[list[Score]]:
    """Yield the scores of cells in order, a task each."""
    there = replace(job, store=str(Path(job.store).resolve()), out=str(Path(job.out).resolve()))
    shared = (executor.share(there), executor.share(time.time() + job.time_limit))
    yield from executor.map(Task("tune", score_cell_there, needs), cells, shared)


def score_cell_there(cell: Cell, job: TuneJob, moment: float) -> list[Score]:
    """Return the scores of a cell; this is the task of a worker, with files of its own. Raises what ``tune`` raises.

    It ends at ``moment`` (as of ``time.time``), when the time of the search is over.
    """
    store, limit = open_store(job.store), time_limit.limit_time(moment - time.time())
    with limit, tempfile.TemporaryDirectory(dir=job.out, prefix=".cell-") as scratch, threadpool_limits(1):
        seen = folding.cut_finer(store, job.folds, job.prefetch)
        return score_cell(cell, replace(job, out=scratch), (store, seen), silent)


def _notices(job: TuneJob, store: Store, table: Sequence[Score], measure: Measure) -> tuple[str, ...]:
    """Return what a user should know of the result of a search."""
    found, layout = edge_notices(table, measure, refined=bool(job.refine)), store.layout
    if measure != ERROR:
        return found
    most = max(layout.counts)
    if job.positive is not None:  # one class against all others
        mine = layout.counts[layout.classes.index(job.positive)]
        most = max(mine, layout.rows - mine)
    nothing = uninformative_error_notice(best_of(table, measure).score, 1.0 - most / layout.rows)
    return found if nothing is None else (*found, nothing)


def _choose_measure(job: TuneJob, plan: Plan) -> tuple[PredictionTask, Measure]:
    """Return what is predicted, and by what points are judged. Raises UsageError for a measure that does not fit."""
    task = describe_task(plan.problems, plan.layout, job.positive)
    return task, choose_measure(job.score, task)


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
        grid = build_grid(job)
        planned = [plan_cell(job, store, *point) for point in grid]
        seen = folding.cut_finer(store, job.folds, job.prefetch, least=1) if fold is None else store

        def score_cells(cells: list[Cell], _before: int) -> Iterator[list[Score]]:
            for cell in cells:
                yield score_cell(cell, job, (store, seen), report, fold)

        rounds = search_rounds(job, grid, store.layout.rows, planned[0].measure)
        return tuple(score for scores, _ in _run_rounds(rounds, [], score_cells) for score in scores)
