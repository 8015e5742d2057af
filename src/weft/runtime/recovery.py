"""Recovery after a lost link or rank: what all ranks completed, and what is left of the topology."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import msgspec

from weft import limits
from weft.errors import DisconnectedError
from weft.runtime.transport.link_connections import find_link_connections, find_nodes
from weft.topology.faults import apply_faults, without_links

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.runtime.bootstrap.control_plane import ControlPlane
    from weft.topology import Topology

_Rank = Annotated[int, msgspec.Meta(ge=0, lt=limits.MAX_JOB_RANKS)]
Cut = tuple[_Rank, _Rank, Annotated[int, msgspec.Meta(ge=0, lt=limits.MAX_LINKS)]]
"""Lower and higher rank of a connection, and which of theirs it is."""


class _Report(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    completed: Annotated[int, msgspec.Meta(ge=0, lt=2**62)]
    cut: Cut | None


@dataclass(frozen=True)
class Recovery:
    """What the ranks agreed on after a link was lost.

    Parameters
    ----------
    completed
        Operations that every rank has completed; later ones are to be repeated.
    ahead
        Operations more that this rank has completed.
    topology
        Without the cables that carry nothing any more; None if there was none.
    """

    completed: int
    ahead: int
    topology: Topology | None


@dataclass(frozen=True)
class Survivors:
    """What is left of a communicator whose ranks were lost.

    Parameters
    ----------
    before
        The rank that each survivor had, by its new rank.
    ahead
        Operations that this rank has completed, and some other survivor has not.
    topology
        Without the ranks that are lost; None if there was none, or it does not hang together any more.
    """

    before: tuple[int, ...]
    ahead: int
    topology: Topology | None


def without_ranks(topology: Topology | None, hosts: list[list[int]], left: Sequence[int]) -> Topology | None:
    """The topology of the ranks that are left, or of their hosts.

    Parameters
    ----------
    topology
        Of all ranks so far, or of their hosts.
    hosts
        The ranks of each host so far.
    left
        The ranks that are left.
    """
    if topology is None:
        return None
    here = set(left)
    if topology.ranks == len(hosts) and topology.ranks != sum(map(len, hosts)):
        gone = [number for number, ranks in enumerate(hosts) if not here.intersection(ranks)]
    else:
        gone = [rank for rank in range(topology.ranks) if rank not in here]
    if topology.ranks - len(gone) < 2:
        return None
    try:
        return apply_faults(topology, [f"rank:{rank}" for rank in gone])
    except DisconnectedError:
        return None


def agree(
    control_plane: ControlPlane, cut: Cut | None, completed: int, topology: Topology | None, timeout: float
) -> Recovery:
    """Agree on what all ranks have completed and which links are lost; every rank calls this.

    Parameters
    ----------
    control_plane
        Of all ranks.
    cut, completed
        The lost connection that this rank knows of, and the operations that it has completed.
    topology
        So far; the same on all ranks.
    timeout
        Seconds.
    """
    report = _Report(completed, cut)
    told = control_plane.exchange(msgspec.msgpack.encode(report), timeout)
    reports = [msgspec.msgpack.decode(part, type=_Report) for part in told]
    if topology is not None:
        nodes = find_nodes(topology, control_plane.members)
        cuts = {one.cut for one in reports if one.cut is not None}
        links = [link for one in sorted(cuts) for link in _links_of(topology, nodes, one)]
        topology = without_links(topology, links)
    common = min(one.completed for one in reports)
    return Recovery(common, completed - common, topology)


def _links_of(topology: Topology, nodes: list[int], cut: Cut) -> list[int]:
    """Links, both ways, of the cable that a connection went over; none if it had none of its own."""
    lower, higher, number = cut
    ends = find_link_connections(topology, nodes, lower).ends.get(higher, ())
    if number >= len(ends):
        return []
    both = {tuple(ends[number]), tuple(ends[number])[::-1]}
    return [link for link, src, dst in topology.addresses if (src, dst) in both]
