"""Pages in HTML: of one fit, of one search, or of several runs side by side.

``build_page`` decides which sections a page has, in the order in which people read. Every page ends with its provenance: the command that
repeats the run, the data, the settings, the machine.
"""

from __future__ import annotations

import html
from collections.abc import Sequence

from streamsvm.aliases import ByName
from streamsvm.config.units import exact_size_text, percent, seconds_text, size_text
from streamsvm.display.chart import (
    ACROSS,
    SERIES,
    UPWARDS,
    Chart,
    keep_finite,
    log_axis,
    time_axis,
)
from streamsvm.display.fit_page import MIB, MIN_GAP, draw_training, summarize_fit
from streamsvm.display.html import Markup, PagePart, build_document, element, fold, shorten, table
from streamsvm.display.model_figures import draw_columns, draw_data
from streamsvm.display.quality_page import draw_evaluation, draw_margins, draw_reliability, draw_worst_errors
from streamsvm.display.read_record import RunRecord
from streamsvm.display.search_page import draw_error_tables, draw_path, summarize_search

MAX_VALUE_LENGTH = 400
"""Longest text of a setting."""
ABSENT = "–"
NESTED = "..."
"""Shown for nested values, which no setting has: a file may contain anything, however deep."""
SIZES = ("memory", "chunk_bytes")
"""Settings in bytes."""
IGNORED_SETTINGS = {"model", "out", "report", "overwrite", "resume"}
"""Settings that differ between any two runs and say nothing about them."""


def build_page(runs: Sequence[RunRecord]) -> str:
    """Return the page of a run or of a search, or a comparison of several runs, as HTML."""
    if len(runs) > 1:
        return _build_comparison(runs)
    run = runs[0]
    if run.search is not None:
        parts = [draw_path(run.search), draw_error_tables(run.search), list_provenance(run)]
        return build_document(
            run.name, "A search for settings by cross-validation", summarize_search(run.search), _keep_present(parts)
        )
    parts = [
        draw_evaluation(run),
        draw_reliability(run),
        draw_margins(run),
        draw_columns(run),
        draw_data(run),
        draw_worst_errors(run),
        draw_training(run),
        list_provenance(run),
    ]
    return build_document(run.name, _describe_fit(run), summarize_fit(run), _keep_present(parts))


def _build_comparison(runs: Sequence[RunRecord]) -> str:
    names = number_names([run.name for run in runs])
    certified = [run.end is not None and run.end.gap <= run.end.tolerance for run in runs]
    said = f"{sum(certified)} of {len(runs)} runs are certified to the gap that was asked for."
    opening_ = element("p", said, class_="verdict" if all(certified) else "verdict open")
    return build_document(" · ".join(names[:4]), f"A comparison of {len(runs)} runs", opening_, compare_runs(runs))


def frame_page(page: str) -> Markup:
    """Return a page as an element for a notebook: a frame that may execute nothing."""
    content = Markup(html.escape(page))  # markup, all of whose characters must arrive
    return element("iframe", srcdoc=content, sandbox="", title="the page of a run", width="100%", height="900")


def _describe_fit(run: RunRecord) -> str:
    """Return what was fitted, in a line."""
    known = [str(run.job.get("loss", "")).replace("_", " "), str(run.job.get("kernel") or "linear")]
    if run.plan is not None:
        costs = list(dict.fromkeys(run.plan.C))
        known.append(f"C = {', '.join(f'{C:g}' for C in costs[:6])}" + (", …" if len(costs) > 6 else ""))
        known.append(run.plan.solver)
    store = run.facts.store.path if run.facts is not None else str(run.job.get("store", ""))
    return " · ".join([text for text in known if text] + ([f"trained on {store}"] if store else []))


def _keep_present(parts: Sequence[PagePart | None]) -> list[PagePart]:
    return [part for part in parts if part is not None]


def list_provenance(run: RunRecord) -> PagePart:
    """Return the section that says how the model was made."""
    rows = list(_origin_rows(run))
    parts = []
    if run.began is not None:
        parts.append(element("pre", element("code", run.began.command)))
    parts.append(table(("what", "value"), rows, kind="words"))
    if run.settings:
        parts.append(fold("All settings", table(("setting", "value"), format_settings(run.settings), kind="words")))
    if run.unread:
        text = f"Could not be read, and is left out: {', '.join(run.unread)}."
        parts.append(element("p", text, class_="warn"))
    lead = "The same command on the same data gives the same model, to the last bit."
    return PagePart("provenance", "Where it comes from", lead if run.began is not None else "", element("div", *parts))


def _origin_rows(run: RunRecord) -> list[tuple[str, str]]:
    found = []
    if run.facts is not None:
        total = max(sum(n for _, n in run.facts.store.classes), 1)
        shares = ", ".join(f"{shorten(c, 20)} {100 * n / total:.1f} %" for c, n in run.facts.store.classes[:8])
        found += [("store", run.facts.store.path), ("digest", run.facts.store.digest), ("classes", shares)]
        points = run.facts.model.get("points")
        if points is not None:
            found.append(("model", f"a sum over {points} kernel values"))
    if run.search is not None:
        found.append(("digest of the store", run.search.store))
    if run.plan is not None:
        found.append(("solver", f"{run.plan.solver}: {run.plan.why}"))
        if run.plan.features:
            found.append(("features", ", ".join(f"{k} {v}" for k, v in run.plan.features.items())[:MAX_VALUE_LENGTH]))
    if run.began is not None:
        found.append(("begun", f"{run.began.at} UTC"))
        found.append(("made with", ", ".join(f"{k} {v}" for k, v in run.began.machine.items())[:MAX_VALUE_LENGTH]))
    return found


def format_settings(settings: ByName) -> list[tuple[str, str]]:
    """Return the settings that have a value, as text."""
    shown = [(name, format_setting(name, value)) for name, value in settings.items()]
    return [(name, text) for name, text in shown if text != ABSENT]


def format_setting(name: str, value: object) -> str:
    """Return a setting as people write it."""
    if value in (None, {}, [], ""):
        return ABSENT
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name in SIZES and isinstance(value, int):
        return exact_size_text(value)
    if isinstance(value, list):
        parts = (NESTED if isinstance(item, list | dict) else format_setting(name, item) for item in value)
        return ", ".join(parts)[:MAX_VALUE_LENGTH]
    if isinstance(value, dict) and any(isinstance(item, list | dict) for item in value.values()):
        return NESTED
    return f"{value:g}" if isinstance(value, float) else str(value)[:MAX_VALUE_LENGTH]


def compare_runs(runs: Sequence[RunRecord]) -> list[PagePart]:
    """Return the sections of a page on several runs."""
    names = number_names([run.name for run in runs])
    parts = [PagePart("figures", "Figures", "", _figures_table(runs, names))]
    gaps = _draw_gaps(runs, names)
    if gaps is not None:
        lead = "How far each run was from the optimum of its own problem, when."
        parts.append(PagePart("gap", "Gap over time", lead, gaps))
    return [*parts, PagePart("settings", "Settings that differ", "", _settings_table(runs, names))]


def number_names(names: Sequence[str]) -> list[str]:
    """Return the names, with numbers where a name occurs several times."""
    return [f"{name} ({k + 1})" if list(names).count(name) > 1 else name for k, name in enumerate(names)]


def _figures_table(runs: Sequence[RunRecord], names: Sequence[str]) -> Markup:
    head = ("run", "solver", "gap", "readings", "time", "peak", "read", "held-out score", "test error", "AUC")
    return table(head, [_run_row(run, name) for run, name in zip(runs, names, strict=True)])


def _run_row(run: RunRecord, name: str) -> list[str]:
    end, e, solver = run.end, run.evaluation, run.plan.solver if run.plan is not None else "–"
    if end is None:
        last = run.passes[-1] if run.passes else None
        known = ["–"] * 4 if last is None else [percent(last.gap), str(last.number), seconds_text(last.seconds), "–"]
        return [shorten(name, 32), solver, *known, "–", "–", "–", "not finished"]
    held, measure = run.held_out_score(), run.measure
    return [
        shorten(name, 32),
        solver,
        percent(end.gap) + ("" if end.gap <= end.tolerance else " (not certified)"),
        str(end.passes),
        seconds_text(end.seconds),
        f"{end.peak / MIB:.0f} MiB",
        size_text(end.bytes_read),
        "–" if held is None else measure.full_text(held) + ("" if measure.percent else f" {measure.title}"),
        _test_error(run),
        "–" if e is None or e.AUC is None else f"{e.AUC:.4f}",
    ]


def _test_error(run: RunRecord) -> str:
    if run.number_evaluation is not None:
        return f"{run.number_evaluation.RMSE:.4g} RMSE"
    return "–" if run.evaluation is None else percent(1.0 - run.evaluation.accuracy, 4)


def _draw_gaps(runs: Sequence[RunRecord], names: Sequence[str]) -> Markup | None:
    lines = [[(p.seconds, max(p.gap, MIN_GAP)) for p in run.widest() if keep_finite([p.gap])] for run in runs]
    known = [point for line in lines for point in line]
    if not known:
        return None
    x = time_axis(1.02 * max(s for s, _ in known), ACROSS)
    y = log_axis(min(g for _, g in known), max(g for _, g in known), UPWARDS)
    says = "Relative gap over time: " + "; ".join(
        f"{n} {percent(p[-1][1])}" for n, p in zip(names, lines, strict=True) if p
    )
    chart = Chart("Relative gap over time", says, x, y, ("time", "gap / P"))
    for number, (name, line) in enumerate(zip(names[:SERIES], lines, strict=False)):
        if line:
            chart.line(line, number, shorten(name, 32), dots=len(line) <= 40)
    more = (
        [element("p", f"The first {SERIES} of {len(runs)} runs are drawn.", class_="lead")]
        if len(runs) > SERIES
        else []
    )
    return chart.render(*more)


def _settings_table(runs: Sequence[RunRecord], names: Sequence[str]) -> Markup:
    keys = list(dict.fromkeys(key for run in runs for key in run.settings if key not in IGNORED_SETTINGS))
    differing = [key for key in keys if len({format_setting(key, run.settings.get(key)) for run in runs}) > 1]
    if not differing:
        return element("p", "Their settings are the same.")
    rows = [(key, *(format_setting(key, run.settings.get(key)) for run in runs)) for key in differing]
    return table(("setting", *(shorten(name, 32) for name in names)), rows, kind="words")
