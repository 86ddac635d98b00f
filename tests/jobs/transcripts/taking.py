"""What becomes of a command line, as plain JSON: what it prints, its exit code, and what it has written.

Left out is what differs from run to run or between machines: clocks, rates, peaks, hashes, versions, places.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from click.testing import CliRunner

import streamsvm as sv
from streamsvm.aliases import JsonObject
from streamsvm.cli import cli
from streamsvm.jobs.inspect import info

LEFT_OUT = {
    *("seconds", "waited", "peak", "compute_share", "digest", "versions", "streamsvm", "at", "machine"),
    *("trajectory", "bytes_per_second", "read_seconds_per_pass", "checksums", "created", "library"),
}
"""Keys whose values are of a run or of a machine."""
CLOCKS = (
    (r"\d[\d.]* (ms|s|min)\b", "TIME"),
    (r"\d[\d.,]* ?[kMG]?i?B/s", "RATE"),
    (r"\d[\d.]* ?[kMG]? rows/s", "RATE"),
    (r"on the simplex \S+ \S+ as", "on the simplex as"),
    (r"(\.\w+), [\d.]+ k?B$", r"\1, SIZE"),
    (r"-?\d\S* % of (features|the model)", r"some % of \1"),
    (r"gap [\d.,e+-]+ %", "gap"),
    (r"\d+ % compute, \d+ % wait", "SHARES"),
    (r"peak \d+ of", "peak of"),
    (r"(?<![\w.])[0-9a-f]{12,}(?!\w)", "HASH"),
)
COMMON, WITHOUT_MEMORY = ("--memory=8GiB", "--threads=1"), {"synth", "export", "report", "info", "verify"}
"""What a command is given that it is not to ask the machine for, and which ones ask for nothing."""
MANY = 16
"""Of longer arrays so many elements are kept, evenly, beside the sum."""


def transcript(commands: str) -> list[Any]:
    """What becomes of each of some command lines, which run in the current directory, one a line."""
    return [_taken(line.strip()) for line in commands.strip().splitlines()]


def _taken(command: str) -> Any:
    before, (name, *given) = _stamps(), shlex.split(command)
    common = [] if name in WITHOUT_MEMORY else [word for word in COMMON if word.split("=")[0] not in given]
    found = CliRunner().invoke(cli, [name, *common, *given])
    changed = sorted(path for path, stamp in _stamps().items() if before.get(path) != stamp)
    said = {"exit": found.exit_code, "says": _said(found.stdout), "warns": _said(found.stderr)}
    return {"command": command, **said, "writes": _once({str(path): _contents(path) for path in changed})}


def _once(files: dict[str, Any]) -> dict[str, Any]:
    """What is in files, where several have the same: of the first."""
    first: dict[str, str] = {}
    found = {}
    for name, contents in files.items():
        other = first.setdefault(json.dumps(contents), name)
        found[name] = contents if other == name else f"the same as {other}"
    return found


def _stamps() -> dict[Path, tuple[int, int]]:
    """All files here, and what tells that they have changed; what is in a store is of the store."""
    found = (path for path in Path().rglob("*") if path.is_file() and not path.is_relative_to("data"))
    stores = {path.parent for path in Path().rglob("manifest.json")}
    return {
        path: ((about := path.stat()).st_mtime_ns, about.st_ino)
        for path in found
        if path.name == "manifest.json" or not stores & set(path.parents)
    }


def _said(text: str) -> Any:
    """Lines for people, or the JSON that was asked for: one object, or events."""
    if text.startswith("{\n"):
        return plain(json.loads(text))
    if text.startswith('{"event"'):
        return [_event(json.loads(line)) for line in text.splitlines()]
    return [_without_clocks(line) for line in text.splitlines()]


def _event(event: JsonObject) -> Any:
    """An event, without the memory in use, what is read ahead as it comes, and the size of files of text."""
    running = {"memory", "bytes_read"} if event["event"] in {"progress", "pass"} else set()
    running |= {"bytes"} if event["event"] == "ingest" or event.get("step") in {"export", "report"} else set()
    return plain({name: value for name, value in event.items() if name not in running})


def _without_clocks(line: str) -> str:
    for place in (Path("data"), Path()):
        line = line.replace(str(place.resolve()), str(place))
    for pattern, name in CLOCKS:
        line = re.sub(pattern, name, line)
    return line


def plain(value: Any, key: str = "") -> Any:
    """The value without what is of a run, and long lists in short."""
    if isinstance(value, dict):
        return {name: plain(one, name) for name, one in value.items() if name not in LEFT_OUT}
    if isinstance(value, (list, tuple)):
        if len(value) > MANY and (array := _array(value)) is not None:
            return numbers_of(array)
        return [plain(one, key) for one in value]
    if isinstance(value, float):
        return _short(value)
    return _without_clocks(value) if isinstance(value, str) else value


def _short(value: float) -> float:
    """The first digits."""
    return float(f"{value:.6g}")


def _array(values: Any) -> Any:
    """The numbers of a list, or of a list of lists as long; None of any other."""
    try:
        array = np.array(values)
    except ValueError:
        return None
    return array if array.dtype.kind in "if" else None


def numbers_of(values: Any) -> Any:
    """An array in short."""
    flat = np.asarray(values).ravel()
    every = max(1, len(flat) // MANY)
    total, shown = flat.sum().item(), flat[::every].tolist()
    if flat.dtype.kind != "f":
        return {"shape": list(np.shape(values)), "sum": total, "every": shown}
    size = np.abs(flat).sum().item()
    return {"shape": list(np.shape(values)), "sum": [_short(total), _short(size)], "every": [*map(_short, shown)]}


def _contents(path: Path) -> Any:
    """What is in a file, by its kind."""
    readers: dict[str, Callable[[Path], Any]] = {
        ".json": lambda path: _stated(plain(json.loads(path.read_text(encoding="utf-8")))),
        ".jsonl": _journal,
        ".ssvm": _model,
        ".csv": _table,
        ".npy": lambda path: numbers_of(np.load(path)),
        ".html": lambda path: len(re.findall("<svg", path.read_text(encoding="utf-8"))),
    }
    if path.name == "manifest.json":
        return _store(path.parent)
    return readers.get(path.suffix, _lines)(path)


def _stated(values: Any) -> Any:
    """What is stated, of settings: all others are None, or empty."""
    return {name: value for name, value in values.items() if value is not None and value != {}}


def _lines(path: Path) -> Any:
    """Text; of a file that is none, that it is there."""
    try:
        return [_without_clocks(line) for line in path.read_text(encoding="utf-8").splitlines()[:60]]
    except UnicodeDecodeError:
        return "bytes"


def _journal(path: Path) -> Any:
    """The events; the plan where it is not the one that the run ended with, which has a file of its own."""
    events = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    ended = json.loads(beside.read_text(encoding="utf-8")) if (beside := path.with_name("plan.json")).exists() else None
    return [{"event": "plan"} if event == {"event": "plan", **(ended or {})} else _event(event) for event in events]


def _model(path: Path) -> Any:
    model = sv.load_model(str(path))
    facts = {name: value for name, value in info(path).items() if name not in {"bytes", "path", "settings"}}
    return plain(facts) | {"weights": numbers_of(model.weights)}


def _store(path: Path) -> Any:
    store = sv.open_store(str(path))
    return plain(info(path, columns=store.layout.columns <= MANY))


def _table(path: Path) -> Any:
    """A table by columns: numbers in short, what is no number as it is."""
    rows = [line.split(",") for line in path.read_text(encoding="utf-8").splitlines()]
    return {"rows": len(rows) - 1} | {name: _column(values) for name, *values in zip(*rows, strict=True)}


def _column(values: list[str]) -> Any:
    try:
        return numbers_of(np.array(values, float))
    except ValueError:
        return " ".join(values)


def in_lines(value: Any, depth: int) -> str:
    """JSON with a line for each command, and each file: what has changed can be read."""
    if depth == 0 or not isinstance(value, (dict, list)) or not value:
        return json.dumps(value)
    if isinstance(value, list):
        return "[\n" + ",\n".join(in_lines(one, depth - 1) for one in value) + "\n]"
    return "{\n" + ",\n".join(f"{json.dumps(name)}: {in_lines(one, depth - 1)}" for name, one in value.items()) + "\n}"
