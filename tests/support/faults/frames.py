"""Frames that are damaged on their way: a job of two ranks for each damage, one after the other.

The stream from one rank to the other in an all-reduce by ``direct`` is known: an opening, then the segments
of both halves, each between a header and its checksum (`cpp/runtime/tcp_link.cpp`). So damage can be aimed at
whole frames, where it is hardest to see, as well as at any byte.
"""

from __future__ import annotations

import gc
import json
import random
import sys
import time
from dataclasses import asdict
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

import weft
from support.faults.damage import Damage, route_through_pumps
from support.faults.rank import SETTLING_S, Report, belongings, describe, find_left
from weft.runtime.operation_queue import SEGMENT_BYTES

RANKS = 2
OPERATIONS = 3
OPERATION_S = 3.0
JOINING_S = 30.0
OPENING_BYTES = 32
SEGMENT_EXTRA_BYTES = 12
"""The header before the elements of a segment, and the checksum behind them."""
ITEM_BYTES = 4
ELEMENTS = RANKS * 2 * SEGMENT_BYTES // ITEM_BYTES
"""Two segments of one size for each half of an all-reduce."""


def frames_of(elements: int) -> list[int]:
    """Bytes of the frames that a rank sends in one all-reduce."""
    share = elements // RANKS
    segment = SEGMENT_BYTES // ITEM_BYTES
    segments = [min(segment, share - first) for first in range(0, share, segment)]
    return [OPENING_BYTES, *(2 * [count * ITEM_BYTES + SEGMENT_EXTRA_BYTES for count in segments])]


def draw_damage(kind: str, chance: random.Random) -> Damage:
    """Any damage of a kind in one of the operations; half of them exactly to frames."""
    frames = frames_of(ELEMENTS) * OPERATIONS
    starts = [0, *accumulate(frames)]
    back = starts[len(frames) // OPERATIONS]
    if chance.random() < 0.5:
        number = chance.choice([n for n in range(len(frames)) if _can_suffer(kind, frames, n)])
        at, length = starts[number], frames[number]
    else:
        at = chance.randrange(1, starts[-2])
        length = chance.choice((1, 3, 4, 8, OPENING_BYTES, 4096, 65_536, chance.randrange(1, 200_000)))
        back = chance.randrange(1, at + 1)
    bits = chance.choice((1, 1, 2, 3, 8, 64, chance.randrange(1, 65)))
    return Damage(kind, chance.randrange(RANKS), at, length, back, bits, chance.randrange(1 << 30))


def _can_suffer(kind: str, frames: list[int], number: int) -> bool:
    """Whether a whole frame can be damaged so: swapped with the next, replaced by an earlier one.

    What follows the very last frame is read by nobody, so that its repetition harms nobody either.
    """
    if kind == "repeat":
        return number < len(frames) - 1
    if kind == "swap":
        return frames[number : number + 2] == [frames[number]] * 2
    return number >= len(frames) // OPERATIONS if kind == "replay" else True


def write_order(folder: Path, damages: list[Damage]) -> None:
    """Leave for the ranks what is to be done."""
    (folder / "case.json").write_text(json.dumps([asdict(damage) for damage in damages]), "utf-8")


def main(folder: Path, rank: int) -> int:
    """Suffer all damages of the folder's order; one line of report each."""
    damages = [Damage(**facts) for facts in json.loads((folder / "case.json").read_text("utf-8"))]
    report = Report(folder / f"rank-{rank}.jsonl")
    before: list[str] = []
    for number, damage in enumerate(damages):
        report.write(number=number, **suffer(damage if damage.rank == rank else None))
        before = before or settled_belongings()
    gc.collect()
    report.write(left=find_left(before, SETTLING_S))
    return 0


def settled_belongings() -> list[str]:
    """What this process has when everything that ends has ended."""
    gc.collect()
    time.sleep(0.3)
    return belongings()


def suffer(damage: Damage | None) -> dict[str, Any]:
    """All-reduces over connections of which one is damaged: how they ended, how many sums were wrong."""
    pumps = route_through_pumps(damage)
    facts: dict[str, Any] = {"end": "done", "wrong": 0}
    with weft.init(transport="tcp", streams=1, algorithm="direct", checksums=True, timeout=JOINING_S) as comm:
        mine = np.arange(ELEMENTS, dtype=np.float32) % 1009 + 1
        total = mine * (comm.size * (comm.size + 1) / 2)
        began = time.monotonic()
        try:
            for _ in range(OPERATIONS):
                array = mine * (comm.rank + 1)
                comm.all_reduce(array, timeout=OPERATION_S)
                facts["wrong"] += int((array != total).sum())
        except Exception as error:  # noqa: BLE001 - whatever it is, it is reported
            facts |= {"end": type(error).__name__, **describe(error)}
        facts["seconds"] = round(time.monotonic() - began, 4)
    # The library has closed its end, so that each pump comes to the end of what it carries.
    facts["damaged"] = any(pump.was_damaged() for pump in pumps)
    return facts


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2])))
