"""What the page has, in a line of a terminal: the gap as a curve, memory against the budget, and the end of a fit as a card."""

from __future__ import annotations

import math
from collections.abc import Sequence

from streamsvm.aliases import JsonObject
from streamsvm.config.units import percent, seconds_text, size_text
from streamsvm.display.event_lines import held_out_text

LEVELS = "▁▂▃▄▅▆▇█"
MIB = 1 << 20
MOST = 24
"""Passes of a curve: the last ones."""


def curve(gaps: Sequence[float]) -> str:
    """Return the gaps of the last passes as a curve, a character each, equal ratios as equal steps; empty for one or none."""
    known = [math.log10(gap) for gap in gaps[-MOST:] if 0.0 < gap < math.inf]
    if len(known) < 2:
        return ""
    low, high = min(known), max(known)
    scale = (len(LEVELS) - 1) / (high - low) if high > low else 0.0
    return "".join(LEVELS[round((value - low) * scale)] for value in known)


def memory_bar(used: int, limit: int, width: int = 10) -> str:
    """Return what is used of a limit, both in bytes: '███░░░░░░░ 113 of 512 MiB'."""
    filled = min(width, math.ceil(width * used / limit)) if limit > 0 else 0
    return "█" * filled + "░" * (width - filled) + f" {used / MIB:.0f} of {limit / MIB:.0f} MiB"


def fit_card(end: JsonObject) -> list[str]:
    """Return the end of a fit, from its 'done' event, as aligned lines."""
    certified = end["gap"] <= end["tolerance"]
    said = end.get("validation")
    rows = [
        (
            "certified" if certified else "NOT certified",
            f"gap {percent(end['gap'])} of {percent(end['tolerance'])} asked for",
        ),
        ("optimum", f"between {end['dual']:.7g} and {end['primal']:.7g}, which is this model"),
        *([(f"held-out {held_out_text(said)[0]}", held_out_text(said)[1])] if said else []),
        (
            "took",
            f"{end['passes']} readings, {seconds_text(end['seconds'])}, {round(100 * end['compute_share'])} % computing",
        ),
        ("read", size_text(end["bytes_read"])),
        ("memory", memory_bar(end["peak"], end["limit"])),
        ("model", str(end["model"])),
    ]
    return [f"  {name:<15} {text}" for name, text in rows]
