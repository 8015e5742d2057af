"""A schedule as people read it: a header, then one line per message.

The form is stable and golden-tested, so that two printed schedules can be compared with ``diff``. It is not
meant to be read back: `weft.schedule.codec` has the forms for that.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np

from weft.errors import printable
from weft.notebook_display import html_card
from weft.schedule.chunks import owners
from weft.schedule.ir import DEFAULT_ROUTE, Op
from weft.units import count

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from weft.schedule.ir import Schedule

_MAX_LISTED: Final = 16
"""Numbers shown of a list before it is cut short."""


def format_schedule(schedule: Schedule, *, max_rows: int = 200) -> str:
    """Print a schedule into a string.

    Parameters
    ----------
    schedule
        What to print.
    max_rows
        Most messages to print; the rest is counted in the last line.

    Examples
    --------
    >>> from weft.schedule import Op, ScheduleBuilder
    >>> from weft.topology import load_topology
    >>> builder = ScheduleBuilder(load_topology("ring:4"), "broadcast", "chain", chunks=2)
    >>> for rank in range(3):
    ...     builder.add(step=rank, chunk=[0, 1], src=rank, dst=rank + 1, op=Op.COPY)
    >>> print(format_schedule(builder.build(), max_rows=2))
    broadcast by chain on ring:4
      topology   ...
      chunks     2, equal
      steps      3
      transfers  6 in 3 messages
      root       0
      digest     ...
    <BLANKLINE>
    step 0   0 -> 1   copy    chunks 0..1
    step 1   1 -> 2   copy    chunks 0..1
    ... 1 more message
    """
    lines = list(_header(schedule))
    shown = min(schedule.messages, max(max_rows, 0))
    if schedule.messages:
        lines.append("")
    lines.extend(_message_lines(schedule, shown))
    if rest := schedule.messages - shown:
        lines.append(f"... {count(rest, 'more message')}")
    return "\n".join(lines)


def format_weights(schedule: Schedule) -> str:
    """How the buffer is cut, in a few words.

    Examples
    --------
    >>> from weft.schedule import ScheduleBuilder
    >>> from weft.topology import load_topology
    >>> format_weights(ScheduleBuilder(load_topology("ring:4"), "all_reduce", "x", weights=[2, 4, 2]).build())
    '3, weights 1 2 1 of 4'
    """
    weights = schedule.weights
    if bool((weights == weights[0]).all()):
        return f"{schedule.chunks:,}, equal" if schedule.chunks > 1 else "1"
    common = math.gcd(schedule.denominator, int(np.gcd.reduce(weights)))
    listed = _listed((weights[: _MAX_LISTED + 1] // common).tolist(), schedule.chunks)
    return f"{schedule.chunks:,}, weights {listed} of {schedule.denominator // common}"


def _header(schedule: Schedule) -> Iterator[str]:
    topology = schedule.topology
    yield f"{schedule.collective} by {printable(schedule.algorithm)} on {printable(topology.name)}"
    yield f"  topology   {topology.digest[:12]}"
    yield f"  chunks     {format_weights(schedule)}"
    yield f"  steps      {schedule.steps:,}"
    yield f"  transfers  {schedule.transfers:,} in {count(schedule.messages, 'message')}"
    owner = owners(schedule)
    if owner is not None:
        of_chunks = ""
        if schedule.ownership == "free":
            of_chunks = f", owners {_listed(owner[: _MAX_LISTED + 1].tolist(), schedule.chunks)}"
        yield f"  ownership  {schedule.ownership}{of_chunks}"
    if schedule.root is not None:
        yield f"  root       {schedule.root}"
    for note in schedule.notes:
        yield f"  note       {printable(note)}"
    yield f"  digest     {schedule.digest}"


def _message_lines(schedule: Schedule, shown: int) -> Iterator[str]:
    starts = schedule.message_starts
    ends = [*starts[1 : shown + 1].tolist(), schedule.transfers]
    last_step = int(schedule.step[starts[shown - 1]]) if shown else 0
    step_width, rank_width = len(str(last_step)), len(str(schedule.ranks - 1))
    for start, end in zip(starts[:shown].tolist(), ends, strict=False):
        step, src, dst = int(schedule.step[start]), int(schedule.src[start]), int(schedule.dst[start])
        op = Op(int(schedule.op[start])).name.lower()
        first, last = int(schedule.chunk[start]), int(schedule.chunk[end - 1])
        parts = [
            f"step {step:<{step_width}}",
            f"{src:>{rank_width}} -> {dst:<{rank_width}}",
            f"{op:<6}  " + (f"chunk {first}" if first == last else f"chunks {first}..{last}"),
            *_slots(schedule, start),
            *_via(schedule, start),
        ]
        yield "   ".join(parts)


def _slots(schedule: Schedule, row: int) -> list[str]:
    if schedule.src_slot is None or schedule.dst_slot is None:
        return []
    src, dst = int(schedule.src_slot[row]), int(schedule.dst_slot[row])
    return [f"slot {src} -> {dst}"] if src or dst else []


def _via(schedule: Schedule, row: int) -> list[str]:
    if int(schedule.route[row]) == DEFAULT_ROUTE:
        return []
    links = schedule.route_of(row)
    names = [schedule.topology.link_name(link) for link in links[:_MAX_LISTED]]
    if len(links) > _MAX_LISTED:
        names.append(f"... {len(links) - _MAX_LISTED:,} more")
    return [f"via {' '.join(names) or 'no link'}"]


def _listed(values: Sequence[int], total: int) -> str:
    words = [str(value) for value in values[:_MAX_LISTED]]
    return " ".join([*words, "..."] if total > _MAX_LISTED else words)


_SHOWN_TRANSFERS: Final = 10


def schedule_card(schedule: Schedule) -> str:
    """Facts and the first transfers, as a notebook shows them."""
    facts = [
        ("ranks", f"{schedule.ranks:,}"),
        ("chunks", f"{schedule.chunks:,}"),
        ("steps", f"{schedule.steps:,}"),
        ("transfers", f"{schedule.transfers:,}, in {schedule.messages:,} messages"),
        ("digest", schedule.digest[:16]),
        *(("note", note) for note in schedule.notes[:3]),
    ]
    names = ("step", "chunk", "src", "dst")
    rows = [
        [*(str(getattr(schedule, name)[row]) for name in names), Op(int(schedule.op[row])).name.lower()]
        for row in range(min(schedule.transfers, _SHOWN_TRANSFERS))
    ]
    title = f"{schedule.algorithm} {schedule.collective} on {schedule.topology.name}"
    return html_card(title, facts, columns=(*names, "op"), rows=rows, total=schedule.transfers)
