"""What a fit has to say of itself: that it is not certified, why, and what to do next; that columns differ in scale."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamsvm.config.options import build, field_values
from streamsvm.config.units import percent
from streamsvm.engine.fit_state import Training
from streamsvm.errors import UncertifiedError, quote
from streamsvm.features.scaling import Standardized, beyond_scaling
from streamsvm.jobs.common_options import CRAMMER_SINGER
from streamsvm.jobs.embed.plan import FLY
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.plan import Plan
from streamsvm.jobs.fit.problems import effective_nu, finds_C_by_nu
from streamsvm.jobs.fit.solver_choice import solver_settings
from streamsvm.jobs.without_effect import without_effect
from streamsvm.model import Model
from streamsvm.model.measures import parse_measure
from streamsvm.rows import Float64
from streamsvm.solvers import SOLVERS
from streamsvm.solvers.one_class import LEAST_SPREAD
from streamsvm.store.foreign import foreign_format
from streamsvm.store.sources.offsets import list_first, name_of, offsets_of_store
from streamsvm.types import AnySolver, Certificate, Status, Store

APART = 1e4
"""Columns whose scales differ by more are worth a notice: the regularizer hardly sees the large ones."""
SHOWN = 3
"""Columns that a notice names, at most."""
EXACT_ENOUGH = 1e4
"""Where no number is larger than this, float32 has steps of less than a thousandth: nothing is looked for."""
BIG = 0.1
"""Of the gap: rounding that is more is named as the reason."""


def explain_missing_certificate(job: FitJob, store: Store, plan: Plan, training: Training) -> tuple[str, ...]:
    """Return one line if the fit ended without the certificate that was asked for: reason and next step. Empty if not."""
    if training.status in {Status.CONVERGED, Status.PATIENCE}:
        return _explain_missing_bound(plan)
    found = [run.certificate for run in training.runs if run.certificate is not None]
    worst = max(found, key=lambda certificate: certificate.gap)
    reason, step = _reason(job, training, worst)
    apart = [] if job.standardize else scale_notice(job, store)
    also = f"; {apart[0]}" if apart else ""
    wanted = f"gap {percent(worst.gap)} where {percent(job.tolerance)} was asked for"
    return (f"not certified: {wanted} ({reason}){also}; next: {step}", *_explain_missing_bound(plan))


def not_calibrated(job: FitJob, models: Mapping[float, Model]) -> tuple[str, ...]:
    """Return one line if the models have no probabilities, or no threshold, although these were asked for: only the time
    limit leaves them out. Empty if not.
    """
    if job.threshold is not None and any("threshold" not in model.provenance for model in models.values()):
        why = f"no threshold: the time limit of {job.time_limit:g} s was reached before it was chosen"
        return (f"{why}, and labels are predicted at 0; next: a larger --time-limit, with --resume",)
    if job.calibrate is None or all(model.calibration is not None for model in models.values()):
        return ()
    why = f"not calibrated: the time limit of {job.time_limit:g} s was reached before the probabilities were learned"
    return (f"{why}, the model has decision values alone; next: a larger --time-limit, with --resume",)


def threshold_notice(model: Model) -> tuple[str, ...]:
    """Return a line with the threshold of a model, and what it was chosen by."""
    found = model.provenance.get("threshold")
    if found is None:
        return ()
    measure = parse_measure(found["measure"], "--threshold")
    what = f"{measure.title} of {quote(found['positive'])}" if measure.has_positive else measure.title
    there = f"{what} is {measure.full_text(found['score'])} there, on {found['rows']}"
    return (f"labels are predicted at the threshold {found['value']:.6g} of the decision value: {there}",)


def strict_failure(warnings: tuple[str, ...]) -> UncertifiedError | None:
    """Return what a fit with ``strict`` ends with: the first of its warnings as an error; None where there are none."""
    hint = "the model was written; without --strict this is a warning"
    return UncertifiedError(warnings[0], hint=hint) if warnings else None


def _explain_missing_bound(plan: Plan) -> tuple[str, ...]:
    """Return what is not certified where the kernel is no Mercer kernel."""
    kernel = plan.kernel
    if kernel is None or kernel.positive_semidefinite():
        return ()
    what = "primal and dual are the values of this solution; the problem is not convex, and they bound no optimum"
    return (f"the kernel {kernel} is not positive semidefinite: {what}",)


def _reason(job: FitJob, training: Training, worst: Certificate) -> tuple[str, str]:
    """Why it ended, and what to do."""
    status = training.status
    if _is_too_large(job, worst):
        found = f"no pass was left to choose {job.max_support} of {worst.facts['support']} support rows"
        return found, "a larger --max-passes or --time-limit"
    apart = worst.primal - worst.dual > job.tolerance * abs(worst.primal)
    limited = apart and status in {Status.TIME, Status.PASSES, Status.ASKED}
    if worst.primal and 2 * worst.rounding > BIG * worst.gap * abs(worst.primal) and not limited:
        step = "a larger --tolerance, or a smaller C" if job.standardize else "--standardize, or a smaller C"
        return "rounding: the numbers are too large or too close for it", step
    limits = {
        Status.TIME: (_explain_time_limit(job, training), "a larger --time-limit, or --resume"),
        Status.ASKED: ("what was told of a pass asked for the end", "the fit without it"),
        Status.PASSES: (
            f"all {job.max_passes} passes were made",
            f"a larger --max-passes, or {_advise_other_solver(job)}",
        ),
        Status.SUPPORT: (f"the model has {job.max_support} support rows, as it was told to", "a larger --max-support"),
    }
    if status in limits:
        return limits[status]
    if finds_C_by_nu(job) and worst.final:
        return (
            "no function is better than 0: the classes overlap more than nu allows",
            "a larger --nu, or --C in its place",
        )
    if effective_nu(job) is not None and worst.final:
        why = "no hyperplane holds so many rows off the origin: they lie around it"
        return why, "a larger --nu, --kernel rbf, or columns that are measured from where nothing is"
    return _short_of_the_end(job)


def _explain_time_limit(job: FitJob, training: Training) -> str:
    """Return the reason: the time limit, or too little time before it for one more pass and the one that certifies."""
    left, needed = training.seconds_left, training.seconds_needed
    if left <= 0.0:
        return f"the time limit of {job.time_limit:g} s was reached"
    return f"of the time limit of {job.time_limit:g} s {left:.1f} s were left, and two more passes and what follows take about {needed:.1f} s"


def _short_of_the_end(job: FitJob) -> tuple[str, str]:
    """Return the reason and the advice where neither a limit nor the problem itself is to blame."""
    if job.validation is not None:
        why = "the weights are those of the pass with the best score on the rows held out"
        return why, "leave out --validation for those of the last pass"
    return "the solver stalled", _advise_other_solver(job) + ("" if job.standardize else ", or --standardize")


def _advise_other_solver(job: FitJob) -> str:
    """Return the advice to choose another solver; of all classes together there are few."""
    if job.multi_class != CRAMMER_SINGER:
        return "another --solver"
    return "--solver dcd" if job.solver == "interior_point" else "--solver interior_point"


def _is_too_large(job: FitJob, worst: Certificate) -> bool:
    """Return whether the model has more support rows than --max-support allows: the pass that chooses them was not
    made.
    """
    return worst.facts.get("points") is None and 0 < (job.max_support or 0) < worst.facts.get("support", 0)


def scale_notice(job: FitJob, store: Store) -> list[str]:
    """Return a line that names the columns with the largest and the smallest scale, if these are far apart."""
    if job.standardize or store.facts.get("map") is not None:
        return []
    scales = _scales(store)
    known = np.flatnonzero((scales > 0.0) & np.isfinite(scales))
    if len(known) < 2:
        return []
    low, high = known[np.argmin(scales[known])], known[np.argmax(scales[known])]
    if scales[high] <= APART * scales[low]:
        return []
    names: Any = store.facts.get("names")
    shown = [f"'{names[k]}'" if names else f"column {k}" for k in (low, high)]
    ends = f"{shown[0]} {scales[low]:.2g}, {shown[1]} {scales[high]:.2g}"
    return [f"scales of columns differ by {scales[high] / scales[low]:.0e}: {ends}; --standardize makes them alike"]


def _scales(store: Store) -> Float64:
    """Return the scale of each column: its standard deviation, or where most entries are absent the largest of them."""
    statistics = store.statistics()
    if store.layout.dense:
        return np.sqrt(statistics.M2 / store.layout.rows)
    return np.maximum(np.abs(statistics.minimum), np.abs(statistics.maximum))


def unscaled_notice(job: FitJob, store: Store) -> list[str]:
    """Return a line that names columns which are not standardized although that is asked for."""
    if not job.standardize:
        return []
    beyond = np.flatnonzero(beyond_scaling(store.statistics(), store.layout.rows))
    if not len(beyond):
        return []
    what = "columns are left as they are, not standardized, as their deviation is beyond float32"
    return [f"{what}: {_list_columns(store, beyond)}; measure them in another unit"]


def _list_columns(store: Store, columns: NDArray[np.int64]) -> str:
    """Return the first of some columns by name, and how many more there are."""
    names: Any = store.facts.get("names")
    return list_first([name_of(names, int(j)) for j in columns], SHOWN)


def list_precision_notices(plan: Plan, store: Store) -> tuple[str, ...]:
    """Return a line for columns and rows of which float32 keeps little, as an ingest of the same rows does."""
    found = tuple(offset_notice(plan, store))
    statistics = store.statistics()
    if max(np.abs(statistics.minimum).max(initial=0.0), np.abs(statistics.maximum).max(initial=0.0)) <= EXACT_ENOUGH:
        return found
    from streamsvm.jobs.ingest.notices import store_precision_notices

    return (*found, *store_precision_notices(store))


def offset_notice(plan: Plan, store: Store) -> list[str]:
    """Return a line where columns that are stored less an offset are seen where they lie, as the problem is another
    one elsewhere.
    """
    problem = plan.problems[0]
    if problem.kind.one_class and 0.0 < plan.tolerance and problem.tolerance <= LEAST_SPREAD * plan.tolerance:
        what = "columns lie so far from 0 for their spread that one class, whose hyperplane is told from 0, is hardly determined"
        return [f"{what}; subtract a constant from them, or choose --kernel rbf"]
    offsets = offsets_of_store(store.facts)
    kernel = plan.kernel
    if not len(offsets.columns) or (kernel is not None and kernel.translation_invariant()):
        return []
    seen = plan.request.inner if plan.request is not None else plan.features
    if not isinstance(seen, Standardized) or (seen.shift[offsets.columns] != -offsets.values.astype(np.float32)).all():
        return []
    why = "without a bias" if kernel is None else f"of the kernel {type(kernel).__name__.lower()}"
    better = "a bias or --standardize does" if kernel is None else "--kernel rbf or --standardize does"
    if problem.kind.one_class:
        why, better = (
            f"of one class {why}",
            "--kernel rbf" + (", or --nu in place of C, does" if kernel is None else " does"),
        )
    what = f"a fit {why} depends on where 0 is, so that columns far from it are seen there, in float32, which keeps little of them"
    return [f"{what}: {_list_columns(store, offsets.columns)}; {better} without"]


def idle_settings(job: FitJob, plan: Plan) -> list[str]:
    """Return a line for each reason why settings of this fit changed nothing, and these settings."""
    return [*without_effect(job, _idle(job, plan)), *_idle_of_solver(job, plan)]


def _idle_of_solver(job: FitJob, plan: Plan) -> list[str]:
    """Return a line for each reason why settings of the solver changed nothing, and these settings."""
    kind = SOLVERS[plan.solver_name]
    solver: AnySolver = build(kind, solver_settings(job), f"solver '{plan.solver_name}'")
    values, usual = field_values(solver, job.options), field_values(kind(), job.options)
    stated = [name for name in job.options if values[name] != usual[name]]
    found = {
        why: [name for name in stated if name in names]
        for why, names in solver.ignored_settings(plan.problems[0]).items()
    }
    return [
        f"without effect: {', '.join(f'--set solver.{name}' for name in names)}, because {why}"
        for why, names in found.items()
        if names
    ]


def _idle(job: FitJob, plan: Plan) -> dict[str, tuple[str, ...]]:
    """Return which fields nothing looks at, by the reason."""
    kernel = plan.kernel
    free_bias = plan.solver.free_bias
    in_place = foreign_format(Path(job.store)) is not None
    idle = {
        "there are no landmarks": plan.request is None and ("sampling", "cutoff", "embedding", "embedding_dtype"),
        "landmarks come from a file": job.landmark_file is not None and ("sampling",),
        "features are made in every pass": _is_made_in_passes(plan) and ("embedding_dtype",),
        "the kernel has no width": kernel is not None and kernel.gamma is None and ("gamma",),
        "there is no kernel": kernel is None and ("gamma", "kernel_options"),
        "no cluster is named": job.cluster is None and ("insecure_network",),
        "the bias of this solver is free, and not regularized": free_bias and ("bias",),
        "there is no time limit": job.time_limit == float("inf") and ("at_limit",),
        "columns are not standardized": not job.standardize and ("standardize_all",),
        "the store has its own layout": not in_place and ("features_key", "labels_key"),
    }
    return {why: names for why, names in idle.items() if names}


def _is_made_in_passes(plan: Plan) -> bool:
    return plan.embedding is not None and plan.embedding.where == FLY
