"""The text formats of model files of LIBLINEAR and LIBSVM.

Both formats begin with lines 'key value ...' (the head), which end with a line of one word; numbers follow. Class
labels are integers; for two classes f > 0 means the first label. Columns are counted from 1: column j of a model has
index j + 1. Numbers are written with 17 digits, so that no bit of a float64 is lost.

**LIBLINEAR**: f_k(x) = w_k.x + w_k,bias B, with one weight for each column and problem. The class with the largest f is
predicted; for two classes there is one problem, and the sign of f decides, except in models of Crammer and Singer,
which have two problems. The head is followed by one line for each column, with its weight in every problem. If B >= 0,
the last line belongs to the constant feature, whose value is B.

**LIBSVM**: f_ab(x) = sum_i c_i k(x, z_i) - rho_ab for each pair of classes, with support vectors z_i. f_ab > 0 is a
vote for a, and the class with the most votes is predicted. A one-vs-rest model has one function for each class and
predicts the class of the largest; it is written as the pairs f_ab = f_a - f_b, in which the class of the largest
function wins all its votes, so that the predictions are the same. The support vectors of class a are then all points of
f_a, with coefficient c in the pairs (a, b) and -c in the pairs (b, a). A linear function has one point, its weights. In
a one-vs-one model the support vectors of class a are all points of its pairs with later classes. A regression model has
one function, no labels, and 2 as its number of classes.

References: README and linear.cpp of LIBLINEAR, README and svm.cpp of LIBSVM.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
import scipy.sparse

from streamsvm.compute.kernel_values.kernel_matrix import dense_rows
from streamsvm.errors import DataError, UsageError, quote
from streamsvm.features.expansion import Expansion
from streamsvm.input_files import read_whole
from streamsvm.kernels import KERNELS
from streamsvm.model import Model
from streamsvm.rows import CSR, Float64, Int32, Int64, row_slice
from streamsvm.type_aliases import Array

MAX_FILE_BYTES = 1 << 34
"""Size in bytes of the largest file that is read."""
MAX_LABEL = 2**31 - 1
"""Largest absolute value of a label; both libraries store labels as C integers."""
WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
KEEP_MODEL = "keep the model as it is and use 'streamsvm predict'"
SOLVERS = {"hinge": "L2R_L1LOSS_SVC_DUAL", "squared_hinge": "L2R_L2LOSS_SVC", "logistic": "L2R_LR"}
"""LIBLINEAR's name of a solver for each loss. LIBLINEAR predicts probabilities only for models of the logistic loss."""
OTHER_SOLVER = "L2R_L1LOSS_SVC_DUAL"
"""The name of the solver that is written for other losses."""
SQUARED_EPSILON_SVR, EPSILON_SVR = "L2R_L2LOSS_SVR", "L2R_L1LOSS_SVR_DUAL"
"""The names of the solvers that are written for regression models; predictions do not depend on them."""
CRAMMER_SINGER = "MCSVM_CS"
LIBLINEAR_CLASSIFIERS = {
    *SOLVERS.values(),
    CRAMMER_SINGER,
    "L2R_L2LOSS_SVC_DUAL",
    "L1R_L2LOSS_SVC",
    "L1R_LR",
    "L2R_LR_DUAL",
}
LIBSVM_KERNELS = ("linear", "polynomial", "rbf", "sigmoid")
"""Kernels that have the same name and the same parameters in LIBSVM."""
KERNEL_PARAMETERS = {
    "linear": (),
    "polynomial": ("gamma", "coef0", "degree"),
    "rbf": ("gamma",),
    "sigmoid": ("gamma", "coef0"),
}
LIBSVM_CLASSIFIERS = ("c_svc", "nu_svc")
MAX_INDEX = 10**8
"""Largest column index that is read, because a linear model has as many weights. Files of rows have the same limit."""
Entries: TypeAlias = tuple[Int32 | Int64, Float64]
"""The columns and the values of the nonzero entries of a point."""
Points: TypeAlias = Callable[[int], Entries]
"""A function that returns a point by its number."""


def write_liblinear(model: Model) -> Iterator[bytes]:
    """Yield the text of a linear model, with weights for columns in their original units.

    Raises UsageError for a kernel model, for columns that are not numeric in the source, and for labels that are not
    integers.
    """
    model.refuse_curves("LIBLINEAR")
    if model.expansion is not None:
        raise UsageError("LIBLINEAR has no kernels", hint="export it with --format libsvm")
    check_columns(model)
    model.refuse_pairs()
    head = _describe_kind(model) | {"nr_feature": model.columns, "bias": 1}
    yield "".join(f"{key} {value}\n" for key, value in head.items()).encode() + b"w\n"
    for weights in (*model.coef.T, model.intercept):
        yield f"{format_numbers(weights)}\n".encode()


def _describe_kind(model: Model) -> dict[str, object]:
    """Return the lines of the head for the solver and the classes. Raises UsageError for labels that are not integers.

    For a regression model there are no labels, but LIBLINEAR requires nr_class 2.
    """
    loss = str((model.provenance.get("settings") or {}).get("loss"))
    if model.numeric:
        return {
            "solver_type": SQUARED_EPSILON_SVR if loss == "squared_epsilon_insensitive" else EPSILON_SVR,
            "nr_class": 2,
        }
    labels = read_whole_labels(model)
    return {
        "solver_type": SOLVERS.get(loss, OTHER_SOLVER),
        "nr_class": len(labels),
        "label": " ".join(map(str, labels)),
    }


def read_liblinear(path: Path) -> Model:
    """Return the model in a LIBLINEAR file. Raises DataError E-MODEL, also for regression and one-class models."""
    text = read_text(path, "w")
    (solver,) = text.words("solver_type", 1)
    if solver not in LIBLINEAR_CLASSIFIERS:
        raise unusable_error(path, f"{solver} is not a classifier")
    labels = text.labels(text.integer("nr_class", 2))
    pair = len(labels) == 2
    problems = 1 if pair and solver != CRAMMER_SINGER else len(labels)
    bias = float(text.numbers(text.words("bias", 1), "bias")[0])
    columns, values = text.integer("nr_feature", 1), text.numbers(text.body.split(), "weights")
    if len(values) != problems * (columns + (bias >= 0.0)):
        raise unusable_error(path, f"it has {len(values)} weights for {columns} columns and {problems} problem(s)")
    weights = values.reshape(-1, problems).T
    constant = weights[:, columns] * bias if bias >= 0.0 else np.zeros(problems)
    functions = np.column_stack([weights[:, :columns], constant])
    if pair and problems == 2:  # the sign of the difference says which of the two functions is larger
        functions = functions[:1] - functions[1:]
    return Model(functions, labels[::-1] if pair else labels, {"made_by": f"LIBLINEAR {solver}"})


def write_libsvm(model: Model) -> Iterator[bytes]:
    """Yield the text of a linear or kernel model of columns in their original units.

    Raises UsageError for kernels that LIBSVM does not have, for columns that are standardized or not numeric in the
    source, and for labels that are not integers.
    """
    model.refuse_curves("LIBSVM")
    check_columns(model)
    labels = [] if model.numeric else read_whole_labels(model)
    kernel, points, weights = (
        _kernel_points(model, model.expansion) if isinstance(model.expansion, Expansion) else _linear_points(model)
    )
    rho, of_classes = (-model.intercept, [weights]) if model.numeric else _split_into_pairs(model, weights, len(labels))
    chosen = [np.flatnonzero(np.abs(coefficients).max(axis=0)) for coefficients in of_classes]
    lengths = [len(points_of_class) for points_of_class in chosen]
    head: dict[str, object] = {
        "svm_type": "epsilon_svr" if model.numeric else "c_svc",
        **kernel,
        "nr_class": len(labels) or 2,
        "total_sv": sum(lengths),
        "rho": format_numbers(rho),
    }
    if labels:
        head |= {"label": " ".join(map(str, labels)), "nr_sv": " ".join(map(str, lengths))}
    yield "".join(f"{key} {value}\n" for key, value in head.items()).encode() + b"SV\n"
    for coefficients, points_of_class in zip(of_classes, chosen, strict=True):
        for i in points_of_class.tolist():
            yield _format_vector(coefficients[:, i], *points(i))


def read_whole_labels(model: Model) -> list[int]:
    """Return the classes as integers; of two classes, the one predicted for f > 0 comes first. Raises UsageError if a
    class name is not an integer.
    """
    names = model.classes[::-1] if len(model.weights) == 1 else model.classes
    for name in names:
        if not WHOLE.fullmatch(name) or abs(int(name)) > MAX_LABEL:
            raise UsageError(
                f"the class {quote(name)} is not a whole number, and this format has no other labels",
                hint=f"ingest with labels that are whole numbers, or {KEEP_MODEL}",
            )
    return [int(name) for name in names]


def check_columns(model: Model) -> None:
    """Raise UsageError if a column of the model is not numeric in the source, because the format has only numbers."""
    schema = (model.provenance.get("encoding") or {}).get("schema") or {}
    for column in schema.get("columns", ()):
        if column["kind"] != "number":
            raise UsageError(
                f"the column {quote(column['name'])} of the table is a {column['kind']}, but this format has only numbers",
                hint=f"ingest a table of numbers, or {KEEP_MODEL}",
            )


def explain_text(model: Model) -> tuple[str, ...]:
    """Return lines that explain how to apply the exported text to files."""
    encoding = model.provenance.get("encoding") or {}
    lines = []
    if encoding.get("index_base") == 0:
        lines.append("the model's files count columns from 0, this text from 1: add 1 to the indices in the files")
    if encoding.get("schema"):
        lines.append(f"the columns of the table are {', '.join(model.names or ())} in this order, from index 1 on")
    if model.threshold:
        lines.append(
            f"the model's threshold, {model.threshold:.6g}, is subtracted from the decision values: compare them with 0"
        )
    if model.calibration is not None:
        lines.append("the text has only the decision function, without the model's probabilities")
    return tuple(lines)


def format_numbers(values: Float64) -> str:
    """Return numbers as text with 17 digits each, separated by spaces."""
    return " ".join([f"{value:.17g}" for value in values.tolist()])


class ModelText(NamedTuple):
    """A model file, parsed into head and body."""

    path: Path
    head: dict[str, list[str]]
    """The words after each key."""
    body: str
    """The text after the head."""

    def words(self, key: str, count: int | None = None) -> list[str]:
        """Return the words after a key. Raises DataError E-MODEL if the key is missing or has not ``count`` words."""
        words = self.head.get(key)
        if words is None or (count is not None and len(words) != count):
            raise unusable_error(
                self.path, f"its line '{key}' is {'missing' if words is None else 'of another length'}"
            )
        return words

    def integer(self, key: str, least: int) -> int:
        """Return the integer after a key. Raises DataError E-MODEL if it is less than ``least``."""
        (word,) = self.words(key, 1)
        if not WHOLE.fullmatch(word) or int(word) < least:
            raise unusable_error(self.path, f"{key} is {quote(word)}")
        return int(word)

    def labels(self, count: int) -> tuple[str, ...]:
        """Return the labels as class names. Raises DataError E-MODEL unless they are ``count`` different integers."""
        words = self.words("label", count)
        if not all(WHOLE.fullmatch(word) for word in words) or len(set(map(int, words))) != count:
            raise unusable_error(self.path, "its labels are not different whole numbers")
        return tuple(str(int(word)) for word in words)

    def numbers(self, words: list[str], what: str) -> Float64:
        """Return the words as numbers. Raises DataError E-MODEL if one is not a finite number."""
        try:
            numbers = np.array(words, np.float64)
        except ValueError as error:
            raise unusable_error(self.path, f"its {what} are not all numbers") from error
        if not np.isfinite(numbers).all():
            raise unusable_error(self.path, f"its {what} are not all finite")
        return numbers


def read_text(path: Path, end: str) -> ModelText:
    """Parse a file whose head ends with the line ``end``. Raises DataError, OSError."""
    try:
        text = read_whole(path, MAX_FILE_BYTES, follow=True).decode("ascii").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise unusable_error(path, "it is not text") from error
    head, separator, body = text.partition(f"\n{end}\n")
    if not separator:
        raise unusable_error(path, f"it has no line '{end}'")
    if "_" in body:  # Python would parse 1_0 as a number
        raise unusable_error(path, "its numbers have underscores")
    lines = [line.split() for line in head.split("\n") if line.strip()]
    return ModelText(path, {words[0]: words[1:] for words in lines}, body)


def unusable_error(path: Path, why: str) -> DataError:
    """Return the error for a file that does not hold a model of its format."""
    return DataError(
        f"{path} is not a usable model: {why}",
        code="E-MODEL",
        hint="write the file again with the program that made it",
    )


def _split_into_pairs(model: Model, weights: Float64, classes: int) -> tuple[Float64, list[Float64]]:
    """Return rho of all pairs of classes, and for each class the coefficients (classes - 1, points) of all points in
    its pairs with the other classes.
    """
    constants = model.intercept
    if len(weights) == 1 or model.pairs:
        pairs = list(combinations(range(classes), 2))
        coefficients = [np.zeros((classes - 1, weights.shape[1])) for _ in range(classes)]
        for (first, second), w in zip(pairs, weights, strict=True):
            coefficients[first][second - 1] = w
        return -constants, coefficients
    signs = [np.array([-1] * k + [1] * (classes - 1 - k)) for k in range(classes)]
    rho = np.array([b - a for a, b in combinations(constants, 2)])
    return rho, [np.outer(sign, w) for sign, w in zip(signs, weights, strict=True)]


def _format_vector(coefficients: Float64, columns: Int32 | Int64, values: Float64) -> bytes:
    """Return the line of a support vector: its coefficients, then its nonzero entries."""
    entries = "".join([f" {j + 1}:{value:.17g}" for j, value in zip(columns.tolist(), values.tolist(), strict=True)])
    return f"{format_numbers(coefficients)}{entries}\n".encode()


def _linear_points(model: Model) -> tuple[dict[str, str], Points, Float64]:
    """Return the kernel, the points and their coefficients for a linear model: point k has the weights of problem k."""
    coef = model.coef
    return {"kernel_type": "linear"}, lambda i: _entries(coef[i]), np.eye(len(coef))


def _kernel_points(model: Model, expansion: Expansion) -> tuple[dict[str, str], Points, Float64]:
    """Return the kernel, the points and their coefficients for a kernel model."""
    if expansion.kernel not in LIBSVM_KERNELS:
        raise UsageError(f"LIBSVM has no {expansion.kernel} kernel", hint=KEEP_MODEL)
    total_shift = _total_shift(model, expansion)
    parameters = {key: f"{expansion.parameters[key]:.17g}" for key in KERNEL_PARAMETERS[expansion.kernel]}
    factor = expansion.parameters["scale"] if expansion.kernel == "linear" else 1.0

    def point(i: int) -> Entries:
        row = row_slice(expansion.points, i, i + 1)
        if isinstance(row, CSR) and total_shift is None:
            return row.indices, row.data.astype(np.float64)
        values = dense_rows(row, np.arange(1), expansion.columns)[0].astype(np.float64)
        return _entries(values if total_shift is None else values + total_shift)

    return {"kernel_type": expansion.kernel, **parameters}, point, factor * model.weights[:, :-1]


def _entries(values: Float64) -> Entries:
    """Return the nonzero entries of a point."""
    columns = np.flatnonzero(values)
    return columns, values[columns]


def _total_shift(model: Model, expansion: Expansion) -> Float64 | None:
    """Return the shift (d,) to add to all points, because the model subtracts it from the columns; None if it is 0.

    For a translation-invariant kernel, k(x - s, z) = k(x, z + s). Raises UsageError for other kernels.
    """
    if expansion.scale is not None and bool((expansion.scale != 1.0).any()):
        raise UsageError("LIBSVM cannot standardize columns", hint=f"fit without --standardize, or {KEEP_MODEL}")
    total_shift = np.zeros(expansion.columns) if expansion.shift is None else expansion.shift.astype(np.float64)
    total_shift[list(model.offsets)] += list(model.offsets.values())
    if not total_shift.any():
        return None
    if not KERNELS[expansion.kernel](**expansion.parameters).translation_invariant():
        raise UsageError(
            f"the model subtracts a constant from columns far from 0, which the {expansion.kernel} kernel of LIBSVM cannot express",
            hint=f"use the rbf kernel, or {KEEP_MODEL}",
        )
    return total_shift


def read_libsvm(path: Path) -> Model:
    """Return the model in a LIBSVM file. Points are rounded to float32, as rows are; a linear kernel becomes weights of
    columns; more than two classes become a one-vs-one model.

    Raises DataError E-MODEL, also for regression, one-class models and precomputed kernels.
    """
    text = read_text(path, "SV")
    (kind,), (kernel,) = text.words("svm_type", 1), text.words("kernel_type", 1)
    if kind not in LIBSVM_CLASSIFIERS:
        raise unusable_error(path, f"{kind} is not a classifier")
    if kernel not in LIBSVM_KERNELS:
        raise unusable_error(path, f"it has a {kernel} kernel")
    classes = text.labels(text.integer("nr_class", 2))
    coefficients, points = _read_vectors(text, len(classes))
    several = len(classes) > 2
    intercept = -text.numbers(text.words("rho", math.comb(len(classes), 2)), "rho")[:, np.newaxis]
    functions, classes = (_arrange_by_pair(text, coefficients), classes) if several else (coefficients, classes[::-1])
    columns = int(points.indices.max()) + 1
    made_by = {"made_by": f"LIBSVM {kind} {kernel}"}
    if kernel == "linear":
        X = scipy.sparse.csr_matrix((points.data, points.indices, points.indptr), (functions.shape[1], columns))
        return Model(np.hstack([(X.T @ functions.T).T, intercept]), classes, made_by, pairs=several)
    parameters = {key: float(text.numbers(text.words(key, 1), key)[0]) for key in KERNEL_PARAMETERS[kernel]}
    with np.errstate(over="ignore"):
        rounded = points.data.astype(np.float32)
    if not np.isfinite(rounded).all():
        raise unusable_error(path, "its support vectors have numbers too large for float32")
    expansion = Expansion(kernel, parameters, points._replace(data=rounded), columns)
    return Model(np.hstack([functions, intercept]), classes, made_by, expansion, pairs=several)


def _arrange_by_pair(text: ModelText, coefficients: Float64) -> Float64:
    """Return the coefficients of all points in each pair of classes (pairs, points), 0 for points of other classes.
    Raises DataError E-MODEL.
    """
    classes = len(coefficients) + 1
    lengths = text.numbers(text.words("nr_sv", classes), "nr_sv")
    if (lengths < 0).any() or (lengths % 1).any() or lengths.sum() != coefficients.shape[1]:
        raise unusable_error(text.path, "nr_sv does not assign each support vector to a class")
    own = np.repeat(np.arange(classes), lengths.astype(np.int64))
    by_pair = np.zeros((math.comb(classes, 2), coefficients.shape[1]))
    for w, (first, second) in zip(by_pair, combinations(range(classes), 2), strict=True):
        for in_pair, place in ((own == first, second - 1), (own == second, first)):
            w[in_pair] = coefficients[place, in_pair]
    return by_pair


def _read_vectors(text: ModelText, classes: int) -> tuple[Float64, CSR]:
    """Return the coefficients (classes - 1, m) and the m support vectors, in float64. Raises DataError E-MODEL."""
    lines = [line.split() for line in text.body.split("\n") if line.strip()]
    count = text.integer("total_sv", 1)
    if len(lines) != count:
        raise unusable_error(text.path, f"it has {len(lines)} support vectors and should have {count}")
    first = classes - 1
    entries = [entry.split(":") for words in lines for entry in words[first:]]
    if not entries or any(len(entry) != 2 or not WHOLE.fullmatch(entry[0]) for entry in entries):
        raise unusable_error(text.path, "its support vectors are not written as INDEX:VALUE")
    indptr = np.cumsum([0, *(max(0, len(words) - first) for words in lines)])
    indices = np.array([int(index) - 1 for index, _ in entries])
    falling = np.diff(indices, prepend=-1) <= 0
    falling[indptr[:-1][np.diff(indptr) > 0]] = False
    if indices.min() < 0 or indices.max() >= MAX_INDEX or falling.any():
        raise unusable_error(text.path, "the indices of a support vector must ascend, from 1 to at most 10^8")
    data: Array = text.numbers([value for _, value in entries], "support vectors")
    coefficients = text.numbers([word for words in lines for word in words[:first]], "coefficients")
    if len(coefficients) != count * first:
        raise unusable_error(text.path, f"a support vector has fewer than {first} coefficients")
    return coefficients.reshape(count, first).T, CSR(data, indices.astype(np.int32), indptr)
