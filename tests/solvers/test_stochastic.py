"""Stochastic solvers: their bounds, made in O(d) memory, are the duals of variables that a slow version keeps for every row."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

from streamsvm.losses import Hinge, Huber, SquaredHinge
from streamsvm.solvers.stochastic import ASSG, SGD, Pegasos, largest_slope_product, weight_of_last_pass
from tests.axes import each_value
from tests.solvers.problems import ROWS, best_scaled, epoch_blocks, problem_of, rows_of, signed_rows

# -- perceptrons with a growing margin -----------------------------------------------------------------------------------


EPOCHS = 12


def counted(times: int, margin: float) -> Any:
    """Updates of each row in each epoch, every presentation made literally."""
    Z, (_, _, s), problem = signed_rows(), rows_of(), problem_of(Hinge(margin))
    lam, a, t = 1.0 / (problem.C * ROWS), np.zeros(Z.shape[1]), 0
    counts = np.zeros((EPOCHS, ROWS))
    for epoch in range(EPOCHS):
        for block in epoch_blocks(epoch):
            for i in np.repeat(block.start + block.order, times):
                if Z[i] @ a <= lam * margin * t:
                    a += float(s[i]) * Z[i]
                    counts[epoch, i] += 1
                t += 1
    return counts, a


@each_value(("variant, times", [("s", 1), ("m", 4)]), ("margin", [1.0, 0.5]))
def test_sgd_bound_is_the_dual_of_the_counts(variant: Any, times: int, margin: float) -> None:
    loss, (_, _, s) = Hinge(margin), rows_of()
    counts, a = counted(times, margin)
    solver, problem = SGD(variant, multiplicity=times), problem_of(loss)
    state = solver.start(problem)
    best, mean = 0.0, np.zeros(ROWS)
    for epoch in range(EPOCHS):
        for block in epoch_blocks(epoch):
            solver.visit(state, block)
        certificate = solver.finish(state)
        plain = problem.C * s * counts[: epoch + 1].sum(0) / (times * (epoch + 1))
        mean += weight_of_last_pass(epoch + 1) * (problem.C * s * counts[epoch] / times - mean)
        for alpha in (plain, mean):
            assert np.all(alpha >= 0.0)
            assert np.all(alpha <= problem.C * s * (1 + 1e-12))
            best = max(best, best_scaled(alpha, loss, problem.C))
        assert certificate.dual == pytest.approx(best, rel=1e-8)
        np.testing.assert_allclose(plain @ signed_rows(), state.a / (state.lam * state.t), atol=1e-10)
    np.testing.assert_allclose(state.a, a, rtol=1e-9)
    assert best > 0.0


def presentations(draws: Any, passes: int) -> Any:
    """How many rows each visit of a block of 100 rows presents, (passes, 3)."""
    solver, state, counts = SGD("r", draws=draws), SGD("r").start(problem_of(Hinge())), []
    for epoch in range(passes):
        for block in epoch_blocks(epoch):
            before = state.t
            solver.visit(state, block)
            counts.append(state.t - before)
        solver.finish(state)
    return np.array(counts).reshape(passes, -1)


def test_sgd_draws_from_all_rows_fall_to_blocks_as_chance_has_it() -> None:
    """Poisson numbers: mean and variance 100, blocks independent; out of each block it is 100 each time."""
    np.testing.assert_array_equal(presentations("block", 3), 100)
    counts = presentations("all", 400)
    assert counts.mean() == pytest.approx(100.0, abs=4.0 * 10.0 / np.sqrt(counts.size))
    assert counts.var() == pytest.approx(100.0, rel=0.2)
    assert np.abs(np.corrcoef(counts.T) - np.eye(3)).max() < 0.2


# -- Pegasos -------------------------------------------------------------------------------------------------------------


LOSSES = [Hinge(), SquaredHinge(), Huber(0.25)]

NEAR = 3e-4 if os.environ.get("NUMBA_DISABLE_JIT") == "1" else 1e-6
"""Passes that are not compiled, compute in float32 where they are given float32."""


class Literal:
    """Pegasos with a number per row: what each has contributed to a, shrunk by every projection since."""

    def __init__(self, solver: Pegasos, problem: Any) -> None:
        self.solver, self.problem = solver, problem
        self.b, self.t = np.zeros(ROWS), 0.0
        self.w, self.linear, self.quadratic = np.zeros(7), 0.0, 0.0

    def visit(self, block: Any, offset: float, radius: float) -> None:
        Z, (_, _, s), k = signed_rows(), rows_of(), self.solver.batch
        lam, order = 1.0 / (self.problem.C * ROWS), block.start + block.order
        for start in range(0, len(order), k):
            part = order[start : start + k]
            m = Z[part] @ self.w
            shares = [-self.problem.loss.slope(v) for v in m]
            self.b[part] += [float(s[i]) * share for i, share in zip(part, shares, strict=True)]
            for i, share in zip(part, shares, strict=True):
                straight = share * self.problem.loss.conjugate_slope(0.0, 1.0)
                self.linear += float(s[i]) * (share - straight)
                self.quadratic += float(s[i]) * (self.problem.loss.conjugate(share, 1.0) - straight)
            self.t += len(part)
            self.w = self.b @ Z / (lam * (offset + self.t))
            shrink = min(1.0, radius / max(float(np.linalg.norm(self.w)), 1e-300))
            self.w, self.b = shrink * self.w, shrink * self.b
            self.linear, self.quadratic = shrink * self.linear, shrink**2 * self.quadratic

    def alpha(self, offset: float) -> Any:
        return self.b * self.problem.C * ROWS / (offset + self.t)


@each_value(("loss", LOSSES), ("batch", [1, 16]), ("projection", [True, False]))
def test_pegasos_bound_is_below_the_dual_it_stands_for(loss: Any, batch: int, projection: bool) -> None:
    """The dual variables are feasible, and the bound made without them is no larger than their dual."""
    (_, _, s), problem = rows_of(), problem_of(loss)
    solver = Pegasos(batch=batch, projection=projection)
    state, literal, best = solver.start(problem), Literal(solver, problem), 0.0
    for epoch in range(6):
        for block in epoch_blocks(epoch):
            solver.visit(state, block)
            literal.visit(block, state.offset, solver.ball_radius(state))
        np.testing.assert_allclose(
            state.a / (state.lam * (state.offset + state.t)), literal.w, rtol=NEAR, atol=0.03 * NEAR
        )
        alpha = literal.alpha(state.offset)
        assert np.all(alpha >= 0.0)
        if np.isfinite(loss.upper(1.0)):
            assert np.all(alpha <= problem.C * s * (1 + 1e-12))
        here = (state.linear_before + state.linear, state.quadratic_before + state.quadratic)
        assert here == pytest.approx((literal.linear, literal.quadratic), rel=NEAR)
        time = state.lam * (state.offset + state.t)
        t = np.linspace(0.0, 1.0, 101)
        bound = float(np.max(t * here[0] / time - t * t * (here[1] / time + 0.5 * literal.w @ literal.w)))
        assert bound <= best_scaled(alpha, loss, problem.C) * (1 + 1e-3 * NEAR)
        certificate = solver.finish(state)
        best = max(best, certificate.dual)
        assert certificate.dual >= bound * (1 - 0.01 * NEAR)
    assert best > 0.0


@pytest.mark.parametrize("loss", LOSSES)
def test_pegasos_ball_holds_the_optimum(loss: Any) -> None:
    """Its radius: the largest -l'(m) m: 1 for the hinge, 1/2 for the squared one, and what calculus says of the rounded one."""
    exact = {Hinge: 1.0, SquaredHinge: 0.5, Huber: 0.75}[type(loss)]
    assert exact <= largest_slope_product(loss) <= 1.02 * exact


# -- ASSG ----------------------------------------------------------------------------------------------------------------


@each_value(("loss", LOSSES), ("batch", [1, 16]))
def test_assg_only_C_need_be_set(loss: Any, batch: int) -> None:
    """Steps and radius found are positive, finite and stable, also where the sample is one row or says nothing."""
    for sample in (4096, 1):
        solver = ASSG(batch=batch, sample=sample)
        state = solver.start(problem_of(loss))
        solver.visit(state, epoch_blocks(0)[0])
        assert 0.0 < state.first_step < 1.0 / state.lam
        assert 0.0 < state.first_radius < np.inf
        assert np.all(np.isfinite(state.w))
