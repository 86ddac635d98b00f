"""Executors: the parts of a job run one after the other, on threads, or on a cluster, with the same result to the last bit.

Results are joined along a fixed binary tree over the numbers of the parts (``JoinTree``), or handed over in the order of the parts. Which
thread or worker computed a part, and when, therefore shows in no result.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from functools import partial
from itertools import count
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeAlias, TypeVar, runtime_checkable

from streamsvm.compute.threading import CORES, end_all, start_all
from streamsvm.config.units import mib
from streamsvm.engine.signals import check_time
from streamsvm.errors import BudgetError, UsageError
from streamsvm.registry import Registry
from streamsvm.schedule import budget

T = TypeVar("T")

EXECUTORS = Registry(
    "cluster",
    {
        "tcp": "streamsvm.cluster:connected",
        "tls": "streamsvm.cluster:connected",
        "scheduler-file": "streamsvm.cluster:connected",
        "local": "streamsvm.cluster:connected",
        "client": "streamsvm.cluster.connection:of_program",
        "here": "streamsvm.engine.executor:here",
    },
)
POLL_SECONDS = 0.25
"""Seconds between two looks, while no result comes, at whether the job is to stop."""
AHEAD = 2
"""Parts by which a thread may be ahead of the one that takes results in their order."""


class PartSpan(NamedTuple):
    """Parts [first, stop)."""

    first: int
    """The number of the first part."""
    stop: int
    """One beyond the number of the last part."""

    def halves(self) -> tuple[PartSpan, PartSpan]:
        """The two spans that are joined to this one; it has two parts at least."""
        middle = self.first + (1 << (self.stop - self.first - 1).bit_length() - 1)
        return PartSpan(self.first, middle), PartSpan(middle, self.stop)


def spans_of(count: int, tasks: int) -> list[PartSpan]:
    """The nodes of the tree over ``count`` parts that ``tasks`` tasks, or twice as many, are made of, in order.

    All have the same power of two of parts, but for the last: what they came to is joined by a tree over them as if it
    were by the one over the parts.
    """
    size = 1 << max(0, (count // max(1, tasks)).bit_length() - 1)
    return [PartSpan(first, min(first + size, count)) for first in range(0, count, size)]


class JoinTree(Generic[T]):
    """Results of ``count`` neighboring parts, joined along one tree whatever the order in which they come.

    The tree is that of ``partition.tree_reduce``: left branches are the largest powers of two, so that what is joined
    with what follows from the number of parts alone. Two siblings are joined as soon as both are there, by the thread
    that brings the second: of ``count`` parts that ``threads`` threads take in order, at most log2(count) + threads + 1
    results are held at a time.
    """

    def __init__(
        self,
        count: int,
        join: Callable[[T, T], T],
        accept: Callable[[int, T], T] = lambda _number, found: found,
        known: Mapping[PartSpan, T] | None = None,
    ) -> None:
        """``accept(number, found)`` takes in the result of a part, one at a time; ``known``: what an earlier run had
        joined.
        """
        self._root, self._join, self._accept = PartSpan(0, count), join, accept
        self._nodes: dict[PartSpan, T] = dict(known or {})
        self._joining = 0
        self._quiet = threading.Condition()

    def missing(self) -> list[int]:
        """The parts of which nothing is known, rising."""
        with self._quiet:
            known = {number for span in self._nodes for number in range(*span)}
        return [number for number in range(self._root.stop) if number not in known]

    def add(self, number: int, found: T) -> None:
        """Take in the result of a part, and join what can be joined. Any thread may call it."""
        way = self._way_to(number)
        with self._quiet:
            pair = self._placed(way, self._accept(number, found))
        while pair is not None:
            joined = None
            try:
                joined = self._join(*pair)
            finally:
                with self._quiet:  # in one go: what is joined is never nowhere when somebody looks
                    self._joining -= 1
                    pair = None if joined is None else self._placed(way, joined)
                    self._quiet.notify_all()

    @contextmanager
    def at_rest(self) -> Iterator[dict[PartSpan, T]]:
        """What is known, while nothing is added or joined."""
        with self._quiet:
            self._quiet.wait_for(lambda: not self._joining)
            yield dict(self._nodes)

    @property
    def result(self) -> T:
        """What all parts came to, once no part is missing."""
        return self._nodes[self._root]

    def _way_to(self, number: int) -> list[PartSpan]:
        """The spans from the root to a part."""
        way = [self._root]
        while way[-1].stop - way[-1].first > 1:
            left, right = way[-1].halves()
            way.append(left if number < left.stop else right)
        return way

    def _placed(self, way: list[PartSpan], found: T) -> tuple[T, T] | None:
        """Keep what is of the last span of a way; where its sibling is there, return both, in order, to be joined."""
        span = way.pop()
        if way:
            left, right = way[-1].halves()
            other = self._nodes.pop(right if span == left else left, None)
            if other is not None:
                self._joining += 1
                return (found, other) if span == left else (other, found)
        self._nodes[span] = found
        return None


Part: TypeAlias = Any
"""A part of a job: what the function of the job's ``Task`` takes first."""

Shared: TypeAlias = Any
"""A value that every task of a job is given, or what stands for it until it is on a worker."""

Result: TypeAlias = Any
"""What the function of a ``Task`` returns. Part, shared and result are one job's own; no executor looks into them."""


@runtime_checkable
class PeakAware(Protocol):
    """A result that knows what memory it took to make it: what an executor sees from outside is added to it."""

    def at_peak(self, peak: int) -> Result:
        """Return the same, made by a process that had as many bytes in use."""
        ...


@runtime_checkable
class CarefulJoin(Protocol):
    """A join that leaves what it joins as it is, which costs copies where nobody else sees that."""

    def of_own(self, *shared: Shared) -> Callable[[Result, Result], Result]:
        """Return the join of results that whoever joins them has made, which may be changed; ``shared``: as the tasks were given."""
        ...


class Task(NamedTuple):
    """What is done to each part of a job: ``function(part, *shared)``, a function of a module."""

    phase: str
    """What people call it: fit, embed, ..."""
    function: Callable[..., Result]
    """What is called, with a part and the shared values; it is sent by name."""
    needs: int = 0
    """Bytes it is expected to hold, to be said where a worker did not have them."""
    each: Callable[..., Generator[Result]] | None = None
    """``each(parts, *shared)`` yields what comes of parts, in their order: a thread that takes several reads ahead over
    their borders. None: ``function`` has nothing to gain from that."""

    def results(self, parts: Iterator[Part], shared: Sequence[Shared]) -> Generator[Result]:
        """Yield what comes of the parts, one after the other."""
        if self.each is not None:
            return self.each(parts, *shared)
        return (self.function(part, *shared) for part in parts)


class Joins(NamedTuple):
    """How results become one: ``join(one, other)``, then ``close(all, *shared)``."""

    join: Callable[[Result, Result], Result]
    """Makes one result of two neighboring ones; on a cluster it must leave both as they are."""
    close: Callable[..., Result] | None = None
    """A function of a module; it runs where the last join has run."""
    tree: JoinTree[Result] | None = None
    """Where results are joined in this process, and what is known of them already; None: nothing is."""

    def tree_over(self, parts: Sequence[Part]) -> JoinTree[Result]:
        """Return the tree that results of these parts are joined along."""
        return JoinTree(len(parts), self.join) if self.tree is None else self.tree

    def of_span(self, task: Task, parts: Sequence[Part], shared: Sequence[Shared]) -> Result:
        """Return what comes of some neighboring parts, one after the other, joined."""
        made: object = self.join
        join = made.of_own(*shared) if isinstance(made, CarefulJoin) else self.join
        tree = JoinTree(len(parts), join)
        with closing(task.results(iter(parts), shared)) as found:
            for number in range(len(parts)):
                tree.add(number, next(found))
        return tree.result

    def closed(self, found: Result, shared: Sequence[Shared]) -> Result:
        """Return what is made of the joined results in the end."""
        return found if self.close is None else self.close(found, *shared)


OnProgress = Callable[[int], None]
"""Takes the number of parts that are done, now and then while a job waits. What it raises ends the waiting."""


def ignore_progress(done: int) -> None:
    """Report nothing."""


class Executor(Protocol):
    """Runs tasks over parts. Each part counts exactly once, whatever happens to workers. Raises ClusterError."""

    @property
    def threads(self) -> int:
        """Tasks that run at once, now."""
        ...

    def limit(self, stated: int | None) -> int | None:
        """Bytes one task may hold, given what the user allows."""
        ...

    def share(self, value: Shared) -> Shared:
        """A value as every task is to see it: sent once to each worker, not with each task. Not to be changed there."""
        ...

    def map(
        self,
        task: Task,
        parts: Iterable[Part],
        shared: Sequence[Shared] = (),
        on_progress: OnProgress = ignore_progress,
    ) -> Generator[Result]:
        """The results in the order of the parts, which are taken as they are needed where that is in this process."""
        ...

    def reduce(
        self, task: Task, parts: Sequence[Part], joins: Joins, shared: Sequence[Shared], on_progress: OnProgress
    ) -> Result:
        """The results joined two by two along ``join_tree.JoinTree``, and closed."""
        ...


class InThisProcess:
    """What is the same of every executor whose tasks see the memory of this process."""

    def limit(self, stated: int | None) -> int | None:
        """Return what the user allows: the plan has counted all there is here."""
        return stated

    def share(self, value: Shared) -> Shared:
        """Return the value itself."""
        return value


class SerialExecutor(InThisProcess):
    """In this process: one part after the other. What a cluster returns is what this returns, to the last bit."""

    threads = 1
    """One task at a time."""

    def map(
        self,
        task: Task,
        parts: Iterable[Part],
        shared: Sequence[Shared] = (),
        on_progress: OnProgress = ignore_progress,
    ) -> Generator[Result]:
        """Yield what the task makes of each part, one after the other."""
        with closing(task.results(iter(parts), shared)) as found:
            for done, result in enumerate(found, 1):
                yield result
                check_time()
                on_progress(done)

    def reduce(
        self, task: Task, parts: Sequence[Part], joins: Joins, shared: Sequence[Shared], on_progress: OnProgress
    ) -> Result:
        """Return the results joined as they come, and closed."""
        tree = joins.tree_over(parts)
        missing = tree.missing()
        with closing(task.results((parts[number] for number in missing), shared)) as found:
            for done, number in enumerate(missing, len(parts) - len(missing) + 1):
                tree.add(number, next(found))
                check_time()
                on_progress(done)
        return joins.closed(tree.result, shared)


@contextmanager
def here(address: str, *, insecure: bool = False) -> Iterator[Executor]:
    """The executor of 'here:', whatever follows and whatever is allowed."""
    del address, insecure
    yield SerialExecutor()


class ClusterJob(Protocol):
    """A job that can run on a cluster."""

    @property
    def cluster(self) -> str | None:
        """The address of the cluster; None: the job runs in this process."""
        ...

    @property
    def insecure_network(self) -> bool:
        """Whether a connection without TLS is allowed."""
        ...

    @property
    def memory(self) -> int | None:
        """Bytes the job may use; None where nothing is said."""
        ...


@contextmanager
def executor_for(job: ClusterJob, given: Executor | None = None) -> Iterator[Executor | None]:
    """``given``, else that of the cluster a job names; None where it names none. Raises UsageError, ClusterError."""
    if given is None and job.cluster is None:
        yield None
        return
    with nullcontext(given) if job.cluster is None or given is not None else _connected(job, job.cluster) as executor:
        assert executor is not None
        try:
            yield executor
        except BudgetError as error:
            _name_workers(error, executor.limit(None), job.memory)
            raise


def _connected(job: ClusterJob, cluster: str) -> AbstractContextManager[Executor]:
    kind, colon, _ = cluster.partition(":")
    if not colon:
        raise UsageError(f"'{cluster}' is no cluster", hint=f"write {', '.join(f'{k}:...' for k in EXECUTORS)}")
    found: AbstractContextManager[Executor] = EXECUTORS[kind](cluster, insecure=job.insecure_network)
    return found


def _name_workers(error: BudgetError, bound: int | None, stated: int | None) -> None:
    """Say so where it is the workers' limit that is too low: more ``--memory`` would change nothing."""
    if bound is not None and (stated is None or bound < stated):
        error.message += f"; a task may take {mib(bound)}, a share of its worker's memory limit for each thread"
        error.hint = f"start workers with a higher --memory-limit or fewer --nthreads; without workers: {error.hint}"


def task_limit(executor: Executor, stated: int | None) -> int:
    """Bytes a task may hold; the limits of this process hold too, where parts are joined."""
    return budget.memory_limit(executor.limit(stated))


class ThreadExecutor(InThisProcess):
    """On N threads of this process; see ``engine.executors.executor.Executor``."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        """Tasks that run at once, where no strip of another one has taken their core."""

    def map(
        self,
        task: Task,
        parts: Iterable[Part],
        shared: Sequence[Shared] = (),
        on_progress: OnProgress = ignore_progress,
    ) -> Generator[Result]:
        """Yield the results in the order of the parts; threads are ahead by a few parts at most. Raises what tasks
        raise.
        """
        found: dict[int, Result] = {}
        results = partial(task.results, shared=shared)
        with _Lanes(results, enumerate(parts), found.__setitem__, self.threads, AHEAD * self.threads) as lanes:
            for number in count():
                while True:
                    over = lanes.over  # asked first: a last result may come between two questions
                    if number in found:
                        break
                    if over:
                        return
                    lanes.wait()
                    check_time()
                    on_progress(lanes.done)
                yield found.pop(number)
                lanes.delivered()

    def reduce(
        self, task: Task, parts: Sequence[Part], joins: Joins, shared: Sequence[Shared], on_progress: OnProgress
    ) -> Result:
        """Return the results joined as siblings are there, and closed in the thread that calls. Raises what tasks
        raise.
        """
        tree = joins.tree_over(parts)
        missing = [(number, parts[number]) for number in tree.missing()]
        if len(missing) < 2:  # nothing to share out, and nobody to wait for
            return SerialExecutor().reduce(task, parts, joins._replace(tree=tree), shared, on_progress)

        results = partial(task.results, shared=shared)
        with _Lanes(results, missing, tree.add, min(self.threads, len(missing))) as lanes:
            while not lanes.over:
                lanes.wait()
                check_time()
                on_progress(len(parts) - len(missing) + lanes.done)
        on_progress(len(parts))
        return joins.closed(tree.result, shared)


def local_executor(threads: int) -> SerialExecutor | ThreadExecutor:
    """What makes the tasks of a job in this process."""
    return ThreadExecutor(threads) if threads > 1 else SerialExecutor()


class _Lanes:
    """Threads that take parts in their order and hand what they make of each to ``take(number, result)``.

    A thread waits with a result that is ``ahead`` of what was delivered: who has the lowest part never waits for others.
    """

    def __init__(
        self,
        results: Callable[[Iterator[Part]], Generator[Result]],
        numbered: Iterable[tuple[int, Part]],
        take: Callable[[int, Result], None],
        threads: int,
        ahead: float = float("inf"),
    ) -> None:
        """``results`` makes what comes of some parts, in their order."""
        self._results, self._take = results, take
        self._left, self._turn = iter(numbered), threading.Lock()
        self._wanted, self._ahead, self._delivered = threads, ahead, 0
        self._changed = threading.Condition()
        self._news: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        self._stop = False
        self._threads: list[threading.Thread] = []
        self._borrowed = 0
        self.done, self._taken, self._last = 0, 0, False
        """Parts whose results were taken in, parts that threads have taken, and whether there are no more."""

    def __enter__(self) -> Self:
        start_all(self._lanes(), self._join)
        return self

    def __exit__(self, *outcome: object) -> None:
        self._join()
        while outcome[0] is None and not self._news.empty():
            self.wait()

    def wait(self) -> None:
        """Wait for a result, not for long. Raises what went wrong in a thread."""
        try:
            error = self._news.get(timeout=POLL_SECONDS)
        except queue.Empty:
            return
        if error is not None:
            raise error

    @property
    def over(self) -> bool:
        """Whether what comes of all parts was taken in."""
        with self._changed:
            return self._last and self.done == self._taken

    def delivered(self) -> None:
        """Say that the next result in the order of the parts has gone its way."""
        with self._changed:
            self._delivered += 1
            self._changed.notify_all()

    def _lanes(self) -> Iterator[threading.Thread]:
        """One thread, and one more for each core that is idle."""
        self._borrowed = CORES.borrow(self._wanted - 1)
        for number in range(min(self._wanted, self._borrowed + 1)):
            self._threads.append(threading.Thread(target=self._work, name=f"streamsvm-lane-{number}", daemon=True))
            yield self._threads[-1]

    def _join(self) -> None:
        end_all(self._threads, self._end)
        CORES.give_back(self._borrowed)  # of lanes that did not come to be
        self._borrowed = 0

    def _end(self) -> None:
        """Let threads stop after what they are at."""
        with self._changed:
            self._stop = True
            self._changed.notify_all()

    def _work(self) -> None:
        mine: deque[int] = deque()
        try:
            with closing(self._results(self._parts(mine))) as results:
                for found in results:
                    self._hand_over(mine.popleft(), found)
        except BaseException as error:  # noqa: BLE001 (carried to the thread that waits, which raises it)
            self._end()
            self._news.put(error)
        finally:
            self._leave()

    def _hand_over(self, number: int, found: Result) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._stop or number < self._delivered + self._ahead)
        self._take(number, found)
        with self._changed:
            self.done += 1
        self._news.put(None)

    def _parts(self, mine: deque[int]) -> Iterator[Part]:
        """The parts one thread takes, as long as there are any; their numbers go to ``mine``."""
        while (taken := self._next()) is not None:
            mine.append(taken[0])
            yield taken[1]

    def _next(self) -> tuple[int, Part] | None:
        """The next part, which may be long in the making; None after the last."""
        with self._turn:
            if self._stop or self._last:
                return None
            taken = next(self._left, None)
            with self._changed:
                self._taken, self._last = self._taken + (taken is not None), taken is None
        if taken is None:
            self._news.put(None)  # who waits may have had the last result already
        return taken

    def _leave(self) -> None:
        """Give this thread's core to whoever has more to do; the one of the thread that waits stays taken."""
        with self._changed:
            given, self._borrowed = min(1, self._borrowed), max(0, self._borrowed - 1)
        CORES.give_back(given)
