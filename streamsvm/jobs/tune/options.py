"""What ``tune`` is asked for."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Annotated, NamedTuple

from streamsvm.config.options import Bounds, Option
from streamsvm.errors import UsageError
from streamsvm.jobs.common_options import (
    AT_LEAST_ONE,
    COST,
    NU,
    OVO,
    PAGE,
    POSITIVE,
    SHARE,
    ClusterOptions,
    KernelOptions,
    MaxPasses,
    ModelOptions,
    OneClassOptions,
    OutputOptions,
    PageOptions,
    ReadingOptions,
    Score,
    SolverOptions,
    TimeLimit,
    Tolerance,
    check_score,
)
from streamsvm.jobs.ingest.options import (
    LOSS_OF_TARGET,
    NO_PAGE,
    STANDARDIZED_FILES,
    STORE_OR_FILES,
    FilesOptions,
    are_files,
    job_on_store,
)

GRID, RANDOM, HALVING = SEARCHES = ("grid", "random", "halving")
"""How points are chosen (``tune.search``)."""


class LossWeight(NamedTuple):
    """How much the losses weigh at a point of the grid: C, or the nu that stands in its place."""

    C: float | None
    """The weight of the loss sum; None where nu says it."""
    nu: float | None = None
    """The share of rows outside or beyond their margin; None where C says it."""

    @property
    def value(self) -> float:
        """C or nu, the one that is given."""
        found = self.C if self.nu is None else self.nu
        assert found is not None
        return found

    def with_value(self, value: float) -> LossWeight:
        """Return another value of the same one, C or nu."""
        return LossWeight(value) if self.nu is None else LossWeight(None, value)


@dataclass(frozen=True)
class TuneJob(
    OutputOptions,
    PageOptions,
    ClusterOptions,
    ReadingOptions,
    SolverOptions,
    KernelOptions,
    ModelOptions,
    OneClassOptions,
):
    """What ``streamsvm tune`` is asked for; the keys of a job file are these fields and those of the groups."""

    store: Annotated[str, Option("The store whose rows are trained and judged on, fold by fold.")]
    out: Annotated[str, Option("A directory for the tables and the heat map.")]
    _: KW_ONLY
    # None where it is not given: with nu there is no C
    C: Annotated[
        tuple[float, ...] | None, Option("Weights of the sum of losses to try.", "model", bounds=COST, default="1")
    ] = None
    nu: Annotated[
        tuple[float, ...] | None,
        Option(
            "Values of nu to try in place of C. One-class: upper bounds on the fraction of outliers; two classes: on that of rows "
            "beyond their margin.",
            "model",
            bounds=SHARE,
            default="0.5 of one class",
        ),
    ] = None
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
    # None where they are not given: what a search of before was made with has no such settings
    score: Score = None
    search: Annotated[
        str | None,
        Option(
            "Try all points of the grid; points drawn at random between the least and the largest C and gamma; or all points on a part "
            "of the rows, the best third of them on three times as many, and so on (successive halving).",
            "stopping",
            choices=SEARCHES,
            default=GRID,
        ),
    ] = None
    points: Annotated[
        int | None,
        Option("How many points a random search draws.", "stopping", bounds=AT_LEAST_ONE, default="20"),
    ] = None
    refine: Annotated[
        bool | None,
        Option(
            "Go on beyond the grid where the best C or gamma lies at its edge, then between the best C and its neighbors.",
            "stopping",
        ),
    ] = None
    tolerance: Tolerance = 1e-2
    max_passes: MaxPasses = 100
    time_limit: TimeLimit = float("inf")

    def __post_init__(self) -> None:
        """Check the options; raises UsageError."""
        super().__post_init__()
        check_score(self.score)
        if self.points is not None and self.search != RANDOM:
            raise UsageError("--points is how many points a random search draws", hint="give --search random too")
        if self.C is not None and self.nu is not None:
            raise UsageError("both nu and C are given", hint="they say the same thing: search over one of them")
        if self.one_class and self.positive is None:
            raise UsageError(
                "a search of one class is judged by labels: it has to know which rows are of the class, and which are not",
                hint="--positive LABEL, of a store that has other labels too; without labels choose nu as the share of rows you "
                "take for outliers, and fit with --one-class --nu 0.05",
            )
        if self.multi_class == OVO:
            hint = "search with --multi-class ovr, and fit the best C in pairs"
            raise UsageError("a search does not let pairs of classes vote", hint=hint)

    @property
    def loss_weights(self) -> tuple[LossWeight, ...]:
        """Every C to try, or every nu."""
        if self.nu is None and self.C is None:
            return (LossWeight(None, NU) if self.one_class else LossWeight(1.0),)
        return tuple(LossWeight(None, nu) for nu in self.nu or ()) + tuple(LossWeight(C) for C in self.C or ())


@dataclass(frozen=True)
class TuneFilesJob(TuneJob, FilesOptions):
    """What ``streamsvm tune`` is asked for: a search on a store, or on files and how they are read."""

    store: Annotated[str, STORE_OR_FILES]
    _: KW_ONLY
    report: Annotated[str | None, replace(PAGE, help=PAGE.help + " none: no page.", default="OUT.html, of files")] = (
        None
    )
    standardize: Annotated[bool | None, STANDARDIZED_FILES] = None  # type: ignore[assignment]
    loss: Annotated[str | None, LOSS_OF_TARGET] = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        """Check the options, also those of the ingest; raises UsageError."""
        super().__post_init__()
        self.ingest_job((), Path(self.store), table=True)

    @property
    def output(self) -> str:
        """What the store of files is kept beside."""
        return self.out

    @property
    def page(self) -> str | None:
        """Where the page of the run on files is drawn; None where it is not."""
        if self.report is None:
            return f"{self.out}.html"
        return None if self.report == NO_PAGE else self.report

    @property
    def is_of_files(self) -> bool:
        """Whether files are named, and not a store or arrays that are read in place."""
        return are_files(self.store, self.more)

    def store_job(self, store: Path | str, *, table: bool = False) -> TuneJob:
        """Return the search on a store; ``table``: it was made of a table in files."""
        return job_on_store(TuneJob, self, store, table=table)
