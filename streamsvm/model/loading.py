"""Reading a model file. Nothing in it is executed, and no path in it is followed."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np

from streamsvm.aliases import Array, JsonObject
from streamsvm.calibration import stored
from streamsvm.calibration.stored import Calibration
from streamsvm.container import opened
from streamsvm.errors import DataError, MissingError, StreamSVMError, quote
from streamsvm.features.expansion import Expansion, expansion_of
from streamsvm.losses import LOSSES
from streamsvm.model.model import FORMAT, KERNEL, LINEAR, VOTING_FORMAT, Model, seal
from streamsvm.registry import load as load_name
from streamsvm.regular import is_file, open_regular
from streamsvm.rows import Float64, row_count
from streamsvm.types.data import check_recorded

TEXTS = {b"solver_type ": "streamsvm.model.text.liblinear:read", b"svm_type ": "streamsvm.model.text.libsvm:read"}
"""By its first bytes, what reads a model that LIBLINEAR or LIBSVM wrote."""


def load(path: Path) -> Model:
    """Read and verify a model file, also one that LIBLINEAR or LIBSVM wrote. Raises MissingError, DataError (E-MODEL, E-VERSION)."""
    if not is_file(path):
        raise MissingError(f"there is no model at {path}", hint="create one with 'streamsvm fit'")
    head = _head(path)
    for first, reader in TEXTS.items():
        if head.startswith(first):
            found: Model = load_name(reader)(path)
            return found
    header, tensors = _open(path)
    return _check(path, header, tensors)


def _head(path: Path) -> bytes:
    """How a file begins, as far as its format is told by it."""
    try:
        with open(open_regular(path, follow=True), "rb") as file:
            return file.read(max(map(len, TEXTS)))
    except OSError as error:
        raise _not_one(path, quote(error)) from error


def _open(path: Path) -> tuple[JsonObject, dict[str, Array]]:
    """The header and the arrays of a file whose seal is whole."""
    with opened(path, lambda why: _not_one(path, why)) as file:
        text = file.metadata() or {}
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
        header = text.get("header", "")
        if text.get("sha256") != seal(header, tensors):
            raise DataError(f"{path} is damaged: its sha256 does not match", code="E-MODEL", hint="fit again")
        found = json.loads(header)
    if not isinstance(found, dict) or not isinstance(found.get("provenance", {}), dict):
        raise _unusable(path)
    return found, tensors


def _check(path: Path, header: JsonObject, tensors: dict[str, Array]) -> Model:
    kind, pairs = header.get("kind"), header.get("pairs") is True
    if header.get("format") != (VOTING_FORMAT if pairs else FORMAT) or kind not in (LINEAR, KERNEL):
        raise DataError(
            f"{path} was made by another streamsvm (format {quote(header.get('format'))}, this one reads {FORMAT} and {VOTING_FORMAT})",
            code="E-VERSION",
            hint="use the version that made it, or fit again",
        )
    weights, classes = _weights(path, tensors), header.get("classes")
    numeric = _of_numbers(header.get("provenance"))
    if not isinstance(classes, list):
        raise _unusable(path)
    told = math.comb(len(classes), 2) if pairs else len(weights)
    if told != len(weights) or (not pairs and len(classes) != (0 if numeric else max(2, told))):
        raise _unusable(path)
    expansion = None if kind == LINEAR else _expansion(path, header, tensors, weights.shape[1] - 1)
    calibration = _calibration(path, header, tensors, len(weights))
    model = Model(weights, tuple(str(c) for c in classes), header.get("provenance", {}), expansion, calibration, pairs)
    try:
        check_recorded(model.provenance, model.columns)
    except ValueError as error:
        raise _not_one(path, quote(error)) from error
    return model


def _of_numbers(provenance: object) -> bool:
    """Whether the loss a model was fitted with is one of numbers: then there are no classes, else as many as weights tell apart."""
    settings = provenance.get("settings") if isinstance(provenance, dict) else None
    loss = settings.get("loss") if isinstance(settings, dict) else None
    return isinstance(loss, str) and loss in LOSSES and LOSSES[loss]().numeric()


def _weights(path: Path, tensors: dict[str, Array]) -> Float64:
    """Those of a file: finite, (problems, features + 1) float64."""
    weights = tensors.get("weights")
    if weights is None or weights.dtype != np.float64 or weights.ndim != 2 or weights.size == 0:
        raise _unusable(path)
    if not np.isfinite(weights).all():
        raise _unusable(path)
    return weights


def _calibration(path: Path, header: JsonObject, tensors: dict[str, Array], problems: int) -> Calibration | None:
    """That of a file; None where it has none, as files of before there were any."""
    if header.get("calibration") is None:
        return None
    try:
        return stored.read(header["calibration"], tensors, problems)
    except DataError as error:
        raise _unusable(path) from error


def _expansion(path: Path, header: JsonObject, tensors: dict[str, Array], points: int) -> Expansion:
    try:
        expansion = expansion_of(header["expansion"], tensors)
    except (StreamSVMError, KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise _unusable(path) from error
    if row_count(expansion.points) != points:
        raise _unusable(path)
    return expansion


def _not_one(path: Path, why: str) -> DataError:
    return DataError(f"{path} is not a model: {why}", code="E-MODEL", hint="fit again")


def _unusable(path: Path) -> DataError:
    return DataError(f"{path} does not hold a usable model", code="E-MODEL", hint="fit again")
