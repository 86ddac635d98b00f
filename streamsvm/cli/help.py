"""Write the help of commands: common options first, examples last; and what --help-solver, --help-loss and --help-kernel list.

The text of an option is written where the option is declared (``config.options.Option``); the summary of a command in
``config.command_table``. The groups of options and their titles are ``config.options.GROUPS``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from streamsvm.config.options import GROUPS, Field, options_of
from streamsvm.registry import load

COMMON_OPTIONS = {
    "ingest": ("label", "missing", "categorical", "hash_bits", "drop", "missing_label", "test_fraction", "on_bad_line", "memory", "overwrite"),
    "embed": ("landmarks", "kernel", "gamma", "memory", "overwrite"),
    "fit": (
        "C", "loss", "standardize", "class_weight", "landmarks", "gamma", "validation", "calibrate", "tolerance",
        "time_limit", "memory", "report", "overwrite", "resume",
    ),
    "tune": ("C", "gamma", "landmarks", "folds", "loss", "standardize", "class_weight", "memory", "report", "overwrite"),
    "predict": ("output", "id_column", "on_bad_line", "memory", "overwrite"),
    "forget": ("receipt", "label", "on_bad_line", "memory", "overwrite"),
    "learn": ("label", "on_bad_line", "memory", "overwrite"),
    "evaluate": ("label", "threshold", "best_threshold", "cost", "on_bad_line", "memory"),
}  # fmt: skip
"""The options that the help of a command lists first, under "Common options", in this order."""
EXAMPLES = {
    "synth": ("streamsvm synth susy train.zarr --rows 5e6",),
    "ingest": (
        "streamsvm ingest train.csv --describe --label y",
        "streamsvm ingest train.csv train.zarr --label y --missing mean",
        "streamsvm ingest 'parts/*.parquet' train.zarr --label y --test-fraction 0.1",
    ),
    "embed": (
        "streamsvm embed train.zarr features.zarr --landmarks 2000 --memory 4GiB",
        "streamsvm fit features.zarr model.ssvm --C 0.1,1,10",
    ),
    "fit": (
        "streamsvm fit train.zarr model.ssvm --memory 512MiB",
        "streamsvm fit train.zarr model.ssvm --C 0.01,0.1,1 --validation 0.1 --report page.html",
        "streamsvm fit train.zarr model.ssvm --landmarks 2000 --standardize",
        "streamsvm fit train.zarr model.ssvm --certify full",
        "streamsvm fit train.zarr model.ssvm --resume",
    ),
    "tune": (
        "streamsvm tune train.zarr search --C 0.1,1,10 --folds 5",
        "streamsvm tune train.zarr search --C 1,10 --gamma 0.01,scale --landmarks 1000",
    ),
    "predict": (
        "streamsvm predict model.ssvm new.csv predictions.csv",
        "streamsvm predict model.ssvm new.parquet predictions.csv --output label,decision",
        "streamsvm predict model.ssvm new.csv predictions.csv --output label,low,high,proved",
    ),
    "evaluate": ("streamsvm evaluate model.ssvm test.csv", "streamsvm evaluate model.ssvm test.zarr --json"),
    "forget": ("streamsvm forget model.ssvm rows.csv new.ssvm --receipt receipt.csv",),
    "learn": ("streamsvm learn model.ssvm new-rows.csv new.ssvm",),
    "export": ("streamsvm export model.ssvm model.onnx --format onnx", "streamsvm export model.ssvm model.txt"),
    "report": ("streamsvm report model.ssvm page.html", "streamsvm report a.ssvm b.ssvm comparison.html"),
    "plan": ("streamsvm plan train.zarr --landmarks 2000 --memory 4GiB",),
    "run": ("streamsvm run job.toml", "streamsvm run job.toml --set fit.C=10 --report page.html"),
    "info": ("streamsvm info train.zarr --columns", "streamsvm info model.ssvm --json"),
    "verify": ("streamsvm verify train.zarr",),
    "cache": ("streamsvm cache list", "streamsvm cache prune"),
    "doctor": ("streamsvm doctor",),
}
"""Command lines at the end of the help of each command."""
ALL_CHOICES = "all"
"""The value of --help-solver without a name."""


def write_examples(formatter: click.HelpFormatter, examples: Sequence[str]) -> None:
    """Write the section "Examples": one command line per line, never wrapped, so that it can be copied."""
    with formatter.section("Examples"):
        for example in examples:
            formatter.write(f"{'':>{formatter.current_indent}}{example}\n")


def argument_name(field: Field) -> str:
    """Return an argument as the help writes it: STORE, SOURCE..., [MODEL]."""
    name = (field.option.metavar or field.name.upper()) + ("..." if field.is_list else "")
    return name if field.required else f"[{name}]"


def describe_option(field: Field) -> str:
    """Return the help text of an option: what it does, its choices and its default."""
    default = field.default_text()
    return field.help() + (f"  [default: {default}]" if default else "")


def make_help_options(tables: Sequence[Field]) -> list[click.Option]:
    """Return one option for each table of settings that a command has: --help-solver, --help-loss, --help-kernel."""
    return [_make_help_option(table) for table in tables]


def _make_help_option(table: Field) -> click.Option:
    owner = table.option.settings_of

    def show(ctx: click.Context, _: click.Parameter, name: str | None) -> None:
        if name is not None and not ctx.resilient_parsing:
            click.echo(describe_settings(table, name))
            ctx.exit()

    return click.Option(
        [f"--help-{owner}"],
        is_flag=False,
        flag_value=ALL_CHOICES,
        is_eager=True,
        expose_value=False,
        callback=show,
        metavar="[NAME]",
        help=f"List the settings of a {owner} that --set changes, or those of all.",
    )


def describe_settings(table: Field, name: str) -> str:
    """Return the list that --help-solver NAME prints: the settings of one solver, loss or kernel, or of all of them.

    Raises UsageError for an unknown name.
    """
    registry = load(str(table.option.choices))
    names = list(registry) if name == ALL_CHOICES else [name]
    return "\n".join(_describe_choice(table.option.settings_of, choice, registry[choice]) for choice in names).rstrip()


def _describe_choice(owner: str, name: str, kind: Any) -> str:
    formatter = click.HelpFormatter(max_width=110)
    first_line = (kind.__doc__ or "").strip().splitlines()[0]
    formatter.write_text(f"{owner} {name}: {first_line}")
    settings = options_of(kind)
    with formatter.indentation():
        if settings:
            formatter.write_dl([(f"{owner}.{field.key}", describe_setting(field)) for field in settings])
        else:
            formatter.write_text("It has no settings.")
    return formatter.getvalue()


def describe_setting(field: Field) -> str:
    """Return the help text of a setting: what it does, its choices, its range and its default."""
    range_ = f" {field.option.bounds.describe().capitalize()}." if field.option.bounds is not None else ""
    default = str(field.default).lower() if field.is_switch else field.default_text()
    return field.help() + range_ + (f"  [default: {default}]" if default else "")


VALUE_FORMS = {"SIZE": "512MiB, 4GiB or 300MB", "DURATION": "90s, 30m or 1h30m", "N": "200 or 5e6"}
"""Examples of values, by the word that stands for them in the help."""


class GroupedOption(click.Option):
    """An option that the help lists under the title of its group."""

    def __init__(self, declared: Sequence[str], group: str = "", **settings: Any) -> None:
        super().__init__(declared, **settings)
        self.group = group


class CommandWithExamples(click.Command):
    """A command whose help ends with examples."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples."""
        write_examples(formatter, EXAMPLES[self.name or ""])


class JobCommand(CommandWithExamples):
    """A command whose help explains its arguments and lists its options by group."""

    def __init__(self, name: str, *, arguments: Sequence[Field], common: Sequence[str], **settings: Any) -> None:
        super().__init__(name, **settings)
        self.arguments, self.common = arguments, common

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the arguments, the common options, the other options by group, and last those without a group."""
        with formatter.section("Arguments"):
            formatter.write_dl([(argument_name(field), describe_option(field)) for field in self.arguments])
        common: dict[str, tuple[str, str]] = {}
        rows: dict[str, list[tuple[str, str]]] = {}
        for option in self.get_params(ctx):
            if isinstance(option, click.Option) and (row := option.get_help_record(ctx)) is not None:
                if option.name in self.common and option.name not in common:  # --no-X stays in its group
                    common[option.name] = row
                else:
                    group = option.group if isinstance(option, GroupedOption) else ""
                    rows.setdefault(group, []).append(row)
        if common:
            with formatter.section("Common options"):
                formatter.write_dl([common[name] for name in self.common])
        for group, title in {**GROUPS, "": "Other"}.items():
            if group in rows:
                with formatter.section(title):
                    formatter.write_dl(rows[group])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write how sizes, durations and counts are written, if the command takes any, then the examples."""
        shown = {parameter.metavar for parameter in self.params if isinstance(parameter, click.Option)}
        forms = [f"{name} is written {form}" for name, form in VALUE_FORMS.items() if name in shown]
        if forms:
            formatter.write_paragraph()
            formatter.write_text("; ".join(forms) + ".")
        super().format_epilog(ctx, formatter)
