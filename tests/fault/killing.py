"""A fork server: imports and compiles once, then runs each trial in a child that is killed at a given durable step.

``python -m tests.fault.killing`` reads one trial a line as JSON and answers with what became of it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple, Self

import pytest

from streamsvm import durable
from tests.fault.golden import placed

REPOSITORY = Path(__file__).resolve().parents[2]
SMALL_PART = (1 << 20) + 6000
"""Bytes of an HDF5 part, nearly all of them reserved for its index: stores of the tests have several."""


class Outcome(NamedTuple):
    """``status``: exit code of the job, or -9 when it was killed; ``steps`` it took when it was not."""

    status: int
    steps: int
    said: str


class Server:
    """The side that asks. A context manager."""

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "tests.fault.killing"]
        environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
        self._process = subprocess.Popen(
            command, cwd=REPOSITORY, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()

    def run(self, name: str, kill: int = 0, *, warm: bool = False, **settings: Any) -> Outcome:
        """One trial of a job; ``kill``: the step it dies at, 0 for never; ``warm``: in the server, not in a child."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"name": name, "kill": kill, "warm": warm, "settings": settings}) + "\n")
        self._process.stdin.flush()
        return Outcome(*json.loads(self._process.stdout.readline()))


def serve() -> None:
    """The side that answers."""
    for line in sys.stdin:
        trial = json.loads(line)
        answer = list(counted(trial)) if trial["warm"] else in_child(trial)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def in_child(trial: dict[str, Any]) -> list[Any]:
    """Fork, run, and tell how it ended."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        status, steps, said = counted(trial)
        os.write(writing, json.dumps([steps, said]).encode())
        os._exit(status)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        told = pipe.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return [-os.WTERMSIG(status), 0, ""]
    return [os.WEXITSTATUS(status), *json.loads(told)]


def counted(trial: dict[str, Any]) -> tuple[int, int, str]:
    """Run a job, dying at its step."""
    from streamsvm.errors import StreamSVMError

    steps = 0

    def observer(*_: Any) -> None:
        nonlocal steps
        steps += 1
        if steps == trial["kill"]:
            os.kill(os.getpid(), signal.SIGKILL)

    durable.observe = observer
    try:
        run(trial)
    except StreamSVMError as error:
        return error.exit_code, steps, str(error)
    except BaseException as error:  # noqa: BLE001  whatever else happens is a finding
        return 1, steps, repr(error)
    return 0, steps, ""


def run(trial: dict[str, Any]) -> None:
    """Execute one job by name, with journals and checkpoints as often as can be."""
    from streamsvm.config.command_table import STEPS, load, make_job
    from streamsvm.engine import checkpoint
    from streamsvm.store import hdf5 as hdf5_store
    from streamsvm.store.write import writer

    writer.CHUNKS_PER_SYNC, hdf5_store.PART_BYTES = 2, SMALL_PART
    checkpoint.PAUSE_FACTOR = 0
    settings = dict(trial["settings"])
    with pytest.MonkeyPatch.context() as patch:
        if settings.pop("in_file", False):
            placed(patch, resident=False)
        if place := settings.pop("killed_in", ""):
            patch.setattr(place, lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL))
        load(STEPS[trial["name"]].action)(make_job(trial["name"], settings))


if __name__ == "__main__":
    serve()
