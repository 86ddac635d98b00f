"""Starting from a model: the same function whatever the scaling, honest from any weights, worth passes, refused clearly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamsvm.errors import ConfigError, DataError, MissingError, StreamSVMError, UsageError
from streamsvm.jobs.fit.driver import FitResult, fit
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.plan import make_plan
from streamsvm.jobs.fit.resume import check_same_identity, fit_identity
from streamsvm.rows import Dense
from streamsvm.store import create, open_store
from tests.arrays import csr_of
from tests.axes import each_value

ROWS, COLUMNS = 600, 5
SOLVERS = (
    "dcd",
    "newton",
    "sgd",
    "pegasos",
    "assg",
    "active_set",
    "interior_point",
    "cutting_plane",
    "mpu",
    "sgd_qn",
    "lbfgs",
)


def values() -> tuple[Any, Any]:
    rng = np.random.default_rng(11)
    X = (rng.normal(size=(ROWS, COLUMNS)) * [1.0, 2.0, 0.5, 3.0, 1.0] + [0.0, 1.0, 0.0, -1.0, 0.0]).astype(np.float32)
    score = X @ rng.normal(size=COLUMNS) + 0.8 * rng.normal(size=ROWS)
    return X, np.digitize(score, [-1.0, 1.0]).astype(np.int32)


def store_at(path: Path, *, names: tuple[str, ...] = ("a", "b"), columns: int = COLUMNS, sparse: bool = False) -> Path:
    X, codes = values()
    X = np.ascontiguousarray(X[:, :columns])
    writer = create(path, sparse=sparse, chunk_bytes=4096)
    writer.append(csr_of(X) if sparse else Dense(X), np.minimum(codes, len(names) - 1), None)
    writer.commit(names, columns, {"names": None})
    return path


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return store_at(tmp_path_factory.mktemp("warm") / "two.zarr")


def fitted(store: Path, model: Path, **more: Any) -> FitResult:
    settings: dict[str, Any] = {"solver": "newton", "C": 0.1, "tolerance": 1e-4, "loss": "hinge"} | more
    return fit(FitJob(str(store), str(model), overwrite=True, **settings))


def primal(result: FitResult) -> float:
    certificate = result.training.runs[0].certificate
    assert certificate is not None
    assert certificate.exact
    return certificate.primal


@pytest.mark.parametrize(
    ("before", "now", "sparse"), [(False, False, True), (False, True, False), (True, False, True), (True, True, False)]
)
def test_warm_start_is_the_same_function_in_any_scaling(tmp_path: Path, sparse: bool, before: bool, now: bool) -> None:
    store = store_at(tmp_path / "s", sparse=sparse)
    first = fitted(store, tmp_path / "m", standardize=before, bias=2.0)
    # one pass of dcd evaluates what it was given, and answers with it
    again = fitted(store, tmp_path / "n", standardize=now, warm_start=str(tmp_path / "m"), max_passes=1, solver="dcd")
    X = Dense(values()[0])
    np.testing.assert_allclose(again.model.decision(X), first.model.decision(X), rtol=1e-4, atol=1e-5)
    if before == now:
        bias_costs = 0.5 * (1.0 - 1 / 2.0**2) * first.model.weights[0, -1] ** 2
        assert before or primal(again) == pytest.approx(primal(first) + bias_costs, rel=1e-9)


@each_value(("solver", SOLVERS), ("loss", ["hinge", "squared_hinge"]))
def test_warm_start_never_ends_worse_than_it_began(two: Path, tmp_path: Path, solver: str, loss: str) -> None:
    if solver in ("sgd", "sgd_qn") and loss != "hinge":
        pytest.skip("of the two losses it is for the hinge")
    if solver == "lbfgs" and loss == "hinge":
        pytest.skip("it is for losses without kinks")
    first = fitted(two, tmp_path / "m", loss=loss)
    again = fitted(two, tmp_path / "n", loss=loss, solver=solver, warm_start=str(tmp_path / "m"), max_passes=3)
    assert primal(again) <= primal(first) * (1 + 1e-12)


@pytest.mark.parametrize(("solver", "options"), [("newton", {"sample": 150}), ("dcd", {})])
def test_warm_start_saves_passes(two: Path, tmp_path: Path, solver: str, options: dict[str, Any]) -> None:
    settings = {"solver": solver, "options": options, "C": 0.05}
    cold = fitted(two, tmp_path / "m", **settings)
    warm = fitted(two, tmp_path / "n", **settings, warm_start=str(tmp_path / "m"))
    assert warm.training.passes < cold.training.passes
    assert warm.training.status.value == "converged"


def test_warm_start_refuses_a_model_that_does_not_fit(two: Path, tmp_path: Path) -> None:
    def refused(kind: type[StreamSVMError], text: str, store: Path = two, **more: Any) -> None:
        with pytest.raises(kind, match=text):
            fitted(store, tmp_path / "n", warm_start=str(tmp_path / "m"), **more)

    refused(MissingError, "no model")
    fitted(two, tmp_path / "m")
    refused(DataError, "5 columns, store .* 4", store_at(tmp_path / "narrow", columns=4))
    refused(DataError, r"tells apart .*'b'.*, this fit .*'z'", store_at(tmp_path / "other", names=("a", "z")))
    refused(DataError, "tells apart", store_at(tmp_path / "three", names=("a", "b", "c")))
    refused(UsageError, "kernel", kernel="rbf", landmarks=10)
    refused(UsageError, "has a bias, this fit has none", bias=0.0)
    fitted(two, tmp_path / "m", kernel="rbf", landmarks=10, loss="squared_hinge")
    refused(UsageError, "kernel features")


def test_warm_start_solver_that_would_ignore_the_model_is_refused(two: Path, tmp_path: Path) -> None:
    fitted(two, tmp_path / "m")
    with pytest.raises(UsageError, match="solver 'decomposition' does not start from a model") as refusal:
        fitted(two, tmp_path / "n", solver="decomposition", kernel="rbf", warm_start=str(tmp_path / "m"))
    able = str(refusal.value.hint).rpartition(": ")[2].split(", ")
    assert set(able) == set(SOLVERS)
    assert not (tmp_path / "n").exists()


def test_warm_start_resumed_run_must_have_started_from_the_same_weights(two: Path, tmp_path: Path) -> None:
    def identity() -> dict[str, Any]:
        job = FitJob(str(two), "x", warm_start=str(tmp_path / "m"))
        return fit_identity(job, open_store(two), make_plan(job, open_store(two)))

    fitted(two, tmp_path / "m")
    before = identity()
    check_same_identity(before, identity())
    fitted(two, tmp_path / "m", C=1.0)
    with pytest.raises(ConfigError, match="warm start"):
        check_same_identity(before, identity())
