"""The command line that asks for a job: what a hint tells people to run, complete and quoted for a shell."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Iterator

from streamsvm.config.checks import Checked
from streamsvm.config.fields import Field, OptionValue, Quantity, field_values
from streamsvm.config.job_file import STEPS
from streamsvm.config.units import exact_size_text


def command_of(name: str, job: Checked, **changed: OptionValue) -> str:
    """Return the command of a step that gives this job again, with some fields ``changed``."""
    step = STEPS[name]
    values = field_values(job, (field.name for field in step.fields)) | changed
    words = ["streamsvm", name]
    for field in step.fields:
        if field.name not in step.positional and _differs(field, values[field.name]):
            words += _option(field, values[field.name])
    positional = [str(word) for place in step.positional for word in _several(values[place])]
    if any(word.startswith("-") for word in positional):
        words.append("--")
    return shlex.join([*words, *positional])


def _differs(field: Field, value: OptionValue) -> bool:
    """Whether a value has to be said: it is neither absent nor what the field has anyway."""
    default = field.default
    if isinstance(default, dataclasses.Field):
        default = default.default_factory() if callable(default.default_factory) else None
    return value not in (None, (), {}) and value != default


def _option(field: Field, value: OptionValue) -> Iterator[str]:
    if field.option.settings_of:
        for setting, chosen in value.items():
            yield from ("--set", f"{field.option.settings_of}.{setting}={_text(field, chosen)}")
    elif field.is_switch:
        yield field.flag if value else f"--no-{field.flag[2:]}"
    elif isinstance(value, dict):
        yield from (field.flag, ",".join(f"{key}={_text(field, item)}" for key, item in value.items()))
    else:
        yield from (field.flag, ",".join(_text(field, item) for item in _several(value)))


def _several(value: OptionValue) -> tuple[OptionValue, ...]:
    return tuple(value) if isinstance(value, tuple | list) else (value,)


def _text(field: Field, value: OptionValue) -> str:
    """A single value as it is written on a command line: bytes and seconds to the last digit."""
    if field.option.unit is Quantity.BYTES and isinstance(value, int):
        return exact_size_text(value)
    text = repr(value).removesuffix(".0") if isinstance(value, float) else str(value)
    return text + "s" if field.option.unit is Quantity.SECONDS else text
