"""Job files and what can be written in them."""

from __future__ import annotations

import math
import re
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamsvm.config import options as checks
from streamsvm.config import units
from streamsvm.config.command_table import STEPS, make_job
from streamsvm.config.job_files import apply_settings, apply_settings_to_file, make_jobs, read_job_file
from streamsvm.config.options import GROUPS, Field, Option, Quantity, options_of, parse
from streamsvm.config.options import format_value as value_text
from streamsvm.errors import ConfigError, UsageError
from streamsvm.jobs.fit.options import FitJob
from streamsvm.registry import load

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
def test_config_reads_sizes(text: str, nbytes: int) -> None:
    assert units.parse_size(text) == nbytes


@pytest.mark.parametrize("text", ["", "much", "12XB", "-1GiB", "0", "1e9GiB", "nan", "4 4", "٤MiB"])
def test_config_what_is_no_size_is_refused_with_the_valid_forms(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        units.parse_size(text)
    assert "512MiB" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("30m", 1800), ("1h", 3600), ("1h30m", 5400), ("2d", 172800), ("7.5", 7.5)]
)
def test_config_reads_durations(text: str, seconds: float) -> None:
    assert units.parse_duration(text) == seconds


def test_config_duration_can_be_unlimited() -> None:
    assert units.parse_duration("inf") == math.inf


@pytest.mark.parametrize("text", ["", "1x", "h", "1h30", "-5s", "1h foo"])
def test_config_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        units.parse_duration(text)


def field_of(*kinds: object) -> Field:
    """A field of such a type."""
    return Field("x", kinds, MISSING, Option("help"))


@pytest.mark.parametrize(
    ("kinds", "text", "value"),
    [
        ((float,), "1e-3", 1e-3),
        ((tuple[str, ...],), "a,b", ("a", "b")),
        ((tuple[str, ...],), "a", ("a",)),
        ((float, tuple[float, ...]), "2", 2.0),
        ((float, tuple[float, ...]), "1,10", (1.0, 10.0)),
        ((tuple[float | str, ...],), "0.1,scale", (0.1, "scale")),
        ((str, float), "scale", "scale"),
        ((str, float), "0.5", 0.5),
        ((str, dict[str, float]), "balanced", "balanced"),
        ((str, dict[str, float]), "a=2,b=0.5", {"a": 2.0, "b": 0.5}),
        ((bool,), "true", True),
        ((str,), "7", "7"),
    ],
)
def test_config_value_follows_its_type(kinds: tuple[object, ...], text: str, value: object) -> None:
    assert parse(field_of(*kinds), text) == value


TABLES = (
    "streamsvm.solvers:SOLVERS",
    "streamsvm.losses:LOSSES",
    "streamsvm.kernels:KERNELS",
    "streamsvm.store.generators:GENERATORS",
)
SETTINGS = [f"{table}:{name}" for table in TABLES for name in load(table)]


def test_config_every_field_of_a_job_is_declared() -> None:
    for step in STEPS:
        job = load(STEPS[step].job)
        options = {option.name: option for option in options_of(job)}
        assert list(options) == [f.name for f in fields(job)]
        for field in fields(job):
            option = options[field.name]
            assert option.required == (field.default is MISSING and field.default_factory is MISSING)
            assert option.option.help.endswith(".")
            assert not option.option.group or option.option.group in GROUPS


def test_config_every_setting_of_what_can_be_chosen_is_declared() -> None:
    for setting in SETTINGS:
        module, table, name = setting.split(":")
        kind = load(f"{module}:{table}")[name]
        names = list(kind._fields) if hasattr(kind, "_fields") else [f.name for f in fields(kind)]
        names = [field for field in names if table != "GENERATORS" or field not in ("rows", "seed")]
        assert [option.name for option in options_of(kind)] == names
        for option in options_of(kind):
            assert option.option.help.endswith(".")
            number = {int, float} & set(option.kinds)
            assert (option.option.bounds is not None) == bool(number), f"{name}.{option.name}: numbers have a range"


def test_config_default_is_in_its_range_and_can_be_written() -> None:
    """What the help calls the default is read back as the default."""
    for setting in [*STEPS, *SETTINGS]:
        module, _, rest = setting.partition(":")
        table, _, name = rest.partition(":")
        kind = load(f"{module}:{table}")[name] if rest else load(STEPS[setting].job)
        for option in options_of(kind):
            if option.required or option.is_switch or option.option.settings_of:
                continue
            checks.check_value(option, option.default, option.name)
            if written := value_text(option.option.unit, option.default):
                assert parse(option, written) == option.default


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("step", "values", "said"),
    [
        ("fit", {"tolerance": NAN}, "--tolerance cannot be nan"),
        ("fit", {"tolerance": -1e-3}, "--tolerance cannot be -0.001"),
        ("fit", {"bias": INF}, "--bias cannot be inf"),
        ("fit", {"C": (1.0, 0.0)}, "--C cannot be 0.0"),
        ("fit", {"cutoff": 1.0}, "--cutoff cannot be 1.0"),
        ("fit", {"max_passes": 0}, "--max-passes cannot be 0"),
        ("fit", {"landmarks": 0}, "--landmarks cannot be 0"),
        ("fit", {"threads": 10**300}, "--threads cannot be 1"),
        ("fit", {"sampling": "leverrage"}, "did you mean 'leverage'"),
        ("fit", {"solver": "dcb"}, "did you mean 'dcd'"),
        ("fit", {"class_weight": {"1": -1.0}}, "--class-weight cannot be -1.0"),
        ("fit", {"class_weight": {"1": INF}}, "--class-weight cannot be inf"),
        ("fit", {"time_limit": NAN}, "--time-limit cannot be nan"),
        ("fit", {"at_limit": "halt"}, "--at-limit cannot be 'halt'"),
        ("tune", {"folds": 1}, "--folds cannot be 1"),
        ("tune", {"folds": 1 << 53}, "--folds cannot be 9"),  # of which lists were made
        ("fit", {"calibrate": "sigmoid", "calibration_folds": 1 << 53}, "--calibration-folds cannot be 9"),
        ("embed", {"dtype": "float8"}, "--dtype cannot be 'float8'"),
        ("synth", {"test_fraction": 1.0}, "--test-fraction cannot be 1.0"),
        ("ingest", {"chunk_bytes": 60}, "--chunk cannot be 60"),
        ("ingest", {"hash_bits": 40}, "--hash cannot be 40"),
        ("ingest", {"missing": "median"}, "--missing cannot be 'median'"),
        ("predict", {"output": "score"}, "--output cannot be 'score'"),
    ],
)
def test_config_what_is_out_of_range_is_refused_by_name_whoever_asks(
    step: str, values: dict[str, Any], said: str, tmp_path: Path
) -> None:
    """In a program, and from names and values, which is how the command line and job files make their jobs."""
    out = str(tmp_path / "out.csv")
    given: dict[str, Any] = {option.name: out for option in STEPS[step].fields if option.required}
    given |= {"sources": (Path("a.csv"),)} if step == "ingest" else {}
    given |= {"data": ("a.csv",)} if step == "predict" else {}
    given |= {"name": "susy"} if step == "synth" else {}
    job = load(STEPS[step].job)
    job(**given)
    with pytest.raises(UsageError, match=re.escape(said)):
        job(**given, **values)
    with pytest.raises(UsageError, match=re.escape(said)):
        make_job(step, {**given, **values})


@pytest.mark.parametrize(
    ("table", "name", "settings", "said"),
    [
        ("streamsvm.solvers:SOLVERS", "dcd", {"sweeps": -3}, "sweeps cannot be -3"),
        ("streamsvm.solvers:SOLVERS", "fw", {"step": "opne"}, "did you mean 'open'"),
        ("streamsvm.solvers:SOLVERS", "pegasos", {"batch": 0}, "batch cannot be 0"),
        ("streamsvm.solvers:SOLVERS", "sgd", {"multiplicity": 0}, "multiplicity cannot be 0"),
        ("streamsvm.solvers:SOLVERS", "assg", {"omega": 0.0}, "omega cannot be 0.0"),
        ("streamsvm.solvers:SOLVERS", "newton", {"narrowing": NAN}, "narrowing cannot be nan"),
        ("streamsvm.losses:LOSSES", "huber", {"mu": 0}, "mu cannot be 0.0"),
        ("streamsvm.losses:LOSSES", "hinge", {"margin": NAN}, "margin cannot be nan"),
        ("streamsvm.losses:LOSSES", "squared_hinge", {"margin": -1}, "margin cannot be -1.0"),
        ("streamsvm.kernels:KERNELS", "polynomial", {"degree": 0}, "degree cannot be 0.0"),
    ],
)
def test_config_settings_out_of_range_are_refused_by_name(
    table: str, name: str, settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(UsageError, match=re.escape(said)):
        checks.build_from_settings(load(table)[name], settings, name)


def test_config_range_stands_for_numbers_with_equal_ratios(tmp_path: Path) -> None:
    """On the command line, in job files, and to the six digits by which a model is named."""
    C = {field.name: field for field in checks.options_of(FitJob)}["C"]
    assert checks.parse(C, "1e-3:1e3:7") == (0.001, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)
    assert checks.parse(C, "1:2:3,5") == (1.0, 1.41421, 2.0, 5.0)
    assert checks.parse_toml(C, "1:4:3") == (1.0, 2.0, 4.0)
    for wrong in ("0:1:3", "1:2:1", "1:inf:3", "1:2:x"):
        with pytest.raises(UsageError, match="is not A:B:N"):
            checks.parse(C, wrong)


def test_config_settings_are_written_like_options() -> None:
    made = checks.build_from_settings(
        load("streamsvm.solvers:SOLVERS")["fw"], {"cache": "1MiB", "iterations": 1e4}, "fw"
    )
    assert (made.cache, made.iterations) == (1 << 20, 10_000)


@pytest.mark.parametrize(
    ("unit", "value", "text"),
    [
        (Quantity.BYTES, 4 << 20, "4MiB"),
        (Quantity.BYTES, 1000, "1000"),
        (Quantity.SECONDS, 60.0, "1m"),
        (Quantity.SECONDS, 0.0, "0"),
        (None, 1e-6, "1e-6"),
        (None, 0.001, "1e-3"),
        (None, 0.24, "0.24"),
        (None, 1000, "1000"),
        (None, 2.5e-5, "2.5e-5"),
        (None, (0.1, "scale"), "0.1,scale"),
    ],
)
def test_config_values_as_people_write_them(unit: Quantity | None, value: object, text: str) -> None:
    assert value_text(unit, value) == text


@pytest.mark.parametrize("path", CONFIGS, ids=lambda p: p.stem)
def test_config_every_worked_job_file_makes_jobs(path: Path) -> None:
    steps = read_job_file(path)
    assert len(make_jobs(steps, str(path))) == len(steps) > 0


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "job.toml"
    path.write_text(text)
    return path


def test_config_keys_are_fields_or_the_names_of_options(tmp_path: Path) -> None:
    text = '[fit]\nstore = "a"\nmodel = "b"\nlambda = 1e-3\nmemory = "300MB"\ntime-limit = "1h"\noptions.sweeps = 5\n'
    [job] = make_jobs(read_job_file(written(tmp_path, text)), "job.toml")
    assert isinstance(job, FitJob)
    assert (job.lambda_, job.memory, job.time_limit, job.options) == (1e-3, 300_000_000, 3600.0, {"sweeps": 5})


def test_config_steps_keep_their_order_and_can_repeat(tmp_path: Path) -> None:
    text = '[[fit]]\nstore="a"\nmodel="1"\n[[fit]]\nstore="a"\nmodel="2"\n[evaluate]\nmodel="2"\ndata="a"\n'
    steps = read_job_file(written(tmp_path, text))
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
def test_config_mistake_is_named_with_its_place(tmp_path: Path, text: str, said: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ConfigError, match=said) as caught:
        read_job_file(path)
    assert str(path) in caught.value.message
    assert caught.value.exit_code == 78


@pytest.mark.parametrize(
    ("text", "said"),
    [("[fit]\nstore = 'a'\n", "'model' is missing"), ("[fit]\nstore='a'\nmodel='b'\nC=['a']\n", r"\$\.C")],
)
def test_config_wrong_value_is_named_with_its_place(tmp_path: Path, text: str, said: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ConfigError, match=said):
        make_jobs(read_job_file(path), str(path))


def test_config_set_overrides_fields_and_settings() -> None:
    values: dict[str, object] = {"options": {"sweeps": 1, "other": 2}}
    apply_settings("fit", values, ["C=10", "fit.loss=hinge", "solver.sweeps=5", "loss.mu=0.5", "lambda=0.1"])
    assert values == {
        "C": 10.0,
        "loss": "hinge",
        "options": {"sweeps": 5, "other": 2},
        "loss_options": {"mu": 0.5},
        "lambda_": 0.1,
    }


@pytest.mark.parametrize("setting", ["C", "=3", "color=red", "fit.color=red", "paint.color=red"])
def test_config_setting_nobody_has_is_refused(setting: str) -> None:
    with pytest.raises((UsageError, ConfigError)):
        apply_settings("fit", {}, [setting])


def test_config_set_on_a_file_reaches_the_step_it_names() -> None:
    steps: list[tuple[str, dict[str, object]]] = [("synth", {}), ("fit", {})]
    apply_settings_to_file(steps, ["fit.C=3", "synth.rows=1e3", "solver.sweeps=2"])
    assert steps == [("synth", {"rows": 1000}), ("fit", {"C": 3.0, "options": {"sweeps": 2}})]
    with pytest.raises(UsageError, match="names no step"):
        apply_settings_to_file(steps, ["evaluate.model=x"])


def test_config_numbers_of_numpy_are_plain_numbers_in_a_job() -> None:
    import msgspec

    given: Any = {"C": (np.float32(0.5), 2), "seed": np.int64(3), "class_weight": {"a": np.float64(2)}}
    job = FitJob(store="s", model="m", **given)
    plain = FitJob(store="s", model="m", C=(0.5, 2), seed=3, class_weight={"a": 2.0})
    assert msgspec.to_builtins(job) == msgspec.to_builtins(plain)


def test_config_job_from_a_file_has_all_its_settings_as_plain_data() -> None:
    """What a checkpoint and a model say of a job does not depend on how the job was made."""
    import msgspec

    made = make_job("fit", {"store": "s", "model": "m", "max_passes": 3})
    assert msgspec.to_builtins(made.store_job("s")) == msgspec.to_builtins(FitJob("s", "m", max_passes=3))


@pytest.mark.parametrize("value", ["3", "true", "[]", "{a = 1}", "1.5"])
def test_config_path_that_is_none_is_refused_by_name(tmp_path: Path, value: str) -> None:
    path = tmp_path / "job.toml"
    path.write_text(f'[ingest]\nsources = ["a.csv"]\nstore = {value}\n')
    with pytest.raises(ConfigError, match=r"Expected `str`, got .* - at `\$.store`"):
        make_jobs(read_job_file(path), str(path))


@pytest.mark.parametrize(("written", "margin"), [(".5", 0.5), ("5.", 5.0), ("1e-1", 0.1), ("+2", 2.0), (3, 3)])
def test_config_settings_that_are_numbers_may_be_written_as_numbers_are(written: Any, margin: float) -> None:
    values: dict[str, Any] = {"store": "s", "model": "m"}
    if isinstance(written, str):
        apply_settings("fit", values, [f"loss.margin={written}"])
    else:
        values["loss_options"] = {"margin": written}
    assert make_job("fit", values).loss_options == {"margin": margin}


@pytest.mark.parametrize("written", ["oops", "0,5", [1.0], None, {}])
def test_config_setting_that_is_no_number_is_named(written: Any) -> None:
    values = {"store": "s", "model": "m", "loss_options": {"margin": written}}
    with pytest.raises(ConfigError, match=r"fit: loss_options margin: .* is not a number"):
        make_job("fit", values)
