"""Swing: partners to and fro at distances 1, 1, 3, 5, 11, ..: few steps, and near neighbours on a torus.

At step s rank r meets rank r + (-1)^r * rho(s) of its ring, with rho(s) = (1 - (-2)^(s+1)) / 3. Recursive
halving meets ranks at distances 1, 2, 4, ..; swinging back and forth reaches as many in as many steps,
but no further than a third of that sum away from home, so that messages cross fewer links. On a torus the
steps take the axes in turn. One such exchange uses one link of a rank at a time, so the buffer is cut
into equal parts that start along different axes, each once as it is and once mirrored: a part per link.

What a rank sends in a step are the chunks of all ranks that its partner still reaches in later steps.
Those sets are nested like the ranges of recursive halving, so that chunks can be numbered to make each
message one run.

References
----------
.. [1] D. De Sensi et al., "Swing: Short-cutting Rings for Higher Bandwidth Allreduce", NSDI 2024,
   arXiv:2401.09356, sections 3 and 4.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from weft import limits
from weft.algorithms.common.blocks import Blocks
from weft.algorithms.common.grids import grid_axes
from weft.algorithms.common.ring_orders import ring_order
from weft.errors import UnsupportedError
from weft.schedule import Op, ScheduleBuilder

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from weft.schedule import Schedule
    from weft.topology import Topology

_NAME: Final = "swing"
_INSTEAD: Final = "use ring or bucket"


def all_reduce(topology: Topology) -> Schedule:
    """Sum every rank's buffer at every rank, in a reduce-scatter and an all-gather of log2 N steps each.

    Parameters
    ----------
    topology
        Any cluster with a power of two ranks; made for tori. Without a grid the ranks form one ring, in the
        order of `weft.algorithms.common.ring_orders.ring_order`.

    Returns
    -------
    Schedule
        One part per direction of a grid, two on other direct networks, one on switched ones. Each message
        is one run of chunks.

    Raises
    ------
    UnsupportedError
        If the number of ranks is not a power of two.
    LimitError
        If the table of transfers, 2N(N-1) per part, grows too large.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> schedule = all_reduce(load_topology("torus:4x4"))
    >>> schedule.steps, schedule.messages
    (8, 512)

    Notes
    -----
    Cost: 2 log2 N steps. Each rank sends 2(N-1)/N of the buffer, the least possible, but over more than one
    link where partners are apart: on a torus of D equal sides the links carry 1.19 (D = 2) or 1.03 (D = 3)
    times the least in the limit of many ranks.
    """
    return _swing(topology, "all_reduce", (Op.REDUCE, Op.COPY))


def reduce_scatter(topology: Topology) -> Schedule:
    """Sum every rank's buffer; rank r ends with the sum of the r-th shard.

    Parameters
    ----------
    topology
        As in `all_reduce`.

    Returns
    -------
    Schedule
        One chunk per rank and part, with prescribed ownership.

    Raises
    ------
    UnsupportedError
        If the number of ranks is not a power of two.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> reduce_scatter(load_topology("switch:8")).steps
    3

    Notes
    -----
    Cost: log2 N steps; half the bytes of `all_reduce`.
    """
    return _swing(topology, "reduce_scatter", (Op.REDUCE,))


def all_gather(topology: Topology) -> Schedule:
    """Hand every rank's shard to every rank.

    Parameters, result, errors and cost are those of `reduce_scatter`.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> all_gather(load_topology("torus:2x8")).steps
    4
    """
    return _swing(topology, "all_gather", (Op.COPY,))


@dataclass(frozen=True, eq=False)
class _Line:
    """Ranks as a set of rings of one size: the whole order, or one axis of a grid."""

    size: int
    at: NDArray[np.int64]
    members: NDArray[np.int64]
    """For each rank, all ranks of its ring by place."""

    def partners(self, turn: int, mirrored: bool) -> NDArray[np.int64]:
        """Partner of each rank in this ring's `turn`-th exchange."""
        distance = (1 - (-2) ** (turn + 1)) // 3
        sign = np.where((self.at % 2 == 1) != mirrored, -1, 1)
        place = (self.at + sign * distance) % self.size
        return np.take_along_axis(self.members, place[:, None], axis=1)[:, 0]


def _swing(topology: Topology, collective: str, rounds: tuple[Op, ...]) -> Schedule:
    ranks = topology.ranks
    if ranks & (ranks - 1):
        raise UnsupportedError(_NAME, f"needs a power of two ranks, there are {ranks}", _INSTEAD)
    rows = len(rounds) * ranks * (ranks - 1)
    limits.check(f"{_NAME}: transfers of one part", rows, limits.MAX_TRANSFERS)
    lines, note = _lines(topology)
    parts = _part_partners(lines, single=not topology.direct)
    limits.check(f"{_NAME}: transfers", rows * len(parts), limits.MAX_TRANSFERS)
    builder = ScheduleBuilder(topology, collective, _NAME, chunks=len(parts) * ranks)
    blocks = Blocks()
    owners = []
    for index, partners in enumerate(parts):
        number = _nested_numbers(partners)
        owners.append(np.argsort(number))
        _add_part(blocks, partners, number + index * ranks, rounds)
    blocks.write(builder, owners if collective != "all_reduce" else ())
    builder.note(note)
    return builder.build()


def _lines(topology: Topology) -> tuple[list[_Line], str]:
    ranks = np.arange(topology.ranks)
    if topology.grid is None:
        order, note = ring_order(topology)
        ring = np.array(order)
        return [_Line(topology.ranks, np.argsort(ring), np.tile(ring, (topology.ranks, 1)))], note
    lines = []
    for axis in grid_axes(topology, _NAME, _INSTEAD):
        first = ranks - axis.at * axis.stride
        lines.append(_Line(axis.size, axis.at, first[:, None] + np.arange(axis.size) * axis.stride))
    return lines, f"axes in turn: {'x'.join(str(line.size) for line in lines)}"


def _part_partners(lines: list[_Line], *, single: bool) -> list[list[NDArray[np.int64]]]:
    """Partners of every rank in each step, for each part."""
    # In a ring of two the mirror image is the same exchange.
    mirrors = (False,) if single or all(line.size == 2 for line in lines) else (False, True)
    starts = range(1 if single else len(lines))
    return [
        [lines[k].partners(turn, m) for k, turn in _turns(lines, start)] for m in mirrors for start in starts
    ]


def _turns(lines: list[_Line], start: int) -> list[tuple[int, int]]:
    """Which line each step uses, and how often it was used before: round robin until each is through."""
    waiting = [line.size.bit_length() - 1 for line in lines]
    turns = []
    for turn in range(max(waiting)):
        for offset in range(len(lines)):
            k = (start + offset) % len(lines)
            if turn < waiting[k]:
                turns.append((k, turn))
    return turns


def _nested_numbers(partners: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Give the chunk of each rank a number such that what is sent together is consecutive.

    The chunks that rank r is still responsible for after step s are r's own and those of the ranks it reaches
    later. The least rank among them names the set; the sets are nested, so sorting by the names from the
    widest to the narrowest puts each set in one run.
    """
    names = [np.arange(len(partners[0]))]
    for partner in partners[:0:-1]:
        names.append(np.minimum(names[-1], names[-1][partner]))
    number = np.empty_like(names[0])
    number[np.lexsort(names)] = np.arange(len(number))
    return number


def _add_part(
    blocks: Blocks, partners: list[NDArray[np.int64]], number: NDArray[np.int64], rounds: tuple[Op, ...]
) -> None:
    steps = len(partners)
    first, count = number, 1
    for step in reversed(range(steps)):
        partner = partners[step]
        for index, op in enumerate(rounds):
            blocks.add(
                step=index * steps + (step if op == Op.REDUCE else steps - 1 - step),
                src=np.arange(len(number)),
                dst=partner,
                op=op,
                first=first[partner] if op == Op.REDUCE else first,
                count=count,
            )
        first, count = np.minimum(first, first[partner]), 2 * count
