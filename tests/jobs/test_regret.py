"""tune --regret: the errors of all C lie between the bounds of their cells, and the proof ends where it says."""

from __future__ import annotations

import collections
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import streamsvm as sv
from streamsvm.cli.main import cli
from streamsvm.errors import UsageError
from streamsvm.jobs.tune import regret as module
from streamsvm.proofs import cost_range
from tools.fuzz import enclosures as audits


def stored(place: Path, classes: int = 2, rows: int = 900) -> Path:
    r = np.random.default_rng(7)
    X = (r.standard_normal((rows, 5)) * [1, 1, 2, 0.2, 1] + [0, 3, 0, 0, 0]).astype(np.float32)
    truth = X[:, :classes] * [1, 2, 1][:classes] + 1.5 * r.standard_normal((rows, classes))
    sv.ingest(X, place / "rows.zarr", y=np.array(["a", "b", "c"])[truth.argmax(axis=1)])
    return place / "rows.zarr"


@pytest.mark.parametrize(
    ("classes", "options"),
    [(2, {"loss": "squared_hinge"}), (2, {"loss": "logistic", "standardize": True}), (3, {"loss": "huber"})],
    ids=["squared_hinge", "logistic scaled", "three classes"],
)
def test_errors_of_all_costs_lie_between_their_bounds(classes: int, options: Any, tmp_path: Path) -> None:
    store, ends = stored(tmp_path, classes, 600), [1e-2, 1e-1, 1.0]
    done = sv.tune(store, tmp_path / "out", C=ends, regret=0.03, folds=2, **options)
    proof = done.regret
    assert proof is not None
    assert proof.is_proved
    assert proof.lower_bound >= done.best.score - 0.03
    assert proof.fits == len(done.scores)
    assert (proof.band[0].C_from, proof.band[-1].C_to) == (1e-2, 1.0)
    assert all(one.C_to == other.C_from for one, other in zip(proof.band, proof.band[1:], strict=False))
    drawn = np.exp(np.random.default_rng(1).uniform(np.log(1e-2), np.log(1.0), 5)).tolist()
    exact = sv.tune(store, tmp_path / "exact", C=drawn, folds=2, tolerance=1e-8, max_passes=1000, **options)
    for score in exact.scores:
        assert score.C is not None
        (cell,) = [one for one in proof.band if one.C_from <= score.C <= one.C_to]
        assert cell.low <= score.score <= cell.high


def test_audited_ranges_of_costs_refute_nothing() -> None:
    counts: Any = collections.Counter()
    assert [line for seed in range(6) for line in audits.audit_costs(seed, counts)] == []
    assert counts["ranges of C: built"] > 20
    assert counts["ranges of C, second look: built"] > 10


@pytest.mark.parametrize("fault", audits.COST_FAULTS)
def test_planted_fault_in_ranges_of_costs_is_found_by_the_audit(fault: str) -> None:
    with audits.planted(audits.COST_FAULTS[fault], cost_range):
        assert any(audits.audit_wide_ranges(seed, collections.Counter()) for seed in range(10))


def test_open_cells_are_looked_at_again_and_halved_before_a_fit_is_put_between() -> None:
    pair = (1.0, 16.0)
    cells = {pair: [module.Cell(1.0, 4.0, pair, 0.1, 0.3), module.Cell(4.0, 16.0, pair, 0.25, 0.3)]}
    new, (again,) = module.choose_next(cells, best=0.2, target=0.2, room=9)
    assert (new, again.C_from) == ([], 1.0)
    cells[pair].append(again._replace(closer=[], low=0.12))
    new, halves = module.choose_next(cells, best=0.2, target=0.2, room=9)
    assert (new, [(half.C_from, half.C_to) for half in halves]) == ([], [(1.0, 2.0), (2.0, 4.0)])
    cells[pair] += [half._replace(low=0.121) for half in halves]
    assert module.choose_next(cells, best=0.2, target=0.2, room=9) == ([2.0], [])
    cells[pair][-1] = cells[pair][-1]._replace(high=0.19)  # every C of it is better than the best one
    (better,), _ = module.choose_next(cells, best=0.2, target=0.2, room=9)
    assert better == pytest.approx(8**0.5)
    assert module.choose_next(cells, best=0.2, target=0.2, room=0) == ([], [])


def test_proof_is_in_the_answer_the_table_and_the_page(tmp_path: Path) -> None:
    words = ["tune", stored(tmp_path), tmp_path / "out", "--C", "1e-2:1:3", "--regret", "0.05", "--folds", "3"]
    answer = CliRunner().invoke(cli, [*map(str, words), "--report", str(tmp_path / "page.html")])
    assert answer.exit_code == 0, answer.output
    assert "proved: no C between 0.01 and 1 is better by more than" in answer.stdout
    assert json.loads((tmp_path / "out" / "table.json").read_text())["regret"]["is_proved"] is True
    page = (tmp_path / "page.html").read_text()
    assert "no C between 0.01 and 1" in page
    assert "proved for all C" in page


def test_proof_that_is_not_reached_says_how_far_it_came(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_FITS", 3)
    done = sv.tune(stored(tmp_path), tmp_path / "out", C=[1e-3, 1e3], regret=0.0, folds=3)
    assert done.regret is not None
    assert not done.regret.is_proved
    assert done.regret.fits == 3
    assert "that is not within the regret" in module.describe_regret(done.regret, done.best)


@pytest.mark.parametrize(
    "options",
    [
        {"loss": "hinge"},
        {"kernel": "rbf"},
        {"l1": 0.1},
        {"multi_class": "crammer_singer"},
        {"score": "auc"},
        {"search": "random"},
        {"refine": True},
        {"C": [1.0]},
    ],
    ids=str,
)
def test_regret_is_refused_where_nothing_can_be_proved(options: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="regret"):
        sv.tune(stored(tmp_path, rows=100), tmp_path / "out", **{"C": [0.1, 1.0], "regret": 0.01, "folds": 3} | options)
