"""A topology as plain data, the form in which schedule and plan files embed it.

`to_record` and `from_record` are exact inverses: the name and the digest survive. The same structs go through
``msgspec.msgpack`` and ``msgspec.json``, so the binary and the readable form of a file cannot drift apart.

Bounds are part of the types, so that a hostile file fails while it is decoded; what types cannot say (a
column that is too short, a link to a node that is not there) fails in `from_record`.
"""

from __future__ import annotations

from itertools import islice
from typing import Annotated

import msgspec
import numpy as np

from weft import limits
from weft.errors import TopologyError
from weft.topology.graph import LINK_COLUMNS, Grid, Routing, Topology, check_grid

_Text = Annotated[str, msgspec.Meta(max_length=limits.MAX_SPEC_CHARACTERS)]
_Node = Annotated[int, msgspec.Meta(ge=0, lt=limits.MAX_RANKS + limits.MAX_SWITCHES)]
_Rank = Annotated[int, msgspec.Meta(ge=0, lt=limits.MAX_RANKS)]
_Link = Annotated[int, msgspec.Meta(ge=0, lt=limits.MAX_LINKS)]
_Bandwidth = Annotated[int, msgspec.Meta(ge=limits.MIN_BANDWIDTH, le=limits.MAX_BANDWIDTH)]
_Latency = Annotated[int, msgspec.Meta(ge=0, le=limits.MAX_LATENCY_PS)]
_PerLink = msgspec.Meta(max_length=limits.MAX_LINKS)
_PerRank = msgspec.Meta(max_length=limits.MAX_RANKS)
_PerSwitch = msgspec.Meta(max_length=limits.MAX_SWITCHES)
_PerAddress = msgspec.Meta(max_length=limits.MAX_ADDRESSES)
_PerDimension = msgspec.Meta(min_length=1, max_length=limits.MAX_DIMENSIONS)


class LinkColumns(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Links in columns of one length; the position is the link's number."""

    src: Annotated[list[_Node], _PerLink]
    dst: Annotated[list[_Node], _PerLink]
    bandwidth: Annotated[list[_Bandwidth], _PerLink]
    latency_ps: Annotated[list[_Latency], _PerLink]


class GridRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Shape of a mesh or torus, and which dimensions close."""

    shape: Annotated[list[Annotated[int, msgspec.Meta(ge=1, le=limits.MAX_RANKS)]], _PerDimension]
    wrap: Annotated[list[bool], _PerDimension]


class RoutingRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How the network picks paths by itself."""

    kind: _Text
    seed: Annotated[int, msgspec.Meta(ge=0, le=limits.MAX_SEED)] = 0


class TopologyRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Everything a `Topology` is made of."""

    name: _Text
    ranks: Annotated[int, msgspec.Meta(ge=2, le=limits.MAX_RANKS)]
    switches: Annotated[int, msgspec.Meta(ge=0, le=limits.MAX_SWITCHES)]
    links: LinkColumns
    routing: RoutingRecord
    # Flat, one after the other, because lists of lists have no common bound.
    host_sizes: Annotated[list[_Rank], _PerRank] = msgspec.field(default_factory=list)
    host_ranks: Annotated[list[_Rank], _PerRank] = msgspec.field(default_factory=list)
    grid: GridRecord | None = None
    rank_labels: Annotated[list[_Rank], _PerRank] = msgspec.field(default_factory=list)
    addresses: Annotated[list[tuple[_Link, _Text, _Text]], _PerAddress] = msgspec.field(default_factory=list)
    switch_names: Annotated[list[_Text], _PerSwitch] = msgspec.field(default_factory=list)


def to_record(topology: Topology) -> TopologyRecord:
    """Plain data of a topology.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> ring = load_topology("ring:4+fail=0>1")
    >>> to_record(ring).links.src
    [1, 1, 2, 2, 3, 3, 0]
    >>> from_record(to_record(ring)) == ring
    True
    """
    grid = topology.grid
    return TopologyRecord(
        name=topology.name,
        ranks=topology.ranks,
        switches=topology.switches,
        links=LinkColumns(*(getattr(topology, column).tolist() for column in LINK_COLUMNS)),
        routing=RoutingRecord(topology.routing.kind, topology.routing.seed),
        host_sizes=[len(host) for host in topology.hosts],
        host_ranks=[rank for host in topology.hosts for rank in host],
        grid=None if grid is None else GridRecord(list(grid.shape), list(grid.wrap)),
        rank_labels=list(topology.rank_labels),
        addresses=list(topology.addresses),
        switch_names=list(topology.switch_names),
    )


def from_record(record: TopologyRecord) -> Topology:
    """Build the topology that a record describes.

    Raises
    ------
    TopologyError
        If the parts do not fit together, or ranks cannot reach each other.
    """
    grid = record.grid
    return Topology(
        record.name,
        record.ranks,
        record.switches,
        np.array(record.links.src, np.int32),
        np.array(record.links.dst, np.int32),
        np.array(record.links.bandwidth, np.int64),
        np.array(record.links.latency_ps, np.int64),
        hosts=_hosts(record),
        grid=None if grid is None else Grid(tuple(grid.shape), tuple(grid.wrap)),
        routing=Routing(record.routing.kind, record.routing.seed),
        rank_labels=tuple(record.rank_labels),
        addresses=tuple(record.addresses),
        switch_names=tuple(record.switch_names),
    )


def _hosts(record: TopologyRecord) -> tuple[tuple[int, ...], ...]:
    sizes, ranks = record.host_sizes, record.host_ranks
    if sum(sizes) != len(ranks):
        raise TopologyError(f"{record.name}: hosts of {sum(sizes)} ranks in all, but {len(ranks)} are named")
    following = iter(ranks)
    return tuple(tuple(islice(following, size)) for size in sizes)


def checked_grid(name: str, shape: list[int], wrap: list[bool], ranks: int) -> Grid:
    """Build a grid that fits the number of ranks; whether the links form it is not checked.

    Examples
    --------
    >>> checked_grid("lab", [2, 3], [False, True], 6)
    Grid(shape=(2, 3), wrap=(False, True))
    """
    grid = Grid(tuple(shape), tuple(wrap))
    check_grid(name, grid, ranks)
    return grid
