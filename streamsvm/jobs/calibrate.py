"""Calibrate a model as the last step of a fit: learn probabilities and thresholds from out-of-sample scores.

**Scores.** The score of a row is its decision value by a model that was not trained on it. Leave-one-out scores are
preferred: each is the score of the calibrated model without one row, and all of them cost about one pass; a model of
four fifths of the rows is a different model. They need a matrix of the components (MOST_BYTES for all problems), a loss
with curvature or enough rows (``solvers.leave_one_out.applies``), and independent rows. Otherwise, or with
``--calibration-folds``, the fit is repeated for each fold. ``calibration_scores`` computes the scores.

**Time.** The calibration may use the rest of the fit's time limit. The time is checked before every block, every step of
a fit of a fold and every factorization of a matrix; this also works in Python programs and threads, which get no signal.
If the time limit is reached before all scores are computed, the model remains without calibration.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from streamsvm.calibration import CALIBRATIONS
from streamsvm.calibration.calibrators import Calibration, Calibrator, calibrate_by_loss, calibrate_by_softmax
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
from streamsvm.solvers.softmax import Softmax
from streamsvm.store.format.labels import sort_key
from streamsvm.type_aliases import JsonObject
from streamsvm.types import AnySolver, Layout, LinearSolution, Problem, State, Status, Stop, Store, Term

if TYPE_CHECKING:
    from streamsvm.calibration.scores import ScoreCounts, ScoreTable
    from streamsvm.jobs.calibration_scores import FoldFits
    from streamsvm.jobs.fit.plan import Plan


MOST_BYTES = 256 << 20
"""Maximum size in bytes of the matrices for leave-one-out scores."""
FOLDS = 5
"""The default number of folds."""
LEAVE_ONE_OUT = "leave-one-out"
"""The name of leave-one-out scores in models and records."""


@dataclass(frozen=True, slots=True)
class ChosenThreshold:
    """The threshold of a model, and how it was chosen."""

    value: float
    """The threshold: ``classes[1]`` is predicted if f > value."""
    measure: str
    """The name of the measure by which it was chosen."""
    score: float
    """The value of that measure at the threshold."""
    positive: str
    """The positive class."""
    rows: str
    """The rows on which it was chosen: 'held-out rows', 'leave-one-out scores', '5 folds'."""

    def facts(self) -> JsonObject:
        """Return the fields as plain JSON."""
        return asdict(self)


def choose_threshold(job: FitJob, plan: Plan, counts: ScoreCounts, rows: str) -> ChosenThreshold:
    """Return the best threshold by the measure of the job (--threshold). ``rows``: the description of the rows counted."""
    assert job.threshold is not None
    measure = parse_measure(job.threshold, "--threshold")
    best = best_threshold(measure, counts, plan.predicts.positive)
    return ChosenThreshold(best.value, measure.name, best.score, plan.class_names[plan.predicts.positive], rows)


@dataclass(frozen=True, slots=True)
class Calibrated:
    """The calibration of one C."""

    calibration: Calibration | None
    """The map from decision values to probabilities; None if probabilities were not requested."""
    shown: JsonObject
    """Log loss, Brier score and reliability of the scores before and after calibration, as plain JSON; empty without
    scores.
    """
    threshold: ChosenThreshold | None = None


def calibrate(
    job: FitJob,
    plan: Plan,
    training: Training,
    feature_store: Store,
    fits: FoldFits,
    *,
    executor: Executor | None = None,
) -> dict[float, Calibrated]:
    """Return by C the calibration and the threshold that the job asks for.

    ``feature_store``: the store that the solver has read. ``executor``: computes the scores; None: the threads of the fit. Raises
    DataError for a class without rows, CalibrationTimeout at the time limit, and the errors of reading and training.
    """
    from streamsvm.jobs.calibration_scores import FinishedFit, fold_scores, leave_one_out_scores
    from streamsvm.jobs.fit.memory import count_readers

    outcomes = group_outcomes(plan.problems, plan.class_names)
    folds = choose_folds(job, fits.plan.solver, plan.problems)
    if folds is None:
        weights = np.array([_weights(plan, run.state) for run in training.runs])
        threads = count_readers(job, plan.solver, feature_store.layout, plan.memory.threads)
        solved = FinishedFit(feature_store, plan.features, plan.problems, weights, job.prefetch, job.seed, fits.time)
        tables = leave_one_out_scores(solved, outcomes, local_executor(threads) if executor is None else executor)
    else:
        tables = fold_scores(replace(fits, folds=folds), feature_store, outcomes)
    method = LEAVE_ONE_OUT if folds is None else f"{folds} folds"
    calibrations = {}
    for of_C, table in zip(outcomes, tables, strict=True):
        threshold = None
        if job.threshold is not None and job.validation is None:
            threshold = choose_threshold(job, plan, table.counts(0), f"{method} scores" if folds is None else method)
        if job.calibrate is None:
            calibrations[of_C.C] = Calibrated(None, {}, threshold)
            continue
        calibrator: Calibrator = CALIBRATIONS[job.calibrate].fit(table)
        calibration = Calibration(calibrator, method, feature_store.layout.rows)
        calibrations[of_C.C] = Calibrated(calibration, _compare_reliability(table, calibrator), threshold)
    return calibrations


def read_loss_calibrations(plan: Plan) -> dict[float, Calibrated]:
    """Return by C the calibration that follows from the logistic loss; empty for other losses, and for one-vs-one, where
    classes are chosen by votes.
    """
    loss, calibrations = plan.problems[0].loss, dict[float, Calibrated]()
    if not isinstance(loss, Logistic) or plan.problems[0].kind.votes:
        return {}

    for of_C in group_outcomes(plan.problems, plan.class_names):
        first = plan.problems[0]
        if isinstance(first.kind, Softmax):
            weights = np.array([first.weights[code] for code in of_C.positives]) if first.weights else None
            calibrations[of_C.C] = Calibrated(calibrate_by_softmax(loss.sharpness, weights, plan.layout.rows), {})
            continue
        ratios = np.array([_ratio(plan.problems[k], plan.layout) for k in of_C.columns])
        calibrations[of_C.C] = Calibrated(calibrate_by_loss(loss.sharpness, ratios, plan.layout.rows), {})
    return calibrations


def loss_probabilities(plan: Plan) -> dict[float, Callable[[Float64], Float64]]:
    """Return by C the function from decision values, in the order of the problems, to the probabilities that follow from
    the logistic loss.
    """
    loss, functions = plan.problems[0].loss, dict[float, Callable[[Float64], Float64]]()
    assert isinstance(loss, Logistic)  # ``measures.choose_measure`` checks it
    for C in plan.costs:
        first = plan.problems[0]
        if isinstance(first.kind, Softmax):
            weights = np.array(first.weights) if first.weights else None
            functions[C] = calibrate_by_softmax(loss.sharpness, weights, plan.layout.rows).calibrator.probabilities
            continue
        ratios = np.array([_ratio(problem, plan.layout) for problem in plan.problems if problem.C == C])
        functions[C] = calibrate_by_loss(loss.sharpness, ratios, plan.layout.rows).calibrator.probabilities
    return functions


class CalibrationTimeout(InterruptedRun):
    """The time limit was reached before the calibration was complete. With --at-limit stop it ends the run."""


@dataclass(frozen=True, slots=True)
class TimeLeft(NoCheckpoint):
    """The checkpointer of the fit of a fold: it saves nothing, and stops the fit at the time limit of the whole job."""

    limit: float = math.inf
    """The time limit of the job in seconds, for the message."""
    until: float = math.inf
    """The end of the time limit, in seconds of ``time.monotonic``."""

    def __reduce__(self) -> tuple[type[TimeLeft], tuple[()]]:
        """Return a copy without a limit for another process, as its clock differs. The process that waits checks the
        time.
        """
        return TimeLeft, ()

    def check(self) -> None:
        """Raise CalibrationTimeout if the time limit is reached."""
        self.seconds()

    def between(self, training: Training) -> None:
        """Raise CalibrationTimeout once the time is over."""
        del training
        self.check()

    def stop(self, max_passes: int) -> Stop:
        """Return the limits of the fit of a fold. Raises CalibrationTimeout if the time limit is reached."""
        return Stop(max_passes, self.seconds())

    def seconds(self) -> float:
        """Return the seconds left. Raises CalibrationTimeout if there are none."""
        left = self.until - time.monotonic()
        if left <= 0.0:
            raise self.error()
        return left

    def whole(self, training: Training) -> None:
        """Raise CalibrationTimeout if the training was stopped by the time limit."""
        if training.status == Status.TIME:
            raise self.error()

    def error(self) -> CalibrationTimeout:
        """Return the error to raise at the time limit."""
        return CalibrationTimeout(f"the time limit of {self.limit:g} s was reached before the calibration was made")


def remaining_time(job: FitJob, began: float) -> TimeLeft:
    """Return the remaining time of a fit that began at the moment ``began`` of ``time.monotonic``."""
    return TimeLeft(job.time_limit, began + job.time_limit)


def timeout_event(job: FitJob) -> JsonObject:
    """Return the event of a calibration that the time limit left incomplete."""
    return {"event": "uncalibrated", "method": job.calibrate, "reason": "time limit", "limit": job.time_limit}


@dataclass(frozen=True, slots=True)
class Outcomes:
    """The problems of one C in the order of its model, whose classes are sorted."""

    C: float
    """The weight of the loss sum."""
    columns: tuple[int, ...]
    """The numbers of its decision values among those of all problems."""
    positives: tuple[int, ...]
    """The class code that is +1, for each decision value."""

    def truth(self, codes: Int32) -> Int32:
        """Return the number of the model's class (n,) for class codes (n,)."""
        if len(self.positives) == 1:
            return (codes == self.positives[0]).astype(np.int32)
        number_of_code = np.empty(max(self.positives) + 1, np.int32)
        number_of_code[list(self.positives)] = np.arange(len(self.positives), dtype=np.int32)
        return number_of_code[codes]


def group_outcomes(problems: Sequence[Problem], class_names: Sequence[str]) -> list[Outcomes]:
    """Return the outcomes of each C. ``class_names``: both classes for a single decision value, else one name for each."""
    outcomes = []
    values = [(problem.C, code) for problem in problems for code in problem.kind.positives]
    for C in dict.fromkeys(problem.C for problem in problems):
        columns = [k for k, (cost, _) in enumerate(values) if cost == C]
        if len(columns) > 1:
            columns = [columns[k] for k in sorted(range(len(columns)), key=lambda k: sort_key(class_names[k]))]
        outcomes.append(Outcomes(C, tuple(columns), tuple(values[k][1] for k in columns)))
    return outcomes


def choose_folds(job: FitJob, solver: AnySolver, problems: list[Problem]) -> int | None:
    """Return the number of folds by which scores are computed; None: leave-one-out scores."""
    if job.calibration_folds is not None:
        return job.calibration_folds
    from streamsvm.solvers.leave_one_out import applies

    p = problems[0].columns + 1
    can_leave_one_out = not solver.exact_kernel and applies(problems[0])
    can_leave_one_out = can_leave_one_out and 8 * p * p * len(problems) <= MOST_BYTES
    return None if can_leave_one_out else FOLDS


def calibration_passes(job: FitJob, solver: AnySolver, problems: list[Problem]) -> float:
    """Return the estimated duration of leave-one-out scores, in multiples of that of a training pass.

    It is 0 for scores by folds: these take longer than the fit itself, and no time is reserved for them.
    """
    return 2.0 if job.needs_scores and choose_folds(job, solver, problems) is None else 0.0


def calibration_terms(
    job: FitJob, solver: AnySolver, problems: list[Problem], layout: Layout, threads: int
) -> list[Term]:
    """Return the memory of the calibration, of which ``threads`` threads read. Raises UsageError if it is not possible."""
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
    solver_bytes = sum(cost.fixed + cost.per_row * layout.rows for cost in costs)
    solver_bytes += max((cost.shared for cost in costs), default=0)
    weights = 8 * folds * len(problems) * problems[0].components
    why = f"scores in bins, the solver once more, weights of {folds} folds"
    return [Term("calibration", tables + solver_bytes + weights, why), *folding.cut_terms(layout, folds)]


def add_calibrations(models: dict[float, Model], calibrations: dict[float, Calibrated]) -> dict[float, Model]:
    """Return the models with their calibrations and thresholds."""
    calibrated_models = {}
    for C, model in models.items():
        calibrated = calibrations.get(C)
        calibrated_models[C] = model
        if calibrated is not None and calibrated.calibration is not None:
            calibrated_models[C] = replace(model, calibration=calibrated.calibration)
        if calibrated is not None and calibrated.threshold is not None:
            calibrated_models[C] = add_threshold(calibrated_models[C], calibrated.threshold)
    return calibrated_models


def add_threshold(model: Model, threshold: ChosenThreshold) -> Model:
    """Return the model with a threshold; its provenance records how the threshold was chosen."""
    return replace(model, threshold=threshold.value, provenance=model.provenance | {"threshold": threshold.facts()})


def calibration_events(calibrations: dict[float, Calibrated]) -> Iterator[JsonObject]:
    """Yield the events of calibrations and thresholds for the record of the run."""
    for C, calibrated in calibrations.items():
        if calibrated.shown and calibrated.calibration is not None:
            yield {"event": "calibration", "C": C, **calibrated.calibration.header(), **calibrated.shown}
        if calibrated.threshold is not None:
            yield {"event": "threshold", "C": C, **calibrated.threshold.facts()}


def _weights(plan: Plan, state: State) -> Float64:
    solution = plan.solver.solution(state)
    assert isinstance(solution, LinearSolution)  # ``choose_folds`` checks it
    return solution.w


def _ratio(problem: Problem, layout: Layout) -> float:
    """Return the class weight of the positive class, divided by the mean class weight of all other rows."""
    if not problem.weights:
        return 1.0
    positive = problem.kind.positives[0]
    others = [code for code in range(len(layout.classes)) if code != positive]
    rows = [layout.counts[code] for code in others]
    return problem.weights[positive] / float(np.average([problem.weights[code] for code in others], weights=rows))


def _compare_reliability(table: ScoreTable, calibrator: Calibrator) -> JsonObject:
    """Return the reliability of the scores in the table's sample before and after calibration, as plain JSON."""
    from streamsvm.calibration.reliability import ProbabilityCounts, read_as_log_odds

    f, truth, weights = table.vectors
    facts: JsonObject = {}
    for name, p in (("before", read_as_log_odds(f)), ("after", calibrator.probabilities(f))):
        counts = ProbabilityCounts()
        counts.add(p, truth, weights)
        facts[name] = counts.facts()
    return facts
