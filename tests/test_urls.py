"""A URL is refused by name wherever it is not read, and nothing is made for it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import streamsvm as sv
from streamsvm.cli import main as cli
from streamsvm.sklearn import StreamRows, StreamSVC

COMMANDS = (
    "ingest a.csv --write-schema URL",
    "fit s.zarr m.ssvm --config URL",
    "run URL",
)
URL_COMMANDS = (
    "synth susy URL",
    "ingest a.csv URL",
    "ingest a.csv s.zarr --test-store URL",
    "ingest a.csv s.zarr --schema URL",
    "fit s.zarr URL",
    "fit s.zarr m.ssvm --warm-start URL",
    "fit s.zarr m.ssvm --report URL",
    "tune s.zarr URL",
    "predict URL a.csv p.csv",
    "predict m.ssvm a.csv URL",
    "export m.ssvm URL",
    "report URL page.html",
    "ingest URL s.zarr",
    "embed URL e.zarr",
    "fit URL m.ssvm",
    "fit s.zarr m.ssvm --validation URL",
    "plan URL",
    "tune URL out",
    "predict m.ssvm URL p.csv",
    "evaluate m.ssvm URL",
    "info URL",
    "verify URL",
)
"""Commands that read or write at URLs of object stores."""
OTHER_URLS = ("hf:rows/x", "simplecache::gs://bucket/x", "tree://x/y", "hdfs://x/y.zarr")
URLS = ("s3://bucket/x.zarr", "s3:/bucket/x.zarr", "hf:rows/x", "simplecache::gs://bucket/x", "tree://x/y")


def refuse(command: str, url: str) -> str:
    """Return what a command says about a URL, which it must refuse."""
    ended = CliRunner().invoke(cli.cli, command.replace("URL", url).split())
    assert ended.exit_code == 2, (command, url, ended.output)
    return ended.output


@pytest.mark.parametrize("command", COMMANDS)
def test_url_is_refused_by_commands(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each argument and each option that names a file, for every way a URL is written; nothing is there afterwards."""
    monkeypatch.chdir(tmp_path)
    for url in URLS:
        assert "is a URL" in refuse(command, url), (command, url)
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize("command", URL_COMMANDS)
def test_url_of_an_unknown_scheme_is_refused(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And so are secrets in a URL, which the message does not repeat, and connections without encryption."""
    monkeypatch.chdir(tmp_path)
    for url in OTHER_URLS:
        assert "is a URL" in refuse(command, url), (command, url)
    for url in (
        "https://me:hidden@host/x.zarr",
        "https://host/x.zarr?X-Amz-Signature=hidden",
        "s3://me:hidden@bucket/x",
        "http://host/x",
    ):
        output = refuse(command, url)
        assert "credentials or a query" in output or "is not encrypted" in output, (command, url)
        assert "hidden" not in output
    assert not os.listdir(tmp_path)


def test_url_job_files_refuse_a_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("job.toml").write_text('[fit]\nstore = "x.zarr"\nmodel = "hdfs://bucket/m.ssvm"\n')
    ended = CliRunner().invoke(cli.cli, ["run", "job.toml"])
    assert "'hdfs://bucket/m.ssvm' is a URL (hdfs)" in ended.output


PROGRAMS: dict[str, Callable[[Any], object]] = {
    "load_model": sv.load_model,
    "ingest of rows": lambda url: sv.ingest(np.eye(4), url, y=[0, 1, 0, 1]),
    "fit of rows": lambda url: sv.fit(np.eye(4), url, y=[0, 1, 0, 1]),
    "evaluate": lambda url: sv.evaluate(url, "a.csv"),
    "estimator": lambda url: StreamSVC().fit(url),
    "rows": StreamRows,
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_url_is_refused_by_functions(program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As text, and as a Path, which has lost one of the slashes; 'file:' says that the path itself is to be written."""
    monkeypatch.chdir(tmp_path)
    for url in ("hdfs://bucket/x.zarr", Path("hdfs://bucket/x.zarr")):
        with pytest.raises((sv.UsageError, ValueError), match=r"is a URL \(hdfs\)"):
            PROGRAMS[program](url)
    with pytest.raises((sv.UsageError, ValueError), match="write the path itself"):
        PROGRAMS[program]("file:///tmp/x.zarr")
    assert not os.listdir(tmp_path)


def test_url_model_is_not_saved_to_a_url_of_another_scheme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkdir("hdfs:")
    model = sv.fit(np.eye(4), y=[0, 1, 0, 1]).model
    with pytest.raises(sv.UsageError, match="is a URL"):
        model.save(Path("hdfs://m.ssvm"))


def test_url_names_with_a_colon_are_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A colon alone makes no URL."""
    monkeypatch.chdir(tmp_path)
    for name in ("run:1.csv", "memory:1.csv"):
        Path(name).write_text("a,y\n" + "1,p\n2,q\n" * 20)
        assert sv.ingest(name, f"of-{name[:-4]}.zarr", label="y").rows == 40
    assert sv.open_store("of-run:1.zarr").layout.rows == 40
