"""LIBLINEAR's text: one weight a column and class, f_k(x) = w_k.x + w_k,bias B, the largest f or the sign of the only one.

After the head stands one line a column, with the weight of every problem; with B >= 0 the last line is of the constant feature,
whose value B is. Two classes are one problem, except in a model of Crammer and Singer.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from streamsvm.errors import UsageError
from streamsvm.model import Model
from streamsvm.model.text import check_columns, digits, labels_of, read_text, unusable

SOLVERS = {"hinge": "L2R_L1LOSS_SVC_DUAL", "squared_hinge": "L2R_L2LOSS_SVC", "logistic": "L2R_LR"}
"""By loss, what LIBLINEAR calls a fit of it; of logistic models it then also gives probabilities."""
OTHER = "L2R_L1LOSS_SVC_DUAL"
"""What a model of another loss is called, whose decision values say no more than those of a hinge."""
SQUARED_TUBE, TUBE = "L2R_L2LOSS_SVR", "L2R_L1LOSS_SVR_DUAL"
"""What a model of numbers is called; what it predicts is the same whatever the loss."""
TOGETHER = "MCSVM_CS"
CLASSIFIERS = {
    *SOLVERS.values(),
    TOGETHER,
    "L2R_L2LOSS_SVC_DUAL",
    "L1R_L2LOSS_SVC",
    "L1R_LR",
    "L2R_LR_DUAL",
}


def write(model: Model) -> Iterator[bytes]:
    """Yield the text of a linear model, whose weights are those of the columns as the sources have them.

    One of numbers has no labels, and LIBLINEAR wants it to have two classes. Raises UsageError for a kernel, for columns that are not
    numbers of the source, and for labels that are no whole numbers.
    """
    if model.expansion is not None:
        raise UsageError("LIBLINEAR has no kernels", hint="export it with --format libsvm")
    check_columns(model)
    model.check_one_each()
    head = _kind_of(model) | {"nr_feature": model.columns, "bias": 1}
    yield "".join(f"{key} {value}\n" for key, value in head.items()).encode() + b"w\n"
    for weights in (*model.coef.T, model.intercept):
        yield f"{digits(weights)}\n".encode()


def _kind_of(model: Model) -> dict[str, object]:
    """The lines that say what kind of model it is, with its labels. Raises UsageError for labels that are no whole numbers."""
    loss = str((model.provenance.get("settings") or {}).get("loss"))
    if model.numeric:
        return {"solver_type": SQUARED_TUBE if loss == "squared_epsilon_insensitive" else TUBE, "nr_class": 2}
    labels = labels_of(model)
    return {
        "solver_type": SOLVERS.get(loss, OTHER),
        "nr_class": len(labels),
        "label": " ".join(map(str, labels)),
    }


def read(path: Path) -> Model:
    """Return the model of a file. Raises DataError E-MODEL, also for one of regression or of one class."""
    text = read_text(path, "w")
    (solver,) = text.words("solver_type", 1)
    if solver not in CLASSIFIERS:
        raise unusable(path, f"{solver} is no classifier")
    labels = text.labels(text.whole("nr_class", 2))
    pair = len(labels) == 2
    problems = 1 if pair and solver != TOGETHER else len(labels)
    bias = float(text.numbers(text.words("bias", 1), "bias")[0])
    columns, values = text.whole("nr_feature", 1), text.numbers(text.body.split(), "weights")
    if len(values) != problems * (columns + (bias >= 0.0)):
        raise unusable(path, f"it has {len(values)} weights for {columns} columns and {problems} problem(s)")
    weights = values.reshape(-1, problems).T
    constant = weights[:, columns] * bias if bias >= 0.0 else np.zeros(problems)
    found = np.column_stack([weights[:, :columns], constant])
    if pair and problems == 2:  # the larger of two functions is the sign of their difference
        found = found[:1] - found[1:]
    return Model(found, labels[::-1] if pair else labels, {"made_by": f"LIBLINEAR {solver}"})
