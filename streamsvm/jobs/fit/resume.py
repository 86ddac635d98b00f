"""Checkpoints of a fit: when they are made, what they are made with, and how a run goes on from one.

A run goes on only as what it was. Its identity - the settings that shape the result, the digest of the data, what the
plan decided by looking at this machine - is part of the checkpoint; where the present one differs the differences are
named and the run is refused. Settings that only say how long, in how much memory and how far ahead are not part of it.
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import numpy as np

from streamsvm.engine.checkpoint.checkpoint_file import CheckpointDirectory, Saved
from streamsvm.engine.checkpoint.signals import Interruption, current
from streamsvm.engine.store_guard import StoreGuard
from streamsvm.engine.training import Run, Training
from streamsvm.errors import ConfigError, DataError, InterruptedRun, quote
from streamsvm.jobs.fit.memory_plan import memory_settings
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.plan import Plan, make_plan
from streamsvm.jobs.fit.warm_start import warm_digest
from streamsvm.schedule import budget
from streamsvm.types import Report, Status, Store

MANAGEMENT = ("insecure_network", "resume", "checkpoint_every", "at_limit", "overwrite", "prefetch")
FREE = (*MANAGEMENT, "store", "model", "max_passes", "time_limit", "memory", "dual", "embedding", "cluster")
"""Settings that may change from run to run; ``embedding`` is part of what the plan decided."""
STOP = "stop"
SAMPLE = "sample"
"""Rows in a solver's model, where it has one: fewer than it would like when memory was short."""
KEPT_IN_MEMORY = "kept in memory"
SHARE = 20
"""Checkpoints are made so seldom that they take at most one part in so many of the time."""
KEPT = ("passes", "index", "ending", "seconds", "waited", "bytes_read", "held")
FEATURES = "features"
"""The part of the identity that is known only when the features are."""


def settings_of(job: FitJob) -> dict[str, Any]:
    """The settings that shape the result, as plain JSON."""
    plain: dict[str, Any] = msgspec.to_builtins(job)
    lists = {name: list(value) if isinstance(value, tuple) else value for name, value in plain.items()}
    return {name: value for name, value in lists.items() if name not in FREE}


def identity_of(job: FitJob, store: Store, plan: Plan) -> dict[str, Any]:
    """What a checkpoint is made with."""
    return {
        "settings": settings_of(job),
        "store": store.digest,
        "solver": plan.solver_name,
        "blocks": KEPT_IN_MEMORY if plan.memory.cached else "read in every pass",
        "embedding": None if plan.embedding is None else plan.embedding.where,
        "warm start": warm_digest(plan.problems),
        SAMPLE: memory_settings(plan.solver).get(SAMPLE),
    }


def plan_again(job: FitJob, store: Store, saved: list[Saved]) -> Plan:
    """The plan of a fit; of one that is resumed, with what the first run decided by looking at the machine then.

    Raises ConfigError when the checkpoint was made with something else, and all that ``make_plan`` raises.
    """
    if not saved:
        return make_plan(job, store)
    then = saved[0].identity
    options = job.options | ({} if then.get(SAMPLE) is None else {SAMPLE: then[SAMPLE]})
    plan = make_plan(replace(job, embedding=then.get("embedding") or job.embedding, options=options), store)
    memory, keep = plan.memory, budget.keep_term(store.layout)
    kept = then.get("blocks") == KEPT_IN_MEMORY and keep is not None
    if kept != memory.cached and keep is not None:
        terms = tuple(term for term in memory.terms if term.name != keep.name)
        plan = replace(plan, memory=replace(memory, cached=kept, terms=(*terms, keep) if kept else terms))
    known = {name: value for name, value in then.items() if name != FEATURES}
    refuse_other(known, identity_of(job, store, plan))
    return plan


def checkpointer_for(
    job: FitJob, store: Store, plan: Plan, checkpoints: CheckpointDirectory, *, saved: list[Saved], report: Report
) -> RunCheckpointer:
    """What makes the checkpoints of a fit. Raises ConfigError when the features are not those of the checkpoint."""
    identity = {**identity_of(job, store, plan), FEATURES: features_digest(plan)}
    if saved:
        refuse_other(saved[0].identity, identity)
    current.standing = "There is no earlier one"
    command = f"streamsvm fit {job.store} {job.model} ... --resume"
    deadline = time.monotonic() + job.time_limit if job.at_limit == STOP else float("inf")
    every, guard = job.checkpoint_every, StoreGuard(store)
    return RunCheckpointer(checkpoints, identity, guard, current, every, command, report, deadline, saved)


def features_digest(plan: Plan) -> str | None:
    """sha256 of the map to kernel features; None where features are the stored ones."""
    if plan.features.expansion is None:
        return None
    digest = hashlib.sha256()
    for name, array in sorted(plan.features.expansion.tensors().items()):
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode() + np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def refuse_other(saved: dict[str, Any], now: dict[str, Any]) -> None:
    """Raise ConfigError naming all that differs between two identities."""
    then, present = _flat(saved), _flat(now)
    if present.get(SAMPLE) is None:  # earlier versions noted a setting of that name also of solvers that hold no sample
        then.pop(SAMPLE, None)
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
        hint="resume with the old values, or start again without --resume",
    )


def _flat(identity: dict[str, Any]) -> dict[str, Any]:
    settings = identity.get("settings", {})
    return {**settings, **{name: value for name, value in identity.items() if name != "settings"}}


@dataclass(slots=True)
class RunCheckpointer:
    """Saves a training every so often and when it is asked to stop; see ``training.Checkpointer``."""

    checkpoints: CheckpointDirectory
    identity: dict[str, Any]
    guard: StoreGuard
    asked: Interruption
    every: float
    command: str
    """What goes on with the run."""
    report: Report
    deadline: float = float("inf")
    """When the run is to stop, by the clock of ``time.monotonic``."""
    saved: list[Saved] = field(default_factory=list)
    """The checkpoints of an earlier run, newest first."""
    _at: float = field(default_factory=time.monotonic)
    _cost: float = 0.0

    def resume(self, training: Training) -> None:
        if not self.saved:
            return
        try:
            newest, *others = self.saved
            content = newest.content()
            for name in KEPT:
                setattr(training, name, content[name])
            training.status = Status(content["status"])
            training.runs = [Run(old.problem, *new) for old, new in zip(training.runs, content["runs"], strict=True)]
            before = others[0].content("rows") if others and training.row_states else {}
            for name, rows in training.row_states.items():
                rows.restore(content["rows"].get(name), before.get(name))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            where = self.checkpoints.directory
            hint = "start again without --resume"
            raise DataError(
                f"{where} is no usable checkpoint: {quote(error)}", code="E-CHECKPOINT", hint=hint
            ) from error
        self.asked.standing = self._standing(training)
        self.report({"event": "resumed", "passes": training.passes, "visits": training.index})
        self.saved = []

    def between(self, training: Training) -> None:
        if self.asked.name or time.monotonic() >= self.deadline:
            raise self._stopped(training)
        if self.every and time.monotonic() - self._at >= max(self.every, SHARE * self._cost):
            self.save(training)

    def around(self) -> None:
        self.guard.check()

    def save(self, training: Training) -> None:
        """Write a checkpoint now. Raises StorageError."""
        began = time.monotonic()
        content: dict[str, Any] = {name: getattr(training, name) for name in KEPT}
        content["status"] = training.status.value
        content["runs"] = [(run.state, run.certificate, run.done) for run in training.runs]
        content["rows"] = {name: rows.keep() for name, rows in training.row_states.items()}
        self.checkpoints.write(self.identity, content)
        self._at = time.monotonic()
        self._cost = self._at - began
        self.asked.standing = self._standing(training)
        self.report({"event": "checkpoint", **_position(training), "took": self._cost})

    def _stopped(self, training: Training) -> InterruptedRun:
        self.asked.saving = True
        self.save(training)
        self.asked.saving = False
        name = self.asked.name or "time limit"
        seconds = self.asked.seconds if self.asked.name else self._cost
        where = "epoch {epoch}, chunk {chunk}".format(**_position(training))
        return InterruptedRun(f"{name}: checkpoint saved at {where} ({seconds:.1f} s). Resume: {self.command}")

    def _standing(self, training: Training) -> str:
        where = "epoch {epoch}, chunk {chunk}".format(**_position(training))
        return f"The checkpoint saved at {where} stands. Resume: {self.command}"


def _position(training: Training) -> dict[str, int]:
    """Where the run is, as people count: epoch from 1, chunks done in it."""
    return {"epoch": training.passes + 1, "chunk": training.index}
