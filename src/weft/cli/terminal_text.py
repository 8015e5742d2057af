"""Text from anywhere made fit for a terminal: one line, no control characters, bounded."""

from __future__ import annotations

from weft.errors import printable, shorten

__all__ = ["one_line", "printable"]


def one_line(text: str, longest: int) -> str:
    r"""Collapse white space, spell out control characters, and cut out the middle of what is too long.

    Examples
    --------
    >>> one_line("first\n   second", 100)
    'first second'
    >>> one_line("x" * 50 + "end", 20)
    'xxxxxxxx ... xxxxend'
    """
    return shorten(printable(" ".join(text.split())), longest)
