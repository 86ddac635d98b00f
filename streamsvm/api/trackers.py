"""Callbacks that log the record of every pass to MLflow or TensorBoard: ``sv.fit(..., on_pass=sv.MlflowTracker())``.

Both packages are optional; a tracker imports its package when it is created.
"""

from __future__ import annotations

import time
from os import PathLike, fspath
from types import TracebackType
from typing import Any, Self

from streamsvm.aliases import JsonObject
from streamsvm.errors import UsageError


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
