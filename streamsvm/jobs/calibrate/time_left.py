"""The time that calibration may take: what is left of the limit of its fit.

It is looked at before every block, every step of a fit of a fold and every matrix that is factorized, in programs and threads too, where no
signal comes. Scores of some of the rows, or of fits of folds that were ended by time, make no calibration: the model is left without.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

from streamsvm.aliases import JsonObject
from streamsvm.engine.checkpoint.checkpointer import NoCheckpoint
from streamsvm.engine.training import Training
from streamsvm.errors import InterruptedRun
from streamsvm.jobs.fit.options import FitJob
from streamsvm.types import Status, Stop


class CalibrationTimeout(InterruptedRun):
    """The time of a fit is over and its calibration is not made. Where the run is to stop at its limit it ends the run."""


@dataclass(frozen=True, slots=True)
class TimeLeft(NoCheckpoint):
    """The checkpointer of the fit of a fold: it saves nothing, and ends it where the time of the whole is over."""

    limit: float = math.inf
    """Seconds the whole may take, for the message."""
    until: float = math.inf
    """When they are over, by the clock of ``time.monotonic``."""

    def __reduce__(self) -> tuple[type[TimeLeft], tuple[()]]:
        """Without a limit in another process, whose clock is another one: who waits for it looks at this one's."""
        return TimeLeft, ()

    def check(self) -> None:
        """Raise CalibrationTimeout once the time is over."""
        self.seconds()

    def between(self, training: Training) -> None:
        """Raise CalibrationTimeout once the time is over."""
        del training
        self.check()

    def stop(self, max_passes: int) -> Stop:
        """Return what the fit of a fold may cost. Raises CalibrationTimeout once the time is over."""
        return Stop(max_passes, self.seconds())

    def seconds(self) -> float:
        """Return how many are left. Raises CalibrationTimeout where there are none."""
        left = self.until - time.monotonic()
        if left <= 0.0:
            raise self.error()
        return left

    def whole(self, training: Training) -> None:
        """Raise CalibrationTimeout for a fit that time has ended."""
        if training.status == Status.TIME:
            raise self.error()

    def error(self) -> CalibrationTimeout:
        """What is raised."""
        return CalibrationTimeout(f"the time limit of {self.limit:g} s was reached before the calibration was made")


def time_left(job: FitJob, began: float) -> TimeLeft:
    """Return that of a fit which began at a moment of ``time.monotonic``."""
    return TimeLeft(job.time_limit, began + job.time_limit)


def timeout_event(job: FitJob) -> JsonObject:
    """Return what a run records of a calibration that it had no time for."""
    return {"event": "uncalibrated", "method": job.calibrate, "reason": "time limit", "limit": job.time_limit}
