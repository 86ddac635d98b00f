"""A search on a store that a program has open: the same cells and folds, and no table on disk."""

from __future__ import annotations

import tempfile
from dataclasses import replace

from threadpoolctl import threadpool_limits

from streamsvm.jobs.tune import folds as folding
from streamsvm.jobs.tune.cell import grid_of, planned, scored
from streamsvm.jobs.tune.options import TuneJob
from streamsvm.jobs.tune.results import Score
from streamsvm.rows import Int32
from streamsvm.types import Report, Store, silent


def tune_in_memory(job: TuneJob, store: Store, report: Report = silent, fold: Int32 | None = None) -> tuple[Score, ...]:
    """Cross-validate a grid on ``store``; options of files have no effect. Raises BudgetError, UsageError, DataError.

    ``fold`` (chunks,): the fold of each chunk; None: chunks are dealt at random, those of small stores cut down to single rows.
    """
    with tempfile.TemporaryDirectory(prefix="streamsvm-") as directory, threadpool_limits(1):
        job = replace(job, out=directory)
        cells = [planned(job, store, *point) for point in grid_of(job)]
        seen = folding.cut_finer(store, job.folds, job.prefetch, least=1) if fold is None else store
        return tuple(score for cell in cells for score in scored(job, (store, seen), cell, report, fold))
