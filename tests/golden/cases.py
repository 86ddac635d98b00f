"""Fits whose way from pass to pass is recorded: every solver with each of its losses, and what leads elsewhere on the way."""

from __future__ import annotations

from typing import Any

from streamsvm.losses import LOSSES
from streamsvm.solvers import SOLVERS, losses_of

OF_KERNELS = ("decomposition", "kernel_active_set", "blended", "fw", "mfw", "swap", "partan")
LINEAR = {"tolerance": 1e-9, "max_passes": 5}
"""On the way: few problems are solved to that in so many passes."""
COARSE: dict[str, Any] = {"kernel": "rbf", "gamma": 0.3, "tolerance": 3e-2, "max_passes": 4}
"""Solvers that work in memory end near the tolerance: a coarse one shows which way they came."""
SOON = {"tolerance": 1e-2, "max_passes": 4}
"""The same of those that have all rows, or columns, in memory."""
DISK = {"embedding": "disk"}
"""Where features are is otherwise decided by what is measured, and shows in the way."""
Settings = dict[str, Any]


def _cases() -> dict[str, Settings]:
    """The settings of each case by its name, with the table it is of as ``of``."""
    found: dict[str, Settings] = {}
    for solver in SOLVERS:
        plain = {"solver": solver} | (COARSE if solver in OF_KERNELS else LINEAR)
        losses = losses_of(solver)
        for loss in losses:
            table = "numbers" if LOSSES[loss]().numeric() else "two"
            found[f"{solver}, {loss}"] = {"of": table, "loss": loss} | plain
        first = next(loss for loss in losses if not LOSSES[loss]().numeric())
        found[f"{solver}, sparse"] = {"of": "sparse", "loss": first} | plain
        found[f"{solver}, weighted"] = {"of": "weighted", "loss": first, "C": 0.05} | plain
        if solver not in OF_KERNELS:
            found[f"{solver}, no bias"] = {"of": "two", "loss": first, "bias": 0.0} | plain
    return found | _others() | _other_settings() | _wide() | _joined()


def _others() -> dict[str, Settings]:
    """Problems of other kinds."""
    hinge, newton = {"loss": "hinge"}, {"solver": "newton"} | LINEAR
    return {
        "all classes, hinge": {"of": "several", "multi_class": "crammer_singer", "solver": "dcd", "loss": "hinge"}
        | LINEAR,
        "all classes, squared": {"of": "several", "multi_class": "crammer_singer", "solver": "dcd"} | LINEAR,
        "pairs": {"of": "several", "multi_class": "ovo"} | newton,
        "classes apart": {"of": "several", "class_weight": "balanced"} | newton,
        "greedy landmarks": {"of": "two", "kernel": "laplacian", "landmarks": 15, "sampling": "greedy"} | newton | DISK,
        "polynomial": {"of": "two", **COARSE, "kernel": "polynomial"} | hinge,
        "short": {"of": "two", **COARSE, "max_support": 25} | hinge,
        "nu": {"of": "two", "nu": 0.4} | hinge | LINEAR,
        "nu, landmarks": {"of": "two", "nu": 0.4, "kernel": "rbf", "landmarks": 20, "sampling": "uniform"}
        | hinge
        | LINEAR
        | DISK,
        "one class": {"of": "far", "one_class": True, "nu": 0.3} | LINEAR,
        "one class, rbf": {"of": "two", "one_class": True, "nu": 0.3} | COARSE,
        "one class, C": {"of": "far", "one_class": True, "C": 0.1} | hinge | LINEAR,
        "l1": {"of": "two", "l1": 3.0} | LINEAR,
        "l1, hinge": {"of": "two", "l1": 3.0} | hinge | LINEAR,
        "l1, numbers": {"of": "numbers", "l1": 3.0, "loss": "squared"} | LINEAR,
        "l1 ball": {"of": "numbers", "l1_ball": 0.5, "loss": "squared"} | LINEAR,
        "standardized": {"of": "far", "standardize": True} | newton,
    }


def _other_settings() -> dict[str, Settings]:
    """Solvers with settings that are not the usual ones: those that have too little memory for these tables among them."""
    hinge, squared, pinball = ({"loss": loss} for loss in ("hinge", "squared_hinge", "pinball"))
    logistic = {"loss": "logistic"}
    landmarks = {"kernel": "rbf", "gamma": 0.3, "landmarks": 20, "sampling": "uniform"}
    ways: list[tuple[str, str, Settings, Settings]] = [
        ("newton", "two", {"sample": 40}, hinge),
        ("newton", "two", {"sample": 40, "narrowing": 0.5}, squared),
        ("newton", "two", {"sample": 40, "polish": False}, logistic | landmarks | DISK),
        ("newton", "numbers", {"sample": 40}, pinball),
        ("newton", "weighted", {"sample": 60}, hinge | {"l1": 1.0}),
        ("newton", "sparse", {"sample": 40}, hinge | {"class_weight": "balanced"}),
        ("newton", "far", {"sample": 40}, hinge | {"one_class": True, "C": 0.1}),
        ("dcd", "two", {"shrinking": True}, hinge | {"max_passes": 25}),
        ("dcd", "sparse", {"parts": 3}, squared),
        ("dcd", "two", {"parts": 2}, logistic),
        ("dcd", "two", {"online": True}, hinge),
        ("dcd", "numbers", {"sweeps": 3}, pinball),
        ("mpu", "two", {"parts": 2, "multiplicity": 3}, hinge),
        ("mpu", "two", {"accuracy": 0.2}, squared),
        ("assg", "two", {"batch": 8, "stages": 3, "omega": 1.5}, hinge),
        ("assg", "sparse", {"rows_per_stage": 100, "radius": 2.0, "step": 0.01}, squared),
        ("assg", "weighted", {"sample": 50}, logistic),
        ("pegasos", "two", {"batch": 8, "projection": False}, hinge),
        ("pegasos", "two", {"averaging": "all"}, squared),
        ("sgd", "two", {"variant": "r"}, hinge),
        ("sgd", "two", {"variant": "r", "draws": "all"}, logistic),
        ("sgd_qn", "two", {"skip": 4, "t0": 100.0, "sample": 50}, hinge),
        ("interior_point", "two", {"kept": 40}, hinge),
        ("interior_point", "numbers", {"kept": 40}, pinball),
        ("interior_point", "far", {"kept": 40}, {"one_class": True, "nu": 0.3}),
        ("cutting_plane", "two", {"planes": 8}, hinge),
        ("decomposition", "two", {"working": 16, "pool": 60}, hinge),
        ("decomposition", "two", {"working": 16, "pool": 60, "max_support": 20}, hinge),
        ("decomposition", "numbers", {"working": 16}, pinball),
        ("decomposition", "far", {"working": 20}, {"one_class": True, "nu": 0.3}),
        ("blended", "two", {"working": 16, "pool": 60, "keep": 40}, squared),
        ("fw", "two", {"sample": 20}, squared),
        ("mfw", "two", {"sample": 20, "pool": 60}, squared),
        ("swap", "two", {"sample": 20, "epsilon": 1e-3}, squared),
        ("mfw", "two", {"sample": 20, "pool": 60, "away": "drawn"}, squared),
        ("swap", "two", {"sample": 20, "epsilon": 1e-3, "away": "drawn"}, squared),
        ("partan", "two", {"sample": 20, "iterations": 300}, squared),
        ("fw", "two", {"step": "open"}, squared),
        ("mfw", "two", {"cache": 20_000}, squared),
    ]
    found = {}
    for solver, table, options, more in ways:
        plain = COARSE if solver in OF_KERNELS else LINEAR
        said = " ".join(f"{name}={value}" for name, value in options.items())
        found[f"{solver}, {table}, {more.get('loss', 'nu')}, {said}"] = (
            {"of": table, "solver": solver} | plain | {"options": options} | more
        )
    return found


def _wide() -> dict[str, Settings]:
    """Tables of more columns than a matrix is made of, and of columns that tie all rows together beside those that few rows have."""
    newton: Settings = {"solver": "newton"} | SOON
    in_memory = {
        f"newton, {table}, {loss}": {"of": table, "loss": loss} | newton
        for table in ("words", "categories", "scales")
        for loss in ("hinge", "squared_hinge", "logistic", "huber")
    }
    others: dict[str, Settings] = {
        "newton, words, l1": {"of": "words", "l1": 0.3} | newton,
        "newton, categories, l1, hinge": {"of": "categories", "l1": 0.3, "loss": "hinge"} | newton,
        "newton, words, a sample, hinge": {"of": "words", "loss": "hinge", "options": {"sample": 90}} | newton,
        "newton, words, a sample": {"of": "words", "options": {"sample": 90}} | newton,
        "newton, categories, large C": {"of": "categories", "loss": "hinge", "C": 100.0} | newton,
        "newton, scales, large C": {"of": "scales", "loss": "hinge", "C": 100.0} | newton,
        "newton, scales, standardized": {"of": "scales", "loss": "hinge", "standardize": True} | newton,
    }
    for solver in ("dcd", "mpu", "cutting_plane", "interior_point", "active_set", "sgd", "pegasos", "assg", "sgd_qn"):
        others[f"{solver}, categories"] = {"of": "categories", "solver": solver, "loss": "hinge"} | LINEAR
    for solver in OF_KERNELS:
        others[f"{solver}, words"] = {"of": "words", "solver": solver, "loss": "squared_hinge"} | COARSE
    return in_memory | others


def _joined() -> dict[str, Settings]:
    """Passes whose parts are joined: solvers that move, in groups; several values of C, each begun where the last one ended."""
    found: dict[str, Settings] = {}
    for solver in ("dcd", "mpu", "assg", "pegasos", "sgd", "sgd_qn"):
        losses = [loss for loss in losses_of(solver) if not LOSSES[loss]().numeric()]
        for loss in losses[:2]:
            found[f"{solver}, {loss}, three groups"] = {
                "of": "chunks",
                "solver": solver,
                "loss": loss,
                "groups": 3,
            } | LINEAR
    found["dcd, path of C"] = {"of": "two", "solver": "dcd", "loss": "hinge", "C": [0.01, 0.1, 1.0]} | LINEAR
    found["all classes, path of C"] = {
        "of": "several",
        "multi_class": "crammer_singer",
        "solver": "dcd",
        "C": [0.01, 1.0],
    } | LINEAR
    found["all classes, long"] = (
        {"of": "several", "multi_class": "crammer_singer", "solver": "dcd", "loss": "hinge"}
        | LINEAR
        | {"max_passes": 25}
    )
    for solver in ("fw", "mfw", "swap", "partan"):
        for sample in (None, 3):
            options = {} if sample is None else {"options": {"sample": sample}}
            found[f"l1 ball, {solver}, {sample or 'all'} vertices"] = (
                {"of": "numbers", "solver": solver, "l1_ball": 0.5, "loss": "squared"} | SOON | options
            )
        found[f"{solver}, drawn"] = (
            {"of": "two", "solver": solver, "loss": "squared_hinge"}
            | COARSE
            | {"options": {"sample": 5}, "max_passes": 2}
        )
    return found


CASES = _cases()
