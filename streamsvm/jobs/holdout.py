"""Where ingested rows go: to the store or, some of them, to a test store beside it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.errors import ExistsError
from streamsvm.rows import Float32, Int32, Rows
from streamsvm.store import create
from streamsvm.store.forms import take


def refuse_existing(paths: Sequence[Path], *, overwrite: bool) -> None:
    """Raise ExistsError now for what a writer would refuse only after the source was looked at."""
    for path in paths:
        if path.exists() and not overwrite:
            raise ExistsError(f"{path} exists already", hint="choose another name, or pass --overwrite")


class Stores:
    """The store being written and, if rows are held out, the test store."""

    def __init__(
        self, paths: Sequence[Path], sparse: bool, chunk_bytes: int, overwrite: bool, held: tuple[int, float]
    ) -> None:
        self.sparse = sparse
        self._seed, self._fraction = held
        self.writers = [create(path, sparse=sparse, chunk_bytes=chunk_bytes, overwrite=overwrite) for path in paths]

    def append(self, X: Rows, codes: Int32, weight: Float32 | None, first_row: int) -> int:
        """Write rows, the first of which is row ``first_row`` of the sources. Returns how many were held out."""
        if not self._fraction:
            self.writers[0].append(X, codes, weight)
            return 0
        chosen = held_out(self._seed, first_row, len(codes), self._fraction)
        for writer, mask in zip(self.writers, (~chosen, chosen), strict=True):
            if mask.any():
                writer.append(take(X, mask), codes[mask], None if weight is None else weight[mask])
        return int(np.count_nonzero(chosen))

    def commit(self, classes: tuple[str, ...], columns: int, facts: dict[str, Any]) -> None:
        """Commit the test store first: the store is what people look for."""
        for writer in reversed(self.writers):
            writer.commit(classes, columns, facts)

    def abort(self) -> None:
        for writer in self.writers:
            writer.abort()


def held_out(seed: int, start: int, rows: int, fraction: float) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Whether each of the rows [start, start + rows) goes to the test store: splitmix64 of seed and row number.

    It depends on nothing else, so that the same rows are held out however the source was cut into batches.
    """
    state = np.arange(start, start + rows, dtype=np.uint64) + np.uint64((seed * 0xD1B54A32D192ED03) % 2**64)
    mixed = (state + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return (mixed >> np.uint64(11)) < np.uint64(int(fraction * 2**53))
