"""What a fit of arrays is asked for beyond its tolerance: where that costs little, and for how long."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamsvm.jobs import fit_in_memory
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.planning.plan import make_plan
from streamsvm.jobs.fit_in_memory import EXACT, NEARLY_EXACT, PASSES_MORE, _exact, _until_rounding_ends
from streamsvm.losses import Hinge, Logistic, SquaredHinge
from streamsvm.rows import Dense
from streamsvm.solvers.dcd.solver import DCD
from streamsvm.solvers.kernel.decomposition import Decomposition
from streamsvm.solvers.newton.solver import Newton
from streamsvm.store.views.memory import MemoryStore
from streamsvm.types import Layout, Problem


@dataclass(frozen=True)
class Planned:
    """The part of a plan that is looked at."""

    solver: Any
    problems: list[Problem]
    layout: Layout | None = None
    tolerance: float = 1e-3
    request: Any = None


def planned(solver: Any, loss: Any, count: int = 1, *, rows: int = 20, tolerance: float = 1e-3, **changed: Any) -> Any:
    problem = Problem(loss, 1.0, rows, 4, 1, tolerance=tolerance, **changed)
    layout = Layout(4, (6, rows - 6), None, ("a", "b"), (10, rows - 10))
    return Planned(solver, [problem] * count, layout, tolerance)


def asked(plan: Any) -> set[float]:
    return {problem.tolerance for problem in _exact(plan).problems}


@pytest.mark.parametrize(
    ("plan", "work", "wanted"),
    [
        (planned(Newton(), SquaredHinge()), 20 * 5 * 5, EXACT),
        (planned(Newton(), Logistic(), 3), 3 * 20 * 5 * 5, EXACT),
        (planned(Newton(), SquaredHinge(), rows=13), 13 * 5 * 5, EXACT),
        (planned(Decomposition(), Hinge()), 20 * 20 * 5, NEARLY_EXACT),
        (planned(Decomposition(), SquaredHinge(), 2), 2 * 20 * 20 * 5, NEARLY_EXACT),
        (planned(Newton(), Hinge(), nu=0.5), 20 * 20 * 5, NEARLY_EXACT),
        (planned(Newton(), Hinge()), 0, 1e-3),
        (planned(DCD(), SquaredHinge()), 0, 1e-3),
    ],
)
def test_what_costs_little_is_solved_as_far_as_float64_goes(
    plan: Any, work: int, wanted: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``work``: the multiplications the bound is of; with one more it is the tolerance that was asked for."""
    for most, found in [(work, wanted), (work - 1, 1e-3)]:
        for bound in ("EXACT_WORK", "NEARLY_EXACT_WORK"):
            monkeypatch.setattr(fit_in_memory, bound, most)
        assert asked(plan) == {found}


def test_what_is_asked_for_is_never_softened() -> None:
    assert asked(planned(Newton(), SquaredHinge(), tolerance=1e-15)) == {1e-15}
    assert asked(planned(Decomposition(), Hinge(), tolerance=1e-13)) == {1e-13}


def passes_until_the_end(gaps: list[list[float]], tolerance: float, monkeypatch: pytest.MonkeyPatch) -> int | None:
    """After which pass a fit is ended whose problems have these gaps after each; None where it is not."""
    ended: list[int] = []
    told: list[Any] = []
    plan: Any = Planned(None, [Problem(SquaredHinge(), 1.0, 20, 4, 1, tolerance=tolerance)])
    report = _until_rounding_ends(plan, told.append)
    for number, of_problems in enumerate(gaps, 1):
        monkeypatch.setattr(fit_in_memory, "end_fit", lambda number=number: ended.append(number))
        for gap in of_problems:
            report({"event": "pass", "pass": number, "gap": gap})
        report({"event": "progress"})
    assert len(told) == sum(map(len, gaps)) + len(gaps)
    return ended[0] if ended else None


@pytest.mark.parametrize(
    ("gaps", "tolerance", "end"),
    [
        ([[1e-3]] * 60, 1e-14, 1 + PASSES_MORE),  # the gap that was asked for, to the last bit
        ([[0.5]] * 4 + [[9e-4]] * 60, 1e-14, 5 + PASSES_MORE),
        ([[9e-4]] + [[0.5]] * 60, 1e-14, 1 + PASSES_MORE),
        ([[9e-4, 0.5]] * 3 + [[0.5, 9e-4]] * 3 + [[9e-4, 8e-4]] * 60, 1e-14, 7 + PASSES_MORE),  # of all problems
        ([[1.01e-3]] * 60, 1e-14, None),
        ([[1e-4]] * 60, 0.9e-3, None),  # problems that are asked for a little less for rounding end by themselves
        ([[1e-4]] * 60, 0.5e-3, None),
        ([[1e-4]] * 60, 0.4e-3, 1 + PASSES_MORE),
    ],
)
def test_a_fit_goes_on_for_some_passes_after_the_gap_that_was_asked_for(
    gaps: list[list[float]], tolerance: float, end: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert passes_until_the_end(gaps, tolerance, monkeypatch) == end


def test_numbers_of_rows_that_do_not_fit_are_in_a_folder_that_is_gone_afterwards(
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
        monkeypatch.setattr(fit_in_memory, "make_plan", partial(_with_rows_kept, resident))
        seen: set[str] = set()
        report = partial(_note, scratch, seen)
        weights.append(fit_in_memory.fit_in_memory(job, store, report).model.weights)
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
