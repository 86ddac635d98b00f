"""What is written is written by ``durable``: no other module opens files for writing, renames or removes on its own."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "streamsvm"
WRITERS = {
    "durable": "the one that does",
    "locks.py": "a lock is nothing to keep",
    "__main__.py": "standard error, and the null device",
}
FORBIDDEN = {
    "os": {"rename", "replace", "renames", "write", "pwrite", "pwritev", "truncate", "ftruncate", "link", "symlink"},
    "shutil": {"move", "copy", "copyfile", "copy2", "copytree"},
    "np": {"save", "savez", "savetxt", "memmap"},
}
METHODS = {"write_text", "write_bytes", "tofile"}
PICKLES = {"pickle", "cPickle", "dill", "joblib", "marshal", "shelve", "cloudpickle"}


def offenses(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            yield from (f"line {node.lineno}: imports {n}" for n in names if n.split(".")[0] in PICKLES)
        elif isinstance(node, ast.Call) and (found := offense(node)):
            yield f"line {node.lineno}: {found}"


def offense(call: ast.Call) -> str:
    function = call.func
    if isinstance(function, ast.Name) and function.id in ("open", "eval", "exec"):
        mode = call.args[1] if len(call.args) > 1 else next((k.value for k in call.keywords if k.arg == "mode"), None)
        writes = mode is not None and not (isinstance(mode, ast.Constant) and set(str(mode.value)) <= set("rbt"))
        return ast.unparse(call) if writes or function.id != "open" else ""
    if isinstance(function, ast.Attribute):
        owner = function.value.id if isinstance(function.value, ast.Name) else ""
        if (function.attr in METHODS and owner != "formatter") or function.attr in FORBIDDEN.get(owner, ()):
            return ast.unparse(function)
        if owner == "os" and function.attr == "open" and "O_RDONLY" not in ast.unparse(call):
            return "" if "devnull" in ast.unparse(call) else ast.unparse(call)
    return ""


def test_durable_alone_writes_files() -> None:
    modules = [path for path in PACKAGE.rglob("*.py") if path.relative_to(PACKAGE).parts[0] not in WRITERS]
    found = {str(path.relative_to(PACKAGE)): list(offenses(path)) for path in modules}
    assert {path: what for path, what in found.items() if what} == {}


@pytest.mark.parametrize(
    "line",
    [
        "open('a', 'w')",
        "open('a', mode=m)",
        "os.rename(a, b)",
        "Path('a').write_text('b')",
        "np.save(a, b)",
        "import pickle",
        "os.open(a, os.O_WRONLY)",
        "eval('1')",
    ],
)
def test_the_search_for_writers_finds_them(line: str, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(line)
    assert list(offenses(tmp_path / "a.py"))
