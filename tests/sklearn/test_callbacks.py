"""scikit-learn's callbacks: set on an estimator, told of its fit and of every pass, handed down by scikit-learn's own tools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn", minversion="1.6")
pytest.importorskip("sklearn.callback", reason="scikit-learn has callbacks from 1.9 on")
from sklearn import callback
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

import streamsvm as sv
from streamsvm.sklearn import StreamSVC, StreamSVCCV

X = np.random.default_rng(0).normal(size=(200, 4))
Y = np.digitize(X[:, 0] - X[:, 1], [-0.5, 0.7])


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
            self.score = fitted_estimator.score(X, Y)
        return self.stop


def test_a_callback_is_told_of_the_fit_and_of_every_pass(tmp_path: Path) -> None:
    sv.ingest(X, tmp_path / "rows.zarr", y=Y)
    for rows, y in ((X, Y), (tmp_path / "rows.zarr", None)):
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
        assert heard.score == found.score(X, Y)
        assert not {name for name in vars(found) if name.startswith("_") and "callback" not in name}


def test_sklearn_callback_bar_and_the_monitor_of_scikit_learn_are_heard() -> None:
    monitor = callback.ScoringMonitor(scoring="accuracy")
    found = StreamSVCCV(Cs=(0.1, 1.0), cv=2).set_callbacks(monitor, callback.ProgressBar()).fit(X, Y)
    (row,) = monitor.get_logs().data
    assert row["accuracy"] == found.score(X, Y)


def test_sklearn_callback_fit_that_fails_tears_callbacks_down_and_a_wish_to_stop_is_answered() -> None:
    heard = Heard()
    with pytest.raises(ValueError, match="did you mean 'hinge'"):
        StreamSVC(loss="hing").set_callbacks(heard).fit(X, Y)
    assert heard.told[-1] == ("teardown", "fit", 0)
    with pytest.warns(ConvergenceWarning, match="asked for the end"):
        found = StreamSVC(solver="dcd", tolerance=1e-12).set_callbacks(Heard(stop=True)).fit(X, Y)
    assert (found.n_passes_, found.model_.provenance["status"]) == (2, "asked to end")
    assert 0.0 < found.gap_ < 1.0
    assert "set_callbacks" in dir(clone(StreamSVC()))
