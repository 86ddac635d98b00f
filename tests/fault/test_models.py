"""Models somebody has tampered with: refused in a second, whatever they hold, and nothing in them is executed."""

from __future__ import annotations

import json
import pickle
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamsvm import model as models
from streamsvm.errors import DataError, StreamSVMError
from streamsvm.jobs.fit.driver import fit
from streamsvm.store import open_store
from tests.axes import each_value
from tests.fault.golden import fit_job, ingested

MUTATIONS = 200
"""Of each of two models; the soak makes more."""


@pytest.fixture(scope="module")
def linear(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("models")
    fit(fit_job(ingested(directory), directory / "linear"))
    return directory / "linear"


@pytest.fixture(scope="module")
def kernel(linear: Path) -> Path:
    path = linear.with_name("kernel")
    nystrom = {"solver": "newton", "kernel": "rbf", "landmarks": 8, "embedding": "fly"}
    fit(fit_job(linear.with_name("s.zarr"), path, **nystrom))
    return path


def parts(raw: bytes) -> tuple[dict[str, Any], bytes]:
    length = int.from_bytes(raw[:8], "little")
    return json.loads(raw[8 : 8 + length]), raw[8 + length :]


def joined(table: dict[str, Any], body: bytes) -> bytes:
    text = json.dumps(table).encode()
    return len(text).to_bytes(8, "little") + text + body


def resealed(raw: bytes, change: Callable[[dict[str, Any], dict[str, Any]], None]) -> bytes:
    """A model whose header and arrays were changed by somebody who knows how to seal it."""
    from safetensors.numpy import load, save

    table, _ = parts(raw)
    header, tensors = json.loads(table["__metadata__"]["header"]), load(raw)
    change(header, tensors)
    text = json.dumps(header, sort_keys=True)
    return bytes(save(tensors, {"header": text, "sha256": models.hash_model(text, tensors)}))


def refused(path: Path) -> bool:
    """Whether it is refused, with an error of ours; False when it can be used."""
    try:
        models.load(path)
    except StreamSVMError as error:
        assert isinstance(error, DataError), error
        assert error.exit_code == 65
        return True
    return False


@pytest.mark.parametrize("kind", ["linear", "kernel"])
def test_tampered_model_mutated_bytes_are_refused(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    raw, draw = request.getfixturevalue(kind).read_bytes(), random.Random(4)
    path = tmp_path / "m"
    for trial in range(MUTATIONS):
        mutant = bytearray(raw)
        match trial % 5:
            case 0 | 1:
                bit = draw.randrange(8 * len(raw))
                mutant[bit // 8] ^= 1 << bit % 8
            case 2:
                del mutant[draw.randrange(len(raw)) :]
            case 3:
                at = draw.randrange(len(raw))
                mutant[at:at] = draw.randbytes(draw.randrange(1, 64))
            case _:
                at = draw.randrange(len(raw) - 8)
                mutant[at : at + 8] = draw.choice([b"\xff" * 8, bytes(8), (1 << 62).to_bytes(8, "little")])
        path.write_bytes(mutant)
        assert bytes(mutant) == raw or refused(path), f"trial {trial}"


def weights(values: Any) -> Callable[[Any, Any], None]:
    def change(_: Any, tensors: dict[str, Any]) -> None:
        tensors["weights"] = values(tensors["weights"])

    return change


def header(**values: Any) -> Callable[[Any, Any], None]:
    return lambda found, _: found.update(values)


def recorded(**values: Any) -> Callable[[Any, Any], None]:
    return lambda found, _: found["provenance"].update(values)


SEALED: dict[str, Callable[[dict[str, Any], dict[str, Any]], None]] = {
    "nan": weights(lambda w: w * np.nan),
    "infinite": weights(lambda w: w + np.inf),
    "no weights": lambda _, tensors: tensors.clear(),
    "float32": weights(lambda w: w.astype(np.float32)),
    "one dimension": weights(lambda w: w[0]),
    "empty": weights(lambda w: w[:, :0]),
    "three problems": weights(lambda w: np.repeat(w, 3, axis=0)),
    "no classes": header(classes=[]),
    "many classes": header(classes=["a"] * 7),
    "classes no list": header(classes="ab"),
    "format": header(format=999),
    "kind": header(kind="forest"),
    "kind no text": header(kind=[1]),
    "kernel without points": header(kind="kernel"),
    "kernel of nothing": header(kind="kernel", expansion={"kernel": "rbf"}),
    "files read in no way": recorded(encoding="csv"),
    "an offset beyond the columns": recorded(encoding={"offsets": [[10**6, 1.0]]}),
    "an offset that is no number": recorded(encoding={"offsets": [[0, "x"]]}),
    "names no list": recorded(names=7),
    "a name too many": recorded(names=["a"] * 1000),
    "certificates of nothing": recorded(certificates=[{}]),
    "settings no table": recorded(settings=[1]),
    "not a table": lambda found, _: found.clear(),
}


@each_value(("name", SEALED), ("kind", ["linear", "kernel"]))
def test_tampered_model_sealed_nonsense_is_refused(
    name: str, kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    raw = request.getfixturevalue(kind).read_bytes()
    if (name, kind) == ("kernel without points", "kernel"):
        pytest.skip("that is what it is")
    path = tmp_path / "m"
    path.write_bytes(resealed(raw, SEALED[name]))
    assert refused(path)


def shape(*dimensions: int) -> Callable[[dict[str, Any]], None]:
    return lambda table: table["weights"].update(shape=list(dimensions))


def offsets(*span: int) -> Callable[[dict[str, Any]], None]:
    return lambda table: table["weights"].update(data_offsets=list(span))


TABLES: dict[str, Callable[[dict[str, Any]], None]] = {
    "huge shape": shape(2**63),
    "shape that overflows": shape(2**32, 2**32),
    "negative shape": shape(-1, 8),
    "huge offsets": offsets(0, 2**62),
    "negative offsets": offsets(-8, 48),
    "offsets the wrong way": offsets(48, 0),
    "a hole": offsets(8, 56),
    "an overlap": lambda table: table.update(more=dict(table["weights"])),
    "unknown type": lambda table: table["weights"].update(dtype="PICKLE"),
    "header no text": lambda table: table.update(__metadata__={"header": 1}),
    "no metadata": lambda table: table.pop("__metadata__"),
    "deep": lambda table: table["__metadata__"].update(header="[" * 100_000),
    "long number": lambda table: table["__metadata__"].update(header='{"format": ' + "9" * 100_000 + "}"),
}


@pytest.mark.parametrize("name", TABLES)
def test_tampered_model_tables_that_lie_are_refused(name: str, linear: Path, tmp_path: Path) -> None:
    table, body = parts(linear.read_bytes())
    TABLES[name](table)
    path = tmp_path / "m"
    path.write_bytes(joined(table, body))
    assert refused(path)


class Canary:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> Any:
        return (Path.touch, (self._path,))


def test_tampered_model_pickle_is_not_opened(tmp_path: Path) -> None:
    canary, path = tmp_path / "canary", tmp_path / "m"
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        path.write_bytes(pickle.dumps(Canary(canary), protocol))
        assert refused(path)
    np.save(tmp_path / "m.npy", np.array([Canary(canary)], dtype=object), allow_pickle=True)
    assert refused(tmp_path / "m.npy")
    assert not canary.exists()


@pytest.mark.parametrize("where", ["attributes", "manifest.json", "unit"])
def test_tampered_model_pickles_in_a_store_are_not_opened(where: str, tmp_path: Path) -> None:
    store, canary = ingested(tmp_path), tmp_path / "canary"
    bait = pickle.dumps(Canary(canary))
    target = {"attributes": "X/zarr.json", "manifest.json": "manifest.json", "unit": "X/c.0.0"}[where]
    if where == "attributes":
        node = json.loads((store / target).read_text())
        node["codecs"] = [{"name": "numcodecs.pickle", "configuration": {"object": bait.hex()}}]
        (store / target).write_text(json.dumps(node))
        open_store(store)
    else:
        (store / target).write_bytes(bait)
        with pytest.raises(DataError):
            fit(fit_job(store, tmp_path / "m"))
    assert not canary.exists()
