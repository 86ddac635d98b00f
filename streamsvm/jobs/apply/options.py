"""The options of ``predict`` and ``evaluate``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from streamsvm.config.options import Bounds, Option
from streamsvm.errors import UsageError
from streamsvm.jobs.common_options import ClusterOptions, MemoryOptions, OutputOptions
from streamsvm.store.sources.options import NewRowOptions

STDOUT = "-"
MEASURES = ("F1", "balanced_accuracy", "accuracy", "cost")
"""The measures by which --best-threshold can choose, fields of ``ThresholdFigures``."""
EQUAL_COSTS = 1.0, 1.0
"""The default costs of a false positive and of a false negative."""
PROBABILITY = "probability"
LOW, HIGH, PROVED = "low", "high", "proved"
PROBABILITY_LOW, PROBABILITY_HIGH = "probability_low", "probability_high"
PROBABILITIES = (PROBABILITY, PROBABILITY_LOW, PROBABILITY_HIGH)
"""Outputs of a model with probabilities."""
INTERVALS = (LOW, HIGH, PROVED, PROBABILITY_LOW, PROBABILITY_HIGH)
"""Outputs of a model that was fitted with --certify."""
OUTPUTS = ("label", "decision", PROBABILITY, *INTERVALS)
NAMED_COLUMN_SUFFIXES = (".csv", ".parquet")
"""Suffixes of files with named columns, in which rows can begin with their ids."""
SUFFIXES = (*NAMED_COLUMN_SUFFIXES, ".npy", ".txt")


@dataclass(frozen=True)
class PredictJob(OutputOptions, ClusterOptions, MemoryOptions, NewRowOptions):
    """The options of ``streamsvm predict``. The keys of a job file are the names of these fields and of the fields of the groups."""

    model: Annotated[str, Option("The model.", copies="input")]
    data: Annotated[
        tuple[str, ...],
        Option(
            "A store, or files like those of the training data, with or without labels; - is standard input.",
            metavar="STORE|SOURCE",
            urls=True,
        ),
    ]
    out: Annotated[
        str,
        Option(
            "NAME.csv, NAME.parquet, NAME.txt (without a header), NAME.npy, or - for CSV on standard output.",
            copies="file",
        ),
    ]
    output: Annotated[
        str | tuple[str, ...],
        Option(
            "What to write for each row: the label, the decision value of every problem (two classes: the label changes at f = 0, or at "
            "the threshold of the model), the probability of every class, or several: label,probability. For a model fitted with --certify also what its exact optimum says: "
            "low and high, between which its decision value lies, probability_low and probability_high, between which the probability of each class lies, and proved: whether it predicts the same label (yes, no, open). In CSV and Parquet the first column is "
            "the id of the row; rows without ids are numbered from 0, unless lines may be skipped.",
            "output",
            choices=OUTPUTS,
        ),
    ] = "label"

    def __post_init__(self) -> None:
        """Check the options. Raises UsageError."""
        super().__post_init__()
        if len(self.outputs) > 1 and Path(self.out).suffix == ".npy":
            raise UsageError(
                "an array holds only one of labels, decision values, probabilities and intervals",
                hint="write NAME.csv or NAME.parquet",
            )
        if self.out != STDOUT and Path(self.out).suffix not in SUFFIXES:
            raise UsageError(f"{self.out} has none of the endings {', '.join(SUFFIXES)}", hint="or - for CSV on stdout")

    @property
    def outputs(self) -> tuple[str, ...]:
        """The kinds of output to write for each row, in this order."""
        return (self.output,) if isinstance(self.output, str) else self.output

    @property
    def to_stdout(self) -> bool:
        """Whether predictions go to standard output."""
        return self.out == STDOUT

    @property
    def has_named_columns(self) -> bool:
        """Whether the output has named columns, of which the first has the ids of rows."""
        return self.out == STDOUT or Path(self.out).suffix in NAMED_COLUMN_SUFFIXES

    @property
    def numbers_rows(self) -> bool:
        """Whether rows without ids are numbered. Numbers agree with the source only if no line may be skipped."""
        return self.has_named_columns and self.on_bad_line == "error"


@dataclass(frozen=True)
class EvaluateJob(ClusterOptions, MemoryOptions, NewRowOptions):
    """The options of ``streamsvm evaluate``. The keys of a job file are the names of these fields and of the fields of the groups."""

    model: Annotated[str, Option("The model.", copies="input")]
    data: Annotated[
        tuple[str, ...],
        Option(
            "A store, or labeled files like those of the training data; - is standard input.",
            metavar="STORE|SOURCE",
            urls=True,
        ),
    ]
    threshold: Annotated[
        float | None,
        Option(
            "Two classes: also show precision, recall, F1 and cost if rows with f > X are predicted as positive.",
            "output",
            bounds=Bounds(),
        ),
    ] = None
    best_threshold: Annotated[
        str | None,
        Option(
            "Two classes: also show the threshold at which this measure is best.",
            "output",
            choices=(*MEASURES, "cost:fp=X,fn=Y"),
            aliases=(("f1", "F1"), ("balanced_error", "balanced_accuracy"), ("error", "accuracy")),
        ),
    ] = None
    cost: Annotated[
        tuple[float, ...],
        Option(
            "Two classes: the cost of a false positive and of a false negative.",
            "output",
            bounds=Bounds(least=0),
            metavar="FP,FN",
        ),
    ] = EQUAL_COSTS
    positive: Annotated[
        str | None,
        Option(
            "Two classes: the positive class, to which F1, average precision, precision, recall and cost refer.",
            "output",
            default="--positive of the fit, else the rarer class",
        ),
    ] = None

    certify: Annotated[
        bool,
        Option(
            "For a model fitted with --certify: also show bounds of the figures of its exact optimum, which hold however long training continues.",
            "output",
        ),
    ] = False

    against: Annotated[
        str | None,
        Option(
            "Another model of the same classes and columns: also show which rows only one of the two predicts correctly; with --certify also "
            "between which bounds that lies for the exact optima of both. It is no test of significance.",
            "output",
            metavar="OTHER",
        ),
    ] = None

    leave_one_out: Annotated[
        bool,
        Option(
            "For a linear model and the store it was trained on: also show bounds of the leave-one-out error, that of predicting each row by the exact "
            "optimum without it. Six passes over the data and some Newton steps, no refits; for losses without kinks.",
            "output",
        ),
    ] = False

    def __post_init__(self) -> None:
        """Check the options. Raises UsageError."""
        super().__post_init__()
        if self.leave_one_out and self.cluster is not None:
            raise UsageError("--leave-one-out cannot be combined with --cluster", hint="leave out one of them")
        if self.best_threshold is not None and self.best_threshold.startswith("cost:"):
            from streamsvm.model.measures import parse_measure

            costs = parse_measure(self.best_threshold, "--best-threshold").costs
            if self.cost not in (EQUAL_COSTS, costs):
                raise UsageError(
                    "--cost and --best-threshold give different costs of the two kinds of error",
                    hint="leave out --cost",
                )
            object.__setattr__(self, "cost", costs)
            object.__setattr__(self, "best_threshold", "cost")
        if len(self.cost) != 2:
            raise UsageError(
                "--cost needs the cost of a false positive and that of a false negative", hint="write it as 1,5"
            )


CHANGEABLE_MODEL = Option("The model, fitted with --certify updates.", copies="input")
NEW_MODEL = Option("Path of the new model.", metavar="NEW", copies="file")


@dataclass(frozen=True)
class ForgetJob(OutputOptions, MemoryOptions, NewRowOptions):
    """The options of ``streamsvm forget``; their names are the keys of a job file."""

    model: Annotated[str, CHANGEABLE_MODEL]
    data: Annotated[
        tuple[str, ...],
        Option(
            "The rows to remove, with their labels, in files like those of the training data or in a store; - is standard input. They are assumed to be rows of the training data.",
            metavar="ROWS",
        ),
    ]
    out: Annotated[str, NEW_MODEL]
    receipt: Annotated[
        str | None,
        Option(
            "Also write a CSV file that says of each row whether it is proved to have had no influence on the optimum (none), or not (some).",
            "output",
            metavar="PATH",
            copies="file",
        ),
    ] = None


@dataclass(frozen=True)
class LearnJob(OutputOptions, MemoryOptions, NewRowOptions):
    """The options of ``streamsvm learn``; their names are the keys of a job file."""

    model: Annotated[str, CHANGEABLE_MODEL]
    data: Annotated[
        tuple[str, ...],
        Option(
            "The rows to add, with their labels, in files like those of the training data or in a store; - is standard input.",
            metavar="ROWS",
        ),
    ]
    out: Annotated[str, NEW_MODEL]
