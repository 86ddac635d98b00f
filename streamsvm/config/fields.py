"""What an option is: a field whose annotation says all that people have to know of it, once.

    cutoff: Annotated[float, Option("Leave out directions ...", KERNEL, bounds=Bounds(above=0.0, below=1.0))] = 1e-6

The command line, job files, ``--set``, the checks (``config.checks``) and the reference (``tools/generate.py``) are
all made of these declarations. Jobs, the settings of solvers, losses and kernels, and ``SourceOptions`` are declared so.
Modules that declare options import nothing heavy, so that ``--help`` is fast.
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Annotated, Any, TypeAlias

from streamsvm.aliases import ByName
from streamsvm.config.units import duration_text, exact_size_text, number_text
from streamsvm.registry import load

GROUPS = {
    "model": "Model",
    "kernel": "Kernel",
    "solver": "Solver",
    "stopping": "Stopping",
    "reading": "Reading",
    "labels": "Labels",
    "columns": "Columns",
    "faults": "What is not in order",
    "memory": "Memory",
    "cluster": "Cluster",
    "output": "Output",
}
"""The groups of the help, in its order, with their titles."""


PLACES = ("PATH", "MODEL", "X|STORE")
"""What stands in the help for the name of something on disk; so does every argument that is no word of a list."""


class Quantity(Enum):
    """What the number of a field counts; people write it with a suffix."""

    BYTES = "bytes"
    SECONDS = "seconds"


@dataclass(frozen=True, slots=True)
class Bounds:
    """The numbers a field may have: never NaN, and infinity only where it is said. Bounds that are None do not bind."""

    least: float | None = None
    """The smallest number."""
    above: float | None = None
    """Numbers are greater than this."""
    most: float | None = None
    """The largest number."""
    below: float | None = None
    """Numbers are less than this."""
    infinite: bool = False
    """Whether infinity is allowed."""

    def holds(self, number: float) -> bool:
        """Whether the number is in the range."""
        if math.isnan(number) or (math.isinf(number) and not self.infinite):
            return False
        return (
            (self.least is None or number >= self.least)
            and (self.above is None or number > self.above)
            and (self.most is None or number <= self.most)
            and (self.below is None or number < self.below)
        )

    def describe(self) -> str:
        """The bounds in words: 'above 0 and below 1'; 'finite' where there is none."""
        low = [f"at least {number_text(self.least)}"] if self.least is not None else []
        low += [f"above {number_text(self.above)}"] if self.above is not None else []
        high = [f"at most {number_text(self.most)}"] if self.most is not None else []
        high += [f"below {number_text(self.below)}"] if self.below is not None else []
        return " and ".join(low + high) or "finite"


@dataclass(frozen=True, slots=True)
class Option:
    """The declaration of an option, put into the ``Annotated`` type of its field."""

    help: str
    """A sentence or two for ``--help`` and the reference."""
    group: str = ""
    """Where the help lists it: a key of ``GROUPS``. Empty for arguments and for settings of solvers."""
    unit: Quantity | None = None
    """What the number counts; None for a bare number and for other types."""
    bounds: Bounds | None = None
    """Of the number, or of every number of a list or table. Other values than numbers are not looked at."""
    choices: str | tuple[str, ...] = ()
    """The words it can be: a tuple, or a registry as "module:NAME"."""
    beside: tuple[str, ...] = ()
    """Words it can be beside those of the registry, such as 'auto'."""
    aliases: tuple[tuple[str, str], ...] = ()
    """Other words people type, and the choice each stands for."""
    flag: str = ""
    """What the command line calls it, without the dashes; empty: the name of the field."""
    off: str = ""
    """The help of ``--no-FLAG``, which sets the number to 0; empty: there is no such flag."""
    metavar: str = ""
    """What stands for the value in the help; empty: by the type."""
    default: str = ""
    """What is done without it, where the default value does not say so."""
    settings_of: str = ""
    """Of a table of settings: what they are settings of, 'solver'; ``choices`` is then the registry of solvers."""
    formats: tuple[str, ...] = ()
    """The formats of files that have a use for it; empty: all, and what is not of files."""


Kind: TypeAlias = object
"""A type as an annotation has it, ``int`` or ``tuple[float, ...]``: ``typing`` has no type for all of these."""

OptionValue: TypeAlias = Any
"""The value of an option, of the type its field declares; ``check_value`` holds it to the rest of the declaration."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field that is an option: its name, type and default from the class, the rest from its ``Option``."""

    name: str
    """The name of the field in its class."""
    kinds: tuple[Kind, ...]
    """The alternatives of its type, None left out: (float, tuple[float, ...])."""
    default: OptionValue
    """The value without the option; ``dataclasses.MISSING`` where one must be given."""
    option: Option
    """What its annotation declares."""

    @property
    def required(self) -> bool:
        """Whether a value must be given."""
        return self.default is dataclasses.MISSING

    @property
    def key(self) -> str:
        """What people call it in job files and ``--set``: the flag, with underscores."""
        return (self.option.flag or self.name.rstrip("_")).replace("-", "_")

    @property
    def flag(self) -> str:
        """What the command line calls it: ``--memory``."""
        return "--" + self.key.replace("_", "-")

    @property
    def is_switch(self) -> bool:
        """Whether it is on or off."""
        return self.kinds == (bool,)

    @property
    def is_place(self) -> bool:
        """Whether text names something on disk."""
        return (not self.option.group and not self.option.choices) or self.metavar in PLACES

    @property
    def is_list(self) -> bool:
        """Whether several values can be given."""
        return any(typing.get_origin(kind) is tuple for kind in self.kinds)

    @property
    def only_list(self) -> bool:
        """Whether even a single value is a list of one."""
        return all(typing.get_origin(kind) is tuple for kind in self.kinds)

    @property
    def metavar(self) -> str:
        """What stands for the value in the help: SIZE, DURATION, N, X, PATH, TEXT, A,B,..."""
        if self.option.metavar:
            return self.option.metavar
        if self.option.unit is not None:
            return {Quantity.BYTES: "SIZE", Quantity.SECONDS: "DURATION"}[self.option.unit]
        if self.is_list:
            return "A,B,..."
        names = {"int": "N", "float": "X", "Path": "PATH"}
        return next(
            (names[kind.__name__] for kind in self.kinds if isinstance(kind, type) and kind.__name__ in names), "TEXT"
        )

    def choices(self) -> list[str]:
        """The words it can be, those of a registry included; empty where it is free."""
        declared = self.option.choices
        return [*self.option.beside, *(load(declared) if isinstance(declared, str) else declared)]

    def help(self) -> str:
        """The help text with the choices."""
        also: dict[str, list[str]] = {}
        for alias, name in self.option.aliases:
            also.setdefault(name, []).append(alias)
        if self.option.settings_of:
            return self.option.help
        words = [f"{word} (or {', '.join(also[word])})" if word in also else word for word in self.choices()]
        return self.option.help + (f" One of: {', '.join(words)}." if words else "")

    def default_text(self) -> str:
        """The default in words, or as people write it; empty for None, for what is off and for what has none."""
        return self.option.default or value_text(self.option.unit, () if self.required else self.default)


def value_text(unit: Quantity | None, value: OptionValue) -> str:
    """A value as people write it on a command line: '4MiB', '60s', '1e-6', 'a,b'."""
    if value is None or isinstance(value, bool | dict) or value in ((), "", math.inf):
        return ""
    if isinstance(value, tuple):
        return ",".join(value_text(unit, part) for part in value)
    if unit is Quantity.BYTES:
        return exact_size_text(value)
    if unit is Quantity.SECONDS:
        return duration_text(value)
    return number_text(value) if isinstance(value, int | float) else str(value)


def field_values(value: object, names: Iterable[str]) -> ByName:
    """Return the values of some fields of a dataclass or ``NamedTuple``, by name.

    The one place that reads fields by name. ``names`` are from the class itself: its fields, options or saved fields.
    """
    return {name: getattr(value, name) for name in names}


@cache
def options_of(kind: type) -> tuple[Field, ...]:
    """The options a dataclass or a ``NamedTuple`` declares, in the order of its fields.

    A field without an ``Option`` is none: it is set by the program alone.
    """
    hints = typing.get_type_hints(kind, include_extras=True)
    found = []
    for name, default in _defaults(kind).items():
        option = next((part for part in typing.get_args(hints[name])[1:] if isinstance(part, Option)), None)
        if typing.get_origin(hints[name]) is Annotated and option is not None:
            found.append(Field(name, _kinds(typing.get_args(hints[name])[0]), default, option))
    return tuple(found)


def _defaults(kind: type) -> ByName:
    """The fields of a dataclass or a ``NamedTuple`` with their defaults, MISSING where there is none."""
    if not dataclasses.is_dataclass(kind):
        known: ByName = kind._field_defaults  # type: ignore[attr-defined]
        return {name: known.get(name, dataclasses.MISSING) for name in kind._fields}  # type: ignore[attr-defined]
    return {
        field.name: field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        for field in dataclasses.fields(kind)
    }


def _kinds(annotation: Kind) -> tuple[Kind, ...]:
    """The alternatives of a type, None left out."""
    union = typing.get_origin(annotation) in (types.UnionType, typing.Union)
    alternatives = typing.get_args(annotation) if union else (annotation,)
    return tuple(kind for kind in alternatives if kind is not types.NoneType)
