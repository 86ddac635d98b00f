"""The tables of Panagiotakopoulos and Tsampouka (arXiv:1304.6383): the hinge to a relative accuracy of .01, by the methods compared there.

A row is a set, a C of the paper's size (its lambda is 1 / (C n)) and a method; figures are CPU seconds and readings of the rows:

    true       until P of the last w is within .01 of the optimum, as the paper tells SGD-r and Pegasos, which have no bound;
    certified  until an exact primal and a dual value say so: the paper's criterion for SGD-s and SGD-m, and what a user sees.

"sgd-r" draws from all rows, which are then one block, as in the paper. Out of core, in blocks of ``--chunk`` bytes, "sgd-r, of blocks" draws from
all rows too, and takes what has fallen to a block while it is there; "sgd-r, per block" draws as many rows of each block as it has. "pegasos" is one projected step a row and its last w; "pegasos, mean" is averaged. "cutting_plane" stands
for OCAS and SVMperf, "svm_sgd" is Bottou's SvmSGD as ``baselines.py`` has it, which has no bound. The relative accuracy is the paper's, J / L - 1 for P = J and the
bound D = L. The second table is the paper's first experiment: epochs of SGD-s, no constant feature, to smaller and smaller gaps.
Evaluating P between two readings is not timed. A dash: not there after ``--passes`` readings or ``--limit`` seconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from streamsvm.engine.loop import FitLoop
from streamsvm.rows import Float64
from streamsvm.store.views import MemoryStore
from streamsvm.types import Stop
from tools.measure.datasets import Data, load, primal
from tools.measure.fits import WHOLE, certificate_of, store_of, trainer_of
from tools.measure.harness import Row, arguments, scratch, show
from tools.reproduce.baselines import Primal, svm_sgd, with_constant

ACCURACY = 0.01
"""J / L - 1, the paper's relative accuracy."""
GAPS = (1e-1, 1e-2, 1e-3, 1e-4)
"""Relative accuracies of the first experiment."""
REFERENCE = 1e-4
"""The gap of the run that says what the optimum is."""


class Method(NamedTuple):
    """A line of the paper's tables, and the solver that is of this kind here."""

    solver: str
    options: dict[str, Any]
    last: Callable[[Any], Float64]
    """From a state to the w that the paper looks at."""
    whole: bool = True
    """Whether all rows are one block."""


def grown(state: Any) -> Float64:
    """The last w of SGD-r / s / m."""
    return np.asarray(state.a / (state.lam * state.t))


METHODS = {
    "pegasos": Method("pegasos", {"averaging": "none"}, lambda state: state.averaged.candidate),
    "pegasos, mean": Method("pegasos", {}, lambda state: state.averaged.candidate),
    "sgd-r": Method("sgd", {"variant": "r"}, grown),
    "sgd-r, of blocks": Method("sgd", {"variant": "r", "draws": "all"}, grown, whole=False),
    "sgd-r, per block": Method("sgd", {"variant": "r"}, grown, whole=False),
    "sgd-s": Method("sgd", {"variant": "s"}, grown),
    "sgd-m": Method("sgd", {"variant": "m"}, grown),
    "sgd_qn": Method("sgd_qn", {}, lambda state: state.w),
    "dcd": Method("dcd", {}, lambda state: state.w),
    "dcd, one sweep": Method("dcd", {"sweeps": 1}, lambda state: state.w),
    "dcd, online": Method("dcd", {"online": True, "sweeps": 1}, lambda state: state.w),
    "mpu": Method("mpu", {}, lambda state: state.w),
    "mpu, single": Method("mpu", {"multiplicity": 1}, lambda state: state.w),
    "cutting_plane": Method("cutting_plane", {}, lambda state: state.point),
}


class Task(NamedTuple):
    """A problem, and what is known of it."""

    data: Data
    stores: dict[bool, MemoryStore]
    """The rows as one block, and in blocks of ``--chunk`` bytes."""
    C: float
    best: float
    """P at about the optimum."""


def job_of(method: Method, C: float, tolerance: float, **others: Any) -> dict[str, Any]:
    """The settings of a fit of the hinge."""
    return {
        "solver": method.solver,
        "options": method.options,
        "loss": "hinge",
        "C": C,
        "tolerance": tolerance,
    } | others


def gap_of(accuracy: float) -> float:
    """The gap (P - D) / P at which P / D - 1 is this."""
    return accuracy / (1.0 + accuracy)


def svm_sgd_line(task: Task, stop: Stop) -> Row:
    """The line of SvmSGD: its last w, looked at after each reading; the trials that find its first step count."""
    row: Row = {"set": task.data.name, "C": task.C, "method": "svm_sgd", "true s": None, "readings": None}
    primal_of = Primal(with_constant(task.data.X), task.data.y, task.C)
    next(svm_sgd(primal_of))  # compiles
    steps, seconds = svm_sgd(primal_of), 0.0
    for reading in range(1, stop.max_passes + 1):
        began = time.process_time()
        w, _ = next(steps)
        seconds += time.process_time() - began
        if primal_of.value(w) <= (1.0 + ACCURACY) * task.best:
            row |= {"true s": seconds, "readings": reading}
            break
        if seconds > stop.seconds:
            break
    return row | {"certified s": None, "of them": None}


class Watch:
    """CPU seconds and readings until P of the last w is small enough; looking is not counted."""

    def __init__(self, task: Task, method: Method) -> None:
        self.seconds: float | None = None
        self.readings: int | None = None
        self.trainer: FitLoop
        self._task, self._method, self._looked = task, method, 0.0
        self._began = time.process_time()

    def __call__(self, event: dict[str, Any]) -> None:
        if event["event"] != "pass" or self.seconds is not None:
            return
        now, task = time.process_time(), self._task
        w = self._method.last(self.trainer.training.runs[0].state)
        if primal(task.data, w, task.C, "hinge") <= (1.0 + ACCURACY) * task.best:
            self.seconds, self.readings = now - self._began - self._looked, event["pass"]
        self._looked += time.process_time() - now


def watched(task: Task, method: Method, stop: Stop) -> Watch:
    """A run that ends when the limits say so, looked at after each reading."""
    watch = Watch(task, method)
    watch.trainer = trainer_of(task.stores[method.whole], watch, **job_of(method, task.C, 1e-12))
    watch.trainer.train(stop)
    return watch


def compared(task: Task, name: str, stop: Stop) -> Row:
    """A line of the table."""
    method = METHODS[name]
    store, job = task.stores[method.whole], job_of(method, task.C, gap_of(ACCURACY))
    trainer_of(store, **job).train(Stop(2))  # compiles
    seen = watched(task, method, stop)
    began = time.process_time()
    certificate, readings = certificate_of(trainer_of(store, **job), stop)
    seconds, proven = time.process_time() - began, certificate.exact and certificate.gap <= gap_of(ACCURACY)
    row: Row = {"set": task.data.name, "C": task.C, "method": name, "true s": seen.seconds, "readings": seen.readings}
    return row | {"certified s": seconds if proven else None, "of them": readings if proven else None}


def epochs(data: Data, store: MemoryStore, C: float, options: Any) -> Row:
    """How many epochs SGD-s needs for which relative accuracy, without a constant feature."""
    row: Row = {"set": data.name, "C": C}
    for gap in GAPS:
        trainer = trainer_of(store, **job_of(METHODS["sgd-s"], C, gap_of(gap), bias=0.0))
        certificate, readings = certificate_of(trainer, Stop(options.epochs, options.limit))
        row[f"{gap:g}"] = readings if certificate.exact and certificate.gap <= gap_of(gap) else None
        if row[f"{gap:g}"] is None:
            break
    return row


def main() -> None:
    options = arguments(
        __doc__, data="a9a,w8a,ijcnn1,imdb,covtype", C="0.1,1,10", methods=";".join([*METHODS, "svm_sgd"]), passes=300,
        epochs=2000, limit=60.0, chunk=1 << 20,
    )  # fmt: skip
    table, first = [], []
    with scratch() as directory:
        for name in options.data.split(","):
            data = load(name, directory)
            stores = {True: store_of(data, WHOLE), False: store_of(data, options.chunk)}
            for C in map(float, options.C.split(",")):
                exact = Method("newton", {}, lambda state: state.best)
                best = certificate_of(trainer_of(stores[True], **job_of(exact, C, REFERENCE)), Stop(100))[0]
                print(f"{name}, C = {C:g}: optimum {best.dual:.7g} + {best.gap:.0e}", flush=True)
                task, stop = Task(data, stores, C, best.primal), Stop(options.passes, options.limit)
                for method in options.methods.split(";"):
                    table.append(svm_sgd_line(task, stop) if method == "svm_sgd" else compared(task, method, stop))
                    print(table[-1], flush=True)
                if options.epochs:
                    first.append(epochs(data, stores[True], C, options))
    show(f"the hinge to a relative accuracy of {ACCURACY:g}", table, options)
    options.json = None
    if first:
        show("epochs of SGD-s to a certified relative accuracy, no constant feature", first, options)


if __name__ == "__main__":
    main()
