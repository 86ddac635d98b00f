"""Fits of every kind of problem, with settings that belong to it, on small tables of every look: an answer that holds, or a refusal.

``requests`` puts any value in any option, and most of that is refused. Here the settings go together, so that what is behind the
checks is reached: two classes, several, numbers to predict and one class; exact kernels, landmarks and none; the terms beside
||w||^2 / 2. What was fitted is read again, judges and predicts its rows, and fitted with other threads it has the same bytes.
"""

from __future__ import annotations

import hashlib
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np

import streamsvm as sv
from tools.fuzz.structures import Trial

LOSSES = ("hinge", "squared_hinge", "huber", "logistic")
OF_NUMBERS = ("epsilon_insensitive", "squared_epsilon_insensitive", "squared", "pinball")
SOLVERS = ("dcd", "newton", "sgd", "sgd_qn", "pegasos", "assg", "active_set", "interior_point", "cutting_plane", "mpu")
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
