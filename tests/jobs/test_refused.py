"""Requests that cannot be: each is refused before anything is written, by the name of its option, with a hint."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import streamsvm as sv
from streamsvm.errors import MissingError, StreamSVMError, UsageError

CURVES: dict[str, Any] = {"curves": True}
KERNEL: dict[str, Any] = {"kernel": "rbf", "landmarks": 5}
PAIRS: dict[str, Any] = {"multi_class": "ovo"}
TOGETHER: dict[str, Any] = {"multi_class": "crammer_singer", "loss": "hinge"}
ONE: dict[str, Any] = {"one_class": True, "nu": 0.1}
BALL: dict[str, Any] = {"loss": "squared", "l1_ball": 3.0}
NET: dict[str, Any] = {"loss": "squared", "l1": 20.0}
HELD_OUT: dict[str, Any] = {"validation": 0.2}
OVERFLOW = "'(class_weight|C|lambda)' cannot be "

FITS: list[tuple[str, dict[str, Any], str]] = [
    # numbers that are none, or beyond what arithmetic holds
    ("two", {"C": (1.0, 1.0)}, "C must be"),
    ("two", {"C": ()}, "C must be"),
    ("two", {"C": (1.0, -1.0)}, "'C' cannot be"),
    ("two", {"C": 1e300}, OVERFLOW),
    ("two", {"C": (1.0, 1e21)}, OVERFLOW),
    ("two", {"C": 1e-31}, OVERFLOW),
    ("two", {"lambda_": 1e-300}, OVERFLOW),
    ("two", {"lambda_": 1e300}, OVERFLOW),
    ("two", {"class_weight": {"b": 1e300}}, OVERFLOW),
    ("two", {"class_weight": {"b": 1e10}}, OVERFLOW),
    ("two", {"nu": 0.1, "C": 1.0}, "'C' cannot be combined with 'nu'"),
    # rows and dual variables
    ("two", {"solver": "sgd", "loss": "hinge", "dual": "dual.npy"}, "no dual variables"),
    # kernels and landmarks
    ("two", KERNEL | {"sampling": "best"}, "'sampling'"),
    ("two", KERNEL | {"cutoff": 0.0}, "'cutoff'"),
    ("two", KERNEL | {"embedding": "tape"}, "'embedding'"),
    ("two", KERNEL | {"embedding_dtype": "int4"}, "'embedding_dtype'"),
    ("two", KERNEL | {"kernel": "rbff"}, "did you mean 'rbf'"),
    ("two", KERNEL | {"kernel_options": {"degree": 2.0}}, "degree"),
    ("two", KERNEL | {"gamma": -1.0}, "'gamma'"),
    ("two", KERNEL | {"gamma": "broad"}, "gamma 'broad' is not known"),
    ("two", KERNEL | {"kernel": "polynomial", "kernel_options": {"degree": 2.5}}, "degree"),
    ("two", KERNEL | {"landmark_file": "z.npy"}, "a number of landmarks and a file"),
    # probabilities and rows held out
    ("two", {"calibration_folds": 3}, "is for 'calibrate'"),
    (
        "two",
        {"calibrate": "sigmoid", "calibration_folds": 3, "cluster": "here:"},
        "folds, which are not fitted on a cluster",
    ),
    ("two", {"patience": 3}, "'patience' waits"),
    ("two", HELD_OUT | {"patience": 0}, "'patience' cannot be 0"),
    ("two", {"validation": 1.5}, "'validation' cannot be 1.5"),
    ("two", HELD_OUT | KERNEL, "linear fits only"),
    ("two", HELD_OUT | {"solver": "dcd", "dual": "a.npy"}, "'dual'"),
    ("two", {"validation": "README.md"}, "README.md does not exist"),
    # curves
    ("two", CURVES | {"kernel": "rbf"}, "'kernel' cannot be combined with curves=True"),
    ("two", CURVES | {"landmarks": 5}, "'landmarks' cannot be combined with curves=True"),
    ("two", CURVES | {"l1": 1.0}, "'l1' cannot be combined with curves=True"),
    ("two", CURVES | {"nu": 0.1, "loss": "hinge"}, "'nu' cannot be combined with curves=True"),
    ("two", CURVES | ONE, "cannot be combined with curves=True"),
    ("two", CURVES | {"warm_start": "m"}, "'warm_start' cannot be combined with curves=True"),
    ("two", CURVES | {"dual": "a.npy"}, "'dual' cannot be combined with curves=True"),
    ("two", CURVES | {"certify": "labels"}, "'certify' cannot be combined with curves=True"),
    ("two", CURVES | {"calibrate": "sigmoid"}, "'calibrate' cannot be combined with curves=True"),
    ("two", CURVES | {"threshold": "f1"}, "'threshold' cannot be combined with curves=True"),
    ("two", CURVES | {"solver": "dcd", "loss": "squared_hinge"}, "one by one"),
    ("two", CURVES | {"knots": 3}, "'knots' cannot be 3"),
    ("two", CURVES | {"smooth": "d3"}, "'smooth'"),
    ("two", {"knots": 8}, "'knots' is for curves"),
    ("two", {"smooth": "d1"}, "'smooth' is for curves"),
    ("two", {"jumps": "auto"}, "'jumps' is for curves"),
    ("two", CURVES | {"jumps": "column 77=1"}, "no column 'column 77' with a curve"),
    ("two", CURVES | {"jumps": "column 0=much"}, "'much' is not a number"),
    ("two", {"pairs": "auto"}, "'pairs' is for curves"),
    ("two", CURVES | {"pairs": -1}, "there are no -1 pairs"),
    ("two", CURVES | {"pairs": "a"}, "'a' is not a pair of two columns"),
    ("two", CURVES | {"pairs": "column 0*column 77"}, "no column 'column 77' that can form a pair"),
    ("two", CURVES | {"pair_scale": 0.5}, "'pair_scale' is for pairs of columns"),
    ("two", CURVES | {"pairs": "auto", "pair_scale": 0.5, "smooth": "none"}, "all values have the same penalty"),
    ("three", CURVES | PAIRS | {"pairs": "auto"}, "cannot be combined with multi_class='ovo'"),
    ("three", CURVES | TOGETHER, "cannot be combined with curves=True"),
    # one class
    ("two", ONE | {"C": 1.0}, "both nu and C"),
    ("two", ONE | HELD_OUT, "one-class fits do not use labels, so that held-out rows have"),
    ("two", ONE | {"calibrate": "sigmoid"}, "cannot be calibrated as probabilities"),
    ("two", ONE | {"class_weight": "balanced"}, "one class"),
    # several classes
    ("three", PAIRS | {"calibrate": "sigmoid"}, "'calibrate' cannot be combined with multi_class='ovo'"),
    ("three", PAIRS | {"warm_start": "m"}, "'warm_start' cannot be combined with multi_class='ovo'"),
    ("three", PAIRS | {"positive": "a"}, "'positive' cannot be combined with 'multi_class'"),
    ("three", TOGETHER | {"solver": "newton"}, "does not solve for all classes together"),
    ("three", TOGETHER | {"loss": "logistic"}, "whose conjugate is a parabola"),
    ("three", TOGETHER | {"positive": "a"}, "'positive' cannot be combined with 'multi_class'"),
    ("three", TOGETHER | {"kernel": "rbf"}, "does not solve for all classes together"),
    ("three", TOGETHER | {"options": {"shrinking": True}, "solver": "dcd"}, "shrinking"),
    # weights of few columns
    ("numbers", BALL | {"loss": "squared_epsilon_insensitive"}, "is for least squares"),
    ("numbers", BALL | {"kernel": "rbf", "solver": "partan"}, "'kernel' cannot be combined with 'l1_ball'"),
    ("numbers", BALL | {"solver": "newton"}, "does not minimize over an l1 ball"),
    ("numbers", BALL | {"dual": "dual.npy"}, "has no dual variables to write"),
    ("numbers", BALL | {"l1": 1.0}, "'l1' cannot be combined with 'l1_ball'"),
    ("numbers", NET | {"kernel": "rbf"}, "'kernel' cannot be combined with 'l1',"),
    ("numbers", NET | {"solver": "dcd"}, "solver 'dcd' does not minimize with an l1 term"),
    ("numbers", NET | {"dual": "dual.npy"}, "'dual' cannot be combined with 'l1'"),
    # a free bias
    ("two", {"free_bias": True, "solver": "newton"}, "solver 'newton' regularizes the bias"),
    ("two", {"free_bias": True, "kernel": "rbf"}, "free_bias=True cannot be combined with 'kernel'"),
    ("two", {"free_bias": True, "bias": 2.0}, "free_bias=True cannot be combined with bias=2"),
    ("two", {"free_bias": True, "l1": 1.0}, "free_bias=True cannot be combined with 'l1'"),
    ("two", {"free_bias": True, "dual": "dual.npy"}, "free_bias=True cannot be combined with 'dual'"),
    ("numbers", {"free_bias": True, "loss": "squared"}, "free_bias=True cannot be combined with the loss"),
]

GRID: dict[str, Any] = {"kernel": "rbf", "gamma": (0.1,), "landmarks": (10,), "folds": 3}
SEARCH_ONE: dict[str, Any] = {"one_class": True, "positive": "a"}

SEARCHES: list[tuple[str, dict[str, Any], str]] = [
    ("two", GRID | {"C": (1.0, 1.0)}, "different values"),
    ("two", GRID | {"C": ()}, "C"),
    ("two", GRID | {"C": (-1.0,)}, "'C' cannot be"),
    ("two", GRID | {"landmarks": (), "solver": "newton"}, "newton"),
    ("two", GRID | {"folds": 1000}, "folds"),
    ("two", GRID | {"gamma": ("broad",)}, "gamma"),
    ("two", GRID | {"solver": "fw", "landmarks": (), "loss": "huber"}, "fw"),
    ("two", GRID | SEARCH_ONE | {"sampling": "greedy"}, "greedy"),
    ("two", {"one_class": True}, "computes errors from labels"),
    ("two", SEARCH_ONE | {"nu": (0.1,), "C": (1.0,)}, "both nu and C"),
    ("two", SEARCH_ONE | {"positive": "better"}, "no class 'better'"),
    ("two", SEARCH_ONE | {"class_weight": "balanced"}, "one_class=True"),
    ("two", SEARCH_ONE | {"nu": (0.1, 0.1)}, "different values"),
    ("two", SEARCH_ONE | {"solver": "newton"}, "no free offset"),
    ("three", PAIRS, "does not support one-vs-one"),
]

ANSWERS: list[tuple[str, dict[str, Any], str]] = [
    ("predict", {"out": "p.xls"}, "p.xls"),
    ("predict", {"out": "p.csv", "output": "color"}, "color"),
    ("predict", {"out": "p.csv", "data": "none.csv"}, "none.csv"),
    ("predict", {"out": "p.csv", "memory": 1 << 20}, "memory="),
    ("predict", {"out": "p.npy", "output": ("label", "decision")}, "an array holds"),
    ("evaluate", {"cost": (1.0,)}, "'cost'"),
    ("evaluate", {"best_threshold": "color"}, "best_threshold"),
    ("evaluate", {"best_threshold": "cost:fp=1,fn=5", "cost": (2.0, 3.0)}, "different costs"),
]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with stores of two and three classes and of numbers, and a model of two classes."""
    root = tmp_path_factory.mktemp("refused")
    X = np.random.default_rng(0).normal(size=(900, 3)).astype(np.float32)
    for count, name in ((2, "two"), (3, "three")):
        sv.ingest(X, root / name, y=np.array(list("abc"))[np.arange(900) % count], chunk=4096)
    sv.ingest(X, root / "numbers", y=X[:, 0], task="regression")
    sv.fit(root / "two", root / "model", tolerance=0.1)
    return root


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def check_refusal(said: str, ask: Callable[[], object], here: Path, kind: type[StreamSVMError] = UsageError) -> None:
    with pytest.raises(StreamSVMError, match=said) as refused:
        ask()
    assert isinstance(refused.value, kind | MissingError)
    assert refused.value.hint or "did you mean" in str(refused.value)
    assert not {"m", "dual.npy", "table.json", "p.csv", "p.npy", "p.xls"} & {path.name for path in here.rglob("*")}


@pytest.mark.parametrize(("store", "options", "said"), FITS, ids=str)
def test_fit_refuses_what_cannot_be(place: Path, here: Path, store: str, options: dict[str, Any], said: str) -> None:
    check_refusal(said, lambda: sv.fit(place / store, here / "m", **options), here)


@pytest.mark.parametrize(("store", "options", "said"), SEARCHES, ids=str)
def test_tune_refuses_what_cannot_be(place: Path, here: Path, store: str, options: dict[str, Any], said: str) -> None:
    check_refusal(said, lambda: sv.tune(place / store, here / "t", **options), here)


@pytest.mark.parametrize(("command", "options", "said"), ANSWERS, ids=str)
def test_answers_refuse_what_cannot_be(
    place: Path, here: Path, command: str, options: dict[str, Any], said: str
) -> None:
    asked = {"data": "two"} | options
    names = asked.pop("data")
    data = [str(place / name) for name in ([names] if isinstance(names, str) else names)]
    out = [str(here / asked.pop("out"))] if "out" in asked else []
    check_refusal(said, lambda: getattr(sv, command)(place / "model", *data, *out, **asked), here, StreamSVMError)
