"""Bounds of rounding, of linear fits and of kernel machines: against long doubles, of no more than they must be, and as their modules say."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamsvm.compute.kernel_values.arithmetic import DOUBLE, error_of
from streamsvm.compute.passes.kernel_rows import can_have_loss
from streamsvm.jobs.fit.driver import fit
from streamsvm.jobs.fit.options import FitJob
from streamsvm.kernels import RBF, Polynomial
from streamsvm.losses import (
    EpsilonInsensitive,
    Hinge,
    Huber,
    Logistic,
    Pinball,
    SquaredEpsilonInsensitive,
    SquaredHinge,
    round_corners,
    threshold,
)
from streamsvm.rows import Dense, Reach
from streamsvm.solvers.evaluation import PointSums
from streamsvm.solvers.free_bias import ClassWeights, FreeBias
from streamsvm.solvers.kernel.pool import Form
from streamsvm.solvers.kernel.rounding import (
    EPS,
    bound_rounding,
    error_of_values,
    needs_certified_form,
)
from streamsvm.solvers.linear_rounding import (
    UNIT,
    RowWeights,
    VectorSum,
    max_abs_weights,
    max_dual_norm,
    max_dual_sum,
    rounding_of_dual,
    rounding_of_few,
    rounding_of_primal,
    steepness,
    two_sum_terms,
)
from streamsvm.solvers.nu import NuMargin
from streamsvm.solvers.problem_kinds import Multinomial, OneAgainstRest
from streamsvm.solvers.regularizers import L1Ball
from streamsvm.store import create
from streamsvm.types import Block, Certificate, Problem, Status
from streamsvm.types.problem import best_scale
from tests.axes import each_value
from tests.solvers.problems import kind_of

# -- linear fits ---------------------------------------------------------------------------------------------------------


ROWS, COLUMNS = 3000, 20
LOSSES = [Hinge(), SquaredHinge(), Huber(0.1)]


def exactly(problem: Problem, X: Any, y: Any, w: Any, smooth: Any) -> tuple[Any, Any]:
    """P and the D of slopes, in long doubles, row by row."""
    X, y, w, C = (np.asarray(a, np.longdouble) for a in (X, y, w, problem.C))
    m = y * (X @ w[:-1] + w[-1])
    primal = w @ w / 2 + C * sum(problem.loss.value(value) for value in m)
    a = np.array([-C * smooth.slope(value) for value in m])
    loss: Any = problem.loss
    conjugate, first = np.array([loss.conjugate(value, C) for value in a]), loss.conjugate_slope(0.0, C) * a
    v = np.append((a * y) @ X, a @ y)
    t = best_scale(problem.loss, float((a - first).sum()), float((conjugate - first).sum()), float(v @ v))
    return primal, t * (a - first).sum() - t * t * ((conjugate - first).sum() + v @ v / 2)


@each_value(("loss", LOSSES), ("scale", [1e-3, 1.0, 1e4]))
def test_linear_rounding_primal_and_dual_are_within_their_bounds_of_long_doubles(loss: Any, scale: float) -> None:
    rng = np.random.default_rng(3)
    X = (scale * rng.normal(size=(ROWS, COLUMNS)) * 10.0 ** rng.uniform(-2, 2, COLUMNS)).astype(np.float32)
    y = np.where(X[:, 0] + scale * rng.normal(size=ROWS) > 0, 1, -1).astype(np.float32)
    w = rng.normal(size=COLUMNS + 1) / (scale * np.append(np.abs(X).mean(0), 1.0) / scale)
    problem, smooth = Problem(loss, 10.0, ROWS, COLUMNS, kind_of(loss)), round_corners(loss, 0.01)
    sums = PointSums(COLUMNS + 1)
    s, order = np.ones(ROWS, np.float32), np.arange(ROWS, dtype=np.int32)
    sums.add(problem, smooth, Block(Dense(X, 1.0), y, s, 0, 0, order, 0), w)
    found = sums.close(problem, w)
    primal, dual = exactly(problem, X, y, w, smooth)
    sizes = np.append(np.sqrt(np.square(X, dtype=np.float64).mean(0)), 1.0)
    weights, off = RowWeights(ROWS, ROWS, 1.0), (COLUMNS + 3) * UNIT * float(sizes @ np.abs(w))
    bound = rounding_of_primal(problem, found.primal, off, weights)
    assert abs(primal - found.primal) <= bound <= 1e-9 * found.primal
    v = VectorSum(ROWS, running=False, spread=float(np.linalg.norm(sizes)))
    assert abs(dual - found.dual) <= rounding_of_dual(problem, Certificate(found.primal, found.dual), v, weights)


@each_value(("loss", ["hinge", "squared_hinge"]), ("tolerance", [1e-2, 1e-5]))
def test_linear_rounding_what_scaling_in_float32_does_is_counted_or_computed_anew(
    tmp_path: Path, loss: str, tolerance: float
) -> None:
    rng = np.random.default_rng(5)
    X = (30.0 + rng.normal(size=(500, 6)) * 10.0 ** rng.uniform(-1, 3, 6)).astype(np.float32)
    y = np.where(X[:, 0] - 30.0 + 0.3 * rng.normal(size=500) > 0, 1, -1)
    writer = create(tmp_path / "s", sparse=False, chunk_bytes=4096)
    writer.append(Dense(X), (y > 0).astype(np.int32), None)
    writer.commit(("a", "b"), 6, {"names": None})
    settings: dict[str, Any] = {"loss": loss, "C": 1e3, "tolerance": tolerance, "standardize": True}
    result = fit(FitJob(str(tmp_path / "s"), str(tmp_path / "m"), solver="newton", **settings))
    found, run = result.training.runs[0].certificate, result.training.runs[0]
    assert found is not None
    assert result.training.status == Status.CONVERGED
    assert found.gap <= tolerance
    w = result.plan.solver.solution(run.state).w
    raw = result.model.weights[0].astype(np.longdouble)
    m = y * (X.astype(np.longdouble) @ raw[:-1] + raw[-1])
    primal = w @ w / 2 + 1e3 * sum(run.problem.loss.value(value) for value in m)
    assert abs(primal - found.primal) <= found.rounding <= 0.5 * tolerance * found.primal


@pytest.mark.parametrize("loss", ["hinge", "huber"])
def test_linear_rounding_rows_that_cost_nothing_whatever_rounding_does_are_not_counted(
    tmp_path: Path, loss: str
) -> None:
    """One row against many, columns of scale 1e6: P is 1e-8, less than what rounding could do if all rows were at the corner."""
    rng = np.random.default_rng(2)
    X = (np.exp(rng.normal(size=(300, 12))) * 10.0 ** rng.uniform(3, 7, 12)).astype(np.float32)
    codes = (np.arange(300) == 17).astype(np.int32)
    X[17] *= 3.0
    writer = create(tmp_path / "s", sparse=False, chunk_bytes=4096)
    writer.append(Dense(X), codes, None)
    writer.commit(("a", "b"), 12, {"names": None})
    result = fit(FitJob(str(tmp_path / "s"), str(tmp_path / "m"), loss=loss, tolerance=1e-4))
    found, w = result.training.runs[0].certificate, result.model.weights[0].astype(np.longdouble)
    assert found is not None
    assert result.training.status == Status.CONVERGED
    assert found.primal < 1e-6
    m = np.where(codes > 0, 1, -1) * (X.astype(np.longdouble) @ w[:-1] + w[-1])
    primal = w @ w / 2 + sum(result.training.runs[0].problem.loss.value(value) for value in m)
    assert abs(primal - found.primal) <= found.rounding


KNOWN = RowWeights(total=5.0, squares=4.0, largest=1.5)
"""sum C_i = 10 and max C_i = 3 with the C of ``four_rows``."""


def four_rows(loss: Any, C: float = 2.0) -> Problem:
    """A problem of n = 4, p = 7."""
    return Problem(loss, C, 4, 6, kind_of(loss))


@pytest.mark.parametrize(
    ("loss", "primal", "weights", "M"),
    [
        (Hinge(), 3.0, KNOWN, 8.0),  # C sqrt(n sum s^2)
        (SquaredHinge(), 3.0, KNOWN, 12.0),  # sqrt(2 b P) sqrt(C n max s), b = 2
        (Huber(0.5), 300.0, KNOWN, 8.0),  # b = 1
        (Huber(0.5), 1.5, KNOWN, 6.0),
        (Logistic(4.0), 1.5, KNOWN, 6.0),  # b = 1
        (Hinge(), 3.0, None, 24.0),  # 8 P / k
        (Hinge(2.0), 3.0, None, 12.0),
        (Logistic(4.0), 3.0, None, 96.0),  # k = 1 / 4
    ],
)
def test_linear_rounding_what_margins_do_to_the_primal_is_what_the_module_says(
    loss: Any, primal: float, weights: Any, M: float
) -> None:
    problem, off = four_rows(loss), 0.5
    assert steepness(problem, primal, weights) == pytest.approx(M, rel=1e-12, abs=0.0)
    b = 1.0 / loss.curvature(1.0) if loss.smooth() else 0.0
    most = 1.5 if weights else 1.0
    bound = rounding_of_primal(problem, primal, off, weights)
    assert bound == pytest.approx(M * off + 0.5 * b * 2.0 * 4 * most * off**2, rel=1e-12, abs=0.0)
    assert rounding_of_primal(problem, primal, 0.0, weights) == pytest.approx(
        (4 + 7 + 8) * UNIT * primal, rel=1e-12, abs=0.0
    )


@pytest.mark.parametrize("quantile", [0.25, 0.75])
def test_linear_rounding_of_two_slopes_the_steeper_counts(quantile: float) -> None:
    """3 / 4 on one side or the other: of M, of few rows, and of sqrt(n g C max s sum a_i) with sum a_i <= M."""
    problem = four_rows(Pinball(quantile))
    assert steepness(problem, 3.0, KNOWN) == pytest.approx(6.0, rel=1e-12)
    few = rounding_of_few(problem, 3.0, 0.5, 6.0)
    assert few == pytest.approx(0.75 * 0.5 * 6.0, rel=1e-12)
    steep = replace(problem, C=20.0)  # M = 60, and of the root the mass is M too
    found = rounding_of_dual(steep, Certificate(2.0, 1.5), VectorSum(2**53, running=False, spread=0.25), KNOWN)
    off = 0.25 * min(60.0, math.sqrt(4 * 0.75 * 30.0 * 60.0))
    assert found == pytest.approx(off * (3.0 + 0.5 * off), rel=1e-12)


@pytest.mark.parametrize(
    ("loss", "C", "weights", "H", "mass"),
    [
        (Hinge(), 2.0, KNOWN, 8.0, 6.5),  # M with Q = 4.5 for P; (P + Q) / k
        (Hinge(2.0), 2.0, KNOWN, math.sqrt(4 * 3.0 * 3.25), 3.25),  # sqrt(n g C max s sum a_i)
        (Hinge(), 20.0, KNOWN, math.sqrt(4 * 30.0 * 6.5), 6.5),
        (Hinge(0.5), 2.0, KNOWN, 8.0, 8.0),
        (SquaredHinge(), 2.0, KNOWN, math.sqrt(216.0), math.sqrt(180.0)),  # sqrt(2 b Q sum C_i)
        (Huber(2.0), 2.0, KNOWN, math.sqrt(26.0), 6.5 / 3.0),  # k = 3
        (Logistic(1.0), 2.0, KNOWN, math.sqrt(27.0), math.sqrt(27.0)),
        (Hinge(), 2.0, None, 16.0, 16.0),
    ],
)
def test_linear_rounding_what_a_sum_of_terms_does_to_the_dual_is_what_the_module_says(
    loss: Any, C: float, weights: Any, H: float, mass: float
) -> None:
    """P = 2 and P - D = 1 / 2: ||v|| <= 2 + 1. With T = 1 / u what is small next to it is seen, and without T what is left."""
    problem, found = four_rows(loss, C), Certificate(2.0, 1.5)
    off = 0.25 * H
    large = rounding_of_dual(problem, found, VectorSum(2**53, running=False, spread=0.25), weights)
    assert large == pytest.approx(off * (3.0 + 0.5 * off), rel=1e-12, abs=0.0)
    least = rounding_of_dual(problem, found, VectorSum(0, running=False, spread=0.25), weights)
    assert least == pytest.approx(2.0 * (4 + 8) * UNIT * mass, rel=1e-12, abs=0.0)


def test_linear_rounding_of_a_free_bias_covers_the_dual_variables_of_an_unbalanced_point() -> None:
    """Rows without features: sum a_i is more than twice (P + Q) / k, which is its bound if the bias is regularized."""
    loss, many, few, bias = Huber(1.0), 10_000, 10, 1.979
    rows = ClassWeights(np.array([few, many], np.float64), np.array([[0.0, few], [0.0, many]], np.float64))
    slopes = -loss.slope(bias), -loss.slope(-bias)
    losses = many * loss.value(bias) + few * loss.value(-bias)
    v = np.array([0.0, many * slopes[0] - few * slopes[1]])
    gain = sum(count * (a - loss.conjugate(a, 1.0)) for count, a in zip((many, few), slopes, strict=True))
    regularizer = FreeBias(2, reach=1e-9)
    low, high = regularizer.bias_range(loss, losses, rows)
    assert low < 2.0 - 2.0 * few / many < high  # b*, where 10 rows have the slope 1, and the others together as much
    problem = Problem(loss, 1.0, many + few, 1, kind_of(loss), regularizer=regularizer)
    total = many * slopes[0] + few * slopes[1]
    dual = gain - max(low * v[1], high * v[1])
    facts = {"bias_bound": max(abs(low), abs(high))}
    certificate, weights = Certificate(losses, dual, facts=facts), RowWeights(many + few, many + few, 1.0)
    assert 0.0 < dual < losses
    bound = rounding_of_dual(problem, certificate, VectorSum(0, running=False, spread=0.0), weights)
    assert bound >= 2.0 * (many + few + 8) * UNIT * total
    Q = (math.sqrt(losses) + math.sqrt(losses - dual)) ** 2
    assert total > 2.0 * (losses + Q) / threshold(loss)


def test_linear_rounding_what_steps_do_to_the_dual_does_not_ask_how_long_rows_are() -> None:
    steps = VectorSum(2**53, running=True, spread=1e9)
    for weights, start in ((KNOWN, 10.0), (None, 2000.0)):
        off = 5.0 * math.sqrt(2.0 * start)
        found = rounding_of_dual(four_rows(Hinge()), Certificate(2.0, 1.5), steps, weights)
        assert found == pytest.approx(off * (3.0 + 0.5 * off), rel=1e-12, abs=0.0)
        above = rounding_of_dual(
            four_rows(Hinge()), Certificate(2.0, 2.5), steps, weights
        )  # by rounding: v as at the optimum
        assert above == pytest.approx(off * (2.0 + 0.5 * off), rel=1e-12, abs=0.0)


TUBE, SMOOTH_TUBE = EpsilonInsensitive(0.5), SquaredEpsilonInsensitive(0.5)
"""e = 1/2; M = 8 of the first whatever P, of the second, b = 2, sqrt(48 P)."""


@pytest.mark.parametrize(("loss", "M", "b"), [(TUBE, 8.0, 0.0), (SMOOTH_TUBE, math.sqrt(144.0), 2.0)])
@pytest.mark.parametrize("off", [0.0, 0.25])
def test_linear_rounding_margins_of_numbers_are_off_by_what_is_taken_from_them_too(
    loss: Any, M: float, b: float, off: float
) -> None:
    d = 2.0 * off + UNIT * 0.5
    expected = M * d + 0.5 * b * 2.0 * 4 * 1.5 * d * d + (4 + 7 + 8 + 2) * UNIT * 3.0
    assert rounding_of_primal(four_rows(loss), 3.0, off, KNOWN) == pytest.approx(expected, rel=1e-12, abs=0.0)


@pytest.mark.parametrize(
    ("loss", "H", "mass", "products", "start"),
    [
        (TUBE, 8.0, 8.0, 2.0 + 0.5 * 10.0, 2.0 + 0.5 * 10.0 + 8.0 * 0.25),
        (SMOOTH_TUBE, math.sqrt(216.0), math.sqrt(180.0), math.sqrt(162.0), 8.0 + 10.0 + 24.0 / 16.0),
    ],
)
def test_linear_rounding_dual_of_numbers_has_a_sum_of_products_with_them(
    loss: Any, H: float, mass: float, products: float, start: float
) -> None:
    """P = 2, Q = 4.5, F = 1/4; sum |a_i| |m_i| <= P + e sum C_i, or sqrt(2 b Q (4 P / b + 2 e^2 sum C_i))."""
    problem, found = four_rows(loss), Certificate(2.0, 1.5)
    least = rounding_of_dual(problem, found, VectorSum(0, running=False, spread=0.25), KNOWN, 0.25)
    assert least == pytest.approx(2.0 * 12 * UNIT * (mass + products + H * 0.25), rel=1e-12, abs=0.0)
    off = 5.0 * math.sqrt(2.0 * start)
    steps = rounding_of_dual(problem, found, VectorSum(2**53, running=True, spread=0.25), KNOWN, 0.25)
    assert steps == pytest.approx(off * (3.0 + 0.5 * off), rel=1e-12, abs=0.0)


@pytest.mark.parametrize(
    ("more", "off", "length", "mass"),
    [
        ({"kind": Multinomial(3)}, 4.0, 3.0, 6.5),
        ({"regularizer": L1Ball(5.0)}, 2.0, 5.0, 6.5),
        ({"regularizer": NuMargin(0.5)}, 0.25 * math.sqrt(30.0), 3.0, 2.5),
    ],
    ids=str,
)
def test_linear_rounding_dual_of_other_forms_is_off_by_what_the_module_says(
    more: Any, off: float, length: float, mass: float
) -> None:
    """Of classes dv is twice as long; t takes the place of ||v||; sum a_i is nu sum s_i = 2.5, and H the root of 4 * 3 times that."""
    problem, found = replace(four_rows(Hinge()), **more), Certificate(2.0, 1.5)
    large = rounding_of_dual(problem, found, VectorSum(2**53, running=False, spread=0.25), KNOWN)
    assert large == pytest.approx(off * (length + 0.5 * off), rel=1e-12, abs=0.0)
    least = rounding_of_dual(problem, found, VectorSum(0, running=False, spread=0.25), KNOWN)
    assert least == pytest.approx(2.0 * 12 * UNIT * mass, rel=1e-12, abs=0.0)


@pytest.mark.parametrize(
    ("loss", "primal", "weights", "pull", "root"),
    [
        (Hinge(), 3.0, KNOWN, 6.0, math.sqrt(18.0)),  # 2 P / k; sum a_i max a_i
        (Hinge(2.0), 3.0, KNOWN, 3.0, 3.0),
        (Hinge(), 30.0, KNOWN, 8.0, math.sqrt(24.0)),  # M
        (Hinge(), 0.25, KNOWN, 0.5, 0.5),
        (Hinge(), 3.0, None, 6.0, 6.0),  # of weights that are not known no a_i has a bound
        (SquaredHinge(), 30.0, KNOWN, math.sqrt(1440.0), math.sqrt(360.0)),  # sqrt(2 b C max s P)
        (Huber(0.5), 0.75, KNOWN, 1.0, 1.0),  # k = 3 / 2
        (Huber(0.5), 6.0, KNOWN, 8.0, math.sqrt(24.0)),
        (Logistic(4.0), 1.5, KNOWN, 6.0, 3.0),
        (TUBE, 1.0, KNOWN, 8.0, math.sqrt(24.0)),
        (Pinball(0.25), 1.0, KNOWN, 6.0, math.sqrt(6.0 * 0.75 * 3.0)),  # g = 3 / 4, whichever side it is on
        (Pinball(0.75), 1.0, KNOWN, 6.0, math.sqrt(6.0 * 0.75 * 3.0)),
    ],
)
def test_linear_rounding_what_dual_variables_can_be_at_the_optimum(
    loss: Any, primal: float, weights: Any, pull: float, root: float
) -> None:
    assert max_dual_sum(four_rows(loss), primal, weights) == pytest.approx(pull, rel=1e-12)
    assert max_dual_norm(four_rows(loss), primal, weights) == pytest.approx(root, rel=1e-12)


def test_linear_rounding_of_one_class_dual_variables_sum_up_to_its_share() -> None:
    one = replace(four_rows(Hinge()), regularizer=NuMargin(0.5))
    assert max_dual_sum(one, 3.0, KNOWN) == 2.5
    assert max_dual_sum(one, 3.0, None) == 24.0
    assert max_dual_sum(replace(one, regularizer=NuMargin(1.0)), 30.0, KNOWN) == 5.0
    assert max_dual_sum(replace(one, C=0.5), 30.0, KNOWN) == 2.0  # M is less


def test_linear_rounding_what_margins_are_off_by_is_asked_of_the_weights_of_all_classes() -> None:
    np.testing.assert_array_equal(max_abs_weights(np.array([-3.0, 2.0])), [3.0, 2.0])
    np.testing.assert_array_equal(max_abs_weights(np.array([[-3.0, 2.0, 0.5], [1.0, -4.0, 0.25]])), [6.0, 8.0, 1.0])


@pytest.mark.parametrize(("rows", "terms"), [(0, 4), (1, 5), (2**26, 5), (2**27, 6), (2**28, 12)])
def test_linear_rounding_of_a_sum_in_twice_the_precision_few_terms_count(rows: int, terms: int) -> None:
    assert two_sum_terms(rows) == terms


# -- kernel machines -----------------------------------------------------------------------------------------------------


NEAR = Reach(3, 4.0)


def kernel_problem(kernel: Any = RBF(0.5), **changed: Any) -> Problem:  # noqa: B008  a record
    return Problem(Hinge(), changed.pop("C", 1.0), 4, 3, OneAgainstRest(1), kernel=kernel, **changed)


@pytest.mark.parametrize("kernel", [RBF(0.5), Polynomial(0.5, 1.0, 2.0)])
def test_kernel_rounding_bounds_decision_values(kernel: Any) -> None:
    form = Form(kernel, 3, 0.5)._replace(arithmetic=DOUBLE)
    largest = 1.0 if isinstance(kernel, RBF) else (0.5 * 4.0 + 1.0) ** 2
    expected = 2.0 * (error_of(kernel, NEAR, DOUBLE) + (7 + 2) * EPS * (largest + 0.5))
    assert error_of_values(form, NEAR, 7, 2.0) == pytest.approx(expected, rel=1e-12, abs=0.0)
    assert error_of_values(form, NEAR, 7, 1.0) == 0.5 * error_of_values(form, NEAR, 7, 2.0)
    assert error_of_values(form, None, 7, 2.0) == error_of_values(form, NEAR, 7, 0.0) == 0.0


def test_kernel_rounding_bounds_primal_and_dual() -> None:
    """Of four rows; the last sum is seen where the others are 0."""
    large = bound_rounding(kernel_problem(), 0.5, 2.0, 3.0, (1.0, 1.5))  # E sum |x| / 2 = .5, losses risen by .5
    assert large == pytest.approx(1.0, rel=1e-12, abs=0.0)
    assert bound_rounding(kernel_problem(), 0.5, 2.0, 3.0, (2.0, 1.5)) == pytest.approx(0.5, rel=1e-12, abs=0.0)
    least = bound_rounding(kernel_problem(), 0.0, 2.0, 3.0, (1.5, 1.5))  # 1/2 2 n eps 3 + 2 n eps (1.5 + 2 + 3)
    assert least == pytest.approx((12.0 + 52.0) * EPS, rel=1e-12, abs=0.0)


def test_kernel_evaluation_is_repeated_where_rounding_is_felt() -> None:
    asked = kernel_problem(tolerance=0.5)
    for primal in (4.0, -4.0):
        assert not needs_certified_form(asked, primal, 0.2)
        assert needs_certified_form(asked, primal, 0.2001)
    assert needs_certified_form(asked, 4.0, float("nan"))


@pytest.mark.parametrize("loss", [Hinge(), SquaredHinge(), EpsilonInsensitive(0.5)])
def test_kernel_rounding_counts_rows_in_reach_of_a_loss(loss: Any) -> None:
    """Beyond the corner by less than the slack, and not by as much or more."""
    slack = 0.25
    f = np.array([0.0, 0.9, 1.0, 1.2, 1.25, 1.3, 3.0])
    y = np.ones(len(f), np.float32)
    found = can_have_loss(f, y, loss, slack)
    offset = np.abs(f - 1.0) + slack - 0.5 if loss.numeric() else 1.0 - (f - slack)
    np.testing.assert_array_equal(found, offset > 0.0)
    assert not found.all()
    assert found.any()
