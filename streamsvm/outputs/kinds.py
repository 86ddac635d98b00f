"""How an output of ours is recognized: by what is in it, never by its name alone.

A kind answers one question: what speaks against a path being one of our outputs of this kind? In doubt it is not: a
directory that holds a single file we do not write is not ours as a whole, whatever else it holds.
"""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from streamsvm.aliases import JsonObject
from streamsvm.durable import is_npy_of_ours

HEAD = 1 << 16
LARGEST_JSON = 100 << 20
REJECTS_HEADER = b"file\tline\tcode\treason\n"
SCHEMA_HEADER = b"# streamsvm: what becomes of each column of a table\n"
PAGE_HEADER = b"<!doctype html>\n<!-- made by streamsvm report -->\n"
MAP, JOURNALS = "map.safetensors", ("ingest.journal", "journal.json")
_PARTIAL = r"(?:.*/)?\.[^/]+\.partial(?:/.*)?"
_STORE = re.compile(
    r"manifest\.json|statistics\.safetensors|ingest\.journal|journal\.json|map\.safetensors|part-\d+\.h5|ids\.parquet"
    r"|(?:(?:X|y|weight)/(?:(?:data|indices|indptr)/)?)?(?:zarr\.json|c\.\d+(?:\.0)?)|" + _PARTIAL
)
_CHECKPOINT = re.compile(r"ckpt-[AB]|[a-z_]+(?:\.\d+)*|" + _PARTIAL)
_PARTS = re.compile(r"\.?\d{6}(?:\.[0-9a-f]{8})?\.zarr/(?:.*)")
_SEARCH = re.compile(
    r"journal\.json|table\.json|table\.csv|heatmap\.txt|heatmap\.png|\.cell-[^/]*/.*|embedding\.zarr/.*|[a-z_]+(?:\.\d+)*|"
    + _PARTIAL
)

_DECISIONS = re.compile(r"-?(?:\d+\.\d+|\d+(?:\.\d+)?e[+-]\d+)(?:,-?(?:\d+\.\d+|\d+(?:\.\d+)?e[+-]\d+))*")


class Kind(NamedTuple):
    """A kind of output: what people call it, and what speaks against an existing path being one ('' if nothing does)."""

    name: str
    """What messages call it."""
    fault: Callable[[Path], str]
    """Returns why a path is nothing of this kind; empty where it is one."""


def _no_directory(path: Path) -> str:
    return "" if path.is_dir() and not path.is_symlink() else "it is not a directory"


def _foreign(directory: Path, ours: re.Pattern[str]) -> str:
    """The first file below a directory that is not one of ours; '' when there is none."""
    for found in _below(directory):
        if not ours.fullmatch(found):
            return f"it holds {found!a}, which is none of its files"
    return ""


def _below(directory: Path, prefix: str = "") -> Iterator[str]:
    """Every file, link and empty directory below a directory, by its relative name; links are not followed."""
    with os.scandir(directory) as entries:
        for entry in entries:
            name = prefix + entry.name
            if entry.is_symlink():
                yield name + " (a link)"
            elif entry.is_dir():
                yield from _below(directory / entry.name, name + "/")
            elif entry.is_file():
                yield name
            else:
                yield name + " (no regular file)"


def _head(path: Path, nbytes: int = HEAD) -> bytes:
    """How a regular file begins; nothing of what is none, or cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return b""
    with open(descriptor, "rb") as file:
        return file.read(nbytes) if path.is_file() else b""


def _tail(path: Path, nbytes: int = HEAD) -> bytes:
    """How a regular file ends."""
    with open(path, "rb") as file:
        file.seek(max(0, path.stat().st_size - nbytes))
        return file.read(nbytes)


def _json(text: bytes | str) -> JsonObject:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


# -- stores -----------------------------------------------------------------------------------------------------------


def _store_fault(path: Path) -> str:
    fault = _any_store_fault(path)
    if not fault and (path / MAP).exists():
        return "it is an embedding"
    return fault


def _embedding_fault(path: Path) -> str:
    fault = _any_store_fault(path)
    if not fault and (path / "manifest.json").exists() and not (path / MAP).exists():
        return "it is a store of another kind, with rows that may be nowhere else"
    return fault


def _any_store_fault(path: Path) -> str:
    fault = _no_directory(path) or _foreign(path, _STORE)
    if fault:
        return fault
    if (path / "manifest.json").exists():
        return "" if _is_manifest(_head(path / "manifest.json")) else "its manifest.json is not that of a store"
    if any((path / name).exists() for name in JOURNALS):
        return ""
    if (path / "zarr.json").exists() and b'"streamsvm"' not in _head(path / "zarr.json"):
        return "it is a Zarr array of another program"
    parts = next(path.glob("part-*.h5"), None)
    return "" if parts is None else f"it holds {parts.name} without a manifest or a journal"


def is_store(directory: Path) -> bool:
    """Whether a directory is a committed store of ours."""
    return _is_manifest(_head(directory / "manifest.json"))


def _is_manifest(head: bytes) -> bool:
    return re.match(rb'\{"sha256":"[0-9a-f]{64}","manifest":\{"format":', head) is not None


# -- models and what stands beside them -------------------------------------------------------------------------------


def _model_fault(path: Path) -> str:
    if not path.is_file():
        return "it is not a regular file"
    length = int.from_bytes(_head(path, 8), "little")
    if not 0 < length <= LARGEST_JSON:
        return "it does not begin like one"
    metadata = _json(_head(path, 8 + length)[8:]).get("__metadata__")
    header = _json(metadata.get("header", "")) if isinstance(metadata, dict) else {}
    return "" if {"format", "kind", "classes"} <= header.keys() else "it does not begin like one"


RUN_FILES = ("plan.json", "certificate.json", "job.json", "events.jsonl", "record.json", "evaluation.json")
"""Files of a run that are told by what is in them."""


def _run_fault(path: Path) -> str:
    """A run folder is added to: only the files of ours in it are replaced, and those must be ours."""
    fault = _no_directory(path)
    if fault or not any(path.iterdir()):
        return fault
    ours = [name for name in RUN_FILES if (path / name).exists()]
    for name in ours:
        if not _of_run(path / name):
            return f"its {name} is not that of a run"
    for model in path.glob("model*.ssvm"):
        if _model_fault(model):
            return f"its {model.name} is not a model"
    embedding, checkpoint = path / "embedding.zarr", path / "checkpoint"
    if embedding.exists() and (fault := _embedding_fault(embedding)):
        return f"its embedding.zarr is not one: {fault}"
    if checkpoint.exists() or checkpoint.is_symlink():
        return _no_directory(checkpoint) or _foreign(checkpoint, _CHECKPOINT)
    return "" if ours else "it holds files, and none of a run"


def _of_run(path: Path) -> bool:
    """Whether a file is the record of a run, or what a run that was killed left of it."""
    if path.is_symlink() or not path.is_file():
        return False
    head = _head(path)
    if path.name == "events.jsonl":
        return not head or "event" in _json(head.partition(b"\n")[0]) or b'{"event": "plan"' in head
    return any(key in head for key in (b'"solver"', b'"gap"', b'"rows"', b'"store"'))


def _search_fault(path: Path) -> str:
    fault = _no_directory(path)
    if fault or not any(path.iterdir()):
        return fault
    marks = {"journal.json": {"key", "cells"}, "table.json": {"best", "scores"}}
    ours = [name for name in marks if marks[name] <= _json(_head(path / name, LARGEST_JSON)).keys()]
    if not ours and any(not name.startswith(".") for name in os.listdir(path)):
        return "it holds neither the table nor the journal of a search"
    return _foreign(path, _SEARCH)


def _parts_fault(path: Path) -> str:
    return _no_directory(path) or _foreign(path, _PARTS)


# -- single files -----------------------------------------------------------------------------------------------------


def begins(name: str, header: bytes) -> Kind:
    """Return the kind of files that begin with a header of ours; ``name`` is what messages call it."""

    def fault(path: Path) -> str:
        if not path.is_file():
            return "it is not a regular file"
        return "" if _head(path).startswith(header) else "it does not begin like one"

    return Kind(name, fault)


def _array_fault(path: Path) -> str:
    """An array is told from other people's by the padding of its header (``durable.npy_header``)."""
    if not path.is_file():
        return "it is not a regular file"
    return (
        "" if is_npy_of_ours(_head(path)) or not path.stat().st_size else "it is an array of another program, or none"
    )


def _predictions_fault(path: Path) -> str:
    if path.suffix in (".npy", ".parquet"):
        return _array_fault(path) if path.suffix == ".npy" else _parquet_fault(path)
    if not path.is_file():
        return "it is not a regular file"
    lines = _head(path).decode("utf-8", "replace").splitlines()
    if not lines:
        return "" if not path.stat().st_size else "it cannot be read"
    if path.suffix == ".csv":
        return "" if _is_header(lines[0]) else "its first line is not a header of predictions"
    if path.suffix != ".txt":
        return "it has another name"
    return "" if _is_column(lines[:-1] or lines) else "it does not look like one prediction a line"


def _parquet_fault(path: Path) -> str:
    """Parquet files of ours say so in their metadata, which stand at the end."""
    if not path.is_file():
        return "it is not a regular file"
    return "" if b"streamsvm.predictions" in _tail(path) else "it is a Parquet file of another program, or none"


def _is_header(header: str) -> bool:
    """Whether a line names what is predicted, after the column of the ids where rows have any."""
    names = next(csv.reader([header]), [])
    ours = [name == "predicted_label" or name.startswith("decision_") for name in names]
    return header == "label" or (bool(ours) and all(ours[1:]) and (ours[0] or len(ours) > 1))


def _is_column(lines: list[str]) -> bool:
    """Whether lines could be predictions without a header: labels of a few classes, or decision values."""
    if all(_DECISIONS.fullmatch(line) for line in lines):
        return True
    single = not any(re.search(r"[\s,;=:]", line) for line in lines)
    return single and len(set(lines)) <= max(16, len(lines) // 2)


ANY_STORE = Kind("a store", _any_store_fault)
STORE = Kind("a store", _store_fault)
EMBEDDING = Kind("an embedding", _embedding_fault)
MODEL = Kind("a model", _model_fault)
RUN = Kind("the folder of a run", _run_fault)
SEARCH = Kind("the folder of a search", _search_fault)
PREDICTIONS = Kind("a file of predictions", _predictions_fault)
ARRAY = Kind("an array of dual variables", _array_fault)
REJECTS = begins("a list of rejected lines", REJECTS_HEADER)
PAGE = begins("the page of a run", PAGE_HEADER)
SCHEMA = begins("a schema file", SCHEMA_HEADER)
LIBLINEAR_MODEL = begins("a model of LIBLINEAR", b"solver_type ")
LIBSVM_MODEL = begins("a model of LIBSVM", b"svm_type ")
ONNX_MODEL = begins("an ONNX graph of ours", b"\x08\x08\x12\x09streamsvm")
PARTS = Kind("the parts of an unfinished output", _parts_fault)
