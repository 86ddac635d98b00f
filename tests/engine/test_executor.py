"""What an executor says of memory: whose limit it is that is too low."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamsvm.engine.executors.executor import SerialExecutor
from streamsvm.errors import BudgetError
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.run import fit
from tools.fuzz.artifacts import small_store


class SmallWorkers(SerialExecutor):
    """Workers of which each has this little for a task."""

    def limit(self, stated: int | None) -> int | None:
        """Return the least of both."""
        return min(64 << 20, stated or 1 << 40)


def test_the_limit_of_workers_that_is_too_low_is_named(tmp_path: Path) -> None:
    """More --memory, which the hint advised, would have changed nothing."""
    store = small_store(tmp_path / "s.zarr", sparse=False)
    job = FitJob(store, str(tmp_path / "m"), solver="newton", memory=8 << 30)
    with pytest.raises(BudgetError, match="a task may take 64MiB, a share of its worker's memory limit") as refused:
        fit(job, executor=SmallWorkers())
    assert refused.value.hint.startswith("start workers with a higher --memory-limit or fewer --nthreads")


def test_a_limit_of_the_job_is_not_that_of_workers(tmp_path: Path) -> None:
    store = small_store(tmp_path / "s.zarr", sparse=False)
    with pytest.raises(BudgetError) as refused:
        fit(FitJob(store, str(tmp_path / "m"), solver="newton", memory=32 << 20), executor=SmallWorkers())
    assert "worker" not in str(refused.value)
