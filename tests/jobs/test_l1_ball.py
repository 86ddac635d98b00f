"""Fits whose weights are 0 for some columns, over the l1 ball and of the elastic net, from the store on: what is refused, kept bits, resuming, predictions, the grid of a search."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamsvm import load_model
from streamsvm.cli.show import describe_model
from streamsvm.engine.block_visitor import BlockVisitor
from streamsvm.engine.executor import SerialExecutor
from streamsvm.jobs.apply.evaluate import evaluate
from streamsvm.jobs.apply.options import EvaluateJob
from streamsvm.jobs.fit.driver import fit
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.ingest.options import IngestJob
from streamsvm.jobs.ingest.run import ingest
from streamsvm.jobs.inspect import model_facts
from tests.fault.test_determinism import bits_of
from tests.stopping import goes_on_to_the_same_bytes

NET: dict[str, Any] = {"loss": "squared", "l1_ball": None, "l1": 20.0, "tolerance": 1e-8}
BALL: dict[str, Any] = {"loss": "squared", "l1_ball": 3.0, "tolerance": 1e-4}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """400 rows of 12 columns, three of which make the number, in small chunks."""
    root, rng = tmp_path_factory.mktemp("ball"), np.random.default_rng(5)
    X = rng.normal(size=(400, 12))
    t = X[:, [1, 4, 9]] @ np.array([2.0, -1.0, 0.6]) + 0.1 * rng.normal(size=400)
    np.savetxt(
        root / "rows.csv", np.column_stack([X, t]), delimiter=",", header=",".join([*"abcdefghijkl", "t"]), comments=""
    )
    ingest(IngestJob(sources=(root / "rows.csv",), store=root / "s", label="t", task="regression", chunk_bytes=4096))
    return root / "s"


def job_of(store: Path, model: Path, **settings: Any) -> FitJob:
    return FitJob(str(store), str(model), **(BALL | settings))


def test_sparse_fit_model_of_few_columns_and_its_figures(store: Path, tmp_path: Path) -> None:
    result = fit(job_of(store, tmp_path / "m", standardize=True, solver="swap"))
    model = load_model(tmp_path / "m")
    assert set(np.flatnonzero(model.coef)) >= {1, 4, 9}
    used = model.provenance["certificates"][0]["columns_used"]
    assert used == np.count_nonzero(model.coef) < 12
    assert result.plan.solver_name == "swap"
    found = evaluate(EvaluateJob(str(tmp_path / "m"), (str(store),))).evaluation
    assert found.R2 is not None
    assert found.R2 > 0.9


def test_sparse_fit_elastic_net_is_newton_and_bits_are_those_of_one_thread(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamsvm.engine.partition.PASS_GROUP_BYTES", 1)
    job = job_of(store, tmp_path / "m", overwrite=True, standardize=True, **NET)
    assert fit(replace(job, threads=1)).plan.solver_name == "newton"
    reference = bits_of(job)
    for executor, threads in ((None, 3), (SerialExecutor(), 1)):
        fit(replace(job, threads=threads), executor=executor)
        assert bits_of(job) == reference
    model = load_model(tmp_path / "m")
    assert np.flatnonzero(model.coef).tolist() == [1, 4, 9]
    assert f"columns  12, of which {model.provenance['certificates'][0]['columns_used']} have weights" in list(
        describe_model(model_facts(tmp_path / "m"))
    )


def test_sparse_fit_auto_is_partan_and_bits_are_those_of_one_thread(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamsvm.engine.partition.PASS_GROUP_BYTES", 1)
    job = job_of(store, tmp_path / "m", overwrite=True, options={"pool": 5})
    assert fit(replace(job, threads=1)).plan.solver_name == "partan"
    reference = bits_of(job)
    for executor, threads in ((None, 3), (SerialExecutor(), 1)):
        fit(replace(job, threads=threads), executor=executor)
        assert bits_of(job) == reference


@pytest.mark.parametrize(
    "settings",
    [
        {"solver": "mfw", "options": {"pool": 5, "sample": 0}},
        {"solver": "mfw", "options": {"pool": 5, "sample": 4}},
        NET | {"loss": "squared_epsilon_insensitive"},
    ],
    ids=["ball", "ball from samples", "elastic net"],
)
def test_sparse_fit_run_that_was_stopped_goes_on_to_the_same_bytes(
    store: Path, tmp_path: Path, settings: dict[str, Any]
) -> None:
    def run(model: Path, **more: Any) -> None:
        fit(job_of(store, model, **settings, **more))

    goes_on_to_the_same_bytes(run, tmp_path, BlockVisitor, "finish", 2)
