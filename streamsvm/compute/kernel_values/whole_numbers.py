"""Squared distances between rows of small whole numbers, such as pixels and counts, without rounding errors.

Given rows x_i (n) and points z_j (m) with entries 0, 1, ..., 255, in float32. With a = x - 128, which fits a signed byte,

    ||x - z||^2 = (||x||^2) + (||z||^2 - 256 sum z) - 2 a.z           in int32, exact up to MAX_ENTRIES columns.

A processor with the instruction VPDPBUSD (AVX-512 VNNI) adds four products of a signed and an unsigned byte to each of
16 int32: 4 to 5 times the rate of float32 products. On others the products (x - 128).(z - 128) are float32: all their
partial sums are whole numbers below 2^24 for at most FLOAT32_ENTRIES columns, hence exact, and wider rows are cut into
parts. Both ways give the same bits.

The micro-kernel keeps 8 rows times 32 points in registers. Points are packed as [points / 32][columns / 4][32][4], so
that four entries of 16 points are one register.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from llvmlite import binding, ir  # type: ignore[import-untyped]
from numba import config, types
from numba.extending import intrinsic

from streamsvm.compute.compiled import compiled
from streamsvm.compute.numba_bridge import FAST
from streamsvm.rows import Float32, Int32
from streamsvm.type_aliases import Array

MOST = 255
"""The largest entry."""
CENTER = 128
"""Subtracted from the entries of one side, so that they fit a signed byte."""
MIN_ENTRIES = 100
"""For fewer columns float32 products take less time than the conversion of rows."""
MAX_ENTRIES = (2**31 - 1) // (2 * MOST * MOST)
"""Maximum number of columns: no intermediate number exceeds int32."""
FLOAT32_ENTRIES = 2**24 // CENTER**2
"""Maximum number of columns of a float32 product that is exact."""
ROWS, POINTS, QUAD = 8, 32, 4
"""Rows and points of a micro-kernel, and the number of products that the instruction adds."""
LANES = 16
"""Number of int32 in a register."""
HAS_INSTRUCTION = bool(binding.get_host_cpu_features().get("avx512vnni")) and not getattr(config, "DISABLE_JIT", False)
"""Whether the processor has VPDPBUSD for 512 bits."""


def is_exact_faster(values: Float32) -> bool:
    """Return whether rows (n, d) are whole numbers from 0 to MOST, and so wide that integers are faster than float32."""
    return MIN_ENTRIES <= values.shape[1] <= MAX_ENTRIES and bool(are_whole(values))


@compiled()
def are_whole(values: Float32) -> bool:
    """Return whether all entries (n, d) are whole numbers from 0 to MOST."""
    for i in range(len(values)):
        row, count = values[i], 0
        for j in range(row.size):
            value = row[j]
            count += not (value >= 0.0 and value <= MOST and np.float32(np.uint8(value)) == value)
        if count:
            return False
    return True


@intrinsic
def _multiply_bytes(_: Any, rows: Any, row_bytes: Any, packed: Any, quads: Any, out: Any, out_bytes: Any) -> Any:
    """Set out[i, j] (ROWS, POINTS) int32 to sum_k a_ik z_jk, from the addresses of the rows (int8), of the packed points
    (uint8) and of ``out``. ``row_bytes``, ``out_bytes``: the distances between rows; ``quads``: columns / QUAD.
    """

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        rows, row_bytes, packed, quads, out, out_bytes = arguments
        i32, i64 = ir.IntType(32), ir.IntType(64)
        lanes, in_bytes = ir.VectorType(i32, LANES), ir.VectorType(ir.IntType(8), QUAD * LANES)
        by_bytes = binding.llvm_version_info[0] >= 22  # the operands were int32 before
        kind = in_bytes if by_bytes else lanes
        name, registers = "llvm.x86.avx512.vpdpbusd.512", POINTS // LANES
        add_products = builder.module.globals.get(name) or ir.Function(
            builder.module, ir.FunctionType(lanes, [lanes, kind, kind]), name
        )
        before, loop, done = builder.block, builder.append_basic_block("quads"), builder.append_basic_block("store")
        builder.branch(loop)
        builder.position_at_end(loop)
        k = builder.phi(i64)
        k.add_incoming(i64(0), before)
        sums = [builder.phi(lanes) for _ in range(ROWS * registers)]
        for total in sums:
            total.add_incoming(ir.Constant(lanes, [0] * LANES), before)
        place = builder.add(packed, builder.mul(k, i64(QUAD * POINTS)))
        points = []
        for j in range(registers):
            loaded = builder.load(builder.inttoptr(builder.add(place, i64(QUAD * LANES * j)), lanes.as_pointer()))
            loaded.align = 1
            points.append(loaded)
        offset, new = builder.mul(k, i64(QUAD)), []
        for i in range(ROWS):
            place = builder.add(builder.add(rows, builder.mul(row_bytes, i64(i))), offset)
            quad = builder.load(builder.inttoptr(place, i32.as_pointer()))
            quad.align = 1
            one = builder.insert_element(ir.Constant(lanes, ir.Undefined), quad, i32(0))
            every = builder.shuffle_vector(one, ir.Constant(lanes, ir.Undefined), ir.Constant(lanes, [0] * LANES))
            for j in range(registers):
                pair = [points[j], every]
                operands = [builder.bitcast(one, in_bytes) for one in pair] if by_bytes else pair
                new.append(builder.call(add_products, [sums[i * registers + j], *operands]))
        following = builder.add(k, i64(1))
        k.add_incoming(following, loop)
        for total, result in zip(sums, new, strict=True):
            total.add_incoming(result, loop)
        builder.cbranch(builder.icmp_signed("<", following, quads), loop, done)
        builder.position_at_end(done)
        for i in range(ROWS):
            for j in range(registers):
                place = builder.add(builder.add(out, builder.mul(out_bytes, i64(i))), i64(4 * LANES * j))
                builder.store(new[i * registers + j], builder.inttoptr(place, lanes.as_pointer())).align = 1

    address, size = types.uintp, types.intp
    return types.void(address, size, address, size, address, size), generate


class WholePoints(NamedTuple):
    """Points whose entries are whole numbers, in the layout for products."""

    size: int
    """The number of points m."""
    packed: Array
    """uint8 (blocks, columns / QUAD, POINTS, QUAD): the points; empty if products are float32."""
    columns: Float32
    """(d, m): z - CENTER; empty if the processor has the instruction."""
    terms: Int32
    """(m,) what is added to the square of a row: ||z||^2 - 256 sum z; or ||z - CENTER||^2."""


def pack_points(rows: Float32) -> WholePoints:
    """Return the points of a matrix of whole numbers with one point per row (m, d)."""
    m, d = rows.shape
    if not HAS_INSTRUCTION:
        centered = rows - np.float32(CENTER)
        squares = np.einsum("jk,jk->j", centered, centered, dtype=np.float64)
        empty = np.empty((0, 0, POINTS, QUAD), np.uint8)
        return WholePoints(m, empty, np.ascontiguousarray(centered.T), squares.astype(np.int32))
    packed, terms = np.zeros((-(-m // POINTS), -(-d // QUAD), POINTS, QUAD), np.uint8), np.empty(m, np.int32)
    _pack(rows, packed, terms)
    return WholePoints(m, packed, np.empty((0, 0), np.float32), terms)


def exact_half_squares(values: Float32, Z: WholePoints, out: Array) -> None:
    """Set out[i, j] = -1/2 ||x_i - z_j||^2, (n, m) float32 or float64, for rows x_i of whole numbers (n, d)."""
    n, d = values.shape
    if HAS_INSTRUCTION:
        width = QUAD * Z.packed.shape[1]
        a, squares = np.zeros((ROWS * -(-n // ROWS), width), np.int8), np.empty(n, np.int32)
        _to_bytes(values, a, squares)
        tile = np.empty((ROWS, POINTS * len(Z.packed)), np.int32)
        _half_squares_by_bytes(a, Z.packed, squares, Z.terms, tile, out)
        return
    centered = values - np.float32(CENTER)
    squares = np.einsum("ij,ij->i", centered, centered, dtype=np.float64).astype(np.int32)
    products = np.zeros((n, Z.size), np.int32)
    for start in range(0, d, FLOAT32_ENTRIES):
        part = slice(start, start + FLOAT32_ENTRIES)
        products += (centered[:, part] @ Z.columns[part]).astype(np.int32)
    _half_squares_of_products(products, squares, Z.terms, out)


@compiled()
def _pack(rows: Float32, packed: Array, terms: Int32) -> None:
    for r in range(len(rows)):
        block, place, row, square, total = r // POINTS, r % POINTS, rows[r], 0, 0
        for j in range(row.size):
            value = int(row[j])
            packed[block, j // QUAD, place, j % QUAD] = value
            square += value * value
            total += value
        terms[r] = square - 2 * CENTER * total


@compiled(fastmath=FAST)
def _to_bytes(values: Float32, out: Array, squares: Int32) -> None:
    """Set out = values - CENTER, and the squared norms of the values.

    With a = x - CENTER, ||x||^2 = sum a^2 + 2 CENTER sum a + d CENTER^2. Both sums are float32, and exact over
    FLOAT32_ENTRIES columns: that is a loop of vectors.
    """
    n, d = values.shape
    for i in range(n):
        total = d * CENTER * CENTER
        for start in range(0, d, FLOAT32_ENTRIES):
            stop = min(start + FLOAT32_ENTRIES, d)
            row, bytes_of_row = values[i, start:stop], out[i, start:stop]
            first, second = np.float32(0), np.float32(0)
            for j in range(row.size):
                centered = row[j] - np.float32(CENTER)
                bytes_of_row[j] = np.int8(centered)
                first += centered
                second += centered * centered
            total += int(second) + 2 * CENTER * int(first)
        squares[i] = total


@compiled(fastmath=FAST)
def _half_squares_by_bytes(a: Array, packed: Array, squares: Int32, terms: Int32, tile: Int32, out: Array) -> None:
    """Set out[i, j] = -1/2 ||x_i - z_j||^2. ``a`` (n rounded up to ROWS, columns) int8: x - CENTER. ``tile``: memory for
    the products of ROWS rows.
    """
    n, m = out.shape
    half = out.dtype.type(0.5)
    for start in range(0, n, ROWS):
        rows = np.uintp(a.ctypes.data) + np.uintp(start * a.strides[0])
        for block in range(len(packed)):
            points = np.uintp(packed.ctypes.data) + np.uintp(block * packed.strides[0])
            place = np.uintp(tile.ctypes.data) + np.uintp(4 * POINTS * block)
            _multiply_bytes(rows, a.strides[0], points, packed.shape[1], place, tile.strides[0])
        for i in range(min(ROWS, n - start)):
            products, square, values = tile[i], squares[start + i], out[start + i]
            for j in range(m):
                values[j] = -half * out.dtype.type(np.int32(square + terms[j] - np.int32(2) * products[j]))


@compiled(fastmath=FAST)
def _half_squares_of_products(products: Int32, squares: Int32, terms: Int32, out: Array) -> None:
    """Set out[i, j] = -1/2 ||x_i - z_j||^2 from the products (n, m) and squared norms of rows minus CENTER."""
    n, m = out.shape
    half = out.dtype.type(0.5)
    for i in range(n):
        for j in range(m):
            out[i, j] = -half * out.dtype.type(np.int32(squares[i] + terms[j] - np.int32(2) * products[i, j]))
