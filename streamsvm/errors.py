"""The errors for users, their codes and exit codes, and the escaping of text for a terminal.

A message says what is wrong, where, what was expected and what was found; ``hint`` says what to do next. Every error has a short code
(``E-CRC``) and an exit code for the command line. An exception that is not a ``StreamSVMError`` is a bug in this package and exits with 1.
"""

from __future__ import annotations

import errno
import re

_UNSAFE = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters, characters that change the direction of writing, and surrogates for bytes that are not UTF-8 (PEP 383)."""


class StreamSVMError(Exception):
    """Base class of all errors for users.

    ``code``: the kind of the error. ``exit_code``: the exit code of the command line. ``hint``: what to do next.

    Examples
    --------
    >>> try:
    ...     sv.open_store("nothing.zarr")
    ... except sv.StreamSVMError as error:
    ...     print(error.code, error.exit_code)
    E-MISSING-INPUT 66
    """

    exit_code = 1
    default_code = "E-INTERNAL"

    def __init__(self, message: str, *, hint: str = "", code: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.code: str = code or self.default_code

    def __str__(self) -> str:
        return f"error[{self.code}]: {self.message}" + (f"\nhint: {self.hint}" if self.hint else "")

    def format_for_terminal(self) -> str:
        """Return the message and the hint with control characters escaped, so that names in them cannot move the cursor or imitate a line."""
        return f"error[{self.code}]: {printable(self.message)}" + (
            f"\nhint: {printable(self.hint)}" if self.hint else ""
        )


class DefectError(StreamSVMError):
    """A result contradicts itself, which is a bug in this package; nothing was written.

    Examples
    --------
    >>> sv.DefectError("a gap below 0").exit_code
    70
    """

    exit_code = 70


class UsageError(StreamSVMError):
    """The request is wrong: an option, a name or a combination of options.

    Examples
    --------
    >>> try:
    ...     sv.fit("train.zarr", "other.ssvm", loss="hing")
    ... except sv.UsageError as error:
    ...     print(error.code, "did you mean 'hinge'" in error.message)
    E-USAGE True
    """

    exit_code = 2
    default_code = "E-USAGE"


class DataError(StreamSVMError):
    """The data is wrong: it cannot be parsed, does not match its checksum, or has no usable labels.

    Examples
    --------
    >>> try:
    ...     sv.load_model("table.csv")
    ... except sv.DataError as error:
    ...     print(error.exit_code)
    65
    """

    exit_code = 65
    default_code = "E-DATA"


class MissingError(StreamSVMError):
    """An input does not exist.

    Examples
    --------
    >>> try:
    ...     sv.load_model("nothing.ssvm")
    ... except sv.MissingError as error:
    ...     print(error.code)
    E-MISSING-INPUT
    """

    exit_code = 66
    default_code = "E-MISSING-INPUT"


class ClusterError(StreamSVMError):
    """A worker, the scheduler or a needed package is not available.

    Examples
    --------
    >>> sv.ClusterError("no worker", hint="start one").hint
    'start one'
    """

    exit_code = 69
    default_code = "E-CLUSTER"


class ExistsError(StreamSVMError):
    """The output exists already, or another process is writing it.

    Examples
    --------
    >>> try:
    ...     sv.fit("train.zarr", "model.ssvm")
    ... except sv.ExistsError as error:
    ...     print(error.code)
    E-EXISTS
    """

    exit_code = 73
    default_code = "E-EXISTS"


class StorageError(StreamSVMError):
    """A read or a write failed, for example because the disk is full.

    Examples
    --------
    >>> sv.StorageError("the disk is full").code
    'E-IO'
    """

    exit_code = 74
    default_code = "E-IO"


class InterruptedRun(StreamSVMError):
    """The run was interrupted by a signal; the message says what was saved.

    Examples
    --------
    >>> print(sv.InterruptedRun("stopped after pass 3", hint="run it again with resume=True"))
    error[E-INTERRUPTED]: stopped after pass 3
    hint: run it again with resume=True
    """

    exit_code = 75
    default_code = "E-INTERRUPTED"


class UncertifiedError(StreamSVMError):
    """With ``strict``, a fit ended without the requested certificate or probabilities; the model was written nevertheless.

    Examples
    --------
    >>> try:
    ...     sv.fit("train.zarr", "short.ssvm", solver="dcd", max_passes=1, tolerance=1e-9, strict=True)
    ... except sv.UncertifiedError as error:
    ...     print(error.exit_code)
    76
    """

    exit_code = 76
    default_code = "E-UNCERTIFIED"


class SecurityError(StreamSVMError):
    """A file requests something that data must not request, such as code to be loaded.

    Examples
    --------
    >>> sv.SecurityError("a file names a module to load").exit_code
    77
    """

    exit_code = 77
    default_code = "E-SECURITY"


class ConfigError(StreamSVMError):
    """The settings contradict each other, or those of the run to be resumed.

    Examples
    --------
    >>> issubclass(sv.BudgetError, sv.ConfigError)
    True
    """

    exit_code = 78
    default_code = "E-CONFIG"


class BudgetError(ConfigError):
    """The job does not fit in its memory limit; raised before any row is read.

    Examples
    --------
    >>> try:
    ...     sv.fit("train.zarr", "small.ssvm", memory="1MiB")
    ... except sv.BudgetError as error:
    ...     print(error.code)
    E-BUDGET
    """

    default_code = "E-BUDGET"


class StreamSVMWarning(UserWarning):
    """A fact to know before using a result; the command line prints it after 'warning:'.

    Examples
    --------
    >>> import warnings
    >>> warnings.simplefilter("error", sv.StreamSVMWarning)  # a warning becomes an error
    """


def printable(text: str) -> str:
    r"""Return text with control characters, direction marks and undecodable bytes escaped, so that it is safe for a terminal.

    Every printed line passes through this function (``cli.show.say``), since it may contain names, labels and cells of files. A byte
    that is not UTF-8 is shown as ``\xff``.
    """
    return _UNSAFE.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    if 0xDC80 <= code <= 0xDCFF:  # a byte that is not UTF-8 (PEP 383)
        code -= 0xDC00
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def quote(text: object, limit: int = 80) -> str:
    """Return text of a user or a file in quotes, escaped to ASCII, and cut at ``limit`` characters."""
    quoted = ascii(text)
    return quoted if len(quoted) <= limit else quoted[: limit - 4] + "...'"


def translate_error(error: BaseException) -> StreamSVMError | None:
    """Return the StreamSVMError for an exception; None for an exception that only a bug can cause."""
    if isinstance(error, StreamSVMError):
        return error
    if isinstance(error, MemoryError):
        hint = (
            "raise the limit of its address space (ulimit -v) or of its control group, or give the job less: --memory"
        )
        return BudgetError("the system gave this process no more memory", hint=hint)
    if isinstance(error, PermissionError):
        return SecurityError(f"{error.filename}: {error.strerror}", hint="check its permissions", code="E-PERMISSION")
    if isinstance(error, ValueError) and str(error) == "embedded null byte":
        return UsageError("a name has a NUL character in it", hint="no file can have such a name")
    return _translate_system_error(error) if isinstance(error, OSError) and error.errno is not None else None


def _translate_system_error(error: OSError) -> StorageError:
    """Return the StorageError for an error of the operating system."""
    where = f"{error.filename}: " if error.filename else ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StorageError(f"{where}{error.strerror}", hint="free space and run the command again", code="E-NOSPACE")
    return StorageError(f"{where}{error.strerror}", hint="check the disk and what is on it")
