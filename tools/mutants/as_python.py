"""The passes that a mutant changes run as Python, and so do those that inline them: all others stay machine code.

Nothing is compiled for a trial then, and what the cache of numba holds is used. What numba alone calls, the bodies that
``overload`` hands it, cannot be changed this way.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Iterable, Iterator
from typing import Any

from numba.core.dispatcher import Dispatcher

Passes = dict[int, Any]
"""Passes by their identity."""


def all_passes() -> Passes:
    """Every pass that a loaded module of the package has by a name."""
    return {
        id(found): found
        for name, module in list(sys.modules.items())
        if name.startswith("streamsvm.")
        for found in vars(module).values()
        if isinstance(found, Dispatcher) and found.py_func.__module__.startswith("streamsvm.")
    }


def inlining(passes: Passes, functions: Iterable[types.FunctionType]) -> Passes:
    """Those among some passes that are made of some functions, directly or through others."""
    wanted = {id(function) for function in functions}
    found = {key: one for key, one in passes.items() if id(one.py_func) in wanted}
    while True:
        more = {key: one for key, one in passes.items() if key not in found and refers(one.py_func, found)}
        if not more:
            return found
        found |= more


def refers(function: types.FunctionType, passes: Passes) -> bool:
    """Whether a function names one of some passes, by itself or as an attribute of a module."""
    names = set(_names(function.__code__))
    values = [function.__globals__[name] for name in names if name in function.__globals__]
    modules = [vars(value) for value in values if isinstance(value, types.ModuleType)]
    values += [module[name] for module in modules for name in names if name in module]
    return any(id(value) in passes for value in values)


def put_in_place(passes: Passes) -> None:
    """Exchange some passes for the Python they are made of, in every module of the package and of the tests."""
    for one in passes.values():
        one.py_func.__dict__.setdefault("py_func", one.py_func)  # what tests of compiled passes compare them with
    for name, module in list(sys.modules.items()):
        if name.startswith(("streamsvm.", "tests.")):
            for key, value in list(vars(module).items()):
                if id(value) in passes:
                    setattr(module, key, passes[id(value)].py_func)


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for part in code.co_consts:
        if isinstance(part, types.CodeType):
            yield from _names(part)
