"""The figures of an evaluation against loops over rows, on small tables where classes are missing and labels are new, in parts that are joined."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from streamsvm.jobs.apply.metrics import (
    MetricAccumulator,
    NumberAccumulator,
)

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
        part = MetricAccumulator(CLASSES)
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


@pytest.mark.parametrize("positives", [0, 1, 9, 29, 30])
def test_metrics_two_classes_are_ranked_in_parts_as_pair_by_pair(positives: int) -> None:
    rng = np.random.default_rng(positives)
    f, positive = rng.choice(VALUES, 30), rng.permutation(30) < positives
    truth, said = (["ab"[int(one)] for one in ones] for ones in (positive, f > 0))
    parts = []
    for rows in np.array_split(rng.permutation(30), 4):
        part = MetricAccumulator(CLASSES[:2], threshold=0.5)
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
