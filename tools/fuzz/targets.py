"""Fuzz the parsers of foreign bytes: python tools/fuzz/targets.py TARGET [CORPUS...] [libFuzzer options].

Needs atheris (pip install atheris). Whatever the bytes, the answer is a result or a StreamSVMError; anything else is a
finding, to be put into tests/fault/corpus/TARGET, which the tests replay.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from streamsvm.errors import StreamSVMError

SCRATCH = Path(tempfile.mkdtemp(prefix="streamsvm-fuzz-"))


def _file(name: str, data: bytes) -> Path:
    path = SCRATCH / name
    path.write_bytes(data)
    return path


def _source(name: str, data: bytes, **options: str) -> None:
    from streamsvm.store.sources import SourceOptions, open_source

    source = open_source([_file(name, data)], SourceOptions(**options))
    for batch in source.batches():
        assert len(batch.labels) >= 0


def svmlight(data: bytes) -> None:
    """The svmlight parser."""
    _source("t.svm", data, format="svmlight")


def csv(data: bytes) -> None:
    """The CSV dialect, its schema and its rows."""
    _source("t.csv", data, format="csv", label="last")


def manifest(data: bytes) -> None:
    """The manifest of a store."""
    from streamsvm.store import manifest as manifests

    root = SCRATCH / "s.zarr"
    root.mkdir(exist_ok=True)
    (root / manifests.FILE).write_bytes(data)
    manifests.read(root)


def model(data: bytes) -> None:
    """A model file."""
    from streamsvm import model as models

    models.load(_file("m.ssvm", data))


def checkpoint(data: bytes) -> None:
    """A checkpoint file."""
    from streamsvm.jobs.checkpoint import read

    read(_file("ckpt-A", data)).content()


TARGETS: dict[str, Callable[[bytes], None]] = {
    "svmlight": svmlight,
    "csv": csv,
    "manifest": manifest,
    "model": model,
    "checkpoint": checkpoint,
}


def quietly(target: Callable[[bytes], None], data: bytes) -> None:
    """Run a target; its own errors are answers."""
    try:
        target(data)
    except StreamSVMError:
        return


def main() -> None:
    import atheris

    target = TARGETS[sys.argv.pop(1)]
    atheris.instrument_all()
    atheris.Setup(sys.argv, lambda data: quietly(target, data))
    atheris.Fuzz()


if __name__ == "__main__":
    main()
