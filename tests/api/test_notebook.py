"""A notebook, run as people run one: a store is opened, a fit shows its progress, is interrupted, goes on, and shows its page."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

nbclient = pytest.importorskip("nbclient", reason="needs nbclient and ipykernel")
pytest.importorskip("ipykernel", reason="needs ipykernel")
nbformat = pytest.importorskip("nbformat", reason="needs nbformat")

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


def test_notebook_is_interrupted_resumed_and_shows_the_page(tmp_path: Path) -> None:
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
