"""Hints that work: what an error tells people to do is done here, and the command then ends well."""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from click.testing import CliRunner

import streamsvm as sv
from streamsvm.cli import main as cli
from streamsvm.cli.commands import build_job, get_command
from streamsvm.config.command_table import format_command
from streamsvm.engine.block_visitor import BlockVisitor
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.ingest.options import IngestJob
from streamsvm.jobs.tune.options import TuneJob
from tests.fault.malformed_tables import MALFORMED, Malformed
from tests.stopping import stopping

JOBS = [
    ("fit", FitJob("a b.zarr", "it's.ssvm")),
    ("fit", FitJob("-s", "m", C=(0.1, 3.0), memory=123456789, time_limit=90.5, standardize=True, bias=0.0)),
    ("fit", FitJob("s", "m", lambda_=1e-7, class_weight={"1": 2.5, "0": 1.0}, options={"sweeps": 3}, solver="dcd")),
    (
        "fit",
        FitJob("s", "m", kernel="rbf", gamma=0.25, landmarks=30, validation=0.2, patience=4, seed=7, tolerance=0.1),
    ),
    ("fit", FitJob("s", "m", class_weight="balanced", loss="huber", loss_options={"mu": 0.5}, dual="$HOME/d.npy")),
    ("tune", TuneJob("s", "out", C=(1.0, 2.0), gamma=("scale", 0.5), landmarks=(10, 20), kernel="rbf", folds=3)),
    ("ingest", IngestJob(sources=(Path("a.csv"), Path("b c.csv")), store=Path("s"), label="y", drop=("p", "q"))),
]


def parsed(line: str) -> Any:
    """The job of a command line."""
    words = shlex.split(line)
    assert words[0] == "streamsvm"
    found: dict[str, Any] = {}
    command = get_command(words[1])
    with command.make_context(words[1], words[2:]) as context:
        found = dict(context.params)
    settings = found.pop("settings", ())
    for more in ("as_json", "config", "dry_run", "grid"):
        found.pop(more, None)
    return build_job(words[1], found, None, settings)


@pytest.mark.parametrize(("name", "job"), JOBS)
def test_hint_command_of_a_job_is_that_job(name: str, job: Any) -> None:
    found = parsed(format_command(name, job))
    assert (found.store_job(found.store) if name in {"fit", "tune"} else found) == job


def called(line: str, monkeypatch: pytest.MonkeyPatch) -> tuple[int, str]:
    """A command in this process: its exit code and what it said."""
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, "utf-8", write_through=True)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "argv", shlex.split(line))
        patch.setattr(sys, "stdout", stream)
        patch.setattr(sys, "stderr", stream)
        with pytest.raises(SystemExit) as ended:
            cli.main()
        code = ended.value.code
    return code if isinstance(code, int) else 0, raw.getvalue().decode()


def text_rows(cells: Callable[[int], str], header: str) -> str:
    return header + "\n" + "".join(cells(k) + "\n" for k in range(60))


PLAIN = text_rows(lambda k: f"{k % 2},{k},{k * k % 7}", "y,a,b")
REFUSED: dict[str, tuple[str, str]] = {
    "no format of labels": (PLAIN, "streamsvm ingest t.csv s.zarr --label z"),
    "exists": (PLAIN, "streamsvm ingest t.csv there.zarr --label y"),
    "model exists": (PLAIN, "streamsvm fit there.zarr there.ssvm"),
    "memory": (PLAIN, "streamsvm fit there.zarr m.ssvm --memory 20MiB"),
    "memory in bytes": (PLAIN, "streamsvm fit there.zarr m.ssvm --memory 512"),
    "missing": (
        text_rows(lambda k: f"{k % 2},{k if k % 5 else ''},{k}", "y,a,b"),
        "streamsvm ingest t.csv s.zarr --label y",
    ),
    "no last line feed": (PLAIN[:-1], "streamsvm ingest t.csv s.zarr --label y"),
    "command": (PLAIN, "streamsvm ingst t.csv s.zarr --label y"),
}


def followed(line: str, said: str) -> list[str]:
    """The commands that do what the hint says: an option added or replaced, another name, a word corrected."""
    if meant := re.search(r"did you mean '(\w+)'", said):
        return [line.replace(line.split()[1], meant[1], 1)]
    hint, found = said.partition("hint: ")[2] or said, []
    for option, value in re.findall(r"(--[a-z-]+)(?: ([\w.]+(?:MiB|GiB)?|[a-z]+))?", hint):
        takes = next(p for p in get_command(line.split()[1]).params if option in p.opts)  # the command has it
        plain = re.sub(rf" {option}( [^-]\S*)?", "", line)
        flag = isinstance(takes, click.Option) and takes.is_flag
        found.append(f"{plain} {option}" + ("" if flag else f" {value or _value(option)}"))
    if named := re.search(r"its columns are (.*)", hint):
        found.append(re.sub(r"--label \S+", "--label " + named[1].split(",")[0].strip("' "), line))
    return found


def _value(option: str) -> str:
    """For options whose hint leaves the value to the reader."""
    return {"--categorical": "a", "--drop": "a", "--hash": "8", "--missing": "mean"}[option]


@pytest.mark.parametrize("case", REFUSED)
def test_hint_works(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text, line = REFUSED[case]
    (tmp_path / "t.csv").write_text(PLAIN)
    assert called("streamsvm -q ingest t.csv there.zarr --label y", monkeypatch)[0] == 0
    assert called("streamsvm -q fit there.zarr there.ssvm", monkeypatch)[0] == 0
    (tmp_path / "t.csv").write_text(text)
    code, said = called(line, monkeypatch)
    assert code in (2, 65, 73, 78), said
    commands = followed(line, said)
    assert commands, said
    for command in commands:
        code, said = called(command + ("" if "--overwrite" in command else " --overwrite"), monkeypatch)
        if "--memory" in command and code == 78:  # what the process holds grows a little between two plans
            code, said = called(followed(line, said)[0] + " --overwrite", monkeypatch)
        assert code == 0, (command, said)


# -- tables that are not in order -----------------------------------------------------------------------------------------

UNSAID = {"--categorical": "b", "--hash": "8", "--drop": "b", "--calendar": "a"}
"""Values of options whose hint leaves them to the reader."""


def options_in(hint: str, command: str) -> list[tuple[str, str]]:
    """The options that a hint names, each with its value; fails for one that the command has not."""
    found = []
    for option, value in re.findall(r"(--[a-z-]+)(?: ('[^']*'\S*|[^\s;']*[^\s,;']))?", hint):
        takes = next(p for p in get_command(command).params if option in (*p.opts, *p.secondary_opts))
        flag = isinstance(takes, click.Option) and takes.is_flag
        found.append((option, "" if flag else value if value not in ("", "or", "FILE") else UNSAID.get(option, "")))
    return found


def with_option(line: str, option: str, value: str) -> str:
    return re.sub(rf" {option} ('[^']*'|\S+)", "", line) + f" {option} {value}".rstrip()


def cured(case: Malformed, line: str, said: str) -> Iterator[str]:
    """The commands that do what a hint says, after the file was changed where it says so."""
    hint = said.partition("hint: ")[2]
    if case.cure in ("hint", "one"):
        yield from (with_option(line, *option) for option in options_in(hint, "ingest"))
    elif case.cure == "all":
        for option in options_in(hint, "ingest"):
            line = with_option(line, *option)
        yield line
    elif case.cure.startswith("s/"):
        _, old, new, _ = case.cure.split("/")
        yield re.sub(old, new, line)
    elif case.cure != "none":
        shell, _, options = case.cure.partition(" && ")
        done = shell.replace("FILE", case.name).replace("NEW", "new")
        subprocess.run(
            done,
            shell=True,
            check=True,
            env=os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        )
        Path("new").replace(case.name)
        if (program := shell.split()[0]) in ("iconv", "tr"):
            assert program in hint.split()
        yield f"{line} {options}"


@pytest.mark.parametrize("name", list(MALFORMED)[::3])
def test_hint_table_that_is_not_in_order_is_cured_by_what_is_said(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = MALFORMED[name]
    monkeypatch.chdir(tmp_path)
    case.write(tmp_path / case.name)
    line = f"streamsvm -q ingest {case.name} s.zarr {case.options}".rstrip()
    code, said = called(line, monkeypatch)
    assert (code in (2, 65, 78), case.code in said, case.says in said) == (True, True, True), said
    assert not Path("s.zarr").exists()
    ends = []
    for command in cured(case, line, said):
        code, again = called(f"{command} --overwrite", monkeypatch)
        if code and case.cure == "hint" and "hint: " in again:  # one thing after the other
            code, again = called(f"{next(cured(case, command, again))} --overwrite", monkeypatch)
        ends.append((command, code, again))
    assert case.cure == "none" or ends, said
    worked = [code == 0 for _, code, _ in ends]
    assert any(worked) if case.cure == "one" else all(worked), ends


def test_hint_run_that_was_stopped_is_resumed_by_what_it_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert called("streamsvm -q synth susy 'a store.zarr' --rows 20000", monkeypatch)[0] == 0
    dcd = "--solver dcd --C 3 --tolerance 1e-9 --standardize --set solver.sweeps=2"
    with stopping(BlockVisitor, "visit", 5):
        code, said = called(f"streamsvm fit 'a store.zarr' \"it's.ssvm\" {dcd} --max-passes 100000", monkeypatch)
    assert code == 75, said
    command = said.split("Resume: ")[1].splitlines()[0]
    assert "..." not in command
    code, said = called(command + " --max-passes 9", monkeypatch)
    assert code == 0, said
    assert (tmp_path / "it's.ssvm").exists()


def test_hint_limit_that_is_named_for_a_wide_table_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first hint, for storing the table, for predicting its rows and for evaluating them."""
    monkeypatch.chdir(tmp_path)
    columns = {f"x{j}": np.arange(8.0) + j for j in range(10_000)} | {"y": np.arange(8) % 2}
    pyarrow.csv.write_csv(pa.table(columns), "wide.csv")
    for line in ("ingest wide.csv w.zarr --label y", "predict m.ssvm wide.csv p.csv", "evaluate m.ssvm wide.csv"):
        refused = CliRunner().invoke(cli.cli, ["-q", *line.split(), "--memory", "60MiB"])
        named = re.search(r"use --memory (\d+MiB)", refused.output)
        assert named is not None, refused.output
        done = CliRunner().invoke(cli.cli, ["-q", *line.split(), "--memory", named[1]])
        assert done.exit_code == 0, done.output
        if line.startswith("ingest"):
            sv.fit("w.zarr", "m.ssvm", loss="logistic", tolerance=0.5, max_passes=2)
