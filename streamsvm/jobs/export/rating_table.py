"""The rating table of a model of curves: a CSV file whose effects add up to the decision value of a row.

A row of the file is a piece of a curve: for values of the column between ``from`` and ``to`` the effect is linear between
``effect_from`` and ``effect_to``; below the first and above the last piece of a column it is constant. Columns of category
values, words and marks have one piece each, from 0 to 1: the effect of the value named is ``effect_to``, and 0 where it is
absent. Each outcome has an intercept. Numbers are written with all their digits.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

from streamsvm.jobs.apply.column_names import column_names, source_columns
from streamsvm.model import Model

HEAD = ("outcome", "feature", "column", "value", "from", "to", "effect_from", "effect_to")
INTERCEPT = "(intercept)"


def write_rating_table(model: Model) -> Iterator[bytes]:
    """Yield the text of the file. Raises UsageError for a model without curves, and for one-vs-one models."""
    model.refuse_pairs()
    effects, intercepts = model.effects()
    names, sources = column_names(model), source_columns(model)
    yield _line(HEAD)
    for outcome, intercept in intercepts.items():
        yield _line((outcome, INTERCEPT, "", "", "", "", intercept, intercept))
    for one in effects:
        column, value, sign = sources[one.column]
        named = (one.outcome, names[one.column], column, value)
        if not one.curve:
            yield _line((*named, 0.0, 1.0, 0.0, sign * one.effect[0]))
            continue
        pieces = zip(one.x, one.x[1:], one.effect, one.effect[1:], strict=False)
        yield b"".join(_line((*named, *piece)) for piece in pieces)


def _line(cells: tuple[str | float, ...]) -> bytes:
    file = io.StringIO()
    shown = [cell if isinstance(cell, str) else repr(float(cell)) for cell in cells]
    csv.writer(file, lineterminator="\n").writerow(shown)
    return file.getvalue().encode()
