"""Read and check the record of a run: the files that a fit or a search wrote, for its page.

Files may be missing, damaged, or of another run, so that their size is bounded and their content is checked. Each kind of file has a struct
here with the fields that pages show; other fields are ignored. A file that does not match is listed in ``RunRecord.unread``, and the
parts of the page that need it are absent. The files of a fit are plan, log, certificate, record and evaluation (``jobs.fit``); a search has
a table (``jobs.tune``).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from streamsvm.config.units import percent
from streamsvm.display.chart import SERIES
from streamsvm.errors import DataError, MissingError
from streamsvm.input_files import is_folder, open_regular, read_whole
from streamsvm.model.measures import ERROR, RMSE, Measure, find_measure
from streamsvm.tasks import REGRESSION
from streamsvm.type_aliases import JsonObject, ValuesByName

MAX_FILE_BYTES = 16 << 20
MAX_LOG_LINES, MAX_LINE_BYTES = 100_000, 1 << 20
MAX_POINTS = 300
"""Maximum number of points of a line that is drawn."""
T = TypeVar("T")


class ProblemEnd(msgspec.Struct):
    """The certificate of one problem: primal P, dual D, and the gap (P - D) / |P|, which includes rounding errors."""

    C: float
    primal: float
    dual: float
    gap: float
    problem: int = 0
    rounding: float = 0.0


class End(msgspec.Struct):
    """The end of a run (``certificate.json``); primal, dual and gap are those of the problem with the largest gap."""

    status: str
    gap: float
    primal: float
    dual: float
    tolerance: float
    passes: int
    seconds: float
    peak: int
    """Peak of the anonymous memory, in bytes."""
    limit: int
    """The memory limit, in bytes."""
    bytes_read: int
    compute_share: float
    """The fraction of the time that was not spent waiting."""
    rounding: float = 0.0
    validation: JsonObject | None = None
    """The best score on held-out rows."""
    problems: list[ProblemEnd] = []


class PlannedTerm(msgspec.Struct):
    """A term of the memory plan: its name, its maximum in bytes, and what it consists of."""

    term: str
    bytes: int
    why: str = ""


class PlanRecord(msgspec.Struct):
    """The plan of a fit, made before any row is read: the event ``plan``."""

    rows: int
    columns: int
    chunks: int
    bytes_per_pass: int
    problems: int
    """Number of problems that are solved together."""
    C: list[float]
    """The C of each problem."""
    solver: str
    why: str
    memory: list[PlannedTerm]
    total: int
    """Sum of the terms of memory, in bytes."""
    limit: int
    """The memory limit, in bytes."""
    features: JsonObject | None = None
    """Facts about the kernel features."""
    embedding: JsonObject | None = None
    """Where the kernel features are stored."""
    threads: int | None = None
    task: str = ""
    together: int = 0
    """Number of classes if one problem has all classes; else 0."""


class Moment(msgspec.Struct):
    """Time and memory at a moment of a run: an event ``progress`` or ``pass``."""

    seconds: float
    """Seconds since the run started."""
    memory: int
    """Bytes of anonymous memory."""
    waited: float | None = None
    """Seconds spent waiting for rows so far."""
    bytes_read: int | None = None


class Pass(Moment, kw_only=True):
    """The certificate of a problem after a pass: an event ``pass``."""

    number: int = msgspec.field(name="pass")
    """The number of the pass, from 1."""
    primal: float
    dual: float
    gap: float
    problem: int = 0
    exact: bool = True
    """Whether P and D were computed from all rows."""


class HeldOut(msgspec.Struct, kw_only=True):
    """The score on held-out rows after a pass: an event ``validation``."""

    number: int = msgspec.field(name="pass")
    C: float
    error: float | None = None
    """The score if the measure is the default."""
    score: float | None = None
    """The score by another measure, ``measure``."""
    measure: str = ""

    @property
    def value(self) -> float:
        """The score, by either measure."""
        return next((value for value in (self.score, self.error) if value is not None), math.nan)


class ThresholdRecord(msgspec.Struct):
    """The threshold of a model: an event ``threshold``."""

    C: float
    value: float
    measure: str
    score: float
    positive: str
    rows: str
    """The rows on which it was chosen."""


class StopRecord(msgspec.Struct):
    """The error that ended a run early."""

    code: str
    message: str
    hint: str | None = None


class StartRecord(msgspec.Struct):
    """The start of a run."""

    at: str
    """The time, UTC."""
    command: str
    """The command that repeats the fit."""
    resumed: bool = False
    machine: ValuesByName = {}
    """Versions and hardware, by name."""


class StoreRecord(msgspec.Struct):
    """The data of a fit."""

    path: str
    digest: str
    classes: list[tuple[str, int]]
    """The most frequent classes with their numbers of rows."""


class TopColumns(msgspec.Struct):
    """The columns with the largest effect on a class."""

    positive: str
    """The class that a positive effect favors."""
    rows: list[tuple[str, float, float]]
    """Name, weight in units of the data, and standard deviation of each column."""
    intercept: float
    of: int
    """Number of all columns."""
    intervals: list[tuple[float, float]] = []
    """Bounds of the weight of each of ``rows`` at the exact optimum; empty for a fit without --certify."""


class Curve(msgspec.Struct):
    """The curve of a numeric column, for each problem."""

    x: list[float]
    """The knots, in the units of the column."""
    rows: list[float]
    """About the fraction of the training rows near each knot."""
    effects: list[list[float]]
    """The values at the knots less their mean, for each problem."""
    outcomes: list[str]
    """For each problem the class for which a positive value counts."""
    jumps: list[float] = []
    """The values at which the curve jumps."""
    jump_effects: list[list[float]] = []
    """The effects at these values, for each problem."""


class ColumnValue(msgspec.Struct):
    """A value of a categorical column of a table, or a numeric column as a whole."""

    name: str
    """The value; empty for a numeric column."""
    is_share: bool
    """Whether ``mean`` is the fraction of rows with this value."""
    mean: float
    deviation: float
    weights: list[float] = []
    """The weight in each problem."""
    pulls: list[float] = []
    """The change of f in each problem: for a category, by this value relative to the average row; for a numeric column, by one
    standard deviation."""
    curve: Curve | None = None
    """The curve of a numeric column; ``pulls`` is then its standard deviation."""


class TableColumn(msgspec.Struct):
    """A column of a table: its share in the effects on f, and its values with the largest effects."""

    name: str
    kind: str
    of: int
    """Number of values, or of feature columns made from it."""
    values: list[ColumnValue]
    share: float | None = None
    """The fraction of the effects of all columns; None for a kernel model."""
    missing: float | None = None
    """The fraction of rows without a value; None if unknown."""


class ColumnPair(msgspec.Struct):
    """The table of a pair of columns, for each problem."""

    names: tuple[str, str]
    cells: tuple[list[str], list[str]]
    """What the cells of both columns stand for; of a category those with the most rows."""
    rows: list[list[float]]
    """The fraction of the training rows in each cell, (A, B)."""
    effects: list[list[list[float]]]
    """The value in each cell, for each problem."""
    outcomes: list[str]
    """For each problem the class for which a positive value counts."""
    share: float
    """The fraction of the effects of all columns and pairs."""

    def __post_init__(self) -> None:
        shape = [len(self.cells[1])] * len(self.cells[0])
        if len(self.outcomes) != len(self.effects) or any(
            [len(line) for line in table] != shape for table in (self.rows, *self.effects)
        ):
            raise ValueError("a table of a pair of columns has other cells")


class ColumnChange(msgspec.Struct):
    """The difference of a column between training rows and evaluated rows."""

    name: str
    kind: str
    difference: float
    """For a number, the difference of the means in standard deviations; for a category, half the sum of the differences of the shares."""
    chance: float
    """About the difference that a random sample of the training rows would have."""
    value: str = ""
    """The value whose share differs most; empty for a number."""
    trained: float = 0.0
    """In the training rows: the mean of a number, or the share of the value."""
    evaluated: float = 0.0
    missing: tuple[float, float] | None = None
    """The fractions of training rows and of evaluated rows without a value."""

    @property
    def is_notable(self) -> bool:
        """Whether the difference is significant and large enough to matter."""
        return self.difference > max(4.0 * self.chance, 0.1 if not self.value else 0.05)


class Shares(msgspec.Struct):
    """The share of each class in parts of the store."""

    rows: list[float]
    """Cumulative number of rows at the end of each part."""
    shares: dict[str, list[float]]
    """The share in each part, by class."""

    def __post_init__(self) -> None:
        if any(len(shares) != len(self.rows) for shares in self.shares.values()):
            raise ValueError("a class has shares of other parts")


class ColumnDrift(msgspec.Struct):
    """The means of a column in chunks of the store minus the mean of all rows, in standard deviations."""

    column: str
    means: list[float]
    errors: float
    """The largest of these differences, in standard errors."""

    def __post_init__(self) -> None:
        if not self.means:
            raise ValueError("a column has no means")


class Margins(msgspec.Struct):
    """A histogram of margins by class, with the loss at its edges."""

    range: tuple[float, float]
    """Start of the first bin and end of the last one."""
    counts: dict[str, list[int]]
    """The number of rows in each bin, by class."""
    rows: int
    loss: list[float] = []


class Reliability(msgspec.Struct):
    """A reliability diagram: predicted probabilities and observed frequencies in bins; and scores of the probabilities."""

    said: list[float]
    """Mean predicted probability of each bin."""
    came_true: list[float]
    """Observed frequency in each bin."""
    weight: list[float]
    log_loss: float | None = None
    Brier: float | None = None
    ECE: float | None = None


class ReliabilityRecord(msgspec.Struct):
    """Reliability of the decision values read as log odds (before), and of the probabilities of the model (after)."""

    before: Reliability
    after: Reliability


class CalibrationRecord(msgspec.Struct):
    """A calibration and the scores from which it was computed: an event ``calibration``."""

    C: float
    method: str
    scores: str
    rows: int
    before: Reliability
    after: Reliability


class Facts(msgspec.Struct):
    """Facts about the data and the model of a fit (``record.json``)."""

    store: StoreRecord
    model: ValuesByName
    """The classes, and for kernel models the number of points."""
    loss: ValuesByName = {}
    compile_seconds: float | None = None
    """Seconds of the time that were spent compiling, which happens once on a machine."""
    warnings: list[str] = []
    notices: list[str] = []
    coefficients: list[TopColumns] = []
    columns: list[TableColumn] = []
    """The columns of the table, those with the largest effects on f first."""
    pairs: list[ColumnPair] = []
    """The pairs of columns with tables, those with the largest effects first."""
    label_drift: Shares | None = None
    margins: Margins | None = None
    """Margins of a sample of the training rows."""
    feature_drift: list[ColumnDrift] = []


class WorstError(msgspec.Struct):
    """A row of the evaluation with a large error."""

    row: int
    """The number of the row, from 0."""
    truth: str
    predicted: str
    error: float
    """How far the decision value of the true class is below that of the predicted class; for a regression, the absolute error."""
    id: str | None = None
    probability: float | None = None
    """The probability of the predicted class."""
    reasons: list[tuple[str, float]] = []
    """The values of the row with the largest effects on f, and these effects, positive in favor of the prediction."""


class Evaluated(msgspec.Struct):
    """An evaluation of a classifier (``evaluation.json``)."""

    data: list[str]
    """The store or the files."""
    rows: int
    accuracy: float
    balanced_accuracy: float
    F1_macro: float
    classes: list[str]
    """The classes of the model."""
    truths: list[str]
    """The labels that occurred."""
    confusion: list[list[int]]
    """Numbers of rows by label (``truths``) and predicted class."""
    precision: list[float]
    """By label (``truths``)."""
    recall: list[float]
    """By label (``truths``)."""
    at: str = ""
    """The time, UTC."""
    primals: list[float] = []
    """P of each problem of the evaluated model, by which it is recognized as the model of the run."""
    AUC: float | None = None
    AUC_error: float | None = None
    average_precision: float | None = None
    positive: str | None = None
    """With two classes, the class to which precision and recall refer."""
    roc: list[tuple[float, float]] = []
    precision_recall: list[tuple[float, float]] = []
    thresholds: list[tuple[float, float, float]] = []
    """Thresholds, each with precision and recall if rows with decision values from this threshold on are predicted as positive, or below
    it if the positive class is the first one.
    """
    margins: Margins | None = None
    reliability: ReliabilityRecord | None = None
    worst: list[WorstError] = []
    drift: list[ColumnChange] = []
    """Differences of columns from the training rows, the largest first."""


class EvaluatedNumbers(msgspec.Struct):
    """An evaluation of a regression model (``evaluation.json``)."""

    data: list[str]
    rows: int
    MAE: float
    RMSE: float
    largest_error: float
    target_mean: float
    target_spread: float
    """Standard deviation of the targets."""
    R2: float | None = None
    """None if all targets are equal."""
    at: str = ""
    primals: list[float] = []
    """P of the evaluated model, by which it is recognized as the model of the run."""
    MAE_of_mean: float | None = None
    """The mean absolute error of always predicting the mean."""
    scatter: list[tuple[float, float]] = []
    """Targets of some rows, with their predictions."""
    residuals: Margins | None = None
    worst: list[WorstError] = []
    drift: list[ColumnChange] = []


class GridPoint(msgspec.Struct):
    """A point of a search: the mean score over the folds, and the settings."""

    standard_error: float
    error: float = math.nan
    """The score if the measure is an error."""
    score: float | None = None
    """The score if the measure is another one."""
    share: float = 1.0
    """The fraction of the rows that was used, in successive halving."""
    C: float | None = None
    """None if nu is given."""
    nu: float | None = None
    landmarks: int | None = None
    gamma: float | None = None
    passes: int = 0
    """The largest number of passes of all folds."""
    gap: float = 0.0
    """The largest gap of all folds."""

    @property
    def value(self) -> float:
        """The score, by either measure."""
        return self.error if self.score is None else self.score

    @property
    def loss_weight(self) -> float:
        """C or nu."""
        return next((weight for weight in (self.nu, self.C) if weight is not None), math.nan)


class CostCell(msgspec.Struct):
    """An interval of C, and bounds of the error for every C in it."""

    C_from: float
    C_to: float
    low: float
    high: float


class RegretBand(msgspec.Struct):
    """What ``tune --regret`` proves."""

    band: list[CostCell]


class Search(msgspec.Struct):
    """The result of a search (``table.json``)."""

    settings: ValuesByName
    store: str
    """Digest of the store."""
    best: GridPoint
    scores: list[GridPoint]
    measure: str = "error"
    """The measure by which points are compared."""
    in_percent: bool = True
    """Whether the measure is a fraction, which is shown in percent."""
    higher_is_better: bool = False
    classes: list[tuple[str, int]] = []
    """The most frequent classes with their numbers of rows; empty for regression."""
    rows: int = 0
    command: str = ""
    """The command that repeats the search; empty if it was not recorded."""
    best_command: str = ""
    """The command that fits a model with the best settings."""
    machine: ValuesByName = {}
    seconds: float | None = None
    notices: list[str] = []
    best_folds: list[float] = []
    """The score of the best point on each fold."""
    regret: RegretBand | None = None
    """Bounds of the error of all C (--regret)."""
    proof: str = ""
    """What --regret proved, in words; empty without it."""

    @property
    def whole(self) -> list[GridPoint]:
        """The points that were scored on all rows."""
        return [score for score in self.scores if score.share == 1.0]

    def rank(self, value: float) -> float:
        """Return a number that is smaller for a better score."""
        return -value if self.higher_is_better else value

    @property
    def axis(self) -> str:
        """'C' or 'nu', whichever was searched."""
        return "C" if self.best.nu is None else "nu"

    def text(self, value: float, digits: int) -> str:
        """Return a score as text."""
        return percent(value, digits) if self.in_percent else f"{value:.{digits}g}"


@dataclass(slots=True)
class RunRecord:
    """The record of a run or a search; fields are None or empty if nothing was recorded."""

    name: str
    """The name of the model, or of the folder of a search."""
    job: ValuesByName = field(default_factory=dict)
    """The settings of the fit."""
    plan: PlanRecord | None = None
    end: End | None = None
    """None if the run has not ended."""
    facts: Facts | None = None
    evaluation: Evaluated | None = None
    number_evaluation: EvaluatedNumbers | None = None
    search: Search | None = None
    """None for a fit."""
    began: StartRecord | None = None
    stopped: StopRecord | None = None
    passes: list[Pass] = field(default_factory=list)
    moments: list[Moment] = field(default_factory=list)
    held_out: list[HeldOut] = field(default_factory=list)
    calibrations: list[CalibrationRecord] = field(default_factory=list)
    thresholds: list[ThresholdRecord] = field(default_factory=list)
    done: bool = False
    """Whether the log has the event of the end of the run."""
    unread: list[str] = field(default_factory=list)
    """Names of files that exist but could not be read."""

    @property
    def settings(self) -> ValuesByName:
        """The settings of the fit or the search."""
        return self.job if self.search is None else self.search.settings

    @property
    def evaluated(self) -> Evaluated | EvaluatedNumbers | None:
        """The evaluation, of a classifier or of a regression."""
        return self.evaluation or self.number_evaluation

    @property
    def best_held_out(self) -> JsonObject:
        """The best score on held-out rows, with its pass and C; empty if there are none."""
        return (None if self.end is None else self.end.validation) or {}

    @property
    def changes(self) -> list[ColumnChange]:
        """The differences of columns between training rows and evaluated rows."""
        return [] if self.evaluated is None else self.evaluated.drift

    @property
    def is_certified(self) -> bool:
        """Whether the gap is at most the tolerance."""
        return self.end is not None and self.end.gap <= self.end.tolerance

    @property
    def kept_pass(self) -> int | None:
        """The pass whose model was written because it was best on held-out rows; None if that is the last pass."""
        number = self.best_held_out.get("pass")
        return number if isinstance(number, int) and self.end is not None and number < self.end.passes else None

    @property
    def is_regression(self) -> bool:
        """Whether the model predicts numbers."""
        return self.plan is not None and self.plan.task == REGRESSION

    def classes_to_draw(self) -> list[str]:
        """Return the classes that are drawn, in the order of their colors: the ``SERIES`` most frequent ones, in the order of the model.

        A class has the same color on the whole page.
        """
        recorded = None if self.facts is None else self.facts.model.get("classes")
        if not isinstance(recorded, list) or not all(isinstance(name, str) for name in recorded):
            recorded = [] if self.evaluation is None else self.evaluation.classes
        rows = {} if self.facts is None else dict(self.facts.store.classes)
        most = sorted(recorded, key=lambda name: -rows.get(name, 0))[:SERIES]
        return [name for name in recorded if name in most]

    @property
    def measure(self) -> Measure:
        """The measure on held-out rows."""
        named = self.settings.get("score")
        if isinstance(named, str):
            return find_measure(named)
        return RMSE if self.is_regression else ERROR

    def threshold(self) -> ThresholdRecord | None:
        """Return the threshold of the model with the best C; None if the threshold is 0."""
        of_best = [one for one in self.thresholds if one.C == self.best_held_out.get("C", one.C)]
        return of_best[-1] if of_best else None

    def best_score_on_held_out_rows(self) -> float | None:
        """Return the best score on held-out rows; None if there is none."""
        best = self.best_held_out
        score = best.get("score", best.get("error"))
        return score if isinstance(score, float) else None

    def widest(self) -> list[Pass]:
        """Return, for each pass, the certificate of the problem with the largest gap."""
        widest: dict[int, Pass] = {}
        for one in self.passes:
            if one.number not in widest or not one.gap <= widest[one.number].gap:
                widest[one.number] = one
        return thin([widest[number] for number in sorted(widest)])

    def of_problem(self, number: int) -> list[Pass]:
        """Return the certificates of one problem by pass."""
        return thin([one for one in self.passes if one.problem == number])


def read_run(path: Path) -> RunRecord:
    """Read the record of a fit or a search. ``path``: the model, the folder of its run, or the folder of the search.

    Raises MissingError if there is no run, DataError for a path of another kind.
    """
    folder = path if is_folder(path) else path.with_name(path.name + ".run")
    if not is_folder(folder):
        hint = "name a model that has its MODEL.run beside it, a MODEL.run, or the folder of a search"
        raise MissingError(f"there is no run at {path}", hint=hint)
    record = RunRecord(folder.name.removesuffix(".run"))
    if (folder / "table.json").is_file():
        record.search = _read_file(folder / "table.json", Search, record)
    else:
        _read_fit(folder, record)
    if record.search is None and record.plan is None and record.end is None and record.began is None:
        raise DataError(
            f"{path} holds no record of a run", code="E-FILE", hint="name a model, or what tune has written"
        )
    return record


def _read_fit(folder: Path, record: RunRecord) -> None:
    record.job = _read_file(folder / "job.json", dict, record) or {}
    record.plan = _read_file(folder / "plan.json", PlanRecord, record)
    for event in _events_of_last_run(folder / "events.jsonl", record):
        _add_event(event, record)
    _keep_bounds(record.passes)
    record.moments = thin(record.moments)
    if record.began is None or record.done:  # otherwise these files are of an earlier run
        record.end = _read_file(folder / "certificate.json", End, record)
        record.facts = _read_file(folder / "record.json", Facts, record)
        _read_evaluation(folder / "evaluation.json", record)


def _keep_bounds(passes: list[Pass]) -> None:
    """Replace the dual bound of every certificate by the best one so far, since a bound stays valid in later passes."""
    best: dict[int, float] = {}
    for one in passes:
        if one.exact:
            best[one.problem] = max(one.dual, best.get(one.problem, one.dual))
            one.dual = best[one.problem]
            if one.primal:
                one.gap = min(one.gap, (one.primal - one.dual) / abs(one.primal))


def _read_evaluation(path: Path, record: RunRecord) -> None:
    """Read the evaluation, of a classifier or of a regression, unless it is of an earlier model with the same name."""
    content = _read_file(path, dict, record)
    kind: type[Evaluated | EvaluatedNumbers] = (
        EvaluatedNumbers if content is not None and "RMSE" in content else Evaluated
    )
    evaluation: Evaluated | EvaluatedNumbers | None = None if content is None else _convert(content, kind)
    if content is not None and evaluation is None:
        record.unread.append(path.name)
    if evaluation is None or record.end is None:
        return
    if set(evaluation.primals) <= {one.primal for one in record.end.problems}:
        if isinstance(evaluation, Evaluated):
            record.evaluation = evaluation
        else:
            record.number_evaluation = evaluation


def _add_event(event: JsonObject, record: RunRecord) -> None:
    """Add an event to the record; unknown events are ignored."""
    match event.get("event"):
        case "plan":
            record.plan = record.plan or _convert(event, PlanRecord)
        case "began":
            record.began = record.began or _convert(event, StartRecord)
        case "threshold" if (chosen := _convert(event, ThresholdRecord)) is not None:
            record.thresholds.append(chosen)
        case "calibration" if (learned := _convert(event, CalibrationRecord)) is not None:
            record.calibrations.append(learned)
        case "done":
            record.done = True
        case "stopped":
            record.stopped = _convert(event, StopRecord)
        case "pass" if (one := _convert(event, Pass)) is not None:
            record.passes.append(one)
            record.moments.append(one)
        case "progress" if (moment := _convert(event, Moment)) is not None:
            record.moments.append(moment)
        case "validation" if (look := _convert(event, HeldOut)) is not None:
            record.held_out.append(look)
        case _:
            pass


def _events_of_last_run(path: Path, record: RunRecord) -> list[JsonObject]:
    """Return the events of the last run and of the runs that it resumed, with seconds that increase over all of them."""
    events: list[JsonObject] = []
    try:
        for event in _read_lines(path):
            if event.get("event") == "began":
                events = _drop_end(events) if event.get("resumed") else []
            events.append(event)
    except FileNotFoundError:
        return []
    except (OSError, DataError):
        record.unread.append(path.name)
    return list(_accumulate_seconds(events))


def _accumulate_seconds(events: list[JsonObject]) -> Iterator[JsonObject]:
    """Yield the events with cumulative seconds; in the log, a resumed run and a pass that only certifies start at 0."""
    offset = latest = 0.0
    for event in events:
        seconds = event.get("seconds")
        if isinstance(seconds, float | int) and event.get("event") != "done":
            if seconds + offset < latest:
                offset = latest
            latest = seconds + offset
            event["seconds"] = latest
        yield event


def _drop_end(events: list[JsonObject]) -> list[JsonObject]:
    return [event for event in events if event.get("event") not in ("stopped", "done")]


def _read_lines(path: Path) -> Iterator[JsonObject]:
    """Yield the events of a log; truncated lines, lines that are too long and lines that are no events are skipped."""
    with open(open_regular(path), "rb") as file:
        for _ in range(MAX_LOG_LINES):
            line = file.readline(MAX_LINE_BYTES)
            if not line:
                return
            try:
                event = _parse_json(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(event, dict):
                yield event


def _read_file(path: Path, kind: type[T], record: RunRecord) -> T | None:
    """Return the content of a JSON file; None if it is missing, or if it does not match ``kind``, which is noted in ``unread``."""
    try:
        value = _convert(_parse_json(read_whole(path, MAX_FILE_BYTES)), kind)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError, DataError):
        value = None
    if value is None:
        record.unread.append(path.name)
    return value


def _parse_json(text: bytes) -> Any:
    """Parse JSON; NaN, infinity and numbers beyond float64 become None."""
    return json.loads(text, parse_constant=lambda _: None, parse_float=_parse_number)


def _parse_number(text: str) -> float | None:
    value = float(text)
    return value if math.isfinite(value) else None


def _convert(value: Any, kind: type[T]) -> T | None:
    try:
        return msgspec.convert(value, kind)
    except (msgspec.ValidationError, UnicodeEncodeError):  # the latter for text with lone surrogates
        return None


def thin(points: list[T]) -> list[T]:
    """Return at most MAX_POINTS evenly spaced points, including the first and the last."""
    if len(points) <= MAX_POINTS:
        return points
    return [points[round(k * (len(points) - 1) / (MAX_POINTS - 1))] for k in range(MAX_POINTS)]
