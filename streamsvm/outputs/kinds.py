"""How an output of ours is recognized: by what is in it, never by its name alone.

A kind answers one question: what speaks against a path being one of our outputs of this kind? In doubt it is not: a
directory that holds a single file we do not write is not ours as a whole, whatever else it holds.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from streamsvm.outputs.files import array_fault, header_fault, model_fault, predictions_fault
from streamsvm.outputs.folders import (
    any_store_fault,
    embedding_fault,
    parts_fault,
    run_fault,
    search_fault,
    store_fault,
)

REJECTS_HEADER = b"file\tline\tcode\treason\n"
SCHEMA_HEADER = b"# streamsvm: what becomes of each column of a table\n"
PAGE_HEADER = b"<!doctype html>\n<!-- made by streamsvm report -->\n"


class Kind(NamedTuple):
    """A kind of output: what people call it, and what speaks against an existing path being one ('' if nothing does)."""

    name: str
    """What messages call it."""
    fault: Callable[[Path], str]
    """Returns why a path is nothing of this kind; empty where it is one."""


def begins(name: str, header: bytes) -> Kind:
    """Return the kind of files that begin with a header of ours; ``name`` is what messages call it."""
    return Kind(name, partial(header_fault, header=header))


ANY_STORE = Kind("a store", any_store_fault)
STORE = Kind("a store", store_fault)
EMBEDDING = Kind("an embedding", embedding_fault)
MODEL = Kind("a model", model_fault)
RUN = Kind("the folder of a run", run_fault)
SEARCH = Kind("the folder of a search", search_fault)
PREDICTIONS = Kind("a file of predictions", predictions_fault)
ARRAY = Kind("an array of dual variables", array_fault)
REJECTS = begins("a list of rejected lines", REJECTS_HEADER)
PAGE = begins("the page of a run", PAGE_HEADER)
SCHEMA = begins("a schema file", SCHEMA_HEADER)
LIBLINEAR_MODEL = begins("a model of LIBLINEAR", b"solver_type ")
LIBSVM_MODEL = begins("a model of LIBSVM", b"svm_type ")
ONNX_MODEL = begins("an ONNX graph of ours", b"\x08\x08\x12\x09streamsvm")
PARTS = Kind("the parts of an unfinished output", parts_fault)
