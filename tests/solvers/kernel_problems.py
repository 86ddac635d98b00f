"""Small kernel problems and the loop that solves them, beside the fit job: blocks in order, passes until done."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamsvm.engine.fit_state import make_pending_steps
from streamsvm.kernels import RBF
from streamsvm.rows import Dense, Rows, row_count, row_slice
from streamsvm.types import Block, Certificate, Problem
from tests.solvers.problems import kind_of


def noisy_rows(n: int = 400, d: int = 4, seed: int = 3) -> tuple[Any, Any]:
    """A circle in two of ``d`` columns, one label in ten wrong."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)).astype(np.float32)
    inside = X[:, 0] ** 2 + X[:, 1] ** 2 < 1.4
    y = np.where(inside ^ (rng.random(n) < 0.1), 1.0, -1.0).astype(np.float32)
    return X, y


def weights_of(n: int) -> Any:
    """Weights of rows, 0 among them."""
    return np.random.default_rng(1).choice([0.0, 0.5, 1.0, 2.0], n).astype(np.float32)


def gram64(X: Any, Z: Any, gamma: float) -> Any:
    """The RBF kernel in float64."""
    X, Z = X.astype(np.float64), Z.astype(np.float64)
    return np.exp(-gamma * ((X[:, None, :] - Z[None, :, :]) ** 2).sum(2))


def solve(
    solver: Any,
    problem: Problem,
    X: Rows | Any,
    y: Any,
    s: Any = None,
    *,
    block: int = 100,
    passes: int = 200,
) -> tuple[Any, dict[str, Any], list[Certificate]]:
    """The state, the per-row state and the certificate of every pass."""
    rows = Dense(X) if isinstance(X, np.ndarray) else X
    n = row_count(rows)
    s = np.ones(n, np.float32) if s is None else s
    kept = {r.name: np.zeros(n, r.dtype) for r in solver.row_state}
    state, found = solver.start(problem), []
    for number in range(passes):
        if number == passes - 1:
            solver.certify(state)
        for k, start in enumerate(range(0, n, block)):
            part = slice(start, min(start + block, n))
            values = {name: array[part] for name, array in kept.items()}
            order = np.arange(part.stop - part.start, dtype=np.int32)
            view = row_slice(rows, part.start, part.stop)._replace(bias=problem.bias)
            solver.visit(state, Block(view, y[part], s[part], k, start, order, 1000 * number + k, rows=values))
        found.append(closed(solver, state))
        if found[-1].exact and (found[-1].final or found[-1].gap <= problem.tolerance):
            break
    return state, kept, found


def closed(solver: Any, state: Any) -> Certificate:
    """Close a pass, with all that is done in memory before the next one."""
    found: Certificate = solver.finish(state)
    for _ in make_pending_steps(solver, state, np.inf):
        pass
    return found


def problem_of(X: Any, loss: Any, C: float, gamma: float, tolerance: float = 1e-5) -> Problem:
    n, d = X.shape
    return Problem(loss, C, n, d, kind_of(loss), 1.0, (), tolerance, RBF(gamma))
