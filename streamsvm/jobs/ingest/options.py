"""What ``ingest`` is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, TypeVar

from streamsvm.aliases import JsonObject
from streamsvm.config.options import Bounds, Checked, Option, field_values, option_group, options_of
from streamsvm.errors import StreamSVMError, UsageError, quote
from streamsvm.input_files import is_there
from streamsvm.jobs.common_options import (
    CHUNK,
    CHUNK_BYTES,
    LOSS,
    STANDARDIZE,
    ClusterOptions,
    MemoryOptions,
    NewStoreOptions,
)
from streamsvm.store.sources.options import (
    MISSING,
    MISSING_LABEL,
    MULTILINE,
    ON_BAD_LINE,
    TABLES,
    ReadOptions,
    SourceOptions,
)
from streamsvm.tasks import CLASSIFICATION, REGRESSION, TASKS


@option_group
class RowsOptions(ReadOptions):
    """How rows of files are read: the options that ``ingest`` and a fit of files share."""

    task: Annotated[
        str,
        Option("What labels are: classes, or, for regression, numbers to predict.", "labels", choices=TASKS),
    ] = CLASSIFICATION
    label_threshold: Annotated[
        float | None,
        Option("Numbers as labels: from this one on class 1, below it class 0.", "labels", bounds=Bounds()),
    ] = None
    shuffle: Annotated[
        bool,
        Option(
            "Store the rows in random order, drawn from the seed: an exact shuffle in a second pass, through a scratch "
            "file.",
            "output",
        ),
    ] = False
    expect_rows: Annotated[
        int | None,
        Option("How many rows the sources hold together; anything else is an error.", "faults", bounds=Bounds(least=0)),
    ] = None
    stratify: Annotated[
        bool,
        Option("With --test-fraction: the same share of the rows of every class.", "output"),
    ] = False
    split_by: Annotated[
        str | None,
        Option(
            "With --test-fraction, tables: a column of groups, none of which is divided; it is no feature, unless --column "
            "or --categorical says which.",
            "output",
            metavar="COLUMN",
            formats=TABLES,
        ),
    ] = None
    split_after: Annotated[
        str | None,
        Option(
            "Tables: rows beyond a number, or after a day, go to the test store: year=2019, or day=2019-12-31.",
            "output",
            metavar="COLUMN=VALUE",
            formats=TABLES,
        ),
    ] = None
    schema: Annotated[
        Path | None,
        Option(
            "Tables: a file that says what becomes of each column, as --write-schema writes it.",
            "columns",
            formats=TABLES,
        ),
    ] = None
    recognize: Annotated[
        bool,
        Option(
            "Decide by their values what becomes of columns of text: amounts, dates, yes and no become numbers, other "
            "text one-hot or hashed columns.",
            "columns",
            formats=TABLES,
        ),
    ] = True


Job = TypeVar("Job", bound=Checked)
HELD_OUT = 0.1
"""The share of the rows of files that is held out by default."""
NO_PAGE = "none"
"""The value of --report for no page."""
INDICATOR, SKIP, ERROR = "indicator", "skip", "error"
STORE_OR_FILES = Option(
    "What to train on: a store, or a file of rows (CSV, Parquet, JSON lines, svmlight, npy), a directory of such "
    "files or a pattern, which are ingested first.",
    metavar="STORE|FILE",
)
MISSING_IN_FILES = replace(MISSING, default="indicator of tables, error of other files")
LOSS_OF_TARGET = replace(LOSS, default="squared_hinge; squared for numbers to predict")
STANDARDIZED_FILES = replace(STANDARDIZE, default="of tables in files, not of stores")
BAD_LINES_OF_FILES = replace(ON_BAD_LINE, default="skip in tables, error in other files")


@option_group
class FilesOptions(RowsOptions):
    """Files to train on: how they are read, and where the store made of them is kept."""

    more: Annotated[tuple[str, ...], Option("More files of the same kind.", metavar="FILE")] = ()
    cache: Annotated[
        str | None,
        Option(
            "Files: where the store made of them is kept, which later runs on the same files use again.",
            "output",
            metavar="PATH",
            default="FILE.zarr beside the output, FILE.2.zarr of other options",
        ),
    ] = None
    test_fraction: Annotated[
        float | None,
        Option(
            "Files: share of the rows that is held out, to evaluate the model on.",
            "output",
            bounds=Bounds(least=0, below=1),
            default="0.1",
        ),
    ] = None
    # None: by the first rows
    multiline: Annotated[bool | None, replace(MULTILINE, default="if those of the first rows do")] = None
    # None: by the kind of files
    missing: Annotated[str | None, MISSING_IN_FILES] = None  # type: ignore[assignment]
    missing_label: Annotated[str, replace(MISSING_LABEL, default="skip")] = SKIP
    on_bad_line: Annotated[str | None, BAD_LINES_OF_FILES] = None  # type: ignore[assignment]

    def ingest_job(self, sources: Sequence[Path], store: Path, *, table: bool, held_out: float = HELD_OUT) -> IngestJob:
        """Return the ingest of the files; ``table``: they are tables. ``held_out``: the share of rows that is held out
        by default.
        """
        shared = {field.name for field in options_of(RowsOptions)}
        shared |= {"seed", "memory", "threads", "cluster", "insecure_network"}
        values = field_values(self, shared)
        missing = (INDICATOR if table else ERROR) if self.missing is None else self.missing
        bad = (SKIP if table else ERROR) if self.on_bad_line is None else self.on_bad_line
        unlabeled = self.missing_label if table else ERROR
        fraction = 0.0 if self.split_after else held_out
        fraction = fraction if self.test_fraction is None else self.test_fraction
        return IngestJob(
            **{**values, "missing": missing, "missing_label": unlabeled, "on_bad_line": bad, "test_fraction": fraction},
            sources=tuple(sources),
            store=store,
        )


def job_on_store(kind: type[Job], job: Checked, store: Path | str, *, table: bool) -> Job:
    """Return the job of ``kind`` that trains on a store, with the options of a job that may train on files.

    Options that are not stated are decided here: the rows of a ``table`` in files are standardized, and the loss follows
    the targets.
    """
    fields: type = kind
    values = field_values(job, (field.name for field in options_of(fields)))
    if values["standardize"] is None:
        values["standardize"] = table
    if values["report"] == NO_PAGE:
        values["report"] = None
    return kind(**{**values, "loss": choose_loss(values["loss"], store), "store": str(store)})


def choose_loss(stated: str | None, store: Path | str) -> str:
    """Return the loss of a job: the one that is stated, or the usual one for classes, or for numbers to predict."""
    if stated is not None:
        return stated
    from streamsvm.store import open_store

    try:
        numeric = open_store(Path(store)).layout.numeric
    except StreamSVMError:  # which the job raises
        numeric = False
    return "squared" if numeric else "squared_hinge"


def are_files(name: str, more: Sequence[str]) -> bool:
    """Return whether files are named to train on, and not a store or arrays that are read in place."""
    from streamsvm.jobs.apply.rows import is_store
    from streamsvm.store.foreign import foreign_format
    from streamsvm.store.sources.byte_stream import STANDARD_INPUT
    from streamsvm.store.sources.files import WILDCARDS

    path = Path(name)
    if more or name == STANDARD_INPUT:
        return True
    if not is_there(path):
        return bool(WILDCARDS & set(name))
    return not is_store(path) and foreign_format(path) is None


@dataclass(frozen=True, kw_only=True)
class IngestJob(ClusterOptions, MemoryOptions, NewStoreOptions, RowsOptions):
    """What ``streamsvm ingest`` is asked for; the keys of a job file are these fields and those of the groups."""

    sources: Annotated[
        tuple[Path, ...],
        Option("Files of one format, directories of them, or patterns; - is standard input.", metavar="SOURCE"),
    ]
    store: Annotated[Path, Option("Where the store is written.")]
    positive: Annotated[str | None, Option("One class against the rest: the label that becomes class 1.", "labels")] = (
        None
    )
    # a chunk of less than a page is mostly overhead
    chunk_bytes: Annotated[int, replace(CHUNK, bounds=Bounds(least=4096))] = CHUNK_BYTES
    layout: Annotated[
        str,
        Option(
            "How rows are stored; auto: csr for svmlight that is mostly empty and for tables with many one-hot columns.",
            "output",
            choices=("auto", "dense", "csr"),
        ),
    ] = "auto"
    test_store: Annotated[
        Path | None, Option("Where the test store is written.", "output", default="NAME.test.zarr beside NAME.zarr")
    ] = None
    store_format: Annotated[
        str | None,
        Option(
            "Format of the store.",
            "output",
            choices=("zarr", "hdf5"),
            default="by its name, HDF5 for NAME.h5, else Zarr",
        ),
    ] = None
    compression: Annotated[
        str,
        Option(
            "Compress the arrays of a Zarr store; auto: with lz4 those it makes much smaller, by trying the first rows.",
            "output",
            choices=("none", "auto", "lz4"),
        ),
    ] = "none"
    repair: Annotated[
        bool,
        Option(
            "Write again only the damaged chunks of a store, from the sources and with the options it was made with.",
            "output",
        ),
    ] = False

    def __post_init__(self) -> None:
        """Check the options; raises UsageError."""
        super().__post_init__()
        self._check_split()

    def _check_split(self) -> None:
        """Raise UsageError for ways to hold rows out that exclude each other, or that lack what they need."""
        asked = {"--stratify": self.stratify, "--split-by": self.split_by, "--split-after": self.split_after}
        given = [name for name, value in asked.items() if value]
        if self.stratify and self.task == REGRESSION:
            raise UsageError(
                "--stratify holds out a share of every class, and --task regression has none", hint="leave it out"
            )
        if len(given) > 1:
            raise UsageError(f"{given[0]} and {given[1]} are two ways to hold rows out", hint="choose one of them")
        if given and given != ["--split-after"] and not self.test_fraction:
            raise UsageError(f"{given[0]} holds no rows out without a share", hint="pass --test-fraction 0.2")
        if self.split_after is None:
            return
        if self.test_fraction:
            raise UsageError(
                "--split-after says which rows are for testing, and so does --test-fraction", hint="pass one"
            )
        column, equals, value = self.split_after.partition("=")
        if not (column and equals and value):
            hint = "write it as --split-after year=2019 or --split-after day=2019-12-31"
            raise UsageError(f"--split-after {quote(self.split_after)} is not COLUMN=VALUE", hint=hint)

    def with_schema(self) -> IngestJob:
        """Return the job with what its schema file says, unless an option says otherwise. Raises MissingError,
        ConfigError.
        """
        if self.schema is None:
            return self
        from streamsvm.jobs.ingest.schema_file import read_schema

        said = read_schema(self.schema)
        return replace(
            self,
            columns_as=(*said.columns_as, *self.columns_as),
            label=self.label or said.label,
            id_column=self.id_column or said.id_column,
            weight=self.weight or said.weight,
        )

    @property
    def holds_out(self) -> bool:
        """Whether some rows go to a test store."""
        return bool(self.test_fraction or self.split_after)

    def options(self) -> SourceOptions:
        """Return the part that says how the files are read."""
        stated = field_values(self, (option.name for option in options_of(ReadOptions)))
        return SourceOptions(
            **stated,
            memory=self.memory,
            recognize=self.recognize,
            split_by=self.split_by,
            split_after=self.split_after,
            numeric=self.task == REGRESSION,
        )

    def test_path(self) -> Path:
        """Return where the test store goes."""
        return self.test_store or self.store.with_name(f"{self.store.stem}.test{self.store.suffix or '.zarr'}")

    def targets(self) -> list[Path]:
        """Return the store and, if rows are held out, the test store."""
        return [self.store, self.test_path()] if self.holds_out else [self.store]


@dataclass(frozen=True, kw_only=True)
class CacheIngestJob(IngestJob):
    """The ingest of a store that a fit makes of files for itself."""

    contents: JsonObject
    """What the store is made of, which its manifest records."""
