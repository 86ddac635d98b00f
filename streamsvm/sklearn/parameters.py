"""What estimators are asked for and what fits leave in them.

An estimator is a dataclass whose fields are its parameters: scikit-learn reads the signature that is made of them, and
the options of its fit are made of them too. A new estimator says what it has beside these, and repeats nothing:

    @estimator
    class StreamSVR(RegressorMixin, StreamEstimator):
        C: float = field(default=1.0, kw_only=False)  # may be given without its name
        epsilon: float = 0.1  # the option of ``streamsvm fit`` that is called so
        calibration: str | None = option(default=None, name="calibrate")  # an option that is called otherwise
        warm_start: bool = own(default=False)  # no option: for the estimator alone
"""

from __future__ import annotations

import numbers
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar, dataclass_transform

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_random_state

from streamsvm.aliases import Array, ByName, JsonObject
from streamsvm.api.values import by_field
from streamsvm.config.job_file import make_job
from streamsvm.model import Model
from streamsvm.rows import Float64
from streamsvm.schedule.machine import usable_cores

OPTION = "option"
"""Where the metadata of a field say what becomes of it: the name of an option, '' for none, and what makes its value."""
NO_MISSING = "error"
"""The value of ``missing`` with which rows must be whole."""
Kind = TypeVar("Kind", bound=type)


def as_given(value: Any) -> Any:
    """Return a value as it is."""
    return value


def option(*, default: Any, name: str, value: Callable[[Any], Any] = as_given) -> Any:
    """Declare a parameter that is an option under another name, its value made by ``value``."""
    return field(default=default, metadata={OPTION: (name, value)})


def own(*, default: Any, kw_only: bool = True) -> Any:
    """Declare a parameter that is no option of a command."""
    return field(default=default, kw_only=kw_only, metadata={OPTION: ("", as_given)})


@dataclass_transform(kw_only_default=True, eq_default=False, field_specifiers=(field, option, own))
def estimator(kind: Kind) -> Kind:
    """Make a class an estimator of its fields; what compares, shows and hashes it stays that of scikit-learn."""
    made: Kind = dataclass(kw_only=True, eq=False, repr=False, match_args=False)(kind)  # type: ignore[assignment]
    return made


@estimator
class Parameters(BaseEstimator):
    """Parameters that are options of a command by their names, unless their declaration says otherwise."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def job_of(command: str, asked: Parameters, chosen: ByName) -> Any:
    """Return the job of a command that an estimator asks for, with the options ``chosen`` in place of its own.

    Raises UsageError, ConfigError, and ValueError for ``n_jobs`` and seeds that are none.
    """
    given: ByName = {}
    for one in fields(asked):
        name, value = one.metadata.get(OPTION, (one.name, as_given))
        if name:
            given[name] = value(vars(asked)[one.name])
    called = type(asked).__name__
    return make_job(command, by_field(command, given | chosen, called), called)


def seed_of(random_state: Any) -> int:
    """Return the seed of a fit: a whole number as it is, 0 for None, one drawn from a RandomState."""
    seed = random_state or 0
    if isinstance(seed, numbers.Integral):
        return int(seed)
    return int(check_random_state(seed).randint(np.iinfo(np.int32).max))


def threads_of(n_jobs: int | None) -> int:
    """Return the threads that ``n_jobs`` stands for: 1 for None, all processors for -1, all but one for -2. Raises ValueError for 0.

    joblib counts so too; it is not asked, as it brings what executes the files it reads.
    """
    if n_jobs is None:
        return 1
    if n_jobs == 0:
        raise ValueError("n_jobs is 0: give a number of threads, or -1 for all processors")
    return n_jobs if n_jobs > 0 else max(1, usable_cores() + 1 + n_jobs)


class Fitted:
    """What every fit leaves: no fields, so that they are no parameters either."""

    model_: Model
    """What can be saved, explained and applied."""
    classes_: Array
    """The labels that are predicted, in their order (n_classes,)."""
    coef_: Float64
    """The weights of a linear model (n_problems, n_features)."""
    intercept_: Float64
    """The constants of a linear model (n_problems,)."""
    gap_: float
    """The relative gap (primal - dual) / primal, of the problem where it is largest."""
    primal_: float
    """P of that problem."""
    dual_: float
    """D of that problem."""
    n_passes_: int
    """Readings of the data."""
    peak_memory_: int
    """The most bytes of memory that were seen in use."""
    passes_: list[JsonObject]
    """The records of the passes."""
    rows_seen_: int
    """Rows that were fitted to, those of all portions together."""
    n_features_in_: int
    """Columns of X."""
    feature_names_in_: Array
    """Names of the columns (n_features,), where they have some."""

    def __sklearn_is_fitted__(self) -> bool:
        return "rows_seen_" in vars(self)


@estimator
class FitParameters(Parameters):
    """The parameters of every estimator that ``streamsvm fit`` is behind."""

    bias: float = 1.0
    """Value of the constant feature."""
    standardize: bool = False
    """Whether columns are given mean 0 and standard deviation 1."""
    kernel: str = "linear"
    """The name of the kernel."""
    kernel_options: Mapping[str, float] | None = None
    """Its settings."""
    gamma: float | str = "scale"
    """Its width."""
    landmarks: int | None = None
    """How many Nystrom features stand for it."""
    sampling: str = "auto"
    """How landmarks are drawn."""
    solver: str = "auto"
    """The name of the solver."""
    options: Mapping[str, Any] | None = None
    """Its settings."""
    tolerance: float = 1e-3
    """The relative gap at which a fit may end."""
    max_passes: int = 1000
    """The readings after which it ends."""
    memory: int | str | None = None
    """Bytes the process may use."""
    random_state: Any = option(default=None, name="seed", value=seed_of)
    """The seed, or what draws one."""
    n_jobs: int | None = option(default=None, name="threads", value=threads_of)
    """Threads."""
    missing: str = own(default=NO_MISSING)
    """What stands for missing values, an option of ``ingest``."""
    verbose: bool = own(default=False)
    """Whether progress is shown."""
    on_pass: Callable[[dict[str, Any]], object] | None = own(default=None)
    """What is called after every pass with its record."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.missing != NO_MISSING
        return tags
