"""SGD: its bounds in O(d) memory are the duals of the counted dual variables, and those are feasible."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from streamsvm.losses import Hinge
from streamsvm.solvers.stochastic import SGD, share_of
from tests.solvers.problems import ROWS, best_scaled, epoch_blocks, problem_of, rows_of, signed_rows

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


@pytest.mark.parametrize(("variant", "times"), [("s", 1), ("m", 4)])
@pytest.mark.parametrize("margin", [1.0, 0.5])
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
        mean += share_of(epoch + 1) * (problem.C * s * counts[epoch] / times - mean)
        for alpha in (plain, mean):
            assert np.all(alpha >= 0.0)
            assert np.all(alpha <= problem.C * s * (1 + 1e-12))
            best = max(best, best_scaled(alpha, loss, problem.C))
        assert certificate.dual == pytest.approx(best, rel=1e-8)
        np.testing.assert_allclose(plain @ signed_rows(), state.a / (state.lam * state.t), atol=1e-10)
    np.testing.assert_allclose(state.a, a, rtol=1e-9)
    assert best > 0.0


def test_sgd_papers_bound_needs_updates_and_w_only() -> None:
    """C M / T - 1/2 ||w||^2 is the explicit dual of the counts after every epoch."""
    counts, _ = counted(1, 1.0)
    (_, _, s), C, Z = rows_of(), problem_of(Hinge()).C, signed_rows()
    for T in range(1, EPOCHS + 1):
        alpha = C * s * counts[:T].sum(0) / T
        w = alpha @ Z
        M = float(s @ counts[:T].sum(0))
        assert C * M / T - 0.5 * w @ w == pytest.approx(alpha.sum() - 0.5 * w @ w, rel=1e-12)


@pytest.mark.parametrize("draws", ["block", "all"])
def test_sgd_draws_are_those_of_the_seed_alone(draws: Any) -> None:
    results = []
    for _ in range(2):
        solver, state = SGD("r", draws=draws), SGD("r").start(problem_of(Hinge()))
        for block in epoch_blocks(0):
            solver.visit(state, block)
        results.append(state.a)
    np.testing.assert_array_equal(results[0], results[1])


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
