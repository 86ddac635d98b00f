"""Jobs: a folder or a module for each command, and the base class of their results.

ingest              files to a store
file_cache          the store of files that are fitted or searched directly
fit                 a store to a certified model
embed               a store to a store of kernel features
apply               predict and evaluate
tune                search of settings by cross-validation
change_rows         forget and learn: rows removed from a model, or added to it, without its training data
calibrate           probabilities and thresholds, as the last step of a fit
calibration_scores  out-of-sample scores for calibration
partial_fit         incremental training, portion by portion
folds               assignment of chunks to folds
inspect             info, verify, doctor
synth               generated data
export              models for other programs
report              the page of runs
column_facts        columns in the record of a run: their effect, their values, differences of evaluated rows
run_record          events and facts of a run, written for its page
common_options      options that several jobs have
without_effect      notices of options without effect
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING

from streamsvm.config.options import field_values
from streamsvm.errors import StreamSVMError
from streamsvm.type_aliases import JsonObject

if TYPE_CHECKING:
    from streamsvm.display.html import Markup

MAX_VALUE_CHARACTERS = 60
"""Maximum length of a value in a summary."""
JSON_TYPES = (str, int, float, list, tuple, Mapping, type(None))
"""Types of the fields of a result that ``facts`` contains."""


@dataclass(frozen=True, slots=True, repr=False)
class JobResult:
    """The result of a job; each job has a subclass with further fields."""

    notices: tuple[str, ...] = field(default=(), kw_only=True)
    """Facts about the data and the run, one line each, which the command line prints after 'notice:'."""
    warnings: tuple[str, ...] = field(default=(), kw_only=True)
    """Facts to know before using the outputs, one line each, which the command line prints after 'warning:'."""
    failure: StreamSVMError | None = field(default=None, kw_only=True)
    """The error that is raised at the end, although the outputs are complete."""
    page: Path | str | None = field(default=None, kw_only=True)
    """The path of the page of the run, if one was written; a text for a URL."""

    def facts(self) -> JsonObject:
        """Return the fields that can be written as JSON; paths become text."""
        values = field_values(self, (item.name for item in fields(self))).items()
        plain = {name: str(value) if isinstance(value, Path) else value for name, value in values}
        excluded = ("failure", "page")
        return {name: value for name, value in plain.items() if isinstance(value, JSON_TYPES) and name not in excluded}

    def summary(self) -> dict[str, str]:
        """Return the facts as short texts by name; some results choose the most important ones."""
        excluded = ("notices", "warnings")
        return {
            name: format_value(value)
            for name, value in self.facts().items()
            if value is not None and name not in excluded
        }

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {', '.join(f'{name} {text}' for name, text in self.summary().items())}>"

    def _repr_html_(self) -> str:
        """Return the summary and a link to the page, for a notebook."""
        from streamsvm.display.html import build_card, element

        link = [] if self.page is None else [element("a", "the page of the run", href=str(self.page))]
        return build_card(type(self).__name__, self.summary(), *link, *self._more())

    def _more(self) -> tuple[Markup, ...]:
        """Return further content that a notebook shows below the summary."""
        return ()


def format_value(value: object) -> str:
    """Return a value as text of at most MAX_VALUE_CHARACTERS characters, numbers with six digits."""
    from streamsvm.display.html import shorten

    return shorten(f"{value:.6g}" if isinstance(value, float) else str(value), MAX_VALUE_CHARACTERS)
