"""Job files (TOML) and ``--set``: read, checked, and merged with the options of a command line.

A job file is a list of steps, each a table named after a command, whose keys are the options of that command; ``run`` executes the steps
in the order of the file. An array of tables repeats a step. With ``--config`` a command takes values from its table in a job file: an
option on the command line takes precedence over the file, and ``--set`` over both (``merge_values``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from streamsvm.config.command_table import STEPS, make_job
from streamsvm.config.options import Checked, Field, OptionValue, parse
from streamsvm.config.options import parse_toml as from_toml
from streamsvm.errors import ConfigError, MissingError, StreamSVMError, UsageError, quote
from streamsvm.input_files import open_regular
from streamsvm.registry import did_you_mean
from streamsvm.type_aliases import ValuesByName

MAX_FILE_BYTES = 1 << 20
RUN_PATH_FIELD = {"fit": "model", "tune": "out"}
"""The option with the path of the model or the directory of a run, by step."""


def read_job_file(path: Path) -> list[tuple[str, ValuesByName]]:
    """Return the steps of a job file in order, each with its values by field name. Raises MissingError, ConfigError."""
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
            raise unknown_name(f"{path}: [{name}] is no step", name, STEPS)
        for table in content if isinstance(content, list) else [content]:
            if not isinstance(table, dict):
                raise ConfigError(f"{path}: '{name}' is not a table", hint=f"write it as [{name}]")
            steps.append((name, read_table(name, table, f"{path}: [{name}]")))
    return steps


def read_table(step: str, table: ValuesByName, where: str) -> ValuesByName:
    """Return the values of a table of a job file by field name. Raises ConfigError that names the key."""
    values: ValuesByName = {}
    for key, value in table.items():
        field = find_field(step, key, where)
        try:
            values[field.name] = from_toml(field, value)
        except UsageError as error:
            raise ConfigError(f"{where} {key}: {error.message}", hint=error.hint) from error
    return values


def find_field(step: str, key: str, where: str) -> Field:
    """Return the field of a step that is called ``key``, its own name or that of its option. Raises ConfigError."""
    names = {f.key: f for f in STEPS[step].fields} | {f.name: f for f in STEPS[step].fields}
    field = names.get(key.replace("-", "_"))
    if field is None:
        raise unknown_name(f"{where} has no key '{key}'", key, names)
    return field


def unknown_name(message: str, name: str, known: Iterable[str]) -> ConfigError:
    """Return the error for an unknown name; it suggests the most similar known one."""
    names = list(dict.fromkeys(n.rstrip("_") for n in known))
    return ConfigError(message + did_you_mean(name, names), hint=f"there are: {', '.join(sorted(names))}")


def make_jobs(steps: list[tuple[str, ValuesByName]], where: str) -> list[Checked]:
    """Return the jobs of all steps of a file. Raises ConfigError for a mistake in any step, before the first one runs."""
    jobs = []
    for name, values in steps:
        try:
            jobs.append(make_job(name, values, f"{where}: [{name}]"))
        except StreamSVMError as error:
            located = error.message if error.message.startswith(where) else f"{where}: [{name}]: {error.message}"
            raise ConfigError(located, hint=error.hint) from error
    return jobs


# -- precedence: file, command line, --set -----------------------------------------------------------------------------


def merge_values(step: str, options: ValuesByName, config: Path | None, settings: Sequence[str]) -> ValuesByName:
    """Return values by field name: those of the job file ``config``, overridden by ``options``, overridden by ``--set``.

    Options that are None or () were not given. Raises UsageError, ConfigError, and what ``read_job_file`` raises.
    """
    values: ValuesByName = {}
    if config is not None:
        tables = [table for name, table in read_job_file(config) if name == step]
        if len(tables) != 1:
            raise UsageError(f"{config} has {len(tables)} tables [{step}], one is needed", hint="see 'streamsvm run'")
        values |= tables[0]
    values |= {name: value for name, value in options.items() if value not in (None, ())}
    apply_settings(step, values, settings)
    return values


def apply_settings(step: str, values: ValuesByName, settings: Sequence[str]) -> None:
    """Apply ``--set`` to the values of a step: 'C=10', 'fit.C=10', 'solver.sweeps=5', 'loss.mu=0.1'.

    Raises UsageError for text that is not a setting, ConfigError for an unknown one.
    """
    for setting in settings:
        path, text = split_setting(setting)
        owner, _, name = path.rpartition(".")
        if owner in ("", step):
            field = find_field(step, name, f"--set {setting}:")
            values[field.name] = parse(field, text)
        else:
            table = find_settings_table(step, owner, f"--set {setting}:")
            values[table.name] = {**values.get(table.name, {}), name: parse_toml_value(text)}


def apply_settings_to_file(steps: list[tuple[str, ValuesByName]], settings: Sequence[str]) -> None:
    """Apply ``--set`` to the steps of a job file: 'fit.C=10' and 'solver.sweeps=5' change every step 'fit'.

    Raises UsageError for a setting that names no step of the file, and what ``apply_settings`` raises.
    """
    for setting in settings:
        path, _ = split_setting(setting)
        owner = path.rpartition(".")[0] or path
        chosen = [(name, values) for name, values in steps if name == owner or (owner not in STEPS and name == "fit")]
        if not chosen or "." not in path:
            known = ", ".join(dict.fromkeys(name for name, _ in steps))
            raise UsageError(f"--set {quote(setting)} names no step of the file", hint=f"its steps: {known}")
        for name, values in chosen:
            apply_settings(name, values, [setting])


def find_settings_table(step: str, owner: str, where: str) -> Field:
    """Return the field that holds the settings of a 'solver', 'loss' or 'kernel' (``owner``). Raises ConfigError."""
    tables = {f.option.settings_of: f for f in STEPS[step].fields if f.option.settings_of}
    if owner not in tables:
        raise unknown_name(f"{where} '{step}' has no settings of '{owner}'", owner, tables)
    return tables[owner]


def split_setting(setting: str) -> tuple[str, str]:
    """Split 'a.b=c' into ('a.b', 'c'). Raises UsageError."""
    path, equals, text = setting.partition("=")
    if not equals or not path.strip():
        raise UsageError(f"--set {quote(setting)} is not NAME=VALUE", hint="write it as --set solver.sweeps=5")
    return path.strip(), text.strip()


def parse_toml_value(text: str) -> OptionValue:
    """Parse text as a TOML value; return it unchanged if it is none."""
    import tomllib

    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, RecursionError):
        return text


def make_report_step(steps: list[tuple[str, ValuesByName]], out: Path) -> ValuesByName:
    """Return the values of a step ``report`` that draws the page of all fits and searches of a file. Raises UsageError if there are none."""
    runs = [
        str(values[key]) for name, values in steps if (key := RUN_PATH_FIELD.get(name)) is not None and key in values
    ]
    if not runs:
        raise UsageError("there is no run to draw a page of", hint="the file has no step [fit] or [tune]")
    return {"runs": tuple(runs), "out": str(out), "overwrite": True}
