"""Tables of data lakes, recognized by the folder of their log: Delta, Iceberg and Hudi, on a disk or in an object store.

The files of such a table also hold rows that were deleted or replaced, and only its log tells which. Files of a table are therefore never
read without it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from streamsvm.errors import DataError
from streamsvm.input_files import WEB, find_url, split_url
from streamsvm.objects import list_objects

DELTA, ICEBERG, HUDI = "Delta", "Iceberg", "Hudi"
LOGS = {DELTA: "_delta_log", HUDI: ".hoodie"}
"""The folder of the log, by kind of table."""
ICEBERG_METADATA = re.compile(r"v?\d.*\.metadata\.json")
VERSION_HINT = "version-hint.text"
EXPORTS = {
    DELTA: "deltalake.DeltaTable({path!r}).to_pyarrow_dataset()",
    ICEBERG: "pyiceberg.catalog.load_catalog(...).load_table(...).scan().to_arrow_batch_reader()",
    HUDI: "pyarrow.Table.from_batches(hudi.HudiTableBuilder.from_base_uri({path!r}).build().read_snapshot())",
}
"""The Python expression for the rows of the current snapshot of a table, by kind."""


def find_kind(folder: str) -> str | None:
    """Return the kind of table whose root a folder, or the URL of one, is; None for any other folder."""
    kind = next((kind for kind, log in LOGS.items() if _names_in(f"{folder}/{log}") is not None), None)
    if kind is not None:
        return kind
    names = _names_in(f"{folder}/metadata") or ()
    return ICEBERG if any(name == VERSION_HINT or ICEBERG_METADATA.fullmatch(name) for name in names) else None


def _names_in(folder: str) -> list[str] | None:
    """Return the names in a folder; None if there is no such folder."""
    if find_url(folder) is not None:
        return [one.url.removeprefix(f"{folder}/") for one in list_objects(folder)] or None
    try:
        return os.listdir(folder)
    except OSError:
        return None


def refuse_files_of_tables(paths: Iterable[Path]) -> None:
    """Raise DataError E-FORMAT for the first file or folder that is, or lies in, a table of a data lake."""
    folders: dict[str, Path] = {}
    for path in paths:
        folders.setdefault(_folder_of(path), path)
    places: dict[str, Path] = {}
    for folder, path in folders.items():
        for place in _with_folders_above(folder):
            places.setdefault(place, path)
    for place, path in places.items():
        if (kind := find_kind(place)) is not None:
            raise refusal(kind, place, path)


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


def refusal(kind: str, folder: str, path: Path) -> DataError:
    """Return the error for a file or folder of a table."""
    shown = find_url(path) or str(path)
    subject = f"{shown} is" if folder in (shown, os.path.realpath(path)) else f"{shown} lies in"
    hint = "write its current snapshot to Parquet"
    if find_url(path) is None:
        hint += f", or pass it on in Python: sv.ingest({EXPORTS[kind].format(path=folder)}, STORE, label=...)"
    return DataError(
        f"{subject} a{'n' if kind == ICEBERG else ''} {kind} table: its files also hold rows that were deleted or replaced",
        code="E-FORMAT",
        hint=hint,
    )
