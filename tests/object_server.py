"""A server of objects on the loopback that speaks the few verbs of S3 which are needed here, with faults drawn from a seed.

It checks no signature: what a real service does about credentials is not tested with it.
"""

from __future__ import annotations

import hashlib
import random
import re
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socket import SO_LINGER, SOL_SOCKET
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape, unescape

import pytest

from streamsvm import object_store

ACCESS_KEY, SECRET = "an-access-key", "the-secret-that-nobody-sees"
BUSY = b'<?xml version="1.0"?><Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>'
LEAST_FAULTY = 200
"""Bodies with fewer bytes are neither cut nor changed."""
LONG_TAIL = bytes(64 << 20)


class ObjectServer(ThreadingHTTPServer):
    """Objects in memory by '/bucket/key'. ``faults``: the probability of each fault, by its name: busy (503), reset, cut,
    flip (one bit), hang (``hang_seconds``), long (cut; the answer with the rest has ``LONG_TAIL`` after it). Requests that write have the faults busy, reset
    and lost: carried out, but without an answer.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects: dict[str, bytes] = {}
        self.faults: Mapping[str, float] = {}
        self.hang_seconds = 3.0
        self.denied = False
        """Whether every request is refused with 403."""
        self.salt = b""
        """Added to the bytes of which ETags are the MD5."""
        self.gone = False
        """Whether every connection is reset."""
        self.requests: Counter[str] = Counter()
        """The number of requests by verb, of faults by name, and of bytes of bodies as 'bytes'."""
        self.parts: dict[str, dict[int, bytes]] = {}
        """The parts of unfinished uploads, by their number."""
        self.written: list[str] = []
        """The keys that were written, in order."""
        self.keys: list[str] = []
        """The keys that were read, in order."""
        self.lock = threading.Lock()
        self.random = random.Random(0)

    @property
    def url(self) -> str:
        """The address of the server."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def environment(self) -> dict[str, str]:
        """Return the variables by which clients of S3 find this server."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
        }

    def put_folder(self, folder: Path, prefix: str) -> None:
        """Put the files of a folder below '/bucket/key'."""
        for path in folder.rglob("*"):
            if path.is_file():
                self.objects[f"{prefix}/{path.relative_to(folder)}"] = path.read_bytes()

    def draw_fault(self) -> str:
        """Return the name of a fault, or '' for none."""
        with self.lock:
            draw = self.random.random()
            for name, probability in self.faults.items():
                if draw < probability:
                    self.requests[name] += 1
                    return name
                draw -= probability
        return ""

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of connections that a client has closed."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: ObjectServer

    def log_message(self, *words: object) -> None:
        """Write no log."""

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def do_PUT(self) -> None:
        query, body = parse_qs(urlsplit(self.path).query), self.rfile.read(int(self.headers["Content-Length"]))
        key, objects = self._count("PUT"), self.server.objects
        if (fault := self._fault_of_write()) is None:
            return None
        with self.server.lock:
            if "partNumber" in query:
                self.server.parts.setdefault(query["uploadId"][0], {})[int(query["partNumber"][0])] = body
            elif (self.headers.get("If-None-Match") == "*" and key in objects) or (
                "If-Match" in self.headers and (key not in objects or _tag(objects[key]) != self.headers["If-Match"])
            ):
                return self._send(412, b"<Error><Code>PreconditionFailed</Code></Error>")
            else:
                objects[key] = body
                self.server.written.append(key)
        return self._drop() if fault == "lost" else self._send(200, b"", {"ETag": _tag(body + self.server.salt)})

    def do_POST(self) -> None:
        query, body = parse_qs(urlsplit(self.path).query, keep_blank_values=True), self.headers["Content-Length"]
        content = self.rfile.read(int(body or 0)).decode()
        key = self._count("POST")
        if "delete" in query:
            if self._fault_of_write() is not None:
                names = re.findall("<Key>(.*?)</Key>", content)
                for name in names:
                    self.server.objects.pop(f"{key.rstrip('/')}/{unescape(name)}", None)
                entries = "".join(f"<Deleted><Key>{name}</Key></Deleted>" for name in names)
                self._send(200, f"<DeleteResult>{entries}</DeleteResult>".encode())
            return None
        if "uploads" in query:
            answer = f"<InitiateMultipartUploadResult><UploadId>{key}</UploadId></InitiateMultipartUploadResult>"
            return self._send(200, answer.encode())
        parts = self.server.parts.pop(query["uploadId"][0])
        self.server.objects[key] = b"".join(parts[number] for number in sorted(parts))
        self.server.written.append(key)
        answer = f"<CompleteMultipartUploadResult><ETag>{_tag(self.server.objects[key])}</ETag></CompleteMultipartUploadResult>"
        return self._send(200, answer.encode())

    def do_DELETE(self) -> None:
        key = self._count("DELETE")
        if self._fault_of_write() is not None:
            self.server.objects.pop(key, None)
            self._send(204, b"")

    def _fault_of_write(self) -> str | None:
        """Return the fault of a request that writes: '' or 'lost', whose answer is not sent; None if the request was refused."""
        if self.server.denied:
            return self._send(403, b"<Error><Code>AccessDenied</Code></Error>")
        fault = "reset" if self.server.gone else self.server.draw_fault()
        if fault == "busy":
            return self._send(503, BUSY)
        if fault in ("reset", "hang"):
            return self._drop()
        return fault if fault == "lost" else ""

    def _count(self, verb: str) -> str:
        key = unquote(urlsplit(self.path).path)
        with self.server.lock:
            self.server.requests[verb] += 1
            if verb == "GET":
                self.server.keys.append(key)
        return key

    def _answer(self) -> None:  # noqa: PLR0911 (an answer a line)
        query = parse_qs(urlsplit(self.path).query)
        key = self._count(self.command)
        if self.server.gone:
            return self._drop()
        if self.server.denied:
            return self._send(403, b"<Error><Code>AccessDenied</Code></Error>")
        fault = self.server.draw_fault() if self.command == "GET" else ""
        if fault == "busy":
            return self._send(503, BUSY)
        if fault == "reset":
            return self._drop()
        if fault == "hang":
            time.sleep(self.server.hang_seconds)
            return self._drop()
        if "list-type" in query:
            return self._send(200, self._list(key, query.get("prefix", [""])[0], query.get("delimiter", [""])[0]))
        body = self.server.objects.get(key)
        if body is None:
            return self._send(404, b"<Error><Code>NoSuchKey</Code></Error>")
        if self.headers.get("If-Match", _tag(body + self.server.salt)) != _tag(body + self.server.salt):
            return self._send(412, b"<Error><Code>PreconditionFailed</Code></Error>")
        return self._send_object(body, fault)

    def _send_object(self, body: bytes, fault: str) -> None:
        status = 200
        head = {
            "ETag": _tag(body + self.server.salt),
            "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT",
            "Accept-Ranges": "bytes",
        }
        if wanted := self.headers.get("Range"):
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            start = int(first) if first else max(0, len(body) - int(last))
            stop = min(len(body), int(last) + 1) if first and last else len(body)
            head["Content-Range"] = f"bytes {start}-{stop - 1}/{len(body)}"
            status, body = 206, body[start:stop]
        cut, tail = None, b""
        if fault == "long":
            cut, tail = (None, LONG_TAIL) if wanted else (len(body) // 2, b"")
        if len(body) >= LEAST_FAULTY and fault in {"cut", "flip"}:
            place = self.server.random.randrange(len(body))
            if fault == "flip":
                changed = bytearray(body)
                changed[place] ^= 1 << self.server.random.randrange(8)
                body = bytes(changed)
            else:
                cut = place
        self._send(status, body, head, cut, tail)

    def _list(self, bucket: str, prefix: str, delimiter: str) -> bytes:
        start = f"{bucket.rstrip('/')}/"
        found = sorted(
            (k.removeprefix(start), v)
            for k, v in list(self.server.objects.items())
            if k.startswith(start + prefix) and not (delimiter and delimiter in k.removeprefix(start + prefix))
        )
        entries = "".join(
            f"<Contents><Key>{escape(key)}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
            f"<ETag>{_tag(body)}</ETag><Size>{len(body)}</Size></Contents>"
            for key, body in found
        )
        return f"<ListBucketResult><IsTruncated>false</IsTruncated>{entries}</ListBucketResult>".encode()

    def _send(
        self, status: int, body: bytes, head: Mapping[str, str] = {}, cut: int | None = None, tail: bytes = b""
    ) -> None:
        self.send_response(status)
        for name, value in head.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body) + len(tail)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body[:cut])
            self.wfile.write(tail)
            self.server.requests["bytes"] += len(body[:cut])
        if cut is not None:
            self._drop()

    def _drop(self) -> None:
        """Close the connection with a reset."""
        self.connection.setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True


@lru_cache(maxsize=256)
def _tag(body: bytes) -> str:
    return f'"{hashlib.md5(body, usedforsecurity=False).hexdigest()}"'


@contextmanager
def serve_folder(folder: Path, prefix: str, patch: pytest.MonkeyPatch) -> Iterator[ObjectServer]:
    """Run a server with the files of a folder, which the environment names; requests are repeated without long pauses."""
    patch.setattr(object_store, "FIRST_PAUSE", 0.001)
    patch.setattr(object_store, "_in_flight", object_store._InFlight())
    object_store._client.cache_clear()
    with serve_objects() as server:
        server.put_folder(folder, prefix)
        for name, value in server.environment().items():
            patch.setenv(name, value)
        yield server


@contextmanager
def serve_objects() -> Iterator[ObjectServer]:
    """Run a server in threads of this process."""
    server = ObjectServer()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
