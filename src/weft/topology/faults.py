"""Clusters after something broke, ``+fail=3-4``, ``+fail=host3.nic5``, or slowed down, ``+speed=3-4:10GB/s``.

What fails is a cable (``3-4``), one direction of it (``3>4``), a rank (``rank:7``, ``host0.gpu7``) or a
switch, which loses all its links (``s5``, ``host3.nic5``). A failed rank takes its links with it, on direct
networks its router too. The ranks that remain are numbered anew without gaps; `Topology.rank_labels` keeps
their old numbers. All faults of one spec use the old numbers. A node is meant by its number or its name.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft import units
from weft.errors import TopologyError, UnitError
from weft.topology.graph import LINK_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from weft.topology.graph import Topology

_COUNT = re.compile(r"(.*?)(?:\*([0-9]{1,6}))?\Z", re.DOTALL)
_RANK = re.compile(r"rank:([0-9]{1,9})\Z")

_MOST_NAMED: Final = 8
"""Neighbours that an error names."""


def apply_faults(topology: Topology, faults: Sequence[str]) -> Topology:
    """The topology without what failed.

    Parameters
    ----------
    topology
        The whole cluster.
    faults
        Each ``A-B`` (both directions), ``A>B`` (one direction), either with ``*k`` to lose only k of
        parallel links, ``rank:R``, or the name of a node.

    Raises
    ------
    TopologyError
        If a fault names something that is not there.
    DisconnectedError
        If ranks that remain cannot reach each other any more.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> broken = apply_faults(load_topology("ring:5"), ["rank:2"])
    >>> broken.ranks, broken.rank_labels
    (4, (0, 1, 3, 4))
    """
    keep = np.ones(topology.links, bool)
    dead: set[int] = set()
    for fault in faults:
        rank = _RANK.match(fault)
        node = topology.parse_node(rank[1]) if rank is not None else _whole_node(topology, fault)
        if node is None:
            _cut(topology, keep, fault)
        elif node < topology.ranks:
            dead.add(node)
        else:
            keep &= (topology.link_src != node) & (topology.link_dst != node)
    # In one go: a cable and the rank behind it may both have failed; only what remains must hang together.
    return _remove_ranks(topology, dead, keep) if dead else _select_links(topology, keep)


def without_links(topology: Topology, links: Iterable[int]) -> Topology:
    """The topology without some of its links, by number.

    Raises
    ------
    DisconnectedError
        If ranks cannot reach each other any more.
    """
    keep = np.ones(topology.links, bool)
    keep[list(links)] = False
    return _select_links(topology, keep)


def apply_speeds(topology: Topology, changes: Sequence[str]) -> Topology:
    """The topology with other speeds of some of its links.

    Parameters
    ----------
    topology
        The whole cluster.
    changes
        Each ``A-B:SPEED`` (both directions), ``A>B:SPEED`` (one), or ``A:SPEED``: no link of this node is
        faster.

    Raises
    ------
    TopologyError
        If a change names something that is not there.
    UnitError
        If it is no speed.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> slow = apply_speeds(load_topology("ring:3"), ["0-1:1GB/s", "2:5GB/s"])
    >>> (slow.bandwidth // 10**9).tolist()
    [1, 1, 5, 5, 5, 5]
    """
    bandwidth = topology.bandwidth.copy()
    for change in changes:
        place, colon, text = change.rpartition(":")
        if not colon:
            raise TopologyError(f"{topology.name}: +speed={change} must be A-B:SPEED, A>B:SPEED or A:SPEED")
        try:
            speed = units.parse_bandwidth(text)
        except UnitError as error:
            raise UnitError(f"{topology.name}: +speed={change}: {error}") from error
        node = topology.find_node(place)
        if node is None:
            for _, links in _named_links(topology, f"+speed={change}", place):
                bandwidth[list(links)] = speed
        else:
            touched = (topology.link_src == node) | (topology.link_dst == node)
            bandwidth[touched] = np.minimum(bandwidth[touched], speed)
    return replace(topology, bandwidth=bandwidth)


def _whole_node(topology: Topology, fault: str) -> int | None:
    """The node that a fault names, or None if it names a cable; a bare number is no fault."""
    if re.fullmatch(r"[0-9]+", fault.strip()):
        msg = f"{topology.name}: fault {fault!r} must be A-B, A>B, rank:R or a name such as host0.nic1"
        raise TopologyError(f"{msg}; did you mean rank:{fault.strip()}?")
    return topology.find_node(fault)


def _named_links(topology: Topology, what: str, text: str) -> list[tuple[str, tuple[int, ...]]]:
    """For each direction that ``A-B`` or ``A>B`` names, what it is called and its links.

    Names may have a hyphen, so each place where the text could be divided is tried.
    """
    for sign in re.finditer("[->]", text):
        first, second = text[: sign.start()].strip(), text[sign.end() :].strip()
        a, b = topology.find_node(first), topology.find_node(second)
        if a is None or b is None:
            continue
        ways = ((a, b, first, second), (b, a, second, first)) if sign[0] == "-" else ((a, b, first, second),)
        found = [(f"{x}->{y}", topology.links_between(src, dst)) for src, dst, x, y in ways]
        if not all(links for _, links in found):
            near = sorted(set(topology.link_dst[topology.link_src == a].tolist()))
            known = ", ".join(topology.node_name(node) for node in near[:_MOST_NAMED])
            more = f" and {len(near) - _MOST_NAMED} more" if len(near) > _MOST_NAMED else ""
            msg = f"there is no link {first}->{second}; {first} has links to {known}{more}"
            raise TopologyError(f"{topology.name}: {what}: {msg}")
        return found
    parts = re.split("[->]", text, maxsplit=1)
    if len(parts) == 1 and not re.match(r"host[0-9]|s[0-9]", text):
        msg = f"{topology.name}: {what} must be A-B, A>B, rank:R or a name such as host0.nic1"
        raise TopologyError(msg)
    for part in parts:
        topology.parse_node(part)
    raise TopologyError(f"{topology.name}: {what}: {text!r} names no link")


def _cut(topology: Topology, keep: NDArray[np.bool_], fault: str) -> None:
    match = _COUNT.match(fault)
    text, limit = (fault, None) if match is None else (match[1], match[2])
    for _, links in _named_links(topology, f"fault {fault!r}", text):
        # Said twice, *1 loses two: each time counts what is still there.
        left = [link for link in links if keep[link]]
        count = int(limit) if limit else len(left)
        if limit and not 0 < count <= len(left):
            there = f"{len(left)} of its links are left" if len(left) != 1 else "one of its links is left"
            raise TopologyError(f"{topology.name}: fault {fault!r}: {there}, so {count} cannot fail")
        keep[left[len(left) - count :]] = False


def _select_links(topology: Topology, keep: NDArray[np.bool_], **changes: Any) -> Topology:
    """The topology with some of its links only, after other changes."""
    if keep.all() and not changes:
        return topology
    number = np.cumsum(keep) - 1
    changed = {name: changes.get(name, getattr(topology, name))[keep] for name in LINK_COLUMNS}
    addresses = tuple((int(number[link]), a, b) for link, a, b in topology.addresses if keep[link])
    return replace(topology, **changes | changed, addresses=addresses)


def _remove_ranks(topology: Topology, dead: set[int], intact: NDArray[np.bool_]) -> Topology:
    alive = [rank for rank in range(topology.ranks) if rank not in dead]
    number = np.full(topology.nodes, -1, np.int32)
    number[alive] = np.arange(len(alive))
    number[topology.ranks :] = np.arange(topology.switches) + len(alive)
    src, dst = number[topology.link_src], number[topology.link_dst]
    hosts = tuple(tuple(int(number[r]) for r in host if r not in dead) for host in topology.hosts)
    routing = replace(topology.routing, kind="shortest") if topology.grid else topology.routing
    return _select_links(
        topology,
        intact & (src >= 0) & (dst >= 0),
        ranks=len(alive),
        link_src=src,
        link_dst=dst,
        hosts=tuple(host for host in hosts if host),
        grid=None,
        routing=routing,
        rank_labels=tuple(topology.rank_labels[rank] if topology.rank_labels else rank for rank in alive),
    )
