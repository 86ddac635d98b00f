"""What a fit tells of the scales of columns."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from streamsvm.engine.training import Training
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.results import remarks
from streamsvm.jobs.fit.results.remarks import APART, scale_notice
from streamsvm.types import Certificate, Status


@pytest.mark.parametrize(
    ("scales", "told"),
    [
        ([1.0], ""),
        ([1.0, APART], ""),
        ([1.0, 2.0 * APART], "column 0 1, column 1 "),
        ([2.0 * APART, 0.0, np.nan, 1.0], "column 3 1, column 0 "),
        ([0.0, 1.0, np.inf], ""),
    ],
)
def test_columns_whose_scales_are_far_apart_are_named(
    scales: list[float], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two are enough; constant columns and those without a scale do not count."""
    monkeypatch.setattr(remarks, "_scales", lambda _: np.array(scales))
    store: Any = SimpleNamespace(facts={})
    found = scale_notice(FitJob("s", "m"), store)
    assert len(found) == bool(told)
    assert all(told in line for line in found)
    assert scale_notice(FitJob("s", "m", standardize=True), store) == []
    store.facts["names"] = ["first", "second", "third", "fourth"]
    assert all(
        "'" in line and "column" not in line.partition(": ")[2].partition(";")[0]
        for line in scale_notice(FitJob("s", "m"), store)
    )


@pytest.mark.parametrize(
    ("asked", "support", "points", "told"),
    [
        (None, 9, None, False),
        (1, 2, None, True),
        (1, 1, None, False),
        (4, 5, None, True),
        (5, 5, None, False),
        (4, 5, 4, False),
    ],
)
def test_a_model_is_too_long_where_no_pass_chose_its_rows(
    asked: int | None, support: int, points: int | None, told: bool
) -> None:
    certificate = Certificate(1.0, 0.0, facts={"support": support} | ({} if points is None else {"points": points}))
    job = FitJob("s", "m", max_support=asked)
    assert remarks._too_long(job, certificate) == told
    assert not remarks._too_long(job, Certificate(1.0, 0.0))


def test_a_fit_without_its_certificate_says_the_largest_gap_of_its_problems() -> None:
    gaps = [SimpleNamespace(certificate=Certificate(1.0, 1.0 - gap)) for gap in (0.01, 0.25, 0.03)]
    runs: Any = [*gaps, SimpleNamespace(certificate=None)]
    training = Training(runs, Status.PASSES)
    record: Any = SimpleNamespace(request=None, problems=[SimpleNamespace(kernel=None)])
    store: Any = SimpleNamespace(facts={})
    found = remarks.uncertified(FitJob("s", "m", standardize=True, tolerance=1e-3), store, record, training)
    assert len(found) == 1
    assert "gap 25 % where 0.1 % was asked for" in found[0]
    training.status = Status.CONVERGED
    assert remarks.uncertified(FitJob("s", "m"), store, record, training) == ()


def test_the_scale_of_a_column_is_its_deviation_or_of_sparse_rows_its_largest_entry() -> None:
    found = SimpleNamespace(M2=np.array([40.0, 90.0]), minimum=np.array([-7.0, -1.0]), maximum=np.array([2.0, 3.0]))
    for dense, expected in ((True, [2.0, 3.0]), (False, [7.0, 3.0])):
        store: Any = SimpleNamespace(layout=SimpleNamespace(dense=dense, rows=10), statistics=lambda: found)
        assert remarks._scales(store).tolist() == expected
