"""The problems of ``tools/fuzz/optima.py``: small weighted rows, drawn by a seed, of every kind of target."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from streamsvm.rows import Dense
from streamsvm.store.views.memory import MemoryStore

NAMES = ("a", "b", "c", "d")
"""Of classes, in the order of their codes."""
WEIGHTS = (0.0, 0.5, 1.0, 2.0, 3.0)


class Drawn(NamedTuple):
    """A problem: rows float32 (n, d), targets (n,), weights (n,) float32, C, what is said of the loss, and of the task."""

    X: Any
    y: Any
    """+1 and -1; class codes; or numbers."""
    s: Any
    C: float
    quantile: float = 0.5
    nu: float = 0.5
    radius: float = 1.0
    """Of the l1 ball, or the weight of ||w||_1."""

    @property
    def seen(self) -> Drawn:
        """The rows with a weight, in float64: other programs refuse those without one, or number rows without them."""
        some = self.s > 0
        return self._replace(X=self.X[some].astype(np.float64), y=self.y[some], s=self.s[some].astype(np.float64))


def rows_of(rng: Any) -> Any:
    """Columns of several scales, one of them 0 or 1."""
    n, d = int(rng.integers(40, 90)), int(rng.integers(2, 7))
    X = rng.normal(size=(n, d)) * 10.0 ** rng.uniform(-1, 1, d)
    X[:, -1] = rng.random(n) < 0.2
    return X.astype(np.float32)


def weights_of(rng: Any, rows: int) -> Any:
    return rng.choice(WEIGHTS, rows).astype(np.float32)


def two_classes(seed: int) -> Drawn:
    """Labels that a column makes, with noise; both have rows of weight above 0."""
    rng = np.random.default_rng(seed)
    X = rows_of(rng)
    y = np.where(X[:, 0] / np.abs(X[:, 0]).max() + 0.4 * rng.normal(size=len(X)) > 0.1, 1.0, -1.0)
    s = weights_of(rng, len(X))
    y[:2], s[:2] = (1.0, -1.0), 1.0
    return Drawn(X, y, s, 10.0 ** float(rng.uniform(-3, 1)))


def some_classes(seed: int) -> Drawn:
    """Codes of three or four classes; each has a row of weight above 0."""
    rng = np.random.default_rng(seed)
    X, classes = rows_of(rng), int(rng.integers(3, 5))
    score = X / np.abs(X).max(0) @ rng.normal(size=(X.shape[1], classes)) + 0.3 * rng.normal(size=(len(X), classes))
    codes, s = score.argmax(1).astype(np.int32), weights_of(rng, len(X))
    codes[:classes], s[:classes] = np.arange(classes), 1.0
    return Drawn(X, codes, s, 10.0 ** float(rng.uniform(-3, 0.5)))


def numbers(seed: int) -> Drawn:
    """Numbers of some scale that two columns make, with noise of long tails, away from 0."""
    rng = np.random.default_rng(seed)
    X = rows_of(rng)
    t = X / np.abs(X).max(0) @ rng.normal(size=X.shape[1]) + 0.3 * rng.standard_t(3, size=len(X)) + rng.normal()
    t *= 10.0 ** rng.uniform(-0.5, 1)
    quantile = float(rng.choice([0.1, 0.3, 0.5, 0.9]))
    return Drawn(X, t, weights_of(rng, len(X)), 10.0 ** float(rng.uniform(-2, 0.5)), quantile)


def one_class(seed: int) -> Drawn:
    """Rows about a point away from 0; y is +1."""
    rng = np.random.default_rng(seed)
    X = rows_of(rng).astype(np.float64)
    X[:, -1] += 0.05 * rng.normal(
        size=len(X)
    )  # copies of a row that lie on the edge are a limit: see "What is not done" in the design decisions
    X += rng.uniform(0.5, 3.0, X.shape[1]) * np.abs(X).mean(0)
    nu = float(rng.choice([0.05, 0.1, 0.3, 0.5, 0.9]))
    C = 10.0 ** float(rng.uniform(-2, 0))
    return Drawn(X.astype(np.float32), np.ones(len(X)), weights_of(rng, len(X)), C, nu=nu)


def two_classes_by_nu(seed: int) -> Drawn:
    """Two classes, and a nu that both have rows enough for: for a smaller one the optimum may be w = 0."""
    given = two_classes(seed)
    s, share = given.s, float(np.random.default_rng(seed).choice([0.6, 0.8, 0.95]))
    return given._replace(nu=share * 2.0 * float(min(s[given.y > 0].sum(), s[given.y < 0].sum()) / s.sum()))


def ball(seed: int) -> Drawn:
    """Numbers of which few columns make most; a radius that is a share of ||w||_1 of least squares."""
    given = numbers(seed)
    seen, share = given.seen, float(np.random.default_rng(seed).choice([0.2, 0.5, 0.8, 1.5]))
    Z, root = np.column_stack([seen.X, np.ones(len(seen.y))]), np.sqrt(seen.s)
    free = np.linalg.lstsq(Z * root[:, None], seen.y * root, rcond=None)[0]
    return given._replace(radius=share * float(np.abs(free).sum()))


def sparing(given: Drawn, seed: int) -> Drawn:
    """The same with a weight of ||w||_1 that is a share of the one from which on all weights are 0, about."""
    Z, middle = np.column_stack([given.X, np.ones(len(given.y))]), np.median(given.y)
    t = given.y if abs(middle) == 1.0 else np.sign(given.y - middle)
    most = given.C * float(np.abs(Z.T @ (given.s * t)).max())
    return given._replace(radius=float(np.random.default_rng(seed).choice([0.02, 0.1, 0.3])) * most)


def sparing_classes(seed: int) -> Drawn:
    return sparing(two_classes(seed), seed)


def sparing_numbers(seed: int) -> Drawn:
    return sparing(numbers(seed), seed)


def stored(given: Drawn, chunk_bytes: int) -> MemoryStore:
    """The rows as a store of several chunks."""
    if given.y.dtype == np.int32:
        codes, names = given.y, NAMES[: int(given.y.max()) + 1]
    elif set(np.unique(given.y)) <= {-1.0, 1.0}:
        codes, names = (given.y > 0).astype(np.int32), ("-1", "1")
    else:
        codes, names = given.y, ()
    store = MemoryStore(chunk_bytes=chunk_bytes)
    store.append(Dense(given.X), codes, given.s)
    return store.commit(names, given.X.shape[1])
