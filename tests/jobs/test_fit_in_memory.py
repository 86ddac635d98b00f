"""What a fit of arrays is asked for beyond its tolerance: where that costs little, and for how long."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamsvm.jobs.fit import driver
from streamsvm.jobs.fit.driver import (
    _finish_exactly,
    fit_in_memory,
)
from streamsvm.jobs.fit.job import FitJob
from streamsvm.jobs.fit.plan import make_plan
from streamsvm.losses import Hinge, SquaredHinge
from streamsvm.rows import Dense
from streamsvm.solvers.kernel.decomposition import Decomposition
from streamsvm.solvers.newton.solver import Newton
from streamsvm.store.views import MemoryStore
from streamsvm.types import Layout, Problem
from tests.solvers.problems import kind_of


@dataclass(frozen=True)
class Planned:
    """The part of a plan that is looked at."""

    solver: Any
    problems: list[Problem]
    layout: Layout | None = None
    tolerance: float = 1e-3
    request: Any = None


def planned(solver: Any, loss: Any, count: int = 1, *, rows: int = 20, tolerance: float = 1e-3, **changed: Any) -> Any:
    problem = Problem(loss, 1.0, rows, 4, kind_of(loss), tolerance=tolerance, **changed)
    layout = Layout(4, (6, rows - 6), None, ("a", "b"), (10, rows - 10))
    return Planned(solver, [problem] * count, layout, tolerance)


def asked(plan: Any) -> set[float]:
    return {problem.tolerance for problem in _finish_exactly(plan).problems}


def test_fit_in_memory_what_is_asked_for_is_never_softened() -> None:
    assert asked(planned(Newton(), SquaredHinge(), tolerance=1e-15)) == {1e-15}
    assert asked(planned(Decomposition(), Hinge(), tolerance=1e-13)) == {1e-13}


def test_fit_in_memory_numbers_of_rows_that_do_not_fit_are_in_a_folder_that_is_gone_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng, (here, scratch) = np.random.default_rng(2), (tmp_path / "here", tmp_path / "scratch")
    X = rng.normal(size=(60, 4)).astype(np.float32)
    store = MemoryStore(chunk_bytes=400)
    store.append(Dense(X), (X[:, 0] + rng.normal(size=60) > 0.0).astype(np.int32))
    store.commit(("a", "b"), 4)
    for folder in (here, scratch):
        folder.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    job, weights, files = FitJob("", "", solver="dcd", max_passes=3), [], []
    for resident in (True, False):
        monkeypatch.setattr(driver, "make_plan", partial(_with_rows_kept, resident))
        seen: set[str] = set()
        report = partial(_note, scratch, seen)
        weights.append(fit_in_memory(job, store, report).model.weights)
        files.append(seen)
    np.testing.assert_array_equal(weights[0], weights[1])
    assert not files[0]
    assert files[1]
    assert not list(here.iterdir())
    assert not list(scratch.iterdir())


def _with_rows_kept(resident: bool, job: FitJob, store: Any) -> Any:
    plan = make_plan(job, store)
    return replace(plan, memory=replace(plan.memory, resident=resident, cached=False))


def _note(folder: Path, seen: set[str], _event: Any) -> None:
    """Keep the names of the files below a folder."""
    seen.update(path.name for path in folder.rglob("*") if path.is_file())
