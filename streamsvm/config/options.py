"""Options: how they are declared, parsed and checked.

An option is a field of a class. Its annotation is the only place where the option is described:

    cutoff: Annotated[float, Option("Leave out directions ...", KERNEL, bounds=Bounds(above=0.0, below=1.0))] = 1e-6

The command line, job files, ``--set``, the checks and the reference (``tools/generate.py``) are made from these declarations. Jobs,
solvers, losses, kernels and ``SourceOptions`` declare their options and settings like this. Modules that declare options import nothing
heavy, so that ``--help`` is fast.

Values are parsed from text or TOML (``parse``, ``parse_toml``): 512MiB, 1h, 5e6, a,b and a=2,b=1. Values from a command line, a job file
and a Python call pass the same checks: a job checks its fields when it is created (``Checked``); a solver, loss or kernel is created from
its settings by ``build_from_settings``, which checks them.
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
from functools import cache, cached_property
from typing import Annotated, Any, TypeAlias, TypeVar, dataclass_transform

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
from streamsvm.input_files import find_url, refuse_url
from streamsvm.registry import did_you_mean, load
from streamsvm.type_aliases import JsonMapping, ValuesByName

GROUPS = {
    "model": "Model",
    "kernel": "Kernel",
    "curves": "Curves",
    "solver": "Solver",
    "stopping": "Stopping",
    "reading": "Reading",
    "labels": "Labels",
    "columns": "Columns",
    "faults": "Faults in the data",
    "memory": "Memory",
    "cluster": "Cluster",
    "output": "Output",
}
"""Titles of the groups of options, in the order of the help."""
PATH_METAVARS = ("PATH", "MODEL", "X|STORE")
"""Metavars of options that are paths. Arguments without choices are paths, too."""


class Quantity(Enum):
    """The unit of an option whose value is written with a suffix."""

    BYTES = "bytes"
    SECONDS = "seconds"


@dataclass(frozen=True, slots=True)
class Bounds:
    """The allowed range of a number. NaN is never allowed, infinity only with ``infinite``. None: no bound."""

    least: float | None = None
    above: float | None = None
    """Exclusive."""
    most: float | None = None
    below: float | None = None
    """Exclusive."""
    infinite: bool = False

    def holds(self, number: float) -> bool:
        """Return whether a number is within the bounds."""
        if math.isnan(number) or (math.isinf(number) and not self.infinite):
            return False
        return (
            (self.least is None or number >= self.least)
            and (self.above is None or number > self.above)
            and (self.most is None or number <= self.most)
            and (self.below is None or number < self.below)
        )

    def describe(self) -> str:
        """Return the bounds in words: 'above 0 and below 1'; 'finite' if there are none."""
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
    """The group in the help, a key of ``GROUPS``; empty for arguments and for settings of solvers, losses and kernels."""
    unit: Quantity | None = None
    """Unit of the value; None for a plain number and for other types."""
    bounds: Bounds | None = None
    """Bounds of the value, or of every number in a list or table. They do not apply to values that are text."""
    choices: str | tuple[str, ...] = ()
    """The allowed words: a tuple, or a registry as "module:NAME". A word with a colon, such as 'cost:fp=X', allows every text with the
    same prefix ('cost:'); the job checks the rest."""
    extra_choices: tuple[str, ...] = ()
    """Words that are allowed in addition to ``choices``, such as 'auto'."""
    aliases: tuple[tuple[str, str], ...] = ()
    """Pairs of a synonym and the choice that replaces it."""
    flag: str = ""
    """Name on the command line without the dashes; empty: made from the name of the field."""
    off: str = ""
    """Help of the flag ``--no-FLAG``, which sets the number to 0; empty: no such flag."""
    metavar: str = ""
    """Name of the value in the help; empty: derived from the type."""
    default: str = ""
    """The default in words; empty: the default value is shown."""
    settings_of: str = ""
    """For a table of settings, what has them: 'solver', 'loss' or 'kernel'; ``choices`` is then its registry. Else empty."""
    urls: bool = False
    """Whether a path may be the URL of a store in an object store."""
    copies: str = ""
    """If the path may be the URL of a file: 'input' if the file is copied before the job, or the kind of output if it is copied
    after the job (``working_copies``); empty for other options."""
    formats: tuple[str, ...] = ()
    """File formats that the option applies to; empty: all formats, or the option is not about files."""


Kind: TypeAlias = object
"""A type from an annotation, such as ``int`` or ``tuple[float, ...]``; ``typing`` has no common type for these."""

OptionValue: TypeAlias = Any
"""The value of an option. Its type is what the field declares; ``check_value`` checks bounds and choices."""


@dataclass(frozen=True)
class Field:
    """A field that is an option: its name, type and default in the class, and its ``Option``."""

    name: str
    kinds: tuple[Kind, ...]
    """The alternatives of the type, without None: (float, tuple[float, ...])."""
    default: OptionValue
    """``dataclasses.MISSING`` if the option is required."""
    option: Option

    @property
    def required(self) -> bool:
        """Whether a value must be given."""
        return self.default is dataclasses.MISSING

    def is_default(self, value: OptionValue) -> bool:
        """Return whether a value is the default, and of its type."""
        return type(value) is type(self.default) and bool(value == self.default)

    @cached_property
    def key(self) -> str:
        """The name in job files, ``--set`` and Python: the flag with underscores."""
        return (self.option.flag or self.name.rstrip("_")).replace("-", "_")

    @cached_property
    def flag(self) -> str:
        """The name on the command line: ``--memory``."""
        return "--" + self.key.replace("_", "-")

    @property
    def is_switch(self) -> bool:
        """Whether the value is true or false."""
        return self.kinds == (bool,)

    @cached_property
    def is_path(self) -> bool:
        """Whether a text value is a path."""
        return (not self.option.group and not self.option.choices) or self.metavar in PATH_METAVARS

    @cached_property
    def is_list(self) -> bool:
        """Whether the option takes several values."""
        return any(typing.get_origin(kind) is tuple for kind in self.kinds)

    @cached_property
    def always_list(self) -> bool:
        """Whether the value is always a list, so that a single one becomes a list with one item."""
        return all(typing.get_origin(kind) is tuple for kind in self.kinds)

    @cached_property
    def metavar(self) -> str:
        """The name of the value in the help: SIZE, DURATION, N, X, PATH, TEXT, or A,B,... for a list."""
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
        """Return the allowed words, including those of a registry; empty if every text is allowed."""
        declared = self.option.choices
        return [*self.option.extra_choices, *(load(declared) if isinstance(declared, str) else declared)]

    def help(self) -> str:
        """Return the help text, followed by the choices with their synonyms."""
        synonyms: dict[str, list[str]] = {}
        for alias, name in self.option.aliases:
            synonyms.setdefault(name, []).append(alias)
        if self.option.settings_of:
            return self.option.help
        words = [f"{word} (or {', '.join(synonyms[word])})" if word in synonyms else word for word in self.choices()]
        return self.option.help + (f" One of: {', '.join(words)}." if words else "")

    def default_text(self) -> str:
        """Return the default as text; empty if there is none, if it is None, and for a switch that is off."""
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


def field_values(value: object, names: Iterable[str]) -> ValuesByName:
    """Return fields of a dataclass or ``NamedTuple`` by name. ``names`` are names that the class declares."""
    return {name: getattr(value, name) for name in names}


@cache
def options_of(kind: type) -> tuple[Field, ...]:
    """Return the options that a dataclass or a ``NamedTuple`` declares, in the order of its fields.

    Fields without an ``Option`` are left out: only the program sets them.
    """
    hints = typing.get_type_hints(kind, include_extras=True)
    options = []
    for name, default in _defaults(kind).items():
        option = next((part for part in typing.get_args(hints[name])[1:] if isinstance(part, Option)), None)
        if typing.get_origin(hints[name]) is Annotated and option is not None:
            options.append(Field(name, _kinds(typing.get_args(hints[name])[0]), default, option))
    return tuple(options)


def _defaults(kind: type) -> ValuesByName:
    """Return the defaults of a dataclass or a ``NamedTuple`` by field; MISSING for a field without a default."""
    if not dataclasses.is_dataclass(kind):
        field_defaults: ValuesByName = kind._field_defaults  # type: ignore[attr-defined]
        return {name: field_defaults.get(name, dataclasses.MISSING) for name in kind._fields}  # type: ignore[attr-defined]
    return {
        field.name: field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        for field in dataclasses.fields(kind)
    }


def _kinds(annotation: Kind) -> tuple[Kind, ...]:
    """Return the alternatives of a union, without None; a type that is no union is the only alternative."""
    union = typing.get_origin(annotation) in (types.UnionType, typing.Union)
    alternatives = typing.get_args(annotation) if union else (annotation,)
    return tuple(kind for kind in alternatives if kind is not types.NoneType)


RANGE_COLONS = 2
"""Number of colons in 'A:B:N', a range of numbers."""
NUMBER_PARSERS = {int: parse_count, float: parse_number}


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
    """Convert a TOML value to the type of its field: sizes and durations from text, counts from numbers such as 5e6. Raises UsageError."""
    if isinstance(value, str) and (field.option.unit is not None or _is_range(field, value)):
        return parse(field, value)
    if isinstance(value, int | float) and field.option.unit is Quantity.BYTES:
        return parse(field, str(value))
    if isinstance(value, str | int | float) and field.always_list:
        return (value,)
    whole = isinstance(value, float) and field.kinds == (int,)
    return parse(field, str(value)) if whole else value


def parse_named_numbers(field: Field, value: OptionValue) -> OptionValue:
    """Convert a table of numbers, each of which may be text; return any other value unchanged.

    Raises UsageError that names the first entry which is not a number.
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
    """Parse values between commas; in a list of numbers, A:B:N stands for N numbers from A to B (``parse_range``)."""
    parts = [part.strip() for part in text.split(",")]
    inner = _kinds_of_items(field)
    ranges = [_is_range(field, part) for part in parts]
    if not field.always_list and len(parts) == 1 and not ranges[0]:
        return _parse_scalar(field.kinds, text)
    values: list[OptionValue] = []
    for part, is_range in zip(parts, ranges, strict=True):
        if part:
            values += parse_range(part) if is_range else [_parse_scalar(tuple(inner), part)]
    return tuple(values)


def _kinds_of_items(field: Field) -> list[Kind]:
    """Return the types of the items of a list."""
    return [kind for listed in field.kinds if typing.get_origin(listed) is tuple for kind in _parts_of(listed)]


def _is_range(field: Field, text: str) -> bool:
    """Return whether text is meant as a range of numbers, A:B:N, for a list of numbers."""
    return text.count(":") == RANGE_COLONS and float in _kinds_of_items(field)


def parse_range(text: str) -> list[float]:
    """Return the N numbers of 'A:B:N' from A to B with equal ratios, rounded to six digits. Raises UsageError."""
    first, last, count = text.split(":")
    low, high = parse_number(first), parse_number(last)
    steps = int(count) - 1 if count.strip().isdigit() else 0
    if not (0.0 < low < math.inf and 0.0 < high < math.inf and steps >= 1):
        raise UsageError(
            f"'{text}' is not A:B:N", hint="two numbers above 0, and how many to take from one to the other: 1e-3:1e3:7"
        )
    return [float(f"{low * (high / low) ** (k / steps):.6g}") for k in range(steps + 1)]


def _parts_of(listed: Kind) -> tuple[Kind, ...]:
    """Return (X, Y) for ``tuple[X | Y, ...]``."""
    part = typing.get_args(listed)[0]
    return typing.get_args(part) or (part,)


def _parse_scalar(kinds: tuple[Kind, ...], text: str) -> OptionValue:
    """Parse text as the first numeric type that accepts it, else as true or false, else as text if text is allowed."""
    parsers = [parser for kind, parser in NUMBER_PARSERS.items() if kind in kinds]
    for parser in parsers:
        try:
            return parser(text)
        except UsageError:
            if len(kinds) == 1:
                raise
    if bool in kinds:
        return _parse_switch(text)
    if parsers and not any(kind is str or typing.get_origin(kind) is dict for kind in kinds):
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
    """Class decorator for a group of options from which jobs inherit: a frozen dataclass with keyword-only fields.

    A group is never instantiated. It gets no methods, because generating them for every group would double the time of ``--help``.
    """
    return dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)(kind)


class Checked:
    """Base class of jobs and groups of options: dataclasses that check their values when they are created."""

    @property
    def to_stdout(self) -> bool:
        """Whether the job writes its result to standard output, so that nothing else may be printed there."""
        return False

    def __post_init__(self) -> None:
        """Replace synonyms by their choices, and numbers of numpy by plain ones. Raises UsageError for a value that is out of range or not allowed.

        Every value is set on the instance: msgspec leaves defaults on the class, where ``msgspec.to_builtins`` would not find them.
        """
        kind: type = type(self)
        for field in options_of(kind):
            value = getattr(self, field.name)
            is_default = field.is_default(value)  # which needs no check
            value = value if is_default else _to_plain_numbers(value)
            if isinstance(value, str) and not is_default:
                value = dict(field.option.aliases).get(value, value)
            object.__setattr__(self, field.name, value)
            if value is not None and not is_default:
                check_value(field, value, field.flag)


def _to_plain_numbers(value: OptionValue) -> OptionValue:
    """Return a value with Python's numbers in place of those of numpy, which no file of settings can hold."""
    if type(value) in (tuple, list):
        return type(value)(map(_to_plain_numbers, value))
    if isinstance(value, Mapping):
        return {name: _to_plain_numbers(item) for name, item in value.items()}
    if getattr(value, "ndim", None) == 0:
        return value.item()
    return value


def check_value(field: Field, value: OptionValue, name: str) -> None:
    """Raise UsageError for a value that the declaration does not allow; ``name`` is how the message calls the field."""
    if field.is_path:
        for part in value if isinstance(value, tuple | list) else (value,):
            if not ((field.option.urls or field.option.copies) and find_url(part) is not None):
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
    choices = field.choices()
    if not choices or value in choices:
        return
    if any(":" in word and value.startswith(word[: word.index(":") + 1]) for word in choices):
        return
    hint = f"choose from {', '.join(choices)}"
    raise UsageError(f"{name} cannot be {quote(value)}{did_you_mean(value, choices)}", hint=hint)


def _numbers_with_bounds(value: OptionValue) -> Iterable[OptionValue]:
    """Return the numbers that bounds apply to: the value itself, or the items of a list or table, without text and None."""
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, tuple | list) else (value,)
    return (part for part in parts if part is not None and not isinstance(part, str))


def _check_number(field: Field, number: OptionValue, name: str) -> None:
    bounds = field.option.bounds
    assert bounds is not None
    whole = int in field.kinds and float not in field.kinds
    noun = "a whole number" if whole else "a number"
    allowed = isinstance(number, numbers.Real) and bounds.holds(float(number))
    if not allowed or (whole and not float(number).is_integer()):
        unit = f" of {field.option.unit.value}" if field.option.unit is not None else ""
        raise UsageError(f"{name} cannot be {number}", hint=f"give {noun}{unit}: {bounds.describe()}")


def build_from_settings(kind: Any, options: JsonMapping, what: str, **fixed: Any) -> Any:
    """Create a solver, loss, kernel or generator of class ``kind`` from its settings by name (``--set``).

    ``what``: its name in errors. ``fixed``: fields that are not settings, set by the program. Raises UsageError for an unknown
    setting, and for a value of the wrong type or out of range.
    """
    import msgspec

    declared = {field.name: field for field in options_of(kind)}
    for name in options:
        if name not in declared:
            raise UsageError(f"{what} has no setting '{name}'", hint=f"it has: {', '.join(declared) or 'none'}")
    try:
        values = {name: _convert_setting(declared[name], value) for name, value in options.items()}
        if issubclass(kind, tuple):  # all fields as floats: numba would compile again for a tuple with an int
            result = kind(**fixed, **msgspec.convert(values, dict[str, float], strict=False))
        else:
            result = msgspec.convert({**fixed, **values}, kind, strict=False)
    except msgspec.ValidationError as error:
        raise UsageError(
            f"{what}: {error}", hint="see 'streamsvm fit --help-solver', --help-loss, --help-kernel"
        ) from error
    for name, value in field_values(result, values).items():
        check_value(declared[name], value, f"{what}: {name}")
    return result


def _convert_setting(field: Field, value: OptionValue) -> OptionValue:
    """Convert a setting to the type of its field: sizes and durations from text, whole numbers from 1e5. Raises UsageError."""
    if isinstance(value, str) and field.option.unit is not None:
        return parse(field, value)
    if isinstance(value, float) and field.kinds == (int,) and value.is_integer():
        return int(value)
    return value
