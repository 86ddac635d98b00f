"""Arguments of the Python functions that a command has no option for: rows and models in memory.

Each ``place_...`` function provides the options of a job in which rows and models are replaced by files: rows are written to a temporary
store or ingested by the job itself, models are written to temporary files.
"""

from __future__ import annotations

import keyword
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.api.wording import explain_interruption, format_call
from streamsvm.config.options import Field, OptionValue
from streamsvm.config.options import parse_toml as from_toml
from streamsvm.errors import StreamSVMError, UsageError, quote
from streamsvm.input_files import find_url, refuse_url
from streamsvm.jobs import JobResult
from streamsvm.jobs.ingest.options import IngestJob
from streamsvm.kinds_of_rows import (
    ARRAYS,
    DASK,
    TABLES,
    WITH_COLUMN_NAMES,
    RowKind,
    check_readable,
    count_bytes,
    kind_of,
)
from streamsvm.tasks import CLASSIFICATION, REGRESSION
from streamsvm.type_aliases import ValuesByName
from streamsvm.types import Report, silent

Action = Callable[[Any, Report], JobResult]
"""A function that runs a job and returns its result."""


@contextmanager
def place_ingest_rows(arguments: ValuesByName) -> Iterator[tuple[ValuesByName, Action | None]]:
    """Provide the options of ``ingest`` for rows in memory, and the function that ingests these rows; None for files.

    Raises UsageError for labels or weights that are passed with files.
    """
    X, y, weight = arguments.get("sources"), arguments.pop("y", None), arguments.get("weight")
    if isinstance(weight, str):
        weight = None
    elif weight is not None:
        del arguments["weight"]
    action = _choose_action(X, y, weight, partial(format_call, "ingest", (y, weight), None))
    if action is not None:
        arguments["sources"] = ()
    elif y is not None or weight is not None:
        raise UsageError("labels and weights beside files", hint="name their columns: label=NAME, weight=NAME")
    yield arguments, action


def _choose_action(
    X: Any, y: Any, weight: Any, call: Callable[..., str] | None = None, classes: Sequence[str] = ()
) -> Action | None:
    """Return the function that ingests rows in memory; None for files. ``call``, ``classes``: see ``ingest_given``."""
    kind = kind_of(X)
    if kind is RowKind.FILES:
        return None
    if kind in DASK:
        return partial(_ingest_dask, X, y, weight)
    from streamsvm.jobs.ingest.frames_and_arrays import ingest_given

    X = np.asarray(X) if isinstance(X, list | tuple) else X
    check_readable(X)
    return partial(ingest_given, X, y, weight, call=call, classes=classes)


def _ingest_dask(X: Any, y: Any, weight: Any, job: IngestJob, report: Report) -> JobResult:
    """Ingest a dask array or data frame. Dask's default client computes its blocks; without one, they are computed here in turn."""
    from dataclasses import replace

    from streamsvm.cluster.dask_collections import ingest_collection

    if isinstance(y, str):
        job, y = replace(job, label=y), None
    return ingest_collection(job, X, y, weight, report=report)


def find_or_make_store(ingest: Callable[..., Any], X: Any, y: Any, weight: Any, scratch: Path) -> Path:
    """Return the path of a store with the rows ``X``: the store that ``X`` names, or a new one in ``scratch``, made from files or rows.

    Raises UsageError for labels that are passed with a store, and what ``ingest`` raises.
    """
    place = scratch / "rows.zarr"
    if not isinstance(X, str | PathLike):
        ingest(X, place, y=y, weight=weight)
        return place
    refuse_url(X)
    path = Path(X)
    if not _has_labels(path):
        ingest(path, place, label=y, weight=weight)
        return place
    if y is not None or weight is not None:
        raise _labels_twice(path)
    return path


def _has_labels(path: Path) -> bool:
    """Return whether a path is a store, or arrays of another program, which contain labels."""
    from streamsvm.store.foreign import foreign_format

    return _is_stored(path) or foreign_format(path) is not None


def _labels_twice(path: Path) -> UsageError:
    return UsageError(f"{find_url(path) or path} has its labels and weights in it", hint="leave out labels and weights")


def model_options(step: str) -> tuple[str, ...]:
    """Return the options of a step that are models or runs to read."""
    return {
        "fit": ("warm_start",),
        "report": ("runs",),
        "predict": ("model",),
        "evaluate": ("model", "against"),
        "forget": ("model",),
        "learn": ("model",),
        "export": ("model",),
    }.get(step, ())


@contextmanager
def place_models(arguments: ValuesByName, options: tuple[str, ...]) -> Iterator[ValuesByName]:
    """Provide the options with paths in place of models, results of fits and estimators. Raises UsageError for other objects."""
    objects = {name: arguments[name] for name in options if not isinstance(arguments.get(name), str | PathLike | None)}
    if not objects:
        yield arguments
        return
    with tempfile.TemporaryDirectory(prefix="streamsvm-") as folder:
        paths = {}
        for name, value in objects.items():
            path = Path(folder) / f"{name}.ssvm"
            if name == "runs":
                paths[name] = [_run_folder(one) for one in (value if isinstance(value, list | tuple) else [value])]
            else:
                paths[name] = _model_file(value, path)
        yield arguments | paths


def _model_file(value: Any, path: Path) -> Any:
    """Return the file of a model: the one its fit has written, or ``path``, to which it is saved. Raises UsageError for other objects."""
    from streamsvm.model import find_model, load

    model = find_model(value)
    if model is None:
        kind = f"{type(value).__module__}.{type(value).__qualname__}"
        raise UsageError(
            f"an object of {kind} is not a model",
            hint="give a model, the result of a fit, or the name of a model's file",
        )
    run = getattr(value, "run", None)
    written = None if run is None else Path(str(run).removesuffix(".run"))
    if written is not None and written.is_file() and load(written) == model:
        return written
    model.save(path)
    return path


def _run_folder(value: Any) -> Any:
    """Return the folder of the run or search of a result, and a path unchanged. Raises UsageError for a result without a folder."""
    from streamsvm.model import find_model

    folder = getattr(value, "run", None) or getattr(value, "out", None)
    if isinstance(folder, str) or (isinstance(folder, Path) and folder.is_dir()):
        return str(folder)
    if isinstance(folder, Path) or find_model(value) is not None:
        raise UsageError(
            "the fit has left no record of its run",
            hint="name the model's file in the fit, sv.fit(X, 'model.ssvm', y=y), and report on that file or on the result",
        )
    return value


OUTPUTS = {"fit": "model", "tune": "out"}
"""The option with the path of the output, by step."""


@contextmanager
def place_training_rows(step: str, arguments: ValuesByName) -> Iterator[tuple[ValuesByName, Action | None]]:
    """Provide the options of a fit or a search, and for rows in memory the function that stores them and trains.

    Rows are written to a temporary folder, and so is an output that the caller did not name. Raises UsageError.
    """
    y, weight, output = arguments.pop("y", None), arguments.pop("weight", None), OUTPUTS[step]
    if output in arguments and not isinstance(arguments[output], str | PathLike | None):
        if y is not None:
            second = {"fit": "the model's file", "tune": "the directory of the tables"}[step]
            raise UsageError("labels are given twice", hint=f"name {second} second, and pass y=LABELS")
        y = arguments.pop(output)
    X: Any = arguments.get("store")
    files = X is not None and kind_of(X) is RowKind.FILES
    if files:
        names = [os.fsdecode(X)] if isinstance(X, str | bytes | PathLike) else list(X)
        if not names:
            raise UsageError("no file is named", hint=f"sv.{step}('train.csv', label='y')")
        X, arguments["more"] = names[0], tuple(names[1:])
        arguments["store"] = X
        arguments |= _name_columns(Path(X), y, weight)
        has_output = arguments.get(output) is not None or (step == "fit" and _is_stored(Path(X)))
    if X is None or (files and has_output):
        yield arguments, None
        return
    with tempfile.TemporaryDirectory(prefix="streamsvm-") as folder, explain_interruption(step, arguments.get(output)):
        if arguments.get(output) is None:
            arguments[output] = Path(folder) / ("model.ssvm" if step == "fit" else "search")
        if files:
            yield arguments, None
            return
        check_readable(X)
        arguments["store"] = Path(folder) / "rows.zarr"
        yield arguments, partial(_train_on_rows, step, (X, y, weight))


def _name_columns(path: Path, y: Any, weight: Any) -> ValuesByName:
    """Return the options label and weight from the names of columns that were passed as labels and weights of files.

    Raises UsageError for arrays, and for a store, which has its labels and weights.
    """
    named = {name: value for name, value in {"label": y, "weight": weight}.items() if value is not None}
    if named and _has_labels(path):
        raise _labels_twice(path)
    if not all(isinstance(value, str) for value in named.values()):
        raise UsageError("labels and weights beside files", hint="name their columns: label=NAME, weight=NAME")
    return named


def _is_stored(path: Path) -> bool:
    from streamsvm.jobs.apply.rows import is_store

    return is_store(path)


def _train_on_rows(step: str, rows: tuple[Any, Any, Any], job: Any, report: Report) -> JobResult:
    """Store rows in memory and train on them; a table that contains its labels is treated like a file of a table.

    ``rows``: the rows, their labels and their weights.
    """
    from streamsvm.jobs.fit.files import fit_rows
    from streamsvm.jobs.tune.files import tune_rows

    X, y, weight = rows
    has_labels = kind_of(X) in TABLES and (y is None or isinstance(y, str))
    ingest_rows = _choose_action(X, y, weight, partial(format_call, step, (y, weight), job))
    assert ingest_rows is not None
    train = fit_rows if step == "fit" else tune_rows
    return train(job, ingest_rows, report, table=has_labels, given_bytes=count_bytes(X))


@contextmanager
def place_evaluation_rows(arguments: ValuesByName) -> Iterator[tuple[ValuesByName, None]]:
    """Provide the options of ``evaluate``, ``forget`` or ``learn`` with files in place of rows in memory.

    A table is read with the schema of the model; an array becomes a store. Raises UsageError, and what ``ingest`` raises.
    """
    y, weight, X = arguments.pop("y", None), arguments.pop("weight", None), arguments.get("data")
    if kind_of(X) is not RowKind.FILES:
        check_readable(X)
        with _folder_of_table() as folder:
            yield arguments | _place_evaluation_rows(arguments["model"], X, y, weight, folder), None
        return
    if y is not None:
        raise UsageError("labels beside files", hint="name their column: label=NAME")
    if weight is not None:
        raise UsageError(
            "weights beside files",
            hint="the weights of files are read from the column that had them in the training data",
        )
    yield arguments, None


def _place_evaluation_rows(model: Any, X: Any, y: Any, weight: Any, scratch: Path) -> ValuesByName:
    """Write rows in memory to files; return the option ``data``, and ``label`` if the labels are a column."""
    from streamsvm.jobs.ingest.frames_and_arrays import column_of
    from streamsvm.model import load
    from streamsvm.store.sources.data_frames import spill_to_parquet

    known = load(Path(model))
    schema = "schema" in (known.provenance.get("encoding") or {})
    if not (schema and kind_of(X) in WITH_COLUMN_NAMES):
        store, task = scratch / "rows.zarr", REGRESSION if known.numeric else CLASSIFICATION
        ingest_rows = _choose_action(X, y, weight, classes=known.classes)
        assert ingest_rows is not None  # rows in memory
        ingest_rows(IngestJob(sources=(), store=store, task=task), silent)
        return {"data": (str(scratch / "rows.zarr"),)}
    if weight is not None:
        raise UsageError("weights beside a table", hint="put them into the column that had them in the training data")
    is_column = y is None or isinstance(y, str)
    path = spill_to_parquet(X, scratch, None if is_column else {"y": column_of(y)})
    return {"data": (str(path),)} | ({} if y is None else {"label": y if is_column else "y"})


@contextmanager
def place_export_values(arguments: ValuesByName) -> Iterator[tuple[ValuesByName, None]]:
    """Provide the options of an export with a file in place of a table in memory. Raises UsageError for arrays."""
    X = arguments.get("values_from")
    if X is None or kind_of(X) is RowKind.FILES:
        yield arguments, None
        return
    if kind_of(X) not in WITH_COLUMN_NAMES:
        raise UsageError(
            "values_from must be a table, whose columns have names", hint="pass a data frame, or name its file"
        )
    from streamsvm.store.sources.data_frames import spill_to_parquet

    check_readable(X)
    with _folder_of_table() as folder:
        yield arguments | {"values_from": str(spill_to_parquet(X, folder))}, None


@contextmanager
def _folder_of_table() -> Iterator[Path]:
    """Provide a temporary folder for the file of a table in memory. Errors name 'the table' in place of this file."""
    with tempfile.TemporaryDirectory(prefix="streamsvm-") as folder:
        try:
            yield Path(folder)
        except StreamSVMError as error:
            from streamsvm.store.sources.data_frames import SPILLED, TABLE, BlocksPart, name_blocks

            path = Path(folder, SPILLED)
            name_blocks(error, {str(path): BlocksPart(path, 0, ())}, TABLE)
            raise


def parameter_name(field: Field) -> str:
    """Return the name of an option as a parameter: its key, with an underscore if that is a keyword of Python."""
    return f"{field.key}_" if keyword.iskeyword(field.key) else field.key


def convert_value(field: Field, value: OptionValue) -> OptionValue:
    """Convert a value to the type of its field: paths, numpy numbers, '512MiB', classes given as numbers. Raises UsageError."""
    is_rows = kind_of(value) in TABLES | ARRAYS | DASK
    value = value if is_rows else _unwrap_numpy(value)
    if field.name == "cluster" and not isinstance(value, str):
        raise _refuse_address(value)
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if is_rows:
        kind = f"{type(value).__module__}.{type(value).__qualname__}"
        hint = "store them first, sv.ingest(X, 'rows.zarr', y=y), and name the store; a model predicts rows in memory itself, model.predict(X)"
        raise UsageError(
            f"{parameter_name(field)} must name a store or files; it cannot be the rows themselves ({kind})", hint=hint
        )
    if field.kinds == (str,) and isinstance(value, int | float) and not isinstance(value, bool):
        return _format_label(value)
    if isinstance(value, Mapping):
        return {_format_label(key): _unwrap_numpy(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | range):
        parts = sorted(value) if isinstance(value, set) else value
        return tuple(os.fspath(part) if isinstance(part, Path) else _unwrap_numpy(part) for part in parts)
    return from_toml(field, value)


def _refuse_address(value: object) -> UsageError:
    """Return the error for an object that was passed as the address of a cluster; it is most likely a Dask client."""
    hint = "cluster='client:' uses Dask's default client, which distributed.Client(...) sets"
    if getattr(value, "asynchronous", False):
        hint = "create a synchronous one, Client(ADDRESS, asynchronous=False), in another thread if this one runs an event loop, and pass cluster='client:'"
    return UsageError(f"cluster is the address of a cluster as text, not {quote(type(value).__name__)}", hint=hint)


def _unwrap_numpy(value: OptionValue) -> OptionValue:
    """Convert a numpy number to a Python number and an array to a list; return other values unchanged."""
    if isinstance(value, np.generic):
        return value.item()
    return value.tolist() if isinstance(value, np.ndarray) else value


def _format_label(key: object) -> str:
    """Return the name of a class: '1' for 1 and for 1.0."""
    if isinstance(key, str):
        return key
    number = _unwrap_numpy(key)
    return str(int(number)) if isinstance(number, int | float) and float(number).is_integer() else str(number)
