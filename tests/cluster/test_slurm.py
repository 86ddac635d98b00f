"""The job script under a batch system that is not there: srun, scontrol, dask and streamsvm are scripts that take notes."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.cluster.processes import REPOSITORY

SCRIPT = REPOSITORY / "tools" / "slurm" / "fit.sh"
DASK = """#!/usr/bin/env bash
echo "dask $*" >> "$NOTES"
while [ $# -gt 0 ]; do [ "$1" = --scheduler-file ] && file=$2; kind=${kind:-$1}; shift; done
[ "$kind" = scheduler ] && echo '{}' > "$file"
exec sleep 300
"""
FIT = """#!/usr/bin/env bash
trap 'sleep 0.2; echo "checkpoint" >> "$NOTES"; exit 75' TERM
echo "streamsvm $*" >> "$NOTES"
until [ "$(grep -c ^dask "$NOTES")" = 2 ]; do sleep 0.02; done  # as a fit waits for workers
[ "$ENDS" = never ] || exit "$ENDS"
while :; do sleep 0.05; done
"""
SRUN = """#!/usr/bin/env bash
exec "$@"
"""
SCONTROL = """#!/usr/bin/env bash
echo "scontrol $*" >> "$NOTES"
"""


@pytest.fixture
def batch(tmp_path: Path) -> Path:
    """A folder of programs that stand for those of the cluster."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in {"dask": DASK, "streamsvm": FIT, "srun": SRUN, "scontrol": SCONTROL}.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return folder


def start(batch: Path, ends: str, **more: str) -> subprocess.Popen[bytes]:
    place = batch.parent
    path = f"{batch}:{os.environ['PATH']}"
    given = {"PATH": path, "NOTES": str(place / "notes"), "ENDS": ends, "SLURM_JOB_ID": "42", **more}
    return subprocess.Popen([SCRIPT, "a.zarr", "m.ssvm"], cwd=place, env=os.environ | given, stderr=subprocess.DEVNULL)


def notes(batch: Path) -> list[str]:
    path = batch.parent / "notes"
    return path.read_text().splitlines() if path.exists() else []


@pytest.mark.parametrize(
    ("ends", "restarts", "again"),
    [("0", "0", False), ("75", "3", True), ("69", "0", True), ("69", "5", False), ("65", "0", False)],
)
def test_slurm_requeues_a_job_that_can_go_on(batch: Path, ends: str, restarts: str, again: bool) -> None:
    job = start(batch, ends, SLURM_RESTART_COUNT=restarts)
    assert job.wait(120) == int(ends)
    assert ("scontrol requeue 42" in notes(batch)) == again
    asked = next(line for line in notes(batch) if line.startswith("streamsvm"))
    assert asked.startswith("streamsvm fit a.zarr m.ssvm --cluster scheduler-file:")
    assert asked.endswith("--resume")


@pytest.mark.parametrize("name", ["USR1", "TERM"])
def test_slurm_preempted_job_saves_and_is_put_back(batch: Path, name: str) -> None:
    job = start(batch, "never")
    deadline = time.monotonic() + 120
    while not any(line.startswith("streamsvm") for line in notes(batch)):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    time.sleep(0.2)
    job.send_signal(getattr(signal, f"SIG{name}"))
    assert job.wait(120) == 75
    assert notes(batch)[-2:] == ["checkpoint", "scontrol requeue 42"]


def commands(batch: Path) -> list[str]:
    return [line for line in notes(batch) if line.startswith("dask")]


@pytest.mark.parametrize("nodes", ["1", "8"])
def test_slurm_with_certificates_opens_nothing(batch: Path, nodes: str) -> None:
    start(batch, "0", STREAMSVM_TLS="/certificates", SLURM_JOB_NUM_NODES=nodes).wait(120)
    assert len(commands(batch)) == 2
    assert all("--tls-ca-file /certificates/ca.pem" in line for line in commands(batch))
    assert not any("--insecure-network" in line for line in notes(batch))


def test_slurm_on_one_node_stays_on_it(batch: Path) -> None:
    start(batch, "0", SLURM_JOB_NUM_NODES="1").wait(120)
    assert len(commands(batch)) == 2
    assert all("--host 127.0.0.1" in line for line in commands(batch))
    assert not any("--insecure-network" in line for line in notes(batch))


def test_slurm_open_network_has_to_be_asked_for(batch: Path) -> None:
    assert start(batch, "0", SLURM_JOB_NUM_NODES="8").wait(120) == 77
    assert notes(batch) == []
    assert start(batch, "0", SLURM_JOB_NUM_NODES="8", STREAMSVM_INSECURE_NETWORK="1").wait(120) == 0
    assert any("--insecure-network" in line for line in notes(batch))
