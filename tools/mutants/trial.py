"""Tests of a tree run in a fork of this process, which has loaded all packages but the tree's own: a start costs no second.

Passes run as Python (NUMBA_DISABLE_JIT): a change of one of them costs no compilation.
"""

from __future__ import annotations

import importlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

PACKAGES = (
    "numpy", "scipy.linalg", "scipy.sparse.linalg", "scipy.optimize", "numba", "pyarrow.csv", "pyarrow.parquet", "h5py", "zarr",
    "numcodecs", "msgspec", "click", "rich.console", "rich.progress", "pandas", "sklearn.svm", "sklearn.linear_model",
    "sklearn.datasets", "safetensors.numpy", "crc32c", "psutil", "threadpoolctl", "filelock", "zstandard",
)  # fmt: skip
"""What tests and the package load, loaded once."""
IGNORED = ("ignore::pytest.PytestAssertRewriteWarning", "ignore::RuntimeWarning")
"""Packages that were loaded before pytest cannot have their assertions written anew, and Python tells of whole numbers that
wrap around and of divisions by 0 where compiled passes do not."""
OPTIONS = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", *(word for one in IGNORED for word in ("-W", one))]
SECONDS = 600.0
"""By the clock: a mutant whose tests take longer is noticed; they do not, on a machine with much else to do."""


class Chosen:
    """A plugin of pytest that keeps the tests that were named, in that order."""

    def __init__(self, names: list[str]) -> None:
        self._place = {name: k for k, name in enumerate(names)}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave the others out."""
        items[:] = sorted((item for item in items if item.nodeid in self._place), key=lambda i: self._place[i.nodeid])


class Trials:
    """Runs of tests in a copy of the repository."""

    def __init__(self, tree: Path) -> None:
        self._tree = tree
        os.environ |= {"NUMBA_DISABLE_JIT": "1", "PYTHONPATH": str(tree), "HYPOTHESIS_PROFILE": "ci"}
        for name in PACKAGES:
            importlib.import_module(name)

    def tests(self, words: list[str], plugin: Any, after: Callable[[], None] = lambda: None) -> int:
        """Run pytest on files of the tree; returns its exit code, or -1 where it did not end in time."""
        child = os.fork()
        if child == 0:
            os._exit(self._child(words, plugin, after))
        return self._ended(child)

    def _child(self, words: list[str], plugin: Any, after: Callable[[], None]) -> int:
        os.setsid()
        silence = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(silence, descriptor)
        os.chdir(self._tree)
        sys.path[:0] = [str(self._tree)]
        try:
            ended = int(pytest.main([*OPTIONS, *words], plugins=[plugin]))
            after()
        except BaseException:  # noqa: BLE001  whatever a mutant does, it was noticed
            return 99
        return ended

    def _ended(self, child: int) -> int:
        until = time.monotonic() + SECONDS
        ended = (0, 0)
        while not ended[0] and time.monotonic() < until:
            ended = os.waitpid(child, os.WNOHANG)
            time.sleep(0.02)
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # with all that it began
        if not ended[0]:
            os.waitpid(child, 0)
            return -1
        return os.waitstatus_to_exitcode(ended[1])

    def with_file(self, path: str, text: str, tests: list[str]) -> int:
        """Run tests with one file of the tree changed, until the first that fails."""
        target = self._tree / path
        whole, times = target.read_bytes(), target.stat()
        target.write_text(text, encoding="utf-8")
        files = list(dict.fromkeys(name.partition("::")[0] for name in tests))
        try:
            return self.tests(["-x", *files], Chosen(tests))
        finally:
            target.write_bytes(whole)
            os.utime(target, ns=(times.st_atime_ns, times.st_mtime_ns))  # its byte code is that of this time


def copied(repository: Path, tree: Path) -> None:
    """A copy of the repository without what is built, all of it compiled to byte code."""
    left_out = shutil.ignore_patterns(".git", "__pycache__", "build", ".venv")
    shutil.rmtree(tree, ignore_errors=True)
    shutil.copytree(repository, tree, ignore=left_out)
    subprocess.run([sys.executable, "-m", "compileall", "-q", "-j1", "streamsvm"], cwd=tree, check=True)
