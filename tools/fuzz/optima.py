"""Fuzz optima: python tools/fuzz/optima.py [--sets 50] [--seed 0] [--tasks "NAME;..."] [--solvers NAME,...] [--tolerance 1e-6].

Small weighted problems of every task through every solver and every loss it takes, as the registries and the abilities of solvers have
them, against the optimum of another program at its tightest (``optima_peers``). A finding is

- a D of any pass, or the printed one less its rounding, above the best P that is known: the peer's, or that of our model;
- a printed P, with its rounding, below the peer's optimum by more than the peer can be off (``PEER``);
- a run that says "converged" and is not within its printed gap of the peer;
- a run that ends with an error.

A row of the table is a task, a solver and a loss: sets, how many converged, the largest (P - P of the peer) / |P| of those, findings. A task of
another kind joins by a line in ``TASKS``; ``tests/contract/test_optima.py`` fails where a solver, a loss or a form of the problem
(``FORMS``) is registered that no task has. Exit code 1 if there is a finding.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from streamsvm.errors import StreamSVMError
from streamsvm.jobs.fit.driver import fit_in_memory
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.problems import is_least_squares
from streamsvm.losses import LOSSES, threshold
from streamsvm.solvers import SOLVERS, losses_of
from streamsvm.solvers.free_bias import FreeBias
from streamsvm.solvers.nu import NuMargin
from streamsvm.solvers.one_class import FreeOffset
from streamsvm.solvers.problem_kinds import Multinomial, OneAgainstRest, OneClass, OneVsOne, Regression
from streamsvm.solvers.regularizers import ElasticNet, L1Ball
from streamsvm.solvers.softmax import Softmax
from streamsvm.types import Regularizer
from tools.fuzz import optima_peers as peers
from tools.fuzz.optima_peers import Drawn

PEER = 1e-6
"""How far, relatively, a peer at its tightest may be above the optimum."""
SUMMED, PRINTED = 1e-6, 1e-9
"""How far D may be above the best P for rounding: of a pass, whose rounding is not known, and of a certificate."""
PASSES = 60
CHUNK = 512
RBF: dict[str, Any] = {"kernel": "rbf", "gamma": peers.GAMMA}
Pair = tuple[str, str]


class Task(NamedTuple):
    """What is fitted, and by whom else."""

    pairs: Callable[[], list[Pair]]
    """Solvers and losses."""
    draw: Callable[[int], Drawn]
    settings: Callable[[Drawn, str], dict[str, Any]]
    """Of the fit, for a loss by name."""
    peer: Callable[[Drawn, str], list[float]]
    """The optimal P of each problem of the fit, for a loss by name."""


def pairs(numeric: bool, kernel: bool, free: bool = False) -> list[Pair]:
    """All there are of a kind: for exact kernels or not, with a free constant or not."""
    made = [(name, SOLVERS[name]()) for name in SOLVERS]
    chosen = [
        name for name, solver in made if solver.exact_kernel == kernel and (not kernel or solver.free_bias == free)
    ]
    return [(name, loss) for name in chosen for loss in losses_of(name) if LOSSES[loss]().numeric() == numeric]


def with_a_margin(found: list[Pair]) -> list[Pair]:
    return [(solver, loss) for solver, loss in found if threshold(LOSSES[loss]()) < float("inf")]


def of_all_classes() -> list[Pair]:
    """Solvers that tell all classes apart in one problem, and the losses they do it with."""
    able = [(name, form) for name, solver in made() if (form := Multinomial(3).adapt(solver)) is not None]
    return [(name, loss) for name, solver in able for loss in LOSSES if solver.losses.refusal(LOSSES[loss]()) is None]


def of_curves() -> list[Pair]:
    """The solver of smooth curves, and losses."""
    return [("newton", loss) for loss in ("logistic", "squared_hinge", "hinge")]


def of_softmax() -> list[Pair]:
    """Solvers of softmax regression. Its loss is the logistic one."""
    return [(name, "logistic") for name, solver in made() if Softmax(3).adapt(solver) is not None]


def of_one_class(kernel: bool) -> list[Pair]:
    """Solvers with a free offset. Their loss is that of the form."""
    able = [name for name, solver in made() if FreeOffset(0.5).adapt(solver) is not None]
    return [(name, "hinge") for name in able if SOLVERS[name]().exact_kernel == kernel]


def of_two_classes_by_nu() -> list[Pair]:
    """Solvers that find C by nu. Their loss is the hinge."""
    return [(name, "hinge") for name, solver in made() if NuMargin(0.5).adapt(solver) is not None]


def of_ball() -> list[Pair]:
    able = [name for name, solver in made() if L1Ball(1.0).adapt(solver) is not None]
    return [(name, loss) for name in able for loss in LOSSES if is_least_squares(LOSSES[loss]())]


def of_free_bias() -> list[Pair]:
    """Solvers of linear problems with a free bias."""
    able = {name for name, solver in made() if FreeBias(2).adapt(solver) is not None}
    return [pair for pair in pairs(False, False) if pair[0] in able]


def of_elastic_net(numeric: bool) -> list[Pair]:
    able = [(name, form) for name, solver in made() if (form := ElasticNet(1.0).adapt(solver)) is not None]
    losses = [loss for loss in LOSSES if LOSSES[loss]().numeric() == numeric]
    return [(name, loss) for name, solver in able for loss in losses if solver.losses.refusal(LOSSES[loss]()) is None]


def made() -> list[tuple[str, Any]]:
    return [(name, SOLVERS[name]()) for name in SOLVERS]


def plain(given: Drawn, loss: str) -> dict[str, Any]:
    return {"loss": loss, "C": given.C}


def number(given: Drawn, loss: str) -> dict[str, Any]:
    options = {"loss_options": {"quantile": given.quantile}} if loss == "pinball" else {}
    return {"loss": loss, "C": given.C, **options}


def settings(
    of: Callable[[Drawn, str], dict[str, Any]], more: dict[str, Any]
) -> Callable[[Drawn, str], dict[str, Any]]:
    return lambda given, loss: {**of(given, loss), **more}


def offset(given: Drawn, loss: str) -> dict[str, Any]:
    """The form with nu; ``loss`` has no say in it."""
    del loss
    return {"one_class": True, "nu": given.nu}


def in_ball(given: Drawn, loss: str) -> dict[str, Any]:
    return {**plain(given, loss), "l1_ball": given.radius}


def with_l1(given: Drawn, loss: str) -> dict[str, Any]:
    return {**number(given, loss), "l1": given.radius}


TASKS = {
    "classes": Task(partial(pairs, False, False), peers.draw_two_classes, plain, peers.linear_classes),
    "curves": Task(
        of_curves, peers.draw_two_classes, settings(plain, peers.CURVES), peers.curve_classes
    ),
    "classes, rbf": Task(
        partial(pairs, False, True, True), peers.draw_two_classes, settings(plain, RBF), peers.kernel_classes
    ),
    "classes, simplex": Task(
        partial(pairs, False, True), peers.draw_two_classes, settings(plain, {"kernel": "linear"}), peers.linear_classes
    ),
    "rests": Task(
        partial(pairs, False, False), peers.draw_some_classes, plain, partial(peers.rest_optima, kernel=False)
    ),
    "rests, rbf": Task(
        partial(pairs, False, True, True), peers.draw_some_classes, settings(plain, RBF), partial(peers.rest_optima, kernel=True)
    ),
    "pairs": Task(
        partial(pairs, False, False), peers.draw_some_classes, settings(plain, {"multi_class": "ovo"}),
        partial(peers.pair_optima, kernel=False),
    ),
    "pairs, rbf": Task(
        partial(pairs, False, True, True), peers.draw_some_classes, settings(plain, {**RBF, "multi_class": "ovo"}),
        partial(peers.pair_optima, kernel=True),
    ),
    "all classes": Task(
        of_all_classes, peers.draw_some_classes, settings(plain, {"multi_class": "crammer_singer"}), peers.together
    ),
    "softmax": Task(
        of_softmax, peers.draw_some_classes, settings(plain, {"multi_class": "softmax"}), peers.softmax_classes
    ),
    "softmax, hard": Task(
        of_softmax, peers.draw_hard_softmax, settings(plain, {"multi_class": "softmax"}), peers.hard_softmax
    ),
    "numbers": Task(partial(pairs, True, False), peers.draw_numbers, number, peers.linear_numbers),
    "numbers, rbf": Task(
        partial(pairs, True, True, True), peers.draw_numbers, settings(number, RBF), peers.kernel_numbers
    ),
    "one class": Task(
        lambda: with_a_margin(pairs(False, False)), peers.draw_one_class, settings(plain, {"one_class": True}),
        partial(peers.one_class_of_margin, kernel=False),
    ),
    "one class, rbf": Task(
        lambda: with_a_margin(pairs(False, True)), peers.draw_one_class, settings(plain, {**RBF, "one_class": True}),
        partial(peers.one_class_of_margin, kernel=True),
    ),
    "one class, nu": Task(
        partial(of_one_class, False), peers.draw_one_class, offset, lambda given, _: peers.one_class(given, kernel=False)
    ),
    "one class, nu, rbf": Task(
        partial(of_one_class, True), peers.draw_one_class, settings(offset, RBF),
        lambda given, _: peers.one_class(given, kernel=True),
    ),
    "classes, nu": Task(
        of_two_classes_by_nu, peers.draw_two_classes_by_nu, lambda given, _: {"nu": given.nu},
        lambda given, _: peers.classes_by_nu(given),
    ),
    "elastic net": Task(
        partial(of_elastic_net, False), peers.draw_sparing_classes, with_l1, peers.elastic_net
    ),
    "elastic net of numbers": Task(
        partial(of_elastic_net, True), peers.draw_sparing_numbers, with_l1, peers.elastic_net
    ),
    "classes, free bias": Task(
        of_free_bias, peers.draw_two_classes, settings(plain, {"free_bias": True}), peers.free_classes
    ),
    "rare class, free bias": Task(
        of_free_bias, peers.draw_rare_class, settings(plain, {"free_bias": True}), peers.free_classes
    ),
    "l1 ball": Task(of_ball, peers.draw_ball, in_ball, lambda given, _: peers.ball(given)),
}  # fmt: skip
FORMS: dict[type, str] = {
    OneAgainstRest: "rests", OneVsOne: "pairs", Multinomial: "all classes", Softmax: "softmax", Regression: "numbers", OneClass: "one class",
    Regularizer: "classes", ElasticNet: "elastic net", L1Ball: "l1 ball", FreeBias: "classes, free bias", FreeOffset: "one class, nu",
    NuMargin: "classes, nu",
}  # fmt: skip
"""The kinds of problems and the regularizers, and a task that has it."""


class Outcome(NamedTuple):
    """One fit beside its peer."""

    converged: bool
    over: float
    """(P - P of the peer) / |P|, the largest of its problems."""
    finding: str


def compared(task: Task, pair: Pair, given: Drawn, tolerance: float, best: list[float]) -> Outcome:
    """Fit, and say whether each printed interval, and each D on the way, fits the peer's optimum."""
    solver, loss = pair
    events: list[dict[str, Any]] = []
    asked: dict[str, Any] = {
        "solver": solver,
        "tolerance": tolerance,
        "max_passes": PASSES,
        "prefetch": 0,
        "threads": 1,
    }
    job = FitJob("memory", "none", **asked, **task.settings(given, loss))
    try:
        with peers.open_store_of(given, CHUNK) as store:
            training = fit_in_memory(job, store, events.append).training
    except StreamSVMError as error:
        return Outcome(False, float("nan"), f"{type(error).__name__}: {error}")
    converged = training.status.value == "converged"
    found = [run.certificate for run in training.runs]
    if len(found) != len(best):
        return Outcome(converged, float("nan"), f"{len(found)} problems where the peer has {len(best)}")
    over = max(excess(one.primal, least) for one, least in zip(found, best, strict=True) if one)
    said = (finding(one, least, converged, tolerance) for one, least in zip(found, best, strict=True))
    return Outcome(converged, over, next(filter(None, said), "") or on_the_way(events, best))


def excess(primal: float, best: float) -> float:
    """How far P is above the peer's, relatively; the optimum may be 0."""
    return 0.0 if primal == best else (primal - best) / max(abs(primal), abs(best))


def finding(found: Any, best: float, converged: bool, tolerance: float) -> str:
    """What is wrong with a certificate."""
    if found.dual - found.rounding > min(best, found.primal) + PRINTED * abs(best):
        return f"D {found.dual:.12g} above P {best:.12g}"
    if found.primal + found.rounding < best - PEER * abs(best):
        return f"P {found.primal:.12g} below the optimum {best:.12g}"
    if converged and not found.final and (found.primal - best) / abs(found.primal) > max(found.gap, tolerance):
        return f"P {found.primal:.12g}, gap {found.gap:.1e}, but {best:.12g} is known"
    return ""


def on_the_way(events: list[dict[str, Any]], best: list[float]) -> str:
    """What is wrong with the bound of a pass."""
    for event in events:
        if event["event"] == "pass" and event["exact"]:
            least = best[event["problem"]]
            if event["dual"] - event["rounding"] > least + SUMMED * abs(least):
                return f"D {event['dual']:.12g} of pass {event['pass']} above P {least:.12g}"
    return ""


class Asked(NamedTuple):
    """What is run."""

    sets: int
    seed: int
    tolerance: float
    tasks: list[str]
    """All where there is none; so of solvers."""
    solvers: list[str]


Line = tuple[str, str, str, int, int, float, int]


def rows(asked: Asked) -> tuple[list[Line], list[str]]:
    """A row for each task, solver and loss, and the findings."""
    table: list[Line] = []
    findings: list[str] = []
    for kind in asked.tasks or TASKS:
        known: dict[tuple[str, int], list[float]] = {}
        for pair in TASKS[kind].pairs():
            if asked.solvers and pair[0] not in asked.solvers:
                continue
            outcomes = []
            for k in range(asked.seed, asked.seed + asked.sets):
                given = TASKS[kind].draw(k)
                if (pair[1], k) not in known:
                    known[pair[1], k] = TASKS[kind].peer(given, pair[1])
                outcomes.append(compared(TASKS[kind], pair, given, asked.tolerance, known[pair[1], k]))
                if outcomes[-1].finding:
                    findings.append(f"{kind} {' '.join(pair)} seed {k}: {outcomes[-1].finding}")
            within = [one.over for one in outcomes if one.converged]
            wrong = sum(bool(one.finding) for one in outcomes)
            table.append((kind, *pair, len(outcomes), len(within), max(within, default=float("nan")), wrong))
            print("{:20}{:18}{:28}{:5}{:10}{:10.1e}{:9}".format(*table[-1]), flush=True)
    return table, findings


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tasks", default="", help="separated by semicolons")
    parser.add_argument("--solvers", default="")
    parser.add_argument("--tolerance", type=float, default=1e-6)
    options = parser.parse_args()
    warnings.filterwarnings("ignore", category=UserWarning)  # a peer that stops at its limit of iterations
    chosen = [
        [name for name in text.split(mark) if name] for text, mark in ((options.tasks, ";"), (options.solvers, ","))
    ]
    print(f"{'task':20}{'solver':18}{'loss':28}{'sets':>5}{'converged':>10}{'over':>10}{'findings':>9}")
    table, findings = rows(Asked(options.sets, options.seed, options.tolerance, *chosen))
    print(*findings, sep="\n")
    print(f"{sum(line[3] for line in table)} fits, {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
