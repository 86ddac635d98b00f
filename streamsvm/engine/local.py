"""Which loop a fit in this process is made by."""

from __future__ import annotations

from dataclasses import replace

from streamsvm.engine.executors.executor import Executor, SerialExecutor
from streamsvm.engine.groups.group_trainer import GroupFit, LocalGroupTrainer
from streamsvm.engine.groups.work import Work
from streamsvm.engine.job_store import OpenedStore
from streamsvm.engine.partition import Group, contiguous, pass_groups, round_robin
from streamsvm.engine.state.row_state import GroupRowStates, RowStates
from streamsvm.engine.state.state_files import DriverState
from streamsvm.engine.stream_trainer import StreamTrainer
from streamsvm.engine.trainer import FitLoop, RunSettings
from streamsvm.features.scaling import Raw, Standardized
from streamsvm.store.views.cached import CachedChunks, Resident
from streamsvm.types import AnySolver, FeatureMap, Layout, Problem, Report, Store


def groups_of(solver: AnySolver, layout: Layout, count: int | None) -> list[Group]:
    """Return the groups of a fit: ``count``, or as many as the store says.

    Chunks are dealt in turn to the groups of a solver that moves while it reads, so that each has some of every region
    of the data.
    """
    if solver.shuffled:
        return round_robin(layout, count or 1)
    return pass_groups(layout) if count is None else contiguous(layout, count)


def local_trainer(  # noqa: PLR0917 (what a training joins, in the order of the sentence)
    store: Store,
    solver: AnySolver,
    problems: list[Problem],
    features: FeatureMap,
    settings: RunSettings,
    report: Report,
    executor: Executor | None = None,
) -> FitLoop:
    """Return the loop of a solver: group by group where it only sums up in a pass, or is to move in groups; else chunk
    after chunk.

    ``executor`` makes the tasks of the groups; without one they are made one after the other.
    """
    in_groups = settings.groups is not None or not solver.shuffled
    if settings.cached and isinstance(features, Raw | Standardized) and not settings.whole_groups:
        view = CachedChunks if in_groups else Resident
        store, features = view(store, features.apply), Raw(features.bias)
    if not in_groups:
        return StreamTrainer(store, solver, problems, features, settings, report)
    groups = groups_of(solver, store.layout, settings.groups)
    solver = solver.in_parts(len(groups))
    states = tuple(
        GroupRowStates(RowStates(state, store.layout, len(problems), settings.file(state.name), settings.resident))
        for state in solver.row_state
    )
    work = Work(OpenedStore(store), solver, tuple(problems), features, settings.seed, state_files=states)
    work = replace(
        work, depth=settings.depth, retain=settings.retain, whole_groups=settings.whole_groups, maps=[features]
    )
    if settings.directory is not None and solver.driver_fields:
        work = replace(work, driver_state=DriverState(settings.directory, solver.driver_fields))
    return LocalGroupTrainer(
        GroupFit(work, groups, store.layout, 0, settings.cached), executor or SerialExecutor(), report
    )
