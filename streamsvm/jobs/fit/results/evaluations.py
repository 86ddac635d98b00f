"""A certificate from an evaluation in float64, which takes the place of the one a solver ended with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from streamsvm.engine.training import Run
from streamsvm.jobs.fit.planning.plan import Plan
from streamsvm.jobs.fit.results.row_weights import certificate_of, weights_of_rows
from streamsvm.rows import Float64
from streamsvm.solvers.rounding import (
    RowWeights,
    VectorSum,
    pull_at_optimum,
    root_pull_at_optimum,
    rounding_of_dual,
    rounding_of_primal,
    steepness,
)
from streamsvm.types import DUAL, EVERY_ROW, Certificate, LinearSolution, Problem

if TYPE_CHECKING:
    from streamsvm.engine.evaluation import Evaluation, MarginChange, MultinomialEvaluation

LIKELY, SIGMAS = 10.0, 4.0
"""Times what P has changed by, but not less than what a*_i make of the change of margins: what a dual value can have changed by that is
not computed anew, at v = w; the more the further v can be from it, ||v - w|| <= 2 sqrt(2 (P - D)), beside sqrt(2 P)."""


def _unmoved() -> MarginChange:
    """Return that margins are the same to the solver."""
    from streamsvm.engine.evaluation import MarginChange

    return MarginChange()


class Inexact(NamedTuple):
    """How far what an evaluation is made of can be off."""

    off: float
    """Of a margin."""
    v: VectorSum
    """How its dual points were summed."""
    weights: RowWeights | None
    """What is known of the weights of rows."""
    size: float
    """F: how large decision values are, at most."""
    moved: Callable[[], MarginChange] = _unmoved
    """Says by how much a margin is another one to the solver, to whom rows were float32; asked where that can matter."""


def take_evaluation(plan: Plan, run: Run, evaluation: Evaluation | MultinomialEvaluation, inexact: Inexact) -> None:
    """Give a run the certificate of an evaluation whose margins are off by so much.

    The dual value is that of the slopes or of the solver's variables, computed anew; only where that is not enough, and there
    are no variables of rows, it is the one the solver found. That is below the optimum of its own problem, which differs from the
    one of the saved model by sum_i a*_i (change of m_i) to first order: so much less is said.
    """
    _, v, known, size, moved = inexact
    off = unit_of(run) * inexact.off
    (primal, duals), before, weights = evaluation.values(), certificate_of(run), weights_of_rows(run, known)
    new = Certificate(primal, max(duals), before.exact, before.final, before.facts)
    change = steepness(run.problem, abs(primal), weights) * off
    dual = rounding_of_dual(run.problem, new, v, weights, size) + change
    terms = abs(primal) if run.problem.nu is None else sum_of_terms(run, evaluation.weights, weights)
    new = replace(new, rounding=max(rounding_of_primal(run.problem, terms, off, weights), dual))
    if new.gap > plan.tolerance and not any(state.name == DUAL for state in plan.solver.row_state):
        apart = 2.0 * np.sqrt(max(primal - before.dual, 0.0) / max(abs(primal), 1e-300))
        most = unit_of(run) * _change_of_optimum(run.problem, abs(primal), weights, moved())
        change = max(LIKELY * abs(primal - before.primal), most)
        least = before.dual - float((1.0 + apart * np.sqrt(len(evaluation.weights))) * change)
        new = min(new, replace(new, dual=least), key=lambda one: one.gap)
    run.certificate = new


def _change_of_optimum(problem: Problem, primal: float, weights: RowWeights | None, moved: MarginChange) -> float:
    """What sum_i a*_i (change of m_i) comes to: at most, or if every change has a sign of its own SIGMAS times what is usual."""
    most = pull_at_optimum(problem, primal, weights) * moved.largest
    return min(most, SIGMAS * root_pull_at_optimum(problem, primal, weights) * moved.root_mean_square)


def sum_of_terms(run: Run, w: Float64, weights: RowWeights | None) -> float:
    """The sum of the absolute values of what P is a sum of, at most: P itself where all of that is positive."""
    found = abs(certificate_of(run).primal)
    if run.problem.nu is None or weights is None:
        return found
    rho = abs(float(w[-1])) if run.problem.positive == EVERY_ROW else unit_of(run)
    if run.problem.origin is not None:
        rho += float(np.abs(run.problem.origin) @ np.abs(w[:-1]))
    return found + 2.0 * run.problem.nu * weights.total * rho


def unit_of(run: Run) -> float:
    """What a margin of the weights is in the units of P: rho of two classes by nu, else 1."""
    return max(0.0, certificate_of(run).facts["rho"]) if run.problem.two_classes_by_nu else 1.0


def weights_of(plan: Plan, run: Run) -> Float64:
    """The weights of a problem, as the solver sees them."""
    solution = plan.solver.solution(run.state)
    assert isinstance(solution, LinearSolution)
    return solution.w
