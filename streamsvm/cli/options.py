"""Commands made of jobs: every field of a job's dataclass is an argument or an option."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from streamsvm.config.fields import Field, parse
from streamsvm.config.job_file import STEPS, Step, load, make_job, override, read_file
from streamsvm.config.units import size_text
from streamsvm.errors import UsageError

FLAGS = {"chunk_bytes": "--chunk", "bias": "--bias", "hash_bits": "--hash"}
CHOICES = {
    "solver": "streamsvm.solvers:SOLVERS",
    "loss": "streamsvm.losses:LOSSES",
    "kernel": "streamsvm.kernels:KERNELS",
    "format": "streamsvm.store.sources:SOURCES",
}


EPILOGS = {"name": ("NAME is one of", "streamsvm.store.generators:GENERATORS")}


FORMS = {"size": "512MiB, 4GiB or 300MB", "duration": "90s, 30m or 1h30m", "n": "200 or 5e6"}


class JobCommand(click.Command):
    """A command that says, when asked for help, what its arguments can be."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for parameter in self.params:
            if parameter.name in EPILOGS:
                text, registry = EPILOGS[parameter.name]
                formatter.write_paragraph()
                formatter.write_text(f"{text}: {', '.join(choices(registry))}.")
        kinds = {p.type.name for p in self.params if isinstance(p.type, Value)}
        forms = [f"{kind.upper()} is written {form}" for kind, form in FORMS.items() if kind in kinds]
        if forms:
            formatter.write_paragraph()
            formatter.write_text("; ".join(forms) + ".")


class Value(click.ParamType[Any]):
    """What a field takes, as written on a command line."""

    def __init__(self, field: Field) -> None:
        self.field = field
        self.name = placeholder(field)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return parse(self.field, value)
        except UsageError as error:
            return self.fail(error.message + (f" ({error.hint})" if error.hint else ""), param, ctx)


def placeholder(field: Field) -> str:
    """What stands for the value in the help."""
    if field.is_size:
        return "size"
    if field.is_duration:
        return "duration"
    if field.is_list:
        return "a,b,..."
    kinds = {"int": "n", "float": "x", "Path": "path"}
    return next((kinds[kind] for kind in field.kinds if kind in kinds), "text")


def command(name: str, run: Callable[..., None], summary: str, *, leave_out: Sequence[str] = ()) -> click.Command:
    """The command of a step. ``run`` gets the job's values by field name and the options no field is behind."""
    step = STEPS[name]
    params: list[click.Parameter] = [_argument(step, p) for p in step.positional if p not in leave_out]
    hidden = {*step.positional, *leave_out}
    for field in step.fields:
        if field.name not in hidden and not field.is_settings:
            params += _options(field)
    params += _common(step)
    return JobCommand(None, params=params, callback=run, help=summary)


def _argument(step: Step, name: str) -> click.Argument:
    field = next(f for f in step.fields if f.name == name)
    many = field.is_list
    shown = {"data": "STORE|SOURCE", "sources": "SOURCE"}.get(name, name.upper())
    return click.Argument([name], nargs=-1 if many else 1, required=False, metavar=shown + ("..." if many else ""))


def _options(field: Field) -> list[click.Parameter]:
    flag = FLAGS.get(field.name, "--" + field.key.replace("_", "-"))
    text = help_text(field)
    if field.annotation == "bool":
        negative = f"--no-{flag[2:]}"
        declared = f"{flag}/{negative}" if field.default == "True" else flag
        return [click.Option([declared, field.name], is_flag=True, default=None, help=text)]
    found: list[click.Parameter] = [
        click.Option([flag, field.name], type=Value(field), help=text, metavar=placeholder(field).upper())
    ]
    if field.name == "bias":
        off = click.Option(["--no-bias", "bias"], flag_value="0", type=Value(field), help="No constant feature.")
        found.append(off)
    return found


def help_text(field: Field) -> str:
    """The docstring under the field, what can be chosen, the default."""
    parts = [field.doc.replace("``", "").replace("lambda_", "lambda")] if field.doc else []
    if field.name in CHOICES and (names := choices(CHOICES[field.name])):
        parts.append(f"One of: {', '.join(names)}.")
    default = default_text(field)
    return " ".join(parts) + (f"  [default: {default}]" if default else "")


def choices(registry: str) -> list[str]:
    """The names in a registry."""
    return list(load(registry))


def default_text(field: Field) -> str:
    """The default as people write it; nothing for None and what is empty."""
    shown = field.default or ""
    if field.is_size and "<<" in shown:
        number, _, bits = shown.partition("<<")
        return (
            size_text(int(number) << int(bits)) if int(bits) % 10 else f"{number.strip()}{'KMG'[int(bits) // 10 - 1]}iB"
        )
    return "" if shown in ("None", "False", "True", "()", "float('inf')", "''") else shown.strip("'")


def _common(step: Step) -> list[click.Parameter]:
    found: list[click.Parameter] = [
        click.Option(
            ["--config"],
            type=click.Path(path_type=Path),
            help="Take values from the table of this command in a job file.",
        ),
        click.Option(["--json", "as_json"], is_flag=True, help="Write JSON for programs to standard output."),
    ]
    settings = [f.name for f in step.fields if f.is_settings]
    if settings:
        text = "A setting of what was chosen by name: solver.sweeps=5, loss.mu=0.2. Repeatable."
        found.insert(0, click.Option(["--set", "settings"], multiple=True, metavar="NAME=VALUE", help=text))
    return found


def job_of(name: str, values: dict[str, Any], config: Path | None, settings: Sequence[str]) -> Any:
    """The job a command line asks for: what the file says, then the options, then --set."""
    found: dict[str, Any] = {}
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
