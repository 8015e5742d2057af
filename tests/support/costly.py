"""Schedules that are small as files and ask for much work."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.schedule import Schedule
from weft.topology import load_topology


def _schedule(spec: str, collective: str, rows: int, **columns: Any) -> Schedule:
    """A schedule of one chunk; columns that are one number have it in every row."""
    source = {"all_reduce": -1}.get(collective, 0)
    whole = {"chunk": 0, "src": 0, "dst": 1, "op": 0, "route": -1, "step": np.arange(rows), **columns}
    listed = ("route_offsets", "route_links")
    return Schedule(
        topology=load_topology(spec),
        collective=collective,
        algorithm="costly",
        weights=[1],
        denominator=1,
        source=[source],
        target=[-1],
        ownership="none",
        **{name: value if name in listed else np.broadcast_to(value, rows) for name, value in whole.items()},
    )


def many_places(rows: int = 600_000) -> Schedule:
    """Sums of 65,536 contributions in so many places that they are replayed in hundreds of blocks."""
    number = np.arange(rows)
    places = {"src_slot": number % 128, "dst_slot": (number + 1) % 128}
    return _schedule("switch:65536", "all_reduce", rows, src=number % 65536, dst=1, op=1, **places)


def swapped_in_reverse(chunks: int) -> Schedule:
    """A right all-reduce of two ranks that needs as many receive slots as there are messages."""
    number = np.arange(chunks)
    apart = np.concatenate([number[::2], number[1::2]])
    return Schedule(
        topology=load_topology("ring:2"),
        collective="all_reduce",
        algorithm="costly",
        weights=np.ones(chunks, np.int64),
        denominator=chunks,
        source=np.full(chunks, -1),
        target=np.full(chunks, -1),
        ownership="none",
        step=np.zeros(2 * chunks, np.int32),
        chunk=np.concatenate([apart, apart[::-1]]),
        src=np.repeat([0, 1], chunks),
        dst=np.repeat([1, 0], chunks),
        op=np.ones(2 * chunks, np.uint8),
        route=np.full(2 * chunks, -1),
    )


def long_ways(rows: int = 50_000) -> Schedule:
    """Messages that cross 2,048 links each, by the network's own way."""
    return _schedule("ring:4096", "broadcast", rows, dst=2048)


def long_routes(rows: int = 150_000) -> Schedule:
    """The same along a route of their own, which the file holds once."""
    ring = load_topology("ring:4096")
    links = ring.route(0, 2048)
    return _schedule(
        "ring:4096", "broadcast", rows, dst=2048, route=0, route_offsets=[0, len(links)], route_links=links
    )


def many_pairs(rows: int = 20_000) -> Schedule:
    """Messages to many ranks of a switch so large that each path takes a look at all of its links."""
    return _schedule("switch:65536", "broadcast", rows, dst=np.arange(rows) + 1)


def waits_for_all(ranks: int) -> Schedule:
    """Every rank sends to rank 0, which then sends the sum to all: each of these messages waits for all.

    One copy among the reduces, and their sum is not taken for the end of a reduce-scatter.
    """
    others, zeros = np.arange(1, ranks), np.zeros(ranks - 1, np.int64)
    return _schedule(
        f"switch:{ranks}",
        "all_reduce",
        2 * ranks - 1,
        step=np.repeat([0, 1], [ranks, ranks - 1]),
        src=np.concatenate([[1], others, zeros]),
        dst=np.concatenate([[2], zeros, others]),
        op=np.repeat([0, 1, 0], [1, ranks - 1, ranks - 1]),
    )
