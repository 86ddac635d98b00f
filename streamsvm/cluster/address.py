"""Which clusters may be used: every process of one runs whatever it is sent, so that who can reach it owns it."""

from __future__ import annotations

import ipaddress
import json
import os
import shlex
import warnings
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from streamsvm.errors import DataError, MissingError, SecurityError, UsageError, quote
from streamsvm.regular import is_file, read_whole

LARGEST_FILE = 1 << 16
LOCAL, FILE = "local", "scheduler-file"
FORMS = "tcp://127.0.0.1:8786, tls://HOST:8786, local:4 or scheduler-file:PATH"
FEW_WORKERS, PER_PROCESSOR = 16, 4
"""As many workers may be started here whatever the machine is like; more only for so many on each processor."""


class Address(NamedTuple):
    """Workers to start here, or where a scheduler listens."""

    workers: int
    """How many to start on this machine; 0: none, there is a scheduler at ``url``."""
    url: str
    """tcp:// or tls://, with host and port; empty where workers are started here."""

    @property
    def encrypted(self) -> bool:
        """Whether all that is sent is encrypted, and both sides show certificates."""
        return self.url.startswith("tls://")


def parse(text: str, *, insecure: bool = False) -> Address:
    """The address that ``--cluster`` means. Raises UsageError, MissingError, DataError, SecurityError."""
    kind, _, rest = text.partition(":")
    if kind == LOCAL:
        return Address(_workers(rest), "")
    url = _from_file(Path(rest)) if kind == FILE else text
    check_url(url, insecure=insecure)
    return Address(0, url)


def check_url(url: str, *, insecure: bool) -> None:
    """Refuse what is open to a network. Raises UsageError, SecurityError."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port, parts = None, None, urlsplit("")
    if parts.username is not None or parts.password is not None:
        hint = f"who may use a cluster is decided by certificates; write it as {FORMS}"
        raise UsageError("the address of a cluster has no user and no password", hint=hint)
    if host is None or port is None or parts.scheme not in ("tcp", "tls"):
        raise UsageError(f"{quote(url)} is no cluster", hint=f"write it as {FORMS}")
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
    """Whether a name or number means this machine, without asking anybody else."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _workers(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise UsageError(f"'local:{text}' does not say how many workers", hint="write it as local:2")
    processors = len(os.sched_getaffinity(0))
    most = max(FEW_WORKERS, PER_PROCESSOR * processors)
    if len(text) > 9 or int(text) > most:
        hint = f"a worker computes with one thread: write it as local:{processors}"
        raise UsageError(f"'local:{text}' asks for more than {most} workers of {processors} processors", hint=hint)
    return int(text)


def _from_file(path: Path) -> str:
    """The address in the file a scheduler has written with --scheduler-file."""
    if not is_file(path):
        hint = "start it with: dask scheduler --scheduler-file PATH"
        raise MissingError(f"there is no scheduler file at {path}", hint=hint)
    try:
        content: Any = json.loads(read_whole(path, LARGEST_FILE, follow=True))
        return str(content["address"])
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise DataError(f"{path} is no scheduler file", hint="one is written by dask scheduler") from error
