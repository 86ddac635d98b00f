"""Disks that fail while a source is read, whoever reads it - Python, pyarrow, HDF5, Zarr: exit code 74 and the name.

The reads of a real process fail, by a library that is loaded before the C library (``failing_reads.c``).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import zarr

from tests.fault import test_alignment as alignment
from tests.fault.test_alignment import values

HERE = Path(__file__).resolve().parent


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not sys.platform.startswith("linux") or shutil.which("cc") is None:
        pytest.skip("needs Linux and a C compiler")
    made = tmp_path_factory.mktemp("library") / "failing_reads.so"
    command = ["cc", "-shared", "-fPIC", "-o", str(made), str(HERE / "failing_reads.c"), "-ldl"]
    subprocess.run(command, check=True, capture_output=True)
    return made


def hdf5(directory: Path) -> tuple[list[Path], dict[str, Any]]:
    X, y = values()
    with h5py.File(directory / "t.h5", "w") as file:
        file.create_dataset("X", data=X, chunks=(100, X.shape[1]))
        file["y"] = y
    return [directory / "t.h5"], {}


def zarr_group(directory: Path) -> tuple[list[Path], dict[str, Any]]:
    X, y = values()
    group = zarr.open_group(directory / "t.zarr", mode="w")
    group.create_array("X", data=X, chunks=(100, X.shape[1]))
    group.create_array("y", data=np.asarray(y))
    return [directory / "t.zarr"], {}


TRIALS = [(alignment.csv, 2), (alignment.csv_gz, 2), (alignment.parquet, 1), (alignment.parquet, 4)]
TRIALS += [(alignment.svmlight, 2), (alignment.npy, 2), (alignment.npy, 6), (hdf5, 3), (hdf5, 6), (hdf5, 12)]
TRIALS += [(zarr_group, 1), (zarr_group, 12)]


@pytest.mark.parametrize(("source", "at"), TRIALS, ids=lambda value: getattr(value, "__name__", value))
def test_failing_disk_source_that_cannot_be_read(library: Path, tmp_path: Path, source: Any, at: int) -> None:
    paths, options = source(tmp_path)
    command = [sys.executable, "-m", "streamsvm", "-q", "ingest", *map(str, paths), str(tmp_path / "s.zarr")]
    command += [str(word) for name, value in options.items() for word in (f"--{name}", value)]
    failing = {"LD_PRELOAD": str(library), "FAIL_PATH": paths[0].name, "FAIL_AT": str(at)}
    environment = {**os.environ, "PYTHONPATH": str(HERE.parents[1]), **failing}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 74, ended.stderr
    assert "error[E-IO]" in ended.stderr
    assert paths[0].name in ended.stderr
    assert "nput/output error" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert "\n," not in ended.stderr
    assert not (tmp_path / "s.zarr" / "manifest.json").exists()
