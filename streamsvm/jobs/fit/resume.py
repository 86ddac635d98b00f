"""Resume a fit: plan it with the choices of the first run, refuse to continue with other data or settings, and recognize
the outputs of an earlier run of the same fit.

Every checkpoint holds the identity of its run: the settings that affect the result, the digest of the data, and the
decisions of the plan that depend on the machine. A run is resumed only if its identity is the same; otherwise an error
names the differences. Limits of time, passes and memory, and other settings that do not affect the result, are not part
of the identity.

If a run was killed between writing two models, the resumed run may replace the models already written. If it was
stopped after the last model, nothing is left to do (``read_finished_run``).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np

from streamsvm.engine.checkpoint import CheckpointFile
from streamsvm.engine.executor import Executor
from streamsvm.engine.fit_state import ProblemRun, Training
from streamsvm.errors import ConfigError, StreamSVMError, quote
from streamsvm.input_files import restore_urls
from streamsvm.jobs.embed.plan import AUTO_SAMPLING, GREEDY, UNIFORM, choose_sampling
from streamsvm.jobs.fit.fallback import FLOAT64, plan_fallback, plan_in_float64
from streamsvm.jobs.fit.notices import missing_calibration_notice
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.outputs import (
    CERTIFICATE,
    JOB,
    RUN_SETTINGS,
    describe_settings,
    model_paths,
    paths_by_C,
    run_folder,
)
from streamsvm.jobs.fit.plan import Plan, make_plan, pin_automatic_choices
from streamsvm.jobs.fit.problems import digest_warm_start
from streamsvm.model import Model, load
from streamsvm.outputs import ARRAY, MODEL, PAGE, RUN, Output
from streamsvm.schedule import budget
from streamsvm.solvers import SOLVERS
from streamsvm.type_aliases import JsonObject
from streamsvm.types import Certificate, Status, Store

CHANGEABLE = (*RUN_SETTINGS, "store", "model", "max_passes", "time_limit", "memory", "dual", "embedding", "cluster")
"""Settings that may change when a run is resumed. The identity holds the plan's choice for ``embedding``."""
LIMIT_SETTINGS = ("max_passes", "time_limit")
"""Limits, which do not affect a converged result. If one of them changed, an unconverged run is continued."""
ARITHMETIC_FIELD = "arithmetic"
"""The field of the identity for the dtype of kernel features, if it is not float32."""
SAMPLE_FIELD = "sample"
"""The field of the identity for the sample size of the solver, which is smaller if memory was short."""
CACHED, STREAMED = "kept in memory", "read in every pass"
"""Values of the field 'blocks' of the identity. They are written to checkpoints."""
MIN_GROUPS = 2
"""Minimum number of groups of an online solver on a cluster: a single group could not be distributed."""
FEATURES_FIELD = "features"
"""The field of the identity for the digest of the feature map, known only after the map is built."""


def result_settings(job: FitJob) -> JsonObject:
    """Return the settings that affect the result, as plain JSON."""
    plain: JsonObject = msgspec.to_builtins(job)
    lists = {name: list(value) if isinstance(value, tuple) else value for name, value in plain.items()}
    lists |= {name: restore_urls(value) for name, value in lists.items() if isinstance(value, str)}
    return {name: value for name, value in lists.items() if name not in CHANGEABLE}


def fit_identity(job: FitJob, store: Store, plan: Plan) -> JsonObject:
    """Return the identity of a fit as plain JSON, without the digest of the features, which are not built yet.

    A training on float64 features starts from the result of the training on float32 features, so that its warm start is
    not part of the identity.
    """
    exact = plan.request is not None and plan.request.exact
    return {
        "settings": result_settings(job),
        "store": store.digest,
        "solver": plan.solver_name,
        "blocks": CACHED if plan.memory.cached else STREAMED,
        "embedding": None if plan.embedding is None else plan.embedding.where,
        ARITHMETIC_FIELD: FLOAT64 if exact else None,
        "warm start": None if exact else digest_warm_start(plan.problems),
        SAMPLE_FIELD: plan.solver.memory_settings().get(SAMPLE_FIELD),
    }


def complete_identity(job: FitJob, store: Store, plan: Plan, saved: list[CheckpointFile]) -> JsonObject:
    """Return the identity with the digest of the features. Raises ConfigError if it differs from that of the checkpoint."""
    identity = {**fit_identity(job, store, plan), FEATURES_FIELD: digest_features(plan)}
    if saved:
        check_same_identity(saved[0].identity, identity)
    return identity


def plan_fit(
    job: FitJob, store: Store, saved: list[CheckpointFile], executor: Executor | None = None
) -> tuple[FitJob, Plan]:
    """Return the job with its automatic choices made explicit, and its plan.

    A resumed run keeps the choices that the first run made by the resources of its machine. Raises ConfigError if the
    checkpoint was made with other data or settings, and all errors of ``make_plan``.
    """
    if not saved:
        plan = make_plan(job, store)
        return pin_group_count(pin_automatic_choices(job, plan), plan, executor), plan
    first = saved[0].identity
    options = job.options | ({} if first.get(SAMPLE_FIELD) is None else {SAMPLE_FIELD: first[SAMPLE_FIELD]})
    first_sampling, sampling = first["settings"].get("sampling"), job.sampling
    if sampling == AUTO_SAMPLING and choose_sampling(job)[0] == GREEDY and first_sampling in {UNIFORM, GREEDY}:
        sampling = first_sampling  # the memory of this machine must not decide again
    same_job = replace(job, embedding=first.get("embedding") or job.embedding, options=options, sampling=sampling)
    plan = make_plan(same_job, store)
    fallback_plan = plan_fallback(job, store, plan)
    if fallback_plan is not None and first["solver"] == fallback_plan.solver_name:
        plan = fallback_plan  # the checkpoint was saved after the fallback
    elif job.memory is None and job.solver == "auto" and plan.solver_name != first["solver"] in SOLVERS:
        plan = make_plan(replace(same_job, solver=first["solver"]), store)  # this machine derives another memory limit
    job = pin_automatic_choices(job, plan)
    if first.get(ARITHMETIC_FIELD) == FLOAT64:
        plan = plan_in_float64(job, store, plan)
    plan = _cache_as_before(plan, store, cached=first.get("blocks") == CACHED)
    if executor is not None and job.groups is None:
        job = replace(job, groups=first["settings"].get("groups"))
    job = pin_group_count(job, plan, executor)
    identity = {name: value for name, value in first.items() if name != FEATURES_FIELD}
    check_same_identity(identity, fit_identity(job, store, plan))
    return job, plan


def pin_group_count(job: FitJob, plan: Plan, executor: Executor | None) -> FitJob:
    """Return the job with an explicit number of groups if it runs on a cluster and the result depends on the number."""
    if executor is None or job.groups is not None or not plan.solver.shuffled:
        return job
    return replace(job, groups=max(MIN_GROUPS, executor.threads))


def _cache_as_before(plan: Plan, store: Store, *, cached: bool) -> Plan:
    """Return the plan with blocks cached in memory exactly if they were cached in the first run."""
    memory, term = plan.memory, budget.cache_term(store.layout)
    if term is None or cached == memory.cached:
        return plan
    terms = tuple(other for other in memory.terms if other.name != term.name)
    return replace(plan, memory=replace(memory, cached=cached, terms=(*terms, term) if cached else terms))


def digest_features(plan: Plan) -> str | None:
    """Return the sha256 of the map to kernel features; None without kernel features."""
    if plan.features.expansion is None:
        return None
    digest = hashlib.sha256()
    for name, array in sorted(plan.features.expansion.tensors().items()):
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode() + np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def check_same_identity(saved: JsonObject, now: JsonObject) -> None:
    """Raise ConfigError with all differences between two identities, if there are any."""
    before, after = _flatten(saved), _flatten(now)
    changes = [
        (name, before.get(name), after.get(name)) for name in {**before, **after} if before.get(name) != after.get(name)
    ]
    if not changes:
        return
    name, old, new = changes[0]
    others = ", ".join(f"{other} {quote(a, 40)} -> {quote(b, 40)}" for other, a, b in changes[1:])
    raise ConfigError(
        f"the checkpoint was made with {name}={quote(old, 40)}, now {name}={quote(new, 40)}"
        + (f" (also: {others})" if others else ""),
        code="E-CONFIG",
        hint="resume with the old values, or start again with --overwrite in place of --resume",
    )


def _flatten(identity: JsonObject) -> JsonObject:
    settings = identity.get("settings", {})
    return {**settings, **{name: value for name, value in identity.items() if name != "settings"}}


def list_outputs(job: FitJob, store: Store, costs: list[float], *, checkpoint: bool) -> list[Output]:
    """Return all outputs of a fit. A resumed fit may replace the outputs of the earlier run without --overwrite.

    ``checkpoint``: whether the earlier run left a checkpoint. Without one, a model at the path may be replaced only if
    no limit of this job is smaller than the limits it was fitted with, so that the new fit gets at least as far.
    """
    outputs = [Output(run_folder(Path(job.model)), RUN, may_exist=True)]
    earlier = {path: _load_matching_model(job, store, path) if job.resume else None for path in model_paths(job, costs)}
    replaceable = {
        path: model is not None and (checkpoint or _has_no_smaller_limit(job, model)) for path, model in earlier.items()
    }
    outputs += [Output(path, MODEL, may_exist=may_replace) for path, may_replace in replaceable.items()]
    others = {job.dual: ("dual", ARRAY), job.report: ("report", PAGE)}
    for path, (name, kind) in others.items():
        if path is not None:
            may_replace = checkpoint or (
                all(replaceable.values()) and restore_urls(path) == _find_recorded_path(job, name)
            )
            outputs.append(Output(Path(path), kind, may_exist=may_replace))
    return outputs


def describe_missing_checkpoint(job: FitJob, store: Store, costs: list[float], *, checkpoint: bool) -> tuple[str, ...]:
    """Return one line if a resumed fit found models of the earlier run, but no checkpoint; else empty."""
    if (
        not job.resume
        or checkpoint
        or not any(_load_matching_model(job, store, path) for path in model_paths(job, costs))
    ):
        return ()
    return ("the earlier run has ended and left no checkpoint: the fit started again, and its models were replaced",)


def read_finished_run(job: FitJob, store: Store, plan: Plan) -> tuple[Training, dict[float, Model]] | None:
    """Return the training and the models of an earlier run of the same fit; None unless that run finished all this job
    asks for.
    """
    target = Path(job.model)
    if any(_load_matching_model(job, store, path) is None for path in model_paths(job, plan.costs)):
        return None
    models = {C: load(path) for C, path in paths_by_C(target, plan.costs).items()}
    try:
        record = json.loads((run_folder(target) / CERTIFICATE).read_text(encoding="utf-8"))
        training = _restore_training(record, plan)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    certificates = [c for model in models.values() for c in model.provenance["certificates"]]
    certificates.sort(key=lambda certificate: certificate.get("problem", 0))
    if training.status in {Status.CONVERGED, Status.PATIENCE}:
        must_continue = bool(missing_calibration_notice(job, models))
    else:
        has_new_limits = any(_settings_differ(job, model, LIMIT_SETTINGS) for model in models.values())
        must_continue = training.status == Status.ASKED or has_new_limits
    lacks_dual = job.dual is not None and not Path(job.dual).is_file()
    return None if must_continue or lacks_dual or certificates != record["problems"] else (training, models)


def _has_no_smaller_limit(job: FitJob, model: Model) -> bool:
    """Return whether no limit of the job is smaller than the limit with which the model was fitted."""
    before, now = model.provenance["settings"], describe_settings(job)
    limits = [(now[name], before.get(name)) for name in LIMIT_SETTINGS]
    return all(isinstance(earlier, int | float) and current >= earlier for current, earlier in limits)


def _find_recorded_path(job: FitJob, name: str) -> str | None:
    """Return the path in the setting ``name`` of the earlier run, from its record; None if there is no such record."""
    try:
        path = json.loads((run_folder(Path(job.model)) / JOB).read_text(encoding="utf-8"))[name]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return str(path)


def _settings_differ(job: FitJob, model: Model, names: Sequence[str]) -> bool:
    """Return whether one of these settings of the job differs from the settings with which the model was fitted."""
    before, now = model.provenance["settings"], json.loads(json.dumps(describe_settings(job)))
    return any(before.get(name) != now[name] for name in names)


def _load_matching_model(job: FitJob, store: Store, path: Path) -> Model | None:
    """Return the model at ``path`` if it was fitted to the same data with the same settings; else None."""
    try:
        model = load(path)
    except StreamSVMError:
        return None
    settings, data = model.provenance.get("settings"), model.provenance.get("store")
    if not isinstance(settings, dict) or not isinstance(data, dict):
        return None
    names = [name for name in describe_settings(job) if name not in CHANGEABLE]
    return model if not _settings_differ(job, model, names) and data.get("digest") == store.digest else None


def _read_certificate(record: JsonObject, facts: JsonObject) -> Certificate:
    """Return the certificate in a record of the run."""
    return Certificate(record["primal"], record["dual"], facts=facts, rounding=record.get("rounding", 0.0))


def _restore_training(record: JsonObject, plan: Plan) -> Training:
    """Return the training in a record of the run. Raises KeyError, ValueError, TypeError for a record of another plan."""
    facts = dict(zip(("simplex_gap", "seen_gap"), record["simplex"] or (), strict=False))
    runs = [
        ProblemRun(problem, None, _read_certificate(certificate, facts), done=True)
        for problem, certificate in zip(plan.problems, record["problems"], strict=True)
    ]
    training = Training(runs, Status(record["status"]))
    for name in ("passes", "seconds", "peak", "bytes_read", "reads_repeated"):
        setattr(training, name, record[name])
    training.read_wait_seconds = (1.0 - record["compute_share"]) * training.seconds
    validation = record["validation"]
    if validation is not None:
        scores = validation["errors"] if "errors" in validation else validation["scores"]
        training.validation_state = {
            repr(C): {"score": scores[f"{C:g}"], "pass": validation["pass"]} for C in plan.costs
        }
    return training
