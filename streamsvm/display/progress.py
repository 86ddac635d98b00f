"""What is known of a job while it runs: how far it is, how fast, and how near the optimum."""

from __future__ import annotations

from streamsvm.aliases import JsonObject
from streamsvm.config.units import percent, seconds_text
from streamsvm.display.event_lines import count_text
from streamsvm.display.small import MOST, curve, memory_bar

MIB = 1 << 20


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
