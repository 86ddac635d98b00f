"""Wide raw tables whose rows do not fit the memory limit: readings to gaps of 1e-1, 1e-2 and 1e-3, CPU seconds, peak memory.

A table of ``synth table``, or of another --generator, is made (or --store names one) and fitted by ``streamsvm fit`` in a process of its own, auto choosing. CPU
is that of the whole process, its first compilation too unless an earlier run has left it; the readings are those of the solver's events.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tools.bench.tables_race import command
from tools.measure.harness import Row, arguments, scratch, show

GAPS = (1e-1, 1e-2, 1e-3)


def measured(store: Path, loss: str, options: Any) -> Row:
    """One fit of a store, as a row of the table."""
    model = store.with_name("out_of_core.model")
    words = ["fit", str(store), str(model), "--overwrite", "--json", "--loss", loss, "--memory", options.memory]
    words += ["--tolerance", str(min(GAPS)), "--time-limit", f"{options.limit:g}s"]
    words += [*(["--standardize"] if options.standardize == "yes" else [])]
    events, cpu, code = command(*words)
    row: Row = {"loss": loss, "CPU s": cpu, "exit": code}
    passes: list[Row] = []
    for line in (model.with_name(model.name + ".run") / "events.jsonl").open():
        event = json.loads(line)
        if event["event"] == "plan":  # the log goes on where an earlier run ended
            passes = []
        elif event["event"] == "pass":
            passes.append(event)
    for gap in GAPS:
        row[f"to {gap:g}"] = next((event["pass"] for event in passes if event["gap"] <= gap), None)
    for event in events:
        if event["event"] == "plan":
            row["solver"] = event["why"].split("; ")[-1]
        if event["event"] == "done":
            row |= {"readings": event["passes"], "gap": event["gap"], "rounding": event["rounding"]}
            row |= {"GB read": event["bytes_read"] / 1e9, "peak MiB": event["peak"] >> 20, "status": event["status"]}
    return row


def main() -> None:
    options = arguments(
        __doc__, store="", rows=2_000_000, columns=200_000, memory="512MiB", losses="squared_hinge", standardize="no",
        generator="table", limit=540.0,
    )  # fmt: skip
    with scratch() as directory:
        store = Path(options.store) if options.store else directory / "table.zarr"
        if not store.exists():
            size = ("--rows", str(options.rows), "--columns", str(options.columns))
            command("synth", options.generator, str(store), *size)
        rows = [measured(store, loss, options) for loss in options.losses.split(",")]
    show(f"{options.rows} x {options.columns}, {options.memory}", rows, options)


if __name__ == "__main__":
    main()
