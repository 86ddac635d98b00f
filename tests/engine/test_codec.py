"""States as data: tags instead of module paths, and fields that were added since a file was written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from streamsvm.class_tags import class_of, saved_as
from streamsvm.engine.checkpoint import Decoder, Encoder
from streamsvm.errors import StreamSVMError
from streamsvm.losses import Huber
from streamsvm.rows import Dense


@dataclass
class Untagged:
    value: int = 1


@saved_as("test.grown")
@dataclass
class Grown:
    """Three fields."""

    first: int
    second: float = 2.5
    third: str = "three"


def round_trip(value: Any) -> tuple[Any, Any]:
    encoder = Encoder()
    tree = encoder.encode(value)
    return tree, Decoder(encoder.tensors.__getitem__).decode(tree)


def test_codec_class_is_named_by_its_tag_and_never_by_its_module() -> None:
    tree, back = round_trip({"loss": Huber(0.25), "rows": Dense(np.ones((2, 3), np.float32), 1.0)})
    assert "streamsvm" not in str(tree)
    assert back["loss"] == Huber(0.25)
    np.testing.assert_array_equal(back["rows"].values, np.ones((2, 3)))


def test_codec_class_without_a_tag_is_refused() -> None:
    with pytest.raises(StreamSVMError, match="Untagged"):
        Encoder().encode(Untagged())


def test_codec_refuses_another_number_of_fields() -> None:
    decode = Decoder(dict[str, Any]().__getitem__).decode
    assert decode({"class": "test.grown", "fields": [7, 8.0, "9"]}) == Grown(7, 8.0, "9")
    for fields in ([], [7], [1, 2, 3, 4]):
        with pytest.raises(ValueError, match="3 fields"):
            decode({"class": "test.grown", "fields": fields})


def test_codec_tag_is_given_once() -> None:
    with pytest.raises(ValueError, match=r"test\.grown"):
        saved_as("test.grown")(Untagged)
    assert class_of("test.grown") is Grown
