"""Products with the rows of a block in every format: dense, CSR, factored kernel features, rows of curves, and rows
whose features are not computed yet.

With rows x_i (n), each extended by its constant feature, and p = columns + 1:

    margins(X, w)           = X w            (n,) or (n, q) for several w
    adjoint(X, a, columns)  = X' a           (p,) or (p, q)
    gram(X, a, columns)     = X' diag(a) X   (p, p), a >= 0; rows with a = 0 cost nothing

``columns`` is a parameter because a CSR record does not hold it.

A Nystrom block is a factored pair, x_i = W' k_i. The product K W is formed only in ``gram``, for the rows with a > 0,
and in ``form_rows``, which joins rows of several blocks in one matrix. ``LazyRows`` hold raw rows from which kernel
values can be computed. A block of ``Curved`` rows is a factored pair too, x_i = B' h_i, in which h_i is sparse and B
block-diagonal; its rows stay a pair. Margins and adjoints are float64 sums of float32 entries (float64 entries if kernel features are
float64). Gram matrices are sums, in float64 and in a fixed order, of products of tiles of rows in the dtype of the
entries, so that the result depends only on the block. Idle threads compute strips of rows of margins, pieces of a sum,
and tiles of a Gram matrix.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from threading import local
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias
from weakref import ReferenceType, ref

import numpy as np
from numpy.typing import NDArray

from streamsvm.class_tags import saved_as
from streamsvm.compute import freed_memory, threading
from streamsvm.compute.blocks.curves import Curved
from streamsvm.compute.blocks.selection import take_rows
from streamsvm.compute.blocks.sums import two_sum
from streamsvm.compute.compiled import compiled
from streamsvm.compute.numba_bridge import FAST
from streamsvm.errors import DefectError
from streamsvm.rows import (
    CSR,
    Dense,
    Float32,
    Float64,
    Int32,
    Int64,
    Rows,
    Targets,
    copy_rows,
    row_count,
    row_slice,
    row_stack,
    row_where,
)
from streamsvm.type_aliases import Array

if TYPE_CHECKING:
    from streamsvm.compute.kernel_values.kernel_matrix import Points

WEIGHTS_CACHE_BYTES = 256 << 10
"""Bytes of lifted weights that a thread keeps: about those of ten classes on a thousand landmarks."""
TILE = 2048
"""Largest number of rows of a product. With more rows the error of a float32 product grows, and the cost of adding up
products falls."""
STRIP = 2048
"""Number of rows of margins in a strip; a thread takes at least four strips."""
PIECE_ENTRIES = 1 << 18
"""Minimum number of entries in a piece of a sum: some tenths of a millisecond of work for one thread."""
MAX_PIECES = 16
"""Largest number of pieces of a sum."""
SUMS_BYTES = 4 << 20
"""Largest total size of the sums of all pieces, unless a single one is larger."""
MAX_COMPONENTS_FOR_FLOAT64 = 256
"""Largest number of components for which Gram matrices are computed in float64. Raw columns may be nearly dependent, so
that float32 would not do; kernel features, of which there are usually more, are whitened."""


@compiled(fastmath=FAST)
def decision_values(X: Rows, W: Float64, out: Float64) -> None:
    """Set out[i, k] = W[k].x_i. Given: X (n rows), W (k, d + 1). Changed: out (n, k)."""
    for i in range(out.shape[0]):
        for k in range(W.shape[0]):
            out[i, k] = X.dot(i, W[k])


@compiled(fastmath=FAST)
def square_projections(X: CSR, chosen: Int64, W: Float64, out: Float64) -> None:
    """Set out[i] = ||W' x_c||^2, c = chosen[i]. Given: X, chosen (n,), W (d + 1, k) C-contiguous. Changed: out (n,)."""
    projection = np.empty(W.shape[1])
    for i in range(out.size):
        start, stop = X.indptr[chosen[i]], X.indptr[chosen[i] + 1]
        data, indices = X.data[start:stop], X.indices[start:stop]
        projection[:] = X.bias * W[W.shape[0] - 1]
        for p in range(data.size):
            value, row = np.float64(data[p]), W[np.uint32(indices[p])]
            for k in range(projection.size):
                projection[k] += value * row[k]
        out[i] = (projection * projection).sum()


class _WeightsCache(local):
    """The lifted weights of a thread, by the identity of the projection, the constant feature and the bytes of the
    weights.
    """

    def __init__(self) -> None:
        self.entries: dict[tuple[int, float, bytes], tuple[ReferenceType[Array], Float64]] = {}
        self.nbytes = 0


_WEIGHTS = _WeightsCache()


def lift_weights(projection: Array, bias: float, W: Float64) -> Float64:
    """Return the weights (q, m + 1) on kernel values that correspond to weights (q, r + 1) on features, constant
    feature included.

    The result must not be changed. It is computed once for all blocks that are evaluated at the same weights w: for a
    block of a thousand rows and a thousand landmarks, v = W w takes as long as f = K v, and a pass evaluates hundreds
    of blocks at the same w. Each thread caches its last results; computing them again would give the same bits.
    """
    key = (id(projection), bias, W.tobytes())
    if key in _WEIGHTS.entries:
        reference, weights = _WEIGHTS.entries[key]
        if reference() is projection:  # and not a later array with the same id
            return weights
    lifted = np.empty((len(projection), len(W)))
    decision_values(Dense(projection, 0.0), W, lifted)
    weights = np.ascontiguousarray(np.concatenate([lifted.T, bias * W[:, -1:]], axis=1))
    nbytes = len(key[-1]) + weights.nbytes
    if _WEIGHTS.nbytes + nbytes > WEIGHTS_CACHE_BYTES:
        _WEIGHTS.entries.clear()
        _WEIGHTS.nbytes = 0
    if nbytes <= WEIGHTS_CACHE_BYTES:
        _WEIGHTS.entries[key] = ref(projection), weights
        _WEIGHTS.nbytes += nbytes
    return weights


@saved_as("rows.unformed")
class LazyRows(NamedTuple):
    """Rows x_i whose features W' k(x_i) are computed later (``kernel_values.kernel_matrix``)."""

    rows: Rows
    """The rows at which the kernel is evaluated."""
    points: Points
    """The landmarks z_1 .. z_m, in the dtype of the kernel values."""
    kernel: Any
    """The kernel, a record of ``kernels.py``."""
    projection: Array
    """The matrix W, (m, r) float32, or float64."""
    bias: float
    """The value of the constant feature of the features."""
    by_differences: bool
    """Whether distances are computed from differences (``compute.kernel_values.kernel_matrix.kernel_block``)."""

    def where(self, chosen: NDArray[np.bool_]) -> LazyRows:
        """Return copies of the rows where ``chosen`` (n,) is true."""
        return self._replace(rows=row_where(self.rows, chosen))

    def kernel_values(self) -> Array:
        """Return k(x_i, z_j) of every row, (n, m), in the dtype of the landmarks."""
        from streamsvm.compute.kernel_values.kernel_matrix import kernel_block

        values = np.empty((row_count(self.rows), self.points.size), self.points.columns.dtype)
        kernel_block(self.rows, self.points, self.kernel, values, by_differences=self.by_differences)
        return values


def stack_lazy_rows(parts: Sequence[LazyRows]) -> LazyRows:
    """Join the rows of several blocks of the same feature map."""
    return parts[0]._replace(rows=row_stack([part.rows for part in parts]))


def arrays_of(X: Any) -> list[Array]:
    """Return the arrays that hold rows in memory, whatever their format."""
    record: Dense | CSR | Any = X.rows if isinstance(X, LazyRows | Curved) else X
    return [array for array in record if isinstance(array, np.ndarray)]


@saved_as("rows.factored")
class Factored(NamedTuple):
    """Rows W' k_i as a factored pair: kernel values (n, m) and projection (m, r), float32 or float64."""

    kernel_values: Array
    """The kernel values k_i, (n, m) float32, or float64."""
    projection: Array
    """The matrix W, (m, r) float32, or float64."""
    bias: float = 0.0
    """The value of the constant feature."""
    origin: LazyRows | None = None
    """The same rows without kernel values, if it is better to compute the kernel values again than to keep them."""


Operand: TypeAlias = Rows | Factored | Curved
StoredRows: TypeAlias = Operand | LazyRows
"""Rows in any form in which a solver stores them; the features of some of them are computed later."""


def shape(X: StoredRows, columns: int) -> tuple[int, int]:
    """Return (rows, components). ``columns`` is used for CSR rows, whose record does not hold it."""
    if isinstance(X, LazyRows):
        return row_count(X.rows), X.projection.shape[1] + 1
    if isinstance(X, Factored):
        return len(X.kernel_values), X.projection.shape[1] + 1
    if isinstance(X, Curved):
        return row_count(X.rows), columns + 1
    return row_count(X), (X.values.shape[1] if isinstance(X, Dense) else columns) + 1


def entry_type(X: StoredRows) -> np.dtype[Any]:
    """Return the dtype of the entries of rows: float64 for features that are computed in float64, else float32."""
    if isinstance(X, LazyRows):
        return X.points.columns.dtype
    if isinstance(X, Factored):
        return X.kernel_values.dtype
    if isinstance(X, Curved):
        return X.rows.data.dtype
    return X.values.dtype if isinstance(X, Dense) else X.data.dtype


def is_rounded_when_formed(X: StoredRows) -> bool:
    """Return whether forming a row in memory rounds it to float32, so that it differs slightly from the factored
    row.
    """
    return isinstance(X, Factored | LazyRows) and entry_type(X) == np.float32


def margins(X: Operand, w: Float64) -> Float64:
    """Return X w: (n,) for w (p,), (n, q) for w (p, q)."""
    W = np.ascontiguousarray(np.atleast_2d(w.T))
    if isinstance(X, Factored):
        W, X = lift_weights(X.projection, X.bias, W), Dense(X.kernel_values, 1.0)
    elif isinstance(X, Curved):
        W, X = X.basis.lift(W), X.rows
    rows, count = X, row_count(X)
    values = np.empty((count, len(W)))

    def compute_strip(start: int, stop: int) -> None:
        part = rows if stop - start == count else row_slice(rows, start, stop)
        decision_values(part, W, values[start:stop])

    threading.in_strips(compute_strip, count, STRIP)
    return values if w.ndim == 2 else values[:, 0]


def adjoint(X: Operand, a: Float64, columns: int) -> Float64:
    """Return X' a: (p,) for a (n,), (p, q) for a (n, q). For dense and CSR rows, and for H' a of curves, it is as accurate
    as a sum in twice the precision.
    """
    A = np.ascontiguousarray(np.atleast_2d(a.T), np.float64)
    if isinstance(X, Factored):
        sums = np.zeros((len(A), X.kernel_values.shape[1] + 1))
        add_rows(Dense(X.kernel_values, X.bias), A, sums)
        out = np.zeros((len(A), X.projection.shape[1] + 1))
        add_rows(Dense(X.projection, 0.0), np.ascontiguousarray(sums[:, :-1]), out)
        out[:, -1] = sums[:, -1]
    elif isinstance(X, Curved):
        out = X.basis.adjoint(_sum_in_pieces(X.rows, A, columns + 1))
    else:
        out = _sum_in_pieces(X, A, shape(X, columns)[1])
    return out.T if a.ndim == 2 else out[0]


def _sum_in_pieces(X: Rows, A: Float64, components: int) -> Float64:
    """Return sum_i A[k, i] x_i, (q, p) for A (q, n), computed in pieces of rows on several threads. The block alone
    determines the pieces.

    The rounding errors within and between the pieces are accumulated, so that the result hardly ever depends on the
    number of pieces.
    """
    rows = row_count(X)
    entries = max(1, (X.values.size if isinstance(X, Dense) else len(X.data)) // max(1, rows))
    max_pieces = max(1, min(MAX_PIECES, SUMS_BYTES // (16 * len(A) * components)))
    edges = [*range(0, rows, max(PIECE_ENTRIES // entries, -(-rows // max_pieces), 1)), rows]
    sums = np.zeros((max(1, len(edges) - 1), 2, len(A), components))

    def add(first: int, last: int) -> None:
        for number, (start, stop) in enumerate(pairwise(edges[first : last + 1]), first):
            all_rows = stop - start == rows
            part, factors = (X, A) if all_rows else (row_slice(X, start, stop), np.ascontiguousarray(A[:, start:stop]))
            sum_rows(part, factors, sums[number, 0], sums[number, 1])

    threading.in_strips(add, len(edges) - 1, 1, least=1)
    (out, low), *others = sums
    for piece, piece_low in others:
        out, error = two_sum(out, piece)
        low = low + (piece_low + error)
    total: Float64 = out + low
    return total


def gram(X: Operand, a: Float32 | Float64, columns: int) -> Float64:
    """Return X' diag(a) X, (p, p)."""
    _, p = shape(X, columns)
    if isinstance(X, Curved):
        return X.basis.congruent(gram(X.rows, a, columns))
    total = np.zeros((p, p))
    if isinstance(X, CSR):
        sparse_gram(X.data, X.indices, X.indptr, X.bias, a, total)
        return total + np.tril(total, -1).T
    rows = np.flatnonzero(a)
    size = _tile_rows(len(rows))
    lanes = threading.threads_that_fit(tile_bytes(p, _kernel_values(X), entry_type(X).itemsize))
    dtype = np.float64 if p <= MAX_COMPONENTS_FOR_FLOAT64 else entry_type(X)
    buffers = np.empty((lanes, size, p), dtype)

    def product(number: int, lane: int) -> Array:
        part = rows[size * number : size * (number + 1)]
        tile = buffers[lane, : len(part)]
        _scale_rows(X, part, np.sqrt(a[part]).astype(dtype, copy=False), tile)
        tile_product: Array = tile.T @ tile
        return tile_product

    def add(tile_product: Array) -> None:
        np.add(total, tile_product, out=total)

    threading.in_turn(product, add, -(-len(rows) // size), lanes)
    return total


def _tile_rows(rows: int) -> int:
    """Return the number of rows of each tile of ``rows`` rows, at most TILE.

    If there is more than one tile, there is an even number of tiles of equal size, so that two threads get the same
    number.
    """
    count = -(-rows // TILE)
    return max(1, -(-rows // (count + count % 2 if count > 1 else 1)))


def where(X: StoredRows, chosen: NDArray[np.bool_]) -> StoredRows:
    """Return copies of the rows where ``chosen`` (n,) is true."""
    if isinstance(X, LazyRows):
        return X.where(chosen)
    if isinstance(X, Factored):
        origin = None if X.origin is None else X.origin.where(chosen)
        return Factored(X.kernel_values[chosen], X.projection, X.bias, origin)
    if isinstance(X, Curved):
        return X.with_rows(row_where(X.rows, chosen))
    return row_where(X, chosen)


def keep_rows(X: StoredRows, chosen: NDArray[np.bool_]) -> StoredRows:
    """Return copies of the rows where ``chosen`` (n,) is true, from which features can be formed.

    Kernel values are copied only if they are not to be computed again (``Factored.origin``).
    """
    if isinstance(X, Factored) and X.origin is not None:
        X = X.origin
    return copy_operand(X) if chosen.all() and not isinstance(X, LazyRows) else where(X, chosen)


def copy_operand(X: Operand) -> Operand:
    """Return a copy of all rows. The projection of a factored pair is shared, not copied."""
    if isinstance(X, Factored):
        return Factored(X.kernel_values.copy(), X.projection, X.bias)
    if isinstance(X, Curved):
        return X.with_rows(copy_rows(X.rows))
    return copy_rows(X)


def stack(parts: Sequence[StoredRows]) -> StoredRows:
    """Join rows of several blocks that have the same format."""
    first = parts[0]
    if isinstance(first, LazyRows):
        return stack_lazy_rows([part for part in parts if isinstance(part, LazyRows)])
    if isinstance(first, Factored):
        values = [part.kernel_values for part in parts if isinstance(part, Factored)]
        return Factored(np.concatenate(values), first.projection, first.bias)
    if isinstance(first, Curved):
        return first.with_rows(row_stack([part.rows for part in parts if isinstance(part, Curved)]))
    return row_stack([part for part in parts if isinstance(part, Dense | CSR)])


def gram_bytes(components: int, kernel_values: int = 0, entry: int = 4) -> int:
    """Return the peak memory of ``gram`` in bytes: the sum, and for each thread a product, a tile, and the tile's
    kernel values if the block is factored. ``entry``: bytes of an entry of a row.
    """
    each = tile_bytes(components, kernel_values, entry)
    return 8 * components * components + threading.threads_that_fit(each) * each


def tile_bytes(components: int, kernel_values: int, entry: int = 4) -> int:
    """Return the bytes of a tile of ``gram`` and of its product. ``entry``: bytes of an entry of a row."""
    return entry * components * components + entry * TILE * (components + kernel_values)


def _kernel_values(X: Dense | Factored) -> int:
    return len(X.projection) if isinstance(X, Factored) else 0


def _scale_rows(X: Dense | Factored, rows: Int64, factors: Array, out: Array) -> None:
    """Fill ``out`` (k, p) with the chosen rows, constant feature included, each multiplied by its factor."""
    if isinstance(X, Factored):
        kernel_values = X.kernel_values[rows]
        kernel_values *= factors[:, None]
        np.matmul(kernel_values, X.projection, out=out[:, :-1])
    else:
        np.multiply(X.values[rows], factors[:, None], out=out[:, :-1])
    out[:, -1] = X.bias * factors


@compiled(fastmath=FAST)
def add_rows(X: Rows, A: Float64, out: Float64) -> None:
    """Add sum_i A[k, i] x_i to ``out`` (q, p). Given: X (n rows), A (q, n)."""
    for i in range(A.shape[1]):
        for k in range(A.shape[0]):
            if A[k, i] != 0.0:
                X.axpy(i, A[k, i], out[k])


@compiled(fastmath=FAST)
def sum_rows(X: Rows, A: Float64, out: Float64, low: Float64) -> None:
    """Add sum_i A[k, i] x_i to ``out`` + ``low`` (q, p), where ``low`` accumulates the rounding errors of the sums.

    Only the rounding errors of the products are lost.
    """
    for i in range(A.shape[1]):
        for k in range(A.shape[0]):
            if A[k, i] != 0.0:
                X.add_row(i, A[k, i], out[k], low[k])


@compiled(fastmath=FAST)
def sparse_gram(data: Float32, indices: Int32, indptr: Int64, bias: float, a: Float32 | Float64, out: Float64) -> None:
    """Add sum_i a_i x_i x_i' to the lower triangle of ``out`` (p, p). Indices must be ascending within each row."""
    last = out.shape[0] - 1
    for i in range(a.size):
        if a[i] == 0.0:
            continue
        for p in range(indptr[i], indptr[i + 1]):
            scaled, j = a[i] * np.float64(data[p]), indices[p]
            for q in range(indptr[i], p + 1):
                out[j, indices[q]] += scaled * data[q]
            out[last, j] += scaled * bias
        out[last, last] += a[i] * bias * bias


def form_rows(parts: list[StoredRows], order: Int64) -> Rows | Curved:
    """Return the features of the rows of all parts, in the order ``order`` (n,). Rows of curves stay pairs.

    ``parts`` is emptied, and each part is freed after its use, so that there are never two copies of all rows. The
    product K W is computed tile by tile on several threads. The blocks alone determine the tiles, so that the features
    do not depend on which threads were idle.
    """
    first = parts[0]
    if isinstance(first, Curved):
        basis = first.basis
        parts[:] = [part.rows for part in parts if isinstance(part, Curved)]
        del first
        rows = form_rows(parts, order)
        assert isinstance(rows, CSR)
        return Curved(rows, basis)
    if isinstance(first, CSR):
        joined = _join_sparse(parts)
        return joined if np.array_equal(order, np.arange(len(order))) else take_rows(joined, order)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    components, bias = shape(first, 0)[1] - 1, first.bias
    input_components = first.projection.shape[0] if isinstance(first, Factored | LazyRows) else components
    dtype = entry_type(first)
    lanes = threading.threads_that_fit(dtype.itemsize * TILE * (input_components + components))
    values = np.empty((len(order), components), dtype)
    freed = 0 if isinstance(first, LazyRows) else values.itemsize * components
    del first

    def form(tile: tuple[list[StoredRows], Int64]) -> None:
        rows = stack(tile[0])
        tile[0].clear()
        _write_features(rows, tile[1], values)

    threading.share_out(_feature_tiles(parts, place, freed), form, lanes)
    # Freed memory of many small matrices would otherwise add up to as much as one large matrix.
    if values.nbytes > freed_memory.MIN_BYTES:
        freed_memory.give_back()
    return Dense(values, bias)


def _feature_tiles(parts: list[StoredRows], place: Int64, row_bytes: int) -> Iterator[tuple[list[StoredRows], Int64]]:
    """Yield tiles of about TILE rows: parts, which are removed from the list, and the places of their rows in the
    result.

    ``row_bytes``: bytes that are freed with each row that was used.
    """
    start = freed = 0
    while parts:
        taken = _take_parts(parts)
        count = sum(shape(part, 0)[0] for part in taken)
        yield taken, place[start : start + count]
        start, freed = start + count, freed + count * row_bytes
        if freed > freed_memory.STEP_BYTES:
            freed_memory.give_back()
            freed = 0


def _join_sparse(parts: list[Any]) -> CSR:
    """Join CSR parts in one matrix; each part is freed as soon as it is copied."""
    counts = [(row_count(part), len(part.data)) for part in parts]
    rows, entries, bias = sum(n for n, _ in counts), sum(m for _, m in counts), parts[0].bias
    data, indices, indptr = np.empty(entries, np.float32), np.empty(entries, np.int32), np.zeros(rows + 1, np.int64)
    row = start = 0
    for n, m in counts:
        part = parts.pop(0)
        data[start : start + m], indices[start : start + m] = part.data, part.indices
        indptr[row + 1 : row + n + 1] = part.indptr[1:] + start
        row, start = row + n, start + m
    return CSR(data, indices, indptr, bias)


def _take_parts(parts: list[StoredRows]) -> list[StoredRows]:
    """Remove the first parts from the list until they have TILE rows, and return them. Products of few rows would be
    slow.
    """
    taken, rows = [], 0
    while parts and rows < TILE:
        taken.append(parts.pop(0))
        rows += shape(taken[-1], 0)[0]
    return taken


def _write_features(X: Any, places: Int64, values: Array) -> None:
    """Write the features of rows to their places in ``values``, without an intermediate copy if the places are
    contiguous.
    """
    if not isinstance(X, Factored | LazyRows):
        values[places] = X.values
        return
    kernel_values = X.kernel_values if isinstance(X, Factored) else X.kernel_values()
    first, last = int(places[0]), int(places[-1])
    if last - first == len(places) - 1 and bool((np.diff(places) > 0).all()):
        np.matmul(kernel_values, X.projection, out=values[first : last + 1], casting="same_kind")
    else:
        values[places] = kernel_values @ X.projection


def select_columns(X: Operand, chosen: Int64, columns: int) -> Operand:
    """Return the rows with only the ``chosen`` columns (k,), ascending and renumbered from 0; the constant feature
    stays.

    If all columns are chosen, return X itself. ``columns``: the number of columns of X.
    """
    if isinstance(X, Factored | Curved):
        raise DefectError(
            "single columns of kernel features and curves cannot be selected",
            hint="this is a defect of streamsvm: report it",
        )
    if len(chosen) == columns:
        return X
    if isinstance(X, Dense):
        return Dense(np.ascontiguousarray(X.values[:, chosen]), X.bias)
    place = np.full(columns, -1, np.int32)
    place[chosen] = np.arange(len(chosen), dtype=np.int32)
    indices = place[X.indices]
    kept = indices >= 0
    indptr = np.concatenate([[0], np.cumsum(kept)])[X.indptr].astype(np.int64)
    return CSR(X.data[kept], indices[kept], indptr, X.bias)


def sign_rows(X: Operand, y: Targets, columns: int, constant: float) -> Dense | CSR:
    """Return copies y_i x_i of the rows; y (n,) is +1 or -1.

    If the constant feature of X is not 0, it becomes an ordinary column after all ``columns``. ``constant``: the
    constant feature of the result.
    """
    if isinstance(X, Factored | Curved):
        raise DefectError(
            "rows of kernel features and curves cannot be multiplied by a sign",
            hint="this is a defect of streamsvm: report it",
        )
    has_constant = X.bias != 0.0
    if isinstance(X, Dense):
        values = np.empty((len(y), columns + has_constant), np.float32)
        np.multiply(X.values, y[:, None], out=values[:, :columns])
        values[:, columns:] = X.bias * y[:, None]
        return Dense(values, constant)
    data = X.data * np.repeat(y, np.diff(X.indptr)).astype(np.float32)
    if not has_constant:
        return CSR(data, X.indices, X.indptr, constant)
    ends = X.indptr[1:]
    data = np.insert(data, ends, (X.bias * y).astype(np.float32))
    indices = np.insert(X.indices, ends, np.int32(columns))
    return CSR(data, indices, X.indptr + np.arange(len(y) + 1), constant)
