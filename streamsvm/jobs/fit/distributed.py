"""What a fit decides for a cluster: memory of a task, groups of chunks, and what tasks are given (``engine.groups.distributed``).

The groups of a batch solver are fixed by the layout. Those of a row-wise solver are as many as workers unless
``groups`` says so; a solver with per-row state is told how many there are (CoCoA+ for dual coordinate descent).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from streamsvm.engine.executor import Executor, task_limit
from streamsvm.engine.groups import GroupFit, Work, groups_of
from streamsvm.engine.row_state import DriverState, GroupStateFiles
from streamsvm.engine.stores import reference_to
from streamsvm.features.scaling import Raw, Standardized
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.planning.plan import Plan
from streamsvm.schedule.budget import CACHED_MOST
from streamsvm.types import Layout, Store

LEAST_GROUPS = 2
"""Groups of a row-wise solver: with one there would be nothing to share out."""
WHOLE_GROUP_BYTES = CACHED_MOST
"""Bytes of a group up to which its rows are visited as one block."""


def with_task_memory(job: FitJob, executor: Executor) -> FitJob:
    """Return the job with the bytes one task may hold as its memory limit; a task is one thread."""
    return replace(job, memory=task_limit(executor, job.memory), threads=1)


def with_groups(job: FitJob, plan: Plan, executor: Executor | None) -> FitJob:
    """Return the job with its number of groups stated, where a cluster is used and the result depends on it."""
    if executor is None or job.groups is not None or not plan.solver.shuffled:
        return job
    return replace(job, groups=max(LEAST_GROUPS, executor.threads))


def distributed_fit(job: FitJob, plan: Plan, store: Store, directory: Path) -> GroupFit:
    """Return what tasks are given. ``directory`` holds what they leave between rounds."""
    solver, layout = plan.solver, store.layout
    count = job.groups or (LEAST_GROUPS if solver.shuffled else None)
    groups = groups_of(solver, layout, count)
    solver = solver.in_parts(len(groups))
    place, problems = directory.resolve(), tuple(plan.problems)
    work = Work(
        reference_to(store),
        solver,
        problems,
        plan.features,
        job.seed,
        retain=plan.memory.retain,
        whole_groups=in_whole_groups(plan, layout, len(groups)),
        state_files=tuple(GroupStateFiles(place, state, len(problems)) for state in solver.row_state),
        driver_state=DriverState(place, solver.driver_fields) if solver.driver_fields else None,
        witnesses=job.dual is not None
        or plan.request is not None,  # what ``jobs.fit.results.certified`` reads them off for
    )
    return GroupFit(work, groups, layout, plan.memory.total)


def in_whole_groups(plan: Plan, layout: Layout, groups: int) -> bool:
    """Whether a group is small enough to be one block; only then are rows met in random order over all of it."""
    wanted = plan.solver.shuffled and isinstance(plan.features, Raw | Standardized)
    held = 2 * layout.bytes_per_pass // groups
    fits = plan.memory.cached or held <= plan.memory.limit - plan.memory.total
    return wanted and fits and held <= WHOLE_GROUP_BYTES
