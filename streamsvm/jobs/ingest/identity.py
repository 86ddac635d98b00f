"""What an ingest is known by when it is gone on with: all that decides the bytes of the store, and nothing else."""

from __future__ import annotations

import json

import msgspec

from streamsvm.aliases import JsonObject
from streamsvm.config.fields import options_of
from streamsvm.jobs.ingest.options import IngestJob

ELSEWHERE = (
    "store",
    "test_store",
    "overwrite",
    "repair",
    "memory",
    "threads",
    "sources",
    "schema",
    "cluster",
    "insecure_network",
)
"""The fields of a job that say nothing of what the store will hold."""


def default_settings() -> JsonObject:
    """Return the settings that need not be given, as plain JSON."""
    found = {option.name: option.default for option in options_of(IngestJob) if not option.required}
    plain: JsonObject = json.loads(msgspec.json.encode(found, enc_hook=str))
    return {name: value for name, value in plain.items() if name not in ELSEWHERE}


def settings_of(job: IngestJob) -> JsonObject:
    """Return all that decides the bytes of the store, as plain JSON: settings, and the sources as the disk knows them."""
    plain: JsonObject = json.loads(json.dumps(msgspec.to_builtins(job, enc_hook=str)))
    settings = {name: value for name, value in plain.items() if name not in ELSEWHERE}
    settings["sources"] = [
        [path.name, found.st_size, found.st_mtime_ns]
        for path in job.sources
        if path.exists()
        for found in [path.stat()]
    ]
    return settings
