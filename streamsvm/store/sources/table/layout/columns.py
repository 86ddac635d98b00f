"""The kinds of columns a table has, and the feature columns that are made of one."""

from __future__ import annotations

from dataclasses import dataclass

NUMBER, AMOUNT, BOOLEAN, YEARS = "number", "amount", "boolean", "years"
CATEGORY, HASHED, TEXT = "category", "hashed", "text"
SINGLE = (NUMBER, AMOUNT, BOOLEAN, YEARS)
"""The kinds of columns that are one number."""
WRITTEN = (AMOUNT, BOOLEAN, CATEGORY, HASHED, TEXT)
"""The kinds that are read from text, however it is written."""
DATE, EPOCH_SECONDS, DECIMAL_COMMA, HASH, DROP = "date", "epoch", "decimal-comma", "hash", "drop"
WORDS, CHARS = "words", "chars"
KINDS = (NUMBER, AMOUNT, DECIMAL_COMMA, BOOLEAN, DATE, EPOCH_SECONDS, CATEGORY, HASH, WORDS, CHARS, DROP)
"""What --column can say of a column."""
OTHER = "(other)"
"""The name of what stands for all rare values of a category, and for those that are new."""
WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
CALENDAR = {"month": tuple(map(str, range(1, 13))), "weekday": WEEKDAYS, "hour": tuple(map(str, range(24)))}


@dataclass(frozen=True, slots=True)
class Column:
    """One column of the table, or a cross of several, and the feature columns made of it."""

    name: str
    """Its name in the table; of a cross the names of its columns with '*' between them."""
    kind: str
    """'number', 'amount', 'boolean', 'category', 'hashed', 'text', or a part of a point in time: 'years', 'month',
    'weekday', 'hour'."""
    values: tuple[str, ...] = ()
    """What each feature column stands for; empty for a number and for what is hashed."""
    form: str = ""
    """How points in time are written, one of ``cells.DATES``; of an amount 'decimal-comma' or empty; what text is cut
    into, 'words' or 'chars:2-4'. Empty where the files say it."""
    unasked: bool = False
    """Whether its kind was told by its values; text may then become hashed columns, or be left out."""
    parts: tuple[str, ...] = ()
    """The columns of the table whose values together are those of a cross; empty for a column of the table."""
    zone: str = ""
    """Of points in time: the time zone of the column, 'UTC' for texts with offsets; empty where times have no zone."""
    text_bits: int = 0
    """The exponent of the number of feature columns of text; 0 for other kinds."""

    @property
    def width(self) -> int:
        """The number of feature columns."""
        if self.kind == TEXT:
            return 1 << self.text_bits
        return 1 if self.kind in SINGLE else len(self.values)

    @property
    def features(self) -> tuple[str, ...]:
        """The names of the feature columns; none where they stand for whatever is hashed to them."""
        if self.kind in SINGLE:
            return (f"{self.name}.years" if self.kind == YEARS else self.name,)
        name = self.name if self.kind == CATEGORY else f"{self.name}.{self.kind}"
        return tuple(f"{name}={value}" for value in self.values)

    @property
    def needs_value(self) -> bool:
        """Whether it is read from text of which a missing one must be named; text without words is none."""
        return self.kind != TEXT and (self.kind in WRITTEN or bool(self.form))

    @property
    def sources(self) -> tuple[str, ...]:
        """The columns of the table that it is made of."""
        return self.parts or (self.name,)

    @property
    def stated(self) -> str:
        """The kind as --column and schema files say it; of a part of a date the whole date."""
        if self.kind in (YEARS, *CALENDAR):
            return EPOCH_SECONDS if self.form == EPOCH_SECONDS else f"{DATE}:{self.form}" if self.form else DATE
        if self.kind in (AMOUNT, TEXT):
            return self.form or AMOUNT
        return HASH if self.kind == HASHED else self.kind
