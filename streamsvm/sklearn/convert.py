"""Convert a model to estimators of scikit-learn: a linear model to a LinearSVC, a kernel model to a pipeline that ends with one.

The public attributes of the estimators are set as after a fit. Their pickle contains no class of streamsvm, only estimators of scikit-learn
and arrays, which ``skops`` loads without a list of trusted types.

A model of a table becomes a pipeline for a pandas frame of the raw table with columns in any order: a ``ColumnTransformer`` reads each column
by its name. Texts, amounts and dates are read by functions of numpy and pandas in ``FunctionTransformer``; ``skops`` requires these
functions to be trusted. A category is a ``OneHotEncoder`` with the categories of the model. A hashed value is hashed by ``hashlib``. The month, weekday or hour of a point in time is
computed from the number of months, days or hours since 1970, whose remainder ``numpy.interp`` computes with ``period``.
"""

from __future__ import annotations

import hashlib
import re
import warnings
from collections.abc import Callable
from functools import partial
from operator import attrgetter, methodcaller
from typing import Any

import numpy as np
import scipy.sparse
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from sklearn.svm import LinearSVC
from sklearn.utils import check_array

from streamsvm.calibration.calibrators import PlattSigmoid, Temperature
from streamsvm.errors import StreamSVMWarning, UsageError
from streamsvm.features.expansion import Expansion
from streamsvm.jobs.export.table import (
    RawTable,
    has_other,
    has_whole_numbers,
    raw_table,
    trims_blanks,
    values_without_rare,
)
from streamsvm.model import Model
from streamsvm.rows import CSR, Float64, Int64
from streamsvm.store.sources.cell_parsing import CURRENCIES, EPOCH, EXAMPLES, FALSE, ISO, TRUE, YEAR_2000, YEAR_SECONDS
from streamsvm.store.sources.schema import AMOUNT, BOOLEAN, CATEGORY, HASHED, NUMBER, OTHER, SINGLE, YEARS, Column
from streamsvm.store.sources.table import CROSSED

ARGUMENTS = {"polynomial": ("gamma", "coef0", "degree"), "sigmoid": ("gamma", "coef0"), "linear": ()}
"""Parameters of a kernel with the same names in scikit-learn; other kernels have only gamma."""
MISSING = ""
"""The text that represents a missing value."""
EPOCHS = {"month": "datetime64[M]", "weekday": "datetime64[D]", "hour": "datetime64[h]"}
"""The numpy unit, counted from 1970, for each part of the calendar."""
FIRST_CODES = {"month": 0, "weekday": 3, "hour": 0}
"""The code of the first unit of 1970: January (0), Thursday (3), and the hour after midnight (0)."""
MAX_SECONDS = 1e12
"""A bound on all times in seconds since 1970; numpy converts a missing time to a number below minus this one."""


def convert_model(model: Model) -> Any:
    """Return a fitted estimator with the decision function of a model minus its threshold (``Model.to_sklearn``)."""
    model.refuse_pairs()
    model.refuse_curves("scikit-learn")
    calibrator = None if model.calibration is None else model.calibration.calibrator
    logistic = (
        isinstance(calibrator, PlattSigmoid)
        and len(model.weights) == 1
        and not model.threshold
        and bool((calibrator.slopes == 1.0).all() and (calibrator.offsets == 0.0).all())
    )
    if isinstance(calibrator, Temperature) and len(model.weights) > 1:
        logistic = calibrator.inverse == 1.0 and not calibrator.offsets
    model = model.decide_at_zero()
    if calibrator is not None and not logistic:
        warnings.warn(
            "the estimator has the decision function alone, not the model's probabilities",
            StreamSVMWarning,
            stacklevel=4,
        )
    table = raw_table(model)
    order, first_steps = np.arange(model.columns), list[tuple[str, Any]]()
    if table is not None and "schema" in (model.provenance.get("encoding") or {}):
        columns, order = make_columns(table, dense=model.expansion is not None)
        first_steps = [("columns", columns)]
    if not isinstance(model.expansion, Expansion):
        last = _make_linear(model, model.coef[:, order], logistic=logistic)
        return Pipeline([*first_steps, ("linear", last)]) if first_steps else last
    expansion = model.expansion
    factor = expansion.parameters["scale"] if expansion.kernel == "linear" else 1.0
    kernel = _make_kernel(expansion, factor * model.weights[:, :-1], order)
    linear = _make_linear(model, np.eye(len(model.weights)), logistic=logistic)
    scaler = _make_scaler(model, expansion, order)
    if not first_steps and scaler != "passthrough":
        first_steps = [("float64", _make_widening(expansion.columns))]
    return Pipeline([*first_steps, ("scale", scaler), ("kernel", kernel), ("linear", linear)])


def _make_linear(model: Model, weights: Float64, *, logistic: bool) -> Any:
    """Return the linear classifier, or the regression, with these weights (k, d)."""
    if model.numeric:
        regression = LinearRegression()
        regression.coef_, regression.intercept_ = weights[0].copy(), float(model.intercept[0])
        regression.n_features_in_ = weights.shape[1]
        return regression
    classifier = LogisticRegression() if logistic else LinearSVC()
    classifier.coef_, classifier.intercept_ = weights.copy(), np.array(model.intercept)
    classifier.classes_, classifier.n_features_in_, classifier.n_iter_ = model.labels, weights.shape[1], 0
    return classifier


def _make_widening(columns: int) -> FunctionTransformer:
    """Return a step that converts rows to float64, because a scaler subtracts means from float32 rows in float32, which loses precision."""
    step = FunctionTransformer(check_array, kw_args={"accept_sparse": True, "dtype": np.float64})
    step.n_features_in_ = columns
    return step


def _make_scaler(model: Model, expansion: Expansion, order: Int64) -> StandardScaler | str:
    """Return the step that subtracts shifts and offsets from columns and scales them; 'passthrough' if there are none.

    As in scikit-learn, sparse rows are accepted only if nothing is subtracted.
    """
    mean = np.zeros(expansion.columns) if expansion.shift is None else expansion.shift.astype(np.float64)
    mean[list(model.offsets)] += list(model.offsets.values())
    mean = mean[order]
    if expansion.scale is None and not mean.any():
        return "passthrough"
    return _fit_scaler(mean, None if expansion.scale is None else 1.0 / expansion.scale[order].astype(np.float64))


def _fit_scaler(mean: Float64, scale: Float64 | None) -> StandardScaler:
    """Return a fitted StandardScaler with these means (d,) and scales (d,)."""
    scaler = StandardScaler(with_mean=bool(mean.any()), with_std=scale is not None)
    fitted = {"mean_": mean, "scale_": scale, "var_": None if scale is None else np.square(scale)}
    vars(scaler).update(fitted, n_features_in_=len(mean), n_samples_seen_=0)
    return scaler


def _make_kernel(expansion: Expansion, weights: Float64, order: Int64) -> Nystroem:
    """Return a fitted Nystroem step whose output is the kernel values with the points times ``weights`` (points, m)."""
    points = expansion.points
    if isinstance(points, CSR):
        shape = (len(points.indptr) - 1, expansion.columns)
        values: Any = scipy.sparse.csr_matrix((points.data.astype(np.float64), points.indices, points.indptr), shape)
    else:
        values = points.values.astype(np.float64)
    values = values[:, order]
    parameters = {name: expansion.parameters[name] for name in ARGUMENTS.get(expansion.kernel, ("gamma",))}
    step = Nystroem(expansion.kernel, **parameters, n_components=len(weights))
    fitted = {"components_": values, "normalization_": weights, "component_indices_": np.arange(values.shape[0])}
    vars(step).update(fitted, n_features_in_=expansion.columns, _n_features_out=len(weights))
    return step


# -- the columns of a table --------------------------------------------------------------------------------------------


def make_columns(table: RawTable, *, dense: bool) -> tuple[ColumnTransformer, Int64]:
    """Return the step that encodes a pandas frame of raw columns, found by their names, as feature columns of the model.

    Also return the index in the model of each feature column; hashed columns share indices, which occur once for each of them. Raises UsageError
    without pandas, for text cut into words or characters, and for hashed columns of a kernel model (``dense``).
    """
    try:
        import pandas as pd
    except ModuleNotFoundError as error:
        raise UsageError("the columns of a table are read by pandas", hint="pip install pandas") from error
    table.check("scikit-learn", clocks=True, hashes=() if dense else (HASHED,))
    reader, example = ColumnReader(pd, table), pd.DataFrame({name: [_example(table, name)] for name in table.sources})
    places = np.array([first for first, column in table.columns_with_places() if column.kind in SINGLE], np.int64)
    order, transformers = [places, table.schema.width + np.arange(len(table.indicators))], list[Any]()
    if len(places):
        singles = [column for column in table.schema.columns if column.kind in SINGLE]
        each = [
            (f"{column.name}: {column.kind}", _freeze(reader.read_number(column)), column.name) for column in singles
        ]
        steps = [("read", ColumnTransformer(each, sparse_threshold=0).fit(example)), *_make_filling(table, places)]
        transformers.append(("numbers", _freeze(Pipeline(steps)), list(dict.fromkeys(c.name for c in singles))))
    for first, column in table.columns_with_places():
        if column.kind not in SINGLE:
            names = list(column.parts) or column.name
            transformers.append((f"{column.name}: {column.kind}", _freeze(reader.read_codes(column)), names))
            is_hashed = column.kind == HASHED
            start, width = (table.schema.own_width, 1 << table.schema.hash_bits) if is_hashed else (first, column.width)
            order.append(start + np.arange(width))
    encoder = ColumnTransformer(transformers, **({"sparse_threshold": 0} if dense else {}))
    return encoder.fit(example), np.concatenate(order)


def _freeze(fitted: Pipeline) -> Any:
    """Return a step that is not changed when the pipeline that contains it is fitted."""
    from sklearn.frozen import FrozenEstimator

    return FrozenEstimator(fitted)


def _example(table: RawTable, name: str) -> Any:
    """Return a valid value of the raw column of this name."""
    column = next(column for column in table.schema.columns if name in column.sources)
    if column.kind in (CATEGORY, BOOLEAN):
        return TRUE[0]
    if column.kind in (NUMBER, AMOUNT) or column.form == EPOCH:
        return "0" if column.kind == AMOUNT else 0.0
    zone = "+00:00" if column.zone else ""
    return EXAMPLES[column.form or ISO] + (f"T00:00:00{zone}" if zone else "")


def _make_filling(table: RawTable, places: Int64) -> list[tuple[str, SimpleImputer]]:
    """Return the step that replaces missing values in the columns ``places`` and adds their indicators; none if missing values are errors."""
    if table.filling is None:
        return []
    values = table.filling[places] + table.offsets[places]
    # fitted to two rows, the second of which has a missing value in every column with an indicator
    row_with_missing = np.where(np.isin(places, table.indicators), np.nan, values)
    filling = SimpleImputer(add_indicator=bool(len(table.indicators)), keep_empty_features=True)
    return [("fill", filling.fit(np.stack([values, row_with_missing])))]


class ColumnReader:
    """Builds the steps that read columns of a frame: one column as a pandas Series, the columns of a cross as a frame."""

    def __init__(self, pd: Any, table: RawTable) -> None:
        self._pd, self._table = pd, table

    def read_number(self, column: Column) -> Pipeline:
        """Return the steps from a Series to numbers (n, 1), NaN for missing values."""
        if column.kind == YEARS:
            years = _fit_scaler(np.array([YEAR_2000]), np.array([YEAR_SECONDS]))
            return make_pipeline(*self._read_times(column, "datetime64[s]"), *_as_column(), years)
        steps = []
        if column.kind != NUMBER or self._table.words.added:
            steps = [*_read_texts(), *self._remove_words(), *_write_as_numbers(column)]
        steps.append(_call(self._pd.to_numeric))
        if self._table.words.values:
            steps.append(_method("replace", list(self._table.words.values), np.nan))
        return make_pipeline(*steps, _method("astype", "float64"), *_as_column())

    def read_codes(self, column: Column) -> Pipeline:
        """Return the steps from a Series, or the frame of a cross, to one-hot feature columns, or to those of a hash."""
        if column.kind == HASHED:
            return self._read_hashes(column)
        if column.kind != CATEGORY:
            start, count = FIRST_CODES[column.kind], column.width
            codes = [float((unit + start) % count) for unit in range(count)]
            remainder = _call(np.interp, xp=[float(unit) for unit in range(count)], fp=codes, period=float(count))
            encoder = OneHotEncoder(categories=[np.arange(float(count))], handle_unknown="ignore")
            times = self._read_times(column, EPOCHS[column.kind])
            return make_pipeline(*times, remainder, *_as_column(), encoder.fit(np.zeros((1, 1))))
        values, cross = list(values_without_rare(column)), bool(column.parts)
        steps = _read_texts()
        if cross:
            steps += [_method("add", CROSSED), _call(np.sum, axis=1), *_replace(f"{CROSSED}$", "")]
        steps += self._remove_words()
        names = [value for source in column.sources for value in self._table.values_of(source)]
        if has_whole_numbers(names):
            steps += _replace(rf"(^|{CROSSED})([+-]?[0-9]+)\.0+(?={CROSSED}|$)", r"\1\2")
        for truth in {"true", "false"} & set(names):
            steps += _replace(rf"(^|{CROSSED}){truth.capitalize()}(?={CROSSED}|$)", rf"\1{truth}")
        if cross:
            steps += _replace(rf"^{CROSSED}.*$|^.*{CROSSED}$|^.*{CROSSED}{CROSSED}.*$", MISSING)
        elif trims_blanks(values):
            values = [value.strip() for value in values]
            steps += _replace(r"^\s+|\s+$", "")
        return make_pipeline(*steps, *_as_column(), _make_encoder(values, has_other(column)))

    def _read_hashes(self, column: Column) -> Pipeline:
        """Return the steps from a Series to the feature columns of its hash: the sign in one of them, all 0 for a missing value.

        The steps: 'NAME=VALUE', or nothing for a missing value; its hash, whose 8 bytes become 9, the last of them 1 for a missing value; its
        bits; the number place + 2^bits [the sign is negative] + 2^(bits + 1) [missing]; its one-hot encoding, in which numbers of missing
        values are unknown; and the difference of its halves.
        """
        places = 1 << self._table.schema.hash_bits
        steps = [
            *_read_texts(),
            *self._remove_words(),
            *_replace(r"^([+-]?[0-9]+)\.0+$", r"\1"),
            *_replace(r"^\s+|\s+$", ""),
        ]
        steps += _replace(r"^(?=[\s\S])", f"{column.name}=".replace("\\", r"\\"))
        steps += [FunctionTransformer(attrgetter("str")), _method("encode", "utf-8")]
        steps += [_method("map", partial(hashlib.blake2b, digest_size=8)), _method("map", methodcaller("digest"))]
        missing = hashlib.blake2b(b"", digest_size=8).digest()
        steps += [_method("replace", missing, b"\0" * 8 + b"\1"), _call(np.asarray, dtype="S9")]
        steps += [_method("view", "u1"), _method("reshape", -1, 9), _call(np.unpackbits, axis=1, bitorder="little")]
        value_of_bit = np.zeros(72, np.int64)
        value_of_bit[: self._table.schema.hash_bits] = 1 << np.arange(self._table.schema.hash_bits)
        value_of_bit[63], value_of_bit[64] = places, 2 * places
        steps += [_method("dot", value_of_bit), *_as_column()]
        encoder = OneHotEncoder(categories=[np.arange(2 * places)], handle_unknown="ignore").fit(
            np.zeros((1, 1), np.int64)
        )
        each = scipy.sparse.eye(places, format="csr")
        return make_pipeline(*steps, encoder, _method("dot", scipy.sparse.vstack([each, -each], format="csr")))

    def _remove_words(self) -> list[FunctionTransformer]:
        """Return the steps that replace the words which the user declared as missing values by the missing text."""
        if not self._table.words.added:
            return []
        words = "|".join(map(re.escape, self._table.words.added))
        return _replace(rf"(^|{CROSSED})\s*(?:{words})\s*(?={CROSSED}|$)", r"\1")

    def _read_times(self, column: Column, unit: str) -> list[FunctionTransformer]:
        """Return the steps from points in time to whole units since 1970 (n,), float64, NaN for missing values."""
        form, steps = column.form, list[FunctionTransformer]()
        if self._table.words.values and form == EPOCH:
            steps.append(_method("replace", list(self._table.words.values), np.nan))
        elif self._table.words.added and form != EPOCH:
            steps.append(_method("replace", list(self._table.words.added), MISSING))
        if form.endswith("%y"):
            form = form.replace("%y", "%Y")
            steps += _replace(r"^(.*\D)([3-9]\d)$", r"\g<1>19\2")
            steps += _replace(r"^(.*\D)([0-2]\d)$", r"\g<1>20\2")
        options = {"unit": "s"} if form == EPOCH else {"format": "ISO8601" if form in ("", ISO) else form}
        steps.append(_call(self._pd.to_datetime, utc=True, **options))
        if column.kind != YEARS and not column.form and column.zone:
            steps += [
                _call(self._pd.DatetimeIndex),
                _method("tz_convert", column.zone),
                _method("tz_localize", None),
            ]
        steps += [_call(np.asarray, dtype=one) for one in dict.fromkeys(("datetime64[s]", unit, "float64"))]
        ends = [-MAX_SECONDS, 0.0, MAX_SECONDS]
        return [*steps, _call(np.interp, xp=ends, fp=ends, left=np.nan)]


def _call(function: Callable[..., Any], **arguments: Any) -> FunctionTransformer:
    """Return a step that calls a function of the rows with these arguments."""
    return FunctionTransformer(function, kw_args=arguments or None)


def _method(name: str, *arguments: Any) -> FunctionTransformer:
    """Return a step that calls a method of the rows, with positional arguments only, since skops cannot store keyword arguments."""
    return FunctionTransformer(methodcaller(name, *arguments))


def _replace(pattern: str, by: str) -> list[FunctionTransformer]:
    """Return the steps that replace the matches of a regular expression in a Series of text."""
    return [FunctionTransformer(attrgetter("str")), _method("replace", pattern, by, -1, None, 0, True)]


def _read_texts() -> list[FunctionTransformer]:
    """Return the steps from a Series or a frame of any type to text, which is empty for missing values."""
    return [_method("astype", "string"), _method("fillna", MISSING), _method("astype", "O")]


def _write_as_numbers(column: Column) -> list[FunctionTransformer]:
    """Return the steps that convert text to text of numbers: for amounts, and for yes and no as 1 and 0."""
    if column.kind == BOOLEAN:
        spellings = [("|".join(words), by) for words, by in ((TRUE, "1"), (FALSE, "0"))]
        return [step for words, by in spellings for step in _replace(rf"(?i)^\s*(?:{words}|{by}\.0)\s*$", by)]
    if column.kind != AMOUNT:
        return []
    steps = [*_replace(CURRENCIES, ""), *_replace(r"[\s.]" if column.form else r"[\s,]", "")]
    steps += _replace(",", ".") if column.form else []
    return [*steps, *_replace(r"^\((.*)\)$", r"-\1"), *_replace("%$", "e-2")]


def _as_column() -> list[FunctionTransformer]:
    """Return the steps that convert values (n,) to a column (n, 1)."""
    return [_call(np.asarray), _call(np.expand_dims, axis=1)]


def _make_encoder(values: list[str], other: bool) -> OneHotEncoder | Pipeline:
    """Return the one-hot encoder of a category with these values; ``other``: unknown values have a column of their own, the last."""
    if not other:
        return OneHotEncoder(categories=[values], handle_unknown="ignore").fit(np.array([values[:1]], object))
    # fitted to rows in which OTHER occurs once, so that it is infrequent, and unknown values get its column
    counted = np.array([*values, MISSING] * 2 + [OTHER], object)[:, np.newaxis]
    encoder = OneHotEncoder(
        categories=[[*values, MISSING, OTHER]], handle_unknown="infrequent_if_exist", min_frequency=2
    )
    without_missing = ColumnTransformer([("known", "passthrough", [*range(len(values)), len(values) + 1])])
    return make_pipeline(encoder, without_missing).fit(counted)
