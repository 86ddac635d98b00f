"""Certificates that are true: of offsets, of large C, of narrow kernels, and of small random problems of every kind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from scipy.spatial.distance import cdist

from streamsvm.cli.main import cli
from streamsvm.jobs.fit.certify import status_of
from streamsvm.jobs.fit.driver import fit
from streamsvm.jobs.fit.options import FitJob
from streamsvm.rows import Dense
from streamsvm.store import create
from streamsvm.types import Status
from tests.axes import each_value
from tests.solvers.kernel_problems import noisy_rows
from tools.fuzz.certificates import Solvers, attempt, case_of
from tools.fuzz.independent import Features, Gram, Rows, kernel_values, solve


def store_at(path: Path, X: Any, y: Any) -> Path:
    writer = create(path, sparse=False, chunk_bytes=4096)
    writer.append(Dense(np.ascontiguousarray(X, np.float32)), (y > 0).astype(np.int32), None)
    writer.commit(("a", "b"), X.shape[1], {"names": None})
    return path


def optimum(K: Any, y: Any, C: float) -> tuple[float, float]:
    """Dual and primal of the hinge with a free bias, by scikit-learn in float64."""
    svm = pytest.importorskip("sklearn.svm")
    machine = svm.SVC(kernel="precomputed", C=C, tol=1e-10).fit(K, y)
    x = np.zeros(len(y))
    x[machine.support_] = machine.dual_coef_[0]
    f, square = K @ x + machine.intercept_[0], float(x @ K @ x)
    return float(np.abs(x).sum()) - 0.5 * square, 0.5 * square + C * float(np.maximum(0.0, 1.0 - y * f).sum())


@each_value(
    ("offset", [0.0, 1e3, 1e4, 1e6]),
    ("kernel, metric", [("rbf", "sqeuclidean"), ("laplacian", "cityblock")]),
    ("C", [1.0, 1e4]),
)
def test_certificate_interval_holds_the_optimum_wherever_the_columns_lie(
    tmp_path: Path, offset: float, kernel: str, metric: Any, C: float
) -> None:
    X, y = noisy_rows(300)
    X = (X + np.float32(offset)).astype(np.float32)
    lower, upper = optimum(np.exp(-cdist(X.astype(float), X.astype(float), metric)), y, C)
    job = FitJob(
        str(store_at(tmp_path / "s", X, y)), str(tmp_path / "m"), solver="decomposition", loss="hinge", kernel=kernel,
        gamma=1.0, C=C,
    )  # fmt: skip
    found = fit(job).training.runs[0].certificate
    assert found is not None
    assert found.dual - found.rounding <= upper
    assert lower <= found.primal + found.rounding
    assert found.gap <= 1e-3
    assert found.rounding <= 1e-4 * found.primal


def test_certificate_problems_that_had_false_certificates_once_have_true_ones(tmp_path: Path) -> None:
    """A few of those tools/fuzz/certificates.py tries by the thousand; time limits are its business."""
    first = Solvers(
        ("auto", "dcd", "newton", "sgd", "pegasos", "assg"),
        ("auto", "newton", "dcd"),
        ("decomposition", "blended", "fw", "mfw", "swap", "partan"),
    )
    later = Solvers(
        ("interior_point", "active_set", "cutting_plane", "mpu", "sgd_qn"),
        ("interior_point", "cutting_plane", "assg"),
        ("kernel_active_set",),
    )
    # rows scaled in float32; a dual point of features in float32; a width beyond it; sparse rows of a narrow Laplacian kernel
    # rows scaled in float32 where w = 0 and v is not
    found_wrong_once = [18, 102, 411, 644, 1251, 21585]
    # kernel values whose range leaves nothing of what bends a squared hinge; columns whose Gram matrix is singular to rounding
    # a sample that is all rows; sums that were kept up through exchanges of rows
    of_later_solvers = [91074, 91150, 91163, 92226, 92318, 92381]
    cases = [case_of(seed, first) for seed in found_wrong_once]
    for case in [*cases, *(case_of(seed, later) for seed in of_later_solvers)]:
        ended, wrong, _ = attempt(case, tmp_path)
        assert [text for text in wrong if not text.startswith("blunt")] == [], (case.settings, ended)


@each_value(("loss", ["hinge", "squared_hinge", "huber"]), ("C", [1e-2, 1e3]))
def test_certificate_independent_solution_encloses_the_optimum_closely(loss: str, C: float) -> None:
    X, y = noisy_rows(80)
    X = X.astype(float)
    rows = Rows(y.astype(float), np.full(len(y), C), loss, free=False)
    K, off = kernel_values("rbf", {"gamma": 0.5}, X, X)
    phi = np.column_stack([X, np.ones(len(X))])
    for space in (Gram(K + 1.0, off), Features(phi, np.zeros(phi.shape[1]))):
        upper, lower, _ = solve(rows, space)
        assert lower.value - lower.off <= upper.value + upper.off
        assert upper.value - lower.value <= 1e-7 * upper.value
        assert upper.off + lower.off <= 1e-8 * upper.value
    free, _, _ = solve(rows._replace(free=True), Gram(K, off))
    if loss == "hinge":
        below, above = optimum(K, y, C)
        assert below - 1e-6 * above <= free.value <= above * (1 + 1e-6)


def test_certificate_fit_that_ends_uncertified_says_so_and_strict_makes_it_an_error(tmp_path: Path) -> None:
    X, y = noisy_rows(200)
    X[:, 1] *= 1e6
    path = store_at(tmp_path / "s", X, y)
    asked = ["fit", str(path), str(tmp_path / "m"), "--solver", "dcd", "--max-passes", "2", "--C", "100"]
    ended = CliRunner().invoke(cli, asked)
    assert ended.exit_code == 0
    line = next(line for line in ended.stderr.splitlines() if line.startswith("warning: "))
    assert "not certified: gap" in line
    assert "all 2 passes were made" in line
    assert "scales of columns differ by 1e+06" in line
    assert "next: a larger --max-passes" in line
    record = json.loads((tmp_path / "m.run" / "certificate.json").read_text())
    assert record["status"] == "max passes"
    assert record["rounding"] >= 0.0
    strict = CliRunner().invoke(cli, [*asked, "--strict", "--overwrite"])
    assert strict.exit_code == 76
    assert (tmp_path / "m").is_file()


def test_certificate_model_that_no_pass_was_left_to_shorten_says_so(tmp_path: Path) -> None:
    path = store_at(tmp_path / "s", *noisy_rows(200))
    for passes, said in ((2, True), (3, False)):
        job = FitJob(str(path), str(tmp_path / f"m{passes}"), kernel="rbf", max_passes=passes, max_support=5)
        result = fit(job)
        support = result.model.weights.shape[1] - 1
        assert (support > 5) == said
        assert (f"no pass was left to choose 5 of {support} support rows" in result.warnings[0]) == said


def test_certificate_converged_is_said_only_of_the_gap_that_was_asked_for(tmp_path: Path) -> None:
    X, y = noisy_rows(200)
    path = store_at(tmp_path / "s", X, y)
    job = FitJob(str(path), str(tmp_path / "m"), kernel="rbf", gamma=0.5, max_support=20, loss="hinge")
    result = fit(job)
    assert result.training.status == Status.SUPPORT
    assert result.warnings[0].startswith("not certified: ")
    assert status_of(result.training, result.plan) == Status.SUPPORT
