"""What a program says of options, by name, as the values of a job's fields: also text as on the command line."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.aliases import ByName
from streamsvm.api.signature import parameter_name
from streamsvm.config.fields import Field, OptionValue
from streamsvm.config.job_file import STEPS
from streamsvm.config.parsing import from_toml
from streamsvm.errors import UsageError, quote
from streamsvm.kinds_of_rows import is_dask, is_given
from streamsvm.registry import did_you_mean


def by_field(step: str, given: Mapping[str, Any], called: str, leave_out: Collection[str] = ()) -> ByName:
    """Return values by the name of their field; what is None is left out, and is then as the declaration says.

    An option is called as on the command line, with underscores, or as its field. ``called``: the name of the function,
    for errors. Raises UsageError, for a name there is not with the nearest that is one.
    """
    fields = [field for field in STEPS[step].fields if field.name not in leave_out]
    names = {field.name: field for field in fields} | {parameter_name(field): field for field in fields}
    values: ByName = {}
    for name, value in given.items():
        field = names.get(name)
        if field is None:
            known = sorted({parameter_name(one) for one in fields})
            raise UsageError(
                f"{called} has no option '{name}'{did_you_mean(name, known)}", hint=f"there are: {', '.join(known)}"
            )
        if value is not None:
            values[field.name] = field_value(field, value)
    return values


def field_value(field: Field, value: OptionValue) -> OptionValue:
    """Return a value as its field has it: a path, a number of numpy, '512MiB', a class that is a number. Raises UsageError."""
    value = value if is_given(value) else _plain(value)
    if field.name == "cluster" and not isinstance(value, str):
        raise _no_address(value)
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if not isinstance(value, str | list | tuple) and (is_given(value) or is_dask(value)):
        kind = f"{type(value).__module__}.{type(value).__qualname__}"
        hint = "store them first, sv.ingest(X, 'rows.zarr', y=y), and name the store; a model predicts rows in memory itself, model.predict(X)"
        raise UsageError(
            f"{parameter_name(field)} names a store or files, and is not the rows themselves ({kind})", hint=hint
        )
    if field.kinds == (str,) and isinstance(value, int | float) and not isinstance(value, bool):
        return _label(value)
    if isinstance(value, Mapping):
        return {_label(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | range):
        parts = sorted(value) if isinstance(value, set) else value
        return tuple(os.fspath(part) if isinstance(part, Path) else _plain(part) for part in parts)
    return from_toml(field, value)


def _no_address(value: object) -> UsageError:
    """The error for what is given in the place of a cluster's address: a client of Dask, most likely."""
    hint = "cluster='client:' takes the client that a program has, which distributed.Client(...) makes Dask's default"
    if getattr(value, "asynchronous", False):
        hint = "make one that waits, Client(ADDRESS, asynchronous=False), in a thread of its own if need be, and pass cluster='client:'"
    return UsageError(f"cluster is the address of a cluster as text, not {quote(type(value).__name__)}", hint=hint)


def _plain(value: OptionValue) -> OptionValue:
    """A number of numpy as one of Python, an array as a list."""
    if isinstance(value, np.generic):
        return value.item()
    return value.tolist() if isinstance(value, np.ndarray) else value


def _label(key: object) -> str:
    """A class as it is called: '1' for 1 and for 1.0."""
    if isinstance(key, str):
        return key
    number = _plain(key)
    return str(int(number)) if isinstance(number, int | float) and float(number).is_integer() else str(number)
