"""Hive partitions: tables with columns whose values are in the names of folders, as in ``year=2024/month=01/rows.parquet``.

The types are those of ``pyarrow.dataset`` with ``partitioning="hive"``: int32 if all values of a column are whole numbers of 32 bits, else
text with percent signs decoded; ``__HIVE_DEFAULT_PARTITION__`` is a missing value.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from streamsvm.errors import DataError, quote
from streamsvm.input_files import find_url

if TYPE_CHECKING:  # pyarrow is imported by formats of tables only
    import pyarrow as pa

PARTITION = re.compile(r"([^=]+)=(.*)", re.DOTALL)
NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
WHOLE_NUMBER = re.compile(r"-?[0-9]+")
INT32_BOUND = 1 << 31


def folder_values(folders: Iterable[str]) -> dict[str, str | None]:
    """Return the values in names of folders such as 'year=2024', by column; None is a missing value."""
    matches = [match for name in folders if (match := PARTITION.fullmatch(name))]
    return {unquote(match[1]): None if match[2] == NO_VALUE else unquote(match[2]) for match in matches}


def values_above(path: Path) -> dict[str, str | None]:
    """Return the values in the names of the folders above a file or object, by column."""
    return folder_values(path.parent.parts)


def name_in_table(path: Path) -> str:
    """Return the name of a file, after those of the folders above it that hold values."""
    return "/".join([*filter(is_partition, path.parent.parts), path.name])


def columns_below(root: Path, files: Iterable[Path]) -> dict[str, None]:
    """Return the columns in the names of the folders that lie between a folder and files in it."""
    depth = len(root.parts)
    return dict.fromkeys(name for file in files for name in folder_values(file.parent.parts[depth:]))


def is_partition(folder: str) -> bool:
    """Return whether the name of a folder holds the value of a column."""
    return PARTITION.fullmatch(folder) is not None


class PartitionColumns:
    """The columns of some files that are in the names of their folders."""

    def __init__(
        self, paths: Sequence[Path] = (), below: Sequence[str] = (), named: Collection[str | None] = ()
    ) -> None:
        """``below``: columns in the names of folders below those that the user named. ``named``: columns that options or a recorded
        schema name. Other columns are left out if they have the same value for all files.
        """
        values = [values_above(path) for path in paths]
        names = dict.fromkeys([*below, *(name for one in values for name in one)])
        chosen = [
            name for name in names if name in below or name in named or len({one.get(name) for one in values}) > 1
        ]
        self._values = {path: {n: one[n] for n in chosen if n in one} for path, one in zip(paths, values, strict=True)}
        self.types = {name: _infer_type([one[name] for one in values if name in one]) for name in chosen}

    def types_of(self, path: Path) -> dict[str, pa.DataType]:
        """Return the types of the columns that the folders of a file have."""
        return {name: self.types[name] for name in self._values.get(path, ())}

    def column(self, path: Path, name: str, rows: int) -> Any:
        """Return a column of a file as an array."""
        return repeat_value(self._scalar(self._values[path][name], name), rows)

    def values(self, name: str) -> Any:
        """Return the value that each file has in a column as an array."""
        import pyarrow as pa

        return pa.array(
            [self._scalar(one[name], name) for one in self._values.values() if name in one], self.types[name]
        )

    def _scalar(self, value: str | None, name: str) -> pa.Scalar:
        import pyarrow as pa

        kind = self.types[name]
        return pa.scalar(int(value) if value is not None and kind == pa.int32() else value, kind)


def _infer_type(values: Sequence[str | None]) -> pa.DataType:
    import pyarrow as pa

    texts = [value for value in values if value is not None]
    if not texts:
        return pa.null()
    are_int32 = all(WHOLE_NUMBER.fullmatch(text) and -INT32_BOUND <= int(text) < INT32_BOUND for text in texts)
    return pa.int32() if are_int32 else pa.string()


def repeat_value(value: pa.Scalar, rows: int) -> Any:
    """Return an array of ``rows`` times the same value; text as a dictionary."""
    import pyarrow as pa

    if not value.is_valid:
        return pa.nulls(rows, value.type)
    if pa.types.is_string(value.type) or pa.types.is_large_string(value.type):
        return pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), rows), pa.array([value]))
    return pa.repeat(value, rows)


def refuse_partitions(paths: Sequence[Path], below: Sequence[str], columns: Collection[str]) -> None:
    """Raise DataError E-SCHEMA if files are in different folders such as 'year=2020', or below a named folder with such folders, and
    ``columns`` has no 'year': the values of that column would be lost.
    """
    lost = [name for name in PartitionColumns(paths, below).types if name not in columns]
    if lost:
        names = ", ".join(map(quote, lost))
        raise DataError(
            f"{find_url(paths[0]) or paths[0]} is part of a table in partitions: {names} is in the names of folders, not in the files",
            code="E-SCHEMA",
            hint="such columns are read with Parquet and Arrow files; write the table into files that have the column, or read the folders "
            "one by one",
        )
