"""The score of a fit on held-out rows after each pass, and the weights that were best (--validation, --score).

The rows are a share of the chunks, drawn by seed, or another store; training does not see them (column statistics,
which know no labels, are those of the whole store). Every value of C is judged, and stopped, by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from operator import add
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.aliases import JsonObject
from streamsvm.engine.executor import Executor, Task, local_executor
from streamsvm.engine.fit_state import Training
from streamsvm.engine.loop import FitLoop
from streamsvm.engine.partition import Group, contiguous_groups, pass_groups
from streamsvm.engine.store_reference import OpenedStore, StoreReference, reference_to
from streamsvm.errors import UsageError
from streamsvm.input_files import is_folder, is_there
from streamsvm.jobs.apply.rows import FileRequest, RowBatches, open_rows
from streamsvm.jobs.calibrate import ChosenThreshold, choose_threshold, loss_probabilities
from streamsvm.jobs.embed.plan import wants_landmarks
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.plan import Plan, fold_rows
from streamsvm.model import Model
from streamsvm.model.measures import (
    ERROR,
    MEASURES,
    PROBABILITIES,
    RMSE,
    Measure,
    MeasureCounts,
    says_nothing,
)
from streamsvm.rows import Float64
from streamsvm.schedule import budget
from streamsvm.solvers.evaluation import WeightEvaluation
from streamsvm.store import open_store
from streamsvm.store.foreign import foreign_format
from streamsvm.store.sources.offsets import Offsets
from streamsvm.store.views import Section
from streamsvm.types import Certificate, LinearSolution, Report, Stop, Store, StoredFiles


def open_training_store(job: FitJob) -> tuple[Store, Store | None]:
    """Return the store to train on, and the part of it that is held out, or None. Raises UsageError and what opening
    raises.
    """
    limit = budget.memory_limit(job.memory)
    store = open_store(job.store, features_key=job.features_key, labels_key=job.labels_key, memory_limit=limit)
    if job.validation is None and job.patience is not None:
        raise UsageError("--patience waits for the score of held-out rows", hint="give --validation too")
    if job.validation is None and job.score is not None:
        raise UsageError("--score is the measure by which held-out rows judge a fit", hint="give --validation too")
    if job.validation is not None and store.facts.get("map") is not None:
        raise UsageError("rows of an embedding are not held out", hint="fit the rows it was made of, with --landmarks")
    if not isinstance(job.validation, float | int):
        return store, None
    if wants_landmarks(job):
        raise UsageError("chunks are held out of linear fits only", hint="give --validation a store of its own")
    training, held = draw_chunks(len(store.layout.chunks), float(job.validation), job.seed)
    parts = [Section(store, chunks, count_rows_in(store, chunks)) for chunks in (training, held)]
    if min(parts[0].layout.counts) == 0:
        raise UsageError(
            "the chunks that are not held out lack a class: classes are not spread over the store",
            hint="ingest with --shuffle, or give --validation a store of its own",
        )
    return parts[0], parts[1]


def draw_chunks(chunks: int, share: float, seed: int) -> tuple[list[int], list[int]]:
    """Return the chunks to train on and those held out, at least one of each. Raises UsageError."""
    if not 0.0 < share < 1.0:
        raise UsageError(f"--validation {share:g} is no part of the rows", hint="between 0 and 1, or a store")
    if chunks < 2:
        raise UsageError(
            "the store has one chunk, none can be held out",
            hint="ingest with smaller chunks (--chunk 256KiB), or give --validation a store",
        )
    count = min(chunks - 1, max(1, round(share * chunks)))
    order = np.random.default_rng((seed, chunks)).permutation(chunks).tolist()
    return sorted(order[count:]), sorted(order[:count])


def count_rows_in(store: StoredFiles, chunks: list[int]) -> tuple[int, ...]:
    """Return rows of each class in some chunks; of numbers all rows in them."""
    table = np.zeros((len(chunks), len(store.layout.counts)), np.int64)
    for row, chunk in zip(table, chunks, strict=True):
        row[: len(store.census[chunk])] = store.census[chunk]
    return tuple(table.sum(axis=0).tolist())


@dataclass(slots=True)
class HeldOutValidation:
    """Looks at a training after each pass. What it remembers is in ``Training.validation_state``, by the text of each C."""

    plan: Plan
    """Of the fit."""
    count: Callable[[Model, MeasureCounts], MeasureCounts]
    """Counts models, whose weights stand below each other, on the held-out rows in one reading: see ``count_scores``."""
    patience: int | None
    """Passes without a better score after which a C is done; None: any number."""
    report: Report
    """Takes the ``validation`` events."""
    _groups: dict[float, list[int]] = field(init=False)

    def __post_init__(self) -> None:
        problems = self.plan.problems
        self._groups = {C: [k for k, p in enumerate(problems) if p.C == C] for C in self.plan.costs}

    def evaluate(self, training: Training) -> None:
        """Compare the weights each problem would answer with now; end those whose score has not improved for long."""
        open_now = {
            C: ks for C, ks in self._groups.items() if not training.validation_state.get(repr(C), {}).get("over")
        }
        found = {C: [self._weights(training, k) for k in ks] for C, ks in open_now.items()}
        measure = self.plan.measure
        rank = measure.rank
        scores, majority = self._scores(found)
        for (C, weights), score in zip(found.items(), scores, strict=True):
            runs = [training.runs[k] for k in open_now[C]]
            over = training.ending or all(run.done for run in runs)
            known = training.validation_state.get(repr(C))
            if known is None or rank(score) < rank(known["score"]) or (over and score == known["score"]):
                known = {"score": score, "pass": training.passes, "weights": weights, "final": over}
            late = self.patience is not None and training.passes - known["pass"] >= self.patience
            known |= {"over": over or late, "stopped": late and not over, "looked": training.passes}
            known |= {"majority": majority}
            training.validation_state[repr(C)] = known
            for run in runs:
                run.done = run.done or late
            said = {"pass": training.passes, "C": C, **name_score(measure, score)}
            self.report({"event": "validation", **said, "best": known["score"], "best_pass": known["pass"]})

    def pending(self, training: Training) -> bool:
        """Return whether the last pass has not been evaluated: a cluster may be lost in between."""
        return max((known["looked"] for known in training.validation_state.values()), default=0) < training.passes

    def _weights(self, training: Training, k: int) -> Float64:
        """Return the weights problem ``k`` would answer with now: those of its last certificate once it has come to
        its end.
        """
        run, solver = training.runs[k], self.plan.solver
        if run.done or training.ending:
            solution = solver.solution(run.state)
            assert isinstance(solution, LinearSolution)
            return solution.w
        return solver.candidate(run.state)

    def _scores(self, found: dict[float, list[Float64]]) -> tuple[list[float], float | None]:
        """Return the score of the weights of each C, and the error of the most frequent class: one reading for all."""
        plan = self.plan
        rows = [fold_rows(plan, w) for weights in found.values() for w in weights]
        if not rows:
            return [], None
        model = replace(zero_model(plan), weights=np.concatenate(rows), expansion=plan.features.expansion)
        known = loss_probabilities(plan) if plan.measure.needs == PROBABILITIES else {}
        probabilities = tuple(known[C] for C in found if C in known)
        counts = self.count(model, MeasureCounts(plan.measure, plan.predicts, len(found), probabilities))
        return counts.values(), counts.majority_error()

    def choose_thresholds(self, job: FitJob, models: Mapping[float, Model]) -> dict[float, ChosenThreshold]:
        """Return by C the threshold that is best on the held-out rows, in one reading more."""
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
        """Return the training with the best weights in place of the last ones, certified by one pass more if they
        differ.
        """
        held = training.validation_state
        if all(known["final"] for known in held.values()):
            return plan, training
        weights = {k: w for C, ks in self._groups.items() for k, w in zip(ks, held[repr(C)]["weights"], strict=True)}
        evaluation = WeightEvaluation()
        problems = [evaluation.with_start_weights(problem, weights[k]) for k, problem in enumerate(plan.problems)]
        again = loop.with_solver(evaluation, problems, training)
        status, evaluated = training.status, again.train(Stop(training.passes + 1))
        for run, before in zip(evaluated.runs, training.runs, strict=True):
            assert run.certificate is not None
            known = -np.inf if before.certificate is None else before.certificate.dual
            run.certificate = Certificate(run.certificate.primal, max(run.certificate.dual, known))
        evaluated.reads_repeated += training.reads_repeated
        evaluated.status, evaluated.validation_state, evaluated.row_states = status, held, training.row_states
        return replace(plan, solver=evaluation), evaluated


def evaluator_for(
    job: FitJob, plan: Plan, held: Store | None, report: Report, executor: Executor | None
) -> HeldOutValidation | None:
    """Who looks at the held-out rows of a fit; None when there are none. Raises UsageError and what opening raises."""
    if job.validation is None:
        return None
    if not plan.solver.has_candidates or job.dual:
        raise _unable(job, plan)
    if held is None:
        rows = rows_of_store(job, plan)
    else:
        rows = RowBatches(zero_model(plan), list(plan.class_names), held.layout.rows, [], store=held)
    if executor is not None:
        store = open_store(str(job.validation)) if held is None else held
        count = partial(count_scores_on, executor, (reference_to(store), rows.offsets), contiguous_groups(store.layout))
    elif plan.memory.threads > 1:
        here, store = local_executor(plan.memory.threads), rows.store
        count = partial(count_scores_on, here, (OpenedStore(store), rows.offsets), pass_groups(store.layout))
    else:
        count = partial(count_scores, rows)
    return HeldOutValidation(plan, count, job.patience, report)


def count_scores(rows: RowBatches, model: Model, counts: MeasureCounts) -> MeasureCounts:
    """Count models of the same classes, whose weights stand below each other, in one reading; ``counts`` has none yet."""
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
    """``count_scores`` by many workers or threads: the same counts. Raises ClusterError and what the tasks raise."""
    given = executor.share((*store, model, counts))
    return reduce(add, executor.map(Task("validation", count_scores_in), groups, (given,)))


def count_scores_in(
    group: Group, given: tuple[StoreReference | OpenedStore, Offsets, Model, MeasureCounts]
) -> MeasureCounts:
    """Return the counts of the chunks of a group; this is the task. Raises DataError, StorageError."""
    store, offsets, model, counts = given
    opened, classes = store.open(), list(model.classes)
    rows = RowBatches(model, classes, group.rows, [], store=opened, chunks=group.chunks, offsets=offsets)
    return count_scores(rows, model, counts.empty())


def rows_of_store(job: FitJob, plan: Plan) -> RowBatches:
    """Return the rows of the store --validation names, checked against what is fitted. Raises MissingError, DataError."""
    path = Path(str(job.validation))
    if is_there(path) and not (is_folder(path) and foreign_format(path) is None):
        raise UsageError(f"--validation {path} is no store", hint="ingest it with the options of the other one")
    facts = open_store(job.store, features_key=job.features_key, labels_key=job.labels_key).facts
    known = {name: facts.get(name) for name in ("names", "encoding")}
    rows = open_rows(replace(zero_model(plan), provenance=known), (str(path),), FileRequest())
    if rows.store.layout.numeric != plan.layout.numeric:
        held, fitted = ("numbers", "classes") if rows.store.layout.numeric else ("classes", "numbers")
        raise UsageError(
            f"--validation {path} holds {held}, this fit is of {fitted}",
            hint="ingest it with the options of the other one",
        )
    return rows


def zero_model(plan: Plan) -> Model:
    """Return a model of the fit's columns and classes, all zero."""
    values = sum(len(problem.kind.positives) for problem in plan.problems) // len(plan.costs)
    pairs = plan.problems[0].kind.votes
    return Model(np.zeros((values, 1 + plan.layout.columns)), plan.class_names, pairs=pairs)


def _unable(job: FitJob, plan: Plan) -> UsageError:
    """Why rows held out choose no pass of this fit."""
    if job.dual:
        what = "--dual writes what belongs to the last pass, not to the one --validation chooses"
        return UsageError(what, hint="leave out one of the two")
    what = f"solver '{plan.solver_name}' has no weights that --validation could choose among after each pass"
    return UsageError(what, hint="leave out --validation, or choose settings by streamsvm tune")


def best_cost(plan: Plan, training: Training) -> float:
    """Return the C of the best score on the held-out rows, the smallest of several; without such rows the last one."""
    if not training.validation_state:
        return plan.costs[-1]
    return min(plan.costs, key=lambda C: (plan.measure.rank(training.validation_state[repr(C)]["score"]), C))


def unbalanced_notice(plan: Plan, training: Training) -> list[str]:
    """Return a notice where the error that chose pass and C is that of always predicting one class."""
    if not training.validation_state or plan.measure != ERROR:
        return []
    best = training.validation_state[repr(best_cost(plan, training))]
    found = says_nothing(best["score"], best.get("majority"))
    return [] if found is None else [found]


def edge_of_costs_notice(plan: Plan, training: Training) -> list[str]:
    """Return a notice where the C that held-out rows chose is the least or the largest of several."""
    from streamsvm.jobs.tune.search import edge_notice, next_beyond  # only where there is a choice

    if not training.validation_state or len(plan.costs) < 2:
        return []
    best, tried = best_cost(plan, training), sorted(plan.costs)
    beyond = next_beyond(tried, best)
    return [] if beyond is None else [edge_notice("C", tried, best, beyond)]


def name_score(measure: Measure, score: Any, plural: str = "") -> JsonObject:
    """Return a score as records have it: an 'error' where it is the usual one, else a 'score' with its measure."""
    if measure in {ERROR, RMSE}:
        return {f"error{plural}": score}
    return {"measure": measure.name, f"score{plural}": score}


def validation_facts(plan: Plan, training: Training) -> JsonObject | None:
    """Return what the held-out rows said, as plain JSON."""
    if not training.validation_state:
        return None
    scores = {f"{C:g}": training.validation_state[repr(C)]["score"] for C in plan.costs}
    best = best_cost(plan, training)
    found = {
        "C": best,
        **name_score(plan.measure, training.validation_state[repr(best)]["score"]),
        "pass": training.validation_state[repr(best)]["pass"],
        **name_score(plan.measure, scores, "s"),
    }
    return found if plan.positive is None else found | {"positive": plan.positive}
