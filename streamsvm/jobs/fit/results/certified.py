"""What the end of a fit proves: certificates of the model as it is saved, and a status that says no more than they do.

**Linear fits**: ``solvers/rounding.py``. With --standardize the rows a solver sees are float32, each entry off by
two roundings from those the saved weights see; where that is more than a tenth of the tolerance, P of the saved weights and
D of the slopes there are computed in float64, in one more reading of the rows as they are stored.

**Kernel features** are float32, and a small eigenvalue of the landmarks' matrix makes their rounding large. The features a
solver sees are not quite those of the model that is saved, f(x) = sum_j b_j k(x, z_j). So P is computed once more, of
that model, and D of the slopes there, in float64, in one more reading of the rows. The regularizer is ||w||^2 of the solver's
w, b = W w: W as it is stored *is* the map.

The dual point of the solver may be better than the slopes. D is computed anew of its variables too, where it has them for rows
or can say them of features (``Solver.has_dual_witness``). Where that does not prove enough, as of variables that were only in memory, the
value found is taken, to first order: P and D change alike when rows or features do, both by -v.(change of v), and the dual may be
off by LIKELY times the change of P, by what the a_i of an optimum make of the change of margins, which is looked at in some
rows all over the store, and by more where v is not near w. (At a w beyond all corners P does not change at all, and at w = 0 no margin does: they are looked at where the dual point is, too.)

**Room**: what is added here comes after the solver has ended, which therefore was given a part of the tolerance less than was
asked for (``plan.ROOM``).

**Exact kernels**: ``solvers/kernel/rounding.py``.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from streamsvm.engine.training import Run, Training
from streamsvm.errors import DataError, DefectError, UsageError
from streamsvm.features.scaling import Raw, Standardized, column_sizes, largest_sizes
from streamsvm.jobs.fit.planning.plan import Plan
from streamsvm.jobs.fit.results.evaluations import sum_of_terms, unit_of, weights_of
from streamsvm.jobs.fit.results.row_weights import certificate_of, row_weights, weights_of_rows
from streamsvm.solvers.rounding import (
    COARSE,
    SHARE,
    UNIT,
    VectorSum,
    reach_of_weights,
    rounding_of_dual,
    rounding_of_few,
    rounding_of_primal,
    steepness,
    two_sum_terms,
)
from streamsvm.types import (
    DUAL,
    Status,
    Store,
)
from streamsvm.types.problem import has_box

if TYPE_CHECKING:
    from streamsvm.features.nystrom import Embedded, Nystrom

SWEEPS = 3
"""Updates of a row in a pass at most, unless a solver is told otherwise."""


def final_passes(plan: Plan) -> float:
    """Return how many passes of the training the evaluation after it takes, about: kernel values in float64 take two each."""
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
        from streamsvm.jobs.fit.results.reevaluation import evaluate_features

        evaluate_features(plan, training, raw, features)
    elif not plan.solver.exact_kernel:
        _bound(plan, training, raw, seen)
    for run in training.runs:
        _check(run)
    training.status = status_of(training, plan)


def _map_of(plan: Plan) -> Nystrom | Embedded | None:
    """The map of a fit that was asked for landmarks and whose solver sees the features of the map; else None."""
    if plan.request is None or not plan.sees_features_of_map:
        return None
    from streamsvm.features.nystrom import Embedded, Nystrom

    return plan.features if isinstance(plan.features, Nystrom | Embedded) else None


def status_of(training: Training, plan: Plan) -> Status:
    """How the run ended: converged only where every certificate is the one that was asked for."""
    if training.status == Status.PATIENCE:
        return training.status
    if all(_reached(run, plan) for run in training.runs):
        return Status.CONVERGED
    if training.status != Status.CONVERGED:
        return training.status
    bounded = any(run.certificate is not None and run.certificate.facts.get("points") for run in training.runs)
    return Status.SUPPORT if bounded else Status.STALLED


def _reached(run: Run, plan: Plan) -> bool:
    """Whether the criterion the user gave is met: the relative gap, or a gap on the simplex."""
    found = run.certificate
    if found is None or not found.exact:
        return False
    return found.gap <= plan.tolerance or found.facts.get("simplex_gap", np.inf) <= plan.solver.epsilon


def _check(run: Run) -> None:
    """Raise DefectError unless primal and dual are numbers; UsageError where the kernel is to blame, DataError where its values are."""
    found, kernel = run.certificate, run.problem.kernel
    if found is None or not np.isfinite([found.primal, found.dual, found.rounding]).all():
        if kernel is not None and not kernel.positive_semidefinite():
            raise UsageError(
                f"the fit with C = {run.problem.C:g} has no bound: the kernel {kernel} is not positive semidefinite on these "
                "rows, and coefficients grew beyond float64; no model was written",
                hint="choose another kernel (rbf, laplacian), the hinge, whose coefficients are bounded, or a smaller C",
            )
        shown = "none" if found is None else f"primal {found.primal}, dual {found.dual}, rounding {found.rounding}"
        if kernel is not None and not kernel.translation_invariant():  # those of others are 1 at most
            raise DataError(
                f"the fit with C = {run.problem.C:g} has no certificate of finite numbers: {shown}; values of the kernel {kernel} "
                "are so large on these rows that float64 does not hold the squares of decision values; no model was written",
                hint="scale the columns, --standardize, or choose a smaller gamma",
            )
        raise DefectError(
            f"the fit with C = {run.problem.C:g} has no certificate of finite numbers: {shown}; no model was written",
            hint="the values of the data, C or the kernel are beyond float64: scale the columns, or choose a smaller C",
        )


def _bound(plan: Plan, training: Training, raw: Store, seen: Store) -> None:
    """Add to the certificates of linear fits what rounding can have done; where scaling did too much, compute them anew."""
    sizes, scaled = column_sizes(plan.features, seen, plan.problems[0].bias)
    known, coarse, bounds = row_weights(plan, seen), [], []
    for run in training.runs:
        found, weights = certificate_of(run), weights_of_rows(run, known)
        w = unit_of(run) * reach_of_weights(weights_of(plan, run))
        v = VectorSum(_updates(plan, training), DUAL in training.row_states, float(np.linalg.norm(sizes)))
        off, scaling = (len(w) + 2) * UNIT * float(sizes @ w), COARSE * float(scaled @ w)
        value = rounding_of_primal(run.problem, sum_of_terms(run, w, weights), off + scaling, weights)
        apart = (4.0 if run.problem.classes else 2.0) * math.sqrt(max(found.primal - found.dual, 0.0))
        far = scaling + COARSE * float(np.linalg.norm(scaled)) * apart
        change = steepness(run.problem, abs(found.primal), weights) * far
        dual = rounding_of_dual(run.problem, found, v, weights, float(sizes @ w))
        bounds.append((value, dual + change))
        coarse.append(change > SHARE * plan.tolerance * abs(found.primal))
    if any(coarse) and isinstance(plan.features, Standardized):
        from streamsvm.jobs.fit.results.reevaluation import evaluate_scaled

        evaluate_scaled(plan, training, raw, plan.features, known)
        return
    few = _of_few_rows(plan, training, seen, [value for value, _ in bounds])
    for run, (_, dual), value in zip(training.runs, bounds, few, strict=True):
        found = certificate_of(run)
        run.certificate = replace(found, rounding=found.rounding + max(value, dual))


def _of_few_rows(plan: Plan, training: Training, seen: Store, values: list[float]) -> list[float]:
    """What rounding can do to P, less than ``values`` where few rows cost something: counted in a reading, where that can matter."""
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
    """The updates of v at most: those of all passes, or the terms of three sums where a dual point is read off weights."""
    if plan.solver.has_dual_witness:
        return 3 * two_sum_terms(plan.layout.rows)
    from streamsvm.solvers.dcd import DualAscent

    sweeps = plan.solver.sweeps if isinstance(plan.solver, DualAscent) else 0
    return max(SWEEPS, sweeps) * training.passes * plan.layout.rows
