"""Check that the outputs of a job can be written, and recognize outputs of earlier runs.

``--overwrite`` replaces the output of an earlier run; it never deletes other files. An existing path is replaced only if its content shows
that it is an output of the same kind (``Kind``); a directory with a single file that this package does not write is never replaced. A job
never writes to its own inputs: to the file itself under any name, to a directory that contains it, or into a store. All of this is checked
before the first row is read.
"""

from __future__ import annotations

import csv
import errno
import glob
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

from streamsvm.durable import explain_errors, is_npy_of_ours
from streamsvm.errors import ExistsError, UsageError, quote
from streamsvm.input_files import find_url, is_there, refuse_url
from streamsvm.type_aliases import JsonObject

OTHER_NAME_HINT = "choose another name"
OVERWRITE_HINT = "choose another name, or pass --overwrite"
STORES = ("manifest.json", "zarr.json", ".zgroup", ".zarray")
"""Files by which a directory is a store or an array, and so one input, rather than a folder of input files."""
_Id = tuple[int, int]


class Output(NamedTuple):
    """A path a job is going to write."""

    path: Path
    kind: Kind
    """What kind of output it is; only an output of this kind is replaced."""
    may_exist: bool = False
    """Whether an earlier output may exist without --overwrite, because the job continues or extends it."""


def check_writable(outputs: Sequence[Output], inputs: Iterable[Path | str | None] = (), *, overwrite: bool) -> None:
    """Check, before the job starts, that it can write all its outputs without destroying anything else.

    ``inputs`` are the paths that the job reads; None and missing paths are skipped. Raises ExistsError (exit code 73) for a path that must
    not be replaced, UsageError for an impossible name or two outputs at one path, StorageError for a directory that is missing or
    not writable.
    """
    for output in outputs:
        _check_name(output.path)
    for one, other in combinations(outputs, 2):
        first, second = Path(os.path.realpath(one.path)), Path(os.path.realpath(other.path))
        if first.is_relative_to(second) or second.is_relative_to(first):
            raise UsageError(f"{one.path} and {other.path} would be written to the same place", hint=OTHER_NAME_HINT)
    job_inputs = _Inputs(inputs)
    for output in outputs:
        _check_parent(output.path)
        job_inputs.check_unaffected_by(output.path)
        _check_outside_stores(output.path)
        _check_replaceable(output, overwrite=overwrite)


def refuse_foreign(path: Path, kind: Kind) -> None:
    """Raise ExistsError if the path exists and is not an output of this kind. An empty folder passes for a kind that is a folder."""
    if path.is_symlink():
        raise ExistsError(f"{path} is a symbolic link", hint="name its target, or remove the link")
    if not path.exists():
        return
    fault = kind.fault(path)
    if fault:
        raise ExistsError(f"{path} exists and is not {kind.name}: {fault}", hint=OTHER_NAME_HINT)


def _check_replaceable(output: Output, *, overwrite: bool) -> None:
    path = output.path
    refuse_foreign(path, output.kind)
    empty = path.is_dir() and not any(path.iterdir())
    if path.exists() and not (overwrite or output.may_exist or empty):
        raise ExistsError(f"{path} exists already", hint=OVERWRITE_HINT)


def output_path(name: Path | str) -> Path:
    """Return the path of an output. Raises UsageError for '.', '..' and '/', which can only be directories."""
    path = Path(name)
    if path.name in ("", ".."):
        raise UsageError(f"{quote(str(name))} is not a name for an output", hint="name a file or folder in it")
    return path


def _check_name(path: Path) -> None:
    """Raise UsageError for a name that no file can have (too long, a NUL, an invalid character) and for a URL."""
    refuse_url(path)
    try:
        os.lstat(path)
    except (ValueError, OSError) as error:
        if isinstance(error, OSError) and error.errno != errno.ENAMETOOLONG:
            return  # ``_check_parent`` checks whether it can be written
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(f"{quote(str(path))} cannot be the name of a file: {reason}", hint=OTHER_NAME_HINT) from error


def _check_outside_stores(path: Path) -> None:
    """Raise ExistsError for a path inside any store, whether or not the job reads it."""
    parent = Path(os.path.realpath(path.parent))
    for above in (parent, *parent.parents):
        if is_store(above):
            raise ExistsError(f"{path} lies inside the store {above}", hint=OTHER_NAME_HINT)


def _check_parent(path: Path) -> None:
    parent = path.parent
    with explain_errors("writing to", parent):
        if not os.access(parent, os.W_OK):
            raise OSError(errno.EACCES, os.strerror(errno.EACCES) if parent.exists() else "no such directory")


class _Inputs:
    """The files that a job reads and the directories that contain them, by device and inode, since a file can have several names."""

    def __init__(self, inputs: Iterable[Path | str | None]) -> None:
        self._files: dict[_Id, Path] = {}
        self._above: dict[_Id, Path] = {}
        self._stores: dict[_Id, Path] = {}
        folders: dict[Path, Path] = {}
        for path in _existing_files(inputs):
            input_id = _id(path)
            if input_id is None:
                continue
            self._files[input_id] = path
            if path.is_dir():
                self._stores[input_id] = path
            folders.setdefault(path.parent, path)
        for folder, path in folders.items():
            for above in _ids_upward(folder):
                self._above.setdefault(above, path)

    def check_unaffected_by(self, output: Path) -> None:
        """Raise ExistsError if writing ``output`` would change an input."""
        output_id = _id(output)
        if output_id in self._files:
            raise ExistsError(f"{output} is read by this job and cannot be its output", hint=OTHER_NAME_HINT)
        if output_id in self._above:
            raise ExistsError(f"{output} holds {self._above[output_id]}, which this job reads", hint=OTHER_NAME_HINT)
        for above in _ids_upward(output.parent):
            if above in self._stores:
                raise ExistsError(
                    f"{output} lies inside {self._stores[above]}, which this job reads", hint=OTHER_NAME_HINT
                )


def _id(path: Path) -> _Id | None:
    """Return device and inode of a path, following links; None if it does not exist."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino


def _ids_upward(directory: Path) -> Iterator[_Id]:
    """Yield device and inode of a directory and of all its parents."""
    path = Path(os.path.realpath(directory))
    for each in (path, *path.parents):
        if (each_id := _id(each)) is not None:
            yield each_id


def _existing_files(inputs: Iterable[Path | str | None]) -> Iterator[Path]:
    """Yield the inputs that exist; for a pattern its matches, and for a folder, unless it is one input, the files in it."""
    for name in inputs:
        if name is None or not str(name) or find_url(name) is not None:
            continue
        path = Path(name)
        for existing in [path] if is_there(path) else map(Path, glob.glob(str(name), recursive=True)):
            if not existing.is_dir() or any((existing / file).exists() for file in STORES):
                yield existing
            if existing.is_dir():
                yield from (file for file in existing.iterdir() if file.is_file())


# -- kinds of output, recognized by their content ----------------------------------------------------------------------


class Kind(NamedTuple):
    """A kind of output: its name in messages, and a function that recognizes it."""

    name: str
    fault: Callable[[Path], str]
    """Returns the reason why a path is not of this kind; empty if it is."""


def kind_by_header(name: str, header: bytes) -> Kind:
    """Return the kind of output that is a file beginning with ``header``."""
    return Kind(name, partial(header_fault, header=header))


REJECTS_HEADER = b"file\tline\tcode\treason\n"
RECEIPT_HEADER = b"row,influence\n"
SCHEMA_HEADER = b"# streamsvm: what becomes of each column of a table\n"
PAGE_HEADER = b"<!doctype html>\n<!-- made by streamsvm report -->\n"
MAP, JOURNALS = "map.safetensors", ("ingest.journal", "journal.json")
_PARTIAL = r"(?:.*/)?\.[^/]+\.partial(?:/.*)?"
_STORE = re.compile(
    r"manifest\.json|statistics\.safetensors|ingest\.journal|journal\.json|map\.safetensors|part-\d+\.h5|ids\.parquet"
    r"|(?:(?:X|y|weight)/(?:(?:data|indices|indptr)/)?)?(?:zarr\.json|c\.\d+(?:\.0)?)|" + _PARTIAL
)
_PICKLE = rb"\x80[\x04\x05]\x95.{8}\x8c.sklearn\."
_CHECKPOINT = re.compile(r"ckpt-[AB]|[a-z_]+(?:\.\d+)*|" + _PARTIAL)
_PARTS = re.compile(r"\.?\d{6}(?:\.[0-9a-f]{8})?\.zarr/(?:.*)")
_SEARCH = re.compile(
    r"journal\.json|table\.json|table\.csv|heatmap\.txt|heatmap\.png|\.cell-[^/]*/.*|embedding\.zarr/.*|[a-z_]+(?:\.\d+)*|"
    + _PARTIAL
)
RUN_FILES = ("plan.json", "certificate.json", "job.json", "events.jsonl", "record.json", "evaluation.json")
"""Files of a run that are recognized by their content."""


def store_fault(path: Path) -> str:
    """Return why a path is not a store of ingested rows; empty if it is."""
    fault = any_store_fault(path)
    if not fault and (path / MAP).exists():
        return "it is an embedding"
    return fault


def embedding_fault(path: Path) -> str:
    """Return why a path is not a store of kernel features; empty if it is."""
    fault = any_store_fault(path)
    if not fault and (path / "manifest.json").exists() and not (path / MAP).exists():
        return "it is a store of another kind, with rows that may be nowhere else"
    return fault


def any_store_fault(path: Path) -> str:
    """Return why a path is not a store of either kind, finished or not; empty if it is."""
    fault = directory_fault(path) or foreign_file_fault(path, _STORE)
    if fault:
        return fault
    if (path / "manifest.json").exists():
        return "" if _is_manifest(head_of(path / "manifest.json")) else "its manifest.json is not that of a store"
    if any((path / name).exists() for name in JOURNALS):
        return ""
    if (path / "zarr.json").exists() and b'"streamsvm"' not in head_of(path / "zarr.json"):
        return "it is a Zarr array of another program"
    parts = next(path.glob("part-*.h5"), None)
    return "" if parts is None else f"it holds {parts.name} without a manifest or a journal"


def is_store(directory: Path) -> bool:
    """Return whether a directory is a committed store."""
    return _is_manifest(head_of(directory / "manifest.json"))


def _is_manifest(head: bytes) -> bool:
    return re.match(rb'\{"sha256":"[0-9a-f]{64}","manifest":\{"format":', head) is not None


def run_fault(path: Path) -> str:
    """Return why a path is not the folder of a run; empty if it is.

    A run writes its files into its folder beside others. So every file that has a name of a file of a run must be one.
    """
    fault = directory_fault(path)
    if fault or not any(path.iterdir()):
        return fault
    ours = [name for name in RUN_FILES if (path / name).exists()]
    for name in ours:
        if not _is_of_run(path / name):
            return f"its {name} is not that of a run"
    for model in path.glob("model*.ssvm"):
        if model_fault(model):
            return f"its {model.name} is not a model"
    embedding, checkpoint = path / "embedding.zarr", path / "checkpoint"
    if embedding.exists() and (fault := embedding_fault(embedding)):
        return f"its embedding.zarr is not one: {fault}"
    if checkpoint.exists() or checkpoint.is_symlink():
        return directory_fault(checkpoint) or foreign_file_fault(checkpoint, _CHECKPOINT)
    return "" if ours else "it holds files, but none of a run"


def _is_of_run(path: Path) -> bool:
    """Return whether a file was written by a run; it may be incomplete if the run was killed."""
    if path.is_symlink() or not path.is_file():
        return False
    head = head_of(path)
    if path.name == "events.jsonl":
        return not head or "event" in json_object(head.partition(b"\n")[0]) or b'{"event": "plan"' in head
    return any(key in head for key in (b'"solver"', b'"gap"', b'"rows"', b'"store"'))


def search_fault(path: Path) -> str:
    """Return why a path is not the folder of a search; empty if it is, or if it is empty."""
    fault = directory_fault(path)
    if fault or not any(path.iterdir()):
        return fault
    marks = {"journal.json": {"key", "cells"}, "table.json": {"best", "scores"}}
    ours = [name for name in marks if marks[name] <= json_object(head_of(path / name, MAX_JSON_BYTES)).keys()]
    if not ours and any(not name.startswith(".") for name in os.listdir(path)):
        return "it holds neither the table nor the journal of a search"
    return foreign_file_fault(path, _SEARCH)


def parts_fault(path: Path) -> str:
    """Return why a path is not a folder of parts; empty if it is."""
    return directory_fault(path) or foreign_file_fault(path, _PARTS)


_DECISIONS = re.compile(r"-?(?:\d+\.\d+|\d+(?:\.\d+)?e[+-]\d+)(?:,-?(?:\d+\.\d+|\d+(?:\.\d+)?e[+-]\d+))*")
_LABELS, _VALUES = ("predicted_label", "prediction", "proved"), ("decision_", "probability_", "low_", "high_")
_VERDICTS = {"yes", "no", "open"}
"""Column names of predicted labels and numbers, and prefixes of columns with a value for each class."""
_FULL_PRECISION_CHARACTERS = 15
"""A column is taken for one of ours if its longest number has at least this many characters, since other programs mostly round."""


def model_fault(path: Path) -> str:
    """Return why a path is not a model; empty if it is."""
    if not path.is_file():
        return "it is not a regular file"
    length = int.from_bytes(head_of(path, 8), "little")
    if not 0 < length <= MAX_JSON_BYTES:
        return "it does not begin like one"
    metadata = json_object(head_of(path, 8 + length)[8:]).get("__metadata__")
    header = json_object(metadata.get("header", "")) if isinstance(metadata, dict) else {}
    return "" if {"format", "kind", "classes"} <= header.keys() else "it does not begin like one"


def header_fault(path: Path, header: bytes) -> str:
    """Return why a path is not a file that begins with ``header``; empty if it is."""
    if not path.is_file():
        return "it is not a regular file"
    return "" if head_of(path).startswith(header) else "it does not begin like one"


def array_fault(path: Path) -> str:
    """Return why a path is not an array that this package wrote, recognized by the padding of its header (``durable.npy_header``)."""
    if not path.is_file():
        return "it is not a regular file"
    return (
        "" if is_npy_of_ours(head_of(path)) or not path.stat().st_size else "it is an array of another program, or none"
    )


def predictions_fault(path: Path) -> str:
    """Return why a path is not a file of predictions in the format of its suffix; empty if it is."""
    if path.suffix in (".npy", ".parquet"):
        return array_fault(path) if path.suffix == ".npy" else parquet_fault(path)
    if not path.is_file():
        return "it is not a regular file"
    lines = head_of(path).decode("utf-8", "replace").splitlines()
    if not lines:
        return "" if not path.stat().st_size else "it cannot be read"
    if path.suffix == ".csv":
        return "" if _is_header(lines[0]) else "its first line is not a header of predictions"
    if path.suffix != ".txt":
        return "it has another name"
    return "" if _is_column(lines[:-1] or lines) else "it does not look like one prediction a line"


def parquet_fault(path: Path) -> str:
    """Return why a path is not a Parquet file of predictions, recognized by the metadata at its end."""
    if not path.is_file():
        return "it is not a regular file"
    return "" if b"streamsvm.predictions" in tail_of(path) else "it is a Parquet file of another program, or none"


def _is_header(header: str) -> bool:
    """Return whether a line is a header of predictions, after the column of ids if rows have any."""
    names = next(csv.reader([header]), [])
    ours = [name in _LABELS or name.startswith(_VALUES) for name in names]
    return header == "label" or (bool(ours) and all(ours[1:]) and (ours[0] or len(ours) > 1))


def _is_column(lines: list[str]) -> bool:
    """Return whether lines can be predictions without a header: labels of a few classes, numbers, or both."""
    columns = list(zip(*csv.reader(lines), strict=False))
    labels = [column for column in columns if not all(map(_DECISIONS.fullmatch, column))]
    if len(labels) > 1:  # beside labels, whether they are proved
        columns = [column for column in columns if not _VERDICTS.issuperset(column)]
        labels = [column for column in labels if column in columns]
    if len(columns) == 1 or not labels:
        return not labels or (_are_few(labels[0]) and not any(re.search(r"[\s,;=:]", line) for line in lines))
    numbers = [column for column in columns if column not in labels]
    return (
        len(labels) == 1
        and _are_few(labels[0])
        and all(max(map(len, column)) >= _FULL_PRECISION_CHARACTERS for column in numbers)
    )


def _are_few(labels: tuple[str, ...]) -> bool:
    return len(set(labels)) <= max(16, len(labels) // 2)


def pickle_fault(path: Path) -> str:
    """Return why a path is not a pickle of an object of scikit-learn; empty if it is. Nothing in it is executed."""
    return "" if re.match(_PICKLE, head_of(path, 64), re.DOTALL) else "its beginning is another"


def skops_fault(path: Path) -> str:
    """Return why a path is not a file that skops wrote; empty if it is."""
    ours = head_of(path, 4) == b"PK\x03\x04" and b"schema.json" in tail_of(path)
    return "" if ours else "it is none of skops"


ANY_STORE = Kind("a store", any_store_fault)
STORE = Kind("a store", store_fault)
EMBEDDING = Kind("an embedding", embedding_fault)
MODEL = Kind("a model", model_fault)
RUN = Kind("the folder of a run", run_fault)
SEARCH = Kind("the folder of a search", search_fault)
PREDICTIONS = Kind("a file of predictions", predictions_fault)
ARRAY = Kind("an array of dual variables", array_fault)
REJECTS = kind_by_header("a list of rejected lines", REJECTS_HEADER)
RECEIPT = kind_by_header("a receipt of forgotten rows", RECEIPT_HEADER)
PAGE = kind_by_header("the page of a run", PAGE_HEADER)
SCHEMA = kind_by_header("a schema file", SCHEMA_HEADER)
LIBLINEAR_MODEL = kind_by_header("a model of LIBLINEAR", b"solver_type ")
LIBSVM_MODEL = kind_by_header("a model of LIBSVM", b"svm_type ")
RATING_TABLE_FILE = kind_by_header(
    "a rating table of ours", b"outcome,feature,column,value,from,to,effect_from,effect_to"
)
ONNX_MODEL = kind_by_header("an ONNX graph of ours", b"\x08\x08\x12\x09streamsvm")
SQL_MODEL = kind_by_header("a SQL query of ours", b"-- A linear model of streamsvm")
PICKLE = Kind("a pickle of an estimator of scikit-learn", pickle_fault)
SKOPS = Kind("an estimator stored by skops", skops_fault)
PARTS = Kind("the parts of an unfinished output", parts_fault)


# -- reading foreign files with care -----------------------------------------------------------------------------------


HEAD_BYTES = 1 << 16
"""Bytes of the beginning or the end of a file that are read to recognize it."""
MAX_JSON_BYTES = 100 << 20
"""Maximum size of a JSON text that is read."""


def directory_fault(path: Path) -> str:
    """Return why a path is not a directory; empty if it is. A link to a directory does not count as one."""
    return "" if path.is_dir() and not path.is_symlink() else "it is not a directory"


def foreign_file_fault(directory: Path, ours: re.Pattern[str]) -> str:
    """Return a message about the first file below a directory whose name does not match ``ours``; empty if all match."""
    for name in list_below(directory):
        if not ours.fullmatch(name):
            return f"it holds {name!a}, which is not one of its files"
    return ""


def list_below(directory: Path, prefix: str = "") -> Iterator[str]:
    """Yield every file, link and empty directory below a directory, by its relative name; links are not followed."""
    with os.scandir(directory) as entries:
        for entry in entries:
            name = prefix + entry.name
            if entry.is_symlink():
                yield name + " (a link)"
            elif entry.is_dir():
                yield from list_below(directory / entry.name, name + "/")
            elif entry.is_file():
                yield name
            else:
                yield name + " (no regular file)"


def head_of(path: Path, nbytes: int = HEAD_BYTES) -> bytes:
    """Return the first bytes of a regular file; empty if it is not regular or cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return b""
    with open(descriptor, "rb") as file:
        return file.read(nbytes) if path.is_file() else b""


def tail_of(path: Path, nbytes: int = HEAD_BYTES) -> bytes:
    """Return the last bytes of a regular file."""
    with open(path, "rb") as file:
        file.seek(max(0, path.stat().st_size - nbytes))
        return file.read(nbytes)


def json_object(text: bytes | str) -> JsonObject:
    """Return the object in a JSON text; an empty object if the text is not one."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
