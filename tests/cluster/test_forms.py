"""Every form of a problem on real workers: the bits of one process, numbers, one class and columns that are left out among them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client

from streamsvm.cluster import using
from streamsvm.engine.executor import SerialExecutor
from streamsvm.jobs.apply.evaluate import EvaluateResult, evaluate
from streamsvm.jobs.apply.options import EvaluateJob
from streamsvm.jobs.fit.driver import fit
from streamsvm.jobs.fit.options import FitJob
from tests.forms import CLASSES, FORMS, NUMBERS, SEVERAL, stored

MORE: dict[str, dict[str, Any]] = {
    "logistic": {"options": {"sample": 500}},
    "curves": {"options": {"sample": 500}},
    "tube": {"solver": "dcd", "max_passes": 8},
}
"""What some forms are asked for beside: paths that such few rows do not take by themselves."""


def numbers_of(result: EvaluateResult) -> dict[str, float]:
    """What was measured, but for how long it took."""
    return {name: x for name, x in result.evaluation._asdict().items() if isinstance(x, float)}


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Rows in several chunks."""
    place = tmp_path_factory.mktemp("forms")
    return {kind: stored(kind, 3000, place / kind.replace(" ", "-"), 8192) for kind in (CLASSES, SEVERAL, NUMBERS)}


@pytest.mark.parametrize("form", FORMS)
def test_cluster_fit_of_every_form_has_the_bits_of_one_process(
    stores: dict[str, Path], tmp_path: Path, client: Client, form: str
) -> None:
    kind, settings = FORMS[form]
    store = str(stores[kind])
    more = {"groups": 4, "tolerance": 1e-2, **settings, **MORE.get(form, {})}
    job = FitJob(store, str(tmp_path / "a"), **more)
    alone = fit(job, executor=SerialExecutor())
    with using(client) as executor:
        there = fit(replace(job, model=str(tmp_path / "b")), executor=executor)
        rated = evaluate(EvaluateJob(str(tmp_path / "b"), (store,)), executor=executor)
    np.testing.assert_array_equal(there.model.weights, alone.model.weights)
    for mine, other in zip(there.training.runs, alone.training.runs, strict=True):
        assert mine.certificate is not None
        assert other.certificate is not None
        assert replace(mine.certificate, facts={}) == replace(other.certificate, facts={})  # which have seconds, too
    here = evaluate(EvaluateJob(str(tmp_path / "a"), (store,)))
    assert numbers_of(rated) == pytest.approx(numbers_of(here), rel=1e-12)
