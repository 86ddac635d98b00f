"""What a fit leaves behind, of one C and of several, what it refuses, and that no byte of a store can change without its saying so."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from click.testing import CliRunner
from threadpoolctl import threadpool_info, threadpool_limits

import streamsvm as sv
from streamsvm import model as models
from streamsvm.cli.main import cli
from streamsvm.errors import DataError, ExistsError
from streamsvm.jobs.common_options import EmbedJob
from streamsvm.jobs.embed.build import embed
from streamsvm.jobs.fit import driver
from streamsvm.jobs.fit.driver import FitResult, fit, fit_in_memory, tighten_tolerance
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.plan import make_plan
from streamsvm.jobs.tune.options import TuneJob
from streamsvm.jobs.tune.run import tune, tune_in_memory
from streamsvm.model import load
from streamsvm.rows import Dense
from streamsvm.schedule import budget
from streamsvm.store import create, open_store
from streamsvm.store.views import MemoryStore
from tests.arrays import csr_of, sparse_values
from tests.axes import each_value

ROWS, COLUMNS = 700, 6


class Given(NamedTuple):
    values: Any
    codes: Any
    weight: Any


def rows_of(classes: int = 2) -> Given:
    rng = np.random.default_rng(21)
    values = sparse_values(rng, ROWS, COLUMNS)
    score = values @ rng.normal(size=COLUMNS) + 0.7 * rng.normal(size=ROWS)
    codes = np.digitize(score, [0.4] if classes == 2 else [-0.7, 0.7]).astype(np.int32)
    return Given(values, codes, rng.choice([0.5, 1.0, 2.0], ROWS).astype(np.float32))


def store_at(path: Path, *, sparse: bool = False, weighted: bool = False, names: tuple[str, ...] = ("-1", "1")) -> Path:
    given = rows_of(len(names))
    writer = create(path, sparse=sparse, chunk_bytes=1 << 12)
    rows = csr_of(given.values) if sparse else Dense(given.values)
    writer.append(rows, given.codes, given.weight if weighted else None)
    writer.commit(names, COLUMNS, {})
    return path


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the stores two, three (of three classes), csr and weighted."""
    root = tmp_path_factory.mktemp("fit")
    store_at(root / "two")
    store_at(root / "three", names=("blue", "green", "red"))
    store_at(root / "csr", sparse=True)
    store_at(root / "weighted", weighted=True)
    return root


@pytest.fixture(params=[False, True], ids=["read in every pass", "kept in memory"])
def cached(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    if not request.param:
        monkeypatch.setattr(budget, "MAX_CACHED_BYTES", 0)
    return bool(request.param)


def fitted(store: Path, directory: Path, **settings: Any) -> FitResult:
    return fit(FitJob(str(store), str(directory / "m.ssvm"), **({"solver": "dcd"} | settings)))


def certificate(result: FitResult, k: int = 0) -> Any:
    found = result.training.runs[k].certificate
    assert found is not None
    return found


def objective(given: Given, w: Any, C: float, *, positive: int = 1, factors: Any = None, weighted: bool = False) -> Any:
    """P(w) for the squared hinge, in plain numpy; the last component of w belongs to a constant 1."""
    y = np.where(given.codes == positive, 1.0, -1.0)
    s = np.ones(ROWS) if factors is None else np.asarray(factors)[given.codes]
    s = s * given.weight if weighted else s
    z = np.maximum(0.0, 1.0 - y * (given.values.astype(np.float64) @ w[:-1] + w[-1]))
    return 0.5 * w @ w + C * float(s @ z**2)


# -- what is left behind ----------------------------------------------------------------------------------------------


def test_fit_run_folder_tells_the_whole_story(place: Path, tmp_path: Path, cached: bool) -> None:
    told: list[dict[str, Any]] = []
    result = fit(FitJob(str(place / "two"), str(tmp_path / "m.ssvm"), solver="dcd", tolerance=1e-4), told.append)
    assert result.run == tmp_path / "m.ssvm.run"
    events = [json.loads(line) for line in (result.run / "events.jsonl").read_text().splitlines()]
    began, *logged = events
    assert (began["event"], began["resumed"]) == ("began", False)
    assert began["command"].startswith("streamsvm fit --solver dcd --tolerance 0.0001 ")
    plain = json.loads(json.dumps(told))
    assert [event for event in logged if event["event"] != "progress"] == [e for e in plain if e["event"] != "progress"]
    assert all(event in plain for event in logged)  # of progress some events are left out
    assert [logged[0]["event"], logged[-1]["event"]] == ["plan", "done"]
    passes = [event for event in events if event["event"] == "pass"]
    assert [event["pass"] for event in passes] == list(range(1, result.training.passes + 1))
    assert passes[-1]["exact"]
    assert passes[-1]["gap"] <= certificate(result).gap <= 1e-4  # the rounding of a linear fit is added at its end
    assert all(event["memory"] > 0 and event["seconds"] >= 0 for event in passes)

    plan = json.loads((result.run / "plan.json").read_text())
    assert plan["rows"] == ROWS
    assert plan["total"] == sum(term["bytes"] for term in plan["memory"])
    assert plan["fits"] is True
    assert plan["blocks"] == ("kept in memory" if cached else "read in every pass")

    said = json.loads(Path(result.run, "certificate.json").read_text())
    assert said["status"] == "converged"
    assert (said["primal"], said["dual"]) == (certificate(result).primal, certificate(result).dual)
    assert said["problems"][0]["gap"] == said["gap"] == certificate(result).gap
    assert said["passes"] == result.training.passes

    saved = models.load(tmp_path / "m.ssvm")
    np.testing.assert_array_equal(saved.weights, result.model.weights)
    assert (tmp_path / "m.ssvm").read_bytes() == (result.run / "model.ssvm").read_bytes()


def test_fit_model_says_where_it_comes_from(place: Path, tmp_path: Path) -> None:
    fitted(place / "two", tmp_path, C=0.25, standardize=True)
    saved, store = models.load(tmp_path / "m.ssvm"), open_store(place / "two")
    assert saved.provenance["store"] == {"digest": store.digest, "rows": ROWS}
    assert saved.provenance["settings"]["C"] == 0.25
    assert saved.provenance["settings"]["standardize"] is True
    assert saved.provenance["certificates"][0]["C"] == 0.25
    assert saved.classes == ("-1", "1")


def test_fit_certificate_is_of_the_model_that_is_saved(place: Path, tmp_path: Path, cached: bool) -> None:
    result = fitted(place / "two", tmp_path, C=0.3, tolerance=1e-3)
    w = models.load(tmp_path / "m.ssvm").weights[0]
    assert certificate(result).primal == pytest.approx(objective(rows_of(), w, 0.3), rel=1e-12)


@pytest.mark.parametrize("name", ["two", "csr", "weighted"])
def test_fit_dual_variables_make_the_certificate_checkable(
    name: str, place: Path, tmp_path: Path, cached: bool
) -> None:
    result = fitted(place / name, tmp_path, C=0.3, dual=str(tmp_path / "dual.npy"), loss="hinge")
    alpha, given = np.load(tmp_path / "dual.npy", allow_pickle=False), rows_of()
    assert alpha.shape == (ROWS,)
    assert alpha.dtype == np.float64
    y = np.where(given.codes == 1, 1.0, -1.0)
    top = 0.3 * (given.weight.astype(np.float64) if name == "weighted" else np.ones(ROWS))
    assert np.all((alpha >= 0.0) & (alpha <= top))
    v = (alpha * y) @ np.hstack([given.values.astype(np.float64), np.ones((ROWS, 1))])
    assert certificate(result).dual == pytest.approx(alpha.sum() - 0.5 * v @ v, rel=1e-9)


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge", "huber"])
def test_fit_dual_variables_of_raw_columns_are_those_found_in_memory(loss: str, tmp_path: Path) -> None:
    """To ask for them changes nothing: the slopes at some weights would prove as much only after many more readings."""
    given, scale = rows_of(), np.array([1e-2, 1.0, 30.0, 1e3, 1e4, 1e6], np.float32)
    writer = create(tmp_path / "raw", sparse=True, chunk_bytes=1 << 12)
    writer.append(csr_of(given.values * scale), given.codes, None)
    writer.commit(("-1", "1"), COLUMNS, {})
    asked: dict[str, Any] = {"solver": "newton", "loss": loss, "C": 0.3}
    plain = fitted(tmp_path / "raw", tmp_path, **asked)
    result = fitted(tmp_path / "raw", tmp_path, dual=str(tmp_path / "dual.npy"), overwrite=True, **asked)
    assert result.training.passes == plain.training.passes
    assert certificate(result).dual == certificate(plain).dual
    alpha = np.load(tmp_path / "dual.npy")
    X = np.hstack([(given.values * scale).astype(np.float64), np.ones((ROWS, 1))])
    v = (alpha * np.where(given.codes == 1, 1.0, -1.0)) @ X
    record = plain.plan.problems[0].loss
    value = sum(a - record.conjugate(a, 0.3) for a in alpha.tolist()) - 0.5 * v @ v
    assert certificate(result).dual == pytest.approx(value, rel=1e-7)


CONJUGATES: dict[str, Any] = {"hinge": lambda a, C: 0.0 * a, "squared_hinge": lambda a, C: a * a / (4.0 * C)}


@pytest.mark.parametrize("loss", CONJUGATES)
@pytest.mark.parametrize("tolerance", [1e-3, 0.9])
def test_fit_dual_variables_prove_an_optimum_that_is_zero(loss: str, tolerance: float, tmp_path: Path) -> None:
    """Of rows with both labels, and of rows that are 0: the first reading certifies w = 0 before any variable is known."""
    pairs = np.repeat(np.random.default_rng(0).normal(size=(14, 3)), 2, axis=0).astype(np.float32)
    y, signs = np.array([0, 1] * 14), np.array([-1.0, 1.0] * 14)
    for X in (pairs, np.zeros_like(pairs)):
        sv.ingest(X, tmp_path / "s.zarr", y=y, overwrite=True)
        options: dict[str, Any] = {"loss": loss, "solver": "active_set", "tolerance": tolerance, "overwrite": True}
        found = sv.fit(tmp_path / "s.zarr", tmp_path / "m.ssvm", dual=tmp_path / "d.npy", **options).model.certificates
        alpha = np.load(tmp_path / "d.npy")
        v = (alpha * signs) @ np.c_[X, np.ones(28)]
        value = alpha.sum() - CONJUGATES[loss](alpha, 1.0).sum() - 0.5 * v @ v
        assert found[0].dual == pytest.approx(value, rel=1e-12)
        assert value == pytest.approx(28.0, rel=1e-9)


LOSSES_OF_MARGINS: dict[str, Any] = {
    "logistic": lambda m: np.logaddexp(0.0, -m),
    "squared_hinge": lambda m: np.maximum(0.0, 1.0 - m) ** 2,
    "hinge": lambda m: np.maximum(0.0, 1.0 - m),
}


@each_value(("given", ["balanced", {"0": 226.2166418415713, "1": 0.1}, {"1": 3.0}]), ("weighted", [False, True]))
def test_fit_class_weights_are_those_that_are_asked_for(given: Any, weighted: bool, tmp_path: Path) -> None:
    """Also where float32 does not hold them: P is that of the model, and D below it, to the rounding that is stated."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(41, 2)).astype(np.float32), (rng.random(41) < 0.3).astype(int)
    weight = rng.random(41).astype(np.float32) if weighted else None
    sv.ingest(X, tmp_path / "s.zarr", y=y, weight=weight)
    factors = np.where(y == 1, 41 / (2 * y.sum()), 41 / (2 * (41 - y.sum())))
    factors = factors if given == "balanced" else np.array([given.get(str(t), 1.0) for t in y])
    s = factors if weight is None else factors * weight.astype(np.float64)
    for loss, of_margins in LOSSES_OF_MARGINS.items():
        options: dict[str, Any] = {"loss": loss, "class_weight": given, "tolerance": 1e-8, "overwrite": True}
        found = sv.fit(tmp_path / "s.zarr", tmp_path / "m.ssvm", **options).model
        (certificate,), w = found.certificates, np.append(found.coef, found.intercept)
        margins = np.where(y == 1, 1.0, -1.0) * (np.c_[X, np.ones(41)].astype(np.float64) @ w)
        primal = 0.5 * w @ w + s @ of_margins(margins)
        assert abs(certificate.primal - primal) <= certificate.rounding + 1e-13 * primal
        assert certificate.dual <= primal + certificate.rounding


def test_fit_dual_variables_of_every_class(place: Path, tmp_path: Path, cached: bool) -> None:
    result = fitted(place / "three", tmp_path, C=0.3, dual=str(tmp_path / "dual.npy"))
    alpha, given = np.load(tmp_path / "dual.npy"), rows_of(3)
    assert alpha.shape == (3, ROWS)
    X = np.hstack([given.values.astype(np.float64), np.ones((ROWS, 1))])
    for k in range(3):
        v = (alpha[k] * np.where(given.codes == k, 1.0, -1.0)) @ X
        value = alpha[k].sum() - 0.5 * v @ v - (alpha[k] ** 2).sum() / (4 * 0.3)
        assert certificate(result, k).dual == pytest.approx(value, rel=1e-9)


# -- when it ends -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("passes", [1, 2])
def test_fit_last_pass_allowed_gives_an_exact_certificate(
    place: Path, tmp_path: Path, passes: int, cached: bool
) -> None:
    result = fitted(place / "two", tmp_path, tolerance=1e-12, max_passes=passes)
    assert result.training.passes == passes
    assert certificate(result).exact
    assert certificate(result).primal == pytest.approx(objective(rows_of(), result.model.weights[0], 1.0), rel=1e-9)
    assert json.loads(Path(result.run, "certificate.json").read_text())["status"] == "max passes"


def test_fit_time_limit_ends_with_an_exact_certificate(place: Path, tmp_path: Path) -> None:
    result = fitted(place / "two", tmp_path, tolerance=1e-15, time_limit=1e-9)
    assert result.training.status.value == "time limit"
    assert result.training.passes == 2
    assert certificate(result).exact


# -- what it is asked for ---------------------------------------------------------------------------------------------


def test_fit_balanced_means_one_class_against_all_others(place: Path, tmp_path: Path) -> None:
    given = rows_of(3)
    result = fitted(place / "three", tmp_path, class_weight="balanced", C=0.3)
    for k in range(3):
        mine = int(np.sum(given.codes == k))
        factors = [ROWS / (2.0 * (mine if c == k else ROWS - mine)) for c in range(3)]
        expected = objective(given, result.model.weights[k], 0.3, positive=k, factors=factors)
        assert certificate(result, k).primal == pytest.approx(expected, rel=1e-6)


# -- what it refuses --------------------------------------------------------------------------------------------------


def run_cli(*arguments: object) -> Any:
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


def test_fit_store_that_was_never_finished_is_not_trained_on(tmp_path: Path) -> None:
    store = store_at(tmp_path / "s")
    (store / "manifest.json").unlink()
    with pytest.raises(DataError) as refused:
        fitted(store, tmp_path)
    assert (refused.value.code, refused.value.exit_code) == ("E-INCOMPLETE", 65)
    assert run_cli("fit", store, tmp_path / "m.ssvm").exit_code == 65
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s"]


def test_fit_store_of_one_class_is_refused(tmp_path: Path) -> None:
    writer = create(tmp_path / "s", sparse=False)
    writer.append(Dense(np.ones((5, 2), np.float32)), np.zeros(5, np.int32))
    writer.commit(("1",), 2, {})
    with pytest.raises(DataError, match="one class"):
        fitted(tmp_path / "s", tmp_path)


@pytest.fixture(scope="module")
def fragile(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("fragile")
    return {
        "dense": store_at(root / "dense", weighted=True),
        "csr": store_at(root / "csr", sparse=True, weighted=True),
    }


def chunk_files(store: Path) -> Iterator[Path]:
    for path in sorted(store.rglob("c.*")):
        if path.is_file():
            yield path


@each_value(("form", ["dense", "csr"]), ("at", ["first", "middle", "last"]))
def test_fit_no_byte_of_a_chunk_can_change_unseen(
    form: str, at: str, fragile: dict[str, Path], tmp_path: Path, cached: bool
) -> None:
    """One bit of one byte of every file of every array: the fit stops, says which chunk, and leaves no model."""
    store = fragile[form]
    chunks, arrays = len(open_store(store).layout.chunks), set()
    assert chunks > 2
    for path in chunk_files(store):
        whole = path.read_bytes()
        position = {"first": 0, "middle": len(whole) // 2, "last": len(whole) - 1}[at]
        damaged = bytearray(whole)
        damaged[position] ^= 0x10
        path.write_bytes(damaged)
        try:
            with pytest.raises(DataError, match=rf"chunk \d+ of store '{store}' \(rows \d+-\d+\)") as stopped:
                fitted(store, tmp_path)
        finally:
            path.write_bytes(whole)
        assert stopped.value.exit_code == 65
        assert stopped.value.code == "E-CRC"
        number = int(str(stopped.value).split("chunk ")[1].split()[0])
        if form == "dense":  # there a file is a chunk
            assert path.name.split(".")[1] == str(number)
        assert number < chunks
        assert not (tmp_path / "m.ssvm").exists()
        arrays.add(path.parent.relative_to(store).as_posix())
    assert arrays == ({"X", "y", "weight"} if form == "dense" else {"X/data", "X/indices", "X/indptr", "y", "weight"})
    fitted(store, tmp_path, max_passes=1)  # put back, it is whole again


def test_fit_statistics_that_changed_are_refused_where_they_are_used(fragile: dict[str, Path], tmp_path: Path) -> None:
    store = fragile["dense"]
    others = {"manifest.json", "zarr.json"}
    (path,) = (p for p in store.iterdir() if p.is_file() and p.name not in others)
    whole = path.read_bytes()
    for position in (0, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :])
        try:
            with pytest.raises(DataError):
                fitted(store, tmp_path, standardize=True)
        finally:
            path.write_bytes(whole)


# -- several C ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Three classes, 600 x 4, in several chunks."""
    rng = np.random.default_rng(3)
    codes = rng.integers(0, 3, 600).astype(np.int32)
    X = (rng.normal(size=(600, 4)) + np.eye(3, 4)[codes] * 2).astype(np.float32)
    writer = create(tmp_path / "s.zarr", sparse=False, chunk_bytes=4096)
    writer.append(Dense(X), codes, None)
    writer.commit(("a", "b", "c"), 4, {"names": None})
    return tmp_path / "s.zarr"


def path_fitted(store: Path, name: str, **more: Any) -> Any:
    job = FitJob(str(store), str(store.parent / name), tolerance=1e-4, overwrite=False, **more)
    return fit(job)


@pytest.mark.parametrize("solver", ["newton", "dcd"])
def test_fit_of_several_C_is_that_of_each(store: Path, solver: str) -> None:
    path = path_fitted(store, "p.ssvm", solver=solver, C=(0.01, 1.0))
    for C in (0.01, 1.0):
        alone = path_fitted(store, f"{C:g}.ssvm", solver=solver, C=C)
        found = load(store.parent / f"p.C={C:g}.ssvm")
        assert found.weights.shape == (3, 5)
        np.testing.assert_allclose(found.weights, alone.model.weights, rtol=1e-9)
        assert [c["C"] for c in found.provenance["certificates"]] == [C] * 3
        assert path.training.passes >= alone.training.passes
    assert not (store.parent / "p.ssvm").exists()


def test_fit_of_several_C_claims_all_models_first(store: Path) -> None:
    (store.parent / "p.C=1.ssvm").write_text("taken")
    with pytest.raises(ExistsError):
        path_fitted(store, "p.ssvm", C=(0.01, 1.0))


@pytest.mark.parametrize(
    "asked",
    [
        {"solver": "newton", "loss": "squared_hinge", "tolerance": 1e-15},
        {"solver": "decomposition", "loss": "hinge", "kernel": "rbf", "tolerance": 1e-13},
    ],
    ids=["newton", "decomposition"],
)
def test_fit_in_memory_what_is_asked_for_is_never_softened(store: Path, asked: dict[str, Any]) -> None:
    """The exact finish of small fits only lowers a tolerance."""
    plan = make_plan(FitJob(str(store), "m", **asked), open_store(store))
    assert [p.tolerance for p in tighten_tolerance(plan).problems] == [p.tolerance for p in plan.problems]


# -- in memory ---------------------------------------------------------------------------------------------------------


def test_fit_in_memory_numbers_of_rows_that_do_not_fit_are_in_a_folder_that_is_gone_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng, (here, scratch) = np.random.default_rng(2), (tmp_path / "here", tmp_path / "scratch")
    X = rng.normal(size=(60, 4)).astype(np.float32)
    store = MemoryStore(chunk_bytes=400)
    store.append(Dense(X), (X[:, 0] + rng.normal(size=60) > 0.0).astype(np.int32))
    store.commit(("a", "b"), 4)
    for folder in (here, scratch):
        folder.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    job, weights, files = FitJob("", "", solver="dcd", max_passes=3), [], []
    for resident in (True, False):
        monkeypatch.setattr(driver, "make_plan", partial(_with_rows_kept, resident))
        seen: set[str] = set()
        report = partial(_note, scratch, seen)
        weights.append(fit_in_memory(job, store, report).model.weights)
        files.append(seen)
    np.testing.assert_array_equal(weights[0], weights[1])
    assert not files[0]
    assert files[1]
    assert not list(here.iterdir())
    assert not list(scratch.iterdir())


def _with_rows_kept(resident: bool, job: FitJob, store: Any) -> Any:
    plan = make_plan(job, store)
    return replace(plan, memory=replace(plan.memory, resident=resident, cached=False))


def _note(folder: Path, seen: set[str], _event: Any) -> None:
    """Keep the names of the files below a folder."""
    seen.update(path.name for path in folder.rglob("*") if path.is_file())


# -- threads of BLAS ---------------------------------------------------------------------------------------------------

JOBS: dict[str, Callable[[str, str, Any], object]] = {
    "fit": lambda store, out, report: fit(FitJob(store, out), report),
    "fit in memory": lambda store, _, report: fit_in_memory(FitJob("", ""), open_store(store), report),
    "tune": lambda store, out, report: tune(TuneJob(store, out, C=(1.0,), folds=2), report),
    "tune in memory": lambda store, _, report: tune_in_memory(
        TuneJob("", "", C=(1.0,), folds=2), open_store(store), report
    ),
    "embed": lambda store, out, report: embed(EmbedJob(store, out, kernel="rbf", gamma=0.5, landmarks=10), report),
}


def blas_threads() -> set[int]:
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


@pytest.mark.parametrize("name", JOBS)
def test_fit_tune_and_embed_run_blas_on_one_thread_and_restore_it(name: str, tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(200, 3)).astype(np.float32)
    writer = create(tmp_path / "s", sparse=False, chunk_bytes=800)
    writer.append(Dense(X), (X[:, 0] > 0.0).astype(np.int32), None)
    writer.commit(("a", "b"), 3, {"names": None})
    seen: list[set[int]] = []
    with threadpool_limits(2, user_api="blas"):
        JOBS[name](str(tmp_path / "s"), str(tmp_path / "out"), lambda _: seen.append(blas_threads()))
        assert blas_threads() == {2}
    within = "".join("1" if found == {1} else "2" for found in seen).strip(
        "2"
    )  # some is told before it works, or after
    assert within
    assert "2" not in within
