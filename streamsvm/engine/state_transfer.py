"""A solver's state as it is sent to workers and back: copied, and without arrays of zeros.

An array that a state refers to several times stays one array: the blocks of a sample share a projection of megabytes.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import NamedTuple, TypeAlias

import numpy as np

from streamsvm.config.options import field_values
from streamsvm.types import State

SMALL = 64
"""Items up to which an array is sent as it is."""


Change: TypeAlias = Callable[[State], State]
"""What is done to each array of a state, or to what stands for one."""


class Zeros(NamedTuple):
    """Stands for an array of zeros."""

    shape: tuple[int, ...]
    """Of the array."""
    dtype: str
    """As numpy writes it: "<f8"."""


def serialize(state: State) -> State:
    """A copy of a state with ``Zeros`` for its arrays of zeros."""
    return _map_arrays(state, _change_once(_pack))


def clone(state: State) -> State:
    """A copy that may be changed: nothing in it is shared with ``state``."""
    return _map_arrays(state, _change_once(_unpack))


def unpack(state: State) -> State:
    """The same arrays, with arrays of zeros for what stands for them."""
    return _map_arrays(state, _change_once(lambda value: _unpack(value) if isinstance(value, Zeros) else value))


def state_bytes(state: State) -> int:
    """Bytes of the arrays in a state."""
    sizes: list[int] = []

    def count(array: State) -> State:
        sizes.append(array.nbytes if isinstance(array, np.ndarray) else 0)
        return array

    _map_arrays(state, _change_once(count))
    return sum(sizes)


def _change_once(change: Change) -> Change:
    """``change``, applied to each array once; what it made of that is what stands wherever the array stood."""
    known: dict[int, tuple[State, State]] = {}

    def change_once(value: State) -> State:
        if id(value) not in known:
            known[id(value)] = value, change(value)  # with the array itself, which keeps its id from being given again
        return known[id(value)][1]

    return change_once


def _pack(value: State) -> State:
    return Zeros(value.shape, value.dtype.str) if value.size > SMALL and not value.any() else value.copy()


def _unpack(value: State) -> State:
    return np.zeros(value.shape, value.dtype) if isinstance(value, Zeros) else value.copy()


def _map_arrays(value: State, change: Change) -> State:
    """The same structure with every array changed. What is frozen is shared: it does not change."""
    if isinstance(value, np.ndarray | Zeros):
        return change(value)
    if is_dataclass(value) and not _is_frozen(value):
        made = copy.copy(value)
        for name, item in field_values(value, (field.name for field in fields(value))).items():
            setattr(made, name, _map_arrays(item, change))
        return made
    if isinstance(value, list):
        return [_map_arrays(item, change) for item in value]
    if isinstance(value, dict):
        return {key: _map_arrays(item, change) for key, item in value.items()}
    if isinstance(value, tuple):
        items = [_map_arrays(item, change) for item in value]
        return tuple(items) if type(value) is tuple else type(value)(*items)
    return value


def _is_frozen(value: State) -> bool:
    return bool(value.__dataclass_params__.frozen)
