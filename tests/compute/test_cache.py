"""Where compiled passes are kept."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest

from streamsvm.compute import pass_cache
from streamsvm.compute.compiled import compiled
from streamsvm.compute.random import permutation
from streamsvm.errors import SecurityError

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache directory of a user who has set nothing."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("NUMBA_CACHE_DIR", "")
    monkeypatch.delitem(pass_cache.sys.modules, "numba", raising=False)
    return tmp_path


def test_compile_cache_directory_is_named_by_the_sources_and_private(home: Path) -> None:
    directory = pass_cache.use_cache()
    assert directory == home / "streamsvm" / pass_cache.source_hash()
    assert directory.stat().st_mode & 0o777 == 0o700
    assert os.environ["NUMBA_CACHE_DIR"] == str(directory)


def test_compile_cache_directory_inherited_from_other_sources_is_not_a_choice(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(home / "streamsvm" / "0123456789abcdef"))
    assert pass_cache.use_cache().name == pass_cache.source_hash()


def test_compile_cache_directory_for_one_process_goes_with_it_or_has_gone_before(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_exit: list[Any] = []
    monkeypatch.setattr(pass_cache.atexit, "register", lambda act, *given, **more: at_exit.append((act, given, more)))
    (home / "streamsvm").touch()
    with pytest.warns(UserWarning, match="compiled passes are not kept"):
        directory = pass_cache.use_cache()
    assert directory.is_dir()
    for act, given, more in 2 * at_exit:
        act(*given, **more)
        assert not directory.exists()


@pytest.mark.parametrize("named", [False, True], ids=["ours", "named by the user"])
@pytest.mark.parametrize("mode", [0o777, 0o770, 0o1777])
def test_compile_cache_directory_others_can_write_to_is_refused(
    home: Path, monkeypatch: pytest.MonkeyPatch, named: bool, mode: int
) -> None:
    if named:
        monkeypatch.setenv("NUMBA_CACHE_DIR", str(home / "named"))
    pass_cache.cache_directory().mkdir(parents=True)
    pass_cache.cache_directory().chmod(mode)
    with pytest.raises(SecurityError, match="written to by others"):
        pass_cache.use_cache()


def _of_another_user(directory: Path, _: pytest.MonkeyPatch) -> None:
    directory.mkdir(parents=True, mode=0o700)
    os.chown(directory, 12345, 12345)


def _a_file(directory: Path, _: pytest.MonkeyPatch) -> None:
    directory.parent.mkdir(parents=True, exist_ok=True)
    directory.write_text("not a directory")


def _read_only(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory.mkdir(parents=True, mode=0o700)
    monkeypatch.setattr(pass_cache.os, "access", lambda *_: False)


@pytest.mark.parametrize("unusable", [_of_another_user, _a_file, _read_only])
@pytest.mark.parametrize("named", [False, True], ids=["ours", "named by the user"])
def test_compile_cache_directory_that_cannot_be_used_is_replaced_for_this_process(
    home: Path, monkeypatch: pytest.MonkeyPatch, named: bool, unusable: Any
) -> None:
    """As with the HOME of another user (sudo, containers): a notice, and every command works."""
    if named:
        monkeypatch.setenv("NUMBA_CACHE_DIR", str(home / "named"))
    if unusable is _of_another_user and os.getuid():
        pytest.skip("only root gives files away")
    unusable(pass_cache.cache_directory(), monkeypatch)
    with pytest.warns(UserWarning, match="compiled passes are not kept"):
        found = pass_cache.use_cache()
    assert found.stat().st_mode & 0o777 == 0o700
    assert found.stat().st_uid == os.getuid()
    assert not found.is_relative_to(home)


DAMAGE: dict[str, Any] = {
    "empty": lambda path: path.write_bytes(b""),
    "cut": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "text": lambda path: path.write_text("from another program"),
    "a pickle": lambda path: path.write_bytes(pickle.dumps(7) + pickle.dumps((1, 2, 3))),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
}


PROGRAM = "import numpy as np; from streamsvm.compute.random import permutation; a = np.zeros(5, np.int32); permutation(a, 1); print(a)"


def _run(cache: Path, program: str = PROGRAM) -> str:
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache), "NUMBA_CACHE_DIR": ""}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=REPOSITORY)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A cache with a pass in it, and what the pass says."""
    cache = tmp_path_factory.mktemp("compiled")
    return cache, _run(cache)


def _permuted(cache: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    """What a pass does that has this cache, and how it came to its machine code."""
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(cache))
    again, order = compiled()(permutation.py_func), np.zeros(5, np.int32)
    again(order, 1)
    return order, again.stats


@pytest.fixture(scope="module")
def undamaged(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A cache with a pass in it, and what the pass does."""
    cache = tmp_path_factory.mktemp("compiled")
    with pytest.MonkeyPatch.context() as patch:
        order, stats = _permuted(cache, patch)
        assert stats.cache_misses
        assert _permuted(cache, patch)[1].cache_hits
    return cache, order


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("ending", ["nbi", "nbc"])
def test_compile_cache_damaged_machine_code_is_compiled_again(
    damage: str, ending: str, undamaged: tuple[Path, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(undamaged[0], tmp_path / "cache")
    found = list((tmp_path / "cache").rglob(f"*.{ending}"))
    assert found
    for path in found:
        DAMAGE[damage](path)
    order, stats = _permuted(tmp_path / "cache", monkeypatch)
    assert stats.cache_misses
    np.testing.assert_array_equal(order, undamaged[1])


COMPILER = "scipy.linalg", "numba.np.arraymath"
"""What only the compiler needs, and what takes long to load."""


def test_compile_cache_machine_code_that_is_there_is_loaded_without_the_compiler(filled: tuple[Path, str]) -> None:
    program = f"{PROGRAM}; import sys; print([name for name in {COMPILER} if name in sys.modules])"
    assert _run(filled[0], program) == filled[1] + "[]\n"


def test_what_others_compile_finds_all_of_numba(tmp_path: Path) -> None:
    """A function of the user's own is loaded from numba's cache as without this package."""
    (tmp_path / "theirs.py").write_text("from numba import njit\n@njit(cache=True)\ndef twice(x):\n    return 2 * x\n")
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); {PROGRAM}; from theirs import twice; twice(1); print(*twice.stats.cache_hits)"
    _run(tmp_path / "cache", program)
    again = _run(tmp_path / "cache", f"{program}; print({COMPILER[1]!r} in sys.modules)")
    assert again.endswith("(int64,)\nTrue\n")


@pytest.mark.parametrize("name", ["rows.py", "types/data.py", "losses.py", "compute/__init__.py"])
def test_compile_cache_edit_of_any_source_changes_the_name(
    name: str, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "package"
    (package / name).parent.mkdir(parents=True)
    (package / name).write_text("one")
    monkeypatch.setattr(pass_cache, "_PACKAGE", package)
    before = pass_cache.source_hash()
    (package / name).write_text("two")
    assert pass_cache.source_hash() != before
