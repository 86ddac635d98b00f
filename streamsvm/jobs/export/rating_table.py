"""The rating table of a model of curves: a CSV file whose effects add up to the decision value of a row.

A row of the file is a piece of a curve: for values of the column between ``from`` and ``to`` the effect is linear between
``effect_from`` and ``effect_to``; below the first and above the last piece of a column it is constant. Columns of category
values, words and marks have one piece each, from 0 to 1: the effect of the value named is ``effect_to``, and 0 where it is
absent. A line with ``value`` and the same number in ``from`` and ``to`` is a jump, what is added to a curve at this very value. Each outcome has an intercept. Numbers are written with all their digits.

With pairs of columns the file has four columns more: a row is also a cell of a pair, in which ``column`` has ``value``, or is at
least ``from`` and below ``to`` (empty: without limit), and ``other_column`` has ``other_value``, or is in ``other_from`` to
``other_to``. Numbers are compared after rounding to float32.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from itertools import pairwise

from streamsvm.jobs.apply.column_names import column_names, source_columns
from streamsvm.model import Model
from streamsvm.model.model import PairEffect, PairVariable

HEAD = ("outcome", "feature", "column", "value", "from", "to", "effect_from", "effect_to")
PAIR_HEAD = ("other_column", "other_value", "other_from", "other_to")
INTERCEPT = "(intercept)"


def write_rating_table(model: Model) -> Iterator[bytes]:
    """Yield the text of the file. Raises UsageError for a model without curves, and for one-vs-one models."""
    model.refuse_pairs()
    effects, intercepts = model.effects()
    names, sources, pairs = column_names(model), source_columns(model), model.effects_of_pairs()
    yield _line((*HEAD, *(PAIR_HEAD if pairs else ())))
    for outcome, intercept in intercepts.items():
        yield _line(
            (outcome, INTERCEPT, "", "", "", "", intercept, intercept, *([""] * len(PAIR_HEAD) if pairs else []))
        )
    for one in effects:
        column, value, sign = sources[one.column]
        named, none = (one.outcome, names[one.column], column, value), [""] * len(PAIR_HEAD) if pairs else []
        if one.jump:
            at, effect = float(one.x[0]), float(one.effect[0])
            yield _line((*named[:3], f"{at:.9g}", at, at, effect, effect, *none))
            continue
        if not one.curve:
            yield _line((*named, 0.0, 1.0, 0.0, sign * one.effect[0], *none))
            continue
        pieces = zip(one.x, one.x[1:], one.effect, one.effect[1:], strict=False)
        yield b"".join(_line((*named, *piece, *none)) for piece in pieces)
    for pair in pairs:
        yield b"".join(map(_line, _cells_of(pair)))


def _cells_of(pair: PairEffect) -> Iterator[tuple[str | float, ...]]:
    """Yield the cells of lines of the file for the table of a pair."""
    first, second = pair.variables
    name = f"{first.name}*{second.name}"
    for i, (value, *limits) in enumerate(_describe_cells(first)):
        for j, of_other in enumerate(_describe_cells(second)):
            effect = float(pair.effect[i, j])
            yield pair.outcome, name, first.name, value, *limits, effect, effect, second.name, *of_other


def _describe_cells(variable: PairVariable) -> list[tuple[str | float, ...]]:
    """Return the value, the lower and the upper limit of each cell."""
    if not len(variable.edges):
        return [(cell, "", "") for cell in variable.cells]
    ends = ["", *variable.edges.tolist(), ""]
    return [("", low, high) for low, high in pairwise(ends)]


def _line(cells: tuple[str | float, ...]) -> bytes:
    file = io.StringIO()
    shown = [cell if isinstance(cell, str) else repr(float(cell)) for cell in cells]
    csv.writer(file, lineterminator="\n").writerow(shown)
    return file.getvalue().encode()
