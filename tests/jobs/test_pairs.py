"""One against one: the problems are LIBSVM's, so are the votes, and all pairs share each reading, however a fit is run."""

from __future__ import annotations

from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.svm import SVC, LinearSVC

from streamsvm.errors import DataError, StreamSVMError
from streamsvm.jobs.apply.evaluate import evaluate
from streamsvm.jobs.apply.measures import ModelEvaluation
from streamsvm.jobs.apply.options import EvaluateJob, PredictJob
from streamsvm.jobs.apply.predict import predict
from streamsvm.jobs.fit.driver import FitResult, fit
from streamsvm.jobs.fit.options import FitJob
from streamsvm.model import Model, load, predict_codes
from streamsvm.rows import Dense
from streamsvm.solvers.newton.solver import Newton
from streamsvm.store import create
from streamsvm.store.reader import DiskStore
from tests.arrays import csr_of
from tests.stopping import goes_on_to_the_same_bytes

NAMES = ("c", "a", "d", "b")
"""By class code: a store need not know its classes in their order."""
SORTED = sorted(NAMES)


def drawn(seed: int = 1, rows: int = 240) -> tuple[Any, Any, Any]:
    """Rows, labels and weights."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, 5)).astype(np.float32)
    codes = (X @ rng.normal(size=(5, 4)) + rng.normal(size=(rows, 4))).argmax(axis=1).astype(np.int32)
    return X, codes, rng.choice([0.5, 1.0, 2.0], rows).astype(np.float32)


def store_at(path: Path, seed: int = 1, *, sparse: bool = False, weighted: bool = True) -> Path:
    X, codes, weight = drawn(seed)
    writer = create(path, sparse=sparse, chunk_bytes=1 << 10)
    writer.append(csr_of(X) if sparse else Dense(X), codes, weight if weighted else None)
    writer.commit(NAMES, 5, {})
    return path


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return store_at(tmp_path_factory.mktemp("pairs") / "s")


def fitted(store: Path, model: Path, **more: Any) -> FitResult:
    settings: dict[str, Any] = {"C": 0.5, "tolerance": 1e-8, "multi_class": "ovo"} | more
    return fit(FitJob(str(store), str(model), **settings))


@pytest.mark.parametrize("seed", range(2))
def test_one_vs_one_pairs_of_a_kernel_and_their_votes_are_those_of_libsvm(seed: int, tmp_path: Path) -> None:
    X, codes, weight = drawn(seed)
    y = np.array(NAMES)[codes]
    theirs = SVC(C=0.5, gamma=0.2, tol=1e-9, decision_function_shape="ovo").fit(X, y, weight)
    settings: dict[str, Any] = {"kernel": "rbf", "gamma": 0.2, "loss": "hinge", "solver": "kernel_active_set"}
    ours = fitted(store_at(tmp_path / "s", seed), tmp_path / "m", **settings).model
    assert ours.classes == tuple(theirs.classes_)
    assert max(found.gap for found in ours.certificates) <= 1e-8
    f = ours.decision(Dense(X))
    np.testing.assert_allclose(f, theirs.decision_function(X), atol=1e-5)
    said = np.array(ours.classes)[ours.codes(f)]
    sure = np.abs(f).min(axis=1) > 1e-4
    np.testing.assert_array_equal(said[sure], theirs.predict(X)[sure])


@pytest.mark.parametrize("sparse", [False, True])
def test_one_vs_one_linear_pairs_are_those_of_liblinear(sparse: bool, tmp_path: Path) -> None:
    X, codes, weight = drawn()
    ours = fitted(store_at(tmp_path / "s", sparse=sparse), tmp_path / "m", class_weight={"a": 2.0}).model
    for k, (one, other) in enumerate(combinations(SORTED, 2)):
        mine = np.isin(codes, [NAMES.index(one), NAMES.index(other)])
        y = np.where(codes[mine] == NAMES.index(one), 1, -1)
        factor = np.where(np.array(NAMES)[codes[mine]] == "a", 2.0, 1.0)
        theirs = LinearSVC(C=0.5, tol=1e-12, max_iter=10**6).fit(X[mine], y, weight[mine] * factor)
        np.testing.assert_allclose(ours.weights[k], [*theirs.coef_[0], *theirs.intercept_], atol=1e-5)
        found = ours.provenance["certificates"][k]
        assert (found["positive"], found["negative"]) == (NAMES.index(one), NAMES.index(other))


def test_one_vs_one_most_votes_win_and_of_equals_the_first() -> None:
    f = np.array([[1.0, -1.0, 1.0], [1.0, 2.0, -3.0], [-1.0, -1.0, -1.0], [0.0, 5.0, 1.0]])
    assert predict_codes(f, 3).tolist() == [
        0,
        0,
        2,
        1,
    ]  # of the first row every class has a vote, and 0 speaks for the second of a pair
    model = Model(np.eye(3, 4), ("x", "y", "z"), pairs=True)
    assert model.outcomes == ("x/y", "x/z", "y/z")
    assert model.predict(np.array([[1.0, -1.0, 1.0], [-1.0, -1.0, 1.0]])).tolist() == ["x", "y"]


def test_one_vs_one_pairs_by_the_logistic_loss_vote_and_have_no_probabilities(store: Path, tmp_path: Path) -> None:
    model = fitted(store, tmp_path / "m", loss="logistic", tolerance=1e-2).model
    assert model.pairs
    assert model.calibration is None
    assert set(model.predict(drawn()[0])) <= set(NAMES)


def test_one_vs_one_all_pairs_share_each_reading(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fetch, read = DiskStore.fetch, []
    monkeypatch.setattr(DiskStore, "fetch", lambda this, chunk, into: (read.append(chunk), fetch(this, chunk, into))[1])
    readings = {}
    for several in ("ovr", "ovo"):
        read.clear()
        result = fitted(store, tmp_path / several, multi_class=several, threads=1)
        readings[several] = len(read) / len(set(read))
    assert result.training.passes == 2
    assert len(result.training.runs) == 6
    assert readings["ovo"] == readings["ovr"]


WAYS: dict[str, dict[str, Any]] = {
    "newton": {},
    "newton, a sample": {"options": {"sample": 60}, "solver": "newton", "tolerance": 1e-3},
    "dcd in parts": {"solver": "dcd", "groups": 3, "tolerance": 1e-2},
    "interior point": {"solver": "interior_point", "loss": "hinge", "tolerance": 1e-6},
    "sgd": {"solver": "sgd", "loss": "hinge", "tolerance": 0.2},
    "standardized": {"standardize": True, "C": (0.1, 1.0)},
    "landmarks": {"kernel": "rbf", "landmarks": 30, "tolerance": 1e-4},
    "decomposition": {"kernel": "rbf", "loss": "hinge", "tolerance": 1e-4, "options": {"pool": 64, "working": 16}},
    "blended": {"kernel": "rbf", "solver": "blended", "tolerance": 1e-2},
    "held-out rows": {"validation": 0.2, "C": (0.01, 1.0)},
}


THREADED = ("newton", "decomposition", "held-out rows")


@pytest.mark.parametrize("way", WAYS)
def test_one_vs_one_every_solver_certifies_every_pair_and_threads_change_no_bit(
    way: str, store: Path, tmp_path: Path
) -> None:
    settings = {"tolerance": 1e-6} | WAYS[way]
    one = fitted(store, tmp_path / "m", threads=1, **settings)
    assert one.training.status.value == "converged"
    assert len(one.model.certificates) == 6
    assert all(-1e-9 < found.gap <= settings["tolerance"] for found in one.model.certificates)
    if way in THREADED:
        assert fitted(store, tmp_path / "n", threads=3, **settings).model == one.model


def test_one_vs_one_stopped_run_goes_on_to_the_same_bytes(store: Path, tmp_path: Path) -> None:
    run = partial(fitted, store, solver="newton", options={"sample": 60})
    goes_on_to_the_same_bytes(run, tmp_path, Newton, "finish", 8)


@pytest.mark.parametrize("solver", ["newton", "dcd"])
def test_one_vs_one_dual_variables_of_a_pair_are_of_its_rows(solver: str, store: Path, tmp_path: Path) -> None:
    result = fitted(store, tmp_path / "m", solver=solver, tolerance=1e-3, dual=str(tmp_path / "dual.npy"))
    X, codes, weight = drawn()
    a, Z = np.load(tmp_path / "dual.npy"), np.hstack([X.astype(np.float64), np.ones((len(X), 1))])
    assert a.shape == (6, len(X))
    for k, (one, other) in enumerate(combinations(SORTED, 2)):
        pair = [NAMES.index(one), NAMES.index(other)]
        assert not a[k][~np.isin(codes, pair)].any()
        v, C = (a[k] * np.where(codes == pair[0], 1.0, -1.0)) @ Z, 0.5 * weight.astype(np.float64)
        found = result.training.runs[k].certificate
        assert found is not None
        assert a[k].sum() - np.sum(a[k] ** 2 / (4 * C)) - 0.5 * v @ v == pytest.approx(found.dual, rel=1e-9)


def test_one_vs_one_predictions_and_figures_count_votes(store: Path, tmp_path: Path) -> None:
    fitted(store, tmp_path / "m")
    predict(PredictJob(str(tmp_path / "m"), (str(store),), str(tmp_path / "p.csv"), output=("label", "decision")))
    lines = [line.split(",") for line in (tmp_path / "p.csv").read_text().splitlines()]
    assert [name for name in lines[0] if "decision" in name] == [
        f"decision_{a}/{b}" for a, b in combinations(SORTED, 2)
    ]
    at = lines[0].index("predicted_label")
    found = evaluate(EvaluateJob(str(tmp_path / "m"), (str(store),))).evaluation
    assert isinstance(found, ModelEvaluation)
    truth = np.array(NAMES)[drawn()[1]]
    assert found.accuracy == np.mean([line[at] for line in lines[1:]] == truth)
    assert found.accuracy > 0.6


def test_one_vs_one_model_of_pairs_that_lacks_one_is_none(store: Path, tmp_path: Path) -> None:
    model = fitted(store, tmp_path / "m").model
    assert load(tmp_path / "m") == model
    with pytest.raises(StreamSVMError, match="vote"):
        model.refuse_pairs()
    with pytest.raises(StreamSVMError, match="no probabilities"):
        model.check_probabilities()
    Model(model.weights[:5], model.classes, pairs=True).save(tmp_path / "few")
    Model(model.weights[:4], model.classes, pairs=False).save(tmp_path / "rest")
    with pytest.raises(DataError, match="usable model"):
        load(tmp_path / "few")
    assert not load(tmp_path / "rest").pairs
