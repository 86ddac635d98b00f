"""Training and test rows of the sets the kernel papers use, dense float32, labels -1.0 and +1.0."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from streamsvm.rows import Dense
from streamsvm.store import create, open_store
from tools.measure.harness import DATA, unpacked

COLUMNS = {"a9a": 123, "ijcnn1": 22}
PACKED = {"a9a": "xz", "ijcnn1": "gz"}
SEVEN = 7


class Split(NamedTuple):
    """A set in two parts."""

    name: str
    X: Any
    y: Any
    X_test: Any
    y_test: Any


def load(name: str, directory: Path) -> Split:
    """A set by name: a9a, ijcnn1, mnist (7 against the rest), covtype (class 2 against the rest, 80/20)."""
    return {"mnist": mnist, "covtype": covtype}.get(name, svmlight)(name, directory)


def svmlight(name: str, directory: Path) -> Split:
    """The split its publishers made."""
    from sklearn.datasets import load_svmlight_file

    parts: list[Any] = []
    for part in (name, f"{name}.t"):
        path = str(unpacked(f"{part}.{PACKED[name]}", directory))
        X, y = load_svmlight_file(path, n_features=COLUMNS[name], dtype=np.float32)
        parts += [X.toarray(), np.where(y > 0, 1.0, -1.0)]
    return Split(name, *parts)


def mnist(name: str, _: Path) -> Split:
    """Pixels in [0, 1]."""
    parts: list[Any] = []
    for part in ("train", "t10k"):
        files = (DATA / "mnist" / f"{part}-{what}-ubyte.gz" for what in ("images-idx3", "labels-idx1"))
        raw = [gzip.decompress(file.read_bytes()) for file in files]
        pixels = np.frombuffer(raw[0], np.uint8, offset=16).reshape(-1, 784)
        labels = np.frombuffer(raw[1], np.uint8, offset=8)
        parts += [pixels.astype(np.float32) / 255, np.where(labels == SEVEN, 1.0, -1.0)]
    return Split(name, *parts)


def covtype(name: str, directory: Path) -> Split:
    """Standardized by the training rows."""
    from pyarrow import csv

    table = csv.read_csv(unpacked("covtype.csv.gz", directory))
    values = np.column_stack([column.to_numpy() for column in table.columns]).astype(np.float32)
    values = values[np.random.default_rng(0).permutation(len(values))]
    cut = int(0.8 * len(values))
    X, y = values[:, :-1], np.where(values[:, -1] == 2, 1.0, -1.0)
    X = (X - X[:cut].mean(0, dtype=np.float64)) / np.maximum(X[:cut].std(0, dtype=np.float64), 1e-12)
    X = np.ascontiguousarray(X, np.float32)
    return Split(name, X[:cut], y[:cut], X[cut:], y[cut:])


def stored(split: Split, path: Path) -> Any:
    """The training rows as a store."""
    writer = create(path, sparse=False)
    writer.append(Dense(split.X), (split.y > 0).astype(np.int32), None)
    writer.commit(("-1", "1"), split.X.shape[1], {"names": None})
    return open_store(path)
