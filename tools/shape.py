"""Check the shape of the code: lengths, folders, names, and a docstring for everything public.

A function has at most 40 lines of body and 60 with signature and docstring; a file at most 400; a folder of the package at
most 14 modules. A module's name says what it holds, and a class name stands for one class of the package. Everything public in
the package has a docstring: modules, classes, functions, methods, and the fields of classes, whose docstring is a string
under them or the text inside ``Annotated``.
"""

from __future__ import annotations

import ast
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

LONGEST_BODY = 40
LONGEST_FUNCTION = 60
LONGEST_FILE = 400
LARGEST_FOLDER = 14
SAY_NOTHING = {"utils", "util", "helpers", "common", "misc", "base"}
PACKAGE = Path("streamsvm")

Function = ast.FunctionDef | ast.AsyncFunctionDef


def body_lines(node: Function) -> int:
    """Lines of a function without its signature and its docstring."""
    body = node.body[1:] if ast.get_docstring(node) else node.body
    return body[-1].end_lineno - body[0].lineno + 1 if body else 0  # type: ignore[operator]


def whole_lines(node: Function) -> int:
    """Lines of a function with its signature and its docstring."""
    return (node.end_lineno or node.lineno) - node.lineno + 1


def functions(tree: ast.Module) -> Iterator[Function]:
    return (node for node in ast.walk(tree) if isinstance(node, Function))


def complaints(path: Path, tree: ast.Module) -> Iterator[str]:
    """What is too long in a file, and a name that says nothing."""
    if path.stem in SAY_NOTHING:
        yield f"{path}: '{path.stem}' names nothing; say what it holds"
    if (lines := path.read_text(encoding="utf-8").count("\n")) > LONGEST_FILE:
        yield f"{path}: {lines} lines, {LONGEST_FILE} allowed"
    for node in functions(tree):
        if (n := body_lines(node)) > LONGEST_BODY or (n := whole_lines(node)) > LONGEST_FUNCTION:
            allowed = LONGEST_BODY if body_lines(node) > LONGEST_BODY else LONGEST_FUNCTION
            yield f"{path}:{node.lineno}: {node.name} has {n} lines, {allowed} allowed"


def is_text(node: ast.stmt | None) -> bool:
    """Whether a statement is a string that stands alone, as under a field."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def is_annotated(node: ast.expr) -> bool:
    """Whether a type is ``Annotated[...]``."""
    return isinstance(node, ast.Subscript) and ast.unparse(node.value) == "Annotated"


def annotated_aliases(trees: dict[Path, ast.Module]) -> set[str]:
    """Names that stand for an ``Annotated`` type, as an option that several jobs share does."""
    assigned = (node for tree in trees.values() for node in tree.body if isinstance(node, ast.Assign))
    return {ast.unparse(node.targets[0]) for node in assigned if is_annotated(node.value)}


def documented(node: ast.stmt, following: ast.stmt | None, aliases: set[str]) -> bool | None:
    """Whether a public statement has a docstring; None where it is nothing that needs one."""
    if isinstance(node, Function | ast.ClassDef):
        return None if node.name.startswith("_") else bool(ast.get_docstring(node))
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and not node.target.id.startswith("_"):
        return is_annotated(node.annotation) or ast.unparse(node.annotation) in aliases or is_text(following)
    return None


def undocumented(path: Path, tree: ast.Module, aliases: set[str]) -> Iterator[tuple[str, bool]]:
    """Everything public in a file, and whether it has a docstring."""
    if tree.body:
        yield f"{path}:1: module", bool(ast.get_docstring(tree))
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]
    for body in [tree.body, *(node.body for node in classes)]:
        for node, following in zip_longest(body, body[1:]):
            fields_count = body is not tree.body or not isinstance(node, ast.AnnAssign)
            found = documented(node, following, aliases) if fields_count else None
            if found is not None:
                yield f"{path}:{node.lineno}: {ast.unparse(node).splitlines()[0][:80]}", found


def docstring_complaints(trees: dict[Path, ast.Module]) -> Iterator[str]:
    """Print how many docstrings there are, and yield what has none."""
    aliases = annotated_aliases(trees)
    found = [item for path, tree in trees.items() for item in undocumented(path, tree, aliases)]
    missing = [where for where, good in found if not good]
    print(f"shape: {len(found) - len(missing)} of {len(found)} public definitions have a docstring")
    yield from (f"{where} has no docstring" for where in missing)


def folder_complaints(paths: list[Path]) -> Iterator[str]:
    """Folders with too many modules; ``__init__`` does not count."""
    for folder, count in Counter(path.parent for path in paths if path.stem != "__init__").items():
        if count > LARGEST_FOLDER:
            yield f"{folder}: {count} modules, {LARGEST_FOLDER} allowed"


def name_complaints(trees: dict[Path, ast.Module]) -> Iterator[str]:
    """Class names that stand for two classes."""
    places: dict[str, list[str]] = defaultdict(list)
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(f"{path}:{node.lineno}")
    yield from (f"{name} names {len(at)} classes: {', '.join(at)}" for name, at in places.items() if len(at) > 1)


def report_lengths(trees: dict[Path, ast.Module]) -> None:
    """Print how long the package's functions are."""
    lengths = sorted(whole_lines(node) for tree in trees.values() for node in functions(tree))
    median, late = statistics.median(lengths), lengths[int(0.95 * len(lengths))]
    print(f"shape: {len(lengths)} functions: median {median:g} lines, 95 % at most {late}, the longest {lengths[-1]}")


def main() -> int:
    paths = [path for root in (PACKAGE, Path("tools")) for path in sorted(root.rglob("*.py"))]
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in paths}
    package = {path: tree for path, tree in trees.items() if PACKAGE in path.parents}
    found = [c for path, tree in trees.items() for c in complaints(path, tree)]
    found += [*folder_complaints(list(package)), *name_complaints(package), *docstring_complaints(package)]
    report_lengths(package)
    print("\n".join(found) or "shape: fine")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
