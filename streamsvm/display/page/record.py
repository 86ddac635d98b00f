"""What a run has left, as a page needs it: read from its folder with bounds, checked, and never believed.

The files are those of ``jobs.fit.results.places`` and ``jobs.report.run_log``. Of one that is missing, damaged, or of another time the
parts of the page that need it are absent, and the page says which.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from streamsvm.aliases import ByName, JsonObject
from streamsvm.config.units import percent
from streamsvm.display.page.files import Began, End, HeldOut, Moment, Pass, Planned, Stopped
from streamsvm.display.page.findings import CalibrationRecord, Evaluated, EvaluatedNumbers, Facts, Search
from streamsvm.errors import DataError, MissingError
from streamsvm.regular import is_folder, open_regular, read_whole
from streamsvm.tasks import REGRESSION

LARGEST = 16 << 20
"""Bytes of a file that is read whole."""
LONGEST_LINE, MOST_LINES = 1 << 20, 100_000
"""Of the log: bytes of a line, and lines that are looked at."""
MOST_POINTS = 300
"""Points of a line that are drawn."""
T = TypeVar("T")


@dataclass(slots=True)
class RunRecord:
    """All that is known of a run or a search."""

    name: str
    """What it is called: the model, or the folder of a search."""
    job: ByName = field(default_factory=dict)
    """The settings."""
    plan: Planned | None = None
    """What was decided before the first read."""
    end: End | None = None
    """How it ended; None where it has not."""
    facts: Facts | None = None
    """What it recorded of data and model."""
    evaluation: Evaluated | None = None
    """How good a classifier was found to be."""
    number_evaluation: EvaluatedNumbers | None = None
    """How far off a regression was found to be."""
    search: Search | None = None
    """What a search found; None for a fit."""
    began: Began | None = None
    """When and by which command it began."""
    stopped: Stopped | None = None
    """Why it was cut short."""
    passes: list[Pass] = field(default_factory=list)
    """The certificates, pass by pass and problem by problem."""
    moments: list[Moment] = field(default_factory=list)
    """Memory, waiting and reading over time."""
    held_out: list[HeldOut] = field(default_factory=list)
    """The errors on held-out rows."""
    calibrations: list[CalibrationRecord] = field(default_factory=list)
    """Of each C, what its calibration was learned from."""
    done: bool = False
    """Whether the log says that it came to its end."""
    unread: list[str] = field(default_factory=list)
    """Files that are there and could not be understood."""

    @property
    def settings(self) -> ByName:
        """What it was asked for."""
        return self.job if self.search is None else self.search.settings

    @property
    def is_regression(self) -> bool:
        """Whether the model predicts numbers."""
        return self.plan is not None and self.plan.task == REGRESSION

    def in_class_order(self, names: Iterable[str]) -> list[str]:
        """Return names of classes in the order of the model's classes, others after them: a class has one color on the whole page."""
        recorded = None if self.facts is None else self.facts.model.get("classes")
        classes = recorded if isinstance(recorded, list) else []
        return sorted(dict.fromkeys(names), key=lambda name: classes.index(name) if name in classes else len(classes))

    def error_text(self, error: float) -> str:
        """Return an error on held-out rows: a share in percent, of a regression in the units of the target."""
        return f"{error:.4g}" if self.is_regression else percent(error, 4)

    @property
    def error_name(self) -> str:
        """What errors are: 'error', a share of wrong answers, or 'RMSE'."""
        return "RMSE" if self.is_regression else "error"

    def widest(self) -> list[Pass]:
        """Return of each pass the certificate with the largest gap: of several problems the one that is furthest behind."""
        found: dict[int, Pass] = {}
        for one in self.passes:
            if one.number not in found or not one.gap <= found[one.number].gap:
                found[one.number] = one
        return thinned([found[number] for number in sorted(found)])

    def of_problem(self, number: int) -> list[Pass]:
        """Return the certificates of one problem, pass by pass."""
        return thinned([one for one in self.passes if one.problem == number])


def read_run(path: Path) -> RunRecord:
    """Read what the run of a model, or a search, has left. ``path``: the model, its run's folder, or that of the search.

    Raises MissingError where there is no run, DataError for a path that is something else.
    """
    folder = path if is_folder(path) else path.with_name(path.name + ".run")
    if not is_folder(folder):
        hint = "name a model that has its MODEL.run beside it, a MODEL.run, or the folder of a search"
        raise MissingError(f"there is no run at {path}", hint=hint)
    found = RunRecord(folder.name.removesuffix(".run"))
    if (folder / "table.json").is_file():
        found.search = _file(folder / "table.json", Search, found)
    else:
        _read_fit(folder, found)
    if found.search is None and found.plan is None and found.end is None and found.began is None:
        raise DataError(
            f"{path} holds no record of a run", code="E-FILE", hint="name a model, or what tune has written"
        )
    return found


def _read_fit(folder: Path, found: RunRecord) -> None:
    found.job = _file(folder / "job.json", dict, found) or {}
    found.plan = _file(folder / "plan.json", Planned, found)
    for event in _last_run(folder / "events.jsonl", found):
        _take(event, found)
    _keep_bounds(found.passes)
    found.moments = thinned(found.moments)
    if found.began is None or found.done:  # else they are of an earlier run
        found.end = _file(folder / "certificate.json", End, found)
        found.facts = _file(folder / "record.json", Facts, found)
        _read_evaluation(folder / "evaluation.json", found)


def _keep_bounds(passes: list[Pass]) -> None:
    """Give every certificate the best bound known by then: a bound holds for ever, whatever a later pass finds."""
    best: dict[int, float] = {}
    for one in passes:
        if one.exact:
            best[one.problem] = max(one.dual, best.get(one.problem, one.dual))
            one.dual = best[one.problem]
            if one.primal:
                one.gap = min(one.gap, (one.primal - one.dual) / abs(one.primal))


def _read_evaluation(path: Path, found: RunRecord) -> None:
    """Read the evaluation, of a classifier or of a regression, unless it is one of an earlier model of the same name."""
    content = _file(path, dict, found)
    kind: type[Evaluated | EvaluatedNumbers] = (
        EvaluatedNumbers if content is not None and "RMSE" in content else Evaluated
    )
    evaluation: Evaluated | EvaluatedNumbers | None = None if content is None else _as(content, kind)
    if content is not None and evaluation is None:
        found.unread.append(path.name)
    if evaluation is None or found.end is None:
        return
    if set(evaluation.primals) <= {one.primal for one in found.end.problems}:
        if isinstance(evaluation, Evaluated):
            found.evaluation = evaluation
        else:
            found.number_evaluation = evaluation


def _take(event: JsonObject, found: RunRecord) -> None:
    """Put an event where it belongs; one that is none of ours belongs nowhere."""
    match event.get("event"):
        case "plan":
            found.plan = found.plan or _as(event, Planned)
        case "began":
            found.began = found.began or _as(event, Began)
        case "calibration" if (learned := _as(event, CalibrationRecord)) is not None:
            found.calibrations.append(learned)
        case "done":
            found.done = True
        case "stopped":
            found.stopped = _as(event, Stopped)
        case "pass" if (one := _as(event, Pass)) is not None:
            found.passes.append(one)
            found.moments.append(one)
        case "progress" if (moment := _as(event, Moment)) is not None:
            found.moments.append(moment)
        case "validation" if (look := _as(event, HeldOut)) is not None:
            found.held_out.append(look)
        case _:
            pass


def _last_run(path: Path, found: RunRecord) -> list[JsonObject]:
    """The events of the last run, and of those it went on from, whose seconds are counted on."""
    events: list[JsonObject] = []
    try:
        for event in _lines(path):
            if event.get("event") == "began":
                events = _without_end(events) if event.get("resumed") else []
            elif event.get("event") == "plan" and not any(e.get("event") == "began" for e in events):
                events = []  # a log of before there was "began"
            events.append(event)
    except FileNotFoundError:
        return []
    except (OSError, DataError):
        found.unread.append(path.name)
    return list(_counted_on(events))


def _counted_on(events: list[JsonObject]) -> Iterator[JsonObject]:
    """Yield the events with seconds that never fall: a run that goes on, and a pass that only certifies, count from 0."""
    offset = latest = 0.0
    for event in events:
        seconds = event.get("seconds")
        if isinstance(seconds, float | int) and event.get("event") != "done":
            if seconds + offset < latest:
                offset = latest
            latest = seconds + offset
            event["seconds"] = latest
        yield event


def _without_end(events: list[JsonObject]) -> list[JsonObject]:
    return [event for event in events if event.get("event") not in ("stopped", "done")]


def _lines(path: Path) -> Iterator[JsonObject]:
    """Yield the events of a log; what is cut off, too long or no event is passed over."""
    with open(open_regular(path), "rb") as file:
        for _ in range(MOST_LINES):
            line = file.readline(LONGEST_LINE)
            if not line:
                return
            try:
                event = _parsed(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(event, dict):
                yield event


def _file(path: Path, kind: type[T], found: RunRecord) -> T | None:
    """The content of a JSON file; None where there is none, or none of this kind, which is noted."""
    try:
        value = _as(_parsed(read_whole(path, LARGEST)), kind)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError, DataError):
        value = None
    if value is None:
        found.unread.append(path.name)
    return value


def _parsed(text: bytes) -> Any:
    """What JSON says; numbers that are none, and those beyond float64, are None."""
    return json.loads(text, parse_constant=lambda _: None, parse_float=_number)


def _number(text: str) -> float | None:
    value = float(text)
    return value if math.isfinite(value) else None


def _as(value: Any, kind: type[T]) -> T | None:
    try:
        return msgspec.convert(value, kind)
    except (msgspec.ValidationError, UnicodeEncodeError):  # the latter of text with what is no character
        return None


def thinned(points: list[T]) -> list[T]:
    """Return, of many points, MOST_POINTS that lie evenly, the first and the last among them."""
    if len(points) <= MOST_POINTS:
        return points
    return [points[round(k * (len(points) - 1) / (MOST_POINTS - 1))] for k in range(MOST_POINTS)]
