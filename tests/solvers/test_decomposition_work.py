"""Pieces of decomposition by themselves: which rows are offered and taken, what is summed over a block, when it is over, what is owed."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import streamsvm as sv
from streamsvm.losses import EpsilonInsensitive, Hinge, SquaredHinge
from streamsvm.rows import Dense
from streamsvm.solvers.kernel.decomposition import multilevel
from streamsvm.solvers.kernel.decomposition.block_update import measure, rows_of
from streamsvm.solvers.kernel.decomposition.solver import Decomposition
from streamsvm.solvers.kernel.rounding import error_of_values
from streamsvm.types import Block
from tests.solvers.kernel_problems import noisy_rows, problem_of

GAMMA, C, ROWS = 0.5, 2.0, 400
PROBLEM = problem_of(np.zeros((ROWS, 4)), Hinge(), C, GAMMA, 1e-3)


def block_of(X: Any, y: Any, s: Any, rows: Any, start: int = 0) -> Block:
    return Block(Dense(X), y, s, 0, start, np.arange(len(y), dtype=np.int32), 0, rows=rows)


@pytest.mark.parametrize("loss", [Hinge(), SquaredHinge(), EpsilonInsensitive(0.25)])
def test_decomposition_pass_sums_are_those_of_its_rows(loss: Any) -> None:
    """All in float64, over two blocks: each of them is in the bounds, or in what rounding does to them."""
    X, y = noisy_rows(ROWS)
    rng = np.random.default_rng(4)
    s = rng.choice([0.0, 0.5, 2.0], ROWS).astype(np.float32)
    top = np.array([min(loss.upper(C * float(c)), 3.0) for c in s])
    alpha = rng.choice([0.0, 0.5, 1.0], ROWS) * top * (rng.choice([-1.0, 1.0], ROWS) if loss.numeric() else 1.0)
    f = rng.normal(size=ROWS)
    state = Decomposition().start(replace(PROBLEM, loss=loss))
    state.drift, state.reach, state.intercept = 0.01, 0.5, 0.125
    for part in (slice(0, 150), slice(150, ROWS)):
        block = block_of(X[part], y[part], s[part], {"alpha": alpha[part], "f": f[part]}, part.start)
        measure(state, block, rows_of(state, block))
    signs = 1.0 if loss.numeric() else y.astype(float)
    x = signs * alpha
    assert state.support_met == np.count_nonzero(x)
    assert state.square == pytest.approx(x @ f, rel=1e-12)
    assert state.weight == pytest.approx(np.abs(alpha).sum(), rel=1e-12)
    targets = np.abs(x) @ np.abs(y.astype(float)) if loss.numeric() else 0.0
    assert state.absolute == pytest.approx(np.abs(x) @ np.abs(f) + targets, rel=1e-12)
    assert state.total == pytest.approx(float(s.sum(dtype=float)), rel=1e-12)
    slopes = 1.0 + y.astype(float) if loss.numeric() else np.ones(ROWS)
    gains = [a * u - loss.conjugate(a, C * float(c)) for a, u, c in zip(alpha, slopes, s, strict=True) if c > 0.0]
    assert state.dual == pytest.approx(sum(gains), rel=1e-9)
    shifts = 0.125 + np.linspace(-0.5, 0.5, 129)
    np.testing.assert_allclose(state.shifts(), shifts, rtol=1e-12)
    for k in (0, 64, 128):
        m = f + shifts[k] - y if loss.numeric() else y * (f + shifts[k])
        for sums, slack in ((state.losses, 0.0), (state.upper_losses, 0.01)):
            worst = [max(loss.value(u - slack), loss.value(u + slack)) for u in m.astype(float)]
            assert sums[k] == pytest.approx(C * float(s.astype(float) @ worst), rel=1e-9)


def test_decomposition_bounds_the_error_of_f_after_moves_in_memory() -> None:
    """Over two pools: an error of values for the travel of each; the intercept is the threshold, and moved rows those whose x did."""
    X, y = noisy_rows(ROWS)
    solver = Decomposition(pool=100, working=30)
    state = solver.start(problem_of(X, Hinge(), C, GAMMA, 1e-6))
    rows, drift = {name: np.zeros(ROWS) for name in ("alpha", "f")}, 0.0
    for _ in range(2):
        solver.visit(state, block_of(X, y, np.ones(ROWS, np.float32), rows))
        solver.finish(state)
        work = state.work
        assert work is not None
        while solver.pending(state):
            solver.proceed(state)
        assert state.pool is work.pool
        travel = work.levels[0].known.moves.travel
        assert travel >= np.abs(work.pool.x - work.before).sum() * (1.0 - 1e-12)
        drift += error_of_values(state.form, state.largest, work.pool.size, travel)
        assert state.drift == pytest.approx(drift, rel=1e-12, abs=0.0)
        assert state.intercept == multilevel.threshold(work.pool)
        changed = np.flatnonzero(work.pool.x != work.before)
        assert state.moved is not None
        np.testing.assert_array_equal(state.moved.index, work.pool.index[changed])
        np.testing.assert_array_equal(state.moved.x, (work.pool.x - work.before)[changed])
        assert (state.moved.sign == 1.0).all()
    assert len(state.gaps) == 2
    solver.visit(state, block_of(X, y, np.ones(ROWS, np.float32), rows))
    solver.finish(state)
    solver.set_deadline(state, time.perf_counter() - 1.0)
    steps = 0
    while solver.pending(state):
        solver.proceed(state)
        steps += 1
    assert steps == 2  # one working set, and a look at the clock
    assert state.gaps == []


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
@pytest.mark.parametrize("sparse", [False, True])
def test_decomposition_takes_quadratic_time_on_repeated_points(loss: str, sparse: bool, tmp_path: Path) -> None:
    """Ten points with labels at random: twice the rows took seven times as long, 8,000 of them ten seconds."""
    draw = np.random.default_rng(0)
    spent = []
    for rows in (2500, 8000, 8000):  # the first compiles
        X: Any = np.repeat(draw.normal(size=(10, 4)), rows // 10, 0).astype(np.float32)
        sv.ingest(
            scipy.sparse.csr_matrix(X) if sparse else X,
            str(tmp_path / "s.zarr"),
            y=draw.integers(0, 2, rows),
            overwrite=True,
        )
        began = time.process_time()
        model = sv.fit(
            str(tmp_path / "s.zarr"), str(tmp_path / "m.ssvm"), kernel="rbf", loss=loss, overwrite=True
        ).model
        spent.append(time.process_time() - began)
        assert model.provenance["status"] == "converged"
    assert min(spent[1:]) < 3.0
