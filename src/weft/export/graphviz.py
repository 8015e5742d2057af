"""The way of one chunk as a Graphviz drawing: usually a tree, or two.

``weft`` itself draws nothing here: feed the text to ``dot -Tsvg``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from weft.errors import ScheduleError, printable
from weft.schedule.ir import Op

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weft.schedule import Schedule


def to_dot(schedule: Schedule, chunk: int = 0) -> str:
    """Draw all transfers of one chunk as a directed graph in the DOT language.

    Reduces are solid, copies dashed, and an edge is labelled with its step. The rank a chunk belongs to has a
    double rim; a scratch slot is a box beside its rank.

    Raises
    ------
    ScheduleError
        If there is no such chunk.

    Examples
    --------
    >>> from weft.schedule import Op, ScheduleBuilder
    >>> from weft.topology import load_topology
    >>> builder = ScheduleBuilder(load_topology("ring:3"), "broadcast", "star", chunks=1)
    >>> builder.add(step=0, chunk=0, src=0, dst=[1, 2], op=Op.COPY)
    >>> print(to_dot(builder.build()))
    digraph "star" {
      label="broadcast by star on ring:3, chunk 0"
      node [shape=circle]
      "0" [shape=doublecircle]
      "1"
      "2"
      "0" -> "1" [label="0", style=dashed]
      "0" -> "2" [label="0", style=dashed]
    }
    """
    if not 0 <= chunk < schedule.chunks:
        raise ScheduleError(f"there is no chunk {chunk}, the schedule has 0..{schedule.chunks - 1}")
    title = f"{schedule.collective} by {schedule.algorithm} on {schedule.topology.name}, chunk {chunk}"
    lines = [
        f"digraph {quote(schedule.algorithm)} {{",
        f"  label={quote(title)}",
        "  node [shape=circle]",
        *_nodes(schedule, chunk),
        *_edges(schedule, chunk),
        "}",
    ]
    return "\n".join(lines)


def quote(text: str) -> str:
    r"""Text as a DOT string that stands for exactly this text.

    Examples
    --------
    >>> print(quote('a "b" \\ c'))
    "a \"b\" \\ c"
    """
    escaped = printable(text).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _nodes(schedule: Schedule, chunk: int) -> Iterator[str]:
    homes = {int(schedule.source[chunk]), int(schedule.target[chunk])}
    for rank in range(schedule.ranks):
        yield f'  "{rank}"' + (" [shape=doublecircle]" if rank in homes else "")
    scratch = {place for _, *places in _transfers(schedule, chunk) for place in places if place[1]}
    for rank, slot in sorted(scratch):
        yield f'  "{_node(rank, slot)}" [shape=box, label="{rank} slot {slot}"]'


def _edges(schedule: Schedule, chunk: int) -> Iterator[str]:
    for row, read, write in _transfers(schedule, chunk):
        style = "solid" if schedule.op[row] == Op.REDUCE else "dashed"
        step = int(schedule.step[row])
        yield f'  "{_node(*read)}" -> "{_node(*write)}" [label="{step}", style={style}]'


def _node(rank: int, slot: int) -> str:
    return f"{rank}.{slot}" if slot else str(rank)


def _transfers(schedule: Schedule, chunk: int) -> Iterator[tuple[int, tuple[int, int], tuple[int, int]]]:
    """Rows of a chunk, with the (rank, slot) each reads and writes."""
    for row in np.flatnonzero(schedule.chunk == chunk).tolist():
        src_slot = 0 if schedule.src_slot is None else int(schedule.src_slot[row])
        dst_slot = 0 if schedule.dst_slot is None else int(schedule.dst_slot[row])
        yield row, (int(schedule.src[row]), src_slot), (int(schedule.dst[row]), dst_slot)
