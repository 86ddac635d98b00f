"""When checkpoints of a training are made, and how a training goes on from one. Knows nothing of jobs.

What a run was made with comes from above as its ``identity``: plain JSON that is written into every checkpoint and
compared by whoever resumes (``jobs.fit.identity``).
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Protocol

from streamsvm.aliases import ByName, JsonObject
from streamsvm.compute import freed_memory
from streamsvm.config.fields import field_values
from streamsvm.engine.checkpoint.checkpoint_file import CheckpointDirectory, Saved
from streamsvm.engine.checkpoint.interruption import Interruption, check_time
from streamsvm.engine.job_store import StoreGuard
from streamsvm.engine.training import Run, Training
from streamsvm.errors import DataError, InterruptedRun, quote
from streamsvm.types import Report, Status

PAUSE_FACTOR = 20
"""After a checkpoint none is made for so many times the seconds it took: they cost one part in so many of the time."""
SAVED_FIELDS = ("passes", "index", "ending", "seconds", "waited", "bytes_read", "held", "gaps")
"""The plain fields of a training that a checkpoint holds, beside its runs, its per-row state and its status."""


class Checkpointer(Protocol):
    """What the fit loop does between two visits for the sake of a later resume."""

    def resume(self, training: Training) -> None:
        """Change ``training`` to where an earlier run was stopped, if there was one. Raises DataError."""
        ...

    def between(self, training: Training) -> None:
        """Save when it is time; called after every visit. Raises InterruptedRun when the run is to stop here."""
        ...

    def check_store(self) -> None:
        """Check the store; called before and after every pass. Raises DataError when it is not the one that was opened."""
        ...

    def save(self, training: Training) -> None:
        """Save the training as it is between two visits; called when a run cannot go on. Raises StorageError."""
        ...


class NoCheckpoint:
    """The checkpointer of a run that is not resumed: it saves nothing."""

    def resume(self, training: Training) -> None:
        """Leave the training at its beginning."""

    def between(self, training: Training) -> None:
        """Go on while there is time. Raises InterruptedRun."""
        check_time()

    def check_store(self) -> None:
        """Check nothing."""

    def save(self, training: Training) -> None:
        """Save nothing."""


@dataclass(slots=True)
class RunCheckpointer:
    """Saves a training every so often and when it is asked to stop; see ``Checkpointer``."""

    checkpoints: CheckpointDirectory
    """Where checkpoints are written."""
    identity: JsonObject
    """What the run is made with, as plain JSON."""
    guard: StoreGuard
    """Looks after the store that is read."""
    interruption: Interruption
    """Where a signal or the end of the time shows."""
    every: float
    """Seconds between two checkpoints; 0: only when the run is stopped."""
    command: str
    """What goes on with the run, as typed in a shell."""
    report: Report
    """Takes the events ``resumed`` and ``checkpoint``."""
    deadline: float = float("inf")
    """When the run is to stop, by the clock of ``time.monotonic``."""
    saved: list[Saved] = field(default_factory=list)
    """The checkpoints of an earlier run, newest first."""
    _last: float = field(default_factory=time.monotonic)
    """When the last checkpoint was complete."""
    _cost: float = 0.0
    """Seconds the last checkpoint took."""

    def resume(self, training: Training) -> None:
        """Go on from the newest checkpoint of an earlier run; without one nothing changes. Raises DataError."""
        if not self.saved:
            return
        try:
            self._restore(training)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            where = self.checkpoints.directory
            hint = "start again with --overwrite in place of --resume"
            raise DataError(
                f"{where} is no usable checkpoint: {quote(error)}", code="E-CHECKPOINT", hint=hint
            ) from error
        freed_memory.give_back()
        self.interruption.standing = self._standing(training)
        self.report({"event": "resumed", "passes": training.passes, "visits": training.index})
        self.saved = []

    def _restore(self, training: Training) -> None:
        newest, *others = self.saved
        content = newest.content()
        for name in SAVED_FIELDS:
            setattr(training, name, content[name])
        training.partials = content["partials"]
        training.status = Status(content["status"])
        training.runs[:] = [Run(old.problem, *new) for old, new in zip(training.runs, content["runs"], strict=True)]
        before = others[0].content("rows") if others and training.row_states else {}
        for name, rows in training.row_states.items():
            rows.restore(content["rows"].get(name), before.get(name))

    def between(self, training: Training) -> None:
        """Save if a checkpoint is due. Raises InterruptedRun, after saving, when the run was asked to stop."""
        if self.interruption.name or time.monotonic() >= self.deadline:
            raise self.stopped(training)
        if self.every and time.monotonic() - self._last >= max(self.every, PAUSE_FACTOR * self._cost):
            self.save(training)

    def check_store(self) -> None:
        """Raise DataError when the store is not the one that was opened."""
        self.guard.check()

    def save(self, training: Training) -> None:
        """Write a checkpoint now. Raises StorageError."""
        began = time.monotonic()
        with training.at_rest() as position:
            training.index = position.visits
            content: ByName = field_values(training, SAVED_FIELDS)
            content["partials"] = position.partials
            content["status"] = training.status.value
            content["runs"] = [(run.state, run.certificate, run.done, run.witness) for run in training.runs]
            content["rows"] = {name: rows.checkpoint() for name, rows in training.row_states.items()}
            self.checkpoints.write(self.identity, content)
        self._last = time.monotonic()
        self._cost = self._last - began
        self.interruption.standing = self._standing(training)
        self.report({"event": "checkpoint", **_position(training), "took": self._cost})

    def stopped(self, training: Training) -> InterruptedRun:
        """Save a checkpoint of a run that was asked to stop, and return what it ends with. Raises StorageError."""
        self.interruption.saving = True
        self.save(training)
        self.interruption.saving = False
        name = self.interruption.name or "time limit"
        seconds = self.interruption.seconds if self.interruption.name else self._cost
        where = "epoch {epoch}, chunk {chunk}".format(**_position(training))
        return InterruptedRun(f"{name}: checkpoint saved at {where} ({seconds:.1f} s). Resume: {self.command}")

    def _standing(self, training: Training) -> str:
        where = "epoch {epoch}, chunk {chunk}".format(**_position(training))
        return f"The checkpoint saved at {where} stands. Resume: {self.command}"


def _position(training: Training) -> dict[str, int]:
    """Where the run is, as people count: epoch from 1, chunks done in it."""
    return {"epoch": training.passes + 1, "chunk": training.index}
