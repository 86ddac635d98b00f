"""Every form of a problem that a fit can be asked for: a task with its loss, regularizer and kernel, as options of a fit.

Tests of faces (``tests.contract.test_forms``) and of workers (``tests.cluster.test_forms``) go through all of them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.rows import Dense
from streamsvm.store import create

CLASSES, SEVERAL, NUMBERS = "two classes", "three classes", "numbers"
RBF: dict[str, Any] = {"kernel": "rbf", "gamma": 0.2}
LANDMARKS: dict[str, Any] = RBF | {"landmarks": 30, "embedding": "fly"}

FORMS: dict[str, tuple[str, dict[str, Any]]] = {
    "squared hinge": (CLASSES, {}),
    "hinge": (CLASSES, {"loss": "hinge"}),
    "huber": (CLASSES, {"loss": "huber"}),
    "logistic": (CLASSES, {"loss": "logistic", "C": 0.1}),
    "curves": (CLASSES, {"curves": True, "knots": 16, "loss": "logistic", "pairs": "column 0*column 1"}),
    "nu": (CLASSES, {"nu": 0.4, "tolerance": 1e-2}),
    "nu, landmarks": (CLASSES, {"nu": 0.4, "tolerance": 1e-2, **LANDMARKS}),
    "landmarks": (CLASSES, LANDMARKS),
    "exact kernel": (CLASSES, RBF | {"loss": "hinge"}),
    "on the simplex": (CLASSES, RBF | {"solver": "blended"}),
    "elastic net": (CLASSES, {"l1": 5.0}),
    "one class": (CLASSES, {"one_class": True, "nu": 0.1, "positive": "2", "tolerance": 1e-2}),
    "one class, margin": (CLASSES, {"one_class": True, "C": 0.1, "positive": "2"}),
    "one class, landmarks": (CLASSES, {"one_class": True, "nu": 0.1, "positive": "2", "tolerance": 1e-2, **LANDMARKS}),
    "one class, exact kernel": (CLASSES, {"one_class": True, "nu": 0.1, "positive": "2", **RBF}),
    "one against the rest": (SEVERAL, {}),
    "pairs": (SEVERAL, {"multi_class": "ovo", "loss": "hinge"}),
    "pairs, exact kernel": (SEVERAL, {"multi_class": "ovo", "loss": "hinge", **RBF}),
    "multinomial": (SEVERAL, {"multi_class": "crammer_singer", "loss": "hinge", "C": 0.2}),
    "softmax": (SEVERAL, {"multi_class": "softmax", "loss": "logistic"}),
    "nu, pairs": (SEVERAL, {"multi_class": "ovo", "nu": 0.6, "tolerance": 1e-2}),
    "tube": (NUMBERS, {"loss": "epsilon_insensitive"}),
    "squared tube": (NUMBERS, {"loss": "squared_epsilon_insensitive"}),
    "ridge": (NUMBERS, {"loss": "squared"}),
    "curves of numbers": (
        NUMBERS,
        {"curves": True, "smooth": "d1", "loss": "squared", "jumps": "auto", "pairs": "auto"},
    ),
    "quantile": (NUMBERS, {"loss": "pinball", "loss_options": {"quantile": 0.3}}),
    "tube, landmarks": (NUMBERS, {"loss": "epsilon_insensitive", **LANDMARKS}),
    "tube, exact kernel": (NUMBERS, {"loss": "epsilon_insensitive", **RBF}),
    "elastic net of numbers": (NUMBERS, {"loss": "squared", "l1": 5.0}),
    "l1 ball": (NUMBERS, {"loss": "squared", "l1_ball": 1.0}),
}
"""What is in the store, and what a fit of it is asked for."""


def rows_of(kind: str, count: int) -> tuple[Any, Any, tuple[str, ...]]:
    """Rows (count, 5) float32, their codes int32 or numbers float64, and the names of classes."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(count, 5)).astype(np.float32) + np.array([2.0, 1.0, 0.0, 0.0, 0.0], np.float32)
    t = X[:, 0] - 0.5 * X[:, 1] + 0.3 * rng.normal(size=count)
    if kind == NUMBERS:
        return X, t, ()
    names = ("1", "2") if kind == CLASSES else ("1", "2", "3")
    return X, np.digitize(t, [1.0] if kind == CLASSES else [0.8, 2.0]).astype(np.int32), names


def stored(kind: str, count: int, path: Path, chunk_bytes: int) -> Path:
    """A store of these rows."""
    X, t, names = rows_of(kind, count)
    writer = create(path, sparse=False, chunk_bytes=chunk_bytes)
    writer.append(Dense(X), t, None)
    writer.commit(names, X.shape[1], {"names": None})
    return path
