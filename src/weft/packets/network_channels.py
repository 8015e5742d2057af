"""The channels of a network and the ways of messages over them, as the engine takes them.

A rank whose links all end at switches has its interfaces there: its links are its ports. A rank with a link
to another rank has a router in front of its interfaces, and ports of its own between the two. The C++ half is
``cpp/packets/packet_network.cpp``.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from weft import limits
from weft.errors import InputError
from weft.units import PS_PER_S

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from weft.packets.hardware import Hardware
    from weft.topology import Topology


@dataclass(frozen=True, slots=True, eq=False)
class Channels:
    """Links of the topology first, then ports.

    Parameters
    ----------
    flit_ps, latency_ps
        Of each channel.
    inject, eject
        Channels that are ports, `ports` for each rank.
    ports
        Of each rank.
    routers
        Which ranks have a router.
    """

    flit_ps: NDArray[np.int64]
    latency_ps: NDArray[np.int64]
    inject: NDArray[np.int32]
    eject: NDArray[np.int32]
    ports: int
    routers: NDArray[np.bool_]


def make_channels(topology: Topology, hardware: Hardware, ports: int) -> Channels:
    """Lay out the channels of a topology; every rank has the same number of ports.

    Raises
    ------
    InputError
        If a rank on switches has fewer links than ports.
    """
    ranks, links = topology.ranks, topology.links
    flit_ps = -(-hardware.flit_bytes * PS_PER_S // topology.bandwidth)
    routers = find_routers(topology)
    fastest = np.full(ranks, np.iinfo(np.int64).max)
    for end in (topology.link_src, topology.link_dst):
        at_rank = end < ranks
        np.minimum.at(fastest, end[at_rank], flit_ps[at_rank])
    inject = links + np.arange(ranks * ports, dtype=np.int32)
    eject = inject + ranks * ports
    for rank in np.flatnonzero(~routers).tolist():
        for columns, end in ((inject, topology.link_src), (eject, topology.link_dst)):
            own = np.flatnonzero(end == rank)[:ports]
            if len(own) < ports:
                msg = f"rank {rank} has {len(own)} links to switches, not {ports} for as many ports"
                raise InputError(msg)
            columns[rank * ports : (rank + 1) * ports] = own
    each = np.repeat(fastest, ports)
    flit_ps = np.concatenate([flit_ps, each, each])
    of_ports = np.full(2 * ranks * ports, hardware.port_cycles * hardware.cycle_ps)
    latency_ps = np.concatenate([topology.latency_ps, of_ports])
    return Channels(flit_ps, latency_ps, inject, eject, ports, routers)


def find_routers(topology: Topology) -> NDArray[np.bool_]:
    """Which ranks have a router: those with a link to another rank."""
    src, dst = topology.link_src, topology.link_dst
    direct = (src < topology.ranks) & (dst < topology.ranks)
    routers = np.zeros(topology.ranks, bool)
    routers[src[direct]] = routers[dst[direct]] = True
    return routers


@dataclass(frozen=True, slots=True)
class MessagePath:
    """How a message goes: the first of some paths that its packets take in turn, and its ports (-1: any)."""

    path: int
    paths: int
    source: int
    target: int


class Ways:
    """Ways of messages between their ports: channels, and the class of virtual channels on each.

    On a torus a message changes to the second class where a dimension closes, so that rings of waiting
    messages cannot form; elsewhere there is one class, and a deadlock is found, not avoided.
    """

    def __init__(self, topology: Topology, channels: Channels, virtual_channels: int) -> None:
        self._topology, self._channels = topology, channels
        self.classes = 1 if virtual_channels < 2 or not _closes(topology) else 2
        self._known: dict[tuple[int, int, tuple[int, ...] | None], MessagePath] = {}
        self._offsets = [0]
        self._links: list[int] = []
        self._class: list[int] = []
        self._port = [
            {int(channel): port for port, channel in enumerate(column.reshape(-1, channels.ports)[rank])}
            for rank in range(topology.ranks)
            for column in (channels.inject, channels.eject)
        ]

    def find(self, src: int, dst: int, route: tuple[int, ...] | None) -> MessagePath:
        """Look up the way from rank to rank along `route`, or the network's own."""
        key = (src, dst, route)
        if key not in self._known:
            routes = tied_routes(self._topology, src, dst) if route is None else [route]
            self._known[key] = self._add(src, dst, routes)
        return self._known[key]

    def _add(self, src: int, dst: int, routes: Sequence[tuple[int, ...]]) -> MessagePath:
        source = target = -1
        first = len(self._offsets) - 1
        for route in routes:
            middle = list(route)
            if not self._channels.routers[src]:
                source = self._port_of(2 * src, middle.pop(0), src)
            if not self._channels.routers[dst]:
                target = self._port_of(2 * dst + 1, middle.pop(), dst)
            self._links += middle
            self._class += _classes(self._topology, middle) if self.classes > 1 else [0] * len(middle)
            self._offsets.append(len(self._links))
            limits.check("links of all ways together", len(self._links), limits.MAX_WAY_LINKS)
        return MessagePath(first, len(routes), source, target)

    def _port_of(self, column: int, link: int, rank: int) -> int:
        port = self._port[column].get(link)
        if port is None:
            name = self._topology.link_name(link)
            msg = f"rank {rank} uses link {name}, none of its {self._channels.ports} ports; ask for more"
            raise InputError(msg)
        return port

    def columns(self) -> dict[str, NDArray[Any]]:
        """All ways in columns, by the names of `_core.ChannelColumns`."""
        return {
            "path_offsets": np.array(self._offsets, np.int64),
            "path_channels": np.array(self._links, np.int32),
            "path_class": np.array(self._class, np.uint8),
        }


def tied_routes(topology: Topology, src: int, dst: int) -> list[tuple[int, ...]]:
    """Routes that the network itself takes, in turn: both ways round where a torus has two of one length.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> ring = load_topology("torus:4x4")
    >>> [[ring.link_name(link) for link in route] for route in tied_routes(ring, 0, 2)]
    [['0->1', '1->2'], ['0->3', '3->2']]
    """
    grid = topology.grid
    own = topology.route(src, dst)
    if grid is None or topology.routing.kind != "dimension-order" or not _closes(topology):
        return [own]
    here, there = grid.coordinates(src), grid.coordinates(dst)
    choices = []
    for a, b, size, wraps in zip(here, there, grid.shape, grid.wrap, strict=True):
        offset = (b - a) % size
        tied = wraps and size > 2 and 2 * offset == size
        choices.append([offset, offset - size] if tied else [0])
    if all(len(moves) == 1 for moves in choices):
        return [own]
    found = (_walk(topology, src, dst, moves) for moves in product(*choices))
    return [route for route in found if route is not None] or [own]


def _walk(topology: Topology, src: int, dst: int, moves: Sequence[int]) -> tuple[int, ...] | None:
    """The route in dimension order that makes these moves where they are not 0; None if a link is missing."""
    assert topology.grid is not None
    links: list[int] = []
    at = src
    for axis in reversed(range(len(moves))):
        size = topology.grid.shape[axis]
        here = list(topology.grid.coordinates(at))
        goal = topology.grid.coordinates(dst)[axis]
        move = goal - here[axis]
        if topology.grid.wrap[axis]:
            ahead = move % size
            move = moves[axis] or (ahead if 2 * ahead <= size else ahead - size)
        for _ in range(abs(move)):
            here[axis] = (here[axis] + (1 if move > 0 else -1)) % size
            node = topology.grid.rank(here)
            between = topology.links_between(at, node)
            if not between:
                return None
            links.append(between[0])
            at = node
    return tuple(links)


def _closes(topology: Topology) -> bool:
    grid = topology.grid
    return grid is not None and any(
        wrap and size > 2 for wrap, size in zip(grid.wrap, grid.shape, strict=True)
    )


def _classes(topology: Topology, links: Sequence[int]) -> list[int]:
    """1 from where a route crosses the end of a dimension to where it leaves that dimension."""
    assert topology.grid is not None
    found: list[int] = []
    dimension, crossed = -1, 0
    for link in links:
        ends = int(topology.link_src[link]), int(topology.link_dst[link])
        # A grid may have links of other kinds as well: across it, or to switches.
        inside = max(ends) < topology.ranks
        src, dst = (topology.grid.coordinates(end) if inside else () for end in ends)
        moved = [i for i, (a, b) in enumerate(zip(src, dst, strict=True)) if a != b]
        along = moved[0] if len(moved) == 1 else -1
        if along != dimension:
            dimension, crossed = along, 0
        if along >= 0 and topology.grid.shape[along] > 2 and abs(src[along] - dst[along]) > 1:
            crossed = 1
        found.append(crossed)
    return found
