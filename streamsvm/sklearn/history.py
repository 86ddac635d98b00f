"""The passes of a fit as a table."""

from __future__ import annotations

from typing import Any

from streamsvm.aliases import JsonObject


def shown(passes: list[JsonObject]) -> Any:
    """Return records of passes as a data frame of pandas, or as they are where that is not installed."""
    try:
        import pandas as pd
    except ModuleNotFoundError:
        return passes
    return pd.DataFrame(passes)
