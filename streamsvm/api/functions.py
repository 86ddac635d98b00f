"""The commands as functions: ``sv.fit("train.zarr", "model.ssvm", C=10, memory="1GiB")`` is ``streamsvm fit``.

Signatures, types and docstrings are made of the declarations of the commands' options; values are converted and checked as those of a
command line.
"""

from __future__ import annotations

import inspect
import keyword
import os
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np

from streamsvm.aliases import ByName
from streamsvm.api.inputs import (
    Action,
    model_options,
    place_evaluation_rows,
    place_ingest_rows,
    place_models,
    place_training_rows,
)
from streamsvm.api.run_job import run_job
from streamsvm.api.wording import python_words, to_python
from streamsvm.config.command_table import STEPS, make_job
from streamsvm.config.options import GROUPS, Field, Kind, OptionValue, Quantity
from streamsvm.config.options import parse_toml as from_toml
from streamsvm.display.html import shorten
from streamsvm.errors import UsageError, quote
from streamsvm.kinds_of_rows import ARRAYS, DASK, TABLES, kind_of
from streamsvm.registry import did_you_mean, load
from streamsvm.schedule.machine import count_jobs

POSITIONAL, KEYWORD = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
UNIT_TYPES = {
    Quantity.BYTES: "int | str",
    Quantity.SECONDS: "float | str",
}
"""Types of options with a unit: bytes or seconds as a number, or text as on the command line, '512MiB' and '1h30m'."""
TYPE_NAMES: dict[object, str] = {Path: "str | PathLike[str]", str: "str"}
ParameterTable: TypeAlias = dict[str, tuple[str, object, str]]
"""Type, default and help of parameters, by name."""
PYTHON_PARAMETERS: ParameterTable = {
    "progress": ("bool", False, "Show a bar: in a terminal, or in a notebook."),
    "on_event": (
        "Callable[[dict[str, Any]], object] | None",
        None,
        "Called with every event of the job, such as {'event': 'pass', 'gap': ...} after each pass.",
    ),
}
"""Parameters of Python functions that commands do not have."""
SYNONYMS = {
    "random_state": ("seed", "int | None"),
    "n_jobs": ("threads", "int | None"),
    "sample_weight": ("weight", "Any"),
    "scoring": ("score", "str | None"),
    "cv": ("folds", "int | None"),
    "verbose": ("progress", "bool | None"),
}
"""Scikit-learn's words for parameters that are called otherwise here, each with the parameter and its type."""
FIT_PARAMETERS: ParameterTable = {
    "on_pass": (
        "Callable[[dict[str, Any]], object] | None",
        None,
        "Called after every pass with its record: {'pass': 1, 'gap': ..., 'seconds': ..., ...}. True ends the fit, with one more pass that certifies.",
    ),
}
"""Further ones of ``fit``."""
KINDS = "Known: pandas, polars (lazy, too), Arrow, DuckDB, numpy, scipy.sparse, h5py, Zarr, AnnData, dask."
INGEST_PARAMETERS: ParameterTable = {
    "sources": (
        "Any",
        "",
        "Files of one format, directories of them, or patterns; or rows in memory: any table with __arrow_c_stream__ or an "
        "array. " + KINDS,
    ),
    "y": ("Any", None, "Labels of rows that are given: one a row, or the name of the column that has them."),
    "weight": ("Any", None, "Weights: the column that has them; of rows that are given also an array, one a row."),
}
"""Parameters of ``ingest``, which also takes rows of a program."""
MODELS = "FitResult | Model | StreamEstimator | str | PathLike[str]"
"""Types of a model parameter."""
FIT_ROW_PARAMETERS: ParameterTable = {
    "store": (
        "Any",
        "",
        "A store, files, or rows in memory, which are written to a temporary store. " + KINDS,
    ),
    "model": (
        "Any",
        None,
        "Where the model is written, and MODEL.run beside it. Of files and rows it may be left out, or y be second.",
    ),
    "y": INGEST_PARAMETERS["y"],
    "weight": INGEST_PARAMETERS["weight"],
    "warm_start": (
        f"{MODELS} | None",
        "",
        "A linear model of the same columns and classes to start from, or the result of its fit; C, loss and scaling may differ.",
    ),
}
"""Those of ``fit``."""
TUNE_PARAMETERS: ParameterTable = {
    "store": FIT_ROW_PARAMETERS["store"],
    "out": ("Any", None, "A directory for the tables and the heat map. It may be left out, or y be second."),
    "y": INGEST_PARAMETERS["y"],
    "weight": INGEST_PARAMETERS["weight"],
}
"""Those of ``tune``."""
MODEL_PARAMETERS: ParameterTable = {
    "model": (MODELS, "", "The model, the result of the fit that made it, a fitted estimator, or the model's file.")
}
"""Those of functions that take a model."""
REPORT_PARAMETERS: ParameterTable = {
    "runs": (
        "FitResult | TuneResult | str | PathLike[str] | Sequence[FitResult | TuneResult | str | PathLike[str]]",
        "",
        "Models whose MODEL.run lies beside them, what tune has written, or results of both; several are compared.",
    )
}
"""Those of ``report``."""
EVALUATE_PARAMETERS: ParameterTable = {
    **MODEL_PARAMETERS,
    "data": (
        "Any",
        "",
        "A store, labeled files like those the model's store was made of, or rows in memory. " + KINDS,
    ),
    "y": INGEST_PARAMETERS["y"],
}
"""Those of ``evaluate``."""
WITH_ROWS = {
    "ingest": INGEST_PARAMETERS,
    "fit": FIT_ROW_PARAMETERS,
    "tune": TUNE_PARAMETERS,
    "evaluate": EVALUATE_PARAMETERS,
    "predict": MODEL_PARAMETERS,
    "export": MODEL_PARAMETERS,
    "report": REPORT_PARAMETERS,
}
"""Parameters that take rows and models of a program, by step."""


MORE_FILES = ("more",)
"""The option for further files, which a function takes in one list."""
WRITING_OPTIONS = (*MORE_FILES, "model", "resume", "overwrite", "checkpoint_every", "dual")
"""Options of a fit on its output and resumption, which a plan does not have."""


class CommandInfo(NamedTuple):
    """Result type and documentation example of a function."""

    result: str
    """Name of the class it returns."""
    example: str
    """Runs after the examples of ``synth`` and ``fit``."""


COMMANDS = {
    "synth": CommandInfo("SynthResult", 'sv.synth("susy", "train.zarr", rows=2000, test_fraction=0.2).rows'),
    "ingest": CommandInfo("IngestResult", 'sv.ingest("table.csv", "table.zarr", label="left", missing="mean").columns'),
    "embed": CommandInfo(
        "EmbedResult", 'sv.embed("train.zarr", "features.zarr", kernel="rbf", landmarks=50).embedding.name'
    ),
    "fit": CommandInfo(
        "FitResult", 'sv.fit("train.zarr", "model.ssvm", C=10, memory="1GiB").model.certificate.gap < 1e-3'
    ),
    "tune": CommandInfo("TuneResult", 'sv.tune("train.zarr", "search", C=[0.1, 1, 10], folds=3).best.C'),
    "predict": CommandInfo("PredictResult", 'sv.predict("model.ssvm", "train.test.zarr", "predictions.csv").rows'),
    "export": CommandInfo("ExportResult", 'sv.export("model.ssvm", "liblinear.model", format="liblinear").bytes > 0'),
    "report": CommandInfo("ReportResult", 'sv.report("model.ssvm", "page.html").runs'),
    "evaluate": CommandInfo("EvaluateResult", 'sv.evaluate("model.ssvm", "train.test.zarr").evaluation.accuracy > 0.7'),
}
"""The functions by step; ``tools/generate.py`` writes their types, and tests run their examples."""
PlaceRows = Callable[[dict[str, Any]], AbstractContextManager[tuple[dict[str, Any], Action | None]]]
"""Puts rows of a program into files while a job runs; provides the changed options, and what does the job in place of its
command's function, or None."""


def _place_nothing(given: dict[str, Any]) -> AbstractContextManager[tuple[dict[str, Any], None]]:
    return nullcontext((given, None))


def _make_function(
    step: str, placed: PlaceRows = _place_nothing, *, summary: str = "", leave_out: Sequence[str] = ()
) -> Callable[..., Any]:
    """Return the function of a step; ``placed`` puts rows of a program into files for the job.

    ``summary``: of its docstring, in place of the command's. ``leave_out``: options that are no parameters.
    """
    declared = make_signature(step, COMMANDS[step].result, leave_out)
    declared = add_row_parameters(step, declared) if step in WITH_ROWS else declared

    def call(*arguments: Any, **options: Any) -> Any:
        given = bind_arguments(step, declared, arguments, options)
        asked = _take_python_options(step, given)
        with (
            python_words(step),
            place_models(given, model_options(step)) as known,
            placed(known) as (known, action),
        ):
            return run_job(action or load(STEPS[step].action), _build_job(step, step, known), step, **asked)

    text = make_docstring(step, summary or STEPS[step].summary, declared, COMMANDS[step].example)
    return _name_function(call, step, declared, text)


def bind_arguments(
    name: str, declared: inspect.Signature, arguments: tuple[Any, ...], options: Mapping[str, Any]
) -> dict[str, Any]:
    """Return arguments by parameter name, scikit-learn's words replaced. Raises TypeError for too many arguments, or one given
    twice, UsageError for two words of one parameter with different values.

    Unknown names are left for ``convert_options`` to refuse, which says the nearest.
    """
    positional = declared.bind_partial(*arguments).arguments
    twice = sorted(set(positional) & set(options))
    if twice:
        raise TypeError(f"{name}() got several values for {', '.join(twice)}")
    given = {**positional, **options}
    for word in given.keys() & SYNONYMS.keys() & declared.parameters.keys():
        known, value = SYNONYMS[word][0], given.pop(word)
        if value is None:
            continue
        value = count_jobs(value) if word == "n_jobs" and isinstance(value, int) else value
        other = given.get(known)
        if other is not None and not equal_values(value, other):
            raise UsageError(explain_synonyms(known, other, word, value), hint="leave one of them out")
        given[known] = value
    return given


def equal_values(one: object, other: object) -> bool:
    """Return whether two values of a parameter are the same: numbers, texts, arrays or any object."""
    return one is other or bool(np.array_equal(cast(Any, one), cast(Any, other)))


def explain_synonyms(name: str, value: object, synonym: str, other: object) -> str:
    """Return the message for two names of one parameter that are given different values."""
    shown, shown_other = (shorten(" ".join(repr(part).split()), 30) for part in (value, other))
    return f"{name}={shown} and {synonym}={shown_other} are two names of one parameter, with different values"


def _take_python_options(step: str, given: dict[str, Any]) -> dict[str, Any]:
    """Take the parameters that the command does not have out of the options."""
    return {name: given.pop(name, default) for name, (_, default, _) in python_parameters(step).items()}


def _build_job(step: str, called: str, given: Mapping[str, Any], leave_out: Sequence[str] = (), **fixed: Any) -> Any:
    """Return the job of a call. Raises UsageError, ConfigError."""
    where = f"streamsvm.{called}"
    return make_job(step, {**convert_options(step, given, where, leave_out), **fixed}, where)


def _name_function(call: Callable[..., Any], name: str, declared: inspect.Signature, text: str) -> Callable[..., Any]:
    """Set name, signature and docstring of a function, for ``inspect``, ``help`` and ``pickle``."""
    call.__name__ = call.__qualname__ = name
    call.__module__, call.__doc__ = "streamsvm", text
    call.__signature__ = declared  # type: ignore[attr-defined]
    call.__annotations__ = {key: one.annotation for key, one in declared.parameters.items()}
    return call


def _make_plan() -> Callable[..., Any]:
    """Return ``plan``: what a fit would do, and the memory it would take; only the store's manifest is read."""
    declared = make_signature("fit", "Plan", WRITING_OPTIONS, runs=False)
    summary = "Show what a fit of these options would do: solver, features, and its memory term by term."
    example = 'sv.plan("train.zarr", C=10, memory="1GiB").solver_name'

    def call(*arguments: Any, **options: Any) -> Any:
        from streamsvm.jobs.fit.files import job_of_store
        from streamsvm.jobs.fit.plan import make_plan
        from streamsvm.jobs.fit.validate import open_training_store

        with (
            python_words("fit"),
            place_models(bind_arguments("plan", declared, arguments, options), model_options("fit")) as given,
        ):
            job = job_of_store(_build_job("fit", "plan", given, WRITING_OPTIONS, model=""))
            return make_plan(job, open_training_store(job)[0])

    return _name_function(call, "plan", declared, make_docstring("fit", summary, declared, example))


def make_signature(step: str, result: str, leave_out: Iterable[str] = (), *, runs: bool = True) -> inspect.Signature:
    """Return the signature of a command's function; annotations are text, as in the stub file.

    ``runs``: whether it runs a job, whose progress can be shown.
    """
    parameters = []
    for field in order_fields(step, leave_out):
        kind = POSITIONAL if field.name in STEPS[step].positional else KEYWORD
        default = inspect.Parameter.empty if field.required else field.default
        parameters.append(
            inspect.Parameter(parameter_name(field), kind, default=default, annotation=describe_type(field))
        )
    for name, (annotation, default, _) in python_parameters(step).items() if runs else ():
        parameters.append(inspect.Parameter(name, KEYWORD, default=default, annotation=annotation))
    known = {one.name for one in parameters}
    for word, (name, annotation) in SYNONYMS.items():
        if name in known:
            parameters.append(inspect.Parameter(word, KEYWORD, default=None, annotation=annotation))
    return inspect.Signature(parameters, return_annotation=result)


def add_row_parameters(step: str, declared: inspect.Signature) -> inspect.Signature:
    """Return the signature with the parameters of a step that take rows and models of a program."""
    more = WITH_ROWS[step]
    parameters = [_replace_parameter(one, more) for one in declared.parameters.values()]
    place = next(k for k, one in enumerate(parameters) if one.kind is KEYWORD)
    parameters[place:place] = [
        inspect.Parameter(name, KEYWORD, default=default, annotation=annotation)
        for name, (annotation, default, _) in more.items()
        if name not in declared.parameters
    ]
    return declared.replace(parameters=parameters)


def _replace_parameter(one: inspect.Parameter, more: ParameterTable) -> inspect.Parameter:
    """Return a parameter with the type, and the default if there is one, of ``more``."""
    if one.name not in more:
        return one
    annotation, default, _ = more[one.name]
    return one.replace(annotation=annotation, default=one.default if default == "" else default)


def order_fields(step: str, leave_out: Iterable[str] = ()) -> list[Field]:
    """Return the options of a command: the arguments in their order, then the others by the groups of the help."""
    fields = {field.name: field for field in STEPS[step].fields if field.name not in leave_out}
    arguments = [fields.pop(name) for name in STEPS[step].positional if name in fields]
    groups = list(GROUPS)
    others = sorted(fields.values(), key=lambda field: groups.index(field.option.group) if field.option.group else -1)
    return [*arguments, *others]


def parameter_name(field: Field) -> str:
    """Return the Python name of an option: as in job files, with an underscore after a keyword."""
    return f"{field.key}_" if keyword.iskeyword(field.key) else field.key


def python_parameters(step: str) -> ParameterTable:
    """Return the parameters of a step's function that its command does not have."""
    return PYTHON_PARAMETERS | (FIT_PARAMETERS if step == "fit" else {})


def describe_type(field: Field) -> str:
    """Return the Python type of an option as text: 'float | Sequence[float] | None'."""
    if field.option.unit is not None:
        found = [UNIT_TYPES[field.option.unit]]
    else:
        found = [text for kind in field.kinds for text in _type_names(Path if kind is str and field.is_place else kind)]
    if field.default is None:
        found.append("None")
    text = " | ".join(dict.fromkeys(part for text in found for part in text.split(" | ")))
    return text.replace("Mapping[Any, ", "Mapping[str, ") if field.option.settings_of else text


def _type_names(kind: Kind) -> Iterator[str]:
    """Yield the Python types that are accepted for one kind of value."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is tuple:
        inner = " | ".join(
            text for part in typing.get_args(arguments[0]) or (arguments[0],) for text in _type_names(part)
        )
        yield from (inner, f"Sequence[{inner}]")
    elif origin is dict:
        yield f"Mapping[Any, {'float' if arguments[1] is float else 'Any'}]"
    else:
        assert isinstance(kind, type)
        yield TYPE_NAMES.get(kind, kind.__name__)


def make_docstring(step: str, summary: str, declared: inspect.Signature, example: str) -> str:
    """Return the docstring of a command's function: summary, parameters, result, and an example."""
    fields = {parameter_name(field): field for field in STEPS[step].fields}
    lines = [summary, "", "Parameters", "----------"]
    given = WITH_ROWS.get(step, {})
    special = python_parameters(step) | (given if given.keys() <= declared.parameters.keys() else {})
    for name, parameter in declared.parameters.items():
        if name in SYNONYMS:
            text, default = f"The same as {SYNONYMS[name][0]}, in the word of scikit-learn.", ""
        else:
            text, default = (special[name][2], "") if name in special else _describe_field(fields[name], step)
        lines += [f"{name} : {parameter.annotation}" + (f", default {default}" if default else ""), f"    {text}"]
    lines += ["", "Returns", "-------", declared.return_annotation, "", "Raises", "------", "StreamSVMError"]
    lines += ["    What the command line says, with the same words and the next step in ``hint``.", ""]
    return "\n".join([*lines, "Examples", "--------", *(f">>> {line}" for line in example.splitlines())])


def _describe_field(field: Field, step: str) -> tuple[str, str]:
    """Return the help of an option with its range, in words of Python, and its default."""
    bounds = field.option.bounds
    text = field.help() + ("" if bounds is None else f" ({bounds.describe()})")
    return to_python(text, step), to_python(field.default_text(), step)


def convert_options(step: str, given: Mapping[str, Any], called: str, leave_out: Collection[str] = ()) -> ByName:
    """Return values by field name; None is left out, so that the declared default holds.

    An option is called as on the command line, with underscores, or as its field. ``called``: the name of the function,
    for errors. Raises UsageError; for an unknown name it says the nearest one.
    """
    fields = [field for field in STEPS[step].fields if field.name not in leave_out]
    names = {field.name: field for field in fields} | {parameter_name(field): field for field in fields}
    values: ByName = {}
    for name, value in given.items():
        field = names.get(name)
        if field is None:
            known = sorted({parameter_name(one) for one in fields})
            raise UsageError(
                f"{called} has no option '{name}'{did_you_mean(name, known)}", hint=f"there are: {', '.join(known)}"
            )
        if value is not None:
            values[field.name] = convert_value(field, value)
    return values


def convert_value(field: Field, value: OptionValue) -> OptionValue:
    """Return a value converted for its field: paths, numbers of numpy, '512MiB', classes that are numbers. Raises UsageError."""
    is_rows = kind_of(value) in TABLES | ARRAYS | DASK
    value = value if is_rows else _unwrap_numpy(value)
    if field.name == "cluster" and not isinstance(value, str):
        raise _refuse_address(value)
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if is_rows:
        kind = f"{type(value).__module__}.{type(value).__qualname__}"
        hint = "store them first, sv.ingest(X, 'rows.zarr', y=y), and name the store; a model predicts rows in memory itself, model.predict(X)"
        raise UsageError(
            f"{parameter_name(field)} names a store or files, and is not the rows themselves ({kind})", hint=hint
        )
    if field.kinds == (str,) and isinstance(value, int | float) and not isinstance(value, bool):
        return _format_label(value)
    if isinstance(value, Mapping):
        return {_format_label(key): _unwrap_numpy(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | range):
        parts = sorted(value) if isinstance(value, set) else value
        return tuple(os.fspath(part) if isinstance(part, Path) else _unwrap_numpy(part) for part in parts)
    return from_toml(field, value)


def _refuse_address(value: object) -> UsageError:
    """Return the error for an object instead of a cluster's address, most likely a client of Dask."""
    hint = "cluster='client:' uses Dask's default client, which distributed.Client(...) sets"
    if getattr(value, "asynchronous", False):
        hint = "create a synchronous one, Client(ADDRESS, asynchronous=False), in a thread of its own if need be, and pass cluster='client:'"
    return UsageError(f"cluster is the address of a cluster as text, not {quote(type(value).__name__)}", hint=hint)


def _unwrap_numpy(value: OptionValue) -> OptionValue:
    """Return a number of numpy as one of Python, an array as a list."""
    if isinstance(value, np.generic):
        return value.item()
    return value.tolist() if isinstance(value, np.ndarray) else value


def _format_label(key: object) -> str:
    """Return the text of a class: '1' for 1 and for 1.0."""
    if isinstance(key, str):
        return key
    number = _unwrap_numpy(key)
    return str(int(number)) if isinstance(number, int | float) and float(number).is_integer() else str(number)


ingest = _make_function("ingest", place_ingest_rows, summary="Read files, or rows in memory, into a store.")
fit, tune = (_make_function(step, partial(place_training_rows, step), leave_out=MORE_FILES) for step in ("fit", "tune"))
plan = _make_plan()
synth, embed, predict, export, report = map(_make_function, ("synth", "embed", "predict", "export", "report"))
evaluate = _make_function("evaluate", partial(place_evaluation_rows, ingest))
