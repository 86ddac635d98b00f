"""What copies of a state that saw some of the rows each come to together is what one came to that saw all of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from streamsvm.engine.state_transfer import clone
from streamsvm.losses import SquaredHinge
from streamsvm.solvers.newton.solver import Newton
from tests.solvers.problems import epoch_blocks, problem_of, rows_of


def seen(solver: Newton, state: Any, blocks: list[Any]) -> Any:
    for block in blocks:
        solver.visit(state, block)
    return state


@pytest.mark.parametrize("cut", [0, 1, 2, 3])
def test_newton_adds_up_all_that_its_next_sample_is_drawn_by(cut: int) -> None:
    """The squares of the columns decide the scores of the rows, and how much the model may not know."""
    solver, problem = Newton(60), problem_of(SquaredHinge())
    X, _, s = rows_of()
    blocks = sorted(epoch_blocks(0), key=lambda block: block.start)
    start = solver.start(problem)
    copies = [seen(solver, clone(start), part) for part in (blocks[:cut], blocks[cut:])]
    merged, alone = solver.merge(copies), seen(solver, clone(start), blocks)
    constant = np.ones((len(X), 1))
    squares = (np.hstack([X.astype(np.float64), constant]) ** 2 * s[:, None]).sum(0)
    np.testing.assert_allclose(merged.squares, squares, rtol=1e-6)
    np.testing.assert_allclose(merged.squares, alone.squares, rtol=1e-12)
    certificates = [solver.finish(state) for state in (merged, alone)]
    assert certificates[0].primal == pytest.approx(certificates[1].primal, rel=1e-12)
    np.testing.assert_allclose(merged.point, alone.point, rtol=1e-8, atol=1e-12)
