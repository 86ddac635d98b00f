"""The roles of a state's fields: what parts of a pass come to together is what one came to that saw all rows."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any

import numpy as np
import pytest

from streamsvm.engine.state_transfer import clone
from streamsvm.kernels import RBF
from streamsvm.losses import LOSSES, Hinge, Logistic, Squared, SquaredHinge
from streamsvm.rows import Dense
from streamsvm.solvers import SOLVERS, losses_of
from streamsvm.solvers.dcd import DCD
from streamsvm.solvers.evaluation import WeightEvaluation
from streamsvm.solvers.free_bias import FreeBias
from streamsvm.solvers.interior_point_out_of_core import InteriorPoint
from streamsvm.solvers.kernel.active_set import KernelActiveSet
from streamsvm.solvers.kernel.decomposition import Decomposition
from streamsvm.solvers.kernel.frank_wolfe import Partan
from streamsvm.solvers.lbfgs import LBFGS
from streamsvm.solvers.newton.solver import Newton
from streamsvm.solvers.nu import UNIT_HINGE, NuMargin
from streamsvm.solvers.one_class import HINGE_AT_ZERO, OFFSET, FreeOffset
from streamsvm.solvers.problem_kinds import Multinomial, OneClass
from streamsvm.solvers.regularizers import ElasticNet, L1Ball
from streamsvm.solvers.softmax import Softmax
from streamsvm.types import AnySolver, Block, Problem
from streamsvm.types.state import (
    DriverOnly,
    FirstPassTotal,
    Largest,
    Mean,
    Own,
    Seen,
    Smallest,
    Total,
    begin_part,
    clear_totals,
    find_driver_fields,
    merge_states,
)
from tests.solvers.problems import COLUMNS, ROWS, problem_of, rows_of

BLOCK = 20
"""Rows of a block."""
WARM = np.linspace(-1.0, 1.0, COLUMNS + 1)


# -- the roles, on a state that has each


@dataclass
class Inner:
    sums: Total[Any] = field(default_factory=lambda: np.zeros(2))
    limit: int = 7


@dataclass
class Outer:
    shared: Any
    inner: Total[Inner]
    array: Total[Any]
    matrix: Total[Any] = None
    number: Total[float] = 0.0
    rows: Total[list[int]] = field(default_factory=list)
    pair: Total[tuple[float, float]] = (0.0, 0.0)
    squares: FirstPassTotal[float] = 0.0
    top: Largest[float] = -np.inf
    bottom: Smallest[float] = np.inf
    rounded: Seen[bool] = False
    center: Mean[Any] = None
    weights: Own[Any] = None
    model: DriverOnly[Any] = None
    passes: int = 0


def outer(passes: int) -> Outer:
    state = Outer(object(), Inner(np.full(2, 5.0)), np.full(3, 2.0), passes=passes)
    state.matrix, state.number, state.rows, state.pair, state.squares = np.eye(2), 3.0, [1], (1.0, 2.0), 4.0
    state.top, state.bottom, state.rounded = 6.0, -6.0, True
    state.center, state.weights, state.model = np.ones(2), np.ones(2), object()
    return state


@pytest.mark.parametrize("passes", [0, 1])
def test_role_says_what_a_part_begins_with(passes: int) -> None:
    state = outer(passes)
    part = begin_part(state)
    assert part.shared is state.shared
    np.testing.assert_array_equal(part.array, np.zeros(3))
    np.testing.assert_array_equal(part.inner.sums, np.zeros(2))
    assert part.inner.limit == 7
    assert (part.matrix, part.number, part.rows, part.pair) == (None, 0.0, [], (0.0, 0.0))
    assert part.squares == (4.0 if passes else 0.0)
    assert (part.top, part.bottom, part.rounded, part.model) == (-np.inf, np.inf, True, None)
    for name in ("center", "weights"):
        assert not np.shares_memory(getattr(part, name), getattr(state, name))
        np.testing.assert_array_equal(getattr(part, name), np.ones(2))
    np.testing.assert_array_equal(state.inner.sums, np.full(2, 5.0))
    assert state.rows == [1]


@pytest.mark.parametrize("passes", [0, 1])
def test_role_says_how_parts_are_merged(passes: int) -> None:
    parts = [outer(passes) for _ in range(3)]
    parts[0].matrix, parts[1].number, parts[1].rows = None, 10.0, [2, 3]
    parts[2].top, parts[1].bottom, parts[0].rounded = 9.0, -9.0, False
    parts[2].center, parts[2].weights = np.full(2, 7.0), np.full(2, 7.0)
    first, shared, model = parts[0], parts[0].shared, parts[0].model
    merged = merge_states(parts)
    assert merged is first
    np.testing.assert_array_equal(merged.array, np.full(3, 6.0))
    np.testing.assert_array_equal(merged.inner.sums, np.full(2, 15.0))
    np.testing.assert_array_equal(merged.matrix, 2.0 * np.eye(2))
    assert (merged.number, merged.rows, merged.pair) == (16.0, [1, 2, 3, 1], (3.0, 6.0))
    assert merged.squares == (4.0 if passes else 12.0)
    assert (merged.top, merged.bottom, merged.rounded) == (9.0, -9.0, True)
    np.testing.assert_array_equal(merged.center, np.full(2, 3.0))
    np.testing.assert_array_equal(merged.weights, np.ones(2))
    assert (merged.shared, merged.model, merged.inner.limit) == (shared, model, 7)


def test_role_says_what_is_forgotten_after_a_pass() -> None:
    state = outer(1)
    inner, model = state.inner, state.model
    clear_totals(state)
    assert state.inner is inner
    np.testing.assert_array_equal(inner.sums, np.zeros(2))
    np.testing.assert_array_equal(state.array, np.zeros(3))
    assert (state.matrix, state.number, state.rows, state.squares, state.model) == (None, 0.0, [], 4.0, model)
    np.testing.assert_array_equal(state.weights, np.ones(2))


def test_role_of_no_field_is_refused() -> None:
    with pytest.raises(TypeError, match="dict declares no role of any field"):
        merge_states([{}, {}])


# -- the states of all solvers


def drawn(loss: Any = None, **more: Any) -> Problem:
    return replace(problem_of(loss or Hinge()), **more)


def variants() -> dict[str, tuple[Any, Problem]]:
    """Every registered solver, some of them for other kinds of problems, each with a problem."""
    found: dict[str, tuple[Any, Problem]] = {}
    for name in SOLVERS:
        solver = SOLVERS[name]()
        kernel = RBF(0.5) if solver.exact_kernel else None
        found[name] = solver, drawn(LOSSES[losses_of(name)[0]](), kernel=kernel)
    three, l1, ball, nu, offset = Multinomial(3), ElasticNet(3.0), L1Ball(0.5), NuMargin(0.3), FreeOffset(0.3)
    found |= {
        "newton, sample": (Newton(60), drawn(SquaredHinge())),
        "newton, logistic": (Newton(60), drawn(Logistic())),
        "newton, warm": (Newton(60), drawn(warm=WARM)),
        "interior point, rows": (InteriorPoint(60), drawn(SquaredHinge())),
        "decomposition, pool": (Decomposition(30, 64, max_support=9), drawn(kernel=RBF(0.5))),
        "weights": (WeightEvaluation(), drawn(warm=WARM)),
        "three classes": (three.adapt(InteriorPoint()), drawn(SquaredHinge(), kind=three)),
        "three classes, descent": (three.adapt(DCD()), drawn(SquaredHinge(), kind=three)),
        "softmax": (Softmax(3).adapt(LBFGS()), drawn(Logistic(), kind=Softmax(3))),
        "free bias": (FreeBias(COLUMNS + 1).adapt(LBFGS()), drawn(Logistic(), regularizer=FreeBias(COLUMNS + 1))),
        "l1": (l1.adapt(Newton()), drawn(regularizer=l1)),
        "l1 ball": (ball.adapt(Partan()), drawn(Squared(), regularizer=ball)),
        "nu": (nu.adapt(InteriorPoint()), drawn(UNIT_HINGE, regularizer=nu, C=1.0)),
        "one class": (
            offset.adapt(InteriorPoint(60)),
            drawn(HINGE_AT_ZERO, kind=OneClass(), bias=OFFSET, regularizer=offset),
        ),
    }
    return found


VARIANTS = variants()
ADDING = [name for name, (solver, _) in VARIANTS.items() if not solver.shuffled]
"""Those whose pass only adds up."""


def blocks_of(problem: Problem, rows: dict[str, Any], epoch: int) -> list[Block]:
    X, y, s = rows_of()
    if problem.kind.classes:
        y = np.digitize(X[:, 0], [-0.5, 0.5]).astype(np.float32)
    found = []
    for k, start in enumerate(range(0, ROWS, BLOCK)):
        part = slice(start, start + BLOCK)
        order = np.random.default_rng((epoch, k)).permutation(BLOCK).astype(np.int32)
        mine = {name: values[part] for name, values in rows.items()}
        found.append(Block(Dense(X[part], 1.0), y[part], s[part], k, start, order, 100 * epoch + k, rows=mine))
    return found


def row_state_of(solver: AnySolver) -> dict[str, Any]:
    return {state.name: np.zeros(state.shape(1, ROWS)[1:], state.dtype) for state in solver.row_state}


def numbers(state: Any, path: str = "") -> dict[str, Any]:
    """The numbers and arrays of a state by name, through what it is made of; but for lists, whose order may differ, for how
    many rows a sample holds until the next are thrown out, and for the clock.
    """
    if is_dataclass(state):
        names = (f.name for f in fields(state) if f.name not in {"problem", "threshold", "held", "began", "pace"})
        parts = {name: getattr(state, name) for name in names}
    elif isinstance(state, tuple) and hasattr(state, "_asdict"):
        parts = state._asdict()
    else:
        return {path: state} if isinstance(state, int | float | np.ndarray) else {}
    return {key: value for name, part in parts.items() for key, value in numbers(part, f"{path}.{name}").items()}


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", ADDING)
def test_merge_of_parts_has_every_number_of_one_pass(name: str, seed: int) -> None:
    """Every number that a state has, before each pass is closed, and what is certified then, however blocks are dealt to parts.

    Some parts are given no rows.
    """
    solver, problem = VARIANTS[name]
    split, rows = np.random.default_rng(seed), [row_state_of(solver) for _ in range(2)]
    shared, alone = solver.start(problem), solver.start(problem)
    for epoch in range(3):
        parts = [solver.part(shared) for _ in range(5)]
        owner = split.integers(0, 4, ROWS // BLOCK)  # the last part has no rows
        for number, block in zip(owner, blocks_of(problem, rows[0], epoch), strict=True):
            solver.visit(parts[number], block)
        merged = solver.merge([solver.merge([parts[4], *parts[:2]]), parts[2], parts[3]])
        for field_name in solver.driver_fields:
            setattr(merged, field_name, getattr(shared, field_name))
        alone = solver.part(alone) if not solver.driver_fields else alone
        for block in blocks_of(problem, rows[1], epoch):
            solver.visit(alone, block)
        found, expected = numbers(merged), numbers(alone)
        assert set(found) == set(expected)
        for key, value in expected.items():
            np.testing.assert_allclose(found[key], value, rtol=1e-7, atol=1e-9, err_msg=key)
        certificates = [solver.finish(state) for state in (merged, alone)]
        assert certificates[0].primal == pytest.approx(certificates[1].primal, rel=1e-9)
        assert certificates[0].dual == pytest.approx(certificates[1].dual, rel=1e-9, abs=1e-12)
        if certificates[1].ends(problem) or solver.has_pending_steps(alone):
            break
        shared = merged


@pytest.mark.parametrize("name", list(VARIANTS))
def test_part_changes_nothing_of_the_state_it_began_with(name: str) -> None:
    """Parts are visited by several threads at once, and begin with the same arrays."""
    solver, problem = VARIANTS[name]
    rows, state = row_state_of(solver), solver.start(problem)
    for epoch in range(2):
        before = numbers(clone(state))
        part = solver.part(state)
        for block in blocks_of(problem, rows, epoch):
            solver.visit(part, block)
        after = numbers(state)
        assert set(after) == set(before)
        for key, value in before.items():
            np.testing.assert_array_equal(after[key], value, err_msg=key)
        for field_name in solver.driver_fields:
            assert getattr(part, field_name) is None
            setattr(part, field_name, getattr(state, field_name))
        solver.finish(part)
        while solver.has_pending_steps(part):
            solver.make_step(part)
        state = part


@pytest.mark.parametrize("name", list(VARIANTS))
def test_driver_fields_are_those_the_state_declares(name: str) -> None:
    solver, problem = VARIANTS[name]
    assert solver.driver_fields == find_driver_fields(type(solver.start(problem)))


def test_merge_of_newton_keeps_what_its_next_sample_needs() -> None:
    """The squares of the columns decide the scores of the rows, and how much the model may not know."""
    solver, problem = Newton(60), problem_of(SquaredHinge())
    X, _, s = rows_of()
    state = solver.start(problem)
    parts = [solver.part(state) for _ in range(2)]
    for k, block in enumerate(blocks_of(problem, {}, 0)):
        solver.visit(parts[k % 2], block)
    merged = solver.merge(parts)
    squares = (np.hstack([X.astype(np.float64), np.ones((ROWS, 1))]) ** 2 * s[:, None]).sum(0)
    np.testing.assert_allclose(merged.squares, squares, rtol=1e-6)


def test_merge_of_kernel_active_set_gathers_rows_and_reach() -> None:
    solver, problem = KernelActiveSet(), drawn(kernel=RBF(0.5))
    blocks = blocks_of(problem, row_state_of(solver), 0)
    one, other, alone = (solver.start(problem) for _ in range(3))
    for state, part in ((one, blocks[:4]), (other, blocks[4:]), (alone, blocks)):
        for block in part:
            solver.visit(state, block)
    merged = solver.merge([one, other])
    assert merged.reach == alone.reach
    found, expected = merged.gatherer.join(), alone.gatherer.join()
    np.testing.assert_array_equal(found.X.values, expected.X.values)
    X, y, s = rows_of()
    for values, expected_rows in zip((found.X.values, found.y, found.s), (X, y, s), strict=True):
        np.testing.assert_array_equal(values, expected_rows[s > 0.0])
    np.testing.assert_array_equal(found.row, np.flatnonzero(s > 0.0))
