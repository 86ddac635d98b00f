"""Commands made of jobs: every option a job declares is an argument or an option of its command."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from streamsvm.aliases import ByName
from streamsvm.cli.commands import COMMANDS
from streamsvm.cli.settings import help_options
from streamsvm.config.fields import GROUPS, Field, OptionValue
from streamsvm.config.job_file import STEPS, JobStep, make_job, override, read_file
from streamsvm.config.parsing import parse
from streamsvm.errors import UsageError

FORMS = {"SIZE": "512MiB, 4GiB or 300MB", "DURATION": "90s, 30m or 1h30m", "N": "200 or 5e6"}
"""How values are written, by what stands for them in the help."""


class GroupedOption(click.Option):
    """An option that knows under which heading the help lists it."""

    def __init__(self, declared: Sequence[str], group: str = "", **settings: Any) -> None:
        super().__init__(declared, **settings)
        self.group = group


class JobCommand(click.Command):
    """A command whose help explains its arguments and lists its options in groups."""

    def __init__(self, name: str, *, arguments: Sequence[Field], **settings: Any) -> None:
        super().__init__(name, **settings)
        self.arguments = arguments

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the arguments, then every group of options under its title, then those that belong to none."""
        with formatter.section("Arguments"):
            formatter.write_dl([(argument_name(field), described(field)) for field in self.arguments])
        rows: dict[str, list[tuple[str, str]]] = {}
        for option in self.get_params(ctx):
            if isinstance(option, click.Option) and (row := option.get_help_record(ctx)) is not None:
                group = option.group if isinstance(option, GroupedOption) else ""
                rows.setdefault(group, []).append(row)
        for group, title in {**GROUPS, "": "Other"}.items():
            if group in rows:
                with formatter.section(title):
                    formatter.write_dl(rows[group])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Say how sizes, durations and counts are written, where the command takes them."""
        shown = {parameter.metavar for parameter in self.params if isinstance(parameter, click.Option)}
        forms = [f"{name} is written {form}" for name, form in FORMS.items() if name in shown]
        if forms:
            formatter.write_paragraph()
            formatter.write_text("; ".join(forms) + ".")


class Value(click.ParamType[Any]):
    """What a field takes, as written on a command line."""

    def __init__(self, field: Field) -> None:
        self.field = field
        self.name = field.metavar

    def convert(self, value: OptionValue, param: click.Parameter | None, ctx: click.Context | None) -> OptionValue:
        """The value from its text; fails with the form that is expected."""
        if not isinstance(value, str):
            return value
        try:
            return parse(self.field, value)
        except UsageError as error:
            return self.fail(error.message + (f" ({error.hint})" if error.hint else ""), param, ctx)


def command(name: str, run: Callable[..., None], *, step: str = "", leave_out: Sequence[str] = ()) -> click.Command:
    """The command ``name`` with the options of a step, by default the one of that name.

    ``run`` gets the values by field name, and the options no field is behind.
    """
    made_of = STEPS[step or name]
    fields = {field.name: field for field in made_of.fields}
    arguments = [fields[position] for position in made_of.positional if position not in leave_out]
    params: list[click.Parameter] = [_argument(field) for field in arguments]
    for field in fields.values():
        if field.name not in made_of.positional and not field.option.settings_of:
            params += _options(field)
    params += _common(made_of)
    return JobCommand(name, arguments=arguments, params=params, callback=run, help=COMMANDS[name].summary)


def argument_name(field: Field) -> str:
    """What stands for an argument in the help: STORE, SOURCE..."""
    return (field.option.metavar or field.name.upper()) + ("..." if field.is_list else "")


def described(field: Field) -> str:
    """The help of an option: its text, its choices and its default."""
    default = field.default_text()
    return field.help() + (f"  [default: {default}]" if default else "")


def _argument(field: Field) -> click.Argument:
    return click.Argument([field.name], nargs=-1 if field.is_list else 1, required=False, metavar=argument_name(field))


def _options(field: Field) -> list[click.Parameter]:
    group = field.option.group
    if field.is_switch:
        declared = f"{field.flag}/--no-{field.flag[2:]}" if field.default is not False else field.flag
        return [GroupedOption([declared, field.name], group, is_flag=True, default=None, help=described(field))]
    found: list[click.Parameter] = [
        GroupedOption([field.flag, field.name], group, type=Value(field), help=described(field), metavar=field.metavar)
    ]
    if field.option.off:
        off = [f"--no-{field.flag[2:]}", field.name]
        found.append(GroupedOption(off, group, flag_value="0", type=Value(field), help=field.option.off))
    return found


def _common(step: JobStep) -> list[click.Parameter]:
    """The options of every command that is a job, and for those with settings of something chosen --set and its help."""
    config = click.Path(path_type=Path)
    found: list[click.Parameter] = [
        GroupedOption(["--config"], type=config, help="Take values from the table of this command in a job file."),
        GroupedOption(["--json", "as_json"], is_flag=True, help="Write JSON for programs to standard output."),
    ]
    tables = [field for field in step.fields if field.option.settings_of]
    if not tables:
        return found
    owners = ", ".join(field.option.settings_of for field in tables)
    text = f"Change a setting of what was chosen ({owners}), such as solver.sweeps=5. Repeatable."
    chosen = GroupedOption(["--set", "settings"], multiple=True, metavar="NAME=VALUE", help=text)
    return [chosen, *help_options(tables), *found]


def job_of(name: str, values: ByName, config: Path | None, settings: Sequence[str]) -> Any:
    """The job a command line asks for: what the file says, then the options, then --set.

    Raises UsageError, ConfigError and what reading the file raises.
    """
    found: ByName = {}
    if config is not None:
        tables = [table for step, table in read_file(config) if step == name]
        if len(tables) != 1:
            raise UsageError(f"{config} has {len(tables)} tables [{name}], one is needed", hint="see 'streamsvm run'")
        found |= tables[0]
    found |= {key: value for key, value in values.items() if value not in (None, ())}
    override(name, found, settings)
    for positional in STEPS[name].positional:
        if positional not in found:
            raise click.UsageError(f"Missing argument '{positional.upper()}'.")
    return make_job(name, found)
