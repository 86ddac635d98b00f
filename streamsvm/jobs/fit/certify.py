"""What the end of a fit proves: certificates of the model as it is saved, and a status that says no more than they do.

**Linear fits**: ``solvers/rounding.py``. With --standardize the rows a solver sees are float32, each entry off by two
roundings from those the saved weights see; where that is more than a tenth of the tolerance, P of the saved weights
and D of the slopes there are computed in float64, in one more reading of the rows as they are stored.

**Kernel features** are float32, and a small eigenvalue of the landmarks' matrix makes their rounding large. The
features a solver sees are not quite those of the model that is saved, f(x) = sum_j b_j k(x, z_j). So P is computed
once more, of that model, and D of the slopes there, in float64, in one more reading of the rows. The regularizer is
||w||^2 of the solver's w, b = W w: W as it is stored *is* the map.

The dual point of the solver may be better than the slopes. D is recomputed from its variables too, where it has them
for rows or can say them from features (``has_dual_witness``). Where that does not prove enough, as of variables that
were only in memory, the value found is taken, to first order: P and D change alike when rows or features do, both by
-v.(change of v), and the dual may be off by LIKELY times the change of P, by what the a_i of an optimum make of the
change of margins, which is looked at in some rows all over the store, and by more where v is not near w. (At a w
beyond all corners P does not change at all, and at w = 0 no margin does: they are looked at where the dual point is,
too.)

**Room**: what is added here comes after the solver has ended, which therefore was given a part of the tolerance less
than was asked for (``plan.ROOM``).

**Exact kernels**: ``solvers/kernel/rounding.py``.

``save_dual`` writes the dual variables to a file, with which anyone can recompute the bound (tools/audit.py).
Coordinate methods have them as state of their rows; Newton's method knows a point whose slopes they are, and another
reading of the store writes a_i = t C_i (-h'(m_i)).
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
from streamsvm.engine.training import RowNumbers, Run, Training
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


LIKELY, SIGMAS = 10.0, 4.0
"""Times what P has changed by, but not less than what a*_i make of the change of margins: what a dual value can have
changed by that is not computed anew, at v = w; the more the further v can be from it, ||v - w|| <= 2 sqrt(2 (P -
D)), beside sqrt(2 P).
"""
SWEEPS = 3
"""Updates of a row in a pass at most, unless a solver is told otherwise."""


def final_passes(plan: Plan) -> float:
    """Return how many passes of the training the evaluation after it takes, about: kernel values in float64 take two
    each.
    """
    if _map_of(plan) is not None:
        return 3.0
    return 1.0 if isinstance(plan.features, Standardized) else 0.0


def certify(plan: Plan, training: Training, raw: Store, seen: Store) -> None:
    """Give every problem the certificate of what is saved, and the training the status it has. Changes ``training``.

    ``raw``: the rows, ``seen``: what the solver has read, the same or their features. Raises DefectError where a value
    is not finite: nothing is written then.
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
    """Return what is known of the weights of rows; of the problem whose classes weigh most, if there are several.

    If rows have weights of their own these are counted in a reading where the target is a number, or columns are
    scaled in float32: what that does to a loss without corners goes with the largest weight, and is felt.
    """
    if plan.layout.weighted and not (plan.layout.numeric or isinstance(plan.features, Standardized)):
        return None
    counts = np.array(plan.layout.counts, np.float64)
    factors = [np.array(problem.weights or np.ones(len(counts))) for problem in plan.problems]
    if plan.layout.weighted:
        total, squares, largest = _counted_weights(store)
        most = max(float(f.max(initial=0.0)) for f in factors)
        return RowWeights(most * total, most * most * squares, most * largest)
    found = [RowWeights(float(counts @ f), float(counts @ (f * f)), float(f.max())) for f in factors]
    return RowWeights(*(max(values) for values in zip(*found, strict=True)))


def _counted_weights(store: Store) -> RowWeights:
    """Return the weights of all rows, which are read."""
    total, squares, largest = 0.0, 0.0, 0.0
    with Stream(store, epoch_visits(store.layout, 0, 0, shuffled=False)) as stream:
        for loaded in stream:
            weight = loaded.chunk.weight
            assert weight is not None  # the layout says so
            s = weight.astype(np.float64)
            total, squares, largest = total + float(s.sum()), squares + float(s @ s), max(largest, float(s.max()))
    return RowWeights(total, squares, largest)


def weights_of_rows(run: Run, known: RowWeights | None) -> RowWeights | None:
    """Return what is known of the weights of the rows of a problem: of one class with a free offset, what was summed
    up.
    """
    if run.problem.regularizer.has_scale:
        return known
    facts = certificate_of(run).facts
    return RowWeights(facts["weight"], facts["squared_weights"], facts["largest_weight"])


def certificate_of(run: Run) -> Certificate:
    """Return the certificate of a run: there is one after a pass."""
    assert run.certificate is not None
    return run.certificate


def _no_change() -> MarginChange:
    """Return no change: the solver sees the margins as they are."""
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
    moved: Callable[[], MarginChange] = _no_change
    """Says by how much a margin is another one to the solver, to whom rows were float32; asked where that can matter."""


def take_evaluation(plan: Plan, run: Run, evaluation: Evaluation | MultinomialEvaluation, inexact: Inexact) -> None:
    """Give a run the certificate of an evaluation whose margins are off by so much.

    The dual value is that of the slopes or of the solver's variables, computed anew; only where that is not enough,
    and there are no variables of rows, it is the one the solver found. Where the variables are written it is theirs:
    who has the file can compute it. That is below the optimum of its own problem, which differs from the one of the
    saved model by sum_i a*_i (change of m_i) to first order: so much less is said.
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
    """Return what sum_i a*_i (change of m_i) comes to: at most, or if every change has a sign of its own SIGMAS times
    what is usual.
    """
    most = pull_at_optimum(problem, primal, weights) * moved.largest
    return min(most, SIGMAS * root_pull_at_optimum(problem, primal, weights) * moved.root_mean_square)


def sum_of_terms(run: Run, primal: float, w: Float64, weights: RowWeights | None) -> float:
    """Return the sum of the absolute values of what P is a sum of, at most; ``primal`` is |P|."""
    if weights is None:
        return primal
    return primal + run.problem.regularizer.cancellation(w, weights.total, unit_of(run))


def unit_of(run: Run) -> float:
    """Return what a margin of the weights is in the units of P."""
    return run.problem.regularizer.margin_unit(certificate_of(run).facts)


def weights_of(plan: Plan, run: Run) -> Float64:
    """Return the weights of a problem, as the solver sees them."""
    solution = plan.solver.solution(run.state)
    assert isinstance(solution, LinearSolution)
    return solution.w


def evaluate_scaled(
    plan: Plan, training: Training, raw: Store, features: Standardized, known: RowWeights | None
) -> None:
    """Put certificates in place that are computed in float64, of weights folded to the rows as they are stored."""
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
    """Put certificates in place that are computed in float64, of models on kernel features."""
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
        # features, v of which is made, are sums over W: to first order what they are off by counts once more
        off += value * float(reach[:-1] @ np.abs(projection.W).sum(axis=0, dtype=np.float64))
        v = VectorSum(plan.layout.rows, running=False, spread=float(np.sqrt(largest + map_.bias**2)))
        size = float(np.sqrt(largest) * np.linalg.norm(reach[:-1]) + abs(map_.bias * reach[-1]))
        take_evaluation(plan, run, evaluation, Inexact(off, v, known, size, apart))


def _margin_changes(
    raw: Store, map_: Nystrom | Embedded, weights: list[Float64], vectors: list[Float64]
) -> list[Callable[[], MarginChange]]:
    """For each weights what says by how much margins differ in both arithmetics: rows are mapped twice when the first
    is asked.

    The optimum lies between the weights and the ``vectors`` of their dual points: at w = 0 no margin differs.
    """

    @cache
    def compare_margins() -> list[MarginChange]:
        found = margins_apart(raw, map_.in_single(), map_.in_full(), [*weights, *vectors])
        return [MarginChange.larger(*pair) for pair in zip(found[: len(weights)], found[len(weights) :], strict=True)]

    def of(k: int) -> MarginChange:
        return compare_margins()[k]

    return [partial(of, k) for k in range(len(weights))]


def _fold_weights(features: Standardized, solution: LinearSolution) -> Float64:
    """Return the weights of raw columns, in the shape they have."""
    rows = [features.fold(LinearSolution(w, solution.bias)).w for w in np.atleast_2d(solution.w)]
    return np.array(rows).reshape(solution.w.shape)


def _dual_values(plan: Plan, training: Training, k: int, block: Block) -> Float64 | None:
    """Return those of the rows of a block in problem k, where the solver can say them."""
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
    """Return how the run ended: converged only where every certificate is the one that was asked for."""
    if training.status == Status.PATIENCE:
        return training.status
    if all(_meets_criterion(run, plan) for run in training.runs):
        return Status.CONVERGED
    if training.status != Status.CONVERGED:
        return training.status
    bounded = any(run.certificate is not None and run.certificate.facts.get("points") for run in training.runs)
    return Status.SUPPORT if bounded else Status.STALLED


def _meets_criterion(run: Run, plan: Plan) -> bool:
    """Return whether the criterion the user gave is met: the relative gap, or a gap on the simplex."""
    found = run.certificate
    if found is None or not found.exact:
        return False
    return found.gap <= plan.tolerance or found.facts.get("simplex_gap", np.inf) <= plan.solver.epsilon


def check_finite(run: Run, plan: Plan) -> None:
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
    """Add to the certificates of linear fits what rounding can have done; where scaling did too much, compute them
    anew.
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
    """Return what rounding can do to P, less than ``values`` where few rows cost something: counted in a reading,
    where that can matter.
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
    """Return the updates of v at most: those of all passes, or the terms of three sums where a dual point is read off
    weights.
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
    """Yield those of problem k, chunk by chunk."""
    if DUAL in training.row_states:
        states = training.row_states[DUAL]
        assert isinstance(states, RowNumbers)
        return (states.load(chunk)[k] for chunk in range(len(states.layout.chunks)))
    return _of_witness(store, plan.features, training.runs[k], plan.solver)


def _of_witness(store: Store, features: FeatureMap, run: Run, solver: AnySolver) -> Iterator[Float64]:
    """Yield the dual variables of every row, by another reading; 0 for held-out rows, and those of other classes than
    a pair's.
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
                    assert found is not None  # ``solver.build_solver`` has had it kept
                    all_rows[slice(None) if seen.places is None else seen.places] = found
                yield all_rows
