"""The commands: one for each job, with the fields of the job as options; ``run`` for a job file; ``info``, ``verify``, ``cache`` and ``doctor``.

Only the command that is called is built (``get_command``), because building the options of all commands would slow down every start.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from streamsvm.cli.help import (
    COMMON_OPTIONS,
    CommandWithExamples,
    GroupedOption,
    JobCommand,
    argument_name,
    describe_option,
    make_help_options,
)
from streamsvm.cli.main import SUMMARIES
from streamsvm.cli.show import describe_machine, describe_model, describe_result, describe_store, say, write_json
from streamsvm.config.command_table import STEPS, JobStep, make_job
from streamsvm.config.job_files import apply_settings_to_file, make_jobs, make_report_step, merge_values, read_job_file
from streamsvm.config.options import Field, OptionValue, parse
from streamsvm.config.units import size_text
from streamsvm.display.terminal import open_report
from streamsvm.errors import BudgetError, DataError, UsageError
from streamsvm.input_files import is_file
from streamsvm.registry import load, no_collection
from streamsvm.type_aliases import JsonObject, ValuesByName

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from streamsvm.config.options import Checked, OptionValue
    from streamsvm.jobs import JobResult
    from streamsvm.jobs.fit.options import FitFilesJob
    from streamsvm.jobs.ingest.options import IngestJob


class FieldType(click.ParamType[Any]):
    """The click type of a field: parses and completes its values."""

    def __init__(self, field: Field) -> None:
        self.field = field
        self.name = field.metavar

    def convert(self, value: OptionValue, param: click.Parameter | None, ctx: click.Context | None) -> OptionValue:
        """Return the parsed value; fail with a hint how to write it."""
        if not isinstance(value, str):
            return value
        try:
            return parse(self.field, value)
        except UsageError as error:
            return self.fail(error.message + (f" ({error.hint})" if error.hint else ""), param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the choices that begin with ``incomplete`` (in a list, with its last item); for a path, complete files."""
        from click.shell_completion import CompletionItem

        if self.field.is_path:
            return [CompletionItem(incomplete, type="file")]
        before, comma, last = incomplete.rpartition(",") if self.field.is_list else ("", "", incomplete)
        return [CompletionItem(before + comma + word) for word in self.field.choices() if word.startswith(last)]


def make_command(
    name: str, run: Callable[..., None], *, step: str = "", leave_out: Sequence[str] = ()
) -> click.Command:
    """Return the command ``name`` with the options of a step of the command table, by default the step ``name``.

    ``run`` is called with the value of every field and of the options of all jobs, by name. ``leave_out``: positional fields that
    are no arguments of this command.
    """
    declared = STEPS[step or name]
    fields = {field.name: field for field in declared.fields}
    arguments = [fields[position] for position in declared.positional if position not in leave_out]
    params: list[click.Parameter] = [_make_argument(field) for field in arguments]
    for field in fields.values():
        if field.name not in declared.positional and not field.option.settings_of:
            params += _make_options(field)
    params += _make_job_options(declared)
    return JobCommand(
        name,
        arguments=arguments,
        common=COMMON_OPTIONS.get(name, ()),
        params=params,
        callback=run,
        help=SUMMARIES[name],
    )


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
    options: list[click.Parameter] = [
        GroupedOption(
            [field.flag, field.name], group, type=FieldType(field), help=describe_option(field), metavar=field.metavar
        )
    ]
    if field.option.off:
        off = [f"--no-{field.flag[2:]}", field.name]
        options.append(GroupedOption(off, group, flag_value="0", type=FieldType(field), help=field.option.off))
    return options


def _make_job_options(step: JobStep) -> list[click.Parameter]:
    """Return the options of every job: --config and --json, and --set with its help if the job has a solver, loss or kernel."""
    config = click.Path(path_type=Path)
    options: list[click.Parameter] = [
        GroupedOption(["--config"], type=config, help="Take values from the table of this command in a job file."),
        GroupedOption(["--json", "as_json"], is_flag=True, help="Write JSON for programs to standard output."),
    ]
    tables = [field for field in step.fields if field.option.settings_of]
    if not tables:
        return options
    owners = ", ".join(field.option.settings_of for field in tables)
    text = f"Change a setting of what was chosen ({owners}), such as solver.sweeps=5. Repeatable."
    set_option = GroupedOption(["--set", "settings"], multiple=True, metavar="NAME=VALUE", help=text)
    return [set_option, *make_help_options(tables), *options]


def build_job(name: str, options: ValuesByName, config: Path | None, settings: Sequence[str]) -> Any:
    """Return the job of a command line: options override the values of the job file ``config``, and --set overrides both.

    Raises UsageError, ConfigError and what reading the file raises.
    """
    values = merge_values(name, options, config, settings)
    required = {field.name for field in STEPS[name].fields if field.required}
    for positional in STEPS[name].positional:
        if positional in required and positional not in values:
            raise click.UsageError(f"Missing argument '{positional.upper()}'.")
    return make_job(name, values)


JSON = click.option("--json", "as_json", is_flag=True, help="Write one JSON object to standard output.")
PATH = click.argument("path", type=click.Path(path_type=Path), metavar="STORE|MODEL")


@click.command("info", cls=CommandWithExamples, help=SUMMARIES["info"])
@PATH
@click.option("--columns", is_flag=True, help="Also mean, deviation, minimum and maximum of every column of a store.")
@JSON
def info(path: Path, columns: bool, as_json: bool) -> None:
    """Print facts about a store or a model without reading rows."""
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
    """Read every chunk of a store, or a model, and report every damaged part."""
    from streamsvm.jobs import inspect as jobs

    with open_report(quiet=as_json or ctx.obj["quiet"]) as report:
        facts = jobs.verify(path, report)
    if as_json:
        write_json(facts)
    elif not facts["bad"]:
        amount = f"{facts['chunks']} chunks, {size_text(facts['bytes'])}, " if facts["kind"] == "store" else ""
        say(f"{facts['path']} is intact: {amount}all checksums match")
    if facts["bad"]:
        _report_damage(path, facts, as_json)


def _report_damage(path: Path, facts: JsonObject, as_json: bool) -> None:
    """Print every damaged part, unless the JSON has them already, and exit with code 65."""
    if as_json:
        raise click.exceptions.Exit(DataError.exit_code)
    for part in facts["bad"]:
        say(f"{part['code']}: {part['message']}", err=True)
    damaged = f"{len(facts['bad'])} part(s) of {path} are damaged"
    raise DataError(damaged, code=facts["bad"][0]["code"], hint="restore the files, or ingest again")


@click.command("cache", cls=CommandWithExamples, help=SUMMARIES["cache"])
@click.argument("action", type=click.Choice(["list", "prune"]))
@JSON
def cache_command(action: str, as_json: bool) -> None:
    """List the stores whose chunks are cached on this machine, or remove all cached chunks."""
    from streamsvm.store.chunk_cache import cache_folder, list_stores, remove_stores

    if action == "prune":
        removed = remove_stores()
        if as_json:
            write_json({"folder": str(cache_folder()), "removed": removed})
        else:
            say(f"{size_text(removed)} removed from {cache_folder()}")
        return
    stores = list_stores()
    if as_json:
        entries = [{"url": store.url, "bytes": store.nbytes, "used": store.used} for store in stores]
        write_json({"folder": str(cache_folder()), "stores": entries})
        return
    for store in stores:
        used = datetime.fromtimestamp(store.used, UTC).strftime("%Y-%m-%d %H:%M UTC")
        say(f"{size_text(store.nbytes):>8}  {used}  {store.url}")
    total, count = size_text(sum(store.nbytes for store in stores)), len(stores)
    say(f"{total} of {count} store{'' if count == 1 else 's'} in {cache_folder()}")


@click.command("doctor", cls=CommandWithExamples, help=SUMMARIES["doctor"])
@JSON
def doctor(as_json: bool) -> None:
    """Print the packages, memory, threads and disk speed of this machine. Writes and removes a file of 64 MiB here."""
    from streamsvm.jobs import inspect as jobs

    facts = jobs.doctor(Path())
    if as_json:
        write_json(facts)
        return
    for line in describe_machine(facts):
        say(line)


def execute(name: str, job: Checked, *, as_json: bool, quiet: bool, is_only_step: bool = True) -> None:
    """Run a job, show its progress and print its result. ``is_only_step``: the job is not a step of a job file."""
    with no_collection():
        from streamsvm.compute.compile_clock import CLOCK
        from streamsvm.engine.signals import install_signal_handlers
        from streamsvm.schedule.budget import check_addresses, check_groups
        from streamsvm.working_copies import run_with_copies

        check_addresses()
        if hasattr(job, "memory"):
            check_groups()
        action = load(STEPS[name].action)
        gc.freeze()  # later collections skip the objects of modules, which stay until the end
    one_object = as_json and name == "evaluate" and is_only_step
    with (
        open_report(as_json=as_json and not one_object, quiet=quiet or one_object) as report,
        install_signal_handlers(),
    ):
        CLOCK.announce = None if as_json else partial(report, {"event": "compiling"})
        result: JobResult = run_with_copies(action, job, report)
    if not as_json:
        for line in describe_result(name, job, result):
            say(line)
    elif one_object:
        write_json(result.facts())
    elif name != "fit":  # the last event of a fit has these facts
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
    """Run ``fit``; with --dry-run, print its plan. Without a path for the model, raise an error that proposes the whole command."""
    if values["model"] is None and values["store"] is not None and config is None:
        from streamsvm.jobs.file_cache import missing_output

        proposed = {**values, "model": f"{Path(values['store']).name.partition('.')[0]}.ssvm"}
        raise missing_output("fit", build_job("fit", proposed, config, settings), "file is named for the model")
    job = build_job("fit", values, config, settings)
    if dry_run:
        show_plan(job, as_json=as_json)
    else:
        execute("fit", job, as_json=as_json, quiet=ctx.obj["quiet"])


def plan_only(config: Path | None, as_json: bool, settings: Sequence[str] = (), **values: OptionValue) -> None:
    """Run ``plan``: show the plan of a fit, which needs no path for a model."""
    show_plan(build_job("fit", {**values, "model": ""}, config, settings), as_json=as_json)


def show_plan(requested: FitFilesJob, *, as_json: bool) -> None:
    """Print the plan of a fit and the measured read rate of the store. Raises BudgetError if the plan does not fit in memory.

    For files that were not ingested yet, print what ingesting them would make of their columns.
    """
    from streamsvm.cli.show import describe_plan
    from streamsvm.jobs.default_decisions import describe_decisions, describe_defaults
    from streamsvm.jobs.file_cache import plan_ingest, read_cache
    from streamsvm.jobs.fit.files import find_rows_to_choose_C, job_of_cache
    from streamsvm.jobs.fit.plan import make_plan
    from streamsvm.jobs.fit.validate import open_training_store
    from streamsvm.jobs.inspect import read_rate

    if requested.is_of_files:
        ingest, table = plan_ingest("fit", requested)
        cached = read_cache(ingest, table=table)
        if not as_json:
            for line in (
                describe_defaults(requested, ingest, table=table)
                if cached is None
                else describe_decisions(requested, cached)
            ):
                say(line)
        if cached is None and table:
            show_columns(ingest, None, as_json=as_json)
            say("solver, memory and time are planned when the files are ingested, which the fit does", err=True)
            return
        job = job_of_cache(requested, cached)
        chooses_C = cached is not None and find_rows_to_choose_C(requested, cached) is not None
    else:
        job, chooses_C = requested.store_job(requested.store), False
    store, _ = open_training_store(job, chooses_C=chooses_C)
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
    """Run the steps of a job file in order, after checking all of them. ``report``: also draw the page of all runs."""
    steps = read_job_file(path)
    if report is not None:
        steps.append(("report", make_report_step(steps, report)))
    apply_settings_to_file(steps, settings)
    jobs = make_jobs(steps, str(path))
    for (name, _), job in zip(steps, jobs, strict=True):
        if not as_json:
            say(f"[{name}]")
        execute(name, job, as_json=as_json, quiet=ctx.obj["quiet"], is_only_step=False)


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
    """Run ``ingest``; with --describe or --write-schema, print a table of the columns instead, which needs no path for a store."""
    if not describe and write_schema is None:
        execute("ingest", build_job("ingest", values, config, ()), as_json=as_json, quiet=ctx.obj["quiet"])
        return
    last = values.get("store")
    if last is not None and (not values["sources"] or is_file(Path(last))):
        values |= {"sources": (*values["sources"], str(last)), "store": None}
    values["store"] = values["store"] or "-"
    show_columns(build_job("ingest", values, config, ()), write_schema, as_json=as_json)


def show_columns(job: IngestJob, write_schema: Path | None, *, as_json: bool) -> None:
    """Print the kind and the planned encoding of each column. Raises ExistsError, and what reading the sources raises."""
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
    text = "Like --describe, and write the table to a file that you can edit and pass to --schema."
    command.params.append(GroupedOption(["--write-schema"], "columns", type=path, metavar="PATH", help=text))
    return command


def _make_fit() -> click.Command:
    command = make_command("fit", fit_or_plan)
    command.params.append(GroupedOption(["--dry-run"], is_flag=True, help="Show the plan; do not train."))
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
    """Run ``tune``; --grid is another way to write --C, --gamma and --landmarks.

    Without a directory for the results, raise an error that proposes the whole command.
    """
    if values["out"] is None and values["store"] is not None and config is None:
        from streamsvm.jobs.file_cache import missing_output

        proposed = {**values, "out": f"{Path(values['store']).name.partition('.')[0]}-search"}
        raise missing_output(
            "tune", build_job("tune", proposed, config, (*settings, *grid)), "directory is named for the tables"
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


SPECIAL_COMMANDS: dict[str, Callable[[], click.Command]] = {
    "ingest": _make_ingest,
    "fit": _make_fit,
    "plan": lambda: make_command("plan", plan_only, step="fit", leave_out=("model",)),
    "tune": _make_tune,
    "run": _make_run,
    "info": lambda: info,
    "verify": lambda: verify,
    "cache": lambda: cache_command,
    "doctor": lambda: doctor,
}
"""Functions that build the commands that have other options than those of one step."""


@cache
def get_command(name: str) -> click.Command:
    """Return the command ``name``, built on first use."""
    return SPECIAL_COMMANDS[name]() if name in SPECIAL_COMMANDS else make_command(name, _make_callback(name))
