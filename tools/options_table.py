"""Write what is made of the declarations of options: ``python tools/options_table.py``.

The reference, tools/docs/options.md, and the types of the public names, streamsvm/__init__.pyi (``tools.api_stub``).

``tests/test_surface.py`` checks that both are of now.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from streamsvm.cli.commands import COMMANDS
from streamsvm.config.fields import GROUPS, Field, options_of
from streamsvm.config.job_file import STEPS
from streamsvm.registry import load
from tools import api_stub, python_reference

TARGET = Path(__file__).parent / "docs" / "options.md"
INTRODUCTION = """# Options

Every option of a command, which is also a key of its table in a job file and a field of its job in a program. Sizes are
written `512MiB` or `300MB`, durations `90s`, `30m` or `1h30m`, counts `200` or `5e6`. This file is made by
`python tools/options_table.py`.
"""
TABLES = {
    "solver": "streamsvm.solvers:SOLVERS",
    "loss": "streamsvm.losses:LOSSES",
    "kernel": "streamsvm.kernels:KERNELS",
    "generator": "streamsvm.store.generators:GENERATORS",
}
HEAD = ["| option | value | default | what it does |", "|---|---|---|---|"]


def reference() -> str:
    """The whole file."""
    parts = [INTRODUCTION]
    for name, step in STEPS.items():
        parts.append(f"## {name}\n\n{COMMANDS[name].summary}\n")
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


if __name__ == "__main__":
    TARGET.write_text(reference(), encoding="utf-8")
    python_reference.TARGET.write_text(python_reference.reference(), encoding="utf-8")
    api_stub.TARGET.write_text(api_stub.stub(), encoding="utf-8")
