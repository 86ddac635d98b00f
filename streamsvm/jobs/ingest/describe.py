"""ingest --describe: what is in each column of a table and what would be done with it; nothing is stored."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path

from streamsvm.aliases import JsonObject
from streamsvm.errors import UsageError
from streamsvm.jobs import JobResult
from streamsvm.jobs.ingest.options import IngestJob
from streamsvm.jobs.ingest.preflight import memory_for_source
from streamsvm.jobs.ingest.schema_file import write_schema
from streamsvm.outputs import SCHEMA, Output, claim, output_path
from streamsvm.store.sources import open_source
from streamsvm.store.sources.description import ColumnDescription, TableLike, described
from streamsvm.store.sources.offsets import Centered, offsets_from


@dataclass(frozen=True, slots=True)
class DescribeResult(JobResult):
    """The columns of a table."""

    columns: tuple[ColumnDescription, ...]
    """Each column, in the order of the table."""
    schema_file: Path | None
    """Where what would be done was written; None where it was not."""

    def facts(self) -> JsonObject:
        """Return the result as JSON values."""
        path = None if self.schema_file is None else str(self.schema_file)
        return {"columns": [asdict(column) for column in self.columns], "schema_file": path}


def describe(job: IngestJob, write: Path | None = None) -> DescribeResult:
    """Read the sources of an ingest once and describe their columns; write a schema file where that is wanted.

    Raises UsageError for sources without named columns, what reading them raises, ExistsError.
    """
    job = job.with_schema()
    path = None if write is None else output_path(write)
    if path is not None:
        claim([Output(path, SCHEMA)], [*job.sources, job.schema], overwrite=job.overwrite)
    stated = job.options()
    options = replace(
        stated,
        label=stated.label or "none",
        missing="error",
        undecided={},
        memory_limit=memory_for_source(job.memory, job.chunk_bytes, 0, shuffle=False).limit,
    )
    opened = open_source(job.sources, options)
    source, offsets = (opened.source, opened.offsets) if isinstance(opened, Centered) else (opened, offsets_from(None))
    if not isinstance(source, TableLike):
        hint = "ingest it; 'streamsvm info STORE --columns' then shows the columns"
        raise UsageError("only the columns of tables (CSV, Parquet, JSON lines) are described", hint=hint)
    found = described(source, replace(options, missing=stated.missing, offsets=offsets.to_json()))
    if path is not None:
        write_schema(path, found)
    asked = (
        () if stated.label else ("no column is the label yet: name it with --label, or as 'label' in the schema file",)
    )
    return DescribeResult(tuple(found), path, notices=asked)
