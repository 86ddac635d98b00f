"""Where a model comes from: the command that repeats it, the data, the settings that were stated, the machine."""

from __future__ import annotations

from streamsvm.aliases import ByName
from streamsvm.config.units import exact_size_text
from streamsvm.display.page.drawing.document import PagePart, folded, table
from streamsvm.display.page.drawing.markup import element, shortened
from streamsvm.display.page.record import RunRecord

MOST = 400
"""Characters of a value that are shown."""
ABSENT = "–"
NESTED = "..."
"""What stands for lists within lists, which no setting has: a file may say anything, however deep."""
SIZES = ("memory", "chunk_bytes")
"""Settings that are bytes."""


def provenance(run: RunRecord) -> PagePart:
    """Return the part on where it comes from."""
    rows = list(_rows(run))
    parts = []
    if run.began is not None:
        parts.append(element("pre", element("code", run.began.command)))
    parts.append(table(("what", "value"), rows, kind="words"))
    if run.settings:
        parts.append(folded("All settings", table(("setting", "value"), settings_rows(run.settings), kind="words")))
    if run.unread:
        text = f"Not understood, and left out: {', '.join(run.unread)}."
        parts.append(element("p", text, class_="warn"))
    lead = "The same command on the same data gives the same model, to the last bit."
    return PagePart("provenance", "Where it comes from", lead if run.began is not None else "", element("div", *parts))


def _rows(run: RunRecord) -> list[tuple[str, str]]:
    found = []
    if run.facts is not None:
        total = max(sum(n for _, n in run.facts.store.classes), 1)
        shares = ", ".join(f"{shortened(c, 20)} {100 * n / total:.1f} %" for c, n in run.facts.store.classes[:8])
        found += [("store", run.facts.store.path), ("digest", run.facts.store.digest), ("classes", shares)]
        points = run.facts.model.get("points")
        if points is not None:
            found.append(("model", f"a sum over {points} kernel values"))
    if run.search is not None:
        found.append(("digest of the store", run.search.store))
    if run.plan is not None:
        found.append(("solver", f"{run.plan.solver}: {run.plan.why}"))
        if run.plan.features:
            found.append(("features", ", ".join(f"{k} {v}" for k, v in run.plan.features.items())[:MOST]))
    if run.began is not None:
        found.append(("begun", f"{run.began.at} UTC"))
        found.append(("made with", ", ".join(f"{k} {v}" for k, v in run.began.machine.items())[:MOST]))
    return found


def settings_rows(settings: ByName) -> list[tuple[str, str]]:
    """Return the settings that have a value, as text."""
    shown = [(name, setting_text(name, value)) for name, value in settings.items()]
    return [(name, text) for name, text in shown if text != ABSENT]


def setting_text(name: str, value: object) -> str:
    """Return a setting as people write it."""
    if value in (None, {}, [], ""):
        return ABSENT
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name in SIZES and isinstance(value, int):
        return exact_size_text(value)
    if isinstance(value, list):
        parts = (NESTED if isinstance(item, list | dict) else setting_text(name, item) for item in value)
        return ", ".join(parts)[:MOST]
    if isinstance(value, dict) and any(isinstance(item, list | dict) for item in value.values()):
        return NESTED
    return f"{value:g}" if isinstance(value, float) else str(value)[:MOST]
