"""Models applied to dask collections: lazily, the same answers as from files; fits that are tasks use the cluster."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
import scipy.sparse
from distributed import Client

import streamsvm as sv
from streamsvm import model as models
from streamsvm.cluster import evaluate_dask, ingest_dask, predict_dask, using
from streamsvm.errors import DataError, UsageError
from streamsvm.jobs.apply.evaluate import evaluate
from streamsvm.jobs.apply.options import EvaluateJob, PredictJob
from streamsvm.jobs.apply.predict import predict
from streamsvm.jobs.fit.driver import fit
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.ingest.options import IngestJob
from streamsvm.jobs.ingest.run import ingest

pd = pytest.importorskip("pandas", reason="dask.dataframe needs pandas: pip install 'streamsvm[test]'")
dd = pytest.importorskip("dask.dataframe")
ROWS = 90


def table() -> Any:
    rng = np.random.default_rng(2)
    a, color = rng.normal(size=ROWS), rng.choice(["red", "blue", "green"], ROWS)
    a[4] = np.nan
    label = np.where(np.nan_to_num(a) + (color == "red") > 0.2, "yes", "no")
    return pd.DataFrame({"a": a, "color": color, "y": label})


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a table and a model of it."""
    root = tmp_path_factory.mktemp("apply")
    table().to_parquet(root / "t.parquet")
    ingest(IngestJob(sources=(root / "t.parquet",), store=root / "s.zarr", label="y", missing="mean"))
    fit(FitJob(str(root / "s.zarr"), str(root / "m.ssvm")))
    return root


def test_dask_predictions_of_a_frame_are_those_of_its_file(place: Path, tmp_path: Path) -> None:
    frame = dd.from_pandas(table().drop(columns="y")[["color", "a"]], npartitions=4)  # other order, no labels
    frame = frame[frame.a != 77.0]
    for output in ("label", "decision"):
        predict(PredictJob(str(place / "m.ssvm"), (str(place / "t.parquet"),), str(tmp_path / f"{output}.npy"),
                           output=output))  # fmt: skip
        found = predict_dask(place / "m.ssvm", frame, output=output)
        assert found.numblocks == (4,)
        np.testing.assert_array_equal(found.compute(scheduler="sync"), np.load(tmp_path / f"{output}.npy").ravel())


def test_dask_frame_is_evaluated_as_its_file_is(place: Path) -> None:
    found = evaluate_dask(place / "m.ssvm", dd.from_pandas(table(), npartitions=3))
    expected = evaluate(EvaluateJob(str(place / "m.ssvm"), (str(place / "t.parquet"),))).evaluation
    result = found.compute(scheduler="sync")
    assert result.confusion == expected.confusion
    assert result.AUC == expected.AUC
    assert result.hinge == pytest.approx(expected.hinge, rel=1e-12)


@pytest.fixture(scope="module")
def arrays(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any, Any]:
    """A model of three classes, its rows and labels."""
    root = tmp_path_factory.mktemp("arrays")
    X = np.random.default_rng(3).normal(size=(ROWS, 4))
    y = np.digitize(X[:, 0], [-0.5, 0.5])
    ingest_dask(da.from_array(X, chunks=(20, 4)), da.from_array(y, chunks=20), root / "s.zarr")
    fit(FitJob(str(root / "s.zarr"), str(root / "m.ssvm")))
    return root / "m.ssvm", X, y


@pytest.mark.parametrize("sparse", [False, True])
def test_dask_arrays_are_answered_in_order(arrays: tuple[Path, Any, Any], sparse: bool) -> None:
    path, X, y = arrays
    model: Any = models.load(path)
    values = X.astype(np.float32) @ model.weights[:, :-1].T + model.weights[:, -1]
    rows = da.from_array(X, chunks=(20, 2))
    rows = rows.rechunk((20, 4)).map_blocks(scipy.sparse.csr_matrix) if sparse else rows
    decision, label = (predict_dask(model, rows, output=output) for output in ("decision", "label"))
    assert decision.shape == (ROWS, 3)
    np.testing.assert_allclose(decision.compute(scheduler="sync"), values, rtol=1e-6, atol=1e-9)
    expected = np.array(model.classes).astype(y.dtype)[values.argmax(1)]
    np.testing.assert_array_equal(label.compute(scheduler="sync"), expected)
    found = evaluate_dask(model, rows, da.from_array(y, chunks=30)).compute(scheduler="sync")
    assert found.accuracy == pytest.approx(np.mean(expected == y))


def test_dask_nothing_is_computed_before_it_is_asked_for(arrays: tuple[Path, Any, Any]) -> None:
    def never(block: Any) -> Any:
        raise AssertionError("computed")

    rows = da.zeros((10, 4), chunks=(5, 4)).map_blocks(never, meta=np.empty((0, 0)))
    lazy = predict_dask(arrays[0], rows)
    with pytest.raises(AssertionError, match="computed"):
        lazy.compute(scheduler="sync")


def test_dask_what_is_wrong_is_said_of_block_and_row(place: Path, arrays: tuple[Path, Any, Any]) -> None:
    holed = da.from_array(np.array([[1.0] * 4, [1.0, np.nan, 1.0, 1.0]]), chunks=(1, 4))
    with pytest.raises(DataError, match="row 1, column 2: nan is not finite"):
        predict_dask(arrays[0], holed).compute(scheduler="sync")
    with pytest.raises(DataError, match="3 columns, the model 4"):
        predict_dask(arrays[0], da.zeros((4, 3), chunks=2)).compute(scheduler="sync")
    with pytest.raises(DataError, match="'color'"):
        predict_dask(place / "m.ssvm", dd.from_pandas(table()[["a"]], npartitions=1)).compute(scheduler="sync")
    with pytest.raises(UsageError, match="output cannot be 'probability'"):
        predict_dask(place / "m.ssvm", holed, output="probability")


def test_dask_fit_that_is_a_task_uses_the_cluster_it_is_on(
    arrays: tuple[Path, Any, Any], client: Client, tmp_path: Path
) -> None:
    """Its thread is free for the tasks it waits for; the model is that of a fit from outside."""
    store = str(arrays[0].parent / "s.zarr")
    job = FitJob(store, str(tmp_path / "inner"), cluster="client:", groups=2, solver="dcd", tolerance=0.01)
    inner = client.submit(_weights_of, job, pure=False).result(timeout=240)
    with using(client) as executor:
        outer = fit(FitJob(store, str(tmp_path / "outer"), groups=2, solver="dcd", tolerance=0.01), executor=executor)
    np.testing.assert_array_equal(inner, outer.model.weights)


def _weights_of(job: FitJob) -> Any:
    return fit(job).model.weights


def test_dask_default_client_is_taken(arrays: tuple[Path, Any, Any], client: Client, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no Dask client"):
        fit(FitJob(str(tmp_path / "s"), str(tmp_path / "m"), cluster="client:"))
    with client.as_current(), dask.config.set(scheduler="sync"):
        rows = da.ones((6, 2), chunks=(3, 2)).map_blocks(_only_on_a_worker, dtype=np.float64, meta=np.empty((0, 0)))
        ingest_dask(rows, da.arange(6, chunks=3) % 2, tmp_path / "s.zarr")
        client.wait_for_workers(2)
        with using() as executor:
            assert executor.threads == 2


def _only_on_a_worker(block: Any) -> Any:
    from distributed import get_worker

    get_worker()  # ValueError elsewhere
    return block


def test_dask_asynchronous_client_is_refused(client: Client) -> None:
    async def attempt() -> None:
        async with Client(client.scheduler.address, asynchronous=True, set_as_default=False) as other:
            with pytest.raises(UsageError, match="asynchronous"), using(other):
                pass

            with pytest.raises(UsageError, match="not 'Client'") as refused:
                sv.fit("train.zarr", "m", cluster=other)
            assert "asynchronous=False" in str(refused.value.hint)

    asyncio.run(attempt())


@pytest.fixture(scope="module")
def labeled_frame() -> tuple[Any, Any, Any]:
    """A frame of pandas with a category, its labels, and both as one dask frame whose lengths dask does not know."""
    pd, dd = pytest.importorskip("pandas"), pytest.importorskip("dask.dataframe")
    x = np.random.default_rng(0).normal(size=(120, 2))
    frame = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "kind": pd.Categorical(np.where(x[:, 1] > 0, "u", "v"))})
    y = np.where(x[:, 0] + 0.3 * x[:, 1] > 0, "yes", "no")
    delayed = dd.from_pandas(frame.assign(y=y), npartitions=4)
    return frame, y, delayed[delayed.a > -9.0]


FORMS: dict[str, Any] = {
    "series": lambda d, y: d["y"],
    "frame of one column": lambda d, y: d[["y"]],
    "array": lambda d, y: da.from_array(y, chunks=30),
    "array in other blocks": lambda d, y: da.from_array(y, chunks=37),
    "series in other blocks": lambda d, y: d["y"].repartition(npartitions=3),
    "in memory": lambda d, y: y,
    "list": lambda d, y: y.tolist(),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_dask_labels_apart_from_a_dask_frame_are_labels_of_its_rows(labeled_frame: Any, form: Any) -> None:
    pytest.importorskip("sklearn", minversion="1.6")
    from streamsvm.sklearn import StreamSVC

    frame, y, delayed = labeled_frame
    rows, labels = delayed[["a", "b", "kind"]], form(delayed, y)
    expected, found = StreamSVC().fit(frame, y), StreamSVC().fit(rows, labels)
    assert np.array_equal(found.coef_, expected.coef_)
    assert np.array_equal(found.decision_function(rows), expected.decision_function(frame))
    assert np.array_equal(found.predict(rows), expected.predict(frame))
    assert found.score(rows, labels) == expected.score(frame, y)
    result = sv.fit(rows, y=labels)
    assert np.array_equal(result.model.predict(delayed), expected.predict(frame))  # with the column of labels
    assert sv.evaluate(result, rows, y=labels).evaluation.accuracy == expected.score(frame, y)
    assert evaluate_dask(result, rows, labels).compute(scheduler="sync").accuracy == expected.score(frame, y)
