"""What a terminal shows: colors where they are wanted, the curve of the gap, the bar of memory, the card at the end."""

from __future__ import annotations

import math
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from streamsvm.display.terminal import CURVE_PASSES, Progress, draw_fit_card, draw_gap_curve, draw_memory

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


def test_terminal_has_colors_unless_they_are_not_wanted(tmp_path: Path) -> None:
    assert COLOR.search(shown(tmp_path, terminal=True))
    plain = shown(tmp_path, terminal=True, NO_COLOR="1")
    assert b"synth" in plain
    assert not COLOR.search(plain)


def test_terminal_log_has_no_escapes(tmp_path: Path) -> None:
    found = shown(tmp_path, terminal=False)
    assert b"2000 rows in" in found
    assert b"\x1b" not in found


MIB = 1 << 20


def test_terminal_curve_falls_as_the_gap_does() -> None:
    assert draw_gap_curve([1.0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7]) == "█▇▆▅▄▃▂▁"
    assert draw_gap_curve([0.5, 0.5]) == "▁▁"
    assert draw_gap_curve([0.5]) == draw_gap_curve([]) == ""
    assert draw_gap_curve([0.0, math.nan, math.inf, 0.1, 0.01]) == "█▁"
    assert len(draw_gap_curve([0.9**k for k in range(100)])) == CURVE_PASSES


def test_terminal_bar_is_full_at_the_limit_and_not_beyond() -> None:
    assert draw_memory(113 * MIB, 512 * MIB) == "███░░░░░░░ 113 of 512 MiB"
    assert draw_memory(512 * MIB, 512 * MIB) == "██████████ 512 of 512 MiB"
    assert draw_memory(600 * MIB, 512 * MIB).startswith("██████████ 600")


def test_terminal_card_says_how_it_ended() -> None:
    end = {
        "gap": 4e-6, "tolerance": 1e-3, "primal": 680892.7, "dual": 680891.4, "passes": 3, "seconds": 3.5,
        "compute_share": 0.99, "bytes_read": 205_200_000, "peak": 113 * MIB, "limit": 512 * MIB, "model": "m.ssvm",
    }  # fmt: skip
    card = draw_fit_card(end)
    assert card[0] == "  certified       gap 0.0004 % of 0.1 % asked for"
    assert "  model           m.ssvm" in card
    assert draw_fit_card(end | {"gap": 0.5})[0].startswith("  NOT certified   gap 50 %")
    held = {"error": 0.282, "C": 1.0, "pass": 2}
    assert "  held-out error  28.2 % (C = 1, pass 2)" in draw_fit_card(end | {"validation": held})


def test_terminal_progress_has_curve_and_bar() -> None:
    progress = Progress()
    progress.update({"event": "plan", "limit": 512 * MIB})
    for number, gap in enumerate((0.5, 0.05), 1):
        progress.update({"event": "pass", "pass": number, "gap": gap, "seconds": 1.0 * number, "memory": 113 * MIB})
    assert progress.render() == "█▁ gap 5 %, ███░░░░░░░ 113 of 512 MiB"
    assert progress.details() == "gap 5 %, 113 MiB"


def test_terminal_progress_estimates_what_is_left_of_the_whole_job() -> None:
    progress = Progress()
    progress.update({"event": "plan", "limit": 512 * MIB, "tolerance": 1e-3})
    for number, gap in enumerate((1.0, 0.1, 0.3, 0.01), 1):  # falls by 10 in 1.5 passes; a factor 10 is left
        progress.update({"event": "pass", "pass": number, "gap": gap, "seconds": 3.0 * number, "memory": 113 * MIB})
    assert progress.details() == "gap 1 %, about 2 passes, 6 s left, 113 MiB"
    assert progress.render(narrow=True).startswith("gap 1 %, about 2 passes")
    progress.update({"event": "pass", "pass": 5, "gap": 2.0, "seconds": 15.0})
    assert "about" in progress.details()
    resumed = Progress()
    resumed.update({"event": "plan", "tolerance": 1e-3})
    for number, gap in enumerate((1.0, 0.1, 0.01), 1):  # a fit that goes on with pass 101 counts its seconds from 0
        resumed.update({"event": "pass", "pass": 100 + number, "gap": gap, "seconds": 3.0 * number})
    assert resumed.details() == "gap 1 %, about 1 pass, 3 s left"
    rising = Progress()
    rising.update({"event": "plan", "tolerance": 1e-3})
    for number, gap in enumerate((0.1, 0.2, 0.3), 1):
        rising.update({"event": "pass", "pass": number, "gap": gap, "seconds": 1.0})
    assert "about" not in rising.details()


def test_terminal_progress_of_a_search_counts_the_cells_of_this_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that goes on after an interruption, with cell 4 of 6, knows nothing of the time of the cells before."""
    progress, now = Progress(), 1e6
    monkeypatch.setattr("streamsvm.display.terminal.time.monotonic", lambda: now)
    progress.update({"event": "cell", "number": 4, "of": 6})
    assert progress.title == "tune, cell 4 of 6"
    assert "left" not in progress.details()
    now += 30.0
    progress.update({"event": "cell", "number": 5, "of": 6})
    assert progress.details() == "about 1 min 00 s left"
