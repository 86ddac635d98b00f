"""evaluate --against: the rows that only one of two models predicts correctly, and what is proved of them."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import streamsvm as sv
from streamsvm.cli.main import cli
from streamsvm.errors import UsageError


def drawn(rows: int = 500) -> tuple[Any, Any]:
    r = np.random.default_rng(3)
    X = (r.standard_normal((rows, 4)) * [1, 1, 3, 0.1]).astype(np.float32)
    return X, np.where(X @ r.standard_normal(4) + 2 * r.standard_normal(rows) > 0, "yes", "no")


def test_rows_that_one_model_gets_right_are_counted_and_bounded_for_the_exact_optima(tmp_path: Path) -> None:
    X, y = drawn()
    with (tmp_path / "rows.csv").open("w", newline="") as file:
        csv.writer(file).writerows(
            [["a", "b", "c", "d", "label"], *([*row, name] for row, name in zip(X.tolist(), y, strict=True))]
        )
    sv.ingest(tmp_path / "rows.csv", tmp_path / "rows.zarr", label="label", chunk="2KiB")
    kinds: Any = {"one": {"loss": "squared_hinge"}, "two": {"loss": "logistic", "C": 1e-4, "positive": "no"}}
    exact = {}
    for name, options in kinds.items():
        fitted = {"certify": "full", "tolerance": 0.1, **options}
        sv.fit(tmp_path / "rows.zarr", tmp_path / f"{name}.ssvm", **fitted)
        exact[name] = sv.fit(
            tmp_path / "rows.zarr", tmp_path / "exact.ssvm", overwrite=True, **{**fitted, "tolerance": 1e-9}
        ).model
    results = [
        sv.evaluate(
            tmp_path / "one.ssvm", tmp_path / "rows.zarr", against=tmp_path / "two.ssvm", certify=True, threads=threads
        )
        for threads in (1, 2)
    ]
    found = results[0].against
    assert found is not None
    assert found == results[1].against
    right, other = (sv.load_model(tmp_path / f"{name}.ssvm").predict(X) == y for name in kinds)
    assert (found.only_this, found.only_other) == ((right & ~other).sum(), (other & ~right).sum())
    assert found.difference == pytest.approx(np.mean(~right) - np.mean(~other))
    right, other = (exact[name].predict(X) == y for name in kinds)
    assert found.proved_only_this is not None
    assert found.proved_only_other is not None
    assert found.proved_difference is not None
    for count, (low, high) in (
        ((right & ~other).sum(), found.proved_only_this),
        ((other & ~right).sum(), found.proved_only_other),
        (np.mean(~right) - np.mean(~other), found.proved_difference),
    ):
        assert low - 1e-12 <= count <= high + 1e-12
    words = [
        "evaluate",
        tmp_path / "one.ssvm",
        tmp_path / "rows.csv",
        "--against",
        tmp_path / "two.ssvm",
    ]
    answer = CliRunner().invoke(cli, [*map(str, words)])
    assert answer.exit_code == 0, answer.output
    assert f"of 500 rows {found.only_this} are right only here, {found.only_other} only there" in answer.stdout


def test_models_that_cannot_be_compared_row_by_row_are_refused(tmp_path: Path) -> None:
    X, y = drawn(100)
    model, kept = sv.fit(X, y).model, sv.fit(X, y, certify="labels").model
    with pytest.raises(UsageError, match="another number of columns"):
        sv.evaluate(model, X, y=y, against=sv.fit(X[:, :2], y).model)
    with pytest.raises(UsageError, match="other classes"):
        sv.evaluate(model, X, y=y, against=sv.fit(X, np.where(y == "no", "off", "on")).model)
    with pytest.raises(UsageError, match=r"against\.ssvm: this model cannot prove"):
        sv.evaluate(kept, X, y=y, against=model, certify=True)
