"""tune: a store and a grid in, cross-validated errors for every point of it out, as a table and as a heat map.

The grid is worked on cell by cell (``jobs.tune.cell``). Cells that are done are kept in a journal: the same command goes on
there after a stop.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
from threadpoolctl import threadpool_limits

from streamsvm import __version__, durable
from streamsvm.aliases import JsonObject
from streamsvm.config.command_line import command_of
from streamsvm.engine.checkpoint import signals
from streamsvm.engine.executors.executor import Executor, Task, executor_for, task_limit
from streamsvm.errors import DataError, ExistsError
from streamsvm.jobs import JobResult
from streamsvm.jobs.fit.planning.plan import limit_notice
from streamsvm.jobs.report.run import write_page
from streamsvm.jobs.tune import folds as folding
from streamsvm.jobs.tune.cell import Cell, grid_of, planned, scored
from streamsvm.jobs.tune.options import TuneJob
from streamsvm.jobs.tune.results import BALANCED, RMSE, WRONG, Measure, Score, best_of, write_results
from streamsvm.locks import locked, scratch_beside, sweep_beside
from streamsvm.outputs import PAGE, SEARCH, Output, claim, output_path, refuse_foreign
from streamsvm.regular import read_whole
from streamsvm.schedule import budget
from streamsvm.store import open_store
from streamsvm.store.write.journal import LARGEST_JOURNAL
from streamsvm.types import Report, Store, silent

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
"""Settings that searches of before had not: they are no part of the key where they are not given."""


@dataclass(frozen=True, slots=True)
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
    again = signals.resumed_by(command_of("tune", job))
    with again, signals.within(job.time_limit), executor_for(job, executor) as found:
        mine = job if found is None else replace(job, memory=task_limit(found, job.memory), threads=1)
        return _tuned(mine, report, found)


def _tuned(job: TuneJob, report: Report, executor: Executor | None) -> TuneResult:
    began, out = time.perf_counter(), output_path(job.out)
    store = open_store(job.store, memory_limit=budget.memory_limit(job.memory))
    key = key_of(job, store)
    with ExitStack() as stack:
        stack.enter_context(locked(out))
        stack.enter_context(threadpool_limits(1))
        page = [Output(output_path(job.report), PAGE, continues=True)] if job.report is not None else []
        claim([Output(out, SEARCH, continues=True), *page], [job.store], overwrite=job.overwrite)
        done = journal_of(out, key, overwrite=job.overwrite)
        sweep_beside(out)
        cells = [planned(job, store, *point) for point in grid_of(job)]
        taken = [cell.plan for cell in cells if cell.plan.taken is not None][:1]
        if taken:
            job = replace(job, memory=taken[0].taken)
            stack.enter_context(signals.resumed_by(command_of("tune", job)))
        durable.make_directory(out)
        _note(out, key, done)  # before the files of a cell: a search that is killed within the first one is known again
        if executor is None:
            seen = folding.cut_finer(store, job.folds, job.prefetch)
            found = _one_by_one(job, (store, seen), cells, len(done), report)
        else:
            found = _spread(job, cells[len(done) :], executor)
        for scores in found:
            for score in scores:
                report({"event": "tuned", **score.facts()})
            done.append(scores)
            _note(out, key, done)
        table = tuple(score for cell in done for score in cell)
        facts = {"settings": msgspec.to_builtins(job), "store": store.digest}
        with scratch_beside(out) as scratch:  # the results of an earlier search stay until all of these are there
            fresh = scratch / out.name
            durable.make_directory(fresh)
            notices = write_results(fresh, table, facts, measure_of(job, store))
            notices += tuple(line for plan in taken for line in limit_notice(plan))
            refuse_foreign(out, SEARCH)
            durable.exchange(fresh, out)
        if job.report is not None:
            write_page([out], output_path(job.report))
    return TuneResult(
        out, table, best_of(table), time.perf_counter() - began, notices=notices, measure=measure_of(job, store)
    )


def _note(out: Path, key: str, done: list[list[Score]]) -> None:
    """Make durable which cells are done."""
    durable.write_file(out / JOURNAL, json.dumps({"key": key, "cells": done}).encode())


def _one_by_one(
    job: TuneJob, stores: tuple[Store, Store], cells: list[Cell], done: int, report: Report
) -> Iterator[list[Score]]:
    """The scores of the cells that are not done, in order."""
    for number, cell in enumerate(cells[done:], done + 1):
        report({"event": "cell", "number": number, "of": len(cells)})
        yield scored(job, stores, cell, report)


def _spread(job: TuneJob, cells: list[Cell], executor: Executor) -> Iterator[list[Score]]:
    """The scores of cells in order, a task each."""
    there = replace(job, store=str(Path(job.store).resolve()), out=str(Path(job.out).resolve()))
    task = Task("tune", score_cell, max((cell.memory.total for cell in cells), default=0))
    shared = (executor.share(there), executor.share(time.time() + job.time_limit))
    yield from executor.map(task, [cell.point for cell in cells], shared)


def score_cell(point: tuple[int | None, float | str], job: TuneJob, moment: float) -> list[Score]:
    """Return the scores of a cell; this is the task of a worker, with files of its own. Raises what ``tune`` raises.

    A search that is over at ``moment``, by ``time.time``, takes nothing from it later: it ends then, too.
    """
    store, limit = open_store(job.store), signals.within(moment - time.time())
    with limit, tempfile.TemporaryDirectory(dir=job.out, prefix=".cell-") as scratch, threadpool_limits(1):
        mine = replace(job, out=scratch)
        seen = folding.cut_finer(store, job.folds, job.prefetch)
        return scored(mine, (store, seen), planned(mine, store, *point), silent)


def measure_of(job: TuneJob, store: Store) -> Measure:
    """Return what the error of a search is."""
    if job.one_class:
        return BALANCED
    return RMSE if store.layout.numeric else WRONG


def key_of(job: TuneJob, store: Any) -> str:
    """Return the sha256 of all that decides the table."""
    settings = {name: value for name, value in msgspec.to_builtins(job).items() if name not in MAY_DIFFER_ON_RESUME}
    settings = {name: value for name, value in settings.items() if name not in NEWER or value is not None}
    if job.C is None and job.nu is None and not job.one_class:
        settings["C"] = [1.0]  # as it was written when it was the default
    return hashlib.sha256(json.dumps([__version__, store.digest, settings], sort_keys=True).encode()).hexdigest()


def journal_of(out: Path, key: str, *, overwrite: bool) -> list[list[Score]]:
    """Return the cells an interrupted run of the same settings has done. Raises ExistsError for what another run made."""
    try:
        saved = json.loads(read_whole(out / JOURNAL, LARGEST_JOURNAL))
        if saved["key"] == key:
            return msgspec.convert(saved["cells"], list[list[Score]])
    except (OSError, ValueError, KeyError, TypeError, DataError, msgspec.ValidationError):
        saved = None
    begun = out.exists() and any(
        not path.name.startswith(".") for path in out.iterdir()
    )  # else no more than what was being written
    if begun and not overwrite:
        hint = "run the command it was made with to go on with it, pass --overwrite, or choose another name"
        raise ExistsError(f"{out} exists already", hint=hint)
    return []
