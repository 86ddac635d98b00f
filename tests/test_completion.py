"""Completion in a shell: in each one that is installed, what its own machinery finds after the line of the documents."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from streamsvm.cli import main as cli

REPOSITORY = Path(__file__).parent.parent
PAGE = REPOSITORY / "tools" / "docs" / "how-to" / "shell-completion.md"
FOR_ZSH = (
    # what zsh asks for on a terminal, answered without one
    "compdef() {{ : }}; compadd() {{ : }}; _describe() {{ print -l -- ${{(P)3}} }}; {line}\n"
    "words=(streamsvm fit --sol) CURRENT=3; _streamsvm_completion"
)
SHELLS = {
    "bash": (
        "bash",
        "--norc",
        "-c",
        "{line}; COMP_WORDS=(streamsvm fit --sol) COMP_CWORD=2; _streamsvm_completion streamsvm; echo ${{COMPREPLY[@]}}",
    ),
    "zsh": ("zsh", "-f", "-c", FOR_ZSH),
    "fish": ("fish", "--no-config", "-c", "{line}; complete -C 'streamsvm fit --sol'"),
}
"""How each shell is asked what it would complete."""


def documented(shell: str) -> str:
    """The line that the page of completion tells people to put into a file of their shell."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    return next(line.split("    #")[0] for line in lines if f"{shell}_source" in line)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which this package is the command ``streamsvm``."""
    folder = tmp_path_factory.mktemp("bin")
    entry = "import sys\nfrom streamsvm.__main__ import main\nsys.exit(main())\n"  # as pip writes it
    (folder / "streamsvm").write_text(f"#!{sys.executable}\n{entry}")
    (folder / "streamsvm").chmod(0o755)
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "PYTHONPATH": str(REPOSITORY), "HOME": str(folder)}


@pytest.mark.parametrize("shell", SHELLS)
def test_completion_shell_completes_an_option(shell: str, program: dict[str, str]) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    words = [word.format(line=documented(shell)) for word in SHELLS[shell]]
    done = subprocess.run(words, capture_output=True, text=True, env=program, check=False)
    assert "--solver" in done.stdout, done.stderr
    assert "--standardize" not in done.stdout


@pytest.mark.parametrize("shell", SHELLS)
def test_completion_program_answers_every_shell(shell: str) -> None:
    script = CliRunner().invoke(cli.cli, [], prog_name="streamsvm", env={"_STREAMSVM_COMPLETE": f"{shell}_source"})
    assert "_STREAMSVM_COMPLETE" in script.output
    asked = {"_STREAMSVM_COMPLETE": f"{shell}_complete", "COMP_WORDS": "streamsvm fit --sol", "COMP_CWORD": "2"}
    if shell == "fish":
        asked["COMP_CWORD"] = "--sol"
    found = CliRunner().invoke(cli.cli, [], prog_name="streamsvm", env=asked)
    assert "--solver" in found.output


def test_completion_values_are_completed() -> None:
    """Choices of an option, the last one of a list, and files where a path stands."""

    def complete(*words: str) -> str:
        asked = {
            "_STREAMSVM_COMPLETE": "bash_complete",
            "COMP_WORDS": " ".join(words),
            "COMP_CWORD": str(len(words) - 1),
        }
        return CliRunner().invoke(cli.cli, [], prog_name="streamsvm", env=asked).output

    assert complete("streamsvm", "fit", "--loss", "hu") == "plain,huber\n"
    assert "plain,label,decision" in complete("streamsvm", "predict", "--output", "label,d")
    assert complete("streamsvm", "fit", "tra") == "file,tra\n"
    assert "plain,susy" in complete("streamsvm", "synth", "su")
