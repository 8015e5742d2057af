"""Edits of a cluster: a cable that is cut, slowed down or added, as a new topology."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from weft import limits, units
from weft.errors import InputError, TopologyError
from weft.topology.faults import without_links

if TYPE_CHECKING:
    from weft.studio.api_bodies import EditBody
    from weft.topology import Topology


def apply_edit(topology: Topology, edit: EditBody) -> Topology:
    """The topology after an edit; its name stays.

    Raises
    ------
    InputError
        If the edit names no cable, lacks a quantity, or has one that does not belong to it.
    DisconnectedError
        If ranks cannot reach each other any more.

    Examples
    --------
    >>> from weft.studio.api_bodies import EditBody
    >>> from weft.topology import load_topology
    >>> ring = load_topology("ring:4")
    >>> apply_edit(ring, EditBody("cut", "0", "1")).links
    6
    >>> apply_edit(ring, EditBody("add", "0", "2", bandwidth="1GB/s", latency="1us")).links
    10
    """
    _check_quantities(edit)
    a, b = topology.parse_node(edit.a), topology.parse_node(edit.b)
    if edit.action == "add":
        return _add_cable(topology, a, b, edit)
    links = list(topology.links_between(a, b) + topology.links_between(b, a))
    if not links:
        ends = f"{topology.node_name(a)} and {topology.node_name(b)}"
        raise TopologyError(f"{topology.name}: there is no cable between {ends}")
    if edit.action == "cut":
        return without_links(topology, links)
    bandwidth = topology.bandwidth.copy()
    if edit.bandwidth is not None:
        bandwidth[links] = units.parse_bandwidth(edit.bandwidth)
    elif edit.factor is not None:
        slowed = np.floor(bandwidth[links] * edit.factor).astype(np.int64)
        bandwidth[links] = np.maximum(slowed, limits.MIN_BANDWIDTH)
    return replace(topology, bandwidth=bandwidth)


def describe_edit(edit: EditBody) -> str:
    """What an edit does, for people.

    Examples
    --------
    >>> from weft.studio.api_bodies import EditBody
    >>> describe_edit(EditBody("slow", "0", "1", factor=0.5))
    'slow 0-1 to 50 % of its speed'
    """
    cable = f"{edit.a.strip()}-{edit.b.strip()}"
    match edit.action:
        case "cut":
            return f"cut {cable}"
        case "slow":
            to = f"{100 * edit.factor:g} % of its speed" if edit.factor is not None else f"{edit.bandwidth}"
            return f"slow {cable} to {to}"
        case _:
            return f"add {cable} with {edit.bandwidth} and {edit.latency}"


def _check_quantities(edit: EditBody) -> None:
    given = {name for name in ("bandwidth", "factor", "latency") if getattr(edit, name) is not None}
    allowed = {
        "cut": (set[str](),),
        "slow": ({"bandwidth"}, {"factor"}),
        "add": ({"bandwidth", "latency"},),
    }[edit.action]
    if given not in allowed:
        wanted = {
            "cut": "neither bandwidth nor factor nor latency",
            "slow": "either a bandwidth, such as 10GB/s, or a factor, such as 0.1",
            "add": "a bandwidth, such as 10GB/s, and a latency, such as 1us",
        }[edit.action]
        raise InputError(f"{edit.action} {edit.a}-{edit.b}: give {wanted}")


def _add_cable(topology: Topology, a: int, b: int, edit: EditBody) -> Topology:
    """Both directions at the end, so that the links before them keep their numbers."""
    assert edit.bandwidth is not None
    assert edit.latency is not None
    if a == b:
        raise TopologyError(f"{topology.name}: a cable from {topology.node_name(a)} to itself joins nothing")
    speed, latency_ps = units.parse_bandwidth(edit.bandwidth), units.parse_time(edit.latency)
    limits.check("links of a cluster in the studio", topology.links + 2, limits.MAX_STUDIO_LINKS)
    return replace(
        topology,
        link_src=np.append(topology.link_src, (a, b)),
        link_dst=np.append(topology.link_dst, (b, a)),
        bandwidth=np.append(topology.bandwidth, (speed, speed)),
        latency_ps=np.append(topology.latency_ps, (latency_ps, latency_ps)),
    )
