"""Values against their declarations: one check for what comes from a command line, a job file and a program alike.

A job checks itself when it is made (``Checked``); the settings of a solver, loss or kernel are checked where the
value is made of them (``build``).
"""

from __future__ import annotations

import numbers
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, dataclass_transform

from streamsvm.aliases import JsonMapping
from streamsvm.config.fields import Field, OptionValue, field_values, options_of
from streamsvm.config.parsing import parse
from streamsvm.errors import UsageError, quote
from streamsvm.registry import did_you_mean
from streamsvm.regular import refuse_url

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
        """Whether what the job makes goes to standard output, which nothing else may then be written to."""
        return False

    def __post_init__(self) -> None:
        """Replace aliases by what they stand for. Raises UsageError for a value that is out of range or no choice.

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
    """Raise UsageError, which calls the field ``name``, for a value its declaration does not allow."""
    if field.is_place:
        for part in value if isinstance(value, tuple | list) else (value,):
            refuse_url(part)
    if isinstance(value, str):
        _check_choice(field, value, name)
    elif isinstance(value, tuple) and all(isinstance(part, str) for part in value):
        for part in value:
            _check_choice(field, part, name)
    elif field.option.bounds is not None:
        for number in _numbers(value):
            _check_number(field, number, name)


def _check_choice(field: Field, value: str, name: str) -> None:
    known = field.choices()
    if not known or value in known:
        return
    hint = f"choose from {', '.join(known)}"
    raise UsageError(f"{name} cannot be {quote(value)}{did_you_mean(value, known)}", hint=hint)


def _numbers(value: OptionValue) -> Iterable[OptionValue]:
    """What a range is asked of: a value, or the parts of a list or table, words and None left out."""
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
    """Make a solver, loss, kernel or generator from settings given by name; ``what`` is what errors call it.

    ``fixed`` are fields that are no settings, which the program decides.
    Raises UsageError, with what there is, for a setting nobody has, and for a value of the wrong type or out of range.
    """
    import msgspec

    declared = {field.name: field for field in options_of(kind)}
    for name in options:
        if name not in declared:
            raise UsageError(f"{what} has no setting '{name}'", hint=f"it has: {', '.join(declared) or 'none'}")
    try:
        values = {name: _converted(declared[name], value) for name, value in options.items()}
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


def _converted(field: Field, value: OptionValue) -> OptionValue:
    """A setting as its type has it: sizes and counts from text, 1e5 as a whole number. Raises UsageError."""
    if isinstance(value, str) and field.option.unit is not None:
        return parse(field, value)
    if isinstance(value, float) and field.kinds == (int,) and value.is_integer():
        return int(value)
    return value
