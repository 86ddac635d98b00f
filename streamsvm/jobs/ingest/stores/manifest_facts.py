"""What a store records of its ingest: the sources, how they were read, and which rows were held out."""

from __future__ import annotations

from dataclasses import asdict

from streamsvm.aliases import JsonObject
from streamsvm.jobs.ingest.options import IngestJob
from streamsvm.store.format.labels import Census, Labels, label_type, type_to_record
from streamsvm.store.sources import Source, SourceFile
from streamsvm.store.sources.input import source_name
from streamsvm.store.sources.schema import schema_from


def manifest_facts(job: IngestJob, source: Source, rejected: int, coder: Labels) -> JsonObject:
    """Return the facts of a source that was read to its end, ``rejected`` lines of which were left out, as plain JSON."""
    encoding = source.encoding()
    kind = encoding.pop("label_type", "")  # of a table, whose column has a type
    if isinstance(coder, Census) and "schema" not in encoding and encoding["format"] != "svmlight":
        kind = label_type(next(iter(coder.kinds))) if len(coder.kinds) == 1 else ""
    type_of_labels = type_to_record(coder.table(), kind) if isinstance(coder, Census) else {}
    facts = {
        "names": None if source.names is None else list(source.names),
        "index_base": encoding.get("index_base"),
        "sources": [_recorded(file) for file in source.sources],
        "encoding": encoding,
        "labels": {"positive": job.positive, "threshold": job.label_threshold} | type_of_labels,
        "test": _test_facts(job),
        "notices": dict(source.notices),
        "shuffled": job.shuffle,
        "rejected": rejected,
    }
    if "schema" in encoding:
        facts["indicators"] = schema_from(encoding["schema"]).indicators
    if source.id_column is not None:
        facts["ids"] = {"column": source.id_column}
    return facts


def _test_facts(job: IngestJob) -> JsonObject:
    """How rows were held out."""
    asked = {"stratify": job.stratify, "by": job.split_by, "after": job.split_after}
    return {"fraction": job.test_fraction, "seed": job.seed, **{name: value for name, value in asked.items() if value}}


def _recorded(file: SourceFile) -> JsonObject:
    """A source as the manifest has it."""
    facts = {name: value for name, value in asdict(file).items() if name != "read"}
    return facts | {"name": source_name(file.name)}
