"""Extensions of numba for compiled passes: methods of records, software prefetch, and maxima in vectors.

A record is a ``NamedTuple`` whose methods are plain Python (``rows.Dense``, ``losses.Hinge``). For each method name,
one ``overload_method`` gives numba the Python function of the record's class. A pass that calls the method is compiled
once for each combination of record types and cached on disk; the same code also runs uncompiled. A name is bound for
every named tuple in the process, also those of other packages; therefore the list has only the names that passes call.

A pass that visits rows in random order prefetches a row a few visits before it needs it. Without prefetch the visit of
a random row spends more time waiting for memory than computing (measured with 18 columns: 110 of 140 ns). Uncompiled,
``prefetch_entry`` does nothing; compiled, it is one instruction per cache line.
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
"""Floating-point transformations allowed in passes: sums may be reordered and fused. NaN and infinity keep their
meaning."""

_METHODS = {
    0: ("quadratic", "numeric"),
    1: ("sqnorm", "value", "slope", "second_derivative", "upper", "curvature", "value_slope_entropy"),
    2: ("dot", "conjugate", "conjugate_slope"),
    3: ("axpy", "similarity"),
    4: ("add_row", "axpy_over"),
}
"""Method names, by the number of arguments after self."""
METHODS_IN_STRICT_ORDER = {"add_row"}
"""Methods whose result depends on the order of their operations; no transformation is allowed in them."""


def _method_of(name: str) -> Callable[[Any], Callable[..., Any] | None]:
    # Numba calls this for every named tuple in the process, also those of other packages, whose class may lack the
    # method.
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
    options = {"fastmath": False if name in METHODS_IN_STRICT_ORDER else FAST, **NOT_FROM_C}
    overload_method(types.BaseNamedTuple, name, jit_options=options, strict=False)(templates[arguments])


for _arguments, _names in _METHODS.items():
    for _name in _names:
        _bridge(_name, _arguments)


ENTRIES_PER_CACHE_LINE = 64 // 4
"""Number of float32 entries in a cache line."""


def prefetch_entry(values: Any, position: int) -> None:
    """Prefetch the cache line that holds ``values[position]`` of a one-dimensional array."""


@intrinsic
def _prefetch_instruction(_: Any, values: Any, position: Any) -> Any:
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


@overload(prefetch_entry, jit_options=NOT_FROM_C, strict=False)
def _prefetch_entry(values: Any, position: Any) -> Any:
    return lambda values, position: _prefetch_instruction(values, position)  # noqa: PLW0108 (numba wants a Python function)


def larger(a: Any, b: Any) -> Any:
    """Return the larger of two numbers of the same type, none of which is NaN. A loop with it is compiled to vectors.

    Numba's ``max`` is a comparison and a selection without flags, and LLVM does not recognize a maximum in it.
    """
    return max(b, a)


def smaller(a: Any, b: Any) -> Any:
    """Return the smaller of two numbers; otherwise as ``larger``."""
    return min(b, a)


def _extremum(name: str) -> Any:
    """Return the intrinsic function of LLVM with two arguments called ``name``."""

    @intrinsic
    def call(_: Any, a: Any, b: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            kind = arguments[0].type
            function = builder.module.declare_intrinsic(name, [kind], ir.FunctionType(kind, [kind, kind]))
            return builder.call(function, arguments, fastmath=("nnan", "nsz"))

        return a(a, b), generate

    return call


_largest, _smallest = _extremum("llvm.maxnum"), _extremum("llvm.minnum")


@overload(larger, jit_options=NOT_FROM_C, strict=False)
def _larger(a: Any, b: Any) -> Any:
    return lambda a, b: _largest(a, b)  # noqa: PLW0108 (numba wants a Python function)


@overload(smaller, jit_options=NOT_FROM_C, strict=False)
def _smaller(a: Any, b: Any) -> Any:
    return lambda a, b: _smallest(a, b)  # noqa: PLW0108 (numba wants a Python function)


def prefetch_row_start(X: Rows, i: int) -> None:
    """Prefetch the position of row i in a CSR matrix, which ``prefetch_row`` needs later. Uncompiled, do nothing."""


@overload(prefetch_row_start, jit_options=NOT_FROM_C, strict=False)
def _prefetch_row_start(X: Any, i: Any) -> Any:
    if X.instance_class is Dense:
        return lambda X, i: None
    return lambda X, i: prefetch_entry(X.indptr, i)


def prefetch_row(X: Rows, i: int) -> None:
    """Prefetch row i. Uncompiled, do nothing."""


@overload(prefetch_row, jit_options=NOT_FROM_C, strict=False)
def _prefetch_row(X: Any, i: Any) -> Any:
    if X.instance_class is Dense:

        def dense(X: Any, i: Any) -> None:
            row = X.values[i]
            for j in range(0, row.size, ENTRIES_PER_CACHE_LINE):
                prefetch_entry(row, j)
            prefetch_entry(row, row.size - 1)

        return dense

    def sparse(X: Any, i: Any) -> None:
        start, stop = X.indptr[i], X.indptr[i + 1]
        data, indices = X.data[start:stop], X.indices[start:stop]
        end = min(data.size, 4 * ENTRIES_PER_CACHE_LINE)  # the hardware prefetches the rest of a long row
        for p in range(0, end, ENTRIES_PER_CACHE_LINE):
            prefetch_entry(data, p)
            prefetch_entry(indices, p)

    return sparse
