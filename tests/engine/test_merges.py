"""What copies of a state that saw some of the rows each come to together is what one came to that saw all of them."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np
import pytest

from streamsvm.engine.groups import begin_part
from streamsvm.engine.state_transfer import clone
from streamsvm.kernels import RBF
from streamsvm.losses import Hinge, SquaredHinge
from streamsvm.solvers.active_set import ActiveSet
from streamsvm.solvers.cutting_plane import CuttingPlane
from streamsvm.solvers.evaluation import WeightEvaluation
from streamsvm.solvers.interior_point import InteriorPoint
from streamsvm.solvers.kernel_active_set import KernelActiveSet
from streamsvm.solvers.kinds import OneAgainstRest
from streamsvm.solvers.newton.solver import Newton
from streamsvm.types import Problem
from tests.solvers.problems import COLUMNS, ROWS, epoch_blocks, problem_of, rows_of


def seen(solver: Any, state: Any, blocks: list[Any]) -> Any:
    for block in blocks:
        solver.visit(state, block)
    return state


@pytest.mark.parametrize("cut", [0, 1, 2, 3])
def test_merge_of_newton_keeps_what_its_next_sample_needs(cut: int) -> None:
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


def numbers(state: Any, path: str = "") -> dict[str, Any]:
    """The numbers and arrays of a state by name, through what it is made of; but for lists, whose order may differ, and for how
    many rows a sample holds until the next are thrown out.
    """
    if is_dataclass(state):
        names = (f.name for f in fields(state) if f.name not in ("problem", "threshold", "held"))
        parts = {name: getattr(state, name) for name in names}
    elif isinstance(state, tuple) and hasattr(state, "_asdict"):
        parts = state._asdict()
    else:
        return {path: state} if isinstance(state, int | float | np.ndarray) else {}
    return {key: value for name, part in parts.items() for key, value in numbers(part, f"{path}.{name}").items()}


@pytest.mark.parametrize(
    ("solver", "loss"),
    [
        (Newton(), SquaredHinge()),
        (Newton(), Hinge()),
        (Newton(60), SquaredHinge()),
        (InteriorPoint(), Hinge()),
        (InteriorPoint(60), SquaredHinge()),
        (CuttingPlane(), Hinge()),
        (ActiveSet(), Hinge()),
        (WeightEvaluation(), Hinge()),
    ],
    ids=str,
)
def test_merge_of_parts_has_every_number_of_one_pass(solver: Any, loss: Any) -> None:
    """Every number that a state has, after each of two passes, before it is closed, and what is certified then.

    Some copies were given no rows.
    """
    problem, rows = problem_of(loss), {state.name: np.zeros(ROWS) for state in solver.row_state}
    if isinstance(solver, WeightEvaluation):
        problem = replace(problem, warm=np.linspace(-1.0, 1.0, COLUMNS + 1))
    shared, alone = solver.start(problem), solver.start(problem)
    for epoch in range(2):
        blocks = epoch_blocks(epoch)
        for block in blocks:
            block.rows = {name: array[block.start : block.start + 100] for name, array in rows.items()}
        idle, *copies, late = (begin_part(solver, shared) for _ in range(5))
        for block, copy in zip(blocks, copies, strict=True):
            solver.visit(copy, block)
        merged = solver.merge([solver.merge([idle, *copies[:2]]), copies[2], late])
        for name in solver.driver_fields:
            setattr(merged, name, getattr(shared, name))
        seen(solver, alone, blocks)
        found, expected = numbers(merged), numbers(alone)
        assert set(found) == set(expected)
        for name, value in expected.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-7, atol=1e-9, err_msg=name)
        certificates = [solver.finish(state) for state in (merged, alone)]
        assert certificates[0].primal == pytest.approx(certificates[1].primal, rel=1e-9)
        assert certificates[0].dual == pytest.approx(certificates[1].dual, rel=1e-9, abs=1e-12)
        if certificates[1].final:
            break
        shared = merged


def given(state: Any, number: float, names: str) -> Any:
    """The state with numbers of one kind in all these fields: the k-th field has k times the number."""
    for k, name in enumerate(names.split(), 1):
        old = getattr(state, name)
        setattr(state, name, np.full_like(old, k * number) if isinstance(old, np.ndarray) else k * number)
    return state


KERNEL_PROBLEM = Problem(SquaredHinge(), 1.0, ROWS, COLUMNS, OneAgainstRest(1), kernel=RBF(0.5))


def test_merge_of_kernel_active_set_gathers_rows_and_reach() -> None:
    solver: Any = KernelActiveSet()
    blocks = epoch_blocks(0)
    one, other, alone = (solver.start(KERNEL_PROBLEM) for _ in range(3))
    for state, part in ((one, blocks[:1]), (other, blocks[1:]), (alone, blocks)):
        for block in part:
            solver.visit(state, replace(block, rows={solver.row_state[0].name: np.zeros(100)}))
    merged = solver.merge([one, other])
    assert merged.reach == alone.reach
    found, expected = merged.gatherer.join(), alone.gatherer.join()
    np.testing.assert_array_equal(found.X.values, expected.X.values)
    X, y, s = rows_of()
    for values, expected_rows in zip((found.X.values, found.y, found.s), (X, y, s), strict=True):
        np.testing.assert_array_equal(values, expected_rows[s > 0.0])
    np.testing.assert_array_equal(found.row, np.flatnonzero(s > 0.0))
