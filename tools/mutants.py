"""Change the program in one place and see whether the tests of that floor notice: python -m tools.mutants.

    python -m tools.mutants --planted                        the faults in PLANTED: every one must be noticed
    python -m tools.mutants --files 'streamsvm/schedule/*.py' --most 40 --seed 1 --minutes 20

A mutant is one operator, constant, comparison or word of control exchanged in the syntax tree. It is written into a copy of
the repository, where only the tests of its floor run (FLOORS), until one fails or the time is over; what hangs is noticed.
Survivors are printed as a diff of a line, and counted. Slow: a test run for each mutant, and where compute/ is changed a
compilation before it. Exit code 1 when a planted fault survived.
"""

from __future__ import annotations

import argparse
import ast
import copy
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

REPOSITORY = Path(__file__).resolve().parents[1]
SECONDS = 240
"""A mutant whose tests take longer is noticed: they do not."""
FLOORS = {
    "streamsvm/compute": ["tests/compute", "tests/solvers/test_pegasos.py", "tests/solvers/test_sgd.py"],
    "streamsvm/solvers/stochastic": [f"tests/solvers/test_{name}.py" for name in ("pegasos", "assg", "sgd")],
    "streamsvm/solvers/kernel/simplex": ["tests/solvers/test_simplex.py", "tests/solvers/test_frank_wolfe.py"],
    "streamsvm/solvers/kernel": [
        f"tests/solvers/test_{name}.py" for name in ("decomposition", "working_set", "reduced_set")
    ],
    "streamsvm/solvers/newton": [
        "tests/solvers/test_newton.py",
        "tests/solvers/test_all_rows.py",
        "tests/engine/test_merges.py",
    ],
    "streamsvm/solvers/dcd": ["tests/solvers/test_dcd.py", "tests/solvers/test_cocoa.py"],
    "streamsvm/schedule": ["tests/schedule"],
    "streamsvm/store": ["tests/store"],
    "streamsvm/engine": ["tests/engine"],
    "streamsvm/jobs/fit": ["tests/jobs/test_plan.py", "tests/jobs/test_fit.py", "tests/test_audit.py"],
}
"""Which tests are those of a floor; the longest beginning of a path counts."""


class Mutant(NamedTuple):
    """One change of one file: line ``number`` reads ``now``, and ``text`` is the whole file."""

    path: str
    number: int
    was: str
    now: str
    text: str


PLANTED = (
    ("streamsvm/compute/passes/pegasos.py", "quadratic * shrink * shrink", "quadratic * shrink"),
    ("streamsvm/solvers/stochastic/pegasos.py", "state.quadratic * by * by,", "state.quadratic * by,"),
    ("streamsvm/solvers/stochastic/pegasos.py", "state.quadratic_before * by * by", "state.quadratic_before * by"),
    ("streamsvm/schedule/budget.py", "2 * layout.bytes_per_pass + per_row", "layout.bytes_per_pass + per_row"),
    (
        "streamsvm/solvers/kernel/decomposition/solver.py",
        "state.dual - 0.5 * state.square",
        "state.dual - 0.5 * square",
    ),
    ("streamsvm/store/sources/table/encoder.py", "np.float32(-1), np.float32(1))", "np.float32(1), np.float32(1))"),
    ("streamsvm/solvers/newton/solver.py", "first.squares = first.squares + other.squares", "pass"),
)
"""Faults that strangers planted and no test saw: file, text, and what was put in its place."""

OPERATORS: dict[type[ast.AST], Any] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Lt: ast.LtE, ast.LtE: ast.Lt,
    ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.And: ast.Or, ast.Or: ast.And,
    ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv,
}  # fmt: skip
NAMES = {"min": "max", "max": "min", "any": "all", "all": "any", "minimum": "maximum", "maximum": "minimum"}


def planted() -> Iterator[Mutant]:
    """The planted faults. Ends the program for one whose place is gone."""
    for path, was, now in PLANTED:
        text = (REPOSITORY / path).read_text(encoding="utf-8")
        if text.count(was) != 1:
            sys.exit(f"{path} has '{was}' {text.count(was)} times: PLANTED is out of date")
        yield Mutant(path, text[: text.index(was)].count("\n") + 1, was, now, text.replace(was, now))


def mutants(path: Path) -> Iterator[Mutant]:
    """Every change of a file there is. Docstrings, annotations, messages and decorators are left alone."""
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source)
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.expr | ast.stmt)]
    skipped = {id(part) for node in nodes for kept in _left_alone(node) for part in ast.walk(kept)}
    for node in nodes:
        for changed in () if id(node) in skipped else _changes(node):
            yield _applied(path, source, node, changed)


def _left_alone(node: ast.AST) -> list[ast.AST]:
    if isinstance(node, ast.AnnAssign):
        return [node.annotation]
    if isinstance(node, ast.FunctionDef):
        arguments = [*node.args.args, *node.args.kwonlyargs]
        return [
            *node.decorator_list,
            *(a.annotation for a in arguments if a.annotation),
            *([node.returns] if node.returns else []),
        ]
    if isinstance(node, ast.Raise | ast.JoinedStr | ast.Assert):
        return [node]
    return [node.value] if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) else []


def _changes(node: ast.AST) -> Iterator[ast.AST]:
    """What a node is exchanged for."""
    found: Any = copy.deepcopy(node)
    if isinstance(found, ast.BinOp | ast.AugAssign | ast.BoolOp) and type(found.op) in OPERATORS:
        found.op = OPERATORS[type(found.op)]()
        yield found
    elif isinstance(found, ast.Compare) and type(found.ops[0]) in OPERATORS:
        found.ops[0] = OPERATORS[type(found.ops[0])]()
        yield found
    elif isinstance(found, ast.Constant) and isinstance(found.value, bool | int | float):
        found.value = _other(found.value)
        yield found
    elif isinstance(found, ast.Name) and found.id in NAMES:
        found.id = NAMES[found.id]
        yield found
    elif isinstance(found, ast.UnaryOp) and isinstance(found.op, ast.Not | ast.USub):
        yield found.operand


def _other(value: float) -> float:
    """Another value of the same type."""
    if isinstance(value, bool):
        return not value
    return value + 1 if isinstance(value, int) else value * 0.5 or 1.0


def _applied(path: Path, source: str, node: ast.AST, changed: ast.AST) -> Mutant:
    """The file with one node written anew; its other lines stay as they are."""
    assert isinstance(node, ast.expr | ast.stmt)
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    lines = source.splitlines(keepends=True)
    raw = "".join(lines).encode()
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line.encode()))
    first, last = starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset
    text = ast.unparse(changed)
    wrapped = (
        f"({text})" if isinstance(changed, ast.expr) and not isinstance(changed, ast.Name | ast.Constant) else text
    )
    new = (raw[:first] + wrapped.encode() + raw[last:]).decode()
    was = raw[first:last].decode().replace("\n", " ")
    return Mutant(str(path.relative_to(REPOSITORY)), node.lineno, was, text, new)


def tests_of(path: str) -> list[str]:
    """The tests of the floor a file is on."""
    floor = max((floor for floor in FLOORS if path.startswith(floor)), key=len)
    return FLOORS[floor]


def survives(mutant: Mutant, tree: Path) -> bool:
    """Whether all tests of its floor pass with the mutant in place."""
    target = tree / mutant.path
    whole = target.read_bytes()
    target.write_text(mutant.text, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests_of(mutant.path)]
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        run = subprocess.run(command, cwd=tree, env=environment, capture_output=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return False
    finally:
        target.write_bytes(whole)
    return run.returncode == 0


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Change the program in one place and see whether tests notice.")
    parser.add_argument("--planted", action="store_true", help="the faults that were planted once")
    parser.add_argument("--files", default="streamsvm/schedule/*.py", help="patterns, separated by commas")
    parser.add_argument("--most", type=int, default=40, help="mutants drawn of all files together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=60.0)
    return parser.parse_args()


def _chosen(asked: argparse.Namespace) -> list[Mutant]:
    if asked.planted:
        return list(planted())
    files = sorted(path for pattern in asked.files.split(",") for path in REPOSITORY.glob(pattern))
    found = [mutant for path in files for mutant in mutants(path)]
    random.Random(asked.seed).shuffle(found)
    return found[: asked.most]


def main() -> None:
    asked = _asked()
    chosen, until = _chosen(asked), time.monotonic() + 60.0 * asked.minutes
    survived, tried = 0, 0
    with tempfile.TemporaryDirectory(prefix="streamsvm-mutants-") as scratch:
        tree = Path(scratch) / "tree"
        left_out = shutil.ignore_patterns(".git", "__pycache__", "build", ".venv")
        shutil.copytree(REPOSITORY, tree, ignore=left_out)
        for mutant in chosen:
            if time.monotonic() > until:
                break
            tried += 1
            if survives(mutant, tree):
                survived += 1
                print(f"SURVIVED {mutant.path}:{mutant.number}: {mutant.was} -> {mutant.now}", flush=True)
            elif asked.planted:
                print(f"noticed  {mutant.path}:{mutant.number}: {mutant.was} -> {mutant.now}", flush=True)
    share = survived / tried if tried else 0.0
    print(f"{tried} mutants, {survived} survived ({share:.0%})")
    sys.exit(bool(asked.planted and survived))


if __name__ == "__main__":
    main()
