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
from streamsvm.api.inputs import parameter_name
from streamsvm.cli.main import SUMMARIES
from streamsvm.config.command_table import STEPS
from streamsvm.config.options import GROUPS, Field, options_of
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
    for name in functions:
        parts += [f"### {name}\n", _show_call(name, things[name]), *_document(name, things[name])]
    parts.append("## Classes\n")
    for name in classes:
        parts += _class(name, things[name])
    parts.append(ESTIMATORS)
    for name in streamsvm.sklearn.__all__:
        parts += _class(name, getattr(streamsvm.sklearn, name))
    parts += ["## Errors\n", "| error | exit code | what it is |", "|---|---|---|"]
    for name in errors:
        code = getattr(things[name], "exit_code", "")
        parts.append(f"| `{name}` | {code} | {_first_paragraph(things[name]).replace('|', chr(92) + '|')} |")
    return "\n".join(parts) + "\n"


def _class(name: str, kind: type) -> Iterator[str]:
    """What a class is, and its public members."""
    document = "\n".join(_document(name, kind))
    members = [text for key, text in _members(name, kind) if f"{{#{_anchor(name, key)}}}" not in document]
    yield from (f"### {name}\n", document, *(["**Members**\n"] if members else []), *members)


def _show_call(name: str, function: object) -> str:
    """How a function is called: the parameters that may be positional; the others are listed below it."""
    given = inspect.signature(function).parameters.values()  # type: ignore[arg-type]
    shown = [_untyped(one) for one in given if one.kind is one.POSITIONAL_OR_KEYWORD]
    more = ["*", "..."] if len(shown) < len(given) else []
    return f"```text\nsv.{name}({', '.join([*shown, *more])})\n```\n"


def _untyped(parameter: inspect.Parameter) -> str:
    """A parameter with its default, without its type."""
    return str(parameter.replace(annotation=inspect.Parameter.empty))


def _document(name: str, thing: object) -> Iterator[str]:
    """A docstring as Markdown: its text, definition lists of parameters and of attributes, what it returns, and the example."""
    parts = re.split(r"^(\w+)\n-{4,}\n", inspect.getdoc(thing) or "", flags=re.MULTILINE)
    yield _escape(parts[0]).strip() + "\n"
    for title, text in zip(parts[1::2], parts[2::2], strict=True):
        if title == "Examples":
            yield f"```pycon\n{text.strip()}\n```\n"
        elif title in {"Parameters", "Attributes"}:
            yield from [f"**{title}**\n", *_definitions(name, text)]
        elif title == "Returns":
            yield f"**Returns** `{text.strip()}`\n"


def _definitions(owner: str, text: str) -> Iterator[str]:
    """The parameters of a docstring as a definition list; each name has an anchor, such as ``fit-max-passes``."""
    for entry in re.split(r"\n(?=\S)", text.strip()):
        head, _, meaning = entry.partition("\n")
        names, _, kind = head.partition(" : ")
        shown = f" [{_escape(kind)}]{{.type}}" if kind else ""
        yield ", ".join(_term(owner, one, one) for one in re.split(r",\s+", names)) + shown
        yield f": {_escape(' '.join(meaning.split()))}\n"


def _term(owner: str, name: str, shown: str) -> str:
    """A name with an anchor, and a link to it."""
    return f"[`{shown}`](#{_anchor(owner, name)}){{#{_anchor(owner, name)}}}"


def _anchor(owner: str, name: str) -> str:
    return f"{owner}-{name.strip('_')}".lower().replace("_", "-")


def _escape(text: str) -> str:
    """Text of a docstring as Markdown: what is not code has no markup."""
    parts = re.split(r"(``.+?``)", text)
    special = r"([\\*<\[\]{}`]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9]))"
    return "".join(part if k % 2 else re.sub(special, r"\\\1", part) for k, part in enumerate(parts))


def _first_paragraph(thing: object) -> str:
    """The first paragraph of a docstring, on a line."""
    return (inspect.getdoc(thing) or "").split("\n\n")[0].replace("\n", " ")


def _members(name: str, kind: type) -> Iterator[tuple[str, str]]:
    """The public methods and properties of a class by name, those that it has of other classes of ours among them."""
    ours = [one for one in reversed(kind.__mro__) if one.__module__.startswith("streamsvm")]
    names = dict.fromkeys(key for one in ours for key in vars(one) if not key.startswith(("_", "set_")))
    found = {key: getattr(kind, key) for key in names if hasattr(kind, key)}
    for key, value in found.items():
        if isinstance(value, property) or callable(value):
            shown = key if isinstance(value, property) else f"{key}({_arguments(value)})"
            yield key, f"{_term(name, key, shown)}\n: {_escape(_first_paragraph(value))}\n"


def _arguments(method: object) -> str:
    """The arguments of a method, without types."""
    given = inspect.signature(method).parameters.values()  # type: ignore[arg-type]
    return ", ".join(_untyped(one) for one in given if one.name not in {"self", "cls"})


# -- types of the public names -----------------------------------------------------------------------------------------

STANDARD = [
    "from collections.abc import Callable, Mapping, Sequence",
    "from os import PathLike",
    "from typing import Any, Literal",
]
"""Where names come from that types are made of."""
PLACES: dict[str, tuple[str, ...]] = vars(streamsvm)["_PUBLIC_NAMES"]
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
    yield "from streamsvm.sklearn.base import StreamEstimator"
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
