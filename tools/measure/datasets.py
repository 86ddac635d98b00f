"""The real data sets as arrays and as stores, the same rows for every contestant."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from streamsvm.rows import CSR, Dense
from streamsvm.store import create, open_store
from tools.measure.harness import unpacked

COLUMNS = {"a9a": 123, "ijcnn1": 22, "w8a": 300, "letter": 16, "imdb": 35_855}
"""Of the sets in libsvm's text format."""


class Data(NamedTuple):
    """Training rows: dense float32 (n, d) or scipy CSR, and labels -1.0 / +1.0 (n,) float64."""

    name: str
    X: Any
    y: Any

    @property
    def rows(self) -> int:
        return len(self.y)


def covtype(directory: Path, *, test: bool = False) -> Data:
    """80 % of the rows (464,809 x 54) standardized, or the others on the same scale; class 2 against the rest."""
    from pyarrow import csv

    table = csv.read_csv(unpacked("covtype.csv.gz", directory))
    values = np.column_stack([column.to_numpy() for column in table.columns]).astype(np.float32)
    order = np.random.default_rng(0).permutation(len(values))
    train, others = (values[part] for part in np.split(order, [int(0.8 * len(values))]))
    mean, deviation = train[:, :-1].mean(0, dtype=np.float64), train[:, :-1].std(0, dtype=np.float64)
    chosen = others if test else train
    X, y = (chosen[:, :-1] - mean) / deviation, np.where(chosen[:, -1] == 2, 1.0, -1.0)
    return Data("covtype", np.ascontiguousarray(X, np.float32), y)


def svmlight(name: str, columns: int, directory: Path) -> Data:
    """One of the sets in libsvm's text format, through scikit-learn's parser."""
    from sklearn.datasets import load_svmlight_file

    packed = f"{name}.gz" if name.startswith("ijcnn1") else f"{name}.xz"
    X, y = load_svmlight_file(str(unpacked(packed, directory)), n_features=columns, zero_based=False)
    # LIBLINEAR's wrappers take 32-bit indices only
    X = sp.csr_matrix((X.data.astype(np.float32), X.indices.astype(np.int32), X.indptr.astype(np.int32)), X.shape)
    above = 13 if name.startswith("letter") else 0  # of the 26 letters, the second half against the first
    return Data(name, X, np.where(y > above, 1.0, -1.0))


def load(name: str, directory: Path) -> Data:
    """A set by name: covtype, or one of COLUMNS; NAME.t is the test set its publishers made."""
    return covtype(directory) if name == "covtype" else svmlight(name, COLUMNS[name.removesuffix(".t")], directory)


def stored(data: Data, path: Path) -> Any:
    """The same rows as a store."""
    X = data.X
    rows = Dense(X) if isinstance(X, np.ndarray) else CSR(X.data, X.indices.astype(np.int32), X.indptr.astype(np.int64))
    writer = create(path, sparse=isinstance(rows, CSR))
    writer.append(rows, (data.y > 0).astype(np.int32), None)
    writer.commit(("-1", "1"), X.shape[1], {"names": None})
    return open_store(path)


def primal(data: Data, w: Any, C: float, loss: str) -> float:
    """P(w) in float64; the last component of ``w`` belongs to a constant 1."""
    m = data.y * (data.X @ w[:-1] + w[-1])
    if loss == "logistic":
        return float(0.5 * w @ w + C * np.logaddexp(0.0, -m).sum())
    z = np.maximum(0.0, 1.0 - m)
    return float(0.5 * w @ w + C * (z.sum() if loss == "hinge" else (z * z).sum()))
