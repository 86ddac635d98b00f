"""What ``ingest`` and ``synth`` are asked for."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from pathlib import Path

from streamsvm.errors import UsageError
from streamsvm.store.format.row_layout import LAYOUTS
from streamsvm.store.sources import SourceOptions
from streamsvm.store.sources.options import UNSTATED


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestJob:
    """What to read, how, and where to. Fields without a docstring are those of ``SourceOptions``."""

    sources: tuple[Path, ...]
    store: Path
    format: str = "auto"
    label: str | None = None
    positive: str | None = None
    """One class against the rest: the label that becomes class 1."""
    label_threshold: float | None = None
    """Numbers as labels: from here on class 1, below class 0."""
    labels: Path | None = None
    weight: str | None = None
    layout: str = "auto"
    """'dense', 'csr', or 'auto': csr for svmlight that is mostly empty and for tables with many one-hot columns."""
    drop: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    calendar: tuple[str, ...] = ()
    test_fraction: float = 0.0
    """Share of the rows that go to the test store, chosen by a hash of seed and row number."""
    test_store: Path | None = None
    """None: NAME.test.zarr beside NAME.zarr."""
    seed: int = 0
    header: bool = True
    delimiter: str | None = None
    chunk_bytes: int = 4 << 20
    memory: int | None = None
    """Bytes the process may use; refused when ingest needs more."""
    index_base: int | None = None
    features: int | None = None
    overwrite: bool = False
    repair: bool = False
    """Write again only the damaged chunks of a store, from the sources and with the options it was made with."""
    allow_no_final_newline: bool = False
    ignore_qid: bool = False
    shuffle: bool = False
    """Store the rows in random order, drawn from the seed: an exact shuffle in a second pass, through a scratch file."""
    expect_rows: int | None = None
    """How many rows the sources hold together; anything else is an error."""
    multiline: bool = False
    missing: str = "error"
    hash_bits: int | None = None
    store_format: str | None = None
    """'zarr' or 'hdf5'; None goes by the name of the store: HDF5 for NAME.h5, else Zarr."""
    compression: str = "none"
    """'lz4', 'none', or 'auto': lz4 for the arrays it makes much smaller, by trying it on the first rows. Zarr only."""
    text_labels: bool = False
    sort: bool = False
    on_duplicate: str = "error"
    labels_key: str = "y"
    features_key: str = "X"
    allow_fill: bool = False
    max_bad: str = "1%"
    on_bad_line: str = "error"
    cluster: str | None = None
    """Dask workers to read the files: tcp://127.0.0.1:8786, tls://HOST:8786, local:N (started here), scheduler-file:PATH.
    """
    insecure_network: bool = False
    """Allow a cluster that is neither encrypted nor on this machine."""

    def __post_init__(self) -> None:
        if self.layout not in LAYOUTS:
            raise UsageError(f"there is no layout '{self.layout}'", hint=f"choose from {', '.join(LAYOUTS)}")
        if not 0.0 <= self.test_fraction < 1.0:
            raise UsageError(f"a test fraction of {self.test_fraction} is not in [0, 1)")
        if self.chunk_bytes < 4096:
            raise UsageError(f"chunks of {self.chunk_bytes} bytes are too small", hint="4 MiB is a good size")

    def options(self) -> SourceOptions:
        """The part that says how to read."""
        shared = {f.name for f in fields(SourceOptions)} - UNSTATED
        return SourceOptions(**{name: getattr(self, name) for name in shared})

    def test_path(self) -> Path:
        """Where the test store goes."""
        return self.test_store or self.store.with_name(f"{self.store.stem}.test{self.store.suffix or '.zarr'}")

    def targets(self) -> list[Path]:
        """The store and, if rows are held out, the test store."""
        return [self.store, self.test_path()] if self.test_fraction else [self.store]


@dataclass(frozen=True, slots=True)
class SynthJob:
    """What ``streamsvm synth`` is asked for; the keys of a job file are these fields."""

    name: str
    store: str
    rows: int = 1_000_000
    columns: int | None = None
    """Of the generators that make any number of them: table, sparse-text, separable."""
    generator_options: dict[str, float] = field(default_factory=dict)
    """Settings of the generator, by the names of its fields: positive=0.01 of a table."""
    seed: int = 0
    chunk_bytes: int = 4 << 20
    test_fraction: float = 0.0
    """Share of the rows, the last ones, that goes to a store of its own: NAME.test.zarr beside NAME.zarr."""
    overwrite: bool = False

    def __post_init__(self) -> None:
        if self.rows < 1:
            raise UsageError(f"{self.rows} rows: at least one is needed")
        if not 0.0 <= self.test_fraction < 1.0:
            raise UsageError(f"a test fraction of {self.test_fraction} is not in [0, 1)")

    @property
    def training_rows(self) -> int:
        return max(1, self.rows - round(self.rows * self.test_fraction))

    def test_path(self) -> Path:
        """Where the test store goes; as for ``ingest``."""
        store = Path(self.store)
        return store.with_name(f"{store.stem}.test{store.suffix or '.zarr'}")
