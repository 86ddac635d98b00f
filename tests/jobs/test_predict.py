"""Predictions are those of the model, one a row, in order, whatever the rows come from."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn import metrics

import streamsvm as sv
from streamsvm import model as models
from streamsvm.calibration.calibrators import Calibration, PlattSigmoid
from streamsvm.errors import BudgetError, DataError, ExistsError, UsageError
from streamsvm.jobs.apply.evaluate import evaluate
from streamsvm.jobs.apply.options import EvaluateJob, PredictJob
from streamsvm.jobs.apply.predict import predict
from streamsvm.jobs.fit.driver import fit
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.ingest.options import IngestJob
from streamsvm.jobs.ingest.run import ingest
from streamsvm.model import Model
from streamsvm.rows import Dense
from tests.axes import each_value

ROWS = 3000


def write_csv(path: Path, X: np.ndarray, labels: Any = None, names: str = "ab") -> Path:
    head = ",".join([*names] + ([] if labels is None else ["y"]))
    rows = [",".join(map(repr, row.tolist())) for row in X]
    if labels is not None:
        rows = [f"{row},{label}" for row, label in zip(rows, labels, strict=True)]
    path.write_text("\n".join([head, *rows]) + "\n")
    return path


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with train.csv, its store of several chunks, and a model of two classes and one of three."""
    root = tmp_path_factory.mktemp("predict")
    rng = np.random.default_rng(0)
    X = rng.standard_normal((ROWS, 2))
    np.save(root / "X.npy", X)
    two = np.where(X @ [1.0, -2.0] + 0.3 * rng.standard_normal(ROWS) > 0.2, "yes", "no")
    three = np.array(["low", "mid", 'h"i'])[np.digitize(X[:, 0], [-0.5, 0.5])]
    for name, labels in (("two", two), ("three", three)):
        source = write_csv(
            root / f"{name}.csv", X, labels if name == "two" else [label.replace('"', "") for label in labels]
        )
        ingest(IngestJob(sources=(source,), store=root / f"{name}.zarr", label="y", chunk_bytes=4096))
        fit(FitJob(str(root / f"{name}.zarr"), str(root / f"{name}.ssvm"), tolerance=0.01))
    return root


def decisions(place: Path, name: str) -> np.ndarray:
    X = np.load(place / "X.npy").astype(np.float32)
    return models.load(place / f"{name}.ssvm").decision(Dense(X))


@pytest.mark.parametrize("data", ["two.zarr", "two.csv"])
def test_predict_decisions_as_csv(place: Path, tmp_path: Path, data: str) -> None:
    out = tmp_path / "out.csv"
    result = predict(PredictJob(str(place / "two.ssvm"), (str(place / data),), str(out), output="decision"))
    lines = out.read_text().splitlines()
    assert lines[0] == "row,decision_yes"
    rows = np.array([line.split(",") for line in lines[1:]], float)
    assert np.array_equal(rows[:, 0], np.arange(ROWS))
    assert np.array_equal(rows[:, 1], decisions(place, "two")[:, 0])
    assert result.rows == ROWS


def test_predict_reads_files_without_labels(place: Path, tmp_path: Path) -> None:
    source = write_csv(tmp_path / "new.csv", np.load(place / "X.npy"))
    predict(PredictJob(str(place / "two.ssvm"), (str(source),), str(tmp_path / "out.txt")))
    expected = np.where(decisions(place, "two")[:, 0] > 0, "yes", "no")
    assert (tmp_path / "out.txt").read_text().split() == expected.tolist()


@pytest.mark.parametrize("data", ["three.zarr", "three.csv"])
def test_predict_writes_arrays(place: Path, tmp_path: Path, data: str) -> None:
    job = (str(place / "three.ssvm"), (str(place / data),))
    predict(PredictJob(*job, str(tmp_path / "f.npy"), output="decision"))
    f = np.load(tmp_path / "f.npy")
    assert f.dtype == np.float64
    assert np.array_equal(f, decisions(place, "three"))
    predict(PredictJob(*job, str(tmp_path / "labels.npy")))
    classes = np.array(models.load(place / "three.ssvm").classes)
    assert np.array_equal(np.load(tmp_path / "labels.npy"), classes[np.argmax(f, axis=1)])
    assert sorted(p.name for p in tmp_path.iterdir()) == ["f.npy", "labels.npy"]


@pytest.mark.parametrize("named", ["parts", "parts/*.csv"])
def test_predict_directory_and_a_pattern_stand_for_their_files(place: Path, tmp_path: Path, named: str) -> None:
    (tmp_path / "parts").mkdir()
    for k in range(3):
        write_csv(tmp_path / "parts" / f"{k}.csv", np.load(place / "X.npy")[1000 * k : 1000 * (k + 1)])
    predict(PredictJob(str(place / "two.ssvm"), (str(tmp_path / named),), str(tmp_path / "f.npy"), output="decision"))
    assert np.array_equal(np.load(tmp_path / "f.npy"), decisions(place, "two")[:, 0])


def test_predict_terminal_is_shown_no_control_characters(
    place: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    found = models.load(place / "two.ssvm")
    hostile = replace(found, classes=("\x1b[2Jno", "yes"))
    monkeypatch.setattr(models, "load", lambda _: hostile)
    job = PredictJob("m", (str(place / "two.csv"),), "-")
    for terminal, shown in ((True, b"\\x1b[2Jno"), (False, b"\x1b[2Jno")):
        monkeypatch.setattr("sys.stdout.isatty", lambda terminal=terminal: terminal)
        predict(job)
        lines = capfdbinary.readouterr().out.split(b"\n")
        assert {line.partition(b",")[2] for line in lines[1:-1]} == {shown, b"yes"}
        assert len(lines) == ROWS + 2


@pytest.mark.parametrize("output", ["label", "decision"])
def test_predict_memory_that_is_asked_for_is_enough(place: Path, tmp_path: Path, output: str) -> None:
    """The first hint is the last one, though a table has to be opened to know what its columns take."""
    job = PredictJob(
        str(place / "three.ssvm"), (str(place / "three.csv"),), str(tmp_path / "p.csv"), output, memory=20 << 20
    )
    with pytest.raises(BudgetError) as refused:
        predict(job)
    asked = re.search(r"--memory (\d+)MiB", refused.value.hint)
    assert asked is not None, refused.value.hint
    predict(replace(job, memory=(int(asked[1]) + 4) << 20))  # what the process holds grows a little between two plans


def test_predict_columns_in_another_order_are_found_by_name(place: Path, tmp_path: Path) -> None:
    source = write_csv(tmp_path / "swapped.csv", np.load(place / "X.npy")[:, ::-1], names="ba")
    predict(PredictJob(str(place / "two.ssvm"), (str(source),), str(tmp_path / "f.npy"), output="decision"))
    assert np.array_equal(np.load(tmp_path / "f.npy"), decisions(place, "two")[:, 0])


@pytest.mark.parametrize("names", ["ac", "abc"])
def test_predict_store_with_other_columns_is_refused(place: Path, tmp_path: Path, names: str) -> None:
    X = np.load(place / "X.npy")
    X = X if len(names) == 2 else np.column_stack([X, X[:, 0]])
    source = write_csv(tmp_path / "other.csv", X, np.arange(ROWS) % 2, names)
    ingest(IngestJob(sources=(source,), store=tmp_path / "other.zarr", label="y"))
    with pytest.raises(DataError) as caught:
        predict(PredictJob(str(place / "two.ssvm"), (str(tmp_path / "other.zarr"),), str(tmp_path / "out.csv")))
    assert caught.value.code == "E-SCHEMA"
    assert not (tmp_path / "out.csv").exists()


WRONG_TABLES = {
    "a": ("E-SCHEMA", "has no column 'b'"),
    "ac": ("E-SCHEMA", "has no column 'b'"),
    "AB": ("E-SCHEMA", "has no column 'a', 'b'"),
    "aa": ("E-HEADER", "names 'a' twice"),
}


@each_value(("names", WRONG_TABLES), ("labeled", [False, True]))
def test_predict_table_with_other_columns_is_refused(place: Path, tmp_path: Path, names: str, labeled: bool) -> None:
    """As CSV, and as Parquet where a Parquet file can be that."""
    X = np.load(place / "X.npy")[:50, [0, 1, 0][: len(names)]]
    code, said = WRONG_TABLES[names]
    data = [write_csv(tmp_path / "other.csv", X, ["yes", "no"] * 25 if labeled else None, names)]
    if len(set(names)) == len(names):
        pq.write_table(pa.table(dict(zip(names, X.T, strict=True))), tmp_path / "other.parquet")
        data.append(tmp_path / "other.parquet")
    for path in data:
        with pytest.raises(DataError, match=said) as caught:
            predict(PredictJob(str(place / "two.ssvm"), (str(path),), str(tmp_path / "out.csv")))
        assert (caught.value.code, caught.value.exit_code) == (code, 65)
        assert not (tmp_path / "out.csv").exists()


def test_predict_column_that_was_dropped_may_be_there_and_a_label_may_have_another_name(
    place: Path, tmp_path: Path
) -> None:
    X = np.load(place / "X.npy")[:50]
    table = write_csv(tmp_path / "t.csv", np.column_stack([X, X[:, 0]]), ["yes", "no"] * 25, "abc")
    ingest(IngestJob(sources=(table,), store=tmp_path / "s.zarr", label="y", drop=("c",)))
    fit(FitJob(str(tmp_path / "s.zarr"), str(tmp_path / "m.ssvm"), tolerance=0.1))
    renamed = tmp_path / "renamed.csv"
    renamed.write_text(table.read_text().replace("a,b,c,y", "a,b,c,truth"))
    for path, label in ((table, None), (renamed, "truth")):
        job = PredictJob(str(tmp_path / "m.ssvm"), (str(path),), str(tmp_path / "out.npy"), label=label, overwrite=True)
        assert predict(job).rows == 50


@pytest.mark.parametrize("name", ["x.npy", "x.h5"])
def test_predict_arrays_where_there_was_text_are_refused(place: Path, tmp_path: Path, name: str) -> None:
    X, path = np.load(place / "X.npy")[:50], tmp_path / name
    if name == "x.npy":
        np.save(path, X)
    else:
        with h5py.File(path, "w") as file:
            file["X"] = X
    with pytest.raises(DataError, match=r"looks like .*, expected csv") as caught:
        predict(PredictJob(str(place / "two.ssvm"), (str(path),), str(tmp_path / "out.csv")))
    assert (caught.value.code, caught.value.exit_code) == ("E-FORMAT", 65)


def svmlight(path: Path, rows: list[dict[int, float]]) -> Path:
    lines = [f"{i % 2} " + " ".join(f"{j}:{x}" for j, x in sorted(row.items())) for i, row in enumerate(rows)]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_predict_narrower_sparse_store_is_padded_and_a_wider_one_refused(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    wide = [{int(j): float(rng.random()) + (i % 2) for j in (1, 2, 40)} for i in range(200)]
    stores = {}
    for name, rows in (("wide", wide), ("narrow", [{j: x for j, x in row.items() if j < 40} for row in wide])):
        source = svmlight(tmp_path / f"{name}.svm", rows)
        stores[name] = tmp_path / f"{name}.zarr"
        ingest(IngestJob(sources=(source,), store=stores[name], layout="csr"))
        fit(FitJob(str(stores[name]), str(tmp_path / f"{name}.ssvm")))
    job = PredictJob(str(tmp_path / "wide.ssvm"), (str(stores["narrow"]),), str(tmp_path / "f.npy"), output="decision")
    assert "2 of the model's 40 columns" in predict(job).notices[0]
    w = models.load(tmp_path / "wide.ssvm").weights[0]
    expected = [np.float32(row[1]) * w[0] + np.float32(row[2]) * w[1] + w[-1] for row in wide]
    assert np.load(tmp_path / "f.npy") == pytest.approx(np.array(expected))
    for data in (stores["wide"], tmp_path / "wide.svm"):
        with pytest.raises(DataError):
            predict(PredictJob(str(tmp_path / "narrow.ssvm"), (str(data),), str(tmp_path / "g.npy")))


def test_predict_writes_all_or_nothing(place: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    out.write_text("mine")
    job = (str(place / "two.ssvm"), (str(place / "two.zarr"),), str(out))
    with pytest.raises(ExistsError):
        predict(PredictJob(*job))
    broken = tmp_path / "broken.csv"
    broken.write_text((place / "two.csv").read_text() + "1,x,yes\n")
    for ending in ("csv", "npy"):
        with pytest.raises(DataError):
            predict(PredictJob(job[0], (str(broken),), str(tmp_path / f"new.{ending}")))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["broken.csv", "out.csv"]
    with pytest.raises(ExistsError, match="is not a file of predictions"):
        predict(PredictJob(*job, overwrite=True))
    assert out.read_text() == "mine"
    out.write_text("label\n0\n")
    predict(PredictJob(*job, overwrite=True))
    assert len(out.read_text().splitlines()) == ROWS + 1


@pytest.mark.parametrize("name", ["two", "three"])
def test_predict_store_and_its_source_are_as_good(place: Path, name: str) -> None:
    results = [
        evaluate(EvaluateJob(str(place / f"{name}.ssvm"), (str(place / f"{name}.{end}"),))) for end in ("zarr", "csv")
    ]
    store, source = (result.evaluation for result in results)
    assert store.confusion == source.confusion
    assert store.AUC == source.AUC
    assert store.squared_hinge == pytest.approx(source.squared_hinge)  # summed in another order
    assert store.rows == ROWS
    assert store.accuracy > 0.6


def test_predict_rows_without_labels_cannot_be_evaluated(place: Path, tmp_path: Path) -> None:
    source = write_csv(tmp_path / "new.csv", np.load(place / "X.npy"))
    with pytest.raises(DataError) as caught:
        evaluate(EvaluateJob(str(place / "two.ssvm"), (str(source),)))
    assert caught.value.code == "E-LABEL"


def test_predict_probabilities_are_written_and_evaluated(tmp_path: Path) -> None:
    """Of a model with a calibration: the columns of a file, an array, and the figures; without one it is refused."""
    X, y = np.random.default_rng(0).standard_normal((300, 2)), np.arange(300) % 2
    sv.ingest(X, tmp_path / "s.zarr", y=y)
    plain = Model(np.array([[1.0, 0.5, 0.1]]), ("0", "1"))
    plain.save(tmp_path / "plain")
    calibration = Calibration(PlattSigmoid(np.array([2.0]), np.array([-0.3])), "5 folds", 300)
    model = replace(plain, calibration=calibration)
    model.save(tmp_path / "m")
    expected = 1 / (1 + np.exp(-(2.0 * (X @ [1.0, 0.5] + 0.1) - 0.3)))
    sv.predict(tmp_path / "m", str(tmp_path / "s.zarr"), tmp_path / "p.csv", output=("label", "probability"))
    lines = (tmp_path / "p.csv").read_text().splitlines()
    assert lines[0] == "row,predicted_label,probability_0,probability_1"
    assert float(lines[5].split(",")[3]) == pytest.approx(expected[4], rel=1e-5)
    sv.predict(tmp_path / "m", str(tmp_path / "s.zarr"), tmp_path / "p.npy", output="probability")
    assert np.allclose(np.load(tmp_path / "p.npy"), np.column_stack([1 - expected, expected]), atol=1e-6)
    assert np.allclose(model.predict_proba(X), np.column_stack([1 - expected, expected]))
    found = sv.evaluate(tmp_path / "m", str(tmp_path / "s.zarr")).evaluation
    assert found.log_loss == pytest.approx(metrics.log_loss(y, expected), rel=1e-5)
    assert found.ECE is not None
    assert sv.evaluate(tmp_path / "plain", str(tmp_path / "s.zarr")).evaluation.log_loss is None
    with pytest.raises(UsageError, match="no probabilities"):
        sv.predict(tmp_path / "plain", str(tmp_path / "s.zarr"), tmp_path / "q.csv", output="probability")
    assert not (tmp_path / "q.csv").exists()
