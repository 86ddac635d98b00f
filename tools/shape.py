"""Check the shape of the code: no function over 40 lines, no file over 400, no module with a name that says nothing."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

LONGEST_FUNCTION = 40
LONGEST_FILE = 400
SAY_NOTHING = {"utils", "util", "helpers", "common", "base", "misc"}


def body_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function without its signature and its docstring."""
    body = node.body[1:] if ast.get_docstring(node) else node.body
    return body[-1].end_lineno - body[0].lineno + 1 if body else 0  # type: ignore[operator]


def complaints(path: Path) -> Iterator[str]:
    text = path.read_text(encoding="utf-8")
    if path.stem in SAY_NOTHING:
        yield f"{path}: '{path.stem}' names nothing; say what it holds"
    if (lines := text.count("\n")) > LONGEST_FILE:
        yield f"{path}: {lines} lines, {LONGEST_FILE} allowed"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (n := body_lines(node)) > LONGEST_FUNCTION:
            yield f"{path}:{node.lineno}: {node.name} has {n} lines, {LONGEST_FUNCTION} allowed"


def main() -> int:
    found = [c for root in ("streamsvm", "tools") for p in sorted(Path(root).rglob("*.py")) for c in complaints(p)]
    print("\n".join(found) or "shape: fine")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
