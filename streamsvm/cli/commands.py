"""The commands by name: where each is made and what it does, in the words its help and the list of commands share."""

from __future__ import annotations

from typing import NamedTuple

from streamsvm.config.job_file import STEPS


class Command(NamedTuple):
    """A command that is not imported yet."""

    module: str
    """Its function ``made`` returns the click command of a name."""
    summary: str
    """What it does, in one line."""


COMMANDS = {
    **{name: Command("streamsvm.cli.jobs", step.summary) for name, step in STEPS.items()},
    "plan": Command("streamsvm.cli.jobs", "Show what a fit would need: memory term by term, time per pass."),
    "run": Command(
        "streamsvm.cli.jobs",
        "Execute the steps of a job file in order; its paths are relative to the current directory.",
    ),
    "info": Command("streamsvm.cli.inspect", "Show what a store or a model is, without reading its rows."),
    "verify": Command("streamsvm.cli.inspect", "Read all of a store or a model and report everything that is damaged."),
    "doctor": Command(
        "streamsvm.cli.inspect",
        "Show what this machine offers: packages, memory, disk. Writes and removes 64 MiB here.",
    ),
}
"""In the order of the help: first the jobs."""
