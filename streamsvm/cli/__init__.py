"""The command line. Importing it imports click and nothing heavy: a command's module is loaded when it is called."""

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
from streamsvm.cli.commands import COMMANDS
from streamsvm.errors import BudgetError, SecurityError, StorageError, StreamSVMError, UsageError, printable
from streamsvm.registry import did_you_mean

BROKEN_PIPE = 141
"""128 + SIGPIPE, what a program that lets the signal kill it returns."""
INTERRUPTED = 130
EXAMPLES = (
    "streamsvm ingest train.csv train.zarr --label last",
    "streamsvm fit train.zarr model.ssvm --memory 512MiB",
    "streamsvm predict model.ssvm new.csv predictions.csv",
)


class LazyGroup(click.Group):
    """A group whose commands are imported on use, and whose errors have the form and exit codes of ``errors``."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, imported now; None for a name there is not."""
        if cmd_name not in COMMANDS:
            return None
        found: click.Command = import_module(COMMANDS[cmd_name].module).made(cmd_name)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; of a name there is not, say which is the nearest."""
        if args[0] not in COMMANDS and (near := did_you_mean(args[0], COMMANDS)):
            ctx.fail(f"no command is called '{args[0]}'{near}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the names with their summaries, without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.summary) for name, command in COMMANDS.items()])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples, each on a line of its own whatever the width."""
        with formatter.section("Examples"):
            for example in EXAMPLES:
                formatter.write(f"{'':>{formatter.current_indent}}{example}\n")

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; whatever it raises becomes a message and an exit code."""
        try:
            _check_stdout()
            result = super().invoke(ctx)
            _flush()
            return result
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 (the last stop: everything becomes an exit code)
            return ctx.exit(explain(error, debug=ctx.params.get("debug", False)))


def _check_stdout() -> None:
    """Raise StorageError when there is no standard output (``>&-``): Python would drop the results silently."""
    if sys.stdout is None:
        raise StorageError("standard output is closed", hint="redirect it to a file or to /dev/null")


def _flush() -> None:
    """Write out what is buffered while a failure can still be reported. Raises StorageError, BrokenPipeError."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise StorageError(
            f"writing to standard output failed: {error.strerror}", hint="check where it goes"
        ) from error


def explain(error: BaseException, *, debug: bool) -> int:
    """Say what went wrong on standard error; the exit code."""
    if isinstance(error, BrokenPipeError) or (isinstance(error, OSError) and error.errno == errno.EPIPE):
        _abandon_stdout()
        return BROKEN_PIPE
    if isinstance(error, KeyboardInterrupt):
        click.echo("interrupted: what was being written is removed, what was finished stays", err=True)
        return INTERRUPTED
    if debug:
        for line in "".join(traceback.format_exception(error)).splitlines():
            click.echo(printable(line), err=True)
    known = _known(error)
    if known is not None:
        click.echo(known.shown(), err=True)
        if "standard output" in known.message:
            _abandon_stdout()
        return known.exit_code
    click.echo(f"error[E-INTERNAL]: {type(error).__name__}: {printable(str(error))}", err=True)
    click.echo("hint: this is a bug; please report it with the output of the same command with --debug", err=True)
    return 1


def _known(error: BaseException) -> StreamSVMError | None:
    """The error as one of ours, if it is or corresponds to one."""
    if isinstance(error, StreamSVMError):
        return error
    if isinstance(error, MemoryError):
        hint = (
            "raise the limit of its address space (ulimit -v) or of its control group, or give the job less: --memory"
        )
        return BudgetError("the system gave this process no more memory", hint=hint)
    if isinstance(error, PermissionError):
        return SecurityError(f"{error.filename}: {error.strerror}", hint="check its permissions", code="E-PERMISSION")
    if isinstance(error, ValueError) and str(error) == "embedded null byte":
        return UsageError("a name has a NUL character in it", hint="no file can have such a name")
    return _of_system(error) if isinstance(error, OSError) and error.errno is not None else None


def _of_system(error: OSError) -> StorageError:
    """What the system has refused."""
    where = f"{error.filename}: " if error.filename else ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StorageError(f"{where}{error.strerror}", hint="free space and run the command again", code="E-NOSPACE")
    return StorageError(f"{where}{error.strerror}", hint="check the disk and what is on it")


def _abandon_stdout() -> None:
    """Let nothing more be written to a pipe or file that is gone: Python would complain about it at exit."""
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
@click.version_option(__version__, prog_name="streamsvm")
@click.pass_context
def cli(ctx: click.Context, debug: bool, quiet: bool) -> None:
    """Keep what holds for every command."""
    ctx.obj = {"debug": debug, "quiet": quiet}


def _show(error: click.ClickException) -> None:
    """Say what click found wrong: the usage in lines, then, in one line, the message with what the user has written."""
    text = io.StringIO()
    error.show(file=text)
    usage, mark, message = text.getvalue().rstrip().partition("Error: ")
    click.echo(usage + mark + printable(message), err=True)


def main() -> None:
    """The program."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # not where a program has put something else in its place
            stream.reconfigure(errors="replace")
    try:
        sys.exit(cli.main(standalone_mode=False))
    except click.Abort:
        sys.exit(explain(KeyboardInterrupt(), debug=False))
    except click.ClickException as error:
        _show(error)
        sys.exit(error.exit_code)
