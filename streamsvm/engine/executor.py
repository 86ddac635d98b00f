"""Executors: run the parts of a job one after the other or on threads (on a cluster: ``cluster.dask_executor``), with
bit-identical results.

Results are joined along a fixed binary tree over the numbers of the parts (``JoinTree``), or delivered in the order of
the parts. The result therefore does not depend on which thread or worker computed a part, or when.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial
from itertools import count
from typing import Any, NamedTuple, Protocol, Self, TypeAlias, TypeVar, runtime_checkable

from streamsvm.compute.threading import CORES, end_all, start_all
from streamsvm.engine.join_tree import JoinTree
from streamsvm.engine.time_limit import check_time

T = TypeVar("T")

POLL_SECONDS = 0.25
"""Seconds between two checks for a stop request while no result arrives."""
AHEAD = 2
"""Number of results per thread that may wait until the consumer takes them."""


Part: TypeAlias = Any
"""A part of a job: the first argument of the function of a ``Task``."""

Shared: TypeAlias = Any
"""A value that every task of a job gets, or a reference to it on a worker."""

Result: TypeAlias = Any
"""The return value of the function of a ``Task``. Executors never look into parts, shared values and results."""


@runtime_checkable
class PeakAware(Protocol):
    """A result that records the peak memory of its computation, as measured by the executor."""

    def with_peak(self, peak: int) -> Result:
        """Return the same result with the peak in bytes of the process that computed it."""
        ...


@runtime_checkable
class CopyingJoin(Protocol):
    """A join that copies its arguments instead of modifying them. For temporary results the copies are unnecessary."""

    def modifying_join(self, *shared: Shared) -> Callable[[Result, Result], Result]:
        """Return a join that may modify its arguments. ``shared``: the shared values of the tasks."""
        ...


class Task(NamedTuple):
    """The work on each part of a job: ``function(part, *shared)``, a module-level function."""

    phase: str
    """Name for users: fit, embed, ..."""
    function: Callable[..., Result]
    """The function, called with a part and the shared values. It is sent to workers by name."""
    needs: int = 0
    """Bytes of memory that it is expected to need, for the message if a worker runs out of memory."""
    each: Callable[..., Generator[Result]] | None = None
    """For tasks that read ahead across parts: ``each(parts, *shared)`` yields the results of several parts in order.
    None: ``function`` is called for each part."""

    def results(self, parts: Iterator[Part], shared: Sequence[Shared]) -> Generator[Result]:
        """Yield the results of the parts in order."""
        if self.each is not None:
            return self.each(parts, *shared)
        return (self.function(part, *shared) for part in parts)


class Joins(NamedTuple):
    """The functions that reduce results: ``join(left, right)`` for neighbors, then ``close(joined, *shared)``."""

    join: Callable[[Result, Result], Result]
    """Joins two neighboring results; on a cluster it must not modify them."""
    close: Callable[..., Result] | None = None
    """A module-level function that runs where the last join ran; None: the joined result is returned."""
    tree: JoinTree[Result] | None = None
    """The tree of an executor in this process, which may hold the results of some parts already; None: a new tree."""

    def tree_over(self, parts: Sequence[Part]) -> JoinTree[Result]:
        """Return the tree along which the results of these parts are joined."""
        return JoinTree(len(parts), self.join) if self.tree is None else self.tree

    def compute_span(self, task: Task, parts: Sequence[Part], shared: Sequence[Shared]) -> Result:
        """Compute the results of some neighboring parts and return them joined."""
        given: object = self.join
        join = given.modifying_join(*shared) if isinstance(given, CopyingJoin) else self.join
        tree = JoinTree(len(parts), join)
        with closing(task.results(iter(parts), shared)) as results:
            for number in range(len(parts)):
                tree.add(number, next(results))
        return tree.result

    def close_result(self, joined: Result, shared: Sequence[Shared]) -> Result:
        """Return what ``close`` makes of the joined result; without ``close``, the joined result itself."""
        return joined if self.close is None else self.close(joined, *shared)


OnProgress = Callable[[int], None]
"""Called from time to time while a job waits, with the number of finished parts. An exception from it ends the job."""


def ignore_progress(done: int) -> None:
    """Ignore progress."""


class Executor(Protocol):
    """Runs a task for each part of a job. Each part counts exactly once, even if workers fail. Raises ClusterError."""

    @property
    def threads(self) -> int:
        """Number of tasks that can run at the same time now."""
        ...

    def limit(self, stated: int | None) -> int | None:
        """Return the bytes of memory that a worker lets a task use, given the user's limit; None: there is no limit."""
        ...

    def share(self, value: Shared) -> Shared:
        """Return a reference to ``value``, so that it is sent to each worker once and not with each task. Tasks must
        not modify it.
        """
        ...

    def map(
        self,
        task: Task,
        parts: Iterable[Part],
        shared: Sequence[Shared] = (),
        on_progress: OnProgress = ignore_progress,
    ) -> Generator[Result]:
        """Yield the results in the order of the parts. Executors in this process take a part from ``parts`` when they
        need it.
        """
        ...

    def reduce(
        self, task: Task, parts: Sequence[Part], joins: Joins, shared: Sequence[Shared], on_progress: OnProgress
    ) -> Result:
        """Return the results joined along ``JoinTree`` and closed."""
        ...


class InThisProcess:
    """Base class of executors whose tasks run in this process."""

    def limit(self, stated: int | None) -> int | None:
        """Return the user's limit: the plan counts all memory of this process."""
        return stated

    def share(self, value: Shared) -> Shared:
        """Return the value itself."""
        return value


class SerialExecutor(InThisProcess):
    """Runs parts one after the other in this process. A cluster returns the same result to the last bit."""

    threads = 1

    def map(
        self,
        task: Task,
        parts: Iterable[Part],
        shared: Sequence[Shared] = (),
        on_progress: OnProgress = ignore_progress,
    ) -> Generator[Result]:
        """Yield the result of each part, one after the other."""
        with closing(task.results(iter(parts), shared)) as results:
            for done, result in enumerate(results, 1):
                yield result
                check_time()
                on_progress(done)

    def reduce(
        self, task: Task, parts: Sequence[Part], joins: Joins, shared: Sequence[Shared], on_progress: OnProgress
    ) -> Result:
        """Return the results joined along the tree and closed."""
        tree = joins.tree_over(parts)
        missing = tree.missing()
        with closing(task.results((parts[number] for number in missing), shared)) as results:
            for done, number in enumerate(missing, len(parts) - len(missing) + 1):
                tree.add(number, next(results))
                check_time()
                on_progress(done)
        return joins.close_result(tree.result, shared)


class ThreadExecutor(InThisProcess):
    """Runs parts on N threads of this process."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        """Number of tasks that run at the same time, if no other task has borrowed cores (``compute.threading``)."""

    def map(
        self,
        task: Task,
        parts: Iterable[Part],
        shared: Sequence[Shared] = (),
        on_progress: OnProgress = ignore_progress,
    ) -> Generator[Result]:
        """Yield the results in the order of the parts; threads work a few parts ahead. Raises what tasks raise."""
        finished: dict[int, Result] = {}
        results = partial(task.results, shared=shared)
        with PartThreads(results, enumerate(parts), finished.__setitem__, self.threads, AHEAD * self.threads) as pool:
            for number in count():
                while True:
                    is_finished = pool.is_finished  # read before the lookup: the last result may arrive between the two
                    if number in finished:
                        break
                    if is_finished:
                        return
                    pool.wait()
                    check_time()
                    on_progress(pool.done)
                yield finished.pop(number)
                pool.count_delivered()

    def reduce(
        self, task: Task, parts: Sequence[Part], joins: Joins, shared: Sequence[Shared], on_progress: OnProgress
    ) -> Result:
        """Return the results joined along the tree, and closed in the calling thread. Raises what tasks raise."""
        tree = joins.tree_over(parts)
        missing = [(number, parts[number]) for number in tree.missing()]
        if len(missing) < 2:  # threads would not help
            return SerialExecutor().reduce(task, parts, joins._replace(tree=tree), shared, on_progress)

        results = partial(task.results, shared=shared)
        with PartThreads(results, missing, tree.add, min(self.threads, len(missing))) as pool:
            while not pool.is_finished:
                pool.wait()
                check_time()
                on_progress(len(parts) - len(missing) + pool.done)
        on_progress(len(parts))
        return joins.close_result(tree.result, shared)


def local_executor(threads: int) -> SerialExecutor | ThreadExecutor:
    """Return the executor for a number of threads of this process."""
    return ThreadExecutor(threads) if threads > 1 else SerialExecutor()


class PartThreads:
    """Threads that take parts in order and pass each result to ``consume(number, result)``.

    A thread with result ``number`` waits until ``number`` is less than ``ahead`` plus the number of delivered results.
    The thread with the lowest part therefore never waits for another.
    """

    def __init__(
        self,
        results: Callable[[Iterator[Part]], Generator[Result]],
        numbered: Iterable[tuple[int, Part]],
        consume: Callable[[int, Result], None],
        threads: int,
        ahead: float = float("inf"),
    ) -> None:
        """``results`` yields the results of some parts in order; ``numbered``: the parts with their numbers."""
        self._results, self._consume = results, consume
        self._remaining, self._remaining_lock = iter(numbered), threading.Lock()
        self._wanted, self._ahead, self._delivered = threads, ahead, 0
        self._changed = threading.Condition()
        self._events: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        """An error of a thread, or None when a result was consumed or no part is left."""
        self._stop = False
        self._threads: list[threading.Thread] = []
        self._borrowed = 0
        self.done, self._started, self._exhausted = 0, 0, False
        """Number of results consumed, number of parts given to threads, and whether no part is left."""

    def __enter__(self) -> Self:
        start_all(self._create_threads(), self._join)
        return self

    def __exit__(self, *outcome: object) -> None:
        self._join()
        while outcome[0] is None and not self._events.empty():
            self.wait()

    def wait(self) -> None:
        """Wait for a result for at most POLL_SECONDS. Raises an error of a thread."""
        try:
            error = self._events.get(timeout=POLL_SECONDS)
        except queue.Empty:
            return
        if error is not None:
            raise error

    @property
    def is_finished(self) -> bool:
        """Whether the results of all parts were consumed."""
        with self._changed:
            return self._exhausted and self.done == self._started

    def count_delivered(self) -> None:
        """Count the delivery of the next result in order."""
        with self._changed:
            self._delivered += 1
            self._changed.notify_all()

    def _create_threads(self) -> Iterator[threading.Thread]:
        """Yield one thread, and one more for each idle core, up to the number wanted."""
        self._borrowed = CORES.borrow(self._wanted - 1)
        for number in range(min(self._wanted, self._borrowed + 1)):
            self._threads.append(threading.Thread(target=self._work, name=f"streamsvm-lane-{number}", daemon=True))
            yield self._threads[-1]

    def _join(self) -> None:
        end_all(self._threads, self._end)
        CORES.give_back(self._borrowed)  # those of threads that were never started
        self._borrowed = 0

    def _end(self) -> None:
        """Ask threads to stop after their current part."""
        with self._changed:
            self._stop = True
            self._changed.notify_all()

    def _work(self) -> None:
        numbers: deque[int] = deque()
        try:
            with closing(self._results(self._parts(numbers))) as results:
                for result in results:
                    self._hand_over(numbers.popleft(), result)
        except BaseException as error:  # noqa: BLE001 (raised again by the thread that waits)
            self._end()
            self._events.put(error)
        finally:
            self._return_core()

    def _hand_over(self, number: int, result: Result) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._stop or number < self._delivered + self._ahead)
        self._consume(number, result)
        with self._changed:
            self.done += 1
        self._events.put(None)

    def _parts(self, numbers: deque[int]) -> Iterator[Part]:
        """Yield the parts that one thread takes; append their numbers to ``numbers``."""
        while (taken := self._next()) is not None:
            numbers.append(taken[0])
            yield taken[1]

    def _next(self) -> tuple[int, Part] | None:
        """Return the next part and its number, which may take long to produce; None after the last part."""
        with self._remaining_lock:
            if self._stop or self._exhausted:
                return None
            taken = next(self._remaining, None)
            with self._changed:
                self._started, self._exhausted = self._started + (taken is not None), taken is None
        if taken is None:
            self._events.put(None)  # wakes the waiting thread, which may have the last result already
        return taken

    def _return_core(self) -> None:
        """Give the core of this thread back, except the one core that belongs to the waiting thread."""
        with self._changed:
            given, self._borrowed = min(1, self._borrowed), max(0, self._borrowed - 1)
        CORES.give_back(given)
