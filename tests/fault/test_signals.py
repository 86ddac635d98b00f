"""Signals to real processes: a checkpoint and exit code 75, at once on the second signal, an answer of what is finished."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from streamsvm.cli.main import cli
from tests.fault.golden import digest_of, ingested, write_table

REPOSITORY = Path(__file__).resolve().parents[2]
Started = Callable[..., "subprocess.Popen[str]"]


PATIENT = """
from streamsvm.engine import signals
from streamsvm.__main__ import main
signals.GRACE_SECONDS = 30.0
main()
"""
"""The program, which waits for a checkpoint longer than by itself: other programs may have the processor, or the disk."""


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Started]:
    with ExitStack() as stack:

        def start(*arguments: object) -> subprocess.Popen[str]:
            command = [sys.executable, "-c", PATIENT, "-q", *map(str, arguments)]
            environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
            process = subprocess.Popen(
                command, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            return process

        yield start


def run_program(program: str, *words: object, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    """A program of Python with these arguments, to its end."""
    command = [sys.executable, "-c", program, *map(str, words)]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def wait_for(path: Path) -> None:
    while not path.exists():
        time.sleep(0.02)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("store")
    write_table(directory, rows=20_000, columns=10)
    return ingested(directory, chunk_bytes=16384)


FIT = ("--loss", "hinge", "--solver", "dcd", "--tolerance", "1e-15", "--max-passes", "1000000")


@pytest.mark.parametrize("name", ["SIGTERM", "SIGUSR1"])
def test_signal_fit_saves_a_checkpoint(started: Started, store: Path, tmp_path: Path, name: str) -> None:
    fit = started("fit", store, "m", *FIT, "--checkpoint-every", "0.2")
    wait_for(tmp_path / "m.run" / "checkpoint" / "ckpt-A")
    fit.send_signal(getattr(signal, name))
    _, said = fit.communicate()
    assert fit.returncode == 75, said
    assert re.search(rf"{name}: checkpoint saved at epoch \d+, chunk \d+ \(\d\.\d s\)\. Resume: .*--resume", said), said
    if name == "SIGTERM":
        go_on = started("fit", store, "m", *FIT[:-1], "3", "--resume")
        said = go_on.communicate()[1]
        assert re.fullmatch(r"warning: not certified: [^\n]*\n", said), said
        assert go_on.returncode == 0


WRITING = """
import os, signal
from streamsvm import durable
from streamsvm.__main__ import main
plain = durable.write_file
def planted(path, *values, **more):
    plain(path, *values, **more)
    if path.name == "journal.json":
        os.kill(os.getpid(), signal.SIGTERM)
durable.write_file = planted
main()
"""
"""The program, that gets SIGTERM when it has written the journal of features."""


@pytest.mark.parametrize("command", ["fit", "embed"])
def test_signal_stop_while_kernel_features_are_written_says_how_to_go_on(
    store: Path, tmp_path: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no checkpoint yet, but the features that are written are not made again."""
    kernel = ("--kernel", "rbf", "--gamma", "0.1", "--landmarks", "20")
    fitting = ("--embedding", "disk", "--max-passes", "1") if command == "fit" else ("--chunk", "256KiB")
    job = run_program(WRITING, "-q", command, store, "out", *kernel, *fitting, folder=tmp_path)
    assert job.returncode == 75, job.stderr
    assert [path.name for path in tmp_path.rglob("journal.json")] == ["journal.json"]
    found = re.search(r"finished output is kept\. Resume: streamsvm (.*)", job.stderr)
    assert found is not None, job.stderr
    assert ("--resume" in found[1]) == (command == "fit")
    monkeypatch.chdir(tmp_path)
    go_on = CliRunner().invoke(cli, shlex.split(found[1]))
    assert go_on.exit_code == 0, go_on.stderr


ASKED_FOR = """
import os, signal
from streamsvm.__main__ import main
from llvmlite.binding import ExecutionEngine
plain, sent = ExecutionEngine.set_object_cache, []
def planted(engine, written, read):
    def asked(module):
        if not sent:
            sent.append(os.kill(os.getpid(), signal.SIGUSR1))
        return read(module)
    plain(engine, written, asked)
ExecutionEngine.set_object_cache = planted
main()
"""
"""The program, that gets SIGUSR1 when LLVM first asks for machine code that is kept, in a callback of C."""


def test_signal_while_machine_code_is_loaded_ends_the_job(store: Path, tmp_path: Path) -> None:
    """What is raised there is printed and lost, and the job goes on to its end."""
    kernel = ("--kernel", "rbf", "--gamma", "0.1", "--landmarks", "20")
    job = run_program(ASKED_FOR, "-q", "embed", store, "out", *kernel, folder=tmp_path)
    assert job.returncode == 75, job.stderr
    assert job.stderr.startswith("error[E-INTERRUPTED]: SIGUSR1: "), job.stderr
    assert job.stderr.count("\n") == 1, job.stderr


def test_signal_sent_twice_ends_the_job_at_once(started: Started, store: Path, tmp_path: Path) -> None:
    """Here the first one cannot be answered: the process is stopped while both arrive."""
    fit = started("fit", store, "m", *FIT, "--checkpoint-every", "0.2")
    wait_for(tmp_path / "m.run" / "checkpoint" / "ckpt-B")
    fit.send_signal(signal.SIGSTOP)
    fit.send_signal(signal.SIGTERM)
    fit.send_signal(signal.SIGINT)
    fit.send_signal(signal.SIGCONT)
    fit.communicate()
    assert fit.returncode in (75, 128 + signal.SIGINT, 128 + signal.SIGTERM)
    go_on = started("fit", store, "m", *FIT[:-1], "3", "--resume")
    go_on.communicate()
    assert go_on.returncode == 0


KERNEL = ("--solver", "decomposition", "--loss", "hinge", "--kernel", "rbf", "--gamma", "0.01", "--C", "1e6")
"""A problem solved in memory for a few seconds between two passes, and never to the end."""


def test_signal_kernel_solver_is_stopped_where_it_works_in_memory(
    started: Started, store: Path, tmp_path: Path
) -> None:
    """Where there is no time for a checkpoint the one of the moment before stands: when all was read."""
    fit = started("fit", store, "m", *KERNEL, "--checkpoint-every", "0.1")
    wait_for(tmp_path / "m.run" / "checkpoint" / "ckpt-A")
    time.sleep(0.5)
    fit.send_signal(signal.SIGTERM)
    _, said = fit.communicate()
    assert fit.returncode == 75, said
    assert re.search(
        r"SIGTERM: (no time for a checkpoint\. The )?checkpoint saved at epoch \d.* Resume: .*--resume", said
    )


def test_signal_time_limit_ends_what_is_done_in_memory(started: Started, store: Path, tmp_path: Path) -> None:
    fit = started("fit", store, "m", *KERNEL, "--time-limit", "3")
    _, said = fit.communicate()
    if fit.returncode == 75:  # a busy machine has not come to a model two seconds later, or not to its first step
        assert re.search("time limit: (checkpoint saved at epoch|no time for a checkpoint|interrupted before)", said), (
            said
        )
        return
    assert fit.returncode == 0
    assert re.fullmatch(r"warning: not certified: [^\n]*the time limit of 3 s[^\n]*\n", said), said


ENDLESS = """
import time
from streamsvm.jobs.embed.plan import NystromRequest
from streamsvm.__main__ import main
def without_end(*values):
    while True: time.sleep(0.01)
NystromRequest.projection = without_end
main()
"""
"""The program, which makes the map of its features without end."""


@pytest.mark.parametrize("command", ["fit", "embed"])
def test_signal_time_limit_ends_what_makes_features(store: Path, tmp_path: Path, command: str) -> None:
    options = ("--kernel", "rbf", "--landmarks", "20", "--time-limit", "0.3")
    job = run_program(ENDLESS, "-q", command, store, "out", *options, folder=tmp_path)
    assert job.returncode == 75, job.stderr
    assert re.search(rf"time limit: [^\n]*Resume: streamsvm {command} ", job.stderr), job.stderr


SWALLOWED = """
import ctypes, sys, time
from contextlib import nullcontext
from streamsvm.engine import signals, time_limit
from streamsvm.errors import InterruptedRun
raised = []
def hold():
    while not raised: sys.intern("x")
sys.unraisablehook = lambda lost: raised.append(lost.exc_type.__name__)
with signals.install_signal_handlers() if sys.argv[1] == "command" else nullcontext():
    try:
        with time_limit.limit_time(1.0):
            try:
                ctypes.CFUNCTYPE(None)(hold)()
                print(*raised, flush=True)
                time.sleep(600)
            finally:
                time.sleep(0.5)
                print("tidied up")
    except InterruptedRun as error:
        print(error)
"""
"""A job within a callback of C as its time ends, where what is raised goes nowhere; it tidies up longer than an alarm takes."""


@pytest.mark.parametrize("way", ["command", "program"])
def test_signal_time_limit_holds_where_what_it_raises_is_swallowed(way: str) -> None:
    done = run_program(SWALLOWED, way)
    assert done.returncode == 0, done.stderr
    lost, tidied, said = done.stdout.splitlines()
    assert (lost, tidied) == ("InterruptedRun", "tidied up")
    assert "time limit: unfinished output was removed" in said


OVER = """
import signal
from streamsvm.engine import time_limit
from streamsvm.errors import InterruptedRun
try:
    with time_limit.limit_time(0.0):
        signal.pause()
except InterruptedRun:
    print(signal.getitimer(signal.ITIMER_REAL), signal.getsignal(signal.SIGALRM) == signal.SIG_DFL)
"""


def test_signal_time_limit_that_was_over_before_the_job_began_leaves_no_alarm_behind() -> None:
    """It would end the program itself, at any time later."""
    done = run_program(OVER)
    assert (done.returncode, done.stdout) == (0, "(0.0, 0.0) True\n"), done.stderr


STUCK = """
import sys, time
from streamsvm.engine import signals
signals.GRACE_SECONDS = float(sys.argv[1])
with signals.install_signal_handlers(), signals.defer_signals():
    print("ready", flush=True)
    while True: time.sleep(600)
"""


@pytest.mark.parametrize(("sent", "patience"), [(["SIGTERM"], 0.5), (["SIGTERM", "SIGINT"], 200.0)], ids=["one", "two"])
def test_signal_job_that_does_not_look_is_not_waited_for(sent: list[str], patience: float) -> None:
    """One signal is waited for as long as its patience, a second one not at all."""
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, "-c", STUCK, str(patience)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as stuck:
        assert stuck.stdout is not None
        assert stuck.stdout.readline() == "ready\n"
        for name in sent:
            stuck.send_signal(getattr(signal, name))
        _, said = stuck.communicate()
        assert stuck.returncode in ((75,) if len(sent) == 1 else (128 + signal.SIGINT, 128 + signal.SIGTERM))
        assert ("SIGTERM: no time for a checkpoint" in said) == (len(sent) == 1)


STOPPED_INGEST = """
import os, signal
from streamsvm.store.zarr import ZarrBackend
from streamsvm.__main__ import main
plain, written = ZarrBackend.write, []
def planted(backend, values):
    plain(backend, values)
    written.append(values)
    if len(written) == 17:
        os.kill(os.getpid(), signal.SIGTERM)
ZarrBackend.write = planted
main()
"""
"""The program, that gets SIGTERM when 17 chunks are written."""


def test_signal_ingest_goes_on_where_it_was_stopped(started: Started, tmp_path: Path) -> None:
    write_table(tmp_path, rows=40_000, columns=8)
    ingested(tmp_path, store=tmp_path / "whole.zarr", chunk_bytes=16384)
    command = ("ingest", tmp_path / "t.csv", tmp_path / "s.zarr", "--label", "y", "--chunk", "16384")
    ingest = run_program(STOPPED_INGEST, "-q", *command, folder=tmp_path)
    assert ingest.returncode == 75, ingest.stderr
    said = r"SIGTERM: ingest is stopped\nhint: \d+ chunks are safe; run the same command again"
    assert re.search(said, ingest.stderr), ingest.stderr
    fit = CliRunner().invoke(cli, ["fit", str(tmp_path / "s.zarr"), str(tmp_path / "m")])
    assert (fit.exit_code, "E-INCOMPLETE" in fit.stderr) == (65, True)
    again = started(*command)
    assert again.wait() == 0
    assert digest_of(tmp_path / "s.zarr") == digest_of(tmp_path / "whole.zarr")


# -- after the model is written ----------------------------------------------------------------------------------------

PLANTED = """
import importlib, os, signal, sys
from streamsvm import __main__ as program
program.prepare()
module, name = sys.argv.pop(1).split(":")
module = importlib.import_module(module)
plain = getattr(module, name)
def planted(*values, **more):
    found = plain(*values, **more)
    os.kill(os.getpid(), signal.SIGTERM)
    return found
setattr(module, name, planted)
from streamsvm.cli.main import main
main()
"""
"""The program, that gets SIGTERM when a function has returned."""


PLACES = {
    "written": "streamsvm.jobs.fit.driver:write_outputs",
    "told": "streamsvm.jobs.fit.driver:final_event",
    "shown": "streamsvm.cli.commands:describe_result",
}


def run(*words: str) -> Result:
    """Fit in this process, not stopped."""
    ended = CliRunner().invoke(cli, ["fit", *words])
    assert ended.exit_code == 0, ended.stderr
    return ended


@pytest.mark.parametrize(("place", "settings"), [("written", ("--C", "0.1,1")), ("told", ()), ("shown", ())])
def test_signal_run_that_was_stopped_after_its_model_was_written(
    place: str, settings: tuple[str, ...], tmp_path: Path
) -> None:
    write_table(tmp_path)
    store = str(ingested(tmp_path))
    whole = run(store, str(tmp_path / "whole"), *settings)
    names = sorted(path.name.removeprefix("whole") for path in tmp_path.glob("whole*") if path.is_file())
    assert names
    ended = run_program(PLANTED, PLACES[place], "fit", store, tmp_path / "m", *settings)
    assert ended.returncode == 75, ended.stderr
    assert "E-INTERRUPTED" in ended.stderr
    assert ("--resume" in ended.stderr) == (place != "shown")  # then there is no job to resume
    written = {name: (tmp_path / f"m{name}").read_bytes() for name in names}
    again = run(store, str(tmp_path / "m"), *settings, "--resume")
    assert again.stdout.split(" · ")[0] == whole.stdout.split(" · ")[0] != ""
    for name in names:
        assert (tmp_path / f"m{name}").read_bytes() == written[name] == (tmp_path / f"whole{name}").read_bytes()
    assert not (tmp_path / "m.run" / "checkpoint").exists()
