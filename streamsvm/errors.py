"""The errors a user can meet: each says what, where, expected and found, and what to do next.

Every error carries a short code (``E-CRC``) and the exit code of the command line; the table is section 2 of the
reliability program. Anything that is not a ``StreamSVMError`` is a bug of ours and exits 1.
"""

from __future__ import annotations


class StreamSVMError(Exception):
    """The root of all errors a user can meet.

    ``code`` names the kind, ``exit_code`` is what the process returns, ``hint`` is the next step.
    """

    exit_code = 1
    default_code = "E-INTERNAL"

    def __init__(self, message: str, *, hint: str = "", code: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.code = code or self.default_code

    def __str__(self) -> str:
        return f"error[{self.code}]: {self.message}" + (f"\nhint: {self.hint}" if self.hint else "")


class UsageError(StreamSVMError):
    """The request itself is wrong: an option, a name, a combination."""

    exit_code = 2
    default_code = "E-USAGE"


class DataError(StreamSVMError):
    """The data is wrong: it does not parse, does not match its checksum, has no usable labels."""

    exit_code = 65
    default_code = "E-DATA"


class MissingError(StreamSVMError):
    """An input does not exist."""

    exit_code = 66
    default_code = "E-MISSING-INPUT"


class ClusterError(StreamSVMError):
    """A worker, the scheduler or a needed package is not available."""

    exit_code = 69
    default_code = "E-CLUSTER"


class ExistsError(StreamSVMError):
    """The output exists already, or somebody else is writing it."""

    exit_code = 73
    default_code = "E-EXISTS"


class StorageError(StreamSVMError):
    """The operating system refused a read or a write; the disk is full."""

    exit_code = 74
    default_code = "E-IO"


class InterruptedRun(StreamSVMError):
    """The run was stopped from outside; what was saved is said in the message."""

    exit_code = 75
    default_code = "E-INTERRUPTED"


class SecurityError(StreamSVMError):
    """A file asks for something data must not ask for."""

    exit_code = 77
    default_code = "E-SECURITY"


class ConfigError(StreamSVMError):
    """The settings contradict each other, or what is being resumed."""

    exit_code = 78
    default_code = "E-CONFIG"


class BudgetError(ConfigError):
    """The job does not fit the memory it was given; said before the first read."""

    default_code = "E-BUDGET"


def quote(text: object, limit: int = 80) -> str:
    """Return text from outside in a form that is safe to print: escaped, and cut at ``limit`` characters."""
    shown = ascii(text)
    return shown if len(shown) <= limit else shown[: limit - 4] + "...'"
