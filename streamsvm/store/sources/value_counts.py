"""A census of all rows of a table: the distinct values of categories, and the rows in which a word occurs."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from streamsvm.errors import BudgetError, DataError, quote
from streamsvm.store.format.labels import similar_texts
from streamsvm.store.sources.cell_parsing import Arrow, to_canonical_text
from streamsvm.store.sources.schema import CATEGORY, OTHER, TEXT, Column, Schema, shell_word
from streamsvm.store.sources.text_features import DocumentCounts, distinct_texts, terms_of

TEXT_BYTES = 40
"""Bytes of memory for each feature column of text: its count, its weight, and a copy of both while they are made."""
MOST_CATEGORIES = 10_000
"""The most distinct values that are counted for a column."""
ALMOST_UNIQUE = 0.9
"""Above this share of distinct values a column names rows instead of describing them."""
LEAST_ROWS = 100
"""The least rows that say whether nearly every row has another value."""


@dataclass(slots=True)
class ValueCensus:
    """The distinct values of a column, counted until they are too many."""

    counts: dict[str, int] = field(default_factory=dict)
    rows: int = 0
    """Rows that have a value."""
    full: bool = False
    """Whether some values are left out of ``counts``."""
    unasked: bool = False
    """Whether it became a category without being asked."""
    unique: bool = False
    """Whether almost every row has another value."""

    def values(self, min_count: int) -> tuple[str, ...]:
        """Return the values that at least ``min_count`` rows have, sorted, and ``OTHER`` where there are rarer ones."""
        frequent = sorted(text for text, count in self.counts.items() if count >= min_count)
        return (*frequent, OTHER) if len(frequent) < len(self.counts) else tuple(frequent)

    def describe(self) -> str:
        """Return the number of values and rows, in words."""
        return f"{'more than ' if self.full else ''}{len(self.counts)} values in {self.rows} rows"

    def add(self, text: str, count: int) -> None:
        """Count a value that so many more rows have."""
        if text not in self.counts and len(self.counts) == MOST_CATEGORIES:
            self.unique = self.unique or (not self.full and MOST_CATEGORIES > ALMOST_UNIQUE * self.rows)
            self.full = True
        if text in self.counts or not self.full:
            self.counts[text] = self.counts.get(text, 0) + count
        self.rows += count

    def close(self) -> None:
        """Decide, once all rows are counted, whether almost every row has another value."""
        if not self.full:
            self.unique = self.rows >= LEAST_ROWS and len(self.counts) > ALMOST_UNIQUE * self.rows


@dataclass(slots=True)
class TableCensus:
    """What must be known of all rows of a table before the first is encoded."""

    values: dict[str, ValueCensus]
    """The distinct values of each column of categories, by name."""
    documents: dict[str, DocumentCounts]
    """For each column of text, the number of rows in which each of its feature columns is not 0."""
    texts: tuple[Column, ...] = ()
    names: tuple[str, ...] = ()
    """The columns of the table that it reads; empty where there is nothing to count."""

    def count(self, batch: pa.RecordBatch, where: str) -> None:
        """Count some rows. Raises DataError E-LIMIT when a column of categories that was asked for has too many."""
        for name, census in self.values.items():
            _count_values(census, batch.column(name), name, where)
        for column in self.texts:
            texts, rows = distinct_texts(batch.column(column.name))
            times = np.bincount(rows[rows >= 0], minlength=len(texts))
            self.documents[column.name] = self.documents[column.name].add(terms_of(texts, column), times)

    def close(self) -> None:
        """Decide, once all rows are counted, which columns have another value in almost every row."""
        for census in self.values.values():
            census.close()


def note_alike(schema: Schema, notices: dict[str, int]) -> None:
    """Count in ``notices`` the values of each category that differ by case or by the blanks around them only."""
    for column in schema.columns:
        if column.kind == CATEGORY and not column.parts and (same := similar_texts(column.values)):
            shown = ", ".join(quote(text, 24) for text in same[:6])
            notices[f"values of {quote(column.name)} differ by case or blanks only: {shown}"] = len(same)


def new_census(schema: Schema, memory_limit: int | None = None) -> TableCensus:
    """Return an empty census of the columns of a schema that need one. Raises BudgetError when the columns of text need
    more bytes than ``memory_limit``.
    """
    needed = TEXT_BYTES * sum(c.width for c in schema.columns if c.kind == TEXT)
    if memory_limit is not None and needed > memory_limit:
        found = f"columns of text need about {needed >> 20}MiB for their counts, {memory_limit >> 20}MiB are left"
        more = (needed - memory_limit >> 20) + 1
        raise BudgetError(found, hint=f"pass a smaller --text-bits, or give {more}MiB more with --memory")
    counted = [c for c in schema.columns if c.kind in (CATEGORY, TEXT)]
    texts = tuple(c for c in counted if c.kind == TEXT)
    return TableCensus(
        {c.name: ValueCensus(unasked=c.unasked) for c in counted if c.kind == CATEGORY},
        {c.name: DocumentCounts(0, np.zeros(c.width, np.uint32)) for c in texts},
        texts,
        tuple(dict.fromkeys(name for c in counted for name in c.sources)),
    )


def _count_values(census: ValueCensus, values: Arrow, name: str, where: str) -> None:
    counted = values.value_counts()
    texts = to_canonical_text(counted.field("values")).to_pylist()
    for text, count in zip(texts, counted.field("counts").to_pylist(), strict=True):
        if text is not None:
            census.add(text, count)
    if census.full and not census.unasked:
        many = f"column {quote(name)} of {where} has more than {MOST_CATEGORIES} distinct values"
        hint = f"hash it with --column {shell_word(name)}=hash, or leave it out with --drop {shell_word(name)}"
        raise DataError(many, code="E-LIMIT", hint=hint)
