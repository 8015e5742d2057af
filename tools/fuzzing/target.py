"""What a fuzz target is, and the limits of its inputs."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

Chance = random.Random

MAX_WORK: Final = 2e7
"""Operations that verifying or simulating one input may take: some hundredths of a second."""

MOST_BYTES: Final = 1 << 20
MOST_RANKS: Final = 16
MOST_LINKS: Final = 2000
MOST_SEGMENTS: Final = 20_000


@dataclass(frozen=True)
class Target:
    """One reader.

    Parameters
    ----------
    make
        An input.
    read
        Reads it; True if it was taken and not refused. What it raises beyond `WeftError` is a finding.
    """

    make: Callable[[Chance], bytes]
    read: Callable[[bytes], bool]


class WrongResult(AssertionError):
    """What was read is not what it should be."""
