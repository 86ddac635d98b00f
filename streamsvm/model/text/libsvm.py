"""LIBSVM's text: support vectors z_i with a coefficient for each pair of classes, f_ab(x) = sum_i c_i k(x, z_i) - rho_ab.

f_ab > 0 votes for a, and the class with most votes is said. A model of ours has one function a class and says the largest;
written as the pairs f_ab = f_a - f_b, in which the largest wins all of its votes, it says the same. The vectors of class a are
all points of f_a: their coefficient is c in its pairs (a, b), and -c in pairs (b, a). A linear function has one point,
its weights. A model whose pairs vote is written as it is: the vectors of class a are all points of its pairs with later classes. One of numbers has a
function, no labels, and what LIBSVM calls two classes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path
from typing import TypeAlias

import numpy as np
import scipy.sparse

from streamsvm.aliases import Array
from streamsvm.compute.kernel_values.gram import dense_rows
from streamsvm.errors import UsageError
from streamsvm.features.expansion import Expansion
from streamsvm.kernels import KERNELS
from streamsvm.model import Model
from streamsvm.model.text import (
    AS_IT_IS,
    WHOLE,
    ModelText,
    check_columns,
    digits,
    labels_of,
    read_text,
    unusable,
)
from streamsvm.rows import CSR, Float64, Int32, Int64, row_slice

NAMES = ("linear", "polynomial", "rbf", "sigmoid")
"""Kernels of both, under the same names; in both gamma and coef0 mean the same."""
PARAMETERS = {
    "linear": (),
    "polynomial": ("gamma", "coef0", "degree"),
    "rbf": ("gamma",),
    "sigmoid": ("gamma", "coef0"),
}
CLASSIFIERS = ("c_svc", "nu_svc")
LARGEST_INDEX = 10**8
"""Of a column; that of files in this format, too. A linear model has a weight up to there."""
Entries: TypeAlias = tuple[Int32 | Int64, Float64]
"""The columns and the numbers of a point that are not 0."""
Points: TypeAlias = Callable[[int], Entries]
"""Gives a point by its number."""


def write(model: Model) -> Iterator[bytes]:
    """Yield the text of a model, linear or of kernel values, over columns as the sources have them.

    Raises UsageError for kernels LIBSVM has not, for columns that are standardized or no numbers of the source, and for labels
    that are no whole numbers.
    """
    check_columns(model)
    labels = [] if model.numeric else labels_of(model)
    kernel, points, weights = _linear(model) if model.expansion is None else _of_points(model, model.expansion)
    rho, of_classes = (-model.intercept, [weights]) if model.numeric else _of_pairs(model, weights, len(labels))
    chosen = [np.flatnonzero(np.abs(coefficients).max(axis=0)) for coefficients in of_classes]
    lengths = [len(mine) for mine in chosen]
    head: dict[str, object] = {
        "svm_type": "epsilon_svr" if model.numeric else "c_svc",
        **kernel,
        "nr_class": len(labels) or 2,
        "total_sv": sum(lengths),
        "rho": digits(rho),
    }
    if labels:
        head |= {"label": " ".join(map(str, labels)), "nr_sv": " ".join(map(str, lengths))}
    yield "".join(f"{key} {value}\n" for key, value in head.items()).encode() + b"SV\n"
    for coefficients, mine in zip(of_classes, chosen, strict=True):
        for i in mine.tolist():
            yield _line(coefficients[:, i], *points(i))


def _of_pairs(model: Model, weights: Float64, classes: int) -> tuple[Float64, list[Float64]]:
    """Rho of all pairs, and for each class the coefficients of all points (classes - 1, points) in its pairs with the others."""
    constants = model.intercept
    if len(weights) == 1 or model.pairs:
        pairs = list(combinations(range(classes), 2))
        found = [np.zeros((classes - 1, weights.shape[1])) for _ in range(classes)]
        for (first, second), w in zip(pairs, weights, strict=True):
            found[first][second - 1] = w
        return -constants, found
    signs = [np.array([-1] * k + [1] * (classes - 1 - k)) for k in range(classes)]
    rho = np.array([b - a for a, b in combinations(constants, 2)])
    return rho, [np.outer(sign, w) for sign, w in zip(signs, weights, strict=True)]


def _line(coefficients: Float64, columns: Int32 | Int64, values: Float64) -> bytes:
    """A support vector: its coefficients, then its entries."""
    entries = "".join([f" {j + 1}:{value:.17g}" for j, value in zip(columns.tolist(), values.tolist(), strict=True)])
    return f"{digits(coefficients)}{entries}\n".encode()


def _linear(model: Model) -> tuple[dict[str, str], Points, Float64]:
    """Kernel, points and coefficients of a linear function: point k are the weights of problem k."""
    coef = model.coef
    return {"kernel_type": "linear"}, lambda i: _entries(coef[i]), np.eye(len(coef))


def _of_points(model: Model, expansion: Expansion) -> tuple[dict[str, str], Points, Float64]:
    """Kernel, points and coefficients of a function of kernel values."""
    if expansion.kernel not in NAMES:
        raise UsageError(f"LIBSVM has no {expansion.kernel} kernel", hint=AS_IT_IS)
    moved = _moved(model, expansion)
    parameters = {key: f"{expansion.parameters[key]:.17g}" for key in PARAMETERS[expansion.kernel]}
    factor = expansion.parameters["scale"] if expansion.kernel == "linear" else 1.0

    def point(i: int) -> Entries:
        row = row_slice(expansion.points, i, i + 1)
        if isinstance(row, CSR) and moved is None:
            return row.indices, row.data.astype(np.float64)
        values = dense_rows(row, np.arange(1), expansion.columns)[0].astype(np.float64)
        return _entries(values if moved is None else values + moved)

    return {"kernel_type": expansion.kernel, **parameters}, point, factor * model.weights[:, :-1]


def _entries(values: Float64) -> Entries:
    """The entries of a point that are not 0."""
    columns = np.flatnonzero(values)
    return columns, values[columns]


def _moved(model: Model, expansion: Expansion) -> Float64 | None:
    """What is added to points (d,) because columns are seen less a shift and an offset; None where they are not.

    k(x - s, z) = k(x, z + s) of a kernel of differences. Raises UsageError where there is no such way back.
    """
    if expansion.scale is not None and bool((expansion.scale != 1.0).any()):
        raise UsageError("LIBSVM cannot standardize columns", hint=f"fit without --standardize, or {AS_IT_IS}")
    moved = np.zeros(expansion.columns) if expansion.shift is None else expansion.shift.astype(np.float64)
    moved[list(model.offsets)] += list(model.offsets.values())
    if not moved.any():
        return None
    if not KERNELS[expansion.kernel](**expansion.parameters).translation_invariant():
        raise UsageError(
            f"the model moves columns that lie far from 0, which a {expansion.kernel} kernel of LIBSVM cannot undo",
            hint=f"use the rbf kernel, or {AS_IT_IS}",
        )
    return moved


def read(path: Path) -> Model:
    """Return the model of a file; points are rounded to float32 as rows are, a linear kernel becomes weights, pairs of several classes vote.

    Raises DataError E-MODEL, also for one of regression, of one class and of a precomputed kernel.
    """
    text = read_text(path, "SV")
    (kind,), (kernel,) = text.words("svm_type", 1), text.words("kernel_type", 1)
    if kind not in CLASSIFIERS:
        raise unusable(path, f"{kind} is no classifier")
    if kernel not in NAMES:
        raise unusable(path, f"it has a {kernel} kernel")
    classes = text.labels(text.whole("nr_class", 2))
    coefficients, points = _vectors(text, len(classes))
    several = len(classes) > 2
    intercept = -text.numbers(text.words("rho", math.comb(len(classes), 2)), "rho")[:, np.newaxis]
    functions, classes = (_by_pair(text, coefficients), classes) if several else (coefficients, classes[::-1])
    columns = int(points.indices.max()) + 1
    made_by = {"made_by": f"LIBSVM {kind} {kernel}"}
    if kernel == "linear":
        X = scipy.sparse.csr_matrix((points.data, points.indices, points.indptr), (functions.shape[1], columns))
        return Model(np.hstack([(X.T @ functions.T).T, intercept]), classes, made_by, pairs=several)
    parameters = {key: float(text.numbers(text.words(key, 1), key)[0]) for key in PARAMETERS[kernel]}
    with np.errstate(over="ignore"):
        rounded = points.data.astype(np.float32)
    if not np.isfinite(rounded).all():
        raise unusable(path, "its support vectors have numbers that float32 has not")
    expansion = Expansion(kernel, parameters, points._replace(data=rounded), columns)
    return Model(np.hstack([functions, intercept]), classes, made_by, expansion, pairs=several)


def _by_pair(text: ModelText, coefficients: Float64) -> Float64:
    """The coefficients of all points in each pair (pairs, points): those of its two classes have one. Raises DataError E-MODEL."""
    classes = len(coefficients) + 1
    lengths = text.numbers(text.words("nr_sv", classes), "nr_sv")
    if (lengths < 0).any() or (lengths % 1).any() or lengths.sum() != coefficients.shape[1]:
        raise unusable(text.path, "nr_sv does not say of which class each support vector is")
    own = np.repeat(np.arange(classes), lengths.astype(np.int64))
    found = np.zeros((math.comb(classes, 2), coefficients.shape[1]))
    for w, (first, second) in zip(found, combinations(range(classes), 2), strict=True):
        for mine, place in ((own == first, second - 1), (own == second, first)):
            w[mine] = coefficients[place, mine]
    return found


def _vectors(text: ModelText, classes: int) -> tuple[Float64, CSR]:
    """The coefficients (classes - 1, m) and the support vectors, in float64. Raises DataError E-MODEL."""
    lines = [line.split() for line in text.body.split("\n") if line.strip()]
    count = text.whole("total_sv", 1)
    if len(lines) != count:
        raise unusable(text.path, f"it has {len(lines)} support vectors and should have {count}")
    first = classes - 1
    entries = [entry.split(":") for words in lines for entry in words[first:]]
    if not entries or any(len(entry) != 2 or not WHOLE.fullmatch(entry[0]) for entry in entries):
        raise unusable(text.path, "its support vectors are not written as INDEX:VALUE")
    indptr = np.cumsum([0, *(max(0, len(words) - first) for words in lines)])
    indices = np.array([int(index) - 1 for index, _ in entries])
    falling = np.diff(indices, prepend=-1) <= 0
    falling[indptr[:-1][np.diff(indptr) > 0]] = False
    if indices.min() < 0 or indices.max() >= LARGEST_INDEX or falling.any():
        raise unusable(text.path, "the indices of a support vector do not rise from 1 to 10^8 at most")
    data: Array = text.numbers([value for _, value in entries], "support vectors")
    coefficients = text.numbers([word for words in lines for word in words[:first]], "coefficients")
    if len(coefficients) != count * first:
        raise unusable(text.path, f"a support vector has fewer than {first} coefficients")
    return coefficients.reshape(count, first).T, CSR(data, indices.astype(np.int32), indptr)
