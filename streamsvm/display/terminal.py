"""What people see while a job runs and when it ends: a bar on a terminal, lines elsewhere, or JSON for programs."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

from streamsvm.aliases import JsonObject
from streamsvm.config.units import percent, seconds_text, size_text
from streamsvm.display.small import MOST, curve, memory_bar

if TYPE_CHECKING:
    from streamsvm.types import Report

if TYPE_CHECKING:
    from rich.progress import Progress as Bars

INTERVAL = 5.0
"""Seconds between two lines where there is no terminal."""
MIB = 1 << 20


@contextmanager
def reporting(*, as_json: bool = False, quiet: bool = False) -> Iterator[Report]:
    """Give the report for a job: JSON lines on stdout, or progress on stderr, which is a bar if that is a terminal."""
    if as_json:
        yield to_json(sys.stdout)
    elif quiet:
        from streamsvm.types import silent

        yield silent
    elif sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
        with _bar() as report:
            yield report
    else:
        yield Lines(sys.stderr)


@contextmanager
def showing() -> Iterator[Report]:
    """Give the report for a program that asks for one: a bar in a notebook too, where there is no terminal."""
    from rich.console import Console

    with _bar() if Console().is_jupyter else reporting() as report:
        yield report


def to_json(stream: TextIO) -> Report:
    """Return a report that writes every event as a line of JSON at once."""

    def report(event: JsonObject) -> None:
        stream.write(json.dumps(finite(event)) + "\n")
        stream.flush()

    return report


def finite(value: Any) -> Any:
    """Return the same value with null in place of what JSON has no number for."""
    if isinstance(value, dict):
        return {str(k): finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


class Progress:
    """What is known of a job's progress, gathered from its events."""

    def __init__(self) -> None:
        self.name, self.number = "", 0
        self.done, self.total = 0.0, 0.0
        self.rows = self.rows_before = 0
        self.seconds = self._since = self._ended = 0.0
        self.gap: float | None = None
        self.memory = self.limit = 0
        self.gaps: list[float] = []
        self.cell = self.step = ""

    def take(self, event: JsonObject) -> bool:
        """Update from an event, and return whether there is anything new to show."""
        name: str = event["event"]
        if name == "plan":
            self.limit = event.get("limit", 0)
        if name == "cell":
            self._begin_cell(event)
            return True
        if name not in ("progress", "pass", "ingest", "synth", "predict", "evaluate", "verify", "embed"):
            return False
        self.seconds = event.get("seconds", self.seconds)
        self.memory = event.get("memory", self.memory)
        if name == "pass":
            self.gap, self._ended = event["gap"], self.seconds
            if event.get("problem", 0) == 0:
                self.gaps = [*self.gaps[-MOST:], event["gap"]]
        self.step = f"solving problem {event['closing']} of {event['problems']}" if "closing" in event else ""
        if "rows" in event:
            self._advance(event)
        fitting = "tune" if self.cell else "fit"
        self.name = {"progress": fitting, "pass": fitting}.get(name, name)
        return True

    def _begin_cell(self, event: JsonObject) -> None:
        """Begin the next point of a search, whose fit counts its seconds and passes from 0."""
        self.name, self.cell = "tune", f"cell {event['number']} of {event['of']}"
        self.number, self.gap, self.step, self.gaps = 0, None, "", []
        self.done = self.total = self.rows = 0
        self.seconds = self._since = self._ended = 0.0

    def _advance(self, event: JsonObject) -> None:
        number = event.get("pass", 0)
        if number != self.number or self.seconds < self._since:
            self.number, self._since = number, min(self._ended, self.seconds)
        self.rows = event["rows"]
        total_bytes = event.get("total_bytes")
        self.done = event["bytes"] if total_bytes else self.rows
        self.total = total_bytes or event.get("of") or 0

    @property
    def rate(self) -> float:
        """Rows a second in this pass."""
        spent = self.seconds - self._since
        return self.rows / spent if spent > 0 else 0.0

    @property
    def left(self) -> float | None:
        """Seconds to the end of the pass, or of the job if it has one pass; None while nobody knows."""
        spent = self.seconds - self._since
        if not self.total or not self.done or self.done >= self.total:
            return None
        return spent * (self.total - self.done) / self.done

    def details(self) -> str:
        """Return rate, time left, gap and memory as text, as far as they are known."""
        parts = [f"{count_text(self.rate)} rows/s"] if self.rate else []
        if self.step:
            parts.append(self.step)
        if self.left is not None:
            parts.append(f"{seconds_text(self.left)} left" + (" in this pass" if self.number else ""))
        if self.gap is not None:
            parts.append(f"gap {percent(self.gap)}")
        if self.memory:
            parts.append(f"{self.memory / MIB:.0f} MiB")
        return ", ".join(parts)

    def drawn(self) -> str:
        """Return what is known as text with the curve of the gap and memory as a bar: for a terminal."""
        text, bar = self.details(), memory_bar(self.memory, self.limit) if self.memory and self.limit else ""
        plain = f"{self.memory / MIB:.0f} MiB"
        shown = text.removesuffix(plain) + bar if bar and text.endswith(plain) else text
        return " ".join(part for part in (curve(self.gaps), shown) if part)

    @property
    def title(self) -> str:
        """The name of the job, the cell of a search, and the number of the pass."""
        return ", ".join(part for part in (self.name, self.cell, f"pass {self.number}" if self.number else "") if part)


class Lines:
    """A report that writes one line an interval: for log files and pipes."""

    def __init__(self, stream: TextIO, interval: float = INTERVAL) -> None:
        self._stream, self._interval = stream, interval
        self._progress, self._told = Progress(), time.monotonic()

    def __call__(self, event: JsonObject) -> None:
        if event["event"] == "plan":
            self._stream.write(plan_line(event) + "\n")
            self._stream.flush()
        if event["event"] == "left":
            self._stream.write(left_line(event) + "\n")
            self._stream.flush()
        if event["event"] == "columns":
            self._stream.write("".join(f"{line}\n" for line in event["decided"]))
            self._stream.flush()
        if self._progress.take(event) and time.monotonic() - self._told >= self._interval:
            self._told = time.monotonic()
            share = self._progress.done / self._progress.total if self._progress.total else None
            amount = f"{count_text(self._progress.rows)} rows" if share is None else f"{share:.0%}"
            self._stream.write(f"{self._progress.title}: {amount}, {self._progress.details()}\n")
            self._stream.flush()


@contextmanager
def _bar() -> Iterator[Report]:
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bars

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %  {task.fields[details]}"),
    )
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        yield _onto(bars)


def _onto(bars: Bars) -> Report:
    """A report that shows progress on one bar."""
    progress, task = Progress(), bars.add_task("", total=None, details="")

    def report(event: JsonObject) -> None:
        if event["event"] == "plan":
            bars.console.print(plan_line(event), highlight=False)
        if event["event"] == "left":
            bars.console.print(left_line(event), highlight=False)
        if event["event"] == "columns":
            for line in event["decided"]:
                bars.console.print(line, highlight=False, markup=False)
        if progress.take(event):
            total = progress.total or None
            bars.update(
                task, description=progress.title, total=total, completed=progress.done, details=progress.drawn()
            )

    return report


FELT = 0.01
"""Of the tolerance: less rounding is not worth a word on the last line; it is in certificate.json."""


def _felt(end: JsonObject) -> bool:
    return bool(end.get("rounding", 0.0) > FELT * end.get("tolerance", 0.0) * abs(end["primal"]))


def count_text(count: float) -> str:
    """Return a number in three digits: '1.25 M'."""
    for unit in ("", " k", " M"):
        if count < 999.5:
            return f"{count:.3g}{unit}"
        count /= 1000
    return f"{count:.3g} G"


def plan_line(plan: JsonObject) -> str:
    """Return the first line of a fit, from its 'plan' event: what was chosen and why, and what is solved."""
    costs = [f"{C:.4g}" for C in dict.fromkeys(plan["C"])]
    classes = plan["problems"] // len(costs)
    what = f"{classes} classes, each against the rest" if classes > 1 else "two classes"
    return f"solver {plan['solver']} ({plan['why']}), {what}, C = {', '.join(costs)}"


def left_line(event: JsonObject) -> str:
    """Return what is said where a solver is left for another one, from the 'left' event."""
    return f"solver {event['solver']} stalled: {event['why']}; going on with {event['next']}"


ENDS = {"converged": "", "patience": ", stopped by patience"}
"""What the last line says of ends that were asked for; any other is short of the certificate."""


def fit_line(end: JsonObject) -> str:
    """Return the last line of a fit, from its 'done' event: how far from the optimum, and what it took."""
    passes = f"{end['passes']} pass" + ("" if end["passes"] == 1 else "es")
    stopped = ENDS.get(end["status"], f", not certified: {end['status']}")
    rate = end["bytes_read"] / end["seconds"] if end["seconds"] else 0.0
    share, repeated, said = round(100 * end["compute_share"]), end["reads_repeated"], end.get("validation")
    simplex = "on the simplex {:.3g}, {:.3g} as the method saw it".format(*end["simplex"]) if end.get("simplex") else ""
    held = f"held-out error {percent(said['error'], 4)} (C = {said['C']:g}, pass {said['pass']})" if said else ""
    return " · ".join(
        ([held] if held else [])
        + [
            f"gap {percent(end['gap'])} (primal {end['primal']:.6g}, dual {end['dual']:.6g}"
            + (f", each within {end['rounding']:.1g} by rounding" if _felt(end) else "")
            + f") after {passes}{stopped}",
            *([simplex] if simplex else []),
            f"peak {end['peak'] / MIB:.0f} of {end['limit'] / MIB:.0f} MiB",
            f"read {size_text(end['bytes_read'])} at {size_text(rate)}/s"
            + (f", {repeated} reads only at another try: look at the disk" if repeated else ""),
            f"{share} % compute, {100 - share} % wait",
            str(end["model"]),
        ]
    )
