"""Every form of a problem through every face: commands, job files, functions, estimators, searches, formats of others; or refused by name.

``REFUSED`` has what is not there, with the words it is refused by. All else is held to one fit by ``sv.fit``.
"""

from __future__ import annotations

import json
import shlex
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from click.testing import CliRunner

import streamsvm as sv
from streamsvm.cli.main import cli
from streamsvm.config.command_table import format_command as command_of
from streamsvm.errors import InterruptedRun
from streamsvm.jobs.fit.options import FitJob
from streamsvm.types import Status
from tests.axes import each_value
from tests.forms import CLASSES, FORMS, NUMBERS, SEVERAL, rows_of, stored

ROWS = 300
KERNELS = tuple(name for name, (_, settings) in FORMS.items() if "kernel" in settings)
ONE_CLASS = tuple(name for name, (_, settings) in FORMS.items() if "one_class" in settings)
OF_NUMBERS = tuple(name for name, (kind, _) in FORMS.items() if kind == NUMBERS)
CURVES = tuple(name for name, (_, settings) in FORMS.items() if "curves" in settings)
PAIRS = tuple(name for name, (_, settings) in FORMS.items() if settings.get("multi_class") == "ovo")
BY_NU = tuple(name for name in FORMS if name.startswith("nu"))
REFUSED: dict[str, list[tuple[tuple[str, ...], str]]] = {
    "tune": [(CURVES, "has no option 'curves'"), (PAIRS, "does not support one-vs-one models")],
    "calibrate": [
        (CURVES, "cannot be combined with curves=True"),
        (ONE_CLASS, "cannot be calibrated as probabilities"),
        (OF_NUMBERS, "for classes, and the store holds numbers"),
        (PAIRS, "votes of pairs of classes are not probabilities"),
    ],
    "validation": [
        (ONE_CLASS, "do not use labels"),
        (tuple(name for name in KERNELS if "landmarks" in FORMS[name][1]), "chunks are held out of linear fits only"),
        (KERNELS, "could choose among after each pass"),
    ],
    "dual": [
        (CURVES, "cannot be combined with curves=True"),
        (ONE_CLASS, "computed from the model alone"),
        (BY_NU, "computed from the model alone"),
        (("elastic net", "elastic net of numbers"), "recomputed from the model"),
        (("on the simplex", "l1 ball"), "has no dual variables to write"),
    ],
    "liblinear": [
        (CURVES, "a model of curves cannot be exported"),
        (KERNELS, "has no kernels"),
        (PAIRS, "votes of a one-vs-one model"),
    ],
    "libsvm": [(CURVES, "a model of curves cannot be exported")],
    "estimator": [(("one class, margin",), "has no parameter 'C'")],
}
"""By face: forms that it refuses, and what it says."""


class Made(NamedTuple):
    """A form that was fitted."""

    store: Path
    settings: dict[str, Any]
    folder: Path
    model: Any
    solver: str


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Gives a fit of each form, which is made once."""
    root, known = tmp_path_factory.mktemp("forms"), {}
    stores = {kind: stored(kind, ROWS, root / kind.replace(" ", "-"), 2048) for kind in (CLASSES, SEVERAL, NUMBERS)}

    def of(form: str) -> Made:
        if form not in known:
            (kind, settings), folder = FORMS[form], root / form.replace(" ", "-").replace(",", "")
            folder.mkdir(exist_ok=True)
            result = sv.fit(stores[kind], folder / "m.ssvm", report=folder / "m.html", **settings)
            assert result.training.status == Status.CONVERGED, result.warnings
            known[form] = Made(stores[kind], settings, folder, result.model, result.plan.solver_name)
        return known[form]

    return of


def reached(face: str, form: str, call: Any) -> Any:
    """What the call returns; None where the face refuses this form, as it must."""
    for forms, said in REFUSED[face]:
        if form in forms:
            with pytest.raises((sv.UsageError, TypeError, ValueError), match=said) as found:
                call()
            assert getattr(found.value, "hint", "none") != ""
            return None
    return call()


every_form = pytest.mark.parametrize("form", FORMS)


@each_value(("form", FORMS), ("face", ["command", "job file"]))
def test_form_by_command_or_job_file_is_the_function(made: Any, form: str, face: str, tmp_path: Path) -> None:
    fit, model = made(form), tmp_path / "m.ssvm"
    words = shlex.split(command_of("fit", FitJob(str(fit.store), str(model), **fit.settings)))[1:]
    if face == "job file":
        words = ["run", str(tmp_path / "job.toml")]
        lines = [f'store = "{fit.store}"', f'model = "{model}"']
        lines += [
            f"{name} = {json.dumps(value)}" for name, value in fit.settings.items() if not isinstance(value, dict)
        ]
        for name, value in fit.settings.items():
            if isinstance(value, dict):
                lines += [f"[fit.{name}]", *(f"{key} = {one}" for key, one in value.items())]
        (tmp_path / "job.toml").write_text("\n".join(["[fit]", *lines]))
    found = CliRunner().invoke(cli, words)
    assert found.exit_code == 0, found.output
    np.testing.assert_array_equal(sv.load_model(model).weights, fit.model.weights)


@every_form
def test_form_resumes_to_the_same_bytes(made: Any, form: str, tmp_path: Path) -> None:
    fit = made(form)
    with pytest.raises(InterruptedRun):
        sv.fit(fit.store, tmp_path / "m", time_limit=1e-9, at_limit="stop", **fit.settings)
    again = sv.fit(fit.store, tmp_path / "m", resume=True, **fit.settings)
    np.testing.assert_array_equal(again.model.weights, fit.model.weights)


@every_form
def test_form_is_planned_applied_and_shown(made: Any, form: str, tmp_path: Path) -> None:
    fit, (kind, _) = made(form), FORMS[form]
    assert sv.plan(fit.store, **fit.settings).solver_name == fit.solver
    X, truth, _ = rows_of(kind, ROWS)
    predicted = sv.predict(fit.folder / "m.ssvm", fit.store, tmp_path / "p.csv")
    assert predicted.rows == ROWS
    assert len((tmp_path / "p.csv").read_text().splitlines()) in {ROWS, ROWS + 1}
    measured = sv.evaluate(fit.folder / "m.ssvm", fit.store).evaluation._asdict()
    error = np.mean((fit.model.predict(X) - truth) ** 2) if kind == NUMBERS else None
    if error is not None:
        assert measured["RMSE"] == pytest.approx(np.sqrt(error), rel=1e-5)
        assert measured["R2"] > 0.5
    else:
        assert measured["accuracy"] > (0.5 if form in ONE_CLASS else 0.8)
    sv.report(fit.folder / "m.ssvm", tmp_path / "r.html")
    assert "certif" in (tmp_path / "r.html").read_text()
    said = CliRunner().invoke(cli, ["info", str(fit.folder / "m.ssvm")])
    assert said.exit_code == 0, said.output


@every_form
def test_form_is_searched(made: Any, form: str, tmp_path: Path) -> None:
    fit = made(form)
    points: dict[str, Any] = {
        name: [value] for name, value in fit.settings.items() if name in {"C", "nu", "gamma", "landmarks"}
    }
    rest = {name: value for name, value in fit.settings.items() if name not in {*points, "embedding"}}
    found = reached("tune", form, lambda: sv.tune(fit.store, tmp_path / "t", folds=2, **rest, **points))
    if found is not None:
        assert found.measure.name == (
            "balanced_error" if form in ONE_CLASS else "rmse" if form in OF_NUMBERS else "error"
        )
        assert 0.0 <= found.best.error < (0.6 if form in OF_NUMBERS else 0.5)


@every_form
def test_form_has_probabilities_validation_and_dual_variables(made: Any, form: str, tmp_path: Path) -> None:
    fit = made(form)
    found = reached("calibrate", form, lambda: sv.fit(fit.store, tmp_path / "c", calibrate="sigmoid", **fit.settings))
    if found is not None:
        assert found.model.calibration is not None
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "not certified: .* best score on the rows held out")
        held = reached("validation", form, lambda: sv.fit(fit.store, tmp_path / "v", validation=0.3, **fit.settings))
    if held is not None:
        assert held.model.provenance["validation"] is not None
    path = tmp_path / "a.npy"
    proved = reached("dual", form, lambda: sv.fit(fit.store, tmp_path / "d", dual=path, **fit.settings))
    if proved is not None:
        assert ROWS in np.load(path).shape


@every_form
@pytest.mark.parametrize("face", ["liblinear", "libsvm"])
def test_form_is_exported(made: Any, form: str, face: Any, tmp_path: Path) -> None:
    fit, (kind, _) = made(form), FORMS[form]
    found = reached(face, form, lambda: sv.export(fit.folder / "m.ssvm", tmp_path / "e", format=face))
    if found is not None and kind != NUMBERS:  # those of numbers are read by LIBLINEAR and LIBSVM in tests/model
        X, _, _ = rows_of(kind, ROWS)
        assert np.mean(sv.load_model(tmp_path / "e").predict(X) == fit.model.predict(X)) > 0.995


@every_form
def test_form_as_an_estimator_is_the_function(made: Any, form: str) -> None:
    pytest.importorskip("sklearn", minversion="1.6")
    fit, (kind, _) = made(form), FORMS[form]
    X, truth, names = rows_of(kind, ROWS)
    found = reached("estimator", form, lambda: estimated(form, X, truth, names))
    if found is None:
        return
    ours, theirs = found.predict(X), fit.model.predict(X)
    if kind == NUMBERS:
        assert np.corrcoef(ours, theirs)[0, 1] > 0.97
    else:  # of landmarks, which are drawn of other rows, about the same; labels of either are of the type they were given in
        theirs = theirs.astype(str)
        same = (ours == 1) == (theirs == "2") if form in ONE_CLASS else ours.astype(str) == theirs
        assert np.mean(same) > (0.85 if "landmarks" in fit.settings else 0.95)


def estimated(form: str, X: Any, truth: Any, names: tuple[str, ...]) -> Any:
    """The estimator of a form, fitted."""
    from streamsvm.sklearn import StreamOneClassSVM, StreamSVC, StreamSVR

    kind, settings = FORMS[form]
    given = {name: value for name, value in settings.items() if name not in {"embedding", "one_class", "positive"}}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        if form in ONE_CLASS:
            return StreamOneClassSVM(**given).fit(X[truth == names.index("2")])
        if kind == NUMBERS:
            options = given.pop("loss_options", {})
            return StreamSVR(epsilon=0.1, **given, **options).fit(X, truth)
        return StreamSVC(**given).fit(X, np.array(names)[truth])
