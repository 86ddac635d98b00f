"""Rows that a program hands to a function of the face, where the command line has names of files."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from streamsvm.aliases import ByName
from streamsvm.errors import UsageError
from streamsvm.jobs import JobResult
from streamsvm.jobs.ingest.options import IngestJob
from streamsvm.types import Report

Action = Callable[[Any, Report], JobResult]
"""What a job is done by."""


def rows_given(given: ByName) -> Action | None:
    """Return what ingests the rows that are given, taken out of the options of ``ingest``; None where files are named.

    Raises UsageError for labels or weights beside files.
    """
    X, y, weight = given.get("sources"), given.pop("y", None), given.get("weight")
    if isinstance(weight, str):
        weight = None
    elif weight is not None:
        del given["weight"]
    action = _action(X, y, weight)
    if action is not None:
        given["sources"] = ()
    elif y is not None or weight is not None:
        raise UsageError("labels and weights beside files", hint="name their columns: label=NAME, weight=NAME")
    return action


def _action(X: Any, y: Any, weight: Any) -> Action | None:
    if isinstance(X, str | bytes) or X is None:
        return None
    if hasattr(X, "__dask_graph__"):
        return partial(_of_dask, X, y, weight)
    from streamsvm.jobs.ingest.given import GivenRows, ingest_given, is_given

    if isinstance(X, list | tuple):  # of names, or of rows
        if X and all(hasattr(part, "__fspath__") or isinstance(part, str) for part in X):
            return None
        X = np.asarray(X)
    if not is_given(X):
        return None
    rows = GivenRows(X, y, weight)
    return lambda job, report: ingest_given(job, rows, report)


def _of_dask(X: Any, y: Any, weight: Any, job: IngestJob, report: Report) -> JobResult:
    """A dask array or data frame; its blocks are computed by the client there is, or here one by one."""
    from dataclasses import replace

    from streamsvm.cluster.dask_ingest import ingest_collection

    if isinstance(y, str):
        job, y = replace(job, label=y), None
    return ingest_collection(job, X, y, weight, report=report)
