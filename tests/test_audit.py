"""tools/audit.py: it agrees with a true certificate and with no other."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import streamsvm as sv
from streamsvm.jobs.fit.driver import fit
from streamsvm.jobs.fit.options import FitJob
from streamsvm.rows import Dense
from streamsvm.store import create
from tests.arrays import csr_of, sparse_values
from tests.axes import each_value
from tools import audit

ROWS, COLUMNS = 500, 5
AUDIT = Path(audit.__file__)


def store_at(path: Path, *, sparse: bool, weighted: bool = False, classes: str = "ab") -> Path:
    """Columns of very different means and deviations, one of them constant."""
    rng = np.random.default_rng(4)
    values = sparse_values(rng, ROWS, COLUMNS)
    codes = np.digitize(values.sum(1) + 0.5 * rng.normal(size=ROWS), [0.3, 1.3][: len(classes) - 1]).astype(np.int32)
    values *= np.array([1.0, 50.0, 0.02, 3.0, 0.0], np.float32)
    if not sparse:
        values += np.array([0.0, 20.0, -1.0, 100.0, 7.0], np.float32)
    weight = rng.choice([0.0, 0.5, 2.0], ROWS).astype(np.float32) if weighted else None
    writer = create(path, sparse=sparse, chunk_bytes=1 << 11)
    writer.append(csr_of(values) if sparse else Dense(values), codes, weight)
    writer.commit(tuple(classes), COLUMNS, {})
    return path


def fitted(directory: Path, store: Path, **settings: Any) -> tuple[Path, Path]:
    """A model and its dual variables."""
    model, dual = directory / "m.ssvm", directory / "dual.npy"
    fit(FitJob(str(store), str(model), dual=str(dual), tolerance=1e-2, max_passes=60, overwrite=True, **settings))
    return model, dual


def judged(store: Path, model: Path, dual: Path | None, capsys: Any) -> tuple[int, str]:
    code = audit.main([str(store), str(model), *([] if dual is None else ["--dual", str(dual)])])
    return code, capsys.readouterr().out


@each_value(
    ("loss", ["hinge", "squared_hinge"]),
    ("sparse", [False, True]),
    ("solver", ["dcd", "newton"]),
    (
        "settings",
        [
            {"standardize": True},
            {"standardize": True, "bias": 0.0},
            {"standardize": True, "bias": 3.0, "class_weight": "balanced"},
            {"bias": 2.0, "class_weight": {"a": 3.0}, "C": 1e-3},
            {"bias": 0.0, "C": 1e-3},
            {"standardize": True, "loss_options": {"margin": 0.5}, "positive": "a"},
        ],
    ),
)
def test_audit_true_certificate_is_confirmed(
    loss: str, sparse: bool, solver: str, settings: dict[str, Any], tmp_path: Path, capsys: Any
) -> None:
    if solver == "newton" and loss == "hinge" and "loss_options" in settings:
        solver = "auto"  # newton refuses such a margin, auto does not choose it then
    store = store_at(tmp_path / "s", sparse=sparse, weighted=True)
    model, dual = fitted(tmp_path, store, loss=loss, solver=solver, **({"C": 0.1} | settings))
    code, said = judged(store, model, dual, capsys)
    assert code == 0, said
    assert said.count("difference") == 2
    assert "the certificate holds" in said
    assert judged(store, model, None, capsys)[1].count("difference") == 1


def test_audit_every_class_is_recomputed(tmp_path: Path, capsys: Any) -> None:
    store = store_at(tmp_path / "s", sparse=False, classes="abc")
    model, dual = fitted(tmp_path, store, C=0.1, standardize=True, class_weight="balanced")
    code, said = judged(store, model, dual, capsys)
    assert code == 0, said
    assert [line for line in said.splitlines() if line.startswith("problem")] == [
        f"problem {k}: C 0.1, class {k} against the rest" for k in range(3)
    ]


@pytest.mark.parametrize("classes", ["ba", "cab"])
def test_audit_every_C_of_a_list_has_its_own_rows_of_the_dual_file(classes: str, tmp_path: Path, capsys: Any) -> None:
    """A model knows which they are, in whatever order the store met its classes, and whichever model is looked at."""
    store = store_at(tmp_path / "s", sparse=False, classes=classes)
    _, dual = fitted(tmp_path, store, C=(0.03, 0.1), standardize=True, loss="hinge")
    for C in ("0.03", "0.1"):
        code, said = judged(store, tmp_path / f"m.C={C}.ssvm", dual, capsys)
        assert code == 0, said
        assert said.count("dual    recomputed") == (1 if len(classes) == 2 else len(classes))


@pytest.mark.parametrize("classes", ["ba", "cab"])
@pytest.mark.parametrize(
    "settings",
    [
        {"standardize": True, "class_weight": "balanced", "loss": "hinge"},
        {"bias": 2.0, "C": (1e-4, 1e-3), "class_weight": {"a": 3.0}, "loss_options": {"margin": 0.5}},
    ],
    ids=["standardized", "raw"],
)
def test_audit_all_classes_in_one_problem_are_recomputed(
    classes: str, settings: dict[str, Any], tmp_path: Path, capsys: Any
) -> None:
    store = store_at(tmp_path / "s", sparse=classes == "ba", weighted=True, classes=classes)
    model, dual = fitted(tmp_path, store, multi_class="crammer_singer", **({"C": 0.1} | settings))
    code, said = judged(store, tmp_path / "m.C=0.001.ssvm" if "C" in settings else model, dual, capsys)
    assert code == 0, said
    assert said.count("difference") == 2
    assert "all classes together" in said


def test_audit_softmax_of_all_classes_is_recomputed(tmp_path: Path, capsys: Any) -> None:
    store = store_at(tmp_path / "s", sparse=False, weighted=True, classes="cab")
    settings = {"standardize": True, "class_weight": "balanced", "loss": "logistic", "loss_options": {"sharpness": 2.0}}
    model, dual = fitted(tmp_path, store, multi_class="softmax", C=0.1, **settings)
    code, said = judged(store, model, dual, capsys)
    assert code == 0, said
    assert said.count("difference") == 2
    assert "all classes together" in said


KINDS: dict[str, dict[str, Any]] = {
    "landmarks": {"kernel": "rbf", "landmarks": 20, "standardize": True, "loss": "hinge", "bias": 2.0},
    "landmarks on disk": {
        "kernel": "laplacian",
        "landmarks": 20,
        "standardize": True,
        "embedding": "disk",
        "bias": 0.0,
    },
    "exact": {"kernel": "rbf", "standardize": True, "loss": "hinge", "class_weight": {"a": 3.0}},
    "exact, squared": {"kernel": "polynomial", "standardize": True, "C": 0.01},
    "logistic": {"loss": "logistic", "standardize": True},
    "huber": {"loss": "huber", "kernel": "rbf", "landmarks": 20, "standardize": True},
}
NUMBERS: dict[str, dict[str, Any]] = {
    "tube": {"loss": "epsilon_insensitive", "standardize": True},
    "squared tube": {"loss": "squared_epsilon_insensitive", "kernel": "rbf", "landmarks": 20, "standardize": True},
    "squares": {"loss": "squared", "bias": 3.0, "standardize": True},
    "quantile": {"loss": "pinball", "loss_options": {"quantile": 0.8}, "kernel": "rbf", "standardize": True},
}


@each_value(("sparse", [False, True]), ("settings", KINDS.values()))
def test_audit_kernel_models_are_recomputed(
    sparse: bool, settings: dict[str, Any], tmp_path: Path, capsys: Any
) -> None:
    store = store_at(tmp_path / "s", sparse=sparse, weighted=True)
    model, dual = fitted(tmp_path, store, **({"C": 0.3} | settings))
    code, said = judged(store, model, dual, capsys)
    assert code == 0, said
    assert said.count("difference") == 2


@pytest.mark.parametrize("settings", NUMBERS.values(), ids=NUMBERS)
def test_audit_models_of_numbers_are_recomputed(settings: dict[str, Any], tmp_path: Path, capsys: Any) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3)) * [1.0, 20.0, 0.1]
    weight = rng.choice([0.0, 0.5, 2.0], 300)
    sv.ingest(X, tmp_path / "n.zarr", y=X[:, 0] ** 2 + X[:, 1], weight=weight, task="regression", chunk=4096)
    model, dual = fitted(tmp_path, tmp_path / "n.zarr", **settings)
    code, said = judged(tmp_path / "n.zarr", model, dual, capsys)
    assert code == 0, said
    assert said.count("difference") == 2
    assert "regression" in said


@pytest.mark.parametrize("kind", ["landmarks", "exact"])
def test_audit_forged_kernel_model_is_not_confirmed(kind: str, tmp_path: Path, capsys: Any) -> None:
    from safetensors.numpy import save_file

    store = store_at(tmp_path / "s", sparse=False)
    model, dual = fitted(tmp_path, store, **({"C": 0.3} | KINDS[kind]))
    header, _ = audit.read_model(model)
    for name in ("weights", "points", "scale", "gamma", "dual"):
        tensors, changed = audit.read_tensors(model), json.loads(json.dumps(header))
        if name in tensors:
            tensors[name] = tensors[name] * tensors[name].dtype.type(1.01)
        elif name == "gamma":
            changed["expansion"]["parameters"]["gamma"] *= 1.01
        else:
            changed["provenance"]["certificates"][0]["dual"] *= 1.001
        save_file(tensors, str(tmp_path / "forged"), {"header": json.dumps(changed)})
        assert judged(store, tmp_path / "forged", dual, capsys)[0] == 1, name


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    root = tmp_path_factory.mktemp("audit")
    store = store_at(root / "s", sparse=False)
    return (store, *fitted(root, store, C=0.1, standardize=True, loss="hinge"))


def forged(model: Path, to: Path, change: Any) -> Path:
    """The model with other weights or another header; its seal is not what this tool looks at."""
    from safetensors.numpy import save_file

    header, weights = audit.read_model(model)
    change(header, weights)
    save_file({"weights": weights}, str(to), {"header": json.dumps(header)})
    return to


@pytest.mark.parametrize(
    "change",
    [
        lambda header, weights: weights.__imul__(1.02),
        lambda header, weights: header["provenance"]["certificates"][0].update(
            primal=header["provenance"]["certificates"][0]["primal"] * (1 + 3e-6)
        ),
        lambda header, weights: header["provenance"]["certificates"][0].update(
            dual=header["provenance"]["certificates"][0]["dual"] * (1 + 3e-6)
        ),
        lambda header, weights: header["provenance"]["settings"].update(standardize=False),
        lambda header, weights: header["provenance"]["settings"].update(bias=1.1),
        lambda header, weights: header["provenance"]["settings"].update(class_weight={"a": 1.01}),
        lambda header, weights: header["provenance"]["settings"].update(loss="squared_hinge"),
        lambda header, weights: header["provenance"]["certificates"][0].update(C=0.1001),
    ],
    ids=["weights", "primal", "dual", "standardized", "bias", "class weight", "loss", "C"],
)
def test_audit_does_not_confirm_a_foreign_certificate(
    change: Any, honest: tuple[Path, Path, Path], tmp_path: Path, capsys: Any
) -> None:
    store, model, dual = honest
    assert judged(store, model, dual, capsys)[0] == 0
    code, said = judged(store, forged(model, tmp_path / "forged", change), dual, capsys)
    assert code == 1, said
    assert "DOES NOT HOLD" in said


@pytest.mark.parametrize("by", [-1.0, 1.0])
def test_audit_dual_variables_outside_their_box_prove_nothing(
    by: float, honest: tuple[Path, Path, Path], tmp_path: Path, capsys: Any
) -> None:
    """Two rows of one kind, one moved up and one down, so that the dual value stays what it is."""
    store, model, dual = honest
    alpha = np.load(dual)
    top = alpha.max()
    alpha[np.argmax(alpha == (0.0 if by < 0 else top))] += by * 1e-3 * top
    np.save(tmp_path / "dual.npy", alpha)
    code, said = judged(store, model, tmp_path / "dual.npy", capsys)
    assert code == 1
    assert "outside their box by at most 1.0e-03" in said


def test_audit_does_not_judge_what_it_cannot(honest: tuple[Path, Path, Path], tmp_path: Path, capsys: Any) -> None:
    store, model, _ = honest
    for change in (
        lambda header, weights: header.update(kind="kernel"),
        lambda header, weights: header["provenance"]["settings"].update(loss="unheard_of"),
        lambda header, weights: header["provenance"]["settings"].update(nu=0.1),
    ):
        code, said = judged(store, forged(model, tmp_path / "forged", change), None, capsys)
        assert code == 2
        assert "cannot be audited" in said


def test_audit_runs_without_the_package(honest: tuple[Path, Path, Path], tmp_path: Path) -> None:
    """In a process that cannot import it."""
    code = (
        "import runpy, sys\nsys.modules['streamsvm'] = None\n"
        "sys.argv = sys.argv[1:]\nrunpy.run_path(sys.argv[0], run_name='__main__')"
    )
    store, model, dual = honest
    command = [sys.executable, "-c", code, str(AUDIT), str(store), str(model), "--dual", str(dual)]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "the certificate holds" in done.stdout


def test_audit_of_a_free_bias_is_refused_by_name() -> None:
    settings = {"free_bias": True, "loss": "logistic", "loss_options": {}, "kernel": "linear"}
    assert "--free-bias" in audit.unknown_kind({"kind": "linear", "provenance": {"settings": settings}}, {})
