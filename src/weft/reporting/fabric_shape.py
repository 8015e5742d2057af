"""Which nodes of a fabric are drawn: all of them, or a few hosts that stand for many.

A cluster of a thousand GPUs drawn rank by rank is a grey bar. Of many hosts, the first two and the last are
drawn in full, and one more stands for all others: every part of it is the mean of the parts at that place.
Switches outside of hosts are kept if a drawn host hangs on them or their tier is small; the rest of a tier is
one switch. The result is a real, smaller `Topology`, so that `weft.topology.layout` places it like any other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from weft import limits, units
from weft.topology.graph import Topology
from weft.topology.machine_layout import role_of, short_name

if TYPE_CHECKING:
    from numpy.typing import NDArray

MOST_HOSTS: Final = 12
MOST_NODES: Final = 300
"""A fabric with more of both is drawn by representatives."""

_TIER: Final = 12
"""Switches of a tier outside of hosts that are drawn one by one."""


@dataclass(frozen=True, slots=True)
class FabricShape:
    """What is drawn for a topology.

    Parameters
    ----------
    topology
        What to lay out: the topology itself, or a smaller one.
    node_of
        For each node of the whole topology, the node that is drawn for it.
    line_of
        For each link of the whole topology, the link that is drawn for it; -1 for one inside of a node.
    labels
        The names of the drawn nodes; a node that stands for several has their number.
    hosts
        Titles of the drawn hosts, empty where all are drawn.
    note
        What is drawn, in words, where that is not everything.
    """

    topology: Topology
    node_of: NDArray[np.int32]
    line_of: NDArray[np.int32]
    labels: list[str]
    hosts: list[str]
    note: str


def find_shape(topology: Topology) -> FabricShape | None:
    """Choose what to draw; None for a fabric that is too large and has no hosts that could stand for it."""
    if len(topology.hosts) > MOST_HOSTS and topology.nodes > MOST_NODES:
        return _represent(topology)
    # Parallel cables count one by one, because each of them is a line with a name.
    if topology.nodes > limits.MAX_DRAWN_NODES or topology.links > 2 * limits.MAX_DRAWN_CABLES:
        return None
    nodes = np.arange(topology.nodes, dtype=np.int32)
    names = [topology.node_name(node) for node in range(topology.nodes)]
    labels = [name if node < topology.ranks else short_name(name) for node, name in enumerate(names)]
    return FabricShape(topology, nodes, np.arange(topology.links, dtype=np.int32), labels, [], "")


def _find_owners(topology: Topology) -> list[int]:
    """The host of each node; -1 for switches that belong to none."""
    owner = [-1] * topology.nodes
    for number, host in enumerate(topology.hosts):
        for rank in host:
            owner[rank] = number
    prefixes: dict[str, int] = {}
    for rank in range(topology.ranks):
        for node in topology.neighbours[rank]:
            name = topology.node_name(node)
            if node >= topology.ranks and "." in name:
                prefixes[name.partition(".")[0]] = owner[rank]
    for node in range(topology.ranks, topology.nodes):
        name = topology.node_name(node)
        if topology.switch_names:
            owner[node] = prefixes.get(name.partition(".")[0], -1) if "." in name else -1
            continue
        users = {owner[other] for other in topology.neighbours[node] if other < topology.ranks}
        owner[node] = users.pop() if len(users) == 1 else -1
    return owner


def _find_places(topology: Topology, owner: list[int]) -> list[str]:
    """What a node is inside of its host, such as ``gpu3`` or ``nic5``: the same in hosts that are alike."""
    places = [""] * topology.nodes
    for host in topology.hosts:
        for index, rank in enumerate(host):
            places[rank] = f"gpu{index}"
    seen: dict[int, int] = {}
    for node in range(topology.ranks, topology.nodes):
        number = seen[owner[node]] = seen.get(owner[node], -1) + 1
        places[node] = short_name(topology.node_name(node)) if topology.switch_names else f"switch{number}"
    return places


def _represent(topology: Topology) -> FabricShape:
    owner = _find_owners(topology)
    places = _find_places(topology, owner)
    last = len(topology.hosts) - 1
    sizes = [len(host) for host in topology.hosts]
    # The largest of the others is drawn for them all, so that every part of any of them has its place.
    middle = max(range(2, last), key=lambda number: sizes[number])
    drawn_host = {0: 0, 1: 1, last: last}
    groups: dict[tuple[int, str], int] = {}
    keys: list[tuple[int, str]] = []
    near = _find_near_switches(topology, owner, set(drawn_host))
    for node in range(topology.nodes):
        host = owner[node]
        if host >= 0:
            key = (drawn_host.get(host, middle), places[node])
        else:
            key = (-1, near.get(node, _tier(topology, node)))
        keys.append(key)
        groups.setdefault(key, 0)
        groups[key] += 1
    first: dict[tuple[int, str], int] = {}
    for node, key in enumerate(keys):
        # The parts of the host that stands for others give the names, so that they are of one host.
        if key not in first or (owner[node] == key[0] != owner[first[key]]):
            first[key] = node
    order = sorted(first, key=lambda key: (first[key] >= topology.ranks, first[key]))
    number_of = {key: number for number, key in enumerate(order)}
    node_of = np.array([number_of[key] for key in keys], np.int32)
    reduced, line_of = _reduce(topology, node_of, order, first, [owner[first[key]] for key in order])
    labels = [_label(topology, first[key], groups[key], key) for key in order]
    merged = len(topology.hosts) - 3
    hosts = ["host 0", "host 1", f"mean of {merged} hosts", f"host {last}"]
    note = (
        f"Of {len(topology.hosts)} hosts, hosts 0, 1 and {last} are drawn in full, and one host for the "
        f"other {merged}: its links have the mean use of the links at their place."
    )
    return FabricShape(reduced, node_of, line_of, labels, hosts, note)


def _find_near_switches(topology: Topology, owner: list[int], hosts: set[int]) -> dict[int, str]:
    """Switches outside of hosts that are drawn one by one, with their names."""
    outside = [node for node in range(topology.ranks, topology.nodes) if owner[node] < 0]
    tiers: dict[str, list[int]] = {}
    for node in outside:
        tiers.setdefault(_tier(topology, node), []).append(node)
    reached = {
        b for a in range(topology.nodes) if owner[a] in hosts for b in topology.neighbours[a] if owner[b] < 0
    }
    kept: dict[int, str] = {}
    for tier in tiers.values():
        first = [node for node in tier if node in reached] if len(tier) > _TIER else tier
        for node in first[: 2 * _TIER]:
            kept[node] = topology.node_name(node)
    return kept


def _tier(topology: Topology, node: int) -> str:
    """What the switches of a tier are called together; no switch has such a name."""
    return f"{role_of(topology.node_name(node)) or ''} switches"


def _reduce(
    topology: Topology,
    node_of: NDArray[np.int32],
    order: list[tuple[int, str]],
    first: dict[tuple[int, str], int],
    owners: list[int],
) -> tuple[Topology, NDArray[np.int32]]:
    """Join nodes that are drawn as one: the topology of what is drawn, and the drawn link of each link."""
    ranks = sum(first[key] < topology.ranks for key in order)
    lines: dict[tuple[int, int], list[int]] = {}
    line_of = np.full(topology.links, -1, np.int32)
    ends = zip(node_of[topology.link_src].tolist(), node_of[topology.link_dst].tolist(), strict=True)
    for link, pair in enumerate(ends):
        if pair[0] != pair[1]:
            lines.setdefault(pair, []).append(link)
    for number, links in enumerate(lines.values()):
        line_of[links] = number
    hosts: dict[int, list[int]] = {}
    for number in range(ranks):
        hosts.setdefault(owners[number], []).append(number)
    columns = np.array(list(lines), np.int32).reshape(-1, 2)
    names = tuple(topology.node_name(first[key]) for key in order[ranks:])
    reduced = Topology(
        topology.name,
        ranks,
        len(order) - ranks,
        columns[:, 0],
        columns[:, 1],
        np.array([topology.bandwidth[links].max() for links in lines.values()], np.int64),
        np.array([topology.latency_ps[links].max() for links in lines.values()], np.int64),
        hosts=tuple(tuple(members) for members in hosts.values()),
        switch_names=names if topology.switch_names else (),
    )
    return reduced, line_of


def _label(topology: Topology, node: int, count: int, key: tuple[int, str]) -> str:
    if count == 1:
        name = topology.node_name(node)
        return name if node < topology.ranks else short_name(name)
    if key[0] < 0:
        return units.count(count, key[1].partition(" ")[0])
    return "" if node < topology.ranks else key[1]
