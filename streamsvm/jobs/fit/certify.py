"""Certify a finished training: compute the certificates of the model as it will be saved, and the status they justify.

**Linear fits**: ``solvers/linear_rounding.py`` bounds the rounding error. The saved weights apply to the stored rows. With
--standardize the solver sees their float32 copies, whose entries differ from them by two roundings. If this can amount to more than a tenth of the
tolerance, one more pass over the stored rows computes, in float64, P at the saved weights and D at the dual variables
that the loss derivatives at these weights define.

**Curves**: the problem is defined by the rounded hat functions (float32) and the basis B (float64), so that their rounding is no
error. The bound is that of a linear fit plus a few roundings for the products with B.

**Kernel features** are float32, and if the landmarks' kernel matrix has a small eigenvalue, their rounding errors are
large: the features of the solver differ from those of the saved model, f(x) = sum_j b_j k(x, z_j). So one more pass
over the rows computes, in float64, P of the saved model and D of the loss derivatives at this model. The stored W defines the
map, so that b = W w holds exactly and the regularizer is still ||w||^2 of the solver's w.

The solver's dual variables may give a larger D than the loss derivatives. D is also recomputed from the solver's dual variables
if it stores them per row or can compute them from features (``has_dual_witness``). If neither D is large enough, for
example because the dual variables were not stored, the solver's D is corrected to first order: with v = sum_i a_i y_i x_i,
P and D both change by -v.(change of v) if rows or features change. The correction is the larger of two terms: DUAL_CHANGE_RATIO times the change of P, and a bound of
sum_i a*_i |change of m_i|; it is scaled up if v is far from w. The change of margins is measured on some rows from all
parts of the store, at w and at v: at w alone nothing may change (w = 0, or all margins on the flat part of the loss).

**Reserve**: all these error bounds are added to the gap at the end. To leave room for them, the solver uses a tolerance
smaller than the requested one (``plan.ROUNDING_RESERVE``).

**Exact kernels**: ``solvers/kernel/rounding.py`` bounds the rounding error.

``save_dual`` writes the dual variables to a file, from which anyone can recompute the bound (tools/audit.py). Coordinate
methods keep them as per-row state. Newton's method keeps the weights that define them; another pass over the store
computes a_i = t C_i (-h'(m_i)).
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
from streamsvm.engine.block_visitor import block_of
from streamsvm.engine.evaluation import MarginChange, evaluate_problems, measure_margin_changes
from streamsvm.engine.fit_state import PerRowValues, ProblemRun, Training
from streamsvm.errors import DataError, DefectError, UsageError
from streamsvm.features.curves import Curves
from streamsvm.features.scaling import Raw, Standardized, column_sizes, farthest_reach, largest_sizes
from streamsvm.jobs.fit.enclose import enclose, uses_matrices
from streamsvm.jobs.fit.options import ALL_ROWS_METHODS, UPDATES
from streamsvm.jobs.fit.plan import Plan
from streamsvm.proofs.enclosure import EvaluatedPoint, has_enclosure
from streamsvm.proofs.kept import Enclosures
from streamsvm.rows import Float64, row_where
from streamsvm.schedule.stream import Stream, epoch_visits
from streamsvm.solvers.evaluation import Evaluation
from streamsvm.solvers.linear_rounding import (
    SHARE,
    TRANSFORM_ROUNDINGS,
    UNIT,
    UNIT_FLOAT32,
    RowWeights,
    VectorSum,
    max_abs_weights,
    max_dual_norm,
    max_dual_sum,
    rounding_of_dual,
    rounding_of_few,
    rounding_of_gradient,
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


DUAL_CHANGE_RATIO = 10.0
"""Allowance for the change of a dual value that is not recomputed: this multiple of the change of P, or the effect of
the changed margins if that is larger. The allowance is multiplied by 1 + ||v - w|| / sqrt(2 P), with ||v - w|| <= 2 sqrt(2 (P - D)).
"""
SIGMAS = 4.0
"""The changes of margins are assumed to have independent signs; their effect is bounded by this many standard deviations."""
ENCLOSURE_PASSES = 3.0
"""Cost of enclosures that are computed from all rows, in passes."""
UPDATE_PASSES = 6.0
"""Cost of preparing for later changes of rows (``forget``, ``learn``), in passes, including a Newton step."""
SWEEPS = 3
"""Maximum number of updates of a row per pass, for solvers without a setting for it."""


def final_passes(plan: Plan) -> float:
    """Return the estimated duration of the final evaluation, in multiples of the duration of a training pass.

    The final pass over kernel features takes three times as long as a pass, because kernel values are computed in float64.
    """
    if _map_of(plan) is not None:
        return 3.0
    passes = (
        UPDATE_PASSES if plan.enclosure == UPDATES else ENCLOSURE_PASSES if plan.enclosure in ALL_ROWS_METHODS else 0.0
    )
    return passes + (1.0 if isinstance(plan.features, Standardized) else 0.0)


class Evaluated(NamedTuple):
    """The certificate and the gradient at the saved weights, from which ``enclose`` computes a region that contains the optimum."""

    certificate: Certificate
    """P, D and a bound of their rounding errors that holds exactly, not only to first order."""
    point: EvaluatedPoint | None
    """The weights with their gradient; None if it is not known."""


def certify(plan: Plan, training: Training, raw: Store, feature_store: Store) -> list[Evaluated]:
    """Set the certificate of every problem to that of the saved model, and set the status of the training, in place.

    ``raw``: the stored rows. ``feature_store``: the store that the solver has read, of the same rows or of their features. Raises
    DataError, UsageError or DefectError for values that are not finite, before anything is written. Returns what is
    proved of each problem, if the plan asks for enclosures; else an empty list.
    """
    features, evaluated = _map_of(plan), list[Evaluated]()
    if features is not None:
        evaluate_features(plan, training, raw, features)
    elif not plan.solver.exact_kernel:
        evaluated = _bound(plan, training, raw, feature_store)
    for run in training.runs:
        check_finite(run, plan)
    training.status = status_of(training, plan)
    return evaluated


def row_weights(plan: Plan, store: Store) -> RowWeights | None:
    """Return sum, sum of squares and maximum of the row weights; for several problems, the elementwise maximum over them.

    Sample weights are read from the store only if they are needed: in regression, for columns scaled in float32, and for
    enclosures, where the bound for a smooth loss needs the largest weight. Otherwise the result for a store with sample
    weights is None.
    """
    is_needed = plan.layout.numeric or isinstance(plan.features, Standardized) or plan.enclosure is not None
    if plan.layout.weighted and not is_needed:
        return None
    counts = np.array(plan.layout.counts, np.float64)
    factors = [np.array(problem.weights or np.ones(len(counts))) for problem in plan.problems]
    if plan.layout.weighted:
        total, squares, largest = _count_weights(store)
        factor = max(float(f.max(initial=0.0)) for f in factors)
        return RowWeights(factor * total, factor * factor * squares, factor * largest)
    sums = [RowWeights(float(counts @ f), float(counts @ (f * f)), float(f.max())) for f in factors]
    return RowWeights(*(max(values) for values in zip(*sums, strict=True)))


def _count_weights(store: Store) -> RowWeights:
    """Return the sums and the maximum of the sample weights, read from the whole store."""
    total, squares, largest = 0.0, 0.0, 0.0
    with Stream(store, epoch_visits(store.layout, 0, 0, shuffled=False)) as stream:
        for loaded in stream:
            weight = loaded.chunk.weight
            assert weight is not None  # ``layout.weighted`` is true
            s = weight.astype(np.float64)
            total, squares, largest = total + float(s.sum()), squares + float(s @ s), max(largest, float(s.max()))
    return RowWeights(total, squares, largest)


def weights_of_rows(run: ProblemRun, weight_sums: RowWeights | None) -> RowWeights | None:
    """Return the sums of row weights of a problem: ``weight_sums``; for a one-class problem with a free offset, the sums computed
    by the solver.
    """
    if run.problem.regularizer.has_scale:
        return weight_sums
    facts = certificate_of(run).facts
    return RowWeights(facts["weight"], facts["squared_weights"], facts["largest_weight"])


def certificate_of(run: ProblemRun) -> Certificate:
    """Return the certificate of a run, which exists after the first pass."""
    assert run.certificate is not None
    return run.certificate


def _no_change() -> MarginChange:
    """Return a change of zero, for solvers that see the exact margins."""
    return MarginChange()


class EvaluationErrors(NamedTuple):
    """Bounds of the errors in the numbers from which an evaluation is computed."""

    margin_error: float
    """The largest error of a margin."""
    v: VectorSum
    """How v was summed."""
    weights: RowWeights | None
    """The sums of row weights, if they are known."""
    largest_decision: float
    """F, a bound of the decision values."""
    margin_change: Callable[[], MarginChange] = _no_change
    """Returns the change of margins from float64 to the solver's float32. It is expensive and called only if needed."""


def set_certificate(
    plan: Plan, run: ProblemRun, evaluation: Evaluation | MultinomialEvaluation, errors: EvaluationErrors
) -> Certificate:
    """Set the certificate of a run to the result of an evaluation with these errors.

    Returns the certificate that is proved exactly, not only to first order.

    The dual value is recomputed from the loss derivatives and from the solver's dual variables. The solver's own dual
    value is used only if this value is too small and the solver does not store dual variables per row. If the dual variables are written
    to a file, the dual value is that of these variables, so that anyone can recompute it. The solver's value is below
    the optimum of the solver's problem, which to first order differs from that of the saved model by sum_i a*_i (change
    of m_i); a bound of that difference is subtracted.
    """
    _, v, weight_sums, largest_decision, margin_change = errors
    scaled_margin_error = margin_scale(run) * errors.margin_error
    (primal, duals), before, weights = evaluation.values(), certificate_of(run), weights_of_rows(run, weight_sums)
    solver_dual = getattr(evaluation, "own", None)
    if plan.writes_dual and solver_dual is not None:
        duals = [solver_dual.value()]
    new = Certificate(primal, max(duals), before.exact, before.final, before.facts)
    change = steepness(run.problem, abs(primal), weights) * scaled_margin_error
    dual = rounding_of_dual(run.problem, new, v, weights, largest_decision) + change
    terms = sum_of_terms(run, abs(primal), evaluation.weights, weights)
    new = proved = replace(
        new, rounding=max(rounding_of_primal(run.problem, terms, scaled_margin_error, weights), dual)
    )
    if new.gap > plan.tolerance and not any(state.name == DUAL for state in plan.solver.row_state):
        distance = 2.0 * np.sqrt(max(primal - before.dual, 0.0) / max(abs(primal), 1e-300))
        optimum_change = margin_scale(run) * _bound_optimum_change(run.problem, abs(primal), weights, margin_change())
        change = max(DUAL_CHANGE_RATIO * abs(primal - before.primal), optimum_change)
        corrected = before.dual - float((1.0 + distance * np.sqrt(len(evaluation.weights))) * change)
        new = min(new, replace(new, dual=corrected), key=lambda certificate: certificate.gap)
    run.certificate = new
    return proved


def _bound_optimum_change(problem: Problem, primal: float, weights: RowWeights | None, change: MarginChange) -> float:
    """Return a bound of sum_i a*_i (change of m_i): the smaller of its largest possible value and SIGMAS standard
    deviations for changes with independent signs.
    """
    largest = max_dual_sum(problem, primal, weights) * change.largest
    return min(largest, SIGMAS * max_dual_norm(problem, primal, weights) * change.root_mean_square)


def sum_of_terms(run: ProblemRun, primal: float, w: Float64, weights: RowWeights | None) -> float:
    """Return a bound of the sum of the absolute values of the terms of P; ``primal`` is |P|."""
    if weights is None:
        return primal
    return primal + run.problem.regularizer.cancellation(w, weights.total, margin_scale(run))


def margin_scale(run: ProblemRun) -> float:
    """Return the factor that converts margins to the scale of P."""
    return run.problem.regularizer.margin_unit(certificate_of(run).facts)


def weights_of(plan: Plan, run: ProblemRun) -> Float64:
    """Return the solver's weights of a problem."""
    solution = plan.solver.solution(run.state)
    assert isinstance(solution, LinearSolution)
    return solution.w


def evaluate_scaled(
    plan: Plan, training: Training, raw: Store, features: Standardized, weight_sums: RowWeights | None
) -> list[Evaluated]:
    """Replace the certificates of a standardized fit by those computed in float64, for weights of the stored columns.

    Returns what is proved of each problem, if the plan asks for enclosures.
    """
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
    evaluated = []
    for run, solution, evaluation in zip(training.runs, solutions, sums, strict=True):
        evaluation.transform(solution.w, features.map_sum)
        size = float(sizes @ max_abs_weights(solution.w))
        # factor 2: the intercept for the stored columns is itself a rounded sum
        margin_error = 2 * (len(sizes) + 2) * UNIT * size
        terms = plan.layout.rows
        if isinstance(evaluation, Evaluation):  # sums in doubled precision, and their transform to scaled columns
            terms = two_sum_terms(terms) + TRANSFORM_ROUNDINGS
        v = VectorSum(terms, running=False, spread=float(np.linalg.norm(sizes)))
        proved = set_certificate(plan, run, evaluation, EvaluationErrors(margin_error, v, weight_sums, size))
        if plan.enclosure is not None:
            gradient = None
            if run.problem.loss.smooth():
                gradient = solution.w - evaluation.slopes[0].vector()
            largest_values = np.append(_sizes_of_rows(raw, 1.0)[:-1] * features.scale, abs(features.bias))
            margin_error = 2 * (len(sizes) + 2) * UNIT * float(largest_values @ np.abs(solution.w))
            described = (largest_values, margin_error, terms, weight_sums)
            evaluated.append(_describe_point(plan, run, proved, gradient, described))
    return evaluated


def _sizes_of_rows(store: Store, bias: float) -> Float64:
    """Return r_j = max_i |x_ij| (d + 1,) of stored rows. The root mean squares of the statistics cannot be used here: they
    may include rows outside the problem.
    """
    return largest_sizes(Raw(bias), store, bias)


def _describe_point(
    plan: Plan,
    run: ProblemRun,
    proved: Certificate,
    gradient: Float64 | None,
    errors: tuple[Float64, float, int, RowWeights | None],
) -> Evaluated:
    """Return what is proved of a problem. ``errors``: the largest |x_j| (p,), error of a margin, roundings of a sum, and row weights."""
    sizes, off, terms, weight_sums = errors
    # r_j belong to all rows of the store; a problem of two classes has only some of them
    problem, w = replace(run.problem, rows=plan.layout.rows), weights_of(plan, run)
    if gradient is None or weight_sums is None or not has_enclosure(problem.loss):
        return Evaluated(proved, None)
    primal = abs(proved.primal) + proved.rounding
    components, margins = rounding_of_gradient(problem, primal, sizes, w, off, terms, weight_sums)
    return Evaluated(proved, EvaluatedPoint(w, gradient, components, margins, off))


def enclose_optima(plan: Plan, training: Training, raw: Store, evaluated: list[Evaluated]) -> Enclosures | None:
    """Return the enclosures of the optima of a training; None if the plan does not ask for them. ``evaluated``: the result
    of ``certify``.
    """
    if plan.enclosure is None:
        return None
    problems = [run.problem for run in training.runs]
    weights = [weights_of(plan, run) for run in training.runs]
    pairs = [((c.primal - c.dual) + 2.0 * c.rounding + 4.0 * UNIT * abs(c.primal), point) for c, point in evaluated]
    return enclose(plan.features, problems, weights, pairs, raw, plan.enclosure)


def _describe_raw_point(plan: Plan, run: ProblemRun, raw: Store, gradient: Float64 | None) -> Evaluated:
    """Return what is proved of a problem of the columns as they are stored."""
    sizes = _sizes_of_rows(raw, run.problem.bias)
    off = (len(sizes) + 2) * UNIT * float(sizes @ np.abs(weights_of(plan, run)))
    errors = (sizes, off, two_sum_terms(plan.layout.rows), row_weights(plan, raw))
    return _describe_point(plan, run, certificate_of(run), gradient, errors)


def evaluate_features(plan: Plan, training: Training, raw: Store, map_: Nystrom | Embedded) -> None:
    """Replace the certificates of a fit of kernel features by those of the saved model, computed in float64."""
    projection = map_.projection
    weights = [weights_of(plan, run) for run in training.runs]
    problems, dual_values = [run.problem for run in training.runs], partial(_dual_values, plan, training)
    sums = evaluate_problems(
        raw,
        map_.in_certificate_arithmetic(),
        problems,
        weights,
        _dual_rows(training),
        dual_values,
        projection.certificate_bytes,
    )
    weight_sums, vectors = row_weights(plan, raw), [evaluation.vector() for evaluation in sums]
    changes = _margin_changes(raw, map_, weights, vectors)
    value, largest = projection.rounding(farthest_reach(projection.scaling, raw))
    for run, w, evaluation, margin_change in zip(training.runs, weights, sums, changes, strict=True):
        reach = max_abs_weights(w)
        coefficients = float(max_abs_weights((projection.W @ w[..., :-1].T).T).sum())
        off = coefficients * value + 2 * UNIT * abs(map_.bias * float(reach[-1]))
        # the features in v have the same rounding error: it is added a second time, to first order
        off += value * float(reach[:-1] @ np.abs(projection.W).sum(axis=0, dtype=np.float64))
        v = VectorSum(plan.layout.rows, running=False, spread=float(np.sqrt(largest + map_.bias**2)))
        size = float(np.sqrt(largest) * np.linalg.norm(reach[:-1]) + abs(map_.bias * reach[-1]))
        set_certificate(plan, run, evaluation, EvaluationErrors(off, v, weight_sums, size, margin_change))


def _margin_changes(
    raw: Store, map_: Nystrom | Embedded, weights: list[Float64], vectors: list[Float64]
) -> list[Callable[[], MarginChange]]:
    """Return for each problem a function that returns the difference of its margins between float32 and float64 features.

    The first call of any of them maps a sample of rows with both dtypes. Margins are also compared at ``vectors``, the
    v of the dual points, because at w = 0 no margin differs.
    """

    @cache
    def compare_margins() -> list[MarginChange]:
        changes = measure_margin_changes(
            raw, map_.in_solver_arithmetic(), map_.in_certificate_arithmetic(), [*weights, *vectors]
        )
        at_weights, at_vectors = changes[: len(weights)], changes[len(weights) :]
        return [MarginChange.larger(*pair) for pair in zip(at_weights, at_vectors, strict=True)]

    def change_of_problem(k: int) -> MarginChange:
        return compare_margins()[k]

    return [partial(change_of_problem, k) for k in range(len(weights))]


def _fold_weights(features: Standardized, solution: LinearSolution) -> Float64:
    """Return the weights of the stored columns, in the shape of ``solution.w``."""
    rows = [features.to_input_space(LinearSolution(w, solution.bias)).w for w in np.atleast_2d(solution.w)]
    return np.array(rows).reshape(solution.w.shape)


def _dual_values(plan: Plan, training: Training, k: int, block: Block) -> Float64 | None:
    """Return the dual variables of the rows of a block in problem k; None if the solver cannot compute them."""
    solver = plan.solver
    return solver.dual_values(training.runs[k].witness_state(), block) if solver.has_dual_witness else None


def _dual_rows(training: Training) -> PerRowValues | None:
    """Return the dual variables of all rows; None if the solver does not keep them as row state."""
    states = training.row_states.get(DUAL)
    assert states is None or isinstance(states, PerRowValues)
    return states


def _map_of(plan: Plan) -> Nystrom | Embedded | None:
    """Return the map of a fit with landmarks whose solver sees unquantized features; else None."""
    if plan.request is None or not plan.sees_features_of_map:
        return None
    from streamsvm.features.nystrom import Embedded, Nystrom

    return plan.features if isinstance(plan.features, Nystrom | Embedded) else None


def status_of(training: Training, plan: Plan) -> Status:
    """Return the status of the training: converged only if every certificate meets the tolerance."""
    if training.status == Status.PATIENCE:
        return training.status
    if all(_meets_criterion(run, plan) for run in training.runs):
        return Status.CONVERGED
    if training.status != Status.CONVERGED:
        return training.status
    is_limited = any(run.certificate is not None and run.certificate.facts.get("points") for run in training.runs)
    return Status.SUPPORT if is_limited else Status.STALLED


def _meets_criterion(run: ProblemRun, plan: Plan) -> bool:
    """Return whether the user's stopping criterion is met: the relative gap, or the gap on the simplex (``epsilon``)."""
    certificate = run.certificate
    if certificate is None or not certificate.exact:
        return False
    return certificate.gap <= plan.tolerance or certificate.facts.get("simplex_gap", np.inf) <= plan.solver.epsilon


def check_finite(run: ProblemRun, plan: Plan) -> None:
    """Raise an error unless primal, dual and rounding of the certificate are finite numbers.

    UsageError: the kernel is not positive semidefinite. DataError: the values of the kernel may be too large. DefectError:
    all other cases.
    """
    certificate, exact_kernel = run.certificate, run.problem.kernel
    if certificate is not None and np.isfinite([certificate.primal, certificate.dual, certificate.rounding]).all():
        return
    if exact_kernel is not None and not exact_kernel.positive_semidefinite():
        raise UsageError(
            f"the fit with C = {run.problem.C:g} has no bound: the kernel {exact_kernel} is not positive semidefinite on these "
            "rows, and coefficients grew beyond float64; no model was written",
            hint="choose another kernel (rbf, laplacian), the hinge, whose coefficients are bounded, or a smaller C",
        )
    shown = "none"
    if certificate is not None:
        shown = f"primal {certificate.primal}, dual {certificate.dual}, rounding {certificate.rounding}"
    kernel = exact_kernel if plan.request is None else plan.request.kernel
    if kernel is not None and not kernel.translation_invariant():  # translation-invariant kernels are at most 1
        lost = "their features are beyond float32"
        if exact_kernel:
            lost = "float64 does not hold the squares of decision values"
        raise DataError(
            f"the fit with C = {run.problem.C:g} has no certificate of finite numbers: {shown}; values of the kernel {kernel} "
            f"are so large on these rows that {lost}; no model was written",
            hint="scale the columns, --standardize, or choose a smaller gamma",
        )
    raise DefectError(
        f"the fit with C = {run.problem.C:g} has no certificate of finite numbers: {shown}; no model was written",
        hint="the values of the data, C or the kernel are beyond float64: scale the columns, or choose a smaller C",
    )


def _bound(plan: Plan, training: Training, raw: Store, feature_store: Store) -> list[Evaluated]:
    """Add a bound of the rounding error to the certificates of a linear fit. If scaling in float32 may have made errors
    that are too large, or the plan asks for enclosures, recompute the certificates in float64.

    Returns what is proved of each problem, if the plan asks for enclosures.
    """
    # enclosures from all rows evaluate the problems in float64 themselves
    reads_all = plan.enclosure in ALL_ROWS_METHODS and uses_matrices(plan.problems[0])
    if plan.enclosure is not None and isinstance(plan.features, Standardized) and not reads_all:
        return evaluate_scaled(plan, training, raw, plan.features, row_weights(plan, feature_store))
    curves = plan.features if isinstance(plan.features, Curves) else None
    if curves is None:
        sizes, scaled = column_sizes(plan.features, feature_store, plan.problems[0].bias)
    else:
        sizes = curves.component_sizes(feature_store.statistics())
        scaled = np.zeros_like(sizes)
    roundings = len(sizes) + 2 + (0 if curves is None else curves.rounding_count)
    weight_sums, coarse, bounds = row_weights(plan, feature_store), [], []
    for run in training.runs:
        certificate, weights = certificate_of(run), weights_of_rows(run, weight_sums)
        w = margin_scale(run) * max_abs_weights(weights_of(plan, run))
        v = VectorSum(_updates(plan, training), DUAL in training.row_states, float(np.linalg.norm(sizes)))
        off, scaling = roundings * UNIT * float(sizes @ w), UNIT_FLOAT32 * float(scaled @ w)
        terms = sum_of_terms(run, abs(certificate.primal), w, weights)
        primal_error = rounding_of_primal(run.problem, terms, off + scaling, weights)
        distance = 2.0 * run.problem.kind.entries * math.sqrt(max(certificate.primal - certificate.dual, 0.0))
        margin_error = scaling + UNIT_FLOAT32 * float(np.linalg.norm(scaled)) * distance
        change = steepness(run.problem, abs(certificate.primal), weights) * margin_error
        dual_error = rounding_of_dual(run.problem, certificate, v, weights, float(sizes @ w))
        bounds.append((primal_error, dual_error + change))
        coarse.append(change > SHARE * plan.tolerance * abs(certificate.primal))
    if any(coarse) and isinstance(plan.features, Standardized):
        return evaluate_scaled(plan, training, raw, plan.features, weight_sums)
    primal_errors = _tighten_for_few_rows(plan, training, feature_store, [primal_error for primal_error, _ in bounds])
    for run, (_, dual_error), primal_error in zip(training.runs, bounds, primal_errors, strict=True):
        certificate = certificate_of(run)
        run.certificate = replace(certificate, rounding=certificate.rounding + max(primal_error, dual_error))
    if plan.enclosure is None:
        return []
    return [_describe_raw_point(plan, run, raw, plan.solver.gradient(run.state)) for run in training.runs]


def _tighten_for_few_rows(plan: Plan, training: Training, feature_store: Store, bounds: list[float]) -> list[float]:
    """Return bounds of the rounding error of P: ``bounds``, or smaller ones if few rows have a nonzero loss.

    The rows with a loss are counted in one more pass, only if ``bounds`` are large compared with the tolerance.
    """
    problems, features = [run.problem for run in training.runs], plan.features
    large = [
        bound > SHARE * plan.tolerance * abs(certificate_of(run).primal)
        for run, bound in zip(training.runs, bounds, strict=True)
    ]
    has_margin = has_box(problems[0].loss) and not problems[0].loss.numeric()
    if not (isinstance(features, Raw) and has_margin and any(large)):
        return bounds
    from streamsvm.engine.evaluation import sum_weights_of_rows_with_loss

    weights, sizes = (
        [weights_of(plan, run) for run in training.runs],
        largest_sizes(features, feature_store, problems[0].bias),
    )
    off = [(len(sizes) + 2) * UNIT * float(sizes @ max_abs_weights(w)) for w in weights]
    weights_with_loss = sum_weights_of_rows_with_loss(feature_store, features, problems, weights, off)
    primal = [abs(certificate_of(run).primal) for run in training.runs]
    bounds_for_few = [
        rounding_of_few(*of_problem) for of_problem in zip(problems, primal, off, weights_with_loss, strict=True)
    ]
    return [min(*pair) for pair in zip(bounds, bounds_for_few, strict=True)]


def _updates(plan: Plan, training: Training) -> int:
    """Return the largest possible number of terms added to v: all updates of all passes, or the terms of three sums over the rows
    if the dual variables are computed from weights.
    """
    if plan.solver_name == "lbfgs":
        from streamsvm.solvers.lbfgs import sum_terms

        return 3 * (sum_terms(plan.layout) + plan.problems[0].kind.classes)
    if plan.solver.has_dual_witness:
        of_curves = plan.features.rounding_count if isinstance(plan.features, Curves) else 0
        return 3 * two_sum_terms(plan.layout.rows) + of_curves
    from streamsvm.solvers.dcd import DualAscent

    sweeps = plan.solver.sweeps if isinstance(plan.solver, DualAscent) else 0
    return max(SWEEPS, sweeps) * training.passes * plan.layout.rows


def save_dual(path: Path, store: Store, plan: Plan, training: Training) -> None:
    """Write the dual variables as float64 array (problems, rows) in .npy format, chunk by chunk; (rows,) for one problem.

    If all classes are in one problem, each row has one dual variable per class, a_ik of
    ``compute.passes.dcd.multinomial_sweep`` or ``solvers.softmax``, and the shape is (problems, rows, classes).
    """
    problems, rows = len(training.runs), store.layout.rows
    shape = (rows, classes) if (classes := plan.problems[0].kind.classes) else (rows,)
    with closing(part for k in range(problems) for part in _iterate_dual(store, plan, training, k)) as parts:
        durable.write_npy(path, shape if problems == 1 else (problems, *shape), parts)


def _iterate_dual(store: Store, plan: Plan, training: Training, k: int) -> Iterator[Float64]:
    """Yield the dual variables of problem k, chunk by chunk."""
    if DUAL in training.row_states:
        states = training.row_states[DUAL]
        assert isinstance(states, PerRowValues)
        return (states.load(chunk)[k] for chunk in range(len(states.layout.chunks)))
    return _compute_dual(store, plan.features, training.runs[k], plan.solver)


def _compute_dual(store: Store, features: FeatureMap, run: ProblemRun, solver: AnySolver) -> Iterator[Float64]:
    """Yield the dual variables of all rows, computed in one more pass. They are 0 for held-out rows, and in one-vs-one
    problems for rows of other classes.
    """
    layout, problem = store.layout, run.problem
    starts, shape = layout.starts, (problem.kind.classes,) if problem.kind.classes else ()
    with Stream(store, epoch_visits(layout, 0, 0, shuffled=False)) as stream:
        for loaded in stream:
            chunk = loaded.visit.chunk
            if chunk in problem.held_out:
                yield np.zeros((len(loaded.chunk.codes), *shape))
                continue
            for part in features.parts(loaded.chunk.X):
                block = block_of(problem, loaded, part, starts[chunk], reused=True)
                all_rows = np.zeros((part.stop - part.start, *shape))
                if block is not None:
                    values = solver.dual_values(run.witness_state(), block)
                    assert values is not None  # ``solver_choice.build_solver`` makes the solver keep them
                    all_rows[slice(None) if block.places is None else block.places] = values
                yield all_rows
