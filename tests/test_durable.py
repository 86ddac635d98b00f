"""What is written is written whole or not at all, whichever step fails; and nobody else writes files."""

from __future__ import annotations

import ast
import ctypes
import errno
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import streamsvm
from streamsvm import durable
from streamsvm.durable import remove_stale_scratch, restore_replaced, scratch_beside, sweep
from streamsvm.errors import ExistsError, StorageError

OLD, NEW = b"what was there", b"what is to come"
PACKAGE = Path(streamsvm.__file__).parent


@pytest.fixture
def target(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(OLD)
    return path


def failing(name: str, number: int, monkeypatch: pytest.MonkeyPatch, call: int = 1) -> None:
    """Let the ``call``-th use of a function of os fail."""
    real, calls = getattr(os, name), iter(range(1, 1000))

    def fail(*arguments: Any, **more: Any) -> Any:
        if next(calls) == call:
            raise OSError(number, os.strerror(number))
        return real(*arguments, **more)

    monkeypatch.setattr(os, name, fail)


# -- one file, all of it or nothing -----------------------------------------------------------------------------------


@pytest.mark.parametrize("step", ["open", "write", "fsync", "replace"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_durable_step_that_fails_leaves_the_old_file_and_nothing_else(
    step: str, number: int, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        failing(step, number, patch)
        with pytest.raises(StorageError, match=f"writing {target} failed") as refused:
            durable.write_file(target, NEW)
    full = number == errno.ENOSPC
    assert refused.value.code == ("E-NOSPACE" if full else "E-IO")
    assert refused.value.exit_code == 74
    assert ("free space" in refused.value.hint) == full
    assert target.read_bytes() == OLD
    assert os.listdir(target.parent) == ["file"]
    durable.write_file(target, NEW)  # and it can be done again
    assert target.read_bytes() == NEW


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError, ZeroDivisionError])
def test_durable_error_in_making_the_pieces_leaves_the_old_file(error: type[BaseException], target: Path) -> None:
    def pieces() -> Iterator[bytes]:
        yield NEW
        raise error

    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(error):
        durable.write_stream(target, pieces())
    assert target.read_bytes() == OLD
    assert os.listdir(target.parent) == ["file"]
    assert len(os.listdir("/proc/self/fd")) == before


def test_durable_writes_that_take_only_a_part_are_finished(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: real(descriptor, data[:3]))
    durable.write_file(target, NEW, np.arange(5))
    durable.write_part(target.with_name("part"), NEW)
    assert target.read_bytes() == NEW + np.arange(5).tobytes()
    assert target.with_name("part").read_bytes() == NEW


def test_durable_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    for write in (durable.write_file, durable.write_part):
        with pytest.raises(StorageError, match=str(tmp_path / "none" / "file")):
            write(tmp_path / "none" / "file", NEW)


def test_durable_symbolic_link_is_never_written_through(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_bytes(OLD)
    for name, write in (("whole", durable.write_file), ("part", durable.write_part)):
        link = tmp_path / name
        link.symlink_to(precious)
        if name == "part":
            with pytest.raises(StorageError):
                write(link, NEW)
            assert link.is_symlink()
        else:  # the link itself is replaced
            write(link, NEW)
            assert not link.is_symlink()
        assert precious.read_bytes() == OLD
    state = tmp_path / "state"
    state.symlink_to(precious)
    with pytest.raises(StorageError):
        durable.open_state(state, 8)
    with pytest.raises(StorageError):
        durable.sync([state])
    assert precious.read_bytes() == OLD


# -- other ways of writing --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_durable_parts_and_their_sync_say_what_failed(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = tmp_path / "part"
    code = "E-NOSPACE" if number == errno.ENOSPC else "E-IO"
    with monkeypatch.context() as patch:
        failing("write", number, patch)
        with pytest.raises(StorageError, match=f"writing {part}") as refused:
            durable.write_part(part, NEW)
        assert refused.value.code == code
    durable.write_part(part, NEW)
    for call in (1, 2):  # of the file, of its directory
        with monkeypatch.context() as patch:
            failing("fsync", number, patch, call)
            with pytest.raises(StorageError, match="syncing") as refused:
                durable.sync([part])
            assert refused.value.code == code


def test_durable_directory_is_synced_with_all_its_parents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.readlink(f"/proc/self/fd/{descriptor}")))
    durable.make_directory(tmp_path / "a" / "b" / "c")
    assert set(synced) == {str(tmp_path), str(tmp_path / "a"), str(tmp_path / "a" / "b")}
    durable.make_directory(tmp_path / "a")
    with pytest.raises(ExistsError):
        durable.make_directory(tmp_path / "a", fresh=True)


@pytest.mark.parametrize("shape", [(7,), (2, 7), (0,)])
def test_durable_arrays_are_read_back_by_numpy(shape: tuple[int, ...], tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(size=shape)
    flat = values.reshape(-1)
    durable.write_npy(tmp_path / "a.npy", shape, iter([flat[:3], flat[3:4], flat[4:]]))
    found = np.load(tmp_path / "a.npy", allow_pickle=False)
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, values)


def test_durable_state_is_zeros_then_what_was_written_in_place(tmp_path: Path) -> None:
    descriptor = durable.open_state(tmp_path / "state", 80)
    try:
        found = np.full(10, np.nan)
        durable.read_at(descriptor, found, 0, tmp_path / "state")
        assert not found.any()
        durable.write_at(descriptor, np.array([1.0, 2.0]), 24, tmp_path / "state")
        durable.read_at(descriptor, found, 0, tmp_path / "state")
        np.testing.assert_array_equal(found, [0, 0, 0, 1, 2, 0, 0, 0, 0, 0])
        with pytest.raises(StorageError, match="ended early"):
            durable.read_at(descriptor, found, 8, tmp_path / "state")
    finally:
        os.close(descriptor)


def test_durable_state_that_does_not_fit_the_disk_is_not_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failing("posix_fallocate", errno.ENOSPC, monkeypatch)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(StorageError) as refused:
        durable.open_state(tmp_path / "state", 80)
    assert refused.value.code == "E-NOSPACE"
    assert not list(tmp_path.iterdir())
    assert len(os.listdir("/proc/self/fd")) == before


def test_durable_short_reads_and_writes_in_place_are_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    descriptor = durable.open_state(tmp_path / "state", 80)
    write, read = os.pwrite, os.preadv
    monkeypatch.setattr(os, "pwrite", lambda d, data, at: write(d, data[:5], at))
    monkeypatch.setattr(os, "preadv", lambda d, views, at: read(d, [memoryview(views[0])[:3]], at))
    values, found = np.arange(10.0), np.empty(10)
    durable.write_at(descriptor, values, 0, tmp_path / "state")
    durable.read_at(descriptor, found, 0, tmp_path / "state")
    os.close(descriptor)
    np.testing.assert_array_equal(found, values)


def test_durable_log_grows_line_by_line(tmp_path: Path) -> None:
    for line in ("one\n", "two\n"):
        with durable.open_log(tmp_path / "log") as log:
            log.write(line)
            assert (tmp_path / "log").read_text().endswith(line)  # before it is closed
    assert (tmp_path / "log").read_text() == "one\ntwo\n"
    with pytest.raises(StorageError):
        durable.open_log(tmp_path)


def test_durable_sweeping_removes_what_a_killed_writer_left_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    leftovers = [tmp_path / ".a.0f0f0f0f.partial", tmp_path / "deep" / ".b.1a1a1a1a.partial"]
    kept = [tmp_path / "a.partial", tmp_path / ".download.partial", tmp_path / ".hidden", tmp_path / "deep" / "b"]
    for path in leftovers + kept:
        path.write_bytes(OLD)
    sweep(tmp_path)
    assert not any(path.exists() for path in leftovers)
    assert all(path.exists() for path in kept)


def test_durable_sweeping_beside_an_output_leaves_what_belongs_to_others(tmp_path: Path) -> None:
    mine, other = tmp_path / "p[1].csv", tmp_path / "p1.csv"
    with scratch_beside(other) as kept:
        assert kept.is_dir()
        leftovers = [tmp_path / ".p[1].csv.0f0f0f0f.partial", tmp_path / ".p[1].csv.a_folder.partial"]
        leftovers[0].write_bytes(OLD)
        leftovers[1].mkdir()
        (leftovers[1] / "numbers").write_bytes(OLD)
        (tmp_path / ".p1.csv.0f0f0f0f.partial").write_bytes(OLD)
        remove_stale_scratch(mine)
        assert sorted(os.listdir(tmp_path)) == sorted([kept.name, ".p1.csv.0f0f0f0f.partial"])
    assert os.listdir(tmp_path) == [".p1.csv.0f0f0f0f.partial"]


def test_durable_renaming_is_synced(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.readlink(f"/proc/self/fd/{descriptor}")))
    durable.rename(target, target.with_name("other"))
    assert synced == [str(target.parent)]
    assert target.with_name("other").read_bytes() == OLD
    with pytest.raises(StorageError, match="renaming"):
        durable.rename(target, target.with_name("third"))


def test_durable_log_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """``/dev/full`` answers every write as a disk without room does."""
    with pytest.raises(StorageError, match=r"writing /dev/full failed") as refused:
        _logged(Path("/dev/full"), None)
    assert refused.value.code == "E-NOSPACE"
    with pytest.raises(ZeroDivisionError):  # what ended the job is said, not what closing the log adds to it
        _logged(Path("/dev/full"), ZeroDivisionError)


def _logged(path: Path, error: type[Exception] | None) -> None:
    with durable.open_log(path) as log:
        if error is None:
            log.write("event\n")
            return
        with suppress(StorageError):
            log.write("event\n")
        raise error


class Refusing:
    """A C library whose file system cannot exchange names."""

    @staticmethod
    def renameat2(*_: Any) -> int:
        return 1


def test_durable_two_directories_change_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one step where the file system can; else in three, and a kill between them is made good."""
    for refused in (False, True):
        for name in ("old", "new"):
            (tmp_path / name).mkdir(exist_ok=True)
            (tmp_path / name / "file").write_text(name)
        if refused:
            monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: Refusing)
            monkeypatch.setattr(ctypes, "get_errno", lambda: errno.EINVAL)
        durable.exchange(tmp_path / "new", tmp_path / "old")
        assert [(tmp_path / name / "file").read_text() for name in ("old", "new")] == ["new", "old"]
        assert sorted(os.listdir(tmp_path)) == ["new", "old"]


def test_durable_what_was_put_aside_is_given_back_when_nothing_took_its_place(tmp_path: Path) -> None:
    aside = tmp_path / ".store.0f0f0f0f.aside"
    other = tmp_path / ".store.mine.aside"
    for path in (aside, other):
        path.mkdir()
        (path / "file").write_bytes(OLD)
    restore_replaced(tmp_path / "store")
    assert (tmp_path / "store" / "file").read_bytes() == OLD
    aside.mkdir()
    restore_replaced(tmp_path / "store")
    assert sorted(os.listdir(tmp_path)) == [other.name, "store"]


# -- nobody else writes -----------------------------------------------------------------------------------------------

MAY_OPEN: dict[str, str] = {
    "store/hdf5.py": "the HDF5 library writes through a file object that durable opens",
    "__main__.py": "gives standard streams that are closed the null device",
    "store/format/row_ids.py": "pyarrow writes the file, which is synced before the store is committed",
    "store/format/predictions.py": "pyarrow makes a table of bytes in memory, which durable writes",
    "working_copies.py": "a copy of an object is a temporary file, whose bytes are verified as they arrive",
    "locks.py": "a lock is a file that must not be replaced while it is held",
    "store/chunk_cache.py": "what is kept of an object store is verified when it is read, and is no output",
    "cli/main.py": "puts the null device in the place of a standard output that is gone",
}
"""Modules that open a descriptor for writing, and why that is not an output."""
WRITERS = {
    "write_text", "write_bytes", "symlink_to", "hardlink_to", "tofile", "savez", "savez_compressed", "savetxt",
    "save_file", "NamedTemporaryFile", "TemporaryFile", "copyfile", "copytree", "write_table",
}  # fmt: skip
OPENERS = {"open", "File", "fdopen", "memmap", "open_memmap"}
FLAGS = {"O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC", "O_APPEND"}
EXECUTING = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}


def modules() -> list[tuple[str, ast.Module]]:
    paths = sorted(PACKAGE.rglob("*.py"))
    return [(path.relative_to(PACKAGE).as_posix(), ast.parse(path.read_text(encoding="utf-8"))) for path in paths]


def writes(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Calls by which a file could be made or changed."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in FLAGS:
            yield node.lineno, node.attr
        if not isinstance(node, ast.Call):
            continue
        owner, name = called(node)
        opens = name in OPENERS and any(mode.strip("rbtU") for mode in modes(node))
        saves = name in WRITERS and owner != "formatter"  # click's, of the text of --help
        if opens or saves or (owner, name) in (("np", "save"), ("path", "touch")):
            yield node.lineno, f"{owner}.{name}"


def called(node: ast.Call) -> tuple[str, str]:
    """The name of a function and of what it is taken from."""
    if not isinstance(node.func, ast.Attribute):
        return "", getattr(node.func, "id", "")
    return getattr(node.func.value, "id", getattr(node.func.value, "attr", "")), node.func.attr


def modes(node: ast.Call) -> list[str]:
    """The constants among the arguments that can only be modes."""
    given = [*node.args, *(keyword.value for keyword in node.keywords if keyword.arg == "mode")]
    texts = [value.value for value in given if isinstance(value, ast.Constant)]
    return [text for text in texts if isinstance(text, str) and 0 < len(text) <= 3 and set(text) <= set("rwxabt+U-")]


def test_durable_only_one_module_writes_files() -> None:
    found = {name: list(writes(tree)) for name, tree in modules() if name != "durable.py"}
    unexpected = {name: calls for name, calls in found.items() if calls and name not in MAY_OPEN}
    assert not unexpected
    assert all(found[name] for name in MAY_OPEN), "an exception that is no longer needed"


def imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


WRITES_PICKLES = ("jobs/export/job.py",)
"""Modules that write pickles, for scikit-learn, and read none."""


def test_durable_nothing_that_is_read_is_executed() -> None:
    for name, tree in modules():
        found = {module.split(".")[0] for module in imports(tree)} & EXECUTING
        if name in WRITES_PICKLES:
            found -= {"pickle"}
            text = ast.unparse(tree)
            assert set(re.findall(r"pickle\.\w+", text)) <= {"pickle.dumps", "pickle.dump"}, name
        assert not found, name
        for node in ast.walk(tree):
            if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
                assert isinstance(node.value, ast.Constant), name
                assert node.value.value is False, name
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in ("eval", "exec", "compile", "__import__"), (name, node.lineno)
