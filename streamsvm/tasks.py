"""What rows are learned for, by the names the command line has for it."""

from __future__ import annotations

CLASSIFICATION, REGRESSION = "classification", "regression"
"""What the target of rows is for: one of some classes, or a number.

A further kind of target is another name here, what a store of it says of its classes (``Layout.task``), a coder of its labels
(``store.format.labels.label_coder``) and what passes make of it (``compute.targets``).
"""
TASKS = (CLASSIFICATION, REGRESSION)
