"""The parsers of foreign bytes answer with a result or with an error of ours; what fuzzing found is tried again."""

from __future__ import annotations

import importlib.util
import random
from pathlib import Path
from types import ModuleType

import pytest

from streamsvm.jobs.fit.driver import fit
from tests.fault.golden import fit_job, ingested

ROOT = Path(__file__).resolve().parents[2]
CORPUS = Path(__file__).parent / "corpus"
TRIALS = 60
"""Mutations of a good file, for each parser."""


def targets() -> ModuleType:
    spec = importlib.util.spec_from_file_location("fuzz_targets", ROOT / "tools" / "fuzz" / "targets.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


FUZZ = targets()
FOUND = sorted(p for p in CORPUS.rglob("*") if p.is_file()) if CORPUS.is_dir() else []


@pytest.mark.parametrize("path", FOUND, ids=lambda p: f"{p.parent.name}-{p.name}")
def test_fuzz_corpus_is_answered(path: Path) -> None:
    FUZZ.quietly(FUZZ.TARGETS[path.parent.name], path.read_bytes())


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """A file of each kind as it should be."""
    directory = tmp_path_factory.mktemp("good")
    store = ingested(directory)
    fit(fit_job(store, directory / "m", max_passes=1))
    from streamsvm.engine.checkpoint import write_checkpoint

    write_checkpoint(directory / "ckpt", 1, {"C": 1.0}, {"passes": 3, "rows": [1.5, None, ("a", 2)]})
    seeds = {name: found[0] for name, found in FUZZ.SEEDS.items()}
    return seeds | {
        "manifest": (store / "manifest.json").read_bytes(),
        "model": (directory / "m").read_bytes(),
        "checkpoint": (directory / "ckpt").read_bytes(),
    }


def mutated(raw: bytes, draw: random.Random) -> bytes:
    """A few cuts, copies and strange bytes."""
    data = bytearray(raw)
    for _ in range(draw.randrange(1, 5)):
        at = draw.randrange(len(data) + 1)
        match draw.randrange(5):
            case 0:
                data[at : at + draw.randrange(1, 9)] = b""
            case 1:
                data[at:at] = draw.randbytes(draw.randrange(1, 5))
            case 2:
                data[at:at] = draw.choice([b"\0", b"\n", b'"', b",,", b":", b"nan", b"\xff\xfe", b"9" * 40, b"[" * 99])
            case 3:
                data[at:at] = data[at : at + 30]
            case _:
                del data[at:]
    return bytes(data)


@pytest.mark.parametrize("name", FUZZ.TARGETS)
def test_fuzz_mutations_are_answered(name: str, good: dict[str, bytes]) -> None:
    draw, raw = random.Random(name), [good[name], *FUZZ.SEEDS[name]]
    for data in raw:
        FUZZ.quietly(FUZZ.TARGETS[name], data)
    for trial in range(TRIALS):
        data = mutated(raw[trial % len(raw)], draw)
        try:
            FUZZ.quietly(FUZZ.TARGETS[name], data)
        except Exception as error:
            raise AssertionError(f"{name}: {data!r}") from error
