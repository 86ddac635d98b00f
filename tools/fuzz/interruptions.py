"""A signal at the n-th system call of a fit: it is answered, and what goes on ends with the same bytes."""

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
from tools.fuzz.structures import Trial

SIGNALS = {"SIGTERM": 75, "SIGINT": 75, "SIGHUP": 75, "SIGUSR1": 75}
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
PATIENCE = 900
"""Seconds, on a machine with much to do, after which a fit of a second hangs."""


def _run(words: list[str], before: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """The end of a fit; where it hangs, an assertion with what all its threads were doing."""
    command = [*before, sys.executable, "-X", "faulthandler", "-m", "streamsvm", "-q", *words]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ
    ) as process:
        try:
            said = process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            program = _children(process.pid)[-1] if before else process.pid
            os.kill(program, signal.SIGABRT)
            raise AssertionError(f"hangs: {' '.join(words)}\n{process.communicate()[1][-4000:]}") from None
    return subprocess.CompletedProcess(command, process.returncode, *said)


def _children(process: int) -> list[int]:
    """The processes that one has begun, itself first."""
    listed = Path(f"/proc/{process}/task/{process}/children").read_text(encoding="ascii")
    return [process, *map(int, listed.split())]


def signals(scratch: Path) -> Trial:
    """Each trial is one fit under strace and, where it was stopped, one more that goes on."""
    store = small_store(scratch / "s.zarr", sparse=False)
    plain = []
    for job in JOBS:
        assert _run(["fit", *job, "--overwrite", store, "m"]).returncode == 0
        plain.append(hashlib.sha256(Path("m").read_bytes()).hexdigest())
        shutil.rmtree("m.run")
        Path("m").unlink()

    def trial(draw: random.Random) -> str:
        number, name = draw.randrange(len(JOBS)), draw.choice(list(SIGNALS))
        shutil.rmtree("m.run", ignore_errors=True)
        Path("m").unlink(missing_ok=True)
        call = draw.choice(CALLS.split(","))
        when = round(10.0 ** draw.uniform(0.0, 3.3))
        inject, quiet = f"inject={call}:signal={name}:when={when}", ("-qq", "-o", "/dev/null", "-e")
        ended = _run(
            ["fit", *JOBS[number], store, "m"],
            ("strace", *quiet, f"trace={call}", "-e", inject),
        )
        said = f"{name} at {call} {when} of job {number}: exit {ended.returncode}\n{ended.stderr[-600:]}"
        if ended.returncode < 0 and not Path("m.run").exists():
            return "killed as Python itself began"  # before there is anybody to answer
        assert ended.returncode in (0, *ENDED), said
        assert "Traceback" not in ended.stderr, said
        if ended.returncode:
            assert "E-INTERRUPTED" in ended.stderr, said
            resumed = ["fit", *JOBS[number], "--resume", store, "m"]
            if draw.random() < AGAIN:
                ended = _run(resumed, ("strace", *quiet, f"trace={call}", "-e", inject))
                assert ended.returncode in (0, *ENDED, -signal.Signals[name]), f"{said}\nresumed: {ended.stderr[-600:]}"
            again = _run(resumed)
            assert again.returncode == 0, f"{said}\nresumed: {again.stderr[-600:]}"
        assert hashlib.sha256(Path("m").read_bytes()).hexdigest() == plain[number], f"other bytes: {said}"
        return "not met" if not ended.returncode else "stopped, and went on to the same bytes"

    return trial
