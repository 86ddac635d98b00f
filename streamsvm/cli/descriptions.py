"""What a plan, a store, a model and the columns of a file are, as lines of text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from streamsvm.aliases import JsonObject
from streamsvm.cli.tables import number_text, shares, table
from streamsvm.config.units import mib, percent, seconds_text, size_text

if TYPE_CHECKING:
    from streamsvm.jobs.ingest.describe import DescribeResult

MIB = 1 << 20


def description_lines(result: DescribeResult) -> Iterator[str]:
    """The table of ``ingest --describe``."""
    head = ["column", "kind", "missing", "values", "least", "most", "example"]
    rows = [
        [
            _cut(c.name),
            c.kind,
            f"{100 * c.missing:.3g} %" if c.missing else "",
            f"{c.distinct}{'+' if c.more else ''}",
            c.least,
            c.most,
            _cut(c.example),
        ]
        for c in result.columns
    ]
    for line, column in zip(table([head, *rows]), (None, *result.columns), strict=True):
        yield line if column is None else f"{line}  {column.becomes}"
    if result.schema_file is not None:
        yield f"written to {result.schema_file}: change it, then ingest with --schema {result.schema_file}"


def _cut(text: str, most: int = 24) -> str:
    return text if len(text) <= most else text[: most - 3] + "..."


def plan_lines(facts: JsonObject) -> Iterator[str]:
    """The table of ``plan``."""
    yield f"{facts['rows']} rows x {facts['columns']} columns in {facts['chunks']} chunks"
    yield f"solver {facts['solver']} ({facts['why']}), {facts['problems']} problem(s), C = {_few(facts['C'])}"
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


def _few(numbers: Sequence[float], most: int = 4) -> str:
    distinct = [f"{number:.4g}" for number in dict.fromkeys(numbers)]
    return ", ".join(distinct[:most]) + (", ..." if len(distinct) > most else "")


def store_lines(facts: JsonObject) -> Iterator[str]:
    """What ``info`` says of a store."""
    filled = ""
    if facts["nonzeros"] is not None:
        filled = f", {facts['nonzeros'] / facts['rows']:.1f} entries a row"
    yield f"store    {facts['path']}"
    yield f"rows     {facts['rows']} x {facts['columns']} columns, {facts['layout']}{filled}"
    yield f"chunks   {facts['chunks']}, at most {facts['largest_chunk']} rows; {size_text(facts['bytes_per_pass'])} a pass"
    if facts["classes"]:
        yield f"classes  {shares(list(facts['classes']), list(facts['classes'].values()))}"
        yield f"drift    {facts['label_drift']:.3f} at most between a class's share in a chunk and in all rows"
    else:
        yield f"target   {number_text(facts['target'])}"
    if facts["weighted"]:
        yield "weights  one a row"
    if facts["index_base"] is not None:
        yield f"base     column indices in the sources start at {facts['index_base']}"
    yield from offset_lines(facts)
    for source in facts["sources"]:
        yield f"source   {source['name']}, {source['rows']} rows, {size_text(source['size'])}"
    if facts["synth"]:
        yield f"synth    {facts['synth']['generator']}, {facts['synth']['rows']} rows, seed {facts['synth']['seed']}"
    yield f"digest   {facts['digest'][:16]}"
    if "statistics" in facts:
        yield ""
        yield from column_lines(facts["statistics"])


def offset_lines(facts: JsonObject, most: int = 10) -> Iterator[str]:
    """What is taken from columns before they are stored, where there is anything."""
    shown = [f"{name} less {offset:.15g}" for name, offset in facts["offsets"].items()]
    if shown:
        yield f"zero     {', '.join(shown[:most])}" + (f", ... ({len(shown)} in all)" if len(shown) > most else "")


def column_lines(statistics: Sequence[JsonObject]) -> Iterator[str]:
    """One line a column."""
    head = ["column", "mean", "std", "min", "max"]
    yield from table([head, *([c["name"], *(f"{c[key]:.5g}" for key in head[1:])] for c in statistics)])


def calibration_text(found: JsonObject) -> str:
    """Where the probabilities of a model come from, in words."""
    if found["scores"] == "logistic loss":
        return "of the logistic loss itself"
    return f"{found['method']} calibration, from {found['scores']} scores of {found['rows']} rows"


def model_lines(facts: JsonObject) -> Iterator[str]:
    """What ``info`` says of a model."""
    yield f"model    {facts['path']}, {size_text(facts['bytes'])}, streamsvm {facts['streamsvm']}"
    yield f"classes  {', '.join(facts['classes'][:10]) or 'none: it predicts a number'}" + (
        ", ..." if len(facts["classes"]) > 10 else ""
    )
    used = [str(found["columns_used"]) for found in facts["certificates"][:10] if "columns_used" in found]
    yield f"columns  {facts['columns']}" + (f", of which {', '.join(used)} have weights" if used else "")
    yield from offset_lines(facts)
    if facts["expansion"]:
        kernel, parameters = facts["expansion"]["kernel"], facts["expansion"]["parameters"]
        shown = ", ".join(f"{key} {value:.4g}" for key, value in parameters.items())
        yield f"kernel   {kernel} ({shown}) on {facts['expansion']['points']} points"
    if facts["calibration"]:
        yield f"probabilities  {calibration_text(facts['calibration'])}"
    for found in facts["certificates"][:10]:
        numbers = f"(primal {found['primal']:.6g}, dual {found['dual']:.6g})"
        yield f"gap      {percent(found['gap'])} {numbers}, C = {found.get('equivalent_C') or found['C']:.4g}"
    settings = {k: v for k, v in facts["settings"].items() if v not in (None, {}, "", False)}
    yield "settings " + ", ".join(f"{key}={value}" for key, value in settings.items())
    if facts["store"]:
        yield f"store    {facts['store']['rows']} rows, digest {facts['store']['digest'][:16]}"
