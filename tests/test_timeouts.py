"""Every test has an end: also one that hangs in compiled code, and one that waits for another program."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent


def suite(tmp_path: Path, body: str, seconds: int = 1) -> subprocess.CompletedProcess[str]:
    """One test under the settings of this repository, with seconds where they have minutes."""
    (tmp_path / "test_it.py").write_text(f"import subprocess, sys\n\ndef test_that_hangs():\n    {body}\n")
    shorter = [
        "-o",
        f"timeout={seconds}",
        "-o",
        f"faulthandler_timeout={2 * seconds}",
        "-o",
        "filterwarnings=error",
        "-p",
        "no:cacheprovider",
    ]
    words = [sys.executable, "-m", "pytest", "-c", str(REPOSITORY / "pyproject.toml"), *shorter, str(tmp_path)]
    return subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=250, check=False)


def test_timeout_signal_comes_before_the_end_of_the_process(pytestconfig: pytest.Config) -> None:
    assert 0 < float(pytestconfig.getini("timeout")) < float(pytestconfig.getini("faulthandler_timeout"))


def test_timeout_compiled_code_that_holds_the_interpreter_is_ended(tmp_path: Path) -> None:
    ended = suite(tmp_path, "sum(range(10**15))")
    assert ended.returncode == 1
    assert "test_that_hangs" in ended.stderr


def test_timeout_program_that_is_waited_for_is_ended(tmp_path: Path) -> None:
    program = "import os, time; open('started', 'w').write(str(os.getpid())); time.sleep(600)"
    ended = suite(
        tmp_path, f"subprocess.run([sys.executable, '-c', {program!r}])", seconds=4
    )  # it has to start in that
    assert ended.returncode == 1
    assert "Timeout" in ended.stdout
    assert not Path("/proc", (tmp_path / "started").read_text()).exists()
