"""Slurm's hostlists: ``node[001-064,070],login1`` names 66 machines in a few characters.

A name may have several lists in brackets, the last one counting fastest, and numbers keep the zeros they are
written with. A few characters can name more machines than any memory holds, so names are counted before they
are written out.
"""

from __future__ import annotations

import re
from itertools import product
from typing import TYPE_CHECKING, Final, NoReturn

from weft import limits
from weft.errors import FormatError, quote

if TYPE_CHECKING:
    from collections.abc import Callable

_PART: Final = re.compile(r"[^\[\],\s]+|\[[^\[\]]*\]")
_RANGE: Final = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")
_NAME: Final = re.compile(r"[A-Za-z0-9_.\-]+")
_NUMBERED: Final = re.compile(r"(.*?)([0-9]+)")


def expand_hostlist(text: str, source: str, place: str = "") -> list[str]:
    """Names that a hostlist stands for, in its order.

    Parameters
    ----------
    text
        The hostlist.
    source, place
        The file, and where in it, for error messages.

    Raises
    ------
    FormatError
        If it is no hostlist.
    LimitError
        If it names more machines than Weft accepts.

    Examples
    --------
    >>> expand_hostlist("gpu[09-11],login1", "topology.conf")
    ['gpu09', 'gpu10', 'gpu11', 'login1']
    >>> expand_hostlist("r[1-2]n[1,3]", "topology.conf")
    ['r1n1', 'r1n3', 'r2n1', 'r2n3']
    """

    def fail(problem: str) -> NoReturn:
        raise FormatError(source, f"{problem} in the hostlist {quote(text)}", place)

    names: list[str] = []
    for word in _split(text, fail):
        pieces = _PART.findall(word)
        if not pieces or "".join(pieces) != word:
            fail("brackets that do not match")
        choices = [_choices(piece, fail) for piece in pieces]
        count = 1
        for choice in choices:
            count *= len(choice)
            limits.check(f"{source}: machines", count + len(names), limits.MAX_RANKS)
        names.extend("".join(parts) for parts in product(*choices))
    return names


def _split(text: str, fail: Callable[[str], NoReturn]) -> list[str]:
    """Words between the commas that are outside of brackets."""
    words, depth, start = [], 0, 0
    for index, character in enumerate(text):
        depth += {"[": 1, "]": -1}.get(character, 0)
        if character == "," and depth == 0:
            words.append(text[start:index].strip())
            start = index + 1
    words.append(text[start:].strip())
    if not all(words):
        fail("an empty name")
    return words


def _choices(piece: str, fail: Callable[[str], NoReturn]) -> list[str]:
    """Alternatives of one part of a name: a fixed text, or the numbers in brackets."""
    if not piece.startswith("["):
        if not _NAME.fullmatch(piece):
            fail(f"the name {quote(piece)}, where only letters, digits, '-', '_' and '.' may be,")
        return [piece]
    found: list[str] = []
    for part in piece[1:-1].split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            fail(f"the range {quote(part)}, expected one such as 001-064,")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            fail(f"the range {quote(part)}, which ends before it begins,")
        limits.check(f"numbers of {quote(part)}", last - first + 1 + len(found), limits.MAX_RANKS)
        found.extend(str(number).zfill(len(match[1])) for number in range(first, last + 1))
    return found


def format_hostlist(names: list[str]) -> str:
    """Write names as a short hostlist that stands for them, in their order.

    Examples
    --------
    >>> format_hostlist(["gpu09", "gpu10", "gpu11", "gpu14", "login"])
    'gpu[09-11,14],login'
    """
    words: list[str] = []
    runs: list[list[str]] = []
    prefix: str | None = None

    def close() -> None:
        if runs:
            ranges = [run[0] if len(run) == 1 else f"{run[0]}-{run[1]}" for run in runs]
            alone = len(ranges) == 1 and "-" not in ranges[0]
            words.append(f"{prefix}{ranges[0]}" if alone else f"{prefix}[{','.join(ranges)}]")
            runs.clear()

    for name in names:
        match = _NUMBERED.fullmatch(name)
        if match is None or len(match[2]) > 18:
            close()
            prefix = None
            words.append(name)
            continue
        if match[1] != prefix:
            close()
            prefix = match[1]
        digits = match[2]
        if runs and str(int(runs[-1][-1]) + 1).zfill(len(runs[-1][0])) == digits:
            runs[-1] = [runs[-1][0], digits]
        else:
            runs.append([digits])
    close()
    return ",".join(words)
