"""Objects of object stores (s3, gs, az) and files of web servers (https), through obstore, the only module that knows it.

A location is a URL such as ``s3://bucket/folder/train.zarr``. Ranges are read as a stream of pieces into memory of the caller.

**Faults that pass.** A request that fails with a status such as 503, whose connection is reset or ends early, or that takes too long, is
made again after a pause drawn uniformly from [0, min(MAX_PAUSE, FIRST_PAUSE 2^n)] seconds. It goes on after the bytes that have arrived,
provided that the object still has the same ETag. ``TRIES`` tries in a row without a new byte are an error.

**Slow answers.** A few answers of many begin far later than the others, and one that is asked for again is mostly fast. A try is given up
when no byte arrives for four times the average seconds to a first byte, from the third try on for ``LIMITS[-1]`` seconds. No try is given
up for the time that it takes in all.

**Fewer in flight.** When a service answers that it is busy, the number of requests that this process may have in flight is halved, at
most once a second, and grows again by one each second.

obstore hands over changed bits without a word: the caller compares checksums. What is sent to S3 is signed with its sha256, which the
service compares. Texts of obstore's errors can contain parts of requests and never become part of a message.

**Writing.** An object appears at once and whole. ``create_object`` fails if there is one already, and ``replace_object`` if it is no longer
the one that was read, so that of two writers one is refused. A request whose answer was lost may have been carried out: where a repeated
one is refused, the object is read and compared with what was sent.
"""

from __future__ import annotations

import configparser
import os
import random
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import lru_cache
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from streamsvm.errors import (
    DataError,
    ExistsError,
    MissingError,
    SecurityError,
    StorageError,
    StreamSVMError,
    UsageError,
)
from streamsvm.input_files import split_url
from streamsvm.type_aliases import BytesLike

if TYPE_CHECKING:
    from obstore.store import ObjectStore

TRIES = 8
FIRST_PAUSE, MAX_PAUSE = 0.05, 5.0
LIMITS = (0.5, 1.0, 2.0, 4.0, 8.0, 30.0)
"""Seconds without a byte after which a try can be given up. Each is a client of its own: obstore limits a client and not a request."""
MAX_SECONDS = 3600
"""Seconds that a request may take in all."""
HASTY_TRIES = 2
"""Number of tries that are given up early; each further one has the longest limit."""
MAX_IN_FLIGHT = 64
"""Largest number of requests of a process at a time."""
PIECE_BYTES = 256 << 10
"""Least bytes of a piece of a stream: more of them lie in memory beside the caller's, fewer cost processor time."""
MAX_WHOLE_BYTES = 8 << 20
"""The largest file that is sent by one request, from memory."""
SENT_PART_BYTES = 8 << 20
"""Size of the parts, of which one is in memory, while a larger file is sent."""
REMOVED_AT_ONCE = 1000
"""Number of objects that one request removes."""
BUSY = ("408", "429", "503")
ABSENT_SERVICE = "169.254.169.254"
"""The address at which a machine of a cloud gets credentials; obstore asks there when it was given none."""
CREDENTIALS = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (or a profile in ~/.aws/credentials), AWS_REGION, for other services "
    "AWS_ENDPOINT_URL, and for a public bucket AWS_SKIP_SIGNATURE=true",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS, and for a public bucket GOOGLE_SKIP_SIGNATURE=true",
    "az": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY, and for a public container AZURE_SKIP_SIGNATURE=true",
}
"""The environment variables that an access needs, by scheme."""
STATUS = re.compile(r"status code: (\d{3})")


class ObjectFacts(NamedTuple):
    """The size of an object in bytes, and its ETag, which changes with its content."""

    size: int
    etag: str | None
    version: str | None = None
    """The number of the object's version, by which gs recognizes it."""


def object_facts(url: str) -> ObjectFacts:
    """Return the size and the ETag of an object. Raises MissingError, SecurityError, StorageError."""
    obstore = _load_obstore(url)

    meta = _repeat(url, obstore.head)
    return ObjectFacts(meta["size"], meta["e_tag"], meta.get("version"))


def find_object(url: str) -> ObjectFacts | None:
    """Return the size and the ETag of an object; None if there is none at the URL. Raises SecurityError, StorageError."""
    try:
        return object_facts(url)
    except MissingError:
        return None


def is_object(url: str) -> bool:
    """Return whether there is an object at a URL. Raises SecurityError, StorageError."""
    return find_object(url) is not None


def read_object(url: str, limit: int, check: Callable[[int], None] | None = None) -> bytes:
    """Return the content of an object of at most ``limit`` bytes; ``check`` is called with its size before it is read.

    Raises MissingError, SecurityError, StorageError, what ``check`` raises, and DataError E-LIMIT for a larger object, which is not read.
    """
    obstore = _load_obstore(url)

    content = bytearray()
    etag: str | None = None

    def read_on(store: ObjectStore, key: str) -> None:
        nonlocal etag
        options: Any = {"range": {"offset": len(content)}, "if_match": etag} if content and etag else {}
        if not options:
            content.clear()
        answer = obstore.get(store, key, options=options)
        size, etag = answer.meta["size"], answer.meta["e_tag"]
        if size > limit:
            message = f"{url} has {size} bytes, {limit} are the most such a file can have"
            raise DataError(message, code="E-LIMIT", hint="restore the object, or make it again")
        if check is not None:
            check(size)
        for piece in answer.stream(min_chunk_size=PIECE_BYTES):
            if len(content) + len(piece) > size:
                raise ConnectionError("the body is longer than the object")
            content.extend(piece)
        if len(content) != size:
            raise ConnectionError("the body ended early")

    _repeat(url, read_on, progress=lambda: len(content))
    return bytes(content)


def read_range(url: str, offset: int, into: memoryview, size: int, etag: str | None = None) -> None:
    """Fill ``into`` from byte ``offset`` of an object on, which must have ``size`` bytes, and ``etag`` if it is given.

    Raises MissingError, DataError E-CHUNKS for an object of another size and E-CHANGED for one that was replaced while it was read,
    SecurityError, StorageError.
    """
    if not into:
        return
    obstore = _load_obstore(url)

    done = 0

    def read_on(store: ObjectStore, key: str) -> None:
        nonlocal done, etag
        options: Any = {"range": (offset + done, offset + len(into))}
        began = time.monotonic()
        answer = obstore.get(store, key, options=options | ({} if etag is None else {"if_match": etag}))
        _pace.add(time.monotonic() - began)
        if answer.meta["size"] != size:
            message = f"{url} has {answer.meta['size']} bytes, expected {size}"
            raise DataError(
                message, code="E-CHUNKS", hint="the object was cut or replaced: restore it, or ingest again"
            )
        etag = answer.meta["e_tag"] or etag
        for piece in answer.stream(min_chunk_size=PIECE_BYTES):
            values = memoryview(piece)
            into[done : done + len(values)] = values
            done += len(values)
        if done != len(into):
            raise ConnectionError("the body ended early")

    _repeat(url, read_on, progress=lambda: done)


class Listed(NamedTuple):
    """An object below a prefix: its URL, size and ETag."""

    url: str
    size: int
    etag: str | None


def list_objects(url: str) -> list[Listed]:
    """Return the objects whose URL begins with ``url`` and a slash, sorted by URL. Raises SecurityError, StorageError."""
    obstore = _load_obstore(url)

    root, _ = split_url(url)

    def list_all(store: ObjectStore, key: str) -> list[Listed]:
        pages = obstore.list(store, key.rstrip("/") or None)
        return [Listed(f"{root}/{one['path']}", one["size"], one["e_tag"]) for page in pages for one in page]

    return sorted(_repeat(url, list_all, needs_key=False))


def list_folder(url: str) -> list[Listed]:
    """Return the objects that lie directly below ``url`` and a slash, sorted by URL. Raises SecurityError, StorageError."""
    obstore = _load_obstore(url)

    root, _ = split_url(url)

    def list_children(store: ObjectStore, key: str) -> list[Listed]:
        found = obstore.list_with_delimiter(store, key.rstrip("/") or None)["objects"]
        return [Listed(f"{root}/{one['path']}", one["size"], one["e_tag"]) for one in found]

    return sorted(_repeat(url, list_children, needs_key=False))


# -- writing -----------------------------------------------------------------------------------------------------------


def write_object(url: str, content: BytesLike) -> None:
    """Write an object in place of any other. Raises SecurityError, StorageError."""
    _put(url, content, None)


def create_object(url: str, content: BytesLike) -> ObjectFacts:
    """Write an object where there is none, and return its facts. Raises ExistsError, SecurityError, StorageError."""
    try:
        return _put(url, content, "create")
    except ExistsError:
        if (written := _find_equal(url, content)) is not None:
            return written
        raise


def replace_object(url: str, content: BytesLike, replaced: ObjectFacts) -> ObjectFacts:
    """Write an object in place of ``replaced``, and return its facts.

    Raises DataError E-CHANGED if another writer has replaced or removed that one, SecurityError, StorageError.
    """
    try:
        version = {} if replaced.version is None else {"version": replaced.version}
        return _put(url, content, {"e_tag": replaced.etag, **version})
    except DataError:
        if (written := _find_equal(url, content)) is not None:
            return written
        raise


def upload_file(path: Path, url: str, *, create: bool = False) -> None:
    """Write the content of a file to an object; ``create``: only where there is none.

    A file of more than ``MAX_WHOLE_BYTES`` is sent in parts. Services do not say whether parts replace an object; for such a file
    it is looked up before. Raises ExistsError, SecurityError, StorageError.
    """
    size = path.stat().st_size
    if size <= MAX_WHOLE_BYTES:
        content = path.read_bytes()
        if create:
            create_object(url, content)
        else:
            write_object(url, content)
        return
    obstore = _load_obstore(url)
    if create and is_object(url):
        raise _exists_error(url)

    def send_parts(store: ObjectStore, key: str) -> None:
        obstore.put(store, key, path, use_multipart=True, chunk_size=SENT_PART_BYTES, max_concurrency=1)

    _repeat(url, send_parts, action="writing")


def remove_objects(urls: Iterable[str]) -> None:
    """Remove objects of one bucket; one that is not there is no error. Raises SecurityError, StorageError."""
    rest = iter(urls)
    while some := list(islice(rest, REMOVED_AT_ONCE)):
        with suppress(MissingError):
            _remove([split_url(url)[1] for url in some], some[0])


def _remove(keys: list[str], url: str) -> None:
    """Remove the objects with these keys in the bucket of a URL."""
    obstore = _load_obstore(url)
    _repeat(url, lambda store, _: obstore.delete(store, keys), action="removing")


def _put(url: str, content: BytesLike, mode: Any) -> ObjectFacts:
    """Write an object by one request. ``mode``: None, 'create', or the ETag and the version that are replaced."""
    obstore = _load_obstore(url)
    body = bytes(content)
    options = {} if mode is None else {"mode": mode}

    def send(store: ObjectStore, key: str) -> ObjectFacts:
        written = obstore.put(store, key, body, use_multipart=False, **options)
        return ObjectFacts(len(body), written["e_tag"], written.get("version"))

    return _repeat(url, send, action="writing")


def _find_equal(url: str, content: BytesLike) -> ObjectFacts | None:
    """Return the facts of the object if it has this content; None if it has another or is gone."""
    facts = find_object(url)
    if facts is None or facts.size != len(memoryview(content)):
        return None
    try:
        return facts if read_object(url, facts.size) == bytes(content) else None
    except (MissingError, DataError):
        return None


def _exists_error(url: str) -> ExistsError:
    return ExistsError(f"{url} exists already", hint="choose another name, or pass --overwrite")


_retried = 0
"""The number of requests that this process has repeated."""


def count_retries() -> int:
    """Return the number of requests that this process has repeated, those after damaged bytes included."""
    return _retried


def note_retry() -> None:
    """Count a request that is repeated."""
    global _retried  # noqa: PLW0603 (a counter of the process)
    with _lock:
        _retried += 1


# -- one request -------------------------------------------------------------------------------------------------------

_Result = TypeVar("_Result")
_lock = threading.Lock()


def _repeat(
    url: str,
    request: Callable[[ObjectStore, str], _Result],
    progress: Callable[[], int] = lambda: 0,
    *,
    action: str = "reading",
    needs_key: bool = True,
) -> _Result:
    """Return the result of a request, which is given a client and the key of the object; repeat it after faults that pass.

    ``progress``: the number of bytes that have arrived. ``action``: what the request does, in the words of a message. ``needs_key``:
    whether the URL must name more than a bucket. Raises the error of the request in words of this package.
    """
    root, key = split_url(url)
    if needs_key and not key:
        raise UsageError(f"{url} names no object", hint=f"write a name after it: {root}/train.zarr")
    fruitless = 0
    while True:
        arrived, began = progress(), time.monotonic()
        hasty = fruitless < HASTY_TRIES and action == "reading"  # a service may take its time to store what it is sent
        limit = _pace.limit() if hasty else LIMITS[-1]
        try:
            with _in_flight.take():
                return request(_client(root, limit, os.getpid()), key)
        except StreamSVMError:
            raise
        except Exception as error:  # noqa: BLE001 (obstore raises many kinds)
            _raise_lasting(url, error, action)
            status = _status_of(error)
            fruitless = 0 if progress() > arrived else fruitless + 1
            if status in BUSY:
                _in_flight.halve()
            elif not status and time.monotonic() - began >= limit:
                _pace.add(limit)
            if fruitless == TRIES:
                reason = f"the service answered {status}" if status else "there was no whole answer"
                raise StorageError(
                    f"{action} {url} failed after {TRIES} tries: {reason}",
                    hint="check the network and the state of the service, then run the same command again",
                ) from None  # the text of the error can contain parts of the request
            note_retry()
            time.sleep(random.uniform(0.0, min(MAX_PAUSE, FIRST_PAUSE * 2**fruitless)))


def _load_obstore(url: str) -> ModuleType:
    """Return the module obstore, which only commands on URLs import. Raises UsageError if it is not installed."""
    try:
        import obstore
    except ImportError as error:
        message = f"{url} is in an object store, and obstore is not installed"
        raise UsageError(message, hint="pip install 'streamsvm[cloud]'") from error
    return obstore


def _status_of(error: Exception) -> str:
    """Return the HTTP status in an error of obstore; '' if there was no answer."""
    found = STATUS.search(str(error))
    return found[1] if found else ""


def _raise_lasting(url: str, error: Exception, action: str) -> None:
    """Raise the error in words of this package, unless it is one that may pass."""
    kind, text = type(error).__name__, str(error)
    scheme = url.partition(":")[0]
    needs = CREDENTIALS.get(scheme)
    if isinstance(error, FileNotFoundError):
        raise MissingError(
            f"there is nothing at {url}", hint="check the name; names of objects are case sensitive"
        ) from None
    status = _status_of(error)
    refused = kind in {"PermissionDeniedError", "UnauthenticatedError"} or status in {"401", "403"}
    if refused or ABSENT_SERVICE in text:
        why = "no credentials were found" if ABSENT_SERVICE in text else "the service refused the credentials"
        given = [name for name in sorted(os.environ) if name.startswith(("AWS_", "GOOGLE_", "AZURE_"))]
        known = f" (of these, the environment has {', '.join(given)})" if given else ""
        hint = "it may be for other users only" if needs is None else f"set {needs}{known}"
        raise SecurityError(f"{url} cannot be accessed: {why}", code="E-PERMISSION", hint=hint) from None
    if kind == "AlreadyExistsError":
        raise _exists_error(url) from None
    if kind == "PreconditionError":
        hint = "run the job again; nothing else may write to a store that is in use"
        message = f"{url} was replaced while it was being {'read' if action == 'reading' else 'written'}"
        raise DataError(message, code="E-CHANGED", hint=hint) from None
    if kind in {"NotSupportedError", "InvalidPathError", "UnknownConfigurationKeyError", "ValueError"} or (
        status.startswith("4") and status not in BUSY
    ):
        reason = f"the service answered {status}" if status else "the service does not support it"
        raise StorageError(
            f"{action} {url} failed: {reason}", hint="check the URL and the settings of the service"
        ) from None


class _Pace:
    """The average seconds to the first byte of an answer, and the limit that follows from it."""

    def __init__(self) -> None:
        self._average = LIMITS[1] / 4

    def add(self, seconds: float) -> None:
        """Count an answer that began after so many seconds."""
        self._average += (seconds - self._average) / 16

    def limit(self) -> float:
        """Return the seconds without a byte after which a try is given up."""
        return next((limit for limit in LIMITS if limit >= 4 * self._average), LIMITS[-1])


class _InFlight:
    """Bounds the requests that are made at the same time."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._running = 0
        self._most = float(MAX_IN_FLIGHT)
        self._counted = self._halved = time.monotonic()

    @contextmanager
    def take(self) -> Iterator[None]:
        """Wait until one more request may be made; count it while the context lasts."""
        with self._changed:
            while self._running >= max(1.0, self._grow()):
                self._changed.wait(0.25)
            self._running += 1
        try:
            yield
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify()

    def halve(self) -> None:
        """Allow half as many requests, at most once a second."""
        with self._changed:
            now = time.monotonic()
            if now - self._halved >= 1.0:
                self._most, self._halved = max(1.0, min(self._grow(), self._running + 1) / 2), now

    def _grow(self) -> float:
        now = time.monotonic()
        self._most = min(float(MAX_IN_FLIGHT), self._most + now - self._counted)
        self._counted = now
        return self._most


_pace, _in_flight = _Pace(), _InFlight()


@lru_cache(maxsize=4 * len(LIMITS))
def _client(root: str, seconds: float, process: int) -> ObjectStore:  # noqa: ARG001 (part of the key of the cache)
    """Return a client for a bucket that gives up after ``seconds`` without a byte. ``process``: a child process needs its own."""
    from obstore.store import from_url

    config: dict[str, Any] = _profile_settings() if root.startswith("s3:") else {}
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
    plain = root.startswith("http:") or (root.startswith("s3:") and endpoint.startswith("http:"))
    limit, all_in_all = timedelta(seconds=seconds), timedelta(seconds=MAX_SECONDS)
    return from_url(  # type: ignore[call-overload]
        root,
        client_options={
            "timeout": all_in_all,
            "read_timeout": limit,
            "connect_timeout": timedelta(seconds=max(seconds, LIMITS[1])),
            "allow_http": plain,
        },
        retry_config={"max_retries": 0},
        **({"config": config} if config else {}),
    )


def _profile_settings() -> dict[str, str]:
    """Return the keys and the region of the profile in ~/.aws, unless the environment has keys; obstore reads only the environment."""
    if os.environ.get("AWS_ACCESS_KEY_ID") or os.environ.get("AWS_SKIP_SIGNATURE"):
        return {}
    profile = os.environ.get("AWS_PROFILE", "default")
    found: dict[str, str] = {}
    places = (
        ("AWS_CONFIG_FILE", "config", f"profile {profile}"),
        ("AWS_SHARED_CREDENTIALS_FILE", "credentials", profile),
    )
    for variable, name, section in places:
        parser = configparser.RawConfigParser()
        try:
            parser.read(os.environ.get(variable) or Path.home() / ".aws" / name)
        except (OSError, configparser.Error, UnicodeError):
            continue
        for one in (section, profile):
            if parser.has_section(one):
                found |= dict(parser.items(one))
    names = {"aws_access_key_id", "aws_secret_access_key", "aws_session_token", "region"}
    found = {key: value for key, value in found.items() if key in names}
    return {} if "aws_access_key_id" not in found else found
