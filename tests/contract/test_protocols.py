"""Every registered solver is a ``Solver`` whose flags go with its methods; every loss and kernel has the members of its protocol."""

from __future__ import annotations

from typing import Any

import pytest

from streamsvm.kernels import KERNELS
from streamsvm.losses import LOSSES
from streamsvm.solvers import SOLVERS, check_solver, losses_of
from streamsvm.solvers.nu import NuMargin
from streamsvm.solvers.problem_kinds import Multinomial
from streamsvm.solvers.regularizers import ElasticNet, L1Ball
from streamsvm.solvers.softmax import Softmax
from streamsvm.types import AnySolver, Kernel, Loss, Solver

METHODS_OF_FLAGS = {
    "stops_early": ("set_deadline",),
    "has_current_weights": ("current_weights",),
    "has_dual_witness": ("keep_dual_point", "dual_values"),
}
"""The flags of a solver, and the methods without which each would promise nothing."""


def variants(name: str) -> list[AnySolver]:
    """A registered solver, and those it gives for other kinds of problems."""
    solver = SOLVERS[name]()
    others = (part.adapt(solver) for part in (Multinomial(3), Softmax(3), L1Ball(1.0), ElasticNet(1.0), NuMargin(0.5)))
    return [solver, *(other for other in others if other is not None)]


def overrides(solver: AnySolver, method: str) -> bool:
    return getattr(type(solver), method) is not getattr(Solver, method)


@pytest.mark.parametrize("name", list(SOLVERS))
def test_protocol_flags_of_a_solver_go_with_its_methods(name: str) -> None:
    for solver in variants(name):
        assert check_solver(solver, name) is solver
        for flag, methods in METHODS_OF_FLAGS.items():
            for method in methods:
                assert getattr(solver, flag) == overrides(solver, method), f"{type(solver).__name__}: {flag}, {method}"
    assert losses_of(name), "a solver that takes no registered loss cannot be used"


def test_protocol_solver_without_a_required_method_cannot_be_made() -> None:
    class Lacking(Solver[Any]):
        """A solver that implements nothing."""

    with pytest.raises(TypeError, match="finish"):
        Lacking()  # type: ignore[abstract]


def test_protocol_what_does_not_inherit_from_solver_is_refused_by_name() -> None:
    with pytest.raises(
        TypeError, match=r"solver 'mine' \(builtins\.object\) must inherit from streamsvm\.types\.Solver"
    ):
        check_solver(object(), "mine")  # type: ignore[arg-type]


@pytest.mark.parametrize(("registry", "protocol"), [(LOSSES, Loss), (KERNELS, Kernel)])
def test_protocol_records_have_what_their_protocol_declares(registry: Any, protocol: Any) -> None:
    members = {name for name in vars(protocol) if not name.startswith("_")}
    for name in registry:
        missing = members - set(dir(registry[name]()))
        assert not missing, f"{name} lacks {missing}"
