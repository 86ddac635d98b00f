"""A signal at the n-th system call of a fit: it is answered, and what goes on ends with the same bytes.

How many calls of each kind a fit makes is counted first, and how many of them Python makes before it reads a line: calls between the
two are drawn, half of them evenly, half near the end, where the model is written.
"""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from tools.fuzz.artifacts import small_store
from tools.fuzz.getting_on import GettingOn, descendants
from tools.fuzz.structures import Trial

SIGNALS = ("SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1")
CALLS = "openat,read,pread64,write,pwrite64,rename,renameat2,fsync,mmap,munmap,futex,unlink,mkdir,fstat,newfstatat,flock,close"
JOBS = (
    ("--solver", "dcd", "--loss", "hinge", "--tolerance", "1e-9", "--max-passes", "40", "--checkpoint-every", "0.01"),
    ("--kernel", "rbf", "--gamma", "0.5", "--landmarks", "20", "--embedding", "disk"),
    ("--kernel", "rbf", "--gamma", "0.5", "--solver", "decomposition"),
    ("--kernel", "rbf", "--gamma", "0.5", "--solver", "blended", "--checkpoint-every", "0.01"),
    ("--solver", "newton", "--loss", "hinge", "--tolerance", "1e-6", "--checkpoint-every", "0.01"),
    ("--solver", "pegasos", "--max-passes", "20", "--checkpoint-every", "0.01"),
)
ENDED = (75, 130)
AGAIN = 0.5
"""Of the runs that go on, so many get the same signal at the same place."""
QUIET = ("strace", "-qq", "-o", "/dev/null")
Range = tuple[int, int]
"""The calls of a kind that a signal is sent at: after the first of these, up to the second."""


def _run(words: list[str], before: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """The end of a fit; where it hangs, an assertion with what all its threads were doing."""
    command = [*before, sys.executable, "-X", "faulthandler", *words]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ
    ) as process:
        gets_on = GettingOn(process.pid)
        while True:
            try:
                said = process.communicate(timeout=1.0)
                break
            except subprocess.TimeoutExpired:
                if not gets_on.look():
                    os.kill(descendants(process.pid)[1 if before else 0], signal.SIGABRT)
                    raise AssertionError(f"hangs: {' '.join(words)}\n{process.communicate()[1][-4000:]}") from None
    return subprocess.CompletedProcess(command, process.returncode, *said)


def _fit(words: tuple[str, ...], before: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    return _run(["-m", "streamsvm", "-q", "fit", *words], before)


def counted(words: list[str]) -> dict[str, int]:
    """The system calls of a program that ends well, by kind: those of its main thread, which signals are sent to."""
    ended = _run(words, ("strace", "-qq", "-c", "-U", "name,count", "-o", "calls", "-e", f"trace={CALLS}"))
    assert ended.returncode == 0, ended.stderr
    lines = [line.split() for line in Path("calls").read_text(encoding="ascii").splitlines()]
    return {line[0]: int(line[1]) for line in lines if len(line) == 2 and line[1].isdigit() and line[0] != "total"}


def _remove() -> None:
    shutil.rmtree("m.run", ignore_errors=True)
    Path("m").unlink(missing_ok=True)


def _learned(store: str) -> list[tuple[str, dict[str, Range]]]:
    """Of each job the sha256 of its model, and the calls to choose from."""
    first = counted(["-c", "pass"])
    learned = []
    for job in JOBS:
        assert _fit((*job, "--overwrite", store, "m")).returncode == 0  # compiles
        calls = counted(["-m", "streamsvm", "-q", "fit", *job, "--overwrite", store, "m"])
        ranges = {call: (first.get(call, 0), count) for call, count in calls.items() if count > first.get(call, 0)}
        learned.append((hashlib.sha256(Path("m").read_bytes()).hexdigest(), ranges))
        _remove()
    return learned


def _drawn(draw: random.Random, ranges: dict[str, Range]) -> tuple[str, int]:
    """A system call, and which of its kind."""
    call = draw.choice(sorted(ranges))
    first, last = ranges[call]
    back = draw.randrange(last - first) if draw.random() < 0.5 else round((last - first) ** draw.random()) - 1
    return call, last - back


def signals(scratch: Path) -> Trial:
    """Each trial is one fit under strace and, where it was stopped, one more that goes on."""
    store = small_store(scratch / "s.zarr", sparse=False)
    learned = _learned(store)

    def trial(draw: random.Random) -> str:
        number, name = draw.randrange(len(JOBS)), draw.choice(SIGNALS)
        plain, ranges = learned[number]
        call, when = _drawn(draw, ranges)
        _remove()
        injecting = (*QUIET, "-e", f"trace={call}", "-e", f"inject={call}:signal={name}:when={when}")
        ended = _fit((*JOBS[number], store, "m"), injecting)
        said = f"{name} at {call} {when} of job {number}: exit {ended.returncode}\n{ended.stderr[-600:]}"
        if ended.returncode < 0 and not Path("m.run").exists():
            return "killed as Python itself began"  # before there is anybody to answer
        assert ended.returncode in (0, *ENDED), said
        assert "Traceback" not in ended.stderr, said
        if ended.returncode:
            assert "E-INTERRUPTED" in ended.stderr, said
            again = injecting if draw.random() < AGAIN else ()
            _go_on((*JOBS[number], "--resume", store, "m"), again, said, -signal.Signals[name])
        assert hashlib.sha256(Path("m").read_bytes()).hexdigest() == plain, f"other bytes: {said}"
        return "stopped, and went on to the same bytes" if ended.returncode else "ended without a stop"

    return trial


def _go_on(resumed: tuple[str, ...], injecting: tuple[str, ...], said: str, killed: int) -> None:
    """Go on with what was stopped, perhaps stopped again; raises AssertionError where it does not go on."""
    if injecting:
        ended = _fit(resumed, injecting)
        assert ended.returncode in (0, *ENDED, killed), f"{said}\nresumed: {ended.stderr[-600:]}"
    again = _fit(resumed)
    assert again.returncode == 0, f"{said}\nresumed: {again.stderr[-600:]}"
