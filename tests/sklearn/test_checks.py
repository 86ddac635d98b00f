"""scikit-learn's contract, with no expected failure."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("sklearn", minversion="1.6")
from sklearn.utils.estimator_checks import (
    check_sample_weight_equivalence_on_dense_data,
    check_sample_weight_equivalence_on_sparse_data,
    parametrize_with_checks,
)

from streamsvm.sklearn import StreamNystroem, StreamOneClassSVM, StreamSVC, StreamSVCCV, StreamSVR


@parametrize_with_checks(
    [
        StreamNystroem(),
        StreamOneClassSVM(),
        StreamSVC(),
        StreamSVC(kernel="rbf", loss="hinge", multi_class="ovo", standardize=True),
        StreamSVCCV(Cs=(0.1, 10.0), cv=2),
        StreamSVR(),
    ],
    legacy=True,
)
@pytest.mark.filterwarnings("ignore:not certified.*no hyperplane separates:sklearn.exceptions.ConvergenceWarning")
def test_sklearn_estimator_passes_the_checks_of_sklearn(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.parametrize(
    "estimator",
    [
        StreamSVC(kernel="rbf", landmarks=5),
        StreamSVC(multi_class="crammer_singer"),
        StreamSVC(calibration="sigmoid"),
        StreamSVC(solver="dcd", loss="hinge"),
        StreamSVR(kernel="rbf", landmarks=5),
    ],
    ids=str,
)
def test_sklearn_weight_of_k_is_k_copies_whatever_is_drawn_on_the_way(estimator: Any) -> None:
    """Landmarks, the order of coordinate descent and single precision are those of one store."""
    name = type(estimator).__name__
    check_sample_weight_equivalence_on_dense_data(name, estimator)
    check_sample_weight_equivalence_on_sparse_data(name, estimator)
