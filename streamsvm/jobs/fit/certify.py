"""What the end of a fit proves: certificates of the model as it is saved, and a status that says no more than they do.

**Linear fits**: ``solvers/rounding.py``. With --standardize the rows a solver sees are float32: each entry differs by
two roundings from the one that the saved weights are applied to. Where this can amount to more than a tenth of the
tolerance, P of the saved weights, and D of the slopes there, are computed in float64, in one more reading of the rows
as they are stored.

**Kernel features** are float32, and a small eigenvalue of the landmarks' matrix makes their rounding errors large: the
solver's features differ from those of the saved model, f(x) = sum_j b_j k(x, z_j). So P of that model, and D of the
slopes there, are computed in float64, in one more reading of the rows. The regularizer is ||w||^2 of the solver's w,
with b = W w: W as it is stored *is* the map.

The dual point of the solver may be better than the slopes. D is also recomputed from its variables, where the solver
stores them per row or can compute them from features (``has_dual_witness``). If neither D is large enough, as when the
variables were only in memory, the solver's own D is corrected to first order: P and D change alike when rows or
features change, both by -v.(change of v). The allowance is LIKELY times the change of P, or, if larger, the effect that
the change of margins, measured on some rows all over the store, has through the a_i of an optimum; and more where v is
not near w. (At a w beyond all corners P does not change at all, and at w = 0 no margin does: so margins are also
compared at the dual point.)

**Room**: these allowances are added after the solver has ended; so it works with a tolerance that is a part smaller
than the one asked for (``plan.ROOM``).

**Exact kernels**: ``solvers/kernel/rounding.py``.

``save_dual`` writes the dual variables to a file, with which anyone can recompute the bound (tools/audit.py).
Coordinate methods keep them as per-row state. Newton's method keeps the point whose slopes they are: another reading of
the store computes a_i = t C_i (-h'(m_i)).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from streamsvm import durable
from streamsvm.engine.block import block_of
from streamsvm.engine.evaluation import MarginChange, evaluate_problems, margins_apart
from streamsvm.engine.fit_state import ProblemRun, RowNumbers, Training
from streamsvm.errors import DataError, DefectError, UsageError
from streamsvm.features.scaling import Raw, Standardized, column_sizes, farthest_reach, largest_sizes
from streamsvm.jobs.fit.plan import Plan
from streamsvm.rows import Float64, row_where
from streamsvm.schedule.stream import Stream, epoch_visits
from streamsvm.solvers.evaluation import Evaluation
from streamsvm.solvers.rounding import (
    COARSE,
    OWN,
    SHARE,
    UNIT,
    RowWeights,
    VectorSum,
    pull_at_optimum,
    reach_of_weights,
    root_pull_at_optimum,
    rounding_of_dual,
    rounding_of_few,
    rounding_of_primal,
    steepness,
    two_sum_terms,
)
from streamsvm.types import (
    DUAL,
    AnySolver,
    Block,
    Certificate,
    FeatureMap,
    LinearSolution,
    Problem,
    Status,
    Store,
)
from streamsvm.types.problem import has_box

if TYPE_CHECKING:
    from streamsvm.features.nystrom import Embedded, Nystrom
    from streamsvm.solvers.evaluation import MultinomialEvaluation


LIKELY = 10.0
"""Allowance for the change of a dual value that is not recomputed, in multiples of the change of P, for v = w. It is
not less than the effect of the change of margins, and grows with ||v - w|| <= 2 sqrt(2 (P - D)), relative to sqrt(2 P).
"""
SIGMAS = 4.0
"""Standard deviations of that effect which are allowed for, if the changes of margins have independent signs."""
SWEEPS = 3
"""Most updates of a row in a pass, where the solver has no setting for it."""


def final_passes(plan: Plan) -> float:
    """Return about how many passes of the training take as long as the evaluation after it; kernel values in float64
    count as two passes more.
    """
    if _map_of(plan) is not None:
        return 3.0
    return 1.0 if isinstance(plan.features, Standardized) else 0.0


def certify(plan: Plan, training: Training, raw: Store, seen: Store) -> None:
    """Give every problem the certificate of the saved model, and the training its status. Changes ``training``.

    ``raw``: the rows; ``seen``: what the solver has read, which is the same or their features. Raises DefectError for
    values that are not finite; nothing is written then.
    """
    features = _map_of(plan)
    if features is not None:
        evaluate_features(plan, training, raw, features)
    elif not plan.solver.exact_kernel:
        _bound(plan, training, raw, seen)
    for run in training.runs:
        check_finite(run, plan)
    training.status = status_of(training, plan)


def row_weights(plan: Plan, store: Store) -> RowWeights | None:
    """Return what is known of the weights of rows; of several problems, that with the largest class weights.

    Weights of single rows are only read in regression and where columns are scaled in float32, where the bound for a
    smooth loss needs the largest weight; otherwise None is returned for them.
    """
    if plan.layout.weighted and not (plan.layout.numeric or isinstance(plan.features, Standardized)):
        return None
    counts = np.array(plan.layout.counts, np.float64)
    factors = [np.array(problem.weights or np.ones(len(counts))) for problem in plan.problems]
    if plan.layout.weighted:
        total, squares, largest = _count_weights(store)
        most = max(float(f.max(initial=0.0)) for f in factors)
        return RowWeights(most * total, most * most * squares, most * largest)
    found = [RowWeights(float(counts @ f), float(counts @ (f * f)), float(f.max())) for f in factors]
    return RowWeights(*(max(values) for values in zip(*found, strict=True)))


def _count_weights(store: Store) -> RowWeights:
    """Read the weights of all rows and return their sums."""
    total, squares, largest = 0.0, 0.0, 0.0
    with Stream(store, epoch_visits(store.layout, 0, 0, shuffled=False)) as stream:
        for loaded in stream:
            weight = loaded.chunk.weight
            assert weight is not None  # the layout says so
            s = weight.astype(np.float64)
            total, squares, largest = total + float(s.sum()), squares + float(s @ s), max(largest, float(s.max()))
    return RowWeights(total, squares, largest)


def weights_of_rows(run: ProblemRun, known: RowWeights | None) -> RowWeights | None:
    """Return what is known of the weights of the rows of a problem; a one-class problem with a free offset has summed
    them itself.
    """
    if run.problem.regularizer.has_scale:
        return known
    facts = certificate_of(run).facts
    return RowWeights(facts["weight"], facts["squared_weights"], facts["largest_weight"])


def certificate_of(run: ProblemRun) -> Certificate:
    """Return the certificate of a run: there is one after a pass."""
    assert run.certificate is not None
    return run.certificate


def _no_change() -> MarginChange:
    """Return no change: the solver sees the margins as they are."""
    from streamsvm.engine.evaluation import MarginChange

    return MarginChange()


class Inexact(NamedTuple):
    """Errors of the numbers that an evaluation is made of."""

    off: float
    """The largest error of a margin."""
    v: VectorSum
    """How its dual points were summed."""
    weights: RowWeights | None
    """What is known of the weights of rows."""
    size: float
    """F: the largest decision value."""
    moved: Callable[[], MarginChange] = _no_change
    """Returns the difference between a margin here and in the solver's float32; called only where it can matter."""


def take_evaluation(
    plan: Plan, run: ProblemRun, evaluation: Evaluation | MultinomialEvaluation, inexact: Inexact
) -> None:
    """Give a run the certificate of an evaluation with these errors.

    The dual value is recomputed from the slopes or from the solver's variables. Only where it is too small, and there
    are no variables of rows, it is the one that the solver found. Where the variables are written to a file it is
    theirs, so that anyone can recompute it. The solver's value is below the optimum of the solver's problem, which to
    first order differs from that of the saved model by sum_i a*_i (change of m_i): so much is subtracted.
    """
    _, v, known, size, moved = inexact
    off = unit_of(run) * inexact.off
    (primal, duals), before, weights = evaluation.values(), certificate_of(run), weights_of_rows(run, known)
    own = getattr(evaluation, "own", None)
    if plan.writes_dual and own is not None:
        duals = [own.value()]
    new = Certificate(primal, max(duals), before.exact, before.final, before.facts)
    change = steepness(run.problem, abs(primal), weights) * off
    dual = rounding_of_dual(run.problem, new, v, weights, size) + change
    terms = sum_of_terms(run, abs(primal), evaluation.weights, weights)
    new = replace(new, rounding=max(rounding_of_primal(run.problem, terms, off, weights), dual))
    if new.gap > plan.tolerance and not any(state.name == DUAL for state in plan.solver.row_state):
        apart = 2.0 * np.sqrt(max(primal - before.dual, 0.0) / max(abs(primal), 1e-300))
        most = unit_of(run) * _change_of_optimum(run.problem, abs(primal), weights, moved())
        change = max(LIKELY * abs(primal - before.primal), most)
        least = before.dual - float((1.0 + apart * np.sqrt(len(evaluation.weights))) * change)
        new = min(new, replace(new, dual=least), key=lambda one: one.gap)
    run.certificate = new


def _change_of_optimum(problem: Problem, primal: float, weights: RowWeights | None, moved: MarginChange) -> float:
    """Return a bound of sum_i a*_i (change of m_i): the largest value, or SIGMAS standard deviations for changes of
    independent signs, whichever is less.
    """
    most = pull_at_optimum(problem, primal, weights) * moved.largest
    return min(most, SIGMAS * root_pull_at_optimum(problem, primal, weights) * moved.root_mean_square)


def sum_of_terms(run: ProblemRun, primal: float, w: Float64, weights: RowWeights | None) -> float:
    """Return a bound of the sum of the absolute values of the terms of P; ``primal`` is |P|."""
    if weights is None:
        return primal
    return primal + run.problem.regularizer.cancellation(w, weights.total, unit_of(run))


def unit_of(run: ProblemRun) -> float:
    """Return the unit of margins in the units of P."""
    return run.problem.regularizer.margin_unit(certificate_of(run).facts)


def weights_of(plan: Plan, run: ProblemRun) -> Float64:
    """Return the weights of a problem, as the solver sees them."""
    solution = plan.solver.solution(run.state)
    assert isinstance(solution, LinearSolution)
    return solution.w


def evaluate_scaled(
    plan: Plan, training: Training, raw: Store, features: Standardized, known: RowWeights | None
) -> None:
    """Replace the certificates by those computed in float64, of weights folded to the rows as they are stored."""
    solutions = [LinearSolution(weights_of(plan, run), features.bias) for run in training.runs]
    problems = [run.problem for run in training.runs]
    weights = [_fold_weights(features, solution) for solution in solutions]

    def dual_values(k: int, block: Block) -> Float64 | None:
        if not plan.solver.has_dual_witness:
            return None
        copy = row_where(block.X, np.ones(len(block.y), np.bool_))
        return _dual_values(plan, training, k, replace(block, X=features.apply(copy)))

    sums = evaluate_problems(raw, Raw(1.0), problems, weights, _dual_rows(training), dual_values)
    sizes = np.append(column_sizes(Raw(1.0), raw, 1.0)[0][:-1] * features.scale, abs(features.bias))
    for run, solution, evaluation in zip(training.runs, solutions, sums, strict=True):
        evaluation.transform(solution.w, features.unfold)
        size = float(sizes @ reach_of_weights(solution.w))
        off = 2 * (len(sizes) + 2) * UNIT * size  # twice: the folded constant is a sum too
        terms = plan.layout.rows
        if isinstance(evaluation, Evaluation):  # sums in twice the precision, and their way to the scaled columns
            terms = two_sum_terms(terms) + OWN
        v = VectorSum(terms, running=False, spread=float(np.linalg.norm(sizes)))
        take_evaluation(plan, run, evaluation, Inexact(off, v, known, size))


def evaluate_features(plan: Plan, training: Training, raw: Store, map_: Nystrom | Embedded) -> None:
    """Replace the certificates by those computed in float64, of models on kernel features."""
    projection = map_.projection
    weights = [weights_of(plan, run) for run in training.runs]
    problems, dual_values = [run.problem for run in training.runs], partial(_dual_values, plan, training)
    sums = evaluate_problems(
        raw, map_.in_full(), problems, weights, _dual_rows(training), dual_values, projection.full_bytes
    )
    known, vectors = row_weights(plan, raw), [evaluation.vector() for evaluation in sums]
    moved = _margin_changes(raw, map_, weights, vectors)
    value, largest = projection.rounding(farthest_reach(projection.inner, raw))
    for run, w, evaluation, apart in zip(training.runs, weights, sums, moved, strict=True):
        reach = reach_of_weights(w)
        coefficients = float(reach_of_weights((projection.W @ w[..., :-1].T).T).sum())
        off = coefficients * value + 2 * UNIT * abs(map_.bias * float(reach[-1]))
        # v is made of features, which are sums over W: to first order their error is added once more
        off += value * float(reach[:-1] @ np.abs(projection.W).sum(axis=0, dtype=np.float64))
        v = VectorSum(plan.layout.rows, running=False, spread=float(np.sqrt(largest + map_.bias**2)))
        size = float(np.sqrt(largest) * np.linalg.norm(reach[:-1]) + abs(map_.bias * reach[-1]))
        take_evaluation(plan, run, evaluation, Inexact(off, v, known, size, apart))


def _margin_changes(
    raw: Store, map_: Nystrom | Embedded, weights: list[Float64], vectors: list[Float64]
) -> list[Callable[[], MarginChange]]:
    """Return for each weights a function that returns the difference of margins in both arithmetics; the first call of
    one maps rows twice.

    Margins are compared at the ``vectors`` of the dual points too, because at w = 0 no margin differs.
    """

    @cache
    def compare_margins() -> list[MarginChange]:
        found = margins_apart(raw, map_.in_single(), map_.in_full(), [*weights, *vectors])
        return [MarginChange.larger(*pair) for pair in zip(found[: len(weights)], found[len(weights) :], strict=True)]

    def of(k: int) -> MarginChange:
        return compare_margins()[k]

    return [partial(of, k) for k in range(len(weights))]


def _fold_weights(features: Standardized, solution: LinearSolution) -> Float64:
    """Return the weights of raw columns, in the shape of the solution's."""
    rows = [features.to_input_space(LinearSolution(w, solution.bias)).w for w in np.atleast_2d(solution.w)]
    return np.array(rows).reshape(solution.w.shape)


def _dual_values(plan: Plan, training: Training, k: int, block: Block) -> Float64 | None:
    """Return the dual variables of the rows of a block in problem k, where the solver can compute them."""
    solver = plan.solver
    return solver.dual_values(training.runs[k].witness_state(), block) if solver.has_dual_witness else None


def _dual_rows(training: Training) -> RowNumbers | None:
    """Return the dual variables of all rows, where the solver has them."""
    states = training.row_states.get(DUAL)
    assert states is None or isinstance(states, RowNumbers)
    return states


def _map_of(plan: Plan) -> Nystrom | Embedded | None:
    """Return the map of a fit that was asked for landmarks and whose solver sees the features of the map; else None."""
    if plan.request is None or not plan.sees_features_of_map:
        return None
    from streamsvm.features.nystrom import Embedded, Nystrom

    return plan.features if isinstance(plan.features, Nystrom | Embedded) else None


def status_of(training: Training, plan: Plan) -> Status:
    """Return how the run ended: converged only if every certificate is as good as was asked for."""
    if training.status == Status.PATIENCE:
        return training.status
    if all(_meets_criterion(run, plan) for run in training.runs):
        return Status.CONVERGED
    if training.status != Status.CONVERGED:
        return training.status
    bounded = any(run.certificate is not None and run.certificate.facts.get("points") for run in training.runs)
    return Status.SUPPORT if bounded else Status.STALLED


def _meets_criterion(run: ProblemRun, plan: Plan) -> bool:
    """Return whether the criterion the user gave is met: the relative gap, or a gap on the simplex."""
    found = run.certificate
    if found is None or not found.exact:
        return False
    return found.gap <= plan.tolerance or found.facts.get("simplex_gap", np.inf) <= plan.solver.epsilon


def check_finite(run: ProblemRun, plan: Plan) -> None:
    """Raise DataError unless primal and dual are finite numbers and the kernel's values may be too large for them, UsageError
    where the kernel is not positive semidefinite, else DefectError.
    """
    found, exact = run.certificate, run.problem.kernel
    if found is not None and np.isfinite([found.primal, found.dual, found.rounding]).all():
        return
    if exact is not None and not exact.positive_semidefinite():
        raise UsageError(
            f"the fit with C = {run.problem.C:g} has no bound: the kernel {exact} is not positive semidefinite on these "
            "rows, and coefficients grew beyond float64; no model was written",
            hint="choose another kernel (rbf, laplacian), the hinge, whose coefficients are bounded, or a smaller C",
        )
    shown = "none" if found is None else f"primal {found.primal}, dual {found.dual}, rounding {found.rounding}"
    kernel = exact if plan.request is None else plan.request.record
    if kernel is not None and not kernel.translation_invariant():  # values of others are 1 at most
        lost = "float64 does not hold the squares of decision values" if exact else "their features are beyond float32"
        raise DataError(
            f"the fit with C = {run.problem.C:g} has no certificate of finite numbers: {shown}; values of the kernel {kernel} "
            f"are so large on these rows that {lost}; no model was written",
            hint="scale the columns, --standardize, or choose a smaller gamma",
        )
    raise DefectError(
        f"the fit with C = {run.problem.C:g} has no certificate of finite numbers: {shown}; no model was written",
        hint="the values of the data, C or the kernel are beyond float64: scale the columns, or choose a smaller C",
    )


def _bound(plan: Plan, training: Training, raw: Store, seen: Store) -> None:
    """Add the bound of rounding errors to the certificates of linear fits; recompute them where scaling in float32 made
    too large errors.
    """
    sizes, scaled = column_sizes(plan.features, seen, plan.problems[0].bias)
    known, coarse, bounds = row_weights(plan, seen), [], []
    for run in training.runs:
        found, weights = certificate_of(run), weights_of_rows(run, known)
        w = unit_of(run) * reach_of_weights(weights_of(plan, run))
        v = VectorSum(_updates(plan, training), DUAL in training.row_states, float(np.linalg.norm(sizes)))
        off, scaling = (len(w) + 2) * UNIT * float(sizes @ w), COARSE * float(scaled @ w)
        value = rounding_of_primal(
            run.problem, sum_of_terms(run, abs(found.primal), w, weights), off + scaling, weights
        )
        apart = 2.0 * run.problem.kind.entries * math.sqrt(max(found.primal - found.dual, 0.0))
        far = scaling + COARSE * float(np.linalg.norm(scaled)) * apart
        change = steepness(run.problem, abs(found.primal), weights) * far
        dual = rounding_of_dual(run.problem, found, v, weights, float(sizes @ w))
        bounds.append((value, dual + change))
        coarse.append(change > SHARE * plan.tolerance * abs(found.primal))
    if any(coarse) and isinstance(plan.features, Standardized):
        evaluate_scaled(plan, training, raw, plan.features, known)
        return
    few = _of_few_rows(plan, training, seen, [value for value, _ in bounds])
    for run, (_, dual), value in zip(training.runs, bounds, few, strict=True):
        found = certificate_of(run)
        run.certificate = replace(found, rounding=found.rounding + max(value, dual))


def _of_few_rows(plan: Plan, training: Training, seen: Store, values: list[float]) -> list[float]:
    """Return the bounds of the rounding error of P: ``values``, or less where few rows have a loss, which are counted
    in a reading where that can matter.
    """
    problems, features = [run.problem for run in training.runs], plan.features
    large = [
        value > SHARE * plan.tolerance * abs(certificate_of(run).primal)
        for run, value in zip(training.runs, values, strict=True)
    ]
    margins = has_box(problems[0].loss) and not problems[0].loss.numeric()
    if not (isinstance(features, Raw) and margins and any(large)):
        return values
    from streamsvm.engine.evaluation import weight_that_costs

    weights, sizes = [weights_of(plan, run) for run in training.runs], largest_sizes(features, seen, problems[0].bias)
    off = [(len(sizes) + 2) * UNIT * float(sizes @ reach_of_weights(w)) for w in weights]
    costing = weight_that_costs(seen, features, problems, weights, off)
    primal = [abs(certificate_of(run).primal) for run in training.runs]
    few = [rounding_of_few(*one) for one in zip(problems, primal, off, costing, strict=True)]
    return [min(*one) for one in zip(values, few, strict=True)]


def _updates(plan: Plan, training: Training) -> int:
    """Return the largest number of updates of v: those of all passes, or the terms of three sums where a dual point is
    computed from weights.
    """
    if plan.solver.has_dual_witness:
        return 3 * two_sum_terms(plan.layout.rows)
    from streamsvm.solvers.dcd import DualAscent

    sweeps = plan.solver.sweeps if isinstance(plan.solver, DualAscent) else 0
    return max(SWEEPS, sweeps) * training.passes * plan.layout.rows


def save_dual(path: Path, store: Store, plan: Plan, training: Training) -> None:
    """Write the dual variables (problems, rows) float64 as .npy, chunk by chunk. One problem: (rows,).

    Where classes are told apart together a row has one for each, a_ik of ``compute.passes.dcd.multinomial_sweep``:
    (problems, rows, classes).
    """
    problems, rows = len(training.runs), store.layout.rows
    shape = (rows, classes) if (classes := plan.problems[0].kind.classes) else (rows,)
    with closing(part for k in range(problems) for part in _parts(store, plan, training, k)) as parts:
        durable.write_npy(path, shape if problems == 1 else (problems, *shape), parts)


def _parts(store: Store, plan: Plan, training: Training, k: int) -> Iterator[Float64]:
    """Yield the dual variables of problem k, chunk by chunk."""
    if DUAL in training.row_states:
        states = training.row_states[DUAL]
        assert isinstance(states, RowNumbers)
        return (states.load(chunk)[k] for chunk in range(len(states.layout.chunks)))
    return _of_witness(store, plan.features, training.runs[k], plan.solver)


def _of_witness(store: Store, features: FeatureMap, run: ProblemRun, solver: AnySolver) -> Iterator[Float64]:
    """Yield the dual variables of every row, in another reading; 0 for held-out rows, and in a problem of a pair of
    classes for rows of others.
    """
    layout, problem = store.layout, run.problem
    starts = layout.starts
    with Stream(store, epoch_visits(layout, 0, 0, shuffled=False)) as stream:
        for loaded in stream:
            chunk = loaded.visit.chunk
            if chunk in problem.held_out:
                yield np.zeros(len(loaded.chunk.codes))
                continue
            for part in features.parts(loaded.chunk.X):
                seen = block_of(problem, loaded, part, starts[chunk], reused=True)
                all_rows = np.zeros(part.stop - part.start)
                if seen is not None:
                    found = solver.dual_values(run.witness_state(), seen)
                    assert found is not None  # ``solver_choice.build_solver`` has had it kept
                    all_rows[slice(None) if seen.places is None else seen.places] = found
                yield all_rows
