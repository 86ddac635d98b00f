"""Zarr directories of other programs as ``ForeignFile``: zarr-python reads their arrays after this module has checked
them.

The metadata are parsed here: only the codecs of a fixed list are accepted, every chunk must exist, and the unpacked
size of a chunk is compared with the metadata before memory is allocated for it.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from streamsvm.errors import DataError, SecurityError, quote
from streamsvm.input_files import read_whole
from streamsvm.store.foreign.matrices import (
    Foreign,
    Keys,
    RowArray,
    check_rows,
    features_of,
    labels_of,
    names_of,
    read_error,
)
from streamsvm.type_aliases import Array, DType, JsonObject, ValuesByName

LARGEST_METADATA = 16 << 20
MOST_CHUNKS = 10**7
CODECS = {"bytes", "transpose", "blosc", "zstd", "gzip", "crc32c", "sharding_indexed", "vlen-utf8"}
COMPRESSORS = {"blosc", "zstd", "gzip", "zlib", "lz4", "bz2", "shuffle", "vlen-utf8"}
"""The codecs of Zarr v2 that are accepted. Neither list has one that creates objects or runs code, as 'pickle' does."""
FIXED_TEXT = {"fixed_length_utf32": ("U", 4), "null_terminated_bytes": ("S", 1)}
"""Numpy's kind and the bytes per character, by Zarr's name of a type of text with a fixed length."""
HINT = "write the array again"
HINT_FILL = "copy the missing chunks; if they are meant to be fill values, pass --allow-fill"
LARGEST_TEXT = 1024
"""Maximum mean number of bytes of the texts of a chunk, if their length is variable."""
ABSENT = 2**64 - 1
"""The offset by which the index of a shard marks an inner chunk as never written."""


class ArrayMeta(NamedTuple):
    """The metadata of an array."""

    shape: tuple[int, ...]
    chunk: tuple[int, ...]
    """The shape of the part of the array that one file holds."""
    dtype: DType
    prefix: str
    """The start of the names of chunk files."""
    separator: str
    """The separator between the numbers in the name of a chunk file: '.' or '/'."""
    codec: str
    """The name of the compressor, 'blosc' or 'zstd'; empty for any other."""
    inner: tuple[int, ...] | None = None
    """The shape of the inner chunks of a shard; None if the array is not sharded."""

    @property
    def chunks(self) -> int:
        """The number of chunks."""
        return math.prod(-(-n // c) for n, c in zip(self.shape, self.chunk, strict=True))

    @property
    def chunk_bytes(self) -> int:
        """Bytes of an unpacked chunk."""
        return math.prod(self.chunk) * self.dtype.itemsize

    def key(self, index: tuple[int, ...]) -> str:
        """Return the file name of a chunk, which follows from its place in the grid and is never read from a file."""
        return self.prefix + self.separator.join(map(str, index))


def read_node_type(directory: Path) -> str | None:
    """Return 'array' or 'group'; None if the directory is neither."""
    if (directory / "zarr.json").is_file():
        node_type: str | None = _read(directory / "zarr.json").get("node_type")
        return node_type
    return next((kind for kind in ("array", "group") if (directory / f".z{kind}").is_file()), None)


def read_attributes(directory: Path) -> JsonObject:
    """Return the attributes of a group or array. Raises DataError E-META."""
    if (directory / "zarr.json").is_file():
        attributes = _read(directory / "zarr.json").get("attributes", {})
        if not isinstance(attributes, dict):
            raise DataError(f"the attributes of {directory} are no table", code="E-META", hint=HINT)
        return attributes
    path = directory / ".zattrs"
    return _read(path) if path.is_file() else {}


def read_array_meta(directory: Path) -> ArrayMeta:
    """Read and check the metadata of an array. Raises DataError E-META, and SecurityError for symbolic links and codecs
    that are not accepted.
    """
    if directory.is_symlink():
        raise SecurityError(f"{directory} is a symbolic link", hint="name the directory itself")
    v3 = directory / "zarr.json"
    try:
        return _check_meta(
            _v3(_read(v3), v3) if v3.is_file() else _v2(_read(directory / ".zarray"), directory / ".zarray")
        )
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise DataError(
            f"{directory} is described in a way we do not know: {error}", code="E-META", hint=HINT
        ) from error


def _check_meta(meta: ArrayMeta) -> ArrayMeta:
    """Return the metadata unchanged. Raises ValueError if its fields contradict each other or exceed a limit."""
    if len(meta.chunk) != len(meta.shape) or (meta.inner is not None and len(meta.inner) != len(meta.shape)):
        raise ValueError(f"chunks of {meta.chunk} in an array of {meta.shape}")
    if meta.separator not in (".", "/"):
        raise ValueError(f"{quote(meta.separator, 40)} between the numbers of a chunk's name")
    if 0 in meta.chunk or 0 in (meta.inner or ()):
        raise ValueError(f"chunks of {meta.inner or meta.chunk}")
    if meta.chunks > MOST_CHUNKS:
        raise ValueError(f"{meta.chunks} chunks")
    return meta


def _v3(node: JsonObject, path: Path) -> ArrayMeta:
    if node["node_type"] != "array" or node["chunk_grid"]["name"] != "regular":
        raise ValueError("no array with a regular grid")
    chunk = _sizes(node["chunk_grid"]["configuration"]["chunk_shape"])
    encoding = node["chunk_key_encoding"]
    separator = encoding.get("configuration", {}).get("separator", "/" if encoding["name"] == "default" else ".")
    prefix = f"c{separator}" if encoding["name"] == "default" else ""
    names = [codec["name"] for codec in node["codecs"]]
    inner = None
    if names == ["sharding_indexed"]:
        sharding = node["codecs"][0]["configuration"]
        inner = _sizes(sharding["chunk_shape"])
        if sharding.get("index_location", "end") != "end":
            raise ValueError("the index of a shard is not at its end")
        names += [codec["name"] for codec in sharding["codecs"]]
    _check_codecs(names, CODECS, path)
    return ArrayMeta(_sizes(node["shape"]), chunk, _dtype(node["data_type"]), prefix, separator, _codec(names), inner)


def _v2(node: JsonObject, path: Path) -> ArrayMeta:
    parts = [p for p in (node.get("compressor"), *(node.get("filters") or ())) if p]
    names = [part["id"] for part in parts]
    _check_codecs(names, COMPRESSORS, path)
    dtype = _dtype(node["dtype"])
    return ArrayMeta(
        _sizes(node["shape"]), _sizes(node["chunks"]), dtype, "", node.get("dimension_separator", "."), _codec(names)
    )


def _check_codecs(names: list[str], supported: set[str], path: Path) -> None:
    if unknown := [name for name in names if name not in supported]:
        message = f"{path} asks for the codec {quote(unknown[0], 40)}"
        raise SecurityError(message, hint=f"codecs that are accepted: {', '.join(sorted(supported))}")


def _codec(names: list[str]) -> str:
    return next((name for name in names if name in ("blosc", "zstd")), "")


def _sizes(values: Any) -> tuple[int, ...]:
    sizes = tuple(int(v) for v in values)
    if any(v < 0 for v in sizes):
        raise ValueError(f"impossible sizes {sizes}")
    return sizes


def _dtype(name: Any) -> DType:
    if isinstance(name, dict) and name.get("name") in FIXED_TEXT:
        letter, width = FIXED_TEXT[name["name"]]
        return np.dtype(f"{letter}{int(name['configuration']['length_bytes']) // width}")
    if not isinstance(name, str):
        raise TypeError(f"a type of {quote(name, 40)}")
    return np.dtype("U") if name in ("string", "|O") else np.dtype(name)


def _read(path: Path) -> JsonObject:
    try:
        node = json.loads(read_whole(path, LARGEST_METADATA, follow=True))
    except (OSError, ValueError, RecursionError) as error:
        raise read_error(error, f"{path} cannot be read", "E-META", HINT) from error
    if not isinstance(node, dict):
        raise DataError(f"{path} does not describe anything", code="E-META", hint=HINT)
    return node


def check_chunks(directory: Path, meta: ArrayMeta, *, allow_fill: bool) -> None:
    """Raise DataError E-CHUNKS if a chunk is missing, E-CRC if one is empty; SecurityError for a symbolic link."""
    missing, total = [], 0
    for index in _grid(meta, 0, meta.shape[0] if meta.shape else 0):
        path = directory / meta.key(index)
        total += 1
        if path.is_symlink():
            raise SecurityError(f"{path} is a symbolic link", hint="copy the array with its chunks")
        if not path.is_file() or (meta.inner and _lacks_inner_chunks(path, meta, index)):
            missing.append(path)
        elif path.stat().st_size == 0:
            raise DataError(f"{path} is empty", code="E-CRC", hint="copy the array again")
    if missing and not allow_fill:
        message = f"{len(missing)} of {total} chunks of {directory} are missing, the first is {missing[0].name}"
        raise DataError(f"{message}: they would read as fill values", code="E-CHUNKS", hint=HINT_FILL)


def _lacks_inner_chunks(shard: Path, meta: ArrayMeta, place: tuple[int, ...]) -> bool:
    """Return whether the shard at ``place`` of the grid lacks an inner chunk that overlaps the array.

    The shard ends with its index, an offset and a length per inner chunk, and the crc32c of the index. Inner chunks
    outside the array are never written.
    """
    assert meta.inner is not None
    grid = tuple(-(-c // i) for c, i in zip(meta.chunk, meta.inner, strict=True))
    count = math.prod(grid)
    with open(shard, "rb") as file:
        file.seek(max(0, shard.stat().st_size - 16 * count - 4))
        index = np.frombuffer(file.read(16 * count), "<u8").reshape(-1, 2)
    if len(index) < count:
        return True
    absent = (index[:, 0] == ABSENT).reshape(grid)
    inside = [-(-min(c, n - k * c) // i) for n, c, i, k in zip(meta.shape, meta.chunk, meta.inner, place, strict=True)]
    return bool(absent[tuple(slice(0, end) for end in inside)].any())


def _grid(meta: ArrayMeta, start: int, stop: int) -> Iterator[tuple[int, ...]]:
    """Yield the places in the grid of the chunks that contain rows [start, stop)."""
    rows = range(start // meta.chunk[0], -(-stop // meta.chunk[0]))
    others = (range(-(-n // c)) for n, c in zip(meta.shape[1:], meta.chunk[1:], strict=True))
    sides = (rows, *others)
    return product(*sides) if all(sides) else iter(())  # an array without columns may claim 2^63 rows


def check_sizes(directory: Path, meta: ArrayMeta, start: int, stop: int) -> None:
    """Raise DataError E-LIMIT if a chunk of rows [start, stop) unpacks, by its own header, to another size than the
    metadata give.
    """
    if meta.codec not in ("blosc", "zstd") or meta.inner:
        return
    for index in _grid(meta, start, stop):
        path = directory / meta.key(index)
        if not path.is_file():
            continue
        with open(path, "rb") as file:
            size = _size_when_unpacked(file.read(32), meta.codec)
        if size is None:
            continue
        is_text = meta.dtype.itemsize == 0 and 0 <= size <= LARGEST_TEXT * math.prod(meta.chunk)
        if size != meta.chunk_bytes and not is_text:
            message = f"{path} unpacks to {size} bytes, expected {meta.chunk_bytes or 'text'}"
            raise DataError(message, code="E-LIMIT", hint="get the array again")


def _size_when_unpacked(head: bytes, codec: str) -> int | None:
    """Return the unpacked bytes by the head of a compressed chunk: None if it does not say, -1 if it is damaged."""
    if codec == "blosc":
        return int.from_bytes(head[4:8], "little") if len(head) >= 16 else -1
    import zstandard

    try:
        size = zstandard.frame_content_size(head)
    except zstandard.ZstdError:
        return -1
    return None if size < 0 else int(size)


class ZArray:
    """An array of a Zarr directory, as a ``RowArray``."""

    can_slice = False

    def __init__(self, root: Path, key: str, *, allow_fill: bool) -> None:
        self._directory = root / key if key else root
        self.name = f"{root}:{key}" if key else str(root)
        self._meta: ArrayMeta = read_array_meta(self._directory)
        self.shape, self.chunk, self.dtype = self._meta.shape, self._meta.chunk, self._meta.dtype
        check_rows(self.name, self.shape)
        check_chunks(self._directory, self._meta, allow_fill=allow_fill)
        self._array: Any = None

    def read(self, start: int, stop: int) -> Array:
        """Return rows [start, stop) in the array's own type; text as str. Raises DataError, StorageError."""
        check_sizes(self._directory, self._meta, start, stop)
        if self._array is None:
            self._array = _open_array(self._directory, self.name)
        try:
            values = np.asarray(self._array[start:stop])
            return np.array(values.tolist(), np.str_) if self.dtype.kind == "U" else values
        except Exception as error:  # codecs raise errors of any class for damaged data
            text = f"{self.name} cannot be read in rows {start + 1}-{stop}"
            raise read_error(error, text, "E-CRC", "get the array again") from error


def _open_array(directory: Path, name: str) -> Any:
    """Open an array with zarr-python. Raises DataError E-META for metadata that it does not accept."""
    import zarr

    zarr.config.set({"async.concurrency": 1, "threading.max_workers": 1})
    try:
        with warnings.catch_warnings():  # it warns of types that other versions of zarr-python may not read
            warnings.simplefilter("ignore")
            return zarr.open_array(directory, mode="r")
    except Exception as error:  # it raises errors of any class for invalid metadata
        raise read_error(error, f"the metadata of {name} cannot be read", "E-META", "write the array again") from error


class ZDirectory:
    """A Zarr directory as a ``ForeignFile``; if the directory is itself an array, its key is ''."""

    def __init__(self, path: Path, *, allow_fill: bool) -> None:
        self._path, self._allow_fill = path, allow_fill
        self.name = str(path)

    def kind(self, key: str) -> str | None:
        """Return 'array' or 'group'; None if there is no member ``key``."""
        return read_node_type(self._path / key.strip("/"))

    def attributes(self, key: str) -> ValuesByName:
        """Return the attributes of a member."""
        return read_attributes(self._path / key.strip("/"))

    def array(self, key: str, *, may_lack_chunks: bool = False) -> RowArray:
        """Open an array. Raises DataError, SecurityError."""
        return ZArray(self._path, key.strip("/"), allow_fill=self._allow_fill or may_lack_chunks)

    def members(self, key: str) -> list[str]:
        """Return the names of the members of a group."""
        return sorted(place.name for place in (self._path / key.strip("/")).iterdir() if place.is_dir())


def open_zarr_directory(path: Path, keys: Keys) -> Foreign:
    """Open the arrays in a directory that ``keys`` names. If the directory is itself an array, it holds the features
    and there are no labels. Raises DataError, SecurityError.
    """
    file = ZDirectory(path, allow_fill=keys.allow_fill)
    if file.kind("") == "array":
        return Foreign(features_of(file, ""), None, lambda: None)
    labels = None if keys.labels is None else labels_of(file, keys.labels)
    features = features_of(file, keys.features)
    return Foreign(features, labels, lambda: None, names_of(file, keys.features, features.columns))
