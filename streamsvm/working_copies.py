"""Read and write the files of a job that are at URLs, through copies on this machine.

Jobs read stores and files of rows where they are. Their other files - models, schemas, pages, predictions, the folder of a run - are read
and written as files of a temporary folder in $TMPDIR:

    s3://bucket/models/m.ssvm             FOLDER/<digits>/m.ssvm
    s3://bucket/models/m.ssvm.run/...     FOLDER/<digits>/m.ssvm.run/...

``run_with_copies`` gives the job these paths in place of the URLs. What an earlier run has left at the URL of an output is copied here
first, so that --resume and --overwrite decide by the same files as on a disk. Checkpoints are copied to their objects as they are written
(``publish``), everything else when the job ends, and last the file that says that the output is complete: the model, the manifest of a
store. It is written only if there is none, unless --overwrite says otherwise, so that of two writers one is refused.

Units of a store are no files here: they go to their objects as they are cut (``store.remote_writes``).

**The lock** of an output is an object beside it, ``.m.ssvm.lock``, which its writer renews every ``RENEWAL_SECONDS``. It is stale when
that has not happened for ``STALE_SECONDS``, or when its writer was a process of this machine that has ended. A writer that finds that
another one has taken its lock writes nothing more.

Messages, events and results name the URLs, not the copies (``input_files.restore_urls``).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from streamsvm import object_store
from streamsvm.config.options import Checked, options_of
from streamsvm.errors import DataError, ExistsError, StorageError, StreamSVMError, UsageError
from streamsvm.input_files import WEB, copied_folders, find_url, restore_urls, split_url
from streamsvm.locks import describe_process, is_process_alive, process_signature
from streamsvm.type_aliases import JsonObject

INPUT, FILE, MODEL, FOLDER, STORE, EMBEDDING = "input", "file", "model", "folder", "store", "embedding"
"""Values of ``Option.copies``: a file that is read, and the kinds of outputs."""
STORES = (STORE, EMBEDDING)
MANIFEST = "manifest.json"
UNIT = re.compile(r"(?:X|y|weight)/(?:(?:data|indices|indptr)/)?c\.\d+(?:\.0)?")
"""Names of the units of a store."""
KEPT_HERE = ("embedding.zarr",)
"""Folders of a run that stay on this machine: a resumed run on another one makes them again."""
PAUSE_FACTOR = 20
"""Least pause between two copies of a journal, as a multiple of the time that the last one took."""
LAST_OF_FOLDER = "table.json"
"""The file that is written last into the folder of a search."""
DOWNLOADS = 8
"""How often a file is copied from its object whose bytes change on the way."""
UPLOADS = 4
"""Number of units of a store that are sent at the same time."""
RENEWAL_SECONDS, STALE_SECONDS = 15.0, 60.0
LARGEST_LOCK = 4096
_Result = TypeVar("_Result")


class FoundObject(NamedTuple):
    """An object that an earlier run has left: its size and, for one that was copied, the time of the copy."""

    size: int
    time: int | None


class WorkingFolder:
    """The files of one output at a URL, in a folder of this machine."""

    def __init__(self, url: str, kind: str, folder: Path, *, overwrite: bool) -> None:
        self.url, self.kind = url, kind
        self.parent, _, self.name = url.rpartition("/")
        self.folder, self.overwrite = folder, overwrite
        self.path = folder / self.name
        self.stores = [self.name]
        """The names of the stores: a test store can lie beside the store."""
        self.units: dict[str, int] = {}
        """The size of each unit of a store that an earlier run has left, by its name below ``parent``."""
        self._published = self._took = 0.0
        """The moment when the files were published last, by ``time.monotonic``, and the seconds that it took."""
        self._objects: dict[str, FoundObject] = {}
        """The objects of the output, by their name below ``parent``."""
        self.lock: RemoteLock | None = None

    def fetch(self) -> None:
        """Copy what an earlier run has left to this machine. Raises SecurityError, StorageError, DataError."""
        found = (
            [] if (facts := object_store.find_object(self.url)) is None else [object_store.Listed(self.url, *facts[:2])]
        )
        if self.kind == MODEL:
            stem, suffix = os.path.splitext(self.name)
            pattern = re.compile(rf"{re.escape(stem)}(\.C=.*{re.escape(suffix)}|\.html)")
            found += [
                one for one in object_store.list_folder(self.parent) if pattern.fullmatch(one.url.rpartition("/")[2])
            ]
            found += object_store.list_objects(f"{self.url}.run")
        elif self.kind == FOLDER:
            found += object_store.list_objects(self.url)
        elif self.kind in STORES:
            found += [one for name in self.stores for one in object_store.list_objects(f"{self.parent}/{name}")]
        for url, size, _ in found:
            name = url.removeprefix(f"{self.parent}/")
            path = self.folder / name
            if self.kind in STORES and UNIT.fullmatch(name.partition("/")[2]):
                self.units[name] = size
                (self.folder / name.partition("/")[0]).mkdir(exist_ok=True)
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            download_file(url, path)
            self._objects[name] = FoundObject(size, path.stat().st_mtime_ns)

    def publish(self, *, complete: bool) -> None:
        """Copy files that have changed to their objects; ``complete``: also those that say that the output is complete, and remove
        objects whose files are gone.

        Raises ExistsError if another writer was faster, or has taken the lock; SecurityError, StorageError.
        """
        began = time.monotonic()
        main = f"{self.name}/{MANIFEST}"
        names = sorted(self._files(), key=lambda name: (self._is_last(name), "/ckpt-" in name, name == main, name))
        for name in names:
            if complete or not self._is_last(name):
                self._upload(name)
        if complete:
            gone = self._objects.keys() - set(names)
            object_store.remove_objects(f"{self.parent}/{name}" for name in sorted(gone))
            for name in gone:
                del self._objects[name]
        self._published = time.monotonic()
        self._took = self._published - began

    def publish_sometimes(self) -> None:
        """Publish unless that would take more than a twentieth of the time. Raises the errors of ``publish``."""
        if time.monotonic() - self._published >= PAUSE_FACTOR * self._took:
            self.publish(complete=False)

    def remove(self, folder: Path) -> None:
        """Remove all objects of a folder. Raises SecurityError, StorageError."""
        prefix = str(folder.relative_to(self.folder))
        object_store.remove_objects(one.url for one in object_store.list_objects(f"{self.parent}/{prefix}"))
        self._objects = {name: one for name, one in self._objects.items() if not name.startswith(f"{prefix}/")}

    def url_of(self, path: Path) -> str:
        """Return the URL of a file or folder below ``folder``."""
        return f"{self.parent}/{path.relative_to(self.folder)}"

    def check_lock(self) -> None:
        """Raise ExistsError E-LOCKED if another writer has taken the lock."""
        if self.lock is not None:
            self.lock.check()

    def _upload(self, name: str) -> None:
        path, known = self.folder / name, self._objects.get(name)
        status = path.stat()
        current = FoundObject(status.st_size, status.st_mtime_ns)
        if current == known:
            return
        self.check_lock()
        create = self._is_last(name) and known is None and not self.overwrite
        object_store.upload_file(path, f"{self.parent}/{name}", create=create)
        self._objects[name] = current

    def _files(self) -> Iterator[str]:
        """Yield the names below ``folder`` of the files that are copied: all but locks and unfinished ones."""
        for path in self.folder.rglob("*"):
            name = str(path.relative_to(self.folder))
            parts = Path(name).parts
            if path.is_file() and not any(part.startswith(".") or part in KEPT_HERE for part in parts):
                yield name

    def _is_last(self, name: str) -> bool:
        """Return whether a file says that the output, or a model of it, is complete."""
        if self.kind in STORES:
            return name.endswith(f"/{MANIFEST}")
        if self.kind == FOLDER:
            return name.endswith(f"/{LAST_OF_FOLDER}")
        return "/" not in name


def download_file(url: str, path: Path) -> None:
    """Copy an object to a file.

    A bit that changes on the way is noticed by the MD5, which is the ETag of most objects of S3; of others, by a second copy: the object
    is asked for until the MD5 is the ETag, or that of the copy before. Raises MissingError, SecurityError, StorageError, DataError.
    """
    facts = object_store.object_facts(url)
    known = {(facts.etag or "").strip('"')}
    for _ in range(DOWNLOADS):
        md5 = _download_once(url, path, facts)
        if md5 in known:
            return
        known.add(md5)
    message = f"{url} arrived with other bytes each of {DOWNLOADS} times"
    raise DataError(message, code="E-CRC", hint="check the network, then run the same command again")


def _download_once(url: str, path: Path, facts: object_store.ObjectFacts) -> str:
    """Copy an object to a file and return the MD5 of what arrived."""
    md5 = hashlib.md5(usedforsecurity=False)
    piece = memoryview(bytearray(min(object_store.SENT_PART_BYTES, facts.size)))
    with open(path, "wb", buffering=0) as file:
        for start in range(0, facts.size, len(piece) or 1):
            part = piece[: min(len(piece), facts.size - start)]
            object_store.read_range(url, start, part, facts.size, facts.etag)
            file.write(part)
            md5.update(part)
    return md5.hexdigest()


_open: list[WorkingFolder] = []
"""The outputs at URLs of the job that this process runs."""


def find_working_folder(path: Path) -> WorkingFolder | None:
    """Return the output at a URL to which a path belongs; None for a path that is only on this machine."""
    return next((one for one in _open if path.is_relative_to(one.folder)), None)


def publish(path: Path) -> None:
    """Copy the changed files of the output to which ``path`` belongs to their objects, if it is at a URL.

    Raises ExistsError E-LOCKED, SecurityError, StorageError.
    """
    if (folder := find_working_folder(path)) is not None:
        folder.publish(complete=False)


def publish_journal(path: Path) -> None:
    """Copy a journal, and what else has changed, to its object from time to time, if its output is at a URL.

    Raises ExistsError E-LOCKED, SecurityError, StorageError.
    """
    if (folder := find_working_folder(path)) is not None:
        folder.publish_sometimes()


def remove_published(path: Path) -> None:
    """Remove the objects of a folder, if its output is at a URL. Raises SecurityError, StorageError."""
    if (folder := find_working_folder(path)) is not None:
        folder.remove(path)


def run_with_copies(
    action: Callable[[Any, Callable[[JsonObject], None]], _Result], job: Checked, report: Callable[[JsonObject], None]
) -> _Result:
    """Return the result of a job, some of whose files may be at URLs.

    Raises what the job raises; UsageError, ExistsError, MissingError, SecurityError and StorageError about URLs.
    """
    urls = _urls_of(job)
    if not urls:
        return action(job, report)
    with tempfile.TemporaryDirectory(prefix="streamsvm-") as root, ExitStack() as stack:
        overwrite, resume = bool(getattr(job, "overwrite", False)), bool(getattr(job, "resume", False))
        replaced: dict[str, Any] = {}
        outputs: list[WorkingFolder] = []
        for name, kind, urls_of_option in urls:
            paths: list[Any] = []
            for url in urls_of_option:
                if find_url(url) is None:
                    paths.append(url)
                    continue
                folder = Path(root, hashlib.sha256(f"{name} {url}".encode()).hexdigest()[:12])
                folder.mkdir(exist_ok=True)
                copied_folders[str(folder)] = url.rpartition("/")[0]
                stack.callback(copied_folders.pop, str(folder), None)
                paths.append(folder / url.rpartition("/")[2])
                if kind == INPUT:
                    _fetch_input(url, paths[-1])
                else:
                    outputs.append(WorkingFolder(url, kind, folder, overwrite=overwrite))
            value = getattr(job, name)
            replaced[name] = tuple(map(str, paths)) if isinstance(value, tuple | list) else type(value)(paths[0])
        stack.enter_context(_name_urls_in_errors())
        local = replace(job, **replaced)  # type: ignore[type-var]
        for output in outputs:
            if output.kind in STORES:
                output.stores = [path.name for path in local.targets() if path.parent == output.folder]  # type: ignore[attr-defined]
            stack.enter_context(_open_output(output, keep=overwrite or resume))
        result = action(local, lambda event: report(_name_urls(event)))
        for output in sorted(outputs, key=lambda one: one.kind != FILE):  # pages and arrays before the model
            output.publish(complete=True)
        return _name_urls_in_result(result)


def _urls_of(job: Checked) -> list[tuple[str, str, list[str]]]:
    """Return the options of a job of which a value is the URL of a file to copy: name, kind and values.

    Raises UsageError for an output on a web server, and for an output that is a whole bucket.
    """
    job_class: type = type(job)
    found = []
    for field in options_of(job_class):
        value, kind = getattr(job, field.name), field.option.copies
        values = list(value) if isinstance(value, tuple | list) else [value]
        urls = [find_url(one) for one in values] if kind else []
        if not any(urls):
            continue
        for url in filter(None, urls):
            if not split_url(url)[1]:
                raise UsageError(f"{url} names no object", hint=f"write a name after it: {url}/model.ssvm")
            if kind != INPUT and url.partition(":")[0] in WEB:
                message = f"{url} cannot be written: web servers are only read"
                raise UsageError(message, hint="write to s3://, gs:// or az://")
        if kind in STORES and str(value).endswith(".csv"):
            kind = FILE
        found.append((field.name, kind, [url or str(one) for url, one in zip(urls, values, strict=True)]))
    return found


def _fetch_input(url: str, path: Path) -> None:
    """Copy an input of a job: a file, or a folder and its files. Raises MissingError, SecurityError, StorageError, DataError."""
    if object_store.is_object(url):
        download_file(url, path)
        with suppress(StreamSVMError):  # a record of the run beside a model is not needed
            for one in object_store.list_objects(f"{url}.run"):
                if "/checkpoint/" not in one.url:
                    _download_below(one.url, url.rpartition("/")[0], path.parent)
        return
    files = object_store.list_objects(url)
    if not files:
        object_store.object_facts(url)  # raises MissingError
    for one in files:
        _download_below(one.url, url.rpartition("/")[0], path.parent)


def _download_below(url: str, parent: str, folder: Path) -> None:
    path = folder / url.removeprefix(f"{parent}/")
    path.parent.mkdir(parents=True, exist_ok=True)
    download_file(url, path)


@contextmanager
def _open_output(output: WorkingFolder, *, keep: bool) -> Iterator[None]:
    """Lock an output and copy what there is of it here while the context lasts; after an error, publish the record of the run.

    ``keep``: whether a complete output may be there already.
    """
    with ExitStack() as stack:
        if output.kind != FILE:
            output.lock = stack.enter_context(hold_remote_lock(f"{output.parent}/.{output.name}.lock", output.url))
        if output.kind == STORE and not keep and object_store.is_object(f"{output.url}/{MANIFEST}"):
            raise ExistsError(f"{output.url} exists already", hint="choose another name, or pass --overwrite")
        output.fetch()
        _open.append(output)
        stack.callback(_open.remove, output)
        try:
            yield
        except BaseException:
            if output.kind != FILE:
                with suppress(StreamSVMError):  # the error of the job is the one to raise
                    output.publish(complete=False)
            raise


# -- locks -------------------------------------------------------------------------------------------------------------


_held: set[str] = set()
"""The tokens of the locks that this process holds."""


class RemoteLock:
    """The lock of an output at a URL, which a thread renews."""

    def __init__(self, url: str, target: str) -> None:
        self._url, self._target = url, target
        self._token = secrets.token_hex(8)
        self._ended = threading.Event()
        self._renewed = time.monotonic()
        self._taken_by = ""
        self._facts = self._acquire()
        _held.add(self._token)
        self._thread = threading.Thread(target=self._renew, daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raise ExistsError E-LOCKED if another writer has taken the lock, or may have taken it."""
        if self._taken_by:
            message = f"{self._target} was taken over by {self._taken_by}"
            raise ExistsError(message, code="E-LOCKED", hint="wait for it, or choose another name")
        if time.monotonic() - self._renewed > STALE_SECONDS:
            self._try_to_renew()
            if time.monotonic() - self._renewed > STALE_SECONDS:
                raise StorageError(f"the lock {self._url} could not be renewed", hint="check the network")

    def release(self) -> None:
        """Remove the lock, unless another writer has taken it."""
        self._ended.set()
        self._thread.join()
        _held.discard(self._token)
        if not self._taken_by:
            with suppress(StreamSVMError):
                object_store.remove_objects([self._url])

    def _acquire(self) -> object_store.ObjectFacts:
        while True:
            try:
                return object_store.create_object(self._url, self._content())
            except ExistsError:
                held = object_store.find_object(self._url)
                if held is None:
                    continue
                holder = self._read()
                if not _is_stale(holder):
                    raise ExistsError(
                        f"{self._target} is being written by {describe_process(holder)}",
                        code="E-LOCKED",
                        hint="wait for it, or choose another name; the lock of a writer that was killed on another machine "
                        f"ends after {STALE_SECONDS:g} s",
                    ) from None
                with suppress(DataError):  # another process was faster: look again
                    return object_store.replace_object(self._url, self._content(), held)

    def _renew(self) -> None:
        while not self._ended.wait(RENEWAL_SECONDS):
            self._try_to_renew()

    def _try_to_renew(self) -> None:
        try:
            self._facts = object_store.replace_object(self._url, self._content(), self._facts)
            self._renewed = time.monotonic()
        except DataError:
            self._taken_by = describe_process(self._read())
        except StreamSVMError:  # the next time may be better
            return

    def _content(self) -> bytes:
        return json.dumps({**process_signature(), "token": self._token, "renewed": time.time()}).encode()

    def _read(self) -> JsonObject:
        try:
            holder = json.loads(object_store.read_object(self._url, LARGEST_LOCK))
        except (ValueError, StreamSVMError):
            return {}
        return holder if isinstance(holder, dict) else {}


def _is_stale(holder: JsonObject) -> bool:
    """Return whether the writer in a lock has ended, as far as can be told."""
    alive = is_process_alive(holder)
    if alive and holder.get("pid") == os.getpid():
        return holder.get("token") not in _held  # it could not be removed when its job had ended
    if alive is not None:
        return not alive
    renewed = holder.get("renewed")
    return not isinstance(renewed, int | float) or time.time() - renewed > STALE_SECONDS


@contextmanager
def hold_remote_lock(url: str, target: str) -> Iterator[RemoteLock]:
    """Hold the lock at ``url`` of the output ``target`` inside the context. Raises ExistsError E-LOCKED, SecurityError, StorageError."""
    lock = RemoteLock(url, target)
    try:
        yield lock
    finally:
        lock.release()


# -- names of URLs in place of copies ------------------------------------------------------------------------------------


@contextmanager
def _name_urls_in_errors() -> Iterator[None]:
    try:
        yield
    except StreamSVMError as error:
        error.message, error.hint = restore_urls(error.message), restore_urls(error.hint)
        error.args = (error.message,)
        raise


def _name_urls(event: JsonObject) -> JsonObject:
    """Return an event with URLs in place of the paths of copies."""
    return {name: restore_urls(value) if isinstance(value, str) else value for name, value in event.items()}


def _name_urls_in_result(result: _Result) -> _Result:
    """Return a result with URLs, as text, in place of the paths of copies."""
    changed: dict[str, Any] = {}
    for field in fields(result):  # type: ignore[arg-type]
        value = getattr(result, field.name)
        if isinstance(value, str | Path) and (text := restore_urls(str(value))) != str(value):
            changed[field.name] = text
        elif isinstance(value, tuple) and value and all(isinstance(part, str) for part in value):
            changed[field.name] = tuple(map(restore_urls, value))
    return replace(result, **changed)  # type: ignore[type-var]
