"""What is written for people runs: every block of every document, in order; links lead somewhere; made files are up to date.

A block is ``console`` - lines that begin with ``$`` are commands, what follows is for readers, but for ``error[CODE]``, with
which the command must end - or ``python``. The blocks of a document share a folder and a namespace.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import click
import pytest
from click.testing import CliRunner

from streamsvm.cli import main as cli
from tools import generate
from tools.pages import front_chart

REPOSITORY = Path(__file__).parent.parent.parent
DOCS = REPOSITORY / "tools" / "docs"
DOCUMENTS = [REPOSITORY / "README.md", *sorted(DOCS.rglob("*.md"))]
OLD = {"CHANGELOG.md"}
"""What tells of former times is not run."""
KINDS = {"console", "python", "pycon", "text", "sh", "{toctree}"}
"""``text`` shows what no one types; ``sh`` is for a shell of one's own: files it is read by, clusters there are. ``pycon`` is the example
of a docstring, which ``test_examples`` runs."""


class Block(NamedTuple):
    """A block of a document that is run."""

    kind: str
    line: int
    text: str


def blocks(text: str) -> Iterator[Block]:
    """The fenced blocks of a document."""
    for found in re.finditer(r"^```(\S*)[^\n]*\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        yield Block(found[1], text[: found.start()].count("\n") + 1, found[2])


def commands(text: str) -> Iterator[tuple[str, str | None]]:
    """The commands of a console block, and the code of the error each ends with."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, shown = part.partition("\n")
        code = re.search(r"^error\[([\w-]+)\]", shown, re.MULTILINE)
        yield command, code[1] if code else None


def name_of(path: Path) -> str:
    """What a test of a document is called."""
    return str(path.relative_to(REPOSITORY))


RUN = [
    path
    for path in DOCUMENTS
    if path.name not in OLD and any(b.kind in ("console", "python") for b in blocks(path.read_text("utf-8")))
]


@pytest.mark.filterwarnings("ignore:::mlflow", "ignore:::optuna", "ignore:::shap")  # of their own making
@pytest.mark.parametrize("path", RUN, ids=name_of)
def test_docs_every_block_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in blocks(path.read_text(encoding="utf-8")):
        if block.kind == "python":
            exec(compile("\n" * block.line + block.text, str(path), "exec"), names)
        elif block.kind == "console":
            for command, code in commands(block.text):
                if "--format onnx" in command and find_spec("onnx") is None:
                    continue  # an extra, with tests of its own that say when they are skipped
                run(command, code)


def run(command: str, code: str | None) -> None:
    """Run a command; it ends well, or with the error that the document shows.

    One of ours runs in this process, which is quicker, unless it is bound to a memory that this process has long used up.
    """
    words = shlex.split(command)
    if words[0] == "streamsvm" and "--memory" not in words:
        found = CliRunner().invoke(cli.cli, words[1:])
        status, output = found.exit_code, found.output
    else:
        program = [sys.executable, "-m", "streamsvm", *words[1:]] if words[0] == "streamsvm" else words
        environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
        done = subprocess.run(program, check=False, capture_output=True, text=True, env=environment)
        status, output = done.returncode, done.stdout + done.stderr
    said = f"{command}: {output[-2000:]}"
    assert (status == 0) == (code is None), said
    assert code is None or f"error[{code}]" in output, said


def test_docs_blocks_are_of_a_kind_that_is_known() -> None:
    for path in DOCUMENTS:
        text = path.read_text(encoding="utf-8")
        assert {block.kind for block in blocks(text)} <= KINDS, path
        assert text.count("```") == 2 * len(list(blocks(text))), f"{path}: a block is not closed"


def test_docs_every_command_that_is_shown_can_be_given() -> None:
    """Options and values are parsed, in text that is not run, too."""
    shown = "\n".join(path.read_text(encoding="utf-8") for path in DOCUMENTS if path.name not in OLD)
    for line in re.findall(r"^(?:\$|   ) (streamsvm .*)$", shown, re.MULTILINE):
        _, name, *arguments = shlex.split(line)
        command = cli.cli.get_command(click.Context(cli.cli), name)
        assert command is not None, line
        if not any(word.startswith("--help") for word in arguments):
            command.make_context(name, arguments)


def anchors(path: Path) -> set[str]:
    """The headings of a document as links name them, and its own anchors."""
    text = path.read_text(encoding="utf-8")
    heads = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads} | set(
        re.findall(r"\{#([\w-]+)\}", text)
    )


def test_docs_links_lead_somewhere() -> None:
    for path in DOCUMENTS:
        text = re.sub(r"```.*?```|`[^`\n]*`", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
        targets = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'(?:src|srcset|href)="([^"]+)"', text)
        for target in targets:
            name, _, anchor = target.partition("#")
            assert "://" not in target, f"{path}: {target} needs a network"
            place = path.parent / name if name else path
            assert place.exists(), f"{path}: {target}"
            assert not anchor or anchor in anchors(place), f"{path}: {target}"


def test_docs_every_document_is_in_the_contents() -> None:
    listed = set()
    for path in DOCS.rglob("*.md"):
        for block in blocks(path.read_text(encoding="utf-8")):
            if block.kind == "{toctree}":
                lines = [line for line in block.text.splitlines() if line and not line.startswith(":")]
                names = [re.sub(r".* <(.*)>", r"\1", line) for line in lines]
                listed |= {(path.parent / f"{name}.md").resolve() for name in names}
    assert {path.resolve() for path in DOCS.rglob("*.md")} - listed == {DOCS / "index.md"}


def test_docs_reference_of_python_is_what_is_there() -> None:
    path, make = generate.PAGES["python"]
    assert path.read_text(encoding="utf-8") == make(), "run: python tools/generate.py"


def test_docs_chart_of_the_readme_is_what_was_measured() -> None:
    for path, chart in front_chart.charts().items():
        assert path.read_text(encoding="utf-8") == chart, "run: python -m tools.pages.front_chart"
