"""Settings as people write them."""

from __future__ import annotations

from streamsvm.aliases import ByName
from streamsvm.config.units import exact_size_text

MAX_VALUE_LENGTH = 400
"""Longest text of a setting."""
ABSENT = "–"
NESTED = "..."
"""Shown for nested values, which no setting has: a file may contain anything, however deep."""
SIZES = ("memory", "chunk_bytes")
"""Settings in bytes."""


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
