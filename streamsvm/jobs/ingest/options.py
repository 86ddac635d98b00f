"""The options of ``ingest``, and those that a fit of files shares with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, TypeVar

from streamsvm.config.options import Bounds, Checked, Option, field_values, option_group, options_of
from streamsvm.errors import StreamSVMError, UsageError, quote
from streamsvm.input_files import find_url, is_there
from streamsvm.jobs.common_options import (
    CHUNK,
    CHUNK_BYTES,
    LOSS,
    STANDARDIZE,
    STORE_DTYPE,
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
from streamsvm.type_aliases import JsonObject


@option_group
class RowsOptions(ReadOptions):
    """The options for reading rows from files, shared by ``ingest`` and a fit of files."""

    task: Annotated[
        str,
        Option("Whether labels are classes or numbers to predict (regression).", "labels", choices=TASKS),
    ] = CLASSIFICATION
    label_threshold: Annotated[
        float | None,
        Option("For labels that are numbers: class 1 from this value up, class 0 below it.", "labels", bounds=Bounds()),
    ] = None
    shuffle: Annotated[
        bool,
        Option(
            "Store the rows in a random order that the seed determines. The shuffle is exact; it takes a second pass, "
            "through a scratch file.",
            "output",
        ),
    ] = False
    expect_rows: Annotated[
        int | None,
        Option(
            "Number of rows that all sources should have together; any other number is an error.",
            "faults",
            bounds=Bounds(least=0),
        ),
    ] = None
    stratify: Annotated[
        bool,
        Option("With --test-fraction: hold out the same share of the rows of every class.", "output"),
    ] = False
    split_by: Annotated[
        str | None,
        Option(
            "With --test-fraction, tables: a column of groups; all rows of a group go to the same store. The column is "
            "no feature, unless --column or --categorical gives it a kind.",
            "output",
            metavar="COLUMN",
            formats=TABLES,
        ),
    ] = None
    split_after: Annotated[
        str | None,
        Option(
            "Tables: rows with a larger number, or a later day, go to the test store: year=2019, or day=2019-12-31.",
            "output",
            metavar="COLUMN=VALUE",
            formats=TABLES,
        ),
    ] = None
    store_dtype: Annotated[str, STORE_DTYPE] = "auto"
    schema: Annotated[
        Path | None,
        Option(
            "Tables: a file with the kind of each column, in the form that --write-schema writes.",
            "columns",
            formats=TABLES,
            copies="input",
        ),
    ] = None
    recognize: Annotated[
        bool,
        Option(
            "Choose the kind of text columns by their values: amounts, dates, yes and no become numbers, other text "
            "becomes one-hot or hashed columns.",
            "columns",
            formats=TABLES,
        ),
    ] = True


Job = TypeVar("Job", bound=Checked)
HELD_OUT = 0.1
"""Default share of the rows of files that is held out."""
SEVERAL = 8
"""If a fit holds out chunks, data of fewer chunks than this are cut into smaller ones."""
CHUNKS_FOR_VALIDATION = 64
"""The number of chunks into which they are then cut."""
MIN_CHUNK = 4096
"""The least bytes of such a chunk, unless the data are then fewer than ``SEVERAL`` chunks."""
CHUNK_OF_GIVEN_ROWS = 256 << 10
"""The bytes of a chunk for rows of a program of which a fit holds out chunks, unless their size is known to be small."""
LEAST_CHUNK = 64
"""The least bytes of a chunk."""
COMPRESSION_RATIO, PACKED = 8, (".gz", ".bz2", ".xz", ".zst", ".parquet")
"""How much larger than a compressed file its rows are taken to be."""
NO_PAGE = "none"
"""The value of --report that means no page."""
INDICATOR, SKIP, ERROR = "indicator", "skip", "error"
STORE_OR_FILES = Option(
    "Training data: a store, or a file of rows (CSV, Parquet, Arrow, JSON lines, svmlight, npy), a directory of such files or "
    "a pattern. Files are ingested first.",
    metavar="STORE|FILE",
    urls=True,
)
MISSING_IN_FILES = replace(MISSING, default="indicator in tables, error in other files")
LOSS_OF_TARGET = replace(LOSS, default="squared_hinge; logistic with --curves; squared for regression")
STANDARDIZED_FILES = replace(STANDARDIZE, default="yes for tables in files, no for stores and with --curves")
BAD_LINES_OF_FILES = replace(ON_BAD_LINE, default="skip in tables, error in other files")


@option_group
class FilesOptions(RowsOptions):
    """The options for training on files: how they are read, and where the store made from them is kept."""

    more: Annotated[tuple[str, ...], Option("More files of the same kind.", metavar="FILE")] = ()
    cache: Annotated[
        str | None,
        Option(
            "Files: path of the store made from them, which later runs on the same files reuse.",
            "output",
            metavar="PATH",
            default="FILE.zarr beside the output, or in the working directory if that is at a URL; FILE.2.zarr for other options",
        ),
    ] = None
    test_fraction: Annotated[
        float | None,
        Option(
            "Files: share of the rows that is held out to evaluate the model.",
            "output",
            bounds=Bounds(least=0, below=1),
            default="0.1",
        ),
    ] = None
    # None: the first rows decide
    multiline: Annotated[bool | None, replace(MULTILINE, default="if values in the first rows contain some")] = None
    # None: the format of the files decides
    missing: Annotated[str | None, MISSING_IN_FILES] = None  # type: ignore[assignment]
    missing_label: Annotated[str, replace(MISSING_LABEL, default="skip")] = SKIP
    on_bad_line: Annotated[str | None, BAD_LINES_OF_FILES] = None  # type: ignore[assignment]

    def check_ingest_options(self, name: str) -> None:
        """Raise UsageError for options that an ingest does not allow. ``name``: the training data."""
        self.ingest_job((), Path("rows.zarr" if find_url(name) else name), table=True)

    def ingest_job(
        self,
        sources: tuple[Path, ...],
        store: Path,
        *,
        table: bool,
        held_out: float = HELD_OUT,
        given_bytes: int | None = None,
    ) -> IngestJob:
        """Return the ingest job for the files, or for rows of a program if there are no ``sources``.

        ``table``: whether they are tables. ``held_out``: default share of rows to hold out. ``given_bytes``: the size
        of rows of a program; None if it is unknown.
        """
        shared = {field.name for field in options_of(RowsOptions)}
        shared |= {"seed", "memory", "threads", "cluster", "insecure_network"}
        values = field_values(self, shared)
        missing = (INDICATOR if table else ERROR) if self.missing is None else self.missing
        bad = (SKIP if table else ERROR) if self.on_bad_line is None else self.on_bad_line
        unlabeled = self.missing_label if table else ERROR
        fraction = 0.0 if self.split_after else held_out
        fraction = fraction if self.test_fraction is None else self.test_fraction
        if isinstance(getattr(self, "validation", None), float | int):  # which holds out chunks
            values["chunk_bytes"] = chunk_bytes_for_validation(sources, given_bytes)
        return IngestJob(
            **{**values, "missing": missing, "missing_label": unlabeled, "on_bad_line": bad, "test_fraction": fraction},
            sources=sources,
            store=store,
        )


def chunk_bytes_for_validation(sources: Sequence[Path], given_bytes: int | None) -> int:
    """Return the bytes of a chunk for a fit that holds out some of the chunks: of little data less than the default, so
    that there are enough. ``sources``: the files; empty for rows of a program, which have ``given_bytes`` if that is
    known.
    """
    files = [path for path in sources if path.is_file()]
    if files and len(files) == len(sources):
        packed = [path.stat().st_size * (COMPRESSION_RATIO if path.suffix in PACKED else 1) for path in files]
        size, default = sum(packed), CHUNK_BYTES
    elif given_bytes is not None:
        size, default = given_bytes, CHUNK_OF_GIVEN_ROWS
    else:
        return CHUNK_OF_GIVEN_ROWS
    if size >= SEVERAL * default:
        return default
    least = MIN_CHUNK if size >= SEVERAL * MIN_CHUNK else LEAST_CHUNK
    return max(least, size // CHUNKS_FOR_VALIDATION)


def job_on_store(kind: type[Job], job: Checked, store: Path | str, *, table: bool) -> Job:
    """Return a job of class ``kind`` on a store, with the options of ``job``, which may have been given files.

    Options that were not given are chosen: rows are standardized if they come from a ``table`` in files, and the loss
    suits the targets.
    """
    fields: type = kind
    values = field_values(job, (field.name for field in options_of(fields)))
    if values["standardize"] is None:
        values["standardize"] = table and not values.get("curves")
    if values["report"] == NO_PAGE:
        values["report"] = None
    return kind(
        **{**values, "loss": choose_loss(values["loss"], store, curves=bool(values.get("curves"))), "store": str(store)}
    )


def choose_loss(stated: str | None, store: Path | str, *, curves: bool) -> str:
    """Return the loss of a job: ``stated``, or the default loss for classes, for curves of classes, or for regression."""
    if stated is not None:
        return stated
    from streamsvm.store import open_store

    try:
        numeric = open_store(Path(store)).layout.numeric
    except StreamSVMError:  # the job itself will raise it
        numeric = False
    return "squared" if numeric else "logistic" if curves else "squared_hinge"


def are_files(name: str, more: Sequence[str]) -> bool:
    """Return whether the training data are files to ingest, and not a store or arrays that are read in place."""
    from streamsvm.jobs.apply.rows import is_store
    from streamsvm.store.foreign import foreign_format
    from streamsvm.store.sources.byte_stream import STANDARD_INPUT
    from streamsvm.store.sources.files import WILDCARDS
    from streamsvm.store.sources.remote_files import is_there_at

    path = Path(name)
    if more or name == STANDARD_INPUT:
        return True
    if (url := find_url(name)) is not None:
        return path.suffix != ".zarr" and not is_store(path) and is_there_at(url)
    if not is_there(path):
        return bool(WILDCARDS & set(name))
    return not is_store(path) and foreign_format(path) is None


@dataclass(frozen=True, kw_only=True)
class IngestJob(ClusterOptions, MemoryOptions, NewStoreOptions, RowsOptions):
    """The options of ``streamsvm ingest``. The keys of a job file are the names of these fields and of the groups'
    fields.
    """

    sources: Annotated[
        tuple[Path, ...],
        Option(
            "Files of one format, directories of them, or patterns; - is standard input. URLs of object stores: CSV, JSON lines, svmlight "
            "and Parquet.",
            metavar="SOURCE",
            urls=True,
        ),
    ]
    store: Annotated[Path, Option("Path or URL of the store.", copies="store")]
    positive: Annotated[
        str | None, Option("Train one class against the rest: the label that becomes class 1.", "labels")
    ] = None
    # the overhead of a chunk smaller than a page would exceed its content
    chunk_bytes: Annotated[int, replace(CHUNK, bounds=Bounds(least=LEAST_CHUNK))] = CHUNK_BYTES
    layout: Annotated[
        str,
        Option(
            "Layout of the rows; auto: csr for svmlight rows that are mostly zero and for tables with many one-hot "
            "columns.",
            "output",
            choices=("auto", "dense", "csr"),
        ),
    ] = "auto"
    test_store: Annotated[
        Path | None,
        Option("Path or URL of the test store.", "output", default="NAME.test.zarr beside NAME.zarr", copies="store"),
    ] = None
    store_format: Annotated[
        str | None,
        Option(
            "Format of the store.",
            "output",
            choices=("zarr", "hdf5"),
            default="HDF5 for NAME.h5, else Zarr",
        ),
    ] = None
    compression: Annotated[
        str,
        Option(
            "Compression of the arrays of a Zarr store; auto: lz4 for arrays whose first rows it makes much smaller.",
            "output",
            choices=("none", "auto", "lz4"),
        ),
    ] = "none"
    repair: Annotated[
        bool,
        Option(
            "Write only the damaged chunks of a store again, from the same sources and with the same options.",
            "output",
        ),
    ] = False

    def __post_init__(self) -> None:
        """Check the options. Raises UsageError."""
        super().__post_init__()
        self._check_split()
        if self.cluster is not None and any(find_url(source) for source in self.sources):
            hint = "ingest without --cluster; the store can then be fitted on a cluster"
            raise UsageError("workers of a cluster do not read files of rows in an object store", hint=hint)

    def _check_split(self) -> None:
        """Raise UsageError for options for held-out rows that exclude each other, or without the options that they
        need.
        """
        asked = {"--stratify": self.stratify, "--split-by": self.split_by, "--split-after": self.split_after}
        stated = [name for name, value in asked.items() if value]
        if self.stratify and self.task == REGRESSION:
            raise UsageError(
                "--stratify holds out a share of every class, and --task regression has no classes", hint="leave it out"
            )
        if len(stated) > 1:
            raise UsageError(f"{stated[0]} and {stated[1]} are two ways to hold rows out", hint="choose one of them")
        if stated and stated != ["--split-after"] and not self.test_fraction:
            raise UsageError(
                f"{stated[0]} needs --test-fraction, the share of rows to hold out", hint="pass --test-fraction 0.2"
            )
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
        """Return the job with the settings of its schema file; options take precedence. Raises MissingError,
        ConfigError.
        """
        if self.schema is None:
            return self
        from streamsvm.jobs.ingest.schema_file import read_schema

        schema = read_schema(self.schema)
        return replace(
            self,
            columns_as=(*schema.columns_as, *self.columns_as),
            label=self.label or schema.label,
            id_column=self.id_column or schema.id_column,
            weight=self.weight or schema.weight,
        )

    @property
    def holds_out(self) -> bool:
        """Whether rows are held out in a test store."""
        return bool(self.test_fraction or self.split_after)

    def options(self) -> SourceOptions:
        """Return the options for reading the sources."""
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
        """Return the path of the test store."""
        return self.test_store or self.store.with_name(f"{self.store.stem}.test{self.store.suffix or '.zarr'}")

    def targets(self) -> list[Path]:
        """Return the store and, if rows are held out, the test store."""
        return [self.store, self.test_path()] if self.holds_out else [self.store]


@dataclass(frozen=True, kw_only=True)
class CacheIngestJob(IngestJob):
    """The ingest by which a fit of files makes its store."""

    contents: JsonObject
    """The description of the store's content, for the manifest; by it later runs recognize the store."""
