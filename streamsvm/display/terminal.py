"""Progress and results of a job: a bar on a terminal, lines in a log file or a pipe, or JSON for programs."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

from streamsvm.config.units import percent, seconds_text, size_text
from streamsvm.type_aliases import JsonObject

if TYPE_CHECKING:
    from rich.progress import Progress as Bars

    from streamsvm.types import Report

MIB = 1 << 20
MIN_ROUNDING_SHARE = 0.01
"""A rounding error below this fraction of the tolerance is not mentioned in the last line; certificate.json has it."""
END_TEXTS = {"converged": "", "patience": ", stopped by patience"}
"""Text for the last line by status; fits with any other status are not certified."""
LEVELS = "▁▂▃▄▅▆▇█"
CURVE_PASSES = 24
"""Number of last passes that a curve shows and from whose gaps the number of remaining passes is estimated."""
MIN_WIDTH_FOR_CURVE = 110
"""On a terminal with fewer columns, the bar is short and there is no curve, to leave room for the gap and the time left."""
LINE_SECONDS = 5.0
"""Seconds between two lines of progress if there is no terminal."""


@contextmanager
def open_report(*, as_json: bool = False, quiet: bool = False) -> Iterator[Report]:
    """Provide the report of a job: JSON lines on stdout, or progress on stderr, as a bar if that is a terminal and as lines if not."""
    if as_json:
        yield report_json(sys.stdout)
    elif quiet:
        from streamsvm.types import silent

        yield silent
    elif sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
        with _open_bar() as report:
            yield report
    else:
        yield Lines(sys.stderr)


@contextmanager
def open_notebook_report() -> Iterator[Report]:
    """Provide the report of a job of a Python program: a bar in a notebook, else as ``open_report``."""
    from rich.console import Console

    with _open_bar() if Console().is_jupyter else open_report() as report:
        yield report


@contextmanager
def _open_bar() -> Iterator[Report]:
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bars

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=40 if console.width >= MIN_WIDTH_FOR_CURVE else 10),
        TextColumn("{task.percentage:>3.0f} %  {task.fields[details]}"),
    )
    with Bars(*columns, console=console, transient=True) as bars:
        yield _report_on(bars)


def _report_on(bars: Bars) -> Report:
    """Return a report that shows progress on a bar, and prints lines above it."""
    progress, task = Progress(), bars.add_task("", total=None, details="")

    def report(event: JsonObject) -> None:
        for line in describe_event(event):
            bars.console.print(line, highlight=False, markup=False)
        if progress.update(event):
            total = progress.total or None
            bars.update(
                task,
                description=progress.title,
                total=total,
                completed=progress.done,
                details=progress.render(narrow=bars.console.width < MIN_WIDTH_FOR_CURVE),
            )

    return report


class Lines:
    """A report for log files and pipes: at most one line of progress per interval."""

    def __init__(self, stream: TextIO, interval: float = LINE_SECONDS) -> None:
        self._stream, self._interval = stream, interval
        self._progress, self._last_line = Progress(), time.monotonic()

    def __call__(self, event: JsonObject) -> None:
        lines = describe_event(event)
        if self._progress.update(event) and time.monotonic() - self._last_line >= self._interval:
            self._last_line = time.monotonic()
            share = self._progress.done / self._progress.total if self._progress.total else None
            amount = f"{format_count(self._progress.rows)} rows" if share is None else f"{share:.0%}"
            lines.append(f"{self._progress.title}: {amount}, {self._progress.details()}")
        if lines:
            self._stream.write("".join(f"{line}\n" for line in lines))
            self._stream.flush()


def report_json(stream: TextIO) -> Report:
    """Return a report that writes every event immediately as a line of JSON."""

    def report(event: JsonObject) -> None:
        stream.write(json.dumps(replace_nonfinite(event)) + "\n")
        stream.flush()

    return report


def replace_nonfinite(value: Any) -> Any:
    """Replace NaN and infinity, which JSON cannot represent, by None."""
    if isinstance(value, dict):
        return {str(k): replace_nonfinite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [replace_nonfinite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


class Progress:
    """The progress of a job, collected from its events."""

    def __init__(self) -> None:
        self.name, self.number = "", 0
        self.done, self.total = 0.0, 0.0
        self.rows = 0
        self.seconds = self._since = self._ended = 0.0
        self.gap: float | None = None
        self.memory = self.limit = 0
        self.gaps: list[float] = []
        self.step = ""
        self.tolerance = 0.0
        self.cell, self.cells = 0, 0
        self._first_cell, self._search_began = 0, 0.0
        self._first_pass, self._last_pass = 0, 0

    def update(self, event: JsonObject) -> bool:
        """Update from an event, and return whether the display changes."""
        name: str = event["event"]
        if name == "plan":
            self.limit, self.tolerance = event.get("limit", 0), event.get("tolerance", 0.0)
        if name == "cell":
            self._begin_cell(event)
            return True
        if name not in ("progress", "pass", "ingest", "synth", "predict", "evaluate", "verify", "embed"):
            return False
        self.seconds = event.get("seconds", self.seconds)
        self.memory = event.get("memory", self.memory)
        self._first_pass = self._first_pass or event.get("pass", 0)
        if name == "pass":
            self.gap, self._ended, self._last_pass = event["gap"], self.seconds, event["pass"]
            if event.get("problem", 0) == 0:
                self.gaps = [*self.gaps[-CURVE_PASSES:], event["gap"]]
        self.step = f"solving problem {event['closing']} of {event['problems']}" if "closing" in event else ""
        if "rows" in event:
            self._advance(event)
        fitting = "tune" if self.cell else "fit"
        self.name = {"progress": fitting, "pass": fitting}.get(name, name)
        return True

    def _begin_cell(self, event: JsonObject) -> None:
        """Start the next cell of a search, whose fit counts seconds and passes from 0.

        The first cell of a resumed search has a number above 1.
        """
        if not self.cell:
            self._first_cell, self._search_began = event["number"], time.monotonic()
        self.name, self.cell, self.cells = "tune", event["number"], event["of"]
        self.number, self.gap, self.step, self.gaps = 0, None, "", []
        self._first_pass = self._last_pass = 0
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
        """Rows per second in this pass."""
        spent = self.seconds - self._since
        return self.rows / spent if spent > 0 else 0.0

    @property
    def seconds_left(self) -> float | None:
        """Estimated seconds to the end of the pass; None if unknown."""
        spent = self.seconds - self._since
        if not self.total or not self.done or self.done >= self.total:
            return None
        return spent * (self.total - self.done) / self.done

    @property
    def passes_left(self) -> int | None:
        """Estimated passes until the gap reaches the tolerance, by extrapolating the logarithm of the best gap; None if it does not fall."""
        log_gaps = [math.log10(gap) for gap in self.gaps if 0.0 < gap < math.inf]
        if len(log_gaps) < 3 or self.tolerance <= 0.0 or min(log_gaps) >= log_gaps[0]:
            return None
        fall = (log_gaps[0] - min(log_gaps)) / (len(log_gaps) - 1)
        return max(1, math.ceil((min(log_gaps) - math.log10(self.tolerance)) / fall))

    def describe_left(self) -> str:
        """Return the estimated time left as text: of the whole job if possible, else of this pass."""
        if finished := self.cell - self._first_cell:
            each = (time.monotonic() - self._search_began) / finished
            return f"about {seconds_text((self.cells - self.cell + 1) * each)} left"
        if (passes := self.passes_left) is not None:
            each = self._ended / (self._last_pass - self._first_pass + 1)
            return f"about {passes} pass{'es' if passes > 1 else ''}, {seconds_text(passes * each)} left"
        if self.seconds_left is None:
            return ""
        return f"{seconds_text(self.seconds_left)} left" + (" in this pass" if self.number else "")

    def details(self) -> str:
        """Return gap, time left, rate and memory as text, as far as known; less important parts last, where a narrow terminal cuts them."""
        parts = [f"gap {percent(self.gap)}"] if self.gap is not None else []
        parts += [text for text in (self.step, self.describe_left()) if text]
        if self.rate:
            parts.append(f"{format_count(self.rate)} rows/s")
        if self.memory:
            parts.append(f"{self.memory / MIB:.0f} MiB")
        return ", ".join(parts)

    def render(self, *, narrow: bool = False) -> str:
        """Return the details for a terminal, with a curve of the gap, unless ``narrow``, and a bar for memory."""
        text, bar = self.details(), draw_memory(self.memory, self.limit) if self.memory and self.limit else ""
        plain = f"{self.memory / MIB:.0f} MiB"
        details = text.removesuffix(plain) + bar if bar and text.endswith(plain) else text
        return " ".join(part for part in ("" if narrow else draw_gap_curve(self.gaps), details) if part)

    @property
    def title(self) -> str:
        """The name of the job, with the number of the cell of a search and of the pass."""
        cell = f"cell {self.cell} of {self.cells}" if self.cell else ""
        return ", ".join(part for part in (self.name, cell, f"pass {self.number}" if self.number else "") if part)


def describe_event(event: JsonObject) -> list[str]:
    """Return the lines to print for an event; empty for most events."""
    if event["event"] == "plan":
        return [describe_plan(event)]
    if event["event"] == "compiling":
        return ["compiling for this machine, once: some 20 seconds"]
    if event["event"] == "left":
        return [describe_fallback(event)]
    if event["event"] == "features":
        return [f"going on with kernel features in {event['arithmetic']}: {event['why']}"]
    if event["event"] == "problems":
        return list(event["lines"])
    return list(event["decided"]) if event["event"] in ("columns", "files") else []


def describe_plan(plan: JsonObject) -> str:
    """Return the first line of a fit, from its 'plan' event: the solver, why it was chosen, and the problems."""
    costs = [f"{C:.4g}" for C in dict.fromkeys(plan["C"])]
    classes = plan["problems"] // len(costs)
    what = f"{classes} classes, each against the rest" if classes > 1 else "two classes"
    if plan.get("together"):
        what = f"{plan['together']} classes in one problem"
    what = "numbers" if plan.get("task") == "regression" else what
    return f"solver {plan['solver']} ({plan['why']}), {what}, C = {', '.join(costs)}"


def describe_fallback(event: JsonObject) -> str:
    """Return the line for a 'left' event: a solver stalled, and the fit falls back to another one."""
    return f"solver {event['solver']} stalled: {event['why']}; going on with {event['next']}"


def describe_fit(end: JsonObject) -> str:
    """Return the last line of a fit, from its 'done' event: certificate, passes, memory and time."""
    passes = f"{end['passes']} pass" + ("" if end["passes"] == 1 else "es")
    stopped = END_TEXTS.get(end["status"], f", not certified: {end['status']}")
    rate = end["bytes_read"] / end["seconds"] if end["seconds"] else 0.0
    share, repeated, validation = round(100 * end["compute_share"]), end["reads_repeated"], end.get("validation")
    simplex = (
        "gap on the simplex {:.3g}, {:.3g} by the estimate of the method".format(*end["simplex"])
        if end.get("simplex")
        else ""
    )
    held = "held-out {} {}".format(*describe_held_out(validation)) if validation else ""
    return " · ".join(
        ([held] if held else [])
        + [
            f"gap {percent(end['gap'])} (primal {end['primal']:.6g}, dual {end['dual']:.6g}"
            + (f", each within {end['rounding']:.1g} by rounding" if _is_rounding_notable(end) else "")
            + f") after {passes}{stopped}",
            *([simplex] if simplex else []),
            f"peak {end['peak'] / MIB:.0f} of {end['limit'] / MIB:.0f} MiB",
            f"read {size_text(end['bytes_read'])} at {size_text(rate)}/s"
            + (f", {repeated} reads succeeded only when repeated: check the disk" if repeated else ""),
            f"{share} % compute, {100 - share} % wait",
            str(end["model"]),
        ]
    )


def _is_rounding_notable(end: JsonObject) -> bool:
    return bool(end.get("rounding", 0.0) > MIN_ROUNDING_SHARE * end.get("tolerance", 0.0) * abs(end["primal"]))


def align_columns(rows: Sequence[Sequence[str]], left: Collection[int] = (0,)) -> Iterator[str]:
    """Yield rows of text with aligned columns: columns with index in ``left`` flush left, the others flush right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = zip(row, widths, strict=True)
        yield "  ".join(
            cell.ljust(width) if k in left else cell.rjust(width) for k, (cell, width) in enumerate(cells)
        ).rstrip()


def format_count(count: float) -> str:
    """Format a number with three digits: '1.25 M'."""
    for unit in ("", " k", " M"):
        if count < 999.5:
            return f"{count:.3g}{unit}"
        count /= 1000
    return f"{count:.3g} G"


def describe_held_out(best: JsonObject) -> tuple[str, str]:
    """Return the measure on held-out rows, and its best value with C and pass, as text."""
    from streamsvm.model.measures import find_measure

    measure = find_measure(best.get("measure"))
    value = measure.full_text(best["error"] if "error" in best else best["score"])
    of = f" of {best['positive']}" if "positive" in best else ""
    return measure.title + of, f"{value} (C = {best['C']:g}, pass {best['pass']})"


def draw_gap_curve(gaps: Sequence[float]) -> str:
    """Draw the gaps of the last passes as a curve on a log scale, a character for each; empty for fewer than two passes."""
    log_gaps = [math.log10(gap) for gap in gaps[-CURVE_PASSES:] if 0.0 < gap < math.inf]
    if len(log_gaps) < 2:
        return ""
    low, high = min(log_gaps), max(log_gaps)
    scale = (len(LEVELS) - 1) / (high - low) if high > low else 0.0
    return "".join(LEVELS[round((value - low) * scale)] for value in log_gaps)


def draw_memory(used: int, limit: int, width: int = 10) -> str:
    """Draw the used part of a limit, both in bytes: '███░░░░░░░ 113 of 512 MiB'."""
    filled = min(width, math.ceil(width * used / limit)) if limit > 0 else 0
    return "█" * filled + "░" * (width - filled) + f" {used / MIB:.0f} of {limit / MIB:.0f} MiB"


def draw_fit_card(end: JsonObject) -> list[str]:
    """Return the result of a fit, from its 'done' event, as aligned lines."""
    certified = end["gap"] <= end["tolerance"]
    validation = end.get("validation")
    rows = [
        (
            "certified" if certified else "NOT certified",
            f"gap {percent(end['gap'])} of {percent(end['tolerance'])} asked for",
        ),
        ("optimum", f"between {end['dual']:.7g} and {end['primal']:.7g}, which is this model"),
        *([(f"held-out {describe_held_out(validation)[0]}", describe_held_out(validation)[1])] if validation else []),
        (
            "took",
            f"{end['passes']} passes, {seconds_text(end['seconds'])}, {round(100 * end['compute_share'])} % computing",
        ),
        ("read", size_text(end["bytes_read"])),
        ("memory", draw_memory(end["peak"], end["limit"])),
        ("model", str(end["model"])),
    ]
    return [f"  {name:<15} {text}" for name, text in rows]
