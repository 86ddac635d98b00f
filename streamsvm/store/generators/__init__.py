"""Data sets made of random numbers, by name."""

from __future__ import annotations

from streamsvm.registry import Registry

GENERATORS = Registry(
    "generator",
    {
        "susy": "streamsvm.store.generators.susy:Susy",
        "table": "streamsvm.store.generators.table:Table",
        "sparse-text": "streamsvm.store.generators.sparse_text:SparseText",
        "separable": "streamsvm.store.generators.shapes:Separable",
        "two-moons": "streamsvm.store.generators.shapes:TwoMoons",
    },
)
