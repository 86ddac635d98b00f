"""Random data sets: what a generator is, and four simple ones.

A generator makes any number of rows in bounded memory; equal seeds give equal bits. Three sets have two classes: two clouds that
a plane separates, half circles that only a kernel separates, and sparse rows like text; the fourth is dense vectors
of many classes, like embeddings.

Rows are made in *draws* of a fixed size; draw k is made from the seed (seed, k). A row therefore depends neither on the
number of rows nor on the size of the batches. (Bits are equal on one machine; the last bit of an exponential differs
between processors.)
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from streamsvm.config.options import Bounds, Option
from streamsvm.rows import CSR, Dense, Float32, Float64, Int64, row_slice
from streamsvm.types import Batch

CLASSES = ("-1", "1")
"""The labels of two classes, as text."""


class Generator(Protocol):
    """A random data set of a given size and seed. Its labels are float64, the numbers of ``classes``."""

    @property
    def rows(self) -> int:
        """The number of rows to make."""
        ...

    @property
    def seed(self) -> int:
        """The seed of the random numbers."""
        ...

    @property
    def columns(self) -> int:
        """The number of features."""
        ...

    @property
    def names(self) -> tuple[str, ...] | None:
        """The names of the columns; None if they have none."""
        ...

    @property
    def sparse(self) -> bool:
        """Whether batches are CSR."""
        ...

    @property
    def classes(self) -> tuple[str, ...]:
        """The labels as text, in the order of their numbers."""
        ...

    @property
    def dtype(self) -> str:
        """The type that holds all numbers: 'float32' or 'float16'."""
        ...

    def batches(self, batch_rows: int = 0) -> Iterator[Batch]:
        """Yield all rows in order, in new batches of at most ``batch_rows`` rows (0: one batch per draw)."""
        ...


class Draws(Protocol):
    """The part of a generator that ``cut_batches`` needs."""

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


def cut_batches(source: Draws, batch_rows: int) -> Iterator[Batch]:
    """Yield the first ``source.rows`` rows in batches of at most ``batch_rows``; a batch never spans two draws."""
    for k in range(-(-source.rows // source.draw_rows)):
        drawn = source.draw(k)
        stop = min(source.draw_rows, source.rows - k * source.draw_rows)
        step = batch_rows or stop
        for first in range(0, stop, step):
            last = min(first + step, stop)
            yield Batch(row_slice(drawn.X, first, last), drawn.labels[first:last])


def signs(is_positive: NDArray[np.bool_]) -> Float64:
    """Return +1.0 where ``is_positive`` is true and -1.0 elsewhere."""
    return np.where(is_positive, 1.0, -1.0)


def rule_generator(seed: int) -> np.random.Generator:
    """Return the generator of the random numbers that all draws of a seed share. Its seed has three numbers, so that it
    differs from the generators of the draws.
    """
    return np.random.default_rng((seed, 0, 1))


@dataclass(frozen=True, slots=True)
class Separable:
    """Two clouds on either side of a plane through the origin; every row is at least ``margin`` away from the plane."""

    rows: int
    """The number of rows to make."""
    seed: int = 0
    """The seed of the random numbers; equal seeds give equal bits."""
    columns: Annotated[int, Option("The number of features.", bounds=Bounds(least=1))] = 20
    margin: Annotated[float, Option("The distance of the closest rows from the plane.", bounds=Bounds(least=0))] = 0.1

    draw_rows: ClassVar[int] = 65_536
    """Rows of one draw, the unit of random numbers."""
    sparse: ClassVar[bool] = False
    """Whether batches are CSR."""
    classes: ClassVar[tuple[str, ...]] = CLASSES
    """The labels as text, in the order of their numbers."""
    dtype: ClassVar[str] = "float32"
    """The type that holds all numbers."""

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
        # einsum, not @: its sums do not depend on the number of BLAS threads
        distance = np.einsum("ij,j->i", X, self.normal)
        new_distance = labels.astype(np.float32) * (np.abs(distance) + np.float32(self.margin))
        X += (new_distance - distance)[:, None] * self.normal
        return Batch(Dense(X), labels)

    def batches(self, batch_rows: int = 0) -> Iterator[Batch]:
        """Yield all rows in order, in batches of at most ``batch_rows`` rows (0: one batch per draw)."""
        return cut_batches(self, batch_rows)


@dataclass(frozen=True, slots=True)
class TwoMoons:
    """Two interleaved half circles with Gaussian noise: the best line misclassifies an eighth of the rows, a kernel
    model hardly any.
    """

    rows: int
    """The number of rows to make."""
    seed: int = 0
    """The seed of the random numbers; equal seeds give equal bits."""
    noise: Annotated[
        float, Option("The standard deviation of the noise added to each coordinate.", bounds=Bounds(least=0))
    ] = 0.15

    columns: ClassVar[int] = 2
    """The number of features."""
    names: ClassVar[tuple[str, ...]] = ("x", "y")
    """The names of the columns; None if they have none."""
    draw_rows: ClassVar[int] = 65_536
    """Rows of one draw, the unit of random numbers."""
    sparse: ClassVar[bool] = False
    """Whether batches are CSR."""
    classes: ClassVar[tuple[str, ...]] = CLASSES
    """The labels as text, in the order of their numbers."""
    dtype: ClassVar[str] = "float32"
    """The type that holds all numbers."""

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
        """Yield all rows in order, in batches of at most ``batch_rows`` rows (0: one batch per draw)."""
        return cut_batches(self, batch_rows)


@dataclass(frozen=True, slots=True)
class SparseText:
    """Documents as unit vectors of (1 + log tf) idf, with terms by Zipf's law and labels by a sparse linear rule with
    noise.

    A row has about 100 different terms. P(+1) is a sigmoid of x.rule; the Bayes error is about 9 %.
    """

    rows: int
    """The number of rows to make."""
    seed: int = 0
    """The seed of the random numbers; equal seeds give equal bits."""
    columns: Annotated[int, Option("The number of features.", bounds=Bounds(least=1))] = 100_000
    length: Annotated[
        float,
        Option(
            "The mean number of words of a document; some repeat, which leaves about 100 terms of 145.",
            bounds=Bounds(least=1),
        ),
    ] = 145.0
    steepness: Annotated[
        float,
        Option(
            "The slope of the sigmoid that gives P(+1); larger means less noise in the labels.", bounds=Bounds(least=0)
        ),
    ] = 12.0

    names: ClassVar[None] = None
    """The names of the columns; None if they have none."""
    draw_rows: ClassVar[int] = 8_192
    """Rows of one draw, the unit of random numbers."""
    sparse: ClassVar[bool] = True
    """Whether batches are CSR."""
    classes: ClassVar[tuple[str, ...]] = CLASSES
    """The labels as text, in the order of their numbers."""
    dtype: ClassVar[str] = "float32"
    """The type that holds all numbers."""
    informative: ClassVar[slice] = slice(100, 3_000)
    """The ranks of the terms that the label depends on: neither stop words nor terms too rare to learn."""

    def rule(self) -> Float32:
        """Return the weight of each term for the label, (columns,) float32; most are 0."""
        weights = np.zeros(self.columns, np.float32)
        informative = weights[self.informative]
        informative[:] = rule_generator(self.seed).standard_normal(informative.size, np.float32)
        return weights

    def draw(self, k: int) -> Batch:
        """Return the ``draw_rows`` rows of draw ``k``; they depend on the seed and ``k`` alone."""
        rng = np.random.default_rng((self.seed, k))
        X = self._documents(rng)
        score = np.add.reduceat(X.data * self.rule()[X.indices], X.indptr[:-1])
        probability = 1.0 / (1.0 + np.exp(-self.steepness * score.astype(np.float64)))
        return Batch(X, signs(rng.random(self.draw_rows) < probability))

    def batches(self, batch_rows: int = 0) -> Iterator[Batch]:
        """Yield all rows in order, in batches of at most ``batch_rows`` rows (0: one batch per draw)."""
        return cut_batches(self, batch_rows)

    def _documents(self, rng: np.random.Generator) -> CSR:
        lengths = 1 + rng.poisson(self.length - 1.0, self.draw_rows)
        words = self._words(rng, int(lengths.sum()))
        keys = np.repeat(np.arange(self.draw_rows) * self.columns, lengths) + words
        terms, counts = np.unique(keys, return_counts=True)
        row, column = np.divmod(terms, self.columns)
        indptr = np.searchsorted(row, np.arange(self.draw_rows + 1))
        data = (1.0 + np.log(counts)) * self._idf()[column]
        norms = np.sqrt(np.add.reduceat(data * data, indptr[:-1]))
        return CSR((data / norms[row]).astype(np.float32), column.astype(np.int32), indptr.astype(np.int64))

    def _words(self, rng: np.random.Generator, count: int) -> Int64:
        """Draw terms; that of rank r = 0, 1, ... has the frequency log((r + 2) / (r + 1)) / log(columns + 1), about 1 /
        r.
        """
        drawn = np.exp(rng.random(count) * math.log(self.columns + 1.0)).astype(np.int64)
        return np.minimum(drawn, self.columns) - 1

    def _idf(self) -> Float64:
        """Return 1 + log(1 / P(a document has the term)) of each term, with the exact probability of the generator."""
        r = np.arange(self.columns)
        frequency = np.log1p(1.0 / (r + 1.0)) / math.log(self.columns + 1.0)
        return 1.0 - np.log(-np.expm1(-self.length * frequency))


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
        """Return the ``draw_rows`` rows of draw ``k``; they depend on the seed and ``k`` alone.

        A row is the center of its class plus noise, which decreases linearly from the first column to the last. Column j
        is multiplied by j^-spectrum, an offset common to all rows is added, and the row is scaled to one length. A share
        of the labels is drawn at random.
        """
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
