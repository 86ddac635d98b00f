"""A signal between the moment the model is written and the exit: --resume finds the finished run, and answers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from streamsvm.cli import cli
from tests.fault.golden import ingested, write_table

REPOSITORY = Path(__file__).resolve().parents[2]
PLANTED = """
import importlib, os, signal, sys
from streamsvm import __main__ as program
program.prepare()
module, name = sys.argv.pop(1).split(":")
module = importlib.import_module(module)
plain = getattr(module, name)
def planted(*values, **more):
    found = plain(*values, **more)
    os.kill(os.getpid(), signal.SIGTERM)
    return found
setattr(module, name, planted)
from streamsvm.cli import main
main()
"""
"""The program, that gets SIGTERM when a function has returned."""
PLACES = {
    "written": "streamsvm.jobs.fit.driver:write_outputs",
    "told": "streamsvm.jobs.fit.driver:_done_event",
    "shown": "streamsvm.cli.commands:describe_result",
}


def stopped(place: str, *words: str) -> subprocess.CompletedProcess[str]:
    """A process that is stopped there."""
    command = [sys.executable, "-c", PLANTED, place, "fit", *words]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


def run(*words: str) -> Result:
    """One that is not, in this process."""
    ended = CliRunner().invoke(cli, ["fit", *words])
    assert ended.exit_code == 0, ended.stderr
    return ended


@pytest.mark.parametrize(("place", "settings"), [("written", ("--C", "0.1,1")), ("told", ()), ("shown", ())])
def test_signal_run_that_was_stopped_after_its_model_was_written(
    place: str, settings: tuple[str, ...], tmp_path: Path
) -> None:
    write_table(tmp_path)
    store = str(ingested(tmp_path))
    whole = run(store, str(tmp_path / "whole"), *settings)
    names = sorted(path.name.removeprefix("whole") for path in tmp_path.glob("whole*") if path.is_file())
    assert names
    ended = stopped(PLACES[place], store, str(tmp_path / "m"), *settings)
    assert ended.returncode == 75, ended.stderr
    assert "E-INTERRUPTED" in ended.stderr
    assert ("--resume" in ended.stderr) == (place != "shown")  # then there is no job to resume
    written = {name: (tmp_path / f"m{name}").read_bytes() for name in names}
    again = run(store, str(tmp_path / "m"), *settings, "--resume")
    assert again.stdout.split(" · ")[0] == whole.stdout.split(" · ")[0] != ""
    for name in names:
        assert (tmp_path / f"m{name}").read_bytes() == written[name] == (tmp_path / f"whole{name}").read_bytes()
    assert not (tmp_path / "m.run" / "checkpoint").exists()
