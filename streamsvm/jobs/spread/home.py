"""What of a solver's state only the end of a pass looks at, in a file beside the run: one file a round (``versions``).

Newton's model of the objective holds a sample of the rows, many times what w is. No visit needs it, so it is neither sent
to the workers nor fetched from them: the worker that ends a pass reads it where the one before has left it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from streamsvm.jobs import checkpoint


@dataclass(frozen=True, slots=True)
class Home:
    """``names``: the fields of a state that are kept here; each may be None."""

    directory: Path
    names: tuple[str, ...]

    def without(self, state: Any) -> Any:
        """The state as it is sent."""
        return replace(state, **dict.fromkeys(self.names))

    def load(self, version: int, states: dict[int, Any]) -> None:
        """Complete the states of some problems with what round ``version`` left. Raises DataError."""
        if version == 0:
            return
        kept: dict[int, dict[str, Any]] = checkpoint.read(self._path(version)).content()
        for k, state in states.items():
            for name, value in kept[k].items():
                setattr(state, name, value)

    def save(self, version: int, states: dict[int, Any], drop: Iterable[int]) -> None:
        """Keep what a round leaves and remove the versions nobody will ask for. Raises StorageError."""
        kept = {k: {name: getattr(state, name) for name in self.names} for k, state in states.items()}
        checkpoint.write(self._path(version), version, {}, kept)
        for old in drop:
            self._path(old).unlink(missing_ok=True)

    def _path(self, version: int) -> Path:
        return self.directory / f"home.{version}"
