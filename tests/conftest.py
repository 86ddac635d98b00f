"""What all tests share: where compiled passes go, where the real data lies, how hard hypothesis tries."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from threadpoolctl import threadpool_limits

import streamsvm.compute  # noqa: F401  before numba: it names the cache after the sources
from streamsvm.compute import freed_memory
from streamsvm.schedule import budget

REPOSITORY = Path(__file__).resolve().parent.parent
CI = os.environ.get("CI", "").lower() == "true"

# A first example may compile a pass, which takes seconds: no deadline.
settings.register_profile("default", deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("default"), derandomize=True, print_blob=True)
settings.register_profile("thorough", settings.get_profile("default"), max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if CI else "default"))

# Of the time of a small program that a test starts a fifth goes into compiling Python that was compiled before.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Each worker has a stretch of files, not every other test: what a module shares is made, a pass compiled, once."""
    if config.getoption("numprocesses", None) and config.option.dist == "no":
        config.option.dist = "worksteal"


def pytest_collection_finish() -> None:
    """Half a million objects of collected tests stay to the end: no need to look for garbage among them."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _plans_of_a_program_that_begins() -> Iterator[None]:
    """Plans of the tests' own process leave out what it has grown by all it has run and compiled: a GiB once, on a cold cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(budget, "anonymous_bytes", lambda: budget.NOMINAL)
        yield


@pytest.fixture(scope="module", autouse=True)
def _memory_is_given_back() -> Iterator[None]:
    """What a file of tests has freed is no part of the peaks that later ones measure."""
    yield
    freed_memory.give_back()


@pytest.fixture(scope="module", autouse=True)
def _waiting_for_the_disk(request: pytest.FixtureRequest) -> Iterator[None]:
    """Only tests of what a disk has when power or programs fail wait for it: in others, and not in programs they start, no fsync.

    Of a test that ingests it was a twelfth of the time: thirty calls.
    """
    if "fault" in request.path.parts or request.path.name == "test_durable.py":
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", _checked)
        yield


def _checked(descriptor: int) -> None:
    """Fail for what is no open file, as fsync does."""
    os.fstat(descriptor)


@pytest.fixture(scope="session", autouse=True)
def nothing_is_left() -> Iterator[None]:
    """All tests together leave no file in the repository's root, which is where they mostly run; hidden ones are caches."""
    before = set(REPOSITORY.glob("[!.]*"))
    yield
    assert set(REPOSITORY.glob("[!.]*")) <= before, "a test has left files in the working directory"


@pytest.fixture(scope="session", autouse=True)
def _one_thread_of_blas() -> Iterator[None]:
    """Of the processes that run tests, not of programs they start: idle threads of BLAS wait in a loop, for a core that another worker has.

    A test that solves small systems took ten times as long.
    """
    import scipy.linalg  # noqa: F401  it brings a BLAS of its own

    with threadpool_limits(1, user_api="blas"):
        yield


@pytest.fixture(scope="session", autouse=True)
def _signals_for_tests() -> None:
    """Behind nohup or ``&`` signals are ignored, and would be in all that tests start: here they do nothing, there what they do."""
    for number in (signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of real data sets: $STREAMSVM_DATA, else ``../shared/data`` beside the repository. Skips if absent."""
    chosen = os.environ.get("STREAMSVM_DATA")
    if chosen and not Path(chosen).is_dir():
        pytest.fail(f"STREAMSVM_DATA={chosen} is no directory")
    path = Path(chosen) if chosen else REPOSITORY.parent / "shared" / "data"
    if not path.is_dir():
        pytest.skip(f"the real data sets are not here: {path} does not exist (set STREAMSVM_DATA)")
    return path


@pytest.fixture(scope="session")
def data_file(data_dir: Path) -> Callable[[str], Path]:
    """Ask for one file of the data folder by name; one that is missing is a skip, and a failure under CI=true."""

    def find(name: str) -> Path:
        path = data_dir / name
        if not path.exists():
            (pytest.fail if CI else pytest.skip)(f"{path} does not exist")
        return path

    return find
