"""The backend of a store that is written: a format takes chunk after chunk, cut into the units of each array."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np

from streamsvm.aliases import Array, Handle, JsonObject
from streamsvm.store.format.arrays import INDPTR, ArraySpec


class StoreBackend(Protocol):
    """Writes the arrays of a store in a format. The writer calls ``begin``, then for each chunk ``turn`` and ``write``,
    then ``finish``.
    """

    name: str
    """The name of the format in ``STORES``."""

    def begin(self, directory: Path, specs: dict[str, ArraySpec]) -> None:
        """Make room for arrays; nothing that is there already is removed."""
        ...

    def compress(self, packed: dict[str, str]) -> None:
        """Use these codecs, by array. It is called before ``begin``; raises UsageError where the format has none."""
        ...

    def turn(self, values: dict[str, Array]) -> bool:
        """Begin a new file if the next chunk needs one; return whether the file before was closed and made durable."""
        ...

    def write(self, values: dict[str, Array]) -> None:
        """Add what a chunk has of each array. Raises StorageError."""
        ...

    def sync(self) -> bool:
        """Make what was written durable; return whether a build could be resumed from here."""
        ...

    def finish(self, columns: int) -> None:
        """Complete the arrays and make them durable. Raises StorageError."""
        ...

    def manifest_fields(self) -> JsonObject:
        """Return the fields of the manifest that are the format's own."""
        ...

    def progress(self) -> Handle:
        """Return what ``resume`` needs, as plain JSON."""
        ...

    def resume(self, saved: Handle, rows: int) -> None:
        """Continue after ``rows`` rows of a dense store; ``saved`` is what ``progress`` returned."""
        ...

    def reuse(self, notes: list[Handle], *, repair: bool) -> None:
        """Do not write units again that are on disk: those in the ``notes`` of an earlier build, or all of a committed
        store.

        With ``repair`` units are read to see whether they are whole.
        """
        ...

    def note(self) -> Handle:
        """Return what has become durable since the last note, as plain JSON; called after ``sync``."""
        ...

    def abort(self) -> None:
        """Close open files."""
        ...


Emit = Callable[[ArraySpec, int, Array, int], None]
"""Takes a full unit: array, number, values, and the items of the array up to its end, padding excluded."""


@dataclass(slots=True)
class UnitCutter:
    """Cuts the values of one array into units."""

    spec: ArraySpec
    emit: Emit
    items: int = 0
    """Items added so far."""
    _written: int = 0
    _pending: Array | None = None
    _filled: int = 0

    def append(self, values: Array) -> None:
        """Add items (n,) or rows (n, width) in the array's dtype."""
        unit = self.spec.unit
        while len(values):
            if self._filled == 0 and len(values) >= unit:
                taken = unit
                self._emit(values[:unit])
            else:
                taken = self._fill(values)
            self.items += taken
            values = values[taken:]

    def finish(self) -> None:
        """Emit the unit that is not full, padded with zeros."""
        if self._filled:
            pending = self._buffer()
            pending[self._filled :] = 0
            self._write(pending, self.items)

    def skip(self, items: int) -> None:
        """Continue after ``items`` items that were written before and fill whole units."""
        self.items, self._written = items, items // self.spec.unit

    def _fill(self, values: Array) -> int:
        pending = self._buffer()
        taken = min(self.spec.unit - self._filled, len(values))
        pending[self._filled : self._filled + taken] = values[:taken]
        self._filled += taken
        if self._filled == self.spec.unit:
            self._emit(pending)
        return taken

    def _emit(self, values: Array) -> None:
        self._write(values, (self._written + 1) * self.spec.unit)

    def _write(self, values: Array, items: int) -> None:
        self.emit(self.spec, self._written, np.ascontiguousarray(values), items)
        self._written += 1
        self._filled = 0

    def _buffer(self) -> Array:
        if self._pending is None:
            self._pending = np.zeros(self.spec.shape, self.spec.dtype)
        return self._pending


@dataclass(slots=True)
class ArrayCutters:
    """Cuts the values of all arrays of a store, or of one part of it."""

    specs: dict[str, ArraySpec]
    emit: Emit
    of: dict[str, UnitCutter] = field(default_factory=dict)
    entries: int = 0
    """Stored entries added so far (CSR)."""

    def __post_init__(self) -> None:
        self.of = {name: UnitCutter(spec, self.emit) for name, spec in self.specs.items()}
        if INDPTR in self.of:
            self.of[INDPTR].append(np.zeros(1, np.int64))

    def append(self, values: dict[str, Array]) -> None:
        """Add what a chunk has of each array."""
        for name, cutter in self.of.items():
            cutter.append(values[name][1:] + self.entries if name == INDPTR else values[name])
        if INDPTR in values:
            self.entries += int(values[INDPTR][-1])

    def finish(self) -> None:
        """Emit the units that are not full."""
        for cutter in self.of.values():
            cutter.finish()

    def room(self, values: dict[str, Array]) -> int:
        """Return the bytes of all units once ``values`` are added."""
        total = 0
        for name, cutter in self.of.items():
            units = -(-(cutter.items + len(values[name])) // cutter.spec.unit)
            total += units * cutter.spec.unit_bytes
        return total
