"""Linear solvers side by side: passes, rows visited, seconds and certified gap; test errors of assg and pegasos.

Rows visited counts every presentation of a row to a solver by a pass over the data, the passes that only evaluate
included, and for assg the sweeps over its sample. Reaching 0.01 is told in two ways: "certified", when the run ended
with an exact primal and a dual that close, and "true", the first pass after which the primal of the solver's candidate
was that close to the optimum, which a user cannot know. Rows are shuffled once, then streamed in chunks from memory.
"pegasos, last w" is Pegasos as published: a projected step a row, no averaging. Errors are those on the published test
set where there is one, else on a fifth of the rows; "over" is (P - P*) / P* of the same weights.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from streamsvm.engine.local import local_trainer
from streamsvm.engine.trainer import FitLoop, RunSettings
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.planning.plan import make_plan
from streamsvm.rows import CSR, Dense
from streamsvm.solvers import SOLVERS as METHODS
from streamsvm.solvers import losses_of
from streamsvm.solvers.stochastic.assg import SAMPLE_SWEEPS
from streamsvm.store.views.memory import MemoryStore
from streamsvm.types import Stop
from tools.measure.datasets import Data, load, primal
from tools.measure.harness import Row, arguments, scratch, show

SOLVERS: dict[str, tuple[str, dict[str, Any]]] = {
    "dcd": ("dcd", {}),
    "sgd-r": ("sgd", {"variant": "r"}),
    "sgd-s": ("sgd", {"variant": "s"}),
    "sgd-m": ("sgd", {"variant": "m"}),
    "pegasos": ("pegasos", {}),
    "pegasos, last w": ("pegasos", {"averaging": "none"}),
    "pegasos, mean of all": ("pegasos", {"averaging": "all"}),
    "pegasos, batch 32": ("pegasos", {"batch": 32}),
    "mpu": ("mpu", {}),
    "sgd_qn": ("sgd_qn", {}),
    "cutting_plane": ("cutting_plane", {}),
    "assg": ("assg", {}),
    "assg, batch 32": ("assg", {"batch": 32}),
}
TESTED = ("a9a", "ijcnn1", "imdb", "letter")
"""Sets with a test set of their own."""
ERRORS = ("pegasos", "pegasos, last w", "pegasos, mean of all", "assg", "assg, batch 32")


PASSES = (1, 2, 3, 4, 8)


class Task(NamedTuple):
    """Training rows as a store, test rows, and the problem."""

    data: Data
    store: MemoryStore
    test: Data
    loss: str
    C: float


class Looks(NamedTuple):
    """What a run went through: primal of the candidate and error on the test rows after each pass."""

    primals: list[float]
    errors: list[float]
    rows: list[int]


def task_of(data: Data, tested: Data | None, loss: str, lam: float, chunk: int) -> Task:
    """The rows in random order; without ``tested`` a fifth of them is for testing."""
    order = np.random.default_rng(1).permutation(data.rows)
    cut = data.rows if tested else int(0.8 * data.rows)
    train, rest = (Data(data.name, data.X[part], data.y[part]) for part in (order[:cut], order[cut:]))
    test = tested or rest
    store, X = MemoryStore(chunk), train.X
    rows = Dense(X) if isinstance(X, np.ndarray) else CSR(X.data, X.indices.astype(np.int32), X.indptr.astype(np.int64))
    store.append(rows, (train.y > 0).astype(np.int32))
    return Task(train, store.commit(("-1", "1"), X.shape[1]), test, loss, 1.0 / (lam * train.rows))


def trainer_of(task: Task, who: str, tolerance: float, report: Any, seed: int = 0) -> FitLoop:
    solver, options = SOLVERS[who]
    job = FitJob("memory", "unused", solver=solver, options=options, loss=task.loss, C=task.C, tolerance=tolerance)
    plan = make_plan(job, task.store)
    return local_trainer(task.store, plan.solver, plan.problems, plan.features, RunSettings(seed, depth=0), report)


def sampled(who: str, task: Task) -> int:
    """Rows presented beside the passes: assg's sweeps over its sample."""
    chunk = task.store.layout.largest_chunk
    return SAMPLE_SWEEPS * min(4096, chunk) if who.startswith("assg") else 0


def watched(task: Task, who: str, passes: int, seed: int = 0) -> Looks:
    """A run of so many passes, looked at after each."""
    course, rows = Looks([], [], []), task.data.rows
    name, options = SOLVERS[who]
    method = METHODS[name](**options)

    def look(event: dict[str, Any]) -> None:
        if event["event"] != "pass":
            return
        state = trainer.result.runs[0].state
        w = method.candidate(state)
        wrong = (task.test.X @ w[:-1] + w[-1] > 0) != (task.test.y > 0)
        course.primals.append(primal(task.data, w, task.C, task.loss))
        course.errors.append(float(np.mean(wrong)))
        course.rows.append(event["pass"] * rows + sampled(who, task))

    trainer = trainer_of(task, who, 1e-14, look, seed)
    trainer.train(Stop(passes))
    return course


def optimum(task: Task) -> float:
    """A lower bound on the optimum, by dcd; how close is printed."""
    certificate = trainer_of(task, "dcd", 1e-4, lambda _: None).train(Stop(1000, 60.0)).runs[0].certificate
    assert certificate is not None
    print(f"{task.data.name} {task.loss}: optimum {certificate.dual:.7g} + {certificate.gap:.1e}", flush=True)
    return certificate.dual


def contest(task: Task, who: str, best: float, tolerance: float, passes: int) -> Row:
    trainer_of(task, who, tolerance, lambda _: None).train(Stop(2))  # compiles
    began = time.process_time()
    result = trainer_of(task, who, tolerance, lambda _: None).train(Stop(passes))
    seconds, certificate = time.process_time() - began, result.runs[0].certificate
    assert certificate is not None
    rows = result.passes * task.data.rows + sampled(who, task)
    close = certificate.gap <= tolerance
    row = {"set": task.data.name, "loss": task.loss, "solver": who, "passes": result.passes, "cpu s": seconds}
    row |= {"gap": certificate.gap, "certified, rows / n": rows / task.data.rows if close else None}
    if who != "dcd":
        course = watched(task, who, passes)
        reached = [r for p, r in zip(course.primals, course.rows, strict=True) if p <= best * (1 + tolerance)]
        row["true, rows / n"] = min(reached) / task.data.rows if reached else None
    return row


def errors(task: Task, who: str, seeds: int, best: float) -> Row:
    """Mean test error in percent after some passes, over seeds, and how far the objective is from the optimum."""
    courses = [watched(task, who, PASSES[-1] + 1, seed) for seed in range(seeds)]
    row: Row = {"set": task.data.name, "loss": task.loss, "solver": who}
    row |= {f"{k} passes": 100.0 * float(np.mean([c.errors[k - 1] for c in courses])) for k in PASSES}
    return row | {f"over {k}": float(np.mean([c.primals[k - 1] for c in courses])) / best - 1.0 for k in (1, 4)}


def solvers_for(loss: str, asked: str) -> list[str]:
    chosen = list(SOLVERS) if asked == "all" else asked.split(";")
    return [who for who in chosen if loss in losses_of(SOLVERS[who][0])]


def main() -> None:
    options = arguments(
        __doc__, data="a9a,ijcnn1,w8a,imdb,letter,covtype", losses="hinge", lam=1e-4, tolerance=0.01, passes=100,
        chunk=1 << 18, seeds=5, who="all",
    )  # fmt: skip
    table, tests = [], []
    with scratch() as directory:
        for name in options.data.split(","):
            data = load(name, Path(directory))
            tested = load(f"{name}.t", Path(directory)) if name in TESTED else None
            for loss in options.losses.split(","):
                task = task_of(data, tested, loss, options.lam, options.chunk)
                best = optimum(task)
                table += [
                    contest(task, who, best, options.tolerance, options.passes)
                    for who in solvers_for(loss, options.who)
                ]
                tests += [errors(task, who, options.seeds, best) for who in ERRORS if options.seeds]
    show(f"linear solvers to a relative accuracy of {options.tolerance:g}, lambda = {options.lam:g}", table, options)
    options.json = None
    if tests:
        show("test error in % after passes of training", tests, options)


if __name__ == "__main__":
    main()
