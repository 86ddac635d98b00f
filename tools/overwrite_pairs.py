"""Try every command that writes, with --overwrite, on everything that it must not replace.

A folder is filled with sources, stores, models, predictions and things of other programs; then each command is told to
write to each of them, under its own name, through links, as a folder around its inputs. What is of the kind that the
command writes, and is not read by it, may be replaced; of everything else every byte must still be there.

    python tools/overwrite_pairs.py [--keep FOLDER]

Prints a line for each pair that went wrong and the counts; exits 1 if there was one.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from streamsvm.cli import cli

REFUSED = (2, 73)
"""Exit codes of a command that has not begun: a name that cannot be an output, something that must not be replaced."""
COMMANDS = {
    "synth": "synth susy {out} --rows 100",
    "ingest": "ingest in.csv {out} --label y",
    "ingest --test-store": "ingest in.csv new/s.zarr --label y --test-fraction 0.5 --test-store {out}",
    "embed": "embed store.zarr {out} --landmarks 3",
    "fit": "fit store.zarr {out} --max-passes 2",
    "fit --dual": "fit store.zarr new/m.ssvm --solver dcd --max-passes 2 --dual {out}",
    "fit --warm-start": "fit store.zarr {out} --warm-start model.ssvm --max-passes 2",
    "tune": "tune store.zarr {out} --folds 2",
    "predict": "predict model.ssvm in.csv {out}",
}
READ = {
    "ingest": ("in.csv",), "ingest --test-store": ("in.csv",), "embed": ("store.zarr",), "fit": ("store.zarr",),
    "fit --dual": ("store.zarr",), "fit --warm-start": ("store.zarr", "model.ssvm"), "tune": ("store.zarr",),
    "predict": ("model.ssvm", "in.csv"), "synth": (),
}  # fmt: skip
KINDS = {
    "synth": "store", "ingest": "store", "ingest --test-store": "store", "embed": "embedding", "fit": "model",
    "fit --dual": "array", "fit --warm-start": "model", "tune": "search", "predict": "predictions",
}  # fmt: skip
REPLACEABLE = {
    "store": {"store.zarr", "other.zarr", "parts.h5"}, "embedding": {"embedding.zarr"},
    "model": {"model.ssvm", "other.ssvm"}, "array": {"dual.npy", "labels.npy"}, "search": {"search"},
    "predictions": {"predictions.csv", "predictions.txt", "labels.npy", "dual.npy"},
}  # fmt: skip


def run(line: str) -> int:
    """The exit code of a command, run in this process and in the current directory."""
    silence = io.StringIO()
    with contextlib.redirect_stdout(silence), contextlib.redirect_stderr(silence):
        try:
            ended = cli.main(["-q", *line.split()], standalone_mode=False)
        except SystemExit as error:
            ended = error.code
        except Exception as error:  # noqa: BLE001  what click raises carries its exit code
            ended = getattr(error, "exit_code", 1)
    return ended if isinstance(ended, int) else 0


def fill(place: Path) -> None:
    """One of everything, in the current directory."""
    rows = [(k % 2, k, k * k % 7) for k in range(40)]
    Path("in.csv").write_text("y,a,b\n" + "".join(f"{y},{a},{b}\n" for y, a, b in rows))
    for line in (
        "ingest in.csv store.zarr --label y", "ingest in.csv other.zarr --label y", "ingest in.csv parts.h5 --label y",
        "embed store.zarr embedding.zarr --landmarks 5", "fit store.zarr model.ssvm --solver dcd --dual dual.npy",
        "fit store.zarr other.ssvm", "tune store.zarr search --folds 2", "predict model.ssvm in.csv predictions.csv",
        "predict model.ssvm in.csv predictions.txt", "predict model.ssvm in.csv labels.npy",
    ):  # fmt: skip
        if run(line):
            raise SystemExit(f"cannot be prepared: {line}")
    others(place)


def others(place: Path) -> None:
    """What other programs and people have put there."""
    Path("rows.svm").write_text("1 1:0.5\n-1 2:1\n")
    Path("notes.txt").write_text("the second column is in grams\n")
    Path("job.toml").write_text('[fit]\nstore = "store.zarr"\n')
    Path("table.csv").write_text("id,name\n1,one\n")
    np.save("rows.npy", np.eye(3))
    for folder, name in (("thesis", "thesis.tex"), ("app", "manifest.json"), ("photos.zarr", "zarr.json")):
        Path(folder).mkdir()
        (Path(folder) / name).write_text('{"name": "not yours"}')
    for source, name in (("store.zarr", "noted.zarr"), ("search", "noted.search"), ("model.ssvm.run", "noted.run")):
        shutil.copytree(source, name)
        (Path(name) / "notes.txt").write_text("mine")
    Path("deep").mkdir()
    shutil.copytree("store.zarr", "deep/store.zarr")
    for name, target in (("link.zarr", "other.zarr"), ("link.ssvm", "other.ssvm"), ("link.csv", "table.csv")):
        Path(name).symlink_to(target)
    os.link("in.csv", "hard.csv")
    (place / "new").mkdir()


def targets(inputs: tuple[str, ...]) -> Iterator[str]:
    """Everything in the current directory, the directory itself, and other names of what is read."""
    yield from sorted(path.name for path in Path().iterdir() if path.name != "new")
    yield from (
        ".",
        "..",
        "deep/store.zarr/X",
        "store.zarr/model.ssvm",
        "store.zarr/X/p.csv",
        "other.zarr/manifest.json",
    )
    for name in inputs:
        yield from (f"./{name}", f"thesis/../{name}", str(Path(name).resolve()))


def digests(root: Path) -> dict[str, str]:
    """What is in every file of a folder."""
    found = {}
    for path in root.rglob("*"):
        name = str(path.relative_to(root))
        if path.is_symlink():
            found[name] = os.readlink(path)
        elif path.is_file():
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
        else:
            found[name] = "directory"
    return {name: digest for name, digest in found.items() if not name.startswith("gallery/new/")}


def tried(command: str, out: str, pristine: Path, root: Path) -> str:
    """What went wrong with one pair; '' when nothing did."""
    replaceable = out in REPLACEABLE[KINDS[command]] - set(READ[command])
    before = digests(root)
    code = run(COMMANDS[command].format(out=out) + " --overwrite")
    if replaceable:
        kept = {name: digest for name, digest in before.items() if not name.startswith(f"gallery/{out}")}
        fault = "" if code == 0 else f"its own output is refused with {code}"
    else:
        kept, fault = before, "" if code in REFUSED else f"not refused: exit code {code}"
    now = digests(root)
    lost = [name for name, digest in kept.items() if now.get(name) != digest]
    if lost or replaceable or fault:
        os.chdir(root)
        shutil.rmtree("gallery")
        shutil.copytree(pristine, "gallery", symlinks=True)
        os.chdir("gallery")
    return f"LOST {', '.join(lost[:3])}" if lost else fault


def main() -> int:
    """Run all pairs; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, help="work here and leave everything")
    place = parser.parse_args().keep or Path(tempfile.mkdtemp(prefix="overwrite-"))
    place = place.resolve()
    root, pristine = place / "home", place / "pristine"
    (root / "gallery").mkdir(parents=True)
    os.chdir(root / "gallery")
    fill(root / "gallery")
    shutil.copytree(root / "gallery", pristine, symlinks=True)
    counts: Counter[str] = Counter()
    for command, inputs in READ.items():
        for out in targets(inputs):
            wrong = tried(command, out, pristine, root)
            replaced = out in REPLACEABLE[KINDS[command]] - set(inputs)
            counts["wrong" if wrong else "replaced its own" if replaced else "refused, nothing changed"] += 1
            if wrong:
                sys.stdout.write(f"{command:20} -> {out}: {wrong}\n")
    total = ", ".join(f"{count} {what}" for what, count in counts.items())
    sys.stdout.write(f"{sum(counts.values())} pairs of command and output with --overwrite: {total}\n")
    return 1 if counts["wrong"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
