"""The process the program runs in: signals before anything is loaded, streams that are closed or replaced, odd names."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from streamsvm.cli import main as cli
from tests.fault.golden import ingested, write_table

REPOSITORY = Path(__file__).resolve().parents[2]
PROGRAM = [sys.executable, "-m", "streamsvm"]


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(REPOSITORY)} | more


def run(*arguments: object, shell: str = "", cwd: Path | None = None) -> subprocess.CompletedProcess[bytes]:
    """The program, with its streams as a shell can make them."""
    words = [os.fsencode(str(a)) if not isinstance(a, bytes) else a for a in (*PROGRAM, *arguments)]
    command = [b"sh", b"-c", b'exec "$@" ' + shell.encode(), b"sh", *words] if shell else words
    return subprocess.run(command, env=environment(), capture_output=True, check=False, timeout=120, cwd=cwd)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_process_signal_while_packages_are_loaded(number: signal.Signals, tmp_path: Path) -> None:
    """On a slow file system that takes minutes."""
    (tmp_path / "click.py").write_text("import time\nopen('loading', 'w').close()\ntime.sleep(600)\n")
    command, place = [*PROGRAM, "info", "x"], environment(PYTHONPATH=f"{tmp_path}:{REPOSITORY}")
    with ExitStack() as stack:
        started = stack.enter_context(subprocess.Popen(command, env=place, cwd=tmp_path, stderr=subprocess.PIPE))
        stack.callback(started.kill)
        while not (tmp_path / "loading").exists():
            assert started.poll() is None
            time.sleep(0.01)
        started.send_signal(number)
        said = started.communicate(timeout=120)[1].decode()
    assert started.returncode == (130 if number == signal.SIGINT else 75)
    assert said == f"error[E-INTERRUPTED]: {number.name}: no job was running; finished output is kept\n"


ENDING = """
import os, signal, sys
from streamsvm.__main__ import main
class Last:
    def __del__(self, kill=os.kill, process=os.getpid(), number=getattr(signal, sys.argv.pop(1))):
        kill(process, number)
kept = Last()
main()
"""
"""The program, which gets a signal when Python takes its modules apart."""


@pytest.mark.parametrize("number", ["SIGTERM", "SIGINT"])
def test_process_signal_when_all_is_done_is_no_crash(number: str) -> None:
    command = [sys.executable, "-c", ENDING, number, "--version"]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_process_under_nohup_a_hangup_is_nothing(tmp_path: Path) -> None:
    source = write_table(tmp_path)
    arguments = ["-q", "ingest", source, tmp_path / "s.zarr", "--label", "y"]
    words = [*PROGRAM, *map(str, arguments)]
    program = "import signal, subprocess, sys; signal.signal(signal.SIGHUP, signal.SIG_IGN);"
    program += "p = subprocess.Popen(sys.argv[1:], restore_signals=False);"
    program += "[(__import__('time').sleep(.02), p.send_signal(signal.SIGHUP)) for _ in range(60) if p.poll() is None];"
    program += "sys.exit(p.wait())"
    done = subprocess.run([sys.executable, "-c", program, *words], env=environment(), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "s.zarr" / "manifest.json").exists()


@pytest.mark.parametrize("closed", ["2>&-", "<&- 2>&-"])
def test_process_works_with_closed_streams(closed: str, tmp_path: Path) -> None:
    store = ingested(tmp_path)
    if "2" in closed and "<" in closed:
        assert run("ingest", tmp_path / "t.csv", tmp_path / "u.zarr", "--label", "y", shell=closed).returncode == 0
    done = run("fit", store, tmp_path / "m", "--max-passes", 2, shell=closed)
    assert done.returncode == 0
    assert (tmp_path / "m").exists()
    assert done.stdout


def test_process_standard_output_may_be_anything_that_is_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in notebooks and other programs."""
    source, out = write_table(tmp_path), io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(
        sys, "argv", ["streamsvm", "-q", "ingest", str(source), str(tmp_path / "s.zarr"), "--label", "y"]
    )
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert not ended.value.code
    assert "rows" in out.getvalue()


NAMES = [
    b"caf\xe9",
    b"\xff\xfe",
    b"a\x1b[2Jb",
    b"tab\there",
    b"new\nline",
    "\u6570\u636e".encode(),
    b"-dash",
    b"a b'c\"d",
]


def called(words: list[bytes], monkeypatch: pytest.MonkeyPatch) -> tuple[int, bytes]:
    """The program in this process, with arguments as the system hands them over: its exit code and all it wrote."""
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, "utf-8", write_through=True)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "argv", ["streamsvm", *map(os.fsdecode, words)])
        patch.setattr(sys, "stdout", stream)
        patch.setattr(sys, "stderr", stream)
        with pytest.raises(SystemExit) as ended:
            cli.main()
        code = ended.value.code
    return code if isinstance(code, int) else 0, raw.getvalue()


@pytest.mark.parametrize(("name", "form"), list(zip(NAMES, ["zarr", "h5"] * 4, strict=True)))
def test_process_takes_any_file_name(name: bytes, form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names are bytes: of another encoding, with control characters, with quotes. All of it works, and none reaches a terminal raw."""
    monkeypatch.chdir(tmp_path)
    write_table(tmp_path)
    source, store, model = name + b".csv", name + b"." + form.encode(), name + b".ssvm"
    os.rename(b"t.csv", source)
    few = b"--max-passes"
    steps: list[tuple[int, list[bytes]]] = [
        (0, [b"ingest", b"--label", b"y", b"--test-fraction", b"0.2", b"--", source, store]),
        (0, [b"info", b"--", store]), (0, [b"info", b"--json", b"--", store]), (0, [b"verify", b"--", store]),
        (0, [b"fit", few, b"3", b"--", store, model]), (73, [b"fit", few, b"3", b"--", store, model]),
        (0, [b"info", b"--", model]), (0, [b"info", b"--json", b"--", model]),
        (0, [b"embed", b"--landmarks", b"3", b"--", store, b"e" + store]),
        (0, [b"predict", b"--", model, source, name + b".p.csv"]), (0, [b"evaluate", b"--", model, store]),
        (0, [b"evaluate", b"--json", b"--", model, source]), (0, [b"tune", b"--folds", b"2", b"--", store, b"t" + name]),
        (66, [b"info", b"--", b"none" + name]), (2, [b"info", b"--", store, name]), (2, [b"fit", b"--C", name, store]),
        (2, [b"in" + name]), (66, [b"run", b"--", name]),
    ]  # fmt: skip
    for expected, words in steps:
        code, said = called(words, monkeypatch)
        assert code == expected, (words, said)
        assert b"Traceback" not in said
        for raw in (b"\x1b[2J", b"\there", b"\xe9", b"\xff"):
            assert raw not in said, words
        assert name != b"new\nline" or b"new\nline" not in said, words


def test_process_labels_and_columns_cannot_move_the_cursor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    labels = ("a\x1b[2Jz", "b\u202e")
    rows = "".join(f"{k},{labels[k % 2]}\n" for k in range(40))
    (tmp_path / "t.csv").write_text("x\x1b]0;title\x07,y\n" + rows)
    for expected, line in (
        (0, "ingest t.csv s.zarr --label y"), (0, "info s.zarr --columns"), (0, "fit s.zarr m --max-passes 3"),
        (0, "info m"), (0, "evaluate m s.zarr"), (0, "evaluate --json m s.zarr"), (65, "ingest t.csv u.zarr --label nix"),
        (2, "fit s.zarr n --positive none"), (0, "plan s.zarr"), (0, "predict m t.csv p.csv"),
    ):  # fmt: skip
        code, said = called([os.fsencode(word) for word in line.split()], monkeypatch)
        assert code == expected, (line, said)
        assert b"\x1b" not in said, line
        assert b"\x07" not in said, line
        assert "\u202e".encode() not in said, line


def test_process_address_space_that_is_too_small_is_said(tmp_path: Path) -> None:
    """Libraries that get no addresses try for ever, without a word."""
    command = ["sh", "-c", 'ulimit -v 409600; exec "$@"', "sh", *PROGRAM, "-q", "fit", "s.zarr", "m"]
    done = subprocess.run(command, env=environment(), cwd=tmp_path, capture_output=True, check=False, timeout=60)
    assert done.returncode == 78, done.stderr
    assert b"limited to 400MiB (ulimit -v)" in done.stderr
    assert b"hint: ulimit -v unlimited" in done.stderr
