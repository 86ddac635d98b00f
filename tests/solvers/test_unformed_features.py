"""Newton's first pass at w = 0 makes no features, and goes where it would have gone with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import streamsvm as sv
from streamsvm.solvers.newton.solver import Newton

RBF: dict[str, Any] = {"kernel": "rbf", "gamma": 0.3, "landmarks": 60, "embedding": "fly", "solver": "newton"}
FORMS: dict[str, dict[str, Any]] = {
    "hinge": {"loss": "hinge"},
    "smooth": {"loss": "squared_hinge"},
    "all rows": {"options": {}},
    "several values of C": {"C": [0.1, 1.0]},
    "classes": {"y": "classes"},
    "pairs": {"y": "classes", "multi_class": "ovo"},
    "weights": {"y": "weighted", "class_weight": "balanced"},
    "numbers": {"y": "numbers", "loss": "epsilon_insensitive"},
    "threads": {"threads": 3},
}


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    place, numbers = tmp_path_factory.mktemp("stores"), np.random.default_rng(4)
    X = numbers.normal(size=(900, 4)).astype(np.float32)
    plain = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.3 * numbers.normal(size=len(X))
    two, classes = (plain > 0).astype(int), np.digitize(plain, [-0.7, 0.4])
    made: dict[str, tuple[Any, dict[str, Any]]] = {
        "two": (two, {}),
        "classes": (classes, {}),
        "weighted": (two, {"weight": numbers.integers(1, 4, len(X)).astype(float)}),
        "numbers": (plain, {"task": "regression"}),
    }
    for name, (y, more) in made.items():
        sv.ingest(X, str(place / name), y=y, chunk=4096, **more)
    return {name: str(place / name) for name in made}


def _fitted(
    stores: dict[str, str], asked: dict[str, Any], model: Path
) -> tuple[list[tuple[int, float, float]], list[bytes]]:
    """The number of each pass with P and D after it, of every problem, and the models."""
    seen: list[tuple[int, float, float]] = []

    def note(event: dict[str, Any]) -> None:
        if event["event"] == "pass":
            seen.append((int(event["pass"]), float(event["primal"]), float(event["dual"])))

    more = {"options": {"sample": 300}} | {name: value for name, value in asked.items() if name != "y"}
    sv.fit(stores[asked.get("y", "two")], str(model), on_event=note, overwrite=True, **RBF, **more)
    return seen, [
        path.read_bytes() for path in sorted(model.parent.rglob("m*")) if path.suffix != ".json" and path.is_file()
    ]


@pytest.mark.parametrize("form", FORMS)
def test_newton_without_features_at_zero_goes_the_same_way(
    form: str, stores: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without, model = _fitted(stores, FORMS[form], tmp_path / "m")
    monkeypatch.setattr(Newton, "needs_features", lambda *_: True)
    those, same = _fitted(stores, FORMS[form], tmp_path / "m")
    assert model == same
    assert [found[:2] for found in without] == [found[:2] for found in those]
    assert [found for found in without if found[0] > 1] == [found for found in those if found[0] > 1]
    assert {dual for number, _, dual in without if number == 1} == {0.0}, "that of no row"
