"""What other programs and people hand over: arrays, texts of models, recorded runs, arguments of the Python functions."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import h5py
import numpy as np
import zarr

import streamsvm as sv
from streamsvm import model as models
from streamsvm.config.job_file import STEPS
from streamsvm.jobs.inspect import info
from streamsvm.rows import Dense
from tools.fuzz.artifacts import COLUMNS, small_store
from tools.fuzz.mutations import NUMBERS, TEXTS, VALUES, changed, value
from tools.fuzz.structures import Trial

TOKENS = (
    *map(str, NUMBERS),
    *TEXTS,
    "nan",
    "-",
    "1:",
    ":1",
    "3:0.5",
    "SV",
    "w",
    "rbf",
    "\t",
    "1e400",
    "0x1",
    "label",
    "\n",
)
TYPES = ("f8", "f4", "f2", "i8", "u8", "i1", "u1", "?", "S3", "c8", ">f4", "<i2")


def arrays(scratch: Path) -> Trial:
    """An HDF5 file or a Zarr group of any types and shapes, its metadata changed now and then; read in place, trained on."""

    def trial(draw: random.Random) -> str:
        path = scratch / draw.choice(("f.h5", "f.zarr"))
        for old in (scratch / "f.h5", scratch / "f.zarr"):
            shutil.rmtree(old, ignore_errors=True) if old.is_dir() else old.unlink(missing_ok=True)
        rows = draw.choice((0, 1, 7, 40))
        with h5py.File(path, "w") if path.suffix == ".h5" else _Group(path) as group:
            for name, right in (("X", (rows, COLUMNS)), ("y", (rows,))):
                wrong: tuple[int, ...] = draw.choice(((), (rows,), (rows, 1), (rows, 2, 2), (rows + 1, 3)))
                group[name] = _numbers(draw, right if draw.random() < 0.8 else wrong)
        if path.suffix == ".zarr" and draw.random() < 0.5:
            metadata = path / draw.choice(("X", "y")) / "zarr.json"
            metadata.write_text(json.dumps(changed(json.loads(metadata.read_text()), draw)))
        info(path)
        sv.fit(path, scratch / "m", max_passes=2, memory="400MiB", overwrite=True)
        return "trained on"

    return trial


class _Group(dict[str, Any]):
    """Arrays by name, which become a Zarr group when they are all there."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *outcome: object) -> None:
        root = zarr.open_group(self._path, mode="w")
        for name, array in self.items():
            root.create_array(name, data=array, chunks=tuple(max(1, n) for n in array.shape))


def _numbers(draw: random.Random, shape: tuple[int, ...]) -> Any:
    rng = np.random.default_rng(draw.randrange(1 << 30))
    kind = draw.choice(TYPES) if draw.random() < 0.5 else "f4"
    with np.errstate(all="ignore"):
        found = np.asarray(rng.integers(0, 2, shape) if draw.random() < 0.5 else rng.normal(size=shape)).astype(kind)
    if found.dtype.kind == "f" and found.size and draw.random() < 0.1:
        found.flat[0] = draw.choice((np.nan, np.inf, -np.inf))
    return found


def model_text(scratch: Path) -> Trial:
    """A model as LIBLINEAR or LIBSVM write it, with a word or a line changed; loaded, asked, and written out again."""
    store = small_store(scratch / "s.zarr", sparse=True)
    sv.fit(store, scratch / "linear")
    sv.fit(store, scratch / "kernel", kernel="rbf", solver="decomposition")
    texts = []
    for name, form in (("linear", "liblinear"), ("linear", "libsvm"), ("kernel", "libsvm")):
        sv.export(scratch / name, scratch / form, format=form, overwrite=True)
        texts.append((scratch / form).read_text())
    rows = Dense(np.ones((4, COLUMNS), np.float32))

    def trial(draw: random.Random) -> str:
        words = draw.choice(texts).split(" ")
        for _ in range(draw.randint(1, 2)):
            at = draw.randrange(max(1, len(words)))
            draw.choice(_WAYS)(words, at, draw.choice(TOKENS))
        (scratch / "t").write_text(" ".join(words), encoding="utf-8", errors="replace")
        found = models.load(scratch / "t")
        if found.columns == COLUMNS:
            assert np.isfinite(found.decision(rows)).all()
        sv.export(scratch / "t", scratch / "again", format="streamsvm", overwrite=True)
        assert (models.load(scratch / "again").weights == found.weights).all()
        return "loaded"

    return trial


_WAYS: tuple[Callable[[list[str], int, str], None], ...] = (
    lambda words, at, token: words.__setitem__(slice(at, at + 1), [token]),
    lambda words, at, token: words.insert(at, token),
    lambda words, at, token: words.__delitem__(slice(at, at + 1)),
    lambda words, at, token: words.__setitem__(slice(at, at + 1), [f"{''.join(words[at : at + 1])}{token}"]),
    lambda words, at, token: words.__delitem__(slice(at, None)),
)


def report(scratch: Path) -> Trial:
    """What a run has recorded, a value or a line changed; then its page is drawn."""
    store = small_store(scratch / "s.zarr", sparse=False)
    sv.fit(store, scratch / "m", report=scratch / "first.html")
    run = scratch / "m.run"
    files = [path for path in run.iterdir() if path.suffix in (".json", ".jsonl")]
    whole = {path: path.read_bytes() for path in files}

    def trial(draw: random.Random) -> str:
        for path, raw in whole.items():
            path.write_bytes(raw)
        path = draw.choice(files)
        parts = whole[path].decode().splitlines() if path.suffix == ".jsonl" else [whole[path].decode()]
        at = draw.randrange(len(parts))
        parts[at] = json.dumps(changed(json.loads(parts[at]), draw)) if draw.random() < 0.9 else draw.choice(TOKENS)
        path.write_text("\n".join(parts) + "\n", encoding="utf-8", errors="replace")
        sv.report(str(scratch / "m"), out=scratch / "p.html", overwrite=True)
        page = (scratch / "p.html").read_text()
        assert page.rstrip().endswith("</html>")
        assert "<script" not in page
        return "drawn"

    return trial


def tune(scratch: Path) -> Trial:
    """A search with some of its settings of any value, as typed."""
    store = small_store(scratch / "s.zarr", sparse=False)
    fields = [
        field
        for field in STEPS["tune"].fields
        if field.name in ("C", "gamma", "landmarks", "folds", "tolerance", "loss")
    ]

    def trial(draw: random.Random) -> str:
        given = {field.key: _settings(draw) for field in draw.sample(fields, draw.randint(1, 3))}
        sv.tune(store, scratch / "out", **({"max_passes": 2, "overwrite": True} | given))
        return "searched"

    return trial


def _settings(draw: random.Random) -> Any:
    return draw.choice(
        (value(draw), [draw.choice((0.1, 1, 3.0, "scale", 2)) for _ in range(draw.randint(0, 3))], 2, "hinge")
    )


def arguments(scratch: Path) -> Trial:
    """The functions of the package with arguments of any type: an error of ours, a TypeError of the call, or an answer."""
    store = small_store(scratch / "s.zarr", sparse=False)
    sv.fit(store, scratch / "m")
    calls: dict[str, dict[str, Any]] = {
        "fit": {"store": store, "model": str(scratch / "n"), "overwrite": True, "max_passes": 2},
        "predict": {"model": str(scratch / "m"), "sources": [store], "out": str(scratch / "p.csv"), "overwrite": True},
        "evaluate": {"model": str(scratch / "m"), "sources": [store]},
        "embed": {"store": store, "out": str(scratch / "e"), "kernel": "rbf", "landmarks": 3, "overwrite": True},
    }

    def trial(draw: random.Random) -> str:
        name = draw.choice(list(calls))
        fields = [field.key for field in STEPS[name].fields if field.key not in ("cluster", "resume")]
        given = calls[name] | {draw.choice(fields): _odd(draw) for _ in range(draw.randint(1, 2))}
        try:
            getattr(sv, name)(**given)
        except TypeError as error:
            if not str(error).startswith(f"{name}() "):
                raise
            return "no such argument"
        return f"{name} answered"

    return trial


def _odd(draw: random.Random) -> Any:
    more = (
        np.float32(0.5),
        np.int64(3),
        np.array([1.0, 2.0]),
        b"x",
        (),
        object(),
        Path("x"),
        {1: 2},
        {"a"},
        1j,
        range(3),
    )
    return draw.choice((*VALUES, *more))
