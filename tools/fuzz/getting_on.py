"""Whether a program gets on, as the kernel counts it: a busy machine makes it slow, and that is no hang.

A program that hangs waits for what does not come, or goes round and round. The first is asleep at every look, the second uses more
processor time than the work can take. One that wants a processor, or is halted by who traces it, does neither.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

AT_WORK = "RDt"
"""States of a thread that runs or would, waits for a disk, or is halted by a tracer."""
LITTLE = 0.05
"""A program that spends less than this share of a second on a processor only looks whether there is anything to do."""


class GettingOn:
    """Looks at a process and all it has begun, once a second.

    It hangs after ``asleep`` looks at which all its threads slept and had hardly worked, or ``cpu`` seconds of processor time.
    """

    def __init__(self, process: int, asleep: int = 180, cpu: float = 180.0) -> None:
        self._process, self._asleep, self._cpu = process, asleep, cpu
        self._spent = 0.0

    def look(self) -> bool:
        """Whether it does; to be asked once a second."""
        states, spent = [], 0.0
        for thread in threads(self._process):
            state, seconds = _account(thread)
            states.append(state)
            spent += seconds
        worked, self._spent = spent - self._spent, spent
        if not any(state in AT_WORK for state in states) and abs(worked) < LITTLE:
            self._asleep -= 1
        return self._asleep > 0 and spent < self._cpu


def descendants(process: int) -> list[int]:
    """A process, and those that it and they have begun and that are there."""
    found = [process]
    for parent in found:
        for place in _tasks(parent):
            with suppress(OSError):
                found += map(int, place.joinpath("children").read_text(encoding="ascii").split())
    return found


def threads(process: int) -> Iterator[Path]:
    """What the kernel says of each thread of a process and of its descendants."""
    for one in descendants(process):
        yield from _tasks(one)


def _tasks(process: int) -> list[Path]:
    with suppress(OSError):
        return list(Path(f"/proc/{process}/task").iterdir())
    return []


def _account(thread: Path) -> tuple[str, float]:
    """The state of a thread and its processor seconds; neither of one that is gone."""
    with suppress(OSError):
        words = thread.joinpath("stat").read_text(encoding="ascii", errors="replace").rpartition(") ")[2].split()
        return words[0], (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
    return "X", 0.0
