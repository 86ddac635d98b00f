"""What kind of rows an object of a program is."""

from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset
import pytest
import scipy.sparse

from streamsvm.kinds_of_rows import RowKind, kind_of, needs_ingest

NUMBERS = np.ones((4, 2))


class Annotated:
    """An AnnData, as far as it is asked."""

    X, obs, var_names, shape = NUMBERS, {"y": [0, 1, 0, 1]}, ("a", "b"), (4, 2)


class Lazy:
    """A lazy frame of polars, as far as it is asked."""

    def sink_parquet(self, path: Any) -> None:
        """Write the rows."""


TABLE = pa.table({"a": [1.0, 2.0]})
KINDS: dict[str, tuple[Any, RowKind]] = {
    "array": (NUMBERS, RowKind.ARRAY),
    "sparse": (scipy.sparse.csr_array(NUMBERS), RowKind.ARRAY),
    "annotated": (Annotated(), RowKind.ANNOTATED),
    "dask array": (da.ones((4, 2)), RowKind.DASK_ARRAY),
    "arrow": (TABLE, RowKind.FRAME),
    "arrow reader": (TABLE.to_reader(), RowKind.STREAM),
    "dataset": (pyarrow.dataset.dataset(TABLE), RowKind.DATASET),
    "scanner": (pyarrow.dataset.dataset(TABLE).scanner(), RowKind.DATASET),
    "lazy": (Lazy(), RowKind.LAZY_FRAME),
    "frame": (pd.DataFrame({"a": [1.0]}), RowKind.FRAME),
    "frame with a column of a name that other kinds have": (pd.DataFrame({"obs": ["x"]}), RowKind.FRAME),
    "vector": (NUMBERS[0], RowKind.OTHER),
    "path": ("rows.csv", RowKind.FILES),
    "paths": (["a.csv", "b.csv"], RowKind.FILES),
    "nothing": (None, RowKind.FILES),
}


@pytest.mark.parametrize(("X", "expected"), KINDS.values(), ids=KINDS)
def test_kind_of_rows(X: Any, expected: RowKind) -> None:
    assert kind_of(X) is expected


@pytest.mark.parametrize(
    ("X", "expected"),
    [
        (NUMBERS, False),
        (pd.DataFrame({"a": [1.0]}), False),
        (pd.DataFrame({"a": ["x"]}), True),
        (TABLE, True),
        ("rows.csv", True),
        (da.ones((4, 2)), True),
        (Annotated(), True),
        (Lazy(), True),
        (NUMBERS[0], False),
        (None, False),
    ],
)
def test_rows_that_are_not_numbers_in_memory_need_an_ingest(X: Any, expected: bool) -> None:
    assert needs_ingest(X) is expected


def test_kinds_of_rows_class_is_of_no_package_by_its_name() -> None:
    """Something that only looks like a dataset of pyarrow is none."""

    class Dataset:
        def to_batches(self) -> None:
            """Give nothing."""

    assert kind_of(Dataset()) is RowKind.OTHER
