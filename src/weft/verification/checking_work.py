"""How much work the checks of a schedule are, before any of it is done.

In operations as `weft.limits.MAX_WORK` counts them, right within a factor of a few. The figures are those of
the loops in ``cpp/verification/semantics.cpp`` and ``cpp/verification/deadlock.cpp``, measured on an ordinary
processor.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np

from weft.schedule.ir import EVERY
from weft.verification.semantics import BLOCK_BYTES

if TYPE_CHECKING:
    from weft.schedule import Schedule

_CHUNK: Final = 20.0
_ROW: Final = 100.0
"""A transfer in all checks, whatever it carries."""

_REPLAYED_ROW: Final = 40.0
"""The same in one replay; a chunk with many contributors and many places takes several."""

_REDUCED_WORD: Final = 1.0
_COPIED_WORD: Final = 0.4
"""64 contributors in one transfer."""

_SEARCHED_ROW: Final = 20.0


def bound_checks(schedule: Schedule) -> float:
    """At least as much as `estimate_checks` says, without a look at the transfers."""
    words = -(-schedule.ranks // 64)
    of_row = _ROW + words * (_REDUCED_WORD + _REPLAYED_ROW)
    return _CHUNK * schedule.chunks + of_row * schedule.transfers


def estimate_checks(schedule: Schedule) -> float:
    """Operations of all checks of a right schedule, but for the search of the fewest slots."""
    rows = schedule.transfers
    sums = bool((schedule.source == EVERY).any())
    words = -(-schedule.ranks // 64) if sums else 1
    reduces = int(np.count_nonzero(schedule.op))
    moved = words * (_REDUCED_WORD * reduces + _COPIED_WORD * (rows - reduces))
    replayed = _REPLAYED_ROW * _count_replayed(schedule, words)
    return _CHUNK * schedule.chunks + _ROW * rows + moved + replayed


def _count_replayed(schedule: Schedule, words: int) -> float:
    """How often a transfer is replayed, all together: once for each block of contributors of its chunk."""
    if words == 1:
        return schedule.transfers
    of_chunk = np.bincount(schedule.chunk)
    places = np.clip(2 * of_chunk, 1, schedule.ranks * schedule.slots)
    blocks = np.ceil(words / np.maximum(1, BLOCK_BYTES // 8 // places))
    return float(blocks @ of_chunk)


def estimate_slot_search(schedule: Schedule) -> float:
    """Operations of finding the fewest receive slots: by doubling and bisection, a search each time."""
    return _SEARCHED_ROW * schedule.transfers * math.log2(schedule.messages + 2)
