"""What ``report`` is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from streamsvm.config.fields import Option
from streamsvm.jobs.option_groups import OutputOptions


@dataclass(frozen=True)
class ReportJob(OutputOptions):
    """What ``streamsvm report`` is asked for; the keys of a job file are these fields and those of the groups."""

    runs: Annotated[
        tuple[str, ...],
        Option(
            "Models whose MODEL.run lies beside them, or what tune has written; several are compared.", metavar="RUN"
        ),
    ]
    out: Annotated[str, Option("Where the page is written, an HTML file.")]
