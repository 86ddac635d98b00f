"""The Zarr store: the reader and the writer of one fixed layout; neither imports zarr.

STORE/manifest.json                       written last
STORE/X/c.<i>.0                           dense: float32 rows
STORE/X/{data,indices,indptr}/c.<i>       CSR in the AnnData encoding
STORE/y/c.<i>  STORE/weight/c.<i>         int32 class codes or float64 numbers, float32 row weights
STORE/zarr.json  STORE/X/zarr.json ...    for other programs; never read here, as they follow from the manifest

Each unit is a file: the values, then their crc32c.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crc32c import crc32c

from streamsvm import durable
from streamsvm.errors import DataError
from streamsvm.store.disk_reads import CRC_BYTES, Place, UnitArray
from streamsvm.store.format import compression
from streamsvm.store.format import manifest as manifests
from streamsvm.store.format.arrays import FILL, INDPTR, MATRIX, ArraySpec, count_items, specs_of
from streamsvm.store.format.manifest import Manifest
from streamsvm.store.reader import DiskStore, Part
from streamsvm.store.write.chunking import UnitCutter
from streamsvm.type_aliases import Array, Handle, JsonObject

ZARR_JSON = "zarr.json"


def metadata_files(
    specs: Mapping[str, ArraySpec], items: Mapping[str, int], columns: int, version: int, packed: Mapping[str, str]
) -> dict[str, bytes]:
    """Return the contents of the ``zarr.json`` files by their path in the store; ``items``: the items of each array."""
    files = {ZARR_JSON: _group_node({"streamsvm": {"format": version}})}
    if INDPTR in specs:
        shape = [items[INDPTR] - 1, columns]
        csr = {"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": shape}
        files[f"{MATRIX}/{ZARR_JSON}"] = _group_node(csr)
    return files | {
        f"{name}/{ZARR_JSON}": _array_node(spec, items[name], packed.get(name)) for name, spec in specs.items()
    }


def _group_node(attributes: JsonObject) -> bytes:
    return _encode_node({"zarr_format": 3, "node_type": "group", "attributes": attributes})


def _array_node(spec: ArraySpec, items: int, packed: str | None) -> bytes:
    """Return the metadata of a Zarr v3 array with the codecs bytes, blosc if it is compressed, and crc32c."""
    width = [spec.width] if spec.width else []
    compressor = [] if packed is None else [compression.describe_codec(spec)]
    codecs = [{"name": "bytes", "configuration": {"endian": "little"}}, *compressor, {"name": "crc32c"}]
    return _encode_node(
        {
            "zarr_format": 3,
            "node_type": "array",
            "shape": [items, *width],
            "data_type": spec.dtype,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(spec.shape)}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "."}},
            "fill_value": FILL[spec.dtype],
            "codecs": codecs,
            "attributes": {},
            "dimension_names": ["row", "feature"] if spec.width else [spec.name.rpartition("/")[2]],
        }
    )


def _encode_node(node: JsonObject) -> bytes:
    return json.dumps(node, indent=1).encode()


def unit_file_name(directory: Path | str, spec: ArraySpec) -> tuple[str, str]:
    """Return the parts of the path or URL of a unit before and after the number of the unit."""
    return f"{directory}/{spec.name}/c.", ".0" if spec.width else ""


@dataclass(slots=True)
class ZarrBackend:
    """Writes the arrays of a store to a Zarr v3 directory, one file per unit; a ``StoreBackend``."""

    packed: dict[str, str] = field(default_factory=dict)
    """The codec of each compressed array."""
    name: str = "zarr"
    _directory: Path = Path()
    _cutter: UnitCutter | None = None
    _crcs: dict[str, list[int]] = field(default_factory=dict)
    _stored: dict[str, list[int]] = field(default_factory=dict)
    _unsynced: list[Path] = field(default_factory=list)
    _known: dict[str, list[int]] = field(default_factory=dict)
    """The crc32c of the units that are on disk already, by array."""
    _noted: dict[str, int] = field(default_factory=dict)
    """The number of units in the journal, by array."""
    _repair: bool = False

    def begin(self, directory: Path, specs: dict[str, ArraySpec]) -> None:
        """Make the directories of the arrays."""
        self._directory = directory
        specs = compression.shrink_units(specs, self.packed)
        for name in specs:
            durable.make_directory(directory / name)
        self._crcs = {name: [] for name in specs}
        self._stored = {name: [] for name in specs if name in self.packed}
        self._cutter = UnitCutter(specs, self._write_unit)

    def use_codecs(self, packed: dict[str, str]) -> None:
        """Use these codecs, by array."""
        self.packed = packed

    def close_full_file(self, values: dict[str, Array]) -> bool:
        """Return False: no file holds more than one unit."""
        return False

    def write(self, values: dict[str, Array]) -> None:
        """Write the arrays of a chunk. Raises StorageError."""
        self._unit_cutter.append(values)

    def sync(self) -> bool:
        """Make the units written so far durable; return True, since a build can be resumed from here."""
        durable.sync(self._unsynced)
        self._unsynced.clear()
        return True

    def finish(self, columns: int) -> None:
        """Complete the last units and write the metadata of the arrays."""
        cutter = self._unit_cutter
        cutter.finish()
        metadata = metadata_files(cutter.specs, cutter.items, columns, manifests.FORMAT, self.packed)
        for name, content in metadata.items():
            durable.write_file(self._directory / name, content)
        self.sync()

    def manifest_fields(self) -> JsonObject:
        """Return the fields ``units``, ``stored`` and ``packed`` of the manifest."""
        return {"units": self._crcs, "stored": self._stored, "packed": self.packed}

    def progress(self) -> Handle:
        """Return the checksums and sizes of the units so far, as plain JSON."""
        return {"units": self._crcs, "stored": self._stored}

    def resume(self, saved: Handle, rows: int) -> None:
        """Continue after ``rows`` rows, whose units are those of ``saved``."""
        self._crcs = {name: list(crcs) for name, crcs in saved["units"].items()}
        self._stored = {name: list(sizes) for name, sizes in saved["stored"].items()}
        self._unit_cutter.skip(rows)

    def reuse(self, notes: list[Handle], *, repair: bool) -> None:
        """Record the checksums of the units on disk, so that equal units are not written again."""
        self._known, self._repair = {}, repair
        for note in notes:
            for name, crcs in note["units"].items():
                self._known.setdefault(name, []).extend(crcs)
        self._noted = {name: len(crcs) for name, crcs in self._known.items()}

    def note(self) -> Handle:
        """Return the checksums of units that became durable since the last note, as plain JSON."""
        fresh = {name: crcs[self._noted.get(name, 0) :] for name, crcs in self._crcs.items()}
        self._noted = {name: max(len(crcs), self._noted.get(name, 0)) for name, crcs in self._crcs.items()}
        return {"units": fresh}

    def abort(self) -> None:
        """Do nothing: no file is open."""

    @property
    def _unit_cutter(self) -> UnitCutter:
        assert self._cutter is not None
        return self._cutter

    def _write_unit(self, spec: ArraySpec, index: int, values: Array, _: int) -> None:
        payload: Any = values
        if spec.name in self.packed:
            payload = compression.pack(values)
            self._stored[spec.name].append(len(payload))
        crc = crc32c(payload)
        before, after = unit_file_name(self._directory, spec)
        path = Path(f"{before}{index}{after}")
        if not self._is_on_disk(path, spec, index, payload, crc):
            self._store_unit(path, payload, crc)
        self._crcs[spec.name].append(crc)

    def _store_unit(self, path: Path, payload: Any, crc: int) -> None:
        write = durable.write_file if self._repair else durable.write_part
        write(path, payload, crc.to_bytes(CRC_BYTES, "little"))
        self._unsynced.append(path)

    def _is_on_disk(self, path: Path, spec: ArraySpec, index: int, payload: Any, crc: int) -> bool:
        """Return whether an interrupted build has written this unit, or it is undamaged in the store to repair."""
        crcs = self._known.get(spec.name, [])
        if index >= len(crcs) or crcs[index] != crc:
            return False
        nbytes = memoryview(payload).nbytes + CRC_BYTES
        if not path.is_file() or path.is_symlink() or path.stat().st_size != nbytes:
            return False
        return not self._repair or path.read_bytes() == bytes(payload) + crc.to_bytes(CRC_BYTES, "little")


def open_zarr(root: Path, manifest: Manifest) -> DiskStore:
    """Open a committed Zarr store. Raises DataError."""
    return DiskStore(root, manifest, [make_part(root, manifest)], metadata_of(manifest))


def make_part(root: Path | str, manifest: Manifest) -> Part:
    """Return the arrays of a store with the places of their units; ``root``: its folder or the URL of it. Raises DataError."""
    m, specs = manifest, _specs(manifest)
    items = {name: count_items(name, m.chunks) for name in specs}
    for name, spec in specs.items():
        units = -(-items[name] // spec.unit)
        if len(m.units.get(name, ())) != units or len(m.stored.get(name, range(units))) != units:
            message = f"the manifest of {root} does not have the {units} units of '{name}'"
            raise DataError(message, code="E-META", hint="restore manifest.json, or ingest again")
    return Part(len(m.chunks), {name: _array(root, spec, m) for name, spec in specs.items()})


def metadata_of(manifest: Manifest) -> dict[str, bytes]:
    """Return the contents that the ``zarr.json`` files of a store must have, by their path in it."""
    m, specs = manifest, _specs(manifest)
    items = {name: count_items(name, m.chunks) for name in specs}
    return metadata_files(specs, items, m.columns, m.format, m.packed)


def _specs(manifest: Manifest) -> dict[str, ArraySpec]:
    m = manifest
    specs = specs_of(m.kind, m.columns, m.chunk_rows, weighted="weight" in m.units, regression=not m.classes)
    return compression.shrink_units(specs, m.packed)


def _array(root: Path | str, spec: ArraySpec, manifest: Manifest) -> UnitArray:
    crcs, sizes = manifest.units[spec.name], manifest.stored.get(spec.name)
    before, after = unit_file_name(root, spec)
    full = spec.unit_bytes

    def place(index: int) -> Place:
        nbytes = full if sizes is None else sizes[index]
        return Place(f"{before}{index}{after}", 0, nbytes, nbytes + CRC_BYTES, crcs[index])

    return UnitArray(spec, place, packed=sizes is not None)
