"""scikit-learn's contract, with no expected failure."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("sklearn", minversion="1.6")
from sklearn.utils.estimator_checks import parametrize_with_checks

from streamsvm.sklearn import StreamNystroem, StreamOneClassSVM, StreamSVC, StreamSVCCV, StreamSVR


@parametrize_with_checks(
    [
        StreamNystroem(),
        StreamOneClassSVM(),
        StreamOneClassSVM(kernel="rbf"),
        StreamSVC(),
        StreamSVC(loss="hinge"),
        StreamSVC(kernel="rbf"),
        StreamSVC(kernel="rbf", loss="hinge", multi_class="ovo", standardize=True),
        StreamSVCCV(Cs=(0.1, 10.0), cv=2),
        StreamSVR(),
    ],
    legacy=True,
)
@pytest.mark.filterwarnings("ignore:not certified.*no hyperplane holds:sklearn.exceptions.ConvergenceWarning")
def test_the_contract(estimator: Any, check: Any) -> None:
    check(estimator)
