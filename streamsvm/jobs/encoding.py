"""Solver states as data: dataclasses, records, arrays and numbers to JSON and tensors, and back, to the last bit.

Nothing is executed: a class is named in the file and looked up in a closed table of those a state is made of - the
dataclasses and named tuples of the solvers and of the vocabulary - and its fields are set, not passed to anything.
What is none of these is refused when it is written.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamsvm.errors import StreamSVMError

HOMES = ("streamsvm.solvers", "streamsvm.types", "streamsvm.rows", "streamsvm.losses", "streamsvm.kernels")
OPERATORS = "streamsvm.compute.operators"
"""Where the record of factored rows is."""
PLAIN = (bool, int, float, str, type(None))


class Encoder:
    """``encode`` gives the JSON tree of a value; the arrays it refers to are collected in ``tensors``."""

    def __init__(self) -> None:
        self.tensors: dict[str, NDArray[Any]] = {}
        self._names: dict[int, str] = {}

    def encode(self, value: Any) -> Any:
        """A tree of plain JSON. Raises StreamSVMError E-INTERNAL for what cannot be kept."""
        if type(value) in PLAIN:
            return value
        if isinstance(value, np.ndarray):
            return {"array": self._tensor(value), "transposed": _transposed(value)}
        if isinstance(value, np.generic):
            return {"scalar": self._tensor(np.array([value]))}
        if type(value) is dict:
            return {"dict": [[self.encode(k), self.encode(v)] for k, v in value.items()]}
        if type(value) in (list, tuple):
            return {type(value).__name__: [self.encode(v) for v in value]}
        if _name(type(value)) in classes():
            return {"class": _name(type(value)), "fields": [self.encode(getattr(value, f)) for f in _fields(value)]}
        raise StreamSVMError(f"a checkpoint cannot hold a {type(value).__name__}")

    def _tensor(self, array: NDArray[Any]) -> str:
        """The name of an array's tensor; one array is kept once, however many refer to it."""
        if id(array) not in self._names:
            name = self._names[id(array)] = str(len(self.tensors))
            self.tensors[name] = np.ascontiguousarray(array.T if _transposed(array) else array)
        return self._names[id(array)]


class Decoder:
    """The inverse, where ``tensor`` gives one by name. What is wrong with a tree is a ValueError, KeyError or TypeError."""

    def __init__(self, tensor: Callable[[str], NDArray[Any]]) -> None:
        self._tensor = tensor
        self._made: dict[str, NDArray[Any]] = {}

    def decode(self, tree: Any) -> Any:
        """The value a tree stands for."""
        if type(tree) in PLAIN:
            return tree
        if "array" in tree:
            return self._array(tree["array"], tree["transposed"])
        if "scalar" in tree:
            return self._tensor(tree["scalar"])[0]
        if "dict" in tree:
            return {self.decode(k): self.decode(v) for k, v in tree["dict"]}
        for kind in (list, tuple):
            if kind.__name__ in tree:
                return kind(self.decode(v) for v in tree[kind.__name__])
        return self._instance(classes()[tree["class"]], [self.decode(v) for v in tree["fields"]])

    def entry(self, tree: Any, key: str) -> Any:
        """One value of a tree that is a dict."""
        return self.decode(dict(tree["dict"])[key])

    def _array(self, name: str, transposed: bool) -> NDArray[Any]:
        if name not in self._made:
            array = np.array(self._tensor(name))  # writable, its own
            self._made[name] = array.T if transposed else array
        return self._made[name]

    def _instance(self, kind: Any, values: list[Any]) -> Any:
        names = _fields(kind)
        if len(names) != len(values):
            raise ValueError(f"{kind.__name__} has {len(names)} fields, not {len(values)}")
        record = not is_dataclass(kind)
        if record:
            return kind(*values)
        made = object.__new__(kind)
        for name, value in zip(names, values, strict=True):
            object.__setattr__(made, name, value)
        return made


def classes() -> dict[str, Any]:
    """What a state may be made of, by name: dataclasses and named tuples of the modules that are loaded."""
    found = {}
    for name, module in list(sys.modules.items()):
        if name.startswith(HOMES) or name == OPERATORS:
            for kind in vars(module).values():
                if isinstance(kind, type) and kind.__module__ == name and _kept(kind):
                    found[_name(kind)] = kind
    return found


def _kept(kind: Any) -> bool:
    return is_dataclass(kind) or getattr(kind, "_fields", None) is not None


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _fields(kind: Any) -> list[str]:
    return [f.name for f in fields(kind)] if is_dataclass(kind) else list(kind._fields)


def _transposed(array: NDArray[Any]) -> bool:
    return array.ndim > 1 and array.flags.f_contiguous and not array.flags.c_contiguous
