"""The executor of ``engine`` on a Dask cluster.

Everything a task needs is in the graph or on disk: values that are shared are tasks themselves, so that nothing is lost
with a worker that cannot be computed again. A part is a task with a key of its own: the scheduler may run it several
times, its result is taken once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Sequence
from functools import partial
from typing import Any
from uuid import uuid4

import dask
from distributed import Client, Future, wait
from distributed.scheduler import KilledWorker

from streamsvm import __version__
from streamsvm.cluster.watch import LOST_SECONDS, PATIENCE, WorkerWatch, explained, lost, no_workers, workers_of
from streamsvm.cluster.worker_task import as_task, run_span, run_task
from streamsvm.engine.checkpoint.interruption import check_time
from streamsvm.engine.executors.executor import (
    Joins,
    OnProgress,
    Part,
    Result,
    Shared,
    Task,
    ignore_progress,
)
from streamsvm.engine.groups.join_tree import spans_of
from streamsvm.engine.partition import tree_reduce
from streamsvm.errors import ClusterError

MEMORY_SHARE = 0.55
"""Of a worker's memory limit: at 0.6 Dask begins to move things out of it, at 0.8 it pauses."""
POLL_SECONDS = 0.5
TASKS_PER_THREAD = 4
"""Of a pass over all parts, at least: few enough to be no burden, enough to be shared out evenly."""
ANSWER_SECONDS = 30.0
RUN = ("memory", "released", "forgotten", None)
"""States of a task that has run; one that is still wanted and has not is waiting, queued or being processed."""
GRAPH = {"distributed.admin.large-graph-warning-threshold": "1 TiB"}
"""A shared value is part of the graph on purpose."""


class DaskExecutor:
    """See ``engine.executors.executor.Executor``. Raises ClusterError when there is no worker for ``patience`` seconds."""

    def __init__(self, client: Client | None, patience: float = PATIENCE) -> None:
        self._connection, self._patience = client, patience
        self._name, self._calls = uuid4().hex[:8], 0
        if client is not None:
            self._await_worker()

    @property
    def _client(self) -> Client:
        assert self._connection is not None
        return self._connection

    def _await_worker(self) -> None:
        try:
            self._client.wait_for_workers(1, timeout=self._patience)
        except TimeoutError as error:
            raise no_workers(self._patience, 0) from error
        except OSError as error:
            raise lost(self._client) from error

    @property
    def threads(self) -> int:
        """Tasks that all workers together run at once, now; at least 1."""
        return max(1, sum(worker["nthreads"] for worker in self._workers().values()))

    def limit(self, stated: int | None) -> int | None:
        """Return the least of what the user allows and MEMORY_SHARE of what a worker has for each of its threads."""
        bounds = [] if stated is None else [stated]
        limited = [worker for worker in self._workers().values() if worker.get("memory_limit")]
        bounds += [int(MEMORY_SHARE * worker["memory_limit"] / worker["nthreads"]) for worker in limited]
        return min(bounds, default=None)

    def share(self, value: Shared) -> Future:
        """Return a future of the value, which is a task like others: it can be computed again."""
        with dask.config.set(GRAPH):
            return self._client.submit(as_task, value, key=self._key("shared"), pure=False)

    def map(
        self,
        task: Task,
        parts: Iterable[Part],
        shared: Sequence[Shared] = (),
        on_progress: OnProgress = ignore_progress,
    ) -> Generator[Result]:
        """Yield the results in the order of the parts, as they are done. Raises ClusterError and what tasks raise."""
        return self.taken(self._submit(task, list(parts), shared), task, on_progress)

    def taken(self, futures: list[Any], task: Task, on_progress: OnProgress = ignore_progress) -> Generator[Result]:
        """The results of futures, in their order; each is released when it was taken."""
        try:
            for index, future in enumerate(futures):
                self._wait(future, task, lambda: sum(f is None or f.done() for f in futures), on_progress)
                yield self._result(future, task)
                futures[index] = None
        finally:
            self._forget(futures)

    def reduce(
        self, task: Task, parts: Sequence[Part], joins: Joins, shared: Sequence[Shared], on_progress: OnProgress
    ) -> Result:
        """Return the results joined on the workers, and closed there. Raises ClusterError and what tasks raise.

        A task makes some neighboring parts: to the scheduler each costs a millisecond or more.
        """
        name, spans = self._key("join"), spans_of(len(parts), TASKS_PER_THREAD * self.threads)
        some = [tuple(parts[slice(*span)]) for span in spans]
        held: list[Future] = self._submit(task._replace(function=partial(run_span, task, joins.join)), some, shared)
        keys = [future.key for future in held]

        def submit(call: Callable[..., Result], *arguments: object) -> Future:
            called = partial(run_task, call, __version__)
            held.append(self._client.submit(called, *arguments, key=(name, len(held)), pure=False))
            return held[-1]

        last = tree_reduce(iter(held[:]), len(spans), partial(submit, joins.join))
        if joins.close is not None:
            last = submit(joins.close, last, *shared)
        try:
            ends = [0, *(span.stop for span in spans)]
            self._wait(last, task, lambda: ends[self._done(keys, held)], on_progress)
            return self._result(last, task)
        finally:
            self._forget([*held, last])

    def _done(self, keys: Sequence[object], held: list[Future]) -> int:
        """How many of these tasks have run. Lets go of ``held``, so that workers forget what has been joined.

        Not before the scheduler knows all of them: it would take what is let go of too early for wanted for ever.
        """
        scheduler: Any = self._client.scheduler
        known = [*keys, *(future.key for future in held)]
        try:
            states = self._client.sync(scheduler.get_task_status, keys=known, callback_timeout=ANSWER_SECONDS)
        except (OSError, TimeoutError):
            return 0
        if None not in states.values():
            held.clear()
        return sum(states[key] in RUN for key in keys)

    def close(self) -> None:
        """Nothing is held that the client does not give back."""

    def _workers(self) -> Any:
        """A scheduler that is slow to answer is not lost yet."""
        try:
            return workers_of(self._client, LOST_SECONDS)
        except (OSError, TimeoutError) as error:
            raise lost(self._client) from error

    def _key(self, what: str) -> str:
        self._calls += 1
        return f"{what}-{self._name}{self._calls:06d}"

    def _submit(self, task: Task, parts: Sequence[Part], shared: Sequence[Shared]) -> list[Future]:
        """One task a part; contiguous are meant for one worker, where they are joined without passing the network."""
        name, slots = self._key(task.phase), self._slots()
        call = partial(run_task, task.function, __version__)
        return [
            self._client.submit(
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
        """Addresses of the workers, one for each of their threads, in an order that stays."""
        workers = self._workers()
        return [address for address in sorted(workers) for _ in range(workers[address]["nthreads"])]

    def _wait(self, future: Future, task: Task, done: Callable[[], int], on_progress: OnProgress) -> None:
        """Until a future is done or lost; reports how many parts are done meanwhile."""
        watch = WorkerWatch(self._client, self._patience)
        check_time()
        while not future.done():
            try:
                with self._client.as_current():
                    wait(future, timeout=POLL_SECONDS)
            except TimeoutError:
                watch.check()
            except Exception as error:
                raise explained(error, task, None, {}, self._client) from error
            check_time()
            on_progress(done())

    def _result(self, future: Future, task: Task) -> Result:
        """Fetch a result; a worker that is lost with it is no reason to give up. Raises what the task raised."""
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
                raise explained(error, task, number, self._known_workers(), self._client) from error

    def _known_workers(self) -> Any:
        try:
            return workers_of(self._client)
        except (OSError, TimeoutError):
            return {}

    def _forget(self, futures: Sequence[Any]) -> None:
        """Release what is held; cancel what nobody waits for any more."""
        unfinished = [f for f in futures if f is not None and not f.done()]
        if unfinished and self._client.status == "running":
            try:
                self._client.cancel(unfinished, force=True)
            except (OSError, TimeoutError):
                return


class LocalExecutor(DaskExecutor):
    """On workers of one's own, one thread each, which are started when there is something to do for them: a job that is refused
    has none.
    """

    def __init__(self, start: Callable[[], Client], workers: int, memory: int) -> None:
        """``start`` starts so many workers, each of which may hold ``memory`` bytes."""
        super().__init__(None)
        self._start, self._count, self._memory = start, workers, memory

    @property
    def _client(self) -> Client:
        if self._connection is None:
            self._connection = self._start()
            self._await_worker()
        return self._connection

    @property
    def threads(self) -> int:
        """Tasks that all workers together run at once, now; those that were asked for before they are started."""
        return self._count if self._connection is None else super().threads

    def limit(self, stated: int | None) -> int | None:
        """Return the least of what the user allows and MEMORY_SHARE of what a worker has."""
        return min([int(MEMORY_SHARE * self._memory), *([] if stated is None else [stated])])
