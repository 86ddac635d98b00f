"""Run the parts of a job in this process, one after the other or on threads; or on the cluster that --cluster names
(tcp:, tls:, local:, ...), with ``cluster.dask_executor``. The results are the same to the last bit.

Results are joined along a fixed binary tree over the numbers of the parts (``JoinTree``), or delivered in the order of
the parts. The result therefore does not depend on which thread or worker computed a part, or when.
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
from streamsvm.engine.time_limit import check_time
from streamsvm.errors import BudgetError, UsageError
from streamsvm.registry import Registry

T = TypeVar("T")

POLL_SECONDS = 0.25
"""Seconds between two checks for a stop request while no result arrives."""
RESULTS_AHEAD_PER_THREAD = 2
"""Number of results per thread that may wait until the consumer takes them."""


Part: TypeAlias = Any
"""A part of a job: the first argument of the function of a ``Task``."""

SharedValue: TypeAlias = Any
"""A value that is passed with each part of a job, or a reference to it on a worker."""

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
    """A join that copies its arguments instead of modifying them. Where both results are temporary, the executor calls
    ``modifying_join`` to avoid the copies.
    """

    def modifying_join(self, *shared: SharedValue) -> Callable[[Result, Result], Result]:
        """Return a join that may modify its arguments. ``shared``: the shared values of the job."""
        ...


class Task(NamedTuple):
    """The work on each part of a job: ``function(part, *shared)``, a module-level function."""

    phase: str
    """Name for users: fit, embed, ..."""
    function: Callable[..., Result]
    """The function, called with a part and the shared values. It is sent to workers by name."""
    memory_bytes: int = 0
    """Expected memory for one part, in bytes, for the message if a worker runs out of memory; 0: unknown."""
    function_of_parts: Callable[..., Generator[Result]] | None = None
    """For tasks that read ahead across parts: ``function_of_parts(parts, *shared)`` yields the results of several parts
    in order. None: ``function`` is called for each part."""

    def results(self, parts: Iterator[Part], shared: Sequence[SharedValue]) -> Generator[Result]:
        """Yield the results of the parts in order."""
        if self.function_of_parts is not None:
            return self.function_of_parts(parts, *shared)
        return (self.function(part, *shared) for part in parts)


class Joins(NamedTuple):
    """The functions that reduce results: ``join(left, right)`` for neighbors, then ``finish(joined, *shared)``."""

    join: Callable[[Result, Result], Result]
    """Joins two neighboring results; on a cluster it must not modify them."""
    finish: Callable[..., Result] | None = None
    """A module-level function that runs where the last join ran; None: the joined result is returned."""
    tree: JoinTree[Result] | None = None
    """A tree that contains the results of some parts already, for executors in this process; None: a new tree."""

    def tree_over(self, parts: Sequence[Part]) -> JoinTree[Result]:
        """Return the tree along which the results of these parts are joined."""
        return JoinTree(len(parts), self.join) if self.tree is None else self.tree

    def compute_span(self, task: Task, parts: Sequence[Part], shared: Sequence[SharedValue]) -> Result:
        """Compute the results of some neighboring parts and return them joined."""
        join: object = self.join  # typed as an object, because mypy would call the test below always false
        tree = JoinTree(len(parts), join.modifying_join(*shared) if isinstance(join, CopyingJoin) else self.join)
        with closing(task.results(iter(parts), shared)) as results:
            for number in range(len(parts)):
                tree.add(number, next(results))
        return tree.result

    def finish_result(self, joined: Result, shared: Sequence[SharedValue]) -> Result:
        """Return what ``finish`` returns for the joined result; without ``finish``, the joined result itself."""
        return joined if self.finish is None else self.finish(joined, *shared)


OnProgress = Callable[[int], None]
"""Called from time to time while a job waits, with the number of finished parts. An exception from it ends the job."""


def ignore_progress(done: int) -> None:
    """Ignore progress."""


class Executor(Protocol):
    """Runs a task for each part of a job. Each part counts exactly once, even if workers fail. Raises ClusterError."""

    @property
    def threads(self) -> int:
        """Number of parts that can be computed at the same time now."""
        ...

    def memory_limit(self, user_limit: int | None) -> int | None:
        """Return the memory in bytes that a task may use on a worker, given the user's limit; None: there is no limit."""
        ...

    def share(self, value: SharedValue) -> SharedValue:
        """Return a reference to ``value``, so that it is sent to each worker once and not with each part. Tasks must
        not modify it.
        """
        ...

    def map(
        self,
        task: Task,
        parts: Iterable[Part],
        shared: Sequence[SharedValue] = (),
        on_progress: OnProgress = ignore_progress,
    ) -> Generator[Result]:
        """Yield the results in the order of the parts. Executors in this process take a part from ``parts`` when they
        need it.
        """
        ...

    def reduce(
        self, task: Task, parts: Sequence[Part], joins: Joins, shared: Sequence[SharedValue], on_progress: OnProgress
    ) -> Result:
        """Return the one result that joining along ``JoinTree`` and then ``joins.finish`` yield."""
        ...


class InProcessExecutor:
    """Base class of executors whose tasks run in this process."""

    def memory_limit(self, user_limit: int | None) -> int | None:
        """Return the user's limit unchanged, because the memory plan of the job covers this whole process."""
        return user_limit

    def share(self, value: SharedValue) -> SharedValue:
        """Return the value itself."""
        return value


class SerialExecutor(InProcessExecutor):
    """Runs parts one after the other in this process. A cluster returns the same result to the last bit."""

    threads = 1

    def map(
        self,
        task: Task,
        parts: Iterable[Part],
        shared: Sequence[SharedValue] = (),
        on_progress: OnProgress = ignore_progress,
    ) -> Generator[Result]:
        """Yield the result of each part, one after the other."""
        with closing(task.results(iter(parts), shared)) as results:
            for done, result in enumerate(results, 1):
                yield result
                check_time()
                on_progress(done)

    def reduce(
        self, task: Task, parts: Sequence[Part], joins: Joins, shared: Sequence[SharedValue], on_progress: OnProgress
    ) -> Result:
        """Return the one result that joining along the tree and then ``joins.finish`` yield."""
        tree = joins.tree_over(parts)
        missing = tree.missing()
        with closing(task.results((parts[number] for number in missing), shared)) as results:
            for done, number in enumerate(missing, len(parts) - len(missing) + 1):
                tree.add(number, next(results))
                check_time()
                on_progress(done)
        return joins.finish_result(tree.result, shared)


class ThreadExecutor(InProcessExecutor):
    """Runs parts on N threads of this process."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        """Number of parts that are computed at the same time, unless other work has borrowed the cores
        (``compute.threading``)."""

    def map(
        self,
        task: Task,
        parts: Iterable[Part],
        shared: Sequence[SharedValue] = (),
        on_progress: OnProgress = ignore_progress,
    ) -> Generator[Result]:
        """Yield the results in the order of the parts; threads work a few parts ahead. Raises what tasks raise."""
        finished: dict[int, Result] = {}
        compute = partial(task.results, shared=shared)
        with PartThreads(
            compute, enumerate(parts), finished.__setitem__, self.threads, RESULTS_AHEAD_PER_THREAD * self.threads
        ) as pool:
            for number in count():
                while True:
                    is_finished = pool.is_finished  # read before the lookup: the last result may arrive between the two
                    if number in finished:
                        break
                    if is_finished:
                        return
                    pool.wait()
                    check_time()
                    on_progress(pool.consumed_count)
                yield finished.pop(number)
                pool.count_delivered()

    def reduce(
        self, task: Task, parts: Sequence[Part], joins: Joins, shared: Sequence[SharedValue], on_progress: OnProgress
    ) -> Result:
        """Return the one result that joining along the tree, and then ``joins.finish`` in the calling thread, yield.
        Raises what tasks raise.
        """
        tree = joins.tree_over(parts)
        missing = [(number, parts[number]) for number in tree.missing()]
        if len(missing) < 2:  # threads would not help
            return SerialExecutor().reduce(task, parts, joins._replace(tree=tree), shared, on_progress)

        compute = partial(task.results, shared=shared)
        with PartThreads(compute, missing, tree.add, min(self.threads, len(missing))) as pool:
            while not pool.is_finished:
                pool.wait()
                check_time()
                on_progress(len(parts) - len(missing) + pool.consumed_count)
        on_progress(len(parts))
        return joins.finish_result(tree.result, shared)


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
        compute: Callable[[Iterator[Part]], Generator[Result]],
        numbered_parts: Iterable[tuple[int, Part]],
        consume: Callable[[int, Result], None],
        threads: int,
        ahead: float = float("inf"),
    ) -> None:
        """``compute`` yields the results of some parts in order; ``numbered_parts``: the parts with their numbers."""
        self._compute, self._consume = compute, consume
        self._remaining, self._remaining_lock = iter(numbered_parts), threading.Lock()
        self._wanted_threads, self._max_ahead, self._delivered_count = threads, ahead, 0
        self._changed = threading.Condition()
        self._events: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        """An error of a thread, or None when a result was consumed or no part is left."""
        self._stop = False
        self._threads: list[threading.Thread] = []
        self._borrowed_cores = 0
        self.consumed_count = 0
        """Number of results that were consumed."""
        self._started_count = 0
        """Number of parts that threads have taken."""
        self._exhausted = False
        """Whether no part is left."""

    def __enter__(self) -> Self:
        start_all(self._create_threads(), self._end_threads)
        return self

    def __exit__(self, *outcome: object) -> None:
        self._end_threads()
        if outcome[0] is None:
            self._raise_pending_error()

    def _raise_pending_error(self) -> None:
        """Raise the error of a thread that ended after the last call of ``wait``, if there is one."""
        while not self._events.empty():
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
            return self._exhausted and self.consumed_count == self._started_count

    def count_delivered(self) -> None:
        """Count the delivery of the next result in order."""
        with self._changed:
            self._delivered_count += 1
            self._changed.notify_all()

    def _create_threads(self) -> Iterator[threading.Thread]:
        """Yield one thread, and one more for each idle core, up to the number wanted."""
        self._borrowed_cores = CORES.borrow(self._wanted_threads - 1)
        for number in range(min(self._wanted_threads, self._borrowed_cores + 1)):
            self._threads.append(threading.Thread(target=self._work, name=f"streamsvm-lane-{number}", daemon=True))
            yield self._threads[-1]

    def _end_threads(self) -> None:
        end_all(self._threads, self._request_stop)
        CORES.give_back(self._borrowed_cores)  # cores borrowed for threads that never started
        self._borrowed_cores = 0

    def _request_stop(self) -> None:
        """Ask threads to stop after their current part."""
        with self._changed:
            self._stop = True
            self._changed.notify_all()

    def _work(self) -> None:
        numbers: deque[int] = deque()
        try:
            with closing(self._compute(self._take_parts(numbers))) as results:
                for result in results:
                    self._hand_over(numbers.popleft(), result)
        except BaseException as error:  # noqa: BLE001 (raised again by the thread that waits)
            self._request_stop()
            self._events.put(error)
        finally:
            self._return_core()

    def _hand_over(self, number: int, result: Result) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._stop or number < self._delivered_count + self._max_ahead)
        self._consume(number, result)
        with self._changed:
            self.consumed_count += 1
        self._events.put(None)

    def _take_parts(self, numbers: deque[int]) -> Iterator[Part]:
        """Yield the parts that one thread takes; append their numbers to ``numbers``."""
        while (numbered_part := self._take_next()) is not None:
            numbers.append(numbered_part[0])
            yield numbered_part[1]

    def _take_next(self) -> tuple[int, Part] | None:
        """Return the next part and its number, which may take long to produce; None after the last part."""
        with self._remaining_lock:
            if self._stop or self._exhausted:
                return None
            numbered_part = next(self._remaining, None)
            with self._changed:
                self._started_count += numbered_part is not None
                self._exhausted = numbered_part is None
        if numbered_part is None:
            self._events.put(None)  # wakes the waiting thread, which may have the last result already
        return numbered_part

    def _return_core(self) -> None:
        """Give back one borrowed core, if any is left: the last thread to end used the core of the waiting thread."""
        with self._changed:
            returned, self._borrowed_cores = min(1, self._borrowed_cores), max(0, self._borrowed_cores - 1)
        CORES.give_back(returned)


EXECUTORS = Registry(
    "cluster",
    {
        "tcp": "streamsvm.cluster:connect_cluster",
        "tls": "streamsvm.cluster:connect_cluster",
        "scheduler-file": "streamsvm.cluster:connect_cluster",
        "local": "streamsvm.cluster:connect_cluster",
        "client": "streamsvm.cluster.connection:executor_of_program",
        "here": "streamsvm.engine.executor:connect_here",
    },
)


@contextmanager
def connect_here(address: str, *, insecure: bool = False) -> Iterator[Executor]:
    """Yield the serial executor, for cluster='here:...'."""
    del address, insecure
    yield SerialExecutor()


class ClusterJob(Protocol):
    """A job that can run on a cluster."""

    @property
    def cluster(self) -> str | None:
        """The address of the cluster; None: run in this process."""
        ...

    @property
    def insecure_network(self) -> bool:
        """Whether a connection without TLS is allowed."""
        ...

    @property
    def memory(self) -> int | None:
        """The user's memory limit in bytes; None: the user gave none."""
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
            _explain_worker_limit(error, executor.memory_limit(None), job.memory)
            raise


def _connect(job: ClusterJob, cluster: str) -> AbstractContextManager[Executor]:
    kind, colon, _ = cluster.partition(":")
    if not colon:
        raise UsageError(f"'{cluster}' is no cluster", hint=f"write {', '.join(f'{k}:...' for k in EXECUTORS)}")
    connection: AbstractContextManager[Executor] = EXECUTORS[kind](cluster, insecure=job.insecure_network)
    return connection


def _explain_worker_limit(error: BudgetError, worker_limit: int | None, user_limit: int | None) -> None:
    """If the workers' memory limit is the lower one, say so in the message: a higher ``--memory`` would not help."""
    if worker_limit is not None and (user_limit is None or worker_limit < user_limit):
        error.message += f"; a task may take {mib(worker_limit)}: its share of the memory limit of its worker"
        error.hint = f"start workers with a higher --memory-limit or fewer --nthreads; without workers: {error.hint}"
