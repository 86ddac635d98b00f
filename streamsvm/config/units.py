"""Sizes, durations, counts and numbers as text: parsed from what people write (512MiB, 1h, 5e6), and formatted for people."""

from __future__ import annotations

import math
import re

from streamsvm.errors import UsageError

BINARY = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
DECIMAL = {"kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
NUMBER = r"(\d+(?:\.\d*)?|\.\d+)"


def parse_size(text: str | int) -> int:
    """Return the bytes of a size: '512MiB', '4GiB', '300MB', or a number of bytes. Raises UsageError."""
    scale = BINARY | DECIMAL
    match = re.fullmatch(rf"{NUMBER}\s*({'|'.join(scale)})?", str(text).strip(), re.ASCII)
    if not match:
        raise UsageError(f"'{text}' is not a size", hint="write it as 512MiB, 4GiB, 300MB or a number of bytes")
    nbytes = int(float(match[1]) * scale[match[2] or "B"])
    if nbytes < 1:
        raise UsageError(
            f"a size of '{text}' is less than a byte", hint="write it as 512MiB, 4GiB, 300MB or a number of bytes"
        )
    return nbytes


def parse_duration(text: str | float) -> float:
    """Return the seconds of a duration: '90s', '30m', '1h', '1h30m', or a number of seconds. Raises UsageError."""
    if str(text).strip() == "inf":
        return float("inf")
    written = str(text).replace(" ", "")
    if re.fullmatch(NUMBER, written, re.ASCII):
        return float(written)
    parts = re.findall(rf"{NUMBER}([smhd])", written, re.ASCII)
    if not parts or "".join(number + unit for number, unit in parts) != written:
        raise UsageError(f"'{text}' is not a duration", hint="write it as 90s, 30m, 1h or 1h30m")
    return float(sum(float(number) * SECONDS[unit] for number, unit in parts))


def parse_count(text: str | float) -> int:
    """Parse a whole number: '200', '5e6', '1_000_000'. Raises UsageError."""
    written = str(text).strip()
    if re.fullmatch(r"[+-]?\d+(_\d+)*", written, re.ASCII):
        return int(written)
    number = parse_number(text)
    if not number.is_integer():
        raise UsageError(f"'{text}' is not a whole number", hint="write it as 200, 5e6 or 1_000_000")
    return int(number)


def parse_number(text: str | float) -> float:
    """Parse a number: '0.1', '1e-3'. Raises UsageError."""
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    if math.isnan(number):
        raise UsageError(f"'{text}' is not a number", hint="write it as 0.1 or 1e-3")
    return number


def size_text(nbytes: float) -> str:
    """Format bytes in decimal units with at most three digits: '3.2 GB'."""
    for unit in ("B", "kB", "MB", "GB"):
        if nbytes < 999.5:
            return f"{nbytes:.0f} B" if unit == "B" else f"{nbytes:.3g} {unit}"
        nbytes /= 1000
    return f"{nbytes:.3g} TB"


def seconds_text(seconds: float) -> str:
    """Format seconds: '0.35 s', '12 s', '4 min 05 s', '2 h 10 min'."""
    if seconds < 10:
        return f"{seconds:.2g} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def exact_size_text(nbytes: int) -> str:
    """Format bytes so that ``parse_size`` returns the same number: '4MiB', '300000'."""
    unit = max((name for name, scale in BINARY.items() if nbytes % scale == 0), key=BINARY.__getitem__)
    return f"{nbytes // BINARY[unit]}{unit}" if unit != "B" else str(nbytes)


def duration_text(seconds: float) -> str:
    """Format seconds so that ``parse_duration`` returns the same number: '90s', '1h'."""
    unit = max((name for name, scale in SECONDS.items() if seconds % scale == 0), key=SECONDS.__getitem__, default="s")
    return f"{number_text(seconds / SECONDS[unit])}{unit}" if seconds else "0"


def number_text(number: float) -> str:
    """Format a number with the digits that identify it: '1e-6', '1000', '0.24'."""
    if isinstance(number, int) or (abs(number) < 1e6 and number == int(number)):
        return str(int(number))
    if 0.01 <= abs(number) < 1e6 or not math.isfinite(number):
        return repr(float(number))
    written = next(text for digits in range(18) if float(text := f"{number:.{digits}e}") == number)
    return re.sub(r"e([+-])0*", lambda sign: "e" + sign[1].strip("+"), written)


def memory_text(nbytes: int) -> str:
    """Format an amount of memory: '512 MiB', and from 10 GiB on '13.4 GiB'."""
    return f"{nbytes / BINARY['GiB']:.1f} GiB" if nbytes >= 10 * BINARY["GiB"] else f"{nbytes / BINARY['MiB']:.0f} MiB"


def mib(nbytes: int, *, round_up: bool = False) -> str:
    """Format bytes as whole mebibytes for ``--memory``, rounded to the nearest by default."""
    return f"{-(-nbytes // BINARY['MiB']) if round_up else round(nbytes / BINARY['MiB'])}MiB"


def percent(fraction: float, digits: int = 2) -> str:
    """Format a fraction in percent: '0.081 %', '100 %', '54,300 %'; with an exponent only below 0.0001 and from a million on."""
    value = 100 * fraction
    if not 1.0 <= abs(value) < 1e6 or len(f"{abs(value):.0f}") <= digits:
        return f"{value:.{digits}g} %"
    return f"{value:,.0f} %"
