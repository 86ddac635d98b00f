"""What solvers ask for, in bytes, against what their sentences say: 40 rows of 6 columns, p = 7, so that every factor shows.

That the sentences are true is measured elsewhere (``tests/contract/test_kernel_memory.py``, ``tests/test_memory.py``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from streamsvm.compute import threading
from streamsvm.compute.blocks.operators import TILE, gram_bytes
from streamsvm.compute.blocks.row_selection import bytes_per_row
from streamsvm.compute.kernel_values.expansion import scratch_bytes
from streamsvm.kernels import RBF
from streamsvm.losses import Hinge, Logistic, SquaredHinge
from streamsvm.solvers import SOLVERS, leave_one_out
from streamsvm.solvers.active_set.kernel import KernelActiveSet
from streamsvm.solvers.active_set.solver import ActiveSet
from streamsvm.solvers.cutting_plane.solver import CuttingPlane
from streamsvm.solvers.dcd.mpu import MPU
from streamsvm.solvers.dcd.multinomial import MultinomialDCD
from streamsvm.solvers.dcd.solver import DCD
from streamsvm.solvers.elastic_net import solver as net
from streamsvm.solvers.elastic_net.solver import ElasticNet
from streamsvm.solvers.interior_point.nu_classes import NuClasses
from streamsvm.solvers.interior_point.solver import InteriorPoint
from streamsvm.solvers.kernel.box_problem import system_bytes
from streamsvm.solvers.kernel.decomposition.solver import Decomposition
from streamsvm.solvers.kernel.reduced_set import bytes_for
from streamsvm.solvers.kernel.simplex.blended import Blended
from streamsvm.solvers.kernel.simplex.frank_wolfe import FrankWolfe
from streamsvm.solvers.l1_ball import solver as ball
from streamsvm.solvers.newton.explicit import matrix_bytes
from streamsvm.solvers.newton.in_memory.linear_systems.preconditioner import block_bytes, block_size
from streamsvm.solvers.newton.row_sample import row_bytes, sampled_bytes
from streamsvm.solvers.newton.solver import Newton
from streamsvm.solvers.stochastic.assg import ASSG
from streamsvm.solvers.stochastic.pegasos import Pegasos
from streamsvm.solvers.stochastic.sgd import SGD
from streamsvm.solvers.stochastic.sgd_qn import SGDQN
from streamsvm.solvers.weight_evaluation import WeightEvaluation
from streamsvm.types import Cost, KernelSolver, Layout, Partitioned, Problem

DENSE = Layout(6, (10, 30), None, ("a", "b"), (20, 20))
SPARSE = replace(DENSE, nonzeros=(25, 60))
"""Rows of 25 bytes, 8 an entry and 8 for where it begins; dense ones have 24."""
with threading.using(2):  # as every test here, whatever the machine has
    FACTORED = 24 * 49 + gram_bytes(7)
"""A matrix of 7 components while it is made and factorized."""


def problem(loss: Any = None, layout: Layout = DENSE) -> Problem:
    nonzeros = None if layout.nonzeros is None else sum(layout.nonzeros)
    return Problem(loss or Hinge(), 1.0, layout.rows, layout.columns, 1, nonzeros=nonzeros)


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    """Each has scratch of its own."""
    with threading.using(2):
        yield


with threading.using(2):
    LINEAR = (
        (DCD(), Cost(fixed=4 * 56, per_row=8)),
        (DCD(parts=2), Cost(fixed=8 * 56, per_row=16)),  # what it was before the pass, too
        (DCD(shrinking=True), Cost(fixed=4 * 56, per_row=16)),
        (MPU(), Cost(fixed=4 * 56, per_row=8)),
        (SGDQN(), Cost(fixed=16 * 56)),
        (SGD(), Cost(fixed=8 * 56)),
        (SGD(variant="r"), Cost(fixed=8 * 56, per_block_row=8)),
        (SGD(variant="r", draws="all"), Cost(fixed=8 * 56, per_block_row=8)),
        (Pegasos(batch=5), Cost(fixed=8 * 56 + 40)),
        (ASSG(batch=5), Cost(fixed=8 * 56 + 40, per_block_row=8)),
        (WeightEvaluation(), Cost(fixed=2 * 56, per_block_row=8)),
        (CuttingPlane(planes=10), Cost(fixed=8 * (7 * (3 * 10 + 40) + 6 * 100), per_block_row=32)),
        (CuttingPlane(), Cost(fixed=8 * (7 * (3 * 256 + 40) + 6 * 256**2), per_block_row=32)),
        (InteriorPoint(kept=10), Cost(fixed=30 * (24 + 260) + FACTORED + 60 * 56, per_block_row=48)),
        (InteriorPoint(), Cost(fixed=120 * (24 + 260) + FACTORED + 60 * 56, per_block_row=48)),
        (ActiveSet(), Cost(fixed=80 * (24 + 120) + FACTORED + 40 * 56, per_row=8, per_block_row=24)),
        (
            KernelActiveSet(),
            Cost(fixed=80 * (24 + 120) + 24 * 40**2 + system_bytes(40) + scratch_bytes(6), per_row=8, per_block_row=16),
        ),
        (Newton(10), Cost(32 * 56 + 40 * (4 * 7 + 48), per_block_row=48, per_part=3 * 56, shared=FACTORED)),
        (Newton(), Cost(32 * 56 + 40 * 188, per_block_row=48, per_part=3 * 56, shared=FACTORED + 40 * 2 * 28)),
        (Newton(90), Newton().cost(problem(), DENSE)),  # a sample of more rows than there are is all of them
    )


@pytest.mark.parametrize(("solver", "cost"), LINEAR, ids=str)
def test_linear_solvers_ask_for_what_they_say(solver: Any, cost: Cost) -> None:
    assert solver.cost(problem(), DENSE) == cost


@pytest.mark.parametrize("name", list(SOLVERS))
def test_what_lies_beside_rows_is_counted_for_each(name: str) -> None:
    solver = SOLVERS[name]()
    for one in (solver, solver.in_parts(2)) if isinstance(solver, Partitioned) else (solver,):
        asked = problem(SquaredHinge()) if one.losses.smooth else problem()
        asked = replace(asked, kernel=RBF(1.0)) if isinstance(one, KernelSolver) else asked
        assert one.cost(asked, DENSE).per_row == sum(np.dtype(state.dtype).itemsize for state in one.row_state)


def test_sparse_rows_are_counted_by_their_entries() -> None:
    asked = problem(layout=SPARSE)
    assert bytes_per_row(6, 40, SPARSE.nonzeros) == 25
    assert bytes_per_row(6, 40, (25, 61)) == 26
    assert bytes_per_row(6, 1, (5,)) == 48
    assert InteriorPoint(kept=10).cost(asked, SPARSE).fixed == 30 * (25 + 260) + FACTORED + 60 * 56
    assert ActiveSet().cost(asked, SPARSE).fixed == 80 * (25 + 120) + FACTORED + 40 * 56
    few, every = Newton(10).cost(asked, SPARSE), Newton().cost(asked, SPARSE)
    assert (few.fixed, few.shared) == (32 * 56 + 40 * (4 * 8 + 48), FACTORED)  # 2 * 85 // 40 + 4 entries
    assert (every.fixed, every.shared) == (32 * 56 + 40 * 188, FACTORED + 40 * 32)  # joined in place
    assert (row_bytes(asked), row_bytes(problem())) == (32, 28)


MANY = replace(DENSE, chunks=(150_001,), counts=(1, 150_000))
"""Of so many rows a sample has 50,000, unless another number is said."""
ALL = 150_001 * 188
"""What goes with all of them."""


@pytest.mark.parametrize(
    ("kept", "entry", "own", "gathered"),
    [
        (0, 4, 150_001 * 2 * 28 + ALL, 0),  # in the end all rows, twice while they are put together
        (0, 8, 150_001 * 4 * 28 + ALL, 0),
        (1, 4, 50_000 * 2 * (28 + 48), 100_000 * (1 + 56)),  # features are made again for a sample alone
        (12, 4, 50_000 * 2 * (28 + 48), 100_000 * (12 + 56)),
        (
            12,
            8,
            150_001 * (12 + 56) + ALL,
            100_000 * (12 + 56),
        ),  # of float64 those in memory are those that are visited
    ],
)
def test_newton_holds_a_sample_or_all_rows_and_what_is_kept_until_features_are_made(
    kept: int, entry: int, own: int, gathered: int
) -> None:
    """A part of a pass has up to twice as many rows as the sample, each as it is kept."""
    found = Newton().cost(problem(layout=MANY), replace(MANY, kept_bytes=kept, entry_bytes=entry))
    matrix = max(block_bytes(7, entry), matrix_bytes(7, entry))
    assert found == Cost(32 * 56 + own, per_block_row=48, per_part=3 * 56 + gathered, shared=matrix)


def test_newton_on_kept_rows_of_a_small_store_shares_them_all() -> None:
    """Each as it is kept, and its features once they are made; of a sample of 10 those beside the next one's."""
    layout = replace(DENSE, kept_bytes=12)
    every, few = Newton().cost(problem(), layout), Newton(10).cost(problem(), layout)
    assert every == Cost(32 * 56 + 40 * 188, per_block_row=48, per_part=3 * 56, shared=FACTORED + 40 * (12 + 28))
    assert few.fixed == 32 * 56 + 10 * 2 * (28 + 48)
    assert few.per_part == 3 * 56 + 20 * (12 + 56)


def test_newton_sums_up_second_derivatives_of_few_columns_where_a_loss_bends_everywhere() -> None:
    """Eight matrices of all components, and one for each part of a pass."""
    found = Newton(10).cost(problem(Logistic()), DENSE)
    assert found.fixed == 32 * 56 + 8 * 8 * 49 + 40 * (28 + 48)
    assert found.per_part == 3 * 56 + 8 * 49


@pytest.mark.parametrize(("entries", "row"), [(3, 188), (10, 188), (11, 140 + 4 * 13), (30, 140 + 4 * 24)])
def test_proximal_descent_holds_full_columns_of_each_row(entries: int, row: int) -> None:
    """Of rows with k entries k + 2 columns are full at most, and no more than 24."""
    layout = Layout(50, (40,), (40 * entries,), ("a", "b"), (20, 20))
    assert Newton().cost(problem(layout=layout), layout).fixed == 32 * 8 * 51 + 40 * row
    assert Newton().cost(problem(SquaredHinge(), layout), layout).fixed == 32 * 8 * 51 + 40 * 188


@pytest.mark.parametrize("sparse", [False, True])
def test_where_columns_are_many_only_some_are_in_a_matrix(sparse: bool) -> None:
    columns = 9_000
    layout = Layout(columns, (10, 30), (250, 600) if sparse else None, ("a", "b"), (20, 20))
    asked, p, entries = problem(layout=layout), columns + 1, 850 if sparse else 40 * 9_001
    block = block_bytes(block_size(columns, entries, dense=not sparse))
    row = 8 + 170 if sparse else 4 * columns
    assert block == block_bytes(64 if sparse else 193)  # (20 * entries) ** (1 / 3), at least 64
    assert InteriorPoint(kept=10).cost(asked, layout).fixed == 30 * (row + 260) + block + 60 * 8 * p
    smooth = InteriorPoint(kept=10).cost(replace(asked, loss=SquaredHinge()), layout).fixed
    assert smooth == 30 * (row + 260) + matrix_bytes(p) + 60 * 8 * p
    matrix = max(block, matrix_bytes(40), 40 * 40**2)
    assert ActiveSet().cost(asked, layout).fixed == 80 * (row + 120) + matrix + 40 * 8 * p
    newton = max(block, 0 if sparse else matrix_bytes(8000))
    found = Newton(10).cost(asked, layout)
    assert (found.fixed, found.shared) == (32 * 8 * p + 10 * sampled_bytes(asked), newton)


def test_where_rows_are_many_the_factor_of_the_free_ones_is_larger_than_what_it_begins_with() -> None:
    layout = Layout(6_999, (7_000,), None, ("a", "b"), (3_500, 3_500))
    asked = problem(layout=layout)
    assert ActiveSet().cost(asked, layout).fixed == 14_000 * (4 * 6_999 + 120) + 40 * 7_000**2 + 40 * 8 * 7_000
    few = ActiveSet().cost(replace(asked, rows=50), layout).fixed  # of the matrix, not of the rows, which are fewer
    block = block_size(6_999, 50 * 7_000, dense=True)
    assert 64 < block < 1_000  # of few rows it is not one of all columns
    assert few == 100 * (4 * 6_999 + 120) + max(block_bytes(block), matrix_bytes(50), 40 * 50**2) + 40 * 8 * 7_000


ROW = 24 + 64
"""A row and the eight numbers a pool has of it."""


@pytest.mark.parametrize(
    ("solver", "fixed"),
    [
        (Decomposition(pool=16, working=8), 2 * 16 * ROW + 2 * 40 * ROW),  # the support when all is collected
        (Decomposition(pool=90, working=90), 3 * 40 * ROW + 28 * 40**2),  # the next pool is made
        (Decomposition(pool=16, working=8, max_support=2), 3 * 16 * ROW + 28 * 64 + 2 * 16 * ROW + bytes_for(2)),
        (Decomposition(pool=16, working=8, max_support=90), 3 * 16 * ROW + 28 * 64 + 2 * 40 * ROW + bytes_for(40)),
    ],
    ids=str,
)
def test_decomposition_asks_for_pools_and_support(solver: Any, fixed: int) -> None:
    assert solver.cost(problem(), DENSE) == Cost(fixed + scratch_bytes(6), per_row=16, per_block_row=2 * 64 + 8)


@pytest.mark.parametrize(
    ("solver", "fixed"),
    [
        (Blended(pool=16, keep=8, working=9), 3 * 24 * ROW + 28 * 81),
        (Blended(pool=16, working=90), 3 * 40 * ROW + 28 * 40**2),
        (Blended(pool=16, keep=8, working=9, max_support=3), 3 * 24 * ROW + 28 * 81 + bytes_for(3)),
        (Blended(pool=16, keep=8, working=9, max_support=90), 3 * 24 * ROW + 28 * 81 + bytes_for(40)),
        (FrankWolfe(pool=16, keep=8, cache=1000), 3 * 24 * ROW + 1000 + 48 * 24),
        (FrankWolfe(pool=16, keep=8, cache=100_000), 3 * 24 * ROW + 4 * 24**2 + 48 * 24),
        (FrankWolfe(pool=16, keep=8, sample=5), 3 * 24 * ROW + 24 * 5 * 24),
    ],
    ids=str,
)
def test_simplex_solvers_ask_for_pool_and_support_together(solver: Any, fixed: int) -> None:
    assert solver.cost(problem(), DENSE) == Cost(fixed + scratch_bytes(6), per_block_row=64 + 8)


@pytest.mark.parametrize("solver", [Decomposition(), FrankWolfe(), Blended()], ids=str)
def test_a_pair_of_classes_holds_rows_of_its_own_and_no_problem_more_than_the_store_has(solver: Any) -> None:
    """A support of no more rows than the smaller of both."""
    own, all_of_it = (replace(problem(), rows=rows) for rows in (10, 40))
    smaller = replace(DENSE, chunks=(10,))
    assert solver.cost(own, DENSE).fixed == solver.cost(all_of_it, smaller).fixed
    assert solver.cost(own, DENSE).fixed < solver.cost(all_of_it, DENSE).fixed


def test_matrices_and_tiles_are_counted_at_their_height() -> None:
    for threads in (1, 3):
        with threading.using(threads):
            assert gram_bytes(7, 5) == 8 * 49 + threads * (4 * 49 + 4 * TILE * 12)
            assert gram_bytes(7) == 8 * 49 + threads * (4 * 49 + 4 * TILE * 7)
    assert matrix_bytes(7) == 16 * 49 + gram_bytes(7) > 32 * 49
    assert matrix_bytes(100_000) == 32 * 10**10
    assert block_bytes(7) == FACTORED
    assert bytes_for(3) == 24 * 9 + 8 * 512 * 3
    tile = 8 * 512 * 512
    assert scratch_bytes(6) == 2 * (3 * 8 * 6 * 512 + tile)
    assert scratch_bytes(10_000) == 2 * (3 * (8 << 20) + tile)
    assert scratch_bytes(2_000_000) == 2 * (3 * 16_000_000 + tile)


def test_a_block_has_all_components_while_that_is_affordable() -> None:
    assert [block_size(columns, 10**9, dense=True) for columns in (7_999, 8_000)] == [8_000, 1_000]
    assert [block_size(columns, 10**9, dense=False) for columns in (1_499, 1_500)] == [1_500, 1_000]
    assert block_size(10**6, 50 * 10**6, dense=False) == 999  # the cube root of 10^9, rounded down
    assert block_size(10**6, 1, dense=False) == 64


def test_rows_of_a_sample_are_counted_as_they_are_gathered_or_solved_for() -> None:
    assert sampled_bytes(problem()) == 28 + 56 + 220
    long = replace(problem(), columns=249)
    assert sampled_bytes(long) == int(1.25 * (1000 + 56)) + 100


def test_leaving_one_out_holds_a_matrix_for_each_problem_and_three() -> None:
    matrices, work = 8 * 49 * 5, gram_bytes(7) + 16 * 1024 * 7
    assert leave_one_out.leave_one_out_bytes([problem(), problem()], 1) == matrices + work
    assert leave_one_out.leave_one_out_bytes([problem()], 3) == matrices - 8 * 49 + 3 * work


@pytest.mark.parametrize(("layout", "row"), [(DENSE, 64 + 4 * 7), (SPARSE, 64 + 8 * 7)])
def test_the_elastic_net_holds_a_block_of_the_columns_of_its_pool(layout: Layout, row: int) -> None:
    """All six columns and the constant one; a part has v, and a matrix of those columns."""
    asked = ElasticNet().cost(problem(SquaredHinge(), layout), layout)
    assert asked.per_block_row == row
    assert asked.per_part == 8 * (4 * 7 + 7 * 7)
    assert asked.fixed == 8 * (net.VECTORS * 7 + net.MATRICES * 49) + gram_bytes(7)


@pytest.mark.parametrize(("pool", "m"), [(4096, 7), (3, 4)])
@pytest.mark.parametrize(("layout", "entry"), [(DENSE, 4), (SPARSE, 8)])
def test_a_ball_holds_matrices_of_the_columns_of_its_pool(layout: Layout, entry: int, pool: int, m: int) -> None:
    """With the constant one; a part has four vectors, and what it sums up."""
    asked = FrankWolfe(pool=pool).in_l1_ball().cost(replace(problem(SquaredHinge(), layout), l1_ball=2.0), layout)
    assert asked.fixed == 8 * (ball.VECTORS * 7 + ball.MATRICES * m * m + ball.VERTEX_VECTORS * 2 * m)
    assert (asked.per_block_row, asked.per_part) == (48 + entry * m, 8 * (4 * 7 + m * m))
    assert asked == Cost(asked.fixed, per_block_row=asked.per_block_row, per_part=asked.per_part)


@pytest.mark.parametrize(
    ("layout", "row"), [(DENSE, 4 * 7), (SPARSE, 24 * (3 + 1)), (replace(SPARSE, nonzeros=(30, 50)), 24 * (2 + 1))]
)
def test_two_classes_with_nu_hold_a_copy_of_the_rows_of_a_block(layout: Layout, row: int) -> None:
    """Beside what one class of rows with signs asks for, to which the constant is a column, and an entry of each row."""
    asked = replace(problem(layout=layout), nu=0.3)
    nonzeros = None if layout.nonzeros is None else sum(layout.nonzeros) + 40
    inner = InteriorPoint(10).cost(replace(asked, columns=7, nonzeros=nonzeros), layout)
    found = NuClasses(InteriorPoint(10)).cost(asked, layout)
    assert found == replace(inner, per_block_row=inner.per_block_row + row)
    without = NuClasses(InteriorPoint(10)).cost(replace(asked, bias=0.0), layout)
    inner = InteriorPoint(10).cost(asked, layout)
    assert without == replace(inner, per_block_row=inner.per_block_row + row)


@pytest.mark.parametrize(("parts", "vectors", "row"), [(1, 4, 8), (2, 8, 16)])
def test_all_classes_together_hold_weights_and_a_dual_variable_of_each(parts: int, vectors: int, row: int) -> None:
    """What those were before the pass, too, where there are parts; a row of a block has three numbers a class."""
    asked = replace(problem(), classes=3)
    assert asked.components == 3 * 7
    cost = MultinomialDCD(parts=parts, classes=3).cost(asked, DENSE)
    assert cost == Cost(fixed=vectors * 3 * 56, per_row=3 * row, per_block_row=3 * 8 * 3)
    assert WeightEvaluation().cost(asked, DENSE) == Cost(fixed=2 * 3 * 56, per_block_row=3 * 8)
