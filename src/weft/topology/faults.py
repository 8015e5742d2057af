"""Clusters after something broke: ``+fail=3-4``, ``+fail=3>4``, ``+fail=s0-s3``, ``+fail=rank:7``.

A failed rank takes its links with it, on direct networks its router too. The ranks that remain are numbered
anew without gaps; `Topology.rank_labels` keeps their old numbers. All faults of one spec use the old numbers.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.errors import TopologyError
from weft.topology.graph import LINK_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from weft.topology.graph import Topology

_LINK = re.compile(r"(s?[0-9]+)\s*([->])\s*(s?[0-9]+)(?:\*([0-9]{1,6}))?\Z")
_RANK = re.compile(r"rank:([0-9]{1,9})\Z")


def apply_faults(topology: Topology, faults: Sequence[str]) -> Topology:
    """The topology without what failed.

    Parameters
    ----------
    topology
        The whole cluster.
    faults
        Each ``A-B`` (both directions), ``A>B`` (one direction), either with ``*k`` to lose only k of
        parallel links, or ``rank:R``.

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
        link, rank = _LINK.match(fault), _RANK.match(fault)
        if link is not None:
            _cut(topology, keep, fault, link)
        elif rank is not None:
            dead.add(topology.parse_node(rank[1]))
        else:
            raise TopologyError(f"{topology.name}: fault {fault!r} must be A-B, A>B or rank:R")
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


def _cut(topology: Topology, keep: NDArray[np.bool_], fault: str, match: re.Match[str]) -> None:
    a, b = topology.parse_node(match[1]), topology.parse_node(match[3])
    for src, dst in ((a, b), (b, a)) if match[2] == "-" else ((a, b),):
        links = topology.links_between(src, dst)
        if not links:
            msg = f"{topology.name}: fault {fault!r}: there is no link {match[1]}->{match[3]} to fail"
            raise TopologyError(msg)
        # Said twice, *1 loses two: each time counts what is still there.
        left = [link for link in links if keep[link]]
        count = int(match[4]) if match[4] else len(left)
        if match[4] and not 0 < count <= len(left):
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
