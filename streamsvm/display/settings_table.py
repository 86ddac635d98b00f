"""Settings of a run as text, for tables on a page."""

from __future__ import annotations

from streamsvm.config.units import exact_size_text
from streamsvm.type_aliases import ValuesByName

MAX_VALUE_LENGTH = 400
"""Maximum length of the text of a setting."""
ABSENT = "–"
NESTED = "..."
"""Shown for a nested value, which no setting has but a file may contain."""
SIZES = ("memory", "chunk_bytes")
"""Settings whose values are bytes."""


def format_settings(settings: ValuesByName) -> list[tuple[str, str]]:
    """Return the names and texts of the settings that have a value."""
    texts = [(name, format_setting(name, value)) for name, value in settings.items()]
    return [(name, text) for name, text in texts if text != ABSENT]


def format_setting(name: str, value: object) -> str:
    """Return the value of a setting as text: 'yes' for true, sizes with their unit."""
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
