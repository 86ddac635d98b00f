"""Find the files that a user names, and detect their format.

Directories and patterns are expanded to their files, sorted by name; directories with partitions (``year=2024``) to all files below them.
The format is detected by the first bytes; the suffix matters only for text. Files without rows are skipped and counted.
"""

from __future__ import annotations

import glob
import json
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Self

from streamsvm.errors import DataError, MissingError, UsageError, quote
from streamsvm.input_files import WEB, find_url, is_folder, is_there, what_is
from streamsvm.object_store import is_object
from streamsvm.store.foreign import HDF5_MAGIC, foreign_format
from streamsvm.store.format.manifest import FILE
from streamsvm.store.sources.byte_stream import BYTE_ORDER_MARK, STANDARD_INPUT, Input, check_encoding, source_name
from streamsvm.store.sources.lakes import (
    ICEBERG,
    LakeTable,
    find_kind,
    is_iceberg_metadata,
    open_table,
    refuse_files_of_tables,
)
from streamsvm.store.sources.partitions import columns_below, is_partition
from streamsvm.store.sources.remote_files import file_size, is_file_or_object, list_url, open_ranges

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
WILDCARDS = frozenset("*?[")


class InputFiles(tuple[Path, ...]):  # noqa: SLOT001 (a tuple subclass has no slots)
    """The files that sources stand for, in order; directories that are Zarr arrays or tables of data lakes, and "-", are among them
    unchanged.
    """

    partitions: tuple[str, ...]
    """The columns in names of folders below those that the user named."""
    table: LakeTable | None
    """The version of the table of a data lake that is the only source; None if there is none."""

    def __new__(cls, paths: Iterable[Path], partitions: Iterable[str] = (), table: LakeTable | None = None) -> Self:
        """Make a tuple of paths."""
        files = super().__new__(cls, paths)
        files.partitions, files.table = tuple(dict.fromkeys(partitions)), table
        return files

    def replace_paths(self, paths: Iterable[Path]) -> InputFiles:
        """Return other paths of the same sources."""
        return InputFiles(paths, self.partitions, self.table)


def table_of(sources: Sequence[Path | str]) -> LakeTable | None:
    """Return the version of the table of a data lake that the sources are, after ``expand``; None if they are files."""
    return sources.table if isinstance(sources, InputFiles) else None


def files_read(sources: Sequence[Path]) -> tuple[Path, ...]:
    """Return the files of the sources, after ``expand``, those of a table of a data lake included."""
    table = table_of(sources)
    return tuple(sources) if table is None else tuple(file.path for file in table.files)


def expand(paths: Sequence[Path | str], table_version: str | None = None) -> InputFiles:
    """Return the files that paths and patterns name; nothing is looked up again for paths that are ``InputFiles``.

    ``table_version``: the version of a table of a data lake; None: the current one. Raises MissingError, UsageError, and DataError for files
    in data lakes.
    """
    if isinstance(paths, InputFiles):
        return paths
    files, partitions, checked = list[Path](), dict[str, None](), list[Path]()
    for path in map(Path, paths):
        if (kind := _kind_of_table(path)) is not None:
            if len(paths) > 1:
                raise UsageError(
                    f"{find_url(path) or path} is a {kind} table, and there are other sources",
                    hint="name one table alone",
                )
            return InputFiles([path], (), open_table(kind, find_url(path) or str(path), table_version))
        root, found = _find_files(path)
        files += found
        partitions |= columns_below(root, found)
        # the objects below a URL were listed, which shows tables among them: the first tells of folders above
        checked += found if find_url(path) is None else found[:1]
    refuse_files_of_tables(file for file in checked if str(file) != STANDARD_INPUT)
    return InputFiles(files, partitions)


def _kind_of_table(path: Path) -> str | None:
    """Return the kind of the data lake of which a folder, or the URL of one, is a table; None for anything else."""
    if str(path) == STANDARD_INPUT or WILDCARDS & set(str(path)):
        return None
    url = find_url(path)
    if is_iceberg_metadata(url or str(path)):
        return ICEBERG
    if url is None:
        return find_kind(str(path)) if is_folder(path) else None
    return None if url.partition(":")[0] in WEB or is_object(url) else find_kind(url)


def _find_files(path: Path) -> tuple[Path, list[Path]]:
    """Return the files that a path or pattern names, and the folder below which the names of folders can hold columns."""
    if str(path) == STANDARD_INPUT:
        return path.parent, [path]
    url = find_url(path)
    if url is None and is_there(path):
        return (path, _list_directory(path)) if is_folder(path) else (path.parent, [_check_regular(path)])
    fixed = next((k for k, part in enumerate(path.parts) if WILDCARDS & set(part)), None)
    root = path if fixed is None else Path(*path.parts[:fixed])
    if url is not None:
        return root, [Path(one) for one in list_url(url)]
    if fixed is None:
        raise MissingError(f"{path} does not exist", hint="name the files to read")
    return root, _match_pattern(str(path))


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
    refuse_files_of_tables([path])
    has_partitions = any(is_partition(entry.name) and entry.is_dir() for entry in path.iterdir())
    files = sorted(_walk(path) if has_partitions else (p for p in _visible(path) if p.is_file()))
    if not files:
        raise MissingError(f"{path} holds no files", hint="name the files to read")
    return files


def _visible(folder: Path) -> Iterator[Path]:
    """Yield what is in a folder, except names with a dot or underscore in front, by which writers mark what holds no rows."""
    return (entry for entry in folder.iterdir() if not entry.name.startswith((".", "_")))


def _walk(folder: Path) -> Iterator[Path]:
    """Yield all files below a folder; links to a folder above would never end and are left out."""
    above = {place.resolve() for place in (folder, *folder.absolute().parents)}
    for entry in _visible(folder):
        if entry.is_dir():
            yield from () if entry.resolve() in above else _walk(entry)
        elif entry.is_file():
            yield entry


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
    found = (file for match in matches for file in _find_files(Path(match))[1])
    return list(dict.fromkeys(found))  # '**' matches a folder and also the files in it


def detect(paths: InputFiles) -> str:
    """Return the common format of files. Raises DataError E-FORMAT if their formats differ or are unknown."""
    if paths.table is not None:
        return paths.table.format
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


def with_rows(files: InputFiles, form: str) -> InputFiles:
    """Return the files that have rows, or all files if none has. ``form``: their format, or 'auto'.

    Files without rows are empty text, Parquet files of 0 rows, and CSV files that hold only the header of the other
    files. Raises what ``Input`` raises.
    """
    if len(files) == 1:
        return files
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
    return files.replace_paths([file for file in files if file not in empty] or files)


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
