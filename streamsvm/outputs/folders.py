"""Which folders are ours as a whole: stores, embeddings, runs, searches and the parts of unfinished outputs."""

from __future__ import annotations

import os
import re
from pathlib import Path

from streamsvm.outputs.contents import LARGEST_JSON, foreign_file, head_of, json_object, no_directory
from streamsvm.outputs.files import model_fault

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


def store_fault(path: Path) -> str:
    """Return why a path is no store of rows that were ingested; empty where it is one."""
    fault = any_store_fault(path)
    if not fault and (path / MAP).exists():
        return "it is an embedding"
    return fault


def embedding_fault(path: Path) -> str:
    """Return why a path is no store of kernel features; empty where it is one."""
    fault = any_store_fault(path)
    if not fault and (path / "manifest.json").exists() and not (path / MAP).exists():
        return "it is a store of another kind, with rows that may be nowhere else"
    return fault


def any_store_fault(path: Path) -> str:
    """Return why a path is no store of either kind, nor the beginning of one; empty where it is."""
    fault = no_directory(path) or foreign_file(path, _STORE)
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
    """Whether a directory is a committed store of ours."""
    return _is_manifest(head_of(directory / "manifest.json"))


def _is_manifest(head: bytes) -> bool:
    return re.match(rb'\{"sha256":"[0-9a-f]{64}","manifest":\{"format":', head) is not None


RUN_FILES = ("plan.json", "certificate.json", "job.json", "events.jsonl", "record.json", "evaluation.json")
"""Files of a run that are told by what is in them."""


def run_fault(path: Path) -> str:
    """A run folder is added to: only the files of ours in it are replaced, and those must be ours."""
    fault = no_directory(path)
    if fault or not any(path.iterdir()):
        return fault
    ours = [name for name in RUN_FILES if (path / name).exists()]
    for name in ours:
        if not _of_run(path / name):
            return f"its {name} is not that of a run"
    for model in path.glob("model*.ssvm"):
        if model_fault(model):
            return f"its {model.name} is not a model"
    embedding, checkpoint = path / "embedding.zarr", path / "checkpoint"
    if embedding.exists() and (fault := embedding_fault(embedding)):
        return f"its embedding.zarr is not one: {fault}"
    if checkpoint.exists() or checkpoint.is_symlink():
        return no_directory(checkpoint) or foreign_file(checkpoint, _CHECKPOINT)
    return "" if ours else "it holds files, and none of a run"


def _of_run(path: Path) -> bool:
    """Whether a file is the record of a run, or what a run that was killed left of it."""
    if path.is_symlink() or not path.is_file():
        return False
    head = head_of(path)
    if path.name == "events.jsonl":
        return not head or "event" in json_object(head.partition(b"\n")[0]) or b'{"event": "plan"' in head
    return any(key in head for key in (b'"solver"', b'"gap"', b'"rows"', b'"store"'))


def search_fault(path: Path) -> str:
    """Return why a path is not the folder of a search; empty where it is one, or holds nothing."""
    fault = no_directory(path)
    if fault or not any(path.iterdir()):
        return fault
    marks = {"journal.json": {"key", "cells"}, "table.json": {"best", "scores"}}
    ours = [name for name in marks if marks[name] <= json_object(head_of(path / name, LARGEST_JSON)).keys()]
    if not ours and any(not name.startswith(".") for name in os.listdir(path)):
        return "it holds neither the table nor the journal of a search"
    return foreign_file(path, _SEARCH)


def parts_fault(path: Path) -> str:
    """Return why a path is no folder of parts; empty where it is one."""
    return no_directory(path) or foreign_file(path, _PARTS)
