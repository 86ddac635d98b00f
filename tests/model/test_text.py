"""Models as text: LIBLINEAR and LIBSVM themselves say what the model says, and their own models say here what they say there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from liblinear import liblinearutil
from libsvm import svmutil

import streamsvm as sv
from streamsvm.cli import main as cli
from streamsvm.features.expansion import Expansion
from streamsvm.model import Model
from streamsvm.rows import CSR, Dense
from tests.axes import each_value

RNG = np.random.default_rng(7)
X = RNG.normal(size=(200, 5)).astype(np.float32).astype(np.float64)
X[:, 3] *= RNG.random(200) < 0.3
TWO = np.where(X[:, 0] + 0.3 * X[:, 1] > 0.1, 1, -1)
THREE = np.digitize(X[:, 0] - X[:, 2], [-0.5, 0.7]) * 10 + 5
FOUR = np.digitize(X[:, 0] - X[:, 2], [-0.5, 0.2, 0.9]) * 10 + 5 * (X[:, 1] > 0.0)
FAR = X + np.array([0.0, 2.0**31, 0.0, 0.0, 0.0])


def fitted(folder: Path, rows: Any, y: Any, **options: Any) -> Model:
    sv.ingest(rows, folder / "rows.zarr", y=y, overwrite=True)
    result = sv.fit(folder / "rows.zarr", folder / "model.ssvm", overwrite=True, **options)
    found: Model = result.model
    return found


def exported(folder: Path, form: Any) -> str:
    return str(sv.export(folder / "model.ssvm", folder / f"{form}.model", format=form, overwrite=True).out)


def liblinear_says(path: str, rows: Any) -> tuple[Any, Any, Any]:
    """Labels (n,), decision values (n, problems) and the order of the labels."""
    model = liblinearutil.load_model(path)
    labels, _, values = liblinearutil.predict([], rows, model, "-q")
    return np.array(labels), np.array(values), model.get_labels()


def libsvm_says(path: str, rows: Any) -> tuple[Any, Any, Any]:
    """As ``liblinear_says``, with a column for each pair of classes."""
    model = svmutil.svm_load_model(path)
    labels, _, values = svmutil.svm_predict([], rows, model, "-q")
    return np.array(labels), np.array(values), model.get_labels()


LINEAR: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "two classes": (X, TWO, {}),
    "the other sign": (X, -TWO, {"loss": "hinge"}),
    "0 and 1": (X, (TWO > 0).astype(int), {"loss": "logistic"}),
    "three classes": (X, THREE, {}),
    "standardized": (X, TWO, {"standardize": True}),
    "no bias": (X, TWO, {"bias": 0.0}),
    "far from 0": (FAR, THREE, {"standardize": True}),
}


@pytest.mark.parametrize("name", LINEAR)
def test_model_text_liblinear_gives_the_decision_values_of_the_model(tmp_path: Path, name: str) -> None:
    rows, y, options = LINEAR[name]
    model = fitted(tmp_path, rows, y, **options)
    said, values, labels = liblinear_says(exported(tmp_path, "liblinear"), rows)
    ours = model.decision_function(rows).reshape(len(rows), -1)
    assert np.allclose(values, ours, rtol=1e-12, atol=1e-6 if rows is FAR else 1e-12)
    assert list(map(str, labels)) == list(model.classes if len(model.weights) > 1 else model.classes[::-1])
    assert np.array_equal(said, model.predict(rows))


@pytest.mark.parametrize("name", LINEAR)
def test_model_text_libsvm_gives_the_decision_values_of_a_linear_model(tmp_path: Path, name: str) -> None:
    rows, y, options = LINEAR[name]
    model = fitted(tmp_path, rows, y, **options)
    said, values, _ = libsvm_says(exported(tmp_path, "libsvm"), rows)
    ours = model.decision_function(rows)
    pairs = ours[:, None] if ours.ndim == 1 else np.column_stack([ours[:, a] - ours[:, b] for a, b in PAIRS])
    assert np.allclose(values, pairs, rtol=1e-12, atol=1e-6 if rows is FAR else 1e-12)
    assert np.array_equal(said, model.predict(rows))


PAIRS = ((0, 1), (0, 2), (1, 2))
KERNELS: dict[str, dict[str, Any]] = {
    "rbf, landmarks": {"kernel": "rbf", "landmarks": 40, "gamma": 0.25},
    "rbf": {"kernel": "rbf", "gamma": 0.25},
    "polynomial": {"kernel": "polynomial", "gamma": 0.5, "kernel_options": {"degree": 2, "coef0": 0.5}},
    "sigmoid, landmarks": {"kernel": "sigmoid", "gamma": 0.1, "landmarks": 30},
    "linear, landmarks": {"kernel": "linear", "landmarks": 30, "kernel_options": {"scale": 0.5}},
}


@pytest.mark.filterwarnings("ignore:the kernel Sigmoid:streamsvm.errors.StreamSVMWarning")
@each_value(("y", [TWO, THREE]), ("name", KERNELS))
def test_model_text_libsvm_gives_the_decision_values_of_a_kernel_model(tmp_path: Path, name: str, y: Any) -> None:
    model = fitted(tmp_path, X, y, **KERNELS[name])
    said, values, _ = libsvm_says(exported(tmp_path, "libsvm"), X)
    ours = model.decision_function(X)
    pairs = ours[:, None] if ours.ndim == 1 else np.column_stack([ours[:, a] - ours[:, b] for a, b in PAIRS])
    size = np.abs(model.weights).sum()
    assert np.abs(values - pairs).max() <= 1e-6 * size
    clear = np.abs(pairs).min(axis=1) > 1e-6 * size
    assert clear.sum() > 150
    assert np.array_equal(said[clear], model.predict(X)[clear])


def test_model_text_points_of_columns_far_from_0_are_moved_back(tmp_path: Path) -> None:
    model = fitted(tmp_path, FAR, TWO, kernel="rbf", gamma=0.25)
    assert model.offsets
    _, values, _ = libsvm_says(exported(tmp_path, "libsvm"), FAR)
    assert np.abs(values[:, 0] - model.decision_function(FAR)).max() <= 1e-6 * np.abs(model.weights).sum()
    assert np.array_equal(model.intercept, model.weights[:, -1])


def test_model_text_sparse_points_keep_to_their_columns(tmp_path: Path) -> None:
    points = CSR(np.array([2.0, -1.0, 0.5], np.float32), np.array([1, 4, 0], np.int32), np.array([0, 2, 3]))
    model = Model(np.array([[1.5, -2.0, 0.25]]), ("-1", "1"), {}, Expansion("rbf", {"gamma": 0.5}, points, 5))
    model.save(tmp_path / "model.ssvm")
    path = exported(tmp_path, "libsvm")
    assert np.allclose(libsvm_says(path, X)[1][:, 0], model.decision_function(X), atol=1e-6)
    assert Path(path).read_text().splitlines()[-2:] == ["1.5 2:2 5:-1", "-2 1:0.5"]


SOLVERS, CRAMMER_SINGER = range(8), 4


@each_value(("y", [TWO, -TWO, THREE]), ("bias", ["", "-B 2"]), ("solver", SOLVERS))
def test_model_text_of_liblinear_predicts_as_liblinear(tmp_path: Path, y: Any, bias: str, solver: int) -> None:
    theirs = liblinearutil.train(y, X, f"-s {solver} {bias} -q")
    liblinearutil.save_model(str(tmp_path / "theirs"), theirs)
    said, values, _ = liblinear_says(str(tmp_path / "theirs"), X)
    model = sv.load_model(tmp_path / "theirs")
    ours = model.decision_function(X).reshape(len(X), -1)
    assert np.array_equal(model.predict(X), said)
    if solver == CRAMMER_SINGER and len(model.classes) == 2:  # their f is of the first class alone, ours the difference
        text = (tmp_path / "theirs").read_text().partition("\nw\n")[2]
        pairs = np.array(text.split(), float).reshape(-1, 2)
        assert np.allclose(ours[:, 0], X @ (pairs[:5, 0] - pairs[:5, 1]) + 2.0 * (pairs[5:, 0] - pairs[5:, 1]).sum())
    else:
        assert np.allclose(ours, values, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("options", ["-t 0", "-t 1 -r 1 -d 2", "-t 2 -g 0.3", "-t 3 -g 0.1", "-s 1 -t 2 -b 1"])
def test_model_text_of_libsvm_predicts_as_libsvm(tmp_path: Path, options: str) -> None:
    svmutil.svm_save_model(str(tmp_path / "theirs"), svmutil.svm_train(TWO, X, options + " -q"))
    _, values, labels = libsvm_says(str(tmp_path / "theirs"), X)
    model = sv.load_model(tmp_path / "theirs")
    assert np.abs(model.decision_function(X) - values[:, 0]).max() <= 1e-6 * max(1.0, np.abs(model.weights).sum())
    assert model.classes == tuple(str(label) for label in labels[::-1])
    assert (model.kind == "linear") == ("-t 0" in options)


@pytest.mark.parametrize("options", ["-t 0", "-t 2 -g 0.3", "-t 1 -r 1 -d 2"])
def test_model_text_pairs_of_libsvm_vote_here_as_they_do_there(tmp_path: Path, options: str) -> None:
    svmutil.svm_save_model(str(tmp_path / "theirs"), svmutil.svm_train(FOUR, X, options + " -q"))
    said, values, labels = libsvm_says(str(tmp_path / "theirs"), X)
    model = sv.load_model(tmp_path / "theirs")
    assert model.classes == tuple(map(str, labels))
    assert np.abs(model.decision_function(X) - values).max() <= 1e-6 * max(1.0, np.abs(model.weights).sum())
    assert np.array_equal(model.predict(X), said)
    damaged = (tmp_path / "theirs").read_text().replace("nr_sv ", "nr_sv 1", 1)
    (tmp_path / "theirs").write_text(damaged)
    with pytest.raises(sv.DataError, match="nr_sv does not assign"):
        sv.load_model(tmp_path / "theirs")


@pytest.mark.parametrize(
    "settings", [{}, {"kernel": "rbf", "loss": "hinge"}, {"kernel": "rbf", "landmarks": 20}], ids=str
)
def test_model_text_libsvm_counts_the_votes_of_our_pairs(tmp_path: Path, settings: dict[str, Any]) -> None:
    model = fitted(tmp_path, X, FOUR, multi_class="ovo", **settings)
    said, values, labels = libsvm_says(exported(tmp_path, "libsvm"), X)
    assert list(map(str, labels)) == list(model.classes)
    assert np.allclose(values, model.decision_function(X), atol=1e-5)
    sure = np.abs(values).min(axis=1) > 1e-4
    assert np.array_equal(model.predict(X)[sure], said[sure])
    for form in ("liblinear", "onnx"):
        with pytest.raises(
            sv.UsageError, match="no kernels" if model.kind == "kernel" and form == "liblinear" else "vote"
        ):
            exported(tmp_path, form)


OF_NUMBERS: dict[str, dict[str, Any]] = {
    "tube": {"loss": "epsilon_insensitive"},
    "squared tube": {"loss": "squared_epsilon_insensitive", "standardize": True},
    "ridge": {"loss": "squared"},
    "exact kernel": {"loss": "epsilon_insensitive", "kernel": "rbf", "gamma": 0.3},
    "landmarks": {"loss": "pinball", "kernel": "rbf", "gamma": 0.3, "landmarks": 20},
}


@pytest.mark.parametrize(
    ("name", "form"),
    [(name, "libsvm") for name in OF_NUMBERS] + [(name, "liblinear") for name in ("tube", "squared tube", "ridge")],
)
def test_model_text_of_regression_predicts_the_same_there(tmp_path: Path, name: str, form: str) -> None:
    targets = X[:, 0] - 2.0 * X[:, 1] + 100.0
    sv.ingest(X, tmp_path / "rows.zarr", y=targets, task="regression")
    model = sv.fit(tmp_path / "rows.zarr", tmp_path / "model.ssvm", **OF_NUMBERS[name]).model
    path = exported(tmp_path, form)
    if form == "liblinear":
        there = liblinearutil.load_model(path)
        said = liblinearutil.predict([], X, there, "-q")[0]
    else:
        there = svmutil.svm_load_model(path)
        said = svmutil.svm_predict([], X, there, "-q")[0]
    assert np.allclose(said, model.predict(X), rtol=1e-9)


def test_model_text_command_goes_both_ways(tmp_path: Path) -> None:
    model = fitted(tmp_path, X, THREE)
    names = [str(tmp_path / name) for name in ("model.ssvm", "text", "back.ssvm", "again")]
    for source, target, form in zip(names, names[1:], ("liblinear", "streamsvm", "liblinear"), strict=False):
        assert CliRunner().invoke(cli.cli, ["export", source, target, "--format", form]).exit_code == 0
    back = sv.load_model(names[2])
    assert np.array_equal(back.weights, model.weights)
    assert back.classes == model.classes
    weights = [Path(names[k]).read_text().partition("\nw\n")[2] for k in (1, 3)]
    assert weights[0] == weights[1]
    assert CliRunner().invoke(cli.cli, ["export", names[0], names[1]]).exit_code == 73
    assert CliRunner().invoke(cli.cli, ["export", names[0], names[2], "--overwrite"]).exit_code == 73
    assert CliRunner().invoke(cli.cli, ["info", names[1]]).exit_code == 0


def test_model_text_files_are_predicted_by_a_model_of_liblinear(tmp_path: Path) -> None:
    liblinearutil.save_model(str(tmp_path / "theirs"), liblinearutil.train(TWO, X, "-B 1 -q"))
    lines = [
        " ".join([str(y), *(f"{j + 1}:{v:.9g}" for j, v in enumerate(x) if v)]) for y, x in zip(TWO, X, strict=True)
    ]
    (tmp_path / "rows.svm").write_text("\n".join(lines) + "\n")
    sv.predict(tmp_path / "theirs", str(tmp_path / "rows.svm"), tmp_path / "labels.csv")
    said = pd.read_csv(tmp_path / "labels.csv")["predicted_label"].to_numpy()
    assert np.array_equal(said, liblinear_says(str(tmp_path / "theirs"), X)[0])


def of(weights: Any, classes: tuple[str, ...] = ("-1", "1"), expansion: Any = None, **provenance: Any) -> Model:
    return Model(np.array(weights, np.float64), classes, provenance, expansion)


def expansion(kernel: str, parameters: dict[str, float], **scaling: Any) -> Expansion:
    return Expansion(kernel, parameters, Dense(np.ones((1, 2), np.float32)), 2, **scaling)


SCHEMA = {"schema": {"columns": [{"name": "a", "kind": "number"}, {"name": "color", "kind": "category"}]}}
ONES, TWOS = np.ones(2, np.float32), np.full(2, 2.0, np.float32)
REFUSED = {
    "words": ("liblinear", of([[1, 2, 3]], ("no", "yes")), "the class 'yes' is not a whole number"),
    "fractions": ("libsvm", of([[1, 2, 3]], ("0", "1.5")), "not a whole number"),
    "categories": ("liblinear", of([[1, 2, 3]], encoding=SCHEMA), "the column 'color' of the table is a category"),
    "kernel": ("liblinear", of([[1, 2]], expansion=expansion("rbf", {"gamma": 1.0})), "LIBLINEAR has no kernels"),
    "laplacian": ("libsvm", of([[1, 2]], expansion=expansion("laplacian", {"gamma": 1.0})), "no laplacian kernel"),
    "standardized": (
        "libsvm",
        of([[1, 2]], expansion=expansion("rbf", {"gamma": 1.0}, shift=ONES, scale=TWOS)),
        "cannot standardize",
    ),
    "moved": (
        "libsvm",
        of([[1, 2]], expansion=expansion("sigmoid", {"gamma": 1.0, "coef0": 0.0}, shift=ONES, scale=ONES)),
        "the sigmoid kernel of LIBSVM cannot express",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_model_text_what_a_format_cannot_hold_is_refused_and_nothing_is_written(tmp_path: Path, name: str) -> None:
    form, model, said = REFUSED[name]
    model.save(tmp_path / "model.ssvm")
    with pytest.raises(sv.UsageError, match=said) as found:
        exported(tmp_path, form)
    assert found.value.hint
    assert [path.name for path in tmp_path.iterdir()] == ["model.ssvm"]


LIBLINEAR = "solver_type L2R_LR\nnr_class 2\nlabel 1 -1\nnr_feature 2\nbias -1\nw\n0.5\n-0.25\n"
LIBSVM = (
    "svm_type c_svc\nkernel_type rbf\ngamma 0.5\nnr_class 2\ntotal_sv 2\nrho 0.1\nlabel 1 -1\nnr_sv 1 1\nSV\n"
    "1 1:0.5 2:1\n-1 2:0.25\n"
)
DAMAGED = [
    (LIBLINEAR, "L2R_LR", "L2R_L2LOSS_SVR", "not a classifier"),
    (LIBLINEAR, "L2R_LR", "ONECLASS_SVM", "not a classifier"),
    (LIBLINEAR, "nr_class 2", "nr_class 1", "nr_class is '1'"),
    (LIBLINEAR, "label 1 -1\n", "", "'label' is missing"),
    (LIBLINEAR, "label 1 -1", "label 1 +1", "not different whole numbers"),
    (LIBLINEAR, "nr_feature 2", "nr_feature 3", "2 weights for 3 columns"),
    (LIBLINEAR, "nr_feature 2", "nr_feature 99999999999999", "2 weights"),
    (LIBLINEAR, "bias -1", "bias 1", "2 weights for 2 columns"),
    (LIBLINEAR, "-0.25", "nan", "not all finite"),
    (LIBLINEAR, "-0.25", "x", "not all numbers"),
    (LIBLINEAR, "w\n", "v\n", "no line 'w'"),
    (LIBLINEAR, "LR", "\u00fcber", "not text"),
    (LIBSVM, "c_svc", "epsilon_svr", "not a classifier"),
    (LIBSVM, "rbf", "precomputed", "a precomputed kernel"),
    (LIBSVM, "nr_class 2", "nr_class 3", "another length"),
    (LIBSVM, "total_sv 2", "total_sv 3", "2 support vectors and should have 3"),
    (LIBSVM, "gamma 0.5\n", "", "'gamma' is missing"),
    (LIBSVM, "1 1:0.5 2:1", "1 0:0.5 2:1", "must ascend"),
    (LIBSVM, "1 1:0.5 2:1", "1 2:0.5 1:1", "must ascend"),
    (LIBSVM, "1 1:0.5 2:1", "1 1:0.5 99999999999:1", "must ascend"),
    (LIBSVM, "1 1:0.5 2:1", "1 1:0.5 100000001:1", "must ascend"),
    (LIBSVM, "1 1:0.5 2:1", f"1 1:0.5 {'9' * 5000}:1", "INDEX:VALUE"),
    (LIBSVM, "2:0.25", "2:1_0", "underscores"),
    (LIBSVM, "1 1:0.5 2:1", "1 1=0.5", "INDEX:VALUE"),
    (LIBSVM, "2:0.25", "2:1e39", "float32"),
]


@pytest.mark.parametrize(
    ("text", "old", "new", "said"), DAMAGED, ids=[f"{new.strip()[:20]}{k}" for k, (_, _, new, _) in enumerate(DAMAGED)]
)
def test_model_text_that_is_none_is_refused(tmp_path: Path, text: str, old: str, new: str, said: str) -> None:
    path = tmp_path / "text"
    path.write_text(text)
    assert sv.load_model(path).columns == 2
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(sv.DataError, match=said) as found:
        sv.load_model(path)
    assert found.value.code == "E-MODEL"
