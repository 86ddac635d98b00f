"""What the fuzz of signals takes for a hang: a program that sleeps, or uses more of a processor than it can need, and no slow one."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tools.fuzz.getting_on import GettingOn, descendants


@pytest.fixture
def program(request: pytest.FixtureRequest) -> Iterator[int]:
    with subprocess.Popen(["sh", "-c", request.param], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
        for one in reversed(descendants(process.pid)):
            with suppress(ProcessLookupError):  # it ends with the one before
                os.kill(one, signal.SIGKILL)


@pytest.mark.parametrize("program", ["echo; cat; true", "echo; (cat; true); true"], indirect=True)
def test_what_sleeps_at_every_look_hangs(program: int) -> None:
    """``cat`` waits for what nobody writes, and ``sh`` for ``cat``."""
    gets_on = GettingOn(program, asleep=20)
    assert gets_on.look()
    assert not all(gets_on.look() for _ in range(1000))


@pytest.mark.parametrize("program", ["echo; while :; do :; done"], indirect=True)
def test_what_works_gets_on_until_it_has_worked_too_long(program: int) -> None:
    gets_on = GettingOn(program, asleep=1, cpu=1e9)
    assert all(gets_on.look() for _ in range(100))
    assert not GettingOn(program, cpu=0.0).look()
