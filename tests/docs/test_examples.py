"""Every public name has an example in its docstring, and all of them run: those of functions first, which leave the files of the others."""

from __future__ import annotations

import doctest
import inspect
import warnings
from pathlib import Path
from typing import Any

import pytest

import streamsvm as sv
from streamsvm.api.functions import COMMANDS
from tests.api.test_functions import table

FIRST = ("synth", "ingest", "fit", "evaluate")
"""Whose files others open, in the order in which they can be made."""


class Shown(doctest.OutputChecker):
    """What an example shows is compared; where it shows nothing its value is not one that says no."""

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        if not want:
            return got not in {"False\n", "0\n", "''\n"}
        return super().check_output(want, got, optionflags)


def public() -> dict[str, Any]:
    """All public names, of the package and of its estimators, in an order in which their examples run."""
    names = [name for name in sv.__all__ if not name.startswith("_")]
    ordered = sorted(names, key=lambda name: FIRST.index(name) if name in FIRST else len(FIRST))
    found = {name: getattr(sv, name) for name in ordered}
    try:
        import sklearn
    except ModuleNotFoundError:
        return found
    del sklearn
    import streamsvm.sklearn as estimators

    return found | {name: getattr(estimators, name) for name in estimators.__all__}


def test_docs_every_public_name_has_an_example_that_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    table(tmp_path / "table.csv")
    parser = doctest.DocTestParser()
    said: list[str] = []
    runner = doctest.DocTestRunner(checker=Shown(), verbose=False)
    assert set(COMMANDS) <= set(public())
    for name, thing in public().items():
        examples = parser.get_doctest(inspect.getdoc(thing) or "", {"sv": sv}, name, None, 0)
        assert examples.examples, f"{name} has no example"
        with warnings.catch_warnings():
            if runner.run(examples, out=said.append).failed:
                pytest.fail("".join(said))


def test_docs_example_that_says_something_else_fails() -> None:
    parser, runner = doctest.DocTestParser(), doctest.DocTestRunner(checker=Shown(), verbose=False)
    for text in (">>> 1 + 1\n3", ">>> 1 > 2", ">>> [].name"):
        assert runner.run(parser.get_doctest(text, {}, "wrong", None, 0), out=lambda _text: None).failed == 1
