"""Sections on training for the page of a fit: the verdict, then, folded, the certificate, the score on held-out rows, memory and time.

``quality_page`` has the sections on the quality of the model, ``model_figures`` those on its columns and the data.
"""

from __future__ import annotations

import math
from bisect import bisect_left

from streamsvm.config.units import memory_text, percent, seconds_text, size_text
from streamsvm.display.chart import (
    ACROSS,
    INK,
    REFERENCE,
    SERIES,
    UPWARDS,
    Axis,
    Chart,
    choose_ordered_color,
    count_axis,
    format_number,
    group_digits,
    keep_finite,
    linear_axis,
    log_axis,
    share_axis,
    side_by_side,
    size_axis,
    time_axis,
)
from streamsvm.display.html import Markup, PagePart, build_tiles, element, fold, join, shorten, table
from streamsvm.display.quality_page import judge_quality
from streamsvm.display.read_record import End, HeldOut, Moment, Pass, PlannedTerm, PlanRecord, RunRecord
from streamsvm.model.measures import Measure

STATUS_SENTENCES = {
    "converged": "",
    "patience": "It ended when the error on held-out rows had not fallen for long. ",
    "max passes": "It ended because all passes were made. ",
    "time limit": "It ended at its time limit. ",
    "asked to end": "A callback ended it. ",
    "stalled": "The solver stalled. ",
    "support limit": "It ended when the model had as many support rows as allowed. ",
}
MAX_DRAWN_GAP = 4.0
"""Maximum gap that is drawn, as a multiple of the tolerance."""
USELESS_GAP = 0.995
"""A bound of nearly 100 % on the distance from the optimum says nothing."""
MIN_GAP = 1e-12
"""Smaller gaps are drawn at this value."""
MAX_PROBLEM_LINES = 12
"""With more problems, no thin line is drawn for each problem."""
MAX_TABLE_ROWS = 60
"""Maximum number of passes in the table."""
MIB = 1 << 20
MIN_TERM_SHARE = 0.02
"""Terms of the memory plan below this fraction are drawn as one."""
MAX_TERMS = 5
"""Maximum number of terms that are drawn separately."""
MAX_LIMIT_RATIO = 1.6
"""The memory limit is drawn if it is at most this multiple of the rest of the chart."""
MAX_BINS = 60
LARGE_SHIFT, LARGE_SHARE = 0.5, 0.2
"""The page begins with a warning if a column of the evaluated rows differs from the training rows by more: its mean by LARGE_SHIFT
standard deviations, or the share of a value by LARGE_SHARE."""


def summarize_fit(run: RunRecord) -> Markup:
    """Return the opening of the page of a fit: a verdict on quality and certificate, tiles with measures, and warnings."""
    if run.end is None:
        return _describe_unfinished(run)
    quality = judge_quality(run)
    is_proven = run.is_certified or run.kept_pass is not None
    by_use = {True: "verdict", False: "verdict mild", None: "verdict unknown"}
    kind = by_use[quality.is_useful] if is_proven else "verdict open"
    verdict = element("p", *quality.sentence, *_certificate_sentence(run, run.end), class_=kind)
    return join(
        [verdict, *([build_tiles(quality.tiles)] if quality.tiles else []), *_drift_warning(run), *_warnings(run)]
    )


def format_figure(value: float) -> str:
    """Format P or D with seven digits, which show where they differ."""
    return format_number(value, ",.7g").replace(",", "\u202f")


def _certificate_sentence(run: RunRecord, end: End) -> list[str | Markup]:
    """Return the sentence on the certificate: the bound on the distance from the optimum."""
    gap = element("strong", percent(end.gap))
    if run.is_certified:
        return [element("strong", "Certified"), ": within ", gap, " of the optimum."]
    if run.kept_pass is not None:
        which = f": pass {run.kept_pass} of {end.passes}, within "
        return [element("strong", "Chosen on held-out rows"), which, gap, " of the optimum."]
    if end.gap >= USELESS_GAP:
        bound = [element("strong", "Not certified"), ": no useful bound on the distance from the optimum, "]
        return [*bound, f"{percent(end.tolerance)} was asked for. {_explain_end(end)}"]
    return [
        element("strong", "Not certified"),
        ": within ",
        gap,
        f" of the optimum, {percent(end.tolerance)} was asked for. {_explain_end(end)}",
    ]


def _explain_end(end: End) -> str:
    return STATUS_SENTENCES.get(end.status, f"It ended: {end.status}.")


def _count(number: int, what: str) -> str:
    return f"{group_digits(number)} {what}" + ("" if number == 1 else "s")


def _count_passes(number: int) -> str:
    return f"{group_digits(number)} pass" + ("" if number == 1 else "es")


def _draw_tolerance(run: RunRecord, end: End) -> Markup:
    """Draw the gap as a fraction of the tolerance."""
    width, left, right = 900, 8, 892
    share = end.gap / end.tolerance if end.tolerance > 0 else math.inf
    scale = max(1.0, min(share, MAX_DRAWN_GAP)) * 1.04

    def place(x: float) -> float:
        return left + (right - left) * min(x / scale, 1.0)

    state = "fill-good" if share <= 1 else "fill-kept" if run.kept_pass is not None else "fill-bad"
    says = f"The gap is {share:.2g} of what was asked for; the optimum lies between D and P."
    marks = [
        element("rect", class_=f"bars f{REFERENCE}", x=left, y=16, width=place(1.0) - left, height=12, rx=3),
        element("rect", class_=state, x=left, y=16, width=max(2.0, place(share) - left), height=12, rx=3),
        element("line", class_="level", x1=place(1.0), x2=place(1.0), y1=11, y2=33),
    ]
    svg = element("svg", *marks, viewBox=f"0 8 {width} 28", class_="wide", role="img", aria_label=says)
    which = "" if len(end.problems) <= 1 else f" (the widest of {len(end.problems)} problems)"
    text = (
        f"No model can have an objective below D = {format_figure(end.dual)}; this one has P = {format_figure(end.primal)}{which}. "
        f"The optimum lies in the filled part, {percent(end.gap)} of P wide; the dashed line is the tolerance, {percent(end.tolerance)}."
    )
    if share > MAX_DRAWN_GAP:
        text += f" The gap, {share:.2g} times as wide, does not fit the drawing."
    return element("figure", svg, element("p", text, class_="lead"))


def draw_training(run: RunRecord) -> PagePart | None:
    """Return the section on training: certificate, score on held-out rows by pass, memory and time, each folded."""
    parts = [*_fold_certificate(run), *_fold_held_out(run), *_fold_resources(run)]
    if not parts:
        return None
    sentences = []
    if run.plan is not None:
        sentences.append(
            f"{group_digits(run.plan.rows)} rows of {_count(run.plan.columns, 'column')}, {run.plan.solver}: {run.plan.why}."
        )
    if run.end is not None:
        end = run.end
        sentences.append(
            f"{_count_passes(end.passes)} over the data in {seconds_text(end.seconds)}, {memory_text(end.peak)} of "
            f"{memory_text(end.limit)} of memory. {STATUS_SENTENCES.get(end.status, '')}".strip()
        )
    return PagePart("training", "How it was trained", " ".join(sentences), element("div", *parts))


def _fold_certificate(run: RunRecord) -> list[Markup]:
    gap = draw_progress(run)
    parts = [] if run.end is None else [_draw_tolerance(run, run.end)]
    if gap is not None:
        parts += [element("p", gap.lead, class_="lead"), gap.body]
    if not parts:
        return []
    last_gap = run.end.gap if run.end is not None else run.passes[-1].gap
    summary = f"The certificate: a gap of {percent(last_gap)}"
    if run.end is not None:
        summary += f", {percent(run.end.tolerance)} was asked for"
    return [fold(summary, *parts, is_open=run.end is None)]


def _fold_held_out(run: RunRecord) -> list[Markup]:
    part = draw_held_out(run)
    if part is None:
        return []
    by = "C" if run.job.get("validation") is None else "pass"
    return [fold(f"{part.title} by {by}", element("p", part.lead, class_="lead"), part.body)]


def _fold_resources(run: RunRecord) -> list[Markup]:
    part = draw_resources(run)
    if part is None:
        return []
    summary = "Memory and time"
    if run.end is not None:
        end = run.end
        summary += f": {memory_text(end.peak)} at most, {seconds_text(end.seconds)}, {round(100 * end.compute_share)} % computing"
        summary += f", {size_text(end.bytes_read)} read"
    return [fold(summary, element("p", part.lead, class_="lead"), part.body)]


def _warnings(run: RunRecord) -> list[Markup]:
    if run.facts is None:
        return []
    warnings = [_warning(text, "warn") for text in run.facts.warnings]
    notices = [_warning(text, "warn notice") for text in run.facts.notices]
    return warnings + (notices if len(notices) < 3 else [fold(f"{len(notices)} notices", *notices)])


def _drift_warning(run: RunRecord) -> list[Markup]:
    """Return a warning if the evaluated rows differ much from the training rows."""
    changed = [
        one for one in run.changes if one.is_notable and one.difference > (LARGE_SHARE if one.value else LARGE_SHIFT)
    ]
    if not changed:
        return []
    names = ", ".join(shorten(one.name, 32) for one in changed[:4]) + (", …" if len(changed) > 4 else "")
    text = f"The evaluated rows differ much from the training rows, in {names}: see "
    return [element("p", text, element("a", "the data", href="#data"), ".", class_="warn mild")]


def _warning(text: str, kind: str) -> Markup:
    """Return a warning, with what to do next on a separate line."""
    what, _, step = text.partition("; next: ")
    then = [element("br"), element("strong", "Next: "), step] if step else []
    return element("p", what, *then, class_=kind)


def _describe_unfinished(run: RunRecord) -> Markup:
    """Return the opening of the page of an unfinished run: its state, and how to resume it."""
    last = max(run.passes, key=lambda one: one.number, default=None)
    sentences: list[str | Markup] = [element("strong", "Not finished. ")]
    resume_command = ""
    if run.stopped is not None:
        what, _, resume_command = run.stopped.message.partition(" Resume: ")
        sentences.append(f"{what.rstrip('.')}. ")
    else:
        sentences.append("The log has no end: the run is under way, or was killed. ")
    if last is not None:
        sentences.append(
            f"After {_count_passes(last.number)}, at {seconds_text(last.seconds)}, the gap was {percent(last.gap)}."
        )
    parts = [element("p", *sentences, class_="verdict open")]
    if resume_command:
        parts.append(element("p", element("strong", "Next: "), "go on from the checkpoint.", class_="warn"))
        parts.append(element("pre", element("code", resume_command)))
    if run.stopped is not None and run.stopped.hint:
        parts.append(element("p", element("strong", "Next: "), run.stopped.hint, class_="warn"))
    return join(parts)


def draw_progress(run: RunRecord) -> PagePart | None:
    """Return the section on the gap; None without passes."""
    widest = run.widest()
    if not widest:
        return None
    lead = (
        "P is the objective of the current model and falls; D is a lower bound of the objective of every model and rises. The optimum "
        "lies between them."
    )
    gap, interval = _draw_gap(run, widest), _draw_interval(run)
    return PagePart("gap", "Gap", lead, element("div", side_by_side(gap, interval), _passes_table(widest)))


def _draw_gap(run: RunRecord, widest: list[Pass]) -> Markup | None:
    values = [max(gap, MIN_GAP) for gap in keep_finite(one.gap for one in run.passes)]
    if not values:
        return None
    tolerance = run.end.tolerance if run.end is not None else float(run.job.get("tolerance") or 0.0)
    drawn = [*values, tolerance] if tolerance > 0 else values
    y = log_axis(max(min(drawn), MIN_GAP), max(drawn), UPWARDS)
    x = count_axis(widest[-1].number, ACROSS)
    says = f"Relative gap over {widest[-1].number} passes, from {percent(values[0])} to {percent(widest[-1].gap)}."
    chart = Chart("Relative gap over passes", says, x, y, ("passes over the data", "gap / P"))
    problems = sorted({one.problem for one in run.passes})
    if 1 < len(problems) <= MAX_PROBLEM_LINES:
        for number in problems:
            points = [(float(p.number), max(p.gap, MIN_GAP)) for p in run.of_problem(number) if p.gap == p.gap]
            chart.line(points, REFERENCE, kind="thin")
    points = [(float(p.number), max(p.gap, MIN_GAP)) for p in widest if keep_finite([p.gap])]
    chart.line(points, INK, "the widest of all problems" if len(problems) > 1 else "", dots=len(points) <= 40)
    if tolerance > 0:
        chart.level(tolerance, f"asked for: {percent(tolerance)}", below=y.locate(tolerance) < 60)
    return chart.render()


def _draw_interval(run: RunRecord) -> Markup | None:
    """Draw [D, P] over time, for the problem with the largest gap at the end."""
    last = run.passes[-1].number
    number = max((p for p in run.passes if p.number == last), key=lambda p: p.gap).problem
    passes = [p for p in run.of_problem(number) if len(keep_finite([p.primal, p.dual])) == 2]
    if not passes:
        return None
    end = next((p for p in run.end.problems if p.problem == number), None) if run.end is not None else None
    seconds = [p.seconds for p in passes]
    high, low = [p.primal for p in passes], [p.dual for p in passes]
    if end is not None and run.end is not None:
        seconds, high, low = [*seconds, max(run.end.seconds, seconds[-1])], [*high, end.primal], [*low, end.dual]
    y = _objective_axis(high, low)
    several = "" if run.plan is None or run.plan.problems == 1 else f", problem {number + 1} of {run.plan.problems}"
    says = (
        f"The interval of the optimum over time: from {low[0]:.6g} .. {high[0]:.6g} to {low[-1]:.6g} .. {high[-1]:.6g}."
    )
    x = time_axis(max(seconds) * 1.02, ACROSS)
    chart = Chart(f"Where the optimum lies, over time{several}", says, x, y, ("time", "objective"))
    upper, lower = list(zip(seconds, high, strict=True)), list(zip(seconds, low, strict=True))
    chart.band(lower, upper, REFERENCE)
    chart.line(upper, INK, "P, the current model", dots=len(passes) <= 40)
    chart.line(lower, REFERENCE, "D, the bound", dots=len(passes) <= 40)
    return chart.render()


def _objective_axis(high: list[float], low: list[float]) -> Axis:
    """Return the axis for P and D. Early values, which can be far from the optimum, are cut off so that later ones are visible."""
    final = high[-1]
    half = (len(high) - 1) // 2
    reach = max(high[half] - low[half], 3.0 * (high[-1] - low[-1]), 1e-6 * abs(final), 1e-300) * 1.6
    bottom, top = max(min(low), final - reach), min(max(high), final + 0.7 * reach)
    margin = 0.06 * (top - bottom) or abs(final) or 1.0
    return linear_axis(bottom - margin, top + margin, UPWARDS)


def _passes_table(widest: list[Pass]) -> Markup:
    rows = [
        (str(p.number), f"{p.seconds:.2f}", f"{p.primal:.8g}", f"{p.dual:.8g}", percent(p.gap))
        for p in widest[-MAX_TABLE_ROWS:]
    ]
    return fold("Numbers", table(("pass", "seconds", "P", "D", "gap"), rows))


def draw_held_out(run: RunRecord) -> PagePart | None:
    """Return the section on the score on held-out rows by pass, or by C if only finished models were scored; None without scores."""
    scores = [score for score in run.held_out if keep_finite([score.value])]
    if not scores:
        return None
    measure, costs = run.measure, sorted({score.C for score in scores})
    if run.job.get("validation") is None:
        return _draw_models_on_held_out_rows(scores, measure)
    low, high = min(score.value for score in scores), max(score.value for score in scores)
    margin = 0.08 * (high - low) or (0.01 if measure.percent else 0.01 * abs(high) or 1.0)
    bottom = low - margin if low < 0.0 else max(0.0, low - margin)
    y = linear_axis(bottom, high + margin, UPWARDS, text=lambda v: f"{100 * v if measure.percent else v:.3g}")
    x = count_axis(max(score.number for score in scores), ACROSS)
    best = measure.full_text(min((score.value for score in scores), key=measure.rank))
    first, name = measure.full_text(scores[0].value), measure.title
    title = f"{name[0].upper()}{name[1:]} on held-out rows"
    says = f"{title} over passes: {first} first, at best {best}."
    label = f"{name}, %" if measure.percent else name
    chart = Chart(title, says, x, y, ("passes over the data", label))
    for number, C in enumerate(costs[:SERIES]):
        points = [(float(score.number), score.value) for score in scores if score.C == C]
        chart.line(points, choose_ordered_color(number, min(len(costs), SERIES)), f"C = {C:g}", dots=len(points) <= 40)
    best_word = "greatest" if measure.higher_is_better else "least"
    lead = f"Rows that are not used for training. The model of the pass with the {best_word} value was written."
    if len(costs) > SERIES:
        lead += f" The first {SERIES} of {len(costs)} values of C are drawn."
    rows = [(f"{C:g}", str(b.number), measure.full_text(b.value)) for C in costs for b in [_best_of(run, scores, C)]]
    return PagePart(
        "held-out", f"Held-out {name}", lead, side_by_side(chart.render(), table(("C", "best pass", name), rows))
    )


def _draw_models_on_held_out_rows(scores: list[HeldOut], measure: Measure) -> PagePart:
    """Return the section on the scores of the finished models of several C, one of which was chosen by them."""
    by_C = {score.C: score.value for score in sorted(scores, key=lambda score: score.C)}
    costs, values, name = list(by_C), list(by_C.values()), measure.title
    label = f"{name}, %" if measure.percent else name
    margin = 0.08 * (max(values) - min(values)) or (0.01 if measure.percent else 0.01 * abs(max(values)) or 1.0)
    y = linear_axis(
        min(values) - margin, max(values) + margin, UPWARDS, text=lambda v: f"{100 * v if measure.percent else v:.3g}"
    )
    x = log_axis(costs[0] * 0.6, costs[-1] / 0.6, ACROSS, powers=False)
    best = min(by_C, key=lambda C: (measure.rank(by_C[C]), C))
    says = f"{name[0].upper()}{name[1:]} over C: {measure.full_text(by_C[best])} at C = {best:g}."
    chart = Chart(f"{name[0].upper()}{name[1:]} over C", says, x, y, ("C", label))
    chart.line(list(by_C.items()), INK, name, dots=True)
    rows = [(f"{C:g}", measure.full_text(value), "chosen" if C == best else "") for C, value in by_C.items()]
    lead = (
        "The finished model of each C, scored on the rows that were held out. The best one is the model of this page."
    )
    return PagePart("held-out", f"Held-out {name}", lead, side_by_side(chart.render(), table(("C", name, ""), rows)))


def _best_of(run: RunRecord, scores: list[HeldOut], C: float) -> HeldOut:
    return min((score for score in scores if score.C == C), key=lambda score: run.measure.rank(score.value))


def draw_resources(run: RunRecord) -> PagePart | None:
    """Return the section on memory and time; None if neither was recorded."""
    figures = [figure for figure in (_draw_memory(run), _draw_waiting(run), _draw_rate(run)) if figure is not None]
    if not figures:
        return None
    lead = "The planned and the measured memory, and the time spent computing and waiting for rows."
    below = [] if run.plan is None else [_plan_table(run.plan)]
    return PagePart("resources", "Memory and time", lead, element("div", side_by_side(*figures), *below))


def _draw_memory(run: RunRecord) -> Markup | None:
    plan, moments = run.plan, run.moments
    if plan is None or not moments:
        return None
    peak = max([m.memory for m in moments] + ([run.end.peak] if run.end is not None else []))
    drawn = max(plan.total, peak)
    near = plan.limit <= MAX_LIMIT_RATIO * drawn
    top = 1.08 * (plan.limit if near else drawn)
    x, y = time_axis(_duration(run), ACROSS), size_axis(top, UPWARDS)
    says = f"Anonymous memory over time: {peak / MIB:.0f} MiB at most, of {plan.total / MIB:.0f} planned and {plan.limit / MIB:.0f} allowed."
    chart = Chart("Memory by term, against the budget", says, x, y, ("time", "memory"))
    floor = 0.0
    terms = _largest_terms(plan)
    for number, term in enumerate(terms):
        ends = [(x.low, floor), (x.high, floor)]
        floor += term.bytes
        series, name = choose_ordered_color(number, len(terms)), f"{term.term} {term.bytes / MIB:.0f}"
        chart.band(ends, [(a, floor) for a, _ in ends], series, name, kind="stack")
    chart.line([(m.seconds, float(m.memory)) for m in moments], INK, f"measured, at most {peak / MIB:.0f} MiB")
    if near:
        chart.level(float(plan.limit), f"budget {memory_text(plan.limit)}")
        return chart.render()
    return chart.render(element("p", f"The budget, {memory_text(plan.limit)}, is above the drawing.", class_="lead"))


def _duration(run: RunRecord) -> float:
    latest = max((m.seconds for m in run.moments), default=0.0)
    return max(latest, run.end.seconds if run.end is not None else 0.0)


def _largest_terms(plan: PlanRecord) -> list[PlannedTerm]:
    """Return the largest terms in the order of the plan, then the sum of the others."""
    largest = sorted(plan.memory, key=lambda term: -term.bytes)[:MAX_TERMS]
    shown = [t for t in plan.memory if t in largest and t.bytes > MIN_TERM_SHARE * plan.total]
    rest = plan.total - sum(t.bytes for t in shown)
    return [*shown, PlannedTerm("the rest", rest)] if rest > 0 else shown


def _plan_table(plan: PlanRecord) -> Markup:
    rows = [(t.term, f"{t.bytes / MIB:.1f}", t.why) for t in plan.memory]
    rows.append(("all", f"{plan.total / MIB:.1f}", f"of {plan.limit / MIB:.1f} MiB"))
    return fold("The plan, term by term", table(("term", "MiB", "made of"), rows, kind="words"))


def _moments_in_time(run: RunRecord) -> list[Moment]:
    """Return the moments for which waiting time and bytes read are known, including the start and the end of the run."""
    moments = [m for m in run.moments if m.waited is not None and m.bytes_read is not None]
    if run.end is not None and moments:
        end = run.end
        if end.seconds > moments[-1].seconds:
            moments.append(Moment(end.seconds, end.peak, (1.0 - end.compute_share) * end.seconds, end.bytes_read))
    return [Moment(0.0, 0, 0.0, 0), *moments] if moments else []


def _interpolate(moments: list[Moment], values: list[float], at: float) -> float:
    """Return a cumulative quantity at the time ``at``, interpolated linearly between moments."""
    seconds = [m.seconds for m in moments]
    place = bisect_left(seconds, at)
    if place == 0 or place >= len(seconds):
        return values[min(place, len(values) - 1)]
    before, after = seconds[place - 1], seconds[place]
    share = (at - before) / (after - before) if after > before else 1.0
    return values[place - 1] + share * (values[place] - values[place - 1])


def _time_edges(moments: list[Moment]) -> list[float]:
    """Return the edges of equal intervals of time, as many intervals as moments, but at most ``MAX_BINS``."""
    parts = max(1, min(MAX_BINS, len(moments) - 1))
    return [moments[-1].seconds * k / parts for k in range(parts + 1)]


def _draw_waiting(run: RunRecord) -> Markup | None:
    moments = _moments_in_time(run)
    if len(moments) < 2 or moments[-1].seconds <= 0:
        return None
    edges = _time_edges(moments)
    waited = [_interpolate(moments, [m.waited or 0.0 for m in moments], t) for t in edges]
    shares = [
        min(1.0, max(0.0, (b - a) / (t - s))) for a, b, s, t in zip(waited, waited[1:], edges, edges[1:], strict=False)
    ]
    x = time_axis(edges[-1], ACROSS)
    y = share_axis(UPWARDS)
    total = waited[-1]
    says = (
        f"{seconds_text(total)} of {seconds_text(edges[-1])} were spent waiting for rows; the rest was spent computing."
    )
    count = None if run.plan is None else run.plan.threads
    threads = "" if count is None else f", {count} thread" + ("" if count == 1 else "s")
    chart = Chart(f"Computing and waiting{threads}", says, x, y, ("time", "share of the time, %"))
    chart.bars(edges, shares, INK, f"computing {seconds_text(max(0.0, edges[-1] - total))}", hanging=True)
    chart.bars(edges, shares, REFERENCE, f"waiting for rows {seconds_text(total)}")
    return chart.render()


def _draw_rate(run: RunRecord) -> Markup | None:
    moments = _moments_in_time(run)
    if len(moments) < 3 or not moments[-1].bytes_read:
        return None
    edges = _time_edges(moments)
    read = [_interpolate(moments, [float(m.bytes_read or 0) for m in moments], t) for t in edges]
    rates = [(b - a) / (t - s) / 1e6 for a, b, s, t in zip(read, read[1:], edges, edges[1:], strict=False)]
    x, y = time_axis(edges[-1], ACROSS), linear_axis(0.0, max(rates) * 1.08, UPWARDS)
    says = f"{size_text(read[-1])} were read, {size_text(read[-1] / edges[-1])} a second on average."
    chart = Chart("Reading", says, x, y, ("time", "MB/s"))
    chart.bars(edges, rates, INK, f"read {size_text(read[-1])}, {size_text(read[-1] / edges[-1])}/s on average")
    return chart.render()
