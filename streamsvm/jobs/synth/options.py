"""What ``synth`` is asked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from streamsvm.config.fields import Option
from streamsvm.jobs.option_groups import AT_LEAST_ONE, NewStoreOptions

GENERATORS = "streamsvm.store.generators:GENERATORS"


@dataclass(frozen=True)
class SynthJob(NewStoreOptions):
    """What ``streamsvm synth`` is asked for; the keys of a job file are these fields and those of the groups."""

    name: Annotated[str, Option("The generator.", choices=GENERATORS, beside=("names",))]
    store: Annotated[
        str, Option("Where the store is written; of table and names also NAME.csv, rows of text as people have them.")
    ]
    rows: Annotated[
        int, Option("How many rows to make, those for testing included.", "output", bounds=AT_LEAST_ONE)
    ] = 1_000_000
    columns: Annotated[
        int | None,
        Option("How many columns, of generators that make any number of them.", "output", bounds=AT_LEAST_ONE),
    ] = None
    generator_options: Annotated[
        dict[str, float],
        Option("Settings of the generator, by name.", "output", choices=GENERATORS, settings_of="generator"),
    ] = field(default_factory=dict)

    @property
    def is_file(self) -> bool:
        """Whether a file of text is made, and no store."""
        return Path(self.store).suffix == ".csv"

    @property
    def training_rows(self) -> int:
        """Rows that are not set aside for testing: the first ones."""
        return max(1, self.rows - round(self.rows * self.test_fraction))

    def test_path(self) -> Path:
        """Where the test store goes; as for ``ingest``."""
        store = Path(self.store)
        return store.with_name(f"{store.stem}.test{store.suffix or '.zarr'}")
