"""Delta tables: the files of a version, from the log that deltalake reads.

Deletion vectors become arrays of the rows that are kept, one bit a row of the files that have one. Columns are found in the files by their
physical name, or by the id of their field, as the column mapping of the table says; values by which the table is partitioned are in the log.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa

from streamsvm.errors import quote
from streamsvm.input_files import find_url
from streamsvm.store.sources.lakes import (
    DELTA,
    LakeTable,
    TableFile,
    missing_library,
    no_version,
    parse_time,
    unreadable,
)

if TYPE_CHECKING:
    from deltalake import DeltaTable

READER_FEATURES = frozenset(
    {"columnMapping", "deletionVectors", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck", "typeWidening"}
)
"""The features of a table, by the names of the Delta protocol, that are read."""
MAPPING_MODE = "delta.columnMapping.mode"
PHYSICAL_NAME, FIELD_ID = "delta.columnMapping.physicalName", "delta.columnMapping.id"
NUMBER = re.compile(r"[0-9]+")


def open_delta(location: str, version: str | None) -> LakeTable:
    """Return a version of a Delta table. Raises what ``lakes.open_table`` raises."""
    try:
        import deltalake
    except ImportError as error:
        raise missing_library(DELTA, location, "deltalake") from error

    options = _storage_options(location)
    with _explain_errors(location):
        table = deltalake.DeltaTable(location, storage_options=options)
        if version is not None:
            number = _find_version(table, location, version)
            if number != table.version():
                table = deltalake.DeltaTable(location, version=number, storage_options=options)
        _check_features(table, location)
        types, files = _columns_and_files(table, location)
        return LakeTable(DELTA, location, str(table.metadata().id), str(table.version()), types, files)


def _storage_options(location: str) -> dict[str, str]:
    """Return what deltalake does not take from the environment: whether the endpoint in it may be without encryption."""
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
    return {"allow_http": "true"} if location.startswith("s3:") and endpoint.startswith("http:") else {}


@contextmanager
def _explain_errors(location: str) -> Iterator[None]:
    """Convert errors of deltalake. Their texts can contain parts of requests, so that only those about files become part of a message."""
    from deltalake.exceptions import DeltaError

    try:
        yield
    except (DeltaError, OSError, ValueError, KeyError) as error:
        reason = f": {quote(str(error), 160)}" if find_url(location) is None else f" ({type(error).__name__})"
        raise unreadable(DELTA, location, f"whose log cannot be read{reason}", "check the log") from None


def _find_version(latest: DeltaTable, location: str, version: str) -> int:
    """Return the number of a version that is given by its number, or by a time at which it was the current one, from the times in the log.

    Files of a log that was copied have other times than the commits. Raises UsageError.
    """
    if NUMBER.fullmatch(version):
        number = int(version)
        if number > latest.version():
            raise no_version(location, version, f"the last one is {latest.version()}")
        return number
    time = parse_time(version, "a Delta table", "a number, such as 12")
    commits = latest.history()
    if not commits or any("timestamp" not in commit or "version" not in commit for commit in commits):
        raise no_version(location, version, "its log does not tell the time of every version")
    before = [int(commit["version"]) for commit in commits if commit["timestamp"] <= time]
    if not before:
        first = min(commits, key=lambda commit: int(commit["version"]))
        since = datetime.fromtimestamp(first["timestamp"] / 1000, UTC).isoformat(timespec="seconds")
        raise no_version(location, version, f"the first one in its log, {first['version']}, is of {since}")
    return max(before)


def _check_features(table: DeltaTable, location: str) -> None:
    """Raise DataError E-FORMAT for a feature of the table that a reader has to understand, and this one does not."""
    features = set(table.protocol().reader_features or ())
    if unknown := sorted(features - READER_FEATURES):
        raise unreadable(DELTA, location, f"with features that are not read: {', '.join(unknown)}")


def _columns_and_files(table: DeltaTable, location: str) -> tuple[dict[str, pa.DataType | None], tuple[TableFile, ...]]:
    schema = json.loads(table.schema().to_json())["fields"]
    arrow = pa.schema(table.schema())
    types = {field["name"]: _feature_type(arrow.field(field["name"]).type) for field in schema}
    partitioned = set(table.metadata().partition_columns)
    mode = table.metadata().configuration.get(MAPPING_MODE, "none")
    columns = {field["name"]: _place(field, mode) for field in schema if field["name"] not in partitioned}
    actions = pa.table(table.get_add_actions())
    kept = _find_kept_rows(table) if "deletionVectors" in (table.protocol().reader_features or ()) else {}
    values = actions.column("partition") if partitioned else None
    files = []
    for number, (name, size) in enumerate(
        zip(actions.column("path").to_pylist(), actions.column("size_bytes").to_pylist(), strict=True)
    ):
        constants = {} if values is None else {key: values[number][key] for key in partitioned}
        path = _path_of(unquote(name), location)
        files.append(TableFile(path, size, columns, constants, kept.pop(_full_name(str(path)), None)))
    if kept:
        raise unreadable(DELTA, location, f"with a deletion vector of {next(iter(kept))}, which is not among its files")
    return types, tuple(sorted(files, key=lambda file: str(file.path)))


def _feature_type(kind: pa.DataType) -> pa.DataType | None:
    """Return a type that can be a feature; None for nested ones other than lists of values."""
    nested = pa.types.is_nested(kind) and not (pa.types.is_list(kind) and not pa.types.is_nested(kind.value_type))
    return None if nested else kind


def _place(field: Mapping[str, Any], mode: str) -> str | int:
    """Return the name of a column in the files, or the id of its field."""
    if mode == "id":
        return int(field["metadata"][FIELD_ID])
    return str(field["metadata"].get(PHYSICAL_NAME, field["name"])) if mode == "name" else str(field["name"])


def _path_of(name: str, location: str) -> Path:
    """Return the path of a file by its name in the log, relative to the table or absolute. Raises DataError E-FORMAT for a file that lies
    neither on this machine nor in the same kind of object store as the table.
    """
    if name.startswith("file://"):
        name = name.removeprefix("file://")
    elif "://" not in name:
        return Path(location, name)
    url = find_url(name)
    if (url or "").partition(":")[0] != (find_url(location) or "").partition(":")[0]:
        raise unreadable(DELTA, location, f"with a file elsewhere: {quote(name)}")
    return Path(name)


def _find_kept_rows(table: DeltaTable) -> dict[str, Any]:
    """Return, by full name of a file with a deletion vector, the function that returns which of its rows are kept."""
    kept = {}
    for batch in pa.RecordBatchReader.from_stream(table.deletion_vectors()):
        for url, selected in zip(batch.column("filepath"), batch.column("selection_vector"), strict=True):
            bits = np.packbits(selected.values.to_numpy(zero_copy_only=False), bitorder="little")
            kept[_full_name(unquote(url.as_py().removeprefix("file://")))] = _Bits(bits, len(selected))
    return kept


def _full_name(name: str) -> str:
    """Return the URL or the full path of a file, as names of the same file are compared."""
    return find_url(name) or os.path.realpath(name)


class _Bits:
    """The rows of a file that are kept, one bit a row; rows after the last bit are kept."""

    def __init__(self, bits: np.ndarray[Any, Any], rows: int) -> None:
        self._bits, self._rows = bits, rows

    def __call__(self, rows: int) -> pa.BooleanArray:
        """Return which of the rows of the file are kept."""
        known = pa.BooleanArray.from_buffers(pa.bool_(), self._rows, [None, pa.py_buffer(self._bits)])
        return pa.concat_arrays([known, pa.repeat(True, rows - self._rows)]) if rows > self._rows else known
