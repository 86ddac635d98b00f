"""The bits of a model do not depend on threads, workers, or how far is read ahead: every solver that only sums up in a pass."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streamsvm.engine import partition
from streamsvm.engine.executor import SerialExecutor
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.run import fit
from streamsvm.jobs.synth.options import SynthJob
from streamsvm.jobs.synth.run import synth
from streamsvm.solvers import SOLVERS
from streamsvm.types import KernelSolver, Mergeable
from tests.fault.test_determinism import bits_of

RBF: dict[str, Any] = {"kernel": "rbf", "gamma": 0.1}
SUMS = [name for name in SOLVERS if isinstance(SOLVERS[name](), Mergeable) and not SOLVERS[name]().shuffled]
"""Asked of the registry: a solver that is added is held to the same."""
KINDS: dict[str, dict[str, Any]] = {
    **{name: {"solver": name} | (RBF if isinstance(SOLVERS[name](), KernelSolver) else {}) for name in SUMS},
    "newton, few rows": {"solver": "newton", "options": {"sample": 200}},
    "newton, scaled": {"solver": "newton", "standardize": True, "C": (0.1, 1.0)},
    "on the fly": {"solver": "newton", **RBF, "landmarks": 20, "embedding": "fly"},
    "on disk": {"solver": "newton", **RBF, "landmarks": 20, "embedding": "disk"},
    "dcd, groups": {"solver": "dcd", "groups": 3, "loss": "hinge"},
    "pegasos, groups": {"solver": "pegasos", "groups": 3, "loss": "hinge"},
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("threads") / "s.zarr"
    synth(SynthJob("susy", str(path), rows=700, chunk_bytes=6_000))
    return path


@pytest.mark.parametrize("name", KINDS)
def test_the_bits_are_those_of_one_thread(
    name: str, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition, "PASS_GROUP_BYTES", 1)
    job = FitJob(str(store), str(tmp_path / "m"), max_passes=3, tolerance=0.05, overwrite=True, **KINDS[name])
    fit(replace(job, threads=1))
    reference = bits_of(job)
    for threads, prefetch in ((2, 2), (3, 0), (7, 1), (16, 4)):
        fit(replace(job, threads=threads, prefetch=prefetch))
        assert bits_of(job) == reference, f"{threads} threads, prefetch {prefetch}"
    if name in SUMS:  # as tasks are sent to workers, with what they leave in files
        fit(job, executor=SerialExecutor())
        assert bits_of(job) == reference
