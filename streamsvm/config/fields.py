"""What can be said about a job: its dataclass's fields, read from the source without importing it.

The command line and the job files are made of these fields, so that a field added to a job is an option and a key at
once. Reading the source instead of the class keeps ``--help`` fast (the jobs import numba) and finds what a class does
not keep: the docstring under a field.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from streamsvm.config.units import parse_count, parse_duration, parse_number, parse_size
from streamsvm.errors import UsageError

PACKAGE = Path(__file__).resolve().parent.parent


class Field(NamedTuple):
    """One field of a dataclass, as its source has it."""

    name: str
    annotation: str
    default: str | None
    """None: the field has none."""
    doc: str

    @property
    def key(self) -> str:
        """What people call it: no unit, no underscore that only avoids a word of the language."""
        return self.name.removesuffix("_bytes").rstrip("_")

    @property
    def kinds(self) -> tuple[str, ...]:
        """The alternatives of the annotation, None left out."""
        kinds = (kind.strip() for kind in re.split(r"\|(?![^\[]*\])", self.annotation))
        return tuple(kind for kind in kinds if kind != "None")

    @property
    def is_size(self) -> bool:
        return self.name == "memory" or self.name.endswith(("_bytes", "_memory"))

    @property
    def is_duration(self) -> bool:
        return self.name in ("time_limit", "checkpoint_every") or self.name.endswith("_seconds")

    @property
    def is_list(self) -> bool:
        return any(kind.startswith("tuple[") for kind in self.kinds)

    @property
    def is_settings(self) -> bool:
        """A table of settings of something chosen by name: 'options', 'loss_options'."""
        return self.name == "options" or self.name.endswith("_options")


@cache
def fields_of(target: str) -> tuple[Field, ...]:
    """The fields of the dataclass ``module:Class``."""
    module, _, name = target.partition(":")
    path = PACKAGE.joinpath(*module.split(".")[1:]).with_suffix(".py")
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return tuple(_fields(node.body))
    raise LookupError(f"{path} has no class {name}")


def _fields(body: list[ast.stmt]) -> list[Field]:
    found: list[Field] = []
    for statement in body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            annotation = ast.unparse(statement.annotation)
            default = None if statement.value is None else ast.unparse(statement.value)
            if not annotation.startswith("ClassVar"):
                found.append(Field(statement.target.id, annotation, default, ""))
        elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant) and found:
            found[-1] = found[-1]._replace(doc=" ".join(str(statement.value.value).split()))
    return found


def parse(field: Field, text: str) -> Any:
    """The value of a field from what was written on a command line. Raises UsageError."""
    if field.is_size:
        return parse_size(text)
    if field.is_duration:
        return parse_duration(text)
    if "=" in text and any(kind.startswith("dict[") for kind in field.kinds):
        return _pairs(text)
    if field.is_list:
        return _listed(field, text)
    return _scalar(field.kinds, text)


def _listed(field: Field, text: str) -> Any:
    parts = [part.strip() for part in text.split(",")]
    lists = (kind[len("tuple[") :].split(",")[0].rstrip("]") for kind in field.kinds if kind.startswith("tuple["))
    inner = tuple(kind.strip() for kinds in lists for kind in kinds.split("|"))
    scalar = any(not kind.startswith("tuple[") for kind in field.kinds)
    if scalar and len(parts) == 1:
        return _scalar(field.kinds, text)
    return tuple(_scalar(inner, part) for part in parts if part)


def _scalar(kinds: tuple[str, ...], text: str) -> Any:
    """As the first of the kinds that is one of numbers and words; 'str' takes what is no number."""
    wanted = {kind: parser for kind, parser in (("int", parse_count), ("float", parse_number)) if kind in kinds}
    for parser in wanted.values():
        try:
            return parser(text)
        except UsageError:
            if len(kinds) == 1:
                raise
    if "bool" in kinds:
        return _flag(text)
    if wanted and not any(kind == "str" or kind.startswith(("dict[", "tuple[str")) for kind in kinds):
        raise UsageError(f"'{text}' is not a number", hint="write it as 0.1 or 1e-3")
    return text


def _flag(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise UsageError(f"'{text}' is neither true nor false")
    return text.lower() == "true"


def _pairs(text: str) -> dict[str, float]:
    """'a=2,b=1' as a table of numbers."""
    table = {}
    for part in text.split(","):
        name, equals, value = part.rpartition("=")
        if not equals or not name.strip():
            raise UsageError(f"'{part}' is not NAME=NUMBER", hint="write it as a=2,b=1")
        table[name.strip()] = parse_number(value)
    return table
