"""scikit-learn's model selection on stores and arrays on disk, and a search of our own: the folds and errors of ``tune``."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

pytest.importorskip("sklearn", minversion="1.6")
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.model_selection import (
    GridSearchCV,
    ShuffleSplit,
    StratifiedKFold,
    cross_val_score,
    cross_validate,
)

import streamsvm as sv
from streamsvm.sklearn import StreamKFold, StreamRows, StreamSVC, StreamSVCCV
from streamsvm.store.views import SelectedRows, SlicedStore

RNG = np.random.default_rng(5)
X = RNG.normal(size=(600, 5)).astype(np.float32)
Y = np.where(X[:, 0] + X[:, 1] ** 2 + RNG.normal(size=600) > 0.7, 4, 9)
SPARSE = scipy.sparse.random_array((600, 40), density=0.1, rng=1, dtype=np.float32, format="csr")
COSTS = [0.001, 0.1, 10.0]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("selection")
    sv.ingest(X, folder / "rows.zarr", y=Y, chunk="4KiB")
    sv.ingest(SPARSE, folder / "sparse.zarr", y=Y, chunk="4KiB")
    np.save(folder / "X.npy", X)
    return folder


def test_model_selection_rows_of_a_store_are_cut_like_an_array(place: Path) -> None:
    for rows, numbers in ((StreamRows(place / "rows.zarr"), X), (StreamRows(place / "sparse.zarr"), SPARSE.toarray())):
        assert rows.shape == numbers.shape
        chosen = RNG.permutation(600)[:333]
        assert np.array_equal(rows.labels, Y)
        found = pickle.loads(pickle.dumps(rows[chosen][50:]))
        assert len(found) == 283
        assert np.array_equal(found.labels, Y[chosen[50:]])
        seen = np.empty((283, numbers.shape[1]))
        for part, places in found.blocks():
            seen[places] = (
                part.values
                if hasattr(part, "values")
                else scipy.sparse.csr_array(
                    (part.data, part.indices, part.indptr), (len(places), numbers.shape[1])
                ).toarray()
            )
        assert np.array_equal(seen, numbers[chosen[50:]])
        with pytest.raises(ValueError, match="chosen twice"):
            rows[[3, 3]]


@pytest.mark.parametrize("source", [X, SPARSE], ids=["dense", "sparse"])
def test_model_selection_views_of_rows_are_stores_of_those_rows(source: Any) -> None:
    whole = SlicedStore(source, (Y == 9).astype(np.int32), ("4", "9"))
    chosen = RNG.random(600) < 0.4
    found = SelectedRows(whole, chosen, (Y == 9).astype(np.int32))
    dense = source[chosen] if source is X else source.toarray()[chosen]
    assert found.layout.rows == chosen.sum()
    assert found.layout.counts == tuple(np.bincount((Y == 9)[chosen]).tolist())
    assert np.allclose(found.statistics().mean, dense.mean(axis=0, dtype=np.float64), atol=1e-6)
    assert found.digest != whole.digest == SlicedStore(source.copy(), (Y == 9).astype(np.int32), ("4", "9")).digest


def test_model_selection_view_far_from_0_has_the_offsets_of_an_ingest() -> None:
    far = X.astype(np.float64) + np.array([0, 2.0**31, 0, 0, 0])
    found = StreamSVC(standardize=True).fit(StreamRows(far, Y), Y)
    assert np.allclose(
        found.decision_function(far), StreamSVC(standardize=True).fit(far, Y).decision_function(far), atol=1e-5
    )


@pytest.mark.parametrize("kind", ["store", "memory map", "sparse store"])
def test_model_selection_tools_of_scikit_learn_work_on_rows_that_stay_where_they_are(place: Path, kind: str) -> None:
    rows = {
        "store": lambda: StreamRows(place / "rows.zarr"),
        "memory map": lambda: StreamRows(np.load(place / "X.npy", mmap_mode="r"), Y),
        "sparse store": lambda: StreamRows(place / "sparse.zarr"),
    }[kind]()
    numbers = SPARSE if "sparse" in kind else X
    folds = list(StreamKFold(3).split(rows))
    ours = cross_validate(StreamSVC(), rows, rows.labels, cv=folds, scoring=["accuracy", "roc_auc"])
    theirs = cross_validate(StreamSVC(), numbers, Y, cv=folds, scoring=["accuracy", "roc_auc"])
    for name in ("test_accuracy", "test_roc_auc"):
        assert np.allclose(ours[name], theirs[name], atol=1e-9)


def test_model_selection_folds_of_a_store_are_those_of_tune(place: Path, tmp_path: Path) -> None:
    """Linear models are the same to the tolerance, whoever runs the search; so are errors, and the best C."""
    found = sv.tune(place / "rows.zarr", tmp_path / "search", C=COSTS, folds=4, seed=3, tolerance=1e-6)
    rows = StreamRows(place / "rows.zarr")
    search = GridSearchCV(StreamSVC(tolerance=1e-6), {"C": COSTS}, cv=StreamKFold(4, random_state=3), refit=False).fit(
        rows, rows.labels
    )
    expected = 1 - np.array([score.errors for score in found.scores])
    scores = [search.cv_results_[f"split{k}_test_score"] for k in range(4)]
    assert np.allclose(np.transpose(scores), expected, atol=1e-12)
    assert search.best_params_["C"] == found.best.C
    chosen = StreamSVCCV(COSTS, cv=4, random_state=3, tolerance=1e-6).fit(place / "rows.zarr")
    assert np.array_equal(chosen.scores_.T, expected)
    assert chosen.C_ == found.best.C
    assert np.allclose(chosen.coef_, StreamSVC(found.best.C, tolerance=1e-6).fit(X, Y).coef_, atol=1e-3)


def test_model_selection_search_with_landmarks_finds_what_tune_finds(place: Path, tmp_path: Path) -> None:
    """``tune`` draws even landmarks once, of all rows, a grid search anew for each fold: errors agree within the noise of folds."""
    even: dict[str, Any] = {"kernel": "rbf", "landmarks": 40, "sampling": "uniform"}
    grid: dict[str, Any] = {"C": [0.001, 1.0], "gamma": [0.01, 0.5]}
    found = sv.tune(place / "rows.zarr", tmp_path / "search", folds=4, **even, **grid)
    rows = StreamRows(place / "rows.zarr")
    search = GridSearchCV(StreamSVC(**even), grid, cv=StreamKFold(4), n_jobs=2).fit(rows, rows.labels)
    assert search.best_params_ == {"C": found.best.C, "gamma": pytest.approx(found.best.gamma)}
    assert search.best_score_ == pytest.approx(1 - found.best.error, abs=3 * found.best.spread)


def test_model_selection_search_of_arrays_of_words_and_of_rows_of_a_store_is_one(place: Path) -> None:
    words = np.where(Y == 9, "nine", "four")
    one = StreamSVCCV(COSTS, cv=3).fit(X, words)
    assert one.scores_.shape == (3, 3)
    assert one.classes_.tolist() == ["four", "nine"]
    other = StreamSVCCV(COSTS, cv=3).fit(StreamRows(X, words))
    assert np.array_equal(one.scores_, other.scores_)
    assert np.allclose(one.coef_, other.coef_, atol=1e-4)
    assert np.array_equal(other.predict(X), one.predict(X))
    exact = StreamSVCCV(COSTS, cv=3, kernel="rbf").fit(X, words)
    assert exact.scores_.shape == (3, 3)
    assert exact.score(X, words) >= one.score(X, words)


def test_model_selection_splits_of_scikit_learn_are_those_the_errors_are_of() -> None:
    folds = StratifiedKFold(3, shuffle=True, random_state=1)
    found = StreamSVCCV(COSTS, cv=folds, tolerance=1e-7).fit(X, Y)
    expected = [cross_val_score(StreamSVC(C, tolerance=1e-7), X, Y, cv=folds) for C in COSTS]
    assert np.allclose(found.scores_.T, expected, atol=1e-12)
    with pytest.raises(ValueError, match="every row in one test set"):
        StreamSVCCV(COSTS, cv=ShuffleSplit(3, random_state=0)).fit(X, Y)


def test_model_selection_labels_of_a_fold_do_not_choose_the_landmarks_of_its_models() -> None:
    """With all labels of a fold turned round its models are the same, and wrong where they were right."""
    rng = np.random.default_rng(0)
    rows, fold = rng.normal(size=(600, 3)), np.arange(600) % 3
    labels = np.sin(3 * rows[:, 0]) * rows[:, 1] + 0.3 * rng.normal(size=600) > 0
    splits = [(np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in range(3)]
    search = StreamSVCCV([1.0, 30.0], cv=splits, kernel="rbf", gamma=1.0, landmarks=25, sampling="greedy")
    scores = search.fit(rows, labels).scores_
    turned = search.fit(rows, np.where(fold == 1, ~labels, labels)).scores_
    assert scores.min() > 0.6
    np.testing.assert_allclose(turned[1], 1.0 - scores[1], atol=1e-12)


def test_model_selection_what_does_not_belong_together_is_refused(place: Path) -> None:
    rows = StreamRows(place / "rows.zarr")
    with pytest.raises(ValueError, match="not the labels of these rows"):
        StreamSVC().fit(rows[:100], Y[1:101])
    with pytest.raises(ValueError, match="weights in it"):
        StreamSVC().fit(rows, sample_weight=np.ones(600))
    with pytest.raises(sv.UsageError, match="labels in it"):
        StreamRows(place / "rows.zarr", Y)
    with pytest.raises(ValueError, match="folds"):
        list(StreamKFold(40).split(rows[:20]))


def test_cv_chooses_by_the_measure_that_is_asked_for_under_its_name_or_that_of_scikit_learn() -> None:
    rng = np.random.default_rng(7)
    y = np.where(np.arange(600) % 20 == 0, "rare", "often")
    X = rng.normal(size=(600, 4)) + 0.8 * (y == "rare")[:, None]
    found = {name: StreamSVCCV(Cs=[1e-6, 1e-2], cv=3, scoring=name).fit(X, y) for name in ("auc", "roc_auc")}
    ours = found["auc"]
    assert np.array_equal(ours.scores_, found["roc_auc"].scores_)
    assert ours.C_ == [1e-6, 1e-2][int(ours.scores_.mean(axis=0).argmax())]
    assert 0.5 < ours.scores_.mean() < 1.0
    with pytest.raises(ValueError, match="scoring cannot be 'auk'"):
        StreamSVCCV(scoring="auk").fit(X, y)


def test_cv_f1_of_two_classes_is_not_taken_for_the_mean_over_both() -> None:
    X, y = np.random.default_rng(0).normal(size=(120, 2)), np.arange(120) % 3
    with pytest.raises(ValueError, match="more than two"):
        StreamSVCCV(Cs=[0.1], cv=3, scoring="f1_macro").fit(X, y > 0)
    found = [StreamSVCCV(Cs=[0.1], cv=3, scoring=name).fit(X, y).scores_ for name in ("f1", "f1_macro")]
    np.testing.assert_array_equal(*found)
