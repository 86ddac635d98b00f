"""embed: a store and a kernel in, a store of Nystrom features out, within the budget.

The embedding carries its map. It is reused only where all it is made of is equal (``jobs.embed.builder``); how it is
built, and goes on after a stop, is in ``jobs.embed.builder``.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from threadpoolctl import threadpool_limits

from streamsvm.compute import threading
from streamsvm.config.job_file import format_command as command_of
from streamsvm.config.units import mib
from streamsvm.engine import signals
from streamsvm.engine.executor import Executor, executor_for, task_limit
from streamsvm.errors import UsageError
from streamsvm.features.nystrom import part_rows
from streamsvm.features.scaling import choose_scaling
from streamsvm.jobs.embed.builder import Builder, EmbedResult
from streamsvm.jobs.embed.kernel_request import NystromRequest, memory_terms, pieces_term, request_of
from streamsvm.jobs.options import EmbedJob
from streamsvm.outputs import output_path
from streamsvm.schedule import budget
from streamsvm.schedule.budget import MemoryPlan
from streamsvm.schedule.machine import wanted_threads
from streamsvm.store import open_store
from streamsvm.types import Report, Store, Term, silent


def embed(job: EmbedJob, report: Report = silent, executor: Executor | None = None) -> EmbedResult:
    """Build the embedding of a store. Raises BudgetError, ExistsError, StorageError, DataError, ClusterError."""
    again = command_of("embed", job)
    limit = signals.limit_time(job.time_limit)
    with signals.set_resume_command(again), limit, executor_for(job, executor) as found, threadpool_limits(1):
        # a second BLAS thread fights reader and writer for their core
        job = job if found is None else replace(job, memory=task_limit(found, job.memory), threads=1)
        store = open_store(job.store, memory_limit=budget.memory_limit(job.memory))
        inner = choose_scaling(store, standardize=job.standardize, every=bool(job.standardize_all), bias=0.0)
        request = request_of(job, store, inner)
        if request is None:
            raise UsageError("how many landmarks?", hint="--landmarks 1000")
        wanted = wanted_threads(job.threads)
        plan = budget.with_most_threads(partial(embed_plan, job, store, request), wanted)
        plan.check("")
        builder = Builder(store, request, output_path(job.embedding), job, report, found, (job.landmark_file,))
        with threading.use_threads(plan.threads):
            return replace(builder.build(), notices=plan.short_of(wanted))


def embed_plan(job: EmbedJob, store: Store, request: NystromRequest, threads: int = 1) -> MemoryPlan:
    """Return the memory that building an embedding takes."""
    m = request.landmarks
    chunk = max(job.chunk_bytes, 4 * m)
    terms = [*budget.steady_terms(), *budget.block_terms(store.layout, job.prefetch, store.buffers().nbytes)]
    terms += [t for t in memory_terms(request, store.layout) if t.name != "feature buffers"]
    terms.append(Term("kernel values", threads * 4 * part_rows(m) * m, f"{threads} x {part_rows(m)} rows at a time"))
    terms.append(Term("chunks being written", 3 * chunk, f"3 x {mib(chunk)}"))
    terms.append(pieces_term(chunk, store.layout, m, threads))
    if job.dtype == "int8":
        terms.append(Term("column scales", 4 * part_rows(m) * m, "features of a sample, as many rows at a time"))
    return MemoryPlan(
        tuple(terms), budget.memory_limit(job.memory), resident=True, cached=False, retain=True, threads=threads
    )
