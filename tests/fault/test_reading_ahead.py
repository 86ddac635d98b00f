"""A program that ends with an error while a source is read ahead ends as it should, and not with an abort of C++."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.fault.test_process import environment

SLOW_READS = """
import time
from streamsvm.store.sources.input import Input
read = Input.read
def slowly(self, size=-1):
    found = read(self, size)
    if self.position > 2_000_000:
        time.sleep(0.3)  # longer than the program takes to end: what reads ahead is inside of this call then
    return found
Input.read = slowly
from streamsvm.__main__ import main
main()
"""


def test_reading_ahead_no_thread_calls_python_when_the_program_ends(tmp_path: Path) -> None:
    """With pyarrow reading the file in its own threads every other run of this was aborted (SIGABRT)."""
    rows = "".join(f"{k},{'' if k == 90_000 else 1.5},{k % 2}\n" for k in range(500_000))
    (tmp_path / "t.csv").write_text("a,b,y\n" + rows)
    command = [sys.executable, "-c", SLOW_READS, "-q", "ingest", "t.csv", "s.zarr", "--label", "y"]
    for _ in range(2):
        done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr.partition(":")[0]) == (65, "error[E-MISSING]")
