"""The commands: one for each job, whose options are the fields of the job; ``run`` for a file of jobs; info, verify and doctor.

Only the command that is called is built (``get_command``), because building the options of all would slow down every start. ``--set``
changes settings of the chosen solver, loss or kernel; --help-solver, --help-loss and --help-kernel list them.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from streamsvm.aliases import ByName, JsonObject
from streamsvm.cli.main import SUMMARIES, write_examples
from streamsvm.cli.show import describe_machine, describe_model, describe_result, describe_store, say, write_json
from streamsvm.config.options import GROUPS, Field, OptionValue, options_of, parse
from streamsvm.config.settings import STEPS, JobStep, apply_settings, check, make_job, override, read_file
from streamsvm.config.units import size_text
from streamsvm.display.terminal import open_report
from streamsvm.errors import BudgetError, DataError, UsageError
from streamsvm.input_files import is_file
from streamsvm.registry import load, no_collection

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from streamsvm.config.options import Checked, OptionValue
    from streamsvm.jobs import JobResult
    from streamsvm.jobs.fit.options import FitFilesJob
    from streamsvm.jobs.ingest.options import IngestJob


ALL = "all"
COMMON = {
    "ingest": ("label", "missing", "categorical", "hash_bits", "drop", "missing_label", "test_fraction", "on_bad_line", "memory", "overwrite"),
    "embed": ("landmarks", "kernel", "gamma", "memory", "overwrite"),
    "fit": (
        "C", "loss", "standardize", "class_weight", "landmarks", "gamma", "validation", "calibrate", "tolerance",
        "time_limit", "memory", "report", "overwrite", "resume",
    ),
    "tune": ("C", "gamma", "landmarks", "folds", "loss", "standardize", "class_weight", "memory", "report", "overwrite"),
    "predict": ("output", "id_column", "on_bad_line", "memory", "overwrite"),
    "evaluate": ("label", "threshold", "best_threshold", "cost", "on_bad_line", "memory"),
}  # fmt: skip
"""The options that the help of a command lists first, in this order: those that most people need."""
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
        "streamsvm fit train.zarr model.ssvm --resume",
    ),
    "tune": (
        "streamsvm tune train.zarr search --C 0.1,1,10 --folds 5",
        "streamsvm tune train.zarr search --C 1,10 --gamma 0.01,scale --landmarks 1000",
    ),
    "predict": (
        "streamsvm predict model.ssvm new.csv predictions.csv",
        "streamsvm predict model.ssvm new.parquet predictions.csv --output label,decision",
    ),
    "evaluate": ("streamsvm evaluate model.ssvm test.csv", "streamsvm evaluate model.ssvm test.zarr --json"),
    "export": ("streamsvm export model.ssvm model.onnx --format onnx", "streamsvm export model.ssvm model.txt"),
    "report": ("streamsvm report model.ssvm page.html", "streamsvm report a.ssvm b.ssvm comparison.html"),
    "plan": ("streamsvm plan train.zarr --landmarks 2000 --memory 4GiB",),
    "run": ("streamsvm run job.toml", "streamsvm run job.toml --set fit.C=10 --report page.html"),
    "info": ("streamsvm info train.zarr --columns", "streamsvm info model.ssvm --json"),
    "verify": ("streamsvm verify train.zarr",),
    "doctor": ("streamsvm doctor",),
}
"""Command lines at the end of the help of a command."""


def make_help_options(tables: Sequence[Field]) -> list[click.Option]:
    """Return an option for each table of settings that lists the settings of one choice, or of all."""
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
        flag_value=ALL,
        is_eager=True,
        expose_value=False,
        callback=show,
        metavar="[NAME]",
        help=f"List what --set takes for a {owner}, or for all of them.",
    )


def describe_settings(table: Field, name: str) -> str:
    """Return the settings of one choice, or of all, as text. Raises UsageError for an unknown name."""
    registry = load(str(table.option.choices))
    names = list(registry) if name == ALL else [name]
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
    """Return help, choices, range and default of a setting."""
    range_ = f" {field.option.bounds.describe().capitalize()}." if field.option.bounds is not None else ""
    default = str(field.default).lower() if field.is_switch else field.default_text()
    return field.help() + range_ + (f"  [default: {default}]" if default else "")


FORMS = {"SIZE": "512MiB, 4GiB or 300MB", "DURATION": "90s, 30m or 1h30m", "N": "200 or 5e6"}
"""How values are written, by their metavar in the help."""


class GroupedOption(click.Option):
    """An option with the heading under which the help lists it."""

    def __init__(self, declared: Sequence[str], group: str = "", **settings: Any) -> None:
        super().__init__(declared, **settings)
        self.group = group


class CommandWithExamples(click.Command):
    """A command whose help ends with examples."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples, one a line whatever the width."""
        write_examples(formatter, EXAMPLES[self.name or ""])


class JobCommand(CommandWithExamples):
    """A command whose help explains its arguments and groups its options."""

    def __init__(self, name: str, *, arguments: Sequence[Field], common: Sequence[str], **settings: Any) -> None:
        super().__init__(name, **settings)
        self.arguments, self.common = arguments, common

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the arguments, the common options, each other group under its title, and options without a group."""
        with formatter.section("Arguments"):
            formatter.write_dl([(argument_name(field), describe_option(field)) for field in self.arguments])
        common: dict[str, tuple[str, str]] = {}
        rows: dict[str, list[tuple[str, str]]] = {}
        for option in self.get_params(ctx):
            if isinstance(option, click.Option) and (row := option.get_help_record(ctx)) is not None:
                if option.name in self.common and option.name not in common:  # --no-X comes with its group
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
        """Write how sizes, durations and counts are written, where the command takes them, and the examples."""
        shown = {parameter.metavar for parameter in self.params if isinstance(parameter, click.Option)}
        forms = [f"{name} is written {form}" for name, form in FORMS.items() if name in shown]
        if forms:
            formatter.write_paragraph()
            formatter.write_text("; ".join(forms) + ".")
        super().format_epilog(ctx, formatter)


class FieldType(click.ParamType[Any]):
    """The click type of a field: its value from text."""

    def __init__(self, field: Field) -> None:
        self.field = field
        self.name = field.metavar

    def convert(self, value: OptionValue, param: click.Parameter | None, ctx: click.Context | None) -> OptionValue:
        """Return the value of a text; fail with the expected form."""
        if not isinstance(value, str):
            return value
        try:
            return parse(self.field, value)
        except UsageError as error:
            return self.fail(error.message + (f" ({error.hint})" if error.hint else ""), param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the words that the value may be, of a list for its last one; files where it is a path."""
        from click.shell_completion import CompletionItem

        if self.field.is_place:
            return [CompletionItem(incomplete, type="file")]
        before, comma, last = incomplete.rpartition(",") if self.field.is_list else ("", "", incomplete)
        return [CompletionItem(before + comma + word) for word in self.field.choices() if word.startswith(last)]


def make_command(
    name: str, run: Callable[..., None], *, step: str = "", leave_out: Sequence[str] = ()
) -> click.Command:
    """Return the command ``name`` with the options of a step, by default of the step of that name.

    ``run`` gets the values of fields by their names, and of the options that are no fields.
    """
    made_of = STEPS[step or name]
    fields = {field.name: field for field in made_of.fields}
    arguments = [fields[position] for position in made_of.positional if position not in leave_out]
    params: list[click.Parameter] = [_make_argument(field) for field in arguments]
    for field in fields.values():
        if field.name not in made_of.positional and not field.option.settings_of:
            params += _make_options(field)
    params += _make_common_options(made_of)
    return JobCommand(
        name, arguments=arguments, common=COMMON.get(name, ()), params=params, callback=run, help=SUMMARIES[name]
    )


def argument_name(field: Field) -> str:
    """Return the name of an argument in the help: STORE, SOURCE..."""
    name = (field.option.metavar or field.name.upper()) + ("..." if field.is_list else "")
    return name if field.required else f"[{name}]"


def describe_option(field: Field) -> str:
    """Return the help of an option: its text, choices and default."""
    default = field.default_text()
    return field.help() + (f"  [default: {default}]" if default else "")


def _make_argument(field: Field) -> click.Argument:
    return click.Argument(
        [field.name],
        nargs=-1 if field.is_list else 1,
        required=False,
        metavar=argument_name(field),
        shell_complete=FieldType(field).shell_complete,
    )


def _make_options(field: Field) -> list[click.Parameter]:
    group = field.option.group
    if field.is_switch:
        declared = f"{field.flag}/--no-{field.flag[2:]}" if field.default is not False else field.flag
        return [GroupedOption([declared, field.name], group, is_flag=True, default=None, help=describe_option(field))]
    found: list[click.Parameter] = [
        GroupedOption(
            [field.flag, field.name], group, type=FieldType(field), help=describe_option(field), metavar=field.metavar
        )
    ]
    if field.option.off:
        off = [f"--no-{field.flag[2:]}", field.name]
        found.append(GroupedOption(off, group, flag_value="0", type=FieldType(field), help=field.option.off))
    return found


def _make_common_options(step: JobStep) -> list[click.Parameter]:
    """Return the options of every command that is a job; with --set and its help where a solver, loss or kernel is chosen."""
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
    return [chosen, *make_help_options(tables), *found]


def build_job(name: str, values: ByName, config: Path | None, settings: Sequence[str]) -> Any:
    """Return the job of a command line: options override the values of the file, and --set overrides both.

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
    required = {field.name for field in STEPS[name].fields if field.required}
    for positional in STEPS[name].positional:
        if positional in required and positional not in found:
            raise click.UsageError(f"Missing argument '{positional.upper()}'.")
    return make_job(name, found)


JSON = click.option("--json", "as_json", is_flag=True, help="Write one JSON object to standard output.")
PATH = click.argument("path", type=click.Path(path_type=Path), metavar="STORE|MODEL")


@click.command("info", cls=CommandWithExamples, help=SUMMARIES["info"])
@PATH
@click.option("--columns", is_flag=True, help="Also mean, deviation, minimum and maximum of every column of a store.")
@JSON
def info(path: Path, columns: bool, as_json: bool) -> None:
    """Print what a store or a model is, without reading its rows."""
    from streamsvm.jobs import inspect as jobs

    facts = jobs.info(path, columns=columns)
    if as_json:
        write_json(facts)
        return
    for line in describe_store(facts) if facts["kind"] == "store" else describe_model(facts):
        say(line)


@click.command("verify", cls=CommandWithExamples, help=SUMMARIES["verify"])
@PATH
@JSON
@click.pass_context
def verify(ctx: click.Context, path: Path, as_json: bool) -> None:
    """Read every chunk of a store, or a model, and report all damage."""
    from streamsvm.jobs import inspect as jobs

    with open_report(quiet=as_json or ctx.obj["quiet"]) as report:
        facts = jobs.verify(path, report)
    if as_json:
        write_json(facts)
    elif not facts["bad"]:
        amount = f"{facts['chunks']} chunks, {size_text(facts['bytes'])}, " if facts["kind"] == "store" else ""
        say(f"{path} is intact: {amount}all checksums match")
    if facts["bad"]:
        _report_damage(path, facts, as_json)


def _report_damage(path: Path, facts: JsonObject, as_json: bool) -> None:
    """Exit with code 65, after printing every damaged part as text."""
    if as_json:
        raise click.exceptions.Exit(DataError.exit_code)
    for bad in facts["bad"]:
        say(f"{bad['code']}: {bad['message']}", err=True)
    damaged = f"{len(facts['bad'])} part(s) of {path} are damaged"
    raise DataError(damaged, code=facts["bad"][0]["code"], hint="restore the files, or ingest again")


@click.command("doctor", cls=CommandWithExamples, help=SUMMARIES["doctor"])
@JSON
def doctor(as_json: bool) -> None:
    """Print what this machine offers a job. Writes and removes 64 MiB here."""
    from streamsvm.jobs import inspect as jobs

    facts = jobs.doctor(Path())
    if as_json:
        write_json(facts)
        return
    for line in describe_machine(facts):
        say(line)


RUN_PATH_FIELD = {"fit": "model", "tune": "out"}
"""The field with the path of the record of a run, by step."""


def execute(name: str, job: Checked, *, as_json: bool, quiet: bool, alone: bool = True) -> None:
    """Run a job with its progress and print its result; ``alone``: not as one of several steps."""
    with no_collection():
        from streamsvm.compute.compile_clock import CLOCK
        from streamsvm.engine.signals import listen
        from streamsvm.schedule.budget import check_addresses, check_groups

        check_addresses()
        if hasattr(job, "memory"):
            check_groups()
        action = load(STEPS[name].action)
        gc.freeze()  # loaded modules stay: later collections skip them
    one_object = as_json and name == "evaluate" and alone
    with open_report(as_json=as_json and not one_object, quiet=quiet or one_object) as report, listen():
        CLOCK.announce = None if as_json else partial(report, {"event": "compiling"})
        result: JobResult = action(job, report)
    if not as_json:
        for line in describe_result(name, job, result):
            say(line)
    elif one_object:
        write_json(result.facts())
    elif name != "fit":  # its last event has it already
        write_json({"event": "done", "step": name, **result.facts()}, indent=None)
    for warning in result.warnings:
        say(f"warning: {warning}", err=True)
    for notice in result.notices:
        say(f"notice: {notice}", err=True)
    if result.failure is not None:
        raise result.failure


def _make_callback(name: str) -> Callable[..., None]:
    @click.pass_context
    def run_job(
        ctx: click.Context, /, config: Path | None, as_json: bool, settings: Sequence[str] = (), **values: OptionValue
    ) -> None:
        job = build_job(name, values, config, settings)
        if job.to_stdout and as_json:
            raise UsageError("--json and predictions cannot share standard output", hint="write them to a file")
        execute(name, job, as_json=as_json, quiet=ctx.obj["quiet"])

    return run_job


@click.pass_context
def fit_or_plan(
    ctx: click.Context,
    /,
    config: Path | None,
    as_json: bool,
    dry_run: bool = False,
    settings: Sequence[str] = (),
    **values: OptionValue,
) -> None:
    """Run ``fit``; with --dry-run print the plan. Without a model, propose the whole command."""
    if values["model"] is None and values["store"] is not None and config is None:
        from streamsvm.jobs.file_cache import missing_output

        named = {**values, "model": f"{Path(values['store']).name.partition('.')[0]}.ssvm"}
        raise missing_output("fit", build_job("fit", named, config, settings), "file is named for the model")
    job = build_job("fit", values, config, settings)
    if dry_run:
        show_plan(job, as_json=as_json)
    else:
        execute("fit", job, as_json=as_json, quiet=ctx.obj["quiet"])


def plan_only(config: Path | None, as_json: bool, settings: Sequence[str] = (), **values: OptionValue) -> None:
    """Run ``plan``: a fit that stops before the first pass."""
    show_plan(build_job("fit", {**values, "model": ""}, config, settings), as_json=as_json)


def show_plan(asked: FitFilesJob, *, as_json: bool) -> None:
    """Print the plan of a fit and the rate at which the store can be read. Raises BudgetError when it does not fit."""
    from streamsvm.cli.show import describe_plan
    from streamsvm.jobs.file_cache import describe_decisions, describe_defaults, plan_ingest, read_cache
    from streamsvm.jobs.fit.files import job_of_cache
    from streamsvm.jobs.fit.plan import make_plan
    from streamsvm.jobs.fit.validate import open_training_store
    from streamsvm.jobs.inspect import read_rate

    if asked.is_of_files:
        ingest, table = plan_ingest("fit", asked)
        cached = read_cache(ingest, table=table)
        decided = describe_defaults(asked, ingest, table=table) if cached is None else describe_decisions(asked, cached)
        for line in decided if not as_json else ():
            say(line)
        if cached is None and table:
            show_columns(ingest, None, as_json=as_json)
            say("solver, memory and time are planned when the files are ingested, which the fit does", err=True)
            return
        job = job_of_cache(asked, cached)
    else:
        job = asked.store_job(asked.store)
    store, _ = open_training_store(job)
    plan = make_plan(job, store)
    facts = plan.facts()
    if facts["fits"]:
        rate = read_rate(store)
        facts |= {"bytes_per_second": rate, "read_seconds_per_pass": facts["bytes_per_pass"] / rate}
    if as_json:
        write_json(facts)
        if not facts["fits"]:
            raise click.exceptions.Exit(BudgetError.exit_code)
        return
    for line in describe_plan(facts):
        say(line)
    plan.memory.check(plan.remedy)


@click.pass_context
def run_file(
    ctx: click.Context, path: Path, settings: Sequence[str], as_json: bool, report: Path | None = None
) -> None:
    """Run every step of a job file; all of them are checked before the first one starts."""
    steps = read_file(path)
    if report is not None:
        steps.append(("report", make_report_step(steps, report)))
    apply_settings(steps, settings)
    jobs = check(steps, str(path))
    for (name, _), job in zip(steps, jobs, strict=True):
        if not as_json:
            say(f"[{name}]")
        execute(name, job, as_json=as_json, quiet=ctx.obj["quiet"], alone=False)


def make_report_step(steps: list[tuple[str, ByName]], out: Path) -> ByName:
    """Return the values of a last step that draws the page of all fits and searches. Raises UsageError without any."""
    runs = [
        str(values[key]) for name, values in steps if (key := RUN_PATH_FIELD.get(name)) is not None and key in values
    ]
    if not runs:
        raise UsageError("there is no run to draw a page of", hint="the file has no step [fit] or [tune]")
    return {"runs": tuple(runs), "out": str(out), "overwrite": True}


@click.pass_context
def ingest_or_describe(
    ctx: click.Context,
    /,
    config: Path | None,
    as_json: bool,
    describe: bool = False,
    write_schema: Path | None = None,
    **values: OptionValue,
) -> None:
    """Run ``ingest``; with --describe or --write-schema print a table of the columns, which needs no store."""
    if not describe and write_schema is None:
        execute("ingest", build_job("ingest", values, config, ()), as_json=as_json, quiet=ctx.obj["quiet"])
        return
    last = values.get("store")
    if last is not None and (not values["sources"] or is_file(Path(last))):
        values |= {"sources": (*values["sources"], str(last)), "store": None}
    values["store"] = values["store"] or "-"
    show_columns(build_job("ingest", values, config, ()), write_schema, as_json=as_json)


def show_columns(job: IngestJob, write_schema: Path | None, *, as_json: bool) -> None:
    """Print what ``ingest`` would make of each column. Raises what reading the sources raises, ExistsError."""
    from streamsvm.cli.show import describe_columns
    from streamsvm.jobs.ingest.describe import describe

    result = describe(job, write_schema)
    if as_json:
        write_json(result.facts())
    else:
        for line in describe_columns(result):
            say(line)
    for notice in result.notices:
        say(f"notice: {notice}", err=True)


def _make_ingest() -> click.Command:
    command = make_command("ingest", ingest_or_describe)
    text = "Show what is in each column of a table and what would be done with it, and store nothing."
    command.params.append(GroupedOption(["--describe"], "columns", is_flag=True, help=text))
    path = click.Path(path_type=Path)
    text = "As --describe, and write it to a file, to be edited and read by --schema."
    command.params.append(GroupedOption(["--write-schema"], "columns", type=path, metavar="PATH", help=text))
    return command


def _make_fit() -> click.Command:
    command = make_command("fit", fit_or_plan)
    command.params.append(GroupedOption(["--dry-run"], is_flag=True, help="Show the plan and read nothing more."))
    return command


@click.pass_context
def tune_grid(
    ctx: click.Context,
    /,
    config: Path | None,
    as_json: bool,
    grid: Sequence[str] = (),
    settings: Sequence[str] = (),
    **values: OptionValue,
) -> None:
    """Run ``tune``; --grid is another way to write --C, --gamma and --landmarks. Without an output, propose the command."""
    if values["out"] is None and values["store"] is not None and config is None:
        from streamsvm.jobs.file_cache import missing_output

        named = {**values, "out": f"{Path(values['store']).name.partition('.')[0]}-search"}
        raise missing_output(
            "tune", build_job("tune", named, config, (*settings, *grid)), "directory is named for the tables"
        )
    job = build_job("tune", values, config, (*settings, *grid))
    execute("tune", job, as_json=as_json, quiet=ctx.obj["quiet"])


def _make_tune() -> click.Command:
    command = make_command("tune", tune_grid)
    text = (
        "Values to try: --grid C=0.1,1,10 --grid gamma=0.01,scale. Repeatable; the same as --C, --gamma, --landmarks."
    )
    command.params.append(click.Option(["--grid"], multiple=True, metavar="NAME=VALUES", help=text))
    return command


def _make_run() -> click.Command:
    params: list[click.Parameter] = [
        click.Argument(["path"], type=click.Path(path_type=Path), metavar="CONFIG"),
        click.Option(
            ["--set", "settings"],
            multiple=True,
            metavar="NAME=VALUE",
            help="Override a value of the file: fit.C=10, solver.sweeps=5. Repeatable.",
        ),
        click.Option(
            ["--report"],
            type=click.Path(path_type=Path),
            metavar="PATH",
            help="At the end draw the page of all that was fitted: an HTML file.",
        ),
        click.Option(["--json", "as_json"], is_flag=True, help="Write JSON lines to standard output."),
    ]
    return CommandWithExamples("run", params=params, callback=run_file, help=SUMMARIES["run"])


SPECIAL: dict[str, Callable[[], click.Command]] = {
    "ingest": _make_ingest,
    "fit": _make_fit,
    "plan": lambda: make_command("plan", plan_only, step="fit", leave_out=("model",)),
    "tune": _make_tune,
    "run": _make_run,
    "info": lambda: info,
    "verify": lambda: verify,
    "doctor": lambda: doctor,
}
"""Commands that are more than the options of a step, by the function that makes them."""


@cache
def get_command(name: str) -> click.Command:
    """Return the command of a name. Only this one is made, so that its help does not wait for the options of all others."""
    return SPECIAL[name]() if name in SPECIAL else make_command(name, _make_callback(name))
