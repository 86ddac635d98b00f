"""The page of a run: what is in it, what is absent, that names in it are harmless, and that it loads and runs nothing."""

from __future__ import annotations

import html
import json
import re
import shlex
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import streamsvm as sv
from streamsvm.cli.main import cli
from streamsvm.config.units import percent
from streamsvm.display.page import build_page
from streamsvm.display.read_record import read_run
from streamsvm.errors import DataError, ExistsError, MissingError, UsageError
from streamsvm.jobs.apply.evaluate import evaluate
from streamsvm.jobs.apply.options import EvaluateJob
from streamsvm.jobs.common_options import ReportJob, SynthJob
from streamsvm.jobs.fit.driver import fit
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.report import report
from streamsvm.jobs.synth import synth
from streamsvm.jobs.tune.options import TuneJob
from streamsvm.jobs.tune.run import tune
from tests.axes import each_value

HOSTILE = "</title><script>alert(1)</script><img src=x onerror=alert(2)>\x1b[31m\u202egnp\x00'\" & \udcff"
LARGEST = 400_000


class Seen(HTMLParser):
    """What a browser would find in a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += data

    @property
    def headings(self) -> list[str]:
        """The anchors of the parts."""
        return [value[1:] for name, value in self.attributes if name == "href" and value]


def seen(page: Path) -> Seen:
    """The page, which is whole, small, loads nothing and executes nothing."""
    text = page.read_text(encoding="utf-8")
    assert len(text.encode()) < LARGEST
    found = Seen()
    found.feed(text)
    assert not found.open
    assert not {"script", "img", "iframe", "object", "embed", "link", "form", "base", "image", "foreignobject"} & set(
        found.tags
    )
    for name, value in found.attributes:
        assert not name.startswith("on")
        assert name not in ("style", "src", "srcset", "xlink:href")
        assert name != "href" or str(value).startswith("#")
    policy = next(value for name, value in found.attributes if name == "content" and "default-src" in str(value))
    assert policy is not None
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", text)
    return found


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two classes, and a linear model of them that was evaluated."""
    root = tmp_path_factory.mktemp("pages")
    synth(SynthJob("susy", str(root / "s.zarr"), rows=4000, chunk_bytes=32 << 10, test_fraction=0.25))
    job = FitJob(str(root / "s.zarr"), str(root / "m.ssvm"), validation=0.2, report=str(root / "m.html"))
    fit(job)
    evaluate(EvaluateJob(str(root / "m.ssvm"), (str(root / "s.test.zarr"),)))
    return root


def test_page_fit_leaves_its_page(place: Path) -> None:
    found = seen(place / "m.html")
    parts = ["margins", "columns", "data", "training", "provenance"]
    assert [part for part in found.headings if part != "content"] == parts
    assert "Certified: within" in found.text
    assert "streamsvm fit" in found.text
    assert found.tags.count("figure") >= 8


def test_page_notebook_shows_the_page_in_a_frame_that_runs_nothing(place: Path, tmp_path: Path) -> None:
    result = fit(FitJob(str(place / "s.zarr"), str(tmp_path / "n.ssvm")))
    found = Seen()
    found.feed(result._repr_html_())
    assert found.tags.count("iframe") == found.tags.count("details") == 1
    assert "converged" in found.text
    assert dict(found.attributes)["sandbox"] == ""
    assert dict(found.attributes)["srcdoc"] == build_page([read_run(Path(result.run))])
    for file in result.run.iterdir():
        file.unlink() if file.is_file() else None
    assert "<iframe" not in result._repr_html_()


def test_page_evaluation_is_part_of_the_page(place: Path, tmp_path: Path) -> None:
    made = report(ReportJob((str(place / "m.ssvm"),), str(tmp_path / "p.html")))
    found = seen(tmp_path / "p.html")
    assert "evaluation" in found.headings
    assert "area 0." in found.text
    assert made.bytes == (tmp_path / "p.html").stat().st_size
    again = build_page([read_run(place / "m.ssvm.run")])
    assert again == (tmp_path / "p.html").read_text(encoding="utf-8")


def test_page_evaluation_of_another_model_of_the_name_is_not_shown(place: Path, tmp_path: Path) -> None:
    run = read_run(place / "m.ssvm")
    assert run.evaluation is not None
    assert run.end is not None
    record = json.loads((place / "m.ssvm.run" / "evaluation.json").read_text())
    assert record["primals"] == [run.end.problems[0].primal]
    other = tmp_path / "o.ssvm.run"
    other.mkdir()
    for file in (place / "m.ssvm.run").glob("*.json*"):
        (other / file.name).write_bytes(file.read_bytes())
    (other / "evaluation.json").write_text(json.dumps(record | {"primals": [record["primals"][0] + 1]}))
    assert read_run(other).evaluation is None


def test_page_search_has_a_page(place: Path, tmp_path: Path) -> None:
    job = TuneJob(str(place / "s.zarr"), str(tmp_path / "grid"), C=(0.1, 1.0), folds=2, report=str(tmp_path / "g.html"))
    result = tune(job)
    found = seen(tmp_path / "g.html")
    assert [part for part in found.headings if part != "content"] == ["path", "grid", "points", "provenance"]
    assert "Best: C = " in found.text
    assert "always ‘" in found.text
    assert f"--C {result.best.C:g}" in found.text
    assert ", ".join(percent(error, 4) for error in result.best.folds) in found.text.replace("\u00a0", " ")


@pytest.mark.parametrize(
    "options",
    [
        {"C": (0.1, 1.0), "class_weight": "balanced", "loss": "logistic", "standardize": True, "report": "g.html"},
        {"C": (1.0,), "kernel": "rbf", "landmarks": (8,), "gamma": (0.3,), "sampling": "uniform", "seed": 3},
        {"nu": (0.1, 0.3), "one_class": True, "positive": "1"},
    ],
    ids=["linear", "kernel", "one class"],
)
def test_page_search_states_the_whole_command_for_the_best_settings(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    """It trains a model with the settings of the search, but to the usual tolerance."""
    monkeypatch.chdir(tmp_path)
    best = tune(TuneJob(str(place / "s.zarr"), "grid", folds=2, **options)).best
    found = read_run(tmp_path / "grid").search
    assert found is not None
    assert found.best_command in html.unescape(build_page([read_run(tmp_path / "grid")]))
    words = shlex.split(found.best_command)
    assert words[:2] == ["streamsvm", "fit"]
    assert CliRunner().invoke(cli, words[1:]).exit_code == 0
    job = json.loads((tmp_path / "model.ssvm.run" / "job.json").read_text())
    known = {"C": best.C, "nu": best.nu, "landmarks": best.landmarks, "tolerance": 1e-3}
    known |= {name: value for name, value in options.items() if name not in (*known, "gamma", "report")}
    assert {name: job[name] for name in known} == known
    assert best.gamma is None or job["gamma"] == best.gamma
    assert not (tmp_path / "g.html").exists() or job["report"] is None


@pytest.mark.parametrize("positive", [None, "a"])
def test_page_search_for_one_class_against_the_rest_has_no_baseline_of_the_store(
    tmp_path: Path, positive: str | None
) -> None:
    """The most frequent class of the store is no answer of a model of one class against the rest."""
    rng = np.random.default_rng(0)
    y = np.array(["a", "b", "b", "c"])[np.arange(800) % 4]
    sv.ingest(rng.normal(size=(800, 2)) + (y == "b")[:, None], tmp_path / "s.zarr", y=y, chunk=4096)
    sv.tune(tmp_path / "s.zarr", tmp_path / "g", C=(1e-7, 1.0), folds=2, positive=positive, report=tmp_path / "g.html")
    assert ("always" in seen_text(tmp_path / "g.html")) == (positive is None)


@pytest.mark.parametrize("names", [("fraud", "non-fraud"), ("fraud", "in-doubt", "non-fraud")], ids=["two", "three"])
def test_page_names_of_classes_keep_their_hyphens(tmp_path: Path, names: tuple[str, ...]) -> None:
    y = np.array(names)[np.arange(600) % len(names)]
    X = np.random.default_rng(0).normal(size=(600, 3)) - 2.0 * (y == "fraud")[:, None]
    sv.ingest(X, tmp_path / "s.zarr", y=y)
    sv.fit(tmp_path / "s.zarr", tmp_path / "m")
    sv.evaluate(tmp_path / "m", tmp_path / "s.zarr")
    page = build_page([read_run(tmp_path / "m")])
    assert "non-fraud" in page
    assert "non−fraud" not in page


def test_page_several_runs_are_compared(place: Path, tmp_path: Path) -> None:
    fit(FitJob(str(place / "s.zarr"), str(tmp_path / "b.ssvm"), C=3.0, solver="dcd", max_passes=2))
    report(ReportJob((str(place / "m.ssvm"), str(tmp_path / "b.ssvm")), str(tmp_path / "c.html")))
    found = seen(tmp_path / "c.html")
    parts = ["quality", "curves", "columns", "training", "settings"]
    assert [part for part in found.headings if part != "content"] == parts
    assert "1 of 2 runs are certified" in found.text
    assert "none is marked as the best" in found.text
    assert "max_passes" in found.text
    evaluate(EvaluateJob(str(tmp_path / "b.ssvm"), (str(place / "s.test.zarr"),)))
    records = [read_run(tmp_path / "b.ssvm").evaluation, read_run(place / "m.ssvm").evaluation]
    best = max(one.AUC or 0.0 for one in records if one is not None)
    report(ReportJob((str(place / "m.ssvm"), str(tmp_path / "b.ssvm")), str(tmp_path / "c.html"), overwrite=True))
    page = (tmp_path / "c.html").read_text()
    assert f"Its AUC is {best:.4f}" in page
    assert f'<td class="best">{best:.4f}</td>' in page
    assert page.count("<figcaption>ROC</figcaption>") == 1


def test_page_run_that_is_not_certified_says_what_to_do(place: Path, tmp_path: Path) -> None:
    job = FitJob(str(place / "s.zarr"), str(tmp_path / "u.ssvm"), solver="dcd", max_passes=1, tolerance=1e-9)
    fit(job)
    report(ReportJob((str(tmp_path / "u.ssvm"),), str(tmp_path / "u.html")))
    text = seen(tmp_path / "u.html").text
    assert "Not certified: no useful bound on the distance from the optimum" in text
    assert "a larger --max-passes" in text


def test_page_run_that_was_cut_short_has_a_page(place: Path, tmp_path: Path) -> None:
    folder = tmp_path / "k.ssvm.run"
    folder.mkdir()
    lines = (place / "m.ssvm.run" / "events.jsonl").read_text().splitlines(keepends=True)
    kept = [line for line in lines if '"event": "done"' not in line]
    (folder / "certificate.json").write_bytes((place / "m.ssvm.run" / "certificate.json").read_bytes())
    (folder / "events.jsonl").write_text("".join(kept) + '{"event": "pass", "pass"')
    report(ReportJob((str(tmp_path / "k.ssvm"),), str(tmp_path / "k.html")))
    assert "under way, or was killed" in seen(tmp_path / "k.html").text
    stopped = {"event": "stopped", "code": "E-NOSPACE", "message": "no room", "hint": "free space"}
    (folder / "events.jsonl").write_text("".join(kept) + json.dumps(stopped) + "\n")
    text = seen_text(report_on(tmp_path / "k.ssvm", tmp_path / "k2.html"))
    assert "Not finished. no room" in text
    assert "free space" in text
    stopped = {
        "event": "stopped",
        "code": "E-INTERRUPTED",
        "message": "SIGTERM: saved (0.1 s). Resume: streamsvm fit s m",
    }
    (folder / "events.jsonl").write_text("".join(kept) + json.dumps(stopped) + "\n")
    page = report_on(tmp_path / "k.ssvm", tmp_path / "k3.html").read_text()
    assert "SIGTERM: saved (0.1 s). After" in page
    assert "<code>streamsvm fit s m</code>" in page


def report_on(run: Path, out: Path) -> Path:
    """The page of a run."""
    report(ReportJob((str(run),), str(out)))
    return out


def seen_text(page: Path) -> str:
    """The text of a page."""
    return seen(page).text


def test_page_run_that_was_resumed_counts_its_seconds_on(place: Path, tmp_path: Path) -> None:
    folder = tmp_path / "r.ssvm.run"
    folder.mkdir()
    plan = {"event": "plan"}
    first = {"event": "pass", "pass": 1, "primal": 2.0, "dual": 1.0, "gap": 0.5, "seconds": 4.0, "memory": 1}
    events = [
        {"event": "began", "at": "", "command": "", "resumed": False},
        first | {"pass": 9},
        {"event": "began", "at": "", "command": "", "resumed": False},
        plan,
        first,
        {"event": "stopped", "code": "E-INTERRUPTED", "message": "stopped"},
        {"event": "began", "at": "", "command": "again", "resumed": True},
        plan,
        first | {"pass": 2, "seconds": 1.5},
    ]
    (folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    found = read_run(folder)
    assert [(one.number, one.seconds) for one in found.passes] == [(1, 4.0), (2, 5.5)]
    assert found.stopped is None


def test_page_hostile_names_are_harmless(place: Path, tmp_path: Path) -> None:
    folder = tmp_path / "h.ssvm.run"
    folder.mkdir()
    for file in (place / "m.ssvm.run").glob("*.json*"):
        (folder / file.name).write_text(_poisoned(file.read_text()))
    found = seen(report_on(tmp_path / "h.ssvm", tmp_path / "h.html"))
    assert len(found.headings) >= 7
    assert "<script>alert(1)" in found.text
    assert "\\x1b" in found.text
    assert "\\u202e" in found.text


def _poisoned(text: str) -> str:
    """A file of a run in which every name that is free is hostile."""

    def changed(value: object, key: str = "") -> object:
        if isinstance(value, dict):
            names = {"shares", "counts"}
            return {(HOSTILE + k if key in names else k): changed(v, k) for k, v in value.items()}
        if isinstance(value, list):
            return [changed(item, key) for item in value]
        free = isinstance(value, str) and key not in ("event", "status", "at", "code")
        return HOSTILE + str(value) if free else value

    return "".join(json.dumps(changed(json.loads(line))) + "\n" for line in _documents(text))


def _documents(text: str) -> list[str]:
    try:
        json.loads(text)
    except ValueError:
        return text.splitlines()
    return [text]


def copied_run(place: Path, target: Path) -> Path:
    """The JSON files of the run of ``place``, as those of another model."""
    target.mkdir()
    for file in (place / "m.ssvm.run").glob("*.json*"):
        (target / file.name).write_bytes(file.read_bytes())
    return target


@each_value(
    ("content", ["", "[]", "[1]", "{" * 100_000, "\x00\xff", "3"]),
    ("name", ["certificate.json", "record.json", "evaluation.json", "plan.json", "job.json"]),
)
def test_page_file_that_is_damaged_is_left_out(place: Path, tmp_path: Path, name: str, content: str) -> None:
    folder = copied_run(place, tmp_path / "d.ssvm.run")
    (folder / name).write_text(content, encoding="latin-1")
    assert name in seen(report_on(tmp_path / "d.ssvm", tmp_path / "d.html")).text


@pytest.mark.parametrize("name", ["rows", "shares"])
def test_page_figures_of_a_record_that_do_not_fit_together_are_left_out(place: Path, tmp_path: Path, name: str) -> None:
    """Parts of the store without shares of the classes, and shares of other parts."""
    folder = copied_run(place, tmp_path / "d.ssvm.run")
    record = json.loads((folder / "record.json").read_text())
    drift = {"rows": [10.0, 20.0], "shares": {"a": [0.5, 0.5]}}
    record["label_drift"] = drift | {"shares": {"a": []}} if name == "shares" else drift | {"rows": [1.0, 2.0, 3.0]}
    (folder / "record.json").write_text(json.dumps(record))
    assert "record.json" in seen(report_on(tmp_path / "d.ssvm", tmp_path / "d.html")).text


def test_page_of_a_record_whose_classes_are_no_names_is_drawn(place: Path, tmp_path: Path) -> None:
    folder = copied_run(place, tmp_path / "d.ssvm.run")
    record = json.loads((folder / "record.json").read_text())
    record["model"]["classes"] = [["a"], 3]
    (folder / "record.json").write_text(json.dumps(record))
    assert "Margins" in seen(report_on(tmp_path / "d.ssvm", tmp_path / "d.html")).text


def test_page_what_is_no_run_is_refused(place: Path, tmp_path: Path) -> None:
    with pytest.raises(MissingError):
        report(ReportJob((str(tmp_path / "none.ssvm"),), str(tmp_path / "p.html")))
    with pytest.raises(DataError, match="holds no record of a run"):
        report(ReportJob((str(place / "s.zarr"),), str(tmp_path / "p.html")))
    with pytest.raises(UsageError, match="no run"):
        report(ReportJob((), str(tmp_path / "p.html")))


def test_page_replaces_only_a_page(place: Path, tmp_path: Path) -> None:
    out = tmp_path / "mine.html"
    out.write_text("<!doctype html>\n<p>mine")
    with pytest.raises(ExistsError, match="is not the page of a run"):
        report(ReportJob((str(place / "m.ssvm"),), str(out), overwrite=True))
    page = report_on(place / "m.ssvm", tmp_path / "p.html")
    with pytest.raises(ExistsError, match="exists already"):
        report_on(place / "m.ssvm", page)
    report(ReportJob((str(place / "m.ssvm"),), str(page), overwrite=True))


def test_page_of_a_regression_shows_its_errors(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 4))
    target = X @ [1.0, 2.0, 0.0, -1.0] + 50.0 + 0.1 * rng.normal(size=600)
    sv.ingest(X, tmp_path / "n.zarr", y=target, task="regression", test_fraction=0.2, chunk=4096)
    sv.fit(tmp_path / "n.zarr", tmp_path / "n", loss="squared", C=10, validation=0.2)
    found = sv.evaluate(tmp_path / "n", tmp_path / "n.test.zarr").evaluation
    sv.report(str(tmp_path / "n"), tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "left out" not in page
    for text in (f"{found.RMSE:.5g}", f"{found.MAE:.5g}", "test RMSE", "Held-out RMSE", "Residuals", "always the mean"):
        assert text in page
    assert "held-out error" not in page
    assert "y f(x)" not in page
    assert "Predicted over true" in page
    assert page.count('class="cloud') == found.rows
    sv.report([str(tmp_path / "n")] * 2, tmp_path / "two.html")
    assert f">{found.RMSE:.4g}</td>" in (tmp_path / "two.html").read_text()


@pytest.mark.parametrize("options", [{}, {"one_class": True, "positive": "bad", "nu": 0.2}], ids=["two", "one class"])
def test_page_class_has_one_color(tmp_path: Path, options: dict[str, Any]) -> None:
    """In the margins of the evaluated rows and of the training rows, and in the shares along the store."""
    rng = np.random.default_rng(0)
    y = np.where(np.arange(800) % 4 > 0, "bad", "good")
    X = rng.normal(size=(800, 2)) + 5.0 + (y == "good")[:, None]
    sv.ingest(X, tmp_path / "s.zarr", y=y, chunk=4096)
    few = np.arange(800) % 16 < 8
    sv.ingest(X[few][y[few] == "good"][:60], tmp_path / "t.zarr", y=np.repeat(["good", "bad"], [50, 10]))
    sv.fit(tmp_path / "s.zarr", tmp_path / "m", **options)
    sv.evaluate(tmp_path / "m", tmp_path / "t.zarr")
    sv.report(str(tmp_path / "m"), tmp_path / "page.html")
    legends = re.findall(r'b(\d)"></i>(bad|good)<', (tmp_path / "page.html").read_text())
    assert len(legends) == 6
    assert len(set(legends)) == 2


def test_page_margins_of_pairs_are_those_of_their_votes(tmp_path: Path) -> None:
    """Of well separated classes no row is wrong, in the margins of the training rows and in those of the evaluated ones."""
    names = np.array(["a", "b", "c", "d"])
    y = names[np.arange(800) % 4]
    X = np.random.default_rng(0).normal(size=(800, 4)) + 12.0 * np.eye(4)[np.arange(800) % 4]
    sv.ingest(X, tmp_path / "s.zarr", y=y, chunk=4096, test_fraction=0.25)
    sv.fit(tmp_path / "s.zarr", tmp_path / "m", multi_class="ovo")
    assert sv.evaluate(tmp_path / "m", tmp_path / "s.test.zarr").evaluation.accuracy == 1.0
    run = read_run(tmp_path / "m")
    assert run.facts is not None
    assert run.evaluation is not None
    for found in (run.facts.margins, run.evaluation.margins):
        assert found is not None
        low, high = found.range
        edges = np.linspace(low, high, len(found.counts["a"]) + 1)
        assert sum(sum(np.array(counts)[edges[1:] <= 0]) for counts in found.counts.values()) == 0
    assert run.facts.margins is not None
    assert not run.facts.margins.loss
    page = build_page([run])
    assert "how many more votes of pairs the true class has than any other" in page


def test_page_what_matters_is_said_of_the_columns_of_the_table(tmp_path: Path) -> None:
    """The share of a column is that of the standard deviation of what all of its values add to f, over the rows."""
    rng = np.random.default_rng(0)
    city, age = rng.choice(["Bern", "Oslo", "Rome"], 600), rng.normal(40.0, 10.0, 600)
    y = np.where(age / 10 + 2.0 * (city == "Rome") + rng.normal(size=600) > 5, "yes", "no")
    lines = [
        f"{'' if k % 9 == 0 else round(a, 2)},{c},{t}" for k, (a, c, t) in enumerate(zip(age, city, y, strict=True))
    ]
    table = tmp_path / "t.csv"
    table.write_text("\n".join(["age,city,bought", *lines]) + "\n")
    sv.ingest(table, tmp_path / "s.zarr", label="bought", categorical=["city"], missing="indicator")
    model = sv.fit(tmp_path / "s.zarr", tmp_path / "m", standardize=True).model
    explained = model.explain(table)
    added = {"age": ("age", "age missing"), "city": ("city=Bern", "city=Oslo", "city=Rome")}
    assert explained.contributions is not None
    effects = {
        name: explained.contributions[:, 0, [explained.names.index(one) for one in columns]].sum(axis=1).std()
        for name, columns in added.items()
    }
    facts = read_run(tmp_path / "m").facts
    assert facts is not None
    shares = {one.name: one.share for one in facts.columns}
    assert shares == pytest.approx({name: effect / sum(effects.values()) for name, effect in effects.items()}, rel=1e-4)
    sv.report(str(tmp_path / "m"), tmp_path / "page.html")
    text = seen(tmp_path / "page.html").text
    assert "What matters" in text
    assert "one standard deviation more" in text
    assert "Rome" in text


def shifted_table(path: Path, rows: int, shift: float, seed: int) -> tuple[list[str], list[float]]:
    """Write a table of a number, a category and ids; return the labels and the numbers."""
    rng = np.random.default_rng(seed)
    age, city = rng.normal(40.0 + shift, 10.0, rows).round(2), rng.choice(["Bern", "Oslo"], rows)
    y = np.where(age + 10.0 * (city == "Oslo") + rng.normal(0.0, 8.0, rows) > 45 + shift, "yes", "no").tolist()
    lines = [f"r{k},{a},{c},{t}" for k, (a, c, t) in enumerate(zip(age, city, y, strict=True))]
    path.write_text("\n".join(["name,age,city,bought", *lines]) + "\n")
    return y, age.tolist()


def test_page_shows_the_rows_with_the_worst_errors_and_columns_that_have_drifted(tmp_path: Path) -> None:
    """The same from a store on several threads and from a file: the rows furthest on the wrong side, by their ids."""
    shifted_table(tmp_path / "a.csv", 3000, 0.0, 0)
    y, _ = shifted_table(tmp_path / "b.csv", 2000, 5.0, 1)
    options: dict[str, Any] = {"label": "bought", "id": "name", "categorical": ["city"], "chunk": 4096}
    for name in "ab":
        sv.ingest(tmp_path / f"{name}.csv", tmp_path / f"{name}.zarr", **options)
    model = sv.fit(tmp_path / "a.zarr", tmp_path / "m", standardize=True).model
    f = model.decision_function(tmp_path / "b.csv")
    margins = np.where(np.array(y) == "yes", f, -f)
    expected = [f"r{k}" for k in np.argsort(margins, kind="stable")[:12]]
    lines = (tmp_path / "b.csv").read_text().splitlines(keepends=True)
    for name, part in (("b1.csv", lines[:900]), ("b2.csv", lines[:1] + lines[900:])):
        (tmp_path / name).write_text("".join(part))
    for data in (["b.zarr"], ["b.csv"], ["b1.csv", "b2.csv"]):
        sv.evaluate(tmp_path / "m", [tmp_path / name for name in data], threads=2)
        found = read_run(tmp_path / "m").evaluation
        assert found is not None
        assert [one.id for one in found.worst] == expected
        assert [f"r{one.row}" for one in found.worst] == expected
        assert [one.name for one in found.drift if one.is_notable] == ["age"]
        assert found.drift[0].difference == pytest.approx(0.5, abs=0.1)
    sv.report(str(tmp_path / "m"), tmp_path / "page.html")
    text = seen(tmp_path / "page.html").text
    assert "Worst errors" in text
    assert "differ from the training rows in 1 of 2 columns" in text
    assert f"{expected[0]}" in text


def edit_json(path: Path, **values: object) -> None:
    """Give fields of a JSON file other values; None removes one."""
    content = json.loads(path.read_text()) | values
    path.write_text(json.dumps({name: value for name, value in content.items() if value is not None}))


def test_page_model_that_held_out_rows_chose_is_no_failure(place: Path, tmp_path: Path) -> None:
    """The interval of the pass that was kept is proven, and wider than asked for: by a choice of the tool."""
    folder = copied_run(place, tmp_path / "k.ssvm.run")
    edit_json(folder / "certificate.json", gap=0.4, passes=9, validation={"C": 1.0, "error": 0.2, "pass": 3})
    page = report_on(tmp_path / "k.ssvm", tmp_path / "k.html")
    text = seen(page).text.replace("\u00a0", " ")
    assert "Chosen on held-out rows: pass 3 of 9, within 40 % of the optimum." in text
    assert "verdict open" not in page.read_text().partition("<body>")[2]
    assert "Not certified" not in text


def test_page_record_without_what_later_versions_record_is_drawn(place: Path, tmp_path: Path) -> None:
    folder = copied_run(place, tmp_path / "o.ssvm.run")
    edit_json(folder / "record.json", columns=None, compile_seconds=None)
    edit_json(folder / "evaluation.json", worst=None, drift=None, thresholds=None)
    found = seen(report_on(tmp_path / "o.ssvm", tmp_path / "o.html"))
    parts = ["evaluation", "margins", "columns", "data", "training", "provenance"]
    assert [part for part in found.headings if part != "content"] == parts
    assert "left out" not in found.text


def test_page_that_is_no_better_than_the_most_frequent_class_says_so(place: Path, tmp_path: Path) -> None:
    folder = copied_run(place, tmp_path / "u.ssvm.run")
    evaluation = json.loads((folder / "evaluation.json").read_text())
    rows = [sum(row) for row in evaluation["confusion"]]
    share = max(rows) / sum(rows)
    confusion = [[n, 0] if rows[0] == max(rows) else [0, n] for n in rows]
    edit_json(folder / "evaluation.json", accuracy=share, balanced_accuracy=0.5, confusion=confusion)
    page = report_on(tmp_path / "u.ssvm", tmp_path / "u.html")
    assert "That is no better than always" in seen(page).text
    assert 'class="verdict mild"' in page.read_text()
