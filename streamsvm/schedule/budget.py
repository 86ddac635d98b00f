"""The memory plan: every term of what a job will hold, added up before anything is read.

The promise is about anonymous memory of the process (``RssAnon``): page cache belongs to the kernel, which takes it back when needed.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from streamsvm.compute import freed_memory, passes_loaded
from streamsvm.config.units import mib
from streamsvm.errors import BudgetError
from streamsvm.schedule.machine import anonymous_bytes, groups_of, text_of
from streamsvm.types import Layout, Term

MIB = 1 << 20
COMPILER = 72 * MIB
"""Bytes that LLVM and the first loaded pass add to a process (measured: 64-71 MiB)."""
NOMINAL, STEP = 136 * MIB, 64 * MIB
"""Bytes counted for a process with passes loaded (measured: 115-131 MiB), and the steps in which more is counted. So the same
settings give the same plan, hence the same bits, unless the process held much before."""
MARGIN = 8 * MIB
CACHED_MOST = 256 * MIB
"""Bytes of a store above which a copy in memory gains nothing over the page cache: a pass takes longer than reading."""
VIEWS = 16
"""Bytes a row of a block for signs and weights."""
LEAST_ADDRESSES = 1 << 30
"""Least bytes of address space with which numpy, numba and their threads start."""
FILE_BYTES, PATH_COPIES = 4096, 8
"""Bytes that a job holds to its end for each file it reads, and copies of its path (measured for ingest: 3.2 KiB a file with
paths of 25 characters, 6.5 bytes for each further character; predict: 0.9 KiB)."""
LEAST_MEMORY = NOMINAL + MARGIN
"""Bytes that a job needs before it reads anything: interpreter, imports, compiled passes."""
SHARE = 0.75
"""Share of the available memory that is the limit when the user states none."""
SMALL = 1 << 30
"""Bytes up to which a job is planned from its data alone when the user states no limit."""
UNLIMITED = 1 << 62
_ASSUMED: ContextVar[int | None] = ContextVar("assumed", default=None)


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """What a job will hold in memory, and what it may."""

    terms: tuple[Term, ...]
    limit: int
    """Bytes of anonymous memory the process may use."""
    resident: bool
    """Whether per-row state lives in memory (False: in a file)."""
    cached: bool
    """Whether the blocks themselves stay in memory once they are read."""
    retain: bool
    """Whether the store may stay in the page cache between passes."""
    threads: int = 1
    """Threads that compute at once."""

    @property
    def total(self) -> int:
        return sum(term.nbytes for term in self.terms)

    def short_of(self, threads: int) -> tuple[str, ...]:
        """Return a notice if there is no memory for the number of threads that were wanted."""
        return (f"memory is short: {self.threads} of {threads} threads",) if self.threads < threads else ()

    def check(self, remedy: str, enough: Callable[[], int] | None = None) -> None:
        """Refuse a job that does not fit the limit, or not the machine. Raises BudgetError with every term.

        The limit itself is not lowered to what the machine has: the same setting makes the same plan everywhere.

        ``enough`` returns a limit that would do where that can be more than the total: with more memory more is planned.
        """
        machine = machine_bytes()
        if self.total <= min(self.limit, machine):
            return
        terms = " + ".join(f"{mib(t.nbytes)} {t.name}" for t in self.terms)
        if self.total <= self.limit:
            raise BudgetError(
                f"this machine has {mib(machine)}, and --memory {mib(self.limit)} lets this job take more: {terms} = {mib(self.total)}",
                hint=f"give at most what the machine has: --memory {mib(machine)}{remedy}",
            )
        stated = f"{self.limit} is {self.limit} bytes and" if self.limit < MIB else mib(self.limit)
        raise BudgetError(
            f"--memory {stated} is not enough: {terms} = {mib(self.total)}",
            hint=f"use --memory {mib(enough() if enough else self.total, up=True)}{remedy}",
        )


def with_most_threads(planned: Callable[[int], MemoryPlan], wanted: int) -> MemoryPlan:
    """Return the plan with the most threads, up to ``wanted``, that fits the limit; the plan of one thread if none does."""
    plans = map(planned, range(wanted, 0, -1))
    return next(plan for plan in plans if plan.total <= plan.limit or plan.threads == 1)


def machine_bytes() -> int:
    """Memory and swap that this machine has, in bytes, whoever uses it."""
    import psutil

    return int(psutil.virtual_memory().total + psutil.swap_memory().total)


def memory_limit(stated: int | None) -> int:
    """Return the limit in bytes: the least of the stated one (or 75 % of available memory), control groups and RLIMIT_AS."""
    import psutil

    if (assumed := _ASSUMED.get()) is not None:
        return assumed
    bounds = [stated or int(SHARE * (psutil.virtual_memory().available + anonymous_bytes())), *group_limits()]
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft != resource.RLIM_INFINITY:
        bounds.append(soft)
    return min(bounds)


@contextmanager
def assuming_limit(limit: int) -> Iterator[None]:
    """Plan as if the memory limit were ``limit`` bytes, whatever this machine has; a context manager."""
    token = _ASSUMED.set(limit)
    try:
        yield
    finally:
        _ASSUMED.reset(token)


def check_addresses() -> None:
    """Raise BudgetError if the address space is too small for compiled code and its libraries.

    They reserve many more addresses than they use memory, and some of them retry forever.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft != resource.RLIM_INFINITY and soft < LEAST_ADDRESSES:
        hint = "ulimit -v unlimited; what memory is used is bounded by --memory, or by a control group"
        found = f"the address space of this process is limited to {mib(soft)} (ulimit -v)"
        raise BudgetError(f"{found}, {mib(LEAST_ADDRESSES)} are needed at least", hint=hint)


def check_groups() -> None:
    """Raise BudgetError if the control group has no room for imports: the kernel would kill the process without a message."""
    limit = min(group_limits(), default=NOMINAL)
    if limit < NOMINAL and not passes_loaded():
        found = f"the control group of this process is limited to {mib(limit)}, {mib(LEAST_MEMORY, up=True)} are needed before anything is read"
        raise BudgetError(
            found,
            hint=f"give the group {mib(LEAST_MEMORY, up=True)} and the data of the job; streamsvm plan says how much that is",
        )


def page_cache_bytes(limit: int) -> int:
    """Return the bytes of a store that will probably stay in the page cache: half of the memory left beside the job's own."""
    import psutil

    free = min([psutil.virtual_memory().available, *group_limits()])
    return max(0, free - limit) // 2


def group_limits() -> list[int]:
    """Return the limits in bytes of this process's control groups and of the groups above them."""
    names = {True: "memory.max", False: "memory.limit_in_bytes"}
    found = [text_of(group / names[unified]).strip() for group, unified in groups_of("memory")]
    return [int(text) for text in found if text.isdigit() and int(text) < 1 << 60]


def block_terms(layout: Layout, depth: int, buffer: int = 0, readers: int = 1) -> list[Term]:
    """Return the terms of the ring of blocks: chunks, visiting orders, signs and weights.

    ``buffer``: bytes of the store's buffers, which can exceed the largest chunk of a small store. ``readers``: threads with a
    ring each.
    """
    raw = max(layout.block_bytes + _padding(layout), buffer)
    order = 4 * layout.largest_chunk
    count = readers * (depth + 1)
    ring = Term("blocks in flight", count * (raw + order), f"{count} x ({mib(raw)} chunk + order)")
    views = Term("block views", readers * VIEWS * layout.largest_chunk, "signs and weights of the rows at hand")
    return [ring, views]


def _padding(layout: Layout) -> int:
    """Return the bytes by which the last unit of a CSR array, which is stored full, can exceed its chunk."""
    return 0 if layout.nonzeros is None else max(layout.nonzeros) * 8


def base_terms() -> list[Term]:
    """Return the terms of the process itself: present memory, the first compiled pass, a margin."""
    return _process(lambda held: held)


def steady_terms() -> list[Term]:
    """Return ``base_terms`` with present memory counted in steps (``NOMINAL``), for plans that results depend on."""
    freed_memory.give_back()
    return _process(_in_steps)


def _process(counted: Callable[[int], int]) -> list[Term]:
    freed_memory.fix_thresholds()
    held, loading = anonymous_bytes(), 0 if passes_loaded() else COMPILER
    own = counted(held + loading) - loading
    terms = [Term("interpreter and imports", own, "measured now" if own == held else f"{mib(held)} now, in steps")]
    if loading:
        terms.append(Term("compiled passes", loading, "LLVM and the passes' machine code"))
    return [*terms, Term("margin", MARGIN, "allocator, small objects")]


def _in_steps(held: int) -> int:
    return NOMINAL + STEP * max(0, -((NOMINAL - held) // STEP))


def files_term(paths: Sequence[str | os.PathLike[str]]) -> Term:
    """Return the term of what a job holds to its end for each file it reads."""
    nbytes = sum(FILE_BYTES + PATH_COPIES * len(os.fspath(path)) for path in paths)
    return Term("files", nbytes, f"name, size and checksum of {len(paths)}")


def cache_term(layout: Layout, depth: int = 2, scratch: int = 0) -> Term | None:
    """Return the term of keeping all blocks in memory; None for a store that the page cache serves as well.

    All rows are one block then, and so are its orders, views, and the solver's ``scratch`` bytes a row.
    """
    if layout.bytes_per_pass > CACHED_MOST:
        return None
    per_row = VIEWS + 4 * (depth + 2) + scratch
    why = f"kept in memory, twice while they are put together; orders, views, scratch: {per_row} bytes a row"
    return Term("all rows", 2 * layout.bytes_per_pass + per_row * layout.rows, why)
