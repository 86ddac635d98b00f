"""Jobs from names and values: the tables of a job file (TOML) and the options of a command are the same thing.

A job file is a list of steps, each a table named after a command with the fields of its job as keys; ``run`` executes
them in the order of the file. A step that is wanted several times is an array of tables.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

from streamsvm.aliases import ByName
from streamsvm.config.options import Checked, Field, OptionValue, Quantity, field_values, options_of, parse
from streamsvm.config.options import parse_named_numbers as named_numbers
from streamsvm.config.options import parse_toml as from_toml
from streamsvm.config.units import exact_size_text
from streamsvm.errors import ConfigError, MissingError, StreamSVMError, UsageError, quote
from streamsvm.input_files import open_regular
from streamsvm.registry import did_you_mean, load

MAX_FILE_BYTES = 1 << 20


class JobStep(NamedTuple):
    """A command that is a job: what it does, where its options and its action are, and which options are positional."""

    summary: str
    """What it does, in one line."""
    job: str
    """The class of the job, "module:name"."""
    action: str
    """The function that does it, "module:name"."""
    positional: tuple[str, ...]
    """Names of the fields that the command line takes as arguments, in their order."""

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
        "Read SOURCE files (CSV, svmlight, Parquet, npy, HDF5, Zarr) into a store.",
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
    "export": JobStep(
        "Write a model as text of LIBLINEAR or LIBSVM, or their text as a model of streamsvm.",
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
"""The commands that are jobs, which a job file can have tables of. A new one is declared here, and nowhere else."""


def make_job(step: str, values: ByName, where: str = "") -> Any:
    """Return the job of a step from values by field name. Raises ConfigError for what is missing or of the wrong type."""
    import msgspec

    missing = [f.key for f in STEPS[step].fields if f.required and f.name not in values]
    if missing:
        raise ConfigError(f"{where or step}: '{missing[0]}' is missing", hint=f"see 'streamsvm {step} --help'")
    values = {**values, **_tables_of_numbers(step, values, where or step)}
    try:
        return msgspec.convert(values, load(STEPS[step].job), strict=False, dec_hook=_paths)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{where or step}: {error}", hint=f"see 'streamsvm {step} --help'") from error
    except UnicodeEncodeError as error:
        found = f"{where or step}: {quote(error.object)} contains bytes that are not text"
        raise ConfigError(found, hint=f"see 'streamsvm {step} --help'") from error


def _tables_of_numbers(step: str, values: ByName, where: str) -> ByName:
    """The tables of numbers among the values, made of numbers. Raises ConfigError naming the entry that is none."""
    found: dict[str, Any] = {}
    for field in STEPS[step].fields:
        try:
            found |= {field.name: named_numbers(field, values[field.name])} if field.name in values else {}
        except UsageError as error:
            raise ConfigError(f"{where}: {field.key} {error.message}", hint=error.hint) from error
    return found


def _paths(kind: type, value: OptionValue) -> OptionValue:
    if kind is Path and isinstance(value, str | Path):
        return Path(value)
    raise TypeError(f"Expected `str`, got `{type(value).__name__}`")


def read_file(path: Path) -> list[tuple[str, ByName]]:
    """Return the steps of a job file in order, with values by field name. Raises MissingError, ConfigError."""
    import tomllib

    try:
        with open(open_regular(path, follow=True), "rb") as file:
            text = file.read(MAX_FILE_BYTES + 1)
        if len(text) > MAX_FILE_BYTES:
            raise ConfigError(f"{path} has more than {MAX_FILE_BYTES >> 20} MiB", hint="is it a job file? see configs/")
        tables = tomllib.loads(text.decode())
    except (FileNotFoundError, IsADirectoryError) as error:
        raise MissingError(f"there is no job file at {path}", hint="see configs/ for examples") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}", hint="fix that line") from error
    except RecursionError as error:
        raise ConfigError(f"{path} is nested too deeply", hint="see configs/") from error
    steps = []
    for name, content in tables.items():
        if name not in STEPS:
            raise unknown(f"{path}: [{name}] is no step", name, STEPS)
        for table in content if isinstance(content, list) else [content]:
            if not isinstance(table, dict):
                raise ConfigError(f"{path}: '{name}' is not a table", hint=f"write it as [{name}]")
            steps.append((name, by_field(name, table, f"{path}: [{name}]")))
    return steps


def by_field(step: str, table: ByName, where: str) -> ByName:
    """Return values by field name from a table of a job file. Raises ConfigError naming the key."""
    values: ByName = {}
    for key, value in table.items():
        field = find(step, key, where)
        try:
            values[field.name] = from_toml(field, value)
        except UsageError as error:
            raise ConfigError(f"{where} {key}: {error.message}", hint=error.hint) from error
    return values


def find(step: str, key: str, where: str) -> Field:
    """Return the field of a key: its name, or that of its option. Raises ConfigError."""
    names = {f.key: f for f in STEPS[step].fields} | {f.name: f for f in STEPS[step].fields}
    field = names.get(key.replace("-", "_"))
    if field is None:
        raise unknown(f"{where} has no key '{key}'", key, names)
    return field


def unknown(message: str, name: str, known: Iterable[str]) -> ConfigError:
    """Return the error for a name that does not exist, with the nearest one that does."""
    names = list(dict.fromkeys(n.rstrip("_") for n in known))
    return ConfigError(message + did_you_mean(name, names), hint=f"there are: {', '.join(sorted(names))}")


def override(step: str, values: ByName, settings: Sequence[str]) -> None:
    """Apply ``--set`` to the values of a step: 'C=10', 'fit.C=10', 'solver.sweeps=5', 'loss.mu=0.1'.

    Raises UsageError for text that is not a setting, ConfigError for an unknown one.
    """
    for setting in settings:
        path, text = split_setting(setting)
        owner, _, name = path.rpartition(".")
        if owner in ("", step):
            field = find(step, name, f"--set {setting}:")
            values[field.name] = parse(field, text)
        else:
            table = settings_of(step, owner, f"--set {setting}:")
            values[table.name] = {**values.get(table.name, {}), name: scalar(text)}


def settings_of(step: str, owner: str, where: str) -> Field:
    """Return the field with the settings of an owner: 'solver', 'loss' or 'kernel'. Raises ConfigError."""
    tables = {f.option.settings_of: f for f in STEPS[step].fields if f.option.settings_of}
    if owner not in tables:
        raise unknown(f"{where} '{step}' has no settings of '{owner}'", owner, tables)
    return tables[owner]


def split_setting(setting: str) -> tuple[str, str]:
    """Split 'a.b=c' into ('a.b', 'c'). Raises UsageError."""
    path, equals, text = setting.partition("=")
    if not equals or not path.strip():
        raise UsageError(f"--set {quote(setting)} is not NAME=VALUE", hint="write it as --set solver.sweeps=5")
    return path.strip(), text.strip()


def scalar(text: str) -> OptionValue:
    """Parse a value as TOML; anything else is text."""
    import tomllib

    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, RecursionError):
        return text


def apply_settings(steps: list[tuple[str, ByName]], settings: Sequence[str]) -> None:
    """Apply ``--set`` to a whole job file: 'fit.C=10' to every fit, 'solver.sweeps=5' to where solvers are."""
    for setting in settings:
        path, _ = split_setting(setting)
        owner = path.rpartition(".")[0] or path
        chosen = [(name, values) for name, values in steps if name == owner or (owner not in STEPS and name == "fit")]
        if not chosen or "." not in path:
            steps_there = ", ".join(dict.fromkeys(name for name, _ in steps))
            raise UsageError(f"--set {quote(setting)} names no step of the file", hint=f"its steps: {steps_there}")
        for name, values in chosen:
            override(name, values, [setting])


def check(steps: list[tuple[str, ByName]], where: str) -> list[Checked]:
    """Return the jobs of all steps, so that a mistake in the last one is found before the first one runs."""
    jobs = []
    for name, values in steps:
        try:
            jobs.append(make_job(name, values, f"{where}: [{name}]"))
        except StreamSVMError as error:
            where_it_is = error.message if error.message.startswith(where) else f"{where}: [{name}]: {error.message}"
            raise ConfigError(where_it_is, hint=error.hint) from error
    return jobs


def format_command(name: str, job: Checked, **changed: OptionValue) -> str:
    """Return the command that repeats a job, complete and quoted for a shell, with some fields ``changed``."""
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
    return shlex.join([*words, *positional])


def is_stated(field: Field, value: OptionValue) -> bool:
    """Return whether a value has to be stated: it is neither absent nor the default."""
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
