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
from streamsvm.display.event_lines import count_text, lines_of_event
from streamsvm.display.progress import Progress

if TYPE_CHECKING:
    from streamsvm.types import Report

if TYPE_CHECKING:
    from rich.progress import Progress as Bars

INTERVAL = 5.0
"""Seconds between two lines where there is no terminal."""


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


class Lines:
    """A report that writes one line an interval: for log files and pipes."""

    def __init__(self, stream: TextIO, interval: float = INTERVAL) -> None:
        self._stream, self._interval = stream, interval
        self._progress, self._told = Progress(), time.monotonic()

    def __call__(self, event: JsonObject) -> None:
        said = lines_of_event(event)
        if self._progress.take(event) and time.monotonic() - self._told >= self._interval:
            self._told = time.monotonic()
            share = self._progress.done / self._progress.total if self._progress.total else None
            amount = f"{count_text(self._progress.rows)} rows" if share is None else f"{share:.0%}"
            said.append(f"{self._progress.title}: {amount}, {self._progress.details()}")
        if said:
            self._stream.write("".join(f"{line}\n" for line in said))
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
        for line in lines_of_event(event):
            bars.console.print(line, highlight=False, markup=False)
        if progress.take(event):
            total = progress.total or None
            bars.update(
                task, description=progress.title, total=total, completed=progress.done, details=progress.drawn()
            )

    return report
