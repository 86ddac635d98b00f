"""The commands that are jobs - each takes the fields of its job as options - and ``run``, which takes a file of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import click

from streamsvm.cli import commands
from streamsvm.cli.options import GroupedOption, command, job_of
from streamsvm.cli.show import lines_of, plan_lines, say, write_json
from streamsvm.config.job_file import STEPS, apply_settings, check, read_file
from streamsvm.errors import BudgetError, UsageError
from streamsvm.registry import load
from streamsvm.report.terminal import reporting

if TYPE_CHECKING:
    from streamsvm.config.checks import Checked
    from streamsvm.config.fields import OptionValue
    from streamsvm.jobs import JobResult
    from streamsvm.jobs.fit.options import FitJob


def execute(name: str, job: Checked, *, as_json: bool, quiet: bool, alone: bool = True) -> None:
    """Run a job with its progress and show what came of it; ``alone``: not as one of several steps."""
    from streamsvm.engine.checkpoint.signals import listening

    action = load(STEPS[name].action)
    one_object = as_json and name == "evaluate" and alone
    with reporting(as_json=as_json and not one_object, quiet=quiet or one_object) as report, listening():
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
    from streamsvm.jobs.fit.plan import make_plan
    from streamsvm.jobs.fit.validation import opened
    from streamsvm.jobs.inspect.info import read_rate

    store, _ = opened(job)
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
def run_file(ctx: click.Context, path: Path, settings: Sequence[str], as_json: bool) -> None:
    """``run``: every step of a job file; all of them are checked before the first one starts."""
    steps = read_file(path)
    apply_settings(steps, settings)
    jobs = check(steps, str(path))
    for (name, _), job in zip(steps, jobs, strict=True):
        if not as_json:
            say(f"[{name}]")
        execute(name, job, as_json=as_json, quiet=ctx.obj["quiet"], alone=False)


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
        click.Option(["--json", "as_json"], is_flag=True, help="Write JSON lines to standard output."),
    ]
    return click.Command("run", params=params, callback=run_file, help=commands.COMMANDS["run"].summary)


SPECIAL = {
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
