"""The interior point out of core: the optimum with few rows kept, and bounds whose dual points are known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from streamsvm.losses import LOSSES
from streamsvm.rows import Dense
from streamsvm.solvers.gathered_rows import NearestRows
from streamsvm.solvers.interior_point_out_of_core import InteriorPoint
from streamsvm.solvers.line_search import STEPS, SegmentSums
from streamsvm.types import Block, Problem
from tests.axes import each_value
from tests.solvers.drawn_rows import fuzzed, solve_as_liblinear
from tests.solvers.kernel_problems import solve
from tests.solvers.problems import ROWS, epoch_blocks, explicit_dual, kind_of, problem_of, rows_of, signed_rows
from tools.fuzz import optima_peers as peers
from tools.fuzz.optima_peers import Drawn


@pytest.mark.filterwarnings("ignore:Liblinear failed to converge")
@each_value(("seed", range(6)), ("loss", ["hinge", "squared_hinge"]))
def test_interior_point_optimum_is_that_of_liblinear_with_few_rows_kept(seed: int, loss: str) -> None:
    drawn = fuzzed(seed)
    state, _, found = solve_as_liblinear(InteriorPoint(kept=60), drawn, loss, 1e-8, block=37, passes=60)
    assert found[-1].gap <= 1e-8
    assert len(found) <= 45
    assert drawn.primal(LOSSES[loss](), state.point) == pytest.approx(found[-1].primal, rel=1e-11)


CORNERED = [name for name in LOSSES if LOSSES[name]().numeric() and not LOSSES[name]().smooth()]


@each_value(("seed", range(4)), ("name", CORNERED))
def test_interior_point_numbers_are_solved_with_few_rows_kept_and_their_dual_variables_known(
    name: str, seed: int
) -> None:
    X, y, s, C = fuzzed(seed)
    t, loss, solver = (
        10.0 * (X[:, 0].astype(float) / np.abs(X[:, 0]).max() + 0.3 * y),
        LOSSES[name](),
        InteriorPoint(kept=60),
    )
    problem = Problem(loss, C, len(X), X.shape[1], kind_of(loss), tolerance=1e-8)
    state, _, found = solve(solver, problem, X, t, s, block=37, passes=60)
    seen = Drawn(X, t, s, C).seen
    Z, norm = peers.features(seen, kernel=False)
    best = peers.least(peers.number_lines(Z, seen, name), norm)
    assert found[-1].gap <= 1e-8
    assert len(found) <= 45
    assert max(one.dual for one in found) <= best * (1 + 1e-9)
    assert best * (1 - 1e-8) <= found[-1].primal <= best * (1 + 1e-7)
    order = np.arange(len(X), dtype=np.int32)
    a = solver.dual_values(state, Block(Dense(X, 1.0), t, s, 0, 0, order, 0))
    assert a is not None
    v = np.append(X, np.ones((len(X), 1)), axis=1).T @ a
    gains = sum(b * (1.0 + u) - loss.conjugate(b, C * c) for b, u, c in zip(a, t, s.astype(float), strict=True) if c)
    assert found[-1].dual == pytest.approx(gains - 0.5 * v @ v, rel=1e-9)


def test_interior_point_what_is_small_at_the_beginning_of_a_long_segment_is_not_lost() -> None:
    """Slopes at its end are 1e20 times as large: as a difference from them, v at its beginning was 0, and D far above the optimum."""
    problem = problem_of(LOSSES["squared_hinge"]())
    Z, (_, _, s), (zero, end) = signed_rows(), rows_of(), np.zeros((2, signed_rows().shape[1]))
    sums = SegmentSums(len(zero))
    for block in epoch_blocks(1):
        sums.add(problem, block, zero, end - 1e20 * Z.sum(0))
    g, V = sums.planes()
    C = problem.C * s.astype(float)
    np.testing.assert_allclose(V[STEPS.index(0.0)], 2.0 * C @ Z, rtol=1e-12)
    assert g[STEPS.index(0.0)] == pytest.approx(C.sum(), rel=1e-12)


def test_interior_point_nearest_rows_do_not_depend_on_how_rows_are_dealt() -> None:
    rng = np.random.default_rng(4)
    X, s = rng.normal(size=(500, 3)).astype(np.float32), rng.choice([0.0, 1.0], 500).astype(np.float32)
    distance = rng.choice([0.0, 0.0, 0.5, 1.0], 500)  # many are alike

    def chosen(cuts: list[int], workers: int) -> Any:
        found = [NearestRows(40) for _ in range(workers)]
        for k, (a, b) in enumerate(zip([0, *cuts], [*cuts, 500], strict=True)):
            part, none = slice(a, b), np.zeros(b - a)
            block = Block(
                Dense(X[part]), np.ones(b - a, np.float32), s[part], k, a, np.arange(b - a, dtype=np.int32), 0
            )
            found[k % workers].add(block, distance[part], none, none)
        for other in found[1:]:
            found[0].merge(other)
        return found[0].take()

    one = chosen([], 1)
    for cuts, workers in (([100, 200, 450], 1), ([50, 51, 300], 2), ([120, 240, 360], 3)):
        other = chosen(cuts, workers)
        np.testing.assert_array_equal(other.row, one.row)
        np.testing.assert_array_equal(other.X.values, one.X.values)
    assert len(one.row) == 40
    assert (s[one.row] > 0).all()
    assert distance[one.row].max() == 0.0


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_interior_point_dual_point_of_its_bound_is_known_row_by_row(loss: str) -> None:
    """Slopes at some weights and, of the rows that were kept, what was found in memory: their D is the one it tells."""
    solver, problem = InteriorPoint(kept=60), problem_of(LOSSES[loss]())
    state = solver.start(problem)
    for epoch in range(6):
        for block in epoch_blocks(epoch):
            solver.visit(state, block)
        certificate = solver.finish(state)
        given: Any = np.empty(ROWS)
        for block in epoch_blocks(0):
            given[block.start : block.start + len(block.y)] = solver.dual_values(solver.witness(state), block)
        assert certificate.dual == pytest.approx(explicit_dual(given, problem.loss, problem.C), rel=1e-9, abs=1e-9)
    assert certificate.gap < 1e-3
