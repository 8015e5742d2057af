"""MultiTree's machines: networks, what runs on them, and how long that takes by the engine for packets."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import msgspec

from weft.algorithms import double_binary_tree, hdrm, multitree, ring, ring2d
from weft.packets import CODESIGNED, Rules, Send, make_tables, simulate_tables
from weft.topology import load_topology

if TYPE_CHECKING:
    from weft.packets import PacketResult, TableEntry, Tables
    from weft.schedule import Schedule
    from weft.topology import Topology

LINKS: Final = "bw=16GB/s,lat=150ns"
PAYLOAD: Final = 256

RING: Final = "ring"
DOUBLE_TREE: Final = "double tree"
RING_2D: Final = "2D-ring"
"""As the authors count it: one dimension, twice."""

RING_2D_WHOLE: Final = "2D-ring, whole"
HDRM: Final = "HDRM"
MULTITREE: Final = "MultiTree"
MULTITREE_MSG: Final = "MultiTree, messages"
"""With flow control by messages: the co-design."""

_PACKETS: Final = Rules()
RULES: Final = {MULTITREE: Rules(strict=True, lockstep=True), MULTITREE_MSG: CODESIGNED}
"""Of the authors' scripts. Their arbiters ignore the priority that they set."""

FINE_PACKETS: Final = 1 << 20
"""So many packets are simulated at most; beyond, times go on along a line."""

LEAST_PACKETS: Final = 128
"""Of a message that such a line begins with: more than an interface's queue holds."""


@dataclass
class PaperMachine:
    """A network, and all-reduces on it.

    Parameters
    ----------
    network
        ``torus``, ``mesh``, ``fattree`` or ``bigraph``.
    nodes
        How many: a square for the first two; 4 on a switch of a BiGraph.
    fine_packets
        See `FINE_PACKETS`.
    """

    network: str
    nodes: int
    fine_packets: int = FINE_PACKETS

    def __post_init__(self) -> None:
        side = round(self.nodes**0.5)
        spec = {
            "torus": f"torus:{side}x{side}",
            "mesh": f"mesh:{side}x{side}",
            "fattree": f"fattree:{side},{side},{side}",
            "bigraph": f"bigraph:4x{self.nodes // 4}",
        }[self.network]
        self.topology: Topology = load_topology(f"{spec}@{LINKS}")
        self._built, self._known = cache(self._build), cache(self._simulate)

    @property
    def algorithms(self) -> tuple[str, ...]:
        """What the paper runs on such a network."""
        if self.network in ("torus", "mesh"):
            return (RING, DOUBLE_TREE, RING_2D, MULTITREE, MULTITREE_MSG)
        if self.network == "bigraph":
            return (RING, HDRM, MULTITREE, MULTITREE_MSG)
        return (RING, DOUBLE_TREE, MULTITREE, MULTITREE_MSG)

    def schedule(self, algorithm: str) -> Schedule:
        """Build an all-reduce once."""
        kind = {MULTITREE_MSG: MULTITREE, RING_2D: RING_2D_WHOLE}.get(algorithm, algorithm)
        return self._built(kind)

    def _build(self, algorithm: str) -> Schedule:
        if algorithm == RING:
            return ring.all_reduce(self.topology, order=self._ring_order())
        if algorithm == DOUBLE_TREE:
            return double_binary_tree.all_reduce(self.topology, chunks=self.nodes // 2, overlap=False)
        if algorithm == RING_2D_WHOLE:
            return ring2d.all_reduce(self.topology)
        if algorithm == HDRM:
            return hdrm.all_reduce(self.topology)
        return multitree.all_reduce(self.topology, paper_order=True)

    def _ring_order(self) -> list[int] | None:
        """The authors' rings leave the switch with each hop; on grids any ring of neighbours is theirs."""
        if self.network == "bigraph":
            return alternating_ring(4, self.nodes // 4)
        if self.network == "fattree":
            leaf = round(self.nodes**0.5)
            return [port + leaf * number for port in range(leaf) for number in range(self.nodes // leaf)]
        return None

    def ports(self, algorithm: str) -> int:
        """Interfaces of each node: four for what uses all directions of a grid, else one."""
        grid = self.network in ("torus", "mesh")
        return 4 if grid and algorithm not in (RING, DOUBLE_TREE) else 1

    def run(
        self, algorithm: str, size_bytes: int, *, detail: str = "packet", prioritised: bool = False
    ) -> PacketResult:
        """Simulate an all-reduce; of `RING_2D` one dimension.

        Parameters
        ----------
        algorithm, size_bytes
            Which, and of how much.
        detail
            Of `simulate_tables`.
        prioritised
            Whether earlier steps go first where packets meet, as the authors' scripts ask for MultiTree.

        Examples
        --------
        >>> PaperMachine("bigraph", 32).run("HDRM", 32 << 10).total_cycles
        9246
        """
        tables = make_tables(self.schedule(algorithm), size_bytes, ports=self.ports(algorithm), max_work=None)
        if algorithm == RING_2D:
            tables = _first_half(tables)
        if self.network == "fattree":
            tables = _by_source(tables, round(self.nodes**0.5))
        rules = replace(RULES.get(algorithm, _PACKETS), prioritised=prioritised)
        return simulate_tables(tables, rules=rules, detail=detail, max_work=None)

    def seconds(self, algorithm: str, size_bytes: int) -> float:
        """Time of an all-reduce, sums included; beyond `fine_packets` along a line through two smaller."""
        schedule = self.schedule(algorithm)
        packets = max(LEAST_PACKETS, self.fine_packets // schedule.transfers)
        most = packets * PAYLOAD * schedule.chunks
        if size_bytes <= most:
            return self._known(algorithm, size_bytes)
        high, low = self._known(algorithm, most), self._known(algorithm, most // 2)
        return high + (high - low) * (size_bytes - most) / (most - most // 2)

    def _simulate(self, algorithm: str, size_bytes: int) -> float:
        return times(algorithm) * self.run(algorithm, size_bytes).seconds


def times(algorithm: str) -> int:
    """How often what is simulated counts."""
    return 2 if algorithm == RING_2D else 1


def _first_half(tables: Tables) -> Tables:
    half = tables.steps // 2
    ranks = tuple(tuple(entry for entry in entries if entry.step < half) for entries in tables.ranks)
    return replace(tables, steps=half, ranks=ranks)


def _by_source(tables: Tables, leaf: int) -> Tables:
    """A fat-tree goes up by the number of the source, whatever links a tree was grown on."""
    topology = tables.topology

    def route(src: int, dst: int) -> tuple[int, ...]:
        ends = [topology.ranks + rank // leaf for rank in (src, dst)]
        spine = topology.ranks + topology.ranks // leaf + src % leaf
        stops = [src, ends[0], dst] if ends[0] == ends[1] else [src, ends[0], spine, ends[1], dst]
        return tuple(topology.links_between(a, b)[0] for a, b in pairwise(stops))

    def routed(rank: int, entry: TableEntry) -> TableEntry:
        sends = tuple(Send(send.dst, send.port, route(rank, send.dst)) for send in entry.sends)
        return msgspec.structs.replace(entry, sends=sends)

    ranks = tuple(
        tuple(routed(rank, entry) for entry in entries) for rank, entries in enumerate(tables.ranks)
    )
    return replace(tables, ranks=ranks)


def alternating_ring(on_switch: int, switches: int) -> list[int]:
    """A ring through a BiGraph that crosses between its halves with each hop, every cable once at most.

    Examples
    --------
    >>> alternating_ring(2, 4)
    [0, 4, 2, 6, 1, 7, 3, 5]
    """
    half = switches // 2
    order = [0]
    for port in range(on_switch):
        for place in range(half):
            lower = (order[-1] // on_switch + port) % half
            order.append((lower + half) * on_switch + port)
            upper = (lower + port + 1) % half
            order.append(upper * on_switch + port + (place == half - 1))
    return order[:-1]
