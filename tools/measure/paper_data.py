"""The paper's sets, split as it splits them, as a store and as test rows.

a9a and ijcnn1 have official test rows. Of w8a and of the ten-percent file of kdd99 a fifth is kept for testing, drawn at
random. kdd99 is ``normal.`` against all attacks; its symbolic columns are one-hot, all columns lie in [0, 1]. As the paper has them:
w8a-all trains on all 49,749 rows, and is tested on the same ones, as its test file is not among the data; kdd99-38 has the 38 columns of numbers alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from streamsvm.rows import CSR
from streamsvm.store import create
from tools.measure.datasets import COLUMNS, svmlight
from tools.measure.harness import unpacked

SYMBOLIC = (1, 2, 3)
"""Columns of kdd99: protocol, service, flag."""


class Split(NamedTuple):
    """Rows (scipy CSR) and signs (n,): X, y to train on, ``rows`` and ``signs`` to test on."""

    X: Any
    y: Any
    rows: Any
    signs: Any


def split(name: str, directory: Path) -> Split:
    """One of a9a, w8a, w8a-all, ijcnn1, kdd99, kdd99-38."""
    if name.startswith("kdd99"):
        return _fifth(*kdd99(directory, symbolic=name == "kdd99"))
    file = name.removesuffix("-all")
    data = svmlight(file, COLUMNS[file], directory)
    if file == "w8a":
        return _fifth(data.X, data.y) if file == name else Split(data.X, data.y, data.X, data.y)
    test = svmlight(f"{name}.t", COLUMNS[name], directory)
    return Split(data.X, data.y, test.X, test.y)


def _fifth(X: Any, y: Any) -> Split:
    order = np.random.default_rng(0).permutation(len(y))
    train, test = np.split(order, [int(0.8 * len(y))])
    return Split(X[train], y[train], X[test], y[test])


def kdd99(directory: Path, *, symbolic: bool = True) -> tuple[Any, Any]:
    """494,021 rows: 38 numbers scaled to [0, 1], and, with the symbolic columns, 80 indicators."""
    from pyarrow import csv

    path = unpacked("kddcup.data_10_percent.gz", directory)
    table = csv.read_csv(path, read_options=csv.ReadOptions(autogenerate_column_names=True))
    columns = [column.to_numpy() for column in table.columns]
    numbers = np.column_stack([c for k, c in enumerate(columns[:-1]) if k not in SYMBOLIC]).astype(np.float32)
    numbers -= numbers.min(0)
    numbers /= np.maximum(numbers.max(0), np.finfo(np.float32).tiny)
    indicators = [c[:, None] == np.unique(c) for c in (columns[k].astype(str) for k in SYMBOLIC if symbolic)]
    X = sp.csr_matrix(np.column_stack([numbers, *indicators]).astype(np.float32))
    return X, np.where(columns[-1].astype(str) == "normal.", 1.0, -1.0)


def rows_of(X: Any) -> CSR:
    return CSR(X.data.astype(np.float32), X.indices.astype(np.int32), X.indptr.astype(np.int64))


def stored(X: Any, y: Any, path: Path) -> Path:
    """The rows as a store of their own."""
    writer = create(path, sparse=True)
    writer.append(rows_of(X), (y > 0).astype(np.int32), None)
    writer.commit(("-1", "1"), X.shape[1], {"names": None})
    return path
