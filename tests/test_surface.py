"""What people meet first agrees with the code: the reference, the help, the fields of job files."""

from __future__ import annotations

import inspect
import re
import shlex
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from streamsvm import errors
from streamsvm.cli import main as cli
from streamsvm.cli.help import EXAMPLES
from streamsvm.config.command_table import STEPS
from streamsvm.config.options import options_of
from streamsvm.registry import load
from streamsvm.solvers import losses_of
from tools import generate

REPOSITORY = Path(__file__).parent.parent
DOCS = REPOSITORY / "tools" / "docs"
REFERENCE = "".join(
    (DOCS / "reference" / f"{name}.md").read_text("utf-8") for name in ("commands", "choices", "exit-codes")
)
"""The pages of tools/docs/reference with the tables of all that can be chosen."""
REGISTRIES = {
    "solver": "streamsvm.solvers:SOLVERS",
    "loss": "streamsvm.losses:LOSSES",
    "kernel": "streamsvm.kernels:KERNELS",
    "store": "streamsvm.store:STORES",
    "source": "streamsvm.store.sources:SOURCES",
    "generator": "streamsvm.store.generators:GENERATORS",
}


def first_column(header: str) -> list[str]:
    """The first words of the rows of the reference's table with this first header."""
    table = re.search(rf"^\| {header} \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", REFERENCE, re.MULTILINE)
    assert table, f"tools/docs/reference has no table '{header}'"
    return [re.findall(r"[\w.-]+", row)[0] for row in table[1].splitlines()]


def test_docs_reference_lists_what_can_be_chosen() -> None:
    for kind, registry in REGISTRIES.items():
        assert sorted(first_column(kind)) == sorted(load(registry))


def test_docs_reference_says_which_losses_a_solver_takes() -> None:
    said = dict(re.findall(r"^\| `([\w-]+)` \| ([\w, ]+) \| ", REFERENCE, re.MULTILINE))
    registry = load(REGISTRIES["solver"])
    assert {name: said.get(name) for name in registry} == {name: ", ".join(losses_of(name)) for name in registry}


def test_docs_reference_lists_every_command() -> None:
    assert sorted(first_column("command")) == sorted(cli.SUMMARIES)


def test_docs_reference_lists_every_exit_code() -> None:
    kinds = [kind for _, kind in inspect.getmembers(errors, inspect.isclass)]
    codes = {kind.exit_code for kind in kinds if issubclass(kind, errors.StreamSVMError)}
    assert {int(code) for code in first_column("code")} == codes | {
        0,
        cli.INTERRUPTED_EXIT_CODE,
        cli.BROKEN_PIPE_EXIT_CODE,
    }


def test_docs_every_command_has_help() -> None:
    for name in cli.SUMMARIES:
        result = CliRunner().invoke(cli.cli, [name, "--help"])
        assert result.exit_code == 0
        assert result.output.splitlines()[2].strip()
        assert "\nExamples:\n  streamsvm " in result.output


def test_docs_examples_of_the_help_are_commands() -> None:
    """Every one has options that there are, with values that they take."""
    for line in (example for examples in EXAMPLES.values() for example in examples):
        _, name, *words = shlex.split(line)
        command = cli.cli.get_command(click.Context(cli.cli), name)
        assert command is not None
        command.make_context(name, words, parent=click.Context(cli.cli, obj={"quiet": True}))


def test_cli_help_and_version_are_commands_and_options() -> None:
    said = {
        words: CliRunner().invoke(cli.cli, words.split()).output
        for words in ("help", "--help", "help fit", "fit --help")
    }
    assert said["help"] == said["--help"]
    assert said["help fit"].splitlines()[1:] == said["fit --help"].splitlines()[1:]
    assert len({CliRunner().invoke(cli.cli, [word]).output for word in ("version", "-V", "--version")}) == 1


def test_docs_every_field_of_a_job_can_be_given() -> None:
    for step in STEPS:
        command = cli.cli.get_command(click.Context(cli.cli), step)
        assert command is not None
        given = {parameter.name for parameter in command.params}
        assert {f.name for f in STEPS[step].fields if not f.option.settings_of} <= given
        assert not any(f.option.settings_of for f in STEPS[step].fields) or "settings" in given


def test_docs_reference_of_options_is_what_is_declared() -> None:
    written = (REPOSITORY / "tools" / "docs" / "options.md").read_text(encoding="utf-8")
    assert written == generate.options_page(), "run: python tools/generate.py"


def test_docs_types_of_the_public_names_are_what_is_declared() -> None:
    path, make = generate.PAGES["stub"]
    assert path.read_text(encoding="utf-8") == make(), "run: python tools/generate.py"


@pytest.mark.parametrize("owner", ["solver", "loss", "kernel"])
def test_docs_help_lists_what_set_takes(owner: str) -> None:
    registry = load(REGISTRIES[owner])
    said = CliRunner().invoke(cli.cli, ["fit", f"--help-{owner}"]).output
    for name in registry:
        only = CliRunner().invoke(cli.cli, ["fit", f"--help-{owner}", name])
        assert only.exit_code == 0
        assert only.output.strip() in said
        assert all(f"{owner}.{option.key} " in only.output for option in options_of(registry[name]))
    wrong = CliRunner().invoke(cli.cli, ["fit", f"--help-{owner}", "nosuch"])
    assert wrong.exit_code == 2
    assert "choose from" in wrong.output


def test_docs_help_of_a_fit_is_grouped_and_shows_values() -> None:
    said = CliRunner().invoke(cli.cli, ["fit", "--help"]).output
    places = [
        said.index(f"\n{title}:\n")
        for title in ("Common options", "Model", "Kernel", "Solver", "Stopping", "Memory", "Cluster", "Output")
    ]
    assert places == sorted(places)
    assert "[default: 1e-6]" in " ".join(said.split())
    assert "CUT" not in said
