"""Export a linear model as a SQL query over the raw table. The query appends decision values, labels and probabilities
to the columns of the table.

    SELECT *, label and probabilities FROM (SELECT *, decision values FROM "input")

``"input"`` is the name of the table; ``WITH "input" AS (...)`` before the query defines it. A decision value is a sum
with one term per column: a weight times a number (``COALESCE`` fills missing values), or a ``CASE`` with the weight of
each value of a category or of a calendar part (``EXTRACT``). Terms with weight 0 are omitted. If a row has a missing
value for which the model has no replacement, its results are NULL.

SQL cannot compute the hash of a hashed column. The query has a list of the values that it knows, each with its
contribution to the decision values (the weight of the feature column to which it is hashed, times the sign of its
hash), and joins it to the table; values of which the sum is not certain are left out. A value that is not in the list
has no contribution but NULL, and so have the results of its row.

The dialect is the common part of DuckDB and PostgreSQL. Numbers are double precision. They are not rounded to float32,
as stored rows are; this changes decision values by about 1e-7 of their terms.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np

from streamsvm.calibration.calibrators import Calibrator, Isotonic, PlattSigmoid, Temperature
from streamsvm.compute.blocks.column_pairs import NO_LEVEL
from streamsvm.errors import UsageError
from streamsvm.features.column_pairs import ColumnPairs
from streamsvm.features.curves import Hats
from streamsvm.features.jumps import Jumps
from streamsvm.jobs.export.hashed_values import read_hashed_values
from streamsvm.jobs.export.table import (
    KEEP,
    RawTable,
    free_name,
    has_other,
    has_whole_numbers,
    raw_table,
    split_values,
    trims_blanks,
)
from streamsvm.model import Model
from streamsvm.model.model import KERNEL
from streamsvm.rows import Float64
from streamsvm.store.sources.cell_parsing import (
    CURRENCIES,
    EPOCH,
    FALSE,
    ISO,
    NEXT_CENTURY,
    TRUE,
    YEAR_2000,
    YEAR_SECONDS,
)
from streamsvm.store.sources.schema import AMOUNT, BOOLEAN, CATEGORY, HASHED, NUMBER, SINGLE, YEARS, Column
from streamsvm.store.sources.text_features import hash_place_and_sign

HEAD = b"-- A linear model of streamsvm"
"""The first bytes of a file, by which our files are recognized."""
DOUBLE = "DOUBLE PRECISION"
MAX_EXPONENT = 700.0
"""Largest absolute argument of EXP, because PostgreSQL raises an error if the result overflows."""
HASHED_NOTE = b"""-- The query knows the listed values of hashed columns. A row with another value has NULL as decision value, label and
-- probability: export again with --values-from a file that has the value.
"""
WHOLE = "'^([+-]?[0-9]+)\\.0+$', '\\1'"
"""Arguments of REGEXP_REPLACE that remove a fraction of zeros."""
EXTRACT_FIELDS = {"month": "MONTH", "weekday": "ISODOW", "hour": "HOUR"}
"""The names of calendar parts in EXTRACT. Months and weekdays are counted from 1, hours from 0."""
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")


def write_sql(model: Model, values_from: str | None = None) -> Iterator[bytes]:
    """Yield the text of the query. Raises UsageError for a kernel model, for columns without names, and for hashed
    text unless ``values_from`` names files with its values; and what ``read_hashed_values`` raises.
    """
    model.refuse_pairs()
    table = raw_table(model)
    if model.kind == KERNEL:
        raise UsageError(
            "a kernel model cannot be exported to SQL",
            hint=f"fit a linear model, or {KEEP}",
        )
    if table is None:
        raise UsageError("the model has no column names, which SQL needs", hint="ingest a table")
    remedy = "name a file with the values that the query has to know: --values-from PATH"
    table.check("SQL", clocks=True, hashes=() if values_from is None else (HASHED,), remedy=remedy)
    hashed_values = {} if values_from is None else read_hashed_values(model, table.hashed_columns, values_from)
    table_names = {*table.schema.needed, *table.schema.dropped}
    decisions = (
        _column_names(model, "decision", table_names) if not model.numeric else [free_name("prediction", table_names)]
    )
    results = []
    if not model.numeric:
        results.append(f"{_label_expression(model, decisions)} AS {quote_identifier(free_name('label', table_names))}")
    if model.calibration is not None:
        probabilities = _probability_expressions(
            model.calibration.calibrator, [quote_identifier(name) for name in decisions]
        )
        names = _column_names(model, "probability", table_names)
        known = " AND ".join(f"{quote_identifier(name)} IS NOT NULL" for name in decisions)
        results += [  # GREATEST and LEAST leave out NULL
            f"CASE WHEN {known} THEN {text} END AS {quote_identifier(name)}"
            for text, name in zip(probabilities, names, strict=True)
        ]
    lists = [_HashedList(model, table, name, k) for k, name in enumerate(table.hashed_columns)]
    sums = [
        "\n    + ".join([_decision_expression(model, table, k), *(one.term(k) for one in lists)])
        + f" AS {quote_identifier(name)}"
        for k, name in enumerate(decisions)
    ]
    yield HEAD + b', in SQL of DuckDB and PostgreSQL. "input" stands for the table:\n'
    yield b'-- put its name there, or begin the query with: WITH "input" AS (SELECT ...)\n'
    yield "".join(f"SELECT *,\n  {text}\nFROM (\n" for text in [",\n  ".join(results)] if results).encode()
    if lists:
        yield HASHED_NOTE
        yield ('SELECT "given".*,\n  ' + ",\n  ".join(sums)).encode()
        yield b'\nFROM (SELECT * FROM "input") AS "given"\n'
        for one in lists:
            yield from one.write_join(hashed_values[one.name])
    else:
        yield ("SELECT *,\n  " + ",\n  ".join(sums) + '\nFROM "input"\n').encode()
    yield b') AS "scored"\n' if results else b""


def quote_identifier(name: str) -> str:
    """Return the name of a column as a quoted SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def text_literal(value: str) -> str:
    """Return a text as a quoted SQL literal."""
    return "'" + value.replace("'", "''") + "'"


def number_literal(value: float) -> str:
    """Return a number as a SQL literal with an exponent, so that DuckDB does not treat it as a decimal."""
    written = repr(float(value))
    return written if "e" in written else f"{written}e0"


def _column_names(model: Model, what: str, table_names: set[str]) -> list[str]:
    """Return the column names of decision values or probabilities: one name for two classes, else one for each
    class.
    """
    if len(model.weights) == 1:
        return [free_name(what, table_names)]
    return [free_name(f"{what}_{name}", table_names) for name in model.classes]


# -- labels and probabilities --------------------------------------------------------------------------------------------


def _label_expression(model: Model, decisions: Sequence[str]) -> str:
    """Return the expression of the label: by the threshold for two classes, else the class of the largest decision
    value (the first of equal ones); NULL if a decision value is NULL.
    """
    f = [quote_identifier(name) for name in decisions]
    labels = [_label_literal(value) for value in model.labels.tolist()]
    if len(f) == 1:
        bound = number_literal(model.threshold) if model.threshold else "0"
        return f"CASE WHEN {f[0]} > {bound} THEN {labels[1]} WHEN {f[0]} <= {bound} THEN {labels[0]} END"
    whens = [
        f"WHEN {' AND '.join(f'{own} >= {other}' for other in f if other != own)} THEN {label}"
        for own, label in zip(f, labels, strict=True)
    ]
    return f"CASE {' '.join(whens)} END"


def _label_literal(value: object) -> str:
    """Return a label as a SQL literal of its type."""
    if isinstance(value, bool):
        return str(value).upper()
    return text_literal(value) if isinstance(value, str) else repr(value)


def _probability_expressions(calibrator: Calibrator, f: list[str]) -> list[str]:
    """Return the expressions of the probabilities, given decision values ``f``: one for the second of two classes, or
    one for each of several classes.
    """
    if isinstance(calibrator, Temperature):
        scaled = [f"({number_literal(calibrator.inverse)} * {value})" for value in f]
        if len(f) == 1:
            return [_sigmoid_expression(scaled[0])]
        if calibrator.offsets:
            scaled = [f"({z} + {number_literal(offset)})" for z, offset in zip(scaled, calibrator.offsets, strict=True)]
        top = f"GREATEST({', '.join(scaled)})"
        powers = [f"EXP(GREATEST({value} - {top}, {number_literal(-MAX_EXPONENT)}))" for value in scaled]
        return [f"{power} / ({' + '.join(powers)})" for power in powers]
    if isinstance(calibrator, PlattSigmoid):
        each = [
            _sigmoid_expression(f"({number_literal(slope)} * {value} + {number_literal(offset)})")
            for value, slope, offset in zip(f, calibrator.slopes, calibrator.offsets, strict=True)
        ]
    elif isinstance(calibrator, Isotonic):
        each = [_piecewise_expression(value, *steps) for value, steps in zip(f, calibrator.steps, strict=True)]
    else:
        raise UsageError(f"the calibration '{calibrator.method}' cannot be written in SQL", hint=KEEP)
    if len(f) == 1:
        return each
    total = f"NULLIF({' + '.join(each)}, 0)"
    return [
        f"COALESCE({one} / {total}, {number_literal(1 / len(f))} + 0 * {value})"
        for one, value in zip(each, f, strict=True)
    ]


def _sigmoid_expression(z: str) -> str:
    """Return the expression 1 / (1 + e^-z)."""
    return f"(1 / (1 + EXP(-GREATEST(LEAST({z}, {number_literal(MAX_EXPONENT)}), {number_literal(-MAX_EXPONENT)}))))"


def _piecewise_expression(f: str, at: Float64, values: Float64) -> str:
    """Return the expression of a function that is linear between its breakpoints ``at``, and constant outside of them."""
    whens = [f"WHEN {f} <= {number_literal(at[0])} THEN {number_literal(values[0])}"]
    for low, high, first, last in zip(at[:-1], at[1:], values[:-1], values[1:], strict=True):
        slope = (last - first) / (high - low) if high > low else 0.0
        rise = f" + {number_literal(slope)} * ({f} - {number_literal(low)})" if slope else ""
        whens.append(f"WHEN {f} < {number_literal(high)} THEN {number_literal(first)}{rise}")
    return f"(CASE {' '.join(whens)} WHEN {f} >= {number_literal(at[-1])} THEN {number_literal(values[-1])} END)"


# -- the decision values -----------------------------------------------------------------------------------------------


def _decision_expression(model: Model, table: RawTable, problem: int) -> str:
    """Return the expression of the decision value of a problem."""
    weights, curves = _split_curves(model, problem)
    constant, terms = float(model.weights[problem, -1]), []
    columns = dict(table.columns_with_places())
    for first, column in columns.items():
        column_weights, offset = weights[first : first + column.width], table.offsets[first : first + column.width]
        if not column_weights.any() and first not in curves:
            continue
        if column.kind not in SINGLE:
            constant -= float(column_weights @ offset)
            terms.append(_weight_expression(table, column, column_weights))
            continue
        value = _number_expression(table, columns, first)
        if first in curves:
            terms.append(_piecewise_expression(value, *curves[first]))
        else:
            terms.append(f"{number_literal(column_weights[0])} * {value}")
    for weight, place in zip(weights[table.schema.width :], table.indicators.tolist(), strict=True):
        if weight:
            terms.append(
                f"CASE WHEN {_value_expression(table, columns[place])} IS NULL THEN {number_literal(weight)} ELSE 0 END"
            )
    if isinstance(model.expansion, Hats) and model.expansion.jumps is not None:
        of_values = model.expansion.jump_weights(model.weights[problem, :-1])
        terms += _jump_expressions(table, model.expansion.jumps, of_values)
    if isinstance(model.expansion, Hats) and model.expansion.pairs is not None:
        cells = model.weights[problem, model.expansion.additive_features : -1]
        terms += _pair_expressions(table, model.expansion.pairs, cells)
    return "\n    + ".join([f"CAST({number_literal(constant)} AS {DOUBLE})", *terms])


def _jump_expressions(table: RawTable, jumps: Jumps, weights: Float64) -> list[str]:
    """Return the expressions of the jumps of each column."""
    places, terms = dict(table.columns_with_places()), []
    for column, start, stop in zip(jumps.columns.tolist(), jumps.starts, jumps.starts[1:], strict=False):
        value = f"CAST({_number_expression(table, places, column)} AS REAL)"  # as stored rows are
        of_values = zip(jumps.values[start:stop].tolist(), weights[start:stop].tolist(), strict=True)
        whens = [f"WHEN {number_literal(at)} THEN {number_literal(weight)}" for at, weight in of_values]
        terms.append(f"CASE {value} {' '.join(whens)} ELSE 0 END")
    return terms


def _pair_expressions(table: RawTable, pairs: ColumnPairs, weights: Float64) -> list[str]:
    """Return the expressions of the tables of pairs of columns: arrays, indexed by the cell of a row. ``weights``: the values of
    all cells.
    """
    places = dict(table.columns_with_places())
    cells = [_cell_expression(table, places, pairs, v) for v in range(len(pairs.counts))]
    terms = []
    for (a, b), start, stop in zip(pairs.pairs.tolist(), pairs.starts, pairs.starts[1:], strict=False):
        values = ", ".join(map(number_literal, weights[start:stop].tolist()))
        terms.append(f"(ARRAY[{values}])[({cells[a]}) * {pairs.counts[b]} + ({cells[b]}) + 1]")
    return terms


def _cell_expression(table: RawTable, places: dict[int, Column], pairs: ColumnPairs, v: int) -> str:
    """Return the expression of the cell of a row in a variable of pairs, an integer."""
    columns, levels = zip(*pairs.columns_of(v), strict=True)
    if levels[0] == NO_LEVEL:
        value = f"CAST({_number_expression(table, places, columns[0])} AS REAL)"  # as stored rows are
        edges = list(enumerate(pairs.edges_of(v).tolist(), 1))
        whens = [f"WHEN {value} >= {number_literal(edge)} THEN {cell}" for cell, edge in reversed(edges)]
        return f"CASE {' '.join(whens)} ELSE 0 END"
    if columns[0] in places and places[columns[0]].kind not in SINGLE:
        column = places[columns[0]]
        return f"CAST({_weight_expression(table, column, np.array(levels, np.float64))} AS INTEGER)"
    of_columns = [
        f"CASE WHEN {_number_expression(table, places, j)} <> 0 THEN {level} ELSE 0 END"
        for j, level in zip(columns, levels, strict=True)
    ]
    return of_columns[0] if len(of_columns) == 1 else f"GREATEST({', '.join(of_columns)})"


def _number_expression(table: RawTable, places: dict[int, Column], column: int) -> str:
    """Return the expression of a feature column with one number per row, as it is stored: filled, and less its offset."""
    if column >= table.schema.width:
        marked = int(table.indicators[column - table.schema.width])
        return f"CASE WHEN {_value_expression(table, places[marked])} IS NULL THEN 1 ELSE 0 END"
    value = _value_expression(table, places[column])
    if table.offsets[column]:
        value = f"({value} - {number_literal(table.offsets[column])})"
    return value if table.filling is None else f"COALESCE({value}, {number_literal(table.filling[column])})"


def _split_curves(model: Model, problem: int) -> tuple[Float64, dict[int, tuple[Float64, Float64]]]:
    """Return the weights of the feature columns in a problem, and the curves by feature column, as ``Hats.split_weights``."""
    weights = model.weights[problem, :-1]
    return model.expansion.split_weights(weights) if isinstance(model.expansion, Hats) else (weights, {})


def _weight_expression(table: RawTable, column: Column, weights: Float64) -> str:
    """Return the expression of the weight of a row's value in a category, a cross or a calendar part."""
    if column.kind != CATEGORY:
        field = f"EXTRACT({EXTRACT_FIELDS[column.kind]} FROM {_timestamp_expression(column)})"
        start = 0 if column.kind == "hour" else 1
        whens = [f"WHEN {start + k} THEN {number_literal(w)}" for k, w in enumerate(weights.tolist()) if w]
        return f"CASE {field} {' '.join(whens)} ELSE 0 END"
    keys = [_category_expression(table, name) for name in column.sources]
    other = float(weights[-1]) if has_other(column) else 0.0
    weights_of_values = [
        (parts, number_literal(weight))
        for parts, weight in zip(split_values(column), weights.tolist(), strict=False)
        if weight != other
    ]
    if len(keys) == 1:
        expression = f"CASE {keys[0]} {' '.join(f'WHEN {text_literal(value)} THEN {weight}' for (value,), weight in weights_of_values)}"
    else:
        conditions = [
            (" AND ".join(f"{key} = {text_literal(part)}" for key, part in zip(keys, parts, strict=True)), weight)
            for parts, weight in weights_of_values
        ]
        expression = f"CASE {' '.join(f'WHEN {condition} THEN {weight}' for condition, weight in conditions)}"
    expression = f"{expression} ELSE {number_literal(other)} END" if weights_of_values else number_literal(other)
    return (
        f"CASE WHEN {' OR '.join(f'{key} IS NULL' for key in keys)} THEN 0 ELSE {expression} END"
        if other
        else expression
    )


def _category_expression(table: RawTable, name: str) -> str:
    """Return the expression of a category's value as text: integers without a fraction, NULL for words that mean a
    missing value.
    """
    expression = f"CAST({quote_identifier(name)} AS VARCHAR)"
    values = table.values_of(name)
    if trims_blanks(values):
        expression = f"TRIM({expression})"
    if has_whole_numbers(values):
        expression = f"REGEXP_REPLACE({expression}, {WHOLE})"
    for word in table.words.added:
        expression = f"NULLIF({expression}, {text_literal(word)})"
    return expression


class _HashedList:
    """The list of the values of a hashed column with their contributions to the decision values, joined to the table."""

    def __init__(self, model: Model, table: RawTable, name: str, number: int) -> None:
        self.name, self._table = name, table
        names = {*table.schema.needed, *table.schema.dropped}
        self._alias, self._value = (
            quote_identifier(free_name(f"hashed {what} {number}", names)) for what in ("list", "value")
        )
        self._contributions = [
            quote_identifier(free_name(f"hashed weight {number} {k}", names)) for k in range(len(model.weights))
        ]
        first = table.schema.own_width
        self._weights = [
            _split_curves(model, k)[0][first : first + (1 << table.schema.hash_bits)] for k in range(len(model.weights))
        ]

    def term(self, problem: int) -> str:
        """Return the contribution of a row's value: 0 if it is missing and may be, NULL if it is not in the list."""
        if self._table.filling is None:
            return self._contributions[problem]
        return f"CASE WHEN {self._key_expression()} IS NULL THEN 0 ELSE {self._contributions[problem]} END"

    def write_join(self, values: Sequence[str]) -> Iterator[bytes]:
        """Yield the text of the join of the list; ``values``: the texts of the column, as they are hashed."""
        yield b"LEFT JOIN (VALUES\n"
        separator = "  "
        for value in filter(self._is_certain, values):
            place, sign = hash_place_and_sign(self.name, value, self._table.schema.hash_bits)
            numbers = [number_literal(sign * float(weights[place])) for weights in self._weights]
            yield f"{separator}({', '.join([text_literal(value), *numbers])})".encode()
            separator = ",\n  "
        if separator == "  ":
            yield f"  ({', '.join(['CAST(NULL AS VARCHAR)'] + ['0e0'] * len(self._weights))})".encode()
        names = ", ".join([self._value, *self._contributions])
        yield f"\n) AS {self._alias} ({names}) ON {self._key_expression()} = {self._value}\n".encode()

    def _is_certain(self, value: str) -> bool:
        """Return whether all texts and numbers that the query reads as this value are hashed alike.

        '12.0' can come from ' 12.0', which is hashed as '12' where blanks are removed first; and the number of a word
        for a missing value is a value where it is written otherwise, as text.
        """
        is_ambiguous = re.fullmatch(r"[+-]?[0-9]+\.0+", value) or value in self._table.words.added
        return not is_ambiguous and value == value.strip() and "\0" not in value

    def _key_expression(self) -> str:
        """Return the expression of the text that is hashed: as ``to_hashed_text``; NULL for a missing value."""
        written = f"CAST({quote_identifier(self.name)} AS VARCHAR)"
        key = f"TRIM(REGEXP_REPLACE({written}, {WHOLE}))"
        if not self._table.words.added:
            return key
        words = ", ".join(map(text_literal, self._table.words.added))
        return f"CASE WHEN TRIM({written}) NOT IN ({words}) THEN {key} END"


def _value_expression(table: RawTable, column: Column) -> str:
    """Return the expression of a column with one number per row (number, amount, boolean as 1 or 0, or years of a
    date); NULL for missing values.
    """
    name = quote_identifier(column.name)
    written = f"TRIM(CAST({name} AS VARCHAR))"
    if column.kind == YEARS:
        return f"(({_seconds_expression(column)} - {number_literal(YEAR_2000)}) / {number_literal(YEAR_SECONDS)})"
    if column.kind == BOOLEAN:
        yes, no = (", ".join(map(text_literal, (*words, f"{words[-1]}.0"))) for words in (TRUE, FALSE))
        return f"CASE WHEN LOWER({written}) IN ({yes}) THEN 1 WHEN LOWER({written}) IN ({no}) THEN 0 END"
    expression = f"CAST({name} AS {DOUBLE})"
    if column.kind == AMOUNT:
        expression = _amount_expression(written, comma=bool(column.form))
    if column.kind == NUMBER and table.filling is not None:
        expression = f"NULLIF({expression}, CAST('NaN' AS {DOUBLE}))"
    for value in table.words.values:
        expression = f"NULLIF({expression}, {number_literal(value)})"
    return expression


def _amount_expression(written: str, *, comma: bool) -> str:
    """Return the expression of an amount as a number: '$1,234.50' is 1234.5, '(12)' is -12, '5 %' is 0.05.

    ``comma``: whether the decimal separator is a comma.
    """
    plain = f"REGEXP_REPLACE({written}, '{CURRENCIES}', '', 'g')"
    other_characters = "[^0-9,eE+-]" if comma else "[^0-9.eE+-]"
    plain = f"REGEXP_REPLACE({plain}, '{other_characters}', '', 'g')"
    plain = f"REPLACE({plain}, ',', '.')" if comma else plain
    sign = f"CASE WHEN {written} LIKE '(%' THEN -1 ELSE 1 END"
    percent = f"CASE WHEN POSITION('%' IN {written}) > 0 THEN 100 ELSE 1 END"
    return f"({sign} * CAST(NULLIF({plain}, '') AS {DOUBLE}) / {percent})"


def _seconds_expression(column: Column) -> str:
    """Return the expression of the seconds since 1970 of a point in time."""
    if column.form == EPOCH:
        return f"FLOOR(CAST({quote_identifier(column.name)} AS {DOUBLE}))"
    return f"FLOOR(EXTRACT(EPOCH FROM {_timestamp_expression(column)}))"


def _timestamp_expression(column: Column) -> str:
    """Return the expression of a point in time as a timestamp in UTC; for calendar parts of a column with a time zone,
    in local time.
    """
    name = quote_identifier(column.name)
    if column.form == EPOCH:
        return (
            f"(TIMESTAMP '1970-01-01 00:00:00' + CAST({_seconds_expression(column)} AS BIGINT) * INTERVAL '1 second')"
        )
    if column.zone:
        zone = "UTC" if column.form or column.kind == YEARS else column.zone
        return f"(CAST({name} AS TIMESTAMP WITH TIME ZONE) AT TIME ZONE {text_literal(zone)})"
    if column.form in ("", ISO):
        return f"CAST({name} AS TIMESTAMP)"
    written = f"CAST({name} AS VARCHAR)"
    day = f"CAST({_date_expression(written, column.form)} AS TIMESTAMP)"
    return f"CASE WHEN {written} LIKE '____-__-__%' THEN CAST({written} AS TIMESTAMP) ELSE {day} END"


def _date_expression(written: str, form: str) -> str:
    """Return the expression of a date that is written in a format such as '%d-%b-%y'."""
    parts = re.findall("%(.)", form)
    plain = f"REGEXP_REPLACE(TRIM({written}), '[^0-9A-Za-z]+', '-', 'g')"
    part_of = {part: f"SPLIT_PART({plain}, '-', {place})" for place, part in enumerate(parts, 1)}
    if "b" in part_of:
        months = " ".join(f"WHEN '{name}' THEN {k}" for k, name in enumerate(MONTHS, 1))
        month = f"CASE LOWER({part_of['b']}) {months} END"
    else:
        month = f"CAST({part_of['m']} AS INTEGER)"
    year = f"CAST({part_of.get('Y') or part_of['y']} AS INTEGER)"
    if "y" in part_of:
        year = f"{year} + CASE WHEN {year} < {int(NEXT_CENTURY)} THEN 2000 ELSE 1900 END"
    return f"MAKE_DATE({year}, {month}, CAST({part_of['d']} AS INTEGER))"
