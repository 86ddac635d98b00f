"""Which parts a page has, in the order in which people read."""

from __future__ import annotations

import html
from collections.abc import Sequence

from streamsvm.display.page.drawing.document import PagePart, document
from streamsvm.display.page.drawing.markup import Markup, element
from streamsvm.display.page.record import RunRecord
from streamsvm.display.page.sections.comparison import comparison, distinct
from streamsvm.display.page.sections.opening import opening
from streamsvm.display.page.sections.progress import held_out, progress
from streamsvm.display.page.sections.provenance import provenance
from streamsvm.display.page.sections.quality import evaluation, margins
from streamsvm.display.page.sections.reliability import reliability
from streamsvm.display.page.sections.resources import resources
from streamsvm.display.page.sections.search import heat, path, search_opening
from streamsvm.display.page.sections.weights import coefficients, drift


def page_of(runs: Sequence[RunRecord]) -> str:
    """Return the page of a run or of a search, or a comparison of several runs, as HTML."""
    if len(runs) > 1:
        return _of_several(runs)
    run = runs[0]
    if run.search is not None:
        parts = [path(run.search), heat(run.search), provenance(run)]
        return document(
            run.name, "A search for settings by cross-validation", search_opening(run.search), _there(parts)
        )
    parts = [
        progress(run),
        held_out(run),
        resources(run),
        margins(run),
        evaluation(run),
        reliability(run),
        coefficients(run),
        drift(run),
        provenance(run),
    ]
    return document(run.name, _subtitle(run), opening(run), _there(parts))


def in_a_frame(page: str) -> Markup:
    """Return a page as an element that a notebook shows: in a frame of its own, which may run nothing."""
    content = Markup(html.escape(page))  # it is markup, every sign of which has to arrive
    return element("iframe", srcdoc=content, sandbox="", title="the page of a run", width="100%", height="900")


def _there(parts: Sequence[PagePart | None]) -> list[PagePart]:
    return [part for part in parts if part is not None]


def _subtitle(run: RunRecord) -> str:
    """What was fitted, in a line."""
    known = [str(run.job.get("loss", "")).replace("_", " "), str(run.job.get("kernel") or "linear")]
    if run.plan is not None:
        costs = list(dict.fromkeys(run.plan.C))
        known.append(f"C = {', '.join(f'{C:g}' for C in costs[:6])}" + (", …" if len(costs) > 6 else ""))
        known.append(run.plan.solver)
    store = run.facts.store.path if run.facts is not None else str(run.job.get("store", ""))
    return " · ".join([text for text in known if text] + ([f"trained on {store}"] if store else []))


def _of_several(runs: Sequence[RunRecord]) -> str:
    names = distinct([run.name for run in runs])
    certified = [run.end is not None and run.end.gap <= run.end.tolerance for run in runs]
    said = f"{sum(certified)} of {len(runs)} runs are certified to the gap that was asked for."
    opening_ = element("p", said, class_="verdict" if all(certified) else "verdict open")
    return document(" · ".join(names[:4]), f"A comparison of {len(runs)} runs", opening_, comparison(runs))
