"""To and from networkx, for graphs that come from elsewhere and for algorithms that live there.

Nodes are ranks unless their ``kind`` is ``"switch"``; a rank's ``host`` may be anything hashable. Edges have
``bandwidth`` (text such as ``"25GB/s"``, or whole bytes per second) and ``latency`` (text such as ``"1us"``),
by default those of a spec. An undirected edge is a full-duplex cable, several edges between two nodes are
parallel links.

What networkx has no place for is kept in attributes, so that a round trip gives the same digest: the number
of a link in the edge attribute ``link``, the grid and the routing in ``graph.graph``.
"""

from __future__ import annotations

import contextlib
import operator
from typing import TYPE_CHECKING, Any

from weft import limits, units
from weft.errors import InputError, MissingPackageError, TopologyError
from weft.topology.cable_notes import CableNotes
from weft.topology.full_mesh import DEFAULT_BANDWIDTH, DEFAULT_LATENCY_PS
from weft.topology.graph import Routing, Topology
from weft.topology.record import checked_grid

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from weft.topology.graph import Grid


def from_networkx(graph: Any) -> Topology:
    """Build the topology that a networkx graph describes.

    Parameters
    ----------
    graph
        Any of networkx' four kinds. Ranks are numbered by their names where these are whole numbers, else in
        the order in which they were added; so are switches.

    Raises
    ------
    TopologyError
        If an attribute cannot be read, or ranks cannot reach each other.

    Examples
    --------
    >>> import networkx
    >>> from_networkx(networkx.petersen_graph())
    <Topology Petersen Graph: 10 ranks, 0 switches, 30 links>
    """
    name = str(graph.graph.get("name") or "networkx graph")[: limits.MAX_SPEC_CHARACTERS]
    limits.check(f"{name}: nodes", len(graph), limits.MAX_RANKS + limits.MAX_SWITCHES)
    limits.check(f"{name}: links", graph.number_of_edges(), limits.MAX_LINKS)
    kinds = {node: _kind(name, node, data) for node, data in graph.nodes(data=True)}
    ranks = _in_order([node for node, kind in kinds.items() if kind == "rank"])
    switches = _in_order([node for node, kind in kinds.items() if kind == "switch"])
    number = {node: index for index, node in enumerate([*ranks, *switches])}
    wiring = CableNotes(len(ranks), len(switches))
    edges = sorted(graph.edges(data=True), key=lambda edge: _link_number(edge[2]))
    for u, v, data in edges:
        try:
            speed, latency, there = _read_edge(data)
        except InputError as error:
            raise TopologyError(f"{name}: edge {_shown(u)} to {_shown(v)}: {error}") from error
        wiring.link(number[u], number[v], speed, latency, there)
        if not graph.is_directed():
            wiring.link(number[v], number[u], speed, latency, there and (there[1], there[0]))
    # Text is what other programs call a label; only numbers are those of ranks before a failure.
    labels = tuple(
        graph.nodes[node]["label"] for node in ranks if isinstance(graph.nodes[node].get("label"), int)
    )
    return wiring.build(
        name,
        hosts=_hosts(name, [graph.nodes[node].get("host") for node in ranks]),
        grid=_grid(name, graph.graph, len(ranks)),
        routing=_routing(name, graph.graph),
        rank_labels=labels if len(labels) == len(ranks) else (),
    )


def to_networkx(topology: Topology) -> Any:
    """Write a topology as a ``networkx.MultiDiGraph``: ranks ``0, 1, ..`` and switches ``"s0", "s1", ..``.

    Raises
    ------
    InputError
        If networkx is not installed.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> graph = to_networkx(load_topology("switch:3"))
    >>> graph.nodes["s0"], graph.edges[0, "s0", 0]["bandwidth"]
    ({'kind': 'switch'}, 25000000000)
    """
    try:
        import networkx as nx
    except ImportError as error:
        raise MissingPackageError("a graph of networkx", "networkx", error) from error
    graph = nx.MultiDiGraph(name=topology.name, routing=topology.routing.kind, seed=topology.routing.seed)
    if topology.grid is not None:
        graph.graph["grid"] = list(topology.grid.shape)
        graph.graph["wrap"] = list(topology.grid.wrap)
    host_of = {rank: host for host, members in enumerate(topology.hosts) for rank in members}
    names = [node if node < topology.ranks else topology.node_name(node) for node in range(topology.nodes)]
    for rank in range(topology.ranks):
        graph.add_node(rank, kind="rank")
        if host_of:
            graph.nodes[rank]["host"] = host_of[rank]
        if topology.rank_labels:
            graph.nodes[rank]["label"] = topology.rank_labels[rank]
    graph.add_nodes_from(names[topology.ranks :], kind="switch")
    addresses = {link: (src, dst) for link, src, dst in topology.addresses}
    columns = (topology.link_src, topology.link_dst, topology.bandwidth, topology.latency_ps)
    for link, (src, dst, speed, latency) in enumerate(zip(*(c.tolist() for c in columns), strict=True)):
        data = {"bandwidth": speed, "latency": units.format_time(latency), "link": link}
        if link in addresses:
            data["addresses"] = addresses[link]
        graph.add_edge(names[src], names[dst], **data)
    return graph


def _kind(name: str, node: Hashable, data: dict[str, Any]) -> str:
    kind = data.get("kind", "rank")
    if not isinstance(kind, str) or kind not in ("rank", "switch"):
        msg = f"{name}: node {_shown(node)}: kind {_shown(kind)} is unknown, expected 'rank' or 'switch'"
        raise TopologyError(msg)
    return kind


def _in_order(nodes: list[Any]) -> list[Any]:
    whole = all(isinstance(node, int) and not isinstance(node, bool) for node in nodes)
    return sorted(nodes) if whole else nodes


def _link_number(data: dict[str, Any]) -> int:
    """Sort key that restores the order of `to_networkx`; edges added later follow in their own order."""
    link = data.get("link")
    return link if isinstance(link, int) and link >= 0 else limits.MAX_LINKS


def _read_edge(data: dict[str, Any]) -> tuple[int, int, tuple[str, str] | None]:
    """Speed, latency and addresses of an edge."""
    speed = data.get("bandwidth", DEFAULT_BANDWIDTH)
    if isinstance(speed, float) and speed.is_integer():
        speed = int(speed)
    elif not isinstance(speed, str | float | bool):
        with contextlib.suppress(TypeError):
            speed = operator.index(speed)
    bandwidth = units.parse_bandwidth(speed)
    latency = units.parse_time(data["latency"]) if "latency" in data else DEFAULT_LATENCY_PS
    given = data.get("addresses")
    if given is None:
        return bandwidth, latency, None
    if not isinstance(given, tuple | list) or [type(end) for end in given] != [str, str]:
        raise TopologyError(f"addresses must be two texts, not {_shown(given)}")
    return bandwidth, latency, (given[0], given[1])


def _hosts(name: str, of_rank: Sequence[Any]) -> tuple[tuple[int, ...], ...]:
    if all(host is None for host in of_rank):
        return ()
    members: dict[Any, list[int]] = {}
    for rank, host in enumerate(of_rank):
        if host is None:
            msg = f"{name}: rank {rank} has no host, but others have; give every rank one, or none"
            raise TopologyError(msg)
        try:
            members.setdefault(host, []).append(rank)
        except TypeError as error:
            problem = f"host {_shown(host)} cannot be told from others; give text or a number"
            raise TopologyError(f"{name}: rank {rank}: {problem}") from error
    return tuple(tuple(members[host]) for host in _in_order(list(members)))


def _grid(name: str, attributes: dict[str, Any], ranks: int) -> Grid | None:
    shape = attributes.get("grid")
    if shape is None:
        return None
    try:
        sizes = [operator.index(size) for size in shape]
        wrap = [bool(closed) for closed in attributes.get("wrap", [False] * len(sizes))]
        return checked_grid(name, sizes, wrap, ranks)
    except (TypeError, TopologyError) as error:
        msg = f"{name}: graph attribute 'grid': {error}; delete it where the graph is no grid any more"
        raise TopologyError(msg) from error


def _routing(name: str, attributes: dict[str, Any]) -> Routing:
    default = "shortest" if attributes.get("grid") is None else "dimension-order"
    try:
        return Routing(str(attributes.get("routing", default)), attributes.get("seed", 0))
    except TopologyError as error:
        raise TopologyError(f"{name}: a graph attribute: {error}") from error


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
