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
What is *seen* is a bool that is true as soon as it is in one part, or has a method ``joined(other)``.
``Own`` is what visits change and no sum describes: the solver says what is made of it (``Solver.merge``). Visits only read what
is shared. ``DriverOnly`` is what only the end of a pass and the steps after it look at; it is not sent to those who visit blocks.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Collection
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache, reduce
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
    """A field of a state that has a role."""

    name: str
    role: Role
    default: Callable[[], Any] | None
    """Returns its default; None where it has none."""


def _fields_with_roles(state: Any) -> tuple[_Field, ...]:
    kind: type = type(state)
    return _declared_roles(kind)


@cache
def _declared_roles(kind: type) -> tuple[_Field, ...]:
    """Return the fields of a class that have a role; none of a class that is no state."""
    if not is_dataclass(kind):
        return ()
    found = []
    for field in fields(kind):
        role = _role_of(field.type)
        if role is not None:
            default = None if field.default_factory is MISSING else field.default_factory
            if field.default is not MISSING:
                default = lambda value=field.default: value  # noqa: E731
            found.append(_Field(field.name, role, default))
    return tuple(found)


def _role_of(annotation: Any) -> Role | None:
    """Return the role that the type of a field declares; of one that is text, by its name, as dataclasses know ``ClassVar``."""
    if isinstance(annotation, str):
        return _ROLES.get(annotation.partition("[")[0].rpartition(".")[2])
    return next((part for part in get_args(annotation)[1:] if isinstance(part, Role)), None)


_ROLES = {role.value: role for role in Role}


def find_driver_fields(kind: type) -> tuple[str, ...]:
    """Return the names of the fields of a state that only the end of a pass looks at."""
    return tuple(field.name for field in _declared_roles(kind) if field.role is Role.DRIVER_ONLY)


def begin_part(state: S) -> S:
    """Return the state with which a part of a pass begins: visits of the part change nothing that ``state`` has."""
    part = copy.copy(state)
    for field in _fields_with_roles(state):
        value = getattr(state, field.name)
        if _is_cleared(field, state):
            value = begin_part(value) if _is_state(value) else _nothing(field, value)
        elif field.role in {Role.MEAN, Role.OWN}:
            value = begin_part(value) if _is_state(value) else copy.copy(value)
        elif field.role is Role.DRIVER_ONLY:
            value = None
        setattr(part, field.name, value)
    return part


def clear_totals(state: Any) -> None:
    """Forget what a pass has added up. Changes the state."""
    for field in _fields_with_roles(state):
        if _is_cleared(field, state):
            value = getattr(state, field.name)
            if _is_state(value):
                clear_totals(value)
            else:
                setattr(state, field.name, _nothing(field, value))


def merge_states(states: list[S], but: Collection[str] = ()) -> S:
    """Return the first of several parts of a pass, merged with all others; fields ``but`` these are left as they are.

    Changes the first state. A list of one comes back as it is.
    """
    first = states[0]
    if len(states) == 1:
        return first
    known = _fields_with_roles(first)
    if not known:
        raise TypeError(f"{type(first).__name__} says of no field what a pass does with it: see streamsvm.types.state")
    for field in known:
        merge = _MERGES.get(field.role)
        if merge is None or field.name in but or (field.role is Role.FIRST_PASS_TOTAL and first.passes):  # type: ignore[attr-defined]
            continue
        setattr(first, field.name, merge([getattr(state, field.name) for state in states]))
    return first


def _is_state(value: Any) -> bool:
    return bool(_fields_with_roles(value))


def _is_cleared(field: _Field, state: Any) -> bool:
    """Return whether a part, and the next pass, begin without the value of the field."""
    if field.role is Role.FIRST_PASS_TOTAL:
        return bool(state.passes == 0)
    return field.role in {Role.TOTAL, Role.LARGEST, Role.SMALLEST}


def _nothing(field: _Field, value: Any) -> Any:
    if field.default is not None:
        return field.default()
    return np.zeros(value.shape, value.dtype)


def _add(values: list[Any]) -> Any:
    """Return the sum of values, from the first to the last; None is nothing."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    first = known[0]
    if isinstance(first, tuple):
        sums = [_add(list(items)) for items in zip(*known, strict=True)]
        return type(first)(*sums) if hasattr(first, "_fields") else tuple(sums)
    if not _is_state(first):
        return reduce(operator.add, known)
    if not hasattr(first, "merge"):
        return merge_states(known)
    for other in known[1:]:
        first.merge(other)
    return first


def _join(values: list[Any]) -> Any:
    """Return what was seen in any part; None is nothing."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    return any(known) if isinstance(known[0], bool) else reduce(type(known[0]).joined, known)


_MERGES: dict[Role, Callable[[list[Any]], Any]] = {
    Role.TOTAL: _add,
    Role.FIRST_PASS_TOTAL: _add,
    Role.LARGEST: max,
    Role.SMALLEST: min,
    Role.SEEN: _join,
    Role.MEAN: lambda values: sum(values) / len(values),
}
