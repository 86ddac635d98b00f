"""Settings that changed nothing are told, with the reason: nobody should believe that they did something."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping

from streamsvm.config.options import Checked, Field, field_values, options_of

STORE = "store"
"""What ``other_formats`` is told where rows are read from a store of ours."""


def without_effect(job: Checked, idle: Mapping[str, Collection[str]]) -> list[str]:
    """Return a line for each reason, with those of its fields that were set; a default is no setting.

    ``job``: a dataclass of options. ``idle``: names of fields nothing looks at, by the reason, which ends a sentence.
    """
    options = {field.name: field for field in _options(job)}
    stated = {n: options[n].flag for n, value in field_values(job, options).items() if value != options[n].default}
    found = {why: [stated[name] for name in names if name in stated] for why, names in idle.items()}
    return [f"without effect: {', '.join(flags)}, because {why}" for why, flags in found.items() if flags]


def other_formats(job: Checked, form: str) -> dict[str, list[str]]:
    """Return the fields of a job that say how files of other formats are read than ``form``, by the reason."""
    found: dict[str, list[str]] = defaultdict(list)
    for field in _options(job):
        formats = field.option.formats
        if form == STORE and (formats or field.name == "format"):
            found["rows of a store are as they were ingested"].append(field.name)
        elif formats and form not in formats:
            found[f"only {', '.join(formats)} have a use for it, and {form} is read"].append(field.name)
    return found


def _options(job: Checked) -> tuple[Field, ...]:
    kind: type = type(job)
    return options_of(kind)
