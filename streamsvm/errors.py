"""The errors a user can meet: each says what, where, expected and found, and what to do next.

Every error carries a short code (``E-CRC``) and the exit code of the command line; the table is section 2 of the
reliability program. Anything that is not a ``StreamSVMError`` is a bug of ours and exits 1.
"""

from __future__ import annotations

import errno
import re

_UNSAFE = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters, what turns the direction of writing, and bytes of names that are not UTF-8."""


class StreamSVMError(Exception):
    """The root of all errors a user can meet.

    ``code`` names the kind, ``exit_code`` is what the process returns, ``hint`` is the next step.

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
        """Return the text for a terminal: names and labels in it cannot move its cursor or look like another line."""
        return f"error[{self.code}]: {printable(self.message)}" + (
            f"\nhint: {printable(self.hint)}" if self.hint else ""
        )


class DefectError(StreamSVMError):
    """Something that cannot be right came out: nothing is written, and it is ours to mend.

    Examples
    --------
    >>> sv.DefectError("a gap below 0").exit_code
    70
    """

    exit_code = 70


class UsageError(StreamSVMError):
    """The request itself is wrong: an option, a name, a combination.

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
    """The data is wrong: it does not parse, does not match its checksum, has no usable labels.

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
    """The output exists already, or somebody else is writing it.

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
    """The operating system refused a read or a write; the disk is full.

    Examples
    --------
    >>> sv.StorageError("the disk is full").code
    'E-IO'
    """

    exit_code = 74
    default_code = "E-IO"


class InterruptedRun(StreamSVMError):
    """The run was stopped from outside; what was saved is said in the message.

    Examples
    --------
    >>> print(sv.InterruptedRun("stopped after pass 3", hint="run it again with resume=True"))
    error[E-INTERRUPTED]: stopped after pass 3
    hint: run it again with resume=True
    """

    exit_code = 75
    default_code = "E-INTERRUPTED"


class UncertifiedError(StreamSVMError):
    """A fit ended without the certificate or the probabilities that were asked for, and ``strict`` was; the model is written all the same.

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
    """A file asks for something data must not ask for.

    Examples
    --------
    >>> sv.SecurityError("a file names a module to load").exit_code
    77
    """

    exit_code = 77
    default_code = "E-SECURITY"


class ConfigError(StreamSVMError):
    """The settings contradict each other, or what is being resumed.

    Examples
    --------
    >>> issubclass(sv.BudgetError, sv.ConfigError)
    True
    """

    exit_code = 78
    default_code = "E-CONFIG"


class BudgetError(ConfigError):
    """The job does not fit the memory it was given; said before the first read.

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
    """What a program has to know before it uses a result: the command line prints it after 'warning:'.

    Examples
    --------
    >>> import warnings
    >>> warnings.simplefilter("error", sv.StreamSVMWarning)  # what is said in passing ends a program
    """


def printable(text: str) -> str:
    r"""Text that may hold names, labels and cells of files, safe for a terminal: what is no character is escaped.

    Every line that is printed goes through it (``cli.show.say``). A byte that is not UTF-8 is shown as it is: ``\xff``.
    """
    return _UNSAFE.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    if 0xDC80 <= code <= 0xDCFF:  # a byte that was no character: PEP 383
        code -= 0xDC00
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def quote(text: object, limit: int = 80) -> str:
    """Return text from outside in a form that is safe to print: escaped, and cut at ``limit`` characters."""
    shown = ascii(text)
    return shown if len(shown) <= limit else shown[: limit - 4] + "...'"


def translate_error(error: BaseException) -> StreamSVMError | None:
    """Return the error as one of ours; None where it is a defect."""
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
    """Return an error of the operating system as one of ours."""
    where = f"{error.filename}: " if error.filename else ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StorageError(f"{where}{error.strerror}", hint="free space and run the command again", code="E-NOSPACE")
    return StorageError(f"{where}{error.strerror}", hint="check the disk and what is on it")
