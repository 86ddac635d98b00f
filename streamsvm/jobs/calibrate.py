"""Calibration as the last step of a fit: scores of rows that had no part in them, and the probabilities made of
decision values.

**Which scores.** Leave-one-out scores are those of the very model that is calibrated, but for one row, and cost about
a reading; a model of four fifths of the rows is another one. They need a matrix of the components (MOST_BYTES for all
problems), a loss that is curved or enough rows (``solvers.leave_one_out.applies``), and rows that are independent.
Else, or where ``--calibration-folds`` says so, the fit is made once more for each fold. How scores are made is in
``calibration_scores``.

**The time** is what is left of the limit of the fit. It is checked before every block, every step of a fit of a fold
and every matrix that is factorized, in programs and threads too, where no signal comes. Scores of some of the rows, or
of fits of folds that time ended, make no calibration: the model is left without.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from streamsvm.aliases import JsonObject
from streamsvm.calibration import CALIBRATIONS
from streamsvm.calibration.calibrators import Calibration, Calibrator, calibrate_by_loss
from streamsvm.engine.checkpoint import NoCheckpoint
from streamsvm.engine.executor import Executor, local_executor
from streamsvm.engine.fit_state import Training
from streamsvm.errors import InterruptedRun, UsageError
from streamsvm.jobs import folds as folding
from streamsvm.jobs.fit.options import FitJob
from streamsvm.losses import Logistic
from streamsvm.model import Model
from streamsvm.model.measures import best_threshold, parse_measure
from streamsvm.rows import Float64, Int32
from streamsvm.store.format.labels import sort_key
from streamsvm.types import AnySolver, Layout, LinearSolution, Problem, State, Status, Stop, Store, Term

if TYPE_CHECKING:
    from streamsvm.calibration.scores import ScoreCounts, ScoreTable
    from streamsvm.jobs.calibration_scores import FoldFits
    from streamsvm.jobs.fit.plan import Plan


MOST_BYTES = 256 << 20
"""Of the matrices of leave-one-out scores."""
FOLDS = 5
"""As many as are made where nobody says."""
LEAVE_ONE_OUT = "leave-one-out"
"""What a model says its scores were, where there were no folds."""


@dataclass(frozen=True, slots=True)
class ChosenThreshold:
    """The threshold of a model, and how it was chosen."""

    value: float
    """Rows with f > value are of ``classes[1]``."""
    measure: str
    """The measure it is best by."""
    score: float
    """That measure there."""
    positive: str
    """The positive class."""
    rows: str
    """The rows it was chosen on: 'held-out rows', 'leave-one-out scores', '5 folds'."""

    def facts(self) -> JsonObject:
        """Return all of it as plain JSON."""
        return asdict(self)


def choose_threshold(job: FitJob, plan: Plan, counts: ScoreCounts, rows: str) -> ChosenThreshold:
    """Return the threshold at which the measure of a job is best."""
    assert job.threshold is not None
    measure = parse_measure(job.threshold, "--threshold")
    found = best_threshold(measure, counts, plan.predicts.positive)
    return ChosenThreshold(found.value, measure.name, found.score, plan.class_names[plan.predicts.positive], rows)


@dataclass(frozen=True, slots=True)
class Calibrated:
    """What came of it for one C."""

    calibration: Calibration | None
    """How decision values become probabilities; None where that was not asked for."""
    shown: JsonObject
    """Log loss, Brier score and reliability of the scores before and after, as plain JSON; empty where there were no
    scores.
    """
    threshold: ChosenThreshold | None = None


def calibrate(
    job: FitJob, plan: Plan, training: Training, seen: Store, fits: FoldFits, *, executor: Executor | None = None
) -> dict[float, Calibrated]:
    """Return by C how decision values become probabilities and labels, as the job asks for them.

    ``seen``: what the solver has read. ``executor``: what scores are made by; None: the threads of the fit. Raises
    DataError where a class has no rows, CalibrationTimeout where the time is over before all scores are there, and
    what reading and training raise.
    """
    from streamsvm.jobs.calibration_scores import FinishedFit, fold_scores, leave_one_out_scores
    from streamsvm.jobs.fit.memory import count_readers

    outcomes = group_outcomes(plan.problems, plan.class_names)
    folds = choose_folds(job, fits.plan.solver, plan.problems)
    if folds is None:
        weights = np.array([_weights(plan, run.state) for run in training.runs])
        threads = count_readers(job, plan.solver, seen.layout, plan.memory.threads)
        solved = FinishedFit(seen, plan.features, plan.problems, weights, job.prefetch, job.seed, fits.time)
        tables = leave_one_out_scores(solved, outcomes, local_executor(threads) if executor is None else executor)
    else:
        tables = fold_scores(replace(fits, folds=folds), seen, outcomes)
    how = LEAVE_ONE_OUT if folds is None else f"{folds} folds"
    found = {}
    for mine, table in zip(outcomes, tables, strict=True):
        threshold = None
        if job.threshold is not None and job.validation is None:
            threshold = choose_threshold(job, plan, table.counts(0), f"{how} scores" if folds is None else how)
        if job.calibrate is None:
            found[mine.C] = Calibrated(None, {}, threshold)
            continue
        calibrator: Calibrator = CALIBRATIONS[job.calibrate].fit(table)
        calibration = Calibration(calibrator, how, seen.layout.rows)
        found[mine.C] = Calibrated(calibration, _compare_reliability(table, calibrator), threshold)
    return found


def read_loss_calibrations(plan: Plan) -> dict[float, Calibrated]:
    """Return by C the probabilities that a loss means by itself; empty for those that mean none, and of pairs of
    classes, which vote.
    """
    loss, found = plan.problems[0].loss, dict[float, Calibrated]()
    if not isinstance(loss, Logistic) or plan.problems[0].kind.votes:
        return {}

    for mine in group_outcomes(plan.problems, plan.class_names):
        ratios = np.array([_ratio(plan.problems[k], plan.layout) for k in mine.columns])
        found[mine.C] = Calibrated(calibrate_by_loss(loss.sharpness, ratios, plan.layout.rows), {})
    return found


def loss_probabilities(plan: Plan) -> dict[float, Callable[[Float64], Float64]]:
    """Return by C the function from decision values, in the order of the problems, to the probabilities that the
    logistic loss means by itself.
    """
    loss, found = plan.problems[0].loss, dict[float, Callable[[Float64], Float64]]()
    assert isinstance(loss, Logistic)  # ``measures.choose_measure`` has seen to it
    for C in plan.costs:
        ratios = np.array([_ratio(problem, plan.layout) for problem in plan.problems if problem.C == C])
        found[C] = calibrate_by_loss(loss.sharpness, ratios, plan.layout.rows).calibrator.probabilities
    return found


class CalibrationTimeout(InterruptedRun):
    """The time of a fit is over and its calibration is not made. Where the run is to stop at its limit it ends the
    run.
    """


@dataclass(frozen=True, slots=True)
class TimeLeft(NoCheckpoint):
    """The checkpointer of the fit of a fold: it saves nothing, and ends it where the time of the whole is over."""

    limit: float = math.inf
    """Seconds the whole may take, for the message."""
    until: float = math.inf
    """When they are over, by the clock of ``time.monotonic``."""

    def __reduce__(self) -> tuple[type[TimeLeft], tuple[()]]:
        """Without a limit in another process, whose clock is another one: who waits for it looks at this one's."""
        return TimeLeft, ()

    def check(self) -> None:
        """Raise CalibrationTimeout once the time is over."""
        self.seconds()

    def between(self, training: Training) -> None:
        """Raise CalibrationTimeout once the time is over."""
        del training
        self.check()

    def stop(self, max_passes: int) -> Stop:
        """Return what the fit of a fold may cost. Raises CalibrationTimeout once the time is over."""
        return Stop(max_passes, self.seconds())

    def seconds(self) -> float:
        """Return how many are left. Raises CalibrationTimeout where there are none."""
        left = self.until - time.monotonic()
        if left <= 0.0:
            raise self.error()
        return left

    def whole(self, training: Training) -> None:
        """Raise CalibrationTimeout for a fit that time has ended."""
        if training.status == Status.TIME:
            raise self.error()

    def error(self) -> CalibrationTimeout:
        """Return what is raised."""
        return CalibrationTimeout(f"the time limit of {self.limit:g} s was reached before the calibration was made")


def remaining_time(job: FitJob, began: float) -> TimeLeft:
    """Return that of a fit which began at a moment of ``time.monotonic``."""
    return TimeLeft(job.time_limit, began + job.time_limit)


def timeout_event(job: FitJob) -> JsonObject:
    """Return what a run records of a calibration that it had no time for."""
    return {"event": "uncalibrated", "method": job.calibrate, "reason": "time limit", "limit": job.time_limit}


@dataclass(frozen=True, slots=True)
class Outcomes:
    """The problems of one C as the model has them: classes in sorted order."""

    C: float
    """The weight of the loss sum."""
    columns: tuple[int, ...]
    """The numbers of its decision values among those of all problems."""
    positives: tuple[int, ...]
    """The class code of each: its +1."""

    def truth(self, codes: Int32) -> Int32:
        """Return the number of the model's class (n,) for class codes (n,)."""
        if len(self.positives) == 1:
            return (codes == self.positives[0]).astype(np.int32)
        place = np.empty(max(self.positives) + 1, np.int32)
        place[list(self.positives)] = np.arange(len(self.positives), dtype=np.int32)
        return place[codes]


def group_outcomes(problems: Sequence[Problem], class_names: Sequence[str]) -> list[Outcomes]:
    """Return those of each C. ``class_names``: two of one decision value, else one for each."""
    found = []
    values = [(problem.C, code) for problem in problems for code in problem.kind.positives]
    for C in dict.fromkeys(problem.C for problem in problems):
        mine = [k for k, (cost, _) in enumerate(values) if cost == C]
        if len(mine) > 1:
            mine = [mine[k] for k in sorted(range(len(mine)), key=lambda k: sort_key(class_names[k]))]
        found.append(Outcomes(C, tuple(mine), tuple(values[k][1] for k in mine)))
    return found


def choose_folds(job: FitJob, solver: AnySolver, problems: list[Problem]) -> int | None:
    """Return in how many folds the scores of a fit are made; None: by leaving one out."""
    if job.calibration_folds is not None:
        return job.calibration_folds
    from streamsvm.solvers.leave_one_out import applies

    p = problems[0].columns + 1
    able = not solver.exact_kernel and applies(problems[0])
    able = able and 8 * p * p * len(problems) <= MOST_BYTES
    return None if able else FOLDS


def calibration_passes(job: FitJob, solver: AnySolver, problems: list[Problem]) -> float:
    """Return how many passes of the training leave-one-out scores take, about; fits of folds are as long as the fit,
    and none waits for them.
    """
    return 2.0 if job.needs_scores and choose_folds(job, solver, problems) is None else 0.0


def calibration_terms(
    job: FitJob, solver: AnySolver, problems: list[Problem], layout: Layout, threads: int
) -> list[Term]:
    """Return what calibration holds beside the fit, ``threads`` of which read. Raises UsageError where it cannot be
    made.
    """
    if not job.needs_scores:
        return []
    from streamsvm.calibration.scores import table_bytes
    from streamsvm.solvers.leave_one_out import leave_one_out_bytes

    folds = choose_folds(job, solver, problems)
    values = sum(len(problem.kind.positives) for problem in problems)
    tables = table_bytes(values) + 8 * layout.largest_chunk * (values + 8)
    if folds is None:
        why = "scores in bins, by each thread, a matrix for each problem"
        matrices = leave_one_out_bytes(problems, threads, layout.entry_bytes)
        return [Term("calibration", threads * tables + matrices, why)]
    if job.cluster is not None:
        hint = "calibrate without --cluster"
        raise UsageError("the scores of this fit are made of folds, which are not fitted on a cluster", hint=hint)
    costs = [solver.cost(problem, layout) for problem in problems]
    again = sum(cost.fixed + cost.per_row * layout.rows for cost in costs)
    again += max((cost.shared for cost in costs), default=0)
    weights = 8 * folds * len(problems) * problems[0].components
    why = f"scores in bins, the solver once more, weights of {folds} folds"
    return [Term("calibration", tables + again + weights, why), *folding.cut_terms(layout, folds)]


def add_calibrations(models: dict[float, Model], found: dict[float, Calibrated]) -> dict[float, Model]:
    """Return the models, those with a calibration or a threshold in ``found`` with it."""
    added = {}
    for C, model in models.items():
        one = found.get(C)
        calibration = model.calibration if one is None or one.calibration is None else one.calibration
        added[C] = replace(model, calibration=calibration)
        if one is not None and one.threshold is not None:
            added[C] = add_threshold(added[C], one.threshold)
    return added


def add_threshold(model: Model, threshold: ChosenThreshold) -> Model:
    """Return the model with a threshold, and how that was chosen."""
    return replace(model, threshold=threshold.value, provenance=model.provenance | {"threshold": threshold.facts()})


def calibration_events(found: dict[float, Calibrated]) -> Iterator[JsonObject]:
    """Yield what a run records of its calibrations and thresholds."""
    for C, one in found.items():
        if one.shown and one.calibration is not None:
            yield {"event": "calibration", "C": C, **one.calibration.header(), **one.shown}
        if one.threshold is not None:
            yield {"event": "threshold", "C": C, **one.threshold.facts()}


def _weights(plan: Plan, state: State) -> Float64:
    solution = plan.solver.solution(state)
    assert isinstance(solution, LinearSolution)  # ``choose_folds`` has seen to it
    return solution.w


def _ratio(problem: Problem, layout: Layout) -> float:
    """Return the weight of the positive class over the mean weight of the others' rows."""
    if not problem.weights:
        return 1.0
    positive = problem.kind.positives[0]
    others = [code for code in range(len(layout.classes)) if code != positive]
    rows = [layout.counts[code] for code in others]
    return problem.weights[positive] / float(np.average([problem.weights[code] for code in others], weights=rows))


def _compare_reliability(table: ScoreTable, calibrator: Calibrator) -> JsonObject:
    """Return how reliable the scores of the sample are before and after, as plain JSON."""
    from streamsvm.calibration.reliability import ProbabilityCounts, read_as_log_odds

    f, truth, weights = table.vectors
    found: JsonObject = {}
    for name, p in (("before", read_as_log_odds(f)), ("after", calibrator.probabilities(f))):
        counts = ProbabilityCounts()
        counts.add(p, truth, weights)
        found[name] = counts.facts()
    return found
