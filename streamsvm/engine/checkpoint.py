"""Decide when a checkpoint of a fit is due, and write and read the files of checkpoints.

A checkpoint is a safetensors file of arrays with a JSON header, protected by checksums. Two generations are kept. A new
checkpoint overwrites the older one, so that one is always intact; a resumed run uses the newest intact one. Arrays are
written to disk directly from memory, without a second copy. Reading a file executes no code: each class is named by its
tag (``class_tags``), looked up in a closed table, and its fields are set. Saving an object whose class has no tag is an
error.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
from crc32c import crc32c

from streamsvm import durable
from streamsvm.array_file import open_container, pieces
from streamsvm.class_tags import class_of, tag_of
from streamsvm.compute import freed_memory
from streamsvm.config.options import field_values
from streamsvm.durable import sweep
from streamsvm.engine.fit_state import SAVED_FIELDS, ProblemRun, Training
from streamsvm.engine.shared_files import close_place
from streamsvm.engine.signals import Interruption
from streamsvm.engine.store_reference import StoreGuard
from streamsvm.engine.time_limit import check_time
from streamsvm.errors import DataError, ExistsError, InterruptedRun, StreamSVMError, quote
from streamsvm.type_aliases import Array, JsonObject, ValuesByName
from streamsvm.types import Report, Status
from streamsvm.working_copies import publish, remove_published

Tree: TypeAlias = Any
"""JSON as written by ``Encoder`` and read by ``Decoder``."""
Value: TypeAlias = Any
"""A value that a checkpoint can hold: a state, or a part of one."""
StateClass: TypeAlias = Any
"""A tagged class: a dataclass or a ``NamedTuple``. The type system has no common name for them."""

PLAIN_TYPES = (bool, int, float, str, type(None))

FORMAT = 3
"""The version of the header. Files of other versions are refused."""
GENERATIONS = ("ckpt-A", "ckpt-B")
"""The two files of a directory; a new checkpoint overwrites the older one."""
PAUSE_FACTOR = 20
"""Minimum pause between two checkpoints, as a multiple of the time that the last checkpoint took, so that checkpoints
take at most 1/20 of a run."""


class Encoder:
    """Encodes a value as a JSON tree; collects its arrays in ``tensors``, to which the tree refers by name."""

    def __init__(self) -> None:
        self.tensors: dict[str, Array] = {}
        self._names: dict[int, str] = {}

    def encode(self, value: Value) -> Tree:
        """Return the JSON tree of a value. Raises StreamSVMError E-INTERNAL for a class without a tag."""
        if type(value) in PLAIN_TYPES:
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
    """Decodes a JSON tree of ``Encoder``. ``tensor`` returns an array by its name.

    A malformed tree raises ValueError, KeyError or TypeError.
    """

    def __init__(self, tensor: Callable[[str], Array]) -> None:
        self._tensor = tensor
        self._decoded_arrays: dict[str, Array] = {}

    def decode(self, tree: Tree) -> Value:
        """Return the value of a tree."""
        if type(tree) in PLAIN_TYPES:
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

    def decode_key(self, tree: Tree, key: str) -> Value:
        """Return the value of one key of a tree that encodes a dict."""
        return self.decode(dict(tree["dict"])[key])

    def _array(self, name: str, transposed: bool) -> Array:
        if name not in self._decoded_arrays:
            array = self._tensor(name)
            if not array.flags.writeable:
                array = np.array(array)
            self._decoded_arrays[name] = array.T if transposed else array
        return self._decoded_arrays[name]

    def _instance(self, kind: StateClass, values: list[Value]) -> Value:
        names = _fields(kind)
        if len(names) != len(values):
            raise ValueError(f"{kind.__name__} has {len(names)} fields, not {len(values)}")
        if issubclass(kind, tuple):
            return kind(*values)
        instance = object.__new__(kind)
        for name, value in zip(names, values, strict=True):
            object.__setattr__(instance, name, value)
        return instance


def _fields(kind: StateClass) -> list[str]:
    return [f.name for f in fields(kind)] if is_dataclass(kind) else list(kind._fields)


def _is_transposed(array: Array) -> bool:
    return array.ndim > 1 and array.flags.f_contiguous and not array.flags.c_contiguous


@dataclass(frozen=True, slots=True)
class CheckpointFile:
    """A checkpoint file with an intact header. Its arrays are read from the file when ``read_content`` or ``verify`` is
    called.
    """

    number: int
    """Number of the checkpoint among those of its run, from 1."""
    identity: JsonObject
    """Fingerprint of the run's data and settings, as plain JSON, by which a checkpoint is matched to a run."""
    tree: Any
    """The JSON tree of the content (``Encoder``)."""
    crcs: dict[str, int]
    """The crc32c of each array, by name."""
    path: Path

    def read_content(self, key: str | None = None) -> Any:
        """Return the content, or the value of one of its keys. The modules of the saved classes must be imported.

        Raises DataError E-CHECKPOINT, and what ``Decoder`` raises.
        """
        with _open_arrays(self.path, self.crcs) as read_array:
            decoder = Decoder(read_array)
            return decoder.decode(self.tree) if key is None else decoder.decode_key(self.tree, key)

    def verify(self) -> CheckpointFile:
        """Read all arrays once and check their checksums; return this file. Raises DataError E-CHECKPOINT."""
        with _open_arrays(self.path, self.crcs) as read_array:
            for name in self.crcs:
                read_array(name)
        return self


@contextmanager
def _open_arrays(path: Path, crcs: dict[str, int]) -> Iterator[Callable[[str], Array]]:
    """Yield a function that reads an array of a checkpoint by name and checks its crc32c."""
    with open_container(path, lambda why: _unusable_error(path, why)) as file:

        def read_array(name: str) -> Array:
            array = file.get_tensor(name)
            if crc32c(np.ascontiguousarray(array).data) != crcs[name]:
                raise _unusable_error(path, f"the crc32c of array {name} does not match")
            return array

        yield read_array


def write_checkpoint(path: Path, number: int, identity: JsonObject, content: Any) -> None:
    """Write a checkpoint atomically. Raises StorageError."""
    encoder = Encoder()
    tree = encoder.encode(content)
    crcs = {name: crc32c(array.data) for name, array in encoder.tensors.items()}
    header = {"format": FORMAT, "number": number, "identity": identity, "tree": tree, "crcs": crcs}
    text = json.dumps(header)
    metadata = {"header": text, "sha256": hashlib.sha256(text.encode()).hexdigest()}
    durable.write_stream(path, pieces(encoder.tensors, metadata))


def read_checkpoint(path: Path) -> CheckpointFile:
    """Open a checkpoint and check its header. Raises DataError E-CHECKPOINT, E-VERSION."""
    with open_container(path, lambda why: _unusable_error(path, why)) as file:
        return _parse_header(path, file.metadata() or {})


def _parse_header(path: Path, metadata: dict[str, str]) -> CheckpointFile:
    text = metadata.get("header", "")
    if hashlib.sha256(text.encode()).hexdigest() != metadata.get("sha256"):
        raise _unusable_error(path, "the sha256 of its header does not match")
    header = json.loads(text)
    if header.get("format") != FORMAT:
        version = f"format {quote(header.get('format'))}, this one reads {FORMAT}"
        hint = "resume with the version that made the checkpoint, or start again with --overwrite in place of --resume"
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
    """The checkpoint files of a run."""

    directory: Path
    number: int = 0
    """Number of the last checkpoint written or read; 0: there is none."""
    shared: str | None = None
    """URL below which the workers of a cluster keep their files; None if they use the checkpoint directory itself."""
    keep_after_success: bool = False
    """Whether to keep the checkpoints after a normal end, because a resumed run could improve the result."""

    @contextmanager
    def open(self, *, keep_existing: bool) -> Iterator[None]:
        """Create the directory for a run; unless ``keep_existing``, remove the checkpoints of earlier runs.

        The directory is removed after a normal end, unless ``keep_after_success`` is set, and after an error if it
        holds no checkpoint.
        """
        if not keep_existing:
            self._remove()
        durable.make_directory(self.directory)
        sweep(self.directory.parent)
        try:
            yield
        except BaseException:
            if not self.number:
                with suppress(StreamSVMError):  # the error that ended the run is the one to raise
                    self._remove()
            raise
        if not self.keep_after_success:
            self._remove()

    def _remove(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)
        if self.shared is not None:
            close_place(self.shared)
        remove_published(self.directory)

    def check_absent(self) -> None:
        """Raise ExistsError if an interrupted run has left a checkpoint, which a new run would remove."""
        if any((self.directory / name).exists() for name in GENERATIONS):
            raise ExistsError(
                f"{self.directory} holds the checkpoint of a run that was interrupted",
                hint="pass --resume to continue that run, --overwrite to discard it, or choose another name",
            )

    def write(self, identity: JsonObject, content: Any) -> None:
        """Overwrite the older checkpoint, and upload the directory if it has a URL. Raises StorageError, ExistsError E-LOCKED."""
        path = self.directory / GENERATIONS[self.number % 2]
        write_checkpoint(path, self.number + 1, identity, content)
        publish(self.directory)
        self.number += 1

    def read(self) -> list[CheckpointFile]:
        """Return the intact checkpoints, newest first. Raises DataError if there are checkpoints but none is intact."""
        intact, errors = [], []
        for path in (self.directory / name for name in GENERATIONS):
            if path.exists():
                try:
                    intact.append(read_checkpoint(path).verify())
                except DataError as error:
                    errors.append(error)
        if errors and not intact:
            raise errors[0]
        intact.sort(key=lambda file: -file.number)
        self.number = intact[0].number if intact else 0
        return intact


class Checkpointer(Protocol):
    """Saves and restores a training; called by the fit loop."""

    def resume(self, training: Training) -> None:
        """Restore ``training`` from the checkpoint of an interrupted run, if there is one. Raises DataError."""
        ...

    def save_if_due(self, training: Training) -> None:
        """Save a checkpoint if one is due; called after every visit. Raises InterruptedRun if the process is asked to
        stop.
        """
        ...

    def check_store(self) -> None:
        """Raise DataError if the store has changed since it was opened; called before and after every pass."""
        ...

    def save(self, training: Training) -> None:
        """Save the training between two visits; called when the training cannot continue. Raises StorageError."""
        ...


class NoCheckpoint:
    """The checkpointer of a fit without checkpoints: it saves nothing."""

    def resume(self, training: Training) -> None:
        """Leave the training at its beginning."""

    def save_if_due(self, training: Training) -> None:
        """Check the time limit. Raises InterruptedRun."""
        check_time()

    def check_store(self) -> None:
        """Check nothing."""

    def save(self, training: Training) -> None:
        """Save nothing."""


@dataclass(slots=True)
class RunCheckpointer:
    """Saves a training at regular intervals, and when the process is asked to stop (``Checkpointer``)."""

    checkpoints: CheckpointDirectory
    identity: JsonObject
    """Fingerprint of the run's data and settings, as plain JSON, by which a checkpoint is matched to a run."""
    guard: StoreGuard
    """Detects changes of the store during the run."""
    interruption: Interruption
    """The signal or expired time limit by which the process was asked to stop, if any."""
    interval_seconds: float
    """Seconds between two checkpoints; 0: save only when the process is asked to stop."""
    command: str
    """Shell command that resumes the run."""
    report: Report
    """Receives the events ``resumed`` and ``checkpoint``."""
    deadline: float = float("inf")
    """Moment at which the run must stop, by ``time.monotonic``."""
    saved: list[CheckpointFile] = field(default_factory=list)
    """The checkpoints of the interrupted run that is resumed, newest first; emptied by ``resume``."""
    _last_saved: float = field(init=False)
    """Moment at which the last checkpoint was complete, by ``time.monotonic``."""
    _save_seconds: float = 0.0
    """Seconds that the last checkpoint took."""

    def __post_init__(self) -> None:
        self._last_saved = time.monotonic()

    def resume(self, training: Training) -> None:
        """Restore the training from the newest checkpoint of the interrupted run, if there is one. Raises DataError."""
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
        self.interruption.last_checkpoint_message = self._describe_last_checkpoint(training)
        self.report({"event": "resumed", "passes": training.passes, "visits": training.chunks_visited})
        self.saved = []

    def _restore(self, training: Training) -> None:
        newest, *others = self.saved
        content = newest.read_content()
        for key, name in SAVED_FIELDS.items():
            setattr(training, name, content[key])
        training.partials = content["partials"]
        training.status = Status(content["status"])
        training.runs[:] = [
            ProblemRun(old.problem, *new) for old, new in zip(training.runs, content["runs"], strict=True)
        ]
        # The next checkpoint overwrites only the older one, whose rows lie in the same files: they must match it until then.
        older_rows = others[0].read_content("rows") if others and training.row_states else {}
        for name, row_state in training.row_states.items():
            row_state.restore(content["rows"].get(name), older_rows.get(name))

    def save_if_due(self, training: Training) -> None:
        """Save if a checkpoint is due. If the process was asked to stop, save and raise InterruptedRun."""
        if self.interruption.name or time.monotonic() >= self.deadline:
            raise self.save_interrupted(training)
        pause = max(self.interval_seconds, PAUSE_FACTOR * self._save_seconds)
        if self.interval_seconds and time.monotonic() - self._last_saved >= pause:
            self.save(training)

    def check_store(self) -> None:
        """Raise DataError if the store has changed since it was opened."""
        self.guard.check()

    def save(self, training: Training) -> None:
        """Write a checkpoint now. Raises StorageError."""
        began = time.monotonic()
        with training.lock_position() as position:
            training.chunks_visited = position.chunks_visited
            content: ValuesByName = {key: getattr(training, name) for key, name in SAVED_FIELDS.items()}
            content["partials"] = position.partials
            content["status"] = training.status.value
            content["runs"] = [(run.state, run.certificate, run.done, run.dual_witness) for run in training.runs]
            content["rows"] = {name: rows.checkpoint() for name, rows in training.row_states.items()}
            self.checkpoints.write(self.identity, content)
        self._last_saved = time.monotonic()
        self._save_seconds = self._last_saved - began
        self.interruption.last_checkpoint_message = self._describe_last_checkpoint(training)
        self.report({"event": "checkpoint", **_position(training), "took": self._save_seconds})

    def save_interrupted(self, training: Training) -> InterruptedRun:
        """Save a checkpoint of a run that was asked to stop, and return the InterruptedRun to raise. Raises
        StorageError.
        """
        self.interruption.is_saving = True
        self.save(training)
        self.interruption.is_saving = False
        name = self.interruption.name or "time limit"
        seconds = self.interruption.seconds_since_signal if self.interruption.name else self._save_seconds
        where = "epoch {epoch}, chunk {chunk}".format(**_position(training))
        return InterruptedRun(f"{name}: checkpoint saved at {where} ({seconds:.1f} s). Resume: {self.command}")

    def _describe_last_checkpoint(self, training: Training) -> str:
        where = "epoch {epoch}, chunk {chunk}".format(**_position(training))
        return f"The checkpoint saved at {where} is still valid. Resume: {self.command}"


def _position(training: Training) -> dict[str, int]:
    """Return the position for users: the number of the pass, from 1, and the chunks visited in it."""
    return {"epoch": training.passes + 1, "chunk": training.chunks_visited}
