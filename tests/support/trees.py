"""What must hold of MultiTree's schedules; the numbers are those of the paper's list."""

from __future__ import annotations

import itertools

import numpy as np

from weft.algorithms.multitree.growth import grow_trees
from weft.algorithms.multitree.link_speeds import Usage
from weft.schedule import Op, Schedule


def capacities(usage: Usage, links: int) -> np.ndarray:
    """Chunks that each link of the whole topology carries in one step: some unit makes all of them fit."""
    capacity = np.zeros(links, np.int64)
    capacity[usage.links] = usage.capacity
    bandwidth = usage.topology.bandwidth
    assert (usage.capacity >= 1).all()
    bounded = usage.capacity < usage.topology.ranks**2
    assert (bounded * bandwidth / (usage.capacity + 1)).max() < (bandwidth / usage.capacity).min()
    return capacity


def link_uses(schedule: Schedule) -> np.ndarray:
    """How often each (step, link) is used."""
    length = np.diff(schedule.route_offsets)[schedule.route]
    begin = schedule.route_offsets[schedule.route]
    inside = np.arange(length.sum()) - np.repeat(np.cumsum(length) - length, length)
    link = schedule.route_links[np.repeat(begin, length) + inside]
    uses = np.zeros((schedule.steps, schedule.topology.links), np.int64)
    np.add.at(uses, (np.repeat(schedule.step, length), link), 1)
    return uses


def check_invariants(schedule: Schedule, *, paper_order: bool = False) -> None:
    """Properties (i) to (v) of an all-gather; the numbers are those of the paper's list."""
    topology, ranks = schedule.topology, schedule.ranks
    usage = grow_trees(topology, schedule.chunks // ranks, paper_order=paper_order).usage
    root = schedule.source
    assert schedule.transfers == schedule.chunks * (ranks - 1)
    assert set(schedule.op.tolist()) == {Op.COPY}
    joined = np.full((schedule.chunks, ranks), np.iinfo(np.int32).max)
    joined[np.arange(schedule.chunks), root] = -1
    place = schedule.chunk.astype(np.int64) * ranks + schedule.dst
    assert len(np.unique(place)) == schedule.transfers, "(i) every rank joins a tree once"
    assert not (schedule.dst == root[schedule.chunk]).any(), "(i) no tree enters its root"
    joined[schedule.chunk, schedule.dst] = schedule.step
    parent = joined[schedule.chunk, schedule.src]
    assert (parent < schedule.step).all(), "(iii) parents joined earlier"
    uses, capacity = link_uses(schedule), capacities(usage, topology.links)
    assert (uses <= capacity).all(), "(ii) no link is used above its capacity"
    for nodes, end in ((schedule.src, topology.link_src), (schedule.dst, topology.link_dst)):
        interfaces = np.bincount(end, capacity, topology.nodes)[:ranks]
        per_step = np.zeros((schedule.steps, ranks), np.int64)
        np.add.at(per_step, (schedule.step, nodes), 1)
        assert (per_step <= interfaces).all(), "(iv) no rank sends or receives above its interfaces"
    if topology.direct:
        assert (np.diff(schedule.route_offsets)[schedule.route] == 1).all(), "(v) an edge is one hop"
    check_routes(schedule)


def check_routes(schedule: Schedule) -> None:
    """Every transfer has a route, which leads from its source to its destination; no two routes are alike."""
    topology, offsets, links = schedule.topology, schedule.route_offsets, schedule.route_links
    routes = [tuple(links[a:b].tolist()) for a, b in itertools.pairwise(offsets.tolist())]
    assert len(set(routes)) == len(routes)
    for route in routes:
        for a, b in itertools.pairwise(route):
            assert topology.link_dst[a] == topology.link_src[b]
    assert (schedule.route >= 0).all()
    assert (topology.link_src[links[offsets[:-1]]][schedule.route] == schedule.src).all()
    assert (topology.link_dst[links[offsets[1:] - 1]][schedule.route] == schedule.dst).all()


def check_mirror(schedule: Schedule) -> None:
    """Property (vi) of a reduce-scatter: a rank sends a chunk once, after all that it adds to it came in."""
    places = schedule.chunks * schedule.ranks
    sent = np.full(places, np.iinfo(np.int32).max)
    out = schedule.chunk.astype(np.int64) * schedule.ranks + schedule.src
    assert len(np.unique(out)) == schedule.transfers
    sent[out] = schedule.step
    into = schedule.chunk.astype(np.int64) * schedule.ranks + schedule.dst
    assert (schedule.step < sent[into]).all()
