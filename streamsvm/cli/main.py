"""Run the command line: find the command by name, and turn errors into messages and exit codes.

The module imports click and nothing heavy. ``streamsvm.cli.commands``, with the options of the commands, is imported when a command is
called.
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
    "cache": "List or remove the chunks of stores in object stores that are cached on this machine.",
    "doctor": "Show what this machine offers: packages, memory, disk. Writes and removes 64 MiB here.",
}
"""The summary of each command, in the order of the help: first those that can be steps of a job file."""
BROKEN_PIPE_EXIT_CODE = 141
"""128 + SIGPIPE: the exit code of a program killed by this signal."""
INTERRUPTED_EXIT_CODE = 130
"""128 + SIGINT."""
SHARED_FLAGS = {"-q": "quiet", "--quiet": "quiet", "--debug": "debug"}
"""The flags of all commands, each with its parameter."""
EXAMPLES = (
    "streamsvm fit train.csv model.ssvm --label y",
    "streamsvm ingest train.csv train.zarr --label last",
    "streamsvm fit train.zarr model.ssvm --memory 512MiB",
    "streamsvm predict model.ssvm new.csv predictions.csv",
)


class LazyGroup(click.Group):
    """A click group that imports a command when it is called, and prints errors and exits as ``explain`` defines."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the options before the command. ``help``, ``help COMMAND`` and ``version`` work like the options."""
        if args and args[0] in ("help", "version"):
            args = [*args[1:2], "--help"] if args[0] == "help" else ["--version"]
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands in the order of the help."""
        return list(SUMMARIES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return the command; None for an unknown name."""
        if cmd_name not in SUMMARIES:
            return None
        command: click.Command = import_module("streamsvm.cli.commands").get_command(cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command; for an unknown name, fail with the most similar one. Flags of all commands may follow its name."""
        if args[0] not in SUMMARIES and (near := did_you_mean(args[0], SUMMARIES)):
            ctx.fail(f"no command is called '{args[0]}'{near}")
        name, command, rest = super().resolve_command(ctx, args)
        words = rest[: rest.index("--")] if "--" in rest else rest
        for word in SHARED_FLAGS.keys() & set(words):
            ctx.params[SHARED_FLAGS[word]] = True
        return name, command, [word for k, word in enumerate(rest) if k >= len(words) or word not in SHARED_FLAGS]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the names of the commands with their summaries, without importing the commands."""
        with formatter.section("Commands"):
            formatter.write_dl(list(SUMMARIES.items()))

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples."""
        write_examples(formatter, EXAMPLES)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, and exit with the message and the exit code of ``explain`` if it raises an error."""
        try:
            _check_stdout()
            result = super().invoke(ctx)
            _flush_stdout()
            return result
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 (every error becomes an exit code)
            return ctx.exit(explain(error, debug=ctx.params.get("debug", False)))


def _check_stdout() -> None:
    """Raise StorageError if standard output is closed (``>&-``), since Python would discard the results silently."""
    if sys.stdout is None:
        raise StorageError("standard output is closed", hint="redirect it to a file or to /dev/null")


def _flush_stdout() -> None:
    """Flush standard output now, so that a failure is reported. Raises StorageError, BrokenPipeError."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise StorageError(
            f"writing to standard output failed: {error.strerror}", hint="check where it goes"
        ) from error


def explain(error: BaseException, *, debug: bool) -> int:
    """Print an error to standard error and return the exit code."""
    if isinstance(error, BrokenPipeError) or (isinstance(error, OSError) and error.errno == errno.EPIPE):
        _abandon_stdout()
        return BROKEN_PIPE_EXIT_CODE
    if isinstance(error, KeyboardInterrupt):
        click.echo("interrupted: unfinished output was removed; completed files were kept", err=True)
        return INTERRUPTED_EXIT_CODE
    if debug:
        for line in "".join(traceback.format_exception(error)).splitlines():
            click.echo(printable(line), err=True)
    translated = translate_error(error)
    if translated is not None:
        click.echo(translated.format_for_terminal(), err=True)
        if "standard output" in translated.message:
            _abandon_stdout()
        return translated.exit_code
    click.echo(f"error[E-INTERNAL]: {type(error).__name__}: {printable(str(error))}", err=True)
    click.echo("hint: this is a bug; please report it with the output of the same command with --debug", err=True)
    return 1


def _abandon_stdout() -> None:
    """Redirect a standard output that can no longer be written to the null device, so that Python reports no error at exit."""
    if sys.stdout is not None:
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        except (OSError, ValueError):  # standard output was replaced by an object without a descriptor
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
    """Store the options that all commands share."""
    ctx.obj = {"debug": debug, "quiet": quiet}


def _show_usage_error(error: click.ClickException) -> None:
    """Print an error of click: the usage, then the message in one line, with unprintable characters of the user's input escaped."""
    text = io.StringIO()
    error.show(file=text)
    usage, prefix, message = text.getvalue().rstrip().partition("Error: ")
    click.echo(usage + prefix + printable(message), err=True)


def main() -> None:
    """Run the command line."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a program may have replaced the stream by another object
            stream.reconfigure(errors="replace")
    try:
        sys.exit(cli.main(standalone_mode=False))
    except click.Abort:
        sys.exit(explain(KeyboardInterrupt(), debug=False))
    except click.ClickException as error:
        _show_usage_error(error)
        sys.exit(error.exit_code)
