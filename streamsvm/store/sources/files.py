"""Find the files that a user names, and detect their format.

Directories and patterns are expanded to their files, sorted by name. The format is detected by the first bytes; the
suffix matters only for text. Files without rows are skipped and counted. Two kinds of directories are refused, because
their files are not exactly their rows: tables of a data lake, and partitioned tables, where the names of folders hold a
column.
"""

from __future__ import annotations

import glob
import json
import os
import re
import stat
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote

from streamsvm.errors import DataError, MissingError, UsageError, quote
from streamsvm.input_files import find_url, is_folder, is_there, what_is
from streamsvm.store.foreign import HDF5_MAGIC, foreign_format
from streamsvm.store.format.manifest import FILE
from streamsvm.store.sources.byte_stream import BYTE_ORDER_MARK, STANDARD_INPUT, Input, check_encoding, source_name
from streamsvm.store.sources.remote_files import (
    file_size,
    is_file_or_object,
    list_url,
    open_ranges,
    refuse_remote_lakes,
)

HEAD = 1 << 16
"""The number of bytes from which the format of a file is detected."""
MAGIC = {
    b"PAR1": "parquet",
    b"ARROW1": "arrow",
    b"\xff\xff\xff\xff": "arrow",
    b"\x93NUMPY": "npy",
    b"PK\x03\x04": "npz",
}
UNREADABLE = {
    b"FEA1": "a Feather file of version 1",
    b"\x80\x04": "a pickle",
    b"MATLAB 5.0": "MATLAB before v7.3",
    b"<": "markup",
}
LOCAL_FORMATS = {
    "arrow": "an Arrow file",
    "npy": "a numpy array",
    "npz": "a numpy array",
    "idx": "an IDX array",
    "hdf5": "an HDF5 file",
    "zarr": "a Zarr array",
}
"""The formats that are not read at a URL, in words."""
SUFFIXES = {
    ".csv": "csv",
    ".tsv": "csv",
    ".svm": "svmlight",
    ".libsvm": "svmlight",
    ".svmlight": "svmlight",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
}
JSON_ARRAY = re.compile(rb"\s*\[\s*[\[{\]]")
SVMLIGHT_LINE = re.compile(rb"[^\s,;]+(\s+[^\s:,;]+:[^\s:,;]*)+\s*(#.*)?")
LARGEST_EMPTY = 4 << 20
"""The most bytes, on disk and uncompressed, of a file that is checked for having no rows but a header or a footer."""
PARQUET_MAGIC = b"PAR1"
DATASET_STATE, DATASET_PARTS = "state.json", "dataset_dict.json"
"""The files in the folder of a Hugging Face data set, and of several ones, that ``save_to_disk`` wrote."""
PIECE = 1 << 16
ICEBERG_METADATA = re.compile(r"v?\d.*\.metadata\.json")
PARTITION = re.compile(r"([^=]+)=(.*)")
EXPORTS = {
    "Delta": "deltalake.DeltaTable({path!r}).to_pyarrow_dataset()",
    "Iceberg": "pyiceberg.catalog.load_catalog(...).load_table(...).scan().to_arrow_batch_reader()",
    "Hudi": "pyarrow.Table.from_batches(hudi.HudiTableBuilder.from_base_uri({path!r}).build().read_snapshot())",
}
"""The Python expression for the rows of the current snapshot of a table, by kind of data lake."""
WILDCARDS = frozenset("*?[")


def expand(paths: Sequence[Path | str]) -> tuple[Path, ...]:
    """Return the files that paths and patterns name; directories that are Zarr arrays, and "-", are kept unchanged.

    Raises MissingError, UsageError, and DataError for data lakes and partitioned tables.
    """
    files: list[Path] = []
    for path in map(Path, paths):
        if str(path) == STANDARD_INPUT:
            files.append(path)
        elif (url := find_url(path)) is not None:
            files += map(Path, list_url(url))
        elif is_there(path):
            files += _list_directory(path) if is_folder(path) else [_check_regular(path)]
        elif WILDCARDS & set(str(path)):
            files += _match_pattern(str(path))
        else:
            raise MissingError(f"{path} does not exist", hint="name the files to read")
    refuse_remote_lakes(url for file in files if (url := find_url(file)) is not None)
    local = [file for file in files if str(file) != STANDARD_INPUT and find_url(file) is None]
    for file in {file.parent: file for file in reversed(local)}.values():
        refuse_lake(file)
    return tuple(files)


def _check_regular(path: Path) -> Path:
    """Return the path of a regular file. Raises UsageError for pipes and other special files."""
    mode = path.stat().st_mode
    if stat.S_ISREG(mode):
        return path
    hint = "a source is read more than once: name - and pipe it in, as in 'zcat FILE | streamsvm ingest - STORE'"
    raise UsageError(f"{path} is {what_is(mode)}, not a regular file", hint=hint)


def _list_directory(path: Path) -> list[Path]:
    if (path / FILE).exists():
        raise UsageError(f"{path} is a store already", hint="name the files it was made of")
    if foreign_format(path) == "zarr":
        return [path]
    if (shards := _list_saved_dataset(path)) is not None:
        return shards
    refuse_lake(path)
    refuse_partitioned_folder(path, sorted(p.name for p in path.iterdir() if p.is_dir()))
    files = sorted(p for p in path.iterdir() if p.is_file() and not p.name.startswith((".", "_")))
    if not files:
        raise MissingError(f"{path} holds no files", hint="name the files to read")
    return files


def _list_saved_dataset(path: Path) -> list[Path] | None:
    """Return the Arrow files of a Hugging Face data set that ``save_to_disk`` wrote, in its order; None for any other
    folder.

    Raises UsageError for several data sets, such as train and test, and for rows that are chosen by a file of indices.
    """
    if (path / DATASET_PARTS).is_file():
        parts = ", ".join(sorted(str(p) for p in path.iterdir() if (p / DATASET_STATE).is_file()))
        raise UsageError(f"{path} holds several data sets", hint=f"name one of them: {parts}")
    try:
        state = json.loads((path / DATASET_STATE).read_bytes())
        names = [str(file["filename"]) for file in state["_data_files"]]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if state.get("_indices_data_files") or state.get("_indices_files"):
        hint = "write it with flatten_indices().save_to_disk(...)"
        raise UsageError(f"{path} is a selection of the rows of its files, made by a file of indices", hint=hint)
    missing = next((name for name in names if not (path / name).is_file()), None)
    if missing is not None:
        raise MissingError(f"{path / missing} does not exist", hint=f"{DATASET_STATE} names it: get the folder again")
    return [path / name for name in names]


def _match_pattern(pattern: str) -> list[Path]:
    matches = sorted(glob.glob(pattern, recursive=True))
    if not matches:
        raise MissingError(f"nothing is called {quote(pattern)}", hint="check the pattern and the directory")
    return list(dict.fromkeys(expand(matches)))  # '**' matches a folder and also the files in it


def detect(paths: tuple[Path, ...]) -> str:
    """Return the common format of files. Raises DataError E-FORMAT if their formats differ or are unknown."""
    formats = {path: _format_of(path) for path in paths}
    first = formats[paths[0]]
    for path, name in formats.items():
        if name != first:
            message = f"{source_name(str(paths[0]))} looks like {first}, {source_name(str(path))} like {name}"
            raise DataError(message, code="E-FORMAT", hint="ingest files of one format, or pass --format")
    return first


def binary_format(path: Path) -> str | None:
    """Return the format of a binary file; None for text and for unknown formats."""
    return "zarr" if path.is_dir() else _format_by(_head(path), path)


def table_form(path: Path) -> str:
    """Return the format of a file that may be a table: a binary format, 'jsonl', or 'csv' for any other text."""
    form = binary_format(path)
    if form is not None:
        return form
    return "jsonl" if _format_by_suffix(path) == "jsonl" or _head(path).lstrip().startswith(b"{") else "csv"


def _head(path: Path) -> bytes:
    with Input(path) as stream:
        return stream.read(HEAD)


def _format_by(head: bytes, path: Path) -> str | None:
    name = next((name for magic, name in MAGIC.items() if head.startswith(magic)), None)
    if name is not None:
        return name
    from streamsvm.store.sources.npy import is_idx

    if is_idx(head):
        return "idx"
    if find_url(path) is None:
        return foreign_format(path)
    return "hdf5" if head.startswith(HDF5_MAGIC) else None


def refuse_remote_format(files: Sequence[Path], form: str) -> None:
    """Raise DataError E-FORMAT for objects of object stores in a format that is read from files of this machine only."""
    urls = [url for file in files if (url := find_url(file)) is not None]
    if urls and form in LOCAL_FORMATS:
        hint = "copy it to this machine and ingest it there"
        raise DataError(f"{urls[0]} is {LOCAL_FORMATS[form]}", code="E-FORMAT", hint=hint)


def _format_of(path: Path) -> str:
    if path.is_dir():
        return "zarr"
    head = _head(path)
    if binary := _format_by(head, path):
        return binary
    shown = source_name(str(path))
    for magic, name in UNREADABLE.items():
        if head.startswith(magic):
            raise DataError(f"{shown} looks like {name}", code="E-FORMAT", hint="convert it, or pass --format")
    if JSON_ARRAY.match(head):
        hint = f"write one object a line: jq -c '.[]' {path.name} > rows.jsonl"
        raise DataError(f"{shown} looks like a JSON array", code="E-FORMAT", hint=hint)
    if not head:
        raise DataError(f"{shown} is empty", code="E-EMPTY", hint="check that it is the right file")
    return _format_by_suffix(path) or _kind_of_text(check_encoding(shown, head))


def _format_by_suffix(path: Path) -> str | None:
    return next((SUFFIXES[s.lower()] for s in reversed(path.suffixes) if s.lower() in SUFFIXES), None)


def _kind_of_text(head: bytes) -> str:
    """Return 'jsonl' if the first line begins an object, 'svmlight' if the first line that is not a comment is a label
    and 'index:value' entries, else 'csv'.
    """
    if head.lstrip().startswith(b"{"):
        return "jsonl"
    lines = (line for line in head.splitlines() if line.strip() and not line.lstrip().startswith(b"#"))
    line = next(lines, b"")
    return "svmlight" if SVMLIGHT_LINE.fullmatch(line.strip()) or not line else "csv"


def with_rows(files: Sequence[Path], form: str) -> tuple[Path, ...]:
    """Return the files that have rows, or all files if none has. ``form``: their format, or 'auto'.

    Files without rows are empty text, Parquet files of 0 rows, and CSV files that hold only the header of the other
    files. Raises what ``Input`` raises.
    """
    if len(files) == 1:
        return tuple(files)
    empty: set[Path] = set()
    lines: dict[Path, bytes] = {}
    for file in files:
        content = _single_line(file) if _may_be_empty(file) else None
        if content == b"" or (content is None and _is_empty_parquet(file)):
            empty.add(file)
        elif content is not None:
            lines[file] = content
    others = [file for file in files if file not in empty and file not in lines]
    if lines and others and form in ("auto", "csv") and table_form(others[0]) == "csv":
        header = _names(_first_line(others[0]))
        empty |= {file for file, line in lines.items() if _names(line) == header}
    return tuple(file for file in files if file not in empty) or tuple(files)


def _may_be_empty(path: Path) -> bool:
    """Return whether a path is a file or object that is small enough to be checked for having no rows."""
    return is_file_or_object(path) and file_size(path) <= LARGEST_EMPTY


def _single_line(path: Path) -> bytes | None:
    """Return the only line of a small text file, or b'' for an empty file; None if it has more lines or is not text."""
    content = b""
    with Input(path) as stream:
        while piece := stream.read(PIECE):
            content = (content + piece).removeprefix(BYTE_ORDER_MARK).lstrip()
            if b"\n" in content.strip() or len(content) > LARGEST_EMPTY or content.startswith(tuple(MAGIC)):
                return None
    return content.strip()


def _first_line(path: Path) -> bytes:
    with Input(path) as stream:
        head = stream.read(LARGEST_EMPTY).removeprefix(BYTE_ORDER_MARK)
    return head.lstrip().partition(b"\n")[0].strip()


def _names(line: bytes) -> list[bytes]:
    """Return the sorted names of a header with any usual delimiter."""
    return sorted(name.strip(b' "') for name in re.split(rb"[,;|\t]", line))


def _is_empty_parquet(path: Path) -> bool:
    if not _may_be_empty(path):
        return False
    with Input(path) as stream:
        if stream.read(len(PARQUET_MAGIC)) != PARQUET_MAGIC:
            return False
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return bool(pq.read_metadata(open_ranges(path)).num_rows == 0)
    except (OSError, pa.ArrowException):  # the error is raised again when the file is read
        return False


def refuse_lake(path: Path) -> None:
    """Raise DataError E-FORMAT for a Delta, Iceberg or Hudi table, or a file in one: its files also hold rows that were
    deleted or replaced, and only the log of the table tells which.
    """
    real_path = Path(os.path.realpath(path))
    for folder in (real_path, *real_path.parents):
        if (kind := _lake_kind(folder)) is not None:
            subject = f"{path} is" if folder == real_path else f"{path} lies in"
            rows = EXPORTS[kind].format(path=str(folder))
            raise DataError(
                f"{subject} a{'n' if kind == 'Iceberg' else ''} {kind} table: its files also hold rows that were deleted or "
                "replaced",
                code="E-FORMAT",
                hint=f"write its current snapshot to Parquet, or pass it on in Python: sv.ingest({rows}, STORE, label=...)",
            )


def _lake_kind(folder: Path) -> str | None:
    """Return the kind of data lake table whose root a folder is; None for any other folder."""
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
    """Raise DataError E-SCHEMA if files are in different folders such as 'year=2020' and ``columns`` has no 'year': the
    values of that column would be lost.
    """
    values_of: dict[str, set[str | None]] = {}
    places: list[dict[str, str]] = []
    for file in files:
        matches = [match for part in file.parent.parts if (match := PARTITION.fullmatch(part))]
        places.append({match[1]: match[2] for match in matches})
    for key in dict.fromkeys(key for place in places for key in place):
        values_of[key] = {place.get(key) for place in places}
    lost = [unquote(key) for key, values in values_of.items() if len(values) > 1 and unquote(key) not in columns]
    if lost:
        raise _partition_error(str(files[0]), lost)


def refuse_partitioned_folder(folder: Path, below: Sequence[str]) -> None:
    """Raise DataError E-SCHEMA if one of the folders ``below`` a folder has a name such as 'year=2020'."""
    keys = [unquote(match[1]) for name in below if (match := PARTITION.fullmatch(name))]
    if keys:
        raise _partition_error(str(folder), keys[:1])


def _partition_error(where: str, columns: Sequence[str]) -> DataError:
    listed = ", ".join(map(quote, columns))
    return DataError(
        f"{where} is part of a table in partitions: {listed} is in the names of folders, not in the files",
        code="E-SCHEMA",
        hint="in Python: sv.ingest(pyarrow.dataset.dataset(FOLDER, partitioning='hive'), STORE, label=...), which has that "
        "column; or write the table into files that have it, or read the folders one by one",
    )
