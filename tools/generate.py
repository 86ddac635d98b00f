"""Write the files that are made of the declarations of options and of docstrings: python tools/generate.py [options] [python] [stub].

``options``: the reference of options, tools/docs/options.md. ``python``: that of the Python functions, tools/docs/reference/python.md.
``stub``: the types of the public names, streamsvm/__init__.pyi. Without a name all of them; the tests say where one is not of now.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import streamsvm
import streamsvm.sklearn
from streamsvm.api.functions import COMMANDS as FUNCTIONS
from streamsvm.api.functions import parameter_name
from streamsvm.cli.main import SUMMARIES
from streamsvm.config.options import GROUPS, Field, options_of
from streamsvm.config.settings import STEPS
from streamsvm.jobs.fit.plan import Plan
from streamsvm.registry import load

DOCS = Path(__file__).parent / "docs"


# -- options -----------------------------------------------------------------------------------------------------------

OPTIONS_INTRODUCTION = """# Options

Every option of a command, which is also a key of its table in a job file and a field of its job in a program. Sizes are
written `512MiB` or `300MB`, durations `90s`, `30m` or `1h30m`, counts `200` or `5e6`. This file is made by
`python tools/generate.py`.
"""
TABLES = {
    "solver": "streamsvm.solvers:SOLVERS",
    "loss": "streamsvm.losses:LOSSES",
    "kernel": "streamsvm.kernels:KERNELS",
    "generator": "streamsvm.store.generators:GENERATORS",
}
HEAD = ["| option | value | default | what it does |", "|---|---|---|---|"]


def options_page() -> str:
    """Return the reference of options."""
    parts = [OPTIONS_INTRODUCTION]
    for name, step in STEPS.items():
        parts.append(f"## {name}\n\n{SUMMARIES[name]}\n")
        parts += command_tables(step.fields, step.positional)
    for owner, registry in TABLES.items():
        parts.append(f"## Settings of a {owner}\n\nGiven as `--set {owner}.NAME=VALUE`.\n")
        for name, kind in ((name, load(registry)[name]) for name in load(registry)):
            if options_of(kind):
                parts.append(f"### {name}\n\n" + "\n".join([*HEAD, *(row(f, f.key) for f in options_of(kind))]) + "\n")
    return "\n".join(parts)


def command_tables(fields: tuple[Field, ...], positional: tuple[str, ...]) -> Iterator[str]:
    """The arguments of a command, then its options by group."""
    named = {field.name: field for field in fields}
    rows = [row(named[name], name.upper()) for name in positional]
    yield "\n".join([*HEAD, *rows]) + "\n"
    for group, title in {**GROUPS, "": "Other"}.items():
        rows = [row(f, f.flag) for f in fields if f.option.group == group and f.name not in positional]
        if rows:
            yield f"**{title}**\n\n" + "\n".join([*HEAD, *rows]) + "\n"


def row(field: Field, name: str) -> str:
    """One option as a row of a table."""
    value = "" if field.is_switch else field.metavar
    if field.option.settings_of:
        name, value = f"--set {field.option.settings_of}.NAME=VALUE", ""
    bounds = "" if field.option.bounds is None else f" ({field.option.bounds.describe()})"
    text = field.help() + (bounds if not field.is_switch else "")
    cells = (f"`{name}`", f"`{value}`" if value else "", field.default_text(), text)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


# -- Python ------------------------------------------------------------------------------------------------------------

PYTHON_INTRODUCTION = """# Python

`import streamsvm as sv` loads nothing; each name is loaded when it is first used. This page is made by
`python tools/generate.py`.
"""

ESTIMATORS = """## Estimators

`from streamsvm.sklearn import StreamSVC` (`pip install 'streamsvm[sklearn]'`, scikit-learn 1.6 or later). Beside what is said here they have
what every estimator has: `get_params`, `set_params`, `score`, `set_output` of transformers, `set_fit_request` and its kin.
"""


def python_page() -> str:
    """Return the reference of the Python functions."""
    names = [name for name in streamsvm.__all__ if not name.startswith("_")]
    things = {name: getattr(streamsvm, name) for name in names}
    functions = [name for name in names if not inspect.isclass(things[name])]
    errors = [name for name in names if inspect.isclass(things[name]) and issubclass(things[name], Exception)]
    classes = [name for name in names if name not in functions and name not in errors]
    parts = [PYTHON_INTRODUCTION, "## Functions\n"]
    parts += [f"### {name}\n\n{_literal(_signature(name, things[name]), things[name])}\n" for name in functions]
    parts.append("## Classes\n")
    for name in classes:
        parts += _class(name, things[name])
    parts.append(ESTIMATORS)
    for name in streamsvm.sklearn.__all__:
        parts += _class(name, getattr(streamsvm.sklearn, name))
    parts += ["## Errors\n", "| error | exit code | what it is |", "|---|---|---|"]
    for name in errors:
        code = getattr(things[name], "exit_code", "")
        first = (inspect.getdoc(things[name]) or "").split("\n\n")[0].replace("\n", " ").replace("|", "\\|")
        parts.append(f"| `{name}` | {code} | {first} |")
    return "\n".join(parts) + "\n"


def _class(name: str, kind: type) -> Iterator[str]:
    """What a class is, and its public members."""
    yield f"### {name}\n\n{_literal('', kind)}\n"
    yield from _members(name, kind)


def _signature(name: str, thing: object) -> str:
    found = inspect.signature(thing)  # type: ignore[arg-type]
    shown = ",\n   ".join(re.sub(r": '([^']*)'", r": \1", str(parameter)) for parameter in found.parameters.values())
    return f"sv.{name}(\n   {shown}\n)\n\n"


def _literal(before: str, thing: object) -> str:
    return f"```text\n{before}{inspect.getdoc(thing) or ''}\n```"


def _members(name: str, kind: type) -> Iterator[str]:
    """The public methods and properties of a class, those that it has of other classes of ours among them, a line each."""
    ours = [one for one in reversed(kind.__mro__) if one.__module__.startswith("streamsvm")]
    names = dict.fromkeys(key for one in ours for key in vars(one) if not key.startswith(("_", "set_")))
    found = {key: getattr(kind, key) for key in names if hasattr(kind, key)}
    rows = []
    for key, value in found.items():
        if isinstance(value, property) or callable(value):
            first = (inspect.getdoc(value) or "").split("\n\n")[0].replace("\n", " ").replace("|", "\\|")
            shown = key if isinstance(value, property) else f"{key}()"
            rows.append(f"| `{name}.{shown}` | {first} |")
    if rows:
        yield "\n".join(["| member | what it is |", "|---|---|", *rows]) + "\n"


# -- types of the public names -----------------------------------------------------------------------------------------

STANDARD = [
    "from collections.abc import Callable, Mapping, Sequence",
    "from os import PathLike",
    "from typing import Any, Literal",
]
"""Where names come from that types are made of."""
PLACES: dict[str, tuple[str, ...]] = vars(streamsvm)["_PLACES"]
"""By module, the public names that are of it."""
SIMPLE = (bool, int, str, type(None))
"""Types of defaults that a stub has as they are; of others, and of numbers that are no literal, it says '...'."""


def stub() -> str:
    """Return the types of the public names."""
    lines = ["# Made by tools/generate.py of the declarations of options: do not edit.", "", *STANDARD, ""]
    lines += [*sorted(_imports()), "", "__version__: str", "", *_names(), ""]
    for name in sorted([*FUNCTIONS, "plan"]):
        lines += _definition(name)
    return "\n".join(lines) + "\n"


def _imports() -> Iterator[str]:
    """Where each class that is named comes from; public names are imported as themselves."""
    results = {load(STEPS[step].action).__globals__[command.result] for step, command in FUNCTIONS.items()}
    for kind in (*results, Plan):
        yield f"from {kind.__module__} import {kind.__name__}"
    for module, public in PLACES.items():
        if module != "streamsvm.api.functions":
            yield from (f"from {module} import {name} as {name}" for name in public)


def _names() -> list[str]:
    """The list of public names, in the order of the linter."""
    ordered = sorted(streamsvm.__all__, key=lambda name: (not name[0].isupper(), name))
    return ["__all__ = [", *(f'    "{name}",' for name in ordered), "]"]


def _definition(name: str) -> list[str]:
    """A function, with one parameter a line."""
    declared = inspect.signature(getattr(streamsvm, name))
    fields = {parameter_name(field): field for field in STEPS["fit" if name == "plan" else name].fields}
    lines, star = [f"def {name}("], False
    for parameter in declared.parameters.values():
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and not star:
            lines.append("    *,")
            star = True
        default = "" if parameter.default is inspect.Parameter.empty else f" = {_default(parameter.default)}"
        kind = _precise_type(parameter.annotation, fields.get(parameter.name))
        lines.append(f"    {parameter.name}: {kind}{default},")
    return [*lines, f") -> {declared.return_annotation}: ..."]


def _precise_type(kind: str, field: Field | None) -> str:
    """The type of a parameter as an editor and a type checker want it: the words of a choice, any object for rows."""
    parts = ["object" if part == "Any" else part for part in kind.split(" | ")]
    if field is not None and field.kinds == (str,) and "str" in parts:
        words = [*field.choices(), *(alias for alias, _ in field.option.aliases)]
        if words and not any(":" in word for word in words):  # one with a colon is a form (``Option.choices``)
            parts[parts.index("str")] = f"Literal[{', '.join(map(json.dumps, words))}]"
    return " | ".join(parts)


def _default(value: object) -> str:
    """A default as a stub has it."""
    return repr(value).replace("'", '"') if isinstance(value, SIMPLE) else "..."


PAGES: dict[str, tuple[Path, Callable[[], str]]] = {
    "options": (DOCS / "options.md", options_page),
    "python": (DOCS / "reference" / "python.md", python_page),
    "stub": (Path(streamsvm.__file__).with_suffix(".pyi"), stub),
}
"""By name, the file and what makes it."""


def main() -> None:
    for name in sys.argv[1:] or PAGES:
        path, make = PAGES[name]
        path.write_text(make(), encoding="utf-8")


if __name__ == "__main__":
    main()
