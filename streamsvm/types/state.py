"""The roles of the fields of a solver's state. Each field declares its role once; how a pass in parts treats the state
follows from it.

A pass can be made in parts. Each part begins with the state (``begin_part``) and visits some of the rows. The parts are
merged (``merge_states``) before the pass is closed, and then the sums of the pass are cleared (``clear_totals``). The
type of a field declares how these functions treat it:

    role              at the start of a part   merged value              after the pass
    Total             zero                     the sum                   zero
    FirstPassTotal    like Total while ``state.passes`` is 0, then like a shared field
    Largest           its default              the largest               its default
    Smallest          its default              the smallest              its default
    Seen              unchanged                true if true in any part  unchanged
    Mean              a copy                   the mean                  unchanged
    Own               a copy                   that of the first part    unchanged
    DriverOnly        None                     that of the first part    unchanged
    no role: shared   the same object          that of the first part    unchanged

*Zero* is the default of the field; for arrays without a default, an array of zeros. *The sum*: numbers and arrays are
added in the order of the parts, lists are concatenated, tuples are added item by item, and states are merged by the
roles of their own fields; None counts as zero. If a state inside a state has a method ``merge(other)``, that method
merges it. A ``Seen`` field is a bool, or an object with a method ``join(other)`` that returns the merged value. An
``Own`` field is changed by visits but is not a sum; the solver itself merges it (``Solver.merge``). Visits only read
shared fields. A ``DriverOnly`` field is used only by ``finish`` and the in-memory steps after it; it is not sent to
workers that visit blocks.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Annotated, Any, NamedTuple, TypeAlias, TypeVar, get_args

import numpy as np

S = TypeVar("S")
T = TypeVar("T")


class Role(Enum):
    """The role of a field of a state; the value is the name of the type that declares it."""

    TOTAL = "Total"
    FIRST_PASS_TOTAL = "FirstPassTotal"  # noqa: S105  (no password)
    LARGEST = "Largest"
    SMALLEST = "Smallest"
    SEEN = "Seen"
    MEAN = "Mean"
    OWN = "Own"
    DRIVER_ONLY = "DriverOnly"


Total: TypeAlias = Annotated[T, Role.TOTAL]
FirstPassTotal: TypeAlias = Annotated[T, Role.FIRST_PASS_TOTAL]
Largest: TypeAlias = Annotated[T, Role.LARGEST]
Smallest: TypeAlias = Annotated[T, Role.SMALLEST]
Seen: TypeAlias = Annotated[T, Role.SEEN]
Mean: TypeAlias = Annotated[T, Role.MEAN]
Own: TypeAlias = Annotated[T, Role.OWN]
DriverOnly: TypeAlias = Annotated[T, Role.DRIVER_ONLY]


class _Field(NamedTuple):
    """How a field of a state is treated; computed once for each class, because parts are begun and merged often."""

    name: str
    role: Role | None
    default: Callable[[], Any] | None
    """Returns the default of the field; None: it has no default."""
    merge: Callable[[Any, Any], Any] | None
    """Merges the values of two parts; None: the merged value is that of the first part, or the mean."""


@cache
def _fields(kind: type) -> tuple[_Field, ...]:
    """Return the fields of a state class; an empty tuple if no field of the class has a role."""
    if not is_dataclass(kind):
        return ()
    described = []
    for field in fields(kind):
        role = _role_of(field.type)
        default = None if field.default_factory is MISSING else field.default_factory
        if field.default is not MISSING:
            default = lambda value=field.default: value  # noqa: E731
        described.append(_Field(field.name, role, default, None if role is None else _MERGES.get(role)))
    return tuple(described) if any(field.role is not None for field in described) else ()


def _role_of(annotation: Any) -> Role | None:
    """Return the role that the type of a field declares. A type given as text is recognized by its name, as
    ``ClassVar`` is in dataclasses.
    """
    if isinstance(annotation, str):
        return _ROLES.get(annotation.partition("[")[0].rpartition(".")[2])
    return next((part for part in get_args(annotation)[1:] if isinstance(part, Role)), None)


_ROLES = {role.value: role for role in Role}


def find_driver_fields(kind: type) -> tuple[str, ...]:
    """Return the names of a state's fields with the role ``DriverOnly``."""
    return tuple(field.name for field in _fields(kind) if field.role is Role.DRIVER_ONLY)


def begin_part(state: S) -> S:
    """Return the state with which a part of a pass begins. Visits of the part do not change ``state``."""
    kind: type = type(state)
    fields_of_kind = _fields(kind)
    if not fields_of_kind:
        return copy.copy(state)
    part: S = object.__new__(kind)
    for name, role, default, _ in fields_of_kind:
        value = getattr(state, name)
        if role is None or role is Role.SEEN:
            pass
        elif role is Role.DRIVER_ONLY:
            value = None
        elif role is Role.MEAN or role is Role.OWN:
            value = begin_part(value) if _is_state(value) else copy.copy(value)
        elif role is not Role.FIRST_PASS_TOTAL or state.passes == 0:  # type: ignore[attr-defined]
            value = begin_part(value) if _is_state(value) else _zero(default, value)
        setattr(part, name, value)
    return part


def clear_totals(state: Any) -> None:
    """Clear the sums of a pass. Changes the state."""
    kind: type = type(state)
    for name, role, default, merge in _fields(kind):
        if merge is None or role is Role.SEEN or (role is Role.FIRST_PASS_TOTAL and state.passes):
            continue
        value = getattr(state, name)
        if _is_state(value):
            clear_totals(value)
        else:
            setattr(state, name, _zero(default, value))


def merge_states(states: list[S], except_fields: Collection[str] = ()) -> S:
    """Merge the states of several parts of a pass into the first one, and return it. Fields in ``except_fields`` are
    not merged.

    Changes the first state. A single state is returned unchanged.
    """
    first = states[0]
    if len(states) == 1:
        return first
    kind: type = type(first)
    fields_of_kind = _fields(kind)
    if not fields_of_kind:
        raise TypeError(f"{kind.__name__} declares no role of any field: see streamsvm.types.state")
    others = states[1:]
    for name, role, _, merge in fields_of_kind:
        if role is Role.MEAN:
            setattr(first, name, sum(getattr(state, name) for state in states) / len(states))
        if merge is None or name in except_fields or (role is Role.FIRST_PASS_TOTAL and first.passes):  # type: ignore[attr-defined]
            continue
        value = getattr(first, name)
        for other in others:
            value = merge(value, getattr(other, name))
        setattr(first, name, value)
    return first


def _is_state(value: Any) -> bool:
    kind: type = type(value)
    return kind not in _PLAIN and bool(_fields(kind))


def _zero(default: Callable[[], Any] | None, value: Any) -> Any:
    return np.zeros(value.shape, value.dtype) if default is None else default()


def _add(one: Any, other: Any) -> Any:
    """Return the sum of two values; None counts as zero."""
    if one is None or other is None:
        return other if one is None else one
    if type(one) in _PLAIN:
        return one + other
    if _is_state(one):
        if not hasattr(one, "merge"):
            return merge_states([one, other])
        one.merge(other)
        return one
    if isinstance(one, tuple):
        sums = map(_add, one, other)
        return type(one)(*sums) if hasattr(one, "_fields") else tuple(sums)
    return one + other


def _join(one: Any, other: Any) -> Any:
    """Return the merged value of a ``Seen`` field; None counts as not seen."""
    if one is None or other is None:
        return other if one is None else one
    return one or other if isinstance(one, bool) else one.join(other)


_PLAIN = {float, int, bool, np.ndarray, list, type(None)}
"""Frequent types of fields that are not states."""

_MERGES: dict[Role, Callable[[Any, Any], Any]] = {
    Role.TOTAL: _add,
    Role.FIRST_PASS_TOTAL: _add,
    Role.LARGEST: max,
    Role.SMALLEST: min,
    Role.SEEN: _join,
}
