"""The command line from outside: what it prints, where, and with which exit code it ends."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from streamsvm.cli.main import cli
from streamsvm.errors import StorageError
from streamsvm.jobs.common_options import SynthJob
from streamsvm.jobs.synth import synth

REPOSITORY = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with s.zarr, s.test.zarr and m.ssvm."""
    root = tmp_path_factory.mktemp("cli")
    ok("synth", "two-moons", root / "s.zarr", "--rows", "2e4", "--chunk", "32KiB", "--test-fraction", "0.2")
    ok("fit", root / "s.zarr", root / "m.ssvm", "--tolerance", "0.01")
    return root


def call(*arguments: object) -> Result:
    return CliRunner().invoke(cli, [str(a) for a in arguments])


def ok(*arguments: object) -> Result:
    result = call(*arguments)
    assert result.exit_code == 0, result.output
    return result


def process(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """The program in a process of its own."""
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, "-m", "streamsvm", *map(str, arguments)]
    defaults: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.run(command, text=True, env=environment, check=False, **(defaults | options))


def damaged(place: Path, tmp_path: Path) -> Path:
    """A copy of the store with one byte of two chunks changed."""
    store = tmp_path / "damaged.zarr"
    shutil.copytree(place / "s.zarr", store)
    for chunk in sorted(p for p in (store / "X").rglob("*") if p.is_file() and p.name != "zarr.json")[:2]:
        raw = bytearray(chunk.read_bytes())
        raw[100] ^= 1
        chunk.write_bytes(raw)
    return store


# -- what is printed -------------------------------------------------------------------------------------------------


def test_cli_fit_ends_with_its_certificate(place: Path, tmp_path: Path) -> None:
    line = ok("fit", place / "s.zarr", tmp_path / "m.ssvm", "--memory", "8GiB", "--C", "0.5").stdout.splitlines()[-1]
    assert line.startswith("gap ")
    for part in ("primal", "dual", "passes", " of 8192 MiB", "% compute", str(tmp_path / "m.ssvm")):
        assert part in line


def test_cli_json_of_a_fit_is_one_event_a_line(place: Path, tmp_path: Path) -> None:
    result = ok("fit", place / "s.zarr", tmp_path / "m.ssvm", "--json", "--tolerance", "0.01")
    events = [json.loads(line) for line in result.stdout.splitlines()]
    assert events[0]["event"] == "plan"
    assert events[-1]["event"] == "done"
    assert events[-1]["gap"] <= 0.01
    assert {"progress", "pass"} >= {e["event"] for e in events[1:-1]}


@pytest.mark.parametrize(
    "arguments",
    [
        ("info", "s.zarr"),
        ("info", "s.zarr", "--columns"),
        ("info", "m.ssvm"),
        ("verify", "s.zarr"),
        ("verify", "m.ssvm"),
        ("plan", "s.zarr"),
        ("evaluate", "m.ssvm", "s.test.zarr"),
        ("doctor",),
    ],
)
def test_cli_json_is_one_object_and_text_says_the_same(
    place: Path, arguments: tuple[str, ...], monkeypatch: Any
) -> None:
    monkeypatch.chdir(place)
    assert isinstance(json.loads(ok(*arguments, "--json").stdout), dict)
    assert ok(*arguments).stdout.strip()


def test_cli_info_counts_rows_and_classes(place: Path) -> None:
    facts = json.loads(ok("info", place / "s.zarr", "--json", "--columns").stdout)
    assert (facts["rows"], facts["columns"], facts["layout"]) == (16000, 2, "dense")
    assert sum(facts["classes"].values()) == 16000
    assert 0 < facts["label_drift"] < 0.1
    assert [set(c) for c in facts["statistics"]] == [{"name", "mean", "std", "min", "max"}] * 2
    model = json.loads(ok("info", place / "m.ssvm", "--json").stdout)
    assert model["certificates"][0]["gap"] <= 0.01
    assert model["store"]["digest"] == facts["digest"]


def test_cli_evaluate_agrees_with_predict(place: Path, tmp_path: Path) -> None:
    table = json.loads(ok("evaluate", place / "m.ssvm", place / "s.test.zarr", "--json").stdout)
    result = ok("predict", place / "m.ssvm", place / "s.test.zarr", "-")
    said = result.stdout.splitlines()
    assert said[0] == "row,predicted_label"
    assert len(said) - 1 == table["rows"] == 4000
    assert sum(line.endswith(",1") for line in said) == sum(
        row[table["classes"].index("1")] for row in table["confusion"]
    )
    assert table["accuracy"] > 0.8


def test_cli_last_line_names_the_models_that_were_written(place: Path, tmp_path: Path) -> None:
    line = ok("fit", place / "s.zarr", tmp_path / "m.ssvm", "--C", "0.1,1", "--memory", "8GiB").stdout.strip()
    named = [Path(name) for name in line.rpartition(" · ")[2].split(", ")]
    assert named == [tmp_path / "m.C=0.1.ssvm", tmp_path / "m.C=1.ssvm"]
    assert all(path.is_file() for path in named)


ROOM = ("--set", "fit.memory=8GiB")
"""The process that runs all tests holds more than a fit of its own would."""


def test_cli_plan_and_dry_run_are_the_same_table(place: Path, tmp_path: Path) -> None:
    plan = ok("plan", place / "s.zarr", "--memory", "8GB").stdout
    dry = ok("fit", place / "s.zarr", tmp_path / "m.ssvm", "--memory", "8GB", "--dry-run").stdout
    assert "fits" in plan
    assert [line[13:40] for line in plan.splitlines() if " MiB  " in line] == [
        line[13:40] for line in dry.splitlines() if " MiB  " in line
    ]
    assert not (tmp_path / "m.ssvm").exists()


def test_cli_run_executes_a_file_with_overrides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    quickstart = REPOSITORY / "configs" / "quickstart.toml"
    shown = ok(
        "run", quickstart, *ROOM, "--set", "synth.rows=5e3", "--set", "fit.tolerance=0.1",
        "--set", "fit.solver=dcd", "--set", "solver.sweeps=2",
    ).stdout  # fmt: skip
    assert [line for line in shown.splitlines() if line.startswith("[")] == [
        "[synth]",
        "[fit]",
        "[evaluate]",
        "[report]",
    ]
    facts = json.loads(ok("info", "runs/quickstart/susy.ssvm", "--json").stdout)
    assert facts["settings"]["options"] == {"sweeps": 2}
    assert facts["settings"]["tolerance"] == 0.1
    assert facts["store"]["rows"] == 4000


def test_cli_json_of_a_run_is_one_event_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    quickstart = REPOSITORY / "configs" / "quickstart.toml"
    shown = ok("run", quickstart, *ROOM, "--set", "synth.rows=5e3", "--set", "fit.tolerance=0.1", "--json").stdout
    done = [event for event in map(json.loads, shown.splitlines()) if event["event"] == "done"]
    assert [event.get("step", "fit") for event in done] == ["synth", "fit", "evaluate", "report"]


def test_cli_config_gives_values_that_options_override(place: Path, tmp_path: Path) -> None:
    job = tmp_path / "job.toml"
    job.write_text(f'[fit]\nstore = "{place / "s.zarr"}"\nmodel = "{tmp_path / "m.ssvm"}"\nC = 3.0\ntolerance = 0.1\n')
    ok("fit", "--config", job, "--C", "7", "--set", "loss=hinge")
    settings = json.loads(ok("info", tmp_path / "m.ssvm", "--json").stdout)["settings"]
    assert (settings["C"], settings["tolerance"], settings["loss"]) == (7.0, 0.1, "hinge")


# -- how it ends -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("fitt",), 2, "did you mean 'fit'"),
        (("fit", "s.zarr"), 2, "no file is named for the model"),
        (("fit", "s.zarr", "x", "--memory", "12XB"), 2, "512MiB"),
        (("fit", "s.zarr", "x", "--time-limit", "soon"), 2, "30m"),
        (("fit", "s.zarr", "x", "--C", "ten"), 2, "not a number"),
        (("fit", "s.zarr", "x", "--sover", "dcd"), 2, "--solver"),
        (("fit", "s.zarr", "x", "--solver", "dcb"), 2, "did you mean 'dcd'"),
        (("fit", "s.zarr", "x", "--set", "fit.solver=dcd", "--set", "solver.sweps=3"), 2, "sweeps"),
        (("fit", "s.zarr", "x", "--set", "sweeps"), 2, "NAME=VALUE"),
        (("fit", "none.zarr", "x"), 66, "E-MISSING-INPUT"),
        (("info", "none"), 66, "nothing at none"),
        (("run", "none.toml"), 66, "no job file"),
        (("predict", "m.ssvm", "none.csv", "x.csv"), 66, "none.csv does not exist"),
        (("fit", "s.zarr", "m.ssvm"), 73, "exists already"),
        (("synth", "susy", "s.zarr"), 73, "exists already"),
        (("fit", "s.zarr", "x", "--memory", "1MiB"), 78, "E-BUDGET"),
        (("plan", "s.zarr", "--memory", "1MiB"), 78, "DOES NOT FIT"),
        (("plan", "s.zarr", "--memory", "1MiB", "--json"), 78, '"fits": false'),
        (("info", "s.zarr/manifest.json"), 65, "E-MODEL"),
        (("evaluate", "s.zarr", "s.zarr"), 66, "no model"),
    ],
)
def test_cli_exit_codes_are_documented_ones(
    place: Path, monkeypatch: Any, arguments: tuple[str, ...], code: int, said: str
) -> None:
    monkeypatch.chdir(place)
    result = call(*arguments)
    assert result.exit_code == code, result.output
    assert said in result.output
    assert "Traceback" not in result.output


def test_cli_errors_have_code_and_hint_on_standard_error(place: Path, tmp_path: Path) -> None:
    result = call("fit", tmp_path / "none.zarr", tmp_path / "m.ssvm")
    assert result.stdout == ""
    first, second = result.stderr.splitlines()
    assert first.startswith("error[E-MISSING-INPUT]: ")
    assert second.startswith("hint: ")


def test_cli_verify_lists_all_that_is_damaged(place: Path, tmp_path: Path) -> None:
    store = damaged(place, tmp_path)
    result = call("verify", store)
    assert result.exit_code == 65
    assert result.stderr.count("E-CRC: chunk") == 2
    listed = call("verify", store, "--json")
    assert listed.exit_code == 65
    assert len(json.loads(listed.stdout)["bad"]) == 2
    assert call("fit", store, tmp_path / "m.ssvm").exit_code == 65


def test_cli_bug_says_so_and_shows_its_trace_on_request(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr("streamsvm.jobs.inspect.info", broken)
    result = call("info", place / "s.zarr")
    assert result.exit_code == 1
    assert "please report" in result.stderr
    assert "Traceback" not in result.stderr
    assert "Traceback" in call("--debug", "info", place / "s.zarr").stderr


def test_cli_flags_of_all_commands_may_follow_the_command(place: Path, tmp_path: Path) -> None:
    before, after = (tmp_path / name for name in ("before.ssvm", "after.ssvm"))
    quiet = ok("-q", "fit", place / "s.zarr", before, "--memory", "8GiB").stderr
    assert ok("fit", place / "s.zarr", after, "-q", "--memory", "8GiB").stderr == quiet.replace("before", "after")
    assert call("fit", place / "s.zarr", tmp_path / "m.ssvm", "--delimiter", "--", "-q").exit_code == 2


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (KeyboardInterrupt(), 130),
        (BrokenPipeError(), 141),
        (PermissionError(13, "no", "f"), 77),
        (OSError(5, "bad disk", "f"), 74),
        (StorageError("full"), 74),
    ],
)
def test_cli_gives_foreign_errors_a_code(error: BaseException, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("streamsvm.jobs.inspect.info", broken)
    assert call("info", "x").exit_code == code


def test_cli_reader_that_leaves_is_no_error(place: Path) -> None:
    command = (
        f"{sys.executable} -m streamsvm predict m.ssvm s.zarr - --output decision | head -1; echo ${{PIPESTATUS[0]}}"
    )
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(
        ["bash", "-c", command], cwd=place, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["row,decision_1", "141"]
    assert done.stderr == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_cli_full_disk_behind_standard_output_is_an_error(place: Path) -> None:
    with open("/dev/full", "w") as full:
        done = process("info", place / "s.zarr", stdout=full)
    assert done.returncode == 74
    assert done.stderr.startswith("error[E-NOSPACE]")
    assert "Exception ignored" not in done.stderr


def test_cli_closed_standard_output_is_an_error(place: Path) -> None:
    command = f"{sys.executable} -m streamsvm info s.zarr >&-"
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(
        ["bash", "-c", command], cwd=place, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 74
    assert "standard output is closed" in done.stderr


def test_cli_interrupt_ends_with_75_and_leaves_nothing(place: Path, tmp_path: Path) -> None:
    import signal
    import time

    command = [sys.executable, "-m", "streamsvm", "synth", "susy", str(tmp_path / "big.zarr"), "--rows", "1e8"]
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    with ExitStack() as stack:
        started = stack.enter_context(subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True))
        stack.callback(started.kill)
        deadline = time.monotonic() + 120
        while not list(tmp_path.rglob("c.0.0")) and time.monotonic() < deadline:
            time.sleep(0.05)
        started.send_signal(signal.SIGINT)
        _, said = started.communicate(timeout=60)
    assert started.returncode == 75
    assert "error[E-INTERRUPTED]: SIGINT" in said
    assert "Traceback" not in said
    late = "no time" in said  # a disk that is busy for longer than a signal may take: what is left is no store
    assert late or not (tmp_path / "big.zarr").exists()
    assert not (tmp_path / "big.zarr" / "manifest.json").exists()


# -- how fast it starts ----------------------------------------------------------------------------------------------


def test_cli_help_imports_nothing_heavy() -> None:
    """Neither does importing the package, nor the help of any command."""
    heavy = "{'numpy', 'numba', 'scipy', 'zarr', 'h5py', 'pyarrow', 'dask', 'rich', 'msgspec', 'safetensors'}"
    code = (
        "import sys, streamsvm\nfrom streamsvm.cli.main import SUMMARIES, cli\n"
        "for words in ['--help'], *([name, '--help'] for name in SUMMARIES):\n"
        "    cli.main(words, standalone_mode=False)\n"
        f"    found = {heavy} & set(sys.modules)\n    assert not found, (words, found)"
    )
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True)


def test_cli_plain_fit_loads_nothing_of_what_it_was_not_asked_for(tmp_path: Path) -> None:
    unused = (
        "display.page", "engine.cluster_loop", "features.nystrom", "features.landmarks", "jobs.embed.build",
        "solvers.dcd", "solvers.elastic_net", "solvers.interior_point_out_of_core", "store.sources.csv", "store.hdf5", "cluster",
    )  # fmt: skip
    assert [name for name in unused if find_spec(f"streamsvm.{name}") is None] == []
    absent = (*(f"streamsvm.{name}" for name in unused), "scipy.linalg")
    store, model = str(tmp_path / "s.zarr"), str(tmp_path / "m.ssvm")
    synth(SynthJob("susy", store, rows=300))
    code = (
        "import sys\nfrom streamsvm.cli.main import cli\n"
        f"cli.main(['fit', {store!r}, {model!r}], standalone_mode=False)\n"
        f"print(*[name for name in {absent!r} if name in sys.modules])"
    )
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == ""


def test_cli_help_is_fast() -> None:
    """Under 0.3 s of processor time, by the best of three: a busy machine must not fail it."""
    import resource

    def spent() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert process("--help").returncode == 0
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    assert min(spent() for _ in range(3)) < 0.3
