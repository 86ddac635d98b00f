"""What ``tune`` is asked for."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Annotated

from streamsvm.config.fields import Bounds, Option
from streamsvm.errors import UsageError
from streamsvm.jobs.model_options import COST, OVO, KernelOptions, MaxPasses, ModelOptions, SolverOptions, Tolerance
from streamsvm.jobs.option_groups import (
    AT_LEAST_ONE,
    POSITIVE,
    ClusterOptions,
    OutputOptions,
    PageOptions,
    ReadingOptions,
    TimeLimit,
)


@dataclass(frozen=True)
class TuneJob(OutputOptions, PageOptions, ClusterOptions, ReadingOptions, SolverOptions, KernelOptions, ModelOptions):
    """What ``streamsvm tune`` is asked for; the keys of a job file are these fields and those of the groups."""

    store: Annotated[str, Option("The store whose rows are trained and judged on, fold by fold.")]
    out: Annotated[str, Option("A directory for the tables and the heat map.")]
    _: KW_ONLY
    C: Annotated[tuple[float, ...], Option("Weights of the sum of losses to try.", "model", bounds=COST)] = (1.0,)
    gamma: Annotated[
        tuple[float | str, ...],
        Option("Widths of the kernel to try: numbers, 'scale' or 'mean-distance'.", "kernel", bounds=POSITIVE),
    ] = ("scale",)
    landmarks: Annotated[
        tuple[int, ...],
        Option(
            "Numbers of landmarks to try; without any a kernel is evaluated exactly.",
            "kernel",
            bounds=AT_LEAST_ONE,
        ),
    ] = ()
    folds: Annotated[
        int,
        Option(
            "Parts of the rows, each of which is judged by a model of the others.",
            "stopping",
            bounds=Bounds(least=2, most=1000),
        ),
    ] = 5
    tolerance: Tolerance = 1e-2
    max_passes: MaxPasses = 100
    time_limit: TimeLimit = float("inf")

    def __post_init__(self) -> None:
        """Check the options; raises UsageError."""
        super().__post_init__()
        if self.multi_class == OVO:
            hint = "search with --multi-class ovr, and fit the best C in pairs"
            raise UsageError("a search does not let pairs of classes vote", hint=hint)
