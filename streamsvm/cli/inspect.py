"""The commands that look at what is there: info, verify, doctor."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from streamsvm.aliases import JsonObject
from streamsvm.cli import commands
from streamsvm.cli.descriptions import model_lines, store_lines
from streamsvm.cli.show import say, write_json
from streamsvm.config.units import seconds_text, size_text
from streamsvm.display.terminal import open_report
from streamsvm.errors import DataError

JSON = click.option("--json", "as_json", is_flag=True, help="Write one JSON object to standard output.")
PATH = click.argument("path", type=click.Path(path_type=Path), metavar="STORE|MODEL")


@click.command(help=commands.COMMANDS["info"].summary)
@PATH
@click.option("--columns", is_flag=True, help="Also mean, deviation, minimum and maximum of every column of a store.")
@JSON
def info(path: Path, columns: bool, as_json: bool) -> None:
    """Say what a store or a model is, without reading its rows."""
    from streamsvm.jobs import inspect as jobs

    facts = jobs.info(path, columns=columns)
    if as_json:
        write_json(facts)
        return
    for line in store_lines(facts) if facts["kind"] == "store" else model_lines(facts):
        say(line)


@click.command(help=commands.COMMANDS["verify"].summary)
@PATH
@JSON
@click.pass_context
def verify(ctx: click.Context, path: Path, as_json: bool) -> None:
    """Read every chunk of a store, or a model, and report all that is not what was written."""
    from streamsvm.jobs import inspect as jobs

    with open_report(quiet=as_json or ctx.obj["quiet"]) as report:
        facts = jobs.verify(path, report)
    if as_json:
        write_json(facts)
    elif not facts["bad"]:
        amount = f"{facts['chunks']} chunks, {size_text(facts['bytes'])}, " if facts["kind"] == "store" else ""
        say(f"{path} is what was written: {amount}all checksums match")
    if facts["bad"]:
        _report_damage(path, facts, as_json)


def _report_damage(path: Path, facts: JsonObject, as_json: bool) -> None:
    """End with exit code 65; as text with every part that is damaged."""
    if as_json:
        raise click.exceptions.Exit(DataError.exit_code)
    for bad in facts["bad"]:
        say(f"{bad['code']}: {bad['message']}", err=True)
    damaged = f"{len(facts['bad'])} part(s) of {path} are damaged"
    raise DataError(damaged, code=facts["bad"][0]["code"], hint="restore the files, or ingest again")


@click.command(help=commands.COMMANDS["doctor"].summary)
@JSON
def doctor(as_json: bool) -> None:
    """Show what this machine offers a job, as streamsvm sees it. Writes and removes 64 MiB here."""
    from streamsvm.jobs import inspect as jobs

    facts = jobs.doctor(Path())
    if as_json:
        write_json(facts)
        return
    for line in _doctor_lines(facts):
        say(line)


def _doctor_lines(facts: JsonObject) -> Iterator[str]:
    yield f"streamsvm  {facts['streamsvm']}, Python {facts['python']}, {facts['platform']}"
    yield "packages   " + ", ".join(f"{name} {version or 'MISSING'}" for name, version in facts["packages"].items())
    blas = ", ".join(f"{b['library']} with {b['threads']} threads" for b in facts["blas"])
    yield f"threads    {facts['cpus']} processors for this process; {blas}; a job works on {facts['threads']} without --threads"
    yield f"cluster    {facts['cluster']}"
    memory = facts["memory"]
    yield f"memory     {size_text(memory['total'])}, {size_text(memory['available'])} available"
    yield f"limit      {memory['limit'] >> 20}MiB without --memory; this process holds {memory['process'] >> 20}MiB"
    disk = facts["disk"]
    yield f"disk       {disk['directory']}: writes {size_text(disk['write'])}/s, reads {size_text(disk['read'])}/s"
    passes = facts["passes"]
    kept = f"{passes['compiled']} compiled, {size_text(passes['bytes'])}"
    yield f"passes     {passes['directory']}: {kept}, {'writable' if passes['writable'] else 'NOT writable'}"
    if not passes["compiled"]:
        yield f"           the first run compiles them: expect {seconds_text(20)} more"


def made(name: str) -> click.Command:
    """The command of a name."""
    return {"info": info, "verify": verify, "doctor": doctor}[name]
