"""Data sets made of random numbers: any number of rows, the same bits for the same seed, in bounded memory.

Rows are drawn in *draws* of a fixed size, draw k from the seed (seed, k). So a row depends on neither how many rows are
asked for nor how they are cut into batches. (Bits are compared on one machine: the last bit of an exponential differs
between processors.)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from streamsvm.rows import Float64, row_slice
from streamsvm.types import Batch


class Generator(Protocol):
    """A data set by name, size and seed. Its labels are float64, -1.0 or +1.0."""

    @property
    def rows(self) -> int:
        """The number of rows to make."""
        ...

    @property
    def seed(self) -> int:
        """What the random numbers are drawn from."""
        ...

    @property
    def columns(self) -> int:
        """The number of features."""
        ...

    @property
    def names(self) -> tuple[str, ...] | None:
        """A name for each column, where columns have names."""
        ...

    @property
    def sparse(self) -> bool:
        """Whether batches are CSR."""
        ...

    def batches(self, batch_rows: int = 0) -> Iterator[Batch]:
        """Yield all rows in order, at most ``batch_rows`` at a time (0: as drawn). Batches are not reused."""
        ...


class Draws(Protocol):
    """What a generator defines; ``cut`` makes batches of it."""

    @property
    def rows(self) -> int:
        """The number of rows to make."""
        ...

    @property
    def draw_rows(self) -> int:
        """The number of rows in a draw."""
        ...

    def draw(self, k: int) -> Batch:
        """Return the ``draw_rows`` rows of draw ``k``, the first of which is row k * draw_rows."""
        ...


def cut(source: Draws, batch_rows: int) -> Iterator[Batch]:
    """Yield the first ``source.rows`` rows in batches of at most ``batch_rows``; a batch never spans two draws."""
    for k in range(-(-source.rows // source.draw_rows)):
        drawn = source.draw(k)
        stop = min(source.draw_rows, source.rows - k * source.draw_rows)
        step = batch_rows or stop
        for a in range(0, stop, step):
            b = min(a + step, stop)
            yield Batch(row_slice(drawn.X, a, b), drawn.labels[a:b])


def signs(choice: NDArray[np.bool_]) -> Float64:
    """Return +1.0 where ``choice`` is true and -1.0 elsewhere."""
    return np.where(choice, 1.0, -1.0)


def rule_generator(seed: int) -> np.random.Generator:
    """Return the random numbers that all draws of a seed share; three numbers seed it, so that it is no draw's
    generator.
    """
    return np.random.default_rng((seed, 0, 1))
