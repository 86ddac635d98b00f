"""Which format files have, by their first bytes; names decide only between kinds of text."""

from __future__ import annotations

import glob
import os
import re
import stat
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote

from streamsvm.errors import DataError, MissingError, UsageError, quote
from streamsvm.regular import is_folder, is_there, what_is
from streamsvm.store.foreign import foreign_format
from streamsvm.store.format.manifest import FILE
from streamsvm.store.sources.input import BYTE_ORDER_MARK, STANDARD_INPUT, Input, check_encoding
from streamsvm.store.sources.npy import is_idx

HEAD = 1 << 16
MAGIC = {b"PAR1": "parquet", b"\x93NUMPY": "npy", b"PK\x03\x04": "npz"}
UNREADABLE = {b"ARROW1": "Arrow IPC", b"\x80\x04": "a pickle", b"MATLAB 5.0": "MATLAB before v7.3", b"<": "markup"}
NAMES = {
    ".csv": "csv",
    ".tsv": "csv",
    ".svm": "svmlight",
    ".libsvm": "svmlight",
    ".svmlight": "svmlight",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
}
JSON_ARRAY = re.compile(rb"\s*\[\s*[\[{\]]")
ENTRIES = re.compile(rb"[^\s,;]+(\s+[^\s:,;]+:[^\s:,;]*)+\s*(#.*)?")


def detect(paths: tuple[Path, ...]) -> str:
    """Return the format all files share. Raises DataError E-FORMAT when they differ or it is none that is read."""
    found = {path: _format_of(path) for path in paths}
    first = found[paths[0]]
    for path, name in found.items():
        if name != first:
            differ = f"{paths[0]} looks like {first}, {path} like {name}"
            raise DataError(differ, code="E-FORMAT", hint="ingest files of one format, or pass --format")
    return first


def binary_format(path: Path) -> str | None:
    """Return the format of what is not text; None for text and for what nobody knows."""
    return "zarr" if path.is_dir() else _format_by(_head(path), path)


def table_form(path: Path) -> str:
    """Return the format of a file that may be a table: 'csv' for text that is no JSON, else as ``binary_format``."""
    form = binary_format(path)
    if form is not None:
        return form
    return "jsonl" if _named(path) == "jsonl" or _head(path).lstrip().startswith(b"{") else "csv"


def _head(path: Path) -> bytes:
    with Input(path) as stream:
        return stream.read(HEAD)


def _format_by(head: bytes, path: Path) -> str | None:
    found = next((name for magic, name in MAGIC.items() if head.startswith(magic)), None)
    return found or ("idx" if is_idx(head) else None) or foreign_format(path)


def _format_of(path: Path) -> str:
    if path.is_dir():
        return "zarr"
    head = _head(path)
    if found := _format_by(head, path):
        return found
    for magic, name in UNREADABLE.items():
        if head.startswith(magic):
            raise DataError(f"{path} looks like {name}", code="E-FORMAT", hint="convert it, or pass --format")
    if JSON_ARRAY.match(head):
        hint = f"write one object a line: jq -c '.[]' {path.name} > rows.jsonl"
        raise DataError(f"{path} looks like a JSON array", code="E-FORMAT", hint=hint)
    if not head:
        raise DataError(f"{path} is empty", code="E-EMPTY", hint="check that it is the right file")
    return _named(path) or _kind_of_text(check_encoding(str(path), head))


def _named(path: Path) -> str | None:
    return next((NAMES[s.lower()] for s in reversed(path.suffixes) if s.lower() in NAMES), None)


def _kind_of_text(head: bytes) -> str:
    """JSON lines when the first line begins an object, svmlight when the first line that is no comment is a label and
    'index:value' entries, else CSV.
    """
    if head.lstrip().startswith(b"{"):
        return "jsonl"
    lines = (line for line in head.splitlines() if line.strip() and not line.lstrip().startswith(b"#"))
    line = next(lines, b"")
    return "svmlight" if ENTRIES.fullmatch(line.strip()) or not line else "csv"


LARGEST = 4 << 20
"""Bytes on disk, and of content, of a file that may be without rows: those of its header, or of a footer."""
PARQUET = b"PAR1"
PIECE = 1 << 16


def with_rows(files: Sequence[Path], form: str) -> tuple[Path, ...]:
    """Return the files that hold rows; all of them where none does. ``form``: their format, or 'auto'.

    Empty text, a Parquet file of 0 rows, and a CSV file of nothing but the header that other files have as well, hold none.
    Raises what ``Input`` does.
    """
    if len(files) == 1:
        return tuple(files)
    empty: set[Path] = set()
    lines: dict[Path, bytes] = {}
    for file in files:
        content = _single_line(file) if file.is_file() and file.stat().st_size <= LARGEST else None
        if content == b"" or (content is None and _is_empty_parquet(file)):
            empty.add(file)
        elif content is not None:
            lines[file] = content
    others = [file for file in files if file not in empty and file not in lines]
    if lines and others and form in ("auto", "csv") and table_form(others[0]) == "csv":
        header = _names(_first_line(others[0]))
        empty |= {file for file, line in lines.items() if _names(line) == header}
    return tuple(file for file in files if file not in empty) or tuple(files)


def _single_line(path: Path) -> bytes | None:
    """The only line of a small text file, empty where it has none; None where there are more, or it is no text."""
    found = b""
    with Input(path) as stream:
        while piece := stream.read(PIECE):
            found = (found + piece).removeprefix(BYTE_ORDER_MARK).lstrip()
            if b"\n" in found.strip() or len(found) > LARGEST or found.startswith(PARQUET):
                return None
    return found.strip()


def _first_line(path: Path) -> bytes:
    with Input(path) as stream:
        head = stream.read(LARGEST).removeprefix(BYTE_ORDER_MARK)
    return head.lstrip().partition(b"\n")[0].strip()


def _names(line: bytes) -> list[bytes]:
    """The names of a header in any order, whatever is between them."""
    return sorted(name.strip(b' "') for name in re.split(rb"[,;|\t]", line))


def _is_empty_parquet(path: Path) -> bool:
    if not path.is_file() or path.stat().st_size > LARGEST:
        return False
    with Input(path) as stream:
        if stream.read(len(PARQUET)) != PARQUET:
            return False
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return bool(pq.read_metadata(path).num_rows == 0)
    except (OSError, pa.ArrowException):  # it is raised again when the file is read
        return False


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


PATTERN = frozenset("*?[")


def expand(paths: Sequence[Path | str]) -> tuple[Path, ...]:
    """Return the files that are meant, directories that are Zarr arrays, and "-" as it is. Raises MissingError, UsageError,
    and DataError for tables whose files are not their rows (``lakes``).
    """
    found: list[Path] = []
    for path in map(Path, paths):
        if str(path) == STANDARD_INPUT:
            found.append(path)
        elif is_there(path):
            found += _in_directory(path) if is_folder(path) else [_regular(path)]
        elif PATTERN & set(str(path)):
            found += _matching(str(path))
        else:
            raise MissingError(f"{path} does not exist", hint="name the files to read")
    for file in {file.parent: file for file in reversed(found) if str(file) != STANDARD_INPUT}.values():
        refuse_lake(file)
    return tuple(found)


def _regular(path: Path) -> Path:
    """The path of a file that can be read more than once. Raises UsageError for pipes, before anything is taken out."""
    mode = path.stat().st_mode
    if stat.S_ISREG(mode):
        return path
    hint = "a source is read more than once: name - and pipe it in, as in 'zcat FILE | streamsvm ingest - STORE'"
    raise UsageError(f"{path} is {what_is(mode)}, not a regular file", hint=hint)


def _in_directory(path: Path) -> list[Path]:
    from streamsvm.store.foreign import foreign_format  # which itself reads through this package

    if (path / FILE).exists():
        raise UsageError(f"{path} is a store already", hint="name the files it was made of")
    if foreign_format(path) == "zarr":
        return [path]
    refuse_lake(path)
    refuse_partitioned(path, sorted(p.name for p in path.iterdir() if p.is_dir()))
    files = sorted(p for p in path.iterdir() if p.is_file() and not p.name.startswith((".", "_")))
    if not files:
        raise MissingError(f"{path} holds no files", hint="name the files to read")
    return files


def _matching(pattern: str) -> list[Path]:
    matches = sorted(glob.glob(pattern, recursive=True))
    if not matches:
        raise MissingError(f"nothing is called {quote(pattern)}", hint="check the pattern and the directory")
    return list(dict.fromkeys(expand(matches)))  # '**' names a folder, and the files in it
