"""Callbacks with each event of a job or a record of each pass, and those that log records to MLflow or TensorBoard:
``sv.fit(..., on_pass=sv.MlflowTracker())``.

The events of a pass, one for each problem, are merged into one record. MLflow and TensorBoard are optional; a tracker
imports its package when it is created.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from os import PathLike, fspath
from types import TracebackType
from typing import Any, Self

from streamsvm.display.terminal import open_notebook_report
from streamsvm.engine.loop import end_fit
from streamsvm.errors import UsageError
from streamsvm.type_aliases import JsonObject
from streamsvm.types import Report, silent

OnPass = Callable[[JsonObject], object]
"""A callback with the record of a pass. If it returns True, the fit ends after one more pass, which computes the certificate."""
WORST_GAP_FIELDS = ("problem", "primal", "dual", "gap", "rounding")
"""Fields of a record that are taken from the problem with the largest gap."""
LAST_FIELDS = ("seconds", "waited", "memory", "bytes_read")
"""Fields of a record that are taken from the last problem: totals so far."""


class PassRecords:
    """Merges the events of a pass, one for each problem, into one record, and calls ``on_pass`` with it after the last problem.

    A record is a JSON object: ``pass`` (from 1); ``problems``, the number of problems in the pass; ``problem``, ``primal``, ``dual``,
    ``gap`` and ``rounding`` of the problem with the largest gap; ``exact``, whether the gaps of all problems are certified;
    ``seconds``, ``waited`` (for reads), ``memory`` and ``bytes_read``.
    """

    def __init__(self, on_pass: OnPass) -> None:
        self._on_pass = on_pass
        self._events: list[JsonObject] = []
        """The events of the problems whose pass is closed."""
        self._problems_left = 0
        """Problems whose pass is not closed yet, after the current one."""

    def __call__(self, event: JsonObject) -> None:
        """Process an event of a fit."""
        if "closing" in event:
            self._problems_left = event["problems"] - event["closing"]
        elif event["event"] == "pass":
            self._events.append(event)
            if not self._problems_left:
                record, self._events = merge_events(self._events), []
                if self._on_pass(record) is True:
                    end_fit()


def merge_events(events: list[JsonObject]) -> JsonObject:
    """Return the record of a pass from the events of its problems."""
    worst, last = max(events, key=lambda event: event["gap"]), events[-1]
    record = {"pass": last["pass"], "problems": len(events), "exact": all(event["exact"] for event in events)}
    return record | {name: worst[name] for name in WORST_GAP_FIELDS} | {name: last[name] for name in LAST_FIELDS}


def report_passes(report: Report, on_pass: OnPass) -> Report:
    """Return a report that also calls ``on_pass`` with the record of each pass."""
    records = PassRecords(on_pass)

    def report_both(event: JsonObject) -> None:
        report(event)
        records(event)

    return report_both


OnEvent = Callable[[JsonObject], object]
"""A callback with each event of a job; its return value is ignored."""


@contextmanager
def open_job_report(*, progress: bool, on_event: OnEvent | None) -> Iterator[Report]:
    """Provide the report to which a job sends its events: a progress bar, the callback ``on_event``, both, or neither."""
    with open_notebook_report() if progress else _open_silent_report() as bar:
        if on_event is None:
            yield bar
            return

        def report_both(event: JsonObject) -> None:
            bar(event)
            on_event(event)

        yield report_both


@contextmanager
def _open_silent_report() -> Iterator[Report]:
    yield silent


def numbers_in(record: JsonObject) -> dict[str, float]:
    """Return the record of a pass as numbers by name, without the number of the pass, which is the step of the log."""
    return {name: float(value) for name, value in record.items() if name != "pass"}


class MlflowTracker:
    """Log the gap, the objectives, seconds, memory and bytes read of every pass to MLflow; a pass is a step.

    ``run_id``: the run to log to; by default the active run, or a new one. ``prefix`` is put before the name of each metric.
    Raises UsageError if ``mlflow`` is not installed.

    Examples
    --------
    >>> callable(sv.MlflowTracker)  # sv.fit("train.zarr", "model.ssvm", on_pass=sv.MlflowTracker())
    """

    def __init__(self, run_id: str | None = None, prefix: str = "") -> None:
        try:
            import mlflow
        except ModuleNotFoundError as error:
            raise UsageError("mlflow is not installed", hint="pip install mlflow-skinny") from error
        self._log: Any = mlflow.log_metrics
        self._run_id, self._prefix = run_id, prefix

    def __call__(self, record: JsonObject) -> None:
        """Log the record of a pass."""
        metrics = {f"{self._prefix}{name}": value for name, value in numbers_in(record).items()}
        self._log(metrics, step=record["pass"], run_id=self._run_id)


class TensorBoardTracker:
    """Write the gap, the objectives, seconds, memory and bytes read of every pass as scalars for TensorBoard; a pass is a step.

    ``folder``: the directory for ``tensorboard --logdir``. A record is on disk when the callback returns. Close the tracker with
    ``close``, or use it as a context manager. Raises UsageError if ``tensorboard`` is not installed.

    Examples
    --------
    >>> callable(sv.TensorBoardTracker)  # sv.fit("train.zarr", "model.ssvm", on_pass=sv.TensorBoardTracker("runs/one"))
    """

    def __init__(self, folder: str | PathLike[str]) -> None:
        try:
            from tensorboard.compat.proto.event_pb2 import Event
            from tensorboard.compat.proto.summary_pb2 import Summary
            from tensorboard.summary.writer.event_file_writer import EventFileWriter
        except ModuleNotFoundError as error:
            raise UsageError("tensorboard is not installed", hint="pip install tensorboard") from error
        self._event: Any = Event
        self._summary: Any = Summary
        self._writer: Any = EventFileWriter(fspath(folder))

    def __call__(self, record: JsonObject) -> None:
        """Write the record of a pass."""
        values = [
            self._summary.Value(tag=f"fit/{name}", simple_value=value) for name, value in numbers_in(record).items()
        ]
        event = self._event(step=record["pass"], wall_time=time.time(), summary=self._summary(value=values))
        self._writer.add_event(event)
        self._writer.flush()

    def close(self) -> None:
        """Close the file."""
        self._writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()
