"""L-BFGS of many classes: each has its own certificate, whatever the others do, and auto chooses it where there are many."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamsvm.jobs.fit.driver import fit, fit_in_memory
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.plan import make_plan
from streamsvm.jobs.fit.validate import find_best_C, open_training_store
from streamsvm.losses import LOSSES
from streamsvm.rows import Dense
from streamsvm.solvers import lbfgs
from streamsvm.store.views import MemoryStore


def rows_of(classes: int, rows: int = 400, columns: int = 6) -> tuple[Any, Any]:
    rng = np.random.default_rng(5)
    codes = np.arange(rows, dtype=np.int32) % classes
    X = rng.normal(size=(classes, columns))[codes] + 0.7 * rng.normal(size=(rows, columns))
    return X.astype(np.float32), codes


def store_of(classes: int, **shape: int) -> MemoryStore:
    X, codes = rows_of(classes, **shape)
    store = MemoryStore(chunk_bytes=2000)
    store.append(Dense(X), codes, None)
    return store.commit(tuple(f"c{k:03}" for k in range(classes)), X.shape[1])


def on_disk(path: Path, classes: int, **shape: int) -> str:
    from streamsvm.store import create

    X, codes = rows_of(classes, **shape)
    writer = create(path, sparse=False, chunk_bytes=2000)
    writer.append(Dense(X), codes, None)
    writer.commit(tuple(f"c{k:03}" for k in range(classes)), X.shape[1], {"names": None})
    return str(path)


@pytest.mark.parametrize("work", [0, lbfgs.FLOAT32_WORK])
def test_lbfgs_certificate_of_each_class_is_that_of_its_weights(
    work: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two C in the same passes, in float32 (work of 0) and without: P and D are recomputed here."""
    monkeypatch.setattr(lbfgs, "FLOAT32_WORK", work)
    X, codes = rows_of(7)
    rows, loss = np.column_stack([X.astype(np.float64), np.ones(len(X))]), LOSSES["squared_hinge"]()
    job = FitJob(on_disk(tmp_path / "s", 7), str(tmp_path / "m"), solver="lbfgs", loss="squared_hinge", C=(0.05, 2.0))
    result = fit(job)
    assert result.status == "converged"
    assert len(result.training.runs) == 14
    for run in result.training.runs:
        C, y = run.problem.C, np.where(codes == run.problem.kind.positives[0], 1.0, -1.0)
        w = result.models[C].weights[run.problem.kind.positives[0]]
        m = y * (rows @ w)
        P = 0.5 * w @ w + C * sum(map(loss.value, m))
        slack = np.maximum(0.0, 1.0 - m)
        a = 2.0 * C * slack
        linear, quadratic, square = a.sum(), (a * a).sum() / (4.0 * C), float(((a * y) @ rows) @ ((a * y) @ rows))
        D = 0.5 * linear * linear / (2.0 * quadratic + square)
        assert run.certificate.primal == pytest.approx(P, rel=1e-9)
        assert run.certificate.dual >= D * (1 - 1e-9)
        assert run.certificate.gap <= 1e-3


@pytest.mark.parametrize(
    ("classes", "more", "solver"),
    [
        (30, {}, "lbfgs"),
        (29, {}, "newton"),
        (30, {"loss": "hinge"}, "newton"),
        (30, {"multi_class": "ovo"}, "newton"),
        (30, {"positive": "c003"}, "newton"),
    ],
)
def test_lbfgs_is_what_auto_chooses_for_many_classes(classes: int, more: dict[str, Any], solver: str) -> None:
    job = FitJob("memory", "model", **({"loss": "squared_hinge"} | more))
    assert make_plan(job, store_of(classes)).solver_name == solver


def test_lbfgs_learns_from_steps_that_it_does_not_accept() -> None:
    """A spectrum that falls, far from 0: without the curvature along such steps the slowest class takes 12 passes."""
    rng = np.random.default_rng(1)
    codes = np.arange(1000, dtype=np.int32) % 20
    X = 0.25 * rng.normal(size=(20, 20))[codes] + rng.normal(size=(1000, 20))
    X = X * np.arange(1, 21) ** -0.7 + 0.3 * rng.normal(size=20)
    X *= 10.0 / np.linalg.norm(X, axis=1, keepdims=True)
    noisy = rng.random(1000) < 0.1
    codes[noisy] = rng.integers(20, size=noisy.sum())
    store = MemoryStore(chunk_bytes=1 << 20)
    store.append(Dense(X.astype(np.float32)), codes, None)
    store = store.commit(tuple(f"c{k:03}" for k in range(20)), 20)
    result = fit_in_memory(FitJob("memory", "model", solver="lbfgs", loss="logistic", C=10.0), store)
    assert result.training.status == "converged"
    assert result.training.passes <= 10


def test_lbfgs_memory_grows_with_classes_times_columns() -> None:
    """A thousand classes of a thousand columns in half a gigabyte, for one C; second order would keep 8 MB for each class."""
    plan = make_plan(FitJob("memory", "model", threads=1), store_of(1000, rows=4000, columns=1024))
    assert plan.solver_name == "lbfgs"
    assert plan.memory.total < 1 << 30


C_PATH = (0.001, 0.03, 1.0)


def test_lbfgs_short_of_memory_solves_one_C_after_the_other(tmp_path: Path) -> None:
    """In place of a refusal, with the C that separate fits choose, and in fewer passes than they take together."""
    store = on_disk(tmp_path / "s", 7, columns=40)
    job = FitJob(store, str(tmp_path / "m"), solver="lbfgs", loss="logistic", C=C_PATH, validation=0.2, threads=1)
    opened = open_training_store(job)[0]
    least = make_plan(replace(job, memory=1), opened)
    assert least.solver.memory_settings() == {"history": 4, "problems": 1}
    memory = least.memory.total + 8 * least.solver.cost(least.problems[0], least.layout).fixed
    plan = make_plan(replace(job, memory=memory), opened)
    assert plan.solver.memory_settings() == {"history": 4, "problems": 7}
    assert plan.memory.total <= memory
    assert "memory is short: history 4, problems 7" in plan.why
    found = fit(replace(job, memory=memory))
    assert found.status == "converged"
    assert found.gap <= 1e-3
    alone = {C: fit(replace(job, C=C, model=str(tmp_path / "n"), overwrite=True)) for C in C_PATH}
    assert found.passes < sum(one.passes for one in alone.values())
    scores = {C: one.training.validation_state[repr(C)]["score"] for C, one in alone.items()}
    assert find_best_C(found.plan, found.training) == min(C_PATH, key=lambda C: scores[C])
    for C in C_PATH:
        np.testing.assert_allclose(found.models[C].weights, alone[C].models[C].weights, atol=0.05)


@pytest.mark.parametrize("problems", [1, 5, 7])
def test_lbfgs_ended_early_certifies_all_values_of_C(problems: int, tmp_path: Path) -> None:
    """Those that had not begun at the solutions of others, in a pass for each group."""
    job = FitJob(
        on_disk(tmp_path / "s", 7), str(tmp_path / "m"), solver="lbfgs", loss="logistic", C=C_PATH, tolerance=1e-9
    )
    result = fit(replace(job, options={"problems": problems}, max_passes=8))
    groups = -(-21 // problems)
    assert result.status == "max passes"
    assert result.passes == max(8, groups)
    X, codes = rows_of(7)
    rows = np.column_stack([X.astype(np.float64), np.ones(len(X))])
    for run in result.training.runs:
        positive, C = run.problem.kind.positives[0], run.problem.C
        w = result.models[C].weights[positive]
        m = np.where(codes == positive, 1.0, -1.0) * (rows @ w)
        assert run.certificate.primal == pytest.approx(0.5 * w @ w + C * np.logaddexp(0.0, -m).sum(), rel=1e-9)
        assert 0.0 <= run.certificate.dual < run.certificate.primal


def test_lbfgs_passes_in_float32_find_what_those_in_float64_find(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P and D of each pass of the logistic loss, with another sharpness and weights of rows, 0 among them."""
    from streamsvm.store import create

    X, codes = rows_of(4)
    weight = np.random.default_rng(2).choice([0.0, 0.5, 3.0], len(X)).astype(np.float32)
    writer = create(tmp_path / "s", sparse=False, chunk_bytes=2000)
    writer.append(Dense(X), codes, weight)
    writer.commit(tuple("abcd"), X.shape[1], {"names": None})
    found = []
    for work in (lbfgs.FLOAT32_WORK, 0):
        monkeypatch.setattr(lbfgs, "FLOAT32_WORK", work)
        events: list[Any] = []
        job = FitJob(str(tmp_path / "s"), str(tmp_path / "m"), solver="lbfgs", loss="logistic", C=0.5, overwrite=True)
        fit(replace(job, loss_options={"sharpness": 2.0}), events.append)
        found.append([(e["primal"], e["dual"], e["exact"]) for e in events if e["event"] == "pass" and e["pass"] <= 3])
    precise, coarse = found
    assert len(precise) == len(coarse) == 12
    assert all(exact for *_, exact in precise)
    assert not any(exact for *_, exact in coarse[:4])
    np.testing.assert_allclose([row[0] for row in coarse], [row[0] for row in precise], rtol=1e-5)
    np.testing.assert_allclose([row[1] for row in coarse[:4]], [row[1] for row in precise[:4]], rtol=1e-4, atol=1e-3)
