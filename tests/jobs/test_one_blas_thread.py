"""A second thread of BLAS fights those of the job for their cores: whatever a program has set, a job works with one, and leaves what was."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from streamsvm.jobs.embed.build import embed
from streamsvm.jobs.fit.driver import fit, fit_in_memory
from streamsvm.jobs.fit.job import FitJob
from streamsvm.jobs.options import EmbedJob
from streamsvm.jobs.tune.job import TuneJob
from streamsvm.jobs.tune.run import tune, tune_in_memory
from streamsvm.rows import Dense
from streamsvm.store import create, open_store

JOBS: dict[str, Callable[[str, str, Any], object]] = {
    "fit": lambda store, out, report: fit(FitJob(store, out), report),
    "fit in memory": lambda store, _, report: fit_in_memory(FitJob("", ""), open_store(store), report),
    "tune": lambda store, out, report: tune(TuneJob(store, out, C=(1.0,), folds=2), report),
    "tune in memory": lambda store, _, report: tune_in_memory(
        TuneJob("", "", C=(1.0,), folds=2), open_store(store), report
    ),
    "embed": lambda store, out, report: embed(EmbedJob(store, out, kernel="rbf", gamma=0.5, landmarks=10), report),
}


def blas_threads() -> set[int]:
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


@pytest.mark.parametrize("name", JOBS)
def test_blas_job_has_one_thread_of_blas_and_gives_back_what_there_was(name: str, tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(200, 3)).astype(np.float32)
    writer = create(tmp_path / "s", sparse=False, chunk_bytes=800)
    writer.append(Dense(X), (X[:, 0] > 0.0).astype(np.int32), None)
    writer.commit(("a", "b"), 3, {"names": None})
    seen: list[set[int]] = []
    with threadpool_limits(2, user_api="blas"):
        JOBS[name](str(tmp_path / "s"), str(tmp_path / "out"), lambda _: seen.append(blas_threads()))
        assert blas_threads() == {2}
    within = "".join("1" if found == {1} else "2" for found in seen).strip(
        "2"
    )  # some is told before it works, or after
    assert within
    assert "2" not in within
