"""Tell paths from URLs; check and open input files: pipes, devices and files that are too large are refused before anything is read.

Opening a pipe could wait forever, a device has no end, and a sparse file can have any size. Every function that takes a path from a user
calls ``refuse_url``, or ``find_url`` where a URL of an object store is allowed.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from pathlib import Path

from streamsvm.errors import DataError, StorageError, UsageError, quote

FILE_TYPES = {stat.S_IFIFO: "a pipe", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device", stat.S_IFSOCK: "a socket"}
HINT = "put the file itself there"
LOCAL_SCHEME = "file"
REMOTE_SCHEME = re.compile(
    "abfss?|adl|az|azure|cos|dbfs|ftps?|gcs|gs|hdfs|hf|https?|lakefs|memory|minio|oci|oss|s3[an]?|sftp|smb|ssh|swift|viewfs|"
    "wasbs?|webdavs?|webhdfs"
)
"""Schemes that are taken for a URL even if only one slash follows, as in a URL that was converted to a ``Path``."""
OBJECT_SCHEMES = ("s3", "gs", "az", "https", "http")
"""Schemes of the URLs that ``streamsvm.object_store`` reads."""
WEB = ("http", "https")
LOOPBACK = ("localhost", "127.0.0.1")
"""Servers that are read without encryption."""
SCHEME = re.compile(r"(?:[A-Za-z][\w+.-]*::)*([A-Za-z][\w+.-]+):/")
"""The beginning of a URL, also of a chained one of fsspec: 'simplecache::s3://bucket/table.parquet'."""


def find_url(path: object) -> str | None:
    """Return the URL of an object that a path or text names, with both slashes; None for a path of this machine.

    Raises UsageError for a URL with a scheme that is not read, or with a user or a query in it, which can be secrets.
    """
    text = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(text, str) or not (begins := SCHEME.match(text)):
        return None
    scheme = begins[1].lower()
    if scheme not in OBJECT_SCHEMES or begins[0].lower() != f"{scheme}:/":
        refuse_url(text)
        return None
    url = f"{scheme}://{text[len(scheme) + 1 :].strip('/')}"
    root, _ = split_url(url)
    if not root.partition("://")[2]:
        raise UsageError(f"{quote(url)} names no bucket or server", hint=f"write {scheme}://BUCKET/NAME")
    if "@" in root or (scheme in WEB and "?" in url):
        hint = "credentials are given by environment variables, so that they appear in no log and no model"
        raise UsageError(f"{quote(_hide_secrets(url))} has credentials or a query in it", hint=hint)
    if scheme == "http" and root.rpartition("//")[2].partition(":")[0] not in LOOPBACK:
        raise UsageError(f"{quote(url)} is not encrypted", hint="write https://")
    return url


def split_url(url: str) -> tuple[str, str]:
    """Return the bucket or server of a URL, as a URL, and the key of the object in it: 's3://bucket' and 'folder/name'."""
    scheme, _, rest = url.partition("://")
    bucket, _, key = rest.partition("/")
    return f"{scheme}://{bucket}", key


copied_folders: dict[str, str] = {}
"""Folders of this machine with copies of files at URLs, each with the URL that it stands for (``working_copies``)."""


def restore_urls(text: str) -> str:
    """Return a text with URLs in place of the paths of copies on this machine."""
    for folder, url in list(copied_folders.items()):
        text = text.replace(folder, url)
    return text


def _hide_secrets(url: str) -> str:
    """Return a URL without what can be a user, a password or a signature."""
    scheme, colon, rest = url.partition(":")
    rest = re.sub(r"^(/*)[^/]*@", r"\1...@", rest)
    return scheme + colon + re.sub(r"\?.*", "?...", rest, flags=re.DOTALL)


def refuse_url(path: object) -> None:
    """Raise UsageError if the path of a file or folder is a URL; in a ``Path`` object, a URL has lost one of its two slashes."""
    text = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(text, str) or ":" not in text:
        return
    begins = SCHEME.match(text)
    scheme = (begins[1] if begins else text.partition(":")[0]).lower()
    if scheme == LOCAL_SCHEME or REMOTE_SCHEME.fullmatch(scheme):
        local = begins is None and os.path.lexists(text)
    else:
        local = begins is None or os.path.isdir(text.partition("/")[0])
    if local:
        return
    text = _hide_secrets(text)
    if scheme == LOCAL_SCHEME:
        raise UsageError(f"{quote(text)} is a URL, not a path", hint="leave out 'file://' and write the path itself")
    hint = "s3://, gs:// and az:// are read and written, https:// is read; other files are copied here first, or mounted as a folder"
    raise UsageError(f"{quote(text)} is a URL ({scheme}), not a path of this machine", hint=hint)


def what_is(mode: int) -> str:
    """Return the type of a file that is not regular, in words, from its ``st_mode``."""
    return FILE_TYPES.get(stat.S_IFMT(mode), "not a file")


ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)
"""Errors for a path at which nothing exists or can exist."""


def is_there(path: Path) -> bool:
    """Return whether an input exists; False for a name that no file can have. Raises StorageError as ``is_file`` does."""
    return _mode(path) is not None


def is_file(path: Path) -> bool:
    """Return whether an input is a regular file. Raises StorageError if it cannot be examined, for example in a folder without permission."""
    return stat.S_ISREG(_mode(path) or 0)


def is_folder(path: Path) -> bool:
    """Return whether an input is a directory. Raises StorageError as ``is_file`` does."""
    return stat.S_ISDIR(_mode(path) or 0)


def _mode(path: Path) -> int | None:
    """Return the ``st_mode`` of a path, following links; None if nothing exists there. Raises UsageError for a URL, StorageError."""
    refuse_url(path)
    try:
        return os.stat(path).st_mode
    except ValueError:  # a NUL, or a character that cannot be encoded
        return None
    except OSError as error:
        if error.errno in ABSENT:
            return None
        hint = "check the permissions of the folders above it, and the disk"
        raise StorageError(f"{path} cannot be looked at: {error.strerror}", hint=hint) from error


def open_regular(path: Path | str, *, follow: bool = False) -> int:
    """Open a regular file for reading and return its descriptor. ``follow``: accept a link to a regular file.

    Raises OSError as ``os.open`` does, DataError E-FILE for anything that is not a regular file, UsageError for a URL.
    """
    refuse_url(path)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | (0 if follow else os.O_NOFOLLOW))
    except OSError as error:
        if error.errno == errno.ELOOP and not follow:
            raise DataError(f"{path} is a link, not a regular file", code="E-FILE", hint=HINT) from error
        raise
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    raise DataError(f"{path} is {what_is(mode)}, not a regular file", code="E-FILE", hint=HINT)


def read_whole(path: Path, limit: int, *, follow: bool = False) -> bytes:
    """Return the content of a file of at most ``limit`` bytes.

    Raises OSError, DataError E-FILE, and DataError E-LIMIT for a larger file, which is not read.
    """
    with open(open_regular(path, follow=follow), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > limit:
            message = f"{path} has {size} bytes, {limit} are the most such a file can have"
            raise DataError(message, code="E-LIMIT", hint="restore the file, or make it again")
        return file.read(size)  # ``read(limit)`` would allocate ``limit`` bytes
