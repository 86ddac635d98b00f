"""What an evaluation found, as lines of text: of classes or of numbers."""

from __future__ import annotations

from collections.abc import Iterator

from streamsvm.cli.tables import table
from streamsvm.jobs.apply.evaluate import EvaluateResult
from streamsvm.jobs.apply.metrics import ModelEvaluation, RegressionEvaluation

MOST_CLASSES = 20
"""Wider confusion tables are left to --json."""


def evaluation_lines(result: EvaluateResult) -> Iterator[str]:
    """Yield the figures of an evaluation."""
    found = result.evaluation
    yield f"rows               {found.rows}"
    yield from _off(found) if isinstance(found, RegressionEvaluation) else _right(found, result)


def _off(e: RegressionEvaluation) -> Iterator[str]:
    if e.R2 is not None:
        yield f"R2                 {e.R2:.5f}"
    yield f"mean error         {e.MAE:.6g} absolute (MAE), {e.RMSE:.6g} root of the mean square (RMSE)"
    yield f"largest error      {e.largest_error:.6g}"
    yield f"target             mean {e.target_mean:.6g}, standard deviation {e.target_spread:.6g}"


def _right(e: ModelEvaluation, result: EvaluateResult) -> Iterator[str]:
    yield f"accuracy           {e.accuracy:.5f}  (error {100 * (1 - e.accuracy):.2f} %)"
    yield f"balanced accuracy  {e.balanced_accuracy:.5f}"
    positive = "" if e.F1 is None else f"{e.F1:.5f} for {e.classes[1]}, "
    yield f"F1                 {positive}{e.F1_macro:.5f} macro"
    if e.AUC is not None:
        yield f"AUC                {e.AUC:.5f}  (within {e.AUC_error:.1g})"
        yield f"average precision  {e.average_precision:.5f}"
    if e.hinge is not None:
        yield f"mean loss          {e.hinge:.5f} hinge, {e.squared_hinge:.5f} squared hinge"
    if e.log_loss is not None:
        yield f"probabilities      log loss {e.log_loss:.5f}, Brier score {e.Brier:.5f}, calibration error {e.ECE:.5f}"
    for name, found in (("threshold", result.stated), ("best threshold", result.best)):
        if found is not None:
            shown = (f"{field} {value:.5g}" for field, value in found._asdict().items() if field != "threshold")
            yield f"{name:<18} {found.threshold:.9g}: {', '.join(shown)}"
    if len(e.classes) <= MOST_CLASSES:
        yield from _by_class(e)
        yield from _confusion(e)


def _by_class(e: ModelEvaluation) -> Iterator[str]:
    rows = zip(e.truths, e.precision, e.recall, e.F1_by_class, map(sum, e.confusion), strict=True)
    lines = [[name, *(f"{value:.4f}" for value in values), str(count)] for name, *values, count in rows]
    yield from table([["class", "precision", "recall", "F1", "rows"], *lines])


def _confusion(e: ModelEvaluation) -> Iterator[str]:
    head = ["truth \\ said", *e.classes]
    rows = [[name, *map(str, counts)] for name, counts in zip(e.truths, e.confusion, strict=True)]
    yield from table([head, *rows])
