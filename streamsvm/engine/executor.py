"""Executors: the parts of a job run one after the other, on threads, or on a cluster, with the same result to the last bit.

Results are joined along a fixed binary tree over the numbers of the parts (``JoinTree``), or handed over in the order of the parts. Which
thread or worker computed a part, and when, therefore shows in no result.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from functools import partial
from itertools import count
from typing import Any, NamedTuple, Protocol, Self, TypeAlias, TypeVar, runtime_checkable

from streamsvm.compute.threading import CORES, end_all, start_all
from streamsvm.config.units import mib
from streamsvm.engine.join_tree import JoinTree
from streamsvm.engine.signals import check_time
from streamsvm.errors import BudgetError, UsageError
from streamsvm.registry import Registry
from streamsvm.schedule import budget

T = TypeVar("T")

EXECUTORS = Registry(
    "cluster",
    {
        "tcp": "streamsvm.cluster:connect_cluster",
        "tls": "streamsvm.cluster:connect_cluster",
        "scheduler-file": "streamsvm.cluster:connect_cluster",
        "local": "streamsvm.cluster:connect_cluster",
        "client": "streamsvm.cluster.connection:of_program",
        "here": "streamsvm.engine.executor:here",
    },
)
POLL_SECONDS = 0.25
"""Seconds between two checks for a stop request while no result arrives."""
AHEAD = 2
"""Number of parts for each thread that may be finished before the consumer takes them."""


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
class CarefulJoin(Protocol):
    """A join that does not modify its arguments, which costs copies that are unnecessary for temporary results."""

    def modifying_join(self, *shared: Shared) -> Callable[[Result, Result], Result]:
        """Return the join that may modify its arguments. ``shared``: the shared values of the tasks."""
        ...


class Task(NamedTuple):
    """The work on each part of a job: ``function(part, *shared)``, a module-level function."""

    phase: str
    """Name for users: fit, embed, ..."""
    function: Callable[..., Result]
    """The function, called with a part and the shared values; it is sent by name."""
    needs: int = 0
    """Bytes that it is expected to hold, for the message if a worker runs out of memory."""
    each: Callable[..., Generator[Result]] | None = None
    """``each(parts, *shared)`` yields the results of several parts in order, for tasks that read ahead across parts. None: ``function``
    is called for each part."""

    def results(self, parts: Iterator[Part], shared: Sequence[Shared]) -> Generator[Result]:
        """Yield the results of the parts in order."""
        if self.each is not None:
            return self.each(parts, *shared)
        return (self.function(part, *shared) for part in parts)


class Joins(NamedTuple):
    """How results are reduced: ``join(one, other)``, then ``close(joined, *shared)``."""

    join: Callable[[Result, Result], Result]
    """Joins two neighboring results; on a cluster it must not modify them."""
    close: Callable[..., Result] | None = None
    """A module-level function, which runs where the last join ran; None: the joined result is returned."""
    tree: JoinTree[Result] | None = None
    """The tree in this process, with results that are known already; None: a new one."""

    def tree_over(self, parts: Sequence[Part]) -> JoinTree[Result]:
        """Return the tree along which the results of these parts are joined."""
        return JoinTree(len(parts), self.join) if self.tree is None else self.tree

    def of_span(self, task: Task, parts: Sequence[Part], shared: Sequence[Shared]) -> Result:
        """Compute the results of some neighboring parts and return them joined."""
        made: object = self.join
        join = made.modifying_join(*shared) if isinstance(made, CarefulJoin) else self.join
        tree = JoinTree(len(parts), join)
        with closing(task.results(iter(parts), shared)) as found:
            for number in range(len(parts)):
                tree.add(number, next(found))
        return tree.result

    def close_result(self, found: Result, shared: Sequence[Shared]) -> Result:
        """Return the closed result."""
        return found if self.close is None else self.close(found, *shared)


OnProgress = Callable[[int], None]
"""Called with the number of finished parts, now and then while a job waits. An exception ends the job."""


def ignore_progress(done: int) -> None:
    """Ignore progress."""


class Executor(Protocol):
    """Runs tasks over parts. Each part counts exactly once, whatever happens to workers. Raises ClusterError."""

    @property
    def threads(self) -> int:
        """Number of tasks that run at once, at present."""
        ...

    def limit(self, stated: int | None) -> int | None:
        """Return the bytes that a task may hold, given the user's limit."""
        ...

    def share(self, value: Shared) -> Shared:
        """Return a reference to a value that is sent once to each worker instead of with each task. Tasks must not modify it."""
        ...

    def map(
        self,
        task: Task,
        parts: Iterable[Part],
        shared: Sequence[Shared] = (),
        on_progress: OnProgress = ignore_progress,
    ) -> Generator[Result]:
        """Yield the results in the order of the parts. In this process parts are taken when they are needed."""
        ...

    def reduce(
        self, task: Task, parts: Sequence[Part], joins: Joins, shared: Sequence[Shared], on_progress: OnProgress
    ) -> Result:
        """Return the results joined along ``JoinTree`` and closed."""
        ...


class InThisProcess:
    """Base class of executors whose tasks run in this process."""

    def limit(self, stated: int | None) -> int | None:
        """Return the user's limit: the plan counts everything in this process."""
        return stated

    def share(self, value: Shared) -> Shared:
        """Return the value itself."""
        return value


class SerialExecutor(InThisProcess):
    """Runs parts one after the other in this process. A cluster returns the same result to the last bit."""

    threads = 1
    """One task at a time."""

    def map(
        self,
        task: Task,
        parts: Iterable[Part],
        shared: Sequence[Shared] = (),
        on_progress: OnProgress = ignore_progress,
    ) -> Generator[Result]:
        """Yield the result of each part, one after the other."""
        with closing(task.results(iter(parts), shared)) as found:
            for done, result in enumerate(found, 1):
                yield result
                check_time()
                on_progress(done)

    def reduce(
        self, task: Task, parts: Sequence[Part], joins: Joins, shared: Sequence[Shared], on_progress: OnProgress
    ) -> Result:
        """Return the results joined in order and closed."""
        tree = joins.tree_over(parts)
        missing = tree.missing()
        with closing(task.results((parts[number] for number in missing), shared)) as found:
            for done, number in enumerate(missing, len(parts) - len(missing) + 1):
                tree.add(number, next(found))
                check_time()
                on_progress(done)
        return joins.close_result(tree.result, shared)


@contextmanager
def here(address: str, *, insecure: bool = False) -> Iterator[Executor]:
    """Yield the serial executor, for cluster='here:...'."""
    del address, insecure
    yield SerialExecutor()


class ClusterJob(Protocol):
    """A job that can run on a cluster."""

    @property
    def cluster(self) -> str | None:
        """The address of the cluster; None to run in this process."""
        ...

    @property
    def insecure_network(self) -> bool:
        """Whether a connection without TLS is allowed."""
        ...

    @property
    def memory(self) -> int | None:
        """The memory limit in bytes; None if the user states none."""
        ...


@contextmanager
def executor_for(job: ClusterJob, given: Executor | None = None) -> Iterator[Executor | None]:
    """Yield ``given``, else the executor of the job's cluster, else None. Raises UsageError, ClusterError."""
    if given is None and job.cluster is None:
        yield None
        return
    with nullcontext(given) if job.cluster is None or given is not None else _connect(job, job.cluster) as executor:
        assert executor is not None
        try:
            yield executor
        except BudgetError as error:
            _name_workers(error, executor.limit(None), job.memory)
            raise


def _connect(job: ClusterJob, cluster: str) -> AbstractContextManager[Executor]:
    kind, colon, _ = cluster.partition(":")
    if not colon:
        raise UsageError(f"'{cluster}' is no cluster", hint=f"write {', '.join(f'{k}:...' for k in EXECUTORS)}")
    found: AbstractContextManager[Executor] = EXECUTORS[kind](cluster, insecure=job.insecure_network)
    return found


def _name_workers(error: BudgetError, bound: int | None, stated: int | None) -> None:
    """Change the message if the limit of the workers is too low, because a higher ``--memory`` would not help."""
    if bound is not None and (stated is None or bound < stated):
        error.message += f"; a task may take {mib(bound)}, a share of its worker's memory limit for each thread"
        error.hint = f"start workers with a higher --memory-limit or fewer --nthreads; without workers: {error.hint}"


def task_limit(executor: Executor, stated: int | None) -> int:
    """Return the bytes that a task may hold, bounded also by the limits of this process, which joins parts."""
    return budget.memory_limit(executor.limit(stated))


class ThreadExecutor(InThisProcess):
    """Runs parts on N threads of this process."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        """Number of tasks that run at once, unless cores are lent to strips of other tasks."""

    def map(
        self,
        task: Task,
        parts: Iterable[Part],
        shared: Sequence[Shared] = (),
        on_progress: OnProgress = ignore_progress,
    ) -> Generator[Result]:
        """Yield the results in the order of the parts; threads work at most a few parts ahead. Raises what tasks raise."""
        found: dict[int, Result] = {}
        results = partial(task.results, shared=shared)
        with Lanes(results, enumerate(parts), found.__setitem__, self.threads, AHEAD * self.threads) as lanes:
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
                lanes.count_delivered()

    def reduce(
        self, task: Task, parts: Sequence[Part], joins: Joins, shared: Sequence[Shared], on_progress: OnProgress
    ) -> Result:
        """Return the results joined as siblings arrive, and closed in the calling thread. Raises what tasks raise."""
        tree = joins.tree_over(parts)
        missing = [(number, parts[number]) for number in tree.missing()]
        if len(missing) < 2:  # nothing to share out, and nobody to wait for
            return SerialExecutor().reduce(task, parts, joins._replace(tree=tree), shared, on_progress)

        results = partial(task.results, shared=shared)
        with Lanes(results, missing, tree.add, min(self.threads, len(missing))) as lanes:
            while not lanes.over:
                lanes.wait()
                check_time()
                on_progress(len(parts) - len(missing) + lanes.done)
        on_progress(len(parts))
        return joins.close_result(tree.result, shared)


def local_executor(threads: int) -> SerialExecutor | ThreadExecutor:
    """Return the executor for a number of threads of this process."""
    return ThreadExecutor(threads) if threads > 1 else SerialExecutor()


class Lanes:
    """Threads that take parts in order and pass each result to ``take(number, result)``.

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
        """``results`` yields the results of some parts in order."""
        self._results, self._take = results, take
        self._left, self._turn = iter(numbered), threading.Lock()
        self._wanted, self._ahead, self._delivered = threads, ahead, 0
        self._changed = threading.Condition()
        self._news: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        self._stop = False
        self._threads: list[threading.Thread] = []
        self._borrowed = 0
        self.done, self._taken, self._last = 0, 0, False
        """Number of results taken, number of parts handed to threads, and whether there are no more parts."""

    def __enter__(self) -> Self:
        start_all(self._lanes(), self._join)
        return self

    def __exit__(self, *outcome: object) -> None:
        self._join()
        while outcome[0] is None and not self._news.empty():
            self.wait()

    def wait(self) -> None:
        """Wait for a result for at most POLL_SECONDS. Raises an error of a thread."""
        try:
            error = self._news.get(timeout=POLL_SECONDS)
        except queue.Empty:
            return
        if error is not None:
            raise error

    @property
    def over(self) -> bool:
        """Whether the results of all parts were taken."""
        with self._changed:
            return self._last and self.done == self._taken

    def count_delivered(self) -> None:
        """Note that the next result in order was delivered."""
        with self._changed:
            self._delivered += 1
            self._changed.notify_all()

    def _lanes(self) -> Iterator[threading.Thread]:
        """Yield one thread, and one more for each idle core."""
        self._borrowed = CORES.borrow(self._wanted - 1)
        for number in range(min(self._wanted, self._borrowed + 1)):
            self._threads.append(threading.Thread(target=self._work, name=f"streamsvm-lane-{number}", daemon=True))
            yield self._threads[-1]

    def _join(self) -> None:
        end_all(self._threads, self._end)
        CORES.give_back(self._borrowed)  # of lanes that did not come to be
        self._borrowed = 0

    def _end(self) -> None:
        """Ask threads to stop after their current part."""
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
        """Yield the parts that one thread takes; their numbers are appended to ``mine``."""
        while (taken := self._next()) is not None:
            mine.append(taken[0])
            yield taken[1]

    def _next(self) -> tuple[int, Part] | None:
        """Return the next part, which may take long to produce; None after the last."""
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
        """Release this thread's core for others; the core of the waiting thread stays taken."""
        with self._changed:
            given, self._borrowed = min(1, self._borrowed), max(0, self._borrowed - 1)
        CORES.give_back(given)
