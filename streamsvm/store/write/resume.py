"""Open stores for writing: lock them, check the disk space, resume interrupted builds, repair damaged stores."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from streamsvm.config.units import mib
from streamsvm.durable import PARTIAL
from streamsvm.errors import ConfigError, DataError, ExistsError, StorageError, UsageError, quote
from streamsvm.input_files import find_url
from streamsvm.locks import hold_lock
from streamsvm.object_store import object_facts
from streamsvm.outputs import STORE, Kind, Output, output_path
from streamsvm.store import create
from streamsvm.store.format import manifest as manifests
from streamsvm.store.format.arrays import encoding_of
from streamsvm.store.write.writer import Journal, StoreWriter, read_unfinished_build
from streamsvm.type_aliases import JsonObject
from streamsvm.working_copies import find_working_folder

SPACE_FACTOR = 1.05
"""The disk space that must be free, as a multiple of the estimated size of the store."""
Opener = Callable[[Path, bool, int], StoreWriter]
"""Returns a writer for a store, given its path, whether its rows are sparse, and the bytes of a chunk."""


@contextmanager
def lock_all(targets: Sequence[Path]) -> Iterator[None]:
    """Lock several stores while the context lasts. Raises ExistsError E-LOCKED."""
    with ExitStack() as stack:
        for target in targets:
            stack.enter_context(hold_lock(output_path(target)))
        yield


def open_resumable_builds(
    targets: Sequence[Path], settings: JsonObject, defaults: JsonObject, *, overwrite: bool, **options: Any
) -> Opener:
    """Return an opener of writers that continue an interrupted run with the same settings.

    Settings that the interrupted run did not record are assumed to have their ``defaults``. Raises ExistsError if a
    target exists and is not such a build; ConfigError E-CONFIG, which names the differences, if the interrupted build
    has other settings.
    """
    unfinished = [_settings_of_unfinished_build(target) for target in targets]
    recorded = unfinished[0]
    resumes = recorded is not None and {**defaults, **recorded} == settings
    for target, other in zip(targets, unfinished, strict=True):
        if overwrite or resumes or _is_free(target):
            continue
        if other is None or (target / manifests.FILE).exists():
            raise ExistsError(f"{target} exists already", hint="choose another name, or pass --overwrite")
        raise _settings_error(target, other, settings)

    def opener(path: Path, sparse: bool, chunk_bytes: int) -> StoreWriter:
        writer = create(path, sparse=sparse, chunk_bytes=chunk_bytes, overwrite=True, **options)
        writer.journal = Journal(recorded if recorded is not None and resumes else settings)
        return writer

    return opener


def store_outputs(targets: Sequence[Path], *, may_exist: bool, kind: Kind = STORE) -> list[Output]:
    """Return the outputs of a job that writes stores: the stores, and the folders in which replacements are built."""
    building = [target.with_name(f".{target.name}.building") for target in targets]
    return [
        *(Output(target, kind, may_exist) for target in targets),
        *(Output(place, kind, may_exist=True) for place in building),
    ]


def _is_free(target: Path) -> bool:
    """Return whether a path does not exist or holds only partial files of a run that was killed at its start."""
    if not target.is_dir():
        return not target.exists()
    return all(path.name.endswith(PARTIAL) for path in target.iterdir())


def _settings_of_unfinished_build(target: Path) -> JsonObject | None:
    """Return the settings of an interrupted build of ``target``; None if there is none."""
    replacing = target.with_name(f".{target.name}.building")
    return read_unfinished_build(target if not (target / manifests.FILE).exists() else replacing)


def _settings_error(target: Path, recorded: JsonObject, current: JsonObject) -> ConfigError:
    """Return the error for an interrupted build whose recorded settings differ from the current ones."""
    changed = [name for name in {**recorded, **current} if recorded.get(name) != current.get(name)]
    shown = ", ".join(f"{name} {quote(recorded.get(name))} -> {quote(current.get(name))}" for name in changed)
    return ConfigError(
        f"{target} was started with other settings: {shown}",
        code="E-CONFIG",
        hint="run the original command again to continue, or pass --overwrite to start again",
    )


def open_for_repair(sources: Sequence[Path]) -> Opener:
    """Return an opener of writers that rewrite only damaged units; it raises DataError E-SOURCE for changed sources."""
    return lambda path, sparse, _: _repair_writer(path, sources, sparse)


def _repair_writer(path: Path, sources: Sequence[Path], sparse: bool) -> StoreWriter:
    manifest = manifests.read(path)
    if sparse != (manifest.kind == "csr"):
        raise UsageError(f"{path} is a {manifest.kind} store", hint="give the options it was ingested with")
    _check_sources(sources, manifest.facts.get("sources", []))
    nbytes = manifest.chunk_rows * (8 if sparse else 4 * manifest.columns)
    writer = create(path, sparse=sparse, chunk_bytes=nbytes, overwrite=True, store_format=manifest.store)
    writer.replaces, writer.repairs = False, manifest
    writer.encoding = encoding_of(manifest.kind, manifest.columns, manifest.facts)
    writer.backend.use_codecs(dict(manifest.packed))
    return writer


def _check_sources(sources: Sequence[Path], recorded: list[JsonObject]) -> None:
    if len(sources) != len(recorded):
        hint = "name all files that the store was made from, in the same order"
        raise UsageError(f"{len(sources)} sources are named; the store was made from {len(recorded)}", hint=hint)
    for path, facts in zip(sources, recorded, strict=True):
        if (url := find_url(path)) is not None:
            kind, current, expected = "ETag", object_facts(url).etag, facts.get("etag")
        else:
            with open(path, "rb") as file:
                kind, current, expected = "sha256", hashlib.file_digest(file, "sha256").hexdigest(), facts["sha256"]
        if current is None or current != expected:
            raise DataError(
                f"{url or path} is not what the store was made from: {kind} {str(current)[:16]}, expected {str(expected)[:16]}",
                code="E-SOURCE",
                hint="restore the source, or ingest again with --overwrite",
            )


def require_space(target: Path, nbytes: float) -> None:
    """Raise StorageError E-NOSPACE if the disk has too little space for a store of about ``nbytes``.

    The files of an interrupted build count as free space, because the build uses them; those of a finished store do
    not. A store at a URL needs none.
    """
    if find_working_folder(target) is not None:
        return
    free, needed = shutil.disk_usage(target.parent).free, round(nbytes * SPACE_FACTOR)
    written = sum(f.stat().st_size for f in target.rglob("*") if f.is_file()) if target.is_dir() else 0
    if free + (0 if (target / manifests.FILE).exists() else written) < needed:
        raise StorageError(
            f"{target.parent} has {mib(free)} free, {target} needs about {mib(needed, round_up=True)}",
            code="E-NOSPACE",
            hint="free space, or choose another disk",
        )
