"""Labels of rows as class codes, what classes count, and names of classes in the models of a fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets

from streamsvm.aliases import Array, ByName, JsonObject
from streamsvm.kinds_of_rows import Shaped, is_dask
from streamsvm.model import Model
from streamsvm.rows import Float64, Int32
from streamsvm.sklearn.rows.checked import balanced
from streamsvm.store.format.labels import label_text, label_type, sort_key, type_to_record
from streamsvm.types import Store


def coded(y: Array) -> tuple[Array, Int32]:
    """Return the classes in their order, and the code of each label (n,). Raises ValueError for what is no class, or but one."""
    check_classification_targets(y)
    classes, found = np.unique(y, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(f"y has one class, {classes[0]!r}: at least two classes are needed")
    return classes, found.ravel().astype(np.int32)


def labels_as_given(model: Model, y: Any) -> Array:
    """Return the labels of a model (k,) as the array ``y`` has them, to the type; ``model.labels`` where ``y`` is a column's name."""
    if y is None or isinstance(y, str) or not isinstance(y, Sequence | Shaped) or is_dask(y):
        return model.labels
    given = np.unique(np.asarray(y))
    known = {label_text(value): value for value in given.tolist()}
    if given.dtype.kind == "b":
        known |= {str(value).lower(): value for value in given.tolist()}
    text = all(isinstance(value, str) for value in known.values())
    if not set(model.classes) <= set(known) or (given.dtype.kind == "O" and not text):
        return model.labels
    return np.array([known[text] for text in model.classes], given.dtype)


def in_order(store: Store) -> list[int]:
    """Return the codes of the classes of a store as models sort them."""
    names = store.layout.classes
    return sorted(range(len(names)), key=lambda code: sort_key(names[code]))


def class_weights(
    asked: Mapping[Any, float] | str | None, classes: Array, codes: Int32, weights: Float64 | None
) -> ByName | None:
    """Return factors of C by the code of a class; None where all count alike. Raises ValueError."""
    if asked is None:
        return None
    if isinstance(asked, str) and asked == "balanced":
        found = balanced(codes, weights, len(classes))
    else:
        found = compute_class_weight(asked, classes=classes, y=classes[codes])
        if np.count_nonzero(found) < 2:
            weighted = ", ".join(map(repr, classes[found > 0].tolist())) or "none"
            raise ValueError(f"class_weight: at least two classes must have a weight above 0; here: {weighted}")
    return {str(code): float(factor) for code, factor in enumerate(found)}


def named(model: Model, classes: Array, columns: Array | None) -> Model:
    """Return a model of class codes with the labels these stand for (k,), and names of columns (d,) where there are some."""
    texts = [label_text(label) for label in classes.tolist()]
    known: JsonObject = {} if columns is None else {"names": [str(name) for name in columns]}
    kind = type_to_record(texts, label_type("U" if classes.dtype.kind == "O" else classes.dtype.kind))
    known |= {"labels": {"positive": None, "threshold": None} | kind} if kind else {}
    return replace(
        model, classes=tuple(texts[int(code)] for code in model.classes), provenance=model.provenance | known
    )


def of_codes(model: Model) -> Model:
    """Return a model whose classes are called by their codes, as those of rows in memory are, so that a fit can start from it."""
    codes = tuple(map(str, range(len(model.classes))))
    return replace(model, classes=codes, provenance={"encoding": model.provenance.get("encoding")})
