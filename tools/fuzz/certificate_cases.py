"""The problems of ``tools/fuzz/certificates.py``: small random rows, a solver and what it is asked for, drawn by a seed.

Solvers and losses are those of the registries: what is registered is drawn.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from streamsvm.losses import LOSSES
from streamsvm.rows import CSR, Dense
from streamsvm.solvers import SOLVERS, losses_of
from streamsvm.store import create
from streamsvm.store.views.memory import MemoryStore

FIRST_LOSSES = ("hinge", "squared_hinge", "huber")
KERNELS = ("rbf", "laplacian", "polynomial", "sigmoid", "linear")
SECONDS = 1.0
"""The time limit of every fit."""


class Solvers(NamedTuple):
    """What is drawn from. A seed makes its problem again with the same of it only."""

    linear: tuple[str, ...]
    """Solvers of linear functions."""
    landmarks: tuple[str, ...]
    """Of kernel features."""
    exact: tuple[str, ...]
    """Of kernels as they are."""
    losses: tuple[str, ...] = FIRST_LOSSES
    """Losses; a solver that does not take the one that is drawn is given one of its own."""


def registered() -> Solvers:
    """All solvers of two classes there are, and all losses of a margin."""
    exact = tuple(name for name in SOLVERS if SOLVERS[name]().exact_kernel)
    linear = ("auto", *(name for name in SOLVERS if name not in exact))
    return Solvers(linear, linear, exact, tuple(loss for loss in LOSSES if not LOSSES[loss]().numeric()))


def free_bias(solver: str) -> bool:
    """Whether the intercept costs nothing."""
    made = None if solver == "auto" else SOLVERS[solver]()
    return made.exact_kernel and made.free_bias


class Case(NamedTuple):
    """A problem and how it is to be solved."""

    X: Any
    y: Any
    s: Any
    sparse: bool
    settings: dict[str, Any]


def rows_of(rng: np.random.Generator) -> tuple[Any, Any]:
    """Rows float32 and labels, with what real tables have."""
    n, d = int(rng.integers(4, 120)), int(rng.integers(1, 7))
    X = rng.normal(size=(n, d)) if rng.random() < 0.7 else rng.integers(-3, 4, (n, d)).astype(float)
    y = np.where(X @ rng.normal(size=d) + (0.0 if rng.random() < 0.3 else 1.0) * rng.normal(size=n) > 0, 1, -1)
    y[:2] = 1, -1
    if rng.random() < 0.5:
        X = X * 10.0 ** (rng.uniform(-30, 30) if rng.random() < 0.3 else rng.uniform(-4, 4, d))
    if rng.random() < 0.3:
        X = X + rng.choice([1e3, 1e4, 1e6, 2e7]) * (rng.random(d) < 0.7)
    if rng.random() < 0.2:
        X[:, int(rng.integers(d))] = rng.choice([0.0, 1.0, 1e4])
    if rng.random() < 0.2:
        X[:, int(rng.integers(d))] = rng.choice([-1.0, 1.0]) * X[:, int(rng.integers(d))]
    if rng.random() < 0.3:
        again = rng.integers(0, n, n // 2)
        X, y = np.vstack([X, X[again]]), np.concatenate([y, rng.choice([-1, 1]) * y[again]])
    return np.clip(X, -3e38, 3e38).astype(np.float32), y


def case_of(seed: int, solvers: Solvers | None = None) -> Case:
    """The problem of a seed."""
    rng, solvers = np.random.default_rng(seed), solvers or registered()
    X, y = rows_of(rng)
    s = None
    if rng.random() < 0.3:
        s = rng.choice([0.0, 1e-3, 1.0, 1e3], len(y), p=[0.1, 0.2, 0.5, 0.2]).astype(np.float32)
        s[:2] = 1.0
    kind, C = rng.random(), 10.0 ** rng.uniform(-4, 6)
    settings: dict[str, Any] = {
        "loss": str(rng.choice(solvers.losses)),
        "C": C,
        "max_passes": 300,
        "time_limit": SECONDS,
    }
    settings["tolerance"] = float(rng.choice([1e-2, 1e-3, 1e-5]))
    if kind < 0.4:
        settings |= {"solver": str(rng.choice(solvers.linear)), "standardize": bool(rng.random() < 0.2)}
    else:
        gamma: Any = "scale" if rng.random() < 0.5 else 10.0 ** rng.uniform(-6, 12)
        settings |= {"kernel": str(rng.choice(KERNELS[:-1] if kind < 0.6 else KERNELS)), "gamma": gamma}
        if kind < 0.6:
            settings |= {"landmarks": int(rng.integers(1, 30)), "solver": str(rng.choice(solvers.landmarks))}
        else:
            settings["solver"] = str(rng.choice(solvers.exact))
    own = list(LOSSES) if settings["solver"] == "auto" else losses_of(settings["solver"])
    if settings["loss"] not in own:
        settings["loss"] = str(
            np.random.default_rng([seed, 1]).choice([loss for loss in own if loss in solvers.losses])
        )
    return Case(X, y, s, bool(rng.random() < 0.3), settings)


def store_of(path: Path, case: Case) -> None:
    """Write the rows of a case."""
    writer = create(path, sparse=case.sparse, chunk_bytes=4096, overwrite=True)
    writer.append(*_stored(case))
    writer.commit(("a", "b"), case.X.shape[1], {"names": None})


def memory_store_of(case: Case) -> MemoryStore:
    """The same in memory."""
    store = MemoryStore(chunk_bytes=4096)
    store.append(*_stored(case))
    return store.commit(("a", "b"), case.X.shape[1])


def _stored(case: Case) -> tuple[Any, Any, Any]:
    """Rows, class codes and weights."""
    X, rows = case.X, Dense(np.ascontiguousarray(case.X))
    if case.sparse:
        i, j = np.nonzero(X)
        indptr = np.concatenate([[0], np.cumsum(np.bincount(i, minlength=len(X)))]).astype(np.int64)
        rows = CSR(X[i, j], j.astype(np.int32), indptr)  # type: ignore[assignment]
    return rows, (case.y > 0).astype(np.int32), case.s
