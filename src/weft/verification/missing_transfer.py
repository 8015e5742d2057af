"""Which transfer a schedule lacks, where a result has not got every contribution.

The last write of an incomplete result is rarely the fault: more often a transfer that should have come after
it, or much earlier and elsewhere, does not exist. So the one chunk is replayed once more, with the sets of
ranks whose contributions each place holds, and where a missing contribution comes to a halt is told.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from weft.errors import list_some
from weft.schedule import Op
from weft.schedule.ir import EVERY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.schedule import Schedule

_Place = tuple[int, int]  # rank, slot


def describe_missing_transfer(
    schedule: Schedule, chunk: int, rank: int, missing: Sequence[int]
) -> str | None:
    """Say where the missing contributions of a result stop.

    Parameters
    ----------
    schedule
        Any legal schedule without hazards in the chunk.
    chunk, rank
        The result that is not complete.
    missing
        The ranks whose contributions it lacks.

    Returns
    -------
    str or None
        The missing transfer in words; None if the result was complete once, and a later transfer spoilt it.
    """
    wanted = range(schedule.ranks) if int(schedule.source[chunk]) == EVERY else [int(schedule.source[chunk])]
    whole = sum(1 << one for one in wanted)
    complete, reached = _replay(schedule, chunk, whole, missing[0])
    if rank in complete:
        return None
    if complete:
        first = min(complete, key=lambda one: (complete[one], one))
        holders = _name(sorted(complete))
        held = f"{holders} {'hold' if len(complete) > 1 else 'holds'} all of it"
        since = f"rank {first} since step {complete[first]}" if complete[first] >= 0 else "from the start"
        return f"{held} ({since}), and no later transfer brings it to rank {rank}"
    where = _name(sorted(reached))
    if reached == {missing[0]}:
        return f"no transfer takes what rank {missing[0]} contributes to another rank in time"
    return f"what rank {missing[0]} contributes comes to {where} and no further"


def _replay(schedule: Schedule, chunk: int, whole: int, missing: int) -> tuple[dict[int, int], set[int]]:
    """The step at which each rank's result was complete first, and the ranks that a contribution came to.

    Contributions are bits, so that one that is counted twice looks like one: what is counted twice is told
    elsewhere.
    """
    rows = np.flatnonzero(schedule.chunk == chunk)
    rows = rows[np.argsort(schedule.step[rows], kind="stable")]
    source = int(schedule.source[chunk])
    starting = range(schedule.ranks) if source == EVERY else [source]
    values: dict[_Place, int] = {(rank, 0): 1 << rank for rank in starting}
    complete = {rank: -1 for (rank, _), value in values.items() if value == whole}
    reached = {missing}
    for step, group in groupby(rows.tolist(), key=lambda row: int(schedule.step[row])):
        among = list(group)
        sent = [values.get(_place(schedule, row, "src"), 0) for row in among]  # reads come before writes
        for row, value in zip(among, sent, strict=True):
            place = _place(schedule, row, "dst")
            values[place] = value | (values.get(place, 0) if schedule.op[row] == Op.REDUCE else 0)
            if place[1] == 0 and values[place] == whole:
                complete.setdefault(place[0], step)
            if values[place] >> missing & 1:
                reached.add(place[0])
    return complete, reached


def _place(schedule: Schedule, row: int, end: str) -> _Place:
    slots = getattr(schedule, f"{end}_slot")
    return int(getattr(schedule, end)[row]), 0 if slots is None else int(slots[row])


def _name(ranks: Sequence[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {list_some(map(str, ranks))}"
