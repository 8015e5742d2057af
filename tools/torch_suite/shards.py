"""Parts of the suite of about equal length, so that each can be run by itself."""

from __future__ import annotations

import re
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


@dataclass(frozen=True)
class Shard:
    """One of several parts, counted from 1.

    Examples
    --------
    >>> Shard.parse("2/4")
    Shard(number=2, of=4)
    """

    number: int
    of: int

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Read ``i/n``.

        Raises
        ------
        ValueError
            If it is no part, such as ``5/4``.
        """
        match = re.fullmatch(r"(\d+)/(\d+)", text)
        if match is None or not 1 <= int(match[1]) <= int(match[2]):
            msg = f"shard {text!r}: expected i/n, such as 1/4, with i from 1 to n"
            raise ValueError(msg)
        return cls(int(match[1]), int(match[2]))

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"


def share(tests: Iterable[str], seconds: Mapping[str, float], shard: Shard) -> list[str]:
    """Tests of a part, in the order of their names.

    The longest are dealt out first, each to the part that is shortest so far. A test whose length is not
    known is taken to be of middle length. The same tests and lengths give the same parts everywhere.
    """
    usual = median(seconds.values()) if seconds else 1.0
    lengths = {test: seconds.get(test, usual) for test in tests}
    parts: list[list[str]] = [[] for _ in range(shard.of)]
    totals = [0.0] * shard.of
    for test in sorted(lengths, key=lambda test: (-lengths[test], test)):
        shortest = min(range(shard.of), key=lambda part: (totals[part], part))
        parts[shortest].append(test)
        totals[shortest] += lengths[test]
    return sorted(parts[shard.number - 1])
