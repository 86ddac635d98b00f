"""What scikit-learn's tools ask of an estimator beside its contract: callbacks, routed weights, frames out, arrays of other libraries."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import scipy.sparse

pytest.importorskip("sklearn", minversion="1.6")
from sklearn import config_context
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import streamsvm as sv
from streamsvm.calibration import CALIBRATIONS
from streamsvm.config.command_table import STEPS
from streamsvm.jobs.common_options import MULTI_CLASS
from streamsvm.kernels import KERNELS
from streamsvm.losses import LOSSES
from streamsvm.sklearn import TRUSTED_TYPES, StreamKFold, StreamNystroem, StreamSVC, StreamSVCCV, StreamSVR, base
from streamsvm.solvers import SOLVERS

X = np.random.default_rng(0).standard_normal((120, 4))
Y = np.where(X[:, 0] + 0.5 * X[:, 1] > 0, "in", "out")
WEIGHTS = np.random.default_rng(1).integers(0, 4, len(X)).astype(float)


def test_sklearn_tools_weights_are_routed_through_pipelines_and_searches() -> None:
    alone = StreamSVC(C=0.1).fit(X, Y, sample_weight=WEIGHTS).coef_
    with config_context(enable_metadata_routing=True):
        untouched = StandardScaler(with_mean=False, with_std=False).set_fit_request(sample_weight=False)
        asking = StreamSVC(C=0.1).set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
        piped = make_pipeline(untouched, asking)
        assert np.array_equal(piped.fit(X, Y, sample_weight=WEIGHTS)[-1].coef_, alone)
        searched = GridSearchCV(asking, {"C": [0.1]}, cv=2).fit(X, Y, sample_weight=WEIGHTS)
        assert np.array_equal(searched.best_estimator_.coef_, alone)
        choosing = StreamSVCCV(Cs=(0.1,), cv=2).set_fit_request(sample_weight=True)
        piped = make_pipeline(untouched, choosing)
        assert np.array_equal(piped.fit(X, Y, sample_weight=WEIGHTS)[-1].coef_, alone)
        with pytest.raises(ValueError, match="sample_weight"):  # asked for by nobody
            cross_validate(StreamSVC(), X, Y, cv=2, params={"sample_weight": WEIGHTS})
        portions = StreamSVC(solver="sgd").set_partial_fit_request(sample_weight=True, classes=True)
        assert portions.get_metadata_routing().partial_fit.requests["sample_weight"] is True


def test_sklearn_tools_types_of_parameters_are_the_choices_there_are() -> None:
    kinds: list[tuple[Any, set[str]]] = [
        (base.KernelName, set(KERNELS)),
        (base.SolverName, {"auto", *SOLVERS}),
        (base.CalibrationName, {"none", *CALIBRATIONS}),
        (base.MultiClassName, set(MULTI_CLASS)),
        (base.LossName, {name for name in LOSSES if not LOSSES[name]().numeric()}),
        (base.RegressionLossName, {name for name in LOSSES if LOSSES[name]().numeric()}),
    ]
    for named, there in kinds:
        assert set(get_args(named)) == there
    for name, named in (("sampling", base.SamplingName), ("missing", base.FillingName)):
        field = next(field for field in STEPS["fit"].fields if field.name == name)
        assert set(get_args(named)) == set(field.choices())


def test_sklearn_tools_features_come_as_the_frames_that_were_asked_for() -> None:
    plain = StreamNystroem(landmarks=5).fit_transform(X)
    for kind in ("pandas", "polars"):
        library = pytest.importorskip(kind)
        found = StreamNystroem(landmarks=5).set_output(transform=kind).fit_transform(X)
        assert isinstance(found, library.DataFrame)
        assert list(found.columns) == [f"streamnystroem{k}" for k in range(plain.shape[1])]
        assert np.array_equal(found.to_numpy(), plain)


def test_sklearn_tools_sparse_arrays_and_sparse_matrices_are_the_same_rows() -> None:
    expected = StreamSVC().fit(scipy.sparse.csr_matrix(X), Y).coef_
    for kind in (scipy.sparse.csr_array, scipy.sparse.csc_array, scipy.sparse.coo_array):
        found = StreamSVC().fit(kind(X), Y)
        assert np.array_equal(found.coef_, expected)
        assert np.array_equal(found.predict(kind(X)), found.predict(X))


def test_sklearn_tools_parameters_have_the_names_of_the_functions_too() -> None:
    """The same model under both names; different values of both are refused; both are parameters like any other."""
    other_names: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"random_state": 3, "solver": "sgd", "loss": "hinge"}, {"seed": 3, "solver": "sgd", "loss": "hinge"}),
        ({"calibration": "sigmoid"}, {"calibrate": "sigmoid"}),
        ({"n_jobs": 1, "verbose": False}, {"threads": 1, "progress": False}),
    ]
    for one, other in other_names:
        expected, found = StreamSVC(**one).fit(X, Y), clone(StreamSVC(**other)).fit(X, Y)
        assert np.array_equal(found.coef_, expected.coef_)
        assert hasattr(found, "predict_proba") == hasattr(expected, "predict_proba")
        assert StreamSVC().set_params(**other).get_params() == StreamSVC(**other).get_params()
    chosen = StreamSVCCV(C=(0.1, 1.0), folds=2).fit(X, Y)
    assert chosen.scores_.shape == (2, 2)
    assert np.array_equal(chosen.coef_, StreamSVCCV(Cs=(0.1, 1.0), cv=2).fit(X, Y).coef_)
    assert np.array_equal(
        StreamNystroem(landmarks=5, seed=2).fit(X).components_,
        StreamNystroem(landmarks=5, random_state=2).fit(X).components_,
    )
    assert [t.tolist() for _, t in StreamKFold(3, seed=1).split(X)] == [
        t.tolist() for _, t in StreamKFold(3, random_state=1).split(X)
    ]
    number = X[:, 0]
    assert np.array_equal(
        StreamSVR(loss_options={"epsilon": 0.5}).fit(X, number).coef_, StreamSVR(epsilon=0.5).fit(X, number).coef_
    )
    for made in (
        StreamSVC(seed=1, random_state=2),
        StreamSVC(n_jobs=1, threads=3),
        StreamSVC(calibrate="sigmoid", calibration="isotonic"),
        StreamSVC(verbose=True, progress=False),
        StreamSVCCV(cv=3, folds=2),
        StreamSVR(epsilon=0.3, loss_options={"epsilon": 0.5}),
    ):
        with pytest.raises(ValueError, match="are two names of one parameter, with different values"):
            made.fit(X, number if isinstance(made, StreamSVR) else Y)


STRICT = """
import array_api_strict as xp, numpy as np
from sklearn import config_context
from sklearn.utils.estimator_checks import estimator_checks_generator
from streamsvm.sklearn import StreamSVC
X = np.random.default_rng(0).standard_normal((60, 3)); y = (X[:, 0] > 0).astype(int)
with config_context(array_api_dispatch=True):
    found = StreamSVC().fit(xp.asarray(X), xp.asarray(y))
assert np.array_equal(found.coef_, StreamSVC().fit(X, y).coef_)
names = [(estimator, check) for estimator, check in estimator_checks_generator(StreamSVC(), legacy=True) if "array_api" in str(check)]
for estimator, check in names:
    check(estimator)
print(len(names))
"""


def test_sklearn_tools_with_arrays_of_the_standard_switched_on_nothing_is_skipped() -> None:
    """SCIPY_ARRAY_API is read when scipy is imported: in a process of its own."""
    pytest.importorskip("array_api_strict")
    done = subprocess.run(
        [sys.executable, "-W", "error::sklearn.exceptions.SkipTestWarning", "-c", STRICT],
        env={**os.environ, "SCIPY_ARRAY_API": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


with_callbacks = pytest.mark.skipif(
    find_spec("sklearn.callback") is None, reason="scikit-learn has callbacks from 1.9 on"
)
CALLBACK_X = np.random.default_rng(0).normal(size=(200, 4))
CALLBACK_Y = np.digitize(CALLBACK_X[:, 0] - CALLBACK_X[:, 1], [-0.5, 0.7])


# -- callbacks ---------------------------------------------------------------------------------------------------------


class Heard:
    """A callback by the protocol of scikit-learn that writes down what it is told."""

    def __init__(self, *, stop: bool = False) -> None:
        self.told: list[tuple[str, str, int]] = []
        self.rows: list[Any] = []
        self.stop = stop

    def setup(self, estimator: Any, context: Any) -> None:
        self.told.append(("setup", context.task_name, context.task_id))

    def teardown(self, estimator: Any, context: Any) -> None:
        self.told.append(("teardown", context.task_name, context.task_id))

    def on_fit_task_begin(self, estimator: Any, context: Any, *, X: Any = None) -> None:
        self.told.append(("begin", context.task_name, context.task_id))
        self.rows.append(X)

    def on_fit_task_end(self, estimator: Any, context: Any, *, fitted_estimator: Any = None) -> bool:
        self.told.append(("end", context.task_name, context.task_id))
        if context.parent is None:
            self.score = fitted_estimator.score(CALLBACK_X, CALLBACK_Y)
        return self.stop


@with_callbacks
def test_sklearn_callback_is_told_of_the_fit_and_of_every_pass(tmp_path: Path) -> None:
    sv.ingest(CALLBACK_X, tmp_path / "rows.zarr", y=CALLBACK_Y)
    for rows, y in ((CALLBACK_X, CALLBACK_Y), (tmp_path / "rows.zarr", None)):
        heard = Heard()
        found = StreamSVC(solver="dcd").set_callbacks(heard).fit(rows, y)
        passes = [(what, "pass", k) for k in range(found.n_passes_) for what in ("begin", "end")]
        assert heard.told == [
            ("setup", "fit", 0),
            ("begin", "fit", 0),
            *passes,
            ("end", "fit", 0),
            ("teardown", "fit", 0),
        ]
        assert all(given is rows for given in heard.rows)
        assert heard.score == found.score(CALLBACK_X, CALLBACK_Y)
        assert not {name for name in vars(found) if name.startswith("_") and "callback" not in name}


@with_callbacks
def test_sklearn_callback_bar_and_the_monitor_of_scikit_learn_are_heard() -> None:
    from sklearn import callback

    monitor = callback.ScoringMonitor(scoring="accuracy")
    found = StreamSVCCV(Cs=(0.1, 1.0), cv=2).set_callbacks(monitor, callback.ProgressBar()).fit(CALLBACK_X, CALLBACK_Y)
    (row,) = monitor.get_logs().data
    assert row["accuracy"] == found.score(CALLBACK_X, CALLBACK_Y)


@with_callbacks
def test_sklearn_callback_fit_that_fails_tears_callbacks_down_and_a_wish_to_stop_is_answered() -> None:
    heard = Heard()
    with pytest.raises(ValueError, match="did you mean 'hinge'"):
        StreamSVC(loss="hing").set_callbacks(heard).fit(CALLBACK_X, CALLBACK_Y)  # type: ignore[arg-type]
    assert heard.told[-1] == ("teardown", "fit", 0)
    with pytest.warns(ConvergenceWarning, match="asked for the end"):
        found = StreamSVC(solver="dcd", tolerance=1e-12).set_callbacks(Heard(stop=True)).fit(CALLBACK_X, CALLBACK_Y)
    assert (found.n_passes_, found.model_.provenance["status"]) == (2, "asked to end")
    assert 0.0 < found.gap_ < 1.0
    assert "set_callbacks" in dir(clone(StreamSVC()))


def test_sklearn_fitted_estimators_are_of_the_types_that_are_named_for_skops() -> None:
    io = pytest.importorskip("skops.io", reason="needs skops: pip install skops")
    y = np.digitize(X[:, 0], [-0.5, 0.5])
    for made in (
        StreamSVC(calibration="sigmoid"),
        StreamSVC(kernel="rbf", landmarks=10, calibration="isotonic"),
        StreamNystroem(landmarks=10, standardize=True),
    ):
        saved = io.dumps(made.fit(X, y))
        assert set(io.get_untrusted_types(data=saved)) <= set(TRUSTED_TYPES)
        found = io.loads(saved, trusted=TRUSTED_TYPES)
        answer = "transform" if isinstance(made, StreamNystroem) else "predict_proba"
        assert np.array_equal(getattr(found, answer)(X), getattr(made, answer)(X))


def test_estimator_words_are_those_of_estimators() -> None:
    with pytest.raises(TypeError, match="StreamSVC has no parameter 'tol'; perhaps tolerance="):
        StreamSVC(tol=1e-3)
    with pytest.raises(TypeError, match="did you mean 'landmarks'"):
        StreamSVC(landmark=3)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        base.warn_caller("not certified; next: a larger --time-limit, or --resume")
    assert [str(one.message) for one in told] == ["not certified; next: a larger 'time_limit'"]
