"""Random connected clusters: uneven speeds and latencies, one-way links, switches, hosts."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from weft.topology import Topology


@st.composite
def clusters(draw: st.DrawFn, max_ranks: int = 24, max_switches: int = 4) -> Topology:
    """A spanning tree of cables over ranks and switches, some more links, and perhaps hosts."""
    ranks = draw(st.integers(2, max_ranks))
    switches = draw(st.integers(0, max_switches))
    nodes = ranks + switches
    order = draw(st.permutations(range(nodes)))
    links: list[tuple[int, int]] = []
    for place in range(1, nodes):
        a, b = order[place], order[draw(st.integers(0, place - 1))]
        links += [(a, b), (b, a)]
    for _ in range(draw(st.integers(0, 2 * nodes))):
        a, b = draw(st.integers(0, nodes - 1)), draw(st.integers(0, nodes - 1))
        if a != b:
            links.append((a, b))
    speeds = draw(st.lists(st.integers(1, 9), min_size=len(links), max_size=len(links)))
    latencies = draw(
        st.one_of(
            st.just([1000] * len(links)),
            st.lists(st.integers(0, 9000), min_size=len(links), max_size=len(links)),
        )
    )
    return Topology(
        "random",
        ranks,
        switches,
        np.array([a for a, _ in links], np.int32),
        np.array([b for _, b in links], np.int32),
        np.array(speeds, np.int64) * 10**9,
        np.array(latencies, np.int64),
        hosts=draw(st.one_of(st.just(()), host_lists(ranks))),
    )


def host_lists(ranks: int) -> st.SearchStrategy[tuple[tuple[int, ...], ...]]:
    """Ranks dealt to hosts, in any order and of any sizes."""

    def deal(keys: list[int]) -> tuple[tuple[int, ...], ...]:
        hosts = (tuple(rank for rank in range(ranks) if keys[rank] == key) for key in sorted(set(keys)))
        return tuple(hosts)

    return st.lists(st.integers(0, 4), min_size=ranks, max_size=ranks).map(deal)
