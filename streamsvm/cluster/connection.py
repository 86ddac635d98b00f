"""From ``--cluster`` to an executor: local workers of this run, or a connection to a running cluster.

Every process of a cluster runs whatever it is sent, so that who can reach it owns it. Addresses that are neither encrypted nor on this machine
are refused, and what can be wrong with TLS is checked first, because Dask only waits.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import logging
import multiprocessing.spawn
import os
import shlex
import signal
import socket
import ssl
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import dask
from distributed import Client, LocalCluster, get_client, rejoin, secede
from distributed.security import Security
from distributed.system import MEMORY_LIMIT

from streamsvm.aliases import ByName
from streamsvm.cluster.executor import PATIENCE, DaskExecutor, LocalExecutor
from streamsvm.errors import ClusterError, DataError, MissingError, SecurityError, UsageError, quote
from streamsvm.input_files import is_file, read_whole

MAX_SCHEDULER_FILE_BYTES = 1 << 16
LOCAL, FILE = "local", "scheduler-file"
FORMS = "tcp://127.0.0.1:8786, tls://HOST:8786, local:4 or scheduler-file:PATH"
ALWAYS_ALLOWED_WORKERS, WORKERS_PER_PROCESSOR = 16, 4
"""Local workers that are allowed on any machine, and on each processor of a larger one."""


class Address(NamedTuple):
    """The number of workers to start here, or the address of a scheduler."""

    workers: int
    """Workers to start on this machine; 0: there is a scheduler at ``url``."""
    url: str
    """tcp:// or tls://, with host and port; empty where workers are started here."""

    @property
    def encrypted(self) -> bool:
        """Whether traffic is encrypted and both sides show certificates."""
        return self.url.startswith("tls://")


def parse_address(text: str, *, insecure: bool = False) -> Address:
    """Parse the address of ``--cluster``. Raises UsageError, MissingError, DataError, SecurityError."""
    kind, _, rest = text.partition(":")
    if kind == LOCAL:
        return Address(_parse_workers(rest), "")
    url = _read_scheduler_file(Path(rest)) if kind == FILE else text
    check_url(url, insecure=insecure)
    return Address(0, url)


def check_url(url: str, *, insecure: bool) -> None:
    """Refuse an address that is open to a network: every process of a cluster runs whatever it is sent. Raises UsageError, SecurityError."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port, parts = None, None, urlsplit("")
    if parts.username is not None or parts.password is not None:
        hint = f"who may use a cluster is decided by certificates; write it as {FORMS}"
        raise UsageError("the address of a cluster has no user and no password", hint=hint)
    if host is None or port is None or parts.scheme not in ("tcp", "tls"):
        raise UsageError(f"{quote(url)} is not the address of a cluster", hint=f"write it as {FORMS}")
    if parts.path or parts.query or parts.fragment:
        hint = f"leave it out: --cluster {shlex.quote(f'{parts.scheme}://{parts.netloc}')}"
        raise UsageError(f"{quote(url)} has something after its port", hint=hint)
    if parts.scheme == "tls" or is_loopback(host):
        return
    danger = f"{url} is neither encrypted nor on this machine: whoever can reach it can run programs as you"
    if not insecure:
        raise SecurityError(danger, hint="use tls://, or pass --insecure-network where you trust all of the network")
    warnings.warn(danger, stacklevel=4)


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine, without a name server."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _parse_workers(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise UsageError(f"'local:{text}' does not say how many workers", hint="write it as local:2")
    processors = len(os.sched_getaffinity(0))
    most = max(ALWAYS_ALLOWED_WORKERS, WORKERS_PER_PROCESSOR * processors)
    if len(text) > 9 or int(text) > most:
        hint = f"a worker computes with one thread: write it as local:{processors}"
        raise UsageError(f"'local:{text}' asks for more than {most} workers of {processors} processors", hint=hint)
    return int(text)


def _read_scheduler_file(path: Path) -> str:
    """Return the address in a file that a scheduler wrote with --scheduler-file."""
    if not is_file(path):
        hint = "start it with: dask scheduler --scheduler-file PATH"
        raise MissingError(f"there is no scheduler file at {path}", hint=hint)
    try:
        content: Any = json.loads(read_whole(path, MAX_SCHEDULER_FILE_BYTES, follow=True))
        return str(content["address"])
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise DataError(f"{path} is not a scheduler file", hint="one is written by dask scheduler") from error


PROBE_SECONDS = 5.0
VARIABLE = "DASK_DISTRIBUTED__COMM__TLS__"


def check_files(ca_file: str, cert: str, key: str | None) -> None:
    """Raise SecurityError E-TLS for the first file that cannot be read, holds no certificate, or is of another key.

    ``key`` is None where the file of the certificate holds it, too.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(ca_file)
    except OSError as error:
        raise _refuse_file(ca_file, error, "CA_FILE") from error
    for path in (cert, key or cert):
        try:
            open(path, "rb").close()
        except OSError as error:
            raise _refuse_file(path, error, "CLIENT__CERT" if path == cert else "CLIENT__KEY") from error
    try:
        context.load_cert_chain(cert, key)
    except OSError as error:
        raise _refuse_file(f"{cert} with the key {key}" if key else cert, error, "CLIENT__CERT") from error


def _refuse_file(what: str, error: OSError, variable: str) -> SecurityError:
    """Return the error for a file; the text of an SSLError says more than its number."""
    why = (error.reason or str(error)) if isinstance(error, ssl.SSLError) else error.strerror
    message = f"{what} cannot be used for tls://: {str(why).replace('_', ' ').lower()}"
    return SecurityError(message, hint=f"name files in PEM format; this one is from {VARIABLE}{variable}", code="E-TLS")


def probe_tls(url: str) -> bool | None:
    """Return whether the server at an address speaks TLS; None where nothing listens, or it cannot be told."""
    where = urlsplit(url)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # nothing is sent: this only asks who is there
    try:
        raw = socket.create_connection((where.hostname, where.port), PROBE_SECONDS)
    except (OSError, ValueError):
        return None
    with closing(raw):
        try:
            context.wrap_socket(raw, server_hostname=where.hostname).close()
        except ssl.SSLError as error:
            return "ALERT" in (error.reason or "")  # a refusal in TLS; anything else is no TLS
        except OSError:
            return False
    return True


CONNECT_SECONDS = 20
SILENT_SECONDS = "30s"
"""Time without a heartbeat after which a local worker is given up."""
WORKER_PROCESS = "Dask Worker process (from Nanny)"
"""Dask's name of the process of a worker."""
WORKER_CLOSE_SECONDS = 0.5
"""Time for local workers to end by themselves: short, because a job that was asked to stop has only seconds itself."""


@contextmanager
def connect_cluster(address: str, *, insecure: bool = False) -> Iterator[DaskExecutor]:
    """Provide the executor of a cluster by its address. Raises UsageError, SecurityError, ClusterError."""
    where = parse_address(address, insecure=insecure)
    with ExitStack() as stack:
        if where.workers:
            memory = MEMORY_LIMIT // where.workers
            yield LocalExecutor(
                lambda: stack.enter_context(_start_local_cluster(where.workers, memory)), where.workers, memory
            )
            return
        executor = DaskExecutor(stack.enter_context(_join_cluster(where)))
        stack.callback(executor.close)
        yield executor


@contextmanager
def using(client: Client | None = None, *, patience: float = PATIENCE) -> Iterator[DaskExecutor]:
    """Provide the executor of a client, by default Dask's; the client stays open.

    Raises UsageError where there is none or it is asynchronous, ClusterError.
    """
    client = client or default_client()
    if client is None:
        raise UsageError("there is no Dask client", hint="make one: distributed.Client('tcp://127.0.0.1:8786')")
    if client.asynchronous:
        hint = "use a synchronous one: Client(ADDRESS, asynchronous=False), in a thread of its own if need be"
        raise UsageError("an asynchronous client cannot be used: jobs call it synchronously", hint=hint)
    executor = DaskExecutor(client, patience)
    try:
        yield executor
    finally:
        executor.close()


@contextmanager
def of_program(address: str, *, insecure: bool = False) -> Iterator[DaskExecutor]:
    """Provide the executor of 'client:': of Dask's default client, or of the worker whose task this is.

    A task that waits for others gives them its thread meanwhile. Raises UsageError where there is no client, ClusterError.
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
    """Return the client Dask itself would use: that of the program, or of the task this runs in; None where there is none."""
    try:
        return get_client()
    except ValueError:
        return None


@contextmanager
def _start_local_cluster(workers: int, memory: int) -> Iterator[Client]:
    """Start workers on this machine, one thread and ``memory`` bytes each, for this run only.

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
        _without_main_module(),
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
        client.run(_isolate_worker)
        try:
            yield client
        finally:
            cluster.sync(_end, list(cluster.workers.values()))


@contextmanager
def _without_main_module() -> Iterator[None]:
    """Keep worker processes that are started meanwhile from running the script of the program again.

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
    """Stop workers, even during a task: nobody waits for it, and files on disk are always whole.

    Dask would wait 4 s for each task before. That is as long as a job may take that was asked to stop; then the process ends
    as it is, and what it shared with its workers is said to have leaked.
    """
    await asyncio.gather(*(worker.close(timeout=WORKER_CLOSE_SECONDS) for worker in workers), return_exceptions=True)


def _isolate_worker(dask_worker: Any) -> None:
    """Close the port on which a worker shows pages about itself, and leave Ctrl-C, which a terminal sends to all
    processes, to the one that started it. The name of the argument is Dask's.
    """
    dask_worker.http_server.stop()
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def _join_cluster(where: Address) -> Iterator[Client]:
    security = _load_certificates() if where.encrypted else None
    if where.encrypted and (other := _check_protocol(where.url)):  # which Dask takes for a defect of its own
        raise other
    try:
        client = Client(where.url, security=security, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, TimeoutError) as error:
        raise _unreachable(where.url, error) from error
    with client:
        yield client


def _load_certificates() -> Security:
    """Return the certificates that Dask's configuration names. Raises SecurityError where it names none, or an unusable file."""
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
    """Return the error for a failed connection: nothing listens, a wrong certificate, or another protocol."""
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
    return _check_protocol(url) or absent


def _check_protocol(url: str) -> ClusterError | None:
    """The error for tls:// where TLS is not spoken, and the other way round."""
    encrypted = probe_tls(url)
    if encrypted is None or encrypted == url.startswith("tls:"):
        return None
    right, wrong = ("tls", "tcp") if encrypted else ("tcp", "tls")
    hint = f"pass --cluster {right}{url[3:]}, if that is the scheduler you mean"
    return ClusterError(f"what answers at {url} speaks {right}, not {wrong}", hint=hint)
