"""What a fit took: memory by term against the budget, and time by what was waited for."""

from __future__ import annotations

from bisect import bisect_left

from streamsvm.config.units import memory_text, seconds_text, size_text
from streamsvm.display.page.drawing.axis import durations, linear, sizes
from streamsvm.display.page.drawing.chart import ACROSS, UPWARDS, Chart, row
from streamsvm.display.page.drawing.document import PagePart, folded, table
from streamsvm.display.page.drawing.markup import Markup, element
from streamsvm.display.page.files import Moment, Planned, PlannedTerm
from streamsvm.display.page.record import RunRecord

MIB = 1 << 20
INK = 9
"""The color of text, as a series."""
SMALL = 0.02
"""Of the whole plan: terms below are drawn as one."""
SHOWN = 5
"""Terms that are drawn by themselves."""
NEAR = 1.6
"""A budget within so many times what is drawn is drawn too."""
BINS = 60


def resources(run: RunRecord) -> PagePart | None:
    """Return the part on memory and time; None where neither was recorded."""
    figures = [figure for figure in (_memory(run), _waiting(run), _rate(run)) if figure is not None]
    if not figures:
        return None
    lead = "The memory that was planned before the first row was read and that was measured, and where the time went."
    below = [] if run.plan is None else [_plan_table(run.plan)]
    return PagePart("resources", "Memory and time", lead, element("div", row(*figures), *below))


def _memory(run: RunRecord) -> Markup | None:
    plan, moments = run.plan, run.moments
    if plan is None or not moments:
        return None
    peak = max([m.memory for m in moments] + ([run.end.peak] if run.end is not None else []))
    drawn = max(plan.total, peak)
    near = plan.limit <= NEAR * drawn
    top = 1.08 * (plan.limit if near else drawn)
    x, y = durations(_span(run), ACROSS), sizes(top, UPWARDS)
    says = f"Anonymous memory over time: {peak / MIB:.0f} MiB at most, of {plan.total / MIB:.0f} planned and {plan.limit / MIB:.0f} allowed."
    chart = Chart("Memory by term, against the budget", says, x, y, ("time", "memory"))
    floor = 0.0
    for series, term in enumerate(_largest(plan)):
        ends = [(x.low, floor), (x.high, floor)]
        floor += term.bytes
        chart.band(ends, [(a, floor) for a, _ in ends], series % 6, f"{term.term} {term.bytes / MIB:.0f}", kind="stack")
    chart.line([(m.seconds, float(m.memory)) for m in moments], INK, f"measured, at most {peak / MIB:.0f} MiB")
    if near:
        chart.level(float(plan.limit), f"budget {memory_text(plan.limit)}")
        return chart.drawn()
    return chart.drawn(element("p", f"The budget, {memory_text(plan.limit)}, is above the drawing.", class_="lead"))


def _span(run: RunRecord) -> float:
    latest = max((m.seconds for m in run.moments), default=0.0)
    return max(latest, run.end.seconds if run.end is not None else 0.0)


def _largest(plan: Planned) -> list[PlannedTerm]:
    """The largest terms, in the order of the plan, then the sum of the rest."""
    known = sorted(plan.memory, key=lambda term: -term.bytes)[:SHOWN]
    shown = [t for t in plan.memory if t in known and t.bytes > SMALL * plan.total]
    rest = plan.total - sum(t.bytes for t in shown)
    return [*shown, PlannedTerm("the rest", rest)] if rest > 0 else shown


def _plan_table(plan: Planned) -> Markup:
    rows = [(t.term, f"{t.bytes / MIB:.1f}", t.why) for t in plan.memory]
    rows.append(("all", f"{plan.total / MIB:.1f}", f"of {plan.limit / MIB:.1f} MiB"))
    return folded("The plan, term by term", table(("term", "MiB", "made of"), rows, kind="words"))


def _timed(run: RunRecord) -> list[Moment]:
    """Moments with what had been waited and read by then; the end of the run among them."""
    known = [m for m in run.moments if m.waited is not None and m.bytes_read is not None]
    if run.end is not None and known:
        end = run.end
        if end.seconds > known[-1].seconds:
            known.append(Moment(end.seconds, end.peak, (1.0 - end.compute_share) * end.seconds, end.bytes_read))
    return [Moment(0.0, 0, 0.0, 0), *known] if known else []


def _cumulative(known: list[Moment], values: list[float], at: float) -> float:
    """What a rising quantity had come to at a moment, straight lines between those that are known."""
    seconds = [m.seconds for m in known]
    place = bisect_left(seconds, at)
    if place == 0 or place >= len(seconds):
        return values[min(place, len(values) - 1)]
    before, after = seconds[place - 1], seconds[place]
    share = (at - before) / (after - before) if after > before else 1.0
    return values[place - 1] + share * (values[place] - values[place - 1])


def _bins(known: list[Moment]) -> list[float]:
    """The edges of equal parts of the time: as many as there are moments, and no more than are seen."""
    parts = max(1, min(BINS, len(known) - 1))
    return [known[-1].seconds * k / parts for k in range(parts + 1)]


def _waiting(run: RunRecord) -> Markup | None:
    known = _timed(run)
    if len(known) < 2 or known[-1].seconds <= 0:
        return None
    edges = _bins(known)
    waited = [_cumulative(known, [m.waited or 0.0 for m in known], t) for t in edges]
    shares = [
        min(1.0, max(0.0, (b - a) / (t - s))) for a, b, s, t in zip(waited, waited[1:], edges, edges[1:], strict=False)
    ]
    x = durations(edges[-1], ACROSS)
    y = linear(0.0, 1.0, UPWARDS, text=lambda v: f"{100 * v:.0f}")
    total = waited[-1]
    says = (
        f"{seconds_text(total)} of {seconds_text(edges[-1])} were spent waiting for rows; the rest was spent computing."
    )
    count = None if run.plan is None else run.plan.threads
    threads = "" if count is None else f", {count} thread" + ("" if count == 1 else "s")
    chart = Chart(f"Computing and waiting{threads}", says, x, y, ("time", "share of the time, %"))
    chart.bars(edges, shares, 0, f"computing {seconds_text(max(0.0, edges[-1] - total))}", hanging=True)
    chart.bars(edges, shares, 1, f"waiting for rows {seconds_text(total)}")
    return chart.drawn()


def _rate(run: RunRecord) -> Markup | None:
    known = _timed(run)
    if len(known) < 3 or not known[-1].bytes_read:
        return None
    edges = _bins(known)
    read = [_cumulative(known, [float(m.bytes_read or 0) for m in known], t) for t in edges]
    rates = [(b - a) / (t - s) / 1e6 for a, b, s, t in zip(read, read[1:], edges, edges[1:], strict=False)]
    x, y = durations(edges[-1], ACROSS), linear(0.0, max(rates) * 1.08, UPWARDS)
    says = f"{size_text(read[-1])} were read, {size_text(read[-1] / edges[-1])} a second on average."
    chart = Chart("Reading", says, x, y, ("time", "MB/s"))
    chart.bars(edges, rates, 2, f"read {size_text(read[-1])}, {size_text(read[-1] / edges[-1])}/s on average")
    return chart.drawn()
