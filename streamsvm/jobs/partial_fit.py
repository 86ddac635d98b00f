"""Train incrementally (``partial_fit``): one pass of a stochastic solver over each portion of rows, warm-started from the
weights of the previous portion.

The objective is that of all n rows so far, including the current portion: 1/2 ||w||^2 + C sum_i s_i l(y_i w.x_i). So
lambda = 1 / (C n) decreases as rows arrive, and steps decrease like 1/n, as the previous weights count as the result of
the earlier rows. The result of a portion is the mean of w over its steps. Such a model has no certificate, because the
earlier rows are no longer available.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from streamsvm import __version__
from streamsvm.engine.block_visitor import ActiveProblem, BlockVisitor
from streamsvm.errors import UsageError
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.plan import Plan, make_plan, to_model_rows, warm_start_from_model
from streamsvm.model import Model
from streamsvm.schedule.stream import Stream, epoch_visits
from streamsvm.solvers import SOLVERS, losses_of
from streamsvm.solvers.stochastic import AveragedSolver
from streamsvm.types import Store

PORTIONS = "portions"
"""The field of a model's provenance with the facts of incremental training."""


def takes_portions(name: str) -> bool:
    """Return whether the solver with this name is stochastic, and can train incrementally."""
    return name in SOLVERS and isinstance(SOLVERS[name](), AveragedSolver)


def partial_fit(job: FitJob, store: Store, start: Model | None, rows: int) -> Model:
    """Return the model after one pass over ``store``. ``start``: the model of the ``rows`` earlier rows; None: there are
    none.

    Raises UsageError for another solver, a kernel or scaled columns; DataError, BudgetError.
    """
    plan = _plan(job, store)
    plan.memory.check(plan.remedy)
    plan = plan if start is None else warm_start_from_model(plan, store, start)
    solver, layout = plan.solver, store.layout
    assert isinstance(solver, AveragedSolver)
    problems = [replace(problem, rows=rows + layout.rows) for problem in plan.problems]
    active = [ActiveProblem(k, problem, plan.solver.start(problem)) for k, problem in enumerate(problems)]
    visitor, first = BlockVisitor(plan.solver, plan.features), 0
    with Stream(store, epoch_visits(layout, job.seed, 0, shuffled=True), depth=job.prefetch) as stream:
        for loaded in stream:
            visitor.visit(loaded, loaded.visit.chunk, first, active, {})
            first += len(loaded.chunk.codes)
    weights = []
    for one in active:
        visitor.finish(one.state)
        weights.append(to_model_rows(plan, solver.current_weights(one.state)))
    portions = {"rows": rows + layout.rows, "solver": plan.solver_name}
    provenance = {"encoding": store.facts.get("encoding"), "streamsvm": __version__, PORTIONS: portions}
    return Model(np.concatenate(weights), plan.class_names, provenance)


def _plan(job: FitJob, store: Store) -> Plan:
    """Return the plan of a pass. For 'auto' the solver is sgd, or assg if sgd does not support the loss.

    Raises UsageError for settings that cannot be continued from one portion to the next.
    """
    if job.solver == "auto":
        job = replace(job, solver="sgd" if job.loss in losses_of("sgd") else "assg")
    if not takes_portions(job.solver):
        able = ", ".join(name for name in SOLVERS if takes_portions(name))
        raise UsageError(f"solver '{job.solver}' does not take rows in portions", hint=f"solvers that do: {able}")
    if job.standardize or job.kernel != "linear":
        what = "scaled columns" if job.standardize else f"the kernel '{job.kernel}'"
        raise UsageError(
            f"{what} would be another map for every portion",
            hint="put a StandardScaler or a StreamNystroem before it that was fitted once",
        )
    return make_plan(job, store)
