"""Options that say what is learned and by what method: the objective, the solver, the kernel; each declared here once."""

from __future__ import annotations

from dataclasses import field
from typing import Annotated

from streamsvm.aliases import ByName
from streamsvm.config.checks import Checked, option_group
from streamsvm.config.fields import Bounds, Option
from streamsvm.jobs.option_groups import AT_LEAST_ONE

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


Dtype = Option(
    "Number type of the features on disk; int8 has a scale for each column.",
    "kernel",
    choices=("float32", "float16", "int8"),
)

OVR, OVO, CRAMMER_SINGER = MULTI_CLASS = ("ovr", "ovo", "crammer_singer")
"""What is done with several classes."""


@option_group
class ScalingOptions(Checked):
    """What is done to the columns first."""

    standardize: Annotated[
        bool,
        Option(
            "Give every column of numbers mean 0 and standard deviation 1 before it is used; those made of categories, dates "
            "and text stay as they are.",
            "model",
        ),
    ] = False
    # None where it is not given: what a run of before was made with has no such setting
    standardize_all: Annotated[
        bool | None, Option("With --standardize: columns made of categories, dates and text, too.", "model")
    ] = None


@option_group
class ModelOptions(ScalingOptions):
    """The objective: loss, constant feature, classes and their weights."""

    loss: Annotated[str, Option("Loss of a row, as a function of its margin.", "model", choices=LOSSES)] = (
        "squared_hinge"
    )
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
            "(kmeans++), or as those of a larger sample that explain the labels best (greedy).",
            "kernel",
            choices=("uniform", "leverage", "kmeans++", "greedy"),
        ),
    ] = "uniform"
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
