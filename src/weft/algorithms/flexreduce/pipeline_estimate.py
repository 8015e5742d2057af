"""How long a plan takes for a buffer of some size, estimated from what its links have to carry.

The model is the simulator's (docs/simulation.md): a link carries one piece after the other, and a piece can
be sent on once it has arrived. Everything goes in *rounds*, one piece of every portion in each. Two things
decide how long that takes.

- *Passage*: how long one round alone needs from turn to turn, up all levels and down again. It says when the
  first piece reaches a link, and what is still ahead of the last one when it leaves.
- *Backlog*: what a link has to carry in all rounds. From the first piece on it is busy without a break.

The estimate is the longest of first arrival, backlog and remaining passage over all links. Turns of a ring
without levels count one by one, because links go on with other pieces while one is under way, so that
latencies are hidden; elsewhere the oldest piece goes first, and the last one goes through all turns alone.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from weft import units
from weft.algorithms.flexreduce.exchange_rounds import (
    DIRECT,
    RING,
    find_routes,
    link_load,
    partners,
    select_paths,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from weft.algorithms.flexreduce.exchange_rounds import ExchangePaths
    from weft.algorithms.flexreduce.portion_plans import PortionPlan

    Floats = NDArray[np.float64]

SEGMENT_BYTES: Final = 64 << 10
"""Bytes that a long piece is cut into when it runs: the finest of the sizes that simulations try."""


class _Turn(NamedTuple):
    """Transfers of one turn of one level, for a piece of every portion.

    Parameters
    ----------
    stage
        Turns of one stage are served oldest piece first; those of the next one come after.
    src, dst
        Sender and receiver of each transfer, as their places in a table of all portions at all ranks.
    routes
        Their paths.
    busy
        Seconds that each link is busy with it in all rounds.
    passage
        Seconds of each transfer in one round.
    """

    stage: int
    src: NDArray[np.int64]
    dst: NDArray[np.int64]
    routes: ExchangePaths
    busy: Floats
    passage: Floats


class _Passing(NamedTuple):
    """When links are reached and done, a row per stage.

    Parameters
    ----------
    busy
        Seconds that each link is busy.
    arrives, finish
        When its first piece arrives, and when it has carried all.
    """

    busy: Floats
    arrives: Floats
    finish: Floats


def estimate_seconds(plan: PortionPlan, size_bytes: int, pieces: int) -> float:
    """Seconds that a plan takes.

    Parameters
    ----------
    plan
        Levels and portions.
    size_bytes
        Of the buffer.
    pieces
        Pieces of the largest portion, which follow one another.
    """
    largest = max(float(length) for length in plan.exchanges[-1].lengths)
    rounds = max(float(pieces), largest * size_bytes / SEGMENT_BYTES)
    turns = list(_turns(plan, size_bytes, rounds))
    passing = _pass(plan, turns, rounds)
    backlog = passing.finish - passing.busy / rounds
    if plan.kinds == (RING,):
        backlog += _overtaking(passing, pieces) / rounds
    remaining = _remaining(plan, turns)
    return max(
        float((turn.routes.most(backlog[turn.stage]) + turn.passage + after).max())
        for turn, after in zip(turns, remaining, strict=True)
    )


def _pass(plan: PortionPlan, turns: list[_Turn], rounds: float) -> _Passing:
    """Let the first round through, and all others behind it."""
    stages, links = turns[-1].stage + 1, plan.topology.links
    busy = np.zeros((stages, links))
    for turn in turns:
        busy[turn.stage] += turn.busy
    arrives, finish = np.full((stages, links), np.inf), np.zeros((stages, links))
    first, last = (np.zeros(_places(plan)) for _ in range(2))
    queued, done = np.zeros(links), np.zeros(links)
    # Turns come in the order of their stages.
    for stage, same in groupby(turns, key=lambda turn: turn.stage):
        mine = list(same)
        back = 2 * stage >= stages
        wait = queued if back else np.zeros(links)
        complete = np.zeros(links)
        for turn in mine:
            turn.routes.lift(complete, last[turn.src])
            start = first[turn.src]
            turn.routes.reach(arrives[stage], start, wait)
            passed = np.maximum(start, turn.routes.most(wait))
            _lift(first, turn.dst, passed + turn.passage)
        used = busy[stage] > 0
        done = np.where(used, np.maximum(done, np.where(used, arrives[stage], 0.0)) + busy[stage], done)
        finish[stage] = np.where(used, done, 0.0)
        for turn in mine:
            arrived = turn.routes.most(finish[stage] - busy[stage] / rounds) + turn.passage
            _lift(last, turn.dst, arrived)
        # With levels, what is on its way back waits for a link that got more than it could carry so far. A
        # ring's link gets what the one before it carries.
        if len(plan.kinds) > 1 and not back:
            for turn in mine if plan.kinds[stage] == RING else ():
                turn.routes.lift(complete, last[turn.src])
            queued = np.where(used & (done > complete), done, queued)
    return _Passing(busy, arrives, finish)


def _places(plan: PortionPlan) -> int:
    """Length of a table of all portions at all ranks."""
    return len(plan.exchanges[-1].starts) * plan.topology.ranks


def _lift(table: Floats, place: NDArray[np.int64], value: Floats) -> None:
    """Lift entries of a table in place; each piece has one sender and one receiver at most in a group."""
    table[place] = np.maximum(table[place], value)


def _overtaking(passing: _Passing, pieces: int) -> Floats:
    """Seconds times rounds that a link spends on later turns before the last piece of each turn.

    On a ring piece d is in turn t at step t + d. So by the last piece's turn t, others are up to `pieces` - 1
    turns ahead, as far as they have arrived.
    """
    busy, arrives, finish = passing
    found = np.zeros_like(busy)
    for ahead in range(1, min(pieces - 1, len(busy) - 1)):
        there = arrives[ahead:] < finish[:-ahead]
        found[:-ahead] += np.where(there, busy[ahead:] * (pieces - 1 - ahead), 0.0)
    return found


def _remaining(plan: PortionPlan, turns: list[_Turn]) -> list[Floats]:
    """Seconds that a round alone still takes after each transfer has arrived."""
    after = np.zeros(_places(plan))
    found = []
    for turn in reversed(turns):
        found.append(after[turn.dst])
        _lift(after, turn.src, turn.passage + found[-1])
    return found[::-1]


def _turns(plan: PortionPlan, size_bytes: int, rounds: float) -> Iterator[_Turn]:
    """All turns of both halves, in the order of time."""
    top = plan.exchanges[-1]
    weight = np.array([float(length) for length in top.lengths])
    levels = len(plan.kinds)
    there = [(level, row) for level in range(levels) for row in _level_rows(plan, level)]
    back = [(2 * levels - 1 - level, (piece, dst, src)) for level, (piece, src, dst) in there[::-1]]
    before, load = -1, np.zeros(plan.topology.links)
    # All turns at once: a search goes from one receiver to all its senders, and each turn has all receivers.
    ends = [np.concatenate([row[end] for _, row in [*there, *back]]) for end in (1, 2)]
    paths, first = find_routes(plan.topology, *ends), 0
    for number, (stage, (piece, src, dst)) in enumerate([*there, *back]):
        routes = select_paths(paths, slice(first, first + len(src)))
        first += len(src)
        busy = link_load(plan.topology, routes, weight[piece])[:, 0] * size_bytes
        kind = plan.kinds[min(stage, 2 * levels - 1 - stage)]
        # In a direct exchange whatever comes in an earlier turn goes before; in a ring it is under way.
        load = load + busy if kind == DIRECT and stage == before else busy
        before = stage
        passage = routes.most(load) / rounds + routes.total(plan.topology.latency_ps) / units.PS_PER_S
        at, place = number if plan.kinds == (RING,) else stage, piece * plan.topology.ranks
        yield _Turn(at, place + src, place + dst, routes, busy, passage)


def _level_rows(plan: PortionPlan, level: int) -> list[tuple[NDArray[np.int64], ...]]:
    """Piece, sender and receiver of all transfers of a level, turn by turn."""
    points = len(plan.exchanges[-1].starts)
    found: dict[int, list[tuple[NDArray[np.int64], ...]]] = {}
    for exchange in plan.exchanges:
        if exchange.group.height != level + 1:
            continue
        place = exchange.find(plan.numbers)
        src, dst = partners(plan.kinds[level], exchange.holders[place], exchange.keeper[place])
        piece = np.arange(points)
        for turn in range(len(src)):
            found.setdefault(turn, []).append((piece, src[turn], dst[turn]))
    return [
        tuple(np.concatenate(column) for column in zip(*found[turn], strict=True)) for turn in sorted(found)
    ]
