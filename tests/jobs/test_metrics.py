"""The figures of an evaluation, and what a page draws of a run, against loops over rows and against scikit-learn."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics as reference

from streamsvm.jobs import run_record as record
from streamsvm.jobs.apply.measures import (
    ClassAccumulator,
    ModelEvaluation,
    NumberAccumulator,
    Ranking,
    best_threshold,
    build_curves,
    lower_edges,
    sort_keys,
)
from streamsvm.jobs.apply.row_samples import RowSamples
from streamsvm.losses import Hinge
from streamsvm.model import Model
from streamsvm.rows import Dense
from streamsvm.store.views import MemoryStore
from tests.arrays import csr_of
from tests.axes import each_value

CLASSES = ("a", "b", "c")
VALUES = np.array([-2.0, -1.0, -0.5, 0.25, 0.5, 1.0, 1.5, 3.0])
"""Numbers that are edges of bins: nothing is off by a bin."""


def share(part: float, of: float) -> float:
    return part / of if of else 0.0


def slowly(truth: list[str], said: list[str], classes: tuple[str, ...]) -> dict[str, Any]:
    """The figures of labels, counted one by one; labels that are no class are never said."""
    names = [*classes, *sorted(set(truth) - set(classes))]
    pairs = list(zip(truth, said, strict=True))
    hits = {name: pairs.count((name, name)) for name in names}
    F1 = {name: share(2 * hits[name], truth.count(name) + said.count(name)) for name in names}
    there, seen = [n for n in names if n in truth], [n for n in names if n in truth or n in said]
    return {
        "rows": len(pairs),
        "accuracy": sum(t == s for t, s in pairs) / len(pairs),
        "balanced_accuracy": sum(hits[name] / truth.count(name) for name in there) / len(there),
        "F1_macro": sum(F1[name] for name in seen) / len(seen),
        "confusion": tuple(tuple(pairs.count((t, s)) for s in classes) for t in names),
        "truths": tuple(names),
        "precision": pytest.approx(tuple(share(hits[name], said.count(name)) for name in names)),
        "recall": pytest.approx(tuple(share(hits[name], truth.count(name)) for name in names)),
        "F1_by_class": pytest.approx(tuple(F1.values())),
    }


def ranked_slowly(positive: Any, f: Any) -> dict[str, Any]:
    """AUC and average precision of pairs and of thresholds, all of them."""
    up, down = f[positive], f[~positive]
    if not len(up) or not len(down):
        return {"AUC": None, "AUC_error": None}
    pairs = [(u > d) + 0.5 * (u == d) for u in up for d in down]
    ties = sum(0.5 for u in up for d in down if u == d)
    area, before = 0.0, 0.0
    for threshold in sorted(set(f.tolist()), reverse=True):
        recall = float(np.mean(up >= threshold))
        area += (recall - before) * float(np.mean(positive[f >= threshold]))
        before = recall
    return {
        "AUC": pytest.approx(sum(pairs) / len(pairs)),
        "AUC_error": pytest.approx(ties / len(pairs)),
        "average_precision": pytest.approx(area),
    }


@pytest.mark.parametrize("seed", range(6))
def test_metrics_labels_are_counted_in_parts_as_one_by_one(seed: int) -> None:
    rng = np.random.default_rng(seed)
    names = ["b", "c", "new", "x"][: 2 + seed % 3] if seed else ["b"]
    truth, said = rng.choice(names, 40).tolist(), rng.choice(CLASSES[: 2 + seed % 2], 40).tolist()
    parts = []
    for rows in np.array_split(np.arange(40), 3):
        part = ClassAccumulator(CLASSES)
        part.truths += sorted({truth[i] for i in rows} - set(CLASSES), reverse=bool(seed % 2))
        codes = [np.array([names.index(labels[i]) for i in rows], np.int32) for names, labels in ((part.truths, truth), (CLASSES, said))]  # fmt: skip
        part.add(codes[0], codes[1], np.zeros((len(rows), 3)))
        parts.append(part)
    found = parts[0].merge(parts[1].merge(parts[2]))
    order = [found.truths.index(name) for name in [*CLASSES, *sorted(found.truths[3:])]]
    result = found.result()._asdict()
    for name in ("confusion", "truths", "precision", "recall", "F1_by_class"):
        result[name] = tuple(result[name][k] for k in order)
    expected = slowly(truth, said, CLASSES)
    assert {name: result[name] for name in expected} == {
        name: pytest.approx(value) if isinstance(value, float) else value for name, value in expected.items()
    }
    assert (result["F1"], result["AUC"], result["hinge"], result["log_loss"]) == (None, None, None, None)


def test_metrics_parts_that_are_merged_keep_their_own_samples() -> None:
    """A part may be merged once more, as where a worker is lost."""
    model, rng = Model(np.eye(3, 4), CLASSES), np.random.default_rng(0)
    parts = []
    for k in range(2):
        X, truth = rng.normal(size=(50, 3)).astype(np.float32), rng.integers(0, 3, 50)
        part = ClassAccumulator(CLASSES)
        part.samples = RowSamples()
        part.samples.add(model, Dense(X), model.decision(Dense(X)), truth, 50 * k)
        parts.append(part)
    for _ in range(2):
        found = parts[0].merge(parts[1]).samples
        assert found is not None
        assert (found.seen, len(found.points), found.rows) == (100, 100, 100)
        assert len({one.row for one in found.worst}) == len(found.worst) == 12


@pytest.mark.parametrize("positives", [0, 1, 9, 29, 30])
def test_metrics_two_classes_are_ranked_in_parts_as_pair_by_pair(positives: int) -> None:
    rng = np.random.default_rng(positives)
    f, positive = rng.choice(VALUES, 30), rng.permutation(30) < positives
    truth, said = (["ab"[int(one)] for one in ones] for ones in (positive, f > 0))
    parts = []
    for rows in np.array_split(rng.permutation(30), 4):
        part = ClassAccumulator(CLASSES[:2], threshold=0.5, positive=CLASSES[1])
        part.add(positive[rows].astype(np.int32), (f[rows] > 0).astype(np.int32), f[rows, None])
        parts.append(part)
    found = parts[0].merge(parts[1]).merge(parts[2].merge(parts[3]))
    slack = np.maximum(0.0, 1.0 - np.where(positive, f, -f))
    result = found.result()._asdict()
    expected = slowly(truth, said, CLASSES[:2]) | ranked_slowly(positive, f)
    expected |= {"hinge": slack.mean(), "squared_hinge": (slack**2).mean(), "F1": result["F1_by_class"][1]}
    assert {name: result[name] for name in expected} == {
        name: pytest.approx(value) if isinstance(value, float) else value for name, value in expected.items()
    }
    stated, best = found.at_thresholds("accuracy", (2.0, 3.0))
    assert stated is not None
    assert best is not None
    for figures, taken in ((stated, f > 0.5), (best, f >= best.threshold)):
        true, false = int((taken & positive).sum()), int((taken & ~positive).sum())
        missed, kept = positives - true, 30 - positives - false
        assert figures[1:] == pytest.approx(
            (
                share(true, true + false),
                share(true, positives),
                share(2 * true, 2 * true + false + missed),
                (share(true, positives) + 1 - share(false, 30 - positives)) / 2,
                (true + kept) / 30,
                (2 * false + 3 * missed) / 30,
            )
        )
    tried = [float(np.mean((f >= threshold) == positive)) for threshold in set(f.tolist())]
    assert best.accuracy == pytest.approx(max(tried))


@pytest.mark.parametrize("shift", [0.0, 1e8])
def test_metrics_numbers_are_summed_in_parts_as_all_at_once(shift: float) -> None:
    rng = np.random.default_rng(1)
    truth = rng.normal(size=50) + shift
    f = truth + rng.normal(size=50)
    parts = []
    for rows in (slice(0, 1), slice(1, 1), slice(1, 30), slice(30, 50)):
        parts.append(NumberAccumulator())
        parts[-1].add(truth[rows], f[rows, None])
    found = parts[1].merge(parts[0].merge(parts[2])).merge(parts[3].merge(parts[1])).result()
    error, away = f - truth, truth - truth.mean()
    assert found == pytest.approx(
        (
            50,
            1 - (error @ error) / (away @ away),
            np.abs(error).mean(),
            math.sqrt(np.mean(error**2)),
            np.abs(error).max(),
            truth.mean(),
            math.sqrt(np.mean(away**2)),
        ),
        rel=1e-6,
    )


# -- against scikit-learn ----------------------------------------------------------------------------------------------


def accumulate(truth: np.ndarray, decision: np.ndarray, classes: tuple[str, ...], pieces: int) -> ModelEvaluation:
    accumulator = ClassAccumulator(classes)
    binary = decision.shape[1] == 1
    predicted = (decision[:, 0] > 0).astype(np.int32) if binary else np.argmax(decision, axis=1).astype(np.int32)
    parts = (np.array_split(a, pieces) for a in (truth.astype(np.int32), predicted, decision))
    for part in zip(*parts, strict=True):
        accumulator.add(*part)
    return accumulator.result()


@each_value(("pieces", [1, 7]), ("seed", range(3)))
def test_metrics_of_two_classes_are_those_of_scikit_learn(pieces: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    truth = (rng.random(5000) < 0.2).astype(int)
    f = rng.standard_normal((5000, 1)) + truth[:, None] - 0.4
    found, said, signs = accumulate(truth, f, ("a", "b"), pieces), (f[:, 0] > 0).astype(int), 2 * truth - 1
    assert found.accuracy == pytest.approx(reference.accuracy_score(truth, said))
    assert found.balanced_accuracy == pytest.approx(reference.balanced_accuracy_score(truth, said))
    assert found.F1 == pytest.approx(reference.f1_score(truth, said))
    assert found.F1_macro == pytest.approx(reference.f1_score(truth, said, average="macro"))
    assert np.array_equal(found.confusion, reference.confusion_matrix(truth, said))
    slack = np.maximum(0, 1 - signs * f[:, 0])
    assert found.hinge == pytest.approx(slack.mean())
    assert found.squared_hinge == pytest.approx((slack**2).mean())
    assert found.AUC is not None
    assert found.AUC_error is not None
    assert abs(found.AUC - reference.roc_auc_score(truth, f[:, 0])) <= found.AUC_error < 2e-3


def test_metrics_of_many_classes_are_those_of_scikit_learn() -> None:
    rng = np.random.default_rng(3)
    truth, f = rng.integers(0, 4, 3000), rng.standard_normal((3000, 4))
    f[np.arange(3000), truth] += 1
    found, said = accumulate(truth, f, tuple("abcd"), 5), np.argmax(f, axis=1)
    assert found.F1_macro == pytest.approx(reference.f1_score(truth, said, average="macro"))
    assert found.balanced_accuracy == pytest.approx(reference.balanced_accuracy_score(truth, said))
    assert (found.F1, found.AUC, found.hinge) == (None, None, None)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False, width=32), min_size=2, max_size=50))
def test_metrics_keys_rise_with_the_values(values: list[float]) -> None:
    ordered = np.sort(np.array(values))
    assert (np.diff(sort_keys(ordered)) >= 0).all()
    assert sort_keys(np.array([-0.0]))[0] == sort_keys(np.array([0.0]))[0]


# -- thresholds --------------------------------------------------------------------------------------------------------


def ranked(rows: int = 4000, seed: int = 0) -> tuple[Ranking, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    positive = rng.random(rows) < 0.15
    f = rng.normal(0, 1, rows) + 1.2 * positive - 0.8
    ranking = Ranking()
    ranking.add(f, positive)
    return ranking, f, positive


@pytest.mark.parametrize("measure", ["F1", "balanced_accuracy", "accuracy", "cost"])
def test_metrics_best_threshold_is_that_of_counting_at_every_value(measure: str) -> None:
    ranking, f, positive = ranked()
    costs = (1.0, 6.0)
    found = best_threshold(ranking.counts, measure, costs)

    def measured(threshold: float) -> dict[str, float]:
        taken = f.astype(np.float32) >= threshold
        true, false = np.sum(taken & positive), np.sum(taken & ~positive)
        missed, kept = np.sum(~taken & positive), np.sum(~taken & ~positive)
        return {
            "F1": 2 * true / (2 * true + false + missed),
            "balanced_accuracy": (true / positive.sum() + kept / (~positive).sum()) / 2,
            "accuracy": (true + kept) / len(f),
            "cost": (costs[0] * false + costs[1] * missed) / len(f),
        }

    at = measured(found.threshold)
    for name, value in at.items():
        assert getattr(found, name) == pytest.approx(value)
    sign = -1 if measure == "cost" else 1
    best = max(sign * measured(float(value))[measure] for value in f.astype(np.float32))
    assert sign * at[measure] >= best - 0.002  # of all thresholds those at the edges of bins are tried


# -- what a page draws -------------------------------------------------------------------------------------------------

RNG = np.random.default_rng(4)
PLAN: Any = SimpleNamespace(problems=[SimpleNamespace(loss=Hinge())])


def stored(rows: int = 90, chunk_rows: int = 30, *, classes: tuple[str, ...] = ("a", "b"), sparse: bool = False) -> Any:
    """Rows of three columns, the second of which drifts and the third of which is always 0."""
    values = RNG.standard_normal((rows, 3)).astype(np.float32)
    values[:, 1] += np.arange(rows) / 20
    values[:, 2] = 0.0
    codes = RNG.integers(0, max(len(classes), 2), rows).astype(np.int32)
    store = MemoryStore(chunk_bytes=1 << 20 if sparse else chunk_rows * 12)
    for start in range(0, rows, chunk_rows):
        part = values[start : start + chunk_rows]
        store.append(csr_of(part) if sparse else Dense(part), codes[start : start + chunk_rows])
    return store.commit(classes, 3), values.astype(np.float64), codes


def test_run_record_columns_that_drift_are_told_in_standard_deviations() -> None:
    store, X, _ = stored()
    found = record.measure_sample(store, PLAN, Model(np.zeros((1, 4)), ("a", "b")), 1)["feature_drift"]
    assert [one["column"] for one in found] == ["column 1", "column 0", "column 2"]
    for column, one in zip((1, 0), found[:2], strict=True):
        moved = [(X[at : at + 30, column].mean() - X[:, column].mean()) / X[:, column].std() for at in (0, 30, 60)]
        assert one["means"] == pytest.approx(moved, rel=1e-5, abs=1e-7)
        assert one["errors"] == pytest.approx(max(map(abs, moved)) * 30**0.5, rel=1e-5)
    assert found[2]["means"] == [0.0, 0.0, 0.0]


def test_run_record_curves_go_through_every_threshold_there_is() -> None:
    """Of nine values; a threshold without a positive of its own is no point of precision over recall."""
    values, truth = np.round(RNG.standard_normal(300) * 2).clip(-4.0, 4.0), RNG.integers(0, 2, 300)
    truth[values == 2.0] = 0
    ranking = Ranking()
    ranking.add(values, truth == 1)
    found = build_curves(ranking.counts)
    thresholds = sorted(set(values.tolist()), reverse=True)
    above = [(values >= t, t) for t in thresholds]
    roc = [
        ((said & (truth == 0)).sum() / (truth == 0).sum(), (said & (truth == 1)).sum() / truth.sum())
        for said, _ in above
    ]
    assert found["roc"] == [(0.0, 0.0), *(pytest.approx(point) for point in roc)]
    recall = [
        ((said & (truth == 1)).sum() / truth.sum(), truth[said].mean()) for said, t in above if truth[values == t].any()
    ]
    assert found["precision_recall"] == [pytest.approx(point) for point in recall]
    edges = lower_edges(sort_keys(values), len(ranking.counts[0]))
    margins = np.where(truth == 1, edges, -edges)
    assert record.count_margins(ranking.counts, ("a", "b"), 0.0) == record.build_histogram(
        margins, truth.astype(np.int32), ("a", "b")
    )
    one_kind = ranking.counts.copy()
    one_kind[0] = 0
    assert build_curves(one_kind) == {}
