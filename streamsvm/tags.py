"""What files call what they hold: classes under tags of ours, and everything that had another name in an earlier version.

A checkpoint names the classes it holds by tags and never by where they are defined, so that a class can be renamed or moved
and yesterday's checkpoint still opens. A tag is for ever: give a class that means something else a new one. What is saved
by its name and renamed needs a line in a table at the end; who reads a file looks there, who writes one does not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

K = TypeVar("K", bound=type)

_CLASSES: dict[str, type] = {}
_TAGS: dict[type, str] = {}


def saved_as(tag: str) -> Callable[[K], K]:
    """A class decorator: instances of this dataclass or named tuple are saved in checkpoints under ``tag``.

    Raises ValueError when another class has the tag.
    """

    def register(kind: K) -> K:
        if tag in _CLASSES:
            raise ValueError(f"the tag '{tag}' belongs to {_CLASSES[tag].__qualname__}")
        _CLASSES[tag], _TAGS[kind] = kind, tag
        return kind

    return register


def class_of(tag: str) -> type:
    """The class saved under ``tag``, or under a former name. Raises KeyError for one that no loaded module has declared."""
    return _CLASSES[FORMER_CLASSES.get(tag, tag)]


def tag_of(kind: type) -> str | None:
    """The tag a class is saved under; None for one that a checkpoint cannot hold."""
    return _TAGS.get(kind)


def saved_classes() -> dict[str, type]:
    """All classes of the loaded modules that a checkpoint can hold, by tag."""
    return dict(_CLASSES)


FORMER_CLASSES = {
    "streamsvm.compute.operators.Factored": "rows.factored",
    "streamsvm.kernels.Laplacian": "kernel.laplacian",
    "streamsvm.kernels.Linear": "kernel.linear",
    "streamsvm.kernels.Polynomial": "kernel.polynomial",
    "streamsvm.kernels.RBF": "kernel.rbf",
    "streamsvm.kernels.Sigmoid": "kernel.sigmoid",
    "streamsvm.losses.Hinge": "loss.hinge",
    "streamsvm.losses.Huber": "loss.huber",
    "streamsvm.losses.SquaredHinge": "loss.squared_hinge",
    "streamsvm.rows.CSR": "rows.csr",
    "streamsvm.rows.Dense": "rows.dense",
    "streamsvm.rows.Labelled": "rows.labelled",
    "streamsvm.solvers.appraisal.AppraisalState": "evaluation.state",
    "streamsvm.solvers.assg.ASSGState": "assg.state",
    "streamsvm.solvers.cocoa.Joined": "cocoa.joined",
    "streamsvm.solvers.cocoa.Joint": "cocoa.joint",
    "streamsvm.solvers.columns.Columns": "kernel.columns",
    "streamsvm.solvers.dcd.DCDState": "dcd.state",
    "streamsvm.solvers.decomposition_state.DecompositionState": "decomposition.state",
    "streamsvm.solvers.evaluation.Evaluation": "evaluation.sums",
    "streamsvm.solvers.evaluation.Found": "evaluation.point",
    "streamsvm.solvers.evaluation.Sums": "evaluation.block",
    "streamsvm.solvers.evaluation.Witness": "evaluation.dual_point",
    "streamsvm.solvers.evidence.Evidence": "averaged.certificate",
    "streamsvm.solvers.guide.Guide": "newton.trust_region",
    "streamsvm.solvers.newton.NewtonState": "newton.state",
    "streamsvm.solvers.offers.Offers": "kernel.candidates",
    "streamsvm.solvers.pegasos.PegasosState": "pegasos.state",
    "streamsvm.solvers.pool.Form": "kernel.form",
    "streamsvm.solvers.pool.Pool": "kernel.working_set",
    "streamsvm.solvers.sampled.SampledWalk": "simplex.sampled_iterations",
    "streamsvm.solvers.sgd.SGDState": "sgd.state",
    "streamsvm.solvers.simplex_state.Reached": "simplex.reached",
    "streamsvm.solvers.simplex_state.SimplexState": "simplex.state",
    "streamsvm.solvers.simplex_state.Target": "simplex.target",
    "streamsvm.solvers.sketch.Sample": "newton.sample",
    "streamsvm.solvers.sketch.Sketch": "newton.sampler",
    "streamsvm.solvers.sketch._Part": "newton.sample_part",
    "streamsvm.solvers.surrogate.Look": "newton.look",
    "streamsvm.solvers.surrogate.Model": "newton.model",
    "streamsvm.solvers.walk.Walk": "simplex.iterations",
    "streamsvm.types.problem.Problem": "problem",
    "streamsvm.types.problem.Certificate": "certificate",
}
"""Checkpoints of before there were tags name a class by the module it was in: these, for ever."""

FORMER_FIELDS = {"guide": "trust_region", "witness": "dual_point"}
"""Fields of a solver's state that a round leaves on disk (``engine.state.state_files.DriverState``)."""

IDLE_SETTINGS = ("sample",)
"""Entries of a run's identity that were noted also where they had no effect: not compared where there is none today."""
