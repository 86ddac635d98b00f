"""Run the session shown in a Markdown file and put its real output into it: tools/session.py [README.md].

In every ```console block the lines that start with '$ ' are commands; what they print replaces what stands there.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)
REPOSITORY = Path(__file__).resolve().parent.parent


def output_of(command: str, directory: str) -> str:
    """What a command prints, results and errors; progress is left out."""
    _, *arguments = command.split()
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    run = [sys.executable, "-m", "streamsvm", "--quiet", *arguments]
    done = subprocess.run(
        run, cwd=directory, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    return done.stdout


def replay(block: re.Match[str]) -> str:
    """One block with fresh output."""
    commands = [line[2:] for line in block[1].splitlines() if line.startswith("$ ")]
    with tempfile.TemporaryDirectory() as directory:
        parts = [f"$ {command}\n{output_of(command, directory)}" for command in commands]
    return "```console\n" + "\n".join(parts) + "```"


def main() -> None:
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else REPOSITORY / "README.md"
    path.write_text(BLOCK.sub(replay, path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
