"""Files other programs wrote, read forward into batches of rows. The only place that knows their formats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from streamsvm.errors import MissingError, UsageError
from streamsvm.registry import Registry
from streamsvm.store.sources.detect import detect
from streamsvm.store.sources.options import Source, SourceFile, SourceOptions, options_from

__all__ = ["SOURCES", "Source", "SourceFile", "SourceOptions", "open_source", "options_from"]

SOURCES = Registry(
    "source format",
    {
        "svmlight": "streamsvm.store.sources.svmlight:SvmlightSource",
        "csv": "streamsvm.store.sources.csv:CSVSource",
        "parquet": "streamsvm.store.sources.parquet:ParquetSource",
        "npy": "streamsvm.store.sources.npy:NpySource",
        "npz": "streamsvm.store.sources.npy:NpySource",
        "idx": "streamsvm.store.sources.npy:NpySource",
    },
)


def open_source(paths: Sequence[Path | str], options: SourceOptions | None = None) -> Source:
    """Open files of one format as one source.

    Raises UsageError, MissingError, and DataError when the head of a file already shows that it cannot be read.
    """
    options = options or SourceOptions()
    files = tuple(Path(p) for p in paths)
    if not files:
        raise UsageError("no source was given", hint="name at least one file")
    for path in files:
        if not path.is_file():
            what = "is a directory" if path.is_dir() else "does not exist"
            raise MissingError(f"{path} {what}", hint="name the files to read")
    name = detect(files) if options.format == "auto" else options.format
    source: Source = SOURCES[name](files, replace(options, format=name))
    return source
