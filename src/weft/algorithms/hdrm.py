"""HDRM: halving-doubling on a BiGraph, with ranks renumbered so that no two flows ever share a link.

A BiGraph has n switches in two halves of h = n/2, every two of different halves wired, and m ranks on each
switch. Halving-doubling on ranks as they come puts several flows on one link in most steps. HDRM gives each
rank a *position* such that in every step partners sit in different halves and each ordered pair of switches
carries one flow.

Why it works
------------
Write a position as v * n + 2y + bit, with v < m and y < h. Positions with an even number of one bits sit in
the upper half on switch ``(y + v) mod h``, the others in the lower half on switch ``y``, all at port v. A
partner differs in one bit, so it is in the other half. Seen from lower switch y, the partners of its m
positions are on upper switches ``y' + v`` with the same y' for all of them; m values of v, at most h, are
different modulo h. So no pair of switches meets twice.

What the paper leaves out
-------------------------
It wants m and n to be powers of two, and m <= h. Here, with `u` parallel links between every two switches
that are joined:

- m <= u * h: of m consecutive values of v, at most u are equal modulo h.
- m that is no power of two: the surplus factor goes into v, and `weft.algorithms.common.halving_rounds` adds
  rounds that shift v to v'. In them lower positions stay on their switch y. Upper ones go from switch
  ``y + v`` to ``y + v'`` by way of lower switch y, which the same argument keeps apart.
- h that is no power of two: y is then split into its odd part and its bits (Chinese remainders), and the
  extra rounds add a constant e to all y. Upper positions travel by way of y as before, lower ones by way of
  upper switch ``y + e + m + v``: together 2m consecutive values of v, so this needs 2m <= u * h.

Ranks may sit behind PCIe switches and NICs of their own, as the GPUs of ``servers:`` with a NIC each do: what
leads from a rank to its switch of the BiGraph is then several links, which nobody else uses
(`weft.algorithms.common.bigraphs`).

Everything else is refused: where a link between two switches is missing, ranks are uneven, or there are more
ranks than links can carry. docs/hdrm.md has the figures.

References
----------
.. [1] J. Dong et al., "EFLOPS: Algorithm and system co-design for a high performance distributed training
   platform", HPCA 2020.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from weft.algorithms.common import halving_rounds
from weft.algorithms.common.bigraphs import NO_LINK, BiGraph, read_bigraph
from weft.errors import UnsupportedError
from weft.schedule import Op, Schedule, ScheduleBuilder

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from weft.topology import Topology

_NAME = "hdrm"
_INSTEAD = "halving_doubling and multitree work on any network"


def all_reduce(topology: Topology) -> Schedule:
    """Reduce-scatter by halving, nearest position first, then all-gather by doubling; no two flows ever meet.

    Parameters
    ----------
    topology
        A BiGraph, by its wiring, with ranks on its switches or behind NICs of their own.

    Returns
    -------
    Schedule
        One chunk per rank, numbered so that each rank sends one message per step (up to two when the number
        of ranks is not a power of two), with an explicit route for each. `weft.schedule.halves` applies.

    Raises
    ------
    UnsupportedError
        If the topology is no BiGraph, or one with too many ranks per switch.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> schedule = all_reduce(load_topology("bigraph:4,8"))
    >>> schedule, schedule.messages
    (<Schedule hdrm all_reduce on bigraph:4,8: 32 chunks, 10 steps, 1984 transfers>, 320)
    >>> all_reduce(load_topology("servers:4x2@nics=2,fabric=bigraph,leaves=4"))
    <Schedule hdrm all_reduce on servers:4x2@nics=2,fabric=bigraph,leaves=4: 8 chunks, 6 steps, 112 transfers>

    Notes
    -----
    Steps: 2 ceil(log2 N). Each rank sends and receives 2 (N - 1)/N of the buffer, over three links to its
    partner in the other half (two to one on the same switch, four to one in the same half), and those that
    lead from a rank to its NIC and back.
    """
    return _apart(topology, "all_reduce")


def reduce_scatter(topology: Topology) -> Schedule:
    """Leave rank r with the sum of the r-th shard: the first half of `all_reduce`.

    Ownership is prescribed, so chunks go by rank and not by position, and a step is one message per chunk.
    Where owners may be free, ``weft.schedule.halves(all_reduce(topology))`` has one message per step.

    Parameters
    ----------
    topology
        A BiGraph, by its wiring.

    Raises
    ------
    UnsupportedError
        As `all_reduce`.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> reduce_scatter(load_topology("bigraph:4,8"))
    <Schedule hdrm reduce_scatter on bigraph:4,8: 32 chunks, 5 steps, 992 transfers>

    Notes
    -----
    Steps: ceil(log2 N). Each rank sends and receives (N - 1)/N of the buffer.
    """
    return _apart(topology, "reduce_scatter")


def all_gather(topology: Topology) -> Schedule:
    """Bring every rank's shard to all ranks: `reduce_scatter` backwards.

    Parameters, errors and cost are those of `reduce_scatter`.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> all_gather(load_topology("bigraph:3,8"))
    <Schedule hdrm all_gather on bigraph:3,8: 24 chunks, 5 steps, 552 transfers>
    """
    return _apart(topology, "all_gather")


class _Seats(NamedTuple):
    """Where each position sits: y and v of the module docstring, half (0 is upper), switch and rank."""

    y: NDArray[np.int64]
    v: NDArray[np.int64]
    half: NDArray[np.int64]
    switch: NDArray[np.int64]
    rank: NDArray[np.int64]


def _apart(topology: Topology, collective: str) -> Schedule:
    network = read_bigraph(topology, _NAME, _INSTEAD)
    m, h, u = network.per_switch, network.per_half, network.uplinks
    odd = h & (h - 1) != 0
    most = u * h // 2 if odd else u * h
    if m > most:
        needed = -(-(2 * m if odd else m) // h)
        why = f", since {h} is no power of two" if odd else ""
        reason = (
            f"{topology.name} has {m} ranks on each switch, {most} is the most that its links can serve{why}"
        )
        raise UnsupportedError(_NAME, reason, f"with uplinks={needed} it would work; {_INSTEAD}")
    seats = _seat(network)
    builder = ScheduleBuilder(topology, collective, _NAME)
    halving_rounds.add_collective(builder, seats.rank, "nearest")
    return _with_routes(builder.build(), network, seats)


def _seat(network: BiGraph) -> _Seats:
    m, h = network.per_switch, network.per_half
    bits_v, bits_y = ((count & -count).bit_length() - 1 for count in (m, h))
    odd_y = h >> bits_y
    position = np.arange(2 * m * h)
    block, inside = position >> (bits_v + bits_y + 1), position & ((2 << (bits_v + bits_y)) - 1)
    low = inside >> 1 & ((1 << bits_y) - 1)
    # The y below h that is `low` modulo its power of two and `block` modulo its odd part.
    y = low + ((block - low) * pow(1 << bits_y, -1, odd_y) % odd_y << bits_y)
    v = (block // odd_y << bits_v) + (inside >> (bits_y + 1))
    half = np.bitwise_count(inside).astype(np.int64) & 1
    switch = np.where(half == 0, (y + v) % h, y)
    return _Seats(y, v, half, switch, network.ranks[half, switch, v])


def _with_routes(schedule: Schedule, network: BiGraph, seats: _Seats) -> Schedule:
    """Give every row its path; in one step a rank sends to one other, so rows keep their order."""
    key = schedule.step.astype(np.int64) * schedule.ranks + schedule.src
    _, first, flow = np.unique(key, return_index=True, return_inverse=True)
    position = np.argsort(seats.rank)
    src, dst = position[schedule.src[first]], position[schedule.dst[first]]
    paths = _find_paths(network, seats, schedule.step[first], src, dst, schedule.op[first] == Op.REDUCE)
    table, number = np.unique(paths, axis=0, return_inverse=True)
    used = table != NO_LINK
    return replace(
        schedule,
        route=number.ravel()[flow.ravel()].astype(np.int32),
        route_offsets=np.concatenate([[0], np.cumsum(used.sum(axis=1))]),
        route_links=table[used],
    )


def _find_paths(
    network: BiGraph,
    seats: _Seats,
    step: NDArray[np.int32],
    src: NDArray[np.int64],
    dst: NDArray[np.int64],
    halving: NDArray[np.bool_],
) -> NDArray[np.int32]:
    """Links of each flow between two positions: out to a switch, up to two between switches, and in."""
    switches = network.per_half
    start, end = (seats.half[at] * switches + seats.switch[at] for at in (src, dst))
    same_half = seats.half[src] == seats.half[dst]
    # A doubling step is a halving step backwards, and so are its paths.
    middle = _middle(network, seats, np.where(halving, src, dst), np.where(halving, dst, src))
    hops = np.stack([np.stack([start, np.where(same_half, middle, end)]), np.stack([middle, end])])
    taken = np.stack([start != end, same_half & (start != end)])
    before, after = hops[:, 0][taken], hops[:, 1][taken]
    where = np.tile(step, (2, 1))[taken].astype(np.int64)
    copy = _count_equals((where * 2 * switches + before) * 2 * switches + after)
    assert copy.max(initial=0) < network.uplinks, "proved in the module docstring"
    between = np.full(taken.shape, NO_LINK, np.int32)
    between[taken] = network.across[before // switches, before % switches, after % switches, copy]
    return np.hstack([network.up[seats.rank[src]], between.T, network.down[seats.rank[dst]]])


def _middle(
    network: BiGraph, seats: _Seats, tail: NDArray[np.int64], head: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Switch of the other half by way of which a flow between two switches of one half goes."""
    shifted = seats.y[head] + network.per_switch + seats.v[tail]
    upper = network.per_half + seats.y[tail]
    return np.where(seats.half[tail] == 0, upper, shifted % network.per_half)


def _count_equals(key: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many equal entries come before each.

    Examples
    --------
    >>> _count_equals(np.array([7, 5, 7, 7, 5])).tolist()
    [0, 0, 1, 2, 1]
    """
    order = np.argsort(key, kind="stable")
    ordered = key[order]
    count = np.empty(len(key), np.int64)
    count[order] = np.arange(len(key)) - np.searchsorted(ordered, ordered)
    return count
