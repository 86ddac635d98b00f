"""The files of a run, as far as a page reads them: what has another form is not read, what is more is passed over.

They are those of ``jobs.fit.outputs``, ``jobs.report.record``, ``jobs.report.run_log`` and ``jobs.tune.results``.
"""

from __future__ import annotations

import msgspec

from streamsvm.aliases import ByName, JsonObject


class ProblemEnd(msgspec.Struct):
    """The certificate of one problem."""

    C: float
    """The weight of the loss sum."""
    primal: float
    """P."""
    dual: float
    """D."""
    gap: float
    """(P - D) / |P|, rounding counted."""
    problem: int = 0
    """Its number in the fit."""
    rounding: float = 0.0
    """What rounding can have done to P and D."""


class End(msgspec.Struct):
    """How a run ended: ``certificate.json``."""

    status: str
    """How it ended, in a word or two."""
    gap: float
    """The widest relative gap of all problems."""
    primal: float
    """P of that problem."""
    dual: float
    """D of that problem."""
    tolerance: float
    """The gap that was asked for."""
    passes: int
    """Readings of the data."""
    seconds: float
    """How long it took."""
    peak: int
    """Bytes of anonymous memory at most."""
    limit: int
    """Bytes that were allowed."""
    bytes_read: int
    """Bytes that were read."""
    compute_share: float
    """The share of the time in which nothing was waited for."""
    rounding: float = 0.0
    """What rounding can have done to P and D."""
    validation: JsonObject | None = None
    """What the held-out rows said; None without such."""
    problems: list[ProblemEnd] = []
    """The certificate of each problem."""


class PlannedTerm(msgspec.Struct):
    """A term of the plan of memory."""

    term: str
    """What the memory is for."""
    bytes: int
    """How much it is at most."""
    why: str = ""
    """What it is made of."""


class Planned(msgspec.Struct):
    """What was decided before the first read: the event ``plan``."""

    rows: int
    """Rows of the store."""
    columns: int
    """Its columns."""
    chunks: int
    """Its chunks."""
    bytes_per_pass: int
    """Bytes of a reading."""
    problems: int
    """Problems that are solved side by side."""
    C: list[float]
    """The C of each."""
    solver: str
    """The name of the solver."""
    why: str
    """Why this one."""
    memory: list[PlannedTerm]
    """The terms of the plan."""
    total: int
    """Their sum, bytes."""
    limit: int
    """Bytes that are allowed."""
    features: JsonObject | None = None
    """Of kernel features, what they are made of."""
    embedding: JsonObject | None = None
    """Where such features are kept."""
    threads: int | None = None
    """Threads that compute, where that was decided."""


class Moment(msgspec.Struct):
    """What was known at some time: an event ``progress`` or ``pass``."""

    seconds: float
    """Since the run began."""
    memory: int
    """Bytes of anonymous memory then."""
    waited: float | None = None
    """Seconds that had been waited for blocks by then."""
    bytes_read: int | None = None
    """Bytes that had been read by then."""


class Pass(Moment, kw_only=True):
    """The certificate of a problem after a pass: an event ``pass``."""

    number: int = msgspec.field(name="pass")
    """The number of the pass, from 1."""
    primal: float
    """P."""
    dual: float
    """D."""
    gap: float
    """(P - D) / |P|."""
    problem: int = 0
    """The number of the problem."""
    exact: bool = True
    """Whether P and D are of all rows."""


class HeldOut(msgspec.Struct, kw_only=True):
    """The error on held-out rows after a pass: an event ``validation``."""

    number: int = msgspec.field(name="pass")
    """The number of the pass, from 1."""
    C: float
    """The weight of the loss sum."""
    error: float
    """The share of wrong answers."""


class Stopped(msgspec.Struct):
    """Why a run was cut short."""

    code: str
    """The code of the error."""
    message: str
    """What it says."""
    hint: str | None = None
    """What to do next."""


class Began(msgspec.Struct):
    """When, with what and by which command a run began."""

    at: str
    """The time by the clock, UTC."""
    command: str
    """The command that gives this fit again."""
    resumed: bool = False
    """Whether it went on from an earlier run."""
    machine: ByName = {}
    """What it was made with, by name."""


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


class GridPoint(msgspec.Struct):
    """A point of a search."""

    C: float
    """The weight of the loss sum."""
    error: float
    """The mean share of wrong answers over the folds."""
    standard_error: float
    """Of that mean."""
    landmarks: int | None = None
    """The number of landmarks; None without a map."""
    gamma: float | None = None
    """The width of the kernel; None where it has none."""
    passes: int = 0
    """The most readings of all folds."""
    gap: float = 0.0
    """The widest gap of all folds."""


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
