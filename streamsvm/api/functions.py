"""The commands as Python functions: ``sv.fit("train.zarr", "model.ssvm", C=10, memory="1GiB")`` is ``streamsvm fit``.

Signatures, types and docstrings are generated from the declarations of the options (``config.options``). Values are converted and checked
like those of a command line.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np

from streamsvm.api.inputs import (
    Action,
    convert_value,
    model_options,
    parameter_name,
    place_evaluation_rows,
    place_export_values,
    place_ingest_rows,
    place_models,
    place_training_rows,
)
from streamsvm.api.run_job import run_job
from streamsvm.api.wording import python_words, to_python
from streamsvm.config.command_table import STEPS, make_job
from streamsvm.config.options import GROUPS, Field, Kind, Quantity
from streamsvm.display.html import shorten
from streamsvm.errors import UsageError
from streamsvm.registry import did_you_mean, load
from streamsvm.schedule.machine import count_jobs
from streamsvm.type_aliases import ValuesByName

POSITIONAL, KEYWORD = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
UNIT_TYPES = {
    Quantity.BYTES: "int | str",
    Quantity.SECONDS: "float | str",
}
"""Types of options with a unit: a number of bytes or seconds, or text such as '512MiB' and '1h30m'."""
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
"""Names that scikit-learn uses, each with the parameter that it stands for here, and its type."""
FIT_PARAMETERS: ParameterTable = {
    "on_pass": (
        "Callable[[dict[str, Any]], object] | None",
        None,
        "Called after every pass with its record: {'pass': 1, 'gap': ..., 'seconds': ..., ...}. True ends the fit, with one more pass that certifies.",
    ),
}
"""Python parameters of ``fit`` alone."""
KINDS = "Known: pandas, polars (lazy, too), Arrow, DuckDB, numpy, scipy.sparse, h5py, Zarr, AnnData, dask."
INGEST_PARAMETERS: ParameterTable = {
    "sources": (
        "Any",
        "",
        "Files of one format, directories of them, or patterns; or rows in memory: any table with __arrow_c_stream__ or an "
        "array. " + KINDS,
    ),
    "y": ("Any", None, "Labels of rows in memory: one per row, or the name of their column."),
    "weight": (
        "Any",
        None,
        "Weights of rows: the name of their column; for rows in memory also an array with one per row.",
    ),
}
"""Parameters of ``ingest`` that accept rows in memory."""
MODELS = "FitResult | Model | StreamEstimator | str | PathLike[str]"
"""The types that a parameter for a model accepts."""
FIT_ROW_PARAMETERS: ParameterTable = {
    "store": (
        "Any",
        "",
        "A store, files, or rows in memory, which are written to a temporary store. " + KINDS,
    ),
    "model": (
        "Any",
        None,
        "Where the model is written, and MODEL.run beside it. With files and rows in memory it may be left out; y may then be second.",
    ),
    "y": INGEST_PARAMETERS["y"],
    "weight": INGEST_PARAMETERS["weight"],
    "warm_start": (
        f"{MODELS} | None",
        "",
        "A linear model of the same columns and classes to start from, or the result of its fit; C, loss and scaling may differ.",
    ),
}
"""Parameters of ``fit`` that accept rows and models in memory."""
TUNE_PARAMETERS: ParameterTable = {
    "store": FIT_ROW_PARAMETERS["store"],
    "out": ("Any", None, "A directory for the tables and the heat map. It may be left out; y may then be second."),
    "y": INGEST_PARAMETERS["y"],
    "weight": INGEST_PARAMETERS["weight"],
}
"""Parameters of ``tune`` that accept rows in memory."""
MODEL_PARAMETERS: ParameterTable = {
    "model": (MODELS, "", "The model, the result of the fit that made it, a fitted estimator, or the model's file.")
}
"""The parameter of functions that take a model."""
EXPORT_PARAMETERS: ParameterTable = {
    **MODEL_PARAMETERS,
    "values_from": (
        "Any",
        "",
        (
            "With format='sql': a table in memory with the columns of the training data, or its file, or a folder or a pattern of files. SQL "
            "cannot compute the hash of text; the query lists the values that hashed columns have in these rows. A row with another value "
            "gets NULL as decision value, label and probability, never a wrong number."
        ),
    ),
}
"""Parameters of ``export`` that accept models and rows in memory."""
REPORT_PARAMETERS: ParameterTable = {
    "runs": (
        "FitResult | TuneResult | str | PathLike[str] | Sequence[FitResult | TuneResult | str | PathLike[str]]",
        "",
        "Models with their MODEL.run beside them, directories written by tune, or results of both; several are compared.",
    )
}
"""The parameter of ``report`` that accepts results."""
EVALUATE_PARAMETERS: ParameterTable = {
    **MODEL_PARAMETERS,
    "data": (
        "Any",
        "",
        "A store, labeled files like those the model's store was made of, or rows in memory. " + KINDS,
    ),
    "y": INGEST_PARAMETERS["y"],
    "against": (f"{MODELS} | None", "", ""),
}
"""Parameters of ``evaluate`` that accept models and rows in memory."""
CHANGE_PARAMETERS: ParameterTable = {
    **MODEL_PARAMETERS,
    "data": (
        "Any",
        "",
        "The rows, in a store, in labeled files like those of the training data, or in memory. " + KINDS,
    ),
    "y": INGEST_PARAMETERS["y"],
    "weight": INGEST_PARAMETERS["weight"],
}
"""Parameters of ``forget`` and ``learn`` that accept models and rows in memory."""
WITH_ROWS = {
    "ingest": INGEST_PARAMETERS,
    "fit": FIT_ROW_PARAMETERS,
    "tune": TUNE_PARAMETERS,
    "evaluate": EVALUATE_PARAMETERS,
    "predict": MODEL_PARAMETERS,
    "forget": CHANGE_PARAMETERS,
    "learn": CHANGE_PARAMETERS,
    "export": EXPORT_PARAMETERS,
    "report": REPORT_PARAMETERS,
}
"""Parameters that accept rows and models in memory, by step."""
MORE_FILES = ("more",)
"""The option for the second and further files; a function takes all files in one list."""
WRITING_OPTIONS = (*MORE_FILES, "model", "resume", "overwrite", "checkpoint_every", "dual")
"""Options of ``fit`` that concern its output and resumption; ``plan`` does not have them."""


class CommandInfo(NamedTuple):
    """What the documentation of a function needs in addition to its options."""

    result: str
    """Name of the class of its result."""
    example: str
    """An expression; tests evaluate it after the examples of ``synth`` and ``fit``."""


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
    "forget": CommandInfo(
        "ChangeResult",
        'sv.forget(sv.fit("train.zarr", "kept.ssvm", certify="updates"), "train.test.zarr", "less.ssvm").is_proved',
    ),
    "learn": CommandInfo("ChangeResult", 'sv.learn("kept.ssvm", "train.test.zarr", "more.ssvm").rows'),
    "export": CommandInfo("ExportResult", 'sv.export("model.ssvm", "liblinear.model", format="liblinear").bytes > 0'),
    "report": CommandInfo("ReportResult", 'sv.report("model.ssvm", "page.html").runs'),
    "evaluate": CommandInfo("EvaluateResult", 'sv.evaluate("model.ssvm", "train.test.zarr").evaluation.accuracy > 0.7'),
}
"""The functions, by step. ``tools/generate.py`` writes their types to the stub file."""
PlaceRows = Callable[[dict[str, Any]], AbstractContextManager[tuple[dict[str, Any], Action | None]]]
"""A context manager that replaces rows in memory by files while a job runs. It provides the changed options, and the function to run
instead of the action of the command, or None."""


def _place_nothing(arguments: dict[str, Any]) -> AbstractContextManager[tuple[dict[str, Any], None]]:
    return nullcontext((arguments, None))


def _make_function(
    step: str, place_rows: PlaceRows = _place_nothing, *, summary: str = "", leave_out: Sequence[str] = ()
) -> Callable[..., Any]:
    """Return the Python function of a step.

    ``place_rows`` replaces rows in memory by files. ``summary``: the first line of the docstring, by default that of the command.
    ``leave_out``: options that are no parameters.
    """
    declared = make_signature(step, COMMANDS[step].result, leave_out)
    declared = add_row_parameters(step, declared) if step in WITH_ROWS else declared

    def call(*arguments: Any, **options: Any) -> Any:
        given = bind_arguments(step, declared, arguments, options)
        python_options = _pop_python_options(step, given)
        with (
            python_words(step),
            place_models(given, model_options(step)) as given,
            place_rows(given) as (given, action),
        ):
            return run_job(action or load(STEPS[step].action), _build_job(step, step, given), step, **python_options)

    text = make_docstring(step, summary or STEPS[step].summary, declared, COMMANDS[step].example)
    return _name_function(call, step, declared, text)


def bind_arguments(
    name: str, declared: inspect.Signature, arguments: tuple[Any, ...], options: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the arguments of a call by parameter name, with the names of scikit-learn replaced by ours.

    Raises TypeError for too many arguments and for a parameter given twice, UsageError for two names of one parameter with different
    values. Unknown names are kept; ``convert_options`` refuses them.
    """
    positional = declared.bind_partial(*arguments).arguments
    twice = sorted(set(positional) & set(options))
    if twice:
        raise TypeError(f"{name}() got several values for {', '.join(twice)}")
    bound = {**positional, **options}
    for synonym in bound.keys() & SYNONYMS.keys() & declared.parameters.keys():
        parameter, value = SYNONYMS[synonym][0], bound.pop(synonym)
        if value is None:
            continue
        value = count_jobs(value) if synonym == "n_jobs" and isinstance(value, int) else value
        other = bound.get(parameter)
        if other is not None and not equal_values(value, other):
            raise UsageError(explain_synonyms(parameter, other, synonym, value), hint="leave one of them out")
        bound[parameter] = value
    return bound


def equal_values(one: object, other: object) -> bool:
    """Return whether two values of a parameter are equal; they can be arrays."""
    return one is other or bool(np.array_equal(cast(Any, one), cast(Any, other)))


def explain_synonyms(name: str, value: object, synonym: str, other: object) -> str:
    """Return the message for a call that passes different values under two names of one parameter."""
    shown, shown_other = (shorten(" ".join(repr(part).split()), 30) for part in (value, other))
    return f"{name}={shown} and {synonym}={shown_other} are two names of one parameter, with different values"


def _pop_python_options(step: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Remove the parameters that the command does not have from the options, and return them."""
    return {name: arguments.pop(name, default) for name, (_, default, _) in python_parameters(step).items()}


def _build_job(
    step: str, called: str, arguments: Mapping[str, Any], leave_out: Sequence[str] = (), **fixed: Any
) -> Any:
    """Return the job of a call of the function ``called``. Raises UsageError, ConfigError."""
    where = f"streamsvm.{called}"
    return make_job(step, {**convert_options(step, arguments, where, leave_out), **fixed}, where)


def _name_function(call: Callable[..., Any], name: str, declared: inspect.Signature, text: str) -> Callable[..., Any]:
    """Set name, signature, annotations and docstring of a function, for ``inspect``, ``help`` and ``pickle``."""
    call.__name__ = call.__qualname__ = name
    call.__module__, call.__doc__ = "streamsvm", text
    call.__signature__ = declared  # type: ignore[attr-defined]
    call.__annotations__ = {key: one.annotation for key, one in declared.parameters.items()}
    return call


def _make_plan() -> Callable[..., Any]:
    """Return the function ``plan``, which plans a fit from the manifest of a store."""
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
    """Return the signature of the function of a command; annotations are text, as in the stub file.

    ``runs``: whether the function runs a job, and so has parameters for progress and callbacks.
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
    parameters += _make_synonyms({one.name for one in parameters})
    return inspect.Signature(parameters, return_annotation=result)


def add_row_parameters(step: str, declared: inspect.Signature) -> inspect.Signature:
    """Return the signature with the parameters of a step that accept rows and models in memory."""
    more = WITH_ROWS[step]
    parameters = [_replace_parameter(one, more) for one in declared.parameters.values()]
    first_keyword = next(k for k, one in enumerate(parameters) if one.kind is KEYWORD)
    parameters[first_keyword:first_keyword] = [
        inspect.Parameter(name, KEYWORD, default=default, annotation=annotation)
        for name, (annotation, default, _) in more.items()
        if name not in declared.parameters
    ]
    return declared.replace(parameters=parameters + _make_synonyms({one.name for one in parameters}))


def _make_synonyms(names: set[str]) -> list[inspect.Parameter]:
    """Return the parameters with scikit-learn's names for those in ``names``, unless ``names`` has them already."""
    return [
        inspect.Parameter(synonym, KEYWORD, default=None, annotation=annotation)
        for synonym, (name, annotation) in SYNONYMS.items()
        if name in names and synonym not in names
    ]


def _replace_parameter(one: inspect.Parameter, more: ParameterTable) -> inspect.Parameter:
    """Return a parameter with the type of its entry in ``more``, if there is one, and the default of the entry unless it is empty."""
    if one.name not in more:
        return one
    annotation, default, _ = more[one.name]
    return one.replace(annotation=annotation, default=one.default if default == "" else default)


def order_fields(step: str, leave_out: Iterable[str] = ()) -> list[Field]:
    """Return the options of a command: first the arguments in their order, then the others in the order of their groups in the help."""
    fields = {field.name: field for field in STEPS[step].fields if field.name not in leave_out}
    arguments = [fields.pop(name) for name in STEPS[step].positional if name in fields]
    groups = list(GROUPS)
    others = sorted(fields.values(), key=lambda field: groups.index(field.option.group) if field.option.group else -1)
    return [*arguments, *others]


def python_parameters(step: str) -> ParameterTable:
    """Return the parameters of the function of a step that its command does not have."""
    return PYTHON_PARAMETERS | (FIT_PARAMETERS if step == "fit" else {})


def describe_type(field: Field) -> str:
    """Return the Python type of an option as text: 'float | Sequence[float] | None'."""
    if field.option.unit is not None:
        names = [UNIT_TYPES[field.option.unit]]
    else:
        names = [text for kind in field.kinds for text in _type_names(Path if kind is str and field.is_path else kind)]
    if field.default is None:
        names.append("None")
    text = " | ".join(dict.fromkeys(part for name in names for part in name.split(" | ")))
    return text.replace("Mapping[Any, ", "Mapping[str, ") if field.option.settings_of else text


def _type_names(kind: Kind) -> Iterator[str]:
    """Yield the names of the Python types that are accepted for a type of the declaration."""
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
    """Return the docstring of the function of a command: summary, parameters, result, errors and an example."""
    fields = {parameter_name(field): field for field in STEPS[step].fields}
    lines = [summary, "", "Parameters", "----------"]
    row_parameters = WITH_ROWS.get(step, {})
    special = python_parameters(step) | (row_parameters if row_parameters.keys() <= declared.parameters.keys() else {})
    for name, parameter in declared.parameters.items():
        if name in SYNONYMS:
            text, default = f"The same as {SYNONYMS[name][0]}, under its name in scikit-learn.", ""
        else:
            text, default = (special[name][2], "") if name in special else _describe_field(fields[name], step)
        lines += [f"{name} : {parameter.annotation}" + (f", default {default}" if default else ""), f"    {text}"]
    lines += ["", "Returns", "-------", declared.return_annotation, "", "Raises", "------", "StreamSVMError"]
    lines += ["    The error that the command line shows, in the same words; ``hint`` says what to do.", ""]
    return "\n".join([*lines, "Examples", "--------", *(f">>> {line}" for line in example.splitlines())])


def _describe_field(field: Field, step: str) -> tuple[str, str]:
    """Return the help of an option with its range, and its default, both with options spelled as parameters."""
    bounds = field.option.bounds
    text = field.help() + ("" if bounds is None else f" ({bounds.describe()})")
    return to_python(text, step), to_python(field.default_text(), step)


def convert_options(
    step: str, arguments: Mapping[str, Any], called: str, leave_out: Collection[str] = ()
) -> ValuesByName:
    """Return converted values by field name, without values that are None, for which the declared default holds.

    An option can be named as on the command line, with underscores, or like its field. ``called``: the name of the function, for
    errors. Raises UsageError; for an unknown name, the message suggests the most similar one.
    """
    names = _parameters_of(step, frozenset(leave_out))
    values: ValuesByName = {}
    for name, value in arguments.items():
        field = names.get(name)
        if field is None:
            known = sorted({parameter_name(one) for one in names.values()})
            raise UsageError(
                f"{called} has no option '{name}'{did_you_mean(name, known)}", hint=f"there are: {', '.join(known)}"
            )
        if value is not None and not field.is_default(value):
            values[field.name] = convert_value(field, value)
    return values


@cache
def _parameters_of(step: str, leave_out: frozenset[str]) -> dict[str, Field]:
    """Return the options of a step by the names of their fields, and by their names as parameters."""
    fields = [field for field in STEPS[step].fields if field.name not in leave_out]
    return {field.name: field for field in fields} | {parameter_name(field): field for field in fields}


ingest = _make_function("ingest", place_ingest_rows, summary="Read files, or rows in memory, into a store.")
fit, tune = (_make_function(step, partial(place_training_rows, step), leave_out=MORE_FILES) for step in ("fit", "tune"))
plan = _make_plan()
synth, embed, predict, report = map(_make_function, ("synth", "embed", "predict", "report"))
export = _make_function("export", place_export_values)
evaluate = _make_function("evaluate", place_evaluation_rows)
forget = _make_function("forget", place_evaluation_rows)
learn = _make_function("learn", place_evaluation_rows)
