"""What a mutant is: one operator, constant, comparison or word of control exchanged in the syntax tree of one file.

Left alone is what no test should hold a program to: docstrings, annotations, decorators, errors and what is said in them,
text that is put together, ``__repr__``, whether ``zip`` is strict, what is imported for types only, memory that is asked for early, named numbers of a
module and defaults of parameters (settings: a test of one would say it again). ``equivalent`` names changes that make no
other program, each with the reason.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tools.mutants.equivalent import EQUIVALENT

REPOSITORY = Path(__file__).resolve().parents[2]


class Mutant(NamedTuple):
    """One change of one file: line ``number`` reads ``now``, and ``text`` is the whole file."""

    path: str
    number: int
    function: str
    """Qualified name of the function it is in; empty outside of all."""
    was: str
    now: str
    text: str

    @property
    def line(self) -> str:
        """The line as it reads then."""
        return self.text.splitlines()[self.number - 1].strip()

    @property
    def equivalent(self) -> bool:
        """Whether it is known to make no other program."""
        return (self.path, self.line) in EQUIVALENT

    @property
    def outermost(self) -> str:
        """The qualified name of the function or method around it that is in no other."""
        return self.function.partition(".<locals>")[0]


PLANTED = (
    ("streamsvm/compute/passes/stochastic/pegasos.py", "quadratic * shrink * shrink", "quadratic * shrink"),
    ("streamsvm/solvers/stochastic/pegasos.py", "state.quadratic * by * by,", "state.quadratic * by,"),
    ("streamsvm/solvers/stochastic/pegasos.py", "state.quadratic_before * by * by", "state.quadratic_before * by"),
    ("streamsvm/schedule/budget.py", "2 * layout.bytes_per_pass + per_row", "layout.bytes_per_pass + per_row"),
    (
        "streamsvm/solvers/kernel/decomposition/closing.py",
        "state.dual - 0.5 * state.square",
        "state.dual - 0.5 * square",
    ),
    (
        "streamsvm/store/sources/table/column_encoder.py",
        "np.float32(-1), np.float32(1))",
        "np.float32(1), np.float32(1))",
    ),
    ("streamsvm/solvers/newton/solver.py", "first.squares = first.squares + other.squares", "pass"),
)
"""Faults that strangers planted and no test saw: file, text, and what was put in its place."""

NO_ARITHMETIC = ("streamsvm/compute/prefetch.py",)
"""Files that change no number: memory is asked for early."""

SAID = ("warn", "warning", "info", "debug", "say", "hint", "printable", "format")
"""Calls whose arguments are words for a reader."""

CLOCKS = ("monotonic", "perf_counter", "thread_time")

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
            raise SystemExit(f"{path} has '{was}' {text.count(was)} times: PLANTED is out of date")
        number = text[: text.index(was)].count("\n") + 1
        yield Mutant(path, number, function_at(ast.parse(text), number), was, now, text.replace(was, now))


def mutants(path: Path) -> Iterator[Mutant]:
    """Every change of a file there is, apart from what is left alone."""
    name = str(path.relative_to(REPOSITORY))
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source)
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.expr | ast.stmt)]
    skipped = {id(part) for node in (tree, *nodes) for kept in _left_alone(node) for part in ast.walk(kept)}
    for node in nodes if name not in NO_ARITHMETIC else ():
        for changed in () if id(node) in skipped else _changes(node):
            yield _applied(name, source, node, changed)._replace(function=function_at(tree, node.lineno))


def function_at(tree: ast.AST, number: int, inside: str = "") -> str:
    """The qualified name, as a code object has it, of the innermost function around a line; empty where there is none."""
    for node in ast.iter_child_nodes(tree):
        within = getattr(node, "lineno", number) <= number <= (getattr(node, "end_lineno", None) or number)
        if within and isinstance(node, ast.FunctionDef):
            return function_at(node, number, f"{inside}{node.name}.<locals>.") or f"{inside}{node.name}"
        if within:
            found = function_at(node, number, f"{inside}{node.name}." if isinstance(node, ast.ClassDef) else inside)
            if found:
                return found
    return ""


def _left_alone(node: ast.AST) -> list[ast.AST]:
    """The parts of a node that are not changed."""
    if isinstance(node, ast.FunctionDef) and node.name != "__repr__":
        arguments = [*node.args.args, *node.args.kwonlyargs]
        annotated = [a.annotation for a in arguments if a.annotation]
        defaults = [*node.args.defaults, *(default for default in node.args.kw_defaults if default)]
        return [*node.decorator_list, *annotated, *defaults, *([node.returns] if node.returns else [])]
    if isinstance(node, ast.ClassDef):
        defaults = [part.value for part in node.body if isinstance(part, ast.AnnAssign) and part.value]
        return [*node.decorator_list, *defaults]
    if isinstance(node, ast.Module):
        return [part for part in node.body if isinstance(part, ast.Assign) and _is_setting(part)]
    if isinstance(node, ast.AnnAssign):
        return [node.annotation]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "zip":
        return [word.value for word in node.keywords]
    return [node] if _for_readers(node) else []


def _for_readers(node: ast.AST) -> bool:
    """Whether what a node says is said to people, or to a type checker, or by a clock."""
    match node:
        case ast.FunctionDef() | ast.Raise() | ast.JoinedStr() | ast.Assert() | ast.Expr(value=ast.Constant()):
            return True
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
        case ast.If(body=body, orelse=[]) if all(map(_asks_early, body)):
            return True
        case ast.Call(func=ast.Name(id=called) | ast.Attribute(attr=called)):
            return called in (*SAID, *CLOCKS) or "Error" in called
    return isinstance(node, ast.Compare | ast.BinOp) and _of_clock(node)


def _is_setting(node: ast.Assign) -> bool:
    """Whether a name in capitals gets a number that is written out, 72 * MIB among them."""
    parts = list(ast.walk(node.value))
    named = all(isinstance(target, ast.Name) and target.id.isupper() for target in node.targets)
    return named and not any(isinstance(part, ast.Call | ast.Compare | ast.Subscript | ast.Dict) for part in parts)


def _asks_early(node: ast.stmt) -> bool:
    """Whether a statement only asks for memory that is needed later, or says when that is."""
    if isinstance(node, ast.Assign):
        return all(isinstance(target, ast.Name) and target.id == "later" for target in node.targets)
    called = node.value.func if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) else None
    return isinstance(called, ast.Name) and called.id.startswith("touch")


def _of_clock(node: ast.AST) -> bool:
    """Whether the time of day is in an expression: when it is due, to the instant, is no promise."""
    return any(isinstance(part, ast.Attribute | ast.Name) and _name(part) in CLOCKS for part in ast.walk(node))


def _name(node: ast.Attribute | ast.Name) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id


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
    elif isinstance(found, ast.Attribute) and found.attr in NAMES:
        found.attr = NAMES[found.attr]
        yield found
    elif isinstance(found, ast.UnaryOp) and isinstance(found.op, ast.Not | ast.USub):
        yield found.operand


def _other(value: float) -> float:
    """Another value of the same type."""
    if isinstance(value, bool):
        return not value
    return value + 1 if isinstance(value, int) else value * 0.5 or 1.0


def _applied(name: str, source: str, node: ast.expr | ast.stmt, changed: ast.AST) -> Mutant:
    """The file with one node written anew; its other lines stay as they are."""
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    lines = source.splitlines(keepends=True)
    raw = "".join(lines).encode()
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line.encode()))
    first, last = starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset
    text = ast.unparse(changed)
    plain = not isinstance(changed, ast.expr) or isinstance(changed, ast.Name | ast.Constant | ast.Attribute)
    new = (raw[:first] + (text if plain else f"({text})").encode() + raw[last:]).decode()
    return Mutant(name, node.lineno, "", raw[first:last].decode().replace("\n", " "), text, new)
