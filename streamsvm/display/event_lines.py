"""Events of a job that are worth a line of their own, in words."""

from __future__ import annotations

from streamsvm.aliases import JsonObject
from streamsvm.config.units import percent, size_text

MIB = 1 << 20
FELT = 0.01
"""Of the tolerance: less rounding is not worth a word on the last line; it is in certificate.json."""


def _felt(end: JsonObject) -> bool:
    return bool(end.get("rounding", 0.0) > FELT * end.get("tolerance", 0.0) * abs(end["primal"]))


def count_text(count: float) -> str:
    """Return a number in three digits: '1.25 M'."""
    for unit in ("", " k", " M"):
        if count < 999.5:
            return f"{count:.3g}{unit}"
        count /= 1000
    return f"{count:.3g} G"


def lines_of_event(event: JsonObject) -> list[str]:
    """Return what is said of an event beside the progress it makes: nothing of most."""
    if event["event"] == "plan":
        return [plan_line(event)]
    if event["event"] == "left":
        return [left_line(event)]
    if event["event"] == "features":
        return [f"going on with kernel features in {event['arithmetic']}: {event['why']}"]
    return list(event["decided"]) if event["event"] == "columns" else []


def plan_line(plan: JsonObject) -> str:
    """Return the first line of a fit, from its 'plan' event: what was chosen and why, and what is solved."""
    costs = [f"{C:.4g}" for C in dict.fromkeys(plan["C"])]
    classes = plan["problems"] // len(costs)
    what = f"{classes} classes, each against the rest" if classes > 1 else "two classes"
    if plan.get("together"):
        what = f"{plan['together']} classes in one problem"
    what = "numbers" if plan.get("task") == "regression" else what
    return f"solver {plan['solver']} ({plan['why']}), {what}, C = {', '.join(costs)}"


def left_line(event: JsonObject) -> str:
    """Return what is said where a solver is left for another one, from the 'left' event."""
    return f"solver {event['solver']} stalled: {event['why']}; going on with {event['next']}"


ENDS = {"converged": "", "patience": ", stopped by patience"}
"""What the last line says of ends that were asked for; any other is short of the certificate."""


def held_out_text(said: JsonObject) -> tuple[str, str]:
    """Return what the error on held-out rows is, and its value with C and pass; a share of wrong answers is in percent."""
    measure = said.get("measure", "error")
    value = percent(said["error"], 4) if measure == "error" else f"{said['error']:.4g}"
    return measure, f"{value} (C = {said['C']:g}, pass {said['pass']})"


def fit_line(end: JsonObject) -> str:
    """Return the last line of a fit, from its 'done' event: how far from the optimum, and what it took."""
    passes = f"{end['passes']} pass" + ("" if end["passes"] == 1 else "es")
    stopped = ENDS.get(end["status"], f", not certified: {end['status']}")
    rate = end["bytes_read"] / end["seconds"] if end["seconds"] else 0.0
    share, repeated, said = round(100 * end["compute_share"]), end["reads_repeated"], end.get("validation")
    simplex = "on the simplex {:.3g}, {:.3g} as the method saw it".format(*end["simplex"]) if end.get("simplex") else ""
    held = "held-out {} {}".format(*held_out_text(said)) if said else ""
    return " · ".join(
        ([held] if held else [])
        + [
            f"gap {percent(end['gap'])} (primal {end['primal']:.6g}, dual {end['dual']:.6g}"
            + (f", each within {end['rounding']:.1g} by rounding" if _felt(end) else "")
            + f") after {passes}{stopped}",
            *([simplex] if simplex else []),
            f"peak {end['peak'] / MIB:.0f} of {end['limit'] / MIB:.0f} MiB",
            f"read {size_text(end['bytes_read'])} at {size_text(rate)}/s"
            + (f", {repeated} reads only at another try: look at the disk" if repeated else ""),
            f"{share} % compute, {100 - share} % wait",
            str(end["model"]),
        ]
    )
