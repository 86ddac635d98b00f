"""Colors: there on a terminal, absent with NO_COLOR, and no escapes at all where there is no terminal."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parent.parent.parent
COLOR = re.compile(rb"\x1b\[(?:\d+;)*(?:3[0-8]|4[0-8]|9[0-7]|10[0-7])(?:;\d+)*m")


def shown(folder: Path, *, terminal: bool, **more: str) -> bytes:
    """What a command writes: to standard error where that is a terminal, else to its two pipes."""
    unset = {"NO_COLOR", "FORCE_COLOR", "CLICOLOR", "TTY_COMPATIBLE"}
    known = {name: value for name, value in os.environ.items() if name not in unset}
    environment = {**known, "PYTHONPATH": str(REPOSITORY), "TERM": "xterm-256color", **more}
    command = [
        sys.executable,
        "-m",
        "streamsvm",
        "synth",
        "susy",
        str(folder / "s.zarr"),
        "--rows",
        "2000",
        "--overwrite",
    ]
    if not terminal:
        done = subprocess.run(command, env=environment, check=True, capture_output=True)
        return done.stdout + done.stderr
    ours, theirs = pty.openpty()
    run = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=theirs, stdin=theirs)
    os.close(theirs)
    found = b""
    try:
        while piece := os.read(ours, 65536):
            found += piece
    except OSError:  # Linux's way to say that the other end is closed
        pass
    os.close(ours)
    assert run.wait() == 0
    return found


def test_a_terminal_has_colors_unless_they_are_not_wanted(tmp_path: Path) -> None:
    assert COLOR.search(shown(tmp_path, terminal=True))
    plain = shown(tmp_path, terminal=True, NO_COLOR="1")
    assert b"synth" in plain
    assert not COLOR.search(plain)


def test_terminal_log_has_no_escapes(tmp_path: Path) -> None:
    found = shown(tmp_path, terminal=False)
    assert b"2000 rows in" in found
    assert b"\x1b" not in found
