"""Files other programs wrote, read forward into batches of rows. The only place that knows their formats.

Which files:

    files             names and patterns to files, their format by first bytes; data lakes are refused
    byte_stream       decompression, digests and blocks of whole lines
    options           the options of reading

Formats:

    csv               CSV as a table
    csv_dialect       delimiter, header and names of columns
    csv_parsing       blocks of lines to record batches
    csv_faults        what is wrong with a line, in words
    json_lines        JSON lines
    parquet           Parquet
    svmlight          svmlight (libsvm) text
    npy               npy, npz and IDX
    hdf5_zarr         arrays in HDF5 and Zarr
    data_frames       tables of a program: pandas, polars, Arrow, DuckDB
    arrays            arrays that a program has open
    dask_blocks       partitions of Dask collections

Columns of a table:

    table             record batches to rows, for all formats of tables
    schema            what becomes of each column
    schema_inference  the schema by options, types and first values: dates, amounts, categories, ids
    cell_parsing      cells to numbers, dates, amounts of money, labels and weights
    value_counts      distinct values of categories, over all rows
    encoding          columns to features: one-hot, hashed, crossed; the split by a column
    text_features     words and runs of characters, hashed
    description       what --describe says of each column

Rows of any format:

    source            what a source is; lines that are left out, and their limit (--max-bad)
    preprocessing     what is done to rows before they are stored: less an offset, missing values filled
    offsets           columns far from 0, stored less an offset
    array_rows        arrays to checked float32 rows
    read_ahead        threads that read and parse in advance
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from streamsvm.errors import DataError, StreamSVMError, UsageError
from streamsvm.registry import Registry
from streamsvm.store.sources.options import TABLES, SourceOptions, options_from
from streamsvm.store.sources.schema import NO_TABLE, TableWidth, width_bytes
from streamsvm.store.sources.source import NO_ROWS, BaseSource, Source, SourceFile

__all__ = ["SOURCES", "Source", "SourceFile", "SourceOptions", "open_source", "options_from", "table_width"]

SOURCES = Registry(
    "source format",
    {
        "svmlight": "streamsvm.store.sources.svmlight:SvmlightSource",
        "csv": "streamsvm.store.sources.csv:CSVSource",
        "parquet": "streamsvm.store.sources.parquet:ParquetSource",
        "jsonl": "streamsvm.store.sources.json_lines:JSONLinesSource",
        "npy": "streamsvm.store.sources.npy:NpySource",
        "npz": "streamsvm.store.sources.npy:NpySource",
        "idx": "streamsvm.store.sources.npy:NpySource",
        "hdf5": "streamsvm.store.sources.hdf5_zarr:ForeignSource",
        "zarr": "streamsvm.store.sources.hdf5_zarr:ForeignSource",
    },
)


def open_source(paths: Sequence[Path | str], options: SourceOptions | None = None) -> Source:
    """Open files of one format as one source; a directory or a pattern stands for the files in it.

    Raises UsageError, MissingError, and DataError when the head of a file already shows that it cannot be read.
    """
    from streamsvm.store.sources.files import detect, expand, refuse_partitions, with_rows
    from streamsvm.store.sources.preprocessing import choose_steps

    options = options or SourceOptions()
    if not paths:
        raise UsageError("no source was given", hint="name at least one file")
    named = expand(paths)
    files = with_rows(named, options.format)
    name = detect(files) if options.format == "auto" else options.format
    if options.encoding is not None:
        name = _form(files, name, tabular="schema" in options.encoding)
    if name not in TABLES and (options.split_by or options.split_after):
        found = f"rows of {name} are not held out by a column: its columns have no names"
        raise UsageError(found, hint="hold rows out by chance, with --test-fraction and perhaps --stratify")
    options = replace(options, format=name)
    if name not in TABLES:
        refuse_partitions(files, ())

    source: BaseSource = SOURCES[name](files, options)
    if len(files) < len(named):
        source.notices[NO_ROWS] = len(named) - len(files)
    choose_steps(source, options)
    return source


def form_of(paths: Sequence[Path | str], form: str = "auto") -> str:
    """Return the format of files by their first bytes where ``form`` is 'auto', else that. Raises MissingError,
    DataError.
    """
    from streamsvm.store.sources.files import detect, expand, with_rows

    return detect(with_rows(expand(paths), form)) if form == "auto" else form


def table_width(paths: Sequence[Path | str], options: SourceOptions) -> TableWidth:
    """Return the columns of a table with the bytes that they take, by the head of its first file and of its largest;
    ``NO_TABLE`` for other files, and for what cannot be read, which says so when it is opened.
    """
    import pyarrow as pa

    files = [path for path in map(Path, paths) if path.is_file()]
    if not files:
        return NO_TABLE
    looked_at = {files[0], max(files, key=lambda path: path.stat().st_size)}
    try:
        return max((_table_width(path, options) for path in looked_at), key=lambda width: width.nbytes)
    except (StreamSVMError, OSError, ValueError, pa.ArrowException):
        return NO_TABLE


def _table_width(path: Path, options: SourceOptions) -> TableWidth:
    """Return the width of one file; the parser of its form alone is imported."""
    from streamsvm.store.sources.files import detect, table_form

    form = options.format
    if form == "auto":
        form = detect((path,))
    elif options.encoding is not None and "schema" in options.encoding:
        form = table_form(path)
    if form == "parquet":
        from streamsvm.store.sources import parquet

        return parquet.table_width(path)
    if form == "csv":
        from streamsvm.store.sources.csv_dialect import detect_dialect
        from streamsvm.store.sources.csv_parsing import read_head

        names: Sequence[str] = detect_dialect(str(path), read_head(path), options).names
    elif form == "jsonl":
        from streamsvm.store.sources.json_lines import first_keys

        names = first_keys(path)
    else:
        return NO_TABLE
    return TableWidth(str(path), len(names), width_bytes(names))


def _form(files: Sequence[Path], expected: str, *, tabular: bool) -> str:
    """Return the format to read files by that are to be like those of a model; a table may be in any form of tables.

    Raises DataError E-FORMAT for arrays where there was text, and for other arrays than there were.
    """
    from streamsvm.store.sources.files import binary_format, table_form

    forms = [table_form(path) if tabular else binary_format(path) or expected for path in files]
    if tabular and forms[0] in TABLES:
        expected = forms[0]
    for path, found in zip(files, forms, strict=True):
        if SOURCES[found] is not SOURCES[expected]:
            hint = f"give {expected}, as the model was trained on, or a store ingested from this"
            raise DataError(f"{path} looks like {found}, expected {expected}", code="E-FORMAT", hint=hint)
    return expected
