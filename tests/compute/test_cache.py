"""Where compiled passes are kept."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from streamsvm import compute
from streamsvm.errors import SecurityError


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache directory of a user who has set nothing."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("NUMBA_CACHE_DIR", "")
    monkeypatch.delitem(compute.sys.modules, "numba", raising=False)
    return tmp_path


def test_directory_is_named_by_the_sources_and_private(home: Path) -> None:
    directory = compute.use_cache()
    assert directory == home / "streamsvm" / compute.source_hash()
    assert directory.stat().st_mode & 0o777 == 0o700
    assert os.environ["NUMBA_CACHE_DIR"] == str(directory)


def test_choice_of_the_user_is_respected(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", "/somewhere/else")
    assert compute.use_cache() == Path("/somewhere/else")


def test_directory_inherited_from_other_sources_is_not_a_choice(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(home / "streamsvm" / "0123456789abcdef"))
    assert compute.use_cache().name == compute.source_hash()


def test_month_old_caches_are_swept(home: Path) -> None:
    old, recent = home / "streamsvm" / "old", home / "streamsvm" / "recent"
    for directory in (old, recent):
        directory.mkdir(parents=True)
    long_ago = time.time() - compute.KEEP_SECONDS - 60
    os.utime(old, (long_ago, long_ago))
    compute.use_cache()
    assert not old.exists()
    assert recent.exists()


def test_directory_others_can_write_to_is_refused(home: Path) -> None:
    compute.cache_directory().mkdir(parents=True)
    compute.cache_directory().chmod(0o777)
    with pytest.raises(SecurityError, match="written to by others"):
        compute.use_cache()


@pytest.mark.parametrize("name", ["rows.py", "types/data.py", "compute/__init__.py"])
def test_edit_of_any_source_changes_the_name(
    name: str, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "package"
    (package / name).parent.mkdir(parents=True)
    (package / name).write_text("one")
    monkeypatch.setattr(compute, "_PACKAGE", package)
    before = compute.source_hash()
    (package / name).write_text("two")
    assert compute.source_hash() != before
