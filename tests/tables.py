"""Tables as people have them, for tests: text beside numbers, values that are missing."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np

ROWS = 400
NAMES = ("age", "zone", "plan", "charged")


def passengers(rows: int, seed: int) -> list[dict[str, Any]]:
    """Rows with missing ages and plans, zones that are numbers but mean places, and labels."""
    rng = np.random.default_rng(seed)
    table = []
    for _ in range(rows):
        age, zone = round(float(rng.normal(40, 12)), 1), int(rng.integers(1, 6))
        plan = str(rng.choice(["basic", "plus", "pro"]))
        left = age + 8 * zone + 10 * (plan == "pro") + rng.normal(0, 8) > 66
        row = {"age": age, "zone": zone, "plan": plan, "charged": round(float(rng.gamma(2, 30)), 2)}
        hidden = {name: "" for name in ("age", "plan") if rng.random() < 0.1}
        table.append(row | hidden | {"left": "yes" if left else "no"})
    return table


def write_csv(path: Path, table: list[dict[str, Any]], names: tuple[str, ...], **form: Any) -> Path:
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, names, extrasaction="ignore", lineterminator="\n", **form)
        writer.writeheader()
        writer.writerows(table)
    return path
