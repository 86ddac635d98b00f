"""Create the executor that ``--cluster`` asks for: start local workers for one run, or connect to a running cluster.

Every process of a cluster executes whatever code it receives, so that anyone who can connect controls it. Addresses
that are neither encrypted nor on this machine are therefore refused. The TLS setup is checked before Dask connects,
because on a fault Dask would wait for a timeout and name no cause.
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

from streamsvm.cluster.dask_executor import PATIENCE, DaskExecutor, LocalExecutor
from streamsvm.errors import ClusterError, DataError, MissingError, SecurityError, UsageError, quote
from streamsvm.input_files import is_file, read_whole
from streamsvm.type_aliases import ValuesByName

MAX_SCHEDULER_FILE_BYTES = 1 << 16
LOCAL, FILE = "local", "scheduler-file"
FORMS = "tcp://127.0.0.1:8786, tls://HOST:8786, local:4 or scheduler-file:PATH"
ALWAYS_ALLOWED_WORKERS = 16
"""Number of local workers that may be started on any machine."""
WORKERS_PER_PROCESSOR = 4
"""Number of local workers per processor that may be started on a machine with many processors."""


class Address(NamedTuple):
    """The number of local workers to start, or the address of a scheduler."""

    workers: int
    """Number of workers to start on this machine; 0: connect to the scheduler at ``url``."""
    url: str
    """tcp:// or tls://, with host and port; empty if workers are started here."""

    @property
    def encrypted(self) -> bool:
        """Whether traffic is encrypted and both sides present certificates."""
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
    """Check that ``url`` is the address of a scheduler and safe to use.

    Raises UsageError if it is malformed; raises SecurityError if the connection would be neither encrypted nor within
    this machine and ``insecure`` is False.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port, parts = None, None, urlsplit("")
    if parts.username is not None or parts.password is not None:
        hint = f"certificates decide who may use a cluster; write the address as {FORMS}"
        raise UsageError("the address of a cluster must not contain a user name or a password", hint=hint)
    if host is None or port is None or parts.scheme not in ("tcp", "tls"):
        raise UsageError(f"{quote(url)} is not the address of a cluster", hint=f"write the address as {FORMS}")
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
    """Return whether a host is this machine, without asking a name server."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _parse_workers(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise UsageError(f"'local:{text}' does not say how many workers", hint="write it as local:2")
    processors = len(os.sched_getaffinity(0))
    max_workers = max(ALWAYS_ALLOWED_WORKERS, WORKERS_PER_PROCESSOR * processors)
    if len(text) > 9 or int(text) > max_workers:
        hint = f"a worker computes with one thread: write it as local:{processors}"
        allowed = f"at most {max_workers} are allowed on this machine with {processors} processors"
        raise UsageError(f"'local:{text}' asks for too many workers: {allowed}", hint=hint)
    return int(text)


def _read_scheduler_file(path: Path) -> str:
    """Return the address in a file that ``dask scheduler --scheduler-file`` wrote."""
    if not is_file(path):
        hint = "start the scheduler with: dask scheduler --scheduler-file PATH"
        raise MissingError(f"there is no scheduler file at {path}", hint=hint)
    try:
        content: Any = json.loads(read_whole(path, MAX_SCHEDULER_FILE_BYTES, follow=True))
        return str(content["address"])
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        hint = "use the file that dask scheduler --scheduler-file PATH wrote"
        raise DataError(f"{path} is not a scheduler file", hint=hint) from error


PROBE_SECONDS = 5.0
TLS_VARIABLE_PREFIX = "DASK_DISTRIBUTED__COMM__TLS__"


def check_certificate_files(ca_file: str, cert: str, key: str | None) -> None:
    """Raise SecurityError E-TLS for the first file that cannot be read, contains no certificate, or does not match the
    key.

    ``key``: the file of the private key; None: the certificate file ``cert`` contains the key, too.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(ca_file)
    except OSError as error:
        raise _unusable_file_error(ca_file, error, "CA_FILE") from error
    for path in (cert, key or cert):
        try:
            open(path, "rb").close()
        except OSError as error:
            raise _unusable_file_error(path, error, "CLIENT__CERT" if path == cert else "CLIENT__KEY") from error
    try:
        context.load_cert_chain(cert, key)
    except OSError as error:
        files = f"{cert} with the key {key}" if key else cert
        raise _unusable_file_error(files, error, "CLIENT__CERT") from error


def _unusable_file_error(file: str, error: OSError, variable: str) -> SecurityError:
    """Return the error for a file. For an SSLError, it quotes the reason, which says more than the error number."""
    why = (error.reason or str(error)) if isinstance(error, ssl.SSLError) else error.strerror
    message = f"{file} cannot be used for tls://: {str(why).replace('_', ' ').lower()}"
    hint = f"the file must be in PEM format; it was named by {TLS_VARIABLE_PREFIX}{variable}"
    return SecurityError(message, hint=hint, code="E-TLS")


def probe_tls(url: str) -> bool | None:
    """Return whether the server at an address speaks TLS; None if nothing listens there."""
    parts = urlsplit(url)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # only a probe: no data are sent
    try:
        raw = socket.create_connection((parts.hostname, parts.port), PROBE_SECONDS)
    except (OSError, ValueError):
        return None
    with closing(raw):
        try:
            context.wrap_socket(raw, server_hostname=parts.hostname).close()
        except ssl.SSLError as error:
            return "ALERT" in (error.reason or "")  # an alert is an answer in TLS; any other error means no TLS
        except OSError:
            return False
    return True


CONNECT_SECONDS = 20
SILENT_SECONDS = "30s"
"""Time without a heartbeat after which a local worker counts as lost."""
WORKER_PROCESS = "Dask Worker process (from Nanny)"
"""Dask's name for the process of a worker."""
WORKER_CLOSE_SECONDS = 0.5
"""Time for local workers to end by themselves. It is short because the job, once asked to stop, has only a few seconds
to end."""


@contextmanager
def connect_cluster(address: str, *, insecure: bool = False) -> Iterator[DaskExecutor]:
    """Yield the executor of the cluster at an address. Raises UsageError, SecurityError, ClusterError."""
    parsed = parse_address(address, insecure=insecure)
    with ExitStack() as stack:
        if parsed.workers:
            memory = MEMORY_LIMIT // parsed.workers
            yield LocalExecutor(
                lambda: stack.enter_context(_start_local_cluster(parsed.workers, memory)), parsed.workers, memory
            )
            return
        executor = DaskExecutor(stack.enter_context(_connect_client(parsed)))
        stack.callback(executor.close)
        yield executor


@contextmanager
def using(client: Client | None = None, *, patience: float = PATIENCE) -> Iterator[DaskExecutor]:
    """Yield the executor of a client, by default Dask's default client. The client stays open.

    ``patience``: seconds without a worker, or without a heartbeat of a worker that has tasks, after which the job ends.
    Raises ClusterError, and UsageError if there is no client or the client is asynchronous.
    """
    client = client or default_client()
    if client is None:
        raise UsageError("there is no Dask client", hint="create a client: distributed.Client('tcp://127.0.0.1:8786')")
    if client.asynchronous:
        hint = (
            "use a synchronous client, Client(ADDRESS, asynchronous=False), and run the job in another thread if this "
            "one runs an event loop"
        )
        raise UsageError("an asynchronous client cannot be used: jobs call it synchronously", hint=hint)
    executor = DaskExecutor(client, patience)
    try:
        yield executor
    finally:
        executor.close()


@contextmanager
def executor_of_program(address: str, *, insecure: bool = False) -> Iterator[DaskExecutor]:
    """Yield the executor for ``cluster='client:'``. It uses Dask's default client; in a task, it uses the cluster that
    runs the task.

    A job that is itself a task releases its thread on the worker while it waits for other tasks. Raises ClusterError,
    and UsageError if there is no client.
    """
    del address, insecure  # the creator of the client has decided both
    with ExitStack() as stack:
        executor = stack.enter_context(using())
        try:
            secede()
        except ValueError:  # this code does not run in a task
            pass
        else:
            stack.callback(rejoin)
        yield executor


def default_client() -> Client | None:
    """Return Dask's default client: that of the program, or of the task in which this code runs; None if there is
    none.
    """
    try:
        return get_client()
    except ValueError:
        return None


@contextmanager
def _start_local_cluster(workers: int, memory: int) -> Iterator[Client]:
    """Start workers on this machine for this run, with one thread and ``memory`` bytes each.

    All ports are on the loopback address. Other users of the machine can connect to them; the scheduler and the workers
    therefore accept only connections with the certificate of this run. There are no dashboards and no pages about the
    workers.
    """
    settings: ValuesByName = {
        "distributed.scheduler.worker-ttl": SILENT_SECONDS,
        "distributed.worker.memory.spill": False,
        "distributed.worker.memory.target": False,
        "distributed.scheduler.http.routes": [],
        "distributed.worker.http.routes": [],
    }
    with (
        dask.config.set(settings),
        _skip_main_module(),
        LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            memory_limit=memory,
            host="127.0.0.1",
            protocol="tls://",
            security=Security.temporary(),  # a certificate for this run, which is kept in memory only
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
            cluster.sync(_stop_workers, list(cluster.workers.values()))


@contextmanager
def _skip_main_module() -> Iterator[None]:
    """Prevent worker processes that are started inside the context from executing the program's script again.

    A new process of ``multiprocessing`` executes the main module under another name, so that its definitions are known
    there. The tasks of this package do not need them, and a script without ``if __name__ == "__main__":`` would repeat
    its work on the same files.
    """
    original = multiprocessing.spawn.get_preparation_data

    def get_preparation_data(name: str) -> dict[str, Any]:
        preparation = original(name)
        if name == WORKER_PROCESS:
            for main in ("init_main_from_name", "init_main_from_path"):
                preparation.pop(main, None)
        return preparation

    multiprocessing.spawn.get_preparation_data = get_preparation_data
    try:
        yield
    finally:
        multiprocessing.spawn.get_preparation_data = original


async def _stop_workers(workers: list[Any]) -> None:
    """Stop workers, even in the middle of a task. That is safe: nobody needs the result any more, and files on disk are
    complete at every moment.

    By default Dask waits 4 s for each task. A job that was asked to stop has only about 4 s in all; then its process is
    killed without cleanup, with a warning about leaked shared resources.
    """
    await asyncio.gather(*(worker.close(timeout=WORKER_CLOSE_SECONDS) for worker in workers), return_exceptions=True)


def _isolate_worker(dask_worker: Any) -> None:
    """Close the port of a worker's status pages, and make the worker ignore Ctrl-C, which a terminal sends to all
    processes.

    The process that started the worker handles Ctrl-C. The argument must be called
    ``dask_worker``: Dask recognizes it by that name.
    """
    dask_worker.http_server.stop()
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def _connect_client(address: Address) -> Iterator[Client]:
    security = _load_certificates() if address.encrypted else None
    if address.encrypted and (wrong_protocol := _check_protocol(address.url)):  # Dask would report an internal error
        raise wrong_protocol
    try:
        client = Client(address.url, security=security, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, TimeoutError) as error:
        raise _explain_failure(address.url, error) from error
    with client:
        yield client


def _load_certificates() -> Security:
    """Return the certificates named in Dask's configuration. Raises SecurityError if it names none, or an unusable
    file.
    """
    security: Any = Security(require_encryption=True)
    if not security.tls_ca_file or not security.tls_client_cert:
        raise SecurityError(
            "tls:// needs a certificate of your own and that of the authority that signs for the cluster",
            hint="set DASK_DISTRIBUTED__COMM__TLS__CA_FILE, ...__TLS__CLIENT__CERT and ...__TLS__CLIENT__KEY",
            code="E-TLS",
        )
    check_certificate_files(security.tls_ca_file, security.tls_client_cert, security.tls_client_key)
    return security


def _explain_failure(url: str, error: BaseException) -> ClusterError | SecurityError:
    """Return the error that explains a failed connection: nothing listens, a wrong certificate, or another protocol."""
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
    """Return the error for tls:// if the server does not speak TLS, or for tcp:// if it does; else None."""
    encrypted = probe_tls(url)
    if encrypted is None or encrypted == url.startswith("tls:"):
        return None
    right, wrong = ("tls", "tcp") if encrypted else ("tcp", "tls")
    hint = f"pass --cluster {right}{url[3:]}, if that is the scheduler you mean"
    return ClusterError(f"what answers at {url} speaks {right}, not {wrong}", hint=hint)
