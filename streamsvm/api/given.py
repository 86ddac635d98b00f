"""Rows that a program hands to a function of the face, where the command line has names of files."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.aliases import ByName
from streamsvm.errors import InterruptedRun, UsageError
from streamsvm.jobs import JobResult
from streamsvm.jobs.ingest.job import IngestJob
from streamsvm.kinds_of_rows import check_readable, gives_batches, is_dask, is_dask_frame, is_given
from streamsvm.regular import is_file
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
    if is_dask(X):
        return partial(_of_dask, X, y, weight)
    from streamsvm.jobs.ingest.given import GivenRows, ingest_given

    if isinstance(X, list | tuple):  # of names, or of rows
        if all(isinstance(part, str | PathLike) for part in X):
            return None
        X = np.asarray(X)
    check_readable(X)
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


def stored(ingest: Callable[..., Any], X: Any, y: Any, weight: Any, scratch: Path) -> Path:
    """Return the store of rows of any kind: the one that ``X`` names, or one made of files or rows in ``scratch``.

    Raises UsageError for labels beside a store, and what ``ingest`` raises.
    """
    from streamsvm.jobs.apply.rows import is_store
    from streamsvm.store.foreign import foreign_format

    place = scratch / "rows.zarr"
    if not isinstance(X, str | PathLike):
        ingest(X, place, y=y, weight=weight)
        return place
    path = Path(X)
    if not is_store(path) and foreign_format(path) is None:
        ingest(path, place, label=y, weight=weight)
        return place
    if y is not None or weight is not None:
        raise UsageError(f"{path} has its labels and weights in it", hint="leave out labels and weights")
    return path


def given_models(step: str) -> tuple[str, ...]:
    """Return the options of a step that name models to read."""
    return {
        "fit": ("warm_start",),
        "report": ("runs",),
        "predict": ("model",),
        "evaluate": ("model",),
        "export": ("model",),
    }.get(step, ())


@contextmanager
def models_placed(given: ByName, options: tuple[str, ...]) -> Iterator[ByName]:
    """Give options with files in place of models, of results of fits, and of estimators. Raises UsageError."""
    asked = {name: given[name] for name in options if not isinstance(given.get(name), str | PathLike | None)}
    if not asked:
        yield given
        return
    with tempfile.TemporaryDirectory(prefix="streamsvm-") as folder:
        known = {}
        for name, value in asked.items():
            place = Path(folder) / f"{name}.ssvm"
            if name == "runs":
                known[name] = [_run_of(one) for one in (value if isinstance(value, list | tuple) else [value])]
            else:
                known[name] = _file_of(value, place)
        yield given | known


def _file_of(value: Any, place: Path) -> Any:
    """The file of a model that a program has: the one that its fit has written, or ``place``. Raises UsageError for what is no model."""
    from streamsvm.model import find_model, load

    model = find_model(value)
    if model is None:
        found = f"{type(value).__module__}.{type(value).__qualname__}"
        raise UsageError(
            f"an object of {found} is no model", hint="give a model, the result of a fit, or the name of a model's file"
        )
    run = getattr(value, "run", None)
    written = None if run is None else Path(str(run).removesuffix(".run"))
    if written is not None and written.is_file() and load(written) == model:
        return written
    model.save(place)
    return place


def _run_of(value: Any) -> Any:
    """The folder of the run, or of the search, that a result is of; names are left as they are. Raises UsageError."""
    from streamsvm.model import find_model

    place = getattr(value, "run", None) or getattr(value, "out", None)
    if isinstance(place, Path) and place.is_dir():
        return str(place)
    if isinstance(place, Path) or find_model(value) is not None:
        raise UsageError(
            "the fit has left no record of its run",
            hint="name the model's file in the fit, sv.fit(X, 'model.ssvm', y=y), and report on that file or on the result",
        )
    return value


@contextmanager
def fitted_rows(ingest: Callable[..., Any], given: ByName) -> Iterator[ByName]:
    """Give the options of a fit with a store in place of files or rows; it is removed at the end.

    So is the model where no place was named for it. Raises UsageError, and what ``ingest`` raises.
    """
    y, weight = given.pop("y", None), given.pop("weight", None)
    if "model" in given and not isinstance(given["model"], str | PathLike | None):
        if y is not None:
            raise UsageError("labels are given twice", hint="name the model's file second, and pass y=LABELS")
        y = given.pop("model")
    X = given.get("store")
    files = isinstance(X, str | PathLike)
    if X is None or (files and y is None and weight is None and not is_file(Path(X))):
        yield given
        return
    with tempfile.TemporaryDirectory(prefix="streamsvm-") as folder, without_the_way_back(given.get("model")):
        place = stored(ingest, X, y, weight, Path(folder))
        kept = {} if given.get("model") is not None or str(place) == str(X) else {"model": Path(folder) / "model.ssvm"}
        yield given | {"store": place} | kept


@contextmanager
def without_the_way_back(model: Any) -> Iterator[None]:
    """Have an interruption say what is kept of a fit whose rows are in a store that is removed now; ``model``: the file that was asked for.

    The command to resume that the error gives names that store.
    """
    try:
        yield
    except InterruptedRun as error:
        what, found, _ = error.message.partition(". Resume: ")
        if model is None:
            what = f"{what.partition(':')[0]}: the fit was stopped, and nothing of it is kept"
            hint = "name a file for the model to be able to resume: sv.fit(X, 'model.ssvm', y=y), then the same call with resume=True"
        elif found and Path(f"{model}.run", "checkpoint").is_dir():
            hint = "to go on, make the same call with the same rows and resume=True"
        else:
            what, hint = (
                f"{what.partition(':')[0]}: the fit was stopped before there was a checkpoint",
                "make the same call again",
            )
        raise InterruptedRun(what, hint=hint) from error


@contextmanager
def judged_rows(ingest: Callable[..., Any], given: ByName) -> Iterator[ByName]:
    """Give the options of an evaluation with a model and files in place of what a program has of either.

    A table is read as the model's own was, an array becomes a store. Raises UsageError, and what ``ingest`` raises.
    """
    y, X = given.pop("y", None), given.get("data")
    with tempfile.TemporaryDirectory(prefix="streamsvm-") as folder:
        known = dict(given)
        if is_given(X) or is_dask(X):
            known |= _judged(ingest, known["model"], X, y, Path(folder))
        else:
            if not isinstance(X, list | tuple):
                check_readable(X)
            if y is not None:
                raise UsageError("labels beside files", hint="name their column: label=NAME")
        yield known


def _judged(ingest: Callable[..., Any], model: Any, X: Any, y: Any, scratch: Path) -> ByName:
    """The option ``data`` for rows of a program, and what has to be said of their labels."""
    from streamsvm.jobs.ingest.given import column_of
    from streamsvm.model import load
    from streamsvm.store.sources.arrow import spill_to_parquet

    schema = "schema" in (load(Path(model)).provenance.get("encoding") or {})
    if not (schema and (gives_batches(X) or is_dask_frame(X))):
        ingest(X, scratch / "rows.zarr", y=y)
        return {"data": (str(scratch / "rows.zarr"),)}
    named = y is None or isinstance(y, str)
    path = spill_to_parquet(X, scratch, None if named else {"y": column_of(y)})
    return {"data": (str(path),)} | ({} if y is None else {"label": y if named else "y"})
