"""The warnings and notices of a fit: missing certificate or calibration, scales of columns, settings without effect."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamsvm.config.options import build_from_settings, field_values
from streamsvm.config.units import mib, percent
from streamsvm.engine.fit_state import Training
from streamsvm.errors import UncertifiedError, quote
from streamsvm.features.scaling import Standardized, beyond_scaling
from streamsvm.input_files import find_url
from streamsvm.jobs.common_options import CRAMMER_SINGER, SOFTMAX
from streamsvm.jobs.embed.plan import ON_THE_FLY
from streamsvm.jobs.fit.options import ALL_ROWS_METHODS, FitJob
from streamsvm.jobs.fit.plan import UNIFORM_SAMPLING_NOTICE, Plan, lacks_memory_for_greedy
from streamsvm.jobs.fit.problems import effective_nu, uses_nu_for_classes
from streamsvm.jobs.fit.solver_choice import solver_settings
from streamsvm.jobs.without_effect import notices_on_unused_options
from streamsvm.model import Model
from streamsvm.model.measures import parse_measure
from streamsvm.proofs.enclosure import MOST_COMPONENTS, has_enclosure
from streamsvm.proofs.kept import MOST_ROOT_BYTES
from streamsvm.rows import Float64
from streamsvm.solvers import SOLVERS
from streamsvm.solvers.one_class import LEAST_SPREAD
from streamsvm.store.foreign import foreign_format
from streamsvm.store.sources.offsets import list_first, name_of, offsets_of_store
from streamsvm.types import AnySolver, Certificate, Status, Store

MAX_SCALE_RATIO = 1e4
"""A notice is given if the scales of two columns differ by a larger factor: the regularizer hardly limits the weights
of columns with large scales."""
MAX_NAMED_COLUMNS = 3
"""Maximum number of columns named in a notice."""
MAX_EXACT_NUMBER = 1e4
"""Losses of precision are looked for only if a number is larger: up to here, float32 has steps of less than 0.001."""
LARGE_ROUNDING_SHARE = 0.1
"""If the rounding error is a larger fraction of the gap, it is named as the reason for a missing certificate."""


def explain_missing_certificate(job: FitJob, store: Store, plan: Plan, training: Training) -> tuple[str, ...]:
    """Return one line with the reason and the next step if the gap is above the tolerance; empty if it is not."""
    if training.status in {Status.CONVERGED, Status.PATIENCE}:
        return _explain_missing_bound(plan)
    certificates = [run.certificate for run in training.runs if run.certificate is not None]
    worst = max(certificates, key=lambda certificate: certificate.gap)
    reason, step = _explain_end(job, training, worst)
    scales = [] if job.standardize else scale_notice(job, store)
    also = f"; {scales[0]}" if scales else ""
    gaps = f"gap {percent(worst.gap)} where {percent(job.tolerance)} was asked for"
    return (f"not certified: {gaps} ({reason}){also}; next: {step}", *_explain_missing_bound(plan))


def missing_calibration_notice(job: FitJob, models: Mapping[float, Model]) -> tuple[str, ...]:
    """Return one line if the time limit left no time for the requested probabilities or threshold; else empty."""
    if job.threshold is not None and any("threshold" not in model.provenance for model in models.values()):
        why = f"no threshold: the time limit of {job.time_limit:g} s was reached before it was chosen"
        return (f"{why}, and labels are predicted with threshold 0; next: a larger --time-limit, with --resume",)
    if job.calibrate is None or all(model.calibration is not None for model in models.values()):
        return ()
    why = f"not calibrated: the time limit of {job.time_limit:g} s was reached before the probabilities were learned"
    return (f"{why}, the model has only decision values; next: a larger --time-limit, with --resume",)


def threshold_notice(model: Model) -> tuple[str, ...]:
    """Return a line with the threshold of a model, and the measure by which it was chosen."""
    threshold = model.provenance.get("threshold")
    if threshold is None:
        return ()
    measure = parse_measure(threshold["measure"], "--threshold")
    title = f"{measure.title} of {quote(threshold['positive'])}" if measure.has_positive else measure.title
    score = f"{title} is {measure.full_text(threshold['score'])} there, on {threshold['rows']}"
    return (f"labels are predicted at the threshold {threshold['value']:.6g} of the decision value: {score}",)


def enclosure_notice(plan: Plan, model: Model) -> tuple[str, ...]:
    """Return a line if --certify left only a ball around the optimum, with the reason; else empty."""
    if model.enclosures is None or not any(part.root is None for part in model.enclosures.parts):
        return ()
    problem = plan.problems[0]
    if not has_enclosure(problem.loss):
        why = "the loss has a kink; squared_hinge, or huber, the hinge with a rounded corner, have narrow intervals"
    elif problem.components > MOST_COMPONENTS:
        why = f"there are more than {MOST_COMPONENTS - 1} columns"
    elif 4 * len(plan.problems) * problem.components**2 > MOST_ROOT_BYTES:
        why = "the matrices of so many functions of so many columns are too large for a model"
    elif plan.enclosure in ALL_ROWS_METHODS:
        why = "the fit ended too far from the optimum; a smaller --tolerance mends that"
    else:
        why = "the fit ended too far from the optimum, or its solver knows no gradient; --certify full, or a smaller --tolerance, mends that"
    return (f"--certify: only a ball around the optimum is proved, and intervals are wide: {why}",)


def make_strict_error(warnings: tuple[str, ...]) -> UncertifiedError | None:
    """Return the error of a fit with ``strict``: its first warning; None without warnings."""
    hint = "the model was written; without --strict this is a warning"
    return UncertifiedError(warnings[0], hint=hint) if warnings else None


def _explain_missing_bound(plan: Plan) -> tuple[str, ...]:
    """Return one line if the kernel is not positive semidefinite, so that there is no dual bound; else empty."""
    kernel = plan.kernel
    if kernel is None or kernel.positive_semidefinite():
        return ()
    what = "primal and dual are the values of this solution; the problem is not convex, and they bound no optimum"
    return (f"the kernel {kernel} is not positive semidefinite: {what}",)


def _explain_end(job: FitJob, training: Training, worst: Certificate) -> tuple[str, str]:
    """Return why the training ended, and the advice what to do next."""
    status = training.status
    if _exceeds_max_support(job, worst):
        reason = f"no pass was left to choose {job.max_support} of {worst.facts['support']} support rows"
        return reason, "a larger --max-passes or --time-limit"
    has_large_gap = worst.primal - worst.dual > job.tolerance * abs(worst.primal)
    was_limited = has_large_gap and status in {Status.TIME, Status.PASSES, Status.ASKED}
    if worst.primal and 2 * worst.rounding > LARGE_ROUNDING_SHARE * worst.gap * abs(worst.primal) and not was_limited:
        step = "a larger --tolerance, or a smaller C" if job.standardize else "--standardize, or a smaller C"
        return "rounding: no smaller gap can be proved for numbers this large, or this close to each other", step
    limits = {
        Status.TIME: (_explain_time_limit(job, training), "a larger --time-limit, or --resume"),
        Status.ASKED: ("the callback asked for the end of the fit", "a fit without the callback"),
        Status.PASSES: (_explain_pass_limit(job), f"a larger --max-passes, or {_suggest_solver(job)}"),
        Status.SUPPORT: (f"--max-support limits the model to {job.max_support} rows", "a larger --max-support"),
    }
    if status in limits:
        return limits[status]
    if uses_nu_for_classes(job) and worst.final:
        return (
            "no function is better than 0: the classes overlap more than nu allows",
            "a larger --nu, or --C in its place",
        )
    if effective_nu(job) is not None and worst.final:
        why = "no hyperplane separates so many rows from the origin, which lies among them"
        return why, "a larger --nu, --kernel rbf, or columns shifted so that 0 lies outside of the rows"
    return _explain_stall(job)


def _explain_pass_limit(job: FitJob) -> str:
    return "--max-passes allows one pass" if job.max_passes == 1 else f"all {job.max_passes} passes were made"


def _explain_time_limit(job: FitJob, training: Training) -> str:
    """Return the reason: the time limit was reached, or left too little time for one more pass and the final pass."""
    left, needed = training.seconds_left, training.seconds_needed
    if left <= 0.0:
        return f"the time limit of {job.time_limit:g} s was reached"
    estimate = f"two more passes and the final evaluation take about {needed:.1f} s"
    return f"{left:.1f} s were left until the time limit of {job.time_limit:g} s, and {estimate}"


def _explain_stall(job: FitJob) -> tuple[str, str]:
    """Return the reason and the advice if neither a limit nor the problem itself explains the gap."""
    if job.validation is not None:
        why = "the weights are those of the pass with the best score on the rows held out"
        return why, "leave out --validation for those of the last pass"
    if job.curves:
        return "the solver stalled", "a loss without a kink, or --smooth none, with which every --solver can be used"
    return "the solver stalled", _suggest_solver(job) + ("" if job.standardize else ", or --standardize")


def _suggest_solver(job: FitJob) -> str:
    """Return the advice to choose another solver; Crammer-Singer problems have two, those of the softmax one."""
    if job.multi_class == SOFTMAX:
        return "a smaller C"
    if job.multi_class != CRAMMER_SINGER:
        return "another --solver"
    return "--solver dcd" if job.solver == "interior_point" else "--solver interior_point"


def _exceeds_max_support(job: FitJob, worst: Certificate) -> bool:
    """Return whether the model has more support rows than --max-support allows, because the pass that selects them was
    not made.
    """
    return worst.facts.get("points") is None and 0 < (job.max_support or 0) < worst.facts.get("support", 0)


def scale_notice(job: FitJob, store: Store) -> list[str]:
    """Return a line with the columns of the largest and the smallest scale, if the scales differ by a large factor."""
    if job.standardize or job.curves or store.facts.get("map") is not None:
        return []
    scales = _column_scales(store)
    positive = np.flatnonzero((scales > 0.0) & np.isfinite(scales))
    if len(positive) < 2:
        return []
    low, high = positive[np.argmin(scales[positive])], positive[np.argmax(scales[positive])]
    if scales[high] <= MAX_SCALE_RATIO * scales[low]:
        return []
    names: Any = store.facts.get("names")
    shown = [f"'{names[k]}'" if names else f"column {k}" for k in (low, high)]
    ends = f"{shown[0]} {scales[low]:.2g}, {shown[1]} {scales[high]:.2g}"
    return [f"scales of columns differ by {scales[high] / scales[low]:.0e}: {ends}; --standardize makes them alike"]


def _column_scales(store: Store) -> Float64:
    """Return the scale of each column: its standard deviation; in sparse data its largest absolute value."""
    statistics = store.statistics()
    if store.layout.dense:
        return np.sqrt(statistics.M2 / store.layout.rows)
    return np.maximum(np.abs(statistics.minimum), np.abs(statistics.maximum))


def describe_unscaled_columns(job: FitJob, store: Store) -> list[str]:
    """Return a line with the columns that --standardize leaves unscaled, if there are any."""
    if not job.standardize or job.curves:
        return []
    unscaled = np.flatnonzero(beyond_scaling(store.statistics(), store.layout.rows))
    if not len(unscaled):
        return []
    what = "columns are not standardized, as their standard deviation is beyond the range of float32"
    return [f"{what}: {_list_columns(store, unscaled)}; measure them in another unit"]


def _list_columns(store: Store, columns: NDArray[np.int64]) -> str:
    """Return the names of the first columns, and the number of the others."""
    names: Any = store.facts.get("names")
    return list_first([name_of(names, int(j)) for j in columns], MAX_NAMED_COLUMNS)


def list_precision_notices(plan: Plan, store: Store) -> tuple[str, ...]:
    """Return lines for columns and rows that lose much precision in float32, as an ingest of the same rows does."""
    offset_notices = tuple(offset_notice(plan, store))
    statistics = store.statistics()
    if (
        max(np.abs(statistics.minimum).max(initial=0.0), np.abs(statistics.maximum).max(initial=0.0))
        <= MAX_EXACT_NUMBER
    ):
        return offset_notices
    from streamsvm.jobs.ingest.notices import store_precision_notices

    return (*offset_notices, *store_precision_notices(store))


def offset_notice(plan: Plan, store: Store) -> list[str]:
    """Return a line if the result depends on the position of 0 and columns lie far from it, where float32 is coarse."""
    problem = plan.problems[0]
    if problem.kind.one_class and 0.0 < plan.tolerance and problem.tolerance <= LEAST_SPREAD * plan.tolerance:
        what = (
            "columns lie so far from 0, compared with their spread, that the one-class hyperplane, which separates rows "
            "from 0, is hardly determined"
        )
        return [f"{what}; subtract a constant from them, or choose --kernel rbf"]
    offsets = offsets_of_store(store.facts)
    kernel = plan.kernel
    if not len(offsets.columns) or (kernel is not None and kernel.translation_invariant()):
        return []
    scaling = plan.request.scaling if plan.request is not None else plan.features
    if (
        not isinstance(scaling, Standardized)
        or (scaling.shift[offsets.columns] != -offsets.values.astype(np.float32)).all()
    ):
        return []
    why = "without a bias" if kernel is None else f"of the kernel {type(kernel).__name__.lower()}"
    better = "a bias or --standardize" if kernel is None else "--kernel rbf or --standardize"
    if problem.kind.one_class:
        why, better = f"of one class {why}", "--kernel rbf" + (", or --nu in place of C," if kernel is None else "")
    what = (
        f"a fit {why} depends on where 0 is, so that columns far from 0 are not shifted and lose precision in float32"
    )
    return [f"{what}: {_list_columns(store, offsets.columns)}; a fit with {better} does not depend on it"]


def ineffective_settings(job: FitJob, plan: Plan) -> list[str]:
    """Return a line for each reason why settings had no effect on this fit, with these settings."""
    return [
        *notices_on_unused_options(job, _find_ineffective_options(job, plan)),
        *_ineffective_solver_settings(job, plan),
    ]


def _ineffective_solver_settings(job: FitJob, plan: Plan) -> list[str]:
    """Return a line for each reason why settings of the solver had no effect, with these settings."""
    kind = SOLVERS[plan.solver_name]
    solver: AnySolver = build_from_settings(kind, solver_settings(job), f"solver '{plan.solver_name}'")
    values, defaults = field_values(solver, job.options), field_values(kind(), job.options)
    changed = [name for name in job.options if values[name] != defaults[name]]
    by_reason = {
        why: [name for name in changed if name in names]
        for why, names in solver.settings_without_effect(plan.problems[0]).items()
    }
    return [
        f"without effect: {', '.join(f'--set solver.{name}' for name in names)}, because {why}"
        for why, names in by_reason.items()
        if names
    ]


def _find_ineffective_options(job: FitJob, plan: Plan) -> dict[str, tuple[str, ...]]:
    """Return the names of options that this fit does not use, by reason."""
    kernel = plan.kernel
    free_bias = plan.solver.free_bias
    in_place = find_url(job.store) is None and foreign_format(Path(job.store)) is not None
    idle = {
        "there are no landmarks": plan.request is None and ("sampling", "cutoff", "embedding", "embedding_dtype"),
        "landmarks come from a file": job.landmark_file is not None and ("sampling",),
        "features are made in every pass": _is_made_in_passes(plan) and ("embedding_dtype",),
        "the kernel has no width": kernel is not None and kernel.gamma is None and ("gamma",),
        "there is no kernel": kernel is None and ("gamma", "kernel_options"),
        "no cluster is named": job.cluster is None and ("insecure_network",),
        "the rows lie on this machine": not plan.layout.remote and ("disk_cache",),
        "the bias of this solver is free, and not regularized": free_bias and ("bias",),
        "there is no time limit": job.time_limit == float("inf") and ("at_limit",),
        "curves have a scale of their own": plan.curves is not None and ("standardize",),
        "columns are not standardized": not job.standardize and ("standardize_all",),
        "the store has its own layout": not in_place and ("features_key", "labels_key"),
    }
    return {why: names for why, names in idle.items() if names}


def _is_made_in_passes(plan: Plan) -> bool:
    return plan.embedding is not None and plan.embedding.where == ON_THE_FLY


def memory_notices(plan: Plan) -> tuple[str, ...]:
    """Return a notice if the plan depends on a derived memory limit, and one if memory was short for greedy
    sampling.
    """
    lines = []
    if plan.derived_limit is not None:
        limit = mib(plan.derived_limit)
        lines.append(
            f"no --memory was given: {limit} is used, from the free memory of this machine; the choice of solver and the "
            f"result may depend on it; --memory {limit} repeats this fit"
        )
    if lacks_memory_for_greedy(plan):
        lines.append(UNIFORM_SAMPLING_NOTICE)
    return tuple(lines)
