"""What ``predict`` and ``evaluate`` are asked for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from streamsvm.errors import UsageError

OUTPUTS = ("label", "decision")
STDOUT = "-"
SUFFIXES = (".csv", ".npy", ".txt")


@dataclass(frozen=True, slots=True)
class PredictJob:
    """What ``streamsvm predict`` is asked for; the keys of a job file are these fields."""

    model: str
    data: tuple[str, ...]
    """A store, or files like those the model's store was made of, with or without labels."""
    out: str
    """NAME.csv, NAME.txt (without a header), NAME.npy, or - for CSV on standard output."""
    output: str = "label"
    """'label', or 'decision': the decision value of every problem, f > 0 for the positive class."""
    label: str | None = None
    """Which column of the files to skip as the label; None: as recorded in the model."""
    format: str = "auto"
    """Of the files, where the model does not record it."""
    allow_no_final_newline: bool = False
    """Take a last line without a line feed."""
    memory: int | None = None
    """Bytes of anonymous memory the process may use."""
    overwrite: bool = False
    cluster: str | None = None
    """Dask workers to do it on: tcp://127.0.0.1:8786, tls://HOST:8786, local:N (started here), scheduler-file:PATH."""
    insecure_network: bool = False
    """Allow a cluster that is neither encrypted nor on this machine."""

    def __post_init__(self) -> None:
        if self.output not in OUTPUTS:
            raise UsageError(f"there is no output '{self.output}'", hint=f"choose from {', '.join(OUTPUTS)}")
        if self.out != STDOUT and Path(self.out).suffix not in SUFFIXES:
            raise UsageError(f"{self.out} has none of the endings {', '.join(SUFFIXES)}", hint="or - for CSV on stdout")


@dataclass(frozen=True, slots=True)
class EvaluateJob:
    """What ``streamsvm evaluate`` is asked for; the keys of a job file are these fields."""

    model: str
    data: tuple[str, ...]
    """A store, or labeled files like those the model's store was made of."""
    label: str | None = None
    """Which column of the files is the label; None: as recorded in the model."""
    format: str = "auto"
    """Of the files, where the model does not record it."""
    allow_no_final_newline: bool = False
    """Take a last line without a line feed."""
    memory: int | None = None
    """Bytes of anonymous memory the process may use."""
    cluster: str | None = None
    """Dask workers to do it on: tcp://127.0.0.1:8786, tls://HOST:8786, local:N (started here), scheduler-file:PATH."""
    insecure_network: bool = False
    """Allow a cluster that is neither encrypted nor on this machine."""
