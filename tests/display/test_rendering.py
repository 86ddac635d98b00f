"""Pages in a browser: nothing is wider than the window, and no words lie on each other. Skipped where there is no Chromium."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamsvm.jobs.apply.evaluate import evaluate
from streamsvm.jobs.apply.options import EvaluateJob
from streamsvm.jobs.common_options import ReportJob, SynthJob
from streamsvm.jobs.fit.driver import fit
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.report import report
from streamsvm.jobs.synth import synth
from tools.pages import render

PROGRAM = render.browser()
pytestmark = pytest.mark.skipif(PROGRAM is None, reason="there is no Chromium to look with")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a fit whose names are long."""
    root = tmp_path_factory.mktemp("rendering")
    store, model = root / ("a-very-long-name-of-a-store-" * 4 + ".zarr"), root / ("model-" * 20 + ".ssvm")
    synth(SynthJob("susy", str(store), rows=3000, chunk_bytes=32 << 10))
    fit(FitJob(str(store), str(model), C=(0.1, 1.0), validation=0.2))
    evaluate(EvaluateJob(str(model), (str(store),)))
    report(ReportJob((str(model),), str(root / "page.html")))
    return root / "page.html"


@pytest.mark.parametrize("width", render.WIDTHS)
def test_page_fits_the_window(page: Path, width: int) -> None:
    assert PROGRAM is not None
    assert render.faults(PROGRAM, page, width) == []


def test_page_what_does_not_fit_is_found(page: Path, tmp_path: Path) -> None:
    assert PROGRAM is not None
    wide = tmp_path / "wide.html"
    words = '<figure><svg viewBox="0 0 99 40"><text x="9" y="20">one</text><text x="9" y="21">two</text></svg></figure>'
    wide.write_text(f'<!doctype html><p style="width:900px">wide</p>{words}', encoding="utf-8")
    found = render.faults(PROGRAM, wide, 380)
    assert any("px wide" in fault for fault in found)
    assert "'two' lies on 'one'" in found
