"""Opening the rows a model is applied to: one store, or files that are read as those of its training were."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from streamsvm.aliases import JsonMapping
from streamsvm.errors import BudgetError, DataError, UsageError, quote
from streamsvm.jobs.apply.row_batches import DEPTH, SOURCE_TERM, RowBatches, width_error
from streamsvm.model import Model
from streamsvm.regular import is_folder
from streamsvm.schedule import budget
from streamsvm.store import open_store
from streamsvm.store.foreign import foreign_format
from streamsvm.store.format.manifest import FILE as MANIFEST
from streamsvm.store.format.row_ids import IdReader
from streamsvm.store.sources import Source, SourceOptions, open_source, options_from, table_width
from streamsvm.store.sources.files import expand
from streamsvm.store.sources.offsets import Offsets, offsets_from
from streamsvm.store.sources.options import NewRowOptions
from streamsvm.store.sources.source import Rejects
from streamsvm.store.write.journal import FILE as JOURNAL
from streamsvm.types import Term

WIDE_BYTES = 32 << 20
"""Bytes for the columns of a table from which on they are counted beside those of its rows."""
STORE_FILES = (MANIFEST, JOURNAL, "zarr.json", "part-00000.h5")
"""Files of which a store of ours has one from the beginning of its ingest to the end, and when its manifest is lost."""


def is_store(path: Path) -> bool:
    """Return whether a path is a store of ours, perhaps one whose ingest has not ended, and not files to read."""
    return is_folder(path) and foreign_format(path) is None and any((path / name).exists() for name in STORE_FILES)


def located(data: Sequence[str]) -> tuple[str, ...]:
    """Return a store as it is named, or the files that are meant: directories and patterns stand for those in them.

    Raises MissingError, and UsageError for several stores.
    """
    if not data:
        raise UsageError("there is no data", hint="name a store, or files")
    if any(is_store(Path(name)) for name in data):
        if len(data) > 1:
            raise UsageError("one store at a time", hint="run the command once for each")
        return tuple(data)
    return tuple(map(str, expand(data)))


def row_batches(model: Model, data: Sequence[str], request: FileRequest) -> RowBatches:
    """Open the rows of one store, or of files (``located``). Raises MissingError, DataError E-SCHEMA, UsageError."""
    paths = [Path(d) for d in data]
    if is_store(paths[0]):
        return _store_rows(model, paths[0], request.memory_limit)
    options = source_options(model, request)
    if request.bytes_a_row:  # before anything else is asked of memory, so that what is asked for now is enough
        _check_memory(model, paths, options, request)
    return rows_of_source(model, open_source(paths, options), str(paths[0]), options.rejects)


def _check_memory(model: Model, paths: Sequence[Path], options: SourceOptions, request: FileRequest) -> None:
    """Raise BudgetError, with a limit that is enough for all, where files cannot be read in the memory there is."""
    terms, failure = [SOURCE_TERM, budget.files_term(paths)], None
    try:
        RowBatches(model, [], None, terms).fitted(request.memory, request.bytes_a_row)
    except BudgetError as error:
        failure = error
    table, left = table_width(paths, options), request.memory_limit or 0
    if failure is None and table.nbytes <= left:
        return
    if table.nbytes > WIDE_BYTES:  # what is known of columns is part of this process when memory is asked for again
        terms.append(Term("columns", table.nbytes, "what is known of those of a wide table"))
    plan = RowBatches(model, [], None, terms).planned(request.memory, request.bytes_a_row)
    if failure is None:
        raise table.refusal(left, plan.total)
    plan.check("")


def rows_of_source(model: Model, source: Source, where: str, rejects: Rejects) -> RowBatches:
    """Return the rows of a source that is open; ``where`` is what errors call it. Raises DataError E-SCHEMA."""
    if source.columns is not None and not source.sparse and source.columns != model.columns:
        raise width_error(where, source.columns, model.columns)
    terms, classes = [SOURCE_TERM, budget.files_term([one.name for one in source.sources])], list(model.classes)
    return RowBatches(model, classes, None, terms, source=source, rejects=rejects, id_column=source.id_column)


@dataclass(frozen=True, slots=True)
class FileRequest:
    """What a job that applies a model says of its files."""

    stated: JsonMapping = field(default_factory=dict)
    """Fields of ``SourceOptions`` by name; what is not among them is as recorded in the model."""
    memory_limit: int | None = None
    """Bytes of memory for knowing the columns of a table; None asks nothing."""
    memory: int | None = None
    """What is said of memory, in bytes; None where nothing is."""
    bytes_a_row: int = 0
    """What a row of a block takes besides itself; 0 where memory has been checked."""


def request_of(job: NewRowOptions, memory: int | None, bytes_a_row: int, *, unlabeled: bool = False) -> FileRequest:
    """Return what a job says of its files, and what memory there is for knowing their columns.

    ``bytes_a_row``: what a row of a block takes besides itself. ``unlabeled``: the job has no use for labels.
    """
    left = budget.memory_limit(memory) - sum(term.nbytes for term in budget.base_terms())
    stated = job.stated() | ({"unlabeled": True} if unlabeled else {})
    return FileRequest(stated, max(0, left), memory, bytes_a_row)


def source_options(model: Model, request: FileRequest) -> SourceOptions:
    """Return how to read files: like those the model was trained on, or as asked where nothing of them is known."""
    recorded = model.provenance.get("encoding")
    if recorded:
        return options_from(recorded, memory_limit=request.memory_limit, **request.stated)
    plain = {"label": "none", "features": model.columns, **request.stated}
    return SourceOptions(**plain, memory_limit=request.memory_limit)


def _store_rows(model: Model, path: Path, memory_limit: int | None) -> RowBatches:
    store = open_store(path, memory_limit=memory_limit)
    layout = store.layout
    if store.facts.get("map") is not None:
        raise DataError(
            f"store '{path}' is an embedding: its columns are kernel features, and a model is applied to rows",
            code="E-SCHEMA",
            hint="name the store or the files that the embedding was made from",
        )
    check_names(model.provenance.get("names"), store.facts.get("names"), path)
    if layout.columns > model.columns or (layout.dense and layout.columns != model.columns):
        raise width_error(f"store '{path}'", layout.columns, model.columns)
    terms = budget.block_terms(layout, DEPTH, store.buffers().nbytes)
    moved = moved_from(model, store.facts)
    if len(moved.columns):
        terms.append(Term("another zero", 3 * layout.block_bytes, "a block in float64, and in float32 again"))
    found = RowBatches(model, list(model.classes), layout.rows, terms, store=store, offsets=moved)
    if ids := store.facts.get("ids"):
        found.id_column, found.id_reader = str(ids.get("column")), partial(IdReader, path)
    if layout.columns < model.columns:
        found.notices.append(f"{path} has {layout.columns} of the model's {model.columns} columns; the rest count as 0")
    return found


def moved_from(model: Model, facts: JsonMapping) -> Offsets:
    """Return what is to be taken from the rows of a store with these facts to have them from the zero of a model."""
    return offsets_from(model.provenance.get("encoding")).less(offsets_from(facts.get("encoding")))


def check_names(model: Sequence[str] | None, store: Sequence[str] | None, path: Path | str) -> None:
    """Raise DataError E-SCHEMA for the first column that has another name."""
    if not model or not store or list(model) == list(store):
        return
    for number, (expected, found) in enumerate(zip(model, store, strict=False)):
        if expected != found:
            raise DataError(
                f"column {number + 1} of store '{path}' is {quote(found)}, the model expects {quote(expected)}",
                code="E-SCHEMA",
                hint="ingest the same columns in the same order",
            )
