"""Results as lines of text and as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import click

from streamsvm.cli.tables import number_text, shares
from streamsvm.config.units import seconds_text, size_text
from streamsvm.display.terminal import describe_fit, draw_fit_card, format_count, replace_nonfinite
from streamsvm.errors import printable

if TYPE_CHECKING:
    from streamsvm.config.checks import Checked
    from streamsvm.jobs import JobResult
    from streamsvm.jobs.apply.evaluate import EvaluateResult
    from streamsvm.jobs.apply.job import EvaluateJob, PredictJob
    from streamsvm.jobs.apply.predict import PredictResult
    from streamsvm.jobs.embed.builder import EmbedResult
    from streamsvm.jobs.export import ExportResult
    from streamsvm.jobs.fit.driver import FitResult
    from streamsvm.jobs.fit.job import FitJob
    from streamsvm.jobs.ingest.job import IngestJob
    from streamsvm.jobs.ingest.run import IngestResult
    from streamsvm.jobs.options import EmbedJob, ExportJob, ReportJob, SynthJob
    from streamsvm.jobs.report import ReportResult
    from streamsvm.jobs.synth import SynthResult
    from streamsvm.jobs.tune.job import TuneJob
    from streamsvm.jobs.tune.run import TuneResult


def say(line: str, *, err: bool = False) -> None:
    """One line for people, on standard output or standard error: the only way text of users gets onto a terminal."""
    click.echo(printable(line), err=err)


def write_json(value: object, *, indent: int | None = 1) -> None:
    """One JSON object on standard output."""
    click.echo(json.dumps(replace_nonfinite(value), indent=indent, default=str))


def lines_of(name: str, job: Checked, result: JobResult) -> Iterable[str]:
    """What a command prints when it is done."""
    shown: dict[str, Callable[..., Iterator[str]]] = {
        "synth": _synth,
        "ingest": _ingest,
        "embed": _embed,
        "fit": _fit,
        "tune": _tune,
        "predict": _predict,
        "evaluate": _evaluate,
        "export": _export,
        "report": _report,
    }
    if name in shown:
        return shown[name](job, result)
    return [", ".join(f"{key} {value}" for key, value in result.facts().items())]


def _synth(job: SynthJob, result: SynthResult) -> Iterator[str]:
    held_out = f" and {result.rows - job.training_rows} in {result.test}" if result.test else ""
    yield f"{job.training_rows} rows in {result.store}{held_out}, in {seconds_text(result.seconds)}"


def _ingest(_: IngestJob, result: IngestResult) -> Iterator[str]:
    kind = "sparse" if result.sparse else "dense"
    held_out = f", {result.test_rows} rows in {result.test_store}" if result.test_store else ""
    yield f"{result.rows} rows x {result.columns} columns, {kind}, in {result.store}{held_out}"
    if result.target is None:
        yield f"classes: {shares(result.classes, result.counts)}"
    else:
        yield f"target: {number_text(result.target)}"
    rate = result.bytes_read / max(result.seconds, 1e-9)
    yield f"read {size_text(result.bytes_read)} in {seconds_text(result.seconds)}, {size_text(rate)}/s"


def _embed(_: EmbedJob, result: EmbedResult) -> Iterator[str]:
    found = "there already" if result.reused else f"in {seconds_text(result.seconds)}"
    resumed = f", {result.resumed} of them by an earlier run" if result.resumed else ""
    yield f"{result.rows} rows x {result.projection.rank} features in {result.embedding}, {found}{resumed}"


def _fit(job: FitJob, result: FitResult) -> Iterator[str]:
    from streamsvm.jobs.fit.outputs import model_paths, summary

    written = ", ".join(map(str, model_paths(job, result.plan.costs)))
    end = {**summary(result.training, result.plan), "model": written}
    if sys.stdout.isatty():
        yield from draw_fit_card(end)
    else:
        yield describe_fit(end)


def _tune(_: TuneJob, result: TuneResult) -> Iterator[str]:
    from streamsvm.jobs.tune.results import axis_of, map_lines

    yield from map_lines(result.scores, result.measure)
    best = result.best
    landmarks = "" if best.landmarks is None else f" --landmarks {best.landmarks}"
    width = "" if best.gamma is None else f" --gamma {best.gamma:.6g}"
    weight = f"--{axis_of(result.scores)} {best.loss_weight:.6g}"
    yield f"best: {weight}{landmarks}{width}; tables and map in {result.out}, in {seconds_text(result.seconds)}"


def _predict(job: PredictJob, result: PredictResult) -> Iterator[str]:
    if job.out != "-":
        rate = format_count(result.rows / max(result.seconds, 1e-9))
        yield f"{result.rows} rows in {result.out}, in {seconds_text(result.seconds)}, {rate} rows/s"


def _evaluate(_: EvaluateJob, result: EvaluateResult) -> Iterator[str]:
    from streamsvm.cli.figures import evaluation_lines

    yield from evaluation_lines(result)


def _export(job: ExportJob, result: ExportResult) -> Iterator[str]:
    yield f"the {result.kind} model as {job.format} in {result.out}, {size_text(result.bytes)}"


def _report(_: ReportJob, result: ReportResult) -> Iterator[str]:
    of = "1 run" if result.runs == 1 else f"{result.runs} runs"
    yield f"the page of {of} in {result.out}, {size_text(result.bytes)}"
