"""Tables of data lakes: Delta, Iceberg and Hudi, recognized by the folder of their log, on a disk or in an object store.

The files of such a table also hold rows that were deleted or replaced, and only its log tells which. The log is read by the library of the
table (``delta``, ``iceberg``), which gives the files of one version with what has to be done to their rows (``LakeTable``); the rows are
read by ``lake_source``. Files of a table are never read without its log, and what is not understood is refused by name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from streamsvm.errors import DataError, UsageError, quote
from streamsvm.input_files import WEB, find_url, split_url
from streamsvm.object_store import list_objects
from streamsvm.type_aliases import JsonObject

if TYPE_CHECKING:  # pyarrow is imported by formats of tables only
    import pyarrow as pa

DELTA, ICEBERG, HUDI = "Delta", "Iceberg", "Hudi"
LOGS = {DELTA: "_delta_log", HUDI: ".hoodie"}
"""The folder of the log, by kind of table."""
ICEBERG_METADATA = re.compile(r"v?\d.*\.metadata\.json")
VERSION_HINT = "version-hint.text"
HUDI_ROWS = "pyarrow.Table.from_batches(hudi.HudiTableBuilder.from_base_uri({path!r}).build().read_snapshot())"
"""The Python expression for the rows of the current snapshot of a Hudi table."""


class DeletedValues(NamedTuple):
    """A Parquet file whose rows say which rows of a table are deleted: those with the same values."""

    path: Path
    ids: Mapping[str, int]
    """The id of the field of each column that is compared, by its name in the table."""


class TableFile(NamedTuple):
    """A Parquet file of a version of a table."""

    path: Path
    """The path, or the URL."""
    size: int
    """The bytes."""
    columns: Mapping[str, str | int]
    """By column of the table, its name in the file, or the id of its field."""
    constants: Mapping[str, pa.Scalar]
    """The columns that have one value for all rows of the file: those by which a table is partitioned."""
    find_kept_rows: Callable[[int], Any] | None = None
    """Returns which of the n rows of the file are not deleted, as an array of booleans; None if all are kept."""
    deleted_values: tuple[DeletedValues, ...] = ()


@dataclass(frozen=True)
class LakeTable:
    """One version of a table."""

    kind: str
    location: str
    """The folder, or its URL."""
    id: str
    """The id that the table got when it was created."""
    version: str
    """The version of a Delta table, the snapshot of an Iceberg table."""
    types: Mapping[str, pa.DataType | None]
    """The type of each column; None for types such as structs that are not features, which are taken from the files."""
    files: tuple[TableFile, ...]
    schema: str = ""
    """The version of the columns, where it is not that of the rows."""
    ids_of_names: Mapping[str, int] = field(default_factory=dict)
    """The ids of columns by their names in files without ids."""

    @property
    def format(self) -> str:
        """The name of the format of the source."""
        return self.kind.lower()

    @property
    def bytes(self) -> int:
        """The bytes of all files."""
        return sum(file.size for file in self.files)

    def facts(self) -> JsonObject:
        """Return what identifies the rows of the table, as plain JSON."""
        facts = {"kind": self.kind, "location": self.location, "id": self.id, "version": self.version}
        return facts | ({"schema": self.schema} if self.schema else {})


def open_table(kind: str, location: str, version: str | None) -> LakeTable:
    """Return a version of the table in a folder, or at the URL of one: the stated one, or the current one.

    ``version``: a number, or a time. Raises UsageError if the library of the table is not installed or there is no such version; DataError
    E-FORMAT for a log that cannot be read, and for features of a table that are not read.
    """
    if kind == HUDI:
        raise _refusal(kind, location, location)
    if kind == DELTA:
        from streamsvm.store.sources.delta import open_delta

        return open_delta(location, version)
    from streamsvm.store.sources.iceberg import open_iceberg

    return open_iceberg(location, version)


def missing_library(kind: str, location: str, library: str) -> UsageError:
    """Return the error for a table whose library is not installed."""
    return UsageError(
        f"{location} is a{_n(kind)} {kind} table, and {library} is not installed", hint="pip install 'streamsvm[lake]'"
    )


def unreadable(kind: str, location: str, why: str, hint: str | None = None) -> DataError:
    """Return the error for a table that cannot be read. ``why``: the rest of the sentence."""
    hint = hint or "write the rows that you need to Parquet, with the program that wrote the table"
    return DataError(f"{location} is a{_n(kind)} {kind} table {why}", code="E-FORMAT", hint=hint)


def no_version(location: str, version: str, but: str) -> UsageError:
    """Return the error for a version that a table does not have. ``but``: which ones it has."""
    return UsageError(f"{location} has no version {quote(version)}: {but}", hint="give another --table-version")


def parse_time(version: str, table: str, other_forms: str) -> float:
    """Return the time by which a version is given, in milliseconds since 1970; without an offset it is UTC.

    ``table``, ``other_forms``: in words, the table, and the other forms in which a version of it can be given. Raises UsageError for a text that
    is no time.
    """
    try:
        time = datetime.fromisoformat(version)
    except ValueError:
        hint = f"write {other_forms}, or a time, such as 2026-11-27T12:00"
        raise UsageError(f"--table-version {quote(version)} is no version of {table}", hint=hint) from None
    return 1000 * (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()


def find_kind(folder: str) -> str | None:
    """Return the kind of table whose root a folder, or the URL of one, is; None for any other folder."""
    kind = next((kind for kind, log in LOGS.items() if list_names(f"{folder}/{log}") is not None), None)
    if kind is not None:
        return kind
    names = list_names(f"{folder}/metadata") or ()
    return ICEBERG if any(name == VERSION_HINT or ICEBERG_METADATA.fullmatch(name) for name in names) else None


def is_iceberg_metadata(name: str) -> bool:
    """Return whether a file is, by its name, the metadata of a version of an Iceberg table."""
    parts = name.rsplit("/", 2)
    return len(parts) > 1 and parts[-2] == "metadata" and ICEBERG_METADATA.fullmatch(parts[-1]) is not None


def list_names(folder: str) -> list[str] | None:
    """Return the names in a folder; None if there is no such folder."""
    if find_url(folder) is not None:
        return [one.url.removeprefix(f"{folder}/") for one in list_objects(folder)] or None
    try:
        return os.listdir(folder)
    except OSError:
        return None


def refuse_files_of_tables(paths: Iterable[Path]) -> None:
    """Raise DataError E-FORMAT for the first file or folder that lies in a table of a data lake."""
    folders: dict[str, Path] = {}
    for path in paths:
        folders.setdefault(_folder_of(path), path)
    places: dict[str, Path] = {}
    for folder, path in folders.items():
        for place in _with_folders_above(folder):
            places.setdefault(place, path)
    for place, path in places.items():
        if (kind := find_kind(place)) is not None:
            raise _refusal(kind, place, find_url(path) or str(path))


def refuse_tables_in_listing(listed: Iterable[str], found: Iterable[str]) -> None:
    """Raise DataError E-FORMAT if one of the objects ``found`` lies in a table of which the log is among those that were ``listed``."""
    tables: dict[str, str] = {}
    for url in listed:
        parts = url.split("/")
        kind = next((kind for kind, log in LOGS.items() if log in parts), None)
        if kind is not None:
            tables["/".join(parts[: parts.index(LOGS[kind])])] = kind
        elif is_iceberg_metadata(url):
            tables["/".join(parts[:-2])] = ICEBERG
    for url in found if tables else ():
        for folder in _with_folders_above(url.rpartition("/")[0]):
            if folder in tables:
                raise _refusal(tables[folder], folder, url)


def _folder_of(path: Path) -> str:
    url = find_url(path)
    if url is not None:
        return url.rpartition("/")[0]
    return os.path.realpath(path if path.is_dir() else path.parent)


def _with_folders_above(folder: str) -> list[str]:
    """Return a folder and all above it; none for a web server, which lists no folders."""
    if find_url(folder) is None:
        return [str(place) for place in (Path(folder), *Path(folder).parents)]
    root, key = split_url(folder)
    if root.partition(":")[0] in WEB:
        return []
    names = key.split("/") if key else []
    return ["/".join([root, *names[:depth]]) for depth in range(len(names), -1, -1)]


def _refusal(kind: str, table: str, name: str) -> DataError:
    """Return the error for a Hudi table, or for a file or folder in a ``table`` that the user named by itself."""
    is_table = table in (name, os.path.realpath(name))
    hint = f"name the table: {table}"
    if kind == HUDI:
        hint = "write its current snapshot to Parquet"
        if find_url(table) is None:
            hint += f", or pass it on in Python: sv.ingest({HUDI_ROWS.format(path=table)}, STORE, label=...)"
    where = f"{name} is" if is_table else f"{name} lies in"
    message = f"{where} a{_n(kind)} {kind} table: its files also hold rows that were deleted or replaced"
    return DataError(message, code="E-FORMAT", hint=hint)


def _n(kind: str) -> str:
    return "n" if kind == ICEBERG else ""
