"""The commands as functions: ``sv.fit("train.zarr", "model.ssvm", C=10, memory="1GiB")`` is ``streamsvm fit``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, NamedTuple

from streamsvm.api.given import fitted_rows, given_models, judged_rows, models_placed, rows_given
from streamsvm.api.running import run_job
from streamsvm.api.signature import WITH_ROWS, documentation, of_programs, signature_of, with_rows
from streamsvm.api.values import by_field
from streamsvm.config.job_file import STEPS, make_job
from streamsvm.registry import load

OF_A_MODEL = ("model", "resume", "overwrite", "checkpoint_every", "dual")
"""Options of a fit that say where it is written and how it goes on: a plan has none of them."""


class Face(NamedTuple):
    """What is known of a function of the face beside the options of its step."""

    result: str
    """The name of the class it returns."""
    example: str
    """A use of it that runs once those of ``synth``, and of ``fit``, have run."""


COMMANDS = {
    "synth": Face("SynthResult", 'sv.synth("susy", "train.zarr", rows=2000, test_fraction=0.2).rows'),
    "ingest": Face("IngestResult", 'sv.ingest("table.csv", "table.zarr", label="left", missing="mean").columns'),
    "embed": Face("EmbedResult", 'sv.embed("train.zarr", "features.zarr", kernel="rbf", landmarks=50).embedding.name'),
    "fit": Face("FitResult", 'sv.fit("train.zarr", "model.ssvm", C=10, memory="1GiB").model.certificate.gap < 1e-3'),
    "tune": Face("TuneResult", 'sv.tune("train.zarr", "search", C=[0.1, 1, 10], folds=3).best.C'),
    "predict": Face("PredictResult", 'sv.predict("model.ssvm", "train.test.zarr", "predictions.csv").rows'),
    "export": Face("ExportResult", 'sv.export("model.ssvm", "liblinear.model", format="liblinear").bytes > 0'),
    "report": Face("ReportResult", 'sv.report("model.ssvm", "page.html").runs'),
    "evaluate": Face("EvaluateResult", 'sv.evaluate("model.ssvm", "train.test.zarr").evaluation.accuracy > 0.7'),
}
"""By step; ``tools/generate.py`` writes their types, and the tests run their examples."""


Placed = Callable[[dict[str, Any]], AbstractContextManager[dict[str, Any]]]
"""Puts rows of a program where a job finds them for as long as it runs, and says so in its options."""


def _made(step: str, placed: Placed = nullcontext) -> Callable[..., Any]:
    """The function of a step; ``placed`` puts rows that are given where the job finds them."""
    declared = signature_of(step, COMMANDS[step].result)
    declared = with_rows(step, declared) if step in WITH_ROWS else declared

    def call(*arguments: Any, **options: Any) -> Any:
        given = bound(step, declared, arguments, options)
        asked = _asked(step, given)
        with models_placed(given, given_models(step)) as known, placed(known) as known:
            return run_job(load(STEPS[step].action), _job(step, step, known), **asked)

    return _named(call, step, declared, documentation(step, STEPS[step].summary, declared, COMMANDS[step].example))


def _asked(step: str, given: dict[str, Any]) -> dict[str, Any]:
    """What only a program can say, taken out of the options."""
    return {name: given.pop(name, default) for name, (_, default, _) in of_programs(step).items()}


def _ingest() -> Callable[..., Any]:
    """``ingest``: of files as the command, and of rows that a program has."""
    declared = with_rows("ingest", signature_of("ingest", COMMANDS["ingest"].result))
    summary = "Read files, or rows that a program has, into a store."

    def call(*arguments: Any, **options: Any) -> Any:
        given = bound("ingest", declared, arguments, options)
        asked, action = _asked("ingest", given), rows_given(given)
        return run_job(action or load(STEPS["ingest"].action), _job("ingest", "ingest", given), **asked)

    return _named(call, "ingest", declared, documentation("ingest", summary, declared, COMMANDS["ingest"].example))


def _plan() -> Callable[..., Any]:
    """``plan``: what a fit would do, and the memory it would take; nothing but the store's manifest is read."""
    declared = signature_of("fit", "Plan", OF_A_MODEL, runs=False)
    summary = "Show what a fit of these options would do: solver, features, and its memory term by term."
    example = 'sv.plan("train.zarr", C=10, memory="1GiB").solver_name'

    def call(*arguments: Any, **options: Any) -> Any:
        from streamsvm.jobs.fit.plan import make_plan
        from streamsvm.jobs.fit.validate import open_training_store

        with models_placed(bound("plan", declared, arguments, options), given_models("fit")) as given:
            job = _job("fit", "plan", given, OF_A_MODEL, model="")
            return make_plan(job, open_training_store(job)[0])

    return _named(call, "plan", declared, documentation("fit", summary, declared, example))


def _job(step: str, called: str, given: Mapping[str, Any], leave_out: Sequence[str] = (), **fixed: Any) -> Any:
    """The job that a call asks for. Raises UsageError, ConfigError."""
    where = f"streamsvm.{called}"
    return make_job(step, {**by_field(step, given, where, leave_out), **fixed}, where)


def bound(
    name: str, declared: inspect.Signature, arguments: tuple[Any, ...], options: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what is given by the name of its parameter. Raises TypeError for too many arguments, or one given twice.

    A name there is not stays for ``by_field`` to refuse, which knows the nearest.
    """
    positional = declared.bind_partial(*arguments).arguments
    twice = sorted(set(positional) & set(options))
    if twice:
        raise TypeError(f"{name}() got several values for {', '.join(twice)}")
    return {**positional, **options}


def _named(call: Callable[..., Any], name: str, declared: inspect.Signature, text: str) -> Callable[..., Any]:
    """A function as ``inspect``, ``help`` and ``pickle`` are to know it."""
    call.__name__ = call.__qualname__ = name
    call.__module__, call.__doc__ = "streamsvm", text
    call.__signature__ = declared  # type: ignore[attr-defined]
    call.__annotations__ = {key: one.annotation for key, one in declared.parameters.items()}
    return call


ingest, plan = _ingest(), _plan()
synth, embed, tune, predict, export, report = map(_made, ("synth", "embed", "tune", "predict", "export", "report"))
fit, evaluate = _made("fit", partial(fitted_rows, ingest)), _made("evaluate", partial(judged_rows, ingest))
