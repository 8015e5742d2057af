"""Text from anywhere made fit for a terminal: one line, no control characters, bounded."""

from __future__ import annotations

from weft.errors import shorten


def printable(text: str) -> str:
    r"""Spell out what a terminal would obey instead of show.

    Examples
    --------
    >>> printable("a\x1b[31mb")
    'a\\x1b[31mb'
    """
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)


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
