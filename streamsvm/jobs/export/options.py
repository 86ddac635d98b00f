"""What ``export`` is asked for."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Annotated

from streamsvm.config.fields import Option
from streamsvm.jobs.option_groups import OutputOptions

LIBLINEAR, LIBSVM, ONNX, STREAMSVM = "liblinear", "libsvm", "onnx", "streamsvm"


@dataclass(frozen=True)
class ExportJob(OutputOptions):
    """What ``streamsvm export`` is asked for; the keys of a job file are these fields and those of the groups."""

    model: Annotated[str, Option("The model: of streamsvm, or text of LIBLINEAR or LIBSVM.")]
    out: Annotated[str, Option("Where it is written.", metavar="PATH")]
    _: KW_ONLY
    format: Annotated[
        str,
        Option(
            "Text of LIBLINEAR (linear models) or LIBSVM (kernel models too, not standardized), or an ONNX graph, over columns as "
            "the sources have them; or a file of streamsvm.",
            "output",
            choices=(LIBLINEAR, LIBSVM, ONNX, STREAMSVM),
        ),
    ] = LIBLINEAR
