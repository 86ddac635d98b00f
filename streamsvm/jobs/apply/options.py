"""What ``predict`` and ``evaluate`` are asked for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from streamsvm.config.fields import Option
from streamsvm.errors import UsageError
from streamsvm.jobs.option_groups import ClusterOptions, MemoryOptions, OutputOptions
from streamsvm.store.sources.options import NewRowOptions

STDOUT = "-"
SUFFIXES = (".csv", ".npy", ".txt")


@dataclass(frozen=True)
class PredictJob(OutputOptions, ClusterOptions, MemoryOptions, NewRowOptions):
    """What ``streamsvm predict`` is asked for; the keys of a job file are these fields and those of the groups."""

    model: Annotated[str, Option("The model.")]
    data: Annotated[
        tuple[str, ...],
        Option(
            "A store, or files like those the model's store was made of, with or without labels.",
            metavar="STORE|SOURCE",
        ),
    ]
    out: Annotated[str, Option("NAME.csv, NAME.txt (without a header), NAME.npy, or - for CSV on standard output.")]
    output: Annotated[
        str,
        Option(
            "Write the label of a row, or the decision value of every problem: f > 0 for the positive class.",
            "output",
            choices=("label", "decision"),
        ),
    ] = "label"

    def __post_init__(self) -> None:
        """Check the options; raises UsageError."""
        super().__post_init__()
        if self.out != STDOUT and Path(self.out).suffix not in SUFFIXES:
            raise UsageError(f"{self.out} has none of the endings {', '.join(SUFFIXES)}", hint="or - for CSV on stdout")


@dataclass(frozen=True)
class EvaluateJob(ClusterOptions, MemoryOptions, NewRowOptions):
    """What ``streamsvm evaluate`` is asked for; the keys of a job file are these fields and those of the groups."""

    model: Annotated[str, Option("The model.")]
    data: Annotated[
        tuple[str, ...],
        Option("A store, or labeled files like those the model's store was made of.", metavar="STORE|SOURCE"),
    ]
