"""Files other programs wrote, read forward into batches of rows. The only place that knows their formats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from streamsvm.errors import DataError, UsageError
from streamsvm.registry import Registry
from streamsvm.store.sources.options import TABLES
from streamsvm.store.sources.source import NO_ROWS, Source, SourceFile
from streamsvm.store.sources.source_options import SourceOptions, options_from

__all__ = ["SOURCES", "Source", "SourceFile", "SourceOptions", "open_source", "options_from"]

SOURCES = Registry(
    "source format",
    {
        "svmlight": "streamsvm.store.sources.svmlight.source:SvmlightSource",
        "csv": "streamsvm.store.sources.csv.source:CSVSource",
        "parquet": "streamsvm.store.sources.parquet.source:ParquetSource",
        "jsonl": "streamsvm.store.sources.json_lines:JSONLinesSource",
        "npy": "streamsvm.store.sources.array.npy:NpySource",
        "npz": "streamsvm.store.sources.array.npy:NpySource",
        "idx": "streamsvm.store.sources.array.npy:NpySource",
        "hdf5": "streamsvm.store.sources.array.keyed:KeyedSource",
        "zarr": "streamsvm.store.sources.array.keyed:KeyedSource",
    },
)


def open_source(paths: Sequence[Path | str], options: SourceOptions | None = None) -> Source:
    """Open files of one format as one source; a directory or a pattern stands for the files in it.

    Raises UsageError, MissingError, and DataError when the head of a file already shows that it cannot be read.
    """
    from streamsvm.store.sources.centering.centered import at_same_offsets, centered
    from streamsvm.store.sources.missing import filled
    from streamsvm.store.sources.reading.detect import detect
    from streamsvm.store.sources.reading.empty_parts import with_rows
    from streamsvm.store.sources.reading.expand import expand
    from streamsvm.store.sources.reading.lakes import refuse_partitions

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

    def opened() -> Source:
        source: Source = SOURCES[name](files, options)
        if len(files) < len(named):
            source.notices[NO_ROWS] = len(named) - len(files)
        return source

    source = centered(opened(), options)
    return source if options.missing == "error" else filled(source, lambda: at_same_offsets(source, opened()), options)


def _form(files: Sequence[Path], expected: str, *, tabular: bool) -> str:
    """Return the format to read files by that are to be like those of a model; a table may be in any form of tables.

    Raises DataError E-FORMAT for arrays where there was text, and for other arrays than there were.
    """
    from streamsvm.store.sources.reading.detect import binary_format, table_form

    forms = [table_form(path) if tabular else binary_format(path) or expected for path in files]
    if tabular and forms[0] in TABLES:
        expected = forms[0]
    for path, found in zip(files, forms, strict=True):
        if SOURCES[found] is not SOURCES[expected]:
            hint = f"give {expected}, as the model was trained on, or a store ingested from this"
            raise DataError(f"{path} looks like {found}, expected {expected}", code="E-FORMAT", hint=hint)
    return expected
