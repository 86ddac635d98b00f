"""The memory plan: every term of what a job will hold, added up before anything is read.

The promise is about anonymous memory of the process (``RssAnon``): page cache is the kernel's and is given back.
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
from streamsvm.schedule import control_groups
from streamsvm.types import Layout, Term

MIB = 1 << 20
COMPILER = 72 * MIB
"""What LLVM and the loaded passes add to a process that has not compiled or loaded one yet (measured: 64-71 MiB)."""
NOMINAL, STEP = 136 * MIB, 64 * MIB
"""A process that has begun, passes loaded, is counted as so much (measured: 115-131 MiB), and one that holds more in steps: the same
settings have the same plan, hence the same bits, whatever the process did before, but for what is large."""
MARGIN = 8 * MIB
CACHED_MOST = 256 * MIB
"""Above this a copy of one's own gains nothing over the page cache: a pass takes longer than its reading."""
VIEWS = 16
"""Bytes a row of a block while its signs and weights are made."""
LEAST_ADDRESSES = 1 << 30
"""Bytes of address space without which numpy, numba and their threads do not get started."""
FILE_BYTES, PATH_COPIES = 4096, 8
"""Bytes of a file that a job reads, beside so many copies of its path: what is known of it is held to the end, and written (measured
of an ingest: 3.2 KiB a file with paths of 25 characters, and 6.5 bytes for each one more; a prediction holds 0.9 KiB)."""
LEAST_MEMORY = NOMINAL + MARGIN
"""Bytes that a job takes before it reads anything: interpreter, imports, compiled passes."""
SHARE = 0.75
"""Of the memory that is available, when the user states no limit."""
SMALL = 1 << 30
"""Bytes: a job that needs no more is planned from its data alone when the user states no limit."""
UNLIMITED = 1 << 62
_ASSUMED: ContextVar[int | None] = ContextVar("assumed", default=None)


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """What a job will hold in memory, and what it may."""

    terms: tuple[Term, ...]
    """All that it holds at its peak."""
    limit: int
    """Bytes of anonymous memory the process may use."""
    resident: bool
    """Whether per-row state lives in memory (False: in a file)."""
    cached: bool
    """Whether the blocks themselves stay in memory once they are read."""
    retain: bool
    """Whether the store may stay in the page cache between passes."""
    threads: int = 1
    """How many threads compute side by side."""

    @property
    def total(self) -> int:
        """Bytes of all terms."""
        return sum(term.nbytes for term in self.terms)

    def short_of(self, threads: int) -> tuple[str, ...]:
        """Return a line for people where memory is short of the threads that were wanted."""
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
                hint=f"state at most what the machine has: --memory {mib(machine)}{remedy}",
            )
        stated = f"{self.limit} is {self.limit} bytes and" if self.limit < MIB else mib(self.limit)
        raise BudgetError(
            f"--memory {stated} is not enough: {terms} = {mib(self.total)}",
            hint=f"use --memory {mib(enough() if enough else self.total, up=True)}{remedy}",
        )


def with_most_threads(planned: Callable[[int], MemoryPlan], wanted: int) -> MemoryPlan:
    """Return the plan of as many threads as fit the limit, ``wanted`` at most; that of one where even that does not fit."""
    plans = map(planned, range(wanted, 0, -1))
    return next(plan for plan in plans if plan.total <= plan.limit or plan.threads == 1)


def anonymous_bytes() -> int:
    """Anonymous memory of this process now: resident pages that are not a file's (/proc/self/statm)."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            _, resident, shared = file.read().split()[:3]
        return (int(resident) - int(shared)) * resource.getpagesize()
    except OSError:
        import psutil

        return int(psutil.Process().memory_info().rss)


def machine_bytes() -> int:
    """Memory and swap that this machine has, in bytes, whoever uses it."""
    import psutil

    return int(psutil.virtual_memory().total + psutil.swap_memory().total)


def memory_limit(stated: int | None) -> int:
    """min(stated, control group, RLIMIT, 75 % of what is available), in bytes."""
    import psutil

    if (assumed := _ASSUMED.get()) is not None:
        return assumed
    bounds = [stated or int(SHARE * (psutil.virtual_memory().available + anonymous_bytes())), *_group_limits()]
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft != resource.RLIM_INFINITY:
        bounds.append(soft)
    return min(bounds)


@contextmanager
def assuming_limit(limit: int) -> Iterator[None]:
    """Plan inside as if the memory limit were ``limit`` bytes, whatever this machine has."""
    token = _ASSUMED.set(limit)
    try:
        yield
    finally:
        _ASSUMED.reset(token)


def check_addresses() -> None:
    """Raise BudgetError where the limit of the address space is too small for compiled code and its libraries.

    They reserve far more addresses than they use memory, and where they get none some of them try for ever.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft != resource.RLIM_INFINITY and soft < LEAST_ADDRESSES:
        hint = "ulimit -v unlimited; what memory is used is bounded by --memory, or by a control group"
        found = f"the address space of this process is limited to {mib(soft)} (ulimit -v)"
        raise BudgetError(f"{found}, {mib(LEAST_ADDRESSES)} are needed at least", hint=hint)


def check_groups() -> None:
    """Raise BudgetError where a control group has no room for what a job imports: the kernel would end it without a word."""
    limit = min(_group_limits(), default=NOMINAL)
    if limit < NOMINAL and not passes_loaded():
        found = f"the control group of this process is limited to {mib(limit)}, {mib(LEAST_MEMORY, up=True)} are needed before anything is read"
        raise BudgetError(
            found,
            hint=f"give the group {mib(LEAST_MEMORY, up=True)} and the data of the job; streamsvm plan says how much that is",
        )


def page_cache_bytes(limit: int) -> int:
    """How much of a store may be expected to stay cached: half of what is left beside the job's own memory."""
    import psutil

    free = min([psutil.virtual_memory().available, *_group_limits()])
    return max(0, free - limit) // 2


def _group_limits() -> list[int]:
    """The limits of the control groups (v2, v1) this process is in and of the groups above them."""
    names = {True: "memory.max", False: "memory.limit_in_bytes"}
    found = [
        control_groups.text_of(group / names[unified]).strip() for group, unified in control_groups.groups_of("memory")
    ]
    return [int(text) for text in found if text.isdigit() and int(text) < 1 << 60]


def block_terms(layout: Layout, depth: int, buffer: int = 0, readers: int = 1) -> list[Term]:
    """The ring of blocks: chunk, visiting order, and what each problem sees of it (signs, weights).

    ``buffer``: bytes of the store's own buffers; of a small store they hold more than its largest chunk. ``readers``: threads
    that have a ring each.
    """
    raw = max(layout.block_bytes + _padding(layout), buffer)
    order = 4 * layout.largest_chunk
    count = readers * (depth + 1)
    ring = Term("blocks in flight", count * (raw + order), f"{count} x ({mib(raw)} chunk + order)")
    views = Term("block views", readers * VIEWS * layout.largest_chunk, "signs and weights of the rows at hand")
    return [ring, views]


def _padding(layout: Layout) -> int:
    """The last unit of a CSR array is stored full: up to a chunk's worth of entries more than the chunk has."""
    return 0 if layout.nonzeros is None else max(layout.nonzeros) * 8


def base_terms() -> list[Term]:
    """The process itself: what it holds now, what loading the first compiled pass will add, a margin."""
    return _process(lambda held: held)


def steady_terms() -> list[Term]:
    """The same where results depend on what is left, counted in steps; see ``NOMINAL``."""
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
    """What a job that reads these files holds of each to its end."""
    nbytes = sum(FILE_BYTES + PATH_COPIES * len(os.fspath(path)) for path in paths)
    return Term("files", nbytes, f"name, size and checksum of {len(paths)}")


def cache_term(layout: Layout, depth: int = 2, scratch: int = 0) -> Term | None:
    """Keeping all blocks in memory; None for a store so large that the page cache serves it as well.

    They are one block then: its orders and views, and the solver's ``scratch`` bytes a row of it, are of all rows.
    """
    if layout.bytes_per_pass > CACHED_MOST:
        return None
    per_row = VIEWS + 4 * (depth + 2) + scratch
    why = f"kept in memory, twice while they are put together; orders, views, scratch: {per_row} bytes a row"
    return Term("all rows", 2 * layout.bytes_per_pass + per_row * layout.rows, why)
