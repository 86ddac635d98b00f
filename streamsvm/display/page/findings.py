"""What a run found, as its files say it: of the data, of the model, of rows it was evaluated on, of a grid that was searched.

They are those of ``jobs.report.record`` and ``jobs.tune.results``. What has another form is not read, and what they hold beside
this is passed over.
"""

from __future__ import annotations

import math

import msgspec

from streamsvm.aliases import ByName
from streamsvm.config.units import percent


class Stored(msgspec.Struct):
    """The data of a fit."""

    path: str
    """The name of the store."""
    digest: str
    """The digest of its content."""
    classes: list[tuple[str, int]]
    """The classes with most rows, and how many these are."""


class TopColumns(msgspec.Struct):
    """The columns that matter most to a class: name, weight in raw units, standard deviation."""

    positive: str
    """The class they speak for."""
    rows: list[tuple[str, float, float]]
    """Of each its name, its weight, and its standard deviation."""
    intercept: float
    """The constant."""
    of: int
    """How many columns there are."""


class Shares(msgspec.Struct):
    """The share of each class in parts of the store that end after so many rows."""

    rows: list[float]
    """The rows up to the end of each part."""
    shares: dict[str, list[float]]
    """By class, its share in each part."""


class Drifting(msgspec.Struct):
    """The means of a column in chunks of the store, less that of all rows, in standard deviations."""

    column: str
    """The name of the column."""
    means: list[float]
    """Chunk by chunk."""
    errors: float
    """The largest of them in standard errors."""


class Margins(msgspec.Struct):
    """A histogram of margins by class, with the loss at its edges."""

    range: tuple[float, float]
    """Where the first bin begins and the last one ends."""
    counts: dict[str, list[int]]
    """By class, the rows in each bin."""
    rows: int
    """All rows."""
    loss: list[float] = []
    """The loss at the edges of the bins."""


class Said(msgspec.Struct):
    """What probabilities said and what came true, in bins of what they said."""

    said: list[float]
    """The mean probability of each bin."""
    came_true: list[float]
    """The share of its rows it was right about."""
    weight: list[float]
    """The rows."""
    log_loss: float | None = None
    """The mean of - log p of the true class."""
    Brier: float | None = None
    """The mean squared error."""
    ECE: float | None = None
    """The expected calibration error."""


class ReliabilityRecord(msgspec.Struct):
    """The same of decision values taken for log odds, and of a model's probabilities."""

    before: Said
    """Of decision values."""
    after: Said
    """Of probabilities."""


class CalibrationRecord(msgspec.Struct):
    """An event: what a calibration was learned from, and what it makes of that."""

    C: float
    """Of which model."""
    method: str
    """Its name."""
    scores: str
    """Whose scores they were."""
    rows: int
    """The rows there were scores of."""
    before: Said
    """Of the scores."""
    after: Said
    """Of what became of them."""


class Facts(msgspec.Struct):
    """What a fit recorded for its page: ``record.json``."""

    store: Stored
    """The data."""
    model: ByName
    """Its classes, and of kernels how many points it has."""
    loss: ByName = {}
    """The name of the loss."""
    warnings: list[str] = []
    """What a user has to know."""
    notices: list[str] = []
    """What is worth knowing."""
    coefficients: list[TopColumns] = []
    """The columns that matter most, class by class."""
    label_drift: Shares | None = None
    """How the classes are spread."""
    margins: Margins | None = None
    """The margins of sampled rows."""
    feature_drift: list[Drifting] = []
    """The columns that drift most."""


class Evaluated(msgspec.Struct):
    """How good a model was found to be: ``evaluation.json``."""

    data: list[str]
    """The store or the files."""
    rows: int
    """How many rows these have."""
    accuracy: float
    """The share of right answers."""
    balanced_accuracy: float
    """The mean of that over the classes."""
    F1_macro: float
    """The mean F1 score of the classes."""
    classes: list[str]
    """The classes of the model."""
    truths: list[str]
    """The labels that occurred."""
    confusion: list[list[int]]
    """Rows of each of ``truths`` by class that was predicted."""
    precision: list[float]
    """Of each of ``truths``."""
    recall: list[float]
    """Of each of ``truths``."""
    at: str = ""
    """When, UTC."""
    primals: list[float] = []
    """P of each problem of the model: by these it is known to be that of the run."""
    AUC: float | None = None
    """The area under the ROC curve, of two classes."""
    AUC_error: float | None = None
    """How far off it can be."""
    average_precision: float | None = None
    """The area under precision over recall."""
    roc: list[tuple[float, float]] = []
    """False and true positives, as shares."""
    precision_recall: list[tuple[float, float]] = []
    """Recall and precision."""
    margins: Margins | None = None
    """The margins of the rows."""
    reliability: ReliabilityRecord | None = None
    """What its probabilities said and what came true; None for a model without any."""


class EvaluatedNumbers(msgspec.Struct):
    """How far off a regression was found to be: ``evaluation.json`` of a model of numbers."""

    data: list[str]
    """The store or the files."""
    rows: int
    """How many rows these have."""
    MAE: float
    """The mean absolute error."""
    RMSE: float
    """The root of the mean squared error."""
    largest_error: float
    """The largest absolute error."""
    target_mean: float
    """The mean of the targets."""
    target_spread: float
    """The standard deviation of the targets."""
    R2: float | None = None
    """The share of the targets' variance that is explained; None where all targets are equal."""
    at: str = ""
    """When, UTC."""
    primals: list[float] = []
    """P of the problem of the model: by this it is known to be that of the run."""


class GridPoint(msgspec.Struct):
    """A point of a search."""

    error: float
    """The mean over the folds."""
    standard_error: float
    """Of that mean."""
    C: float | None = None
    """The weight of the loss sum; None where nu stands in its place."""
    nu: float | None = None
    """The share of rows outside or beyond their margin; None where C says it."""
    landmarks: int | None = None
    """The number of landmarks; None without a map."""
    gamma: float | None = None
    """The width of the kernel; None where it has none."""
    passes: int = 0
    """The most readings of all folds."""
    gap: float = 0.0
    """The widest gap of all folds."""

    @property
    def loss_weight(self) -> float:
        """C or nu."""
        return next((weight for weight in (self.nu, self.C) if weight is not None), math.nan)


class Search(msgspec.Struct):
    """What a search found: ``table.json``."""

    settings: ByName
    """What was asked for."""
    store: str
    """The digest of the store."""
    best: GridPoint
    """The point with the least error."""
    scores: list[GridPoint]
    """All points."""
    measure: str = "error"
    """What the error is."""
    in_percent: bool = True
    """Whether it is a share, which is shown in percent."""

    @property
    def axis(self) -> str:
        """What was searched beside the kernel."""
        return "C" if self.best.nu is None else "nu"

    def text(self, error: float, digits: int) -> str:
        """Return an error as people read it."""
        return percent(error, digits) if self.in_percent else f"{error:.{digits}g}"
