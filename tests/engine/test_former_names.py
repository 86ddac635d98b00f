"""Files of earlier versions under the names they had: classes, fields of a round, settings without effect."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from streamsvm.engine.checkpoint import checkpoint_file
from streamsvm.engine.state.state_files import DriverState
from streamsvm.errors import ConfigError
from streamsvm.jobs.fit.identity import refuse_other
from streamsvm.solvers import SOLVERS
from streamsvm.solvers.newton.solver import Newton
from streamsvm.tags import FORMER_CLASSES, FORMER_FIELDS, IDLE_SETTINGS, saved_classes


@dataclass
class Driven:
    trust_region: Any = None
    dual_point: Any = None


def test_every_former_class_has_a_tag_that_still_stands_for_one() -> None:
    for name in SOLVERS:
        assert SOLVERS[name]
    assert set(FORMER_CLASSES.values()) <= set(saved_classes()) | {"evaluation.state"}


def test_a_round_that_was_left_under_former_field_names_is_read(tmp_path: Path) -> None:
    assert set(FORMER_FIELDS.values()) <= set(Newton.driver_fields)
    checkpoint_file.write(tmp_path / "home.3", 3, {}, {0: {"guide": 0.5, "witness": 2.0}})
    state = Driven()
    DriverState(tmp_path, ("trust_region", "dual_point")).load(3, {0: state})
    assert state == Driven(0.5, 2.0)


@pytest.mark.parametrize("name", IDLE_SETTINGS)
def test_a_setting_noted_without_effect_does_not_stop_a_resumed_run(name: str) -> None:
    refuse_other({"settings": {"C": 1.0}, name: 40}, {"settings": {"C": 1.0}, name: None})
    with pytest.raises(ConfigError, match=f"{name}=40, now {name}=50"):
        refuse_other({"settings": {"C": 1.0}, name: 40}, {"settings": {"C": 1.0}, name: 50})
