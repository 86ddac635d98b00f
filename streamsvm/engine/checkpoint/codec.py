"""Solver states as data: dataclasses, records, arrays and numbers to JSON and tensors, and back, to the last bit.

Nothing is executed: a class is named in the file by its tag (``tags``) and looked up in the closed table of those a
state is made of, and its fields are set, not passed to anything. What has no tag is refused when it is written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, TypeAlias

import numpy as np

from streamsvm.aliases import Array, ByName
from streamsvm.config.fields import field_values
from streamsvm.errors import StreamSVMError
from streamsvm.tags import class_of, tag_of

Tree: TypeAlias = Any
"""JSON as ``Encoder`` makes it and ``Decoder`` reads it."""
Saved: TypeAlias = Any
"""A value that can be saved: a state, or a part of one."""
StateClass: TypeAlias = Any
"""A dataclass or ``NamedTuple`` with a tag; no type says that it is one of the two."""

PLAIN = (bool, int, float, str, type(None))


class Encoder:
    """``encode`` gives the JSON tree of a value; the arrays it refers to are collected in ``tensors``."""

    def __init__(self) -> None:
        self.tensors: dict[str, Array] = {}
        self._names: dict[int, str] = {}

    def encode(self, value: Saved) -> Tree:
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
        tag = tag_of(type(value))
        if tag is not None:
            return {"class": tag, "fields": [self.encode(v) for v in field_values(value, _fields(value)).values()]}
        raise StreamSVMError(f"a checkpoint cannot hold a {type(value).__name__}")

    def _tensor(self, array: Array) -> str:
        """The name of an array's tensor; one array is kept once, however many refer to it."""
        if id(array) not in self._names:
            name = self._names[id(array)] = str(len(self.tensors))
            self.tensors[name] = np.ascontiguousarray(array.T if _transposed(array) else array)
        return self._names[id(array)]


class Decoder:
    """The inverse, where ``tensor`` gives one by name. What is wrong with a tree is a ValueError, KeyError or TypeError."""

    def __init__(self, tensor: Callable[[str], Array]) -> None:
        self._tensor = tensor
        self._made: dict[str, Array] = {}

    def decode(self, tree: Tree) -> Saved:
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
        return self._instance(class_of(tree["class"]), [self.decode(v) for v in tree["fields"]])

    def entry(self, tree: Tree, key: str) -> Saved:
        """One value of a tree that is a dict."""
        return self.decode(dict(tree["dict"])[key])

    def _array(self, name: str, transposed: bool) -> Array:
        if name not in self._made:
            array = self._tensor(name)
            if not array.flags.writeable:
                array = np.array(array)
            self._made[name] = array.T if transposed else array
        return self._made[name]

    def _instance(self, kind: StateClass, values: list[Saved]) -> Saved:
        names = _fields(kind)
        if len(names) < len(values):
            raise ValueError(f"{kind.__name__} has {len(names)} fields, not {len(values)}")
        values = values + [_default(kind, name) for name in names[len(values) :]]
        if issubclass(kind, tuple):
            return kind(*values)
        made = object.__new__(kind)
        for name, value in zip(names, values, strict=True):
            object.__setattr__(made, name, value)
        return made


def _fields(kind: StateClass) -> list[str]:
    return [f.name for f in fields(kind)] if is_dataclass(kind) else list(kind._fields)


def _default(kind: StateClass, name: str) -> Saved:
    """Of a field that was added, at the end, since the file was written. Raises ValueError where there is none."""
    if issubclass(kind, tuple):
        defaults: ByName = kind._field_defaults
        if name in defaults:
            return defaults[name]
    else:
        field = next(f for f in fields(kind) if f.name == name)
        if field.default is not MISSING:
            return field.default
        if field.default_factory is not MISSING:
            return field.default_factory()
    raise ValueError(f"{kind.__name__} needs a value for its field '{name}'")


def _transposed(array: Array) -> bool:
    return array.ndim > 1 and array.flags.f_contiguous and not array.flags.c_contiguous
