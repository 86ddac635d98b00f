"""Job files and what can be written in them."""

from __future__ import annotations

import math
from dataclasses import MISSING, fields
from pathlib import Path

import pytest

from streamsvm.config import job_file, units
from streamsvm.config.fields import Field, fields_of, parse
from streamsvm.errors import ConfigError, MissingError, UsageError

CONFIGS = sorted((Path(__file__).parent.parent / "configs").glob("*.toml"))


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("512MiB", 512 << 20),
        ("1GiB", 1 << 30),
        ("300MB", 300_000_000),
        ("1.5kB", 1500),
        ("4096", 4096),
        ("2 KiB", 2048),
    ],
)
def test_sizes(text: str, nbytes: int) -> None:
    assert units.parse_size(text) == nbytes


@pytest.mark.parametrize("text", ["", "much", "12XB", "-1GiB", "0", "1e9GiB", "nan", "4 4", "٤MiB"])
def test_what_is_no_size_is_refused_with_the_valid_forms(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        units.parse_size(text)
    assert "512MiB" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("30m", 1800), ("1h", 3600), ("1h30m", 5400), ("2d", 172800), ("7.5", 7.5)]
)
def test_durations(text: str, seconds: float) -> None:
    assert units.parse_duration(text) == seconds


def test_a_duration_can_be_unlimited() -> None:
    assert units.parse_duration("inf") == math.inf


@pytest.mark.parametrize("text", ["", "1x", "h", "1h30", "-5s", "1h foo"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        units.parse_duration(text)


def test_counts_are_exact() -> None:
    assert units.parse_count("5e6") == 5_000_000
    assert units.parse_count("1_000_000") == 1_000_000
    assert units.parse_count("9007199254740993") == 9007199254740993
    for text in ("1.5", "many", "inf", "nan", "1__0"):
        with pytest.raises(UsageError):
            units.parse_count(text)


@pytest.mark.parametrize(
    ("annotation", "text", "value"),
    [
        ("float | None", "1e-3", 1e-3),
        ("tuple[str, ...]", "a,b", ("a", "b")),
        ("tuple[str, ...]", "a", ("a",)),
        ("float | tuple[float, ...]", "2", 2.0),
        ("float | tuple[float, ...]", "1,10", (1.0, 10.0)),
        ("str | float", "scale", "scale"),
        ("str | float", "0.5", 0.5),
        ("str | dict[str, float] | None", "balanced", "balanced"),
        ("str | dict[str, float] | None", "a=2,b=0.5", {"a": 2.0, "b": 0.5}),
        ("bool", "true", True),
        ("str | None", "7", "7"),
    ],
)
def test_a_value_follows_its_annotation(annotation: str, text: str, value: object) -> None:
    assert parse(Field("x", annotation, None, ""), text) == value


def test_a_number_is_asked_for_where_one_is_needed() -> None:
    with pytest.raises(UsageError, match="not a number"):
        parse(Field("C", "float | None", None, ""), "ten")
    with pytest.raises(UsageError, match="NAME=NUMBER"):
        parse(Field("class_weight", "dict[str, float]", None, ""), "a=1,b")


@pytest.mark.parametrize("step", job_file.STEPS)
def test_the_source_says_what_the_class_is(step: str) -> None:
    """Options are made of the source of a job; it must say the same as the class."""
    declared = fields_of(job_file.STEPS[step].job)
    actual = fields(job_file.load(job_file.STEPS[step].job))
    assert [f.name for f in declared] == [f.name for f in actual]
    for found, field in zip(declared, actual, strict=True):
        required = field.default is MISSING and field.default_factory is MISSING
        assert (found.default is None) == required
        assert found.annotation == field.type


@pytest.mark.parametrize("path", CONFIGS, ids=lambda p: p.stem)
def test_every_worked_job_file_makes_jobs(path: Path) -> None:
    steps = job_file.read_file(path)
    assert len(job_file.check(steps, str(path))) == len(steps) > 0


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "job.toml"
    path.write_text(text)
    return path


def test_keys_are_fields_or_the_names_of_options(tmp_path: Path) -> None:
    text = '[fit]\nstore = "a"\nmodel = "b"\nlambda = 1e-3\nmemory = "300MB"\ntime-limit = "1h"\noptions.sweeps = 5\n'
    [job] = job_file.check(job_file.read_file(written(tmp_path, text)), "job.toml")
    assert (job.lambda_, job.memory, job.time_limit, job.options) == (1e-3, 300_000_000, 3600.0, {"sweeps": 5})


def test_steps_keep_their_order_and_can_repeat(tmp_path: Path) -> None:
    text = '[[fit]]\nstore="a"\nmodel="1"\n[[fit]]\nstore="a"\nmodel="2"\n[evaluate]\nmodel="2"\ndata="a"\n'
    steps = job_file.read_file(written(tmp_path, text))
    assert [name for name, _ in steps] == ["fit", "fit", "evaluate"]
    assert steps[2][1]["data"] == ("a",)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[fit]\nstroe = 'a'\n", "did you mean 'store'"),
        ("[fitt]\n", "did you mean 'fit'"),
        ("[fit]\nstore = 'a'\nmodel = 'b'\nmemory = '12XB'\n", "memory"),
        ("fit = 3\n", "not a table"),
        ("[fit\n", "not TOML"),
    ],
)
def test_a_mistake_is_named_with_its_place(tmp_path: Path, text: str, said: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ConfigError, match=said) as caught:
        job_file.read_file(path)
    assert str(path) in caught.value.message
    assert caught.value.exit_code == 78


@pytest.mark.parametrize(
    ("text", "said"),
    [("[fit]\nstore = 'a'\n", "'model' is missing"), ("[fit]\nstore='a'\nmodel='b'\nC=['a']\n", r"\$\.C")],
)
def test_a_wrong_value_is_named_with_its_place(tmp_path: Path, text: str, said: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ConfigError, match=said):
        job_file.check(job_file.read_file(path), str(path))


def test_a_missing_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(MissingError):
        job_file.read_file(tmp_path / "none.toml")


def test_set_overrides_fields_and_settings() -> None:
    values: dict[str, object] = {"options": {"sweeps": 1, "other": 2}}
    job_file.override("fit", values, ["C=10", "fit.loss=hinge", "solver.sweeps=5", "loss.mu=0.5", "lambda=0.1"])
    assert values == {
        "C": 10.0,
        "loss": "hinge",
        "options": {"sweeps": 5, "other": 2},
        "loss_options": {"mu": 0.5},
        "lambda_": 0.1,
    }


@pytest.mark.parametrize("setting", ["C", "=3", "color=red", "fit.color=red", "paint.color=red"])
def test_a_setting_nobody_has_is_refused(setting: str) -> None:
    with pytest.raises((UsageError, ConfigError)):
        job_file.override("fit", {}, [setting])


def test_set_on_a_file_reaches_the_step_it_names() -> None:
    steps: list[tuple[str, dict[str, object]]] = [("synth", {}), ("fit", {})]
    job_file.apply_settings(steps, ["fit.C=3", "synth.rows=1e3", "solver.sweeps=2"])
    assert steps == [("synth", {"rows": 1000}), ("fit", {"C": 3.0, "options": {"sweeps": 2}})]
    with pytest.raises(UsageError, match="names no step"):
        job_file.apply_settings(steps, ["evaluate.model=x"])
