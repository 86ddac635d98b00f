"""Write the units of a store to objects below a URL, several at the same time, while its other files are written on this machine.

A unit is sent as soon as it is full, from a copy of its bytes, so that at most ``UPLOADS`` units are in memory beside the writer's. What
``sync`` promises, that all units so far are safe, holds when their requests have been answered. The manifest follows when the job has
ended (``working_copies``). Units of an earlier store that the new one does not have are removed before.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streamsvm import durable
from streamsvm.object_store import remove_objects, write_object
from streamsvm.store.disk_reads import CRC_BYTES
from streamsvm.store.format import manifest as manifests
from streamsvm.store.format.arrays import ArraySpec
from streamsvm.store.zarr import ZarrBackend
from streamsvm.type_aliases import Handle
from streamsvm.working_copies import UPLOADS, WorkingFolder, find_working_folder


@dataclass(slots=True)
class UploadingZarrBackend(ZarrBackend):
    """Writes a Zarr store whose folder stands for a URL; a ``StoreBackend``."""

    _uploads: deque[Future[None]] = field(default_factory=deque)
    """The requests that may be running, oldest first."""
    _senders: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(UPLOADS, "upload"))
    _units: set[str] = field(default_factory=set)
    """The names of the units of this store."""

    def begin(self, directory: Path, specs: dict[str, ArraySpec]) -> None:
        """Make the directories of the arrays. The manifest of a store that is replaced is removed, so that nobody reads mixed units."""
        if (directory / manifests.FILE).exists():
            remove_objects([self._url(directory / manifests.FILE)])
            (directory / manifests.FILE).unlink()
        ZarrBackend.begin(self, directory, specs)

    def sync(self) -> bool:
        """Wait until the units written so far are stored; return True, since a build can be resumed from here."""
        while self._uploads:
            self._uploads.popleft().result()
        return ZarrBackend.sync(self)

    def finish(self, columns: int) -> None:
        """Complete the last units, write the metadata of the arrays, and remove units that this store does not have."""
        ZarrBackend.finish(self, columns)
        folder, store = self._folder(self._directory), self._directory.name
        unused = [name for name in folder.units if name.startswith(f"{store}/") and name not in self._units]
        remove_objects(f"{folder.parent}/{name}" for name in unused)

    def resume(self, saved: Handle, rows: int) -> None:
        """Continue after ``rows`` rows, whose units are those of ``saved``."""
        ZarrBackend.resume(self, saved, rows)
        self._units |= self._folder(self._directory).units.keys()

    def abort(self) -> None:
        """Cancel the requests that have not begun, and wait for the others."""
        self._senders.shutdown(cancel_futures=True)
        self._uploads.clear()

    def _store_unit(self, path: Path, payload: Any, crc: int) -> None:
        folder = self._folder(path)
        folder.check_lock()
        if len(self._uploads) == UPLOADS:
            self._uploads.popleft().result()
        content = b"".join((payload, crc.to_bytes(CRC_BYTES, "little")))
        self._uploads.append(self._senders.submit(write_object, self._url(path), content))
        durable.step("sent", path)

    def _is_on_disk(self, path: Path, spec: ArraySpec, index: int, payload: Any, crc: int) -> bool:
        """Return whether an interrupted build has stored this unit."""
        folder = self._folder(path)
        name, crcs = str(path.relative_to(folder.folder)), self._known.get(spec.name, [])
        self._units.add(name)
        nbytes = memoryview(payload).nbytes + CRC_BYTES
        return index < len(crcs) and crcs[index] == crc and folder.units.get(name) == nbytes

    def _folder(self, path: Path) -> WorkingFolder:
        folder = find_working_folder(path)
        assert folder is not None
        return folder

    def _url(self, path: Path) -> str:
        return self._folder(path).url_of(path)
