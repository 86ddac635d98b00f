"""What a pass has come to, in one record: its problems are reported one after the other, and a caller wants to hear once."""

from __future__ import annotations

from collections.abc import Callable

from streamsvm.aliases import JsonObject
from streamsvm.engine.loop import end_fit
from streamsvm.types import Report

OnPass = Callable[[JsonObject], object]
"""Takes the record of a pass; where it returns True the fit ends, after one more pass, which certifies. All else it returns has no effect."""
OF_THE_WORST = ("problem", "primal", "dual", "gap", "rounding")
"""What a record says of the problem with the largest gap."""
SPENT = ("seconds", "waited", "memory", "bytes_read")
"""What had been spent when the last problem was closed: seconds, bytes."""


class PassRecords:
    """Gathers the events of a fit to a record a pass, and hands each on as soon as the last problem is closed; True asks for the end.

    A record is plain JSON: ``pass`` (from 1), ``problems`` (how many were open), ``problem``, ``primal``, ``dual``, ``gap``
    and ``rounding`` of the one with the largest gap, ``exact`` (whether all gaps are proved), ``seconds``, ``waited``,
    ``memory`` and ``bytes_read``.
    """

    def __init__(self, on_pass: OnPass) -> None:
        self._on_pass = on_pass
        self._closed: list[JsonObject] = []
        self._open = 0
        """Problems that this pass has yet to be closed for, the one under way apart."""

    def __call__(self, event: JsonObject) -> None:
        """Look at an event of a fit."""
        if "closing" in event:
            self._open = event["problems"] - event["closing"]
        elif event["event"] == "pass":
            self._closed.append(event)
            if not self._open:
                record, self._closed = joined(self._closed), []
                if self._on_pass(record) is True:
                    end_fit()


def joined(closed: list[JsonObject]) -> JsonObject:
    """Return the record of a pass of the events of its problems."""
    worst, last = max(closed, key=lambda event: event["gap"]), closed[-1]
    found = {"pass": last["pass"], "problems": len(closed), "exact": all(event["exact"] for event in closed)}
    return found | {name: worst[name] for name in OF_THE_WORST} | {name: last[name] for name in SPENT}


def told(report: Report, on_pass: OnPass) -> Report:
    """Return a report that also tells ``on_pass`` what each pass has come to."""
    records = PassRecords(on_pass)

    def both(event: JsonObject) -> None:
        report(event)
        records(event)

    return both
