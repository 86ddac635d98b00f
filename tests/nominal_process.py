"""What plans see of the process they are made in, the same in every one: that of a test has grown by all it has run."""

from __future__ import annotations

import pytest

from streamsvm.schedule import budget


def of_nominal_size(patch: pytest.MonkeyPatch) -> None:
    """Plans see a process that holds what one does after its imports, with its passes loaded, and no control group around it."""
    patch.setattr(budget, "anonymous_bytes", lambda: budget.NOMINAL)
    patch.setattr(budget, "passes_loaded", lambda: True)
    patch.setattr(budget, "group_limits", list)
