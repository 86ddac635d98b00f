"""Losses of numbers: quantiles, from a file to its figures, and what is refused on a store of numbers; ``test_optima.py`` has the optima."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamsvm.errors import DataError, UsageError
from streamsvm.jobs.apply.evaluate import evaluate
from streamsvm.jobs.apply.measures import NumberAccumulator, RegressionEvaluation
from streamsvm.jobs.apply.options import EvaluateJob
from streamsvm.jobs.fit.driver import fit, fit_in_memory
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.plan import make_plan
from streamsvm.jobs.ingest.options import IngestJob
from streamsvm.jobs.ingest.run import ingest
from streamsvm.losses import LOSSES
from streamsvm.model.measures import RMSE, MeasureCounts, PredictionTask
from streamsvm.rows import Dense
from streamsvm.store.format.labels import NumberCoder
from streamsvm.store.views import MemoryStore

ROWS, COLUMNS, C = 200, 4, 0.3


def data(weighted: bool) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(5)
    X = rng.normal(size=(ROWS, COLUMNS)).astype(np.float32)
    t = X @ rng.normal(size=COLUMNS) + 1.5 + 0.4 * rng.normal(size=ROWS)
    return X, t, rng.choice([0.0, 0.5, 1.0, 3.0], ROWS).astype(np.float32) if weighted else None


def store_of(weighted: bool) -> MemoryStore:
    X, t, weight = data(weighted)
    store = MemoryStore(chunk_bytes=800)
    store.append(Dense(X), t, weight)
    return store.commit((), COLUMNS)


@pytest.mark.parametrize("quantile", [0.2, 0.9])
def test_regression_quantiles_have_their_share_of_targets_below_them(quantile: float) -> None:
    """Up to the rows on the plane, and to what the intercept b costs.

    At the optimum b = sum a_i, where a_i is q C s_i of targets above the plane, -(1 - q) C s_i of those below, and between the two
    on it. With S the sum of all weights s_i, then, below <= q S - b / C <= below + on. P is strongly convex, so that the optimum
    is at most sqrt(2 (P - D)) from the weights found: residuals larger than that times ||(x_i, 1)|| have the signs of the optimum's.
    """
    X, t, weight = data(True)
    settings: dict[str, Any] = {"loss": "pinball", "loss_options": {"quantile": quantile}, "C": 1.0}
    job = FitJob("m", "m", solver="cutting_plane", tolerance=1e-6, max_passes=200, **settings)
    result = fit_in_memory(job, store_of(True))
    certificate, b = result.training.runs[0].certificate, float(result.model.weights.ravel()[-1])
    assert certificate is not None
    off = float(np.sqrt(2.0 * (certificate.primal - certificate.dual)))
    residual, slack = result.model.predict(X) - t, off * np.sqrt(1.0 + (X.astype(np.float64) ** 2).sum(1))
    below, on = weight[residual > slack].sum(), weight[np.abs(residual) <= slack].sum()
    assert off < 2e-3
    assert on < 0.1 * weight.sum()
    assert below - off <= quantile * weight.sum() - b <= below + on + off


@pytest.mark.parametrize("option", [{"positive": "1"}, {"class_weight": "balanced"}, {"calibrate": "sigmoid"}])
def test_regression_what_needs_classes_is_refused_by_name(option: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="is for classes, and the store holds numbers"):
        make_plan(FitJob("memory", "model", loss="squared", **option), store_of(False))


def test_regression_losses_of_classes_are_refused_for_numbers_and_the_other_way_round() -> None:
    classes = MemoryStore()
    classes.append(Dense(np.eye(4, dtype=np.float32)), np.array([0, 1, 0, 1], np.int32))
    classes.commit(("a", "b"), 4)
    for loss in LOSSES:
        numeric = LOSSES[loss]().numeric()
        store, said = (classes, "holds classes") if numeric else (store_of(False), "holds numbers to predict")
        with pytest.raises(UsageError, match=f"the store {said}"):
            make_plan(FitJob("memory", "model", loss=loss), store)


def test_regression_from_a_file_to_its_figures(tmp_path: Path) -> None:
    X, t, _ = data(False)
    lines = [",".join(map(repr, [*row, target])) for row, target in zip(X.tolist(), t.tolist(), strict=True)]
    source = tmp_path / "rows.csv"
    source.write_text("a,b,c,d,t\n" + "\n".join(lines) + "\n")
    stored = ingest(IngestJob(sources=(source,), store=tmp_path / "s.zarr", label="t", task="regression"))
    assert stored.target is not None
    assert stored.target["mean"] == pytest.approx(t.mean(), rel=1e-12)
    assert stored.target["spread"] == pytest.approx(t.std(), rel=1e-12)
    model = fit(FitJob(str(tmp_path / "s.zarr"), str(tmp_path / "m.ssvm"), loss="squared")).model
    predicted = model.predict(X)
    for rows in ("s.zarr", "rows.csv"):
        found = evaluate(EvaluateJob(str(tmp_path / "m.ssvm"), (str(tmp_path / rows),))).evaluation
        assert isinstance(found, RegressionEvaluation)
        assert found.RMSE == pytest.approx(float(np.sqrt(np.mean((predicted - t) ** 2))), rel=1e-9)
        assert found.MAE == pytest.approx(float(np.mean(np.abs(predicted - t))), rel=1e-9)
        assert found.R2 == pytest.approx(1 - np.mean((predicted - t) ** 2) / t.var(), rel=1e-9)


def test_regression_figures_of_parts_are_those_of_the_whole_whatever_the_mean() -> None:
    rng = np.random.default_rng(1)
    truth, error = 1e8 + rng.normal(size=300), rng.normal(size=300)
    whole, parts, counts = NumberAccumulator(), NumberAccumulator(), MeasureCounts(RMSE, PredictionTask(0), 1)
    whole.add(truth, (truth + error)[:, None])
    for rows in np.array_split(np.arange(300), 7):
        part = NumberAccumulator()
        part.add(truth[rows], (truth + error)[rows, None])
        parts = parts.merge(part)
        counts.add(0, (truth + error)[rows, None], truth[rows])
    assert parts.result() == pytest.approx(whole.result(), rel=1e-6)
    assert counts.values()[0] == pytest.approx(whole.result().RMSE, rel=1e-6)


@pytest.mark.parametrize(
    ("labels", "said"), [(["1", "x", "2"], "row 2 of all.*'x' is no number"), (["1", ""], "empty")]
)
def test_regression_labels_that_are_no_numbers_name_their_row(labels: list[str], said: str) -> None:
    with pytest.raises(DataError, match=said):
        NumberCoder().codes(np.array(labels))
