"""The options of ``fit``."""

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
    CRAMMER_SINGER,
    NU_BOUNDS,
    OVO,
    PAGE,
    SOFTMAX,
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
    ScratchOptions,
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

SMOOTHING = ("d2", "d1", "none")
"""The penalties of curves (``features.curves``), repeated here so that help does not have to import numpy."""
AUTO_PAIRS, NO_PAIRS = AUTO_JUMPS, NO_JUMPS = "auto", "none"
"""The values of --pairs and --jumps for what a test chooses, and for none."""
NO_ENCLOSURE, LABELS, FULL, UPDATES = "none", "labels", "full", "updates"
"""What --certify keeps in a model: nothing, an enclosure of the optimum by some rows, one by all rows, or also what ``forget`` and ``learn`` need."""
ALL_ROWS_METHODS = (FULL, UPDATES)
NO_CALIBRATION = "none"
"""The value of --calibrate for a model without probabilities, which is also the default."""


@option_group
class CostOptions(Checked):
    """The weight of the losses relative to the regularization."""

    C: Annotated[
        float | tuple[float, ...] | None,
        Option(
            "Factor of the sum of losses, which is added to ||w||^2 / 2. Several values: a model for each, and, where rows of files are "
            "held out, MODEL is the one with the best --score on them; A:B:N stands for N values "
            "from A to B with equal ratios, 1e-3:1e3:7 for 0.001, 0.01, ..., 1000.",
            "model",
            bounds=COST,
            default="1",
        ),
    ] = None
    lambda_: Annotated[
        float | None,
        Option(
            "Alternative to C, for the objective lambda/2 ||w||^2 + mean loss: C = 1 / (lambda n).",
            "model",
            bounds=COST,
        ),
    ] = None


@option_group
class NuOptions(Checked):
    """The alternative to C: a bound on a fraction of rows."""

    nu: Annotated[
        float | None,
        Option(
            "One-class: upper bound on the fraction of outliers (alternative to C). Two classes: find the C of the hinge at which "
            "at most this fraction of rows is beyond its margin (nu-SVM).",
            "model",
            bounds=NU_BOUNDS,
            default="0.5 for one-class",
        ),
    ] = None


ONE_CLASS_REFUSES = {
    "calibrate": "one-class decision values cannot be calibrated as probabilities",
    "threshold": "one-class fits do not use labels",
    "validation": "one-class fits do not use labels, so that held-out rows have no error",
    "warm_start": "one-class fits cannot be warm-started",
    "dual": "the dual bound of a one-class fit is computed from the model alone",
    "class_weight": "there is only one class; use weights of rows instead",
    "l1_ball": "it is for least squares",
    "l1": "it selects columns that separate classes or predict numbers",
    "free_bias": "--nu has an offset that is free",
}
"""Options that one-class fits do not support, with the reason."""

NU_REFUSES = {
    "C": "nu replaces C",
    "lambda_": "nu replaces C, for which lambda is another name",
    "warm_start": "nu-SVM fits cannot be warm-started",
    "dual": "the dual bound of a nu-SVM fit is computed from the model alone",
    "l1_ball": "it is for least squares",
    "l1": "the elastic net needs a C",
    "free_bias": "it needs a C",
}
"""Options that nu-SVM fits do not support, with the reason."""

CURVES_REFUSE = {
    "landmarks": "curves are functions of single columns, kernel features of whole rows",
    "landmark_file": "curves are functions of single columns, kernel features of whole rows",
    "max_support": "there are no support vectors",
    "l1": "it selects weights of columns, not values at knots",
    "free_bias": "it is for functions that are linear in the columns",
    "l1_ball": "it selects weights of columns, not values at knots",
    "nu": "nu-SVM fits are linear in the columns",
    "one_class": "one-class fits are linear in the columns",
    "warm_start": "the weights of a model belong to its own knots",
    "dual": "dual variables are checked against stored columns",
    "certify": "intervals are computed for functions that are linear in the columns",
    "calibrate": "the logistic loss, the default with --curves, has probabilities without it",
    "standardize_all": "curves have a scale of their own",
}
"""Options that fits of curves do not support, with the reason."""

PAIRS_REFUSE = {
    "calibrate": "the votes of pairs of classes are not probabilities",
    "threshold": "labels are predicted by votes of pairs of classes",
    "warm_start": "one-vs-one fits cannot be warm-started",
}
"""Options that one-vs-one fits do not support, with the reason."""


@option_group
class CurveOptions(Checked):
    """Curves of numeric columns in place of weights."""

    # None if not given: then the settings are not recorded
    curves: Annotated[
        bool | None,
        Option(
            "Fit a piecewise-linear curve for each numeric column in place of a weight; columns made from categories and text keep "
            "their weights. The knots are chosen in one more pass over the data.",
            "curves",
        ),
    ] = None
    knots: Annotated[
        int | None,
        Option(
            "Largest number of knots of a curve: half of them quantiles, the other half evenly spaced.",
            "curves",
            bounds=Bounds(least=4, most=1024),
            default="64",
        ),
    ] = None
    smooth: Annotated[
        str | None,
        Option(
            "Penalty of curves: mostly of changes of the slope (d2), of the slope (d1), or of the values at the knots (none), which "
            "depends on the number of knots but suits every solver.",
            "curves",
            choices=SMOOTHING,
            default="d2",
        ),
    ] = None
    jumps: Annotated[
        str | None,
        Option(
            "Values of numbers with an effect of their own in addition to the curve. auto: frequent values whose target differs from that "
            "of the rows around them, by a test in one more pass; or given: term=84,amount=25000.",
            "curves",
            metavar="auto|none|COL=V",
            default="none",
        ),
    ] = None
    pairs: Annotated[
        int | str | None,
        Option(
            "Pairs of columns whose joint effect is fitted as a table in addition to curves. auto: those that pass a test on what curves "
            "leave over, at most 50 and three a column; a number: at most so many of them; or names: age*income,city*year.",
            "curves",
            metavar="auto|N|none|A*B",
            default="none",
        ),
    ] = None
    pair_scale: Annotated[
        float | None,
        Option(
            "Scale of the tables of pairs: a smaller one shrinks them more, with the same C for curves.",
            "curves",
            bounds=Bounds(above=0.0),
            default="1",
        ),
    ] = None


@dataclass(frozen=True)
class FitJob(
    OutputOptions,
    PageOptions,
    ScratchOptions,
    ClusterOptions,
    ReadingOptions,
    SolverOptions,
    LandmarkOptions,
    CurveOptions,
    ModelOptions,
    OneClassOptions,
    NuOptions,
    CostOptions,
):
    """The options of ``streamsvm fit`` on a store. The keys of a job file are the names of these fields and of the fields of the groups."""

    store: Annotated[str, Option("The store to train on.", urls=True)]
    model: Annotated[
        str,
        Option(
            "Path or URL of the model. The folder MODEL.run beside it gets the plan, the events and the certificate.",
            copies="model",
        ),
    ]
    _: KW_ONLY
    features_key: Annotated[
        str,
        Option(
            "For HDF5 or Zarr data of another program, trained on in place: name of the array of features.", "reading"
        ),
    ] = "X"
    labels_key: Annotated[
        str, Option("For HDF5 or Zarr data of another program: name of the array of labels.", "reading")
    ] = "y"
    landmarks: Annotated[
        int | None,
        Option(
            "Approximate the kernel by Nystrom features from this number of rows of the store. Without: use the exact kernel.",
            "kernel",
            bounds=AT_LEAST_ONE,
        ),
    ] = None
    embedding: Annotated[
        str,
        Option(
            "Where Nystrom features come from: written to disk once (disk), computed in every pass (fly), or whichever is "
            "estimated to be faster (auto).",
            "kernel",
            choices=("auto", "disk", "fly"),
        ),
    ] = "auto"
    embedding_dtype: Annotated[str, Dtype] = "float32"
    max_support: Annotated[
        int | None,
        Option(
            "Exact kernel: maximum number of support vectors in the model. The gap includes the loss of accuracy that this causes.",
            "kernel",
            bounds=AT_LEAST_ONE,
        ),
    ] = None
    warm_start: Annotated[
        str | None,
        Option(
            "A linear model with the same columns and classes from which to start; C, loss and scaling may differ.",
            "solver",
            metavar="MODEL",
            copies="input",
        ),
    ] = None
    validation: Annotated[
        float | str | None,
        Option(
            "Held-out rows on which the pass and the C with the best --score are chosen: a fraction of the chunks (0.1), or a store.",
            "stopping",
            bounds=Bounds(above=0, below=1),
            metavar="X|STORE",
            urls=True,
        ),
    ] = None
    patience: Annotated[
        int | None,
        Option(
            "Early stopping: stop when the score on held-out rows has not improved for this number of passes.",
            "stopping",
            bounds=AT_LEAST_ONE,
        ),
    ] = None
    # None if not given: then it is not part of the settings by which a run is resumed
    score: Score = None
    tolerance: Tolerance = 1e-3
    max_passes: MaxPasses = 1000
    time_limit: Annotated[
        float,
        Option("Stop training after this time.", "stopping", unit=Quantity.SECONDS, bounds=TIME),
    ] = float("inf")
    at_limit: Annotated[
        str,
        Option(
            "At the time limit, make one more pass and write a certified model (certify), or save a checkpoint and exit with code "
            "75 (stop). certify also stops if there is still no model after another two fifths of the limit. The time to compile the last "
            "evaluation is not counted.",
            "stopping",
            choices=("certify", "stop"),
        ),
    ] = "certify"
    calibrate: Annotated[
        str | None,
        Option(
            "Add probabilities to the model, calibrated on out-of-sample scores. A model with the logistic loss has "
            "probabilities without calibration.",
            "model",
            choices=(NO_CALIBRATION, *CALIBRATIONS),
            metavar="METHOD",
        ),
    ] = None
    # None if not given, as for --score
    threshold: Threshold = None
    calibration_folds: Annotated[
        int | None,
        Option(
            "Number of folds for the scores of --calibrate and --threshold, each scored by a fit on the other folds. By default "
            "leave-one-out scores, which take one pass; 5 folds where these are not available.",
            "model",
            bounds=Bounds(least=2, most=1000),
        ),
    ] = None
    certify: Annotated[
        str | None,
        Option(
            "Keep in the model what proves answers: which labels, decision values and coefficients more training could change. labels: from "
            "the last pass and a sample of rows. full: from three more passes, or up to nine if the fit ended far from the optimum, for "
            "losses without kinks; far narrower intervals. updates: also what 'forget' and 'learn' need, from five passes and some Newton steps. For linear models.",
            "model",
            choices=(NO_ENCLOSURE, LABELS, FULL, UPDATES),
        ),
    ] = None
    strict: Annotated[
        bool,
        Option(
            "Exit with code 76 if the fit ends without the requested certificate or probabilities.",
            "stopping",
        ),
    ] = False
    checkpoint_every: Annotated[
        float,
        Option(
            "Time between two checkpoints, from which --resume continues. 0: a checkpoint is saved only when the run is interrupted.",
            "output",
            unit=Quantity.SECONDS,
            bounds=Bounds(least=0, infinite=True),
        ),
    ] = 60.0
    resume: Annotated[
        bool,
        Option(
            "Continue an interrupted run with the same settings from its last checkpoint; start anew if there is none.",
            "output",
        ),
    ] = False
    dual: Annotated[
        str | None,
        Option(
            "Also write the dual variables to this .npy file, so that the certificate can be recomputed: float64 (rows,), "
            "or (problems, rows) for several problems.",
            "output",
            metavar="PATH",
            copies="file",
        ),
    ] = None
    groups: Annotated[
        int | None,
        Option(
            "Number of parts of the data that are processed in parallel. The result depends on this number, not on the number of "
            "threads or workers: an online solver updates a copy of its weights for each part, and joins the copies after each pass.",
            "cluster",
            bounds=AT_LEAST_ONE,
            default="online solvers: 1, on a cluster one for each worker thread; others: determined by the store",
        ),
    ] = None

    def __post_init__(self) -> None:
        """Check the options. Raises UsageError."""
        super().__post_init__()
        if self.calibrate == NO_CALIBRATION:
            object.__setattr__(self, "calibrate", None)
        if self.certify == NO_ENCLOSURE:
            object.__setattr__(self, "certify", None)
        self._check_one_class()
        self._check_curves()
        check_score(self.score)
        check_score(self.threshold, "--threshold")
        if self.multi_class == OVO:
            self._check_refused(PAIRS_REFUSE, f"--multi-class {OVO}")
        if self.calibration_folds is not None and not self.needs_scores:
            raise UsageError(
                "--calibration-folds is for --calibrate, and for --threshold without --validation",
                hint="say which: --calibrate sigmoid",
            )
        # an int would be another type for the compiler, for which every pass would be compiled again
        object.__setattr__(self, "bias", float(self.bias))

    @property
    def needs_scores(self) -> bool:
        """Whether out-of-sample scores of all rows are computed."""
        return self.calibrate is not None or (self.threshold is not None and self.validation is None)

    def _check_one_class(self) -> None:
        if not self.one_class:
            if self.nu is not None:
                self._check_refused(NU_REFUSES, "--nu")
            return
        if self.nu is not None and (self.C is not None or self.lambda_ is not None):
            raise UsageError("both nu and C are given", hint="for one-class fits, nu replaces C")
        self._check_refused(ONE_CLASS_REFUSES, "--one-class")

    def _check_curves(self) -> None:
        if not self.curves:
            stated = {
                "--knots": self.knots,
                "--smooth": self.smooth,
                "--jumps": self.jumps,
                "--pairs": self.pairs,
                "--pair-scale": self.pair_scale,
            }
            for option, value in stated.items():
                if value is not None:
                    raise UsageError(f"{option} is for curves, and there are none", hint="--curves, or leave it out")
            return
        self._check_pairs()
        self._check_refused(CURVES_REFUSE, "--curves")
        if self.kernel != "linear":
            why = "--kernel cannot be combined with --curves: a kernel is a function of whole rows"
            raise UsageError(why, hint="leave one of them out")
        if self.multi_class in {CRAMMER_SINGER, SOFTMAX}:
            hint = "--multi-class ovr or ovo, or leave out --curves"
            raise UsageError(f"--multi-class {self.multi_class} cannot be combined with --curves", hint=hint)
        if self.threshold is not None and self.validation is None:
            why = "--threshold cannot be combined with --curves, unless it is chosen on the rows of --validation"
            raise UsageError(why, hint="--validation 0.1, or leave one of them out")

    def _check_pairs(self) -> None:
        has_pairs = self.pairs not in {None, NO_PAIRS, 0}
        if isinstance(self.pairs, int) and self.pairs < 0:
            raise UsageError(f"--pairs: there are no {self.pairs} pairs", hint="auto, none, or a number of at least 1")
        if self.pair_scale is not None and not has_pairs:
            raise UsageError(
                "--pair-scale is for pairs of columns, and there are none", hint="--pairs auto, or leave it out"
            )
        if self.pair_scale is not None and self.smooth == SMOOTHING[-1]:
            raise UsageError(
                f"--pair-scale cannot be combined with --smooth {self.smooth}, where all values have the same penalty",
                hint="leave one of them out",
            )

    def _check_refused(self, refused: Mapping[str, str], beside: str) -> None:
        """Raise UsageError for an option in ``refused`` (with the reason) that cannot be combined with ``beside``."""
        values = field_values(self, refused)
        for name, reason in refused.items():
            if values[name] is not None:
                raise UsageError(
                    f"--{name.rstrip('_').replace('_', '-')} cannot be combined with {beside}: {reason}",
                    hint="leave one of them out",
                )


@dataclass(frozen=True)
class FitFilesJob(FitJob, FilesOptions):
    """The options of ``streamsvm fit``: those of a fit on a store, and those for reading files."""

    store: Annotated[str, STORE_OR_FILES]
    _: KW_ONLY
    report: Annotated[str | None, replace(PAGE, help=PAGE.help + " none: no page.", default="MODEL.html for files")] = (
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
        return self.model

    @property
    def page(self) -> str | None:
        """The path of the page of a fit on files; None for no page."""
        if self.report is None:
            return str(Path(self.model or "MODEL").with_suffix(".html"))
        return None if self.report == NO_PAGE else self.report

    @property
    def is_of_files(self) -> bool:
        """Whether the data are files to ingest, and not a store or arrays that are read in place."""
        return are_files(self.store, self.more)

    def store_job(self, store: Path | str, *, table: bool = False) -> FitJob:
        """Return the fit on a store. ``table``: whether the store was made from tables in files."""
        return job_on_store(FitJob, self, store, table=table)
