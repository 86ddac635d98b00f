"""What the end of a fit proves: certificates of the model as it is saved, and a status that says no more than they do.

**Linear fits** are summed in float64 (u = 2^-53, p components, e entries a row at most, n rows). With A = sum_j
max_i |x_ij| |w_j| no margin is off by more than (e + 2) u A, and

    sum C_i |l'(m_i)| <= 2 L + |w.v| <= 8 P     for v = sum a_i y_i x_i of the slopes, near an optimum,
    |P - fl(P)|       <= u ((p + 3 + 4 n) P + 8 (e + 2) A P).

v of the dual is a running sum: each of T updates adds the rounding of a vector whose norm is at most sqrt(2 P_0), P_0
the value at w = 0 (the dual value never falls below 0), so that |D - fl(D)| <= 6 u T P_0.

**Kernel features** are float32, and a small eigenvalue of the landmarks' matrix makes their rounding large. The features a
solver sees are not quite those of the model that is saved, f(x) = sum_j b_j k(x, z_j). So P is computed once more, of
that model, and D of the slopes there, in float64, in one more reading of the rows. The dual point of the solver may be
better than the slopes. To first order P and D change alike when features do, both by -v.(change of v): its value is
taken with twice the change of P as what it may be off by.

**Exact kernels**: ``solvers/kernel/rounding.py``.

**The dual variables** can be written to a file: with them anyone can recompute the bound (tools/audit.py). Coordinate
methods have them as state of their rows. A ``DualWitness`` can say what they are of a block it is shown: Newton's method
knows a point whose slopes they are, and another reading of the store writes a_i = t C_i (-h'(m_i)).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np

from streamsvm import durable
from streamsvm.engine.block_visitor import labeled_part
from streamsvm.engine.row_state import RowStates
from streamsvm.engine.state_files import GroupRows
from streamsvm.engine.training import Run, Training
from streamsvm.errors import DefectError
from streamsvm.features.nystrom import Embedded, Nystrom
from streamsvm.jobs.fit.plan import Plan
from streamsvm.losses import rounded
from streamsvm.rows import Float64
from streamsvm.schedule.plan import epoch_visits
from streamsvm.schedule.stream import Stream
from streamsvm.solvers.point_evaluation import PointSums
from streamsvm.types import (
    DUAL,
    Block,
    Certificate,
    DualWitness,
    FeatureMap,
    KernelSolver,
    LinearSolution,
    Problem,
    SimplexCriterion,
    State,
    Status,
    Store,
)

EPS = 2.0**-53
SWEEPS = 3
"""Updates of a row in a pass at most."""
WIDTHS = (0.3, 0.1, 0.03, 0.01, 3e-3, 1e-3)
"""Of a corner rounded off: the slopes of one of them make a good dual point of a loss that has a corner."""
PLAIN = "float32"
"""The type of embedded features that are those of the map, but for rounding."""


def certify(plan: Plan, training: Training, raw: Store, seen: Store) -> None:
    """Give every problem the certificate of what is saved, and the training the status it has. Changes ``training``.

    ``raw``: the rows, ``seen``: what the solver has read, the same or their features. Raises DefectError where a value
    is not finite: nothing is written then.
    """
    if isinstance(plan.features, Nystrom | Embedded) and plan.request is not None and _plain(plan):
        _evaluate(plan, training, raw)
    elif not isinstance(plan.solver, KernelSolver):
        _bound(plan, training, seen)
    for run in training.runs:
        _check(run)
    training.status = status_of(training, plan)


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


def _plain(plan: Plan) -> bool:
    return plan.embedding is None or plan.embedding.dtype == PLAIN


def _reached(run: Run, plan: Plan) -> bool:
    """Whether the criterion the user gave is met: the relative gap, or a gap on the simplex."""
    found = run.certificate
    if found is None:
        return False
    epsilon = plan.solver.epsilon if isinstance(plan.solver, SimplexCriterion) else 0.0
    return found.gap <= run.problem.tolerance or found.facts.get("simplex_gap", np.inf) <= epsilon


def _check(run: Run) -> None:
    """Raise DefectError unless primal and dual are numbers."""
    found = run.certificate
    if found is None or not np.isfinite([found.primal, found.dual, found.rounding]).all():
        shown = "none" if found is None else f"primal {found.primal}, dual {found.dual}, rounding {found.rounding}"
        raise DefectError(
            f"the fit with C = {run.problem.C:g} has no certificate of finite numbers: {shown}; no model was written",
            hint="the values of the data, C or the kernel are beyond float64: scale the columns, or choose a smaller C",
        )


def _bound(plan: Plan, training: Training, seen: Store) -> None:
    """Add to the certificates of linear fits what rounding can have done."""
    statistics = seen.statistics()
    largest = np.maximum(np.abs(statistics.minimum), np.abs(statistics.maximum))
    for run in training.runs:
        solution, found = plan.solver.solution(run.state), run.certificate
        if found is None or not isinstance(solution, LinearSolution):
            continue
        weights = plan.features.fold(solution)
        folded = np.abs(weights.w[:-1]) if isinstance(weights, LinearSolution) else np.zeros_like(largest)
        size = float(folded @ largest) + abs(solution.bias * float(solution.w[-1]))
        rounding = linear_rounding(run.problem, found.primal, size, training.passes)
        run.certificate = replace(found, rounding=found.rounding + rounding)


def linear_rounding(problem: Problem, primal: float, size: float, passes: int) -> float:
    """How far rounding can have moved P or D of a linear fit; ``size`` is A (see above)."""
    p, n = problem.columns + 1, problem.rows
    value = (p + 3 + 4 * n + 8 * (p + 2) * size) * abs(primal)
    start = problem.C * n * max(problem.weights, default=1.0) * problem.loss.value(0.0)
    return EPS * max(value, 6.0 * SWEEPS * passes * n * min(start, 1e3 * abs(primal)))


def _evaluate(plan: Plan, training: Training, raw: Store) -> None:
    """Put certificates in place that are computed in float64, of models on kernel features."""
    assert isinstance(plan.features, Nystrom | Embedded)
    features = Nystrom(plan.features.projection, plan.features.bias, factored=True, exact=True)
    sums = _summed(plan, training, raw, features)
    for run, evaluations in zip(training.runs, sums, strict=True):
        w, before = _weights(plan, run), run.certificate
        found = [evaluation.close(run.problem, w) for evaluation in evaluations]
        best = max(found, key=lambda point: point.dual)
        assert before is not None
        size = float(np.abs(plan.features.projection.W @ w[:-1]).sum()) + abs(plan.features.bias * w[-1])
        rounding = linear_rounding(run.problem, best.primal, size, 1)
        changed = 2.0 * abs(best.primal - before.primal)
        new = Certificate(best.primal, best.dual, before.exact, before.final, before.facts, rounding)
        other = replace(new, dual=before.dual, rounding=changed + rounding)
        run.certificate = min(new, other, key=lambda certificate: certificate.gap)


def _weights(plan: Plan, run: Run) -> Float64:
    solution = plan.solver.solution(run.state)
    assert isinstance(solution, LinearSolution)
    return solution.w


def _summed(plan: Plan, training: Training, raw: Store, features: Nystrom) -> list[list[PointSums]]:
    """Of every problem the sums at its weights, for slopes of the loss or of several with rounded corners."""
    problems, weights = [run.problem for run in training.runs], [_weights(plan, run) for run in training.runs]
    smooth = [[p.loss] if p.loss.smooth() else [rounded(p.loss, width) for width in WIDTHS] for p in problems]
    sums = [[PointSums(len(w)) for _ in losses] for w, losses in zip(weights, smooth, strict=True)]
    with Stream(raw, epoch_visits(raw.layout, 0, 0, shuffled=False)) as stream:
        for loaded in stream:
            chunk = loaded.visit.chunk
            for part in features.parts(loaded.chunk.X):
                for problem, w, losses, found in zip(problems, weights, smooth, sums, strict=True):
                    if chunk in problem.held_out:
                        continue
                    y, s = labeled_part(problem, loaded, part)
                    block = Block(part.X, y, s, chunk, 0, loaded.order[part.start : part.stop], 0)
                    for loss, evaluation in zip(losses, found, strict=True):
                        evaluation.add(problem, loss, block, w)
    return sums


def save_dual(path: Path, store: Store, plan: Plan, training: Training) -> None:
    """Write the dual variables (problems, rows) float64 as .npy, chunk by chunk. One problem: (rows,)."""
    problems, rows = len(training.runs), store.layout.rows
    with closing(part for k in range(problems) for part in _parts(store, plan, training, k)) as parts:
        durable.write_npy(path, (rows,) if problems == 1 else (problems, rows), parts)


def _parts(store: Store, plan: Plan, training: Training, k: int) -> Iterator[Float64]:
    """Those of problem k, chunk by chunk."""
    if DUAL in training.row_states:
        states = training.row_states[DUAL]
        assert isinstance(states, RowStates | GroupRows)
        return (states.load(chunk)[k] for chunk in range(len(states.layout.chunks)))
    assert isinstance(plan.solver, DualWitness)  # ``plan.proving`` has seen to it
    return _of_witness(store, plan.features, training.runs[k], plan.solver)


def _of_witness(store: Store, features: FeatureMap, run: Run, solver: DualWitness[State]) -> Iterator[Float64]:
    """The dual variables of every row, by another reading; 0 for held-out rows."""
    layout, problem = store.layout, run.problem
    with Stream(store, epoch_visits(layout, 0, 0, shuffled=False)) as stream:
        for loaded in stream:
            chunk = loaded.visit.chunk
            if chunk in problem.held_out:
                yield np.zeros(len(loaded.chunk.codes))
                continue
            for part in features.parts(loaded.chunk.X):
                y, s = labeled_part(problem, loaded, part)
                order = loaded.order[part.start : part.stop]
                yield solver.dual_values(run.state, Block(part.X, y, s, chunk, 0, order, 0))
