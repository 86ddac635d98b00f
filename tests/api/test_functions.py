"""The functions of the package are the commands: the same options, defaults and errors, found under names one can guess."""

from __future__ import annotations

import copy
import inspect
import os
import pickle
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pytest
import scipy.sparse
from click.testing import CliRunner

import streamsvm as sv
from streamsvm.api.functions import COMMANDS, MORE_FILES, SYNONYMS, WITH_ROWS, python_parameters
from streamsvm.api.inputs import parameter_name
from streamsvm.api.wording import to_python
from streamsvm.cli import main as cli
from streamsvm.config.command_table import STEPS
from streamsvm.jobs.apply import decision_values
from streamsvm.sklearn import StreamRows, StreamSVC
from tests.tables import NAMES, passengers, write_csv

REPOSITORY = Path(__file__).parent.parent.parent


def table(path: Path) -> Path:
    """A CSV file with numbers, words, missing values and a name a row."""
    rows = [row | {"name": f"p{k}"} for k, row in enumerate(passengers(200, 0))]
    return write_csv(path, rows, (*NAMES, "left", "name"))


def run(*words: str) -> Any:
    return CliRunner().invoke(cli.cli, list(words))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store, its test store and a model."""
    folder = tmp_path_factory.mktemp("place")
    sv.synth("susy", folder / "train.zarr", rows=2000, test_fraction=0.2)
    sv.fit(folder / "train.zarr", folder / "model.ssvm", C=10)
    return folder


def test_api_model_is_opened_without_what_only_fits_need(place: Path) -> None:
    code = f"import sys, streamsvm; streamsvm.load_model({str(place / 'model.ssvm')!r}); print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, check=True, capture_output=True, text=True)
    assert not {"dask", "pyarrow", "pandas", "sklearn", "rich", "click"} & set(found.stdout.split())


def test_api_every_public_name_is_there_and_is_documented() -> None:
    assert set(sv.__all__) <= set(dir(sv))
    for name in set(sv.__all__) - {"__version__"}:
        assert inspect.getdoc(getattr(sv, name)), name
    with pytest.raises(AttributeError, match="did you mean 'load_model'"):
        sv.load_modl  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize("step", COMMANDS)
def test_api_function_has_every_option_with_its_default(step: str) -> None:
    parameters = inspect.signature(getattr(sv, step)).parameters
    declared = {parameter_name(field): field for field in STEPS[step].fields if field.name not in MORE_FILES}
    of_rows = set(WITH_ROWS.get(step, ()))
    known = set(declared) | set(python_parameters(step)) | of_rows
    assert set(parameters) == known | {word for word, (name, _) in SYNONYMS.items() if name in known}
    for name, field in declared.items():
        if (step, name) not in {
            ("fit", "model"),
            ("tune", "out"),
        }:  # rows may be trained on without a place for the result
            assert parameters[name].default == (inspect.Parameter.empty if field.required else field.default)
        assert name in of_rows or to_python(field.help(), step) in (getattr(sv, step).__doc__ or "")


@pytest.mark.parametrize("step", COMMANDS)
def test_api_defaults_of_a_function_can_be_given(step: str) -> None:
    """What help shows as the default is a value the function takes, and means the same as leaving it out."""
    from streamsvm.api.functions import convert_options
    from streamsvm.config.command_table import make_job

    needed: dict[str, Any] = {field.name: f"a{k}.csv" for k, field in enumerate(STEPS[step].fields) if field.required}
    needed |= {"name": "susy"} if "name" in needed else {}
    stated = {parameter_name(field): field.default for field in STEPS[step].fields if not field.required}
    bare = make_job(step, convert_options(step, needed, "f"))
    assert make_job(step, convert_options(step, {**needed, **stated}, "f")) == bare


def test_api_options_mean_what_they_mean_on_the_command_line(place: Path) -> None:
    store, one, other = (str(place / name) for name in ("train.zarr", "one.ssvm", "other.ssvm"))
    words = "--C 0.1,1 --memory 1GiB --time-limit 1h --class-weight=-1=2,1=1 --standardize --seed 3"
    assert run("fit", store, one, *shlex.split(words)).exit_code == 0
    values: dict[str, Any] = {
        "C": np.array([0.1, 1]),
        "seed": np.int64(3),
        "memory": "1GiB",
        "time_limit": "1h",
        "class_weight": {-1: 2, 1.0: np.float32(1)},
    }
    found = sv.fit(store, other, **values, standardize=True)
    for C in (0.1, 1):
        assert (
            sv.load_model(place / f"one.C={C:g}.ssvm")
            == found.models[C]
            == sv.load_model(place / f"other.C={C:g}.ssvm")
        )


def test_api_names_of_fields_and_of_flags_both_do(place: Path) -> None:
    by_flag = sv.plan(place / "train.zarr", lambda_=1e-3).problems[0].C
    assert by_flag == sv.plan(str(place / "train.zarr"), C=None, lambda_=1e-3).problems[0].C == 1 / (1e-3 * 1600)
    source = table(place / "ids.csv")
    spellings: list[dict[str, Any]] = [{"id": "name", "chunk": "64KiB"}, {"id_column": "name", "chunk_bytes": 65536}]
    for number, options in enumerate(spellings):
        found = sv.ingest(source, place / f"ids{number}.zarr", label="left", missing="mean", **options)
        assert found.store.name == f"ids{number}.zarr"
    assert sv.open_store(place / "ids0.zarr").digest == sv.open_store(place / "ids1.zarr").digest


def test_api_words_of_scikit_learn_are_taken_with_the_same_meaning(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(200, 3))
    y, weight = X[:, 0] > 0, np.arange(200) % 3
    ours: dict[str, Any] = {"weight": weight, "seed": 3, "threads": 1, "solver": "sgd", "loss": "hinge"}
    theirs: dict[str, Any] = {"sample_weight": weight, "random_state": 3, "n_jobs": 1, "solver": "sgd", "loss": "hinge"}
    expected = sv.fit(X, y=y, **ours).model
    for given in (theirs, ours | theirs):
        assert np.array_equal(sv.fit(X, y=y, **given).model.weights, expected.weights)
    assert not np.array_equal(sv.fit(X, y=y, **theirs | {"random_state": 4}).model.weights, expected.weights)
    sv.ingest(X, tmp_path / "s.zarr", y=y, verbose=False)
    assert sv.plan(tmp_path / "s.zarr", n_jobs=-1).memory.threads == sv.plan(tmp_path / "s.zarr").memory.threads
    found = sv.tune(tmp_path / "s.zarr", tmp_path / "t", C=[0.1, 1.0], cv=2, scoring="auc")
    assert (len(found.best.folds), found.measure.name) == (2, "auc")
    with pytest.raises(sv.UsageError, match="seed=3 and random_state=4 are two names of one parameter"):
        sv.fit(X, y=y, seed=3, random_state=4)
    with pytest.raises(sv.UsageError, match=r"weight=.* and sample_weight="):
        sv.fit(X, y=y, weight=weight, sample_weight=weight + 1)
    with pytest.raises(sv.StreamSVMError, match="has no option 'cv'"):
        sv.fit(X, y=y, cv=3)  # type: ignore[call-arg]


def test_api_errors_of_models_name_parameters(tmp_path: Path) -> None:
    """A model is asked in a program: what is wrong is said in its words, and not in options of the command line."""
    X = np.random.default_rng(0).normal(size=(60, 2))
    plain = sv.fit(X, y=X[:, 0] > 0).model
    pairs = sv.fit(X, y=np.arange(60) % 3, multi_class="ovo").model
    for call, part in (
        (lambda: plain.predict_proba(X), "calibrate='sigmoid'"),
        (pairs.to_sklearn, "multi_class='ovr'"),
        (lambda: sv.load_model(tmp_path / "gone"), "sv.fit"),
        (lambda: plain.predict(np.full((2, 2), np.nan)), "missing='mean'"),
    ):
        with pytest.raises(sv.StreamSVMError) as refused:
            call()
        assert part in str(refused.value.hint)
        assert "--" not in f"{refused.value.message}{refused.value.hint}"


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"tolerence": 1e-3}, "did you mean 'tolerance'"),
    ({"loss": "hing"}, "did you mean 'hinge'"),
    ({"tolerance": -1}, "'tolerance' cannot be -1"),
    ({"memory": "1GB5"}, "is not a size"),
    ({"C": 1, "lambda_": 1}, "both C and lambda"),
    ({"C": "high"}, "Expected `float"),
    ({"at_limit": "go on"}, "choose from certify, stop"),
]


@pytest.mark.parametrize(("options", "said"), WRONG, ids=[next(iter(options)) for options, _ in WRONG])
def test_api_what_is_wrong_is_said_before_anything_is_done(place: Path, options: dict[str, Any], said: str) -> None:
    with pytest.raises(sv.StreamSVMError, match=said) as found:
        sv.fit(place / "train.zarr", place / "never.ssvm", **options)
    assert found.value.hint
    assert not list(place.glob("never*"))


def test_api_too_many_and_doubled_arguments_are_what_they_are_in_python(place: Path) -> None:
    untyped: Any = sv.fit
    with pytest.raises(TypeError, match="too many positional"):
        untyped("a", "b", "c")
    with pytest.raises(TypeError, match="several values for store"):
        sv.fit("a", "b", store="c")  # type: ignore[misc]
    with pytest.raises(sv.ConfigError, match="'store' is missing"):
        sv.plan()  # type: ignore[call-arg]


def test_api_events_reach_the_caller_and_nobody_else(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    events: list[dict[str, Any]] = []
    sv.fit(place / "train.zarr", place / "told.ssvm", on_event=events.append)
    assert [event["event"] for event in events].count("pass") == events[-1]["passes"]
    assert capfd.readouterr() == ("", "")


def test_api_caller_is_told_of_every_pass(place: Path) -> None:
    told: list[dict[str, Any]] = []
    found = sv.fit(place / "train.zarr", place / "passes.ssvm", C=[0.1, 1.0], solver="dcd", on_pass=told.append)
    assert [record["pass"] for record in told] == list(range(1, found.training.passes + 1))
    assert told[0]["problems"] == 2
    assert told[-1]["exact"]
    assert told[-1]["gap"] == pytest.approx(max(run.certificate.gap for run in found.training.runs), rel=0.5)


def test_api_uncertified_fit_warns_or_with_strict_fails(place: Path) -> None:
    options: dict[str, Any] = {"solver": "dcd", "C": 100.0, "max_passes": 1, "tolerance": 1e-9}
    with pytest.warns(sv.StreamSVMWarning, match="not certified") as found:
        result = sv.fit(place / "train.zarr", place / "short.ssvm", **options)
    assert found[0].filename == __file__
    assert result.warnings == tuple(str(one.message) for one in found)
    with pytest.raises(sv.UncertifiedError):
        sv.fit(place / "train.zarr", place / "strict.ssvm", strict=True, **options)


@pytest.mark.parametrize("times", [1, 2])
def test_api_ctrl_c_leaves_a_run_that_goes_on_and_the_process_as_it_was(place: Path, times: int) -> None:
    """In the notebook's process: handlers are those of before, and the same call with ``resume`` ends as if it never was."""
    options: dict[str, Any] = {"solver": "dcd", "C": 100.0, "tolerance": 1e-7, "max_passes": 200}
    model = place / f"stopped{times}.ssvm"
    seen = 0

    def interrupt(event: dict[str, Any]) -> None:
        nonlocal seen
        seen += event["event"] == "pass"
        if event["event"] == "pass" and seen == 3:
            for _ in range(times):
                signal.raise_signal(signal.SIGINT)

    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with pytest.raises(sv.InterruptedRun if times == 1 else KeyboardInterrupt):
        sv.fit(place / "train.zarr", model, on_event=interrupt, **options)
    assert before == [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with pytest.warns(sv.StreamSVMWarning):
        resumed = sv.fit(place / "train.zarr", model, resume=True, **options)
    with pytest.warns(sv.StreamSVMWarning):
        assert resumed.model == sv.fit(place / "train.zarr", place / f"whole{times}.ssvm", **options).model


def test_api_threads_fit_side_by_side_and_leave_signals_alone(place: Path) -> None:
    handlers, models = set(), {}

    def work(k: int) -> None:
        heard: list[Any] = []
        models[k] = sv.fit(
            place / "train.zarr", place / f"thread{k}.ssvm", C=k, on_event=lambda e: heard.append(signal.getsignal(2))
        ).model
        handlers.update(heard)

    threads = [threading.Thread(target=work, args=(k,)) for k in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert handlers == {signal.getsignal(signal.SIGINT)}
    for k, model in models.items():
        assert model == sv.fit(place / "train.zarr", place / f"alone{k}.ssvm", C=k).model


@pytest.fixture(scope="module")
def model(place: Path) -> sv.Model:
    return sv.load_model(place / "model.ssvm")


def test_api_models_pickle_copy_and_compare(place: Path, model: sv.Model) -> None:
    kernel = sv.fit(place / "train.zarr", place / "kernel.ssvm", kernel="rbf", landmarks=20, C=1).model
    for one in (model, kernel):
        for other in (pickle.loads(pickle.dumps(one)), copy.copy(one), copy.deepcopy(one)):
            assert other == one
            assert hash(other) == hash(one)
    assert model != kernel
    assert model != 3


def test_api_model_says_the_same_of_arrays_sparse_rows_and_stores(place: Path, model: sv.Model) -> None:
    store = sv.open_store(place / "train.test.zarr")
    buffers = store.buffers()
    rows = []
    for chunk in range(len(store.layout.chunks)):
        store.fetch(chunk, buffers)
        rows.append(store.check(chunk, buffers).X.values.copy())
    X = np.concatenate(rows)
    expected = model.decision_function(place / "train.test.zarr")
    frozen = X.astype(np.float64)
    frozen.flags.writeable = False
    for same in (X, frozen, np.asfortranarray(X), X.tolist()):
        assert np.array_equal(model.decision_function(same), expected)
    for form in (scipy.sparse.csr_matrix, scipy.sparse.csc_array, scipy.sparse.coo_array):
        assert np.allclose(model.decision_function(form(X)), expected, rtol=1e-12, atol=1e-12)
    assert np.array_equal(model.predict(X), np.where(expected > 0, 1, -1))


def test_api_sparse_rows_of_the_caller_stay_as_they_are(model: sv.Model) -> None:
    X = scipy.sparse.csr_array((np.ones(3), np.array([5, 2, 2]), np.array([0, 3])), shape=(1, 18))
    model.decision_function(X)
    assert X.indices.tolist() == [5, 2, 2]


@pytest.mark.parametrize(
    ("X", "said"),
    [
        (np.zeros((2, 5)), "X has 5 columns, the model 18"),
        (np.full((2, 18), np.nan), "X row 1, column 1: nan is not finite"),
        (np.zeros(18), r"expected \(rows, columns\)"),
        (np.array([["a"] * 18]), "holds text"),
    ],
)
def test_api_rows_no_model_can_answer_for_are_refused(model: sv.Model, X: Any, said: str) -> None:
    with pytest.raises(sv.DataError, match=said):
        model.decision_function(X)


def test_api_weights_are_in_the_units_of_the_columns_and_add_up(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[str, Any] = {"label": "left", "missing": "mean", "drop": "name"}
    sv.ingest(table(place / "units.csv"), place / "units.zarr", **options)
    found = sv.fit(place / "units.zarr", place / "units.ssvm", standardize=True).model
    X = np.random.default_rng(0).normal(size=(7, found.columns))
    told = found.explain(X)
    assert told.names == found.names
    f = found.decision_function(X.astype(np.float32))
    assert np.allclose(X.astype(np.float32) @ found.coef[0] + found.intercept[0], f)
    assert told.contributions is not None
    assert np.allclose(told.contributions.sum(axis=2) + told.intercept, f[:, None])
    assert told.largest()[0][0] in str(told)
    assert abs(told.of_row(0)[0][1]) == np.abs(told.contributions[0]).max()
    sparse = found.explain(scipy.sparse.csr_array(X)).contributions
    assert sparse is not None
    assert np.array_equal(sparse, told.contributions)
    rows = pyarrow.csv.read_csv(place / "units.csv").slice(0, 5)
    parts = found.explain(rows).contributions
    assert parts is not None
    assert np.allclose(parts.sum(axis=2)[:, 0] + found.intercept[0], found.decision_function(rows))
    monkeypatch.setattr(decision_values, "MAX_CONTRIBUTION_BYTES", 8 * found.columns * 4)
    with pytest.raises(sv.UsageError, match="contributions of 7 rows") as caught:
        found.explain(X)
    assert "explain 4 rows at a time" in caught.value.hint


def test_api_coefficients_are_a_frame_by_columns_of_the_table() -> None:
    """Of a category each value has one, of what is missing the column of its marks; shares add up to 1, of rows by what moves f."""
    rng = np.random.default_rng(0)
    city = np.where(rng.random(400) < 0.5, "rome", "oslo")
    frame = pd.DataFrame({"age": rng.normal(40.0, 10.0, 400), "city": city, "day": pd.Timestamp("2020-01-01")})
    frame["day"] += pd.to_timedelta(rng.integers(0, 900, 400), "D")
    frame.loc[3, "age"] = np.nan
    model = sv.fit(frame, y=(frame["age"] > 42) ^ (city == "rome"), missing="indicator").model
    found = model.coefficients()
    assert set(zip(found["column"], found["value"], strict=True)) >= {
        ("age", ""), ("age", "missing"), ("city", "rome"), ("city", "oslo"), ("day", "weekday mon"), ("day", "month 12"),
    }  # fmt: skip
    assert found["share"].sum() == pytest.approx(1.0)
    assert sorted(found["coefficient"]) == sorted(model.coef[0])
    moved = model.coefficients(frame)
    contributions = model.explain(frame).contributions
    assert contributions is not None
    largest = contributions[:, 0].std(axis=0).argmax()
    assert moved["coefficient"][0] == model.coef[0, largest]


def test_api_coefficients_name_categories_as_the_table_has_them() -> None:
    values = [".NET", ", maybe", "=", "C=C", "C"]
    frame = pd.DataFrame({"of": np.array(values)[np.arange(200) % len(values)]})
    found = sv.fit(frame, y=np.arange(200) % len(values) == 0).model.coefficients()
    assert sorted(found["value"]) == sorted(values)


def test_api_kernel_model_has_no_weights_of_columns(place: Path) -> None:
    kernel = sv.fit(place / "train.zarr", place / "points.ssvm", kernel="rbf", landmarks=10).model
    with pytest.raises(sv.UsageError, match="no weights of columns"):
        kernel.explain()
    assert kernel.certificate.gap <= 1e-3


def test_api_certificate_of_a_model_is_the_worst_of_its_problems(model: sv.Model) -> None:
    assert model.certificate.primal == pytest.approx(model.certificate.dual, rel=1e-3)
    assert model.certificate == max(model.certificates, key=lambda one: one.gap)
    bare = sv.Model(np.zeros((1, 3)), ("0", "1"))
    with pytest.raises(sv.UsageError, match="no certificate"):
        bare.certificate  # noqa: B018


@pytest.fixture(scope="module")
def fitted_to_arrays(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any, Any, Any]:
    """A folder, rows, their labels, and the result of a fit to them that named no file."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    y = (X[:, 0] > 0).astype(int)
    folder = tmp_path_factory.mktemp("arrays")
    sv.ingest(X, folder / "s.zarr", y=y)
    return folder, X, y, sv.fit(X, y=y)


def test_api_model_its_result_and_its_file_are_taken_alike(fitted_to_arrays: Any, tmp_path: Path) -> None:
    folder, X, y, result = fitted_to_arrays
    named: Any = sv.fit(folder / "s.zarr", tmp_path / "m")
    result.model.save(tmp_path / "saved")
    written, shown = set(), set()
    for number, given in enumerate((result, result.model, tmp_path / "saved", str(tmp_path / "saved"))):
        sv.export(given, tmp_path / f"e{number}")
        sv.predict(given, folder / "s.zarr", tmp_path / f"p{number}.csv")
        written.add(((tmp_path / f"e{number}").read_bytes(), (tmp_path / f"p{number}.csv").read_bytes()))
        shown |= {
            sv.evaluate(given, rows, **more).evaluation.accuracy
            for rows, more in ((folder / "s.zarr", {}), (X, {"y": y}))
        }
        again = sv.fit(folder / "s.zarr", tmp_path / f"w{number}", warm_start=given, solver="newton")
        assert np.allclose(again.model.weights, result.model.weights, atol=1e-2)
    assert len(written) == len(shown) == 1
    sv.evaluate(named, folder / "s.zarr")
    assert (tmp_path / "m.run" / "evaluation.json").is_file()
    for number, run in enumerate((named, [named, str(tmp_path / "m")], tmp_path / "m")):
        assert sv.report(run, tmp_path / f"page{number}.html").bytes > 0
    with pytest.raises(sv.UsageError, match="no record of its run"):
        sv.report(result, tmp_path / "none.html")


def test_api_interrupted_fit_to_arrays_says_what_is_kept(fitted_to_arrays: Any, tmp_path: Path) -> None:
    _, X, y, _ = fitted_to_arrays
    options: dict[str, Any] = {"solver": "dcd", "tolerance": 1e-12, "loss": "hinge"}

    def stop(record: dict[str, Any]) -> None:
        if record["pass"] == 2:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(sv.InterruptedRun, match="nothing of it is kept") as lost:
        sv.fit(X, y=y, on_pass=stop, **options)
    with pytest.raises(sv.InterruptedRun, match="checkpoint saved") as kept:
        sv.fit(X, tmp_path / "m", y=y, on_pass=stop, **options)
    for error in (lost.value, kept.value):
        assert "streamsvm fit" not in str(error)
        assert tempfile.gettempdir() + "/streamsvm-" not in str(error)
        assert "resume=True" in error.hint
    with pytest.warns(sv.StreamSVMWarning, match="all 5 passes"):
        resumed: Any = sv.fit(X, tmp_path / "m", y=y, resume=True, max_passes=5, **options)
    assert resumed.training.passes == 5


def test_api_rows_where_a_store_or_a_model_is_named_are_refused(fitted_to_arrays: Any, tmp_path: Path) -> None:
    _, X, y, result = fitted_to_arrays
    for call in (
        lambda: sv.predict(result, X, tmp_path / "p"),
        lambda: sv.predict(result, pa.table({"a": X[:, 0]}), tmp_path / "p"),
        lambda: sv.embed(X, tmp_path / "e", landmarks=5),
        lambda: sv.plan(X),
    ):
        with pytest.raises(sv.UsageError, match="cannot be the rows themselves") as refused:
            call()
        assert "sv.ingest" in refused.value.hint
    wrong: Any
    for wrong in (3, {"a": 1}, X):
        with pytest.raises(sv.UsageError, match="is not a model"):
            sv.evaluate(wrong, X, y=y)


def test_api_results_are_a_line_and_a_table(tmp_path: Path) -> None:
    """A result in a terminal or a notebook says what matters, and not every array of it."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    y = np.where(X[:, 0] > 0.0, "<b>yes", "no")
    ingested = sv.ingest(X, tmp_path / "s.zarr", y=y)
    fitted = sv.fit(tmp_path / "s.zarr", tmp_path / "m.ssvm")
    results: list[Any] = [
        ingested,
        fitted,
        fitted.model,
        sv.open_store(tmp_path / "s.zarr"),
        sv.plan(tmp_path / "s.zarr"),
        sv.evaluate(tmp_path / "m.ssvm", tmp_path / "s.zarr"),
        sv.predict(tmp_path / "m.ssvm", str(tmp_path / "s.zarr"), tmp_path / "p.csv"),
        sv.tune(tmp_path / "s.zarr", tmp_path / "t", C=[0.1, 1.0], folds=2),
    ]
    expected = ("rows 200", "gap", "3 columns", "200 rows x 3", "solver newton", "accuracy 0.9", "rows 200", "best C")
    for result, part in zip(results, expected, strict=True):
        assert part in repr(result)
        assert "\n" not in repr(result)
        assert len(repr(result)) < 500
    assert "<th>rows</th><td>200</td>" in ingested._repr_html_()
    for shown in (fitted.training, fitted.model.explain(X), StreamRows(tmp_path / "s.zarr")):
        assert len(repr(shown)) < 300
    for result in (*results, fitted.model.explain()):
        assert "<table>" in result._repr_html_()
        assert "<b>" not in result._repr_html_().replace("srcdoc", "")
    drawn = sv.fit(tmp_path / "s.zarr", tmp_path / "d.ssvm", report=tmp_path / "d.html")
    assert f'<a href="{(tmp_path / "d.html").as_posix()}">' in drawn._repr_html_()
    assert "95 % interval" in repr(results[5])


def test_api_messages_are_in_the_words_of_the_face(tmp_path: Path) -> None:
    """A function is told parameters and not options, and an estimator where rows with such options are stored."""
    rows = pd.DataFrame({"a": [0.0, None] * 4, "y": [0, 1] * 4})
    with pytest.raises(sv.DataError, match="missing") as refused:
        sv.ingest(rows, tmp_path / "s.zarr", y="y")
    assert "missing='mean'" in refused.value.hint
    frame = pd.DataFrame({"a": np.arange(8.0), "b": pd.Series([None, "x"] * 4), "c": [["1"]] * 8})
    with pytest.raises(ValueError, match="column 'c'") as caught:
        StreamSVC().fit(frame, np.arange(8) % 2)
    assert "--" not in str(caught.value)
    assert "leave it out with DataFrame.drop(columns='c')" in str(caught.value)


@pytest.mark.parametrize(
    ("said", "spelled"),
    [
        ("pass --missing mean, zero or indicator, or leave it out with --drop", "pass missing='mean', zero or indicator, or leave it out with 'drop'"),
        ("--drop v leaves it out", "drop='v' leaves it out"),
        ("a larger --max-passes, or another --solver", "a larger 'max_passes', or another 'solver'"),
        ("use --memory 512MiB", "use memory='512MiB'"),
        ("pass --sort", "pass sort=True"),
        ("pass --index-base 0", "pass index_base=0"),
        ("more for --memory-limit of the worker", "more for --memory-limit of the worker"),
        ("create one with 'streamsvm ingest' or 'streamsvm synth'", "create one with sv.ingest or sv.synth"),
        ("choose settings by streamsvm tune", "choose settings by sv.tune"),
        ("; see 'streamsvm fit --help'", "; see help(sv.fit)"),
    ],
)  # fmt: skip
def test_api_options_in_messages_are_spelled_as_parameters(said: str, spelled: str) -> None:
    assert to_python(said, "ingest") == spelled


def test_api_messages_spell_an_option_as_the_function_has_it(tmp_path: Path) -> None:
    """Of ``format``, which ``ingest`` has too, the values are those of ``export``."""
    X = np.random.default_rng(0).normal(size=(60, 2))
    model = sv.fit(X, y=np.arange(60) % 2, landmarks=10, gamma=1.0).model
    with pytest.raises(sv.UsageError) as refused:
        sv.export(model, tmp_path / "m.txt", format="liblinear")
    assert "format='libsvm'" in refused.value.hint
