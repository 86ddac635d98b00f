"""The error a fit has on held-out rows after each pass, and the weights that were best.

Rows are a part of the chunks (``held_out_chunks``) or come from elsewhere; training does not see them (column statistics,
which know no labels, are those of the whole store). Every value of C is judged, and stopped, by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from streamsvm.aliases import JsonObject
from streamsvm.engine.executor import Executor, local_executor
from streamsvm.engine.loop import FitLoop
from streamsvm.engine.partition import contiguous, pass_groups
from streamsvm.engine.stores import OpenedStore, reference_to
from streamsvm.engine.training import Training
from streamsvm.errors import UsageError
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.planning.plan import Plan, fold_rows
from streamsvm.model import Model
from streamsvm.rows import Float64
from streamsvm.solvers.evaluation import WeightEvaluation
from streamsvm.store import open_store
from streamsvm.types import (
    Certificate,
    LinearSolution,
    Report,
    Stop,
    Store,
)

if TYPE_CHECKING:
    from streamsvm.jobs.apply.metrics import ErrorCounts


@dataclass(slots=True)
class HeldOutValidation:
    """Looks at a training after each pass. What it remembers is in ``Training.held``, by the text of each C."""

    plan: Plan
    """Of the fit."""
    count: Callable[[Model, int], ErrorCounts]
    """Counts the errors of so many models on the held-out rows, in one reading: see ``count_errors``."""
    patience: int | None
    """Passes without a lower error after which a C is done; None: any number."""
    report: Report
    """Takes the ``validation`` events."""
    _groups: dict[float, list[int]] = field(init=False)

    def __post_init__(self) -> None:
        problems = self.plan.problems
        self._groups = {C: [k for k, p in enumerate(problems) if p.C == C] for C in self.plan.costs}

    def evaluate(self, training: Training) -> None:
        """Compare the weights each problem would answer with now; end those whose error has not fallen for long."""
        open_now = {C: ks for C, ks in self._groups.items() if not training.held.get(repr(C), {}).get("over")}
        found = {C: [self._weights(training, k) for k in ks] for C, ks in open_now.items()}
        for (C, weights), error in zip(found.items(), self._errors(list(found.values())), strict=True):
            runs = [training.runs[k] for k in open_now[C]]
            over = training.ending or all(run.done for run in runs)
            known = training.held.get(repr(C))
            if known is None or error < known["error"] or (over and error == known["error"]):
                known = {"error": error, "pass": training.passes, "weights": weights, "final": over}
            late = self.patience is not None and training.passes - known["pass"] >= self.patience
            known |= {"over": over or late, "stopped": late and not over, "looked": training.passes}
            training.held[repr(C)] = known
            for run in runs:
                run.done = run.done or late
            best = {"best": known["error"], "best_pass": known["pass"]}
            self.report({"event": "validation", "pass": training.passes, "C": C, "error": error, **best})

    def pending(self, training: Training) -> bool:
        """Whether the last pass has not been evaluated: a cluster may be lost in between."""
        return max((known["looked"] for known in training.held.values()), default=0) < training.passes

    def _weights(self, training: Training, k: int) -> Float64:
        """The weights problem ``k`` would answer with now: those of its last certificate once it has come to its end."""
        run, solver = training.runs[k], self.plan.solver
        if run.done or training.ending:
            solution = solver.solution(run.state)
            assert isinstance(solution, LinearSolution)
            return solution.w
        return solver.candidate(run.state)

    def _errors(self, groups: list[list[Float64]]) -> list[float]:
        """The share of held-out rows each group of weights is wrong about: one reading for all."""
        from streamsvm.jobs.fit.validation.counted_errors import zero_model

        plan = self.plan
        rows = [fold_rows(plan, w) for weights in groups for w in weights]
        if not rows:
            return []
        model = replace(zero_model(plan), weights=np.concatenate(rows), expansion=plan.features.expansion)
        return self.count(model, len(groups)).shares

    def chosen(self, plan: Plan, training: Training, loop: FitLoop) -> tuple[Plan, Training]:
        """The training with the best weights in place of the last ones, certified by one pass more if they differ."""
        held = training.held
        if all(known["final"] for known in held.values()):
            return plan, training
        weights = {k: w for C, ks in self._groups.items() for k, w in zip(ks, held[repr(C)]["weights"], strict=True)}
        evaluation = WeightEvaluation()
        problems = [evaluation.starting_at(problem, weights[k]) for k, problem in enumerate(plan.problems)]
        again = loop.again(evaluation, problems, training)
        status, evaluated = training.status, again.train(Stop(training.passes + 1))
        for run, before in zip(evaluated.runs, training.runs, strict=True):
            assert run.certificate is not None
            known = -np.inf if before.certificate is None else before.certificate.dual
            run.certificate = Certificate(run.certificate.primal, max(run.certificate.dual, known))
        evaluated.reads_repeated += training.reads_repeated
        evaluated.status, evaluated.held, evaluated.row_states = status, held, training.row_states
        return replace(plan, solver=evaluation), evaluated


def _unable(job: FitJob, plan: Plan) -> UsageError:
    """Why rows held out choose no pass of this fit."""
    if job.dual:
        what = "--dual writes what belongs to the last pass, not to the one --validation chooses"
        return UsageError(what, hint="leave out one of the two")
    what = f"solver '{plan.solver_name}' has no weights that --validation could choose among after each pass"
    return UsageError(what, hint="leave out --validation, or choose settings by streamsvm tune")


def evaluator_for(
    job: FitJob, plan: Plan, held: Store | None, report: Report, executor: Executor | None
) -> HeldOutValidation | None:
    """Who looks at the held-out rows of a fit; None when there are none. Raises UsageError and what opening raises."""
    if job.validation is None:
        return None
    from streamsvm.jobs.apply.rows import RowBatches
    from streamsvm.jobs.fit.validation.counted_errors import count_errors, count_errors_on, rows_of_store, zero_model

    if not plan.solver.has_candidates or job.dual:
        raise _unable(job, plan)
    if held is None:
        rows = rows_of_store(job, plan)
    else:
        rows = RowBatches(zero_model(plan), list(plan.class_names), held.layout.rows, [], store=held)
    if executor is not None:
        store = open_store(str(job.validation)) if held is None else held
        count = partial(count_errors_on, executor, (reference_to(store), rows.offsets), contiguous(store.layout))
    elif plan.memory.threads > 1:
        here, store = local_executor(plan.memory.threads), rows.store
        count = partial(count_errors_on, here, (OpenedStore(store), rows.offsets), pass_groups(store.layout))
    else:
        count = partial(count_errors, rows)
    return HeldOutValidation(plan, count, job.patience, report)


def best_cost(costs: list[float], training: Training) -> float:
    """The C of least error on the held-out rows, the smallest of several; without such rows the last one."""
    if not training.held:
        return costs[-1]
    return min(costs, key=lambda C: (training.held[repr(C)]["error"], C))


def verdict(costs: list[float], training: Training) -> JsonObject | None:
    """What the held-out rows said, as plain JSON."""
    if not training.held:
        return None
    errors = {f"{C:g}": training.held[repr(C)]["error"] for C in costs}
    best = best_cost(costs, training)
    return {
        "C": best,
        "error": training.held[repr(best)]["error"],
        "pass": training.held[repr(best)]["pass"],
        "errors": errors,
    }
