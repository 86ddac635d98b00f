"""What a transcript is not to depend on: the memory of this process and of this machine, and how fast it is."""

from __future__ import annotations

from typing import Any

import pytest

from streamsvm.calibration import scores
from streamsvm.display.progress import Progress
from streamsvm.engine.progress import Stopwatch
from streamsvm.features import part_sizes
from streamsvm.jobs import calibration_scores as leave_one_out
from streamsvm.jobs import run_record as evaluation
from streamsvm.jobs import run_record as page_record
from streamsvm.jobs.embed import distributed as embed_distributed
from streamsvm.jobs.embed import feature_writer, kernel_map
from streamsvm.jobs.ingest import notices
from streamsvm.jobs.run_record import Thinning
from streamsvm.jobs.tune import results
from streamsvm.schedule import budget
from tests.nominal_process import of_nominal_size

SMALLER: dict[Any, dict[str, int]] = {
    evaluation: {"POINTS": 20},
    feature_writer: {"SCALE_ROWS": 40, "JOURNAL_EVERY": 2},
    embed_distributed: {"PART_BYTES": 4096},
    kernel_map: {"SAMPLE": 100, "PIECE": 60, "FIRST_SAMPLE": 8},
    leave_one_out: {"WANTED": 8, "LEAST_CHUNKS": 2, "SPREAD": 2, "MOST_GROUPS": 3},
    page_record: {"SAMPLE": 120, "LEAST": 70},
    part_sizes: {"PART_BYTES": 4096},
    notices: {"SAMPLE": 150},
    scores: {"MOST_ROWS": 60},
}
"""How large samples and parts are, which are to be less than these tables."""


def on_any_machine(patch: pytest.MonkeyPatch) -> None:
    """Plans see neither what this process holds nor the limits it is in, and samples are small.

    Events of progress come whenever they can, lines of it, which come by the clock, never.
    """
    of_nominal_size(patch)
    patch.setattr(budget, "page_cache_bytes", lambda _: 1 << 33)
    for module, values in SMALLER.items():
        for name, value in values.items():
            patch.setattr(module, name, value)
    patch.setattr(Stopwatch, "due", lambda _: True)
    patch.setattr(Progress, "take", lambda *_: False)
    patch.setattr(Thinning, "keeps", lambda *_: True)
    patch.setattr(results, "picture_of", lambda *_: None)
