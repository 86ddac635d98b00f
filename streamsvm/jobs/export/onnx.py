"""Export a model as an ONNX graph, from raw columns to labels, decision values and probabilities.

    X -> minus the offsets -> missing values filled -> rounded to float32, as rows are stored -> (x - shift) scale
      -> kernel values with the points -> f = W k + b -> label, probabilities

The input is ``X`` (n, columns) float64, with NaN for missing values if the model has replacements for them. The outputs
are ``label`` (n,), int64 if all classes are integers, else text; ``decision`` (n, k) float64, the values of
``Model.decision_function``, with k = 1 for two classes; and ``probabilities`` (n, classes) float64 if the model has
them. A regression model has the output ``prediction`` (n,) float64 instead of ``label``. The operators are those of
opset 17 (https://onnx.ai/onnx/operators). All numbers are float64, except for the rounding of rows.

For a table with columns other than numbers there is one input (n, 1) for each column, with the column's name, instead
of ``X``: text for categories and booleans; float64 for numbers, amounts, categories of integers, and points in time (in
seconds since 1970, UTC). Missing values are NaN, or empty text. The metadata ``inputs`` (JSON) gives the type of each
input: 'text', 'number' or 'time'. Values are encoded by ``LabelEncoder`` (ai.onnx.ml). Hashed columns need an operator
of onnxruntime as well (``onnx_text``). Month, day of the week and hour are computed from the number of days since March
1 of year 0, so that the leap day is the last day of a year (H. Hinnant, chrono-compatible low-level date algorithms,
2013).

Calibrators become nodes that compute the functions of ``streamsvm.calibration.calibrators``. An isotonic function is a
table of breakpoints; the last breakpoint <= f is found by bisection, with as many steps as the number of breakpoints
has bits.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from streamsvm.calibration.calibrators import Calibrator, Isotonic, PlattSigmoid, Temperature
from streamsvm.compute.blocks.column_pairs import NO_LEVEL
from streamsvm.errors import UsageError
from streamsvm.features.column_pairs import ColumnPairs
from streamsvm.features.curves import Hats
from streamsvm.features.expansion import Expansion
from streamsvm.jobs.export.graph_builder import DOUBLE, FLOAT, INT64, ML_DOMAIN, RUNTIME_DOMAIN, GraphBuilder
from streamsvm.jobs.export.onnx_text import add_text_effects
from streamsvm.jobs.export.table import (
    KEEP,
    RawTable,
    free_name,
    has_other,
    raw_table,
    split_values,
    trims_blanks,
    truth_words,
)
from streamsvm.model import Model
from streamsvm.model.liblinear_libsvm import WHOLE
from streamsvm.rows import CSR, Float64, Int64
from streamsvm.store.sources.cell_parsing import YEAR_2000, YEAR_SECONDS
from streamsvm.store.sources.preprocessing import filling_from
from streamsvm.store.sources.schema import AMOUNT, BOOLEAN, CATEGORY, HASHED, SINGLE, TEXT, YEARS, Column
from streamsvm.type_aliases import Array

OPSET, FORMAT = 17, 8
"""Versions of the operators and of the file format. Our files begin with the latter, followed by the name of the
program (``outputs``)."""
OPSET_OF_TEXT = 18
"""The version of the operators in a graph with hashed columns, which needs ``BitwiseXor``."""
DOMAINS = {ML_DOMAIN: 3, RUNTIME_DOMAIN: 1}
"""The versions of the operators of other domains."""
MOST_CROSSED = 10**7
"""Largest number of combinations of values of a cross, for which the graph contains a table."""
MEANINGS = {
    "number": "a number; NaN where it is missing",
    AMOUNT: "the amount as a number; NaN where it is missing",
    BOOLEAN: "yes or no, true or false, 1 or 0 as text; empty where it is missing",
    "text": "text without blanks around it; empty where it is missing",
    YEARS: "seconds since 1970 (UTC); NaN where it is missing",
}
"""Descriptions of the inputs, by kind; the graph contains them."""


def write_onnx(model: Model) -> Iterator[bytes]:
    """Yield the bytes of the graph. Raises UsageError without ``onnx``, for one-vs-one models, and for columns that a
    graph cannot compute, such as vectors.
    """
    model.refuse_pairs()
    try:
        from onnx import checker, helper
    except ModuleNotFoundError as error:
        raise UsageError("onnx is not installed", hint="pip install 'streamsvm[onnx]'") from error
    table = raw_table(model)
    columns = [] if table is None or table.only_numbers else list(table.sources)
    graph = GraphBuilder(columns)
    if table is None or table.only_numbers:
        rows, width = _add_rows(model, graph)
        inputs, decision = [value_info("X", np.float64, width)], _add_decision(model, graph, rows)
    else:
        is_linear = model.expansion is None
        program = "an ONNX graph" if is_linear else "an ONNX graph of a model with a kernel or curves"
        table.check(program, clocks=False, hashes=(HASHED, TEXT) if is_linear else ())
        inputs, decision = _add_table(model, graph, table)
    named = {name: free_name(name, set(columns)) for name in ("prediction", "label", "decision", "probabilities")}
    if model.numeric:
        answer = _add_prediction(graph, decision, named["prediction"])
    else:
        answer = _add_labels(model, graph, decision, named["label"])
    outputs = [answer, value_info(named["decision"], np.float64, len(model.weights))]
    graph.add("Identity", decision, out=named["decision"])
    if model.calibration is not None:
        probabilities = _add_calibrator(graph, model.calibration.calibrator, decision, len(model.weights))
        graph.add("Identity", probabilities, out=named["probabilities"])
        outputs.append(value_info(named["probabilities"], np.float64, len(model.classes)))
    facts = {"classes": ", ".join(model.classes), "columns": ", ".join(model.names or ())}
    opset = OPSET_OF_TEXT if RUNTIME_DOMAIN in graph.domains else OPSET
    domains = [helper.make_opsetid("", opset)]
    if table is not None and columns:
        facts["inputs"] = json.dumps({name: _kind_of_input(table, name) for name in columns})
        domains += [helper.make_opsetid(name, DOMAINS[name]) for name in sorted(graph.domains | {ML_DOMAIN})]
    body = helper.make_graph(graph.nodes, "streamsvm", inputs, outputs, graph.constants, value_info=graph.declared)
    proto = helper.make_model(body, producer_name="streamsvm", ir_version=FORMAT, opset_imports=domains)
    helper.set_model_props(proto, facts)
    checker.check_model(proto, full_check=True)
    yield proto.SerializeToString(deterministic=True)


def _add_rows(model: Model, graph: GraphBuilder) -> tuple[str, int]:
    """Add the nodes that compute stored rows (in float64) from ``X``; return the rows' name and the number of columns
    of ``X``.
    """
    filling = filling_from(model.provenance.get("encoding"))
    indicators = np.empty(0, np.int64) if filling is None else filling.indicators
    columns, offsets = model.columns - len(indicators), None
    if model.offsets:
        offsets = np.zeros(columns)
        offsets[list(model.offsets)] = list(model.offsets.values())
    values = None if filling is None else filling.values.astype(np.float64)
    return _add_encoded_numbers(graph, "X", offsets, values, indicators), columns


def _add_encoded_numbers(
    graph: GraphBuilder, rows: str, offsets: Float64 | None, filling: Float64 | None, indicators: Int64
) -> str:
    """Add the steps of an ingest for numbers (n, columns): subtract offsets, fill missing values, append indicators,
    round to float32.
    """
    if offsets is not None:
        rows = graph.add("Sub", rows, graph.constant(offsets))
    if filling is not None:
        absent = graph.add("IsNaN", rows)
        rows = graph.add("Where", absent, graph.constant(filling), rows)
        if len(indicators):
            marked = graph.add("Gather", absent, graph.constant(indicators), axis=1)
            rows = graph.add("Concat", rows, graph.add("Cast", marked, to=DOUBLE), axis=1)
    single = graph.add("Cast", rows, to=FLOAT)
    return graph.add("Cast", single, to=DOUBLE)


# -- rows of a table ---------------------------------------------------------------------------------------------------


class CodedColumn(NamedTuple):
    """A one-hot encoded column."""

    first: int
    """Number of its first feature column."""
    width: int
    codes: str
    """Name of the codes (n,) int64: which of its feature columns is 1; ``width`` for none."""


def _add_table(model: Model, graph: GraphBuilder, table: RawTable) -> tuple[list[Any], str]:
    """Add the decision values (n, k) of rows of a table; return the declarations of the inputs, and the name of the
    values.
    """
    inputs = [_declare_input(table, name) for name in table.sources]
    codes_of_sources = {
        name: _add_source_codes(graph, table, name) for name, kind in table.sources.items() if kind == CATEGORY
    }
    times = {name: _add_clock(graph, name) for name, kind in table.sources.items() if kind == YEARS}
    places, singles, coded = [], [], []
    for first, column in table.columns_with_places():
        if column.kind in SINGLE:
            places.append(first)
            singles.append(_add_number(graph, table, column, times))
        elif column.kind == CATEGORY:
            coded.append(CodedColumn(first, column.width, _add_codes(graph, table, column, codes_of_sources)))
        elif column.kind not in (HASHED, TEXT):
            coded.append(CodedColumn(first, column.width, times[column.name].code_of(column.kind)))
    columns_of_numbers = np.array(places, np.int64)
    numbers = ""
    if singles:
        with_indicator = np.array([places.index(j) for j in table.indicators.tolist()], np.int64)
        filling = None if table.filling is None else table.filling[columns_of_numbers]
        joined = graph.add("Concat", *singles, axis=1)
        numbers = _add_encoded_numbers(graph, joined, table.offsets[columns_of_numbers], filling, with_indicator)
        columns_of_numbers = np.append(columns_of_numbers, table.schema.width + np.arange(len(with_indicator)))
    if model.expansion is not None:
        return inputs, _add_decision(model, graph, _add_one_hot_rows(graph, table, numbers, columns_of_numbers, coded))
    decision = graph.constant(model.weights[:, -1][np.newaxis])
    if numbers:
        product = graph.add("MatMul", numbers, graph.constant(model.weights[:, columns_of_numbers].T))
        decision = graph.add("Add", product, decision)
    for part in coded:
        weights = model.weights[:, part.first : part.first + part.width].T
        effect = graph.constant(_one_hot(table, part) @ weights)
        decision = graph.add("Add", decision, graph.add("Gather", effect, part.codes, axis=0))
    for text_effect in add_text_effects(graph, table, model.weights):
        decision = graph.add("Add", decision, text_effect)
    return inputs, decision


def _add_one_hot_rows(
    graph: GraphBuilder, table: RawTable, numbers: str, columns_of_numbers: Int64, coded: list[CodedColumn]
) -> str:
    """Add the stored rows (n, d), joined from ``numbers``, whose feature columns are ``columns_of_numbers``, and the one-hot
    encodings of the other columns.
    """
    parts, order = [numbers] if numbers else [], [columns_of_numbers]
    for column in coded:
        parts.append(graph.add("Gather", graph.constant(_one_hot(table, column)), column.codes, axis=0))
        order.append(column.first + np.arange(column.width))
    joined = graph.add("Concat", *parts, axis=1)
    return graph.add("Gather", joined, graph.constant(np.argsort(np.concatenate(order))), axis=1)


def _one_hot(table: RawTable, column: CodedColumn) -> Float64:
    """Return the values of the stored feature columns for each code, (width + 1, width); the last row is for no
    value.
    """
    rows = np.eye(column.width + 1, column.width) - table.offsets[column.first : column.first + column.width]
    return rows.astype(np.float32).astype(np.float64)


def _kind_of_input(table: RawTable, name: str) -> str:
    """Return the type of the input for a column of the table: 'number', 'text' or 'time'."""
    kind = table.sources[name]
    if kind == YEARS:
        return "time"
    is_text = kind in (BOOLEAN, HASHED, TEXT) or (kind == CATEGORY and not table.is_numeric(name))
    return "text" if is_text else "number"


def _declare_input(table: RawTable, name: str) -> Any:
    """Return the declaration of the input for a column of the table."""
    kind = _kind_of_input(table, name)
    meaning = MEANINGS.get(table.sources[name]) or MEANINGS[kind]
    return value_info(name, str if kind == "text" else np.float64, 1, meaning=meaning)


def _add_number(graph: GraphBuilder, table: RawTable, column: Column, times: dict[str, Clock]) -> str:
    """Add a column with one number per row, (n, 1) float64; NaN for missing values."""
    if column.kind == YEARS:
        return times[column.name].years
    if column.kind == BOOLEAN:
        yes, no = truth_words()
        codes = {**dict.fromkeys(yes, 1), **dict.fromkeys(no, 0), **dict.fromkeys(table.words.added, 2)}
        return graph.add("Gather", graph.constant(np.array([0.0, 1.0, np.nan])), graph.encode(column.name, codes, 2))
    values = column.name
    for value in table.words.values:
        absent = graph.add("Equal", values, graph.constant(np.array(value)))
        values = graph.add("Where", absent, graph.constant(np.array(np.nan)), values)
    return values


def _add_source_codes(graph: GraphBuilder, table: RawTable, name: str) -> str:
    """Add the codes (n,) int64 of a categorical column of the raw table: the number of the known value; with v known
    values, v for other values, and v + 1 for missing ones.
    """
    values = table.values_of(name)
    known, absent = {value: code for code, value in enumerate(values)}, len(values) + 1
    if not table.is_numeric(name):
        variants = {f"{value}.0": code for value, code in known.items() if WHOLE.fullmatch(value)}
        variants |= {value.strip(): code for value, code in known.items() if trims_blanks(values)}
        variants |= {value.capitalize(): code for value, code in known.items() if value in ("true", "false")}
        words = dict.fromkeys(table.words.added, absent)
        return graph.flatten(graph.encode(name, {"": absent} | variants | known | words, len(values)))
    numbers = {int(value): code for value, code in known.items()}
    numbers |= {int(value): absent for value in table.words.values if value == int(value)}
    other_code, missing_code = min(numbers) - 1, min(numbers) - 2
    whole = graph.add("Equal", graph.add("Floor", name), name)
    clipped = graph.add("Where", whole, name, graph.constant(np.array(float(other_code))))
    clipped = graph.add("Where", graph.add("IsNaN", name), graph.constant(np.array(float(missing_code))), clipped)
    limit = graph.constant(np.array(float(max(numbers) + 1)))
    clipped = graph.add("Max", graph.add("Min", clipped, limit), graph.constant(np.array(float(missing_code))))
    return graph.flatten(
        graph.encode(graph.add("Cast", clipped, to=INT64), numbers | {missing_code: absent}, len(values))
    )


def _add_codes(graph: GraphBuilder, table: RawTable, column: Column, codes_of_sources: dict[str, str]) -> str:
    """Add the number of the feature column that is 1 for a category or a cross, (n,) int64; the column's width for
    none.
    """
    values = [table.values_of(name) for name in column.sources]
    shape = [len(known) + 2 for known in values]
    if np.prod(shape, dtype=np.float64) > MOST_CROSSED:
        raise UsageError(f"the cross '{column.name}' has more than {MOST_CROSSED} combinations of values", hint=KEEP)
    none, other = column.width, column.width - 1 if has_other(column) else column.width
    codes = np.full(shape, other, np.int64)
    for axis in range(len(shape)):
        np.moveaxis(codes, axis, 0)[-1] = none  # a missing part
    place = [{value: code for code, value in enumerate(known)} for known in values]
    for code, parts in enumerate(split_values(column)):
        codes[tuple(place[k][value] for k, value in enumerate(parts))] = code
    combined = codes_of_sources[column.sources[0]]
    for name, size in zip(column.sources[1:], shape[1:], strict=True):
        combined = graph.add("Mul", combined, graph.constant(np.array(size)))
        combined = graph.add("Add", combined, codes_of_sources[name])
    return graph.add("Gather", graph.constant(codes.ravel()), combined)


class Clock(NamedTuple):
    """The names of the parts of a point in time. The codes of ``month``, ``weekday`` and ``hour`` are (n,) int64: the
    number of the feature column; for missing times the number of feature columns.
    """

    years: str
    """Years since 2000 (n, 1) float64, NaN where the time is missing."""
    month: str
    weekday: str
    hour: str

    def code_of(self, kind: str) -> str:
        """Return the name of the codes of a calendar part ('month', 'weekday' or 'hour')."""
        return str(getattr(self, kind))


def _add_clock(graph: GraphBuilder, name: str) -> Clock:
    """Add the parts of points in time, given in seconds since 1970. All numbers stay below 2^53, so that float64 is
    exact.
    """

    def number(value: float) -> str:
        return graph.constant(np.array(float(value)))

    def quotient(value: str, by: float) -> str:
        return graph.add("Floor", graph.add("Div", value, number(by)))

    def remainder(value: str, by: float) -> str:
        return graph.add("Sub", value, graph.add("Mul", quotient(value, by), number(by)))

    def code(value: str, none: int) -> str:
        kept = graph.add("Where", absent, number(none), value)
        return graph.flatten(graph.add("Cast", kept, to=INT64))

    seconds = graph.add("Floor", name)
    years = graph.add("Div", graph.add("Sub", seconds, number(YEAR_2000)), number(YEAR_SECONDS))
    absent = graph.add("IsNaN", name)
    seconds = graph.add("Where", absent, number(0), seconds)
    days = quotient(seconds, 86400)
    hour = quotient(remainder(seconds, 86400), 3600)
    weekday = remainder(graph.add("Add", days, number(3)), 7)
    day = remainder(graph.add("Add", days, number(719_468)), 146_097)  # day in a cycle of 400 years
    leap = graph.add("Sub", quotient(day, 36_524), quotient(day, 146_096))
    year = quotient(graph.add("Add", graph.add("Sub", day, quotient(day, 1460)), leap), 365)
    leap = graph.add("Sub", quotient(year, 4), quotient(year, 100))
    day = graph.add(
        "Sub", day, graph.add("Add", graph.add("Mul", year, number(365)), leap)
    )  # day in the year that begins on March 1
    since_march = quotient(graph.add("Add", graph.add("Mul", day, number(5)), number(2)), 153)
    month = remainder(graph.add("Add", since_march, number(2)), 12)
    return Clock(years, code(month, 12), code(weekday, 7), code(hour, 24))


# -- the model ---------------------------------------------------------------------------------------------------------


def _add_decision(model: Model, graph: GraphBuilder, rows: str) -> str:
    """Add the decision values (n, k) of stored rows."""
    if isinstance(model.expansion, Hats):
        return _add_curves(model, model.expansion, graph, rows)
    if isinstance(model.expansion, Expansion):
        rows = _add_kernel_values(model.expansion, graph, rows)
    product = graph.add("MatMul", rows, graph.constant(model.weights[:, :-1].T))
    return graph.add("Add", product, graph.constant(model.weights[:, -1]))


def _add_curves(model: Model, hats: Hats, graph: GraphBuilder, rows: str) -> str:
    """Add the decision values (n, k) of stored rows (n, d) by a model of curves.

    The number r of the piece is the number of inner knots that are not above x. The two hat functions of the piece are
    rounded to float32, as the model rounds them, and so are numbers that are compared with the values of jumps.
    """
    decision = graph.constant(model.weights[:, -1][np.newaxis])
    if len(hats.linear):
        marks = graph.add("Gather", rows, graph.constant(hats.linear.astype(np.int64)), axis=1)
        weights = graph.constant(hats.linear_weights(model.weights).T)
        decision = graph.add("Add", decision, graph.add("MatMul", marks, weights))
    one = graph.constant(np.array(1.0))
    for column, start, stop in zip(hats.curved.tolist(), hats.starts, hats.starts[1:], strict=False):
        knots, theta = hats.knots[start:stop].astype(np.float64), model.weights[:, start:stop].T
        x = graph.add("Gather", rows, graph.constant(np.array([column])), axis=1)
        x = graph.add("Clip", x, graph.constant(knots[0].reshape(())), graph.constant(knots[-1].reshape(())))
        is_below = graph.add("GreaterOrEqual", x, graph.constant(knots[1:-1][np.newaxis]))
        counted = graph.add("Cast", is_below, to=INT64)
        piece = graph.add("ReduceSum", counted, graph.constant(np.array([1])), keepdims=0)
        left = graph.add("Gather", graph.constant(knots[:-1, np.newaxis]), piece, axis=0)
        width = graph.add("Gather", graph.constant(np.diff(knots)[:, np.newaxis]), piece, axis=0)
        share = graph.add("Div", graph.add("Sub", x, left), width)
        for values, hat in ((theta[:-1], graph.add("Sub", one, share)), (theta[1:], share)):
            single = graph.add("Cast", hat, to=FLOAT)
            rounded = graph.add("Cast", single, to=DOUBLE)
            effect = graph.add("Gather", graph.constant(values), piece, axis=0)
            decision = graph.add("Add", decision, graph.add("Mul", rounded, effect))
    if hats.jumps is not None:
        of_jumps = hats.jump_weights(model.weights[:, :-1]).T
        for column, start, stop in zip(
            hats.jumps.columns.tolist(), hats.jumps.starts, hats.jumps.starts[1:], strict=False
        ):
            x = graph.add("Cast", graph.add("Gather", rows, graph.constant(np.array([column])), axis=1), to=FLOAT)
            is_value = graph.add("Equal", x, graph.constant(hats.jumps.values[np.newaxis, start:stop]))
            indicators = graph.add("Cast", is_value, to=DOUBLE)
            decision = graph.add("Add", decision, graph.add("MatMul", indicators, graph.constant(of_jumps[start:stop])))
    return decision if hats.pairs is None else _add_pairs(model, hats.pairs, graph, rows, decision)


def _add_pairs(model: Model, pairs: ColumnPairs, graph: GraphBuilder, rows: str, decision: str) -> str:
    """Add the tables of pairs of columns to the decision values (n, k).

    The cell of a number is the number of its edges that are not above it, after rounding to float32 as in stored rows; the
    cell of a category is the largest one of its columns that are not 0.
    """
    cells, last = [], graph.constant(np.array([1]))
    for v in range(len(pairs.counts)):
        columns, levels = (np.array(part) for part in zip(*pairs.columns_of(v), strict=True))
        values = graph.add("Gather", rows, graph.constant(columns), axis=1)
        if levels[0] == NO_LEVEL:
            values = graph.add("Cast", values, to=FLOAT)
            passed = graph.add("GreaterOrEqual", values, graph.constant(pairs.edges_of(v)[np.newaxis]))
            counted = graph.add("Cast", passed, to=INT64)
            cells.append(graph.add("ReduceSum", counted, last, keepdims=0))
        else:
            is_zero = graph.add("Equal", values, graph.constant(np.array(0.0)))
            present = graph.add("Cast", graph.add("Not", is_zero), to=INT64)
            of_columns = graph.add("Mul", present, graph.constant(levels[np.newaxis]))
            cells.append(graph.add("ReduceMax", of_columns, axes=[1], keepdims=0))
    weights = model.weights[:, -1 - pairs.features : -1].T
    for (a, b), start, stop in zip(pairs.pairs.tolist(), pairs.starts, pairs.starts[1:], strict=False):
        row = graph.add("Mul", cells[a], graph.constant(np.array(int(pairs.counts[b]))))
        place = graph.add("Add", row, cells[b])
        effect = graph.add("Gather", graph.constant(weights[start:stop]), place, axis=0)
        decision = graph.add("Add", decision, effect)
    return decision


def _add_kernel_values(expansion: Expansion, graph: GraphBuilder, rows: str) -> str:
    """Add the kernel values (n, m) of stored rows with the points of the model."""
    if expansion.scale is not None and expansion.shift is not None:
        shifted = graph.add("Sub", rows, graph.constant(expansion.shift.astype(np.float64)))
        rows = graph.add("Mul", shifted, graph.constant(expansion.scale.astype(np.float64)))
    points, parameters = _dense_points(expansion), expansion.parameters
    if expansion.kernel == "rbf":
        center = points.mean(axis=0)
        rows, points = graph.add("Sub", rows, graph.constant(center)), points - center
    if expansion.kernel == "laplacian":
        each_row = graph.add("Unsqueeze", rows, graph.constant(np.array([1])))
        differences = graph.add("Sub", each_row, graph.constant(points))
        length = graph.add("ReduceSum", graph.add("Abs", differences), graph.constant(np.array([2])), keepdims=0)
        return graph.add("Exp", graph.add("Mul", length, graph.constant(np.array(-parameters["gamma"]))))
    product = graph.add("MatMul", rows, graph.constant(points.T))
    if expansion.kernel == "rbf":
        return _add_rbf(graph, rows, points, product, parameters["gamma"])
    if expansion.kernel == "linear":
        return graph.add("Mul", product, graph.constant(np.array(parameters["scale"])))
    scaled = graph.add("Mul", product, graph.constant(np.array(parameters["gamma"])))
    moved = graph.add("Add", scaled, graph.constant(np.array(parameters["coef0"])))
    if expansion.kernel == "sigmoid":
        return graph.add("Tanh", moved)
    if expansion.kernel == "polynomial":
        return graph.add("Pow", moved, graph.constant(np.array(parameters["degree"])))
    raise UsageError(f"the kernel '{expansion.kernel}' has no operators in ONNX", hint="keep the model as it is")


def _add_rbf(graph: GraphBuilder, rows: str, points: Float64, product: str, gamma: float) -> str:
    """Add exp(-gamma max(0, |x|^2 + |z|^2 - 2 x.z)) (n, m). Rows and points have been centered at the mean of the
    points, to avoid cancellation.
    """
    squares = graph.add("ReduceSum", graph.add("Mul", rows, rows), graph.constant(np.array([1])), keepdims=1)
    doubled = graph.add("Mul", product, graph.constant(np.array(2.0)))
    sums = graph.add("Add", squares, graph.constant(np.square(points).sum(axis=1)))
    distances = graph.add("Max", graph.add("Sub", sums, doubled), graph.constant(np.array(0.0)))
    return graph.add("Exp", graph.add("Mul", distances, graph.constant(np.array(-gamma))))


def _dense_points(expansion: Expansion) -> Float64:
    """Return the points as a matrix (m, d) float64."""
    points = expansion.points
    if isinstance(points, CSR):
        shape = (len(points.indptr) - 1, expansion.columns)
        dense: Array = scipy.sparse.csr_array((points.data, points.indices, points.indptr), shape).toarray()
        return dense.astype(np.float64)
    return points.values.astype(np.float64)


def _add_prediction(graph: GraphBuilder, decision: str, out: str) -> Any:
    """Add the predicted numbers and return their declaration."""
    graph.add("Squeeze", decision, graph.constant(np.array([1])), out=out)
    return value_info(out, np.float64)


def _add_labels(model: Model, graph: GraphBuilder, decision: str, out: str) -> Any:
    """Add the labels and return their declaration."""
    if len(model.weights) == 1:
        positive = graph.add("Greater", decision, graph.constant(np.array(model.threshold)))
        codes = graph.add("Squeeze", graph.add("Cast", positive, to=INT64), graph.constant(np.array([1])))
    else:
        codes = graph.add("ArgMax", decision, axis=1, keepdims=0)
    whole = all(WHOLE.fullmatch(name) for name in model.classes)
    names = np.array([int(name) for name in model.classes]) if whole else np.array(model.classes, np.object_)
    graph.add("Gather", graph.constant(names), codes, out=out, axis=0)
    return value_info(out, np.int64 if whole else str)


def _add_calibrator(graph: GraphBuilder, calibrator: Calibrator, decision: str, problems: int) -> str:
    """Add the nodes of a calibrator for ``problems`` decision values, and return the name of the probabilities.

    Raises UsageError for an unknown calibrator.
    """
    if isinstance(calibrator, PlattSigmoid):
        sloped = graph.add("Mul", decision, graph.constant(calibrator.slopes))
        moved = graph.add("Add", sloped, graph.constant(calibrator.offsets))
        return _add_normalize(graph, _add_sigma(graph, moved), problems)
    if isinstance(calibrator, Isotonic):
        return _add_normalize(graph, _add_interpolation(graph, calibrator, decision), problems)
    if isinstance(calibrator, Temperature):
        scaled = graph.add("Mul", decision, graph.constant(np.array(calibrator.inverse)))
        if problems == 1:
            return _add_normalize(graph, _add_sigma(graph, scaled), problems)
        if calibrator.offsets:
            scaled = graph.add("Add", scaled, graph.constant(np.array(calibrator.offsets)))
        return graph.add("Softmax", scaled, axis=1)
    raise UsageError(f"the calibration '{calibrator.method}' has no operators in ONNX", hint="keep the model as it is")


def _add_normalize(graph: GraphBuilder, values: str, problems: int) -> str:
    """Add ``calibrators.normalize``: the probabilities of all classes from those of each class against the rest."""
    one = graph.constant(np.array(1.0))
    if problems == 1:
        return graph.add("Concat", graph.add("Sub", one, values), values, axis=1)
    sums = graph.add("ReduceSum", values, graph.constant(np.array([1])), keepdims=1)
    is_positive = graph.add("Greater", sums, graph.constant(np.array(0.0)))
    each = graph.constant(np.array(float(problems)))
    return graph.add("Div", graph.add("Where", is_positive, values, one), graph.add("Where", is_positive, sums, each))


def _add_sigma(graph: GraphBuilder, z: str) -> str:
    """Add ``calibrators.sigma``: 1 / (1 + e^-z), without overflow or cancellation."""
    one, below = graph.constant(np.array(1.0)), graph.add("Less", z, graph.constant(np.array(0.0)))
    tail = graph.add("Exp", graph.add("Neg", graph.add("Abs", z)))
    return graph.add("Div", graph.add("Where", below, tail, one), graph.add("Add", one, tail))


def _add_interpolation(graph: GraphBuilder, calibrator: Isotonic, decision: str) -> str:
    """Add the isotonic functions g_k(f_k) (n, k): the value at the last breakpoint <= f, plus the slope after it times
    the distance to it.
    """
    bits = max(len(at) for at, _ in calibrator.steps).bit_length()
    tables = [_pad_breakpoints(at, values, 1 << bits) for at, values in calibrator.steps]
    at, values, slopes = (graph.constant(np.concatenate(parts)) for parts in zip(*tables, strict=True))
    f = graph.add("Max", decision, graph.constant(np.array([first[0] for first, _ in calibrator.steps])))
    starts = graph.constant(np.arange(len(tables), dtype=np.int64) << bits)
    place = graph.add("Add", graph.add("Cast", graph.add("Mul", f, graph.constant(np.array(0.0))), to=INT64), starts)
    for bit in reversed(range(bits)):
        further = graph.add("Add", place, graph.constant(np.array(1 << bit)))
        reached = graph.add("GreaterOrEqual", f, graph.add("Gather", at, further))
        place = graph.add("Where", reached, further, place)
    beyond = graph.add("Sub", f, graph.add("Gather", at, place))
    return graph.add(
        "Add", graph.add("Gather", values, place), graph.add("Mul", graph.add("Gather", slopes, place), beyond)
    )


def _pad_breakpoints(at: Float64, values: Float64, size: int) -> tuple[Float64, Float64, Float64]:
    """Return the breakpoints of one function, the values at them and the slopes after them, padded to ``size`` with
    breakpoints at infinity.
    """
    widths, rises = np.diff(at), np.diff(values)
    slopes = np.divide(rises, widths, out=np.zeros(len(widths)), where=widths > 0)
    more = size - len(at)
    return (
        np.append(at, np.full(more, np.inf)),
        np.append(values, np.full(more, values[-1])),
        np.append(slopes, np.zeros(more + 1)),
    )


def value_info(name: str, kind: Any, *shape: int, meaning: str = "") -> Any:
    """Return the declaration of an input or output with any number of rows; ``shape``: its further dimensions."""
    from onnx import TensorProto, helper

    kinds = {np.float64: TensorProto.DOUBLE, np.int64: TensorProto.INT64, str: TensorProto.STRING}
    return helper.make_tensor_value_info(name, kinds[kind], ["n", *shape], meaning)
