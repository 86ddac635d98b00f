"""Options: how they are declared, parsed and checked.

An option is a field whose annotation says all that people have to know of it, once:

    cutoff: Annotated[float, Option("Leave out directions ...", KERNEL, bounds=Bounds(above=0.0, below=1.0))] = 1e-6

The command line, job files, ``--set``, the checks and the reference (``tools/generate.py``) are all made of these declarations. Jobs, the
settings of solvers, losses and kernels, and ``SourceOptions`` are declared so. Modules that declare options import nothing heavy, so that
``--help`` is fast.

Values come from text or TOML (``parse``, ``parse_toml``): 512MiB, 1h, 5e6, a,b and a=2,b=1. There is one check for values from a command
line, a job file and a program: a job checks itself when it is made (``Checked``); the settings of a solver, loss or kernel are checked
where the value is made of them (``build``).
"""

from __future__ import annotations

import dataclasses
import math
import numbers
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Annotated, Any, TypeAlias, TypeVar, dataclass_transform

from streamsvm.aliases import ByName, JsonMapping
from streamsvm.config.units import (
    duration_text,
    exact_size_text,
    number_text,
    parse_count,
    parse_duration,
    parse_number,
    parse_size,
)
from streamsvm.errors import UsageError, quote
from streamsvm.input_files import refuse_url
from streamsvm.registry import did_you_mean, load

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


PATH_METAVARS = ("PATH", "MODEL", "X|STORE")
"""Metavars of options that are paths; arguments without choices are paths, too."""


class Quantity(Enum):
    """The unit of a number, which people write with a suffix."""

    BYTES = "bytes"
    SECONDS = "seconds"


@dataclass(frozen=True, slots=True)
class Bounds:
    """The numbers a field may have: never NaN, and infinity only with ``infinite``. None: unbounded."""

    least: float | None = None
    above: float | None = None
    """Exclusive."""
    most: float | None = None
    below: float | None = None
    """Exclusive."""
    infinite: bool = False

    def holds(self, number: float) -> bool:
        """Return whether a number is in the range."""
        if math.isnan(number) or (math.isinf(number) and not self.infinite):
            return False
        return (
            (self.least is None or number >= self.least)
            and (self.above is None or number > self.above)
            and (self.most is None or number <= self.most)
            and (self.below is None or number < self.below)
        )

    def describe(self) -> str:
        """Return the bounds in words: 'above 0 and below 1'; 'finite' without any."""
        low = [f"at least {number_text(self.least)}"] if self.least is not None else []
        low += [f"above {number_text(self.above)}"] if self.above is not None else []
        high = [f"at most {number_text(self.most)}"] if self.most is not None else []
        high += [f"below {number_text(self.below)}"] if self.below is not None else []
        return " and ".join(low + high) or "finite"


@dataclass(frozen=True, slots=True)
class Option:
    """The declaration of an option, in the ``Annotated`` type of its field."""

    help: str
    """A sentence or two for ``--help`` and the reference."""
    group: str = ""
    """Where the help lists it: a key of ``GROUPS``. Empty for arguments and for settings of solvers."""
    unit: Quantity | None = None
    """Unit of the number; None for a bare number and for other types."""
    bounds: Bounds | None = None
    """Bounds of the number, or of every number of a list or table. Values that are not numbers are not checked."""
    choices: str | tuple[str, ...] = ()
    """The allowed words: a tuple, or a registry as "module:NAME". A word with a colon, 'cost:fp=X', is a form: what
    begins like it is allowed, and checked by the job."""
    beside: tuple[str, ...] = ()
    """Allowed words in addition to those of the registry, such as 'auto'."""
    aliases: tuple[tuple[str, str], ...] = ()
    """Synonyms, each with the choice it stands for."""
    flag: str = ""
    """Name on the command line, without the dashes; empty: the name of the field."""
    off: str = ""
    """The help of ``--no-FLAG``, which sets the number to 0; empty: there is no such flag."""
    metavar: str = ""
    """Name of the value in the help; empty: by the type."""
    default: str = ""
    """Text of the default, where the default value does not say it."""
    settings_of: str = ""
    """For a table of settings: their owner, such as 'solver'; ``choices`` is then the registry of solvers."""
    formats: tuple[str, ...] = ()
    """File formats that the option applies to; empty: all, or it is not about files."""


Kind: TypeAlias = object
"""A type in an annotation, ``int`` or ``tuple[float, ...]``: ``typing`` has no type for all of these."""

OptionValue: TypeAlias = Any
"""The value of an option, of the type its field declares; ``check_value`` checks the rest of the declaration."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field that is an option: its name, type and default from the class, the rest from its ``Option``."""

    name: str
    kinds: tuple[Kind, ...]
    """The alternatives of its type without None: (float, tuple[float, ...])."""
    default: OptionValue
    """``dataclasses.MISSING`` where a value must be given."""
    option: Option

    @property
    def required(self) -> bool:
        """Whether a value must be given."""
        return self.default is dataclasses.MISSING

    @property
    def key(self) -> str:
        """Name in job files and ``--set``: the flag, with underscores."""
        return (self.option.flag or self.name.rstrip("_")).replace("-", "_")

    @property
    def flag(self) -> str:
        """Name on the command line: ``--memory``."""
        return "--" + self.key.replace("_", "-")

    @property
    def is_switch(self) -> bool:
        """Whether it is on or off."""
        return self.kinds == (bool,)

    @property
    def is_place(self) -> bool:
        """Whether text is a path."""
        return (not self.option.group and not self.option.choices) or self.metavar in PATH_METAVARS

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
        """Name of the value in the help: SIZE, DURATION, N, X, PATH, TEXT, A,B,..."""
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
        """Return the allowed words, those of a registry included; empty where any is allowed."""
        declared = self.option.choices
        return [*self.option.beside, *(load(declared) if isinstance(declared, str) else declared)]

    def help(self) -> str:
        """Return the help text with the choices."""
        also: dict[str, list[str]] = {}
        for alias, name in self.option.aliases:
            also.setdefault(name, []).append(alias)
        if self.option.settings_of:
            return self.option.help
        words = [f"{word} (or {', '.join(also[word])})" if word in also else word for word in self.choices()]
        return self.option.help + (f" One of: {', '.join(words)}." if words else "")

    def default_text(self) -> str:
        """Return the default in words, or as people write it; empty for None, for switches that are off, and without a default."""
        return self.option.default or format_value(self.option.unit, () if self.required else self.default)


def format_value(unit: Quantity | None, value: OptionValue) -> str:
    """Return a value as people write it on a command line: '4MiB', '60s', '1e-6', 'a,b'."""
    if value is None or isinstance(value, bool | dict) or value in ((), "", math.inf):
        return ""
    if isinstance(value, tuple):
        return ",".join(format_value(unit, part) for part in value)
    if unit is Quantity.BYTES:
        return exact_size_text(value)
    if unit is Quantity.SECONDS:
        return duration_text(value)
    return number_text(value) if isinstance(value, int | float) else str(value)


def field_values(value: object, names: Iterable[str]) -> ByName:
    """Return the values of some fields of a dataclass or ``NamedTuple``, by name.

    All fields are read by name here. ``names`` come from the class itself: its fields, options or saved fields.
    """
    return {name: getattr(value, name) for name in names}


@cache
def options_of(kind: type) -> tuple[Field, ...]:
    """Return the options that a dataclass or a ``NamedTuple`` declares, in the order of its fields.

    A field without an ``Option`` is not one: it is set by the program alone.
    """
    hints = typing.get_type_hints(kind, include_extras=True)
    found = []
    for name, default in _defaults(kind).items():
        option = next((part for part in typing.get_args(hints[name])[1:] if isinstance(part, Option)), None)
        if typing.get_origin(hints[name]) is Annotated and option is not None:
            found.append(Field(name, _kinds(typing.get_args(hints[name])[0]), default, option))
    return tuple(found)


def _defaults(kind: type) -> ByName:
    """Return the fields of a dataclass or a ``NamedTuple`` with their defaults, MISSING without one."""
    if not dataclasses.is_dataclass(kind):
        known: ByName = kind._field_defaults  # type: ignore[attr-defined]
        return {name: known.get(name, dataclasses.MISSING) for name in kind._fields}  # type: ignore[attr-defined]
    return {
        field.name: field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        for field in dataclasses.fields(kind)
    }


def _kinds(annotation: Kind) -> tuple[Kind, ...]:
    """Return the alternatives of a type without None."""
    union = typing.get_origin(annotation) in (types.UnionType, typing.Union)
    alternatives = typing.get_args(annotation) if union else (annotation,)
    return tuple(kind for kind in alternatives if kind is not types.NoneType)


NUMBERS = {int: parse_count, float: parse_number}


def parse(field: Field, text: str) -> OptionValue:
    """Parse the value of a field from a command line. Raises UsageError."""
    if field.option.unit is Quantity.BYTES:
        return parse_size(text)
    if field.option.unit is Quantity.SECONDS:
        return parse_duration(text)
    if "=" in text and any(typing.get_origin(kind) is dict for kind in field.kinds):
        return _parse_pairs(text)
    if field.is_list:
        return _parse_list(field, text)
    return _parse_scalar(field.kinds, text)


def parse_toml(field: Field, value: OptionValue) -> OptionValue:
    """Convert the value of a field from a job file, where sizes and durations are text and counts may be 5e6. Raises UsageError."""
    if isinstance(value, str) and field.option.unit is not None:
        return parse(field, value)
    if isinstance(value, int | float) and field.option.unit is Quantity.BYTES:
        return parse(field, str(value))
    if isinstance(value, str | int | float) and field.only_list:
        return (value,)
    whole = isinstance(value, float) and field.kinds == (int,)
    return parse(field, str(value)) if whole else value


def parse_named_numbers(field: Field, value: OptionValue) -> OptionValue:
    """Convert a table of numbers, which may be text as on the command line; other values are returned unchanged.

    Raises UsageError, which names the entry, for one that is not a number.
    """
    if not isinstance(value, Mapping) or dict[str, float] not in field.kinds:
        return value
    table = {}
    for name, number in value.items():
        if not isinstance(number, str | numbers.Real):
            raise UsageError(f"{name}: {quote(number)} is not a number", hint="write it as 0.1 or 1e-3")
        try:
            table[name] = parse_number(number) if isinstance(number, str) else number
        except UsageError as error:
            raise UsageError(f"{name}: {error.message}", hint=error.hint) from error
    return table


def _parse_list(field: Field, text: str) -> OptionValue:
    parts = [part.strip() for part in text.split(",")]
    if not field.only_list and len(parts) == 1:
        return _parse_scalar(field.kinds, text)
    inner = [kind for listed in field.kinds if typing.get_origin(listed) is tuple for kind in _parts_of(listed)]
    return tuple(_parse_scalar(tuple(inner), part) for part in parts if part)


def _parts_of(listed: Kind) -> tuple[Kind, ...]:
    """Return the kinds of an item of ``tuple[X | Y, ...]``."""
    part = typing.get_args(listed)[0]
    return typing.get_args(part) or (part,)


def _parse_scalar(kinds: tuple[Kind, ...], text: str) -> OptionValue:
    """Parse as the first numeric type that fits, or as a switch; fall back to text where that is allowed."""
    wanted = [parser for kind, parser in NUMBERS.items() if kind in kinds]
    for parser in wanted:
        try:
            return parser(text)
        except UsageError:
            if len(kinds) == 1:
                raise
    if bool in kinds:
        return _parse_switch(text)
    if wanted and not any(kind is str or typing.get_origin(kind) is dict for kind in kinds):
        raise UsageError(f"'{text}' is not a number", hint="write it as 0.1 or 1e-3")
    return text


def _parse_switch(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise UsageError(f"'{text}' is neither true nor false")
    return text.lower() == "true"


def _parse_pairs(text: str) -> dict[str, float]:
    """Parse 'a=2,b=1' as a table of numbers."""
    table: dict[str, float] = {}
    for part in text.split(","):
        name, equals, value = part.rpartition("=")
        if not equals or not name.strip():
            raise UsageError(f"'{part}' is not NAME=NUMBER", hint="write it as a=2,b=1")
        if name.strip() in table:
            raise UsageError(f"'{name.strip()}' is given twice in '{text}'", hint="give each name one number")
        table[name.strip()] = parse_number(value)
    return table


Group = TypeVar("Group")


@dataclass_transform(kw_only_default=True, frozen_default=True)
def option_group(kind: type[Group]) -> type[Group]:
    """Make a dataclass of options that jobs mix in: keyword-only and frozen.

    Its methods are not made, since there are no values of a group alone: making them for every group is half of what
    ``--help`` takes.
    """
    return dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)(kind)


class Checked:
    """Base of jobs and their groups of options: dataclasses that refuse what their options do not allow."""

    @property
    def to_stdout(self) -> bool:
        """Whether the job writes its result to standard output, which then takes nothing else."""
        return False

    def __post_init__(self) -> None:
        """Replace synonyms by their choices. Raises UsageError for a value that is out of range or not allowed.

        Every value becomes the instance's own: one made by msgspec has defaults from its class only, and lacks them as
        plain data.
        """
        kind: type = type(self)
        options = options_of(kind)
        for field, value in zip(options, field_values(self, (field.name for field in options)).values(), strict=True):
            aliases = dict(field.option.aliases)
            said = aliases.get(value, value) if isinstance(value, str) else value
            object.__setattr__(self, field.name, said)
            check_value(field, said, field.flag)


def check_value(field: Field, value: OptionValue, name: str) -> None:
    """Raise UsageError, with ``name`` for the field, for a value its declaration does not allow."""
    if field.is_place:
        for part in value if isinstance(value, tuple | list) else (value,):
            refuse_url(part)
    if isinstance(value, str):
        _check_choice(field, value, name)
    elif isinstance(value, tuple) and all(isinstance(part, str) for part in value):
        for part in value:
            _check_choice(field, part, name)
    elif field.option.bounds is not None:
        for number in _numbers_with_bounds(value):
            _check_number(field, number, name)


def _check_choice(field: Field, value: str, name: str) -> None:
    known = field.choices()
    if not known or value in known:
        return
    if any(":" in word and value.startswith(word[: word.index(":") + 1]) for word in known):
        return
    hint = f"choose from {', '.join(known)}"
    raise UsageError(f"{name} cannot be {quote(value)}{did_you_mean(value, known)}", hint=hint)


def _numbers_with_bounds(value: OptionValue) -> Iterable[OptionValue]:
    """Return the values that bounds apply to: a value, or the items of a list or table, without text and None."""
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, tuple | list) else (value,)
    return (part for part in parts if part is not None and not isinstance(part, str))


def _check_number(field: Field, number: OptionValue, name: str) -> None:
    declared = field.option.bounds
    assert declared is not None
    whole = int in field.kinds and float not in field.kinds
    noun = "a whole number" if whole else "a number"
    good = isinstance(number, numbers.Real) and declared.holds(float(number))
    if not good or (whole and not float(number).is_integer()):
        unit = f" of {field.option.unit.value}" if field.option.unit is not None else ""
        raise UsageError(f"{name} cannot be {number}", hint=f"give {noun}{unit}: {declared.describe()}")


def build(kind: Any, options: JsonMapping, what: str, **fixed: Any) -> Any:
    """Make a solver, loss, kernel or generator from settings given by name; ``what`` is its name in errors.

    ``fixed`` are fields that are not settings, which the program decides.
    Raises UsageError for an unknown setting, with the known ones, and for a value of the wrong type or out of range.
    """
    import msgspec

    declared = {field.name: field for field in options_of(kind)}
    for name in options:
        if name not in declared:
            raise UsageError(f"{what} has no setting '{name}'", hint=f"it has: {', '.join(declared) or 'none'}")
    try:
        values = {name: _convert_setting(declared[name], value) for name, value in options.items()}
        if issubclass(kind, tuple):  # records hold floats only; one of ints would be another type to the compiler
            made = kind(**fixed, **msgspec.convert(values, dict[str, float], strict=False))
        else:
            made = msgspec.convert({**fixed, **values}, kind, strict=False)
    except msgspec.ValidationError as error:
        raise UsageError(
            f"{what}: {error}", hint="see 'streamsvm fit --help-solver', --help-loss, --help-kernel"
        ) from error
    for name, value in field_values(made, values).items():
        check_value(declared[name], value, f"{what}: {name}")
    return made


def _convert_setting(field: Field, value: OptionValue) -> OptionValue:
    """Convert a setting to its type: sizes and counts from text, 1e5 as a whole number. Raises UsageError."""
    if isinstance(value, str) and field.option.unit is not None:
        return parse(field, value)
    if isinstance(value, float) and field.kinds == (int,) and value.is_integer():
        return int(value)
    return value
