"""A cluster of our own lets nobody else in: certificates made here are whole, and a stranger gets no answer."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
from pathlib import Path
from typing import Any

import psutil
import pytest
from distributed import Client
from distributed.comm.core import CommClosedError

from streamsvm.cluster import certificate
from streamsvm.cluster.connection import connected


def test_the_curve_is_p256() -> None:
    """Multiples of its base point, from the test vectors of NIST."""
    assert certificate.times(certificate.N, certificate.BASE) is None
    assert certificate.times(certificate.N - 1, certificate.BASE) == (
        certificate.BASE[0],
        certificate.P - certificate.BASE[1],
    )
    twice = 0x7CF27B188D034F7E8A52380304B51AC3C08969E277F21B35A60B48FC47669978
    found = certificate.times(2, certificate.BASE)
    assert found is not None
    assert found[0] == twice
    assert certificate.add(certificate.BASE, certificate.BASE) == found
    for factor in (3, 7, 2**200 + 1):
        step = certificate.add(certificate.times(factor - 1, certificate.BASE), certificate.BASE)
        assert certificate.times(factor, certificate.BASE) == step


def test_two_of_a_run_meet_and_a_stranger_does_not(tmp_path: Path) -> None:
    """The handshake of the standard library, both sides showing certificates."""
    ours, theirs = _context(tmp_path / "ours", server=True), _context(tmp_path / "theirs", server=False)
    same = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=str(tmp_path / "ours" / "c.pem"))
    same.load_cert_chain(tmp_path / "ours" / "c.pem", tmp_path / "ours" / "k.pem")
    same.check_hostname = False
    same.verify_flags |= ssl.VERIFY_X509_STRICT
    assert _handshake(ours, same)
    with pytest.raises(ssl.SSLError):
        _handshake(ours, theirs)


def _context(folder: Path, *, server: bool) -> ssl.SSLContext:
    folder.mkdir()
    key, text = certificate.made()
    (folder / "k.pem").write_text(key)
    (folder / "c.pem").write_text(text)
    context = ssl.create_default_context(
        ssl.Purpose.CLIENT_AUTH if server else ssl.Purpose.SERVER_AUTH, cafile=str(folder / "c.pem")
    )
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(folder / "c.pem", folder / "k.pem")
    return context


def _handshake(server: ssl.SSLContext, client: ssl.SSLContext) -> bool:
    """Both sides in memory, until neither wants more."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [server.wrap_bio(to_server, to_client, server_side=True), client.wrap_bio(to_client, to_server)]
    done = [False, False]
    for _ in range(20):
        for k, end in enumerate(ends):
            try:
                end.do_handshake()
                done[k] = True
            except ssl.SSLWantReadError:
                pass
    return all(done)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_openssl_finds_nothing_wrong(tmp_path: Path) -> None:
    for attempt in range(5):  # lengths of numbers differ
        _context(tmp_path / str(attempt), server=True)
        text = str(tmp_path / str(attempt) / "c.pem")
        subprocess.run(["openssl", "verify", "-x509_strict", "-CAfile", text, text], check=True, capture_output=True)


ANSWERED = 60
"""Seconds that an answer may take, which is a refusal: a port that says nothing is no TLS, and on a busy machine it was a
handshake of more than three seconds."""


def test_nobody_else_is_answered(tmp_path: Path) -> None:
    """Every port of the cluster speaks TLS only, to its own only; no pages are served."""
    with connected("local:1") as executor:
        client: Any = executor._client
        address = client.scheduler.address
        assert address.startswith("tls://127.0.0.1:")
        with pytest.raises((OSError, CommClosedError, TimeoutError)):
            Client(address, security=certificate.security(), timeout=3, set_as_default=False)
        with pytest.raises((OSError, CommClosedError, TimeoutError)):
            Client(address.replace("tls://", "tcp://"), timeout=3, set_as_default=False)
        me, stranger = psutil.Process(), _context(tmp_path / "stranger", server=False)
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
