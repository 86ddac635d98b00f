"""Landmarks that know the labels: of more candidates than are wanted, one by one the one that helps most.

On a sample of n rows with targets T, -1 or +1 of classes, or numbers, let K hold the kernel values with the candidates, and a column of ones.
Orthogonal least squares (Chen, Cowan, Grant 1991; as landmarks of kernel machines Keerthi, Chapelle, DeCoste 2006)
takes the column that lessens the squared distance of T to the span of the columns taken the most. What is left of
column j outside that span has the squared length d_j, and the product b_j with what is left of T: the gain is
b_j^2 / d_j. With G = K'K and B = K'T both are what a Cholesky factorization leaves whose pivots are the gains,

    l = (G_j - L L_j) / sqrt(d_j),    d <- d - l^2,    b <- b - l (b_j / sqrt(d_j)),

so that the rows are seen once. G is summed in float64: of a wide kernel the d fall far below the rounding of float32.
A row of weight s has the weight s in the squares: rows of weight 0 have no say.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from streamsvm.aliases import Array
from streamsvm.compute.blocks.selection import bytes_per_row
from streamsvm.compute.kernel_values.gram import Points, kernel_block
from streamsvm.rows import Float32, Float64, Int64, Rows, row_count
from streamsvm.types import Kernel, Layout

CANDIDATES = 4
"""For each landmark, but no more than EXTRA beyond the landmarks."""
EXTRA = 2000
SAMPLE = 32_768
"""Rows whose labels are looked at."""
PIECE = 1024
"""Rows at a time: always the same ones, so that the sums do not depend on how a store is cut."""
FLOOR = 1e-13
"""Of the largest d: what is below it is rounding."""


def candidates(landmarks: int, rows: int) -> int:
    """How many rows landmarks are chosen from."""
    return min(rows, landmarks * CANDIDATES, landmarks + EXTRA)


def greedy_bytes(landmarks: int, layout: Layout) -> int:
    """Return the bytes that choosing from rows of this layout holds.

    These are candidates, a piece twice over, of rows as long as those of the densest chunk are on average, the values of the
    piece in float32, and twice over in float64, G with a product, L.
    """
    c = candidates(landmarks, layout.rows) + 1
    each = bytes_per_row(layout.columns, 1, None)
    if layout.nonzeros is not None:
        filled = zip(layout.chunks, layout.nonzeros, strict=True)
        each = max(bytes_per_row(layout.columns, rows, (entries,)) for rows, entries in filled)
    return 8 * layout.columns * c + 2 * PIECE * each + 20 * PIECE * c + 16 * c * c + 8 * c * (landmarks + 1)


@dataclass(slots=True)
class Greedy:
    """G and B of the rows given to ``add``; ``choose`` when all are in."""

    points: Points
    """The m candidates for landmarks, as the kernel sees them."""
    kernel: Kernel
    """The kernel whose values with the candidates are the columns of K."""
    targets: int
    """Columns of T: one for two classes or numbers, else one for each class."""
    gram: Float64 = field(init=False)
    """G = K'K, (m + 1, m + 1); the last column is that of the constant."""
    products: Float64 = field(init=False)
    """B = K'T, (m + 1, targets)."""
    _values: Float32 = field(init=False)

    def __post_init__(self) -> None:
        columns = self.points.size + 1
        self.gram, self.products = np.zeros((columns, columns)), np.zeros((columns, self.targets))
        self._values = np.empty((PIECE, self.points.size), np.float32)

    def add(self, X: Rows, T: Float64, weight: Float32 | None = None) -> None:
        """Look at PIECE rows X (n, d) or fewer, with targets T (n, targets) and weights (n,); None: all have weight 1."""
        values = self._values[: row_count(X)]
        kernel_block(X, self.points, self.kernel, values)
        K = np.ones((len(values), self.points.size + 1))
        K[:, :-1] = values
        if weight is not None:
            root = np.sqrt(weight, dtype=np.float64)[:, None]
            K *= root
            T = T * root
        self.gram += K.T @ K
        self.products += K.T @ T

    def choose(self, count: int) -> Int64:
        """``count`` candidates by number, rising; the constant is there before all of them."""
        return np.sort(pivots(self.gram, self.products, count + 1, first=len(self.gram) - 1)[1:])


def pivots(G: Float64, B: Float64, count: int, first: int) -> Int64:
    """Columns in the order in which they are taken, ``first`` before all; those that add nothing come last."""
    d, b, L = np.diag(G).copy(), B.copy(), np.zeros((len(G), count))
    floor, taken = FLOOR * d.max(), np.empty(count, np.int64)
    gain = np.zeros(len(G))
    gain[first] = np.inf
    for step in range(count):
        j = taken[step] = int(np.argmax(gain))
        if d[j] > floor:
            root = np.sqrt(d[j])
            L[:, step] = (G[:, j] - L[:, :step] @ L[j, :step]) / root
            b -= np.outer(L[:, step], b[j] / root)
            d -= np.square(L[:, step])
        gain = np.where(d > floor, np.square(b).sum(axis=1) / np.maximum(d, floor), 0.0)
        gain[taken[: step + 1]] = -1.0
    return taken


def targets_of(codes: Array, classes: int) -> Float64:
    """-1 and +1, a column for each class, or one for two classes; numbers as they are, where there are no classes."""
    if classes == 0:
        return codes[:, None].astype(np.float64)
    positives = [1] if classes == 2 else range(classes)
    return np.where(codes[:, None] == np.array(positives), 1.0, -1.0)
