"""Settings that change nothing are told with the reason, and those beyond what arithmetic holds are refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamsvm.jobs.apply.evaluate import evaluate
from streamsvm.jobs.apply.options import EvaluateJob, PredictJob
from streamsvm.jobs.apply.predict import predict
from streamsvm.jobs.fit.driver import FitResult, fit
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.ingest.options import IngestJob
from streamsvm.jobs.ingest.run import ingest
from streamsvm.rows import Dense
from streamsvm.solvers import SOLVERS
from streamsvm.store import create

ROWS, COLUMNS = 120, 3


def store_at(path: Path, names: tuple[str, ...] = ("a", "b")) -> Path:
    X = np.random.default_rng(3).normal(size=(ROWS, COLUMNS)).astype(np.float32)
    writer = create(path, sparse=False, chunk_bytes=1 << 10)
    writer.append(Dense(X), np.digitize(X[:, 0], [0.0, 0.7][: len(names) - 1]).astype(np.int32), None)
    writer.commit(names, COLUMNS, {})
    return path


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return store_at(tmp_path_factory.mktemp("idle") / "s")


def fitted(store: Path, directory: Path, **settings: Any) -> FitResult:
    return fit(FitJob(str(store), str(directory / "m.ssvm"), tolerance=0.1, max_passes=5, overwrite=True, **settings))


def idle(result: FitResult) -> list[str]:
    return [notice for notice in result.notices if notice.startswith("without effect")]


RBF = {"kernel": "rbf", "gamma": 0.3}
SGD: dict[str, Any] = {"solver": "sgd", "loss": "hinge"}
IDLE: dict[str, tuple[dict[str, Any], str]] = {
    "sampling": ({"sampling": "greedy"}, "--sampling, because there are no landmarks"),
    "cutoff": (RBF | {"cutoff": 0.01}, "--cutoff, because there are no landmarks"),
    "embedding": (RBF | {"embedding": "disk"}, "--embedding, because there are no landmarks"),
    "its type": ({"embedding_dtype": "int8"}, "--embedding-dtype, because there are no landmarks"),
    "its type, on the fly": (
        RBF | {"landmarks": 9, "embedding": "fly", "embedding_dtype": "int8"},
        "--embedding-dtype, because features are made in every pass",
    ),
    "scaling": ({"standardize_all": True}, "--standardize-all, because columns are not standardized"),
    "network": ({"insecure_network": True}, "--insecure-network, because no cluster is named"),
    "bias": (RBF | {"bias": 2.0}, "--bias, because the bias of this solver is free, and not regularized"),
    "gamma": ({"gamma": 2.0}, "--gamma, because there is no kernel"),
    "at limit": ({"at_limit": "stop"}, "--at-limit, because there is no time limit"),
    "keys": ({"labels_key": "target"}, "--labels-key, because the store has its own layout"),
    "multiplicity": (
        SGD | {"options": {"variant": "s", "multiplicity": 3}},
        "--set solver.multiplicity, because it is for variant m, and the variant is s",
    ),
    "draws": (
        SGD | {"options": {"draws": "all"}},
        "--set solver.draws, because it is for variant r, and the variant is m",
    ),
    "sample of sgd_qn": (
        SGD | {"solver": "sgd_qn", "options": {"sample": 20, "t0": 9.0}},
        "--set solver.sample, because t0 is given",
    ),
    "narrowing": ({"options": {"narrowing": 0.3}}, "--set solver.narrowing, because the loss has no kink"),
    "sample of the elastic net": (
        {"l1": 1.0, "options": {"sample": 50}},
        "--set solver.sample, because the elastic net is solved on all rows",
    ),
    "seed": (
        RBF | {"solver": "fw", "options": {"seed": 4}},
        "--set solver.seed, because rows are only drawn with the setting sample",
    ),
    "away": (
        RBF | {"solver": "partan", "options": {"sample": 20, "away": "drawn"}},
        "--set solver.away, because partan has no steps that take weight from a single vertex",
    ),
    "cache": (
        RBF | {"solver": "fw", "options": {"sample": 20, "cache": 4096}},
        "--set solver.cache, because kernel values of drawn rows are not cached",
    ),
}


@pytest.mark.parametrize(("settings", "expected"), IDLE.values(), ids=IDLE)
def test_option_without_effect_is_told(store: Path, tmp_path: Path, settings: dict[str, Any], expected: str) -> None:
    assert idle(fitted(store, tmp_path, **settings)) == [f"without effect: {expected}"]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        SGD | {"options": {"multiplicity": 3}},
        SGD | {"options": {"variant": "r", "draws": "all"}},
        {"loss": "hinge", "options": {"narrowing": 0.3}},
        {"bias": 2.0},
        RBF | {"landmarks": 9, "cutoff": 0.01, "sampling": "greedy"},
        RBF | {"max_support": 20},
    ],
    ids=["defaults", "multiplicity", "draws", "narrowing", "bias", "landmarks", "kernel"],
)
def test_option_with_effect_is_not_told(store: Path, tmp_path: Path, settings: dict[str, Any]) -> None:
    assert idle(fitted(store, tmp_path, **settings)) == []


ENDLESS: dict[str, dict[str, Any]] = {
    name: {"solver": name} | (RBF if name in {"decomposition", "blended", "fw", "mfw", "swap", "partan"} else {})
    for name in SOLVERS
}


@pytest.mark.parametrize("settings", ENDLESS.values(), ids=ENDLESS)
def test_option_tolerance_of_0_is_never_reached_and_no_error(
    store: Path, tmp_path: Path, settings: dict[str, Any]
) -> None:
    """It asks for all passes, or for as much as rounding allows."""
    loss = "hinge" if settings["solver"] in {"sgd", "sgd_qn"} else "squared_hinge"
    job = FitJob(str(store), str(tmp_path / "m"), loss=loss, tolerance=0.0, max_passes=2, **settings)
    result = fit(job)
    for run in result.training.runs:
        assert run.certificate is not None
        assert np.isfinite([run.certificate.primal, run.certificate.dual]).all()


# -- how files are read ------------------------------------------------------------------------------------------------


ROWS_OF = {
    "csv": "a,y\n1,01\n2,2\n3,01\n",
    "svmlight": "1 1:1\n-1 1:2\n1 1:3\n",
    "jsonl": '{"a": 1, "y": 0}\n{"a": 2, "y": 1}\n',
}


def file_of(form: str, directory: Path) -> Path:
    (directory / f"t.{form}").write_text(ROWS_OF[form])
    return directory / f"t.{form}"


def ingested(form: str, directory: Path, **settings: Any) -> list[str]:
    label: dict[str, Any] = {} if form == "svmlight" else {"label": "y"}
    job = IngestJob(
        sources=(file_of(form, directory),), store=directory / "s.zarr", overwrite=True, **label, **settings
    )
    return [line for line in ingest(job).notices if line.startswith("without effect")]


TABLE = "only csv, parquet, arrow, jsonl, delta, iceberg have a use for it"
IDLE_READING: dict[str, tuple[str, dict[str, Any], str]] = {
    "words": ("csv", {"text_labels": True}, "--text-labels, because only svmlight have a use for it, and csv is read"),
    "header": ("jsonl", {"header": False}, "--header, because only csv have a use for it, and jsonl is read"),
    "weights": (
        "svmlight",
        {"weight": "w", "drop": ("a",)},
        f"--weight, --drop, because {TABLE}, and svmlight is read",
    ),
    "keys": ("csv", {"labels_key": "t"}, "--labels-key, because only hdf5, zarr have a use for it, and csv is read"),
    "max bad": ("csv", {"max_bad": "3%"}, "--max-bad, because every line that cannot be read is an error"),
    "rare values": ("csv", {"min_count": 3}, "--min-count, because no column is a category"),
    "hash": ("csv", {"hash_bits": 3}, "--hash, because no column is hashed"),
    "text": ("jsonl", {"text_bits": 3}, "--text-bits, because no column is text"),
    "seed": ("csv", {"seed": 3}, "--seed, because nothing is drawn"),
    "test store": ("csv", {"test_store": Path("t.zarr")}, "--test-store, because no rows are held out"),
    "network": ("csv", {"insecure_network": True}, "--insecure-network, because no cluster is named"),
}


@pytest.mark.parametrize(("form", "settings", "expected"), IDLE_READING.values(), ids=IDLE_READING)
def test_option_ingest_tells_what_changed_nothing(
    tmp_path: Path, form: str, settings: dict[str, Any], expected: str
) -> None:
    assert ingested(form, tmp_path, **settings) == [f"without effect: {expected}"]


def test_option_applying_a_model_tells_what_changed_nothing(store: Path, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b,c,y\n1,2,3,a\n2,0,1,b\n4,1,0,b\n1,1,1,a\n")
    ingest(IngestJob(sources=(tmp_path / "t.csv",), store=tmp_path / "s.zarr", label="y"))
    model = tmp_path / "m.ssvm"
    fit(FitJob(str(tmp_path / "s.zarr"), str(model), max_passes=2))
    of_file = evaluate(EvaluateJob(str(model), (str(tmp_path / "t.csv"),), sort=True, header=True))
    assert "without effect: --sort, because only svmlight have a use for it, and csv is read" in of_file.notices
    out = tmp_path / "p.csv"
    of_store = predict(PredictJob(str(model), (str(tmp_path / "s.zarr"),), str(out), delimiter=";"))
    assert of_store.notices == ("without effect: --delimiter, because rows of a store are as they were ingested",)
