"""What a source is opened with: the options people give, and what the program adds to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from streamsvm.aliases import JsonMapping
from streamsvm.config.fields import options_of
from streamsvm.errors import DataError
from streamsvm.store.sources.options import ReadOptions
from streamsvm.store.sources.rejects import Rejects

if TYPE_CHECKING:
    from streamsvm.store.sources.table.missing_words import MissingWords


@dataclass(frozen=True, kw_only=True)
class SourceOptions(ReadOptions):
    """What a source is opened with: what people say of the files, and what the program adds to it."""

    memory: int | None = None
    """Bytes the process may use."""
    memory_limit: int | None = field(default=None, compare=False)
    """Tables: bytes there are for knowing the columns; None asks nothing."""
    rejects: Rejects = field(default_factory=Rejects, compare=False)
    """Where lines that are left out are noted."""
    encoding: JsonMapping | None = None
    """What ``Source.encoding`` said when a store was made: read these files into the same columns, with the label or
    without it."""
    offsets: Sequence[tuple[int, float]] | None = None
    """Pairs (column, offset): what is taken from columns before they are rounded; None: the first rows decide. What is
    recorded in ``encoding`` goes before it."""
    recognize: bool = False
    """Tables: what becomes of columns that hold text is decided by their values."""
    split_by: str | None = None
    """Tables: the column of groups by which rows are held out."""
    split_after: str | None = None
    """Tables: COLUMN=VALUE, beyond which rows are held out."""
    undecided: dict[str, DataError] | None = field(default=None, compare=False)
    """Tables: where columns that nobody can decide are noted with the reason, and left out; None raises it."""
    unlabeled: bool = False
    """Labels are not asked for: a column of labels is passed over, whatever it holds."""

    @property
    def words(self) -> MissingWords:
        """The words for a missing value."""
        from streamsvm.store.sources.table.missing_words import MissingWords

        return MissingWords(tuple(word.strip() for word in self.missing_words))


def options_from(encoding: JsonMapping, **changes: Any) -> SourceOptions:
    """Return options that read files like those that ``encoding`` was recorded of, with or without labels.

    A recorded policy for missing values holds again, with the values it had.
    """
    known = {option.name for option in options_of(ReadOptions)}
    recorded = encoding.get("options", {}).items()
    stated = {k: tuple(v) if isinstance(v, list) else v for k, v in recorded if k in known}
    if "missing" in encoding:
        stated["missing"] = encoding["missing"].get("policy", "zero")
    return SourceOptions(**(stated | {"format": encoding["format"]} | changes), encoding=encoding)
