"""Fits whose settings were drawn by chance, so that what is recorded of a solver is not what somebody thought of.

``drawn.json`` holds the settings beside the way of each: a solver that joins the registry later changes none of them.
"""

from __future__ import annotations

import random
from typing import Any

from streamsvm.losses import LOSSES
from streamsvm.solvers import SOLVERS, losses_of
from tests.golden.cases import OF_KERNELS, Settings

OF_CLASSES = ("two", "two", "sparse", "weighted", "far", "chunks", "words", "categories", "scales", "several")
OPTIONS: dict[str, dict[str, tuple[Any, ...]]] = {
    "dcd": {"sweeps": (1, 3), "parts": (2, 3), "shrinking": (True,), "online": (True,)},
    "mpu": {"sweeps": (1, 4), "parts": (2,), "multiplicity": (1, 9), "accuracy": (0.1, 0.5)},
    "assg": {
        "batch": (4, 16), "stages": (2, 6), "omega": (1.3, 4.0), "rows_per_stage": (50, 500), "radius": (0.5, 3.0),
        "step": (0.003, 0.1), "sample": (30, 120),
    },
    "pegasos": {"batch": (4, 32), "projection": (False,), "averaging": ("all", "none")},
    "sgd": {"variant": ("r", "s"), "multiplicity": (1, 9), "draws": ("all",)},
    "sgd_qn": {"skip": (2, 20), "t0": (10.0, 1000.0), "sample": (40,)},
    "interior_point": {"kept": (20, 70, 150)},
    "cutting_plane": {"planes": (4, 12)},
    "newton": {"sample": (30, 80, 150), "narrowing": (0.1, 0.5), "polish": (False,)},
    "decomposition": {"working": (8, 40), "pool": (50, 120), "max_support": (15, 60)},
    "blended": {"epsilon": (1e-4,), "working": (8, 40), "pool": (50, 120), "keep": (20, 45), "max_support": (15, 60)},
}  # fmt: skip
"""Values beside the usual ones."""
ON_THE_SIMPLEX = {
    "epsilon": (1e-4, 1e-2), "pool": (50, 120), "keep": (20, 45), "max_support": (15, 60), "step": ("open",),
    "sample": (4, 30), "iterations": (20, 400), "cache": (20_000,), "seed": (5,),
}  # fmt: skip
ON_THE_BALL = ("fw", "mfw", "swap", "partan")
OPTIONS |= dict.fromkeys(ON_THE_BALL, ON_THE_SIMPLEX)
LOSS_OPTIONS: dict[str, dict[str, tuple[float, ...]]] = {
    "hinge": {"margin": (0.0, 0.5, 2.0)},
    "squared_hinge": {"margin": (0.5, 2.0)},
    "huber": {"mu": (0.02, 0.7), "margin": (0.5,)},
    "logistic": {"sharpness": (0.5, 3.0)},
    "epsilon_insensitive": {"epsilon": (0.0, 0.5)},
    "squared_epsilon_insensitive": {"epsilon": (0.0, 0.5)},
    "squared": {"factor": (0.5,)},
    "pinball": {"quantile": (0.1, 0.8)},
}
RARELY = 0.15
OFTEN = ("newton", "newton", "newton", "newton", "decomposition", "decomposition", "active_set", "interior_point")
"""Solvers with many ways to go are drawn more often."""


def drawn(draw: random.Random) -> Settings:
    """The settings of a fit, some of which no solver takes."""
    solver = draw.choice([*SOLVERS, *OFTEN])
    loss = draw.choice(losses_of(solver))
    numeric = LOSSES[loss]().numeric()
    table = "numbers" if numeric else draw.choice(OF_CLASSES)
    found = {"of": table, "solver": solver, "loss": loss, "max_passes": draw.choice((2, 4, 6))}
    found |= _term(draw, numeric=numeric) | _space(draw, kernels=solver in OF_KERNELS)
    found |= _sometimes(draw, kernels=solver in OF_KERNELS, numeric=numeric)
    for name, choices in (("options", OPTIONS.get(solver, {})), ("loss_options", LOSS_OPTIONS[loss])):
        some = _some(draw, choices)
        found |= {name: some} if some else {}
    if table == "several":
        found["multi_class"] = draw.choice(("ovr", "ovo", "crammer_singer"))
    if "l1" in found or ("l1_ball" in found and solver not in ON_THE_BALL):
        found = {name: value for name, value in found.items() if name not in ("solver", "options")}
    if draw.random() < 0.5:
        found["placed"] = {"cached": draw.random() < 0.3, "resident": draw.random() < 0.7}
    return found


def _term(draw: random.Random, *, numeric: bool) -> Settings:
    """How much the losses weigh, and what stands beside them."""
    kind = draw.random()
    if kind < 0.08:
        return {"nu": round(draw.uniform(0.1, 0.6), 2)}
    if kind < 0.12 and not numeric:
        return {"one_class": True, "nu": round(draw.uniform(0.1, 0.6), 2)}
    C = float(f"{10 ** draw.uniform(-3.0, 2.0):.2g}")
    if kind < 0.25:
        return {"C": C, "l1": draw.choice((0.3, 3.0, 20.0))}
    if kind < 0.3 and numeric:
        return {"l1_ball": draw.choice((0.2, 0.5, 1.5))}
    return {"C": [C, 3.0 * C]} if kind < 0.35 else {"C": C}


def _space(draw: random.Random, *, kernels: bool) -> Settings:
    """What the weights are of: kernels, features of landmarks, or columns."""
    kernel = draw.choice(("rbf", "rbf", "laplacian", "polynomial", "sigmoid"))
    width = {"gamma": draw.choice((0.03, 0.3, 2.0))}
    coarse = {"tolerance": draw.choice((1e-4, 1e-2, 3e-2))}
    if kernels:
        return {"kernel": kernel} | width | coarse
    if draw.random() < 2 * RARELY:
        sampling = draw.choice(("uniform", "leverage", "greedy", "kmeans++"))
        landmarks = {"landmarks": draw.choice((5, 20, 40)), "sampling": sampling}
        where = {"embedding": draw.choice(("disk", "fly"))}
        return {"kernel": kernel} | width | landmarks | where | {"tolerance": 1e-9}
    return {"tolerance": draw.choice((1e-9, 1e-9, 1e-3))}


def _sometimes(draw: random.Random, *, kernels: bool, numeric: bool) -> Settings:
    """What most fits leave as it is."""
    values: list[tuple[str, Any]] = [
        ("bias", draw.choice((0.0, 0.2, 5.0))),
        ("class_weight", None if numeric else "balanced"),
        ("standardize", True),
        ("groups", draw.choice((2, 3, 5))),
        ("max_support", draw.choice((10, 40)) if kernels else None),
    ]
    return {name: value for name, value in values if value is not None and draw.random() < RARELY}


def _some(draw: random.Random, choices: dict[str, tuple[Any, ...]]) -> Settings:
    """None or a few of some settings, with values."""
    names = draw.sample(sorted(choices), min(len(choices), draw.choice((0, 1, 1, 2))))
    return {name: draw.choice(choices[name]) for name in names}
