"""Notebooks, run as people run them: a day of a data scientist, and a fit that is interrupted, goes on, and shows its page."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sklearn", minversion="1.6")

DAY = Path(__file__).parent / "notebook.py"
"""The notebook of a day; a cell begins with ``# %% Title``, or ``# %% Title [needs package, package]``."""
HAS_KERNEL = all(find_spec(name) for name in ("nbclient", "nbformat", "ipykernel"))
CELLS = [
    "import os, time\nimport streamsvm as sv\nprint(os.getpid())",
    'sv.synth("susy", "train.zarr", rows=3000)\nsv.open_store("train.zarr").layout.rows',
    """def slowly(record):
    open("began", "w").close()
    while not os.path.exists("interrupted"): time.sleep(0.02)
given = dict(solver="dcd", loss="hinge", C=1.0, tolerance=1e-4, progress=True)
sv.fit("train.zarr", "model.ssvm", on_pass=slowly, **given)""",
    'import signal\nsorted(os.listdir("model.ssvm.run")), signal.getsignal(signal.SIGINT) is signal.default_int_handler',
    'result = sv.fit("train.zarr", "model.ssvm", resume=True, **given)\nprint(result.training.passes, result.model.certificate.gap, result.training.status)',
    "result",
]
"""What is typed, cell by cell."""


def interrupt_when_begun(pid: int, place: Path) -> None:
    """Press Ctrl-C, as the button of a notebook does, once a pass has been made, which waits for it."""
    while not (place / "began").exists():
        time.sleep(0.05)
    os.kill(pid, signal.SIGINT)
    (place / "interrupted").touch()


def text_of(cell: Any, kind: str = "text/plain") -> str:
    """What a cell has shown."""
    shown = [out["text"] if "text" in out else out.get("data", {}).get(kind, "") for out in cell.outputs]
    return "".join(shown)


def read_cells() -> Iterator[tuple[str, list[str], str]]:
    """Yield title, needed packages and source of each cell of the day."""
    for source in re.split(r"^(?=# %% )", DAY.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        title, _, needs = source.partition("\n")[0].removeprefix("# %% ").rstrip("]").partition(" [needs ")
        yield title, needs.split(", ") if needs else [], source


@contextmanager
def open_runner(place: Path) -> Iterator[Callable[[str], object]]:
    """Provide what runs cells in a folder: the kernel of a notebook, or without one a namespace of this process."""
    if not HAS_KERNEL:
        names: dict[str, object] = {"__name__": "__main__"}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield lambda source: exec(source, names)
        return
    import nbclient
    import nbformat

    notebook = nbformat.v4.new_notebook()
    client = nbclient.NotebookClient(notebook, timeout=None, resources={"metadata": {"path": str(place)}})

    def run(source: str) -> None:
        notebook.cells.append(nbformat.v4.new_code_cell(source))
        client.execute_cell(notebook.cells[-1], len(notebook.cells) - 1)

    with client.setup_kernel():
        yield run


def test_notebook_of_a_day_does_what_every_cell_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # a cell sets it: to be undone
    cells = list(read_cells())
    assert len(cells) >= 40
    with open_runner(tmp_path) as run:
        for title, needs, source in cells:
            with subtests.test(title):
                if absent := [name for name in needs if find_spec(name) is None]:
                    pytest.skip(f"needs {', '.join(absent)}")
                run(source)


@pytest.mark.skipif(not HAS_KERNEL, reason="needs nbclient, nbformat and ipykernel")
def test_notebook_is_interrupted_resumed_and_shows_the_page(tmp_path: Path) -> None:
    import nbclient
    import nbformat

    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in CELLS])
    notebook.cells[2].metadata["tags"] = ["raises-exception"]
    client = nbclient.NotebookClient(notebook, timeout=200, resources={"metadata": {"path": str(tmp_path)}})
    with client.setup_kernel():
        for number, cell in enumerate(notebook.cells):
            if number == 2:
                pid = int(text_of(notebook.cells[0]))
                threading.Thread(target=interrupt_when_begun, args=(pid, tmp_path), daemon=True).start()
            client.execute_cell(cell, number)
    opened, stopped, after, resumed, page = notebook.cells[1:]
    assert text_of(opened).endswith("3000")
    (error,) = [out for out in stopped.outputs if out.output_type == "error"]
    assert error.ename == "InterruptedRun"
    assert "resume" in "".join(error.traceback)
    assert any(out.output_type != "error" for out in stopped.outputs), "no progress was shown"
    assert "checkpoint" in text_of(after)
    assert text_of(after).endswith("True)")
    passes, gap, status = text_of(resumed).splitlines()[-1].split()
    assert int(passes) > 1
    assert float(gap) <= 1e-4
    assert status == "converged"
    assert "<iframe" in text_of(page, "text/html")
