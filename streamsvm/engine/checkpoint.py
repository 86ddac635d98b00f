"""Checkpoints: when one is made, what it holds, and the file format.

A checkpoint is a safetensors file of arrays with a JSON header, sealed by checksums. Two generations are kept: the older one is
overwritten, so that one is always intact, and the newest intact one is used. Arrays are streamed to disk as they lie in memory: saving
needs no second copy. Nothing is executed when a file is read: a class is named by its tag (``class_tags``) and
looked up in a closed table, and its fields are set. A value without a tag is refused when it is written.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
from crc32c import crc32c

from streamsvm import durable
from streamsvm.aliases import Array, ByName, JsonObject
from streamsvm.array_file import open_container, pieces
from streamsvm.class_tags import class_of, tag_of
from streamsvm.compute import freed_memory
from streamsvm.config.options import field_values
from streamsvm.engine.fit_state import ProblemRun, Training
from streamsvm.engine.signals import Interruption, check_time
from streamsvm.engine.store_reference import StoreGuard
from streamsvm.errors import DataError, ExistsError, InterruptedRun, StreamSVMError, quote
from streamsvm.locks import sweep
from streamsvm.types import Report, Status

Tree: TypeAlias = Any
"""JSON as ``Encoder`` makes it and ``Decoder`` reads it."""
Value: TypeAlias = Any
"""A value that a checkpoint can hold: a state, or a part of one."""
StateClass: TypeAlias = Any
"""A dataclass or ``NamedTuple`` with a tag: the type system has no name for both."""

PLAIN = (bool, int, float, str, type(None))

FORMAT = 3
"""The version of the header. Files of another one are refused."""
GENERATIONS = ("ckpt-A", "ckpt-B")
"""The two files of a directory; a checkpoint is written over the older one."""
PAUSE_FACTOR = 20
"""The next checkpoint is made no sooner than this many times the seconds the last one took: they cost a twentieth of the time
at most."""
SAVED_FIELDS = {
    "passes": "passes",
    "index": "chunks_visited",
    "ending": "ending",
    "seconds": "seconds",
    "waited": "waited",
    "bytes_read": "bytes_read",
    "held": "validation_state",
    "gaps": "gaps",
}
"""Keys of a checkpoint, each with the field of ``Training`` that it stores. The runs, the per-row state and the status have keys of
their own."""


class Encoder:
    """Turns a value into a JSON tree; arrays are collected in ``tensors`` and referred to by name."""

    def __init__(self) -> None:
        self.tensors: dict[str, Array] = {}
        self._names: dict[int, str] = {}

    def encode(self, value: Value) -> Tree:
        """Return the JSON tree of a value. Raises StreamSVMError E-INTERNAL for a class without a tag."""
        if type(value) in PLAIN:
            return value
        if isinstance(value, np.ndarray):
            return {"array": self._tensor(value), "transposed": _is_transposed(value)}
        if isinstance(value, np.generic):
            return {"scalar": self._tensor(np.array([value]))}
        if type(value) is dict:
            return {"dict": [[self.encode(k), self.encode(v)] for k, v in value.items()]}
        if type(value) in (list, tuple):
            return {type(value).__name__: [self.encode(v) for v in value]}
        tag = tag_of(type(value))
        if tag is not None:
            return {"class": tag, "fields": [self.encode(v) for v in field_values(value, _fields(value)).values()]}
        raise StreamSVMError(f"a checkpoint cannot hold a {type(value).__name__}")

    def _tensor(self, array: Array) -> str:
        """Return the name of an array's tensor; an array is stored once, however many values refer to it."""
        if id(array) not in self._names:
            name = self._names[id(array)] = str(len(self.tensors))
            self.tensors[name] = np.ascontiguousarray(array.T if _is_transposed(array) else array)
        return self._names[id(array)]


class Decoder:
    """The inverse of ``Encoder``: ``tensor`` returns an array by name. A malformed tree raises ValueError, KeyError or TypeError."""

    def __init__(self, tensor: Callable[[str], Array]) -> None:
        self._tensor = tensor
        self._made: dict[str, Array] = {}

    def decode(self, tree: Tree) -> Value:
        """Return the value of a tree."""
        if type(tree) in PLAIN:
            return tree
        if "array" in tree:
            return self._array(tree["array"], tree["transposed"])
        if "scalar" in tree:
            return self._tensor(tree["scalar"])[0]
        if "dict" in tree:
            return {self.decode(k): self.decode(v) for k, v in tree["dict"]}
        for kind in (list, tuple):
            if kind.__name__ in tree:
                return kind(self.decode(v) for v in tree[kind.__name__])
        return self._instance(class_of(tree["class"]), [self.decode(v) for v in tree["fields"]])

    def entry(self, tree: Tree, key: str) -> Value:
        """Return one value of a tree that is a dict."""
        return self.decode(dict(tree["dict"])[key])

    def _array(self, name: str, transposed: bool) -> Array:
        if name not in self._made:
            array = self._tensor(name)
            if not array.flags.writeable:
                array = np.array(array)
            self._made[name] = array.T if transposed else array
        return self._made[name]

    def _instance(self, kind: StateClass, values: list[Value]) -> Value:
        names = _fields(kind)
        if len(names) != len(values):
            raise ValueError(f"{kind.__name__} has {len(names)} fields, not {len(values)}")
        if issubclass(kind, tuple):
            return kind(*values)
        made = object.__new__(kind)
        for name, value in zip(names, values, strict=True):
            object.__setattr__(made, name, value)
        return made


def _fields(kind: StateClass) -> list[str]:
    return [f.name for f in fields(kind)] if is_dataclass(kind) else list(kind._fields)


def _is_transposed(array: Array) -> bool:
    return array.ndim > 1 and array.flags.f_contiguous and not array.flags.c_contiguous


@dataclass(frozen=True, slots=True)
class CheckpointFile:
    """A checkpoint file that was opened and whose header is intact. Its arrays stay in the file until ``content`` reads them."""

    number: int
    """Counts the checkpoints of a run, from 1."""
    identity: JsonObject
    """Data and settings of the run, as plain JSON."""
    tree: Any
    """The JSON tree of the content (``Encoder``)."""
    crcs: dict[str, int]
    path: Path

    def content(self, part: str | None = None) -> Any:
        """Return the content, or one entry of it. The modules of its classes must be imported.

        Raises what ``Decoder`` does, DataError E-CHECKPOINT.
        """
        with _arrays(self.path, self.crcs) as array:
            decoder = Decoder(array)
            return decoder.decode(self.tree) if part is None else decoder.entry(self.tree, part)

    def verify(self) -> CheckpointFile:
        """Read all arrays once. Raises DataError E-CHECKPOINT."""
        with _arrays(self.path, self.crcs) as array:
            for name in self.crcs:
                array(name)
        return self


@contextmanager
def _arrays(path: Path, crcs: dict[str, int]) -> Iterator[Callable[[str], Array]]:
    """Yield a function that reads an array of a checkpoint by name and checks its crc32c."""
    with open_container(path, lambda why: _unusable_error(path, why)) as file:

        def array(name: str) -> Array:
            found = file.get_tensor(name)
            if crc32c(np.ascontiguousarray(found).data) != crcs[name]:
                raise _unusable_error(path, f"the crc32c of array {name} does not match")
            return found

        yield array


def write_checkpoint(path: Path, number: int, identity: JsonObject, content: Any) -> None:
    """Write a checkpoint atomically. Raises StorageError."""
    encoder = Encoder()
    tree = encoder.encode(content)
    crcs = {name: crc32c(array.data) for name, array in encoder.tensors.items()}
    header = {"format": FORMAT, "number": number, "identity": identity, "tree": tree, "crcs": crcs}
    text = json.dumps(header)
    sealed = {"header": text, "sha256": hashlib.sha256(text.encode()).hexdigest()}
    durable.write_stream(path, pieces(encoder.tensors, sealed))


def read_checkpoint(path: Path) -> CheckpointFile:
    """Open a checkpoint; its arrays are verified when they are read. Raises DataError E-CHECKPOINT, E-VERSION."""
    with open_container(path, lambda why: _unusable_error(path, why)) as file:
        return _check_seal(path, file.metadata() or {})


def _check_seal(path: Path, metadata: dict[str, str]) -> CheckpointFile:
    text = metadata.get("header", "")
    if hashlib.sha256(text.encode()).hexdigest() != metadata.get("sha256"):
        raise _unusable_error(path, "the sha256 of its header does not match")
    header = json.loads(text)
    if header.get("format") != FORMAT:
        version = f"format {quote(header.get('format'))}, this one reads {FORMAT}"
        hint = "resume with the version that made it, or start again with --overwrite in place of --resume"
        raise DataError(f"{path} was made by another streamsvm ({version})", code="E-VERSION", hint=hint)
    return CheckpointFile(header["number"], header["identity"], header["tree"], header["crcs"], path)


def _unusable_error(path: Path, why: str) -> DataError:
    return DataError(
        f"{path} is not a usable checkpoint: {why}",
        code="E-CHECKPOINT",
        hint="start again with --overwrite in place of --resume",
    )


@dataclass(slots=True)
class CheckpointDirectory:
    """The checkpoints of a run in ``directory``."""

    directory: Path
    number: int = 0
    """The number of the last checkpoint that was written or read."""
    keep_after_success: bool = False
    """Whether the checkpoints stay after a normal end, because a resumed run could do more."""

    @contextmanager
    def open(self, *, keep_existing: bool) -> Iterator[None]:
        """Create the directory for a run; without ``keep`` earlier checkpoints are removed.

        It is removed after a normal end, unless it is ``kept``, and after an error if there is no checkpoint in it.
        """
        if not keep_existing:
            shutil.rmtree(self.directory, ignore_errors=True)
        durable.make_directory(self.directory)
        sweep(self.directory.parent)
        try:
            yield
        except BaseException:
            if not self.number:
                shutil.rmtree(self.directory, ignore_errors=True)
            raise
        if not self.keep_after_success:
            shutil.rmtree(self.directory, ignore_errors=True)

    def check_absent(self) -> None:
        """Raise ExistsError where an interrupted run has left a checkpoint: a run that does not resume would remove it."""
        if any((self.directory / name).exists() for name in GENERATIONS):
            raise ExistsError(
                f"{self.directory} holds the checkpoint of a run that was interrupted",
                hint="pass --resume to go on with that run, --overwrite to discard it, or choose another name",
            )

    def write(self, identity: JsonObject, content: Any) -> None:
        """Write the next checkpoint in place of the older one. Raises StorageError."""
        path = self.directory / GENERATIONS[self.number % 2]
        write_checkpoint(path, self.number + 1, identity, content)
        self.number += 1

    def read(self) -> list[CheckpointFile]:
        """Return the intact checkpoints, newest first. Raises DataError if there are some and all are damaged."""
        found, errors = [], []
        for path in (self.directory / name for name in GENERATIONS):
            if path.exists():
                try:
                    found.append(read_checkpoint(path).verify())
                except DataError as error:
                    errors.append(error)
        if errors and not found:
            raise errors[0]
        found.sort(key=lambda saved: -saved.number)
        self.number = found[0].number if found else 0
        return found


class Checkpointer(Protocol):
    """What the fit loop does between two visits for the sake of a later resume."""

    def resume(self, training: Training) -> None:
        """Change ``training`` to where an earlier run was stopped, if there was one. Raises DataError."""
        ...

    def save_if_due(self, training: Training) -> None:
        """Save when it is time; called after every visit. Raises InterruptedRun when the run is to stop here."""
        ...

    def check_store(self) -> None:
        """Check the store; called before and after every pass. Raises DataError when it is not the one that was opened."""
        ...

    def save(self, training: Training) -> None:
        """Save the training as it is between two visits; called when a run cannot go on. Raises StorageError."""
        ...


class NoCheckpoint:
    """The checkpointer of a run that is not resumed: it saves nothing."""

    def resume(self, training: Training) -> None:
        """Leave the training at its beginning."""

    def save_if_due(self, training: Training) -> None:
        """Go on while there is time. Raises InterruptedRun."""
        check_time()

    def check_store(self) -> None:
        """Check nothing."""

    def save(self, training: Training) -> None:
        """Save nothing."""


@dataclass(slots=True)
class RunCheckpointer:
    """Saves a training every so often and when it is asked to stop; see ``Checkpointer``."""

    checkpoints: CheckpointDirectory
    """Where checkpoints are written."""
    identity: JsonObject
    """What the run is made with, as plain JSON."""
    guard: StoreGuard
    """Looks after the store that is read."""
    interruption: Interruption
    """Where a signal or the end of the time shows."""
    interval_seconds: float
    """Seconds between two checkpoints; 0: only when the run is stopped."""
    command: str
    """What goes on with the run, as typed in a shell."""
    report: Report
    """Takes the events ``resumed`` and ``checkpoint``."""
    deadline: float = float("inf")
    """When the run is to stop, by the clock of ``time.monotonic``."""
    saved: list[CheckpointFile] = field(default_factory=list)
    """The checkpoints of an earlier run, newest first."""
    _last: float = field(init=False)
    """When the last checkpoint was complete."""
    _cost: float = 0.0
    """Seconds the last checkpoint took."""

    def __post_init__(self) -> None:
        self._last = time.monotonic()

    def resume(self, training: Training) -> None:
        """Go on from the newest checkpoint of an earlier run; without one nothing changes. Raises DataError."""
        if not self.saved:
            return
        try:
            self._restore(training)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            where = self.checkpoints.directory
            hint = "start again with --overwrite in place of --resume"
            raise DataError(
                f"{where} is no usable checkpoint: {quote(error)}", code="E-CHECKPOINT", hint=hint
            ) from error
        freed_memory.give_back()
        self.interruption.standing = self._standing(training)
        self.report({"event": "resumed", "passes": training.passes, "visits": training.chunks_visited})
        self.saved = []

    def _restore(self, training: Training) -> None:
        newest, *others = self.saved
        content = newest.content()
        for key, name in SAVED_FIELDS.items():
            setattr(training, name, content[key])
        training.partials = content["partials"]
        training.status = Status(content["status"])
        training.runs[:] = [
            ProblemRun(old.problem, *new) for old, new in zip(training.runs, content["runs"], strict=True)
        ]
        before = others[0].content("rows") if others and training.row_states else {}
        for name, rows in training.row_states.items():
            rows.restore(content["rows"].get(name), before.get(name))

    def save_if_due(self, training: Training) -> None:
        """Save if a checkpoint is due. Raises InterruptedRun, after saving, when the run was asked to stop."""
        if self.interruption.name or time.monotonic() >= self.deadline:
            raise self.save_interrupted(training)
        if self.interval_seconds and time.monotonic() - self._last >= max(
            self.interval_seconds, PAUSE_FACTOR * self._cost
        ):
            self.save(training)

    def check_store(self) -> None:
        """Raise DataError when the store is not the one that was opened."""
        self.guard.check()

    def save(self, training: Training) -> None:
        """Write a checkpoint now. Raises StorageError."""
        began = time.monotonic()
        with training.lock_position() as position:
            training.chunks_visited = position.chunks_visited
            content: ByName = {key: getattr(training, name) for key, name in SAVED_FIELDS.items()}
            content["partials"] = position.partials
            content["status"] = training.status.value
            content["runs"] = [(run.state, run.certificate, run.done, run.witness) for run in training.runs]
            content["rows"] = {name: rows.checkpoint() for name, rows in training.row_states.items()}
            self.checkpoints.write(self.identity, content)
        self._last = time.monotonic()
        self._cost = self._last - began
        self.interruption.standing = self._standing(training)
        self.report({"event": "checkpoint", **_position(training), "took": self._cost})

    def save_interrupted(self, training: Training) -> InterruptedRun:
        """Save a checkpoint of a run that was asked to stop, and return what it ends with. Raises StorageError."""
        self.interruption.saving = True
        self.save(training)
        self.interruption.saving = False
        name = self.interruption.name or "time limit"
        seconds = self.interruption.seconds if self.interruption.name else self._cost
        where = "epoch {epoch}, chunk {chunk}".format(**_position(training))
        return InterruptedRun(f"{name}: checkpoint saved at {where} ({seconds:.1f} s). Resume: {self.command}")

    def _standing(self, training: Training) -> str:
        where = "epoch {epoch}, chunk {chunk}".format(**_position(training))
        return f"The checkpoint saved at {where} stands. Resume: {self.command}"


def _position(training: Training) -> dict[str, int]:
    """Where the run is, as people count: epoch from 1, chunks done in it."""
    return {"epoch": training.passes + 1, "chunk": training.chunks_visited}
