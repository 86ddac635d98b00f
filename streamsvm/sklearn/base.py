"""The base of all estimators: declaration of parameters, attributes of a fit, and ``fit`` for rows of any kind.

An estimator is a dataclass whose fields are its parameters. The signature that scikit-learn reads and the options of the fit are both made
from these fields, so that a new estimator only declares its own parameters:

    @estimator
    class StreamSVR(RegressorMixin, StreamEstimator):
        C: float = field(default=1.0, kw_only=False)  # a positional parameter
        epsilon: float = 0.1  # the option of ``streamsvm fit`` of the same name
        random_state: Any = option(default=None, name="seed", value=draw_seed)  # an option of another name
        seed: int | None = own_parameter(default=None, synonym_of="random_state")  # another name of a parameter
        warm_start: bool = own_parameter(default=False)  # not an option: the estimator itself uses it
"""

from __future__ import annotations

import inspect
import numbers
import re
import tempfile
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias, TypeVar, dataclass_transform

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, check_random_state

from streamsvm.api.callbacks import open_job_report, report_passes
from streamsvm.api.functions import convert_options, equal_values, explain_synonyms, ingest
from streamsvm.api.inputs import find_or_make_store
from streamsvm.api.wording import explain_interruption, python_words, to_python
from streamsvm.config.command_table import make_job
from streamsvm.config.options import Checked
from streamsvm.engine.signals import allow_interrupt
from streamsvm.errors import StreamSVMWarning
from streamsvm.jobs.apply.column_names import column_names, table_columns
from streamsvm.jobs.apply.decision_values import compute_decision_intervals, compute_decision_values
from streamsvm.jobs.apply.rows import find_moved_offsets
from streamsvm.jobs.fit.driver import FitResult, MemoryFitResult, fit
from streamsvm.jobs.fit.notices import list_precision_notices
from streamsvm.jobs.fit.options import FitJob
from streamsvm.kinds_of_rows import DASK, Shaped, is_frame, kind_of, needs_ingest
from streamsvm.model import Model
from streamsvm.model.model import LINEAR
from streamsvm.registry import did_you_mean
from streamsvm.rows import Float64, Int32
from streamsvm.schedule.machine import count_jobs
from streamsvm.sklearn.rows import PARAMETER_NAMES, StreamRows, as_value_errors, balance_classes, check_rows
from streamsvm.store import open_store
from streamsvm.store.format.labels import label_text, label_type, record_label_type, sort_key
from streamsvm.type_aliases import Array, JsonObject, ValuesByName
from streamsvm.types import Report, Store

OPTION = "option"
"""Key in the metadata of a field: the name of its option ('' for none), and the function that converts the value."""
SYNONYM = "synonym"
"""Key in the metadata of a field that is another name of a parameter: the name of that parameter."""
NO_MISSING = "error"
"""The value of ``missing`` for which missing values are an error."""
WITH_RESUME = re.compile(r", (or|with) --resume\b")
"""The advice to resume a fit, in warnings."""
SIMILAR_PARAMETERS = {"tol": "tolerance", "max_iter": "max_passes", "alpha": "C", "penalty": "l1"}
"""Parameters of other estimators, each with the most similar parameter here."""
OWN_FRAMES = {"streamsvm", "sklearn", "contextlib"}
"""Packages whose stack frames lie between the user's call of ``fit`` and a warning."""
KernelName: TypeAlias = Literal["linear", "rbf", "laplacian", "polynomial", "sigmoid"]
LossName: TypeAlias = Literal["hinge", "squared_hinge", "huber", "logistic"]
RegressionLossName: TypeAlias = Literal["epsilon_insensitive", "squared_epsilon_insensitive", "squared", "pinball"]
SolverName: TypeAlias = Literal[
    "auto", "dcd", "mpu", "assg", "pegasos", "sgd", "sgd_qn", "active_set", "interior_point", "cutting_plane", "newton",
    "decomposition", "kernel_active_set", "blended", "fw", "mfw", "swap", "partan", "lbfgs",
]  # fmt: skip
SamplingName: TypeAlias = Literal["auto", "uniform", "leverage", "kmeans++", "greedy"]
FillingName: TypeAlias = Literal["error", "mean", "zero", "indicator"]
CertifyName: TypeAlias = Literal["none", "labels", "full", "updates"]
SmoothName: TypeAlias = Literal["d2", "d1", "none"]
CalibrationName: TypeAlias = Literal["none", "sigmoid", "isotonic", "temperature"]
MultiClassName: TypeAlias = Literal["ovr", "ovo", "crammer_singer", "softmax"]
Kind = TypeVar("Kind", bound=type)
Method = TypeVar("Method", bound=Callable[..., Any])

try:
    from sklearn.callback import CallbackSupportMixin, with_callbacks

    HAS_CALLBACKS = True
except ModuleNotFoundError:
    HAS_CALLBACKS = False

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """Placeholder for scikit-learn before 1.9, which has no callbacks."""

    def with_callbacks(method: Method) -> Method:
        """Return the method unchanged."""
        return method


def keep_value(value: Any) -> Any:
    """Return the value unchanged."""
    return value


def option(*, default: Any, name: str, value: Callable[[Any], Any] = keep_value) -> Any:
    """Declare a parameter for the option ``name``, whose value is converted by ``value``."""
    return field(default=default, metadata={OPTION: (name, value)})


def own_parameter(*, default: Any, kw_only: bool = True, synonym_of: str = "") -> Any:
    """Declare a parameter that is not an option of a command; it may be another name of the parameter ``synonym_of``."""
    return field(default=default, kw_only=kw_only, metadata={OPTION: ("", keep_value), SYNONYM: synonym_of})


def method_where(check: Callable[[Any], bool]) -> Callable[[Method], Method]:
    """Return ``available_if(check)``, the decorator of a method that exists only if ``check(estimator)`` is true, with a static type."""

    def decorate(method: Method) -> Method:
        conditional: Method = available_if(check)(method)
        return conditional

    return decorate


@dataclass_transform(kw_only_default=True, eq_default=False, field_specifiers=(field, option, own_parameter))
def estimator(kind: Kind) -> Kind:
    """Class decorator: make the fields of a class its parameters; comparison, repr and hash stay those of scikit-learn."""
    decorated: Kind = dataclass(kw_only=True, eq=False, repr=False, match_args=False)(kind)  # type: ignore[assignment]
    return decorated


@estimator
class Parameters(BaseEstimator):
    """Base class of parameters: each is the option of its name, unless declared by ``option`` or ``own_parameter``."""

    if TYPE_CHECKING:  # inherited from a class without type annotations

        def get_params(self, deep: bool = True) -> dict[str, Any]:
            """Return the parameters by name."""
            raise NotImplementedError

        def set_params(self, **params: Any) -> Self:
            """Set parameters by name."""
            raise NotImplementedError

    def __new__(cls, *args: Any, **given: Any) -> Self:  # noqa: ARG004 (of the signature of __init__)
        names = {one.name for one in fields(cls)}
        for name in given.keys() - names:
            nearest = SIMILAR_PARAMETERS.get(name)
            hint = f"; perhaps {nearest}=" if nearest in names else did_you_mean(name, names)
            raise TypeError(f"{cls.__name__} has no parameter {name!r}{hint}")
        return super().__new__(cls)

    def _parameter(self, name: str) -> Any:
        """Return the value of a parameter, which may be set under its other name. Raises ValueError if both are set to different values."""
        parameters = vars(self)
        for other_name, default in _find_synonyms(type(self)).get(name, ()):  # type: ignore[arg-type]
            other = parameters[other_name]
            if other is None:
                continue
            if not equal_values(parameters[name], default) and not equal_values(parameters[name], other):
                raise ValueError(explain_synonyms(name, parameters[name], other_name, other))
            return other
        return parameters[name]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


@cache
def _find_synonyms(kind: type[Parameters]) -> dict[str, list[tuple[str, Any]]]:
    """Return the other names of parameters of an estimator, each with the default of the parameter itself."""
    synonyms: dict[str, list[tuple[str, Any]]] = {}
    defaults = {one.name: one.default for one in fields(kind)}
    for one in fields(kind):
        if name := one.metadata.get(SYNONYM):
            synonyms.setdefault(name, []).append((one.name, defaults[name]))
    return synonyms


def build_job(command: str, estimator: Parameters, chosen: ValuesByName, kind: type[Checked] | None = None) -> Any:
    """Return the job of a command with the parameters of an estimator, overridden by the options ``chosen``.

    ``kind``: a class of jobs with some of the command's options; None: that of the command.
    Raises UsageError, ConfigError, and ValueError for an invalid ``n_jobs`` or seed.
    """
    options: ValuesByName = {}
    for one in fields(estimator):
        name, value = one.metadata.get(OPTION, (one.name, keep_value))
        if name:
            options[name] = value(estimator._parameter(one.name))  # noqa: SLF001 (of a class of this module)
    called = type(estimator).__name__
    return make_job(command, convert_options(command, options | chosen, called), called, kind)


def draw_seed(random_state: Any) -> int:
    """Return the seed of a fit: an integer unchanged, 0 for None, a random integer from a RandomState."""
    seed = random_state or 0
    if isinstance(seed, numbers.Integral):
        return int(seed)
    return int(check_random_state(seed).randint(np.iinfo(np.int32).max))


def count_threads(n_jobs: int | None) -> int:
    """Return the number of threads for ``n_jobs``: 1 for None, else as ``count_jobs``. Raises ValueError for 0."""
    if n_jobs == 0:
        raise ValueError("n_jobs is 0: give a number of threads, or -1 for all processors")
    return 1 if n_jobs is None else count_jobs(n_jobs)


class Fitted:
    """The attributes that every fit sets. This is no dataclass, so that they are not parameters."""

    model_: Model
    """The model, which can be saved, explained and applied."""
    classes_: Array
    """The labels in sorted order (n_classes,)."""
    coef_: Float64
    """The weights of a linear model (n_problems, n_features)."""
    intercept_: Float64
    """The constants of a linear model (n_problems,)."""
    gap_: float
    """The largest relative duality gap (primal - dual) / primal of all problems."""
    primal_: float
    """The primal objective of the problem with the largest gap."""
    dual_: float
    """The dual bound of the problem with the largest gap."""
    n_passes_: int
    """Number of passes over the data."""
    peak_memory_: int
    """Peak memory in bytes."""
    passes_: list[JsonObject]
    """The records of the passes."""
    rows_seen_: int
    """Number of rows fitted, including those of earlier calls of ``partial_fit``."""
    n_features_in_: int
    """Number of columns of X."""
    feature_names_in_: Array
    """Names of the columns (n_features,); absent if they have none."""

    def __sklearn_is_fitted__(self) -> bool:
        return "rows_seen_" in vars(self)


@estimator
class FitParameters(Parameters):
    """The parameters of every estimator that runs ``streamsvm fit``."""

    bias: float = 1.0
    standardize: bool = False
    kernel: KernelName = "linear"
    kernel_options: Mapping[str, float] | None = None
    gamma: float | Literal["scale", "mean-distance"] = "scale"
    landmarks: int | None = None
    sampling: SamplingName = "auto"
    solver: SolverName = "auto"
    options: Mapping[str, Any] | None = None
    tolerance: float = 1e-3
    max_passes: int = 1000
    memory: int | str | None = None
    random_state: Any = option(default=None, name="seed", value=draw_seed)
    seed: int | None = own_parameter(default=None, synonym_of="random_state")
    n_jobs: int | None = option(default=None, name="threads", value=count_threads)
    threads: int | None = own_parameter(default=None, synonym_of="n_jobs")
    missing: FillingName = own_parameter(default=NO_MISSING)
    verbose: bool = own_parameter(default=False)
    progress: bool | None = own_parameter(default=None, synonym_of="verbose")
    on_pass: Callable[[dict[str, Any]], object] | None = own_parameter(default=None)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.missing != NO_MISSING
        return tags


@dataclass(slots=True)
class FitTasks:
    """Reports a fit to callbacks of scikit-learn as a task, and each pass as a subtask.

    Callbacks are an experimental feature of scikit-learn since 1.9 (https://scikit-learn.org/1.9/developers/callbacks.html), set by
    ``set_callbacks``; with earlier versions estimators lack this method. ``on_pass`` works with all versions.
    """

    estimator: Any
    arguments: ValuesByName
    """X, y and metadata, as passed to ``fit``."""
    context: Any = None
    """The task of the fit; None if scikit-learn has no callbacks."""

    @classmethod
    def begin(cls, estimator: Any, X: Any, y: Any, sample_weight: Any) -> FitTasks:
        """Begin the task of a fit, whose number of passes is not known in advance."""
        arguments = {"X": X, "y": y, "metadata": None if sample_weight is None else {"sample_weight": sample_weight}}
        if not HAS_CALLBACKS:
            return cls(estimator, arguments)
        context = estimator._init_callback_context(max_subtasks=None)  # noqa: SLF001 (documented for estimators of others)
        context.call_on_fit_task_begin(estimator=estimator, **arguments)
        return cls(estimator, arguments, context)

    def end_pass(self) -> bool:
        """Report a finished pass, and return whether a callback requests the end of the fit.

        The task of the pass begins and ends here, because its record is known only at its end.
        """
        if self.context is None:
            return False
        task = self.context.subcontext(task_name="pass")
        task.call_on_fit_task_begin(estimator=self.estimator, **self.arguments)
        return bool(task.call_on_fit_task_end(estimator=self.estimator, **self.arguments))

    def end(self) -> None:
        """Report the end of the fit."""
        if self.context is not None:
            self.context.call_on_fit_task_end(estimator=self.estimator, **self.arguments, reconstruction_attributes={})


def warn_caller(text: str, category: type[Warning] = ConvergenceWarning) -> None:
    """Issue a warning at the user's line that called this package, directly or through scikit-learn."""
    frame, level = inspect.currentframe(), 0
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in OWN_FRAMES:
        frame, level = frame.f_back, level + 1
    text = WITH_RESUME.sub("", text)  # which estimators cannot
    warnings.warn(to_python(text, "fit", PARAMETER_NAMES), category, stacklevel=level + 1)


def keep_fit(
    estimator: Fitted, result: MemoryFitResult | FitResult, model: Model, rows: int, notices: Sequence[str] = ()
) -> None:
    """Set the attributes of a fit to ``rows`` rows; the certificate is that of the problem with the largest gap.

    ``model``: the model of the result, with the labels of the estimator. ``notices``: notices about columns that lose precision in
    float32; a result of rows in memory contains its own. Issues ConvergenceWarning, and StreamSVMWarning for the notices.
    """
    keep_model(estimator, model, rows)
    worst = model.certificate
    estimator.gap_, estimator.primal_, estimator.dual_ = worst.gap, worst.primal, worst.dual
    estimator.n_passes_, estimator.peak_memory_ = result.training.passes, result.training.peak
    for warning in result.warnings:
        warn_caller(warning)
    for notice in result.precision_notices if isinstance(result, MemoryFitResult) else notices:
        warn_caller(notice, StreamSVMWarning)


def keep_model(estimator: Fitted, model: Model, rows: int) -> None:
    """Set the attributes of a model, and delete ``coef_`` and ``intercept_`` of an earlier fit if the model is not linear."""
    for name in ("coef_", "intercept_"):
        vars(estimator).pop(name, None)
    estimator.model_, estimator.rows_seen_ = model, rows
    if model.kind == LINEAR:
        estimator.coef_, estimator.intercept_ = model.coef.copy(), model.intercept


def encode_classes(y: Array) -> tuple[Array, Int32]:
    """Return the sorted classes and the code of each label (n,). Raises ValueError for continuous labels and for a single class."""
    if y.dtype.kind not in "biuU":  # integers and texts are no continuous labels
        check_classification_targets(y)
    classes, codes = np.unique(y, return_inverse=True)
    if 2 * len(classes) > len(y) and y.dtype.kind in "biuU":  # which issues a warning
        check_classification_targets(y)
    if len(classes) < 2:
        raise ValueError(f"y has one class, {classes[0]!r}: at least two classes are needed")
    return classes, codes.ravel().astype(np.int32)


def restore_labels(model: Model, y: Any) -> Array:
    """Return the labels of a model (k,) in the type of the array ``y``; ``model.labels`` if ``y`` is the name of a column."""
    if y is None or isinstance(y, str) or not isinstance(y, Sequence | Shaped) or kind_of(y) in DASK:
        return model.labels
    distinct = np.unique(np.asarray(y))
    label_by_text = {label_text(value): value for value in distinct.tolist()}
    if distinct.dtype.kind == "b":
        label_by_text |= {str(value).lower(): value for value in distinct.tolist()}
    text = all(isinstance(value, str) for value in label_by_text.values())
    if not set(model.classes) <= set(label_by_text) or (distinct.dtype.kind == "O" and not text):
        return model.labels
    return np.array([label_by_text[text] for text in model.classes], distinct.dtype)


def sort_codes(store: Store) -> list[int]:
    """Return the codes of the classes of a store in the order of the classes of a model."""
    names = store.layout.classes
    return sorted(range(len(names)), key=lambda code: sort_key(names[code]))


def class_weights(
    class_weight: Mapping[Any, float] | str | None, classes: Array, codes: Int32, weights: Float64 | None
) -> ValuesByName | None:
    """Return the factors of C by class code; None for no factors. Raises ValueError."""
    if class_weight is None:
        return None
    if isinstance(class_weight, str) and class_weight == "balanced":
        factors = balance_classes(codes, weights, len(classes))
    else:
        factors = compute_class_weight(class_weight, classes=classes, y=classes[codes])
        if np.count_nonzero(factors) < 2:
            weighted = ", ".join(map(repr, classes[factors > 0].tolist())) or "none"
            raise ValueError(f"class_weight: at least two classes must have a weight above 0; here: {weighted}")
    return {str(code): float(factor) for code, factor in enumerate(factors)}


def label_model(model: Model, classes: Array, columns: Array | None) -> Model:
    """Return a model with its class codes replaced by the labels ``classes`` (k,), and with the names of columns (d,) if they have some."""
    texts = [label_text(label) for label in classes.tolist()]
    provenance: JsonObject = {} if columns is None else {"names": [str(name) for name in columns]}
    kind = record_label_type(texts, label_type("U" if classes.dtype.kind == "O" else classes.dtype.kind))
    provenance |= {"labels": {"positive": None, "threshold": None} | kind} if kind else {}
    if (threshold := model.provenance.get("threshold")) is not None:
        provenance |= {"threshold": threshold | {"positive": texts[int(threshold["positive"])]}}
    return replace(
        model, classes=tuple(texts[int(code)] for code in model.classes), provenance=model.provenance | provenance
    )


def strip_labels(model: Model) -> Model:
    """Return a model with its labels replaced by class codes, as in a store in memory, so that a fit can be warm-started from it."""
    codes = tuple(map(str, range(len(model.classes))))
    return replace(model, classes=codes, provenance={"encoding": model.provenance.get("encoding")}, threshold=0.0)


@contextmanager
def ingest_for_fit(job: FitJob, X: Any, y: Any, sample_weight: Any, options: ValuesByName) -> Iterator[FitJob]:
    """Provide the job of a fit of X: on the store that X names, or on a temporary store into which X is ingested with ``options``.

    The model is written to a temporary folder. Raises UsageError for labels that are passed with a store, and what ``ingest`` raises.
    """
    with tempfile.TemporaryDirectory(prefix="streamsvm-") as folder, explain_interruption("fit", None):
        store = find_or_make_store(partial(ingest, **options), X, y, sample_weight, Path(folder))
        yield replace(job, store=str(store), model=str(Path(folder) / "model.ssvm"))


class StreamEstimator(CallbackSupportMixin, Fitted, FitParameters, ABC):
    """Base class of the estimators that run ``streamsvm fit``. Subclasses define ``_fit_arrays``, ``_fit_rows``, ``_set_classes`` and ``predict``.

    ``_fit_arrays`` makes a store of rows in memory; ``_fit_rows`` uses the store of ``StreamRows``. Both call ``fit_in_memory`` inside
    ``_report_passes``, set the attributes of their task, and end with ``keep_fit``. Other rows are ingested and fitted like files.
    """

    _tasks: FitTasks
    """Set while a fit runs."""

    @with_callbacks  # type: ignore[untyped-decorator]
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit to rows X (n_samples, n_features), dense or sparse, and labels y (n_samples,).

        X may also be the path of a store, which contains its labels, or of a file; a data frame with text, categories or dates; a
        lazy frame, an Arrow dataset or reader, a relation of DuckDB; an array of h5py, Zarr or dask; an AnnData; or ``StreamRows``, for
        which y may only be their own labels. None of these is loaded into memory as a whole; y is then one label for each row or the
        name of a column, and the model is the same as that of the command line.

        ``sample_weight`` (n_samples,): factors of C; a weight of 2 counts like two copies of the row. Raises ValueError for unusable data
        and parameters, and BudgetError (a StreamSVMError) if the fit exceeds its memory limit. Issues ConvergenceWarning if the tolerance
        was not reached, and StreamSVMWarning for columns and rows that lose precision in float32.
        """
        self._tasks = tasks = FitTasks.begin(self, X, y, sample_weight)
        try:
            with as_value_errors():
                self._fit(X, y, sample_weight)
        finally:
            del self._tasks
        tasks.end()
        return self

    def _fit(self, X: Any, y: Any, sample_weight: Any, **chosen: Any) -> None:
        """Fit with the options ``chosen``, which override the parameters."""
        if isinstance(X, StreamRows):
            self.__dict__.pop("feature_names_in_", None)
            self._fit_rows(X, y, sample_weight, chosen)
        elif self._is_ingested(X):
            self.__dict__.pop("feature_names_in_", None)
            self._fit_ingested(X, y, sample_weight, chosen)
        else:
            X, y = self._check_arrays(X, y)
            self._fit_arrays(X, y, sample_weight, chosen)

    @contextmanager
    def _report_passes(self) -> Iterator[Report]:
        """Provide the report of a fit. It collects the records of passes, and passes them to ``on_pass`` and to callbacks, which may end the fit."""
        passes: list[JsonObject] = []

        def end_pass(record: JsonObject) -> bool:
            passes.append(record)
            stop = self.on_pass is not None and self.on_pass(record) is True
            return self._tasks.end_pass() or stop

        with open_job_report(progress=self._parameter("verbose"), on_event=None) as report:
            yield report_passes(report, end_pass)
        self.passes_ = passes

    def _check_arrays(self, X: Any, y: Any) -> tuple[Any, Any]:
        """Return rows in memory and their labels, checked and converted by scikit-learn. Raises ValueError."""
        X, y = check_rows(self, X, y)
        return X, y

    def _job(self, chosen: ValuesByName) -> FitJob:
        """Return the job of a fit. Raises UsageError, ConfigError, ValueError."""
        job: FitJob = build_job("fit", self, {"store": "", "model": ""} | chosen, FitJob)
        return job

    @abstractmethod
    def _fit_arrays(self, X: Any, y: Array, sample_weight: Any, chosen: ValuesByName) -> None:
        """Fit to checked rows in memory: X (n, d), y (n,). Raises ValueError, BudgetError."""

    @abstractmethod
    def _fit_rows(self, X: StreamRows, y: Any, sample_weight: Any, chosen: ValuesByName) -> None:
        """Fit to ``StreamRows``; ``y`` may only be their own labels. Raises ValueError, BudgetError."""

    @abstractmethod
    def _set_classes(self, model: Model, y: Any) -> None:
        """Set ``classes_`` from the classes of a model, which are text, in the type of the labels ``y`` that were passed to ``fit``."""

    def _ingest_options(self) -> ValuesByName:
        """Return the options for ingesting rows that are not in a store."""
        return {"missing": self.missing}

    def _is_ingested(self, X: Any) -> bool:
        """Return whether rows are ingested like a file: all except numeric arrays in memory, and these too unless missing values are an error."""
        return needs_ingest(X) or self.missing != NO_MISSING

    def _fit_ingested(self, X: Any, y: Any, sample_weight: Any, chosen: ValuesByName) -> None:
        """Fit like the command line, in a temporary folder. Raises ValueError, BudgetError."""
        context = ingest_for_fit(self._job(chosen), X, y, sample_weight, self._ingest_options())
        with context as job, self._report_passes() as report, allow_interrupt():
            result = fit(job, report)
            notices = list_precision_notices(result.plan, open_store(Path(job.store)))
        model = result.model
        columns = table_columns(model)
        self.n_features_in_ = len(columns) or model.columns
        if columns:
            self.feature_names_in_ = np.array(columns, dtype=object)
        self._set_classes(model, y)
        keep_fit(self, result, model, result.plan.layout.rows, notices)

    @property
    def history_(self) -> Any:
        """The records of the passes of the last fit as a pandas data frame, or as a list of dicts if pandas is not installed."""
        check_is_fitted(self)
        return to_frame(self.passes_)

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Return the names of the feature columns, (d,) text, in the order of coefficients; a category has one for each value.

        ``input_features`` may only be ``feature_names_in_``, as in scikit-learn. Raises ValueError for other names.
        """
        check_is_fitted(self)
        fitted_names = vars(self).get("feature_names_in_")
        if input_features is not None and fitted_names is not None and list(input_features) != list(fitted_names):
            raise ValueError("input_features is not equal to feature_names_in_")
        return np.array(column_names(self.model_), dtype=object)

    def _decisions(self, model: Model, X: Any) -> Float64:
        """Return the decision values of rows of any kind: (n,) for one problem, else (n, n_problems)."""
        if isinstance(X, StreamRows):
            return decide_store_rows(model, X)
        X = self._check_new_rows(model, X)
        with as_value_errors():
            values = compute_decision_values(model, X)
        return values[:, 0] if values.shape[1] == 1 else values

    def _check_new_rows(self, model: Model, X: Any) -> Any:
        """Return rows to predict: numbers in memory as scikit-learn checks them, others as they are."""
        encoded = "schema" in (model.provenance.get("encoding") or {})
        return X if self._is_ingested(X) or (encoded and is_frame(X)) else check_rows(self, X, reset=False)


class ProvingEstimator(StreamEstimator):
    """An estimator of linear models that may be fitted with ``certify``."""

    def decision_interval(self, X: Any) -> tuple[Float64, Float64]:
        """Return the least and the largest decision value that the exact optimum can have for each row.

        Both have the shape of ``decision_function``; for one-vs-one fits, (n_samples, n_pairs). Raises UsageError after a fit without ``certify``.
        """
        return self._prove(X)[1:]

    def _prove(self, X: Any) -> tuple[Float64, Float64, Float64]:
        """Return decision values of rows of any kind, and their least and largest values at the exact optimum."""
        check_is_fitted(self)
        with python_words("fit", PARAMETER_NAMES):
            self.model_.check_enclosures()
        if isinstance(X, StreamRows):
            intervals = prove_store_rows(self.model_, X)
        else:
            intervals = compute_decision_intervals(self.model_, self._check_new_rows(self.model_, X))
        decision, low, high = (values[:, 0] if values.shape[1] == 1 else values for values in intervals)
        return decision, low, high


def prove_store_rows(model: Model, X: StreamRows) -> tuple[Float64, Float64, Float64]:
    """Return decision values (n, k) of rows of a store, in their order, and their least and largest values at the exact optimum."""
    decision, low, high = (np.empty((len(X), len(model.weights))) for _ in range(3))
    moved = find_moved_offsets(model, X.store().facts)
    for rows, places in X.blocks():
        stored = moved.apply(rows)
        decision[places], (low[places], high[places]) = model.decision(stored), model.intervals(stored)
    return decision, low, high


def decide_store_rows(model: Model, X: StreamRows) -> Float64:
    """Return the decision values of ``StreamRows`` in their order: (n,) for one problem, else (n, n_problems)."""
    values = np.empty((len(X), len(model.weights)))
    moved = find_moved_offsets(model, X.store().facts)
    for rows, places in X.blocks():
        values[places] = model.decision(moved.apply(rows))
    return values[:, 0] if values.shape[1] == 1 else values


def to_frame(passes: list[JsonObject]) -> Any:
    """Convert records of passes to a pandas data frame; return them unchanged if pandas is not installed."""
    try:
        import pandas as pd
    except ModuleNotFoundError:
        return passes
    return pd.DataFrame(passes)
