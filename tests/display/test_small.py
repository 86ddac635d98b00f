"""What a terminal shows in small: the curve of the gap, the bar of memory, the card at the end."""

from __future__ import annotations

import math

from streamsvm.display.terminal import CURVE_PASSES, Progress, draw_fit_card, draw_gap_curve, draw_memory

MIB = 1 << 20


def test_terminal_curve_falls_as_the_gap_does() -> None:
    assert draw_gap_curve([1.0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7]) == "█▇▆▅▄▃▂▁"
    assert draw_gap_curve([0.5, 0.5]) == "▁▁"
    assert draw_gap_curve([0.5]) == draw_gap_curve([]) == ""
    assert draw_gap_curve([0.0, math.nan, math.inf, 0.1, 0.01]) == "█▁"
    assert len(draw_gap_curve([0.9**k for k in range(100)])) == CURVE_PASSES


def test_terminal_bar_is_full_at_the_limit_and_not_beyond() -> None:
    assert draw_memory(113 * MIB, 512 * MIB) == "███░░░░░░░ 113 of 512 MiB"
    assert draw_memory(512 * MIB, 512 * MIB) == "██████████ 512 of 512 MiB"
    assert draw_memory(600 * MIB, 512 * MIB).startswith("██████████ 600")


def test_terminal_card_says_how_it_ended() -> None:
    end = {
        "gap": 4e-6, "tolerance": 1e-3, "primal": 680892.7, "dual": 680891.4, "passes": 3, "seconds": 3.5,
        "compute_share": 0.99, "bytes_read": 205_200_000, "peak": 113 * MIB, "limit": 512 * MIB, "model": "m.ssvm",
    }  # fmt: skip
    card = draw_fit_card(end)
    assert card[0] == "  certified       gap 0.0004 % of 0.1 % asked for"
    assert "  model           m.ssvm" in card
    assert draw_fit_card(end | {"gap": 0.5})[0].startswith("  NOT certified   gap 50 %")
    held = {"error": 0.282, "C": 1.0, "pass": 2}
    assert "  held-out error  28.2 % (C = 1, pass 2)" in draw_fit_card(end | {"validation": held})


def test_progress_on_a_terminal_has_both() -> None:
    progress = Progress()
    progress.take({"event": "plan", "limit": 512 * MIB})
    for number, gap in enumerate((0.5, 0.05), 1):
        progress.take({"event": "pass", "pass": number, "gap": gap, "seconds": 1.0 * number, "memory": 113 * MIB})
    assert progress.render() == "█▁ gap 5 %, ███░░░░░░░ 113 of 512 MiB"
    assert progress.details() == "gap 5 %, 113 MiB"
