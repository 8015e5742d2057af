"""Numbers, deviations and verdicts of claims as people read them, on the page and in the terminal."""

from __future__ import annotations

from typing import Final

from weft.papers.claims import FACTOR

VERDICT_TEXTS: Final = {
    "within_10": "within 10 %",
    "within_25": "within 25 %",
    "not_reproduced": "not reproduced",
    "no_number": "no number",
}


def number_text(value: float | None, unit: str, *, at_most: bool = False) -> str:
    """Text for a number with its unit.

    Examples
    --------
    >>> number_text(2.67, "x", at_most=True)
    'up to 2.67x'
    >>> number_text(1.0, "x"), number_text(3.0, " %")
    ('1.00x', '3 %')
    >>> number_text(None, "x")
    'no number'
    """
    if value is None:
        return "no number"
    digits = f"{value:#.3g}" if unit == FACTOR else f"{value:.3g}"
    return f"{'up to ' if at_most else ''}{digits}{unit}"


def deviation_text(deviation: float | None) -> str:
    """Text for a deviation; empty where there is none.

    Examples
    --------
    >>> deviation_text(-0.0691)
    '-7 %'
    """
    return "" if deviation is None else f"{100 * deviation:+.0f} %"
