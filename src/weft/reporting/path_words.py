"""The critical path of a run in words: the chain of transfers that its time is made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from weft.reporting.section_kinds import Section, table_section, words_section
from weft.units import PS_PER_S, count, human_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.reporting.result_forms import PathRow
    from weft.simulation.result import PathStep

_ENDS: Final = 6
_MOST_READ: Final = 200_000
"""Stretches of a path that are counted."""

_WAITS: Final = {"start": "nothing", "dependency": "data", "link": "a busy link"}


def _time(time_ps: int) -> str:
    return human_seconds(time_ps / PS_PER_S)


def path_sections(path: Sequence[PathStep | PathRow], time_ps: int) -> list[Section]:
    """Say what the time of a run is made of, and list the path's first and last transfers."""
    if not len(path):
        return []
    read = path[:_MOST_READ]
    waits = dict.fromkeys(_WAITS, 0)
    pairs: dict[tuple[int, int], int] = {}
    for one in read:
        waits[one.waited_for] = waits.get(one.waited_for, 0) + 1
        pairs[one.src, one.dst] = pairs.get((one.src, one.dst), 0) + one.end_ps - one.start_ps
    first, last = path[0], path[len(path) - 1]
    (src, dst), longest = max(pairs.items(), key=lambda item: item[1])
    share = 100 * longest / max(time_ps, 1)
    words = [
        f"The run takes {_time(time_ps)}. A chain of {count(len(path), 'transfer')}, one after the other,",
        "takes all of that time: shortening anything else does not make the run shorter.",
        "\n",
        f"It begins at {_time(first.start_ps)}, when rank {first.src} sends chunk {first.chunk} to rank",
        f"{first.dst} in step {first.step}, and ends at {_time(last.end_ps)}, when chunk {last.chunk} has",
        f"arrived at rank {last.dst} in step {last.step}.",
        "\n",
        f"On the way, {count(waits['dependency'], 'transfer')} waited for data that the transfer before",
        f"brought, and {waits['link']:,} for a link that was busy with another transfer. {_advice(waits)}",
        "\n",
        f"The largest part of the path, {share:.1f} % of the time, is spent between rank {src}",
        f"and rank {dst}.",
    ]
    paragraphs = [text.strip() for text in " ".join(words).split("\n")]
    shown = [*path[:_ENDS], None, *path[len(path) - _ENDS :]] if len(path) > 2 * _ENDS else list(path)
    rows = [
        (f"… {len(path) - 2 * _ENDS:,} more", "", "", "", "", "")
        if one is None
        else (
            f"rank {one.src} to {one.dst}",
            _WAITS.get(one.waited_for, one.waited_for),
            str(one.step),
            str(one.chunk),
            _time(one.start_ps),
            _time(one.end_ps),
        )
        for one in shown
    ]
    heads = ("transfer", "waited for", "step", "chunk", "starts", "ends")
    return [
        words_section("Critical path", paragraphs),
        table_section("Along the critical path", heads, rows, left=2),
    ]


def _advice(waits: dict[str, int]) -> str:
    if not waits["link"] and not waits["dependency"]:
        return "Nothing waited: only faster links, or fewer bytes, make this run shorter."
    if waits["link"] > waits["dependency"]:
        return "Links limit this run: faster links, or a load spread over more of them, would help."
    return "Dependencies limit this run: fewer steps, or smaller segments, may help."
