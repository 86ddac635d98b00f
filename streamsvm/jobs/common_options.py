"""Options that several jobs have of how they run and what they write, each declared here once.

A job mixes in the groups it has a use for. Fields of a group are keyword-only, so that a job's own fields (store, model, ...) stay the positional ones. An option that several jobs have
with different defaults is a type here (``TimeLimit``) and a field in each of them.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Annotated

from streamsvm.aliases import ByName
from streamsvm.config.options import Bounds, Checked, Option, Quantity, option_group

AT_LEAST_ONE = Bounds(least=1)
THREADS = Bounds(least=1, most=1024)
"""Where memory is short a fit is planned with one thread less and one less again."""
POSITIVE = Bounds(above=0)
TIME = Bounds(least=0, infinite=True)
TimeLimit = Annotated[
    float,
    Option(
        "Stop after this time with exit code 75; what is finished stays, and the same command goes on with it.",
        "stopping",
        unit=Quantity.SECONDS,
        bounds=TIME,
    ),
]
CHUNK_BYTES = 4 << 20
CHUNK = Option(
    "Size of the chunks of the store, which are what is read at a time.",
    "output",
    unit=Quantity.BYTES,
    bounds=AT_LEAST_ONE,
    flag="chunk",
)
ChunkBytes = Annotated[int, CHUNK]
STORE_DTYPES = ("auto", "float32", "float16")
STORE_DTYPE = Option(
    "Dense rows: the type of the stored numbers. float16 halves the bytes of every pass and keeps 11 bits of a number; "
    "training, certificates and statistics are of the numbers as stored. auto: float16 if all are float16 in the source, "
    "else float32.",
    "output",
    choices=STORE_DTYPES,
)
Seed = Annotated[int, Option("Seed of everything that is drawn at random.", bounds=Bounds(least=0))]


@option_group
class MemoryOptions(Checked):
    """How much memory the process may use."""

    memory: Annotated[
        int | None,
        Option(
            "Anonymous memory the process may use; a job that needs more is refused before it reads.",
            "memory",
            unit=Quantity.BYTES,
            bounds=AT_LEAST_ONE,
            default="the limit of the control group, or three quarters of what is available",
        ),
    ] = None
    threads: Annotated[
        int | None,
        Option(
            "Threads that compute side by side; fewer where memory is short. The result does not depend on it.",
            "memory",
            bounds=THREADS,
            default="all processors this process may use",
        ),
    ] = None


@option_group
class ReadingOptions(MemoryOptions):
    """How the chunks of a store are read, in which order and how far ahead."""

    seed: Seed = 0
    prefetch: Annotated[
        int,
        Option(
            "Chunks read ahead of the one that is worked on, and at once where reading is what takes the time.",
            "memory",
            bounds=Bounds(least=0),
        ),
    ] = 2


@option_group
class ClusterOptions(Checked):
    """Where a job runs if not in this process."""

    cluster: Annotated[
        str | None,
        Option(
            "Run on Dask workers: tcp://127.0.0.1:8786, tls://HOST:8786, local:N (N workers started here), "
            "scheduler-file:PATH, or client: (of a program: the client it has). Worth it from about half a minute of work "
            "on the threads of one machine; local:N is no faster than --threads N.",
            "cluster",
        ),
    ] = None
    insecure_network: Annotated[
        bool, Option("Allow a cluster that is neither encrypted nor on this machine.", "cluster")
    ] = False


PAGE = Option("Also draw the page of the run, as 'streamsvm report' does: an HTML file.", "output", metavar="PATH")


@option_group
class PageOptions(Checked):
    """Whether a run also leaves a page to look at."""

    report: Annotated[str | None, PAGE] = None


@option_group
class OutputOptions(Checked):
    """What happens to an output that exists."""

    overwrite: Annotated[bool, Option("Replace the output if it exists.", "output")] = False


@option_group
class NewStoreOptions(OutputOptions):
    """How a new store is cut into chunks and into rows for training and for testing."""

    seed: Seed = 0
    chunk_bytes: ChunkBytes = CHUNK_BYTES
    test_fraction: Annotated[
        float,
        Option(
            "Share of the rows that go to a test store, NAME.test.zarr beside NAME.zarr.",
            "output",
            bounds=Bounds(least=0, below=1),
        ),
    ] = 0.0


LOSSES, KERNELS, SOLVERS = "streamsvm.losses:LOSSES", "streamsvm.kernels:KERNELS", "streamsvm.solvers:SOLVERS"

COST = Bounds(least=1e-30, most=1e20)
"""Of C and of lambda: the squares of what is made of them are still numbers."""
SHARE = Bounds(above=0, most=1)
"""Of nu."""
NU = 0.5
"""Of one class: the share of rows outside at most where nothing is said, that of scikit-learn."""


KernelName = Annotated[str, Option("The kernel k(x, z) of the decision function.", "kernel", choices=KERNELS)]


Tolerance = Annotated[
    float,
    Option(
        "End when the relative gap (primal - dual) / |primal| is at most this. 0: never.",
        "stopping",
        bounds=Bounds(least=0),
    ),
]


MaxPasses = Annotated[int, Option("End after so many passes over the data.", "stopping", bounds=AT_LEAST_ONE)]


SCORES = (
    "error",
    "balanced_error",
    "f1",
    "auc",
    "average_precision",
    "log_loss",
    "brier",
    "cost:fp=X,fn=Y",
    "rmse",
    "mae",
    "r2",
)
"""The names of ``model.measures.MEASURES``, which help shows without loading it."""
Score = Annotated[
    str | None,
    Option(
        "The measure by which rows held out judge a model. Of two classes the positive one is --positive, else the rarer one.",
        "stopping",
        choices=SCORES,
        default="error; rmse for regression, balanced_error for one class",
    ),
]


THRESHOLDS = ("error", "balanced_error", "f1", "cost:fp=X,fn=Y")
"""Measures that depend on the threshold of the decision value."""
Threshold = Annotated[
    str | None,
    Option(
        "Two classes: the model predicts labels by the threshold of the decision value at which this measure is best, on the rows of "
        "--validation, else on scores of rows by fits without them, as those of --calibrate.",
        "model",
        choices=THRESHOLDS,
        default="0 is the threshold",
    ),
]


def check_score(score: str | None, option: str = "--score") -> None:
    """Raise UsageError for an unknown measure, and for one without the costs that it needs."""
    if score is not None:
        from streamsvm.model.measures import parse_measure  # loads numpy: only where it is needed

        parse_measure(score, option)


Dtype = Option(
    "Number type of the features on disk; int8 has a scale for each column.",
    "kernel",
    choices=("float32", "float16", "int8"),
)

OVR, OVO, CRAMMER_SINGER = MULTI_CLASS = ("ovr", "ovo", "crammer_singer")
"""What is done with several classes."""


STANDARDIZE = Option(
    "Give every column of numbers mean 0 and standard deviation 1 before it is used; those made of categories, dates and "
    "text stay as they are.",
    "model",
)


@option_group
class ScalingOptions(Checked):
    """What is done to the columns first."""

    standardize: Annotated[bool, STANDARDIZE] = False
    # None where it is not given: what a run of before was made with has no such setting
    standardize_all: Annotated[
        bool | None, Option("With --standardize: columns made of categories, dates and text, too.", "model")
    ] = None


LOSS = Option("Loss of a row, as a function of its margin.", "model", choices=LOSSES)


@option_group
class ModelOptions(ScalingOptions):
    """The objective: loss, constant feature, classes and their weights."""

    loss: Annotated[str, LOSS] = "squared_hinge"
    loss_options: Annotated[
        dict[str, float], Option("Settings of the loss, by name.", "model", choices=LOSSES, settings_of="loss")
    ] = field(default_factory=dict)
    bias: Annotated[
        float,
        Option(
            "Value of the constant feature, whose weight is regularized like the others.",
            "model",
            bounds=Bounds(least=0, most=1e9),
            off="Have no constant feature.",
        ),
    ] = 1.0
    # None where it is not given, as of other options that came later: settings of before know nothing of it
    l1_ball: Annotated[
        float | None,
        Option(
            "The lasso: C ||Xw - y||^2 over all weights with ||w||_1 at most this, with no ||w||^2 / 2 beside it: many weights are 0.",
            "model",
            bounds=Bounds(above=0),
        ),
    ] = None
    l1: Annotated[
        float | None,
        Option(
            "Weight of ||w||_1 beside ||w||^2 / 2, the elastic net: weights of columns that are of little use are 0.",
            "model",
            bounds=Bounds(above=0),
        ),
    ] = None
    positive: Annotated[
        str | None, Option("Train one class against the rest: the label that is the positive class.", "model")
    ] = None
    # None where it is not given: what a run of before was made with has no such setting
    multi_class: Annotated[
        str | None,
        Option(
            "Of several classes: one problem for each against the rest (ovr); one for each pair of classes and its rows, which vote, as in "
            "LIBSVM (ovo); or one for all of them (crammer_singer), where a row's margin is how far its own class is above all others.",
            "model",
            choices=MULTI_CLASS,
            default=OVR,
        ),
    ] = None
    class_weight: Annotated[
        str | dict[str, float] | None,
        Option(
            "Factors of C by class, A=2,B=0.5, where classes not named have 1; or 'balanced', so that all classes weigh "
            "the same.",
            "model",
            bounds=Bounds(least=0, most=1e9),
            metavar="balanced|A=X,...",
        ),
    ] = None


@option_group
class OneClassOptions(Checked):
    """Whether the model is of one class."""

    # None where it is not given: what a run of before was made with has no such setting
    one_class: Annotated[
        bool | None,
        Option(
            "Learn where rows are, whatever their labels: rows unlike them have decision values below 0. With --positive, where "
            "the rows of that class are.",
            "model",
        ),
    ] = None


@option_group
class SolverOptions(Checked):
    """The method that minimizes the objective."""

    solver: Annotated[
        str,
        Option(
            "The method; auto chooses by the size of the data, the kernel and the memory.",
            "solver",
            choices=SOLVERS,
            beside=("auto",),
        ),
    ] = "auto"
    options: Annotated[
        ByName, Option("Settings of the solver, by name.", "solver", choices=SOLVERS, settings_of="solver")
    ] = field(default_factory=dict)


@option_group
class KernelOptions(Checked):
    """The kernel, and what its Nystrom features are made of."""

    kernel: KernelName = "linear"
    kernel_options: Annotated[
        dict[str, float], Option("Settings of the kernel, by name.", "kernel", choices=KERNELS, settings_of="kernel")
    ] = field(default_factory=dict)
    sampling: Annotated[
        str,
        Option(
            "How landmarks are drawn: evenly (uniform), by their leverage (one pass more), far from each other "
            "(kmeans++), or as those of a larger sample that explain the labels best (greedy). auto is greedy where labels "
            "may have a say and the memory has room: not of one class, beside --calibrate or in embed; else it is uniform.",
            "kernel",
            choices=("uniform", "leverage", "kmeans++", "greedy"),
            beside=("auto",),
        ),
    ] = "auto"
    cutoff: Annotated[
        float,
        Option(
            "Leave out directions of the landmarks' kernel matrix whose eigenvalue is below this share of the largest.",
            "kernel",
            bounds=Bounds(above=0, below=1),
        ),
    ] = 1e-6


@option_group
class LandmarkOptions(KernelOptions):
    """One width and one set of landmarks."""

    gamma: Annotated[
        float | str,
        Option(
            "Width of the kernel: a number, 'scale' for 1 / (columns x variance), or 'mean-distance'.",
            "kernel",
            bounds=Bounds(above=0),
            metavar="X|scale|mean-distance",
        ),
    ] = "scale"
    landmark_file: Annotated[
        str | None,
        Option("A .npy file of landmarks, one a row, with the columns of the store.", "kernel", metavar="PATH"),
    ] = None


LIBLINEAR, LIBSVM, ONNX, SKLEARN, SQL, STREAMSVM = "liblinear", "libsvm", "onnx", "sklearn", "sql", "streamsvm"


@dataclass(frozen=True)
class ExportJob(OutputOptions):
    """What ``streamsvm export`` is asked for; the keys of a job file are these fields and those of the groups."""

    model: Annotated[str, Option("The model: of streamsvm, or text of LIBLINEAR or LIBSVM.")]
    out: Annotated[str, Option("Where it is written.", metavar="PATH")]
    _: KW_ONLY
    format: Annotated[
        str,
        Option(
            "Text of LIBLINEAR (linear models) or LIBSVM (kernel models too, not standardized), an ONNX graph (of a table with one "
            "input per column), a SQL query (linear models of tables, for DuckDB and PostgreSQL), or an estimator of scikit-learn (a "
            "pickle; a PATH that ends with .skops is a file of skops), over columns as the sources have them; or a file of streamsvm.",
            "output",
            choices=(LIBLINEAR, LIBSVM, ONNX, SKLEARN, SQL, STREAMSVM),
        ),
    ] = LIBLINEAR


@dataclass(frozen=True)
class ReportJob(OutputOptions):
    """What ``streamsvm report`` is asked for; the keys of a job file are these fields and those of the groups."""

    runs: Annotated[
        tuple[str, ...],
        Option(
            "Models whose MODEL.run lies beside them, or what tune has written; several are compared.", metavar="RUN"
        ),
    ]
    out: Annotated[str, Option("Where the page is written, an HTML file.")]


GENERATORS = "streamsvm.store.generators:GENERATORS"


@dataclass(frozen=True)
class SynthJob(NewStoreOptions):
    """What ``streamsvm synth`` is asked for; the keys of a job file are these fields and those of the groups."""

    name: Annotated[str, Option("The generator.", choices=GENERATORS, beside=("names", "messy-table"))]
    store: Annotated[
        str,
        Option(
            "Where the store is written; of table, messy-table and names NAME.csv, rows of text as people have them."
        ),
    ]
    rows: Annotated[
        int, Option("How many rows to make, those for testing included.", "output", bounds=AT_LEAST_ONE)
    ] = 1_000_000
    columns: Annotated[
        int | None,
        Option("How many columns, of generators that make any number of them.", "output", bounds=AT_LEAST_ONE),
    ] = None
    store_dtype: Annotated[str, STORE_DTYPE] = "auto"
    generator_options: Annotated[
        dict[str, float],
        Option("Settings of the generator, by name.", "output", choices=GENERATORS, settings_of="generator"),
    ] = field(default_factory=dict)

    @property
    def is_file(self) -> bool:
        """Whether a file of text is made, and no store."""
        return Path(self.store).suffix == ".csv"

    @property
    def training_rows(self) -> int:
        """Rows that are not set aside for testing: the first ones."""
        return max(1, self.rows - round(self.rows * self.test_fraction))

    def test_path(self) -> Path:
        """Return where the test store goes; as for ``ingest``."""
        store = Path(self.store)
        return store.with_name(f"{store.stem}.test{store.suffix or '.zarr'}")


@dataclass(frozen=True)
class EmbedJob(OutputOptions, ClusterOptions, ReadingOptions, LandmarkOptions, ScalingOptions):
    """What ``streamsvm embed`` is asked for; the keys of a job file are these fields and those of the groups."""

    store: Annotated[str, Option("The store of the rows.")]
    embedding: Annotated[str, Option("Where the store of their features is written.")]
    _: KW_ONLY
    kernel: KernelName = "rbf"
    landmarks: Annotated[
        int | None,
        Option(
            "How many rows of the store to make features of; each gives one at most.", "kernel", bounds=AT_LEAST_ONE
        ),
    ] = 1000
    dtype: Annotated[str, Dtype] = "float32"
    chunk_bytes: ChunkBytes = CHUNK_BYTES
    time_limit: TimeLimit = float("inf")
