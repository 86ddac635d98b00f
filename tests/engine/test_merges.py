"""What copies of a state that saw some of the rows each come to together is what one came to that saw all of them."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np
import pytest

from streamsvm.engine.groups import begin_part
from streamsvm.kernels import RBF
from streamsvm.losses import Hinge, Logistic, Squared, SquaredHinge
from streamsvm.solvers.active_set import ActiveSet
from streamsvm.solvers.cutting_plane import CuttingPlane
from streamsvm.solvers.evaluation import WeightEvaluation
from streamsvm.solvers.interior_point import InteriorPoint
from streamsvm.solvers.kernel.frank_wolfe import Swap
from streamsvm.solvers.kernel_active_set import KernelActiveSet
from streamsvm.solvers.kinds import OneAgainstRest, OneClass
from streamsvm.solvers.newton.solver import Newton
from streamsvm.solvers.nu import MARGIN, NuMargin
from streamsvm.solvers.one_class import CORNER, OFFSET, FreeOffset
from streamsvm.solvers.regularizers import ElasticNet, L1Ball
from streamsvm.types import Problem, Regularizer
from tests.solvers.problems import COLUMNS, ROWS, epoch_blocks, problem_of, rows_of


def seen(solver: Any, state: Any, blocks: list[Any]) -> Any:
    for block in blocks:
        solver.visit(state, block)
    return state


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


def formed(regularizer: Regularizer, solver: Any, problem: Problem) -> tuple[Any, Problem]:
    """The solver for problems with a regularizer, and the problem with it."""
    return regularizer.adapt(solver), replace(problem, regularizer=regularizer)


CASES: dict[str, tuple[Any, Problem]] = {
    "newton": (Newton(), problem_of(SquaredHinge())),
    "newton, hinge": (Newton(), problem_of(Hinge())),
    "newton, sample": (Newton(60), problem_of(SquaredHinge())),
    "newton, sample, logistic": (Newton(60), problem_of(Logistic())),
    "elastic net": formed(ElasticNet(1.0), Newton(), problem_of(SquaredHinge())),
    "interior point": (InteriorPoint(), problem_of(Hinge())),
    "interior point, few rows": (InteriorPoint(60), problem_of(SquaredHinge())),
    "one class": formed(FreeOffset(0.3), InteriorPoint(60), replace(problem_of(CORNER), kind=OneClass(), bias=OFFSET)),
    "classes by nu": formed(NuMargin(0.4), InteriorPoint(60), problem_of(MARGIN)),
    "cutting plane": (CuttingPlane(), problem_of(Hinge())),
    "active set": (ActiveSet(), problem_of(Hinge())),
    "l1 ball": formed(L1Ball(1.0), Swap(), problem_of(Squared(0.5))),
    "evaluation": (WeightEvaluation(), replace(problem_of(Hinge()), warm=np.linspace(-1.0, 1.0, COLUMNS + 1))),
}


@pytest.mark.parametrize("case", CASES)
def test_merge_of_parts_has_every_number_of_one_pass(case: str) -> None:
    """Every number that a state has, after each of two passes, before it is closed, and what is certified then.

    Some copies were given no rows.
    """
    solver, problem = CASES[case]
    rows = {state.name: np.zeros(ROWS) for state in solver.row_state}
    shared, alone = solver.start(problem), solver.start(problem)
    for epoch in range(2):
        blocks = [replace(block, X=block.X._replace(bias=problem.bias)) for block in epoch_blocks(epoch)]
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
