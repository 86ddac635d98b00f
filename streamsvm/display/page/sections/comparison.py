"""Several runs beside each other: their gaps over time, their figures, and the settings in which they differ."""

from __future__ import annotations

from collections.abc import Sequence

from streamsvm.config.units import percent, seconds_text, size_text
from streamsvm.display.page.drawing.axis import durations, finite, logarithmic
from streamsvm.display.page.drawing.chart import ACROSS, SERIES, UPWARDS, Chart
from streamsvm.display.page.drawing.document import PagePart, table
from streamsvm.display.page.drawing.markup import Markup, element, shortened
from streamsvm.display.page.record import RunRecord
from streamsvm.display.page.sections.progress import LEAST
from streamsvm.display.page.sections.provenance import setting_text

MIB = 1 << 20
PLACES = {"model", "out", "report", "overwrite", "resume"}
"""Settings in which runs always differ, and which say nothing of them."""


def comparison(runs: Sequence[RunRecord]) -> list[PagePart]:
    """Return the parts of a page on several runs."""
    names = distinct([run.name for run in runs])
    parts = [PagePart("figures", "Figures", "", _figures(runs, names))]
    gaps = _gaps(runs, names)
    if gaps is not None:
        lead = "How far each run was from the optimum of its own problem, when."
        parts.append(PagePart("gap", "Gap over time", lead, gaps))
    return [*parts, PagePart("settings", "Settings that differ", "", _settings(runs, names))]


def distinct(names: Sequence[str]) -> list[str]:
    """Return the names, those that occur several times with a number."""
    return [f"{name} ({k + 1})" if list(names).count(name) > 1 else name for k, name in enumerate(names)]


def _figures(runs: Sequence[RunRecord], names: Sequence[str]) -> Markup:
    head = ("run", "solver", "gap", "readings", "time", "peak", "read", "held-out error", "test error", "AUC")
    return table(head, [_line(run, name) for run, name in zip(runs, names, strict=True)])


def _line(run: RunRecord, name: str) -> list[str]:
    end, e, solver = run.end, run.evaluation, run.plan.solver if run.plan is not None else "–"
    if end is None:
        last = run.passes[-1] if run.passes else None
        known = ["–"] * 4 if last is None else [percent(last.gap), str(last.number), seconds_text(last.seconds), "–"]
        return [shortened(name, 32), solver, *known, "–", "–", "–", "not finished"]
    held = end.validation["error"] if end.validation else None
    return [
        shortened(name, 32),
        solver,
        percent(end.gap) + ("" if end.gap <= end.tolerance else " (not certified)"),
        str(end.passes),
        seconds_text(end.seconds),
        f"{end.peak / MIB:.0f} MiB",
        size_text(end.bytes_read),
        "–" if held is None else run.error_text(held) + (" RMSE" if run.is_regression else ""),
        _test_error(run),
        "–" if e is None or e.AUC is None else f"{e.AUC:.4f}",
    ]


def _test_error(run: RunRecord) -> str:
    if run.number_evaluation is not None:
        return f"{run.number_evaluation.RMSE:.4g} RMSE"
    return "–" if run.evaluation is None else percent(1.0 - run.evaluation.accuracy, 4)


def _gaps(runs: Sequence[RunRecord], names: Sequence[str]) -> Markup | None:
    lines = [[(p.seconds, max(p.gap, LEAST)) for p in run.widest() if finite([p.gap])] for run in runs]
    known = [point for line in lines for point in line]
    if not known:
        return None
    x = durations(1.02 * max(s for s, _ in known), ACROSS)
    y = logarithmic(min(g for _, g in known), max(g for _, g in known), UPWARDS)
    says = "Relative gap over time: " + "; ".join(
        f"{n} {percent(p[-1][1])}" for n, p in zip(names, lines, strict=True) if p
    )
    chart = Chart("Relative gap over time", says, x, y, ("time", "gap / P"))
    for number, (name, line) in enumerate(zip(names[:SERIES], lines, strict=False)):
        if line:
            chart.line(line, number, shortened(name, 32), dots=len(line) <= 40)
    more = (
        [element("p", f"The first {SERIES} of {len(runs)} runs are drawn.", class_="lead")]
        if len(runs) > SERIES
        else []
    )
    return chart.drawn(*more)


def _settings(runs: Sequence[RunRecord], names: Sequence[str]) -> Markup:
    keys = list(dict.fromkeys(key for run in runs for key in run.settings if key not in PLACES))
    differing = [key for key in keys if len({setting_text(key, run.settings.get(key)) for run in runs}) > 1]
    if not differing:
        return element("p", "They were asked for the same.")
    rows = [(key, *(setting_text(key, run.settings.get(key)) for run in runs)) for key in differing]
    return table(("setting", *(shortened(name, 32) for name in names)), rows, kind="words")
