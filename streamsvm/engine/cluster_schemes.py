"""The schemes of --cluster (tcp:, tls:, local:, ...), and the executor that a job runs on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Protocol

from streamsvm.config.units import mib
from streamsvm.engine.executor import Executor, SerialExecutor
from streamsvm.errors import BudgetError, UsageError
from streamsvm.registry import Registry

EXECUTORS = Registry(
    "cluster",
    {
        "tcp": "streamsvm.cluster:connect_cluster",
        "tls": "streamsvm.cluster:connect_cluster",
        "scheduler-file": "streamsvm.cluster:connect_cluster",
        "local": "streamsvm.cluster:connect_cluster",
        "client": "streamsvm.cluster.connection:executor_of_program",
        "here": "streamsvm.engine.cluster_schemes:connect_here",
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


def _explain_worker_limit(error: BudgetError, bound: int | None, stated: int | None) -> None:
    """Add to the message that the workers' memory limit is too low, if it is, because a higher ``--memory`` would not
    help.
    """
    if bound is not None and (stated is None or bound < stated):
        error.message += f"; a task may take {mib(bound)}, a share of its worker's memory limit for each thread"
        error.hint = f"start workers with a higher --memory-limit or fewer --nthreads; without workers: {error.hint}"
