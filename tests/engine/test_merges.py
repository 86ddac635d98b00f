"""What copies of a state that saw some of the rows each come to together is what one came to that saw all of them."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from streamsvm.engine.state.state_transfer import clone
from streamsvm.kernels import RBF
from streamsvm.losses import Hinge, SquaredHinge
from streamsvm.rows import Reach
from streamsvm.solvers.active_set.kernel import KernelActiveSet
from streamsvm.solvers.active_set.solver import ActiveSet
from streamsvm.solvers.cutting_plane.solver import CuttingPlane
from streamsvm.solvers.dcd.solver import DCD
from streamsvm.solvers.interior_point.nearest_rows import NearestRows
from streamsvm.solvers.interior_point.solver import InteriorPoint
from streamsvm.solvers.kernel.decomposition.solver import Decomposition
from streamsvm.solvers.kernel.simplex.blended import Blended
from streamsvm.solvers.newton.solver import Newton
from streamsvm.solvers.stochastic.assg import ASSG
from streamsvm.solvers.stochastic.pegasos import Pegasos
from streamsvm.solvers.stochastic.sgd import SGD
from streamsvm.solvers.weight_evaluation import WeightEvaluation
from streamsvm.types import DUAL, LeanParts, Problem, SplitState
from tests.solvers.problems import COLUMNS, ROWS, epoch_blocks, problem_of, rows_of


def seen(solver: Any, state: Any, blocks: list[Any]) -> Any:
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
def test_what_is_summed_is_summed_by_copies_together(solver: Any, loss: Any) -> None:
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
        idle, *copies, late = (
            solver.part(shared) if isinstance(solver, LeanParts) else clone(shared) for _ in range(5)
        )
        for block, copy in zip(blocks, copies, strict=True):
            solver.visit(copy, block)
        merged = solver.merge([solver.merge([idle, *copies[:2]]), copies[2], late])
        for name in solver.driver_fields if isinstance(solver, SplitState) else ():
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


def had(state: Any, names: str) -> list[float]:
    """What the fields have, divided by their place."""
    return [float(np.mean(getattr(state, name))) / k for k, name in enumerate(names.split(), 1)]


def test_copies_of_assg_are_averaged_where_they_are_and_added_up_in_what_they_saw() -> None:
    solver, places = ASSG(), "w center total samples length left stage first_radius first_step radius step"
    sums = "v linear quadratic losses"
    copies = [given(given(solver.start(problem_of(Hinge())), n, places), n, sums) for n in (1.0, 2.0, 6.0)]
    for copy, losses in zip(copies, (1.0, 2.0, 4.0), strict=True):
        copy.averaged.losses = losses
    whole = solver.merge(copies)
    assert had(whole, places) == pytest.approx([3.0] * 11)
    assert had(whole, sums) == pytest.approx([9.0] * 4)
    assert whole.averaged.losses == 7.0


def test_copies_of_pegasos_add_what_they_did_to_what_is_left_of_before() -> None:
    """Three copies of a state of t = 10 rows that met 1, 2 and 6; a moved by as much from where projections left it."""
    solver, sums = Pegasos(), "total samples linear quadratic losses weight met"
    means = "before origin linear_before quadratic_before"
    copies = [given(given(solver.start(problem_of(Hinge())), n, sums), n, means) for n in (1.0, 2.0, 6.0)]
    for copy, n in zip(copies, (1, 2, 6), strict=True):
        copy.a, copy.t, copy.t_before, copy.offset, copy.averaged.losses = copy.before + n, 10 + n, 10, 5.0 - n, 0.5 * n
    whole = solver.merge(copies)
    assert had(whole, sums) == pytest.approx([9.0] * 7)
    assert had(whole, means) == pytest.approx([3.0] * 4)
    np.testing.assert_allclose(whole.a, 3.0 + 9.0)
    assert (whole.t, whole.t_before, whole.offset, whole.averaged.losses) == (19, 10, 4.0, 4.5)
    alone = solver.merge(copies[2:])
    np.testing.assert_array_equal(alone.a, copies[2].a)
    assert alone.t == 16
    assert had(alone, means) == pytest.approx([6.0] * 4)


@pytest.mark.parametrize("variant", ["r", "s"])
def test_copies_of_sgd_add_what_they_did_to_where_they_began(variant: Any) -> None:
    solver, sums = SGD(variant=variant), "total samples gained losses"
    copies = [given(solver.start(problem_of(Hinge())), n, sums) for n in (1, 2, 6)]
    for copy, n in zip(copies, (1, 2, 6), strict=True):
        copy.before = np.full(COLUMNS + 1, 100.0)
        copy.a, copy.t, copy.t_before, copy.averaged.linear = copy.before + n, 10 + n, 10, 1.0 * n
    whole = solver.merge(copies)
    assert had(whole, sums) == pytest.approx([9.0] * 4)
    np.testing.assert_allclose(whole.a, 109.0)
    assert (whole.t, whole.averaged.linear) == (19, 9.0 if variant == "r" else 1.0)


def test_copies_of_coordinate_descent_evaluate_together() -> None:
    solver = DCD(parts=2)
    copies = [solver.start(problem_of(Hinge())) for _ in range(2)]
    for copy, n in zip(copies, (1.0, 3.0), strict=True):
        copy.certifying, copy.losses, copy.evaluated = True, n, copy.evaluated + n
    assert solver.merge(copies[:1]) is copies[0]
    whole = solver.merge(copies)
    assert whole.losses == 4.0
    np.testing.assert_array_equal(whole.evaluated, 4.0)
    for copy, samples in zip(copies, (0, 4), strict=True):
        copy.certifying, copy.samples, copy.mean = False, samples, np.full(COLUMNS + 1, 8.0)
    trained = solver.merge(copies)
    np.testing.assert_allclose(trained.mean, 0.5 * (8.0 + 2.0))  # a copy that took none has moved nowhere
    assert (trained.samples, trained.losses) == (1, 4.0)


def test_copies_of_coordinate_descent_add_up_where_it_starts_from_weights() -> None:
    solver, problem = DCD(parts=3), replace(problem_of(Hinge()), warm=np.linspace(-1.0, 1.0, COLUMNS + 1))
    blocks = [replace(block, rows={DUAL: np.zeros(100)}) for block in epoch_blocks(0)]
    copies, alone = [solver.start(problem) for _ in range(3)], solver.start(problem)
    for copy, block in zip(copies, blocks, strict=True):
        solver.visit(copy, block)
    found, expected = solver.merge(copies).warm_sums, seen(solver, alone, blocks).warm_sums
    assert found is not None
    assert expected is not None
    np.testing.assert_allclose(found.sums, expected.sums, rtol=1e-12)
    np.testing.assert_allclose(found.vector(), expected.vector(), rtol=1e-12)


def test_a_row_that_one_copy_threw_out_stays_out() -> None:
    """Beside a copy that saw nothing, and knows of no row that is out."""
    newton = Newton(60)
    state = newton.start(problem_of(SquaredHinge()))
    samplers = [clone(seen(newton, state, epoch_blocks(0))).sampler, newton.start(state.problem).sampler]
    near = [NearestRows(60), NearestRows(60)]
    for block in epoch_blocks(0):
        near[0].add(block, np.linspace(0.0, 1.0, 100), np.zeros(100), np.zeros(100))
    pairs: Any = samplers, near
    for full, empty in pairs:
        full.merge(clone(empty))
        threshold, held = full.threshold, full.held
        assert np.isfinite(threshold)
        assert held == 60
        empty.merge(full)
        assert (empty.threshold, empty.held) == (threshold, held)


@pytest.mark.parametrize("which", [0, 1])
def test_newton_knows_that_some_copy_was_given_factors(which: int) -> None:
    copies = [Newton().start(problem_of(SquaredHinge())) for _ in range(2)]
    assert not Newton().merge([clone(copy) for copy in copies]).factored
    copies[which].factored = True
    assert Newton().merge(copies).factored


KERNEL_PROBLEM = Problem(SquaredHinge(), 1.0, ROWS, COLUMNS, 1, kernel=RBF(0.5))


def summed_in_a_pass(state: Any) -> set[str]:
    """The numbers of a state that every pass begins anew."""
    values = {one.name: getattr(state, one.name) for one in fields(state)}
    names = [name for name, value in values.items() if type(value) in (int, float, np.ndarray)]
    given(state, 7.0, " ".join(names)).clear_sums()
    return {name for k, name in enumerate(names, 1) if np.any(getattr(state, name) != 7.0 * k)}


def test_copies_of_decomposition_add_up_their_sums_and_take_the_farthest_bounds() -> None:
    sums = "support_met dual square reduced_square losses violators weight absolute upper_losses total"
    assert summed_in_a_pass(Decomposition().start(KERNEL_PROBLEM)) == {*sums.split(), "top", "bottom"}
    one, other = (given(Decomposition().start(KERNEL_PROBLEM), n, sums) for n in (1, 3))
    one.top, one.bottom, other.top, other.bottom = 1.0, -2.0, 3.0, -4.0
    other.largest = Reach(3, 4.0)
    kept: Any = object(), object()
    one.candidates, other.candidates, one.collected_parts, other.collected_parts = [], [kept[0]], [kept[1]], []
    one.join(other)
    assert had(one, sums) == pytest.approx([4.0] * 10)
    assert (one.top, one.bottom, one.largest) == (3.0, -4.0, Reach(3, 4.0))
    assert (one.candidates, one.collected_parts) == ([kept[0]], [kept[1]])
    other.top, other.bottom = -1.0, 9.0
    one.join(other)
    assert (one.top, one.bottom) == (3.0, -4.0)


def test_copies_on_the_simplex_add_up_their_sums_and_take_the_farthest_bounds() -> None:
    sums = "square ridge reduced_square losses absolute upper_losses"
    assert summed_in_a_pass(Blended().start(KERNEL_PROBLEM)) == {*sums.split(), "lowest", "error"}
    one, other = (given(Blended().start(KERNEL_PROBLEM), n, sums) for n in (1.0, 3.0))
    one.lowest, one.error, other.lowest, other.error = -1.0, 5.0, -2.0, 1.0
    other.reach = Reach(3, 4.0)
    kept: Any = object()
    other.candidates.parts = [kept]
    one.join(other)
    assert had(one, sums) == pytest.approx([4.0] * 6)
    assert (one.lowest, one.error, one.reach, one.candidates.parts) == (-2.0, 5.0, Reach(3, 4.0), [kept])
    other.lowest, other.error = 7.0, 8.0
    supports: Any = [SimpleNamespace(v=np.array([1.0, -np.inf])), SimpleNamespace(v=np.array([-np.inf, 2.0]))]
    one.support = supports[0]
    one.join(other)
    assert (one.lowest, one.error) == (-2.0, 8.0)
    other.support = supports[1]
    one.join(other)
    assert supports[0].v.tolist() == [1.0, 2.0]
    one.support = None
    one.join(other)
    assert one.support is None


def test_copies_of_the_exact_method_gather_rows_and_their_reach() -> None:
    solver: Any = KernelActiveSet()
    blocks = epoch_blocks(0)
    one, other, alone = (solver.start(KERNEL_PROBLEM) for _ in range(3))
    for state, part in ((one, blocks[:1]), (other, blocks[1:]), (alone, blocks)):
        for block in part:
            solver.visit(state, replace(block, rows={solver.row_state[0].name: np.zeros(100)}))
    merged = solver.merge([one, other])
    assert merged.reach == alone.reach
    found, expected = merged.gatherer.joined(), alone.gatherer.joined()
    np.testing.assert_array_equal(found.X.values, expected.X.values)
    X, y, s = rows_of()
    for values, expected_rows in zip((found.X.values, found.y, found.s), (X, y, s), strict=True):
        np.testing.assert_array_equal(values, expected_rows[s > 0.0])
    np.testing.assert_array_equal(found.row, np.flatnonzero(s > 0.0))
