"""How landmarks are drawn where nothing is said: by labels where these may be used, and a run tells which it was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import dask.array
import h5py
import numpy as np
import pytest
import scipy.sparse

import streamsvm as sv
from streamsvm.errors import ConfigError, InterruptedRun
from streamsvm.sklearn import StreamNystroem, StreamOneClassSVM, StreamSVC, StreamSVR
from streamsvm.store import open_store
from tests.arrays import csr_of
from tests.axes import each_value

RBF: dict[str, Any] = {"kernel": "rbf", "gamma": 0.5, "landmarks": 12}
ROWS = 800


def rows(classes: int = 2) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(ROWS, 3)).astype(np.float32)
    return X, np.digitize(X[:, 0] * X[:, 1], [0.0] if classes == 2 else [-0.3, 0.3])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Stores of two and three classes, of numbers, of sparse rows and of weighted ones."""
    place = tmp_path_factory.mktemp("sampling")
    X, y = rows()
    sv.ingest(X, place / "two.zarr", y=y, chunk=4096)
    sv.ingest(X, place / "three.zarr", y=rows(3)[1], chunk=4096)
    sv.ingest(X, place / "numbers.zarr", y=X[:, 0] * X[:, 1] + 0.1, task="regression", chunk=4096)
    sv.ingest(X, place / "weighted.zarr", y=y, weight=np.arange(ROWS) % 3, chunk=4096)
    S = np.where(np.abs(X) < 0.4, 0.0, X)
    csr = csr_of(S)
    sv.ingest(scipy.sparse.csr_matrix((csr.data, csr.indices, csr.indptr), S.shape), place / "sparse.zarr", y=y)
    return place


def sampling_of(model: Any) -> str:
    return model.provenance["settings"]["sampling"]


@each_value(
    ("embedding", ["fly", "disk"]),
    (
        "store, settings",
        [
            ("two", {}),
            ("two", {"class_weight": {"0": 2.0}, "loss": "hinge"}),
            ("two", {"nu": 0.4}),
            ("two", {"loss": "logistic"}),
            ("three", {}),
            ("three", {"multi_class": "ovo"}),
            ("numbers", {"loss": "epsilon_insensitive"}),
            ("weighted", {}),
            ("sparse", {}),
        ],
    ),
)
def test_landmarks_of_a_fit_are_chosen_by_labels(store, settings, embedding, folder, tmp_path):
    shared = RBF | settings | {"embedding": embedding}
    found = sv.fit(folder / f"{store}.zarr", tmp_path / "m", **shared)
    stated = sv.fit(folder / f"{store}.zarr", tmp_path / "g", sampling="greedy", **shared)
    assert sampling_of(found.model) == "greedy"
    assert np.array_equal(found.model.weights, stated.model.weights)
    assert found.plan.facts()["why_sampling"] == "labels may be used to choose landmarks"
    began = json.loads(Path(found.run, "events.jsonl").read_text(encoding="utf-8").splitlines()[0])
    assert "--sampling greedy" in began["command"]


@pytest.mark.parametrize(
    ("settings", "why"),
    [({"calibrate": "sigmoid"}, "--calibrate"), ({"one_class": True}, "one class")],
    ids=["calibrated", "one class"],
)
def test_landmarks_are_uniform_where_labels_may_not_be_used(settings, why, folder, tmp_path):
    found = sv.fit(folder / "two.zarr", tmp_path / "m", **RBF, **settings)
    stated = sv.fit(folder / "two.zarr", tmp_path / "u", sampling="uniform", **RBF, **settings)
    assert sampling_of(found.model) == "uniform"
    assert why in found.plan.facts()["why_sampling"]
    assert np.array_equal(found.model.weights, stated.model.weights)
    assert not any("sampling=" in line for line in found.notices)


def test_landmarks_of_an_embedding_are_drawn_without_labels(folder, tmp_path):
    sv.embed(folder / "two.zarr", tmp_path / "e.zarr", **RBF)
    assert open_store(str(tmp_path / "e.zarr")).facts["embedding"]["sampling"] == "uniform"
    model = sv.fit(tmp_path / "e.zarr", tmp_path / "m", calibrate="sigmoid").model
    assert model.calibration is not None


def test_landmarks_of_rows_in_place_and_of_lazy_rows_are_those_of_a_store(folder, tmp_path):
    X, y = rows()
    with h5py.File(tmp_path / "rows.h5", "w") as file:
        file["X"], file["y"] = X, y
    stored = sv.fit(folder / "two.zarr", tmp_path / "m", **RBF).model
    in_place = sv.fit(tmp_path / "rows.h5", tmp_path / "p", **RBF).model
    lazy = StreamSVC(**RBF).fit(dask.array.from_array(X, chunks=(200, 3)), y).model_
    for model in (in_place, lazy):
        assert sampling_of(model) == "greedy"
        assert np.array_equal(model.expansion.points.values, stored.expansion.points.values)


def test_landmarks_beyond_the_number_of_rows_are_all_rows(folder, tmp_path):
    found = sv.fit(folder / "two.zarr", tmp_path / "m", **(RBF | {"landmarks": 5 * ROWS}))
    assert found.model.expansion is not None
    assert sampling_of(found.model) == "greedy"
    assert found.training.runs[0].certificate.gap <= 1e-3


def test_landmarks_are_uniform_where_memory_is_short_and_that_is_told(folder, tmp_path):
    shared = RBF | {"landmarks": 60, "embedding": "fly", "solver": "newton", "threads": 1}
    greedy, uniform = (
        sv.plan(folder / "two.zarr", sampling=word, memory="4GiB", **shared).memory.total
        for word in ("greedy", "uniform")
    )
    assert uniform < greedy
    slack = 1 << 20
    found = sv.fit(folder / "two.zarr", tmp_path / "m", memory=(uniform + greedy) // 2 + slack, **shared)
    assert sampling_of(found.model) == "uniform"
    assert any("sampling='uniform'" in line for line in found.notices)
    ample = sv.fit(folder / "two.zarr", tmp_path / "a", memory="4GiB", **shared)
    assert sampling_of(ample.model) == "greedy"
    assert not any("sampling=" in line for line in ample.notices)


def test_landmarks_of_a_resumed_fit_are_drawn_as_before(folder, tmp_path):
    store, model = folder / "two.zarr", tmp_path / "m"
    shared = RBF | {"embedding": "fly", "solver": "newton"}
    with pytest.raises(InterruptedRun):
        sv.fit(store, model, time_limit=1e-9, at_limit="stop", **shared)
    with pytest.raises(ConfigError, match="sampling='greedy', now sampling='uniform'"):
        sv.fit(store, model, resume=True, **shared, sampling="uniform")
    found = sv.fit(store, model, resume=True, **shared)
    assert sampling_of(found.model) == "greedy"


def test_landmarks_of_a_search_are_chosen_for_each_fold(folder, tmp_path):
    grid: dict[str, Any] = {"kernel": "rbf", "landmarks": [5, 10], "gamma": [0.5], "C": [1.0], "folds": 3}
    found = sv.tune(folder / "two.zarr", tmp_path / "t", **grid)
    stated = sv.tune(folder / "two.zarr", tmp_path / "g", sampling="greedy", **grid)
    evenly = sv.tune(folder / "two.zarr", tmp_path / "u", sampling="uniform", **grid)
    assert [score.errors for score in found.scores] == [score.errors for score in stated.scores]
    assert [score.errors for score in found.scores] != [score.errors for score in evenly.scores]
    table = json.loads((tmp_path / "t" / "table.json").read_text(encoding="utf-8"))
    assert table["settings"]["sampling"] == "greedy"


def test_landmarks_of_estimators_are_recorded():
    X, y = rows()
    of_svc: dict[str, Any] = {"kernel": "rbf", "landmarks": 12}
    assert sampling_of(StreamSVC(**of_svc).fit(X, y).model_) == "greedy"
    assert sampling_of(StreamSVC(**of_svc, calibration="sigmoid").fit(X, y).model_) == "uniform"
    assert sampling_of(StreamSVR(**of_svc).fit(X, X[:, 0]).model_) == "greedy"
    assert sampling_of(StreamOneClassSVM(kernel="rbf", landmarks=12).fit(X).model_) == "uniform"
    assert StreamNystroem().sampling == "uniform"
