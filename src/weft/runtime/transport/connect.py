"""How a rank reaches the others: memory inside one machine, sockets between machines.

Everything that has to be agreed on goes through the roster, whose members have proved who they are, or, when
some of the ranks make a communicator of their own, through the one that they already have.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import socket
import time
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

from weft import _core
from weft.errors import InputError, LimitError, WeftError
from weft.runtime.bootstrap.control_plane import check_timeout
from weft.runtime.bootstrap.regroup import RegroupKit
from weft.runtime.resources import guarded
from weft.runtime.transport.arena_allocator import find_arena_bytes
from weft.runtime.transport.connections import (
    HEARTBEATS,
    LOOPBACK,
    ListenAddress,
    PeerConnection,
    connect_lines,
    open_door,
)
from weft.runtime.transport.link_connections import LinkConnections, find_lanes, find_nodes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from weft.runtime.bootstrap.control_plane import ControlPlane
    from weft.runtime.bootstrap.members import Member
    from weft.runtime.transport.link_connections import ConnectionEnds
    from weft.topology import Topology

SUSPECT_AFTER_MS: Final = 1000
"""A rank that has been silent for so long is named to those who wait for it."""

FROZEN_AFTER_MS: Final = 5000
"""A rank that has been silent for so long is declared lost."""

_SMALLER: Final = "set WEFT_ARENA to less, such as 256MiB, or raise 'ulimit -v'"

TRANSPORTS: Final = ("auto", "copy", "tcp")
MAX_STREAMS: Final = 16


class _Card(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a rank tells the others about itself."""

    pid: int
    descriptor: int
    arena_bytes: int
    probe: int
    word: int
    streams: int
    checksums: bool
    topology: str
    """Digest, if it prescribes connections."""
    door: ListenAddress


@dataclass(slots=True, kw_only=True)
class Transport:
    """What connects one rank to all others of a communicator.

    Parameters
    ----------
    host
        The memory it shares with the ranks of its machine.
    executor
        What moves data.
    job
        Each rank's number in the job.
    local
        Each rank's number on this machine, -1 for those of other machines.
    can_read
        The ranks whose memory this process may read, and that may read its own.
    sockets
        For each rank that is reached through some: one for each lane.
    streams
        How many each pair of ranks has where the topology does not say.
    lanes
        What the topology says.
    checksums
        Whether data that goes through sockets is followed by its checksum.
    transport, arena_bytes
        As they were asked for.
    address
        Where this rank listens for further connections.
    channels
        Those of the host that are in use; all communicators of a process have the same set.
    heartbeats
        The watch over other machines, if there are any, and its sockets.
    reunion
        Where the ranks of the job can meet again if some are lost; None for a part of them, and for one rank.
    """

    host: _core.Host
    executor: _core.Executor
    channel: int
    job: list[int]
    local: list[int]
    can_read: frozenset[int]
    sockets: dict[int, list[socket.socket]]
    streams: int
    lanes: LinkConnections
    checksums: bool
    transport: str
    arena_bytes: int
    address: str
    channels: set[int] = field(default_factory=set)
    heartbeats: _core.Heartbeats | None = None
    watched: dict[int, socket.socket] = field(default_factory=dict)
    reunion: RegroupKit | None = None

    def close(self) -> None:
        """Let go of everything; the others see that this rank left on purpose."""
        if self.heartbeats is not None:
            self.heartbeats.close()
        self.executor.close()
        self.channels.discard(self.channel)
        if not self.channels:
            self.host.close()
        for connection in (*chain.from_iterable(self.sockets.values()), *self.watched.values()):
            connection.close()
        if self.reunion is not None:
            self.reunion.close()


def connect(
    roster: ControlPlane,
    *,
    transport: str,
    streams: int,
    arena_bytes: int | None,
    timeout: float,
    checksums: bool = True,
    topology: Topology | None = None,
) -> Transport:
    """Connect this rank to all others; every rank calls this.

    Parameters
    ----------
    roster
        Who they are.
    transport
        ``"auto"``: memory within a machine, sockets between machines. ``"copy"``: the same, but no rank reads
        the private memory of another. ``"tcp"``: sockets everywhere.
    streams
        Sockets between two ranks that are not reached through memory, unless the topology says more.
    arena_bytes
        Room for shared tensors, by default what `find_arena_bytes` says; only what is used takes memory.
    timeout
        Seconds for all of it.
    checksums
        Whether data that goes through sockets is followed by its checksum; the same on all ranks.
    topology
        Of the ranks or of the hosts; where it names addresses, there is one socket for each cable.

    Raises
    ------
    InputError
        If the transport is unknown, ranks want different things, or an address is not of this machine.
    TimedOut, PeerLost, RuntimeFailure
        If somebody cannot be reached.
    """
    try:
        with guarded("connecting to the other ranks"):
            return _connect(roster, transport, streams, arena_bytes, timeout, checksums, topology)
    except WeftError as error:
        found = roster.fail(error, "connect")
        roster.close()
        if found is error:
            del found
            raise
        try:
            raise found from error
        finally:
            del found  # an error in a variable of its own traceback would keep all that was opened
    except BaseException:
        roster.close()
        raise


def _connect(
    roster: ControlPlane,
    transport: str,
    streams: int,
    arena_bytes: int | None,
    timeout: float,
    checksums: bool,
    topology: Topology | None,
) -> Transport:
    deadline = time.monotonic() + check_timeout(timeout)

    def left() -> float:
        return max(0.001, deadline - time.monotonic())

    if transport not in TRANSPORTS:
        msg = f"transport {transport!r} is unknown, expected {', '.join(TRANSPORTS)}"
        raise InputError(msg)
    if not 1 <= streams <= MAX_STREAMS:
        msg = f"streams {streams}: expected 1 to {MAX_STREAMS}"
        raise InputError(msg)
    me, members = roster.rank, roster.members
    neighbours = [member.rank for member in members if member.boot_id == members[me].boot_id]
    local = [neighbours.index(rank) if rank in neighbours else -1 for rank in range(roster.size)]
    others = [rank for rank in range(roster.size) if rank != me]
    remote = [rank for rank in others if local[rank] < 0 or transport == "tcp"]
    lanes = find_lanes(topology, find_nodes(topology, members), me)
    arena_bytes = find_arena_bytes(len(neighbours)) if arena_bytes is None else arena_bytes
    readable = transport == "auto" and len(neighbours) > 1
    host = _make_host(local[me], len(neighbours), arena_bytes, _is_crowded(members, me), readable)
    word = np.frombuffer(secrets.token_bytes(8), np.uint64).copy()
    alone = len(neighbours) == roster.size
    address = LOOPBACK if alone else roster.address
    with open_door(address, _own_addresses(lanes, remote), left()) as entrance:
        card = _Card(
            pid=os.getpid(),
            descriptor=host.descriptor,
            arena_bytes=arena_bytes,
            probe=int(word.__array_interface__["data"][0]),
            word=int(word[0]),
            streams=streams,
            checksums=checksums,
            topology=lanes.digest,
            door=entrance.door,
        )
        told = roster.exchange(msgspec.msgpack.encode(card), left())
        cards = [msgspec.msgpack.decode(part, type=_Card) for part in told]
        _check_cards(cards, me)
        reads = set()
        for rank in neighbours:
            if rank != me:
                _attach(host, local[rank], rank, cards[rank])
                if readable and host.can_read(local[rank], cards[rank].probe, cards[rank].word):
                    reads.add(rank)
        hub = [] if alone else others if me == 0 else [0]
        beats = {PeerConnection(rank, HEARTBEATS): None for rank in hub}
        wanted = _wanted(remote, streams, lanes) | beats
        lines = connect_lines(me, entrance, [card.door for card in cards], wanted, left(), roster)
        reunion = RegroupKit(entrance.keep(), [card.door for card in cards]) if others else None
    told = roster.exchange(msgspec.msgpack.encode(sorted(reads)), left())
    agreed = [set(msgspec.msgpack.decode(part, type=list[int])) for part in told]
    can_read = frozenset(rank for rank in reads if me in agreed[rank])
    watched = {line.rank: lines[line] for line in beats}
    host.start_watch(SUSPECT_AFTER_MS, FROZEN_AFTER_MS, neighbours, roster.size)
    heartbeats = None
    if not alone:
        descriptors = [watched[rank].fileno() if rank in watched else -1 for rank in range(roster.size)]
        heartbeats = _core.Heartbeats(host, descriptors, SUSPECT_AFTER_MS, FROZEN_AFTER_MS)
    job, sockets = list(range(roster.size)), _by_rank(lines, remote)
    wires = Transport(
        host=host,
        executor=_make_executor(
            host, 0, _identify([card.door for card in cards]), me, job, local, sockets, can_read, checksums
        ),
        channel=0,
        job=job,
        local=local,
        can_read=can_read,
        sockets=sockets,
        streams=streams,
        lanes=lanes,
        checksums=checksums,
        transport=transport,
        arena_bytes=arena_bytes,
        address=address,
        channels={0},
        heartbeats=heartbeats,
        watched=watched,
        reunion=reunion,
    )
    roster.barrier(left())
    return wires


def reconnect(
    before: Transport, roster: ControlPlane, topology: Topology | None, timeout: float
) -> Transport:
    """Connect all ranks anew, after something went wrong; every rank calls this.

    What they share in memory stays, and so does the watch over who is alive.
    """
    before.executor.close()
    before.channels.discard(before.channel)
    for connection in chain.from_iterable(before.sockets.values()):
        connection.close()
    lanes = find_lanes(topology, find_nodes(topology, roster.members), roster.rank)
    everybody = range(roster.size)
    wires = branch(
        replace(before, lanes=lanes),
        roster.rank,
        everybody,
        lambda payload: roster.exchange(payload, timeout),
        timeout,
        roster,
    )
    assert wires is not None
    wires.heartbeats, wires.watched, wires.reunion = before.heartbeats, before.watched, before.reunion
    return wires


def branch(
    trunk: Transport,
    me: int,
    members: Sequence[int],
    tell: Callable[[bytes], list[bytes]],
    timeout: float,
    watch: ControlPlane | None = None,
    check: Callable[[], None] | None = None,
) -> Transport | None:
    """Connect some ranks among themselves, over the memory that they already share; every rank calls this.

    Parameters
    ----------
    trunk
        What connects all of them.
    me
        This rank there.
    members
        The ranks that belong together, in their new order; none if this one stays outside.
    tell
        Gives everybody everybody's bytes.
    timeout
        Seconds for connecting.
    watch
        The control plane of all ranks, if it is free to say who is lost meanwhile.
    check
        Raises if a rank is lost meanwhile, where the control plane is not free.

    Raises
    ------
    LimitError
        If these ranks have no channel left that all of them could use.
    """
    used = [set(part) for part in tell(bytes(sorted(trunk.channels)))]
    free = [
        channel
        for channel in range(_core.CHANNELS)
        if members and all(channel not in used[rank] for rank in members)
    ]
    if free:
        trunk.host.reset(free[0])
    remote = [rank for rank in members if rank in trunk.sockets] if free else []
    with open_door(trunk.address, _own_addresses(trunk.lanes, remote), timeout) as entrance:
        told = tell(msgspec.msgpack.encode(entrance.door))
        doors = [msgspec.msgpack.decode(part, type=ListenAddress) for part in told]
        wanted = _wanted(remote, trunk.streams, trunk.lanes)
        lines = connect_lines(me, entrance, doors, wanted, timeout, watch, check)
    if not members:
        return None
    if not free:
        msg = (
            f"no room for one more communicator: at most {_core.CHANNELS} on a machine at a time; close some"
        )
        raise LimitError(msg)
    trunk.channels.add(free[0])
    number = {rank: new for new, rank in enumerate(members)}
    job, local = [trunk.job[rank] for rank in members], [trunk.local[rank] for rank in members]
    can_read = frozenset(number[rank] for rank in members if rank in trunk.can_read)
    sockets = {number[rank]: lanes for rank, lanes in _by_rank(lines, remote).items()}
    return Transport(
        host=trunk.host,
        executor=_make_executor(
            trunk.host,
            free[0],
            _identify([doors[rank] for rank in members]),
            number[me],
            job,
            local,
            sockets,
            can_read,
            trunk.checksums,
        ),
        channel=free[0],
        job=job,
        local=local,
        can_read=can_read,
        sockets=sockets,
        streams=trunk.streams,
        lanes=trunk.lanes.among(members),
        checksums=trunk.checksums,
        transport=trunk.transport,
        arena_bytes=trunk.arena_bytes,
        address=trunk.address,
        channels=trunk.channels,
    )


def _is_crowded(members: Sequence[Member], me: int) -> bool:
    """Whether the ranks of this machine, those in other containers included, outnumber its processors."""
    machine = members[me].machine
    return sum(member.machine == machine for member in members) > len(os.sched_getaffinity(0))


def _own_addresses(lanes: LinkConnections, remote: Sequence[int]) -> list[str]:
    """All that the topology gives to this rank, also where only it knocks: a wrong one is found at once."""
    return sorted({ends.here for rank in remote for ends in lanes.ends.get(rank, ())})


def _wanted(
    remote: Sequence[int], streams: int, lanes: LinkConnections
) -> dict[PeerConnection, ConnectionEnds | None]:
    wanted: dict[PeerConnection, ConnectionEnds | None] = {}
    for rank in remote:
        for number, ends in enumerate(lanes.ends.get(rank, (None,) * streams)):
            wanted[PeerConnection(rank, number)] = ends
    return wanted


def _by_rank(
    lines: dict[PeerConnection, socket.socket], remote: Sequence[int]
) -> dict[int, list[socket.socket]]:
    found: dict[int, list[socket.socket]] = {rank: [] for rank in remote}
    for line in sorted(lines):
        if line.purpose != HEARTBEATS:
            found[line.rank].append(lines[line])
    return found


def _check_cards(cards: Sequence[_Card], me: int) -> None:
    mine = cards[me]
    for rank, card in enumerate(cards):
        if card.streams != mine.streams:
            msg = f"rank {rank} wants {card.streams} streams, rank {me} {mine.streams}"
            raise InputError(msg)
        if card.checksums != mine.checksums:
            sends, does_not = (me, rank) if mine.checksums else (rank, me)
            msg = f"rank {sends} sends checksums and rank {does_not} does not; set all ranks alike"
            raise InputError(msg)
        if card.topology != mine.topology:
            mine_is, other_is = (f"{digest:.12}" or "none" for digest in (mine.topology, card.topology))
            msg = (
                f"rank {rank} has another topology of addresses than rank {me}: {other_is} and {mine_is}; "
                f"give all ranks the same file"
            )
            raise InputError(msg)


def _identify(doors: Sequence[ListenAddress]) -> int:
    """A number for a communicator that all its ranks know and no other has: their tokens are random."""
    digest = hashlib.sha256(b"".join(door.token for door in doors)).digest()
    return int.from_bytes(digest[:8], "little")


def _make_executor(
    host: _core.Host,
    channel: int,
    communicator: int,
    rank: int,
    job: list[int],
    local: list[int],
    sockets: dict[int, list[socket.socket]],
    can_read: frozenset[int],
    checksums: bool,
) -> _core.Executor:
    ranks = range(len(job))
    descriptors = [[one.fileno() for one in sockets.get(rank, ())] for rank in ranks]
    readable = [int(other in can_read) for other in ranks]
    return _core.Executor(host, channel, communicator, rank, job, local, descriptors, readable, checksums)


def _make_host(number: int, ranks: int, arena_bytes: int, crowded: bool, readable: bool) -> _core.Host:
    with guarded(f"making {ranks} x {arena_bytes:,} bytes of shared memory", memory=_SMALLER):
        return _core.Host(number, ranks, arena_bytes, crowded, readable)


def _attach(host: _core.Host, number: int, rank: int, card: _Card) -> None:
    with guarded(f"the shared memory of rank {rank} (pid {card.pid}) cannot be used", memory=_SMALLER):
        host.attach(number, card.pid, card.descriptor, card.arena_bytes)
