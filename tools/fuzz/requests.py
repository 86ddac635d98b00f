"""Job files and options at any value: refused by name before anything is read, or done with an answer that holds."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import click
import numpy as np

from streamsvm.cli.jobs import made
from streamsvm.cli.options import job_of
from streamsvm.config.fields import Field
from streamsvm.config.job_file import STEPS, check, read_file
from streamsvm.errors import StreamSVMError
from streamsvm.jobs.fit.run import fit
from tools.fuzz.artifacts import small_store
from tools.fuzz.mutations import NUMBERS, TEXTS, value
from tools.fuzz.structures import Trial

QUIET = ("cluster", "insecure_network", "resume", "store", "model", "dual", "warm_start", "landmark_file", "validation")
"""Options that name other things; what they may name is the matter of other targets."""
SOLVERS = ("dcd", "newton", "sgd", "pegasos", "assg", "decomposition", "fw", "blended", "auto")


def toml(plain: Any) -> str:
    """A value as TOML; what TOML has no words for as text."""
    if isinstance(plain, bool):
        return str(plain).lower()
    if isinstance(plain, int | float):
        return repr(plain)
    if isinstance(plain, list):
        return "[" + ", ".join(map(toml, plain)) + "]"
    if isinstance(plain, dict):
        return "{" + ", ".join(f"{toml(str(key))} = {toml(item)}" for key, item in plain.items()) + "}"
    text = str(plain).encode("utf-8", "replace").decode()
    return '"' + "".join(c if c.isprintable() and c not in '"\\' else f"\\u{ord(c):04x}" for c in text) + '"'


def job_file(scratch: Path) -> Trial:
    """Steps that are nearly right, with any value of any option; checked as ``run`` checks them, and not executed."""
    path = scratch / "job.toml"

    def trial(draw: random.Random) -> str:
        lines = []
        for _ in range(draw.randint(1, 3)):
            name = draw.choice(list(STEPS))
            step = STEPS[name]
            lines.append(f"[[{name}]]" if draw.random() < 0.3 else f"[{name}]")
            chosen = [f for f in step.fields if f.name in step.positional or draw.random() < 0.1]
            lines += [f"{field.key} = {toml(_likely(field, draw))}" for field in chosen]
        text = "\n".join(lines)
        if draw.random() < 0.1:
            at = draw.randrange(len(text))
            text = text[:at] + draw.choice(("", "=", "[", "]", '"', "\n", "\x00")) + text[at + 1 :]
        path.write_text(text, encoding="utf-8")
        check(read_file(path), str(path))
        return "taken"

    return trial


def _likely(field: Field, draw: random.Random) -> Any:
    """Half the time a value of the field's own kind."""
    if draw.random() < 0.5:
        choices = field.choices()
        likely = [*choices, "x.zarr", "1GiB", "90s", 1, 0.1, True, ["a", "b"], {"a": 1.0}]
        return draw.choice(likely)
    return value(draw)


def options(scratch: Path) -> Trial:
    """A fit with some options of any value, as typed: what is not refused ends with a certificate of numbers."""
    stores = [small_store(scratch / "dense.zarr", sparse=False), small_store(scratch / "csr.zarr", sparse=True)]
    fields = [field for field in STEPS["fit"].fields if field.name not in QUIET and not field.option.settings_of]

    def trial(draw: random.Random) -> str:
        words = []
        for field in draw.sample(fields, draw.randint(1, 3)):
            typed = draw.choice([*field.choices(), *map(str, NUMBERS), *TEXTS, "1KiB", "1s", "balanced", "1=2,0=1e-9"])
            words += [f"--no-{field.flag[2:]}"] if field.is_switch else [field.flag, typed]
        words += ["--solver", draw.choice(SOLVERS)] if draw.random() < 0.5 else []
        words += ["--overwrite", "--max-passes", "3", draw.choice(stores), str(scratch / "m.ssvm")]
        try:
            with made("fit").make_context("fit", words) as context:
                found = dict(context.params)
        except (click.ClickException, ValueError):  # surrogates never come through a command line
            return "refused by the command line"
        for more in ("as_json", "config", "dry_run"):
            found.pop(more, None)
        result = fit(job_of("fit", found, None, found.pop("settings", ())))
        for run in result.training.runs:
            certificate = run.certificate
            assert certificate is not None, words
            assert np.isfinite([certificate.primal, certificate.dual, certificate.gap]).all(), (words, certificate)
            assert certificate.gap >= -1e-6, (words, certificate)
        assert np.isfinite(result.model.weights).all(), words
        return f"fitted, {result.training.status.value}"

    return _repeating(trial)


def _repeating(trial: Trial) -> Trial:
    """A trial whose own errors say which options they are of."""

    def shown(draw: random.Random) -> str:
        try:
            return trial(draw)
        except StreamSVMError:
            raise
        except Exception as error:
            error.add_note("options")
            raise

    return shown
