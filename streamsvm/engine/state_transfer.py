"""Serialize the states of solvers that are sent to the workers of a cluster and back.

The fields that only ``finish`` reads are not sent; they stay in files (``DriverState``).

A serialized state is a copy in which arrays of zeros are replaced by their shape. An array to which a state refers
several times stays one array; for example, the blocks of a sample share a projection of megabytes.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import NamedTuple, TypeAlias

import numpy as np

from streamsvm.config.options import field_values
from streamsvm.engine import checkpoint
from streamsvm.engine.fit_state import ProblemRun
from streamsvm.engine.row_state import IN_STATES
from streamsvm.engine.shared_files import Place, read_shared_file, remove_shared, write_shared_file
from streamsvm.type_aliases import ValuesByName
from streamsvm.types import State

MAX_SMALL_SIZE = 64
"""Arrays with at most this number of items are sent as they are, even if all are zero."""


ArrayFunction: TypeAlias = Callable[[State], State]
"""A function that is applied to each array of a state, or to the ``Zeros`` in place of one."""


class Zeros(NamedTuple):
    """Placeholder for an array of zeros."""

    shape: tuple[int, ...]
    dtype: str
    """In numpy's notation: "<f8"."""


def serialize(state: State) -> State:
    """Return a copy of a state with ``Zeros`` in place of its arrays of zeros."""
    return _map_arrays(state, _apply_once(_pack_array))


def clone(state: State) -> State:
    """Return a copy with arrays in place of ``Zeros``. It shares no array with ``state``, so that it may be changed."""
    return _map_arrays(state, _apply_once(_unpack_array))


def unpack(state: State) -> State:
    """Return the state with arrays in place of ``Zeros``. It shares all other arrays with ``state``."""
    return _map_arrays(state, _apply_once(lambda value: _unpack_array(value) if isinstance(value, Zeros) else value))


def state_bytes(state: State) -> int:
    """Return the bytes of the arrays in a state, each counted once."""
    sizes: list[int] = []

    def count(array: State) -> State:
        sizes.append(array.nbytes if isinstance(array, np.ndarray) else 0)
        return array

    _map_arrays(state, _apply_once(count))
    return sum(sizes)


def _apply_once(change: ArrayFunction) -> ArrayFunction:
    """Return a function that calls ``change`` once for each array and returns the same result wherever the array occurs
    again.
    """
    results: dict[int, tuple[State, State]] = {}

    def change_once(value: State) -> State:
        if id(value) not in results:
            results[id(value)] = value, change(value)  # holds the array itself, so that its id is not used for another
        return results[id(value)][1]

    return change_once


def _pack_array(value: State) -> State:
    return Zeros(value.shape, value.dtype.str) if value.size > MAX_SMALL_SIZE and not value.any() else value.copy()


def _unpack_array(value: State) -> State:
    return np.zeros(value.shape, value.dtype) if isinstance(value, Zeros) else value.copy()


def _map_arrays(value: State, change: ArrayFunction) -> State:
    """Return the same structure with ``change`` applied to every array. Frozen dataclasses are shared, not copied."""
    if isinstance(value, np.ndarray | Zeros):
        return change(value)
    if is_dataclass(value) and not _is_frozen(value):
        copied = copy.copy(value)
        for name, item in field_values(value, (field.name for field in fields(value))).items():
            setattr(copied, name, _map_arrays(item, change))
        return copied
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


@dataclass(frozen=True, slots=True)
class DriverState:
    """Files with the state fields that only ``finish`` reads; each pass of a fit on a cluster writes one."""

    directory: Place
    """The folder of the files, at the same path on the worker that closes a pass, or its URL."""
    names: tuple[str, ...]
    """Names of the fields; each field may be None."""

    def remove_fields(self, state: State) -> State:
        """Return a copy of the state in which these fields are None, as it is sent to workers that visit blocks."""
        return replace(state, **dict.fromkeys(self.names))

    def load(self, version: int, states: dict[int, State]) -> None:
        """Set the fields of some states to those of ``version``; a problem that began later has none. Raises DataError."""
        if version == 0:
            return
        saved: dict[int, ValuesByName] = read_shared_file(
            self.directory, self._name(version), lambda path: checkpoint.read_checkpoint(path).read_content()
        )
        for k, state in states.items():
            for name, value in saved.get(k, {}).items():
                setattr(state, name, value)

    def save(self, version: int, states: dict[int, State], drop: Iterable[int]) -> None:
        """Save the fields of some states as ``version`` and remove the versions ``drop``. Raises StorageError."""
        fields = {k: field_values(state, self.names) for k, state in states.items()}
        write_shared_file(
            self.directory, self._name(version), lambda path: checkpoint.write_checkpoint(path, version, {}, fields)
        )
        remove_shared(self.directory, map(self._name, drop))

    def _name(self, version: int) -> str:
        return f"home.{version}"


@dataclass(slots=True)
class ProcessDriverState:
    """The state fields that only ``finish`` reads: part of the states in one process, in files of their own on a
    cluster.
    """

    files: DriverState
    """Files written by a run on a cluster."""
    runs: list[ProblemRun]
    """The runs whose states ``restore`` completes. (Not the whole training, which refers to this object: a reference
    cycle.)"""
    version: int = 0
    """The last version that has files."""

    def checkpoint(self) -> ValuesByName:
        """Return a record of the last version that has files; it also says that the states are complete."""
        return {"version": self.version, IN_STATES: True}

    def restore(self, saved: ValuesByName | None, older: ValuesByName | None = None) -> None:
        """Add the fields from files to the states if the checkpoint was made on a cluster. Raises DataError,
        KeyError.
        """
        self.version = max((int(record["version"]) for record in (saved, older) if record), default=0)
        if saved and IN_STATES not in saved:
            states = {k: run.state for k, run in enumerate(self.runs) if not run.done and run.state is not None}
            self.files.load(int(saved["version"]), states)

    def close(self) -> None:
        """Do nothing: no file is open."""
