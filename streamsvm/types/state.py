"""The roles of the fields of a solver's state, each declared once: what a pass in parts does with a state follows from them.

A pass can be made in parts: each begins with the state (``begin_part``), visits some of the rows, and the parts are merged
(``merge_states``) before the pass is closed, after which the state forgets the sums of the pass (``clear_totals``). The
type of a field says what each of these does with it:

    role              a part begins with     merged                    after the pass
    Total             nothing                added up                  nothing
    FirstPassTotal    as Total while ``state.passes`` is 0; later a shared field
    Largest           its default            the largest               its default
    Smallest          its default            the smallest              its default
    Seen              what there is          that of any part          stays
    Mean              a copy                 the mean                  stays
    Own               a copy                 that of the first part    stays
    DriverOnly        None                   that of the first part    stays
    no role: shared   the same object        that of the first part    stays

*Nothing* is the default of the field, for arrays without one an array of zeros. What is *added up* may be numbers or arrays,
which are summed in the order of the parts, lists, which are joined, tuples, whose items are added one by one, and states,
whose fields have roles of their own; None is nothing. A state inside a state that has a method ``merge(other)`` is merged by it.
What is *seen* is a bool that is true as soon as it is in one part, or has a method ``join(other)``.
``Own`` is what visits change and no sum describes: the solver says what is made of it (``Solver.merge``). Visits only read what
is shared. ``DriverOnly`` is what only the end of a pass and the steps after it look at; it is not sent to those who visit blocks.
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
    """What a pass in parts does with a field of a state, by the name of the type that declares it."""

    TOTAL = "Total"
    FIRST_PASS_TOTAL = "FirstPassTotal"  # noqa: S105  which is no password
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
    """A field of a state: what is done with it, worked out once for each class, because parts are begun and merged often."""

    name: str
    role: Role | None
    default: Callable[[], Any] | None
    """Returns its default; None where it has none."""
    merge: Callable[[Any, Any], Any] | None
    """Merges the values of two parts; None: it is that of the first part, or the mean."""


@cache
def _fields(kind: type) -> tuple[_Field, ...]:
    """Return the fields of a class of states; none of a class that gives no field a role."""
    if not is_dataclass(kind):
        return ()
    found = []
    for field in fields(kind):
        role = _role_of(field.type)
        default = None if field.default_factory is MISSING else field.default_factory
        if field.default is not MISSING:
            default = lambda value=field.default: value  # noqa: E731
        found.append(_Field(field.name, role, default, None if role is None else _MERGES.get(role)))
    return tuple(found) if any(field.role is not None for field in found) else ()


def _role_of(annotation: Any) -> Role | None:
    """Return the role that the type of a field declares; of one that is text, by its name, as dataclasses know ``ClassVar``."""
    if isinstance(annotation, str):
        return _ROLES.get(annotation.partition("[")[0].rpartition(".")[2])
    return next((part for part in get_args(annotation)[1:] if isinstance(part, Role)), None)


_ROLES = {role.value: role for role in Role}


def find_driver_fields(kind: type) -> tuple[str, ...]:
    """Return the names of the fields of a state that only the end of a pass looks at."""
    return tuple(field.name for field in _fields(kind) if field.role is Role.DRIVER_ONLY)


def begin_part(state: S) -> S:
    """Return the state with which a part of a pass begins: visits of the part change nothing that ``state`` has."""
    kind: type = type(state)
    known = _fields(kind)
    if not known:
        return copy.copy(state)
    part: S = object.__new__(kind)
    for name, role, default, _ in known:
        value = getattr(state, name)
        if role is None or role is Role.SEEN:
            pass
        elif role is Role.DRIVER_ONLY:
            value = None
        elif role is Role.MEAN or role is Role.OWN:
            value = begin_part(value) if _is_state(value) else copy.copy(value)
        elif role is not Role.FIRST_PASS_TOTAL or state.passes == 0:  # type: ignore[attr-defined]
            value = begin_part(value) if _is_state(value) else _nothing(default, value)
        setattr(part, name, value)
    return part


def clear_totals(state: Any) -> None:
    """Forget what a pass has added up. Changes the state."""
    kind: type = type(state)
    for name, role, default, merge in _fields(kind):
        if merge is None or role is Role.SEEN or (role is Role.FIRST_PASS_TOTAL and state.passes):
            continue
        value = getattr(state, name)
        if _is_state(value):
            clear_totals(value)
        else:
            setattr(state, name, _nothing(default, value))


def merge_states(states: list[S], except_fields: Collection[str] = ()) -> S:
    """Return the first of several parts of a pass, merged with all others; fields ``but`` these are left as they are.

    Changes the first state. A list of one comes back as it is.
    """
    first = states[0]
    if len(states) == 1:
        return first
    kind: type = type(first)
    known = _fields(kind)
    if not known:
        raise TypeError(f"{kind.__name__} says of no field what a pass does with it: see streamsvm.types.state")
    others = states[1:]
    for name, role, _, merge in known:
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


def _nothing(default: Callable[[], Any] | None, value: Any) -> Any:
    return np.zeros(value.shape, value.dtype) if default is None else default()


def _add(one: Any, other: Any) -> Any:
    """Return the sum of two values; None is nothing."""
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
    """Return what was seen in either part; None is nothing."""
    if one is None or other is None:
        return other if one is None else one
    return one or other if isinstance(one, bool) else one.join(other)


_PLAIN = {float, int, bool, np.ndarray, list, type(None)}
"""The types of most fields, which are no states."""

_MERGES: dict[Role, Callable[[Any, Any], Any]] = {
    Role.TOTAL: _add,
    Role.FIRST_PASS_TOTAL: _add,
    Role.LARGEST: max,
    Role.SMALLEST: min,
    Role.SEEN: _join,
}
