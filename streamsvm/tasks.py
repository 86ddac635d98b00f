"""The learning tasks: classification and regression."""

from __future__ import annotations

CLASSIFICATION, REGRESSION = "classification", "regression"
"""The target of a row is one of several classes, or a number.

A further task needs a name here, its meaning for the classes of a store (``Layout.task``), a coder for its labels
(``store.format.labels.label_coder``) and the targets that compiled passes get (``compute.targets``).
"""
TASKS = (CLASSIFICATION, REGRESSION)
