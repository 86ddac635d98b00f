"""From ``--cluster`` to an executor: a cluster of one's own on this machine, or a connection to one that runs."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing.spawn
import signal
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import dask
from distributed import Client, LocalCluster, get_client, rejoin, secede
from distributed.security import Security
from distributed.system import MEMORY_LIMIT

from streamsvm.aliases import ByName
from streamsvm.cluster.address import Address, parse
from streamsvm.cluster.executor import DaskExecutor, LocalExecutor
from streamsvm.cluster.tls import check_files, speaks_tls
from streamsvm.cluster.watch import PATIENCE
from streamsvm.errors import ClusterError, SecurityError, UsageError

CONNECT_SECONDS = 20
SILENT_SECONDS = "30s"
"""After which a worker of our own that gives no sign of life is given up."""
WORKER_PROCESS = "Dask Worker process (from Nanny)"
"""What Dask calls the process of a worker."""
FAREWELL_SECONDS = 0.5
"""Given to workers of our own to end by themselves: no longer, because a job that was asked to stop has seconds itself."""


@contextmanager
def connected(address: str, *, insecure: bool = False) -> Iterator[DaskExecutor]:
    """The executor of a cluster by its address. Raises UsageError, SecurityError, ClusterError."""
    where = parse(address, insecure=insecure)
    with ExitStack() as stack:
        if where.workers:
            memory = MEMORY_LIMIT // where.workers
            yield LocalExecutor(lambda: stack.enter_context(_started(where.workers, memory)), where.workers, memory)
            return
        executor = DaskExecutor(stack.enter_context(_joined(where)))
        stack.callback(executor.close)
        yield executor


@contextmanager
def using(client: Client | None = None, *, patience: float = PATIENCE) -> Iterator[DaskExecutor]:
    """The executor of a client a program has, or of Dask's default one; the client stays open.

    Raises UsageError where there is none or it is asynchronous, ClusterError.
    """
    client = client or default_client()
    if client is None:
        raise UsageError("there is no Dask client", hint="make one: distributed.Client('tcp://127.0.0.1:8786')")
    if client.asynchronous:
        hint = "use one that waits: Client(ADDRESS, asynchronous=False), in a thread of its own if need be"
        raise UsageError("an asynchronous client cannot be used: a job waits for what it asks for", hint=hint)
    executor = DaskExecutor(client, patience)
    try:
        yield executor
    finally:
        executor.close()


@contextmanager
def of_program(address: str, *, insecure: bool = False) -> Iterator[DaskExecutor]:
    """The executor of 'client:': Dask's default client, or that of the worker whose task this is.

    A task that waits for others gives its thread to them meanwhile. Raises UsageError where there is no client, ClusterError.
    """
    del address, insecure  # whoever made the client has decided both
    with ExitStack() as stack:
        executor = stack.enter_context(using())
        try:
            secede()
        except ValueError:  # not a task
            pass
        else:
            stack.callback(rejoin)
        yield executor


def default_client() -> Client | None:
    """The client Dask itself would use: that of the program, or of the task this runs in; None where there is none."""
    try:
        return get_client()
    except ValueError:
        return None


@contextmanager
def _started(workers: int, memory: int) -> Iterator[Client]:
    """Workers on this machine, one thread and so many bytes each, for nobody else; they are started side by side.

    Nothing listens but on the loopback address, and what listens talks only to who shows the certificate of this run:
    the other users of the machine can reach the ports. There are no dashboards and no pages about the workers.
    """
    settings: ByName = {
        "distributed.scheduler.worker-ttl": SILENT_SECONDS,
        "distributed.worker.memory.spill": False,
        "distributed.worker.memory.target": False,
        "distributed.scheduler.http.routes": [],
        "distributed.worker.http.routes": [],
    }
    with (
        dask.config.set(settings),
        _without_the_script(),
        LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            memory_limit=memory,
            host="127.0.0.1",
            protocol="tls://",
            security=Security.temporary(),  # a certificate of this run, which lives in memory
            dashboard_address="127.0.0.1:0",
            silence_logs=logging.CRITICAL,
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        cluster.scheduler.http_server.stop()
        client.run(_for_this_run_only)
        try:
            yield client
        finally:
            cluster.sync(_end, list(cluster.workers.values()))


@contextmanager
def _without_the_script() -> Iterator[None]:
    """Keep worker processes that are started meanwhile from running the script of the program once more.

    A new process of ``multiprocessing`` runs the main module under another name, so that what it defines is known there. Tasks of ours
    need nothing of it, and a script without ``if __name__ == "__main__":`` would do its work again, on the same files.
    """
    prepared = multiprocessing.spawn.get_preparation_data

    def get_preparation_data(name: str) -> dict[str, Any]:
        found = prepared(name)
        if name == WORKER_PROCESS:
            for main in ("init_main_from_name", "init_main_from_path"):
                found.pop(main, None)
        return found

    multiprocessing.spawn.get_preparation_data = get_preparation_data
    try:
        yield
    finally:
        multiprocessing.spawn.get_preparation_data = prepared


async def _end(workers: list[Any]) -> None:
    """End workers, in the midst of a task if need be: nobody waits for it, and what is on disk is whole at every moment.

    Dask would wait 4 s for each task before. That is as long as a job may take that was asked to stop; then the process ends
    as it is, and what it shared with its workers is said to have leaked.
    """
    await asyncio.gather(*(worker.close(timeout=FAREWELL_SECONDS) for worker in workers), return_exceptions=True)


def _for_this_run_only(dask_worker: Any) -> None:
    """Close the port on which a worker shows pages about itself, and leave Ctrl-C, which a terminal sends to all
    processes, to the one that started it. The name of the argument is Dask's.
    """
    dask_worker.http_server.stop()
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def _joined(where: Address) -> Iterator[Client]:
    security = _certificates() if where.encrypted else None
    if where.encrypted and (other := _other_protocol(where.url)):  # which Dask takes for a defect of its own
        raise other
    try:
        client = Client(where.url, security=security, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, TimeoutError) as error:
        raise _unreachable(where.url, error) from error
    with client:
        yield client


def _certificates() -> Security:
    """The files Dask's configuration names. Raises SecurityError when it names none, or one that is not what it should be."""
    security: Any = Security(require_encryption=True)
    if not security.tls_ca_file or not security.tls_client_cert:
        raise SecurityError(
            "tls:// needs a certificate of your own and that of the authority that signs for the cluster",
            hint="set DASK_DISTRIBUTED__COMM__TLS__CA_FILE, ...__TLS__CLIENT__CERT and ...__TLS__CLIENT__KEY",
            code="E-TLS",
        )
    check_files(security.tls_ca_file, security.tls_client_cert, security.tls_client_key)
    return security


def _unreachable(url: str, error: BaseException) -> ClusterError | SecurityError:
    """What a failed attempt means: nobody there, somebody who is not who they should be, or who speaks otherwise."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLError) or "CERTIFICATE" in str(cause).upper():
            return SecurityError(
                f"{url} does not show a certificate that is trusted here: {cause}",
                hint="check DASK_DISTRIBUTED__COMM__TLS__CA_FILE, and who answers at that address",
                code="E-TLS",
            )
        cause = cause.__cause__ or cause.__context__
    absent = ClusterError(f"no scheduler answers at {url}", hint="start one with: dask scheduler --host 127.0.0.1")
    return _other_protocol(url) or absent


def _other_protocol(url: str) -> ClusterError | None:
    """The error for tls:// where TLS is not spoken, and the other way round."""
    encrypted = speaks_tls(url)
    if encrypted is None or encrypted == url.startswith("tls:"):
        return None
    right, wrong = ("tls", "tcp") if encrypted else ("tcp", "tls")
    hint = f"pass --cluster {right}{url[3:]}, if that is the scheduler you mean"
    return ClusterError(f"what answers at {url} speaks {right}, not {wrong}", hint=hint)
