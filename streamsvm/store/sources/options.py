"""The options for reading sources: those of users, and those that the program adds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from streamsvm.config.options import Bounds, Checked, Option, field_values, option_group, options_of
from streamsvm.errors import DataError, UsageError
from streamsvm.store.sources.rejects import Rejects
from streamsvm.type_aliases import JsonMapping, ValuesByName

if TYPE_CHECKING:
    from streamsvm.store.sources.cell_parsing import MissingWords


SVMLIGHT, CSV, KEYED, ARRAY_BYTES = ("svmlight",), ("csv",), ("hdf5", "zarr"), ("npy", "npz", "idx")
LAKES = ("delta", "iceberg")
TABLES = ("csv", "parquet", "arrow", "jsonl", *LAKES)
"""The formats of tables, whose columns have names and kinds; a model can be applied to rows in any of them."""
TEXT = (*SVMLIGHT, *CSV, "jsonl")


def bad_share(text: str) -> float:
    """Parse --max-bad, '1%' or '0.01', as a fraction of the lines. Raises UsageError."""
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise UsageError(f"--max-bad {text!r} is no share of the lines", hint="write it as 1% or 0.01")
    return share


def check_charset(name: str) -> None:
    """Raise UsageError for a name that is no encoding of text."""
    try:
        " ".encode(name)
    except (LookupError, UnicodeError):
        hint = "write it as latin-1, cp1252, utf-16, shift-jis or another name that Python knows"
        raise UsageError(f"--encoding {name!r} is no encoding of text", hint=hint) from None


FormatName = Annotated[
    str,
    Option(
        "Format of the files; auto recognizes it by their first bytes and names.",
        "reading",
        choices="streamsvm.store.sources:SOURCES",
        extra_choices=("auto",),
        aliases=(("libsvm", "svmlight"), ("tsv", "csv"), ("feather", "arrow"), ("h5", "hdf5")),
    ),
]


HEADER = Option("CSV: the first line names the columns.", "reading", formats=CSV)
DELIMITER = Option(
    "CSV: the character between values.", "reading", metavar="CHAR", default="recognized in the first line", formats=CSV
)
MULTILINE = Option("CSV: values in quotes may contain line feeds.", "reading", formats=CSV)
SKIP_LINES = Option(
    "CSV: number of lines to skip above the header, or above the first row.",
    "reading",
    bounds=Bounds(least=0),
    default="comment lines (#, %, |, //) are skipped",
    formats=CSV,
)
CHARSET = Option(
    "CSV, JSON lines: the encoding of the text, such as latin-1, cp1252 or utf-16 (with --format), if it is not UTF-8.",
    "reading",
    flag="encoding",
    metavar="NAME",
    default="utf-8",
    formats=(*CSV, "jsonl"),
)
COMMENT = Option(
    "CSV: prefix of comment lines, which are skipped anywhere in the file.", "reading", metavar="MARK", formats=CSV
)
LABELS_FILE = Option(
    "Npy and idx: the file that holds the labels of the rows of all arrays, in the order of the arrays.",
    "labels",
    formats=("npy", "idx"),
)
ID_COLUMN = Option(
    "Tables: the column with the ids of the rows, which becomes the first column of predictions.",
    "columns",
    flag="id",
    metavar="COLUMN",
    formats=TABLES,
)
IGNORE_QID = Option("Svmlight: skip 'qid:' entries instead of refusing them.", "faults", formats=SVMLIGHT)
FEATURES_KEY = Option("HDF5 and Zarr: the name of the array (or AnnData matrix) of features.", "reading", formats=KEYED)
LABELS_KEY = Option("HDF5 and Zarr: the name of the array of labels.", "reading", formats=KEYED)
ALLOW_FILL = Option(
    "HDF5 and Zarr: read chunks that were never written as the fill value of the array; otherwise they are an error.",
    "faults",
    formats=KEYED,
)
TABLE_VERSION = Option(
    "Tables of data lakes: the version of a Delta table, or the snapshot, branch or tag of an Iceberg table, that is read, or the time at "
    "which it was the current one, such as 2026-11-27T12:00 (UTC unless it has an offset).",
    "reading",
    metavar="VERSION|TIME",
    default="the current version",
    formats=LAKES,
)
MISSING = Option(
    "Missing values: refuse them (error), or replace them by the mean of the column, by zero, or by zero with an additional "
    "column that marks them (indicator).",
    "faults",
    choices=("error", "mean", "zero", "indicator"),
)
MISSING_WORDS = Option(
    "Tables: additional words for a missing value. Known words are NA, n/a, NULL, ?, NaN, #N/A, ..., and in numeric columns also "
    "-, . and none.",
    "faults",
    flag="na",
    metavar="WORD,...",
    formats=TABLES,
)
MISSING_LABEL = Option(
    "Tables: rows without a label: refuse them (error), or skip and count them.",
    "faults",
    choices=("error", "skip"),
    formats=TABLES,
)
ON_BAD_LINE = Option(
    "Text and tables: lines or rows that cannot be read: refuse them (error), or skip them and list them in NAME.rejects beside the "
    "output.",
    "faults",
    choices=("error", "skip"),
    formats=(*TEXT, "parquet", "arrow", *LAKES),
)
MAX_BAD = Option(
    "Maximum fraction of lines that may be skipped: 1% or 0.01.",
    "faults",
    metavar="SHARE",
    formats=(*TEXT, "parquet", "arrow", *LAKES),
)
ON_DUPLICATE = Option(
    "Svmlight: an index that occurs several times in a row: refuse it (error), add the values (sum), or use the first or the last.",
    "faults",
    choices=("error", "sum", "first", "last"),
    formats=SVMLIGHT,
)
SORT = Option(
    "Svmlight: sort the entries of rows whose indices are not ascending; otherwise they are an error.",
    "faults",
    formats=SVMLIGHT,
)


def _as_recorded(option: Option) -> Option:
    """Return the option for a command that reads new rows, with the value recorded in the model as its default."""
    return replace(option, default="as recorded in the model")


@option_group
class TextEndOptions(Checked):
    """The end of text files."""

    allow_no_final_newline: Annotated[
        bool,
        Option(
            "Text: accept a last line without a line feed, which usually means that the file is truncated.",
            "faults",
            formats=TEXT,
        ),
    ] = False


@option_group
class ReadOptions(TextEndOptions):
    """How files are read into rows. A job prints which of these options have no effect for its format (``jobs.without_effect``)."""

    format: FormatName = "auto"
    label: Annotated[
        str | None,
        Option(
            "Tables and arrays: the column with the label: first, last, none, or its name.",
            "labels",
            formats=(*TABLES, *ARRAY_BYTES, *KEYED),
        ),
    ] = None
    labels: Annotated[Path | None, LABELS_FILE] = None
    weight: Annotated[str | None, Option("Tables: the column with the weights of rows.", "columns", formats=TABLES)] = (
        None
    )
    id_column: Annotated[str | None, ID_COLUMN] = None
    drop: Annotated[tuple[str, ...], Option("Tables: columns to leave out.", "columns", formats=TABLES)] = ()
    categorical: Annotated[
        tuple[str, ...],
        Option("Tables: columns to encode one-hot; '*' means every text column.", "columns", formats=TABLES),
    ] = ()
    calendar: Annotated[
        tuple[str, ...],
        Option(
            "Tables: columns of dates or times to encode as month, day of the week and hour, each one-hot.",
            "columns",
            formats=TABLES,
        ),
    ] = ()
    hash_bits: Annotated[
        int | None,
        Option(
            "Tables: hash the values of all text columns into 2^N common columns, with signs, instead of a column for each value.",
            "columns",
            bounds=Bounds(least=1, most=26),
            flag="hash",
            formats=TABLES,
        ),
    ] = None
    columns_as: Annotated[
        tuple[str, ...],
        Option(
            "Tables: kinds of columns, NAME=KIND,... with the kinds number, amount (money, percent, thousands), "
            "decimal-comma (1.234,56), boolean, date, epoch (seconds since 1970), category, hash, words, chars:2-4 (text), "
            "vector (a list of numbers) and drop.",
            "columns",
            flag="column",
            metavar="NAME=KIND,...",
            formats=TABLES,
        ),
    ] = ()
    text: Annotated[
        tuple[str, ...],
        Option(
            "Tables: text columns to encode by their words, NAME=words,... or by sequences of 2 to 4 characters, NAME=chars:2-4; hashed "
            "into separate columns, with sublinear tf-idf weights.",
            "columns",
            metavar="NAME=words|chars:2-4,...",
            formats=TABLES,
        ),
    ] = ()
    text_bits: Annotated[
        int,
        Option(
            "Tables: each text column of --text becomes 2^N columns.",
            "columns",
            bounds=Bounds(least=1, most=26),
            formats=TABLES,
        ),
    ] = 18
    cross: Annotated[
        tuple[str, ...],
        Option(
            "Tables: columns whose combinations of values are encoded, one-hot or hashed: A*B,...",
            "columns",
            metavar="A*B,...",
            formats=TABLES,
        ),
    ] = ()
    min_count: Annotated[
        int,
        Option(
            "Tables: values of a category that occur in fewer rows share one column, as do values that first occur in later data.",
            "columns",
            bounds=Bounds(least=1),
            formats=TABLES,
        ),
    ] = 1
    header: Annotated[bool, HEADER] = True
    delimiter: Annotated[str | None, DELIMITER] = None
    multiline: Annotated[bool | None, MULTILINE] = False
    skip_lines: Annotated[int | None, SKIP_LINES] = None
    comment: Annotated[str | None, COMMENT] = None
    charset: Annotated[str | None, CHARSET] = None
    index_base: Annotated[
        int | None,
        Option(
            "Svmlight: the smallest index, 0 or 1.",
            "reading",
            bounds=Bounds(least=0, most=1),
            default="recognized in the first block",
            formats=SVMLIGHT,
        ),
    ] = None
    features: Annotated[
        int | None,
        Option(
            "Svmlight: the number of columns.",
            "columns",
            bounds=Bounds(least=1),
            default="the largest index",
            formats=SVMLIGHT,
        ),
    ] = None
    ignore_qid: Annotated[bool, IGNORE_QID] = False
    text_labels: Annotated[bool, Option("Svmlight: labels are text, not numbers.", "labels", formats=SVMLIGHT)] = False
    features_key: Annotated[str, FEATURES_KEY] = "X"
    labels_key: Annotated[str, LABELS_KEY] = "y"
    allow_fill: Annotated[bool, ALLOW_FILL] = False
    table_version: Annotated[str | None, TABLE_VERSION] = None
    missing: Annotated[str, MISSING] = "error"
    missing_words: Annotated[tuple[str, ...], MISSING_WORDS] = ()
    on_bad_line: Annotated[str, ON_BAD_LINE] = "error"
    missing_label: Annotated[str, MISSING_LABEL] = "error"
    max_bad: Annotated[str, MAX_BAD] = "1%"
    on_duplicate: Annotated[str, ON_DUPLICATE] = "error"
    sort: Annotated[bool, SORT] = False

    def __post_init__(self) -> None:
        """Check the options. Raises UsageError."""
        super().__post_init__()
        if self.delimiter is not None and len(self.delimiter) != 1:
            raise UsageError(f"--delimiter must be one character, not {self.delimiter!r}")
        bad_share(self.max_bad)
        if self.charset is not None:
            check_charset(self.charset)


@option_group
class NewRowOptions(TextEndOptions):
    """How files are read to which a model is applied; other options are as recorded in the model."""

    label: Annotated[
        str | None,
        Option("The column with the label, or 'none'.", "labels", default="as recorded in the model"),
    ] = None
    format: FormatName = "auto"
    labels: Annotated[Path | None, LABELS_FILE] = None
    header: Annotated[bool | None, _as_recorded(HEADER)] = None
    delimiter: Annotated[str | None, _as_recorded(DELIMITER)] = None
    multiline: Annotated[bool | None, _as_recorded(MULTILINE)] = None
    skip_lines: Annotated[int | None, _as_recorded(SKIP_LINES)] = None
    comment: Annotated[str | None, _as_recorded(COMMENT)] = None
    charset: Annotated[str | None, _as_recorded(CHARSET)] = None
    ignore_qid: Annotated[bool | None, _as_recorded(IGNORE_QID)] = None
    sort: Annotated[bool | None, _as_recorded(SORT)] = None
    on_duplicate: Annotated[str | None, _as_recorded(ON_DUPLICATE)] = None
    id_column: Annotated[str | None, _as_recorded(ID_COLUMN)] = None
    features_key: Annotated[str | None, _as_recorded(FEATURES_KEY)] = None
    labels_key: Annotated[str | None, _as_recorded(LABELS_KEY)] = None
    allow_fill: Annotated[bool, ALLOW_FILL] = False
    table_version: Annotated[str | None, TABLE_VERSION] = None
    missing_words: Annotated[tuple[str, ...] | None, _as_recorded(MISSING_WORDS)] = None
    missing_label: Annotated[str, MISSING_LABEL] = "error"
    on_bad_line: Annotated[str, ON_BAD_LINE] = "error"
    max_bad: Annotated[str, MAX_BAD] = "1%"

    def find_given_options(self) -> ValuesByName:
        """Return the options that were given as fields of ``SourceOptions``."""
        values = field_values(self, (option.name for option in options_of(NewRowOptions)))
        return {name: value for name, value in values.items() if value is not None and value != "auto"}


@dataclass(frozen=True, kw_only=True)
class SourceOptions(ReadOptions):
    """The options of a source: those of the user, and those that the program adds."""

    memory: int | None = None
    """The bytes that the process may use."""
    memory_limit: int | None = field(default=None, compare=False)
    """Tables: the bytes that the schema and one batch may take; None: no limit."""
    rejects: Rejects = field(default_factory=Rejects, compare=False)
    """The list of bad lines that are left out."""
    encoding: JsonMapping | None = None
    """A recorded ``Source.encoding``, by which files are read into the same columns; None infers an encoding."""
    offsets: Sequence[tuple[int, float]] | None = None
    """Pairs (column, offset) to subtract, unless ``encoding`` has some; None: computed from the first rows."""
    filling: JsonMapping | None = None
    """The filling of missing values (``Filling.to_json``), unless ``encoding`` has one; None: from all rows."""
    recognize: bool = False
    """Tables: whether the kinds of columns of text are inferred from their values."""
    partitions: tuple[str, ...] = ()
    """Tables: columns in the names of folders below those that the user named."""
    split_by: str | None = None
    """Tables: the column of groups by which rows are held out."""
    split_after: str | None = None
    """Tables: COLUMN=VALUE; rows with a larger value are held out."""
    undecided: dict[str, DataError] | None = field(default=None, compare=False)
    """Tables: filled with the columns whose kind cannot be inferred, and the error; None: the error is raised."""
    max_census_rows: int | None = None
    """Tables: the number of first rows in which the values of categories are counted; None: all; 0: none are counted."""
    comma_first: bool = False
    """Tables: whether 1,234 is read as a decimal number and not as a thousand, as in files whose delimiter is a semicolon."""
    numeric: bool = False
    """Whether labels are numbers to predict."""
    unlabeled: bool = False
    """Whether a column of labels is ignored."""

    @property
    def words(self) -> MissingWords:
        """The words for a missing value."""
        from streamsvm.store.sources.cell_parsing import MissingWords

        return MissingWords(tuple(word.strip() for word in self.missing_words))


def options_from(encoding: JsonMapping, **changes: Any) -> SourceOptions:
    """Return the options by which files are read like those of a recorded ``encoding``, with or without labels.

    Missing values are filled by the recorded policy with the recorded values.
    """
    names = {option.name for option in options_of(ReadOptions)}
    recorded = encoding.get("options", {}).items()
    stated = {k: tuple(v) if isinstance(v, list) else v for k, v in recorded if k in names}
    if "missing" in encoding:
        stated["missing"] = encoding["missing"].get("policy", "zero")
    return SourceOptions(**(stated | {"format": encoding["format"]} | changes), encoding=encoding)
