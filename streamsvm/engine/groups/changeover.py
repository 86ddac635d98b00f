"""A run in one process goes on where one on a cluster was stopped: what tasks have left in files is taken up.

The other way is shorter: a run on a cluster writes what the checkpoint of one in one process holds as the files of a
version of its own (``state_files.GroupRows.restore``, ``distributed.DistributedTrainer.resumed``).
"""

from __future__ import annotations

from dataclasses import dataclass

from streamsvm.aliases import Array, ByName
from streamsvm.engine.partition import Group
from streamsvm.engine.state.row_state import GroupRowStates
from streamsvm.engine.state.state_files import IN_ONE_FILE, IN_STATES, DriverState, GroupStateFiles
from streamsvm.engine.training import Run
from streamsvm.types import Layout


@dataclass(frozen=True, slots=True)
class ProcessRows:
    """One per-row state of all rows in this process, to checkpoints of either kind; see ``training.CheckpointedRows``."""

    states: GroupRowStates
    """Where the numbers are."""
    groups: list[Group]
    """All groups of the fit."""

    @property
    def layout(self) -> Layout:
        """Of the store that is trained on."""
        return self.states.rows.layout

    def checkpoint(self) -> ByName:
        """Make the present numbers durable, and return what ``restore`` comes back to them with."""
        return self.states.rows.checkpoint()

    def restore(self, saved: ByName | None, older: ByName | None = None) -> None:
        """Come back to a checkpoint; ``older`` is another one that must stay as it is. Raises DataError, KeyError."""
        rows, before = self.states.rows, older if older is not None and IN_ONE_FILE in older else None
        if saved is None or IN_ONE_FILE in saved:
            rows.restore(saved, before)
            return
        assert rows.file is not None
        rows.keep(before)
        files = GroupStateFiles(rows.file.parent, rows.state, rows.problems)
        for group in self.groups:
            self.states.take(group, files.load(group, int(saved["version"])))

    def load(self, chunk: int) -> Array:
        """Return the numbers of a chunk's rows, (problems, rows of the chunk). Raises DataError."""
        return self.states.rows.load(chunk)

    def close(self) -> None:
        """Give back what is open; the files stay."""
        self.states.rows.close()


@dataclass(slots=True)
class ProcessDriverState:
    """What only the end of a pass looks at: in this process it is in the states themselves, wherever it comes from."""

    files: DriverState
    """Where a run on a cluster has left it."""
    runs: list[Run]
    """What the states are of: not the training, which has this, and would live with its rows until a cycle is looked for."""
    version: int = 0
    """The last one that there are files of."""

    def checkpoint(self) -> ByName:
        """Return what says that the states have it all, and which versions are taken."""
        return {"version": self.version, IN_STATES: True}

    def restore(self, saved: ByName | None, older: ByName | None = None) -> None:
        """Complete the states of a checkpoint; the files stay as they are. Raises DataError, KeyError."""
        self.version = max((int(one["version"]) for one in (saved, older) if one), default=0)
        if saved and IN_STATES not in saved:
            states = {k: run.state for k, run in enumerate(self.runs) if not run.done}
            self.files.load(int(saved["version"]), states)

    def close(self) -> None:
        """Nothing is open."""
