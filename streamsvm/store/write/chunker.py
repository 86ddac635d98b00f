"""Cuts a stream of batches of any size into the chunks of a store; the cuts do not depend on the batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from streamsvm.aliases import Array
from streamsvm.rows import CSR, Dense, Float32, Rows, row_count, row_slice, row_stack


class Piece(NamedTuple):
    """Some rows with their class codes and, where there are any, weights."""

    X: Rows
    codes: Array
    """Their class codes (n,) int32, or numbers (n,) float64."""
    weight: Float32 | None
    """Their weights (n,); None where every row counts once."""

    def cut(self, start: int, stop: int) -> Piece:
        """Return rows [start, stop) as a piece; the numbers are not copied."""
        weight = None if self.weight is None else self.weight[start:stop]
        return Piece(row_slice(self.X, start, stop), self.codes[start:stop], weight)


@dataclass(slots=True)
class Chunker:
    """Collects pieces into chunks of ``rows`` rows or, of CSR, of at most ``nonzeros`` entries."""

    rows: int
    """The largest number of rows in a chunk."""
    nonzeros: int | None = None
    """The largest number of stored entries in a chunk; None for dense rows."""
    before_joining: Callable[[], None] | None = None
    """Called before the pieces of a chunk are copied into one, so that the chunk before can be freed."""
    _pending: list[Piece] = field(default_factory=list)
    _rows: int = 0
    _nonzeros: int = 0

    def push(self, piece: Piece) -> Iterator[Piece]:
        """Add rows and yield the chunks they complete."""
        while row_count(piece.X):
            taken = self._room(piece.X)
            if taken:
                self._keep(piece.cut(0, taken))
                piece = piece.cut(taken, row_count(piece.X))
            if self._rows == self.rows or row_count(piece.X):
                yield self._join()

    def rest(self) -> Iterator[Piece]:
        """Yield the last chunk, if any rows are left."""
        if self._rows:
            yield self._join()

    def _room(self, X: Rows) -> int:
        """How many of the rows still belong to the current chunk; a row too large for any chunk gets its own."""
        taken = min(self.rows - self._rows, row_count(X))
        if self.nonzeros is None or isinstance(X, Dense):
            return taken
        fits = int(np.searchsorted(X.indptr[1:], self.nonzeros - self._nonzeros, side="right"))
        return min(taken, max(fits, 1 if self._rows == 0 else 0))

    def _keep(self, piece: Piece) -> None:
        self._pending.append(piece)
        self._rows += row_count(piece.X)
        if isinstance(piece.X, CSR):
            self._nonzeros += len(piece.X.data)

    def _join(self) -> Piece:
        pieces, self._pending = self._pending, []
        self._rows = self._nonzeros = 0
        if len(pieces) == 1:
            return pieces[0]
        if self.before_joining is not None:
            self.before_joining()
        weights = [p.weight for p in pieces if p.weight is not None]
        codes = np.concatenate([p.codes for p in pieces])
        return Piece(row_stack([p.X for p in pieces]), codes, np.concatenate(weights) if weights else None)
