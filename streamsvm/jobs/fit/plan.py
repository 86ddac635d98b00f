"""What a fit is asked for, and the plan made of it before anything is read: solver, features, memory."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from streamsvm.errors import UsageError
from streamsvm.features.nystrom import CUT
from streamsvm.features.scaling import Raw, Standardized, scaling_of
from streamsvm.jobs.embed import kernel_request
from streamsvm.jobs.embed.kernel_request import NystromRequest
from streamsvm.jobs.embed.placement import FLY, Choice, choose_embedding
from streamsvm.jobs.fit import kernel_machine
from streamsvm.jobs.fit.memory_plan import fitted, most_landmarks, remedy_for
from streamsvm.jobs.fit.problems import problems_of
from streamsvm.jobs.fit.solver_choice import MANY, features_solver, linear_solver
from streamsvm.jobs.fit.warm_start import warm_started
from streamsvm.registry import build
from streamsvm.schedule.budget import MemoryPlan
from streamsvm.solvers import SOLVERS
from streamsvm.types import FeatureMap, Layout, Problem, Solver, Store


@dataclass(frozen=True, slots=True)
class FitJob:
    """What ``streamsvm fit`` is asked for; the keys of a job file are these fields."""

    store: str
    model: str
    solver: str = "auto"
    options: dict[str, Any] = field(default_factory=dict)
    """Settings of the solver, by the names of its fields."""
    loss: str = "squared_hinge"
    loss_options: dict[str, float] = field(default_factory=dict)
    C: float | tuple[float, ...] | None = None
    """Weight of the loss sum, or several: one model each. 1 when neither C nor lambda_ is given."""
    lambda_: float | None = None
    """The other spelling: lambda/2 ||w||^2 + mean loss, C = 1 / (lambda n)."""
    bias: float = 1.0
    standardize: bool = False
    features_key: str = "X"
    """Of HDF5 and Zarr arrays others wrote, which are read in place: the array of features."""
    labels_key: str = "y"
    """And the array of labels."""
    kernel: str = "linear"
    kernel_options: dict[str, float] = field(default_factory=dict)
    """Settings of the kernel beside gamma: coef0, degree."""
    gamma: float | str = "scale"
    """Width of the kernel: a number, 'scale' for 1 / (columns x variance), or 'mean-distance'."""
    landmarks: int | None = None
    """Nystrom features from so many rows of the store; without them a kernel is solved exactly."""
    landmark_file: str | None = None
    """A .npy file of landmarks, rows as they are stored."""
    sampling: str = "uniform"
    """How landmarks are drawn: 'uniform', 'leverage' (one pass more), 'kmeans++' (far from each other), 'greedy' (by labels)."""
    cutoff: float = CUT
    """Directions of the landmarks' kernel matrix with less than this share of its largest eigenvalue are left out."""
    embedding: str = "auto"
    """Keep the features on 'disk', make them on the 'fly' in every pass, or whichever is estimated to be faster."""
    embedding_dtype: str = "float32"
    """Of features on disk: float32, float16 or int8 (with a scale a column)."""
    max_support: int | None = None
    """Of a kernel solved exactly: at most so many rows in the model. The gap then includes what that cost."""
    positive: str | None = None
    class_weight: str | dict[str, float] | None = None
    """"balanced", or a factor per class; classes not named have 1."""
    warm_start: str | None = None
    """A model to start from: linear, of the same columns and classes; C, loss and scaling may differ."""
    validation: float | str | None = None
    """Rows held out, to choose the pass and the C by their error: a part of the chunks (0.1), or a store."""
    patience: int | None = None
    """End when that error has not fallen for so many passes."""
    tolerance: float = 1e-3
    max_passes: int = 1000
    time_limit: float = float("inf")
    """Seconds."""
    at_limit: str = "certify"
    """At the time limit: 'certify' with one more pass and end with a model, or 'stop' with a checkpoint, exit code 75."""
    checkpoint_every: float = 60.0
    """How often to save what --resume goes on from; 0: only when the run is stopped from outside."""
    resume: bool = False
    """Go on from the last checkpoint of an interrupted run with the same settings; from the start if there is none."""
    memory: int | None = None
    """Bytes of anonymous memory the process may use."""
    seed: int = 0
    prefetch: int = 2
    dual: str | None = None
    """Where to write the dual variables as .npy, so that anyone can recompute the certificate.

    Float64 (rows,), of several problems (problems, rows).
    """
    overwrite: bool = False
    cluster: str | None = None
    """Dask workers to do it on: tcp://127.0.0.1:8786, tls://HOST:8786, local:N (started here), scheduler-file:PATH."""
    insecure_network: bool = False
    """Allow a cluster that is neither encrypted nor on this machine."""
    groups: int | None = None
    """On a cluster: parts of the data that are worked on side by side; the result depends on it, not on the workers."""

    def __post_init__(self) -> None:
        # of a caller's 1 for 1.0: to the compiler a whole number is another type, and every pass one more to compile
        object.__setattr__(self, "bias", float(self.bias))


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything decided before the first read."""

    problems: list[Problem]
    class_names: tuple[str, ...]
    """What the model's outcomes are called: two for one problem, else one a problem."""
    solver_name: str
    solver: Solver[Any]
    why: str
    features: FeatureMap
    memory: MemoryPlan
    layout: Layout
    remedy: str
    request: NystromRequest | None = None
    """The kernel features to be made before training; the problems have at most so many columns."""
    embedding: Choice | None = None

    @property
    def costs(self) -> list[float]:
        """Every C there is a model for."""
        return list(dict.fromkeys(problem.C for problem in self.problems))

    def facts(self) -> dict[str, Any]:
        """The plan as plain JSON: the table of ``streamsvm plan``."""
        layout = self.layout
        return {
            "rows": layout.rows,
            "columns": layout.columns,
            "chunks": len(layout.chunks),
            "bytes_per_pass": layout.bytes_per_pass,
            "problems": len(self.problems),
            "C": [p.C for p in self.problems],
            "solver": self.solver_name,
            "why": self.why,
            "memory": [{"term": t.name, "bytes": t.nbytes, "why": t.why} for t in self.memory.terms],
            "total": self.memory.total,
            "limit": self.memory.limit,
            "fits": self.memory.total <= self.memory.limit,
            "row_state": "memory" if self.memory.resident else "file beside the run",
            "blocks": "kept in memory" if self.memory.cached else "read in every pass",
            "features": None if self.request is None else self.request.describe(),
            "embedding": None if self.embedding is None else self.embedding.facts(),
        }


def make_plan(job: FitJob, store: Store) -> Plan:
    """Decide everything. Raises UsageError and DataError; ``memory.check`` is the caller's."""
    plan = _plan_with(job, store)
    chosen = job.solver == "auto" and plan.solver_name == "newton"
    if plan.request is not None:
        chosen = chosen and plan.request.landmarks > MANY
    if chosen and plan.memory.total > plan.memory.limit:
        why = "second order does not fit the memory: dual coordinate descent"
        return replace(_plan_with(replace(job, solver="dcd"), store), why=why)
    return plan


def _plan_with(job: FitJob, store: Store) -> Plan:
    layout = store.layout
    problems, names = problems_of(job, layout)
    solver_name, why = choose_solver(job, layout)
    solver = _solver_of(job, solver_name)
    features = features_of(job, store)
    request = kernel_request.request_of(job, store, features)
    kernel = kernel_machine.kernel_of(job, solver_name, store, features)
    if job.warm_start is not None and (kernel is not None or request is not None):
        raise UsageError("a fit with a kernel does not start from a model", hint="leave out --warm-start")
    problems = warm_started(job.warm_start, store, features, problems, names)
    if kernel is not None:
        problems = [replace(problem, kernel=kernel) for problem in problems]
        solver = kernel_machine.sized(solver, layout.rows, job.options)
    embedding = None
    if request is not None:
        problems = [replace(problem, columns=request.landmarks) for problem in problems]
        factored = solver_name in kernel_request.THROUGH_OPERATORS
        embedding = choose_embedding(job, store, request, _expected(solver, problems) if factored else None)
        fly = embedding.where == FLY
        request = replace(request, factored=fly and factored, on_disk=not fly)
    asked = solver
    solver, memory = fitted(job, store, asked, problems, request)
    if kernel is None and getattr(solver, "sample", None) != getattr(asked, "sample", None):
        why += f"; memory is short: {solver.sample} rows in its model"
    remedy = remedy_for(layout, job) + kernel_machine.remedy(solver)
    if request is not None and memory.total > memory.limit:
        remedy += f", or --landmarks {most_landmarks(job, store, solver, problems, request)}"
    return Plan(problems, names, solver_name, solver, why, features, memory, layout, remedy, request, embedding)


def _expected(solver: Any, problems: list[Problem]) -> tuple[int, int]:
    """Passes, and rows whose features they ask for in all; every problem asks for its own."""
    passes, formed = solver.expected(problems[0])
    return passes, len(problems) * formed


def _solver_of(job: FitJob, name: str) -> Any:
    """With the settings asked for. Raises UsageError."""
    solver = build(solver_for(name, job.loss), kernel_machine.options_of(job), f"solver '{name}'")
    return proving(solver, name) if job.dual else solver


def proving(solver: Solver[Any], name: str) -> Solver[Any]:
    """The solver, set to keep the dual variables it proves its bound with. Raises UsageError where it has none."""
    if any(state.name == "alpha" for state in solver.row_state):
        return solver
    if hasattr(solver, "dual_point"):
        return replace(solver, polish=False)  # type: ignore[type-var]
    raise UsageError(f"solver '{name}' has no dual variables to write", hint="--dual goes with --solver dcd or newton")


def choose_solver(job: FitJob, layout: Layout) -> tuple[str, str]:
    """The solver's name and the reason for it."""
    if job.solver != "auto":
        return job.solver, "asked for"
    if kernel_request.wanted(job):
        return features_solver(job)
    if kernel_machine.chosen(job):
        return kernel_machine.solver_for(job)
    return linear_solver(job, layout)


def solver_for(name: str, loss: str) -> Any:
    """The solver's class. Raises UsageError when it cannot solve for this loss."""
    kind = SOLVERS[name]
    if loss not in kind.losses:
        able = [other for other in SOLVERS if loss in SOLVERS[other].losses]
        raise UsageError(
            f"solver '{name}' does not solve for the loss '{loss}', only for {', '.join(kind.losses)}",
            hint=f"solvers that do: {', '.join(able) or 'none'}",
        )
    return kind


def features_of(job: FitJob, store: Store) -> Raw | Standardized:
    """The map from stored rows to what the solver sees."""
    return scaling_of(store, standardize=job.standardize, bias=job.bias)
