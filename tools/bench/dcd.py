"""Our dcd against LIBLINEAR and LinearSVC: rows a second, and CPU seconds to a relative suboptimality.

All solve the same problem - hinge or squared hinge, C = 1 / (lambda n), the bias an appended constant 1 - on the same
rows. Ours streams them from a Zarr store; the others hold them in memory, conversion to their own form not timed for
LIBLINEAR. CPU seconds are those of the whole process, our reader thread included.

Suboptimality is (P - P*) / P* of the exact primal, P* the least primal anybody reached, the long run of ours included;
the dual of that run bounds how much P* can be off.
"""

from __future__ import annotations

import gc
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from streamsvm.engine.checkpoint.checkpointer import NoCheckpoint
from streamsvm.engine.stream_trainer import StreamTrainer
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.planning.plan import make_plan
from streamsvm.jobs.fit.trained import local_loop
from streamsvm.schedule.plan import visits
from streamsvm.schedule.stream import Stream
from streamsvm.types import Stop, silent
from tools.measure.datasets import Data, load, primal, stored
from tools.measure.harness import Row, arguments, scratch, show

TARGETS = (1e-2, 1e-3, 1e-4)
NEVER = 1e-14
TOLERANCES = (3.0, 1.0, 0.3, 0.1, 0.03, 0.01, 1e-3, 1e-4)
ITERATIONS = (1, 2, 3, 5, 8, 12, 20, 40, 80, 160, 320)


class Point(NamedTuple):
    """What somebody had reached after so many CPU seconds."""

    cpu: float
    primal: float


class Task(NamedTuple):
    """The problem everybody solves, and how long anybody may take."""

    data: Data
    store: Any
    C: float
    loss: str
    limit: float


def cpu_of(run: Callable[[], Any]) -> tuple[float, Any]:
    """CPU seconds of a call, and what it gave."""
    gc.collect()
    began = time.process_time()
    result = run()
    return time.process_time() - began, result


# -- ours --------------------------------------------------------------------------------------------------------------


def trainer_of(task: Task, tolerance: float, report: Any = silent, sweeps: int = 0) -> StreamTrainer:
    settings = {"sweeps": sweeps} if sweeps else {}
    job = FitJob(
        task.store.name, "unused", solver="dcd", options=settings, C=task.C, loss=task.loss, tolerance=tolerance
    )
    trainer = local_loop(job, task.store, make_plan(job, task.store), Path(task.store.name).parent, report)
    assert isinstance(trainer, StreamTrainer)
    return trainer


class Watch:
    """Notes the exact primal after every pass; what that takes is not counted."""

    def __init__(self, task: Task) -> None:
        self._task, self.trainer = task, trainer_of(task, NEVER, self)
        self.points: list[Point] = []
        self.dual, self._spent, self._began = -np.inf, 0.0, time.process_time()

    def __call__(self, event: dict[str, Any]) -> None:
        if event["event"] != "pass":
            return
        now = time.process_time()
        w = self.trainer.result.runs[0].state.w
        self.dual = max(self.dual, event["dual"])
        self.points.append(
            Point(now - self._began - self._spent, primal(self._task.data, w, self._task.C, self._task.loss))
        )
        self._spent += time.process_time() - now


def ours(task: Task) -> tuple[list[Point], float]:
    """Points pass by pass, and the best lower bound on the optimum."""
    watch = Watch(task)
    watch.trainer.train(Stop(100_000, task.limit))
    return watch.points, watch.dual


def certified(task: Task, tolerance: float) -> list[Point]:
    """A fit as a user runs it, to the end: the certifying pass is in the CPU time."""
    trainer = trainer_of(task, tolerance)
    cpu, result = cpu_of(lambda: trainer.train(Stop(1000, task.limit)))
    return [Point(cpu, primal(task.data, result.runs[0].state.w, task.C, task.loss))]


def our_rate(task: Task) -> float:
    """Rows a second of one-sweep passes 2 and 3."""
    short, long = (min(_sweeps_seconds(task, n) for _ in range(5)) for n in (1, 3))
    return 2 * task.data.rows / (long - short)


def _sweeps_seconds(task: Task, passes: int) -> float:
    trainer = trainer_of(task, NEVER, sweeps=1)
    return cpu_of(lambda: _passes(trainer, passes))[0]


def _passes(trainer: StreamTrainer, passes: int) -> None:
    """Not ``train``: its last pass is an evaluation, not a sweep."""
    with Stream(trainer._store, visits(trainer._store.layout, 0, True), depth=2) as stream:
        for _ in range(passes):
            trainer.one_pass(stream, NoCheckpoint())


# -- the others --------------------------------------------------------------------------------------------------------


def linear_svc(task: Task, iterations: int, tolerance: float) -> Point:
    """scikit-learn's LinearSVC: its own copy of LIBLINEAR's dual coordinate descent."""
    from sklearn.svm import LinearSVC

    model = LinearSVC(loss=task.loss, C=task.C, tol=tolerance, max_iter=iterations, dual=True, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cpu, _ = cpu_of(lambda: model.fit(task.data.X, task.data.y))
    w = np.append(model.coef_[0], model.intercept_[0])
    return Point(cpu, primal(task.data, w.astype(np.float64), task.C, task.loss))


def svc_points(task: Task) -> list[Point]:
    points: list[Point] = []
    for iterations in ITERATIONS:
        points.append(linear_svc(task, iterations, 1e-9))
        if points[-1].cpu > task.limit:
            break
    return points


def svc_rate(task: Task) -> float:
    """Rows a second of iterations 2 and 3, in which LIBLINEAR has hardly begun to shrink."""
    short, long = (min(linear_svc(task, n, 1e-12).cpu for _ in range(5)) for n in (1, 3))
    return 2 * task.data.rows / (long - short)


def liblinear_points(task: Task) -> list[Point]:
    """LIBLINEAR itself, from loose to tight tolerances; the time is that of ``train`` alone."""
    from liblinear.liblinearutil import parameter, problem, train

    given = problem(task.data.y, sp.csr_matrix(task.data.X, dtype=np.float64), bias=1)
    solver = 3 if task.loss == "hinge" else 1
    points: list[Point] = []
    for tolerance in TOLERANCES:
        options = parameter(f"-s {solver} -c {task.C} -B 1 -e {tolerance} -q")
        cpu, model = cpu_of(partial(train, given, options))
        weights, bias = model.get_decfun()
        w = np.append(weights[: task.data.X.shape[1]], bias)
        sign = 1.0 if model.get_labels()[0] > 0 else -1.0
        points.append(Point(cpu, primal(task.data, sign * w, task.C, task.loss)))
        if cpu > task.limit:
            break
    return points


# -- the table ---------------------------------------------------------------------------------------------------------


def row_of(task: Task, who: str, points: list[Point], best: float, rate: float | None = None) -> Row:
    row: Row = {"set": task.data.name, "loss": task.loss, "who": who, "Mrows/s": rate and rate / 1e6}
    for target in TARGETS:
        reached = [p.cpu for p in points if (p.primal - best) / best <= target]
        row[f"{target:.0e}"] = min(reached) if reached else None
    row["best"] = min((p.primal - best) / best for p in points)
    return row


def contest(task: Task) -> list[Row]:
    certified(task, 1e-2)  # compile, and fill the page cache, before anything is timed
    mine, dual = ours(task)
    fields = {
        "streamsvm dcd": (mine, our_rate(task)),
        "streamsvm, certified 1e-3": (certified(task, 1e-3), None),
        "LinearSVC": (svc_points(task), svc_rate(task)),
        "LIBLINEAR": (liblinear_points(task), None),
    }
    best = min(p.primal for points, _ in fields.values() for p in points)
    print(f"{task.data.name} {task.loss}: P* = {best:.9g}, at most {(best - dual) / best:.1e} too high", flush=True)
    return [row_of(task, who, points, best, rate) for who, (points, rate) in fields.items()]


def main() -> None:
    options = arguments(__doc__, sets="a9a,imdb,covtype", losses="hinge,squared_hinge", lam=1e-4, limit=60.0)
    rows: list[Row] = []
    with scratch() as directory:
        for name in options.sets.split(","):
            data = load(name, directory)
            store = stored(data, directory / f"{name}.zarr")
            for loss in options.losses.split(","):
                rows += contest(Task(data, store, 1.0 / (options.lam * data.rows), loss, options.limit))
    show(f"dcd: CPU seconds to a relative suboptimality, lambda = {options.lam:g}", rows, options)


if __name__ == "__main__":
    main()
