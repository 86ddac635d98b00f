"""What ``fit`` is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Annotated

from streamsvm.calibration import CALIBRATIONS
from streamsvm.config.options import Bounds, Checked, Option, Quantity, field_values, option_group
from streamsvm.errors import UsageError
from streamsvm.jobs.common_options import (
    AT_LEAST_ONE,
    COST,
    OVO,
    PAGE,
    SHARE,
    TIME,
    ClusterOptions,
    Dtype,
    LandmarkOptions,
    MaxPasses,
    ModelOptions,
    OneClassOptions,
    OutputOptions,
    PageOptions,
    ReadingOptions,
    Score,
    SolverOptions,
    Threshold,
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

NO_CALIBRATION = "none"
"""The other way to say that a model is to have no probabilities."""


@option_group
class CostOptions(Checked):
    """How much the losses weigh against the norm of the weights."""

    C: Annotated[
        float | tuple[float, ...] | None,
        Option(
            "Weight of the sum of losses against ||w||^2 / 2; of several values a model each.",
            "model",
            bounds=COST,
            default="1",
        ),
    ] = None
    lambda_: Annotated[
        float | None,
        Option(
            "The other way to give C, for lambda/2 ||w||^2 + mean loss: C = 1 / (lambda n).",
            "model",
            bounds=COST,
        ),
    ] = None


@option_group
class NuOptions(Checked):
    """The other way to say how much the losses weigh."""

    nu: Annotated[
        float | None,
        Option(
            "One-class: upper bound on the fraction of outliers (alternative to C). Two classes: find the C of the hinge at which "
            "at most this fraction of rows is beyond its margin (nu-SVM).",
            "model",
            bounds=SHARE,
            default="0.5 of one class",
        ),
    ] = None


ONE_CLASS_REFUSES = {
    "calibrate": "decision values of one class stand for no probabilities",
    "threshold": "labels have no say in one class",
    "validation": "labels have no say in one class, and there is no error on rows held out",
    "warm_start": "a fit of one class starts from nothing",
    "dual": "the bound of one class is recomputed from its model alone",
    "class_weight": "there is one class; rows may have weights",
    "l1_ball": "it is for least squares",
    "l1": "it chooses columns that tell classes apart, or predict numbers",
}
"""Options that mean nothing where there is one class, and why."""

NU_REFUSES = {
    "C": "nu stands in its place",
    "lambda_": "nu stands in the place of C",
    "warm_start": "a fit whose C is found by nu starts from nothing",
    "dual": "the bound of nu is recomputed from its model alone",
    "l1_ball": "it is for least squares",
    "l1": "the term beside the norm wants a C",
}
"""Options that mean nothing where the C of two classes is found by nu, and why."""

PAIRS_REFUSE = {
    "calibrate": "votes of pairs of classes are no probabilities",
    "threshold": "pairs of classes vote",
    "warm_start": "a fit of pairs starts from nothing",
}
"""Options that mean nothing where pairs of classes vote, and why."""


@dataclass(frozen=True)
class FitJob(
    OutputOptions,
    PageOptions,
    ClusterOptions,
    ReadingOptions,
    SolverOptions,
    LandmarkOptions,
    ModelOptions,
    OneClassOptions,
    NuOptions,
    CostOptions,
):
    """What ``streamsvm fit`` is asked for; the keys of a job file are these fields and those of the groups."""

    store: Annotated[str, Option("The store to train on.")]
    model: Annotated[str, Option("Where the model is written; MODEL.run beside it keeps plan, events and certificate.")]
    _: KW_ONLY
    features_key: Annotated[
        str,
        Option("Name of the array of features, in HDF5 or Zarr data of others that is trained on in place.", "reading"),
    ] = "X"
    labels_key: Annotated[str, Option("Name of the array of labels there.", "reading")] = "y"
    landmarks: Annotated[
        int | None,
        Option(
            "Approximate the kernel by Nystrom features of so many rows of the store. Without: solve the kernel exactly.",
            "kernel",
            bounds=AT_LEAST_ONE,
        ),
    ] = None
    embedding: Annotated[
        str,
        Option(
            "Keep the Nystrom features on disk, make them on the fly in every pass, or (auto) whichever is estimated to be "
            "faster.",
            "kernel",
            choices=("auto", "disk", "fly"),
        ),
    ] = "auto"
    embedding_dtype: Annotated[str, Dtype] = "float32"
    max_support: Annotated[
        int | None,
        Option(
            "Of a kernel solved exactly: have at most so many rows in the model. The gap includes what that costs.",
            "kernel",
            bounds=AT_LEAST_ONE,
        ),
    ] = None
    warm_start: Annotated[
        str | None,
        Option(
            "A linear model of the same columns and classes to start from; C, loss and scaling may differ.",
            "solver",
            metavar="MODEL",
        ),
    ] = None
    validation: Annotated[
        float | str | None,
        Option(
            "Rows held out, which choose the pass and the C by --score: a share of the chunks (0.1), or a store.",
            "stopping",
            bounds=Bounds(above=0, below=1),
            metavar="X|STORE",
        ),
    ] = None
    patience: Annotated[
        int | None,
        Option(
            "End when the score of the rows held out has not become better for so many passes.",
            "stopping",
            bounds=AT_LEAST_ONE,
        ),
    ] = None
    # None where it is not given: what a run of before was made with has no such setting
    score: Score = None
    tolerance: Tolerance = 1e-3
    max_passes: MaxPasses = 1000
    time_limit: Annotated[
        float,
        Option("End after this time.", "stopping", unit=Quantity.SECONDS, bounds=TIME),
    ] = float("inf")
    at_limit: Annotated[
        str,
        Option(
            "At the time limit, make one more pass and end with a certified model (certify), or save a checkpoint and "
            "exit with code 75 (stop), as is done, too, where there is no model two fifths of the limit later; "
            "the time to compile the last evaluation is not counted.",
            "stopping",
            choices=("certify", "stop"),
        ),
    ] = "certify"
    calibrate: Annotated[
        str | None,
        Option(
            "Give the model probabilities: learn them from scores of rows that had no part in them. The logistic loss has some "
            "without.",
            "model",
            choices=(NO_CALIBRATION, *CALIBRATIONS),
            metavar="METHOD",
        ),
    ] = None
    # None where it is not given, as --score
    threshold: Threshold = None
    calibration_folds: Annotated[
        int | None,
        Option(
            "Make the scores for --calibrate and --threshold by so many more fits, each without a part of the chunks. By default: by "
            "leaving out each row alone, which one reading does, or by 5 where that is not possible.",
            "model",
            bounds=Bounds(least=2, most=1000),
        ),
    ] = None
    strict: Annotated[
        bool,
        Option(
            "Exit with code 76 if the fit ends without the certificate or the probabilities that were asked for.",
            "stopping",
        ),
    ] = False
    checkpoint_every: Annotated[
        float,
        Option(
            "How often to save what --resume goes on from. 0: only when the run is stopped from outside.",
            "output",
            unit=Quantity.SECONDS,
            bounds=Bounds(least=0, infinite=True),
        ),
    ] = 60.0
    resume: Annotated[
        bool,
        Option(
            "Go on from the last checkpoint of an interrupted run with the same settings, or from the start if there is "
            "none.",
            "output",
        ),
    ] = False
    dual: Annotated[
        str | None,
        Option(
            "Also write the dual variables to this .npy file, so that anyone can recompute the certificate: float64 (rows,), "
            "or (problems, rows) for several problems.",
            "output",
            metavar="PATH",
        ),
    ] = None
    groups: Annotated[
        int | None,
        Option(
            "Parts of the data that are worked on side by side. The result depends on their number, not on threads or "
            "workers: a solver that moves while it reads moves as many copies of its weights, and joins them after each pass.",
            "cluster",
            bounds=AT_LEAST_ONE,
            default="one such copy, on a cluster one for each worker thread; sums have groups that the store decides",
        ),
    ] = None

    def __post_init__(self) -> None:
        """Check the options; raises UsageError."""
        super().__post_init__()
        if self.calibrate == NO_CALIBRATION:
            object.__setattr__(self, "calibrate", None)
        self._check_one_class()
        check_score(self.score)
        check_score(self.threshold, "--threshold")
        if self.multi_class == OVO:
            self._check_refused(PAIRS_REFUSE, f"--multi-class {OVO}")
        if self.calibration_folds is not None and not self.needs_scores:
            raise UsageError(
                "--calibration-folds is for --calibrate, and for --threshold without --validation",
                hint="say which: --calibrate sigmoid",
            )
        # of a caller's 1 for 1.0: to the compiler a whole number is another type, and every pass one more to compile
        object.__setattr__(self, "bias", float(self.bias))

    @property
    def needs_scores(self) -> bool:
        """Whether scores are made of all rows by fits without them."""
        return self.calibrate is not None or (self.threshold is not None and self.validation is None)

    def _check_one_class(self) -> None:
        if not self.one_class:
            if self.nu is not None:
                self._check_refused(NU_REFUSES, "--nu")
            return
        if self.nu is not None and (self.C is not None or self.lambda_ is not None):
            raise UsageError("both nu and C are given", hint="of one class, nu stands in the place of C")
        self._check_refused(ONE_CLASS_REFUSES, "--one-class")

    def _check_refused(self, refused: Mapping[str, str], beside: str) -> None:
        """Raise UsageError for an option that means nothing beside another one."""
        given = field_values(self, refused)
        for name, why in refused.items():
            if given[name] is not None:
                raise UsageError(
                    f"--{name.rstrip('_').replace('_', '-')} cannot be combined with {beside}: {why}",
                    hint="leave one of them out",
                )


@dataclass(frozen=True)
class FitFilesJob(FitJob, FilesOptions):
    """What ``streamsvm fit`` is asked for: a fit of a store, or of files and how they are read."""

    store: Annotated[str, STORE_OR_FILES]
    _: KW_ONLY
    report: Annotated[str | None, replace(PAGE, help=PAGE.help + " none: no page.", default="MODEL.html, of files")] = (
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
        return self.model

    @property
    def page(self) -> str | None:
        """Where the page of the run on files is drawn; None where it is not."""
        if self.report is None:
            return str(Path(self.model or "MODEL").with_suffix(".html"))
        return None if self.report == NO_PAGE else self.report

    @property
    def is_of_files(self) -> bool:
        """Whether files are named, and not a store or arrays that are read in place."""
        return are_files(self.store, self.more)

    def store_job(self, store: Path | str, *, table: bool = False) -> FitJob:
        """Return the fit of a store; ``table``: it was made of a table in files."""
        return job_on_store(FitJob, self, store, table=table)
