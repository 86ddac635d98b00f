"""A store under any sequence of what may happen to it, against a plain list of rows."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from streamsvm import durable
from streamsvm.errors import DataError, ExistsError, MissingError, StreamSVMError
from streamsvm.jobs.ingest.options import IngestJob
from streamsvm.jobs.ingest.run import ingest
from streamsvm.jobs.inspect import verify
from streamsvm.store import open_store, read_chunk

Rows = list[tuple[float, int]]


class Killed(BaseException):
    """Stands for the end of the process."""


class StoreMachine(RuleBasedStateMachine):
    """``expected``: the rows the store must hold; None when there is none. ``damaged``: a file has been changed."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="streamsvm-machine-"))
        self.store = self.directory / "s.zarr"
        self.expected: Rows | None = None
        self.damaged = False

    def teardown(self) -> None:
        durable.observe = None
        shutil.rmtree(self.directory)

    def job(self, rows: int, seed: int, *, overwrite: bool) -> tuple[IngestJob, Rows]:
        draw = np.random.default_rng(seed)
        made = [(float(v), i % 2) for i, v in enumerate(draw.normal(size=rows).round(3).tolist())]
        path = self.directory / f"{rows}-{seed}.csv"
        if not path.exists():
            path.write_text("x,y\n" + "".join(f"{v},{c}\n" for v, c in made))
        return IngestJob(sources=(path,), store=self.store, label="y", chunk_bytes=4096, overwrite=overwrite), made

    @rule(rows=st.sampled_from([2, 1000, 3000]), seed=st.integers(0, 2), overwrite=st.booleans())
    def write(self, rows: int, seed: int, overwrite: bool) -> None:
        job, made = self.job(rows, seed, overwrite=overwrite)
        try:
            ingest(job)
        except (ExistsError, StreamSVMError) as error:
            assert error.code in ("E-EXISTS", "E-CONFIG")
            assert not overwrite
        else:
            self.expected, self.damaged = made, False

    @rule(
        rows=st.sampled_from([2, 1000, 3000]), seed=st.integers(0, 2), overwrite=st.booleans(), step=st.integers(1, 90)
    )
    def write_and_die(self, rows: int, seed: int, overwrite: bool, step: int) -> None:
        job, made = self.job(rows, seed, overwrite=overwrite)
        left = [step]

        def observer(*_: object) -> None:
            left[0] -= 1
            if left[0] <= 0:
                raise Killed

        durable.observe = observer
        try:
            ingest(job)
        except (Killed, StreamSVMError):
            durable.observe = None
            self.take_what_is_there(made)
        else:
            self.expected, self.damaged = made, False
        finally:
            durable.observe = None

    def take_what_is_there(self, made: Rows) -> None:
        """After a kill: the new rows, if the manifest was in place before the end came."""
        try:
            if self.rows() == made:
                self.expected, self.damaged = made, False
        except DataError:
            assert self.damaged

    @precondition(lambda self: self.expected is not None)
    @rule(seed=st.integers(0, 10**6))
    def damage(self, seed: int) -> None:
        files = [p for p in sorted(self.store.rglob("c.*")) if p.is_file()]
        path = files[seed % len(files)]
        raw = bytearray(path.read_bytes())
        raw[seed % len(raw)] ^= 1 << seed % 8
        path.write_bytes(raw)
        self.damaged = not self.damaged or bool(verify(self.store)["bad"])

    @rule()
    def copy_elsewhere_and_back(self) -> None:
        if self.store.exists():
            shutil.move(self.store, self.directory / "moved")
            shutil.move(self.directory / "moved", self.store)

    @invariant()
    def what_can_be_read_is_what_was_written(self) -> None:
        try:
            found = self.rows()
        except DataError:
            assert self.damaged
            return
        assert found == self.expected or self.damaged

    def rows(self) -> Rows | None:
        """All rows, in order; None when there is no store. Raises DataError."""
        try:
            store = open_store(self.store)
        except MissingError:
            return None
        except DataError as error:
            if error.code == "E-INCOMPLETE":
                return None
            raise
        buffers, found = store.buffers(), []
        for chunk in range(len(store.layout.chunks)):
            part = read_chunk(store, chunk, buffers)
            labels = [int(store.layout.classes[code]) for code in part.codes]
            values = part.X.values[:, 0].astype(float).round(3).tolist()
            found += list(zip(values, labels, strict=True))
        return found


TestStore = StoreMachine.TestCase
TestStore.settings = settings(
    max_examples=int(os.environ.get("STREAMSVM_EXAMPLES", "4")), stateful_step_count=10, deadline=None
)
