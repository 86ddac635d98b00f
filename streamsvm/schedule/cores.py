"""How many processors this process may use: those it may run on, and what its control groups pay for."""

from __future__ import annotations

import os

from streamsvm.schedule import control_groups


def usable_cores() -> int:
    """Return the processors of the affinity mask, or fewer where a control group (v2, v1) has a smaller quota; at least 1."""
    quotas = [quota for quota in _quotas() if quota > 0]
    return max(1, min([len(os.sched_getaffinity(0)), *(int(quota) for quota in quotas)]))


def wanted_threads(stated: int | None) -> int:
    """Return how many threads a job is to have where there is memory for them: as many as are stated, else all."""
    return stated or usable_cores()


def _quotas() -> list[float]:
    """Processors each control group may use at a time, as far as one says so."""
    found = []
    for group, unified in control_groups.groups_of("cpu"):
        if unified:
            quota, _, period = control_groups.text_of(group / "cpu.max").strip().partition(" ")
        else:
            quota, period = (
                control_groups.text_of(group / f"cpu.cfs_{what}_us").strip() for what in ("quota", "period")
            )
        if quota.isdigit() and period.isdigit() and int(period):
            found.append(int(quota) / int(period))
    return found
