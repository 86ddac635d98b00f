"""Directories whose files are not their rows: tables of a lake, and tables in partitions, whose folders hold a column."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote

from streamsvm.errors import DataError, quote

ICEBERG_METADATA = re.compile(r"v?\d.*\.metadata\.json")
PARTITION = re.compile(r"([^=]+)=(.*)")
EXPORTS = {
    "Delta": "deltalake.DeltaTable({path!r}).to_pyarrow_dataset()",
    "Iceberg": "pyiceberg.catalog.load_catalog(...).load_table(...).scan().to_arrow_batch_reader()",
    "Hudi": "pyarrow.Table.from_batches(hudi.HudiTableBuilder.from_base_uri({path!r}).build().read_snapshot())",
}
"""By the kind of a table, what gives the rows of its current snapshot in Python."""


def refuse_lake(path: Path) -> None:
    """Raise DataError E-FORMAT for a Delta, Iceberg or Hudi table, or a file in one: rows that were deleted or replaced
    are in its files still, and only its log says which.
    """
    place = Path(os.path.realpath(path))
    for folder in (place, *place.parents):
        if (kind := _lake(folder)) is not None:
            found = f"{path} is" if folder == place else f"{path} lies in"
            shown = EXPORTS[kind].format(path=str(folder))
            raise DataError(
                f"{found} a{'n' if kind == 'Iceberg' else ''} {kind} table: its files also hold rows that were deleted or "
                "replaced",
                code="E-FORMAT",
                hint=f"write its current snapshot to Parquet, or pass it on in Python: sv.ingest({shown}, STORE, label=...)",
            )


def _lake(folder: Path) -> str | None:
    """The kind of table that a folder is the root of; None for any other folder."""
    if (folder / "_delta_log").is_dir():
        return "Delta"
    if (folder / ".hoodie").is_dir():
        return "Hudi"
    metadata = folder / "metadata"
    try:
        names = os.listdir(metadata)
    except OSError:
        return None
    return "Iceberg" if any(name == "version-hint.text" or ICEBERG_METADATA.fullmatch(name) for name in names) else None


def refuse_partitions(files: Sequence[Path], columns: Sequence[str]) -> None:
    """Raise DataError E-SCHEMA where files lie in folders such as 'year=2020' that differ, and ``columns``, which the
    files have themselves, lack a 'year': it would be lost.
    """
    found: dict[str, set[str | None]] = {}
    places: list[dict[str, str]] = []
    for file in files:
        matches = [match for part in file.parent.parts if (match := PARTITION.fullmatch(part))]
        places.append({match[1]: match[2] for match in matches})
    for key in dict.fromkeys(key for place in places for key in place):
        found[key] = {place.get(key) for place in places}
    lost = [unquote(key) for key, values in found.items() if len(values) > 1 and unquote(key) not in columns]
    if lost:
        raise _in_partitions(str(files[0]), lost)


def refuse_partitioned(folder: Path, below: Sequence[str]) -> None:
    """Raise DataError E-SCHEMA for a folder that has folders such as 'year=2020' in it."""
    keys = [unquote(match[1]) for name in below if (match := PARTITION.fullmatch(name))]
    if keys:
        raise _in_partitions(str(folder), keys[:1])


def _in_partitions(where: str, columns: Sequence[str]) -> DataError:
    listed = ", ".join(map(quote, columns))
    return DataError(
        f"{where} is part of a table in partitions: {listed} is in the names of folders, not in the files",
        code="E-SCHEMA",
        hint="in Python: sv.ingest(pyarrow.dataset.dataset(FOLDER, partitioning='hive'), STORE, label=...), which has that "
        "column; or write the table into files that have it, or read the folders one by one",
    )
