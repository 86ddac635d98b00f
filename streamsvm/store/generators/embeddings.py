"""A data set like embeddings of texts or images: many classes, rows of one length, a spectrum that falls, off center.

The row of a class is center + noise, with noise that falls linearly from the first column to the last; column j of both is
then multiplied by j^-spectrum, an offset that all rows share is added, and the row is scaled to one length. A share of the
labels is drawn at random. Numbers are float16, as such vectors are kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, ClassVar

import numpy as np

from streamsvm.config.options import Bounds, Option
from streamsvm.rows import Dense, Float32
from streamsvm.store.generators.simple import cut_batches, rule_generator
from streamsvm.types import Batch

FIRST_NOISE, LAST_NOISE = 1.5, 0.3
"""The standard deviations of the noise in the first and in the last column."""


@dataclass(frozen=True, slots=True)
class Embeddings:
    """Vectors of one length in many classes, as another model makes them of texts or images, in float16."""

    rows: int
    """The number of rows to make."""
    seed: int = 0
    """The seed of the random numbers; equal seeds give equal bits."""
    columns: Annotated[int, Option("The number of features.", bounds=Bounds(least=1))] = 256
    n_classes: Annotated[int, Option("The number of classes.", bounds=Bounds(least=2))] = 100
    separation: Annotated[
        float, Option("The standard deviation of the centers of the classes in each column.", bounds=Bounds(least=0))
    ] = 0.25
    noise: Annotated[float, Option("The share of labels that are drawn at random.", bounds=Bounds(least=0, most=1))] = (
        0.1
    )
    spectrum: Annotated[
        float, Option("Column j has the scale j^-spectrum; 0: all have one.", bounds=Bounds(least=0))
    ] = 0.7
    offset: Annotated[
        float, Option("The standard deviation of what is added to all rows in each column.", bounds=Bounds(least=0))
    ] = 0.3
    length: Annotated[float, Option("The Euclidean length of every row.", bounds=Bounds(above=0, most=1000))] = 1.0

    draw_rows: ClassVar[int] = 1024
    """Rows of one draw, the unit of random numbers."""
    sparse: ClassVar[bool] = False
    """Whether batches are CSR."""
    dtype: ClassVar[str] = "float16"
    """The type that holds all numbers."""

    @property
    def classes(self) -> tuple[str, ...]:
        """The labels: 0, 1 and so on."""
        return tuple(map(str, range(self.n_classes)))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns, as those of a column of vectors."""
        return tuple(f"emb[{j}]" for j in range(self.columns))

    def draw(self, k: int) -> Batch:
        """Return the ``draw_rows`` rows of draw ``k``; they depend on the seed and ``k`` alone."""
        rng = np.random.default_rng((self.seed, k))
        centers, offset = _draw_centers(self.seed, self.n_classes, self.columns)
        classes = rng.integers(self.n_classes, size=self.draw_rows)
        X = rng.standard_normal((self.draw_rows, self.columns), np.float32)
        X *= np.linspace(FIRST_NOISE, LAST_NOISE, self.columns, dtype=np.float32)
        X += centers[classes] * np.float32(self.separation)
        X *= np.arange(1, self.columns + 1, dtype=np.float32) ** np.float32(-self.spectrum)
        X += offset * np.float32(self.offset)
        X *= np.float32(self.length) / np.sqrt(np.einsum("ij,ij->i", X, X))[:, None]
        is_random = rng.random(self.draw_rows) < self.noise
        labels = np.where(is_random, rng.integers(self.n_classes, size=self.draw_rows), classes)
        return Batch(Dense(X.astype(np.float16).astype(np.float32)), labels.astype(np.float64))

    def batches(self, batch_rows: int = 0) -> Iterator[Batch]:
        """Yield all rows in order, in batches of at most ``batch_rows`` rows (0: one batch per draw)."""
        return cut_batches(self, batch_rows)


@lru_cache(maxsize=1)
def _draw_centers(seed: int, classes: int, columns: int) -> tuple[Float32, Float32]:
    """Return the centers of the classes (classes, columns) and the direction of the offset (columns,), of deviation 1."""
    rng = rule_generator(seed)
    offset = rng.standard_normal(columns, np.float32)
    return rng.standard_normal((classes, columns), np.float32), offset
