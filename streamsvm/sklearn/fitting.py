"""How an estimator is fitted: its parameters become a job, its rows a store, and what the fit finds its attributes."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
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
from streamsvm.jobs.apply.row_batches import moved_from
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.run import FitResult, fit
from streamsvm.jobs.fit_in_memory import MemoryFitResult, fit_in_memory
from streamsvm.model import LINEAR, Model
from streamsvm.rows import Float64, Int32
from streamsvm.sklearn.rows import as_value_errors, balanced, row_weights, seed_of, store_of
from streamsvm.sklearn.stores import classes_of, located
from streamsvm.sklearn.stream_rows import StreamRows
from streamsvm.store.format.labels import label_text
from streamsvm.types import Report

OURS = ("random_state", "warm_start", "class_weight", "verbose", "on_pass", "Cs", "cv")
"""Parameters that have scikit-learn's meaning; all others are options of ``streamsvm fit``, by their names."""


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
            result = fit_in_memory(job, store, report, start_of(estimator, classes))
    take(estimator, result, classes, named(estimator, result.model, classes))


def fit_elsewhere(estimator: Any, X: Any, y: Any, sample_weight: Any, **chosen: Any) -> None:
    """As the command line does, in a folder that is removed at the end."""
    with (
        as_value_errors(),
        located(job_of(estimator, estimator.class_weight, **chosen), X, y, sample_weight) as job,
        watched(estimator) as report,
        interruptible(),
    ):
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
            result = fit_in_memory(job, X.store(), report)
    estimator.n_features_in_ = result.model.columns
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
    given = {"store": "", "model": "", "class_weight": class_weight, "seed": seed_of(estimator.random_state)}
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
    last: Model | None = getattr(estimator, "model_", None) if estimator.warm_start else None
    if last is None or last.kind != LINEAR or estimator.kernel != "linear":
        return None
    if last.columns != estimator.n_features_in_ or not np.array_equal(classes, estimator.classes_):
        return None
    codes = tuple(map(str, range(len(classes))))
    return replace(last, classes=codes, provenance={"encoding": last.provenance.get("encoding")})


def take(estimator: Any, result: MemoryFitResult | FitResult, classes: Array, model: Model | None = None) -> None:
    """Keep what a fit has found as attributes, the model under other names if one is given. Warns (ConvergenceWarning)."""
    model = result.model if model is None else model
    estimator.classes_, estimator.model_ = classes, model
    found = model.certificate
    estimator.gap_, estimator.primal_, estimator.dual_ = found.gap, found.primal, found.dual
    estimator.n_passes_, estimator.peak_memory_ = result.training.passes, result.training.peak
    if model.kind == LINEAR:
        estimator.coef_, estimator.intercept_ = model.coef, model.intercept
    for warning in result.warnings:
        warnings.warn(warning, ConvergenceWarning, stacklevel=4)


def named(estimator: Any, model: Model, classes: Array) -> Model:
    """Return the model of a fit in memory with the names of columns and classes."""
    names = getattr(estimator, "feature_names_in_", None)
    known = {"names": None if names is None else [str(name) for name in names]}
    texts = tuple(label_text(label) for label in classes.tolist())
    return replace(model, classes=texts, provenance=model.provenance | known)
