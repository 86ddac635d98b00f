"""How a fit came to its certificate: the gap over readings, the interval of the optimum over time, held-out error."""

from __future__ import annotations

from streamsvm.config.units import percent
from streamsvm.display.page.drawing.axis import Axis, durations, finite, linear, logarithmic, whole
from streamsvm.display.page.drawing.chart import ACROSS, SERIES, UPWARDS, Chart, row
from streamsvm.display.page.drawing.document import PagePart, folded, table
from streamsvm.display.page.drawing.markup import Markup, element
from streamsvm.display.page.files import HeldOut, Pass
from streamsvm.display.page.record import RunRecord

LEAST = 1e-12
"""The smallest gap that has a place on the axis."""
THIN = 12
"""Problems that get a line of their own behind the widest."""
ROWS = 60
"""Passes in the table."""


def progress(run: RunRecord) -> PagePart | None:
    """Return the part on the gap; None without passes."""
    widest = run.widest()
    if not widest:
        return None
    lead = (
        "P is the objective of the model at hand and falls; D is a bound below which no model can be and rises. The optimum "
        "lies between them."
    )
    gap, interval = _gap(run, widest), _interval(run)
    return PagePart("gap", "Gap", lead, element("div", row(gap, interval), _numbers(widest)))


def _gap(run: RunRecord, widest: list[Pass]) -> Markup | None:
    values = [max(gap, LEAST) for gap in finite(one.gap for one in run.passes)]
    if not values:
        return None
    tolerance = run.end.tolerance if run.end is not None else float(run.job.get("tolerance") or 0.0)
    known = [*values, tolerance] if tolerance > 0 else values
    y = logarithmic(max(min(known), LEAST), max(known), UPWARDS)
    x = whole(widest[-1].number, ACROSS)
    says = f"Relative gap over {widest[-1].number} readings, from {percent(values[0])} to {percent(widest[-1].gap)}."
    chart = Chart("Relative gap over readings", says, x, y, ("readings of the data", "gap / P"))
    problems = sorted({one.problem for one in run.passes})
    if 1 < len(problems) <= THIN:
        for number in problems:
            points = [(float(p.number), max(p.gap, LEAST)) for p in run.of_problem(number) if p.gap == p.gap]
            chart.line(points, number % SERIES, kind="thin")
    points = [(float(p.number), max(p.gap, LEAST)) for p in widest if finite([p.gap])]
    chart.line(points, 0, "the widest of all problems" if len(problems) > 1 else "", dots=len(points) <= 40)
    if tolerance > 0:
        chart.level(tolerance, f"asked for: {percent(tolerance)}", below=y.at(tolerance) < 60)
    return chart.drawn()


def _interval(run: RunRecord) -> Markup | None:
    """[D, P] over time, of the problem that was widest at the end."""
    last = run.passes[-1].number
    number = max((p for p in run.passes if p.number == last), key=lambda p: p.gap).problem
    passes = [p for p in run.of_problem(number) if len(finite([p.primal, p.dual])) == 2]
    if not passes:
        return None
    end = next((p for p in run.end.problems if p.problem == number), None) if run.end is not None else None
    seconds = [p.seconds for p in passes]
    high, low = [p.primal for p in passes], [p.dual for p in passes]
    if end is not None and run.end is not None:
        seconds, high, low = [*seconds, max(run.end.seconds, seconds[-1])], [*high, end.primal], [*low, end.dual]
    y = _around(high, low)
    several = "" if run.plan is None or run.plan.problems == 1 else f", problem {number + 1} of {run.plan.problems}"
    says = (
        f"The interval of the optimum over time: from {low[0]:.6g} .. {high[0]:.6g} to {low[-1]:.6g} .. {high[-1]:.6g}."
    )
    x = durations(max(seconds) * 1.02, ACROSS)
    chart = Chart(f"Where the optimum lies, over time{several}", says, x, y, ("time", "objective"))
    upper, lower = list(zip(seconds, high, strict=True)), list(zip(seconds, low, strict=True))
    chart.band(lower, upper, 0)
    chart.line(upper, 1, "P, the model at hand", dots=len(passes) <= 40)
    chart.line(lower, 0, "D, the bound", dots=len(passes) <= 40)
    return chart.drawn()


def _around(high: list[float], low: list[float]) -> Axis:
    """The axis for P and D: of the early values, which can be far off, as much as leaves the late ones to be seen."""
    final = high[-1]
    half = (len(high) - 1) // 2
    reach = max(high[half] - low[half], 3.0 * (high[-1] - low[-1]), 1e-6 * abs(final), 1e-300) * 1.6
    bottom, top = max(min(low), final - reach), min(max(high), final + 0.7 * reach)
    margin = 0.06 * (top - bottom) or abs(final) or 1.0
    return linear(bottom - margin, top + margin, UPWARDS)


def _numbers(widest: list[Pass]) -> Markup:
    rows = [
        (str(p.number), f"{p.seconds:.2f}", f"{p.primal:.8g}", f"{p.dual:.8g}", percent(p.gap)) for p in widest[-ROWS:]
    ]
    return folded("Numbers", table(("reading", "seconds", "P", "D", "gap"), rows))


def held_out(run: RunRecord) -> PagePart | None:
    """Return the part on the error on held-out rows; None without such."""
    found = [look for look in run.held_out if finite([look.error])]
    if not found:
        return None
    costs = sorted({look.C for look in found})
    low, high = min(look.error for look in found), max(look.error for look in found)
    margin = 0.08 * (high - low) or 0.01
    in_percent = not run.is_regression
    margin = margin if in_percent else 0.08 * (high - low) or 0.01 * high or 1.0
    y = linear(max(0.0, low - margin), high + margin, UPWARDS, text=lambda v: f"{100 * v if in_percent else v:.3g}")
    x = whole(max(look.number for look in found), ACROSS)
    first, best, name = run.error_text(found[0].error), run.error_text(low), run.error_name
    title = f"{name[0].upper()}{name[1:]} on held-out rows"
    says = f"{title} over readings: {first} first, at best {best}."
    chart = Chart(title, says, x, y, ("readings of the data", f"{name}, %" if in_percent else name))
    for number, C in enumerate(costs[:SERIES]):
        points = [(float(look.number), look.error) for look in found if look.C == C]
        chart.line(points, number, f"C = {C:g}", dots=len(points) <= 40)
    lead = "Rows that training does not see. The model that was written is that of the reading where this was least."
    if len(costs) > SERIES:
        lead += f" The first {SERIES} of {len(costs)} values of C are drawn."
    rows = [(f"{C:g}", str(b.number), run.error_text(b.error)) for C in costs for b in [_best(found, C)]]
    return PagePart(
        "held-out", f"Held-out {name}", lead, row(chart.drawn(), table(("C", "best at reading", name), rows))
    )


def _best(found: list[HeldOut], C: float) -> HeldOut:
    return min((look for look in found if look.C == C), key=lambda look: look.error)
