"""What a page begins with: one sentence, the interval the optimum lies in, and the figures people ask for first."""

from __future__ import annotations

import math

from streamsvm.config.units import memory_text, percent, seconds_text, size_text
from streamsvm.display.page.drawing.axis import grouped
from streamsvm.display.page.drawing.document import folded
from streamsvm.display.page.drawing.markup import Markup, element, joined
from streamsvm.display.page.files import End
from streamsvm.display.page.record import RunRecord

ENDS = {
    "converged": "",
    "patience": "It ended when the error on held-out rows had not fallen for long. ",
    "max passes": "It ended because all passes were made. ",
    "time limit": "It ended at its time limit. ",
    "asked to end": "The program that ran it asked for its end. ",
    "stalled": "The solver stalled. ",
    "support limit": "The model may not have more support rows. ",
}
WIDEST = 4.0
"""Times the tolerance that a gap is drawn."""


def opening(run: RunRecord) -> Markup:
    """Return the sentence, the interval and the tiles of a fit."""
    if run.end is None:
        return _cut_short(run)
    end = run.end
    certified = end.gap <= end.tolerance
    parts = [element("p", *_sentence(run, end), class_="verdict" if certified else "verdict open")]
    parts += [_interval(end), _tiles(run, end), *_warnings(run)]
    return joined(parts)


def figure_text(value: float) -> str:
    """Return a number of a certificate: seven digits show where P and D part."""
    return f"{value:,.7g}".replace(",", "\u202f").replace("-", "−")


def _sentence(run: RunRecord, end: End) -> list[str | Markup]:
    one = len(end.problems) <= 1
    which = "" if one else f" (the widest of {len(end.problems)} problems)"
    certified = end.gap <= end.tolerance
    found: list[str | Markup] = [
        element("strong", "Certified. " if certified else "Not certified. "),
        ENDS.get(end.status, f"It ended: {end.status}. "),
        f"No model can have an objective below {figure_text(end.dual)}; this one has {figure_text(end.primal)}{which}, ",
        "a gap of ",
        element("strong", percent(end.gap)),
        f", where {percent(end.tolerance)} was asked for, ",
        f"after {_count(end.passes, 'reading')} of the data in {seconds_text(end.seconds)}.",
    ]
    if run.plan is not None and run.plan.rows:
        found.append(f" {figure_text(run.plan.rows)} rows of {_count(run.plan.columns, 'column')}.")
    return found


def _count(number: int, what: str) -> str:
    return f"{grouped(number)} {what}" + ("" if number == 1 else "s")


def _interval(end: End) -> Markup:
    """The interval [D, P] on a scale of what was asked for: the gap as a part of the tolerance."""
    width, left, right = 900, 8, 892
    share = end.gap / end.tolerance if end.tolerance > 0 else math.inf
    scale = max(1.0, min(share, WIDEST)) * 1.04

    def place(x: float) -> float:
        return left + (right - left) * min(x / scale, 1.0)

    state = "f2" if share <= 1 else "f1"
    says = f"The gap is {share:.2g} of what was asked for; the optimum lies between D and P."
    marks = [
        element("rect", class_="bars f5", x=left, y=16, width=place(1.0) - left, height=12, rx=3),
        element("rect", class_=state, x=left, y=16, width=max(2.0, place(share) - left), height=12, rx=3),
        element("line", class_="level", x1=place(1.0), x2=place(1.0), y1=11, y2=33),
    ]
    svg = element("svg", *marks, viewBox=f"0 8 {width} 28", class_="wide", role="img", aria_label=says)
    text = f"The optimum lies in the filled part, {percent(end.gap)} of P wide; the dashed line is the tolerance, {percent(end.tolerance)}."
    if share > WIDEST:
        text += f" The gap, {share:.2g} times as wide, does not fit the drawing."
    return element("figure", svg, element("p", text, class_="lead"))


def _tiles(run: RunRecord, end: End) -> Markup:
    found = [
        ("gap", percent(end.gap), f"of {percent(end.tolerance)} asked for"),
        ("readings", str(end.passes), f"{size_text(end.bytes_read)} read"),
        ("time", seconds_text(end.seconds), f"{round(100 * end.compute_share)} % computing"),
        ("peak memory", memory_text(end.peak), f"of {memory_text(end.limit)}"),
    ]
    if run.plan is not None:
        found.append(("solver", run.plan.solver, str(run.settings.get("loss", "")).replace("_", " ")))
    held = end.validation
    if held is not None and isinstance(held.get("error"), float):
        found.append((f"held-out {run.error_name}", run.error_text(held["error"]), f"C = {held.get('C', 0):g}"))
    if run.evaluation is not None:
        e = run.evaluation
        found.append(("test error", percent(1.0 - e.accuracy, 4), f"{figure_text(e.rows)} rows"))
        if e.AUC is not None:
            found.append(("AUC", f"{e.AUC:.4f}", f"within {e.AUC_error or 0:.1g}"))
    if run.number_evaluation is not None:
        n = run.number_evaluation
        found.append(("test RMSE", f"{n.RMSE:.4g}", f"{figure_text(n.rows)} rows"))
        if n.R2 is not None:
            found.append(("R2", f"{n.R2:.4f}", f"targets spread by {n.target_spread:.4g}"))
    return tiles(found)


def tiles(found: list[tuple[str, str, str]]) -> Markup:
    """Return figures side by side: what it is, the figure, and what it is to be seen against."""
    return element(
        "dl",
        *(
            element("div", element("dt", name), element("dd", value, element("small", more)))
            for name, value, more in found
        ),
        class_="tiles",
    )


def _warnings(run: RunRecord) -> list[Markup]:
    if run.facts is None:
        return []
    found = [_said(text, "warn") for text in run.facts.warnings]
    notices = [_said(text, "warn mild") for text in run.facts.notices]
    return found + (notices if len(notices) < 3 else [folded(f"{len(notices)} notices", *notices)])


def _said(text: str, kind: str) -> Markup:
    """A warning, its next step on a line of its own."""
    what, _, step = text.partition("; next: ")
    then = [element("br"), element("strong", "Next: "), step] if step else []
    return element("p", what, *then, class_=kind)


def _cut_short(run: RunRecord) -> Markup:
    """What is known of a run that has left no certificate."""
    known = max(run.passes, key=lambda one: one.number, default=None)
    found: list[str | Markup] = [element("strong", "Not finished. ")]
    again = ""
    if run.stopped is not None:
        what, _, again = run.stopped.message.partition(" Resume: ")
        found.append(f"{what.rstrip('.')}. ")
    else:
        found.append("The log has no end: the run is under way, or was killed. ")
    if known is not None:
        found.append(
            f"After {_count(known.number, 'reading')}, at {seconds_text(known.seconds)}, the gap was {percent(known.gap)}."
        )
    parts = [element("p", *found, class_="verdict open")]
    if again:
        parts.append(element("p", element("strong", "Next: "), "go on from the checkpoint.", class_="warn"))
        parts.append(element("pre", element("code", again)))
    if run.stopped is not None and run.stopped.hint:
        parts.append(element("p", element("strong", "Next: "), run.stopped.hint, class_="warn"))
    return joined(parts)
