"""Where a fit writes: a model for each C, and a folder beside them with the record of the run."""

from __future__ import annotations

from pathlib import Path

from streamsvm.jobs.fit.options import FitJob

PLAN, CERTIFICATE, COPY, JOB = "plan.json", "certificate.json", "model.ssvm", "job.json"
"""Files of the run's folder: the plan, how the run ended, a copy of the model, and what was asked for."""
EVENTS, RECORD, EVALUATION = "events.jsonl", "record.json", "evaluation.json"
"""More of them, for the page of the run: what happened when, what its data and model look like, how good it was found."""


def path_names(target: Path, values: list[float]) -> dict[float, Path]:
    """Where the model of each C goes: the target itself when there is one, else NAME.C=VALUE with the same ending."""
    if len(values) == 1:
        return {values[0]: target}
    return {C: target.with_name(f"{target.stem}.C={C:g}{target.suffix}") for C in values}


def run_folder(model: Path) -> Path:
    """Where the record of the fit of a model lies."""
    return model.with_name(model.name + ".run")


def model_paths(job: FitJob, costs: list[float]) -> list[Path]:
    """Every file a fit writes a model to, its folder apart: one for each C, and the best one where there is a choice."""
    target = Path(job.model)
    return sorted({*path_names(target, costs).values(), *([target] if job.validation is not None else [])})
