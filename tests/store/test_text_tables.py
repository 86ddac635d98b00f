"""Tables of text as people and other programs write them, read through the command line and the functions of the package."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import scipy.sparse
import zarr
from click.testing import CliRunner

import streamsvm as sv
from streamsvm.cli.main import cli
from streamsvm.errors import DataError
from tests.axes import each_value

DAYS = pd.date_range("2019-01-01", periods=60).strftime("%Y-%m-%d")


def write(path: Path, **columns: Any) -> Path:
    """A table as CSV, Parquet or JSON lines."""
    frame = pd.DataFrame(columns)
    if path.suffix == ".parquet":
        frame.to_parquet(path, index=False)
    elif path.suffix == ".jsonl":
        frame.to_json(path, orient="records", lines=True)
    else:
        frame.to_csv(path, index=False)
    return path


def ingest(path: Path, **options: Any) -> Any:
    settings: dict[str, Any] = {"label": "y", "overwrite": True} | options
    return sv.ingest(path, path.with_suffix(".zarr"), **settings)


def fit(path: Path, **options: Any) -> Any:
    """The model of a table."""
    ingest(path, **options)
    return sv.fit(path.with_suffix(".zarr"), path.with_suffix(".ssvm"), overwrite=True).model


def values_of(store: Path) -> Any:
    """The rows of a store as a matrix."""
    root: Any = zarr.open(str(store), mode="r")
    X = root["X"]
    if isinstance(X, zarr.Array):
        return X[:]
    return scipy.sparse.csr_array((X["data"][:], X["indices"][:], X["indptr"][:]), X.attrs["shape"]).toarray()


@each_value(
    ("form", ["csv", "parquet", "jsonl"]),
    ("wrong", ["2019-02-30", "2019-04-31 10:00", "2019-02-29T10:00:00Z", "0000-01-01"]),
)
def test_text_table_day_that_no_month_has_is_no_date(tmp_path: Path, form: str, wrong: str) -> None:
    path = write(tmp_path / f"a.{form}", day=[*DAYS[:9], wrong, *DAYS[10:]], y=[0, 1] * 30)
    with pytest.raises(
        DataError, match=rf"(row 10|line 11), column 'day': expected a date such as 1997-02-28, found '{wrong}'"
    ):
        ingest(path)


def test_text_table_day_that_no_month_has_is_none_in_new_rows_either(tmp_path: Path) -> None:
    model = fit(write(tmp_path / "a.csv", day=DAYS, y=[0, 1] * 30))
    assert len(model.decision_function(pd.DataFrame({"day": ["2020-02-29"]}))) == 1
    for wrong in ("2020-02-30", "1900-02-29", "2020-04-31"):
        with pytest.raises(DataError, match="expected a date"):
            model.decision_function(pd.DataFrame({"day": [wrong]}))


CLOCK = pd.date_range("2019-01-01 00:30", periods=60, freq="7h")


@pytest.mark.parametrize("options", [{}, {"calendar": ("t",)}], ids=["date", "calendar"])
@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_text_table_times_with_a_zone_are_the_same_points_in_time_in_every_zone(
    tmp_path: Path, form: str, options: dict[str, Any]
) -> None:
    times = CLOCK.tz_localize("America/New_York")
    model = fit(write(tmp_path / f"a.{form}", t=times, y=(CLOCK.hour < 12).astype(int)), **options)
    expected = model.decision_function(pd.DataFrame({"t": times}))
    for other in (
        times.tz_convert("UTC"),
        times.tz_convert("Asia/Kolkata"),
        times.tz_convert("Asia/Kolkata").astype(str),
    ):
        assert model.decision_function(pd.DataFrame({"t": other})).tolist() == expected.tolist()
    for other in (CLOCK, CLOCK.astype(str)):
        with pytest.raises(DataError, match="'t': the time has no time zone"):
            model.decision_function(pd.DataFrame({"t": other}))


def test_text_table_times_with_a_zone_are_refused_where_the_training_had_none(tmp_path: Path) -> None:
    model = fit(write(tmp_path / "a.csv", t=CLOCK, y=(CLOCK.hour < 12).astype(int)))
    times = CLOCK.tz_localize("America/New_York")
    for other in (times, times.astype(str)):
        with pytest.raises(DataError, match="'t': the time has a time zone"):
            model.decision_function(pd.DataFrame({"t": other}))


def run(*words: object) -> str:
    """What a command that ends well prints on both streams."""
    done = CliRunner().invoke(cli, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.parametrize("quote", ["", '"'])
def test_text_table_blanks_around_text_do_not_count(tmp_path: Path, quote: str) -> None:
    rows = [
        f"{k}, {'?' if k % 7 == 3 else 'a' if k % 3 else 'b'} ,{' ' * (k % 3)}{'yes' if k % 2 else 'no'}"
        for k in range(60)
    ]
    text = "\n".join(",".join(f"{quote}{value}{quote}" for value in row.split(",")) for row in rows)
    (tmp_path / "a.csv").write_text(f"u,g,y\n{text}\n")
    printed = run("ingest", tmp_path / "a.csv", tmp_path / "a.zarr", "--label", "y", "--missing", "zero")
    assert "classes: no 50.0 %, yes 50.0 %" in printed
    assert "differ by" not in printed
    names = sv.open_store(tmp_path / "a.zarr").facts["names"]
    assert list(names) == ["u", "g=a", "g=b"]


def test_text_table_new_rows_match_labels_and_categories_whatever_blanks_are_around(tmp_path: Path) -> None:
    columns: dict[str, Any] = {
        "u": [k % 5 for k in range(60)],
        "g": ["red", "blue", "red"] * 20,
        "y": ["yes", "no", "no"] * 20,
    }
    model = fit(write(tmp_path / "a.parquet", **columns))
    expected = model.decision_function(pd.DataFrame({"u": [1, 2], "g": ["red", "blue"]})).tolist()
    assert model.decision_function(pd.DataFrame({"u": [1, 2], "g": [" red", "blue "]})).tolist() == expected
    blanks = {"u": columns["u"], "g": columns["g"], "y": [f" {label}" for label in columns["y"]]}
    found = sv.evaluate(tmp_path / "a.ssvm", [write(tmp_path / "b.parquet", **blanks)])
    same = sv.evaluate(tmp_path / "a.ssvm", [tmp_path / "a.parquet"])
    assert found.evaluation == same.evaluation


FORMS = ["csv", "parquet", "jsonl"]


def with_gaps(word: str | None) -> dict[str, Any]:
    """Columns of numbers, dates, amounts and words in which some values are missing."""
    values = {
        "u": [f"{k % 7}.5" for k in range(60)],
        "day": [f"2020-01-{k % 28 + 1:02}" for k in range(60)],
        "paid": [f"${k}" for k in range(60)],
    }
    gaps = {name: [word if k % 10 == 3 else value for k, value in enumerate(column)] for name, column in values.items()}
    return gaps | {"y": ["no", "yes"] * 30}


@each_value(("form", FORMS), ("word", ["n/a", "NaN", "-", ".", "<NA>", r"\N", "#DIV/0!", "1.#IND"]))
def test_text_table_words_for_a_missing_value_are_missing_values(tmp_path: Path, form: str, word: str) -> None:
    path = write(tmp_path / f"a.{form}", **with_gaps(word))
    with pytest.raises(DataError, match=r"missing='(indicator|mean)'") as caught:
        ingest(path)
    assert caught.value.code == "E-MISSING"
    assert ingest(path, missing="mean").notices == ("18 missing values filled",)
    empty = write(tmp_path / f"b.{form}", **with_gaps(None))
    ingest(empty, missing="mean")
    assert values_of(path.with_suffix(".zarr")).tolist() == values_of(empty.with_suffix(".zarr")).tolist()


@pytest.mark.parametrize("form", FORMS)
def test_text_table_words_that_the_user_adds_are_missing_values_in_new_rows_too(tmp_path: Path, form: str) -> None:
    columns = with_gaps("unknown") | {"age": [-999 if k % 9 == 2 else k for k in range(60)]}
    path = write(tmp_path / f"a.{form}", **columns)
    model = fit(path, missing="mean", na=("unknown", "-999"))
    expected = model.decision_function(
        pd.DataFrame(with_gaps(None) | {"age": [None if k == -999 else k for k in columns["age"]]})
    )
    assert model.decision_function(pd.DataFrame(columns)).tolist() == expected.tolist()
    out = tmp_path / "p.csv"
    for other in FORMS:
        run(
            "predict",
            tmp_path / "a.ssvm",
            write(tmp_path / f"n.{other}", **columns),
            out,
            "--output",
            "decision",
            "--overwrite",
        )
        assert pd.read_csv(out).iloc[:, -1].tolist() == pytest.approx(expected.tolist())


RECOGNIZED = {
    "day": ("date", DAYS, "2019-02-30"),
    "paid": ("amount", [f"${k}" for k in range(60)], "$x"),
    "member": ("boolean", ["yes", "no"] * 30, "perhaps"),
    "size": ("number", [k + 0.5 for k in range(60)], "large"),
    "w": ("weight", [1 + k % 2 for k in range(60)], "-3"),
}


@each_value(("form", ["csv", "jsonl"]), ("name", RECOGNIZED))
def test_text_table_lines_with_a_value_that_is_not_of_its_column_are_left_out(
    tmp_path: Path, form: str, name: str
) -> None:
    columns = {key: list(values) for key, (_, values, _) in RECOGNIZED.items()} | {"y": [0, 1] * 30}
    wrong = RECOGNIZED[name][2]
    columns[name][40] = -3 if name == "w" and form == "jsonl" else wrong
    path = write(tmp_path / f"a.{form}", **columns)
    options = {
        "column": [f"{key}={kind}" for key, (kind, _, _) in RECOGNIZED.items() if kind != "weight"],
        "weight": "w",
    }
    with pytest.raises(DataError, match=re.escape(wrong)):
        ingest(path, **options)
    assert ingest(path, on_bad_line="skip", max_bad="5%", **options).rows == 59
    assert f"{42 if form == 'csv' else 41}\tE-" in (tmp_path / "a.zarr.rejects").read_text()


def test_text_table_rows_with_a_missing_value_are_kept_where_bad_lines_are_left_out(tmp_path: Path) -> None:
    size = ["NaN" if k % 10 == 3 else str(k) for k in range(2000)]
    columns = {"size": size, "y": [0, 1] * 1000}
    model = fit(write(tmp_path / "a.csv", **columns), missing="mean", on_bad_line="skip")
    assert len(model.decision_function(tmp_path / "a.csv")) == 2000
    for bad in ("Infinity", "1e99", "word"):
        path = write(tmp_path / "b.csv", size=[*size[:1500], bad, *size[1501:]], y=columns["y"])
        with pytest.raises(DataError, match=f"line 1502, column 'size': .*{bad}"):
            ingest(path, missing="mean", column=["size=number"])
        result = ingest(path, missing="mean", column=["size=number"], on_bad_line="skip")
        assert (result.rows, result.notices[0]) == (1999, "200 missing values filled")
        run("predict", tmp_path / "a.ssvm", path, tmp_path / "p.csv", "--on-bad-line", "skip", "--overwrite")
        assert len(pd.read_csv(tmp_path / "p.csv")) == 1999


def test_text_table_first_line_that_is_wrong_is_named(tmp_path: Path) -> None:
    columns = {"member": ["yes", "no"] * 30, "size": [*range(50), "large", *range(9)], "y": [0, 1] * 30}
    columns["member"][30] = "perhaps"
    with pytest.raises(DataError, match="line 32, column 'member'"):
        ingest(write(tmp_path / "a.csv", **columns), column=["member=boolean", "size=number"])


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_text_table_index_of_a_data_frame_is_no_feature(tmp_path: Path, form: str) -> None:
    frame = pd.DataFrame({"u": [k % 7 for k in range(60)], "y": ["no"] * 30 + ["yes"] * 30}).sample(
        frac=1, random_state=0
    )
    path, save = tmp_path / f"a.{form}", frame.to_csv if form == "csv" else frame.to_parquet
    save(path)
    name = "" if form == "csv" else "__index_level_0__"
    for label in ("y", "last"):
        result = ingest(path, label=label)
        assert (result.columns, result.classes) == (1, ("no", "yes") if frame["y"].iloc[0] == "no" else ("yes", "no"))
        assert f"the index of a data frame, is left out: '{name}'" in result.notices[0]
    model = sv.fit(tmp_path / "a.zarr", tmp_path / "a.ssvm").model
    assert model.decision_function(path).tolist() == model.decision_function(frame).tolist()
    assert sv.evaluate(tmp_path / "a.ssvm", [path], label="last").evaluation.rows == 60
    kept = ingest(path, column=[f"{name}=number"])
    assert (kept.columns, kept.notices) == (2, ())


TABLE = "u,v,y\n1,2,a\n2,1,b\n3,1,a\n"


@each_value(
    (
        "above",
        [
            "# exported 2020\n",
            "# u in m, v in s, class\n",
            "|1x3 Cross validator\n",
            '\n# of "all\n% 2020, by me\n\n',
            "// Müller's\r\n",
        ],
    ),
    ("skip", ["error", "skip"]),
)
def test_text_table_comment_lines_above_a_table_are_skipped(tmp_path: Path, above: str, skip: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(above + TABLE)
    result = ingest(path, on_bad_line=skip)
    assert (result.rows, result.columns, result.classes) == (3, 2, ("a", "b"))
    assert "skipped above it" in result.notices[0]
    path.write_text(above + TABLE.replace("3,1,a", "3,1"))
    with pytest.raises(DataError, match=f"line {above.count(chr(10)) + 4}: expected 3 values"):
        ingest(path)


def test_text_table_skipped_lines_and_comments_are_those_of_new_rows_too(tmp_path: Path) -> None:
    path, rows = tmp_path / "a.csv", "".join(f"{k},{k % 7},{'ab'[k % 2]}\n; note\n" for k in range(60))
    path.write_text("Report of the year\nu,v,y\n" + rows)
    with pytest.raises(DataError, match=r"line 1 of .* has 1 value"):
        ingest(path, comment=";")
    model = fit(path, comment=";", skip_lines=1)
    decisions = model.decision_function(path)
    assert len(decisions) == 60
    (tmp_path / "b.csv").write_text("u,v,y\n" + rows.replace("; note\n", ""))
    printed = run(
        "predict",
        tmp_path / "a.ssvm",
        tmp_path / "b.csv",
        tmp_path / "p.csv",
        "--skip-lines",
        "0",
        "--output",
        "decision",
    )
    assert pd.read_csv(tmp_path / "p.csv").iloc[:, -1].tolist() == pytest.approx(decisions.tolist()), printed
    (tmp_path / "b.csv").write_text("u,v,y\n" + rows)
    with pytest.raises(DataError, match="line 3: expected 3 values, got 1"):
        ingest(tmp_path / "b.csv")


@pytest.mark.parametrize(("lines", "rows"), [(20_000, 40), (200_000, 3), (20, 30_000)])
def test_text_table_values_with_line_feeds_may_lie_across_blocks(tmp_path: Path, lines: int, rows: int) -> None:
    path = tmp_path / "a.csv"
    text = '"' + 'a, ""b""\n' * lines + '"'
    path.write_text("t,u,y\n" + "".join(f"{text},{k},{k % 2}\n" for k in range(rows)))
    for skip in ("error", "skip"):
        result = ingest(path, column=["t=hash"], hash=4, multiline=True, on_bad_line=skip)
        assert (result.rows, result.columns) == (rows, 17)


def test_text_table_bad_line_among_values_with_line_feeds_is_named_and_left_out(tmp_path: Path) -> None:
    path, text = tmp_path / "a.csv", '"' + "a\n" * 100_000 + '"'
    rows = [f"{text},{'large' if k == 4 else k},{k % 2}\n" for k in range(12)]
    path.write_text("t,u,y\n" + "".join(rows))
    options = {"column": ["t=hash", "u=number"], "hash": 4, "multiline": True}
    with pytest.raises(DataError, match="line 400006, column 'u'"):
        ingest(path, **options)
    assert ingest(path, on_bad_line="skip", max_bad="50%", **options).rows == 11


def test_text_tables_years_of_two_digits_are_1930_to_2029_and_are_announced(tmp_path: Path) -> None:
    born = [f"28-Feb-{year:02}" for year in (62, 30, 99, 0, 29, 85)] * 10
    result = ingest(write(tmp_path / "a.csv", born=born, y=[0, 1] * 30))
    assert result.notices == ("60 two-digit years of 'born' are read as 1930 to 2029",)
    years = values_of(tmp_path / "a.zarr")[:6, 0]
    assert (2000 + years).round().tolist() == [1962, 1930, 1999, 2000, 2029, 1985]


def test_text_tables_description_of_a_column_names_infinite_and_missing_numbers(tmp_path: Path) -> None:
    u, v = ["inf", *map(str, range(59))], ["NaN", "-", *map(str, range(58))]
    path = write(tmp_path / "a.csv", u=u, v=v, y=[0, 1] * 30)
    lines = run("ingest", path, "--label", "y", "--describe").splitlines()
    assert "infinite values, which ingest refuses" in next(line for line in lines if line.startswith("u "))
    assert "3.33 %" in next(line for line in lines if line.startswith("v "))
    assert not any("Warning" in line for line in lines)


def test_text_table_missing_values_of_json_lines_make_no_line_bad(tmp_path: Path) -> None:
    """The description and its command name the gaps of the column, and no lines to leave out."""
    lines = [json.dumps({"u": "-" if k % 10 == 3 else k, "y": k % 2}) for k in range(60)]
    (tmp_path / "a.jsonl").write_text("\n".join(lines) + "\n")
    said = run("ingest", tmp_path / "a.jsonl", "--label", "y", "--describe")
    assert "--missing indicator" in said
    assert "'lines'" not in said
    assert "--na" not in said


def test_text_table_of_json_lines_whose_rows_are_all_bad_is_refused_as_that(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"u": None, "y": k % 2}) + "\n" for k in range(8)))
    options: dict[str, Any] = {"label": "y", "on_bad_line": "skip", "max_bad": "100%"}
    with pytest.raises(DataError) as refused:
        sv.ingest(tmp_path / "a.jsonl", tmp_path / "a.zarr", **options)
    assert refused.value.hint


@pytest.mark.parametrize("bad", [1, 30])
def test_text_table_bad_json_lines_are_described_and_counted_once(tmp_path: Path, bad: int) -> None:
    """The description of a file with lines that are no JSON proposes a command that ingests it."""
    lines = [json.dumps({"u": k, "c": "ab"[k % 2], "y": k % 2}) for k in range(20)]
    lines[3:3] = ['{"u": , "y": 0}'] * bad
    (tmp_path / "a.jsonl").write_text("\n".join(lines) + "\n")
    said = run("ingest", tmp_path / "a.jsonl", tmp_path / "a.zarr", "--label", "y", "--describe")
    assert re.search(rf"^'lines' +{bad} ", said, re.MULTILINE)
    run(*shlex.split(said.partition("like this: streamsvm ")[2].splitlines()[0]))
    assert sv.open_store(tmp_path / "a.zarr").layout.rows == 20
