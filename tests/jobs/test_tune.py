"""The grid search: its errors are those of separate fits, whatever the memory, and a stop costs a cell at most."""

from __future__ import annotations

import csv
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from sklearn.metrics import average_precision_score

import streamsvm as sv
from streamsvm.engine.executor import SerialExecutor
from streamsvm.errors import BudgetError, DataError, ExistsError, InterruptedRun, UsageError
from streamsvm.jobs import folds as folding
from streamsvm.jobs.fit.driver import fit
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.tune import resume
from streamsvm.jobs.tune import run as module
from streamsvm.jobs.tune.options import TuneJob
from streamsvm.jobs.tune.results import map_lines
from streamsvm.jobs.tune.run import plan_cell, tune, tune_in_memory
from streamsvm.rows import Dense
from streamsvm.store import create, open_store
from streamsvm.store.views import MemoryStore
from streamsvm.types import silent
from tests.arrays import csr_of

ROWS, COLUMNS, FOLDS = 3000, 4, 3


def rings(classes: int):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(ROWS, COLUMNS)).astype(np.float32)
    radius = np.square(X[:, :2]).sum(1) + 0.3 * rng.normal(size=ROWS)
    return X, np.digitize(radius, np.quantile(radius, np.arange(1, classes) / classes)).astype(np.int32)


def write(path: Path, X, codes, *, sparse: bool = False, chunk_bytes: int = 1 << 20) -> str:
    writer = create(path, sparse=sparse, chunk_bytes=chunk_bytes)
    writer.append(csr_of(X) if sparse else Dense(X), codes, None)
    writer.commit(tuple("abc"[: codes.max() + 1]), X.shape[1], {"names": None})
    return str(path)


@pytest.fixture
def store(tmp_path):
    return write(tmp_path / "rings.zarr", *rings(2))


def job(store: str, out: Path, **settings) -> TuneJob:
    defaults = {"kernel": "rbf", "gamma": (0.1, 0.5), "landmarks": (10, 40), "C": (0.01, 1.0), "folds": FOLDS}
    return TuneJob(store, str(out), **{**defaults, **settings})


@pytest.mark.parametrize(
    ("classes", "chunk_bytes", "sparse"), [(2, 1 << 20, False), (3, 1600, False), (2, 1600, True), (3, 1 << 20, True)]
)
def test_tune_errors_are_those_of_fits_without_the_fold(classes, chunk_bytes, sparse, tmp_path):
    X, codes = rings(classes)
    path = write(tmp_path / "s.zarr", X, codes, sparse=sparse, chunk_bytes=chunk_bytes)
    settings: dict[str, Any] = {"solver": "newton", "tolerance": 1e-5}
    found = tune(TuneJob(path, str(tmp_path / "t"), C=(0.03,), folds=FOLDS, **settings)).best
    seen = folding.cut_finer(open_store(path), FOLDS, 1)
    fold = np.repeat(folding.deal_chunks(seen.layout, FOLDS, 0), seen.layout.chunks)
    for k, error in enumerate(found.errors):
        rest = write(tmp_path / f"{k}.zarr", X[fold != k], codes[fold != k], sparse=sparse)
        model = fit(FitJob(rest, str(tmp_path / f"{k}.ssvm"), C=0.03, **settings)).model
        wrong = model.codes(model.decision(Dense(X[fold == k]))) != codes[fold == k]
        assert error == pytest.approx(wrong.mean(), abs=2.5 / np.count_nonzero(fold == k))


@pytest.mark.parametrize(
    ("classes", "sparse", "settings"),
    [(2, False, {}), (3, True, {"loss": "hinge", "standardize": True}), (2, False, {"solver": "blended"})],
    ids=["decomposition", "classes", "simplex"],
)
def test_tune_exact_kernels_are_judged_by_machines_that_did_not_see_the_fold(classes, sparse, settings, tmp_path):
    X, codes = (part[:600] for part in rings(classes))
    path, costs, widths = write(tmp_path / "s.zarr", X, codes, sparse=sparse), (0.1, 10.0), (0.2, 1.0)
    shared = {"kernel": "rbf", "tolerance": 1e-6, **settings}
    found = tune(TuneJob(path, str(tmp_path / "t"), C=costs, gamma=widths, folds=FOLDS, **shared))
    assert [(score.landmarks, score.gamma, score.C) for score in found.scores] == [
        (None, gamma, C) for gamma in widths for C in costs
    ]
    seen = folding.cut_finer(open_store(path), FOLDS, 1)
    fold = np.repeat(folding.deal_chunks(seen.layout, FOLDS, 0), seen.layout.chunks)
    rest, there = write(tmp_path / "0.zarr", X[fold != 0], codes[fold != 0], sparse=sparse), fold == 0
    for score in found.scores:
        one = FitJob(rest, str(tmp_path / "0.ssvm"), C=score.C, gamma=score.gamma or "scale", overwrite=True, **shared)
        model = fit(one).model
        wrong = model.codes(model.decision(csr_of(X[there]) if sparse else Dense(X[there]))) != codes[there]
        assert score.errors[0] == pytest.approx(wrong.mean(), abs=2.5 / np.count_nonzero(there))
        assert score.gap <= shared["tolerance"]


def test_tune_table_has_every_point_and_the_kernel_helps(store, tmp_path):
    found = tune(job(store, tmp_path / "t"))
    points = [(score.landmarks, score.gamma, score.C) for score in found.scores]
    assert points == [(m, g, C) for m in (10, 40) for g in (0.1, 0.5) for C in (0.01, 1.0)]
    linear = tune(job(store, tmp_path / "l", kernel="linear", gamma=("scale",), landmarks=()))
    assert found.best.error < linear.best.error / 2
    assert found.best.error == min(score.error for score in found.scores)
    with (tmp_path / "t" / "table.csv").open() as file:
        assert [float(row["error"]) for row in csv.DictReader(file)] == [score.error for score in found.scores]
    table = json.loads((tmp_path / "t" / "table.json").read_text())
    assert table["best"] == found.best.facts()
    assert (tmp_path / "t" / "heatmap.txt").read_text().splitlines() == list(map_lines(found.scores))


@pytest.mark.parametrize("solver", ["newton", "sgd"])
def test_tune_memory_for_one_problem_at_a_time_changes_nothing(solver, store, tmp_path, monkeypatch):
    loss = "hinge" if solver == "sgd" else "squared_hinge"
    settings = {"landmarks": (20,), "gamma": (0.5,), "solver": solver, "loss": loss, "max_passes": 30}
    together = tune(job(store, tmp_path / "a", **settings))
    original = module.plan_cell
    monkeypatch.setattr(module, "plan_cell", lambda *a: original(*a)._replace(trials_at_once=1))
    assert tune(job(store, tmp_path / "b", **settings)).scores[0].errors == together.scores[0].errors


def test_tune_less_memory_means_more_readings_and_too_little_is_refused(store, tmp_path):
    much = job(store, tmp_path / "t", landmarks=(500,), C=(0.01, 0.1, 1.0), sampling="uniform")
    all_of_them = plan_cell(much, open_store(store), 500, 0.1)
    assert all_of_them.trials_at_once == 3 * FOLDS
    less = all_of_them.memory.total - (4 << 20)  # not a share: the process itself, which is in it, may be large
    assert (
        1
        <= plan_cell(
            job(store, tmp_path / "t", memory=less, sampling="uniform"), open_store(store), 500, 0.1
        ).trials_at_once
        < 3 * FOLDS
    )
    with pytest.raises(BudgetError):
        tune(job(store, tmp_path / "t", memory=16 << 20))


def test_tune_stopped_search_goes_on_after_the_last_cell(store, tmp_path, monkeypatch):
    straight = tune(job(store, tmp_path / "a"))
    original, calls = module.score_folds, []

    def stopping(*arguments):
        calls.append(arguments[2].job.landmarks)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return original(*arguments)

    monkeypatch.setattr(module, "score_folds", stopping)
    with pytest.raises(KeyboardInterrupt):
        tune(job(store, tmp_path / "b"))
    with pytest.raises(ExistsError):
        tune(job(store, tmp_path / "b", folds=4))
    assert tune(job(store, tmp_path / "b")).scores == straight.scores
    assert len(calls) == 5
    a, b = (json.loads((tmp_path / name / "table.json").read_text()) for name in "ab")
    assert a["scores"] == b["scores"]


@pytest.mark.parametrize("executor", [None, SerialExecutor()], ids=["here", "tasks"])
def test_tune_time_limit_ends_a_search_that_no_alarm_reaches(store, tmp_path, executor):
    """In a thread, as in a task of Dask: what runs looks at the time itself, and what is done of the search stays."""
    ended = job(store, tmp_path / "out", time_limit=1e-9)
    with (
        ThreadPoolExecutor(1) as thread,
        pytest.raises(InterruptedRun, match=r"time limit: .* Resume: streamsvm tune "),
    ):
        thread.submit(tune, ended, silent, executor).result()


def test_tune_cells_on_workers_score_the_same(store, tmp_path):
    whole = tune(job(store, tmp_path / "whole"))
    spread = tune(job(store, tmp_path / "spread"), executor=SerialExecutor())
    assert spread.scores == whole.scores
    assert not list((tmp_path / "spread").glob(".cell-*"))


def numbers(path: Path) -> str:
    """A store of numbers that the radius makes, in three chunks."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(600, 3)).astype(np.float32)
    writer = create(path, sparse=False, chunk_bytes=2400)
    writer.append(Dense(X), np.square(X[:, :2].astype(float)).sum(1) + 0.1 * rng.normal(size=600), None)
    writer.commit((), 3, {"names": None})
    return str(path)


def test_tune_numbers_are_searched_by_the_error_of_their_predictions(tmp_path):
    store = numbers(tmp_path / "s")
    settings: dict[str, Any] = {"loss": "squared", "kernel": "rbf", "gamma": (0.3,), "folds": 3}
    page = tmp_path / "page.html"
    found = tune(TuneJob(store, str(tmp_path / "t"), landmarks=(20,), C=(1e-6, 1.0), report=str(page), **settings))
    table = json.loads((tmp_path / "t" / "table.json").read_text())
    assert (table["measure"], table["in_percent"]) == ("RMSE", False)
    assert f"{found.best.error:.4g}" in page.read_text(encoding="utf-8")
    assert found.best.C == 1.0
    assert found.best.error < 1.2  # of the radius, whose standard deviation is 2
    assert {score.C: score.error > 1.5 for score in found.scores} == {1e-6: True, 1.0: False}


def test_tune_key_of_a_search_is_what_decides_its_table(store: str) -> None:
    """Where and how fast it is worked on is no part of it, nor are newer settings that are not given; C of 1 is the default."""
    plain = TuneJob(store, "t")
    key = resume.digest_search(plain, open_store(store))
    for same in (
        {"C": (1.0,)},
        {"out": "u"},
        {"memory": 1 << 30},
        {"threads": 2},
        {"prefetch": 3},
        {"time_limit": 5.0},
    ):
        assert resume.digest_search(replace(plain, **same), open_store(store)) == key
    others = ({"C": (2.0,)}, {"C": (0.5,)}, {"folds": 7}, {"seed": 1}, {"nu": (0.5,)}, {"l1": 1.0})
    keys = [resume.digest_search(replace(plain, **other), open_store(store)) for other in others]
    assert len({key, *keys}) == len(others) + 1
    settings = {name for name, value in msgspec.to_builtins(plain).items() if value is not None}
    assert not settings & set(resume.KEYED_IF_GIVEN)


def test_tune_rows_in_memory_may_be_folds_of_their_own() -> None:
    """As many as there are rows, and no more."""
    codes = np.array([0, 0, 0, 1, 1, 1], np.int32)
    store = MemoryStore()
    store.append(Dense(np.where(codes[:, None], [[2.0, 1.0]], [[-2.0, -1.0]]).astype(np.float32)), codes)
    store.commit(("a", "b"), 2)
    (score,) = tune_in_memory(TuneJob("", "", C=(1.0,), folds=6), store)
    assert len(score.errors) == 6
    assert not any(score.errors)
    with pytest.raises(UsageError, match="6 rows are too few for 7 folds"):
        tune_in_memory(TuneJob("", "", C=(1.0,), folds=7), store)


# -- measures, and other points than those of a grid --------------------------------------------------------------------


def rare(path: Path, rows: int = 1200, *, chunk_bytes: int = 1 << 20) -> tuple[str, Any, Any]:
    """A store of two classes, one of which has a twentieth of the rows."""
    rng = np.random.default_rng(7)
    codes = (np.arange(rows) % 20 == 0).astype(np.int32)
    X = (rng.normal(size=(rows, 4)) + 0.8 * codes[:, None]).astype(np.float32)
    return write(path, X, codes, chunk_bytes=chunk_bytes), X, codes


def test_tune_by_a_measure_of_ranks_is_what_fits_without_the_fold_come_to(tmp_path: Path) -> None:
    path, X, codes = rare(tmp_path / "s.zarr")
    settings: dict[str, Any] = {"solver": "newton", "tolerance": 1e-6, "loss": "logistic"}
    page = tmp_path / "page.html"
    search = TuneJob(path, str(tmp_path / "t"), C=(1e-5, 0.1), folds=3, score="average_precision", **settings)
    found = tune(replace(search, report=str(page)))
    seen = folding.cut_finer(open_store(path), 3, 1)
    fold = np.repeat(folding.deal_chunks(seen.layout, 3, 0), seen.layout.chunks)
    best = found.best
    assert best.score == max(score.score for score in found.scores)
    for k, value in enumerate(best.folds):
        rest = write(tmp_path / f"{k}.zarr", X[fold != k], codes[fold != k])
        model = fit(FitJob(rest, str(tmp_path / f"{k}.ssvm"), C=best.C, **settings)).model
        expected = average_precision_score(codes[fold == k], model.decision(Dense(X[fold == k]))[:, 0])
        assert value == pytest.approx(expected, abs=2e-3)
    table = json.loads((tmp_path / "t" / "table.json").read_text())
    assert (table["measure"], table["higher_is_better"]) == ("average precision", True)
    assert table["best"]["score"] == best.score
    assert f"{best.score:.4g}" in page.read_text(encoding="utf-8")
    log = tune(replace(search, out=str(tmp_path / "l"), score="log_loss"))
    assert log.best.score == min(score.score for score in log.scores)


def test_tune_error_of_the_majority_and_edges_of_the_grid_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, _, _ = rare(tmp_path / "s.zarr")
    by_error = tune(TuneJob(path, str(tmp_path / "e"), C=(1e-6, 1e-5), folds=3))
    assert any("the error says nothing here" in line for line in by_error.notices)
    by_rank = TuneJob(path, str(tmp_path / "r"), C=(1e-6, 1e-5), folds=3, score="auc")
    assert any("--refine goes on there, or try --C " in line for line in tune(by_rank).notices)
    refined = tune(replace(by_rank, out=str(tmp_path / "f"), refine=True))
    tried = sorted(score.loss_weight for score in refined.scores)
    assert len(tried) > 3
    assert refined.best.C not in {tried[0], tried[-1]} or len(tried) > 8
    assert refined.best.score >= max(score.score for score in refined.scores)
    original, calls = module.score_folds, []

    def stopping(*arguments: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return original(*arguments)

    monkeypatch.setattr(module, "score_folds", stopping)
    stopped = replace(by_rank, out=str(tmp_path / "s"), refine=True)
    with pytest.raises(KeyboardInterrupt):
        tune(stopped)
    assert tune(stopped).scores == refined.scores


def test_tune_random_points_are_drawn_by_the_seed(store: str, tmp_path: Path) -> None:
    random = job(store, tmp_path / "a", search="random", points=5, landmarks=(10,), C=(1e-3, 1.0))
    found = tune(random)
    assert len(found.scores) == 5
    assert all(1e-3 <= score.loss_weight <= 1.0 and 0.1 <= (score.gamma or 0.0) <= 0.5 for score in found.scores)
    assert len({(score.gamma, score.C) for score in found.scores}) == 5
    assert tune(replace(random, out=str(tmp_path / "b")), executor=SerialExecutor()).scores == found.scores
    assert tune(replace(random, out=str(tmp_path / "c"), seed=1)).scores != found.scores
    assert "landmarks" in (tmp_path / "a" / "heatmap.txt").read_text()
    with pytest.raises(UsageError, match="--points"):
        job(store, tmp_path / "d", points=5)


def test_tune_halving_keeps_the_best_third_of_the_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamsvm.jobs.tune.search.LEAST_ROWS", 200)
    path, _, _ = rare(tmp_path / "s.zarr", 4000, chunk_bytes=1600)
    costs = tuple(10.0**k for k in range(-8, 1))
    settings: dict[str, Any] = {"folds": 3, "score": "auc", "C": costs}
    found = tune(TuneJob(path, str(tmp_path / "h"), search="halving", **settings))
    shares = [score.share for score in found.scores]
    assert [shares.count(share) for share in sorted(set(shares))] == [9, 3, 1]
    assert found.best.share == 1.0
    whole = tune(TuneJob(path, str(tmp_path / "g"), **settings))
    assert found.best.score == pytest.approx(whole.best.score, abs=0.01)
    at_best = next(score for score in whole.scores if score.C == found.best.C)
    assert at_best == found.best


# -- searches over nu --------------------------------------------------------------------------------------------------

NU_ROWS, NU_FOLDS = 400, 3


def values() -> tuple[Any, Any]:
    """Rows away from the origin, and one in five between them and it; 1 for those."""
    rng = np.random.default_rng(5)
    codes = (rng.random(NU_ROWS) < 0.2).astype(np.int32)
    X = rng.normal(size=(NU_ROWS, 3)) + np.where(codes[:, None] == 1, 1.5, 4.0)
    return X.astype(np.float32), codes


def nu_write(path: Path, X: Any, codes: Any) -> str:
    writer = create(path, sparse=False, chunk_bytes=1 << 20)
    writer.append(Dense(X), codes, None)
    writer.commit(("good", "bad"), X.shape[1], {"names": None})
    return str(path)


@pytest.fixture(scope="module")
def nu_store(tmp_path_factory: pytest.TempPathFactory) -> str:
    return nu_write(tmp_path_factory.mktemp("nu") / "s.zarr", *values())


RBF: dict[str, Any] = {"kernel": "rbf", "tolerance": 1e-5}


FORMS: dict[str, dict[str, Any]] = {
    "linear": {"tolerance": 1e-5},
    "exact kernel": RBF,
    "landmarks, all rows": RBF | {"landmarks": NU_ROWS},
    "linear, with C": {"loss": "hinge", "tolerance": 1e-5},
}
"""How one class is learned."""


def weights_of(form: str) -> tuple[str, tuple[float, ...]]:
    return ("C", (0.003, 0.03)) if "C" in form else ("nu", (0.02, 0.2))


@pytest.mark.parametrize("form", FORMS)
def test_tune_nu_of_one_class_both_kinds_of_rows_held_out_count_the_same(
    nu_store: str, form: str, tmp_path: Path
) -> None:
    X, codes = values()
    shared, (axis, weights) = FORMS[form] | {"one_class": True, "positive": "good"}, weights_of(form)
    grid: dict[str, Any] = {axis: weights}
    if "landmarks" in shared:
        grid["landmarks"] = (shared["landmarks"],)
    if "kernel" in shared:
        grid["gamma"] = (0.1,)
    found = tune(TuneJob(nu_store, str(tmp_path / "t"), folds=NU_FOLDS, **shared | grid))
    seen = folding.cut_finer(open_store(nu_store), NU_FOLDS, 1)
    fold = np.repeat(folding.deal_chunks(seen.layout, NU_FOLDS, 0), seen.layout.chunks)
    rest, there = nu_write(tmp_path / "rest.zarr", X[fold != 0], codes[fold != 0]), fold == 0
    for score, weight in zip(found.scores, weights, strict=True):
        exact = {name: value for name, value in shared.items() if name != "landmarks"}  # of all rows, what it comes to
        at = {axis: weight} | ({"gamma": 0.1} if "kernel" in exact else {})
        model = fit(FitJob(rest, str(tmp_path / "m"), overwrite=True, **exact | at)).model
        inside = model.decision_function(X[there]) > 0.0
        good = codes[there] == 0
        balanced = 0.5 * (np.mean(~inside[good]) + np.mean(inside[~good]))
        assert score.errors[0] == pytest.approx(balanced, abs=1.1 / np.count_nonzero(~good))
        assert score.errors[0] < 0.4
        assert (score.nu, score.C) == ((None, weight) if axis == "C" else (weight, None))
    assert found.measure.name == "balanced_error"


def test_tune_nu_of_two_classes_the_error_is_the_share_of_wrong_answers(nu_store: str, tmp_path: Path) -> None:
    found = tune(TuneJob(nu_store, str(tmp_path / "t"), nu=(0.01, 0.2), folds=NU_FOLDS))
    X, codes = values()
    models = [fit(FitJob(nu_store, str(tmp_path / f"{nu}"), nu=nu)).model for nu in (0.01, 0.2)]
    wrong = [
        float(np.mean((model.decision_function(X) > 0) != (model.classes[1] == "good") ^ (codes == 1)))
        for model in models
    ]
    assert [score.error for score in found.scores] == pytest.approx(wrong, abs=0.03)
    assert found.measure.name == "error"


def test_tune_nu_fold_of_one_kind_of_rows_has_no_error(tmp_path: Path) -> None:
    X, _ = values()
    store = nu_write(tmp_path / "s.zarr", X, (np.arange(NU_ROWS) == 7).astype(np.int32))
    with pytest.raises(DataError, match="its error is undefined"):
        tune(TuneJob(store, str(tmp_path / "t"), one_class=True, positive="good", nu=(0.1,), folds=2))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_tune_and_fit_refuse_kernel_features_beyond_float32(tmp_path: Path) -> None:
    """Polynomial features of a column of 1e14 are beyond float32: neither command ends with errors that are not numbers."""
    sv.ingest(np.full((90, 1), 1e14), tmp_path / "s.zarr", y=np.linspace(-1.0, 1.0, 90), task="regression")
    settings: dict[str, Any] = {"loss": "squared", "kernel": "polynomial", "gamma": 1.0, "sampling": "uniform"}
    settings["solver"] = "interior_point"
    with pytest.raises(DataError, match="features are beyond float32"):
        fit(FitJob(str(tmp_path / "s.zarr"), str(tmp_path / "m"), landmarks=1, **settings))
    with pytest.raises(DataError, match="features are beyond float32"):
        tune(TuneJob(str(tmp_path / "s.zarr"), str(tmp_path / "o"), landmarks=(1,), **settings | {"gamma": (1.0,)}))
