"""Rewrite messages of the command line for Python: ``--missing mean`` becomes ``missing='mean'``, a command becomes a call."""

from __future__ import annotations

import re
import shlex
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Any

from streamsvm.config.command_table import STEPS, is_stated
from streamsvm.config.options import Checked, Field, OptionValue, field_values, options_of, parse
from streamsvm.errors import InterruptedRun, StreamSVMError, UsageError
from streamsvm.registry import load

OPTION_IN_TEXT = re.compile(
    r"""--(no-)?([a-z][a-z0-9-]*)(?: ("[^"]*"|'[^']*'(?:=[\w-]+)?|[^\s;:()"']+))?""", re.IGNORECASE
)
COMMAND_IN_TEXT = re.compile(r"(?<=: )streamsvm (fit|tune|ingest) (.+)$")
"""A complete command at the end of a message."""
COMMAND_NAME = re.compile(rf"(?<!: )'?\bstreamsvm (plan|{'|'.join(STEPS)})( --help)?\b(?! -| \w+ [A-Z])'?")
"""The name of a command in a sentence, as opposed to a complete command."""
STORE_FIT = "streamsvm.jobs.fit.options:FitJob"
HELP_OF_SETTINGS = "'streamsvm fit --help-solver', --help-loss, --help-kernel"
TEMPORARY_PREFIX = "streamsvm-"
"""Prefix of the names of temporary folders."""
CALLS_IN_A_ROW = re.compile(r"(?<=[^,])\) sv\.ingest\(\.\.\., ")
"""The words between two options of ``ingest`` that follow each other, each spelled as a call."""
CALL_ENDING = "=...)"
"""The last characters of a call that an estimator's user makes instead of passing an option."""
PLACEHOLDER = re.compile(r"[A-Z][A-Z_]*")
WORDS = frozenset(
    re.findall(
        r"\w+",
        "a an and are as at beside but by cannot chooses could does for from goes has have if in into is it its "
        "may must names needs not of on only or says so takes than that the then there to too until was where "
        "which with without writes",
    )
)
"""Words that continue the sentence after the name of an option, so that they are not its value."""


def to_python(text: str, step: str, names: Mapping[str, str] | None = None) -> str:
    """Return a message with options spelled as parameters: "--missing mean" as "missing='mean'", "--sort" as "sort=True".

    A command at the end of the message becomes the equivalent call, if there is one; 'streamsvm fit' in a sentence becomes sv.fit.

    ``step``: the command of the function that was called. An option of ``ingest`` that this command lacks is spelled as a parameter of
    ``sv.ingest``. ``names``: for an estimator, the parameters by option, where the names differ (an estimator has the options of a fit
    of a store); or a call in which the value of the option takes the place of '...'.
    """
    if (call := to_call(text)) is not None:
        return call
    text = text.replace(HELP_OF_SETTINGS, "the settings of a solver, a loss and a kernel in the reference of options")
    text = COMMAND_NAME.sub(lambda match: f"help(sv.{match[1]})" if match[2] else f"sv.{match[1]}", text)
    text, command, rest = text.partition(": streamsvm ")
    parameters = options_of_step(step).keys() if names is None else options_of_estimators()

    def spell(match: re.Match[str]) -> str:
        negative, key, text = match[1], match[2].replace("-", "_"), match[3] or ""
        field = options_of_step(step).get(key) or options_by_name().get(key)
        if field is None:
            return match[0]
        value, after = _split_value(field, text)
        if field.is_switch or negative:
            value, after = ("False" if field.is_switch else "0") if negative else "True", f" {text}" if text else ""
        name = (names or {}).get(key, key)
        if name.endswith(CALL_ENDING):
            return f"{name.removesuffix(CALL_ENDING)}={value or '...'}){after}"
        spelled = f"{name}={value}" if value else name
        if (
            key in (names or {})
            or key in parameters
            or key not in options_of_step("ingest")
            or match.string[: match.start()].endswith("ingest ")
        ):
            return (spelled if value else f"'{spelled}'") + after
        return f"sv.ingest(..., {spelled if value else spelled + '=...'})" + after

    return CALLS_IN_A_ROW.sub(", ", OPTION_IN_TEXT.sub(spell, text)) + command + rest


def _split_value(field: Field, text: str) -> tuple[str, str]:
    """Split the text after an option into the value, spelled as in Python, and the rest; the value is empty if none follows."""
    bare = text.rstrip(",.")
    after = text[len(bare) :]
    if not bare or bare.lower() in WORDS:
        return "", f" {text}" if text else ""
    if bare[0] == "'" and not bare.endswith("'"):  # 'a column'=KIND, quoted for a shell
        return repr(bare.replace("'", "")), after
    if bare[0] in "'\"" or PLACEHOLDER.fullmatch(bare):
        return bare, after
    try:
        value = parse(field, bare)
    except UsageError:
        return "", f" {text}"
    choices = field.choices()
    if isinstance(value, str) and choices and value not in choices and not field.option.metavar:
        return "", f" {text}"
    return (bare if isinstance(value, int | float) and field.option.unit is None else repr(bare)), after


@cache
def options_by_name() -> dict[str, Field]:
    """Return the options of all commands by parameter name."""
    return {key: field for step in reversed(STEPS) for key, field in options_of_step(step).items()}


@cache
def options_of_step(step: str) -> dict[str, Field]:
    """Return the options of a command by parameter name."""
    return {field.key: field for field in STEPS[step].fields}


@cache
def options_of_estimators() -> frozenset[str]:
    """Return the parameter names of the options of a fit of a store, which estimators have."""
    return frozenset(field.key for field in options_of(load(STORE_FIT)))


def to_call(text: str) -> str | None:
    """Return a message that ends with a command with the equivalent call instead; None if it ends otherwise or there is no such call."""
    match = COMMAND_IN_TEXT.search(text)
    if match is None:
        return None
    step = match[1]
    fields = {field.flag: field for field in STEPS[step].fields}
    paths, options = list[str](), list[str]()
    try:
        words = iter(shlex.split(match[2]))
        for word in words:
            field = fields.get(word.replace("--no-", "--"))
            if field is None:
                paths.append(word)
            elif field.is_switch:
                options.append(f"{field.key}={word == field.flag}")
            else:
                options.append(f"{field.key}={parse(field, next(words))!r}")
    except (ValueError, StopIteration, UsageError):
        return None
    if len(paths) < 2 or any(path.startswith("--") for path in paths):
        return None
    files = repr(paths[0]) if len(paths) == 2 else repr(paths[:-1])
    return f"{text[: match.start()]}sv.{step}({', '.join([files, repr(paths[-1]), *options])})"


def format_call(
    step: str, beside: tuple[Any, Any], requested: Checked | None, job: Checked, **changed: OptionValue
) -> str:
    """Return the call that repeats a job on a table in memory, with the options ``changed``.

    ``beside``: the labels and weights that were passed with the table, or the names of their columns. ``requested``: the job of the
    call, if the call was not the ingest ``job`` itself but a fit or a search of the table.
    """
    from streamsvm.jobs.ingest.frames_and_arrays import SEPARATE_COLUMNS

    positional = STEPS[step].positional
    stated_names = {name for name, value in zip(SEPARATE_COLUMNS, beside, strict=True) if value is not None}
    values = field_values(requested or job, (field.name for field in STEPS[step].fields)) | changed
    output, words = Path(str(values[positional[-1]])), ["frame"]
    if step == "ingest" and _is_temporary(output) and changed.keys() == {"missing"}:
        return f"missing={changed['missing']!r}"  # an estimator has this parameter as well
    if step == "ingest" or not _is_temporary(output):
        words.append(repr(output.name if _is_temporary(output) else str(output)))
    for name, value in zip(SEPARATE_COLUMNS, beside, strict=True):
        if name in stated_names:
            words.append(
                f"{SEPARATE_COLUMNS[name]}={value!r}"
                if isinstance(value, str)
                else f"{SEPARATE_COLUMNS[name]}={SEPARATE_COLUMNS[name]}"
            )
    for field in STEPS[step].fields:
        value = values[field.name]
        if field.name not in {*positional, *stated_names} and is_stated(field, value):
            words.append(f"{field.key}={list(value) if isinstance(value, tuple) else value!r}")
    return f"sv.{step}({', '.join(words)})"


def _is_temporary(path: Path) -> bool:
    """Return whether a path is in one of our temporary folders, so that a message must not name it."""
    return path.parent.name.startswith(TEMPORARY_PREFIX) and path.parent.parent == Path(tempfile.gettempdir())


@contextmanager
def python_words(step: str, names: Mapping[str, str] | None = None) -> Iterator[None]:
    """Context manager: rewrite the errors raised inside with ``to_python``, in the words of the outermost one."""
    is_outermost = not _words_are_chosen.get()
    token = _words_are_chosen.set(True)
    try:
        yield
    except StreamSVMError as error:
        if is_outermost:
            respell(error, step, names)
        raise
    finally:
        _words_are_chosen.reset(token)


_words_are_chosen = ContextVar("words_are_chosen", default=False)
"""Whether a function that was called from outside rewrites the errors of the functions that it calls, as an estimator does."""


def respell(error: StreamSVMError, step: str, names: Mapping[str, str] | None = None) -> None:
    """Rewrite message, hint and notes of an error with ``to_python``."""
    error.message, error.hint = (to_python(text, step, names) for text in (error.message, error.hint))
    lines = [to_python(line, step, names) for line in getattr(error, "__notes__", ())]
    if lines:
        error.__notes__ = [line.replace("the command below", "the call below") for line in lines]


@contextmanager
def explain_interruption(step: str, output: Any) -> Iterator[None]:
    """Context manager for a job on a temporary store: replace the message of InterruptedRun by what was kept and how to resume.

    The original message has a command that names the temporary store, which is removed. ``output``: the path of the model or of the
    search, if the caller named one.
    """
    try:
        yield
    except InterruptedRun as error:
        what, resumable, _ = error.message.partition(". Resume: ")
        reason, job = what.partition(":")[0], {"fit": "fit", "tune": "search"}[step]
        if output is None:
            what = f"{reason}: the {job} was stopped, and nothing of it is kept"
            hint = "name a file for the model to be able to resume: sv.fit(X, 'model.ssvm', y=y), then the same call with resume=True"
            if step == "tune":
                hint = "name a directory to be able to go on: sv.tune(X, 'search', y=y), then the same call again"
        elif step == "tune":
            what, hint = f"{reason}: the search was stopped", "to go on, make the same call with the same rows"
        elif resumable and Path(f"{output}.run", "checkpoint").is_dir():
            hint = "to go on, make the same call with the same rows and resume=True"
        else:
            what, hint = f"{reason}: the fit was stopped before there was a checkpoint", "make the same call again"
        raise InterruptedRun(what, hint=hint) from error
