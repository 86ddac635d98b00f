"""Callbacks that write what every pass has come to where experiments are tracked: ``sv.fit(..., on_pass=sv.MlflowTracker())``.

Both packages are loaded when a tracker is made, and are no dependency of this one.
"""

from __future__ import annotations

import time
from os import PathLike, fspath
from types import TracebackType
from typing import Any, Self

from streamsvm.aliases import JsonObject
from streamsvm.errors import UsageError


def numbers_in(record: JsonObject) -> dict[str, float]:
    """Return the numbers of the record of a pass by name; the pass itself is the step they belong to."""
    return {name: float(value) for name, value in record.items() if name != "pass"}


class MlflowTracker:
    """Log the gap, the objectives and what was spent to MLflow, a step a pass.

    ``run_id``: the run that is logged to; without one that which is active, or a new one. ``prefix`` stands before the name of
    each metric. Raises UsageError where ``mlflow`` is not installed.

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
        found = {f"{self._prefix}{name}": value for name, value in numbers_in(record).items()}
        self._log(found, step=record["pass"], run_id=self._run_id)


class TensorBoardTracker:
    """Write the gap, the objectives and what was spent as scalars that TensorBoard draws, a step a pass.

    ``folder`` is what ``tensorboard --logdir`` is told. Each record is on disk when the call returns. Closes with ``close``, or
    as a context. Raises UsageError where ``tensorboard`` is not installed.

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
