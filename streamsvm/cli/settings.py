"""What ``--set`` takes: --help-solver, --help-loss and --help-kernel list the settings of what can be chosen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from streamsvm.config.fields import Field, options_of
from streamsvm.registry import load

ALL = "all"


def help_options(tables: Sequence[Field]) -> list[click.Option]:
    """An option for each table of settings that prints what can be in it, of one choice or of all."""
    return [_help_option(table) for table in tables]


def _help_option(table: Field) -> click.Option:
    owner = table.option.settings_of

    def show(ctx: click.Context, _: click.Parameter, name: str | None) -> None:
        if name is not None and not ctx.resilient_parsing:
            click.echo(settings_text(table, name))
            ctx.exit()

    return click.Option(
        [f"--help-{owner}"],
        is_flag=False,
        flag_value=ALL,
        is_eager=True,
        expose_value=False,
        callback=show,
        metavar="[NAME]",
        help=f"List what --set takes for a {owner}, or for all of them.",
    )


def settings_text(table: Field, name: str) -> str:
    """The settings of one choice, or of all. Raises UsageError for a name there is not."""
    registry = load(str(table.option.choices))
    names = list(registry) if name == ALL else [name]
    return "\n".join(_settings_of(table.option.settings_of, choice, registry[choice]) for choice in names).rstrip()


def _settings_of(owner: str, name: str, kind: Any) -> str:
    formatter = click.HelpFormatter(max_width=110)
    first_line = (kind.__doc__ or "").strip().splitlines()[0]
    formatter.write_text(f"{owner} {name}: {first_line}")
    settings = options_of(kind)
    with formatter.indentation():
        if settings:
            formatter.write_dl([(f"{owner}.{field.key}", setting_text(field)) for field in settings])
        else:
            formatter.write_text("It has no settings.")
    return formatter.getvalue()


def setting_text(field: Field) -> str:
    """Help, choices, range and default of a setting."""
    range_ = f" {field.option.bounds.describe().capitalize()}." if field.option.bounds is not None else ""
    default = str(field.default).lower() if field.is_switch else field.default_text()
    return field.help() + range_ + (f"  [default: {default}]" if default else "")
