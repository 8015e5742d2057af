"""RCCL's lists of rings for boxes of 8 GPUs each of which has a cable to every other.

References
----------
.. [1] ROCm/rccl, src/graph/rome_models.cc at commit 0cbce2a, October 2024: rome_model_79 (no interfaces),
   rome_model_81 (8 interfaces), parseA2a8P (which list is for which box), parseGraph (reversed paths).
"""

from __future__ import annotations

from typing import Final

GPUS: Final = 8


def _paths(text: str) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(map(int, word)) for word in text.split())


_ALONE: Final = _paths("01234567 01234576 02413657 02461735 03152746 03516274 04173625")
"""Rings of one box, each of which there is in both directions."""

_BETWEEN: Final = _paths("01234567 10243576 25036174 37042165 46273051 54713260 63140752 72064153")
"""Paths through a box, in the order of the channels."""

_LAST_BUT_ONE: Final = _paths("74132065 63075142 46217053 52731604 10243576 01234567 25036471 37261540")
_LAST: Final = _paths("54271630 25037461 36405172 47065213 62075314 73260415 10243576 01234567")
"""The same in the last two boxes of an odd number."""


def visiting_orders(boxes: int) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """For each channel and each box the places of its GPUs in the order in which they are visited.

    Examples
    --------
    >>> visiting_orders(2)[3]
    ((3, 7, 0, 4, 2, 1, 6, 5), (5, 6, 1, 2, 4, 0, 7, 3))
    """
    if boxes == 1:
        return tuple((ring,) for ring in (*_ALONE, *(path[::-1] for path in _ALONE)))
    whole = boxes - 2 if boxes % 2 else boxes
    tails = (_LAST_BUT_ONE, _LAST) if boxes % 2 else ()
    return tuple(
        (
            *(path[::-1] if box % 2 else path for box in range(whole)),
            *(tail[channel] for tail in tails),
        )
        for channel, path in enumerate(_BETWEEN)
    )
