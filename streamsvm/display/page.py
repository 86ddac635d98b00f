"""The HTML page of a fit, of a search, or of several runs.

``build_page`` chooses the sections, in the order in which they are read. Every page ends with the provenance of the model: the command that
repeats the run, the data, the settings and the machine.
"""

from __future__ import annotations

import html
from collections.abc import Sequence

from streamsvm.display.comparison_page import build_comparison
from streamsvm.display.fit_page import draw_training, summarize_fit
from streamsvm.display.html import Markup, PagePart, build_document, element, fold, shorten, table
from streamsvm.display.model_figures import draw_columns, draw_data, draw_pairs
from streamsvm.display.quality_page import draw_evaluation, draw_margins, draw_reliability, draw_worst_errors
from streamsvm.display.read_record import RunRecord
from streamsvm.display.search_page import draw_error_tables, draw_path, list_points, summarize_search
from streamsvm.display.settings_table import MAX_VALUE_LENGTH, format_settings
from streamsvm.type_aliases import ValuesByName


def build_page(runs: Sequence[RunRecord]) -> str:
    """Return the HTML page of a run or a search, or the comparison of several runs."""
    if len(runs) > 1:
        return build_comparison(runs)
    run = runs[0]
    if run.search is not None:
        parts = [draw_path(run.search), draw_error_tables(run.search), list_points(run.search), list_provenance(run)]
        return build_document(
            run.name, "A search for settings by cross-validation", summarize_search(run.search), _keep_present(parts)
        )
    parts = [
        draw_evaluation(run),
        draw_reliability(run),
        draw_margins(run),
        draw_columns(run),
        draw_pairs(run),
        draw_data(run),
        draw_worst_errors(run),
        draw_training(run),
        list_provenance(run),
    ]
    return build_document(run.name, _describe_fit(run), summarize_fit(run), _keep_present(parts))


def frame_page(page: str) -> Markup:
    """Return a page as an element for a notebook: a frame in which nothing can be executed."""
    content = Markup(html.escape(page))  # escaped here, because ``escape`` would also change characters
    return element("iframe", srcdoc=content, sandbox="", title="the page of a run", width="100%", height="900")


def _describe_fit(run: RunRecord) -> str:
    """Return the subtitle of a fit: loss, kernel or curves, C, solver and store."""
    kernel = "curves" if run.job.get("curves") else str(run.job.get("kernel") or "linear")
    parts = [_describe_loss(run), kernel + (f", {run.job['landmarks']} landmarks" if run.job.get("landmarks") else "")]
    if run.plan is not None:
        parts += [_describe_costs(run, list(dict.fromkeys(run.plan.C))), run.plan.solver]
    store = run.facts.store.path if run.facts is not None else str(run.job.get("store", ""))
    return " · ".join([text for text in parts if text] + ([f"trained on {store}"] if store else []))


def _describe_loss(run: RunRecord) -> str:
    if run.job.get("one_class"):
        positive = run.job.get("positive")
        return "one class" + (f", ‘{shorten(str(positive), 24)}’" if positive else "")
    return str(run.job.get("loss", "")).replace("_", " ")


def _describe_costs(run: RunRecord, costs: list[float]) -> str:
    """Return nu or the values of C as text; with several values of C, the one chosen on held-out rows comes first."""
    if run.job.get("nu") is not None:
        return f"nu = {run.job['nu']}"
    values = ", ".join(f"{C:g}" for C in costs[:6]) + (", …" if len(costs) > 6 else "")
    chosen = run.best_held_out.get("C")
    return f"C = {chosen:g} of {values}" if isinstance(chosen, float) and len(costs) > 1 else f"C = {values}"


def _keep_present(parts: Sequence[PagePart | None]) -> list[PagePart]:
    return [part for part in parts if part is not None]


def list_provenance(run: RunRecord) -> PagePart:
    """Return the section on the provenance of the model: commands, data, settings and machine."""
    rows = list(_origin_rows(run))
    parts = []
    if run.began is not None:
        parts.append(element("pre", element("code", run.began.command)))
    if run.search is not None:
        commands = (
            ("A model with the best settings:", run.search.best_command),
            ("The search again:", run.search.command),
        )
        for lead, command in commands:
            if command:
                parts += [element("p", lead, class_="lead"), element("pre", element("code", command))]
    parts.append(table(("what", "value"), rows, kind="words"))
    if run.settings:
        parts.append(
            fold("All settings", table(("setting", "value"), format_settings(run.settings), kind="words settings"))
        )
    if run.unread:
        text = f"Could not be read, and is left out: {', '.join(run.unread)}."
        parts.append(element("p", text, class_="warn"))
    lead = "The same command on the same data gives the same model, to the last bit."
    return PagePart("provenance", "Where it comes from", lead if run.began is not None else "", element("div", *parts))


def _origin_rows(run: RunRecord) -> list[tuple[str, str]]:
    rows = []
    if run.facts is not None:
        total = max(sum(n for _, n in run.facts.store.classes), 1)
        shares = ", ".join(f"{shorten(c, 20)} {100 * n / total:.1f} %" for c, n in run.facts.store.classes[:8])
        rows += [("store", run.facts.store.path), ("digest", run.facts.store.digest)]
        rows += [("classes", shares)] if shares else []
        points = run.facts.model.get("points")
        if points is not None:
            rows.append(("model", f"a sum over {points} kernel values"))
    if run.search is not None:
        rows.append(("digest of the store", run.search.store))
        if run.search.machine:
            rows.append(("made with", _join_facts(run.search.machine)))
    if run.plan is not None:
        rows.append(("solver", f"{run.plan.solver}: {run.plan.why}"))
        if run.plan.features:
            rows.append(("features", _join_facts(run.plan.features)))
    if run.began is not None:
        rows.append(("begun", f"{run.began.at} UTC"))
        rows.append(("made with", _join_facts(run.began.machine)))
    return rows


def _join_facts(facts: ValuesByName) -> str:
    return ", ".join(f"{name} {value}" for name, value in facts.items())[:MAX_VALUE_LENGTH]
