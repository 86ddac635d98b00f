"""Counts over all rows of a table: the distinct values of categories, and the rows in which a word occurs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from streamsvm.errors import BudgetError, DataError, quote
from streamsvm.store.format.labels import similar_texts
from streamsvm.store.sources.cell_parsing import Arrow, null_out_nan, to_canonical_text
from streamsvm.store.sources.schema import CATEGORY, HASHED, OTHER, TEXT, Column, Schema, most_frequent, shell_word
from streamsvm.store.sources.text_features import DocumentCounts, distinct_texts, terms_of

TEXT_BYTES = 40
"""Bytes of memory per feature column of text: its count, its weight, and copies of both while they are computed."""
MOST_CATEGORIES = 10_000
"""The most distinct values that are counted per column."""
ALMOST_UNIQUE = 0.9
"""The number of distinct values per row above which a column is taken for ids of rows."""
LEAST_ROWS = 100
"""The least number of rows from which a column may be taken for ids."""


@dataclass(slots=True)
class ValueCensus:
    """The distinct values of a column, counted until they are too many."""

    counts: dict[str, int] = field(default_factory=dict)
    rows: int = 0
    """The number of rows with a value."""
    full: bool = False
    """Whether there are more values than ``counts`` holds."""
    unasked: bool = False
    """Whether the column was made a category automatically, not by an option."""
    unique: bool = False
    """Whether almost every row has a different value; set by ``close``."""

    def values(self, min_count: int) -> tuple[str, ...]:
        """Return the sorted values that at least ``min_count`` rows have, followed by ``OTHER`` if there are rarer
        ones.
        """
        frequent = sorted(text for text, count in self.counts.items() if count >= min_count)
        return (*frequent, OTHER) if len(frequent) < len(self.counts) else tuple(frequent)

    def describe(self) -> str:
        """Return the number of values and rows, in words."""
        return f"{'more than ' if self.full else ''}{len(self.counts)} values in {self.rows} rows"

    def add(self, text: str, count: int) -> None:
        """Count ``count`` more rows with a value."""
        if text not in self.counts and len(self.counts) == MOST_CATEGORIES:
            self.unique = self.unique or (not self.full and MOST_CATEGORIES > ALMOST_UNIQUE * self.rows)
            self.full = True
        if text in self.counts or not self.full:
            self.counts[text] = self.counts.get(text, 0) + count
        self.rows += count

    def close(self) -> None:
        """Set ``unique`` once all rows are counted."""
        if not self.full:
            self.unique = self.rows >= LEAST_ROWS and len(self.counts) > ALMOST_UNIQUE * self.rows


@dataclass(slots=True)
class TableCensus:
    """The counts over all rows of a table that are needed before the first row can be encoded."""

    values: dict[str, ValueCensus]
    """The distinct values of each column of categories, by name."""
    documents: dict[str, DocumentCounts]
    """The number of rows in which each feature column is not 0, by column of text."""
    texts: tuple[Column, ...] = ()
    names: tuple[str, ...] = ()
    """The columns of the table that are counted; empty if nothing has to be counted."""

    def count(self, batch: pa.RecordBatch, where: str) -> None:
        """Count a batch of rows. Raises DataError E-LIMIT if a category that options name has too many values."""
        for name, census in self.values.items():
            _count_values(census, batch.column(name), name, where)
        for column in self.texts:
            texts, rows = distinct_texts(batch.column(column.name))
            times = np.bincount(rows[rows >= 0], minlength=len(texts))
            self.documents[column.name] = self.documents[column.name].add(terms_of(texts, column), times)

    def close(self) -> None:
        """Set, once all rows are counted, which columns have a different value in almost every row."""
        for census in self.values.values():
            census.close()


def note_similar_values(schema: Schema, notices: dict[str, int]) -> None:
    """Add a notice for each category whose values differ only by case or by blanks."""
    for column in schema.columns:
        if column.kind == CATEGORY and not column.parts and (similar := similar_texts(column.values)):
            shown = ", ".join(quote(text, 24) for text in similar[:6])
            notices[f"values of {quote(column.name)} differ by case or blanks only: {shown}"] = len(similar)


def count_first_values(schema: Schema, samples: Mapping[str, Arrow]) -> dict[str, tuple[str, ...]]:
    """Return the most frequent values of hashed columns in the first rows, by column; of a cross none."""
    found = {}
    for column in schema.columns:
        if column.kind == HASHED and not column.parts and column.name in samples:
            counted = null_out_nan(samples[column.name]).drop_null().value_counts()
            texts = to_canonical_text(counted.field("values")).to_pylist()
            counts = dict(zip(texts, counted.field("counts").to_pylist(), strict=True))
            found[column.name] = most_frequent(counts)
    return found


def new_census(schema: Schema, memory_limit: int | None = None) -> TableCensus:
    """Return an empty census for a schema. Raises BudgetError if the counts of its columns of text take more bytes than
    ``memory_limit``.
    """
    needed = TEXT_BYTES * sum(c.width for c in schema.columns if c.kind == TEXT)
    if memory_limit is not None and needed > memory_limit:
        message = f"columns of text need about {needed >> 20}MiB for their counts, {memory_limit >> 20}MiB are left"
        more = (needed - memory_limit >> 20) + 1
        raise BudgetError(message, hint=f"pass a smaller --text-bits, or give {more}MiB more with --memory")
    counted = [c for c in schema.columns if c.kind in (CATEGORY, TEXT)]
    texts = tuple(c for c in counted if c.kind == TEXT)
    return TableCensus(
        {c.name: ValueCensus(unasked=c.unasked) for c in counted if c.kind == CATEGORY},
        {c.name: DocumentCounts(0, np.zeros(c.width, np.uint32)) for c in texts},
        texts,
        tuple(dict.fromkeys(name for c in counted for name in c.sources)),
    )


def _count_values(census: ValueCensus, values: Arrow, name: str, where: str) -> None:
    counted = null_out_nan(values).value_counts()
    texts = to_canonical_text(counted.field("values")).to_pylist()
    for text, count in zip(texts, counted.field("counts").to_pylist(), strict=True):
        if text is not None:
            census.add(text, count)
    if census.full and not census.unasked:
        message = f"column {quote(name)} of {where} has more than {MOST_CATEGORIES} distinct values"
        hint = f"hash it with --column {shell_word(name)}=hash, or leave it out with --drop {shell_word(name)}"
        raise DataError(message, code="E-LIMIT", hint=hint)
