"""Connect a rank to the other ranks: shared memory inside one machine, sockets between machines.

`connect` is for all ranks of a job, which agree over the control plane. `connect_part` is for some of the
ranks of a communicator, which agree over the collectives that they already have. What ranks tell each other
before they connect is in `weft.runtime.transport.address_exchange`.

The C++ half is ``cpp/runtime/shared_memory.cpp``, ``local_watch.cpp`` and ``heartbeats.cpp``, and the links
of ``cpp/runtime/link.hpp``.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import socket
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

from weft.errors import LimitError, RuntimeFailure, WeftError
from weft.runtime.bootstrap.control_plane import check_timeout
from weft.runtime.bootstrap.shrink import ShrinkKit
from weft.runtime.extension import _runtime
from weft.runtime.resources import guarded
from weft.runtime.transport.address_exchange import describe_rank, exchange_addresses, exchange_infos
from weft.runtime.transport.heartbeats import start_heartbeats
from weft.runtime.transport.link_connections import LinkConnections, find_link_connections, find_nodes
from weft.runtime.transport.rank_transport import Transport, TransportSettings
from weft.runtime.transport.tcp_connections import (
    HEARTBEATS,
    LOOPBACK,
    PeerConnection,
    connect_peers,
    open_data_listener,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from weft.runtime.bootstrap.control_plane import ControlPlane
    from weft.runtime.bootstrap.members import Member
    from weft.runtime.transport.address_exchange import RankInfo
    from weft.runtime.transport.link_connections import ConnectionEnds
    from weft.runtime.transport.tcp_connections import ListenAddress
    from weft.topology import Topology

_SMALLER: Final = "set WEFT_ARENA to less, such as 256MiB, or raise 'ulimit -v'"


@dataclass(frozen=True, slots=True)
class _Placement:
    """Which ranks are on this machine, and which are reached through sockets."""

    rank: int
    local: list[int]
    """Number on this machine of each rank, -1 for those of other machines."""
    remote: list[int]

    @staticmethod
    def find(members: Sequence[Member], rank: int, transport: str) -> _Placement:
        """Compare the hosts of all ranks with the host of this rank."""
        host = members[rank].boot_id
        numbers = iter(range(len(members)))
        local = [next(numbers) if member.boot_id == host else -1 for member in members]
        remote = [
            other
            for other in range(len(members))
            if other != rank and (local[other] < 0 or transport == "tcp")
        ]
        return _Placement(rank, local, remote)

    @property
    def neighbours(self) -> list[int]:
        """The ranks of this machine, this one included."""
        return [rank for rank, number in enumerate(self.local) if number >= 0]

    @property
    def is_one_machine(self) -> bool:
        """Whether all ranks are on this machine."""
        return -1 not in self.local

    @property
    def watched(self) -> list[int]:
        """The ranks that this one exchanges heartbeats with by sockets: rank 0 with every other rank."""
        if self.is_one_machine:
            return []
        return list(range(1, len(self.local))) if self.rank == 0 else [0]


def connect(
    control_plane: ControlPlane,
    settings: TransportSettings,
    *,
    timeout: float,
    topology: Topology | None = None,
) -> Transport:
    """Connect this rank to all others; every rank calls this.

    Parameters
    ----------
    control_plane
        Of all ranks; it is closed if they cannot be connected.
    settings
        The same on all ranks.
    timeout
        Seconds for all of it.
    topology
        Of the ranks or of the hosts; where it names addresses, there is one socket for each cable.

    Raises
    ------
    InputError
        If the settings are wrong, ranks have different ones, or an address is not of this machine.
    TimedOut, PeerLost, RuntimeFailure
        If a rank cannot be reached.
    """
    try:
        with guarded("connecting to the other ranks"):
            return _connect(control_plane, settings, timeout, topology)
    except WeftError as error:
        found = control_plane.fail(error, "connect")
        if isinstance(found, RuntimeFailure):
            control_plane.reporter.tell(found)
        control_plane.close()
        if found is error:
            del found
            raise
        try:
            raise found from error
        finally:
            del found  # an error in a variable of its own traceback would keep all that was opened
    except BaseException:
        control_plane.close()
        raise


def _connect(
    control_plane: ControlPlane, settings: TransportSettings, timeout: float, topology: Topology | None
) -> Transport:
    deadline = time.monotonic() + check_timeout(timeout)

    def time_left() -> float:
        return max(0.001, deadline - time.monotonic())

    rank, members = control_plane.rank, control_plane.members
    placement = _Placement.find(members, rank, settings.transport)
    settings = settings.complete(len(placement.neighbours))
    links = find_link_connections(topology, find_nodes(topology, members), rank)
    host = _make_host(placement, settings, members)
    address = LOOPBACK if placement.is_one_machine else control_plane.address
    with open_data_listener(address, _own_addresses(links, placement.remote), time_left()) as listener:
        probe = np.frombuffer(secrets.token_bytes(8), np.uint64).copy()
        info = describe_rank(host, settings, links, listener.listens_at, probe)
        infos = exchange_infos(control_plane, info, time_left())
        readable = _attach_neighbours(host, placement, settings, infos)
        addresses = [info.listens_at for info in infos]
        wanted = _data_connections(placement.remote, settings.streams, links)
        wanted.update({PeerConnection(other, HEARTBEATS): None for other in placement.watched})
        connections = connect_peers(rank, listener, addresses, wanted, time_left(), control_plane)
        shrink_kit = ShrinkKit(listener.keep(), addresses) if len(members) > 1 else None
    told = control_plane.exchange(msgspec.msgpack.encode(sorted(readable)), time_left())
    agreed = [msgspec.msgpack.decode(part, type=set[int]) for part in told]
    watched = {other: connections[PeerConnection(other, HEARTBEATS)] for other in placement.watched}
    transport = Transport(
        rank=rank,
        identity=_identify(addresses),
        host=host,
        channel=0,
        job=list(range(len(members))),
        local=placement.local,
        can_read=frozenset(other for other in readable if rank in agreed[other]),
        sockets=_data_sockets(connections, placement.remote),
        link_connections=links,
        settings=settings,
        address=address,
        channels={0},
        heartbeats=start_heartbeats(host, placement.neighbours, len(members), watched),
        watched=watched,
        shrink_kit=shrink_kit,
    )
    control_plane.barrier(time_left())
    return transport


def reconnect(
    before: Transport, control_plane: ControlPlane, topology: Topology | None, timeout: float
) -> Transport:
    """Connect all ranks anew, after something went wrong; every rank calls this.

    The memory that they share stays, and so do the heartbeats.
    """
    before.close_data()
    members = control_plane.members
    transport = connect_part(
        before,
        range(len(members)),
        lambda payload: control_plane.exchange(payload, timeout),
        timeout,
        links=find_link_connections(topology, find_nodes(topology, members), control_plane.rank),
        control_plane=control_plane,
    )
    assert transport is not None
    transport.heartbeats, transport.watched = before.heartbeats, before.watched
    transport.shrink_kit = before.shrink_kit
    return transport


def connect_part(
    whole: Transport,
    members: Sequence[int],
    exchange: Callable[[bytes], list[bytes]],
    timeout: float,
    *,
    links: LinkConnections | None = None,
    control_plane: ControlPlane | None = None,
    check: Callable[[], None] | None = None,
) -> Transport | None:
    """Connect some ranks among themselves, over the memory that they already share; every rank calls this.

    Parameters
    ----------
    whole
        The connections of all of them.
    members
        The ranks that belong together, in their new order; none if this one stays outside.
    exchange
        Gives every rank the bytes of all ranks.
    timeout
        Seconds for connecting.
    links
        The connections that a topology prescribes; by default those of `whole`.
    control_plane
        Of all ranks, if it is free to say which rank is lost meanwhile.
    check
        Raises if a rank is lost meanwhile, where the control plane is not free.

    Raises
    ------
    LimitError
        If these ranks have no channel left that all of them could use.
    """
    links, streams = links or whole.link_connections, whole.settings.streams
    used = [set(part) for part in exchange(bytes(sorted(whole.channels)))]
    taken = set().union(*(used[rank] for rank in members))
    channel = next((one for one in range(_runtime.CHANNELS) if members and one not in taken), None)
    if channel is not None:
        whole.host.reset(channel)
    remote = [rank for rank in members if rank in whole.sockets] if channel is not None else []
    with open_data_listener(whole.address, _own_addresses(links, remote), timeout) as listener:
        addresses = exchange_addresses(exchange, listener.listens_at)
        wanted = _data_connections(remote, streams, links)
        connections = connect_peers(whole.rank, listener, addresses, wanted, timeout, control_plane, check)
    if not members:
        return None
    if channel is None:
        most = f"at most {_runtime.CHANNELS} on a machine at a time"
        raise LimitError(f"no room for one more communicator: {most}; close some")
    whole.channels.add(channel)
    sockets, identity = _data_sockets(connections, remote), _identify([addresses[rank] for rank in members])
    return _make_part(whole, members, channel, sockets, identity, links)


def _make_part(
    whole: Transport,
    members: Sequence[int],
    channel: int,
    sockets: dict[int, list[socket.socket]],
    identity: int,
    links: LinkConnections,
) -> Transport:
    """Number the ranks of a part anew."""
    number = {rank: new for new, rank in enumerate(members)}
    return Transport(
        rank=number[whole.rank],
        identity=identity,
        host=whole.host,
        channel=channel,
        job=[whole.job[rank] for rank in members],
        local=[whole.local[rank] for rank in members],
        can_read=frozenset(number[rank] for rank in members if rank in whole.can_read),
        sockets={number[rank]: some for rank, some in sockets.items()},
        link_connections=links.among(members),
        settings=whole.settings,
        address=whole.address,
        channels=whole.channels,
    )


def _own_addresses(links: LinkConnections, remote: Sequence[int]) -> list[str]:
    """All addresses that the topology gives to this rank.

    Those that this rank only calls from are among them, so that a wrong one is found at once.
    """
    return sorted({ends.here for rank in remote for ends in links.ends.get(rank, ())})


def _data_connections(
    remote: Sequence[int], streams: int, links: LinkConnections
) -> dict[PeerConnection, ConnectionEnds | None]:
    """The data connections that this rank needs, with their addresses where the topology prescribes them."""
    return {
        PeerConnection(rank, number): ends
        for rank in remote
        for number, ends in enumerate(links.ends.get(rank, (None,) * streams))
    }


def _data_sockets(
    connections: dict[PeerConnection, socket.socket], remote: Sequence[int]
) -> dict[int, list[socket.socket]]:
    """The sockets of the data connections to each rank, in their order."""
    found: dict[int, list[socket.socket]] = {rank: [] for rank in remote}
    for connection in sorted(connections):
        if connection.purpose != HEARTBEATS:
            found[connection.rank].append(connections[connection])
    return found


def _identify(addresses: Sequence[ListenAddress]) -> int:
    """Number of a communicator that all its ranks know and no other has: their tokens are random."""
    digest = hashlib.sha256(b"".join(address.token for address in addresses)).digest()
    return int.from_bytes(digest[:8], "little")


def _make_host(
    placement: _Placement, settings: TransportSettings, members: Sequence[Member]
) -> _runtime.Host:
    """Make the shared memory of this rank."""
    ranks, arena_bytes = len(placement.neighbours), settings.arena_bytes
    assert arena_bytes is not None
    # Ranks in other containers share the processors of this machine too.
    machine = members[placement.rank].machine
    crowded = sum(member.machine == machine for member in members) > len(os.sched_getaffinity(0))
    readable = settings.transport == "auto" and ranks > 1
    with guarded(f"making {ranks} x {arena_bytes:,} bytes of shared memory", memory=_SMALLER):
        return _runtime.Host(placement.local[placement.rank], ranks, arena_bytes, crowded, readable)


def _attach_neighbours(
    host: _runtime.Host, placement: _Placement, settings: TransportSettings, infos: Sequence[RankInfo]
) -> set[int]:
    """Map the shared memory of the ranks of this machine; those whose private memory can be read as well."""
    readable = set()
    for rank in placement.neighbours:
        if rank != placement.rank:
            number, info = placement.local[rank], infos[rank]
            _attach(host, number, rank, info)
            if settings.transport == "auto" and host.can_read(number, info.probe_address, info.probe_value):
                readable.add(rank)
    return readable


def _attach(host: _runtime.Host, number: int, rank: int, info: RankInfo) -> None:
    assert info.settings.arena_bytes is not None  # settings are exchanged with nothing left open
    with guarded(f"the shared memory of rank {rank} (pid {info.pid}) cannot be used", memory=_SMALLER):
        host.attach(number, info.pid, info.descriptor, info.settings.arena_bytes)
