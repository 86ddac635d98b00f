"""Fuzz the parsers of foreign bytes: python tools/fuzz/targets.py TARGET [CORPUS...] [libFuzzer options].

Needs atheris (pip install atheris). Whatever the bytes, the answer is a result or a StreamSVMError; anything else is a
finding, to be put into tests/fault/corpus/TARGET, which the tests replay. Without a CORPUS the search begins with what
is there and with the SEEDS here. What has a checksum is sealed after it was mutated: else nothing behind it is reached.
"""

from __future__ import annotations

import atexit
import importlib
import json
import pkgutil
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import streamsvm.compute
from streamsvm.errors import StreamSVMError

SCRATCH = Path(tempfile.mkdtemp(prefix="streamsvm-fuzz-"))
atexit.register(shutil.rmtree, SCRATCH, ignore_errors=True)
CORPUS = Path(__file__).resolve().parents[2] / "tests" / "fault" / "corpus"


def _file(name: str, data: bytes) -> Path:
    path = SCRATCH / name
    path.write_bytes(data)
    return path


def _source(name: str, data: bytes, **options: Any) -> None:
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


def detect(data: bytes) -> None:
    """Files of a format that is not said."""
    _source("t", data, label="last")


def npy(data: bytes) -> None:
    """The header of an array."""
    from streamsvm.store.sources import SourceOptions, open_source

    labels = _file("y.npy", SEEDS["npy"][1])
    for batch in open_source([_file("t.npy", data)], SourceOptions(format="npy", labels=labels)).batches():
        assert len(batch.labels) >= 0


def manifest(data: bytes) -> None:
    """The manifest of a store, and what is opened when it says so."""
    from streamsvm.store import open_store
    from streamsvm.store.format import manifest as manifests

    root = SCRATCH / "s.zarr"
    root.mkdir(exist_ok=True)
    for content in (data, manifests.encode_file(data)):
        (root / manifests.FILE).write_bytes(content)
        quietly(lambda _: open_store(root), data)


def zarr(data: bytes) -> None:
    """The metadata of an array somebody else wrote."""
    from streamsvm.store import open_store

    root = SCRATCH / "foreign.zarr"
    (root / "X").mkdir(parents=True, exist_ok=True)
    (root / "y").mkdir(exist_ok=True)
    (root / "zarr.json").write_bytes(b'{"zarr_format": 3, "node_type": "group", "attributes": {}}')
    (root / "X" / "zarr.json").write_bytes(data)
    (root / "y" / "zarr.json").write_bytes(data.replace(b"[4, 2]", b"[4]"))
    open_store(root)


def model(data: bytes) -> None:
    """A model file, as it is and as the header of a sealed one."""
    import numpy as np
    from safetensors.numpy import save

    from streamsvm import model as models

    quietly(lambda raw: models.load(_file("m.ssvm", raw)), data)
    tensors: dict[str, Any] = {"weights": np.ones((1, 4)), "points": np.ones((3, 2), np.float32)}
    header = data.decode("utf-8", "replace")
    models.load(_file("m.ssvm", save(tensors, {"header": header, "sha256": models.hash_model(header, tensors)})))


def checkpoint(data: bytes) -> None:
    """A checkpoint file."""
    from streamsvm.engine.checkpoint import read_checkpoint

    read_checkpoint(_file("ckpt-A", data)).read_content()


TARGETS: dict[str, Callable[[bytes], None]] = {
    "svmlight": svmlight,
    "csv": csv,
    "detect": detect,
    "npy": npy,
    "manifest": manifest,
    "zarr": zarr,
    "model": model,
    "checkpoint": checkpoint,
}


def _npy(text: str, values: bytes) -> bytes:
    header = text.encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + values


_CHUNK = {"rows": 2, "nonzeros": None, "counts": [1, 1], "crc": {"X": 1, "y": 2}}
_MANIFEST = {
    "format": 1, "store": "zarr", "kind": "dense", "columns": 3, "classes": ["a", "b"], "chunk_rows": 2,
    "chunks": [_CHUNK], "units": {"X": [1], "y": [2]}, "statistics": "", "digest": "", "uuid": "", "versions": {},
    "facts": {},
}  # fmt: skip
_ZARR = {
    "zarr_format": 3, "node_type": "array", "shape": [4, 2], "data_type": "float32", "attributes": {},
    "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [4, 2]}}, "fill_value": 0,
    "chunk_key_encoding": {"name": "default"}, "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
}  # fmt: skip
_EXPANSION = {"kernel": "rbf", "parameters": {"gamma": 0.5}, "columns": 2}
SEEDS: dict[str, list[bytes]] = {
    "svmlight": [b"1 1:0.5 3:2\n-1 2:1e-3 # c\n+1 1:4 2:5 3:6\n", b"1 qid:1 1:0x\n", b"-1\n1 7:-.5e+2\r\n"],
    "csv": [b"a,b,y\n1,2.5,p\n3,-4e2,q\n", b'a;"b;""";y\n1;2;x\n', b"\xef\xbb\xbfa\ty\n1\t2\n"],
    "detect": [b"1 1:2\n", b"a,y\n1,2\n", b"\x1f\x8b\x08\x00", b"PK\x03\x04", b"\x00\x00\x08\x02" + bytes(9)],
    "npy": [
        _npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", bytes(24)),
        _npy("{'descr': '|u1', 'fortran_order': False, 'shape': (2,), }", b"\0\1"),
    ],
    "manifest": [json.dumps(_MANIFEST).encode(), json.dumps(_MANIFEST | {"store": "hdf5", "kind": "csr"}).encode()],
    "zarr": [json.dumps(_ZARR).encode()],
    "model": [
        json.dumps({"format": 1, "kind": "linear", "classes": ["a", "b"], "provenance": {}}).encode(),
        json.dumps({"format": 1, "kind": "kernel", "classes": ["a", "b"], "expansion": _EXPANSION}).encode(),
    ],
    "checkpoint": [b""],
}


def quietly(target: Callable[[bytes], Any], data: bytes) -> None:
    """Run a target; its own errors are answers."""
    try:
        target(data)
    except StreamSVMError:
        return


def seeded(name: str) -> str:
    """A corpus to begin with: what was found before, and the seeds."""
    directory = SCRATCH / "corpus"
    directory.mkdir()
    found = [path.read_bytes() for path in sorted((CORPUS / name).glob("*"))]
    for k, data in enumerate([*found, *SEEDS[name]]):
        (directory / str(k)).write_bytes(data)
    return str(directory)


def main() -> None:
    import atheris

    name = sys.argv.pop(1)
    for module in pkgutil.iter_modules(streamsvm.compute.__path__, "streamsvm.compute."):
        importlib.import_module(module.name)  # before: instrumented it would not compile
    with atheris.instrument_imports(include=["streamsvm"]):  # now: what is imported later is not looked into
        for seed in SEEDS[name]:
            quietly(TARGETS[name], seed)
    sys.argv.append(seeded(name))  # after a corpus of the user's, which new finds go to
    atheris.Setup(sys.argv, lambda data: quietly(TARGETS[name], data))
    atheris.Fuzz()


if __name__ == "__main__":
    main()
