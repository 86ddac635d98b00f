"""A schema file: TOML with one line per column and its kind, written by --write-schema, edited by people, and read by
--schema.

The kinds are those of --column, and 'label', 'id' and 'weight'.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from streamsvm import durable
from streamsvm.errors import ConfigError, MissingError, printable, quote
from streamsvm.input_files import is_folder, is_there, open_regular
from streamsvm.outputs import SCHEMA_HEADER
from streamsvm.store.sources.description import ColumnDescription

MAX_BYTES = 16 << 20
"""Number of bytes of a schema file that are read at most."""
ROLES = ("label", "id", "weight")
"""The kinds of columns that are no features. There is at most one column of each."""


class SchemaFile(NamedTuple):
    """The content of a schema file."""

    columns_as: tuple[str, ...]
    """The kinds of the feature columns, in the form of --column: NAME=KIND."""
    label: str | None
    """The column of labels."""
    id_column: str | None
    """The column of the ids of rows."""
    weight: str | None
    """The column of the weights of rows."""


def read_schema(path: Path) -> SchemaFile:
    """Read a schema file. Raises MissingError, and ConfigError if its content is not valid."""
    if not is_there(path) or is_folder(path):
        hint = "write one with: streamsvm ingest SOURCE --write-schema FILE"
        raise MissingError(f"there is no schema file at {path}", hint=hint)
    try:
        with open(open_regular(path, follow=True), "rb") as file:
            content = tomllib.loads(file.read(MAX_BYTES).decode())
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
            message = f"{path}: both {quote(roles[kind])} and {quote(name)} are the {kind}"
            raise ConfigError(message, hint="name one of them")
        if kind in ROLES:
            roles[kind] = name
    features = tuple(f"{name}={kind}" for name, kind in columns.items() if kind not in ROLES)
    return SchemaFile(features, roles.get("label"), roles.get("id"), roles.get("weight"))


def write_schema(path: Path, columns: Sequence[ColumnDescription]) -> None:
    """Write a schema file with the kinds that ``ingest`` would give the columns. Raises StorageError."""
    durable.write_file(path, (SCHEMA_HEADER.decode() + "\n".join(_lines(columns)) + "\n").encode())


def _lines(columns: Sequence[ColumnDescription]) -> Iterator[str]:
    yield "# Change the kinds, then: streamsvm ingest SOURCE STORE --schema THIS-FILE"
    yield "# kinds: number, amount, decimal-comma, boolean, date, date:FORM, epoch, category, hash, words, chars:2-4, vector,"
    yield "# drop; of one column each: label, id, weight"
    yield "[columns]"
    for column in columns:
        facts = [f"{100 * column.missing:.3g} % missing" if column.missing else "", f"{column.distinct} values"]
        facts += [f"{column.least} to {column.most}" if column.least else "", f"such as {quote(column.example, 40)}"]
        yield f"{json.dumps(column.name)} = {json.dumps(column.kind)}  # {printable(', '.join(filter(None, facts)))}"
