"""The commands that are jobs: what each does, where it is implemented, and how a job is made of values and written as a command line.

A command is declared once, in ``STEPS``. The command line, the functions of Python and the steps of a job file are made of this table.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, cast

from streamsvm.config.options import Checked, Field, OptionValue, Quantity, field_values, options_of
from streamsvm.config.options import parse_named_numbers as named_numbers
from streamsvm.config.units import exact_size_text
from streamsvm.errors import ConfigError, UsageError, quote
from streamsvm.input_files import restore_urls
from streamsvm.registry import load
from streamsvm.type_aliases import ValuesByName


class JobStep(NamedTuple):
    """A command that is a job, which can also be a step of a job file."""

    summary: str
    """The line about it in the help."""
    job: str
    """The class whose fields are its options, "module:name"."""
    action: str
    """The function that runs a job of this class, "module:name"."""
    positional: tuple[str, ...]
    """Names of the fields that are arguments of the command line, in their order."""

    @property
    def fields(self) -> tuple[Field, ...]:
        """The options of the job."""
        return options_of(load(self.job))


STEPS = {
    "synth": JobStep(
        "Make a store of random rows from the generator NAME: any number of rows, the same for the same seed.",
        "streamsvm.jobs.common_options:SynthJob",
        "streamsvm.jobs.synth:synth",
        ("name", "store"),
    ),
    "ingest": JobStep(
        "Read SOURCE files (CSV, svmlight, Parquet, Arrow, npy, HDF5, Zarr) into a store.",
        "streamsvm.jobs.ingest.options:IngestJob",
        "streamsvm.jobs.ingest.run:ingest",
        ("sources", "store"),
    ),
    "embed": JobStep(
        "Make a store of kernel (Nystrom) features of a store's rows, for several fits.",
        "streamsvm.jobs.common_options:EmbedJob",
        "streamsvm.jobs.embed.build:embed",
        ("store", "embedding"),
    ),
    "fit": JobStep(
        "Train a model on a store, or on files of rows, within a memory budget, with a certificate.",
        "streamsvm.jobs.fit.options:FitFilesJob",
        "streamsvm.jobs.fit.files:fit_files",
        ("store", "more", "model"),
    ),
    "tune": JobStep(
        "Cross-validate a grid of landmarks, gamma and C on a store, or on files of rows: tables and a heat map.",
        "streamsvm.jobs.tune.options:TuneFilesJob",
        "streamsvm.jobs.tune.files:tune_files",
        ("store", "more", "out"),
    ),
    "predict": JobStep(
        "Write a model's prediction for every row of a store or of files, in order.",
        "streamsvm.jobs.apply.options:PredictJob",
        "streamsvm.jobs.apply.predict:predict",
        ("model", "data", "out"),
    ),
    "evaluate": JobStep(
        "Compare a model's predictions with the labels of a store or of files.",
        "streamsvm.jobs.apply.options:EvaluateJob",
        "streamsvm.jobs.apply.evaluate:evaluate",
        ("model", "data"),
    ),
    "forget": JobStep(
        "Remove rows from a linear model without its training data, proved close to a retraining.",
        "streamsvm.jobs.apply.options:ForgetJob",
        "streamsvm.jobs.change_rows:forget",
        ("model", "data", "out"),
    ),
    "learn": JobStep(
        "Add rows to a linear model without its training data, proved close to a retraining.",
        "streamsvm.jobs.apply.options:LearnJob",
        "streamsvm.jobs.change_rows:learn",
        ("model", "data", "out"),
    ),
    "export": JobStep(
        "Write a model in another format (LIBLINEAR, LIBSVM, ONNX, SQL, ...), or read one of LIBLINEAR or LIBSVM.",
        "streamsvm.jobs.common_options:ExportJob",
        "streamsvm.jobs.export.job:export",
        ("model", "out"),
    ),
    "report": JobStep(
        "Draw the page of a run, or a comparison of several: one HTML file with all that was recorded.",
        "streamsvm.jobs.common_options:ReportJob",
        "streamsvm.jobs.report:report",
        ("runs", "out"),
    ),
}
"""The commands that are jobs, by name."""


def make_job(step: str, values: ValuesByName, where: str = "", kind: type[Checked] | None = None) -> Any:
    """Return the job of a step, made of values by field name. Raises ConfigError for a missing value or a wrong type.

    ``kind``: a class of jobs with some of the step's options; None: that of the step.
    """
    import msgspec

    missing = [f.key for f in _required_fields(step) if f.name not in values]
    if missing:
        raise ConfigError(f"{where or step}: '{missing[0]}' is missing", hint=f"see 'streamsvm {step} --help'")
    values = {**values, **_convert_named_numbers(step, values, where or step)}
    try:
        return msgspec.convert(values, kind or load(STEPS[step].job), strict=False, dec_hook=_convert_path)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{where or step}: {error}", hint=f"see 'streamsvm {step} --help'") from error
    except UnicodeEncodeError as error:
        message = f"{where or step}: {quote(error.object)} contains bytes that are not text"
        raise ConfigError(message, hint=f"see 'streamsvm {step} --help'") from error


@cache
def _required_fields(step: str) -> tuple[Field, ...]:
    return tuple(field for field in STEPS[step].fields if field.required)


def _convert_named_numbers(step: str, values: ValuesByName, where: str) -> ValuesByName:
    """Return the values with tables of numbers (``--class-weight``) converted. Raises ConfigError that names the wrong entry."""
    converted: ValuesByName = {}
    for field in STEPS[step].fields if any(isinstance(value, Mapping) for value in values.values()) else ():
        if field.name not in values:
            continue
        try:
            converted[field.name] = named_numbers(field, values[field.name])
        except UsageError as error:
            raise ConfigError(f"{where}: {field.key} {error.message}", hint=error.hint) from error
    return converted


def _convert_path(kind: type, value: OptionValue) -> OptionValue:
    if kind is Path and isinstance(value, str | Path):
        return Path(value)
    raise TypeError(f"Expected `str`, got `{type(value).__name__}`")


def format_command(name: str, job: Checked, **changed: OptionValue) -> str:
    """Return the whole command line of a job, quoted for a shell, with the values ``changed``; options at their default are left out."""
    import shlex

    step, kind = STEPS[name], cast(type, type(job))
    fields = options_of(kind)
    values = field_values(job, (field.name for field in fields)) | changed
    words = ["streamsvm", name]
    for field in fields:
        if field.name not in step.positional and is_stated(field, values[field.name]):
            words += _format_option(field, values[field.name])
    positional = [str(word) for place in step.positional for word in _as_tuple(values.get(place, ()))]
    if any(word.startswith("-") for word in positional):
        words.append("--")
    return restore_urls(shlex.join([*words, *positional]))


def is_stated(field: Field, value: OptionValue) -> bool:
    """Return whether a command line has to state this value: it is neither empty nor the default."""
    default = field.default
    if isinstance(default, dataclasses.Field):
        default = default.default_factory() if callable(default.default_factory) else None
    return value not in (None, (), {}) and value != default


def _format_option(field: Field, value: OptionValue) -> Iterator[str]:
    if field.option.settings_of:
        for setting, chosen in value.items():
            yield from ("--set", f"{field.option.settings_of}.{setting}={_format_single(field, chosen)}")
    elif field.is_switch:
        yield field.flag if value else f"--no-{field.flag[2:]}"
    elif isinstance(value, dict):
        yield from (field.flag, ",".join(f"{key}={_format_single(field, item)}" for key, item in value.items()))
    else:
        yield from (field.flag, ",".join(_format_single(field, item) for item in _as_tuple(value)))


def _as_tuple(value: OptionValue) -> tuple[OptionValue, ...]:
    return tuple(value) if isinstance(value, tuple | list) else (value,)


def _format_single(field: Field, value: OptionValue) -> str:
    """Return a single value as on a command line: bytes and seconds to the last digit."""
    if field.option.unit is Quantity.BYTES and isinstance(value, int):
        return exact_size_text(value)
    text = repr(value).removesuffix(".0") if isinstance(value, float) else str(value)
    return text + "s" if field.option.unit is Quantity.SECONDS else text
