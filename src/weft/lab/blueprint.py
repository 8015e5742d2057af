"""A topology as spaces, cables, addresses and routes: what has to be built, before anything is.

Everything is routed, nothing bridged: a switch is a space that forwards. So networks with loops work, and
packets take the paths of `Topology.route`, which is what schedules and predictions assume. A space forwards
by destination; where paths to one destination part by where they come from, it has rules for these pairs.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address
from typing import TYPE_CHECKING, Final

import numpy as np

from weft import limits
from weft.errors import InputError
from weft.topology.faults import without_links

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from weft.topology import Topology

_RANKS: Final = IPv4Address("10.200.0.1")
_CABLES: Final = IPv4Address("10.201.0.0")
_PER_CABLE: Final = 4
"""Addresses: a network of its own with two hosts."""

MAX_SPACES: Final = 128
MAX_CABLES: Final = 512


@dataclass(frozen=True, slots=True)
class Space:
    """One namespace: ``name`` is ``h`` and the number of a host, or ``s`` and that of a switch."""

    name: str
    ranks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class End:
    """One end of a cable: in which space, under which address, how many bytes per second it may send.

    No speed means that nothing is sent from here.
    """

    space: int
    address: str
    speed: int | None


@dataclass(frozen=True, slots=True)
class Cable:
    """``links`` are those of the topology that it stands for, one or two."""

    name: str
    ends: tuple[End, End]
    links: tuple[int, ...]

    def far(self, space: int) -> End:
        """The end that is not in a space."""
        return self.ends[self.ends[0].space == space]


@dataclass(frozen=True)
class Routes:
    """How one space forwards.

    Parameters
    ----------
    by_target
        Cable towards each rank.
    by_pair
        Cable for pairs of ranks that take another one: source, target, cable.
    """

    by_target: dict[int, int] = field(default_factory=dict)
    by_pair: tuple[tuple[int, int, int], ...] = ()


@dataclass(frozen=True)
class Blueprint:
    """What to build.

    Parameters
    ----------
    topology
        What is emulated, with the addresses of the cables between ranks.
    spaces, cables
        Namespaces and what joins them.
    space_of
        The space of each rank.
    routes
        Of each space.
    """

    topology: Topology
    spaces: tuple[Space, ...]
    cables: tuple[Cable, ...]
    space_of: tuple[int, ...]
    routes: tuple[Routes, ...]

    @property
    def speed(self) -> int:
        """Bytes per second of all cables, both ways, together."""
        return sum(end.speed or 0 for cable in self.cables for end in cable.ends)

    def find_cable(self, link: int) -> Cable | None:
        """The cable that stands for a link; None if that is inside a host."""
        return next((cable for cable in self.cables if link in cable.links), None)

    def ends_in(self, space: int) -> Iterator[tuple[Cable, End]]:
        """The ends of cables that are in a space."""
        for cable in self.cables:
            for end in cable.ends:
                if end.space == space:
                    yield cable, end


def rank_address(rank: int) -> str:
    """Address of a rank that stays the same whatever way leads there."""
    return str(_RANKS + rank)


def draw(topology: Topology) -> Blueprint:
    """Lay a topology out.

    Raises
    ------
    InputError
        If the whole of it is one host: there is no network to emulate.
    LimitError
        If it is too large for one machine.
    """
    spaces, space_of_node = _spaces(topology)
    limits.check(f"{topology.name}: hosts and switches in a lab", len(spaces), MAX_SPACES)
    cables = tuple(_cables(topology, space_of_node))
    limits.check(f"{topology.name}: cables in a lab", len(cables), MAX_CABLES)
    if not cables:
        raise InputError(f"{topology.name}: all ranks are on one host; there is no network to emulate")
    cable_of = {link: number for number, cable in enumerate(cables) for link in cable.links}
    routes = _routes(topology, cable_of, space_of_node)
    named = replace(topology, addresses=tuple(_addresses(topology, cables)))
    return Blueprint(named, spaces, cables, tuple(space_of_node[: topology.ranks]), routes)


def _spaces(topology: Topology) -> tuple[tuple[Space, ...], list[int]]:
    """Namespaces, and that of each node.

    A switch that only the ranks of one host hang on is inside of it, where hosts are given.
    """
    hosts = topology.hosts or tuple((rank,) for rank in range(topology.ranks))
    space_of = [-1] * topology.nodes
    for number, host in enumerate(hosts):
        for rank in host:
            space_of[rank] = number
    spaces = [Space(f"h{number}", tuple(host)) for number, host in enumerate(hosts)]
    near: dict[int, set[int]] = defaultdict(set)
    for src, dst in zip(topology.link_src.tolist(), topology.link_dst.tolist(), strict=True):
        for switch, other in ((src, dst), (dst, src)):
            if switch >= topology.ranks > other:
                near[switch].add(space_of[other])
    for switch in range(topology.ranks, topology.nodes):
        if topology.hosts and len(near[switch]) == 1:
            space_of[switch] = next(iter(near[switch]))
        else:
            space_of[switch] = len(spaces)
            spaces.append(Space(topology.node_key(switch)))
    return tuple(spaces), space_of


def _cables(topology: Topology, space_of: list[int]) -> Iterator[Cable]:
    """Links between spaces, there and back in pairs."""
    waiting: dict[tuple[int, int], list[int]] = defaultdict(list)
    pairs: list[tuple[int, ...]] = []
    for link, ends in enumerate(zip(topology.link_src.tolist(), topology.link_dst.tolist(), strict=True)):
        if space_of[ends[0]] == space_of[ends[1]]:
            continue
        if waiting[ends[::-1]]:
            pairs.append((waiting[ends[::-1]].pop(0), link))
        else:
            waiting[ends].append(link)
    pairs += [(link,) for links in waiting.values() for link in links]
    for number, links in enumerate(sorted(pairs)):
        network = _CABLES + number * _PER_CABLE
        speeds = [int(topology.bandwidth[link]) for link in links]
        nodes = int(topology.link_src[links[0]]), int(topology.link_dst[links[0]])
        first = End(space_of[nodes[0]], str(network + 1), speeds[0])
        second = End(space_of[nodes[1]], str(network + 2), speeds[1] if len(speeds) > 1 else None)
        yield Cable(f"c{number}", (first, second), links)


def reroute(blueprint: Blueprint, cut: Sequence[Cable]) -> tuple[Routes, ...]:
    """How each space forwards when some cables are gone, as routing protocols would find out."""
    gone = sorted(link for cable in cut for link in cable.links)
    left = [link for link in range(blueprint.topology.links) if link not in gone]
    cable_of = {link: number for number, cable in enumerate(blueprint.cables) for link in cable.links}
    renumbered = {new: cable_of[link] for new, link in enumerate(left) if link in cable_of}
    _, space_of = _spaces(blueprint.topology)
    return _routes(without_links(blueprint.topology, gone), renumbered, space_of)


def _routes(topology: Topology, cable_of: dict[int, int], space_of: list[int]) -> tuple[Routes, ...]:
    spaces = max(space_of) + 1
    taken: list[dict[int, Counter[int]]] = [defaultdict(Counter) for _ in range(spaces)]
    pairs: list[list[tuple[int, int, int]]] = [[] for _ in range(spaces)]
    ranks = np.arange(topology.ranks, dtype=np.int32)
    src, dst = np.repeat(ranks, topology.ranks), np.tile(ranks, topology.ranks)
    offsets, links = topology.routes(src, dst)
    for number, (source, target) in enumerate(zip(src.tolist(), dst.tolist(), strict=True)):
        for link in links[offsets[number] : offsets[number + 1]].tolist():
            if link in cable_of:
                here = space_of[int(topology.link_src[link])]
                taken[here][target][cable_of[link]] += 1
                pairs[here].append((source, target, cable_of[link]))
    routes = []
    for here in range(spaces):
        by_target = {target: cables.most_common(1)[0][0] for target, cables in sorted(taken[here].items())}
        others = dict.fromkeys(pair for pair in pairs[here] if pair[2] != by_target[pair[1]])
        routes.append(Routes(by_target, tuple(others)))
    return tuple(routes)


def _addresses(topology: Topology, cables: tuple[Cable, ...]) -> Iterator[tuple[int, str, str]]:
    """Of cables between ranks, by which the runtime can choose them."""
    for cable in cables:
        ends = {int(topology.link_src[cable.links[0]]), int(topology.link_dst[cable.links[0]])}
        if len(cable.links) > 1 and max(ends) < topology.ranks:
            first, second = (end.address for end in cable.ends)
            yield cable.links[0], first, second
            yield cable.links[1], second, first
