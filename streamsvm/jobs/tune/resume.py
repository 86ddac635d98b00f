"""Resume a search: the journal of finished cells, and the digest that tells whether it belongs to the same search."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import msgspec

from streamsvm import __version__, durable
from streamsvm.errors import DataError, ExistsError
from streamsvm.input_files import read_whole
from streamsvm.jobs.tune.options import TuneJob
from streamsvm.jobs.tune.results import Score
from streamsvm.store.write.writer import LARGEST_JOURNAL

JOURNAL = "journal.json"
MAY_DIFFER_ON_RESUME = (
    "store",
    "out",
    "memory",
    "time_limit",
    "threads",
    "prefetch",
    "disk_cache",
    "overwrite",
    "cluster",
    "insecure_network",
    "report",
)
"""Settings that do not affect the results, and may change when a search is resumed. Stores are compared by digest."""
KEYED_IF_GIVEN = (
    "standardize_all", "multi_class", "l1_ball", "l1", "free_bias", "one_class", "nu", "score", "search", "points", "refine", "regret",
)  # fmt: skip
"""Settings that are part of the digest of a search only if they were given."""


def write_search_journal(out: Path, key: str, done: list[list[Score]]) -> None:
    """Save the scores of the finished cells."""
    durable.write_file(out / JOURNAL, json.dumps({"key": key, "cells": done}).encode())


def digest_search(job: TuneJob, store: Any) -> str:
    """Return the sha256 of everything that affects the table: version, data and settings."""
    settings = {name: value for name, value in msgspec.to_builtins(job).items() if name not in MAY_DIFFER_ON_RESUME}
    settings = {name: value for name, value in settings.items() if name not in KEYED_IF_GIVEN or value is not None}
    if job.C is None and job.nu is None and not job.one_class:
        settings["C"] = [1.0]  # the default value of C for classification and regression
    return hashlib.sha256(json.dumps([__version__, store.digest, settings], sort_keys=True).encode()).hexdigest()


def read_search_journal(out: Path, key: str, *, overwrite: bool) -> list[list[Score]]:
    """Return the scores of the cells that an interrupted run of the same search has finished.

    Raises ExistsError if ``out`` has results of another search.
    """
    try:
        saved = json.loads(read_whole(out / JOURNAL, LARGEST_JOURNAL))
        if saved["key"] == key:
            return msgspec.convert(saved["cells"], list[list[Score]])
    except (OSError, ValueError, KeyError, TypeError, DataError, msgspec.ValidationError):
        saved = None
    has_files = out.exists() and any(
        not path.name.startswith(".") for path in out.iterdir()
    )  # names of unfinished files begin with a dot
    if has_files and not overwrite:
        hint = "run the original command again to continue it, pass --overwrite, or choose another name"
        raise ExistsError(f"{out} exists already", hint=hint)
    return []
