"""The first values of each column of a table, by which it is told what it holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any


class Samples(Mapping[str, Any]):
    """The first values of each column of a table, by name; of a wide table only those asked for last are in memory.

    Columns that lie side by side are read together, so that asking for one after the other reads each once.
    """

    def __init__(self, names: Sequence[str], together: int, read: Callable[[list[str]], Mapping[str, Any]]) -> None:
        self._names, self._together, self._read = names, together, read
        self._places = {name: place for place, name in enumerate(names)}
        self._near: Mapping[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        """Return the values of a column as an Arrow array. Raises KeyError, and what reading raises."""
        if name not in self._near:
            start = self._places[name] // self._together * self._together
            self._near = {}  # before the next ones are made
            self._near = self._read(list(self._names[start : start + self._together]))
        return self._near[name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names."""
        return iter(self._names)

    def __len__(self) -> int:
        """Return the number of columns."""
        return len(self._names)
