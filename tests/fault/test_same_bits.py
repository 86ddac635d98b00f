"""The same job is the same file: what a model says depends on the rows and the settings, not on what things are called."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamsvm import model as models
from streamsvm.jobs.fit.driver import fit
from tests.fault.golden import fit_job, ingested

SETTINGS: dict[str, dict[str, Any]] = {
    "linear": {},
    "several": {"C": (0.5, 2.0), "validation": 0.2},
    "nystrom": {"kernel": "rbf", "landmarks": 8, "embedding": "fly"},
    "on disk": {"kernel": "rbf", "landmarks": 8, "embedding": "disk"},
    "landmark file": {"kernel": "rbf", "landmark_file": "landmarks.npy", "embedding": "fly"},
    "warm": {"warm_start": "start"},
    "held out": {"validation": "held.zarr"},
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("bits")
    store = ingested(directory)
    shutil.copytree(store, directory / "held.zarr")
    columns = json.loads((store / "X" / "zarr.json").read_text())["shape"][1]
    np.save(directory / "landmarks.npy", np.random.default_rng(0).standard_normal((6, columns)))
    fit(fit_job(store, directory / "start"))
    return directory


@pytest.mark.parametrize("settings", SETTINGS)
def test_bits_do_not_depend_on_names(
    settings: str, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[list[bytes]] = []
    asked = SETTINGS[settings]
    for name in ("here", "elsewhere/with a long name"):
        folder = tmp_path / name
        shutil.copytree(place, folder)
        (folder / "s.zarr").rename(folder / f"{folder.name}.zarr")
        paths = {k: str(folder / v) for k, v in asked.items() if isinstance(v, str) and (folder / v).exists()}
        job = fit_job(folder / f"{folder.name}.zarr", folder / f"{folder.name}.ssvm", **{**asked, **paths})
        monkeypatch.chdir(folder)
        fit(replace(job, memory=(4 << 30) + len(found)))
        found.append([path.read_bytes() for path in sorted(folder.glob("*.ssvm"))])
        record = json.loads((folder / f"{folder.name}.ssvm.run" / "job.json").read_text())
        assert record["store"] == job.store  # where it is kept instead
    assert found[0] == found[1]
    assert found[0]
    for content in found[0]:
        assert str(tmp_path).encode() not in content
        assert b"here" not in content


def test_bits_models_that_name_their_store_still_open(place: Path) -> None:
    """As all did before: the name is read over."""
    model = models.load(place / "start")
    old = replace(model, provenance=model.provenance | {"store": {"name": "a.zarr", "digest": "0" * 64, "rows": 3}})
    old.save(place / "old")
    assert models.load(place / "old").provenance["store"]["name"] == "a.zarr"
    from streamsvm.cli.show import describe_model
    from streamsvm.jobs.inspect import info

    assert any(line.startswith("store    3 rows") for line in describe_model(info(place / "old")))
