"""Write the artefacts that ``test_old_artefacts`` opens, predicts with and goes on from.

Run with the commit that is to be preserved, in its checkout: ``python -m tests.compat.make_artefacts NAME``, where NAME
is the short hash of that commit. It writes tests/compat/artefacts/NAME and takes a minute or two. Artefacts are never made
again by a later commit: they would no longer be old. A later commit adds a folder of its own beside them, where it
changes what is on disk; the test looks at all folders there are.

Fits are stopped by a time limit of 0 seconds, which lets one block be visited at a time; what has no time limit is
killed at a step of its writing (STREAMSVM_FAULT).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from click.testing import CliRunner, Result

from streamsvm.cli import cli
from tests.compat.artefacts import EXPECTED, HERE, SOURCE_TIME, STORES, arrays_of, digest_of, machine, pack
from tests.fault.golden import placed

REPOSITORY = Path(__file__).resolve().parents[2]
ROWS, COLUMNS = 140, 16
INTERRUPTED = 75
KILLED, STRIDE = -9, 8
LIMITS = ("--time-limit", "0", "--at-limit", "stop")
EDGE = ("--tolerance", "1e-13")


class Case(NamedTuple):
    """A fit to be interrupted after ``visits`` blocks; on groups: after ``visits`` passes."""

    store: str
    arguments: str
    visits: int
    kept: bool = False
    """Whether blocks stay in memory."""
    resident: bool = True
    """Whether per-row state does."""
    passes: int = 3
    groups: bool = False


RBF = "--kernel rbf --gamma 0.05 --standardize"
POOL = "--set solver.pool=40"
NYSTROM = "--kernel rbf --gamma 0.05 --landmarks 8 --standardize --embedding"
CASES = {
    "dcd": Case("dense", "--solver dcd --loss hinge", 6),
    "dcd-state-on-disk": Case("dense", "--solver dcd --loss squared_hinge", 6, resident=False),
    "dcd-in-memory": Case("dense", "--solver dcd --loss hinge --class-weight balanced --standardize", 2, kept=True),
    "dcd-classes": Case("classes", "--solver dcd --loss hinge", 6, resident=False),
    "dcd-path-validated": Case("dense", "--solver dcd --C 0.1,1 --validation 0.25 --patience 3", 4),
    "newton": Case("dense", "--solver newton --set solver.sample=40", 7, passes=6),
    "newton-csr-huber": Case("csr", "--solver newton --loss huber --set solver.sample=40", 7, passes=6),
    "newton-in-memory": Case("classes", "--solver newton", 2, kept=True, passes=4),
    "sgd": Case("dense", "--solver sgd --loss hinge", 6),
    "sgd-r": Case("csr", "--solver sgd --loss hinge --set solver.variant=r", 5),
    "pegasos": Case("dense", "--solver pegasos --loss hinge --set solver.batch=4", 6),
    "assg": Case("dense", "--solver assg --loss hinge --set solver.rows_per_stage=70", 6),
    "decomposition": Case("dense", f"--solver decomposition --loss hinge {RBF} {POOL}", 9, passes=6),
    "decomposition-csr": Case(
        "csr", f"--solver decomposition --kernel laplacian --gamma 0.05 {POOL}", 8, resident=False, passes=6
    ),
    "blended": Case("dense", f"--solver blended {RBF} {POOL}", 9, passes=6),
    "fw": Case("dense", f"--solver fw {RBF} {POOL} --set solver.epsilon=1e-9 --set solver.iterations=50", 9, passes=6),
    "mfw-polynomial": Case(
        "csr", f"--solver mfw --kernel polynomial --gamma 0.05 {POOL} --set solver.iterations=50", 8, passes=6
    ),
    "swap-sampled-linear": Case(
        "dense", f"--solver swap --kernel linear {POOL} --set solver.sample=20 --set solver.iterations=60", 9
    ),
    "partan-sampled-sigmoid": Case(
        "dense",
        f"--solver partan --kernel sigmoid --gamma 0.02 {POOL} --set solver.sample=20 --set solver.iterations=60",
        9,
        passes=4,
    ),
    "nystrom-newton": Case("dense", f"--solver newton {NYSTROM} fly", 7, passes=5),
    "nystrom-newton-first-pass": Case("dense", f"--solver newton {NYSTROM} fly", 3, passes=5),
    "nystrom-dcd": Case("csr", f"--solver dcd {NYSTROM.replace('--standardize ', '')} fly", 6),
    "nystrom-on-disk": Case("dense", f"--solver dcd {NYSTROM} disk --embedding-dtype int8", 2),
    "groups-newton": Case("dense", "--solver newton --set solver.sample=40 --cluster here: --groups 3", 3, groups=True),
    "groups-nystrom": Case(
        "dense", f"--solver newton --loss hinge --C 10 {NYSTROM} fly --cluster here: --groups 3", 3, groups=True
    ),
    "groups-dcd": Case("dense", "--solver dcd --loss hinge --cluster here: --groups 3", 3, groups=True),
    "groups-sgd": Case("dense", "--solver sgd --loss hinge --cluster here: --groups 3", 3, groups=True),
}
EMBEDDINGS = {
    kind: f"--kernel rbf --gamma 0.05 --landmarks 8 --standardize --dtype {kind} --chunk 1024"
    for kind in ("float32", "float16", "int8")
}
MODELS = {
    "linear": ("dense", "--standardize", "rows.csv"),
    "classes": ("classes", "--loss hinge", "rows3.csv"),
    "weighted": ("csr", "--class-weight balanced --bias 2", "rows.csv"),
    "svmlight": ("light", "--solver sgd --loss hinge --max-passes 10", "rows.svm"),
    "hdf5": ("hdf5", "--solver dcd --C 0.1,1 --max-passes 20", "rows.csv"),
    "nystrom": ("dense", f"{NYSTROM} fly", "rows.csv"),
    "embedded": ("float16", "", "rows.csv"),
    "exact": ("dense", RBF, "rows.csv"),
    "exact-classes": ("classes", "--kernel polynomial --gamma 0.05 --loss hinge", "rows3.csv"),
}
"""Store, settings, and the file of new rows."""
SMALL = "--label y --chunk 4096"
STORES_OF = {
    "dense": f"rows.csv {SMALL} --drop w",
    "csr": f"rows.csv {SMALL} --layout csr --weight w",
    "light": f"rows.svm --chunk 4096 --features {COLUMNS}",
    "classes": f"rows3.csv {SMALL} --compression lz4 --test-fraction 0.2",
    "hdf5": f"rows.csv {SMALL} --drop w --store-format hdf5",
}
FEW = "--gamma 0.05 --landmarks 6 --chunk 192"
JOURNALLED = {
    "ingest": ("long.zarr", "ingest long.csv.gz long.zarr --label y --chunk 4096 --compression lz4"),
    "ingest-csr": ("lean.zarr", "ingest long.csv.gz lean.zarr --label y --chunk 4096 --layout csr --compression lz4"),
    "embed": ("e.emb", f"embed dense.store e.emb {FEW}"),
    "embed-groups": ("e.emb", f"embed dense.store e.emb {FEW} --dtype int8 --cluster here:"),
    "tune": ("t", "tune dense.store t --solver dcd --kernel rbf --landmarks 6,9 --gamma 0.1,0.2 --C 0.1,1 --folds 3"),
}
"""What is made, and the command that makes it."""
CELLS = 4
"""Of the grid above."""


def call(*arguments: object) -> Result:
    return CliRunner().invoke(cli, [str(a) for a in arguments])


def ok(*arguments: object) -> Result:
    result = call(*arguments)
    if result.exit_code != 0:
        sys.exit(f"{' '.join(map(str, arguments))}: {result.output}")
    return result


def tell(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


# -- sources ---------------------------------------------------------------------------------------------------------


def write_sources() -> None:
    """Rows of which a third are 0, in three formats, with labels no plane separates."""
    rng = np.random.default_rng(7)
    X = (rng.integers(-6, 7, (ROWS, COLUMNS)) * rng.integers(0, 2, (ROWS, COLUMNS))) / 4.0
    score = X[:, 0] + X[:, 1] - X[:, 2] * X[:, 3] + rng.normal(0, 0.7, ROWS)
    classes = np.digitize(score, [-0.8, 0.8])
    weights = rng.integers(1, 4, ROWS) / 2.0
    two, three = np.where(score > 0.1, "yes", "no"), np.array(["low", "middle", "high"])[classes]
    write_csv(Path("rows.csv"), X, {"w": weights, "y": two})
    write_csv(Path("rows3.csv"), X, {"y": three})
    lines = [
        f"{'+1' if y == 'yes' else '-1'} " + " ".join(f"{j + 1}:{v:g}" for j, v in enumerate(x) if v)
        for x, y in zip(X, two, strict=True)
    ]
    Path("rows.svm").write_text("\n".join(lines) + "\n")
    import gzip

    long = np.arange(5000)
    Xl = np.column_stack([long % 7, long % 5, long % 3, long % 2]).astype(float)
    write_csv(Path("long.csv"), Xl, {"y": np.where(long % 11 > 4, "a", "b")})
    Path("long.csv.gz").write_bytes(gzip.compress(Path("long.csv").read_bytes(), mtime=0))
    Path("long.csv").unlink()
    for path in Path().iterdir():
        os.utime(path, (SOURCE_TIME, SOURCE_TIME))


def write_csv(path: Path, X: Any, more: dict[str, Any]) -> None:
    lines = [",".join([*(f"x{j}" for j in range(X.shape[1])), *more])]
    lines += [",".join([*(f"{v:g}" for v in x), *map(str, rest)]) for x, *rest in zip(X, *more.values(), strict=True)]
    path.write_text("\n".join(lines) + "\n")


# -- what is finished --------------------------------------------------------------------------------------------------


def finished() -> dict[str, Any]:
    """Stores, embeddings, models with their run folders, and their predictions, in the current directory."""
    write_sources()
    known: dict[str, Any] = {"stores": {}, "embeddings": {}, "models": {}}
    for name, arguments in STORES_OF.items():
        ok("ingest", arguments.split()[0], f"{name}.store", *arguments.split()[1:])
    for name, arguments in EMBEDDINGS.items():
        ok("embed", "dense.store", f"{name}.store", *arguments.split())
        known["embeddings"][name] = arguments
    for name in (*STORES_OF, *EMBEDDINGS):
        columns = ["--columns"] if name == "dense" else []
        known["stores"][name] = json.loads(ok("info", f"{name}.store", "--json", *columns).stdout)
    for name, (store, arguments, rows) in MODELS.items():
        ok("fit", f"{store}.store", f"{name}.ssvm", *arguments.split())
        found = f"{name}.ssvm" if Path(f"{name}.ssvm").exists() else max(Path().glob(f"{name}.*ssvm")).name
        ok("predict", found, rows, f"{name}.label.csv")
        ok("predict", found, rows, f"{name}.decision.csv", "--output", "decision")
        facts = json.loads(ok("info", found, "--json").stdout)
        known["models"][name] = {"file": found, "rows": rows, "store": store, "arguments": arguments, "info": facts}
    ok("predict", "linear.ssvm", "rows.csv", "linear.decision.npy", "--output", "decision")
    return known


# -- what is interrupted -----------------------------------------------------------------------------------------------


def tags_of(run: Path) -> set[str]:
    """The classes named in the checkpoints of a run."""
    text = b"".join(p.read_bytes() for p in sorted((run / "checkpoint").iterdir()))
    return {tag.decode() for tag in re.findall(rb'class\\": \\"([\w.]+)', text)}


def interrupted(name: str, case: Case) -> dict[str, Any]:
    """A run with its checkpoint and the model it ends with, in a folder of that name."""
    passes = 10**6 if case.groups else case.passes
    settings = [f"{case.store}.store", f"{name}/m.ssvm", *case.arguments.split(), *EDGE]
    Path(name).mkdir()
    with pytest.MonkeyPatch.context() as patch:
        if not case.groups:
            placed(patch, cached=case.kept, resident=case.resident)
        warm = ["fit", settings[0], "warm.ssvm", *settings[2:], "--max-passes", "3", "--overwrite"]
        ok(*warm)  # compiles: a run that is stopped has 4.5 s to say so
        said, tags = stopped_groups(name, case, settings) if case.groups else stopped_visits(name, case, settings)
    if case.groups:
        passes = int(re.findall(r"epoch (\d+)", said)[0]) + 2
    resume = ["fit", *settings, "--max-passes", str(passes), "--resume"]
    kept = Path(f"{name}.kept")
    shutil.copytree(name, kept)
    (kept / "m.ssvm.run" / "events.jsonl").unlink()
    ok(*resume)
    models = sorted(p.name for p in Path(name).glob("m.*ssvm"))
    if not case.groups:
        check_whole(name, case, settings, passes, models)
    (kept / "expected").mkdir()
    for model in models:
        shutil.copy(Path(name) / model, kept / "expected" / model)
    shutil.rmtree(name)
    kept.rename(name)
    missed = sorted(tags - tags_of(Path(name) / "m.ssvm.run"))
    tell(name, *said.split()[-4:], f"classes of state that are in no file: {missed}" if missed else "")
    return {"arguments": resume, "models": models, "said": said}


def stopped_visits(name: str, case: Case, settings: list[str]) -> tuple[str, set[str]]:
    said, tags = "", set()
    for _ in range(case.visits):
        result = call("fit", *settings, "--max-passes", case.passes, "--resume", *LIMITS)
        said = result.stderr
        if result.exit_code != INTERRUPTED or not (Path(name) / "m.ssvm.run" / "checkpoint" / "ckpt-A").exists():
            sys.exit(f"{name} was not interrupted: {result.output}")
        tags |= tags_of(Path(name) / "m.ssvm.run")
    return said.splitlines()[-1].split(" (")[0], tags


def stopped_groups(name: str, case: Case, settings: list[str]) -> tuple[str, set[str]]:
    """Between two parts of a pass there is no checkpoint: by the clock, until it has been late enough."""
    for limit in np.geomspace(0.01, 5, 60):
        result = call(
            "fit", *settings, "--max-passes", 10**6, "--time-limit", limit, *LIMITS[2:], "--overwrite",
            "--checkpoint-every", "0.001",
        )  # fmt: skip
        found = re.findall(r"epoch (\d+)", result.stderr)
        if result.exit_code == INTERRUPTED and found and int(found[-1]) > case.visits:
            return result.stderr.splitlines()[-1].split(" (")[0], tags_of(Path(name) / "m.ssvm.run")
        shutil.rmtree(name)
        Path(name).mkdir()
    sys.exit(f"{name} was not interrupted: {result.output}")


def check_whole(name: str, case: Case, settings: list[str], passes: int, models: list[str]) -> None:
    """That the resumed run ends where one ends that was not stopped."""
    with pytest.MonkeyPatch.context() as patch:
        placed(patch, cached=case.kept, resident=case.resident)
        Path("whole").mkdir()
        ok("fit", settings[0], "whole/m.ssvm", *settings[2:], "--max-passes", str(passes))
    for model in models:
        one, other = arrays_of(Path(name) / model), arrays_of(Path("whole") / model)
        assert one.keys() == other.keys(), name
        assert all(one[key].tobytes() == other[key].tobytes() for key in one), name
    shutil.rmtree("whole")


def journalled(name: str, made: str, command: str) -> dict[str, Any]:
    """What a killed command leaves, as late as can be, and what the same command makes of it."""
    ok(*command.split())
    whole = digest_of(Path(made))
    remove(made)
    best = last_step(command, made)
    while best > 0 and not known_done(command, made, best):
        best -= STRIDE
    if best <= 0:
        sys.exit(f"{name} was not interrupted with a journal")
    killed(command, best)
    Path(name).mkdir()
    for path in [*Path().glob(made), *Path().glob(f".{made}*")]:
        path.rename(Path(name) / path.name)
    tell(name, "killed at step", best)
    return {"command": command, "made": made, "digest": whole, "cells": CELLS}


def last_step(command: str, made: str) -> int:
    """Of the steps at which the command can be killed, one of the last few."""
    low, high = 0, 64
    while killed_clean(command, made, high):
        low, high = high, 2 * high
    while high - low > STRIDE:
        middle = (low + high) // 2
        low, high = (middle, high) if killed_clean(command, made, middle) else (low, middle)
    return low


def killed_clean(command: str, made: str, step: int) -> bool:
    """Whether the command is killed at a step; nothing is left of it."""
    found = killed(command, step)
    remove(made)
    return found


def known_done(command: str, made: str, step: int) -> int:
    """How much the journal knows to be done when the command is killed at a step; nothing is left of it."""
    killed(command, step)
    done = progress(Path(made))
    remove(made)
    return done


def remove(made: str) -> None:
    for path in [*Path().glob(made), *Path().glob(f".{made}*")]:
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def killed(command: str, step: int) -> bool:
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY), "STREAMSVM_FAULT": f"kill@{step}"}
    done = subprocess.run(
        [sys.executable, "-m", "streamsvm", "-q", *command.split()], env=environment, check=False, capture_output=True
    )
    return done.returncode == KILLED


def progress(made: Path) -> int:
    """How much a journal knows to be done."""
    ingest, other = made / "ingest.journal", made / "journal.json"
    if (made / "manifest.json").exists():
        return 0  # it is committed
    if ingest.exists():
        return ingest.read_text().count("\n") - 1
    if other.exists():
        saved = json.loads(other.read_text())
        parts = len(list(made.parent.glob(f".{made.name}.parts/*")))
        if "cells" in saved:
            return len(saved["cells"]) % CELLS  # when all are done there is nothing to go on with
        return int((saved["progress"] or {}).get("rows", parts))
    return 0


def main() -> None:
    target = HERE / sys.argv[1]
    chosen = sys.argv[2:]
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)
        known = finished()
        known["machine"] = machine()
        pack(Path(), target / f"{STORES}.tar.xz")
        known["interrupted"] = {
            name: interrupted(name, case) for name, case in CASES.items() if not chosen or name in chosen
        }
        for name in known["interrupted"]:
            pack(Path(name), target / "interrupted" / f"{name}.tar.xz")
        known["journalled"] = {
            name: journalled(name, *what) for name, what in JOURNALLED.items() if not chosen or name in chosen
        }
        for name in known["journalled"]:
            pack(Path(name), target / "journalled" / f"{name}.tar.xz")
        (target / EXPECTED).write_text(json.dumps(known, separators=(",", ":")).replace('},"', '},\n"') + "\n")


if __name__ == "__main__":
    main()
