"""tune: cross-validate combinations of landmarks, gamma and C (or nu), and write tables, a heat map and a page.

A cell of the grid is one combination of landmarks and gamma; all values of C (or nu) and all folds are problems that
share its passes. Each pass computes the features once for all of them, and one more pass after the last one computes
the scores on the folds (``jobs.folds``). Landmarks chosen by labels (greedy) differ from fold to fold, because the
labels of held-out rows must not be used; then each fold has its own passes, which all values of C share. If memory does
not suffice for the states of all problems, they are solved in several groups.

The scores of finished cells are kept in a journal, so that an interrupted search continues with the next cell. On a
cluster each cell is one task.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec
import numpy as np

from streamsvm import durable
from streamsvm.compute import threading
from streamsvm.compute.blocks import operators
from streamsvm.compute.blocks.selection import bytes_per_row
from streamsvm.config.command_table import format_command
from streamsvm.config.options import field_values
from streamsvm.config.units import seconds_text
from streamsvm.durable import remove_stale_scratch, scratch_beside
from streamsvm.engine import signals, time_limit
from streamsvm.engine.executor import Executor, Task, executor_for, local_executor
from streamsvm.engine.fit_state import ProblemRun, Training
from streamsvm.engine.local_loop import local_trainer
from streamsvm.engine.loop import RunSettings
from streamsvm.errors import BudgetError, DataError, UsageError
from streamsvm.features.expansion import Expansion, expansion_bytes
from streamsvm.features.scaling import Raw, Standardized
from streamsvm.input_files import find_url
from streamsvm.jobs import JobResult, format_value
from streamsvm.jobs import folds as folding
from streamsvm.jobs.calibrate import loss_probabilities
from streamsvm.jobs.embed.plan import AUTO_SAMPLING, GREEDY, ON_THE_FLY, UNIFORM, check_no_label_leakage
from streamsvm.jobs.fit.certify import check_finite
from streamsvm.jobs.fit.memory import plan_memory
from streamsvm.jobs.fit.notices import memory_notices
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.outputs import build_expansion
from streamsvm.jobs.fit.plan import (
    UNIFORM_SAMPLING_NOTICE,
    Plan,
    make_features,
    make_plan,
    pin_automatic_choices,
    with_derived_limit,
)
from streamsvm.jobs.fit.problems import check_cost, describe_task
from streamsvm.jobs.folds import Trial
from streamsvm.jobs.report import write_page
from streamsvm.jobs.run_record import frequent_classes, machine
from streamsvm.jobs.tune.options import TuneFilesJob, TuneJob
from streamsvm.jobs.tune.regret import RegretFigures, RegretSearch, Solved, check_regret, describe_regret, regret_terms
from streamsvm.jobs.tune.results import SEARCH_FIELDS, Score, best_of, command_of_best, write_results
from streamsvm.jobs.tune.resume import digest_search, read_search_journal, write_search_journal
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
from streamsvm.outputs import PAGE, SEARCH, Output, check_writable, output_path, refuse_foreign
from streamsvm.rows import Float64, Int32, Rows, row_count
from streamsvm.schedule import budget
from streamsvm.schedule.budget import MemoryPlan
from streamsvm.schedule.machine import limit_blas_threads
from streamsvm.schedule.stream import Stream, epoch_visits
from streamsvm.store import open_store
from streamsvm.store.views import Section
from streamsvm.type_aliases import JsonObject
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
"""The settings that a search shares with a fit."""
ATTEMPTS = 10
"""Maximum number of memory limits that are tried to find a sufficient one. Each is what the plan under the previous
limit needs."""


@dataclass(frozen=True, slots=True, repr=False)
class TuneResult(JobResult):
    """The result of a search: the table of scores, its best row, and its path."""

    out: Path | str
    """The directory of the table; a text for a URL."""
    scores: tuple[Score, ...]
    """The rows of the table."""
    best: Score
    """The row with the best score."""
    seconds: float
    """Wall-clock time."""
    measure: Measure = ERROR
    """The measure by which points are ranked."""
    regret: RegretFigures | None = None
    """What is proved of all C between those that were given (--regret)."""

    def summary(self) -> dict[str, str]:
        """Return the best settings with their score, and the path of the table, as texts by name."""
        settings = {
            name: value for name, value in self.best.facts().items() if name in ("landmarks", "gamma", "C", "nu")
        }
        score = f"{self.measure.text(self.best.score)} ± {self.measure.text(self.best.spread)}"
        return {
            **{f"best {name}": format_value(value) for name, value in settings.items() if value is not None},
            self.measure.heading: score,
            **({} if self.regret is None else {"proof": describe_regret(self.regret, self.best)}),
            "settings tried": str(len(self.scores)),
            "table": str(self.out),
            "time": seconds_text(self.seconds),
        }

    def facts(self) -> JsonObject:
        """Return all rows of the table and the best one, as JSON values."""
        scores = [score.facts(self.measure) for score in self.scores]
        return {
            "out": str(self.out),
            "measure": self.measure.title,
            "best": self.best.facts(self.measure),
            "scores": scores,
            "seconds": self.seconds,
            **({} if self.regret is None else {"regret": self.regret.facts()}),
        }


def tune(
    job: TuneJob, report: Report = silent, executor: Executor | None = None, asked: TuneFilesJob | None = None
) -> TuneResult:
    """Cross-validate the points of a search, one cell after the other, or on a cluster several cells at the same time.

    ``asked``: the job that the user gave, for the commands that repeat it; None: ``job``.

    Raises BudgetError, before any row is read, if a cell does not fit in memory; UsageError, DataError, StorageError,
    ExistsError, ClusterError; InterruptedRun if the search was interrupted. The next run then continues after the
    finished cells.
    """
    resume_command = signals.set_resume_command(format_command("tune", asked or job))
    with resume_command, time_limit.limit_time(job.time_limit), executor_for(job, executor) as connected:
        job_on_workers = (
            job
            if connected is None
            else replace(job, memory=budget.memory_limit(connected.memory_limit(job.memory)), threads=1)
        )
        return _run_tune(job_on_workers, report, connected, asked)


class Functions(Protocol):
    """The decision functions of several trials."""

    def values(self, X: Rows, trials: Sequence[int]) -> Float64:
        """Return the decision values of stored rows for some trials, side by side: (n, decision values of all of
        them).
        """
        ...


@dataclass(frozen=True, slots=True)
class FeatureFunctions:
    """Decision functions that are linear in the features of a map."""

    features: FeatureMap
    weights: tuple[Float64, ...]
    """For each trial, (columns + 1, decision values)."""

    def values(self, X: Rows, trials: Sequence[int]) -> Float64:
        W = np.concatenate([self.weights[k] for k in trials], axis=1)
        return np.concatenate([operators.margins(part.X, W) for part in self.features.parts(X)])


@dataclass(slots=True)
class KernelFunctions:
    """Kernel expansions. One expansion with the points of several trials is kept in memory until other trials are
    evaluated.
    """

    kernel: Kernel
    columns: int
    """Number of columns of stored rows."""
    inner: Raw | Standardized
    """The map that is applied to stored rows before the kernel."""
    solutions: tuple[tuple[SupportSolution, ...], ...]
    """For each trial, the solution of each of its problems."""
    _trials: tuple[int, ...] = ()
    """The trials of the expansion in memory."""
    _expansion: tuple[Float64, Expansion] | None = field(default=None, repr=False)
    """The weights and the expansion of ``_trials``; None before the first evaluation."""

    def values(self, X: Rows, trials: Sequence[int]) -> Float64:
        if self._expansion is None or self._trials != tuple(trials):
            self._expansion = None  # freed first, because the memory plan counts one expansion
            chosen = [solution for k in trials for solution in self.solutions[k]]
            self._expansion, self._trials = (
                build_expansion(self.kernel, self.columns, self.inner, chosen),
                tuple(trials),
            )
        weights, expansion = self._expansion
        out = np.empty((row_count(X), len(weights)))
        expansion.decision(X, weights, out)
        return out


def collect_functions(plan: Plan, trials: Sequence[Sequence[ProblemRun]]) -> Functions:
    """Return the decision functions of some trials; each trial is given by the runs of its problems."""
    kernel, inner = plan.problems[0].kernel, plan.features
    if kernel is None:
        return FeatureFunctions(
            inner, tuple(np.concatenate([_weights(plan, run) for run in runs]).T for runs in trials)
        )
    solutions = [tuple(plan.solver.solution(run.state) for run in runs) for runs in trials]
    supports = tuple(
        tuple(solution for solution in of_trial if isinstance(solution, SupportSolution)) for of_trial in solutions
    )
    assert isinstance(inner, Raw | Standardized)  # the only maps for exact kernels
    return KernelFunctions(kernel, plan.layout.columns, inner, supports)


def _weights(plan: Plan, run: ProblemRun) -> Float64:
    """Return the weights of a solved problem, (decision values, columns + 1)."""
    solution = plan.solver.solution(run.state)
    assert isinstance(solution, LinearSolution)  # the only kind of solution without a kernel
    return run.problem.kind.decision_weights(solution.w)


def function_bytes(problems: Sequence[Problem], layout: Layout) -> int:
    """Return the bytes of the decision functions of some problems (without the solvers' states), and of their values on
    a chunk.
    """
    values = 8 * sum(len(problem.kind.positives) for problem in problems) * layout.largest_chunk
    if problems[0].kernel is None:
        return values + 8 * sum(problem.components for problem in problems)
    points = layout.rows * (2 * bytes_per_row(layout.columns, layout.rows, layout.nonzeros) + 8 * len(problems))
    return values + points + expansion_bytes(layout.columns)


def count_fold_scores(
    store: Store, functions: Functions, trials: Sequence[Trial], counts: MeasureCounts, **reading: Any
) -> list[float]:
    """Return the measure of each trial on its held-out fold, in one pass over the store.

    ``functions``: the decision functions of the trials. ``counts``: counts of no rows for as many models. ``reading``:
    options of the ``Stream``.
    """
    first = trials[0].problems[0]
    with Stream(store, epoch_visits(store.layout, 0, 0, shuffled=False), **reading) as stream:
        for loaded in stream:
            evaluated = [k for k, trial in enumerate(trials) if loaded.visit.chunk in trial.chunks]
            if not evaluated:
                continue
            ends = np.cumsum([trials[k].values for k in evaluated])[:-1]
            values = functions.values(loaded.chunk.X, evaluated)
            for k, f in zip(evaluated, np.split(values, ends, axis=1), strict=True):
                counts.add(k, f - first.kind.decision_margin(first.loss), trials[k].outcomes(loaded.chunk.codes))
    return counts.values()


class PlannedCell(NamedTuple):
    """The plan of a cell of the search."""

    job: FitJob
    """The fit with the cell's landmarks and gamma, and the C or nu that takes the most memory."""
    plan: Plan
    """The plan of that fit."""
    trials_at_once: int
    """Number of trials (pairs of a C or nu and a fold) that share their passes, as memory allows."""
    memory: MemoryPlan
    """The memory plan for training so many trials at the same time."""
    task: PredictionTask
    measure: Measure
    """The measure by which points are ranked."""


def _fit_at(job: TuneJob, landmarks: int | None, gamma: float | str) -> FitJob:
    """Return the fit with these landmarks and gamma, and the C or nu that takes the most memory."""
    shared = field_values(job, FIT_FIELDS)
    widest = max(job.loss_weights, key=lambda weight: weight.nu or 0.0)
    point_settings = {**widest._asdict(), "landmarks": landmarks, "gamma": gamma}
    return FitJob(**shared, **point_settings, model=job.out, embedding=ON_THE_FLY)


def _find_sufficient_limit(job: TuneJob, store: Store, point: tuple[int | None, float | str]) -> int:
    """Return a memory limit in whole MiB that suffices for a point. Several limits have to be tried, because with more
    memory the plan may have another solver or more threads.
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
    """Return the plan of a cell. Raises UsageError, DataError, and BudgetError if not even one trial fits in memory."""
    fit_job = _fit_at(job, landmarks, gamma)
    plan = make_plan(fit_job, store)
    fit_job, (task, measure) = pin_automatic_choices(fit_job, plan), _choose_measure(job, plan)
    check_both_kinds(job, store.layout)
    if job.regret is not None:
        check_regret(job, plan.problems[0])
    if plan.request is None:  # otherwise landmarks are selected for each fold, without its labels
        check_no_label_leakage(store, None, "A search")
    memory = _memory(job, store, fit_job, plan, 1, measure)
    if (
        job.memory is None and plan.derived_limit is None and memory.total > memory.limit
    ):  # a search needs more memory than a fit
        plan = with_derived_limit(fit_job, store, memory.limit)
        fit_job = pin_automatic_choices(fit_job, plan)
        memory = _memory(job, store, fit_job, plan, 1, measure)
    memory.check(plan.remedy, lambda: max(_find_sufficient_limit(job, store, point) for point in build_grid(job)))
    folds = 1 if plan.request is not None and plan.request.sampling == GREEDY else job.folds
    low, high = 1, folds * len(job.loss_weights)
    while low < high:
        middle = (low + high + 1) // 2
        candidate = _memory(job, store, fit_job, plan, middle, measure)
        low, high, memory = (
            (middle, high, candidate) if candidate.total <= candidate.limit else (low, middle - 1, memory)
        )
    return PlannedCell(fit_job, plan, low, memory, task, measure)


def choose_search_sampling(job: TuneJob, store: Store) -> TuneJob:
    """Return the search with a definite sampling of landmarks in place of ``auto``, the same for all points, so that
    their scores can be compared.

    The sampling is greedy (by labels); it is uniform for one-class problems, and if greedy selection exceeds the memory
    limit at some point. Raises the errors of ``plan_cell``.
    """
    if job.sampling != AUTO_SAMPLING or not job.landmarks:
        return job
    greedy, uniform = replace(job, sampling=GREEDY), replace(job, sampling=UNIFORM)
    if job.one_class:
        return uniform
    try:
        for point in build_grid(job):
            plan_cell(greedy, store, *point)
    except BudgetError:
        return uniform
    return greedy


def _memory(  # noqa: PLR0917 (the parts of a cell)
    job: TuneJob, store: Store, fit_job: FitJob, plan: Plan, trials_at_once: int, measure: Measure
) -> MemoryPlan:
    """Return the memory plan of training ``trials_at_once`` trials at once and of counting their scores."""
    layout = store.layout
    problems = [
        replace(problem, held_out=(fold,)) for fold in _folds_of(job, trials_at_once) for problem in plan.problems
    ]
    with threading.use_threads(plan.memory.threads):
        memory = plan_memory(fit_job, store, plan.solver, problems, plan.request)
    # blocks are not kept in memory, because whole chunks are held out
    terms = [*(term for term in memory.terms if term.name != "all rows"), *folding.cut_terms(layout, job.folds)]
    terms.append(
        Term("functions found", function_bytes(problems, layout), f"of {len(problems)} problems, and their values")
    )
    terms += regret_terms(job, plan.problems)
    values = sum(len(problem.kind.positives) for problem in plan.problems)
    if per_row := measure.bytes_per_row(values):
        rows = trials_at_once * (layout.rows // job.folds + layout.largest_chunk)
        terms.append(
            Term(
                "decision values",
                per_row * rows,
                f"{measure.title} sorts them: {per_row} bytes a held-out row",
            )
        )
    return replace(memory, terms=tuple(terms))


def _folds_of(job: TuneJob, trials_at_once: int) -> list[int]:
    """Return the folds of ``trials_at_once`` consecutive trials in the worst case: the first trial has the last C (or
    nu) of its fold, so that the trials belong to as many folds as possible.
    """
    each = len(job.loss_weights)
    return [min((number + each - 1) // each, job.folds - 1) for number in range(trials_at_once)]


def score_folds(
    job: TuneJob, stores: tuple[Store, Store], cell: PlannedCell, report: Report, fold: Int32 | None = None
) -> list[Score]:
    """Train a cell and return its score for each C or nu. Raises the errors of training.

    ``stores``: the store, and the same rows in chunks that belong to one fold each. ``fold``: the fold of each chunk of
    the second store; None: chunks are assigned to folds at random.
    """
    store, fold_store = stores
    plan = replace(cell.plan, memory=cell.memory)
    if fold is None:
        fold = folding.deal_chunks(fold_store.layout, job.folds, job.seed)
    request = plan.request
    results: list[_TrialResult] = []
    if request is not None and request.sampling == GREEDY:
        for k in range(job.folds):
            fold_request = replace(request, held_out=tuple(np.flatnonzero(fold == k).tolist()))
            _, fold_plan = make_features(
                cell.job, fold_store, replace(plan, request=fold_request), Path(job.out), report
            )
            results += _solve_folds(job, fold_store, cell, fold_plan, fold, [k], report)
    else:
        _, plan = make_features(cell.job, store, plan, Path(job.out), report)
        results += _solve_folds(job, fold_store, cell, plan, fold, range(job.folds), report)
    kernel = plan.problems[0].kernel if request is None else request.kernel
    gamma, weights = None if kernel is None else kernel.gamma, job.loss_weights
    scores = []
    for k, weight in enumerate(weights):
        weight_results = results[k :: len(weights)]
        passes, gap = max(result.passes for result in weight_results), max(result.gap for result in weight_results)
        values, columns = (
            tuple(result.score for result in weight_results),
            max(result.columns for result in weight_results),
        )
        scores.append(Score(cell.job.landmarks, gamma, weight.C, values, columns, passes, gap, weight.nu))
    return scores


def _solve_folds(  # noqa: PLR0917 (called once, with variables of ``score_folds``)
    job: TuneJob, fold_store: Store, cell: PlannedCell, plan: Plan, fold: Int32, numbers: Iterable[int], report: Report
) -> list[_TrialResult]:
    """Return the results of each C or nu on the folds ``numbers``, fold by fold."""
    trials = [
        folding.build_trial(plan.problems, weight, fold_store.layout, fold, k)
        for k in numbers
        for weight in job.loss_weights
    ]
    results = []
    for start in range(0, len(trials), cell.trials_at_once):
        results += _solve_trials(job, fold_store, cell, plan, trials[start : start + cell.trials_at_once], report)
    return results


class _TrialResult(NamedTuple):
    score: float
    passes: int
    gap: float
    columns: int


def _solve_trials(  # noqa: PLR0917 (called once, with variables of ``_solve_folds``)
    job: TuneJob, store: Store, cell: PlannedCell, plan: Plan, trials: list[Trial], report: Report
) -> list[_TrialResult]:
    """Train several trials at the same time, each without its held-out fold, and return their results with the score on
    it.
    """
    training, runs = _train_trials(job, store, plan, trials, report)
    functions = collect_functions(plan, runs)
    probabilities = tuple(loss_probabilities(plan).values()) if cell.measure.needs == PROBABILITIES else ()
    counts = MeasureCounts(cell.measure, cell.task, len(trials), probabilities * len(trials))
    scores = count_fold_scores(store, functions, trials, counts, depth=job.prefetch, retain=plan.memory.retain)
    gaps = [max(run.certificate.gap for run in trial_runs if run.certificate) for trial_runs in runs]
    columns = plan.problems[0].columns
    return [_TrialResult(score, training.passes, gap, columns) for score, gap in zip(scores, gaps, strict=True)]


def _train_trials(
    job: TuneJob, store: Store, plan: Plan, trials: list[Trial], report: Report
) -> tuple[Training, list[list[ProblemRun]]]:
    """Train several trials at the same time, each without its held-out fold; return the training, and the runs of each trial."""
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
    return training, [training.runs[k : k + each] for k in range(0, len(problems), each)]


def prove_costs(
    job: TuneJob, stores: tuple[Store, Store], cell: PlannedCell, report: Report
) -> tuple[list[Score], RegretFigures]:
    """Return the scores of all C that were fitted, and what is proved of those between. Raises the errors of training.

    ``stores``: as for ``score_folds``.
    """
    store, fold_store = stores
    _, plan = make_features(cell.job, store, replace(cell.plan, memory=cell.memory), Path(job.out), report)

    def solve(trials: list[Trial]) -> list[Solved]:
        solved = []
        for start in range(0, len(trials), cell.trials_at_once):
            training, runs = _train_trials(job, fold_store, plan, trials[start : start + cell.trials_at_once], report)
            for trial_runs in runs:
                gap = max(run.certificate.gap for run in trial_runs if run.certificate)
                weights = tuple(_weights(plan, run)[0] for run in trial_runs)
                solved.append(Solved(weights, training.passes, gap))
        return solved

    fold = folding.deal_chunks(fold_store.layout, job.folds, job.seed)
    with threading.use_threads(plan.memory.threads):
        return RegretSearch(job, fold_store, plan, fold, solve, job.regret or 0.0).run()


def build_grid(job: TuneJob) -> list[tuple[int | None, float | str]]:
    """Return landmarks (None for an exact kernel) and gamma of each cell of the grid. Raises UsageError for lists of
    values that are empty or contain a value twice.
    """
    for name, values in field_values(job, ("C", "nu", "gamma", "landmarks")).items():
        if values is not None and (len(set(values)) < len(values) or (not values and name != "landmarks")):
            raise UsageError(f"{name} must be a list of different values, not {values}", hint="give each value once")
    for C in job.C or ():
        check_cost(C)
    if job.kernel == "linear" and not job.landmarks:
        return [(None, "scale")]
    return [(m, gamma) for m in job.landmarks or (None,) for gamma in job.gamma]


def check_both_kinds(job: TuneJob, layout: Layout) -> None:
    """Raise DataError for a one-class search if the store has no rows of the class, or no other rows."""
    if not job.one_class:
        return
    rows_of_class = sum(
        count for name, count in zip(layout.classes, layout.counts, strict=True) if name == job.positive
    )
    if not 0 < rows_of_class < layout.rows:
        message = f"a one-class search needs rows of '{job.positive}' and rows of other labels; {rows_of_class} of {layout.rows} rows are of '{job.positive}'"
        raise DataError(
            message,
            code="E-LABEL",
            hint="ingest both: only the class is learned, but errors are counted on held-out rows of both",
        )


def _run_tune(job: TuneJob, report: Report, executor: Executor | None, asked: TuneFilesJob | None) -> TuneResult:
    began, out = time.perf_counter(), output_path(job.out)
    store = open_store(job.store, memory_limit=budget.memory_limit(job.memory), disk_cache=job.disk_cache or 0)
    folding.check_rows(store.layout, job.folds)  # before the folder is made
    original, job = job, choose_search_sampling(job, store)
    sampled_uniformly = original.sampling != job.sampling and job.sampling == UNIFORM and not job.one_class
    key = digest_search(job, store)
    with ExitStack() as stack:
        stack.enter_context(signals.set_resume_command(format_command("tune", asked or job)))
        stack.enter_context(hold_lock(out))
        stack.enter_context(limit_blas_threads())
        page = [Output(output_path(job.report), PAGE, may_exist=True)] if job.report is not None else []
        check_writable([Output(out, SEARCH, may_exist=True), *page], [job.store], overwrite=job.overwrite)
        done = read_search_journal(out, key, overwrite=job.overwrite)
        remove_stale_scratch(out)
        grid = build_grid(job)
        plans = [plan_cell(job, store, *point) for point in grid]
        limited_plans = [cell.plan for cell in plans if cell.plan.derived_limit is not None][:1]
        if limited_plans:
            job = replace(job, memory=limited_plans[0].derived_limit)
            asked = None if asked is None else replace(asked, memory=job.memory)
            stack.enter_context(signals.set_resume_command(format_command("tune", asked or job)))
        durable.make_directory(out)
        write_search_journal(out, key, done)  # before the first cell, so that a search killed during it is recognized
        fold_store = None if executor is not None else folding.cut_finer(store, job.folds, job.prefetch)
        measure = plans[0].measure

        def score_cells(cells: list[Cell], before: int) -> Iterator[list[Score]]:
            """Yield the scores of each cell; ``before``: number of cells that were finished before these."""
            if fold_store is None:
                assert executor is not None
                yield from _score_on_cluster(job, cells, max(one.memory.total for one in plans), executor)
                return
            for number, cell in enumerate(cells, before + 1):
                report({"event": "cell", "number": number, "of": before + len(cells)})
                yield score_cell(cell, job, (store, fold_store), report)

        table, regret = list[Score](), None
        if job.regret is not None:
            assert fold_store is not None  # --regret is refused with --cluster
            table, regret = prove_costs(job, (store, fold_store), plans[0], report)
        else:
            rounds = search_rounds(job, grid, store.layout.rows, measure)
            for scores, fresh in _run_rounds(rounds, list(done), score_cells):
                table += scores
                if fresh:
                    for score in scores:
                        report({"event": "tuned", **score.facts(measure)})
                    done.append(scores)
                    write_search_journal(out, key, done)
        facts = {
            "settings": msgspec.to_builtins(job),
            "store": store.digest,
            "rows": store.layout.rows,
            "classes": frequent_classes(store),
            "command": format_command("tune", asked or job),
            "best_command": command_of_best(asked or job, best_of(table, measure)),
            "machine": machine(),
            **({} if regret is None else {"regret": regret.facts(), "proof": describe_regret(regret, best_of(table))}),
            "seconds": time.perf_counter() - began,
        }
        notices = _notices(job, store, table, measure)
        facts["notices"] = list(notices)
        with scratch_beside(out) as scratch:  # results of an earlier search are replaced when all new ones are written
            results = scratch / out.name
            durable.make_directory(results)
            notices += write_results(results, table, facts, measure)
            notices += tuple(line for plan in limited_plans for line in memory_notices(plan))
            notices += (UNIFORM_SAMPLING_NOTICE,) if sampled_uniformly else ()
            refuse_foreign(out, SEARCH)
            durable.exchange(results, out)
        if job.report is not None:
            write_page([out], output_path(job.report))
    seconds = time.perf_counter() - began
    page_path = None if job.report is None else output_path(job.report)
    return TuneResult(
        out,
        tuple(table),
        best_of(table, measure),
        seconds,
        notices=notices,
        measure=measure,
        regret=regret,
        page=page_path,
    )


def _run_rounds(
    rounds: Rounds, done: list[list[Score]], score_cells: Callable[[list[Cell], int], Iterator[list[Score]]]
) -> Iterator[tuple[list[Score], bool]]:
    """Yield the scores of each cell of all rounds, and whether they are new; False for the scores in ``done``."""
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
    """Return the scores of a cell of a search. Raises the errors of planning and training.

    ``stores`` and ``fold``: as for ``score_folds``.
    """
    store, fold_store = stores
    rows = store.layout.rows
    if cell.share < 1.0:
        store = fold_store = _take_share(fold_store, cell.share, job)
    scale = rows / store.layout.rows
    C = tuple(weight.C * scale for weight in cell.weights if weight.C is not None)
    nu = tuple(weight.nu for weight in cell.weights if weight.nu is not None)
    cell_job = replace(job, C=C or None, nu=nu or None)
    scores = score_folds(
        cell_job, (store, fold_store), plan_cell(cell_job, store, cell.landmarks, cell.gamma), report, fold
    )
    return [
        score._replace(C=weight.C, nu=weight.nu, share=cell.share)
        for score, weight in zip(scores, cell.weights, strict=True)
    ]


def _take_share(store: Store, share: float, job: TuneJob) -> Store:
    """Return a store with a random share of the chunks, which the seed determines; a larger share contains a smaller
    one.

    It has at least two chunks per fold.
    """
    layout = store.layout
    order = np.random.default_rng((job.seed, len(layout.chunks))).permutation(len(layout.chunks)).tolist()
    chunks = sorted(order[: max(2 * job.folds, round(share * len(layout.chunks)))])
    rows = sum(layout.chunks[chunk] for chunk in chunks)
    return Section(store, chunks, tuple(max(1, round(count * rows / layout.rows)) for count in layout.counts))


def _score_on_cluster(job: TuneJob, cells: list[Cell], needs: int, executor: Executor) -> Iterator[list[Score]]:
    """Yield the scores of the cells in order; each cell is one task on the cluster."""
    job_on_workers = replace(
        job, store=find_url(job.store) or str(Path(job.store).resolve()), out=str(Path(job.out).resolve())
    )
    shared = (executor.share(job_on_workers), executor.share(time.time() + job.time_limit))
    yield from executor.map(Task("tune", score_cell_on_worker, needs), cells, shared)


def score_cell_on_worker(cell: Cell, job: TuneJob, moment: float) -> list[Score]:
    """Return the scores of a cell, with a scratch directory for this task (the task of a worker). Raises the errors of
    ``tune``.

    ``moment``: the end of the search's time limit, by ``time.time``.
    """
    store, limit = open_store(job.store), time_limit.limit_time(moment - time.time())
    with limit, tempfile.TemporaryDirectory(dir=job.out, prefix=".cell-") as scratch, limit_blas_threads():
        fold_store = folding.cut_finer(store, job.folds, job.prefetch)
        return score_cell(cell, replace(job, out=scratch), (store, fold_store), silent)


def _notices(job: TuneJob, store: Store, table: Sequence[Score], measure: Measure) -> tuple[str, ...]:
    """Return notices about the result of a search: best values at the edge of the grid, and uninformative errors."""
    notices, layout = edge_notices(table, measure, refined=bool(job.refine)), store.layout
    if measure != ERROR:
        return notices
    most_frequent = max(layout.counts)
    if job.positive is not None:  # one class against all others
        positive_rows = layout.counts[layout.classes.index(job.positive)]
        most_frequent = max(positive_rows, layout.rows - positive_rows)
    uninformative = uninformative_error_notice(best_of(table, measure).score, 1.0 - most_frequent / layout.rows)
    return notices if uninformative is None else (*notices, uninformative)


def _choose_measure(job: TuneJob, plan: Plan) -> tuple[PredictionTask, Measure]:
    """Return the task and the measure by which points are ranked. Raises UsageError if --score does not suit the
    task.
    """
    task = describe_task(plan.problems, plan.layout, job.positive)
    return task, choose_measure(job.score, task)


def tune_in_memory(job: TuneJob, store: Store, report: Report = silent, fold: Int32 | None = None) -> tuple[Score, ...]:
    """Cross-validate a grid on ``store`` without writing results. Raises BudgetError, UsageError, DataError.

    ``fold`` (chunks,): the fold of each chunk; None: chunks are assigned to folds at random, after the chunks of a
    small store were cut, if necessary down to single rows.
    """
    with tempfile.TemporaryDirectory(prefix="streamsvm-") as directory, limit_blas_threads():
        job = choose_search_sampling(replace(job, out=directory), store)
        grid = build_grid(job)
        plans = [plan_cell(job, store, *point) for point in grid]
        fold_store = folding.cut_finer(store, job.folds, job.prefetch, least=1) if fold is None else store

        def score_cells(cells: list[Cell], _before: int) -> Iterator[list[Score]]:
            for cell in cells:
                yield score_cell(cell, job, (store, fold_store), report, fold)

        rounds = search_rounds(job, grid, store.layout.rows, plans[0].measure)
        return tuple(score for scores, _ in _run_rounds(rounds, [], score_cells) for score in scores)
