"""Read model files. Nothing in a file is executed, and no path in it is followed."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from streamsvm.aliases import Array, JsonObject
from streamsvm.array_file import open_container
from streamsvm.errors import DataError, MissingError, StreamSVMError, quote
from streamsvm.input_files import is_file, open_regular
from streamsvm.losses import LOSSES
from streamsvm.model.model import FORMAT, KERNEL, LINEAR, THRESHOLD_FORMAT, VOTING_FORMAT, Model, hash_model
from streamsvm.registry import load as load_name
from streamsvm.rows import Float64, row_count
from streamsvm.types.data import check_recorded

if TYPE_CHECKING:
    from streamsvm.calibration.calibrators import Calibration
    from streamsvm.features.expansion import Expansion

TEXT_READERS = {
    b"solver_type ": "streamsvm.model.liblinear_libsvm:read_liblinear",
    b"svm_type ": "streamsvm.model.liblinear_libsvm:read_libsvm",
}
"""By first bytes, the reader of a model that LIBLINEAR or LIBSVM wrote."""


def load(path: Path) -> Model:
    """Read and verify a model file, also one that LIBLINEAR or LIBSVM wrote. Raises MissingError, DataError (E-MODEL, E-VERSION)."""
    if not is_file(path):
        raise MissingError(f"there is no model at {path}", hint="create one with 'streamsvm fit'")
    head = _read_head(path)
    for first, reader in TEXT_READERS.items():
        if head.startswith(first):
            model: Model = load_name(reader)(path)
            return model
    header, tensors = _open(path)
    return _make_model(path, header, tensors)


def _read_head(path: Path) -> bytes:
    """Return the first bytes of a file, which tell its format."""
    try:
        with open(open_regular(path, follow=True), "rb") as file:
            return file.read(max(map(len, TEXT_READERS)))
    except OSError as error:
        raise _refuse(path, quote(error)) from error


def _open(path: Path) -> tuple[JsonObject, dict[str, Array]]:
    """Return the header and the arrays of a file, after checking its sha256."""
    with open_container(path, lambda why: _refuse(path, why)) as file:
        text = file.metadata() or {}
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
        header = text.get("header", "")
        if text.get("sha256") != hash_model(header, tensors):
            raise DataError(f"{path} is damaged: its sha256 does not match", code="E-MODEL", hint="fit again")
        facts = json.loads(header)
    if not isinstance(facts, dict) or not isinstance(facts.get("provenance", {}), dict):
        raise _refuse_content(path)
    return facts, tensors


def _make_model(path: Path, header: JsonObject, tensors: dict[str, Array]) -> Model:
    kind, pairs = header.get("kind"), header.get("pairs") is True
    threshold = header.get("threshold", 0.0)
    wanted = VOTING_FORMAT if pairs else THRESHOLD_FORMAT if threshold else FORMAT
    if header.get("format") != wanted or kind not in (LINEAR, KERNEL):
        raise DataError(
            f"{path} was made by another streamsvm (format {quote(header.get('format'))}, this one reads {FORMAT} to {THRESHOLD_FORMAT})",
            code="E-VERSION",
            hint="use the version that made it, or fit again",
        )
    weights, classes = _read_weights(path, tensors), header.get("classes")
    numeric = _is_regression(header.get("provenance"))
    if not isinstance(classes, list):
        raise _refuse_content(path)
    if not isinstance(threshold, float) or not math.isfinite(threshold) or (threshold and len(weights) != 1):
        raise _refuse_content(path)
    problems = math.comb(len(classes), 2) if pairs else len(weights)
    if problems != len(weights) or (not pairs and len(classes) != (0 if numeric else max(2, problems))):
        raise _refuse_content(path)
    expansion = None if kind == LINEAR else _read_expansion(path, header, tensors, weights.shape[1] - 1)
    calibration = _read_calibration(path, header, tensors, len(weights))
    model = Model(
        weights, tuple(str(c) for c in classes), header.get("provenance", {}), expansion, calibration, pairs, threshold
    )
    try:
        check_recorded(model.provenance, model.columns)
    except ValueError as error:
        raise _refuse(path, quote(error)) from error
    return model


def _is_regression(provenance: object) -> bool:
    """Return whether the model was fitted with a regression loss: then it has no classes, else as many as its weights tell apart."""
    settings = provenance.get("settings") if isinstance(provenance, dict) else None
    loss = settings.get("loss") if isinstance(settings, dict) else None
    return isinstance(loss, str) and loss in LOSSES and LOSSES[loss]().numeric()


def _read_weights(path: Path, tensors: dict[str, Array]) -> Float64:
    """Return the weights of a file: finite, (problems, features + 1) float64."""
    weights = tensors.get("weights")
    if weights is None or weights.dtype != np.float64 or weights.ndim != 2 or weights.size == 0:
        raise _refuse_content(path)
    if not np.isfinite(weights).all():
        raise _refuse_content(path)
    return weights


def _read_calibration(path: Path, header: JsonObject, tensors: dict[str, Array], problems: int) -> Calibration | None:
    """Return the calibration of a file; None where it has none."""
    if header.get("calibration") is None:
        return None
    try:
        from streamsvm.calibration.calibrators import read_calibration

        return read_calibration(header["calibration"], tensors, problems)
    except DataError as error:
        raise _refuse_content(path) from error


def _read_expansion(path: Path, header: JsonObject, tensors: dict[str, Array], points: int) -> Expansion:
    from streamsvm.features.expansion import decode_expansion

    try:
        expansion = decode_expansion(header["expansion"], tensors)
    except (StreamSVMError, KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise _refuse_content(path) from error
    if row_count(expansion.points) != points:
        raise _refuse_content(path)
    return expansion


def _refuse(path: Path, why: str) -> DataError:
    return DataError(f"{path} is not a model: {why}", code="E-MODEL", hint="fit again")


def _refuse_content(path: Path) -> DataError:
    return DataError(f"{path} does not hold a usable model", code="E-MODEL", hint="fit again")
