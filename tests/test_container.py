"""Files of arrays: what the safetensors library writes and reads, byte for byte, without a copy in memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of
from safetensors.numpy import load, save

from streamsvm.array_file import MAX_HEADER_BYTES, TYPES, open_container, pieces
from streamsvm.errors import DataError


def arrays() -> Any:
    shapes = arrays_of.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=4)
    array = st.sampled_from(sorted(TYPES)).flatmap(lambda dtype: arrays_of.arrays(dtype, shapes))
    return st.dictionaries(st.text("abcWZ_.\u00e9", min_size=1), array, min_size=1, max_size=6)


@given(arrays(), st.text())
def test_container_file_is_what_the_library_writes(found: dict[str, Any], text: str) -> None:
    assert b"".join(pieces(found, {"header": text})) == save(found, {"header": text})


@given(arrays())
def test_container_by_name_the_keys_are_in_order_and_the_arrays_where_they_were(found: dict[str, Any]) -> None:
    raw = b"".join(pieces(found, {"sha256": "0", "header": "{}"}, by_name=True))
    table = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])
    assert list(table) == sorted(table)
    read = load(raw)
    assert read.keys() == found.keys()
    assert all(read[name].tobytes() == array.tobytes() for name, array in found.items())


def refuse(why: str) -> DataError:
    return DataError(f"no file: {why}")


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\x00" * 7,
        (MAX_HEADER_BYTES + 1).to_bytes(8, "little"),
        (1 << 63).to_bytes(8, "little"),
        b"\x02" + b"\x00" * 7,
    ],
)
def test_container_foreign_bytes_are_refused_in_the_words_of_the_reader(tmp_path: Path, raw: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(raw)
    with pytest.raises(DataError, match="no file: "), open_container(path, refuse) as file:
        file.keys()


def test_container_array_without_a_name_in_the_format_is_an_error_of_ours() -> None:
    with pytest.raises(KeyError):
        list(pieces({"z": np.zeros(3, np.complex128)}, {}))
