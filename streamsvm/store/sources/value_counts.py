"""Count the distinct values of categories, and the rows in which each word occurs, over all rows of a table."""

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

BYTES_PER_TEXT_FEATURE = 40
"""Bytes of memory per feature of a column of text: its count, its weight, and copies of both while they are computed."""
MAX_VALUES_COUNTED = 10_000
"""Values of a column beyond this number of distinct ones are not counted."""
MIN_ID_SHARE = 0.9
"""A column with more distinct values per row than this is taken for ids of rows."""
MIN_ROWS_FOR_IDS = 100
"""In fewer rows, no column is taken for ids."""


@dataclass(slots=True)
class ValueCensus:
    """The distinct values of a column; counting stops when there are too many."""

    counts: dict[str, int] = field(default_factory=dict)
    rows: int = 0
    """The number of rows with a value."""
    is_full: bool = False
    """Whether there are more values than ``counts`` holds."""
    unasked: bool = False
    """Whether no option made the column a category: it was decided automatically."""
    is_almost_unique: bool = False
    """Whether almost every row has a different value; set by ``finish``."""

    def values(self, min_count: int) -> tuple[str, ...]:
        """Return the sorted values that at least ``min_count`` rows have, followed by ``OTHER`` if there are rarer
        ones.
        """
        frequent = sorted(text for text, count in self.counts.items() if count >= min_count)
        return (*frequent, OTHER) if len(frequent) < len(self.counts) else tuple(frequent)

    def describe(self) -> str:
        """Return the number of values and rows, in words."""
        return f"{'more than ' if self.is_full else ''}{len(self.counts)} values in {self.rows} rows"

    def add(self, text: str, count: int) -> None:
        """Count ``count`` more rows with a value."""
        if text not in self.counts and len(self.counts) == MAX_VALUES_COUNTED:
            self.is_almost_unique = self.is_almost_unique or (
                not self.is_full and MAX_VALUES_COUNTED > MIN_ID_SHARE * self.rows
            )
            self.is_full = True
        if text in self.counts or not self.is_full:
            self.counts[text] = self.counts.get(text, 0) + count
        self.rows += count

    def finish(self) -> None:
        """Set ``is_almost_unique``; called when all rows are counted."""
        if not self.is_full:
            self.is_almost_unique = self.rows >= MIN_ROWS_FOR_IDS and len(self.counts) > MIN_ID_SHARE * self.rows


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

    def finish(self) -> None:
        """Set for each column whether almost every row has a different value; called when all rows are counted."""
        for census in self.values.values():
            census.finish()


def note_similar_values(schema: Schema, notices: dict[str, int]) -> None:
    """Add a notice for each category whose values differ only by case or by blanks."""
    for column in schema.columns:
        if column.kind == CATEGORY and not column.parts and (similar := similar_texts(column.values)):
            shown = ", ".join(quote(text, 24) for text in similar[:6])
            notices[f"values of {quote(column.name)} differ by case or blanks only: {shown}"] = len(similar)


def count_first_values(schema: Schema, samples: Mapping[str, Arrow]) -> dict[str, tuple[str, ...]]:
    """Return the most frequent values of hashed columns in the first rows, by column; crosses are left out."""
    frequent = {}
    for column in schema.columns:
        if column.kind == HASHED and not column.parts and column.name in samples:
            counted = null_out_nan(samples[column.name]).drop_null().value_counts()
            texts = to_canonical_text(counted.field("values")).to_pylist()
            counts = dict(zip(texts, counted.field("counts").to_pylist(), strict=True))
            frequent[column.name] = most_frequent(counts)
    return frequent


def new_census(schema: Schema, memory_limit: int | None = None) -> TableCensus:
    """Return an empty census for a schema. Raises BudgetError if the counts of its columns of text take more bytes than
    ``memory_limit``.
    """
    needed = BYTES_PER_TEXT_FEATURE * sum(c.width for c in schema.columns if c.kind == TEXT)
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
    if census.is_full and not census.unasked:
        message = f"column {quote(name)} of {where} has more than {MAX_VALUES_COUNTED} distinct values"
        hint = f"hash it with --column {shell_word(name)}=hash, or leave it out with --drop {shell_word(name)}"
        raise DataError(message, code="E-LIMIT", hint=hint)
