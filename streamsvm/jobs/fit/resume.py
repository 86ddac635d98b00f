"""Plan a resumed fit, and refuse to resume it with other data or settings.

Every checkpoint holds the identity of its run: the settings that affect the result, the digest of the data, and the
decisions of the plan that depend on the machine. A run is resumed only if its identity is the same; otherwise an error
names the differences. Limits of time, passes and memory, and other settings that do not affect the result, are not part
of the identity.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

import msgspec
import numpy as np

from streamsvm.aliases import JsonObject
from streamsvm.engine.checkpoint import CheckpointFile
from streamsvm.engine.executor import Executor
from streamsvm.errors import ConfigError, quote
from streamsvm.jobs.embed.plan import AUTO_SAMPLING, GREEDY, UNIFORM, choose_sampling
from streamsvm.jobs.fit.fallback import FLOAT64, plan_fallback, plan_in_float64
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.plan import Plan, make_plan, pin_automatic_choices
from streamsvm.jobs.fit.problems import digest_warm_start
from streamsvm.schedule import budget
from streamsvm.solvers import SOLVERS
from streamsvm.types import Store

RUN_SETTINGS = (
    "insecure_network",
    "resume",
    "checkpoint_every",
    "at_limit",
    "overwrite",
    "prefetch",
    "strict",
    "threads",
    "report",
)
"""Settings that control the run and do not affect the model."""
CHANGEABLE = (*RUN_SETTINGS, "store", "model", "max_passes", "time_limit", "memory", "dual", "embedding", "cluster")
"""Settings that may change when a run is resumed. The identity holds the plan's choice for ``embedding``."""
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
        plan = make_plan(replace(same_job, solver=first["solver"]), store)  # the derived memory limit is another now
    job = pin_automatic_choices(job, plan)
    if first.get(ARITHMETIC_FIELD) == FLOAT64:
        plan = plan_in_float64(job, store, plan)
    plan = _cache_as_before(plan, store, cached=first.get("blocks") == CACHED)
    if executor is not None and job.groups is None:
        job = replace(job, groups=first["settings"].get("groups"))
    job = pin_group_count(job, plan, executor)
    known = {name: value for name, value in first.items() if name != FEATURES_FIELD}
    check_same_identity(known, fit_identity(job, store, plan))
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
