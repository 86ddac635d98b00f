"""The bridge: methods of our records become callable inside compiled passes.

A record is a ``NamedTuple`` whose methods are plain Python (``rows.Dense``, ``losses.Hinge``). For each method name one
``overload_method`` hands numba the Python function of the record's class; the pass that calls it is compiled once per
combination of record types and cached on disk, and the same line runs uncompiled. Names bind for every named tuple in
the process, so the list is short and stays here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import types
from numba.extending import overload, overload_method

from streamsvm.compute.compiled import NOT_FROM_C
from streamsvm.compute.prefetch import LINE, touch
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


for _arguments, _names in _METHODS.items():
    for _name in _names:
        _bridge(_name, _arguments)
