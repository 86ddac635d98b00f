"""What a column holds, by its values: amounts, dates, yes and no are written as text; other text is a category.

A column of which a part are numbers is none of them: one value that is wrong must not make a number a category.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streamsvm.store.sources.table.cells import DATES, TRUE, amounts_of, booleans_of, dates_of
from streamsvm.store.sources.table.layout.columns import AMOUNT, BOOLEAN, CATEGORY, DATE, DECIMAL_COMMA

SOME_NUMBERS = 0.1
"""The share of numbers from which on a column of text is not taken for categories."""


def recognized(sample: Any) -> tuple[str, str]:
    """Return the kind of a column of text and, for dates, their form; empty where it cannot be told."""
    texts = pc.drop_null(pc.utf8_trim_whitespace(sample.cast(pa.string()))).unique()
    if not len(texts):
        return "", ""
    if booleans_of(texts).null_count == 0 and not set(texts.to_pylist()) <= {*TRUE[-1:], "0"}:
        return BOOLEAN, ""
    if amounts_of(texts).null_count == 0:
        return AMOUNT, ""
    commas = pc.any(pc.match_substring(texts, ",")).as_py()
    if commas and amounts_of(texts, comma=True).null_count == 0:  # "1,234" alone is a thousand, not one and a quarter
        return AMOUNT, DECIMAL_COMMA
    forms = [form for form in DATES if dates_of(texts, form).null_count == 0]
    if forms:
        return (DATE, forms[0]) if len(_told_apart(forms)) == 1 else (CATEGORY, "")
    numbers = pc.sum(pc.match_substring_regex(texts, r"^[+-]?[\d.,]+(?:[eE][+-]?\d+)?$")).as_py()
    return (CATEGORY, "") if numbers < SOME_NUMBERS * len(texts) else ("", "")


def _told_apart(forms: list[str]) -> set[str]:
    """Forms that mean different days by the same text: 03/04 may be in March or in April."""
    return {form[:2] if "/" in form else "" for form in forms}
