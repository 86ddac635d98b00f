"""A certificate for one run: with it the processes of a cluster of our own know each other, and nobody else is let in.

Every process of a cluster runs what it is sent, and a port on the loopback address is open to every user of the machine.
So scheduler, workers and client speak TLS and each must show the same certificate, which is made here, signs itself,
lives in memory and is worthless when the run is over. Dask makes such certificates with the package ``cryptography``;
the standard library's ``ssl`` uses them but makes none, and making one takes a curve and some DER:

- key pair and signature: ECDSA on P-256 (FIPS 186-5, SEC 1), with a random nonce, over SHA-256;
- certificate: X.509 version 3 (RFC 5280), its own authority, for ten years before and after: clocks may be wrong.

The arithmetic is not hardened against somebody who measures its time: it is done once, for one run, on one's own machine.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from typing import Any

P = 2**256 - 2**224 + 2**192 + 2**96 - 1
"""The field of P-256; the curve is y^2 = x^3 - 3 x + b, b of no use here."""
N = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
"""The order of the base point."""
BASE = (
    0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
    0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5,
)
Point = tuple[int, int] | None
"""A point of the curve; None is the one at infinity."""

SEQUENCE, SET, INTEGER, BITS, OCTETS, OID, UTF8, TIME, TRUE = 0x30, 0x31, 2, 3, 4, 6, 12, 0x18, b"\x01\x01\xff"
EC_KEY, P256, ECDSA_SHA256, COMMON_NAME = "2a8648ce3d0201", "2a8648ce3d030107", "2a8648ce3d040302", "550403"
BASIC_CONSTRAINTS, KEY_USAGE, SUBJECT_KEY = "551d13", "551d0f", "551d0e"
VALID = b"20160101000000Z", b"20991231235959Z"


def add(one: Point, other: Point) -> Point:
    """Add two points of the curve."""
    if one is None or other is None:
        return other if one is None else one
    (x1, y1), (x2, y2) = one, other
    if x1 == x2 and (y1 + y2) % P == 0:
        return None
    slope = 3 * (x1 * x1 - 1) * pow(2 * y1, -1, P) if one == other else (y2 - y1) * pow(x2 - x1, -1, P)
    x = (slope * slope - x1 - x2) % P
    return x, (slope * (x1 - x) - y1) % P


def times(factor: int, point: Point) -> Point:
    """Add a point to itself so many times, by doubling."""
    found: Point = None
    while factor:
        if factor & 1:
            found = add(found, point)
        point, factor = add(point, point), factor >> 1
    return found


def sign(key: int, message: bytes) -> bytes:
    """Return the ECDSA signature of a message, as DER."""
    digest = int.from_bytes(hashlib.sha256(message).digest(), "big")
    while True:
        nonce = 1 + secrets.randbelow(N - 1)
        point = times(nonce, BASE)
        assert point is not None
        r = point[0] % N
        s = pow(nonce, -1, N) * (digest + r * key) % N
        if r and s:
            return _der(SEQUENCE, _integer(r), _integer(s))


def made() -> tuple[str, str]:
    """Return a new private key and a certificate of it, both as PEM text."""
    key = 1 + secrets.randbelow(N - 1)
    public = times(key, BASE)
    assert public is not None
    point = b"\x04" + b"".join(coordinate.to_bytes(32, "big") for coordinate in public)
    body = _body(point)
    certificate = _der(SEQUENCE, body, _der(SEQUENCE, _oid(ECDSA_SHA256)), _bits(sign(key, body)))
    private = _der(
        SEQUENCE, _integer(1), _der(OCTETS, key.to_bytes(32, "big")), _der(0xA0, _oid(P256)), _der(0xA1, _bits(point))
    )
    return _pem("EC PRIVATE KEY", private), _pem("CERTIFICATE", certificate)


def _body(point: bytes) -> bytes:
    """What is signed: whose key this is, and what it is good for."""
    name = _der(SEQUENCE, _der(SET, _der(SEQUENCE, _oid(COMMON_NAME), _der(UTF8, b"streamsvm"))))
    extensions = (
        _der(SEQUENCE, _oid(BASIC_CONSTRAINTS), TRUE, _der(OCTETS, _der(SEQUENCE, TRUE))),
        _der(SEQUENCE, _oid(KEY_USAGE), TRUE, _der(OCTETS, _der(BITS, b"\x02\x84"))),  # signatures, certificates
        _der(SEQUENCE, _oid(SUBJECT_KEY), _der(OCTETS, _der(OCTETS, hashlib.sha256(point).digest()[:20]))),
    )
    return _der(
        SEQUENCE,
        _der(0xA0, _integer(2)),
        _integer(1 + secrets.randbits(63)),
        _der(SEQUENCE, _oid(ECDSA_SHA256)),
        name,
        _der(SEQUENCE, *(_der(TIME, moment) for moment in VALID)),
        name,
        _der(SEQUENCE, _der(SEQUENCE, _oid(EC_KEY), _oid(P256)), _bits(point)),
        _der(0xA3, _der(SEQUENCE, *extensions)),
    )


def _der(tag: int, *contents: bytes) -> bytes:
    """One element: its tag, its length, what is in it (X.690)."""
    content = b"".join(contents)
    if len(content) < 0x80:
        return bytes([tag, len(content)]) + content
    length = len(content).to_bytes((len(content).bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(length)]) + length + content


def _integer(value: int) -> bytes:
    return _der(INTEGER, value.to_bytes(value.bit_length() // 8 + 1, "big"))


def _oid(encoded: str) -> bytes:
    return _der(OID, bytes.fromhex(encoded))


def _bits(content: bytes) -> bytes:
    return _der(BITS, b"\x00" + content)


def _pem(what: str, content: bytes) -> str:
    text = base64.encodebytes(content).decode().replace("\n", "")
    lines = "\n".join(text[at : at + 64] for at in range(0, len(text), 64))
    return f"-----BEGIN {what}-----\n{lines}\n-----END {what}-----\n"


def security() -> Any:
    """Return what Dask is given so that every process of a cluster must show a certificate of this run."""
    from distributed.security import Security

    key, certificate = made()
    roles = ("client", "scheduler", "worker")
    keys = {f"tls_{role}_key": key for role in roles} | {f"tls_{role}_cert": certificate for role in roles}
    return Security(require_encryption=True, tls_ca_file=certificate, **keys)
