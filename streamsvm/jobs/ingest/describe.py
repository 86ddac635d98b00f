"""ingest --describe: what is in each column of a table, and how ``ingest`` would encode it; nothing is stored."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from streamsvm.config.command_table import format_command
from streamsvm.display.terminal import align_columns
from streamsvm.errors import DataError, StreamSVMError, UsageError, quote
from streamsvm.input_files import refuse_url
from streamsvm.jobs import JobResult
from streamsvm.jobs.ingest.options import IngestJob
from streamsvm.jobs.ingest.run import memory_for_source
from streamsvm.jobs.ingest.schema_file import write_schema
from streamsvm.outputs import SCHEMA, Output, check_writable, output_path
from streamsvm.store.sources import Source, SourceOptions, form_of, open_source
from streamsvm.store.sources.byte_stream import CHARSET_HINT, STANDARD_INPUT
from streamsvm.store.sources.description import (
    MOST_BAD,
    ColumnDescription,
    Problem,
    describe_columns,
    guess_label,
)
from streamsvm.store.sources.files import expand
from streamsvm.store.sources.options import bad_share
from streamsvm.store.sources.rejects import BAD_LINES
from streamsvm.store.sources.schema import shell_word
from streamsvm.store.sources.table import TableSource
from streamsvm.type_aliases import JsonObject, ValuesByName
from streamsvm.types import Report

Command = Callable[..., str]
OpenRows = Callable[[SourceOptions], Source]
EXPLAINED = ("E-MISSING", "E-PARSE", "E-LABEL", "E-NONFINITE", "E-RANGE", "E-DTYPE", BAD_LINES)
"""The codes of errors about bad values, after which the other problems of the table are listed."""
MOST_ROWS = 1_000_000
"""Largest number of rows that are searched for problems after an error."""
BAD_VALUES = ("unreadable", "infinite")
"""Kinds of problems for which --on-bad-line skip can drop the rows."""
INFINITE = ("inf", "-inf")
"""The usual spellings of infinite numbers."""
NO_STORE = "-"
"""The path of the store in jobs that write no store."""


@dataclass(frozen=True, slots=True, repr=False)
class DescribeResult(JobResult):
    """The columns of a table."""

    columns: tuple[ColumnDescription, ...]
    """The columns, in the order of the table."""
    schema_file: Path | None
    """Path of the schema file; None if none was written."""
    problems: tuple[str, ...] = ()
    """The problems of the columns, as lines of a text table; empty if there are none."""
    command: str = ""
    """The command that ingests the table in spite of its problems; empty if no options have to be changed."""

    def facts(self) -> JsonObject:
        """Return the result as JSON values."""
        path = None if self.schema_file is None else str(self.schema_file)
        columns = [asdict(column) for column in self.columns]
        return {"columns": columns, "schema_file": path, "command": self.command}


def describe(
    job: IngestJob, write: Path | None = None, most_rows: int | None = None, open_rows: OpenRows | None = None
) -> DescribeResult:
    """Read the sources of an ingest once and describe their columns.

    ``write``: path of a schema file to write. ``most_rows``: number of rows after which reading stops; None: all rows
    are read. ``open_rows`` returns a source of rows of a program, in place of files.

    Raises UsageError if the sources are not tables, ExistsError, and the errors of reading.
    """
    refuse_url(write)
    job = job.with_schema()
    if open_rows is None:
        job = replace(job, sources=expand(job.sources, job.table_version))
    path = None if write is None else output_path(write)
    if path is not None:
        check_writable([Output(path, SCHEMA)], [*job.sources, job.schema], overwrite=job.overwrite)
    stated = job.options()
    options = replace(
        stated,
        label=stated.label or "none",
        missing="error",
        undecided={},
        max_census_rows=most_rows,
        memory_limit=memory_for_source(job.memory, job.chunk_bytes, (), shuffle=False).limit,
    )
    if stated.on_bad_line == "skip" or (open_rows is None and form_of(job.sources, stated.format) == "jsonl"):
        # With "skip", JSON lines are parsed one by one, so that each bad line is counted. With "zero", missing values
        # do not make a line bad.
        options = replace(options, on_bad_line="skip", missing="zero")
    source = open_source(job.sources, options) if open_rows is None else open_rows(options)
    if not isinstance(source, TableSource):
        hint = "ingest it; 'streamsvm info STORE --columns' then shows the columns"
        raise UsageError("only the columns of tables (CSV, Parquet, Arrow, JSON lines) are described", hint=hint)
    offsets = source.encoding().get("offsets", ())
    options = replace(options, missing=stated.missing, offsets=offsets, on_bad_line=stated.on_bad_line)
    options.rejects.clear()  # bad lines among the first rows, which will be read and counted again
    columns = describe_columns(source, options, most_rows)
    if options.rejects.count and columns:
        path_of_first, number, code, first = options.rejects.lines[0]
        if code == "E-ENCODING" and stated.on_bad_line == "error":
            raise DataError(f"{path_of_first} line {number}: {first}", code=code, hint=CHARSET_HINT)
        count = options.rejects.count
        lines = Problem("lines", "unreadable", count, first, refused=stated.on_bad_line == "error")
        columns[0] = replace(columns[0], problems=(*columns[0].problems, lines))
    if path is not None:
        write_schema(path, columns)
    notices = (
        () if stated.label else ("no column is the label yet: name it with --label, or as 'label' in the schema file",)
    )
    changes = suggest_changes(columns, job)
    if changes and not stated.label:
        label = guess_label(source).name
        changes["label"] = label
        if any(column.name == label and column.missing for column in columns):
            changes["missing_label"] = "skip"
    store = job.store
    if str(store) == NO_STORE:
        store = Path(f"{job.sources[0].name.partition('.')[0]}.zarr")
    command = format_command("ingest", replace(job, store=store), **changes) if changes else ""
    return DescribeResult(tuple(columns), path, tuple(list_problems(columns, changes)), command, notices=notices)


def add_problems(
    error: DataError, job: IngestJob, report: Report, command: Command, open_rows: OpenRows | None = None
) -> None:
    """After an ingest has failed with ``error``, search the table for further problems. If there are any, report a list
    of all problems, and put into the hint of the error the command that ingests the table in spite of them.

    ``command`` returns the command, or the call, for some changed options. ``open_rows``: as for ``describe``.
    """
    if error.code not in EXPLAINED or job.cluster or job.repair or STANDARD_INPUT in map(str, job.sources):
        return
    try:
        description = describe(job, most_rows=MOST_ROWS, open_rows=open_rows)
    except StreamSVMError:
        return  # only the first error is shown
    refused = [problem for column in description.columns for problem in column.problems if problem.refused]
    if not refused or (len(refused) == 1 and error.code != BAD_LINES):
        return
    report({"event": "problems", "lines": list(description.problems)})
    for line in description.problems:
        error.add_note(line)
    error.hint = f"in all {len(refused)} things are not in order; with them the table is read by: " + command(
        **suggest_changes(description.columns, job)
    )


def suggest_changes(columns: Sequence[ColumnDescription], job: IngestJob) -> ValuesByName:
    """Return the changed options, by field name, with which the columns can be ingested; empty if no change is needed.

    Rows with unreadable values are skipped as long as --max-bad allows. Beyond that, the unreadable values of a column
    count as missing if they are only a few words; otherwise the column becomes a category.
    """
    refused = [problem for column in columns for problem in column.problems if problem.refused]
    changes: ValuesByName = {}
    if any(problem.what == "missing" for problem in refused):
        changes["missing"] = "indicator"
    if any(problem.what == "unlabeled" for problem in refused):
        changes["missing_label"] = "skip"
    rows = max((column.rows for column in columns), default=0)
    bad = sorted((one for one in refused if one.what in BAD_VALUES), key=lambda one: one.rows)
    allowed, missing_words, categories = bad_share(job.max_bad) * rows, list[str](), list[str]()
    for problem in bad:
        if problem.rows <= allowed:
            allowed -= problem.rows
            changes["on_bad_line"] = "skip"
        elif problem.what == "unreadable" and not problem.values:  # lines that cannot be split into the table's columns
            share = math.ceil(100 * problem.rows / (problem.rows + rows))
            changes |= {"on_bad_line": "skip", "max_bad": f"{share}%"}
        elif problem.what == "infinite" or len(problem.values) < MOST_BAD:
            missing_words += problem.values or INFINITE
        else:
            categories.append(f"{problem.column}=category")
    if missing_words:
        changes |= {"missing_words": (*job.missing_words, *dict.fromkeys(missing_words))}
        changes |= {} if job.missing != "error" else {"missing": "indicator"}
    if categories:
        changes["columns_as"] = (*job.columns_as, *categories)
    return changes


def list_problems(columns: Sequence[ColumnDescription], changes: ValuesByName) -> Iterator[str]:
    """Yield the lines of a text table with one line per problem: the column, the number of rows, the problem, and what
    ``ingest`` does about it.
    """
    problems = [problem for column in columns for problem in column.problems]
    if not problems:
        return
    rows = [[quote(one.column, 32), str(one.rows), *_describe_problem(one, changes)] for one in problems]
    head = ["column", "rows", "what", "with the command below" if changes else "what becomes of it"]
    yield from align_columns([head, *rows], left=(0, 2, 3))


def _describe_problem(problem: Problem, changes: ValuesByName) -> tuple[str, str]:
    """Return a description of a problem, and what ``ingest`` does about it with the ``changes`` of options."""
    shown = ", ".join(quote(value, 20) for value in problem.values)
    what = f"{problem.text}: {shown}" if shown else problem.text
    word = shell_word(problem.column)
    done = {
        "missing": "filled",
        "unlabeled": "rows are left out",
        "unreadable": "rows are left out",
        "infinite": "rows are left out",
        "future": "taken as it is written",
        "alike": "different values",
        "index": f"left out; --column {word}=number keeps it",
        "unnamed": f"kept; --column {word}=drop leaves it out",
    }
    if not problem.refused:
        return what, done[problem.what]
    options = {"missing": "--missing indicator", "unlabeled": "--missing-label skip"}
    done["missing"] = "filled with 0 and marked"
    option = options.get(problem.what, "--on-bad-line skip")
    if f"{problem.column}=category" in changes.get("columns_as", ()):
        return what, f"a category: --column {word}=category"
    if problem.what in BAD_VALUES and set(problem.values or INFINITE) <= set(changes.get("missing_words", ())):
        return what, "missing values: --na"
    return what, f"{done[problem.what]}: {option}"
