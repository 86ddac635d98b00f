"""The step between plan and training where kernel features come to be: the map, and what the solver reads through it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from streamsvm.engine.executor import Executor
from streamsvm.errors import UsageError
from streamsvm.jobs.embed.kernel_request import CHUNK_BYTES
from streamsvm.jobs.embed.placement import DISK
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.planning.one_class import constant_of
from streamsvm.jobs.fit.planning.plan import Plan
from streamsvm.schedule import budget
from streamsvm.store import open_store
from streamsvm.types import Report, Store, StoredFiles

if TYPE_CHECKING:
    from streamsvm.features.nystrom import Embedded, Nystrom

SMALLER = "make the features in every pass (--embedding fly), or use --embedding-dtype int8"
"""What a fit can do where the disk has no room for an embedding."""


@dataclass(frozen=True, slots=True)
class _Build:
    """How a fit has its embedding built."""

    dtype: str
    prefetch: int
    chunk_bytes: int = CHUNK_BYTES
    overwrite: bool = True


def with_features(  # noqa: PLR0917  what ``fit`` has at hand
    job: FitJob, store: Store, plan: Plan, run: Path, report: Report, executor: Executor | None = None
) -> tuple[Store, Plan]:
    """The store to train on and the plan with its map: as they are where there are no kernel features."""
    request = plan.request
    if request is None:
        return _of_embedding(job, store, plan)
    from streamsvm.features.nystrom import Embedded
    from streamsvm.jobs.embed.builder import Builder
    from streamsvm.jobs.embed.kernel_map import make_map

    if plan.embedding is not None and plan.embedding.where == DISK:
        build = _Build(plan.embedding.dtype, job.prefetch)
        place = run / "embedding.zarr"
        found = Builder(store, request, place, build, report, executor, remedy=SMALLER).build()
        features = Embedded(found.projection, constant_of(job))
        seen: Store = open_store(found.embedding)
        retain = seen.layout.bytes_per_pass <= budget.page_cache_bytes(plan.memory.limit)
        plan = replace(plan, memory=replace(plan.memory, retain=retain))
        return seen, with_map(plan, features)
    return store, with_map(plan, make_map(request, store, report, job.prefetch))


def with_map(plan: Plan, features: Nystrom | Embedded) -> Plan:
    """Return the plan of a fit that sees the data through a map that is made; its problems have the map's columns."""
    problems = [replace(problem, columns=features.columns) for problem in plan.problems]
    return replace(plan, features=features, problems=problems)


def _of_embedding(job: FitJob, store: Store, plan: Plan) -> tuple[Store, Plan]:
    """A store that is an embedding carries its map: the model will be one of the rows it was made from."""
    seal = store.facts.get("map")
    if seal is None:
        return store, plan
    from streamsvm.features.mapfile import read_map
    from streamsvm.features.nystrom import Embedded

    if job.standardize:
        raise UsageError("an embedding is not standardized again", hint="leave out --standardize, or give it to embed")
    assert isinstance(store, StoredFiles)  # only a store on disk has a map, and its rows are not held out
    return store, replace(plan, features=Embedded(read_map(store.root, seal), constant_of(job)))
