"""The options that several jobs share, each declared once; and the jobs export, report, synth and embed.

A job inherits from the groups of options that it needs. The fields of a group are keyword-only, so that only a job's
own fields (store, model, ...) are positional. An option whose default differs between jobs is a type here
(``TimeLimit``) and a field of each job.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Annotated, NamedTuple

from streamsvm.config.options import Bounds, Checked, Option, Quantity, option_group
from streamsvm.errors import UsageError
from streamsvm.type_aliases import ValuesByName

AT_LEAST_ONE = Bounds(least=1)
THREADS = Bounds(least=1, most=1024)
"""The number is bounded because a fit that is short of memory is planned with each smaller number of threads in
turn."""
POSITIVE = Bounds(above=0)
TIME = Bounds(least=0, infinite=True)
TimeLimit = Annotated[
    float,
    Option(
        "Stop after this time with exit code 75. Finished work is kept, and the same command continues it.",
        "stopping",
        unit=Quantity.SECONDS,
        bounds=TIME,
    ),
]
CHUNK_BYTES = 4 << 20
CHUNK = Option(
    "Size of the chunks of the store; one chunk is read at a time.",
    "output",
    unit=Quantity.BYTES,
    bounds=AT_LEAST_ONE,
    flag="chunk",
)
ChunkBytes = Annotated[int, CHUNK]
STORE_DTYPE = Option(
    "Dense rows: the type of the stored numbers. float16 halves the bytes of every pass and keeps 11 bits of a number; "
    "bfloat16 keeps 8 bits, and numbers as large as those of float32; "
    "uint8, for whole numbers from 0 to 255 such as pixels, leaves a quarter, and so does int8, in which 127 stands for the "
    "largest number of a column, found in a reading before. Training, certificates and statistics are of the numbers as stored. "
    "auto: the type of the source if that is float16 or bfloat16, else float32.",
    "output",
    choices=("auto", "float32", "float16", "bfloat16", "uint8", "int8"),
)
Seed = Annotated[int, Option("Seed of all random choices.", bounds=Bounds(least=0))]


@option_group
class MemoryOptions(Checked):
    """The limits of memory and threads."""

    memory: Annotated[
        int | None,
        Option(
            "Anonymous memory that the process may use; a job that needs more is refused before any data are read.",
            "memory",
            unit=Quantity.BYTES,
            bounds=AT_LEAST_ONE,
            default="the limit of the control group, or three quarters of the available memory",
        ),
    ] = None
    threads: Annotated[
        int | None,
        Option(
            "Number of threads that compute in parallel; fewer if memory is short. The result does not depend on it.",
            "memory",
            bounds=THREADS,
            default="all processors that this process may use",
        ),
    ] = None


DEFAULT_PREFETCH = 2


@option_group
class ReadingOptions(MemoryOptions):
    """The order in which the chunks of a store are read, and how far ahead."""

    seed: Seed = 0
    prefetch: Annotated[
        int,
        Option(
            "Number of chunks to read ahead of the current one; as many can be read at the same time if reading is "
            "slow.",
            "memory",
            bounds=Bounds(least=0),
            default=f"{DEFAULT_PREFETCH}; fit of a store in an object store: as many as memory leaves room for, up to 64",
        ),
    ] = DEFAULT_PREFETCH
    disk_cache: Annotated[
        int | None,
        Option(
            "Stores in object stores: bytes on the disk of this machine for chunks that were read, which later passes and fits then "
            "read from there (in ~/.cache/streamsvm-stores, or where STREAMSVM_CACHE says; 'streamsvm cache' lists and removes them).",
            "reading",
            unit=Quantity.BYTES,
            default="none",
        ),
    ] = None


@option_group
class ClusterOptions(Checked):
    """The cluster on which a job runs, if not in this process."""

    cluster: Annotated[
        str | None,
        Option(
            "Run on Dask workers: tcp://127.0.0.1:8786, tls://HOST:8786, local:N (start N workers on this machine), "
            "scheduler-file:PATH, or client: (in a program: its current client). A cluster pays off for jobs that take "
            "at least half a minute on the threads of one machine; local:N is no faster than --threads N.",
            "cluster",
        ),
    ] = None
    insecure_network: Annotated[
        bool, Option("Allow an unencrypted connection to a cluster on other machines.", "cluster")
    ] = False


PAGE = Option(
    "Also write the HTML page of the run, as 'streamsvm report' does.", "output", metavar="PATH", copies="file"
)


@option_group
class ScratchOptions(Checked):
    """Where workers that share no folder keep what they need in the next pass."""

    scratch: Annotated[
        str | None,
        Option(
            "For a cluster whose workers share no folder, and a model on the disk of this machine: a URL below which the workers keep "
            "what they need in the next pass. A model at a URL needs none.",
            "cluster",
            metavar="PATH",
            urls=True,
            default="MODEL.run",
        ),
    ] = None


@option_group
class PageOptions(Checked):
    """The HTML page of a run."""

    report: Annotated[str | None, PAGE] = None


@option_group
class OutputOptions(Checked):
    """The treatment of an output that exists already."""

    overwrite: Annotated[bool, Option("Replace the output if it exists.", "output")] = False


@option_group
class NewStoreOptions(OutputOptions):
    """The division of a new store into chunks, and into rows for training and for testing."""

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
"""Bounds of C and lambda, within which the squares of derived numbers neither overflow nor underflow."""
NU_BOUNDS = Bounds(above=0, most=1)
"""Bounds of nu."""
NU = 0.5
"""Default of nu for one-class problems, as in scikit-learn: an upper bound of the share of outliers."""
KernelName = Annotated[str, Option("The kernel k(x, z) of the decision function.", "kernel", choices=KERNELS)]


Tolerance = Annotated[
    float,
    Option(
        "Stop when the relative duality gap (primal - dual) / |primal| is at most this. 0: never.",
        "stopping",
        bounds=Bounds(least=0),
    ),
]


MaxPasses = Annotated[int, Option("Largest number of passes over the data.", "stopping", bounds=AT_LEAST_ONE)]


SCORES = (
    "error",
    "balanced_error",
    "f1",
    "auc",
    "average_precision",
    "log_loss",
    "brier",
    "cost:fp=X,fn=Y",
    "top_5_error",
    "rmse",
    "mae",
    "r2",
)
"""The names in ``model.measures.MEASURES``, repeated here so that help does not have to import numpy."""
Score = Annotated[
    str | None,
    Option(
        "The measure of a model's quality on held-out rows. For two classes, the positive class is that of --positive, "
        "else the rarer one.",
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
        "Two classes: choose the threshold of the decision value at which this measure is best, on the rows of "
        "--validation, else on out-of-fold scores as for --calibrate.",
        "model",
        choices=THRESHOLDS,
        default="threshold 0",
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

OVR, OVO, CRAMMER_SINGER, SOFTMAX = MULTI_CLASS = ("ovr", "ovo", "crammer_singer", "softmax")
"""Ways to reduce several classes to optimization problems: one-vs-rest, one-vs-one, or one joint problem."""


STANDARDIZE = Option(
    "Scale numeric columns to mean 0 and standard deviation 1. Columns made from categories, dates and text are not "
    "changed.",
    "model",
)


@option_group
class ScalingOptions(Checked):
    """The scaling of columns before training."""

    standardize: Annotated[bool, STANDARDIZE] = False
    # None if not given: then the setting is not recorded
    standardize_all: Annotated[
        bool | None, Option("With --standardize: also scale columns made from categories, dates and text.", "model")
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
            off="Use no constant feature.",
        ),
    ] = 1.0
    # None if not given: then the setting is not recorded
    l1_ball: Annotated[
        float | None,
        Option(
            "The lasso: minimize C ||Xw - y||^2, without ||w||^2 / 2, over all weights with ||w||_1 at most this; "
            "many weights are then 0.",
            "model",
            bounds=Bounds(above=0),
        ),
    ] = None
    l1: Annotated[
        float | None,
        Option(
            "The elastic net: factor of ||w||_1, which is added to ||w||^2 / 2; the weights of columns of little use "
            "are then 0.",
            "model",
            bounds=Bounds(above=0),
        ),
    ] = None
    free_bias: Annotated[
        bool | None,
        Option("Do not regularize the weight of the constant feature: a free bias (--solver lbfgs).", "model"),
    ] = None
    positive: Annotated[
        str | None, Option("Train one class against the rest: the label of the positive class.", "model")
    ] = None
    # None if not given: then the setting is not recorded
    multi_class: Annotated[
        str | None,
        Option(
            "For several classes: one problem for each class against the rest (ovr); one for each pair of classes, "
            "with a majority vote, as in LIBSVM (ovo); or one for all classes (crammer_singer), in which the margin "
            "of a row is the difference between the decision value of its own class and the largest of the others; "
            "or, with the logistic loss, one for all classes by the softmax of their decision values (softmax).",
            "model",
            choices=MULTI_CLASS,
            default=OVR,
        ),
    ] = None
    class_weight: Annotated[
        str | dict[str, float] | None,
        Option(
            "Factors of C by class, such as A=2,B=0.5 (1 for other classes); or 'balanced', which gives all classes "
            "the same total weight.",
            "model",
            bounds=Bounds(least=0, most=1e9),
            metavar="balanced|A=X,...",
        ),
    ] = None


@option_group
class OneClassOptions(Checked):
    """One-class models."""

    # None if not given: then the setting is not recorded
    one_class: Annotated[
        bool | None,
        Option(
            "Learn the region of the rows, without labels: rows unlike the training rows get decision values below 0. "
            "With --positive, learn the region of the rows of that class.",
            "model",
        ),
    ] = None


@option_group
class SolverOptions(Checked):
    """The method that minimizes the objective."""

    solver: Annotated[
        str,
        Option(
            "The method; auto chooses by the size of the data, the kernel and the memory limit.",
            "solver",
            choices=SOLVERS,
            extra_choices=("auto",),
        ),
    ] = "auto"
    options: Annotated[
        ValuesByName, Option("Settings of the solver, by name.", "solver", choices=SOLVERS, settings_of="solver")
    ] = field(default_factory=dict)


@option_group
class KernelOptions(Checked):
    """The kernel, and the landmarks of its Nystrom features."""

    kernel: KernelName = "linear"
    kernel_options: Annotated[
        dict[str, float], Option("Settings of the kernel, by name.", "kernel", choices=KERNELS, settings_of="kernel")
    ] = field(default_factory=dict)
    sampling: Annotated[
        str,
        Option(
            "Choice of landmarks: uniformly at random (uniform), by leverage with one more pass (leverage), far from "
            "each other (kmeans++), or the rows of a larger sample that explain the labels best (greedy). auto: "
            "greedy if labels may be used and memory suffices (not for one-class models, with --calibrate or in "
            "embed), else uniform.",
            "kernel",
            choices=("uniform", "leverage", "kmeans++", "greedy"),
            extra_choices=("auto",),
        ),
    ] = "auto"
    cutoff: Annotated[
        float,
        Option(
            "Drop eigenvectors of the landmarks' kernel matrix whose eigenvalue is below this fraction of the largest.",
            "kernel",
            bounds=Bounds(above=0, below=1),
        ),
    ] = 1e-6


@option_group
class LandmarkOptions(KernelOptions):
    """The kernel's gamma, and given landmarks."""

    gamma: Annotated[
        float | str,
        Option(
            "The kernel's gamma: a number, 'scale' for 1 / (columns x variance), or 'mean-distance' for 1 / (mean "
            "squared distance of two rows).",
            "kernel",
            bounds=Bounds(above=0),
            metavar="X|scale|mean-distance",
        ),
    ] = "scale"
    landmark_file: Annotated[
        str | None,
        Option(
            "A .npy file of landmarks, one per row, with the columns of the store.",
            "kernel",
            metavar="PATH",
            copies="input",
        ),
    ] = None


LIBLINEAR, LIBSVM, ONNX, SKLEARN, SQL, STREAMSVM = "liblinear", "libsvm", "onnx", "sklearn", "sql", "streamsvm"
RATING_TABLE = "rating-table"


@dataclass(frozen=True)
class ExportJob(OutputOptions):
    """The options of ``streamsvm export``; their names are the keys of a job file."""

    model: Annotated[str, Option("The model: a file of streamsvm, LIBLINEAR or LIBSVM.", copies="input")]
    out: Annotated[str, Option("Path of the exported model.", metavar="PATH", copies="file")]
    _: KW_ONLY
    format: Annotated[
        str,
        Option(
            "liblinear (linear models) or libsvm (also kernel models, not standardized): their text formats. onnx: a "
            "graph, for tables with one input per column. sql: a query for DuckDB and PostgreSQL (linear models and curves of "
            "tables). sklearn: an estimator, pickled, or in the format of skops if PATH ends with .skops. All of them "
            "take columns in their original units. streamsvm: a file of streamsvm. rating-table: a CSV file with the pieces "
            "of the curves of a model of curves, which add up to its decision values.",
            "output",
            choices=(LIBLINEAR, LIBSVM, ONNX, SKLEARN, SQL, STREAMSVM, RATING_TABLE),
        ),
    ] = LIBLINEAR
    values_from: Annotated[
        str | None,
        Option(
            "With --format sql: a file with the columns of the training data, or a folder or a pattern of such files. SQL cannot "
            "compute the hash of text; the query lists the values that hashed columns have in these files. A row with another value "
            "gets NULL as decision value, label and probability, never a wrong number.",
            "output",
            metavar="PATH",
            urls=True,
        ),
    ] = None

    def __post_init__(self) -> None:
        """Check the options. Raises UsageError."""
        super().__post_init__()
        if self.values_from is not None and self.format != SQL:
            raise UsageError(
                f"--values-from has no meaning for --format {self.format}: it lists values for a query in SQL",
                hint="leave it out, or --format sql",
            )


@dataclass(frozen=True)
class ReportJob(OutputOptions):
    """The options of ``streamsvm report``; their names are the keys of a job file."""

    runs: Annotated[
        tuple[str, ...],
        Option(
            "Models with their MODEL.run folder beside them, or outputs of tune; several are compared.",
            metavar="RUN",
            copies="input",
        ),
    ]
    out: Annotated[str, Option("Path of the page, an HTML file.", copies="file")]


GENERATORS = "streamsvm.store.generators:GENERATORS"


@dataclass(frozen=True)
class SynthJob(NewStoreOptions):
    """The options of ``streamsvm synth``; their names are the keys of a job file."""

    name: Annotated[str, Option("The generator.", choices=GENERATORS, extra_choices=("names", "messy-table"))]
    store: Annotated[
        str,
        Option(
            "Path or URL of the store; for table, messy-table and names, NAME.csv writes a CSV file with raw values instead.",
            copies="store",
        ),
    ]
    rows: Annotated[
        int, Option("Number of rows to generate, including those of the test store.", "output", bounds=AT_LEAST_ONE)
    ] = 1_000_000
    columns: Annotated[
        int | None,
        Option("Number of columns, for generators that can make any number.", "output", bounds=AT_LEAST_ONE),
    ] = None
    store_dtype: Annotated[
        str,
        Option(
            "The type of the stored numbers; auto: float16 of generators whose numbers are float16, else float32.",
            "output",
            choices=("auto", "float32", "float16"),
        ),
    ] = "auto"
    generator_options: Annotated[
        dict[str, float],
        Option("Settings of the generator, by name.", "output", choices=GENERATORS, settings_of="generator"),
    ] = field(default_factory=dict)

    @property
    def is_file(self) -> bool:
        """Whether the output is a CSV file, and not a store."""
        return Path(self.store).suffix == ".csv"

    @property
    def training_rows(self) -> int:
        """Number of rows that are not in the test store: the first ones."""
        return max(1, self.rows - round(self.rows * self.test_fraction))

    def test_path(self) -> Path:
        """Return the path of the test store, as for ``ingest``."""
        store = Path(self.store)
        return store.with_name(f"{store.stem}.test{store.suffix or '.zarr'}")

    def targets(self) -> list[Path]:
        """Return the store and, if rows are set aside, the test store."""
        return [Path(self.store), *([self.test_path()] if self.training_rows < self.rows else [])]


@dataclass(frozen=True)
class EmbedJob(OutputOptions, ClusterOptions, ReadingOptions, LandmarkOptions, ScalingOptions):
    """The options of ``streamsvm embed``; their names are the keys of a job file."""

    store: Annotated[str, Option("The store with the rows.", urls=True)]
    embedding: Annotated[str, Option("Path or URL of the store with their features.", copies="embedding")]
    _: KW_ONLY
    kernel: KernelName = "rbf"
    landmarks: Annotated[
        int | None,
        Option(
            "Number of landmarks: rows of the store, each of which gives at most one feature.",
            "kernel",
            bounds=AT_LEAST_ONE,
        ),
    ] = 1000
    dtype: Annotated[str, Dtype] = "float32"
    chunk_bytes: ChunkBytes = CHUNK_BYTES
    time_limit: TimeLimit = float("inf")

    def targets(self) -> list[Path]:
        """Return the store that is written."""
        return [Path(self.embedding)]


class LossWeight(NamedTuple):
    """The weight of the losses at a point of the search: either C or nu."""

    C: float | None
    """The factor of the sum of losses; None if nu is given."""
    nu: float | None = None
    """One-class: upper bound of the share of outliers; two classes: of rows on the wrong side of their margin. None if
    C is given."""

    @property
    def value(self) -> float:
        """C or nu, whichever is given."""
        found = self.C if self.nu is None else self.nu
        assert found is not None
        return found

    def with_value(self, value: float) -> LossWeight:
        """Return the same parameter, C or nu, with another value."""
        return LossWeight(value) if self.nu is None else LossWeight(None, value)
