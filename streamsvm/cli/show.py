"""Print results, plans, and facts about stores, models, columns and the machine: as lines of text, or as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import click

from streamsvm.config.units import mib, percent, seconds_text, size_text
from streamsvm.display.terminal import align_columns, describe_fit, draw_fit_card, format_count, replace_nonfinite
from streamsvm.errors import printable
from streamsvm.type_aliases import JsonObject

if TYPE_CHECKING:
    from streamsvm.config.options import Checked
    from streamsvm.jobs import JobResult
    from streamsvm.jobs.apply.evaluate import EvaluateResult
    from streamsvm.jobs.apply.measures import ModelEvaluation, RegressionEvaluation
    from streamsvm.jobs.apply.options import EvaluateJob, ForgetJob, LearnJob, PredictJob
    from streamsvm.jobs.apply.predict import PredictResult
    from streamsvm.jobs.change_rows import ChangeResult
    from streamsvm.jobs.common_options import EmbedJob, ExportJob, ReportJob, SynthJob
    from streamsvm.jobs.embed.build import EmbedResult
    from streamsvm.jobs.export.job import ExportResult
    from streamsvm.jobs.fit.driver import FitResult
    from streamsvm.jobs.fit.options import FitJob
    from streamsvm.jobs.ingest.describe import DescribeResult
    from streamsvm.jobs.ingest.options import IngestJob
    from streamsvm.jobs.ingest.run import IngestResult
    from streamsvm.jobs.report import ReportResult
    from streamsvm.jobs.synth import SynthResult
    from streamsvm.jobs.tune.options import TuneJob
    from streamsvm.jobs.tune.run import TuneResult


def format_shares(classes: Sequence[str], counts: Sequence[int], limit: int = 10) -> str:
    """Return the fractions of rows by class, 'a 60.0 %, b 40.0 %', of at most ``limit`` classes."""
    total = sum(counts)
    shares = [f"{name} {count / total:.1%}".replace("%", " %") for name, count in zip(classes, counts, strict=True)]
    return ", ".join(shares[:limit]) + (f", ... ({len(shares)} in all)" if len(shares) > limit else "")


def format_target(target: Mapping[str, float] | None) -> str:
    """Return the range and moments of a regression target: 'numbers from -1 to 3, mean 0.5, standard deviation 1.2'; 'numbers' for None."""
    if target is None:
        return "numbers"
    text = {name: f"{value:.6g}" for name, value in target.items()}
    return f"numbers from {text['least']} to {text['most']}, mean {text['mean']}, standard deviation {text['spread']}"


MAX_TABLE_CLASSES = 20
"""Maximum number of classes for which tables by class are printed; the JSON output always has them."""


def describe_evaluation(result: EvaluateResult) -> Iterator[str]:
    """Yield the lines of ``evaluate``."""
    from streamsvm.jobs.apply.measures import RegressionEvaluation

    evaluation = result.evaluation
    yield f"rows               {evaluation.rows}"
    if isinstance(evaluation, RegressionEvaluation):
        yield from _describe_regression(evaluation)
    else:
        yield from _describe_classification(evaluation, result)
    if result.proved is not None:
        from streamsvm.jobs.apply.evaluate import describe_proved

        for k, line in enumerate(describe_proved(result.proved)):
            yield f"{'proved' if not k else '':<18} {line}"
    if result.against is not None:
        from streamsvm.jobs.apply.evaluate import describe_comparison

        for k, line in enumerate(describe_comparison(result.against)):
            yield f"{'' if k else 'against the other':<18} {line}"
    if result.leave_one_out is not None:
        from streamsvm.jobs.apply.leave_one_out import describe_leave_one_out

        for line in describe_leave_one_out(result.leave_one_out):
            yield f"leave-one-out      {line}"


def _describe_regression(e: RegressionEvaluation) -> Iterator[str]:
    if e.R2 is not None:
        yield f"R2                 {e.R2:.5f}"
    yield f"mean error         {e.MAE:.6g} absolute (MAE), {e.RMSE:.6g} root of the mean square (RMSE)"
    yield f"largest error      {e.largest_error:.6g}"
    yield f"target             mean {e.target_mean:.6g}, standard deviation {e.target_spread:.6g}"


def _describe_classification(e: ModelEvaluation, result: EvaluateResult) -> Iterator[str]:
    yield f"accuracy           {e.accuracy:.5f}  (error {100 * (1 - e.accuracy):.2f} %)"
    yield f"balanced accuracy  {e.balanced_accuracy:.5f}"
    positive = "" if e.F1 is None else f"{e.F1:.5f} of {e.positive}, "
    yield f"F1                 {positive}{e.F1_macro:.5f} macro"
    if e.AUC is not None:
        yield f"AUC                {e.AUC:.5f}  (within {e.AUC_error:.1g})"
        yield f"average precision  {_or_dash(e.average_precision)} of {e.positive}"
        yield f"positive class     {e.positive}, {_share_of(e)} of the rows (--positive chooses another)"
    if e.hinge is not None:
        yield f"mean loss          {e.hinge:.5f} hinge, {e.squared_hinge:.5f} squared hinge"
    if e.log_loss is not None:
        yield f"probabilities      log loss {e.log_loss:.5f}, Brier score {e.Brier:.5f}, calibration error {e.ECE:.5f}"
    for name, figures in (("threshold", result.stated), ("best threshold", result.best)):
        if figures is not None:
            texts = (f"{field} {value:.5g}" for field, value in figures._asdict().items() if field != "threshold")
            yield f"{name:<18} {figures.threshold:.9g}: {', '.join(texts)}"
    if len(e.classes) <= MAX_TABLE_CLASSES:
        yield from _class_lines(e)
        yield from _confusion_lines(e)


def _or_dash(value: float | None) -> str:
    return "-" if value is None else f"{value:.5f}"


def _share_of(e: ModelEvaluation) -> str:
    assert e.positive is not None
    rows = sum(e.confusion[e.truths.index(e.positive)])
    return percent(rows / max(e.rows, 1), 3)


def _class_lines(e: ModelEvaluation) -> Iterator[str]:
    rows = zip(e.truths, e.precision, e.recall, e.F1_by_class, map(sum, e.confusion), strict=True)
    lines = [[name, *(f"{value:.4f}" for value in values), str(count)] for name, *values, count in rows]
    yield from align_columns([["class", "precision", "recall", "F1", "rows"], *lines])


def _confusion_lines(e: ModelEvaluation) -> Iterator[str]:
    head = ["truth \\ said", *e.classes]
    rows = [[name, *map(str, counts)] for name, counts in zip(e.truths, e.confusion, strict=True)]
    yield from align_columns([head, *rows])


MIB = 1 << 20


def describe_columns(result: DescribeResult) -> Iterator[str]:
    """Yield the table of ``ingest --describe``."""
    head = ["column", "kind", "missing", "values", "least", "most", "example"]
    rows = [
        [
            _shorten(c.name),
            c.kind,
            f"{100 * c.missing:.3g} %" if c.missing else "",
            f"{c.distinct}{'+' if c.more else ''}",
            c.least,
            c.most,
            _shorten(c.example),
        ]
        for c in result.columns
    ]
    for line, column in zip(align_columns([head, *rows]), (None, *result.columns), strict=True):
        yield line if column is None else f"{line}  {column.becomes}"
    yield from result.problems
    if result.command:
        yield f"it can be ingested like this: {result.command}"
    if result.schema_file is not None:
        yield f"written to {result.schema_file}: change it, then ingest with --schema {result.schema_file}"


def _shorten(text: str, limit: int = 24) -> str:
    return text if len(text) <= limit else text[: limit - 3] + "..."


def describe_plan(facts: JsonObject) -> Iterator[str]:
    """Yield the lines of ``plan``."""
    yield f"{facts['rows']} rows x {facts['columns']} columns in {facts['chunks']} chunks"
    yield f"solver {facts['solver']} ({facts['why']}), {facts['problems']} problem(s), C = {_format_distinct(facts['C'])}"
    if facts.get("features"):
        yield "features " + ", ".join(f"{key} {value}" for key, value in facts["features"].items())
    if facts.get("why_sampling"):
        yield f"landmarks: {facts['features']['sampling']} ({facts['why_sampling']})"
    if facts.get("embedding"):
        yield "embedding: {where} ({why}), {dtype}".format_map(facts["embedding"])
    yield ""
    for term in facts["memory"]:
        yield f"{term['bytes'] / MIB:9.1f} MiB  {term['term']:<24} {term['why']}"
    verdict = "fits" if facts["fits"] else "DOES NOT FIT"
    yield f"{facts['total'] / MIB:9.1f} MiB  of {facts['limit'] / MIB:.1f} MiB: {verdict}"
    if facts.get("limit_taken"):
        limit = mib(facts["limit"])
        yield f"no --memory was given: {limit} was taken, from what this machine has free; --memory {limit} repeats it"
    yield ""
    yield f"per-row state: in {facts['row_state']}"
    size = size_text(facts["bytes_per_pass"])
    if facts["fits"]:
        rate, seconds = size_text(facts["bytes_per_second"]), seconds_text(facts["read_seconds_per_pass"])
        yield f"a pass reads {size}, at {rate}/s measured now: {seconds}"
    else:
        yield f"a pass would read {size}"
    if requests := facts.get("requests_per_pass"):
        yield f"{requests} requests a pass for features; labels are requested once"
    if kept := facts.get("bytes_kept"):
        rest = size_text(facts["bytes_per_pass"] - kept)
        yield f"{size_text(kept)} of it is kept on the disk of this machine: each later pass reads {rest} over the network"


def _format_distinct(numbers: Sequence[float], limit: int = 4) -> str:
    distinct = [f"{number:.4g}" for number in dict.fromkeys(numbers)]
    return ", ".join(distinct[:limit]) + (", ..." if len(distinct) > limit else "")


def describe_store(facts: JsonObject) -> Iterator[str]:
    """Yield the lines of ``info`` for a store."""
    entries = ""
    if facts["nonzeros"] is not None:
        entries = f", {facts['nonzeros'] / facts['rows']:.1f} entries a row"
    yield f"store    {facts['path']}"
    yield f"rows     {facts['rows']} x {facts['columns']} columns, {facts['layout']}{entries}"
    yield f"chunks   {facts['chunks']}, at most {facts['largest_chunk']} rows; {size_text(facts['bytes_per_pass'])} a pass"
    if facts["classes"]:
        yield f"classes  {format_shares(list(facts['classes']), list(facts['classes'].values()))}"
        yield f"drift    {facts['label_drift']:.3f} largest difference between a class's share in a chunk and in all rows"
    else:
        yield f"target   {format_target(facts['target'])}"
    if facts["weighted"]:
        yield "weights  one a row"
    if facts["index_base"] is not None:
        yield f"base     column indices in the sources start at {facts['index_base']}"
    yield from _describe_offsets(facts)
    if "table" in facts:
        yield f"table    {_describe_table(facts['table'])}"
    for source in facts["sources"]:
        yield f"source   {source['name']}, {source['rows']} rows, {size_text(source['size'])}"
    if facts["synth"]:
        yield f"synth    {facts['synth']['generator']}, {facts['synth']['rows']} rows, seed {facts['synth']['seed']}"
    yield f"digest   {facts['digest'][:16]}"
    if "statistics" in facts:
        yield ""
        yield from _describe_statistics(facts["statistics"])


def _describe_table(table: JsonObject) -> str:
    return f"{table['kind']} table {table['id']}, version {table['version']}"


def _describe_offsets(facts: JsonObject, limit: int = 10) -> Iterator[str]:
    """Yield a line with the offsets that are subtracted from columns, if there are any."""
    offsets = [f"{name} less {offset:.15g}" for name, offset in facts["offsets"].items()]
    if offsets:
        rest = f", ... ({len(offsets)} in all)" if len(offsets) > limit else ""
        yield f"offsets  {', '.join(offsets[:limit])}{rest}"


def _describe_statistics(statistics: Sequence[JsonObject]) -> Iterator[str]:
    """Yield a table with a line for each column."""
    head = ["column", "mean", "std", "min", "max"]
    yield from align_columns([head, *([c["name"], *(f"{c[key]:.5g}" for key in head[1:])] for c in statistics)])


def _describe_calibration(facts: JsonObject) -> str:
    """Return how the probabilities of a model are computed."""
    if facts["scores"] == "logistic loss":
        return "of the logistic loss itself"
    return f"{facts['method']} calibration, from {facts['scores']} scores of {facts['rows']} rows"


def describe_model(facts: JsonObject) -> Iterator[str]:
    """Yield the lines of ``info`` for a model."""
    yield f"model    {facts['path']}, {size_text(facts['bytes'])}, streamsvm {facts['streamsvm']}"
    yield f"classes  {', '.join(facts['classes'][:10]) or 'none: it predicts a number'}" + (
        ", ..." if len(facts["classes"]) > 10 else ""
    )
    used = [str(one["columns_used"]) for one in facts["certificates"][:10] if "columns_used" in one]
    yield f"columns  {facts['columns']}" + (f", of which {', '.join(used)} have weights" if used else "")
    yield from _describe_offsets(facts)
    if facts["function"] == "curves":
        jumps = f", {facts['expansion']['jumps']} jumps" if "jumps" in facts["expansion"] else ""
        pairs = f", and {facts['expansion']['pairs']} pairs of columns" if "pairs" in facts["expansion"] else ""
        yield f"curves   of {facts['expansion']['curves']} columns, {facts['expansion']['knots']} knots{jumps}{pairs}"
    elif facts["expansion"]:
        kernel, parameters = facts["expansion"]["kernel"], facts["expansion"]["parameters"]
        values = ", ".join(f"{key} {value:.4g}" for key, value in parameters.items())
        yield f"kernel   {kernel} ({values}) on {facts['expansion']['points']} points"
    if facts["threshold"]:
        yield "threshold {value:.6g}, at which {measure} is {score:.4g} on {rows}; positive class {positive}".format_map(
            facts["threshold"]
        )
    if facts["calibration"]:
        yield f"probabilities  {_describe_calibration(facts['calibration'])}"
    for one in facts["certificates"][:10]:
        bounds = f"(primal {one['primal']:.6g}, dual {one['dual']:.6g})"
        yield f"gap      {percent(one['gap'])} {bounds}, C = {one.get('equivalent_C') or one['C']:.4g}"
    for one in facts["changes"]:
        yield f"changed  {one['command']}, {one['rows']} rows"
    settings = {k: v for k, v in facts["settings"].items() if v not in (None, {}, "", False)}
    yield "settings " + ", ".join(f"{key}={value}" for key, value in settings.items())
    if facts["store"]:
        yield f"store    {facts['store']['rows']} rows, digest {facts['store']['digest'][:16]}"
        if "table" in facts["store"]:
            yield f"table    {_describe_table(facts['store']['table'])}"


def describe_machine(facts: JsonObject) -> Iterator[str]:
    """Yield the lines of ``doctor``."""
    yield f"streamsvm  {facts['streamsvm']}, Python {facts['python']}, {facts['platform']}"
    yield "packages   " + ", ".join(f"{name} {version or 'MISSING'}" for name, version in facts["packages"].items())
    blas = ", ".join(f"{b['library']} with {b['threads']} threads" for b in facts["blas"])
    yield f"threads    {facts['cpus']} processors for this process; {blas}; a job works on {facts['threads']} without --threads"
    yield f"cluster    {facts['cluster']}"
    memory = facts["memory"]
    yield f"memory     {size_text(memory['total'])}, {size_text(memory['available'])} available"
    yield f"limit      {memory['limit'] >> 20}MiB without --memory; this process holds {memory['process'] >> 20}MiB"
    disk = facts["disk"]
    yield f"disk       {disk['directory']}: writes {size_text(disk['write'])}/s, reads {size_text(disk['read'])}/s"
    passes = facts["passes"]
    cached = f"{passes['compiled']} compiled, {size_text(passes['bytes'])}"
    yield f"passes     {passes['directory']}: {cached}, {'writable' if passes['writable'] else 'NOT writable'}"
    if not passes["compiled"]:
        yield f"           the first run compiles them: expect {seconds_text(20)} more"


def say(line: str, *, err: bool = False) -> None:
    """Print one line on standard output or standard error, with unprintable characters escaped: text of users is printed only here."""
    click.echo(printable(line), err=err)


def write_json(value: object, *, indent: int | None = 1) -> None:
    """Print one JSON object on standard output."""
    click.echo(json.dumps(replace_nonfinite(value), indent=indent, default=str))


def describe_result(name: str, job: Checked, result: JobResult) -> Iterable[str]:
    """Return the lines that a command prints when it has finished."""
    describe: dict[str, Callable[..., Iterator[str]]] = {
        "synth": _describe_synth,
        "ingest": _describe_ingest,
        "embed": _describe_embed,
        "fit": _describe_fit,
        "tune": _describe_tune,
        "predict": _describe_predict,
        "evaluate": _describe_evaluate,
        "forget": _describe_change,
        "learn": _describe_change,
        "export": _describe_export,
        "report": _describe_report,
    }
    if name in describe:
        return describe[name](job, result)
    return [", ".join(f"{key} {value}" for key, value in result.facts().items())]


def _describe_synth(job: SynthJob, result: SynthResult) -> Iterator[str]:
    held_out = f" and {result.rows - job.training_rows} in {result.test}" if result.test else ""
    yield f"{job.training_rows} rows in {result.store}{held_out}, in {seconds_text(result.seconds)}"


def _describe_ingest(_: IngestJob, result: IngestResult) -> Iterator[str]:
    dense = "dense" if result.store_dtype == "float32" else f"dense {result.store_dtype}"
    kind = "sparse" if result.sparse else dense
    held_out = f", {result.test_rows} rows in {result.test_store}" if result.test_store else ""
    yield f"{result.rows} rows x {result.columns} columns, {kind}, in {result.store}{held_out}"
    if result.target is None:
        yield f"classes: {format_shares(result.classes, result.counts)}"
    else:
        yield f"target: {format_target(result.target)}"
    rate = result.bytes_read / max(result.seconds, 1e-9)
    yield f"read {size_text(result.bytes_read)} in {seconds_text(result.seconds)}, {size_text(rate)}/s"


def _describe_embed(_: EmbedJob, result: EmbedResult) -> Iterator[str]:
    duration = "there already" if result.reused else f"in {seconds_text(result.seconds)}"
    resumed = f", {result.resumed} of them by an earlier run" if result.resumed else ""
    yield f"{result.rows} rows x {result.projection.rank} features in {result.embedding}, {duration}{resumed}"


def _describe_fit(job: FitJob, result: FitResult) -> Iterator[str]:
    from streamsvm.jobs.fit.outputs import model_paths, summary

    chosen = [str(job.model)] if result.training.validation_state else []
    written = ", ".join(sorted({*map(str, model_paths(job, result.plan.costs)), *chosen}))
    end = {**summary(result.training, result.plan), "model": written}
    if sys.stdout.isatty():
        yield from draw_fit_card(end)
    else:
        yield describe_fit(end)
    if result.evaluation is not None:
        yield "on the rows that were held out:"
        yield from describe_evaluation(result.evaluation)


def _describe_tune(_: TuneJob, result: TuneResult) -> Iterator[str]:
    from streamsvm.jobs.tune.results import axis_of, map_lines

    yield from map_lines(result.scores, result.measure)
    best = result.best
    if result.regret is not None:
        from streamsvm.jobs.tune.regret import describe_regret

        yield describe_regret(result.regret, best)
    landmarks = "" if best.landmarks is None else f" --landmarks {best.landmarks}"
    width = "" if best.gamma is None else f" --gamma {best.gamma:.6g}"
    weight = f"--{axis_of(result.scores)} {best.loss_weight:.6g}"
    yield f"best: {weight}{landmarks}{width}; tables and map in {result.out}, in {seconds_text(result.seconds)}"


def _describe_predict(job: PredictJob, result: PredictResult) -> Iterator[str]:
    if job.out != "-":
        rate = format_count(result.rows / max(result.seconds, 1e-9))
        yield f"{result.rows} rows in {result.out}, in {seconds_text(result.seconds)}, {rate} rows/s"


def _describe_evaluate(_: EvaluateJob, result: EvaluateResult) -> Iterator[str]:
    yield from describe_evaluation(result)


def _describe_change(_: ForgetJob | LearnJob, result: ChangeResult) -> Iterator[str]:
    verb, have = ("removed", "have had") if result.command == "forget" else ("added", "have")
    yield f"{result.rows} rows {verb}; {result.without_influence} of them are proved to {have} no influence"
    what = "is enclosed" if result.is_proved else "is enclosed only by a ball"
    yield f"the optimum of a retraining {what}; the model in {result.out} is the center of the enclosure, computed in {seconds_text(result.seconds)}"


def _describe_export(job: ExportJob, result: ExportResult) -> Iterator[str]:
    yield f"the {result.kind} model as {job.format} in {result.out}, {size_text(result.bytes)}"


def _describe_report(_: ReportJob, result: ReportResult) -> Iterator[str]:
    runs = "1 run" if result.runs == 1 else f"{result.runs} runs"
    yield f"the page of {runs} in {result.out}, {size_text(result.bytes)}"
