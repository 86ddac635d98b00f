"""Artefacts of an earlier commit: how they are packed, and what they are compared by. Nothing here knows the package."""

from __future__ import annotations

import hashlib
import platform
import tarfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent / "artefacts"
EXPECTED, STORES = "expected.json", "finished"
"""In each folder: what is known of the artefacts, and the archive of all that was finished."""
SOURCE_TIME = 1_700_000_000
"""When the sources of stores were last changed, as far as the journal of an interrupted ingest is concerned."""


def pack(directory: Path, archive: Path) -> None:
    """Everything below a directory in one archive, the same bytes for the same files."""

    def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        entry.mtime = SOURCE_TIME
        return entry

    archive.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive, "w:xz", preset=9) as out:
        for path in sorted(directory.iterdir()):
            out.add(path, path.name, filter=plain)


def unpack(archive: Path, directory: Path) -> None:
    """The files of an archive, with the times they were packed with."""
    with tarfile.open(archive) as packed:
        packed.extractall(directory, filter="data")


def machine() -> dict[str, str]:
    """What decides the last bits of a result beside our own code."""
    with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
        models = [line.partition(":")[2].strip() for line in file if line.startswith(("model name", "CPU part"))]
    packages = {name: version(name) for name in ("numpy", "scipy", "numba", "llvmlite")}
    return {"processor": models[0] if models else platform.machine(), **packages}


def arrays_of(model: Path) -> dict[str, Any]:
    """The tensors of a model, by name."""
    from safetensors.numpy import load

    return load(model.read_bytes())


def digest_of(root: Path) -> str:
    """sha256 over the names and bytes of every file below a directory, those apart that a killed writer left."""
    digest = hashlib.sha256()
    for path in sorted(p for p in root.rglob("*") if p.is_file() and not p.name.endswith(".partial")):
        digest.update(f"{path.relative_to(root)}\0{path.stat().st_size}\0".encode() + path.read_bytes())
    return digest.hexdigest()
