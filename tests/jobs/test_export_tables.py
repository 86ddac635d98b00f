"""Models of raw tables in other programs: decision values, labels and probabilities are those of the model, of rows as they are in the table."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import warnings
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import streamsvm as sv

pd = pytest.importorskip("pandas", reason="needs pandas: pip install pandas")
NEAR = 1e-5
COLUMNS = ("day=date:%d/%m/%Y", "stamp=epoch")
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "linear": ("two", {"missing": "mean"}, {}),
    "sigmoid": (
        "two",
        {"missing": "indicator", "cross": ["color*size"]},
        {"standardize": True, "calibrate": "sigmoid"},
    ),
    "isotonic": ("three", {"missing": "zero", "min_count": 90}, {"calibrate": "isotonic"}),
    "logistic": ("whole", {"missing": "indicator", "missing_words": ["-9"]}, {"loss": "logistic"}),
    "softmax": ("three", {"missing": "mean"}, {"loss": "logistic", "multi_class": "softmax"}),
    "softmax, weighted": (
        "three",
        {"missing": "indicator"},
        {"loss": "logistic", "multi_class": "softmax", "class_weight": "balanced", "standardize": True, "C": 10.0},
    ),
    "regression": ("number", {"missing": "mean", "task": "regression"}, {"loss": "squared"}),
    "one class": ("two", {"missing": "mean"}, {"one_class": True, "nu": 0.2}),
    "curves": (
        "two",
        {"missing": "indicator"},
        {"curves": True, "knots": 12, "pairs": "color*v1,size*big,day.years*stamp.years,v1 missing*price,color*size"},
    ),
    "curves of three": (
        "three",
        {"missing": "zero"},
        {"curves": True, "knots": 12, "multi_class": "ovr", "jumps": "v1=0,price=0"},
    ),
    "kernel": ("two", {"missing": "indicator"}, {"kernel": "rbf", "landmarks": 20, "standardize": True}),
    "several kernels": ("three", {"missing": "mean"}, {"kernel": "laplacian", "landmarks": 20, "calibrate": "sigmoid"}),
}


def raw_table(rows: int, seed: int, *, new: bool = False) -> Any:
    """A table with a column of every kind, with gaps; ``new``: with values that training has not seen."""
    rng = np.random.default_rng(seed)
    found = pd.DataFrame(
        {
            "color": rng.choice(["red", "blue", "green"] + ["pink"] * new, rows),
            "size": rng.choice([1, 2, 30] + [77] * new, rows),
            "big": rng.random(rows) < 0.5,
            "decision": rng.choice(["Yes", "no"], rows),  # as an output would be called
            "price": [f"${value:,.2f}" for value in rng.random(rows) * 5000],
            "v1": rng.normal(size=rows),  # as an inner value of a graph would be called
            "when": pd.Timestamp("1969-01-01") + pd.to_timedelta(rng.integers(0, 2 * 10**9, rows), unit="s"),
            "day": [f"{d:02d}/{m:02d}/{y}" for d, m, y in rng.integers((1, 1, 1930), (29, 13, 2030), (rows, 3))],
            "stamp": rng.integers(0, 10**9, rows).astype(float),
            "it's far": 2e9 + rng.normal(size=rows),
        }
    )
    score = found["v1"] + (found["color"] == "red") - found["big"] + rng.normal(size=rows) * 0.3
    for name in ("color", "big", "decision", "price"):
        found[name] = found[name].astype(object).where(rng.random(rows) > 0.1, None)
    for name in ("v1", "when", "stamp", "it's far"):
        found[name] = found[name].where(rng.random(rows) > 0.1)
    found["two"] = np.where(score > 0.5, "good", "bad")
    found["three"] = np.array(["low", "it's mid", "high"])[np.digitize(score, [0.0, 1.0])]
    found["whole"] = np.digitize(score, [0.5])
    return found.assign(number=score)


TARGETS = ("two", "three", "whole", "number")
TEST = raw_table(120, 1, new=True)


@lru_cache
def fitted(name: str) -> sv.Model:
    """The model of a case, fitted once."""
    import tempfile

    label, ingest, options = CASES[name]
    drop = [other for other in TARGETS if other != label]
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "rows.zarr"
        chosen = {"categorical": ["size"], "column": COLUMNS} | ingest
        sv.ingest(raw_table(300, 0), store, label=label, drop=drop, **chosen)
        found: sv.Model = sv.fit(store, Path(folder) / "model.ssvm", tolerance=0.05, **options).model
    if name in ("sigmoid", "kernel"):
        found = replace(found, threshold=0.25)
    return found


def agree(model: sv.Model, decision: Any, answer: Any, probabilities: Any = None) -> None:
    """Compare what another program says of ``TEST`` with what the model says."""
    expected = model.decision_function(TEST)
    size = max(1.0, np.abs(expected).max())
    assert np.ptp(expected) > 0.5 * size
    assert np.abs(np.reshape(decision, expected.shape) - expected).max() <= NEAR * size
    if model.numeric:
        assert np.abs(np.ravel(answer) - expected).max() <= NEAR * size
    else:
        assert np.array_equal(np.ravel(answer).astype(str), model.predict(TEST).astype(str))
    if model.calibration is not None:
        assert np.abs(np.asarray(probabilities) - model.predict_proba(TEST)).max() <= NEAR


# -- ONNX --------------------------------------------------------------------------------------------------------------


def onnx_inputs(kinds: dict[str, str], frame: Any) -> dict[str, Any]:
    """The inputs of a graph, as the how-to page makes them."""
    found = {}
    for name, kind in kinds.items():
        column = frame[name]
        if kind == "time" and not pd.api.types.is_numeric_dtype(column):
            moments = pd.to_datetime(column, format="%d/%m/%Y" if name == "day" else None)
            column = (moments - pd.Timestamp(0)).dt.total_seconds()
        if name == "price":
            column = column.str.replace(r"[$,]", "", regex=True)
        if kind == "text":
            found[name] = column.astype(object).where(column.notna(), "").astype(str).to_numpy(object)[:, None]
        else:
            found[name] = column.to_numpy(float)[:, None]
    return found


@pytest.mark.parametrize("name", CASES)
def test_onnx_graph_of_a_table_takes_its_columns(tmp_path: Path, name: str) -> None:
    onnx = pytest.importorskip("onnx", reason="needs onnx: pip install 'streamsvm[onnx]'")
    model = fitted(name)
    sv.export(model, tmp_path / "model.onnx", format="onnx")
    graph = onnx.load(tmp_path / "model.onnx")
    kinds = json.loads({p.key: p.value for p in graph.metadata_props}["inputs"])
    assert list(kinds) == [one.name for one in graph.graph.input] == list(TEST.columns[: -len(TARGETS)])
    assert kinds["size"] == "number"
    outputs = [one.name for one in graph.graph.output]
    given = onnx_inputs(kinds, TEST)
    try:
        import onnxruntime

        session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"), providers=["CPUExecutionProvider"])
        found = dict(zip(outputs, session.run(None, given), strict=True))
    except ModuleNotFoundError:
        from onnx.reference import ReferenceEvaluator

        found = dict(zip(outputs, ReferenceEvaluator(graph).run(None, given), strict=True))
    answer = found["prediction" if model.numeric else "label"]
    agree(model, found["decision_"], answer, found.get("probabilities"))


def texts(rows: int, seed: int) -> Any:
    """A table of texts of several alphabets and of up to 300 characters, with gaps and with blanks between words."""
    rng = np.random.default_rng(seed)
    letters = list("abcdefgh ÄÖüßÉ  _09.,-\tИЖ漢字😀")

    def text(most: int) -> str:
        return "".join(rng.choice(letters, rng.integers(1, most))).strip() or "x"

    found = pd.DataFrame({"x": rng.normal(size=rows)})
    for name, most in (("city", 8), ("street", 300), ("words", 60), ("runs", 40)):
        column = [text(most if k % 9 == 0 else most // 4) for k in range(rows)]
        found[name] = pd.Series(column, dtype=object).where(rng.random(rows) > 0.1, None)
    return found


TEXT_CASES = {
    "whole values": ["city=hash", "street=hash"],
    "words": ["words=words"],
    "runs": ["runs=chars"],
    "all of them": ["runs=chars:1-3", "city=hash", "words=words"],
}


@pytest.mark.parametrize("name", TEXT_CASES)
def test_onnx_graph_computes_the_hashes_of_any_text(name: str, tmp_path: Path) -> None:
    """New rows have texts that training has not seen."""
    pytest.importorskip("onnx", reason="needs onnx: pip install 'streamsvm[onnx]'")
    onnxruntime = pytest.importorskip("onnxruntime", reason="needs onnxruntime: pip install onnxruntime")
    columns = TEXT_CASES[name]
    used = ["x", *(column.split("=")[0] for column in columns)]
    train, new = texts(400, 0)[used], texts(60, 1)[used]
    new.loc[0, used[1:]] = "NA"
    y = np.digitize(train["x"] + train[used[1]].fillna("").str.len() / 30, [0.0, 1.0])
    model = sv.fit(train, y=y, column=columns, missing="indicator", text_bits=10, hash=10).model
    sv.export(model, tmp_path / "model.onnx", format="onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"), providers=["CPUExecutionProvider"])
    kinds = json.loads(session.get_modelmeta().custom_metadata_map["inputs"])
    assert kinds == {column: "number" if column == "x" else "text" for column in used}
    expected = model.decision_function(new)
    for rows in (slice(None), slice(3, 4)):
        label, decision = session.run(["label", "decision"], onnx_inputs(kinds, new[rows]))
        assert np.abs(decision - expected[rows]).max() <= 1e-9 * np.abs(expected).max()
        assert np.array_equal(label, model.predict(new[rows]))


def test_pipeline_of_sklearn_hashes_values_as_the_model_does() -> None:
    pytest.importorskip("sklearn", minversion="1.6")
    train, new = texts(400, 0)[["x", "city", "street"]], texts(60, 1)[["x", "city", "street"]]
    new.loc[0, ["city", "street"]] = ["12.0", " x "]
    y = np.digitize(train["x"] + train["street"].fillna("").str.len() / 90, [0.0, 1.0])
    model = sv.fit(train, y=y, column=["city=hash", "street=hash"], missing="indicator", hash=10).model
    pipeline = pickle.loads(pickle.dumps(model.to_sklearn()))
    assert np.abs(pipeline.decision_function(new) - model.decision_function(new)).max() < NEAR
    assert np.array_equal(pipeline.predict(new), model.predict(new))


def test_hashed_text_that_a_program_cannot_compute_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("onnx", reason="needs onnx: pip install 'streamsvm[onnx]'")
    frame, y = texts(200, 0)[["x", "city"]], np.arange(200) % 2
    model = sv.fit(frame, y=y, column=["city=hash"], missing="indicator").model
    kernel = sv.fit(frame, y=y, column=["city=hash"], missing="indicator", kernel="rbf", landmarks=5).model
    words = sv.fit(frame, y=y, column=["city=words"], missing="indicator").model
    cases: Any = (
        (model, "sql", "hashed"),
        (words, "sql", "cut into words"),
        (words, "sklearn", "cut into words"),
        (kernel, "onnx", "hashed"),
        (kernel, "sklearn", "hashed"),
    )
    for refused, form, said in cases:
        with pytest.raises(sv.UsageError, match=f"'city' of the table is {said}") as caught:
            sv.export(refused, tmp_path / "model", format=form)
        assert "city=category" in str(caught.value)
        assert ("values_from=" in str(caught.value)) == (form == "sql" and refused is model)


# -- SQL ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in CASES if "kernel" not in name])
def test_sql_query_of_a_table_says_what_the_model_says(tmp_path: Path, name: str) -> None:
    duckdb = pytest.importorskip("duckdb", reason="needs duckdb: pip install duckdb")
    model = fitted(name)
    sv.export(model, tmp_path / "model.sql", format="sql")
    query = (tmp_path / "model.sql").read_text()
    with duckdb.connect() as database:
        database.register("given", TEST)
        found = database.sql(f'WITH "input" AS (SELECT * FROM given)\n{query}').df()
    assert list(found.columns[: len(TEST.columns)]) == list(TEST.columns)
    several = len(model.weights) > 1
    kinds = {kind: [f"{kind}_{name}" for name in model.classes] for kind in ("decision", "probability")}
    decision = found[kinds["decision"] if several else "prediction" if model.numeric else "decision_"]
    probabilities = None
    if model.calibration is not None:
        probabilities = found[kinds["probability"]] if several else found["probability"].map(lambda p: (1.0 - p, p))
        probabilities = np.array(probabilities.to_numpy().tolist())
    agree(model, decision.to_numpy(), decision if model.numeric else found["label"], probabilities)


def test_sql_query_needs_names_of_columns_and_a_linear_model(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(100, 2))
    kernel: Any
    for rows, kernel, said in (
        (X, "linear", "no column names"),
        (pd.DataFrame(X, columns=["a", "b"]), "rbf", "kernel"),
    ):
        model = sv.fit(rows, X[:, 0] > 0, kernel=kernel).model
        with pytest.raises(sv.UsageError, match=said):
            sv.export(model, tmp_path / "model.sql", format="sql")


def hashed_table(rows: int, seed: int) -> Any:
    """A table with two hashed columns: text with quotes, blanks around it and whole numbers, and with gaps."""
    rng = np.random.default_rng(seed)
    streets = np.array(["it's", "rome", "Rome", " lisbon ", "12", "-9", "Ä ö", 'a "b"', "x\\y", "007"])
    found = pd.DataFrame(
        {
            "id": np.arange(rows),
            "x": rng.integers(-8, 8, rows) / 4,  # exact in float32
            "street": rng.choice(streets, rows),
            "zip": rng.choice([f"z{k}" for k in range(30)] + ["12", "rome"], rows),
        }
    )
    for name in ("street", "zip"):
        found[name] = found[name].astype(object).where(rng.random(rows) > 0.15, None)
    return found


def run_query(text: str, table: Any) -> Any:
    """The rows of a query in DuckDB, in the order of their ids."""
    duckdb = pytest.importorskip("duckdb", reason="needs duckdb: pip install duckdb")
    with duckdb.connect() as database:
        database.register("given", table)
        return database.sql(f'WITH "input" AS (SELECT * FROM given)\n{text}').df().sort_values("id", ignore_index=True)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("words", [(), ("-9",)])
def test_sql_query_knows_the_listed_values_of_hashed_columns(tmp_path: Path, classes: int, words: Any) -> None:
    """Eight feature columns, so that values of both columns share them with either sign."""
    train, new = hashed_table(600, 0), hashed_table(200, 1)
    score = train["x"] + train["street"].fillna("").str.len() / 3 + np.random.default_rng(2).normal(size=600)
    y = np.digitize(score, np.quantile(score, [0.5] if classes == 2 else [0.3, 0.6]))
    loss: Any = {"loss": "logistic", "multi_class": "softmax"} if classes > 2 else {"calibrate": "sigmoid"}
    reading: Any = {"column": ["street=hash", "zip=hash"], "hash": 3, "drop": ["id"], "missing_words": list(words)}
    model = sv.fit(train, y=y, missing="indicator", **reading, **loss).model
    sv.export(model, tmp_path / "model.sql", format="sql", values_from=train)
    new.loc[[3, 7], "street"], new.loc[9, "zip"] = "unseen", "z31"
    found = run_query((tmp_path / "model.sql").read_text(), new)
    known = ~new.index.isin([3, 7, 9])
    results = found.columns[len(new.columns) :]
    assert found.loc[~known, results].isna().all(axis=None)
    assert found.loc[known, results].notna().all(axis=None)
    expected = model.decision_function(new)
    names = ["decision"] if classes == 2 else [f"decision_{name}" for name in model.classes]
    decisions = found[names].to_numpy().reshape(expected.shape)
    assert np.abs(decisions - expected)[known].max() <= 1e-9 * np.abs(expected).max()
    assert np.array_equal(found["label"][known].astype(int), model.predict(new)[known])
    names = ["probability"] if classes == 2 else [f"probability_{name}" for name in model.classes]
    probabilities = model.predict_proba(new)[:, 1 if classes == 2 else 0 :]
    assert np.abs(found[names].to_numpy() - probabilities)[known].max() <= 1e-9


def test_sql_query_reads_values_from_files_as_predict_does(tmp_path: Path) -> None:
    """Files have blanks around values, words for missing ones and numbers with a fraction of zeros."""
    train = hashed_table(300, 0)
    train["y"] = np.where(train["x"] + train["street"].fillna("").str.len() / 3 > 1, "in", "out")
    train.to_csv(tmp_path / "train.csv", index=False, na_rep="NA")
    column = ["street=hash", "zip=hash"]
    sv.ingest(tmp_path / "train.csv", tmp_path / "t.zarr", label="y", drop=["id"], column=column, missing="zero")
    model = sv.fit(tmp_path / "t.zarr", tmp_path / "t.ssvm").model
    (tmp_path / "values.csv").write_text("zip,street,x,id\n z1 ,NA,0,1\n12.0,rome,0,2\n")
    run = [sys.executable, "-m", "streamsvm", "export", "t.ssvm", "t.sql", "--format", "sql"]
    subprocess.run([*run, "--values-from", "values.csv"], cwd=tmp_path, check=True)
    new = pd.DataFrame(
        {
            "id": np.arange(6),
            "x": 0.5,
            "street": ["rome", None, "rome", "Rome", "rome", "NA"],
            "zip": ["z1", "12", "12.0", "z1", None, "z1"],
        }
    )
    decision = run_query((tmp_path / "t.sql").read_text(), new)["decision"]
    expected = model.decision_function(new)
    assert decision.isna().tolist() == [False, False, False, True, False, True]
    assert np.abs(decision - expected).max() <= 1e-9


def test_values_of_hashed_columns_are_refused_where_they_cannot_serve(tmp_path: Path, monkeypatch: Any) -> None:
    train = hashed_table(200, 0)
    y = np.arange(200) % 2
    model = sv.fit(train, y=y, column=["street=hash", "zip=hash"], missing="zero", drop=["id"]).model
    words = sv.fit(train, y=y, column=["street=hash", "zip=words"], missing="zero", drop=["id"]).model
    wide = hashed_table(1500, 1)  # with so many combinations that they are hashed
    crossed = sv.fit(wide, y=np.arange(1500) % 2, cross=["street*zip"], hash=5, missing="zero", drop=["id"]).model
    plain = sv.fit(train[["x"]], y=y).model
    sv.ingest(train, tmp_path / "t.zarr", y=y, column=["street=hash", "zip=hash"], missing="zero", drop=["id"])
    monkeypatch.setattr("streamsvm.jobs.export.hashed_values.MAX_VALUES", 40)
    cases: Any = (
        (model, "onnx", train, "has no meaning for"),
        (words, "sql", train, "'zip' of the table is cut into words"),
        (crossed, "sql", train, "'street.zip' of the table is hashed"),
        (plain, "sql", train, "the model has none"),
        (model, "sql", tmp_path / "t.zarr", "is a store"),
        (model, "sql", np.zeros((2, 2)), "must be a table, whose columns have names"),
        (model, "sql", train, "more than 40 values.*'zip'"),
    )
    for refused, form, values, said in cases:
        with pytest.raises(sv.UsageError, match=said):
            sv.export(refused, tmp_path / "model.sql", format=form, values_from=values)
    monkeypatch.setattr("streamsvm.jobs.export.hashed_values.MAX_VALUES", 1000)
    monkeypatch.setattr("streamsvm.jobs.export.hashed_values.MAX_CHARACTERS", 60)  # few values can be long
    with pytest.raises(sv.UsageError, match="more than 60 characters"):
        sv.export(model, tmp_path / "model.sql", format="sql", values_from=train)
    assert not (tmp_path / "model.sql").exists()


# -- scikit-learn ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in CASES if "curves" not in name])
def test_sklearn_pipeline_of_a_table_takes_its_frame(name: str) -> None:
    pytest.importorskip("sklearn", minversion="1.6")
    model = fitted(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sv.StreamSVMWarning)
        found = pickle.loads(pickle.dumps(model.to_sklearn()))
    shuffled = TEST[TEST.columns[::-1]]
    answer = found.predict(shuffled)
    has_probabilities = name in ("logistic", "softmax")  # class weights are taken back in the model's, not in theirs
    probabilities = found.predict_proba(shuffled) if has_probabilities else model_probabilities(model)
    decision = answer if model.numeric else found.decision_function(shuffled) + model.threshold
    agree(model, decision, answer, probabilities)


def test_sklearn_pipeline_of_a_table_of_numbers_leaves_out_other_columns(tmp_path: Path) -> None:
    pytest.importorskip("sklearn", minversion="1.6")
    X = np.random.default_rng(0).normal(size=(100, 2))
    frame = pd.DataFrame({"y": np.where(X[:, 0] > 0, "in", "out"), "a": X[:, 0], "b": X[:, 1]})
    frame.loc[3, "b"] = None
    frame.to_csv(tmp_path / "t.csv", index=False)
    sv.ingest(tmp_path / "t.csv", tmp_path / "t.zarr", label="y", missing="indicator")
    model = sv.fit(tmp_path / "t.zarr", tmp_path / "t.ssvm").model
    found = model.to_sklearn().decision_function(frame[["b", "y", "a"]])
    assert np.abs(found - model.decision_function(frame)).max() <= NEAR


def model_probabilities(model: sv.Model) -> Any:
    """The probabilities of the model itself, where the other program has none."""
    return None if model.calibration is None else model.predict_proba(TEST)


def test_sklearn_estimator_is_exported_as_a_pickle_or_a_file_of_skops(tmp_path: Path) -> None:
    pytest.importorskip("sklearn", minversion="1.6")
    io = pytest.importorskip("skops.io", reason="needs skops: pip install skops")
    model = fitted("sigmoid")
    results = [sv.export(model, tmp_path / name, format="sklearn") for name in ("model.pkl", "model.skops")]
    assert all("not the model's probabilities" in result.notices[0] for result in results)
    for name in ("model.pkl", "model.skops"):  # they are known for what they are
        sv.export(model, tmp_path / name, format="sklearn", overwrite=True)
        (tmp_path / name).write_bytes(b"PK other things")
        with pytest.raises(sv.ExistsError):
            sv.export(model, tmp_path / name, format="sklearn", overwrite=True)
        (tmp_path / name).unlink()
        sv.export(model, tmp_path / name, format="sklearn")
    pickled = pickle.loads((tmp_path / "model.pkl").read_bytes())
    trusted = io.get_untrusted_types(file=tmp_path / "model.skops")
    assert {name.partition(".")[0] for name in trusted} <= {"numpy", "pandas", "builtins", "operator"}
    stored = io.load(tmp_path / "model.skops", trusted=trusted)
    for found in (pickled, stored):
        agree(model, found.decision_function(TEST) + model.threshold, found.predict(TEST), model.predict_proba(TEST))
