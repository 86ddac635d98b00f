"""ingest --describe: what is in each column of a table and what would be done with it; nothing is stored.

A schema file says what becomes of each column: written by --write-schema, edited by people, read by --schema. It is
TOML with one line a column, of the kinds --column has and 'label', 'id' and 'weight'.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from streamsvm import durable
from streamsvm.aliases import JsonObject
from streamsvm.errors import ConfigError, MissingError, UsageError, printable, quote
from streamsvm.jobs import JobResult
from streamsvm.jobs.ingest.job import IngestJob
from streamsvm.jobs.ingest.run import memory_for_source
from streamsvm.outputs import SCHEMA, SCHEMA_HEADER, Output, claim, output_path
from streamsvm.regular import is_folder, is_there, open_regular
from streamsvm.store.sources import open_source
from streamsvm.store.sources.description import ColumnDescription, describe_columns
from streamsvm.store.sources.table import TableSource

if TYPE_CHECKING:
    from streamsvm.store.sources.description import ColumnDescription


LARGEST = 16 << 20
"""Bytes of a schema file."""
ROLES = ("label", "id", "weight")
"""The kinds of columns that are no features, and of which there is at most one."""


@dataclass(frozen=True, slots=True, repr=False)
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
    source = open_source(job.sources, options)
    if not isinstance(source, TableSource):
        hint = "ingest it; 'streamsvm info STORE --columns' then shows the columns"
        raise UsageError("only the columns of tables (CSV, Parquet, JSON lines) are described", hint=hint)
    offsets = source.encoding().get("offsets", ())
    found = describe_columns(source, replace(options, missing=stated.missing, offsets=offsets))
    if path is not None:
        write_schema(path, found)
    asked = (
        () if stated.label else ("no column is the label yet: name it with --label, or as 'label' in the schema file",)
    )
    return DescribeResult(tuple(found), path, notices=asked)


class SchemaFile(NamedTuple):
    """What a schema file says."""

    columns_as: tuple[str, ...]
    """What columns hold, as --column says it."""
    label: str | None
    """The column of labels."""
    id_column: str | None
    """The column of the ids of rows."""
    weight: str | None
    """The column of the weights of rows."""


def write_schema(path: Path, columns: Sequence[ColumnDescription]) -> None:
    """Write what would be done with each column. Raises StorageError."""
    durable.write_file(path, (SCHEMA_HEADER.decode() + "\n".join(_lines(columns)) + "\n").encode())


def _lines(columns: Sequence[ColumnDescription]) -> Iterator[str]:
    yield "# Change the kinds, then: streamsvm ingest SOURCE STORE --schema THIS-FILE"
    yield "# kinds: number, amount, decimal-comma, boolean, date, date:FORM, epoch, category, hash, words, chars:2-4, drop;"
    yield "# of one column each: label, id, weight"
    yield "[columns]"
    for column in columns:
        facts = [f"{100 * column.missing:.3g} % missing" if column.missing else "", f"{column.distinct} values"]
        facts += [f"{column.least} to {column.most}" if column.least else "", f"such as {quote(column.example, 40)}"]
        yield f"{json.dumps(column.name)} = {json.dumps(column.kind)}  # {printable(', '.join(filter(None, facts)))}"


def read_schema(path: Path) -> SchemaFile:
    """Read a schema file. Raises MissingError, ConfigError with what is wrong."""
    if not is_there(path) or is_folder(path):
        hint = "write one with: streamsvm ingest SOURCE --write-schema FILE"
        raise MissingError(f"there is no schema file at {path}", hint=hint)
    try:
        with open(open_regular(path, follow=True), "rb") as file:
            content = tomllib.loads(file.read(LARGEST).decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path} is not TOML: {error}", hint="fix that line") from error
    columns = content.get("columns")
    if not isinstance(columns, dict) or not all(isinstance(kind, str) for kind in columns.values()):
        raise ConfigError(
            f"{path} has no table [columns] of kinds by name", hint='write lines such as "age" = "number"'
        )
    roles: dict[str, str] = {}
    for name, kind in columns.items():
        if kind in ROLES and kind in roles:
            found = f"{path}: both {quote(roles[kind])} and {quote(name)} are the {kind}"
            raise ConfigError(found, hint="name one of them")
        if kind in ROLES:
            roles[kind] = name
    features = tuple(f"{name}={kind}" for name, kind in columns.items() if kind not in ROLES)
    return SchemaFile(features, roles.get("label"), roles.get("id"), roles.get("weight"))
