"""A checkpoint as a file: safetensors arrays and a JSON header, sealed; two checkpoints of it in one directory.

A generation is written beside the other one, so that there is always one that is whole, and the newest whole one wins.
The arrays are streamed to disk as they lie in memory: saving a state costs no second copy of it.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from crc32c import crc32c

from streamsvm import durable
from streamsvm.aliases import Array, JsonObject
from streamsvm.container import opened, pieces
from streamsvm.engine.checkpoint.codec import Decoder, Encoder
from streamsvm.errors import DataError, ExistsError, quote
from streamsvm.locks import sweep

FORMAT = 2
"""The version of the header. Files of another one are refused."""
GENERATIONS = ("ckpt-A", "ckpt-B")
"""The two files of a directory; a checkpoint is written over the older one."""


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint file that has been opened and is sealed.

    Its arrays stay in the file until ``content`` makes them: there is never a second copy of all of them.
    """

    number: int
    """Counts the checkpoints of a run, from 1."""
    identity: JsonObject
    """What the run was made with, as plain JSON."""
    tree: Any
    """The JSON tree of what was saved, which refers to arrays by name (``codec``)."""
    crcs: dict[str, int]
    """The crc32c of every array."""
    path: Path
    """The file."""

    def content(self, part: str | None = None) -> Any:
        """What was saved, or one entry of it; the modules of the classes it is made of must be loaded.

        Raises what ``Decoder`` does, DataError E-CHECKPOINT.
        """
        with _arrays(self.path, self.crcs) as array:
            decoder = Decoder(array)
            return decoder.decode(self.tree) if part is None else decoder.entry(self.tree, part)

    def verify(self) -> Saved:
        """Read all arrays once. Raises DataError E-CHECKPOINT."""
        with _arrays(self.path, self.crcs) as array:
            for name in self.crcs:
                array(name)
        return self


@contextmanager
def _arrays(path: Path, crcs: dict[str, int]) -> Iterator[Callable[[str], Array]]:
    """What reads an array of a checkpoint by name, and checks it."""
    with opened(path, lambda why: _unusable(path, why)) as file:

        def array(name: str) -> Array:
            found = file.get_tensor(name)
            if crc32c(np.ascontiguousarray(found).data) != crcs[name]:
                raise _unusable(path, f"the crc32c of array {name} does not match")
            return found

        yield array


def write(path: Path, number: int, identity: JsonObject, content: Any) -> None:
    """Write a checkpoint, all of it or nothing. Raises StorageError."""
    encoder = Encoder()
    tree = encoder.encode(content)
    crcs = {name: crc32c(array.data) for name, array in encoder.tensors.items()}
    header = {"format": FORMAT, "number": number, "identity": identity, "tree": tree, "crcs": crcs}
    text = json.dumps(header)
    sealed = {"header": text, "sha256": hashlib.sha256(text.encode()).hexdigest()}
    durable.write_stream(path, pieces(encoder.tensors, sealed))


def read(path: Path) -> Saved:
    """Open a checkpoint; its arrays are verified when they are read. Raises DataError E-CHECKPOINT, E-VERSION."""
    with opened(path, lambda why: _unusable(path, why)) as file:
        return _sealed(path, file.metadata() or {})


def _sealed(path: Path, metadata: dict[str, str]) -> Saved:
    text = metadata.get("header", "")
    if hashlib.sha256(text.encode()).hexdigest() != metadata.get("sha256"):
        raise _unusable(path, "the sha256 of its header does not match")
    header = json.loads(text)
    if header.get("format") != FORMAT:
        version = f"format {quote(header.get('format'))}, this one reads {FORMAT}"
        hint = "go on with the version that made it, or start again with --overwrite in place of --resume"
        raise DataError(f"{path} was made by another streamsvm ({version})", code="E-VERSION", hint=hint)
    return Saved(header["number"], header["identity"], header["tree"], header["crcs"], path)


def _unusable(path: Path, why: str) -> DataError:
    return DataError(
        f"{path} is no usable checkpoint: {why}",
        code="E-CHECKPOINT",
        hint="start again with --overwrite in place of --resume",
    )


@dataclass(slots=True)
class CheckpointDirectory:
    """The checkpoints of a run in ``directory``."""

    directory: Path
    """Where they are; there may be none yet."""
    number: int = 0
    """Of the last one that was written or read."""
    kept: bool = False
    """Whether they stay when the run ends well: it has left something for a resumed one to do."""

    @contextmanager
    def open(self, *, keep: bool) -> Iterator[None]:
        """The directory while a run writes to it; without ``keep`` what was there before is removed.

        It is removed when the run ends well, unless it is ``kept``, or badly without a checkpoint that could be of use.
        """
        if not keep:
            shutil.rmtree(self.directory, ignore_errors=True)
        durable.make_directory(self.directory)
        sweep(self.directory.parent)
        try:
            yield
        except BaseException:
            if not self.number:
                shutil.rmtree(self.directory, ignore_errors=True)
            raise
        if not self.kept:
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
        write(path, self.number + 1, identity, content)
        self.number += 1

    def read(self) -> list[Saved]:
        """The whole ones, newest first; none when there never was one. Raises DataError when all are damaged."""
        found, errors = [], []
        for path in (self.directory / name for name in GENERATIONS):
            if path.exists():
                try:
                    found.append(read(path).verify())
                except DataError as error:
                    errors.append(error)
        if errors and not found:
            raise errors[0]
        found.sort(key=lambda saved: -saved.number)
        self.number = found[0].number if found else 0
        return found
