"""Calibration as the last step of a fit: scores of rows that had no part in them, and what they make of decision values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from streamsvm.aliases import JsonObject
from streamsvm.calibration import CALIBRATIONS
from streamsvm.calibration.protocol import Calibrator
from streamsvm.calibration.stored import Calibration, of_logistic_loss
from streamsvm.engine.executors.executor import Executor
from streamsvm.engine.executors.thread_executor import local_executor
from streamsvm.engine.training import Training
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.planning.memory_plan import visiting
from streamsvm.jobs.fit.planning.plan import Plan
from streamsvm.losses import Logistic
from streamsvm.model import Model
from streamsvm.rows import Float64
from streamsvm.types import Layout, LinearSolution, Problem, State, Store

if TYPE_CHECKING:
    from streamsvm.calibration.scores import ScoreTable
    from streamsvm.jobs.calibrate.folds import FoldFits

LEAVE_ONE_OUT = "leave-one-out"
"""What a model says its scores were, where there were no folds."""


@dataclass(frozen=True, slots=True)
class Calibrated:
    """What came of it for one C."""

    calibration: Calibration
    """How decision values become probabilities."""
    shown: JsonObject
    """Log loss, Brier score and reliability of the scores before and after, as plain JSON; empty where there were no scores."""


def calibrated(
    job: FitJob, plan: Plan, training: Training, seen: Store, fits: FoldFits, *, executor: Executor | None = None
) -> dict[float, Calibrated]:
    """Return by C how decision values become probabilities, as the job asks for them.

    ``seen``: what the solver has read. ``executor``: what scores are made by; None: the threads of the fit. Raises DataError where a class has no rows, CalibrationTimeout where the time is over before all
    scores are there, and what reading and training raise.
    """
    from streamsvm.jobs.calibrate.choice import folds_of
    from streamsvm.jobs.calibrate.folds import fold_scores
    from streamsvm.jobs.calibrate.leave_one_out import FinishedFit, leave_one_out_scores
    from streamsvm.jobs.calibrate.outcomes import outcomes_of

    assert job.calibrate is not None
    outcomes, folds = outcomes_of(plan.problems, plan.class_names), folds_of(job, fits.plan.solver, plan.problems)
    if folds is None:
        weights = np.array([_weights(plan, run.state) for run in training.runs])
        threads = visiting(job, plan.solver, seen.layout, plan.memory.threads)
        solved = FinishedFit(seen, plan.features, plan.problems, weights, job.prefetch, job.seed, fits.time)
        tables = leave_one_out_scores(solved, outcomes, local_executor(threads) if executor is None else executor)
    else:
        tables = fold_scores(replace(fits, folds=folds), seen, outcomes)
    how = LEAVE_ONE_OUT if folds is None else f"{folds} folds"
    found = {}
    for mine, table in zip(outcomes, tables, strict=True):
        calibrator: Calibrator = CALIBRATIONS[job.calibrate].of(table)
        found[mine.C] = Calibrated(Calibration(calibrator, how, seen.layout.rows), _shown(table, calibrator))
    return found


def with_calibration(models: dict[float, Model], found: dict[float, Calibrated]) -> dict[float, Model]:
    """Return the models, those with a calibration in ``found`` with it."""
    return {C: replace(model, calibration=found[C].calibration) if C in found else model for C, model in models.items()}


def events_of(found: dict[float, Calibrated]) -> Iterator[JsonObject]:
    """Yield what a run records of its calibrations."""
    for C, one in found.items():
        if one.shown:
            yield {"event": "calibration", "C": C, **one.calibration.header(), **one.shown}


def _weights(plan: Plan, state: State) -> Float64:
    solution = plan.solver.solution(state)
    assert isinstance(solution, LinearSolution)  # ``folds_of`` has seen to it
    return solution.w


def by_the_loss(plan: Plan) -> dict[float, Calibrated]:
    """Return by C the probabilities that a loss means by itself; empty for those that mean none, and of pairs of classes, which vote."""
    loss, found = plan.problems[0].loss, dict[float, Calibrated]()
    if not isinstance(loss, Logistic) or plan.problems[0].negative is not None:
        return {}
    from streamsvm.jobs.calibrate.outcomes import outcomes_of

    for mine in outcomes_of(plan.problems, plan.class_names):
        ratios = np.array([_ratio(plan.problems[k], plan.layout) for k in mine.columns])
        found[mine.C] = Calibrated(of_logistic_loss(loss.sharpness, ratios, plan.layout.rows), {})
    return found


def _ratio(problem: Problem, layout: Layout) -> float:
    """The weight of the positive class over the mean weight of the others' rows."""
    if not problem.weights:
        return 1.0
    others = [code for code in range(len(layout.classes)) if code != problem.positive]
    rows = [layout.counts[code] for code in others]
    return problem.weights[problem.positive] / float(
        np.average([problem.weights[code] for code in others], weights=rows)
    )


def _shown(table: ScoreTable, calibrator: Calibrator) -> JsonObject:
    """How reliable the scores of the sample are before and after, as plain JSON."""
    from streamsvm.calibration.reliability import ProbabilityCounts, facts_of, uncalibrated

    f, truth, weights = table.vectors
    found: JsonObject = {}
    for name, p in (("before", uncalibrated(f)), ("after", calibrator.probabilities(f))):
        counts = ProbabilityCounts()
        counts.add(p, truth, weights)
        found[name] = facts_of(counts)
    return found
