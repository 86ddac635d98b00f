"""Small tables of several chunks, on which fits are recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import streamsvm as sv


def stores_in(place: Path) -> dict[str, str]:
    """Small tables of several chunks."""
    numbers = np.random.default_rng(5)
    X = numbers.normal(size=(240, 5)).astype(np.float32)
    plain = X @ np.array([1.0, -0.7, 0.3, 0.0, 0.2]) + 0.8 * numbers.normal(size=240)
    sparse: Any = sp.csr_array(np.where(np.abs(X) > 0.8, X, 0.0).astype(np.float32))
    two = (plain > 0.1).astype(np.int32)
    weights = numbers.integers(1, 4, 240).astype(float)
    made: dict[str, tuple[Any, Any, dict[str, Any]]] = {
        "two": (X, two, {}),
        "sparse": (sparse, two, {}),
        "weighted": (X, two, {"weight": weights}),
        "several": (X, np.digitize(plain, [-1.0, 0.2, 1.0]), {}),
        "numbers": (X, plain, {"task": "regression"}),
        "far": (X + np.float32(4.0), two, {}),
        "chunks": (np.repeat(X, 3, axis=0) + np.tile(X, (3, 1)), np.repeat(two, 3), {}),
        "words": (_words(numbers), two, {}),
        "categories": (_categories(X, numbers), two, {}),
        "scales": (X * np.array([1e-2, 1.0, 1e2, 1e4, 1.0], np.float32), two, {}),
    }
    for name, (rows, y, options) in made.items():
        sv.ingest(rows, str(place / name), y=y, chunk=4096, **options)
    return {name: str(place / name) for name in made}


def _words(numbers: np.random.Generator) -> Any:
    """Rows of twenty words each, of 2,000, of which some are in many."""
    X = np.zeros((240, 2000), np.float32)
    for row in X:
        row[np.minimum(numbers.zipf(1.3, 20), 2000) - 1] = 1.0
    return sp.csr_array(X)


def _categories(X: Any, numbers: np.random.Generator) -> Any:
    """A column of each of two categories, of which the one is large, beside three numbers of which one is large."""
    levels = [sp.csr_array(np.eye(count, dtype=np.float32)[numbers.integers(0, count, len(X))]) for count in (8, 1800)]
    return sp.csr_array(sp.hstack([sp.csr_array(X[:, :3] * np.array([1.0, 1.0, 1e3], np.float32)), *levels]))
