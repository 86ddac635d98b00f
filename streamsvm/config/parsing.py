"""Values from text and from TOML, by what their field declares: 512MiB, 1h, 5e6, a,b and a=2,b=1."""

from __future__ import annotations

import numbers
import typing
from collections.abc import Mapping

from streamsvm.config.fields import Field, Kind, OptionValue, Quantity
from streamsvm.config.units import parse_count, parse_duration, parse_number, parse_size
from streamsvm.errors import UsageError, quote

NUMBERS = {int: parse_count, float: parse_number}


def parse(field: Field, text: str) -> OptionValue:
    """The value of a field from what was written on a command line. Raises UsageError."""
    if field.option.unit is Quantity.BYTES:
        return parse_size(text)
    if field.option.unit is Quantity.SECONDS:
        return parse_duration(text)
    if "=" in text and any(typing.get_origin(kind) is dict for kind in field.kinds):
        return _pairs(text)
    if field.is_list:
        return _listed(field, text)
    return _scalar(field.kinds, text)


def from_toml(field: Field, value: OptionValue) -> OptionValue:
    """The value of a field from a job file, where sizes and durations are text and counts may be 5e6. Raises UsageError."""
    if isinstance(value, str) and field.option.unit is not None:
        return parse(field, value)
    if isinstance(value, int | float) and field.option.unit is Quantity.BYTES:
        return parse(field, str(value))
    if isinstance(value, str | int | float) and field.only_list:
        return (value,)
    whole = isinstance(value, float) and field.kinds == (int,)
    return parse(field, str(value)) if whole else value


def named_numbers(field: Field, value: OptionValue) -> OptionValue:
    """A table of numbers, those written as text read as the command line reads numbers; what is no such table as it is.

    Raises UsageError, which names the entry, for one that is no number.
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


def _listed(field: Field, text: str) -> OptionValue:
    parts = [part.strip() for part in text.split(",")]
    if not field.only_list and len(parts) == 1:
        return _scalar(field.kinds, text)
    inner = [kind for listed in field.kinds if typing.get_origin(listed) is tuple for kind in _parts_of(listed)]
    return tuple(_scalar(tuple(inner), part) for part in parts if part)


def _parts_of(listed: Kind) -> tuple[Kind, ...]:
    """The kinds of a part of ``tuple[X | Y, ...]``."""
    part = typing.get_args(listed)[0]
    return typing.get_args(part) or (part,)


def _scalar(kinds: tuple[Kind, ...], text: str) -> OptionValue:
    """As the first of the kinds that is one of numbers and words; where a word will do, what is no number is one."""
    wanted = [parser for kind, parser in NUMBERS.items() if kind in kinds]
    for parser in wanted:
        try:
            return parser(text)
        except UsageError:
            if len(kinds) == 1:
                raise
    if bool in kinds:
        return _switch(text)
    if wanted and not any(kind is str or typing.get_origin(kind) is dict for kind in kinds):
        raise UsageError(f"'{text}' is not a number", hint="write it as 0.1 or 1e-3")
    return text


def _switch(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise UsageError(f"'{text}' is neither true nor false")
    return text.lower() == "true"


def _pairs(text: str) -> dict[str, float]:
    """'a=2,b=1' as a table of numbers."""
    table: dict[str, float] = {}
    for part in text.split(","):
        name, equals, value = part.rpartition("=")
        if not equals or not name.strip():
            raise UsageError(f"'{part}' is not NAME=NUMBER", hint="write it as a=2,b=1")
        if name.strip() in table:
            raise UsageError(f"'{name.strip()}' is given twice in '{text}'", hint="give each name one number")
        table[name.strip()] = parse_number(value)
    return table
