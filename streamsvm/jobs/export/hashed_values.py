"""Read the distinct values of the hashed columns of a table, for programs that cannot compute the hash."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from streamsvm.errors import UsageError, quote
from streamsvm.jobs.apply.rows import FileRequest, is_store, locate_data, source_options
from streamsvm.model import Model
from streamsvm.store.sources import open_source
from streamsvm.store.sources.table import TableSource

MAX_VALUES = 100_000
"""The most distinct values of all hashed columns together; a query lists each of them."""
MAX_CHARACTERS = 16 << 20
"""The most characters of these values."""


def read_hashed_values(model: Model, columns: Sequence[str], path: str) -> dict[str, tuple[str, ...]]:
    """Return the distinct texts of each of the hashed ``columns``, as they are hashed, in the order of the rows.

    ``path``: a file, a folder or a pattern; files are read as ``predict`` reads them. Memory is bounded by the limits and one
    batch. Raises UsageError for a model without hashed columns, for a store, and for more values than a query can list;
    DataError, MissingError.
    """
    if not columns:
        raise UsageError("--values-from is for hashed columns, and the model has none", hint="leave it out")
    files = locate_data([path])
    if is_store(Path(files[0])):
        raise UsageError(
            f"--values-from {path} is a store, which has hashes in place of values",
            hint="name the files that the store was made of",
        )
    source = open_source(files, source_options(model, FileRequest({"unlabeled": True})))
    assert isinstance(source, TableSource)  # a model with hashed columns reads tables alone
    values: dict[str, dict[str, None]] = {name: {} for name in columns}
    characters = 0
    with closing(source.hashed_texts(columns)) as batches:
        for name, texts in batches:
            new = dict.fromkeys(text for text in texts if text not in values[name])
            values[name] |= new
            characters += sum(map(len, new))
            _check_size(values, characters)
    return {name: tuple(texts) for name, texts in values.items()}


def _check_size(values: dict[str, dict[str, None]], characters: int) -> None:
    """Raise UsageError for more values than a query can list, or more characters in all of them."""
    count = sum(map(len, values.values()))
    if count <= MAX_VALUES and characters <= MAX_CHARACTERS:
        return
    if count > MAX_VALUES:
        limit, largest = f"{MAX_VALUES:,} values", max(values, key=lambda name: len(values[name]))
    else:
        limit = f"{MAX_CHARACTERS:,} characters"
        largest = max(values, key=lambda name: sum(map(len, values[name])))
    raise UsageError(
        f"the hashed columns have more than {limit}, which is too many for a query (most of them in {quote(largest)})",
        hint="name a file with fewer rows, those whose values the query has to know, or use 'streamsvm predict'",
    )
