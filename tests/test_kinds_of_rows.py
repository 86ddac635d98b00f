"""What an object of a program is, said in one place: kinds exclude one another where doors differ."""

from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset
import pytest
import scipy.sparse

from streamsvm import kinds_of_rows

NUMBERS = np.ones((4, 2))


class Annotated:
    """An AnnData, as far as it is asked."""

    X, obs, var_names, shape = NUMBERS, {"y": [0, 1, 0, 1]}, ("a", "b"), (4, 2)


class Lazy:
    """A lazy frame of polars, as far as it is asked."""

    def sink_parquet(self, path: Any) -> None:
        """Write the rows."""


TABLE = pa.table({"a": [1.0, 2.0]})
KINDS: dict[str, tuple[Any, set[str]]] = {
    "array": (NUMBERS, {"is_array", "is_given"}),
    "sparse": (scipy.sparse.csr_array(NUMBERS), {"is_array", "is_given"}),
    "annotated": (Annotated(), {"is_array", "is_given", "is_annotated", "is_on_disk"}),
    "dask": (da.ones((4, 2)), {"is_dask", "is_lazy", "is_array", "is_given", "is_on_disk"}),
    "arrow": (TABLE, {"gives_batches", "is_given", "is_array", "is_frame"}),
    "dataset": (pyarrow.dataset.dataset(TABLE), {"gives_batches", "is_given"}),
    "scanner": (pyarrow.dataset.dataset(TABLE).scanner(), {"gives_batches", "is_given"}),
    "lazy": (Lazy(), {"gives_batches", "is_given", "is_lazy_frame", "is_lazy"}),
    "frame": (pd.DataFrame({"a": [1.0]}), {"gives_batches", "is_given", "is_numeric_frame", "is_array", "is_frame"}),
    "frame with text": (pd.DataFrame({"a": ["x"]}), {"gives_batches", "is_given", "is_array", "is_frame"}),
    "vector": (NUMBERS[0], set()),
    "path": ("rows.csv", set()),
    "nothing": (None, set()),
}


@pytest.mark.parametrize(("X", "expected"), KINDS.values(), ids=KINDS)
def test_kinds_of_rows_exclude_one_another(X: Any, expected: set[str]) -> None:
    questions = [name for name in vars(kinds_of_rows) if name.startswith(("is_", "gives_"))]
    assert {name for name in questions if getattr(kinds_of_rows, name)(X)} == expected


def test_kinds_of_rows_class_is_of_no_package_by_its_name() -> None:
    """Something that only looks like a dataset of pyarrow is none."""

    class Dataset:
        def to_batches(self) -> None:
            """Give nothing."""

    assert not kinds_of_rows.gives_batches(Dataset())
