"""An epoch against the longer of reading alone and computing alone: 1.0 is perfect overlap.

Every timing starts from the same state, that after a few passes, so that shrinking is in its usual course.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np

from streamsvm.engine.checkpoint.checkpointer import NoCheckpoint
from streamsvm.engine.stream_trainer import StreamTrainer
from streamsvm.engine.trainer import RunSettings
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.planning.plan import make_plan
from streamsvm.jobs.synth.options import SynthJob
from streamsvm.jobs.synth.run import synth
from streamsvm.rows import Dense
from streamsvm.schedule.plan import epoch_visits, visits
from streamsvm.schedule.stream import Loaded, Stream
from streamsvm.store import open_store
from streamsvm.types import Stop, silent
from tools.bench.reader import SUFFIX
from tools.measure.harness import arguments, evict, interleaved, scratch, show


class InMemory:
    """Stands in for a stream: blocks that were read before, orders as the reader would hand them over."""

    def __init__(self, store: Any) -> None:
        self._blocks = []
        with Stream(store, epoch_visits(store.layout, 0, 0, True), depth=0) as stream:
            for loaded in stream:
                chunk = loaded.chunk._replace(X=Dense(loaded.chunk.X.values.copy()), codes=loaded.chunk.codes.copy())
                self._blocks.append(Loaded(loaded.visit, chunk, loaded.order.copy()))

    def epoch(self) -> Iterator[Loaded]:
        for loaded in self._blocks:
            yield loaded._replace(order=loaded.order.copy())


class Contest:
    """A trainer that can be put back to where it was after its first passes."""

    def __init__(self, store: Any, sweeps: int, passes: int) -> None:
        self._store, self.memory = store, InMemory(store)
        job = FitJob(store.name, "unused", solver="dcd", options={"sweeps": sweeps}, lambda_=1e-4, tolerance=1e-12)
        plan = make_plan(job, store)
        self._trainer = StreamTrainer(store, plan.solver, plan.problems, plan.features, RunSettings(), silent)
        self._trainer.train(Stop(passes))
        self._start = copy.deepcopy(self._trainer.result)

    def reset(self) -> None:
        self._trainer.result = copy.deepcopy(self._start)
        for run in self._trainer.result.runs:
            run.done, run.state.certifying = False, False

    def epoch(self) -> None:
        with Stream(self._store, visits(self._store.layout, 0, True), depth=2) as stream:
            self._trainer.one_pass(stream, NoCheckpoint())

    def read(self) -> None:
        with Stream(self._store, epoch_visits(self._store.layout, 0, 0, True), depth=2) as stream:
            assert sum(len(loaded.chunk.codes) for loaded in stream) == self._store.layout.rows

    def compute(self) -> None:
        self._trainer.one_pass(self.memory, NoCheckpoint())  # type: ignore[arg-type]


def main() -> None:
    options = arguments(__doc__, rows=4_000_000, repeats=5, passes=3, format="zarr")
    with scratch() as directory:
        root = directory / f"susy{SUFFIX[options.format]}"
        synth(SynthJob("susy", str(root), rows=options.rows))
        store = open_store(root)
        files = [p for p in root.rglob("*") if p.is_file()]
        rows = []
        for state in ("warm", "cold"):
            for sweeps in (1, 3):
                contest = Contest(store, sweeps, options.passes)
                before = contest.reset if state == "warm" else lambda c=contest: (c.reset(), evict(files))
                runs = {"epoch": contest.epoch, "read": contest.read, "compute": contest.compute}
                s = interleaved(runs, options.repeats, before)
                ratio = s["epoch"] / max(s["read"], s["compute"])
                rows.append(
                    {"cache": state, "sweeps": sweeps, **{f"{k} s": v for k, v in s.items()}, "epoch/max": ratio}
                )
        show(
            f"overlap: dcd on {options.rows:,} x 18 float32 in {options.format}, {np.float32(store.layout.bytes_per_pass / 2**20):.0f} MiB",
            rows,
            options,
        )


if __name__ == "__main__":
    main()
