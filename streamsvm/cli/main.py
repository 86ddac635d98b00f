"""The command line's entry point: names and summaries of the commands, and how errors become messages and exit codes.

Importing this imports click and nothing heavy: ``streamsvm.cli.commands``, with the options of a command, is loaded when one is called.
"""

from __future__ import annotations

import errno
import io
import os
import sys
import traceback
from importlib import import_module
from typing import Any

import click

from streamsvm import __version__
from streamsvm.cli.help import write_examples
from streamsvm.config.command_table import STEPS
from streamsvm.errors import StorageError, printable, translate_error
from streamsvm.registry import did_you_mean

SUMMARIES = {
    **{name: step.summary for name, step in STEPS.items()},
    "plan": "Show what a fit would need: memory term by term, time per pass.",
    "run": "Execute the steps of a job file in order; its paths are relative to the current directory.",
    "info": "Show what a store or a model is, without reading its rows.",
    "verify": "Read all of a store or a model and report everything that is damaged.",
    "doctor": "Show what this machine offers: packages, memory, disk. Writes and removes 64 MiB here.",
}
"""What each command does, in one line; in the order of the help, which begins with the jobs."""
BROKEN_PIPE = 141
"""128 + SIGPIPE, the exit code of a program that the signal kills."""
INTERRUPTED = 130
EXAMPLES = (
    "streamsvm ingest train.csv train.zarr --label last",
    "streamsvm fit train.zarr model.ssvm --memory 512MiB",
    "streamsvm predict model.ssvm new.csv predictions.csv",
)


class LazyGroup(click.Group):
    """A group whose commands are imported on use, and whose errors have the form and exit codes of ``errors``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the options before the command; ``help``, ``help COMMAND`` and ``version`` are taken as well."""
        if args and args[0] in ("help", "version"):
            args = [*args[1:2], "--help"] if args[0] == "help" else ["--version"]
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names, in the order of the help."""
        return list(SUMMARIES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command, imported now; None for an unknown name."""
        if cmd_name not in SUMMARIES:
            return None
        found: click.Command = import_module("streamsvm.cli.commands").get_command(cmd_name)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; for an unknown name, fail with the nearest one."""
        if args[0] not in SUMMARIES and (near := did_you_mean(args[0], SUMMARIES)):
            ctx.fail(f"no command is called '{args[0]}'{near}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the names with their summaries, without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(SUMMARIES.items()))

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples, one a line whatever the width."""
        write_examples(formatter, EXAMPLES)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; whatever it raises becomes a message and an exit code."""
        try:
            _check_stdout()
            result = super().invoke(ctx)
            _flush_stdout()
            return result
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 (the last stop: everything becomes an exit code)
            return ctx.exit(explain(error, debug=ctx.params.get("debug", False)))


def _check_stdout() -> None:
    """Raise StorageError without a standard output (``>&-``): Python would drop the results silently."""
    if sys.stdout is None:
        raise StorageError("standard output is closed", hint="redirect it to a file or to /dev/null")


def _flush_stdout() -> None:
    """Flush standard output while a failure can still be reported. Raises StorageError, BrokenPipeError."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise StorageError(
            f"writing to standard output failed: {error.strerror}", hint="check where it goes"
        ) from error


def explain(error: BaseException, *, debug: bool) -> int:
    """Print an error on standard error, and return the exit code."""
    if isinstance(error, BrokenPipeError) or (isinstance(error, OSError) and error.errno == errno.EPIPE):
        _abandon_stdout()
        return BROKEN_PIPE
    if isinstance(error, KeyboardInterrupt):
        click.echo("interrupted: unfinished output was removed; completed files were kept", err=True)
        return INTERRUPTED
    if debug:
        for line in "".join(traceback.format_exception(error)).splitlines():
            click.echo(printable(line), err=True)
    known = translate_error(error)
    if known is not None:
        click.echo(known.format_for_terminal(), err=True)
        if "standard output" in known.message:
            _abandon_stdout()
        return known.exit_code
    click.echo(f"error[E-INTERNAL]: {type(error).__name__}: {printable(str(error))}", err=True)
    click.echo("hint: this is a bug; please report it with the output of the same command with --debug", err=True)
    return 1


def _abandon_stdout() -> None:
    """Redirect standard output, whose pipe or file is gone, to nothing: Python would complain about it at exit."""
    if sys.stdout is not None:
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        except (OSError, ValueError):  # a stand-in without a descriptor
            sys.stdout = io.StringIO()


@click.group(
    cls=LazyGroup,
    help="Train support vector machines on data larger than memory, inside a memory budget you state.",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.option("--quiet", "-q", is_flag=True, help="Show no progress.")
@click.version_option(__version__, "--version", "-V", prog_name="streamsvm")
@click.pass_context
def cli(ctx: click.Context, debug: bool, quiet: bool) -> None:
    """Store the options of all commands."""
    ctx.obj = {"debug": debug, "quiet": quiet}


def _show_usage_error(error: click.ClickException) -> None:
    """Print an error of click: the usage, then the message with the user's input made printable, in one line."""
    text = io.StringIO()
    error.show(file=text)
    usage, mark, message = text.getvalue().rstrip().partition("Error: ")
    click.echo(usage + mark + printable(message), err=True)


def main() -> None:
    """Run the command line."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # not where a program has replaced it
            stream.reconfigure(errors="replace")
    try:
        sys.exit(cli.main(standalone_mode=False))
    except click.Abort:
        sys.exit(explain(KeyboardInterrupt(), debug=False))
    except click.ClickException as error:
        _show_usage_error(error)
        sys.exit(error.exit_code)
