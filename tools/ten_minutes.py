"""Do what the README says, in a fresh clone, with a file of one's own, and count every command.

    python tools/ten_minutes.py ../shared/data/covtype.csv.gz

Clones the repository into a folder that is removed at the end, installs it in an environment of its own, and gives the three
commands that the README has for files of one's own, with this file for ``train.csv``; then draws the page again, which now has the
evaluation. Prints the seconds of each command, by the clock and of processors. Needs what pip needs.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
PAGE = "streamsvm report model.ssvm model.html --overwrite"


def own_commands(readme: str, data: Path) -> list[str]:
    """Return the commands of the README for files of one's own, with this file in them."""
    block = re.search(r"(?:^    streamsvm (?:ingest|fit|evaluate) .*\n)+", readme, re.MULTILINE)
    if block is None:
        raise SystemExit("the README has no block of commands for files of one's own")
    return [line.strip().replace("train.csv", str(data)) for line in block[0].splitlines()]


def counted(command: str, place: Path, environment: dict[str, str]) -> float:
    """Run a command and print its seconds; return those by the clock."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, shell=True, cwd=place, env=environment, capture_output=True, text=True, check=False)
    seconds, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"{command}\nended with {done.returncode}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    processors = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"{seconds:7.1f} s {processors:7.1f} CPU s  {command}", flush=True)
    if command.startswith("streamsvm fit"):
        print(done.stdout.strip().splitlines()[-1], flush=True)
    return seconds


def main() -> None:
    """Clone, install, ingest, fit, evaluate, draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="a raw file whose last column is the label")
    data = parser.parse_args().data.resolve()
    with tempfile.TemporaryDirectory() as folder:
        clone = Path(folder) / "streamsvm"
        program = clone / ".venv" / "bin"
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        environment = {**kept, "PATH": f"{program}:{kept['PATH']}", "XDG_CACHE_HOME": f"{folder}/cache"}
        install = f"{sys.executable} -m venv .venv && .venv/bin/pip install --quiet ."
        total = counted(f"git clone --quiet {REPOSITORY} {clone}", Path(folder), environment)
        commands = own_commands((clone / "README.md").read_text(encoding="utf-8"), data)
        for command in (install, *commands, PAGE):
            total += counted(command, clone, environment)
        size = (clone / "model.html").stat().st_size
    print(f"{total:7.1f} s in all; the page has {size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
