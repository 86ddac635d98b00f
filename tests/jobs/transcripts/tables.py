"""Small stores and files that the transcripts are of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.rows import Dense
from streamsvm.store import create
from tests.arrays import csr_of
from tests.tables import NAMES, passengers, write_csv


def made_in(place: Path) -> None:
    """Stores of several chunks, with a few classes or numbers; tables of text, svmlight and arrays to be read."""
    place.mkdir(exist_ok=True)
    numbers = np.random.default_rng(11)
    X = numbers.normal(size=(240, 5)).astype(np.float32) + np.array([1.0, 0.5, 0.0, 0.0, 0.0], np.float32)
    plain = X @ np.array([1.0, -0.7, 0.3, 0.0, 0.2]) + 0.6 * numbers.normal(size=240)
    two, three = (plain > 0.4).astype(np.int32), np.digitize(plain, [0.0, 1.0]).astype(np.int32)
    _stored(place / "two", Dense(X), two)
    _stored(place / "few", Dense(X[:90]), two[:90])
    _stored(place / "sparse", csr_of(np.where(np.abs(X) > 0.8, X, np.float32(0.0))), two)
    _stored(place / "weighted", Dense(X), two, numbers.integers(1, 4, 240).astype(np.float32))
    _stored(place / "three", Dense(X), three)
    _stored(place / "numbers", Dense(X), plain)
    _stored(place / "scales", Dense(X * np.array([1e-2, 1.0, 1e4, 1.0, 1.0], np.float32)), two)
    order = np.argsort(two, kind="stable")
    _stored(place / "sorted", Dense(X[order]), two[order])
    _files(place, X, two)


def _stored(path: Path, X: Any, y: Any, weights: Any = None) -> None:
    writer = create(path, sparse=not isinstance(X, Dense), chunk_bytes=1024)
    writer.append(X, y, weights)
    names = () if y.dtype == np.float64 else tuple("abc"[: y.max() + 1])
    writer.commit(names, 5, {"names": [f"x{j}" for j in range(5)]})


def _files(place: Path, X: Any, two: Any) -> None:
    table = passengers(160, 3)
    write_csv(place / "people.csv", table, (*NAMES, "left"))
    write_csv(place / "new.csv", passengers(40, 4), (*NAMES, "left"))
    lines = (place / "people.csv").read_text(encoding="utf-8").splitlines()
    lines[7] += ",more"
    lines[30] = lines[30].rpartition(",")[0] + ","
    (place / "faults.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    written = [
        f"{1 if label else -1} " + " ".join(f"{j + 1}:{value:.4g}" for j, value in enumerate(row) if abs(value) > 0.8)
        for row, label in zip(X[:120], two, strict=False)
    ]
    (place / "rows.svm").write_text("\n".join(written) + "\n", encoding="utf-8")
    _long(place / "long.csv")
    np.save(place / "rows.npy", X)
    np.save(place / "labels.npy", two)
    np.save(place / "landmarks.npy", X[::20])


def _long(path: Path) -> None:
    """Rows in the order of their classes, with numbers that are ids and some that are far from 0."""
    numbers = np.random.default_rng(8)
    lines = [
        f"{k},{20_000_001 + 7 * k},{5e8 + 10 * numbers.normal():.4f},{numbers.normal():.4f},{int(k > 500)}"
        for k in range(800)
    ]
    path.write_text("k,serial,far,near,kind\n" + "\n".join(lines) + "\n", encoding="utf-8")
