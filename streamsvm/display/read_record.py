"""The record of a run: what a fit or a search wrote, read for its page.

Files are read with bounds and checked, never trusted: they may be missing, damaged, or of another run. Each has a struct here with the
fields that pages show; a file of another form is listed in ``RunRecord.unread``, other fields in it are ignored, and the parts of the page
that need it are absent. The files of a fit are those of ``jobs.fit`` (plan, log, certificate, record, evaluation), the table of a search
that of ``jobs.tune``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from streamsvm.aliases import ByName, JsonObject
from streamsvm.config.units import percent
from streamsvm.display.chart import SERIES
from streamsvm.errors import DataError, MissingError
from streamsvm.input_files import is_folder, open_regular, read_whole
from streamsvm.model.measures import ERROR, RMSE, Measure, recorded_measure
from streamsvm.tasks import REGRESSION

MAX_FILE_BYTES = 16 << 20
MAX_LOG_LINES, MAX_LINE_BYTES = 100_000, 1 << 20
MAX_POINTS = 300
"""Points of a line that are drawn."""
T = TypeVar("T")


class ProblemEnd(msgspec.Struct):
    """The certificate of one problem: primal P, dual D, and (P - D) / |P|, rounding counted."""

    C: float
    primal: float
    dual: float
    gap: float
    problem: int = 0
    rounding: float = 0.0


class End(msgspec.Struct):
    """How a run ended (``certificate.json``); primal, dual and gap are those of the problem with the widest gap."""

    status: str
    gap: float
    primal: float
    dual: float
    tolerance: float
    passes: int
    seconds: float
    peak: int
    """Bytes of anonymous memory at most."""
    limit: int
    """Bytes that were allowed."""
    bytes_read: int
    compute_share: float
    """The share of the time in which nothing was waited for."""
    rounding: float = 0.0
    validation: JsonObject | None = None
    """The best score of held-out rows."""
    problems: list[ProblemEnd] = []


class PlannedTerm(msgspec.Struct):
    """A term of the memory plan: its name, its bytes at most, and what it consists of."""

    term: str
    bytes: int
    why: str = ""


class PlanRecord(msgspec.Struct):
    """What was decided before the first read: the event ``plan``."""

    rows: int
    columns: int
    chunks: int
    bytes_per_pass: int
    problems: int
    """Number of problems that are solved side by side."""
    C: list[float]
    """The C of each problem."""
    solver: str
    why: str
    memory: list[PlannedTerm]
    total: int
    """Sum of the terms of memory, in bytes."""
    limit: int
    """Bytes that are allowed."""
    features: JsonObject | None = None
    """What kernel features are made of."""
    embedding: JsonObject | None = None
    """Where kernel features are kept."""
    threads: int | None = None
    task: str = ""
    together: int = 0
    """Classes in each problem, where one problem has all classes; else 0."""


class Moment(msgspec.Struct):
    """A snapshot during a run: an event ``progress`` or ``pass``."""

    seconds: float
    """Since the run began."""
    memory: int
    """Bytes of anonymous memory."""
    waited: float | None = None
    """Seconds spent waiting for blocks so far."""
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
    """Whether P and D are those of all rows."""


class HeldOut(msgspec.Struct, kw_only=True):
    """The score of held-out rows after a pass: an event ``validation``."""

    number: int = msgspec.field(name="pass")
    C: float
    error: float | None = None
    """The usual measure."""
    score: float | None = None
    """Another one, which is named."""
    measure: str = ""

    @property
    def value(self) -> float:
        """The score, whatever its measure."""
        return next((value for value in (self.score, self.error) if value is not None), math.nan)


class ThresholdRecord(msgspec.Struct):
    """The threshold of a model, and how it was chosen: an event ``threshold``."""

    C: float
    value: float
    measure: str
    score: float
    positive: str
    rows: str
    """The rows it was chosen on."""


class StopRecord(msgspec.Struct):
    """The error that ended a run early."""

    code: str
    message: str
    hint: str | None = None


class StartRecord(msgspec.Struct):
    """The start of a run."""

    at: str
    """UTC."""
    command: str
    """The command that repeats the fit."""
    resumed: bool = False
    machine: ByName = {}
    """Versions and hardware, by name."""


class StoreRecord(msgspec.Struct):
    """The data of a fit."""

    path: str
    digest: str
    classes: list[tuple[str, int]]
    """The classes with most rows, and how many rows they have."""


class TopColumns(msgspec.Struct):
    """The columns with the largest effect on a class."""

    positive: str
    """The class they speak for."""
    rows: list[tuple[str, float, float]]
    """Name, weight in raw units, and standard deviation of each."""
    intercept: float
    of: int
    """Number of all columns."""


class ColumnValue(msgspec.Struct):
    """A value of a column of a table, or the number that it is."""

    name: str
    """Empty for a number."""
    is_share: bool
    """Whether ``mean`` is the share of rows that have it."""
    mean: float
    deviation: float
    weights: list[float] = []
    """Its weight in each problem."""
    pulls: list[float] = []
    """How far it moves f of each problem: a value from the average row, a number by one standard deviation."""


class TableColumn(msgspec.Struct):
    """A column of a table: what it is worth to the model, and its values that move f most."""

    name: str
    kind: str
    of: int
    """Number of its values, or of the columns that it was made into."""
    values: list[ColumnValue]
    share: float | None = None
    """Its part of the effects of all columns; None for a kernel model."""
    missing: float | None = None
    """The share of rows without a value; None where that is not known."""


class ColumnChange(msgspec.Struct):
    """How a column differs between training and evaluated rows."""

    name: str
    kind: str
    difference: float
    """Of means in standard deviations; of a category half the sum of the differences of the shares."""
    chance: float
    """What rows drawn from the training rows would differ by, about."""
    value: str = ""
    """The value whose share has changed most; empty for a number."""
    trained: float = 0.0
    """The mean of a number, or the share of the value."""
    evaluated: float = 0.0
    missing: tuple[float, float] | None = None
    """The shares of rows without a value."""

    @property
    def is_notable(self) -> bool:
        """Whether it is more than chance explains, and enough to matter."""
        return self.difference > max(4.0 * self.chance, 0.1 if not self.value else 0.05)


class Shares(msgspec.Struct):
    """The share of each class in parts of the store."""

    rows: list[float]
    """Rows up to the end of each part."""
    shares: dict[str, list[float]]
    """By class, its share in each part."""

    def __post_init__(self) -> None:
        if any(len(shares) != len(self.rows) for shares in self.shares.values()):
            raise ValueError("a class has shares of other parts")


class ColumnDrift(msgspec.Struct):
    """The means of a column in chunks of the store, less that of all rows, in standard deviations."""

    column: str
    means: list[float]
    errors: float
    """The largest of them in standard errors."""

    def __post_init__(self) -> None:
        if not self.means:
            raise ValueError("a column has no means")


class Margins(msgspec.Struct):
    """A histogram of margins by class, with the loss at its edges."""

    range: tuple[float, float]
    """Start of the first bin and end of the last one."""
    counts: dict[str, list[int]]
    """By class, the rows in each bin."""
    rows: int
    loss: list[float] = []


class Reliability(msgspec.Struct):
    """A reliability diagram: predicted probability and share that came true, in bins; the scores of the probabilities."""

    said: list[float]
    """Mean probability of each bin."""
    came_true: list[float]
    weight: list[float]
    log_loss: float | None = None
    Brier: float | None = None
    ECE: float | None = None


class ReliabilityRecord(msgspec.Struct):
    """Reliability of decision values taken for log odds (before) and of a model's probabilities (after)."""

    before: Reliability
    after: Reliability


class CalibrationRecord(msgspec.Struct):
    """A calibration and the scores it was learned from: an event ``calibration``."""

    C: float
    method: str
    scores: str
    rows: int
    before: Reliability
    after: Reliability


class Facts(msgspec.Struct):
    """What a fit recorded of its data and model (``record.json``)."""

    store: StoreRecord
    model: ByName
    """The classes, and for kernels the number of points."""
    loss: ByName = {}
    compile_seconds: float | None = None
    """Seconds of the time that the compiler took, which happens once on a machine."""
    warnings: list[str] = []
    notices: list[str] = []
    coefficients: list[TopColumns] = []
    columns: list[TableColumn] = []
    """The columns of the table, those that move f most first."""
    label_drift: Shares | None = None
    margins: Margins | None = None
    """Margins of a sample of the training rows."""
    feature_drift: list[ColumnDrift] = []


class WorstError(msgspec.Struct):
    """A row of the evaluation with a large error."""

    row: int
    """Its number, from 0."""
    truth: str
    predicted: str
    error: float
    """How far the value of its class is below that of the predicted one; of a number how far it is off."""
    id: str | None = None
    probability: float | None = None
    """That of the predicted class."""
    reasons: list[tuple[str, float]] = []
    """Values of the row that speak most for what was predicted or against it, and how far each moves f."""


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
    """Rows of each of ``truths`` by predicted class."""
    precision: list[float]
    """Of each of ``truths``."""
    recall: list[float]
    """Of each of ``truths``."""
    at: str = ""
    """UTC."""
    primals: list[float] = []
    """P of each problem of the model, which tell whether it is the model of the run."""
    AUC: float | None = None
    AUC_error: float | None = None
    average_precision: float | None = None
    positive: str | None = None
    """Of two classes the one that precision and recall are of."""
    roc: list[tuple[float, float]] = []
    precision_recall: list[tuple[float, float]] = []
    thresholds: list[tuple[float, float, float]] = []
    """Decision values, with precision and recall where rows from there on are taken for the positive class; those below there where it
    is the first class.
    """
    margins: Margins | None = None
    reliability: ReliabilityRecord | None = None
    worst: list[WorstError] = []
    drift: list[ColumnChange] = []
    """How columns differ from the training rows, the largest difference first."""


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
    """None where all targets are equal."""
    at: str = ""
    primals: list[float] = []
    """P of the problem of the model, which tells whether it is the model of the run."""
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
    """The score, where the measure is an error ..."""
    score: float | None = None
    """... and where it is another one."""
    share: float = 1.0
    """The share of the rows that was used, in a round of halving."""
    C: float | None = None
    """None where nu stands in its place."""
    nu: float | None = None
    landmarks: int | None = None
    gamma: float | None = None
    passes: int = 0
    """The most passes of all folds."""
    gap: float = 0.0
    """The widest gap of all folds."""

    @property
    def value(self) -> float:
        """The score, whatever its measure."""
        return self.error if self.score is None else self.score

    @property
    def loss_weight(self) -> float:
        """C or nu."""
        return next((weight for weight in (self.nu, self.C) if weight is not None), math.nan)


class Search(msgspec.Struct):
    """The result of a search (``table.json``)."""

    settings: ByName
    store: str
    """Digest of the store."""
    best: GridPoint
    scores: list[GridPoint]
    measure: str = "error"
    """By what points are judged."""
    in_percent: bool = True
    """Whether that is a share, shown in percent."""
    higher_is_better: bool = False
    classes: list[tuple[str, int]] = []
    """The classes with most rows, and how many rows they have; empty for numbers."""
    rows: int = 0
    command: str = ""
    """The command that repeats the search; empty where it was not recorded."""
    best_command: str = ""
    """The command that fits a model with the best settings."""
    machine: ByName = {}
    seconds: float | None = None
    notices: list[str] = []
    best_folds: list[float] = []
    """The scores of the best point, fold by fold."""

    @property
    def whole(self) -> list[GridPoint]:
        """The points that were judged on all rows."""
        return [score for score in self.scores if score.share == 1.0]

    def rank(self, value: float) -> float:
        """Return a number that is the smaller the better a score is."""
        return -value if self.higher_is_better else value

    @property
    def axis(self) -> str:
        """'C' or 'nu', whichever was searched."""
        return "C" if self.best.nu is None else "nu"

    def text(self, value: float, digits: int) -> str:
        """Return a score as people read it."""
        return percent(value, digits) if self.in_percent else f"{value:.{digits}g}"


@dataclass(slots=True)
class RunRecord:
    """The record of a run or a search; fields are None or empty where nothing was written."""

    name: str
    """The model, or the folder of a search."""
    job: ByName = field(default_factory=dict)
    """The settings of the fit."""
    plan: PlanRecord | None = None
    end: End | None = None
    """None where it has not ended."""
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
    """Whether the log says that the run came to its end."""
    unread: list[str] = field(default_factory=list)
    """Files that exist and could not be understood."""

    @property
    def settings(self) -> ByName:
        """The settings of the fit or the search."""
        return self.job if self.search is None else self.search.settings

    @property
    def evaluated(self) -> Evaluated | EvaluatedNumbers | None:
        """The evaluation, of a classifier or of a regression."""
        return self.evaluation or self.number_evaluation

    @property
    def best_held_out(self) -> JsonObject:
        """The best score of held-out rows, with its pass and C; empty without such."""
        return (None if self.end is None else self.end.validation) or {}

    @property
    def changes(self) -> list[ColumnChange]:
        """How the columns of the evaluated rows differ from those of the training rows."""
        return [] if self.evaluated is None else self.evaluated.drift

    @property
    def is_certified(self) -> bool:
        """Whether the gap is as small as was asked for."""
        return self.end is not None and self.end.gap <= self.end.tolerance

    @property
    def kept_pass(self) -> int | None:
        """The pass whose model was kept because it was best on held-out rows, where a later one ended the training; else None."""
        number = self.best_held_out.get("pass")
        return number if isinstance(number, int) and self.end is not None and number < self.end.passes else None

    @property
    def is_regression(self) -> bool:
        """Whether the model predicts numbers."""
        return self.plan is not None and self.plan.task == REGRESSION

    def drawn_classes(self) -> list[str]:
        """Return the classes that are drawn, in the order of their colors: as many as there are colors, those with most rows, in the
        order of the model's classes. A class has one color on the whole page.
        """
        recorded = None if self.facts is None else self.facts.model.get("classes")
        if not isinstance(recorded, list) or not all(isinstance(name, str) for name in recorded):
            recorded = [] if self.evaluation is None else self.evaluation.classes
        rows = {} if self.facts is None else dict(self.facts.store.classes)
        most = sorted(recorded, key=lambda name: -rows.get(name, 0))[:SERIES]
        return [name for name in recorded if name in most]

    @property
    def measure(self) -> Measure:
        """What held-out rows judge by."""
        named = self.settings.get("score")
        if isinstance(named, str):
            return recorded_measure(named)
        return RMSE if self.is_regression else ERROR

    def threshold(self) -> ThresholdRecord | None:
        """Return the threshold of the model, that of the best C; None where labels are predicted at 0."""
        mine = [one for one in self.thresholds if one.C == self.best_held_out.get("C", one.C)]
        return mine[-1] if mine else None

    def held_out_score(self) -> float | None:
        """Return the best score of held-out rows; None without such."""
        best = self.best_held_out
        found = best.get("score", best.get("error"))
        return found if isinstance(found, float) else None

    def widest(self) -> list[Pass]:
        """Return the certificate with the largest gap of each pass: of several problems, that of the one furthest behind."""
        widest: dict[int, Pass] = {}
        for one in self.passes:
            if one.number not in widest or not one.gap <= widest[one.number].gap:
                widest[one.number] = one
        return thin([widest[number] for number in sorted(widest)])

    def of_problem(self, number: int) -> list[Pass]:
        """Return the certificates of one problem, pass by pass."""
        return thin([one for one in self.passes if one.problem == number])


def read_run(path: Path) -> RunRecord:
    """Read the record of the run of a model, or of a search. ``path``: the model, its run's folder, or that of the search.

    Raises MissingError where there is no run, DataError for a path that is something else.
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
        _take_event(event, record)
    _keep_bounds(record.passes)
    record.moments = thin(record.moments)
    if record.began is None or record.done:  # else they are of an earlier run
        record.end = _read_file(folder / "certificate.json", End, record)
        record.facts = _read_file(folder / "record.json", Facts, record)
        _read_evaluation(folder / "evaluation.json", record)


def _keep_bounds(passes: list[Pass]) -> None:
    """Give every certificate the best bound so far: a bound stays valid, whatever a later pass finds."""
    best: dict[int, float] = {}
    for one in passes:
        if one.exact:
            best[one.problem] = max(one.dual, best.get(one.problem, one.dual))
            one.dual = best[one.problem]
            if one.primal:
                one.gap = min(one.gap, (one.primal - one.dual) / abs(one.primal))


def _read_evaluation(path: Path, record: RunRecord) -> None:
    """Read the evaluation, of a classifier or of a regression, unless it is one of an earlier model of the same name."""
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


def _take_event(event: JsonObject, record: RunRecord) -> None:
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
    """Return the events of the last run and of those it resumed, with accumulated seconds."""
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
    """Yield the events with seconds that never decrease: a resumed run, and a pass that only certifies, count from 0."""
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
    """Yield the events of a log; lines that are cut off, too long or not events are skipped."""
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
    """Return the content of a JSON file; None where it is missing, or of another kind, which is noted in ``unread``."""
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
    """Return at most MAX_POINTS of many points, evenly, with the first and the last."""
    if len(points) <= MAX_POINTS:
        return points
    return [points[round(k * (len(points) - 1) / (MAX_POINTS - 1))] for k in range(MAX_POINTS)]
