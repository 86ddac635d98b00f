"""StreamSVC beside scikit-learn's own, inside its tools, and in corners the contract does not look into."""

from __future__ import annotations

import pickle
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from tests.axes import each_value

pytest.importorskip("sklearn", minversion="1.6")
from joblib import Parallel, delayed
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.datasets import make_classification
from sklearn.exceptions import ConvergenceWarning
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import LinearSVC, NuSVC

import streamsvm as sv
from streamsvm.config.options import options_of
from streamsvm.errors import UsageError
from streamsvm.jobs.fit.options import FitJob
from streamsvm.sklearn import StreamSVC
from streamsvm.sklearn.base import OPTION

X, Y = make_classification(300, 8, n_informative=5, n_classes=3, random_state=0)
BINARY = np.where(Y == 1, "in", "out")


@pytest.mark.parametrize("y", [BINARY, Y], ids=["two classes", "three classes"])
def test_svc_optimum_is_that_of_liblinear(y: Any) -> None:
    ours, theirs = StreamSVC(C=0.5).fit(X, y), LinearSVC(C=0.5, tol=1e-10, max_iter=100_000).fit(X, y)
    assert np.allclose(ours.coef_, theirs.coef_, atol=1e-5)
    assert np.allclose(ours.decision_function(X), theirs.decision_function(X), atol=1e-5)
    assert np.array_equal(ours.predict(X), theirs.predict(X))


def test_svc_nu_finds_the_c_of_its_share_of_rows() -> None:
    found = StreamSVC(nu=0.4, bias=30.0, tolerance=1e-6).fit(X, BINARY)
    theirs = NuSVC(nu=0.4, kernel="linear", tol=1e-8).fit(X, BINARY)
    scale = np.abs(theirs.decision_function(X)).max()
    assert np.allclose(
        found.decision_function(X), theirs.decision_function(X), atol=0.02 * scale
    )  # its constant is free
    margins = np.where(BINARY == found.classes_[1], 1.0, -1.0) * found.decision_function(X)
    assert np.mean(margins < 1.0 - 1e-3) <= 0.4 <= np.mean(margins < 1.0 + 1e-3)
    with pytest.raises(ValueError, match="leave nu out"):
        StreamSVC(nu=0.4, solver="sgd").partial_fit(X, BINARY, classes=["in", "out"])
    with pytest.raises(ValueError, match="not for exact kernels"):
        StreamSVC(nu=0.4, kernel="rbf").fit(X, BINARY)


def test_svc_small_fit_is_exact_whatever_the_tolerance() -> None:
    crude, fine = StreamSVC(tolerance=0.5).fit(X, BINARY), StreamSVC(tolerance=1e-9).fit(X, BINARY)
    assert np.allclose(crude.decision_function(X), fine.decision_function(X), rtol=1e-9)
    assert crude.gap_ < 1e-9


@pytest.mark.parametrize("loss", ["squared_hinge", "huber"])
def test_svc_weights_are_copies_and_zero_is_absence(loss: Any) -> None:
    weight = np.random.default_rng(0).integers(0, 4, len(X))
    cases: tuple[tuple[Any, float], ...] = ((None, 1e-10), ("balanced", 1e-6))  # factors of classes are float32
    for balanced, error in cases:
        estimator = StreamSVC(loss=loss, class_weight=balanced)
        one = estimator.fit(X, Y, sample_weight=weight).decision_function(X)
        other = estimator.fit(np.repeat(X, weight, axis=0), np.repeat(Y, weight)).decision_function(X)
        assert np.allclose(one, other, rtol=error, atol=error)


@pytest.mark.parametrize("form", [scipy.sparse.csr_matrix, scipy.sparse.csc_array, scipy.sparse.coo_array])
def test_svc_sparse_rows_of_any_form_and_index_type_are_the_same_rows(form: Any) -> None:
    S = form(X)
    wide = scipy.sparse.csr_array(X)
    wide.indices, wide.indptr = wide.indices.astype(np.int64), wide.indptr.astype(np.int64)
    dense, one, other = (StreamSVC().fit(rows, Y).decision_function(X) for rows in (X, S, wide))
    assert np.allclose(dense, one, rtol=1e-7)
    assert np.array_equal(one, other)


def test_svc_certificate_is_on_show() -> None:
    found = StreamSVC().fit(X, Y)
    assert found.gap_ == found.model_.certificate.gap <= 1e-3
    assert found.primal_ >= found.dual_ - 1e-9 * found.primal_
    assert found.n_passes_ >= 1
    assert found.peak_memory_ > 1 << 20
    assert found.model_.classes == ("0", "1", "2")


def test_svc_short_fits_warn_as_fits_do_there() -> None:
    with pytest.warns(ConvergenceWarning, match="not certified"):
        StreamSVC(solver="dcd", C=100, max_passes=1, tolerance=1e-9).fit(X, BINARY)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"loss": "hing"}, "did you mean 'hinge'"),
        ({"C": -1.0}, "'C' cannot be -1.0"),
        ({"solver": "dc"}, "did you mean 'dcd'"),
        ({"options": {"sweep": 3}, "solver": "dcd"}, "no setting 'sweep'"),
        ({"class_weight": "even"}, "class_weight"),
    ],
)
def test_svc_what_is_wrong_is_said_when_it_is_fitted(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        StreamSVC(**options).fit(X, BINARY)


def test_svc_fit_too_large_for_its_memory_is_refused() -> None:
    with pytest.raises(sv.BudgetError, match="is not enough"):
        StreamSVC(memory="1MiB").fit(X, BINARY)


def test_svc_parameters_are_options_of_the_command() -> None:
    """A default that differs from the command line's would be a second declaration."""
    declared = {field.name: field.default for field in options_of(FitJob)}
    checked = []
    for field in fields(StreamSVC):
        name = field.metadata.get(OPTION, (field.name, None))[0]
        if name and name != "C":  # None there, which stands for 1
            assert field.default in (declared[name], None) or (field.default, declared[name]) == (False, None), name
            checked.append(name)
    assert {"loss", "tolerance", "calibrate", "seed"} <= set(checked)


def test_svc_warm_start_begins_at_the_last_weights() -> None:
    found = StreamSVC(solver="dcd", C=1.0, warm_start=True, tolerance=1e-3).fit(X, Y)
    before = found.n_passes_
    assert found.fit(X, Y).n_passes_ < before
    found.set_params(kernel="rbf", solver="auto").fit(X, Y)
    assert found.model_.kind == "kernel"


def test_svc_it_works_inside_the_tools() -> None:
    search = GridSearchCV(StreamSVC(), {"C": [0.01, 1.0]}, cv=3).fit(X, BINARY)
    assert search.best_score_ > 0.6
    words = np.column_stack([X[:, :2].astype(object), BINARY.astype(object)])
    columns = ColumnTransformer([("n", StandardScaler(), [0, 1]), ("c", OneHotEncoder(), [2])])
    assert make_pipeline(columns, StreamSVC()).fit(words, BINARY).score(words, BINARY) == 1.0
    frozen = FrozenEstimator(StreamSVC().fit(X, BINARY))
    share = CalibratedClassifierCV(frozen, method="sigmoid").fit(X, BINARY).predict_proba(X)
    assert np.allclose(share.sum(axis=1), 1)
    assert cross_val_score(clone(StreamSVC(kernel="rbf", landmarks=30)), X, Y, cv=3).mean() > 0.6


@pytest.mark.parametrize("y", [BINARY, Y], ids=["two classes", "three classes"])
def test_svc_probabilities_are_there_where_they_are_asked_for(y: Any) -> None:
    """As good as those of the tool that fits once more for each fold, on the rows they were not made of."""
    assert not hasattr(StreamSVC(), "predict_proba")
    assert hasattr(StreamSVC(loss="logistic"), "predict_proba")
    weights = np.random.default_rng(0).integers(1, 3, 200)
    ours = StreamSVC(calibration="sigmoid").fit(X[:200], y[:200], weights)
    p = ours.predict_proba(X[200:])
    assert np.allclose(p.sum(axis=1), 1)
    assert np.allclose(ours.predict_log_proba(X[200:]), np.log(p))
    theirs = CalibratedClassifierCV(StreamSVC(), cv=5, ensemble=False).fit(X[:200], y[:200], weights)
    other = theirs.predict_proba(X[200:])
    assert log_loss(y[200:], p) < log_loss(y[200:], other) + 0.05
    copies = np.repeat(np.arange(200), weights)
    again = StreamSVC(calibration="sigmoid").fit(X[copies], y[copies])
    assert np.allclose(again.predict_proba(X[200:]), p, atol=1e-6)


def test_svc_probabilities_that_are_not_there_say_what_would_give_them() -> None:
    with pytest.raises(AttributeError) as alone:
        StreamSVC().predict_proba(X)
    assert "calibrate='sigmoid'" in str(alone.value.__cause__)
    paired = StreamSVC(multi_class="ovo", calibration="sigmoid")
    with pytest.raises(AttributeError) as caught:
        paired.predict_proba(X)
    assert "multi_class='ovr', or through CalibratedClassifierCV" in str(caught.value.__cause__)
    assert not hasattr(paired, "predict_log_proba")
    again = StreamSVC(multi_class="ovo", tolerance=0.1).fit(X, Y).set_params(multi_class="ovr", loss="logistic")
    with pytest.raises(UsageError, match="fitted for pairs of classes") as refused:
        again.predict_proba(X)
    assert "fit again with multi_class='ovr'" in refused.value.hint
    portions = StreamSVC(solver="sgd", loss="hinge", calibration="sigmoid").partial_fit(X, BINARY, np.unique(BINARY))
    with pytest.raises(UsageError, match="last fitted by partial_fit") as refused:
        portions.predict_proba(X)
    assert "CalibratedClassifierCV(FrozenEstimator(estimator))" in refused.value.hint
    share = CalibratedClassifierCV(FrozenEstimator(portions), method="sigmoid").fit(X, BINARY).predict_proba(X)
    assert np.allclose(share.sum(axis=1), 1)


@pytest.mark.filterwarnings("ignore:not certified")
def test_svc_fit_that_had_no_time_for_probabilities_warns(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    estimator = StreamSVC(calibration="sigmoid", tolerance=1e-15, loss="hinge", solver="dcd", time_limit=1e-9)
    with pytest.warns(ConvergenceWarning, match="not calibrated: the time limit"):
        estimator.fit(X, BINARY)
    with pytest.raises(UsageError, match="no probabilities") as refused:
        estimator.predict_proba(X)
    assert "time" in refused.value.hint
    assert list(tmp_path.iterdir()) == []


def test_svc_threads_of_joblib_fit_the_same_models() -> None:
    def one(C: float) -> Any:
        return StreamSVC(C=C).fit(X, Y).coef_

    costs = [0.1, 1.0, 10.0, 100.0]
    side_by_side = Parallel(n_jobs=4, prefer="threads")(delayed(one)(C) for C in costs)
    assert all(np.array_equal(found, one(C)) for C, found in zip(costs, side_by_side, strict=True))


def test_svc_it_pickles_and_its_model_is_a_file(tmp_path: Any) -> None:
    found = StreamSVC(kernel="rbf", random_state=1).fit(X, BINARY)
    again = pickle.loads(pickle.dumps(found))
    assert np.array_equal(again.decision_function(X), found.decision_function(X))
    found.model_.save(tmp_path / "model.ssvm")
    loaded = sv.load_model(tmp_path / "model.ssvm")
    assert loaded == found.model_
    assert np.array_equal(loaded.predict(X), found.predict(X))


@pytest.mark.parametrize(
    "asked", [{"solver": "dcd"}, {"kernel": "rbf"}, {"kernel": "rbf", "calibration": "sigmoid"}], ids=str
)
def test_svc_fit_leaves_nothing_in_the_working_directory(
    asked: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of per-row state were made there, empty ones, though the memory had room for all of it."""
    monkeypatch.chdir(tmp_path)
    StreamSVC(**asked).fit(X[:60], BINARY[:60])
    assert not list(tmp_path.iterdir())


def test_svc_columns_far_from_0_are_fitted_from_another_zero(tmp_path: Any) -> None:
    far = X + np.where(np.arange(8) == 3, 2.0**31, 0.0)
    found = StreamSVC(standardize=True, warm_start=True, solver="newton").fit(far, BINARY)
    assert found.score(far, BINARY) == pytest.approx(
        StreamSVC(standardize=True).fit(X, BINARY).score(X, BINARY), abs=0.02
    )
    assert [column for column, _ in found.model_.provenance["encoding"]["offsets"]] == [3]
    assert np.allclose(far @ found.coef_[0] + found.intercept_, found.decision_function(far), atol=1e-4)
    sv.ingest(far, tmp_path / "far.zarr", y=BINARY)
    stored = sv.fit(tmp_path / "far.zarr", tmp_path / "far.ssvm", standardize=True, tolerance=1e-9).model
    assert np.allclose(stored.decision_function(far), found.decision_function(far), atol=1e-6)
    assert np.allclose(found.decision_function(far), found.fit(far, BINARY).decision_function(far), atol=1e-9)
    weight = np.arange(len(far)) % 2
    assert StreamSVC(standardize=True).fit(far, BINARY, weight).model_ == (
        StreamSVC(standardize=True).fit(far[weight == 1], BINARY[weight == 1]).model_
    )


@each_value(
    ("options", [{}, {"kernel": "rbf"}, {"kernel": "rbf", "multi_class": "ovo"}]),
    ("class_weight", [None, "balanced", {2: 0.0}]),
)
def test_svc_class_without_weight_is_never_predicted(options: dict[str, Any], class_weight: Any) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    y = X.argmax(axis=1)
    weighted = {} if isinstance(class_weight, dict) else {"sample_weight": np.where(y == 2, 0.0, 1.0)}
    found = StreamSVC(class_weight=class_weight, **options).fit(X, y, **weighted)
    assert found.classes_.tolist() == [0, 1, 2]
    assert set(found.predict(X)) == {0, 1}
    assert np.mean(found.predict(X)[y < 2] == y[y < 2]) > 0.8


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_svc_weight_for_one_class_alone_is_refused_by_its_name(kernel: Any, tmp_path: Path) -> None:
    X, y = np.array([[0.0], [1.0], [2.0], [3.0]]), np.array(["no", "no", "yes", "yes"])
    with pytest.raises(ValueError, match="at least two classes must have a weight above 0; here: 'no'"):
        StreamSVC(kernel=kernel, class_weight={"no": 1.0, "yes": 0.0}).fit(X, y)
    with pytest.raises(sv.UsageError, match="class 'no' alone has weight"):
        sv.fit(X, y=y, kernel=kernel, class_weight={"yes": 0.0})


def test_svc_passes_are_reported_and_kept() -> None:
    reported: list[dict[str, Any]] = []
    fitted = StreamSVC(solver="dcd", on_pass=reported.append).fit(X, Y)
    assert [record["pass"] for record in reported] == list(range(1, fitted.n_passes_ + 1))
    assert reported[0]["problems"] == 3
    assert reported[-1]["gap"] <= 1e-3
    assert list(fitted.history_["gap"]) == [record["gap"] for record in reported]


def test_svc_names_of_columns_reach_the_model() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=[f"c{k}" for k in range(8)])
    fitted = StreamSVC().fit(frame, BINARY)
    assert fitted.model_.explain().names == tuple(frame.columns) == tuple(fitted.feature_names_in_)
