"""Every form of a problem on real workers: the bits of one process, numbers, one class and columns that are left out among them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client

from streamsvm.cluster import using
from streamsvm.engine.executors.executor import SerialExecutor
from streamsvm.jobs.apply.evaluate import EvaluateResult, evaluate
from streamsvm.jobs.apply.options import EvaluateJob
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.run import fit
from streamsvm.rows import Dense
from streamsvm.store import create
from tests.cluster.processes import Processes

LANDMARKS: dict[str, Any] = {"kernel": "rbf", "gamma": 0.2, "landmarks": 30, "embedding": "fly"}
CLASSES: dict[str, dict[str, Any]] = {
    "one class": {"one_class": True, "nu": 0.1, "tolerance": 1e-2},
    "one class of a margin": {"one_class": True, "C": 0.1, "loss": "squared_hinge"},
    "nu": {"nu": 0.4, "tolerance": 1e-2},
    "elastic net": {"l1": 5.0, "loss": "squared_hinge"},
    "logistic": {"loss": "logistic", "C": 0.1, "options": {"sample": 500}},
}
NUMBERS: dict[str, dict[str, Any]] = {
    "tube": {"loss": "epsilon_insensitive"},
    "tube, dcd": {"loss": "epsilon_insensitive", "solver": "dcd", "max_passes": 8},
    "least squares of landmarks": {"loss": "squared", **LANDMARKS},
    "quantile": {"loss": "pinball", "loss_options": {"quantile": 0.3}},
    "elastic net": {"loss": "squared", "l1": 5.0},
    "l1 ball": {"loss": "squared", "l1_ball": 1.0},
}


def numbers_of(result: EvaluateResult) -> dict[str, float]:
    """What was measured, but for how long it took."""
    return {name: x for name, x in result.evaluation._asdict().items() if isinstance(x, float)}


@pytest.fixture(scope="module")
def client(cluster: Processes) -> Any:
    with Client(cluster.address, set_as_default=False) as client:
        client.wait_for_workers(2, timeout=60)
        yield client


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Path]:
    """Rows in several chunks, with numbers (True) and with two classes."""
    rng, place = np.random.default_rng(5), tmp_path_factory.mktemp("forms")
    X = rng.normal(size=(3000, 5)).astype(np.float32) + np.array([2.0, 1.0, 0.0, 0.0, 0.0], np.float32)
    t = X[:, 0] - 0.5 * X[:, 1] + 0.3 * rng.normal(size=len(X))
    for numeric in (True, False):
        writer = create(place / str(numeric), sparse=False, chunk_bytes=8192)
        writer.append(Dense(X), t if numeric else (t > 1.0).astype(np.int32), None)
        writer.commit(() if numeric else ("no", "yes"), 5, {"names": None})
    return {numeric: place / str(numeric) for numeric in (True, False)}


@pytest.mark.parametrize(
    ("numeric", "form"), [(False, form) for form in CLASSES] + [(True, form) for form in NUMBERS], ids=str
)
def test_workers_find_the_bits_of_this_process_alone(
    stores: dict[bool, Path], tmp_path: Path, client: Client, numeric: bool, form: str
) -> None:
    more = {"groups": 4, "tolerance": 1e-3, **(NUMBERS if numeric else CLASSES)[form]}
    job = FitJob(str(stores[numeric]), str(tmp_path / "a"), **more)
    alone = fit(job, executor=SerialExecutor())
    with using(client) as executor:
        there = fit(replace(job, model=str(tmp_path / "b")), executor=executor)
        rated = evaluate(EvaluateJob(str(tmp_path / "b"), (str(stores[numeric]),)), executor=executor)
    np.testing.assert_array_equal(there.model.weights, alone.model.weights)
    assert there.training.runs[0].certificate == alone.training.runs[0].certificate
    here = evaluate(EvaluateJob(str(tmp_path / "a"), (str(stores[numeric]),)))
    assert numbers_of(rated) == pytest.approx(numbers_of(here), rel=1e-12)
