"""Run the parts of a job as tasks of a Dask cluster, fetch their results, and handle lost workers and schedulers.

Everything that a task needs is in the graph or on disk. Shared values are tasks themselves, so that everything that is
lost with a worker can be computed again. Each part is a task with a unique key; the scheduler may run it several
times, but its result is used once. A job does not wait for ever: if there is no scheduler, or no live worker for
``patience`` seconds, it ends with an error that says what to do.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import CancelledError
from functools import partial
from typing import Any
from uuid import uuid4

import dask
from dask.sizeof import sizeof
from distributed import Client, Future, wait
from distributed.scheduler import KilledWorker
from threadpoolctl import threadpool_limits

from streamsvm import __version__
from streamsvm.compute import freed_memory, threading
from streamsvm.config.units import mib
from streamsvm.engine.executor import Joins, OnProgress, Part, PeakAware, Result, SharedValue, Task, ignore_progress
from streamsvm.engine.group_tasks import PartialResult
from streamsvm.engine.join_tree import spans_of, tree_reduce
from streamsvm.engine.state_transfer import state_bytes
from streamsvm.engine.time_limit import check_time
from streamsvm.errors import ClusterError, MissingError, StreamSVMError
from streamsvm.schedule.machine import PeakWatch
from streamsvm.type_aliases import JsonMapping

PATIENCE = 60.0
"""Seconds without a worker, or without a heartbeat of a worker that has tasks, after which a job ends."""
IDENTITY_SECONDS = 5.0
"""Seconds that a check of the cluster waits for the scheduler's answer."""
LOST_SECONDS = 20.0
"""Seconds without an answer after which a scheduler counts as lost."""
CHECK_SECONDS = 2.0
"""Seconds between two checks of the cluster."""
CLOSED_STATES = ("closed", "closing")


def list_workers(client: Client, timeout: float = IDENTITY_SECONDS) -> JsonMapping:
    """Return the scheduler's information about its workers, by address. Raises OSError, TimeoutError."""
    if client.scheduler is None:
        raise OSError("the client is closed")
    identity = client.sync(client.scheduler.identity, n_workers=-1, callback_timeout=timeout)
    workers: JsonMapping = identity["workers"]
    return workers


class WorkerWatch:
    """Checks the cluster every few seconds while a job waits."""

    def __init__(self, client: Client, patience: float = PATIENCE) -> None:
        self._client, self._patience = client, patience
        self._last_answer = self._last_alive = self._last_check = time.monotonic()

    def check(self) -> None:
        """Raise ClusterError if the scheduler is lost, or if no worker has been alive for ``patience`` seconds."""
        now = time.monotonic()
        if now - self._last_check < CHECK_SECONDS:
            return
        self._last_check = now
        if self._client.status in CLOSED_STATES:
            raise error_of_lost_scheduler(self._client)
        try:
            workers = list_workers(self._client)
        except (OSError, TimeoutError, CancelledError) as error:
            if time.monotonic() - self._last_answer > min(LOST_SECONDS, self._patience):
                raise error_of_lost_scheduler(self._client) from error
            return
        self._last_answer = time.monotonic()
        if any(self._is_alive(worker) for worker in workers.values()):
            self._last_alive = self._last_answer
        elif self._last_answer - self._last_alive > self._patience:
            if any(worker.get("status") == "paused" for worker in workers.values()):
                raise full_memory_error(self._patience)
            raise no_workers_error(self._patience, len(workers))

    def _is_alive(self, worker: JsonMapping) -> bool:
        """Return whether a worker accepts tasks. A worker that is paused because its memory is full may never accept a
        task again.
        """
        has_heartbeat = time.time() - worker.get("last_seen", 0.0) < self._patience / 2
        return has_heartbeat and worker.get("status", "running") == "running"


def error_of_lost_scheduler(client: Client) -> ClusterError:
    """Return the error for a scheduler that is lost."""
    where = client.scheduler.address if client.scheduler else "the scheduler"
    return ClusterError(f"the scheduler at {where} is gone", hint="start it and run the same command again")


def no_workers_error(seconds: float, silent_workers: int) -> ClusterError:
    """Return the error for a cluster without live workers."""
    who = f"none of {silent_workers} workers responds" if silent_workers else "there was no worker"
    return ClusterError(f"{who} for {seconds:.0f} s", hint="start workers with: dask worker ADDRESS")


def full_memory_error(seconds: float) -> ClusterError:
    """Return the error for workers without free memory, which Dask pauses at 80 %."""
    message = f"the memory of all workers has been full for {seconds:.0f} s"
    return ClusterError(message, code="E-WORKER", hint="give the workers more memory or the job less (--memory)")


def explain_error(
    error: BaseException, task: Task, index: int | None, workers: JsonMapping, client: Client
) -> BaseException:
    """Return an error that explains to a user why a task failed; ``error`` itself if it needs no explanation or is a
    bug.
    """
    name = task.phase if index is None else f"{task.phase}[{index}]"
    if isinstance(error, KilledWorker):
        limit = max((int(w.get("memory_limit") or 0) for w in workers.values()), default=0)
        limit_text = f", memory limit {mib(limit)}" if limit else ""
        needs = f", needs ~{mib(task.memory_bytes, round_up=True)}" if task.memory_bytes else ""
        return ClusterError(
            f"task {name} failed on {error.allowed_failures + 1} workers (last: killed{limit_text}{needs})",
            code="E-WORKER",
            hint="give the workers more memory or the job less (--memory), and look into the workers' logs",
        )
    if isinstance(error, MemoryError):
        needs = f"; it needs ~{mib(task.memory_bytes, round_up=True)}" if task.memory_bytes else ""
        hint = "give the workers more memory, or the job less: --memory"
        return ClusterError(f"task {name} ran out of memory{needs}", code="E-WORKER", hint=hint)
    if isinstance(error, CancelledError) and not isinstance(error, StreamSVMError):
        return error_of_lost_scheduler(client)
    return error


_LIMITS: list[threadpool_limits] = []
"""The thread limit of a worker process. The object is kept for the life of the process, because the limit ends when the
object is deleted."""


def _sizeof_partial(result: PartialResult) -> int:
    """Return the size of a result in bytes. By these sizes, the scheduler decides on which worker two results are
    joined.
    """
    return state_bytes(result.states)


sizeof.register(PartialResult, _sizeof_partial)


def pass_through(value: SharedValue) -> SharedValue:
    """Return the value. Run as a task, so that the value can be computed again if its worker is lost."""
    return value


def run_task(function: Callable[..., Result], version: str, part: Part, *shared: SharedValue) -> Result:
    """Run a task on a worker with one thread, and record its peak memory.

    Raises what the function raises, and ClusterError if driver and worker have different versions of streamsvm.
    """
    if version != __version__:
        message = f"a worker runs streamsvm {__version__}, and the program that started the job runs {version}"
        raise ClusterError(message, hint="install the same version everywhere")
    if not _LIMITS:  # never removed: concurrent tasks would undo each other's limits, and bits depend on threads
        _LIMITS.append(threadpool_limits(1))
        threading.CORES.count = 1
        freed_memory.fix_thresholds()
    try:
        with PeakWatch() as watch:
            result = function(part, *shared)
            return result.with_peak(watch.peak) if isinstance(result, PeakAware) else result
    except MissingError as error:
        hint = "all workers must see the files under the same names as the program that starts the job"
        raise MissingError(f"on a worker: {error.message}", hint=hint, code=error.code) from error


def run_span(
    task: Task, join: Callable[[Result, Result], Result], parts: Sequence[Part], *shared: SharedValue
) -> Result:
    """Compute the results of neighboring parts one after the other, and return them joined."""
    return Joins(join).compute_span(task, parts, shared)


MEMORY_SHARE = 0.55
"""Share of a worker's memory limit that a job may use. At 0.6 Dask begins to spill to disk, at 0.8 it pauses the
worker."""
POLL_SECONDS = 0.5
TASKS_PER_THREAD = 4
"""Minimum number of tasks per thread in a pass: few enough that they cost little, and enough to distribute the work
evenly."""
ANSWER_SECONDS = 30.0
"""Seconds to wait for a result, or for the states of tasks."""
FINISHED_STATES = ("memory", "released", "forgotten", None)
"""States of a task that has run; other tasks are waiting, queued or processing."""
NO_GRAPH_WARNING = {"distributed.admin.large-graph-warning-threshold": "1 TiB"}
"""Dask setting that suppresses the warning about large graphs: shared values are part of the graph on purpose."""


class DaskExecutor:
    """An executor on the workers of a Dask client. Raises ClusterError if there is no worker for ``patience``
    seconds.
    """

    def __init__(self, client: Client | None, patience: float = PATIENCE) -> None:
        self._connection, self._patience = client, patience
        self._name, self._calls = uuid4().hex[:8], 0
        if client is not None:
            self._await_worker()

    @property
    def client(self) -> Client:
        assert self._connection is not None
        return self._connection

    def _await_worker(self) -> None:
        try:
            self.client.wait_for_workers(1, timeout=self._patience)
        except TimeoutError as error:
            raise no_workers_error(self._patience, 0) from error
        except OSError as error:
            raise error_of_lost_scheduler(self.client) from error

    @property
    def threads(self) -> int:
        """Number of tasks that all workers together can run at the same time now; at least 1."""
        return max(1, sum(worker["nthreads"] for worker in self._workers().values()))

    def memory_limit(self, user_limit: int | None) -> int | None:
        """Return the bytes that a task may use: the smaller of the user's limit and MEMORY_SHARE of a worker's limit
        per thread.
        """
        bounds = [] if user_limit is None else [user_limit]
        limited = [worker for worker in self._workers().values() if worker.get("memory_limit")]
        bounds += [int(MEMORY_SHARE * worker["memory_limit"] / worker["nthreads"]) for worker in limited]
        return min(bounds, default=None)

    def share(self, value: SharedValue) -> Future:
        """Return a future of the value. It is an ordinary task, which can be computed again."""
        with dask.config.set(NO_GRAPH_WARNING):
            return self.client.submit(pass_through, value, key=self._key("shared"), pure=False)

    def map(
        self,
        task: Task,
        parts: Iterable[Part],
        shared: Sequence[SharedValue] = (),
        on_progress: OnProgress = ignore_progress,
    ) -> Generator[Result]:
        """Yield the results in the order of the parts as they become available. Raises ClusterError and what tasks
        raise.
        """
        return self.iterate_results(self._submit(task, list(parts), shared), task, on_progress)

    def iterate_results(
        self, futures: list[Any], task: Task, on_progress: OnProgress = ignore_progress
    ) -> Generator[Result]:
        """Yield the results of futures in their order; release each future after its result was consumed."""
        try:
            for index, future in enumerate(futures):
                self._wait(future, task, lambda: sum(f is None or f.done() for f in futures), on_progress)
                yield self._result(future, task)
                futures[index] = None
        finally:
            self._forget(futures)

    def reduce(
        self, task: Task, parts: Sequence[Part], joins: Joins, shared: Sequence[SharedValue], on_progress: OnProgress
    ) -> Result:
        """Return the one result that joining along ``JoinTree`` and then ``joins.finish`` yield, both on the workers.
        Raises ClusterError and what tasks raise.

        One task computes several neighboring parts, because each task costs the scheduler a millisecond or more.
        """
        name, spans = self._key("join"), spans_of(len(parts), TASKS_PER_THREAD * self.threads)
        parts_of_tasks = [tuple(parts[slice(*span)]) for span in spans]
        span_task = task._replace(function=partial(run_span, task, joins.join))
        unreleased: list[Future] = self._submit(span_task, parts_of_tasks, shared)
        keys = [future.key for future in unreleased]

        def submit(function: Callable[..., Result], *arguments: object) -> Future:
            call = partial(run_task, function, __version__)
            unreleased.append(self.client.submit(call, *arguments, key=(name, len(unreleased)), pure=False))
            return unreleased[-1]

        last = tree_reduce(iter(unreleased[:]), len(spans), partial(submit, joins.join))
        if joins.finish is not None:
            last = submit(joins.finish, last, *shared)
        try:
            parts_by_tasks_done = [0, *(span.stop for span in spans)]
            self._wait(last, task, lambda: parts_by_tasks_done[self._count_done(keys, unreleased)], on_progress)
            return self._result(last, task)
        finally:
            self._forget([*unreleased, last])

    def _count_done(self, keys: Sequence[object], unreleased: list[Future]) -> int:
        """Return how many of the tasks ``keys`` have run, and release the futures ``unreleased``, so that workers free
        results that have been joined.

        Futures are released only after the scheduler knows all of them: it would never free the results of futures that
        were released earlier.
        """
        scheduler: Any = self.client.scheduler
        known = [*keys, *(future.key for future in unreleased)]
        try:
            states = self.client.sync(scheduler.get_task_status, keys=known, callback_timeout=ANSWER_SECONDS)
        except (OSError, TimeoutError):
            return 0
        if None not in states.values():
            unreleased.clear()
        return sum(states[key] in FINISHED_STATES for key in keys)

    def close(self) -> None:
        """Do nothing: the client owns all resources."""

    def _workers(self) -> Any:
        """Return the workers; wait LOST_SECONDS for the answer, because a slow scheduler is not lost."""
        try:
            return list_workers(self.client, LOST_SECONDS)
        except (OSError, TimeoutError) as error:
            raise error_of_lost_scheduler(self.client) from error

    def _key(self, what: str) -> str:
        self._calls += 1
        return f"{what}-{self._name}{self._calls:06d}"

    def _submit(self, task: Task, parts: Sequence[Part], shared: Sequence[SharedValue]) -> list[Future]:
        """Submit one task for each part. Contiguous parts prefer the same worker, where they are joined without network
        traffic.
        """
        name, slots = self._key(task.phase), self._slots()
        call = partial(run_task, task.function, __version__)
        return [
            self.client.submit(
                call,
                part,
                *shared,
                key=(name, index),
                pure=False,
                workers=[slots[index * len(slots) // len(parts)]] if slots else None,
                allow_other_workers=bool(slots),
            )
            for index, part in enumerate(parts)
        ]

    def _slots(self) -> list[str]:
        """Return the addresses of the workers in a fixed order, each repeated for each of its threads."""
        workers = self._workers()
        return [address for address in sorted(workers) for _ in range(workers[address]["nthreads"])]

    def _wait(self, future: Future, task: Task, count_done: Callable[[], int], on_progress: OnProgress) -> None:
        """Wait until a future is done or lost, and meanwhile report how many parts are done."""
        watch = WorkerWatch(self.client, self._patience)
        check_time()
        while not future.done():
            try:
                with self.client.as_current():
                    wait(future, timeout=POLL_SECONDS)
            except TimeoutError:
                watch.check()
            except Exception as error:
                raise explain_error(error, task, None, {}, self.client) from error
            check_time()
            on_progress(count_done())

    def _result(self, future: Future, task: Task) -> Result:
        """Fetch a result. If its worker is lost, wait until it is computed again. Raises what the task raised."""
        deadline = time.monotonic() + self._patience
        while True:
            try:
                return future.result(timeout=ANSWER_SECONDS)
            except TimeoutError as error:
                if time.monotonic() > deadline:
                    raise ClusterError("a result could not be fetched", hint="run the same command again") from error
            except BaseException as error:
                index = error.task if isinstance(error, KilledWorker) else None
                number = index[1] if isinstance(index, tuple) and isinstance(index[1], int) else None
                raise explain_error(error, task, number, self._list_workers(), self.client) from error

    def _list_workers(self) -> Any:
        try:
            return list_workers(self.client)
        except (OSError, TimeoutError):
            return {}

    def _forget(self, futures: Sequence[Any]) -> None:
        """Cancel the futures whose tasks have not run; the others are released with their last reference."""
        unfinished = [f for f in futures if f is not None and not f.done()]
        if unfinished and self.client.status == "running":
            try:
                self.client.cancel(unfinished, force=True)
            except (OSError, TimeoutError):
                return


class LocalExecutor(DaskExecutor):
    """An executor on local workers with one thread each. The workers are started at the first task, so that a job that
    is refused starts no worker.
    """

    def __init__(self, start: Callable[[], Client], workers: int, memory: int) -> None:
        """``start`` starts the workers, each of which may use ``memory`` bytes."""
        super().__init__(None)
        self._start, self._worker_count, self._worker_bytes = start, workers, memory

    @property
    def client(self) -> Client:
        if self._connection is None:
            self._connection = self._start()
            self._await_worker()
        return self._connection

    @property
    def threads(self) -> int:
        """Number of tasks that can run at the same time, even before the workers are started."""
        return self._worker_count if self._connection is None else super().threads

    def memory_limit(self, user_limit: int | None) -> int | None:
        """Return the bytes that a task may use: the smaller of the user's limit and MEMORY_SHARE of a worker's
        memory.
        """
        return min([int(MEMORY_SHARE * self._worker_bytes), *([] if user_limit is None else [user_limit])])
