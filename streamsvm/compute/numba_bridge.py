"""What passes get from outside: methods of our records, and software prefetch.

A record is a ``NamedTuple`` whose methods are plain Python (``rows.Dense``, ``losses.Hinge``). For each method name one
``overload_method`` hands numba the Python function of the record's class; the pass that calls it is compiled once per
combination of record types and cached on disk, and the same line runs uncompiled. Names bind for every named tuple in
the process, so the list is short and stays here.

A pass that visits rows in random order asks for a row a few visits before it needs it. Without that a visit of a random
row waits for memory longer than it computes (measured: 18 columns, 110 ns of 140). Uncompiled, ``touch`` does nothing;
compiled, it is one instruction a cache line.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic, overload, overload_method

from streamsvm.compute.compiled import NOT_FROM_C
from streamsvm.rows import Dense, Rows

FAST = {"reassoc", "contract", "arcp", "nsz"}
"""Floating-point freedoms passes take: sums may be reordered and fused. NaN and infinity keep their meaning."""

_METHODS = {
    0: ("quadratic", "numeric"),
    1: ("sqnorm", "value", "slope", "second_derivative", "upper", "curvature", "value_slope_entropy"),
    2: ("dot", "conjugate", "conjugate_slope"),
    3: ("axpy", "similarity"),
    4: ("add_row", "axpy_over"),
}
"""Names by the number of arguments after self."""
STRICT = {"add_row"}
"""Methods that live by the order of their operations: no freedom is taken with them."""


def _method_of(name: str) -> Callable[[Any], Callable[..., Any] | None]:
    # numba asks for every named tuple of the process, those of other programs too: has its class such a method?
    def find(record: Any) -> Callable[..., Any] | None:
        return getattr(record.instance_class, name, None)

    return find


def _bridge(name: str, arguments: int) -> None:
    find = _method_of(name)
    templates: dict[int, Callable[..., Any]] = {
        0: find,
        1: lambda self, a: find(self),
        2: lambda self, a, b: find(self),
        3: lambda self, a, b, c: find(self),
        4: lambda self, a, b, c, d: find(self),
    }
    options = {"fastmath": False if name in STRICT else FAST, **NOT_FROM_C}
    overload_method(types.BaseNamedTuple, name, jit_options=options, strict=False)(templates[arguments])


for _arguments, _names in _METHODS.items():
    for _name in _names:
        _bridge(_name, _arguments)


LINE = 64 // 4
"""Float32 entries of a cache line."""


def touch(values: Any, position: int) -> None:
    """Ask for the cache line that holds ``values[position]`` of a one-dimensional array."""


@intrinsic
def _prefetch(_: Any, values: Any, position: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
        address = builder.bitcast(builder.gep(array.data, [arguments[1]]), byte)
        function_type = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
        name = "llvm.prefetch.p0"
        function = builder.module.globals.get(name) or ir.Function(builder.module, function_type, name)
        read, keep, data = word(0), word(3), word(1)
        builder.call(function, [address, read, keep, data])
        return context.get_dummy_value()

    return types.void(values, types.intp), generate


@overload(touch, jit_options=NOT_FROM_C, strict=False)
def _touch(values: Any, position: Any) -> Any:
    return lambda values, position: _prefetch(values, position)  # noqa: PLW0108 (numba wants a Python function)


def touch_start(X: Rows, i: int) -> None:
    """Ask for where row i lies, early enough for ``touch_row`` to know it; uncompiled, nothing happens."""


@overload(touch_start, jit_options=NOT_FROM_C, strict=False)
def _touch_start(X: Any, i: Any) -> Any:
    if X.instance_class is Dense:
        return lambda X, i: None
    return lambda X, i: touch(X.indptr, i)


def touch_row(X: Rows, i: int) -> None:
    """Ask for row i before it is needed; uncompiled, nothing happens."""


@overload(touch_row, jit_options=NOT_FROM_C, strict=False)
def _touch_row(X: Any, i: Any) -> Any:
    if X.instance_class is Dense:

        def dense(X: Any, i: Any) -> None:
            row = X.values[i]
            for j in range(0, row.size, LINE):
                touch(row, j)
            touch(row, row.size - 1)

        return dense

    def sparse(X: Any, i: Any) -> None:
        start, stop = X.indptr[i], X.indptr[i + 1]
        data, indices = X.data[start:stop], X.indices[start:stop]
        for p in range(0, min(data.size, 4 * LINE), LINE):  # of a long row the hardware fetches the rest
            touch(data, p)
            touch(indices, p)

    return sparse
