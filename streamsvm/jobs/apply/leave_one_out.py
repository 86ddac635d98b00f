"""Bound the leave-one-out error of a linear model on the store it was trained on (evaluate --leave-one-out).

For every row the exact optimum without that row is enclosed (``streamsvm.proofs.row_changes``). So the error of
predicting each row by a model that has never seen it lies between two numbers, without a single refit.

The store is read once for the gradient and the Hessian at the weights of the model, and once more after each Newton step;
these steps bring the weights near the optimum, where the intervals are narrow. Five more passes give the size of the
steps, the matrices for a first and a second guess, a check of the steps, and the intervals. The model may be any linear
one with a loss without kinks, wherever its fit ended.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from streamsvm.engine.evaluation import ProblemBlock, Summation, sum_groups
from streamsvm.errors import UsageError
from streamsvm.features.scaling import Raw, Standardized
from streamsvm.jobs.apply.measures import bound_mean_errors, sum_possible_errors
from streamsvm.model import Model
from streamsvm.model.model import CURVES, KERNEL, count_possible_errors, possible_classes
from streamsvm.proofs.enclosure import MOST_COMPONENTS, bytes_of_sums, has_enclosure, work_bytes
from streamsvm.proofs.row_changes import ONE_ROW, StepLevels
from streamsvm.rows import Float64
from streamsvm.store import open_store
from streamsvm.store.format.labels import sort_key
from streamsvm.type_aliases import Array
from streamsvm.types import Problem, Store, Term

if TYPE_CHECKING:
    from streamsvm.jobs.fit.enclose import AllRows


class LeaveOneOutFigures(NamedTuple):
    """Bounds of the figures of predicting each row by the exact optimum without it. Every row counts once, whatever its weight."""

    rows: int
    """The number of rows."""
    open: int
    """Rows for which both a right and a wrong label are possible; 0 in regression."""
    error: tuple[float, float] | None
    """Bounds of the fraction of rows with a wrong label; None in regression."""
    MAE: tuple[float, float] | None
    """Bounds of the mean absolute error; None for classes."""
    RMSE: tuple[float, float] | None
    """Bounds of the root of the mean squared error; None for classes."""
    balls: int
    """Rows for which only a ball is known, because the optimum without them lies too far away."""


@dataclass(slots=True)
class LeaveOneOutCounts:
    """Sums over rows for ``LeaveOneOutFigures``."""

    rows: int = 0
    wrong: int = 0
    possibly_wrong: int = 0
    balls: int = 0
    sums: Float64 = field(default_factory=lambda: np.zeros(4))
    """Of the least and the largest absolute errors, and of their squares; in regression."""
    waiting: list[tuple[Float64, Float64, Array, Array]] = field(default_factory=list)
    """Of the problems of a block so far: the least and largest decision values, targets, and whether more than a ball is known (n,)."""

    def merge(self, other: LeaveOneOutCounts) -> LeaveOneOutCounts:
        """Return the counts of the rows of both."""
        return LeaveOneOutCounts(
            self.rows + other.rows,
            self.wrong + other.wrong,
            self.possibly_wrong + other.possibly_wrong,
            self.balls + other.balls,
            self.sums + other.sums,
        )

    def add_classes(self, low: Float64, high: Float64, truth: Array, threshold: float) -> None:
        """Add rows with decision values between low and high (n, k), whose class is ``truth`` (n,)."""
        wrong, possibly_wrong = count_possible_errors(possible_classes(low, high, 0, threshold), truth)
        self.wrong += wrong
        self.possibly_wrong += possibly_wrong

    def add_numbers(self, low: Float64, high: Float64, targets: Float64) -> None:
        """Add rows with predictions between low and high (n,) of targets (n,)."""
        self.sums += sum_possible_errors(low, high, targets)

    def result(self, *, numeric: bool) -> LeaveOneOutFigures:
        """Return the figures."""
        rows, slack = max(self.rows, 1), 4 * (self.rows + 1) * 2.0**-53
        MAE, RMSE = bound_mean_errors(self.sums, self.rows, slack) if numeric else (None, None)
        error = None if numeric else (self.wrong / rows, self.possibly_wrong / rows)
        return LeaveOneOutFigures(self.rows, self.possibly_wrong - self.wrong, error, MAE, RMSE, self.balls)


class TrainedProblems(NamedTuple):
    """The problems that a model solves, and its weights as they see them."""

    store: Store
    problems: list[Problem]
    features: Raw | Standardized
    weights: list[Float64]
    """(d + 1,) of each problem."""


def find_problems(model: Model, data: tuple[str, ...]) -> TrainedProblems:
    """Return the problems that a model solves on the store it was trained on. Raises UsageError for another store, or a model that has no bounds."""
    from streamsvm.jobs.fit.options import FitJob
    from streamsvm.jobs.fit.plan import choose_features
    from streamsvm.jobs.fit.problems import build_problems, to_solver_weights

    settings, trained = model.provenance.get("settings"), model.provenance.get("store")
    if settings is None or trained is None or not model.certificates:
        raise UsageError(
            "--leave-one-out is for a model that fit made, and this one has no record of its fit", hint="fit it again"
        )
    store = open_store(data[0])
    if len(data) != 1 or store.digest != trained["digest"]:
        raise UsageError(
            f"--leave-one-out is for the store that the model was trained on, and {data[0]} is another one",
            hint="name that store",
        )
    C = model.provenance["certificates"][0]["C"]
    changed = {
        "store": data[0],
        "model": "",
        "C": C,
        "lambda_": None,
        "warm_start": None,
        "calibrate": None,
        "threshold": None,
        "certify": None,
    }
    job = msgspec.convert({**settings, **changed, "validation": None, "landmark_file": None}, FitJob, strict=False)
    reasons = {
        "curves": model.kind == CURVES,
        "a kernel": model.kind == KERNEL or store.facts.get("map") is not None,
        "one class": bool(job.one_class),
        "nu": job.nu is not None,
        "l1": job.l1 is not None or job.l1_ball is not None,
        "free_bias": bool(job.free_bias),
        "pairs of classes": model.pairs,
        "multi_class crammer_singer": job.multi_class == "crammer_singer",
        "rows that were held out": isinstance(settings.get("validation"), float),
        f"more than {MOST_COMPONENTS - 1} columns": model.columns >= MOST_COMPONENTS,
    }
    for what, is_so in reasons.items():
        if is_so:
            raise UsageError(
                f"--leave-one-out is not for a model with {what}", hint="tune --folds estimates its error on new rows"
            )
    problems, names = build_problems(job, store.layout)
    if not has_enclosure(problems[0].loss):
        raise UsageError(
            f"--leave-one-out needs a loss without kinks, and {job.loss} has one: nothing bounds how far a row moves the optimum",
            hint="fit with --loss squared_hinge, or huber, the hinge with a rounded corner",
        )
    features = choose_features(job, store)
    order = [0] if len(problems) == 1 else sorted(range(len(problems)), key=lambda k: sort_key(names[k]))
    weights = [to_solver_weights(model.weights[order.index(k)], features, "the model") for k in range(len(problems))]
    return TrainedProblems(store, problems, features, weights)


def leave_one_out_term(model: Model, threads: int) -> Term:
    """Return the memory of the bounds."""
    p, count = model.weights.shape[1], len(model.weights)
    nbytes = (2 * threads + 2) * count * bytes_of_sums(p, ONE_ROW.levels) + (threads + 1) * work_bytes(p)
    return Term("leaving out rows", nbytes, f"matrices of {ONE_ROW.levels} sizes of steps, by each thread")


def bound_leave_one_out(trained: TrainedProblems, threshold: float) -> LeaveOneOutFigures:
    """Return the figures of all rows. ``threshold``: of two classes, that of the model. Raises what reading the store raises."""
    from streamsvm.jobs.fit.enclose import AllRows, Scaling

    problems = trained.problems
    rows = AllRows(trained.store, Scaling.of(trained.features, problems[0]), problems, trained.weights)
    states = rows.complete_levels(
        [StepLevels(first, problem.loss, ONE_ROW) for first, problem in zip(rows.approach(), problems, strict=True)]
    )
    add = partial(_count_block, rows, states, threshold)
    counts = sum_groups(rows.rows(), Summation(LeaveOneOutCounts, add, LeaveOneOutCounts.merge))
    return counts.result(numeric=problems[0].loss.numeric())


def _count_block(
    rows: AllRows, states: list[StepLevels], threshold: float, counts: LeaveOneOutCounts, problem_block: ProblemBlock
) -> None:
    """Add the rows of a block of one problem; after the last problem they are counted."""
    (k, block, _), problems = problem_block, rows.problems
    if k == 0:
        counts.waiting = []
    parts = [states[k].bounds_without_row(part, signs) for part, signs in rows.iterate_rows(k, block)]
    low, high, settled = (np.concatenate([part[i] for part in parts]) for i in range(3))
    y = block.y.astype(np.float64)
    if problems[k].loss.numeric():
        pad = 2.0**-52 * (np.abs(low) + np.abs(high) + np.abs(y))
        low, high = low + y - pad, high + y + pad
    else:
        low, high = np.where(y > 0, low, -high), np.where(y > 0, high, -low)
    counts.waiting.append((low, high, y, settled))
    if k < len(problems) - 1:
        return
    lows, highs, targets, known = (np.array(values).T for values in zip(*counts.waiting, strict=True))
    counts.rows += len(y)
    counts.balls += int((~known).any(axis=1).sum())
    if problems[0].loss.numeric():
        counts.add_numbers(lows[:, 0], highs[:, 0], targets[:, 0])
    else:
        truth = (targets[:, 0] > 0).astype(np.int64) if len(problems) == 1 else targets.argmax(axis=1)
        counts.add_classes(lows, highs, truth, threshold)
    counts.waiting = []


def describe_leave_one_out(figures: LeaveOneOutFigures) -> list[str]:
    """Return the figures in words."""
    from streamsvm.config.units import percent

    if figures.error is None:
        bounds = (("MAE", figures.MAE), ("RMSE", figures.RMSE))
        lines = [f"{name} {ends[0]:.6g} to {ends[1]:.6g}" for name, ends in bounds if ends is not None]
    else:
        low, high = figures.error
        ends = percent(low, 5) if low == high else f"between {percent(low, 5)} and {percent(high, 5)}"
        lines = [f"error {ends} ({figures.open} of {figures.rows} rows open)"]
    return lines
