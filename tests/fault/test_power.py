"""Power cuts: what was not made durable may be lost, torn or there; no such state may look like a store that it is not.

The order of all durable steps of a job is noted with the bytes of each file. A crash is a prefix of it, in which every
name that was not synced with its directory and every byte that was not synced with its file is drawn at random from
what a disk may hold.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from streamsvm import durable
from streamsvm.errors import DataError, MissingError
from streamsvm.jobs.ingest.run import ingest
from streamsvm.jobs.inspect import verify
from streamsvm.store import open_store
from tests.fault.golden import ingest_job, write_table

CHOICES = 2
"""Crash states drawn of each prefix; the soak draws more."""


@dataclass
class File:
    """Its bytes as programs see them, and as the disk has them for certain."""

    current: bytes = b""
    synced: bytes | None = None

    def after_crash(self, draw: random.Random) -> bytes:
        if self.synced == self.current:
            return self.current
        torn = self.current[: draw.randrange(len(self.current) + 1)]
        return draw.choice([self.synced or b"", self.current, torn, bytes(len(self.current)), b""])


@dataclass
class Disk:
    """What is on disk for certain, and what may be; fed with the steps of ``durable``."""

    root: Path
    names: dict[Path, File] = field(default_factory=dict)
    durable: dict[Path, File] = field(default_factory=dict)

    def take(self, done: str, *paths: Path) -> None:
        path = paths[-1] if paths else self.root
        if done == "opened":
            known = self.names.get(path)
            if known is None:
                self.names[path] = known = File()
            known.current = path.read_bytes()
        elif done in ("half", "written", "resized", "written in place"):
            if path.is_file():
                self.names.setdefault(path, File()).current = path.read_bytes()
        elif done == "synced":
            self.names[path].synced = self.names[path].current = path.read_bytes()
        elif done == "renamed":
            self.names[path] = self.names.pop(paths[0])
        elif done == "exchanged":
            self.names = {_moved(name, *paths): file for name, file in self.names.items()}
        elif done == "directory synced":
            self._sync_directory(path)

    def _sync_directory(self, directory: Path) -> None:
        for name in [n for n in self.durable if n.parent == directory and n not in self.names]:
            del self.durable[name]
        for name in [n for n in self.durable if n not in self.names]:  # below a directory that changed names
            del self.durable[name]
        self.durable |= {n: f for n, f in self.names.items() if n.parent == directory}

    def crash(self, target: Path, draw: random.Random) -> None:
        """Build one state below ``target`` that a power cut may leave."""
        for name in sorted(self.names.keys() | self.durable.keys()):
            sure, now = self.durable.get(name), self.names.get(name)
            found = sure if sure is now else draw.choice([sure, now])
            if found is not None:
                path = target / name.relative_to(self.root)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(found.after_crash(draw))


def _moved(name: Path, one: Path, other: Path) -> Path:
    for here, there in ((one, other), (other, one)):
        if name.is_relative_to(here):
            return there / name.relative_to(here)
    return name


def lost(tmp_path: Path, choices: int = CHOICES) -> tuple[int, list[str]]:
    """Run an ingest, cut the power at every step; how many states that are, and those in which a store is not whole."""
    source = tmp_path / "source"
    source.mkdir()
    write_table(source, rows=400, columns=4)
    disk, findings, states = Disk(source), [], 0

    def observer(done: str, *paths: Path) -> None:
        nonlocal states
        disk.take(done, *paths)
        for k in range(choices):
            states += 1
            target = tmp_path / f"{states}"
            disk.crash(target, random.Random(1000 * states + k))
            finding = judged(target / "s.zarr")
            if finding:
                findings.append(f"after '{done}' of {paths[-1].name if paths else ''}: {finding}")
            elif states % 40 == 0:
                check_resume(source, target)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(durable, "observe", observer)
        ingest(ingest_job(source))
    assert states > 100
    return states, findings


def check_resume(source: Path, target: Path) -> None:
    """A job started on what is left ends with the reference's bytes, compared when that is known."""
    observe, durable.observe = durable.observe, None
    try:
        if not (target / "s.zarr" / "manifest.json").exists():
            target.mkdir(exist_ok=True)
            ingest(ingest_job(source, store=target / "s.zarr", overwrite=True))
            assert judged(target / "s.zarr") == ""
    finally:
        durable.observe = observe


def judged(store: Path) -> str:
    """What is wrong with the store a crash left: nothing when it is whole or refused."""
    try:
        open_store(store)
        bad = verify(store)["bad"]
    except (DataError, MissingError):
        return "" if not (store / "manifest.json").exists() else "a manifest that is there is not whole"
    return f"the manifest is whole, {bad[0]['message']}" if bad else ""


def test_power_cut_leaves_whole_stores_or_none(tmp_path: Path) -> None:
    assert lost(tmp_path)[1] == []
