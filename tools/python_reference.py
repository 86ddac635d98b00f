"""Write the reference of the Python face, tools/docs/reference/python.md, from it; ``tools/options_table.py`` does.

``tests/docs/test_documents.py`` checks that the file is what this prints.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import streamsvm
import streamsvm.sklearn

TARGET = Path(__file__).parent / "docs" / "reference" / "python.md"
INTRODUCTION = """# Python

`import streamsvm as sv` loads nothing; each name is loaded when it is first used. This page is made by
`python tools/options_table.py`.
"""

ESTIMATORS = """## Estimators

`from streamsvm.sklearn import StreamSVC` (`pip install 'streamsvm[sklearn]'`, scikit-learn 1.6 or later). Beside what is said here they have
what every estimator has: `get_params`, `set_params`, `score`, `set_output` of transformers, `set_fit_request` and its kin.
"""


def reference() -> str:
    """The whole file."""
    names = [name for name in streamsvm.__all__ if not name.startswith("_")]
    things = {name: getattr(streamsvm, name) for name in names}
    functions = [name for name in names if not inspect.isclass(things[name])]
    errors = [name for name in names if inspect.isclass(things[name]) and issubclass(things[name], Exception)]
    classes = [name for name in names if name not in functions and name not in errors]
    parts = [INTRODUCTION, "## Functions\n"]
    parts += [f"### {name}\n\n{_literal(_signature(name, things[name]), things[name])}\n" for name in functions]
    parts.append("## Classes\n")
    for name in classes:
        parts += _class(name, things[name])
    parts.append(ESTIMATORS)
    for name in streamsvm.sklearn.__all__:
        parts += _class(name, getattr(streamsvm.sklearn, name))
    parts += ["## Errors\n", "| error | exit code | what it is |", "|---|---|---|"]
    for name in errors:
        code = getattr(things[name], "exit_code", "")
        first = (inspect.getdoc(things[name]) or "").split("\n\n")[0].replace("\n", " ").replace("|", "\\|")
        parts.append(f"| `{name}` | {code} | {first} |")
    return "\n".join(parts) + "\n"


def _class(name: str, kind: type) -> Iterator[str]:
    """What a class is, and its public members."""
    yield f"### {name}\n\n{_literal('', kind)}\n"
    yield from _members(name, kind)


def _signature(name: str, thing: object) -> str:
    found = inspect.signature(thing)  # type: ignore[arg-type]
    shown = ",\n   ".join(re.sub(r": '([^']*)'", r": \1", str(parameter)) for parameter in found.parameters.values())
    return f"sv.{name}(\n   {shown}\n)\n\n"


def _literal(before: str, thing: object) -> str:
    return f"```text\n{before}{inspect.getdoc(thing) or ''}\n```"


def _members(name: str, kind: type) -> Iterator[str]:
    """The public methods and properties of a class, those that it has of other classes of ours among them, a line each."""
    ours = [one for one in reversed(kind.__mro__) if one.__module__.startswith("streamsvm")]
    names = dict.fromkeys(key for one in ours for key in vars(one) if not key.startswith(("_", "set_")))
    found = {key: getattr(kind, key) for key in names if hasattr(kind, key)}
    rows = []
    for key, value in found.items():
        if isinstance(value, property) or callable(value):
            first = (inspect.getdoc(value) or "").split("\n\n")[0].replace("\n", " ").replace("|", "\\|")
            shown = key if isinstance(value, property) else f"{key}()"
            rows.append(f"| `{name}.{shown}` | {first} |")
    if rows:
        yield "\n".join(["| member | what it is |", "|---|---|", *rows]) + "\n"
