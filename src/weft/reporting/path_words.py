"""The critical path of a run in words: the chain of transfers that its time is made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from weft.errors import list_some
from weft.reporting.section_kinds import Section, table_section, words_section
from weft.topology.drawing_style import speed_text
from weft.units import PS_PER_S, count, human_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.reporting.result_forms import PathRow
    from weft.simulation.result import PathStep
    from weft.topology.graph import Topology

_ENDS: Final = 6
_MOST_LINKS: Final = 4
"""Links of a transfer that are named."""

_MOST_READ: Final = 200_000
"""Stretches of a path that are counted."""

_WAITS: Final = {"start": "nothing", "dependency": "data", "link": "a busy link"}


def _time(time_ps: int) -> str:
    return human_seconds(time_ps / PS_PER_S)


def path_sections(
    path: Sequence[PathStep | PathRow],
    time_ps: int,
    topology: Topology | None = None,
    *,
    run: str = "The run",
) -> list[Section]:
    """Say what the time of a run is made of, and list the path's first and last transfers.

    Parameters
    ----------
    path
        The critical path of a run.
    time_ps
        The time of the run.
    topology
        The topology that names the links of the path; without it they are not named.
    run
        What the first sentence calls the run.
    """
    if not len(path):
        return []
    read = path[:_MOST_READ]
    waits = dict.fromkeys(_WAITS, 0)
    ways: dict[tuple[int, int, tuple[int, ...]], int] = {}
    for one in read:
        waits[one.waited_for] = waits.get(one.waited_for, 0) + 1
        way = one.src, one.dst, one.links
        ways[way] = ways.get(way, 0) + one.end_ps - one.start_ps
    first, last = path[0], path[len(path) - 1]
    (src, dst, links), longest = max(ways.items(), key=lambda item: item[1])
    share = 100 * longest / max(time_ps, 1)
    words = [
        f"{run} takes {_time(time_ps)}. A chain of {count(len(path), 'transfer')}, one after the other,",
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
        f"and rank {dst}{_over(links, topology)}.",
    ]
    paragraphs = [text.strip() for text in " ".join(words).split("\n")]
    shown = [*path[:_ENDS], None, *path[len(path) - _ENDS :]] if len(path) > 2 * _ENDS else list(path)
    rows: list[tuple[str, ...]] = [
        (f"… {len(path) - 2 * _ENDS:,} more", "", "", "", "", "", "")
        if one is None
        else (
            f"rank {one.src} to {one.dst}",
            list_some(_link_names(one.links, topology), _MOST_LINKS) or "-",
            _WAITS.get(one.waited_for, one.waited_for),
            str(one.step),
            str(one.chunk),
            _time(one.start_ps),
            _time(one.end_ps),
        )
        for one in shown
    ]
    heads: tuple[str, ...] = ("transfer", "links", "waited for", "step", "chunk", "starts", "ends")
    if topology is None:
        heads, rows = ("transfer", *heads[2:]), [(row[0], *row[2:]) for row in rows]
    return [
        words_section("Critical path", paragraphs),
        table_section("Along the critical path", heads, rows, left=2 if topology is None else 3),
    ]


def _link_names(links: Sequence[int], topology: Topology | None) -> list[str]:
    """Names of links; of a document, whose numbers may be any, only those that there are."""
    if topology is None:
        return []
    return [topology.link_name(link) for link in links if 0 <= link < topology.links]


def _over(links: Sequence[int], topology: Topology | None) -> str:
    """The links between two ranks in words, and the slowest of several."""
    names = _link_names(links, topology)
    if topology is None or not names:
        return ""
    slowest = min((link for link in links if 0 <= link < topology.links), key=topology.bandwidth.__getitem__)
    speed = speed_text(int(topology.bandwidth[slowest]))
    if len(names) == 1:
        return f", over link {names[0]} ({speed})"
    which = f"of which {topology.link_name(slowest)} ({speed}) is the slowest"
    return f", over {list_some(names, _MOST_LINKS)}, {which}"


def _advice(waits: dict[str, int]) -> str:
    if not waits["link"] and not waits["dependency"]:
        return "Nothing waited: only faster links, or fewer bytes, make this run shorter."
    if waits["link"] > waits["dependency"]:
        return "Links limit this run: faster links, or a load spread over more of them, would help."
    return "Dependencies limit this run: fewer steps, or smaller segments, may help."
