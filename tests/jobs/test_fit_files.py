"""fit of files: one command from a raw table to an evaluated model, and the store in between."""

from __future__ import annotations

import json
import math
import os
import re
import shlex
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import zarr
from click.testing import CliRunner, Result

import streamsvm as sv
from streamsvm.cli.main import cli
from streamsvm.locks import hold_lock
from tests.tables import NAMES, passengers, write_csv

LATE = 60 * 10**9
"""Nanoseconds after which the time of a file tells that it was not written again."""


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A table with missing values, a few rows without a label, and one value that is no number."""
    rows = passengers(600, 0)
    for row in rows[40:45]:
        row["left"] = ""
    rows[100]["charged"] = "oops"
    path = write_csv(tmp_path / "train.csv", rows, (*NAMES, "left"))
    os.utime(path, ns=(path.stat().st_mtime_ns - LATE,) * 2)
    return path


def run(*words: Any) -> Result:
    return CliRunner().invoke(cli, [str(word) for word in words])


def test_fit_of_a_raw_table_is_one_command_whose_decisions_are_told(table: Path) -> None:
    model = table.with_name("m.ssvm")
    done = run("fit", table, model, "--label", "left", "--report", table.with_name("m.html"))
    assert done.exit_code == 0, done.output
    for told in (
        "filled with 0 and marked",
        "5 rows without one are left out",
        "bad lines: 1",
        "mean 0 and standard deviation 1",
        "held out: ",
        "train.csv.zarr",
        "on the rows that were held out",
    ):
        assert told in done.output
    assert (table.parent / "m.ssvm.run" / "evaluation.json").is_file()
    assert model.is_file()
    assert "average precision" in table.with_name("m.html").read_text()
    again = run("evaluate", model, table.with_name("train.csv.test.zarr"))
    assert again.exit_code == 0


def test_fit_of_files_uses_its_store_again_until_files_change(table: Path) -> None:
    def store_made_by(*options: str) -> int:
        done = run("fit", table, table.with_name("m.ssvm"), "--label", "left", "--overwrite", *options)
        assert done.exit_code == 0, done.output
        return (table.with_name("train.csv.zarr") / "manifest.json").stat().st_mtime_ns

    first = store_made_by()
    assert store_made_by("--C", "3") == first
    os.utime(table)  # the same bytes with another time
    assert store_made_by() == first
    changed = table.read_text().replace("yes", "nay")
    table.write_text(changed)  # as many bytes
    second = store_made_by()
    assert second != first


def test_fit_of_files_replaces_no_store_of_the_user(table: Path) -> None:
    store = table.with_name("train.csv.zarr")
    sv.ingest(table, store, label="left", missing="mean", missing_label="skip", on_bad_line="skip")
    before = (store / "manifest.json").read_bytes()
    done = run("fit", table, table.with_name("m.ssvm"), "--label", "left")
    assert done.exit_code == 0, done.output
    assert "kept in" in done.output
    assert "train.csv.2.zarr" in done.output
    refused = run("fit", table, table.with_name("n.ssvm"), "--label", "left", "--cache", store)
    assert refused.exit_code != 0
    assert "is not the cache of a fit" in refused.output
    assert (store / "manifest.json").read_bytes() == before


def test_fits_of_one_file_with_different_options_keep_a_cache_each(table: Path) -> None:
    def fit(model: str, **options: Any) -> Any:
        return sv.fit(table, table.with_name(model), label="left", report="none", **options)

    filled = fit("a.ssvm")
    kept = (table.with_name("train.csv.zarr") / "manifest.json").read_bytes()
    fit("b.ssvm", missing="mean")
    assert (table.with_name("train.csv.zarr") / "manifest.json").read_bytes() == kept
    second = table.with_name("train.csv.2.zarr") / "manifest.json"
    made = second.stat().st_mtime_ns
    assert (fit("c.ssvm").model.weights == filled.model.weights).all()
    fit("d.ssvm", missing="mean", C=3)
    assert second.stat().st_mtime_ns == made
    assert not table.with_name("train.csv.3.zarr").exists()
    with table.open("a") as file:
        file.write("50,3,pro,9,yes\n")
    fit("e.ssvm", missing="mean")
    assert second.stat().st_mtime_ns != made
    assert not table.with_name("train.csv.3.zarr").exists()


def test_fit_of_files_waits_while_another_process_ingests_them(table: Path) -> None:
    with ExitStack() as stack:
        stack.enter_context(hold_lock(table.with_name("train.csv.zarr")))
        told = []

        def release(event: dict[str, Any]) -> None:
            if any("waiting" in line for line in event.get("decided", ())):
                told.append(event)
                stack.close()

        found = sv.fit(table, table.with_name("m.ssvm"), label="left", on_event=release)
    assert told
    assert found.certified


def test_fit_of_files_every_default_can_be_undone(table: Path, tmp_path: Path) -> None:
    clean = write_csv(tmp_path / "clean.csv", passengers(300, 1), ("zone", "charged", "left"))
    strict: dict[str, Any] = {"missing": "error", "missing_label": "error", "on_bad_line": "error"}
    whole = sv.fit(clean, tmp_path / "m.ssvm", label="left", standardize=False, test_fraction=0, **strict)
    sv.ingest(clean, tmp_path / "s.zarr", label="left")
    stored = sv.fit(tmp_path / "s.zarr", tmp_path / "n.ssvm")
    assert (whole.model.weights == stored.model.weights).all()
    assert whole.evaluation is None
    for option in ("--missing", "--missing-label", "--on-bad-line"):
        options = dict.fromkeys((option, "--on-bad-line"), "error")  # a row that is skipped is not looked at
        words = [word for given in options.items() for word in given]
        refused = run("fit", table, tmp_path / "r.ssvm", "--label", "left", *words)
        assert refused.exit_code == 65, refused.output
        assert not (tmp_path / "r.ssvm").exists()


def test_fit_of_a_table_is_the_same_from_a_file_several_files_and_a_frame(table: Path, tmp_path: Path) -> None:
    import pandas as pd

    rows = passengers(400, 2)
    names = ("age", "zone", "charged", "left")
    parts = [write_csv(tmp_path / f"{k}.csv", rows[200 * k :][:200], names) for k in range(2)]
    one = sv.fit(write_csv(tmp_path / "all.csv", rows, names), label="left")
    several = sv.fit(parts, label="left")
    framed = sv.fit(pd.read_csv(tmp_path / "all.csv"), label="left")
    assert (one.model.weights == several.model.weights).all()
    assert (one.model.weights == framed.model.weights).all()
    assert one.evaluation is not None
    assert one.evaluation.evaluation.rows > 10


def test_all_problems_of_a_table_are_told_at_once_with_a_command_that_takes_it(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(table.parent)
    refused = run("ingest", "train.csv", "s.zarr", "--label", "left")
    assert refused.exit_code == 65
    for told in ("'age' ", "'plan' ", "no number: 'oops'", "no label"):
        assert told in refused.output
    described = run("ingest", "train.csv", "s.zarr", "--label", "left", "--describe")
    commands = [
        output.partition(mark)[2].splitlines()[0]
        for output, mark in (
            (refused.output, "is read by: streamsvm "),
            (described.output, "like this: streamsvm "),
        )
    ]
    assert commands[0] == commands[1]
    taken = run(*shlex.split(commands[0]))
    assert taken.exit_code == 0, taken.output


def test_fit_without_label_or_model_proposes_the_command(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(table.parent)
    refused = run("fit", "train.csv")
    assert refused.exit_code == 2
    proposed = refused.output.partition("): streamsvm ")[2].splitlines()[0]
    assert run(*shlex.split(proposed)).exit_code == 0
    assert (table.parent / "train.ssvm").is_file()
    assert (table.parent / "train.html").is_file()


def test_codes_with_leading_zeros_are_text_and_few_odd_words_are_categories(tmp_path: Path) -> None:
    rows = "".join(f"{k % 90 + 1:05d},{'YN01R'[k % 5]},{k % 7},{'ab'[k % 2]}\n" for k in range(900))
    (tmp_path / "t.csv").write_text(f"zip,revolving,n,y\n{rows}")
    sv.ingest(tmp_path / "t.csv", tmp_path / "s.zarr", label="y")
    names = sv.open_store(tmp_path / "s.zarr").facts["names"]
    assert "zip=00001" in names
    assert "revolving=R" in names


def test_fit_of_a_store_says_that_options_of_files_have_no_effect(table: Path, tmp_path: Path) -> None:
    sv.synth("susy", tmp_path / "s.zarr", rows=500)
    found = sv.fit(tmp_path / "s.zarr", tmp_path / "m.ssvm", missing="mean")
    assert any("missing" in notice and "were ingested before" in notice for notice in found.notices)


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_bad_values_of_every_kind_can_be_left_out_of_every_format(tmp_path: Path, form: str) -> None:
    rows = 240
    table: dict[str, list[Any]] = {
        "number": [k % 7 / 2 for k in range(rows)],
        "amount": [f"${k % 50}.25" for k in range(rows)],
        "day": [f"2020-{k % 12 + 1:02d}-{k % 28 + 1:02d}" for k in range(rows)],
        "weight": [1.0 + k % 2 for k in range(rows)],
        "group": [f"g{k % 30}" for k in range(rows)],
        "y": ["no", "yes"] * (rows // 2),
    }
    good = write_table(tmp_path / f"good.{form}", table)
    sv.fit(good, tmp_path / "m.ssvm", label="y", weight="weight", drop="group", report="none")
    for row, (name, bad) in enumerate(
        [("number", math.inf), ("number", 1e300), ("amount", "much"), ("day", "2020-02-31"), ("weight", -1.0)]
    ):
        table[name][10 * row + 5] = bad
    for row, name in enumerate(("amount", "weight", "group", "y")):
        table[name][10 * row + 101] = None
    path = write_table(tmp_path / f"bad.{form}", table)
    options: dict[str, Any] = {"label": "y", "weight": "weight", "on_bad_line": "skip", "max_bad": "10%"}
    store = tmp_path / "s.zarr"
    assert sv.ingest(path, store, split_by="group", test_fraction=0.2, **options).facts()["rows"] < rows
    found = sv.ingest(path, store, drop="group", missing="mean", overwrite=True, **options)
    assert found.rows == rows - 7  # a missing amount is filled, and the group is not read
    assert len((tmp_path / "s.zarr.rejects").read_text().splitlines()) == 1 + 7
    assert (
        sv.predict(tmp_path / "m.ssvm", str(path), tmp_path / "p.csv", on_bad_line="skip", max_bad="10%").rows
        == rows - 4
    )
    assert sv.evaluate(tmp_path / "m.ssvm", str(path), on_bad_line="skip", max_bad="10%").evaluation.rows == rows - 7


def write_table(path: Path, table: dict[str, list[Any]]) -> Path:
    """A table as CSV, JSON lines or Parquet."""
    import pandas as pd

    frame = pd.DataFrame(table)
    if path.suffix == ".csv":
        frame.to_csv(path, index=False)
    elif path.suffix == ".parquet":
        frame.to_parquet(path, index=False)
    else:
        rows = frame.astype(object).where(frame.notna(), None).to_dict("records")
        path.write_text("".join(json.dumps(row).replace("Infinity", "1e999") + "\n" for row in rows))
    return path


def test_plan_of_files_tells_the_decisions_before_and_after_they_are_ingested(table: Path) -> None:
    words = ("plan", table, "--label", "left", "--cache", table.with_name("kept.zarr"))
    before = run(*words)
    assert before.exit_code == 0, before.output
    for told in ("missing values: filled", "up to 1% of all", "held out: 10 % of the rows", "no number: 'oops'"):
        assert told in before.output
    run("fit", table, table.with_name("m.ssvm"), "--label", "left", "--cache", table.with_name("kept.zarr"))
    after = run(*words)
    assert after.exit_code == 0, after.output
    for told in ("bad lines: 1 are left out", "solver ", "MiB"):
        assert told in after.output


def test_problems_of_a_table_are_told_to_a_program_with_the_call_that_takes_it(table: Path, tmp_path: Path) -> None:
    with pytest.raises(sv.DataError) as caught:
        sv.ingest(table, tmp_path / "s.zarr", label="left")
    call = caught.value.hint.partition("is read by: ")[2]
    assert call.startswith("sv.ingest(")
    assert eval(call, {"sv": sv}).rows == 594


def test_fit_of_folders_of_arrays_sees_that_a_chunk_has_changed(tmp_path: Path) -> None:
    """The time of a folder does not change with the files below it. Options of tables are not said to be idle."""
    X = np.random.default_rng(1).normal(size=(200, 3))
    folders = [tmp_path / "p.zarr", tmp_path / "q.zarr"]
    for folder in folders:
        group = zarr.open_group(folder, mode="w")
        group.create_array("X", data=X)
        group.create_array("y", data=(X[:, 0] > 0).astype(np.int32))
        os.utime(folder, ns=(folder.stat().st_mtime_ns - LATE,) * 2)
    first = sv.fit(folders, tmp_path / "m.ssvm")
    assert not any("without effect" in notice for notice in first.notices)
    zarr.open_array(folders[1] / "X", mode="a")[:] = -5 * X
    os.utime(folders[1], ns=(folders[0].stat().st_mtime_ns,) * 2)
    second = sv.fit(folders, tmp_path / "m.ssvm", overwrite=True)
    assert second.model.weights[0, 0] < 1 < first.model.weights[0, 0]


def test_fit_of_files_chooses_the_best_of_several_C_on_held_out_rows(table: Path) -> None:
    model, asked = table.with_name("m.ssvm"), ("--label", "left", "--C", "1e-6,0.1,1", "--score", "auc")
    done = run("fit", table, model, *asked)
    assert done.exit_code == 0, done.output
    paths = {C: table.with_name(f"m.C={C:g}.ssvm") for C in (1e-6, 0.1, 1.0)}
    areas = {C: sv.evaluate(path, table.with_name("train.csv.test.zarr")).measures["AUC"] for C, path in paths.items()}
    best = max(areas, key=lambda C: (areas[C], -C))
    assert sv.load_model(model) == sv.load_model(paths[best])
    assert f"(C = {best:g}, pass" in done.output
    assert f"C = {best:g} was chosen on the rows that the model is evaluated on" in done.output
    assert f"AUC                {areas[best]:.5g}" in done.output
    assert "Held-out AUC by C" in table.with_name("m.html").read_text()
    assert run("fit", table, model, *asked).exit_code == 73
    resumed = run("fit", table, model, *asked, "--resume")
    assert (resumed.exit_code, f"(C = {best:g}, pass" in resumed.output) == (0, True), resumed.output


@pytest.mark.parametrize("multi_class", ["ovr", "ovo", "softmax"])
def test_fit_of_a_frame_chooses_the_best_of_several_C_for_several_classes(multi_class: Any) -> None:
    """The first row is not of the first class, so that the order of classes in the store is not that of their names."""
    rng = np.random.default_rng(0)
    score = np.r_[2.0, rng.normal(size=399)]
    table = pd.DataFrame({"x": score, "z": rng.normal(size=400), "y": np.digitize(score, [-0.3, 0.8])})
    fitted = sv.fit(table, y="y", C=(1e-7, 10.0), multi_class=multi_class, loss="logistic", report="none")
    assert fitted.evaluation.measures["accuracy"] > 0.8
    assert fitted.model == fitted.models[10.0]


def test_fit_of_files_names_the_share_that_is_held_out_as_it_was_given(table: Path) -> None:
    done = run("plan", table, "--label", "left", "--test-fraction", "0.125")
    assert "held out: 12.5 % of the rows" in done.output


def test_fit_draws_no_page_for_none_whatever_is_fitted(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of files, of a store, and of rows of a program."""
    monkeypatch.chdir(tmp_path)
    done = run("fit", table, "m.ssvm", "--label", "left", "--report", "none")
    assert done.exit_code == 0, done.output
    done = run("fit", table.with_name("train.csv.zarr"), "n.ssvm", "--report", "none")
    assert done.exit_code == 0, done.output
    sv.fit(pd.DataFrame({"u": range(100), "y": [0, 1] * 50}), "o.ssvm", y="y", report="none")
    assert not [path for path in tmp_path.iterdir() if path.name == "none" or path.suffix == ".html"]


STOPPED = ("--time-limit", "0s", "--at-limit", "stop")
"""Options of a fit that is interrupted at its first look at the time."""


def test_interrupted_fit_of_files_goes_on_with_resume_and_ends_with_the_same_bytes(table: Path) -> None:
    whole, model = table.with_name("whole.ssvm"), table.with_name("m.ssvm")
    assert run("fit", table, whole, "--label", "left").exit_code == 0
    stopped = run("fit", table, model, "--label", "left", *STOPPED)
    assert stopped.exit_code == 75, stopped.output
    again = shlex.split(stopped.output.partition("Resume: streamsvm ")[2].splitlines()[0])
    assert {str(table), "--resume"} <= set(again)
    refused = run("fit", table, model, "--label", "left")
    assert refused.exit_code != 0
    assert "--resume" in refused.output
    assert "--overwrite" in refused.output
    resumed = run("fit", table, model, "--label", "left", "--resume")
    assert resumed.exit_code == 0, resumed.output
    assert "on the rows that were held out" in resumed.output
    assert model.read_bytes() == whole.read_bytes()
    assert model.with_suffix(".html").is_file()


@pytest.mark.parametrize("change", ["rows", "options", "none, but the cache is gone"])
def test_interrupted_fit_of_files_that_have_changed_is_not_resumed(table: Path, change: str) -> None:
    model, cache = table.with_name("m.ssvm"), table.with_name("train.csv.zarr")
    assert run("fit", table, model, "--label", "left", *STOPPED).exit_code == 75
    digest = sv.open_store(cache).digest
    if change == "rows":
        with table.open("a") as file:
            file.write("50,3,pro,9,yes\n")
    elif "gone" in change:
        shutil.rmtree(cache)
    options = ("--missing", "mean") if change == "options" else ()
    done = run("fit", table, model, "--label", "left", "--resume", *options)
    assert sv.open_store(cache).digest == digest
    if "gone" in change:
        assert done.exit_code == 0, done.output
        return
    assert done.exit_code != 0
    assert {"rows": "train.csv has changed", "options": "missing was 'indicator', now 'mean'"}[change] in done.output
    assert "--overwrite in place of --resume" in done.output


def test_search_on_files_sees_the_rows_that_a_fit_of_them_trains_on(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(table.parent)
    done = run("tune", "train.csv", "search", "--label", "left", "--C", "0.1,1", "--folds", "2")
    assert done.exit_code == 0, done.output
    for told in ("filled with 0 and marked", "held out: ", "kept in train.csv.zarr", "search.html"):
        assert told in done.output
    assert (table.parent / "search.html").is_file()
    made = (table.with_name("train.csv.zarr") / "manifest.json").stat().st_mtime_ns
    found = json.loads((table.parent / "search" / "table.json").read_text())
    assert found["rows"] == sv.open_store("train.csv.zarr").layout.rows
    fitted = run(*shlex.split(found["best_command"].removeprefix("streamsvm ")))
    assert fitted.exit_code == 0, fitted.output
    assert (table.with_name("train.csv.zarr") / "manifest.json").stat().st_mtime_ns == made
    again = run(*shlex.split(found["command"].removeprefix("streamsvm ")), "--overwrite")
    assert again.exit_code == 0, again.output
    proposed = run("tune", "train.csv").output.partition("): streamsvm ")[2].splitlines()[0]
    assert "--label left" in proposed


def test_search_is_the_same_on_a_file_and_a_frame(table: Path) -> None:
    options: dict[str, Any] = {"C": [0.1, 1], "folds": 2}
    of_file = sv.tune(table, label="left", **options)
    frame = pd.read_csv(table, dtype={"charged": str})
    frame["charged"] = pd.to_numeric(frame["charged"], errors="coerce")
    clean = frame.drop(index=100)  # the row with a value that is no number
    of_frame = sv.tune(clean, y="left", **options)
    assert of_file.best.C == of_frame.best.C
    assert of_file.best.score == of_frame.best.score


FRAMES: dict[str, Callable[[Any], Any]] = {
    "pandas": lambda frame: frame,
    "polars": pl.from_pandas,
    "lazy polars": lambda frame: pl.from_pandas(frame).lazy(),
    "a reader of Arrow": lambda frame: pa.Table.from_pandas(frame, preserve_index=False).to_reader(),
}


@pytest.mark.parametrize("kind", FRAMES)
def test_all_problems_of_a_frame_are_told_at_once_with_a_call_that_takes_it(kind: str, tmp_path: Path) -> None:
    rows = 120
    table = pd.DataFrame(
        {
            "Unnamed: 0": range(rows),
            "age": np.arange(rows) % 40 / 2,
            "day": [f"2020-01-{k % 28 + 1:02d}" for k in range(rows)],
        }
    )
    table["left"] = ["yes", "no"] * (rows // 2)
    table.loc[5:9, "age"], table.loc[20, "age"] = np.nan, np.inf
    table.loc[30, "day"], table.loc[40:41, "left"] = "2020-02-31", None
    store = tmp_path / "s.zarr"
    with pytest.raises(sv.DataError) as caught:
        sv.ingest(FRAMES[kind](table), store, y="left", max_bad="5%")
    told = "\n".join(caught.value.__notes__)
    for part in ("Unnamed: 0", "no value", "infinite", "no date: '2020-02-31'", "no label", "missing='indicator'"):
        assert part in told
    call = caught.value.hint.partition("is read by: ")[2]
    assert eval(call, {"sv": sv, "frame": FRAMES[kind](table)}).rows == rows - 4
    with pytest.raises(sv.DataError) as caught:
        sv.fit(FRAMES[kind](table), y="left", max_bad="5%", missing="error", on_bad_line="error")
    call = caught.value.hint.partition("is read by: ")[2]
    assert call.startswith("sv.fit(frame, y='left', missing='indicator', on_bad_line='skip'")
    assert eval(call, {"sv": sv, "frame": FRAMES[kind](table)}).certified


def test_labels_beside_a_frame_with_a_column_of_their_name_are_refused() -> None:
    frame = pd.DataFrame({"x": range(20), "y": [0, 1] * 10})
    with pytest.raises(sv.DataError, match="has a column 'y'"):
        sv.fit(frame, y=np.array([0, 1] * 10))


def test_raw_tables_hold_values_of_several_lines_addresses_and_versions(tmp_path: Path) -> None:
    rows = "".join(
        f'"line {k % 3}\nof ""two""",10.{k % 5}.200.{k % 7},1.2.{k % 4},{k},{"ab"[k % 2]}\n' for k in range(300)
    )
    path = tmp_path / "t.csv"
    path.write_text(f"note,ip,version,n,y\n{rows}")
    found = sv.fit(path, tmp_path / "m.ssvm", label="y")
    assert any("over several lines" in notice for notice in found.notices)
    facts = sv.open_store(tmp_path / "t.csv.zarr").facts
    assert facts["sources"][0]["rows"] == 300
    assert {'note=line 0\nof "two"', "ip=10.0.200.0", "version=1.2.3"} <= set(facts["names"])
    assert sv.predict(found, str(path), tmp_path / "p.csv").rows == 300
    with pytest.raises(sv.DataError, match="a quote is opened"):
        sv.ingest(path, tmp_path / "s.zarr", label="y", multiline=False)


@pytest.fixture(scope="module")
def ugly(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A table of which every default decides something, and what a fit of it says."""
    path = tmp_path_factory.mktemp("ugly") / "t.csv"
    rows = [
        f'{k},{"" if k % 9 == 4 else k % 40},{"bad" if k == 77 else k % 6 + 0.5},{k % 7 + 1:05d},"a {k % 3}\nb",'
        f"{'' if k in {20, 21} else 'ny'[k % 40 > 20]}\n"
        for k in range(240)
    ]
    path.write_text(",age,size,zip,note,y\n" + "".join(rows))
    done = run("fit", path, path.with_name("m.ssvm"), "--label", "y")
    assert done.exit_code == 0, done.output
    return path, done.output


UNDONE: dict[str, tuple[list[str], Callable[[Path, Result], bool]]] = {
    "--missing": (["mean"], lambda _, done: "filled: mean" in done.output),
    "--missing-label": (["error"], lambda _, done: "rows without" not in done.output and "bad lines: 3" in done.output),
    "--on-bad-line": (["error"], lambda _, done: done.exit_code == 65 and "found 'bad'" in done.output),
    "--test-fraction": (
        ["0"],
        lambda place, done: "were held out" not in done.output and not [*place.glob("*.test.*")],
    ),
    "--no-standardize": (
        [],
        lambda place, _: not json.loads((place / "m.ssvm.run" / "job.json").read_text())["standardize"],
    ),
    "--cache": (
        ["kept.zarr"],
        lambda place, _: {path.name for path in place.glob("*.zarr")} == {"kept.zarr", "kept.test.zarr"},
    ),
    "--report": (["none"], lambda place, _: not [*place.glob("*.html")]),
    "--no-multiline": ([], lambda _, done: done.exit_code == 65 and "a quote is opened" in done.output),
    "--column": (
        ["zip=number,=number"],
        lambda _, done: "'zip'" not in done.output and "row numbers" not in done.output,
    ),
}
"""By option: a value that undoes a default, and whether it has."""


@pytest.mark.parametrize("option", UNDONE)
def test_decision_about_a_raw_table_is_undone_by_the_option_that_its_line_names(
    ugly: tuple[Path, str], option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, said = ugly
    values, is_undone = UNDONE[option]
    assert set(re.findall(r"; (--[a-z-]+)", said)) == set(UNDONE)
    monkeypatch.chdir(tmp_path)
    done = run("fit", path, "m.ssvm", "--label", "y", option, *values)
    assert is_undone(tmp_path, done), done.output


def test_plan_of_a_raw_table_names_the_options_that_undo_what_is_decided(
    ugly: tuple[Path, str], tmp_path: Path
) -> None:
    path, _ = ugly
    planned = run("plan", path, "--label", "y", "--cache", tmp_path / "none.zarr").output
    of_columns, given = {"--column", "--no-multiline"}, {"--cache"}  # these are in the table of columns
    assert set(re.findall(r"; (--[a-z-]+)", planned)) >= set(UNDONE) - of_columns - given


def test_numbers_to_predict_are_read_as_they_are_written_and_have_a_loss_of_their_own(tmp_path: Path) -> None:
    """A file of a country with decimal commas: semicolons, times of day, words for a missing value, and one mistake."""
    path, rows = tmp_path / "t.csv", 160
    lines = [
        f"{k // 60 % 24:02d}:{k % 60:02d};{k % 9},{k % 10}25;{'oops' if k == 99 else f'{2 * (k % 9)},125'}"
        for k in range(rows)
    ]
    path.write_text("at;x;target\n" + "\n".join(lines) + "\n")
    found = sv.fit(path, tmp_path / "m.ssvm", label="target", task="regression")
    assert found.evaluation is not None
    assert (found.evaluation.evaluation.R2 or 0) > 0.9
    assert found.model.provenance["settings"]["loss"] == "squared"
    assert sv.open_store(tmp_path / "t.csv.zarr").facts["rejected"] == 1
    assert sv.evaluate(found, str(path), on_bad_line="skip").evaluation.target_mean == pytest.approx(8, abs=1)
    money = pd.DataFrame({"x": range(200), "price": [f"${1000 + k:,}.50" for k in range(200)]})
    money.loc[50, "price"] = "ask"
    priced = sv.fit(money, y="price", task="regression").evaluation
    assert priced is not None
    assert (priced.evaluation.R2 or 0) > 0.9


def test_columns_that_alone_predict_the_label_are_told(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    n, paid = 800, rng.random(800) < 0.4
    rows = {"amount": rng.normal(size=n) + paid, "status": np.where(paid, "paid", rng.choice(["late", "open"], n))}
    rows["closed"] = np.where(paid, "", "2020-01-07")  # missing in rows of one class alone
    rows["share"] = np.where(paid, 5.0, 3.0) + rng.random(n)
    table = pd.DataFrame(rows | {"y": np.where(paid, "yes", "no")})
    options: dict[str, Any] = {"label": "y", "report": "none", "missing": "indicator"}
    (told,) = [line for line in sv.fit(table, **options).notices if "almost perfectly" in line]
    assert all(f"'{name}' (100 % right)" in told for name in ("status", "closed", "share"))
    assert "'amount'" not in told
    honest = table.assign(share=rng.random(n), closed="2020-01-07", status=rng.choice(["late", "open"], n))
    assert not [line for line in sv.fit(honest, **options).notices if "almost perfectly" in line]
    price = table.assign(y=3.0 * table["amount"] + 7.0)
    told_of_price = sv.fit(price, **options, task="regression").notices
    assert any("'amount' (proportional to it)" in line for line in told_of_price)


def test_model_no_better_than_none_of_balanced_classes_is_told_as_such(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    for rare, told in ((0.5, "no better than one without columns"), (0.1, "the accuracy says nothing here")):
        table = pd.DataFrame({"x": rng.normal(size=1500), "y": rng.random(1500) < rare})
        notices = sv.fit(table, label="y", report="none").notices
        assert [told in line for line in notices if "always predicting" in line] == [True], notices
    table = pd.DataFrame(rng.normal(size=(400, 150))).rename(columns=str).assign(y=rng.normal(size=400))
    fitted = sv.fit(table, label="y", task="regression", report="none")
    assert fitted.evaluation.measures["R2"] <= 0.0
    assert any("which predicts the mean of all rows" in line for line in fitted.notices)


def test_hashed_values_have_their_names_in_coefficients(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    town = np.where(rng.random(3000) < 0.3, "rome", rng.choice([f"town {k}" for k in range(300)], 3000))
    zone = rng.choice(["A", "B"], 3000)
    label = (town == "rome") | (rng.random(3000) < np.where(zone == "A", 0.4, 0.1))
    table = pd.DataFrame({"town": town, "zone": zone, "y": label})
    for source in (table, tmp_path / "t.csv"):
        table.to_csv(tmp_path / "t.csv", index=False)
        model = sv.fit(source, label="y", column="zone=hash", report="none", test_fraction=0).model
        effects = model.coefficients().set_index("value")["coefficient"]
        assert effects["town rome"] > 0.5
        assert effects["zone A"] > effects["zone B"]


def test_text_in_another_encoding_is_read_with_its_name(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    table = pd.DataFrame({"name": rng.choice(["Müller", "Café", "Zoë"], 500), "x": rng.normal(size=500)})
    table["y"] = table["name"] == "Zoë"
    expected = sv.fit(table, label="y", report="none").model
    for encoding in ("latin-1", "cp1252", "utf-16"):
        path = tmp_path / f"{encoding}.csv"
        table.to_csv(path, index=False, encoding=encoding)
        model = sv.fit(path, label="y", encoding=encoding, format="csv", report="none").model
        assert list(model.coefficients()["value"]) == list(expected.coefficients()["value"])
        assert sv.evaluate(model, path).evaluation.rows == 500  # read as the rows that the model was trained on
    refused = run("ingest", tmp_path / "latin-1.csv", tmp_path / "s.zarr", "--label", "y")
    assert "--encoding latin-1" in refused.output
    assert run("ingest", tmp_path / "latin-1.csv", tmp_path / "s.zarr", "--label", "y", "--encoding", "x").exit_code


def test_json_lines_in_another_encoding_are_read_with_its_name(tmp_path: Path) -> None:
    rows = [{"name": name, "y": k % 2} for k, name in enumerate(["Müller", "Café", "Zoë"] * 50)]
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    for encoding in ("latin-1", "utf-16"):
        path = tmp_path / f"{encoding}.jsonl"
        path.write_text(text, encoding=encoding)
        model = sv.fit(path, label="y", encoding=encoding, report="none").model
        assert set(model.coefficients()["value"]) >= {"Müller", "Café", "Zoë"}
        assert sv.evaluate(model, path).evaluation.rows == 150  # read as the rows that the model was trained on
        for mode in ("error", "skip"):
            command = ("ingest", path, tmp_path / "s.zarr", "--label", "y", "--on-bad-line", mode)
            refused = run(*command)
            assert f"--encoding {encoding}" in refused.output
            assert f"--encoding {encoding}" in run(*command, "--describe").output


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_line_in_another_encoding_is_a_bad_line(form: str, tmp_path: Path) -> None:
    """Pyarrow takes a column with such a value for bytes."""
    rows = [("Café" if k == 300 else "Rome", k % 7, "ab"[k % 2]) for k in range(500)]
    lines = [f"{name},{x},{y}" for name, x, y in rows]
    if form == "jsonl":
        lines = [json.dumps({"name": name, "x": x, "y": y}, ensure_ascii=False) for name, x, y in rows]
    path = tmp_path / f"t.{form}"
    path.write_text("\n".join([*(["name,x,y"] if form == "csv" else []), *lines, ""]), encoding="latin-1")
    number = 302 if form == "csv" else 301
    refused = run("ingest", path, tmp_path / "s.zarr", "--label", "y")
    assert (f"line {number}" in refused.output, "--encoding latin-1" in refused.output) == (True, True)
    made = sv.ingest(path, tmp_path / "s.zarr", label="y", on_bad_line="skip")
    assert made.rows == 499


def test_refused_search_and_fit_leave_nothing_behind(table: Path, tmp_path: Path) -> None:
    store = tmp_path / "s.zarr"
    sv.ingest(table, store, label="left", chunk="4KiB", missing="mean", on_bad_line="skip", missing_label="skip")
    before = sorted(tmp_path.iterdir())
    refused = run("tune", store, tmp_path / "search", "--folds", 1000)
    assert "--folds 74 at most" in refused.output
    refused = run("fit", store, tmp_path / "m.ssvm", "--validation", 0.2, "--dual", tmp_path / "a.npy")
    assert "leave out one of the two" in refused.output
    assert sorted(tmp_path.iterdir()) == before
    for overwrite in ((), ("--overwrite",)):
        assert run("fit", store, tmp_path / "m.ssvm", *overwrite).exit_code == 0
    log = (tmp_path / "m.ssvm.run" / "events.jsonl").read_text().splitlines()
    assert [json.loads(line)["event"] for line in log].count("began") == 1


def test_fit_of_a_small_file_holds_rows_out_to_choose_by(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    table = pd.DataFrame({"x": rng.normal(size=6000), "z": rng.normal(size=6000)})
    table["y"] = table["x"] + rng.normal(size=6000) > 1
    table.to_csv(tmp_path / "t.csv", index=False)
    fitted = sv.fit(
        tmp_path / "t.csv",
        tmp_path / "m.ssvm",
        label="y",
        validation=0.2,
        score="average_precision",
        C=[0.1, 1],
        report="none",
    )
    assert (tmp_path / "m.ssvm.run" / "evaluation.json").is_file()  # of the model that was chosen, for its page
    held = fitted.plan.layout.rows
    assert 0.6 * 5400 < held < 0.9 * 5400


@pytest.mark.parametrize("rows", [80, 1000])
def test_fit_of_small_rows_of_a_program_holds_rows_out_to_choose_by(rows: int) -> None:
    rng = np.random.default_rng(6)
    table = pd.DataFrame({"x": rng.normal(size=rows), "kind": rng.choice(["a", "b"], rows)})
    y = table["x"] + rng.normal(size=rows) > 0
    for X in (table, table[["x"]].to_numpy()):
        fitted = sv.fit(X, y=y, validation=0.25, score="auc", C=[0.1, 1])
        assert 0.6 * rows < fitted.plan.layout.rows < 0.9 * rows


def test_store_of_one_chunk_says_the_chunk_that_lets_it_hold_rows_out(tmp_path: Path) -> None:
    X = np.random.default_rng(7).normal(size=(150, 4))
    sv.ingest(X, tmp_path / "s.zarr", y=X[:, 0] > 0)
    refused = run("fit", tmp_path / "s.zarr", tmp_path / "m.ssvm", "--validation", 0.2)
    (chunk,) = re.findall(r"--chunk (\d+)", refused.output)
    sv.ingest(X, tmp_path / "t.zarr", y=X[:, 0] > 0, chunk=int(chunk))
    assert run("fit", tmp_path / "t.zarr", tmp_path / "m.ssvm", "--validation", 0.2).exit_code == 0
