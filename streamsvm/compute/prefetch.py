"""Software prefetch: a pass that visits rows in random order asks for a row a few visits before it needs it.

Without it a visit of a random row waits for memory longer than it computes (measured: 18 columns, 110 ns of 140).
Uncompiled, ``touch`` does nothing; compiled, it is one instruction a cache line.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic, overload

from streamsvm.compute.compiled import NOT_FROM_C

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
