"""A local cluster talks to nobody without the certificate of its run."""

from __future__ import annotations

import socket
import ssl
from typing import Any

import psutil
import pytest
from distributed import Client
from distributed.comm.core import CommClosedError
from distributed.security import Security

from streamsvm.cluster.connection import connect_cluster


def _stranger() -> ssl.SSLContext:
    """The context of a TLS client that accepts any server and shows no certificate."""
    context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


ANSWERED = 60
"""Seconds that an answer may take, which is a refusal: a port that says nothing is no TLS, and on a busy machine it was a
handshake of more than three seconds."""


def test_cluster_answers_nobody_without_its_certificate() -> None:
    """Every port of the cluster speaks TLS only, to its own only; no pages are served."""
    with connect_cluster("local:1") as executor:
        client: Any = executor.client
        address = client.scheduler.address
        assert address.startswith("tls://127.0.0.1:")
        with pytest.raises((OSError, CommClosedError, TimeoutError)):
            Client(address, security=Security.temporary(), timeout=3, set_as_default=False)
        with pytest.raises((OSError, CommClosedError, TimeoutError)):
            Client(address.replace("tls://", "tcp://"), timeout=3, set_as_default=False)
        me, stranger = psutil.Process(), _stranger()
        found = [
            c.laddr for p in (me, *me.children(recursive=True)) for c in p.net_connections() if c.status == "LISTEN"
        ]
        assert found
        for ip, port in found:
            assert ip == "127.0.0.1"
            with (
                pytest.raises((ssl.SSLError, ConnectionError)),
                socket.create_connection((ip, port), ANSWERED) as plain,
                stranger.wrap_socket(plain) as wrapped,
            ):
                wrapped.recv(1)
