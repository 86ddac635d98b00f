"""Two simple shapes: clouds that a plane parts, and half circles that only a kernel does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from streamsvm.config.fields import Bounds, Option
from streamsvm.rows import Dense, Float32
from streamsvm.store.generators.draws import cut, rule_generator, signs
from streamsvm.types import Batch


@dataclass(frozen=True, slots=True)
class Separable:
    """Two clouds on either side of a plane through the origin, ``margin`` away from it and more."""

    rows: int
    """The number of rows to make."""
    seed: int = 0
    """What the random numbers are drawn from: equal seeds give equal bits."""
    columns: Annotated[int, Option("The number of features.", bounds=Bounds(least=1))] = 20
    margin: Annotated[float, Option("The distance of the closest rows from the plane.", bounds=Bounds(least=0))] = 0.1

    draw_rows: ClassVar[int] = 65_536
    """Rows of one draw, the unit of random numbers."""
    sparse: ClassVar[bool] = False
    """Whether batches are CSR."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns: x1, x2 and so on."""
        return tuple(f"x{j + 1}" for j in range(self.columns))

    @property
    def normal(self) -> Float32:
        """The unit normal of the plane: y x.normal >= margin for every row, up to float32 rounding."""
        w = rule_generator(self.seed).standard_normal(self.columns)
        return (w / np.linalg.norm(w)).astype(np.float32)

    def draw(self, k: int) -> Batch:
        """Return the ``draw_rows`` rows of draw ``k``; they depend on the seed and ``k`` alone."""
        rng = np.random.default_rng((self.seed, k))
        X = rng.standard_normal((self.draw_rows, self.columns), np.float32)
        labels = signs(rng.random(self.draw_rows) < 0.5)
        # einsum, not @: its sums do not depend on how many threads BLAS has
        height = np.einsum("ij,j->i", X, self.normal)
        wanted = labels.astype(np.float32) * (np.abs(height) + np.float32(self.margin))
        X += (wanted - height)[:, None] * self.normal
        return Batch(Dense(X), labels)

    def batches(self, batch_rows: int = 0) -> Iterator[Batch]:
        """Yield all rows in order, at most ``batch_rows`` at a time; see ``Generator.batches``."""
        return cut(self, batch_rows)


@dataclass(frozen=True, slots=True)
class TwoMoons:
    """Two interleaved half circles with Gaussian noise: a line errs on an eighth of it, a kernel on hardly any."""

    rows: int
    """The number of rows to make."""
    seed: int = 0
    """What the random numbers are drawn from: equal seeds give equal bits."""
    noise: Annotated[
        float, Option("The standard deviation of the noise added to each coordinate.", bounds=Bounds(least=0))
    ] = 0.15

    columns: ClassVar[int] = 2
    """The number of features."""
    names: ClassVar[tuple[str, ...]] = ("x", "y")
    """The names of the columns; None where they have none."""
    draw_rows: ClassVar[int] = 65_536
    """Rows of one draw, the unit of random numbers."""
    sparse: ClassVar[bool] = False
    """Whether batches are CSR."""

    def draw(self, k: int) -> Batch:
        """Return the ``draw_rows`` rows of draw ``k``; they depend on the seed and ``k`` alone."""
        rng = np.random.default_rng((self.seed, k))
        labels = signs(rng.random(self.draw_rows) < 0.5)
        angle = rng.random(self.draw_rows, np.float32) * np.float32(np.pi)
        side = labels.astype(np.float32)
        X = np.empty((self.draw_rows, 2), np.float32)
        X[:, 0] = 0.5 + side * (0.5 - np.cos(angle))
        X[:, 1] = 0.25 + side * (0.25 - np.sin(angle))
        X += np.float32(self.noise) * rng.standard_normal(X.shape, np.float32)
        return Batch(Dense(X), labels)

    def batches(self, batch_rows: int = 0) -> Iterator[Batch]:
        """Yield all rows in order, at most ``batch_rows`` at a time; see ``Generator.batches``."""
        return cut(self, batch_rows)
