"""Small schedules, by hand and at random."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from weft.schedule import Op, Schedule, ScheduleBuilder
from weft.topology import Topology, load_topology

SPECS = ("ring:2", "ring:5", "mesh:2x3", "switch:4", "fullmesh:3@links=2", "hosts:2,1", "torus:3x3+fail=0>1")


def columns(**changes: Any) -> dict[str, Any]:
    """Arguments of a legal Schedule, some of them changed: the chain 0 -> 1 -> 2 -> 3 on a ring."""
    legal: dict[str, Any] = {
        "topology": load_topology("ring:4"),
        "collective": "broadcast",
        "algorithm": "chain",
        "weights": [1, 1],
        "denominator": 2,
        "source": [0, 0],
        "target": [-1, -1],
        "ownership": "none",
        "step": [0, 0, 1, 1, 2, 2],
        "chunk": [0, 1, 0, 1, 0, 1],
        "src": [0, 0, 1, 1, 2, 2],
        "dst": [1, 1, 2, 2, 3, 3],
        "op": [0, 0, 0, 0, 0, 0],
        "route": [-1, -1, -1, -1, -1, -1],
    }
    return legal | changes


def ring_all_reduce(topology: Topology) -> Schedule:
    ranks = np.arange(topology.ranks)
    builder = ScheduleBuilder(topology, "all_reduce", "ring")
    rounds = topology.ranks - 1
    for k in range(rounds):
        chunk = (ranks - k) % topology.ranks
        builder.add(step=k, chunk=chunk, src=ranks, dst=(ranks + 1) % topology.ranks, op=Op.REDUCE)
    for k in range(rounds):
        chunk = (ranks + 1 - k) % topology.ranks
        builder.add(step=rounds + k, chunk=chunk, src=ranks, dst=(ranks + 1) % topology.ranks, op=Op.COPY)
    builder.note("each rank to the next")
    return builder.build()


def routed_all_reduce() -> Schedule:
    """Two ranks of a fullmesh with two cables, each half on its own: explicit routes and uneven weights."""
    topology = load_topology("fullmesh:2@links=2")
    builder = ScheduleBuilder(topology, "all_reduce", "two cables", weights=[3, 1])
    there, back = (topology.links_between(a, b) for a, b in ((0, 1), (1, 0)))
    for chunk in range(2):
        forward, backward = builder.route([there[chunk]]), builder.route([back[chunk]])
        builder.add(step=0, chunk=chunk, src=1, dst=0, op=Op.REDUCE, route=backward)
        builder.add(step=1, chunk=chunk, src=0, dst=1, op=Op.COPY, route=forward)
    return builder.build()


def relayed_all_to_all() -> Schedule:
    """All-to-all on a line of three, where rank 1 keeps what passes through in a scratch slot."""
    builder = ScheduleBuilder(load_topology("mesh:3"), "all_to_all", "relay")
    for src, dst in ((0, 1), (1, 0), (1, 2), (2, 1)):
        builder.add(step=0, chunk=3 * src + dst, src=src, dst=dst, op=Op.COPY)
    for src, dst in ((0, 2), (2, 0)):
        builder.add(step=0, chunk=3 * src + dst, src=src, dst=1, op=Op.COPY, dst_slot=1)
        builder.add(step=1, chunk=3 * src + dst, src=1, dst=dst, op=Op.COPY, src_slot=1)
    return builder.build()


@st.composite
def cuts(draw: st.DrawFn, ranks: int) -> dict[str, Any]:
    """Weights, owners and ownership of an owned collective."""
    if draw(st.booleans()):
        each = draw(st.integers(1, 2))
        return {"weights": [2] * (ranks * each), "owner": np.repeat(np.arange(ranks), each)}
    owners = draw(st.permutations(range(ranks)))[: draw(st.integers(1, ranks))]
    counts = [draw(st.integers(1, 2)) for _ in owners]
    weights = [draw(st.integers(0, 5)) for _ in range(sum(counts))]
    weights[0] += 1
    return {"weights": weights, "owner": np.repeat(owners, counts), "ownership": "free"}


@st.composite
def all_gathers(draw: st.DrawFn, *, topology: Topology | None = None, routed: bool = True) -> Schedule:
    """A correct all_gather along a random tree per chunk, some of it on explicit routes."""
    topology = topology or load_topology(draw(st.sampled_from(SPECS)))
    cut = draw(cuts(topology.ranks))
    builder = ScheduleBuilder(topology, "all_gather", "random trees", **cut)
    # One seed and not a draw for each choice: a tree of hundreds of edges would take hypothesis too long.
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rows: list[tuple[int, int, int, int, int]] = []
    for chunk, owner in enumerate(cut["owner"].tolist()):
        has_it_before = {owner: 0}
        for rank in random.permutation(np.delete(np.arange(topology.ranks), owner)).tolist():
            parent = list(has_it_before)[random.integers(len(has_it_before))]
            step = has_it_before[parent] + int(random.integers(2))
            has_it_before[rank] = step + 1
            route = builder.route(topology.route(parent, rank)) if routed and random.integers(2) else -1
            rows.append((step, chunk, parent, rank, route))
    step, chunks, src, dst, route = np.array(rows).T
    builder.add(step=step - step.min(), chunk=chunks, src=src, dst=dst, op=Op.COPY, route=route)
    return builder.build()
