"""Pegasos: its dual bound against the dual variables it stands for, its ball, its averages."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from streamsvm.losses import Hinge, Huber, SquaredHinge
from streamsvm.solvers import stochastic
from streamsvm.solvers.stochastic import Pegasos, largest_slope_product, raise_dual
from tests.axes import each_value
from tests.solvers.problems import ROWS, best_scaled, epoch_blocks, problem_of, rows_of, signed_rows

LOSSES = [Hinge(), SquaredHinge(), Huber(0.25)]


NEAR = 3e-4 if os.environ.get("NUMBA_DISABLE_JIT") == "1" else 1e-6
"""Passes that are not compiled, compute in float32 where they are given float32."""


class Literal:
    """Pegasos with a number per row: what each has contributed to a, shrunk by every projection since."""

    def __init__(self, solver: Pegasos, problem: Any) -> None:
        self.solver, self.problem = solver, problem
        self.b, self.t = np.zeros(ROWS), 0.0
        self.w = np.zeros(7) if problem.warm is None else problem.warm
        self.origin: Any = None
        self.linear, self.quadratic = 0.0, 0.0

    def visit(self, block: Any, offset: float, radius: float) -> None:
        Z, (_, _, s), k = signed_rows(), rows_of(), self.solver.batch
        lam, order = 1.0 / (self.problem.C * ROWS), block.start + block.order
        if self.origin is None:
            self.origin = lam * offset * self.w
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
            self.w = (self.origin + self.b @ Z) / (lam * (offset + self.t))
            shrink = min(1.0, radius / max(float(np.linalg.norm(self.w)), 1e-300))
            self.w, self.b, self.origin = shrink * self.w, shrink * self.b, shrink * self.origin
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
            literal.visit(block, state.offset, solver._radius(state))
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
@pytest.mark.parametrize("far", [0.1, 30.0])
def test_pegasos_dual_point_is_without_the_weights_it_began_with(
    loss: Any, far: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are no sum of rows: v is sum a_i y_i x_i of the dual variables there are, whether or not the ball cut w short."""
    problem = replace(problem_of(loss, C=3.0), warm=far * np.arange(1.0, 8.0))
    solver, given = Pegasos(), []

    def caught(averaged: Any, v: Any, linear: float, quadratic: float) -> None:
        given.append((v.copy(), linear, quadratic))
        raise_dual(averaged, v, linear, quadratic)

    monkeypatch.setattr(stochastic, "raise_dual", caught)
    state, literal = solver.start(problem), Literal(solver, problem)
    for epoch in range(3):
        for block in epoch_blocks(epoch):
            solver.visit(state, block)
            literal.visit(block, state.offset, solver._radius(state))
        time = state.lam * (state.offset + state.t)
        solver.finish(state)
        v, *sums = given.pop(0)  # the second call is that of the mean over passes
        given.clear()
        np.testing.assert_allclose(v, literal.b @ signed_rows() / time, rtol=NEAR, atol=NEAR)
        assert sums == pytest.approx([literal.linear / time, literal.quadratic / time], rel=NEAR)


@pytest.mark.parametrize("loss", LOSSES)
def test_pegasos_ball_holds_the_optimum(loss: Any) -> None:
    """Its radius: the largest -l'(m) m: 1 for the hinge, 1/2 for the squared one, and what calculus says of the rounded one."""
    exact = {Hinge: 1.0, SquaredHinge: 0.5, Huber: 0.75}[type(loss)]
    assert exact <= largest_slope_product(loss) <= 1.02 * exact


def test_pegasos_iterates_stay_in_the_ball() -> None:
    problem, solver = problem_of(Hinge(), C=50.0), Pegasos()
    state = solver.start(problem)
    for block in epoch_blocks(0):
        solver.visit(state, block)
        w = state.a / (state.lam * state.t)
        assert np.linalg.norm(w) <= solver._radius(state) * (1 + 1e-6)
