"""Random data sets, by name.

simple     what a generator is; a separable set, two moons, sparse text, vectors like embeddings
susy       a data set like SUSY
table      an encoded table: numeric and one-hot columns
raw_table  tables as text, before encoding
"""

from __future__ import annotations

from streamsvm.registry import Registry

GENERATORS = Registry(
    "generator",
    {
        "susy": "streamsvm.store.generators.susy:Susy",
        "table": "streamsvm.store.generators.table:Table",
        "sparse-text": "streamsvm.store.generators.simple:SparseText",
        "separable": "streamsvm.store.generators.simple:Separable",
        "two-moons": "streamsvm.store.generators.simple:TwoMoons",
        "embeddings": "streamsvm.store.generators.simple:Embeddings",
    },
)

FILE_GENERATORS = Registry(
    "generator of files",
    {
        "table": "streamsvm.store.generators.raw_table:RawTable",
        "messy-table": "streamsvm.store.generators.raw_table:MessyTable",
        "names": "streamsvm.store.generators.raw_table:Names",
    },
)
"""Generators whose rows are text, as in files of other programs."""
