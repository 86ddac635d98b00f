"""Every registered solver, loss and kernel has the members its protocol declares, and no ability by halves."""

from __future__ import annotations

from typing import Any

import pytest

from streamsvm.kernels import KERNELS
from streamsvm.losses import LOSSES
from streamsvm.solvers import REQUIRED, SOLVERS, checked, losses_of
from streamsvm.types import Kernel, Loss, Solver, capabilities


def members(protocol: Any) -> set[str]:
    """The public names a protocol declares."""
    return {name for name in vars(protocol) if not name.startswith("_")}


ABILITIES = [
    kind for kind in vars(capabilities).values() if isinstance(kind, type) and kind.__module__ == capabilities.__name__
]
each_solver = pytest.mark.parametrize("name", list(SOLVERS))


def test_what_is_checked_is_what_is_declared() -> None:
    assert set(REQUIRED) == members(Solver)
    assert len(ABILITIES) > 8


@each_solver
def test_a_solver_has_what_is_required(name: str) -> None:
    solver = SOLVERS[name]()
    assert checked(solver, name) is solver
    assert isinstance(solver, Solver)
    assert losses_of(name), "a solver that takes no registered loss cannot be used"


@each_solver
def test_a_solver_has_an_ability_wholly_or_not_at_all(name: str) -> None:
    """A member by the name of an ability's, without the others, would never be asked for."""
    solver = SOLVERS[name]()
    for ability in ABILITIES:
        found = members(ability) & set(dir(solver))
        assert isinstance(solver, ability) == (found == members(ability))
        shared = {m for m in found if any(isinstance(solver, other) and m in members(other) for other in ABILITIES)}
        fields = set(getattr(type(solver), "__dataclass_fields__", {}))
        assert found == members(ability) or found <= shared | fields, f"{name} has but {found} of {ability.__name__}"


@each_solver
def test_a_solver_without_a_member_is_refused_by_name(name: str) -> None:
    class Lacking:
        """Everything but ``finish``."""

        def __getattr__(self, member: str) -> Any:
            raise AttributeError(member)

        def __dir__(self) -> list[str]:
            return sorted(set(dir(SOLVERS[name]())) - {"finish"})

    with pytest.raises(TypeError, match=r"lacks finish.*streamsvm\.types\.Solver"):
        checked(Lacking(), "mine")


@pytest.mark.parametrize(("registry", "protocol"), [(LOSSES, Loss), (KERNELS, Kernel)])
def test_records_have_what_their_protocol_declares(registry: Any, protocol: Any) -> None:
    for name in registry:
        missing = members(protocol) - set(dir(registry[name]()))
        assert not missing, f"{name} lacks {missing}"
