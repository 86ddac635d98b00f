"""The commands by name: where each is made and what it does, in the words its help and the list of commands share."""

from __future__ import annotations

from typing import NamedTuple


class Command(NamedTuple):
    """A command that is not imported yet."""

    module: str
    """Its function ``made`` returns the click command of a name."""
    summary: str
    """What it does, in one line."""


COMMANDS = {
    "synth": Command(
        "streamsvm.cli.jobs",
        "Make a store of random rows from the generator NAME: any number of rows, the same for the same seed.",
    ),
    "ingest": Command(
        "streamsvm.cli.jobs", "Read SOURCE files (CSV, svmlight, Parquet, npy, HDF5, Zarr) into a store."
    ),
    "info": Command("streamsvm.cli.inspect", "Show what a store or a model is, without reading its rows."),
    "verify": Command("streamsvm.cli.inspect", "Read all of a store or a model and report everything that is damaged."),
    "embed": Command(
        "streamsvm.cli.jobs", "Make a store of kernel (Nystrom) features of a store's rows, for several fits."
    ),
    "plan": Command("streamsvm.cli.jobs", "Show what a fit would need: memory term by term, time per pass."),
    "fit": Command("streamsvm.cli.jobs", "Train a model on STORE within a memory budget, with a certificate."),
    "tune": Command("streamsvm.cli.jobs", "Cross-validate a grid of landmarks, gamma and C: tables and a heat map."),
    "predict": Command(
        "streamsvm.cli.jobs", "Write a model's prediction for every row of a store or of files, in order."
    ),
    "evaluate": Command("streamsvm.cli.jobs", "Compare a model's predictions with the labels of a store or of files."),
    "run": Command(
        "streamsvm.cli.jobs",
        "Execute the steps of a job file in order; its paths are relative to the current directory.",
    ),
    "doctor": Command(
        "streamsvm.cli.inspect",
        "Show what this machine offers: packages, memory, disk. Writes and removes 64 MiB here.",
    ),
}
"""In the order of the help."""
