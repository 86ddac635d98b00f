"""What a solver does with less memory when a plan has too little: half of what it holds, down to the least that is of use."""

from __future__ import annotations

from typing import Any

import pytest

from streamsvm.losses import LOSSES
from streamsvm.solvers import SOLVERS
from streamsvm.solvers.column_pool import LEAST_COLUMNS
from streamsvm.solvers.elastic_net.solver import ElasticNet
from streamsvm.solvers.kernel.pool import LEAST_POOL
from streamsvm.solvers.kernel.simplex.frank_wolfe import LEAST_CACHE
from streamsvm.types import Problem

PROBLEM = Problem(LOSSES["squared_hinge"](), 1.0, 100_000, 100_000, 0)


def made(name: str, **settings: int) -> Any:
    return SOLVERS[name](**settings)


@pytest.mark.parametrize(
    ("solver", "less"),
    [
        (made("blended", pool=4097, keep=0), {"pool": 2048, "keep": 4096}),
        (made("blended", pool=4097, keep=10_000), {"pool": 2048, "keep": 4096}),
        (made("blended", pool=4097, keep=3000), {"pool": 2048, "keep": 3000}),
        (made("blended", pool=2 * LEAST_POOL, keep=0), {"pool": LEAST_POOL, "keep": 2 * LEAST_POOL}),
        (made("blended", pool=2 * LEAST_POOL - 1), None),
        (made("fw", pool=4097, keep=0, cache=2 * LEAST_CACHE), {"pool": 4097, "keep": 0, "cache": LEAST_CACHE}),
        (
            made("fw", pool=4097, keep=0, cache=2 * LEAST_CACHE - 1),
            {"pool": 2048, "keep": 4096, "cache": 2 * LEAST_CACHE - 1},
        ),
        (made("fw", pool=2 * LEAST_POOL - 1, cache=LEAST_CACHE), None),
        (made("decomposition", pool=4097), {"pool": 2048}),
        (made("decomposition", pool=2 * LEAST_POOL), {"pool": LEAST_POOL}),
        (made("decomposition", pool=2 * LEAST_POOL - 1), None),
        (ElasticNet(pool=2 * LEAST_COLUMNS + 1), {"pool": LEAST_COLUMNS}),
        (ElasticNet(pool=2 * LEAST_COLUMNS - 1), None),
    ],
)
def test_a_solver_with_half_of_what_it_held(solver: Any, less: dict[str, int] | None) -> None:
    found = solver.smaller(PROBLEM, ())
    assert (found and found.memory_settings()) == less


@pytest.mark.parametrize("name", ["blended", "fw", "decomposition"])
def test_a_pool_is_as_large_as_is_worth_it_unless_its_size_was_asked_for(name: str) -> None:
    """Of few rows it stays what it is."""
    solver = made(name, pool=5000)
    share = getattr(solver, "share", 1.0)
    assert solver.sized(1_000_000, ("keep",)).pool == int(1_000_000 * share)
    assert solver.sized(100, ()).pool == 5000
    assert solver.sized(1_000_000, ("pool",)).pool == 5000
