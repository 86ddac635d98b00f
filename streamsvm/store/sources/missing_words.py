"""Words that stand for a missing value, as people and programs write them, and tables with null in their place."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamsvm.store.sources.cells import Arrow, is_text

WORDS = (
    *("", "NA", "N/A", "n/a", "<NA>", "NULL", "null", "None", "?", r"\N"),
    *("NaN", "nan", "-NaN", "-nan", "1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN"),
    *("#N/A", "#NA", "#N/A N/A", "#DIV/0!", "#VALUE!", "#REF!", "#NUM!", "#NULL!", "#NAME?"),
)
"""Words for a missing value in every column, from databases, statistics programs and spreadsheets."""
NUMBER_WORDS = ("-", "--", ".", "..", "na", "none")
"""Words for a missing value in columns of numbers, amounts, dates, yes and no; in text they are ordinary values."""
_NOT_A_NUMBER = re.compile(r"[+-]?nan", re.IGNORECASE | re.ASCII)


class MissingWords(NamedTuple):
    """The words for a missing value in the files of one source."""

    given: tuple[str, ...] = ()
    """Words that the user added."""

    @property
    def in_text(self) -> tuple[str, ...]:
        """The words in columns of text."""
        return (*WORDS, *self.given)

    @property
    def in_numbers(self) -> tuple[str, ...]:
        """The words in columns of numbers, amounts, dates, yes and no."""
        return (*WORDS, *NUMBER_WORDS, *self.given)

    @property
    def values(self) -> tuple[float, ...]:
        """The numbers among the words that the user added: -999 also stands for -999.0."""
        return tuple(number for number in map(_number, self.given) if number is not None)

    def has(self, text: str, *, number: bool) -> bool:
        """Return whether a text without blanks around it is one of them; ``number``: in a column of numbers."""
        if not number:
            return text in self.in_text
        return text in self.in_numbers or bool(_NOT_A_NUMBER.fullmatch(text)) or _number(text) in self.values

    def remove(self, values: Arrow, *, number: bool) -> Arrow:
        """Return a column with null in place of each word, blanks apart; ``number``: a column of numbers."""
        if is_text(values.type):
            return _without_texts(values, pa.array(self.in_numbers if number else self.in_text, pa.string()))
        return self.remove_numbers(values) if number else values

    def remove_numbers(self, values: Arrow) -> Arrow:
        """Return a column of numbers with null for the numbers that the user added."""
        if not self.values or not (pa.types.is_floating(values.type) or pa.types.is_integer(values.type)):
            return values
        found = values.cast(pa.float64(), safe=False)
        wrong = np.isin(found.to_numpy(zero_copy_only=False), self._as_read(values.type))
        return pc.if_else(pa.array(wrong), pa.scalar(None, values.type), values) if wrong.any() else values

    def _as_read(self, kind: pa.DataType) -> Sequence[float]:
        return [float(np.float32(value)) if pa.types.is_float32(kind) else value for value in self.values]


def with_words_missing(table: pa.RecordBatch, words: MissingWords, *, but: Collection[str | None]) -> pa.RecordBatch:
    """Return rows with null in place of the words and numbers that the user added, in every column ``but`` some."""
    if not words.given:
        return table
    given = pa.array(words.given, pa.string())

    def remove(name: str, values: Arrow) -> Arrow:
        if name in but:
            return values
        return _without_texts(values, given) if is_text(values.type) else words.remove_numbers(values)

    return _change_columns(table, remove)


def _change_columns(table: pa.RecordBatch, change: Callable[[str, Arrow], Arrow]) -> pa.RecordBatch:
    """Return rows with every column changed by ``change``; the same object where no column changes."""
    columns = [change(name, column) for name, column in zip(table.schema.names, table.columns, strict=True)]
    if all(new is old for new, old in zip(columns, table.columns, strict=True)):
        return table
    return pa.RecordBatch.from_arrays(columns, names=table.schema.names)


def _without_texts(values: Arrow, words: pa.Array) -> Arrow:
    encoded = pa.types.is_dictionary(values.type)
    texts = values.dictionary if encoded else values
    trimmed = pc.utf8_trim_whitespace(texts if pa.types.is_string(texts.type) else texts.cast(pa.string()))
    wrong = pc.is_in(trimmed, value_set=words)
    if not pc.any(wrong).as_py():
        return values
    left = pc.if_else(wrong, pa.scalar(None, pa.string()), trimmed)
    if not encoded:
        return left
    distinct = left.drop_null().unique()
    places = pc.index_in(left, value_set=distinct, skip_nulls=True)
    return pa.DictionaryArray.from_arrays(places.take(values.indices), distinct)


def _number(text: str) -> float | None:
    try:
        found = float(text)
    except ValueError:
        return None
    return found if np.isfinite(found) else None
