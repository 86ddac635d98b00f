"""What a fit is made with, and the refusal to go on with one that was made with something else.

A run goes on only as what it was. Its identity - the settings that shape the result, the digest of the data, what the
plan decided by looking at this machine - is part of every checkpoint; where the present one differs the differences are
named and the run is refused. Settings that only say how long, in how much memory and how far ahead are not part of it.
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
from streamsvm.jobs.fit.plan import Plan, make_plan, state_choices
from streamsvm.jobs.fit.problems import digest_warm_start
from streamsvm.schedule import budget
from streamsvm.solvers import SOLVERS
from streamsvm.types import Store

MANAGEMENT = (
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
"""Settings that say how a run is managed."""
FREE = (*MANAGEMENT, "store", "model", "max_passes", "time_limit", "memory", "dual", "embedding", "cluster")
"""Settings that may change from run to run; ``embedding`` is part of what the plan decided."""
ARITHMETIC = "arithmetic"
"""The part of the identity that says in what kernel features are made, where that is not float32."""
SAMPLE = "sample"
"""Rows in a solver's model, where it has one: fewer than it would like when memory was short."""
CACHED, STREAMED = "kept in memory", "read in every pass"
"""What an identity says of blocks. Checkpoints on disk hold these words."""
MIN_GROUPS = 2
"""Groups of a row-wise solver on a cluster: with one there would be nothing to share out."""
FEATURES = "features"
"""The part of the identity that is known only when the features are."""


def shaping_settings(job: FitJob) -> JsonObject:
    """Return the settings that shape the result, as plain JSON."""
    plain: JsonObject = msgspec.to_builtins(job)
    lists = {name: list(value) if isinstance(value, tuple) else value for name, value in plain.items()}
    return {name: value for name, value in lists.items() if name not in FREE}


def identity_of(job: FitJob, store: Store, plan: Plan) -> JsonObject:
    """Return what a fit is made with, as plain JSON; without the features, which are not known yet.

    Where features in float64 start from is what those in float32 have come to, and no other model.
    """
    exact = plan.request is not None and plan.request.exact
    return {
        "settings": shaping_settings(job),
        "store": store.digest,
        "solver": plan.solver_name,
        "blocks": CACHED if plan.memory.cached else STREAMED,
        "embedding": None if plan.embedding is None else plan.embedding.where,
        ARITHMETIC: FLOAT64 if exact else None,
        "warm start": None if exact else digest_warm_start(plan.problems),
        SAMPLE: plan.solver.memory_settings().get(SAMPLE),
    }


def complete_identity(job: FitJob, store: Store, plan: Plan, saved: list[CheckpointFile]) -> JsonObject:
    """Return the identity with the digest of the features. Raises ConfigError when it is not that of the checkpoint."""
    identity = {**identity_of(job, store, plan), FEATURES: digest_features(plan)}
    if saved:
        refuse_other(saved[0].identity, identity)
    return identity


def plan_fit(
    job: FitJob, store: Store, saved: list[CheckpointFile], executor: Executor | None = None
) -> tuple[FitJob, Plan]:
    """Return the job and the plan of a fit; of a resumed one, with what the first run decided by looking at its
    machine.

    Raises ConfigError when the checkpoint was made with something else, and all that ``make_plan`` raises.
    """
    if not saved:
        plan = make_plan(job, store)
        return state_groups(state_choices(job, plan), plan, executor), plan
    then = saved[0].identity
    options = job.options | ({} if then.get(SAMPLE) is None else {SAMPLE: then[SAMPLE]})
    before, drawn = then["settings"].get("sampling"), job.sampling
    if drawn == AUTO_SAMPLING and choose_sampling(job)[0] == GREEDY and before in {UNIFORM, GREEDY}:
        drawn = before  # whatever this machine has room for
    as_then = replace(job, embedding=then.get("embedding") or job.embedding, options=options, sampling=drawn)
    plan = make_plan(as_then, store)
    following = plan_fallback(job, store, plan)
    if following is not None and then["solver"] == following.solver_name:
        plan = following  # the first solver was left before that checkpoint
    elif job.memory is None and job.solver == "auto" and plan.solver_name != then["solver"] in SOLVERS:
        plan = make_plan(replace(as_then, solver=then["solver"]), store)  # this machine has another limit now
    job = state_choices(job, plan)
    if then.get(ARITHMETIC) == FLOAT64:
        plan = plan_in_float64(job, store, plan)
    plan = _cache_as_before(plan, store, cached=then.get("blocks") == CACHED)
    if executor is not None and job.groups is None:
        job = replace(job, groups=then["settings"].get("groups"))
    job = state_groups(job, plan, executor)
    known = {name: value for name, value in then.items() if name != FEATURES}
    refuse_other(known, identity_of(job, store, plan))
    return job, plan


def state_groups(job: FitJob, plan: Plan, executor: Executor | None) -> FitJob:
    """Return the job with its number of groups stated, where a cluster is used and the result depends on it."""
    if executor is None or job.groups is not None or not plan.solver.shuffled:
        return job
    return replace(job, groups=max(MIN_GROUPS, executor.threads))


def _cache_as_before(plan: Plan, store: Store, *, cached: bool) -> Plan:
    """Return the plan with blocks in memory if they were in the first run, and only then."""
    memory, term = plan.memory, budget.cache_term(store.layout)
    if term is None or cached == memory.cached:
        return plan
    terms = tuple(other for other in memory.terms if other.name != term.name)
    return replace(plan, memory=replace(memory, cached=cached, terms=(*terms, term) if cached else terms))


def digest_features(plan: Plan) -> str | None:
    """Return the sha256 of the map to kernel features; None where features are the stored ones."""
    if plan.features.expansion is None:
        return None
    digest = hashlib.sha256()
    for name, array in sorted(plan.features.expansion.tensors().items()):
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode() + np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def refuse_other(saved: JsonObject, now: JsonObject) -> None:
    """Raise ConfigError naming all that differs between two identities."""
    then, present = _flat(saved), _flat(now)
    changes = [
        (name, then.get(name), present.get(name)) for name in {**then, **present} if then.get(name) != present.get(name)
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


def _flat(identity: JsonObject) -> JsonObject:
    settings = identity.get("settings", {})
    return {**settings, **{name: value for name, value in identity.items() if name != "settings"}}
