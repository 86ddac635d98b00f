"""Fuzz what has a structure: python -m tools.fuzz.structures TARGET ... [--minutes M] [--seed S] [--trials N] [--counts FILE].

Bytes drawn at random are refused at the first look (``tools/fuzz/targets.py`` does that). Here something that is right is
changed in one or two places and sealed again, so that what is behind the seals is reached:

    job_file   steps with options of any value        options    one option of a fit at any value, and the fit
    manifest   of a store, which is then trained on   columns    tables of odd cells, read twice
    model      of a linear and of a kernel fit        dask       the same table as a file and as a data frame
    labels     columns of labels and weights         arrays     HDF5 and Zarr arrays of others, and their metadata
    model_text models as LIBLINEAR and LIBSVM write  report     what a run recorded, as a page
    tune       a search with settings of any value   arguments  the Python functions, with arguments of any type
    fits       every kind of problem, and the model      grids     a search of the same

Of several targets the one that has had the least time is next. A trial ends well, or with a ``StreamSVMError``; anything
else, a hang, and an answer that is not right is a finding, printed with its seed, by which its target finds it again. Exit
code 1 when there is one. FILE holds the trials, seconds and findings of each target so far, whenever the search is ended.
"""

from __future__ import annotations

import argparse
import collections
import copy
import dataclasses
import hashlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import click
import h5py
import numpy as np
import zarr
from safetensors import safe_open
from safetensors.numpy import save

import streamsvm as sv
from streamsvm import model as models
from streamsvm.cli.commands import build_job, get_command
from streamsvm.config.command_table import STEPS
from streamsvm.config.job_files import make_jobs, read_job_file
from streamsvm.config.options import Field
from streamsvm.errors import StreamSVMError
from streamsvm.jobs.fit.driver import fit
from streamsvm.jobs.fit.files import fit_files
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.inspect import info
from streamsvm.rows import CSR, Dense
from streamsvm.store import create, open_store, read_chunk
from streamsvm.store.format import manifest as manifests
from streamsvm.types import silent
from tools.fuzz import tables

Trial = Callable[[random.Random], str]
"""One trial: returns in a word what became of it, raises AssertionError for what is wrong."""


class Hang(AssertionError):
    """A trial that took too long."""


# -- values nobody expects ---------------------------------------------------------------------------------------------

NUMBERS = (0, 1, -1, 2, 3, 255, 256, 1 << 31, (1 << 31) - 1, 1 << 53, 1 << 63, 1 << 64, 0.5, -0.0, 1e-300, 1e300, 1e39)
TEXTS = (
    "",
    " ",
    "nan",
    "inf",
    "-inf",
    "1e400",
    "\x00",
    "é",
    "a" * 5000,
    "..",
    "/",
    "%s",
    "{}",
    "\ud800",
    "0x10",
    "1_0",
)
VALUES: tuple[Any, ...] = (None, True, False, *NUMBERS, *TEXTS, [], {}, [[]], [None], {"": None}, float("nan"))


def value(draw: random.Random) -> Any:
    """Any value there can be in JSON, nested deeply now and then."""
    if draw.random() < 0.02:
        found: Any = 1
        for _ in range(draw.choice((10, 400))):
            found = [found]
        return found
    return copy.deepcopy(draw.choice(VALUES))


def changed(plain: Any, draw: random.Random) -> Any:
    """A copy with one place changed: replaced, removed, doubled, moved by one, exchanged with its neighbor."""
    found = [copy.deepcopy(plain)]
    places = list(_places(found))
    holder, key = draw.choice(places[1:] or places)
    old, way = holder[key], draw.randrange(6)
    if way == 0 and holder is not found:
        del holder[key]
    elif way == 1 and isinstance(old, int | float):
        holder[key] = old + draw.choice((-1, 1))
    elif way == 2 and isinstance(holder, list) and holder is not found:
        holder.insert(key, copy.deepcopy(old))
    elif way == 3 and isinstance(holder, list) and len(holder) > 1:
        other = draw.randrange(len(holder))
        holder[key], holder[other] = holder[other], holder[key]
    elif way == 4 and isinstance(old, str) and old:
        at = draw.randrange(len(old))
        holder[key] = old[:at] + draw.choice(("", "\x00", "9", "a", "é")) + old[at + 1 :]
    else:
        holder[key] = value(draw)
    return found[0]


def _places(holder: Any) -> Any:
    for key in list(holder) if isinstance(holder, dict) else range(len(holder)):
        yield holder, key
        if isinstance(holder[key], dict | list):
            yield from _places(holder[key])


# -- stores and models -------------------------------------------------------------------------------------------------

ROWS, COLUMNS = 60, 3


def small_store(path: Path, *, sparse: bool) -> str:
    """Two classes that overlap, in a few chunks."""
    X = np.random.default_rng(0).normal(size=(ROWS, COLUMNS)).astype(np.float32)
    writer = create(path, sparse=sparse, chunk_bytes=512)
    whole = CSR(X.ravel(), np.tile(np.arange(COLUMNS, dtype=np.int32), ROWS), np.arange(ROWS + 1) * COLUMNS)
    writer.append(whole if sparse else Dense(X), (X[:, 0] + 0.7 * X[:, 1] > 0).astype(np.int32), None)
    writer.commit(("0", "1"), COLUMNS, {"names": ["a", "b", "c"]})
    return str(path)


def manifest(scratch: Path) -> Trial:
    """The manifest of a store, changed and sealed again; then all is read, told and trained on."""
    stores = [Path(small_store(scratch / name, sparse="s" in name)) for name in ("d.zarr", "s.zarr", "d.h5", "s.h5")]
    bodies = [json.loads((store / manifests.FILE).read_text())["manifest"] for store in stores]
    copy = scratch / "copy"

    def trial(draw: random.Random) -> str:
        number = draw.randrange(len(stores))
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(stores[number], copy)
        body = changed(bodies[number], draw)
        body = changed(body, draw) if draw.random() < 0.3 else body
        raw = json.dumps(body, separators=(",", ":")).encode()
        (copy / manifests.FILE).write_bytes(manifests.encode_file(raw))
        store = open_store(copy)
        buffers = store.buffers()
        for chunk in range(len(store.layout.chunks)):
            read_chunk(store, chunk, buffers)
        store.statistics()
        info(copy)
        fit(FitJob(str(copy), str(scratch / "m"), max_passes=2, memory=400 << 20, overwrite=True))
        return "read and trained on"

    return trial


def model(scratch: Path) -> Trial:
    """The header of a model, changed and sealed again; then it is loaded, told and asked."""
    store = small_store(scratch / "s.zarr", sparse=False)
    fit(FitJob(store, str(scratch / "linear")))
    fit(FitJob(store, str(scratch / "nystrom"), kernel="rbf", landmarks=5, standardize=True))
    fit(FitJob(store, str(scratch / "kernel"), kernel="polynomial", kernel_options={"degree": 2.0}))
    made = [_taken_apart(scratch / name) for name in ("linear", "nystrom", "kernel")]
    rows = Dense(np.ones((4, COLUMNS), np.float32))

    def trial(draw: random.Random) -> str:
        header, tensors = draw.choice(made)
        text = json.dumps(changed(header, draw), sort_keys=True)
        if draw.random() < 0.3:
            name = draw.choice(list(tensors))
            tensors = {**tensors, name: _harmed(tensors[name], draw)}
        path = scratch / "changed"
        path.write_bytes(save(tensors, {"header": text, "sha256": models.hash_model(text, tensors)}))
        found = models.load(path)
        info(path)
        if found.columns == COLUMNS:
            decision = found.decision(rows)
            assert len(decision) == 4
            found.codes(decision)
        return "loaded"

    return trial


def _taken_apart(path: Path) -> tuple[Any, dict[str, Any]]:
    with safe_open(str(path), framework="np") as file:
        return json.loads(file.metadata()["header"]), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


def _harmed(array: Any, draw: random.Random) -> Any:
    """Another shape, another type, or numbers that are none."""
    ways = (
        lambda: array[:0],
        array.ravel,
        lambda: array.astype(np.float16 if array.dtype.kind == "f" else np.int8),
        lambda: np.full_like(array, np.nan) if array.dtype.kind == "f" else array - 1000,
        array[..., :1].copy,
    )
    return np.ascontiguousarray(draw.choice(ways)())


# -- what other programs hand over -------------------------------------------------------------------------------------

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
    form: Any
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
        given = {field.key: _grid(draw) for field in draw.sample(fields, draw.randint(1, 3))}
        sv.tune(store, scratch / "out", **({"max_passes": 2, "overwrite": True} | given))
        return "searched"

    return trial


def _grid(draw: random.Random) -> Any:
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


# -- job files and options ---------------------------------------------------------------------------------------------

QUIET = ("cluster", "insecure_network", "resume", "store", "model", "dual", "warm_start", "landmark_file", "validation")
"""Options that name other things; what they may name is the matter of other targets."""
FITTED_BY = ("dcd", "newton", "sgd", "pegasos", "assg", "decomposition", "fw", "blended", "auto")


def toml(plain: Any) -> str:
    """A value as TOML; what TOML has no words for as text."""
    if isinstance(plain, bool):
        return str(plain).lower()
    if isinstance(plain, int | float):
        return repr(plain)
    if isinstance(plain, list):
        return "[" + ", ".join(map(toml, plain)) + "]"
    if isinstance(plain, dict):
        return "{" + ", ".join(f"{toml(str(key))} = {toml(item)}" for key, item in plain.items()) + "}"
    text = str(plain).encode("utf-8", "replace").decode()
    return '"' + "".join(c if c.isprintable() and c not in '"\\' else f"\\u{ord(c):04x}" for c in text) + '"'


def job_file(scratch: Path) -> Trial:
    """Steps that are nearly right, with any value of any option; checked as ``run`` checks them, and not executed."""
    path = scratch / "job.toml"

    def trial(draw: random.Random) -> str:
        lines = []
        for _ in range(draw.randint(1, 3)):
            name = draw.choice(list(STEPS))
            step = STEPS[name]
            lines.append(f"[[{name}]]" if draw.random() < 0.3 else f"[{name}]")
            chosen = [f for f in step.fields if f.name in step.positional or draw.random() < 0.1]
            lines += [f"{field.key} = {toml(_likely(field, draw))}" for field in chosen]
        text = "\n".join(lines)
        if draw.random() < 0.1:
            at = draw.randrange(len(text))
            text = text[:at] + draw.choice(("", "=", "[", "]", '"', "\n", "\x00")) + text[at + 1 :]
        path.write_text(text, encoding="utf-8")
        make_jobs(read_job_file(path), str(path))
        return "taken"

    return trial


def _likely(field: Field, draw: random.Random) -> Any:
    """Half the time a value of the field's own kind."""
    if draw.random() < 0.5:
        choices = field.choices()
        likely = [*choices, "x.zarr", "1GiB", "90s", 1, 0.1, True, ["a", "b"], {"a": 1.0}]
        return draw.choice(likely)
    return value(draw)


def options(scratch: Path) -> Trial:
    """A fit with some options of any value, as typed: what is not refused ends with a certificate of numbers."""
    stores = [small_store(scratch / "dense.zarr", sparse=False), small_store(scratch / "csr.zarr", sparse=True)]
    fields = [field for field in STEPS["fit"].fields if field.name not in QUIET and not field.option.settings_of]

    def trial(draw: random.Random) -> str:
        words = []
        for field in draw.sample(fields, draw.randint(1, 3)):
            typed = draw.choice([*field.choices(), *map(str, NUMBERS), *TEXTS, "1KiB", "1s", "balanced", "1=2,0=1e-9"])
            words += [f"--no-{field.flag[2:]}"] if field.is_switch else [field.flag, typed]
        words += ["--solver", draw.choice(FITTED_BY)] if draw.random() < 0.5 else []
        words += ["--overwrite", "--max-passes", "3", draw.choice(stores), str(scratch / "m.ssvm")]
        try:
            with get_command("fit").make_context("fit", words) as context:
                found = dict(context.params)
        except (click.ClickException, ValueError):  # surrogates never come through a command line
            return "refused by the command line"
        for more in ("as_json", "config", "dry_run"):
            found.pop(more, None)
        result = fit_files(build_job("fit", found, None, found.pop("settings", ())), silent)
        for run in result.training.runs:
            certificate = run.certificate
            assert certificate is not None, words
            assert np.isfinite([certificate.primal, certificate.dual, certificate.gap]).all(), (words, certificate)
            assert certificate.gap >= -1e-6, (words, certificate)
        assert np.isfinite(result.model.weights).all(), words
        return f"fitted, {result.training.status.value}"

    return _repeating(trial)


def _repeating(trial: Trial) -> Trial:
    """A trial whose own errors say which options they are of."""

    def shown(draw: random.Random) -> str:
        try:
            return trial(draw)
        except StreamSVMError:
            raise
        except Exception as error:
            error.add_note("options")
            raise

    return shown


# -- every kind of problem ---------------------------------------------------------------------------------------------

LOSSES = ("hinge", "squared_hinge", "huber", "logistic")
OF_NUMBERS = ("epsilon_insensitive", "squared_epsilon_insensitive", "squared", "pinball")
SOLVERS = (
    "dcd",
    "newton",
    "sgd",
    "sgd_qn",
    "pegasos",
    "assg",
    "active_set",
    "interior_point",
    "cutting_plane",
    "mpu",
    "lbfgs",
)
OF_KERNELS = ("decomposition", "kernel_active_set", "fw", "mfw", "swap", "partan", "blended", "newton", "dcd")
KERNELS = ("rbf", "laplacian", "polynomial", "sigmoid", "linear")
AGAIN = 0.25
"""Of the fits so many are made once more, with other threads."""


def fits(scratch: Path) -> Trial:
    """Ingest a table, fit a model, judge by it and predict."""
    store, model, again = (scratch / name for name in ("s.zarr", "m.ssvm", "again.ssvm"))

    def trial(draw: random.Random) -> str:
        kind = draw.choice(("two", "several", "numbers", "one"))
        rows = _stored(store, kind, draw)
        asked = _settings(kind, draw)
        found = sv.fit(str(store), str(model), overwrite=True, **asked)
        for run in found.training.runs:
            certificate = run.certificate
            assert np.isfinite([certificate.primal, certificate.dual]).all(), (asked, certificate)
            assert certificate.gap >= -1e-6, (asked, certificate)
        assert np.isfinite(found.model.weights).all(), asked
        if kind != "one":
            sv.evaluate(str(model), str(store))
        predictions = scratch / "p.csv"
        sv.predict(str(model), str(store), str(predictions), overwrite=True)
        said = predictions.read_text().lower().splitlines()
        assert len(said) == rows + 1, asked
        assert not any("nan" in line or "inf" in line for line in said[1:]), asked
        if draw.random() < AGAIN:
            sv.fit(str(store), str(again), overwrite=True, **asked | {"threads": 3, "prefetch": 1})
            assert _hash(again) == _hash(model), f"other bytes with other threads: {asked}"
        return f"{kind}, {found.training.status.value}"

    return trial


def grids(scratch: Path) -> Trial:
    """Search a small grid of the same settings, fold by fold."""
    store, folder = scratch / "s.zarr", scratch / "out"

    def trial(draw: random.Random) -> str:
        kind = draw.choice(("two", "several", "numbers"))
        _stored(store, kind, draw)
        asked = _settings(kind, draw)
        if "nu" not in asked:
            asked["C"] = sorted({draw.choice((0.01, 0.3, 1.0, 20.0)) for _ in range(2)})
        found = sv.tune(str(store), str(folder), folds=draw.choice((2, 3)), overwrite=True, **asked)
        assert np.isfinite(found.best.error), asked
        return f"{kind}, searched"

    return trial


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _stored(store: Path, kind: str, draw: random.Random) -> int:
    """Write a table of a kind to a store, and return its rows."""
    shutil.rmtree(store, ignore_errors=True)
    numbers = np.random.default_rng(draw.randrange(1 << 30))
    rows, columns = draw.choice((2, 7, 40, 90)), draw.choice((1, 2, 5, 30))
    X = numbers.normal(size=(rows, columns)).astype(np.float32)
    plain = X @ numbers.normal(size=columns) + 0.3 * numbers.normal(size=rows)
    y: Any = plain
    if kind != "numbers":
        classes = 2 if kind in ("two", "one") else draw.choice((3, 5))
        y = np.clip((np.argsort(np.argsort(plain)) * classes) // rows, 0, classes - 1)
    _bent(X, draw)
    options: dict[str, Any] = {"task": "regression"} if kind == "numbers" else {}
    if draw.random() < 0.3:
        options["weight"] = numbers.integers(0, 3, rows).astype(float) + (0.0 if draw.random() < 0.3 else 0.5)
    sv.ingest(X, str(store), y=y, chunk=draw.choice((4096, 8192, 1 << 20)), **options)
    return rows


def _bent(X: np.ndarray, draw: random.Random) -> None:
    """Give a table what tables have: a constant column, columns of other sizes or far from 0, empty and equal rows."""
    if draw.random() < 0.2:
        X[:, 0] = draw.choice((0.0, 1.0, -1e4))
    if draw.random() < 0.2:
        X[:, -1] *= draw.choice((1e-6, 1e4, 1e9))
    if draw.random() < 0.1:
        X += draw.choice((10.0, 1e4))
    if draw.random() < 0.2:
        X[: len(X) // 2] = draw.choice((0.0, 1.0))
    if draw.random() < 0.2:
        X[np.abs(X) < 1.0] = 0.0


def _settings(kind: str, draw: random.Random) -> dict[str, Any]:
    """Settings that go together, most of the time."""
    asked: dict[str, Any] = {"max_passes": draw.choice((1, 3, 20)), "tolerance": draw.choice((1e-1, 1e-3, 1e-6))}
    asked["C"] = draw.choice((1e-6, 0.1, 1.0, 30.0, 1e6))
    asked["loss"] = draw.choice(OF_NUMBERS if kind == "numbers" else LOSSES)
    if draw.random() < 0.5:
        asked["kernel"] = draw.choice(KERNELS)
        asked |= {"landmarks": draw.choice((1, 5, 200))} if draw.random() < 0.5 else {}
    exact = "kernel" in asked and "landmarks" not in asked
    if draw.random() < 0.5:
        asked["solver"] = draw.choice(OF_KERNELS if exact else SOLVERS)
    more: list[dict[str, Any]] = [
        {"l1": draw.choice((1e-6, 0.1, 3.0, 1e6))},
        {"bias": draw.choice((0.0, 1.0, 100.0))},
        {"standardize": True},
    ]
    of_kind: dict[str, list[dict[str, Any]]] = {
        "two": [
            {"nu": draw.choice((0.01, 0.3, 0.9, 1.0)), "loss": "hinge"},
            {"calibrate": "sigmoid"},
            {"class_weight": "balanced"},
        ],
        "several": [{"multi_class": draw.choice(("ovr", "ovo", "crammer_singer"))}] * 3
        + [{"class_weight": "balanced"}],
        "numbers": [{"l1_ball": draw.choice((1e-3, 1.0, 1e3)), "loss": "squared"}, {"loss": "squared"}],
        "one": [],
    }
    for settings in draw.sample(more + of_kind[kind], draw.randint(0, 2)):
        asked |= settings
    if kind == "one":
        asked |= {"one_class": True} | ({"nu": draw.choice((0.01, 0.5, 1.0))} if draw.random() < 0.8 else {})
    if "nu" in asked or "l1_ball" in asked:
        del asked["C"]
    return asked


# -- the search --------------------------------------------------------------------------------------------------------

TARGETS: dict[str, Callable[[Path], Trial]] = {
    "job_file": job_file,
    "options": options,
    "manifest": manifest,
    "model": model,
    "columns": tables.columns,
    "dask": tables.frames,
    "labels": tables.labels,
    "arrays": arrays,
    "model_text": model_text,
    "report": report,
    "tune": tune,
    "arguments": arguments,
    "fits": fits,
    "grids": grids,
}
HANG_SECONDS = 2000


@dataclasses.dataclass
class Tally:
    """What became of the trials of a target, by word, and what they took."""

    words: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    seconds: float = 0.0
    cpu: float = 0.0
    """Seconds of this process and of those it has begun."""

    def line(self) -> dict[str, Any]:
        """The tally as plain data."""
        found = sum(count for word, count in self.words.items() if word.startswith("FOUND"))
        spent = {"hours": round(self.seconds / 3600, 4), "cpu_hours": round(self.cpu / 3600, 4)}
        return {"trials": self.words.total(), "found": found, **spent, "words": dict(self.words.most_common())}


def _hang(*_: Any) -> None:
    raise Hang(f"more than {HANG_SECONDS} s")


def outcome(trial: Trial, draw: random.Random) -> str:
    """What became of a trial in a word; 'FOUND ...' for what should not have been."""
    signal.signal(signal.SIGALRM, _hang)
    signal.alarm(HANG_SECONDS)
    try:
        return trial(draw)
    except StreamSVMError as error:
        if error.exit_code in (1, 70):
            return f"FOUND {error}"
        return error.code
    except Exception as error:  # noqa: BLE001  whatever it is
        return f"FOUND {type(error).__name__}: {str(error)[:300]}\n{''.join(traceback.format_tb(error.__traceback__)[-3:])}"
    finally:
        signal.alarm(0)


def main() -> None:
    parser = argparse.ArgumentParser(description="Fuzz what has a structure.")
    parser.add_argument("target", choices=TARGETS, nargs="+")
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--trials", type=int, default=10**9)
    parser.add_argument("--counts", type=Path, default=Path(os.devnull))
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory(prefix="streamsvm-fuzz-") as scratch:
        tallies = _searched(asked, Path(scratch))
    for target, tally in tallies.items():
        print(f"{target}: {tally.words.total()} trials from seed {asked.seed}")
        for word, count in tally.words.most_common():
            print(f"  {count:7d} {word}")
    sys.exit(any(tally.line()["found"] for tally in tallies.values()))


def _searched(asked: argparse.Namespace, scratch: Path) -> dict[str, Tally]:
    """What became of the trials of each target; findings are printed as they are made."""
    counts = asked.counts.absolute()
    trials = {target: _begin(target, scratch / target) for target in asked.target}
    tallies = {target: Tally() for target in trials}
    due, until = 0.0, time.monotonic() + 60.0 * asked.minutes
    for number in range(asked.seed, asked.seed + asked.trials):
        if time.monotonic() > until:
            break
        target = min(tallies, key=lambda name: tallies[name].seconds)
        os.chdir(scratch / target)
        _timed(tallies[target], target, number, trials[target])
        if time.monotonic() > due:
            _written(tallies, counts)
            due = time.monotonic() + 5.0
    _written(tallies, counts)
    return tallies


def _written(tallies: dict[str, Tally], counts: Path) -> None:
    counts.write_text(json.dumps({name: tally.line() for name, tally in tallies.items()}, indent=1))


def _timed(tally: Tally, target: str, number: int, trial: Trial) -> None:
    """One trial more in a tally."""
    began, cpu = time.monotonic(), sum(os.times()[:4])
    found = outcome(trial, random.Random(number))
    tally.seconds += time.monotonic() - began
    tally.cpu += sum(os.times()[:4]) - cpu
    tally.words[found.split("\n")[0][:60]] += 1
    if found.startswith("FOUND"):
        print(f"{target}, seed {number}: {found}", flush=True)


def _begin(target: str, place: Path) -> Trial:
    """What a trial of a target does, once what it needs is there."""
    place.mkdir()
    os.chdir(place)
    return TARGETS[target](place)


if __name__ == "__main__":
    main()
