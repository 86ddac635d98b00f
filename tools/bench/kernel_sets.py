"""The sets exact kernel machines are compared on: training and test rows, C and gamma."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from tools.measure import datasets
from tools.measure.harness import DATA


class KernelSet(NamedTuple):
    """Rows as CSR float32, signs float64; ``dense``: whether they are stored dense."""

    X: Any
    y: Any
    test: Any
    test_y: Any
    C: float
    gamma: float
    dense: bool


SETTINGS = {
    "a9a": (1.0, 0.03, False),
    "ijcnn1": (10.0, 2.0, True),
    "w8a": (10.0, 0.02, False),
    "mnist7": (10.0, 0.02, True),
    "kdd99": (10.0, 0.02, True),
    "covtype": (10.0, 0.1, True),
}
"""C, gamma, dense."""
SYMBOLIC = (1, 2, 3)
"""Columns of kdd99 that are names."""
KDD_ROWS = 100_000


def load(name: str, directory: Path, limit: int) -> KernelSet:
    """A set by name, at most ``limit`` training rows."""
    X, y, test_X, test_y = _LOADERS.get(name, _official)(name, directory)
    train, test = (sp.csr_matrix(part, dtype=np.float32) for part in (X[:limit], test_X))
    return KernelSet(train, y[:limit], test, test_y, *SETTINGS[name])


def _official(name: str, directory: Path) -> tuple[Any, Any, Any, Any]:
    train, test = (datasets.svmlight(part, datasets.COLUMNS[name], directory) for part in (name, f"{name}.t"))
    return train.X, train.y, test.X, test.y


def _w8a(name: str, directory: Path) -> tuple[Any, Any, Any, Any]:
    """80 % of the rows, drawn, against the rest: the set has no test file."""
    data = datasets.svmlight(name, datasets.COLUMNS[name], directory)
    order = np.random.default_rng(0).permutation(data.rows)
    train, test = np.split(order, [int(0.8 * data.rows)])
    return data.X[train], data.y[train], data.X[test], data.y[test]


def _mnist7(_name: str, _directory: Path) -> tuple[Any, Any, Any, Any]:
    """Digit 7 against the rest, x / 255."""
    return (*_digits("train"), *_digits("t10k"))


def _digits(part: str) -> tuple[Any, Any]:
    with gzip.open(DATA / "mnist" / f"{part}-images-idx3-ubyte.gz") as file:
        pixels = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 784)
    with gzip.open(DATA / "mnist" / f"{part}-labels-idx1-ubyte.gz") as file:
        digits = np.frombuffer(file.read(), np.uint8, offset=8)
    return pixels.astype(np.float32) / 255, np.where(digits == 7, 1.0, -1.0)


def _kdd99(_name: str, _directory: Path) -> tuple[Any, Any, Any, Any]:
    """``normal.`` against attacks: 100,000 rows drawn, names one-hot, columns standardized; the official test file."""
    tables = [_table("kddcup.data_10_percent.gz"), _table("corrected.gz")]
    tables[0] = tables[0].take(np.random.default_rng(0).permutation(len(tables[0]))[:KDD_ROWS])
    columns = []
    for k in range(41):
        values = [table.column(k).to_numpy() for table in tables]
        if k in SYMBOLIC:
            columns += [[v == one for v in values] for one in np.unique(values[0])]
        else:
            columns.append(values)
    X, test_X = (np.column_stack([c[i] for c in columns]).astype(np.float32) for i in range(2))
    mean, deviation = X.mean(0, dtype=np.float64), X.std(0, dtype=np.float64)
    deviation[deviation == 0] = 1.0
    signs = [np.where(table.column(41).to_numpy() == "normal.", 1.0, -1.0) for table in tables]
    return (X - mean) / deviation, signs[0], (test_X - mean) / deviation, signs[1]


def _table(name: str) -> Any:
    from pyarrow import csv

    return csv.read_csv(DATA / name, read_options=csv.ReadOptions(autogenerate_column_names=True))


def _covtype(_name: str, directory: Path) -> tuple[Any, Any, Any, Any]:
    """Class 2 against the rest, standardized: 80 % of the rows and the others."""
    data, test = datasets.covtype(directory), datasets.covtype(directory, test=True)
    return data.X, data.y, test.X, test.y


_LOADERS = {"w8a": _w8a, "mnist7": _mnist7, "kdd99": _kdd99, "covtype": _covtype}
