"""Plan memory: add up everything that a job will keep in memory, before any data are read.

The plan bounds the anonymous memory of the process (``RssAnon``). The page cache is not counted: the operating system
takes it back when needed.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from streamsvm.compute import freed_memory, passes_loaded
from streamsvm.config.units import mib
from streamsvm.errors import BudgetError
from streamsvm.input_files import find_url
from streamsvm.object_store import MAX_IN_FLIGHT, SENT_PART_BYTES
from streamsvm.schedule.machine import anonymous_bytes, available_bytes, groups_of, text_of
from streamsvm.types import Layout, Term
from streamsvm.working_copies import UPLOADS, find_working_folder

MIB = 1 << 20
COMPILER_BYTES = 72 * MIB
"""Bytes that LLVM and the first compiled function ("pass") add to a process (measured: 64-71 MiB)."""
NOMINAL = 136 * MIB
"""Bytes counted for a process with compiled functions loaded (measured: 115-131 MiB)."""
STEP = 64 * MIB
"""The memory of the process above NOMINAL is rounded up to a multiple of this. The same settings therefore give the same
plan, and a result with the same bits, unless the process already used much memory before."""
MARGIN = 8 * MIB
MAX_CACHED_BYTES = 256 * MIB
"""Stores larger than this are not copied to memory: a pass over them takes longer than reading them, so that the page
cache is as good as a copy."""
VIEW_BYTES = 16
"""Bytes for each row of a block for signs and weights."""
MIN_ADDRESS_SPACE = 1 << 30
"""Minimum bytes of address space with which numpy, numba and their threads start."""
FILE_BYTES = 4096
"""Bytes that a job keeps to its end for each file that it reads, besides the path (measured: ingest 3.2 KiB with a path
of 25 characters, predict 0.9 KiB)."""
PATH_COPIES = 8
"""Number of copies of a file's path that a job keeps to its end (measured for ingest: 6.5 bytes per character)."""
MIN_MEMORY = NOMINAL + MARGIN
"""Bytes that a job needs before it reads any data: interpreter, imports, compiled passes."""
DEFAULT_SHARE = 0.75
"""Share of the available memory that is the limit if the user gives none."""
SMALL_JOB_BYTES = 1 << 30
"""If the user gives no limit, jobs that need at most this many bytes are planned without regard to the machine's
memory."""
UNLIMITED = 1 << 62
CLIENT_BYTES = 6 << 20
"""Bytes of an idle client of an object store."""
REQUEST_BYTES, BODY_COPIES = 3 << 19, 1.3
"""Memory of a request in flight besides the block that it fills: a constant, and a multiple of the block (measured with ranges of 1, 4 and 16 MiB,
1 to 64 at a time: at most 1.4 MiB and 1.15 of the range)."""
_ASSUMED: ContextVar[int | None] = ContextVar("assumed", default=None)


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """The memory that a job will use, by terms, and its limit."""

    terms: tuple[Term, ...]
    limit: int
    """Bytes of anonymous memory that the process may use."""
    resident: bool
    """Whether the per-row state of all rows is in memory. False: in a file."""
    cached: bool
    """Whether blocks stay in memory after they are read."""
    retain: bool
    """Whether the store may stay in the page cache between passes."""
    threads: int = 1
    """Number of threads that compute at the same time."""
    depth: int | None = None
    """Number of blocks that each thread reads ahead; None: as many as the job says."""

    @property
    def total(self) -> int:
        return sum(term.nbytes for term in self.terms)

    def notices_of_missing_threads(self, wanted: int) -> tuple[str, ...]:
        """Return a notice if memory does not suffice for the ``wanted`` threads; else an empty tuple."""
        return (f"memory is short: {self.threads} of {wanted} threads",) if self.threads < wanted else ()

    def check(self, remedy: str, enough: Callable[[], int] | None = None) -> None:
        """Raise BudgetError, with every term, if the job exceeds its limit or the machine's memory.

        The limit is not lowered to the machine's memory, so that the same setting gives the same plan everywhere.

        ``remedy``: alternatives to more memory, to end the hint with. ``enough`` returns a sufficient limit, for plans
        that use more memory if the limit is higher; None: the total is sufficient.
        """
        if self.total <= min(self.limit, _installed_bytes()):  # known already; swap space is read only if it matters
            return
        machine = machine_bytes()
        if self.total <= min(self.limit, machine):
            return
        terms = " + ".join(f"{mib(t.nbytes)} {t.name}" for t in self.terms)
        if self.total <= self.limit:
            raise BudgetError(
                f"this machine has {mib(machine)}, and --memory {mib(self.limit)} lets this job take more: {terms} = {mib(self.total)}",
                hint=f"give at most what the machine has: --memory {mib(machine)}{remedy}",
            )
        limit = f"{self.limit} is {self.limit} bytes and" if self.limit < MIB else mib(self.limit)
        raise BudgetError(
            f"--memory {limit} is not enough: {terms} = {mib(self.total)}",
            hint=f"use --memory {mib(enough() if enough else self.total, round_up=True)}{remedy}",
        )


def with_most_threads(make_plan: Callable[[int], MemoryPlan], wanted: int) -> MemoryPlan:
    """Return the plan with the most threads, up to ``wanted``, that fits its limit; if none fits, the plan with one
    thread.
    """
    plans = map(make_plan, range(wanted, 0, -1))
    return next(plan for plan in plans if plan.total <= plan.limit or plan.threads == 1)


@cache
def _installed_bytes() -> int:
    """Return the total memory of this machine in bytes, without swap space."""
    import psutil

    return int(psutil.virtual_memory().total)


def machine_bytes() -> int:
    """Return the total memory and swap space of this machine in bytes, used or not."""
    import psutil

    return int(psutil.virtual_memory().total + psutil.swap_memory().total)


def memory_limit(user_limit: int | None) -> int:
    """Return the memory limit in bytes: the minimum of ``user_limit``, the limits of control groups, and RLIMIT_AS.

    If ``user_limit`` is None, 75 % of the available memory takes its place. For the tasks of a job, ``user_limit`` is
    ``Executor.memory_limit``: the limits of this process count, too, because it joins the results of the tasks.
    """
    if (assumed := _ASSUMED.get()) is not None:
        return assumed
    bounds = [
        user_limit or int(DEFAULT_SHARE * (available_bytes() + anonymous_bytes())),
        *group_limits(),
    ]
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft != resource.RLIM_INFINITY:
        bounds.append(soft)
    return min(bounds)


@contextmanager
def assume_limit(limit: int) -> Iterator[None]:
    """Make ``memory_limit`` return ``limit`` bytes inside the context, whatever the machine's memory."""
    token = _ASSUMED.set(limit)
    try:
        yield
    finally:
        _ASSUMED.reset(token)


def check_addresses() -> None:
    """Raise BudgetError if the address space is too small for compiled code and its libraries.

    The libraries reserve many more addresses than they use memory, and some of them retry forever if that fails.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft != resource.RLIM_INFINITY and soft < MIN_ADDRESS_SPACE:
        hint = "ulimit -v unlimited; what memory is used is bounded by --memory, or by a control group"
        message = f"the address space of this process is limited to {mib(soft)} (ulimit -v)"
        raise BudgetError(f"{message}, {mib(MIN_ADDRESS_SPACE)} are needed at least", hint=hint)


def check_groups() -> None:
    """Raise BudgetError if the control group allows too little memory for imports.

    Without this check the kernel would kill the process without a message.
    """
    limit = min(group_limits(), default=NOMINAL)
    if limit < NOMINAL and not passes_loaded():
        message = f"the control group of this process is limited to {mib(limit)}, {mib(MIN_MEMORY, round_up=True)} are needed before anything is read"
        raise BudgetError(
            message,
            hint=f"raise its limit to {mib(MIN_MEMORY, round_up=True)} plus what the job needs; streamsvm plan tells how much",
        )


def page_cache_bytes(limit: int) -> int:
    """Return the bytes of a store that will probably stay in the page cache: half of the free memory that the job does
    not use.
    """
    if limit >= UNLIMITED:
        return 0
    free = min([available_bytes(), *group_limits()])
    return max(0, free - limit) // 2


def group_limits() -> list[int]:
    """Return the limits in bytes of this process's control groups and of their parent groups."""
    names = {True: "memory.max", False: "memory.limit_in_bytes"}
    texts = [text_of(group / names[unified]).strip() for group, unified in groups_of("memory")]
    return [int(text) for text in texts if text.isdigit() and int(text) < 1 << 60]


def block_terms(layout: Layout, depth: int, buffer: int = 0, readers: int = 1) -> list[Term]:
    """Return the terms of the blocks that are read ahead: chunks, visiting orders, signs and weights.

    ``depth``: number of blocks read ahead. ``buffer``: bytes of one of the store's buffers, which can exceed the
    largest chunk of a small store. ``readers``: number of threads, each of which has its own blocks.
    """
    raw = max(layout.block_bytes + _padding(layout), buffer)
    order = 4 * layout.largest_chunk
    count = readers * (depth + 1)
    ring = Term("blocks in flight", count * (raw + order), f"{count} x ({mib(raw)} chunk + order)")
    views = Term("block views", readers * VIEW_BYTES * layout.largest_chunk, "signs and weights of the rows at hand")
    return [ring, views, *request_terms(raw, readers * max(1, depth))] if layout.remote else [ring, views]


def request_terms(nbytes: int, requests: int) -> list[Term]:
    """Return the term of requests to an object store that are in flight, each for ``nbytes`` bytes."""
    each = REQUEST_BYTES + int(BODY_COPIES * nbytes)
    return [Term("requests in flight", CLIENT_BYTES + requests * each, f"{requests} to the object store x {mib(each)}")]


def upload_terms(stores: Sequence[Path], chunk_bytes: int) -> list[Term]:
    """Return the term of the units that are being sent to stores at URLs; none for stores on a disk."""
    count = UPLOADS * sum(find_working_folder(path) is not None for path in stores)
    if not count:
        return []
    each = REQUEST_BYTES + int((1 + BODY_COPIES) * chunk_bytes)
    return [Term("units being sent", CLIENT_BYTES + count * each, f"{count} to the object store x {mib(each)}")]


def copies_term(path: Path | str) -> list[Term]:
    """Return the term of the part of a file that is being sent to a URL; none for an output on a disk."""
    if find_url(path) is None and find_working_folder(Path(path)) is None:
        return []
    nbytes = CLIENT_BYTES + REQUEST_BYTES + int((1 + BODY_COPIES) * SENT_PART_BYTES)
    return [Term("files being sent", nbytes, f"a part of {mib(SENT_PART_BYTES)} of a checkpoint or a model")]


def read_further_ahead(memory: MemoryPlan, layout: Layout, depth: int, buffer: int, readers: int) -> MemoryPlan:
    """Return the plan of a job on a store in an object store with as many requests in flight as its limit leaves room for.

    Latency is much longer than the transfer of a block, so that the rate grows with the number of requests. ``depth``: the number of blocks
    that each of ``readers`` threads reads ahead in ``memory``. Nothing else in the plan is changed.
    """
    most = memory.limit if memory.limit < UNLIMITED else min(SMALL_JOB_BYTES, machine_bytes() // 2)
    others = sum(t.nbytes for t in memory.terms) - sum(t.nbytes for t in block_terms(layout, depth, buffer, readers))
    further = min(MAX_IN_FLIGHT, len(layout.chunks)) // readers
    while further > depth and others + sum(t.nbytes for t in block_terms(layout, further, buffer, readers)) > most:
        further -= 1
    if further <= depth:
        return memory
    new = {term.name: term for term in block_terms(layout, further, buffer, readers)}
    return replace(memory, terms=tuple(new.get(term.name, term) for term in memory.terms), depth=further)


def _padding(layout: Layout) -> int:
    """Return the bytes by which the last storage unit of a CSR array, always of full length, can exceed its chunk."""
    return 0 if layout.nonzeros is None else max(layout.nonzeros) * 8


def base_terms() -> list[Term]:
    """Return the terms of the process: its current memory, the first compiled pass, and a margin."""
    return _process_terms(lambda used: used)


def steady_terms() -> list[Term]:
    """Return ``base_terms`` with the current memory rounded up in steps (``STEP``), for plans on which results
    depend. Freed memory is returned to the system before it is measured. This takes milliseconds and is
    skipped if there is no limit.
    """
    if _ASSUMED.get() != UNLIMITED:
        freed_memory.give_back()
    return _process_terms(_round_up)


def _process_terms(round_bytes: Callable[[int], int]) -> list[Term]:
    freed_memory.fix_thresholds()
    used, to_load = anonymous_bytes(), 0 if passes_loaded() else COMPILER_BYTES
    counted = round_bytes(used + to_load) - to_load
    why = "measured now" if counted == used else f"{mib(used)} now, in steps"
    terms = [Term("interpreter and imports", counted, why)]
    if to_load:
        terms.append(Term("compiled passes", to_load, "LLVM and the passes' machine code"))
    return [*terms, Term("margin", MARGIN, "allocator, small objects")]


def _round_up(used: int) -> int:
    return NOMINAL + STEP * max(0, -((NOMINAL - used) // STEP))


def files_term(paths: Sequence[str | os.PathLike[str]]) -> Term:
    """Return the term of the name, size and checksum that a job keeps to its end for each file that it reads."""
    nbytes = sum(FILE_BYTES + PATH_COPIES * len(os.fspath(path)) for path in paths)
    return Term("files", nbytes, f"name, size and checksum of {len(paths)}")


def cache_term(layout: Layout, depth: int = 2, scratch: int = 0) -> Term | None:
    """Return the term of a copy of all rows in memory; None for a store so large that the page cache is as good as a copy.

    All rows then form one block, with its visiting orders, its views, and the solver's ``scratch`` bytes per row.
    """
    if layout.bytes_in_memory > MAX_CACHED_BYTES:
        return None
    per_row = VIEW_BYTES + 4 * (depth + 2) + scratch
    why = f"kept in memory, twice while they are put together; orders, views, scratch: {per_row} bytes a row"
    return Term("all rows", 2 * layout.bytes_in_memory + per_row * layout.rows, why)
