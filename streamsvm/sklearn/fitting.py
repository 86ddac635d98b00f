"""How an estimator is fitted: its parameters become a job, its rows a store, and what the fit finds its attributes."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets

from streamsvm.aliases import Array, ByName, JsonObject
from streamsvm.api.passes import told
from streamsvm.api.running import reported
from streamsvm.api.values import by_field
from streamsvm.config.job_file import make_job
from streamsvm.engine.checkpoint.signals import interruptible
from streamsvm.jobs.apply.opening import moved_from
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.run import FitResult, fit
from streamsvm.jobs.fit_in_memory import MemoryFitResult, fit_in_memory
from streamsvm.model.model import LINEAR, Model
from streamsvm.rows import Float64, Int32
from streamsvm.sklearn import pairs
from streamsvm.sklearn.rows import as_value_errors, balanced, row_weights, seed_of, store_of, threads_of
from streamsvm.sklearn.stores import classes_of, located
from streamsvm.sklearn.stream_rows import StreamRows
from streamsvm.store.format.labels import label_text
from streamsvm.types import Report

OURS = (
    "random_state",
    "warm_start",
    "class_weight",
    "calibration",
    "verbose",
    "n_jobs",
    "on_pass",
    "Cs",
    "cv",
    "multi_class",
    "decision_function_shape",
)
"""Parameters that have scikit-learn's meaning or name; all others are options of ``streamsvm fit``, by their names."""


def fit_arrays(estimator: Any, X: Any, y: Array, sample_weight: Any, **chosen: Any) -> None:
    """Fit to rows in memory that scikit-learn has looked at: X (n, d), y (n,). Raises ValueError, BudgetError.

    ``chosen``: options that are not the estimator's parameters.
    """
    classes, codes = coded(y)
    weights = row_weights(sample_weight, len(codes))
    with as_value_errors():
        store = store_of(X, codes, weights, len(classes))
        job = job_of(estimator, class_weights(estimator, classes, codes, weights), **chosen)
        with watched(estimator) as report:
            if pairs.wanted(estimator, classes):
                take_pairs(estimator, pairs.fit_pairs(job, store, kept_codes(codes, weights), report), classes)
                return
            result = fit_in_memory(job, store, report, start_of(estimator, classes))
    take(estimator, result, classes, named(estimator, result.model, classes))


def fit_elsewhere(estimator: Any, X: Any, y: Any, sample_weight: Any, **chosen: Any) -> None:
    """As the command line does, in a folder that is removed at the end."""
    with as_value_errors(), located(job_of(estimator, estimator.class_weight, **chosen), X, y, sample_weight) as job:
        if getattr(estimator, "multi_class", "ovr") != "ovr":
            fit_store(estimator, StreamRows(job.store), None, None, **chosen)
            return
        with watched(estimator) as report, interruptible():
            result = fit(job, report)
    estimator.n_features_in_ = result.model.columns
    if result.model.names is not None:
        estimator.feature_names_in_ = np.array(result.model.names, dtype=object)
    take(estimator, result, classes_of(result.model.classes))


def fit_store(estimator: Any, X: StreamRows, y: Any, sample_weight: Any, **chosen: Any) -> None:
    """Fit to rows of a store where they lie; ``y`` may only be their labels. Raises ValueError, BudgetError."""
    check_own(X, y, sample_weight)
    with as_value_errors():
        job = job_of(estimator, estimator.class_weight, **chosen)
        with watched(estimator) as report, interruptible():
            store = X.store()
            estimator.n_features_in_ = store.layout.columns
            if pairs.wanted(estimator, np.array(store.layout.classes)):
                ordered = [store.layout.classes[code] for code in pairs.in_order(store)]
                take_pairs(estimator, pairs.fit_pairs(job, store, X.codes, report), X.known(ordered))
                return
            result = fit_in_memory(job, store, report)
    take(estimator, result, X.known(result.model.classes))


def check_own(X: StreamRows, y: Any, sample_weight: Any) -> None:
    """Raise ValueError unless labels are those that the rows have themselves, and there are no weights beside them."""
    if sample_weight is not None:
        raise ValueError("rows of a store have their weights in it: ingest them with weight=")
    if y is not None and not np.array_equal(np.asarray(y), X.labels):
        raise ValueError("y are not the labels of these rows: pass rows.labels, cut as the rows are")


def decisions(model: Model, X: StreamRows) -> Float64:
    """Return what a model says of rows of a store, in their order: (n,) for two classes, else (n, classes)."""
    values = np.empty((len(X), len(model.weights)))
    moved = moved_from(model, X.store().facts)
    for rows, places in X.blocks():
        values[places] = model.decision(moved.applied(rows))
    return values[:, 0] if values.shape[1] == 1 else values


def coded(y: Array) -> tuple[Array, Int32]:
    """Return the classes in their order, and the code of each label (n,). Raises ValueError for what is no class, or but one."""
    check_classification_targets(y)
    classes, found = np.unique(y, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(f"y has one class, {classes[0]!r}: at least two classes are needed")
    return classes, found.ravel().astype(np.int32)


@contextmanager
def watched(estimator: Any) -> Iterator[Report]:
    """Give the report of a fit, which keeps what every pass has come to, and tells ``on_pass`` of it."""
    passes: list[JsonObject] = []

    def on_pass(record: JsonObject) -> None:
        passes.append(record)
        if estimator.on_pass is not None:
            estimator.on_pass(record)

    with reported(progress=estimator.verbose, on_event=None) as report:
        yield told(report, on_pass)
    estimator.passes_ = passes


def job_of(estimator: Any, class_weight: Mapping[Any, float] | str | None, **chosen: Any) -> FitJob:
    """Return what an estimator asks for, with options ``chosen`` for it. Raises UsageError, ConfigError."""
    name = type(estimator).__name__
    asked = {key: value for key, value in estimator.get_params(deep=False).items() if key not in OURS}
    given: ByName = {"store": "", "model": "", "class_weight": class_weight, "seed": seed_of(estimator.random_state)}
    given["threads"] = threads_of(estimator.n_jobs)
    of_pairs = getattr(estimator, "multi_class", "ovr") == "ovo"  # have no probabilities
    given["calibrate"] = None if of_pairs else getattr(estimator, "calibration", None)
    job: FitJob = make_job("fit", by_field("fit", asked | given | chosen, name), name)
    return job


def class_weights(estimator: Any, classes: Array, codes: Int32, weights: Float64 | None) -> ByName | None:
    """Return factors of C by the code of a class; None where all count alike."""
    if estimator.class_weight is None:
        return None
    if isinstance(estimator.class_weight, str) and estimator.class_weight == "balanced":
        found = balanced(codes, weights, len(classes))
    else:
        found = compute_class_weight(estimator.class_weight, classes=classes, y=classes[codes])
    return {str(code): float(factor) for code, factor in enumerate(found)}


def start_of(estimator: Any, classes: Array) -> Model | None:
    """Return the model of the last fit, where it can be started from, as one of class codes."""
    return resumable(estimator, classes) if estimator.warm_start else None


def resumable(estimator: Any, classes: Array) -> Model | None:
    """Return the model an estimator has as one of class codes, if it is a linear one of these columns and classes."""
    last: Model | None = getattr(estimator, "model_", None)
    if last is None or last.kind != LINEAR or estimator.kernel != "linear":
        return None
    if last.columns != estimator.n_features_in_ or not np.array_equal(classes, estimator.classes_):
        return None
    codes = tuple(map(str, range(len(classes))))
    return replace(last, classes=codes, provenance={"encoding": last.provenance.get("encoding")})


def take(estimator: Any, result: MemoryFitResult | FitResult, classes: Array, model: Model | None = None) -> None:
    """Keep what a fit has found as attributes, the model under other names if one is given. Warns (ConvergenceWarning)."""
    model = result.model if model is None else model
    vars(estimator).pop("models_", None)
    estimator.classes_, estimator.model_ = classes, model
    estimator.rows_seen_ = result.plan.layout.rows
    found = model.certificate
    estimator.gap_, estimator.primal_, estimator.dual_ = found.gap, found.primal, found.dual
    estimator.n_passes_, estimator.peak_memory_ = result.training.passes, result.training.peak
    if model.kind == LINEAR:
        estimator.coef_, estimator.intercept_ = model.coef, model.intercept
    for warning in result.warnings:
        warnings.warn(warning, ConvergenceWarning, stacklevel=4)


def take_pairs(estimator: Any, results: list[MemoryFitResult], classes: Array) -> None:
    """Keep what the fits of all pairs of classes have found; the certificate is that of the worst."""
    vars(estimator).pop("model_", None)
    names = [label_text(label) for label in classes.tolist()]
    models = [
        named_as(estimator, result.model, [names[second], names[first]])
        for result, (first, second) in zip(results, combinations(range(len(names)), 2), strict=True)
    ]
    worst = max((model.certificate for model in models), key=lambda found: found.gap)
    estimator.classes_, estimator.models_ = classes, models
    estimator.gap_, estimator.primal_, estimator.dual_ = worst.gap, worst.primal, worst.dual
    estimator.n_passes_ = max(result.training.passes for result in results)
    estimator.peak_memory_ = max(result.training.peak for result in results)
    estimator.rows_seen_ = sum(result.plan.layout.rows for result in results) // (len(classes) - 1)
    if all(model.kind == LINEAR for model in models):
        estimator.coef_ = np.concatenate([model.coef for model in models])
        estimator.intercept_ = np.concatenate([model.intercept for model in models])
    for warning in {warning for result in results for warning in result.warnings}:
        warnings.warn(warning, ConvergenceWarning, stacklevel=5)


def kept_codes(codes: Int32, weights: Float64 | None) -> Int32:
    """Return the class codes of the rows that have a weight."""
    return codes if weights is None else codes[weights > 0]


def named(estimator: Any, model: Model, classes: Array) -> Model:
    """Return the model of a fit in memory with the names of columns and classes."""
    return named_as(estimator, model, [label_text(label) for label in classes.tolist()])


def named_as(estimator: Any, model: Model, texts: list[str]) -> Model:
    """Return a model with the names of an estimator's columns, and classes that are called by these texts."""
    names = getattr(estimator, "feature_names_in_", None)
    known = {} if names is None else {"names": [str(name) for name in names]}
    return replace(model, classes=tuple(texts), provenance=model.provenance | known)
