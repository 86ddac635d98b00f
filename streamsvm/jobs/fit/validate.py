"""Evaluate a fit on held-out rows after each pass, keep the best weights, and stop early (--validation, --score,
--patience).

The held-out rows are a random fraction of the chunks, or another store. Training does not use them; column statistics,
which do not depend on labels, are those of the whole store. Each value of C is evaluated and stopped separately.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from operator import add
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.engine.executor import Executor, Task, local_executor
from streamsvm.engine.fit_state import Training
from streamsvm.engine.loop import FitLoop
from streamsvm.engine.partition import Group, contiguous_groups, pass_groups
from streamsvm.engine.store_reference import OpenedStore, StoreReference, reference_to
from streamsvm.errors import UsageError
from streamsvm.features.curves import Hats
from streamsvm.features.expansion import Expansion
from streamsvm.input_files import find_url, is_folder, is_there
from streamsvm.jobs.apply.rows import FileRequest, RowBatches, open_rows
from streamsvm.jobs.calibrate import ChosenThreshold, choose_threshold, loss_probabilities
from streamsvm.jobs.embed.plan import wants_landmarks
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.plan import Plan, to_model_rows
from streamsvm.jobs.ingest.options import LEAST_CHUNK, SEVERAL
from streamsvm.model import Model
from streamsvm.model.measures import (
    ERROR,
    MEASURES,
    PROBABILITIES,
    RMSE,
    Measure,
    MeasureCounts,
    uninformative_error_notice,
)
from streamsvm.rows import Float64
from streamsvm.schedule import budget
from streamsvm.solvers.evaluation import WeightEvaluation
from streamsvm.store import open_store
from streamsvm.store.foreign import foreign_format
from streamsvm.store.sources.offsets import Offsets
from streamsvm.store.views import Section
from streamsvm.type_aliases import JsonObject
from streamsvm.types import Certificate, LinearSolution, Report, Stop, Store, StoredFiles


def open_training_store(job: FitJob, *, chooses_C: bool = False) -> tuple[Store, Store | None]:
    """Return the store to train on, and its held-out part or None. Raises UsageError and the errors of ``open_store``.

    ``chooses_C``: whether the fit chooses C on held-out rows of files, so that --score has a meaning without --validation.
    """
    limit = budget.memory_limit(job.memory)
    store = open_store(
        job.store,
        features_key=job.features_key,
        labels_key=job.labels_key,
        memory_limit=limit,
        disk_cache=job.disk_cache or 0,
    )
    if job.validation is None and job.patience is not None:
        raise UsageError("--patience waits for scores on held-out rows", hint="give --validation too")
    if job.validation is None and job.score is not None and not chooses_C:
        raise UsageError("--score is the measure for held-out rows, and there are none", hint="give --validation too")
    if job.validation is not None and store.facts.get("map") is not None:
        raise UsageError(
            "rows of an embedding cannot be held out", hint="fit the rows it was made of, with --landmarks"
        )
    if not isinstance(job.validation, float | int):
        return store, None
    if wants_landmarks(job):
        raise UsageError("chunks are held out of linear fits only", hint="give --validation a store of its own")
    if len(store.layout.chunks) == 1:
        chunk = max(LEAST_CHUNK, store.layout.bytes_per_pass // SEVERAL)
        raise UsageError(
            "the store has only one chunk, which cannot be held out",
            hint=f"ingest with smaller chunks (--chunk {chunk}), or give --validation a store",
        )
    training, held_out = split_chunks(len(store.layout.chunks), float(job.validation), job.seed)
    parts = [Section(store, chunks, count_rows_in(store, chunks)) for chunks in (training, held_out)]
    if min(parts[0].layout.counts) == 0:
        raise UsageError(
            "the chunks that are not held out lack a class: classes are not spread over the store",
            hint="ingest with --shuffle, or give --validation a store of its own",
        )
    return parts[0], parts[1]


def split_chunks(chunks: int, share: float, seed: int) -> tuple[list[int], list[int]]:
    """Return the chunks to train on and those held out, at least one of each. Raises UsageError.

    There are two chunks or more.
    """
    if not 0.0 < share < 1.0:
        raise UsageError(
            f"--validation {share:g} is not a fraction of the rows", hint="give a number between 0 and 1, or a store"
        )
    count = min(chunks - 1, max(1, round(share * chunks)))
    order = np.random.default_rng((seed, chunks)).permutation(chunks).tolist()
    return sorted(order[count:]), sorted(order[:count])


def count_rows_in(store: StoredFiles, chunks: list[int]) -> tuple[int, ...]:
    """Return the number of rows of each class in some chunks; for regression one number for all rows."""
    table = np.zeros((len(chunks), len(store.layout.counts)), np.int64)
    for row, chunk in zip(table, chunks, strict=True):
        row[: len(store.census[chunk])] = store.census[chunk]
    return tuple(table.sum(axis=0).tolist())


@dataclass(slots=True)
class HeldOutValidation:
    """Evaluates a training after each pass. Its state is in ``Training.validation_state``, by the text of each C."""

    plan: Plan
    """The plan of the fit."""
    count: Callable[[Model, MeasureCounts], MeasureCounts]
    """``count_scores`` for the held-out rows: evaluates several models, with stacked weights, in one pass."""
    patience: int | None
    """The number of passes without a better score after which a C is stopped; None: never."""
    report: Report
    """The receiver of ``validation`` events."""
    _groups: dict[float, list[int]] = field(init=False)

    def __post_init__(self) -> None:
        problems = self.plan.problems
        self._groups = {C: [k for k, p in enumerate(problems) if p.C == C] for C in self.plan.costs}

    def evaluate(self, training: Training) -> None:
        """Evaluate the current weights of each C on the held-out rows, keep the best ones, and stop every C whose score
        has not improved for ``patience`` passes.
        """
        waiting = {id(run) for run in training.waiting()}
        unfinished = {
            C: ks
            for C, ks in self._groups.items()
            if not training.validation_state.get(repr(C), {}).get("over")
            and any(id(training.runs[k]) not in waiting for k in ks)
        }
        current = {C: [self._weights(training, k) for k in ks] for C, ks in unfinished.items()}
        rows_by_C = {C: [to_model_rows(self.plan, w) for w in weights] for C, weights in current.items()}
        measure = self.plan.measure
        rank = measure.rank
        scores, majority = self._scores(rows_by_C, self.plan.features.expansion)
        for (C, weights), score in zip(current.items(), scores, strict=True):
            runs = [training.runs[k] for k in unfinished[C]]
            is_over = training.is_last_pass or all(run.done for run in runs)
            best = training.validation_state.get(repr(C))
            if best is None or rank(score) < rank(best["score"]) or (is_over and score == best["score"]):
                best = {"score": score, "pass": training.passes, "weights": weights, "final": is_over}
            no_progress = self.patience is not None and training.passes - best["pass"] >= self.patience
            if any(id(run) in waiting for run in runs):
                is_over = no_progress = False
            best |= {"over": is_over or no_progress, "stopped": no_progress and not is_over, "looked": training.passes}
            best |= {"majority": majority}
            training.validation_state[repr(C)] = best
            for run in runs:
                run.done = run.done or no_progress
            facts = {"pass": training.passes, "C": C, **describe_score(measure, score)}
            self.report({"event": "validation", **facts, "best": best["score"], "best_pass": best["pass"]})

    def score_models(self, training: Training, models: Mapping[float, Model]) -> None:
        """Score finished models on the held-out rows, as after their last pass."""
        rows_by_C = {C: [self._in_order_of_plan(model)] for C, model in models.items()}
        scores, majority = self._scores(rows_by_C, next(iter(models.values())).expansion)
        for C, score in zip(models, scores, strict=True):
            training.validation_state[repr(C)] = {"score": score, "pass": training.passes, "majority": majority}
            facts = {"pass": training.passes, "C": C, **describe_score(self.plan.measure, score)}
            self.report({"event": "validation", **facts, "best": score, "best_pass": training.passes})

    def _in_order_of_plan(self, model: Model) -> Float64:
        """Return the weights of a finished model with its classes in the order of the plan, which is that of the labels of held-out rows."""
        if model.pairs or len(model.weights) == 1:
            return model.weights
        weights: Float64 = model.weights[[model.classes.index(name) for name in self.plan.class_names]]
        return weights

    def is_pending(self, training: Training) -> bool:
        """Return whether the last pass has not been evaluated, as when the cluster was lost after the pass."""
        return max((best["looked"] for best in training.validation_state.values()), default=0) < training.passes

    def _weights(self, training: Training, k: int) -> Float64:
        """Return the current weights of problem ``k``: its best candidate, or its solution if the problem has ended; 0 if
        it has not begun.
        """
        run, solver = training.runs[k], self.plan.solver
        if run.state is None:  # its passes begin later
            return run.problem.kind.shape(np.zeros(run.problem.components))
        if run.done or training.is_last_pass:
            solution = solver.solution(run.state)
            assert isinstance(solution, LinearSolution)
            return solution.w
        return solver.current_weights(run.state)

    def _scores(
        self, rows_by_C: dict[float, list[Float64]], expansion: Expansion | Hats | None
    ) -> tuple[list[float], float | None]:
        """Return the score of each C, and the error of always predicting the most frequent class.

        ``rows_by_C``: by C the weights of its models, each (k, weights + 1). All of them are evaluated in one pass over the held-out rows.
        """
        plan = self.plan
        rows = [weights for of_C in rows_by_C.values() for weights in of_C]
        if not rows:
            return [], None
        model = replace(zero_model(plan), weights=np.concatenate(rows), expansion=expansion)
        calibrations = loss_probabilities(plan) if plan.measure.needs == PROBABILITIES else {}
        probabilities = tuple(calibrations[C] for C in rows_by_C if C in calibrations)
        counts = self.count(model, MeasureCounts(plan.measure, plan.predicts, len(rows_by_C), probabilities))
        return counts.values(), counts.majority_error()

    def choose_thresholds(self, job: FitJob, models: Mapping[float, Model]) -> dict[float, ChosenThreshold]:
        """Return by C the threshold with the best measure on the held-out rows, in one more pass over them."""
        stacked = replace(
            zero_model(self.plan),
            weights=np.concatenate([model.weights for model in models.values()]),
            expansion=next(iter(models.values())).expansion,
        )
        counts = self.count(stacked, MeasureCounts(MEASURES["auc"], self.plan.predicts, len(models)))
        return {
            C: choose_threshold(job, self.plan, counts.score_counts(k), "held-out rows") for k, C in enumerate(models)
        }

    def choose_best(self, plan: Plan, training: Training, loop: FitLoop) -> tuple[Plan, Training]:
        """Return the training with the best weights in place of the last ones. If they differ, one more training pass
        certifies them, and the plan gets the solver that evaluates given weights.
        """
        state = training.validation_state
        if all(best["final"] for best in state.values()):
            return plan, training
        weights = {k: w for C, ks in self._groups.items() for k, w in zip(ks, state[repr(C)]["weights"], strict=True)}
        evaluation = WeightEvaluation()
        problems = [evaluation.with_start_weights(problem, weights[k]) for k, problem in enumerate(plan.problems)]
        evaluation_loop = loop.with_solver(evaluation, problems, training)
        status, evaluated = training.status, evaluation_loop.train(Stop(training.passes + 1))
        for run, before in zip(evaluated.runs, training.runs, strict=True):
            assert run.certificate is not None
            known_dual = -np.inf if before.certificate is None else before.certificate.dual
            run.certificate = Certificate(run.certificate.primal, max(run.certificate.dual, known_dual))
        evaluated.reads_repeated += training.reads_repeated
        evaluated.status, evaluated.validation_state, evaluated.row_states = status, state, training.row_states
        return replace(plan, solver=evaluation), evaluated


def check_validation(job: FitJob, plan: Plan) -> None:
    """Raise UsageError for a fit with --validation that cannot choose a pass by held-out rows."""
    if job.validation is not None and (not plan.solver.has_current_weights or job.dual):
        raise _make_refusal(job, plan)


def make_validation(
    job: FitJob, plan: Plan, held_out: Store | None, report: Report, executor: Executor | None
) -> HeldOutValidation | None:
    """Return the validation of a fit; None without --validation. Raises UsageError and the errors of ``open_store``."""
    if job.validation is None:
        return None
    check_validation(job, plan)
    return _open_validation(job, plan, held_out, report, executor)


def score_models(  # noqa: PLR0917
    job: FitJob,
    plan: Plan,
    training: Training,
    models: Mapping[float, Model],
    test_store: Path,
    report: Report,
    executor: Executor | None,
) -> None:
    """Score the models of several C on the rows of files that were held out, to choose the best one.

    The scores are kept in ``training.validation_state``, as those of --validation are; the models are those of the last pass.
    """
    job = replace(job, validation=str(test_store))
    _open_validation(job, plan, None, report, executor).score_models(training, models)


def _open_validation(
    job: FitJob, plan: Plan, held_out: Store | None, report: Report, executor: Executor | None
) -> HeldOutValidation:
    """Return the validation on ``held_out``, or on the store that the job names."""
    if held_out is None:
        rows = open_validation_rows(job, plan)
    else:
        rows = RowBatches(zero_model(plan), list(plan.class_names), held_out.layout.rows, [], store=held_out)
    if executor is not None:
        store = open_store(str(job.validation)) if held_out is None else held_out
        count = partial(count_scores_on, executor, (reference_to(store), rows.offsets), contiguous_groups(store.layout))
    elif plan.memory.threads > 1:
        threads, store = local_executor(plan.memory.threads), rows.store
        count = partial(count_scores_on, threads, (OpenedStore(store), rows.offsets), pass_groups(store.layout))
    else:
        count = partial(count_scores, rows)
    return HeldOutValidation(plan, count, job.patience, report)


def count_scores(rows: RowBatches, model: Model, counts: MeasureCounts) -> MeasureCounts:
    """Evaluate several models with the same classes on the rows in one pass, and return the counts of their measures.

    ``model``: the models with their weights stacked. ``counts``: empty counts, which are filled.
    """
    for batch in rows:
        assert batch.truth is not None
        for k, decision in enumerate(np.split(model.decision(batch.X), counts.models, axis=1)):
            counts.add(k, decision, batch.truth)
    return counts


def count_scores_on(
    executor: Executor,
    store: tuple[StoreReference | OpenedStore, Offsets],
    groups: list[Group],
    model: Model,
    counts: MeasureCounts,
) -> MeasureCounts:
    """Return the counts of ``count_scores``, computed by workers or threads. Raises ClusterError and errors of tasks."""
    shared = executor.share((*store, model, counts))
    return reduce(add, executor.map(Task("validation", count_scores_in), groups, (shared,)))


def count_scores_in(
    group: Group, shared: tuple[StoreReference | OpenedStore, Offsets, Model, MeasureCounts]
) -> MeasureCounts:
    """Return the counts of the chunks of a group; one task of ``count_scores_on``. Raises DataError, StorageError."""
    store, offsets, model, counts = shared
    opened, classes = store.open(), list(model.classes)
    rows = RowBatches(model, classes, group.rows, [], store=opened, chunks=group.chunks, offsets=offsets)
    return count_scores(rows, model, counts.empty())


def open_validation_rows(job: FitJob, plan: Plan) -> RowBatches:
    """Return the rows of the store that --validation names, after comparing its columns and classes with those of the fit.

    Raises MissingError, UsageError, DataError.
    """
    path = find_url(job.validation) or Path(str(job.validation))
    if isinstance(path, Path) and is_there(path) and not (is_folder(path) and foreign_format(path) is None):
        raise UsageError(
            f"--validation {path} is not a store", hint="ingest it with the same options as the training store"
        )
    facts = open_store(job.store, features_key=job.features_key, labels_key=job.labels_key).facts
    provenance = {name: facts.get(name) for name in ("names", "encoding")}
    rows = open_rows(replace(zero_model(plan), provenance=provenance), (str(path),), FileRequest())
    if rows.store.layout.numeric != plan.layout.numeric:
        held_out, fitted = ("numbers", "classes") if rows.store.layout.numeric else ("classes", "numbers")
        raise UsageError(
            f"--validation {path} holds {held_out}, this fit is for {fitted}",
            hint="ingest it with the same options as the training store",
        )
    return rows


def zero_model(plan: Plan) -> Model:
    """Return a model with the columns and classes of the fit, whose weights are 0."""
    values = sum(len(problem.kind.positives) for problem in plan.problems) // len(plan.costs)
    pairs = plan.problems[0].kind.votes
    return Model(np.zeros((values, 1 + plan.layout.columns)), plan.class_names, pairs=pairs)


def _make_refusal(job: FitJob, plan: Plan) -> UsageError:
    """Return the error of a fit that cannot choose a pass by held-out rows."""
    if job.dual:
        reason = "--dual writes the dual variables of the last pass, not of the one that --validation chooses"
        return UsageError(reason, hint="leave out one of the two")
    reason = f"solver '{plan.solver_name}' has no weights that --validation could choose among after each pass"
    return UsageError(reason, hint="leave out --validation, or choose settings by streamsvm tune")


def find_best_C(plan: Plan, training: Training) -> float:
    """Return the C with the best score on held-out rows, the smallest in a tie; without held-out rows the last C."""
    if not training.validation_state:
        return plan.costs[-1]
    return min(plan.costs, key=lambda C: (plan.measure.rank(training.validation_state[repr(C)]["score"]), C))


def majority_class_notice(plan: Plan, training: Training) -> list[str]:
    """Return a notice if the best error on held-out rows is no better than always predicting one class."""
    if not training.validation_state or plan.measure != ERROR:
        return []
    best = training.validation_state[repr(find_best_C(plan, training))]
    notice = uninformative_error_notice(best["score"], best.get("majority"))
    return [] if notice is None else [notice]


def edge_of_C_notice(plan: Plan, training: Training) -> list[str]:
    """Return a notice if the C with the best score is the smallest or the largest of several."""
    if not training.validation_state or len(plan.costs) < 2:
        return []
    from streamsvm.jobs.tune.search import edge_notice, next_beyond  # needed for several C only

    best, tried = find_best_C(plan, training), sorted(plan.costs)
    beyond = next_beyond(tried, best)
    return [] if beyond is None else [edge_notice("C", tried, best, beyond)]


def describe_score(measure: Measure, score: Any, plural: str = "") -> JsonObject:
    """Return a score as plain JSON for records: an 'error' for the default measures, else a 'score' with its measure."""
    if measure in {ERROR, RMSE}:
        return {f"error{plural}": score}
    return {"measure": measure.name, f"score{plural}": score}


def validation_facts(plan: Plan, training: Training) -> JsonObject | None:
    """Return the scores on held-out rows as plain JSON; None without held-out rows."""
    if not training.validation_state:
        return None
    scores = {f"{C:g}": training.validation_state[repr(C)]["score"] for C in plan.costs}
    best = find_best_C(plan, training)
    facts = {
        "C": best,
        **describe_score(plan.measure, training.validation_state[repr(best)]["score"]),
        "pass": training.validation_state[repr(best)]["pass"],
        **describe_score(plan.measure, scores, "s"),
    }
    return facts if plan.positive is None else facts | {"positive": plan.positive}
