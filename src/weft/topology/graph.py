"""The graph every schedule runs on.

Nodes ``0 .. ranks-1`` are the ranks, nodes ``ranks .. ranks+switches-1`` the switches (printed ``s0``,
``s1``, ..). Links are directed and kept in columns; a full-duplex cable is two links, parallel cables are
several rows, an asymmetric cable is two rows with different speeds. A link's row number is its identity:
routes and reports name links by it, so row order is part of a topology's digest.

A topology is a value: its arrays are read-only and nothing here does I/O. The C++ half is
``cpp/topology/graph.cpp``.
"""

from __future__ import annotations

import difflib
import hashlib
import math
import re
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from weft import _core, limits, units
from weft.columns import Immutable, freeze, whole, whole_tuple
from weft.errors import DisconnectedError, InputError, TopologyError, check_choice
from weft.notebook_display import data_frame, short_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import ArrayLike, NDArray

ROUTING_KINDS = ("shortest", "dimension-order", "by-switch", "ecmp")


@dataclass(frozen=True, slots=True)
class Grid:
    """Ranks laid out row-major on a mesh or torus; `wrap` says which dimensions close."""

    shape: tuple[int, ...]
    wrap: tuple[bool, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", whole_tuple("grid shape", self.shape, TopologyError))
        wrap = np.asarray(self.wrap)
        if wrap.ndim != 1 or (wrap.size and wrap.dtype != bool):
            msg = f"grid wrap: expected true or false for each dimension, not {self.wrap!r:.40}"
            raise TopologyError(msg)
        object.__setattr__(self, "wrap", tuple(wrap.tolist()))

    def coordinates(self, rank: int) -> tuple[int, ...]:
        """Position of a rank, last dimension fastest.

        Examples
        --------
        >>> Grid((2, 4), (False, True)).coordinates(6)
        (1, 2)
        """
        rest, found = rank, []
        for n in reversed(self.shape):
            rest, c = divmod(rest, n)
            found.append(c)
        if rest:
            raise ValueError(f"rank {rank} is not on a grid of shape {self.shape}")
        return tuple(reversed(found))

    def rank(self, coordinates: Sequence[int]) -> int:
        """Inverse of `coordinates`; wraps around."""
        index = 0
        for c, n in zip(coordinates, self.shape, strict=True):
            index = index * n + c % n
        return index


@dataclass(frozen=True, slots=True)
class Routing:
    """How the network itself chooses a path; `weft.topology.routing` explains each kind."""

    kind: str = "shortest"
    seed: int = 0

    def __post_init__(self) -> None:
        check_choice("routing", self.kind, ROUTING_KINDS, TopologyError)
        object.__setattr__(self, "seed", whole("routing seed", self.seed, TopologyError))
        if not 0 <= self.seed <= limits.MAX_SEED:
            raise TopologyError(f"routing seed {self.seed} is outside 0..{limits.MAX_SEED}")


@dataclass(frozen=True, eq=False)
class Topology(Immutable):
    """Ranks, switches, and directed links with speed and latency.

    Parameters
    ----------
    name
        How it was described: a spec string or a file's ``name``. Not part of its identity.
    ranks, switches
        How many of each; at least two ranks.
    link_src, link_dst
        Node at either end of each directed link.
    bandwidth
        Bytes per second of each link.
    latency_ps
        Picoseconds from one end to the other.
    hosts
        Ranks that share a machine; empty when every rank is on its own.
    grid
        Set when the ranks form a complete mesh or torus.
    routing
        How the network picks paths by itself.
    rank_labels
        Numbers the ranks had before failed ones were removed; empty when nothing was.
    addresses
        ``(link, source address, destination address)`` for links the runtime can choose.
    notes
        What was assumed because the description does not say it, for people. Not part of its identity.
    switch_names
        What people call each switch, such as ``host3.nic5`` or ``leaf0``; empty where they have no names but
        ``s0``, ``s1``, ... Not part of its identity.

    Examples
    --------
    >>> cables = [(0, 1), (1, 2), (2, 0)]
    >>> triangle = Topology.from_links("triangle", 3, 0, cables, bandwidth="1GB/s", latency="1us")
    >>> triangle.route(0, 2)
    (5,)
    """

    name: str
    ranks: int
    switches: int
    link_src: NDArray[np.int32]
    link_dst: NDArray[np.int32]
    bandwidth: NDArray[np.int64]
    latency_ps: NDArray[np.int64]
    hosts: tuple[tuple[int, ...], ...] = ()
    grid: Grid | None = None
    routing: Routing = field(default_factory=Routing)
    rank_labels: tuple[int, ...] = ()
    addresses: tuple[tuple[int, str, str], ...] = ()
    notes: tuple[str, ...] = ()
    switch_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for column, dtype in LINK_COLUMNS.items():
            object.__setattr__(self, column, freeze(column, getattr(self, column), dtype, TopologyError))
        _settle_types(self)
        _check_shape(self)
        _check_links(self)
        _check_hosts(self)
        _check_names(self)
        pair = _core.unreachable_pair(self.nodes, self.ranks, self.link_src, self.link_dst)
        if pair is not None:
            a, b = pair
            alone = a if 2 * self._count_reached(a) < self.ranks else b
            advice = f"add links, or leave rank {alone} out with +fail=rank:{alone}"
            raise DisconnectedError(f"{self.name}: rank {a} cannot reach rank {b}; {advice}")

    @classmethod
    def from_links(
        cls,
        name: str,
        ranks: int,
        switches: int,
        cables: Iterable[tuple[int, int]],
        *,
        bandwidth: str | int,
        latency: str | int,
        **options: Any,
    ) -> Topology:
        """Full-duplex cables of one speed: two directed links each, forward then back."""
        ends = [end for a, b in cables for end in ((a, b), (b, a))]
        src, dst = np.array(ends, np.int32).reshape(-1, 2).T
        speed = np.full(len(ends), units.parse_bandwidth(bandwidth), np.int64)
        latency_ps = np.full(len(ends), units.parse_time(latency), np.int64)
        return cls(name, ranks, switches, src, dst, speed, latency_ps, **options)

    def _count_reached(self, rank: int) -> int:
        """How many ranks can be reached from one, itself included."""
        reached = np.zeros(self.nodes, bool)
        reached[rank] = True
        before = 0
        while (count := int(reached.sum())) > before:
            before = count
            reached[self.link_dst[reached[self.link_src]]] = True
        return int(reached[: self.ranks].sum())

    @property
    def nodes(self) -> int:
        """Ranks and switches together."""
        return self.ranks + self.switches

    @property
    def links(self) -> int:
        """Number of directed links."""
        return len(self.link_src)

    def node_name(self, node: int) -> str:
        """``"3"`` for a rank; for a switch its name, ``"leaf0"``, or ``"s0"`` where it has none."""
        if node >= self.ranks and self.switch_names:
            return self.switch_names[node - self.ranks]
        return self.node_key(node)

    def node_key(self, node: int) -> str:
        """``"3"`` for a rank, ``"s0"`` for a switch, whatever it is called: what files write."""
        return str(node) if node < self.ranks else f"s{node - self.ranks}"

    def link_name(self, link: int) -> str:
        """``"5->9"``, with ``#k`` on the k-th of parallel links."""
        src, dst = int(self.link_src[link]), int(self.link_dst[link])
        twins = self.links_between(src, dst)
        suffix = f"#{twins.index(link)}" if len(twins) > 1 else ""
        return f"{self.node_name(src)}->{self.node_name(dst)}{suffix}"

    def parse_node(self, text: str) -> int:
        """Node number of ``"3"``, ``"s0"``, ``"leaf0"``, or ``"host3.gpu5"``: rank 5 of host 3, from 0."""
        node = self.find_node(text)
        if node is not None:
            return node
        switches = f" and switches s0..s{self.switches - 1}" if self.switches else ""
        close = difflib.get_close_matches(text, self.switch_names[: limits.MAX_DRAWN_NODES], 1)
        hint = f"; did you mean {close[0]}?" if close else ""
        msg = f"{self.name}: there is no node {text!r}; it has ranks 0..{self.ranks - 1}{switches}{hint}"
        raise TopologyError(msg)

    def find_node(self, text: str) -> int | None:
        """Node number of what `parse_node` reads, or None if there is no such node."""
        text = text.strip()
        node = node_number(text, self.ranks, self.switches)
        if node is None:
            node = self._named.get(text)
        member = re.fullmatch(r"host([0-9]{1,6})\.gpu([0-9]{1,6})", text) if node is None else None
        if member is not None and int(member[1]) < len(self.hosts):
            ranks = self.hosts[int(member[1])]
            return ranks[int(member[2])] if int(member[2]) < len(ranks) else None
        return node

    @cached_property
    def _named(self) -> dict[str, int]:
        return {name: self.ranks + number for number, name in enumerate(self.switch_names)}

    def check_root(self, root: int) -> None:
        """Raise an `InputError` unless the root of a broadcast or reduce is a rank."""
        if not 0 <= root < self.ranks:
            raise InputError(f"root {root}: {self.name} has ranks 0..{self.ranks - 1}")

    @cached_property
    def _between(self) -> dict[tuple[int, int], tuple[int, ...]]:
        found: dict[tuple[int, int], list[int]] = {}
        for link, ends in enumerate(zip(self.link_src.tolist(), self.link_dst.tolist(), strict=True)):
            found.setdefault(ends, []).append(link)
        return {ends: tuple(links) for ends, links in found.items()}

    def links_between(self, src: int, dst: int) -> tuple[int, ...]:
        """Directed links from one node to another, in row order."""
        return self._between.get((src, dst), ())

    @cached_property
    def neighbours(self) -> tuple[tuple[int, ...], ...]:
        """For each node, the nodes its outgoing links reach, ascending, each once."""
        ends = np.sort(self.link_src.astype(np.int64) * self.nodes + self.link_dst)
        ends = ends[np.diff(ends, prepend=-1) > 0]  # each once; np.unique would load masked arrays too
        first = np.searchsorted(ends, np.arange(self.nodes + 1) * self.nodes).tolist()
        reached = (ends % self.nodes).tolist()
        return tuple(tuple(reached[begin:end]) for begin, end in pairwise(first))

    @property
    def direct(self) -> bool:
        """True when ranks are wired to ranks, without switches."""
        return self.switches == 0

    @cached_property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """Ranks that are near each other: by host where hosts divide them, else by the switch each hangs on.

        Empty when the topology has no such structure, or only one group.
        """
        if 1 < len(self.hosts) < self.ranks:
            return self.hosts
        by_switch: dict[int, list[int]] = {}
        for rank in range(self.ranks):
            if len(self.neighbours[rank]) != 1 or self.neighbours[rank][0] < self.ranks:
                return ()
            by_switch.setdefault(self.neighbours[rank][0], []).append(rank)
        groups = tuple(tuple(members) for _, members in sorted(by_switch.items()))
        return groups if len(groups) > 1 else ()

    def egress(self, node: int) -> int:
        """Bytes per second that can leave a node."""
        return sum(self.bandwidth[self.link_src == node].tolist())

    def ingress(self, node: int) -> int:
        """Bytes per second that can enter a node."""
        return sum(self.bandwidth[self.link_dst == node].tolist())

    def route(self, src: int, dst: int) -> tuple[int, ...]:
        """Links of the path that the network itself takes from one rank to another."""
        offsets, links = self.routes([src], [dst])
        return tuple(links[offsets[0] : offsets[1]].tolist())

    def routes(
        self, src: ArrayLike, dst: ArrayLike, *, max_work: float | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Paths for many pairs at once: pair i takes ``links[offsets[i]:offsets[i + 1]]``.

        Parameters
        ----------
        src, dst
            Ranks.
        max_work
            Operations that finding the paths may take, by estimate; None for any number.

        Raises
        ------
        TopologyError
            If the pairs are not pairs of ranks.
        LimitError
            If their paths are too long together, or finding them would take more operations than `max_work`.
        """
        from weft.topology.routing import find_routes

        return find_routes(self, src, dst, max_work)

    def transpose(self) -> Topology:
        """Every link turned round; link numbers stay."""
        turned = self.name.endswith(" transposed")
        return replace(
            self,
            name=self.name.removesuffix(" transposed") if turned else f"{self.name} transposed",
            link_src=self.link_dst,
            link_dst=self.link_src,
            addresses=tuple((link, dst, src) for link, src, dst in self.addresses),
        )

    def with_routing(self, kind: str, seed: int = 0) -> Topology:
        """Same graph under another routing rule."""
        return replace(self, routing=Routing(kind, seed))

    @cached_property
    def digest(self) -> str:
        """SHA-256 of everything that matters to a schedule; the name does not."""
        sha = hashlib.sha256(b"weft topology 1\0")
        grid = (self.grid.shape, self.grid.wrap) if self.grid else None
        scalars = (self.ranks, self.switches, self.hosts, grid, self.routing.kind, self.routing.seed)
        sha.update(repr((*scalars, self.rank_labels, self.addresses)).encode())
        for column, dtype in LINK_COLUMNS.items():
            sha.update(getattr(self, column).astype(np.dtype(dtype).newbyteorder("<")).tobytes())
        return sha.hexdigest()

    def __repr__(self) -> str:
        parts = f"{self.ranks} ranks, {self.switches} switches, {self.links} links"
        return short_line(f"<Topology {self.name}: {parts}>")

    def _repr_html_(self) -> str:
        from weft.topology.tables import topology_card

        return topology_card(self)

    def to_pandas(self) -> Any:
        """The links as a ``pandas.DataFrame``, one row each."""
        from weft.topology.tables import link_columns

        return data_frame("Topology.to_pandas", link_columns(self))

    def _repr_svg_(self) -> str:
        from weft.topology.drawing import draw_svg

        return draw_svg(self)


def node_number(text: str, ranks: int, switches: int) -> int | None:
    """Number of the node that is called ``"3"``, or ``"s0"`` for a switch; None if there is none.

    Examples
    --------
    >>> node_number("s0", 4, 1), node_number("4", 4, 1)
    (4, None)
    """
    match = re.fullmatch(r"(s?)([0-9]{1,9})", text.strip())
    if match is None:
        return None
    first, count = (ranks, switches) if match[1] else (0, ranks)
    return first + int(match[2]) if int(match[2]) < count else None


LINK_COLUMNS: dict[str, type[np.generic]] = {
    "link_src": np.int32,
    "link_dst": np.int32,
    "bandwidth": np.int64,
    "latency_ps": np.int64,
}


def _settle_types(topology: Topology) -> None:
    """Plain whole numbers, in tuples: equal topologies print, save and hash alike."""
    settled = {
        "ranks": whole("ranks", topology.ranks, TopologyError),
        "switches": whole("switches", topology.switches, TopologyError),
        "hosts": tuple(whole_tuple("host", host, TopologyError) for host in topology.hosts),
        "rank_labels": whole_tuple("rank label", topology.rank_labels, TopologyError),
        "addresses": tuple((whole("link", n, TopologyError), a, b) for n, a, b in topology.addresses),
        "switch_names": tuple(topology.switch_names),
    }
    for name, value in settled.items():
        object.__setattr__(topology, name, value)


def _check_shape(topology: Topology) -> None:
    name = topology.name
    limits.check_text("the name of a topology", name, TopologyError, empty=True)
    if topology.ranks < 2:
        msg = f"{name}: a cluster of {topology.ranks} rank has nothing to reduce; it needs at least 2"
        raise TopologyError(msg)
    if topology.switches < 0:
        raise TopologyError(f"{name}: {topology.switches} switches cannot be")
    limits.check(f"{name}: ranks", topology.ranks, limits.MAX_RANKS)
    limits.check(f"{name}: switches", topology.switches, limits.MAX_SWITCHES)
    limits.check(f"{name}: links", topology.links, limits.MAX_LINKS)
    if topology.grid is not None:
        check_grid(name, topology.grid, topology.ranks)
    if topology.rank_labels and len(topology.rank_labels) != topology.ranks:
        raise TopologyError(f"{name}: {len(topology.rank_labels)} rank labels for {topology.ranks} ranks")
    for label in topology.rank_labels:
        if not 0 <= label < limits.MAX_RANKS:
            raise TopologyError(f"{name}: rank label {label} is outside 0..{limits.MAX_RANKS - 1}")


def check_grid(name: str, grid: Grid, ranks: int) -> None:
    """Raise unless a grid fits the number of ranks; whether the links form it is not checked."""
    limits.check(f"{name}: dimensions", len(grid.shape), limits.MAX_DIMENSIONS)
    if len(grid.wrap) != len(grid.shape):
        dimensions = f"a grid of {len(grid.shape)} dimensions"
        raise TopologyError(f"{name}: wrap has {len(grid.wrap)} entries for {dimensions}; give one for each")
    if not grid.shape or min(grid.shape) < 1 or math.prod(grid.shape) != ranks:
        shape = "x".join(map(str, grid.shape)) or "no dimensions"
        raise TopologyError(f"{name}: a grid of {shape} does not have {ranks} ranks")


def _check_links(topology: Topology) -> None:
    sizes = {len(getattr(topology, column)) for column in LINK_COLUMNS}
    if len(sizes) != 1:
        raise TopologyError(f"{topology.name}: link columns differ in length: {sorted(sizes)}")
    src, dst, speed, latency = topology.link_src, topology.link_dst, topology.bandwidth, topology.latency_ps
    nowhere = (np.minimum(src, dst) < 0) | (np.maximum(src, dst) >= topology.nodes)
    most = limits.MAX_BANDWIDTH
    checks = (
        (nowhere, "ends at a node that is not there"),
        (src == dst, "joins a node to itself"),
        (speed < limits.MIN_BANDWIDTH, "needs a speed of at least 1 byte per second"),
        (speed > most, f"is faster than {most:.0e} bytes per second"),
        ((latency < 0) | (latency > limits.MAX_LATENCY_PS), "has a latency outside 0 .. 1 hour"),
    )
    for bad, problem in checks:
        if bad.any():
            link = int(np.flatnonzero(bad)[0])
            raise TopologyError(f"{topology.name}: link {link} ({src[link]} to {dst[link]}) {problem}")

    limits.check(f"{topology.name}: addresses", len(topology.addresses), limits.MAX_ADDRESSES)
    for link, *addresses in topology.addresses:
        if not 0 <= link < topology.links:
            raise TopologyError(f"{topology.name}: an address is given for link {link}, which is not there")
        for address in addresses:
            limits.check_text(f"{topology.name}: an address of link {link}", address, TopologyError)


def _check_names(topology: Topology) -> None:
    names = topology.switch_names
    if not names:
        return
    if len(names) != topology.switches:
        raise TopologyError(f"{topology.name}: {len(names)} names for {topology.switches} switches")
    for number, name in enumerate(names):
        limits.check_text(f"{topology.name}: the name of switch s{number}", name, TopologyError)
        if name != name.strip() or re.fullmatch(r"s?[0-9]+|host[0-9]+\.gpu[0-9]+|.*[,+>\x00-\x1f].*", name):
            msg = f"{topology.name}: switch s{number} cannot be called {name!r:.60}"
            raise TopologyError(f"{msg}; names are no numbers, and have no comma, plus, > or line break")
    if len(set(names)) != len(names):
        twice = next(name for number, name in enumerate(names) if name in names[:number])
        raise TopologyError(f"{topology.name}: two switches are called {twice!r:.60}")


def _check_hosts(topology: Topology) -> None:
    if not topology.hosts:
        return
    members = sorted(rank for host in topology.hosts for rank in host)
    if not all(topology.hosts):
        raise TopologyError(f"{topology.name}: host {topology.hosts.index(())} has no ranks; leave it out")
    if members != list(range(topology.ranks)):
        msg = f"{topology.name}: hosts must name every rank 0..{topology.ranks - 1} exactly once"
        raise TopologyError(msg)
