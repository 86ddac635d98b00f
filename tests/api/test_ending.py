"""What is told of a pass may ask the fit to end: with a model, a certificate of it, and a status that says so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import streamsvm as sv

SETTINGS: dict[str, Any] = {"solver": "dcd", "tolerance": 1e-12, "overwrite": True}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 5))
    path = tmp_path_factory.mktemp("ending") / "rows.zarr"
    sv.ingest(X, path, y=(X[:, 0] + rng.normal(size=300) > 0).astype(int))
    return path


def test_on_pass_true_ends_a_fit_with_one_pass_more_that_certifies(store: Path, tmp_path: Path) -> None:
    told: list[dict[str, Any]] = []

    def enough(record: dict[str, Any]) -> bool:
        told.append(record)
        return record["pass"] == 3

    with pytest.warns(sv.StreamSVMWarning, match="asked for the end"):
        result = sv.fit(store, tmp_path / "m", on_pass=enough, **SETTINGS)
    assert [record["pass"] for record in told] == [1, 2, 3, 4]
    assert told[-1]["exact"]
    assert result.training.status.value == "asked to end"
    model = sv.load_model(tmp_path / "m")
    assert model.provenance["status"] == "asked to end"
    assert model.certificate.gap == pytest.approx(told[-1]["gap"], abs=1e-9)
    assert json.loads((tmp_path / "m.run" / "certificate.json").read_text())["status"] == "asked to end"
    with pytest.warns(
        sv.StreamSVMWarning, match="not certified"
    ):  # asked for again it is made, and not taken for its end
        again = sv.fit(store, tmp_path / "m", max_passes=9, **SETTINGS)
    assert again.training.passes == 9


def test_on_pass_what_else_a_callback_returns_has_no_effect_and_a_fit_inside_one_ends_alone(
    store: Path, tmp_path: Path
) -> None:
    def inner(record: dict[str, Any]) -> int:
        with pytest.warns(sv.StreamSVMWarning, match="asked for the end"):
            sv.fit(store, tmp_path / "inner", on_pass=lambda _: True, **SETTINGS)
        return 1

    with pytest.warns(sv.StreamSVMWarning, match="all 3 passes"):
        result = sv.fit(store, tmp_path / "outer", on_pass=inner, max_passes=3, **SETTINGS)
    assert result.training.passes == 3


def test_on_pass_fit_that_has_its_certificate_has_converged_whoever_asked(store: Path, tmp_path: Path) -> None:
    result = sv.fit(store, tmp_path / "m", on_pass=lambda _: True, overwrite=True)
    assert result.training.status.value == "converged"
