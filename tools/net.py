"""The safety net under a change that must not change behaviour: model bits, store bytes, options, and CPU seconds.

    python tools/net.py --json before.json           # in the checkout before the change, on the same machine
    python tools/net.py --compare before.json        # in the checkout after it: exit code 1 if anything differs
    python tools/net.py --pair ../before --rounds 5  # CPU seconds of eight commands, in turn here and in that checkout

It records, and compares by name:

- ``fit``: a hash of the arrays of each model, over every solver x loss x dense / CSR x 1 / 2 threads and other kinds of problems
  and features; a combination that is refused is recorded by its exit code and error code;
- ``cluster``: the same for every solver on two local workers;
- ``store``: a hash of the files of the store that each source makes of fixed rows;
- ``apply``: a hash of what predict, evaluate, tune and export write;
- ``face``: options of all commands, exit codes of errors, signatures of the public functions and estimators.

The data are drawn by numpy from fixed seeds, and the memory limit is stated because plans depend on it. Hashes of models are
those of one machine: another processor may round products in another way.
"""

from __future__ import annotations

import argparse
import hashlib
import inspect
import itertools
import json
import os
import re
import resource
import statistics
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
MEMORY = ["--memory", "4GiB"]

LINEAR = ["dcd", "mpu", "assg", "pegasos", "sgd", "sgd_qn", "active_set", "interior_point", "cutting_plane", "newton"]
KERNEL = ["decomposition", "kernel_active_set", "blended", "fw", "mfw", "swap", "partan"]
CLASSIFICATION = ["hinge", "squared_hinge", "huber", "logistic"]
REGRESSION = ["epsilon_insensitive", "squared_epsilon_insensitive", "squared", "pinball"]
OF_KERNELS = "--kernel rbf --gamma 0.3 --max-passes 4 --tolerance 1e-2"
OF_LINEAR = "--max-passes 6 --tolerance 1e-7"

PROBLEMS = {
    "all classes, hinge": ("several", "--multi-class crammer_singer --loss hinge"),
    "all classes, squared hinge": ("several", "--multi-class crammer_singer"),
    "one-vs-one": ("several", "--multi-class ovo --solver newton"),
    "one-vs-rest": ("several", "--solver newton"),
    "balanced": ("several", "--class-weight balanced --solver newton"),
    "class weights": ("two", "--class-weight a=2,b=0.5 --solver dcd"),
    "positive": ("several", "--positive b --solver dcd"),
    "nu": ("two", "--nu 0.4 --loss hinge"),
    "one-class": ("far", "--one-class --nu 0.3 --loss hinge"),
    "one-class rbf": ("two", "--one-class --nu 0.3 --loss hinge --kernel rbf"),
    "l1": ("two", "--l1 3"),
    "l1 hinge": ("two", "--l1 3 --loss hinge"),
    "l1 squared": ("numbers", "--l1 3 --loss squared"),
    "l1 ball": ("numbers", "--l1-ball 0.5 --loss squared"),
    "standardize": ("far", "--standardize --solver newton"),
    "no bias": ("two", "--no-bias --solver dcd"),
    "weights": ("weighted", "--solver dcd"),
    "several C": ("two", "--C 0.1,1,10 --solver newton"),
    "validation": ("two", "--validation 0.2 --patience 3 --solver sgd --loss hinge --max-passes 8"),
    "sigmoid": ("two", "--calibrate sigmoid --calibration-folds 3 --solver newton"),
    "isotonic": ("two", "--calibrate isotonic --validation 0.3 --solver newton"),
    "temperature": ("several", "--calibrate temperature --validation 0.3 --solver newton"),
    "wide": ("wide", "--loss hinge"),
    "groups": ("two", "--groups 3 --solver dcd --loss hinge --max-passes 6"),
    **{
        f"auto {loss}": ("numbers" if loss in REGRESSION else "two", f"--loss {loss}")
        for loss in CLASSIFICATION + REGRESSION
    },
    **{
        f"landmarks {sampling} {place} {dtype}": (
            "two",
            f"--kernel rbf --landmarks 20 --sampling {sampling} --embedding {place} --embedding-dtype {dtype} --solver newton",
        )
        for sampling, place, dtype in [
            ("uniform", "disk", "float32"), ("uniform", "disk", "float16"), ("uniform", "disk", "int8"),
            ("uniform", "fly", "float32"), ("leverage", "disk", "float32"), ("kmeans++", "disk", "float32"),
            ("greedy", "disk", "float32"), ("greedy", "fly", "float32"), ("auto", "fly", "float32"),
        ]
    },
    **{
        f"exact {kernel}": ("two", f"--kernel {kernel} --gamma 0.2 --loss hinge --max-passes 4 --tolerance 1e-2")
        for kernel in ("laplacian", "polynomial", "sigmoid", "linear")
    },
}  # fmt: skip
"""Store and options of fits beside the solvers x losses."""


def draw_rows() -> dict[str, tuple[Any, Any]]:
    """Draw the rows (X, y) of each store: float64 (n, d) and one label a row."""
    import numpy as np

    random = np.random.default_rng(20)
    X = random.normal(size=(600, 9)) * np.geomspace(0.1, 10, 9)
    score = X @ random.normal(size=9) + random.normal(size=600)
    sparse = np.where(random.random((600, 40)) < 0.1, random.normal(size=(600, 40)), 0.0)
    wide = random.normal(size=(60, 400))
    return {
        "two": (X, np.where(score > 0, "a", "b")),
        "several": (X, np.array(list("abcd"))[np.digitize(score, np.quantile(score, [0.2, 0.5, 0.8]))]),
        "numbers": (X, np.round(score, 3)),
        "weighted": (X, np.where(score > 0, "a", "b")),
        "far": (X + np.where(np.arange(9) % 3, 0.0, 1e4), np.where(score > 0, "a", "b")),
        "wide": (wide, np.where(wide[:, 0] > 0, "a", "b")),
        "sparse": (sparse, np.where(sparse.sum(axis=1) + 0.3 * random.normal(size=600) > 0, 1, 2)),
    }


def write_sources(folder: Path) -> dict[str, str]:
    """Write the rows as files of every format; return the arguments of ``ingest`` for each store by its name."""
    import h5py
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet
    import zarr

    rows = draw_rows()
    chunk = "--chunk 8KiB"
    ingests = {}
    for name, (X, y) in rows.items():
        if name == "sparse":
            continue
        columns = {f"x{j}": X[:, j] for j in range(X.shape[1])}
        if name == "weighted":
            columns["w"] = np.where(np.arange(len(X)) % 4, 1.0, 2.5)
        lines = [",".join([*columns, "y"])]
        lines += [
            ",".join([*(f"{v:.7g}" for v in row), str(label)]) for *row, label in zip(*columns.values(), y, strict=True)
        ]
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n")
        more = "--weight w" if name == "weighted" else "--task regression" if name == "numbers" else ""
        ingests[name] = f"{folder / name}.csv --label y {chunk} {more}"
    X, y = rows["sparse"]
    lines = [
        f"{label} " + " ".join(f"{j + 1}:{v:.7g}" for j, v in enumerate(x) if v) for x, label in zip(X, y, strict=True)
    ]
    (folder / "sparse.svm").write_text("\n".join(lines) + "\n")
    ingests["sparse"] = f"{folder}/sparse.svm --features 40 --layout csr {chunk}"

    X, y = rows["two"]
    codes = (y == "a").astype(np.int32)
    table = pa.table(
        {
            **{f"x{j}": X[:, j] for j in range(4)},
            "kind": [("red", "green", "blue")[j % 3] for j in range(len(X))],
            "y": y,
        }
    )
    pyarrow.parquet.write_table(table, folder / "t.parquet")
    records = table.to_pylist()
    (folder / "t.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    mixed = [f"{r['x0']:.6g},{r['kind']},2021-{1 + j % 12:02d}-{1 + j % 28:02d},{'yes' if j % 2 else 'no'},${j}.50,{'' if j % 9 == 0 else j},{r['y']}"
             for j, r in enumerate(records)]  # fmt: skip
    (folder / "mixed.csv").write_text("x,kind,day,flag,price,gap,y\n" + "\n".join(mixed) + "\n")
    np.save(folder / "X.npy", X.astype(np.float32))
    np.save(folder / "y.npy", codes)
    np.savez(folder / "t.npz", X=X, y=codes)
    for name, array, kind in (
        ("X", np.arange(600 * 6, dtype=np.uint8).reshape(600, 6) % 200, 0x08),
        ("y", codes.astype(np.uint8), 0x08),
    ):
        head = struct.pack(">HBB", 0, kind, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape)
        (folder / f"{name}.idx").write_bytes(head + array.tobytes())
    with h5py.File(folder / "t.h5", "w") as file:
        file["X"], file["y"] = X, codes
    group = zarr.open_group(str(folder / "foreign.zarr"), mode="w")
    group.create_array("X", data=X, chunks=(100, 9))
    group.create_array("y", data=codes)
    return ingests | {
        "parquet": f"{folder}/t.parquet --label y --categorical kind {chunk}",
        "jsonl": f"{folder}/t.jsonl --label y --categorical kind {chunk}",
        "mixed": f"{folder}/mixed.csv --label y --recognize --missing indicator {chunk}",
        "hashed": f"{folder}/t.parquet --label y --hash 8 {chunk}",
        "crossed": f"{folder}/mixed.csv --label y --recognize --missing mean --cross kind*flag {chunk}",
        "npy": f"{folder}/X.npy --labels {folder}/y.npy {chunk}",
        "npz": f"{folder}/t.npz {chunk}",
        "idx": f"{folder}/X.idx --labels {folder}/y.idx {chunk}",
        "hdf5": f"{folder}/t.h5 {chunk}",
        "zarr": f"{folder}/foreign.zarr {chunk}",
        "in hdf5": f"{folder}/t.h5 --store-format hdf5 {chunk}",
        "compressed": f"{folder}/t.parquet --label y --categorical kind --compression lz4 {chunk}",
        "shuffled": f"{folder}/two.csv --label y --shuffle --seed 3 --test-fraction 0.2 --stratify {chunk}",
    }


def call(*arguments: object) -> tuple[int, str]:
    """Run a command in this process; return its exit code and what it printed."""
    from click.testing import CliRunner

    from streamsvm.cli.main import cli

    result = CliRunner().invoke(cli, ["-q", *map(str, arguments)])
    return result.exit_code, result.output


def outcome(code: int, text: str) -> str:
    """Say how a command that wrote nothing ended: exit code and error code."""
    found = re.search(r"error\[(E-[A-Z0-9-]+)\]", text)
    return f"exit {code} {found[1] if found else ''}".strip()


def hash_model(model: Path) -> str:
    """Return the sha256 over name, type, shape and bytes of the arrays of a safetensors file, in the order of their names."""
    raw = model.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    table, digest = json.loads(raw[8 : 8 + length]), hashlib.sha256()
    for name in sorted(table.keys() - {"__metadata__"}):
        entry = table[name]
        start, end = (8 + length + offset for offset in entry["data_offsets"])
        digest.update(json.dumps([name, entry["dtype"], entry["shape"]]).encode() + raw[start:end])
    return digest.hexdigest()[:24]


def hash_store(store: Path) -> str:
    """Return the sha256 over the files of a store; of its manifest what does not name programs, paths and moments."""
    if store.is_file():  # an HDF5 file holds the moment it was made
        import h5py

        digest = hashlib.sha256()
        with h5py.File(store) as file:
            file.visititems(
                lambda name, item: digest.update(
                    name.encode() + (item[()].tobytes() if isinstance(item, h5py.Dataset) else b"")
                )
            )
        return digest.hexdigest()[:24]
    digest = hashlib.sha256()
    for path in sorted(p for p in store.rglob("*") if p.is_file()):
        digest.update(str(path.relative_to(store)).encode())
        if path.name != "manifest.json":
            digest.update(path.read_bytes())
            continue
        manifest = json.loads(path.read_text())["manifest"]
        for name in ("uuid", "versions", "facts", "created"):
            manifest.pop(name, None)
        digest.update(json.dumps(manifest, sort_keys=True).encode())
    return digest.hexdigest()[:24]


def hash_output(path: Path) -> str:
    """Return the sha256 of a file, or of the tables of a folder."""
    files = [path] if path.is_file() else sorted(p for p in path.rglob("*.csv") if p.is_file())
    return hashlib.sha256(b"".join(p.read_bytes() for p in files)).hexdigest()[:24]


def fits() -> Iterator[tuple[str, str, str]]:
    """Yield name, store and options of every fit."""
    for solver, loss in itertools.product(LINEAR + KERNEL, CLASSIFICATION + REGRESSION):
        options = f"--solver {solver} --loss {loss} {OF_KERNELS if solver in KERNEL else OF_LINEAR}"
        dense = "numbers" if loss in REGRESSION else "two"
        yield f"{solver} {loss} dense", dense, f"{options} --threads 1"
        yield f"{solver} {loss} dense, 2 threads", dense, f"{options} --threads 2"
        if loss in CLASSIFICATION:
            yield f"{solver} {loss} csr", "sparse", f"{options} --threads 1"
            yield f"{solver} {loss} csr, 2 threads", "sparse", f"{options} --threads 2"
    for name, (store, options) in PROBLEMS.items():
        yield name, store, f"{options} --threads 1"


def record_fits(stores: dict[str, Path], folder: Path) -> Iterator[tuple[str, str]]:
    """Yield name and hash of every fit on one machine, then of one fit of each solver on two local workers."""
    model = folder / "m.ssvm"
    for name, store, options in fits():
        code, text = call("fit", stores[store], model, "--overwrite", *MEMORY, *options.split())
        yield f"fit {name}", hash_model(model) if code == 0 else outcome(code, text)
    for solver in LINEAR:
        options = f"--solver {solver} --loss {'hinge' if solver in ('dcd', 'assg', 'pegasos') else 'squared_hinge'} {OF_LINEAR}"
        command = [
            "fit",
            stores["two"],
            model,
            "--overwrite",
            "--cluster",
            "local:2",
            "--groups",
            "4",
            *options.split(),
        ]
        code, text = call(*command)
        yield f"cluster {solver}", hash_model(model) if code == 0 else outcome(code, text)


def record_applied(stores: dict[str, Path], folder: Path) -> Iterator[tuple[str, str]]:
    """Yield name and hash of what the other commands write."""
    models = {
        "linear": ("two", "--solver newton"),
        "kernel": ("several", "--kernel rbf --landmarks 15 --sampling uniform --solver newton"),
        "exact": ("two", "--kernel rbf --loss hinge"),
        "digits": ("sparse", "--solver newton"),
        "digits exact": ("sparse", "--kernel rbf"),
        "mixed": ("mixed", "--solver newton --calibrate sigmoid"),
        "regression": ("numbers", "--loss squared_epsilon_insensitive"),
    }
    for name, (store, options) in models.items():
        model = folder / f"{name}.ssvm"
        code, text = call("fit", stores[store], model, *MEMORY, *options.split())
        if code:
            yield f"apply {name}", outcome(code, text)
            continue
        for rows in (stores[store], folder / f"{store}.{'svm' if store == 'sparse' else 'csv'}"):
            code, text = call("predict", model, rows, folder / "p.csv", "--overwrite", *MEMORY)
            yield (
                f"apply predict {name} {rows.suffix}",
                hash_output(folder / "p.csv") if code == 0 else outcome(code, text),
            )
        code, text = call("evaluate", model, stores[store], "--json", *MEMORY)
        told = (
            {k: v for k, v in json.loads(text).items() if isinstance(v, int | float) and "second" not in k}
            if code == 0
            else {}
        )
        yield f"apply evaluate {name}", json.dumps(told, sort_keys=True) if code == 0 else outcome(code, text)
    for form, name in (("liblinear", "digits"), ("libsvm", "digits exact")):
        code, text = call("export", folder / f"{name}.ssvm", folder / f"{form}.txt", "--format", form)
        yield f"apply export {form}", hash_output(folder / f"{form}.txt") if code == 0 else outcome(code, text)
    code, text = call("embed", stores["two"], folder / "e.zarr", "--kernel", "rbf", "--landmarks", "20", *MEMORY)
    yield "apply embed", hash_store(folder / "e.zarr") if code == 0 else outcome(code, text)
    search = ["--C", "0.1,1", "--kernel", "rbf", "--gamma", "0.1,1", "--landmarks", "10", "--folds", "3"]
    for sampling in ("uniform", "auto"):
        place = folder / f"tuned-{sampling}"
        code, text = call("tune", stores["two"], place, *search, "--sampling", sampling, *MEMORY)
        fact = "apply tune" if sampling == "uniform" else f"apply tune {sampling}"
        yield fact, hash_output(place / "table.csv") if code == 0 else outcome(code, text)


def record_faces() -> Iterator[tuple[str, str]]:
    """Yield options of all commands, exit codes of all errors, and signatures of everything public."""
    import click

    import streamsvm
    from streamsvm.cli.main import cli

    context = click.Context(cli)
    for command in cli.list_commands(context):
        for parameter in cli.get_command(context, command).params:
            names = "/".join([*parameter.opts, *parameter.secondary_opts])
            yield (
                f"face {command} {names}",
                f"{'repeatable ' if parameter.multiple or parameter.nargs == -1 else ''}{parameter.type.name}",
            )
    for name in streamsvm.__all__:
        thing = getattr(streamsvm, name)
        if isinstance(thing, type) and issubclass(thing, Exception):
            yield f"face {name}", f"exit {getattr(thing, 'exit_code', None)}"
        elif callable(thing):
            yield f"face {name}", str(inspect.signature(thing))
    import streamsvm.sklearn as estimators

    for name in estimators.__all__:
        thing = getattr(estimators, name)
        yield f"face sklearn.{name}", str(inspect.signature(thing))


def record(only: str) -> dict[str, str]:
    """Return all facts by name; those whose name holds the pattern ``only``. Each is printed as it comes."""
    facts: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="streamsvm-net-") as scratch:
        folder = Path(scratch)
        ingests, stores = write_sources(folder), {}

        def record_stores() -> Iterator[tuple[str, str]]:
            for name, arguments in ingests.items():
                sources, *options = arguments.split()
                stores[name] = folder / f"{name}.{'h5' if name == 'in hdf5' else 'zarr'}"
                code, text = call("ingest", sources, stores[name], *options, *MEMORY)
                yield f"store {name}", hash_store(stores[name]) if code == 0 else outcome(code, text)
                if name == "shuffled" and code == 0:
                    yield "store shuffled, test rows", hash_store(folder / "shuffled.test.zarr")

        parts: dict[str, Callable[[], Iterator[tuple[str, str]]]] = {
            "face": record_faces,
            "store": record_stores,
            "apply": lambda: record_applied(stores, folder),
            "fit cluster": lambda: record_fits(stores, folder),
        }
        kind = re.match(
            r"\^?(face|store|apply|fit|cluster)\b(?!.*\|)", only
        )  # only such facts then, and what they need
        made = [part for names, part in parts.items() if kind is None or kind[1] in names or names == "store"]
        for name, value in itertools.chain.from_iterable(part() for part in made):
            if re.search(only, name):
                facts[name] = value
                print(f"{name:<50} {value[:60]}", flush=True)
    return facts


def compare(now: dict[str, str], before: dict[str, str]) -> bool:
    """Print what differs from the record of before; return whether nothing does."""
    different = [name for name in before if name in now and now[name] != before[name]]
    missing, new = sorted(before.keys() - now.keys()), sorted(now.keys() - before.keys())
    for name in different:
        print(f"DIFFERENT  {name}: {before[name][:80]} -> {now[name][:80]}")
    for name in missing:
        print(f"MISSING    {name}")
    for name in new:
        print(f"new        {name}")
    print(f"net: {len(now)} facts, {len(different)} different, {len(missing)} missing, {len(new)} new")
    return not different and not missing


BENCHES = {
    "start": "fit {small} {m} --overwrite",
    "help": "--help",
    "ingest": "ingest {data}/susy-head.csv {s} --overwrite --label first --no-header",
    "dcd": "fit {store} {m} --overwrite --solver dcd --loss hinge --C 0.01 --tolerance 1e-3 --standardize",
    "newton": "fit {store} {m} --overwrite --solver newton --tolerance 1e-6 --standardize",
    "sgd": "fit {store} {m} --overwrite --solver sgd --loss hinge --max-passes 10 --tolerance 0",
    "nystrom": "fit {store} {m} --overwrite --kernel rbf --landmarks 100 --sampling uniform --solver newton --embedding fly",
    "predict": "predict {model} {store} {p} --overwrite",
}
"""Eight commands whose CPU seconds are compared; data are 300,000 rows of 18 columns that ``synth`` draws."""


def cpu_seconds(checkout: Path, *arguments: str) -> float:
    """Return the CPU seconds of a command of a checkout, with all processes it starts. Ends the program if it fails."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "streamsvm", *arguments]
    # an installed package has its bytecode: without, every start would compile the sources
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(
        command,
        cwd=checkout,
        env=environment | {"PYTHONPATH": str(checkout)},
        check=False,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def pair(other: Path, rounds: int) -> bool:
    """Print the ratio of CPU seconds here and in another checkout, medians of paired runs; return whether all are at most 1.03."""
    fine = True
    with tempfile.TemporaryDirectory(prefix="streamsvm-net-") as scratch:
        folder = Path(scratch)
        names = {"data": folder, "s": folder / "s.zarr", "m": folder / "m.ssvm", "p": folder / "p.csv"}
        names |= {"store": folder / "store.zarr", "small": folder / "small.zarr", "model": folder / "model.ssvm"}
        cpu_seconds(REPOSITORY, "-q", "synth", "susy", str(names["store"]), "--rows", "300000")
        cpu_seconds(REPOSITORY, "-q", "synth", "susy", str(names["small"]), "--rows", "1000")
        cpu_seconds(REPOSITORY, "-q", "fit", str(names["store"]), str(names["model"]))
        _write_table(folder / "susy-head.csv")
        for name, text in BENCHES.items():
            arguments = [*([] if name == "help" else ["-q"]), *text.format(**names).split()]
            for checkout in (REPOSITORY, other):
                cpu_seconds(checkout, *arguments)  # compiles
            ratios = []
            for _ in range(rounds):
                here, there = cpu_seconds(REPOSITORY, *arguments), cpu_seconds(other, *arguments)
                ratios.append(here / there)
            ratio = statistics.median(ratios)
            fine = fine and ratio <= 1.03
            print(f"{name:<10} {ratio:6.3f} x the CPU seconds of {other} (last {here:.2f} s)", flush=True)
    return fine


def _write_table(path: Path) -> None:
    """Write a CSV file of 200,000 rows and 19 columns, the first of which is the label."""
    import numpy as np

    random = np.random.default_rng(0)
    X = random.normal(size=(200_000, 18))
    np.savetxt(path, np.c_[X[:, 0] > 0, X], fmt="%.7g", delimiter=",")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--json", type=Path, help="write the record there")
    parser.add_argument("--compare", type=Path, help="a record that --json wrote at another commit")
    parser.add_argument(
        "--only",
        default="",
        help="a pattern of the names to print and compare; one that begins with a kind makes only such facts",
    )
    parser.add_argument("--pair", type=Path, help="another checkout, to compare CPU seconds with")
    parser.add_argument("--rounds", type=int, default=5, help="pairs of runs for each command [%(default)s]")
    options = parser.parse_args()
    if options.pair:
        return 0 if pair(options.pair.resolve(), options.rounds) else 1
    sys.path.insert(0, str(REPOSITORY))
    facts = record(options.only)
    if options.json:
        options.json.write_text(json.dumps(facts, indent=1) + "\n")
    if options.compare:
        before = {k: v for k, v in json.loads(options.compare.read_text()).items() if re.search(options.only, k)}
        return 0 if compare(facts, before) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
