"""What a column holds, by its values: amounts, dates, yes and no are written as text; other text is a category.

A column of which a part are numbers is none of them: one value that is wrong must not make a number a category.
"""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streamsvm.store.sources.table.cells import DATES, ISO, TRUE, amounts_of, booleans_of, dates_of
from streamsvm.store.sources.table.layout.columns import AMOUNT, BOOLEAN, CATEGORY, DATE, DECIMAL_COMMA
from streamsvm.store.sources.table.missing_words import NUMBER_WORDS, WORDS

_DIGITS = {"%d": r"\d{1,2}", "%m": r"\d{1,2}", "%y": r"\d{2}", "%Y": r"\d{4}", "%b": "[A-Za-z]{3}"}
SOME_NUMBERS = 0.1
"""The share of numbers from which on a column of text is not taken for categories."""

SOME_WRONG_DAYS = 0.5
"""The share of dates that no calendar has from which on a column of text is not taken for dates."""
SHAPES = {
    form: "^" + "".join(_DIGITS.get(part, re.escape(part)) for part in re.split("(%.)", form)) + "$" for form in DATES
} | {ISO: r"^\d{4}-\d{2}-\d{2}(?:[T ][\d:.]+(?:Z|[+-][\d:]+)?)?$"}
"""What texts look like that may be dates of a form, whether there is such a day or not."""


def recognized(sample: Any) -> tuple[str, str]:
    """Return the kind of a column of text and, for dates, their form; empty where it cannot be told."""
    every = pc.drop_null(pc.utf8_trim_whitespace(sample.cast(pa.string()))).unique()
    texts = _without(every, WORDS)
    if len(texts) and booleans_of(texts).null_count == 0 and not set(texts.to_pylist()) <= {*TRUE[-1:], "0"}:
        return BOOLEAN, ""
    texts = _without(every, (*WORDS, *NUMBER_WORDS))
    if not len(texts):
        return (CATEGORY, "") if len(every) else ("", "")
    if amounts_of(texts).null_count == 0:
        return AMOUNT, ""
    commas = pc.any(pc.match_substring(texts, ",")).as_py()
    if commas and amounts_of(texts, comma=True).null_count == 0:  # "1,234" alone is a thousand, not one and a quarter
        return AMOUNT, DECIMAL_COMMA
    forms = [form for form in DATES if dates_of(texts, form).null_count == 0]
    forms = forms or [form for form in DATES if _are_dates_with_mistakes(texts, form)]
    if forms:
        return (DATE, forms[0]) if len(_told_apart(forms)) == 1 else (CATEGORY, "")
    numbers = pc.sum(pc.match_substring_regex(every, r"^[+-]?[.,]?\d[\d.,]*(?:[eE][+-]?\d+)?$")).as_py()
    return (CATEGORY, "") if numbers < SOME_NUMBERS * len(every) else ("", "")


def _without(texts: Any, words: tuple[str, ...]) -> Any:
    """The texts that are none of some words."""
    return texts.filter(pc.invert(pc.is_in(texts, value_set=pa.array(words))))


def _are_dates_with_mistakes(texts: Any, form: str) -> bool:
    """Whether nearly all texts are dates of a form, and the others are days that no month has: 2020-02-30."""
    wrong = texts.filter(dates_of(texts, form).is_null())
    return len(wrong) < SOME_WRONG_DAYS * len(texts) and pc.all(pc.match_substring_regex(wrong, SHAPES[form])).as_py()


def _told_apart(forms: list[str]) -> set[str]:
    """Forms that mean different days by the same text: 03/04 may be in March or in April."""
    return {form[:2] if "/" in form else "" for form in forms}
