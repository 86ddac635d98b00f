"""The types of the public names, streamsvm/__init__.pyi, made of the declarations of options.

``python tools/options_table.py`` writes the file; ``tests/test_surface.py`` checks that it is of now.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path

import streamsvm
from streamsvm.api.commands import COMMANDS
from streamsvm.config.job_file import STEPS
from streamsvm.jobs.fit.planning.plan import Plan
from streamsvm.registry import load

TARGET = Path(streamsvm.__file__).with_suffix(".pyi")
STANDARD = [
    "from collections.abc import Callable, Mapping, Sequence",
    "from os import PathLike",
    "from typing import Any",
]
"""Where names come from that types are made of."""
PLACES: dict[str, tuple[str, ...]] = vars(streamsvm)["_PLACES"]
"""By module, the public names that are of it."""
SIMPLE = (bool, int, str, type(None))
"""Types of defaults that a stub has as they are; of others, and of numbers that are no literal, it says '...'."""


def stub() -> str:
    """The whole file."""
    lines = ["# Made by tools/options_table.py of the declarations of options: do not edit.", "", *STANDARD, ""]
    lines += [*sorted(_imports()), "", "__version__: str", "", *_names(), ""]
    for name in sorted([*COMMANDS, "plan"]):
        lines += _definition(name)
    return "\n".join(lines) + "\n"


def _imports() -> Iterator[str]:
    """Where each class that is named comes from; public names are imported as themselves."""
    results = {load(STEPS[step].action).__globals__[command.result] for step, command in COMMANDS.items()}
    for kind in (*results, Plan):
        yield f"from {kind.__module__} import {kind.__name__}"
    for module, public in PLACES.items():
        if module != "streamsvm.api.commands":
            yield from (f"from {module} import {name} as {name}" for name in public)


def _names() -> list[str]:
    """The list of public names, in the order of the linter."""
    ordered = sorted(streamsvm.__all__, key=lambda name: (not name[0].isupper(), name))
    return ["__all__ = [", *(f'    "{name}",' for name in ordered), "]"]


def _definition(name: str) -> list[str]:
    """A function, with one parameter a line."""
    declared = inspect.signature(getattr(streamsvm, name))
    lines, star = [f"def {name}("], False
    for parameter in declared.parameters.values():
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and not star:
            lines.append("    *,")
            star = True
        default = "" if parameter.default is inspect.Parameter.empty else f" = {_default(parameter.default)}"
        lines.append(f"    {parameter.name}: {parameter.annotation}{default},")
    return [*lines, f") -> {declared.return_annotation}: ..."]


def _default(value: object) -> str:
    """A default as a stub has it."""
    return repr(value).replace("'", '"') if isinstance(value, SIMPLE) else "..."
