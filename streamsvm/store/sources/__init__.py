"""Files of other programs, and rows of a Python program, read sequentially as batches of rows. No other package knows
these formats.

Files:

    files             find files by names and patterns, detect their format; refuse data lakes
    byte_stream       decompress files, compute digests, split text into blocks of whole lines
    options           the options of reading

Formats:

    csv               CSV as a table
    csv_dialect       detect delimiter, header and names of columns
    csv_parsing       parse blocks of lines as record batches
    csv_faults        describe the fault of a bad line, or leave bad lines out
    json_lines        JSON lines
    parquet           Parquet
    lakes             tables of data lakes: recognize them, and the versions of them that are read
    delta             the files of a Delta table
    iceberg           the files of an Iceberg table
    lake_source       the rows of the files of such a table
    partitions        columns in the names of folders
    arrow_ipc         Arrow IPC: files (Feather) and streams
    svmlight          svmlight (libsvm) text
    npy               npy, npz and IDX
    hdf5_zarr         arrays in HDF5 and Zarr
    data_frames       table objects: pandas, polars, Arrow, DuckDB
    arrays            array objects: numpy, scipy.sparse, h5py, Zarr
    dask_blocks       partitions of Dask collections

Columns of a table:

    table             read and encode tables of all formats
    schema            the columns that are read, and their encoding
    schema_inference  infer the schema from options, types and first values: dates, amounts, categories, ids
    cell_parsing      parse cells as numbers, dates, amounts of money, labels and weights
    value_counts      count distinct values of categories over all rows
    encoding          encode columns as features: one-hot, hashed, crossed; hold rows out by a column
    text_features     hash words and runs of characters
    description       describe the columns (--describe)

Rows of any format:

    source            what a source is; the list of bad lines, and their limit (--max-bad)
    preprocessing     steps before rows are stored: subtract offsets, fill missing values
    offsets           offsets of columns far from 0
    array_rows        convert arrays to checked float32 rows
    read_ahead        threads that read and parse in advance
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from streamsvm.errors import DataError, StreamSVMError, UsageError
from streamsvm.registry import Registry
from streamsvm.store.sources.options import LAKES, TABLES, SourceOptions, options_from
from streamsvm.store.sources.schema import NO_TABLE, TableWidth, width_bytes
from streamsvm.store.sources.source import NO_ROWS, BaseSource, Source, SourceFile

if TYPE_CHECKING:
    from streamsvm.store.sources.files import InputFiles

__all__ = ["SOURCES", "Source", "SourceFile", "SourceOptions", "open_source", "options_from", "table_width"]

SOURCES = Registry(
    "source format",
    {
        "svmlight": "streamsvm.store.sources.svmlight:SvmlightSource",
        "csv": "streamsvm.store.sources.csv:CSVSource",
        "parquet": "streamsvm.store.sources.parquet:ParquetSource",
        "arrow": "streamsvm.store.sources.arrow_ipc:ArrowSource",
        "jsonl": "streamsvm.store.sources.json_lines:JSONLinesSource",
        "delta": "streamsvm.store.sources.lake_source:DeltaSource",
        "iceberg": "streamsvm.store.sources.lake_source:IcebergSource",
        "npy": "streamsvm.store.sources.npy:NpySource",
        "npz": "streamsvm.store.sources.npy:NpySource",
        "idx": "streamsvm.store.sources.npy:NpySource",
        "hdf5": "streamsvm.store.sources.hdf5_zarr:ForeignSource",
        "zarr": "streamsvm.store.sources.hdf5_zarr:ForeignSource",
    },
)


def open_source(paths: Sequence[Path | str], options: SourceOptions | None = None) -> Source:
    """Open files of one format as one source; directories and patterns that are not ``InputFiles`` yet are expanded to their files.

    Raises UsageError, MissingError, and DataError for faults in the first bytes of a file.
    """
    from streamsvm.store.sources.files import detect, expand, refuse_remote_format, with_rows
    from streamsvm.store.sources.partitions import refuse_partitions
    from streamsvm.store.sources.preprocessing import choose_steps

    options = options or SourceOptions()
    if not paths:
        raise UsageError("no source was given", hint="name at least one file")
    named = expand(paths, options.table_version)
    files = with_rows(named, options.format)
    name = detect(files) if options.format == "auto" else options.format
    is_other = name in LAKES if files.table is None else name != files.table.format
    if is_other and options.encoding is None:
        found = "no table of a data lake" if files.table is None else f"a {files.table.kind} table"
        raise UsageError(f"--format {name}: {paths[0]} is {found}", hint="leave out --format")
    if options.encoding is not None:
        name = _matching_format(files, name, is_table="schema" in options.encoding)
    refuse_remote_format(files, name)
    if name not in TABLES and (options.split_by or options.split_after):
        message = f"rows of {name} are not held out by a column: its columns have no names"
        raise UsageError(message, hint="hold rows out by chance, with --test-fraction and perhaps --stratify")
    options = replace(options, format=name, partitions=files.partitions)
    if name not in TABLES:
        refuse_partitions(files, files.partitions, ())

    source: BaseSource = SOURCES[name](files, options)
    if len(files) < len(named):
        source.notices[NO_ROWS] = len(named) - len(files)
    choose_steps(source, options)
    return source


def form_of(paths: Sequence[Path | str], form: str = "auto") -> str:
    """Return ``form``, or the detected format of the files if it is 'auto'. Raises MissingError, DataError."""
    from streamsvm.store.sources.files import detect, expand, with_rows

    return detect(with_rows(expand(paths), form)) if form == "auto" else form


def table_width(paths: Sequence[Path], options: SourceOptions) -> TableWidth:
    """Return the number of columns of a table and the memory that reading it takes, from the heads of its first and of
    its largest file; ``NO_TABLE`` for files that are not tables or cannot be read (opening them raises the error).
    """
    import pyarrow as pa

    from streamsvm.store.sources.files import files_read, table_of
    from streamsvm.store.sources.remote_files import file_size, is_file_or_object

    if table_of(paths) is not None:
        options = replace(options, format="parquet")
    files = [path for path in files_read(paths) if is_file_or_object(path)]
    if not files:
        return NO_TABLE
    samples = {files[0], max(files, key=file_size)}
    try:
        return max((_table_width(path, options) for path in samples), key=lambda width: width.nbytes)
    except (StreamSVMError, OSError, ValueError, pa.ArrowException):
        return NO_TABLE


def _table_width(path: Path, options: SourceOptions) -> TableWidth:
    """Return the width of one file; only the parser of its format is imported."""
    from streamsvm.store.sources.files import InputFiles, detect, table_form

    form = options.format
    if form == "auto":
        form = detect(InputFiles([path]))
    elif options.encoding is not None and "schema" in options.encoding:
        form = table_form(path)
    if form == "parquet":
        from streamsvm.store.sources import parquet

        return parquet.table_width(path)
    if form == "arrow":
        from streamsvm.store.sources import arrow_ipc

        return arrow_ipc.table_width(path)
    if form == "csv":
        from streamsvm.store.sources.csv_dialect import detect_dialect
        from streamsvm.store.sources.csv_parsing import read_head

        names: Sequence[str] = detect_dialect(str(path), read_head(path, charset=options.charset), options).names
    elif form == "jsonl":
        from streamsvm.store.sources.json_lines import first_keys

        names = first_keys(path, options.charset)
    else:
        return NO_TABLE
    return TableWidth(str(path), len(names), width_bytes(names))


def _matching_format(files: InputFiles, expected: str, *, is_table: bool) -> str:
    """Return the format of files that are read like those of a model, whose format was ``expected``.

    If these were tables (``is_table``), any format of tables matches. Raises DataError E-FORMAT for other formats.
    """
    from streamsvm.store.sources.files import binary_format, table_form

    if files.table is not None:
        formats = [files.table.format]
    else:
        formats = [table_form(path) if is_table else binary_format(path) or expected for path in files]
    if is_table and formats[0] in TABLES:
        expected = formats[0]
    for path, name in zip(files, formats, strict=True):
        if SOURCES[name] is not SOURCES[expected]:
            hint = f"give {expected}, as the model was trained on, or a store ingested from this"
            raise DataError(f"{path} looks like {name}, expected {expected}", code="E-FORMAT", hint=hint)
    return expected
