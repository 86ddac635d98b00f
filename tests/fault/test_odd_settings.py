"""Settings and data at the edge of numbers: an answer, or an error that names what is wrong; never an internal one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from streamsvm.cli.main import cli
from streamsvm.jobs.fit.driver import FitResult, fit
from streamsvm.jobs.fit.options import FitJob
from streamsvm.rows import Dense
from streamsvm.store import create

INTERNAL = (1, 70)
ROWS = 80
"""Few: where float32 ends, no fit converges, and the steps it makes before it stalls grow with their number."""


def store_of(path: Path, scale: float = 1.0) -> Path:
    rng = np.random.default_rng(0)
    writer = create(path, sparse=False, chunk_bytes=1600)
    X = (scale * rng.normal(size=(ROWS, 4)).clip(-3, 3)).astype(np.float32)
    writer.append(Dense(X), (rng.random(ROWS) < 0.5).astype(np.int32), None)
    writer.commit(("a", "b"), 4, {"names": None})
    return path


def fitted(tmp_path: Path, scale: float = 1.0, **settings: Any) -> FitResult:
    return fit(FitJob(str(store_of(tmp_path / "s", scale)), str(tmp_path / "m"), time_limit=240.0, **settings))


@pytest.mark.parametrize("scale", [1e37])
@pytest.mark.parametrize(
    ("kernel", "solver", "loss"),
    [
        ("rbf", "decomposition", "squared_hinge"),
        ("polynomial", "decomposition", "hinge"),
        ("linear", "blended", "squared_hinge"),
    ],
)
def test_odd_settings_values_near_the_end_of_float32_end_with_bounds(
    kernel: str, solver: str, loss: str, scale: float, tmp_path: Path
) -> None:
    """By itself, well before the time limit, and certified where the problem is one that can be."""
    found = fitted(tmp_path, scale, kernel=kernel, solver=solver, loss=loss)
    certificate = found.training.runs[0].certificate
    assert certificate is not None
    assert np.isfinite([certificate.primal, certificate.dual, certificate.rounding]).all()
    assert -certificate.rounding <= certificate.dual <= certificate.primal
    assert found.training.status in {"converged", "stalled"}
    assert kernel == "linear" or certificate.gap <= 1e-3


ODD = {
    "a corner without width": ("--loss", "huber", "--set", "loss.mu=0"),
    "a bias beyond squares": ("--bias", "1e300"),
    "a long dotted key": ("--set", ".".join(["solver"] * 3000) + "=1"),
    "a thousand dotted keys": tuple(word for k in range(1000) for word in ("--set", f"solver.k{k}=1")),
    "a deep value": ("--set", "solver.sweeps=" + "[" * 3000),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_settings_are_refused_by_name(name: str, tmp_path: Path) -> None:
    ended = CliRunner().invoke(cli, ["-q", "fit", str(store_of(tmp_path / "s")), str(tmp_path / "m"), *ODD[name]])
    assert ended.exit_code not in (0, *INTERNAL), ended.output[-500:]
    assert "E-INTERNAL" not in ended.output
    assert "hint" in ended.output or "Error" in ended.output
    assert not (tmp_path / "m").exists()


def test_odd_settings_job_file_of_odd_keys_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    for text in ("[fit]\n" + ".".join(["a"] * 3000) + " = 1\n", "[" + ".".join(["fit"] * 3000) + "]\n"):
        path.write_text(text)
        ended = CliRunner().invoke(cli, ["-q", "run", str(path)])
        assert ended.exit_code not in (0, *INTERNAL), ended.output[-500:]
        assert "E-INTERNAL" not in ended.output
