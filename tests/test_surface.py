"""What people meet first agrees with the code: the README, the help, the worked job files."""

from __future__ import annotations

import inspect
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from streamsvm import cli, errors
from streamsvm.config.job_file import STEPS
from streamsvm.registry import load
from streamsvm.solvers import losses_of

REPOSITORY = Path(__file__).parent.parent
README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
REGISTRIES = {
    "solver": "streamsvm.solvers:SOLVERS",
    "loss": "streamsvm.losses:LOSSES",
    "kernel": "streamsvm.kernels:KERNELS",
    "store": "streamsvm.store:STORES",
    "source": "streamsvm.store.sources:SOURCES",
    "generator": "streamsvm.store.generators:GENERATORS",
}


def first_column(header: str) -> list[str]:
    """The first words of the rows of the README's table with this first header."""
    table = re.search(rf"^\| {header} \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", README, re.MULTILINE)
    assert table, f"the README has no table '{header}'"
    return [re.findall(r"[\w.-]+", row)[0] for row in table[1].splitlines()]


@pytest.mark.parametrize("kind", REGISTRIES)
def test_the_readme_lists_what_can_be_chosen(kind: str) -> None:
    assert sorted(first_column(kind)) == sorted(load(REGISTRIES[kind]))


def test_the_readme_says_which_losses_a_solver_takes() -> None:
    said = dict(re.findall(r"^\| `([\w-]+)` \| ([\w, ]+) \| ", README, re.MULTILINE))
    registry = load(REGISTRIES["solver"])
    assert {name: said.get(name) for name in registry} == {name: ", ".join(losses_of(name)) for name in registry}


@pytest.mark.parametrize("kind", REGISTRIES)
def test_every_name_stands_for_something(kind: str) -> None:
    registry = load(REGISTRIES[kind])
    assert all(registry[name] is not None for name in registry)


def test_the_readme_lists_every_command() -> None:
    assert sorted(first_column("command")) == sorted(cli.COMMANDS)


def test_the_readme_lists_every_exit_code() -> None:
    kinds = [kind for _, kind in inspect.getmembers(errors, inspect.isclass)]
    codes = {kind.exit_code for kind in kinds if issubclass(kind, errors.StreamSVMError)}
    assert {int(code) for code in first_column("code")} == codes | {0, cli.INTERRUPTED, cli.BROKEN_PIPE}


@pytest.mark.parametrize("line", re.findall(r"^(?:\$|   ) (streamsvm .*)$", README, re.MULTILINE))
def test_every_command_of_the_readme_can_be_given(line: str) -> None:
    """Options and values are parsed; nothing is run."""
    _, name, *arguments = shlex.split(line)
    command = cli.cli.get_command(click.Context(cli.cli), name)
    assert command is not None
    command.make_context(name, arguments)


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_has_help(name: str) -> None:
    result = CliRunner().invoke(cli.cli, [name, "--help"])
    assert result.exit_code == 0
    assert result.output.splitlines()[2].strip()


@pytest.mark.parametrize("step", STEPS)
def test_every_field_of_a_job_can_be_given(step: str) -> None:
    command = cli.cli.get_command(click.Context(cli.cli), step)
    assert command is not None
    given = {parameter.name for parameter in command.params}
    assert {f.name for f in STEPS[step].fields if not f.option.settings_of} <= given
    assert not any(f.option.settings_of for f in STEPS[step].fields) or "settings" in given


def test_importing_the_package_imports_nothing() -> None:
    code = "import sys, streamsvm; assert not {'numba', 'scipy', 'zarr', 'pyarrow', 'dask'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, check=True)
