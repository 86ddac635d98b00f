"""Notices of settings that had no effect, with the reasons."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping

from streamsvm.config.options import Checked, Field, field_values, options_of

STORE = "store"
"""The format of rows read from a store, for ``other_formats``."""


def notices_on_unused_options(job: Checked, idle: Mapping[str, Collection[str]]) -> list[str]:
    """Return a line for each reason, with the options that have no effect and whose value is neither the default nor None.

    ``job``: a dataclass of options. ``idle``: names of unused fields by reason; the reason is the end of a sentence.
    """
    options = {field.name: field for field in _options(job)}
    values = field_values(job, options).items()
    given = {n: options[n].flag for n, value in values if value is not None and value != options[n].default}
    flags_by_reason = {why: [given[name] for name in names if name in given] for why, names in idle.items()}
    return [f"without effect: {', '.join(flags)}, because {why}" for why, flags in flags_by_reason.items() if flags]


def other_formats(job: Checked, form: str) -> dict[str, list[str]]:
    """Return, by reason, the fields of a job that are options of other file formats than ``form``."""
    names_by_reason: dict[str, list[str]] = defaultdict(list)
    for field in _options(job):
        formats = field.option.formats
        if form == STORE and (formats or field.name == "format"):
            names_by_reason["rows of a store are as they were ingested"].append(field.name)
        elif formats and form not in formats:
            names_by_reason[f"only {', '.join(formats)} have a use for it, and {form} is read"].append(field.name)
    return names_by_reason


def _options(job: Checked) -> tuple[Field, ...]:
    kind: type = type(job)
    return options_of(kind)
