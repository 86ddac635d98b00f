"""The commands that are jobs - each takes the fields of its job as options - and ``run``, which takes a file of them."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import click

from streamsvm.aliases import ByName
from streamsvm.cli import commands
from streamsvm.cli.options import GroupedOption, command, job_of
from streamsvm.cli.show import lines_of, say, write_json
from streamsvm.config.job_file import STEPS, apply_settings, check, read_file
from streamsvm.display.terminal import open_report
from streamsvm.errors import BudgetError, UsageError
from streamsvm.registry import load, no_collection
from streamsvm.regular import is_file

if TYPE_CHECKING:
    from streamsvm.config.checks import Checked
    from streamsvm.config.fields import OptionValue
    from streamsvm.jobs import JobResult
    from streamsvm.jobs.fit.job import FitJob
    from streamsvm.jobs.ingest.job import IngestJob

LEAVING = {"fit": "model", "tune": "out"}
"""The steps that leave the record of a run, and which of their fields says where."""


def execute(name: str, job: Checked, *, as_json: bool, quiet: bool, alone: bool = True) -> None:
    """Run a job with its progress and show what came of it; ``alone``: not as one of several steps."""
    with no_collection():
        from streamsvm.engine.signals import listening
        from streamsvm.schedule.budget import check_addresses, check_groups

        check_addresses()
        if hasattr(job, "memory"):
            check_groups()
        action = load(STEPS[name].action)
        gc.freeze()  # what is loaded stays: no later search looks at it
    one_object = as_json and name == "evaluate" and alone
    with open_report(as_json=as_json and not one_object, quiet=quiet or one_object) as report, listening():
        result: JobResult = action(job, report)
    if not as_json:
        for line in lines_of(name, job, result):
            say(line)
    elif one_object:
        write_json(result.facts())
    elif name != "fit":  # whose last event says it already
        write_json({"event": "done", "step": name, **result.facts()}, indent=None)
    for warning in result.warnings:
        say(f"warning: {warning}", err=True)
    for notice in result.notices:
        say(f"notice: {notice}", err=True)
    if result.failure is not None:
        raise result.failure


def _callback(name: str) -> Callable[..., None]:
    @click.pass_context
    def run_job(
        ctx: click.Context, /, config: Path | None, as_json: bool, settings: Sequence[str] = (), **values: OptionValue
    ) -> None:
        job = job_of(name, values, config, settings)
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
    """``fit``; with --dry-run what ``plan`` shows."""
    job = job_of("fit", values, config, settings)
    if dry_run:
        show_plan(job, as_json=as_json)
    else:
        execute("fit", job, as_json=as_json, quiet=ctx.obj["quiet"])


def plan_only(config: Path | None, as_json: bool, settings: Sequence[str] = (), **values: OptionValue) -> None:
    """``plan``: a fit that stops before the first pass."""
    show_plan(job_of("fit", {**values, "model": ""}, config, settings), as_json=as_json)


def show_plan(job: FitJob, *, as_json: bool) -> None:
    """The plan of a fit with the rate at which the store can be read. Raises BudgetError when it does not fit."""
    from streamsvm.cli.descriptions import plan_lines
    from streamsvm.jobs.fit.plan import make_plan
    from streamsvm.jobs.fit.validate import open_training_store
    from streamsvm.jobs.inspect import read_rate

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
    for line in plan_lines(facts):
        say(line)
    plan.memory.check(plan.remedy)


@click.pass_context
def run_file(
    ctx: click.Context, path: Path, settings: Sequence[str], as_json: bool, report: Path | None = None
) -> None:
    """``run``: every step of a job file; all of them are checked before the first one starts."""
    steps = read_file(path)
    if report is not None:
        steps.append(("report", page_step(steps, report)))
    apply_settings(steps, settings)
    jobs = check(steps, str(path))
    for (name, _), job in zip(steps, jobs, strict=True):
        if not as_json:
            say(f"[{name}]")
        execute(name, job, as_json=as_json, quiet=ctx.obj["quiet"], alone=False)


def page_step(steps: list[tuple[str, ByName]], out: Path) -> ByName:
    """The values of a last step that draws the page of all that was fitted. Raises UsageError where nothing is."""
    runs = [str(values[key]) for name, values in steps if (key := LEAVING.get(name)) is not None and key in values]
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
    """``ingest``; with --describe or --write-schema a table of the columns, for which no store need be named."""
    if not describe and write_schema is None:
        execute("ingest", job_of("ingest", values, config, ()), as_json=as_json, quiet=ctx.obj["quiet"])
        return
    last = values.get("store")
    if last is not None and (not values["sources"] or is_file(Path(last))):
        values |= {"sources": (*values["sources"], str(last)), "store": None}
    values["store"] = values["store"] or "-"
    show_columns(job_of("ingest", values, config, ()), write_schema, as_json=as_json)


def show_columns(job: IngestJob, write_schema: Path | None, *, as_json: bool) -> None:
    """What ``ingest`` would make of each column. Raises what reading the sources raises, ExistsError."""
    from streamsvm.cli.descriptions import description_lines
    from streamsvm.jobs.ingest.describe import describe

    result = describe(job, write_schema)
    if as_json:
        write_json(result.facts())
    else:
        for line in description_lines(result):
            say(line)
    for notice in result.notices:
        say(f"notice: {notice}", err=True)


def _ingest_command() -> click.Command:
    made = command("ingest", ingest_or_describe)
    text = "Show what is in each column of a table and what would be done with it, and store nothing."
    made.params.append(GroupedOption(["--describe"], "columns", is_flag=True, help=text))
    path = click.Path(path_type=Path)
    text = "As --describe, and write it to a file, to be edited and read by --schema."
    made.params.append(GroupedOption(["--write-schema"], "columns", type=path, metavar="PATH", help=text))
    return made


def _fit_command() -> click.Command:
    made = command("fit", fit_or_plan)
    made.params.append(GroupedOption(["--dry-run"], is_flag=True, help="Show the plan and read nothing more."))
    return made


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
    """``tune``: --grid is another way to write --C, --gamma and --landmarks."""
    job = job_of("tune", values, config, (*settings, *grid))
    execute("tune", job, as_json=as_json, quiet=ctx.obj["quiet"])


def _tune_command() -> click.Command:
    made = command("tune", tune_grid)
    text = (
        "Values to try: --grid C=0.1,1,10 --grid gamma=0.01,scale. Repeatable; the same as --C, --gamma, --landmarks."
    )
    made.params.append(click.Option(["--grid"], multiple=True, metavar="NAME=VALUES", help=text))
    return made


def _run_command() -> click.Command:
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
    return click.Command("run", params=params, callback=run_file, help=commands.COMMANDS["run"].summary)


SPECIAL = {
    "ingest": _ingest_command,
    "fit": _fit_command,
    "plan": lambda: command("plan", plan_only, step="fit", leave_out=("model",)),
    "tune": _tune_command,
    "run": _run_command,
}
"""How the commands are made that are more than the options of a step."""


@cache
def made(name: str) -> click.Command:
    """The command of a name; only this one is made, so that its help does not wait for the options of all others."""
    return SPECIAL[name]() if name in SPECIAL else command(name, _callback(name))
