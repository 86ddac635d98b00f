"""A rare class: C, pass and threshold chosen on the same held-out rows by streamsvm and by scikit-learn, judged on the same test rows.

python -m tools.bench.unbalanced --sets kdd99,drawn --rows 200000

60 % of the rows are for training, 20 % choose, 20 % test. Both fit logistic regression to columns standardized by the training rows.
streamsvm: C and the pass by average precision, with patience, and the threshold by F1. scikit-learn: ``LogisticRegressionCV`` for C, on
that split and without fitting again, and ``TunedThresholdClassifierCV`` for the threshold. Twice: by the defaults, and at the optimum
of the same problem. For that the constant feature of streamsvm, whose weight is regularized, is 100, so that it costs next to nothing
as scikit-learn's intercept does; and scikit-learn goes on to a smaller gradient: its tolerance is for the mean over all rows, to which
a rare class adds little. Thresholds are of the decision value. CPU seconds are from arrays to a model with its threshold, on one thread,
stores written; compiled passes have been loaded by a small fit.

kdd99: normal connections of KDD Cup 1999 and ``warezclient.``, 1 % of them; names one-hot. drawn: .2 % fraud among payments with
28 mixed components, a skewed amount and the hour.
"""

from __future__ import annotations

import math
import resource
import warnings
from argparse import Namespace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.linear_model import LogisticRegressionCV
from sklearn.metrics import average_precision_score, f1_score
from sklearn.model_selection import PredefinedSplit, TunedThresholdClassifierCV
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

import streamsvm as sv
from tools.measure.datasets import SYMBOLIC, read_table
from tools.measure.harness import Row, arguments, scratch, show

VALUES_OF_C = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0)
PATIENCE_PASSES = 5
SMALL_ROWS = 2_000
ALLOWED = {"AP": 0.01, "F1": 0.02}
"""Largest differences of a measure from scikit-learn's that count as none."""


class Part(NamedTuple):
    """Rows (n, d) float32, and 1 for the rare class, 0 for the other, (n,) int64."""

    X: Any
    y: Any


class Parts(NamedTuple):
    """The three parts of a set."""

    train: Part
    validation: Part
    test: Part


def main() -> None:
    options = arguments(__doc__, sets="kdd99,drawn", rows=200_000, seed=1)
    rows: list[Row] = []
    with scratch() as folder, threadpool_limits(1):
        for name in options.sets.split(","):
            rows += compare(name, folder, options)
    show("A rare class: C, pass and threshold by average precision and F1 on held-out rows", rows, options)
    for ours, theirs in zip(rows[::2], rows[1::2], strict=True):
        differences = {measure: ours[measure] - theirs[measure] for measure in ALLOWED}
        told = ", ".join(
            f"{measure} {value:+.4f} ({judge_difference(value, ALLOWED[measure])})"
            for measure, value in differences.items()
        )
        print(f"{ours['set']}, {ours['program']} beside {theirs['program']}: {told}")


def judge_difference(difference: float, allowed: float) -> str:
    """Return in words how a measure of ours differs from scikit-learn's."""
    if abs(difference) <= allowed:
        return f"within {allowed}"
    return f"{'better' if difference > 0 else 'WORSE'} by more than {allowed}"


def compare(name: str, folder: Path, options: Namespace) -> list[Row]:
    """Return the rows of the table: streamsvm and scikit-learn by their defaults, and both at the optimum of the same problem."""
    X, y = load_kdd99(folder) if name == "kdd99" else draw_payments(options.rows)
    order = np.random.default_rng(options.seed).permutation(len(y))[: options.rows]
    cuts = [int(0.6 * len(order)), int(0.8 * len(order))]
    parts = Parts(*(Part(X[part], y[part]) for part in np.split(order, cuts)))
    rare = ", ".join(f"{part.y.sum()} of {len(part.y)}" for part in parts)
    print(f"{name}, {X.shape[1]} columns; of the rare class for training, choosing and testing: {rare}", flush=True)
    choose(Parts(*(thin(part) for part in parts)), folder, {})
    found = {
        "streamsvm": choose(parts, folder, {}),
        "scikit-learn": choose_by_sklearn(parts, {}),
        "streamsvm --bias 100": choose(parts, folder, {"bias": 100.0}),
        "scikit-learn, tol=1e-8": choose_by_sklearn(parts, {"tol": 1e-8}),
    }
    return [{"set": name, "program": program} | row for program, row in found.items()]


def thin(part: Part) -> Part:
    """Return few of the rows, with some of either class."""
    kept = np.sort(np.argsort(part.y, kind="stable")[:: -max(1, len(part.y) // SMALL_ROWS)])
    return Part(part.X[kept], part.y[kept])


# -- contestants -------------------------------------------------------------------------------------------------------


def choose(parts: Parts, folder: Path, settings: dict[str, Any]) -> Row:
    """Fit by streamsvm with everything chosen on the rows held out, and judge on the test rows."""
    train, validation = str(folder / "train.zarr"), str(folder / "validation.zarr")
    began = cpu_seconds()
    for path, part in ((train, parts.train), (validation, parts.validation)):
        sv.ingest(part.X, path, y=part.y, chunk="1MiB", overwrite=True)
    result = sv.fit(
        train,
        str(folder / "model.ssvm"),
        loss="logistic",
        C=VALUES_OF_C,
        standardize=True,
        validation=validation,
        score="average_precision",
        patience=PATIENCE_PASSES,
        threshold="f1",
        threads=1,
        overwrite=True,
        **settings,
    )
    seconds, model = cpu_seconds() - began, result.model
    found = judge(parts.test, model.decision_function(parts.test.X), model.predict(parts.test.X))
    C = model.provenance["validation"]["C"]
    return found | {"threshold": float(model.threshold), "C": C, "CPU s": seconds}


def choose_by_sklearn(parts: Parts, settings: dict[str, Any]) -> Row:
    """The same by scikit-learn: the model of the training rows with the best C, and its threshold."""
    began = cpu_seconds()
    scale = StandardScaler().fit(parts.train.X)
    train, validation = (scale.transform(part.X) for part in parts[:2])
    split = PredefinedSplit(np.repeat([-1, 0], [len(train), len(validation)]))
    fixed: dict[str, Any] = {"scoring": "average_precision", "max_iter": 2000, "refit": False}
    search = LogisticRegressionCV(Cs=VALUES_OF_C, cv=split, **fixed, **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # names of attributes
        search.fit(np.vstack([train, validation]), np.r_[parts.train.y, parts.validation.y])
    tuned = TunedThresholdClassifierCV(search, scoring="f1", cv="prefit", refit=False)
    tuned.fit(validation, parts.validation.y)
    seconds, probability = cpu_seconds() - began, float(tuned.best_threshold_)
    X = scale.transform(parts.test.X)
    found = judge(parts.test, search.decision_function(X), tuned.predict(X))
    threshold, C = math.log(probability / (1.0 - probability)), float(np.ravel(search.C_)[0])
    return found | {"threshold": threshold, "C": C, "CPU s": seconds}


def judge(test: Part, decisions: Any, labels: Any) -> Row:
    """Return the measures of the rare class on the test rows."""
    AP, F1 = average_precision_score(test.y, decisions), f1_score(test.y, np.asarray(labels).astype(int))
    return {"AP": float(AP), "F1": float(F1)}


def cpu_seconds() -> float:
    """Return the CPU seconds of this process, all threads together."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


# -- rows --------------------------------------------------------------------------------------------------------------


def load_kdd99(folder: Path) -> Part:
    """Return 98,298 connections: those that are normal, and 1,020 of warezclient, which are the rare class."""
    table = read_table("kddcup.data_10_percent.gz", folder)
    labels = table.column(41).to_numpy()
    kept = np.isin(labels, ["normal.", "warezclient."])
    columns: list[Any] = []
    for k in range(41):
        values = table.column(k).to_numpy()[kept]
        columns += [values == one for one in np.unique(values)] if k in SYMBOLIC else [values]
    X = np.column_stack([column.astype(np.float32) for column in columns])
    return Part(X[:, X.std(0) > 0], (labels[kept] == "warezclient.").astype(np.int64))


def draw_payments(rows: int) -> Part:
    """Draw payments, .2 % of them fraud of two kinds: some with small amounts and moved components, some with large ones at night."""
    rng = np.random.default_rng(0)
    components = 28
    y = (rng.random(rows) < 0.002).astype(np.int64)
    kind = np.where(y == 1, rng.integers(1, 3, rows), 0)
    centers = 0.6 * rng.normal(size=(4, components))
    moved = np.vstack([np.zeros(components), np.full(components, 0.9), 1.2 * rng.normal(size=components)])
    mixed = (rng.normal(size=(rows, components)) + centers[rng.integers(4, size=rows)] + moved[kind]) @ (
        rng.normal(size=(components, components)) / math.sqrt(components)
    )
    amount = np.exp(np.array([3.0, 0.5, 5.5])[kind] + np.array([1.4, 1.0, 1.2])[kind] * rng.normal(size=rows))
    hour = (np.array([14.0, 14.0, 3.0])[kind] + 5.0 * rng.normal(size=rows)) % 24.0
    return Part(np.column_stack([mixed, amount, hour]).astype(np.float32), y)


if __name__ == "__main__":
    main()
