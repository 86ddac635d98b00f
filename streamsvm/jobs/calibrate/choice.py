"""Which scores a calibration is made of, and what it holds in memory.

Leave-one-out scores are those of the very model that is calibrated, but for one row, and cost about a reading; a model of four fifths
of the rows is another one. They need a matrix of the components (``MOST_BYTES`` for all problems), a loss that is curved or
rows enough (``solvers.leave_one_out.applies``), and rows that know nothing of each other. Else, or where ``--calibration-folds``
says so, the fit is made once more for each fold.
"""

from __future__ import annotations

from streamsvm.errors import UsageError
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.tune import folds as folding
from streamsvm.types import AnySolver, Layout, Problem, Term

MOST_BYTES = 256 << 20
"""Of the matrices of leave-one-out scores."""
FOLDS = 5
"""As many as are made where nobody says."""


def folds_of(job: FitJob, solver: AnySolver, problems: list[Problem]) -> int | None:
    """Return in how many folds the scores of a fit are made; None: by leaving one out."""
    if job.calibration_folds is not None:
        return job.calibration_folds
    from streamsvm.solvers.leave_one_out import applies

    p = problems[0].columns + 1
    able = not solver.exact_kernel and not problems[0].classes and applies(problems[0])
    able = able and 8 * p * p * len(problems) <= MOST_BYTES
    return None if able else FOLDS


def calibration_passes(job: FitJob, solver: AnySolver, problems: list[Problem]) -> float:
    """Return how many passes of the training leave-one-out scores take, about; fits of folds are as long as the fit, and none waits for them."""
    return 2.0 if job.calibrate is not None and folds_of(job, solver, problems) is None else 0.0


def calibration_terms(
    job: FitJob, solver: AnySolver, problems: list[Problem], layout: Layout, threads: int
) -> list[Term]:
    """Return what calibration holds beside the fit, ``threads`` of which read. Raises UsageError where it cannot be made."""
    if job.calibrate is None:
        return []
    from streamsvm.calibration.scores import table_bytes
    from streamsvm.solvers.leave_one_out import leave_one_out_bytes

    folds = folds_of(job, solver, problems)
    values = sum(len(problem.positives) for problem in problems)
    tables = table_bytes(values) + 8 * layout.largest_chunk * (values + 8)
    if folds is None:
        why = "scores in bins, by each thread, a matrix for each problem"
        matrices = leave_one_out_bytes(problems, threads, layout.entry_bytes)
        return [Term("calibration", threads * tables + matrices, why)]
    if job.cluster is not None:
        hint = "calibrate without --cluster"
        raise UsageError("the scores of this fit are made of folds, which are not fitted on a cluster", hint=hint)
    costs = [solver.cost(problem, layout) for problem in problems]
    again = sum(cost.fixed + cost.per_row * layout.rows for cost in costs)
    again += max((cost.shared for cost in costs), default=0)
    weights = 8 * folds * len(problems) * problems[0].components
    why = f"scores in bins, the solver once more, weights of {folds} folds"
    return [Term("calibration", tables + again + weights, why), *folding.cut_terms(layout, folds)]
