"""The executor of ``jobs.spread`` on a Dask cluster.

Everything a task needs is in the graph or on disk: values that are shared are tasks themselves, so that nothing is lost
with a worker that cannot be computed again. A part is a task with a key of its own: the scheduler may run it several
times, its result is taken once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any
from uuid import uuid4

import dask
from distributed import Client, Future, wait

from streamsvm import __version__
from streamsvm.cluster.remote import held, run
from streamsvm.cluster.watch import PATIENCE, Watch, explained, lost, no_workers, workers_of
from streamsvm.errors import ClusterError
from streamsvm.jobs.spread.executor import Joins, Task, Tell, unheard
from streamsvm.jobs.spread.groups import folded

MEMORY_SHARE = 0.55
"""Of a worker's memory limit: at 0.6 Dask begins to move things out of it, at 0.8 it pauses."""
POLL_SECONDS = 0.5
ANSWER_SECONDS = 30.0
GRAPH = {"distributed.admin.large-graph-warning-threshold": "1 TiB"}
"""A shared value is part of the graph on purpose."""


class DaskExecutor:
    """See ``jobs.spread.executor.Executor``. Raises ClusterError when there is no worker for ``patience`` seconds."""

    def __init__(self, client: Client, patience: float = PATIENCE) -> None:
        self._client, self._patience = client, patience
        self._name, self._calls = uuid4().hex[:8], 0
        self._await_worker()

    def _await_worker(self) -> None:
        try:
            self._client.wait_for_workers(1, timeout=self._patience)
        except TimeoutError as error:
            raise no_workers(self._patience, 0) from error
        except OSError as error:
            raise lost(self._client) from error

    @property
    def threads(self) -> int:
        return max(1, sum(worker["nthreads"] for worker in self._workers().values()))

    def limit(self, stated: int | None) -> int | None:
        bounds = [] if stated is None else [stated]
        limited = [worker for worker in self._workers().values() if worker.get("memory_limit")]
        bounds += [int(MEMORY_SHARE * worker["memory_limit"] / worker["nthreads"]) for worker in limited]
        return min(bounds, default=None)

    def share(self, value: Any) -> Future:
        with dask.config.set(GRAPH):
            return self._client.submit(held, value, key=self._key("shared"), pure=False)

    def map(self, task: Task, parts: Sequence[Any], shared: Sequence[Any] = (), tell: Tell = unheard) -> Iterator[Any]:
        return self.taken(self._submit(task, parts, shared), task, tell)

    def taken(self, futures: list[Any], task: Task, tell: Tell = unheard) -> Iterator[Any]:
        """The results of futures, in their order; each is released when it was taken."""
        watch = Watch(self._client, self._patience)
        try:
            for index, future in enumerate(futures):
                self._wait(future, task, futures, watch, tell)
                yield self._result(future, task)
                futures[index] = None
        finally:
            self._forget(futures)

    def reduce(self, task: Task, parts: Sequence[Any], joins: Joins, shared: Sequence[Any], tell: Tell) -> Any:
        futures: list[Any] = self._submit(task, parts, shared)
        joined: list[Future] = []
        name = self._key("join")

        def submit(call: Callable[..., Any], *arguments: Any) -> Future:
            joined.append(self._client.submit(call, *arguments, key=(name, len(joined)), pure=False))
            return joined[-1]

        last = folded(iter(futures), len(futures), partial(submit, partial(run, joins.join, __version__)))
        if joins.close is not None:
            last = submit(partial(run, joins.close, __version__), last, *shared)
        try:
            self._wait(last, task, futures, Watch(self._client, self._patience), tell)
            return self._result(last, task)
        finally:
            self._forget([*futures, *joined])

    def close(self) -> None:
        """Nothing is held that the client does not give back."""

    def _workers(self) -> Any:
        try:
            return workers_of(self._client)
        except (OSError, TimeoutError) as error:
            raise lost(self._client) from error

    def _key(self, what: str) -> str:
        self._calls += 1
        return f"{what}-{self._name}{self._calls:06d}"

    def _submit(self, task: Task, parts: Sequence[Any], shared: Sequence[Any]) -> list[Any]:
        """One task a part; neighbours are meant for one worker, where they are joined without passing the network."""
        name, slots = self._key(task.phase), self._slots()
        call = partial(run, task.function, __version__)
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

    def _wait(self, future: Future, task: Task, futures: Sequence[Any], watch: Watch, tell: Tell) -> None:
        """Until a future is done or lost; tells how many parts are done meanwhile."""
        while not future.done():
            try:
                with self._client.as_current():
                    wait(future, timeout=POLL_SECONDS)
            except TimeoutError:
                watch.look()
            except Exception as error:
                raise explained(error, task, None, {}, self._client) from error
            tell(sum(f is None or f.done() for f in futures))

    def _result(self, future: Future, task: Task) -> Any:
        """Fetch a result; a worker that is lost with it is no reason to give up. Raises what the task raised."""
        deadline = time.monotonic() + self._patience
        while True:
            try:
                return future.result(timeout=ANSWER_SECONDS)
            except TimeoutError as error:
                if time.monotonic() > deadline:
                    raise ClusterError("a result could not be fetched", hint="run the same command again") from error
            except BaseException as error:
                index = getattr(error, "task", (None, None))
                number = index[1] if isinstance(index, tuple) else None
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
