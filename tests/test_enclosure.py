"""Enclosures of exact optima: nothing that is proved is false, and everything that is shown comes from the same intervals.

The optima are those of ``tools.fuzz.enclosures``, in long doubles with a bound of their own error; it is also the large audit.
"""

from __future__ import annotations

import collections
import csv
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import streamsvm as sv
from streamsvm import losses
from streamsvm.cli.main import cli
from streamsvm.errors import DataError, UsageError
from streamsvm.model import load
from streamsvm.model.model import possible_classes, predict_codes
from streamsvm.proofs import enclosure, row_changes
from streamsvm.proofs.kept import Enclosures, decode_enclosures
from streamsvm.rows import CSR, Dense
from tools.fuzz import enclosures as audits

RECORDS = [
    losses.SquaredHinge(), losses.SquaredHinge(8.0), losses.Huber(0.1), losses.Huber(3.0, 0.5), losses.Logistic(), losses.Logistic(4.0),
    losses.Squared(0.5), losses.SquaredEpsilonInsensitive(0.3), losses.SquaredEpsilonInsensitive(0.0), losses.RoundedEpsilon(0.1, 0.4),
    losses.RoundedPinball(0.2, 0.3),
]  # fmt: skip


@pytest.mark.parametrize("loss", RECORDS, ids=repr)
def test_secants_of_losses_lie_between_their_bounds_and_touch_them(loss: Any) -> None:
    r = np.random.default_rng(1)
    m = np.concatenate([r.normal(0, 2, 60), loss.corners(), [1.0, 1.1, 0.9]])
    for reach in (1e-9, 0.01, 0.3, 5.0):
        low, high = enclosure.secants(loss, m, np.full(len(m), reach))
        steps = np.linspace(-reach, reach, 400)
        for x, least, largest in zip(m, low, high, strict=True):
            moves = np.concatenate([steps, np.array(loss.corners()) - x])
            moves = moves[(np.abs(moves) <= reach) & (np.abs(moves) > 1e-3 * reach)]
            found = np.array([(loss.slope(x + t) - loss.slope(x)) / t for t in moves])
            error = 1e-13 * (1 + abs(x)) / (1e-3 * reach)
            assert least - error <= found.min()
            assert found.max() <= largest + error
            if reach >= 0.01 and loss.quadratic():
                assert max(found.min() - least, largest - found.max()) < 0.05 * largest + 1e-9


def test_audited_problems_refute_nothing() -> None:
    counts: Any = collections.Counter()
    assert [line for seed in range(14) for line in audits.audit(seed, counts)] == []
    assert counts["all rows, two sides: built"] > 20  # the audit audits something
    assert counts["some rows: built"] > 40
    assert counts["all rows after some: built"] > 0.9 * counts["all rows, one side: built"]


@pytest.mark.parametrize("fault", audits.FAULTS)
def test_planted_fault_is_found_by_the_audit(fault: str) -> None:
    with audits.planted(audits.FAULTS[fault]):
        assert any(audits.audit(seed, collections.Counter()) for seed in range(40))


def exact_optimum(X: Any, y: Any, C: Any, loss: str, numbers: tuple[float, ...]) -> tuple[Any, float]:
    """The optimum of rows with their constant feature, in long doubles, and by how much it can be off."""
    drawn = audits.Drawn(X, y, np.broadcast_to(np.float64(C), len(y)).copy(), loss, numbers, X[:1])
    _, best, off = audits.solve(drawn)
    return best, off


def drawn_rows(n: int = 400, d: int = 6) -> tuple[Any, Any]:
    r = np.random.default_rng(3)
    X = (r.standard_normal((n, d)) * [1, 1, 3, 0.1, 1, 1] + [0, 5, 0, 0, 0, 0]).astype(np.float32)
    return X, np.where(X @ r.standard_normal(d) + 2 * r.standard_normal(n) > 0, "yes", "no")


def seen_rows(X: Any, model: sv.Model, bias: float = 1.0) -> Any:
    """Rows as the problem of a model sees them, in long doubles."""
    kept = model.enclosures
    assert kept is not None
    exact = X.astype(np.longdouble)
    if kept.shift is not None and kept.scale is not None:
        exact = (exact - kept.shift) * kept.scale
    return np.hstack([exact, np.full((len(X), 1), bias)])


@pytest.mark.parametrize(
    ("certify", "loss", "standardize"),
    [
        ("labels", "squared_hinge", False),
        ("full", "huber", True),
        ("full", "logistic", False),
        ("labels", "logistic", True),
        ("labels", "hinge", False),
    ],
)
def test_intervals_of_fits_contain_the_exact_optimum(certify: Any, loss: Any, standardize: bool) -> None:
    X, y = drawn_rows()
    model = sv.fit(
        X, y, loss=loss, certify=certify, standardize=standardize, tolerance=1e-6 if loss == "hinge" else 0.01
    ).model
    Z = seen_rows(X, model)
    signs = np.where(y == "yes", 1.0, -1.0)
    if loss == "hinge":
        closer = sv.fit(X, y, loss=loss, tolerance=1e-9).model
        true, allowed = closer.decision_function(X), 1e-3
    else:
        numbers = {"squared_hinge": (1.0,), "huber": (0.1, 1.0), "logistic": (1.0,)}[loss]
        best, off = exact_optimum(Z.astype(np.float64), signs, 1.0, loss, numbers)
        true, allowed = Z @ best, off * 100 + 1e-11
    low, high = model.decision_interval(X)
    assert np.all((low - allowed <= true) & (true <= high + allowed))
    answer = model.predict(X, certify=True)
    assert np.array_equal(answer.label[answer.proved], np.where(true > 0, "yes", "no")[answer.proved])
    assert np.array_equal(answer.low, low)
    assert answer.proved.mean() > (0.02 if loss == "hinge" else 0.9)
    if loss != "hinge":
        frame = model.coefficients().set_index("column").loc[[f"column {k}" for k in range(6)]]
        exact = best[:-1] * (
            1.0 if model.enclosures is None or model.enclosures.scale is None else model.enclosures.scale
        )
        assert np.all((frame.low - allowed <= exact) & (exact <= frame.high + allowed))


def test_full_is_narrower_than_labels_and_both_say_the_same_of_sparse_rows() -> None:
    X, y = drawn_rows()
    import scipy.sparse as sp

    X = X * (np.random.default_rng(0).random(X.shape) < 0.4)
    widths = {}
    choices: Any = ("labels", "full")
    for certify, rows in product(choices, (X, sp.csr_matrix(X))):
        low, high = sv.fit(rows, y, loss="logistic", certify=certify, tolerance=0.1).model.decision_interval(rows)
        widths[certify, rows is X] = float(np.median(high - low))
    assert widths["full", True] < 0.2 * widths["labels", True]
    assert widths["full", False] == pytest.approx(widths["full", True], rel=1e-3)


def test_regression_intervals_contain_the_exact_predictions_and_errors(tmp_path: Path) -> None:
    X, _ = drawn_rows()
    t = X @ np.arange(6.0) + np.random.default_rng(5).standard_normal(len(X))
    sv.ingest(X, tmp_path / "rows.zarr", y=t, task="regression")
    model = sv.fit(tmp_path / "rows.zarr", tmp_path / "m.ssvm", loss="squared", certify="full", tolerance=0.01).model
    best, off = exact_optimum(seen_rows(X, model).astype(np.float64), t, 1.0, "squared", (1.0,))
    true = seen_rows(X, model) @ best
    low, high = model.decision_interval(X)
    assert np.all((low - 1e-9 - 10 * off <= true) & (true <= high + 1e-9 + 10 * off))
    proved = sv.evaluate(model, tmp_path / "rows.zarr", certify=True).proved
    assert proved is not None
    assert proved.MAE is not None
    assert proved.RMSE is not None
    assert proved.MAE[0] - 1e-9 <= np.abs(true - t).mean() <= proved.MAE[1] + 1e-9
    assert proved.RMSE[0] - 1e-9 <= np.sqrt(np.square(true - t).mean()) <= proved.RMSE[1] + 1e-9


@pytest.mark.parametrize("multi_class", ["ovr", "ovo"])
def test_classes_and_pairs_prove_the_label_of_the_exact_optimum(multi_class: Any) -> None:
    X, _ = drawn_rows()
    r = np.random.default_rng(0)
    y = np.argmax((X - X.mean(axis=0))[:, :3] / X[:, :3].std(axis=0) + r.standard_normal((len(X), 3)) * 0.5, axis=1)
    model = sv.fit(X, y, certify="full", multi_class=multi_class, tolerance=0.01).model
    closer = sv.fit(X, y, multi_class=multi_class, tolerance=1e-8).model
    answer = model.predict(X, certify=True)
    assert answer.proved.mean() > 0.95
    assert np.array_equal(answer.label[answer.proved], closer.predict(X)[answer.proved])


@pytest.mark.parametrize("voting", [0, 3])
def test_possible_classes_are_those_of_some_values_in_the_intervals(voting: int) -> None:
    r = np.random.default_rng(0)
    low = np.round(r.standard_normal((200, 3)))
    high = low + np.round(r.random((200, 3)) * 2)
    possible = possible_classes(low, high, voting)
    for drawn in range(200):
        share = np.round(r.random(low.shape)) if drawn < 100 else r.random(low.shape)
        codes = predict_codes(low + share * (high - low), voting)
        assert possible[np.arange(len(low)), codes].all()


def test_predictions_and_evaluation_say_the_same_in_every_form(tmp_path: Path) -> None:
    X, y = drawn_rows()
    sv.ingest(X, tmp_path / "rows.zarr", y=y, chunk="4KiB")
    fitted = sv.fit(tmp_path / "rows.zarr", tmp_path / "m.ssvm", certify="full", tolerance=0.05)
    model = load(tmp_path / "m.ssvm")
    assert model == fitted.model
    answer = model.predict(X, certify=True)
    for name, threads in (("one.csv", 1), ("two.csv", 2)):
        sv.predict(
            tmp_path / "m.ssvm",
            str(tmp_path / "rows.zarr"),
            tmp_path / name,
            output=("label", "low", "high", "proved"),
            threads=threads,
        )
    assert (tmp_path / "one.csv").read_bytes() == (tmp_path / "two.csv").read_bytes()
    with (tmp_path / "one.csv").open() as file:
        table = list(csv.DictReader(file))
    assert list(table[0]) == ["row", "predicted_label", "low_yes", "high_yes", "proved"]
    order = np.argsort([float(row["low_yes"]) for row in table])
    assert [table[k]["proved"] == "yes" for k in order] == answer.proved[np.argsort(answer.low)].tolist()
    sv.predict(
        tmp_path / "m.ssvm",
        str(tmp_path / "rows.zarr"),
        tmp_path / "one.csv",
        output=("label", "proved"),
        overwrite=True,
    )
    one, two = (
        sv.evaluate(tmp_path / "m.ssvm", tmp_path / "rows.zarr", certify=True, threads=k).proved for k in (1, 2)
    )
    assert one is not None
    assert one == two
    assert one.proved == answer.proved.sum()
    assert one.error is not None
    closer = sv.fit(tmp_path / "rows.zarr", tmp_path / "closer.ssvm", tolerance=1e-8).model
    error = np.mean(closer.predict(X) != y)
    assert one.error[0] <= error <= one.error[1]


def test_probabilities_of_the_exact_optimum_lie_between_those_of_predict(tmp_path: Path) -> None:
    X, y = drawn_rows()
    sv.ingest(X, tmp_path / "rows.zarr", y=y)
    model = sv.fit(tmp_path / "rows.zarr", tmp_path / "m.ssvm", loss="logistic", certify="full", tolerance=0.05).model
    words = ["predict", tmp_path / "m.ssvm", tmp_path / "rows.zarr", tmp_path / "out.parquet"]
    words += ["--output", "probability,probability_low,probability_high"]
    answer = CliRunner().invoke(cli, [*map(str, words)])
    assert answer.exit_code == 0, answer.output
    table = pq.read_table(tmp_path / "out.parquet").to_pydict()
    assert list(table)[1:3] == ["probability_no", "probability_yes"]
    low, high = (np.array(table[f"probability_{end}_yes"]) for end in ("low", "high"))
    best, off = exact_optimum(
        seen_rows(X, model).astype(np.float64), np.where(y == "yes", 1.0, -1.0), 1.0, "logistic", (1.0,)
    )
    true = 1.0 / (1.0 + np.exp(-(seen_rows(X, model) @ best)))
    assert np.all((low - off - 1e-11 <= true) & (true <= high + off + 1e-11))
    assert 0.0 < np.median(high - low) < 0.01
    assert np.allclose(1.0 - low, table["probability_high_no"], atol=1e-9)
    with pytest.raises(UsageError, match="no probabilities"):
        sv.fit(X, y, certify="labels").model.probability_interval(X)


def test_models_with_and_without_threads_have_the_same_enclosures(tmp_path: Path) -> None:
    X, y = drawn_rows(3000)
    sv.ingest(X, tmp_path / "rows.zarr", y=y, chunk="4KiB")
    models = [
        sv.fit(tmp_path / "rows.zarr", tmp_path / f"{threads}.ssvm", certify="full", threads=threads).model
        for threads in (1, 2)
    ]
    assert models[0].digest == models[1].digest


def test_model_without_certify_has_no_trace_of_it(tmp_path: Path) -> None:
    X, y = drawn_rows()
    model = sv.fit(X, y).model
    assert "certify" not in model.provenance["settings"]
    with pytest.raises(UsageError, match="cannot prove its predictions"):
        model.predict(X, certify=True)
    with pytest.raises(UsageError, match="cannot prove its predictions"):
        sv.evaluate(model, X, y=y, certify=True)


@pytest.mark.parametrize(
    "options",
    [
        {"kernel": "rbf"},
        {"kernel": "rbf", "landmarks": 10},
        {"one_class": True, "nu": 0.1},
        {"nu": 0.2, "loss": "hinge"},
        {"l1": 1.0},
        {"multi_class": "crammer_singer"},
    ],
    ids=str,
)
def test_certify_is_refused_by_name_where_nothing_is_proved(options: dict[str, Any]) -> None:
    X, y = drawn_rows()
    with pytest.raises(UsageError, match="certify"):
        sv.fit(X, y, certify="labels", **options)


def test_estimators_prove_labels_and_enclose_numbers() -> None:
    from streamsvm.sklearn import StreamSVC, StreamSVR

    X, y = drawn_rows()
    fitted = StreamSVC(certify="full", loss="logistic").fit(X, y)
    answer, (low, high) = fitted.predict(X, certify=True), fitted.decision_interval(X)
    assert np.array_equal(answer.label, fitted.predict(X))
    assert np.array_equal(answer.low, low)
    assert answer.proved.mean() > 0.9
    assert np.array_equal(fitted.probability_interval(X), fitted.model_.probability_interval(X))
    t = X @ np.arange(6.0)
    low, high = StreamSVR(certify="full").fit(X, t).decision_interval(X)
    true = StreamSVR(tolerance=1e-8).fit(X, t).predict(X)
    assert np.all((low - 1e-3 <= true) & (true <= high + 1e-3))
    with pytest.raises(UsageError, match="certify='labels'"):
        StreamSVC().fit(X, y).predict(X, certify=True)


def test_audited_rows_that_are_left_out_refute_nothing() -> None:
    counts: Any = collections.Counter()
    assert [line for seed in range(6) for line in audits.audit_left_out(seed, counts)] == []
    assert counts["rows left out: settled"] > 0.4 * counts["rows left out: statements"]


def test_bounds_of_a_row_that_stays_in_the_matrices_are_found_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    def keep(self: Any, rows: Any, chosen: Any, *_: Any) -> Any:
        return np.zeros(len(chosen))

    monkeypatch.setattr(row_changes.StepLevels, "_largest_low", keep)
    assert any(audits.audit_left_out(seed, collections.Counter()) for seed in range(60))


@pytest.mark.parametrize("loss", ["logistic", "squared_hinge"])
def test_leave_one_out_error_lies_between_its_bounds(tmp_path: Path, loss: Any) -> None:
    X, y = drawn_rows(40)
    sv.ingest(X, tmp_path / "rows.zarr", y=y, chunk="4KiB")
    store, model = str(tmp_path / "rows.zarr"), tmp_path / "m.ssvm"
    sv.fit(store, model, loss=loss, standardize=True, certify="labels", tolerance=0.05)
    one, two = (sv.evaluate(model, store, leave_one_out=True, threads=k).leave_one_out for k in (1, 2))
    assert one == two
    assert one is not None
    assert one.error is not None
    # the optima without a row, of the scaling of all rows
    Z = seen_rows(X, load(model)).astype(np.float64)
    signs = np.where(y == "yes", 1.0, -1.0)
    wrong = 0
    for i in range(len(Z)):
        C = np.ones(len(Z))
        C[i] = 0.0
        best, _ = exact_optimum(Z, signs, C, loss, (1.0,))
        wrong += bool((Z[i] @ best > 0) != (signs[i] > 0))
    assert one.error[0] <= wrong / len(Z) <= one.error[1]
    assert one.open <= 8


def test_leave_one_out_is_refused_by_name_where_nothing_bounds_it(tmp_path: Path) -> None:
    X, y = drawn_rows(60)
    sv.ingest(X, tmp_path / "rows.zarr", y=y)
    sv.ingest(X[:30], tmp_path / "other.zarr", y=y[:30])
    sv.fit(tmp_path / "rows.zarr", tmp_path / "hinge.ssvm", loss="hinge")
    with pytest.raises(UsageError, match="loss without kinks"):
        sv.evaluate(tmp_path / "hinge.ssvm", tmp_path / "rows.zarr", leave_one_out=True)
    sv.fit(tmp_path / "rows.zarr", tmp_path / "m.ssvm")
    with pytest.raises(UsageError, match="is another one"):
        sv.evaluate(tmp_path / "m.ssvm", tmp_path / "other.zarr", leave_one_out=True)


def test_page_shows_intervals_of_coefficients(tmp_path: Path) -> None:
    X, y = drawn_rows()
    sv.ingest(X, tmp_path / "rows.zarr", y=y)
    for certify, shown in (("full", True), (None, False)):
        choice: Any = certify
        page = tmp_path / f"{certify}.html"
        sv.fit(tmp_path / "rows.zarr", tmp_path / f"{certify}.ssvm", certify=choice, report=page)
        assert ("at the optimum" in page.read_text()) is shown


def test_damaged_enclosures_are_refused() -> None:
    X, y = drawn_rows()
    kept = sv.fit(X, y, certify="labels").model.enclosures
    assert kept is not None
    tensors, header = kept.tensors(), kept.header()
    again = decode_enclosures(header, tensors, 1, 6)
    assert all(np.array_equal(a, b) for a, b in zip(again.intervals(Dense(X)), kept.intervals(Dense(X)), strict=True))
    for damage in (
        tensors | {"enclosure.center": tensors["enclosure.center"] * np.nan},
        tensors | {"enclosure.root.0": tensors["enclosure.root.0"][:-1]},
        tensors | {"enclosure.shift": np.zeros(6, np.float32)},
    ):
        with pytest.raises(DataError):
            decode_enclosures(header, damage, 1, 6)
    with pytest.raises(DataError):
        decode_enclosures(header | {"parts": [{"radius": -1.0, "slack": 0.0}]}, tensors, 1, 6)


def test_balls_of_wide_sparse_rows_cost_their_entries_and_agree_with_dense_ones() -> None:
    r = np.random.default_rng(0)
    ball = enclosure.ball_of_gap(r.standard_normal(5001), 0.1)
    kept = Enclosures((ball,), 1.0)
    indptr = np.arange(0, 60, 5, dtype=np.int64)
    indices = np.concatenate([np.sort(r.permutation(5000)[:5]) for _ in range(11)]).astype(np.int32)
    X = CSR(r.standard_normal(55).astype(np.float32), indices, indptr)
    rows = kept.features(X).astype(np.longdouble)
    middle, half = rows @ ball.center, ball.slack * np.sqrt(np.square(rows).sum(axis=1))
    sparse = [side[:, 0] for side in kept.intervals(X)]
    assert np.allclose(sparse, [middle - half, middle + half], rtol=1e-12)
    low, high = ball.interval(kept.features(X))  # its rows are rounded to float32, outwards
    assert np.all((low <= sparse[0]) & (sparse[1] <= high))
    assert np.allclose((low + high) / 2, middle, rtol=1e-12)
    assert np.all((high - low) / 2 <= half * (1.0 + 2.0**-22))


def test_balls_hold_for_sparse_rows_whose_many_squares_are_lost_in_their_sum() -> None:
    values = np.full(200_000, 1e-8, np.float32)
    values[0] = 1.0
    X = CSR(values, np.arange(len(values), dtype=np.int32), np.array([0, len(values)], np.int64))
    ball = enclosure.ball_of_gap(np.zeros(len(values) + 1), 0.5)  # all weights of length 1
    low, high = Enclosures((ball,), 0.0).intervals(X)
    length = np.sqrt(np.square(values.astype(np.longdouble)).sum())
    assert low[0, 0] <= -length
    assert length <= high[0, 0] <= length * (1.0 + 1e-10)


@pytest.mark.parametrize("size", [1.0, 1e-25, 1e25, 1e-44, 3e38])
def test_lengths_by_products_in_float32_are_upper_bounds_for_numbers_of_any_size(size: float) -> None:
    r = np.random.default_rng(0)
    root = np.tril(r.standard_normal((30, 30))) * np.exp(r.normal(0, 3, (30, 1))) / max(size, 1e-30)
    rows = (np.clip(r.standard_normal((50, 30)), -1, 1) * size).astype(np.float32)
    exact = np.sqrt(np.square(rows.astype(np.longdouble) @ root.T.astype(np.longdouble)).sum(axis=1))
    found = enclosure.bound_lengths(rows, root)
    assert np.all(found >= exact)
    assert np.all(enclosure.bound_sizes(rows) >= np.sqrt(np.square(rows.astype(np.longdouble)).sum(axis=1)))
    if size > 1e-10:
        assert np.all(found <= 1.001 * exact + 1e-15)
