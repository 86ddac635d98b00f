"""What a function of the face looks like to ``inspect`` and ``help``: made of the declaration of the command's options."""

from __future__ import annotations

import inspect
import keyword
import typing
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeAlias

from streamsvm.config.fields import GROUPS, Field, Kind, Quantity
from streamsvm.config.job_file import STEPS

POSITIONAL, KEYWORD = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
WRITTEN = {
    Quantity.BYTES: "int | str",
    Quantity.SECONDS: "float | str",
}
"""Types of numbers with a unit: a number of bytes or seconds, or text as on the command line, '512MiB' and '1h30m'."""
TEXTS: dict[object, str] = {Path: "str | PathLike[str]", str: "str"}
Given: TypeAlias = dict[str, tuple[str, object, str]]
"""Type, default and text of parameters, by name."""
OF_PROGRAMS: Given = {
    "progress": ("bool", False, "Show a bar: in a terminal, or in a notebook."),
    "on_event": (
        "Callable[[dict[str, Any]], object] | None",
        None,
        "Called with every event of the job, such as {'event': 'pass', 'gap': ...} after each pass.",
    ),
}
"""What only a program can say."""
OF_FITS: Given = {
    "on_pass": (
        "Callable[[dict[str, Any]], object] | None",
        None,
        "Called after every pass with its record: {'pass': 1, 'gap': ..., 'seconds': ..., ...}. True ends the fit, with one more pass that certifies.",
    ),
}
"""The same of fits."""
KINDS = "Known: pandas, polars (lazy, too), Arrow, DuckDB, numpy, scipy.sparse, h5py, Zarr, AnnData, dask."
OF_ROWS: Given = {
    "sources": (
        "Any",
        "",
        "Files of one format, directories of them, or patterns; or rows of a program: any table with __arrow_c_stream__ or an "
        "array. " + KINDS,
    ),
    "y": ("Any", None, "Labels of rows that are given: one a row, or the name of the column that has them."),
    "weight": ("Any", None, "Weights: the column that has them; of rows that are given also an array, one a row."),
}
"""Parameters of ``ingest``, which takes rows of a program beside files, as in ``OF_PROGRAMS``."""
MODELS = "FitResult | Model | str | PathLike[str]"
"""The types that a model may be given in; at run time a fitted estimator of ``streamsvm.sklearn`` will do, too."""
OF_ROWS_TO_FIT: Given = {
    "store": (
        "Any",
        "",
        "A store, files, or rows of a program, which become a store that is removed at the end. " + KINDS,
    ),
    "model": (
        "Any",
        None,
        "Where the model is written, and MODEL.run beside it. Of files and rows it may be left out, or y be second.",
    ),
    "y": OF_ROWS["y"],
    "weight": OF_ROWS["weight"],
    "warm_start": (
        f"{MODELS} | None",
        "",
        "A linear model of the same columns and classes to start from, or the result of its fit; C, loss and scaling may differ.",
    ),
}
"""The same of ``fit``."""
OF_A_MODEL: Given = {"model": (MODELS, "", "The model, the result of the fit that made it, or its file.")}
"""The same of functions that take a model."""
OF_RUNS: Given = {
    "runs": (
        "FitResult | TuneResult | str | PathLike[str] | Sequence[FitResult | TuneResult | str | PathLike[str]]",
        "",
        "Models whose MODEL.run lies beside them, what tune has written, or results of both; several are compared.",
    )
}
"""The same of ``report``."""
OF_ROWS_TO_JUDGE: Given = {
    **OF_A_MODEL,
    "data": (
        "Any",
        "",
        "A store, labeled files like those the model's store was made of, or rows of a program. " + KINDS,
    ),
    "y": OF_ROWS["y"],
}
"""The same of ``evaluate``."""
WITH_ROWS = {
    "ingest": OF_ROWS,
    "fit": OF_ROWS_TO_FIT,
    "evaluate": OF_ROWS_TO_JUDGE,
    "predict": OF_A_MODEL,
    "export": OF_A_MODEL,
    "report": OF_RUNS,
}
"""By step, what takes rows and models of a program, and how they are given."""


def of_programs(step: str) -> Given:
    """Return what only a program can say to the function of a step."""
    return OF_PROGRAMS | (OF_FITS if step == "fit" else {})


def parameter_name(field: Field) -> str:
    """Return what the face calls an option: as job files do, with an underscore after a word of Python."""
    return f"{field.key}_" if keyword.iskeyword(field.key) else field.key


def fields_in_order(step: str, leave_out: Iterable[str] = ()) -> list[Field]:
    """Return the options of a command: the arguments in their order, then the others by the groups of the help."""
    fields = {field.name: field for field in STEPS[step].fields if field.name not in leave_out}
    arguments = [fields.pop(name) for name in STEPS[step].positional if name in fields]
    groups = list(GROUPS)
    others = sorted(fields.values(), key=lambda field: groups.index(field.option.group) if field.option.group else -1)
    return [*arguments, *others]


def signature_of(step: str, result: str, leave_out: Iterable[str] = (), *, runs: bool = True) -> inspect.Signature:
    """Return the signature of a command's function; annotations are text, as they are in the stub file.

    ``runs``: whether it takes time, so that a program may ask to see its progress.
    """
    parameters = []
    for field in fields_in_order(step, leave_out):
        kind = POSITIONAL if field.name in STEPS[step].positional else KEYWORD
        default = inspect.Parameter.empty if field.required else field.default
        parameters.append(inspect.Parameter(parameter_name(field), kind, default=default, annotation=type_text(field)))
    for name, (annotation, default, _) in of_programs(step).items() if runs else ():
        parameters.append(inspect.Parameter(name, KEYWORD, default=default, annotation=annotation))
    return inspect.Signature(parameters, return_annotation=result)


def with_rows(step: str, declared: inspect.Signature) -> inspect.Signature:
    """Return the signature of the function of a step that takes rows of a program, too."""
    more = WITH_ROWS[step]
    parameters = [_changed(one, more) for one in declared.parameters.values()]
    place = next(k for k, one in enumerate(parameters) if one.kind is KEYWORD)
    parameters[place:place] = [
        inspect.Parameter(name, KEYWORD, default=default, annotation=annotation)
        for name, (annotation, default, _) in more.items()
        if name not in declared.parameters
    ]
    return declared.replace(parameters=parameters)


def _changed(one: inspect.Parameter, more: Given) -> inspect.Parameter:
    """A parameter that may be more than an option; where rows are given it may have a default that the option has not."""
    if one.name not in more:
        return one
    annotation, default, _ = more[one.name]
    return one.replace(annotation=annotation, default=one.default if default == "" else default)


def type_text(field: Field) -> str:
    """Return the type of what may be given for an option, as text: 'float | Sequence[float] | None'."""
    if field.option.unit is not None:
        found = [WRITTEN[field.option.unit]]
    else:
        found = [text for kind in field.kinds for text in _texts(Path if kind is str and field.is_place else kind)]
    if field.default is None:
        found.append("None")
    return " | ".join(dict.fromkeys(part for text in found for part in text.split(" | ")))


def _texts(kind: Kind) -> Iterator[str]:
    """The types a Python program may write for one kind of value."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is tuple:
        inner = " | ".join(text for part in typing.get_args(arguments[0]) or (arguments[0],) for text in _texts(part))
        yield from (inner, f"Sequence[{inner}]")
    elif origin is dict:
        yield f"Mapping[Any, {'float' if arguments[1] is float else 'Any'}]"
    else:
        assert isinstance(kind, type)
        yield TEXTS.get(kind, kind.__name__)


def documentation(step: str, summary: str, declared: inspect.Signature, example: str) -> str:
    """Return the docstring of a command's function: what it does, each parameter, what comes back, and an example."""
    fields = {parameter_name(field): field for field in STEPS[step].fields}
    lines = [summary, "", "Parameters", "----------"]
    given = WITH_ROWS.get(step, {})
    special = of_programs(step) | (given if given.keys() <= declared.parameters.keys() else {})
    for name, parameter in declared.parameters.items():
        text, default = (special[name][2], "") if name in special else _described(fields[name])
        lines += [f"{name} : {parameter.annotation}" + (f", default {default}" if default else ""), f"    {text}"]
    lines += ["", "Returns", "-------", declared.return_annotation, "", "Raises", "------", "StreamSVMError"]
    lines += ["    What the command line says, with the same words and the next step in ``hint``.", ""]
    return "\n".join([*lines, "Examples", "--------", *(f">>> {line}" for line in example.splitlines())])


def _described(field: Field) -> tuple[str, str]:
    """The text of an option with its range, and its default."""
    bounds = field.option.bounds
    return field.help() + ("" if bounds is None else f" ({bounds.describe()})"), field.default_text()
