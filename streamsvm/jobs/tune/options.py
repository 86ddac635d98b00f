"""The options of ``tune``."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Annotated

from streamsvm.config.options import Bounds, Option
from streamsvm.errors import UsageError
from streamsvm.jobs.common_options import (
    AT_LEAST_ONE,
    COST,
    NU,
    NU_BOUNDS,
    OVO,
    PAGE,
    POSITIVE,
    ClusterOptions,
    KernelOptions,
    LossWeight,
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
"""Ways to choose the points of a search (``tune.search``)."""


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
    """The options of a search on a store. The keys of a job file are the names of these fields and of the groups'
    fields.
    """

    store: Annotated[str, Option("The store with the rows, which are divided into folds.", urls=True)]
    out: Annotated[str, Option("A directory for the tables and the heat map.", copies="folder")]
    _: KW_ONLY
    # None if not given, because C and nu exclude each other
    C: Annotated[
        tuple[float, ...] | None,
        Option(
            "Weights of the sum of losses to try; A:B:N stands for N values from A to B with equal ratios.",
            "model",
            bounds=COST,
            default="1",
        ),
    ] = None
    nu: Annotated[
        tuple[float, ...] | None,
        Option(
            "Values of nu to try in place of C. One-class: upper bounds of the share of outliers; two classes: of the "
            "share of rows on the wrong side of their margin.",
            "model",
            bounds=NU_BOUNDS,
            default="0.5 for one-class",
        ),
    ] = None
    gamma: Annotated[
        tuple[float | str, ...],
        Option("Values of the kernel's gamma to try: numbers, 'scale' or 'mean-distance'.", "kernel", bounds=POSITIVE),
    ] = ("scale",)
    landmarks: Annotated[
        tuple[int, ...],
        Option(
            "Numbers of landmarks to try; if none are given, kernels are evaluated exactly.",
            "kernel",
            bounds=AT_LEAST_ONE,
        ),
    ] = ()
    folds: Annotated[
        int,
        Option(
            "Number of parts of the rows; each part is scored by a model trained on the others.",
            "stopping",
            bounds=Bounds(least=2, most=1000),
        ),
    ] = 5
    # None if not given: then they are not part of the digest by which a search is resumed
    score: Score = None
    search: Annotated[
        str | None,
        Option(
            "grid: try all points of the grid. random: try random points between the smallest and the largest C and "
            "gamma. halving: try all points on a part of the rows, the best third of them on three times as many rows, "
            "and so on (successive halving).",
            "stopping",
            choices=SEARCHES,
            default=GRID,
        ),
    ] = None
    points: Annotated[
        int | None,
        Option("Number of points of a random search.", "stopping", bounds=AT_LEAST_ONE, default="20"),
    ] = None
    refine: Annotated[
        bool | None,
        Option(
            "Extend the grid if the best C or gamma lies at its edge, then try values between the best C and its "
            "neighbors.",
            "stopping",
        ),
    ] = None
    regret: Annotated[
        float | None,
        Option(
            "Prove that no C between the least and the largest of --C has a cross-validated error that is better than the best one by more than this share of the rows "
            "(0.001: a tenth of a percent; 0: no better one at all), with as many more fits as that takes. For linear models of classes with a loss without kinks.",
            "stopping",
            bounds=Bounds(least=0, below=1),
        ),
    ] = None
    tolerance: Tolerance = 1e-2
    max_passes: MaxPasses = 100
    time_limit: TimeLimit = float("inf")

    def __post_init__(self) -> None:
        """Check the options. Raises UsageError."""
        super().__post_init__()
        check_score(self.score)
        if self.points is not None and self.search != RANDOM:
            raise UsageError("--points is the number of points of a random search", hint="pass --search random, too")
        if self.C is not None and self.nu is not None:
            raise UsageError("both nu and C are given", hint="they replace each other: search over one of them")
        if self.regret is not None:
            self._check_regret()
        if self.one_class and self.positive is None:
            raise UsageError(
                "a one-class search computes errors from labels: it needs to know which rows belong to the class",
                hint="pass --positive LABEL with a store that has other labels, too; without labels, choose nu as the "
                "share of rows that you expect to be outliers, and fit with --one-class --nu 0.05",
            )
        if self.multi_class == OVO:
            hint = "search with --multi-class ovr, then fit with --multi-class ovo and the best C"
            raise UsageError("a search does not support one-vs-one models (--multi-class ovo)", hint=hint)

    def _check_regret(self) -> None:
        """Raise UsageError for options that cannot be combined with --regret."""
        reasons = {
            "--nu": self.nu is not None,
            "--one-class": bool(self.one_class),
            "--score": self.score not in {None, "error"},
            "--search": self.search not in {None, GRID},
            "--refine": bool(self.refine),
            "--cluster": self.cluster is not None,
        }
        for option, is_given in reasons.items():
            if is_given:
                raise UsageError(f"--regret cannot be combined with {option}", hint="leave one of them out")
        if len(self.C or ()) < 2:
            hint = "--C 1e-3:1e3:7 --regret 0.001: no C between 0.001 and 1000 is better by more than 0.1 %"
            raise UsageError("--regret needs the least and the largest C", hint=hint)

    @property
    def loss_weights(self) -> tuple[LossWeight, ...]:
        """The values of C, or of nu, to try."""
        if self.nu is None and self.C is None:
            return (LossWeight(None, NU) if self.one_class else LossWeight(1.0),)
        return tuple(LossWeight(None, nu) for nu in self.nu or ()) + tuple(LossWeight(C) for C in self.C or ())


@dataclass(frozen=True)
class TuneFilesJob(TuneJob, FilesOptions):
    """The options of ``streamsvm tune``: a search on a store, or on files."""

    store: Annotated[str, STORE_OR_FILES]
    _: KW_ONLY
    report: Annotated[str | None, replace(PAGE, help=PAGE.help + " none: no page.", default="OUT.html for files")] = (
        None
    )
    standardize: Annotated[bool | None, STANDARDIZED_FILES] = None  # type: ignore[assignment]
    loss: Annotated[str | None, LOSS_OF_TARGET] = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        """Check the options, including those of the ingest. Raises UsageError."""
        super().__post_init__()
        self.check_ingest_options(self.store)

    @property
    def output(self) -> str:
        """The path beside which the store made from files is kept."""
        return self.out

    @property
    def page(self) -> str | None:
        """The path of the page of a search on files; None for no page."""
        if self.report is None:
            return f"{self.out}.html"
        return None if self.report == NO_PAGE else self.report

    @property
    def is_of_files(self) -> bool:
        """Whether the data are files to ingest, and not a store or arrays that are read in place."""
        return are_files(self.store, self.more)

    def store_job(self, store: Path | str, *, table: bool = False) -> TuneJob:
        """Return the search on a store. ``table``: whether the store was made from tables in files."""
        return job_on_store(TuneJob, self, store, table=table)
