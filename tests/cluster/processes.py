"""Real schedulers and workers as processes of their own, on the loopback address."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
START_SECONDS = 240
"""What a scheduler, or workers, may take to start."""


@dataclass
class Processes:
    """A scheduler and its workers; ``stop`` ends what is left of them."""

    folder: Path
    options: tuple[str, ...] = ()
    """For TLS."""
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def file(self) -> Path:
        return self.folder / "scheduler.json"

    @property
    def address(self) -> str:
        return str(json.loads(self.file.read_text())["address"])

    def start_scheduler(self, protocol: str = "tcp") -> None:
        arguments = ["--host", "127.0.0.1", "--port", "0", "--protocol", protocol]
        arguments += ["--dashboard-address", "127.0.0.1:0"]
        self.running.append(self._run("scheduler", *arguments))
        deadline = time.monotonic() + START_SECONDS
        while not (self.file.exists() and self.file.read_text().rstrip().endswith("}")):
            assert time.monotonic() < deadline, "the scheduler did not start"
            assert self.running[0].poll() is None, (self.folder / "scheduler.log").read_text()
            time.sleep(0.05)

    def start_worker(self, *arguments: str) -> subprocess.Popen[bytes]:
        place = (
            "--local-directory",
            str(self.folder / "scratch"),
            "--host",
            "127.0.0.1",
            "--dashboard-address",
            "127.0.0.1:0",
            "--no-nanny",
            "--nthreads",
            "1",
        )
        process = self._run(
            "worker", *place, "--memory-limit", "2GiB", "--death-timeout", str(START_SECONDS), *arguments
        )
        self.running.append(process)
        return process

    def stop(self) -> None:
        for process in reversed(self.running):
            process.kill()
            process.wait()

    def _run(self, kind: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "dask", kind, "--scheduler-file", str(self.file), *self.options, *arguments]
        with open(self.folder / f"{kind}.log", "ab") as log:
            return subprocess.Popen(command, cwd=self.folder, env=environment(), stdout=log, stderr=log)


def environment(**more: str) -> dict[str, str]:
    """With this package, whether it is installed or not."""
    return {**os.environ, "PYTHONPATH": str(REPOSITORY), **more}


def command(*arguments: str | Path, **more: str) -> subprocess.CompletedProcess[str]:
    """``streamsvm`` with these arguments, to its end."""
    code = "from streamsvm.cli.main import main\nif __name__ == '__main__': main()"
    words: Sequence[str] = [sys.executable, "-c", code, "-q", *map(str, arguments)]
    return subprocess.run(
        words, env=environment(**more), capture_output=True, text=True, timeout=START_SECONDS, check=False
    )
