"""Estimate the memory of a fit, and reduce threads and solver settings until it fits the limit."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from streamsvm.compute import threading
from streamsvm.config.units import mib
from streamsvm.engine.partition import pass_groups
from streamsvm.input_files import find_url, is_folder
from streamsvm.jobs.calibrate import calibration_terms
from streamsvm.jobs.common_options import DEFAULT_PREFETCH
from streamsvm.jobs.embed.plan import NystromRequest, embedding_terms
from streamsvm.jobs.fit.curves import CurveRequest
from streamsvm.jobs.fit.enclose import enclosure_terms
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.problems import describe_task, warm_start_terms
from streamsvm.model.measures import MEASURES, RANKS, choose_measure
from streamsvm.schedule import budget
from streamsvm.schedule.budget import MemoryPlan
from streamsvm.schedule.machine import count_wanted_threads
from streamsvm.store import open_store
from streamsvm.types import AnySolver, Cost, Layout, Problem, Store, Term


def plan_memory(
    job: FitJob,
    store: Store,
    solver: AnySolver,
    problems: list[Problem],
    request: NystromRequest | CurveRequest | None = None,
) -> MemoryPlan:
    """Return the memory of the job with the current number of threads, term by term. ``request``: the features that are
    computed from stored rows; None: the solver sees the stored rows.

    Per-row state and the cache of blocks are planned in memory only if the total stays within the limit.
    """
    layout, count = store.layout, threading.threads()
    feature_layout = layout if request is None else request.layout_of_features(layout)
    cost = request.cost if isinstance(request, CurveRequest) else _cost_of_solver
    costs = [cost(solver, problem, feature_layout) for problem in problems]
    limit, readers = budget.memory_limit(job.memory), count_readers(job, solver, layout, count)
    terms = [*budget.steady_terms(), *budget.block_terms(layout, job.prefetch, store.buffers().nbytes, readers)]
    terms += calibration_terms(job, solver, problems, feature_layout, readers) + enclosure_terms(job, problems, readers)
    terms += (
        budget.copies_term(job.model) + warm_start_terms(problems) + _memory_of_validation(job, layout, problems, count)
    )
    problems_per_batch = solver.problems_per_batch or len(problems)
    active, others = costs[:problems_per_batch], costs[problems_per_batch:]
    solver_bytes = sum(c.fixed for c in active) + sum(c.solved for c in others) + sum_shared_bytes(costs, problems)
    why = f"{len(problems)} problem(s)" + (f", {problems_per_batch} at a time" if others else "")
    terms.append(Term("solver", solver_bytes, why))
    scratch = sum(c.per_block_row for c in active)
    if problems[0].kind.selects_rows:
        terms.append(Term("rows of a pair", readers * feature_layout.block_bytes, "of classes, copied from each block"))
    terms.append(Term("solver, per block row", readers * scratch * feature_layout.largest_chunk, "scratch"))
    part = sum(c.per_part for c in active) + max(c.shared_per_part for c in active)
    if part and (groups := len(pass_groups(layout))) > 1:
        parts = readers + groups.bit_length()
        terms.append(Term("parts of a pass", parts * part, f"{parts} x {mib(part)}: at work, and waiting to be joined"))
    if isinstance(request, CurveRequest):
        terms += request.terms(layout, solver_bytes, readers, len(problems))
    elif request is not None:
        terms += embedding_terms(request, layout, solver_bytes, readers)
    if job.standardize or job.kernel != "linear":
        terms.append(Term("column statistics", 48 * layout.columns, "to standardize or center"))
    per_row = sum(c.per_row for c in costs)
    in_memory = Term("per-row state", per_row * layout.rows, f"{per_row} bytes a row, in memory")
    in_file = Term("per-row state", per_row * layout.largest_chunk, f"{per_row} bytes a row, in a file")
    fits = sum(t.nbytes for t in terms) + in_memory.nbytes <= limit
    terms.append(in_memory if fits else in_file)
    cache = budget.cache_term(layout, job.prefetch, scratch) if request is None else None
    cached = cache is not None and sum(t.nbytes for t in terms) + cache.nbytes <= limit
    terms += [cache] if cache and cached else []
    retain = layout.bytes_per_pass <= budget.page_cache_bytes(limit)
    return MemoryPlan(tuple(terms), limit, fits, cached, retain, count)


def _cost_of_solver(solver: AnySolver, problem: Problem, feature_layout: Layout) -> Cost:
    return solver.cost(problem, feature_layout)


def _memory_of_validation(job: FitJob, layout: Layout, problems: list[Problem], threads: int) -> list[Term]:
    """Return the memory of the evaluation on held-out rows after each pass. The rows are either chunks of the
    training store, whose other chunks ``layout`` describes, or a separate store.
    """
    validation = job.validation
    if validation is None:
        return []
    from streamsvm.jobs.apply.rows import read_depth

    if isinstance(validation, float | int):  # ``layout`` is without the held-out chunks
        feature_layout, rows = layout, int(layout.rows * validation / (1.0 - validation)) + layout.largest_chunk
    else:
        feature_layout = (
            open_store(validation).layout if find_url(validation) or is_folder(Path(validation)) else layout
        )
        rows = feature_layout.rows
    readers = min(threads, len(pass_groups(feature_layout)))
    values = sum(len(problem.kind.positives) for problem in problems)
    blocks, decision_bytes = (
        sum(t.nbytes for t in budget.block_terms(feature_layout, read_depth(feature_layout))),
        16 * values * feature_layout.largest_chunk,
    )
    terms = [
        Term(
            "held-out rows",
            readers * (blocks + decision_bytes),
            f"{readers} x {read_depth(feature_layout) + 1} blocks, decision values",
        )
    ]
    measure = choose_measure(job.score, describe_task(problems, layout, job.positive))
    sorting = MEASURES["auc"] if job.threshold is not None else measure  # --threshold sorts all decision values as well
    if per_row := sorting.bytes_per_row(values):
        why = measure.title if measure.needs == RANKS else "--threshold"
        terms.append(Term("decision values", per_row * rows, f"{why} sorts them: {per_row} bytes a held-out row"))
    return terms


def sum_shared_bytes(costs: Sequence[Cost], problems: Sequence[Problem]) -> int:
    """Return the bytes that are shared by problems with the same rows: the largest of each group of such problems.

    Problems with the same held-out chunks share their rows; each one-vs-one problem has rows of its own.
    """
    largest: dict[Hashable, int] = {}
    for number, (cost, problem) in enumerate(zip(costs, problems, strict=True)):
        key = number if problem.kind.selects_rows else problem.held_out
        largest[key] = max(largest.get(key, 0), cost.shared)
    return sum(largest.values())


def count_readers(job: FitJob, solver: AnySolver, layout: Layout, count: int) -> int:
    """Return how many of ``count`` threads read and visit blocks at the same time."""
    if solver.shuffled:
        return min(count, job.groups or 1)
    return min(count, len(pass_groups(layout)))


def fit_to_memory(
    job: FitJob,
    store: Store,
    solver: AnySolver,
    problems: list[Problem],
    request: NystromRequest | CurveRequest | None,
) -> tuple[AnySolver, MemoryPlan]:
    """Return the solver adapted to the memory limit, and its memory: first with fewer threads, then with less data in
    memory, then with fewer problems in the same passes. The result exceeds the limit if the smallest settings do not fit.
    """

    def plan_with(threads: int, solver: AnySolver = solver) -> MemoryPlan:
        with threading.use_threads(threads):
            return plan_memory(job, store, solver, problems, request)

    memory = budget.with_most_threads(plan_with, count_wanted_threads(job.threads))
    while memory.total > memory.limit and (less := solver.shrink_memory(problems[0], job.options)) is not None:
        solver, memory = less, plan_with(1, less)
    for count in _smaller_batches(problems):
        split = None if memory.total <= memory.limit else solver.with_problems_per_batch(count, job.options)
        if split is not None:
            solver, memory = split, plan_with(1, split)
    if store.layout.remote and job.prefetch == DEFAULT_PREFETCH and memory.total <= memory.limit:
        readers = count_readers(job, solver, store.layout, memory.threads)
        memory = budget.read_further_ahead(memory, store.layout, job.prefetch, store.buffers().nbytes, readers)
    return solver, memory


def _smaller_batches(problems: Sequence[Problem]) -> Iterator[int]:
    """Yield numbers of problems to solve in the same passes, in descending order: first the values of C are split into
    groups of about equal size, each with all classes; then the classes of one value of C are split.
    """
    c_values = len({problem.C for problem in problems})
    classes = len(problems) // c_values
    yield from (classes * -(-c_values // groups) for groups in range(2, c_values))
    count = classes
    while count:
        yield count
        count //= 2


def suggest_smaller_chunks(layout: Layout, job: FitJob) -> str:
    """Return the alternative to more memory, worded as the end of an error message."""
    return f", or ingest with smaller chunks (now {mib(layout.block_bytes)} each, {job.prefetch + 1} in flight)"


def max_landmarks(
    job: FitJob, store: Store, solver: AnySolver, problems: list[Problem], request: NystromRequest
) -> int:
    """Return the largest number of landmarks, below that of the request, that fits the memory limit; 0 if none fits."""
    low, high = 0, request.landmarks
    while low < high - 1:
        middle = (low + high) // 2
        smaller = replace(request, landmarks=middle)
        smaller_problems = [replace(problem, columns=middle) for problem in problems]
        _, plan = fit_to_memory(job, store, solver, smaller_problems, smaller)
        low, high = (middle, high) if plan.total <= plan.limit else (low, middle)
    return low
