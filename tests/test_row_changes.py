"""forget and learn: the exact optimum of the other rows lies where the changed model says, and nothing but these rows is read."""

from __future__ import annotations

import collections
import csv
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import streamsvm as sv
from streamsvm.cli.main import cli
from streamsvm.errors import DataError, StreamSVMError, UsageError
from streamsvm.model import load
from streamsvm.proofs import row_changes
from tests.test_enclosure import drawn_rows, exact_optimum, seen_rows
from tools.fuzz import enclosures as audits

NUMBERS: dict[str, tuple[float, ...]] = {
    "squared_hinge": (1.0,),
    "huber": (0.1, 1.0),
    "logistic": (1.0,),
    "squared": (1.0,),
}


def fitted(X: Any, y: Any, place: Path, **options: Any) -> Path:
    """A model that keeps what changes of rows need; the store that it was trained on is gone."""
    task: Any = "regression" if options.get("loss") == "squared" else "classification"
    sv.ingest(X, place / "rows.zarr", y=y, task=task, chunk="4KiB")
    sv.fit(place / "rows.zarr", place / "m.ssvm", certify="updates", tolerance=0.01, **options)
    shutil.rmtree(place / "rows.zarr")
    return place / "m.ssvm"


@pytest.mark.parametrize(
    ("loss", "standardize"), [("squared_hinge", True), ("huber", False), ("logistic", True), ("squared", False)]
)
def test_answers_of_changed_models_enclose_those_of_retrainings(loss: Any, standardize: bool, tmp_path: Path) -> None:
    X, y = drawn_rows()
    if loss == "squared":
        y = X @ np.arange(6.0) + np.random.default_rng(5).standard_normal(len(X))
    model = fitted(X[:394], y[:394], tmp_path, loss=loss, standardize=standardize)
    forgotten = sv.forget(model, X[:6], tmp_path / "less.ssvm", y=y[:6])
    learned = sv.learn(tmp_path / "less.ssvm", X[394:], tmp_path / "more.ssvm", y=y[394:])
    assert forgotten.rows == 6
    for result, rows in ((forgotten, slice(6, 394)), (learned, slice(6, 400))):
        assert result.is_proved
        new = load(Path(result.out))
        Z = seen_rows(X, new)
        targets = y if loss == "squared" else np.where(y == "yes", 1.0, -1.0)
        best, off = exact_optimum(Z[rows].astype(np.float64), targets[rows], 1.0, loss, NUMBERS[loss])
        true, allowed = Z @ best, off * 100 + 1e-11
        low, high = new.decision_interval(X)
        assert np.all((low - allowed <= true) & (true <= high + allowed))
        moved = np.abs(true - load(model).decision_function(X)).max()
        assert loss == "huber" or np.median(high - low) < 0.6 * moved  # more is said than the size of the change
        assert np.all((low - 1e-9 <= new.decision_function(X)) & (new.decision_function(X) <= high + 1e-9))


def test_audited_changes_refute_nothing() -> None:
    counts: Any = collections.Counter()
    assert [line for seed in range(6) for line in audits.audit_changes(seed, counts)] == []
    assert counts["rows changed: built"] > 20


def test_rows_that_stay_in_the_matrices_are_found_by_the_audit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_changes, "bounds_of_counted", lambda rows, steps, loss: (np.zeros(len(steps)),) * 2)
    assert any(audits.audit_changes(seed, collections.Counter()) for seed in range(2, 8))


def test_audited_removals_of_most_rows_refute_nothing() -> None:
    counts: Any = collections.Counter()
    assert [line for seed in range(12) for line in audits.audit_most_rows_removed(seed, counts)] == []
    assert counts["rows changed: built"] > 20


@pytest.mark.parametrize("fault", audits.CHANGE_FAULTS)
def test_planted_fault_of_changes_is_found_by_the_audit(fault: str) -> None:
    with audits.planted(audits.CHANGE_FAULTS[fault], row_changes):
        assert any(audits.audit_most_rows_removed(seed, collections.Counter()) for seed in range(40))


def test_rows_come_and_go_with_their_classes_and_weights(tmp_path: Path) -> None:
    X, _ = drawn_rows(600)
    r = np.random.default_rng(2)
    y = np.array(["c", "a", "b"])[np.argmax(X[:, [0, 2, 4]] / [1, 3, 1] + r.standard_normal((600, 3)) / 2, axis=1)]
    weight = r.choice([0.5, 1.0, 2.0], 600).astype(np.float32)
    given: Any = {"class_weight": {"a": 2.0, "b": 0.5}, "loss": "logistic", "standardize": False}
    sv.ingest(X, tmp_path / "all.zarr", y=y, weight=weight)
    sv.ingest(X[30:], tmp_path / "most.zarr", y=y[30:], weight=weight[30:])
    whole = sv.fit(tmp_path / "all.zarr", tmp_path / "all.ssvm", certify="updates", **given)
    most = sv.fit(tmp_path / "most.zarr", tmp_path / "most.ssvm", tolerance=1e-9, **given)
    with pytest.raises(DataError, match="no weights"):
        sv.forget(whole, X[:30], tmp_path / "less.ssvm", y=y[:30])
    less = sv.forget(whole, X[:30], tmp_path / "less.ssvm", y=y[:30], weight=weight[:30]).model
    assert less is not None
    low, high = less.decision_interval(X)
    true = most.model.decision_function(X)
    assert np.all((low - 1e-5 <= true) & (true <= high + 1e-5))
    again = sv.learn(less, X[:30], tmp_path / "again.ssvm", y=y[:30], weight=weight[:30]).model
    assert again is not None
    assert np.abs(again.decision_function(X) - whole.model.decision_function(X)).max() < 0.02
    with pytest.raises(DataError, match="does not know the label"):
        sv.learn(less, X[:1], tmp_path / "other.ssvm", y=["d"], weight=weight[:1])


def test_rows_without_influence_have_a_receipt_and_change_nothing(tmp_path: Path) -> None:
    X, y = drawn_rows()
    model = fitted(X, y, tmp_path, C=10.0)
    sv.ingest(X[:50], tmp_path / "few.zarr", y=y[:50])
    words = ("forget", model, tmp_path / "few.zarr", tmp_path / "less.ssvm")
    result = CliRunner().invoke(cli, [*map(str, words), "--receipt", str(tmp_path / "receipt.csv")])
    assert result.exit_code == 0, result.stderr
    assert "50 rows removed" in result.stdout
    assert "held fixed: scaling" in result.stderr
    assert "unlearn" not in result.output
    assert "changed  forget, 50 rows" in CliRunner().invoke(cli, ["info", str(tmp_path / "less.ssvm")]).stdout
    with (tmp_path / "receipt.csv").open() as file:
        table = list(csv.DictReader(file))
    assert [row["row"] for row in table] == [str(k) for k in range(50)]
    free = np.array([row["influence"] == "none" for row in table])
    assert 3 < free.sum() < 47
    margins = np.where(y == "yes", 1, -1)[:50] * load(model).decision_function(X[:50])
    assert np.all(margins[free] >= 1.0)
    same = sv.forget(model, X[:50][free], tmp_path / "same.ssvm", y=y[:50][free])
    assert same.without_influence == same.rows
    low, high = load(model).decision_interval(X)
    assert np.all(
        (low - 1e-9 <= load(Path(same.out)).decision_function(X))
        & (load(Path(same.out)).decision_function(X) <= high + 1e-9)
    )


def test_bad_lines_that_were_skipped_are_named(tmp_path: Path) -> None:
    X, y = drawn_rows(100)
    lines = [",".join(map(str, row)) for row in np.column_stack([X, y])]
    header, place = "a,b,c,d,e,f,label", tmp_path / "rows.csv"
    place.write_text("\n".join([header, *lines, ""]))
    sv.ingest(place, tmp_path / "rows.zarr", label="label")
    sv.fit(tmp_path / "rows.zarr", tmp_path / "m.ssvm", certify="updates", loss="squared_hinge")
    (tmp_path / "gone.csv").write_text("\n".join([header, *lines[:5], "1,2", ""]))
    words = ("forget", tmp_path / "m.ssvm", tmp_path / "gone.csv", tmp_path / "less.ssvm", "--on-bad-line", "skip")
    result = CliRunner().invoke(cli, [*map(str, words), "--max-bad", "50%"])
    assert result.exit_code == 0, result.stderr
    assert "5 rows removed" in result.stdout
    assert "1 lines could not be read and were skipped" in result.stderr


def test_rows_that_weigh_too_much_leave_a_ball_that_is_true(tmp_path: Path) -> None:
    X, y = drawn_rows()
    X[:, 5] = 0.0
    X[:40, 5] = 10.0  # all rows with a value in this column go
    model = fitted(X, y, tmp_path, C=1000.0)
    result = sv.forget(model, X[:40], tmp_path / "less.ssvm", y=y[:40])
    assert not result.is_proved
    assert any("only a ball" in notice for notice in result.notices)
    new = load(Path(result.out))
    Z = seen_rows(X, new)
    signs = np.where(y == "yes", 1.0, -1.0)
    best, _ = exact_optimum(Z[40:].astype(np.float64), signs[40:], 1000.0, "squared_hinge", (1.0,))
    low, high = new.decision_interval(X)
    assert np.all((low <= Z @ best) & (Z @ best <= high))


def test_changes_are_refused_where_nothing_is_kept_for_them(tmp_path: Path) -> None:
    X, y = drawn_rows()
    model = sv.fit(X, y, certify="full").model
    with pytest.raises(UsageError, match="does not keep") as caught:
        sv.forget(model, X[:1], tmp_path / "new.ssvm", y=y[:1])
    assert "certify='updates'" in str(caught.value.hint)
    refused: Any = ({"loss": "hinge"}, {"kernel": "rbf"}, {"multi_class": "ovo"})
    for options in refused:
        with pytest.raises(StreamSVMError, match="certify"):
            sv.fit(X, np.where(X[:, 0] > 1, "more", y), certify="updates", **options)
    kept = fitted(X, y, tmp_path)
    np.save(tmp_path / "rows.npy", X[:1])
    with pytest.raises(DataError, match="no labels"):
        sv.forget(kept, tmp_path / "rows.npy", tmp_path / "new.ssvm", label="none")
