"""Numbers that a page can show, whoever wrote the document: no negative times, nothing infinite, no NaN."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

_MOST: Final = 1e15
"""Seconds of a run, or samples in a second; no real ones are more."""

Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=_MOST)]
Number = Annotated[float, msgspec.Meta(ge=-1e300, le=1e300)]


def find_quantity(value: object) -> float | None:
    """A value of a document that has no form, if it is a quantity that a page can show, such as seconds.

    Examples
    --------
    >>> find_quantity(2), find_quantity("2"), find_quantity(-1.0), find_quantity(float("nan"))
    (2.0, None, None, None)
    """
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= _MOST:
        return float(value)
    return None
