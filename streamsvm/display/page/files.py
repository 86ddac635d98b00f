"""How a run went, as its files say it: the plan, the events of the log, the certificate.

They are those of ``jobs.fit.results.places`` and ``jobs.report.run_log``. What has another form is not read, and what they hold beside
this is passed over.
"""

from __future__ import annotations

import msgspec

from streamsvm.aliases import ByName, JsonObject


class ProblemEnd(msgspec.Struct):
    """The certificate of one problem."""

    C: float
    """The weight of the loss sum."""
    primal: float
    """P."""
    dual: float
    """D."""
    gap: float
    """(P - D) / |P|, rounding counted."""
    problem: int = 0
    """Its number in the fit."""
    rounding: float = 0.0
    """What rounding can have done to P and D."""


class End(msgspec.Struct):
    """How a run ended: ``certificate.json``."""

    status: str
    """How it ended, in a word or two."""
    gap: float
    """The widest relative gap of all problems."""
    primal: float
    """P of that problem."""
    dual: float
    """D of that problem."""
    tolerance: float
    """The gap that was asked for."""
    passes: int
    """Readings of the data."""
    seconds: float
    """How long it took."""
    peak: int
    """Bytes of anonymous memory at most."""
    limit: int
    """Bytes that were allowed."""
    bytes_read: int
    """Bytes that were read."""
    compute_share: float
    """The share of the time in which nothing was waited for."""
    rounding: float = 0.0
    """What rounding can have done to P and D."""
    validation: JsonObject | None = None
    """What the held-out rows said; None without such."""
    problems: list[ProblemEnd] = []
    """The certificate of each problem."""


class PlannedTerm(msgspec.Struct):
    """A term of the plan of memory."""

    term: str
    """What the memory is for."""
    bytes: int
    """How much it is at most."""
    why: str = ""
    """What it is made of."""


class Planned(msgspec.Struct):
    """What was decided before the first read: the event ``plan``."""

    rows: int
    """Rows of the store."""
    columns: int
    """Its columns."""
    chunks: int
    """Its chunks."""
    bytes_per_pass: int
    """Bytes of a reading."""
    problems: int
    """Problems that are solved side by side."""
    C: list[float]
    """The C of each."""
    solver: str
    """The name of the solver."""
    why: str
    """Why this one."""
    memory: list[PlannedTerm]
    """The terms of the plan."""
    total: int
    """Their sum, bytes."""
    limit: int
    """Bytes that are allowed."""
    features: JsonObject | None = None
    """Of kernel features, what they are made of."""
    embedding: JsonObject | None = None
    """Where such features are kept."""
    threads: int | None = None
    """Threads that compute, where that was decided."""
    task: str = ""
    """'classification', 'regression', or nothing in plans of before."""
    together: int = 0
    """Classes in each problem, where all are one; else 0."""


class Moment(msgspec.Struct):
    """What was known at some time: an event ``progress`` or ``pass``."""

    seconds: float
    """Since the run began."""
    memory: int
    """Bytes of anonymous memory then."""
    waited: float | None = None
    """Seconds that had been waited for blocks by then."""
    bytes_read: int | None = None
    """Bytes that had been read by then."""


class Pass(Moment, kw_only=True):
    """The certificate of a problem after a pass: an event ``pass``."""

    number: int = msgspec.field(name="pass")
    """The number of the pass, from 1."""
    primal: float
    """P."""
    dual: float
    """D."""
    gap: float
    """(P - D) / |P|."""
    problem: int = 0
    """The number of the problem."""
    exact: bool = True
    """Whether P and D are of all rows."""


class HeldOut(msgspec.Struct, kw_only=True):
    """The error on held-out rows after a pass: an event ``validation``."""

    number: int = msgspec.field(name="pass")
    """The number of the pass, from 1."""
    C: float
    """The weight of the loss sum."""
    error: float
    """The share of wrong answers."""


class Stopped(msgspec.Struct):
    """Why a run was cut short."""

    code: str
    """The code of the error."""
    message: str
    """What it says."""
    hint: str | None = None
    """What to do next."""


class Began(msgspec.Struct):
    """When, with what and by which command a run began."""

    at: str
    """The time by the clock, UTC."""
    command: str
    """The command that gives this fit again."""
    resumed: bool = False
    """Whether it went on from an earlier run."""
    machine: ByName = {}
    """What it was made with, by name."""
