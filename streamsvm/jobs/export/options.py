"""What ``export`` is asked for."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Annotated

from streamsvm.config.fields import Option
from streamsvm.jobs.option_groups import OutputOptions

LIBLINEAR, LIBSVM, STREAMSVM = "liblinear", "libsvm", "streamsvm"


@dataclass(frozen=True)
class ExportJob(OutputOptions):
    """What ``streamsvm export`` is asked for; the keys of a job file are these fields and those of the groups."""

    model: Annotated[str, Option("The model: of streamsvm, or text of LIBLINEAR or LIBSVM.")]
    out: Annotated[str, Option("Where it is written.", metavar="PATH")]
    _: KW_ONLY
    format: Annotated[
        str,
        Option(
            "Text of LIBLINEAR (linear models) or LIBSVM (kernel models too, not standardized), over columns as the sources have "
            "them; or a file of streamsvm.",
            "output",
            choices=(LIBLINEAR, LIBSVM, STREAMSVM),
        ),
    ] = LIBLINEAR
