"""The fit loop of solvers that move while they read: one chunk after the other, read ahead by threads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from streamsvm.engine.block_visitor import BlockVisitor
from streamsvm.engine.checkpoint.checkpointer import Checkpointer
from streamsvm.engine.state.row_state import RowStates
from streamsvm.engine.trainer import FitLoop, RunSettings
from streamsvm.engine.training import Training
from streamsvm.schedule.plan import epoch_order, visits
from streamsvm.schedule.stream import Loaded, Stream
from streamsvm.store.read.retry import retries
from streamsvm.types import (
    AnySolver,
    FeatureMap,
    Problem,
    Report,
    Store,
)


class StreamTrainer(FitLoop):
    """The fit loop of solvers that move while they read: reader threads bring chunks, this thread shows them to the
    solvers.
    """

    def __init__(  # noqa: PLR0917 (what a training joins, in the order of the sentence)
        self,
        store: Store,
        solver: AnySolver,
        problems: list[Problem],
        features: FeatureMap,
        settings: RunSettings,
        report: Report,
    ) -> None:
        super().__init__(solver, problems, report)
        self._store, self._features, self._settings = store, features, settings
        self._visitor = BlockVisitor(solver, features, settings.cached)
        self._starts = np.concatenate([[0], np.cumsum(store.layout.chunks)]).tolist()
        self._in_memory: set[int] = set()
        """The chunks that this run has read and does not have to read again."""
        self._row_states = {
            state.name: RowStates(state, store.layout, len(problems), settings.file(state.name), settings.resident)
            for state in solver.row_state
        }
        self.result.row_states = dict(self._row_states)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Read ahead from the first chunk that is missing, epoch after epoch."""
        settings, result = self._settings, self.result
        order = visits(self._store.layout, settings.seed, self._solver.shuffled, result.passes, result.index)
        self._waited, self._retries = result.waited, retries()
        with Stream(self._store, order, depth=settings.depth, retain=settings.retain) as self._stream:
            yield

    def run_pass(self, checkpointer: Checkpointer) -> None:
        """Read what is left of the pass, chunk by chunk, and close it."""
        self.one_pass(self._stream, checkpointer)
        self.result.reads_repeated = retries() - self._retries

    def again(self, solver: AnySolver, problems: list[Problem], before: Training) -> StreamTrainer:
        """Return a loop for another solver over the same rows, which stay where they are."""
        other = StreamTrainer(self._store, solver, problems, self._features, self._settings, self._report)
        other.result.count_on(before)
        other._in_memory = self._in_memory
        return other

    def one_pass(self, stream: Stream, checkpointer: Checkpointer) -> None:
        """Show the chunks of ``stream`` to the solvers up to the end of the epoch, then close the pass."""
        result = self.result
        active = result.active()
        rows = self._rows_before()
        for loaded in stream.epoch() if result.index < len(self._store.layout.chunks) else ():
            self._visit(loaded)
            result.index += 1
            result.waited = self._waited + stream.waited
            rows += len(loaded.chunk.codes)
            self._progress.rows(rows, self._store.layout.rows)
            checkpointer.between(result)  # after the last visit too: to close a pass may take longer than to make it
        result.passes, result.index = result.passes + 1, 0
        self._visitor.gathered([one.state for one in active])
        for number, one in enumerate(active, 1):
            self._progress.closing(number, len(active))
            run = result.runs[one.number]
            with self._working_in_memory() as deadline:
                certificate = self._visitor.finish(run.state, deadline)
            run.certified(certificate)
            self._progress.certificate(one.number, run)

    def _rows_before(self) -> int:
        """The rows of the pass that were shown before it was left: a run may go on in the middle of one."""
        layout, result = self._store.layout, self.result
        order = epoch_order(layout, self._settings.seed, result.passes, self._solver.shuffled)
        return sum(layout.chunks[chunk] for chunk in order[: result.index])

    def _visit(self, loaded: Loaded) -> None:
        chunk = loaded.visit.chunk
        rows = {name: states.load(chunk) for name, states in self._row_states.items()}
        self._visitor.visit(loaded, chunk, self._starts[chunk], self.result.active(), rows)
        for name, values in rows.items():
            self._row_states[name].save(chunk, values)
        if chunk not in self._in_memory:
            self.result.bytes_read += self._store.layout.chunk_bytes(chunk)
        if self._settings.cached:
            self._in_memory.add(chunk)
