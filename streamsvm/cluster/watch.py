"""Waiting for a cluster without waiting for ever, and what its failures mean."""

from __future__ import annotations

import time
from concurrent.futures import CancelledError

from distributed import Client
from distributed.scheduler import KilledWorker

from streamsvm.aliases import JsonMapping
from streamsvm.config.units import mib
from streamsvm.engine.executors.executor import Task
from streamsvm.errors import ClusterError, StreamSVMError

PATIENCE = 60.0
"""Seconds without a worker, or without a sign of life from one that has work, after which a job ends."""
ANSWER_SECONDS = 5.0
LOST_SECONDS = 20.0
"""Seconds without an answer after which a scheduler is lost."""
LOOK_SECONDS = 2.0
GONE = ("closed", "closing")


def workers_of(client: Client, timeout: float = ANSWER_SECONDS) -> JsonMapping:
    """What the scheduler knows of its workers, by address. Raises OSError, TimeoutError."""
    if client.scheduler is None:
        raise OSError("the client is closed")
    identity = client.sync(client.scheduler.identity, n_workers=-1, callback_timeout=timeout)
    workers: JsonMapping = identity["workers"]
    return workers


class WorkerWatch:
    """Looks at a cluster every few seconds while a job waits."""

    def __init__(self, client: Client, patience: float = PATIENCE) -> None:
        self._client, self._patience = client, patience
        self._answered = self._manned = self._looked = time.monotonic()

    def check(self) -> None:
        """Raise ClusterError when there is nothing left to wait for."""
        now = time.monotonic()
        if now - self._looked < LOOK_SECONDS:
            return
        self._looked = now
        if self._client.status in GONE:
            raise lost(self._client)
        try:
            workers = workers_of(self._client)
        except (OSError, TimeoutError, CancelledError) as error:
            if time.monotonic() - self._answered > min(LOST_SECONDS, self._patience):
                raise lost(self._client) from error
            return
        self._answered = time.monotonic()
        if any(self._alive(worker) for worker in workers.values()):
            self._manned = self._answered
        elif self._answered - self._manned > self._patience:
            if any(worker.get("status") == "paused" for worker in workers.values()):
                raise full(self._patience)
            raise no_workers(self._patience, len(workers))

    def _alive(self, worker: JsonMapping) -> bool:
        """A worker that is paused, because its memory is full, takes no work; it may never do so again."""
        seen = time.time() - worker.get("last_seen", 0.0) < self._patience / 2
        return seen and worker.get("status", "running") == "running"


def lost(client: Client) -> ClusterError:
    """The scheduler is gone, and with it all it knew."""
    where = client.scheduler.address if client.scheduler else "the scheduler"
    return ClusterError(f"the scheduler at {where} is gone", hint="start it and run the same command again")


def no_workers(seconds: float, silent: int) -> ClusterError:
    """Nobody is there to do the work."""
    who = f"none of {silent} workers has given a sign of life" if silent else "there was no worker"
    return ClusterError(f"{who} for {seconds:.0f} s", hint="start workers with: dask worker ADDRESS")


def full(seconds: float) -> ClusterError:
    """Dask pauses workers at four fifths of their memory."""
    message = f"the memory of all workers has been full for {seconds:.0f} s"
    return ClusterError(message, code="E-WORKER", hint="give the workers more memory or the job less (--memory)")


def explained(
    error: BaseException, task: Task, index: int | None, workers: JsonMapping, client: Client
) -> BaseException:
    """What a task's failure means to a user; the error itself where it is one of ours or a bug."""
    name = task.phase if index is None else f"{task.phase}[{index}]"
    if isinstance(error, KilledWorker):
        limit = max((int(w.get("memory_limit") or 0) for w in workers.values()), default=0)
        had = f", memory limit {mib(limit)}" if limit else ""
        needs = f", needs ~{mib(task.needs, up=True)}" if task.needs else ""
        return ClusterError(
            f"task {name} failed on {error.allowed_failures + 1} workers (last: killed{had}{needs})",
            code="E-WORKER",
            hint="give the workers more memory or the job less (--memory), and look into the workers' logs",
        )
    if isinstance(error, MemoryError):
        needs = f"; it needs ~{mib(task.needs, up=True)}" if task.needs else ""
        hint = "give the workers more memory, or the job less: --memory"
        return ClusterError(f"task {name} ran out of memory{needs}", code="E-WORKER", hint=hint)
    if isinstance(error, CancelledError) and not isinstance(error, StreamSVMError):
        return lost(client)
    return error
